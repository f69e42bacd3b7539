//! The replica's side of reads: what a shard reads for a coordinator, here or on another node. Its side of writes is
//! `apply.rs`.

use std::rc::Rc;
use std::time::Duration;

use replica::{PartitionRead, ReadError, Shard, TableStore};
use schema::TableId;
use types::Token;
use types::token::KeyHash;

use crate::fence::Stamp;
use crate::message::{Answer, Extent, Malformed, ReadCommand};
use crate::read::stretch::Stretch;
use crate::trace;
use crate::write::apply::{range_ready, ready};

/// How long a request waits for a table that this node has not heard of yet: the coordinator may be ahead of it.
const SCHEMA_WAIT_MAX: Duration = Duration::from_secs(2);

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
    /// The disk of this node is full, and the write adds data; nothing was done.
    DiskFull(String),
    /// The request was routed by a version of the cluster that is over; nothing was done.
    Stale(String),
    /// Some of the request's mutations were written and others were not.
    Partial(String),
    /// The log did not take the write: it may come back or not.
    Log(String),
    /// The data could not be read.
    Read(String),
    /// An index that the read needs is not built here yet.
    NotIndexed(String),
    /// A leader of counters cannot read what it has added so far; nothing was added.
    CannotLead(String),
}

impl ReplicaError {
    /// Whether nothing of the request was done.
    pub(crate) fn did_nothing(&self) -> bool {
        !matches!(self, Self::Log(_) | Self::Partial(_))
    }

    /// The error of a read that comes before an addition to a counter: another replica may be able to add.
    pub(crate) fn before_adding(self) -> Self {
        match self {
            Self::Read(reason) => Self::CannotLead(reason),
            other => other,
        }
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
            Self::TooLarge(reason) | Self::Stale(reason) | Self::DiskFull(reason) => f.write_str(reason),
            Self::Overloaded(reason) => write!(f, "the shard refuses the request, which has had no effect: {reason}"),
            Self::Partial(reason) => write!(f, "a part of the write was applied, and a part was not: {reason}"),
            Self::Log(reason) => {
                write!(
                    f,
                    "the write failed in the commitlog: {reason}. It may or may not be applied"
                )
            }
            Self::Read(reason) | Self::NotIndexed(reason) => f.write_str(reason),
            Self::CannotLead(reason) => write!(f, "{reason}. Nothing was added"),
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
        match error {
            ReadError::NoRowMemory(why) => Self::Overloaded(why),
            ReadError::NoIndex | ReadError::NotIndexed { .. } => Self::NotIndexed(error.to_string()),
            error => Self::Read(error.to_string()),
        }
    }
}

/// The table's data on this shard, once this node knows the table.
pub(crate) async fn store_of(shard: &Shard, table: TableId) -> Result<Rc<TableStore>, ReplicaError> {
    let mut deadline = None;
    loop {
        let added = shard.table_added.notified();
        if let Some(store) = shard.store(table) {
            return Ok(store);
        }
        let deadline = *deadline.get_or_insert_with(|| runtime::now() + SCHEMA_WAIT_MAX);
        if runtime::timeout_at(deadline, added).await.is_err() {
            return Err(ReplicaError::UnknownTable(table));
        }
    }
}

/// Reads one stretch of what this shard has.
///
/// # Errors
/// When the table is unknown or a file cannot be read, and when `stamp` is stale at the begin or at the end.
pub async fn read(shard: &Rc<Shard>, command: ReadCommand, stamp: Stamp) -> Result<Answer, ReplicaError> {
    let store = store_of(shard, command.table).await?;
    let (stretch, extent) = Stretch::new(command, store.table());
    fill(shard, &store, stretch, extent, stamp).await
}

/// As [`read`], without a digest: no other replica is asked.
///
/// # Errors
/// As those of [`read`].
pub(crate) async fn read_undigested(
    shard: &Rc<Shard>,
    command: ReadCommand,
    stamp: Stamp,
) -> Result<Answer, ReplicaError> {
    let store = store_of(shard, command.table).await?;
    let (stretch, extent) = Stretch::new(command, store.table());
    fill(shard, &store, stretch.without_digest(), extent, stamp).await
}

async fn fill(
    shard: &Rc<Shard>,
    store: &TableStore,
    mut stretch: Stretch,
    extent: Extent,
    stamp: Stamp,
) -> Result<Answer, ReplicaError> {
    match extent {
        Extent::Partition { key, slices, reversed } => {
            let hash = KeyHash::of(&key);
            let token = hash.token();
            if !stamp.check_at(store, token)? {
                ready(std::iter::once((store, token)), stamp).await?;
            }
            let read = PartitionRead {
                hash,
                key,
                slices,
                reversed,
                limits: stretch.limits(),
            };
            store.metrics.note_read(&read.key);
            let sstables = store
                .tablet(token)
                .map(|tablet| tablet.with_version(|version| version.sstables_for(hash)));
            let done = stretch.partition((shard, store), read).await;
            done.map_err(|e| stamp.or_moved(store, e))?;
            store.metrics.note_partition_read(sstables.unwrap_or(0), stretch.met());
        }
        Extent::Tokens {
            after,
            to,
            from,
            inside,
        } => {
            range_ready(store, (after, to), stamp).await?;
            let done = stretch.tokens((shard, store), (after, to), from, inside).await;
            done.map_err(|e| stamp.or_moved(store, e))?;
        }
    }
    // If the table was truncated during the read, the answer may have a part of the removed rows.
    stamp.check(store)?;
    let (live, tombstones) = stretch.met();
    trace::note(|| format!("Read {live} live rows and {tombstones} tombstone cells"));
    Ok(stretch.finish())
}
