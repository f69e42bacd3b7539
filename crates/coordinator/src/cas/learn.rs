//! A decision on its way to the replicas.
//!
//! Like a write (`flight.rs`), the decision is sent to all replicas at once, and the waiting request is answered when
//! as many have it as the level wants. After that the decision remains on its way, without a task, until every replica
//! is known to have it or is given a hint.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use mutation::Addressed;
use paxos::Proposal;
use rpc::{AnswerTaker, RpcError, Sent};
use runtime::{Instant, ShardId};
use schema::Table;
use smallvec::SmallVec;
use stdx::probe::Answered;
use topology::{Acks, Consistency, Replica};

use crate::cas::acceptor::{self, PhaseCaller, PhaseDone};
use crate::cas::asking::{Outcome, Partition, decoded};
use crate::cas::message::{PaxosAnswer, Phase};
use crate::cas::{Cas, CasRequest};
use crate::fence::Stamp;
use crate::write::birth::birth_us;
use crate::write::deadlines::{Expiring, FlightId};
use crate::write::lasting::UnderWay;
use crate::{ClusterView, Coordinator, CoordinatorError, Tally, TargetError, Verb, WriteKind, spawn};

/// Mutations smaller than this stay with the acceptors after all replicas have learned them: to keep one is cheaper
/// than to send the message that drops it.
const PRUNE_BYTES_MIN: usize = 512;

/// Why too few replicas are known to have learned a decision.
#[derive(Clone, Debug)]
pub(crate) enum Unlearned {
    Silent(CoordinatorError),
    /// Some know a newer view of the cluster.
    Stale(CoordinatorError),
}

/// What was chosen, on its way to all replicas.
pub(crate) struct Learning {
    cas: Rc<Cas>,
    view: Arc<ClusterView>,
    table: Arc<Table>,
    key: Vec<u8>,
    proposal: Proposal,
    level: Consistency,
    deadline: Instant,
    id: Cell<FlightId>,
    /// When it began; microseconds.
    began_us: i64,
    /// Not all replicas have been sent the decision yet.
    is_beginning: Cell<bool>,
    state: RefCell<State>,
}

struct Target {
    replica: Replica,
    is_settled: bool,
    sent: Option<Sent>,
}

struct State {
    targets: SmallVec<[Target; 3]>,
    /// How many of them are not settled.
    outstanding: usize,
    acks: Acks,
    answered: Answered<Replica>,
    /// Those that did not get it; hints are stored for them.
    missed: SmallVec<[Replica; 2]>,
    is_stale: bool,
    /// The answer for the waiting request; taken once.
    answer: Option<Result<(), Unlearned>>,
    is_answered: bool,
    waker: Option<Waker>,
    /// Held while the decision is on its way after its request was answered.
    under_way: Option<UnderWay>,
}

impl Learning {
    /// Sends the decision to the replicas. Those that have accepted the proposal get only the ballot at which it was
    /// chosen; those that are down get hints. `acks` says how many of the live ones must have it.
    pub(crate) fn begin(
        cas: &Rc<Cas>,
        view: &Arc<ClusterView>,
        request: &CasRequest,
        proposal: Proposal,
        (level, acks): (Consistency, Acks),
        (live, dead, accepted): (&[Replica], &[Replica], &[Replica]),
        deadline: Instant,
    ) -> Rc<Self> {
        let target = |replica: &Replica| Target {
            replica: *replica,
            is_settled: false,
            sent: None,
        };
        let learning = Rc::new(Self {
            cas: Rc::clone(cas),
            view: Arc::clone(view),
            table: Arc::clone(&request.table),
            key: request.key.clone(),
            proposal,
            level,
            deadline,
            id: Cell::default(),
            began_us: runtime::wall_clock_us(),
            is_beginning: Cell::new(true),
            state: RefCell::new(State {
                targets: live.iter().map(target).collect(),
                outstanding: live.len(),
                acks,
                answered: Answered::default(),
                missed: SmallVec::new(),
                is_stale: false,
                answer: None,
                is_answered: false,
                waker: None,
                under_way: None,
            }),
        });
        for replica in dead {
            learning.missed(&mut learning.state.borrow_mut(), *replica);
        }
        let commit = Phase::Commit(learning.proposal.ballot);
        let whole = Phase::Learn(learning.proposal.clone());
        // This node's part takes a while before the call returns.
        for is_here in [false, true] {
            for (number, replica) in (0..).zip(live).filter(|(_, r)| (r.node == view.me) == is_here) {
                let phase = if accepted.contains(replica) { &commit } else { &whole };
                learning.tell(number, *replica, phase);
            }
        }
        learning.is_beginning.set(false);
        learning.advance();
        if learning.state.borrow().outstanding > 0 {
            learning.id.set(cas.writes.flights.add(learning.clone(), deadline));
        }
        learning
    }

    /// Waits until as many replicas have it as the level wants.
    pub(crate) async fn answered(&self) -> Result<(), Unlearned> {
        poll_fn(|context| {
            let mut state = self.state.borrow_mut();
            match state.answer.take() {
                Some(answer) => Poll::Ready(answer),
                None => {
                    state.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    fn tell(self: &Rc<Self>, number: u32, replica: Replica, phase: &Phase<'_>) {
        let partition = Partition {
            cas: &self.cas,
            view: &self.view,
            table: self.table.id,
            key: &self.key,
        };
        let sent = partition.ask(replica, phase, self.deadline, (self, number));
        self.state.borrow_mut().targets[number as usize].sent = sent;
    }

    /// Notes that a replica did not get it.
    fn missed(&self, state: &mut State, replica: Replica) {
        state.missed.push(replica);
        if let Some(value) = self.proposal.value() {
            let Some(mutation) = Addressed::new(value.to_vec()) else {
                return;
            };
            // A proposal of long ago may have been finished: its timestamp is that of its first ballot, however old.
            let dated_us = self.began_us.min(replica::min_timestamp(value));
            let birth_us = birth_us(&self.cas.context.shard, [&mutation], dated_us);
            self.cas
                .writes
                .hints
                .missed(&self.view, replica, [&mutation], birth_us, false);
        }
    }

    /// Answers the request if it can be answered now, and ends when no replica is outstanding.
    fn advance(self: &Rc<Self>) {
        if self.is_beginning.get() {
            return;
        }
        let mut state = self.state.borrow_mut();
        if !state.is_answered {
            let is_enough = self.level == Consistency::Any || state.acks.is_satisfied();
            if is_enough {
                self.cas
                    .context
                    .tell_answered(&self.view, "commit", self.level, &state.answered);
                self.answer(&mut state, Ok(()));
            } else if state.acks.is_hopeless() || state.outstanding == 0 {
                let error = self.unlearned(&state);
                self.answer(&mut state, Err(error));
            }
        }
        if state.outstanding > 0 {
            return;
        }
        state.under_way = None;
        let everybody_has_it = state.missed.is_empty();
        drop(state);
        self.cas.writes.flights.remove(self.id.take());
        let is_long = |value: &[u8]| value.len() >= PRUNE_BYTES_MIN;
        // No replica lacks the value any more, so acceptors need not keep it.
        if everybody_has_it && self.proposal.value().is_some_and(is_long) {
            self.prune();
        }
    }

    fn answer(&self, state: &mut State, answer: Result<(), Unlearned>) {
        state.is_answered = true;
        state.answer = Some(answer);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        if state.outstanding > 0 {
            state.under_way = Some(UnderWay::new(&self.cas.writes.flights));
        }
    }

    fn unlearned(&self, state: &State) -> Unlearned {
        let silent = state.targets.iter().filter(|target| !target.is_settled);
        let without = silent.map(|target| target.replica).chain(state.missed.iter().copied());
        let (received, block_for) = state.acks.tally();
        let error = CoordinatorError::WriteTimeout {
            tally: Tally {
                consistency: self.level,
                received,
                block_for,
            },
            kind: WriteKind::Simple,
            missing: self.view.names(without),
        };
        if state.is_stale {
            Unlearned::Stale(error)
        } else {
            Unlearned::Silent(error)
        }
    }

    /// It saves memory there, no more: what is lost is not missed.
    fn prune(&self) {
        let (table, phase) = (self.table.id, Phase::Prune(self.proposal.ballot));
        let stamp = Stamp::of(&self.view, table);
        let replicas: SmallVec<[Replica; 6]> = self.state.borrow().targets.iter().map(|t| t.replica).collect();
        for replica in replicas {
            let shard = u32::from(replica.shard);
            if replica.node != self.view.me {
                let (Some(rpc), Some(peer)) = (&self.cas.context.rpc, self.view.peer(replica.node)) else {
                    continue;
                };
                let mut body = Vec::with_capacity(phase.encoded_bytes(&self.key) + Stamp::BYTES);
                phase.encode(table, &self.key, &mut body);
                stamp.sign(&mut body);
                let timeout = self.deadline.saturating_duration_since(runtime::now());
                let _ = rpc.send(&peer, shard, Verb::Paxos as u16, body, timeout);
            } else if ShardId(shard) == self.cas.context.shard.id() {
                if let Some(pruning) =
                    acceptor::handle(&self.cas, (table, &self.key), &phase, stamp, || PhaseCaller::None)
                {
                    spawn(async move { drop(pruning.await) });
                }
            } else {
                let (key, phase) = (self.key.clone(), phase.to_owned());
                let pruning = runtime::submit_async_to(ShardId(shard), move || async move {
                    acceptor::handle_from_beside(&Coordinator::local().cas, (table, key), phase, stamp).await
                });
                spawn(async move { drop(pruning.await) });
            }
        }
    }
}

impl PhaseDone for Learning {
    fn phase_done(self: Rc<Self>, number: u32, outcome: Outcome) {
        if let Ok(PaxosAnswer::Lacking) = outcome {
            // It was not among those whose acceptance counted.
            let replica = self.state.borrow().targets[number as usize].replica;
            return self.tell(number, replica, &Phase::Learn(self.proposal.clone()));
        }
        self.settle(number, outcome);
        self.advance();
    }
}

impl Learning {
    /// Takes the outcome of a target's part.
    fn settle(&self, number: u32, outcome: Outcome) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let target = &mut state.targets[number as usize];
        if std::mem::replace(&mut target.is_settled, true) {
            return;
        }
        target.sent = None;
        let replica = target.replica;
        state.outstanding -= 1;
        let datacenter = self.view.locality.datacenter(replica.node);
        match outcome {
            Ok(_) => {
                state.acks.ack(replica.node, datacenter);
                state.answered.add(replica);
            }
            Err(error) => {
                state.is_stale |= matches!(error, TargetError::Stale(_));
                state.acks.fail(replica.node, datacenter);
                self.missed(state, replica);
            }
        }
    }
}

impl AnswerTaker for Learning {
    fn take_answer(self: Rc<Self>, number: u32, answer: Result<&[u8], RpcError>) {
        let outcome = decoded(answer, &self.table);
        self.phase_done(number, outcome);
    }
}

impl Expiring for Learning {
    fn birth_us(&self) -> Option<i64> {
        let mutation = self.proposal.value().and_then(|value| Addressed::new(value.to_vec()));
        Some(birth_us(&self.cas.context.shard, &mutation, self.began_us))
    }

    fn expire(self: Rc<Self>, _: Instant) -> Option<Instant> {
        let mut state = self.state.borrow_mut();
        if !state.is_answered && self.level != Consistency::Any {
            let error = self.unlearned(&state);
            self.answer(&mut state, Err(error));
        }
        let mut silent: SmallVec<[Replica; 3]> = SmallVec::new();
        for target in state.targets.iter_mut().filter(|target| !target.is_settled) {
            target.is_settled = true;
            silent.push(target.replica);
            if let Some(sent) = target.sent.take() {
                sent.give_up();
            }
        }
        silent.into_iter().for_each(|replica| self.missed(&mut state, replica));
        state.outstanding = 0;
        drop(state);
        self.advance();
        None
    }
}
