//! How long tombstones are kept: a table's `gc_grace_seconds`, and longer while something from before a deletion may still be written.
//!
//! A conditional statement that its leader did not finish stays with the acceptors as a proposal, with the timestamp of its ballot. Another leader may
//! finish it as long as it is not older than [`PROPOSAL_LIFE_MIN`] or the table's grace, whichever is longer. A tombstone that is purged
//! before that no longer hides what the proposal writes. So tables for which this shard has acceptors' state keep their tombstones as
//! long as proposals live.

use schema::{Table, TableId};
use stdx::planted::{self, Bug};
use uuid::Uuid;

use crate::shard::Shard;

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

impl Shard {
    /// Deletions of a table that were made before this second may be forgotten at the second `now`.
    pub(crate) fn gc_before(&self, table: &Table, now: u32) -> u32 {
        let has_proposals = self
            .store(paxos_state_id(table.id))
            .is_some_and(|states| states.tablets.iter().any(|tablet| !tablet.is_empty()));
        let kept = match has_proposals && !planted::is_planted(Bug::EarlyPurge) {
            true => proposal_life(table) + CLOCKS_DIFFER,
            false => grace(table),
        };
        now.saturating_sub(kept)
    }
}
