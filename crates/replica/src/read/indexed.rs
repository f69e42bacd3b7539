//! What the indexes of a table list on this shard for a query: candidates, in the order of reads.
//!
//! Each memtable and each sstable of a tablet lists its own rows. For each condition of the query, the lists of all of
//! them are united by primary key; then the conditions are intersected. In this order, because a row may have the value
//! of one condition in one file and that of another in a second one. See docs/dev/indexes.md.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use memtable::Memtable;
use mutation::candidates::{Candidate, CandidatesFrom, FirstCandidates, PassedPosition};
use mutation::terms::{IndexLookup, IndexTerms, TermPlace};
use mutation::{Bound, ClusteringSlice, PartitionBlock};
use schema::{ClusteringOrder, IndexId, Table};
use sstable::ChunkCache;
use types::Token;

use crate::read::{MemtableSource, ReadError, memtables};
use crate::tablets::tablet::{TableStore, Tablet, TokenRange, Version};

/// Candidates that are asked for at once of one memtable or sstable: few at first, so that a query with a limit reads
/// little.
const BATCH_FIRST: usize = 32;
/// And at most.
const BATCH_MAX: usize = 4096;
/// Rows of a source without the index that one step looks at.
const SCAN_ROWS: usize = 512;
/// Rows of sources without the index that a query looks at, by what those have in a tablet.
pub(super) const UNINDEXED_ROWS_MAX: u64 = 2_000_000;

/// What one source of a tablet lists for one condition.
struct Listed {
    source: Source,
    ready: VecDeque<Candidate>,
    /// After what it has given.
    from: CandidatesFrom,
    /// Nothing comes after `ready`.
    has_ended: bool,
    batch: usize,
}

enum Source {
    Memtable(MemtableSource),
    File(Box<sstable::IndexCursor>),
    /// An sstable without the index, as far as it is read.
    Unindexed(Arc<sstable::Reader>, Option<Box<sstable::ScanCursor>>),
}

/// What all sources of a tablet list for one condition.
struct United {
    terms: IndexTerms,
    lookup: IndexLookup,
    sources: Vec<Listed>,
}

/// A read of one candidate costs as much as scanning so many rows.
const READ_COST: u64 = 3;
/// A condition that lists more than so many times what another one does is not asked: its lists cost more than they
/// save.
const WIDER_MAX: u64 = 16;
/// Candidates of a memtable are counted up to so many.
const COUNTED_MAX: usize = 10_000;

fn rows_of(memtable: &Memtable) -> u64 {
    memtable.row_count().max(memtable.partition_count() as u64)
}

/// What comes next.
pub(super) enum Listing {
    /// A candidate.
    Candidate(Candidate),
    /// The rows of a tablet from a place on, which cost less to scan than to read one by one.
    Scan(Rc<Version>, TokenRange, CandidatesFrom),
}

/// What a tablet lists for all conditions.
struct TabletCandidates {
    table: Arc<Table>,
    version: Rc<Version>,
    cache: Rc<ChunkCache>,
    range: TokenRange,
    conditions: Vec<United>,
}

/// The candidates of the tablets that a shard has in a range of tokens.
pub(super) struct CandidateReader {
    table: Arc<Table>,
    tablets: Rc<[Rc<Tablet>]>,
    next: usize,
    cache: Rc<ChunkCache>,
    range: TokenRange,
    from: CandidatesFrom,
    conditions: Vec<IndexLookup>,
    current: Option<TabletCandidates>,
}

/// Gives what a condition takes of a partition's block.
fn match_block(
    (terms, lookup): (&IndexTerms, &IndexLookup),
    table: &Table,
    block: &PartitionBlock,
    mut give: impl FnMut(Candidate),
) {
    let candidate = |clustering: Option<&[u8]>| Candidate {
        token: block.token,
        key: block.key().to_vec(),
        clustering: clustering.map(<[u8]>::to_vec),
    };
    let mut is_match = false;
    let mut note = |term: &[u8]| is_match |= lookup.takes(term);
    match terms.place {
        TermPlace::PartitionKey(_) => terms.of_key(block.key(), &mut note),
        TermPlace::Static => {
            if let Some(row) = block.static_row() {
                terms.of_row(&table.layout, row, &mut note);
            }
        }
        TermPlace::Clustering(_) | TermPlace::Regular => {
            for (clustering, row) in block.rows() {
                let mut is_match = false;
                let mut note = |term: &[u8]| is_match |= lookup.takes(term);
                match terms.place {
                    TermPlace::Regular => terms.of_row(&table.layout, row, &mut note),
                    _ => terms.of_clustering(clustering, &mut note),
                }
                if is_match {
                    give(candidate(Some(clustering)));
                }
            }
            return;
        }
    }
    if is_match {
        give(candidate(None));
    }
}

impl Listed {
    fn new(source: Source, from: &CandidatesFrom) -> Self {
        Self {
            source,
            ready: VecDeque::new(),
            from: from.clone(),
            has_ended: false,
            batch: BATCH_FIRST,
        }
    }

    /// Reads more, until something is ready or it has ended.
    async fn fill(
        &mut self,
        tablet: &TabletContext<'_>,
        condition: (&IndexTerms, &IndexLookup),
    ) -> Result<(), ReadError> {
        while self.ready.is_empty() && !self.has_ended {
            if runtime::should_yield() {
                runtime::yield_now().await;
            }
            match &mut self.source {
                Source::Memtable(memtable) => {
                    let has_index = memtable.with(|memtable| memtable.has_index(condition.0.id));
                    if has_index {
                        self.fill_listed(tablet, condition);
                    } else {
                        self.fill_scanned(tablet, condition);
                    }
                }
                Source::File(cursor) => {
                    let more = cursor
                        .next(&tablet.table.clustering_order, &self.from, self.batch)
                        .await;
                    let more = more.map_err(|e| tablet.index_error(cursor.index(), e))?;
                    self.has_ended = more.is_empty();
                    self.take(more, tablet.range);
                }
                Source::Unindexed(reader, cursor) => {
                    if cursor.is_none() {
                        let limits = sstable::ReadLimits {
                            rows: SCAN_ROWS,
                            bytes: memory::READ_BYTES,
                        };
                        let (token, key) = (self.from.token, &self.from.key);
                        let scan = reader.scan(tablet.cache, token, key, tablet.range.to, limits).await;
                        *cursor = Some(Box::new(scan.map_err(|e| tablet.version.read_error(e))?));
                    }
                    let Some(cursor) = cursor else { continue };
                    let block = cursor.next_block().await.map_err(|e| tablet.version.read_error(e))?;
                    let Some(block) = block else {
                        self.has_ended = true;
                        continue;
                    };
                    let (order, from, ready) = (&tablet.table.clustering_order, &self.from, &mut self.ready);
                    match_block(condition, tablet.table, &block, |candidate| {
                        let is_again = ready.back().is_some_and(|last| last.compare(order, &candidate).is_eq());
                        if !is_again && from.is_before(order, &candidate) {
                            ready.push_back(candidate);
                        }
                    });
                    // Partitions that are listed as a whole are given once.
                    if let Some(last) = self.ready.back() {
                        self.from = CandidatesFrom::behind(last);
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes candidates that were found, as far as they are of the tablet.
    fn take(&mut self, found: Vec<Candidate>, range: TokenRange) {
        self.batch = (self.batch * 4).min(BATCH_MAX);
        if let Some(last) = found.last() {
            self.from = CandidatesFrom::behind(last);
            self.has_ended |= last.token > range.to;
        }
        let is_here = |candidate: &Candidate| range.contains(candidate.token);
        self.ready.extend(found.into_iter().filter(is_here));
    }

    /// Asks a memtable that has the index.
    fn fill_listed(&mut self, tablet: &TabletContext<'_>, (_, lookup): (&IndexTerms, &IndexLookup)) {
        let Source::Memtable(memtable) = &self.source else {
            return;
        };
        let mut first = FirstCandidates::new(&tablet.table.clustering_order, self.batch);
        memtable.with(|memtable| {
            memtable.offer_candidates(lookup, &self.from, &mut first);
        });
        let (found, is_cut) = first.finish();
        self.has_ended = !is_cut;
        self.take(found, tablet.range);
    }

    /// Looks at some rows of a memtable that lacks the index.
    fn fill_scanned(&mut self, tablet: &TabletContext<'_>, condition: (&IndexTerms, &IndexLookup)) {
        let Source::Memtable(memtable) = &self.source else {
            return;
        };
        let mut found = Vec::new();
        let order = &tablet.table.clustering_order;
        let mut next = None;
        memtable.with(|memtable| {
            let mut left = SCAN_ROWS;
            for partition in memtable.partitions_from(self.from.token, &self.from.key) {
                let place = (partition.token(), partition.key());
                let passed = if place == (self.from.token, &self.from.key[..]) {
                    self.from.passed.clone()
                } else {
                    PassedPosition::Nothing
                };
                let slice = match &passed {
                    PassedPosition::All => continue,
                    PassedPosition::Nothing => ClusteringSlice::all(),
                    PassedPosition::To(bound) => ClusteringSlice {
                        start: bound.clone(),
                        end: Bound::top(),
                    },
                };
                if left == 0 || partition.token() > tablet.range.to {
                    next = (partition.token() <= tablet.range.to).then(|| CandidatesFrom {
                        token: partition.token(),
                        key: partition.key().to_vec(),
                        passed: passed.clone(),
                    });
                    return;
                }
                let block = partition.block(&slice, false, left, usize::MAX);
                left -= block.len().clamp(1, left);
                let is_whole_passed = passed != PassedPosition::Nothing;
                match_block(condition, tablet.table, &block, |candidate| {
                    if candidate.clustering.is_some() || !is_whole_passed {
                        found.push(candidate);
                    }
                });
                if let Some(covered) = &block.covered
                    && !condition.0.lists_partitions()
                {
                    next = Some(CandidatesFrom {
                        token: partition.token(),
                        key: partition.key().to_vec(),
                        passed: PassedPosition::To(covered.clone()),
                    });
                    return;
                }
            }
        });
        debug_assert!(
            found.is_sorted_by(|a, b| a.compare(order, b).is_lt()),
            "a memtable is in order"
        );
        self.take(found, tablet.range);
        match next {
            Some(next) => self.from = next,
            None => self.has_ended = true,
        }
    }
}

/// What all sources of a tablet need to be read.
struct TabletContext<'t> {
    table: &'t Arc<Table>,
    version: &'t Rc<Version>,
    cache: &'t Rc<ChunkCache>,
    range: TokenRange,
}

impl TabletContext<'_> {
    /// The error of a read of an index. A damaged index file is not used any more; its sstable may be whole.
    fn index_error(&self, id: IndexId, error: sstable::Error) -> ReadError {
        let files = self.version.sstables.iter();
        let damaged = files.filter(|reader| error.is_damage() && reader.leave_damaged_index(id, &error));
        if damaged.count() == 0 {
            return self.version.read_error(error);
        }
        log::error!("{error}. The index is not used for this sstable until its file is built again");
        ReadError::File(error.without_directory())
    }
}

impl United {
    /// The first candidate that is left; None at the end.
    async fn peek(&mut self, tablet: &TabletContext<'_>) -> Result<Option<&Candidate>, ReadError> {
        for source in &mut self.sources {
            source.fill(tablet, (&self.terms, &self.lookup)).await?;
        }
        let order = &tablet.table.clustering_order;
        let heads = self.sources.iter().filter_map(|source| source.ready.front());
        Ok(heads.min_by(|a, b| a.compare(order, b)))
    }

    /// Leaves out everything up to a candidate, and it too if `inclusive`.
    fn pass(&mut self, order: &ClusteringOrder, to: &Candidate, inclusive: bool) {
        let of_partition = Candidate {
            clustering: None,
            ..to.clone()
        };
        let to = if self.terms.lists_partitions() {
            &of_partition
        } else {
            to
        };
        for source in &mut self.sources {
            let is_passed = |candidate: &Candidate| {
                let found = candidate.compare(order, to);
                found.is_lt() || inclusive && found.is_eq()
            };
            while source.ready.pop_front_if(|candidate| is_passed(candidate)).is_some() {}
            let place = if inclusive {
                CandidatesFrom::behind(to)
            } else {
                CandidatesFrom::at(to)
            };
            if source.ready.is_empty() && source.from.compare(order, &place).is_lt() {
                source.from = place;
            }
        }
    }
}

/// Whether two candidates are of one row: the whole of its partition, or it.
fn meet(order: &ClusteringOrder, one: &Candidate, other: &Candidate) -> bool {
    let is_one_partition = (one.token, &one.key) == (other.token, &other.key);
    is_one_partition
        && match (&one.clustering, &other.clustering) {
            (Some(a), Some(b)) => order.compare(a, b).is_eq(),
            _ => true,
        }
}

impl TabletCandidates {
    fn new(
        table: &Arc<Table>,
        version: Rc<Version>,
        cache: &Rc<ChunkCache>,
        (range, from): (TokenRange, &CandidatesFrom),
        conditions: &[IndexLookup],
    ) -> Result<Self, ReadError> {
        let first = Token(range.after.0.saturating_add(1)).max(from.token);
        version.check_whole((first, range.to))?;
        let mut united = Vec::with_capacity(conditions.len());
        for condition in conditions {
            let index = table.indexes.iter().find(|index| index.id == condition.id);
            // It was dropped, or this node has not heard of it yet: the other conditions list more rows.
            let Some(terms) = index.and_then(|index| IndexTerms::of(table, index)) else {
                continue;
            };
            let mut unindexed = 0;
            let files = version
                .sstables
                .iter()
                .filter(|reader| range.overlaps(reader.tokens()))
                .map(|reader| {
                    let source = reader.index_cursor(cache, &terms, condition.clone());
                    source.map(Box::new).map(Source::File).unwrap_or_else(|| {
                        unindexed += reader.meta().statistics.rows;
                        Source::Unindexed(reader.clone(), None)
                    })
                });
            let files: Vec<Source> = files.collect();
            let memtables = memtables(&version).filter(|memtable| memtable.range().intersects(range));
            let memtables: Vec<Source> = memtables.map(Source::Memtable).collect();
            for source in &memtables {
                let Source::Memtable(memtable) = source else { continue };
                memtable.with(|memtable| {
                    if !memtable.has_index(condition.id) {
                        unindexed += memtable.row_count();
                    }
                });
            }
            if unindexed > UNINDEXED_ROWS_MAX {
                return Err(ReadError::NotIndexed { rows: unindexed });
            }
            let sources = memtables.into_iter().chain(files);
            // A partition that is listed as a whole may have more rows after the last one.
            let from = &match &from.passed {
                PassedPosition::To(_) if terms.lists_partitions() => CandidatesFrom {
                    passed: PassedPosition::Nothing,
                    ..from.clone()
                },
                _ => from.clone(),
            };
            united.push(United {
                terms,
                lookup: condition.clone(),
                sources: sources.map(|source| Listed::new(source, from)).collect(),
            });
        }
        Ok(Self {
            table: table.clone(),
            version,
            cache: cache.clone(),
            range,
            conditions: united,
        })
    }

    /// Leaves out the conditions that cost more than they save. False: to scan the tablet costs less than to read what
    /// the others list, or this node knows none of the indexes.
    async fn choose(&mut self) -> Result<bool, ReadError> {
        let version = self.version.clone();
        let is_unknown = self.conditions.is_empty();
        let mut rows: u64 = version
            .sstables
            .iter()
            .map(|reader| reader.meta().statistics.rows)
            .sum();
        for memtable in memtables(&version) {
            rows += memtable.with(rows_of);
        }
        if is_unknown {
            // As for rows that are not in an index yet.
            return if rows > UNINDEXED_ROWS_MAX {
                Err(ReadError::NoIndex)
            } else {
                Ok(false)
            };
        }
        let mut counts = Vec::with_capacity(self.conditions.len());
        for condition in &self.conditions {
            let mut count = 0;
            for source in &condition.sources {
                count += match &source.source {
                    Source::Memtable(memtable) => memtable.with(|memtable| {
                        if !memtable.has_index(condition.lookup.id) {
                            return memtable.row_count();
                        }
                        let counted = memtable.count_candidates(&condition.lookup, COUNTED_MAX);
                        // Each step would walk over all of many terms.
                        let is_long_walk = counted >= COUNTED_MAX && !condition.lookup.is_of_few_terms();
                        if is_long_walk {
                            rows_of(memtable)
                        } else {
                            counted as u64
                        }
                    }),
                    Source::File(cursor) => cursor.count().await.map_err(|e| version.read_error(e))?,
                    Source::Unindexed(reader, _) => reader.meta().statistics.rows,
                };
            }
            counts.push(count);
        }
        let least = counts.iter().copied().min().unwrap_or(0);
        let mut counts = counts.into_iter();
        self.conditions.retain(|_| {
            counts
                .next()
                .is_some_and(|count| count <= least.saturating_mul(WIDER_MAX).max(least + 64))
        });
        let lists_rows = self
            .conditions
            .iter()
            .any(|condition| !condition.terms.lists_partitions());
        Ok(!lists_rows || rows < COUNTED_MAX as u64 || least.saturating_mul(READ_COST) < rows)
    }

    /// The next candidate of all conditions; None at the end.
    async fn next(&mut self) -> Result<Option<Candidate>, ReadError> {
        let Self {
            table,
            version,
            cache,
            range,
            conditions,
        } = self;
        let tablet = TabletContext {
            table,
            version,
            cache,
            range: *range,
        };
        let order = &table.clustering_order;
        loop {
            let mut heads = Vec::with_capacity(conditions.len());
            for condition in conditions.iter_mut() {
                let Some(head) = condition.peek(&tablet).await? else {
                    return Ok(None);
                };
                heads.push(head.clone());
            }
            let furthest = heads.iter().max_by(|a, b| a.compare(order, b));
            let furthest = furthest.expect("a query has a condition").clone();
            if heads.iter().all(|head| meet(order, head, &furthest)) {
                // Where one lists the row and another its partition, the partition may have more rows.
                let is_row = furthest.clustering.is_some();
                for (condition, head) in conditions.iter_mut().zip(&heads) {
                    if head.clustering.is_some() == is_row {
                        condition.pass(order, head, true);
                    }
                }
                return Ok(Some(furthest));
            }
            for (condition, head) in conditions.iter_mut().zip(&heads) {
                if !meet(order, head, &furthest) {
                    condition.pass(order, &furthest, false);
                }
            }
        }
    }
}

impl CandidateReader {
    /// Reads what is listed of `range` from a place on, by this form of the table, in the tablets that the shard has
    /// now.
    pub(super) fn new(
        table: Arc<Table>,
        store: &TableStore,
        cache: Rc<ChunkCache>,
        (range, from): (TokenRange, CandidatesFrom),
        conditions: Vec<IndexLookup>,
    ) -> Self {
        let tablets = store.tablets();
        let is_before = |tablet: &Rc<Tablet>| {
            let to = tablet.range.to;
            to < from.token || to <= range.after && range.after != TokenRange::ALL.after
        };
        Self {
            table,
            next: tablets.partition_point(is_before),
            tablets,
            cache,
            range,
            from,
            conditions,
            current: None,
        }
    }

    /// What the tablet of the last candidate has.
    pub(super) fn version(&self) -> Option<Rc<Version>> {
        self.current.as_ref().map(|tablet| tablet.version.clone())
    }

    /// What comes next; None at the end.
    ///
    /// # Errors
    /// When a file cannot be read, something of the tokens is missing, or too many rows are not in the index yet.
    pub(super) async fn next(&mut self) -> Result<Option<Listing>, ReadError> {
        loop {
            if let Some(tablet) = &mut self.current {
                if let Some(candidate) = tablet.next().await? {
                    return Ok(Some(Listing::Candidate(candidate)));
                }
                self.current = None;
            }
            let Some(tablet) = self.tablets.get(self.next).map(Rc::clone) else {
                return Ok(None);
            };
            let is_behind = tablet.range.after >= self.range.to && tablet.range.after != TokenRange::ALL.after;
            if is_behind {
                return Ok(None);
            }
            self.next += 1;
            tablet.count_request();
            let range = TokenRange {
                after: tablet.range.after.max(self.range.after),
                to: tablet.range.to.min(self.range.to),
            };
            let first = CandidatesFrom::token(Token(range.after.0.saturating_add(1)));
            let from = if self.from.token >= first.token || range.after == TokenRange::ALL.after {
                self.from.clone()
            } else {
                first
            };
            let version = tablet.version();
            let table = &self.table;
            let mut tablet = TabletCandidates::new(table, version, &self.cache, (range, &from), &self.conditions)?;
            if !tablet.choose().await? {
                return Ok(Some(Listing::Scan(tablet.version, range, from)));
            }
            self.current = Some(tablet);
        }
    }
}
