//! Readers of partitions that a page left in the middle, kept for the page that follows.
//!
//! A reader keeps its position in each of its files: a page without it looks each of them up again, reads their indexes
//! and decodes a block from its beginning. A kept reader resumes instead, if the page asks for exactly what the reader
//! has left and the tablet's version is still the reader's. What was written since is in the memtables of that version,
//! which are read again after the row with which the last page ended.
//!
//! The last block that a reader gave is kept with it, since a page may end inside it. Merging is idempotent, so the
//! part of it that the page did not use is a source like any other: what memtables now have of the same rows is merged
//! with it.
//!
//! A version that is replaced takes its readers with it, for they hold its files open and its memtables in memory.
//! Beyond that there is one limit of memory for all readers of a shard; the one that was kept longest goes first.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use mutation::{ClusteringSlice, PartitionBlock};
use schema::{Table, TableId};
use types::Token;

use super::{Feed, PartitionRead, PartitionReader, Source, split_block};
use crate::tablets::tablet::{Tablet, Version};

/// Charged for a reader besides its blocks.
const READER_BYTES: usize = 1 << 10;
/// Charged for each file in which it has a position: a decoded chunk and an index block, about.
const CURSOR_BYTES: usize = 24 << 10;

struct Paused {
    reader: PartitionReader,
    /// The block that it gave last.
    last: PartitionBlock,
    bytes: usize,
}

#[derive(Default)]
struct Kept {
    /// By when they were kept.
    readers: BTreeMap<u64, Paused>,
    /// Their numbers by table and token: a partition's key is compared with the few that share them.
    by_token: HashMap<(TableId, Token), Vec<u64>, foldhash::fast::FixedState>,
    bytes: usize,
    next: u64,
}

/// What has become of readers so far, and how many there are.
#[derive(Clone, Copy, Default, Debug)]
pub struct PausedCounts {
    /// Readers that were kept for a next page.
    pub paused: u64,
    /// Pages that resumed one.
    pub resumed: u64,
    /// Readers that were dropped because the version of their tablet was replaced or memory was short.
    pub dropped: u64,
    /// Readers that are kept now.
    pub readers: usize,
    /// The memory that they take, about.
    pub bytes: usize,
}

/// See the module.
pub struct PausedReaders {
    kept: RefCell<Kept>,
    counts: Cell<PausedCounts>,
    bytes_max: usize,
}

impl PausedReaders {
    /// No readers yet, and how many bytes they may take together.
    pub fn new(bytes_max: usize) -> Rc<Self> {
        Rc::new(Self {
            kept: RefCell::default(),
            counts: Cell::default(),
            bytes_max,
        })
    }

    /// What has become of readers.
    pub fn counts(&self) -> PausedCounts {
        let kept = self.kept.borrow();
        PausedCounts {
            readers: kept.readers.len(),
            bytes: kept.bytes,
            ..self.counts.get()
        }
    }

    fn count(&self, change: impl FnOnce(&mut PausedCounts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    /// The kept reader of exactly this read.
    pub(super) fn resume(
        &self,
        table: &Arc<Table>,
        version: &Rc<Version>,
        read: &PartitionRead,
    ) -> Option<PartitionReader> {
        let mut kept = self.kept.borrow_mut();
        if kept.readers.is_empty() {
            return None;
        }
        let numbers = kept.by_token.get(&(table.id, read.hash.token()))?;
        let is_it = |n: &&u64| {
            let Paused { reader, last, .. } = &kept.readers[n];
            Arc::ptr_eq(&reader.table, table)
                && Rc::ptr_eq(&reader.version, version)
                && reader.continues_with(last, read)
        };
        let number = numbers.iter().copied().find(|n| is_it(&n))?;
        let Paused { mut reader, last, .. } = kept.take(number)?;
        drop(kept);
        reader.resume(last, read);
        self.count(|c| c.resumed += 1);
        Some(reader)
    }

    /// Keeps the reader of a page that ended inside its partition, in the block that the reader gave last.
    pub fn pause(&self, tablet: &Tablet, mut reader: PartitionReader, last: PartitionBlock) {
        if !reader.is_in_files() || !tablet.with_version(|now| std::ptr::eq(now, &*reader.version)) {
            return;
        }
        reader.set_row_memory(None);
        let blocks = reader.feeds.iter().filter_map(|feed| feed.pending.as_ref());
        let blocks: usize = blocks.chain([&last]).map(PartitionBlock::size).sum();
        let files = reader.files().count();
        let bytes = READER_BYTES + blocks + files * CURSOR_BYTES;
        if bytes > self.bytes_max {
            return;
        }
        let mut kept = self.kept.borrow_mut();
        let mut dropped = 0;
        while kept.bytes + bytes > self.bytes_max
            && let Some((&oldest, _)) = kept.readers.first_key_value()
        {
            kept.take(oldest);
            dropped += 1;
        }
        let number = kept.next;
        kept.next += 1;
        kept.bytes += bytes;
        let place = (reader.table.id, reader.token);
        kept.by_token.entry(place).or_default().push(number);
        kept.readers.insert(number, Paused { reader, last, bytes });
        self.count(|c| {
            c.paused += 1;
            c.dropped += dropped;
        });
    }

    /// Drops the readers of a version that is replaced.
    pub(crate) fn forget(&self, version: &Rc<Version>) {
        let mut kept = self.kept.borrow_mut();
        let of_version = |(n, paused): (&u64, &Paused)| Rc::ptr_eq(&paused.reader.version, version).then_some(*n);
        let numbers: Vec<u64> = kept.readers.iter().filter_map(of_version).collect();
        for number in &numbers {
            kept.take(*number);
        }
        self.count(|c| c.dropped += numbers.len() as u64);
    }
}

impl Kept {
    fn take(&mut self, number: u64) -> Option<Paused> {
        let paused = self.readers.remove(&number)?;
        self.bytes -= paused.bytes;
        let place = (paused.reader.table.id, paused.reader.token);
        if let Some(numbers) = self.by_token.get_mut(&place) {
            numbers.retain(|n| *n != number);
            if numbers.is_empty() {
                self.by_token.remove(&place);
            }
        }
        Some(paused)
    }
}

impl PartitionReader {
    fn files(&self) -> impl Iterator<Item = &Feed> {
        self.feeds
            .iter()
            .filter(|feed| matches!(feed.source, Source::Sstable(_)))
    }

    /// Whether it has a position in any file. A position in a memtable is found again as fast as it is kept.
    pub fn is_in_files(&self) -> bool {
        self.files().next().is_some()
    }

    /// Whether a read asks for what is left after a position in the last block, or after its end.
    fn continues_with(&self, last: &PartitionBlock, read: &PartitionRead) -> bool {
        let (Some(given), order) = (&self.given, &self.table.clustering_order) else {
            return false;
        };
        if read.key != self.key || read.reversed != self.reversed || read.slices.len() != self.slices.len() + 1 {
            return false;
        }
        let covered = last.covered.as_ref();
        if self.reversed {
            let Some((wanted, others)) = read.slices.split_last() else {
                return false;
            };
            let is_inside = wanted.end.compare(order, &given.end).is_lt()
                && covered.is_none_or(|covered| wanted.end.compare(order, covered).is_ge());
            is_inside && wanted.start == given.start && others == self.slices
        } else {
            let Some((wanted, others)) = read.slices.split_first() else {
                return false;
            };
            let is_inside = wanted.start.compare(order, &given.start).is_gt()
                && covered.is_none_or(|covered| wanted.start.compare(order, covered).is_le());
            is_inside && wanted.end == given.end && others.iter().eq(self.slices.iter().rev())
        }
    }

    /// Goes back to the place where a read that [`Self::continues_with`] begins.
    fn resume(&mut self, mut last: PartitionBlock, read: &PartitionRead) {
        let (slice, place) = if self.reversed {
            let slice = read.slices.last().expect("it continues with a slice");
            (slice, &slice.end)
        } else {
            let slice = read.slices.first().expect("it continues with a slice");
            (slice, &slice.start)
        };
        if last.covered.as_ref() != Some(place) {
            let rest = split_block(&mut last, place, &self.table.clustering_order, self.reversed);
            self.feeds.push(Feed {
                source: Source::Rest,
                pending: Some(rest),
                exhausted: true,
            });
        }
        self.slice = Some(ClusteringSlice::clone(slice));
        self.limits = read.limits;
    }
}
