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

use dynamodb::value::{key, storage};
use dynamodb::{AttributeValue, Error, ErrorKind, Item};
use mutation::compact::{LiveColumn, LiveRow};
use mutation::row::Shared;
use mutation::{Cell, Liveness, MutationBuilder, PartitionBlock, RowBuilder, Tombstone};
use stdx::preempt;
use types::MapIter;

use crate::table::{ItemKey, ItemTable};

/// The column of all attributes that are not in the key.
pub const ATTRIBUTES: &str = ":attrs";
/// The column of the transaction that a row takes part in.
pub const LOCK: &str = ":lock";

/// What a row holds, as a conditional write reads it.
#[derive(Debug, Default)]
pub struct StoredRow {
    /// The item, if there is one.
    pub item: Option<Item>,
    /// The transaction that the row takes part in.
    pub lock: Option<Vec<u8>>,
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
/// When an attribute was written by something else and is not what this API stores.
pub fn read_row(
    table: &ItemTable,
    item_key: &ItemKey,
    blocks: &[PartitionBlock],
    now: u32,
) -> Result<StoredRow, Error> {
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
            let mut exists = live.has_live_marker();
            let mut attributes = Item::new();
            for (id, column) in live.columns() {
                match column {
                    LiveColumn::Complex(elements) if id == table.attributes => {
                        for (path, cell) in elements {
                            preempt::point();
                            let (name, value) = attribute(table, path, cell.value)?;
                            attributes.insert(name, value);
                        }
                    }
                    LiveColumn::Simple(cell) if id == table.lock => stored.lock = Some(cell.value.to_vec()),
                    LiveColumn::Simple(_) | LiveColumn::Complex(_) => {}
                }
            }
            exists |= !attributes.is_empty();
            if exists {
                insert_key(table, item_key, &mut attributes)?;
                stored.item = Some(attributes);
            }
        }
    }
    Ok(stored)
}

fn attribute(table: &ItemTable, name: &[u8], value: &[u8]) -> Result<(String, AttributeValue), Error> {
    let name = std::str::from_utf8(name).map_err(|_| damaged(table, "the name of an attribute is no UTF-8"))?;
    let value = storage::read_value(value).map_err(|e| damaged(table, &format!("attribute {name}: {e}")))?;
    Ok((name.to_owned(), value))
}

/// Adds the attributes of the key to an item.
fn insert_key(table: &ItemTable, item_key: &ItemKey, item: &mut Item) -> Result<(), Error> {
    let parts = [Some(item_key.partition.as_slice()), item_key.sort()];
    for (attribute, bytes) in table.key.iter().zip(parts.into_iter().flatten()) {
        let value = key::from_cql(attribute.key_type, bytes).map_err(|_| damaged(table, "its key"))?;
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
    let mut item = Item::new();
    for (attribute, bytes) in table.key.iter().zip(&row.key) {
        let value = key::from_cql(attribute.key_type, bytes).map_err(|_| damaged(table, "its key"))?;
        item.insert(attribute.name.clone(), value);
    }
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

/// What a write leaves of a row.
#[derive(Debug)]
pub struct RowChange<'a> {
    /// The item that is there; None: it is deleted.
    pub new: Option<&'a Item>,
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
    /// There was none, or this one; attributes that are equal stay as they are.
    Known(Option<&'a Item>),
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
    let mut packed = Vec::new();
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
    let values = changed_attributes(table, change);
    let elements = values.iter().map(|(name, value)| {
        let cell = value.as_deref().map_or(dead, cell);
        (name.as_bytes(), cell)
    });
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
        if !values.is_empty() {
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

/// The attributes that a change writes, ascending by name; None: the attribute goes.
fn changed_attributes<'a>(table: &ItemTable, change: &RowChange<'a>) -> Vec<(&'a str, Option<Vec<u8>>)> {
    let Some(new) = change.new else { return Vec::new() };
    let old = match change.old {
        Old::Known(Some(old)) => Some(old),
        Old::Known(None) | Old::Unknown => None,
    };
    let mut changed = Vec::with_capacity(new.len());
    for (name, value) in new {
        let is_same = || old.and_then(|old| old.get(name)).is_some_and(|old| old.equals(value));
        if !table.is_key(name) && !is_same() {
            let mut bytes = Vec::new();
            storage::append_value(&mut bytes, value);
            preempt::push(&mut changed, (name.as_str(), Some(bytes)));
        }
    }
    let is_gone = |name: &&String| !new.contains_key(*name);
    for name in old.into_iter().flat_map(Item::keys).filter(is_gone) {
        preempt::push(&mut changed, (name.as_str(), None));
    }
    changed.sort_unstable_by_key(|(name, _)| *name);
    changed
}
