//! Which node may be removed without moving data.
//!
//! A node that is removed takes its tokens off the ring. What it owned goes to other nodes, and this release moves no data. So a node may be removed only where
//! no other node becomes the owner of data that it does not have, and where the node is nowhere the only owner:
//!
//! - it is a replica of no tablet, because tablets stay where they are until they are moved;
//! - for each keyspace on the token ring that has tables, the replicas of every token without the node are some of those with it, at least one.
//!
//! The second rule holds for a node without tokens, and where every other node is a replica too (three nodes, replication factor 3). A write that was
//! acknowledged at QUORUM is found at QUORUM afterwards: of n replicas at least n/2 (rounded down) that are left have it, and a quorum of the n - 1 that are left
//! meets them. A write that was acknowledged by the removed node alone (ONE) may be lost, as with a node that is lost.
//!
//! Keyspaces of the system hold nothing that a removal could lose. The check is a function of the metadata, and is made where the command is
//! applied: whatever changed meanwhile counts.

use crate::metadata::Metadata;
use schema::Keyspace;
use std::collections::BTreeSet;
use topology::{HostId, NodeNumber, NodeState, Replication, TabletMap, Topology, TopologyCommand, ring_map};

/// Whether a node may be removed; else why not, in a sentence.
pub(crate) fn check(metadata: &Metadata, host_id: HostId) -> Result<(), String> {
    let topology = &metadata.topology;
    let number = match (topology.node(host_id), topology.number(host_id)) {
        (Some(node), Some(number)) if node.state != NodeState::Left => number,
        (Some(_), _) => return Err(format!("node {host_id} has left already, or was removed")),
        (None, _) => return Err(format!("host id {host_id} is not a member of this cluster")),
    };
    check_tablets(metadata, number, host_id)?;
    check_ring(metadata, host_id)
}

/// Whether a node is a replica of no tablet.
fn check_tablets(metadata: &Metadata, number: NodeNumber, host_id: HostId) -> Result<(), String> {
    for (table, map) in &metadata.tablets {
        let count = tablets_on(map, number);
        if count > 0 {
            let name = metadata.schema.table_by_id(*table).map_or_else(
                || table.0.to_string(),
                |table| format!("{}.{}", table.keyspace, table.name),
            );
            return Err(format!(
                "{count} tablets of table {name} have a replica on node {host_id}: bring the node back, or drop the table"
            ));
        }
    }
    Ok(())
}

/// Whether nobody owns more of a keyspace on the token ring without a member than with it.
pub(crate) fn check_ring(metadata: &Metadata, host_id: HostId) -> Result<(), String> {
    let topology = &metadata.topology;
    let number = topology.number(host_id);
    let number = number.ok_or_else(|| format!("host id {host_id} is not a member of this cluster"))?;
    let mut without = Topology::clone(topology);
    let command = TopologyCommand::RemoveNode { host_id };
    without.apply(&command).map_err(|e| e.to_string())?;
    for keyspace in metadata.schema.keyspaces.values() {
        let is_system = keyspace.name == "system" || keyspace.name.starts_with("system_");
        let has_ring_tables = || {
            let mut tables = keyspace.tables.values();
            tables.any(|table| !metadata.tablets.contains_key(&table.id))
        };
        if !is_system && has_ring_tables() {
            check_keyspace(keyspace, topology, &without, number)?;
        }
    }
    Ok(())
}

impl Metadata {
    /// Whether a node has, or gets, a replica of any tablet.
    pub(crate) fn has_tablets(&self, number: NodeNumber) -> bool {
        self.tablets.values().any(|map| tablets_on(map, number) > 0)
    }
}

fn tablets_on(map: &TabletMap, number: NodeNumber) -> usize {
    let is_on = |tablet: &topology::Tablet<'_>| {
        let next = tablet
            .transition
            .into_iter()
            .flat_map(|transition| transition.next.iter());
        tablet.replicas.iter().chain(next).any(|replica| replica.node == number)
    };
    map.tablets().filter(is_on).count()
}

/// Whether nobody owns more of a keyspace without the node than with it, and nothing has no owner.
fn check_keyspace(keyspace: &Keyspace, with: &Topology, without: &Topology, number: NodeNumber) -> Result<(), String> {
    let name = &keyspace.name;
    let mut datacenters: BTreeSet<&str> = with.datacenters();
    let options = keyspace.replication.keys().map(String::as_str);
    datacenters.extend(options.filter(|name| !matches!(*name, "class" | "replication_factor")));
    let replication = Replication::parse(&keyspace.replication, &datacenters).map_err(|e| {
        format!("the replication of keyspace {name} cannot be understood ({e}), so nobody knows who owns its data")
    })?;
    let Ok(before) = ring_map(with, &replication) else {
        // A keyspace that is each node's own, or that nobody can write to.
        return Ok(());
    };
    let owns = |map: &TabletMap| tablets_on(map, number) > 0;
    if !owns(&before) {
        return Ok(());
    }
    let after = ring_map(without, &replication).map_err(|e| {
        format!("keyspace {name} would have no place for its data ({e}): change its replication, or drop it")
    })?;
    for range in before.tablets() {
        let Some((_, last)) = before.token_range(range.id) else {
            continue;
        };
        let owners: BTreeSet<NodeNumber> = range.replicas.iter().map(|replica| replica.node).collect();
        let next: BTreeSet<NodeNumber> = after
            .tablet_of(last)
            .replicas
            .iter()
            .map(|replica| replica.node)
            .collect();
        if next.is_empty() || owners.iter().all(|owner| *owner == number) {
            return Err(format!(
                "the node alone owns a part of keyspace {name}: bring the node back, or drop the keyspace"
            ));
        }
        if let Some(heir) = next.difference(&owners).next() {
            let heir = without
                .numbered(*heir)
                .map_or_else(String::new, |node| node.host_id.to_string());
            return Err(format!(
                "node {heir} would own a part of keyspace {name} whose data it does not have, and this release moves no data: bring the node back, lower the \
                 keyspace's replication factor to have fewer owners, or drop the keyspace"
            ));
        }
    }
    Ok(())
}
