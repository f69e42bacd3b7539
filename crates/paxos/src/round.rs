//! The leader: what follows from the promises of a quorum.

use std::cmp::Reverse;

use stdx::planted::{self, Bug};

use crate::{Ballot, Promise, Proposal};

/// The promises of one ballot.
#[derive(Clone, Debug)]
pub struct Round<R> {
    ballot: Ballot,
    promises: Vec<(R, Promise)>,
}

/// What a leader does next. See the crate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Standing<R> {
    /// Have this accepted, at this round's ballot; when it is chosen and learned, begin again.
    Unfinished(Proposal),
    /// Have these replicas learn this proposal, then continue.
    Unlearned(Proposal, Vec<R>),
    /// Read, decide and propose. The proposal was chosen last.
    Clear(Option<Proposal>),
}

/// What became of a proposal that was perhaps accepted by some.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It was chosen.
    Chosen,
    /// Another was chosen instead; it never will be.
    Overtaken,
    /// Nothing was chosen since it was decided; propose it again.
    Open,
    /// Unknown: too much was chosen since.
    Unknown,
}

impl<R: Copy + PartialEq> Round<R> {
    /// A round without promises.
    #[must_use]
    pub fn new(ballot: Ballot) -> Self {
        Self {
            ballot,
            promises: Vec::new(),
        }
    }

    /// Its ballot.
    #[must_use]
    pub fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// A replica has promised. One that says so twice is counted once.
    pub fn promised(&mut self, replica: R, promise: Promise) {
        if self.promises.iter().all(|(other, _)| *other != replica) {
            self.promises.push((replica, promise));
        }
    }

    /// Those that have promised.
    pub fn replicas(&self) -> impl Iterator<Item = R> + '_ {
        self.promises.iter().map(|(replica, _)| *replica)
    }

    /// What is next, when those that have promised are a quorum. Proposals decided before `oldest_us` count as
    /// forgotten.
    pub(crate) fn standing(&self, oldest_us: i64) -> Standing<R> {
        let committed = self
            .promises
            .iter()
            .map(|(_, p)| p.committed)
            .max()
            .unwrap_or(Ballot::NONE);
        let proposals = || self.promises.iter().filter_map(|(_, p)| p.proposal.as_ref());
        let latest = proposals().map(|p| p.ballot).max();
        // Of one ballot there may be copies that were pruned, and copies that were read from a row, which has no past.
        let at = |ballot| {
            let copies = proposals().filter(|p| p.ballot == ballot);
            copies.max_by_key(|p| (p.value().is_some(), Reverse(p.past_since_us())))
        };
        let is_recent = |p: &&Proposal| p.origin.timestamp_us >= oldest_us;
        if let Some(unfinished) = latest
            .filter(|ballot| *ballot > committed)
            .and_then(at)
            .filter(is_recent)
            && !planted::is_planted(Bug::IgnoredProposal)
        {
            return Standing::Unfinished(unfinished.clone());
        }
        let last = at(committed);
        if let Some(chosen) = last.filter(|p| p.value().is_some() && is_recent(p)) {
            let behind = self.promises.iter().filter(|(_, p)| p.committed < committed);
            let missing: Vec<R> = behind.map(|(replica, _)| *replica).collect();
            if !missing.is_empty() && !planted::is_planted(Bug::SkippedTeach) {
                return Standing::Unlearned(chosen.clone(), missing);
            }
        }
        let copies = proposals().filter(|p| p.ballot == committed);
        Standing::Clear(copies.min_by_key(|p| p.past_since_us()).cloned())
    }

    /// A replica has learned the proposal of this ballot.
    pub fn learned(&mut self, replica: R, ballot: Ballot) {
        for (_, promise) in self.promises.iter_mut().filter(|(other, _)| *other == replica) {
            promise.committed = promise.committed.max(ballot);
        }
    }
}

impl Fate {
    /// What became of `mine`, which was decided when `before` was the origin of the last one chosen, now that `last`
    /// is.
    pub(crate) fn of(mine: Ballot, before: Option<Ballot>, last: Option<&Proposal>) -> Self {
        let Some(last) = last else {
            // With nothing chosen nothing can have been overtaken; had something been chosen before, it has expired
            // since.
            return if before.is_none() { Self::Open } else { Self::Unknown };
        };
        if Some(last.origin) == before {
            return Self::Open;
        }
        if last.chain().any(|origin| origin == mine) {
            return Self::Chosen;
        }
        if mine.timestamp_us >= last.past_since_us() {
            Self::Overtaken
        } else {
            Self::Unknown
        }
    }
}
