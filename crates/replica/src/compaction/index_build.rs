//! Makes the index files that sstables lack: those from before an index was created, those that came from elsewhere,
//! and those whose index file was damaged.
//!
//! One task of a table makes the files of one sstable after the other, each on a background thread. It can stop after
//! any of them, by a kill or an abortion, and what is left is made later: an sstable says by its files which indexes
//! have it. A compaction that takes an sstable first makes the files with its output.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use schema::{IndexId, Table};
use sstable::Reader;
use tasks::{Meter, Origin, Task};

use crate::compaction::Failure;
use crate::kinds;
use crate::shard::Shard;
use crate::tablets::tablet::{TableStore, Tablet};

/// How often a rebuild looks whether a build that is in progress has ended.
const REBUILD_POLL: Duration = Duration::from_millis(50);

/// How much of a table's sstables its indexes have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IndexProgress {
    /// Bytes of data of the sstables that have the file.
    pub indexed: u64,
    /// Bytes of data of all sstables.
    pub all: u64,
}

/// The indexes of a table of which an sstable has no file.
fn lacking(reader: &Reader, table: &Table) -> Vec<IndexId> {
    let lacks = table.indexes.iter().filter(|index| !reader.has_index(index.id));
    lacks.map(|index| index.id).collect()
}

impl TableStore {
    /// How much of the sstables here one of the table's indexes has.
    #[must_use]
    pub fn index_progress(&self, id: IndexId) -> IndexProgress {
        let mut progress = IndexProgress::default();
        for tablet in self.tablets().iter() {
            tablet.with_version(|version| {
                for reader in &version.sstables {
                    let bytes = reader.meta().data_len;
                    progress.all += bytes;
                    progress.indexed += if reader.has_index(id) { bytes } else { 0 };
                }
            });
        }
        progress
    }

    /// An sstable whose index files are not all there, with its tablet.
    fn next_unindexed(&self) -> Option<(Rc<Tablet>, Arc<Reader>)> {
        let table = self.table();
        self.tablets().iter().find_map(|tablet| {
            let is_lacking = |reader: &&Arc<Reader>| !reader.is_suspect() && !lacking(reader, &table).is_empty();
            let found = tablet.with_version(|version| version.sstables.iter().find(is_lacking).cloned());
            found.map(|reader| (tablet.clone(), reader))
        })
    }

    fn unindexed_bytes(&self) -> u64 {
        let table = self.table();
        let of_tablet = |tablet: &Rc<Tablet>| {
            tablet.with_version(|version| {
                let lacking = version
                    .sstables
                    .iter()
                    .filter(|reader| !lacking(reader, &table).is_empty());
                lacking.map(|reader| reader.meta().data_len).sum::<u64>()
            })
        };
        self.tablets().iter().map(of_tablet).sum()
    }
}

impl Shard {
    /// Begins to make the index files that sstables of a table lack, if it has an index and none is being made.
    pub(crate) fn index_soon(self: &Rc<Self>, store: &Rc<TableStore>) {
        if store.table().indexes.is_empty() || store.is_indexing.get() || store.next_unindexed().is_none() {
            return;
        }
        let (shard, store) = (self.clone(), store.clone());
        let work = async move {
            if let Err(failure) = shard.build_indexes(&store, &Origin::Node).await {
                let table = store.table();
                let (keyspace, name) = (&table.keyspace, &table.name);
                log::error!(
                    "building the indexes of {keyspace}.{name}: {failure}. It is tried again within ten minutes"
                );
            }
        };
        drop(runtime::spawn_in(runtime::Group::BACKGROUND, work));
    }

    /// Makes the index files that sstables of a table lack. Does nothing while that is under way.
    ///
    /// # Errors
    /// Why some are not made.
    pub async fn build_indexes(self: &Rc<Self>, store: &Rc<TableStore>, origin: &Origin) -> Result<(), String> {
        if store.is_indexing.replace(true) {
            return Ok(());
        }
        let spec = kinds::of_table(&kinds::INDEX_BUILD, store, store.unindexed_bytes());
        let task = self.options.tasks.start(spec, origin);
        let result = self.build_all(store, &task).await;
        store.is_indexing.set(false);
        task.end(&result);
        match result {
            Ok(()) | Err(Failure::Aborted) => Ok(()),
            Err(failure) => Err(failure.to_string()),
        }
    }

    async fn build_all(self: &Rc<Self>, store: &Rc<TableStore>, task: &Task) -> Result<(), Failure> {
        while let Some((tablet, reader)) = store.next_unindexed() {
            if store.dropped.get() {
                return Ok(());
            }
            let worker = task.worker().await?;
            let table = store.table();
            let _reserved = self.reserve_bytes(store, reader.meta().disk_len / 4)?;
            let (control, of_job) = (task.control(), reader.clone());
            let built = worker.run(move |_| {
                let ids = lacking(&of_job, &table);
                let mut meter = Meter::new(control, of_job.meta().data_len);
                sstable::build_indexes(&of_job, &table, &ids, |bytes| meter.add(bytes, bytes).is_ok())
            });
            let built = built.await;
            let is_here =
                tablet.with_version(|version| version.sstables.iter().any(|other| Arc::ptr_eq(other, &reader)));
            if !is_here {
                // A compaction has taken it, and its files are gone or about to go: so do these.
                let gone = reader.clone();
                let removed = runtime::spawn_job(kinds::INDEX_BUILD.name, move || gone.remove_indexes(&[])).await;
                removed.map_err(|error| Failure::Failed(error.to_string()))?;
                continue;
            }
            match built {
                Ok(true) => {}
                Ok(false) => return Err(Failure::Aborted),
                Err(error) => {
                    if crate::read::note_damage(std::slice::from_ref(&reader), &error) {
                        self.alarm.raise();
                    }
                    return Err(Failure::Failed(error.to_string()));
                }
            }
        }
        Ok(())
    }

    /// Removes the files of indexes that a table has no more.
    pub(crate) fn remove_dropped_indexes(self: &Rc<Self>, store: &Rc<TableStore>, kept: Vec<IndexId>) {
        let tablets = store.tablets();
        let readers = tablets
            .iter()
            .flat_map(|tablet| tablet.with_version(|version| version.sstables.clone()));
        let readers: Vec<Arc<Reader>> = readers.collect();
        let work = async move {
            let removed = runtime::spawn_job(kinds::INDEX_BUILD.name, move || {
                readers.iter().try_for_each(|reader| reader.remove_indexes(&kept))
            });
            if let Err(error) = removed.await {
                log::warn!("a file of an index that was dropped is still there: {error}");
            }
        };
        drop(runtime::spawn_in(runtime::Group::BACKGROUND, work));
    }

    /// Makes the files of some of a table's indexes again, for all sstables that the table has here now. A build that
    /// is in progress ends first: it may have read an sstable whose file is to be made again. Until a file is made,
    /// queries look through its sstable.
    ///
    /// # Errors
    /// Why some are not made, or that the rebuild was aborted.
    pub async fn rebuild_indexes(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        ids: &[IndexId],
        origin: &Origin,
    ) -> Result<(), String> {
        while store.is_indexing.get() {
            runtime::sleep(REBUILD_POLL).await;
        }
        for tablet in store.tablets().iter() {
            for reader in tablet.with_version(|version| version.sstables.clone()) {
                ids.iter().for_each(|id| reader.forget_index(*id));
            }
        }
        self.build_indexes(store, origin).await?;
        // Aborted, or a disk refused: the node tries again by itself, later.
        let table = store.table();
        let is_left = ids.iter().any(|id| {
            let progress = store.index_progress(*id);
            table.indexes.iter().any(|index| index.id == *id) && progress.indexed < progress.all
        });
        if is_left && !store.dropped.get() {
            return Err(format!(
                "not all sstables of {}.{} are indexed; the node builds the rest by itself within ten minutes",
                table.keyspace, table.name
            ));
        }
        Ok(())
    }
}
