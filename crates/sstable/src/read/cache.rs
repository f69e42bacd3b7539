//! A cache of data and index chunks, one for each shard, with an exact budget.
//!
//! Replacement is 2Q: a chunk enters a first-in-first-out queue; only one that is asked for again after it left that
//! queue (its name is remembered in a ghost queue) or while it waits there long enough enters the main queue, which is
//! a clock. So one pass over much data, of which each chunk is read once, never displaces what is read often.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;

type Key = (u64, u64);
/// Keys are numbers that no outside party chooses.
type Hash = foldhash::fast::FixedState;

/// Decompressed chunks by file and number. Lives on one shard.
pub struct ChunkCache {
    inner: RefCell<Inner>,
}

struct Entry {
    data: Rc<Vec<u8>>,
    is_main: bool,
    was_used: bool,
}

#[derive(Default)]
struct Inner {
    budget: usize,
    used: usize,
    entries: HashMap<Key, Entry, Hash>,
    probation: VecDeque<Key>,
    probation_bytes: usize,
    main: VecDeque<Key>,
    ghosts: VecDeque<Key>,
    ghost_set: HashSet<Key, Hash>,
    hits: u64,
    misses: u64,
}

/// What an entry costs beyond its bytes: the map's slot, the queue's slot and the allocation's header.
const OVERHEAD: usize = 128;

fn cost(data: &Vec<u8>) -> usize {
    data.capacity() + OVERHEAD
}

impl ChunkCache {
    /// An empty cache that will hold no more than `budget` bytes.
    #[must_use]
    pub fn new(budget: usize) -> Self {
        Self {
            inner: RefCell::new(Inner {
                budget,
                ..Inner::default()
            }),
        }
    }

    /// The most bytes that it holds.
    #[must_use]
    pub fn budget(&self) -> usize {
        self.inner.borrow().budget
    }

    /// How many chunks it holds.
    #[must_use]
    pub fn chunks(&self) -> usize {
        self.inner.borrow().entries.len()
    }

    /// Changes the budget, evicting at once when it shrinks.
    pub fn set_budget(&self, budget: usize) {
        let mut inner = self.inner.borrow_mut();
        inner.budget = budget;
        inner.evict(0);
    }

    /// Bytes held.
    #[must_use]
    pub fn used(&self) -> usize {
        self.inner.borrow().used
    }

    /// Lookups that found their chunk, and that did not.
    #[must_use]
    pub fn hits_and_misses(&self) -> (u64, u64) {
        let inner = self.inner.borrow();
        (inner.hits, inner.misses)
    }

    pub(crate) fn get(&self, file: u64, chunk: u64) -> Option<Rc<Vec<u8>>> {
        let mut inner = self.inner.borrow_mut();
        if let Some(entry) = inner.entries.get_mut(&(file, chunk)) {
            entry.was_used = true;
            let data = Rc::clone(&entry.data);
            inner.hits += 1;
            return Some(data);
        }
        inner.misses += 1;
        None
    }

    pub(crate) fn insert(&self, file: u64, chunk: u64, data: &Rc<Vec<u8>>) {
        let mut inner = self.inner.borrow_mut();
        let key = (file, chunk);
        let bytes = cost(data);
        if bytes > inner.budget || inner.entries.contains_key(&key) {
            return;
        }
        inner.evict(bytes);
        let is_main = inner.ghost_set.remove(&key);
        inner.entries.insert(
            key,
            Entry {
                data: Rc::clone(data),
                is_main,
                was_used: false,
            },
        );
        inner.used += bytes;
        if is_main {
            inner.main.push_back(key);
        } else {
            inner.probation.push_back(key);
            inner.probation_bytes += bytes;
        }
    }

    /// Forgets a file that is deleted.
    pub(crate) fn forget(&self, file: u64) {
        let mut inner = self.inner.borrow_mut();
        let mut freed = 0;
        let mut probation_freed = 0;
        inner.entries.retain(|key, entry| {
            let goes = key.0 == file;
            if goes {
                freed += cost(&entry.data);
                probation_freed += if entry.is_main { 0 } else { cost(&entry.data) };
            }
            !goes
        });
        inner.used -= freed;
        inner.probation_bytes -= probation_freed;
        inner.probation.retain(|key| key.0 != file);
        inner.main.retain(|key| key.0 != file);
        inner.ghosts.retain(|key| key.0 != file);
        inner.ghost_set.retain(|key| key.0 != file);
    }
}

impl Inner {
    /// Makes room for `more` bytes.
    fn evict(&mut self, more: usize) {
        while self.used + more > self.budget && !self.entries.is_empty() {
            // A quarter of the budget is for chunks seen once; the main queue gives way only when they have less.
            if self.main.is_empty() || self.probation_bytes * 4 > self.budget {
                self.evict_probation();
            } else {
                self.evict_main();
            }
        }
    }

    fn evict_probation(&mut self) {
        let Some(key) = self.probation.pop_front() else {
            return self.evict_main();
        };
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let bytes = cost(&entry.data);
        self.probation_bytes -= bytes;
        if entry.was_used {
            entry.was_used = false;
            entry.is_main = true;
            self.main.push_back(key);
            return;
        }
        self.entries.remove(&key);
        self.used -= bytes;
        self.ghosts.push_back(key);
        self.ghost_set.insert(key);
        while self.ghosts.len() > self.entries.len().max(16) {
            if let Some(old) = self.ghosts.pop_front() {
                self.ghost_set.remove(&old);
            }
        }
    }

    fn evict_main(&mut self) {
        let Some(key) = self.main.pop_front() else { return };
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        if entry.was_used {
            entry.was_used = false;
            self.main.push_back(key);
            return;
        }
        let bytes = cost(&entry.data);
        self.entries.remove(&key);
        self.used -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(n: usize) -> Rc<Vec<u8>> {
        Rc::new(vec![0; n])
    }

    #[test]
    fn the_budget_is_never_exceeded_and_a_scan_does_not_displace_what_is_read_often() {
        let cache = ChunkCache::new(100 * (1000 + OVERHEAD));
        for _ in 0..3 {
            for i in 0..50 {
                if cache.get(1, i).is_none() {
                    cache.insert(1, i, &chunk(1000));
                }
            }
        }
        for i in 0..10_000 {
            assert!(cache.get(2, i).is_none());
            cache.insert(2, i, &chunk(1000));
            assert!(cache.used() <= 100 * (1000 + OVERHEAD), "{} bytes", cache.used());
        }
        let kept = (0..50).filter(|&i| cache.get(1, i).is_some()).count();
        assert!(kept >= 45, "only {kept} of 50 hot chunks survived a scan");
        cache.forget(1);
        assert!((0..50).all(|i| cache.get(1, i).is_none()));
        cache.set_budget(0);
        assert_eq!(cache.used(), 0);
    }
}
