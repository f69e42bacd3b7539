//! Long writes: merging them into a memtable in one step would take longer than a slice.
//!
//! A thread of the background pool merges such a write into a memtable of its own. Then, in one step on the shard, the
//! write is appended to the log and its memtable joins the frozen ones, after the active one, which is frozen too. A
//! reader therefore sees the whole write or nothing of it, and no later write without it. The shard's cost is the copy
//! of the bytes into the log.
//!
//! A memtable aside ([`Frozen::is_aside`]) differs from other frozen ones only in that its flush has not been asked
//! for: the next flush of its tablet takes it, in the order of the frozen ones, and discards the log up to its
//! position. The newest ones of similar size are folded into one by a job, so a tablet has few of them.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use commitlog::{Logged, LongRecord, ReplayPosition};
use memtable::Memtable;
use mutation::row::Column;
use mutation::{Mutation, MutationItem, RowView};
use schema::{RowLayout, Table};
use stdx::planted::{self, Bug};
use stdx::preempt;
use types::Token;

use crate::shard::{Shard, WriteError};
use crate::tablets::tablet::{Frozen, MemtableCell, TableStore, Tablet};

/// Parts that are merged in one step: rows, elements and deletions.
const PARTS_MAX: usize = 512;
/// The shortest row takes so many bytes.
const PART_BYTES_MIN: usize = 4;
/// What a part takes in a memtable besides its bytes, roughly.
const PART_BYTES: usize = 32;
/// Writes of a shard that are merged at once.
pub(crate) const MERGES_MAX: usize = 2;
/// A mutation of so few bytes counts as one part of several mutations.
const SMALL_BYTES_MAX: usize = 256;
/// A tablet with more memtables aside is flushed. Each is one more source of a read.
const ASIDE_MAX: usize = 8;
/// The newest memtables aside are folded together, as long as the next older one is at most so many times as large as
/// they are: then each byte is folded a logarithmic number of times.
const SIMILAR: usize = 2;
/// The part of a shard's memory for memtables that the inputs of a fold may have: the fold holds as much once more
/// while it runs.
const FOLDED_PART: usize = 8;

#[cfg(debug_assertions)]
thread_local! {
    static PARTS: Cell<usize> = const { Cell::new(PARTS_MAX) };
}

#[inline]
fn parts_max() -> usize {
    #[cfg(debug_assertions)]
    return PARTS.get();
    #[cfg(not(debug_assertions))]
    PARTS_MAX
}

/// Changes on this thread how many parts a write may have that is merged in one step, so that the short writes of a
/// test are merged aside. As it was when this is dropped.
pub struct PartsMax(());

impl PartsMax {
    /// So many; without debug assertions as ever.
    #[must_use]
    pub fn new(parts: usize) -> Self {
        #[cfg(debug_assertions)]
        PARTS.set(parts);
        #[cfg(not(debug_assertions))]
        let _ = parts;
        Self(())
    }
}

impl PartsMax {
    /// With one of three seeds of a simulation every write is long.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        Self::new(if seed % 3 == 2 { 0 } else { PARTS_MAX })
    }
}

impl Drop for PartsMax {
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        PARTS.set(PARTS_MAX);
    }
}

/// A mutation, and the table that it is of.
pub type Addressee<'m> = (Rc<TableStore>, Token, Mutation<'m>);

/// A long write that is merged and not written yet: a memtable for each tablet that has many parts of it. Those of
/// other tablets are merged where it is written.
pub struct Aside {
    memtables: Vec<(Rc<TableStore>, Rc<Tablet>, Memtable)>,
    /// Which of the write's mutations they have.
    is_merged: Vec<bool>,
    record: LongRecord,
    charge: Charge,
}

/// Dirty memory of what is not in a tablet yet.
struct Charge {
    shard: Rc<Shard>,
    bytes: usize,
}

impl Charge {
    fn new(shard: &Rc<Shard>, bytes: usize) -> Self {
        shard.dirty.change(0, bytes);
        Self {
            shard: shard.clone(),
            bytes,
        }
    }

    fn set(&mut self, bytes: usize) {
        match self.bytes.checked_sub(bytes) {
            // Others may wait for it.
            Some(fewer) => self.shard.dirty.release(fewer),
            None => self.shard.dirty.change(self.bytes, bytes),
        }
        self.bytes = bytes;
    }

    /// The tablets have it from now on.
    fn hand_over(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.shard.dirty.release(self.bytes);
        }
    }
}

/// The parts of a mutation, or more than `most`.
fn parts(mutation: &Mutation<'_>, layout: &RowLayout, most: usize) -> usize {
    let mut parts = 0;
    for item in mutation.items() {
        parts += 1;
        let (MutationItem::Row { row, .. } | MutationItem::StaticRow(row)) = item else {
            continue;
        };
        if layout.has_complex()
            && let Some(row) = RowView::new(row)
        {
            // Bytes of a peer are not validated yet: a count may be anything.
            let count = |column| match column {
                (_, Column::Complex(elements)) => elements.count,
                _ => 0,
            };
            parts = row.columns(layout).map(count).fold(parts, usize::saturating_add);
        }
        if parts > most {
            break;
        }
    }
    parts
}

/// Whether a write of these mutations in one step would keep the shard.
pub fn is_long(mutations: &[Addressee<'_>]) -> bool {
    let mut left = parts_max();
    for (store, _, mutation) in mutations {
        let parts = match mutation.bytes().len() {
            ..SMALL_BYTES_MAX => 1,
            _ => parts(mutation, &store.table.borrow().layout, left),
        };
        match left.checked_sub(parts) {
            Some(fewer) => left = fewer,
            None => return true,
        }
    }
    false
}

/// Whether a mutation may be long: cheap, and true of some that are not.
#[inline]
pub fn may_be_long(mutation: &Mutation<'_>) -> bool {
    mutation.bytes().len() >= parts_max() * PART_BYTES_MIN
}

/// Whether a mutation is long.
#[inline]
pub fn is_long_alone(store: &TableStore, mutation: &Mutation<'_>) -> bool {
    may_be_long(mutation) && parts(mutation, &store.table.borrow().layout, parts_max()) > parts_max()
}

/// The mutations of a write for one tablet.
struct Group<'m> {
    store: Rc<TableStore>,
    tablet: Rc<Tablet>,
    /// With their places in the write.
    mutations: Vec<(usize, Token, &'m [u8])>,
    parts: usize,
}

/// Merges mutations that own their bytes.
fn merged(table: &Table, mutations: &[(Token, Vec<u8>)]) -> Memtable {
    let mut memtable = Memtable::new(table);
    for (token, bytes) in mutations {
        let mutation = Mutation::new(bytes).expect("its bytes were those of a mutation");
        memtable.apply(*token, &mutation);
    }
    memtable
}

impl Shard {
    /// Merges a write on the background pool, when memory has room. None: a token is not on this shard. Until this
    /// returns, no compaction purges deletions that are newer than the write.
    ///
    /// # Errors
    /// As those of [`Shard::room`].
    pub async fn merge_aside(self: &Rc<Self>, mutations: &[Addressee<'_>]) -> Result<Option<Aside>, WriteError> {
        let _waiting = preempt::allowed(|| self.wait_with(mutations.iter().map(|(_, _, mutation)| *mutation)));
        // Not all at once: each has its memory before it is counted whole.
        let _turn = self.merge_turn.acquire(1).await;
        self.room().await?;
        let Some(groups) = many_parts(mutations).await else {
            return Ok(None);
        };
        // The copy, and the memtable of which the size is not known yet.
        let bytes_of = |group: &Group<'_>| {
            let copied: usize = group.mutations.iter().map(|(_, _, bytes)| bytes.len()).sum();
            2 * copied + group.parts * PART_BYTES
        };
        let mut charge = Charge::new(self, groups.iter().map(bytes_of).sum());
        let mut memtables = Vec::with_capacity(groups.len());
        let mut is_merged = vec![false; mutations.len()];
        for group in groups {
            let mut owned = Vec::with_capacity(group.mutations.len());
            for (number, token, bytes) in &group.mutations {
                is_merged[*number] = true;
                let mut copy = Vec::new();
                preempt::allowed(|| preempt::append(&mut copy, bytes));
                owned.push((*token, copy));
                runtime::give_way().await;
            }
            let table = group.store.table();
            let memtable = runtime::offload_background(move || merged(&table, &owned)).await;
            charge.set(charge.bytes - bytes_of(&group) + memtable.bytes());
            memtables.push((group.store, group.tablet, memtable));
        }
        let record = preempt::allowed(|| {
            let bytes = mutations.iter().map(|(_, _, mutation)| mutation.bytes());
            LongRecord::new(&preempt::collect(bytes))
        });
        charge.set(charge.bytes + record.bytes());
        Ok(Some(Aside {
            memtables,
            is_merged,
            record,
            charge,
        }))
    }

    /// Writes mutations that were merged aside: log first, then memory, in one step. Acknowledge only after
    /// [`Shard::commit`]. None if a tablet has left in the meantime: nothing was done, and the caller merges them
    /// again.
    ///
    /// # Errors
    /// As those of [`Shard::write`].
    pub fn write_aside(
        self: &Rc<Self>,
        mutations: &[Addressee<'_>],
        mut aside: Aside,
    ) -> Result<Option<Logged>, WriteError> {
        if self.dirty.is_closed() {
            return Err(WriteError::MemoryFull);
        }
        if let Some((_, token, _)) = mutations.iter().find(|(store, ..)| store.is_dropped()) {
            return Err(WriteError::NotHere(*token));
        }
        if aside.memtables.iter().any(|(_, tablet, _)| tablet.has_left()) {
            return Ok(None);
        }
        // Where the others are is asked now: a tablet may have been split while the rest was merged.
        let mut rest = Vec::new();
        for ((store, token, mutation), _) in mutations
            .iter()
            .zip(&aside.is_merged)
            .filter(|(_, is_merged)| !**is_merged)
        {
            let tablet = store.tablet(*token).filter(|tablet| !tablet.has_left());
            rest.push((tablet.ok_or(WriteError::NotHere(*token))?, *token, mutation));
        }
        let before = self.frozen_position();
        aside.charge.set(aside.charge.bytes - aside.record.bytes());
        let logged = self.log.append_long(aside.record).map_err(WriteError::Log)?;
        let segment = logged.place().position.segment;
        for (store, _, mutation) in mutations {
            store.metrics.note_write(mutation.key);
        }
        for (tablet, token, mutation) in rest {
            tablet.count_request();
            self.merge(&tablet, token, mutation, segment);
        }
        let after = self.frozen_position();
        aside.charge.hand_over();
        for (store, tablet, memtable) in aside.memtables {
            tablet.count_request();
            let numbers = [self.number_frozen(), self.number_frozen()];
            tablet.put_aside(&store.table(), (Arc::new(memtable), segment), numbers, [before, after]);
            self.fold_soon(&store, &tablet);
        }
        // Not earlier: a memtable that is frozen between two parts would become durable without the other.
        if self.dirty.wants_flush() {
            self.flush_for_memory();
        }
        Ok(Some(logged))
    }

    /// Folds memtables aside of a tablet, unless a task does so already.
    fn fold_soon(self: &Rc<Self>, store: &Rc<TableStore>, tablet: &Rc<Tablet>) {
        let bytes_max = self.folded_bytes_max();
        let is_to_do = tablet.to_fold(bytes_max).len() > 1 || tablet.has_many_aside();
        if !is_to_do || tablet.is_folding.replace(true) {
            return;
        }
        let (shard, store, tablet) = (self.clone(), store.clone(), tablet.clone());
        drop(runtime::spawn_in(runtime::Group::BACKGROUND, async move {
            loop {
                let inputs = tablet.to_fold(bytes_max);
                if inputs.len() < 2 || !shard.fold(&store, &tablet, &inputs).await {
                    break;
                }
            }
            tablet.is_folding.set(false);
            if tablet.has_many_aside() {
                shard.freeze(&store, &tablet);
                shard.flush_until_done(&store, &tablet).await;
            }
        }));
    }

    /// The bytes that memtables may have which are folded into one.
    pub(crate) fn folded_bytes_max(&self) -> usize {
        self.dirty.stats().dirty_max / FOLDED_PART
    }

    /// Folds frozen memtables, which follow each other, into one. Whether the result replaced them: they may have been
    /// truncated, or their flush asked for if they were aside.
    pub(crate) async fn fold(self: &Rc<Self>, store: &TableStore, tablet: &Tablet, inputs: &[Frozen]) -> bool {
        // One at a time: the pool has a thread for it (`Tasks::size_pool`).
        let _turn = self.fold_turn.acquire(1).await;
        let before: usize = inputs.iter().map(|frozen| frozen.memtable.bytes()).sum();
        let mut charge = Charge::new(self, before);
        let (table, memtables) = (store.table(), inputs.iter().map(|frozen| frozen.memtable.clone()));
        let memtables: Vec<Arc<Memtable>> = memtables.collect();
        let folded = runtime::spawn_job("fold", move || {
            let mut folded = Memtable::new(&table);
            memtables.iter().for_each(|memtable| folded.merge_in(memtable));
            folded
        });
        let folded = folded.await;
        charge.set(folded.bytes());
        if tablet.is_succeeded.get() || !tablet.replace_frozen(inputs, folded) {
            return false;
        }
        charge.hand_over();
        self.dirty.release(inputs.iter().map(Frozen::let_go).sum());
        true
    }
}

/// The tablets whose parts of a write are to be merged aside: those with most, until the others have [`PARTS_MAX`]
/// together. None: a token is not on this shard.
async fn many_parts<'m>(mutations: &'m [Addressee<'_>]) -> Option<Vec<Group<'m>>> {
    let mut groups: Vec<Group<'m>> = Vec::new();
    let mut numbers: HashMap<*const Tablet, usize> = HashMap::new();
    for (place, (store, token, mutation)) in mutations.iter().enumerate() {
        let tablet = store.tablet(*token)?;
        let number = *numbers.entry(Rc::as_ptr(&tablet)).or_insert(groups.len());
        if number == groups.len() {
            groups.push(Group {
                store: store.clone(),
                tablet,
                mutations: Vec::new(),
                parts: 0,
            });
        }
        let group = &mut groups[number];
        group.mutations.push((place, *token, mutation.bytes()));
        group.parts += parts(mutation, &store.table.borrow().layout, parts_max());
        runtime::give_way().await;
    }
    groups.sort_by_key(|group| Reverse(group.parts));
    let mut left: usize = groups.iter().map(|group| group.parts).sum();
    let is_aside = |group: &&Group<'_>| {
        let is_aside = left > parts_max();
        left -= group.parts;
        is_aside
    };
    let count = groups.iter().take_while(is_aside).count();
    groups.truncate(count);
    Some(groups)
}

impl Tablet {
    /// Adds a memtable aside, after what the active one has. The active one is replaced even if it is empty: readers of
    /// the previous version would see later writes in it, and not this one. `numbers` are those of the two, `positions`
    /// where the log was before and after the write.
    fn put_aside(
        &self,
        table: &Table,
        (memtable, segment): (Arc<Memtable>, u64),
        numbers: [u64; 2],
        positions: [ReplayPosition; 2],
    ) {
        let [before, after] = positions;
        let aside = |memtable, first_segment, position, number| Frozen {
            memtable,
            first_segment,
            position,
            number,
            range: self.range,
            sharers: Rc::new(Cell::new(1)),
            is_aside: true,
        };
        self.update(|version| {
            if !version.active.borrow().is_empty() {
                let position = if planted::is_planted(Bug::FlushedWithWhatWasBefore) {
                    after
                } else {
                    before
                };
                let active = version.active.freeze();
                let active = aside(active, self.first_segment.replace(0), position, numbers[0]);
                version.frozen.push(active);
            }
            version.active = MemtableCell::new(table);
            version.frozen.push(aside(memtable, segment, after, numbers[1]));
        });
    }

    /// The memtables aside that are to be folded into one: the newest, in their order.
    fn to_fold(&self, bytes_max: usize) -> Vec<Frozen> {
        let version = self.version();
        let mut bytes = 0;
        let is_similar = |frozen: &&Frozen| {
            let is_similar = bytes == 0 || frozen.memtable.bytes() <= SIMILAR * bytes;
            bytes += frozen.memtable.bytes();
            frozen.is_aside && is_similar && bytes <= bytes_max
        };
        let count = version.frozen.iter().rev().take_while(is_similar).count();
        version.frozen[version.frozen.len() - count..].to_vec()
    }

    /// The frozen memtables up to this number that are flushed next, as one: the oldest of those whose flush has been
    /// asked for.
    pub(crate) fn next_to_flush(&self, last: u64, bytes_max: usize) -> Vec<Frozen> {
        let version = self.version();
        let is_own = |frozen: &Frozen| frozen.sharers.get() == 1 && frozen.range == self.range;
        let asked = version.frozen.iter().take_while(|f| !f.is_aside && f.number <= last);
        let mut bytes = 0;
        let small = asked.clone().take_while(|frozen| {
            bytes += frozen.memtable.bytes();
            is_own(frozen) && bytes <= bytes_max
        });
        match small.count() {
            0 | 1 => asked.take(1).cloned().collect(),
            count => asked.take(count).cloned().collect(),
        }
    }

    /// Puts one memtable in the place of those that it was folded from. False: they are gone, or the flush of those
    /// aside has been asked for.
    fn replace_frozen(&self, inputs: &[Frozen], folded: Memtable) -> bool {
        let ([first, ..], [.., last]) = (inputs, inputs) else {
            return false;
        };
        let version = self.version();
        let Some(at) = version.frozen.iter().position(|frozen| frozen.is(first)) else {
            return false;
        };
        let there = version.frozen.get(at..at + inputs.len()).unwrap_or_default();
        let are_same = |(input, there): (&Frozen, &Frozen)| there.is_aside == input.is_aside && there.is(input);
        if there.is_empty() || !inputs.iter().zip(there).all(are_same) {
            return false;
        }
        let segments = inputs.iter().map(|frozen| frozen.first_segment);
        let folded = Frozen {
            memtable: Arc::new(folded),
            first_segment: segments.filter(|segment| *segment != 0).min().unwrap_or(0),
            sharers: Rc::new(Cell::new(1)),
            ..last.clone()
        };
        self.update(|version| drop(version.frozen.splice(at..at + inputs.len(), [folded])));
        true
    }

    fn has_many_aside(&self) -> bool {
        self.with_version(|version| version.frozen.iter().filter(|frozen| frozen.is_aside).count() > ASIDE_MAX)
    }

    /// The bytes of what no flush is under way for: the active memtable, those aside, and what a flush that failed has
    /// left.
    pub(crate) fn unflushed_bytes(&self) -> usize {
        let frozen: usize = self.with_version(|version| version.frozen.iter().map(Frozen::charged).sum());
        self.with_version(|version| version.active.borrow().bytes()) + frozen - self.flushed_bytes()
    }

    /// The bytes of what is being flushed, or is about to be.
    pub(crate) fn flushed_bytes(&self) -> usize {
        let is_asked = |frozen: &&Frozen| !frozen.is_aside && self.is_flush_under_way();
        self.with_version(|version| version.frozen.iter().filter(is_asked).map(Frozen::charged).sum())
    }

    fn is_flush_under_way(&self) -> bool {
        self.flushes_to_come.get() > 0 || self.flush_turn.available() == 0
    }

    /// Whether a flush would find something for which none has been asked.
    pub(crate) fn has_unflushed(&self) -> bool {
        self.with_version(|version| !version.active.borrow().is_empty() || version.frozen.iter().any(|f| f.is_aside))
    }

    /// The first log segment that any of its memtables holds; 0 when none does.
    pub(crate) fn first_held_segment(&self) -> u64 {
        let active = self.first_segment.get();
        self.with_version(|version| {
            let frozen = version.frozen.iter().map(|frozen| frozen.first_segment);
            frozen
                .chain([active])
                .filter(|segment| *segment != 0)
                .min()
                .unwrap_or(0)
        })
    }
}
