//! Phases on their way to acceptors.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rpc::{AnswerTaker, RpcError, Sent};
use runtime::{Instant, ShardId, Sleep};
use schema::{Table, TableId};
use smallvec::SmallVec;
use topology::Replica;

use crate::cas::Cas;
use crate::cas::acceptor::{self, PhaseCaller, PhaseDone};
use crate::cas::message::{PaxosAnswer, Phase};
use crate::fence::Stamp;
use crate::trace;
use crate::{ClusterView, Coordinator, TargetError, Verb, spawn};

/// What one acceptor answered.
pub(crate) type Outcome = Result<PaxosAnswer, TargetError>;

/// Of which partition acceptors are asked.
#[derive(Clone, Copy)]
pub(crate) struct Partition<'a> {
    pub(crate) cas: &'a Rc<Cas>,
    pub(crate) view: &'a ClusterView,
    pub(crate) table: TableId,
    pub(crate) key: &'a [u8],
}

impl Partition<'_> {
    /// Makes an acceptor do its part of a phase until the deadline. `taker` receives the outcome with this number,
    /// once, perhaps while the acceptor is asked. Some: the outcome comes with the answer to this request.
    pub(crate) fn ask<T>(
        self,
        replica: Replica,
        phase: &Phase<'_>,
        deadline: Instant,
        (taker, number): (&Rc<T>, u32),
    ) -> Option<Sent>
    where
        T: AnswerTaker + PhaseDone + 'static,
    {
        let Self { cas, view, table, key } = self;
        let stamp = Stamp::of(view, table);
        if replica.node != view.me {
            let sent = match (&cas.context.rpc, view.peer(replica.node)) {
                (Some(rpc), Some(peer)) => {
                    let body = |out: &mut Vec<u8>| {
                        phase.encode(table, key, out);
                        stamp.sign(out);
                    };
                    let sent = rpc.call_for(
                        (&peer, u32::from(replica.shard)),
                        (trace::purpose(Verb::Paxos), deadline),
                        (phase.encoded_bytes(key) + Stamp::BYTES, body),
                        (taker.clone(), number),
                    );
                    sent.map_err(TargetError::from)
                }
                _ => Err(TargetError::without_connections()),
            };
            return sent.map_err(|error| taker.clone().phase_done(number, Err(error))).ok();
        }
        if ShardId(u32::from(replica.shard)) == cas.context.shard.id() {
            let whom = || PhaseCaller::Leader(taker.clone(), number);
            if let Some(answering) = acceptor::handle(cas, (table, key), phase, stamp, whom) {
                tell_until(deadline, answering, taker.clone(), number);
            }
            return None;
        }
        let (key, phase) = (key.to_vec(), phase.to_owned());
        let answering = trace::submit(ShardId(u32::from(replica.shard)), move || async move {
            acceptor::handle_from_beside(&Coordinator::local().cas, (table, key), phase, stamp).await
        });
        tell_until(deadline, answering, taker.clone(), number);
        None
    }
}

/// Waits in a task for what this node does, until the deadline.
fn tell_until<F>(deadline: Instant, answering: F, taker: Rc<dyn PhaseDone>, number: u32)
where
    F: Future<Output = Result<PaxosAnswer, crate::service::ReplicaError>> + 'static,
{
    let answering = trace::carried(answering);
    // A promise may bring long rows.
    spawn(runtime::preemptible(async move {
        if let Ok(outcome) = runtime::timeout_at(deadline, answering).await {
            taker.phase_done(number, outcome.map_err(TargetError::from));
        }
    }));
}

/// What an acceptor on another node answered.
pub(crate) fn decoded(answer: Result<&[u8], RpcError>, table: &Table) -> Outcome {
    let malformed = |e| TargetError::Failed(format!("a malformed answer of an acceptor: {e}"));
    PaxosAnswer::decode(answer?, table).map_err(malformed)
}

/// The answers of one phase.
struct Answers {
    table: Arc<Table>,
    state: RefCell<Received>,
}

#[derive(Default)]
struct Received {
    /// Those that were not taken yet, the last first.
    outcomes: SmallVec<[(u32, Outcome, Instant); 3]>,
    /// The waiting task is woken when there are so many outcomes, or a bad one.
    wanted: usize,
    waker: Option<Waker>,
}

impl PhaseDone for Answers {
    fn phase_done(self: Rc<Self>, number: u32, outcome: Outcome) {
        let mut received = self.state.borrow_mut();
        let is_bad = matches!(outcome, Err(_) | Ok(PaxosAnswer::Refused(_)));
        received.outcomes.insert(0, (number, outcome, runtime::now()));
        if (is_bad || received.outcomes.len() >= received.wanted)
            && let Some(waker) = received.waker.take()
        {
            waker.wake();
        }
    }
}

impl AnswerTaker for Answers {
    fn take_answer(self: Rc<Self>, number: u32, answer: Result<&[u8], RpcError>) {
        let outcome = decoded(answer, &self.table);
        self.phase_done(number, outcome);
    }
}

/// One phase, asked of several acceptors and awaited by one task. Dropping it gives up what has not been answered.
pub(crate) struct Asking {
    answers: Rc<Answers>,
    /// By number.
    asked: SmallVec<[Asked; 3]>,
    outstanding: usize,
    /// The instant that the timer was set to.
    timer: Option<(Instant, Sleep)>,
}

struct Asked {
    replica: Replica,
    sent: Option<Sent>,
}

impl Asking {
    pub(crate) fn new(table: &Arc<Table>) -> Self {
        let answers = Answers {
            table: Arc::clone(table),
            state: RefCell::default(),
        };
        Self {
            answers: Rc::new(answers),
            asked: SmallVec::new(),
            outstanding: 0,
            timer: None,
        }
    }

    /// How many have not been taken.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding
    }

    pub(crate) fn ask(&mut self, partition: Partition<'_>, replica: Replica, phase: &Phase<'_>, deadline: Instant) {
        let number = u32::try_from(self.asked.len()).expect("a partition has few replicas");
        self.outstanding += 1;
        let sent = partition.ask(replica, phase, deadline, (&self.answers, number));
        self.asked.push(Asked { replica, sent });
    }

    /// The next answer, and when it came; None when none has come by `until`, or all acceptors have answered. Good
    /// answers may wait until there are `wanted`.
    pub(crate) async fn next(&mut self, until: Instant, wanted: usize) -> Option<(Replica, Outcome, Instant)> {
        if self.outstanding == 0 {
            return None;
        }
        poll_fn(|context| self.poll_next(until, wanted.min(self.outstanding), context)).await
    }

    fn poll_next(
        &mut self,
        until: Instant,
        wanted: usize,
        context: &mut Context<'_>,
    ) -> Poll<Option<(Replica, Outcome, Instant)>> {
        {
            let mut received = self.answers.state.borrow_mut();
            if let Some((number, outcome, at)) = received.outcomes.pop() {
                self.outstanding -= 1;
                let asked = &mut self.asked[number as usize];
                asked.sent = None;
                return Poll::Ready(Some((asked.replica, outcome, at)));
            }
            received.wanted = wanted;
            received.waker = Some(context.waker().clone());
        }
        let timer = match &mut self.timer {
            Some((at, timer)) if *at == until => timer,
            other => &mut other.insert((until, runtime::sleep_until(until))).1,
        };
        Pin::new(timer).poll(context).map(|()| None)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if self.outstanding == 0 {
            return;
        }
        for sent in self.asked.iter_mut().filter_map(|asked| asked.sent.take()) {
            sent.give_up();
        }
    }
}
