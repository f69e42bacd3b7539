//! Rows of sstables that point reads asked for, so that the next one needs no file.
//!
//! An entry is what the sstables of one version say about one row: the deletions over it, the merged packed row, or
//! that there is none, and the static row of its partition. It knows nothing of memtables, whose part is merged at each
//! read, so a write needs no invalidation. A version whose set of sstables differs from the one before begins with an
//! empty cache.
//!
//! Memory is bounded, by one budget for all tablets of the shard: two generations of entries, each at most half of it.
//! When the young one is full it becomes the old one, and what was old is freed at once.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use mutation::Tombstone;

/// Bytes charged for an entry besides its key and row.
const ENTRY_BYTES: usize = 144;

/// What the sstables say about one row.
#[derive(Clone, Debug)]
pub struct CachedRow {
    /// The partition's deletion.
    pub partition: Tombstone,
    /// The strongest of the range tombstones over it.
    pub range: Tombstone,
    /// The partition's packed static row; None when no sstable has it.
    pub static_row: Option<Box<[u8]>>,
    /// The packed row; None when no sstable has it.
    pub row: Option<Box<[u8]>>,
}

impl Default for CachedRow {
    fn default() -> Self {
        Self {
            partition: Tombstone::NONE,
            range: Tombstone::NONE,
            static_row: None,
            row: None,
        }
    }
}

impl CachedRow {
    /// What deletes the row, besides its own tombstone.
    #[inline]
    pub fn deletion(&self) -> Tombstone {
        self.partition.merge(self.range)
    }

    /// Whether the sstables say nothing.
    pub fn is_empty(&self) -> bool {
        self.row.is_none() && self.static_row.is_none() && self.deletion().is_none()
    }

    fn bytes(&self) -> usize {
        let len = |row: &Option<Box<[u8]>>| row.as_ref().map_or(0, |r| r.len());
        len(&self.static_row) + len(&self.row)
    }
}

/// A row that takes more of the budget than one part in this many is not kept: a few of them would drive out all
/// others.
const ROWS_MIN: usize = 16;

type Generation = HashMap<Box<[u8]>, CachedRow, foldhash::fast::FixedState>;

/// What all row caches of a shard may hold together.
#[derive(Debug, Default)]
pub struct RowCacheBudget {
    bytes: Cell<usize>,
    bytes_max: Cell<usize>,
}

impl RowCacheBudget {
    /// A budget in bytes.
    pub fn new(bytes_max: usize) -> Rc<Self> {
        Rc::new(Self {
            bytes: Cell::new(0),
            bytes_max: Cell::new(bytes_max),
        })
    }

    /// The most bytes that may be held.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max.get()
    }

    /// Changes what may be held. What is held is kept until something else is.
    pub fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.set(bytes_max);
    }

    /// Bytes held now.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }
}

/// The cache of one tablet's version.
#[derive(Debug)]
pub struct RowCache {
    young: Generation,
    old: Generation,
    young_bytes: usize,
    old_bytes: usize,
    budget: Rc<RowCacheBudget>,
}

/// Appends the name of a row: u32 length and partition key, clustering key.
pub fn put_name(out: &mut Vec<u8>, key: &[u8], clustering: &[u8]) {
    out.extend_from_slice(&u32::try_from(key.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(clustering);
}

impl RowCache {
    /// An empty cache.
    pub fn new(budget: Rc<RowCacheBudget>) -> Self {
        Self {
            young: Generation::default(),
            old: Generation::default(),
            young_bytes: 0,
            old_bytes: 0,
            budget,
        }
    }

    /// The entry of that name.
    #[inline]
    pub fn get(&self, name: &[u8]) -> Option<&CachedRow> {
        self.young.get(name).or_else(|| self.old.get(name))
    }

    /// Keeps what the sstables say, if there is room for it.
    pub fn put(&mut self, name: &[u8], entry: &CachedRow) {
        let bytes = ENTRY_BYTES + name.len() + entry.bytes();
        let bytes_max = self.budget.bytes_max.get();
        if bytes > bytes_max / ROWS_MIN {
            return;
        }
        if self.young_bytes + bytes > bytes_max / 2 || self.budget.bytes.get() + bytes > bytes_max {
            self.forget_old();
            self.old = std::mem::take(&mut self.young);
            self.old_bytes = std::mem::take(&mut self.young_bytes);
        }
        if self.budget.bytes.get() + bytes > bytes_max {
            // Other tables hold the budget.
            self.forget_old();
            return;
        }
        if self.young.insert(name.into(), entry.clone()).is_none() {
            self.young_bytes += bytes;
            self.budget.bytes.set(self.budget.bytes.get() + bytes);
        }
    }

    fn forget_old(&mut self) {
        self.old = Generation::default();
        self.budget
            .bytes
            .set(self.budget.bytes.get().saturating_sub(self.old_bytes));
        self.old_bytes = 0;
    }
}

impl Drop for RowCache {
    fn drop(&mut self) {
        self.forget_old();
        self.budget
            .bytes
            .set(self.budget.bytes.get().saturating_sub(self.young_bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: u8) -> CachedRow {
        CachedRow {
            row: Some(vec![n; 100].into()),
            ..CachedRow::default()
        }
    }

    #[test]
    fn it_stays_within_its_budget_and_keeps_what_came_last() {
        let budget = RowCacheBudget::new(20_000);
        let mut cache = RowCache::new(budget.clone());
        for n in 0..10_000u32 {
            cache.put(&n.to_be_bytes(), &entry(1));
            assert!(budget.bytes() <= 20_000);
        }
        assert!(cache.get(&9_999u32.to_be_bytes()).is_some());
        assert!(cache.get(&0u32.to_be_bytes()).is_none());
        drop(cache);
        assert_eq!(budget.bytes(), 0, "a cache that ends gives its bytes back");
    }

    #[test]
    fn a_large_row_does_not_drive_out_the_others() {
        let budget = RowCacheBudget::new(20_000);
        let mut cache = RowCache::new(budget.clone());
        cache.put(b"small", &entry(1));
        let large = CachedRow {
            row: Some(vec![0; 15_000].into()),
            ..CachedRow::default()
        };
        cache.put(b"large", &large);
        cache.put(b"larger", &large);
        assert!(cache.get(b"small").is_some());
        assert!(cache.get(b"large").is_none());
    }

    #[test]
    fn two_tables_share_one_budget() {
        let budget = RowCacheBudget::new(20_000);
        let (mut a, mut b) = (RowCache::new(budget.clone()), RowCache::new(budget.clone()));
        for n in 0..1000u32 {
            a.put(&n.to_be_bytes(), &entry(1));
            b.put(&n.to_be_bytes(), &entry(2));
            assert!(budget.bytes() <= 20_000);
        }
    }
}
