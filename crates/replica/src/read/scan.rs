//! The one scan of a shard's tablets: all of their partitions in token order.

use std::rc::Rc;
use std::sync::Arc;

use memory::RowMemory;
use mutation::PartitionBlock;
use schema::Table;
use sstable::ChunkCache;
use types::Token;

use crate::read::{BlockLimits, ReadError, ScanReader};
use crate::tablets::tablet::{TableStore, Tablet, TokenRange, Version};

/// Reads the partitions of a table that a shard has in a range of tokens, tablet after tablet. A tablet that leaves the
/// shard during the scan is read as it was when the scan was made.
pub struct TabletScan {
    table: Arc<Table>,
    tablets: Rc<[Rc<Tablet>]>,
    /// The next tablet.
    next: usize,
    cache: Rc<ChunkCache>,
    range: TokenRange,
    from: (Token, Vec<u8>),
    limits: BlockLimits,
    reader: Option<ScanReader>,
    /// What the tablet had that the reader is of.
    version: Option<Rc<Version>>,
    is_of_unrepaired: bool,
    row_memory: Option<Arc<dyn RowMemory>>,
}

impl TabletScan {
    /// Reads the partitions of `range` whose (token, key) is at or above `from`, by this form of the table.
    pub fn new(
        table: Arc<Table>,
        store: &TableStore,
        cache: Rc<ChunkCache>,
        range: TokenRange,
        from: (Token, Vec<u8>),
        limits: BlockLimits,
    ) -> Self {
        let tablets = store.tablets();
        let is_before = |tablet: &Rc<Tablet>| {
            let to = tablet.range.to;
            to < from.0 || to <= range.after && range.after != TokenRange::ALL.after
        };
        Self {
            table,
            next: tablets.partition_point(is_before),
            tablets,
            cache,
            range,
            from,
            limits,
            reader: None,
            version: None,
            is_of_unrepaired: false,
            row_memory: None,
        }
    }

    /// Sets where memory for long rows is reserved before they are read; without it, they are read at once.
    #[must_use]
    pub fn with_row_memory(self, row_memory: Option<Arc<dyn RowMemory>>) -> Self {
        Self { row_memory, ..self }
    }

    /// Says how much of a partition is one block, of what is read from now on.
    pub fn set_limits(&mut self, limits: BlockLimits) {
        self.limits = limits;
    }

    /// Leaves out the sstables that a repair has marked.
    #[must_use]
    pub fn of_unrepaired(mut self) -> Self {
        self.is_of_unrepaired = true;
        self
    }

    /// Every partition of the table here.
    pub fn all(store: &TableStore, cache: Rc<ChunkCache>, limits: BlockLimits) -> Self {
        let first = (TokenRange::ALL.after, Vec::new());
        Self::new(store.table(), store, cache, TokenRange::ALL, first, limits)
    }

    /// The next merged block; None at the end of the range. Blocks are as those of [`ScanReader::next_block`].
    ///
    /// # Errors
    /// When a file cannot be read, or something of the tokens is missing.
    pub async fn next_block(&mut self) -> Result<Option<PartitionBlock>, ReadError> {
        loop {
            if let Some(reader) = &mut self.reader {
                if let Some(block) = reader.next_block().await? {
                    return Ok(Some(block));
                }
                self.reader = None;
                self.version = None;
            }
            match self.tablets.get(self.next).map(Rc::clone) {
                Some(tablet) if !self.is_behind(&tablet) => {
                    self.next += 1;
                    let version = tablet.version();
                    self.reader = Some(self.reader_of(&tablet, &version));
                    self.version = Some(version);
                }
                _ => return Ok(None),
            }
        }
    }

    /// Leaves the rest of the current partition unread.
    ///
    /// # Errors
    /// As [`TabletScan::next_block`].
    pub async fn skip_partition(&mut self) -> Result<(), ReadError> {
        match &mut self.reader {
            Some(reader) => reader.skip_partition().await,
            None => Ok(()),
        }
    }

    fn is_behind(&self, tablet: &Tablet) -> bool {
        tablet.range.after >= self.range.to && tablet.range.after != TokenRange::ALL.after
    }

    /// Whether the table still has the same tablets, and the tablet that is being read still has the memtables and
    /// sstables that it had when its reading began. A scan that is kept when it is not current keeps memory and files
    /// that nothing else needs.
    #[must_use]
    pub fn is_current(&self, store: &TableStore) -> bool {
        let is_same = |version: &Rc<Version>| {
            let tablet = self.tablets.get(self.next - 1);
            tablet.is_some_and(|tablet| tablet.with_version(|now| std::ptr::eq(now, Rc::as_ptr(version))))
        };
        Rc::ptr_eq(&self.tablets, &store.tablets()) && self.version.as_ref().is_none_or(is_same)
    }

    fn reader_of(&self, tablet: &Tablet, version: &Rc<Version>) -> ScanReader {
        tablet.count_request();
        let range = TokenRange {
            after: tablet.range.after.max(self.range.after),
            to: tablet.range.to.min(self.range.to),
        };
        // A file may have tokens of other tablets too: begin no earlier than the range does.
        let is_first = self.from.0 > range.after || range.after == TokenRange::ALL.after;
        let from = if is_first {
            self.from.clone()
        } else {
            (Token(range.after.0 + 1), Vec::new())
        };
        let (table, cache) = (self.table.clone(), self.cache.clone());
        let version = if self.is_of_unrepaired {
            version.unrepaired()
        } else {
            version.clone()
        };
        ScanReader::new(table, version, cache, range, from, self.limits).with_row_memory(self.row_memory.clone())
    }
}
