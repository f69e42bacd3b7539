//! The one reader of what a shard has of a table: slices of a partition, or the partitions of a token range.
//!
//! Reads of this shard's clients, a replica's part of the reads of others, and work that runs beside the data all read
//! through it. What it does for each of them: it counts the request, takes a row that is named whole by way of the row
//! cache, resumes the reader of the page before, and keeps the reader for the page that follows.

use std::rc::Rc;
use std::sync::Arc;

use memory::RowMemory;
use mutation::PartitionBlock;
use mutation::candidates::{CandidatesFrom, PassedPosition};
use mutation::terms::{IndexLookup, IndexTerms};
use schema::Table;
use types::Token;
use types::token::KeyHash;

use crate::read::indexed::CandidateReader;
use crate::read::indexed_scan::IndexedScan;
use crate::read::point::{RowName, row_of};
use crate::read::scan::TabletScan;
use crate::read::{BlockLimits, PartitionRead, PartitionReader, ReadError};
use crate::shard::Shard;
use crate::tablets::tablet::{TableStore, Tablet, TokenRange, Version};

/// How a shard reads.
#[derive(Clone, Default)]
pub struct ReadOptions {
    /// Leaves the row cache as it is, and what it keeps of files.
    pub bypasses_cache: bool,
    /// Where memory for long rows is reserved before they are read; without it, they are read at once.
    pub row_memory: Option<Arc<dyn RowMemory>>,
}

/// See the module.
pub struct ShardReader {
    shard: Rc<Shard>,
    part: Part,
}

enum Part {
    /// One row, by its whole key.
    Row(NamedRow),
    Slices(Rc<Tablet>, Box<PartitionReader>),
    /// Slices of one version of a tablet.
    Version(Box<PartitionReader>),
    Scan(Box<TabletScan>),
    /// Rows that indexes list.
    Indexed(Box<IndexedScan>),
    /// There is no more.
    End,
}

struct NamedRow {
    table: Arc<Table>,
    version: Rc<Version>,
    hash: KeyHash,
    read: PartitionRead,
    row_memory: Option<Arc<dyn RowMemory>>,
}

impl ShardReader {
    /// Reads slices of one partition by this form of its table. None when the shard does not have the token.
    pub fn of_partition(
        (shard, store): (&Rc<Shard>, &TableStore),
        table: Arc<Table>,
        read: PartitionRead,
        options: ReadOptions,
    ) -> Option<Self> {
        let tablet = store.tablet(read.hash.token())?;
        tablet.count_request();
        let version = tablet.version();
        let is_row = |read: &PartitionRead| matches!(&read.slices[..], [slice] if row_of(&table, slice).is_some());
        let part = if !options.bypasses_cache && is_row(&read) {
            Part::Row(NamedRow {
                hash: read.hash,
                table,
                version,
                read,
                row_memory: options.row_memory,
            })
        } else {
            let cache = shard.cache_of_read(options.bypasses_cache);
            let mut reader = PartitionReader::resumed(&shard.paused_readers, table, version, cache, read);
            reader.set_row_memory(options.row_memory);
            Part::Slices(tablet, Box::new(reader))
        };
        let shard = shard.clone();
        Some(Self { shard, part })
    }

    /// Reads the partitions of `range` whose (token, key) is at or above `from`, by this form of the table, of the
    /// tablets that the shard has now.
    pub fn of_tokens(
        (shard, store): (&Rc<Shard>, &TableStore),
        table: Arc<Table>,
        (range, from): (TokenRange, (Token, Vec<u8>)),
        limits: BlockLimits,
        options: ReadOptions,
    ) -> Self {
        let cache = shard.cache_of_read(options.bypasses_cache);
        let scan = TabletScan::new(table, store, cache, range, from, limits).with_row_memory(options.row_memory);
        Self {
            shard: shard.clone(),
            part: Part::Scan(Box::new(scan)),
        }
    }

    /// Reads the rows that indexes list of `range` after a position, by this form of the table, of the tablets that the
    /// shard has now. Blocks have what surrounds the rows in their partitions, and rows that have changed since they
    /// were listed.
    pub fn of_index(
        (shard, store): (&Rc<Shard>, &TableStore),
        table: Arc<Table>,
        (range, from): (TokenRange, CandidatesFrom),
        conditions: Vec<IndexLookup>,
        (limits, options): (BlockLimits, ReadOptions),
    ) -> Self {
        let cache = shard.cache_of_read(options.bypasses_cache);
        let candidates = CandidateReader::new(table.clone(), store, cache.clone(), (range, from), conditions);
        let scan = IndexedScan::new(table, cache, candidates, limits, options.row_memory);
        Self {
            shard: shard.clone(),
            part: Part::Indexed(Box::new(scan)),
        }
    }

    /// Reads the rows that indexes list of slices of a partition. None: to read the slices costs less, as the partition
    /// is small, or is read backwards, or the indexes list whole partitions.
    pub fn of_listed_partition(
        (shard, store): (&Rc<Shard>, &TableStore),
        table: &Arc<Table>,
        read: &PartitionRead,
        lookups: &[IndexLookup],
        options: &ReadOptions,
    ) -> Option<Self> {
        let first = read.slices.first().filter(|_| !read.reversed)?;
        let lists_rows = |lookup: &IndexLookup| {
            let index = table.indexes.iter().find(|index| index.id == lookup.id);
            let terms = index.and_then(|index| IndexTerms::of(table, index));
            terms.is_some_and(|terms| !terms.lists_partitions())
        };
        let lookups: Vec<IndexLookup> = lookups.iter().filter(|lookup| lists_rows(lookup)).cloned().collect();
        let (token, key) = (read.hash.token(), &read.key);
        let tablet = store.tablet(token)?;
        if lookups.is_empty() || !tablet.version().may_have_long(read.hash, key) {
            return None;
        }
        let from = CandidatesFrom {
            token,
            key: key.clone(),
            passed: PassedPosition::To(first.start.clone()),
        };
        let after = Token(token.0.saturating_sub(1));
        let extent = (TokenRange { after, to: token }, from);
        let cache = shard.cache_of_read(options.bypasses_cache);
        let candidates = CandidateReader::new(table.clone(), store, cache.clone(), extent, lookups);
        let scan = IndexedScan::new(
            table.clone(),
            cache,
            candidates,
            read.limits,
            options.row_memory.clone(),
        );
        let part = Part::Indexed(Box::new(scan.within(key, &read.slices)));
        let shard = shard.clone();
        Some(Self { shard, part })
    }

    /// Reads a partition of one version of a tablet, for instance one that has a single file; leaves caches as they
    /// are.
    pub fn of_version(shard: &Rc<Shard>, table: Arc<Table>, version: Rc<Version>, read: PartitionRead) -> Self {
        let reader = PartitionReader::new(table, version, shard.cache_of_read(true), read);
        Self {
            shard: shard.clone(),
            part: Part::Version(Box::new(reader)),
        }
    }

    /// Says how much of a partition is one block, of what a scan reads from now on.
    pub fn set_limits(&mut self, limits: BlockLimits) {
        match &mut self.part {
            Part::Scan(scan) => scan.set_limits(limits),
            Part::Indexed(scan) => scan.set_limits(limits),
            Part::Row(_) | Part::Slices(..) | Part::Version(_) | Part::End => {}
        }
    }

    /// Whether what is read next is one row that was named whole: its block ends the read.
    #[must_use]
    pub fn is_of_row(&self) -> bool {
        matches!(self.part, Part::Row(_))
    }

    /// The next block, as [`PartitionReader::next_block`] and [`TabletScan::next_block`] say; None at the end.
    ///
    /// # Errors
    /// When a file cannot be read, something of the tokens is missing, or no memory can be reserved.
    pub async fn next_block(&mut self) -> Result<Option<PartitionBlock>, ReadError> {
        match &mut self.part {
            Part::End => Ok(None),
            Part::Scan(scan) => scan.next_block().await,
            Part::Indexed(scan) => scan.next_block().await,
            Part::Row(row) => {
                let NamedRow {
                    table,
                    version,
                    hash,
                    read,
                    row_memory,
                } = row;
                let name = RowName {
                    hash: *hash,
                    key: &read.key,
                    clustering: &read.slices[0].start.prefix,
                };
                let block = version.read_row_within(table, &self.shard.cache, name, row_memory.take());
                let block = block.await;
                self.part = Part::End;
                block
            }
            Part::Slices(_, reader) | Part::Version(reader) => reader.next_block().await,
        }
    }

    /// Leaves the rest of the current partition unread.
    ///
    /// # Errors
    /// As [`ShardReader::next_block`].
    pub async fn skip_partition(&mut self) -> Result<(), ReadError> {
        match &mut self.part {
            Part::Scan(scan) => scan.skip_partition().await,
            Part::Indexed(scan) => scan.skip_partition().await,
            Part::Row(_) | Part::Slices(..) | Part::Version(_) | Part::End => {
                self.part = Part::End;
                Ok(())
            }
        }
    }

    /// Whether the page that follows would save reads of files by resuming this reader.
    #[must_use]
    pub fn is_worth_keeping(&self) -> bool {
        matches!(&self.part, Part::Slices(_, reader) if reader.is_in_files())
    }

    /// Keeps the reader of a partition for the page that follows, which begins inside the block that was given last.
    pub fn keep(self, last: PartitionBlock) {
        if let Part::Slices(tablet, reader) = self.part {
            self.shard.paused_readers.pause(&tablet, *reader, last);
        }
    }
}
