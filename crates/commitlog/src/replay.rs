//! Reading a log back after a stop.
//!
//! Each segment is read chunk by chunk until one is not whole. That is the log's end, unless something says that it
//! was once behind it: a whole chunk of the same segment further on, or a later chunk of the shard whose `synced`
//! position is beyond the place. Then the log has a hole. A hole in what was promised durable, or in a log that no
//! power loss interrupted (same boot), is damage and an error; a hole in what was not yet synced when the power went
//! is what periodic mode allows, and replay goes on behind it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use runtime::fs;

use crate::format::{
    ALIGN, CHUNK_HEADER_BYTES, Discard, KIND_DISCARD, KIND_MUTATION, ReplayPosition, SEGMENT_HEADER_BYTES,
    SegmentHeader, read_chunk, records,
};
use crate::segment::parse_file_name;

/// What replay found, in order.
#[derive(Debug)]
pub struct Record<'a> {
    /// The shard that wrote it.
    pub shard: u32,
    /// Its position in that shard's log.
    pub position: ReplayPosition,
    /// A packed mutation, not validated yet.
    pub mutation: &'a [u8],
}

/// Why a log cannot be replayed.
#[derive(Debug)]
pub enum ReplayError {
    /// The directory or a file cannot be read.
    Io {
        /// Which.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Bytes that must be there are not, or do not match their checksum.
    Corrupt {
        /// The segment.
        file: PathBuf,
        /// Where the first damaged chunk begins.
        offset: u64,
        /// What was expected.
        expected: String,
    },
}

impl std::fmt::Display for ReplayError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io { file, source } => write!(f, "commitlog {}: {source}", file.display()),
            Self::Corrupt { file, offset, expected } => {
                write!(f, "commitlog {} is damaged at offset {offset}: expected {expected}", file.display())
            }
        }
    }
}

impl std::error::Error for ReplayError {}

/// What a replay did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayStats {
    /// Segments read.
    pub segments: usize,
    /// Mutations handed out.
    pub mutations: u64,
    /// Mutations passed over because an sstable has them or a truncation dropped them.
    pub discarded: u64,
    /// Unsynced holes that a power loss left.
    pub holes: u64,
    /// The largest segment id seen, 0 when there is none: new segments begin above it.
    pub last_segment: u64,
    /// The files read, to remove once their content is in sstables.
    pub files: Vec<PathBuf>,
}

struct Loaded {
    path: PathBuf,
    id: u64,
    header: Option<SegmentHeader>,
    bytes: Vec<u8>,
}

/// What the rest of a shard's log says about one segment.
struct Known<'a> {
    /// The machine's current boot.
    boot_id: u128,
    /// Everything before this was promised durable.
    synced: ReplayPosition,
    /// Where its last chunk ended according to the segment behind it; 0 when there is none.
    end: u32,
    discards: &'a [Discard],
}

/// Replays every segment in `dir`, shard by shard in order of position. `apply` gets each mutation that is still needed;
/// an error it returns (in words) is reported with the record's file and offset.
pub fn replay(
    dir: &Path,
    boot_id: u128,
    mut apply: impl FnMut(Record<'_>) -> Result<(), String>,
) -> Result<ReplayStats, ReplayError> {
    let mut stats = ReplayStats::default();
    let mut shards: BTreeMap<u32, Vec<(u64, PathBuf)>> = BTreeMap::new();
    let entries = fs::read_dir(dir).map_err(|source| ReplayError::Io { file: dir.to_owned(), source })?;
    for entry in entries {
        if let Some((shard, id)) = parse_file_name(&entry.name) {
            shards.entry(shard).or_default().push((id, dir.join(&entry.name)));
            stats.last_segment = stats.last_segment.max(id);
        }
    }
    for (shard, mut files) in shards {
        files.sort();
        // First look at all segments: how far did each go, how far was the log known to be durable, what was discarded?
        let mut synced = ReplayPosition::default();
        let mut discards: Vec<Discard> = Vec::new();
        let mut ends: BTreeMap<u64, u32> = BTreeMap::new();
        for (id, path) in &files {
            let segment = load(path, *id)?;
            if let Some(h) = &segment.header {
                ends.insert(h.previous.segment, h.previous.offset);
            }
            let (mut at, mut hole) = (SEGMENT_HEADER_BYTES, false);
            loop {
                match read_chunk(&segment.bytes, at, segment.id) {
                    Some(chunk) => {
                        synced = synced.max(chunk.synced);
                        for (kind, body, _) in records(chunk.payload).flatten() {
                            if kind == KIND_DISCARD {
                                discards.extend(Discard::decode(body));
                            }
                        }
                        at = chunk.next;
                        hole = false;
                    }
                    None if hole => break,
                    None => {
                        hole = true;
                        at = find_chunk(&segment.bytes, at + ALIGN, segment.id).unwrap_or(segment.bytes.len());
                    }
                }
            }
        }
        for (id, path) in &files {
            let known = Known { boot_id, synced, end: ends.get(id).copied().unwrap_or(0), discards: &discards };
            replay_segment(shard, &load(path, *id)?, &known, &mut stats, &mut apply)?;
            stats.segments += 1;
            stats.files.push(path.clone());
        }
    }
    Ok(stats)
}

fn load(path: &Path, id: u64) -> Result<Loaded, ReplayError> {
    let mut bytes = fs::read(path).map_err(|source| ReplayError::Io { file: path.to_owned(), source })?;
    let mut header = SegmentHeader::decode(&bytes);
    if header.as_ref().is_some_and(|h| h.id != id) {
        // A file that was renamed to be used again, but whose header had not been written yet: nothing is in it.
        bytes.clear();
        header = None;
    }
    Ok(Loaded { path: path.to_owned(), id, header, bytes })
}

/// The next whole chunk of this segment at or behind `at`.
fn find_chunk(bytes: &[u8], at: usize, id: u64) -> Option<usize> {
    let needle = id.to_le_bytes();
    let mut from = at;
    while let Some(found) = bytes.get(from..).and_then(|rest| memchr::memmem::find(rest, &needle)) {
        let place = from + found;
        if place % ALIGN == 0 && read_chunk(bytes, place, id).is_some() {
            return Some(place);
        }
        from = place + 1;
    }
    None
}

fn replay_segment(
    shard: u32,
    segment: &Loaded,
    known: &Known<'_>,
    stats: &mut ReplayStats,
    apply: &mut impl FnMut(Record<'_>) -> Result<(), String>,
) -> Result<(), ReplayError> {
    let corrupt = |offset: usize, expected: String| ReplayError::Corrupt {
        file: segment.path.clone(),
        offset: offset as u64,
        expected,
    };
    let same_boot = segment.header.as_ref().is_some_and(|h| h.boot_id == known.boot_id);
    let mut at = SEGMENT_HEADER_BYTES;
    loop {
        let Some(chunk) = read_chunk(&segment.bytes, at, segment.id) else {
            let next = find_chunk(&segment.bytes, at + ALIGN, segment.id);
            let here = ReplayPosition { segment: segment.id, offset: u32::try_from(at).unwrap_or(u32::MAX) };
            let cut_short = (at as u64) < u64::from(known.end);
            if here < known.synced && (cut_short || next.is_some() || known.synced.segment == segment.id) {
                return Err(corrupt(at, "a chunk that had been made durable".to_owned()));
            }
            if (next.is_some() || cut_short) && same_boot {
                return Err(corrupt(at, "a whole chunk, as the log went on behind it".to_owned()));
            }
            if next.is_some() || cut_short {
                log::warn!(
                    "commitlog {}: what followed offset {at} did not survive a power loss before its sync",
                    segment.path.display()
                );
                stats.holes += 1;
            }
            let Some(next) = next else { return Ok(()) };
            at = next;
            continue;
        };
        if segment.header.is_none() && at == SEGMENT_HEADER_BYTES {
            return Err(corrupt(0, "a segment header".to_owned()));
        }
        for record in records(chunk.payload) {
            let Some((kind, body, end)) = record else {
                return Err(corrupt(at, "records that fill their chunk".to_owned()));
            };
            let offset = u32::try_from(at + CHUNK_HEADER_BYTES + end).unwrap_or(u32::MAX);
            let position = ReplayPosition { segment: segment.id, offset };
            match kind {
                KIND_DISCARD => {}
                KIND_MUTATION if is_discarded(known.discards, position, body) => stats.discarded += 1,
                KIND_MUTATION => {
                    apply(Record { shard, position, mutation: body }).map_err(|e| corrupt(at, e))?;
                    stats.mutations += 1;
                }
                other => return Err(corrupt(at, format!("a record of kind 1 or 2, not {other}"))),
            }
        }
        at = chunk.next;
    }
}

fn is_discarded(discards: &[Discard], position: ReplayPosition, mutation: &[u8]) -> bool {
    if discards.is_empty() {
        return false;
    }
    let Some(m) = mutation::Mutation::new(mutation) else { return false };
    let mut token = None;
    discards.iter().any(|d| {
        d.table == m.table && position <= d.position && {
            let t = *token.get_or_insert_with(|| types::token::token_of(m.key));
            (t > d.after || d.after.0 == i64::MIN) && t <= d.up_to_token
        }
    })
}
