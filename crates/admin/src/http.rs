//! A server of HTTP/1.1 for operators' tools, on one shard. The crate `http` cuts bytes into requests.
//!
//! [`serve`] runs on the shard that calls it (shard 0 of a
//! node) and sees the node. A connection has one request at a time; what a client sends ahead waits in the kernel, but
//! for what is read when a request takes long, to see whether the client has disconnected.
//!
//! Limits and what happens beyond them: a head above [`HEAD_BYTES_MAX`] is answered with 431, a body above
//! [`BODY_BYTES_MAX`] with 413. A connection on which no request begins for [`IDLE_MAX`] is closed, and one whose
//! request is not complete [`REQUEST_TIME_MAX`] after its first byte. Bodies of all connections together have
//! [`BODIES_BYTES_MAX`]; a connection is not read while there is no room for its body. When there are
//! [`CONNECTIONS_MAX`] connections, a new one takes the place of the one that has waited longest for its client; only
//! if all of them wait for answers it is answered with 503.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use ::http::{Limits, Progress, RequestError, RequestReader, Target};
use logging::LineLimit;
use runtime::net::{ListenOptions, TcpListener, TcpStream};
use runtime::{Instant, Notify, Permit, Semaphore};

/// The longest request line with its headers, in bytes.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// The longest body, in bytes.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// Connections of one server.
pub const CONNECTIONS_MAX: usize = 128;
/// How long a connection may be silent between two requests, and how long a client may take for an answer.
pub const IDLE_MAX: Duration = Duration::from_secs(60);
/// How long a request may take to arrive, from its first byte to its last.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// Memory of the bodies of all connections of one server.
pub const BODIES_BYTES_MAX: usize = 16 << 20;
/// A body above this size takes room of that.
const SMALL_BODY_BYTES_MAX: usize = 16 << 10;
/// A connection that waits for a request keeps no more memory.
const KEPT_BYTES: usize = 2 << 10;
/// The head of an answer has about so many bytes.
const HEAD_BYTES_USUAL: usize = 128;
/// A client that waits for longer is watched, so that code that waits on its behalf may give up when the client leaves.
const WATCH_AFTER: Duration = Duration::from_millis(100);
/// What is said of connections that cannot be accepted is said once in so long.
const FAILURES_PERIOD: Duration = Duration::from_secs(60);
/// How long an address that is in use is tried again: the kernel may still be closing the sockets of a killed process.
const BIND_WAIT_MAX: Duration = Duration::from_secs(1);

/// What a client asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// GET, POST, …
    pub method: String,
    /// Decoded, without the query.
    pub path: String,
    /// Names and values after the question mark, decoded, in order.
    pub query: Vec<(String, String)>,
    /// At most [`BODY_BYTES_MAX`] bytes.
    pub body: Vec<u8>,
    /// Whether the connection stays open after the answer.
    pub keep_alive: bool,
    /// The client has closed its end since, and may never read the answer.
    pub client_is_gone: Rc<Cell<bool>>,
}

impl Request {
    /// The value of a query parameter; None when it is not given or empty.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(given, _)| given == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// A copy of a request that has arrived.
    fn of(request: &::http::Request<'_>) -> Result<Self, RequestError> {
        let Target { path, query } = Target::decode(request.head.target)?;
        Ok(Self {
            method: request.head.method.to_owned(),
            path,
            query,
            body: request.body.to_vec(),
            keep_alive: request.head.keep_alive,
            client_is_gone: Rc::default(),
        })
    }
}

/// The answer to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// 200, 404, …
    pub status: u16,
    /// The body's type.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

impl Response {
    /// A refusal, in the shape that tools for ScyllaDB's API expect.
    #[must_use]
    pub fn refusal(status: u16, message: &str) -> Self {
        Self {
            status,
            content_type: JSON,
            body: serde_json::json!({"message": message, "code": status})
                .to_string()
                .into_bytes(),
        }
    }
}

/// The type of most answers.
pub const JSON: &str = "application/json";

/// What is taken of a request. Bodies in chunks are refused: tools send the length.
const LIMITS: Limits = Limits {
    head_bytes_max: HEAD_BYTES_MAX,
    body_bytes_max: BODY_BYTES_MAX,
    takes_chunks: false,
};

/// The first request of `bytes` and how many bytes it takes; None while it is not whole.
///
/// # Errors
/// When it never will be a request that is taken.
pub fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, RequestError> {
    match RequestReader::new(LIMITS).next(bytes)? {
        Progress::Whole(request) => Ok(Some((Request::of(&request)?, request.bytes))),
        Progress::Partial(_) => Ok(None),
    }
}

/// An answer's bytes. To HEAD it has no body.
#[must_use]
pub fn encode(response: &Response, keep_alive: bool, has_body: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES_USUAL + response.body.len());
    let connection = if keep_alive { "keep-alive" } else { "close" };
    ::http::write_head(
        &mut out,
        response.status,
        &[
            ("Content-Type", &response.content_type),
            ("Content-Length", &response.body.len()),
            ("Connection", &connection),
        ],
    );
    if has_body {
        out.extend_from_slice(&response.body);
    }
    out
}

/// Answers requests.
pub type Service = Rc<dyn Fn(Request) -> Pin<Box<dyn Future<Output = Response>>>>;

/// Listens on an address; a port of 0 takes any free one.
///
/// # Errors
/// When the address cannot be had; `what` names the service that needs it.
pub async fn bind(what: &str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), String> {
    let deadline = runtime::now() + BIND_WAIT_MAX;
    let refused = |e: io::Error| format!("cannot listen for {what} on {address}: {e}");
    loop {
        match TcpListener::bind(address, ListenOptions::default()) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && runtime::now() < deadline => {
                runtime::sleep(Duration::from_millis(20)).await;
            }
            Err(e) => return Err(refused(e)),
            Ok(listener) => {
                let bound = listener.local_addr().map_err(refused)?;
                return Ok((listener, bound));
            }
        }
    }
}

/// The connections of a server.
struct Connections {
    /// By when they began to wait for their clients.
    open: RefCell<Vec<Rc<Connection>>>,
    bodies: Semaphore,
}

/// A connection's place among those of its server.
struct Connection {
    /// Since when it waits for its client; None while its request is worked on.
    waits_since: Cell<Option<Instant>>,
    /// Another connection has taken its place.
    is_replaced: Cell<bool>,
    replaced: Notify,
}

impl Connections {
    /// A place for a new connection, perhaps that of another one. None: all of them have requests that are worked on.
    fn enter(&self) -> Option<Rc<Connection>> {
        let mut open = self.open.borrow_mut();
        if open.len() >= CONNECTIONS_MAX {
            let waiting = open.iter().enumerate();
            let waiting = waiting.filter_map(|(at, connection)| Some((connection.waits_since.get()?, at)));
            let (_, longest) = waiting.min()?;
            let replaced = open.swap_remove(longest);
            replaced.is_replaced.set(true);
            replaced.replaced.notify_all();
        }
        let connection = Rc::new(Connection {
            waits_since: Cell::new(Some(runtime::now())),
            is_replaced: Cell::new(false),
            replaced: Notify::new(),
        });
        open.push(connection.clone());
        Some(connection)
    }

    fn leave(&self, connection: &Rc<Connection>) {
        self.open.borrow_mut().retain(|known| !Rc::ptr_eq(known, connection));
    }
}

impl Connection {
    /// What comes of waiting for the client until an instant. None: the time is up, or another connection has the
    /// place.
    async fn wait<T>(&self, deadline: Instant, work: impl Future<Output = T>) -> Option<T> {
        let mut replaced = pin!(self.replaced.notified());
        if self.is_replaced.get() {
            return None;
        }
        let mut work = pin!(runtime::timeout_at(deadline, work));
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(result) => Poll::Ready(result.ok()),
            Poll::Pending => replaced.as_mut().poll(context).map(|()| None),
        })
        .await
    }
}

/// Accepts connections and answers them. Spawn this; it never returns.
pub async fn serve(listener: TcpListener, service: Service) {
    let connections = Rc::new(Connections {
        open: RefCell::default(),
        bodies: Semaphore::new(BODIES_BYTES_MAX),
    });
    let failures = LineLimit::of((1, FAILURES_PERIOD), |lines| {
        log::warn!("{lines} more times an operator's connection could not be accepted");
    });
    loop {
        let mut stream = match listener.accept().await {
            Ok(stream) => stream,
            Err(e) => {
                if failures.admits() {
                    log::warn!("cannot accept an operator's connection: {e}");
                }
                runtime::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (service, connections) = (service.clone(), connections.clone());
        drop(runtime::spawn(async move {
            let Some(connection) = connections.enter() else {
                let full = format!("there are {CONNECTIONS_MAX} connections, whose requests are worked on");
                let full = encode(&Response::refusal(503, &full), false, true);
                // An error says that the client is gone.
                let _ = runtime::timeout(REQUEST_TIME_MAX, stream.write_all(full)).await;
                return;
            };
            converse(&mut stream, &service, (&connections, &connection)).await;
            let _ = stream.shutdown(Shutdown::Both);
            connections.leave(&connection);
        }));
    }
}

/// The answer. If it takes long, checks whether the client has closed the connection; what the client sends until then
/// is appended to `input`.
async fn answered(
    stream: &mut TcpStream,
    input: &mut Vec<u8>,
    is_gone: &Cell<bool>,
    mut answer: Pin<Box<dyn Future<Output = Response>>>,
) -> Response {
    if let Ok(response) = runtime::timeout(WATCH_AFTER, &mut answer).await {
        return response;
    }
    while input.len() < HEAD_BYTES_MAX {
        let mut more = pin!(stream.read(Vec::with_capacity(2048)));
        let first = poll_fn(|context| match answer.as_mut().poll(context) {
            Poll::Ready(response) => Poll::Ready(Ok(response)),
            Poll::Pending => more.as_mut().poll(context).map(Err),
        });
        match first.await {
            Ok(response) => return response,
            Err((Ok(1..), bytes)) => input.extend_from_slice(&bytes),
            Err(_) => {
                is_gone.set(true);
                break;
            }
        }
    }
    answer.await
}

/// Answers requests until the client disconnects, is silent or slow for too long, asks for an end, or its place is
/// needed.
async fn converse(
    stream: &mut TcpStream,
    service: &Service,
    (connections, connection): (&Connections, &Rc<Connection>),
) {
    let mut input = Vec::new();
    loop {
        let read = read_request(stream, &mut input, (connections, connection)).await;
        let (request, _room) = match read {
            Some(Ok(request)) => request,
            Some(Err(e)) => {
                let refusal = encode(&Response::refusal(e.status, &e.reason), false, true);
                let deadline = runtime::now() + REQUEST_TIME_MAX;
                connection.wait(deadline, stream.write_all(refusal)).await;
                return;
            }
            None => return,
        };
        let (keep_alive, has_body) = (request.keep_alive, request.method != "HEAD");
        let is_gone = request.client_is_gone.clone();
        connection.waits_since.set(None);
        let response = answered(stream, &mut input, &is_gone, service(request)).await;
        connection.waits_since.set(Some(runtime::now()));
        let sent = stream.write_all(encode(&response, keep_alive, has_body));
        let sent = connection.wait(runtime::now() + IDLE_MAX, sent).await;
        if !keep_alive || !matches!(sent, Some((Ok(()), _))) {
            return;
        }
    }
}

/// Reads the next request, with the room that its body takes. None: the client is gone or too slow, or the place is
/// needed.
async fn read_request(
    stream: &mut TcpStream,
    input: &mut Vec<u8>,
    (connections, connection): (&Connections, &Rc<Connection>),
) -> Option<Result<(Request, Option<Permit>), RequestError>> {
    connection.waits_since.set(Some(runtime::now()));
    let deadline_of = |input: &Vec<u8>| {
        let time = if input.is_empty() { IDLE_MAX } else { REQUEST_TIME_MAX };
        runtime::now() + time
    };
    let mut deadline = deadline_of(input);
    let mut room = None;
    loop {
        let (wanted, body_bytes) = match RequestReader::new(LIMITS).next(input) {
            Err(e) => return Some(Err(e)),
            Ok(Progress::Partial(partial)) if partial.head_bytes > 0 => {
                (partial.wanted_bytes, partial.wanted_bytes - partial.head_bytes)
            }
            Ok(Progress::Partial(partial)) => (partial.wanted_bytes, 0),
            Ok(Progress::Whole(whole)) => {
                let (request, taken) = (Request::of(&whole), whole.bytes);
                input.drain(..taken);
                input.shrink_to(KEPT_BYTES);
                return Some(request.map(|request| (request, room)));
            }
        };
        if body_bytes > SMALL_BODY_BYTES_MAX && room.is_none() {
            // Once where it arrives, and once in the request.
            let room_for = connections.bodies.acquire(2 * body_bytes);
            room = Some(connection.wait(deadline, room_for).await?);
        }
        input.reserve_exact(wanted - input.len());
        let is_first = input.is_empty();
        let (result, filled) = connection.wait(deadline, stream.read(std::mem::take(input))).await?;
        *input = filled;
        if !matches!(result, Ok(n) if n > 0) {
            return None;
        }
        if is_first {
            deadline = deadline_of(input);
        }
    }
}

#[cfg(test)]
mod tests {
    use ::http::escape;
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> String {
        match parse(text.as_bytes()) {
            Ok(None) => "not whole".to_owned(),
            Ok(Some((r, n))) => format!(
                "{} {} {:?} {}{}",
                r.method,
                r.path,
                r.query,
                if r.keep_alive { "stays" } else { "ends" },
                if n == text.len() { "" } else { ", more behind it" }
            ),
            Err(e) => format!("{}: {}", e.status, e.reason),
        }
    }

    #[test]
    fn requests_are_read_as_clients_write_them() {
        let cases = [
            ("GET / HTTP/1.1\r\n", "not whole"),
            ("GET / HTTP/1.1\r\n\r\n", "GET / [] stays"),
            ("GET / HTTP/1.0\r\n\r\n", "GET / [] ends"),
            ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "GET / [] stays"),
            ("GET / HTTP/1.1\r\nconnection: close\r\n\r\n", "GET / [] ends"),
            (
                "POST /a%20b/c+d?x=1+2&y=%C3%A9&z HTTP/1.1\r\n\r\n",
                r#"POST /a b/c+d [("x", "1 2"), ("y", "é"), ("z", "")] stays"#,
            ),
            ("POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab", "not whole"),
            (
                "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcG",
                "POST / [] stays, more behind it",
            ),
            ("GET / HTTP/1.1\r\n\r\nGET", "GET / [] stays, more behind it"),
            ("GET /%2 HTTP/1.1\r\n\r\n", "400: '/%2': expected %XX escapes of UTF-8"),
            (
                "GET /%FF HTTP/1.1\r\n\r\n",
                "400: '/%FF': expected %XX escapes of UTF-8",
            ),
            (
                "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                "400: Content-Length: expected a number, got '-1'",
            ),
            (
                "POST / HTTP/1.1\r\nContent-Length: 1048577\r\n\r\n",
                "413: a body of 1048577 bytes; 1048576 are the most that is taken",
            ),
            (
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
                "501: Transfer-Encoding is not supported: send Content-Length",
            ),
            ("\u{16}\u{3}\u{1}", "400: not an HTTP request: invalid token"),
        ];
        for (text, expected) in cases {
            assert_eq!(parsed(text), expected, "request {text:?}");
        }
        let endless = format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(HEAD_BYTES_MAX));
        assert_eq!(parsed(&endless), "431: the request's head has more than 16384 bytes");
    }

    #[test]
    fn who_waits_on_behalf_of_a_client_hears_when_it_goes_and_not_before() {
        const SECOND: Duration = Duration::from_secs(1);
        let mut simulation = runtime::sim::Simulation::new(1);
        let node = simulation.add_node(1);
        let waited = Rc::new(Cell::new(None));
        let (seen, address) = (waited.clone(), SocketAddr::new(simulation.address(node), 80));
        simulation.start(node, move |_| {
            let seen = seen.clone();
            Box::pin(async move {
                let (listener, address) = bind("the test", address).await.expect("the port is free");
                let service: Service = Rc::new(move |request| {
                    let (seen, begun) = (seen.clone(), runtime::now());
                    Box::pin(async move {
                        while !request.client_is_gone.get() {
                            runtime::sleep(SECOND / 10).await;
                        }
                        seen.set(Some(runtime::now() - begun));
                        Response::refusal(500, "nobody hears this")
                    })
                });
                drop(runtime::spawn(serve(listener, service)));
                let mut stream = TcpStream::connect(address).await.expect("it listens");
                let request = b"GET / HTTP/1.1\r\n\r\nGET /next".to_vec();
                stream.write_all(request).await.0.expect("it is there");
                runtime::sleep(5 * SECOND).await;
                drop(stream);
                runtime::sleep(5 * SECOND).await;
            })
        });
        simulation.run_until_ended(node, 60 * SECOND);
        let waited = waited.get().expect("the service ended");
        assert!((5 * SECOND..6 * SECOND).contains(&waited), "{waited:?}");
    }

    /// Runs a story of clients against a server that answers each request at once.
    fn tell<F: Future<Output = ()> + 'static>(story: impl Fn(SocketAddr) -> F + 'static) {
        let mut simulation = runtime::sim::Simulation::new(1);
        let node = simulation.add_node(1);
        let address = SocketAddr::new(simulation.address(node), 80);
        let story = Rc::new(story);
        simulation.start(node, move |_| {
            let story = story.clone();
            Box::pin(async move {
                let (listener, address) = bind("the test", address).await.expect("the port is free");
                let service: Service =
                    Rc::new(|request| Box::pin(async move { Response::refusal(404, &request.body.len().to_string()) }));
                drop(runtime::spawn(serve(listener, service)));
                story(address).await;
            })
        });
        assert!(
            simulation.run_until_ended(node, Duration::from_secs(600)),
            "it did not end"
        );
    }

    async fn send(stream: &mut TcpStream, bytes: &[u8]) {
        stream.write_all(bytes.to_vec()).await.0.expect("it is there");
    }

    /// What the server says, until it ends the connection or says nothing for so long.
    async fn said(stream: &mut TcpStream, patience: Duration) -> (String, bool) {
        let mut all = Vec::new();
        loop {
            match runtime::timeout(patience, stream.read(Vec::with_capacity(4096))).await {
                Ok((Ok(1..), bytes)) => all.extend(bytes),
                Ok(_) => return (String::from_utf8(all).expect("text"), true),
                Err(_) => return (String::from_utf8(all).expect("text"), false),
            }
        }
    }

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\n\r\n";
    const MOMENT: Duration = Duration::from_millis(100);

    #[test]
    fn clients_that_wait_do_not_keep_others_out() {
        tell(async |address| {
            let mut waiting = Vec::new();
            for number in 0..2 * CONNECTIONS_MAX {
                let mut stream = TcpStream::connect(address).await.expect("it listens");
                if number % 2 == 0 {
                    send(&mut stream, &REQUEST[..5]).await;
                }
                waiting.push(stream);
                runtime::sleep(Duration::from_millis(1)).await;
            }
            let mut operator = TcpStream::connect(address).await.expect("it listens");
            send(&mut operator, REQUEST).await;
            let (answer, _) = said(&mut operator, MOMENT).await;
            assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
            // The oldest was replaced first, and the newest has its place.
            assert!(said(&mut waiting[0], MOMENT).await.1, "the first keeps its place");
            let last = waiting.last_mut().expect("there are many");
            assert!(!said(last, MOMENT).await.1, "the last was replaced");
        });
    }

    #[test]
    fn a_request_has_one_deadline_however_its_bytes_come() {
        tell(async |address| {
            let mut stream = TcpStream::connect(address).await.expect("it listens");
            runtime::sleep(IDLE_MAX - Duration::from_secs(1)).await;
            let began = runtime::now();
            for byte in REQUEST {
                if stream.write_all(vec![*byte]).await.0.is_err() || said(&mut stream, Duration::from_secs(1)).await.1 {
                    break;
                }
            }
            let took = began.elapsed();
            assert!(
                (REQUEST_TIME_MAX..REQUEST_TIME_MAX + Duration::from_secs(2)).contains(&took),
                "{took:?}"
            );
        });
    }

    #[test]
    fn bodies_share_a_room_and_a_body_that_does_not_arrive_gives_it_back() {
        tell(async |address| {
            let head = format!("POST / HTTP/1.1\r\nContent-Length: {BODY_BYTES_MAX}\r\n\r\n");
            let mut waiting = Vec::new();
            for _ in 0..20 {
                let mut stream = TcpStream::connect(address).await.expect("it listens");
                send(&mut stream, head.as_bytes()).await;
                waiting.push(stream);
            }
            runtime::sleep(REQUEST_TIME_MAX / 2).await;
            let mut late = TcpStream::connect(address).await.expect("it listens");
            send(&mut late, head.as_bytes()).await;
            let body = runtime::timeout(Duration::from_secs(1), late.write_all(vec![b'x'; BODY_BYTES_MAX])).await;
            assert!(body.is_err(), "it is read though there is no room for it");
            for stream in &mut waiting {
                assert!(said(stream, REQUEST_TIME_MAX).await.1, "it has no deadline");
            }
            let mut next = TcpStream::connect(address).await.expect("it listens");
            send(&mut next, head.as_bytes()).await;
            send(&mut next, &vec![b'x'; BODY_BYTES_MAX]).await;
            let (answer, _) = said(&mut next, MOMENT).await;
            assert!(answer.contains(&BODY_BYTES_MAX.to_string()), "{answer}");
        });
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn no_target_makes_it_panic(target in "[ -~]{0,40}", length in "[0-9a-f-]{0,24}") {
            let _ = parse(format!("GET {target} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n").as_bytes());
        }

        #[test]
        fn what_is_escaped_is_read_back(text in "\\PC{0,20}") {
            let request = format!("GET /{} HTTP/1.1\r\n\r\n", escape(&text));
            let parsed = parse(request.as_bytes()).expect("an escaped text is a path").expect("it is whole");
            prop_assert_eq!(parsed.0.path, format!("/{}", text));
        }
    }
}
