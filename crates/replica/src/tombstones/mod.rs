//! How long tombstones are kept: as the table's `tombstone_gc` says, and longer while something from before a deletion
//! may still be written.
//!
//! - `timeout`: for `gc_grace_seconds`, and longer while a replica may lack them.
//! - `repair`: until all replicas are known to have them (the *watermark*), and for the propagation delay.
//! - `immediate`: not at all. `disabled`: permanently.
//!
//! A conditional statement that its leader did not finish stays with the acceptors as a proposal, with the timestamp of
//! its ballot. Another leader may finish it as long as it is not older than [`PROPOSAL_LIFE_MIN`] or the table's
//! `paxos_grace_seconds`, whichever is longer. A tombstone that is purged before that no longer hides what the proposal
//! writes. So tables for which this shard has acceptors' state keep their tombstones as long as proposals live.
//!
//! And a replica of a tablet may have missed a deletion that no hint will bring it. What the others know of that comes
//! from above ([`HoldTombstones`]).
//!
//! A repair may carry a row that was read before its deletion came. While one runs, what is deleted since it began is
//! kept ([`TableStore::hold_purges`]).
//!
//! A tablet that is new on this node takes writes before it has its older data. Until that has come, its compactions
//! purge nothing ([`TableStore::set_awaited`]).

pub(crate) mod marks;
pub(crate) mod repaired;

use std::ops::RangeInclusive;

use schema::{Table, TableId, TableOptions, TombstoneGcMode};
use stdx::planted::{self, Bug};
use uuid::Uuid;

use crate::compaction::purge_now_seconds;
use crate::shard::Shard;
use crate::tablets::tablet::{TableStore, TokenRange};

/// How old a proposal may be and still be finished, seconds, where the table's `paxos_grace_seconds` is shorter.
pub const PROPOSAL_LIFE_MIN: u32 = schema::PAXOS_GRACE_SECONDS_MIN;
/// How much longer tombstones are kept than proposals live, seconds: clocks differ.
const CLOCKS_DIFFER: u32 = 10 * 60;
/// By how many seconds the planted bug `EarlyWatermark` has a watermark too high.
const WATERMARK_TOO_HIGH: u32 = 3_600;

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
    table.options.paxos_grace().max(PROPOSAL_LIFE_MIN)
}

/// What the replicas of a tablet are known to have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TombstoneHold {
    /// Nothing that was deleted from this second on may be forgotten yet.
    pub from: u32,
    /// Nor what was deleted in these: another replica may have missed it.
    pub spans: Vec<RangeInclusive<u32>>,
    /// All replicas have all that was written before this second, and nothing older is on its way to any of them.
    pub watermark: u32,
    /// A repair has made all replicas equal up to this second; 0: none has.
    pub repaired: u32,
}

impl TombstoneHold {
    /// A tablet without other replicas: nothing is held for a replica.
    pub const ALONE: Self = Self {
        from: u32::MAX,
        spans: Vec::new(),
        watermark: u32::MAX,
        repaired: u32::MAX,
    };
    /// Nothing is known: everything is held.
    pub const UNKNOWN: Self = Self {
        from: 0,
        spans: Vec::new(),
        watermark: 0,
        repaired: 0,
    };
}

/// Returns what the replicas of a table's tokens are known to have.
pub type HoldTombstones = Box<dyn Fn(TableId, TokenRange) -> TombstoneHold>;

/// Which deletions a compaction may forget.
#[derive(Clone, PartialEq, Eq, Debug)]
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

    /// What the option of a table says, when its replicas have what `hold` says. `proposals_before`: no proposal is
    /// unfinished that is older.
    fn of(options: &TableOptions, hold: TombstoneHold, now: u32, proposals_before: u32) -> Self {
        let with = |before: u32, held| Self { before, held };
        match options.tombstone_gc.map(|gc| (gc.mode, gc.propagation_delay_seconds)) {
            None | Some((TombstoneGcMode::Timeout, _)) => {
                let before = now.saturating_sub(options.grace()).min(proposals_before);
                let needs_repair = options.compaction.get("only_purge_repaired_tombstones");
                let before = if needs_repair.is_some_and(|value| value.eq_ignore_ascii_case("true")) {
                    before.min(hold.repaired)
                } else {
                    before
                };
                match options.grace() {
                    // A table without a grace period promises nothing about what a replica has missed.
                    0 => with(before, Vec::new()),
                    _ => with(before.min(hold.from), hold.spans),
                }
            }
            Some((TombstoneGcMode::Repair, delay)) => {
                let before = now.saturating_sub(delay).min(proposals_before);
                if planted::is_planted(Bug::EarlyWatermark) {
                    with(
                        before.min(hold.watermark.saturating_add(WATERMARK_TOO_HIGH)),
                        Vec::new(),
                    )
                } else {
                    with(before.min(hold.watermark), Vec::new())
                }
            }
            Some((TombstoneGcMode::Immediate, _)) => with(now.min(proposals_before), Vec::new()),
            Some((TombstoneGcMode::Disabled, _)) => with(0, Vec::new()),
        }
    }
}

impl Shard {
    /// No proposal for the table is unfinished that was made before this second.
    fn proposals_before(&self, table: &Table, now: u32) -> u32 {
        let has_proposals = self
            .store(paxos_state_id(table.id))
            .is_some_and(|states| states.with_leaving().iter().any(|tablet| !tablet.is_empty()));
        if has_proposals && !planted::is_planted(Bug::EarlyPurge) {
            now.saturating_sub(proposal_life(table) + CLOCKS_DIFFER)
        } else {
            u32::MAX
        }
    }

    /// Says what replicas are known to have; without, they are taken to have everything.
    pub fn hold_tombstones(&self, hold: HoldTombstones) {
        *self.tombstone_holds.borrow_mut() = Some(hold);
    }

    /// What the replicas of some tokens of a table are known to have.
    pub fn tombstone_hold(&self, table: TableId, range: TokenRange) -> TombstoneHold {
        match &*self.tombstone_holds.borrow() {
            Some(hold) if !planted::is_planted(Bug::ForgottenMiss) => hold(table, range),
            _ => TombstoneHold::ALONE,
        }
    }

    /// Deletions of some tokens that were made before this second are forgotten by the next compaction of all that is
    /// here, when they hide nothing that is here.
    pub fn forgets_before(&self, store: &TableStore, range: TokenRange) -> u32 {
        // What such a log has lost may come back when it is read again.
        if self.old_log.get() || self.log.trouble().is_some() {
            return 0;
        }
        self.purge_limit(store, range, purge_now_seconds()).certain()
    }

    /// Of those, the ones with a write timestamp below this: logged batches that are not written yet may have older
    /// data.
    pub fn forgets_below(&self) -> i64 {
        self.options.noted_batches.min_timestamp()
    }

    /// As [`Shard::forgets_before`], and with the usual differences of clocks true on each other replica of the tokens.
    pub fn forgotten_before(&self, store: &TableStore, range: TokenRange) -> u32 {
        // A replica may have proposals that this one does not have.
        let margin = proposal_life(&store.table.borrow()) + 2 * CLOCKS_DIFFER;
        self.forgets_before(store, range)
            .min(purge_now_seconds().saturating_sub(margin))
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
        let hold = self.tombstone_hold(table.id, range);
        let mut limit = PurgeLimit::of(&table.options, hold, now, self.proposals_before(table, now));
        limit.before = limit.before.min(store.purges_held_from(range));
        limit
    }
}

#[cfg(test)]
mod tests {
    use schema::{Table, TableId, TableOptions};
    use uuid::Uuid;

    use super::{PROPOSAL_LIFE_MIN, proposal_life};

    #[test]
    fn a_proposal_lives_as_long_as_its_table_says_and_three_hours_at_least() {
        const DAY: u32 = 86_400;
        for (gc_grace_seconds, paxos_grace_seconds, life) in [
            (0, None, PROPOSAL_LIFE_MIN),
            (10 * 86_400, None, 10 * DAY),
            (10 * 86_400, Some(DAY), DAY),
            (60, Some(DAY), DAY),
            (10 * 86_400, Some(0), PROPOSAL_LIFE_MIN),
        ] {
            let options = TableOptions {
                gc_grace_seconds,
                paxos_grace_seconds,
                ..TableOptions::default()
            };
            let table = Table::new("ks", "t", TableId(Uuid::from_u128(1)), Vec::new(), options);
            let what = format!("gc_grace_seconds {gc_grace_seconds}, paxos_grace_seconds {paxos_grace_seconds:?}");
            assert_eq!(proposal_life(&table), life, "{what}");
        }
    }
}
