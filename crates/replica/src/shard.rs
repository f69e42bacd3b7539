//! The shard: its tables, its log, its memory.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use commitlog::{Commitlog, LogError, LogMark, Logged, ReplayPosition};
use mutation::Mutation;
use runtime::{Notify, Semaphore, ShardId};
use schema::{Table, TableId};
use sstable::Generations;
use stdx::probe;
use tasks::Tasks;
use types::Token;

use crate::compaction::OnCompaction;
use crate::compaction::room::CompactionRoom;
use crate::files::quarantine::{DamageAlarm, OnDiskFailure, OnQuarantine};
use crate::metrics::activity::Activity;
use crate::read::PausedReaders;
use crate::read::row_cache::RowCacheBudget;
use crate::tablets::tablet::{TableStore, Tablet, TokenRange};
use crate::tombstones::HoldTombstones;
use crate::write::aside;
use crate::write::memory::{DirtyMemory, MemoryStats};
use crate::write::noted_batches::{self, NotedBatches};

/// How long a write waits for memory before it is refused.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long the end of a batch for several shards may wait for the sync that makes it durable; all that wait share it.
const BATCH_END_DELAY: Duration = Duration::from_secs(1);

/// What a shard is made of.
pub struct ShardOptions {
    /// Which of how many.
    pub shard: ShardId,
    /// How many.
    pub shards: u32,
    /// Where the tables' directories are.
    pub data_dir: PathBuf,
    /// Most bytes of memtables.
    pub dirty_bytes_max: usize,
    /// Most bytes of cached sstable blocks.
    pub cache_bytes_max: usize,
    /// Most bytes of log before the oldest memtables are flushed to release it.
    pub log_bytes_max: u64,
    /// Names for sstables, shared by the node's shards.
    pub generations: Arc<Generations>,
    /// The node's tasks.
    pub tasks: Arc<Tasks>,
    /// The node's logged batches that may be written again, shared by its shards.
    pub noted_batches: Arc<NotedBatches>,
    /// What the node's flushes and compactions have done, shared by its shards.
    pub activity: Arc<Activity>,
    /// Room on the disk that the node's compactions have been promised, shared by its shards.
    pub compaction_room: Arc<CompactionRoom>,
    /// The node's identity, written into sstables.
    pub host_id: uuid::Uuid,
}

/// Why a write was not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WriteError {
    /// The token is of none of this shard's tablets.
    NotHere(Token),
    /// The memtables are full; wait with [`Shard::room`] and try again.
    MemoryFull,
    /// The log does not take it.
    Log(LogError),
}

impl std::fmt::Display for WriteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotHere(token) => write!(f, "token {} is not of this shard", token.0),
            Self::MemoryFull => f.write_str("memtables are full and flushing does not keep up"),
            Self::Log(e) => e.fmt(f),
        }
    }
}

/// What a read past the cache may hold of decoded blocks: it reads a chunk again when it needs it for another slice.
const BYPASS_BYTES_MAX: usize = 256 << 10;

/// One shard's data. Lives on its shard in an `Rc`.
pub struct Shard {
    pub(crate) options: ShardOptions,
    /// The log.
    pub log: Rc<Commitlog>,
    pub(crate) tables: RefCell<HashMap<TableId, Rc<TableStore>, foldhash::fast::FixedState>>,
    pub(crate) dirty: DirtyMemory,
    /// Blocks of sstables.
    pub cache: Rc<sstable::ChunkCache>,
    /// Rows of sstables, over all tables.
    pub row_cache_budget: Rc<RowCacheBudget>,
    /// Readers of partitions, between two pages.
    pub paused_readers: Rc<PausedReaders>,
    /// While files of an earlier run's log exist, a crash replays them: tombstones must outlive them, and so must what
    /// this run's log says about them.
    pub(crate) old_log: Cell<bool>,
    /// While the log of earlier runs is read: memtables hold a part of it that no position describes.
    pub(crate) replaying: Cell<bool>,
    /// Long writes that are merged take turns, and folds do.
    pub(crate) merge_turn: Semaphore,
    pub(crate) fold_turn: Semaphore,
    /// Memtables frozen so far.
    pub(crate) frozen_so_far: Cell<u64>,
    pub(crate) failed_flushes: Cell<u64>,
    /// Batches on their way to several shards: the log segment that holds each.
    pub(crate) open_batches: RefCell<BTreeMap<u128, u64>>,
    /// Batches that have ended, but not yet durably so: how often the log had lost records when their end was noted
    /// there, if it was.
    ended_batches: RefCell<Vec<(u128, Option<Logged>)>>,
    /// The node's disks have room for data of users.
    takes_growth: Cell<bool>,
    /// The log says that a compaction waits for room.
    pub(crate) compactions_wait: Cell<bool>,
    /// Notified when a batch for several shards ends.
    pub batch_ended: Notify,
    /// Notified when a table is added.
    pub table_added: Notify,
    /// Notified when a table gets another `memtable_flush_period_in_ms`.
    pub(crate) flush_period_changed: Notify,
    /// What other replicas may have missed.
    pub(crate) tombstone_holds: RefCell<Option<HoldTombstones>>,
    /// Raised when damage is found in an open sstable.
    pub(crate) alarm: Rc<DamageAlarm>,
    /// One task at a time changes what is quarantined, or looks.
    pub(crate) quarantine_turn: runtime::Semaphore,
    pub(crate) on_quarantine: RefCell<Option<OnQuarantine>>,
    pub(crate) on_disk_failure: RefCell<Option<OnDiskFailure>>,
    pub(crate) disk_failures: Cell<u64>,
    pub(crate) on_compaction: RefCell<Option<OnCompaction>>,
    /// Sstables that were moved aside since the start.
    pub(crate) sstables_lost: Cell<u64>,
}

impl Shard {
    /// The cache of blocks for one read: the shard's, or a small one of its own that leaves the shard's as it is.
    pub fn cache_of_read(&self, bypasses: bool) -> Rc<sstable::ChunkCache> {
        if bypasses {
            Rc::new(sstable::ChunkCache::new(BYPASS_BYTES_MAX))
        } else {
            Rc::clone(&self.cache)
        }
    }

    /// A shard without tables.
    pub fn new(options: ShardOptions, log: Rc<Commitlog>) -> Rc<Self> {
        Rc::new(Self {
            dirty: DirtyMemory::new(options.dirty_bytes_max),
            // A third of the cache holds rows as point reads want them, the rest blocks as the files have them.
            cache: Rc::new(sstable::ChunkCache::new(options.cache_bytes_max / 3 * 2)),
            row_cache_budget: RowCacheBudget::new(options.cache_bytes_max / 3),
            paused_readers: PausedReaders::new(options.cache_bytes_max / 32),
            options,
            log,
            tables: RefCell::default(),
            old_log: Cell::new(false),
            merge_turn: Semaphore::new(aside::MERGES_MAX),
            fold_turn: Semaphore::new(1),
            frozen_so_far: Cell::new(0),
            replaying: Cell::new(false),
            failed_flushes: Cell::new(0),
            open_batches: RefCell::default(),
            ended_batches: RefCell::default(),
            takes_growth: Cell::new(true),
            compactions_wait: Cell::new(false),
            batch_ended: Notify::new(),
            table_added: Notify::new(),
            flush_period_changed: Notify::new(),
            tombstone_holds: RefCell::default(),
            alarm: Rc::default(),
            quarantine_turn: runtime::Semaphore::new(1),
            on_quarantine: RefCell::default(),
            on_disk_failure: RefCell::default(),
            disk_failures: Cell::new(0),
            on_compaction: RefCell::default(),
            sstables_lost: Cell::new(0),
        })
    }

    /// Which shard this is.
    pub fn id(&self) -> ShardId {
        self.options.shard
    }

    /// The node's host id.
    pub fn host_id(&self) -> uuid::Uuid {
        self.options.host_id
    }

    /// Whether the node's disks have room for data of users. What asks it decides what follows: this crate writes what
    /// it is given.
    #[inline]
    pub fn takes_growth(&self) -> bool {
        self.takes_growth.get()
    }

    /// Takes over whether the disks have room. When they have room again, tablets whose compactions waited for it are
    /// looked at.
    pub fn set_takes_growth(self: &Rc<Self>, takes: bool) {
        if !self.takes_growth.replace(takes) && takes {
            self.compact_all_soon();
        }
    }

    /// Has compactions that wait for room on the disk look for it again: something else may have given it back.
    pub fn retry_compactions(self: &Rc<Self>) {
        if self.compactions_wait.get() {
            self.compact_all_soon();
        }
    }

    fn compact_all_soon(self: &Rc<Self>) {
        for store in self.stores() {
            for tablet in store.tablets().iter() {
                self.compact_soon(&store, tablet);
            }
        }
    }

    /// The node's tasks.
    pub fn tasks(&self) -> &Arc<Tasks> {
        &self.options.tasks
    }

    /// The tokens of this shard: an equal, contiguous part of the ring.
    pub fn token_range(&self) -> TokenRange {
        shard_range(self.options.shard.0, self.options.shards)
    }

    /// The directory of a table's sstables.
    pub fn table_dir(&self, table: &Table) -> PathBuf {
        crate::files::table_dir(&self.options.data_dir, table)
    }

    /// The directory of all tables' directories.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.options.data_dir
    }

    /// The table's part here.
    #[inline]
    pub fn store(&self, id: TableId) -> Option<Rc<TableStore>> {
        self.tables.borrow().get(&id).cloned()
    }

    /// All tables' parts.
    pub fn stores(&self) -> Vec<Rc<TableStore>> {
        self.tables.borrow().values().cloned().collect()
    }

    /// Writes a mutation: log first, then memtable. Acknowledge only after [`Shard::commit`].
    ///
    /// # Errors
    /// When the token is not of a tablet here, memory is full, or the log fails. Nothing was done.
    #[inline]
    pub fn write(
        self: &Rc<Self>,
        store: &TableStore,
        token: Token,
        mutation: &Mutation<'_>,
    ) -> Result<Logged, WriteError> {
        let tablet = store.tablet(token).ok_or(WriteError::NotHere(token))?;
        store.metrics.note_write(mutation.key);
        self.write_to(&tablet, token, mutation)
    }

    /// Writes a mutation as [`Shard::write`] does, but only to this tablet.
    ///
    /// # Errors
    /// As those of [`Shard::write`]; a tablet that has left does not take it, also where another of its tokens has come
    /// since.
    #[inline]
    pub fn write_to(
        self: &Rc<Self>,
        tablet: &Rc<Tablet>,
        token: Token,
        mutation: &Mutation<'_>,
    ) -> Result<Logged, WriteError> {
        if self.dirty.is_full() {
            return Err(WriteError::MemoryFull);
        }
        if tablet.has_left() {
            return Err(WriteError::NotHere(token));
        }
        tablet.count_request();
        let logged = self.log.append(mutation.bytes()).map_err(WriteError::Log)?;
        probe::step(|| format!("log: a mutation of {} bytes is appended", mutation.bytes().len()));
        self.apply(tablet, token, mutation, logged.place().position.segment);
        probe::step(|| "memtable: the mutation is applied".to_owned());
        Ok(logged)
    }

    /// Writes mutations that count all or not at all: one record of the log, applied in one step.
    ///
    /// # Errors
    /// As those of [`Shard::write`].
    pub fn write_batch(
        self: &Rc<Self>,
        mutations: &[(Rc<TableStore>, Token, Mutation<'_>)],
    ) -> Result<Logged, WriteError> {
        if self.dirty.is_full() {
            return Err(WriteError::MemoryFull);
        }
        let here = |(store, token, _): &(Rc<TableStore>, Token, Mutation<'_>)| {
            let tablet = store.tablet(*token).filter(|tablet| !tablet.has_left());
            tablet.ok_or(WriteError::NotHere(*token))
        };
        let tablets: Vec<Rc<Tablet>> = mutations.iter().map(here).collect::<Result<_, _>>()?;
        let bytes = mutations.iter().map(|(_, _, m)| m.bytes());
        let logged = self.log.append_batch(bytes).map_err(WriteError::Log)?;
        let segment = logged.place().position.segment;
        for ((store, token, m), tablet) in mutations.iter().zip(&tablets) {
            store.metrics.note_write(m.key);
            tablet.count_request();
            self.merge(tablet, *token, m, segment);
        }
        // Only now: a memtable frozen between them would become durable without the rest.
        if self.dirty.wants_flush() {
            self.flush_for_memory();
        }
        Ok(logged)
    }

    /// Notes a batch that goes to several shards, and keeps the note until [`Shard::end_batch`]. The note is committed;
    /// returns where it is.
    pub fn begin_batch<'m>(
        &self,
        id: u128,
        mutations: impl Iterator<Item = &'m [u8]>,
    ) -> Result<ReplayPosition, WriteError> {
        let mut min_timestamp = i64::MAX;
        let mutations = mutations.inspect(|m| min_timestamp = min_timestamp.min(noted_batches::min_timestamp(m)));
        let logged = self.log.append_batch_begun(id, mutations).map_err(WriteError::Log)?;
        let position = self.log.commit(&logged).map_err(WriteError::Log)?;
        self.open_batches.borrow_mut().insert(id, position.segment);
        self.options.noted_batches.begin(id, min_timestamp);
        Ok(position)
    }

    /// Open batches whose note is more than so many segments before the end of the log.
    pub fn batches_noted_before(&self, segments: u64) -> Vec<u128> {
        let newest = self.log.appended().segment;
        let open = self.open_batches.borrow();
        let old = open.iter().filter(|(_, segment)| **segment + segments < newest);
        old.map(|(id, _)| *id).collect()
    }

    /// Notes a batch that is open again, at the end of the log. Its older note holds log segments until
    /// [`Shard::release_older_notes`].
    pub fn note_batch_again<'m>(
        &self,
        id: u128,
        mutations: impl Iterator<Item = &'m [u8]>,
    ) -> Result<Logged, LogError> {
        self.log.append_batch_begun(id, mutations)
    }

    /// Lets the segments go that only older notes of these batches hold, once the newer ones are durable, which are the
    /// first that were appended after `mark`.
    pub async fn release_older_notes(&self, again: &[(u128, Logged)], mark: LogMark) -> Result<(), LogError> {
        self.log.durable_since(mark).await?;
        for (id, logged) in again {
            // It may have ended in the meantime.
            if let Some(segment) = self.open_batches.borrow_mut().get_mut(id) {
                *segment = logged.place().position.segment;
            }
        }
        self.release_log().await;
        Ok(())
    }

    /// Whether a batch that goes to several shards is noted here and has not ended.
    pub fn has_open_batches(&self) -> bool {
        !self.open_batches.borrow().is_empty()
    }

    /// Every shard has its part of the batch.
    pub fn end_batch(self: &Rc<Self>, id: u128) {
        self.open_batches.borrow_mut().remove(&id);
        self.batch_ended.notify_all();
        let noted = self.note_batch_end(id);
        if let Err(e) = &noted {
            log::warn!("cannot record the end of a logged batch yet: {e}");
        }
        let is_first = {
            let mut ended = self.ended_batches.borrow_mut();
            ended.push((id, noted.ok()));
            ended.len() == 1
        };
        if is_first {
            drop(runtime::spawn(self.clone().make_batch_ends_durable()));
        }
    }

    /// Notes that a batch has ended. Without the note a replay applies the batch once more, which changes nothing while
    /// tombstones wait for it, and truncations ([`Shard::settle_batches`]).
    fn note_batch_end(&self, id: u128) -> Result<Logged, LogError> {
        self.log.append_batch_ended(id)
    }

    fn has_note(&self, noted: Option<&Logged>) -> bool {
        noted.is_some_and(|logged| !logged.place().is_lost(&self.log))
    }

    /// Waits until the log durably has the ends of all batches that have ended. Called before a truncation, after which
    /// no replay may write a batch again.
    ///
    /// # Errors
    /// If the log takes no more writes.
    pub async fn settle_batches(&self) -> Result<(), LogError> {
        loop {
            let mark = self.log.mark();
            for (id, noted) in self.ended_batches.borrow_mut().iter_mut() {
                if !self.has_note(noted.as_ref()) {
                    *noted = Some(self.note_batch_end(*id)?);
                }
            }
            self.log.write()?;
            self.log.sync().await?;
            if !mark.has_losses(&self.log) {
                return Ok(());
            }
        }
    }

    /// Waits until the log durably has the ends of batches, and releases the tombstones that waited for them.
    async fn make_batch_ends_durable(self: Rc<Self>) {
        loop {
            runtime::sleep(BATCH_END_DELAY).await;
            for (id, noted) in self.ended_batches.borrow_mut().iter_mut() {
                if !self.has_note(noted.as_ref()) {
                    *noted = self.note_batch_end(*id).ok();
                }
            }
            let count = self.ended_batches.borrow().len();
            if self.log.write().is_err() || self.log.sync().await.is_err() {
                continue;
            }
            let mut ended = self.ended_batches.borrow_mut();
            let mut durable = Vec::new();
            let mut left = Vec::new();
            for (i, (id, noted)) in ended.drain(..).enumerate() {
                if i < count && self.has_note(noted.as_ref()) {
                    durable.push(id);
                } else {
                    left.push((id, noted));
                }
            }
            self.options.noted_batches.forget(durable);
            if left.is_empty() {
                return;
            }
            *ended = left;
        }
    }

    /// Applies a mutation that is in the log already.
    #[inline]
    pub(crate) fn apply(self: &Rc<Self>, tablet: &Rc<Tablet>, token: Token, mutation: &Mutation<'_>, segment: u64) {
        if self.merge(tablet, token, mutation, segment) && self.dirty.wants_flush() {
            self.flush_for_memory();
        }
    }

    /// Merges a mutation into the memtable. Whether that took memory.
    #[inline]
    pub(crate) fn merge(&self, tablet: &Tablet, token: Token, mutation: &Mutation<'_>, segment: u64) -> bool {
        if tablet.first_segment.get() == 0 {
            tablet.first_segment.set(segment);
        }
        let (before, after) = tablet.with_version(|v| {
            v.active.write(|m| {
                let before = m.bytes();
                m.apply(token, mutation);
                (before, m.bytes())
            })
        });
        if before != after {
            self.dirty.change(before, after);
        }
        before != after
    }

    /// Refuses every write from here on, as if memory were full: what is flushed after this is all there is.
    pub fn close(&self) {
        self.dirty.close();
    }

    /// Hands the log of everything written so far to the kernel, and returns the position of what is committed:
    /// periodic mode may acknowledge it, batch mode when it is synced.
    ///
    /// # Errors
    /// When it may be lost, or something that was written with it.
    #[inline]
    pub fn commit(&self, logged: &Logged) -> Result<ReplayPosition, LogError> {
        self.commit_since(logged.place().mark)?;
        Ok(logged.place().position)
    }

    /// Hands the log of everything written so far to the kernel, and returns the position after it: see
    /// [`Shard::commit`].
    ///
    /// # Errors
    /// When something may be lost that was written after the mark.
    #[inline]
    pub fn commit_since(&self, mark: LogMark) -> Result<ReplayPosition, LogError> {
        probe::step(|| "log: what was appended is handed to the kernel".to_owned());
        self.log.commit_since(mark)
    }

    /// Waits until memtables have room. Err when that takes too long, and at once when there will be none: what a node
    /// that stops cannot take its coordinators give to others.
    pub async fn room(&self) -> Result<(), WriteError> {
        let deadline = runtime::now() + ROOM_WAIT_MAX;
        while self.dirty.is_full() {
            let left = deadline.saturating_duration_since(runtime::now());
            if self.dirty.is_closed() || left.is_zero() || runtime::timeout(left, self.dirty.released()).await.is_err()
            {
                return Err(WriteError::MemoryFull);
            }
        }
        Ok(())
    }

    /// Waits as [`Shard::room`] does, for these writes. While they wait, no compaction purges a deletion that is newer
    /// than they are.
    ///
    /// # Errors
    /// As those of [`Shard::room`].
    pub async fn room_for<'m>(&self, writes: impl Iterator<Item = Mutation<'m>>) -> Result<(), WriteError> {
        let _waiting = self.wait_with(writes);
        self.room().await
    }

    /// Counts writes among those that wait, until what this returns is dropped: no compaction purges a deletion that is
    /// newer than they are.
    pub(crate) fn wait_with<'m>(&self, writes: impl Iterator<Item = Mutation<'m>>) -> noted_batches::Waiting<'_> {
        let oldest = writes.map(|m| noted_batches::min_timestamp(m.bytes())).min();
        self.options.noted_batches.wait(oldest.unwrap_or(i64::MAX))
    }

    /// Whether any table has anything, in memory or in files.
    pub fn has_data(&self) -> bool {
        let tables = self.tables.borrow();
        tables.values().any(|s| s.tablets().iter().any(|t| !t.is_empty()))
    }

    /// What the memtables hold.
    pub fn memory(&self) -> MemoryStats {
        self.dirty.stats()
    }
}

/// The part of the ring that shard `shard` of `shards` owns: the tokens that `types::token::shard_of` with no ignored
/// bits gives it.
pub fn shard_range(shard: u32, shards: u32) -> TokenRange {
    let boundary = |s: u32| -> i64 {
        // The first biased token of shard s is ceil(s * 2^64 / shards); the last of the one before is one less.
        let first = (u128::from(s) << 64).div_ceil(u128::from(shards));
        let last_before = (first.wrapping_sub(1) & u128::from(u64::MAX)) as u64;
        last_before.wrapping_sub(1 << 63) as i64
    };
    let after = if shard == 0 {
        Token(i64::MIN)
    } else {
        Token(boundary(shard))
    };
    let to = if shard + 1 == shards {
        Token(i64::MAX)
    } else {
        Token(boundary(shard + 1))
    };
    TokenRange { after, to }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_that_drivers_compute() {
        for shards in [1, 2, 3, 7, 16] {
            for shard in 0..shards {
                let range = shard_range(shard, shards);
                let probes = [
                    range.after.0.saturating_add(1),
                    range.to.0,
                    range.to.0 / 2 + range.after.0 / 2,
                ];
                for t in probes.into_iter().map(Token) {
                    assert_eq!(
                        types::token::shard_of(t, shards, 0),
                        shard,
                        "token {t:?} of {shards} shards"
                    );
                    assert!(range.contains(t));
                    assert_eq!((0..shards).filter(|&s| shard_range(s, shards).contains(t)).count(), 1);
                }
            }
        }
    }
}
