//! The tablets of new tables, and what may become of the replication of a keyspace that has tablets.
//!
//! A table of a keyspace with tablets gets its map with the schema change that creates it, so it is never seen without
//! one. The map then only changes by moving tablets. Another replication of the keyspace is a goal: the leader of the
//! metadata group moves tablets until they have it. Another kind of the keyspace, tablets or the token ring, is a goal
//! as well, to which the leader brings the tables that are there.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use ::cluster::{Metadata, TabletCounts};
use schema::{Keyspace, Schema, TableId};
use topology::{Load, TabletMap, first_tablets};

use crate::view;

/// The tablets of tables.
type Maps = BTreeMap<TableId, Arc<TabletMap>>;

/// Whether the tables of a keyspace have tablets of their own: unless it was made with `tablets = {'enabled': false}`.
pub(crate) fn has_tablets(keyspace: &Keyspace) -> bool {
    system_tables::kind(&keyspace.name).is_none() && keyspace.has_tablets()
}

/// The maps of the tables that a schema has and the present one has not, and warnings for the user. `bytes_goal` is the
/// usual size of a tablet.
pub(crate) fn for_schema(metadata: &Metadata, next: &Schema, bytes_goal: u64) -> (Maps, Vec<String>) {
    let topology = &metadata.topology;
    let mut load = None;
    let mut maps = Maps::new();
    let mut warnings = Vec::new();
    for keyspace in next.keyspaces.values().filter(|keyspace| has_tablets(keyspace)) {
        let former = metadata.schema.keyspaces.get(&keyspace.name);
        if former.is_some_and(|former| Arc::ptr_eq(former, keyspace)) {
            continue;
        }
        let Some(replication) = view::replication(keyspace, topology) else {
            continue;
        };
        let known = former.into_iter().flat_map(|former| former.tables.values());
        let known: HashSet<TableId> = known.map(|table| table.id).collect();
        let is_new = |id: TableId| !known.contains(&id);
        let counts_of = |options| TabletCounts::of(topology, Some(&replication), Some(keyspace), options, bytes_goal);
        if former.is_none_or(|former| former.tablets != keyspace.tablets) {
            warnings.extend(counts_of(None).warning(&format!("keyspace {}", keyspace.name)));
        }
        for table in keyspace.tables.values() {
            let options = table.options.tablets.as_ref();
            let before = former.and_then(|former| former.tables.get(&table.name));
            if options.is_some() && before.is_none_or(|before| before.options.tablets != table.options.tablets) {
                warnings.extend(counts_of(options).warning(&format!("table {}.{}", table.keyspace, table.name)));
            }
        }
        for table in keyspace.tables.values().filter(|table| is_new(table.id)) {
            let load = load.get_or_insert_with(|| {
                let mut load = Load::default();
                metadata.tablets.values().for_each(|map| load.add(map));
                load
            });
            let counts = counts_of(table.options.tablets.as_ref());
            let count = counts.first(topology, &replication);
            match first_tablets(topology, &replication, count, load) {
                Ok(map) => {
                    load.add(&map);
                    maps.insert(table.id, Arc::new(map));
                }
                // On the ring it waits for nodes to come.
                Err(e) => log::warn!("{}.{} has no tablets of its own: {e}", keyspace.name, table.name),
            }
        }
    }
    (maps, warnings)
}
