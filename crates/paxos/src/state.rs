//! The acceptor: what one replica knows of one partition.

use stdx::planted::{self, Bug};

use crate::{Ballot, Proposal};

/// How many origins of earlier proposals a proposal names at most.
pub const PAST_MAX: usize = 64;
/// How far back it names them: more than twice as long as a statement usually waits to learn what became of its own.
/// One that waits longer may not.
pub const PAST_US: i64 = 5_000_000;

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
    /// A leader begins. From when the promise is answered it outlasts a crash.
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

    /// The data is forgotten, and everything proposed goes with it. What was promised is kept, and nothing before `at`
    /// is promised or accepted any more, so that no statement under way brings it back either.
    pub fn forget(&mut self, at: Ballot) {
        self.proposal = None;
        self.committed = Ballot::NONE;
        self.promised = self.promised.max(at);
    }

    /// Every replica has learned what was chosen at this ballot: the mutation is not needed any more. Whether there was
    /// one.
    pub fn prune(&mut self, ballot: Ballot) -> bool {
        match &mut self.proposal {
            Some(proposal) if proposal.ballot == ballot && ballot <= self.committed => {
                let had = proposal.value().is_some();
                proposal.prune();
                had
            }
            _ => false,
        }
    }
}
