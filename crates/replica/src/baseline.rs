//! Whether a table has lost data since a moment: what a copy of its sstables, in or out, must know before it counts.

use std::fmt;
use std::rc::Rc;

use crate::tablet::{TableStore, Tablet, TokenRange};

/// A table's part on this shard at one moment, to be compared with what it is later.
pub struct Baseline {
    store: Rc<TableStore>,
    truncation: u64,
    truncated_at: u64,
    tablets: Vec<(Rc<Tablet>, u64)>,
}

/// Why data of a moment before must not be used any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// The table was dropped.
    Dropped,
    /// It was truncated, or is about to be.
    Truncated,
    /// A tablet is of this shard no more.
    Left,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dropped => "the table was dropped meanwhile",
            Self::Truncated => "the table was truncated meanwhile",
            Self::Left => "the tablet moved meanwhile",
        })
    }
}

impl Baseline {
    /// The table as it is now.
    pub fn of(store: &Rc<TableStore>) -> Self {
        let tablets = store.tablets();
        Self {
            store: Rc::clone(store),
            truncation: store.truncation.get(),
            truncated_at: store.truncated_at.get(),
            tablets: tablets.iter().map(|tablet| (tablet.clone(), tablet.epoch())).collect(),
        }
    }

    /// Whether the tablets that have tokens of a range have lost nothing since.
    ///
    /// # Errors
    /// When they have, and why.
    pub fn check_range(&self, range: TokenRange) -> Result<(), Lost> {
        let of_range = self.tablets.iter().map(|(tablet, _)| tablet);
        let of_range: Vec<_> = of_range
            .filter(|tablet| tablet.range.intersects(range))
            .cloned()
            .collect();
        self.check(&of_range)
    }

    /// Whether these tablets have lost nothing since.
    ///
    /// # Errors
    /// When they have, and why.
    pub fn check(&self, tablets: &[Rc<Tablet>]) -> Result<(), Lost> {
        if self.store.dropped.get() {
            return Err(Lost::Dropped);
        }
        if (self.store.truncation.get(), self.store.truncated_at.get()) != (self.truncation, self.truncated_at) {
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
