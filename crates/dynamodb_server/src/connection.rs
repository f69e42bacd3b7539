//! One connection: its reader cuts requests out of what it reads and answers what needs no operation; an operation is a
//! task, and the next request waits for its answer.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use front::{
    Accepted, Framer, HANDSHAKE_TIME_MAX, Input, LONG_REQUEST_BYTES, Listed, Plain, Principal, RunningRequest,
    RunningTask, Session, SharedTls, Slots, Uninitialized, Unread, Writer, increment,
};
use http::{CONTINUE, Limits, Partial, Progress, Request, RequestError, RequestReader};
use runtime::net::{ReadHalf, TcpStream};
use runtime::{Instant, Permit, Semaphore};

use crate::answer::{Answer, Style};
use crate::encoding::BODY_BYTES_MAX;
use crate::operation::{Asked, Call, Received};
use crate::route::{Route, route};
use crate::{Port, Refusal, Server};

/// The longest request line with its headers.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// How long a request may take to arrive that needs no memory but the connection's buffer.
const SHORT_REQUEST_TIME_MAX: Duration = Duration::from_secs(30);
/// After a refusal in the middle of a request, the rest of it is read for so long, and so much of it: a connection
/// that is closed with unread bytes is reset, and the client may lose the answer.
const LINGER_TIME_MAX: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 32 << 20;
const LINGER_READ_BYTES: usize = 16 << 10;

pub(crate) const LIMITS: Limits = Limits {
    head_bytes_max: HEAD_BYTES_MAX,
    body_bytes_max: BODY_BYTES_MAX,
    takes_chunks: true,
};

/// A client's connection.
pub(crate) struct Connection {
    pub(crate) session: Session,
    pub(crate) server: Rc<Server>,
    /// The operation under way has its only unit.
    turn: Rc<Semaphore>,
    /// Operations so far.
    operations: Cell<u64>,
    pub(crate) running: Rc<Slots<RunningTask<Asked>>>,
    /// Host and port of the node, for a client that does not name it.
    local: String,
}

/// The reader's view of a connection.
struct Requests {
    reader: RequestReader,
    /// What the next request needs, as far as that is known.
    wanted_bytes: usize,
}

impl Framer for Requests {
    fn wanted_bytes(&self) -> usize {
        self.wanted_bytes
    }
}

/// What became of the bytes that were read.
enum Step {
    /// A request of so many bytes was taken; whether another one may follow.
    Took(usize, bool),
    /// More must be read.
    Partial(Partial),
    /// What follows cannot be read.
    Refused(RequestError),
}

/// Serves a connection to its end.
pub(crate) async fn run(port: &Rc<Port>, accepted: Accepted) {
    let Accepted {
        mut stream,
        peer,
        client,
        uninitialized,
    } = accepted;
    let server = &port.server;
    let (tls, begun) = if port.has_tls {
        let handshake = handshake(server, &mut stream, (&uninitialized, &client));
        match server.front.until_drain(handshake).await.flatten() {
            Some((tls, begun)) => (Some(tls), begun),
            None => return,
        }
    } else {
        (None, Vec::new())
    };
    uninitialized.become_ready();
    client.started(1, Default::default());
    let local = stream.local_addr().map(|address| address.to_string());
    let (mut reader, writer) = stream.into_split();
    let answers = (writer, Plain, tls.clone());
    let (session, writer) = Session::begin_secured(&server.front, peer, Principal::anonymous(), answers);
    let connection = Rc::new(Connection {
        session,
        server: Rc::clone(server),
        turn: Rc::new(Semaphore::new(1)),
        operations: Cell::new(0),
        running: Rc::default(),
        local: local.unwrap_or_default(),
    });
    server.front.note_connection(&connection);
    let mut input = Input::secured(begun, tls);
    connection.converse(&mut input, &mut reader, (&client, &writer)).await;
    drop(input);
    connection.session.end(writer).await;
}

/// Does the handshake of TLS. None: the connection ends.
async fn handshake(
    server: &Server,
    stream: &mut TcpStream,
    (uninitialized, client): (&Uninitialized, &Listed),
) -> Option<(SharedTls, Vec<u8>)> {
    let tls = server.tls()?;
    let secured = runtime::timeout(HANDSHAKE_TIME_MAX, tls.handshake(stream, uninitialized)).await;
    let (tls, begun) = secured.ok()?.ok()?;
    client.set_tls(tls.borrow().names());
    Some((tls, begun))
}

impl front::Connection for Connection {
    fn session(&self) -> &Session {
        &self.session
    }

    fn running(&self, show: &mut dyn FnMut(RunningRequest)) {
        self.running
            .each(|task| show(task.asked.running(task.queued, task.began.elapsed())));
    }
}

impl Connection {
    /// Answers requests until the client disconnects or asks for an end, a request is refused, or the node drains.
    async fn converse(self: &Rc<Self>, input: &mut Input, reader: &mut ReadHalf, (client, writer): (&Listed, &Writer)) {
        let mut requests = Requests {
            reader: RequestReader::new(LIMITS),
            wanted_bytes: 0,
        };
        let (mut begun, mut is_continued): (Option<Instant>, bool) = (None, false);
        loop {
            match self.step(&mut requests, input, (client, writer)).await {
                Step::Took(bytes, continues) => {
                    (begun, is_continued, requests.wanted_bytes) = (None, false, 0);
                    input.consume(bytes, &mut requests);
                    // A request that is answered at once has given its turn back.
                    let turn = async { drop(self.turn.acquire(1).await) };
                    if let Err(unread) = self.session.wait(input, reader, turn).await {
                        self.session.end_input(unread);
                        return;
                    }
                    if !continues {
                        return;
                    }
                    if runtime::should_yield() {
                        runtime::yield_now().await;
                    }
                }
                Step::Partial(partial) => {
                    if partial.expects_continue && !is_continued {
                        is_continued = true;
                        self.session.outbox.push(&mut CONTINUE.to_vec());
                    }
                    requests.wanted_bytes = partial.wanted_bytes;
                    if !input.bytes().is_empty() {
                        begun.get_or_insert(runtime::now());
                    }
                    if !self.read(input, reader, (&mut requests, begun)).await {
                        return;
                    }
                }
                Step::Refused(error) => {
                    increment(&self.server.counts.requests);
                    self.refuse(&Refusal::of_http(error.status, error.reason));
                    return linger(reader).await;
                }
            }
        }
    }

    /// Reads more; false: the connection ends. `begun`: since when the request under way arrives.
    async fn read(
        &self,
        input: &mut Input,
        reader: &mut ReadHalf,
        (requests, begun): (&mut Requests, Option<Instant>),
    ) -> bool {
        let is_short = requests.wanted_bytes <= HEAD_BYTES_MAX;
        let deadline = begun.filter(|_| is_short).map(|begun| begun + SHORT_REQUEST_TIME_MAX);
        let reading = self.session.read(input, reader, requests, false);
        let read = match deadline {
            None => reading.await,
            Some(deadline) => match runtime::timeout_at(deadline, reading).await {
                Ok(read) => read,
                Err(_) => {
                    self.refuse(&Refusal::of_http(408, "the request did not arrive in time"));
                    return false;
                }
            },
        };
        match read {
            Ok(continues) => continues,
            Err(unread) => {
                let status = if matches!(unread, Unread::Late(_)) { 408 } else { 503 };
                if let Some(message) = self.session.end_input(unread) {
                    self.refuse(&Refusal::of_http(status, message));
                    linger(reader).await;
                }
                false
            }
        }
    }

    /// Takes the request that the input begins with, if it is whole.
    async fn step(
        self: &Rc<Self>,
        requests: &mut Requests,
        input: &mut Input,
        (client, writer): (&Listed, &Writer),
    ) -> Step {
        let (bytes, continues, begun) = match requests.reader.next(input.bytes()) {
            Err(error) => return Step::Refused(error),
            Ok(Progress::Partial(partial)) => return Step::Partial(partial),
            Ok(Progress::Whole(request)) => {
                client.add_requests(1);
                increment(&self.server.counts.requests);
                let Some(call) = self.take(&request) else {
                    return Step::Took(request.bytes, request.head.keep_alive);
                };
                if self.session.is_drivers() {
                    self.session.leave_drivers_group(client, writer).await;
                }
                let turn = self.turn.acquire(1).await;
                let memory = self.memory(call.bytes(request.body.len())).await;
                let is_short = request.bytes < LONG_REQUEST_BYTES;
                let body = is_short.then(|| request.body.to_vec());
                (request.bytes, request.head.keep_alive, (call, body, memory, turn))
            }
        };
        let (call, body, memory, turn) = begun;
        match body {
            Some(body) => {
                self.begin(call, Received::Body(body), memory, turn);
                Step::Took(bytes, continues)
            }
            // The copy of a long body is left to the task, which can be suspended.
            None => {
                self.begin(call, Received::Request(input.take(bytes)), memory, turn);
                Step::Took(0, continues)
            }
        }
    }

    /// Answers a request that is no operation, or is refused. Returns an operation.
    fn take(&self, request: &Request<'_>) -> Option<Call> {
        let answer = match route(&request.head, !request.body.is_empty()) {
            Route::Health => {
                let host = request.head.value("host").unwrap_or(&self.local);
                Answer::text(format!("healthy: {host}"))
            }
            Route::Nodes { datacenter, rack } => {
                let nodes = &self.server.parts.nodes;
                let addresses = nodes.addresses(datacenter.as_deref(), rack.as_deref());
                Answer::page(serde_json::json!(addresses).to_string().into_bytes())
            }
            Route::Preflight => Answer::preflight(&request.head),
            Route::Unknown => Answer::unknown(),
            Route::Refused(refusal) => Answer::refusal(&refusal),
            Route::Operation(operation) => match self.call(operation, request) {
                Ok(call) => return Some(call),
                Err(refusal) => Answer::refusal(&refusal),
            },
        };
        self.send(answer, &Style::of(&request.head));
        None
    }

    fn call(&self, operation: String, request: &Request<'_>) -> Result<Call, Refusal> {
        let settings = self.server.settings();
        let claim = self.claim(&request.head, &settings)?;
        Call::of(operation, request, (claim, settings))
    }

    /// Waits for the memory of a request.
    async fn memory(&self, bytes: usize) -> Permit {
        loop {
            if let Some(memory) = self.session.try_reserve(bytes) {
                return memory;
            }
            self.session.wait_for_memory(bytes).await;
        }
    }

    /// Answers a request with which the connection ends.
    fn refuse(&self, refusal: &Refusal) {
        self.send(Answer::refusal(refusal), &Style::last());
    }

    /// The number of the next operation, from 1 on.
    pub(crate) fn next_number(&self) -> u64 {
        self.operations.set(self.operations.get() + 1);
        self.operations.get()
    }
}

/// Reads what a client still sends, and forgets it.
async fn linger(reader: &mut ReadHalf) {
    let rest = async {
        let (mut left, mut buffer) = (LINGER_BYTES_MAX, Vec::with_capacity(LINGER_READ_BYTES));
        loop {
            buffer.clear();
            let (read, same) = reader.read(buffer).await;
            buffer = same;
            match read {
                Ok(count @ 1..) if count < left => left -= count,
                _ => return,
            }
            if runtime::should_yield() {
                runtime::yield_now().await;
            }
        }
    };
    // A client that sends on is cut off.
    let _ = runtime::timeout(LINGER_TIME_MAX, rest).await;
}
