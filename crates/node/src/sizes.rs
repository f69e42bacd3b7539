//! What this node holds, and how much.

use std::rc::Rc;

use ::cluster::TabletBytes;
use query::Engine;
use replica::TableStore;

use crate::follow::on_all_shards;

/// Whether any table of users has anything on this node.
pub(crate) async fn has_data() -> bool {
    on_all_shards(async |engine: Rc<Engine>| engine.shard.has_data())
        .await
        .contains(&true)
}

/// The bytes of the sstables of each tablet.
pub(crate) async fn tablet_bytes() -> Vec<TabletBytes> {
    let of_shard =
        async |engine: Rc<Engine>| -> Vec<TabletBytes> { engine.shard.stores().iter().flat_map(of_store).collect() };
    on_all_shards(of_shard).await.into_iter().flatten().collect()
}

fn of_store(store: &Rc<TableStore>) -> Vec<TabletBytes> {
    let table = store.table().id;
    let of_tablet = |tablet: &Rc<replica::Tablet>| TabletBytes {
        table,
        last: tablet.range.to,
        bytes: tablet.disk_bytes(),
    };
    store.tablets().iter().map(of_tablet).collect()
}
