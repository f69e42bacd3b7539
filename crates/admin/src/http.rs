//! HTTP/1.1 as far as operators' tools speak it: requests from bytes, answers to bytes, and a server on one shard.
//!
//! [`parse`] is a function of the bytes that have arrived. [`serve`] runs on the shard that calls it (shard 0 of a node) and sees the node.
//! A connection has one request at a time; what a client sends ahead waits in the kernel, but for what is read when a request takes long,
//! to see whether the client goes.
//!
//! Limits and what happens beyond them: a head above [`HEAD_BYTES_MAX`] is answered with 431, a body above [`BODY_BYTES_MAX`] with 413,
//! connections above [`CONNECTIONS_MAX`] with 503, and a connection on which nothing comes for [`IDLE_MAX`] is closed.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use runtime::net::{ListenOptions, TcpListener, TcpStream};

/// The longest request line with its headers, in bytes.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// The longest body, in bytes.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// Connections of one server.
pub const CONNECTIONS_MAX: usize = 128;
/// How long a connection may be silent.
pub const IDLE_MAX: Duration = Duration::from_secs(60);
/// Headers of a request.
const HEADERS_MAX: usize = 64;
/// A client that waits for longer is watched, so that who waits on its behalf may give up when it goes.
const WATCH_AFTER: Duration = Duration::from_millis(100);
/// How long an address that is in use is tried again: the kernel may still be closing the sockets of a killed process.
const BIND_WAIT_MAX: Duration = Duration::from_secs(1);

/// What a client asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// GET, POST, …
    pub method: String,
    /// Decoded, without the query.
    pub path: String,
    /// Names and values behind the question mark, decoded, in order.
    pub query: Vec<(String, String)>,
    /// At most [`BODY_BYTES_MAX`] bytes.
    pub body: Vec<u8>,
    /// Whether the connection stays open behind the answer.
    pub keep_alive: bool,
    /// The client has closed its end since: nobody may hear the answer.
    pub client_is_gone: Rc<Cell<bool>>,
}

impl Request {
    /// The value of a query parameter; None when it is not given or empty.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(given, _)| given == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }
}

/// What it is told.
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

/// A request that is not taken: status and reason. The connection ends with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Malformed {
    /// 400, 413, …
    pub status: u16,
    /// What is wrong with it.
    pub reason: String,
}

impl Malformed {
    fn new(status: u16, reason: impl Into<String>) -> Self {
        Self {
            status,
            reason: reason.into(),
        }
    }
}

/// The first request of `bytes` and how many bytes it takes; None while it is not whole.
///
/// # Errors
/// [`Malformed`] when it never will be a request that is taken.
pub fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, Malformed> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let head = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) if bytes.len() >= HEAD_BYTES_MAX => {
            return Err(Malformed::new(
                431,
                format!("the request's head has more than {HEAD_BYTES_MAX} bytes"),
            ));
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Malformed::new(
                431,
                format!("the request has more than {HEADERS_MAX} headers"),
            ));
        }
        Err(e) => return Err(Malformed::new(400, format!("not an HTTP request: {e}"))),
    };
    let mut keep_alive = parsed.version == Some(1);
    let mut body = 0;
    for header in parsed.headers.iter() {
        let value = std::str::from_utf8(header.value).unwrap_or_default().trim();
        if header.name.eq_ignore_ascii_case("content-length") {
            body = value
                .parse()
                .map_err(|_| Malformed::new(400, format!("Content-Length: expected a number, got '{value}'")))?;
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(Malformed::new(
                501,
                "Transfer-Encoding is not supported: send Content-Length",
            ));
        } else if header.name.eq_ignore_ascii_case("connection") {
            let says = |word: &str| value.split(',').any(|token| token.trim().eq_ignore_ascii_case(word));
            keep_alive = !says("close") && (keep_alive || says("keep-alive"));
        }
    }
    if body > BODY_BYTES_MAX {
        return Err(Malformed::new(
            413,
            format!("a body of {body} bytes; {BODY_BYTES_MAX} are the most that is taken"),
        ));
    }
    if bytes.len() - head < body {
        return Ok(None);
    }
    let target = parsed.path.unwrap_or("/");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let request = Request {
        method: parsed.method.unwrap_or("GET").to_owned(),
        path: decode(path, false)?,
        query: query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                Ok((decode(name, true)?, decode(value, true)?))
            })
            .collect::<Result<_, Malformed>>()?,
        body: bytes[head..head + body].to_vec(),
        keep_alive,
        client_is_gone: Rc::default(),
    };
    Ok(Some((request, head + body)))
}

/// Takes percent signs and, in queries, plus signs out of a text.
fn decode(text: &str, plus_is_space: bool) -> Result<String, Malformed> {
    let refused = || Malformed::new(400, format!("'{text}': expected %XX escapes of UTF-8"));
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let mut digit = || {
                    bytes
                        .next()
                        .and_then(|b| char::from(b).to_digit(16))
                        .ok_or_else(refused)
                };
                let (high, low) = (digit()?, digit()?);
                out.push(u8::try_from(high << 4 | low).map_err(|_| refused())?);
            }
            b'+' if plus_is_space => out.push(b' '),
            byte => out.push(byte),
        }
    }
    String::from_utf8(out).map_err(|_| refused())
}

/// The text with everything escaped that means something in a target.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}

/// An answer's bytes. To HEAD it has no body.
#[must_use]
pub fn encode(response: &Response, keep_alive: bool, has_body: bool) -> Vec<u8> {
    let mut out = format!(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: {}\r\n\r\n",
        response.status,
        reason(response.status),
        response.content_type,
        response.body.len(),
        if keep_alive { "keep-alive" } else { "close" }
    )
    .into_bytes();
    if has_body {
        out.extend_from_slice(&response.body);
    }
    out
}

/// Who answers.
pub type Service = Rc<dyn Fn(Request) -> Pin<Box<dyn Future<Output = Response>>>>;

/// Listens on an address; a port of 0 takes any free one.
///
/// # Errors
/// When the address cannot be had; `what` names who wants it.
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

/// Accepts connections and answers them. To be spawned; ends never.
pub async fn serve(listener: TcpListener, service: Service) {
    let connections = Rc::new(Cell::new(0));
    loop {
        let mut stream = match listener.accept().await {
            Ok(stream) => stream,
            Err(e) => {
                log::warn!("cannot accept an operator's connection: {e}");
                runtime::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (service, connections) = (service.clone(), connections.clone());
        drop(runtime::spawn(async move {
            if connections.get() >= CONNECTIONS_MAX {
                let full = Response::refusal(503, &format!("there are {CONNECTIONS_MAX} connections already"));
                let _ = stream.write_all(encode(&full, false, true)).await;
                return;
            }
            connections.set(connections.get() + 1);
            converse(&mut stream, &service).await;
            let _ = stream.shutdown(Shutdown::Both);
            connections.set(connections.get() - 1);
        }));
    }
}

/// The answer. While it takes long it is looked whether the client goes; what it sends meanwhile is appended to `input`.
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

/// Answers requests until the client goes, is silent for too long, or asks for an end.
async fn converse(stream: &mut TcpStream, service: &Service) {
    let mut input = Vec::with_capacity(2048);
    loop {
        let (request, taken) = match parse(&input) {
            Ok(Some(whole)) => whole,
            Ok(None) => {
                input.reserve(2048);
                let Ok((result, filled)) = runtime::timeout(IDLE_MAX, stream.read(std::mem::take(&mut input))).await
                else {
                    return;
                };
                input = filled;
                if !matches!(result, Ok(n) if n > 0) {
                    return;
                }
                continue;
            }
            Err(e) => {
                let _ = stream
                    .write_all(encode(&Response::refusal(e.status, &e.reason), false, true))
                    .await;
                return;
            }
        };
        input.drain(..taken);
        let (keep_alive, has_body) = (request.keep_alive, request.method != "HEAD");
        let is_gone = request.client_is_gone.clone();
        let response = answered(stream, &mut input, &is_gone, service(request)).await;
        let sent = stream.write_all(encode(&response, keep_alive, has_body));
        let sent = runtime::timeout(IDLE_MAX, sent).await;
        if !keep_alive || !matches!(sent, Ok((Ok(()), _))) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
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
