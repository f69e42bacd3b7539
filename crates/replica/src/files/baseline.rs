//! Whether a table has lost data since a moment: what a copy of its sstables, in or out, must know before it counts.
//!
//! A truncation has one mark for a table and for the state that acceptors keep of its partitions (`t$paxos`). The mark
//! is stored with the table. So the baselines of both tables check it.

use std::fmt;
use std::rc::Rc;

use crate::shard::Shard;
use crate::tablets::tablet::{TableStore, Tablet, TokenRange};
use crate::tombstones::paxos_state_id;

/// A table's part on this shard at one moment, to be compared with what it is later.
pub struct Baseline {
    store: Rc<TableStore>,
    /// The table and, if it is here, the one that is truncated with it; the last truncation that was known and that was
    /// done.
    marks: Vec<(Rc<TableStore>, u64, u64)>,
    tablets: Vec<(Rc<Tablet>, u64)>,
}

/// Why data of a moment before must not be used any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// The table was dropped.
    Dropped,
    /// It was truncated, or is about to be.
    Truncated,
    /// A tablet no longer belongs to this shard.
    Left,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dropped => "the table has been dropped",
            Self::Truncated => "the table has been truncated",
            Self::Left => "the tablet has moved",
        })
    }
}

impl Baseline {
    /// The table as it is now.
    pub fn of(shard: &Shard, store: &Rc<TableStore>) -> Self {
        // The identity of either gives that of the other.
        let other = shard.store(paxos_state_id(store.table().id));
        let marks = other.into_iter().chain([Rc::clone(store)]).map(|store| {
            let (known, done) = (store.truncation.get(), store.truncated_at.get());
            (store, known, done)
        });
        let tablets = store.tablets();
        Self {
            store: Rc::clone(store),
            marks: marks.collect(),
            tablets: tablets.iter().map(|tablet| (tablet.clone(), tablet.epoch())).collect(),
        }
    }

    /// The version of the last truncation, 0 when there was none; None while one is known and not done.
    pub fn truncated_at(&self) -> Option<u64> {
        let is_done = self.marks.iter().all(|(_, known, done)| known <= done);
        let done = self.marks.iter().map(|(_, _, done)| *done).max();
        done.filter(|_| is_done)
    }

    /// Whether the tablets that have tokens of a range have lost nothing since.
    ///
    /// # Errors
    /// When they have, and why.
    pub fn check_range(&self, range: TokenRange) -> Result<(), Lost> {
        self.check_ranges(&[range])
    }

    /// Whether the tablets that have tokens of any of several ranges have lost nothing since.
    ///
    /// # Errors
    /// As [`Self::check_range`].
    pub fn check_ranges(&self, ranges: &[TokenRange]) -> Result<(), Lost> {
        let has_some = |tablet: &Tablet| ranges.iter().any(|range| tablet.range.intersects(*range));
        let of_ranges = self.tablets.iter().map(|(tablet, _)| tablet);
        let of_ranges: Vec<_> = of_ranges.filter(|tablet| has_some(tablet)).cloned().collect();
        self.check(&of_ranges)
    }

    /// Whether these tablets have lost nothing since.
    ///
    /// # Errors
    /// When they have, and why.
    pub fn check(&self, tablets: &[Rc<Tablet>]) -> Result<(), Lost> {
        if self.store.dropped.get() {
            return Err(Lost::Dropped);
        }
        let is_as_before = |(store, known, done): &(Rc<TableStore>, u64, u64)| {
            store.truncation.get() == *known && store.truncated_at.get() == *done
        };
        if !self.marks.iter().all(is_as_before) {
            return Err(Lost::Truncated);
        }
        for tablet in tablets {
            let known = self.tablets.iter().find(|(known, _)| Rc::ptr_eq(known, tablet));
            match known {
                _ if tablet.has_left() => return Err(Lost::Left),
                None => return Err(Lost::Left),
                Some((_, epoch)) if tablet.epoch() != *epoch => return Err(Lost::Truncated),
                Some(_) => {}
            }
        }
        Ok(())
    }
}
