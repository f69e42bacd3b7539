//! What an acceptor does in one step, without waiting.

use std::rc::Rc;
use std::sync::Arc;

use commitlog::LogPlace;
use mutation::{Located, Mutation};
use paxos::{Ballot, Promise, Proposal, Refused, State};
use replica::write::aside::is_long_alone;
use replica::{Shard, TableStore, WriteError, paxos_state_id, proposal_life};
use runtime::StopPoint;
use schema::{Table, TableId};
use types::token::token_of;

use super::known::Summary;
use super::row::Row;
use super::{Acceptor, Entry};
use crate::cas::message::PaxosAnswer;
use crate::fence::Stamp;
use crate::service::ReplicaError;
use crate::write::apply::{Origin, apply_at_once};

/// The outcome of a step.
pub(super) enum Step<T> {
    Done(T),
    /// Nothing was done.
    Wait(Wait),
}

impl<T> Step<T> {
    pub(super) fn map<U>(self, f: impl FnOnce(T) -> U) -> Step<U> {
        match self {
            Self::Done(done) => Step::Done(f(done)),
            Self::Wait(wait) => Step::Wait(wait),
        }
    }
}

/// What a step waits for.
pub(super) enum Wait {
    /// The table is not here yet.
    Table,
    /// A truncation, or a tablet on its way.
    Admission(Rc<TableStore>, Rc<TableStore>),
    /// The state is not in memory.
    State(Rc<Entry>, Row),
    /// What the row is about to lose is not durable.
    Sync,
    /// Memory is full.
    Room,
    /// The proposal is long, and is checked by this table outside of the step.
    Checked(Arc<Table>, Proposal),
    /// The decision is applied outside of the step, because it is long. The next step gets its place in the log.
    Applied(Proposal),
}

/// When an answer may be sent.
pub(super) enum Until {
    Now,
    /// When what was written is durable.
    Synced,
    /// When what the log has there may be acknowledged.
    Committed(LogPlace),
}

/// One partition at this shard's acceptor, for one step.
pub(super) struct AcceptorStep<'s> {
    pub(super) shard: &'s Rc<Shard>,
    acceptor: Rc<Acceptor>,
    id: TableId,
    row: Row,
    pub(super) entry: Rc<Entry>,
    stamp: Stamp,
    before: Before,
}

/// What of a phase was done before its step, because it takes longer than a slice.
#[derive(Clone, Default)]
pub(super) struct Before {
    /// Where the log has what was chosen, if it was applied.
    pub(super) applied: Option<LogPlace>,
    /// The table by which the proposal was checked.
    pub(super) checked_by: Option<Arc<Table>>,
}

/// A longer proposal is checked before the step.
const CHECKED_BYTES_MAX: usize = 16 << 10;

/// Refuses what could be accepted and never be learned. It has preemption points.
pub(super) fn check(table: &Table, key: &[u8], proposal: &Proposal) -> Result<(), ReplicaError> {
    let Some(value) = proposal.value() else { return Ok(()) };
    let is_of_partition = |m: &Mutation<'_>| m.table == table.id && *m.key == *key;
    let mutation = Mutation::new(value)
        .filter(is_of_partition)
        .ok_or_else(|| ReplicaError::Malformed("expected a mutation of the statement's partition".to_owned()))?;
    let valid = mutation.validate(&table.layout);
    valid.map_err(|e| ReplicaError::Malformed(e.to_string()))
}

impl<'s> AcceptorStep<'s> {
    /// # Errors
    /// When the partition is not here, or the request is stale.
    pub(super) fn find(
        shard: &'s Rc<Shard>,
        acceptor: &Rc<Acceptor>,
        (id, key): (TableId, &[u8]),
        stamp: Stamp,
    ) -> Result<Step<Self>, ReplicaError> {
        let Some(base) = shard.store(id) else {
            return Ok(Step::Wait(Wait::Table));
        };
        let states = shard.store(paxos_state_id(id)).ok_or(ReplicaError::UnknownTable(id))?;
        let known = acceptor.known(id, key);
        let token = known.as_ref().map_or_else(|| token_of(key), |entry| entry.token);
        let is_ready = stamp.check_at(&base, token)?;
        let Some(tablet) = states.tablet(token).filter(|_| is_ready) else {
            return Ok(Step::Wait(Wait::Admission(base, states)));
        };
        let entry = match known {
            Some(entry) => {
                entry.was_used.set(true);
                entry
            }
            None => acceptor.begin_entry(shard, id, key, token),
        };
        let ttl = proposal_life(&base.table.borrow());
        Ok(Step::Done(Self {
            shard,
            acceptor: Rc::clone(acceptor),
            id,
            row: Row {
                base,
                states,
                tablet,
                ttl,
            },
            entry,
            stamp,
            before: Before::default(),
        }))
    }

    /// This step, with what was done of the phase before it.
    pub(super) fn after(self, before: Before) -> Self {
        Self { before, ..self }
    }

    fn unread<T>(self) -> Step<T> {
        Step::Wait(Wait::State(self.entry, self.row))
    }

    /// Changes the state and writes its row. The result of `change` may not be sent before that is durable.
    pub(super) fn change<T>(self, change: impl FnOnce(&mut State) -> T) -> Result<Step<T>, ReplicaError> {
        let log = &self.shard.log;
        let mut in_memory = self.entry.known(log);
        let Some(known) = in_memory.as_mut() else {
            drop(in_memory);
            return Ok(self.unread());
        };
        known.prune_what_is_durable(log);
        let before = known.state.clone();
        let result = change(&mut known.state);
        if !known.is_row_lost && Summary::of(&known.state) == Summary::of(&before) {
            return Ok(Step::Done(result));
        }
        let (learned_at, beside) = (known.learned_at, known.beside.len());
        let is_ready = !known.has_to_wait(log) || known.put_beside(before.proposal.as_ref());
        let written = if is_ready {
            self.acceptor.write(self.shard, &self.row, &self.entry, known)
        } else {
            known.state = before;
            return Ok(Step::Wait(Wait::Sync));
        };
        let Err(error) = written else {
            return Ok(Step::Done(result));
        };
        known.state = before;
        known.learned_at = learned_at;
        known.beside.truncate(beside);
        match error {
            WriteError::MemoryFull => Ok(Step::Wait(Wait::Room)),
            error => Err(error.into()),
        }
    }

    /// Promises a ballot, in memory alone if it can be.
    pub(super) fn prepare(self, ballot: Ballot) -> Result<Step<(PaxosAnswer, Until)>, ReplicaError> {
        let answer = |promised: Result<Promise, Refused>| match promised {
            Ok(promise) => PaxosAnswer::Promised(promise, Vec::new()),
            Err(refused) => PaxosAnswer::Refused(refused.promised),
        };
        let is_covered = {
            let promises = self.acceptor.promises.borrow();
            promises.follow(ballot);
            promises.cover(ballot)
        };
        if is_covered {
            let log = &self.shard.log;
            let mut in_memory = self.entry.known(log);
            let Some(known) = in_memory.as_mut() else {
                drop(in_memory);
                return Ok(self.unread());
            };
            if !known.is_row_lost {
                let promised = known.state.prepare(ballot);
                if promised.is_ok() {
                    self.entry.promised.set(ballot);
                }
                let until = if self.acceptor.is_settled_alone(log) {
                    Until::Now
                } else {
                    Until::Synced
                };
                return Ok(Step::Done((answer(promised), until)));
            }
        }
        let promised = self.change(|state| state.prepare(ballot))?;
        Ok(promised.map(|promised| match answer(promised) {
            refused @ PaxosAnswer::Refused(_) => (refused, Until::Now),
            answer => (answer, Until::Synced),
        }))
    }

    /// Accepts a proposal.
    pub(super) fn accept(self, proposal: &Proposal) -> Result<Step<(PaxosAnswer, Until)>, ReplicaError> {
        if let Some(wait) = self.check(proposal)? {
            return Ok(Step::Wait(wait));
        }
        let (entry, checked_by) = (Rc::clone(&self.entry), self.row.base.table());
        let accepted = self.change(|state| state.accept(proposal.clone()))?;
        Ok(accepted.map(|accepted| match accepted {
            Ok(()) => {
                entry.checked_by.replace(Some(checked_by));
                (PaxosAnswer::Done, Until::Synced)
            }
            Err(refused) => (PaxosAnswer::Refused(refused.promised), Until::Now),
        }))
    }

    /// Applies what was chosen.
    pub(super) fn learn(self, proposal: &Proposal) -> Result<Step<(PaxosAnswer, Until)>, ReplicaError> {
        if let Some(wait) = self.check(proposal)? {
            return Ok(Step::Wait(wait));
        }
        if self.entry.known(&self.shard.log).is_none() {
            return Ok(self.unread());
        }
        self.apply(proposal)
    }

    /// Applies what this acceptor has accepted at the ballot, which was chosen there.
    pub(super) fn commit(self, ballot: Ballot) -> Result<Step<(PaxosAnswer, Until)>, ReplicaError> {
        let accepted = {
            let known = self.entry.known(&self.shard.log);
            let Some(known) = known.as_ref() else {
                drop(known);
                return Ok(self.unread());
            };
            if known.state.committed == ballot {
                let until = known.learned_at.map_or(Until::Now, Until::Committed);
                return Ok(Step::Done((PaxosAnswer::Done, until)));
            }
            known
                .state
                .proposal
                .clone()
                .filter(|proposal| proposal.ballot == ballot)
        };
        let Some(proposal) = accepted else {
            return Ok(Step::Done((PaxosAnswer::Lacking, Until::Now)));
        };
        // The table may have been altered since.
        if !self.was_checked()
            && let Some(wait) = self.check(&proposal)?
        {
            return Ok(Step::Wait(wait));
        }
        self.apply(&proposal)
    }

    fn apply(&self, proposal: &Proposal) -> Result<Step<(PaxosAnswer, Until)>, ReplicaError> {
        let log = &self.shard.log;
        let mut learned_at = self.before.applied;
        if let Some(value) = proposal.value().filter(|_| learned_at.is_none()) {
            let mutation = Mutation::new(value);
            let mutation = mutation.ok_or_else(|| ReplicaError::Malformed("expected a whole mutation".to_owned()))?;
            let located = Located {
                token: self.entry.token,
                mutation,
            };
            let Some(logged) = apply_at_once(self.shard, located, Origin::Local, self.stamp)? else {
                return Ok(Step::Wait(if is_long_alone(&self.row.base, &mutation) {
                    Wait::Applied(proposal.clone())
                } else {
                    Wait::Room
                }));
            };
            learned_at = Some(logged.into());
        }
        runtime::stop_point(StopPoint::DecisionApplied);
        let is_noted = self
            .entry
            .known(log)
            .as_mut()
            .is_some_and(|known| known.learn(proposal.clone(), learned_at));
        if is_noted {
            self.acceptor.noted(self.shard, self.id, &self.entry);
        }
        let until = learned_at.map_or(Until::Now, Until::Committed);
        Ok(Step::Done((PaxosAnswer::Done, until)))
    }

    /// Drops the mutation of a proposal that every replica has learned.
    pub(super) fn prune(self, ballot: Ballot) -> Step<(PaxosAnswer, Until)> {
        let log = &self.shard.log;
        let mut known = self.entry.known(log);
        let Some(is_noted) = known.as_mut().map(|known| known.prune(ballot, log)) else {
            drop(known);
            return self.unread();
        };
        if is_noted {
            self.acceptor.noted(self.shard, self.id, &self.entry);
        }
        Step::Done((PaxosAnswer::Done, Until::Now))
    }

    fn was_checked(&self) -> bool {
        let checked_by = self.entry.checked_by.borrow();
        checked_by
            .as_ref()
            .is_some_and(|t| Arc::ptr_eq(t, &self.row.base.table.borrow()))
    }

    /// Refuses what could be accepted and never be learned; a long proposal waits for that.
    fn check(&self, proposal: &Proposal) -> Result<Option<Wait>, ReplicaError> {
        let table = self.row.base.table.borrow();
        let checked_by = self.before.checked_by.as_ref();
        if checked_by.is_some_and(|checked_by| Arc::ptr_eq(checked_by, &table)) {
            return Ok(None);
        }
        if proposal.value().is_some_and(|value| value.len() > CHECKED_BYTES_MAX) {
            return Ok(Some(Wait::Checked(Arc::clone(&table), proposal.clone())));
        }
        check(&table, &self.entry.key, proposal).map(|()| None)
    }
}
