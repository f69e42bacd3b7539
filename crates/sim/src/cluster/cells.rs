//! Clients of table `w`: texts and blobs of 1 B to 8 KiB, static columns, collections whose elements are written one by one, and one partition of some hundred rows.
//!
//! Each cell is a register of the history: a column of a row, a static column, an entry of a map, an element of a set. A list is one register, because it is
//! only replaced as a whole. A text, a blob, an entry and the one element of a list name the timestamp of their write; an element of a set is there or not.

use std::collections::BTreeMap;

use super::clients::{Clients, W};
use super::history::{Effect, Key, PRESENT};
use super::writes::Planned;
use crate::decode::Rows;
use crate::model::Value;

/// Partitions; the last one has many rows.
pub(crate) const PARTITIONS: i32 = 4;
/// Rows of the others.
const FEW_ROWS: i32 = 3;
/// Rows of the last one.
const MANY_ROWS: i32 = 300;
/// Entries of a map, elements of a set.
const ELEMENTS: i32 = 4;
/// Registers of a row: `v`, `b`, the entries of `m`, the elements of `e`, and `l`.
const COLUMNS: i32 = 3 + 2 * ELEMENTS;
/// From one row's first register to the next row's.
const STRIDE: i32 = 16;
/// The registers of the two static columns.
const STATICS: [i32; 2] = [-STRIDE, -STRIDE + 1];
/// A value that is longer than this has its timestamp in front and then the same byte again and again.
const SHORT_MAX: usize = 8;
const BYTES_MAX: u64 = 8 << 10;
/// What no write has.
const DAMAGED: i32 = i32::MIN;

pub(crate) const TABLE: &str = "k.w (p int, c int, s text static, t blob static, v text, b blob, m map<int, int>, e set<int>, l list<int>, PRIMARY KEY (p, c))";

/// The last partition.
const WIDE: i32 = PARTITIONS - 1;

fn rows_of(p: i32) -> i32 {
    if p == WIDE { MANY_ROWS } else { FEW_ROWS }
}

/// The registers of a row: of the last partition the first two, since nothing else is written there.
fn registers_of_row(p: i32, c: i32) -> impl Iterator<Item = Key> {
    let columns = if p == WIDE { 2 } else { COLUMNS };
    (0..columns).map(move |column| (W, p, c * STRIDE + column))
}

/// All registers of a partition.
pub(crate) fn registers_of_partition(p: i32) -> Vec<Key> {
    let statics = STATICS.map(|slot| (W, p, slot));
    let statics = statics.into_iter().filter(|_| p != WIDE);
    statics
        .chain((0..rows_of(p)).flat_map(|c| registers_of_row(p, c)))
        .collect()
}

/// Reads a partition.
pub(crate) fn select(p: i32) -> String {
    format!("SELECT p, c, s, t, v, b, m, e, l FROM k.w WHERE p = {p}")
}

/// How long a value is: half of them as short as may be.
fn length(dice: u64) -> usize {
    let most = [0, 0, 100, BYTES_MAX][usize::try_from(dice % 4).expect("below 4")];
    usize::try_from((dice >> 2) % (most + 1)).expect("a few KiB")
}

/// The text of a write.
fn text(timestamp: i32, length: usize) -> String {
    match length {
        0..=SHORT_MAX => timestamp.to_string(),
        _ => format!("{timestamp:08}{}", "x".repeat(length - SHORT_MAX)),
    }
}

/// The blob of a write, in hexadecimal.
fn blob(timestamp: i32, length: usize) -> String {
    let bytes = timestamp.to_be_bytes();
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    match length {
        0..=SHORT_MAX => bytes[zeros..].iter().map(|byte| format!("{byte:02x}")).collect(),
        _ => format!("{timestamp:016x}{}", "5a".repeat(length - SHORT_MAX)),
    }
}

fn timestamp_of_text(text: &str) -> i32 {
    let (head, rest) = text.split_at_checked(SHORT_MAX).unwrap_or((text, ""));
    let is_whole = rest.bytes().all(|byte| byte == b'x');
    head.parse().ok().filter(|_| is_whole).unwrap_or(DAMAGED)
}

fn timestamp_of_blob(hexadecimal: &str) -> i32 {
    let (head, rest) = hexadecimal.split_at_checked(2 * SHORT_MAX).unwrap_or((hexadecimal, ""));
    let is_whole = rest.as_bytes().chunks(2).all(|byte| byte == b"5a");
    let timestamp = i32::from_str_radix(head, 16).ok();
    timestamp.filter(|_| is_whole).unwrap_or(DAMAGED)
}

/// The registers that a result shows.
pub(crate) fn registers(rows: &Rows) -> BTreeMap<Key, i32> {
    let mut all = BTreeMap::new();
    for row in rows {
        let Some(Value::Int(p)) = row.get("p") else { continue };
        let text = |name: &str| match row.get(name) {
            Some(Value::Text(text)) => Some(text.as_str()),
            _ => None,
        };
        let statics = [text("s").map(timestamp_of_text), text("t").map(timestamp_of_blob)];
        for (slot, timestamp) in STATICS.into_iter().zip(statics) {
            all.extend(timestamp.map(|timestamp| ((W, *p, slot), timestamp)));
        }
        // A partition that has static columns alone.
        let Some(Value::Int(c)) = row.get("c") else { continue };
        let mut put = |column: i32, timestamp: i32| {
            all.insert((W, *p, c * STRIDE + column), timestamp);
        };
        if let Some(v) = text("v") {
            put(0, timestamp_of_text(v));
        }
        if let Some(b) = text("b") {
            put(1, timestamp_of_blob(b));
        }
        if let Some(Value::Map(map)) = row.get("m") {
            map.iter().for_each(|(key, timestamp)| put(2 + key, *timestamp));
        }
        if let Some(Value::Set(set)) = row.get("e") {
            set.iter().for_each(|element| put(2 + ELEMENTS + element, PRESENT));
        }
        if let Some(Value::List(list)) = row.get("l") {
            put(
                2 + 2 * ELEMENTS,
                match list.values().collect::<Vec<_>>()[..] {
                    [timestamp] => *timestamp,
                    _ => DAMAGED,
                },
            );
        }
    }
    all
}

impl Clients {
    /// A write or a deletion of some cells.
    pub(crate) fn plan_cells(&self, dice: u64) -> Planned {
        let timestamp = self.history.borrow_mut().timestamp(dice >> 16);
        let number = |n: u64| i32::try_from(n).expect("a few");
        let p = number(dice % u64::from(PARTITIONS.unsigned_abs()));
        let c = number((dice >> 8) % u64::from(rows_of(p).unsigned_abs()));
        let element = number((dice >> 40) % u64::from(ELEMENTS.unsigned_abs()));
        let (using, place) = (format!("USING TIMESTAMP {timestamp}"), format!("p = {p} AND c = {c}"));
        let (long, short) = (length(dice >> 44), length(dice >> 20));
        let slot = |column: i32| (W, p, c * STRIDE + column);
        let entries = || (0..ELEMENTS).map(|n| slot(2 + n));
        let elements = || (0..ELEMENTS).map(|n| slot(2 + ELEMENTS + n));
        let list = slot(2 + 2 * ELEMENTS);
        let (v, b) = (text(timestamp, long), blob(timestamp, short));
        let update = |change: String| format!("UPDATE k.w {using} SET {change} WHERE {place}");
        let delete = |what: &str| format!("DELETE {what} FROM k.w {using} WHERE {place}");
        let (text, keys, effect) = match (dice >> 32) % 16 {
            0 if p != WIDE => {
                let text = format!("DELETE FROM k.w {using} WHERE p = {p}");
                (text, registers_of_partition(p), Effect::Delete)
            }
            1 => (delete(""), registers_of_row(p, c).collect(), Effect::Delete),
            2 if p != WIDE => (delete("v, m"), entries().chain([slot(0)]).collect(), Effect::Delete),
            3 if p != WIDE => (delete("e, l"), elements().chain([list]).collect(), Effect::Delete),
            4..=5 if p != WIDE => {
                let text = format!("UPDATE k.w {using} SET s = '{v}', t = 0x{b} WHERE p = {p}");
                (text, STATICS.map(|slot| (W, p, slot)).to_vec(), Effect::Set)
            }
            6 if p != WIDE => {
                let text = format!("DELETE s FROM k.w {using} WHERE p = {p}");
                (text, vec![(W, p, STATICS[0])], Effect::Delete)
            }
            7..=8 if p != WIDE => (
                update(format!("m[{element}] = {timestamp}")),
                vec![slot(2 + element)],
                Effect::Set,
            ),
            9 if p != WIDE => (
                delete(&format!("m[{element}]")),
                vec![slot(2 + element)],
                Effect::Delete,
            ),
            10..=11 if p != WIDE => (
                update(format!("e = e + {{{element}}}")),
                vec![slot(2 + ELEMENTS + element)],
                Effect::Set,
            ),
            12 if p != WIDE => (
                update(format!("e = e - {{{element}}}")),
                vec![slot(2 + ELEMENTS + element)],
                Effect::Delete,
            ),
            13 if p != WIDE => (update(format!("l = [{timestamp}]")), vec![list], Effect::Set),
            _ => {
                let text = format!("INSERT INTO k.w (p, c, v, b) VALUES ({p}, {c}, '{v}', 0x{b}) {using}");
                (text, vec![slot(0), slot(1)], Effect::Set)
            }
        };
        Planned {
            text,
            bound: None,
            keys,
            effect,
            timestamp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_any_length_names_its_write_and_one_that_is_cut_or_changed_names_none() {
        for timestamp in [1, 9, 255, 256, 70_000] {
            for length in [0, 1, 8, 9, 100, 8192] {
                let (text, blob) = (text(timestamp, length), blob(timestamp, length));
                assert_eq!(timestamp_of_text(&text), timestamp, "{length} bytes");
                assert_eq!(timestamp_of_blob(&blob), timestamp, "{length} bytes");
                assert_eq!(timestamp_of_text(&format!("{text}y")), DAMAGED, "{length} bytes");
                assert_eq!(
                    text.len(),
                    if length > SHORT_MAX {
                        length
                    } else {
                        timestamp.to_string().len()
                    }
                );
            }
        }
        assert_eq!(timestamp_of_text("00000001xxyx"), DAMAGED);
        assert_eq!(blob(7, 1), "07", "one byte");
    }
}
