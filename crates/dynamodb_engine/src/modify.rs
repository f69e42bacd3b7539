//! Writes of one item: read, decide, write, ordered with all other writes of the item.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use coordinator::{
    Atomicity, CasRead, CasRequest, Dated, Deadline, Decision, Extent, ReadResult, Stretch, WriteKind, trace,
};
use dynamodb::update::Updated;
use dynamodb::value::{copy_item, size, storage};
use dynamodb::{Error, ErrorKind, Item};
use mutation::{Addressed, ClusteringSlice};
use query::QueryError;
use runtime::ShardId;
use stdx::planted::{self, Bug};
use stdx::preempt;
use topology::Consistency;

use crate::lock::Lock;
use crate::row::{
    LockChange, Needed, Old, RowChange, StoredAttribute, StoredRow, pack, pack_lock, read_row, unneeded_bytes,
};
use crate::service::{Service, WriteIsolation, of_engine};
use crate::table::{ItemKey, ItemTable};

/// What a write makes of the item that it finds.
#[derive(Debug)]
pub enum Change<'a> {
    /// It stays as it is.
    Keep,
    /// It becomes this one, or is created.
    Put(Cow<'a, Item>),
    /// The attributes that were needed become these, or it is created with them; with what of it is answered.
    Update(Updated),
    /// It is deleted.
    Delete,
    /// It is deleted at the time of its last write: what was written since, and is not known here, stays.
    Expire,
}

/// What is left of an item by a change.
struct Left<'a> {
    is_written: bool,
    item: Option<Cow<'a, Item>>,
    /// What is answered of it.
    attributes: Option<Item>,
}

impl<'a> Change<'a> {
    fn leaves(self, old: Option<&'a Item>) -> Left<'a> {
        let (is_written, item, attributes) = match self {
            Self::Keep => (false, old.map(Cow::Borrowed), None),
            Self::Put(item) => (true, Some(item), None),
            Self::Update(Updated { item, attributes }) => (true, Some(Cow::Owned(item)), attributes),
            Self::Delete | Self::Expire => (old.is_some(), None, None),
        };
        Left {
            is_written,
            item,
            attributes,
        }
    }
}

/// An item of one's own, copied with preemption points.
pub(crate) fn owned(item: Cow<'_, Item>) -> Item {
    match item {
        Cow::Owned(item) => item,
        Cow::Borrowed(item) => copy_item(item),
    }
}

/// A write of an item. It travels to the shard that owns the item.
pub trait Modification: Send + Sync + 'static {
    /// What of the item it decides by, and answers. Other attributes are not there when it decides.
    fn needs(&self) -> Needed<'_> {
        Needed::All
    }

    /// Decides what becomes of the item. May be asked several times; the last answer counts.
    ///
    /// # Errors
    /// Those of the API: a condition does not hold, an operand has the wrong type.
    fn decide(&self, old: Option<&Item>) -> Result<Change<'_>, Error>;

    /// The change, if it is the same whatever the item is: then it need not be read.
    fn unread(&self) -> Option<Change<'_>>;
}

/// What a write has found and left.
#[derive(Debug, Default)]
pub struct Modified {
    /// The item before, as far as it was needed. A write that does not read does not know it.
    pub old: Option<Item>,
    /// The item after, if all of it was needed.
    pub new: Option<Item>,
    /// What an update answers.
    pub attributes: Option<Item>,
}

/// How often a write is tried again that meets the mark of a transaction.
pub(crate) const LOCKED_MAX: usize = 8;
/// Bytes that one step of the read takes: all of an item.
const ITEM_BYTES: usize = 1 << 20;

/// What a plain write knows of the item before.
#[derive(Clone, Copy)]
pub(crate) enum Before<'a> {
    /// Nothing: all that was written before goes.
    Unknown,
    /// There was none, or this one; attributes that are equal stay as they are.
    Known(Option<&'a Item>),
}

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
        let needed = modification.needs();
        for _ in 0..LOCKED_MAX {
            let mut change = |stored: &StoredRow<'_>| match stored.lock.and_then(Lock::decode) {
                Some(lock) if !planted::is_planted(Bug::UnheededLock) => Ok(RowDecision::Locked(lock)),
                _ => {
                    let change = modification.decide(stored.item.as_ref())?;
                    check_size(table, &change, stored, &needed)?;
                    Ok(RowDecision::Change(change))
                }
            };
            match self.decide_row(table, key, &needed, &mut change).await? {
                Decided::Done(modified) => return Ok(modified),
                // Settling writes the record of the transaction, which is a write of an item too.
                Decided::Locked(lock) => Box::pin(self.settle(table, key, &lock)).await?,
            }
        }
        Err(conflict())
    }

    /// Compare and set of one row, of which `change` is given what is needed.
    pub(crate) async fn decide_row<'c>(
        self: &Rc<Self>,
        table: &ItemTable,
        key: &ItemKey,
        needed: &Needed<'_>,
        change: &mut dyn FnMut(&StoredRow<'_>) -> Result<RowDecision<'c>, Error>,
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
                let stored = read_row(table, key, &read.blocks, second, needed)?;
                if stored.timestamp >= timestamp {
                    return Ok(Err(stored.timestamp));
                }
                change(&stored).map(|decision| Ok((stored, decision)))
            });
            match decided {
                Ok(Err(written)) => Decision::Above(written),
                Ok(Ok((stored, decision))) => {
                    let (packed, decided) =
                        preempt::allowed(|| finish((table, key, needed), stored, decision, timestamp, second));
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
        change: Change<'_>,
    ) -> Result<Modified, Error> {
        let Left { item, attributes, .. } = change.leaves(None);
        self.write_plainly(table, key, Before::Unknown, item.as_deref(), None)
            .await?;
        Ok(Modified {
            old: None,
            new: item.map(|item| preempt::allowed(|| owned(item))),
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
        let left = change.leaves(old.as_ref());
        if left.is_written {
            let before = Before::Known(old.as_ref());
            self.write_plainly(table, key, before, left.item.as_deref(), None)
                .await?;
        }
        let (new, attributes) = (left.item.map(|item| preempt::allowed(|| owned(item))), left.attributes);
        Ok(Modified { old, new, attributes })
    }

    /// Writes without asking what is there, at a timestamp, or at that of now.
    pub(crate) async fn write_plainly(
        self: &Rc<Self>,
        table: &ItemTable,
        key: &ItemKey,
        before: Before<'_>,
        new: Option<&Item>,
        timestamp: Option<i64>,
    ) -> Result<(), Error> {
        let level = Consistency::LocalQuorum;
        self.write_plainly_at(level, (table, key), before, new, timestamp).await
    }

    /// As [`Service::write_plainly`], at a level.
    pub(crate) async fn write_plainly_at(
        self: &Rc<Self>,
        level: Consistency,
        (table, key): (&ItemTable, &ItemKey),
        before: Before<'_>,
        new: Option<&Item>,
        timestamp: Option<i64>,
    ) -> Result<(), Error> {
        let writes = &self.engine.coordinator.writes;
        let dated = writes.date(level, Deadline::USUAL);
        let (now_us, second) = moment(&dated);
        let timestamp = timestamp.unwrap_or_else(|| self.clock.timestamp(now_us));
        let packed = preempt::allowed(|| {
            let stored = match before {
                Before::Known(item) => stored_values(item),
                Before::Unknown => Vec::new(),
            };
            let of_row = stored.iter().filter(|(name, _)| !table.is_key(name));
            let attributes: Vec<StoredAttribute<'_>> =
                preempt::collect(of_row.map(|(name, value)| (*name, &value[..])));
            let change = RowChange {
                new,
                spoken_of: &Needed::All,
                old: match before {
                    Before::Known(_) => Old::Known(&attributes),
                    Before::Unknown => Old::Unknown,
                },
                lock: None,
            };
            pack(table, key, &change, timestamp, second)
        });
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
pub(crate) enum RowDecision<'c> {
    /// The lock changes, and the item stays as it is.
    Lock(Option<Vec<u8>>),
    /// The item changes.
    Change(Change<'c>),
    /// A transaction has marked the row: nothing changes before that is settled.
    Locked(Lock),
    /// Nothing changes.
    Nothing,
}

/// The attributes of an item, as they are stored.
fn stored_values(item: Option<&Item>) -> Vec<(&[u8], Vec<u8>)> {
    let attributes = item.into_iter().flatten();
    preempt::collect(attributes.map(|(name, value)| {
        let mut stored = Vec::new();
        storage::append_value(&mut stored, value);
        (name.as_bytes(), stored)
    }))
}

/// Fails if an update makes an item too large, of which it knows a part.
fn check_size(
    table: &ItemTable,
    change: &Change<'_>,
    stored: &StoredRow<'_>,
    needed: &Needed<'_>,
) -> Result<(), Error> {
    let (Change::Update(updated), Needed::Named(_)) = (change, needed) else {
        return Ok(());
    };
    let bytes = size::item_bytes(&updated.item) + unneeded_bytes(table, &stored.attributes, needed)?;
    if bytes > size::ITEM_BYTES_MAX {
        return Err(dynamodb::update::too_large());
    }
    Ok(())
}

fn finish(
    (table, key, needed): (&ItemTable, &ItemKey, &Needed<'_>),
    stored: StoredRow<'_>,
    decision: RowDecision<'_>,
    timestamp: i64,
    second: u32,
) -> (Option<Vec<u8>>, Decided) {
    let change = match decision {
        RowDecision::Locked(lock) => return (None, Decided::Locked(lock)),
        RowDecision::Nothing => return (None, Decided::Done(Modified::default())),
        RowDecision::Lock(lock) => {
            let change = lock.as_deref().map_or(LockChange::Clear, LockChange::Set);
            let packed = pack_lock(table, key, change, timestamp, second);
            return (Some(packed), Decided::Done(Modified::default()));
        }
        RowDecision::Change(change) => change,
    };
    let timestamp = match change {
        // Deletions have the timestamp before that of their write.
        Change::Expire => stored.timestamp + 1,
        _ => timestamp,
    };
    // An update leaves what it does not speak of; everything else leaves what it says.
    let spoken_of = match change {
        Change::Update(_) => needed,
        _ => &Needed::All,
    };
    let left = change.leaves(stored.item.as_ref());
    let packed = match (left.is_written, &stored.lock) {
        (false, None) => None,
        // A transaction that only checks the item takes its lock away.
        (false, Some(_)) => Some(pack_lock(table, key, LockChange::Clear, timestamp, second)),
        (true, lock) => {
            let change = RowChange {
                new: left.item.as_deref(),
                spoken_of,
                old: Old::Known(&stored.attributes),
                lock: lock.map(|_| LockChange::Clear),
            };
            Some(pack(table, key, &change, timestamp, second))
        }
    };
    let new = left.item.filter(|_| *needed == Needed::All).map(owned);
    let attributes = left.attributes;
    let old = stored.item;
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
