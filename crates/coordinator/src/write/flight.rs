//! Writes on their way.
//!
//! A [`Flight`] does what its [`Write`] decides: it sends the requests, takes the answers where they come in, without a
//! task, answers the waiting request, and sees to the deadline (`deadlines.rs`).

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use mutation::{Addressed, Located};
use rpc::{AnswerTaker, Purpose, RpcError, Sent};
use runtime::{Instant, ShardId};
use smallvec::SmallVec;
use stdx::planted::{self, Bug};
use stdx::probe;
use topology::Consistency;

use crate::batchlog::needs_note_in;
use crate::fence::Stamp;
use crate::message::{encoded_bytes, put_mutations};
use crate::service::ReplicaError;
use crate::trace::{self, Trace};
use crate::verbs::Verb;
use crate::write::apply::{self, Origin, apply_at_once};
use crate::write::commit::Acknowledgement;
use crate::write::deadlines::{Expiring, FlightId};
use crate::write::{Atomicity, Manner, Mutations, State, Target, Write, WriteDone, Writes, numbered};
use crate::{Coordinator, CoordinatorError, TargetError, WriteKind, spawn};

/// A write on its way. See the module.
pub(crate) struct Flight {
    write: RefCell<Write>,
    deadline: Instant,
    id: Cell<FlightId>,
    /// Another attempt writes this node's own share.
    is_own_again: Cell<bool>,
    /// Of a request whose client asked for it.
    trace: Option<Rc<Trace>>,
    /// The receiver of the outcome; used once.
    done: RefCell<Option<(Rc<dyn WriteDone>, u32)>>,
}

impl Expiring for Flight {
    fn expire(self: Rc<Self>, _: Instant) -> Option<Instant> {
        self.advance(Write::expire);
        None
    }

    fn birth_us(&self) -> Option<i64> {
        Some(self.write.borrow().birth_us())
    }
}

/// Holds reports back to the birth of a write that is to be written again.
struct Remembered {
    birth_us: i64,
}

impl Expiring for Remembered {
    fn expire(self: Rc<Self>, _: Instant) -> Option<Instant> {
        None
    }

    fn birth_us(&self) -> Option<i64> {
        Some(self.birth_us)
    }
}

/// What of this node's own share waits to be written again.
struct OwnAgain {
    mutations: Mutations,
    bytes: usize,
    remembered: FlightId,
}

/// What a shard keeps of such writes at most. Others are missed.
const OWN_AGAIN_BYTES_MAX: usize = 16 << 20;

impl AnswerTaker for Flight {
    fn take_answer(self: Rc<Self>, number: u32, answer: Result<&[u8], RpcError>) {
        self.settle(number, answer.map(drop).map_err(TargetError::from));
    }
}

impl Flight {
    /// Sends a write to all that live and take writes; the others would only be waited for.
    pub(crate) fn start(write: Write, deadline: Instant, done: (Rc<dyn WriteDone>, u32)) {
        let writes = Rc::clone(&write.writes);
        let flight = Rc::new(Self {
            write: RefCell::new(write),
            deadline,
            id: Cell::default(),
            is_own_again: Cell::default(),
            trace: Trace::current(),
            done: RefCell::new(Some(done)),
        });
        let here = flight.send(&writes);
        if let Some(at) = here {
            flight.write_here(&writes, at);
        }
        flight.advance(|write| write.answer());
        if flight.write.borrow().outstanding > 0 {
            flight.id.set(writes.flights.add(flight.clone(), deadline));
        }
    }

    /// Sends their shares to all replicas but this shard; the number of this shard, if it is one of them.
    fn send(self: &Rc<Self>, writes: &Rc<Writes>) -> Option<usize> {
        let mut here = None;
        let mut write = self.write.borrow_mut();
        let write = &mut *write;
        let view = Arc::clone(&write.view);
        let this = writes.context.this_replica(&view);
        let stamp = write.stamp();
        for at in 0..write.targets.len() {
            let replica = write.targets[at].replica;
            if !write.is_asked(at) {
                self.note(|| {
                    format!(
                        "{} is down, takes no writes or has a full disk: a hint is kept for it",
                        view.name(replica)
                    )
                });
                write.not_asked(replica);
                continue;
            }
            self.note(|| format!("Sending the write to {}", view.name(replica)));
            if replica == this {
                write.targets[at].state = State::Here;
                write.outstanding += 1;
                here = Some(at);
            } else if replica.node == view.me {
                write.targets[at].state = State::Here;
                write.outstanding += 1;
                self.write_beside(write, at);
            } else {
                match self.write_there(writes, write, at, stamp) {
                    Ok(sent) => {
                        write.targets[at].state = State::There(sent);
                        write.outstanding += 1;
                    }
                    Err(error) => self.write_unsent(write, at, error),
                }
            }
        }
        here
    }

    fn note(&self, activity: impl Fn() -> String) {
        probe::step(|| format!("coordinator: {}", activity()));
        if let Some(trace) = &self.trace {
            trace.note(activity());
        }
    }

    /// Asks a replica on another node.
    fn write_there(
        self: &Rc<Self>,
        writes: &Rc<Writes>,
        write: &Write,
        at: usize,
        stamp: Stamp,
    ) -> Result<Sent, TargetError> {
        let Target { replica, numbers, .. } = &write.targets[at];
        let (Some(rpc), Some(peer)) = (&writes.context.rpc, write.view.peer(replica.node)) else {
            return Err(TargetError::without_connections());
        };
        let share = numbered(&write.mutations, numbers);
        let bytes = encoded_bytes(share.clone()) + Stamp::BYTES;
        let all_or_nothing = write.manner.has_whole_shares();
        let purpose = Purpose {
            verb: Verb::Mutate as u16,
            trace: self.trace.as_ref().map(|trace| trace.id),
        };
        let body = move |out: &mut Vec<u8>| {
            put_mutations(out, all_or_nothing, share);
            stamp.sign(out);
        };
        let number = u32::try_from(at).expect("a write has few targets");
        let taker: Rc<dyn AnswerTaker> = self.clone();
        let sent = rpc.call_for(
            (&peer, u32::from(replica.shard)),
            (purpose, self.deadline),
            (bytes, body),
            (taker, number),
        );
        sent.map_err(TargetError::from)
    }

    /// A replica could not even be asked. That is settled after the others were asked, as if the replica had answered.
    fn write_unsent(self: &Rc<Self>, write: &mut Write, at: usize, error: TargetError) {
        write.targets[at].state = State::Here;
        write.outstanding += 1;
        let flight = Rc::clone(self);
        let number = u32::try_from(at).expect("a write has few targets");
        spawn(async move { flight.settle(number, Err(error)) });
    }

    /// Asks another shard of this node.
    fn write_beside(self: &Rc<Self>, write: &Write, at: usize) {
        let Target { replica, numbers, .. } = &write.targets[at];
        let share: Vec<Addressed> = numbered(&write.mutations, numbers).cloned().collect();
        let stamp = write.stamp();
        let all_or_nothing = write.manner.has_whole_shares();
        let traced = self.trace.as_ref().map(|trace| trace.id);
        let applied = runtime::submit_async_to(ShardId(u32::from(replica.shard)), move || {
            runtime::preemptible(trace::beside(traced, async move {
                let located: SmallVec<[Located<'_>; 1]> = share.iter().map(Addressed::located).collect();
                let shard = &Coordinator::local().context.shard;
                apply::apply(shard, &located, all_or_nothing, Origin::Local, stamp).await
            }))
        });
        self.await_here(at, applied);
    }

    /// Applies this shard's own share.
    fn write_here(self: &Rc<Self>, writes: &Rc<Writes>, at: usize) {
        let number = u32::try_from(at).expect("a write has few targets");
        let (applied, stamp) = {
            let write = self.write.borrow();
            let mut share = numbered(&write.mutations, &write.targets[at].numbers);
            let stamp = write.stamp();
            let applied = match (share.next(), share.next()) {
                (Some(only), None) => apply_at_once(&writes.context.shard, only.located(), Origin::Local, stamp),
                _ => Ok(None),
            };
            (applied, stamp)
        };
        match applied {
            Ok(Some(logged)) => {
                let whom = Acknowledgement::Write(Rc::clone(self), number);
                writes.acknowledge_committed(logged.into(), whom);
            }
            Err(error) => self.applied_here(number, Err(error)),
            Ok(None) => {
                let (shard, flight) = (Rc::clone(&writes.context.shard), Rc::clone(self));
                let (share, all_or_nothing): (Vec<Addressed>, bool) = {
                    let write = flight.write.borrow();
                    let share = numbered(&write.mutations, &write.targets[at].numbers);
                    (share.cloned().collect(), write.manner.has_whole_shares())
                };
                self.await_here(at, async move {
                    let located: SmallVec<[Located<'_>; 1]> = share.iter().map(Addressed::located).collect();
                    apply::apply(&shard, &located, all_or_nothing, Origin::Local, stamp).await
                });
            }
        }
    }

    /// Waits in a task for what this node does, until the deadline.
    fn await_here(self: &Rc<Self>, at: usize, applied: impl Future<Output = Result<(), ReplicaError>> + 'static) {
        let (flight, deadline) = (Rc::clone(self), self.deadline);
        let number = u32::try_from(at).expect("a write has few targets");
        let applied = trace::carried(applied);
        spawn(runtime::preemptible(async move {
            if let Ok(result) = runtime::timeout_at(deadline, applied).await {
                flight.applied_here(number, result);
            }
        }));
    }

    /// Takes the outcome of this node's own share.
    pub(crate) fn applied_here(self: &Rc<Self>, number: u32, result: Result<(), ReplicaError>) {
        self.settle(number, result.map_err(TargetError::from));
    }

    fn settle(self: &Rc<Self>, number: u32, result: Result<(), TargetError>) {
        self.note(|| {
            let write = self.write.borrow();
            let name = write.view.name(write.targets[number as usize].replica);
            match &result {
                Ok(()) => format!("{name} has the write"),
                Err(error) => format!("{name} has not taken the write: {error:?}"),
            }
        });
        self.advance(|write| write.settle(number as usize, result));
    }

    /// Takes a step of the write, answers the request if it can be answered now, and ends the flight when nothing is
    /// outstanding.
    fn advance(self: &Rc<Self>, step: impl FnOnce(&mut Write) -> Option<Result<(), CoordinatorError>>) {
        let mut write = self.write.borrow_mut();
        let answer = step(&mut write);
        let mut again = None;
        if let Some(answer) = &answer {
            // What a stale view kept from being done may be done in a newer one.
            if let (Err(error), true) = (answer, write.is_stale) {
                let may_be_done = write.manner.kind == WriteKind::Counter || write.is_begun || write.outstanding > 0;
                again = Some((error.clone(), may_be_done));
                if !may_be_done {
                    write.forget_hints();
                }
            }
            write.go_on();
        } else if write.is_answered && write.outstanding == 0 && write.under_way.is_some() {
            write.hint_rejected();
            write.under_way = None;
        }
        let mut own_again = None;
        if again.is_some() {
            // That attempt includes this node.
            self.is_own_again.set(true);
        } else if write.is_own_stale && write.is_answered && !self.is_own_again.replace(true) {
            own_again = Self::remember_own(&mut write);
        }
        // The write is remembered before its flight is removed, so every report counts it.
        if write.outstanding == 0 {
            write.writes.flights.remove(self.id.take());
        }
        if write.is_stale {
            write.writes.stale_settled.notify_all();
        }
        drop(write);
        if let Some(own_again) = own_again {
            spawn(Rc::clone(self).write_own_again(own_again));
        }
        match (again, answer) {
            (Some((error, may_be_done)), _) => spawn(Rc::clone(self).begin_again(error, may_be_done)),
            (None, Some(answer)) => self.tell(answer),
            (None, None) => {}
        }
    }

    fn tell(&self, answer: Result<(), CoordinatorError>) {
        if let Some((done, number)) = self.done.take() {
            done.write_done(number, answer);
        }
    }

    /// Whether a replica did its part of what others refused; waits for those that have not answered. None: unknown.
    async fn is_done(&self) -> Option<bool> {
        let writes = Rc::clone(&self.write.borrow().writes);
        loop {
            let settled = writes.stale_settled.notified();
            {
                let write = self.write.borrow();
                // A counter's leader has made its addition.
                if write.has_acked || write.manner.kind == WriteKind::Counter {
                    return Some(true);
                }
                if write.outstanding == 0 {
                    return (!write.is_begun).then_some(false);
                }
            }
            settled.await;
        }
    }

    /// Writes again in the next view what replicas refused because this one is over.
    async fn begin_again(self: Rc<Self>, error: CoordinatorError, mut may_be_done: bool) {
        let (writes, view, mut mutations, manner) = {
            let write = self.write.borrow();
            let writes = Rc::clone(&write.writes);
            (writes, Arc::clone(&write.view), write.mutations.clone(), write.manner)
        };
        let Some(newer) = writes.context.newer_view(&view, self.deadline).await else {
            self.write.borrow_mut().miss_own_stale();
            return self.tell(Err(error));
        };
        let is_truncated = |m: &Addressed| newer.truncated_at(m.table()) > view.truncated_at(m.table());
        if may_be_done && mutations.iter().any(is_truncated) {
            match self.is_done().await {
                // A replica did it before the truncation: the truncation was not answered before that replica had it,
                // and it takes the write, on the others too. The write may not be done again after that, because a
                // client may have seen it.
                Some(true) => {
                    mutations.retain(|m| !is_truncated(m));
                    if mutations.is_empty() {
                        return self.tell(Ok(()));
                    }
                }
                // It may have begun when the truncation was answered: this node is not waited for where it has no
                // replica.
                Some(false) => may_be_done = false,
                None => {
                    self.write.borrow_mut().miss_own_stale();
                    return self.tell(Err(error));
                }
            }
        }
        let Some(done) = self.done.take() else { return };
        if manner.atomicity == Atomicity::Batch
            && needs_note_in(&newer, &mutations)
            && !planted::is_planted(Bug::BatchAgainWithoutNote)
        {
            // A tablet of it has moved: one replica alone had all of it.
            let written = writes.write_noted(mutations.into_vec(), manner.again_until(self.deadline));
            let written = Box::pin(written).await;
            return done
                .0
                .write_done(done.1, written.map_err(|e| if may_be_done { error } else { e }));
        }
        match Write::new(&writes, &newer, mutations, manner) {
            Ok(mut write) => {
                // It may not end as refused if the attempt before did something.
                write.is_begun |= may_be_done;
                write.has_acked |= self.write.borrow().has_acked;
                Self::start(write, self.deadline, done);
            }
            // That too few live says that nothing was written, and some of it may be.
            Err(_) => {
                self.write.borrow_mut().miss_own_stale();
                done.0.write_done(done.1, Err(error));
            }
        }
    }

    /// Keeps what this node has not taken of a write, if there is room.
    fn remember_own(write: &mut Write) -> Option<OwnAgain> {
        let mutations = write.own_share();
        let bytes = mutations.iter().map(|mutation| mutation.bytes().len()).sum();
        let waiting = &write.writes.own_again_bytes;
        if waiting.get() + bytes > OWN_AGAIN_BYTES_MAX {
            write.miss_own_stale();
            return None;
        }
        waiting.set(waiting.get() + bytes);
        let birth_us = write.birth_us();
        let remembered = Rc::new(Remembered { birth_us });
        Some(OwnAgain {
            mutations,
            bytes,
            remembered: write.writes.flights.add(remembered, runtime::now()),
        })
    }

    /// Writes this node's own share in the next view: a tablet has moved between its shards, and the other replicas met
    /// the level.
    async fn write_own_again(self: Rc<Self>, own_again: OwnAgain) {
        let (writes, view, manner) = {
            let write = self.write.borrow();
            (Rc::clone(&write.writes), Arc::clone(&write.view), write.manner)
        };
        let OwnAgain {
            mut mutations,
            bytes,
            remembered,
        } = own_again;
        let timeout = writes.context.timeouts().write;
        let newer = writes.context.newer_view(&view, runtime::now() + timeout).await;
        let again = newer.and_then(|newer| {
            mutations.retain(|m| newer.truncated_at(m.table()) <= view.truncated_at(m.table()));
            let manner = Manner {
                level: Consistency::One,
                ..manner
            };
            Write::new(&writes, &newer, mutations, manner).ok()
        });
        match again {
            Some(mut write) => {
                write.keep_own_targets();
                if !write.targets.is_empty() {
                    Self::start(write, runtime::now() + timeout, (Rc::new(Waiting::default()), 0));
                }
            }
            None => self.write.borrow_mut().miss_own_stale(),
        }
        writes.own_again_bytes.set(writes.own_again_bytes.get() - bytes);
        writes.flights.remove(remembered);
    }
}

/// A task that waits for its write.
#[derive(Default)]
pub(crate) struct Waiting {
    result: RefCell<Option<Result<(), CoordinatorError>>>,
    waker: Cell<Option<Waker>>,
}

impl WriteDone for Waiting {
    fn write_done(self: Rc<Self>, _: u32, result: Result<(), CoordinatorError>) {
        *self.result.borrow_mut() = Some(result);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Waiting {
    pub(crate) async fn result(&self) -> Result<(), CoordinatorError> {
        poll_fn(|context| match self.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                self.waker.set(Some(context.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }
}
