//! The candidates that an sstable's index has for a query.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use mutation::candidates::{Candidate, CandidatesFrom, PassedPosition};
use mutation::terms::{IndexLookup, IndexTerms};
use postings::{Cursor, List, SAMPLE};
use schema::{ClusteringOrder, IndexId};
use stdx::preempt;

use super::file::IndexFile;
use super::walk::Walk;
use crate::big::index::Promoted;
use crate::error::Error;
use crate::io;
use crate::read::cache::ChunkCache;
use crate::read::reader::Reader;

/// Posting lists that are merged; of more, the least ordinals of all are taken, and others when those are given.
const MERGED_MAX: usize = 64;
/// So many of them.
const TAKEN_MAX: usize = 65_536;

/// See the module.
pub struct IndexCursor {
    reader: Arc<Reader>,
    cache: Rc<ChunkCache>,
    file: Arc<IndexFile>,
    lookup: IndexLookup,
    lists_partitions: bool,
    walk: Walk,
    /// The lists that are merged; None: not begun, or too many.
    merged: Option<Merged>,
    /// The least ordinals of lists that are not merged.
    taken: VecDeque<u64>,
    has_begun: bool,
    /// The least ordinal that was not given.
    next: u64,
    /// After what was given last.
    behind: Option<CandidatesFrom>,
}

/// Posting lists, each with its next ordinal in the heap.
struct Merged {
    cursors: Vec<Cursor>,
    heads: BinaryHeap<Reverse<(u64, usize)>>,
}

/// What an index's file of an sstable has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexFileStats {
    /// Rows of the sstable, listed or not.
    pub rows: u64,
    /// Rows of all posting lists together.
    pub postings: u64,
    /// Terms.
    pub terms: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

impl Reader {
    /// What its index has for a query; None when it has no file of that index.
    #[must_use]
    pub fn index_cursor(
        self: &Arc<Self>,
        cache: &Rc<ChunkCache>,
        terms: &IndexTerms,
        lookup: IndexLookup,
    ) -> Option<IndexCursor> {
        let file = self.indexes.get(lookup.id)?;
        Some(IndexCursor {
            walk: Walk::new(self, cache),
            reader: self.clone(),
            cache: cache.clone(),
            file,
            lookup,
            lists_partitions: terms.lists_partitions(),
            merged: None,
            taken: VecDeque::new(),
            has_begun: false,
            next: 0,
            behind: None,
        })
    }

    /// Whether it has the file of an index.
    #[must_use]
    pub fn has_index(&self, id: IndexId) -> bool {
        self.indexes.get(id).is_some()
    }

    /// What its file of an index has; None when there is no file.
    #[must_use]
    pub fn index_file_stats(&self, id: IndexId) -> Option<IndexFileStats> {
        let index = self.indexes.get(id)?;
        Some(IndexFileStats {
            rows: index.file.rows(),
            postings: index.file.postings(),
            terms: index.file.terms_count(),
            bytes: index.chunks.file_len(),
        })
    }

    /// Takes the file of an index that was made. Whether it is whole. Blocks.
    pub fn take_index(&self, id: IndexId) -> bool {
        self.indexes.add(self.descriptor(), id)
    }

    /// Leaves the file of an index, which is to be made again.
    pub fn forget_index(&self, id: IndexId) {
        self.indexes.remove(id);
    }

    /// Leaves and removes the files of all indexes but these. Blocks.
    ///
    /// # Errors
    /// When a file that exists cannot be removed.
    pub fn remove_indexes(&self, kept: &[IndexId]) -> Result<(), Error> {
        let mut ids = Vec::new();
        self.indexes.each(|id, _| ids.push(id));
        for id in ids.into_iter().filter(|id| !kept.contains(id)) {
            self.indexes.remove(id);
            io::remove_if_exists(&self.descriptor().index_path(id))?;
        }
        Ok(())
    }

    /// Leaves the file of an index if this error is about it: the sstable is not indexed then. Whether it is.
    #[must_use]
    pub fn leave_damaged_index(&self, id: IndexId, error: &Error) -> bool {
        let is_its = |file: Arc<IndexFile>| file.path() == error.path();
        self.indexes.get(id).is_some_and(is_its) && self.indexes.remove(id)
    }
}

impl IndexCursor {
    /// The index.
    #[must_use]
    pub const fn index(&self) -> IndexId {
        self.lookup.id
    }

    /// How many rows it has at most, terms that are like a pattern or not.
    ///
    /// # Errors
    /// When the file cannot be read, or is damaged.
    pub async fn count(&self) -> Result<u64, Error> {
        let (pages, mut count) = (self.file.pages(&self.cache), 0);
        for range in &self.lookup.ranges {
            let (from, to) = range.bounds();
            count += self.file.file.count(&pages, from, to).await?;
        }
        Ok(count)
    }

    /// The next candidates after a position, `max` of them at the most; none at the end. Places do not descend from
    /// call to call.
    ///
    /// # Errors
    /// When a file cannot be read, or is damaged.
    pub async fn next(
        &mut self,
        order: &ClusteringOrder,
        from: &CandidatesFrom,
        max: usize,
    ) -> Result<Vec<Candidate>, Error> {
        if self.behind.as_ref() != Some(from) {
            let first = self.first_ordinal(order, from).await?;
            self.next = self.next.max(first);
        }
        if !self.has_begun {
            self.has_begun = true;
            self.begin().await?;
        }
        loop {
            let ordinals = match &mut self.merged {
                Some(merged) => merged.take(&self.file, &self.cache, self.next, max).await?,
                None => {
                    while self.taken.pop_front_if(|ordinal| *ordinal < self.next).is_some() {}
                    if self.taken.is_empty() {
                        self.taken = self.least(TAKEN_MAX).await?.into();
                    }
                    self.taken.drain(..max.min(self.taken.len())).collect()
                }
            };
            let Some(last) = ordinals.last() else {
                return Ok(Vec::new());
            };
            self.next = last + 1;
            let mut found = Vec::with_capacity(ordinals.len());
            for ordinal in ordinals {
                let candidate = self.walk.find(&self.file, ordinal, self.lists_partitions).await?;
                if from.is_before(order, &candidate) {
                    found.push(candidate);
                }
                preempt::allowed(preempt::long_step);
            }
            // The rows of a partition are in order, and partitions that are listed as a whole come once.
            found.dedup();
            if let Some(last) = found.last() {
                self.behind = Some(CandidatesFrom::behind(last));
                return Ok(found);
            }
        }
    }

    /// Finds the posting lists.
    async fn begin(&mut self) -> Result<(), Error> {
        let lists = self.lists(MERGED_MAX).await?;
        if lists.len() <= MERGED_MAX {
            self.merged = Some(Merged {
                cursors: lists.into_iter().map(|list| self.file.file.cursor(list)).collect(),
                heads: BinaryHeap::new(),
            });
        }
        Ok(())
    }

    /// The posting lists of the query, at least one more than `enough` if there are.
    async fn lists(&self, enough: usize) -> Result<Vec<List>, Error> {
        let pages = self.file.pages(&self.cache);
        let mut lists = Vec::new();
        for range in self.lookup.ranges.iter().filter(|range| !range.is_empty()) {
            let to = range.to.clone();
            let mut terms = self.file.file.terms(&pages, range.bounds().0, to).await?;
            while terms.next(&pages).await? {
                if self.lookup.is_like(terms.term()) {
                    lists.push(terms.list());
                }
                if lists.len() > enough {
                    return Ok(lists);
                }
                preempt::allowed(preempt::long_step);
            }
        }
        Ok(lists)
    }

    /// The least ordinals from the next one on, of lists that are too many to be merged.
    async fn least(&self, max: usize) -> Result<Vec<u64>, Error> {
        let pages = self.file.pages(&self.cache);
        // The greatest of those that are kept is on top.
        let mut least: BinaryHeap<u64> = BinaryHeap::new();
        for range in self.lookup.ranges.iter().filter(|range| !range.is_empty()) {
            let to = range.to.clone();
            let mut terms = self.file.file.terms(&pages, range.bounds().0, to).await?;
            while terms.next(&pages).await? {
                if !self.lookup.is_like(terms.term()) {
                    continue;
                }
                let mut cursor = self.file.file.cursor(terms.list());
                let mut next = cursor.seek(&pages, self.next).await?;
                while let Some(ordinal) = next {
                    if least.len() >= max && least.peek().is_some_and(|greatest| ordinal >= *greatest) {
                        break;
                    }
                    least.push(ordinal);
                    if least.len() > max {
                        least.pop();
                    }
                    next = cursor.next(&pages).await?;
                }
                if runtime::should_yield() {
                    runtime::yield_now().await;
                }
            }
        }
        let mut least = least.into_sorted_vec();
        least.dedup();
        Ok(least)
    }

    /// An ordinal at or before that of the first row after a position.
    async fn first_ordinal(&self, order: &ClusteringOrder, from: &CandidatesFrom) -> Result<u64, Error> {
        let rows = self.file.file.rows();
        let Some(partition) = self.reader.first_at(&self.cache, from.token, &from.key).await? else {
            return Ok(rows);
        };
        let mut place = partition;
        if let PassedPosition::To(bound) = &from.passed
            && let Some((position, promoted)) = self.reader.find(&self.cache, from.token, &from.key).await?
            && promoted.len > 0
        {
            let path = self.reader.index.path();
            let damaged = |d: crate::error::Damage| Error::damaged(path, d.at as u64, d.expected);
            let promoted = Promoted::decode(promoted).map_err(damaged)?;
            let (mut low, mut high) = (0, promoted.len());
            while low < high {
                let middle = low.midpoint(high);
                let block = promoted
                    .block(middle, &self.reader.shape.format.widths)
                    .map_err(damaged)?;
                if block.last.compare(order, bound).is_lt() {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            if low > 0 {
                let block = promoted.block(low.min(promoted.len() - 1), &self.reader.shape.format.widths);
                place = position.saturating_add(block.map_err(damaged)?.offset);
            }
        }
        // The last sample at or before the place.
        let (pages, mut low, mut high) = (self.file.pages(&self.cache), 0, rows.div_ceil(SAMPLE));
        while low < high {
            let middle = low.midpoint(high);
            let (_, row) = self.file.file.sample(&pages, middle).await?;
            if row <= place {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low.saturating_sub(1) * SAMPLE)
    }
}

impl Merged {
    /// The least ordinals from `from` on, `max` of them at the most.
    async fn take(&mut self, file: &IndexFile, cache: &ChunkCache, from: u64, max: usize) -> Result<Vec<u64>, Error> {
        let pages = file.pages(cache);
        let mut behind: Vec<usize> = Vec::new();
        if self.heads.is_empty() {
            behind.extend(0..self.cursors.len());
        }
        while self.heads.peek().is_some_and(|Reverse((ordinal, _))| *ordinal < from) {
            behind.extend(self.heads.pop().map(|Reverse((_, list))| list));
        }
        for list in behind {
            if let Some(ordinal) = self.cursors[list].seek(&pages, from).await? {
                self.heads.push(Reverse((ordinal, list)));
            }
        }
        let mut taken: Vec<u64> = Vec::with_capacity(max.min(64));
        while let Some(Reverse((ordinal, list))) = self.heads.pop() {
            if taken.len() == max && taken.last() != Some(&ordinal) {
                self.heads.push(Reverse((ordinal, list)));
                break;
            }
            if taken.last() != Some(&ordinal) {
                taken.push(ordinal);
            }
            if let Some(next) = self.cursors[list].next(&pages).await? {
                self.heads.push(Reverse((next, list)));
            }
        }
        Ok(taken)
    }
}
