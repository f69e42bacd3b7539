//! The participant's side: the handler of this crate's verbs, and a session for each repair.
//!
//! A session begins with `open`. It ends when the repair is closed, when no request has come for [`SESSION_IDLE`], when
//! an operator aborts its task, and when the table is dropped, truncated or altered or a tablet leaves. Requests of a
//! repair that has no session are refused: what a node had compared before it lost power may be lost, so the repair
//! begins again.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use commitlog::LogMark;
use mutation::counting::Counting;
use replica::Shard;
use rpc::{Caller, Handler, Later, RemoteError, RemoteErrorKind, Reply, Request};
use runtime::{Group, Instant, Notify, Semaphore};
use schema::TableId;
use tasks::{Origin, Task};
use uuid::Uuid;

use crate::error::{Refusal, Trouble};
use crate::kinds;
use crate::marking::{Marking, is_usable};
use crate::message::{
    self, Apply, Compare, Exchange, Given, Malformed, MarkOpen, MarkStep, Open, Opened, RepairId, UnitHashes,
    begin_answer, decode_equal,
};
use crate::part::{Part, packed};
use crate::repairs::Repairs;
use crate::request::{self, RepairRequest};
use crate::side::Side;
use crate::walk::Walk;

/// How long a repair stays open without a request.
pub const SESSION_IDLE: Duration = Duration::from_mins(1);
/// Most repairs in which a shard takes part at once.
pub const SESSIONS_MAX: usize = 32;
/// Most requests that a shard works on at once, of all repairs. Others wait in line.
pub(crate) const SERVING_MAX: usize = 8;
/// Most requests of one repair that run or wait.
const REQUESTS_MAX: usize = 64;
/// Bytes of rows that a shard reads for one answer to [`Exchange`], about.
pub(crate) const EXCHANGE_BYTES_MAX: usize = 2 << 20;
/// How long a repair without progress keeps memtables and sstables that others have replaced; a session looks every
/// [`LOOK_PERIOD`].
pub(crate) const WALK_IDLE: Duration = Duration::from_secs(1);
/// How often a session looks whether it should end.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// A repair in which this shard takes part.
pub(crate) struct Session {
    id: RepairId,
    caller: (Uuid, u32),
    side: Side,
    /// What it marks, if it does.
    marking: Option<Marking>,
    mark: LogMark,
    asked_at: Cell<Instant>,
    requests: Cell<usize>,
    /// One comparison at a time, in the order of the requests: each continues the walk of the one before.
    comparing: Semaphore,
    walk: RefCell<Option<Walk>>,
    compared_at: Cell<Instant>,
    ended: RefCell<Option<Refusal>>,
    changed: Notify,
}

/// Answers the verbs of this crate on this shard, once the shard's tables are open.
#[must_use]
pub fn handler() -> Rc<dyn Handler> {
    Rc::new(ParticipantHandler)
}

struct ParticipantHandler;

impl Handler for ParticipantHandler {
    fn is_repeatable(&self, _verb: u16) -> bool {
        // Merging a write twice counts once, and the rest changes nothing that counts.
        true
    }

    fn handle(&self, request: Request<'_>) -> Reply {
        let repairs = Repairs::local();
        repairs.count(|metrics| metrics.received_bytes += request.body.len() as u64);
        let handled = match request.verb {
            message::OPEN => Open::decode(request.body).map(|open| open_session(&open, request.peer)),
            message::MARK => MarkStep::decode(request.body).map(|step| mark(step, request.peer)),
            message::COMPARE => Compare::decode(request.body).map(|compare| {
                if compare.buckets.is_empty() {
                    return keep_open(compare.id, request.peer);
                }
                serve(compare.id, request.peer, async move |session: &Session| {
                    session.compare(&compare).await
                })
            }),
            message::EXCHANGE => Exchange::decode(request.body).map(|exchange| {
                serve(exchange.id, request.peer, async move |session: &Session| {
                    session.exchange(&exchange).await
                })
            }),
            message::APPLY => apply(request.body, request.peer),
            message::CLOSE => RepairId::decode(request.body).map(|id| close(id, request.peer)),
            message::WANT => RepairRequest::decode(request.body).map(request::serve),
            message::EQUAL => decode_equal(request.body).map(|(equal, mode)| {
                repairs.note_equal(equal, mode);
                Reply::Now(begin_answer())
            }),
            verb => return Reply::Err(RemoteError::unknown_verb(verb)),
        };
        handled.unwrap_or_else(|malformed| Reply::Err(rejected(malformed)))
    }
}

fn rejected(malformed: Malformed) -> RemoteError {
    RemoteError {
        kind: RemoteErrorKind::Rejected,
        message: malformed.0.to_owned(),
    }
}

fn refused(refusal: &Refusal) -> Reply {
    Reply::Now(refusal.encode())
}

/// Begins a session, or says that it has begun.
fn open_session(open: &Open, caller: &Caller) -> Reply {
    let caller = (caller.host_id, caller.shard);
    if let Some(session) = Repairs::local().session_of(open.id, caller) {
        session.asked_at.set(runtime::now());
        return Reply::Now(begin_answer());
    }
    match prepare(open) {
        Ok(prepared) => {
            prepared.begin(open.id, caller, None);
            Reply::Now(begin_answer())
        }
        Err(reply) => reply,
    }
}

/// A session that can begin.
struct Prepared {
    side: Side,
    task: Task,
    mark: LogMark,
}

/// What a session works with, where nothing speaks against it; else the answer that says so.
fn prepare(open: &Open) -> Result<Prepared, Reply> {
    let repairs = Repairs::local();
    let refused = |refusal: &Refusal| Err(refused(refusal));
    let Some(shard) = runtime::local::<Shard>() else {
        return Err(Reply::Err(RemoteError {
            kind: RemoteErrorKind::Refused,
            message: "the node is starting".to_owned(),
        }));
    };
    let Some(store) = shard.store(open.table) else {
        return refused(&Refusal::UnknownTable);
    };
    let truncated_at = store.truncated_at.get();
    if open.truncated_at != truncated_at || store.truncation() > truncated_at {
        return refused(&Refusal::Truncated);
    }
    if repairs.is_closed(open.id) {
        return refused(&Refusal::Ended);
    }
    if repairs.sessions.borrow().len() >= SESSIONS_MAX {
        return refused(&Refusal::Overloaded);
    }
    let counting = Counting {
        now: open.now,
        gc_before: open.gc_before,
        is_exact: false,
    };
    let spec = replica::kinds::of_range(&kinds::SERVE_REPAIR, &store, open.range, 0);
    let task = shard.tasks().start(spec, &Origin::Node);
    task.begin();
    let mut side = Side::new(&shard, &store, open.range, counting, task.control());
    side.counts_bytes = true;
    let checked = if side.columns == open.columns {
        side.check_whole()
    } else {
        Err(Trouble::SchemaDiffers)
    };
    if let Err(trouble) = checked {
        let refusal = Refusal::from(trouble);
        task.failed(&refusal.to_string());
        return refused(&refusal);
    }
    Ok(Prepared {
        side,
        task,
        mark: shard.log.mark(),
    })
}

impl Prepared {
    fn begin(self, id: RepairId, caller: (Uuid, u32), marking: Option<Marking>) {
        let repairs = Repairs::local();
        let session = Rc::new(Session {
            id,
            caller,
            mark: self.mark,
            side: self.side,
            marking,
            asked_at: Cell::new(runtime::now()),
            requests: Cell::new(0),
            comparing: Semaphore::new(1),
            walk: RefCell::default(),
            compared_at: Cell::new(runtime::now()),
            ended: RefCell::default(),
            changed: Notify::new(),
        });
        repairs.sessions.borrow_mut().insert(id, session.clone());
        repairs.count(|metrics| metrics.serving += 1);
        drop(runtime::spawn_in(Group::BACKGROUND, session.live(repairs, self.task)));
    }
}

/// A step of a repair that marks sstables.
fn mark(step: MarkStep, caller: &Caller) -> Reply {
    match step {
        MarkStep::Open(open) => open_marking(open, caller),
        MarkStep::Settle(id) => serve(id, caller, async move |session: &Session| {
            session.settle().await?;
            session.marking()?.settle();
            Ok(begin_answer())
        }),
        // The answer was lost.
        MarkStep::Mark(mark) if Repairs::local().is_closed(mark.id) => Reply::Now(begin_answer()),
        MarkStep::Mark(mark) => serve(mark.id, caller, async move |session: &Session| {
            let range = (session.side.range.after, session.side.range.to);
            let marking = session.marking()?;
            session.side.check_whole()?;
            let marked = marking.mark(mark.id.0, range, mark.since, mark.at).await?;
            let repairs = Repairs::local();
            repairs.count(|metrics| metrics.marked_sstables += marked);
            repairs.note_closed(mark.id);
            session.end(Refusal::Ended);
            Ok(begin_answer())
        }),
    }
}

/// Begins a session that marks, unless this node's record differs.
fn open_marking(open: MarkOpen, caller: &Caller) -> Reply {
    let (id, caller) = (open.open.id, (caller.host_id, caller.shard));
    let answer = |is_open: bool, last_mark: i64| {
        let mut answer = begin_answer();
        Opened { is_open, last_mark }.put(&mut answer);
        answer
    };
    let of_session = move || {
        let session = Repairs::local().session_of(id, caller)?;
        session.asked_at.set(runtime::now());
        let before = session.marking.as_ref()?.before;
        Some(answer(true, before.map_or(0, |record| record.at)))
    };
    if let Some(answer) = of_session() {
        return Reply::Now(answer);
    }
    let mut prepared = match prepare(&open.open) {
        Ok(prepared) => prepared,
        Err(reply) => return reply,
    };
    let beginning = async move {
        prepared.side.prepare_to_mark(open.is_full);
        let marking = match Marking::begin(&prepared.side, open.is_full, open.replicas).await {
            Ok(marking) => marking,
            Err(trouble) => {
                let refusal = Refusal::from(trouble);
                prepared.task.failed(&refusal.to_string());
                return Ok(refusal.encode());
            }
        };
        // This request may have arrived twice.
        if let Some(answer) = of_session() {
            prepared.task.done();
            return Ok(answer);
        }
        let before = marking.before;
        let last_mark = before.map_or(0, |record| record.at);
        if !open.is_full && !is_usable(before.as_ref(), open.session, open.replicas) {
            prepared.task.done();
            return Ok(answer(false, last_mark));
        }
        if let Err(trouble) = prepared.side.check_whole() {
            let refusal = Refusal::from(trouble);
            prepared.task.failed(&refusal.to_string());
            return Ok(refusal.encode());
        }
        let skipped = marking.skipped_bytes;
        Repairs::local().count(|metrics| metrics.skipped_bytes += skipped);
        prepared.begin(id, caller, Some(marking));
        Ok(answer(true, last_mark))
    };
    Reply::Later(Box::pin(runtime::spawn_in(Group::BACKGROUND, beginning)))
}

/// Keeps the session of a repair open; does not wait for other requests.
fn keep_open(id: RepairId, caller: &Caller) -> Reply {
    match Repairs::local().session_of(id, (caller.host_id, caller.shard)) {
        Some(session) => {
            session.asked_at.set(runtime::now());
            Reply::Now(begin_answer())
        }
        None => refused(&Refusal::Ended),
    }
}

/// Ends a session, when everything that its repair relies on is still so.
fn close(id: RepairId, caller: &Caller) -> Reply {
    if Repairs::local().is_closed(id) {
        // The answer was lost.
        return Reply::Now(begin_answer());
    }
    serve(id, caller, async move |session: &Session| {
        session.settle().await?;
        Repairs::local().note_closed(id);
        session.end(Refusal::Ended);
        Ok(begin_answer())
    })
}

/// Writes mutations, once each is checked.
fn apply(body: &[u8], caller: &Caller) -> Result<Reply, Malformed> {
    let apply = Apply::decode(body)?;
    let Some(session) = Repairs::local().session_of(apply.id, (caller.host_id, caller.shard)) else {
        return Ok(refused(&Refusal::Ended));
    };
    if let Err(trouble) = session.side.check() {
        return Ok(refused(&trouble.into()));
    }
    for bytes in &apply.mutations {
        session.side.token_of_peers(bytes)?;
    }
    let mutations: Vec<Vec<u8>> = apply.mutations.iter().map(|bytes| bytes.to_vec()).collect();
    Ok(serve(apply.id, caller, async move |session: &Session| {
        let mutations: Vec<&[u8]> = mutations.iter().map(|bytes| &bytes[..]).collect();
        let units = session.side.write(&mutations).await?;
        let mut answer = begin_answer();
        if session.marking.is_some() {
            stdx::vint::put_unsigned(&mut answer, units);
        }
        Ok(answer)
    }))
}

/// Does a session's work as a task in the background: a caller that gives up does not stop it half-way.
fn serve(
    id: RepairId,
    caller: &Caller,
    work: impl AsyncFnOnce(&Session) -> Result<Vec<u8>, Trouble> + 'static,
) -> Reply {
    let repairs = Repairs::local();
    let Some(session) = repairs.session_of(id, (caller.host_id, caller.shard)) else {
        return refused(&Refusal::Ended);
    };
    if session.requests.get() >= REQUESTS_MAX {
        return Reply::Err(overloaded("too many requests of the repair wait"));
    }
    let under_way = UnderWay::of(&session);
    let work = async move {
        let session = &under_way.0;
        let _permit = repairs.serving.acquire(1).await;
        if let Some(refusal) = &*session.ended.borrow() {
            return Ok(refusal.encode());
        }
        let answer = match work(session).await {
            Ok(answer) => answer,
            Err(Trouble::Full(reason)) => return Err(overloaded(&reason)),
            Err(trouble) => {
                let refusal = Refusal::from(trouble);
                session.end(refusal.clone());
                refusal.encode()
            }
        };
        repairs.count(|metrics| metrics.sent_bytes += answer.len() as u64);
        Ok(answer)
    };
    let answer: Later = Box::pin(runtime::spawn_in(Group::BACKGROUND, work));
    Reply::Later(answer)
}

fn overloaded(reason: &str) -> RemoteError {
    RemoteError {
        kind: RemoteErrorKind::Overloaded,
        message: reason.to_owned(),
    }
}

/// A request of a session that runs or waits.
struct UnderWay(Rc<Session>);

impl UnderWay {
    fn of(session: &Rc<Session>) -> Self {
        session.requests.set(session.requests.get() + 1);
        Self(Rc::clone(session))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.requests.set(self.0.requests.get() - 1);
        self.0.asked_at.set(runtime::now());
    }
}

impl Repairs {
    /// The session of a repair that this caller has opened.
    fn session_of(&self, id: RepairId, caller: (Uuid, u32)) -> Option<Rc<Session>> {
        let sessions = self.sessions.borrow();
        sessions.get(&id).filter(|session| session.caller == caller).cloned()
    }
}

impl Session {
    /// Says that nothing more is done, and why.
    fn end(&self, refusal: Refusal) {
        self.ended.borrow_mut().get_or_insert(refusal);
        self.changed.notify_all();
    }

    /// Makes everything durable that was written here, when all that the repair relies on is still so.
    async fn settle(&self) -> Result<(), Trouble> {
        self.side.check_whole()?;
        self.side.persist(self.mark).await?;
        self.side.sync().await?;
        self.side.check_whole()
    }

    /// What it marks.
    fn marking(&self) -> Result<&Marking, Trouble> {
        let marking = self.marking.as_ref();
        marking.ok_or_else(|| Trouble::Unmarked("the repair did not begin as one that marks".to_owned()))
    }

    fn is_idle(&self) -> bool {
        self.requests.get() == 0 && runtime::now().saturating_duration_since(self.asked_at.get()) >= SESSION_IDLE
    }

    /// Gives up the walk when the next comparison does not come: an exchange may take long.
    fn drop_idle_walk(&self) {
        if runtime::now().saturating_duration_since(self.compared_at.get()) >= WALK_IDLE {
            self.walk.take();
        }
    }

    /// The life of the session.
    async fn live(self: Rc<Self>, repairs: Rc<Repairs>, task: Task) {
        let refusal = loop {
            let changed = self.changed.notified();
            if let Some(refusal) = &*self.ended.borrow() {
                break refusal.clone();
            }
            if let Err(trouble) = self.side.check() {
                break trouble.into();
            }
            self.drop_idle_walk();
            if self.is_idle() {
                let reason = "the other node has asked for nothing for too long";
                break Refusal::Failed(reason.to_owned());
            }
            // Late or changed, it looks again.
            let _ = runtime::timeout(LOOK_PERIOD, changed).await;
        };
        self.end(refusal.clone());
        repairs.sessions.borrow_mut().remove(&self.id);
        let ended = match refusal {
            Refusal::Ended => Ok(()),
            refusal => Err(refusal),
        };
        repairs.count(|metrics| {
            metrics.serving -= 1;
            metrics.failed_serving += u64::from(ended.is_err());
        });
        task.end(&ended);
    }

    async fn compare(&self, compare: &Compare) -> Result<Vec<u8>, Trouble> {
        let _turn = self.comparing.acquire(1).await;
        let differs = self.side.compare(&compare.from, &compare.buckets, &self.walk).await?;
        self.compared_at.set(runtime::now());
        let mut answer = begin_answer();
        answer.extend(differs.into_iter().map(u8::from));
        Ok(answer)
    }

    /// Hashes of units by stretch, as many as fit.
    async fn exchange(&self, exchange: &Exchange) -> Result<Vec<u8>, Trouble> {
        let stretches: Vec<_> = exchange.stretches.iter().map(|one| (&one.from, &one.to)).collect();
        let gathered = self.side.gather(&stretches, EXCHANGE_BYTES_MAX).await?;
        let mut answer = begin_answer();
        for (stretch, gathered) in exchange.stretches.iter().zip(gathered) {
            let mut given = select(self.side.table.id, (stretch, exchange.has_others), &gathered.parts);
            given.end = gathered.end;
            given.put(&mut answer);
            runtime::give_way().await;
        }
        Ok(answer)
    }
}

/// Finds which of the units in the request are among these, and the units among these that the request lacks. Hidden
/// deletions are given too if they may hide what another replica shows: a unit that is not here, or one of another
/// participant.
fn select(table: TableId, (stretch, has_others): (&UnitHashes, bool), parts: &[Part]) -> Given {
    let known: BTreeMap<u128, usize> = stretch
        .hashes
        .iter()
        .enumerate()
        .map(|(at, hash)| (*hash, at))
        .collect();
    let mut has = vec![0; stretch.hashes.len().div_ceil(8)];
    for hash in parts.iter().flat_map(Part::hashes) {
        if let Some(at) = known.get(&hash) {
            has[at / 8] |= 1 << (at % 8);
        }
    }
    let given = Given {
        end: None,
        has,
        mutations: Vec::new(),
    };
    let is_hidden_wanted = has_others || (0..stretch.hashes.len()).any(|at| !given.has(at));
    let picked = parts
        .iter()
        .map(|part| part.pick(&|hash| !known.contains_key(&hash), is_hidden_wanted));
    let mutations = picked
        .filter(|block| !block.is_empty())
        .map(|block| packed(table, &block));
    Given {
        mutations: mutations.collect(),
        ..given
    }
}
