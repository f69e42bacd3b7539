//! How an item is stored: one row, with its key in columns of its own and all other attributes in a map.
//!
//! ```text
//! "alternator_T"."T" (
//!     hash  text | decimal | blob,            -- the attribute of the partition key
//!     range text | decimal | blob,            -- that of the sort key, if there is one
//!     ":attrs" map<text, blob>,               -- every other attribute, a cell each: dynamodb::value::storage
//!     ":lock" blob,                           -- the transaction that the row takes part in: lock.rs
//! )
//! ```
//!
//! An item exists if its row has a marker or a living attribute. A row that has nothing but a lock is no item.

use std::ops::Range;

use dynamodb::value::{json, key, size, storage};
use dynamodb::{AttributeValue, Error, ErrorKind, Item};
use mutation::compact::{LiveColumn, LiveRow};
use mutation::row::Shared;
use mutation::{Cell, Liveness, MutationBuilder, PartitionBlock, RowBuilder, Tombstone};
use stdx::preempt;
use types::MapIter;

use crate::table::{ItemKey, ItemTable, KeyAttribute};

/// The column of all attributes that are not in the key.
pub const ATTRIBUTES: &str = ":attrs";
/// The column of the transaction that a row takes part in.
pub const LOCK: &str = ":lock";

/// Attributes of an item that a write or a read looks at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Needed<'a> {
    /// All of them.
    All,
    /// These, and those of the key; ascending.
    Named(Vec<&'a str>),
}

impl<'a> Needed<'a> {
    /// None but those of the key.
    pub const NONE: Self = Self::Named(Vec::new());

    /// Those of these names, in any order.
    pub fn named(names: impl Iterator<Item = &'a str>) -> Self {
        let mut names = preempt::collect(names);
        names.sort_unstable();
        names.dedup();
        Self::Named(names)
    }

    /// Whether an attribute that is not in the key is one of them.
    pub fn has(&self, name: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.binary_search_by(|known| known.as_bytes().cmp(name)).is_ok(),
        }
    }
}

/// An attribute as a row has it: its name and its stored value.
pub type StoredAttribute<'b> = (&'b [u8], &'b [u8]);

/// What a row holds, as a conditional write reads it.
#[derive(Debug, Default)]
pub struct StoredRow<'b> {
    /// The item, if there is one: the attributes that were asked for, and those of the key.
    pub item: Option<Item>,
    /// All attributes that are not in the key, ascending by name.
    pub attributes: Vec<StoredAttribute<'b>>,
    /// The transaction that the row takes part in.
    pub lock: Option<&'b [u8]>,
    /// The greatest timestamp of the row, deletions included; microseconds.
    pub timestamp: i64,
}

/// The error of bytes in a table that no front door of ours has written.
#[cold]
pub fn damaged(table: &ItemTable, what: &str) -> Error {
    Error::new(
        ErrorKind::InternalServerError,
        format!("An item of table {} cannot be read: {what}", table.name),
    )
}

/// Reads a row out of the blocks of a read of exactly that row.
///
/// # Errors
/// When an attribute that is needed was written by something else and is not what this API stores.
pub fn read_row<'b>(
    table: &'b ItemTable,
    item_key: &ItemKey,
    blocks: &'b [PartitionBlock],
    now: u32,
    needed: &Needed<'_>,
) -> Result<StoredRow<'b>, Error> {
    let mut stored = StoredRow {
        timestamp: i64::MIN,
        ..StoredRow::default()
    };
    let (layout, order) = (&table.table.layout, &table.table.clustering_order);
    for block in blocks {
        stored.timestamp = stored.timestamp.max(block.tombstone.timestamp);
        for (clustering, row) in block.rows() {
            let deletion = block.deletion_of(order, clustering);
            stored.timestamp = stored.timestamp.max(row.max_timestamp(layout)).max(deletion.timestamp);
            let live = LiveRow::new(row, layout, deletion, now);
            for (id, column) in live.columns() {
                match column {
                    LiveColumn::Complex(elements) if id == table.attributes => {
                        for (name, cell) in elements {
                            preempt::point();
                            preempt::push(&mut stored.attributes, (name, cell.value));
                        }
                    }
                    LiveColumn::Simple(cell) if id == table.lock => stored.lock = Some(cell.value),
                    LiveColumn::Simple(_) | LiveColumn::Complex(_) => {}
                }
            }
            if live.has_live_marker() || !stored.attributes.is_empty() {
                let mut item = Item::new();
                for (name, value) in stored.attributes.iter().filter(|(name, _)| needed.has(name)) {
                    let (name, value) = attribute(table, name, value)?;
                    item.insert(name, value);
                }
                insert_key(table, item_key, &mut item)?;
                stored.item = Some(item);
            }
        }
    }
    Ok(stored)
}

/// The size in bytes of the attributes that were not asked for, as the API counts them.
///
/// # Errors
/// As [`read_row`].
pub fn unneeded_bytes(
    table: &ItemTable,
    attributes: &[StoredAttribute<'_>],
    needed: &Needed<'_>,
) -> Result<usize, Error> {
    let mut bytes = 0;
    for (name, value) in attributes.iter().filter(|(name, _)| !needed.has(name)) {
        let value = storage::stored_value_bytes(value);
        bytes += name.len() + value.map_err(|e| damaged(table, &e.to_string()))?;
    }
    Ok(bytes)
}

fn attribute(table: &ItemTable, name: &[u8], value: &[u8]) -> Result<(String, AttributeValue), Error> {
    let name = name_of(table, name)?;
    let value = storage::read_value(value).map_err(|e| damaged_value(table, name, e))?;
    Ok((name.to_owned(), value))
}

fn name_of<'n>(table: &ItemTable, name: &'n [u8]) -> Result<&'n str, Error> {
    std::str::from_utf8(name).map_err(|_| damaged(table, "the name of an attribute is no UTF-8"))
}

#[cold]
fn damaged_value(table: &ItemTable, name: &str, error: storage::Malformed) -> Error {
    damaged(table, &format!("attribute {name}: {error}"))
}

/// Adds the attributes of the key to an item.
fn insert_key(table: &ItemTable, item_key: &ItemKey, item: &mut Item) -> Result<(), Error> {
    let parts = [Some(item_key.partition.as_slice()), item_key.sort()];
    for (attribute, bytes) in table.key.iter().zip(parts.into_iter().flatten()) {
        let value = key_value(table, attribute, bytes)?;
        item.insert(attribute.name.clone(), value);
    }
    Ok(())
}

/// What a read returned of a row: serialised values of the key and of the map.
#[derive(Debug, Default)]
pub struct ReadRow {
    /// The values of the key's columns, in their order.
    pub key: Vec<Vec<u8>>,
    /// The map of attributes.
    pub attributes: Option<Vec<u8>>,
    /// The transaction that the row takes part in.
    pub lock: Option<Vec<u8>>,
}

/// The item of a row that was read; None: the row is no item.
///
/// # Errors
/// As [`read_row`].
pub fn item_of(table: &ItemTable, row: &ReadRow) -> Result<Option<Item>, Error> {
    if row.lock.as_deref().is_some_and(|lock| !crate::lock::has_item(lock)) {
        return Ok(None);
    }
    let mut item = key_item(table, &row.key)?;
    let Some(map) = &row.attributes else {
        return Ok(Some(item));
    };
    let pairs = MapIter::new(map).map_err(|e| damaged(table, &e.to_string()))?;
    for pair in pairs {
        preempt::point();
        let (name, value) = pair.map_err(|e| damaged(table, &e.to_string()))?;
        let (name, value) = attribute(table, name, value)?;
        item.insert(name, value);
    }
    Ok(Some(item))
}

/// The attributes of the key of a row that was read, from the values of the key's columns.
///
/// # Errors
/// When they are no values of the key.
pub fn key_item(table: &ItemTable, values: &[Vec<u8>]) -> Result<Item, Error> {
    let mut item = Item::new();
    for (attribute, bytes) in table.key.iter().zip(values) {
        item.insert(attribute.name.clone(), key_value(table, attribute, bytes)?);
    }
    Ok(item)
}

fn key_value(table: &ItemTable, attribute: &KeyAttribute, bytes: &[u8]) -> Result<AttributeValue, Error> {
    key::from_cql(attribute.key_type, bytes).map_err(|_| damaged(table, "its key"))
}

/// The JSON of the item of a row without a lock, with no item in between.
///
/// # Errors
/// As [`read_row`].
pub fn json_of(table: &ItemTable, row: &ReadRow) -> Result<Vec<u8>, Error> {
    /// Of an attribute beside its name and value.
    const MARKS_BYTES: usize = 16;
    let map = row.attributes.as_deref().map(MapIter::new).transpose();
    let pairs = map.map_err(|e| damaged(table, &e.to_string()))?;
    let stored_bytes = row.attributes.as_ref().map_or(0, Vec::len);
    let mut out = Vec::with_capacity((stored_bytes + 4 * MARKS_BYTES).min(preempt::STEP_BYTES));
    let mut separator = b'{';
    let mut begin = |out: &mut Vec<u8>, name: &str| {
        preempt::push(out, separator);
        json::write_string(out, name);
        out.push(b':');
        separator = b',';
    };
    for (attribute, bytes) in table.key.iter().zip(&row.key) {
        let value = key_value(table, attribute, bytes)?;
        begin(&mut out, &attribute.name);
        json::write_value(&mut out, &value);
    }
    for pair in pairs.into_iter().flatten() {
        preempt::point();
        let (name, value) = pair.map_err(|e| damaged(table, &e.to_string()))?;
        let name = name_of(table, name)?;
        begin(&mut out, name);
        storage::write_value_json(&mut out, value).map_err(|e| damaged_value(table, name, e))?;
    }
    out.push(b'}');
    Ok(out)
}

/// The size in bytes of the item of a row without a lock, as the API counts it.
///
/// # Errors
/// As [`read_row`].
pub fn bytes_of(table: &ItemTable, row: &ReadRow) -> Result<usize, Error> {
    let mut bytes = 0;
    for (attribute, value) in table.key.iter().zip(&row.key) {
        let value = key_value(table, attribute, value)?;
        bytes += attribute.name.len() + size::value_bytes(&value);
    }
    let Some(map) = &row.attributes else { return Ok(bytes) };
    for pair in MapIter::new(map).map_err(|e| damaged(table, &e.to_string()))? {
        let (name, value) = pair.map_err(|e| damaged(table, &e.to_string()))?;
        let value = storage::stored_value_bytes(value);
        bytes += name.len() + value.map_err(|e| damaged(table, &e.to_string()))?;
    }
    Ok(bytes)
}

/// What a write leaves of a row.
#[derive(Debug)]
pub struct RowChange<'a> {
    /// The item that is there; None: it is deleted.
    pub new: Option<&'a Item>,
    /// The attributes that `new` speaks of. Others stay as they are.
    pub spoken_of: &'a Needed<'a>,
    /// The item that was there, which a write without reading does not know.
    pub old: Old<'a>,
    /// The lock that is there; None: it stays as it is.
    pub lock: Option<LockChange<'a>>,
}

/// What a write knows of the item that was there.
#[derive(Clone, Copy, Debug)]
pub enum Old<'a> {
    /// Nothing: all that was written before goes.
    Unknown,
    /// These, ascending by name, are the attributes of the row; those that are equal stay as they are.
    Known(&'a [StoredAttribute<'a>]),
}

/// What becomes of the lock of a row.
#[derive(Clone, Copy, Debug)]
pub enum LockChange<'a> {
    /// It is this one.
    Set(&'a [u8]),
    /// It goes.
    Clear,
}

/// The packed mutation that makes a row what the change says, at a timestamp above all that it replaces.
/// `second`: when it is written, for the grace of its deletions.
pub fn pack(table: &ItemTable, item_key: &ItemKey, change: &RowChange<'_>, timestamp: i64, second: u32) -> Vec<u8> {
    let changed = ChangedAttributes::of(table, change);
    let mut packed = Vec::with_capacity(changed.packed_bytes() + item_key.partition.len() + item_key.clustering.len());
    let mut mutation = MutationBuilder::begin(&mut packed, table.table.id, &item_key.partition);
    let cell = |value| Cell {
        timestamp,
        ttl: 0,
        deletion_time: 0,
        dead: false,
        value,
    };
    let dead = Cell {
        dead: true,
        deletion_time: second,
        ..cell(&[][..])
    };
    let row_deletion = |timestamp| Tombstone {
        timestamp,
        deletion_time: second,
    };
    let elements = changed.iter().map(|(name, value)| (name, value.map_or(dead, cell)));
    // What a deletion covers must be older than what the same write leaves.
    let deletion = match (change.new, change.old) {
        (None, _) | (_, Old::Unknown) => row_deletion(timestamp - 1),
        (Some(_), Old::Known(_)) => Tombstone::NONE,
    };
    let marker = change.new.map(|_| Liveness {
        timestamp,
        ttl: 0,
        expiry: 0,
    });
    let lock = match change.lock {
        Some(LockChange::Set(lock)) => Some(cell(lock)),
        // The deletion of a row takes its lock with it.
        Some(LockChange::Clear) if deletion.is_none() => Some(dead),
        Some(LockChange::Clear) | None => None,
    };
    let columns = table.attributes.max(table.lock) + 1;
    let mut deletion = deletion;
    if item_key.clustering.is_empty() && !deletion.is_none() {
        // As a DELETE of CQL would.
        mutation.partition_tombstone(std::mem::replace(&mut deletion, Tombstone::NONE));
        if change.new.is_none() {
            return packed;
        }
    }
    mutation.row(&item_key.clustering, |out| {
        let shared = Shared {
            timestamp,
            ttl: 0,
            expiry: 0,
        };
        let is_mixed = lock.is_some_and(|lock| lock.dead);
        let mut row = RowBuilder::begin(out, &table.table.layout, shared, marker, deletion, is_mixed, columns);
        let put_lock = |row: &mut RowBuilder<'_>| {
            if let Some(lock) = &lock {
                row.cell(table.lock, lock);
            }
        };
        if table.lock < table.attributes {
            put_lock(&mut row);
        }
        if !changed.is_empty() {
            row.complex(table.attributes, Tombstone::NONE, elements);
        }
        if table.lock > table.attributes {
            put_lock(&mut row);
        }
    });
    packed
}

/// The packed mutation that sets the lock of a row, or takes it away, and leaves the item as it is.
pub fn pack_lock(table: &ItemTable, item_key: &ItemKey, lock: LockChange<'_>, timestamp: i64, second: u32) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut mutation = MutationBuilder::begin(&mut packed, table.table.id, &item_key.partition);
    let (dead, value) = match lock {
        LockChange::Set(value) => (false, value),
        LockChange::Clear => (true, &[][..]),
    };
    let cell = Cell {
        timestamp,
        ttl: 0,
        deletion_time: if dead { second } else { 0 },
        dead,
        value,
    };
    mutation.row(&item_key.clustering, |out| {
        let shared = Shared {
            timestamp,
            ttl: 0,
            expiry: 0,
        };
        let layout = &table.table.layout;
        let mut row = RowBuilder::begin(out, layout, shared, None, Tombstone::NONE, dead, table.lock + 1);
        row.cell(table.lock, &cell);
    });
    packed
}

/// The attributes that a change writes, ascending by name.
#[derive(Default)]
struct ChangedAttributes<'a> {
    /// The name, and where the value is in `values`; None: the attribute goes.
    names: Vec<(&'a [u8], Option<Range<usize>>)>,
    values: Vec<u8>,
}

impl<'a> ChangedAttributes<'a> {
    fn of(table: &ItemTable, change: &RowChange<'a>) -> Self {
        let mut changed = Self::default();
        let Some(new) = change.new else { return changed };
        let old = match change.old {
            Old::Known(old) => old,
            Old::Unknown => &[],
        };
        changed.names.reserve(new.len());
        let mut old = old.iter().peekable();
        for (name, value) in new.iter().filter(|(name, _)| !table.is_key(name.as_bytes())) {
            preempt::point();
            while let Some((before, _)) = old.next_if(|(before, _)| *before < name.as_bytes()) {
                changed.remove(before, change.spoken_of);
            }
            let stored = old.next_if(|(known, _)| *known == name.as_bytes());
            changed.set(name.as_bytes(), value, stored.map(|(_, value)| *value));
        }
        for (name, _) in old {
            preempt::point();
            changed.remove(name, change.spoken_of);
        }
        changed
    }

    /// Adds an attribute unless its value is stored already: equal values have equal bytes.
    fn set(&mut self, name: &'a [u8], value: &AttributeValue, stored: Option<&[u8]>) {
        let start = self.values.len();
        storage::append_value(&mut self.values, value);
        let place = start..self.values.len();
        if stored.is_some_and(|stored| self.values.get(place.clone()) == Some(stored)) {
            self.values.truncate(start);
        } else {
            preempt::push(&mut self.names, (name, Some(place)));
        }
    }

    fn remove(&mut self, name: &'a [u8], spoken_of: &Needed<'_>) {
        if spoken_of.has(name) {
            preempt::push(&mut self.names, (name, None));
        }
    }

    fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    fn iter(&self) -> impl Iterator<Item = (&'a [u8], Option<&[u8]>)> + Clone {
        let value = |place: &Range<usize>| self.values.get(place.clone()).unwrap_or_default();
        self.names
            .iter()
            .map(move |(name, place)| (*name, place.as_ref().map(value)))
    }

    /// About as many bytes as they take in a mutation.
    fn packed_bytes(&self) -> usize {
        const ROW_BYTES: usize = 64;
        const CELL_BYTES: usize = 24;
        ROW_BYTES + self.values.len() + self.names.len() * CELL_BYTES
    }
}
