//! Changes a shard's tables and tablets to those that it is to have, while requests run.
//!
//! What a shard is to have follows from the cluster's metadata (`node/src/follow.rs`, docs/dev/tablets.md). A tablet
//! whose range is not needed any more *leaves*, a range that is needed and not there *arrives*. Where both are of one
//! node, everything that the one had goes to the other:
//!
//! 1. [`Shard::prepare_to_leave`], while requests run: no compaction of the tablets begins any more, a running one is
//!    aborted, memtables are flushed, and sstables that the new ranges cut are rewritten. What the next steps find to
//!    do is short.
//! 2. [`Shard::reconcile`], in one step with the view that says so: what leaves takes no request any more, requests to
//!    what arrives wait.
//! 3. [`Shard::seal_leaving`]: everything is in sealed sstables, and the log knows, durably.
//! 4. [`Shard::open_arrived`], on the shard that has it next, or [`Shard::delete_left`], where none of the node does;
//!    then [`Shard::forget_left`].
//!
//! Tablets that are cut otherwise on the same shard need neither 3 nor 4, and no request waits for them:
//! `succession.rs`.
//!
//! All shards keep a table's sstables in one directory, so that a file passes from one shard to another as an open
//! reader. A crash between any two steps leaves files and log entries, and the next start gives both to the shards that
//! have their tokens then.
//!
//! Invariants
//! - A token is of one tablet of a node at most; between 2 and 4 of none.
//! - A tablet that has left takes no write, ever: another of the same range is another tablet.
//! - What a tablet had is opened elsewhere, or deleted, only when the log entries of its writes are discarded durably:
//!   they do not come back on top of it.

use std::fmt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use runtime::StopPoint;
use schema::{IndexId, Table};
use sstable::{Descriptor, Quarantined, Reader};
use stdx::planted::{self, Bug};
use tasks::{Origin, Task};

use crate::compaction::rewrite;
use crate::files::baseline::{Baseline, Lost};
use crate::flush::period::period_of;
use crate::flush::remove_unused;
use crate::kinds;
use crate::read::note_damage;
use crate::shard::Shard;
use crate::tablets::tablet::{TableStore, Tablet, TokenRange};
use crate::tombstones::marks::Inheritance;

/// What a shard is to have of a table.
#[derive(Clone, Debug)]
pub struct WantedTable {
    /// The table as last altered.
    pub table: Arc<Table>,
    /// Its tablets here, in token order.
    pub ranges: Vec<TokenRange>,
    /// No token of it moves from one shard of the node to another: what leaves a shard and arrives at none belongs to
    /// another node, or to none.
    pub keeps_shards: bool,
}

/// Everything that a tablet had.
#[derive(Clone, Debug)]
pub struct Sealed {
    /// Its sstables.
    pub sstables: Vec<Arc<Reader>>,
    /// What of it is missing.
    pub missing: Vec<Quarantined>,
}

/// Why sstables were not adopted.
#[derive(Debug)]
pub enum AdoptError {
    /// One cannot be opened, or the disk refuses.
    Sstable(sstable::Error),
    /// One has tokens that are not of one tablet here.
    NotHere(String),
    /// The table was dropped or truncated, or the tablet left.
    Lost(Lost),
    /// The table was dropped or truncated, or the tablet left, and the disk refused to remove what had been linked: the
    /// next start would find it.
    Undone(String),
}

impl fmt::Display for AdoptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sstable(e) => e.fmt(f),
            Self::NotHere(reason) => f.write_str(reason),
            Self::Lost(lost) => write!(f, "{lost}; no sstable was taken"),
            Self::Undone(reason) => write!(f, "linked sstables that must not be taken cannot be removed: {reason}"),
        }
    }
}

impl std::error::Error for AdoptError {}

impl From<sstable::Error> for AdoptError {
    fn from(error: sstable::Error) -> Self {
        Self::Sstable(error)
    }
}

impl TableStore {
    /// Whether a tablet of this range is here.
    fn has_range(&self, range: TokenRange) -> bool {
        let tablets = self.tablets();
        let at = tablets.partition_point(|tablet| tablet.range.to < range.to);
        tablets.get(at).is_some_and(|tablet| tablet.range == range)
    }
}

pub(crate) fn is_wanted(wanted: &[TokenRange], range: TokenRange) -> bool {
    let at = wanted.partition_point(|wanted| wanted.to < range.to);
    wanted.get(at) == Some(&range)
}

impl Shard {
    /// Adds tables with their tablets, empty, and gives other tables the tablets that they need. Those whose tablets
    /// change.
    pub fn reconcile(self: &Rc<Self>, wanted: &[WantedTable]) -> Vec<Rc<TableStore>> {
        let mut changed = Vec::new();
        for WantedTable {
            table,
            ranges,
            keeps_shards,
        } in wanted
        {
            let Some(store) = self.store(table.id) else {
                self.add_table(table, ranges, &[]);
                continue;
            };
            if !Arc::ptr_eq(&store.table.borrow(), table) {
                let former = store.table.replace(table.clone());
                if period_of(&former) != period_of(table) {
                    self.flush_period_changed.notify_all();
                }
                for tablet in store.tablets().iter() {
                    tablet.with_version(|v| v.active.write(|m| m.set_table(table)));
                    self.flush_unindexed(&store, tablet);
                }
                let kept: Vec<IndexId> = table.indexes.iter().map(|index| index.id).collect();
                if former.indexes.iter().any(|index| !kept.contains(&index.id)) {
                    self.remove_dropped_indexes(&store, kept);
                }
                self.index_soon(&store);
            }
            if self.change_tablets(&store, ranges, *keeps_shards) {
                changed.push(store);
            }
        }
        changed
    }

    /// Flushes a memtable that has rows which a new index does not list: the file lists them.
    fn flush_unindexed(self: &Rc<Self>, store: &Rc<TableStore>, tablet: &Rc<Tablet>) {
        let table = store.table();
        let lacks_index = tablet.with_version(|version| {
            let memtable = version.active.borrow();
            table.indexes.iter().any(|index| !memtable.has_index(index.id))
        });
        if lacks_index {
            self.freeze(store, tablet);
            let flush = self.flush_until_done(store, tablet);
            drop(runtime::spawn_in(runtime::Group::BACKGROUND, flush));
        }
    }

    /// A table with its tablets and what they have. Each of the sstables is of one of the tablets, or of none that is
    /// here.
    pub(crate) fn add_table(
        &self,
        table: &Arc<Table>,
        ranges: &[TokenRange],
        sstables: &[Arc<Reader>],
    ) -> Rc<TableStore> {
        let tablets = ranges.iter().map(|range| self.new_tablet(table, *range, sstables));
        let store = TableStore::new(table, self.table_dir(table), tablets.collect());
        let store = Rc::new(store);
        self.tables.borrow_mut().insert(table.id, Rc::clone(&store));
        self.table_added.notify_all();
        if period_of(table).is_some() {
            self.flush_period_changed.notify_all();
        }
        store
    }

    pub(crate) fn new_tablet(&self, table: &Table, range: TokenRange, sstables: &[Arc<Reader>]) -> Rc<Tablet> {
        let its = sstables.iter().filter(|reader| {
            if planted::is_planted(Bug::HalvedFile) {
                range.contains(reader.tokens().0)
            } else {
                range.overlaps(reader.tokens())
            }
        });
        let (kept, alarm) = (
            (self.row_cache_budget.clone(), self.paused_readers.clone()),
            self.alarm.clone(),
        );
        Tablet::new(table, range, its.cloned().collect(), kept, alarm)
    }

    /// Lets tablets leave and ranges arrive. Whether any does.
    fn change_tablets(self: &Rc<Self>, store: &Rc<TableStore>, wanted: &[TokenRange], keeps_shards: bool) -> bool {
        let (kept, left): (Vec<_>, Vec<_>) = store
            .tablets()
            .iter()
            .cloned()
            .partition(|tablet| is_wanted(wanted, tablet.range));
        let is_new = |range: &&TokenRange| !store.has_range(**range);
        let arriving: Vec<TokenRange> = wanted.iter().filter(is_new).copied().collect();
        if left.is_empty() && arriving == *store.arriving.borrow() {
            return false;
        }
        // They were of the previous tablets.
        store.set_cuts_ahead(None);
        let is_settled = store.leaving.borrow().is_empty() && store.arriving.borrow().is_empty();
        let heirs = if keeps_shards && is_settled && !left.is_empty() {
            self.succeed(store, &left, &arriving)
        } else {
            None
        };
        match heirs {
            Some(heirs) => {
                store.set_tablets(kept.iter().chain(&heirs).cloned().collect());
                if heirs
                    .iter()
                    .any(|heir| heir.with_version(|v| v.sstables.iter().any(|r| r.is_suspect())))
                {
                    self.alarm.raise();
                }
                self.flush_inherited(store, heirs);
            }
            None => {
                for tablet in &left {
                    tablet.has_left.set(true);
                    tablet.kept_in_memory.take();
                }
                store.leaving.borrow_mut().extend(left);
                *store.arriving.borrow_mut() = arriving;
                store.set_tablets(kept);
            }
        }
        true
    }

    /// Makes the tablets of a table that will not be needed any more ready to leave; `cuts` are the ranges of the
    /// tablets to come, wherever they are.
    ///
    /// # Errors
    /// When something could not be flushed or rewritten. They may leave all the same; it is done then.
    pub async fn prepare_to_leave(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        wanted: &[TokenRange],
        cuts: &[TokenRange],
    ) -> Result<(), String> {
        let mut result = Ok(());
        let all_cuts: Arc<[TokenRange]> = cuts.into();
        for tablet in store.tablets().iter().filter(|tablet| !is_wanted(wanted, tablet.range)) {
            // A flush of the tablet from here on, say to free memory, makes no file that the tablets to come would have
            // to cut.
            *tablet.cuts_to_leave.borrow_mut() = Some(all_cuts.clone());
            self.hold_compactions(tablet).await;
            // Without this flush tablets have more of each other in memory, and that bug more to lose.
            let flushed = if planted::is_planted(Bug::HeirDiscardsAll) {
                Ok(())
            } else {
                self.flush_leaving(store, tablet, cuts).await
            };
            let prepared = match flushed {
                Ok(()) => self.cut_sstables(store, tablet, cuts).await,
                Err(e) => Err(e),
            };
            result = result.and(prepared);
        }
        result
    }

    async fn flush_leaving(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        tablet: &Rc<Tablet>,
        cuts: &[TokenRange],
    ) -> Result<(), String> {
        if planted::is_planted(Bug::UnflushedMove) {
            Ok(())
        } else {
            self.flush_cut(store, tablet, cuts, &Origin::Node).await
        }
    }

    /// Keeps the tablet's turn of compactions until it has left; one that runs is aborted.
    async fn hold_compactions(&self, tablet: &Tablet) {
        if tablet.leave.borrow().is_some() {
            return;
        }
        // Those that wait for their turn find that there is nothing to do.
        tablet.is_told_to_leave.set(true);
        if let Some(running) = tablet.compaction.get() {
            // One that cannot be aborted any more is about to end.
            let _ = self.options.tasks.abort(running);
        }
        let turn = tablet.compaction_turn.acquire(1).await;
        *tablet.leave.borrow_mut() = Some(turn);
    }

    /// Rewrites those of a tablet's sstables that have tokens of several of these ranges, a file for each. Nothing else
    /// replaces the tablet's sstables during that.
    async fn cut_sstables(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        tablet: &Rc<Tablet>,
        cuts: &[TokenRange],
    ) -> Result<(), String> {
        let all = tablet.version().sstables.clone();
        for reader in all.into_iter().filter(|reader| parts_of(reader, cuts).len() > 1) {
            let spec = kinds::of_tablet(&kinds::RESHARD, store, tablet, reader.meta().data_len);
            let task = self.options.tasks.start(spec, &Origin::Node);
            let cut = self.cut_sstable(store, &reader, cuts, &task).await;
            task.end(&cut);
            let parts = match cut {
                Ok(parts) => parts,
                Err(e) if reader.is_suspect() => {
                    self.quarantine_leaving(store, tablet, &reader, e).await?;
                    continue;
                }
                Err(e) => return Err(e),
            };
            tablet.update(|version| {
                version.sstables.retain(|other| !Arc::ptr_eq(other, &reader));
                version.sstables.extend(parts);
            });
            reader.evict_from(&self.cache);
        }
        Ok(())
    }

    /// Moves an sstable aside that cannot be cut because it is damaged: nothing else examines a tablet that leaves, and
    /// the tablet could not leave with it.
    async fn quarantine_leaving(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        tablet: &Rc<Tablet>,
        reader: &Arc<Reader>,
        error: String,
    ) -> Result<(), String> {
        let _turn = self.quarantine_turn.acquire(1).await;
        let _moving = tablet.quarantine_turn.acquire(1).await;
        let spec = kinds::of_tablet(&kinds::CHECK_SSTABLE, store, tablet, 1);
        let task = self.options.tasks.start(spec, &Origin::Node);
        let done = self.trust_or_quarantine(store, tablet, reader, &task).await;
        task.end(&done);
        done?;
        if tablet.has(reader) {
            // It can be read now: the next attempt cuts it.
            Err(error)
        } else {
            Ok(())
        }
    }

    /// The parts of an sstable by ranges, instead of it, durably.
    async fn cut_sstable(
        &self,
        store: &TableStore,
        reader: &Arc<Reader>,
        cuts: &[TokenRange],
        task: &Task,
    ) -> Result<Vec<Arc<Reader>>, String> {
        let (table, dir, whole) = (store.table(), store.dir.clone(), reader.clone());
        let (generations, host_id) = (self.options.generations.clone(), self.options.host_id);
        let ranges = parts_of(reader, cuts);
        let work = move |control| rewrite(&table, &whole, &dir, &ranges, (&generations, host_id), &control);
        let parts = task.run_job(work).await?.map_err(|e| {
            if let compaction::Error::Sstable(damage) = &e {
                note_damage(std::slice::from_ref(reader), damage);
            }
            e.to_string()
        })?;
        runtime::stop_point(StopPoint::SstableCut);
        match self.mark_obsolete(std::slice::from_ref(reader)).await {
            Ok(obsolete) => {
                self.delete_obsolete(std::slice::from_ref(reader), obsolete).await;
                Ok(parts)
            }
            Err(e) => {
                self.delete_one_by_one(&parts).await?;
                Err(e)
            }
        }
    }

    /// Puts everything that the leaving tablets of a table have into sealed sstables, and makes the log forget it
    /// permanently; `cuts` are the ranges of the tablets to come. Returns what they had. To be called again where it
    /// fails.
    ///
    /// # Errors
    /// When the disk or the log does not take it.
    pub async fn seal_leaving(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        cuts: &[TokenRange],
    ) -> Result<Vec<Sealed>, String> {
        let leaving = store.leaving.borrow().clone();
        for tablet in &leaving {
            self.hold_compactions(tablet).await;
            self.flush_leaving(store, tablet, cuts).await?;
        }
        runtime::stop_point(StopPoint::TabletFlushed);
        // One sync of the log for all of them: requests wait.
        self.discard_all_durably(&store.table(), &leaving).await?;
        let mut sealed = Vec::with_capacity(leaving.len());
        for tablet in &leaving {
            self.cut_sstables(store, tablet, cuts).await?;
            let version = tablet.version();
            version
                .sstables
                .iter()
                .for_each(|reader| reader.evict_from(&self.cache));
            sealed.push(Sealed {
                sstables: version.sstables.clone(),
                missing: version.missing.to_vec(),
            });
        }
        runtime::stop_point(StopPoint::TabletSealed);
        Ok(sealed)
    }

    /// Opens the tablets of a table that arrive, with what others had of their tokens; each sstable is of one range.
    pub fn open_arrived(self: &Rc<Self>, store: &Rc<TableStore>, had: &[Sealed]) {
        let ranges = store.arriving.take();
        let sstables: Vec<Arc<Reader>> = had.iter().flat_map(|sealed| sealed.sstables.iter().cloned()).collect();
        let missing: Vec<Quarantined> = had.iter().flat_map(|sealed| sealed.missing.iter().cloned()).collect();
        let table = store.table();
        let opened: Vec<Rc<Tablet>> = ranges
            .iter()
            .map(|range| self.new_tablet(&table, *range, &sstables))
            .inspect(|tablet| tablet.set_missing(&missing, None))
            .collect();
        let has_suspects = sstables.iter().any(|reader| reader.is_suspect());
        store.set_tablets(store.tablets().iter().chain(&opened).cloned().collect());
        for tablet in &opened {
            self.compact_soon(store, tablet);
        }
        if has_suspects {
            self.alarm.raise();
        }
    }

    /// Deletes what leaving tablets had whose tokens are not of this node any more: sstables that
    /// [`Shard::seal_leaving`] gave. What a crash leaves of them the next start sets aside.
    ///
    /// # Errors
    /// When the disk refuses; they are still there then.
    pub async fn delete_left(&self, sstables: &[Arc<Reader>]) -> Result<(), String> {
        let tokens = sstables
            .iter()
            .map(|reader| (reader.descriptor().dir.clone(), reader.tokens()));
        let tokens: Vec<_> = tokens.collect();
        let forget = move || {
            let mut tokens = tokens.iter();
            tokens.try_for_each(|(dir, (first, last))| sstable::remove_records(dir, *first, *last))
        };
        runtime::offload(forget).await.map_err(|e| e.to_string())?;
        self.delete_sstables(sstables).await
    }

    /// Forgets the tablets of a table that have left.
    pub async fn forget_left(&self, store: &TableStore) {
        for tablet in store.leaving.take() {
            tablet.leave.take();
        }
        self.release_log().await;
    }

    /// Takes sealed sstables of another directory of the same file system into a table: in one durable step, after
    /// which each is part of the tablet that has its tokens. The originals stay. How many were taken.
    ///
    /// # Errors
    /// When one cannot be opened or has tokens that are not of one tablet here, when the disk refuses, or when the
    /// table is dropped or truncated, or the tablet leaves, at any time from the call on. None was taken then.
    pub async fn adopt_sstables(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        originals: Vec<Descriptor>,
    ) -> Result<usize, AdoptError> {
        self.adopt_and_inherit(store, originals, None).await
    }

    /// Takes sealed sstables into a table as [`Shard::adopt_sstables`] does. With an `inheritance`, the originals are
    /// the copy of a whole tablet, and the marks that the tablet has at its source (docs/dev/incremental-repair.md) are
    /// taken over too. Where marks cannot be set, the next repair reads everything.
    ///
    /// # Errors
    /// As [`Shard::adopt_sstables`].
    pub async fn adopt_and_inherit(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        originals: Vec<Descriptor>,
        inheritance: Option<&Inheritance>,
    ) -> Result<usize, AdoptError> {
        let heir = inheritance.and_then(|inheritance| self.heir_of(store, inheritance));
        let (table, before) = (store.table(), Baseline::of(self, store));
        let to_open = originals.clone();
        let opened = runtime::offload(move || open_all(&to_open, &table)).await?;
        let tablets: Vec<Rc<Tablet>> = opened
            .iter()
            .map(|reader| tablet_of(store, reader))
            .collect::<Result<_, _>>()
            .map_err(AdoptError::NotHere)?;
        drop(opened);
        let mut distinct: Vec<&Rc<Tablet>> = tablets.iter().collect();
        distinct.sort_by_key(|tablet| tablet.range.to);
        distinct.dedup_by(|one, other| Rc::ptr_eq(one, other));
        let mut turns = Vec::with_capacity(distinct.len());
        // A running compaction does not know of data in these sstables that its tombstones still hide. A task that
        // takes several turns takes them in token order.
        for tablet in distinct {
            turns.push(tablet.compaction_turn.acquire(1).await);
        }
        before.check(&tablets).map_err(AdoptError::Lost)?;
        let (table, dir, generations) = (store.table(), store.dir.clone(), self.options.generations.clone());
        let work = move || -> Result<Vec<Arc<Reader>>, sstable::Error> {
            let next = || generations.next();
            make_table_dir(&dir)?;
            let adopted = sstable::adopt(&originals, &dir, next)?;
            open_all(&adopted, &table).inspect_err(|_| remove_unused(&adopted))
        };
        let adopted = runtime::offload(work).await?;
        // A truncation waits for the turns before it ends, so what is deleted here does not outlive it.
        if let Err(lost) = before.check(&tablets) {
            if self.delete_sstables(&adopted).await.is_err() {
                // A full disk has no place for the list of what goes.
                self.delete_one_by_one(&adopted).await.map_err(AdoptError::Undone)?;
            }
            return Err(AdoptError::Lost(lost));
        }
        for (reader, tablet) in adopted.iter().zip(&tablets) {
            tablet.update(|version| version.sstables.push(reader.clone()));
            store.note_adopted(tablet, reader);
        }
        let inherited = heir.zip(inheritance).map(|(heir, inheritance)| {
            let set = self.hold_inherited(store, heir, (&adopted, inheritance));
            (set, inheritance.record)
        });
        drop(turns);
        for tablet in &tablets {
            self.compact_soon(store, tablet);
        }
        if let Some((set, record)) = inherited
            && let Err(error) = set.mark(record).await
        {
            let table = store.table();
            log::info!(
                "the marks of a tablet of {}.{} did not move with it: {error}; its next repair reads everything",
                table.keyspace,
                table.name
            );
        }
        Ok(adopted.len())
    }
}

impl Shard {
    /// Reopens the sstables of a table, by its present columns. A file names its columns, and an open one has found
    /// their ids by the columns that the table had then: a column that was dropped and is there again has another id.
    ///
    /// # Errors
    /// When a file cannot be opened; those of its tablet are read as before then.
    pub async fn reopen_sstables(&self, store: &TableStore) -> Result<(), String> {
        for tablet in store.tablets().iter() {
            // Waits for running compactions and flushes: they open their outputs by the previous columns.
            let _compactions = tablet.compaction_turn.acquire(1).await;
            let _flushes = tablet.flush_turn.acquire(1).await;
            let (before, table) = (tablet.version().sstables.clone(), store.table());
            let descriptors: Vec<_> = before.iter().map(|reader| reader.meta().descriptor.clone()).collect();
            let opened = runtime::offload(move || open_all(&descriptors, &table)).await;
            let opened = opened.map_err(|e| e.to_string())?;
            tablet.update(|version| {
                for reader in &mut version.sstables {
                    if let Some(at) = before.iter().position(|other| Arc::ptr_eq(other, reader)) {
                        if reader.is_suspect() {
                            opened[at].suspect();
                        }
                        opened[at].set_repaired_at(reader.repaired_at());
                        *reader = opened[at].clone();
                    }
                }
            });
        }
        Ok(())
    }
}

/// Those of the ranges that an sstable has tokens of.
fn parts_of(reader: &Reader, cuts: &[TokenRange]) -> Vec<TokenRange> {
    let (first, last) = reader.tokens();
    let tokens = if planted::is_planted(Bug::HalvedFile) {
        (first, first)
    } else {
        (first, last)
    };
    cuts.iter().copied().filter(|range| range.overlaps(tokens)).collect()
}

fn tablet_of(store: &TableStore, reader: &Reader) -> Result<Rc<Tablet>, String> {
    let (first, last) = reader.tokens();
    let tablet = store.tablet(first).filter(|tablet| tablet.range.contains(last));
    tablet.ok_or_else(|| {
        format!(
            "{}: expected tokens of one tablet of this shard, found {} to {}",
            reader.descriptor().path(sstable::Component::Data).display(),
            first.0,
            last.0
        )
    })
}

fn open_all(descriptors: &[Descriptor], table: &Table) -> Result<Vec<Arc<Reader>>, sstable::Error> {
    let open = |descriptor| Reader::open_descriptor(descriptor, table);
    descriptors.iter().map(open).collect()
}

/// The directory of a table that may never have been flushed. Blocks.
pub(crate) fn make_table_dir(dir: &Path) -> Result<(), sstable::Error> {
    let create = || -> std::io::Result<()> {
        runtime::fs::create_dir_all(dir)?;
        dir.ancestors().skip(1).take(2).try_for_each(runtime::fs::sync_dir)
    };
    create().map_err(|source| sstable::Error::Io {
        path: dir.to_owned(),
        source,
    })
}
