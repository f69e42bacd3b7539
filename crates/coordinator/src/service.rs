//! The replica's side: what a shard does for a coordinator, here or on another node.

use std::rc::Rc;
use std::time::Duration;

use commitlog::LogError;
use mutation::{Bound, ClusteringSlice, Mutation, PartitionBlock};
use replica::{
    BlockLimits, PartitionRead, PartitionReader, ReadError, ScanReader, Shard, TableStore, TokenRange, WriteError,
    row_of,
};
use schema::TableId;
use types::Token;
use types::token::token_of;

use crate::digest::Digest;
use crate::fence::Stamp;
use crate::message::{Answer, Extent, Malformed, ReadCommand};

/// How long a request waits for a table that this node has not heard of yet: the coordinator may be ahead of it.
const SCHEMA_WAIT_MAX: Duration = Duration::from_secs(2);
const SCHEMA_POLL: Duration = Duration::from_millis(5);
/// How long a request waits for a truncation that its coordinator knows and this shard is not done with.
const TRUNCATION_WAIT_MAX: Duration = Duration::from_secs(2);

/// Why a replica did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplicaError {
    /// This node has no such table.
    UnknownTable(TableId),
    /// This shard does not have the tokens.
    NotHere(Token),
    /// The request is not what a coordinator sends.
    Malformed(String),
    /// The write is larger than the log takes; nothing was done, and nothing ever will be.
    TooLarge(String),
    /// There is no room; nothing was done.
    Overloaded(String),
    /// The request was routed by a version of the cluster that is over; nothing was done.
    Stale(String),
    /// Some of the request's mutations were written and others were not.
    Partial(String),
    /// The log did not take the write: it may come back or not.
    Log(String),
    /// The data could not be read.
    Read(String),
}

impl ReplicaError {
    /// Whether nothing of the request was done.
    pub(crate) fn did_nothing(&self) -> bool {
        !matches!(self, Self::Log(_) | Self::Partial(_))
    }
}

impl std::fmt::Display for ReplicaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnknownTable(id) => write!(
                f,
                "no table has the id {}: it was dropped, or is not known here yet",
                id.0
            ),
            Self::NotHere(token) => write!(f, "token {} is not of this shard", token.0),
            Self::Malformed(reason) => write!(f, "malformed request: {reason}"),
            Self::TooLarge(reason) | Self::Stale(reason) => f.write_str(reason),
            Self::Overloaded(reason) => write!(f, "the shard refuses the write: {reason}. It was not applied"),
            Self::Partial(reason) => write!(f, "a part of the write was applied, and a part was not: {reason}"),
            Self::Log(reason) => {
                write!(
                    f,
                    "the write failed in the commitlog: {reason}. It may or may not be applied"
                )
            }
            Self::Read(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for ReplicaError {}

impl From<Malformed> for ReplicaError {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed.to_string())
    }
}

impl From<ReadError> for ReplicaError {
    fn from(error: ReadError) -> Self {
        Self::Read(error.to_string())
    }
}

impl From<WriteError> for ReplicaError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::MemoryFull => Self::Overloaded(error.to_string()),
            WriteError::Log(e @ LogError::TooLarge { .. }) => Self::TooLarge(e.to_string()),
            WriteError::Log(e) => Self::Log(e.to_string()),
        }
    }
}

/// The table's data on this shard, once this node knows the table.
pub(crate) async fn store_of(shard: &Shard, table: TableId) -> Result<Rc<TableStore>, ReplicaError> {
    if let Some(store) = shard.store(table) {
        return Ok(store);
    }
    let deadline = runtime::now() + SCHEMA_WAIT_MAX;
    loop {
        if let Some(store) = shard.store(table) {
            return Ok(store);
        }
        if runtime::now() >= deadline {
            return Err(ReplicaError::UnknownTable(table));
        }
        runtime::sleep(SCHEMA_POLL).await;
    }
}

/// Writes mutations of this shard's tokens and waits until they may be acknowledged. With `all_or_nothing` they are one record of
/// the log. With `is_foreign` their bytes are checked first. Whether `stamp` is stale is checked in the moment of writing.
///
/// # Errors
/// When a table is unknown, memory stays full, or the log fails; what was written before stays.
pub async fn apply(
    shard: &Rc<Shard>,
    mutations: &[(Token, impl AsRef<[u8]>)],
    all_or_nothing: bool,
    is_foreign: bool,
    stamp: Stamp,
) -> Result<(), ReplicaError> {
    let mut parts = Vec::with_capacity(mutations.len());
    for (token, bytes) in mutations {
        let mutation =
            Mutation::new(bytes.as_ref()).ok_or_else(|| ReplicaError::Malformed("expected a whole mutation".into()))?;
        let store = if is_foreign {
            let store = store_of(shard, mutation.table).await?;
            let valid = mutation.validate(&store.table().layout);
            valid.map_err(|e| ReplicaError::Malformed(e.to_string()))?;
            store
        } else {
            let known = shard.store(mutation.table);
            known.ok_or(ReplicaError::UnknownTable(mutation.table))?
        };
        if store.tablet(*token).is_none() {
            return Err(ReplicaError::NotHere(*token));
        }
        parts.push((store, *token, mutation));
    }
    let losses = shard.log.losses();
    let mut last = None;
    let in_one = all_or_nothing && parts.len() > 1;
    let mut left = &parts[..];
    while let Some((store, token, mutation)) = left.first() {
        let now = if in_one { left } else { &left[..1] };
        if let Err(error) = ready(now.iter().map(|(store, ..)| &**store), stamp).await {
            return Err(if last.is_none() {
                error
            } else {
                ReplicaError::Partial(error.to_string())
            });
        }
        let written = if in_one {
            shard.write_batch(left)
        } else {
            shard.write(store, *token, mutation)
        };
        let error = match written {
            Ok(position) => {
                last = Some(position);
                left = if in_one { &[] } else { &left[1..] };
                continue;
            }
            Err(WriteError::MemoryFull) => shard.room().await.err().map(ReplicaError::from),
            Err(e) => Some(e.into()),
        };
        match error {
            None => {}
            Some(error) if last.is_none() => return Err(error),
            // What was written before has to be answered for.
            Some(error) => return Err(ReplicaError::Partial(error.to_string())),
        }
    }
    let Some(position) = last else { return Ok(()) };
    shard.commit().map_err(|e| ReplicaError::Log(e.to_string()))?;
    if shard.log.losses() != losses {
        return Err(ReplicaError::Log("a write to it failed meanwhile".to_owned()));
    }
    if shard.log.is_batch() {
        let synced = shard.log.synced(position).await;
        synced.map_err(|e| ReplicaError::Log(e.to_string()))?;
    }
    Ok(())
}

/// Waits until stores take a request; they still do when this returns.
///
/// # Errors
/// When it is stale, or a truncation takes too long.
pub(crate) async fn ready<'s>(
    stores: impl Iterator<Item = &'s TableStore> + Clone,
    stamp: Stamp,
) -> Result<(), ReplicaError> {
    let mut deadline = None;
    loop {
        let mut waits_for = None;
        for store in stores.clone() {
            if !stamp.check(store)? {
                waits_for = Some(store);
            }
        }
        let Some(store) = waits_for else { return Ok(()) };
        let until = *deadline.get_or_insert_with(|| runtime::now() + TRUNCATION_WAIT_MAX);
        let done = store.admission_changed.notified();
        if stamp.check(store)? {
            continue;
        }
        if runtime::timeout_at(until, done).await.is_err() {
            return Err(ReplicaError::Overloaded("the table is being truncated".to_owned()));
        }
    }
}

/// Reads one stretch of what this shard has.
///
/// # Errors
/// When the table is unknown or a file cannot be read, and when `stamp` is stale at the begin or at the end.
pub async fn read(shard: &Rc<Shard>, command: &ReadCommand, stamp: Stamp) -> Result<Answer, ReplicaError> {
    let store = store_of(shard, command.table).await?;
    ready(std::iter::once(&*store), stamp).await?;
    let answer = read_from(shard, &store, command).await?;
    // What was truncated meanwhile may be there in part.
    stamp.check(&store)?;
    Ok(answer)
}

async fn read_from(shard: &Rc<Shard>, store: &Rc<TableStore>, command: &ReadCommand) -> Result<Answer, ReplicaError> {
    let mut stretch = Stretch::new(command);
    match &command.extent {
        Extent::Partition { key, slices, reversed } => {
            let token = token_of(key);
            let read = PartitionRead {
                token,
                key: key.clone(),
                slices: slices.clone(),
                reversed: *reversed,
                limits: stretch.limits(),
            };
            stretch.partition(shard, store, read).await?;
        }
        Extent::Tokens {
            after,
            to,
            from,
            inside,
        } => {
            stretch
                .tokens(shard, store, (*after, *to), from.clone(), inside.clone())
                .await?
        }
    }
    Ok(stretch.finish(store))
}

/// An answer in the making.
struct Stretch<'c> {
    command: &'c ReadCommand,
    blocks: Vec<PartitionBlock>,
    rows: usize,
    bytes: usize,
    is_full: bool,
}

impl<'c> Stretch<'c> {
    fn new(command: &'c ReadCommand) -> Self {
        Self {
            command,
            blocks: Vec::new(),
            rows: 0,
            bytes: 0,
            is_full: false,
        }
    }

    fn limits(&self) -> BlockLimits {
        BlockLimits {
            rows: self.command.rows.saturating_sub(self.rows).max(1),
            bytes: self.command.bytes.saturating_sub(self.bytes).max(1),
        }
    }

    fn push(&mut self, block: PartitionBlock) {
        self.rows += block.len();
        self.bytes += block.size();
        self.is_full = self.rows >= self.command.rows || self.bytes >= self.command.bytes;
        self.blocks.push(block);
    }

    /// Slices of one partition. A block that ends a slice but not the last says so by the slice's end.
    async fn partition(
        &mut self,
        shard: &Rc<Shard>,
        store: &Rc<TableStore>,
        read: PartitionRead,
    ) -> Result<(), ReplicaError> {
        let tablet = store.tablet(read.token).ok_or(ReplicaError::NotHere(read.token))?;
        let (table, version) = (store.table(), tablet.version());
        if let [slice] = &read.slices[..]
            && let Some(clustering) = row_of(&table, slice)
        {
            let row = version.read_row(&table, &shard.cache, read.token, &read.key, clustering);
            if let Some(block) = row.await? {
                self.push(block);
            }
            return Ok(());
        }
        // In reading order, the first to end last.
        let mut ends: Vec<Bound> = if read.reversed {
            read.slices.iter().map(|s| s.start.clone()).collect()
        } else {
            read.slices.iter().rev().map(|s| s.end.clone()).collect()
        };
        let cache = shard.cache.clone();
        let mut reader = PartitionReader::new(table, version, cache, read);
        while let Some(mut block) = reader.next_block().await? {
            // Slices of which nothing is here end without a block.
            ends.truncate(reader.slices_left() + 1);
            if block.covered.is_none() && reader.slices_left() > 0 {
                block.covered = ends.pop();
            }
            let is_last = block.covered.is_none();
            self.push(block);
            if is_last || self.is_full {
                return Ok(());
            }
            give_way().await;
        }
        // A slice without any block comes last, or the partition is not here at all: nothing is behind what was read.
        if let Some(last) = self.blocks.last_mut() {
            last.covered = None;
        }
        Ok(())
    }

    async fn tokens(
        &mut self,
        shard: &Rc<Shard>,
        store: &Rc<TableStore>,
        (after, to): (Token, Token),
        mut from: (Token, Vec<u8>),
        inside: Option<Bound>,
    ) -> Result<(), ReplicaError> {
        // Who asks may not know yet with how many shards this node was started: what another shard has would be missing.
        if !store.covers(after, to) {
            return Err(ReplicaError::NotHere(to));
        }
        if let Some(bound) = inside {
            let read = PartitionRead {
                token: from.0,
                key: from.1.clone(),
                slices: vec![ClusteringSlice {
                    start: bound,
                    end: Bound::top(),
                }],
                reversed: false,
                limits: self.limits(),
            };
            self.partition(shard, store, read).await?;
            if self.is_full {
                return Ok(());
            }
            from.1.push(0);
        }
        for tablet in &store.tablets {
            let is_below = tablet.range.to < from.0 || tablet.range.to <= after && after.0 != i64::MIN;
            if is_below || (tablet.range.after >= to && tablet.range.after.0 != i64::MIN) {
                continue;
            }
            let range = TokenRange {
                after: tablet.range.after.max(after),
                to: tablet.range.to.min(to),
            };
            let first = if from.0 <= range.after && range.after.0 != i64::MIN {
                (Token(range.after.0 + 1), Vec::new())
            } else {
                from.clone()
            };
            let cache = shard.cache.clone();
            let mut reader = ScanReader::new(store.table(), tablet.version(), cache, range, first, self.limits());
            while let Some(block) = reader.next_block().await? {
                self.push(block);
                if self.is_full {
                    return Ok(());
                }
                give_way().await;
            }
        }
        Ok(())
    }

    fn finish(self, store: &TableStore) -> Answer {
        let table = store.table();
        let mut digest = Digest::default();
        for block in &self.blocks {
            digest.add(&table, block, self.command.now);
        }
        let is_partition = matches!(self.command.extent, Extent::Partition { .. });
        let last = self.blocks.last();
        let is_whole = last.is_none_or(|b| b.covered.is_none());
        let is_all = if is_partition { is_whole } else { !self.is_full };
        let mut end = Vec::new();
        if let (false, Some(last)) = (is_all, last) {
            end.extend_from_slice(last.key());
            if let Some(bound) = &last.covered {
                end.push(bound.kind as u8);
                end.extend_from_slice(&bound.prefix);
            }
        }
        Answer {
            digest: digest.finish(&end),
            blocks: if self.command.digest_only {
                Vec::new()
            } else {
                self.blocks
            },
            is_all,
        }
    }
}

async fn give_way() {
    if runtime::should_yield() {
        runtime::yield_now().await;
    }
}
