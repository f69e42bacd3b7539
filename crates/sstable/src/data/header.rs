//! The serialisation header: which columns the rows have, of which types, and what their times are relative to.
//!
//! ```text
//! vint minimum timestamp - epoch, vint minimum deletion time - epoch, vint minimum ttl
//! sized partition key type, vint n, n x sized clustering type
//! twice (static, regular): vint n, n x {sized name, sized type}           sized: vint length and bytes
//! ```
//! Types are Java class names. Whatever order the columns are listed in, rows have them in one order: atomic columns
//! before multi-cell ones, each by the bytes of the name.

use mutation::dates::durable_expiry;
use mutation::{Column, PartitionBlock, RowView, Tombstone};
use schema::{CellLayout, ColumnKind, RowLayout, Successor, Table};
use stdx::bytes::{Reader, put_sized};
use stdx::vint;
use types::{CqlType, partition_key_from_marshal_name, partition_key_marshal_name};

use crate::error::Damage;
use crate::statistics::Statistics;

/// Seconds of 2015-09-22, which the header's minima count from.
const EPOCH_SECONDS: i64 = 1_442_880_000;
const EPOCH_MICROSECONDS: i64 = EPOCH_SECONDS * 1_000_000;

/// The last deletion time or expiry that the format can hold: the next one means none.
pub(crate) const DELETION_TIME_MAX: u32 = i32::MAX as u32 - 1;
/// How the format says "no deletion time".
pub(crate) const NO_DELETION_TIME: u32 = i32::MAX as u32;

/// What times in rows are relative to. Any value is right; the minima of the data make the file small.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EncodingBase {
    /// Microseconds.
    pub timestamp: i64,
    /// Seconds since the epoch. Files of others hold strange ones where nothing is deleted.
    pub deletion_time: i64,
    /// Seconds; likewise.
    pub ttl: i64,
}

impl Default for EncodingBase {
    fn default() -> Self {
        Self {
            timestamp: EPOCH_MICROSECONDS,
            deletion_time: EPOCH_SECONDS,
            ttl: 0,
        }
    }
}

impl EncodingBase {
    /// The base of data with these minima; None where there is nothing of the kind.
    #[must_use]
    pub fn of_minima(timestamp: Option<i64>, deletion_time: Option<u32>, ttl: Option<u32>) -> Self {
        let default = Self::default();
        Self {
            timestamp: timestamp.unwrap_or(default.timestamp),
            deletion_time: deletion_time.map_or(default.deletion_time, |d| {
                i64::from(d).clamp(default.deletion_time, i64::from(DELETION_TIME_MAX))
            }),
            ttl: ttl.map_or(default.ttl, i64::from),
        }
    }

    /// The base of these blocks.
    #[must_use]
    pub fn of_blocks<'a>(layout: &RowLayout, blocks: impl IntoIterator<Item = &'a PartitionBlock>) -> Self {
        let (mut timestamp, mut deletion_time, mut ttl) = (None::<i64>, None::<u32>, None::<u32>);
        let mut see = |ts: Option<i64>, dt: Option<u32>, t: Option<u32>| {
            timestamp = ts.map_or(timestamp, |v| Some(timestamp.map_or(v, |m| m.min(v))));
            deletion_time = dt.map_or(deletion_time, |v| Some(deletion_time.map_or(v, |m| m.min(v))));
            ttl = t.map_or(ttl, |v| Some(ttl.map_or(v, |m| m.min(v))));
        };
        let deletion = |t: Tombstone| (!t.is_none()).then_some((t.timestamp, t.deletion_time));
        for block in blocks {
            let tombstones = std::iter::once(block.tombstone).chain(block.range_tombstones.iter().map(|r| r.tombstone));
            for (ts, dt) in tombstones.filter_map(deletion) {
                see(Some(ts), Some(dt), None);
            }
            let rows = block.static_row().into_iter().chain(block.rows().map(|(_, row)| row));
            for row in rows {
                see_row(layout, &row, &mut see);
            }
        }
        Self::of_minima(timestamp, deletion_time, ttl)
    }

    /// Wrapping, so that any timestamp can be written against any base.
    #[inline]
    pub(crate) fn delta_timestamp(&self, timestamp: i64) -> u64 {
        timestamp.wrapping_sub(self.timestamp).cast_unsigned()
    }

    #[inline]
    pub(crate) fn delta_deletion_time(&self, deletion_time: u32) -> u64 {
        i64::from(deletion_time)
            .wrapping_sub(self.deletion_time)
            .cast_unsigned()
    }

    #[inline]
    pub(crate) fn delta_ttl(&self, ttl: u32) -> u64 {
        i64::from(ttl).wrapping_sub(self.ttl).cast_unsigned()
    }

    #[inline]
    pub(crate) fn timestamp(&self, delta: u64) -> i64 {
        self.timestamp.wrapping_add(delta.cast_signed())
    }

    /// None when it is not a time.
    #[inline]
    pub(crate) fn deletion_time(&self, delta: u64) -> Option<u32> {
        u32::try_from(self.deletion_time.wrapping_add(delta.cast_signed())).ok()
    }

    /// None when it is not a time to live.
    #[inline]
    pub(crate) fn ttl(&self, delta: u64) -> Option<u32> {
        u32::try_from(self.ttl.wrapping_add(delta.cast_signed()))
            .ok()
            .filter(|&t| t <= i32::MAX as u32)
    }
}

fn see_row(layout: &RowLayout, row: &RowView<'_>, see: &mut impl FnMut(Option<i64>, Option<u32>, Option<u32>)) {
    if let Some(m) = row.marker {
        let expires = m.ttl > 0;
        let (ttl, expiry) = durable_expiry(m.ttl, m.expiry);
        see(Some(m.timestamp), expires.then_some(expiry), expires.then_some(ttl));
    }
    if !row.tombstone.is_none() {
        see(Some(row.tombstone.timestamp), Some(row.tombstone.deletion_time), None);
    }
    let mut see_cell = |c: &mutation::Cell<'_>| {
        let expires = !c.dead && c.ttl > 0;
        let (ttl, deletion_time) = if expires {
            durable_expiry(c.ttl, c.deletion_time)
        } else {
            (0, c.deletion_time)
        };
        see(
            Some(c.timestamp),
            (c.dead || expires).then_some(deletion_time),
            expires.then_some(ttl),
        );
    };
    for (_, column) in row.columns(layout) {
        match column {
            Column::Simple(c) => see_cell(&c),
            Column::Complex(complex) => {
                if !complex.tombstone.is_none() {
                    let t = complex.tombstone;
                    see_cell(&mutation::Cell {
                        timestamp: t.timestamp,
                        ttl: 0,
                        deletion_time: t.deletion_time,
                        dead: true,
                        value: &[],
                    });
                }
                complex.elements().for_each(|(_, c)| see_cell(&c));
            }
        }
    }
}

/// A static or regular column as the file has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeaderColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub cql_type: CqlType,
}

/// The serialisation header. Columns are in the order that rows have them in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SerializationHeader {
    /// What times are relative to.
    pub base: EncodingBase,
    /// Types of the partition key's columns.
    pub partition_key: Vec<CqlType>,
    /// Types of the clustering columns, and whether they descend.
    pub clustering: Vec<(CqlType, bool)>,
    /// Static columns.
    pub statics: Vec<HeaderColumn>,
    /// Regular columns.
    pub regulars: Vec<HeaderColumn>,
}

/// Cassandra's order: simple columns first, then by the bytes of the name, of which those of the first byte with its
/// highest bit come before the others. Cassandra finds the cells of a row by this order, whatever order the header has.
fn sort_columns(columns: &mut [HeaderColumn]) {
    let order = |column: &HeaderColumn| {
        let first = column.name.bytes().next();
        (column.cql_type.is_multi_cell(), first.map(|byte| byte ^ 0x80))
    };
    columns.sort_by(|a, b| order(a).cmp(&order(b)).then_with(|| a.name.cmp(&b.name)));
}

fn get_text<'a>(r: &mut Reader<'a>) -> Result<&'a str, Damage> {
    let at = r.at();
    std::str::from_utf8(r.get_sized()?).map_err(|_| Damage::new(at, "text in UTF-8"))
}

fn get_type(r: &mut Reader<'_>) -> Result<(CqlType, bool), Damage> {
    let at = r.at();
    let text = get_text(r)?;
    CqlType::from_marshal_name(text).map_err(|e| Damage::new(at, format!("the class of a type of CQL: {e}")))
}

impl SerializationHeader {
    /// The header of a file that is written for `table`. `dropped` are the dropped columns of which the file has cells.
    #[must_use]
    pub fn of_table(table: &Table, dropped: &[usize], base: EncodingBase) -> Self {
        let columns = |kind: ColumnKind| {
            let living = table.columns.iter().filter(|c| c.kind == kind);
            let living = living.map(|c| (&c.name, &c.cql_type));
            let kept = table.dropped.iter().filter(|c| c.kind == kind);
            let kept = kept.filter(|c| dropped.contains(&usize::from(c.id.0)));
            let mut columns: Vec<HeaderColumn> = living
                .chain(kept.map(|c| (&c.name, &c.cql_type)))
                .map(|(name, cql_type)| HeaderColumn {
                    name: name.clone(),
                    cql_type: cql_type.clone(),
                })
                .collect();
            sort_columns(&mut columns);
            columns
        };
        Self {
            base,
            partition_key: table.partition_key().map(|c| c.cql_type.clone()).collect(),
            clustering: table.clustering().map(|c| (c.cql_type.clone(), c.descending)).collect(),
            statics: columns(ColumnKind::Static),
            regulars: columns(ColumnKind::Regular),
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        vint::put_unsigned(
            out,
            self.base.timestamp.wrapping_sub(EPOCH_MICROSECONDS).cast_unsigned(),
        );
        vint::put_unsigned(out, self.base.deletion_time.wrapping_sub(EPOCH_SECONDS).cast_unsigned());
        vint::put_unsigned(out, self.base.ttl.cast_unsigned());
        put_sized(out, partition_key_marshal_name(&self.partition_key).as_bytes());
        vint::put_unsigned(out, self.clustering.len() as u64);
        for (t, descending) in &self.clustering {
            put_sized(
                out,
                if *descending {
                    t.marshal_name_reversed()
                } else {
                    t.marshal_name()
                }
                .as_bytes(),
            );
        }
        for columns in [&self.statics, &self.regulars] {
            vint::put_unsigned(out, columns.len() as u64);
            for c in columns {
                put_sized(out, c.name.as_bytes());
                put_sized(out, c.cql_type.marshal_name().as_bytes());
            }
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, Damage> {
        let timestamp = EPOCH_MICROSECONDS.wrapping_add(r.get_vint()?.cast_signed());
        let deletion_time = EPOCH_SECONDS.wrapping_add(r.get_vint()?.cast_signed());
        let ttl = r.get_vint()?.cast_signed();
        let base = EncodingBase {
            timestamp,
            deletion_time,
            ttl,
        };
        let at = r.at();
        let partition_key = partition_key_from_marshal_name(get_text(r)?)
            .map_err(|e| Damage::new(at, format!("the class of a partition key: {e}")))?;
        let mut clustering = Vec::new();
        for _ in 0..r.get_vint()? {
            clustering.push(get_type(r)?);
        }
        let mut both = [Vec::new(), Vec::new()];
        for columns in &mut both {
            for _ in 0..r.get_vint()? {
                let name = get_text(r)?.to_owned();
                let (cql_type, _) = get_type(r)?;
                columns.push(HeaderColumn { name, cql_type });
            }
        }
        let [statics, regulars] = both;
        Ok(Self {
            base,
            partition_key,
            clustering,
            statics,
            regulars,
        })
    }
}

/// Where a cell of the file goes in the table's rows, or comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    /// The table's column, a living one or one that was dropped; None: the cell is skipped.
    pub(crate) id: Option<u16>,
    /// How the table's rows hold it.
    pub(crate) layout: CellLayout,
    /// Cells at or below this timestamp are of a dropped column.
    pub(crate) dropped_at: i64,
    /// Values have this length and no length prefix.
    pub(crate) fixed_len: Option<usize>,
    /// A multi-cell column.
    pub(crate) is_complex: bool,
}

impl Slot {
    /// A counter: one cell in the file, elements in the table's rows.
    #[inline]
    pub(crate) fn is_counter(&self) -> bool {
        self.layout == CellLayout::Complex && !self.is_complex
    }
}

/// The columns of one kind of row (static or regular) in file order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    pub(crate) slots: Vec<Slot>,
    /// Column ids ascend in file order, so a row can be converted in one pass.
    pub(crate) are_ids_ascending: bool,
    /// Any of them is multi-cell.
    pub(crate) has_complex: bool,
}

impl Slots {
    fn new(slots: Vec<Slot>) -> Self {
        let known: Vec<u16> = slots.iter().filter_map(|s| s.id).collect();
        Self {
            are_ids_ascending: known.windows(2).all(|w| w[0] < w[1]),
            has_complex: slots.iter().any(|s| s.is_complex),
            slots,
        }
    }

    /// Matches the file's columns with the table's. Err says which do not fit.
    pub(crate) fn of(columns: &[HeaderColumn], kind: ColumnKind, table: &Table) -> Result<Self, String> {
        let mut slots = Vec::with_capacity(columns.len());
        for c in columns {
            let living = table.columns.iter().find(|t| t.kind == kind && t.name == c.name);
            let last_dropped = table.dropped.iter().rfind(|d| d.kind == kind && d.name == c.name);
            let successor = last_dropped.and_then(|d| table.layout.successor(usize::from(d.id.0)));
            let dropped_at = successor.map_or(i64::MIN, |s| s.newer_than);
            if let Some(t) = living
                && !fits(&c.cql_type, &t.cql_type)
            {
                // A column of the name and another type that was dropped since: all cells here are its.
                let was_dropped = table
                    .dropped
                    .iter()
                    .any(|d| d.name == c.name && fits(&c.cql_type, &d.cql_type));
                if !was_dropped {
                    return Err(format!(
                        "column {} is {} in the file, {} in the table",
                        c.name, c.cql_type, t.cql_type
                    ));
                }
            }
            if living.is_none() && last_dropped.is_none() {
                return Err(format!(
                    "column {} ({}) is in the file, and {}.{} has none of that name and had none: add the column, or what the file has in it would be lost",
                    c.name, c.cql_type, table.keyspace, table.name
                ));
            }
            let living = living.map(|t| (t.id, &t.cql_type));
            let target = living.or(last_dropped.map(|d| (d.id, &d.cql_type)));
            let target = target.filter(|(_, cql_type)| fits(&c.cql_type, cql_type));
            slots.push(Slot {
                id: target.map(|(id, _)| id.0),
                layout: target.map_or(CellLayout::Unknown, |(id, _)| table.layout.cell(usize::from(id.0))),
                dropped_at,
                fixed_len: c.cql_type.fixed_len(),
                is_complex: c.cql_type.is_multi_cell(),
            });
        }
        Ok(Self::new(slots))
    }
}

/// The dropped columns of which a file may have cells that are newer than the DROP. They outlive a rewrite of the file,
/// because the column may be added again.
#[must_use]
pub fn kept_columns(statistics: &Statistics, table: &Table) -> Vec<usize> {
    let kinds = [
        (ColumnKind::Static, &statistics.header.statics),
        (ColumnKind::Regular, &statistics.header.regulars),
    ];
    let mut kept = Vec::new();
    for (id, dropped) in table.dropped.iter().map(|d| (usize::from(d.id.0), d)) {
        let is_in_file = kinds
            .iter()
            .any(|(kind, columns)| *kind == dropped.kind && columns.iter().any(|c| c.name == dropped.name));
        let is_newer = |s: Successor| s.id == id && statistics.max_timestamp > s.newer_than;
        if is_in_file && table.layout.successor(id).is_some_and(is_newer) {
            kept.push(id);
        }
    }
    kept
}

/// Whether values of type `file` fit in a column of type `table`.
pub(crate) fn fits(file: &CqlType, table: &CqlType) -> bool {
    match (file, table) {
        (CqlType::Frozen(a), CqlType::Frozen(b))
        | (CqlType::List(a), CqlType::List(b))
        | (CqlType::Set(a), CqlType::Set(b)) => fits(a, b),
        (CqlType::Map(a, x), CqlType::Map(b, y)) => fits(a, b) && fits(x, y),
        (CqlType::Tuple(a), CqlType::Tuple(b)) => a.iter().zip(b.iter()).all(|(a, b)| fits(a, b)),
        // ALTER TYPE adds and renames fields.
        (CqlType::Udt(a), CqlType::Udt(b)) => a.name == b.name,
        // A dropped column has tuples in the place of user-defined types.
        (CqlType::Frozen(a), CqlType::Tuple(_)) if matches!(**a, CqlType::Udt(_)) => {
            fits(&a.without_user_types(), table)
        }
        (CqlType::Vector(a, n), CqlType::Vector(b, m)) => n == m && fits(a, b),
        (CqlType::Empty, _) | (_, CqlType::Empty) => file == table,
        (f, CqlType::Blob) => !f.is_multi_cell() && !f.is_counter(),
        (CqlType::Ascii, CqlType::Text)
        | (CqlType::TimeUuid, CqlType::Uuid)
        | (CqlType::Int | CqlType::BigInt | CqlType::Timestamp, CqlType::VarInt)
        | (CqlType::Timestamp, CqlType::BigInt)
        | (CqlType::BigInt, CqlType::Timestamp) => true,
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, cql_type: &str) -> HeaderColumn {
        HeaderColumn {
            name: name.to_owned(),
            cql_type: CqlType::parse_native(cql_type).expect("a native type"),
        }
    }

    #[test]
    fn columns_are_in_the_order_in_which_cassandra_finds_their_cells() {
        let names = ["z", "é", "aé", "Z", "日本", "a"];
        let mut columns: Vec<HeaderColumn> = names.iter().map(|name| column(name, "text")).collect();
        columns.extend(["b", "ü"].iter().map(|name| column(name, "set<int>")));
        sort_columns(&mut columns);
        let sorted: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(sorted, ["é", "日本", "Z", "a", "aé", "z", "ü", "b"]);
    }

    #[test]
    fn a_header_is_read_in_the_order_that_it_was_written_in() {
        // As another writer may sort them: its rows have that order too.
        let header = SerializationHeader {
            base: EncodingBase {
                timestamp: EPOCH_MICROSECONDS,
                deletion_time: EPOCH_SECONDS,
                ttl: 0,
            },
            partition_key: vec![CqlType::Int],
            clustering: Vec::new(),
            statics: Vec::new(),
            regulars: vec![column("a", "text"), column("é", "text"), column("b", "set<int>")],
        };
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        assert_eq!(SerializationHeader::decode(&mut Reader::new(&bytes)), Ok(header));
    }
}
