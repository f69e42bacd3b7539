//! Reads of several items at one moment: `TransactGetItems`.
//!
//! All rows are read, and then all once more. If none has a lock and none has another timestamp than before, each had
//! its value from the first to the second time it was read, so all had them between the two rounds. A row's timestamp
//! grows with each write, because every write is conditional and takes one above what it read.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use coordinator::{Extent, ReplicatedRead, Stretch};
use dynamodb::value::size;
use dynamodb::{CancellationReason, Error, ErrorKind, Item};
use mutation::ClusteringSlice;
use query::QueryError;
use stdx::planted::{self, Bug};
use topology::Consistency;

use crate::lock::Lock;
use crate::row::{Needed, read_row};
use crate::service::{Service, of_engine};
use crate::table::{ItemKey, ItemTable};
use crate::transaction::all;

/// How often a read begins again whose items have changed.
const ATTEMPTS_MAX: u32 = 6;
/// The first pause before it begins again; each next one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(4);
/// Bytes of all items together, as the service limits them.
const BYTES_MAX: usize = 4 << 20;
/// Bytes that one step of a read takes: all of an item.
const ITEM_BYTES: usize = 1 << 20;

/// A row as it was read.
struct Version {
    item: Option<Item>,
    lock: Option<Lock>,
    /// The greatest of the row, deletions included; microseconds.
    timestamp: i64,
}

/// Whether a row has not changed. A deletion may have the timestamp of what it deletes.
fn is_same(one: &Version, other: &Version) -> bool {
    one.timestamp == other.timestamp && one.item.is_some() == other.item.is_some()
}

impl Service {
    /// The items of keys, as they were at one moment.
    ///
    /// # Errors
    /// TransactionCanceledException when they change faster than they can be read; or too few replicas answer.
    pub async fn read_together(
        self: &Rc<Self>,
        items: Vec<(Arc<ItemTable>, ItemKey)>,
    ) -> Result<Vec<Option<Item>>, Error> {
        for (table, _) in &items {
            self.check_transactional(table)?;
        }
        let mut pause = PAUSE_FIRST;
        for _ in 0..ATTEMPTS_MAX {
            let first = self.read_unlocked(&items).await?;
            let bytes = first.iter().flatten().filter_map(|row| row.item.as_ref());
            let bytes: usize = stdx::preempt::allowed(|| bytes.map(size::item_bytes).sum());
            if bytes > BYTES_MAX {
                return Err(Error::validation(
                    "Transaction request cannot return items of more than 4 MB altogether",
                ));
            }
            if planted::is_planted(Bug::ReadTogetherOnce)
                && let Some(first) = first
            {
                return Ok(first.into_iter().map(|row| row.item).collect());
            }
            if let Some(first) = first
                && let Some(second) = self.read_unlocked(&items).await?
                && first.iter().zip(&second).all(|(a, b)| is_same(a, b))
            {
                return Ok(second.into_iter().map(|row| row.item).collect());
            }
            runtime::sleep(pause).await;
            pause *= 2;
        }
        let reason = CancellationReason {
            code: "TransactionConflict",
            message: Some("Transaction is ongoing for the item".to_owned()),
            item: None,
        };
        Err(Error::transaction_canceled(vec![reason; items.len()]))
    }

    /// The rows, if none of them has a lock; locks that are met are settled.
    async fn read_unlocked(
        self: &Rc<Self>,
        items: &[(Arc<ItemTable>, ItemKey)],
    ) -> Result<Option<Vec<Version>>, Error> {
        let read = |(table, key): &(Arc<ItemTable>, ItemKey)| {
            let (service, table, key) = (self.clone(), table.clone(), key.clone());
            async move { service.read_version(&table, &key).await }
        };
        let rows: Vec<Version> = all(items.iter().map(read).collect())
            .await
            .into_iter()
            .collect::<Result<_, _>>()?;
        let locked = rows.iter().zip(items).filter_map(|(row, (table, key))| {
            let lock = row.lock.clone()?;
            let (service, table, key) = (self.clone(), table.clone(), key.clone());
            Some(async move { service.settle(&table, &key, &lock).await })
        });
        let settled = all(locked.collect()).await;
        let has_locks = !settled.is_empty();
        for settled in settled {
            match settled {
                // It begins again, or gives up with a reason for each item.
                Err(error) if error.kind != ErrorKind::TransactionConflict => return Err(error),
                _ => {}
            }
        }
        Ok((!has_locks).then_some(rows))
    }

    async fn read_version(self: &Rc<Self>, table: &ItemTable, key: &ItemKey) -> Result<Version, Error> {
        let second = u32::try_from(runtime::wall_clock_us() / 1_000_000).unwrap_or(u32::MAX);
        let slice = if key.clustering.is_empty() {
            ClusteringSlice::all()
        } else {
            ClusteringSlice::exactly(&key.clustering)
        };
        let extent = Extent::Partition {
            key: key.partition.clone(),
            slices: vec![slice],
            reversed: false,
        };
        let stretch = Stretch {
            rows: 2,
            bytes: ITEM_BYTES,
        };
        let coordinator = &self.engine.coordinator;
        let view = coordinator.context.view();
        let failed = |e| of_engine(QueryError::of_replicas(e));
        let read = ReplicatedRead::new(
            &coordinator.reads,
            &view,
            &table.table,
            Consistency::LocalQuorum,
            extent,
            second,
            stretch,
        );
        let mut read = read.map_err(failed)?;
        let mut blocks = Vec::new();
        while let Some(block) = read.next_block().await.map_err(failed)? {
            blocks.push(block);
        }
        stdx::preempt::allowed(|| {
            let stored = read_row(table, key, &blocks, second, &Needed::All)?;
            Ok(Version {
                lock: stored.lock.and_then(Lock::decode),
                item: stored.item,
                timestamp: stored.timestamp,
            })
        })
    }
}
