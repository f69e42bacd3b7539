//! Hints that their target has permanently refused: set aside, so that those after them are handed over.
//!
//! They are stored in `hints-SHARD-HOSTID.rejected`, as records of a segment without its header (`format.rs`). Each is
//! synced before the replay continues. The files of a shard take at most [`REJECTED_BYTES_MAX`]; a hint above that is
//! dropped. Either way its target misses a write, which counts as such (`missed.rs`). The files stay until an operator
//! clears them.

use std::path::{Path, PathBuf};

use runtime::fs::{self, File, OpenOptions};
use topology::HostId;
use uuid::Uuid;

use crate::format::{self, Record};
use crate::{Hints, HintsError, Options};

/// Most bytes of rejected hints of one shard.
pub const REJECTED_BYTES_MAX: u64 = 64 << 20;

/// What was set aside for a node.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Rejected {
    /// Hints.
    pub count: u64,
    /// Bytes of their files.
    pub bytes: u64,
}

fn file_name(shard: u32, target: HostId) -> String {
    format!("hints-{shard}-{}.rejected", target.0.simple())
}

pub(crate) fn parse_file_name(name: &str) -> Option<(u32, HostId)> {
    let (shard, target) = name
        .strip_prefix("hints-")?
        .strip_suffix(".rejected")?
        .split_once('-')?;
    Some((shard.parse().ok()?, HostId(Uuid::try_parse(target).ok()?)))
}

/// The files that this shard answers for. Blocks.
fn files(options: &Options) -> Result<Vec<(HostId, PathBuf)>, HintsError> {
    let dir = &options.dir;
    let entries = fs::read_dir(dir).map_err(|e| HintsError::new(dir, &e))?;
    let of_shard = entries.iter().filter_map(|entry| {
        let (shard, target) = parse_file_name(&entry.name)?;
        (shard % options.shards == options.shard).then(|| (target, dir.join(&entry.name)))
    });
    Ok(of_shard.collect())
}

/// What earlier runs have set aside. Blocks.
pub(crate) fn load(options: &Options) -> Result<Vec<(HostId, Rejected)>, HintsError> {
    let count = |(target, path): (HostId, PathBuf)| {
        let bytes = fs::read(&path).map_err(|e| HintsError::new(&path, &e))?;
        let (mut at, mut rejected) = (0, Rejected::default());
        while at < bytes.len() {
            let record = format::read_record(&bytes, at);
            rejected.count += u64::from(record.is_some());
            // A killed process may have left a torn one.
            at = record.map_or(at + 1, |record| record.end);
        }
        rejected.bytes = bytes.len() as u64;
        Ok((target, rejected))
    };
    files(options)?.into_iter().map(count).collect()
}

/// Adds a record to a file, durably. Blocks.
fn append(path: &Path, record: &[u8]) -> std::io::Result<()> {
    let options = OpenOptions {
        write: true,
        create: true,
        ..OpenOptions::default()
    };
    let file = File::open(path, options)?;
    file.write_all_at_blocking(record, file.len()?)?;
    file.sync_all_blocking()?;
    // The file need not be new for its name to be: a killed process may have made it.
    path.parent().map_or(Ok(()), fs::sync_dir)
}

impl Hints {
    /// Sets a hint aside that its target has refused permanently; the caller has noted that the target misses it.
    pub(crate) async fn reject(&self, target: HostId, hint: &Record<'_>, reason: &str) -> Result<(), HintsError> {
        self.count(|m| m.rejected += 1);
        let mut record = Vec::new();
        format::put_record(&mut record, hint.noted_us, hint.gc_grace_seconds, hint.mutation);
        let bytes = record.len() as u64;
        let taken: u64 = self.rejected.borrow().values().map(|rejected| rejected.bytes).sum();
        if taken + bytes > REJECTED_BYTES_MAX {
            log::error!(
                "node {} refuses a hint permanently, and {taken} bytes of such hints wait for an operator already; it is dropped: {reason}",
                target.0
            );
            self.count(|m| m.dropped += 1);
            return Ok(());
        }
        let path = self.options.dir.join(file_name(self.options.shard, target));
        log::error!(
            "node {} refuses a hint of {} bytes permanently; it is set aside in {}: {reason}",
            target.0,
            hint.mutation.len(),
            path.display()
        );
        let to_append = path.clone();
        let appended = runtime::offload(move || append(&to_append, &record)).await;
        appended.map_err(|e| HintsError::new(&path, &e))?;
        let mut rejected = self.rejected.borrow_mut();
        let of_target = rejected.entry(target).or_default();
        of_target.count += 1;
        of_target.bytes += bytes;
        Ok(())
    }

    /// What was set aside, by the node that refused it.
    #[must_use]
    pub fn rejected(&self) -> Vec<(HostId, Rejected)> {
        let rejected = self.rejected.borrow();
        rejected.iter().map(|(target, rejected)| (*target, *rejected)).collect()
    }

    /// Permanently removes what was set aside for a node, or for all.
    ///
    /// # Errors
    /// When files cannot be removed.
    pub async fn clear_rejected(&self, target: Option<HostId>) -> Result<(), HintsError> {
        let options = self.options.clone();
        let is_meant = move |other: &HostId| target.is_none_or(|target| target == *other);
        let removed = runtime::offload(move || {
            for (_, path) in files(&options)?.iter().filter(|(target, _)| is_meant(target)) {
                fs::remove_file(path).map_err(|e| HintsError::new(path, &e))?;
            }
            fs::sync_dir(&options.dir).map_err(|e| HintsError::new(&options.dir, &e))
        });
        removed.await?;
        self.rejected.borrow_mut().retain(|target, _| !is_meant(target));
        Ok(())
    }
}
