//! From memtable to sstable.
//!
//! A flush freezes a tablet's memtable, writes it on a background thread, opens the file, and in one step replaces the
//! frozen memtable by it. Then it reports to the log that those writes need no replay and releases the segments that no
//! memtable needs. A flush that fails (a full disk) leaves the memtable frozen and readable, and is tried again.

pub(crate) mod period;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use commitlog::{Discard, LogError};
use memtable::{Memtable, PartitionRef};
use mutation::{ClusteringSlice, PartitionBlock};
use runtime::{Instant, StopPoint};
use schema::Table;
use sstable::{Descriptor, EncodingBase, Generations, Reader, Writer, WriterOptions};
use stdx::planted::{self, Bug};
use tasks::{JobControl, Meter, Origin, Task};
use types::Token;

use crate::files::quarantine::DiskFailure;
use crate::kinds;
use crate::shard::Shard;
use crate::tablets::reconcile::make_table_dir;
use crate::tablets::tablet::{Frozen, MemtableCell, TableStore, Tablet, TokenRange};

/// Bytes of a block handed to the writer at once.
const BLOCK_BYTES: usize = 256 << 10;
/// How long a failed flush waits before it is tried again.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// How often a flush that keeps failing for the same reason is logged.
const RELOG_PERIOD: Duration = Duration::from_mins(1);
/// A memtable of more bytes is freed by a thread beside the shard: one of 100,000 partitions takes 3 ms.
const FREED_ASIDE_BYTES: usize = 1 << 20;
/// How often the shard looks whether readers still have such a memtable.
const READERS_PERIOD: Duration = Duration::from_millis(50);

/// A memtable's partitions whose tokens are in a range.
pub(crate) fn partitions_in(memtable: &Memtable, range: TokenRange) -> impl Iterator<Item = PartitionRef<'_>> {
    let from = memtable.partitions_from(range.after, &[]);
    from.skip_while(move |partition| !range.contains(partition.token()))
        .take_while(move |partition| range.contains(partition.token()))
}

/// The blocks of a memtable's partitions in a range of tokens, large partitions in several.
fn for_each_block<E>(
    (memtable, range): (&Memtable, TokenRange),
    mut f: impl FnMut(&PartitionBlock) -> Result<(), E>,
) -> Result<(), E> {
    for partition in partitions_in(memtable, range) {
        let mut slice = ClusteringSlice::all();
        loop {
            let block = partition.block(&slice, false, usize::MAX, BLOCK_BYTES);
            f(&block)?;
            match block.covered {
                Some(bound) => slice.start = bound,
                None => break,
            }
        }
    }
    Ok(())
}

/// The dropped columns of which a memtable has cells that are newer than the DROP.
fn kept_columns(part: (&Memtable, TokenRange), table: &Table) -> Vec<usize> {
    let mut kept = BTreeSet::new();
    if table.layout.has_dropped() {
        let noted: Result<(), Infallible> = for_each_block(part, |block| {
            mutation::dropped::note_inherited(&table.layout, block, &mut kept);
            Ok(())
        });
        let Ok(()) = noted;
    }
    kept.into_iter().collect()
}

/// Why a memtable was not written.
struct FlushError {
    text: String,
    /// The disk could not write or read a place.
    is_disk_failure: bool,
}

impl From<sstable::Error> for FlushError {
    fn from(error: sstable::Error) -> Self {
        Self {
            text: error.to_string(),
            is_disk_failure: error.is_disk_failure(),
        }
    }
}

impl From<String> for FlushError {
    fn from(text: String) -> Self {
        Self {
            text,
            is_disk_failure: false,
        }
    }
}

/// A memtable, or a part of it, that becomes sstables, one for each of some ranges.
struct Flush {
    memtable: Arc<Memtable>,
    /// Which of its tokens.
    range: TokenRange,
    table: Arc<Table>,
    dir: PathBuf,
    /// In token order; empty for one sstable of everything.
    cuts: Vec<TokenRange>,
    generations: Arc<Generations>,
    host_id: uuid::Uuid,
}

impl Flush {
    /// Runs on a background thread; blocks. When it fails, what was written is removed: it would bring back after the
    /// next start what was deleted from the sstables that are written in its place.
    fn run(&self, control: JobControl) -> Result<Vec<Arc<Reader>>, FlushError> {
        let mut written = Vec::new();
        let opened = self.write(control, &mut written).and_then(|()| {
            let open = |descriptor| Reader::open_descriptor(descriptor, &self.table).map_err(FlushError::from);
            written.iter().map(open).collect()
        });
        if opened.is_err() {
            remove_unused(&written);
        }
        opened
    }

    fn write(&self, control: JobControl, written: &mut Vec<Descriptor>) -> Result<(), FlushError> {
        let memtable = &*self.memtable;
        let part = (memtable, self.range);
        let base = EncodingBase::of_minima(Some(memtable.min_timestamp()).filter(|&t| t != i64::MAX), None, None);
        let mut options = WriterOptions::of_table(&self.table, 0, base)?;
        options.host_id = Some(self.host_id);
        options.dropped = kept_columns(part, &self.table);
        // The entries of the table's and the keyspace's directory must survive a power loss as the files do. An
        // existing directory does not prove that they do, as the process that made it may have been killed; a sealed
        // sstable in it does.
        let is_durable = runtime::fs::exists(&self.dir) && !sstable::list(&self.dir)?.is_empty();
        if !is_durable {
            make_table_dir(&self.dir)?;
        }
        let part_of = |token: Token| self.cuts.partition_point(|range| range.to < token);
        let mut partitions = vec![0; self.cuts.len() + 1];
        partitions_in(memtable, self.range).for_each(|partition| partitions[part_of(partition.token())] += 1);
        let mut meter = Meter::new(control, memtable.bytes() as u64);
        let mut writing: Option<(Writer, usize)> = None;
        for_each_block(part, |block| {
            let part = part_of(block.token);
            if writing.as_ref().is_none_or(|(_, of)| *of != part) {
                if let Some((writer, _)) = writing.take() {
                    written.push(writer.finish()?.descriptor);
                }
                let options = WriterOptions {
                    estimated_partitions: partitions[part],
                    ..options.clone()
                };
                let writer = Writer::create(&self.dir, self.generations.next(), &self.table, options)?;
                writing = Some((writer, part));
            }
            if let Some((writer, _)) = &mut writing {
                writer.append(block)?;
            }
            let bytes = block.size() as u64;
            meter
                .add(bytes, bytes)
                .map_err(|ended| FlushError::from(String::from(ended)))
        })?;
        meter.settle().map_err(String::from)?;
        if let Some((writer, _)) = writing {
            written.push(writer.finish()?.descriptor);
        }
        Ok(())
    }
}

/// What the log has of tokens of a table up to a position is in sstables, or of no use.
pub(crate) fn discard_of(table: &Table, range: TokenRange, position: commitlog::ReplayPosition) -> Discard {
    Discard {
        table: table.id,
        after: range.after,
        up_to_token: range.to,
        position,
    }
}

/// What a flush of a tablet is cut by: its successors, where it is about to leave, or what the table is cut by ahead of
/// a split.
fn cuts_of(store: &TableStore, tablet: &Tablet) -> Arc<[TokenRange]> {
    let to_leave = tablet.cuts_to_leave.borrow().clone();
    to_leave.or_else(|| store.cuts_ahead()).unwrap_or_default()
}

/// Removes whole sstables that nothing reads. Blocks.
pub(crate) fn remove_unused(descriptors: &[sstable::Descriptor]) {
    for descriptor in descriptors {
        if let Err(e) = sstable::delete(descriptor) {
            log::error!(
                "cannot remove {}: {e}",
                descriptor.path(sstable::Component::Data).display()
            );
        }
    }
}

impl Shard {
    /// Where the log is, for what is frozen now.
    pub(crate) fn frozen_position(&self) -> commitlog::ReplayPosition {
        // This run's log may already have a note of a flush: a position after that note would cover writes that are not
        // replayed yet.
        if self.replaying.get() {
            commitlog::ReplayPosition::default()
        } else {
            self.log.appended()
        }
    }

    /// The next number of a frozen memtable.
    pub(crate) fn number_frozen(&self) -> u64 {
        self.frozen_so_far.set(self.frozen_so_far.get() + 1);
        self.frozen_so_far.get()
    }

    /// Freezes the tablet's memtable when it holds anything, and asks for the flush of all that is frozen.
    pub(crate) fn freeze(&self, store: &TableStore, tablet: &Tablet) {
        if !tablet.has_unflushed() {
            return;
        }
        let (table, position) = (store.table(), self.frozen_position());
        tablet.update(|v| {
            v.frozen.iter_mut().for_each(|frozen| frozen.is_aside = false);
            if v.active.borrow().is_empty() {
                return;
            }
            let memtable = v.active.freeze();
            v.frozen.push(Frozen {
                memtable,
                first_segment: tablet.first_segment.get(),
                position,
                number: self.number_frozen(),
                range: tablet.range,
                sharers: Rc::new(Cell::new(1)),
                is_aside: false,
            });
            v.active = MemtableCell::new(&table);
            tablet.first_segment.set(0);
        });
    }

    /// Flushes what a tablet holds in memory now. Err says why it is still there.
    pub async fn flush(self: &Rc<Self>, store: &Rc<TableStore>, tablet: &Rc<Tablet>) -> Result<(), String> {
        self.flush_for(store, tablet, &Origin::Node).await
    }

    /// Flushes what a tablet holds in memory now, with tasks of this origin. Err says why it is still there.
    pub async fn flush_for(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        tablet: &Rc<Tablet>,
        origin: &Origin,
    ) -> Result<(), String> {
        let cuts = cuts_of(store, tablet);
        self.flush_cut(store, tablet, &cuts, origin).await
    }

    /// Flushes as [`Self::flush_for`] does, to one sstable for each of these ranges.
    pub(crate) async fn flush_cut(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        tablet: &Rc<Tablet>,
        cuts: &[TokenRange],
        origin: &Origin,
    ) -> Result<(), String> {
        if !tablet.is_succeeded.get() {
            self.freeze(store, tablet);
            self.flush_what_is_frozen(store, tablet, cuts, origin).await?;
        }
        // It may have waited for its turn until others had what it had.
        if tablet.is_succeeded.get() {
            Box::pin(self.flush_heirs(store, tablet.range, origin)).await
        } else {
            Ok(())
        }
    }

    /// Flushes the tablets that have what one of this range had.
    async fn flush_heirs(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        range: TokenRange,
        origin: &Origin,
    ) -> Result<(), String> {
        let mut result = Ok(());
        for heir in store.with_leaving().iter().filter(|heir| heir.range.intersects(range)) {
            let flushed = self.flush_for(store, heir, origin).await;
            result = result.and(flushed);
        }
        result
    }

    async fn flush_what_is_frozen(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        tablet: &Rc<Tablet>,
        cuts: &[TokenRange],
        origin: &Origin,
    ) -> Result<(), String> {
        let asked = |frozen: &&Frozen| !frozen.is_aside;
        let last = tablet.with_version(|version| version.frozen.iter().filter(asked).map(|frozen| frozen.number).max());
        let Some(last) = last else { return Ok(()) };
        // One flush of a tablet runs at a time. The second finds nothing left, or flushes the rest. A later call
        // flushes what is frozen later.
        let _turn = tablet.flush_turn.acquire(1).await;
        // It may have left during the flush, and what it had is flushed by the tablets that have it.
        while !tablet.is_succeeded.get() {
            let next = tablet.next_to_flush(last, self.folded_bytes_max());
            if next.len() > 1 {
                self.fold(store, tablet, &next).await;
                continue;
            }
            let Some(frozen) = next.into_iter().next() else {
                return Ok(());
            };
            let spec = kinds::of_tablet(&kinds::FLUSH, store, tablet, frozen.memtable.bytes() as u64);
            let task = self.options.tasks.start(spec, origin);
            let flushed = self.flush_frozen(store, tablet, frozen, (cuts, &task)).await;
            task.end(&flushed);
            flushed?;
        }
        Ok(())
    }

    async fn flush_frozen(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        tablet: &Rc<Tablet>,
        frozen: Frozen,
        (cuts, task): (&[TokenRange], &Task),
    ) -> Result<(), String> {
        let table = store.table();
        // Read together with what is flushed: a truncation or a drop may come as soon as this waits.
        let epoch = tablet.epoch.get();
        // A batch that is one record of the log counts all or not at all: no table's part of it may be durable before
        // the record is.
        if let Err(error) = self.sync_log().await {
            // What is acknowledged is synced, and the log has it. What is not may be half of a batch.
            if self.log.is_batch() {
                return Err(error.to_string());
            }
            // A restart may find no more of what is acknowledged than what is flushed.
            log::warn!("{}.{} is flushed before its log is synced", table.keyspace, table.name);
        }
        let began = runtime::now();
        let flush = Flush {
            memtable: frozen.memtable.clone(),
            range: frozen.range,
            table: table.clone(),
            dir: store.dir.clone(),
            cuts: cuts.to_vec(),
            generations: self.options.generations.clone(),
            host_id: self.options.host_id,
        };
        let job = move |control| flush.run(control);
        if planted::is_planted(Bug::EarlyDiscard) {
            self.forget_in_log(&table, frozen.range, frozen.position).await;
        }
        runtime::stop_point(StopPoint::FlushFrozen);
        let readers = task.run_job(job).await?.map_err(|error| {
            if error.is_disk_failure {
                self.tell_of_disk(DiskFailure::Io, &error.text);
            }
            error.text
        })?;
        runtime::stop_point(StopPoint::FlushSealed);
        if tablet.epoch.get() != epoch {
            // Truncated or dropped during the flush: the file is of no use, the memtable is gone already.
            let descriptors: Vec<Descriptor> = readers.iter().map(|reader| reader.descriptor().clone()).collect();
            remove_unused(&descriptors);
            return Ok(());
        }
        tablet.update(|v| {
            v.frozen.retain(|f| !f.is(&frozen));
            v.sstables.extend(readers.iter().cloned());
        });
        self.options.activity.flushed(&table, frozen.charged(), &readers, began);
        // Its memory is free from here, not only when the log has been synced.
        let position = frozen.position;
        let tokens = if planted::is_planted(Bug::HeirDiscardsAll) {
            tablet.range
        } else {
            frozen.range
        };
        // Of a memtable that several tablets have a part of, the last one gives the bytes back.
        let bytes = frozen.let_go();
        self.dirty.release(bytes);
        if bytes > FREED_ASIDE_BYTES {
            free_aside(frozen.memtable);
        } else {
            drop(frozen);
        }
        self.forget_in_log(&table, tokens, position).await;
        self.compact_soon(store, tablet);
        Ok(())
    }

    /// Makes the log durable as far as it was written, unless it is being replayed.
    async fn sync_log(&self) -> Result<(), LogError> {
        if self.replaying.get() {
            return Ok(());
        }
        self.log.write()?;
        self.log.sync().await
    }

    /// Notes in the log that the writes of tokens up to a position are in sstables, and releases segments.
    async fn forget_in_log(&self, table: &Table, range: TokenRange, position: commitlog::ReplayPosition) {
        let discard = discard_of(table, range, position);
        let noted = self
            .log
            .append_discard(&discard)
            .and_then(|logged| self.log.commit(&logged));
        if noted.is_err() || self.log.sync().await.is_err() {
            // Without the note a crash replays writes that are in sstables too, which merges to the same.
            return;
        }
        self.release_log().await;
    }

    /// Releases the log segments that no memtable needs. None while the log of an earlier run is there: they say what
    /// of it must not come back.
    pub(crate) async fn release_log(&self) {
        if self.old_log.get() {
            return;
        }
        let mut oldest = self.open_batches.borrow().values().copied().min().unwrap_or(u64::MAX);
        for store in self.tables.borrow().values() {
            for tablet in store.with_leaving() {
                let first = tablet.first_segment.get();
                if first != 0 {
                    oldest = oldest.min(first);
                }
                tablet.with_version(|v| {
                    for f in v.frozen.iter().filter(|f| f.first_segment != 0) {
                        oldest = oldest.min(f.first_segment);
                    }
                });
            }
        }
        self.log.release_below(oldest).await;
    }

    /// Starts flushing the largest memtable; called when half of the dirty memory is held.
    #[cold]
    pub(crate) fn flush_for_memory(self: &Rc<Self>) {
        let mut largest: Option<(usize, Rc<TableStore>, Rc<Tablet>)> = None;
        let mut being_flushed = 0;
        for store in self.tables.borrow().values() {
            for tablet in store.tablets().iter() {
                being_flushed += tablet.flushed_bytes();
                let bytes = tablet.unflushed_bytes();
                if largest.as_ref().is_none_or(|(b, _, _)| bytes > *b) {
                    largest = Some((bytes, store.clone(), tablet.clone()));
                }
            }
        }
        let Some((_, store, tablet)) = largest else { return };
        // What is on its way out makes room already; freeze more only when that will not be enough.
        let stats = self.dirty.stats();
        if stats.dirty.saturating_sub(being_flushed) < stats.dirty_max / 2 {
            return;
        }
        self.freeze(&store, &tablet);
        drop(runtime::spawn_in(
            runtime::Group::BACKGROUND,
            self.flush_until_done(&store, &tablet),
        ));
    }

    /// Flushes what is frozen, and tries again while that fails. The flush counts as under way from this call on.
    pub(crate) fn flush_until_done(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        tablet: &Rc<Tablet>,
    ) -> impl Future<Output = ()> + use<> {
        let (shard, store, tablet) = (self.clone(), store.clone(), tablet.clone());
        tablet.flushes_to_come.set(tablet.flushes_to_come.get() + 1);
        async move {
            shard.flush_again_and_again(&store, &tablet).await;
            tablet.flushes_to_come.set(tablet.flushes_to_come.get() - 1);
        }
    }

    async fn flush_again_and_again(self: &Rc<Self>, store: &Rc<TableStore>, tablet: &Rc<Tablet>) {
        let mut logged: Option<(String, Instant)> = None;
        let attempt = async || {
            let cuts = cuts_of(store, tablet);
            self.flush_what_is_frozen(store, tablet, &cuts, &Origin::Node).await
        };
        while let Err(e) = attempt().await {
            self.failed_flushes.set(self.failed_flushes.get() + 1);
            let now = runtime::now();
            let is_known = logged
                .as_ref()
                .is_some_and(|(error, at)| *error == e && now.saturating_duration_since(*at) < RELOG_PERIOD);
            if !is_known {
                let table = store.table();
                log::error!(
                    "cannot flush {}.{}: {e}. The node tries again; it refuses writes when memory is full",
                    table.keyspace,
                    table.name
                );
                logged = Some((e, now));
            }
            runtime::sleep(RETRY_DELAY).await;
            if store.dropped.get() {
                return;
            }
        }
    }

    /// Forgets everything that was written to a table so far: memory, log and files. New writes are not touched.
    ///
    /// What is in memory goes into files first, so that the removal of the files, which no crash halves, is the one
    /// step in which the data goes. When it does not fit there (a full disk, which TRUNCATE is to free), an interrupted
    /// truncation may leave a part.
    ///
    /// # Errors
    /// When the log or the files cannot be changed.
    pub async fn truncate(self: &Rc<Self>, store: &Rc<TableStore>) -> Result<(), String> {
        let tablets = store.tablets().iter().filter(|tablet| !tablet.is_empty()).count();
        let spec = kinds::of_table(&kinds::TRUNCATE, store, tablets as u64);
        let task = self.options.tasks.start(spec, &Origin::Node);
        task.begin();
        let truncated = self.truncate_tablets(store, &task).await;
        task.end(&truncated);
        truncated
    }

    async fn truncate_tablets(self: &Rc<Self>, store: &Rc<TableStore>, task: &Task) -> Result<(), String> {
        for tablet in store.tablets().iter() {
            if tablet.is_empty() {
                tablet.end_adoptions().await;
                self.forget_records(store, tablet.range).await?;
                continue;
            }
            if let Err(e) = self.flush_for(store, tablet, &task.as_origin()).await {
                let table = store.table();
                log::warn!(
                    "truncation of {}.{} without a flush before: {e}",
                    table.keyspace,
                    table.name
                );
            }
            tablet.wait_for_quarantine().await;
            self.freeze(store, tablet);
            let position = self.log.end();
            tablet.epoch.set(tablet.epoch.get() + 1);
            let old = tablet.version();
            let bytes = old.frozen.iter().map(Frozen::let_go).sum();
            tablet.update(|v| {
                v.frozen.clear();
                v.sstables.clear();
            });
            self.dirty.release(bytes);
            if let Err(e) = self.forget_for_good(store, tablet, position, &old.sstables).await {
                // It is all still there, for a read and for the next attempt.
                tablet.update(|v| {
                    v.frozen.splice(0..0, old.frozen.iter().cloned());
                    v.sstables.extend(old.sstables.iter().cloned());
                });
                self.dirty.change(0, old.frozen.iter().map(Frozen::take_back).sum());
                return Err(e);
            }
            // A flush or compaction that was running leaves a file of the old data, which it removes before it ends.
            drop(tablet.flush_turn.acquire(1).await);
            drop(tablet.compaction_turn.acquire(1).await);
            runtime::stop_point(StopPoint::Truncated);
            self.release_log().await;
            task.advance(1);
        }
        // What is missing is gone by order.
        if !store.is_whole.get() {
            self.accept_loss(store).await?;
        }
        Ok(())
    }

    /// Makes it durable that the log's writes to a tablet up to a position are not replayed.
    pub(crate) async fn discard_durably(
        &self,
        table: &Table,
        tablet: &Tablet,
        position: commitlog::ReplayPosition,
    ) -> Result<(), String> {
        self.log
            .append_discard(&discard_of(table, tablet.range, position))
            .and_then(|logged| self.log.commit(&logged))
            .map_err(|e| e.to_string())?;
        self.log.sync().await.map_err(|e| e.to_string())
    }

    /// Makes it durable that the log's writes to several tablets of a table are not replayed. The tablets take no
    /// writes any more, so this covers all that the log has of them.
    pub(crate) async fn discard_all_durably(&self, table: &Table, tablets: &[Rc<Tablet>]) -> Result<(), String> {
        let (position, mark) = (self.log.end(), self.log.mark());
        let mut discards = tablets.iter().map(|tablet| discard_of(table, tablet.range, position));
        discards
            .try_for_each(|discard| {
                self.log
                    .append_discard(&discard)
                    .map(|logged| logged.is_covered_by(mark))
            })
            .and_then(|()| self.log.commit_since(mark))
            .map_err(|e| e.to_string())?;
        self.log.sync().await.map_err(|e| e.to_string())
    }

    /// Makes a truncation of a tablet durable. The log must know before the files go, or a crash would bring half of
    /// the data back.
    async fn forget_for_good(
        &self,
        store: &TableStore,
        tablet: &Tablet,
        position: commitlog::ReplayPosition,
        sstables: &[Arc<Reader>],
    ) -> Result<(), String> {
        self.forget_records(store, tablet.range).await?;
        self.discard_durably(&store.table(), tablet, position).await?;
        match self.delete_sstables(sstables).await {
            Ok(()) => Ok(()),
            // A full disk has no place for the list of what goes.
            Err(_) => self.delete_one_by_one(sstables).await,
        }
    }

    /// Removes files of which it does no harm if a crash leaves some. That needs no room on the disk.
    pub(crate) async fn delete_one_by_one(&self, readers: &[Arc<Reader>]) -> Result<(), String> {
        let mut result = Ok(());
        for reader in readers {
            reader.evict_from(&self.cache);
            let descriptor = reader.descriptor().clone();
            let deleted = runtime::offload(move || sstable::delete(&descriptor)).await;
            result = result.and(deleted.map_err(|e| e.to_string()));
        }
        result
    }

    /// Removes a table and its files from this shard.
    pub async fn drop_table(self: &Rc<Self>, id: schema::TableId) -> Result<(), String> {
        let Some(store) = self.tables.borrow_mut().remove(&id) else {
            return Ok(());
        };
        store.dropped.set(true);
        for tablet in &store.with_leaving() {
            tablet.wait_for_quarantine().await;
            // Otherwise a write that has found the tablet before would add dirty memory that is never released.
            tablet.has_left.set(true);
            self.freeze(&store, tablet);
            tablet.epoch.set(tablet.epoch.get() + 1);
            let old = tablet.version();
            let bytes = old.frozen.iter().map(Frozen::let_go).sum();
            tablet.update(|v| {
                v.frozen.clear();
                v.sstables.clear();
            });
            self.dirty.release(bytes);
            self.delete_sstables(&old.sstables).await?;
        }
        self.release_log().await;
        Ok(())
    }

    /// Puts sstables in the place of others of a tablet, all or, after a crash, none, and deletes the others. False if
    /// the tablet was truncated since it had `epoch`, or the table was dropped: the new sstables are deleted then.
    /// Neither truncation nor drop waits for a task that rewrites sstables.
    pub(crate) async fn replace_sstables(
        &self,
        store: &TableStore,
        tablet: &Tablet,
        epoch: u64,
        (inputs, outputs): (&[Arc<Reader>], &[Arc<Reader>]),
    ) -> Result<bool, String> {
        let is_gone = || tablet.epoch.get() != epoch || store.dropped.get();
        // Outputs that are not needed are deleted without a list, for which a full disk has no space. Together with the
        // inputs they say nothing new; but if they stayed on disk, the next start would bring rows back after a
        // truncation.
        if is_gone() {
            self.delete_one_by_one(outputs).await?;
            return Ok(false);
        }
        // The inputs must not come back once they are replaced by the outputs, which may lack tombstones that are old
        // enough.
        let obsolete = match self.mark_obsolete(inputs).await {
            Ok(obsolete) => obsolete,
            Err(e) => {
                self.delete_one_by_one(outputs).await?;
                return Err(e);
            }
        };
        let is_gone = is_gone();
        if !is_gone {
            tablet.update(|version| {
                version
                    .sstables
                    .retain(|reader| !inputs.iter().any(|input| Arc::ptr_eq(input, reader)));
                version.sstables.extend(outputs.iter().cloned());
            });
        }
        self.delete_obsolete(inputs, obsolete).await;
        if is_gone {
            self.delete_one_by_one(outputs).await?;
        }
        Ok(!is_gone)
    }

    /// Removes files that no version names any more, all or, after a crash, none. Readers that still hold them keep
    /// their open files.
    pub(crate) async fn delete_sstables(&self, readers: &[Arc<Reader>]) -> Result<(), String> {
        let obsolete = self.mark_obsolete(readers).await?;
        self.delete_obsolete(readers, obsolete).await;
        Ok(())
    }

    /// Makes it durable that these files count as deleted. On failure none is.
    pub(crate) async fn mark_obsolete(&self, readers: &[Arc<Reader>]) -> Result<sstable::Obsolete, String> {
        let descriptors: Vec<sstable::Descriptor> = readers.iter().map(|r| r.descriptor().clone()).collect();
        runtime::offload(move || sstable::mark_obsolete(&descriptors))
            .await
            .map_err(|e| e.to_string())
    }

    /// Removes files that count as deleted. What cannot be removed now goes at the next start.
    pub(crate) async fn delete_obsolete(&self, readers: &[Arc<Reader>], obsolete: sstable::Obsolete) {
        readers.iter().for_each(|r| r.evict_from(&self.cache));
        if let Err(e) = runtime::offload(move || obsolete.delete()).await {
            log::error!("cannot remove obsolete sstables: {e}");
        }
    }

    /// Flushes every memtable, also of tablets that are leaving; the first error is returned after all were tried.
    pub async fn flush_all(self: &Rc<Self>) -> Result<(), String> {
        let mut result = Ok(());
        for store in self.stores() {
            for tablet in &store.with_leaving() {
                let flushed = self.flush(&store, tablet).await;
                result = result.and(flushed);
            }
        }
        result
    }

    /// Keeps the log inside its limit by flushing the memtables that hold its oldest segments. To be spawned; ends
    /// never.
    pub async fn watch_log(self: Rc<Self>) {
        loop {
            let changed = self.log.changed.notified();
            let is_full = self.log.bytes() > self.options.log_bytes_max;
            let Some(oldest) = self.log.oldest_full_segment().filter(|_| is_full) else {
                changed.await;
                continue;
            };
            let mut has_failed = false;
            for store in self.stores() {
                for tablet in store.tablets().iter() {
                    // Also of what a flush that failed has left.
                    let first = tablet.first_held_segment();
                    let holds_it = first != 0 && first <= oldest && tablet.flush_turn.available() > 0;
                    if holds_it && let Err(e) = self.flush(&store, tablet).await {
                        log::error!("cannot flush to release the commitlog: {e}");
                        has_failed = true;
                    }
                }
            }
            self.release_log().await;
            if has_failed {
                runtime::sleep(RETRY_DELAY).await
            } else {
                changed.await
            }
        }
    }
}

/// Frees a flushed memtable of which no tablet has a part any more, when no reader has it either: the last reader would
/// free it in its poll.
fn free_aside(memtable: Arc<Memtable>) {
    drop(runtime::spawn_in(runtime::Group::BACKGROUND, async move {
        while Arc::strong_count(&memtable) > 1 {
            runtime::sleep(READERS_PERIOD).await;
        }
        runtime::offload_background(move || drop(memtable)).await;
    }));
}
