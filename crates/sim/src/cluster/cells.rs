//! Clients of table `w`: texts and blobs of 1 B to 8 KiB, static columns, collections whose elements are written one by
//! one, and one partition of some hundred rows.
//!
//! Each cell is a register of the history: a column of a row, a static column, an entry of a map, an element of a set.
//! The list `l` is one register, because it is only replaced as a whole. A text, a blob, an entry and the one element
//! of `l` name the timestamp of their write; an element of a set is there or not.
//!
//! The list `q` is only added to at its ends, and taken from by value. Each of its elements is a register of its own
//! ([`X`]), which is written once: adding is the one thing that may not be asked for twice. Elements come later than
//! all deletions that are under way, so that those which exist are all that a deletion is about.

use std::collections::BTreeMap;

use stdx::random::scramble;

use super::clients::{Clients, W, X};
use super::history::{Effect, Key, Level, PRESENT};
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
/// An element that is sent so long after another was acknowledged comes later by the clocks of all nodes.
const SAME_TIME_MILLIS: u64 = 20;
/// What no write has.
const DAMAGED: i32 = i32::MIN;

pub(crate) const TABLE: &str = "k.w (p int, c int, s text static, t blob static, v text, b blob, m map<int, int>, e set<int>, l list<int>, q list<int>, PRIMARY KEY (p, c))";

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

/// The registers of a partition but for the elements of its lists `q`.
fn registers_of_partition(p: i32) -> Vec<Key> {
    let statics = STATICS.map(|slot| (W, p, slot));
    let statics = statics.into_iter().filter(|_| p != WIDE);
    statics
        .chain((0..rows_of(p)).flat_map(|c| registers_of_row(p, c)))
        .collect()
}

/// An entry of the maps, drawn by chance, and its registers in all rows.
pub(super) fn registers_of_entry(dice: u64) -> (i32, Vec<Key>) {
    let entry = i32::try_from(dice % u64::from(ELEMENTS.unsigned_abs())).expect("a few");
    let rows = (0..WIDE).flat_map(|p| (0..FEW_ROWS).map(move |c| (p, c)));
    (entry, rows.map(|(p, c)| (W, p, c * STRIDE + 2 + entry)).collect())
}

/// Where the elements of a row's list `q` are registers.
fn place_of_elements(p: i32, c: i32) -> i32 {
    p * MANY_ROWS + c
}

/// An element of a list `q`, and what is known of when it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Added {
    /// Before all others.
    in_front: bool,
    sent: u64,
    acknowledged: Option<u64>,
}

/// Reads a partition.
pub(crate) fn select(p: i32) -> String {
    format!("SELECT p, c, s, t, v, b, m, e, l, q FROM k.w WHERE p = {p}")
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
        for element in elements_of(row) {
            let key = (X, place_of_elements(*p, *c), element);
            if all.insert(key, element).is_some() {
                all.insert(key, DAMAGED);
            }
        }
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

/// The elements of a row's list `q`, in order.
fn elements_of(row: &BTreeMap<String, Value>) -> impl Iterator<Item = i32> + '_ {
    let list = match row.get("q") {
        Some(Value::List(list)) => Some(list.values().copied()),
        _ => None,
    };
    list.into_iter().flatten()
}

/// Describes an element that is before another one though it must be after it, if there is one.
fn misplaced(elements: &[(i32, Added)], has_one_clock: bool) -> Option<String> {
    for (at, (before, one)) in elements.iter().enumerate() {
        for (next, other) in &elements[at + 1..] {
            let is_later = |later: &Added, earlier: &Added| {
                let settled = earlier.acknowledged.map(|time| time + SAME_TIME_MILLIS);
                has_one_clock && settled.is_some_and(|time| time < later.sent)
            };
            let why = match (one.in_front, other.in_front) {
                (false, true) => "which was put in front of all",
                (false, false) if is_later(one, other) => "which was appended before",
                (true, true) if is_later(other, one) => "which was put in front afterwards",
                _ => continue,
            };
            return Some(format!("{before} is before {next}, {why}"));
        }
    }
    None
}

impl Clients {
    /// The registers of a partition, with the elements of its lists that there have been.
    pub(crate) fn registers_of_cells(&self, p: i32) -> Vec<Key> {
        let mut all = registers_of_partition(p);
        if p != WIDE {
            all.extend((0..rows_of(p)).flat_map(|c| self.elements_of_row(p, c)));
        }
        all
    }

    fn elements_of_row(&self, p: i32, c: i32) -> Vec<Key> {
        self.history.borrow().keys_of(X, place_of_elements(p, c))
    }

    /// What may be an element is about to be sent.
    pub(crate) fn begin_element(&self, planned: &Planned, sent: u64) {
        if planned.keys[0].0 == X && planned.effect == Effect::Set {
            let added = Added {
                in_front: planned.text.contains("+ q"),
                sent,
                acknowledged: None,
            };
            self.added.borrow_mut().insert(planned.timestamp, added);
        }
    }

    /// What may be an element was acknowledged.
    pub(crate) fn end_element(&self, timestamp: i32, now: u64) {
        if let Some(added) = self.added.borrow_mut().get_mut(&timestamp) {
            added.acknowledged = Some(now);
        }
    }

    /// Whether the elements of lists are in the order in which they were added.
    pub(crate) fn check_lists(&self, rows: &Rows) -> Result<(), String> {
        let added = self.added.borrow();
        for row in rows {
            let known = |element| Some((element, *added.get(&element)?));
            let elements: Vec<(i32, Added)> = elements_of(row).filter_map(known).collect();
            if let Some(text) = misplaced(&elements, self.promises.clock_error.is_zero()) {
                return Err(format!("a list is {:?}: {text}", elements_of(row).collect::<Vec<_>>()));
            }
        }
        Ok(())
    }

    /// Adds an element to a list, or takes one away that a read at QUORUM must see: what is not seen is not taken away.
    pub(crate) fn plan_element(&self, node: usize, dice: u64) -> Planned {
        let number = |n: u64| i32::try_from(n).expect("a few");
        let p = number(dice % u64::from(WIDE.unsigned_abs()));
        let c = number((dice >> 8) % u64::from(FEW_ROWS.unsigned_abs()));
        let timestamp = self.history.borrow_mut().newest_timestamp();
        let asked = self.asked(node, Level::Quorum);
        let mut known = self.elements_of_row(p, c);
        known.retain(|key| self.history.borrow().floor(*key, asked) == key.2);
        let (change, key, effect) = match (dice >> 16) % 4 {
            0 if let Some(key) = known.first() => (format!("q = q - [{}]", key.2), *key, Effect::Delete),
            1 => (
                format!("q = [{timestamp}] + q"),
                (X, place_of_elements(p, c), timestamp),
                Effect::Set,
            ),
            _ => (
                format!("q = q + [{timestamp}]"),
                (X, place_of_elements(p, c), timestamp),
                Effect::Set,
            ),
        };
        Planned {
            text: format!("UPDATE k.w USING TIMESTAMP {timestamp} SET {change} WHERE p = {p} AND c = {c}"),
            bound: None,
            keys: vec![key],
            effect,
            timestamp,
        }
    }

    /// A write or a deletion of some cells.
    pub(crate) fn plan_cells(&self, dice: u64) -> Planned {
        let timestamp = self.history.borrow_mut().timestamp(dice >> 16);
        let number = |n: u64| i32::try_from(n).expect("a few");
        let p = number(dice % u64::from(PARTITIONS.unsigned_abs()));
        let c = number((dice >> 8) % u64::from(rows_of(p).unsigned_abs()));
        let element = number((dice >> 40) % u64::from(ELEMENTS.unsigned_abs()));
        let (using, place) = (format!("USING TIMESTAMP {timestamp}"), format!("p = {p} AND c = {c}"));
        let (long, short) = (length(scramble(dice)), length(dice >> 20));
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
                (text, self.registers_of_cells(p), Effect::Delete)
            }
            1 => {
                let cells = registers_of_row(p, c).chain(self.elements_of_row(p, c));
                (delete(""), cells.collect(), Effect::Delete)
            }
            2 if p != WIDE => (delete("v, m"), entries().chain([slot(0)]).collect(), Effect::Delete),
            3 if p != WIDE => {
                let cells = elements().chain([list]).chain(self.elements_of_row(p, c));
                (delete("e, l, q"), cells.collect(), Effect::Delete)
            }
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
    fn elements_stand_in_the_order_in_which_they_were_added_to_either_end() {
        let added = |in_front, sent, acknowledged| Added {
            in_front,
            sent,
            acknowledged,
        };
        let appended = |sent| added(false, sent, Some(sent + 1));
        let in_front = |sent| added(true, sent, Some(sent + 1));
        let one_by_one = [
            (4, in_front(300)),
            (3, in_front(200)),
            (1, appended(100)),
            (2, appended(400)),
        ];
        assert_eq!(misplaced(&one_by_one, true), None);
        let meanwhile = [(2, added(false, 110, None)), (1, added(false, 100, Some(120)))];
        assert_eq!(misplaced(&meanwhile, true), None, "nobody knows which came first");
        let swapped = [(2, appended(400)), (1, appended(100))];
        assert!(misplaced(&swapped, true).is_some());
        assert_eq!(misplaced(&swapped, false), None, "clocks differ");
        assert!(misplaced(&[(3, in_front(200)), (4, in_front(300))], true).is_some());
        assert!(misplaced(&[(1, appended(100)), (3, in_front(200))], false).is_some());
    }

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
