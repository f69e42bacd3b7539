//! Snapshots: a table's sstables, kept under a name by hard links ([`crate::links`]), and what a shard is busy with.
//!
//! The links are in `snapshots/TAG` of the table's directory.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use runtime::fs;
use sstable::{Component, Reader};

use crate::Shard;
use crate::files::links::link_as_of_one_moment;
use crate::tablets::tablet::{TableStore, Tablet};

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
    /// Sstables that were moved aside and whose loss was not accepted.
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
    ///
    /// # Errors
    /// When the disk refuses.
    pub async fn link_snapshot(self: &Rc<Self>, store: &Rc<TableStore>, tag: &str) -> Result<Vec<String>, String> {
        let target = store.dir.join(SNAPSHOTS).join(tag);
        let of_now = |tablet: &Rc<Tablet>| (tablet.clone(), tablet.version().sstables.clone());
        let tablets: Vec<_> = store.tablets().iter().map(of_now).collect();
        let mut names = Vec::new();
        for (tablet, sstables) in tablets {
            let _as_they_are = tablet.quarantine_turn.acquire(1).await;
            let all = |sstables: &[Arc<Reader>]| Ok::<_, String>((sstables.to_vec(), ()));
            let (linked, ()) = link_as_of_one_moment(&tablet, sstables, &target, all).await?;
            names.extend(linked.iter().filter_map(|reader| data_name(reader)));
        }
        let sync = move || {
            let at = |e: std::io::Error| format!("{}: {e}", target.display());
            fs::create_dir_all(&target).map_err(at)?;
            fs::sync_dir(&target).map_err(at)
        };
        runtime::offload(sync).await?;
        Ok(names)
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
                work.flushes +=
                    tablet.with_version(|version| version.frozen.iter().filter(|f| !f.is_aside).count() as u64);
                work.compactions += u64::from(tablet.is_compacting());
            }
            work.quarantined += missing.len() as u64;
            work.compaction_backlog_bytes += self.compaction_backlog_bytes(store);
        }
        work
    }
}

fn data_name(reader: &Reader) -> Option<String> {
    let data = reader.descriptor().path(Component::Data);
    data.file_name().map(|name| name.to_string_lossy().into_owned())
}
