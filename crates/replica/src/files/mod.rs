//! The files of a table at a node's start: each is opened once, and goes to the shard that has its tokens.

pub(crate) mod baseline;
pub(crate) mod export;
pub(crate) mod links;
pub(crate) mod quarantine;
pub(crate) mod snapshot;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use schema::Table;
use sstable::{Descriptor, Generations, Quarantined, Reader};
use tasks::JobControl;

use crate::compaction::rewrite;
use crate::tablets::tablet::TokenRange;
use crate::tablets::truncation::TruncationMark;

/// The directory of sstables that other nodes are copying from this one, inside the table's; a directory for each
/// stream.
pub const STREAMS: &str = "streams";
/// The directory of sstables that are being copied from other nodes, inside the table's; a directory for each stream.
pub const INCOMING: &str = "incoming";
/// The directory of sstables whose tokens are not the node's, inside the table's.
pub const UNOWNED: &str = "unowned";

/// What a table's directory holds.
#[derive(Clone, Debug, Default)]
pub struct TableFiles {
    /// The sstables, open. Each is of one tablet.
    pub sstables: Vec<Arc<Reader>>,
    /// Damaged ones, moved aside.
    pub quarantined: Vec<Quarantined>,
    /// The version of the last truncation that is done.
    pub truncated_at: u64,
}

/// The tablets of a table.
#[derive(Clone, Debug)]
pub struct TableCuts {
    /// All of them, wherever they are.
    pub all: Vec<TokenRange>,
    /// Those of this node.
    pub here: Vec<TokenRange>,
}

impl TableCuts {
    fn is_here(&self, reader: &Reader) -> bool {
        self.here.iter().any(|range| range.overlaps(reader.tokens()))
    }

    fn parts_of(&self, reader: &Reader) -> Vec<TokenRange> {
        let tokens = reader.tokens();
        self.all
            .iter()
            .copied()
            .filter(|range| range.overlaps(tokens))
            .collect()
    }
}

impl TableFiles {
    /// Opens what a table's directory holds. Blocks.
    ///
    /// # Errors
    /// When the disk refuses, or a file is damaged.
    pub fn open(table: &Table, dir: &Path) -> Result<Self, String> {
        if !runtime::fs::exists(dir) {
            return Ok(Self::default());
        }
        Ok(Self {
            sstables: Reader::open_all(dir, table).map_err(|e| e.to_string())?,
            ..Self::without_sstables(dir)?
        })
    }

    fn without_sstables(dir: &Path) -> Result<Self, String> {
        Ok(Self {
            sstables: Vec::new(),
            quarantined: sstable::quarantined(dir).map_err(|e| e.to_string())?,
            truncated_at: TruncationMark::of(dir).read()?,
        })
    }
}

/// The directory of a table's sstables, in that of all tables.
#[must_use]
pub fn table_dir(data_dir: &Path, table: &Table) -> PathBuf {
    let name = format!("{}-{}", table.name, table.id.0.simple());
    data_dir.join(&table.keyspace).join(name)
}

/// Cleans up a table's directory at the start of a node: sstables that were not written to their end are removed, and
/// adoptions and deletions that a crash has interrupted are completed. Returns the largest generation there; 0 if there
/// is no sstable. Blocks.
///
/// # Errors
/// When the disk refuses.
pub fn clean_directory(dir: &Path) -> Result<u64, String> {
    if !runtime::fs::exists(dir) {
        return Ok(0);
    }
    let unsealed = sstable::remove_unsealed(dir).map_err(|e| e.to_string())?;
    for name in unsealed.removed {
        log::info!("removed {}, which was not written to its end", dir.join(name).display());
    }
    for descriptor in unsealed.restored {
        let toc = descriptor.path(sstable::Component::Toc);
        log::warn!(
            "{} was missing: it was written again from the components that are there",
            toc.display()
        );
    }
    let mut largest = 0;
    for descriptor in sstable::list(dir).map_err(|e| e.to_string())? {
        if let sstable::Generation::Number(n) = descriptor.generation {
            largest = largest.max(n);
        }
    }
    // An operator may mend one and put it back.
    let aside = sstable::quarantined(dir).map_err(|e| e.to_string())?;
    Ok(aside.iter().filter_map(|q| q.generation).fold(largest, u64::max))
}

/// Opens a table's sstables as a node does at its start, and how many of them it rewrote. Leftovers of streams are
/// removed. Damaged ones are moved aside. Those that have tokens of several tablets, which are not those that the node
/// wrote the files with, are rewritten, one file a tablet, and removed. Those of tablets that this node does not have
/// are set aside: they do not come back with the tablet. `control` is of the task that this is part of. Blocks.
///
/// # Errors
/// When the disk refuses, or a file is not damaged and cannot be opened all the same.
pub fn prepare_sstables(
    table: &Arc<Table>,
    dir: &Path,
    cuts: &TableCuts,
    (generations, host_id): (&Arc<Generations>, uuid::Uuid),
    control: &JobControl,
) -> Result<(TableFiles, usize), String> {
    if !runtime::fs::exists(dir) {
        return Ok((TableFiles::default(), 0));
    }
    remove_streams(dir)?;
    sstable::refuse_unreadable(dir).map_err(|e| e.to_string())?;
    let mut sstables = Vec::new();
    let mut rewritten = 0;
    for descriptor in sstable::list(dir).map_err(|e| e.to_string())? {
        let reader = match Reader::open_descriptor(&descriptor, table) {
            Ok(reader) => reader,
            Err(e) => {
                quarantine(&descriptor, e)?;
                continue;
            }
        };
        let ranges = cuts.parts_of(&reader);
        if ranges.len() < 2 {
            sstables.push(reader);
            continue;
        }
        control.add_total(reader.meta().data_len);
        let split = || rewrite(table, &reader, dir, &ranges, (generations, host_id), control);
        // What was changed on the way from the disk is whole the next time.
        let is_whole = || sstable::tool::verify(&descriptor.path(sstable::Component::Data)).is_ok();
        let done = match split() {
            Err(compaction::Error::Sstable(e)) if is_of(&e, &descriptor) && is_whole() => split(),
            done => done,
        };
        match done {
            Ok(parts) => {
                sstable::delete(&descriptor).map_err(|e| e.to_string())?;
                sstables.extend(parts);
                rewritten += 1;
            }
            Err(compaction::Error::Sstable(e)) if is_of(&e, &descriptor) => quarantine(&descriptor, e)?,
            Err(e) => return Err(e.to_string()),
        }
    }
    let (here, elsewhere): (Vec<_>, Vec<_>) = sstables.into_iter().partition(|reader| cuts.is_here(reader));
    set_aside(&elsewhere, dir.join(UNOWNED))?;
    crate::tombstones::marks::recall(dir, cuts, &here, host_id)?;
    let files = TableFiles {
        sstables: here,
        ..TableFiles::without_sstables(dir)?
    };
    Ok((files, rewritten))
}

/// Removes what an earlier run was copying to or from other nodes: no node asks for it any more.
fn remove_streams(dir: &Path) -> Result<(), String> {
    for leftover in [STREAMS, INCOMING].map(|name| dir.join(name)) {
        if runtime::fs::exists(&leftover) {
            runtime::fs::remove_dir_all(&leftover).map_err(|e| format!("{}: {e}", leftover.display()))?;
        }
    }
    Ok(())
}

/// Moves a damaged sstable aside and says so; any other error is returned.
fn quarantine(descriptor: &Descriptor, error: sstable::Error) -> Result<(), String> {
    if !error.is_damage() {
        return Err(error.to_string());
    }
    let quarantined = sstable::quarantine(descriptor, &error).map_err(|e| format!("{error}; moving it aside: {e}"))?;
    log::error!(
        "{error}. The sstable was moved to {}; reads of tokens {} to {} are refused here until the loss is accepted",
        quarantined.dir.display(),
        quarantined.first.0,
        quarantined.last.0
    );
    Ok(())
}

/// Moves sstables aside whose tokens are not of this node.
fn set_aside(readers: &[Arc<Reader>], to: PathBuf) -> Result<(), String> {
    for reader in readers {
        let (first, last) = reader.tokens();
        sstable::move_to(reader.descriptor(), &to).map_err(|e| e.to_string())?;
        log::warn!(
            "{} has tokens {} to {}, which are not of this node: it was moved to {}, and is not read",
            reader.descriptor().path(sstable::Component::Data).display(),
            first.0,
            last.0,
            to.display()
        );
    }
    Ok(())
}

/// Whether an error is about a file of this sstable.
fn is_of(error: &sstable::Error, descriptor: &Descriptor) -> bool {
    Descriptor::of_path(error.path()).is_ok_and(|other| other == *descriptor)
}
