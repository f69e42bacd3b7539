//! What a store gives back.

use crate::epoch::Epoch;
use raft::eraftpb::{ConfState, Entry, HardState};

/// Starts whose names a member's file keeps.
pub(crate) const RUNS_MAX: usize = 256;

/// The durable state of a member.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recovered {
    /// `None`: it has not heard from the group it joins.
    pub(crate) epoch: Option<Epoch>,
    /// Counts the starts of this member.
    pub(crate) incarnation: u64,
    /// The random names of this member's last starts, the latest last; at most [`RUNS_MAX`].
    pub(crate) runs: Vec<u64>,
    pub(crate) hard_state: HardState,
    /// 0: there is no snapshot, which only a member has that joins.
    pub(crate) snapshot_index: u64,
    pub(crate) snapshot_term: u64,
    /// As of the snapshot.
    pub(crate) conf: ConfState,
    pub(crate) data: Vec<u8>,
    /// Index and term of the entry before the first; at or before the snapshot.
    pub(crate) truncated: (u64, u64),
    pub(crate) entries: Vec<Entry>,
    pub(crate) recovery: Option<Recovery>,
}

impl Recovered {
    /// Notes the name of one more start.
    pub(crate) fn add_run(&mut self, run: u64) {
        self.runs.push(run);
        let surplus = self.runs.len().saturating_sub(RUNS_MAX);
        self.runs.drain(..surplus);
    }
}

/// That a majority was given up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovery {
    /// The epoch that began.
    pub epoch: Epoch,
    /// When, in microseconds since 1970 by the clock of the node that survived.
    pub at_us: i64,
    /// The members that were given up.
    pub lost: Vec<u64>,
}
