//! The repaired and the unrepaired sstables of a tablet: which marks count, what a repair holds and marks, and when
//! marks are forgotten. See docs/dev/incremental-repair.md.
//!
//! Invariants
//! - An open sstable counts as repaired when its mark was found valid at the start, when a session marked it since and
//!   has written its record, or when all that it was made of counted.
//! - A session marks only sstables that were there when it began and are still there, of a tablet of which no marks
//!   were removed since.
//! - Before a tablet loses data that other replicas may rely on, its record is gone, durably.

use std::fmt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use sstable::{FileHosts, Reader, RepairRecord};
use types::Token;
use uuid::Uuid;

use crate::files::TableCuts;
use crate::shard::Shard;
use crate::tablets::tablet::{TableStore, Tablet, TokenRange, Version};

/// Why sstables are not marked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MarkError {
    /// The range is not the whole of one tablet here.
    NotOneTablet,
    /// The tablet was truncated, left, or lost an sstable since then.
    Changed,
    /// What is in memory cannot be flushed, or the disk refuses.
    Failed(String),
}

impl fmt::Display for MarkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOneTablet => f.write_str("the range is not the whole of one tablet"),
            Self::Changed => f.write_str("the tablet has lost data"),
            Self::Failed(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for MarkError {}

/// The sstables of a tablet that a repair marks if it succeeds. While it lives, compactions that begin by themselves
/// leave them; those after it begin with the next flush, or when it is marked.
pub struct RepairSet {
    shard: Rc<Shard>,
    store: Rc<TableStore>,
    tablet: Rc<Tablet>,
    sstables: Vec<Arc<Reader>>,
    epoch: u64,
    mark_losses: u64,
    /// Names the hold.
    number: u64,
    /// Bytes of data of the tablet's sstables that the repair does not read.
    pub skipped_bytes: u64,
}

impl Drop for RepairSet {
    fn drop(&mut self) {
        self.tablet
            .held
            .borrow_mut()
            .retain(|(number, _)| *number != self.number);
    }
}

impl Tablet {
    /// Its memtables, and the sstables without a valid mark.
    pub fn unrepaired(&self) -> Rc<Version> {
        self.version().unrepaired()
    }

    /// Whether a repair holds the sstable at this place of the version.
    pub(crate) fn is_held(&self, at: u64) -> bool {
        let held = self.held.borrow();
        if held.is_empty() {
            return false;
        }
        self.with_version(|version| {
            let reader = usize::try_from(at).ok().and_then(|at| version.sstables.get(at));
            let has =
                |held: &[Arc<Reader>]| reader.is_some_and(|reader| held.iter().any(|one| Arc::ptr_eq(one, reader)));
            held.iter().any(|(_, held)| has(held))
        })
    }
}

impl TableStore {
    /// The tablet whose range is exactly this.
    fn tablet_of_range(&self, range: TokenRange) -> Option<Rc<Tablet>> {
        self.tablets().iter().find(|tablet| tablet.range == range).cloned()
    }

    /// Whether a tablet here has exactly this range.
    pub fn is_one_tablet(&self, range: TokenRange) -> bool {
        self.tablet_of_range(range).is_some()
    }

    /// Takes the marks from open sstables of the tablets that have any of these tokens: something of them is lost, and
    /// the record is gone.
    pub(crate) fn forget_marks(&self, (first, last): (Token, Token)) {
        self.mark_losses.set(self.mark_losses.get() + 1);
        for tablet in self.with_leaving() {
            if tablet.range.overlaps((first, last)) {
                tablet.with_version(|version| version.sstables.iter().for_each(|reader| reader.set_repaired_at(0)));
            }
        }
    }
}

impl Shard {
    /// What the last session has marked of a range; None when there was none, or something of it was lost since.
    ///
    /// # Errors
    /// When the table's directory cannot be listed.
    pub async fn repair_record(&self, store: &TableStore, range: TokenRange) -> Result<Option<RepairRecord>, String> {
        let dir = store.dir.clone();
        let read = move || sstable::records(&dir);
        let records = runtime::offload(read).await.map_err(|e| e.to_string())?;
        Ok(narrowest(&records, range).copied())
    }

    /// Flushes a tablet, and holds its sstables for a repair to mark: the unrepaired ones, or with `is_full` all.
    ///
    /// # Errors
    /// When the range is not that of a tablet here, or its memory cannot be flushed.
    pub async fn begin_repair_set(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        range: TokenRange,
        is_full: bool,
    ) -> Result<RepairSet, MarkError> {
        let tablet = store.tablet_of_range(range).ok_or(MarkError::NotOneTablet)?;
        let (epoch, mark_losses) = (tablet.epoch.get(), store.mark_losses.get());
        self.flush(store, &tablet).await.map_err(MarkError::Failed)?;
        let is_wanted = |reader: &&Arc<Reader>| is_full || reader.repaired_at() == 0;
        let (sstables, skipped) = tablet.with_version(|version| {
            let (wanted, skipped): (Vec<&Arc<Reader>>, Vec<_>) = version.sstables.iter().partition(is_wanted);
            let skipped = skipped.iter().map(|reader| reader.meta().data_len).sum::<u64>();
            (wanted.into_iter().cloned().collect::<Vec<_>>(), skipped)
        });
        let number = hold(&tablet, &sstables);
        let set = RepairSet {
            shard: self.clone(),
            store: store.clone(),
            tablet,
            sstables,
            epoch,
            mark_losses,
            number,
            skipped_bytes: skipped,
        };
        set.check()?;
        Ok(set)
    }
}

impl RepairSet {
    /// Whether the tablet is here and has lost nothing since.
    fn check(&self) -> Result<(), MarkError> {
        let is_same = self.tablet.epoch.get() == self.epoch
            && self.store.mark_losses.get() == self.mark_losses
            && !self.tablet.has_left()
            && !self.store.dropped.get();
        if is_same { Ok(()) } else { Err(MarkError::Changed) }
    }

    /// Marks those of the sstables that are still there, then makes the record durable. To be called when all replicas
    /// have the same, durably. How many were marked.
    ///
    /// # Errors
    /// When something was lost since then or the disk refuses. Some files have marks then that do not count, and the
    /// record is the previous one or none.
    pub async fn mark(self, record: RepairRecord) -> Result<usize, MarkError> {
        let (shard, store, tablet) = (self.shard.clone(), self.store.clone(), self.tablet.clone());
        let marked = self.mark_in_turn(record).await;
        // What was held, and what is in another set now.
        drop(self);
        shard.compact_soon(&store, &tablet);
        marked
    }

    async fn mark_in_turn(&self, mut record: RepairRecord) -> Result<usize, MarkError> {
        // In these turns nothing else links, checks or replaces the files.
        let _turn = self.tablet.compaction_turn.acquire(1).await;
        let _moving = self.tablet.quarantine_turn.acquire(1).await;
        self.check()?;
        let mut marked: Vec<&Arc<Reader>> = Vec::new();
        let marked_before = self.tablet.version().sstables.clone().into_iter();
        record.hosts = FileHosts::default();
        for reader in marked_before.filter(|reader| reader.repaired_at() != 0) {
            self.admits(&mut record, &reader);
        }
        for reader in &self.sstables {
            if !self.tablet.has(reader) || reader.is_suspect() || !self.admits(&mut record, reader) {
                continue;
            }
            let descriptor = reader.descriptor().clone();
            let done = runtime::offload(move || sstable::mark_repaired(&descriptor, record.at)).await;
            if !self.tablet.has(reader) {
                // A truncation has removed its files, and these are new.
                let descriptor = reader.descriptor().clone();
                let removed = runtime::offload(move || sstable::delete(&descriptor)).await;
                removed.map_err(|e| MarkError::Failed(e.to_string()))?;
            }
            self.check()?;
            done.map_err(|e| MarkError::Failed(e.to_string()))?;
            marked.push(reader);
        }
        let dir = self.store.dir.clone();
        let written = runtime::offload(move || {
            crate::tablets::reconcile::make_table_dir(&dir)?;
            sstable::write_record(&dir, &record)
        });
        let written = written.await;
        if let Err(changed) = self.check() {
            // What was removed when the tablet changed may be there again.
            self.shard
                .forget_records(&self.store, self.tablet.range)
                .await
                .map_err(MarkError::Failed)?;
            return Err(changed);
        }
        written.map_err(|e| MarkError::Failed(e.to_string()))?;
        // Not before: a mark that no record vouches for counts for nothing, now as after a restart.
        marked.iter().for_each(|reader| reader.set_repaired_at(record.at));
        Ok(marked.len())
    }
}

impl RepairSet {
    /// Whether the mark of a file counts by a record, which names the other hosts whose files are marked. A file of a
    /// host beyond those is read by each repair until a compaction has written it again.
    fn admits(&self, record: &mut RepairRecord, reader: &Reader) -> bool {
        match reader.meta().statistics.host_id {
            Some(host) if host != self.shard.host_id() => record.hosts.add(host),
            _ => true,
        }
    }
}

/// What a source says of its copy of a whole tablet: the record that it has of the tablet, and which sstables of the
/// copy count as repaired there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inheritance {
    /// Its range is that of the copy.
    pub record: RepairRecord,
    /// By their places in the copy.
    pub is_marked: Vec<bool>,
}

/// What of a tablet was lost until some moment.
#[derive(Clone, Copy)]
pub(crate) struct Losses {
    epoch: u64,
    mark_losses: u64,
}

impl Shard {
    /// The tablet that has the range of an inheritance, and what of it was lost until now. None: it is not one tablet
    /// here.
    pub(crate) fn heir_of(&self, store: &TableStore, inheritance: &Inheritance) -> Option<(Rc<Tablet>, Losses)> {
        let RepairRecord { after, to, .. } = inheritance.record;
        let tablet = store.tablet_of_range(TokenRange { after, to })?;
        let losses = Losses {
            epoch: tablet.epoch.get(),
            mark_losses: store.mark_losses.get(),
        };
        Some((tablet, losses))
    }

    /// Holds those of the sstables that count as repaired, in the step in which they become the tablet's: they are
    /// marked then ([`RepairSet::mark`]).
    pub(crate) fn hold_inherited(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        (tablet, losses): (Rc<Tablet>, Losses),
        (adopted, inheritance): (&[Arc<Reader>], &Inheritance),
    ) -> RepairSet {
        let marked = adopted.iter().zip(&inheritance.is_marked);
        let sstables: Vec<Arc<Reader>> = marked
            .filter(|(_, is_marked)| **is_marked)
            .map(|(reader, _)| reader.clone())
            .collect();
        RepairSet {
            number: hold(&tablet, &sstables),
            shard: self.clone(),
            store: store.clone(),
            tablet,
            sstables,
            epoch: losses.epoch,
            mark_losses: losses.mark_losses,
            skipped_bytes: 0,
        }
    }
}

/// Keeps sstables from compactions that begin by themselves. The number of the hold.
fn hold(tablet: &Tablet, sstables: &[Arc<Reader>]) -> u64 {
    let mut held = tablet.held.borrow_mut();
    let number = held.last().map_or(0, |(number, _)| number + 1);
    held.push((number, sstables.to_vec()));
    number
}

impl Shard {
    /// Makes it durable that nothing here is known to be equal to other replicas' data of a range. To be called before
    /// data of it is lost.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(crate) async fn forget_records(&self, store: &TableStore, range: TokenRange) -> Result<(), String> {
        let tokens = if range.after == TokenRange::ALL.after {
            (range.after, range.to)
        } else {
            (Token(range.after.0.saturating_add(1)), range.to)
        };
        store.forget_marks(tokens);
        let dir = store.dir.clone();
        let removed = runtime::offload(move || sstable::remove_records(&dir, tokens.0, tokens.1)).await;
        // Once more, for repairs that had begun in between.
        store.forget_marks(tokens);
        removed.map_err(|e| e.to_string())
    }
}

/// The narrowest record that covers a range.
fn narrowest(records: &[RepairRecord], range: TokenRange) -> Option<&RepairRecord> {
    let width = |record: &&RepairRecord| i128::from(record.to.0) - i128::from(record.after.0);
    let covering = records.iter().filter(|record| record.covers(range.after, range.to));
    covering.min_by_key(width)
}

/// At a start: removes the records of ranges that are not here, and says which marks of sstables count. Blocks.
///
/// # Errors
/// When the disk refuses.
pub(crate) fn recall(dir: &Path, cuts: &TableCuts, sstables: &[Arc<Reader>], host_id: Uuid) -> Result<(), String> {
    let mut records = sstable::records(dir).map_err(|e| e.to_string())?;
    let mut kept = Vec::new();
    for record in records.drain(..) {
        let range = TokenRange {
            after: record.after,
            to: record.to,
        };
        if cuts.here.iter().any(|here| here.intersects(range)) {
            kept.push(record)
        } else {
            sstable::remove_record(dir, &record).map_err(|e| e.to_string())?
        }
    }
    for reader in sstables {
        let tablet = cuts.here.iter().find(|range| range.overlaps(reader.tokens()));
        let record = tablet.and_then(|range| narrowest(&kept, *range));
        let statistics = &reader.meta().statistics;
        let is_valid = |record: &RepairRecord| {
            let mark = statistics.repaired_at;
            let is_known = |host: Uuid| host == host_id || record.hosts.has(host);
            // One that is later than the record is of a session that did not end here.
            mark != 0 && (record.since..=record.at).contains(&mark) && statistics.host_id.is_some_and(is_known)
        };
        let mark = if record.is_some_and(is_valid) {
            statistics.repaired_at
        } else {
            0
        };
        reader.set_repaired_at(mark);
    }
    Ok(())
}

/// Removes all records of all tables below the data directory: what other nodes rely on may be lost with the commitlog.
/// Blocks.
///
/// # Errors
/// When the disk refuses.
pub fn forget_all_records(data_dir: &Path) -> Result<(), String> {
    let failed = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
    let dirs = |dir: &Path| -> Result<Vec<std::path::PathBuf>, String> {
        let entries = runtime::fs::read_dir(dir).map_err(|e| failed(dir, e))?;
        Ok(entries
            .iter()
            .filter(|entry| entry.is_dir)
            .map(|entry| dir.join(&entry.name))
            .collect())
    };
    if !runtime::fs::exists(data_dir) {
        return Ok(());
    }
    for keyspace in dirs(data_dir)? {
        for table in dirs(&keyspace)? {
            sstable::remove_records(&table, Token(i64::MIN), Token(i64::MAX)).map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}
