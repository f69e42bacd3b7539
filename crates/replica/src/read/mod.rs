//! Merged reads over memtables and sstables.
//!
//! A partition is read in blocks. Every source that has the partition gives a block that is complete up to some bound;
//! what is before the nearest of those bounds is merged and handed out, the rest waits for the next turn. Blocks of
//! sstables are fetched first, each fetch may suspend; memtables are read last, in the same step as the merge, so that
//! the answer is of one moment. A block carries everything the sources say, tombstones included: its consumer decides
//! what lives (`mutation::compact`).

pub(crate) mod indexed;
mod indexed_scan;
pub(crate) mod merged_row;
mod paused;
pub(crate) mod point;
pub(crate) mod reader;
pub(crate) mod row_cache;
pub(crate) mod scan;

use std::cmp::Ordering;
use std::rc::Rc;
use std::sync::Arc;

use memory::RowMemory;
use memtable::Memtable;
use mutation::merge::{merge_blocks, merge_rows};
use mutation::{Bound, ClusteringSlice, PartitionBlock, RowView, Tombstone};
use schema::{ClusteringOrder, Table};
use sstable::ChunkCache;
use stdx::preempt;
use types::Token;
use types::token::KeyHash;

use crate::tablets::tablet::{MemtableCell, TokenRange, Version};
use crate::trace;

pub use paused::{PausedCounts, PausedReaders};

/// Why this node cannot say what it has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadError {
    /// A file could not be read or is damaged; the text, which clients see, names it and the place in it.
    File(String),
    /// A damaged sstable that may have had the tokens was moved aside.
    Missing {
        /// The name by which an operator knows it.
        name: String,
    },
    /// No memory could be reserved for a long row; the text says why.
    NoRowMemory(String),
    /// The table has no index of that number here: it was dropped, or this node has not heard of it yet.
    NoIndex,
    /// More rows than a query may look at are in files that the index has not taken in yet.
    NotIndexed {
        /// How many, about.
        rows: u64,
    },
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(text) | Self::NoRowMemory(text) => f.write_str(text),
            Self::NoIndex => f.write_str("this node does not have the index: it was dropped, or was created just now"),
            Self::NotIndexed { rows } => write!(
                f,
                "the index is being built: about {rows} rows of a tablet are not in it yet, and a query looks at no more than {}",
                indexed::UNINDEXED_ROWS_MAX
            ),
            Self::Missing { name } => write!(
                f,
                "this node lacks the sstable {name}, which may have the data: it is damaged and was moved aside. Other replicas can be read; to \
                 read here without it, accept the loss with ceto nodetool acceptquarantined"
            ),
        }
    }
}

impl std::error::Error for ReadError {}

impl Version {
    /// Fails when a missing sstable may have any token from the first of these up to the second. What it had may be
    /// acknowledged data, or a tombstone that hides what another file has, so neither a row nor its absence can be
    /// vouched for.
    pub fn check_whole(&self, (first, last): (Token, Token)) -> Result<(), ReadError> {
        let Some(missing) = self.missing.iter().find(|m| m.overlaps(first, last)) else {
            return Ok(());
        };
        Err(ReadError::Missing { name: missing.name() })
    }

    /// The error of a read. An sstable that is damaged is suspect from here on.
    pub(crate) fn read_error(&self, error: sstable::Error) -> ReadError {
        if let sstable::Error::NoRowMemory { why, .. } = error {
            return ReadError::NoRowMemory(why);
        }
        if note_damage(&self.sstables, &error) {
            self.alarm.raise();
        }
        if !error.is_damage() {
            self.alarm.log_unreadable(&error);
        }
        ReadError::File(error.without_directory())
    }
}

/// Marks the sstable that an error is about as suspect, if it is damaged. Whether it was not before.
pub(crate) fn note_damage(sstables: &[Arc<sstable::Reader>], error: &sstable::Error) -> bool {
    let Some(descriptor) = sstable::Descriptor::of_path(error.path())
        .ok()
        .filter(|_| error.is_damage())
    else {
        return false;
    };
    let damaged = sstables.iter().find(|reader| *reader.descriptor() == descriptor);
    let is_new = damaged.is_some_and(|reader| reader.suspect());
    if is_new {
        log::error!(
            "{error}. The whole sstable is read again, and moved aside if it is damaged; until then no compaction takes it"
        );
    }
    is_new
}

/// Cuts a block at a bound: what is nearer to the read's beginning stays, the rest is returned.
pub fn split_block(
    block: &mut PartitionBlock,
    bound: &Bound,
    order: &ClusteringOrder,
    reversed: bool,
) -> PartitionBlock {
    let mut low = PartitionBlock::new(block.token, block.key());
    let mut high = PartitionBlock::new(block.token, block.key());
    for (key, row) in block.rows() {
        let part = if bound.compare_key(order, key) == Ordering::Greater {
            &mut low
        } else {
            &mut high
        };
        part.push_row(key, row.bytes());
    }
    for r in &block.range_tombstones {
        if r.start.compare(order, bound) == Ordering::Less {
            let end = if r.end.compare(order, bound) == Ordering::Greater {
                bound.clone()
            } else {
                r.end.clone()
            };
            low.range_tombstones.push(mutation::RangeTombstone { end, ..r.clone() });
        }
        if r.end.compare(order, bound) == Ordering::Greater {
            let start = if r.start.compare(order, bound) == Ordering::Less {
                bound.clone()
            } else {
                r.start.clone()
            };
            high.range_tombstones
                .push(mutation::RangeTombstone { start, ..r.clone() });
        }
    }
    let (mut near, mut far) = if reversed { (high, low) } else { (low, high) };
    near.tombstone = block.tombstone;
    far.tombstone = block.tombstone;
    if let Some(row) = block.static_row() {
        near.set_static_row(row.bytes());
        far.set_static_row(row.bytes());
    }
    far.covered = block.covered.take();
    near.covered = Some(bound.clone());
    *block = near;
    far
}

enum Source {
    Memtable(MemtableSource),
    Sstable(Box<sstable::PartitionCursor>),
    /// The blocks of one partition of a scan.
    Scan(usize),
    /// What a page did not use of a block.
    Rest,
}

enum MemtableSource {
    Cell(Rc<MemtableCell>),
    Frozen(Arc<Memtable>, TokenRange),
}

impl MemtableSource {
    fn with<R>(&self, f: impl FnOnce(&Memtable) -> R) -> R {
        match self {
            Self::Cell(c) => f(&c.borrow()),
            // It is not written any more.
            Self::Frozen(m, _) => preempt::allowed(|| f(m)),
        }
    }

    /// The tokens of it that are the tablet's.
    fn range(&self) -> TokenRange {
        match self {
            Self::Cell(_) => TokenRange::ALL,
            Self::Frozen(_, range) => *range,
        }
    }

    /// Runs `f` on the place of the first partition at or above a place that is the tablet's.
    fn with_next<R>(&self, (token, key): (Token, &[u8]), f: impl FnOnce((Token, &[u8])) -> R) -> Option<R> {
        let range = self.range();
        let first = Token(range.after.0.saturating_add(1));
        let from = if range.after == TokenRange::ALL.after || token >= first {
            (token, key)
        } else {
            (first, &[][..])
        };
        self.with(|m| {
            let partition = m.partitions_from(from.0, from.1).next()?;
            let is_here = range.contains(partition.token());
            is_here.then(|| f((partition.token(), partition.key())))
        })
    }
}

fn memtables(version: &Version) -> impl Iterator<Item = MemtableSource> + '_ {
    std::iter::once(MemtableSource::Cell(version.active.clone())).chain(
        version
            .frozen
            .iter()
            .map(|f| MemtableSource::Frozen(f.memtable.clone(), f.range)),
    )
}

/// The memtables that may have the tablet's rows of a token.
fn memtables_of(version: &Version, token: Token) -> impl Iterator<Item = MemtableSource> + '_ {
    memtables(version).filter(move |memtable| memtable.range().contains(token))
}

/// How much of a partition one step reads at most from each source.
#[derive(Clone, Copy, Debug)]
pub struct BlockLimits {
    /// Rows.
    pub rows: usize,
    /// Bytes, about.
    pub bytes: usize,
}

/// What every block of a partition carries: sources give it with their first block only.
#[derive(Default)]
struct Head {
    tombstone: Option<Tombstone>,
    static_row: Option<Vec<u8>>,
}

impl Head {
    /// Learns from a merged block, and gives it what earlier blocks had.
    fn complete(&mut self, table: &Table, block: &mut PartitionBlock) {
        let known = self.tombstone.unwrap_or(Tombstone::NONE);
        block.tombstone = block.tombstone.merge(known);
        self.tombstone = Some(block.tombstone);
        let mut merged = Vec::new();
        match (&self.static_row, block.static_row()) {
            (None, None) => return,
            (None, Some(row)) => {
                self.static_row = Some(row.bytes().to_vec());
                return;
            }
            (Some(known), None) => merged.extend_from_slice(known),
            (Some(known), Some(row)) => {
                let known = RowView::new(known).expect("a merged row is well formed");
                merge_rows(&table.layout, known, row, &mut merged);
            }
        }
        block.set_static_row(&merged);
        self.static_row = Some(merged);
    }
}

/// What one source has ready.
struct Feed {
    source: Source,
    pending: Option<PartitionBlock>,
    /// The source has nothing after `pending`.
    exhausted: bool,
}

impl Version {
    /// Whether the partition may be here: false when no memtable has it, and no file by its filter.
    ///
    /// # Errors
    /// When a file with its token is quarantined.
    pub fn may_have(&self, hash: KeyHash, key: &[u8]) -> Result<bool, ReadError> {
        let token = hash.token();
        self.check_whole((token, token))?;
        let in_files = || self.sstables.iter().any(|reader| reader.may_contain(hash));
        let in_memory = |memtable: MemtableSource| memtable.with(|memtable| memtable.partition(token, key).is_some());
        Ok(in_files() || memtables_of(self, token).any(in_memory))
    }
}

/// A partition of an sstable above this is long: an index may lead to its rows sooner than a read of all of it.
const LONG_PARTITION_BYTES: u64 = 64 << 10;

impl Version {
    /// Whether the partition may have so many rows that an index is worth asking for some of them.
    pub(crate) fn may_have_long(&self, hash: KeyHash, key: &[u8]) -> bool {
        let is_long = |reader: &Arc<sstable::Reader>| {
            reader.may_have_partition_above(LONG_PARTITION_BYTES) && reader.may_contain(hash)
        };
        let has_many = |memtable: MemtableSource| {
            memtable.with(|memtable| {
                let partition = memtable.partition(hash.token(), key);
                partition.is_some_and(|partition| partition.has_many_rows())
            })
        };
        self.sstables.iter().any(is_long) || memtables_of(self, hash.token()).any(has_many)
    }
}

/// What to read of one partition.
#[derive(Clone, Debug)]
pub struct PartitionRead {
    /// The hash of `key`, which says its token.
    pub hash: KeyHash,
    /// The partition's serialised key.
    pub key: Vec<u8>,
    /// In clustering order and disjoint.
    pub slices: Vec<ClusteringSlice>,
    /// From the last row to the first.
    pub reversed: bool,
    /// Of each step.
    pub limits: BlockLimits,
}

/// Reads slices of one partition, block by block.
pub struct PartitionReader {
    table: Arc<Table>,
    hash: KeyHash,
    token: Token,
    key: Vec<u8>,
    /// The slices to come, in reading order, last first.
    slices: Vec<ClusteringSlice>,
    slice: Option<ClusteringSlice>,
    /// What was left of the slice before the block that was given last.
    given: Option<ClusteringSlice>,
    reversed: bool,
    limits: BlockLimits,
    version: Rc<Version>,
    cache: Rc<ChunkCache>,
    feeds: Vec<Feed>,
    head: Head,
    row_memory: Option<Arc<dyn RowMemory>>,
}

impl PartitionReader {
    /// Reads of one version of a tablet.
    pub fn new(table: Arc<Table>, version: Rc<Version>, cache: Rc<ChunkCache>, read: PartitionRead) -> Self {
        let PartitionRead {
            hash,
            key,
            mut slices,
            reversed,
            limits,
        } = read;
        if !reversed {
            slices.reverse();
        }
        Self {
            table,
            hash,
            token: hash.token(),
            key,
            slices,
            slice: None,
            given: None,
            reversed,
            limits,
            version,
            cache,
            feeds: Vec::new(),
            head: Head::default(),
            row_memory: None,
        }
    }

    /// Sets where memory for long rows is reserved before they are read; without it, they are read at once.
    pub fn set_row_memory(&mut self, row_memory: Option<Arc<dyn RowMemory>>) {
        for feed in &mut self.feeds {
            if let Source::Sstable(cursor) = &mut feed.source {
                cursor.set_row_memory(row_memory.clone());
            }
        }
        self.row_memory = row_memory;
    }

    /// Reads one version of a tablet. Uses the reader that the previous page left where this read begins, if it is
    /// kept.
    pub fn resumed(
        paused: &PausedReaders,
        table: Arc<Table>,
        version: Rc<Version>,
        cache: Rc<ChunkCache>,
        read: PartitionRead,
    ) -> Self {
        match paused.resume(&table, &version, &read) {
            Some(reader) => {
                trace::note(|| {
                    let (keyspace, name) = (&table.keyspace, &table.name);
                    format!("Resuming a partition of {keyspace}.{name} where the last page ended")
                });
                reader
            }
            None => Self::new(table, version, cache, read),
        }
    }

    async fn begin_slice(&mut self, slice: ClusteringSlice) -> Result<(), ReadError> {
        self.version.check_whole((self.token, self.token))?;
        self.feeds.clear();
        for reader in &self.version.sstables {
            if !reader.may_contain(self.hash) {
                continue;
            }
            let limits = sstable::ReadLimits {
                rows: self.limits.rows,
                bytes: self.limits.bytes,
            };
            let slices = std::slice::from_ref(&slice);
            let cursor = reader
                .read_partition(&self.cache, self.token, &self.key, slices, self.reversed, limits)
                .await
                .map_err(|e| self.version.read_error(e))?;
            if let Some(mut cursor) = cursor {
                cursor.set_row_memory(self.row_memory.clone());
                self.feeds.push(Feed {
                    source: Source::Sstable(Box::new(cursor)),
                    pending: None,
                    exhausted: false,
                });
            }
        }
        let files = self.feeds.len();
        for m in memtables_of(&self.version, self.token) {
            self.feeds.push(Feed {
                source: Source::Memtable(m),
                pending: None,
                exhausted: false,
            });
        }
        trace::note(|| {
            format!(
                "Reading a partition of {}.{} from {files} of {} sstables and {} memtables",
                self.table.keyspace,
                self.table.name,
                self.version.sstables.len(),
                self.feeds.len() - files
            )
        });
        self.slice = Some(slice);
        Ok(())
    }

    /// Slices that are not begun yet.
    pub fn slices_left(&self) -> usize {
        self.slices.len()
    }

    /// Whether nothing of the partition is here, which a reader of several slices finds out once instead of with each
    /// of them.
    fn is_absent(&self) -> Result<bool, ReadError> {
        let is_begun = self.given.is_some() || !self.feeds.is_empty();
        Ok(!is_begun && self.slices.len() > 1 && !self.version.may_have(self.hash, &self.key)?)
    }

    /// The next merged block; None when every slice is read. `covered` of a block says where it ends: a block that ends
    /// a slice but not the last says so by the slice's end, one that ends the last has none. Slices of which nothing is
    /// here end without a block.
    pub async fn next_block(&mut self) -> Result<Option<PartitionBlock>, ReadError> {
        if self.slice.is_none() && self.is_absent()? {
            self.slices.clear();
        }
        loop {
            if self.slice.is_none() {
                // Many slices may have no row.
                if runtime::should_yield() {
                    runtime::yield_now().await;
                }
                let Some(next) = self.slices.pop() else { return Ok(None) };
                self.begin_slice(next).await?;
            }
            for feed in &mut self.feeds {
                if let (Source::Sstable(cursor), None, false) = (&mut feed.source, &feed.pending, feed.exhausted) {
                    feed.pending = cursor.next_block().await.map_err(|e| self.version.read_error(e))?;
                    feed.exhausted = feed.pending.as_ref().is_none_or(|b| b.covered.is_none());
                }
            }
            // The active memtable is the first, and nothing suspends while it is read: a round has one moment of it.
            let slice = self.slice.take().expect("a slice is being read");
            let (token, reversed, limits) = (self.token, self.reversed, self.limits);
            for feed in &mut self.feeds {
                if let (Source::Memtable(m), None, false) = (&feed.source, &feed.pending, feed.exhausted) {
                    let key = &self.key;
                    feed.pending = m.with(|m| {
                        m.partition(token, key)
                            .map(|p| p.block(&slice, reversed, limits.rows, limits.bytes))
                    });
                    // What is written after this block later is read later: a memtable is read again each time.
                    feed.exhausted = false;
                }
            }
            let order = self.table.clustering_order.clone();
            // What is merged is read already, and nothing is lent out.
            let ready = preempt::allowed(|| merge_ready(&self.table, &order, &mut self.feeds, reversed));
            let Some(mut block) = ready else { continue };
            self.head.complete(&self.table, &mut block);
            let is_last = self.slices.is_empty();
            self.slice = block.covered.clone().map(|covered| {
                if reversed {
                    ClusteringSlice {
                        start: slice.start.clone(),
                        end: covered,
                    }
                } else {
                    ClusteringSlice {
                        start: covered,
                        end: slice.end.clone(),
                    }
                }
            });
            if block.covered.is_none() && !is_last {
                block.covered = Some(if reversed {
                    slice.start.clone()
                } else {
                    slice.end.clone()
                });
            }
            self.given = Some(slice);
            // Memtables are read again from the new bound: what they had ready may be out of date.
            for feed in &mut self.feeds {
                if matches!(feed.source, Source::Memtable(_)) {
                    feed.pending = None;
                }
            }
            return Ok(Some(block));
        }
    }
}

/// Merges what all feeds have up to the nearest bound. None when no feed has anything.
fn merge_ready(table: &Table, order: &ClusteringOrder, feeds: &mut [Feed], reversed: bool) -> Option<PartitionBlock> {
    let mut nearest: Option<Bound> = None;
    for block in feeds.iter().filter_map(|f| f.pending.as_ref()) {
        if let Some(b) = &block.covered {
            let nearer = nearest.as_ref().is_none_or(|n| {
                let order = b.compare(order, n);
                if reversed {
                    order == Ordering::Greater
                } else {
                    order == Ordering::Less
                }
            });
            if nearer {
                nearest = Some(b.clone());
            }
        }
    }
    let mut blocks: Vec<PartitionBlock> = Vec::with_capacity(feeds.len());
    for feed in feeds {
        let Some(mut block) = feed.pending.take() else { continue };
        if let Some(bound) = &nearest
            && block.covered.as_ref() != Some(bound)
        {
            feed.pending = Some(split_block(&mut block, bound, order, reversed));
        }
        blocks.push(block);
    }
    if blocks.len() == 1 {
        return blocks.pop();
    }
    let refs: Vec<&PartitionBlock> = blocks.iter().collect();
    merge_blocks(&table.layout, order, &refs)
}

/// Reads all partitions of a token range, in order, block by block.
pub struct ScanReader {
    table: Arc<Table>,
    version: Rc<Version>,
    range: TokenRange,
    /// The first partition to come.
    position: (Token, Vec<u8>),
    scans: Vec<(sstable::ScanCursor, Option<PartitionBlock>)>,
    /// The partition being read.
    current: Option<(Token, Vec<u8>, ClusteringSlice, Vec<Feed>)>,
    head: Head,
    limits: BlockLimits,
    started: bool,
    cache: Rc<ChunkCache>,
    row_memory: Option<Arc<dyn RowMemory>>,
}

impl ScanReader {
    /// Reads the partitions of `range` whose (token, key) is at or above `from`.
    pub fn new(
        table: Arc<Table>,
        version: Rc<Version>,
        cache: Rc<ChunkCache>,
        range: TokenRange,
        from: (Token, Vec<u8>),
        limits: BlockLimits,
    ) -> Self {
        Self {
            table,
            version,
            range,
            position: from,
            scans: Vec::new(),
            current: None,
            head: Head::default(),
            limits,
            started: false,
            cache,
            row_memory: None,
        }
    }

    /// Sets where memory for long rows is reserved before they are read; without it, they are read at once.
    #[must_use]
    pub fn with_row_memory(self, row_memory: Option<Arc<dyn RowMemory>>) -> Self {
        Self { row_memory, ..self }
    }

    async fn start(&mut self) -> Result<(), ReadError> {
        let first = Token(self.range.after.0.saturating_add(1)).max(self.position.0);
        self.version.check_whole((first, self.range.to))?;
        for reader in &self.version.sstables {
            let limits = sstable::ReadLimits {
                rows: self.limits.rows,
                bytes: self.limits.bytes,
            };
            let mut cursor = reader
                .scan(&self.cache, self.position.0, &self.position.1, self.range.to, limits)
                .await
                .map_err(|e| self.version.read_error(e))?;
            cursor.set_row_memory(self.row_memory.clone());
            let head = cursor.next_block().await.map_err(|e| self.version.read_error(e))?;
            self.scans.push((cursor, head));
        }
        trace::note(|| {
            format!(
                "Reading tokens {} to {} of {}.{} from {} sstables and {} memtables",
                first.0,
                self.range.to.0,
                self.table.keyspace,
                self.table.name,
                self.scans.len(),
                memtables(&self.version).count()
            )
        });
        self.started = true;
        Ok(())
    }

    /// The next merged block; None at the end of the range. Consecutive blocks of one partition have the same key, all
    /// but its last say in `covered` how far they go.
    pub async fn next_block(&mut self) -> Result<Option<PartitionBlock>, ReadError> {
        if !self.started {
            self.start().await?;
        }
        loop {
            if self.current.is_none() {
                match self.choose() {
                    None => return Ok(None),
                    Some(Choice::Merged) => {}
                    Some(Choice::Alone(scan)) => {
                        if let Some(block) = self.take_alone(scan).await? {
                            return Ok(Some(block));
                        }
                    }
                }
            }
            let (token, key, slice, feeds) = self.current.as_mut().expect("a partition was chosen");
            for feed in feeds.iter_mut() {
                let Source::Scan(n) = feed.source else { continue };
                if feed.pending.is_some() || feed.exhausted {
                    continue;
                }
                let (cursor, head) = &mut self.scans[n];
                if head.as_ref().is_some_and(|b| b.token == *token && b.key() == key) {
                    feed.pending = head.take();
                    *head = cursor.next_block().await.map_err(|e| self.version.read_error(e))?;
                }
                feed.exhausted = feed.pending.as_ref().is_none_or(|b| b.covered.is_none());
            }
            for feed in feeds.iter_mut() {
                if let (Source::Memtable(m), None) = (&feed.source, &feed.pending) {
                    let limits = self.limits;
                    feed.pending = m.with(|m| {
                        m.partition(*token, key)
                            .map(|p| p.block(slice, false, limits.rows, limits.bytes))
                    });
                }
            }
            let order = self.table.clustering_order.clone();
            let Some(mut block) = merge_ready(&self.table, &order, feeds, false) else {
                self.finish_partition();
                continue;
            };
            self.head.complete(&self.table, &mut block);
            for feed in feeds.iter_mut() {
                if matches!(feed.source, Source::Memtable(_)) {
                    feed.pending = None;
                }
            }
            match &block.covered {
                Some(b) => slice.start = b.clone(),
                None => self.finish_partition(),
            }
            return Ok(Some(block));
        }
    }

    /// Leaves the rest of the current partition unread.
    pub async fn skip_partition(&mut self) -> Result<(), ReadError> {
        let Some((token, key, _, _)) = self.current.take() else {
            return Ok(());
        };
        for (cursor, head) in &mut self.scans {
            while head.as_ref().is_some_and(|b| b.token == token && b.key() == key) {
                *head = cursor.next_block().await.map_err(|e| self.version.read_error(e))?;
            }
        }
        self.position = (token, successor(&key));
        Ok(())
    }

    fn finish_partition(&mut self) {
        if let Some((token, key, _, _)) = self.current.take() {
            self.position = (token, successor(&key));
        }
    }

    /// Chooses the least partition that any source has; None when there is none in the range.
    fn choose(&mut self) -> Option<Choice> {
        fn place(block: &PartitionBlock) -> (Token, &[u8]) {
            (block.token, block.key())
        }
        let (mut least, mut is_alone) = (None::<usize>, true);
        for (scan, (_, head)) in self.scans.iter().enumerate() {
            let Some(head) = head else { continue };
            let before = least.and_then(|least| self.scans[least].1.as_ref());
            match before.map_or(Ordering::Less, |before| place(head).cmp(&place(before))) {
                Ordering::Less => (least, is_alone) = (Some(scan), true),
                Ordering::Equal => is_alone = false,
                Ordering::Greater => {}
            }
        }
        let head = least.and_then(|least| self.scans[least].1.as_ref());
        let mut written: Option<(Token, Vec<u8>)> = None;
        for m in memtables(&self.version) {
            m.with_next((self.position.0, &self.position.1), |offered| {
                let is_behind = |place: (Token, &[u8])| place < offered;
                if !head.is_some_and(|head| is_behind(place(head)))
                    && !written.as_ref().is_some_and(|(token, key)| is_behind((*token, key)))
                {
                    written = Some((offered.0, offered.1.to_vec()));
                }
            });
        }
        if let (Some(scan), Some(head), None) = (least, head, &written)
            && is_alone
            && head.covered.is_none()
        {
            return (head.token <= self.range.to).then_some(Choice::Alone(scan));
        }
        let (token, key) = written.or_else(|| head.map(|head| (head.token, head.key().to_vec())))?;
        if token > self.range.to {
            return None;
        }
        let scans = self.scans.iter().enumerate();
        let scans = scans.filter(|(_, (_, head))| head.as_ref().is_some_and(|head| place(head) == (token, &key)));
        let feeds = scans.map(|(scan, _)| (scan, None)).collect();
        self.merge((token, key), feeds);
        Some(Choice::Merged)
    }

    /// Has these scans, of which blocks may be at hand, and the memtables merged for a partition.
    fn merge(&mut self, (token, key): (Token, Vec<u8>), scans: Vec<(usize, Option<PartitionBlock>)>) {
        let scans = scans.into_iter().map(|(scan, pending)| Feed {
            source: Source::Scan(scan),
            exhausted: pending.as_ref().is_some_and(|block| block.covered.is_none()),
            pending,
        });
        let memtables = memtables_of(&self.version, token).map(|memtable| Feed {
            source: Source::Memtable(memtable),
            pending: None,
            exhausted: false,
        });
        let feeds = scans.chain(memtables).collect();
        self.current = Some((token, key, ClusteringSlice::all(), feeds));
        self.head = Head::default();
    }

    /// Takes a partition that is one block of one sstable; None if something of it was written concurrently and must be
    /// merged with it.
    async fn take_alone(&mut self, scan: usize) -> Result<Option<PartitionBlock>, ReadError> {
        let (cursor, head) = &mut self.scans[scan];
        let block = head.take().expect("the chosen scan has a block");
        *head = cursor.next_block().await.map_err(|e| self.version.read_error(e))?;
        let is_written = memtables_of(&self.version, block.token)
            .any(|m| m.with(|m| m.partition(block.token, block.key()).is_some()));
        if is_written {
            self.merge((block.token, block.key().to_vec()), vec![(scan, Some(block))]);
            return Ok(None);
        }
        let (token, key) = &mut self.position;
        *token = block.token;
        key.clear();
        key.extend_from_slice(block.key());
        key.push(0);
        Ok(Some(block))
    }
}

/// How the next partition of a scan is read.
enum Choice {
    /// It is one block of the sstable with this number, and no other source has any of it.
    Alone(usize),
    /// The current partition was set, and is merged.
    Merged,
}

/// The least key above `key`.
fn successor(key: &[u8]) -> Vec<u8> {
    let mut next = key.to_vec();
    next.push(0);
    next
}
