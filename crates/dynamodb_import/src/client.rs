//! A connection to the DynamoDB API: one request at a time, over HTTP/1.1.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use dynamodb_server::sigv4::{Signer, sign};
use runtime::net::TcpStream;
use serde_json::Value;

/// An answer longer than this is not of an operation that this command uses.
const ANSWER_BYTES_MAX: usize = 32 << 20;
const HEADERS_MAX: usize = 64;
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(10);
/// Longer than an operation of the node may take (`alternator_timeout`).
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(60);

/// Where the API is.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    address: SocketAddr,
    /// The value of the header Host.
    host: String,
}

impl Endpoint {
    /// Reads `http://HOST[:PORT]` and looks the host up.
    ///
    /// # Errors
    /// When it is no such URL, asks for TLS, or the host is not known.
    pub(crate) async fn of(url: &str) -> Result<Self, String> {
        let (host, port) = split(url).map_err(|reason| format!("--endpoint: {reason}"))?;
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let ip = match bare.parse() {
            Ok(ip) => ip,
            Err(_) => address_of(bare)
                .await
                .map_err(|reason| format!("--endpoint: '{bare}' {reason}"))?,
        };
        Ok(Self {
            address: SocketAddr::new(ip, port),
            host: format!("{host}:{port}"),
        })
    }
}

async fn address_of(name: &str) -> Result<IpAddr, String> {
    let found = runtime::net::resolve(name).await;
    let found = found.map_err(|e| format!("does not resolve: {e}"))?;
    runtime::net::preferred(&found).ok_or_else(|| "has no address".to_owned())
}

/// Host and port of a URL.
fn split(url: &str) -> Result<(&str, u16), String> {
    const EXPECTED: &str = "expected http://HOST:PORT";
    if url.starts_with("https://") {
        return Err("https is not supported; name the port without TLS (alternator_port)".to_owned());
    }
    let rest = url
        .strip_prefix("http://")
        .ok_or_else(|| format!("{EXPECTED}, got '{url}'"))?;
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    // The colons of an IPv6 address are between brackets.
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            let port = port.parse().map_err(|_| format!("{EXPECTED}, got port '{port}'"))?;
            (host, port)
        }
        _ => (authority, 80),
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || ".-_[]:".contains(c);
    if host.is_empty() || !host.chars().all(is_host) {
        return Err(format!("{EXPECTED}, got '{url}'"));
    }
    Ok((host, port))
}

/// Why an operation has no result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// The service refused it: the name of its error and the message.
    Refused { name: String, message: String },
    /// It may succeed when it is repeated: the node is overloaded, or the connection broke.
    Passing(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused { name, message } => write!(f, "{name}: {message}"),
            Self::Passing(reason) => f.write_str(reason),
        }
    }
}

/// See the module.
pub(crate) struct Client {
    endpoint: Endpoint,
    signer: Option<Signer>,
    /// None before the first request, and after one that failed.
    stream: Option<TcpStream>,
}

impl Client {
    pub(crate) fn new(endpoint: Endpoint, signer: Option<Signer>) -> Self {
        Self {
            endpoint,
            signer,
            stream: None,
        }
    }

    /// Runs an operation and returns its result.
    ///
    /// # Errors
    /// See [`Failure`].
    pub(crate) async fn call(&mut self, operation: &str, body: &[u8]) -> Result<Value, Failure> {
        let asked = runtime::timeout(ANSWER_WAIT_MAX, self.ask(operation, body)).await;
        let asked = asked.unwrap_or_else(|_| Err("the node did not answer in time".to_owned()));
        let (status, answer) = asked.map_err(|reason| {
            self.stream = None;
            Failure::Passing(format!("{}: {reason}", self.endpoint.address))
        })?;
        if status == 200 {
            return Ok(answer);
        }
        let kind = answer["__type"].as_str().unwrap_or_default();
        let name = kind.rsplit('#').next().unwrap_or_default();
        let message = answer["message"]
            .as_str()
            .or(answer["Message"].as_str())
            .unwrap_or_default();
        if status >= 500 || PASSING.contains(&name) {
            return Err(Failure::Passing(format!("{status} {name}: {message}")));
        }
        Err(Failure::Refused {
            name: if name.is_empty() {
                format!("HTTP status {status}")
            } else {
                name.to_owned()
            },
            // A wrong signature is explained in many lines.
            message: message.lines().next().unwrap_or_default().to_owned(),
        })
    }

    async fn ask(&mut self, operation: &str, body: &[u8]) -> Result<(u16, Value), String> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => connect(self.endpoint.address).await?,
        };
        let sent = stream.write_all(self.request(operation, body)).await.0;
        sent.map_err(|e| e.to_string())?;
        let mut input = Vec::new();
        loop {
            if let Some(answer) = whole(&input)? {
                if !answer.closes {
                    self.stream = Some(stream);
                }
                let body = &input[answer.body];
                let value = serde_json::from_slice(body);
                // What is no JSON is not of this API, or of a proxy.
                return Ok((answer.status, value.unwrap_or(Value::Null)));
            }
            if input.len() > ANSWER_BYTES_MAX {
                return Err("the answer is too long".to_owned());
            }
            input.reserve(16 << 10);
            let (read, filled) = stream.read(input).await;
            input = filled;
            if read.map_err(|e| e.to_string())? == 0 {
                return Err("the node closed the connection".to_owned());
            }
        }
    }

    fn request(&self, operation: &str, body: &[u8]) -> Vec<u8> {
        let (host, length) = (&self.endpoint.host, body.len());
        let target = format!("DynamoDB_20120810.{operation}");
        let mut head = format!(
            "POST / HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/x-amz-json-1.0\r\n\
             X-Amz-Target: {target}\r\nContent-Length: {length}\r\n"
        );
        if let Some(signer) = &self.signer {
            let signed = sign(signer, host, &target, body, runtime::wall_clock_us() / 1_000_000);
            head += &format!(
                "X-Amz-Date: {}\r\nAuthorization: {}\r\n",
                signed.date, signed.authorization
            );
        }
        head += "\r\n";
        let mut request = head.into_bytes();
        request.extend_from_slice(body);
        request
    }
}

/// Errors of requests that SDKs repeat; those with status 500 and more are repeated too.
const PASSING: [&str; 5] = [
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "RequestLimitExceeded",
    "TransactionInProgressException",
    "LimitExceededException",
];

async fn connect(address: SocketAddr) -> Result<TcpStream, String> {
    let connected = runtime::timeout(CONNECT_WAIT_MAX, TcpStream::connect(address)).await;
    let stream = connected.map_err(|_| "it did not accept the connection in time".to_owned())?;
    let stream = stream.map_err(|e| e.to_string())?;
    stream.set_nodelay(true).map_err(|e| e.to_string())?;
    Ok(stream)
}

/// An answer that is whole.
#[derive(PartialEq, Eq, Debug)]
struct Answer {
    status: u16,
    /// Where its body is.
    body: std::ops::Range<usize>,
    /// Whether the connection ends with it.
    closes: bool,
}

/// The answer, once all of it is there.
fn whole(bytes: &[u8]) -> Result<Option<Answer>, String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let start = match response.parse(bytes) {
        Ok(httparse::Status::Complete(start)) => start,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(e) => return Err(format!("not an HTTP answer: {e}")),
    };
    let value = |name: &str| {
        let header = response
            .headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(header.value).ok().map(str::trim)
    };
    let length = value("content-length").and_then(|length| length.parse::<usize>().ok());
    let length = length.filter(|length| *length <= ANSWER_BYTES_MAX);
    let end = start + length.ok_or("the answer does not say its length")?;
    let closes = value("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    Ok((bytes.len() >= end).then(|| Answer {
        status: response.code.unwrap_or(0),
        body: start..end,
        closes,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_url_without_tls() {
        let good = [
            ("http://127.0.0.1:8000", ("127.0.0.1", 8000)),
            ("http://node-1.example/", ("node-1.example", 80)),
            ("http://[::1]:8000", ("[::1]", 8000)),
            ("http://[::1]", ("[::1]", 80)),
        ];
        for (url, expected) in good {
            assert_eq!(split(url), Ok(expected), "{url}");
        }
        let refused = [
            ("https://127.0.0.1:8000", "https is not supported"),
            ("127.0.0.1:8000", "expected http://HOST:PORT"),
            ("http://:8000", "expected http://HOST:PORT"),
            ("http://h:80000", "got port '80000'"),
            ("http://h\r\nX: y:80", "expected http://HOST:PORT"),
            ("http://h:80/path", "got port '80/path'"),
        ];
        for (url, expected) in refused {
            let error = split(url).expect_err("it is no endpoint");
            assert!(error.contains(expected), "{url}: {error}");
        }
    }

    #[test]
    fn an_answer_is_whole_when_its_body_is() {
        let answer = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\nConnection: close\r\n\r\n{}";
        let expected = Answer {
            status: 400,
            body: answer.len() - 2..answer.len(),
            closes: true,
        };
        assert_eq!(whole(answer), Ok(Some(expected)));
        assert_eq!(whole(&answer[..answer.len() - 1]), Ok(None));
        assert_eq!(whole(&answer[..20]), Ok(None));
        assert!(whole(b"HTTP/1.1 200 OK\r\n\r\n").is_err(), "it has no length");
        assert!(whole(b"SSH-2.0\r\n").is_err());
    }
}
