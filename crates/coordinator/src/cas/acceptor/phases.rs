//! Phases of conditional statements at one shard: their steps, and what is waited for before and after them.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use commitlog::{LogMark, LogPlace};
use mutation::{Located, Mutation};
use paxos::{Proposal, State};
use replica::Shard;
use rpc::Responder;
use runtime::StopPoint;
use schema::TableId;
use stdx::planted::{self, Bug};
use stdx::preempt;
use types::Token;
use types::token::token_of;

use super::Acceptor;
use super::steps::{AcceptorStep, Before, Step, Until, Wait, check};
use crate::cas::Cas;
use crate::cas::message::{PaxosAnswer, Phase};
use crate::fence::Stamp;
use crate::message::{Answer, PointCommand, ReadCommand};
use crate::service::{self, ReplicaError};
use crate::verbs::remote;
use crate::write::apply;
use crate::write::apply::Origin;
use crate::write::commit::Acknowledgement;
use crate::{TargetError, spawn, trace};

/// Receives the outcomes of phases on its own shard.
pub(crate) trait PhaseDone {
    /// The outcome of the phase that was asked for with this number, once. It may come while it is asked for.
    fn phase_done(self: Rc<Self>, number: u32, outcome: Result<PaxosAnswer, TargetError>);
}

/// The receiver of a phase's outcome.
pub(crate) enum PhaseCaller {
    /// A leader on another node; the table is that of the phase.
    Peer(Responder, TableId),
    /// A leader on this shard, and the number that it asked with.
    Leader(Rc<dyn PhaseDone>, u32),
    /// The outcome is not awaited.
    None,
}

impl PhaseCaller {
    pub(crate) fn tell(self, outcome: Result<PaxosAnswer, ReplicaError>) {
        match self {
            Self::Peer(responder, table) => {
                responder.answer(outcome.map(|answer| answer.encode(table)).map_err(remote));
            }
            Self::Leader(leader, number) => leader.phase_done(number, outcome.map_err(TargetError::from)),
            Self::None => {}
        }
    }
}

/// A replica's part of a phase, in the making.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Result<PaxosAnswer, ReplicaError>>>>;

/// Does a replica's part of a phase. None: `whom` is notified of the outcome, now or when the log has it. Otherwise the
/// part waits for something, and the caller runs the returned future and delivers its outcome.
pub(crate) fn handle(
    cas: &Rc<Cas>,
    (table, key): (TableId, &[u8]),
    phase: &Phase<'_>,
    stamp: Stamp,
    whom: impl FnOnce() -> PhaseCaller,
) -> Option<Answering> {
    trace::note(|| phase.activity());
    let (shard, acceptor) = (&cas.context.shard, &cas.acceptor);
    let mark = shard.log.mark();
    let waiting = |step: Step<Done>, answers: Vec<Answer>| -> Answering {
        let (key, phase) = (key.to_vec(), phase.to_owned());
        let part = Part {
            cas: Rc::clone(cas),
            table,
            key,
            phase,
            stamp,
        };
        match step {
            Step::Wait(wait) => Box::pin(part.go_on(Some(wait))),
            Step::Done(done) => Box::pin(part.finish(done, answers, mark)),
        }
    };
    let mut done = match step(shard, acceptor, (table, key), phase, stamp, Before::default()) {
        Ok(Step::Done(done)) => done,
        Ok(wait) => return Some(waiting(wait, Vec::new())),
        Err(e) => {
            whom().tell(Err(e));
            return None;
        }
    };
    if let (PaxosAnswer::Promised(_, answers), Phase::Prepare(_, reads)) = (&mut done.answer, phase) {
        for read in reads.iter() {
            let point = read.ok().and_then(PointCommand::decode);
            let point = point.filter(|point| point.table == table);
            match point.and_then(|point| cas.reads.answer_at_once(&point, stamp)) {
                Some(answer) => answers.push(answer),
                None => {
                    let answers = std::mem::take(answers);
                    return Some(waiting(Step::Done(done), answers));
                }
            }
        }
    }
    match done.until {
        Until::Now => whom().tell(Ok(done.answer)),
        Until::Synced => {
            runtime::stop_point(StopPoint::AcceptorNoted);
            let waiter = Waiter {
                whom: whom(),
                answer: done.answer,
            };
            acceptor.tell_when_synced(shard, mark, waiter);
        }
        Until::Committed(place) => {
            cas.writes
                .acknowledge_committed(place, Acknowledgement::Learned(whom()));
        }
    }
    None
}

/// Does a replica's part of a phase, as of a leader on another shard of this node.
pub(crate) async fn handle_from_beside(
    cas: &Rc<Cas>,
    (table, key): (TableId, Vec<u8>),
    phase: Phase<'static>,
    stamp: Stamp,
) -> Result<PaxosAnswer, ReplicaError> {
    trace::note(|| phase.activity());
    let part = Part {
        cas: Rc::clone(cas),
        table,
        key,
        phase,
        stamp,
    };
    part.go_on(None).await
}

/// Changes a state, and waits for what there is to wait for before. The result is not durable yet.
pub(super) async fn change<T>(
    (shard, acceptor): (&Rc<Shard>, &Rc<Acceptor>),
    (table, key): (TableId, &[u8]),
    change: impl Fn(&mut State) -> T,
) -> Result<T, ReplicaError> {
    loop {
        let wait = match AcceptorStep::find(shard, acceptor, (table, key), Stamp::PRESENT)? {
            Step::Wait(wait) => wait,
            Step::Done(place) => match place.change(&change)? {
                Step::Wait(wait) => wait,
                Step::Done(result) => return Ok(result),
            },
        };
        wait.over((shard, acceptor), (table, token_of(key)), Stamp::PRESENT)
            .await?;
    }
}

/// Waits until everything appended after a mark is durable.
pub(super) async fn synced(shard: &Shard, mark: LogMark) -> Result<(), ReplicaError> {
    if planted::is_planted(Bug::UnsyncedAcceptance) {
        return Ok(());
    }
    durable(shard, mark).await
}

async fn durable(shard: &Shard, mark: LogMark) -> Result<(), ReplicaError> {
    let durable = shard.log.durable_since(mark).await;
    durable.map_err(|e| ReplicaError::Log(e.to_string()))
}

/// The outcome of a phase.
struct Done {
    answer: PaxosAnswer,
    until: Until,
}

/// The one step of a phase. What is to be read then is not in the answer yet.
fn step(
    shard: &Rc<Shard>,
    acceptor: &Rc<Acceptor>,
    partition: (TableId, &[u8]),
    phase: &Phase<'_>,
    stamp: Stamp,
    before: Before,
) -> Result<Step<Done>, ReplicaError> {
    let place = match AcceptorStep::find(shard, acceptor, partition, stamp)? {
        Step::Done(place) => place.after(before),
        Step::Wait(wait) => return Ok(Step::Wait(wait)),
    };
    let done = match phase {
        Phase::Prepare(ballot, _) => place.prepare(*ballot)?,
        Phase::Accept(proposal) => place.accept(proposal)?,
        Phase::Learn(proposal) => place.learn(proposal)?,
        Phase::Commit(ballot) => place.commit(*ballot)?,
        Phase::Prune(ballot) => place.prune(*ballot),
    };
    Ok(done.map(|(answer, until)| Done { answer, until }))
}

impl Wait {
    /// Waits until the step can be tried again.
    async fn over(
        self,
        (shard, acceptor): (&Rc<Shard>, &Acceptor),
        (table, token): (TableId, Token),
        stamp: Stamp,
    ) -> Result<(), ReplicaError> {
        match self {
            Self::Table => service::store_of(shard, table).await.map(drop),
            Self::Admission(table, states) => {
                let both = [(&*table, token), (&*states, token)];
                apply::ready(both.into_iter(), stamp).await
            }
            Self::State(entry, row) => {
                let promises = Arc::clone(&acceptor.promises.borrow());
                entry.read(shard, &promises, row).await
            }
            Self::Sync => durable(shard, shard.log.mark()).await,
            Self::Room => Ok(shard.room().await?),
            Self::Checked(..) | Self::Applied(_) => Ok(()),
        }
    }
}

/// A phase that has to wait.
struct Part {
    cas: Rc<Cas>,
    table: TableId,
    key: Vec<u8>,
    phase: Phase<'static>,
    stamp: Stamp,
}

impl Part {
    /// Waits, and begins again, until the phase is done.
    async fn go_on(self, mut wait: Option<Wait>) -> Result<PaxosAnswer, ReplicaError> {
        let (shard, acceptor) = (&self.cas.context.shard, &self.cas.acceptor);
        let mut before = Before::default();
        loop {
            match &wait {
                Some(Wait::Checked(table, proposal)) => {
                    preempt::allowed(|| check(table, &self.key, proposal))?;
                    before.checked_by = Some(Arc::clone(table));
                }
                Some(Wait::Applied(proposal)) => before.applied = Some(self.apply(proposal).await?),
                _ => {}
            }
            if let Some(wait) = wait.take() {
                let over = wait.over((shard, acceptor), (self.table, token_of(&self.key)), self.stamp);
                Box::pin(over).await?;
            }
            let mark = shard.log.mark();
            let partition = (self.table, &self.key[..]);
            match step(shard, acceptor, partition, &self.phase, self.stamp, before.clone())? {
                Step::Wait(next) => wait = Some(next),
                Step::Done(done) => return self.finish(done, Vec::new(), mark).await,
            }
        }
    }

    /// Applies what was chosen.
    async fn apply(&self, proposal: &Proposal) -> Result<LogPlace, ReplicaError> {
        let mutation = proposal.value().and_then(Mutation::new);
        let mutation = mutation.ok_or_else(|| ReplicaError::Malformed("expected a whole mutation".to_owned()))?;
        let (shard, token) = (&self.cas.context.shard, token_of(&self.key));
        let mark = shard.log.mark();
        let located = [Located { token, mutation }];
        apply::apply(shard, &located, false, Origin::Local, self.stamp).await?;
        let position = shard.log.written();
        Ok(LogPlace { position, mark })
    }

    /// Adds what a promise still has to carry to the answers that there are already, and waits until the answer may be
    /// sent.
    async fn finish(self, done: Done, mut answers: Vec<Answer>, mark: LogMark) -> Result<PaxosAnswer, ReplicaError> {
        let Done { answer, until } = done;
        let shard = &self.cas.context.shard;
        let answer = match (answer, &self.phase) {
            (PaxosAnswer::Promised(promise, _), Phase::Prepare(_, reads)) => {
                for read in reads.iter().skip(answers.len()) {
                    let read = ReadCommand::decode(read?)?;
                    if read.table != self.table {
                        let reason = "expected reads of the table that the statement is about";
                        return Err(ReplicaError::Malformed(reason.to_owned()));
                    }
                    answers.push(Box::pin(service::read(shard, read, self.stamp)).await?);
                }
                PaxosAnswer::Promised(promise, answers)
            }
            (answer, _) => answer,
        };
        match until {
            Until::Now => {}
            Until::Synced => {
                runtime::stop_point(StopPoint::AcceptorNoted);
                synced(shard, mark).await?;
            }
            Until::Committed(place) => apply::committed(shard, place).await?,
        }
        Ok(answer)
    }
}

/// An answer that waits until what it speaks of is durable.
struct Waiter {
    whom: PhaseCaller,
    answer: PaxosAnswer,
}

/// The answers that wait for the next sync.
#[derive(Default)]
pub(super) struct AwaitingSync {
    waiters: RefCell<Vec<Waiter>>,
    /// From before the first of them was written.
    mark: Cell<LogMark>,
    is_running: Cell<bool>,
}

impl Acceptor {
    /// Gives an answer once everything that was written is durable. Answers that arrive during a sync share the next
    /// one.
    fn tell_when_synced(self: &Rc<Self>, shard: &Rc<Shard>, mark: LogMark, waiter: Waiter) {
        let awaiting = &self.awaiting_sync;
        let is_first = {
            let mut waiters = awaiting.waiters.borrow_mut();
            waiters.push(waiter);
            waiters.len() == 1
        };
        if is_first {
            awaiting.mark.set(mark);
        }
        if !awaiting.is_running.replace(true) {
            let (acceptor, shard) = (Rc::clone(self), Rc::clone(shard));
            spawn(async move { acceptor.sync(&shard).await });
        }
    }

    /// Syncs until no answer waits.
    async fn sync(&self, shard: &Shard) {
        let awaiting = &self.awaiting_sync;
        loop {
            let mut waiters = awaiting.waiters.take();
            if waiters.is_empty() {
                awaiting.is_running.set(false);
                return;
            }
            let synced = synced(shard, awaiting.mark.get()).await;
            for Waiter { whom, answer } in waiters.drain(..) {
                whom.tell(synced.clone().map(|()| answer));
            }
        }
    }
}
