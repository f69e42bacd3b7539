//! Compactions of tables without flushes.
//!
//! A flush asks the strategy whether a compaction is due. A table without writes has no flushes, but its data expires
//! and its tombstones become old enough to be dropped: so a shard asks for all of its tablets from time to time. What
//! is due is a task like any other compaction.

use std::rc::Rc;
use std::time::Duration;

use crate::shard::Shard;

/// Between two looks. Asking costs little; but each look also begins again what has failed or was aborted.
const PERIOD: Duration = Duration::from_mins(10);

impl Shard {
    /// Starts the compactions that are due though nothing was flushed, and makes the index files that sstables lack.
    /// Spawn this; it never returns.
    pub async fn compact_periodically(self: Rc<Self>) {
        loop {
            for store in self.stores() {
                self.index_soon(&store);
            }
            runtime::sleep(PERIOD).await;
            for store in self.stores() {
                let tablets = store.tablets();
                for tablet in tablets.iter() {
                    if self.choose(&store, tablet).is_some() {
                        self.compact_soon(&store, tablet);
                    }
                }
                runtime::yield_now().await;
            }
        }
    }
}
