//! What this node holds, how much, and how much is asked of it.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use ::cluster::{Disk, Splits, TabletBytes, TabletReport};
use config::Config;
use coordinator::ClusterView;
use query::Engine;
use replica::{TableStore, TokenRange};
use schema::{Keyspace, TableId};
use topology::{Boundaries, Replication, ring_map};

use crate::directories::Directory;
use crate::follow::on_all_shards;
use crate::view;

/// Whether any table of users has anything on this node.
pub(crate) async fn has_data() -> bool {
    on_all_shards(async |engine: Rc<Engine>| engine.coordinator.context.shard.has_data())
        .await
        .contains(&true)
}

/// The bytes of all sstables.
pub(crate) async fn all_bytes() -> u64 {
    let of_shard = async |engine: Rc<Engine>| -> u64 {
        let stores = engine.coordinator.context.shard.stores();
        let tablets = stores.iter().flat_map(|store| store.tablets().to_vec());
        tablets.map(|tablet| tablet.disk_bytes()).sum()
    };
    on_all_shards(of_shard).await.into_iter().sum()
}

/// What the leader of the metadata group plans by. The sstables of tables that are about to be split are cut from now
/// on, and no others.
pub(crate) async fn tablet_report(engine: &Engine, config: &Config, splits: Splits) -> TabletReport {
    let cuts = Arc::new(cuts_of(engine, &splits));
    let of_shard = async move |engine: Rc<Engine>| -> (Vec<TabletBytes>, Vec<(TableId, u64)>) {
        let stores = engine.coordinator.context.shard.stores();
        let uncut = stores.iter().filter_map(|store| {
            let id = store.table().id;
            let of_store = cuts.get(&id);
            engine
                .coordinator
                .context
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

/// By table that is kept here: the table of the schema that is to be split, and the tablets that it has then. A table
/// whose map this node has not is left out.
fn cuts_of(engine: &Engine, splits: &Splits) -> BTreeMap<TableId, (TableId, Arc<[TokenRange]>)> {
    let (view, schema) = (engine.coordinator.context.view(), engine.schema());
    let mut cuts = BTreeMap::new();
    for (id, tablet_count) in splits {
        let Some(table) = schema.table_by_id(*id) else {
            continue;
        };
        let Some(after) = ends_after(&view, schema.keyspaces.get(&table.keyspace), (*id, *tablet_count)) else {
            continue;
        };
        let ranges = after.token_ranges();
        let ranges: Arc<[TokenRange]> = ranges.map(|(after, to)| TokenRange { after, to }).collect();
        for kept in engine.node.system_tables.kept_tables(table) {
            cuts.insert(kept.id, (*id, ranges.clone()));
        }
    }
    cuts
}

/// Where the tablets of a table end when it is split into so many, when it leaves the token ring, or, with 0 tablets,
/// when it is cut to come back to the ring. None where this node does not have the map yet that this is said of.
fn ends_after(
    view: &ClusterView,
    keyspace: Option<&Arc<Keyspace>>,
    (table, tablet_count): (TableId, u32),
) -> Option<Boundaries> {
    let route = view.route(table)?;
    if !route.has_own_tablets {
        let log2 = tablet_count.is_power_of_two().then(|| tablet_count.ilog2())?;
        let ends = Boundaries::PowerOfTwo(u8::try_from(log2).ok()?);
        return Some(route.map.boundaries().joined(&ends));
    }
    if tablet_count == 0 {
        let mut replication = view::replication(keyspace?, &view.topology)?;
        if let Replication::NetworkTopology(factors) = &mut replication {
            let known = view.topology.datacenters();
            factors.retain(|name, _| known.contains(name.as_str()));
        }
        let ring = ring_map(&view.topology, &replication).ok()?;
        return Some(route.map.boundaries().joined(ring.boundaries()));
    }
    let is_split = route.map.tablet_count().checked_mul(2) == Some(tablet_count);
    let after = is_split.then(|| route.map.resized(0, tablet_count).ok()).flatten()?;
    Some(after.boundaries().clone())
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
