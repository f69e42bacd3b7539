//! The packed row, tombstones, mutations, and the only rules of which write wins.
//!
//! One encoding serves everywhere but inside an sstable: bound values are packed once ([`row::RowBuilder`]), and the
//! same bytes are in the log, travel to replicas and live in memtable and cache. [`merge`] is the only place that knows
//! which of two writes wins; [`compact`] the only one that knows what tombstones and time hide or may be forgotten;
//! [`counting`] the only one that knows what counts where replicas compare; [`stretch`] takes a row apart where it is
//! too large to be copied whole, and [`cut`] a mutation that is too long for the log.

pub mod addressed;
pub mod block;
pub mod bound;
pub mod candidates;
pub mod compact;
pub mod counting;
pub mod cut;
pub mod dates;
pub mod dropped;
#[doc(hidden)]
pub mod fuzz;
pub mod merge;
mod of_mutation;
pub mod packed;
pub mod range_tombstones;
pub mod row;
pub mod stretch;
pub mod terms;

pub use addressed::{Addressed, Located};
pub use block::{PartitionBlock, Span};
pub use bound::{Bound, BoundKind, ClusteringSlice};
pub use packed::{Mutation, MutationBuilder, MutationItem};
pub use range_tombstones::{RangeTombstone, RangeTombstoneList};
pub use row::{Cell, CellFlags, Column, Complex, Liveness, RowBuilder, RowError, RowView};

/// A deletion: everything it covers with a write timestamp at or below `timestamp` is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Tombstone {
    /// Client write timestamp, microseconds.
    pub timestamp: i64,
    /// Server time of the deletion, seconds since the epoch: grace is counted from here.
    pub deletion_time: u32,
}

impl Tombstone {
    /// No deletion.
    pub const NONE: Self = Self {
        timestamp: i64::MIN,
        deletion_time: u32::MAX,
    };

    /// Whether this deletes nothing.
    #[inline]
    pub fn is_none(self) -> bool {
        self.timestamp == i64::MIN
    }

    /// Whether a write at `timestamp` is covered.
    #[inline]
    pub fn covers(self, timestamp: i64) -> bool {
        !self.is_none() && timestamp <= self.timestamp
    }

    /// The stronger of two deletions: the newer, and of equals the one deleted later.
    #[inline]
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        if self.supersedes(other) { self } else { other }
    }

    /// Whether this deletion is stronger than the other.
    #[inline]
    pub fn supersedes(self, other: Self) -> bool {
        if self.timestamp != other.timestamp {
            return self.timestamp > other.timestamp;
        }
        !self.is_none() && self.deletion_time > other.deletion_time
    }
}
