//! Writes of one item: read, decide, write, ordered with all other writes of the item.

use std::rc::Rc;
use std::sync::Arc;

use coordinator::{
    Atomicity, CasRead, CasRequest, Dated, Deadline, Decision, Extent, ReadResult, Stretch, WriteKind, trace,
};
use dynamodb::update::Updated;
use dynamodb::value::copy_item;
use dynamodb::{Error, ErrorKind, Item};
use mutation::{Addressed, ClusteringSlice};
use query::QueryError;
use runtime::ShardId;
use stdx::planted::{self, Bug};
use stdx::preempt;
use topology::Consistency;

use crate::lock::Lock;
use crate::row::{LockChange, Old, RowChange, StoredRow, pack, pack_lock, read_row};
use crate::service::{Service, WriteIsolation, of_engine};
use crate::table::{ItemKey, ItemTable};

/// What a write makes of the item that it finds.
#[derive(Debug)]
pub enum Change {
    /// It stays as it is.
    Keep,
    /// It becomes this one, or is created.
    Put(Item),
    /// It becomes this one, or is created; with what of it is answered.
    Update(Updated),
    /// It is deleted.
    Delete,
    /// It is deleted at the time of its last write: what was written since, and is not known here, stays.
    Expire,
}

impl Change {
    /// Whether anything is written, the item that is left, and what is answered of it.
    pub(crate) fn into_parts(self, old: Option<&Item>) -> (bool, Option<Item>, Option<Item>) {
        match self {
            Self::Keep => (false, old.map(copy_item), None),
            Self::Put(item) => (true, Some(item), None),
            Self::Update(Updated { item, attributes }) => (true, Some(item), attributes),
            Self::Delete | Self::Expire => (old.is_some(), None, None),
        }
    }
}

/// A write of an item. It travels to the shard that owns the item.
pub trait Modification: Send + Sync + 'static {
    /// Decides what becomes of the item. May be asked several times; the last answer counts.
    ///
    /// # Errors
    /// Those of the API: a condition does not hold, an operand has the wrong type.
    fn decide(&self, old: Option<&Item>) -> Result<Change, Error>;

    /// The change, if it is the same whatever the item is: then it need not be read.
    fn unread(&self) -> Option<Change>;
}

/// What a write has found and left.
#[derive(Debug, Default)]
pub struct Modified {
    /// The item before. A write that does not read does not know it.
    pub old: Option<Item>,
    /// The item after.
    pub new: Option<Item>,
    /// What an update answers.
    pub attributes: Option<Item>,
}

/// How often a write is tried again that meets the mark of a transaction.
pub(crate) const LOCKED_MAX: usize = 8;
/// Bytes that one step of the read takes: all of an item.
const ITEM_BYTES: usize = 1 << 20;

/// What was decided about a row.
pub(crate) enum Decided {
    Done(Modified),
    /// A transaction has marked the row.
    Locked(Lock),
}

impl Service {
    /// Changes an item.
    ///
    /// # Errors
    /// Those of the modification, or too few replicas answer.
    pub async fn modify(
        self: &Rc<Self>,
        table: &Arc<ItemTable>,
        key: ItemKey,
        modification: Arc<dyn Modification>,
    ) -> Result<Modified, Error> {
        let isolation = self.isolation_of(table)?;
        if isolation != WriteIsolation::Always {
            match modification.unread() {
                Some(change) => return self.write_unread(table, &key, change).await,
                None if isolation == WriteIsolation::Forbid => return Err(forbidden()),
                None if isolation == WriteIsolation::Unsafe => {
                    return self.modify_unsafely(table, &key, &*modification).await;
                }
                None => {}
            }
        }
        self.modify_always(table, key, modification).await
    }

    /// As [`Service::modify`], ordered with all other such writes of the item whatever the table's isolation is.
    ///
    /// # Errors
    /// As [`Service::modify`].
    pub(crate) async fn modify_always(
        self: &Rc<Self>,
        table: &Arc<ItemTable>,
        key: ItemKey,
        modification: Arc<dyn Modification>,
    ) -> Result<Modified, Error> {
        let owner = ShardId(self.engine.coordinator.own.owner(table.table.id, key.token()));
        if owner == self.engine.coordinator.context.shard_id() {
            return self.modify_here(table, &key, &*modification).await;
        }
        let table = table.clone();
        trace::submit(owner, move || async move {
            Self::local().modify_here(&table, &key, &*modification).await
        })
        .await
    }

    pub(crate) fn isolation_of(&self, table: &ItemTable) -> Result<WriteIsolation, Error> {
        let mut tags = table.definition.tags.iter();
        let Some(tag) = tags.find(|tag| tag.key == crate::service::ISOLATION_TAG) else {
            return Ok(self.settings.write_isolation);
        };
        WriteIsolation::from_name(&tag.value).ok_or_else(|| Error::validation(unknown_isolation(&tag.value)))
    }

    /// Changes an item that this shard owns.
    async fn modify_here(
        self: &Rc<Self>,
        table: &Arc<ItemTable>,
        key: &ItemKey,
        modification: &dyn Modification,
    ) -> Result<Modified, Error> {
        for _ in 0..LOCKED_MAX {
            let mut change = |stored: &StoredRow| match stored.lock.as_deref().and_then(Lock::decode) {
                Some(lock) if !planted::is_planted(Bug::UnheededLock) => Ok(RowDecision::Locked(lock)),
                _ => modification.decide(stored.item.as_ref()).map(RowDecision::Change),
            };
            match self.decide_row(table, key, &mut change).await? {
                Decided::Done(modified) => return Ok(modified),
                // Settling writes the record of the transaction, which is a write of an item too.
                Decided::Locked(lock) => Box::pin(self.settle(table, key, &lock)).await?,
            }
        }
        Err(conflict())
    }

    /// Compare and set of one row.
    pub(crate) async fn decide_row(
        self: &Rc<Self>,
        table: &ItemTable,
        key: &ItemKey,
        change: &mut dyn FnMut(&StoredRow) -> Result<RowDecision, Error>,
    ) -> Result<Decided, Error> {
        // Its deletions have the second of this moment, and no report passes it while it waits.
        let dated = self
            .engine
            .coordinator
            .writes
            .date(Consistency::LocalQuorum, Deadline::USUAL);
        let (now_us, second) = moment(&dated);
        let cas = self.cas_request(table, key, second);
        let mut outcome = Err(Error::new(
            ErrorKind::InternalServerError,
            "A write of an item ended undecided",
        ));
        let mut decide = |found: &mut [ReadResult], timestamp: i64| {
            let Some(read) = found.first() else {
                return Decision::Keep;
            };
            if !read.is_all {
                return Decision::ReadOn(0);
            }
            let decided = preempt::allowed(|| {
                let stored = read_row(table, key, &read.blocks, second)?;
                if stored.timestamp >= timestamp {
                    return Ok(Err(stored.timestamp));
                }
                change(&stored).map(|decision| Ok((stored, decision)))
            });
            match decided {
                Ok(Err(written)) => Decision::Above(written),
                Ok(Ok((stored, decision))) => {
                    let (packed, decided) =
                        preempt::allowed(|| finish(table, key, stored, decision, timestamp, second));
                    outcome = Ok(decided);
                    packed.map_or(Decision::Keep, Decision::Write)
                }
                Err(error) => {
                    outcome = Err(error);
                    Decision::Keep
                }
            }
        };
        let done = self.engine.coordinator.cas.compare_and_set(&cas, &mut decide).await;
        log::trace!("a write of {now_us} is decided");
        done.map_err(|e| of_engine(QueryError::of_replicas(e)))?;
        outcome
    }

    fn cas_request(&self, table: &ItemTable, key: &ItemKey, now: u32) -> CasRequest {
        let timeouts = self.engine.coordinator.context.timeouts();
        let slice = if key.clustering.is_empty() {
            ClusteringSlice::all()
        } else {
            ClusteringSlice::exactly(&key.clustering)
        };
        CasRequest {
            table: table.table.clone(),
            key: key.partition.clone(),
            reads: vec![CasRead {
                extent: Extent::Partition {
                    key: key.partition.clone(),
                    slices: vec![slice],
                    reversed: false,
                },
                stretch: Stretch {
                    rows: 2,
                    bytes: ITEM_BYTES,
                },
            }],
            now,
            serial: Consistency::LocalSerial,
            commit: Consistency::LocalQuorum,
            deadline: Deadline::USUAL.or_after(timeouts.write),
            contention_deadline: Deadline::USUAL.or_after(timeouts.cas_contention),
            timestamp_us: self.clock.timestamp(runtime::wall_clock_us()),
            memory: None,
        }
    }

    /// Writes without reading: later timestamps win.
    async fn write_unread(
        self: &Rc<Self>,
        table: &ItemTable,
        key: &ItemKey,
        change: Change,
    ) -> Result<Modified, Error> {
        let (_, new, attributes) = change.into_parts(None);
        self.write_plainly(table, key, Old::Unknown, new.as_ref(), None).await?;
        Ok(Modified {
            old: None,
            new,
            attributes,
        })
    }

    async fn modify_unsafely(
        self: &Rc<Self>,
        table: &ItemTable,
        key: &ItemKey,
        modification: &dyn Modification,
    ) -> Result<Modified, Error> {
        let old = self.read_item(table, key, Consistency::LocalQuorum).await?;
        let change = preempt::allowed(|| modification.decide(old.as_ref()))?;
        let (is_written, new, attributes) = change.into_parts(old.as_ref());
        if is_written {
            self.write_plainly(table, key, Old::Known(old.as_ref()), new.as_ref(), None)
                .await?;
        }
        Ok(Modified { old, new, attributes })
    }

    /// Writes without asking what is there, at a timestamp, or at that of now.
    pub(crate) async fn write_plainly(
        self: &Rc<Self>,
        table: &ItemTable,
        key: &ItemKey,
        old: Old<'_>,
        new: Option<&Item>,
        timestamp: Option<i64>,
    ) -> Result<(), Error> {
        let writes = &self.engine.coordinator.writes;
        let dated = writes.date(Consistency::LocalQuorum, Deadline::USUAL);
        let (now_us, second) = moment(&dated);
        let change = RowChange { new, old, lock: None };
        let timestamp = timestamp.unwrap_or_else(|| self.clock.timestamp(now_us));
        let packed = pack(table, key, &change, timestamp, second);
        let mutation = Addressed::at(key.token(), packed).expect("it was packed just now");
        let mut mutations = coordinator::Mutations::new();
        mutations.push(mutation);
        let written = writes
            .write(mutations, &dated, WriteKind::Simple, Atomicity::Mutation)
            .await;
        written.map_err(|e| of_engine(QueryError::of_replicas(e)))
    }
}

/// What a decision does to a row.
pub(crate) enum RowDecision {
    /// The lock changes, and the item stays as it is.
    Lock(Option<Vec<u8>>),
    /// The item changes.
    Change(Change),
    /// A transaction has marked the row: nothing changes before that is settled.
    Locked(Lock),
    /// Nothing changes.
    Nothing,
}

fn finish(
    table: &ItemTable,
    key: &ItemKey,
    stored: StoredRow,
    decision: RowDecision,
    timestamp: i64,
    second: u32,
) -> (Option<Vec<u8>>, Decided) {
    let change = match decision {
        RowDecision::Locked(lock) => return (None, Decided::Locked(lock)),
        RowDecision::Nothing => return (None, Decided::Done(Modified::default())),
        RowDecision::Lock(lock) => {
            let change = lock.as_deref().map_or(LockChange::Clear, LockChange::Set);
            let packed = pack_lock(table, key, change, timestamp, second);
            let (old, new) = (stored.item.clone(), stored.item);
            let attributes = None;
            return (Some(packed), Decided::Done(Modified { old, new, attributes }));
        }
        RowDecision::Change(change) => change,
    };
    let timestamp = match change {
        // Deletions have the timestamp before that of their write.
        Change::Expire => stored.timestamp + 1,
        _ => timestamp,
    };
    let old = stored.item;
    let (is_written, new, attributes) = change.into_parts(old.as_ref());
    let packed = match (is_written, &stored.lock) {
        (false, None) => None,
        // A transaction that only checks the item takes its lock away.
        (false, Some(_)) => Some(pack_lock(table, key, LockChange::Clear, timestamp, second)),
        (true, lock) => {
            let change = RowChange {
                new: new.as_ref(),
                old: Old::Known(old.as_ref()),
                lock: lock.as_ref().map(|_| LockChange::Clear),
            };
            Some(pack(table, key, &change, timestamp, second))
        }
    };
    (packed, Decided::Done(Modified { old, new, attributes }))
}

fn moment(dated: &Dated) -> (i64, u32) {
    let now_us = dated.now_us();
    (now_us, u32::try_from(now_us / 1_000_000).unwrap_or(u32::MAX))
}

#[cold]
pub(crate) fn conflict() -> Error {
    Error::new(ErrorKind::TransactionConflict, "Transaction is ongoing for the item")
}

#[cold]
fn forbidden() -> Error {
    Error::validation(
        "Read-modify-write operations are disabled by the write isolation of this table ('forbid_rmw'); see the option alternator_write_isolation",
    )
}

/// The text about a write isolation that there is not.
pub fn unknown_isolation(name: &str) -> String {
    format!(
        "Incorrect write isolation tag {name}. Allowed values: always_use_lwt, only_rmw_uses_lwt, forbid_rmw, unsafe_rmw"
    )
}
