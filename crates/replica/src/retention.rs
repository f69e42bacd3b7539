//! How long tombstones are kept: a table's `gc_grace_seconds`, and longer while something from before a deletion may still be written.
//!
//! A conditional statement that its leader did not finish stays with the acceptors as a proposal, with the timestamp of its ballot. Another leader may
//! finish it as long as it is not older than [`PROPOSAL_LIFE_MIN`] or the table's grace, whichever is longer. A tombstone that is purged
//! before that no longer hides what the proposal writes. So tables for which this shard has acceptors' state keep their tombstones as
//! long as proposals live.
//!
//! And a replica of a tablet may have missed a deletion that no hint will bring it. What the others know of that comes from above ([`HoldTombstones`]).
//!
//! A tablet that is new on this node takes writes before it has its older data. Until that has come, its compactions purge nothing
//! ([`TableStore::set_awaited`]).

use std::ops::RangeInclusive;

use schema::{Table, TableId};
use stdx::planted::{self, Bug};
use uuid::Uuid;

use crate::shard::Shard;
use crate::tablet::{TableStore, TokenRange};

/// How old a proposal may be and still be finished, seconds, where the table's grace is shorter.
pub const PROPOSAL_LIFE_MIN: u32 = 3 * 60 * 60;
/// How much longer tombstones are kept than proposals live, seconds: clocks differ.
const CLOCKS_DIFFER: u32 = 10 * 60;

/// The identity of the table in which acceptors keep what they know of conditional statements on a table.
#[must_use]
pub fn paxos_state_id(of: TableId) -> TableId {
    // "ceto paxos state", read as a number: what it is mixed with is random.
    TableId(Uuid::from_u128(
        of.0.as_u128() ^ 0x6365_746f_2070_6178_6f73_2073_7461_7465,
    ))
}

/// How old a proposal for a table may be and still be finished, seconds.
#[must_use]
pub fn proposal_life(table: &Table) -> u32 {
    grace(table).max(PROPOSAL_LIFE_MIN)
}

fn grace(table: &Table) -> u32 {
    u32::try_from(table.options.gc_grace_seconds).unwrap_or(0)
}

/// Deletions that other replicas of a tablet may have missed: their tombstones must stay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TombstoneHold {
    /// Nothing that was deleted from this second on may be forgotten yet.
    pub from: u32,
    /// Nor what was deleted in these.
    pub spans: Vec<RangeInclusive<u32>>,
}

/// Tells what the other replicas of a table's tokens may have missed.
pub type HoldTombstones = Box<dyn Fn(TableId, TokenRange) -> TombstoneHold>;

/// Which deletions a compaction may forget.
pub(crate) struct PurgeLimit {
    /// Those made before this second,
    pub(crate) before: u32,
    /// but in none of these.
    pub(crate) held: Vec<RangeInclusive<u32>>,
}

impl PurgeLimit {
    /// All that is older may be forgotten.
    pub(crate) fn certain(&self) -> u32 {
        let starts = self.held.iter().map(|span| *span.start());
        starts.fold(self.before, u32::min)
    }
}

impl Shard {
    /// Deletions of a table that were made before this second may be forgotten at the second `now`.
    fn gc_before(&self, table: &Table, now: u32) -> u32 {
        let has_proposals = self
            .store(paxos_state_id(table.id))
            .is_some_and(|states| states.tablets().iter().any(|tablet| !tablet.is_empty()));
        let kept = match has_proposals && !planted::is_planted(Bug::EarlyPurge) {
            true => proposal_life(table) + CLOCKS_DIFFER,
            false => grace(table),
        };
        now.saturating_sub(kept)
    }

    /// Says what other replicas may have missed; without, a tombstone is kept for the grace period alone.
    pub fn hold_tombstones(&self, hold: HoldTombstones) {
        *self.tombstone_holds.borrow_mut() = Some(hold);
    }

    /// What a compaction of some tokens may forget at the second `now`.
    pub(crate) fn purge_limit(&self, store: &TableStore, range: TokenRange, now: u32) -> PurgeLimit {
        let table = &store.table.borrow();
        if store.awaits_data(range) {
            return PurgeLimit {
                before: 0,
                held: Vec::new(),
            };
        }
        let mut limit = PurgeLimit {
            before: self.gc_before(table, now),
            held: Vec::new(),
        };
        // A table without a grace period promises nothing about what a replica has missed.
        if grace(table) == 0 || planted::is_planted(Bug::ForgottenMiss) {
            return limit;
        }
        if let Some(hold) = &*self.tombstone_holds.borrow() {
            let TombstoneHold { from, spans } = hold(table.id, range);
            limit.before = limit.before.min(from);
            limit.held = spans;
        }
        limit
    }
}
