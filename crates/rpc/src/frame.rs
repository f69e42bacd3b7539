//! Frames: what a connection carries after the hello.
//!
//! ```text
//!  0  CRC-32C       4 bytes, of everything from byte 4 to the end of the body
//!  4  body length   4 bytes
//!  8  kind          1 byte
//!  9  flags         1 byte; 1: a trace id is the first 16 bytes of the body; the others are zero
//! 10  verb          2 bytes; of requests and one-way messages
//! 12  time          4 bytes (`clock.rs`); of requests and one-way messages the deadline,
//!                   of answers the moment at which the frame was written to the socket
//! 16  id            8 bytes, chosen by the caller, repeated in the answer
//! 24  body
//! ```
//!
//! An answer longer than [`crate::PART_BYTES`] comes as parts, and its last bytes as a response: a reader joins what
//! has one id (`parts.rs`).
//!
//! Integers are big-endian. A frame waits in the outbox without its time and its checksum, which are written when it
//! goes to the socket ([`seal`]).

use std::fmt;
use std::ops::Range;
use stdx::crc32c::{crc32c, extend};

/// Bytes before the body.
pub(crate) const HEADER_BYTES: usize = 24;
/// Bytes of the checksum, which does not cover itself.
const CHECKSUM_BYTES: usize = 4;

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Wants an answer.
    Request = 1,
    /// The answer.
    Response = 2,
    /// The answer is an error.
    Error = 3,
    /// Wants no answer.
    OneWay = 4,
    /// The caller does not wait any more.
    Cancel = 5,
    /// Wants a pong.
    Ping = 6,
    /// The other end is alive.
    Pong = 7,
    /// The next bytes of an answer; more follow.
    Part = 8,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Request,
            2 => Self::Response,
            3 => Self::Error,
            4 => Self::OneWay,
            5 => Self::Cancel,
            6 => Self::Ping,
            7 => Self::Pong,
            8 => Self::Part,
            _ => return None,
        })
    }
}

/// The part of a frame before the body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// The body begins with a [`TraceId`]; of requests and one-way messages.
    pub(crate) is_traced: bool,
    pub(crate) verb: u16,
    pub(crate) time: u32,
    pub(crate) id: u64,
}

impl Header {
    /// A frame that has no verb and no deadline.
    pub(crate) const fn plain(kind: Kind, id: u64) -> Self {
        Self {
            kind,
            is_traced: false,
            verb: 0,
            time: 0,
            id,
        }
    }
}

/// The id of a trace, in the body of a frame whose header says that it is traced.
pub type TraceId = [u8; 16];

/// The flag of a frame that has a [`TraceId`].
const TRACED: u8 = 1;

/// Why bytes are not a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FrameError {
    TooLarge { bytes: usize, bytes_max: usize },
    Checksum { found: u32, expected: u32 },
    UnknownKind(u8),
    UnknownFlags(u8),
}

impl fmt::Display for FrameError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes, bytes_max } => {
                write!(formatter, "a frame of {bytes} bytes is above the limit of {bytes_max}")
            }
            Self::Checksum { found, expected } => {
                write!(
                    formatter,
                    "a frame has checksum {found:08x} where {expected:08x} was expected"
                )
            }
            Self::UnknownKind(kind) => write!(formatter, "a frame has the unknown kind {kind}"),
            Self::UnknownFlags(flags) => {
                write!(
                    formatter,
                    "a frame has the flags {flags:#04x}, of which only {TRACED:#04x} is known"
                )
            }
        }
    }
}

/// Where the time is in a frame.
const TIME: Range<usize> = 12..16;

/// Appends a frame that [`seal`] has to complete. The body is below 4 GiB, because callers refuse bodies above
/// [`crate::Limits::body_bytes_max`].
pub(crate) fn append(out: &mut Vec<u8>, header: Header, body: &[u8]) {
    out.reserve(HEADER_BYTES + body.len());
    append_with(out, header, |out| out.extend_from_slice(body));
}

/// Appends a frame whose body `write` appends. See [`append`].
#[inline]
pub(crate) fn append_with(out: &mut Vec<u8>, header: Header, write: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = [0_u8; HEADER_BYTES];
    bytes[8] = header.kind as u8;
    bytes[9] = if header.is_traced { TRACED } else { 0 };
    bytes[10..12].copy_from_slice(&header.verb.to_be_bytes());
    bytes[TIME].copy_from_slice(&header.time.to_be_bytes());
    bytes[16..24].copy_from_slice(&header.id.to_be_bytes());
    let start = out.len();
    out.extend_from_slice(&bytes);
    write(out);
    let length = out.len() - start - HEADER_BYTES;
    let length = u32::try_from(length).expect("bodies above the limit were refused");
    out[start + 4..start + 8].copy_from_slice(&length.to_be_bytes());
}

/// Appends the header of a frame whose body is elsewhere. [`seal_apart`] completes it.
pub(crate) fn append_header(out: &mut Vec<u8>, header: Header, body_bytes: usize) {
    let start = out.len();
    append_with(out, header, |_| {});
    let length = u32::try_from(body_bytes).expect("bodies above the limit were refused");
    out[start + 4..start + 8].copy_from_slice(&length.to_be_bytes());
}

/// The end of the frame that [`append`] wrote at byte `start`.
pub(crate) fn end(bytes: &[u8], start: usize) -> Option<usize> {
    let header = bytes.get(start..)?.first_chunk::<HEADER_BYTES>()?;
    let length = u32::from_be_bytes([header[4], header[5], header[6], header[7]]) as usize;
    Some(start + HEADER_BYTES + length).filter(|end| *end <= bytes.len())
}

/// Writes the time into a frame that is not sealed.
pub(crate) fn put_time(bytes: &mut [u8], start: usize, time: u32) {
    if let Some(frame) = bytes.get_mut(start..).and_then(|rest| rest.get_mut(TIME)) {
        frame.copy_from_slice(&time.to_be_bytes());
    }
}

/// Writes the checksums of frames that follow each other, and their time where all have one.
pub(crate) fn seal(bytes: &mut [u8], time: Option<u32>) {
    let mut start = 0;
    while let Some(end) = end(bytes, start) {
        if let Some(time) = time {
            put_time(bytes, start, time);
        }
        let checksum = crc32c(&bytes[start + CHECKSUM_BYTES..end]);
        bytes[start..start + CHECKSUM_BYTES].copy_from_slice(&checksum.to_be_bytes());
        start = end;
    }
}

/// Writes the checksum of a frame whose header is the last of `bytes`, and whose body is elsewhere.
pub(crate) fn seal_apart(bytes: &mut [u8], body: &[u8], time: Option<u32>) {
    let start = bytes.len() - HEADER_BYTES;
    if let Some(time) = time {
        put_time(bytes, start, time);
    }
    let checksum = extend(crc32c(&bytes[start + CHECKSUM_BYTES..]), body);
    bytes[start..start + CHECKSUM_BYTES].copy_from_slice(&checksum.to_be_bytes());
}

/// A frame at the front of some bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    pub(crate) header: Header,
    /// Where the body is; the frame ends with it. The range of a body that is elsewhere begins at byte 0.
    pub(crate) body: Range<usize>,
}

/// The frame that begins at byte `start`, or `None` when more bytes are needed.
pub(crate) fn parse(bytes: &[u8], start: usize, body_bytes_max: usize) -> Result<Option<Frame>, FrameError> {
    let Some(bytes) = bytes.get(start..) else {
        return Ok(None);
    };
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let length = body_bytes(header);
    if length > body_bytes_max {
        return Err(FrameError::TooLarge {
            bytes: length,
            bytes_max: body_bytes_max,
        });
    }
    let Some(covered) = bytes.get(CHECKSUM_BYTES..HEADER_BYTES + length) else {
        return Ok(None);
    };
    let checksum = crc32c(covered);
    let begin = start + HEADER_BYTES;
    Ok(Some(Frame {
        header: decode(header, checksum)?,
        body: begin..begin + length,
    }))
}

/// The length of the body that a header announces.
pub(crate) fn body_bytes(header: &[u8; HEADER_BYTES]) -> usize {
    word(header, 4) as usize
}

/// What the header of a frame says whose body is elsewhere.
pub(crate) fn parse_apart(header: &[u8; HEADER_BYTES], body: &[u8]) -> Result<Header, FrameError> {
    decode(header, extend(crc32c(&header[CHECKSUM_BYTES..]), body))
}

/// What a header says, if it has the checksum that the frame should have.
fn decode(header: &[u8; HEADER_BYTES], expected: u32) -> Result<Header, FrameError> {
    let found = word(header, 0);
    if found != expected {
        return Err(FrameError::Checksum { found, expected });
    }
    let flags = header[9];
    if flags & !TRACED != 0 {
        return Err(FrameError::UnknownFlags(flags));
    }
    Ok(Header {
        kind: Kind::from_byte(header[8]).ok_or(FrameError::UnknownKind(header[8]))?,
        is_traced: flags & TRACED != 0,
        verb: u16::from_be_bytes([header[10], header[11]]),
        time: word(header, 12),
        id: u64::from(word(header, 16)) << 32 | u64::from(word(header, 20)),
    })
}

fn word(header: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn append_sealed(out: &mut Vec<u8>, header: Header, body: &[u8]) {
        let start = out.len();
        append(out, header, body);
        seal(&mut out[start..], None);
    }

    fn any_header() -> impl Strategy<Value = Header> {
        let fields = (1..=8_u8, any::<bool>(), any::<u16>(), any::<u32>(), any::<u64>());
        fields.prop_map(|(kind, is_traced, verb, time, id)| Header {
            kind: Kind::from_byte(kind).expect("1 to 8 are kinds"),
            is_traced,
            verb,
            time,
            id,
        })
    }

    proptest! {
        #[test]
        fn a_frame_is_read_as_it_was_written_and_not_before_it_is_whole(
            header in any_header(),
            body in prop::collection::vec(any::<u8>(), 0..200),
            before in 0..10_usize,
        ) {
            let mut bytes = vec![0; before];
            append_sealed(&mut bytes, header, &body);
            for end in 0..bytes.len() {
                prop_assert_eq!(parse(&bytes[..end], before, 1000), Ok(None));
            }
            let frame = parse(&bytes, before, 1000).expect("it is a frame").expect("it is whole");
            prop_assert_eq!(frame.header, header);
            prop_assert_eq!(&bytes[frame.body.clone()], &body[..]);
            prop_assert_eq!(frame.body.end, bytes.len());
        }

        #[test]
        fn one_changed_bit_is_found(
            header in any_header(),
            body in prop::collection::vec(any::<u8>(), 0..200),
            bit in any::<prop::sample::Index>(),
        ) {
            let mut bytes = Vec::new();
            append_sealed(&mut bytes, header, &body);
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let read = parse(&bytes, 0, 1000);
            // A length that grew only makes the reader wait for more.
            prop_assert!(!matches!(read, Ok(Some(_))), "a damaged frame was read: {:?}", read);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), start in 0..120_usize) {
            let _ = parse(&bytes, start, 50);
        }
    }

    #[test]
    fn a_frame_above_the_limit_is_refused_before_its_body_has_come() {
        let mut bytes = Vec::new();
        append_sealed(&mut bytes, Header::plain(Kind::Ping, 0), &[0; 101]);
        let expected = FrameError::TooLarge {
            bytes: 101,
            bytes_max: 100,
        };
        assert_eq!(parse(&bytes[..HEADER_BYTES], 0, 100), Err(expected));
    }

    #[test]
    fn a_kind_and_a_flag_that_are_not_known_are_named() {
        for (at, value, expected) in [
            (8, 99, FrameError::UnknownKind(99)),
            (9, 3, FrameError::UnknownFlags(3)),
        ] {
            let mut bytes = Vec::new();
            append_sealed(&mut bytes, Header::plain(Kind::Ping, 0), &[]);
            bytes[at] = value;
            let checksum = crc32c(&bytes[4..]);
            bytes[..4].copy_from_slice(&checksum.to_be_bytes());
            assert_eq!(parse(&bytes, 0, 100), Err(expected));
        }
    }
}
