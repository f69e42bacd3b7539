//! The tablets of new tables, and what may become of the replication of a keyspace that has tablets.
//!
//! A table of a keyspace with tablets gets its map with the schema change that creates it, so it is never seen without
//! one. The map then only changes by moving tablets. Another replication of the keyspace is a goal: the leader of the
//! metadata group moves tablets until they have it. Another kind of the keyspace, tablets or the token ring, is a goal
//! as well, to which the leader brings the tables that are there.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use ::cluster::{Metadata, REPLICATION_KINDS, RING_MOVES, TabletCounts};
use schema::{Keyspace, Schema, Table, TableId};
use topology::{Load, TABLET_MOVES, TabletMap, first_tablets};

use crate::view;

/// The tablets of tables.
type Maps = BTreeMap<TableId, Arc<TabletMap>>;

/// Whether the tables of a keyspace have tablets of their own: unless it was made with `tablets = {'enabled': false}`.
pub(crate) fn has_tablets(keyspace: &Keyspace) -> bool {
    system_tables::kind(&keyspace.name).is_none() && keyspace.has_tablets()
}

/// The maps of the tables that a schema has and the present one has not, and warnings for the user. `bytes_goal` is the
/// usual size of a tablet.
///
/// # Errors
/// A sentence, when the schema changes the replication of tables whose tablets cannot move.
pub(crate) fn for_schema(metadata: &Metadata, next: &Schema, bytes_goal: u64) -> Result<(Maps, Vec<String>), String> {
    let topology = &metadata.topology;
    let mut load = None;
    let mut maps = Maps::new();
    let mut warnings = Vec::new();
    for keyspace in next.keyspaces.values() {
        if let Some(former) = metadata.schema.keyspaces.get(&keyspace.name) {
            check_kind(metadata, former, keyspace)?;
            check_replication(metadata, former, keyspace)?;
        }
    }
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
    Ok((maps, warnings))
}

/// Refuses that a keyspace with tables goes from the token ring to tablets, or back, while some member does not know
/// how.
fn check_kind(metadata: &Metadata, former: &Keyspace, next: &Keyspace) -> Result<(), String> {
    let enabled = metadata.topology.enabled_features();
    if former.has_tablets() == next.has_tablets() || former.tables.is_empty() || enabled.contains(REPLICATION_KINDS) {
        return Ok(());
    }
    Err(format!(
        "The tables of keyspace {} cannot go from the token ring to tablets, or back: not all nodes know how (feature {REPLICATION_KINDS}). Upgrade all nodes first. \
         Nothing was changed.",
        next.name
    ))
}

/// Refuses another replication for tables whose data cannot move.
fn check_replication(metadata: &Metadata, former: &Keyspace, next: &Keyspace) -> Result<(), String> {
    let topology = &metadata.topology;
    let is_same = view::replication(former, topology) == view::replication(next, topology);
    if is_same || former.tables.is_empty() || system_tables::kind(&next.name).is_some() {
        return Ok(());
    }
    let is_on_ring = |table: &Arc<Table>| !metadata.tablets.contains_key(&table.id);
    let of_ring = former.tables.values().any(is_on_ring).then_some(RING_MOVES);
    let of_tablets = (!former.tables.values().all(is_on_ring)).then_some(TABLET_MOVES);
    let needed = of_ring.into_iter().chain(of_tablets);
    let mut missing = needed.filter(|feature| !topology.enabled_features().contains(*feature));
    match missing.next() {
        None => Ok(()),
        Some(feature) => Err(format!(
            "The replication of keyspace {} cannot be altered while it has tables: their data would have to move to other nodes, which not all nodes can do (feature \
             {feature}). Upgrade all nodes first.",
            next.name
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::{Column, ColumnKind, TableOptions};
    use topology::{Topology, TopologyCommand};
    use types::CqlType;
    use uuid::Uuid;

    /// A schema with one keyspace on the token ring, or with tablets, which has a table or none.
    fn schema(is_enabled: bool, has_table: bool) -> Schema {
        let columns = vec![Column::new("k", CqlType::Int, ColumnKind::PartitionKey)];
        let table = Table::new("ks", "t", TableId(Uuid::from_u128(7)), columns, TableOptions::default());
        let tables = has_table.then(|| (table.name.clone(), Arc::new(table)));
        let keyspace = Keyspace {
            name: "ks".to_owned(),
            replication: BTreeMap::new(),
            durable_writes: true,
            tablets: Some([("enabled".to_owned(), is_enabled.to_string())].into()),
            types: BTreeMap::new(),
            functions: BTreeMap::new(),
            aggregates: BTreeMap::new(),
            tables: tables.into_iter().collect(),
        };
        Schema {
            version: Uuid::from_u128(u128::from(is_enabled)),
            keyspaces: [(keyspace.name.clone(), Arc::new(keyspace))].into(),
        }
    }

    #[test]
    fn the_kind_of_a_keyspace_with_tables_changes_only_when_all_nodes_know_how() {
        let mut topology = Topology::new("sea", Uuid::from_u128(9));
        let answer = |topology: &Topology, from: bool, to: bool, has_table: bool| {
            let metadata = Metadata::new(Arc::new(schema(from, has_table)), topology.clone());
            for_schema(&metadata, &schema(to, has_table), 5 << 30).map(|(maps, _)| maps.len())
        };
        for (from, to) in [(true, false), (false, true)] {
            let refused = answer(&topology, from, to, true).expect_err("nobody knows how");
            assert!(
                refused.contains(REPLICATION_KINDS) && refused.contains("Upgrade"),
                "{refused}"
            );
            assert_eq!(answer(&topology, from, to, false), Ok(0), "there is no table");
            assert_eq!(answer(&topology, from, from, true), Ok(0), "nothing changes");
        }
        let features = [REPLICATION_KINDS.to_owned()].into();
        topology
            .apply(&TopologyCommand::EnableFeatures(features))
            .expect("it is enabled");
        // The maps of tables that are there come later, by commands of their own.
        assert_eq!(answer(&topology, false, true, true), Ok(0));
        assert_eq!(answer(&topology, true, false, true), Ok(0));
    }
}
