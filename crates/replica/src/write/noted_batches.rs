//! The logged batches that a log may write again: one for the node, shared by its shards.
//!
//! A batch for several shards is noted in the log of the shard that began it until the record of its end is durable
//! there. Until then a later attempt, or the next start, may write it a second time on any shard. In that time no
//! compaction of any shard may drop a tombstone that is newer than the batch, however short the table's grace period:
//! what the tombstone deletes would come back.
//!
//! A write that waits for memory needs the same protection while a newer write, which came after it, has found memory:
//! where a table has no grace period, the deletions of the newer one may be flushed, compacted and purged before the
//! older one is written.

use std::collections::BTreeMap;
use std::sync::Mutex;

use mutation::{Mutation, MutationItem, RowView};
use stdx::preempt;

/// See the module.
#[derive(Default)]
pub struct NotedBatches {
    /// Least write timestamp of each batch.
    batches: Mutex<BTreeMap<u128, i64>>,
    /// Least write timestamp of each write that waits, by a number that the write has while it waits.
    waiting: Mutex<(u64, BTreeMap<u64, i64>)>,
}

/// A write that waits.
pub(crate) struct Waiting<'n> {
    of: &'n NotedBatches,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.of.lock_waiting().1.remove(&self.number);
    }
}

impl NotedBatches {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Least write timestamp of what may be written again, or is still to be written; `i64::MAX` when there is nothing.
    /// Tombstones from there on are kept.
    pub fn min_timestamp(&self) -> i64 {
        let of_batches = self.lock().values().copied().min();
        let of_waiting = self.lock_waiting().1.values().copied().min();
        of_batches.into_iter().chain(of_waiting).min().unwrap_or(i64::MAX)
    }

    /// Counts a write among what may still come, until what this returns is dropped.
    pub(crate) fn wait(&self, min_timestamp: i64) -> Waiting<'_> {
        let (last, waiting) = &mut *self.lock_waiting();
        *last += 1;
        waiting.insert(*last, min_timestamp);
        Waiting {
            of: self,
            number: *last,
        }
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
        self.batches.lock().expect("no thread panics while holding the batches")
    }

    fn lock_waiting(&self) -> std::sync::MutexGuard<'_, (u64, BTreeMap<u64, i64>)> {
        self.waiting.lock().expect("no thread panics while holding what waits")
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
    let items = mutation.items().inspect(|_| preempt::point());
    items.map(timestamp).min().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_what_may_come_counts_until_it_has_come() {
        let noted = NotedBatches::new();
        assert_eq!(noted.min_timestamp(), i64::MAX);
        let older = noted.wait(5);
        let newer = noted.wait(9);
        noted.begin(1, 7);
        assert_eq!(noted.min_timestamp(), 5);
        drop(older);
        assert_eq!(noted.min_timestamp(), 7);
        noted.forget([1]);
        assert_eq!(noted.min_timestamp(), 9);
        drop(newer);
        assert_eq!(noted.min_timestamp(), i64::MAX);
    }
}
