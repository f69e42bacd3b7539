//! Reading a log back after a stop.
//!
//! Each segment is read chunk by chunk until one is not whole. That is the log's end, unless something shows that the
//! log once went further: a whole chunk of the same segment after this place, or a later chunk of the shard whose
//! `synced` position is beyond it. Then the log has a hole. A hole in what was promised durable, or in a log that no
//! power loss and no failed sync interrupted (same boot, no sign), is damage and an error. A hole in what was not yet
//! synced when the power was lost or the sync failed is what both modes allow, and replay continues after it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use runtime::fs;

use crate::format::{
    ALIGN, BATCH_ID_BYTES, CHUNK_HEADER_BYTES, Discard, FORMAT_VERSION, KIND_BATCH, KIND_BATCH_BEGUN, KIND_BATCH_ENDED,
    KIND_DISCARD, KIND_MUTATION, ReplayPosition, SEGMENT_HEADER_BYTES, SegmentHeader, mutations, read_chunk, records,
};
use crate::segment::{self, parse_file_name};

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
    /// It is in a format that this release does not know.
    UnknownFormat {
        /// The segment.
        file: PathBuf,
        /// Its format version.
        version: u32,
    },
}

impl std::fmt::Display for ReplayError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io { file, source } => write!(f, "commitlog {}: {source}", file.display()),
            Self::UnknownFormat { file, version } => write!(
                f,
                "commitlog {} has format version {version}: expected {FORMAT_VERSION}, the only one known here. Start the release that wrote it \
                 and stop it cleanly, which empties the commitlog",
                file.display()
            ),
            Self::Corrupt { file, offset, expected } => {
                write!(
                    f,
                    "commitlog {} is damaged at offset {offset}: expected {expected}",
                    file.display()
                )
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
}

struct Loaded {
    path: PathBuf,
    id: u64,
    header: Option<SegmentHeader>,
    bytes: Vec<u8>,
    /// A sync of it failed: the kernel may have dropped what was written.
    has_failed_sync: bool,
}

/// What the rest of a shard's log says about one segment.
struct Known {
    /// The machine's current boot.
    boot_id: u128,
    /// Everything before this was promised durable.
    synced: ReplayPosition,
    /// Where its last chunk ended according to the next segment; 0 when there is none.
    end: u32,
}

/// What all segments of one shard's old log say together.
///
/// A process that starts begins a new *run* of segments, whose first one names no segment before it. What a run says to
/// be durable is about its own segments: an earlier run may have a hole that its power loss allowed.
#[derive(Default)]
struct ShardLog {
    /// The run of each segment, by the id of the run's first.
    runs: BTreeMap<u64, u64>,
    /// How far each run was known to be durable.
    synced: BTreeMap<u64, ReplayPosition>,
    ends: BTreeMap<u64, u32>,
}

/// What a log says is no longer needed.
///
/// A position is one of the log that says it, and also holds for the logs of earlier runs: segment ids of a run of the
/// node are above all ids of the runs before it and below all ids of the runs after it, and the mutations of those
/// tokens that earlier runs logged, on any shard, were in memory before this run said anything. It says nothing of the
/// other logs of its own run: the tokens may have moved from one shard to another during the run.
struct Noted {
    discard: Discard,
    /// Of the log.
    shard: u32,
    /// Of the log; None where the header of its segment is torn.
    run: Option<u64>,
}

/// Whose log a segment is of.
#[derive(Clone, Copy)]
struct LogName {
    shard: u32,
    run: Option<u64>,
}

/// A log being read back, segment by segment, so that the caller can make room between them.
pub struct Replay {
    boot_id: u128,
    logs: BTreeMap<u32, ShardLog>,
    /// What logs say is no longer needed.
    discards: Vec<Noted>,
    /// Shard, id and path of the segments to come, in order, last first.
    files: Vec<(u32, u64, PathBuf)>,
    stats: ReplayStats,
    /// Batches that began and, so far, did not end: by id, packed mutations.
    batches: Batches,
}

/// Batches that are noted before their parts. A later run notes in any shard's log that it has finished one.
#[derive(Default)]
struct Batches {
    begun: BTreeMap<[u8; BATCH_ID_BYTES], Vec<Vec<u8>>>,
    ended: BTreeSet<[u8; BATCH_ID_BYTES]>,
}

fn list(dir: &Path) -> Result<Vec<(u32, u64, PathBuf)>, ReplayError> {
    let entries = fs::read_dir(dir).map_err(|source| ReplayError::Io {
        file: dir.to_owned(),
        source,
    })?;
    let mut files: Vec<(u32, u64, PathBuf)> = entries
        .iter()
        .filter_map(|e| parse_file_name(&e.name).map(|(shard, id)| (shard, id, dir.join(&e.name))))
        .collect();
    files.sort();
    Ok(files)
}

/// The segments that earlier runs of the node left, of all shards.
#[derive(Clone, Debug, Default)]
pub struct OldLog {
    /// The files, by rising ids.
    pub segments: Vec<PathBuf>,
    /// The largest id; 0 where there is no segment.
    pub last_segment: u64,
}

impl OldLog {
    /// Finds the segments in a directory and makes them durable. Removes the files that a killed process kept to use
    /// them again. A start does this before it reads a segment. Blocks.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn take(dir: &Path) -> Result<Self, ReplayError> {
        remove_spares(dir)?;
        let mut files = list(dir)?;
        files.sort_by_key(|&(shard, id, _)| (id, shard));
        let last_segment = files.last().map_or(0, |f| f.1);
        let segments: Vec<PathBuf> = files.into_iter().map(|f| f.2).collect();
        sync_segments(&segments)?;
        Ok(Self { segments, last_segment })
    }

    /// Removes the segments, the oldest first: no crash leaves an older one without a younger one, of whichever shard,
    /// which may say what of it is not needed. Blocks.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn remove(&self) -> Result<(), ReplayError> {
        for path in &self.segments {
            segment::release(path, None).map_err(|source| ReplayError::Io {
                file: path.clone(),
                source,
            })?;
        }
        Ok(())
    }
}

/// Makes old segments durable, and their names: a killed process may have left both to the kernel alone, and what a
/// start replays is read from then on.
fn sync_segments(files: &[PathBuf]) -> Result<(), ReplayError> {
    let directories: BTreeSet<&Path> = files.iter().filter_map(|path| path.parent()).collect();
    for directory in directories {
        fs::sync_dir(directory).map_err(|source| ReplayError::Io {
            file: directory.to_owned(),
            source,
        })?;
    }
    for path in files {
        fs::File::open(
            path,
            fs::OpenOptions {
                read: true,
                write: true,
                ..fs::OpenOptions::default()
            },
        )
        .and_then(|f| f.sync_data_blocking())
        .map_err(|source| ReplayError::Io {
            file: path.clone(),
            source,
        })?;
    }
    Ok(())
}

/// Removes the files that a killed process kept to use them again.
fn remove_spares(dir: &Path) -> Result<(), ReplayError> {
    let entries = fs::read_dir(dir).map_err(|source| ReplayError::Io {
        file: dir.to_owned(),
        source,
    })?;
    for path in entries.iter().map(|e| dir.join(&e.name)) {
        if path.extension().is_some_and(|e| e == segment::SPARE_EXTENSION) {
            fs::remove_file(&path).map_err(|source| ReplayError::Io {
                file: path.clone(),
                source,
            })?;
        }
    }
    Ok(())
}

impl Replay {
    /// Looks at the logs that this shard reads: its own, and of those of shards that the node no longer has every so
    /// many. So each log is read by one shard, which hands on what belongs to others.
    pub fn open(dir: &Path, boot_id: u128, shard: u32, shards: u32) -> Result<Self, ReplayError> {
        let mut replay = Self {
            boot_id,
            logs: BTreeMap::new(),
            discards: Vec::new(),
            files: Vec::new(),
            stats: ReplayStats::default(),
            batches: Batches::default(),
        };
        let found = list(dir)?;
        let is_one_run = are_of_one_run(&found)?;
        for (of, id, path) in found {
            let is_read_here = of % shards == shard;
            // What a later run says counts for all logs of earlier ones.
            if !is_read_here && is_one_run {
                continue;
            }
            let segment = load(&path, id)?;
            replay.look_at(of, &segment);
            if is_read_here {
                replay.files.push((of, id, path));
            }
        }
        replay.files.reverse();
        Ok(replay)
    }

    /// How far did a shard's log go, how far was it known to be durable, what does it say of this and others?
    fn look_at(&mut self, shard: u32, segment: &Loaded) {
        let log = self.logs.entry(shard).or_default();
        let name = segment.name(shard);
        let (discards, ended) = (&mut self.discards, &mut self.batches.ended);
        log.look_at(segment, |kind, body| match kind {
            KIND_DISCARD => discards.extend(Discard::decode(body).map(|discard| Noted {
                discard,
                shard,
                run: name.run,
            })),
            KIND_BATCH_ENDED => ended.extend(<[u8; BATCH_ID_BYTES]>::try_from(body)),
            _ => {}
        });
    }

    /// Replays the next segment; false when there was none left. `apply` gets each mutation that is still needed; an
    /// error it returns (in words) is reported with the file and offset of its chunk.
    pub fn next_segment(
        &mut self,
        mut apply: impl FnMut(Record<'_>) -> Result<(), String>,
    ) -> Result<bool, ReplayError> {
        let Some((shard, id, path)) = self.files.pop() else {
            return Ok(false);
        };
        let log = &self.logs[&shard];
        let known = Known {
            boot_id: self.boot_id,
            synced: log
                .runs
                .get(&id)
                .and_then(|run| log.synced.get(run))
                .copied()
                .unwrap_or_default(),
            end: log.ends.get(&id).copied().unwrap_or(0),
        };
        replay_segment(
            shard,
            &load(&path, id)?,
            &known,
            &self.discards,
            &mut self.stats,
            &mut self.batches,
            &mut apply,
        )?;
        self.stats.segments += 1;
        Ok(true)
    }

    /// Batches that the logs read here began before the stop and that perhaps did not reach every shard, by id: to be
    /// applied again, wholly, and then to be noted as ended. Known when every segment was replayed.
    pub fn unfinished_batches(&mut self) -> Vec<(u128, Vec<Vec<u8>>)> {
        let Batches { begun, ended } = std::mem::take(&mut self.batches);
        let unfinished = begun.into_iter().filter(|(id, _)| !ended.contains(id));
        unfinished.map(|(id, parts)| (u128::from_le_bytes(id), parts)).collect()
    }

    /// What was replayed so far.
    pub fn stats(&self) -> &ReplayStats {
        &self.stats
    }
}

impl ShardLog {
    fn look_at(&mut self, segment: &Loaded, mut note: impl FnMut(u8, &[u8])) {
        let mut run = segment.id;
        if let Some(h) = &segment.header {
            self.ends.insert(h.previous.segment, h.previous.offset);
            run = self.runs.get(&h.previous.segment).copied().unwrap_or(segment.id);
        }
        self.runs.insert(segment.id, run);
        let mut at = SEGMENT_HEADER_BYTES;
        loop {
            let Some(chunk) = read_chunk(&segment.bytes, at, segment.id) else {
                match find_chunk(&segment.bytes, at + ALIGN, segment.id) {
                    Some(next) => at = next,
                    None => return,
                }
                continue;
            };
            let synced = self.synced.entry(run).or_default();
            *synced = (*synced).max(chunk.synced);
            for (kind, body, _) in records(chunk.payload).flatten() {
                note(kind, body);
            }
            at = chunk.next;
        }
    }
}

impl Loaded {
    fn name(&self, shard: u32) -> LogName {
        LogName {
            shard,
            run: self.header.as_ref().map(|header| header.run),
        }
    }
}

/// Whether all these segments are known to be of one run of the node.
fn are_of_one_run(files: &[(u32, u64, PathBuf)]) -> Result<bool, ReplayError> {
    let mut runs = BTreeSet::new();
    for (_, id, path) in files {
        let header = read_header(path).map_err(|source| ReplayError::Io {
            file: path.clone(),
            source,
        })?;
        runs.insert(header.filter(|header| header.id == *id).map(|header| header.run));
    }
    Ok(runs.len() == 1 && !runs.contains(&None))
}

fn read_header(path: &Path) -> io::Result<Option<SegmentHeader>> {
    let options = fs::OpenOptions {
        read: true,
        ..fs::OpenOptions::default()
    };
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    let read = fs::File::open(path, options)?.read_at_blocking(&mut bytes, 0)?;
    Ok(SegmentHeader::decode(&bytes[..read]))
}

fn load(path: &Path, id: u64) -> Result<Loaded, ReplayError> {
    let mut bytes = fs::read(path).map_err(|source| ReplayError::Io {
        file: path.to_owned(),
        source,
    })?;
    if let Some(version) = SegmentHeader::unknown_version(&bytes) {
        return Err(ReplayError::UnknownFormat {
            file: path.to_owned(),
            version,
        });
    }
    let mut header = SegmentHeader::decode(&bytes);
    if header.as_ref().is_some_and(|h| h.id != id) {
        // A file that was renamed to be used again, but whose header had not been written yet: nothing is in it.
        bytes.clear();
        header = None;
    }
    Ok(Loaded {
        has_failed_sync: fs::exists(path.with_extension(segment::UNSYNCED_EXTENSION)),
        path: path.to_owned(),
        id,
        header,
        bytes,
    })
}

/// The next whole chunk of this segment at or after `at`.
fn find_chunk(bytes: &[u8], at: usize, id: u64) -> Option<usize> {
    let needle = id.to_le_bytes();
    let mut from = at;
    while let Some(found) = bytes.get(from..).and_then(|rest| memchr::memmem::find(rest, &needle)) {
        let place = from + found;
        if place.is_multiple_of(ALIGN) && read_chunk(bytes, place, id).is_some() {
            return Some(place);
        }
        from = place + 1;
    }
    None
}

fn replay_segment(
    shard: u32,
    segment: &Loaded,
    known: &Known,
    discards: &[Noted],
    stats: &mut ReplayStats,
    batches: &mut Batches,
    apply: &mut impl FnMut(Record<'_>) -> Result<(), String>,
) -> Result<(), ReplayError> {
    let corrupt = |offset: usize, expected: String| ReplayError::Corrupt {
        file: segment.path.clone(),
        offset: offset as u64,
        expected,
    };
    let same_boot = segment.header.as_ref().is_some_and(|h| h.boot_id == known.boot_id);
    let is_whole = same_boot && !segment.has_failed_sync;
    let mut at = SEGMENT_HEADER_BYTES;
    loop {
        let Some(chunk) = read_chunk(&segment.bytes, at, segment.id) else {
            let next = find_chunk(&segment.bytes, at + ALIGN, segment.id);
            let here = ReplayPosition {
                segment: segment.id,
                offset: u32::try_from(at).unwrap_or(u32::MAX),
            };
            let cut_short = (at as u64) < u64::from(known.end);
            if here < known.synced && (cut_short || next.is_some() || known.synced.segment == segment.id) {
                return Err(corrupt(at, "a chunk that had been made durable".to_owned()));
            }
            if (next.is_some() || cut_short) && is_whole {
                return Err(corrupt(at, "a whole chunk, as the log continues after it".to_owned()));
            }
            if next.is_some() || cut_short {
                log::warn!(
                    "commitlog {}: what followed offset {at} did not survive a power loss or a failure before its sync",
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
            let position = ReplayPosition {
                segment: segment.id,
                offset,
            };
            let mut one = |mutation: &[u8]| -> Result<(), ReplayError> {
                if is_discarded(discards, segment.name(shard), position, mutation) {
                    stats.discarded += 1;
                    return Ok(());
                }
                stats.mutations += 1;
                apply(Record {
                    shard,
                    position,
                    mutation,
                })
                .map_err(|e| corrupt(at, e))
            };
            let malformed = || corrupt(at, "a whole batch".to_owned());
            match kind {
                KIND_DISCARD => {}
                KIND_MUTATION => one(body)?,
                KIND_BATCH => {
                    for m in mutations(body) {
                        one(m.ok_or_else(malformed)?)?;
                    }
                }
                KIND_BATCH_BEGUN => {
                    let (id, rest) = body.split_first_chunk::<BATCH_ID_BYTES>().ok_or_else(malformed)?;
                    let parts: Option<Vec<Vec<u8>>> = mutations(rest).map(|m| m.map(<[u8]>::to_vec)).collect();
                    batches.begun.insert(*id, parts.ok_or_else(malformed)?);
                }
                KIND_BATCH_ENDED => {
                    let id: [u8; BATCH_ID_BYTES] = body.try_into().map_err(|_| malformed())?;
                    if batches.begun.remove(&id).is_none() {
                        batches.ended.insert(id);
                    }
                }
                other => return Err(corrupt(at, format!("a record of kind 1 to 5, not {other}"))),
            }
        }
        at = chunk.next;
    }
}

/// Whether a mutation at a position of a log needs no replay.
fn is_discarded(discards: &[Noted], log: LogName, position: ReplayPosition, mutation: &[u8]) -> bool {
    if discards.is_empty() {
        return false;
    }
    let Some(m) = mutation::Mutation::new(mutation) else {
        return false;
    };
    let mut token = None;
    discards.iter().any(|Noted { discard: d, shard, run }| {
        let is_beside = *shard != log.shard && run.is_some() && *run == log.run;
        d.table == m.table && position <= d.position && !is_beside && {
            let t = *token.get_or_insert_with(|| types::token::token_of(m.key));
            (t > d.after || d.after.0 == i64::MIN) && t <= d.up_to_token
        }
    })
}
