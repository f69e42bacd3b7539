//! What an acceptor knows of one partition, and what of it the row holds.

use commitlog::{Commitlog, LogPlace};
use paxos::{Ballot, Proposal, State};
use smallvec::SmallVec;
use stdx::planted::{self, Bug};

/// What distinguishes two states of a partition. At one ballot there is one proposal, with its mutation or without.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) promised: Ballot,
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
    /// Where the log has the mutation that was learned last, until that is known to be durable or its proposal is in
    /// `beside`.
    pub(super) learned_at: Option<LogPlace>,
    /// Learned proposals whose mutations have no other place any more: until the row is known to be durable, each
    /// record of the log that has the row has them too.
    pub(super) beside: SmallVec<[Proposal; 1]>,
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
            beside: SmallVec::new(),
            prunable: None,
        }
    }

    /// Whether the row lacks something that was learned. A promise that it lacks is kept otherwise.
    pub(super) fn has_notes(&self) -> bool {
        let Summary {
            committed, proposal, ..
        } = Summary::of(&self.state);
        (committed, proposal) != (self.stored.committed, self.stored.proposal)
    }

    /// Finds out what became of what was written. What was learned and perhaps lost is not known as learned any more.
    pub(super) fn look_at_log(&mut self, log: &Commitlog) {
        if self.learned_at.is_some_and(|at| at.is_lost(log)) {
            self.state.committed = self.stored.committed;
            (self.learned_at, self.prunable, self.is_row_lost) = (None, None, true);
        }
        match self.row_at {
            Some(at) if at.is_lost(log) => (self.row_at, self.is_row_lost) = (None, true),
            Some(at) if at.is_durable(log) => {
                self.row_at = None;
                self.beside.clear();
            }
            _ => {}
        }
    }

    /// Whether everything that was written of the row is durable.
    pub(super) fn is_row_settled(&self) -> bool {
        self.row_at.is_none() && !self.is_row_lost
    }

    /// Whether the mutation that was learned last is durable.
    fn is_durable(&mut self, log: &Commitlog) -> bool {
        if planted::is_planted(Bug::UnsyncedNote) || self.learned_at.is_some_and(|at| at.is_durable(log)) {
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

    /// Drops the value of a proposal that every replica has learned, as soon as it is durable here. Whether there is
    /// one.
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
        if self.is_durable(log) {
            state
        } else {
            Summary {
                committed: self.stored.committed,
                ..state
            }
        }
    }

    /// Whether the row may not be written yet: it is about to lose a proposal whose mutation was learned and is not
    /// durable, and is stored nowhere else.
    pub(super) fn has_to_wait(&mut self, log: &Commitlog) -> bool {
        let accepted = self.state.proposal.as_ref().map(|p| p.ballot);
        let replaces = accepted.is_none_or(|ballot| ballot > self.state.committed);
        replaces && !self.is_durable(log)
    }

    /// The row is about to lose this proposal to another one. Keeps it in `beside` if it was learned, so that the row
    /// need not wait. False: the row has to wait.
    pub(super) fn put_beside(&mut self, replaced: Option<&Proposal>) -> bool {
        let is_learned = |p: &&Proposal| p.ballot <= self.state.committed && p.value().is_some();
        let Some(learned) = replaced.filter(is_learned).filter(|_| self.state.proposal.is_some()) else {
            return false;
        };
        self.beside.push(learned.clone());
        self.learned_at = None;
        true
    }
}
