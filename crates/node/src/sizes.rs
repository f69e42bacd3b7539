//! What this node holds, how much, and how much is asked of it.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use ::cluster::{Disk, Splits, TabletBytes, TabletReport};
use query::Engine;
use replica::{TableStore, TokenRange};
use schema::TableId;

use crate::config::Config;
use crate::directories::Directory;
use crate::follow::on_all_shards;

/// Whether any table of users has anything on this node.
pub(crate) async fn has_data() -> bool {
    on_all_shards(async |engine: Rc<Engine>| engine.shard.has_data())
        .await
        .contains(&true)
}

/// The bytes of all sstables.
pub(crate) async fn all_bytes() -> u64 {
    let of_shard = async |engine: Rc<Engine>| -> u64 {
        let stores = engine.shard.stores();
        let tablets = stores.iter().flat_map(|store| store.tablets().to_vec());
        tablets.map(|tablet| tablet.disk_bytes()).sum()
    };
    on_all_shards(of_shard).await.into_iter().sum()
}

/// What the leader of the metadata group plans by. The sstables of tables that are about to be split are cut from now on, and no others.
pub(crate) async fn tablet_report(engine: &Engine, config: &Config, splits: Splits) -> TabletReport {
    let cuts = Arc::new(cuts_of(engine, &splits));
    let of_shard = async move |engine: Rc<Engine>| -> (Vec<TabletBytes>, Vec<(TableId, u64)>) {
        let stores = engine.shard.stores();
        let uncut = stores.iter().filter_map(|store| {
            let id = store.table().id;
            let of_store = cuts.get(&id);
            engine
                .shard
                .cut_ahead(store, of_store.map(|(_, ranges)| ranges.clone()));
            of_store.map(|(table, _)| (*table, store.uncut_bytes()))
        });
        (stores.iter().flat_map(of_store).collect(), uncut.collect())
    };
    let mut report = TabletReport {
        disk: disk(config),
        ..TabletReport::default()
    };
    let mut uncut: BTreeMap<TableId, u64> = BTreeMap::new();
    for (tablets, of_shard) in on_all_shards(of_shard).await {
        report.tablets.extend(tablets);
        for (table, bytes) in of_shard {
            *uncut.entry(table).or_default() += bytes;
        }
    }
    report.uncut = uncut.into_iter().collect();
    report
}

/// By table that is kept here: the table of the schema that is to be split, and the tablets that it has then. A table whose map this node has not is left out.
fn cuts_of(engine: &Engine, splits: &Splits) -> BTreeMap<TableId, (TableId, Arc<[TokenRange]>)> {
    let (view, schema) = (engine.coordinator.view(), engine.schema());
    let mut cuts = BTreeMap::new();
    for (id, tablet_count) in splits {
        let is_split = |count: u32| count.checked_mul(2) == Some(*tablet_count);
        let route = view.route(*id).filter(|route| route.has_own_tablets);
        let route = route.filter(|route| is_split(route.map.tablet_count()));
        let after = route.and_then(|route| route.map.resized(0, *tablet_count).ok());
        let (Some(after), Some(table)) = (after, schema.table_by_id(*id)) else {
            continue;
        };
        let ranges = after.tablets().filter_map(|tablet| after.token_range(tablet.id));
        let ranges: Arc<[TokenRange]> = ranges.map(|(after, to)| TokenRange { after, to }).collect();
        for kept in engine.node.system_tables.kept_tables(table) {
            cuts.insert(kept.id, (*id, ranges.clone()));
        }
    }
    cuts
}

/// The file system of the data.
fn disk(config: &Config) -> Option<Disk> {
    let space = runtime::fs::disk_space(Directory::Data.path(config)).ok()?;
    Some(Disk {
        capacity: space.used.saturating_add(space.available),
        used: space.used,
    })
}

fn of_store(store: &Rc<TableStore>) -> Vec<TabletBytes> {
    let table = store.table().id;
    let of_tablet = |tablet: &Rc<replica::Tablet>| TabletBytes {
        table,
        last: tablet.range.to,
        bytes: tablet.disk_bytes(),
        load: tablet.load(),
    };
    store.tablets().iter().map(of_tablet).collect()
}
