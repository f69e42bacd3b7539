//! The answering side: listeners, hellos, and one task for each connection that another node made.
//!
//! Whichever shard accepts a connection reads its hello and hands it to the shard that the hello names. There the
//! reader gives each request to the handler, in the order they came. What the handler knows at once goes to the outbox
//! without a task; what takes longer runs as a task, of which a connection has a bounded number. Beyond that, or when
//! the other end does not read its answers, the connection is not read, and nothing else suffers.
//!
//! A request runs once, unless its verb may be repeated: a call's id is a slot and the slot's generation, which only
//! grows, so a connection knows a request that it has had by one number for each slot.

use crate::Rpc;
use crate::calls::Ticket;
use crate::channel::{Channel, DetachedChannel, Input};
use crate::clock::Clock;
use crate::error::{Ended, RemoteError, RemoteErrorKind};
use crate::frame::{Header, Kind, TraceId};
use crate::hello::{self, Answer, Hello, Lane, Proof};
use crate::outbox::{Drain, Outbox, write};
use crate::parts::LongAnswers;
use crate::secret::{self, CODE_BYTES, Side};
use crate::tls::Tls;
use runtime::net::{TcpListener, TcpStream};
use runtime::{Instant, ShardId, Signal};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use stdx::planted::{self, Bug};
use uuid::Uuid;

/// A request of so many bytes is about many rows or values.
const LONG_REQUEST_BYTES: usize = 8 << 10;

/// Slots that a caller's calls may have: far above what its line and its limits allow.
const SLOTS_MAX: usize = 1 << 16;
/// Silent ping intervals after which a connection is given up: the other end pings after each.
const SILENT_INTERVALS: u32 = 4;

/// The shard of a node that calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// The node's identity, as it claims; with TLS it has shown one of the trusted certificates.
    pub host_id: Uuid,
    /// The shard of that node.
    pub shard: u32,
    /// Where its end of the connection is.
    pub address: SocketAddr,
    /// The features that both nodes have.
    pub features: Vec<String>,
}

/// A request, as the handler sees it.
pub struct Request<'a> {
    /// The caller.
    pub peer: &'a Rc<Caller>,
    /// What for.
    pub verb: u16,
    /// The rest.
    pub body: &'a [u8],
    /// From when on the answer is not awaited any more.
    pub deadline: Instant,
    /// The trace of the request that it is a part of.
    pub trace: Option<TraceId>,
    /// The answer will not be sent.
    pub is_one_way: bool,
    way_back: (&'a Rc<Rpc>, &'a Rc<Served>, u64),
}

impl Request<'_> {
    /// Takes over the answer: the holder of the result answers, if the handler has returned [`Reply::Taken`].
    #[must_use]
    pub fn responder(&self) -> Responder {
        let (rpc, served, id) = self.way_back;
        let bytes = self.body.len();
        served.handling.set(served.handling.get() + 1);
        served.handling_bytes.set(served.handling_bytes.get() + bytes);
        Responder {
            rpc: Rc::clone(rpc),
            served: Rc::clone(served),
            id: (!self.is_one_way).then_some(id),
            bytes,
        }
    }
}

/// The way back of one answer that needs no task. The request counts as one that runs until this is dropped. Cancels
/// and the deadline do not reach it: it is for what ends soon by itself.
pub struct Responder {
    rpc: Rc<Rpc>,
    served: Rc<Served>,
    /// None: it has been answered, or wants no answer.
    id: Option<u64>,
    bytes: usize,
}

impl Responder {
    /// Sends the answer.
    pub fn answer(mut self, answer: Result<Vec<u8>, RemoteError>) {
        if let Some(id) = self.id.take() {
            send_answer(&self.rpc, &self.served, id, answer);
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        let served = &self.served;
        served.handling.set(served.handling.get() - 1);
        served.handling_bytes.set(served.handling_bytes.get() - self.bytes);
        served.room.ring();
        if let Some(id) = self.id.take() {
            served.answer_error(id, RemoteErrorKind::Failed, "the request ended without an answer");
        }
    }
}

/// An answer that takes a while. It is dropped when its caller gives up, when its deadline passes and when the
/// connection ends, so what must not stop half-way is a task of its own.
pub type Later = Pin<Box<dyn Future<Output = Result<Vec<u8>, RemoteError>>>>;

/// What a handler does with a request.
pub enum Reply {
    /// The answer is known.
    Now(Vec<u8>),
    /// It will be.
    Later(Later),
    /// The request's [`Responder`] will send it.
    Taken,
    /// The answer is an error.
    Err(RemoteError),
    /// One-way messages have no answer; a request that gets none is answered with an error.
    None,
}

/// Answers requests, on one shard.
pub trait Handler {
    /// Looks at a request and answers it, or says what will. Runs on the connection's reader, so it should be short.
    fn handle(&self, request: Request<'_>) -> Reply;

    /// Whether it does no harm to answer a request of this verb again, however much later. One of another verb that
    /// comes again on its connection is not handled. Messages have no such guard.
    fn is_repeatable(&self, verb: u16) -> bool {
        let _ = verb;
        false
    }
}

/// A connection that another node made to this shard.
pub(crate) struct Served {
    pub(crate) caller: Rc<Caller>,
    pub(crate) lane: Lane,
    pub(crate) outbox: Rc<Outbox>,
    long_answers: Rc<LongAnswers>,
    /// The reader waits here for room.
    room: Signal,
    /// The reader waits for tasks, not for the other end.
    is_busy: Cell<bool>,
    running: RefCell<Running>,
    /// By slot of the caller: the generation of the last call that may not be repeated.
    taken: RefCell<Vec<Option<u32>>>,
    pub(crate) handling: Cell<usize>,
    pub(crate) handling_bytes: Cell<usize>,
    pub(crate) requests: Cell<u64>,
    pub(crate) expired: Cell<u64>,
    pub(crate) repeated: Cell<u64>,
}

/// Requests that run as tasks, by slot.
#[derive(Default)]
struct Running {
    slots: Vec<Slot>,
    free: Vec<usize>,
}

#[derive(Default)]
struct Slot {
    id: u64,
    is_used: bool,
    is_cancelled: bool,
    waker: Option<Waker>,
}

impl Drain for Served {
    fn drained(&self) {
        self.room.ring();
        self.long_answers.drained();
    }
}

impl Served {
    /// Ends the connection.
    pub(crate) fn close(&self) {
        self.outbox.close(Ended::Closed);
        self.drained();
        for slot in &mut self.running.borrow_mut().slots {
            slot.cancel();
        }
    }

    fn cancel(&self, id: u64) {
        let mut running = self.running.borrow_mut();
        if let Some(slot) = running.slots.iter_mut().find(|slot| slot.is_used && slot.id == id) {
            slot.cancel();
        }
        if self.long_answers.bytes() > 0 {
            self.long_answers.cancel(id);
        }
    }

    fn take_slot(&self, id: u64) -> usize {
        let mut running = self.running.borrow_mut();
        let slot = running.free.pop().unwrap_or(running.slots.len());
        if slot == running.slots.len() {
            running.slots.push(Slot::default());
        }
        running.slots[slot] = Slot {
            id,
            is_used: true,
            ..Slot::default()
        };
        slot
    }

    /// Whether a request comes for the first time.
    fn take(&self, id: u64) -> bool {
        let Ticket { slot, generation } = Ticket::from_id(id);
        let slot = slot as usize;
        let mut taken = self.taken.borrow_mut();
        if slot >= SLOTS_MAX {
            return false;
        }
        if taken.len() <= slot {
            taken.resize(slot + 1, None);
        }
        // Generations wrap.
        let is_new = taken[slot].is_none_or(|last| generation.wrapping_sub(last).cast_signed() > 0);
        if is_new {
            taken[slot] = Some(generation);
        }
        is_new || planted::is_planted(Bug::RepeatedRequest)
    }

    fn answer_error(&self, id: u64, kind: RemoteErrorKind, message: &str) {
        let error = RemoteError {
            kind,
            message: message.to_owned(),
        };
        self.outbox.push(Header::plain(Kind::Error, id), &error.encode());
    }
}

impl Slot {
    fn cancel(&mut self) {
        self.is_cancelled = true;
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// Accepts connections until the listener closes.
pub(crate) async fn accept(rpc: Rc<Rpc>, listener: TcpListener, is_tls: bool) {
    loop {
        let accepted = rpc.until_stopped(listener.accept()).await;
        match accepted {
            None => return,
            Some(Ok(stream)) => drop(runtime::spawn(greet(rpc.clone(), stream, is_tls))),
            Some(Err(error)) => {
                // Out of file descriptors, or a node that gave up.
                if rpc.accept_failures.admits() {
                    log::warn!("cannot accept a connection from a node: {error}");
                }
                runtime::sleep(Duration::from_millis(100)).await;
            }
        }
        if runtime::should_yield() {
            runtime::yield_now().await;
        }
    }
}

/// Welcomes a connection as long as it may have a slot.
async fn greet(rpc: Rc<Rpc>, stream: TcpStream, is_tls: bool) {
    let peer = stream.peer_addr().ok();
    let slot = rpc.hellos.enter(peer.is_some_and(|peer| rpc.is_member(peer.ip())));
    let welcomed = slot.unless_needed(welcome(rpc.clone(), stream, is_tls)).await;
    if welcomed.is_none() && rpc.hellos_closed.admits() {
        let address = peer.map_or_else(|| "?".to_owned(), |address| address.to_string());
        log::warn!(
            "closed the connection from {address}, which has not identified itself: other connections need its slot"
        );
    }
}

/// Reads the hello of a new connection, and hands the connection to the shard it is for.
async fn welcome(rpc: Rc<Rpc>, stream: TcpStream, is_tls: bool) {
    let address = stream
        .peer_addr()
        .map_or_else(|_| "?".to_owned(), |address| address.to_string());
    let accepted = rpc.tls.borrow().as_ref().filter(|_| is_tls).map(Tls::accept);
    let session = match accepted {
        Some(accepted) => match accepted {
            Ok(session) => Some(session),
            Err(ended) => {
                log::warn!("closed the connection from {address}: {ended}");
                return;
            }
        },
        None => None,
    };
    let mut channel = Channel::new(stream, session);
    let heard = runtime::timeout(rpc.config.limits.hello_timeout, async {
        channel.handshake().await?;
        let decode = |message: &[u8]| Ok((Hello::decode(message)?, message.to_vec()));
        let (hello, message) = channel.receive_message(decode, true).await?;
        let shown = rpc.challenge(&mut channel, &hello, &message).await?;
        Ok((hello, shown))
    })
    .await;
    let (hello, shown) = match heard.unwrap_or(Err(Ended::Silent)) {
        Ok(heard) => heard,
        Err(ended) => {
            if rpc.hellos_closed.admits() {
                log::warn!("closed the connection from {address}: {ended}");
            }
            if matches!(ended, Ended::Tls(_)) {
                channel.linger().await;
            }
            return;
        }
    };
    let answer = match shown {
        Ok(code) => rpc.answer(&hello, code),
        Err(reason) => Answer::Refused(reason.to_owned()),
    };
    if let Answer::Refused(reason) = &answer {
        refuse(&rpc, channel, reason).await;
        return;
    }
    let target = ShardId(hello.target_shard);
    let channel = channel.detach();
    // This task ends when it has given the connection away, so it does not wait for the message.
    drop(runtime::submit_to(target, move || {
        if let Some(rpc) = runtime::local::<Rpc>() {
            rpc.take_over(channel, hello, answer);
        }
    }));
}

/// Says no.
async fn refuse(rpc: &Rpc, mut channel: Channel, reason: &str) {
    log::warn!(
        "a connection from {} is refused: {reason}",
        channel
            .peer_addr()
            .map_or_else(|_| "?".to_owned(), |address| address.to_string())
    );
    let answer = Answer::Refused(reason.to_owned()).encode();
    let sent = runtime::timeout(rpc.config.limits.hello_timeout, channel.send(answer)).await;
    if matches!(sent, Ok(Ok(()))) {
        channel.linger().await;
    }
}

impl Rpc {
    /// Has the caller show that it knows the secret, where there is one: this end's code then, or why the caller is
    /// refused.
    async fn challenge(
        &self,
        channel: &mut Channel,
        hello: &Hello,
        message: &[u8],
    ) -> Result<Result<Option<[u8; CODE_BYTES]>, &'static str>, Ended> {
        let Some(secret) = &self.config.join_secret else {
            return Ok(Ok(None));
        };
        if !hello.has_secret {
            return Ok(Err(
                "this cluster has a join_secret, and the node that connects has none: give all nodes the same one",
            ));
        }
        let challenge = secret::nonce();
        channel.send(Answer::Challenge(challenge).encode()).await?;
        let Proof { nonce, code } = channel.receive_message(Proof::decode, true).await?;
        if !secret.is_code(&code, Side::Caller, &challenge, &nonce, message) {
            return Ok(Err(
                "the node that connects has another join_secret than this one: give all nodes the same one",
            ));
        }
        Ok(Ok(Some(secret.code(Side::Callee, &challenge, &nonce, message))))
    }

    fn answer(&self, hello: &Hello, own_code: Option<[u8; CODE_BYTES]>) -> Answer {
        let host = hello::Host {
            cluster_name: &self.config.cluster_name,
            host_id: self.config.host_id,
            shards: runtime::shard_count(),
            features: &self.features,
            compression: &self.config.compression,
        };
        let mut answer = hello::answer(hello, &host);
        if let Answer::Accepted { code, .. } = &mut answer {
            *code = own_code;
        }
        answer
    }

    /// Serves a connection whose hello another shard has heard.
    fn take_over(self: Rc<Self>, channel: DetachedChannel, hello: Hello, answer: Answer) {
        let channel = channel.attach();
        drop(runtime::spawn(async move {
            let Some(handler) = self.handler.clone() else {
                refuse(&self, channel, "this node answers no requests").await;
                return;
            };
            // Closed, as if the node were gone already: a refusal would say that the other may not come at all, and not
            // that it may try again.
            if self.stopped.get() {
                return;
            }
            if self.served.borrow().len() >= self.config.limits.connections_max {
                refuse(&self, channel, "this shard serves as many connections as it may").await;
                return;
            }
            // An error says that the other end is gone: it will connect again if it wants.
            let _ = serve(&self, channel, hello, answer, &*handler).await;
        }));
    }
}

async fn serve(
    rpc: &Rc<Rpc>,
    mut channel: Channel,
    hello: Hello,
    answer: Answer,
    handler: &dyn Handler,
) -> Result<(), Ended> {
    let address = channel.peer_addr()?;
    let limits = &rpc.config.limits;
    let began = runtime::now();
    runtime::timeout_at(began + limits.hello_timeout, channel.send(answer.encode()))
        .await
        .unwrap_or(Err(Ended::Silent))?;
    let Answer::Accepted {
        features, compression, ..
    } = answer
    else {
        unreachable!("refused connections are not handed over");
    };
    let outbox = Outbox::new(Clock::Answerer(began));
    let (mut input, half, wire) = channel.into_frames(rpc, &outbox, compression);
    let served = Rc::new(Served {
        caller: Rc::new(Caller {
            host_id: hello.source_host,
            shard: hello.source_shard,
            address,
            features,
        }),
        lane: hello.lane,
        outbox: outbox.clone(),
        long_answers: Rc::default(),
        room: Signal::default(),
        is_busy: Cell::new(false),
        running: RefCell::default(),
        taken: RefCell::default(),
        handling: Cell::new(0),
        handling_bytes: Cell::new(0),
        requests: Cell::new(0),
        expired: Cell::new(0),
        repeated: Cell::new(0),
    });
    // A node that asked for any node at this address may also have a connection to this shard, which continues.
    let key = if hello.target_host.is_nil() {
        rpc.asked.set(rpc.asked.get().wrapping_add(1));
        (Uuid::nil(), rpc.asked.get(), Lane::Data)
    } else {
        (hello.source_host, hello.source_shard, hello.lane)
    };
    let former = rpc.served.borrow_mut().insert(key, served.clone());
    if let Some(former) = former {
        // The other end has one connection of this lane to this shard; the former one is dead and does not know it.
        former.close();
    }
    rpc.note_member(hello.source_host, address.ip());
    // A node that called this node can be called.
    rpc.retry_now(hello.source_host);
    let owner: Rc<dyn Drain> = served.clone();
    drop(runtime::spawn(write(outbox.clone(), half, wire, owner)));
    drop(runtime::spawn(watch(served.clone(), limits.ping_interval)));
    let ended = read(rpc, &served, &mut input, handler).await;
    if let Err(ended @ Ended::Garbage(_)) = &ended {
        log::warn!(
            "the connection of node {} at {address} is closed: {ended}",
            hello.source_host
        );
    }
    served.close();
    let mut all = rpc.served.borrow_mut();
    if all.get(&key).is_some_and(|known| Rc::ptr_eq(known, &served)) {
        all.remove(&key);
    }
    Ok(())
}

async fn read(rpc: &Rc<Rpc>, served: &Rc<Served>, input: &mut Input, handler: &dyn Handler) -> Result<(), Ended> {
    let limits = &rpc.config.limits;
    let has_slots =
        || served.handling.get() < limits.handling_max && served.handling_bytes.get() < limits.handling_bytes_max;
    let has_room = || {
        served.outbox.bytes() < limits.outbox_bytes_max && served.long_answers.bytes() < limits.long_waiting_bytes_max
    };
    loop {
        input.fill().await?;
        let mut now = runtime::now();
        while let Some((frame, arrived)) = input.next_arrived()? {
            let is_request = matches!(frame.header.kind, Kind::Request | Kind::OneWay);
            if is_request && !(has_slots() && has_room()) {
                served
                    .room
                    .wait_until(|| {
                        served.is_busy.set(!has_slots());
                        served.outbox.is_closed() || (has_slots() && has_room())
                    })
                    .await;
                now = runtime::now();
            }
            if served.outbox.is_closed() {
                return Err(Ended::Closed);
            }
            let deadline = served.outbox.clock.deadline(frame.header.time, arrived);
            match frame.header.kind {
                Kind::Request | Kind::OneWay if frame.header.is_traced && frame.body.len() < size_of::<TraceId>() => {
                    return Err(Ended::Garbage("a traced request has no trace id".to_owned()));
                }
                Kind::Request | Kind::OneWay => {
                    let (header, body, fate) = (frame.header, input.body(&frame), input.fate());
                    for delay in [fate.late, fate.again].into_iter().flatten() {
                        handle_later(rpc, served, header, body.to_vec(), delay);
                    }
                    if fate.late.is_none() {
                        handle(rpc, served, handler, header, body, deadline, now);
                    }
                }
                Kind::Cancel => served.cancel(frame.header.id),
                Kind::Ping => served.outbox.push_plain(Kind::Pong, 0),
                other => return Err(Ended::Garbage(format!("{other:?} came where a request was expected"))),
            }
            if runtime::should_yield() {
                runtime::yield_now().await;
                now = runtime::now();
            }
        }
    }
}

/// Handles a request at a later time, as if it arrived then.
fn handle_later(rpc: &Rc<Rpc>, served: &Rc<Served>, header: Header, body: Vec<u8>, delay: Duration) {
    let (rpc, served) = (rpc.clone(), served.clone());
    drop(runtime::spawn(async move {
        runtime::sleep(delay).await;
        if let Some(handler) = rpc.handler.as_deref().filter(|_| !served.outbox.is_closed()) {
            let now = runtime::now();
            let deadline = served.outbox.clock.deadline(header.time, now);
            handle(&rpc, &served, handler, header, &body, deadline, now);
        }
    }));
}

/// Runs one request as far as it goes at once.
fn handle(
    rpc: &Rc<Rpc>,
    served: &Rc<Served>,
    handler: &dyn Handler,
    header: Header,
    body: &[u8],
    deadline: Instant,
    now: Instant,
) {
    let id = header.id;
    let is_one_way = header.kind == Kind::OneWay;
    let (trace, body) = match body.split_first_chunk() {
        Some((trace, body)) if header.is_traced => (Some(*trace), body),
        _ => (None, body),
    };
    if !is_one_way && !handler.is_repeatable(header.verb) && !served.take(id) {
        served.repeated.set(served.repeated.get() + 1);
        return;
    }
    served.requests.set(served.requests.get() + 1);
    if deadline <= now {
        served.expired.set(served.expired.get() + 1);
        if !is_one_way {
            served.answer_error(
                id,
                RemoteErrorKind::Expired,
                "the deadline passed before the request ran",
            );
        }
        return;
    }
    let reply = handler.handle(Request {
        peer: &served.caller,
        verb: header.verb,
        body,
        deadline,
        trace,
        is_one_way,
        way_back: (rpc, served, id),
    });
    match reply {
        Reply::Later(future) => {
            // It may be about long rows, or very many of them.
            let mut future: Later = if body.len() >= LONG_REQUEST_BYTES {
                Box::pin(runtime::preemptible_long(future))
            } else {
                Box::pin(runtime::preemptible(future))
            };
            // What memory can serve is ready now and needs no task. What is not is polled again by its task, which
            // leaves its own waker.
            let mut nobody = Context::from_waker(Waker::noop());
            if let Poll::Ready(answer) = future.as_mut().poll(&mut nobody) {
                if !is_one_way {
                    send_answer(rpc, served, id, answer);
                }
                return;
            }
            let slot = served.take_slot(id);
            served.handling.set(served.handling.get() + 1);
            served.handling_bytes.set(served.handling_bytes.get() + body.len());
            let task = Task {
                rpc: rpc.clone(),
                served: served.clone(),
                slot,
                bytes: body.len(),
            };
            let run = task.run(future, id, deadline, is_one_way);
            drop(runtime::spawn(run));
        }
        Reply::Taken => {}
        _ if is_one_way => {}
        Reply::Now(answer) => send_answer(rpc, served, id, Ok(answer)),
        Reply::Err(error) => send_answer(rpc, served, id, Err(error)),
        Reply::None => served.answer_error(id, RemoteErrorKind::Failed, "the request has no answer"),
    }
}

fn send_answer(rpc: &Rpc, served: &Served, id: u64, answer: Result<Vec<u8>, RemoteError>) {
    let limits = &rpc.config.limits;
    let (kind, body) = match answer {
        Ok(body) => (Kind::Response, body),
        Err(error) => (Kind::Error, error.encode()),
    };
    let long = &served.long_answers;
    if long.bytes() > 0 && long.has(id) {
        return;
    }
    if body.len() > limits.part_bytes {
        if let Err(reason) = long.push(&served.outbox, limits, id, body) {
            served.answer_error(id, RemoteErrorKind::AnswerLost, &reason);
        }
        return;
    }
    let waiting = served.outbox.bytes();
    if waiting > 0 && waiting + body.len() > limits.answer_bytes_max {
        served.answer_error(
            id,
            RemoteErrorKind::AnswerLost,
            "the request ran, but too many bytes of answers wait to be read",
        );
        return;
    }
    served.outbox.push_answer(Header::plain(kind, id), body);
}

/// A request that runs as a task.
struct Task {
    rpc: Rc<Rpc>,
    served: Rc<Served>,
    slot: usize,
    bytes: usize,
}

impl Task {
    async fn run(self, future: Later, id: u64, deadline: Instant, is_one_way: bool) {
        match self.until_nobody_waits(future, deadline).await {
            Some(answer) if !is_one_way => send_answer(&self.rpc, &self.served, id, answer),
            _ => {}
        }
    }

    /// `None` when the caller gave up, the deadline passed, or the connection ended.
    async fn until_nobody_waits(&self, mut future: Later, deadline: Instant) -> Option<Result<Vec<u8>, RemoteError>> {
        let mut timer = runtime::sleep_until(deadline);
        poll_fn(|context| {
            {
                let slot = &mut self.served.running.borrow_mut().slots[self.slot];
                if slot.is_cancelled {
                    return Poll::Ready(None);
                }
                slot.waker = Some(context.waker().clone());
            }
            if let Poll::Ready(answer) = future.as_mut().poll(context) {
                return Poll::Ready(Some(answer));
            }
            if Pin::new(&mut timer).poll(context).is_ready() {
                self.served.expired.set(self.served.expired.get() + 1);
                return Poll::Ready(None);
            }
            Poll::Pending
        })
        .await
        .filter(|_| deadline > runtime::now())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let served = &self.served;
        {
            let mut running = served.running.borrow_mut();
            running.slots[self.slot] = Slot::default();
            running.free.push(self.slot);
        }
        served.handling.set(served.handling.get() - 1);
        served.handling_bytes.set(served.handling_bytes.get() - self.bytes);
        served.room.ring();
    }
}

/// Signals to the other end that this one is alive while it does not read, and closes when neither direction has moved
/// for long.
async fn watch(served: Rc<Served>, interval: Duration) {
    let outbox = &served.outbox;
    let moved = || outbox.received_bytes.get() + outbox.sent_bytes.get();
    let (mut seen, mut silent) = (moved(), 0);
    loop {
        runtime::sleep(interval).await;
        if outbox.is_closed() {
            return;
        }
        if served.is_busy.get() {
            outbox.push_plain(Kind::Pong, 0);
        }
        if moved() != seen {
            (seen, silent) = (moved(), 0);
        } else {
            silent += 1;
        }
        if silent >= SILENT_INTERVALS {
            log::warn!(
                "the connection of node {} is closed: {}",
                served.caller.host_id,
                Ended::Silent
            );
            outbox.close(Ended::Silent);
            served.drained();
            return;
        }
    }
}
