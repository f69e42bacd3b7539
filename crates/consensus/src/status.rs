//! What a member says of itself.

use crate::config::Part;
use crate::epoch::Epoch;
use crate::recovered::Recovery;
use raft::eraftpb::ConfState;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A member's store has less than the member has promised to keep: it is older than what ran last under its id, or its
/// disk lost something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LostEntries {
    /// The member has acknowledged to the leader entries up to this.
    pub promised: u64,
    /// The last that it has.
    pub last: u64,
    /// The leader that says so.
    pub leader: u64,
}

/// The leader's log and this member's differ where this member knows entries to be committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Divergence {
    /// The leader.
    pub leader: u64,
    /// The entry that differs.
    pub index: u64,
    /// Its term here.
    pub term: u64,
    /// Its term there.
    pub leader_term: u64,
}

/// The state of a member.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// This member.
    pub id: u64,
    /// The leader it knows.
    pub leader: Option<u64>,
    /// Its term.
    pub term: u64,
    /// The voters, as of what is applied.
    pub voters: Vec<u64>,
    /// The members that get the log and have no vote.
    pub learners: Vec<u64>,
    /// Whether the group is between two configurations.
    pub is_joint: bool,
    /// The last entry it applied.
    pub applied: u64,
    /// The last entry it knows to be committed.
    pub committed: u64,
    /// The last entry it has.
    pub last: u64,
    /// On the leader: how many entries each other member lags.
    pub lag: BTreeMap<u64, u64>,
    /// Changes when a majority is given up; `None` before a node that joins has heard from the group.
    pub epoch: Option<Epoch>,
    /// The group continued without this member, in that epoch.
    pub superseded_by: Option<u64>,
    /// This member takes no part any more, for it would break a promise.
    pub lost_entries: Option<LostEntries>,
    /// The leader says that its log differs from this member's. As long as it does, this member takes nothing from it,
    /// and refuses proposals and reads.
    pub diverged: Option<Divergence>,
    /// The part that its caller lets it take.
    pub part: Part,
    /// Counts the starts of this member.
    pub incarnation: u64,
    /// The random names of its last starts, the present one last.
    pub runs: Arc<[u64]>,
    /// Bytes of its file.
    pub file_bytes: u64,
    /// Why its file cannot be written at the moment.
    pub storage_error: Option<String>,
    /// That this group was recovered from a lost majority by this node.
    pub recovery: Option<Recovery>,
}

impl Status {
    pub(crate) fn conf(&self) -> ConfState {
        let mut conf = ConfState {
            voters: self.voters.clone(),
            learners: self.learners.clone(),
            ..ConfState::default()
        };
        if self.is_joint {
            conf.voters_outgoing.push(0);
        }
        conf
    }
}
