//! What target and source say to each other. Integers are big-endian; `sized` bytes follow their length as a vint.
//!
//! ```text
//! 60 open    stream, u8[16] table, u64 truncation, u8 1 with the marks of repairs, else 0,
//!            u64 bytes, vint ranges, each i64 after, i64 to
//!   answer   u8 0: the copy is not ready
//!            u8 1, vint how many of the ranges the copy has, the list of files (`manifest.rs`)
//! 61 read    stream, vint sstable, u8 component, u64 offset, u32 length
//!   answer   u8 1, the bytes
//! 62 close   stream
//!   answer   empty
//! ```
//!
//! A stream is `u8[16]` session, `u64` attempt. Where a request is refused, the answer is `2`, `u8` reason, sized text.
//! To read no bytes keeps the stream open.

use replica::TokenRange;
use schema::TableId;
use sstable::Component;
use stdx::bytes::{Reader, Truncated, put_sized};
use stdx::vint;
use types::Token;
use uuid::Uuid;

use crate::CHUNK_BYTES;
use crate::error::Refusal;
use crate::manifest::Manifest;

/// Open a stream, or ask how far it is.
pub(crate) const OPEN: u16 = crate::FIRST_VERB;
/// Read a part of a file.
pub(crate) const READ: u16 = crate::FIRST_VERB + 1;
/// Close a stream.
pub(crate) const CLOSE: u16 = crate::FIRST_VERB + 2;

const PREPARING: u8 = 0;
/// The first byte of an answer that has what was asked for.
pub(crate) const GIVEN: u8 = 1;
const REFUSED: u8 = 2;

/// Most ranges of a stream.
pub(crate) const RANGES_MAX: usize = 256;

/// Bytes that are not what they should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed(pub(crate) &'static str);

impl From<Truncated> for Malformed {
    fn from(_: Truncated) -> Self {
        Self("the message ends early")
    }
}

/// One attempt to copy ranges from one source.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct StreamId {
    /// What the caller of `pull` does it for.
    pub(crate) session: Uuid,
    /// By chance: what is late of an attempt before does not meddle with this one.
    pub(crate) attempt: u64,
}

impl StreamId {
    /// The name of its directory.
    pub(crate) fn directory(self) -> String {
        format!("{}-{:016x}", self.session.simple(), self.attempt)
    }

    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.session.as_bytes());
        out.extend_from_slice(&self.attempt.to_be_bytes());
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            session: Uuid::from_bytes(reader.get_array()?),
            attempt: reader.get_u64()?,
        })
    }

    /// The request to close it.
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24);
        self.put(&mut out);
        out
    }

    /// Reads such a request.
    pub(crate) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let stream = Self::get(&mut reader)?;
        ended(&reader, stream)
    }
}

fn ended<T>(reader: &Reader<'_>, value: T) -> Result<T, Malformed> {
    match reader.rest() {
        [] => Ok(value),
        _ => Err(Malformed("bytes follow the message")),
    }
}

/// Asks a source for a copy of ranges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Open {
    pub(crate) stream: StreamId,
    pub(crate) table: TableId,
    /// At least one, in token order, none over another.
    pub(crate) ranges: Vec<TokenRange>,
    /// Of several ranges, how many bytes the copy should have at most; else `u64::MAX`.
    pub(crate) bytes: u64,
    /// The last truncation that the target is done with.
    pub(crate) truncated_at: u64,
    /// Whether the target takes the marks that repairs have left. There is one range then.
    pub(crate) with_marks: bool,
}

/// A byte that is 1 or 0; `what` it is, for the error.
pub(crate) fn get_flag(reader: &mut Reader<'_>, what: &'static str) -> Result<bool, Malformed> {
    match reader.get_u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed(what)),
    }
}

fn put_range(out: &mut Vec<u8>, range: TokenRange) {
    out.extend_from_slice(&range.after.0.to_be_bytes());
    out.extend_from_slice(&range.to.0.to_be_bytes());
}

fn get_range(reader: &mut Reader<'_>) -> Result<TokenRange, Malformed> {
    let range = TokenRange {
        after: Token(reader.get_i64()?),
        to: Token(reader.get_i64()?),
    };
    if range.after < range.to {
        Ok(range)
    } else {
        Err(Malformed("a range of tokens is empty"))
    }
}

impl Open {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(96);
        self.stream.put(&mut out);
        out.extend_from_slice(self.table.0.as_bytes());
        out.extend_from_slice(&self.truncated_at.to_be_bytes());
        out.push(u8::from(self.with_marks));
        out.extend_from_slice(&self.bytes.to_be_bytes());
        vint::put_unsigned(&mut out, self.ranges.len() as u64);
        self.ranges.iter().for_each(|range| put_range(&mut out, *range));
        out
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let mut open = Self {
            stream: StreamId::get(&mut reader)?,
            table: TableId(Uuid::from_bytes(reader.get_array()?)),
            truncated_at: reader.get_u64()?,
            with_marks: get_flag(&mut reader, "whether the marks are asked for, 0 or 1")?,
            bytes: reader.get_u64()?,
            ranges: Vec::new(),
        };
        let count = reader.get_vint()?;
        if !(1..=RANGES_MAX as u64).contains(&count) {
            return Err(Malformed("a stream has 1 to 256 ranges"));
        }
        if open.with_marks && count > 1 {
            return Err(Malformed("the marks are of one range"));
        }
        for _ in 0..count {
            let range = get_range(&mut reader)?;
            if open.ranges.last().is_some_and(|last| range.after < last.to) {
                return Err(Malformed("the ranges of tokens are not in order"));
            }
            open.ranges.push(range);
        }
        ended(&reader, open)
    }
}

/// Asks for a part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Read {
    pub(crate) stream: StreamId,
    /// Which sstable of the list.
    pub(crate) sstable: u64,
    pub(crate) component: Component,
    pub(crate) offset: u64,
    /// At most [`CHUNK_BYTES`].
    pub(crate) len: u32,
}

impl Read {
    /// Keeps a stream open.
    pub(crate) fn nothing(stream: StreamId) -> Self {
        Self {
            stream,
            sstable: 0,
            component: Component::Toc,
            offset: 0,
            len: 0,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(48);
        self.stream.put(&mut out);
        vint::put_unsigned(&mut out, self.sstable);
        out.push(number_of(self.component));
        out.extend_from_slice(&self.offset.to_be_bytes());
        out.extend_from_slice(&self.len.to_be_bytes());
        out
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let read = Self {
            stream: StreamId::get(&mut reader)?,
            sstable: reader.get_vint()?,
            component: component_of(reader.get_u8()?)?,
            offset: reader.get_u64()?,
            len: reader.get_u32()?,
        };
        if read.len as usize > CHUNK_BYTES {
            return Err(Malformed("more bytes are asked for than one request may read"));
        }
        ended(&reader, read)
    }
}

/// A component's number on the wire: its place in [`Component::ALL`], from 1.
pub(crate) fn number_of(component: Component) -> u8 {
    let at = Component::ALL.iter().position(|known| *known == component);
    u8::try_from(at.expect("all components are listed") + 1).expect("there are ten components")
}

pub(crate) fn component_of(number: u8) -> Result<Component, Malformed> {
    let at = usize::from(number).checked_sub(1);
    let component = at.and_then(|at| Component::ALL.get(at));
    component.copied().ok_or(Malformed("the component is not known"))
}

/// What a source answers to [`Open`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Opened {
    /// It flushes, or cuts sstables.
    Preparing,
    /// The copy of so many of the ranges is there, from the first.
    Ready(usize, Manifest),
}

impl Opened {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Preparing => vec![PREPARING],
            Self::Ready(ranges, manifest) => {
                let mut out = vec![GIVEN];
                vint::put_unsigned(&mut out, *ranges as u64);
                manifest.put(&mut out);
                out
            }
        }
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Result<Self, Refusal>, Malformed> {
        let mut reader = Reader::new(body);
        let opened = match reader.get_u8()? {
            PREPARING => Self::Preparing,
            GIVEN => match usize::try_from(reader.get_vint()?) {
                Ok(ranges @ 1..=RANGES_MAX) => Self::Ready(ranges, Manifest::get(&mut reader)?),
                _ => return Err(Malformed("a copy has 1 to 256 ranges")),
            },
            REFUSED => return Ok(Err(Refusal::get(&mut reader)?)),
            _ => return Err(Malformed("the answer is of no known kind")),
        };
        Ok(Ok(ended(&reader, opened)?))
    }
}

/// Reads the answer to a [`Read`]: the bytes after the first one, or the source's refusal.
pub(crate) fn decode_bytes(body: &[u8]) -> Result<Result<&[u8], Refusal>, Malformed> {
    match body.split_first() {
        Some((&GIVEN, bytes)) => Ok(Ok(bytes)),
        Some((&REFUSED, refusal)) => Ok(Err(Refusal::get(&mut Reader::new(refusal))?)),
        _ => Err(Malformed("the answer is of no known kind")),
    }
}

impl Refusal {
    fn number_and_text(&self) -> (u8, &str) {
        match self {
            Self::UnknownTable => (1, ""),
            Self::NotHere => (2, ""),
            Self::Missing(text) => (3, text),
            Self::Truncated => (4, ""),
            Self::Overloaded => (5, ""),
            Self::Ended => (6, ""),
            Self::Aborted => (7, ""),
            Self::Failed(text) => (8, text),
        }
    }

    /// The answer that says so.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (number, text) = self.number_and_text();
        let mut out = vec![REFUSED, number];
        put_sized(&mut out, text.as_bytes());
        out
    }

    /// A reason that only later versions know is a failure.
    fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let number = reader.get_u8()?;
        let text = String::from_utf8_lossy(reader.get_sized()?).into_owned();
        let refusal = match number {
            1 => Self::UnknownTable,
            2 => Self::NotHere,
            3 => Self::Missing(text),
            4 => Self::Truncated,
            5 => Self::Overloaded,
            6 => Self::Ended,
            7 => Self::Aborted,
            _ => Self::Failed(text),
        };
        ended(reader, refusal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_back_and_cut_short_they_are_none() {
        let stream = StreamId {
            session: Uuid::from_u128(7),
            attempt: 9,
        };
        let open = Open {
            stream,
            table: TableId(Uuid::from_u128(3)),
            ranges: vec![TokenRange::of(-5, 7)],
            bytes: u64::MAX,
            truncated_at: 12,
            with_marks: false,
        };
        let several = Open {
            ranges: vec![
                TokenRange::of(-5, 7),
                TokenRange::of(7, 9),
                TokenRange::of(20, i64::MAX),
            ],
            bytes: 1 << 28,
            ..open.clone()
        };
        assert_eq!(Open::decode(&several.encode()), Ok(several.clone()));
        for len in 0..several.encode().len() {
            assert!(Open::decode(&several.encode()[..len]).is_err(), "{len} bytes");
        }
        let with_marks = Open {
            with_marks: true,
            ..open.clone()
        };
        assert_eq!(Open::decode(&with_marks.encode()), Ok(with_marks.clone()));
        let marks_of_several = Open {
            with_marks: true,
            ..several
        };
        let refused = Err(Malformed("the marks are of one range"));
        assert_eq!(Open::decode(&marks_of_several.encode()), refused);
        let read = Read {
            stream,
            sstable: 300,
            component: Component::Data,
            offset: 1 << 40,
            len: 4096,
        };
        assert_eq!(Open::decode(&open.encode()), Ok(open.clone()));
        assert_eq!(Read::decode(&read.encode()), Ok(read));
        assert_eq!(StreamId::decode(&stream.encode()), Ok(stream));
        for len in 0..open.encode().len() {
            assert!(Open::decode(&open.encode()[..len]).is_err());
        }
        for len in 0..read.encode().len() {
            assert!(Read::decode(&read.encode()[..len]).is_err());
        }
        let longer = [open.encode(), vec![0]].concat();
        assert_eq!(Open::decode(&longer), Err(Malformed("bytes follow the message")));
        let part = Opened::Ready(2, Manifest::default());
        assert_eq!(Opened::decode(&part.encode()), Ok(Ok(part)));
        assert!(Opened::decode(&Opened::Ready(0, Manifest::default()).encode()).is_err());
    }

    #[test]
    fn ranges_that_are_empty_or_in_no_order_and_a_chunk_that_is_too_long_are_refused() {
        let stream = StreamId {
            session: Uuid::nil(),
            attempt: 0,
        };
        let open = |ranges: &[TokenRange]| Open {
            stream,
            table: TableId(Uuid::nil()),
            ranges: ranges.to_vec(),
            bytes: 0,
            truncated_at: 0,
            with_marks: false,
        };
        let refused: [&[TokenRange]; 7] = [
            &[],
            &[TokenRange::of(5, 5)],
            &[TokenRange::of(5, 4)],
            &[TokenRange::of(1, 5), TokenRange::of(6, 6)],
            &[TokenRange::of(1, 5), TokenRange::of(4, 9)],
            &[TokenRange::of(5, 9), TokenRange::of(1, 4)],
            &(0..=RANGES_MAX as i64)
                .map(|at| TokenRange::of(at, at + 1))
                .collect::<Vec<_>>(),
        ];
        for ranges in refused {
            assert!(Open::decode(&open(ranges).encode()).is_err(), "{ranges:?}");
        }
        let most: Vec<_> = (0..RANGES_MAX as i64).map(|at| TokenRange::of(at, at + 1)).collect();
        assert_eq!(Open::decode(&open(&most).encode()), Ok(open(&most)));
        let read = Read {
            len: u32::try_from(CHUNK_BYTES).expect("a small number") + 1,
            ..Read::nothing(stream)
        };
        assert!(Read::decode(&read.encode()).is_err());
    }

    #[test]
    fn refusals_are_read_back() {
        for refusal in [
            Refusal::UnknownTable,
            Refusal::NotHere,
            Refusal::Missing("me-7-big-0".to_owned()),
            Refusal::Truncated,
            Refusal::Overloaded,
            Refusal::Ended,
            Refusal::Aborted,
            Refusal::Failed("the disk is full".to_owned()),
        ] {
            assert_eq!(Opened::decode(&refusal.encode()), Ok(Err(refusal.clone())));
            assert_eq!(decode_bytes(&refusal.encode()), Ok(Err(refusal.clone())));
        }
        assert_eq!(decode_bytes(&[GIVEN, 4, 5]), Ok(Ok(&[4, 5][..])));
        assert!(decode_bytes(&[]).is_err() && decode_bytes(&[9]).is_err());
    }
}
