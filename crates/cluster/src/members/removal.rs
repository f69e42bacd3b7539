//! Whether a node can go.
//!
//! A node leaves the topology (`RemoveNode`) when it has nothing: it is a replica of no tablet, and has no tokens where
//! keyspaces without tablets have tables. Others get both before: tablets by moves, ranges of the token ring by a
//! change of the ring. So before an operation begins it is asked whether others can:
//!
//! - some node is left that owns the ring, if the node does;
//! - each keyspace on the ring that has tables has a place for its data without the node;
//! - where the node is lost, it owned no range alone.
//!
//! Fewer owners than copies are no reason against it: a keyspace on the ring has as many copies as there are nodes.
//!
//! Keyspaces of the system hold nothing that a removal could lose. What `RemoveNode` needs is checked again where the
//! command is applied, because it may have changed since.

use crate::metadata::Metadata;
use crate::ring::replication_of;
use std::collections::BTreeSet;
use topology::{HostId, NodeNumber, NodeState, TabletMap, Topology, TopologyCommand, ring_map};

/// Whether a node may be removed at once, because it has nothing; else why not, in a sentence.
pub(crate) fn check(metadata: &Metadata, host_id: HostId) -> Result<(), String> {
    let topology = &metadata.topology;
    let (node, number) = match (topology.node(host_id), topology.number(host_id)) {
        (Some(node), Some(number)) if node.state != NodeState::Left => (node, number),
        (Some(_), _) => return Err(format!("node {host_id} has left already, or was removed")),
        (None, _) => return Err(format!("host id {host_id} is not a member of this cluster")),
    };
    check_tablets(metadata, number, host_id)?;
    if node.tokens.is_empty() || !metadata.has_ring_data() {
        return Ok(());
    }
    if node.state == NodeState::Joining {
        Ok(())
    } else {
        Err(format!(
            "node {host_id} owns ranges of the token ring, which others must copy before it is removed"
        ))
    }
}

/// Whether a node is a replica of no tablet.
fn check_tablets(metadata: &Metadata, number: NodeNumber, host_id: HostId) -> Result<(), String> {
    for (table, map) in &metadata.tablets {
        let count = tablets_on(map, number);
        if count > 0 {
            let name = metadata.table_name(*table);
            return Err(format!(
                "{count} tablets of table {name} have a replica on node {host_id}: bring the node back, or drop the table"
            ));
        }
    }
    Ok(())
}

/// Whether other nodes have everything that a lost node has; else what they lack, in a sentence.
pub(crate) fn check_alone(metadata: &Metadata, host_id: HostId) -> Result<(), String> {
    let number = metadata.topology.number(host_id);
    let number = number.ok_or_else(|| format!("host id {host_id} is not a member of this cluster"))?;
    let is_alone = |tablet: topology::Tablet<'_>| {
        let mut replicas = tablet.read_replicas().iter();
        replicas.all(|replica| has_nothing_left(metadata, replica.node, number))
    };
    for (table, map) in &metadata.tablets {
        if map.tablets().any(is_alone) {
            return Err(format!(
                "the node has the only copy of tablets of table {}",
                metadata.table_name(*table)
            ));
        }
    }
    for (keyspace, _) in metadata.ring_keyspaces() {
        let map = metadata.ring_map_of(keyspace);
        if map.is_some_and(|map| map.tablets().any(is_alone)) {
            return Err(format!("the node alone owns a part of keyspace {}", keyspace.name));
        }
    }
    Ok(())
}

/// Whether others can own what a node owns of the token ring; else why not, in a sentence. They copy it from the node
/// and from other owners; if the node is lost, from the others alone.
pub(crate) fn check_ring(metadata: &Metadata, host_id: HostId, is_lost: bool) -> Result<(), String> {
    let topology = &metadata.topology;
    let number = topology.number(host_id);
    let number = number.ok_or_else(|| format!("host id {host_id} is not a member of this cluster"))?;
    let has_tokens = topology.node(host_id).is_some_and(|node| !node.tokens.is_empty());
    if has_tokens && !metadata.has_other_owner(host_id) {
        return Err("no other full member has tokens: no node would own the token ring".to_owned());
    }
    let mut without = Topology::clone(topology);
    let command = TopologyCommand::RemoveNode { host_id };
    without.apply(&command).map_err(|e| e.to_string())?;
    for (keyspace, _) in metadata.ring_keyspaces() {
        let name = &keyspace.name;
        if replication_of(topology, &keyspace.replication).is_none() {
            return Err(format!(
                "the replication of keyspace {name} cannot be understood, so the owners of its data are unknown"
            ));
        }
        // The owners that are read now have the data, whatever replication is requested.
        let Some(before) = metadata.ring_map_of(keyspace) else {
            // No node can write to it.
            continue;
        };
        if tablets_on(&before, number) == 0 {
            continue;
        }
        let nowhere = "would have no place for its data: change its replication, or drop it";
        let after = replication_of(&without, &keyspace.replication).and_then(|next| ring_map(&without, &next).ok());
        let after = after.ok_or_else(|| format!("keyspace {name} {nowhere}"))?;
        let has_nothing = |node| has_nothing_left(metadata, node, number);
        if !has_sources((&before, &after), has_nothing, is_lost) {
            return Err(format!(
                "the node alone owns a part of keyspace {name}: bring the node back, or drop the keyspace"
            ));
        }
    }
    Ok(())
}

/// Whether a replica gives others nothing when a lost node is gone: it is that one, or is lost as well.
fn has_nothing_left(metadata: &Metadata, replica: NodeNumber, lost: NodeNumber) -> bool {
    let node = metadata.topology.numbered(replica);
    replica == lost || node.is_none_or(|node| metadata.topology.is_lost(node))
}

/// Whether every range has an owner afterwards that has its data or gets it. `has_nothing` says of an owner whether
/// others cannot copy from it.
fn has_sources(
    (before, after): (&TabletMap, &TabletMap),
    has_nothing: impl Fn(NodeNumber) -> bool,
    is_lost: bool,
) -> bool {
    let nodes = |replicas: &[topology::Replica]| -> BTreeSet<NodeNumber> {
        replicas.iter().map(|replica| replica.node).collect()
    };
    for range in before.tablets() {
        let Some((_, last)) = before.token_range(range.id) else {
            continue;
        };
        let (owners, next) = (nodes(range.read_replicas()), nodes(after.tablet_of(last).replicas));
        let is_alone = owners.iter().all(|owner| has_nothing(*owner));
        if next.is_empty() || (is_alone && is_lost) {
            return false;
        }
    }
    true
}

impl Metadata {
    /// Whether a node that leaves has nothing any more, so that it can be removed.
    pub(crate) fn has_given_all(&self, number: NodeNumber) -> bool {
        let node = self.topology.numbered(number);
        !self.has_tablets(number) && node.is_some_and(|node| check(self, node.host_id).is_ok())
    }

    /// Whether a node has, or gets, a replica of any tablet.
    pub(crate) fn has_tablets(&self, number: NodeNumber) -> bool {
        self.tablets.values().any(|map| tablets_on(map, number) > 0)
    }

    /// Whether keyspaces of users have tables on the token ring.
    pub(crate) fn has_ring_data(&self) -> bool {
        self.ring_keyspaces().next().is_some()
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
