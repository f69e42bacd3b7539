//! The tablets of new tables, and what may become of the replication of a keyspace that has tablets.
//!
//! A table of a keyspace with tablets gets its map with the change of the schema that makes it, so nobody ever sees it without. The map
//! then only changes by moving tablets; a change of the replication that would need that is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::cluster::Metadata;
use schema::{Keyspace, Schema, TableId};
use topology::{Load, Replication, TabletMap, Topology, first_tablets};

use crate::view;

/// Whether the tables of a keyspace have tablets of their own: unless it was made with `tablets = {'enabled': false}`.
pub(crate) fn has_tablets(keyspace: &Keyspace) -> bool {
    let option = |name: &str| keyspace.tablets.as_ref().and_then(|tablets| tablets.get(name));
    system_tables::kind(&keyspace.name).is_none() && option("enabled").is_none_or(|enabled| enabled == "true")
}

/// The maps of the tables that a schema has and the present one has not.
///
/// # Errors
/// A sentence, when the schema changes copies of tables that have tablets.
pub(crate) fn for_schema(metadata: &Metadata, next: &Schema) -> Result<BTreeMap<TableId, Arc<TabletMap>>, String> {
    let topology = &metadata.topology;
    let mut load = None;
    let mut maps = BTreeMap::new();
    for keyspace in next.keyspaces.values().filter(|keyspace| has_tablets(keyspace)) {
        let former = metadata.schema.keyspaces.get(&keyspace.name);
        if former.is_some_and(|former| Arc::ptr_eq(former, keyspace)) {
            continue;
        }
        let Some(replication) = view::replication(keyspace, topology) else {
            continue;
        };
        if let Some(former) = former {
            check_replication(metadata, former, keyspace, &replication)?;
        }
        let initial = keyspace.tablets.as_ref().and_then(|tablets| tablets.get("initial"));
        let initial = initial.and_then(|count| count.parse().ok()).filter(|count| *count > 0);
        let is_new = |id: TableId| former.is_none_or(|former| former.tables.values().all(|table| table.id != id));
        for table in keyspace.tables.values().filter(|table| is_new(table.id)) {
            let load = load.get_or_insert_with(|| {
                let mut load = Load::default();
                metadata.tablets.values().for_each(|map| load.add(map));
                load
            });
            match first_tablets(topology, &replication, initial, load) {
                Ok(map) => {
                    load.add(&map);
                    maps.insert(table.id, Arc::new(map));
                }
                // On the ring it waits for nodes to come.
                Err(e) => log::warn!("{}.{} has no tablets of its own: {e}", keyspace.name, table.name),
            }
        }
    }
    Ok(maps)
}

/// Refuses other copies for tables whose tablets would have to move.
fn check_replication(
    metadata: &Metadata,
    former: &Keyspace,
    next: &Keyspace,
    replication: &Replication,
) -> Result<(), String> {
    let topology: &Arc<Topology> = &metadata.topology;
    let has_maps = former
        .tables
        .values()
        .any(|table| metadata.tablets.contains_key(&table.id));
    let before = view::replication(former, topology);
    if !has_maps || before.as_ref() == Some(replication) {
        return Ok(());
    }
    let copies = |replication: &Replication| first_tablets(topology, replication, Some(1), &Load::default()).ok();
    let is_same = match before.as_ref().map(copies) {
        Some(Some(before)) => copies(replication).is_some_and(|next| {
            let nodes = |map: &TabletMap| -> Vec<u16> {
                let mut nodes: Vec<u16> = map.tablets().flat_map(|t| t.replicas).map(|r| r.node.0).collect();
                nodes.sort_unstable();
                nodes
            };
            nodes(&before) == nodes(&next)
        }),
        _ => true,
    };
    if is_same {
        return Ok(());
    }
    Err(format!(
        "The replication of keyspace {} cannot be altered while it has tables: their tablets would have to get other replicas, which this \
         version does not do. It can be for keyspaces with tablets = {{'enabled': false}}, and for those without tables.",
        next.name
    ))
}
