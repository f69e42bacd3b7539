//! The bytes of a segment.
//!
//! ```text
//! segment: header, chunks; what follows the last chunk is zeros or an older use of the same file
//! header (64 bytes): "CETOLOG1", u32 format version, u32 shard, u64 segment id, u128 boot id,
//!        u64 id of the segment before and u32 where it ended, u32 shards of the node,
//!        u32 how far the id is above the first of its run, u32 crc of all that
//! chunk (begins at a multiple of 8): u64 segment id, u32 payload length, u32 crc of everything else in the chunk,
//!        u64 and u32 synced: position known durable when it was written, u32 zero, payload
//! payload: records: u32 length, u8 kind, body
//!   kind 1 mutation: packed mutation (crate mutation)
//!   kind 2 discard:  [u8; 16] table id, i64 and i64 token range (start exclusive, end inclusive),
//!                    u64 and u32 position up to which its mutations are in sstables or truncated
//!   kind 3 batch:    mutations of this shard that count all or not at all: each u32 length and packed mutation
//!   kind 4 batch begun: [u8; 16] batch id, then mutations of any shard as in kind 3: to be applied unless it ended
//!   kind 5 batch ended: [u8; 16] batch id: every shard has its part in its own log
//! ```
//!
//! Little endian. The segment id in each chunk distinguishes it from the remains of an earlier use of a recycled file,
//! the crc shows a torn write, `synced` shows whether a chunk that is missing was promised to survive a power loss, and
//! the boot id whether there can have been one. All logs of a run of the node begin with the same segment id.

use crc32fast::Hasher;
use schema::TableId;
use stdx::preempt;
use types::Token;
use uuid::Uuid;

pub(crate) const MAGIC: &[u8; 8] = b"CETOLOG1";
pub(crate) const FORMAT_VERSION: u32 = 1;
pub(crate) const SEGMENT_HEADER_BYTES: usize = 64;
pub(crate) const CHUNK_HEADER_BYTES: usize = 32;
pub(crate) const RECORD_HEADER_BYTES: usize = 5;
pub(crate) const ALIGN: usize = 8;
pub(crate) const KIND_MUTATION: u8 = 1;
pub(crate) const KIND_DISCARD: u8 = 2;
pub(crate) const KIND_BATCH: u8 = 3;
pub(crate) const KIND_BATCH_BEGUN: u8 = 4;
pub(crate) const KIND_BATCH_ENDED: u8 = 5;
pub(crate) const BATCH_ID_BYTES: usize = 16;

/// A position in a shard's log: the segment, and the offset of the byte after the record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct ReplayPosition {
    /// Segment id; ids of one shard only grow.
    pub segment: u64,
    /// Byte offset in it.
    pub offset: u32,
}

/// A statement that a table's mutations up to a position need no replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Discard {
    /// The table.
    pub table: TableId,
    /// Tokens above this one…
    pub after: Token,
    /// …up to and including this one.
    pub up_to_token: Token,
    /// Mutations at or before this position: of the log that says so, and of all logs of earlier runs.
    pub position: ReplayPosition,
}

pub(crate) const DISCARD_BYTES: usize = 16 + 8 + 8 + 8 + 4;

impl Discard {
    pub(crate) fn encode(&self) -> [u8; DISCARD_BYTES] {
        let mut out = [0; DISCARD_BYTES];
        out[..16].copy_from_slice(self.table.0.as_bytes());
        out[16..24].copy_from_slice(&self.after.0.to_le_bytes());
        out[24..32].copy_from_slice(&self.up_to_token.0.to_le_bytes());
        out[32..40].copy_from_slice(&self.position.segment.to_le_bytes());
        out[40..44].copy_from_slice(&self.position.offset.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; DISCARD_BYTES] = bytes.try_into().ok()?;
        let i64_at = |at: usize| i64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Some(Self {
            table: TableId(Uuid::from_slice(&bytes[..16]).ok()?),
            after: Token(i64_at(16)),
            up_to_token: Token(i64_at(24)),
            position: ReplayPosition {
                segment: i64_at(32) as u64,
                offset: u32::from_le_bytes(bytes[40..44].try_into().expect("four bytes")),
            },
        })
    }
}

pub(crate) struct SegmentHeader {
    pub(crate) shard: u32,
    pub(crate) id: u64,
    pub(crate) boot_id: u128,
    /// The segment before this one and where its last chunk ended, so that a missing tail shows.
    pub(crate) previous: ReplayPosition,
    /// How many shards the node had.
    pub(crate) shards: u32,
    /// The first segment id of the node's run.
    pub(crate) run: u64,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut out = [0; SEGMENT_HEADER_BYTES];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.shard.to_le_bytes());
        out[16..24].copy_from_slice(&self.id.to_le_bytes());
        out[24..40].copy_from_slice(&self.boot_id.to_le_bytes());
        out[40..48].copy_from_slice(&self.previous.segment.to_le_bytes());
        out[48..52].copy_from_slice(&self.previous.offset.to_le_bytes());
        out[52..56].copy_from_slice(&self.shards.to_le_bytes());
        let age = u32::try_from(self.id - self.run);
        out[56..60].copy_from_slice(&age.expect("a run has fewer segments than 2^32").to_le_bytes());
        let crc = crc32fast::hash(&out[..60]);
        out[60..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The bytes of a header that is whole, of any format version.
    fn whole(bytes: &[u8]) -> Option<&[u8; SEGMENT_HEADER_BYTES]> {
        let h: &[u8; SEGMENT_HEADER_BYTES] = bytes.first_chunk()?;
        let crc = u32::from_le_bytes(h[60..].try_into().ok()?);
        (&h[..8] == MAGIC && crc == crc32fast::hash(&h[..60])).then_some(h)
    }

    /// The format version of a header that is whole, where this release does not know it.
    pub(crate) fn unknown_version(bytes: &[u8]) -> Option<u32> {
        let version = u32::from_le_bytes(Self::whole(bytes)?[8..12].try_into().ok()?);
        (version != FORMAT_VERSION).then_some(version)
    }

    /// None when it was torn or never written.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let h = Self::whole(bytes)?;
        let id = u64::from_le_bytes(h[16..24].try_into().ok()?);
        let age = u32::from_le_bytes(h[56..60].try_into().ok()?);
        Some(Self {
            shard: u32::from_le_bytes(h[12..16].try_into().ok()?),
            id,
            boot_id: u128::from_le_bytes(h[24..40].try_into().ok()?),
            previous: ReplayPosition {
                segment: u64::from_le_bytes(h[40..48].try_into().ok()?),
                offset: u32::from_le_bytes(h[48..52].try_into().ok()?),
            },
            shards: u32::from_le_bytes(h[52..56].try_into().ok()?),
            run: id.checked_sub(u64::from(age))?,
        })
    }
}

/// Fills in the header of a chunk and pads the chunk. Its payload follows [`CHUNK_HEADER_BYTES`] reserved bytes.
/// `payload`: its checksum, where it is known.
pub(crate) fn seal_chunk(chunk: &mut Vec<u8>, segment: u64, synced: ReplayPosition, payload: Option<&Hasher>) {
    let len = u32::try_from(chunk.len() - CHUNK_HEADER_BYTES).expect("a chunk is smaller than its segment");
    chunk[..8].copy_from_slice(&segment.to_le_bytes());
    chunk[8..12].copy_from_slice(&len.to_le_bytes());
    chunk[16..24].copy_from_slice(&synced.segment.to_le_bytes());
    chunk[24..28].copy_from_slice(&synced.offset.to_le_bytes());
    chunk[28..32].fill(0);
    let crc = chunk_crc(chunk, payload);
    chunk[12..16].copy_from_slice(&crc.to_le_bytes());
    chunk.resize(chunk.len().next_multiple_of(ALIGN), 0);
}

fn chunk_crc(chunk: &[u8], payload: Option<&Hasher>) -> u32 {
    let mut crc = Hasher::new();
    crc.update(&chunk[..12]);
    match payload {
        Some(payload) => {
            crc.update(&chunk[16..CHUNK_HEADER_BYTES]);
            crc.combine(payload);
        }
        None => crc.update(&chunk[16..]),
    }
    crc.finalize()
}

/// A chunk that is whole.
pub(crate) struct Chunk<'a> {
    pub(crate) synced: ReplayPosition,
    pub(crate) payload: &'a [u8],
    /// Offset of the next chunk.
    pub(crate) next: usize,
}

/// The chunk at `at`, when it is whole and belongs to this use of the segment.
pub(crate) fn read_chunk(segment: &[u8], at: usize, id: u64) -> Option<Chunk<'_>> {
    let rest = segment.get(at..)?;
    let header: &[u8; CHUNK_HEADER_BYTES] = rest.first_chunk()?;
    if header[..8] != id.to_le_bytes() {
        return None;
    }
    let len = u32::from_le_bytes(header[8..12].try_into().ok()?) as usize;
    let whole = rest.get(..CHUNK_HEADER_BYTES.checked_add(len)?)?;
    if u32::from_le_bytes(header[12..16].try_into().ok()?) != chunk_crc(whole, None) {
        return None;
    }
    Some(Chunk {
        synced: ReplayPosition {
            segment: u64::from_le_bytes(header[16..24].try_into().ok()?),
            offset: u32::from_le_bytes(header[24..28].try_into().ok()?),
        },
        payload: &whole[CHUNK_HEADER_BYTES..],
        next: (at + whole.len()).next_multiple_of(ALIGN),
    })
}

/// The records of a payload: kind, body, and offset of the end in the payload. None for a malformed record.
pub(crate) fn records(payload: &[u8]) -> impl Iterator<Item = Option<(u8, &[u8], usize)>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == payload.len() {
            return None;
        }
        let record = (|| {
            let header: &[u8; RECORD_HEADER_BYTES] = payload.get(at..)?.first_chunk()?;
            let len = u32::from_le_bytes(header[..4].try_into().ok()?) as usize;
            let from = at + RECORD_HEADER_BYTES;
            let body = payload.get(from..from.checked_add(len)?)?;
            Some((header[4], body, from + len))
        })();
        at = record.map_or(payload.len(), |r| r.2);
        Some(record)
    })
}

/// Appends mutations to the body of a batch record.
pub(crate) fn put_mutations<'m>(out: &mut Vec<u8>, mutations: impl Iterator<Item = &'m [u8]>) {
    for m in mutations {
        let len = u32::try_from(m.len()).expect("a record is smaller than its segment");
        out.extend_from_slice(&len.to_le_bytes());
        preempt::append(out, m);
        preempt::point();
    }
}

/// The mutations of a batch record's body. None for a malformed one.
pub(crate) fn mutations(body: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = body;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let split = rest
            .split_first_chunk::<4>()
            .and_then(|(len, tail)| tail.split_at_checked(u32::from_le_bytes(*len) as usize));
        Some(match split {
            Some((m, tail)) => {
                rest = tail;
                Some(m)
            }
            None => {
                rest = &[];
                None
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(version: u32) -> [u8; SEGMENT_HEADER_BYTES] {
        let header = SegmentHeader {
            shard: 3,
            id: 17,
            boot_id: 5,
            previous: ReplayPosition::default(),
            shards: 4,
            run: 9,
        };
        let mut bytes = header.encode();
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn the_run_of_a_segment_is_known() {
        assert_eq!(
            SegmentHeader::decode(&header(FORMAT_VERSION))
                .expect("a whole header")
                .run,
            9
        );
    }

    #[test]
    fn a_segment_of_an_unknown_format_is_not_taken_for_a_torn_one() {
        let versions = [0, 1, 2].map(|version| SegmentHeader::unknown_version(&header(version)));
        assert_eq!(versions, [Some(0), None, Some(2)]);
    }
}
