//! The acceptor: what one replica knows of one partition.

use stdx::planted::{self, Bug};

use crate::Ballot;

/// How many origins of earlier proposals a proposal names at most.
pub const PAST_MAX: usize = 64;
/// How far back it names them: longer than any statement waits to learn what became of its own.
pub const PAST_US: i64 = 20_000_000;

/// A value that a leader wants to be chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proposal {
    /// At which it is, or was last, accepted.
    pub ballot: Ballot,
    /// At which it was decided first.
    pub origin: Ballot,
    /// The origins of those that were chosen before it, the last first: all from the timestamp `past_since_us` on.
    pub past: Vec<Ballot>,
    /// See `past`.
    pub past_since_us: i64,
    /// The mutation. None: every replica has learned it, and it was dropped.
    pub value: Option<Vec<u8>>,
}

impl Proposal {
    /// A new one, decided at this ballot when `last` was the one chosen last.
    #[must_use]
    pub fn new(ballot: Ballot, last: Option<&Self>, value: Vec<u8>) -> Self {
        let mut past: Vec<Ballot> = last.into_iter().flat_map(Self::chain).collect();
        let mut past_since_us = i64::MIN;
        if let Some(last) = last {
            past_since_us = last.past_since_us.max(ballot.timestamp_us.saturating_sub(PAST_US));
            past.retain(|origin| origin.timestamp_us >= past_since_us);
            if let Some(first_left_out) = past.get(PAST_MAX) {
                past_since_us = first_left_out.timestamp_us.saturating_add(1);
                past.truncate(PAST_MAX);
            }
        }
        Self {
            ballot,
            origin: ballot,
            past,
            past_since_us,
            value: Some(value),
        }
    }

    /// The same, to be accepted at another ballot.
    #[must_use]
    pub fn at(&self, ballot: Ballot) -> Self {
        Self { ballot, ..self.clone() }
    }

    /// Its origin and those before it.
    pub(crate) fn chain(&self) -> impl Iterator<Item = Ballot> + '_ {
        std::iter::once(self.origin).chain(self.past.iter().copied())
    }
}

/// What an acceptor says when it promises.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Promise {
    /// The proposal that it accepted or learned last.
    pub proposal: Option<Proposal>,
    /// The last ballot that it knows a proposal to be chosen at.
    pub committed: Ballot,
}

/// A later ballot was promised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// That ballot.
    pub promised: Ballot,
}

/// An acceptor's state. `proposal` is chosen when its ballot is not above `committed`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    /// Nothing before it is promised or accepted any more.
    pub promised: Ballot,
    /// Accepted or learned last.
    pub proposal: Option<Proposal>,
    /// The last ballot that a proposal is known to be chosen at.
    pub committed: Ballot,
}

impl Default for State {
    fn default() -> Self {
        Self {
            promised: Ballot::NONE,
            proposal: None,
            committed: Ballot::NONE,
        }
    }
}

impl State {
    /// A leader begins. The state must be durable before the promise is answered.
    ///
    /// # Errors
    /// When a later ballot was promised.
    pub fn prepare(&mut self, ballot: Ballot) -> Result<Promise, Refused> {
        self.promise(ballot)?;
        Ok(Promise {
            proposal: self.proposal.clone(),
            committed: self.committed,
        })
    }

    fn promise(&mut self, ballot: Ballot) -> Result<(), Refused> {
        if !self.promised.admits(ballot) {
            let promised = self.promised;
            return Err(Refused { promised });
        }
        self.promised = ballot;
        Ok(())
    }

    /// A leader proposes. The state must be durable before it is answered.
    ///
    /// # Errors
    /// When a later ballot was promised.
    pub fn accept(&mut self, proposal: Proposal) -> Result<(), Refused> {
        if !planted::is_planted(Bug::AcceptedWithoutPromise) {
            self.promise(proposal.ballot)?;
        }
        // One that has been learned at this ballot already is the same.
        if self.committed < proposal.ballot {
            self.proposal = Some(proposal);
        }
        Ok(())
    }

    /// A proposal was chosen, and its mutation is durable here. Whether that is news.
    pub fn learn(&mut self, proposal: Proposal) -> bool {
        let ballot = proposal.ballot;
        if ballot <= self.committed {
            return false;
        }
        self.committed = ballot;
        self.promised = self.promised.max(ballot);
        if self.proposal.as_ref().is_none_or(|have| have.ballot <= ballot) {
            self.proposal = Some(proposal);
        }
        true
    }

    /// The data is forgotten, and everything proposed goes with it. What was promised is kept, and nothing before `at` is promised or
    /// accepted any more, so that no statement under way brings it back either.
    pub fn forget(&mut self, at: Ballot) {
        self.proposal = None;
        self.committed = Ballot::NONE;
        self.promised = self.promised.max(at);
    }

    /// Every replica has learned what was chosen at this ballot: the mutation is not needed any more. Whether there was one.
    pub fn prune(&mut self, ballot: Ballot) -> bool {
        match &mut self.proposal {
            Some(proposal) if proposal.ballot == ballot && ballot <= self.committed => proposal.value.take().is_some(),
            _ => false,
        }
    }
}
