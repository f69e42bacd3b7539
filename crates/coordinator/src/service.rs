//! The replica's side: what a shard does for a coordinator, here or on another node.

use std::rc::Rc;
use std::time::Duration;

use commitlog::{LogError, ReplayPosition};
use mutation::Mutation;
use replica::{PartitionRead, ReadError, Shard, TableStore, WriteError};
use schema::TableId;
use stdx::planted::{self, Bug};
use types::Token;
use types::token::token_of;

use crate::fence::Stamp;
use crate::message::{Answer, Extent, Malformed, ReadCommand};
use crate::stretch::Stretch;

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
    if let [(token, bytes)] = mutations {
        match apply_at_once(shard, *token, bytes.as_ref(), is_foreign, stamp)? {
            AtOnce::Done => return Ok(()),
            AtOnce::Written(position) => return durable(shard, position).await,
            AtOnce::Wait => {}
        }
    }
    let mut parts = Vec::with_capacity(mutations.len());
    for (token, bytes) in mutations {
        let mutation = whole(bytes.as_ref())?;
        let store = match shard.store(mutation.table) {
            Some(store) => store,
            None if is_foreign => store_of(shard, mutation.table).await?,
            None => return Err(ReplicaError::UnknownTable(mutation.table)),
        };
        check(&store, *token, &mutation, is_foreign)?;
        parts.push((store, *token, mutation));
    }
    let losses = shard.log.losses();
    let mut last = None;
    let in_one = all_or_nothing && parts.len() > 1;
    let mut left = &parts[..];
    while let Some((store, token, mutation)) = left.first() {
        let now = if in_one { left } else { &left[..1] };
        let stores = now.iter().map(|(store, ..)| &**store);
        let is_ready = match are_ready(stores.clone(), stamp) {
            Ok(true) => Ok(()),
            Ok(false) => ready(stores, stamp).await,
            Err(error) => Err(error),
        };
        if let Err(error) = is_ready {
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
    match commit(shard, losses, position)? {
        Some(position) => durable(shard, position).await,
        None => Ok(()),
    }
}

/// How far a write came without waiting.
pub(crate) enum AtOnce {
    /// It may be acknowledged.
    Done,
    /// It may be when the log is [`durable`] up to here.
    Written(ReplayPosition),
    /// Nothing was done: it has to wait for the table, a truncation or memory.
    Wait,
}

/// Writes one mutation as [`apply`] does, as far as that needs no waiting.
///
/// # Errors
/// As those of [`apply`].
pub(crate) fn apply_at_once(
    shard: &Rc<Shard>,
    token: Token,
    bytes: &[u8],
    is_foreign: bool,
    stamp: Stamp,
) -> Result<AtOnce, ReplicaError> {
    let mutation = whole(bytes)?;
    let store = match shard.store(mutation.table) {
        None if is_foreign => return Ok(AtOnce::Wait),
        None => return Err(ReplicaError::UnknownTable(mutation.table)),
        Some(store) => store,
    };
    check(&store, token, &mutation, is_foreign)?;
    if !stamp.check(&store)? {
        return Ok(AtOnce::Wait);
    }
    let losses = shard.log.losses();
    match shard.write(&store, token, &mutation) {
        Ok(position) => Ok(commit(shard, losses, position)?.map_or(AtOnce::Done, AtOnce::Written)),
        Err(WriteError::MemoryFull) => Ok(AtOnce::Wait),
        Err(e) => Err(e.into()),
    }
}

#[inline]
fn whole(bytes: &[u8]) -> Result<Mutation<'_>, ReplicaError> {
    Mutation::new(bytes).ok_or_else(|| ReplicaError::Malformed("expected a whole mutation".into()))
}

/// Whether a mutation is of this shard, and, if it came from elsewhere, what its table takes.
#[inline]
fn check(store: &TableStore, token: Token, mutation: &Mutation<'_>, is_foreign: bool) -> Result<(), ReplicaError> {
    if is_foreign {
        let valid = mutation.validate(&store.table().layout);
        valid.map_err(|e| ReplicaError::Malformed(e.to_string()))?;
    }
    match store.tablet(token) {
        Some(_) => Ok(()),
        None => Err(ReplicaError::NotHere(token)),
    }
}

/// Hands the log to the kernel, with what was written up to a position since its losses were counted. Up to where it has to be [`durable`] before that may
/// be acknowledged.
#[inline]
fn commit(shard: &Shard, losses: u64, position: ReplayPosition) -> Result<Option<ReplayPosition>, ReplicaError> {
    shard.commit().map_err(|e| ReplicaError::Log(e.to_string()))?;
    if shard.log.losses() != losses {
        return Err(ReplicaError::Log("a write to it failed meanwhile".to_owned()));
    }
    let must_wait = shard.log.is_batch() && !planted::is_planted(Bug::UnsyncedWrite);
    Ok(must_wait.then_some(position))
}

/// Waits until the log is durable up to a position.
pub(crate) async fn durable(shard: &Shard, position: ReplayPosition) -> Result<(), ReplicaError> {
    let synced = shard.log.synced(position).await;
    synced.map_err(|e| ReplicaError::Log(e.to_string()))
}

/// Whether all of these stores take a request now.
///
/// # Errors
/// When it is stale.
#[inline]
fn are_ready<'s>(mut stores: impl Iterator<Item = &'s TableStore>, stamp: Stamp) -> Result<bool, ReplicaError> {
    stores.try_fold(true, |are_ready, store| Ok(stamp.check(store)? && are_ready))
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
        if are_ready(stores.clone(), stamp)? {
            return Ok(());
        }
        let Some(store) = stores.clone().find(|store| stamp.check(store) == Ok(false)) else {
            continue;
        };
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
pub async fn read(shard: &Rc<Shard>, command: ReadCommand, stamp: Stamp) -> Result<Answer, ReplicaError> {
    let store = store_of(shard, command.table).await?;
    if !stamp.check(&store)? {
        ready(std::iter::once(&*store), stamp).await?;
    }
    let (mut stretch, extent) = Stretch::new(command, store.table());
    match extent {
        Extent::Partition { key, slices, reversed } => {
            let read = PartitionRead {
                token: token_of(&key),
                key,
                slices,
                reversed,
                limits: stretch.limits(),
            };
            stretch.partition(shard, &store, read).await?;
        }
        Extent::Tokens {
            after,
            to,
            from,
            inside,
        } => stretch.tokens(shard, &store, (after, to), from, inside).await?,
    }
    // What was truncated meanwhile may be there in part.
    stamp.check(&store)?;
    Ok(stretch.finish())
}
