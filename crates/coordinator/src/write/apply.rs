//! The one place where a shard applies mutations of any origin: log, memtable, and when that may be acknowledged.
//!
//! A mutation that needs no waiting is applied in the call that brings it ([`apply_at_once`]); what has to wait for its
//! table, a truncation or memory is a future ([`apply`]). Before a mutation is applied its stamp is compared with the
//! table (`fence.rs`), in the same step.
//!
//! Acknowledgements wait for the log. Those of one turn of the shard share one write of it (`commit.rs`).

use std::rc::Rc;
use std::time::Duration;

use commitlog::{LogError, LogMark, LogPlace, Logged, ReplayPosition};
use mutation::{Located, Mutation};
use replica::write::aside::{is_long, is_long_alone, may_be_long};
use replica::{Shard, TableStore, WriteError};
use runtime::Instant;
use smallvec::SmallVec;
use stdx::planted::{self, Bug};
use stdx::preempt;
use types::Token;

use crate::fence::Stamp;
use crate::service::{ReplicaError, store_of};
use crate::trace;
use crate::{Coordinator, Timeouts};

/// How long a request waits for a truncation that its coordinator knows and this shard is not done with. The truncation
/// waits for requests in its turn, which may wait for this one at another node, so this one gives way before they time
/// out.
const TRUNCATION_WAIT_MAX: Duration = Duration::from_secs(2);

/// How long a request waits for a tablet that moves or is split: the longest timeout of requests for one partition.
/// This shard does not know the request's own timeout, and the coordinator stops waiting by itself.
fn move_wait_max() -> Duration {
    let timeouts =
        runtime::local::<Coordinator>().map_or_else(Timeouts::default, |coordinator| coordinator.context.timeouts());
    timeouts.read.max(timeouts.write).max(timeouts.counter)
}

impl From<WriteError> for ReplicaError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::NotHere(token) => Self::NotHere(token),
            WriteError::MemoryFull => Self::Overloaded(error.to_string()),
            WriteError::Log(e @ LogError::TooLarge { .. }) => Self::TooLarge(e.to_string()),
            WriteError::Log(e) => Self::Log(e.to_string()),
        }
    }
}

/// Mutations of one request that are looked at without giving way.
const MUTATIONS_AT_ONCE: usize = 64;

/// Where mutations come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// This node packed them.
    Local,
    /// Another node sent them: every byte is checked against the table's layout.
    Peer,
}

/// Writes mutations of this shard's tokens and waits until they may be acknowledged. With `all_or_nothing` they are one
/// record of the log. Whether `stamp` is stale is checked in the moment of writing.
///
/// # Errors
/// When a table is unknown, memory stays full, or the log fails; what was written before stays.
pub async fn apply(
    shard: &Rc<Shard>,
    mutations: &[Located<'_>],
    all_or_nothing: bool,
    origin: Origin,
    stamp: Stamp,
) -> Result<(), ReplicaError> {
    if let [only] = mutations
        && let Some(logged) = apply_at_once(shard, *only, origin, stamp)?
    {
        return committed(shard, logged.into()).await;
    }
    // The rest may take longer than a slice, and this poll belongs to the caller.
    if mutations.len() > MUTATIONS_AT_ONCE || mutations.iter().any(|located| may_be_long(&located.mutation)) {
        runtime::yield_now().await;
    }
    let mut parts: SmallVec<[_; 4]> = SmallVec::with_capacity(mutations.len());
    for Located { token, mutation } in mutations {
        let store = match shard.store(mutation.table) {
            Some(store) => store,
            None if origin == Origin::Peer => store_of(shard, mutation.table).await?,
            None => return Err(ReplicaError::UnknownTable(mutation.table)),
        };
        check(&store, mutation, origin)?;
        parts.push((store, *token, *mutation));
        runtime::give_way().await;
    }
    let mut all: Option<Logged> = None;
    let in_one = all_or_nothing && parts.len() > 1;
    let mut left = &parts[..];
    while let Some((store, token, mutation)) = left.first() {
        let now = if in_one { left } else { &left[..1] };
        runtime::give_way().await;
        let aside = if is_long(now) {
            shard
                .merge_aside(now)
                .await
                .map_err(|error| failed(error.into(), all.as_ref()))?
        } else {
            None
        };
        let places = now.iter().map(|(store, token, _)| (&**store, *token));
        if !are_ready(places.clone(), stamp).map_err(|error| failed(error, all.as_ref()))? {
            ready(places, stamp)
                .await
                .map_err(|error| failed(error, all.as_ref()))?;
            if is_long(now) {
                // While it waited, nothing kept deletions for it.
                continue;
            }
        }
        let written = match aside {
            Some(aside) => match shard.write_aside(now, aside) {
                Ok(Some(logged)) => Ok(logged),
                // A tablet has left since the merge: merge again.
                Ok(None) => continue,
                Err(error) => Err(error),
            },
            None if in_one => shard.write_batch(left),
            None => shard.write(store, *token, mutation),
        };
        match written {
            Ok(logged) => {
                trace::note(|| written_to(store));
                logged.add_to(&mut all);
                left = &left[now.len()..];
            }
            Err(WriteError::MemoryFull) => {
                let waits = left.iter().map(|(_, _, mutation)| *mutation);
                let room = shard.room_for(waits).await;
                room.map_err(|error| failed(error.into(), all.as_ref()))?;
            }
            Err(error) => return Err(failed(error.into(), all.as_ref())),
        }
    }
    match all {
        Some(logged) => committed(shard, logged.into()).await,
        None => Ok(()),
    }
}

/// The error of a request of which some was written: that has to be answered for.
fn failed(error: ReplicaError, written: Option<&Logged>) -> ReplicaError {
    match written {
        None => error,
        Some(_) => ReplicaError::Partial(error.to_string()),
    }
}

/// Writes one mutation as [`apply`] does, as far as that needs no waiting. None: nothing was done, because the mutation
/// has to wait for its table, a truncation or memory, or is long.
///
/// # Errors
/// As those of [`apply`].
#[inline]
pub(crate) fn apply_at_once(
    shard: &Rc<Shard>,
    Located { token, mutation }: Located<'_>,
    origin: Origin,
    stamp: Stamp,
) -> Result<Option<Logged>, ReplicaError> {
    let store = match shard.store(mutation.table) {
        None if origin == Origin::Peer => return Ok(None),
        None => return Err(ReplicaError::UnknownTable(mutation.table)),
        Some(store) => store,
    };
    if is_long_alone(&store, &mutation) {
        return Ok(None);
    }
    check(&store, &mutation, origin)?;
    if !stamp.check(&store)? {
        return Ok(None);
    }
    match write_short(shard, &store, Located { token, mutation }) {
        Err(ReplicaError::NotHere(_)) => {
            let is_arriving = store.is_arriving(token);
            stamp.absent(&store, is_arriving, token).map(|_| None)
        }
        applied => applied,
    }
}

/// Writes one mutation; None when memory is full, and when it is long.
///
/// # Errors
/// When its token is not here, or the log does not take it.
#[inline]
pub(crate) fn apply_to(
    shard: &Rc<Shard>,
    store: &TableStore,
    Located { token, mutation }: Located<'_>,
) -> Result<Option<Logged>, ReplicaError> {
    if is_long_alone(store, &mutation) {
        Ok(None)
    } else {
        write_short(shard, store, Located { token, mutation })
    }
}

#[inline]
fn write_short(
    shard: &Rc<Shard>,
    store: &TableStore,
    Located { token, mutation }: Located<'_>,
) -> Result<Option<Logged>, ReplicaError> {
    match shard.write(store, token, &mutation) {
        Ok(logged) => {
            trace::note(|| written_to(store));
            Ok(Some(logged))
        }
        Err(WriteError::MemoryFull) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn written_to(store: &TableStore) -> String {
    let table = store.table();
    format!(
        "Appended to the commitlog and the memtable of {}.{}",
        table.keyspace, table.name
    )
}

/// Whether a mutation, if it came from elsewhere, is what its table takes.
#[inline]
fn check(store: &TableStore, mutation: &Mutation<'_>, origin: Origin) -> Result<(), ReplicaError> {
    if origin == Origin::Peer {
        let layout = store.table.borrow().layout.clone();
        let valid = preempt::allowed(|| mutation.validate(&layout));
        valid.map_err(|e| ReplicaError::Malformed(e.to_string()))?;
    }
    Ok(())
}

/// Hands the log to the kernel, and waits until what it has at a place may be acknowledged.
pub(crate) async fn committed(shard: &Shard, place: LogPlace) -> Result<(), ReplicaError> {
    commit(shard, place.mark)?;
    if acknowledges_by_sync(shard) {
        durable(shard, place.position).await
    } else {
        Ok(())
    }
}

/// Hands the log to the kernel, with what was written since a mark.
///
/// # Errors
/// When some of that may be lost.
#[inline]
pub(crate) fn commit(shard: &Shard, since: LogMark) -> Result<(), ReplicaError> {
    let committed = shard.commit_since(since);
    committed.map(drop).map_err(|e| ReplicaError::Log(e.to_string()))
}

/// Whether what is committed may be acknowledged only when it is [`durable`].
#[inline]
pub(crate) fn acknowledges_by_sync(shard: &Shard) -> bool {
    shard.log.is_batch() && !planted::is_planted(Bug::UnsyncedWrite)
}

/// Waits until the log is durable up to a position.
pub(crate) async fn durable(shard: &Shard, position: ReplayPosition) -> Result<(), ReplicaError> {
    let synced = shard.log.synced(position).await;
    trace::note(|| "The commitlog is synced".to_owned());
    synced.map_err(|e| ReplicaError::Log(e.to_string()))
}

/// Whether all of these tables take a request for their tokens now.
///
/// # Errors
/// When it is stale, or a token is not here.
#[inline]
fn are_ready<'s>(
    mut places: impl Iterator<Item = (&'s TableStore, Token)>,
    stamp: Stamp,
) -> Result<bool, ReplicaError> {
    places.try_fold(true, |are_ready, (store, token)| {
        Ok(stamp.check_at(store, token)? && are_ready)
    })
}

/// Waits until tables take a request for their tokens; they still do when this returns.
///
/// # Errors
/// When it is stale, a token is not here, or a truncation or a move takes too long.
pub(crate) async fn ready<'s>(
    places: impl Iterator<Item = (&'s TableStore, Token)> + Clone,
    stamp: Stamp,
) -> Result<(), ReplicaError> {
    let mut deadline = None;
    loop {
        if are_ready(places.clone(), stamp)? {
            return Ok(());
        }
        let waits = places
            .clone()
            .find(|(store, token)| stamp.check_at(store, *token) == Ok(false));
        let Some((store, token)) = waits else { continue };
        until(store, &mut deadline, stamp, || stamp.check_at(store, token)).await?;
    }
}

/// Waits until a table takes a request for a range of tokens; it still does when this returns.
///
/// # Errors
/// As [`ready`].
pub(crate) async fn range_ready(
    store: &TableStore,
    (after, to): (Token, Token),
    stamp: Stamp,
) -> Result<(), ReplicaError> {
    until(store, &mut None, stamp, || stamp.check_range(store, after, to)).await
}

/// Waits until `is_ready` of a table; `deadline` is that of the request's first wait.
async fn until(
    store: &TableStore,
    deadline: &mut Option<Instant>,
    stamp: Stamp,
    is_ready: impl Fn() -> Result<bool, ReplicaError>,
) -> Result<(), ReplicaError> {
    loop {
        let changed = store.admission_changed.notified();
        if is_ready()? {
            return Ok(());
        }
        let wait_max = || match stamp.check(store) {
            Ok(false) => TRUNCATION_WAIT_MAX,
            _ => move_wait_max(),
        };
        let deadline = *deadline.get_or_insert_with(|| runtime::now() + wait_max());
        if runtime::timeout_at(deadline, changed).await.is_err() {
            return Err(ReplicaError::Overloaded(
                "the table is being truncated, or the tablet is moving".to_owned(),
            ));
        }
    }
}
