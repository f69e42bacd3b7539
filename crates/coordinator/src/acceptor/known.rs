//! What an acceptor knows of one partition, and what of it the row holds.

use commitlog::{Commitlog, ReplayPosition};
use paxos::{Ballot, Proposal, State};
use stdx::planted::{self, Bug};

/// What tells two states of a partition apart: at one ballot there is one proposal, with its mutation or without.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Summary {
    promised: Ballot,
    pub(super) committed: Ballot,
    pub(super) proposal: Option<(Ballot, bool)>,
}

impl Summary {
    pub(super) fn of(state: &State) -> Self {
        Self {
            promised: state.promised,
            committed: state.committed,
            proposal: state.proposal.as_ref().map(|p| (p.ballot, p.value().is_some())),
        }
    }

    pub(super) fn promised(&self) -> Ballot {
        self.promised
    }
}

/// Where the log has something.
#[derive(Clone, Copy)]
pub(super) struct LogPlace {
    pub(super) position: ReplayPosition,
    /// What the log had lost before.
    pub(super) losses: u64,
}

/// A state in memory.
pub(super) struct Known {
    pub(super) state: State,
    /// What the row holds.
    pub(super) stored: Summary,
    /// The log may have lost what was written of the row: all of it is to be written again before anything is answered.
    pub(super) is_row_lost: bool,
    /// Of the last write of the row, until it is known to be durable.
    pub(super) row_at: Option<LogPlace>,
    /// The write timestamp of the row's last change.
    pub(super) changed_at: i64,
    /// Of the mutation that was learned last, until it is known to be durable.
    pub(super) learned_at: Option<LogPlace>,
    /// The ballot of a proposal whose value can be dropped as soon as its mutation is durable.
    prunable: Option<Ballot>,
}

impl Known {
    /// As its row says.
    pub(super) fn of_row(state: State, changed_at: i64) -> Self {
        Self {
            stored: Summary::of(&state),
            is_row_lost: false,
            row_at: None,
            state,
            changed_at,
            learned_at: None,
            prunable: None,
        }
    }

    pub(super) fn has_notes(&self) -> bool {
        Summary::of(&self.state) != self.stored
    }

    /// Whether the log may have lost the mutation that was learned last. Then nobody knows that it was learned.
    pub(super) fn is_doubtful(&self, log: &Commitlog) -> bool {
        self.learned_at.is_some_and(|at| at.losses != log.losses())
    }

    /// Finds out whether the log may have lost what was written of the row last.
    pub(super) fn look_at_row(&mut self, log: &Commitlog) {
        let Some(at) = self.row_at else { return };
        if at.losses != log.losses() {
            self.is_row_lost = true;
        } else if !log.is_synced(at.position) {
            return;
        }
        self.row_at = None;
    }

    /// Whether everything that was written of the row is durable.
    pub(super) fn is_row_settled(&mut self, log: &Commitlog) -> bool {
        self.look_at_row(log);
        self.row_at.is_none() && !self.is_row_lost
    }

    /// Whether the mutation that was learned last is durable.
    fn is_durable(&mut self, log: &Commitlog) -> bool {
        let is_synced = |at: LogPlace| at.losses == log.losses() && log.is_synced(at.position);
        if planted::is_planted(Bug::UnsyncedNote) || self.learned_at.is_some_and(is_synced) {
            self.learned_at = None;
        }
        self.learned_at.is_none()
    }

    /// The proposal was learned: the log has its mutation there. Whether that is news.
    pub(super) fn learn(&mut self, proposal: Proposal, at: Option<LogPlace>) -> bool {
        let is_news = self.state.learn(proposal);
        if is_news {
            self.learned_at = at;
        }
        is_news
    }

    /// Drops the value of a proposal that every replica has learned, as soon as it is durable here. Whether there is one.
    pub(super) fn prune(&mut self, ballot: Ballot, log: &Commitlog) -> bool {
        if self.is_durable(log) {
            return self.state.prune(ballot);
        }
        let is_last = self.state.proposal.as_ref().is_some_and(|p| p.ballot == ballot);
        if is_last {
            self.prunable = Some(ballot);
        }
        is_last
    }

    pub(super) fn prune_what_is_durable(&mut self, log: &Commitlog) {
        if self.prunable.is_some()
            && self.is_durable(log)
            && let Some(ballot) = self.prunable.take()
        {
            self.state.prune(ballot);
        }
    }

    /// What the row may say: of what was learned only that which is durable.
    pub(super) fn storable(&mut self, log: &Commitlog) -> Summary {
        let state = Summary::of(&self.state);
        match self.is_durable(log) {
            true => state,
            false => Summary {
                committed: self.stored.committed,
                ..state
            },
        }
    }

    /// The position that must be durable before the row may be written: that of a learned mutation whose proposal, the one other place
    /// that has it, the row is about to lose.
    pub(super) fn waits_for(&mut self, log: &Commitlog) -> Option<ReplayPosition> {
        let accepted = self.state.proposal.as_ref().map(|p| p.ballot);
        let replaces = accepted.is_none_or(|ballot| ballot > self.state.committed);
        (replaces && !self.is_durable(log)).then(|| self.learned_at.map(|at| at.position))?
    }
}
