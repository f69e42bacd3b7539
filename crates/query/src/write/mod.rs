//! INSERT, UPDATE and DELETE: compiled once, packed into mutations at each execution.

mod collection;
mod compile;
mod condition;
pub mod conditional;
mod pack;

use std::cell::Cell;
use std::sync::Arc;

use schema::Table;

use crate::restrict::{ClusteringRestriction, PartitionRestriction};
use crate::term::Operand;

use condition::Conditions;

pub use compile::{compile_delete, compile_insert, compile_update};
pub use conditional::{ConditionalAnswer, CurrentRows, ReadSpec, Request, Statement};

/// The longest time to live, seconds: twenty years.
pub const TTL_MAX: i32 = 630_720_000;

/// A compiled modification.
#[derive(Debug)]
pub struct WritePlan {
    /// What it writes to.
    pub table: Arc<Table>,
    pub(crate) partition: PartitionRestriction,
    pub(crate) target: Target,
    pub(crate) timestamp: Option<Operand>,
    pub(crate) ttl: Option<Operand>,
    /// INSERT leaves a row marker.
    pub(crate) marker: bool,
    /// In column id order.
    pub(crate) statics: Vec<Assignment>,
    /// In column id order.
    pub(crate) regulars: Vec<Assignment>,
    /// How many bytes of presence bits the rows need.
    pub(crate) columns: usize,
    pub(crate) kind: ModificationKind,
    pub(crate) conditions: Conditions,
}

/// Which of the three statements it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ModificationKind {
    /// INSERT
    Insert,
    /// UPDATE
    Update,
    /// DELETE
    Delete,
}

/// Which rows of the partition are written.
#[derive(Debug)]
pub(crate) enum Target {
    /// One row, each clustering column by one value. Also tables without clustering columns.
    Row(Vec<Operand>),
    /// Several rows, by IN.
    Rows(ClusteringRestriction),
    /// DELETE of every row in a range.
    Range(ClusteringRestriction),
    /// DELETE of one or several whole rows.
    WholeRows(ClusteringRestriction),
    /// DELETE of the partition.
    Partition,
    /// Static columns only.
    Statics,
}

/// One column's change.
#[derive(Debug)]
pub(crate) struct Assignment {
    pub(crate) id: usize,
    /// Position in `table.columns`.
    pub(crate) column: usize,
    pub(crate) change: Change,
}

/// What happens to a column.
#[derive(Debug)]
pub(crate) enum Change {
    /// A simple cell, or its tombstone when null.
    Set(Operand),
    /// Removes the column.
    Delete,
    /// Replaces a whole multi-cell collection.
    Replace(Operand),
    /// Adds elements at the end of a list, to a set or to a map.
    Append(Operand),
    /// Adds elements before a list.
    Prepend(Operand),
    /// Takes elements out of a set or keys out of a map.
    Remove(Operand),
    /// Sets one entry of a map.
    Put { key: Operand, value: Operand },
    /// Removes one entry of a map or element of a set.
    Take(Operand),
    /// Sets a list's element by index. Reads before it writes.
    PutAt { index: Operand, value: Operand },
    /// Removes a list's element by index. Reads before it writes.
    TakeAt(Operand),
    /// Removes every occurrence of some values from a list. Reads before it writes.
    Discard(Operand),
    /// Adds numbers to a counter, and takes others from it.
    Count(Vec<Addend>),
}

/// A number to add to a counter.
#[derive(Debug)]
pub(crate) struct Addend {
    pub(crate) number: Operand,
    /// It is taken from the counter.
    pub(crate) is_negative: bool,
}

impl Change {
    /// Whether the list's present elements must be known.
    pub(crate) fn reads(&self) -> bool {
        matches!(self, Self::PutAt { .. } | Self::TakeAt(_) | Self::Discard(_))
    }
}

/// The clock of one shard's writes: timestamps and list positions that never repeat or go back on it.
#[derive(Debug, Default)]
pub struct WriteClock {
    last_timestamp: Cell<i64>,
    last_uuid_ticks: Cell<i64>,
}

impl WriteClock {
    /// A server-side write timestamp, microseconds.
    #[inline]
    pub fn timestamp(&self, now_us: i64) -> i64 {
        let t = now_us.max(self.last_timestamp.get() + 1);
        self.last_timestamp.set(t);
        t
    }

    /// The moment of the next time UUID, in units of 100 ns since 1970.
    pub(crate) fn uuid_ticks(&self, now_us: i64) -> i64 {
        let t = now_us.saturating_mul(10).max(self.last_uuid_ticks.get() + 1);
        self.last_uuid_ticks.set(t);
        t
    }
}

/// The present elements of the lists that a statement changes by index or value: for each, path and value in order.
pub type ListContents = std::collections::HashMap<(Vec<u8>, usize), Vec<(Vec<u8>, Vec<u8>)>>;

impl WritePlan {
    /// For each partition key column the marker that it takes its value from, when each has one.
    pub fn key_markers(&self) -> Vec<u16> {
        self.partition.key_markers()
    }
}
