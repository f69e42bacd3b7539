//! What a node does to a table of a shard when the cluster's metadata changes.

use std::rc::Rc;
use std::sync::Arc;

use replica::{Shard, TableStore, TruncationMark, WantedTable};
use schema::Table;

/// Takes over a changed table: new sstables follow it, and those that are open are read by it.
pub async fn alter(shard: &Rc<Shard>, table: Arc<Table>) {
    let store = shard.store(table.id).expect("the table is open");
    let wanted = WantedTable {
        table,
        ranges: store.tablets().iter().map(|tablet| tablet.range).collect(),
        keeps_shards: false,
    };
    shard.reconcile(&[wanted]);
    shard.reopen_sstables(&store).await.expect("the disk works");
}

/// Truncates a table, and marks its directory with the version of the truncation.
pub async fn truncate(shard: &Rc<Shard>, store: &Rc<TableStore>, version: u64) {
    store.set_version(version, 0, version);
    shard.truncate(store).await.expect("the disk works");
    let dir = store.dir.clone();
    let marked = runtime::offload(move || TruncationMark::of(&dir).write(version)).await;
    marked.expect("the disk works");
    store.set_truncated_at(version);
}
