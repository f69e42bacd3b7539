//! The metadata file: what a restart serves from at once, without asking another node.
//!
//! ```text
//! DIR/metadata        "CETOMET1", u64 length of the base, base, record*
//! DIR/metadata.tmp    the next one while it is written
//! DIR/raft/           the log of the metadata group
//!
//! base      a whole value, in its checksummed form
//! record    u32 crc of all that follows, u32 bytes of changes, u64 number (1, 2, …), change*
//! change    u64 index, u32 length, command
//! ```
//!
//! Big endian. The value is that of the base after the changes of all records: a change costs what its command has, and
//! not what the value has. A command that was rejected is written with the next one that is not, so that a restart
//! remembers the same rejections.
//!
//! Invariants:
//! - A process appends only to a file that it has written itself; its first change after a start writes a new one. So
//!   nothing is ever written after the torn end of an earlier run, and an append that failed is followed by a new file.
//! - A record is written only when the one before it is durable. So a damaged record that a whole one follows is
//!   damage, an error that names the offset; the last one may be torn: a change that was not acknowledged here, and
//!   that is in the log.
//! - A new file is written beside the old one, synced and renamed, and the directory is synced: it is there as a whole
//!   or not at all.
//! - The records are never longer than the base and [`TAIL_BYTES_MIN`]: then the whole file is rewritten. So what is
//!   written per change is at most twice its command, and the file at most twice the value.

use crate::error::LoadError;
use crate::metadata::Metadata;
use crate::metadata::command::Command;
use record::Known;
use runtime::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use stdx::bytes::{Reader, Truncated};

const MAGIC: &[u8; 8] = b"CETOMET1";
const RECORD_HEADER_BYTES: usize = 16;
/// Records that a small value may have before the file is rewritten.
pub(crate) const TAIL_BYTES_MIN: u64 = 64 << 10;

pub(crate) fn path(dir: &Path) -> PathBuf {
    dir.join("metadata")
}

/// Where the log of the group is.
pub(crate) fn raft_dir(dir: &Path) -> PathBuf {
    dir.join("raft")
}

/// Notes that the node took the metadata from the members, under a Raft id that has no log yet.
fn rejoined_path(dir: &Path) -> PathBuf {
    dir.join("rejoined")
}

/// The generation of the Raft id under which the node may begin a new log, if it may.
pub(crate) fn rejoined(dir: &Path) -> Option<u32> {
    let text = fs::read(rejoined_path(dir)).ok()?;
    String::from_utf8_lossy(&text).trim().parse().ok()
}

/// The log is begun, or no new one may begin. Blocks.
pub(crate) fn forget_rejoined(dir: &Path) -> io::Result<()> {
    if fs::exists(rejoined_path(dir)) {
        fs::remove_file(rejoined_path(dir))?;
        fs::sync_dir(dir)?;
    }
    Ok(())
}

/// Puts the metadata that members gave in the place of what the node had, which is kept beside it under other names.
/// Blocks.
///
/// After a crash in the middle the node does not start: what it has is of an older Raft id, or has no log and may not
/// begin one.
pub(crate) fn take_anew(dir: &Path, metadata: &Metadata, generation: u32) -> Result<(), String> {
    let at = |e: io::Error| format!("{}: {e}", dir.display());
    create_dir(dir).map_err(at)?;
    let stale = [
        (path(dir), dir.join("metadata.replaced")),
        (log_path(dir), dir.join("metadata-raft.log.replaced")),
    ];
    for (from, to) in stale.iter().filter(|(from, _)| fs::exists(from)) {
        fs::rename(from, to).map_err(at)?;
    }
    if fs::exists(raft_dir(dir)) {
        fs::sync_dir(raft_dir(dir)).map_err(at)?;
    }
    fs::sync_dir(dir).map_err(at)?;
    save_whole(dir, metadata)?;
    // Last: with it the node may begin a log.
    let open = OpenOptions {
        write: true,
        create: true,
        truncate: true,
        ..OpenOptions::default()
    };
    let written = File::open(rejoined_path(dir), open).and_then(|file| {
        file.write_all_at_blocking(format!("{generation}\n").as_bytes(), 0)?;
        file.sync_all_blocking()
    });
    written.and_then(|()| fs::sync_dir(dir)).map_err(at)
}

fn log_path(dir: &Path) -> PathBuf {
    raft_dir(dir).join("metadata-raft.log")
}

/// Whether the group's log was begun.
pub(crate) fn has_log(dir: &Path) -> bool {
    fs::exists(log_path(dir))
}

/// Reads the metadata of a node; None when it was never in a cluster. Blocks; called before the shards start.
///
/// # Errors
/// When the file is damaged, cannot be read, or holds what this node does not know.
pub fn load(dir: &Path, known: &Known) -> Result<Option<Metadata>, LoadError> {
    let path = path(dir);
    let at = |why: String| LoadError {
        path: path.clone(),
        why,
    };
    if !fs::exists(&path) {
        return Ok(None);
    }
    let bytes = fs::read(&path).map_err(|e| at(e.to_string()))?;
    read(&bytes, known).map(Some).map_err(at)
}

pub(crate) fn read(bytes: &[u8], known: &Known) -> Result<Metadata, String> {
    let mut reader = match bytes.strip_prefix(MAGIC) {
        Some(rest) => Reader::new(rest),
        None => {
            let found = bytes[..bytes.len().min(MAGIC.len())].escape_ascii();
            return Err(format!(
                "the file begins with '{found}': expected '{}', the only format known here; if another release wrote it, start that release",
                MAGIC.escape_ascii()
            ));
        }
    };
    let base = base(&mut reader).map_err(|e| format!("the base ends too early: {e}"))?;
    let mut metadata = Metadata::decode(base, known).map_err(|e| e.to_string())?;
    let (mut at, mut number) = (bytes.len() - reader.rest().len(), 1);
    while at < bytes.len() {
        let Some(changes) = record_at(bytes, at, number) else {
            let is_followed = (at + 1..bytes.len()).any(|at| record_at(bytes, at, number + 1).is_some());
            if is_followed {
                return Err(format!(
                    "damaged at offset {at}: record {number} with its checksum expected"
                ));
            }
            break;
        };
        replay(&mut metadata, changes, known).map_err(|why| format!("record {number} at offset {at}: {why}"))?;
        at += RECORD_HEADER_BYTES + changes.len();
        number += 1;
    }
    Ok(metadata)
}

fn base<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Truncated> {
    let length = reader.get_u64()?;
    reader.get_slice(usize::try_from(length).unwrap_or(usize::MAX))
}

/// The changes of a whole record.
fn record_at(bytes: &[u8], at: usize, number: u64) -> Option<&[u8]> {
    let rest = bytes.get(at..)?;
    let mut reader = Reader::new(rest);
    let (checksum, length) = (reader.get_u32().ok()?, reader.get_u32().ok()? as usize);
    if reader.get_u64().ok()? != number {
        return None;
    }
    let record = rest.get(..RECORD_HEADER_BYTES.checked_add(length)?)?;
    (crc32fast::hash(&record[4..]) == checksum).then(|| &record[RECORD_HEADER_BYTES..])
}

fn replay(metadata: &mut Metadata, changes: &[u8], known: &Known) -> Result<(), String> {
    let mut reader = Reader::new(changes);
    while !reader.is_empty() {
        let mut change = || -> Result<(u64, &[u8]), Truncated> {
            let index = reader.get_u64()?;
            let length = reader.get_u32()? as usize;
            Ok((index, reader.get_slice(length)?))
        };
        let (index, bytes) = change().map_err(|e| e.to_string())?;
        let command = Command::decode(bytes, known).map_err(|e| e.to_string())?;
        let outcome = metadata.apply(index, &command);
        *metadata = metadata.step(index, bytes, outcome);
    }
    Ok(())
}

/// A file of this process, to which changes are appended. Lives on shard 0.
pub(crate) struct MetadataFile {
    dir: PathBuf,
    /// None until this process has written the file, and after a failure.
    open: Option<Open>,
    /// Changes that go with the next record.
    waiting: Vec<u8>,
    /// Bytes that were written for changes, and for whole values.
    pub(crate) written: Written,
}

struct Open {
    file: File,
    base_end: u64,
    end: u64,
    records: u64,
}

/// What keeping the metadata has cost.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Written {
    /// Records that were appended.
    pub records: u64,
    /// Their bytes.
    pub record_bytes: u64,
    /// Whole values that were written.
    pub wholes: u64,
    /// Their bytes.
    pub whole_bytes: u64,
}

impl MetadataFile {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            open: None,
            waiting: Vec::new(),
            written: Written::default(),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        path(&self.dir)
    }

    /// A change that did not change the value: kept with the next that does.
    pub(crate) fn note(&mut self, index: u64, command: &[u8]) {
        put_change(&mut self.waiting, index, command);
        // Rejections are remembered for as many commands as there may be; a whole value has them too.
        if self.waiting.len() as u64 > TAIL_BYTES_MIN {
            self.open = None;
            self.waiting.clear();
        }
    }

    /// Makes a change durable, after which the value is `next`. After an error it may be called again.
    pub(crate) async fn change(&mut self, index: u64, command: &[u8], next: &Metadata) -> io::Result<()> {
        let Some(mut open) = self.open.take() else {
            return self.replace(next).await;
        };
        let mut changes = self.waiting.clone();
        put_change(&mut changes, index, command);
        let record = encode_record(open.records + 1, &changes);
        let length = record.len() as u64;
        let tail = open.end - open.base_end + length;
        if tail > open.base_end.max(TAIL_BYTES_MIN) {
            return self.replace(next).await;
        }
        open.file.write_at(record, open.end).await.0?;
        open.file.sync_data().await?;
        open.end += length;
        open.records += 1;
        self.waiting.clear();
        self.written.records += 1;
        self.written.record_bytes += length;
        self.open = Some(open);
        Ok(())
    }

    /// Makes a whole value durable. After an error it may be called again.
    pub(crate) async fn replace(&mut self, next: &Metadata) -> io::Result<()> {
        self.open = None;
        let (dir, next) = (self.dir.clone(), next.clone());
        let (file, end) = runtime::offload(move || save(&dir, &next.encode())).await?;
        self.waiting.clear();
        self.written.wholes += 1;
        self.written.whole_bytes += end;
        self.open = Some(Open {
            file,
            base_end: end,
            end,
            records: 0,
        });
        Ok(())
    }
}

fn put_change(out: &mut Vec<u8>, index: u64, command: &[u8]) {
    out.extend_from_slice(&index.to_be_bytes());
    let length = u32::try_from(command.len()).expect("a command has 16 MiB at most");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(command);
}

pub(crate) fn encode_record(number: u64, changes: &[u8]) -> Vec<u8> {
    let mut record = vec![0; 4];
    let length = u32::try_from(changes.len()).expect("a record is a command and what waited, of 64 KiB");
    record.extend_from_slice(&length.to_be_bytes());
    record.extend_from_slice(&number.to_be_bytes());
    record.extend_from_slice(changes);
    let checksum = crc32fast::hash(&record[4..]);
    record[..4].copy_from_slice(&checksum.to_be_bytes());
    record
}

pub(crate) fn encode_base(encoded: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&(encoded.len() as u64).to_be_bytes());
    bytes.extend_from_slice(encoded);
    bytes
}

/// Makes a whole value durable; the file and its length. Blocks.
pub(crate) fn save(dir: &Path, encoded: &[u8]) -> io::Result<(File, u64)> {
    let path = path(dir);
    let temporary = dir.join("metadata.tmp");
    let open = OpenOptions {
        read: true,
        write: true,
        create: true,
        truncate: true,
        ..OpenOptions::default()
    };
    let file = File::open(&temporary, open)?;
    let bytes = encode_base(encoded);
    file.write_all_at_blocking(&bytes, 0)?;
    file.sync_all_blocking()?;
    fs::rename(&temporary, &path)?;
    fs::sync_dir(dir)?;
    Ok((file, bytes.len() as u64))
}

/// Makes the metadata durable, for a node that does not run. Blocks.
pub(crate) fn save_whole(dir: &Path, metadata: &Metadata) -> Result<(), String> {
    let at = |why: &dyn std::fmt::Display| format!("{}: {why}", path(dir).display());
    save(dir, &metadata.encode()).map(drop).map_err(|e| at(&e))
}

/// Makes the directory, and its name and those above it survive a power loss. Blocks.
pub(crate) fn create_dir(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for above in dir.ancestors().skip(1).filter(|d| !d.as_os_str().is_empty()) {
        // Directories that were there before may be closed to us; ours are not.
        if fs::sync_dir(above).is_err() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::Schema;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use topology::{Topology, TopologyCommand};
    use uuid::Uuid;

    fn start() -> Metadata {
        let schema = Schema {
            version: Uuid::nil(),
            keyspaces: BTreeMap::new(),
        };
        Metadata::new(Arc::new(schema), Topology::new("sea", Uuid::from_u128(1)))
    }

    /// One that is applied, and one that is rejected.
    fn commands() -> [Vec<u8>; 2] {
        let applied = Command::Topology(TopologyCommand::EnableFeatures(["a".to_owned()].into()));
        let rejected = Command::RemoveTablets {
            table: schema::TableId(Uuid::from_u128(7)),
        };
        [applied, rejected].map(|command| command.encode())
    }

    /// A file of a base and three records, where each of them begins, and the values with none, one, two and three of
    /// them.
    fn file() -> (Vec<u8>, Vec<usize>, Vec<Metadata>) {
        let [applied, rejected] = commands();
        let mut values = vec![start()];
        let mut bytes = encode_base(&values[0].encode());
        let mut begins = Vec::new();
        for (number, indexes) in (1..).zip([vec![3], vec![4, 6], vec![7]]) {
            begins.push(bytes.len());
            let mut changes = Vec::new();
            let mut value = values.last().expect("there is one").clone();
            for (place, index) in indexes.iter().enumerate() {
                let command = if place + 1 < indexes.len() { &rejected } else { &applied };
                put_change(&mut changes, *index, command);
                let decoded = Command::decode(command, &Known::everything()).expect("what was encoded");
                value = value.step(*index, command, value.apply(*index, &decoded));
            }
            bytes.extend_from_slice(&encode_record(number, &changes));
            values.push(value);
        }
        (bytes, begins, values)
    }

    #[test]
    fn a_file_is_its_base_and_all_changes_rejected_ones_too() {
        let (bytes, _, values) = file();
        let last = values.last().expect("there is one");
        assert!(last.rejected.contains_key(&4), "{last:?}");
        assert_eq!(read(&bytes, &Known::everything()).as_ref(), Ok(last));
    }

    #[test]
    fn a_file_cut_anywhere_in_its_records_is_the_value_before() {
        let (bytes, begins, values) = file();
        for end in begins[0]..bytes.len() {
            let whole = begins[1..].iter().filter(|begin| **begin <= end).count();
            assert_eq!(
                read(&bytes[..end], &Known::everything()).as_ref(),
                Ok(&values[whole]),
                "cut at {end}"
            );
        }
        for end in 0..begins[0] {
            assert!(
                read(&bytes[..end], &Known::everything()).is_err(),
                "a base cut at {end} is read"
            );
        }
    }

    #[test]
    fn a_damaged_file_is_found_unless_the_damage_looks_like_a_torn_end() {
        let (bytes, begins, values) = file();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            let result = read(&damaged, &Known::everything());
            if at < begins[2] {
                let why = result.expect_err(&format!("damage at {at} is not seen"));
                assert!(
                    at < begins[0] || why.contains("damaged at offset"),
                    "damage at {at}: {why}"
                );
            } else {
                assert_eq!(result.as_ref(), Ok(&values[2]), "damage at {at}");
            }
        }
    }
    #[test]
    fn a_file_of_an_unknown_format_is_refused_by_name() {
        for (begin, found) in [
            (&b"CETOMET2"[..], "CETOMET2"),
            (b"CETO", "CETO"),
            (b"\0\xffMET1..", "\\x00\\xffMET1.."),
        ] {
            let mut bytes = begin.to_vec();
            if begin.len() == MAGIC.len() {
                bytes.extend_from_slice(&start().encode());
            }
            assert_eq!(
                read(&bytes, &Known::everything()),
                Err(format!(
                    "the file begins with '{found}': expected 'CETOMET1', the only format known here; if another release wrote it, start that release"
                ))
            );
        }
    }
}
