//! The head of a request: method, target, headers, and what they say of the body and the connection.

use crate::{Limits, RequestError};

/// Headers of a request. More are refused with 431.
pub const HEADERS_MAX: usize = 64;

/// A header. Names have letters in any case (RFC 9110, section 5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header<'b> {
    /// The name as it was sent.
    pub name: &'b str,
    /// The value as it was sent, without the spaces around it.
    pub value: &'b [u8],
}

/// The version of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// HTTP/1.0: connections end after an answer unless the client asks otherwise.
    Http10,
    /// HTTP/1.1.
    Http11,
}

/// How the length of a body is known (RFC 9112, section 6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyLength {
    /// So many bytes; 0 without a Content-Length.
    Bytes(usize),
    /// It comes in chunks.
    Chunked,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head<'b> {
    /// GET, POST, …
    pub method: &'b str,
    /// The request target, encoded.
    pub target: &'b str,
    /// The version.
    pub version: Version,
    /// All headers, in order.
    pub headers: Vec<Header<'b>>,
    /// The length of the body.
    pub body: BodyLength,
    /// Whether the connection stays open after the answer.
    pub keep_alive: bool,
    /// The client sends the body only after it has received `100 Continue`, or has waited for it.
    pub expects_continue: bool,
    /// Bytes of the head, with the empty line.
    pub bytes: usize,
}

impl<'b> Head<'b> {
    /// The values of all headers of this name.
    pub fn values<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'b [u8]> + 's {
        let named = self
            .headers
            .iter()
            .filter(move |header| header.name.eq_ignore_ascii_case(name));
        named.map(|header| header.value)
    }

    /// The value of the first header of this name, if it is text.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&'b str> {
        self.values(name)
            .next()
            .and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Whether headers of this name list a word, such as `gzip` in Accept-Encoding. Parameters after a semicolon are
    /// not looked at.
    #[must_use]
    pub fn lists(&self, name: &str, word: &str) -> bool {
        self.values(name).any(|value| lists(value, word))
    }
}

/// Whether a list separated by commas has a word.
fn lists(value: &[u8], word: &str) -> bool {
    let value = std::str::from_utf8(value).unwrap_or_default();
    let mut words = value.split(',').map(|item| item.split(';').next().unwrap_or_default());
    words.any(|item| item.trim().eq_ignore_ascii_case(word))
}

/// The head that `bytes` begin with; None while it is not whole.
///
/// # Errors
/// When it never will be one that is taken.
pub fn read_head<'b>(bytes: &'b [u8], limits: &Limits) -> Result<Option<Head<'b>>, RequestError> {
    let mut parsed = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut parsed);
    let too_long = || {
        let reason = format!("the request's head has more than {} bytes", limits.head_bytes_max);
        RequestError::new(431, reason)
    };
    let head_bytes = match request.parse(bytes) {
        Ok(httparse::Status::Complete(head_bytes)) => head_bytes,
        Ok(httparse::Status::Partial) if bytes.len() >= limits.head_bytes_max => return Err(too_long()),
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            let reason = format!("the request has more than {HEADERS_MAX} headers");
            return Err(RequestError::new(431, reason));
        }
        Err(e) => return Err(RequestError::new(400, format!("not an HTTP request: {e}"))),
    };
    if head_bytes > limits.head_bytes_max {
        return Err(too_long());
    }
    let version = match request.version {
        Some(1) => Version::Http11,
        _ => Version::Http10,
    };
    let headers = request.headers.iter().map(|header| Header {
        name: header.name,
        value: header.value.trim_ascii(),
    });
    let mut head = Head {
        method: request.method.unwrap_or_default(),
        target: request.path.unwrap_or_default(),
        version,
        headers: headers.collect(),
        body: BodyLength::Bytes(0),
        keep_alive: version == Version::Http11,
        expects_continue: false,
        bytes: head_bytes,
    };
    head.body = body_length(&head, limits)?;
    head.keep_alive = !head.lists("connection", "close") && (head.keep_alive || head.lists("connection", "keep-alive"));
    head.expects_continue = version == Version::Http11 && head.lists("expect", "100-continue");
    Ok(Some(head))
}

fn body_length(head: &Head<'_>, limits: &Limits) -> Result<BodyLength, RequestError> {
    let (mut lengths, mut encodings) = (head.values("content-length"), head.values("transfer-encoding"));
    match (lengths.next(), encodings.next()) {
        (None, None) => Ok(BodyLength::Bytes(0)),
        (Some(_), Some(_)) => Err(RequestError::new(
            400,
            "the request has both Content-Length and Transfer-Encoding",
        )),
        (Some(length), None) => match lengths.next() {
            Some(_) => Err(RequestError::new(400, "the request has more than one Content-Length")),
            None => sized(length, limits),
        },
        (None, Some(_)) if !limits.takes_chunks => Err(RequestError::new(
            501,
            "Transfer-Encoding is not supported: send Content-Length",
        )),
        (None, Some(encoding)) => match (
            encoding.eq_ignore_ascii_case(b"chunked"),
            encodings.next(),
            head.version,
        ) {
            (true, None, Version::Http11) => Ok(BodyLength::Chunked),
            (true, _, _) => Err(RequestError::new(
                400,
                "Transfer-Encoding: expected chunked once, in HTTP/1.1",
            )),
            (false, _, _) => Err(RequestError::new(
                501,
                format!("Transfer-Encoding: expected chunked, got '{}'", shown(encoding)),
            )),
        },
    }
}

fn sized(length: &[u8], limits: &Limits) -> Result<BodyLength, RequestError> {
    // `parse` alone would take a plus sign.
    if length.is_empty() || !length.iter().all(u8::is_ascii_digit) {
        let reason = format!("Content-Length: expected a number, got '{}'", shown(length));
        return Err(RequestError::new(400, reason));
    }
    let bytes = std::str::from_utf8(length).unwrap_or_default().parse::<u64>();
    let fits = |bytes: &usize| *bytes <= limits.body_bytes_max;
    let bytes = bytes.ok().and_then(|bytes| usize::try_from(bytes).ok()).filter(fits);
    bytes.map(BodyLength::Bytes).ok_or_else(|| {
        let (given, max) = (shown(length), limits.body_bytes_max);
        RequestError::new(
            413,
            format!("a body of {given} bytes; {max} are the most that is taken"),
        )
    })
}

/// What is shown of a value in an error: its first characters.
fn shown(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(&value[..value.len().min(64)]);
    text.chars().take(40).collect()
}
