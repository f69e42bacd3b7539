//! The bytes of a hint file and of the file of truncations.
//!
//! ```text
//! name:   hints-SHARD-HOSTID-SEGMENT.hints, the host id and the segment in hexadecimal digits
//! header (64 bytes): "CETOHNT1", u32 format version, u32 shard, [16] host id of the target, u64 segment,
//!         u64 microseconds at which it was begun, zeros, u32 crc of all that
//! progress (16 bytes, written in place): u64 offset up to which the target has everything, u32 zero, u32 crc of that
//! record:  "HINT", u32 length of the body, u32 crc of what follows it, u64 microseconds at which it was noted,
//!         u32 gc_grace_seconds of its table at that time, body: packed mutation (crate mutation), or the placement of
//!         the mutation in the next record
//! placement (8 bytes, no mutation is as short): u64 hash of the nodes that the mutation was sent to
//! truncations-SHARD: "CETOTRU1", then for each: u32 shard, [16] table, u64 segment; then u32 crc of all that.
//!         Hints of the table in lower segments of the shard were truncated
//! ```
//!
//! Little endian. The letters at the beginning of a record let a reader find the next whole record after damage. Format
//! version 1 is the first. A mutation without a placement before it is of a build that wrote none. Such a build takes a
//! placement for a record without a mutation, and skips it.

use schema::TableId;
use topology::HostId;
use uuid::Uuid;

pub(crate) const HEADER_BYTES: usize = 64;
const PROGRESS_BYTES: usize = 16;
/// Offset of the progress.
pub(crate) const PROGRESS_AT: u64 = HEADER_BYTES as u64;
/// Where records begin.
pub(crate) const RECORDS_AT: usize = HEADER_BYTES + PROGRESS_BYTES;
const MAGIC: &[u8; 8] = b"CETOHNT1";
const TRUNCATIONS_MAGIC: &[u8; 8] = b"CETOTRU1";
const RECORD_MAGIC: &[u8; 4] = b"HINT";
const FORMAT_VERSION: u32 = 1;
/// What a record has around its body.
pub(crate) const RECORD_HEADER_BYTES: usize = 24;
const PLACEMENT_BYTES: usize = 8;
/// What a hint has around its mutation: two record headers, and the placement.
pub(crate) const HINT_HEADER_BYTES: usize = 2 * RECORD_HEADER_BYTES + PLACEMENT_BYTES;
const TRUNCATION_BYTES: usize = 4 + 16 + 8;

/// Which file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SegmentId {
    /// Segment numbers of a node only grow.
    pub(crate) number: u64,
    /// The shard that wrote it.
    pub(crate) shard: u32,
    pub(crate) target: HostId,
}

impl SegmentId {
    pub(crate) fn file_name(&self) -> String {
        format!(
            "hints-{}-{}-{:016x}.hints",
            self.shard,
            self.target.0.simple(),
            self.number
        )
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix("hints-")?.strip_suffix(".hints")?.split('-');
        let shard = parts.next()?.parse().ok()?;
        let target = HostId(Uuid::try_parse(parts.next()?).ok()?);
        let number = u64::from_str_radix(parts.next()?, 16).ok()?;
        parts.next().is_none().then_some(Self { number, shard, target })
    }
}

pub(crate) fn truncations_name(shard: u32) -> String {
    format!("truncations-{shard}")
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let found = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*found))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let found = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*found))
}

/// Header and progress of a new file.
pub(crate) fn header(id: &SegmentId, now_us: i64) -> Vec<u8> {
    let mut out = vec![0; HEADER_BYTES];
    out[..8].copy_from_slice(MAGIC);
    out[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    out[12..16].copy_from_slice(&id.shard.to_le_bytes());
    out[16..32].copy_from_slice(id.target.0.as_bytes());
    out[32..40].copy_from_slice(&id.number.to_le_bytes());
    out[40..48].copy_from_slice(&now_us.to_le_bytes());
    let crc = crc32fast::hash(&out[..HEADER_BYTES - 4]);
    out[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&progress(RECORDS_AT as u64));
    out
}

/// When the file was begun, if the header is this file's.
pub(crate) fn read_header(bytes: &[u8], id: &SegmentId) -> Option<i64> {
    let written_us = u64_at(bytes, 40)?.cast_signed();
    let whole = bytes.get(..HEADER_BYTES)? == &header(id, written_us)[..HEADER_BYTES];
    whole.then_some(written_us)
}

pub(crate) fn progress(offset: u64) -> [u8; PROGRESS_BYTES] {
    let mut out = [0; PROGRESS_BYTES];
    out[..8].copy_from_slice(&offset.to_le_bytes());
    let crc = crc32fast::hash(&out[..12]);
    out[12..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Where the records begin that the target may not have: at the first, when the progress was torn.
pub(crate) fn read_progress(file: &[u8]) -> usize {
    let known = file.get(HEADER_BYTES..RECORDS_AT).and_then(|bytes| {
        let offset = u64_at(bytes, 0)?;
        (progress(offset)[..] == *bytes).then_some(offset)
    });
    known
        .and_then(|offset| usize::try_from(offset).ok())
        .filter(|offset| (RECORDS_AT..=file.len()).contains(offset))
        .unwrap_or(RECORDS_AT)
}

/// Appends a hint: its placement, then its mutation.
pub(crate) fn put_hint(out: &mut Vec<u8>, made_us: i64, gc_grace_seconds: u32, (placement, mutation): (u64, &[u8])) {
    put_record(out, made_us, gc_grace_seconds, &placement.to_le_bytes());
    put_record(out, made_us, gc_grace_seconds, mutation);
}

pub(crate) fn put_record(out: &mut Vec<u8>, now_us: i64, gc_grace_seconds: u32, body: &[u8]) {
    let start = out.len();
    let length = u32::try_from(body.len()).expect("a mutation is smaller than a commitlog segment");
    out.extend_from_slice(RECORD_MAGIC);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&now_us.to_le_bytes());
    out.extend_from_slice(&gc_grace_seconds.to_le_bytes());
    out.extend_from_slice(body);
    let crc = crc32fast::hash(&out[start + 12..]);
    out[start + 8..start + 12].copy_from_slice(&crc.to_le_bytes());
}

/// A whole record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record<'f> {
    pub(crate) noted_us: i64,
    pub(crate) gc_grace_seconds: u32,
    pub(crate) mutation: &'f [u8],
    /// That of the record before, if it has one.
    pub(crate) placement: Option<u64>,
    /// Offset after the record.
    pub(crate) end: usize,
}

/// The record at an offset, if it is whole.
pub(crate) fn read_record(file: &[u8], at: usize) -> Option<Record<'_>> {
    let rest = file.get(at..)?;
    if !rest.starts_with(RECORD_MAGIC) {
        return None;
    }
    let length = RECORD_HEADER_BYTES.checked_add(u32_at(rest, 4)? as usize)?;
    let whole = rest.get(..length)?;
    if u32_at(whole, 8)? != crc32fast::hash(&whole[12..]) {
        return None;
    }
    Some(Record {
        noted_us: u64_at(whole, 12)?.cast_signed(),
        gc_grace_seconds: u32_at(whole, 20)?,
        mutation: &whole[RECORD_HEADER_BYTES..],
        placement: None,
        end: at + length,
    })
}

/// The placement that a record has instead of a mutation.
pub(crate) fn placement(record: &Record<'_>) -> Option<u64> {
    (record.mutation.len() == PLACEMENT_BYTES)
        .then(|| u64_at(record.mutation, 0))
        .flatten()
}

/// Whether there is a whole record anywhere after an offset: then the bytes at the offset are damage, and not a torn
/// end.
pub(crate) fn has_record_behind(file: &[u8], at: usize) -> bool {
    (at + 1..file.len()).any(|at| read_record(file, at).is_some())
}

/// Hints of a table in segments of a shard below this one were truncated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Truncation {
    pub(crate) shard: u32,
    pub(crate) table: TableId,
    pub(crate) below: u64,
}

pub(crate) fn put_truncations(truncations: impl Iterator<Item = Truncation>) -> Vec<u8> {
    let mut out = TRUNCATIONS_MAGIC.to_vec();
    for truncation in truncations {
        out.extend_from_slice(&truncation.shard.to_le_bytes());
        out.extend_from_slice(truncation.table.0.as_bytes());
        out.extend_from_slice(&truncation.below.to_le_bytes());
    }
    let crc = crc32fast::hash(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

pub(crate) fn read_truncations(bytes: &[u8]) -> Option<Vec<Truncation>> {
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    if u32::from_le_bytes(*crc) != crc32fast::hash(body) {
        return None;
    }
    let entries = body.strip_prefix(TRUNCATIONS_MAGIC)?.chunks(TRUNCATION_BYTES);
    let read = |entry: &[u8]| {
        Some(Truncation {
            shard: u32_at(entry, 0)?,
            table: TableId(Uuid::from_bytes(*entry.get(4..)?.first_chunk()?)),
            below: u64_at(entry, 20)?,
        })
    };
    entries.map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> SegmentId {
        SegmentId {
            number: 0x1f,
            shard: 3,
            target: HostId(Uuid::from_u128(9)),
        }
    }

    #[test]
    fn a_file_name_says_whose_hints_it_holds() {
        assert_eq!(SegmentId::parse(&id().file_name()), Some(id()));
        for other in [
            "hints-1.hints",
            "truncations-0",
            "hints-0-9-1.hints.damaged",
            "hints-x-9-1.hints",
        ] {
            assert_eq!(SegmentId::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_record_with_one_flipped_bit_is_not_taken_for_whole() {
        let mut file = header(&id(), 5);
        assert_eq!(read_header(&file, &id()), Some(5));
        assert_eq!(read_progress(&file), RECORDS_AT);
        put_record(&mut file, 7, 10, b"mutation");
        let record = read_record(&file, RECORDS_AT).expect("it was written just now");
        assert_eq!(
            (record.noted_us, record.mutation, record.end),
            (7, &b"mutation"[..], file.len())
        );
        for bit in 0..(file.len() - RECORDS_AT) * 8 {
            let mut damaged = file.clone();
            damaged[RECORDS_AT + bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read_record(&damaged, RECORDS_AT), None, "bit {bit}");
        }
    }

    #[test]
    fn a_hint_is_a_placement_and_a_mutation_and_an_older_build_skips_the_first() {
        let mut file = header(&id(), 5);
        put_hint(&mut file, 7, 10, (99, b"a mutation"));
        assert_eq!(file.len() - RECORDS_AT, HINT_HEADER_BYTES + 10);
        let first = read_record(&file, RECORDS_AT).expect("it was written just now");
        assert_eq!(placement(&first), Some(99));
        assert!(mutation::Mutation::new(first.mutation).is_none(), "it is no mutation");
        let second = read_record(&file, first.end).expect("it was written just now");
        assert_eq!((placement(&second), second.mutation), (None, &b"a mutation"[..]));
    }

    #[test]
    fn truncations_are_read_as_written_or_not_at_all() {
        let one = Truncation {
            shard: 1,
            table: TableId(Uuid::from_u128(4)),
            below: 77,
        };
        let bytes = put_truncations([one, Truncation { shard: 2, ..one }].into_iter());
        assert_eq!(
            read_truncations(&bytes),
            Some(vec![one, Truncation { shard: 2, ..one }])
        );
        for at in 0..bytes.len() {
            assert_eq!(read_truncations(&bytes[..at]), None, "cut at {at}");
        }
    }
}
