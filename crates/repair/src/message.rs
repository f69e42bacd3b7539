//! What the shard that repairs and a participant say to each other. Integers are big-endian; `sized` bytes follow their
//! length as a vint.
//!
//! ```text
//! 70 open          repair, u8[16] table, i64 after, i64 to, u64 truncation, u32 now, u32 grace begin,
//!                  u128 fingerprint of the columns
//! 71 compare       repair, position, buckets, each: its end as a position, u128 hash
//!   answer         u8 for each bucket: 0 equal, 1 different; it may end early
//! 72 exchange      repair, u8 1 when there are other participants,
//!                  vint stretches, each: two positions, vint hashes, u128 each
//!   answer         stretches, as many as fit, at least one
//! 73 apply         repair, sized mutations
//!   answer         in a repair that marks, a vint of units that were not there
//! 74 close         repair
//! 75 equal         u8[16] table, i64 after, i64 to, u32 second up to which all replicas are equal,
//!                  u8 mode as in 76, but 0
//! 76 want          u32 second since which repairs count, vint tables, u8[16] each,
//!                  u8 mode: 0 as the node does by itself, 1 incremental, 2 full, 3 disabled;
//!                  then nothing or what is selected (`request.rs`)
//!   answer         u64 ranges that are left, sized text: why the last repair failed
//! 77 mark, open    u8 1, as 70, u8 1 to read marked sstables too, u128 hash of the hosts,
//!                  u128 session of the record
//!   answer         u8 1 when it is open, 0 when this node's record differs; i64 the last mark of this node
//! 77 mark, settle  u8 2, repair
//! 77 mark, mark    u8 3, repair, i64 the mark of the last full session, i64 the mark
//!   answer         vint sstables that were marked
//! ```
//!
//! An answer is shown without its first byte, and is empty where none is shown.
//!
//! A repair is `u8[16]`. A position is `u8` kind (0 after a token, 1 before or 2 after a clustering prefix), `i64`
//! token, and for kinds 1 and 2 sized key, sized prefix. A stretch of an answer is `u8` 0, or 1 and the position where
//! it ends early; then a vint of bytes with a bit for each hash that the participant has, those bytes, a vint of
//! mutations, and those, sized.
//!
//! The first byte of an answer is `1`. Where a request is refused, the answer is `2`, `u8` reason, sized text. A
//! comparison of no buckets keeps the repair open.

use replica::{RepairedRange, TokenRange};
use schema::{Table, TableId};
use stdx::bytes::{Reader, Truncated, put_sized};
use stdx::vint;
use types::Token;
use types::token::murmur3_x64_128;
use uuid::Uuid;

use crate::error::Refusal;
use crate::marking::IncrementalMode;
use crate::position::Position;

/// Begin a repair.
pub(crate) const OPEN: u16 = crate::FIRST_VERB;
/// Compare hashes of buckets.
pub(crate) const COMPARE: u16 = crate::FIRST_VERB + 1;
/// List which units are here, and get those that are not.
pub(crate) const EXCHANGE: u16 = crate::FIRST_VERB + 2;
/// Write mutations.
pub(crate) const APPLY: u16 = crate::FIRST_VERB + 3;
/// End a repair.
pub(crate) const CLOSE: u16 = crate::FIRST_VERB + 4;
/// Repair what the node is the first replica of, and say what is left.
pub(crate) const WANT: u16 = crate::FIRST_VERB + 6;
/// Know that all replicas of a range are equal.
pub(crate) const EQUAL: u16 = crate::FIRST_VERB + 5;

/// Open, settle and mark, of a repair that marks sstables.
pub(crate) const MARK: u16 = crate::FIRST_VERB + 7;

const GIVEN: u8 = 1;
const REFUSED: u8 = 2;

/// Bytes that are not what they should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed(pub(crate) &'static str);

impl From<Truncated> for Malformed {
    fn from(_: Truncated) -> Self {
        Self("the message ends early")
    }
}

/// One call of [`crate::repair`], by chance: what is late of another does not meddle with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct RepairId(pub(crate) u128);

impl RepairId {
    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_be_bytes());
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self(get_u128(reader)?))
    }

    /// The request to close it.
    pub(crate) fn encode(self) -> Vec<u8> {
        self.0.to_be_bytes().to_vec()
    }

    /// Reads such a request.
    pub(crate) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let id = Self::get(&mut reader)?;
        ended(&reader, id)
    }
}

/// The bytes of a mutation, which are checked later. One without any is none, and would take more memory than bytes of
/// a message.
fn get_mutation<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    match reader.get_sized()? {
        [] => Err(Malformed("a mutation of no bytes")),
        bytes => Ok(bytes),
    }
}

pub(crate) fn get_count(reader: &mut Reader<'_>) -> Result<usize, Malformed> {
    usize::try_from(reader.get_vint()?).map_err(|_| Malformed("a length is too long"))
}

fn get_u128(reader: &mut Reader<'_>) -> Result<u128, Malformed> {
    Ok(u128::from_be_bytes(reader.get_array()?))
}

pub(crate) fn ended<T>(reader: &Reader<'_>, value: T) -> Result<T, Malformed> {
    if reader.is_empty() {
        Ok(value)
    } else {
        Err(Malformed("bytes follow the message"))
    }
}

/// A hash over what rows of a table are read by: two nodes that agree on it read the same from the same bytes.
pub(crate) fn columns_of(table: &Table) -> u128 {
    let (low, high) = murmur3_x64_128(table.columns_text().as_bytes(), 0);
    u128::from(high) << 64 | u128::from(low)
}

/// Says that all replicas of a range are equal.
pub(crate) fn encode_equal(equal: &RepairedRange, mode: IncrementalMode) -> Vec<u8> {
    let mut out = Vec::with_capacity(37);
    out.extend_from_slice(equal.table.0.as_bytes());
    out.extend_from_slice(&equal.range.after.0.to_be_bytes());
    out.extend_from_slice(&equal.range.to.0.to_be_bytes());
    out.extend_from_slice(&equal.until.to_be_bytes());
    out.push(mode.number());
    out
}

/// Reads the same.
pub(crate) fn decode_equal(body: &[u8]) -> Result<(RepairedRange, IncrementalMode), Malformed> {
    let mut reader = Reader::new(body);
    let table = TableId(Uuid::from_bytes(reader.get_array()?));
    let mut token = || Ok::<_, Malformed>(Token(i64::from_be_bytes(reader.get_array()?)));
    let range = TokenRange {
        after: token()?,
        to: token()?,
    };
    let until = reader.get_u32()?;
    if range.to <= range.after {
        return Err(Malformed("a range ends before it begins"));
    }
    let mode = IncrementalMode::of_number(reader.get_u8()?);
    let mode = mode.ok_or(Malformed("a mode of repairs, 1 to 3"))?;
    let equal = RepairedRange::new(table, range, until);
    ended(&reader, (equal, mode))
}

/// Begins a repair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Open {
    pub(crate) id: RepairId,
    pub(crate) table: TableId,
    pub(crate) range: TokenRange,
    /// The last truncation that the shard that repairs is done with.
    pub(crate) truncated_at: u64,
    /// The second at which cells expire or not.
    pub(crate) now: u32,
    /// Deletions that were made before this second are not compared.
    pub(crate) gc_before: u32,
    pub(crate) columns: u128,
}

impl Open {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(88);
        self.id.put(&mut out);
        out.extend_from_slice(self.table.0.as_bytes());
        out.extend_from_slice(&self.range.after.0.to_be_bytes());
        out.extend_from_slice(&self.range.to.0.to_be_bytes());
        out.extend_from_slice(&self.truncated_at.to_be_bytes());
        out.extend_from_slice(&self.now.to_be_bytes());
        out.extend_from_slice(&self.gc_before.to_be_bytes());
        out.extend_from_slice(&self.columns.to_be_bytes());
        out
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let open = Self::get(&mut reader)?;
        ended(&reader, open)
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let open = Self {
            id: RepairId::get(reader)?,
            table: TableId(Uuid::from_bytes(reader.get_array()?)),
            range: TokenRange {
                after: Token(reader.get_i64()?),
                to: Token(reader.get_i64()?),
            },
            truncated_at: reader.get_u64()?,
            now: reader.get_u32()?,
            gc_before: reader.get_u32()?,
            columns: get_u128(reader)?,
        };
        if open.range.after >= open.range.to {
            return Err(Malformed("the range of tokens is empty"));
        }
        Ok(open)
    }
}

/// Begins a repair that marks sstables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MarkOpen {
    pub(crate) open: Open,
    /// Whether it reads marked sstables too.
    pub(crate) is_full: bool,
    /// A hash of the hosts of all replicas.
    pub(crate) replicas: u128,
    /// The session of the record of the shard that repairs; 0 when it does not matter.
    pub(crate) session: u128,
}

/// Makes a replica mark what it has of a repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MarkSet {
    pub(crate) id: RepairId,
    /// The mark of the last repair that read everything.
    pub(crate) since: i64,
    /// The mark.
    pub(crate) at: i64,
}

/// One step of a repair that marks sstables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum MarkStep {
    /// Begin.
    Open(MarkOpen),
    /// Make everything durable, and check that nothing was lost.
    Settle(RepairId),
    /// Mark, since all have settled.
    Mark(MarkSet),
}

impl MarkStep {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        match self {
            Self::Open(open) => {
                out.push(1);
                out.extend_from_slice(&open.open.encode());
                out.push(u8::from(open.is_full));
                out.extend_from_slice(&open.replicas.to_be_bytes());
                out.extend_from_slice(&open.session.to_be_bytes());
            }
            Self::Settle(id) => {
                out.push(2);
                id.put(&mut out);
            }
            Self::Mark(mark) => {
                out.push(3);
                mark.id.put(&mut out);
                out.extend_from_slice(&mark.since.to_be_bytes());
                out.extend_from_slice(&mark.at.to_be_bytes());
            }
        }
        out
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let step = match reader.get_u8()? {
            1 => Self::Open(MarkOpen {
                open: Open::get(&mut reader)?,
                is_full: match reader.get_u8()? {
                    0 => false,
                    1 => true,
                    _ => return Err(Malformed("whether marked sstables are read, 0 or 1")),
                },
                replicas: get_u128(&mut reader)?,
                session: get_u128(&mut reader)?,
            }),
            2 => Self::Settle(RepairId::get(&mut reader)?),
            3 => {
                let id = RepairId::get(&mut reader)?;
                let (since, at) = (reader.get_i64()?, reader.get_i64()?);
                if since <= 0 || at < since {
                    return Err(Malformed("a mark is not above 0, or before the first of its kind"));
                }
                Self::Mark(MarkSet { id, since, at })
            }
            _ => return Err(Malformed("a step of marking, 1 to 3")),
        };
        ended(&reader, step)
    }
}

/// The content of an answer to [`MarkStep::Open`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Opened {
    /// Whether the session is open: not so when the record here is of another session or other replicas.
    pub(crate) is_open: bool,
    /// The mark of the record here; 0 when there is none.
    pub(crate) last_mark: i64,
}

impl Opened {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_open));
        out.extend_from_slice(&self.last_mark.to_be_bytes());
    }

    pub(crate) fn decode(content: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(content);
        let is_open = match reader.get_u8()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed("whether a session is open, 0 or 1")),
        };
        let last_mark = reader.get_i64()?;
        ended(&reader, Self { is_open, last_mark })
    }
}

/// Where a bucket ends, and the hash over what is in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Bucket {
    pub(crate) end: Position,
    pub(crate) hash: u128,
}

/// Asks which buckets differ from the participant's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Compare {
    pub(crate) id: RepairId,
    pub(crate) from: Position,
    pub(crate) buckets: Vec<Bucket>,
}

impl Compare {
    pub(crate) fn encode(id: RepairId, from: &Position, buckets: &[Bucket]) -> Vec<u8> {
        let mut out = Vec::with_capacity(32 + 40 * buckets.len());
        id.put(&mut out);
        from.put(&mut out);
        for bucket in buckets {
            bucket.end.put(&mut out);
            out.extend_from_slice(&bucket.hash.to_be_bytes());
        }
        out
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let (id, from) = (RepairId::get(&mut reader)?, Position::get(&mut reader)?);
        let mut buckets = Vec::new();
        while !reader.is_empty() {
            buckets.push(Bucket {
                end: Position::get(&mut reader)?,
                hash: get_u128(&mut reader)?,
            });
        }
        Ok(Self { id, from, buckets })
    }
}

/// Part of a table, and the hashes of the units that the shard that repairs has there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct UnitHashes {
    pub(crate) from: Position,
    pub(crate) to: Position,
    pub(crate) hashes: Vec<u128>,
}

/// Asks for the units that the shard that repairs does not have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Exchange {
    pub(crate) id: RepairId,
    /// Whether units may come from other participants too, which hidden deletions of this one may hide.
    pub(crate) has_others: bool,
    pub(crate) stretches: Vec<UnitHashes>,
}

impl Exchange {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let hashes: usize = self.stretches.iter().map(|stretch| stretch.hashes.len()).sum();
        let mut out = Vec::with_capacity(32 + 48 * self.stretches.len() + 16 * hashes);
        self.id.put(&mut out);
        out.push(u8::from(self.has_others));
        vint::put_unsigned(&mut out, self.stretches.len() as u64);
        for stretch in &self.stretches {
            stretch.from.put(&mut out);
            stretch.to.put(&mut out);
            vint::put_unsigned(&mut out, stretch.hashes.len() as u64);
            for hash in &stretch.hashes {
                out.extend_from_slice(&hash.to_be_bytes());
            }
        }
        out
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let id = RepairId::get(&mut reader)?;
        let has_others = match reader.get_u8()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed("whether there are others, 0 or 1")),
        };
        let count = get_count(&mut reader)?;
        let mut stretches = Vec::new();
        for _ in 0..count {
            let (from, to) = (Position::get(&mut reader)?, Position::get(&mut reader)?);
            let hashes = get_count(&mut reader)?.checked_mul(16);
            let hashes = reader.get_slice(hashes.ok_or(Malformed("a length is too long"))?)?;
            let (hashes, _) = hashes.as_chunks::<16>();
            stretches.push(UnitHashes {
                from,
                to,
                hashes: hashes.iter().map(|hash| u128::from_be_bytes(*hash)).collect(),
            });
        }
        if stretches.is_empty() {
            return Err(Malformed("nothing is asked for"));
        }
        let exchange = Self {
            id,
            has_others,
            stretches,
        };
        ended(&reader, exchange)
    }
}

/// What a participant has of a stretch, compared with the hashes of the request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Given {
    /// Where it ends, when that is before the end of the stretch.
    pub(crate) end: Option<Position>,
    /// A bit for each hash, the lowest first: whether the participant has the unit.
    pub(crate) has: Vec<u8>,
    /// The units whose hashes the request lacks, as mutations.
    pub(crate) mutations: Vec<Vec<u8>>,
}

impl Given {
    /// Whether the participant has the unit with this number.
    pub(crate) fn has(&self, number: usize) -> bool {
        self.has
            .get(number / 8)
            .is_some_and(|bits| bits & (1 << (number % 8)) != 0)
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.end.is_some()));
        if let Some(end) = &self.end {
            end.put(out);
        }
        put_sized(out, &self.has);
        vint::put_unsigned(out, self.mutations.len() as u64);
        for mutation in &self.mutations {
            put_sized(out, mutation);
        }
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let end = match reader.get_u8()? {
            0 => None,
            1 => Some(Position::get(reader)?),
            _ => return Err(Malformed("how a stretch ends, 0 or 1")),
        };
        let has = reader.get_sized()?.to_vec();
        let count = get_count(reader)?;
        let mut mutations = Vec::new();
        for _ in 0..count {
            mutations.push(get_mutation(reader)?.to_vec());
        }
        Ok(Self { end, has, mutations })
    }
}

/// Mutations to write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Apply<'a> {
    pub(crate) id: RepairId,
    pub(crate) mutations: Vec<&'a [u8]>,
}

impl<'a> Apply<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let bytes: usize = self.mutations.iter().map(|mutation| mutation.len() + 5).sum();
        let mut out = Vec::with_capacity(16 + bytes);
        self.id.put(&mut out);
        self.mutations.iter().for_each(|mutation| put_sized(&mut out, mutation));
        out
    }

    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let id = RepairId::get(&mut reader)?;
        let mut mutations = Vec::new();
        while !reader.is_empty() {
            mutations.push(get_mutation(&mut reader)?);
        }
        Ok(Self { id, mutations })
    }
}

/// An answer of which the content is still to be added.
pub(crate) fn begin_answer() -> Vec<u8> {
    vec![GIVEN]
}

/// The content of an answer.
pub(crate) fn decode_answer(body: &[u8]) -> Result<Result<&[u8], Refusal>, Malformed> {
    match body.split_first() {
        Some((&GIVEN, rest)) => Ok(Ok(rest)),
        Some((&REFUSED, refusal)) => Ok(Err(Refusal::get(&mut Reader::new(refusal))?)),
        _ => Err(Malformed("the answer is of no known kind")),
    }
}

/// Which buckets are different: the content of an answer to [`Compare`].
pub(crate) fn decode_compared(content: &[u8]) -> Result<Vec<bool>, Malformed> {
    let one = |byte: &u8| match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed("whether a bucket differs, 0 or 1")),
    };
    content.iter().map(one).collect()
}

/// How many units were not there: the content of an answer to [`Apply`] in a repair that marks.
pub(crate) fn decode_applied(content: &[u8]) -> Result<u64, Malformed> {
    let mut reader = Reader::new(content);
    let units = reader.get_vint()?;
    ended(&reader, units)
}

/// The content of an answer to [`Exchange`].
pub(crate) fn decode_exchanged(content: &[u8]) -> Result<Vec<Given>, Malformed> {
    let mut reader = Reader::new(content);
    let mut given = Vec::new();
    while !reader.is_empty() {
        given.push(Given::get(&mut reader)?);
    }
    Ok(given)
}

impl Refusal {
    fn number_and_text(&self) -> (u8, &str) {
        match self {
            Self::UnknownTable => (1, ""),
            Self::NotHere => (2, ""),
            Self::Missing(text) => (3, text),
            Self::Truncated => (4, ""),
            Self::SchemaDiffers => (5, ""),
            Self::Overloaded => (6, ""),
            Self::Ended => (7, ""),
            Self::Aborted => (8, ""),
            Self::Failed(text) => (10, text),
            Self::DiskFull => (11, ""),
            Self::Unmarked(text) => (12, text),
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
            5 => Self::SchemaDiffers,
            6 => Self::Overloaded,
            7 => Self::Ended,
            8 => Self::Aborted,
            11 => Self::DiskFull,
            12 => Self::Unmarked(text),
            _ => Self::Failed(text),
        };
        ended(reader, refusal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz;

    #[test]
    fn messages_are_read_back_and_cut_short_they_are_none() {
        for seed in fuzz::seeds() {
            fuzz::read(&seed);
            for len in 0..seed.len() {
                fuzz::read(&seed[..len]);
            }
        }
        let open = Open {
            id: RepairId(1 << 100),
            table: TableId(Uuid::from_u128(3)),
            range: TokenRange {
                after: Token(-5),
                to: Token(5),
            },
            truncated_at: 12,
            now: 7,
            gc_before: 6,
            columns: 1 << 90,
        };
        assert_eq!(Open::decode(&open.encode()), Ok(open.clone()));
        let empty = Open {
            range: TokenRange {
                after: Token(5),
                to: Token(5),
            },
            ..open
        };
        assert!(Open::decode(&empty.encode()).is_err());
    }

    #[test]
    fn refusals_are_read_back() {
        for refusal in [
            Refusal::UnknownTable,
            Refusal::NotHere,
            Refusal::Missing("me-7-big-0".to_owned()),
            Refusal::Truncated,
            Refusal::SchemaDiffers,
            Refusal::Overloaded,
            Refusal::Ended,
            Refusal::Aborted,
            Refusal::DiskFull,
            Refusal::Unmarked("the tablet lost data".to_owned()),
            Refusal::Failed("the disk is full".to_owned()),
        ] {
            assert_eq!(decode_answer(&refusal.encode()), Ok(Err(refusal)));
        }
        assert_eq!(decode_answer(&[GIVEN, 4]), Ok(Ok(&[4][..])));
        assert!(decode_answer(&[]).is_err() && decode_answer(&[9]).is_err());
    }
}
