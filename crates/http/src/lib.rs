//! HTTP/1.1 and 1.0 of a server, as bytes: requests from what has arrived, answers to what is sent.
//!
//! Sources: RFC 9110 (semantics) and RFC 9112 (framing). [`httparse`] reads request lines and headers; the length of a
//! body, chunks and everything else is here. There are no sockets, no clock and no tasks: a server keeps a
//! [`RequestReader`] for each connection and calls it with the bytes it has.
//!
//! **Invariants**
//! - A request has one length. Whatever two servers could cut in different places is refused: two Content-Length
//!   headers, Content-Length beside Transfer-Encoding, folded headers, chunks that do not end with CRLF (RFC 9112,
//!   section 11.2).
//! - Nothing is copied before the caller asks for it: a [`Request`] is a view of the bytes.
//! - Work for each call is bounded by the bytes that are new and one head of at most [`Limits::head_bytes_max`].

mod answer;
mod chunks;
#[doc(hidden)]
pub mod fuzz;
mod head;
mod reader;
mod target;

use std::fmt;

pub use answer::{CONTINUE, reason, write_head};
pub use chunks::{CHUNK_FRAMING_BYTES_MAX, CHUNK_LINE_BYTES_MAX, TRAILER_BYTES_MAX};
pub use head::{BodyLength, HEADERS_MAX, Head, Header, Version, read_head};
pub use reader::{Body, Partial, Progress, Request, RequestReader};
pub use target::{Target, escape};

/// What a server takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The longest request line with its headers, in bytes. Longer ones are refused with 431.
    pub head_bytes_max: usize,
    /// The longest body, in bytes. Longer ones are refused with 413.
    pub body_bytes_max: usize,
    /// Whether bodies in chunks are taken. If not, they are refused with 501.
    pub takes_chunks: bool,
}

/// A request that the server does not take. What follows it on the connection cannot be read: the connection ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestError {
    /// The status of the answer: 400, 413, 431 or 501.
    pub status: u16,
    /// What is wrong with the request.
    pub reason: String,
}

impl RequestError {
    pub(crate) fn new(status: u16, reason: impl Into<String>) -> Self {
        Self {
            status,
            reason: reason.into(),
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.reason)
    }
}

impl std::error::Error for RequestError {}
