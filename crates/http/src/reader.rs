//! Cuts the bytes of a connection into requests.

use stdx::preempt;

use crate::chunks::{CHUNK_FRAMING_BYTES_MAX, Scan, TRAILER_BYTES_MAX, append_body};
use crate::{BodyLength, Head, Limits, RequestError, read_head};

/// The buffer of a chunked body begins with so many bytes, and has the most that there can be once these are full: its
/// length is not known.
const CHUNKED_BYTES_FIRST: usize = 64 << 10;
/// The buffer of a head that is not whole has so many bytes, and the most that a head may have once these are full.
const HEAD_BYTES_FIRST: usize = 2 << 10;

/// A request, as a view of the bytes of its connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request<'b> {
    /// Its head.
    pub head: Head<'b>,
    /// Its body.
    pub body: Body<'b>,
    /// Bytes of the whole request: those of the next one follow.
    pub bytes: usize,
}

/// A body as it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body<'b> {
    /// In one piece.
    Plain(&'b [u8]),
    /// In chunks.
    Chunked {
        /// The chunks with their lines.
        wire: &'b [u8],
        /// Bytes of the body alone.
        bytes: usize,
    },
}

impl Body<'_> {
    /// Bytes of the body.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Plain(body) => body.len(),
            Self::Chunked { bytes, .. } => *bytes,
        }
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy of the body, with preemption points.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        match self {
            Self::Plain(body) => preempt::append(&mut out, body),
            Self::Chunked { wire, .. } => append_body(wire, &mut out),
        }
        out
    }
}

/// What is known of a request that is not whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Partial {
    /// How many bytes the request needs in all, as far as that is known.
    pub wanted_bytes: usize,
    /// Bytes of its head; 0 while that is not whole.
    pub head_bytes: usize,
    /// Its head is whole, and the client may wait for `100 Continue` before it sends the body.
    pub expects_continue: bool,
}

/// What the bytes of a connection begin with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress<'b> {
    /// A request.
    Whole(Request<'b>),
    /// A part of one, or nothing.
    Partial(Partial),
}

/// See the module. It remembers how far the chunks of a request have been looked at.
#[derive(Clone, Debug)]
pub struct RequestReader {
    limits: Limits,
    scan: Option<Scan>,
}

impl RequestReader {
    /// Of a new connection.
    #[must_use]
    pub const fn new(limits: Limits) -> Self {
        Self { limits, scan: None }
    }

    /// The request that `bytes` begin with. Until it is whole, the same bytes and those that follow are given again.
    ///
    /// # Errors
    /// When they never will be a request that is taken: the connection ends.
    pub fn next<'b>(&mut self, bytes: &'b [u8]) -> Result<Progress<'b>, RequestError> {
        let Some(head) = read_head(bytes, &self.limits)? else {
            let head_bytes_max = self.limits.head_bytes_max;
            let wanted_bytes = if bytes.len() < HEAD_BYTES_FIRST {
                HEAD_BYTES_FIRST.min(head_bytes_max)
            } else {
                head_bytes_max
            };
            return Ok(Progress::Partial(Partial {
                wanted_bytes,
                head_bytes: 0,
                expects_continue: false,
            }));
        };
        let rest = &bytes[head.bytes..];
        match head.body {
            BodyLength::Bytes(length) => Ok(match rest.get(..length) {
                Some(body) => Progress::Whole(Request {
                    bytes: head.bytes + length,
                    body: Body::Plain(body),
                    head,
                }),
                None => Progress::Partial(Partial {
                    wanted_bytes: head.bytes + length,
                    head_bytes: head.bytes,
                    expects_continue: head.expects_continue && rest.is_empty(),
                }),
            }),
            BodyLength::Chunked => self.chunked(head, rest),
        }
    }

    fn chunked<'b>(&mut self, head: Head<'b>, rest: &'b [u8]) -> Result<Progress<'b>, RequestError> {
        let mut scan = self.scan.take().unwrap_or(Scan::new());
        if !scan.advance(rest, &self.limits)? {
            self.scan = Some(scan);
            let longest = self.limits.body_bytes_max + CHUNK_FRAMING_BYTES_MAX + TRAILER_BYTES_MAX;
            let is_short = scan.wanted_bytes().max(rest.len() + 1) <= CHUNKED_BYTES_FIRST;
            let room = if is_short {
                CHUNKED_BYTES_FIRST.min(longest)
            } else {
                longest
            };
            return Ok(Progress::Partial(Partial {
                wanted_bytes: head.bytes + room,
                head_bytes: head.bytes,
                expects_continue: head.expects_continue && rest.is_empty(),
            }));
        }
        let wire = &rest[..scan.wire_bytes()];
        Ok(Progress::Whole(Request {
            bytes: head.bytes + wire.len(),
            body: Body::Chunked {
                wire,
                bytes: scan.body_bytes(),
            },
            head,
        }))
    }
}
