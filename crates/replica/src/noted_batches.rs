//! The logged batches that a log may write again: one for the node, shared by its shards.
//!
//! A batch for several shards stands in the log of the shard that began it until the note of its end is durable there. Until then
//! it may be written a second time, by a later attempt or by the next start, on any shard. So a tombstone that is newer than
//! the batch must not be dropped by a compaction of any shard meanwhile, however short the table's grace period: what it deletes
//! would come back.

use std::collections::BTreeMap;
use std::sync::Mutex;

use mutation::{Mutation, MutationItem, RowView};

/// See the module.
#[derive(Default)]
pub struct NotedBatches {
    /// Least write timestamp of each batch.
    batches: Mutex<BTreeMap<u128, i64>>,
}

impl NotedBatches {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Least write timestamp of what may be written again; `i64::MAX` when there is nothing. Tombstones from there on are kept.
    pub fn min_timestamp(&self) -> i64 {
        self.lock().values().copied().min().unwrap_or(i64::MAX)
    }

    pub(crate) fn begin(&self, id: u128, min_timestamp: i64) {
        self.lock().insert(id, min_timestamp);
    }

    /// The ends of these are durable.
    pub(crate) fn forget(&self, ids: impl IntoIterator<Item = u128>) {
        let mut batches = self.lock();
        for id in ids {
            batches.remove(&id);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u128, i64>> {
        self.batches.lock().expect("nobody panics while holding the batches")
    }
}

/// Least write timestamp of a mutation; `i64::MIN` where it cannot be read.
#[must_use]
pub fn min_timestamp(bytes: &[u8]) -> i64 {
    let Some(mutation) = Mutation::new(bytes) else {
        return i64::MIN;
    };
    let timestamp = |item| match item {
        MutationItem::Partition(t) => t.timestamp,
        MutationItem::Range(r) => r.tombstone.timestamp,
        MutationItem::StaticRow(row) | MutationItem::Row { row, .. } => {
            RowView::new(row).map_or(i64::MIN, |row| row.timestamp)
        }
    };
    mutation.items().map(timestamp).min().unwrap_or(i64::MAX)
}
