//! The verbs: what one node may ask of another's shard, each one entry of one table.
//!
//! An entry says by which number a verb is known on the wire, whether its requests are fenced (`fence.rs`), whether it
//! does no harm to handle one again, and what handles it.

use std::cell::OnceCell;
use std::future::Future;
use std::rc::{Rc, Weak};

use mutation::Located;
use replica::Shard;
use rpc::{Handler, RemoteError, RemoteErrorKind, Reply, Request};
use stdx::planted::{self, Bug};

use crate::Coordinator;
use crate::cas::Cas;
use crate::cas::acceptor;
use crate::cas::acceptor::PhaseCaller;
use crate::cas::message::PaxosRequest;
use crate::counter;
use crate::fence::Stamp;
use crate::message::{
    Malformed, PointCommand, ReadCommand, answer_of_digest, are_hints, decode_mutations, only_mutation,
};
use crate::service::{self, ReplicaError};
use crate::trace::{self, Trace, TraceId};
use crate::write::apply::{self, Origin, apply_at_once};
use crate::write::commit::Acknowledgement;

/// What is asked of a replica, by its number on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Verb {
    /// Apply mutations, and answer when they may be acknowledged.
    Mutate = 1,
    /// Read a stretch of a partition or of tokens.
    Read = 2,
    /// A phase of a conditional statement: `cas/message.rs`.
    Paxos = 4,
    /// Lead additions to counters: `counter.rs`.
    Add = 5,
    /// A turn in the queue of a contended partition, and its end: `contention.rs`.
    TakeTurn = 6,
    /// See [`Verb::TakeTurn`].
    EndTurn = 7,
    /// Note a logged batch.
    BatchStore = 17,
    /// Forget a logged batch.
    BatchRemove = 18,
    /// Whether a logged batch is still going to be finished.
    BatchKnown = 19,
    /// Take an operation on a partition, if its table's limit leaves room: `limits/rate.rs`.
    Admit = 20,
    /// What the writes of the sender have missed: `tombstones.rs`.
    Report = 21,
    /// Work on ranges of tokens: `near/message.rs`.
    Near = 24,
    /// How large partitions and rows are that are to be written to: `limits/large.rs`.
    Measure = 26,
}

/// Whether requests carry a stamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fence {
    Fenced,
    Free,
}

/// Whether a request that comes again on its connection is handled again.
///
/// What changes data runs once. That writes have timestamps and promises ballots is not enough: after a truncation a
/// repeated write would bring its row back. Additions would count twice, and a batch would be noted again after it has
/// ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Repeat {
    Once,
    Harmless,
}

type Handle = fn(&Rc<Coordinator>, &Request<'_>, Stamp) -> Reply;

struct Entry {
    verb: Verb,
    fence: Fence,
    repeat: Repeat,
    handle: Handle,
}

const fn entry(verb: Verb, fence: Fence, repeat: Repeat, handle: Handle) -> Entry {
    Entry {
        verb,
        fence,
        repeat,
        handle,
    }
}

const VERBS: [Entry; 13] = [
    entry(Verb::Mutate, Fence::Fenced, Repeat::Once, mutate),
    entry(Verb::Read, Fence::Fenced, Repeat::Harmless, read),
    entry(Verb::Paxos, Fence::Fenced, Repeat::Once, paxos),
    entry(Verb::Add, Fence::Fenced, Repeat::Once, add),
    entry(Verb::TakeTurn, Fence::Free, Repeat::Once, take_turn),
    entry(Verb::EndTurn, Fence::Free, Repeat::Harmless, end_turn),
    entry(Verb::BatchStore, Fence::Fenced, Repeat::Once, batch_store),
    entry(Verb::BatchRemove, Fence::Free, Repeat::Harmless, batch_remove),
    entry(Verb::BatchKnown, Fence::Free, Repeat::Harmless, batch_known),
    entry(Verb::Admit, Fence::Free, Repeat::Once, admit),
    entry(Verb::Report, Fence::Free, Repeat::Harmless, report),
    entry(Verb::Near, Fence::Fenced, Repeat::Harmless, near),
    entry(Verb::Measure, Fence::Free, Repeat::Harmless, measure),
];

/// One more than the highest number.
const NUMBERS: usize = Verb::Measure as usize + 1;

/// The entries by number.
static BY_NUMBER: [Option<Entry>; NUMBERS] = by_number();

const fn by_number() -> [Option<Entry>; NUMBERS] {
    let mut table = [const { None }; NUMBERS];
    let mut at = 0;
    while at < VERBS.len() {
        let Entry {
            verb,
            fence,
            repeat,
            handle,
        } = VERBS[at];
        let number = verb as usize;
        assert!(table[number].is_none(), "two verbs have one number");
        table[number] = Some(entry(verb, fence, repeat, handle));
        at += 1;
    }
    table
}

#[inline]
fn of_number(number: u16) -> Option<&'static Entry> {
    BY_NUMBER.get(usize::from(number))?.as_ref()
}

/// What this node does for coordinators elsewhere: the handler of the verbs of this crate. The coordinator holds the
/// `Rpc` that holds the handler.
#[derive(Default)]
pub struct ReplicaHandler(OnceCell<Weak<Coordinator>>);

impl Handler for ReplicaHandler {
    fn is_repeatable(&self, verb: u16) -> bool {
        of_number(verb).is_some_and(|entry| entry.repeat == Repeat::Harmless)
    }

    fn handle(&self, request: Request<'_>) -> Reply {
        // The handler is made before the coordinator, and asked when that is there.
        let coordinator = self.0.get_or_init(|| Rc::downgrade(&Coordinator::local()));
        let Some(coordinator) = coordinator.upgrade() else {
            return Reply::Err(RemoteError {
                kind: RemoteErrorKind::Refused,
                message: "the shard has ended".to_owned(),
            });
        };
        let Some(entry) = of_number(request.verb) else {
            return Reply::Err(RemoteError::unknown_verb(request.verb));
        };
        match request.trace {
            None => entry.answer(&coordinator, request),
            Some(id) => traced(&coordinator, entry, id, request),
        }
    }
}

impl Entry {
    #[inline]
    fn answer(&self, coordinator: &Rc<Coordinator>, mut request: Request<'_>) -> Reply {
        let mut stamp = Stamp::PRESENT;
        if self.fence == Fence::Fenced {
            match coordinator.context.pass(request.body) {
                Ok((body, its)) => (request.body, stamp) = (body, its),
                Err(refused) => return Reply::Err(refused),
            }
        }
        (self.handle)(coordinator, &request, stamp)
    }
}

/// Handles a request with a trace of this replica's own.
#[cold]
fn traced(coordinator: &Rc<Coordinator>, entry: &'static Entry, id: TraceId, request: Request<'_>) -> Reply {
    let trace = Trace::begin(id);
    trace.note(format!(
        "{:?} request received from {}",
        entry.verb,
        request.peer.address.ip()
    ));
    let coordinator = Rc::clone(coordinator);
    match trace.within(|| entry.answer(&coordinator, request)) {
        // A task of its own: it ends, and its steps are kept, though the caller gives up.
        Reply::Later(work) => {
            let done = runtime::spawn(runtime::preemptible(async move {
                let answer = trace.during(work).await;
                trace.note(match &answer {
                    Ok(_) => "Sending the answer".to_owned(),
                    Err(error) => format!("Sending an error: {}", error.message),
                });
                coordinator.traces.keep(trace);
                answer
            }));
            later(done)
        }
        reply => {
            match &reply {
                Reply::Err(error) => trace.note(format!("Sending an error: {}", error.message)),
                Reply::Taken => trace.note("The answer follows when the log allows it"),
                _ => trace.note("Sending the answer"),
            }
            coordinator.traces.keep(trace);
            reply
        }
    }
}

/// The error of a replica as its coordinator on another node receives it.
pub(crate) fn remote(error: ReplicaError) -> RemoteError {
    let kind = match error {
        ReplicaError::Overloaded(_) => RemoteErrorKind::Overloaded,
        ReplicaError::TooLarge(_) | ReplicaError::Malformed(_) => RemoteErrorKind::Rejected,
        // To a coordinator, a full disk is a replica that cannot do it now.
        ReplicaError::UnknownTable(_)
        | ReplicaError::NotHere(_)
        | ReplicaError::CannotLead(_)
        | ReplicaError::DiskFull(_) => RemoteErrorKind::Refused,
        ReplicaError::Stale(_) => RemoteErrorKind::Stale,
        ReplicaError::NotIndexed(_) => RemoteErrorKind::NotIndexed,
        ReplicaError::Log(_) | ReplicaError::Read(_) | ReplicaError::Partial(_) => RemoteErrorKind::Failed,
    };
    RemoteError {
        kind,
        message: error.to_string(),
    }
}

fn malformed(error: Malformed) -> Reply {
    Reply::Err(remote(error.into()))
}

#[inline]
fn later(answer: impl Future<Output = Result<Vec<u8>, RemoteError>> + 'static) -> Reply {
    Reply::Later(Box::pin(answer))
}

fn mutate(coordinator: &Rc<Coordinator>, request: &Request<'_>, stamp: Stamp) -> Reply {
    if let Err(refused) = coordinator.hints.admit(request.body) {
        return Reply::Err(refused);
    }
    if let Err(refused) = coordinator.context.admit_growth(request.body) {
        return Reply::Err(remote(refused));
    }
    let shard = &coordinator.context.shard;
    // The node that hands over hints forgets them with this answer. If a deletion is among them, the other nodes may
    // forget it then.
    let is_durable = are_hints(request.body) && !planted::is_planted(Bug::UnsyncedHint);
    if let Some(only) = only_mutation(request.body).filter(|_| !is_durable) {
        match apply_at_once(shard, only, Origin::Peer, stamp) {
            Ok(Some(logged)) => {
                let whom = Acknowledgement::Peer(request.responder());
                coordinator.writes.acknowledge_committed(logged.into(), whom);
                return Reply::Taken;
            }
            Ok(None) => {}
            Err(error) => return Reply::Err(remote(error)),
        }
    }
    let shard = Rc::clone(shard);
    match decode_mutations(request.body) {
        Ok((mutations, all_or_nothing)) => later(async move {
            let located: Vec<Located<'_>> = mutations.iter().map(mutation::Addressed::located).collect();
            let applied = apply::apply(&shard, &located, all_or_nothing, Origin::Peer, stamp).await;
            applied.map_err(remote)?;
            if is_durable {
                let synced = shard.log.sync().await;
                synced.map_err(|e| remote(ReplicaError::Log(e.to_string())))?;
            }
            Ok(Vec::new())
        }),
        Err(e) => malformed(e),
    }
}

fn add(coordinator: &Rc<Coordinator>, request: &Request<'_>, stamp: Stamp) -> Reply {
    let coordinator = Rc::clone(coordinator);
    match counter::decode_additions(request.body) {
        Ok((level, additions)) => later(async move {
            coordinator.context.admit_additions(&additions).map_err(remote)?;
            let deadline = runtime::now() + coordinator.context.timeouts().counter;
            // Runs in its own task: even if the caller gives up, the other replicas are sent what this one has added,
            // or it is kept as a hint.
            let led = async move {
                coordinator
                    .counters
                    .lead(additions, level, deadline, Origin::Peer, stamp)
                    .await
            };
            let led = runtime::spawn(trace::carried(led));
            led.await.map(|result| counter::encode_answer(&result)).map_err(remote)
        }),
        Err(e) => malformed(e),
    }
}

fn read(coordinator: &Rc<Coordinator>, request: &Request<'_>, stamp: Stamp) -> Reply {
    if let Some(point) = PointCommand::decode(request.body).filter(|point| point.digest_only)
        && let Some(digest) = coordinator.reads.digest_at_once(&point, stamp)
    {
        return Reply::Now(answer_of_digest(digest));
    }
    let shard: Rc<Shard> = Rc::clone(&coordinator.context.shard);
    match ReadCommand::decode(request.body) {
        Ok(command) => later(async move {
            let table = command.table;
            let answer = service::read(&shard, command, stamp).await.map_err(remote)?;
            Ok(answer.encode(table))
        }),
        Err(e) => malformed(e),
    }
}

fn paxos(coordinator: &Rc<Coordinator>, request: &Request<'_>, stamp: Stamp) -> Reply {
    let PaxosRequest { table, key, phase } = match PaxosRequest::decode(request.body) {
        Ok(request) => request,
        Err(e) => return malformed(e),
    };
    let whom = || PhaseCaller::Peer(request.responder(), table);
    match acceptor::handle(&coordinator.cas, (table, key), &phase, stamp, whom) {
        None => Reply::Taken,
        Some(answering) => later(async move {
            let answer = answering.await.map_err(remote)?;
            Ok(answer.encode(table))
        }),
    }
}

fn take_turn(_: &Rc<Coordinator>, request: &Request<'_>, _: Stamp) -> Reply {
    let body = request.body.to_vec();
    later(async move {
        let turn = Cas::answer_take_turn(&body).await;
        turn.map_err(|e| remote(e.into()))
    })
}

fn end_turn(_: &Rc<Coordinator>, request: &Request<'_>, _: Stamp) -> Reply {
    Cas::answer_end_turn(request.body);
    Reply::None
}

fn near(coordinator: &Rc<Coordinator>, request: &Request<'_>, _: Stamp) -> Reply {
    match coordinator.near.answer(request.body, request.deadline) {
        Some(answer) => later(async move { Ok(answer.await) }),
        None => Reply::Err(RemoteError::failed(
            "this node does not do such work near its data".to_owned(),
        )),
    }
}

fn batch_store(coordinator: &Rc<Coordinator>, request: &Request<'_>, _: Stamp) -> Reply {
    let (batches, body) = (Rc::clone(&coordinator.batches), request.body.to_vec());
    later(async move {
        let held = batches.hold(&body).await;
        held.map(|()| Vec::new()).map_err(remote)
    })
}

fn batch_remove(coordinator: &Rc<Coordinator>, request: &Request<'_>, _: Stamp) -> Reply {
    match coordinator.batches.release(request.body) {
        Ok(()) => Reply::Now(Vec::new()),
        Err(e) => Reply::Err(remote(e)),
    }
}

fn batch_known(coordinator: &Rc<Coordinator>, request: &Request<'_>, _: Stamp) -> Reply {
    match coordinator.batches.knows(request.body) {
        Ok(is_known) => Reply::Now(vec![u8::from(is_known)]),
        Err(e) => Reply::Err(remote(e)),
    }
}

fn report(coordinator: &Rc<Coordinator>, request: &Request<'_>, _: Stamp) -> Reply {
    let from = topology::HostId(request.peer.host_id);
    match coordinator.tombstones.take_report(from, request.body) {
        Ok(()) => Reply::Now(Vec::new()),
        Err(e) => malformed(e),
    }
}

fn admit(coordinator: &Rc<Coordinator>, request: &Request<'_>, _: Stamp) -> Reply {
    match coordinator.limits.admit_for(request.body) {
        Ok(answer) => Reply::Now(answer),
        Err(e) => malformed(e),
    }
}

fn measure(coordinator: &Rc<Coordinator>, request: &Request<'_>, _: Stamp) -> Reply {
    match coordinator.limits.measure_for(request.body) {
        Ok(answer) => Reply::Now(answer),
        Err(e) => malformed(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_is_found_by_its_number_and_no_other_number_is_one() {
        for known in &VERBS {
            let found = of_number(known.verb as u16).expect("a verb of the table");
            assert_eq!(found.verb, known.verb);
        }
        let numbers = (0..=u16::MAX).filter(|number| of_number(*number).is_some());
        assert_eq!(numbers.count(), VERBS.len());
    }

    #[test]
    fn what_changes_data_is_fenced_and_is_not_handled_twice() {
        for verb in [Verb::Mutate, Verb::Paxos, Verb::Add, Verb::BatchStore] {
            let entry = of_number(verb as u16).expect("a verb of the table");
            assert_eq!((entry.fence, entry.repeat), (Fence::Fenced, Repeat::Once), "{verb:?}");
        }
    }
}
