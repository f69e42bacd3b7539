//! Reads of what this shard has, for clients whose level it satisfies alone, and for work that runs beside the data.
//!
//! A read gives blocks as a [`ReplicatedRead`](crate::ReplicatedRead) does, whose every block other replicas vouch for.

mod row;
mod shards;
mod source;
mod write;

use std::rc::Rc;
use std::sync::Arc;

use mutation::candidates::CandidatesFrom;
use mutation::terms::IndexLookup;
use mutation::{ClusteringSlice, PartitionBlock};
use replica::{BlockLimits, PartitionRead, ReadOptions, ShardReader, TableStore, TokenRange};
use schema::Table;
use types::Token;
use types::token::KeyHash;

use crate::service::ReplicaError;
use crate::{Context, Stretch};

pub use row::{LoadedRow, OwnRow, OwnTable};
pub use shards::{TokenOwners, on_metadata_shard, on_shard};
pub use source::OwnSource;
pub use write::Unsynced;

/// What this shard has of an extent, block by block.
pub struct OwnRead {
    reader: ShardReader,
}

/// A partition that this shard has.
pub struct OwnPartition<'k> {
    store: Rc<TableStore>,
    hash: KeyHash,
    key: &'k [u8],
    /// Those that may have it.
    sstables: u64,
}

impl From<Stretch> for BlockLimits {
    fn from(stretch: Stretch) -> Self {
        let Stretch { rows, bytes } = stretch;
        Self { rows, bytes }
    }
}

/// What this shard has, and which other shards of this node have the rest.
pub struct Own {
    context: Rc<Context>,
}

impl Own {
    pub(crate) fn new(context: Rc<Context>) -> Self {
        Self { context }
    }

    /// Finds a partition that is to be read from this shard.
    ///
    /// # Errors
    /// When this shard does not have the table or the token.
    pub fn partition<'k>(&self, table: &Table, key: &'k [u8]) -> Result<OwnPartition<'k>, ReplicaError> {
        let store = self.store(table)?;
        let hash = KeyHash::of(key);
        let token = hash.token();
        let tablet = store.tablet(token).ok_or(ReplicaError::NotHere(token))?;
        store.metrics.note_read(key);
        Ok(OwnPartition {
            sstables: tablet.with_version(|version| version.sstables_for(hash)),
            store,
            hash,
            key,
        })
    }

    /// Whether this shard has the token of a table.
    #[must_use]
    pub fn has_token(&self, table: &Table, token: Token) -> bool {
        let store = self.context.shard.store(table.id);
        store.is_some_and(|store| store.tablet(token).is_some())
    }

    /// Reads the partitions of the tokens `after..=to` that this shard has, from the partition at or above `from` on.
    ///
    /// # Errors
    /// When this shard does not have the table.
    pub fn read_tokens(
        &self,
        table: &Arc<Table>,
        ((after, to), from): ((Token, Token), (Token, Vec<u8>)),
        stretch: Stretch,
        options: ReadOptions,
    ) -> Result<OwnRead, ReplicaError> {
        let store = self.store(table)?;
        let (shard, extent) = ((&self.context.shard, &*store), (TokenRange { after, to }, from));
        let reader = ShardReader::of_tokens(shard, table.clone(), extent, stretch.into(), options);
        Ok(OwnRead { reader })
    }

    /// Reads the rows that indexes list for a query in the tokens `after..=to`, after a position, of what this shard
    /// has.
    ///
    /// # Errors
    /// When this shard does not have the table.
    pub fn read_listed(
        &self,
        table: &Arc<Table>,
        ((after, to), from): ((Token, Token), CandidatesFrom),
        lookups: Vec<IndexLookup>,
        (stretch, options): (Stretch, ReadOptions),
    ) -> Result<OwnRead, ReplicaError> {
        let store = self.store(table)?;
        let (shard, extent) = ((&self.context.shard, &*store), (TokenRange { after, to }, from));
        let reader = ShardReader::of_index(shard, table.clone(), extent, lookups, (stretch.into(), options));
        Ok(OwnRead { reader })
    }

    fn store(&self, table: &Table) -> Result<Rc<TableStore>, ReplicaError> {
        self.context
            .shard
            .store(table.id)
            .ok_or(ReplicaError::UnknownTable(table.id))
    }
}

impl OwnPartition<'_> {
    /// Whether anything of the partition may be here: false when no memtable has it, and no file by its filter.
    ///
    /// # Errors
    /// When a file with its token is quarantined.
    pub fn may_be_there(&self) -> Result<bool, ReplicaError> {
        let Some(tablet) = self.store.tablet(self.hash.token()) else {
            return Ok(false);
        };
        Ok(tablet.with_version(|version| version.may_have(self.hash, self.key))?)
    }

    /// Reads the rows that indexes list of slices of it. None: to read the slices costs less.
    pub fn read_listed(
        &self,
        own: &Own,
        table: &Arc<Table>,
        slices: Vec<ClusteringSlice>,
        lookups: &[IndexLookup],
        (stretch, options): (Stretch, &ReadOptions),
    ) -> Option<OwnRead> {
        let read = PartitionRead {
            hash: self.hash,
            key: self.key.to_vec(),
            slices,
            reversed: false,
            limits: stretch.into(),
        };
        let shard = (&own.context.shard, &*self.store);
        let reader = ShardReader::of_listed_partition(shard, table, &read, lookups, options)?;
        Some(OwnRead { reader })
    }

    /// Reads slices of it, in clustering order and disjoint.
    ///
    /// # Errors
    /// When the token is no longer here.
    pub fn read(
        &self,
        own: &Own,
        table: &Arc<Table>,
        (slices, reversed): (Vec<ClusteringSlice>, bool),
        stretch: Stretch,
        options: ReadOptions,
    ) -> Result<OwnRead, ReplicaError> {
        let read = PartitionRead {
            hash: self.hash,
            key: self.key.to_vec(),
            slices,
            reversed,
            limits: stretch.into(),
        };
        let shard = (&own.context.shard, &*self.store);
        let reader = ShardReader::of_partition(shard, table.clone(), read, options);
        let reader = reader.ok_or(ReplicaError::NotHere(self.hash.token()))?;
        Ok(OwnRead { reader })
    }

    /// Counts what a read of the partition has met: living rows, and tombstones.
    pub fn note_met(&self, met: (u64, u64)) {
        self.store.metrics.note_partition_read(self.sstables, met);
    }
}

impl OwnRead {
    /// Says how much of a partition is one block, of what a scan reads from now on.
    pub fn set_stretch(&mut self, stretch: Stretch) {
        self.reader.set_limits(stretch.into());
    }

    /// The next block; None at the end.
    ///
    /// # Errors
    /// When a file cannot be read, something of the tokens is missing, or no memory can be reserved for a long row.
    pub async fn next_block(&mut self) -> Result<Option<PartitionBlock>, ReplicaError> {
        Ok(self.reader.next_block().await?)
    }

    /// Leaves the rest of the current partition unread.
    ///
    /// # Errors
    /// As [`OwnRead::next_block`].
    pub async fn skip_partition(&mut self) -> Result<(), ReplicaError> {
        Ok(self.reader.skip_partition().await?)
    }

    /// Keeps the reader of a partition for the page that follows, which begins inside the block that was given last.
    pub fn keep(self, last: PartitionBlock) {
        self.reader.keep(last);
    }
}
