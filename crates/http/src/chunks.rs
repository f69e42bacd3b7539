//! Bodies in chunks (RFC 9112, section 7.1):
//!
//! ```text
//! 5;name=value CRLF hello CRLF      a chunk of five bytes, with an extension that is ignored
//! 0 CRLF                            the last chunk
//! Name: value CRLF                  a trailer, which is ignored
//! CRLF
//! ```
//!
//! [`Scan`] follows the chunks while they arrive and looks at each byte once. The body is put together only when it is
//! whole, by [`append_body`]. Lines end with CRLF: where one server takes a bare LF for the end of a line and another
//! does not, they see different requests.

use stdx::preempt;

use crate::{Limits, RequestError};

/// The longest line with the size of a chunk and its extensions, with CRLF.
pub const CHUNK_LINE_BYTES_MAX: usize = 256;
/// What the lines and ends of all chunks of a body may take: chunks of 512 bytes for a body of 16 MiB.
pub const CHUNK_FRAMING_BYTES_MAX: usize = 256 << 10;
/// What the trailers of a body may take.
pub const TRAILER_BYTES_MAX: usize = 4 << 10;

/// Where in a chunked body the scan is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Before the line with a chunk's size.
    Size,
    /// In a chunk with so many bytes left.
    Data(usize),
    /// Before the CRLF after a chunk's bytes.
    End,
    /// Before a trailer, or the empty line at the end.
    Trailer,
    Whole,
}

/// A scan of one chunked body. Positions count from the first byte after the head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scan {
    at: usize,
    state: State,
    /// Bytes of the body so far.
    body_bytes: usize,
    trailer_bytes: usize,
}

impl Scan {
    pub(crate) const fn new() -> Self {
        Self {
            at: 0,
            state: State::Size,
            body_bytes: 0,
            trailer_bytes: 0,
        }
    }

    /// Scans what has arrived of the body; whether it is whole.
    ///
    /// # Errors
    /// When it is not a body in chunks, or exceeds a limit.
    pub(crate) fn advance(&mut self, wire: &[u8], limits: &Limits) -> Result<bool, RequestError> {
        while self.state != State::Whole {
            let rest = &wire[self.at..];
            let stepped = match self.state {
                State::Size => self.size_line(rest, limits)?,
                State::Data(left) => {
                    let arrived = left.min(rest.len());
                    self.at += arrived;
                    self.state = if left == arrived {
                        State::End
                    } else {
                        State::Data(left - arrived)
                    };
                    arrived == left
                }
                State::End => self.end_of_chunk(rest)?,
                State::Trailer => self.trailer(rest)?,
                State::Whole => false,
            };
            if !stepped {
                return Ok(false);
            }
            preempt::point();
            if self.at - self.body_bytes_passed() > CHUNK_FRAMING_BYTES_MAX {
                let reason = format!("the lines between chunks have more than {CHUNK_FRAMING_BYTES_MAX} bytes");
                return Err(RequestError::new(400, reason));
            }
        }
        Ok(true)
    }

    /// Bytes of the body that were scanned.
    fn body_bytes_passed(&self) -> usize {
        match self.state {
            State::Data(left) => self.body_bytes - left,
            _ => self.body_bytes,
        }
    }

    /// Bytes of the whole body, once it is whole.
    pub(crate) fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    /// Bytes with lines and trailers, once it is whole.
    pub(crate) fn wire_bytes(&self) -> usize {
        self.at
    }

    /// How many bytes must have arrived before it makes sense to scan again, as far as that is known.
    pub(crate) fn wanted_bytes(&self) -> usize {
        match self.state {
            State::Data(left) => self.at + left + 2,
            _ => self.at + 1,
        }
    }

    fn size_line(&mut self, rest: &[u8], limits: &Limits) -> Result<bool, RequestError> {
        let Some(line) = line(rest, CHUNK_LINE_BYTES_MAX, 400, "a chunk's line")? else {
            return Ok(false);
        };
        let size = size_of(line)?;
        let body_bytes = self.body_bytes.saturating_add(size);
        if body_bytes > limits.body_bytes_max {
            let max = limits.body_bytes_max;
            let reason = format!("a body of {body_bytes} bytes and more; {max} are the most that is taken");
            return Err(RequestError::new(413, reason));
        }
        self.body_bytes = body_bytes;
        self.at += line.len() + 2;
        self.state = match size {
            0 => State::Trailer,
            size => State::Data(size),
        };
        Ok(true)
    }

    fn end_of_chunk(&mut self, rest: &[u8]) -> Result<bool, RequestError> {
        match rest {
            [b'\r', b'\n', ..] => {
                self.at += 2;
                self.state = State::Size;
                Ok(true)
            }
            [] | [b'\r'] => Ok(false),
            _ => Err(RequestError::new(400, "a chunk is longer than its size")),
        }
    }

    fn trailer(&mut self, rest: &[u8]) -> Result<bool, RequestError> {
        let left = TRAILER_BYTES_MAX - self.trailer_bytes;
        let Some(line) = line(rest, left, 431, "the last lines of the trailers")? else {
            return Ok(false);
        };
        self.trailer_bytes += line.len() + 2;
        self.at += line.len() + 2;
        if line.is_empty() {
            self.state = State::Whole;
        }
        Ok(true)
    }
}

/// The line that the bytes begin with, without CRLF; None while it is not whole. With CRLF it has at most `bytes_max`.
fn line<'b>(bytes: &'b [u8], bytes_max: usize, status: u16, what: &str) -> Result<Option<&'b [u8]>, RequestError> {
    let within = &bytes[..bytes.len().min(bytes_max)];
    match within.iter().position(|byte| *byte == b'\n') {
        Some(end) => match within[..end].strip_suffix(b"\r") {
            Some(line) if !line.contains(&b'\r') => Ok(Some(line)),
            _ => Err(RequestError::new(
                400,
                format!("{what}: expected CRLF at the end of the line"),
            )),
        },
        None if within.len() == bytes_max => Err(RequestError::new(
            status,
            format!("{what}: more than {bytes_max} bytes"),
        )),
        None => Ok(None),
    }
}

/// The size in the line of a chunk. Extensions are ignored.
fn size_of(line: &[u8]) -> Result<usize, RequestError> {
    let end = line
        .iter()
        .position(|byte| !byte.is_ascii_hexdigit())
        .unwrap_or(line.len());
    let (digits, rest) = line.split_at(end);
    let is_extension = rest.trim_ascii_start().first().is_none_or(|byte| *byte == b';');
    let size = digits.iter().try_fold(0_usize, |size, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        size.checked_mul(16)?.checked_add(usize::try_from(digit).ok()?)
    });
    size.filter(|_| !digits.is_empty() && is_extension).ok_or_else(|| {
        let line = String::from_utf8_lossy(&line[..line.len().min(40)]).into_owned();
        RequestError::new(
            400,
            format!("a chunk's size: expected hexadecimal digits, got '{line}'"),
        )
    })
}

/// Appends the bytes of a body that [`Scan`] has found to be whole.
pub(crate) fn append_body(mut wire: &[u8], out: &mut Vec<u8>) {
    while let Ok(Some(line)) = line(wire, CHUNK_LINE_BYTES_MAX, 400, "") {
        let Ok(size @ 1..) = size_of(line) else { return };
        let begin = line.len() + 2;
        let (Some(data), Some(rest)) = (wire.get(begin..begin + size), wire.get(begin + size + 2..)) else {
            return;
        };
        preempt::append(out, data);
        preempt::point();
        wire = rest;
    }
}
