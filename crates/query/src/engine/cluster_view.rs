//! From schema and topology to the view that requests use.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coordinator::{ClusterView, NotAMember};
use schema::{Keyspace, Schema, TableId};
use topology::{HostId, Replication, TabletMap, Topology};

use crate::system;

/// The cluster as the node `host_id` sees it.
///
/// # Errors
/// When the topology does not have the node.
pub fn cluster_view(
    schema: &Schema,
    topology: &Arc<Topology>,
    host_id: HostId,
    tablets: &BTreeMap<TableId, Arc<TabletMap>>,
) -> Result<ClusterView, NotAMember> {
    let keyspaces = schema.keyspaces.values().filter_map(|keyspace| {
        let tables = keyspace
            .tables
            .values()
            .map(|t| t.id)
            .filter(|id| !system::is_virtual(*id));
        let tables: Vec<TableId> = tables.collect();
        let replication = replication(keyspace, topology)?;
        Some((&*keyspace.name, replication, tables))
    });
    ClusterView::new(topology.clone(), host_id, keyspaces, tablets)
}

/// The replication of a keyspace. Datacenters in which no node stands (any more) count as far as its levels do. None, and a line in the
/// log, when it has none that can be understood.
#[must_use]
pub fn replication(keyspace: &Keyspace, topology: &Topology) -> Option<Replication> {
    let mut datacenters: BTreeSet<&str> = topology.datacenters();
    let options = keyspace.replication.keys().map(String::as_str);
    datacenters.extend(options.filter(|name| !matches!(*name, "class" | "replication_factor")));
    match Replication::parse(&keyspace.replication, &datacenters) {
        Ok(replication) => Some(replication),
        Err(e) => {
            log::error!("keyspace {}: {e}", keyspace.name);
            None
        }
    }
}
