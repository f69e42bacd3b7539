//! Snapshots: a table's sstables, kept under a name by hard links, and what a shard is busy with.
//!
//! The links stand in `snapshots/TAG` of the table's directory. No compaction of the table runs on the shard while they are made, so the files
//! are there and are all of one moment.

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

use runtime::fs;

use crate::Shard;
use crate::export::link_all;
use crate::tablet::TableStore;

/// The directory of a table's snapshots, inside the table's.
pub const SNAPSHOTS: &str = "snapshots";

/// What a shard is busy with.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Work {
    /// Memtables that are being flushed, or wait for it.
    pub flushes: u64,
    /// Tablets that are being compacted.
    pub compactions: u64,
    /// Bytes of sstables that wait to be compacted, or are being compacted.
    pub compaction_backlog_bytes: u64,
    /// Sstables.
    pub sstables: u64,
    /// Bytes of their files.
    pub sstable_bytes: u64,
    /// Flushes that failed since the start.
    pub failed_flushes: u64,
    /// Sstables that were moved aside and whose loss nobody has accepted.
    pub quarantined: u64,
    /// Sstables in which damage was found, and that are being examined.
    pub suspects: u64,
    /// Sstables that were moved aside since the start.
    pub damaged: u64,
    /// How often the disk could not read or write a place since the start.
    pub disk_failures: u64,
}

impl Shard {
    /// Links the files of this shard's sstables of a table into a snapshot. The names of the data files.
    pub async fn link_snapshot(self: &Rc<Self>, store: &Rc<TableStore>, tag: &str) -> Result<Vec<String>, String> {
        let tablets = store.tablets();
        let mut no_compaction = Vec::with_capacity(tablets.len());
        for tablet in tablets.iter() {
            no_compaction.push(tablet.compaction_turn.acquire(1).await);
        }
        let versions = tablets.iter().map(|tablet| tablet.version());
        let readers: Vec<_> = versions.flat_map(|version| version.sstables.clone()).collect();
        let target = store.dir.join(SNAPSHOTS).join(tag);
        let work = move || {
            let at = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
            link_all(&readers, &target)?;
            let mut names = Vec::with_capacity(readers.len());
            for reader in &readers {
                let data = reader.descriptor().path(sstable::Component::Data);
                names.extend(data.file_name().map(|name| name.to_string_lossy().into_owned()));
            }
            fs::sync_dir(&target).map_err(|e| at(&target, e))?;
            Ok(names)
        };
        let linked = runtime::offload(work).await;
        drop(no_compaction);
        for tablet in tablets.iter() {
            self.compact_soon(store, tablet);
        }
        linked
    }

    /// What this shard is busy with.
    pub fn work(&self) -> Work {
        let mut work = Work {
            failed_flushes: self.failed_flushes.get(),
            damaged: self.sstables_lost.get(),
            disk_failures: self.disk_failures.get(),
            ..Work::default()
        };
        for store in self.tables.borrow().values() {
            let mut missing = BTreeSet::new();
            for tablet in store.tablets().iter() {
                tablet.with_version(|version| {
                    missing.extend(version.missing.iter().map(sstable::Quarantined::name));
                    work.sstables += version.sstables.len() as u64;
                    work.sstable_bytes += version.sstables.iter().map(|r| r.meta().disk_len).sum::<u64>();
                    work.suspects += version.sstables.iter().filter(|r| r.is_suspect()).count() as u64;
                });
                work.flushes += tablet.with_version(|version| version.frozen.len() as u64);
                work.compactions += u64::from(tablet.is_compacting());
            }
            work.quarantined += missing.len() as u64;
            work.compaction_backlog_bytes += self.compaction_backlog_bytes(store);
        }
        work
    }
}
