//! A table's part on one shard, and the sources that make it up.

use std::cell::{Cell, Ref, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use commitlog::ReplayPosition;
use memtable::Memtable;
use runtime::{Notify, Permit, Semaphore};
use schema::Table;
use stdx::planted::{self, Bug};
use types::Token;
use types::token::KeyHash;

use crate::files::quarantine::DamageAlarm;
use crate::metrics::load::LoadMeter;
use crate::metrics::table_metrics::TableMetrics;
use crate::read::PausedReaders;
use crate::read::row_cache::{RowCache, RowCacheBudget};
use crate::tablets::arrivals::Arrivals;
use crate::tablets::copies::Copies;
use crate::tombstones::repaired::RepairedRanges;

/// Tokens above `after` up to and including `to`. The lowest range begins at the lowest token of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenRange {
    /// Exclusive start; `Token(i64::MIN)` is before every key's token.
    pub after: Token,
    /// Inclusive end.
    pub to: Token,
}

impl TokenRange {
    /// Every token.
    pub const ALL: Self = Self {
        after: Token(i64::MIN),
        to: Token(i64::MAX),
    };

    /// Tokens above the first up to the second.
    #[must_use]
    pub const fn of(after: i64, to: i64) -> Self {
        Self {
            after: Token(after),
            to: Token(to),
        }
    }

    /// Whether a token is inside.
    #[inline]
    pub fn contains(self, token: Token) -> bool {
        (token > self.after || self.after.0 == i64::MIN) && token <= self.to
    }

    /// Whether any token from the first of these up to the second is inside.
    pub fn overlaps(self, (first, last): (Token, Token)) -> bool {
        (last > self.after || self.after.0 == i64::MIN) && first <= self.to
    }

    /// Whether the two ranges have a token in common.
    pub fn intersects(self, other: Self) -> bool {
        self.after < other.to && other.after < self.to
    }

    /// Whether every token of the other range is inside.
    pub fn includes(self, other: Self) -> bool {
        self.after <= other.after && other.to <= self.to
    }
}

/// A memtable that may be frozen while readers hold it.
#[derive(Debug)]
pub(crate) enum MemtableState {
    Active(Box<Memtable>),
    Frozen(Arc<Memtable>),
}

/// The place of a memtable: written until it is frozen, then shared.
#[derive(Debug)]
pub struct MemtableCell(RefCell<MemtableState>);

impl MemtableCell {
    fn of_frozen(memtable: &Arc<Memtable>) -> Rc<Self> {
        Rc::new(Self(RefCell::new(MemtableState::Frozen(memtable.clone()))))
    }

    pub(crate) fn new(table: &Table) -> Rc<Self> {
        Rc::new(Self(RefCell::new(MemtableState::Active(Box::new(Memtable::new(
            table,
        ))))))
    }

    /// The memtable, to read.
    #[inline]
    pub fn borrow(&self) -> Ref<'_, Memtable> {
        Ref::map(self.0.borrow(), |state| match state {
            MemtableState::Active(m) => &**m,
            MemtableState::Frozen(m) => &**m,
        })
    }

    /// Runs `f` on the memtable, which must be active.
    #[inline]
    pub(crate) fn write<R>(&self, f: impl FnOnce(&mut Memtable) -> R) -> R {
        match &mut *self.0.borrow_mut() {
            MemtableState::Active(m) => f(m),
            MemtableState::Frozen(_) => unreachable!("only the tablet's active memtable is written"),
        }
    }

    pub(crate) fn freeze(&self) -> Arc<Memtable> {
        let mut state = self.0.borrow_mut();
        if let MemtableState::Active(m) = &mut *state {
            // An empty placeholder for the moment of the move.
            let table = std::mem::replace(&mut **m, Memtable::placeholder());
            *state = MemtableState::Frozen(Arc::new(table));
        }
        match &*state {
            MemtableState::Frozen(m) => m.clone(),
            MemtableState::Active(_) => unreachable!("it was frozen just now"),
        }
    }
}

/// A memtable that is not written any more, and becomes an sstable.
#[derive(Clone, Debug)]
pub struct Frozen {
    /// Its content.
    pub memtable: Arc<Memtable>,
    /// The first log segment that holds any of it; 0 when none does.
    pub first_segment: u64,
    /// Where the log was when it was frozen.
    pub position: ReplayPosition,
    /// The number of its freezing on its shard: higher than that of all memtables frozen before.
    pub(crate) number: u64,
    /// Which of its tokens are of this tablet. Together with what was frozen before it for any of them, it has all that
    /// the log has of them up to `position`.
    pub range: TokenRange,
    /// How many tablets have a part of it: several after a split, until they have flushed theirs.
    pub(crate) sharers: Rc<Cell<usize>>,
    /// Its flush has not been asked for: it was frozen by a long write ([`crate::aside`]), not by a flush.
    pub(crate) is_aside: bool,
}

impl Frozen {
    /// Whether it is the same part of the same memtable: a tablet that was split and merged has two of one.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.memtable, &other.memtable) && self.range == other.range
    }

    /// The bytes that this tablet's part is charged.
    pub fn charged(&self) -> usize {
        self.memtable.bytes() / self.sharers.get().max(1)
    }

    /// The part of what the memtable has of something, say of its rows, that is taken to be this tablet's.
    pub fn share(&self, of_memtable: u64) -> u64 {
        of_memtable / self.sharers.get().max(1) as u64
    }

    /// Says that this tablet does not need it any more. The bytes that are free now.
    pub(crate) fn let_go(&self) -> usize {
        let left = self.sharers.get() - 1;
        self.sharers.set(left);
        match left {
            0 => self.memtable.bytes(),
            _ => 0,
        }
    }

    /// Takes back what [`Frozen::let_go`] said. The bytes that are held again.
    pub(crate) fn take_back(&self) -> usize {
        let before = self.sharers.replace(self.sharers.get() + 1);
        match before {
            0 => self.memtable.bytes(),
            _ => 0,
        }
    }
}

/// All sources of a tablet at one moment. Immutable but for the writes that the active memtable still receives.
#[derive(Clone, Debug)]
pub struct Version {
    /// Receives writes until frozen.
    pub active: Rc<MemtableCell>,
    /// Being flushed, then those aside, oldest first: in this order they are flushed.
    pub frozen: Vec<Frozen>,
    /// On disk.
    pub sstables: Vec<Arc<sstable::Reader>>,
    /// Damaged ones, moved aside: what they had is missing.
    pub missing: Rc<[sstable::Quarantined]>,
    /// Whether memory alone cannot answer for every key: there are sstables, or some are missing.
    pub(crate) has_files: bool,
    /// What they say about rows that were asked for.
    pub(crate) rows: Rc<RefCell<RowCache>>,
    /// Raised when a read meets damage.
    pub(crate) alarm: Rc<DamageAlarm>,
}

impl Version {
    /// Its sources, each alone: names as ScyllaDB has them (`memtable:0`, `sstable:` and the path), the newest memtable
    /// first.
    pub fn by_source(&self) -> Vec<(String, Rc<Self>)> {
        let memtables = 1 + self.frozen.len();
        let alone = |n: usize| {
            let mut part = self.clone();
            part.sstables.clear();
            part.rows = Rc::new(RefCell::new(RowCache::new(RowCacheBudget::new(0))));
            part.has_files = !part.missing.is_empty();
            part.frozen.clear();
            match n.checked_sub(memtables) {
                None if n == 0 => {}
                None => {
                    part.active = MemtableCell::of_frozen(&Arc::new(Memtable::placeholder()));
                    part.frozen.push(self.frozen[memtables - 1 - n].clone());
                }
                Some(file) => {
                    part.active = MemtableCell::of_frozen(&Arc::new(Memtable::placeholder()));
                    part.sstables.push(self.sstables[file].clone());
                    part.has_files = true;
                }
            }
            part
        };
        let name = |n: usize| match n.checked_sub(memtables) {
            None => format!("memtable:{n}"),
            Some(file) => format!(
                "sstable:{}",
                self.sstables[file]
                    .descriptor()
                    .path(sstable::Component::Data)
                    .display()
            ),
        };
        (0..memtables + self.sstables.len())
            .map(|n| (name(n), Rc::new(alone(n))))
            .collect()
    }

    /// What of it is not repaired: memtables, and sstables without a valid mark. What is missing is missing of it too.
    pub(crate) fn unrepaired(&self) -> Rc<Self> {
        let mut part = self.clone();
        part.sstables.retain(|reader| reader.repaired_at() == 0);
        part.has_files = !part.sstables.is_empty() || !part.missing.is_empty();
        // What is cached is of all sstables.
        part.rows = Rc::new(RefCell::new(RowCache::new(RowCacheBudget::new(0))));
        Rc::new(part)
    }

    /// How many sstables a read of the partition with this hash looks into, as their filters say.
    pub fn sstables_for(&self, hash: KeyHash) -> u64 {
        self.sstables.iter().filter(|reader| reader.may_contain(hash)).count() as u64
    }
}

/// One tablet of a table on its shard.
pub struct Tablet {
    /// Its tokens.
    pub range: TokenRange,
    version: RefCell<Rc<Version>>,
    row_cache_budget: Rc<RowCacheBudget>,
    paused: Rc<PausedReaders>,
    /// The first log segment with writes of the active memtable; 0 when it is empty.
    pub(crate) first_segment: Cell<u64>,
    /// Tasks that flush what is frozen until that succeeds.
    pub(crate) flushes_to_come: Cell<u32>,
    /// Whether a task folds its memtables aside.
    pub(crate) is_folding: Cell<bool>,
    /// One flush of it at a time.
    pub(crate) flush_turn: Semaphore,
    /// One at a time replaces its sstables: a compaction, an export, a check of a damaged one.
    pub(crate) compaction_turn: Semaphore,
    /// Held while an sstable of it is moved aside, so that nothing else removes the sstable; while files of sstables
    /// are patched; and while a snapshot links them.
    pub(crate) quarantine_turn: Semaphore,
    /// Set when the table was dropped or truncated under a running job: its output is thrown away.
    pub(crate) epoch: Cell<u64>,
    /// The task that compacts it, while one does.
    pub(crate) compaction: Cell<Option<uuid::Uuid>>,
    /// No compaction of it begins any more.
    pub(crate) is_told_to_leave: Cell<bool>,
    /// What its sstables are cut by when it is about to leave.
    pub(crate) cuts_to_leave: RefCell<Option<Arc<[TokenRange]>>>,
    /// The permit of `compaction_turn`, kept from the order to leave until everything that the tablet had is elsewhere.
    pub(crate) leave: RefCell<Option<Permit>>,
    /// The permit of `flush_turn`, kept while the tablet is about to leave, so that what is in memory then does not
    /// become a file while its next owner already has it.
    pub(crate) kept_in_memory: RefCell<Option<Permit>>,
    /// Other tablets of this shard have everything that it had.
    pub(crate) is_succeeded: Cell<bool>,
    /// Sstables that a repair is about to mark; a number for each repair.
    pub(crate) held: RefCell<Vec<(u64, Vec<Arc<sstable::Reader>>)>>,
    /// What came from several other nodes and is to be merged.
    pub(crate) copies: Copies,
    /// It no longer belongs to this shard.
    pub(crate) has_left: Cell<bool>,
    /// Requests since it is here.
    requests: Cell<u64>,
    meter: Cell<LoadMeter>,
}

impl Tablet {
    /// Truncates a tablet that is empty: sstables that are being adopted are not taken any more, and their files are
    /// gone when this ends.
    pub(crate) async fn end_adoptions(&self) {
        self.epoch.set(self.epoch.get() + 1);
        let is_held_to_leave = self.leave.borrow().is_some();
        if !is_held_to_leave {
            drop(self.compaction_turn.acquire(1).await);
        }
    }

    /// How often it was truncated since the start.
    pub fn epoch(&self) -> u64 {
        self.epoch.get()
    }

    pub(crate) fn new(
        table: &Table,
        range: TokenRange,
        sstables: Vec<Arc<sstable::Reader>>,
        (row_cache_budget, paused): (Rc<RowCacheBudget>, Rc<PausedReaders>),
        alarm: Rc<DamageAlarm>,
    ) -> Rc<Self> {
        let version = Version {
            active: MemtableCell::new(table),
            frozen: Vec::new(),
            has_files: !sstables.is_empty(),
            sstables,
            missing: Rc::from([]),
            rows: Rc::new(RefCell::new(RowCache::new(row_cache_budget.clone()))),
            alarm,
        };
        Rc::new(Self {
            row_cache_budget,
            paused,
            range,
            version: RefCell::new(Rc::new(version)),
            first_segment: Cell::new(0),
            flushes_to_come: Cell::new(0),
            is_folding: Cell::new(false),
            flush_turn: Semaphore::new(1),
            compaction_turn: Semaphore::new(1),
            quarantine_turn: Semaphore::new(1),
            epoch: Cell::new(0),
            compaction: Cell::new(None),
            is_told_to_leave: Cell::new(false),
            cuts_to_leave: RefCell::default(),
            leave: RefCell::default(),
            kept_in_memory: RefCell::default(),
            is_succeeded: Cell::new(false),
            held: RefCell::default(),
            copies: Copies::default(),
            has_left: Cell::new(false),
            requests: Cell::new(0),
            meter: Cell::new(LoadMeter::new(runtime::now())),
        })
    }

    /// A request reads it or writes to it.
    #[inline]
    pub fn count_request(&self) {
        self.requests.set(self.requests.get().wrapping_add(1));
    }

    /// Requests per second, averaged over minutes; None where it is too new here.
    pub fn load(&self) -> Option<f32> {
        let mut meter = self.meter.get();
        let load = meter.look(runtime::now(), self.requests.get());
        self.meter.set(meter);
        load
    }

    /// Whether it no longer belongs to this shard. Nothing is written to it.
    #[inline]
    pub fn has_left(&self) -> bool {
        self.has_left.get()
    }

    /// Whether compactions let it be: it has left, or is about to.
    pub(crate) fn is_leaving(&self) -> bool {
        self.has_left.get() || self.is_told_to_leave.get()
    }

    /// The sources as they are now.
    #[inline]
    pub fn version(&self) -> Rc<Version> {
        self.version.borrow().clone()
    }

    pub(crate) fn is_compacting(&self) -> bool {
        self.compaction_turn.available() == 0
    }

    /// Whether nothing was written to it, or nothing of that is left.
    pub fn is_empty(&self) -> bool {
        self.with_version(|v| v.active.borrow().is_empty() && v.frozen.is_empty() && !v.has_files)
    }

    /// Borrows the sources for the length of a call.
    #[inline]
    pub fn with_version<R>(&self, f: impl FnOnce(&Version) -> R) -> R {
        f(&self.version.borrow())
    }

    /// The bytes of its sstables.
    pub fn disk_bytes(&self) -> u64 {
        self.with_version(|version| version.sstables.iter().map(|reader| reader.meta().disk_len).sum())
    }

    /// Says which sstables of it were moved aside, and takes one that was just now out of the version in the same step.
    pub(crate) fn set_missing(&self, quarantined: &[sstable::Quarantined], removed: Option<&Arc<sstable::Reader>>) {
        let missing: Rc<[_]> = quarantined
            .iter()
            .filter(|q| !q.is_accepted && self.range.overlaps((q.first, q.last)))
            .cloned()
            .collect();
        self.update(|v| {
            v.missing = missing;
            v.sstables
                .retain(|reader| !removed.is_some_and(|removed| Arc::ptr_eq(reader, removed)));
        });
    }

    pub(crate) fn update(&self, f: impl FnOnce(&mut Version)) {
        let before = self.version();
        let mut next = (*before).clone();
        f(&mut next);
        let same_files = next.sstables.len() == before.sstables.len()
            && next
                .sstables
                .iter()
                .zip(&before.sstables)
                .all(|(a, b)| Arc::ptr_eq(a, b));
        next.has_files = !next.sstables.is_empty() || !next.missing.is_empty();
        if !same_files {
            next.rows = Rc::new(RefCell::new(RowCache::new(self.row_cache_budget.clone())));
        }
        *self.version.borrow_mut() = Rc::new(next);
        self.paused.forget(&before);
    }
}

impl Drop for Tablet {
    fn drop(&mut self) {
        self.paused.forget(self.version.get_mut());
    }
}

/// A table's tablets on one shard.
pub struct TableStore {
    /// The table as last altered.
    pub table: RefCell<Arc<Table>>,
    /// In token order; replaced as a whole.
    tablets: RefCell<Rc<[Rc<Tablet>]>>,
    /// Tokens that are this shard's, and of which it does not have everything yet: requests wait.
    pub(crate) arriving: RefCell<Vec<TokenRange>>,
    /// Tokens of tablets here whose older data is still on its way from other nodes.
    awaited: RefCell<Vec<TokenRange>>,
    /// Calls that copy ranges of it from several nodes each.
    pub(crate) copying_from_several: Cell<u32>,
    /// Of a table of counters: what came from other nodes.
    pub(crate) arrivals: RefCell<Arrivals>,
    /// Up to which second repairs have made all replicas equal.
    pub(crate) repaired: RefCell<RepairedRanges>,
    /// Up to which second repairs have compared them.
    pub(crate) compared: RefCell<RepairedRanges>,
    /// Where that changed since [`TableStore::take_repaired_changes`] was called last.
    pub(crate) repaired_changes: RefCell<Vec<TokenRange>>,
    /// How often marks of repairs were forgotten here.
    pub(crate) mark_losses: Cell<u64>,
    /// Holds of purges: a number, tokens, and the second from which deletions of these tokens are kept.
    pub(crate) purge_holds: RefCell<Vec<(u64, TokenRange, u32)>>,
    /// What sstables are cut by ahead of a split; see `cut_ahead.rs`.
    cuts_ahead: RefCell<Option<Arc<[TokenRange]>>>,
    /// Tokens whose data an operator has copied again.
    rebuilt: RefCell<Vec<TokenRange>>,
    /// Tablets that this shard no longer has, until everything that was written to them is elsewhere.
    pub(crate) leaving: RefCell<Vec<Rc<Tablet>>>,
    /// Where its sstables are.
    pub dir: PathBuf,
    /// The consistency levels at which this node answers reads, whatever the key, without another: a set that the layer
    /// above gives its meaning, kept where the request path looks anyway.
    pub reads_here: Cell<u16>,
    /// The levels at which a write needs no other node.
    pub writes_here: Cell<u16>,
    /// The version of the cluster that this shard has.
    pub(crate) version: Cell<u64>,
    /// Requests that were routed by an older version than this are refused.
    pub(crate) oldest_version: Cell<u64>,
    /// The version of the last truncation that this shard knows of.
    pub(crate) truncation: Cell<u64>,
    /// The version of the last truncation that this shard is done with.
    pub truncated_at: Cell<u64>,
    /// Whether no sstable of the table on this node, of whatever shard, is quarantined with a loss that was not
    /// accepted.
    pub is_whole: Cell<bool>,
    /// Notified when a truncation is done, and when the version of the cluster changes.
    pub admission_changed: Notify,
    /// What is recorded of its requests.
    pub metrics: TableMetrics,
    /// Whether its compactions begin by themselves.
    pub(crate) compacts_by_itself: Cell<bool>,
    /// The index files that sstables lack are being made.
    pub(crate) is_indexing: Cell<bool>,
    pub(crate) dropped: Cell<bool>,
}

/// Whether a table takes a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// It does.
    Now,
    /// It will when a truncation is done that the request comes after.
    Later,
    /// It does not: data was moved or truncated since the request was routed.
    Never,
}

/// While this lives, compactions of the range purge nothing. See [`TableStore::rebuild`].
pub struct RebuildGuard {
    store: Rc<TableStore>,
    range: TokenRange,
}

impl Drop for RebuildGuard {
    fn drop(&mut self) {
        let mut rebuilt = self.store.rebuilt.borrow_mut();
        if let Some(at) = rebuilt.iter().position(|range| *range == self.range) {
            rebuilt.swap_remove(at);
        }
    }
}

impl TableStore {
    /// A table with these tablets, in token order. Until it is known where its replicas are, this node does nothing
    /// with it alone.
    pub(crate) fn new(table: &Arc<Table>, dir: PathBuf, tablets: Vec<Rc<Tablet>>) -> Self {
        Self {
            table: RefCell::new(table.clone()),
            tablets: RefCell::new(tablets.into()),
            arriving: RefCell::default(),
            awaited: RefCell::default(),
            copying_from_several: Cell::new(0),
            arrivals: RefCell::default(),
            repaired: RefCell::default(),
            compared: RefCell::default(),
            mark_losses: Cell::new(0),
            repaired_changes: RefCell::default(),
            purge_holds: RefCell::default(),
            cuts_ahead: RefCell::default(),
            rebuilt: RefCell::default(),
            leaving: RefCell::default(),
            dir,
            reads_here: Cell::new(0),
            writes_here: Cell::new(0),
            version: Cell::new(0),
            oldest_version: Cell::new(0),
            truncation: Cell::new(0),
            truncated_at: Cell::new(0),
            is_whole: Cell::new(true),
            admission_changed: Notify::new(),
            metrics: TableMetrics::of_this_shard(),
            compacts_by_itself: Cell::new(true),
            is_indexing: Cell::new(false),
            dropped: Cell::new(false),
        }
    }

    /// The tablets of this shard, in token order, as they are now.
    #[inline]
    pub fn tablets(&self) -> Rc<[Rc<Tablet>]> {
        self.tablets.borrow().clone()
    }

    /// The tablets of this shard, and those that have left and of which not everything is elsewhere yet.
    pub(crate) fn with_leaving(&self) -> Vec<Rc<Tablet>> {
        let leaving = self.leaving.borrow();
        self.tablets.borrow().iter().chain(leaving.iter()).cloned().collect()
    }

    pub(crate) fn set_tablets(&self, mut tablets: Vec<Rc<Tablet>>) {
        tablets.sort_by_key(|tablet| tablet.range.to);
        *self.tablets.borrow_mut() = tablets.into();
        self.admission_changed.notify_all();
    }

    pub(crate) fn cuts_ahead(&self) -> Option<Arc<[TokenRange]>> {
        self.cuts_ahead.borrow().clone()
    }

    pub(crate) fn set_cuts_ahead(&self, cuts: Option<Arc<[TokenRange]>>) {
        *self.cuts_ahead.borrow_mut() = cuts;
    }

    /// The version of the cluster that this shard has.
    pub fn version(&self) -> u64 {
        self.version.get()
    }

    /// Whether a token is this shard's, and what it has of it is still on its way from another shard.
    pub fn is_arriving(&self, token: Token) -> bool {
        self.arriving.borrow().iter().any(|range| range.contains(token))
    }

    /// Whether any token above `after` up to `to` is arriving.
    pub fn is_any_arriving(&self, after: Token, to: Token) -> bool {
        let first = Token(after.0.saturating_add(1));
        self.arriving.borrow().iter().any(|range| range.overlaps((first, to)))
    }

    /// Whether something of it leaves this shard or moves to it from another, and requests wait for that.
    pub fn waits_for_hand_over(&self) -> bool {
        !self.leaving.borrow().is_empty() || !self.arriving.borrow().is_empty()
    }

    /// Says of which tokens older data is still on its way from other nodes; replaces what was said before. Until a
    /// tablet has all of its data, compactions of it purge nothing: a tombstone that hides nothing here may hide a row
    /// that is still to come.
    ///
    /// Call this in the step in which the tokens become this shard's, at a start too, before any of their writes can be
    /// compacted. The shard does not remember it over a restart.
    pub fn set_awaited(&self, ranges: Vec<TokenRange>) {
        let before = self.awaited.replace(ranges.clone());
        self.note_arrivals(ranges.into_iter().filter(|range| !before.contains(range)));
    }

    /// As [`Self::set_awaited`], for tokens that the shard has and whose data is copied again, until the guard is
    /// dropped.
    pub fn rebuild(self: &Rc<Self>, range: TokenRange) -> RebuildGuard {
        self.rebuilt.borrow_mut().push(range);
        RebuildGuard {
            store: self.clone(),
            range,
        }
    }

    /// Whether older data of any of these tokens is still on its way from other nodes.
    pub fn awaits_data(&self, range: TokenRange) -> bool {
        let awaited = self.awaited.borrow();
        let rebuilt = self.rebuilt.borrow();
        let mut all = awaited.iter().chain(&*rebuilt);
        all.any(|awaited| awaited.intersects(range)) && !planted::is_planted(Bug::PurgedBeforeArrival)
    }

    /// The version of the last truncation that this shard knows of; it may not be done yet.
    pub fn truncation(&self) -> u64 {
        self.truncation.get()
    }

    /// Whether the table was dropped.
    pub fn is_dropped(&self) -> bool {
        self.dropped.get()
    }

    /// Whether the table takes a request that was routed by this version of the cluster, and whose sender knows
    /// `truncation` as the last one of the tables that the request is about.
    #[inline]
    pub fn admits(&self, version: u64, truncation: u64) -> Admission {
        if version < self.oldest_admitted() {
            Admission::Never
        } else if self.truncation.get() > self.truncated_at.get() || truncation > self.version.get() {
            Admission::Later
        } else {
            Admission::Now
        }
    }

    /// Requests that were routed by an older version of the cluster than this are refused.
    #[inline]
    pub fn oldest_admitted(&self) -> u64 {
        self.oldest_version.get().max(self.truncated_at.get())
    }

    /// Takes over a version of the cluster: the fence, and the last truncation of the table in that version.
    pub fn set_version(&self, version: u64, fence: u64, truncation: u64) {
        self.version.set(version);
        self.oldest_version.set(fence.max(truncation));
        self.truncation.set(truncation);
        self.admission_changed.notify_all();
    }

    /// A truncation is done here, and its mark is durable.
    pub fn set_truncated_at(&self, version: u64) {
        self.truncated_at.set(version);
        self.admission_changed.notify_all();
    }

    /// The tablet that owns a token; None when another shard does, or not all of it is here yet.
    #[inline]
    pub fn tablet(&self, token: Token) -> Option<Rc<Tablet>> {
        let tablets = self.tablets.borrow();
        let i = tablets.partition_point(|t| t.range.to < token);
        tablets.get(i).filter(|t| t.range.contains(token)).cloned()
    }

    /// Whether every token above `after` up to `to` is of a tablet here.
    pub fn covers(&self, after: Token, to: Token) -> bool {
        let mut covered = after;
        for range in self.tablets.borrow().iter().map(|tablet| tablet.range) {
            if covered >= to || range.after > covered {
                break;
            }
            covered = covered.max(range.to);
        }
        covered >= to
    }

    /// Whether its compactions begin by themselves.
    pub fn compacts_by_itself(&self) -> bool {
        self.compacts_by_itself.get()
    }

    /// The table as last altered.
    pub fn table(&self) -> Arc<Table> {
        self.table.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::{Column, ColumnKind, TableId, TableOptions};
    use types::CqlType;
    use uuid::Uuid;

    /// A part of a table with these tablets, each above its first number up to its second.
    fn part(ranges: &[(i64, i64)]) -> TableStore {
        let key = Column::new("k", CqlType::Int, ColumnKind::PartitionKey);
        let id = TableId(Uuid::from_u128(1));
        let table = Arc::new(Table::new("ks", "t", id, vec![key], TableOptions::default()));
        let tablet = |(after, to): &(i64, i64)| {
            let (after, to) = (Token(*after), Token(*to));
            let budget = RowCacheBudget::new(0);
            Tablet::new(
                &table,
                TokenRange { after, to },
                Vec::new(),
                (budget, PausedReaders::new(0)),
                Rc::default(),
            )
        };
        TableStore::new(&table, PathBuf::new(), ranges.iter().map(tablet).collect())
    }

    #[test]
    fn who_asks_for_tokens_that_are_not_all_here_is_told_so() {
        let here = part(&[(0, 10), (10, 20), (30, 40)]);
        for (after, to, expected) in [
            (0, 10, true),
            (0, 20, true),
            (5, 15, true),
            (30, 40, true),
            (0, 21, false),
            (0, 40, false),
            (-1, 5, false),
            (20, 30, false),
            (25, 35, false),
            (35, 41, false),
            (40, 50, false),
        ] {
            let covers = here.covers(Token(after), Token(to));
            assert_eq!(covers, expected, "tokens above {after} up to {to}");
        }
        let (min, max) = (i64::MIN, i64::MAX);
        assert!(
            part(&[(min, 0), (0, max)]).covers(Token(min), Token(max)),
            "the whole ring"
        );
        assert!(!part(&[]).covers(Token(0), Token(1)), "a shard without tablets");
    }
}
