//! The member's file: what it has promised, durable before it says so.
//!
//! ```text
//! file     header chunk*
//! header   64 bytes: "CETORAFT", u32 format 1, u32 zero, u64 group, u64 id, zeros, u32 crc of the 60 bytes before
//! chunk    u32 magic, u32 crc of all that follows, u64 number (1, 2, …), u32 payload bytes, u32 zero, payload
//! payload  item*
//! item     u8 kind and
//!   1 base         u64 index and u64 term of the entry before the first, snapshot (codec); ends all entries before it
//!   2 entry        entry (codec); ends entries with its index and above before it
//!   3 hard state   u64 term, u64 vote, u64 commit
//!   4 incarnation  u64 starts of this member
//!   5 epoch        u64 number, u64 nonce
//!   6 recovery     u64 number of the epoch, i64 µs since 1970, u32 count and u64 ids of the members given up
//!   7 run          u64, a random name of one start of this member; the last 256 count
//! ```
//!
//! Big endian. Invariants:
//! - A chunk is written only when the one before it is durable. So at most the last chunk can be torn; a damaged chunk
//!   that a whole one follows is damage, and an error that names file and offset. (Damage of exactly the last chunk
//!   looks like a torn write.)
//! - The first chunk is written with the header under another name, synced, and renamed: it is never torn.
//! - A failed write or sync is repeated from the same offset until it succeeds: nothing is acknowledged in between.
//! - What follows the last whole chunk at start is cut off before anything is written there.

use crate::apply::Applied;
use crate::codec::{
    Malformed, expected, get_bytes, get_conf, get_entry, get_number, put_bytes, put_conf, put_entry, put_u32, put_u64,
};
use crate::epoch::Epoch;
use crate::recovered::{Recovered, Recovery};
use raft::eraftpb::{ConfState, Entry, HardState};
use runtime::fs::{self, File, OpenOptions};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use stdx::bytes::Reader;
use stdx::planted::{self, Bug};

const FILE_NAME: &str = "metadata-raft.log";
const NEW_FILE_NAME: &str = "metadata-raft.log.new";
const MAGIC: &[u8; 8] = b"CETORAFT";
const FORMAT: u32 = 1;
const HEADER_BYTES: usize = 64;
const CHUNK_MAGIC: u32 = 0xce70_c4a1;
const CHUNK_HEADER_BYTES: usize = 24;

const KIND_BASE: u8 = 1;
const KIND_ENTRY: u8 = 2;
const KIND_HARD_STATE: u8 = 3;
const KIND_INCARNATION: u8 = 4;
const KIND_EPOCH: u8 = 5;
const KIND_RECOVERY: u8 = 6;
const KIND_RUN: u8 = 7;

/// Why a member's file cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreError {
    /// The system refused.
    Io {
        /// The file or directory.
        file: PathBuf,
        /// The kind of error.
        kind: io::ErrorKind,
        /// The system's words.
        message: String,
    },
    /// It is not a file of this program, or of another version.
    Foreign {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// It belongs to another group or member.
    OtherMember {
        /// The file.
        file: PathBuf,
        /// The group and member it belongs to.
        found: (u64, u64),
        /// The group and member that were expected.
        expected: (u64, u64),
    },
    /// Bytes that were durable are not what was written.
    Damaged {
        /// The file.
        file: PathBuf,
        /// Offset of the damaged part.
        offset: u64,
        /// What was expected there.
        expected: String,
    },
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { file, message, .. } => write!(f, "{}: {message}", file.display()),
            Self::Foreign { file, reason } => write!(f, "{} is no metadata log: {reason}", file.display()),
            Self::OtherMember { file, found, expected } => write!(
                f,
                "{} belongs to member {} of group {:#x}; this is member {} of group {:#x}",
                file.display(),
                found.1,
                found.0,
                expected.1,
                expected.0
            ),
            Self::Damaged { file, offset, expected } => write!(
                f,
                "{} is damaged at offset {offset}: {expected} expected; the node must leave the metadata group and join it again, \
                 for it no longer knows what it has promised",
                file.display()
            ),
        }
    }
}

impl std::error::Error for StoreError {}

fn io_error(file: &Path) -> impl Fn(io::Error) -> StoreError {
    let file = file.to_owned();
    move |error| StoreError::Io {
        file: file.clone(),
        kind: error.kind(),
        message: error.to_string(),
    }
}

/// The content of a chunk, item by item.
#[derive(Default)]
pub(crate) struct Items(pub(crate) Vec<u8>);

impl Items {
    pub(crate) fn base(&mut self, truncated: (u64, u64), index: u64, term: u64, conf: &ConfState, data: &[u8]) {
        self.0.push(KIND_BASE);
        for number in [truncated.0, truncated.1, index, term] {
            put_u64(&mut self.0, number);
        }
        put_conf(&mut self.0, conf);
        put_bytes(&mut self.0, data);
    }

    pub(crate) fn entries(&mut self, entries: &[Entry]) {
        for entry in entries {
            self.0.push(KIND_ENTRY);
            put_entry(&mut self.0, entry);
        }
    }

    pub(crate) fn hard_state(&mut self, state: &HardState) {
        self.0.push(KIND_HARD_STATE);
        for number in [state.term, state.vote, state.commit] {
            put_u64(&mut self.0, number);
        }
    }

    pub(crate) fn incarnation(&mut self, incarnation: u64) {
        self.0.push(KIND_INCARNATION);
        put_u64(&mut self.0, incarnation);
    }

    pub(crate) fn run(&mut self, run: u64) {
        self.0.push(KIND_RUN);
        put_u64(&mut self.0, run);
    }

    pub(crate) fn epoch(&mut self, epoch: Epoch) {
        self.0.push(KIND_EPOCH);
        put_u64(&mut self.0, epoch.number);
        put_u64(&mut self.0, epoch.nonce);
    }

    pub(crate) fn recovery(&mut self, recovery: &Recovery) {
        self.0.push(KIND_RECOVERY);
        put_u64(&mut self.0, recovery.epoch.number);
        self.0.extend_from_slice(&recovery.at_us.to_be_bytes());
        put_u32(
            &mut self.0,
            u32::try_from(recovery.lost.len()).expect("a group has few members"),
        );
        for id in &recovery.lost {
            put_u64(&mut self.0, *id);
        }
    }

    /// Everything that a member's state is.
    pub(crate) fn whole(state: &Recovered) -> Self {
        let mut items = Self::default();
        if let Some(epoch) = state.epoch {
            items.epoch(epoch);
        }
        if let Some(recovery) = &state.recovery {
            items.recovery(recovery);
        }
        items.incarnation(state.incarnation);
        state.runs.iter().for_each(|run| items.run(*run));
        if state.snapshot_index > 0 {
            items.base(
                state.truncated,
                state.snapshot_index,
                state.snapshot_term,
                &state.conf,
                &state.data,
            );
        }
        items.entries(&state.entries);
        if state.hard_state != HardState::default() {
            items.hard_state(&state.hard_state);
        }
        items
    }
}

/// A member's open file. Lives on shard 0.
pub(crate) struct Store {
    dir: PathBuf,
    group: u64,
    id: u64,
    file: File,
    end: u64,
    /// Number of the last chunk.
    chunk: u64,
    /// Where the first chunk ends.
    first_end: u64,
    /// Whether the file's name is not known to survive a power loss.
    is_name_open: bool,
}

impl Store {
    /// Reads the file of this member, if there is one, and leaves it as it is. Blocks.
    pub(crate) fn read(dir: &Path, group: u64, id: u64) -> Result<Option<Recovered>, StoreError> {
        Ok(read_file(dir, group, id)?.map(|(read, _)| read.state))
    }

    /// Opens the file of this member, if there is one, and reads it. Blocks.
    pub(crate) fn open(dir: &Path, group: u64, id: u64) -> Result<Option<(Self, Recovered)>, StoreError> {
        let path = dir.join(FILE_NAME);
        let Some((read, file_bytes)) = read_file(dir, group, id)? else {
            return Ok(None);
        };
        let options = OpenOptions {
            read: true,
            write: true,
            ..OpenOptions::default()
        };
        let file = File::open(&path, options).map_err(io_error(&path))?;
        if read.end < file_bytes {
            log::info!(
                "{}: the last {} bytes are an unfinished write, which was never acknowledged; they are dropped",
                path.display(),
                file_bytes - read.end
            );
            file.set_len(read.end)
                .and_then(|()| file.sync_all_blocking())
                .map_err(io_error(&path))?;
        }
        let store = Self {
            dir: dir.to_owned(),
            group,
            id,
            file,
            end: read.end,
            chunk: read.chunks,
            first_end: read.first_end,
            // The process may have ended between a rename and its sync.
            is_name_open: true,
        };
        Ok(Some((store, read.state)))
    }

    /// Makes the file of a new member. Blocks.
    pub(crate) fn create(dir: &Path, group: u64, id: u64, state: &Recovered) -> Result<Self, StoreError> {
        fs::create_dir_all(dir).map_err(io_error(dir))?;
        sync_names(dir)?;
        let written = write_whole(dir, group, id, &Items::whole(state).0)?;
        fs::sync_dir(dir).map_err(io_error(dir))?;
        Ok(Self {
            dir: dir.to_owned(),
            group,
            id,
            file: written.0,
            end: written.1,
            chunk: 1,
            first_end: written.1,
            is_name_open: false,
        })
    }

    /// Makes the items durable, as one: after a crash all are there or none.
    pub(crate) async fn append(&mut self, items: Items) -> Result<(), StoreError> {
        self.sync_name().await?;
        let path = self.dir.join(FILE_NAME);
        let chunk = encode_chunk(self.chunk + 1, &items.0);
        let length = chunk.len() as u64;
        self.file.write_at(chunk, self.end).await.0.map_err(io_error(&path))?;
        if !planted::is_planted(Bug::UnsyncedMetadata) {
            self.file.sync_data().await.map_err(io_error(&path))?;
        }
        self.end += length;
        self.chunk += 1;
        Ok(())
    }

    async fn sync_name(&mut self) -> Result<(), StoreError> {
        if self.is_name_open {
            let dir = self.dir.clone();
            runtime::offload(move || fs::sync_dir(&dir).map_err(io_error(&dir))).await?;
            self.is_name_open = false;
        }
        Ok(())
    }

    /// Replaces the file by one with this state. After an error it is the old or the new file; appending continues.
    pub(crate) async fn rewrite(&mut self, state: &Recovered) -> Result<(), StoreError> {
        let items = Items::whole(state);
        let (dir, group, id) = (self.dir.clone(), self.group, self.id);
        let (file, end) = runtime::offload(move || write_whole(&dir, group, id, &items.0)).await?;
        self.file = file;
        self.end = end;
        self.chunk = 1;
        self.first_end = end;
        self.is_name_open = true;
        self.sync_name().await
    }

    /// Bytes that were added since the file was last written as a whole, and what that was.
    pub(crate) fn sizes(&self) -> (u64, u64) {
        (self.end - self.first_end, self.first_end)
    }
}

/// Makes the directory's own name durable, and the names of those above it: any of them may be new, and a member whose
/// directory vanishes with the power votes twice.
fn sync_names(dir: &Path) -> Result<(), StoreError> {
    for above in dir.ancestors().skip(1) {
        let above = if above.as_os_str().is_empty() {
            Path::new(".")
        } else {
            above
        };
        match fs::sync_dir(above) {
            // A directory that we may not even read holds no name that we made.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => break,
            result => result.map_err(io_error(above))?,
        }
    }
    Ok(())
}

/// Writes a new file beside the old one, and renames it over the old one. The directory is not synced yet.
fn write_whole(dir: &Path, group: u64, id: u64, items: &[u8]) -> Result<(File, u64), StoreError> {
    let (new, path) = (dir.join(NEW_FILE_NAME), dir.join(FILE_NAME));
    let mut bytes = encode_header(group, id).to_vec();
    bytes.extend_from_slice(&encode_chunk(1, items));
    let options = OpenOptions {
        read: true,
        write: true,
        create: true,
        truncate: true,
        ..OpenOptions::default()
    };
    let write = || {
        let file = File::open(&new, options)?;
        file.write_all_at_blocking(&bytes, 0)?;
        file.sync_all_blocking()?;
        Ok(file)
    };
    let file = write().map_err(|error| {
        // It may have been the last free space.
        let _ = fs::remove_file(&new);
        io_error(&new)(error)
    })?;
    fs::rename(&new, &path).map_err(io_error(&path))?;
    Ok((file, bytes.len() as u64))
}

pub(crate) fn encode_header(group: u64, id: u64) -> [u8; HEADER_BYTES] {
    let mut out = [0; HEADER_BYTES];
    out[..8].copy_from_slice(MAGIC);
    out[8..12].copy_from_slice(&FORMAT.to_be_bytes());
    out[16..24].copy_from_slice(&group.to_be_bytes());
    out[24..32].copy_from_slice(&id.to_be_bytes());
    let crc = crc32fast::hash(&out[..60]);
    out[60..].copy_from_slice(&crc.to_be_bytes());
    out
}

/// Group and member.
fn read_header(file: &Path, bytes: &[u8]) -> Result<(u64, u64), StoreError> {
    let foreign = |reason: String| StoreError::Foreign {
        file: file.to_owned(),
        reason,
    };
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Err(foreign(format!(
            "it has {} bytes, and its header alone has {HEADER_BYTES}",
            bytes.len()
        )));
    };
    if &header[..8] != MAGIC {
        return Err(foreign("it does not begin with CETORAFT".to_owned()));
    }
    let mut reader = Reader::new(&header[8..]);
    let mut number = || reader.get_u64().expect("the header is longer");
    let (format, group, id) = (number() >> 32, number(), number());
    if header[60..] != crc32fast::hash(&header[..60]).to_be_bytes() {
        return Err(StoreError::Damaged {
            file: file.to_owned(),
            offset: 0,
            expected: "a header with its checksum".to_owned(),
        });
    }
    match u32::try_from(format) {
        Ok(FORMAT) => Ok((group, id)),
        _ => Err(foreign(format!(
            "its format is {format}, and this program knows format {FORMAT}"
        ))),
    }
}

/// What the file of a member holds, if there is one, and its length.
fn read_file(dir: &Path, group: u64, id: u64) -> Result<Option<(Read, u64)>, StoreError> {
    let path = dir.join(FILE_NAME);
    if !fs::exists(&path) {
        return Ok(None);
    }
    let bytes = fs::read(&path).map_err(io_error(&path))?;
    let found = read_header(&path, &bytes)?;
    if found != (group, id) {
        return Err(StoreError::OtherMember {
            file: path,
            found,
            expected: (group, id),
        });
    }
    let read = read_chunks(&path, &bytes)?;
    Ok(Some((read, bytes.len() as u64)))
}

pub(crate) fn encode_chunk(number: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(CHUNK_HEADER_BYTES + payload.len());
    put_u32(&mut out, CHUNK_MAGIC);
    put_u32(&mut out, 0);
    put_u64(&mut out, number);
    put_u32(
        &mut out,
        u32::try_from(payload.len()).expect("snapshots are far below 4 GiB"),
    );
    put_u32(&mut out, 0);
    out.extend_from_slice(payload);
    let crc = crc32fast::hash(&out[8..]);
    out[4..8].copy_from_slice(&crc.to_be_bytes());
    out
}

/// Number and payload of a whole chunk at the offset.
fn chunk_at(bytes: &[u8], at: usize) -> Option<(u64, &[u8])> {
    let rest = bytes.get(at..)?;
    let mut reader = Reader::new(rest);
    if reader.get_u32().ok()? != CHUNK_MAGIC {
        return None;
    }
    let crc = reader.get_u32().ok()?;
    let number = reader.get_u64().ok()?;
    let length = reader.get_u32().ok()? as usize;
    let end = CHUNK_HEADER_BYTES.checked_add(length)?;
    let whole = rest.get(..end)?;
    (crc32fast::hash(&whole[8..]) == crc).then(|| (number, &whole[CHUNK_HEADER_BYTES..]))
}

pub(crate) struct Read {
    pub(crate) state: Recovered,
    end: u64,
    chunks: u64,
    first_end: u64,
}

pub(crate) fn read_chunks(file: &Path, bytes: &[u8]) -> Result<Read, StoreError> {
    let damaged = |offset: usize, expected: String| StoreError::Damaged {
        file: file.to_owned(),
        offset: offset as u64,
        expected,
    };
    let mut state = Recovered::default();
    let (mut at, mut chunks, mut first_end) = (HEADER_BYTES, 0, 0);
    while at < bytes.len() {
        let Some((_, payload)) = chunk_at(bytes, at).filter(|(number, _)| *number == chunks + 1) else {
            // Only the last chunk may be torn: a later one was written when this one was durable.
            let later =
                (at + 1..bytes.len()).any(|offset| chunk_at(bytes, offset).is_some_and(|(number, _)| number > chunks));
            if chunks == 0 || later {
                return Err(damaged(at, format!("chunk {} with its checksum", chunks + 1)));
            }
            break;
        };
        let items_at = at + CHUNK_HEADER_BYTES;
        read_items(payload, &mut state)
            .map_err(|malformed| damaged(items_at + malformed.at, malformed.expected.to_owned()))?;
        chunks += 1;
        at = items_at + payload.len();
        if chunks == 1 {
            first_end = at as u64;
        }
    }
    if chunks == 0 {
        return Err(damaged(at, "a first chunk".to_owned()));
    }
    let last = state.truncated.0 + state.entries.len() as u64;
    if state.hard_state.commit > last || state.snapshot_index > last {
        return Err(damaged(
            at,
            format!(
                "entries up to {}, which are known to be committed, where they end at {last}",
                state.hard_state.commit.max(state.snapshot_index)
            ),
        ));
    }
    if state.hard_state != HardState::default() || state.snapshot_index > 0 {
        state.hard_state.commit = state.hard_state.commit.max(state.snapshot_index);
        state.hard_state.term = state.hard_state.term.max(state.snapshot_term);
    }
    Ok(Read {
        state,
        end: at as u64,
        chunks,
        first_end,
    })
}

fn read_items(payload: &[u8], state: &mut Recovered) -> Result<(), Malformed> {
    let mut reader = Reader::new(payload);
    while !reader.is_empty() {
        let at = reader.at();
        match reader.get_u8().map_err(expected("the kind of an item"))? {
            KIND_BASE => {
                let mut number = || get_number(&mut reader, "an index or term");
                state.truncated = (number()?, number()?);
                (state.snapshot_index, state.snapshot_term) = (number()?, number()?);
                state.conf = get_conf(&mut reader)?;
                state.data = get_bytes(&mut reader, "a snapshot")?.to_vec();
                Applied::decode(&state.data)?;
                state.entries.clear();
                if state.truncated.0 > state.snapshot_index || state.snapshot_index == 0 {
                    return Err(Malformed {
                        expected: "a snapshot at or after the first entry",
                        at,
                    });
                }
            }
            KIND_ENTRY => {
                let entry = get_entry(&mut reader)?;
                let next = state.truncated.0 + state.entries.len() as u64 + 1;
                if entry.index <= state.truncated.0 || entry.index > next {
                    return Err(Malformed {
                        expected: "an entry that follows the ones before",
                        at,
                    });
                }
                let keep = usize::try_from(entry.index - state.truncated.0 - 1).expect("at most as many as there are");
                state.entries.truncate(keep);
                state.entries.push(entry);
            }
            KIND_HARD_STATE => {
                state.hard_state.term = get_number(&mut reader, "a term")?;
                state.hard_state.vote = reader.get_u64().map_err(expected("a vote"))?;
                state.hard_state.commit = get_number(&mut reader, "a commit index")?;
            }
            KIND_INCARNATION => state.incarnation = reader.get_u64().map_err(expected("a count of starts"))?,
            KIND_EPOCH => {
                let mut number = || reader.get_u64().map_err(expected("an epoch"));
                state.epoch = Some(Epoch {
                    number: number()?,
                    nonce: number()?,
                });
            }
            KIND_RUN => state.add_run(reader.get_u64().map_err(expected("the name of a start"))?),
            KIND_RECOVERY => {
                let number = reader.get_u64().map_err(expected("an epoch"))?;
                // The epoch that the recovery began precedes it in the file, with the nonce.
                let begun = state.epoch.filter(|epoch| epoch.number == number);
                let epoch = begun.unwrap_or(Epoch { number, nonce: 0 });
                let at_us = reader.get_i64().map_err(expected("a time"))?;
                let count = reader.get_u32().map_err(expected("a count of members"))?;
                let mut lost = Vec::new();
                for _ in 0..count {
                    lost.push(reader.get_u64().map_err(expected("a member"))?);
                }
                state.recovery = Some(Recovery { epoch, at_us, lost });
            }
            _ => {
                return Err(Malformed {
                    expected: "a known kind of item",
                    at,
                });
            }
        }
    }
    Ok(())
}
