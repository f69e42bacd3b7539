//! What this node makes of the cluster's metadata: the view that requests use, and which of its shards has which tokens
//! of a table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ::cluster::{Metadata, Replications};
use coordinator::{ClusterView, Forgotten, NotAMember, Ring};
use replica::{TableCuts, TokenRange, shard_range};
use schema::{Keyspace, Schema, Table, TableId};
use stdx::planted::{self, Bug};
use system_tables::{KeyspaceKind, Registry};
use topology::{HostId, Replica, Replication, Stage, TabletMap, Topology};
use types::Token;

use crate::cluster::peer;
use crate::start::{Shared, with_shards};

/// What requests see of the metadata on this node, which has seen `before` until now.
///
/// # Errors
/// When the node is not a member.
pub(crate) fn view_of(shared: &Shared, metadata: &Metadata, before: &ClusterView) -> Result<ClusterView, String> {
    let host_id = HostId(shared.host_id);
    // Until the others know with how many shards this node was started, it does.
    let topology = with_shards(&metadata.topology, host_id.0, shared.config.smp);
    let ring = ring_of(metadata, &topology);
    let view = cluster_view(
        &metadata.schema,
        &topology,
        host_id,
        (&metadata.tablets, &ring),
        Some(before),
    );
    let view = view.map_err(|e| e.to_string())?;
    let view = view
        .at(metadata.index, metadata.fence)
        .truncated(metadata.truncations.clone())
        .forgetting(forgotten(metadata));
    Ok(view.reached_by(|node| peer(&shared.config, node)))
}

/// What members hold for others that is forgotten.
pub(crate) fn forgotten(metadata: &Metadata) -> BTreeMap<HostId, Forgotten> {
    let of = |(host, known): (&HostId, &::cluster::Forgotten)| {
        let (before, version) = (known.before, known.index);
        (*host, Forgotten { before, version })
    };
    metadata.forgotten.iter().map(of).collect()
}

/// The cluster as the node `host_id` sees it, which has seen `before` until now.
///
/// # Errors
/// When the topology does not have the node.
pub(crate) fn cluster_view(
    schema: &Schema,
    topology: &Arc<Topology>,
    host_id: HostId,
    (tablets, ring): (&BTreeMap<TableId, Arc<TabletMap>>, &Ring),
    before: Option<&ClusterView>,
) -> Result<ClusterView, NotAMember> {
    let keyspaces = schema.keyspaces.values().filter_map(|keyspace| {
        // What each node has for itself has no replicas.
        let is_of_node = system_tables::kind(&keyspace.name) == Some(KeyspaceKind::Local);
        let tables = keyspace.tables.values().filter(|_| !is_of_node);
        let tables: Vec<TableId> = tables.map(|table| table.id).collect();
        let replication = replication(keyspace, topology)?;
        Some((&*keyspace.name, replication, tables))
    });
    ClusterView::with_ring(topology.clone(), host_id, keyspaces, (tablets, ring), before)
}

/// How the token ring is on its way to other owners.
pub(crate) fn ring_of(metadata: &Metadata, topology: &Topology) -> Ring {
    let replications = |options: &Replications| -> BTreeMap<String, Replication> {
        let replications = options.iter().filter_map(|(keyspace, options)| {
            let replication = parsed(keyspace, options, topology)?;
            Some((keyspace.clone(), replication))
        });
        replications.collect()
    };
    let none = Replications::new();
    let (former, towards) = match &metadata.ring {
        Some(ring) => (&ring.former, &ring.towards),
        None => (&none, &none),
    };
    Ring {
        stage: metadata.ring_change(),
        former: replications(former),
        towards: replications(towards),
    }
}

/// The replication of a keyspace. Datacenters that have no nodes (any more) still count for its consistency levels.
/// None, and a line in the log, when the replication cannot be understood.
pub(crate) fn replication(keyspace: &Keyspace, topology: &Topology) -> Option<Replication> {
    parsed(&keyspace.name, &keyspace.replication, topology)
}

fn parsed(keyspace: &str, options: &BTreeMap<String, String>, topology: &Topology) -> Option<Replication> {
    let mut datacenters: BTreeSet<&str> = topology.datacenters();
    let named = options.keys().map(String::as_str);
    datacenters.extend(named.filter(|name| !matches!(*name, "class" | "replication_factor")));
    match Replication::parse(options, &datacenters) {
        Ok(replication) => Some(replication),
        Err(e) => {
            log::error!("keyspace {keyspace}: {e}");
            None
        }
    }
}

/// The tables that have files: those of the schema that are not computed, and what acceptors keep for them. Each with
/// the table of the schema that it has its tablets with.
pub(crate) fn stored_tables(schema: &Schema, system_tables: &Registry) -> Vec<(TableId, Arc<Table>)> {
    let tables = schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    let kept = tables.flat_map(|table| {
        let kept = system_tables.kept_tables(table).into_iter();
        kept.map(|kept| (table.id, kept))
    });
    kept.collect()
}

/// The tokens of a table by the shards of this node, each shard's in order: those of its tablets, or its part of the
/// token ring.
pub(crate) fn ranges_by_shard(view: &ClusterView, table: TableId, shards: u32) -> Vec<Vec<TokenRange>> {
    let Some(tablets) = view.own_tablets(table) else {
        return (0..shards).map(|shard| vec![shard_range(shard, shards)]).collect();
    };
    let mut ranges = vec![Vec::new(); shards as usize];
    for (after, to, on) in tablets {
        if let Some(of_shard) = on.and_then(|shard| ranges.get_mut(shard as usize)) {
            of_shard.push(TokenRange { after, to });
        }
    }
    ranges
}

/// The tokens of a table, by the shards of this node, whose older data other nodes are still to send: those of tablets
/// and of ranges of the ring that move here and are not read yet.
pub(crate) fn awaited_by_shard(view: &ClusterView, table: TableId, shards: u32) -> Vec<Vec<TokenRange>> {
    let mut ranges = vec![Vec::new(); shards as usize];
    let Some(route) = view.route(table) else {
        return ranges;
    };
    for tablet in route.map.moving() {
        let is_here = tablet.replicas.iter().any(|replica| replica.node == view.me);
        let transition = tablet.transition.filter(|t| !is_here && !t.stage.reads_new());
        let mut next = transition.into_iter().flat_map(|transition| &transition.next);
        let shard = next
            .find(|replica| replica.node == view.me)
            .map(|replica| replica.shard);
        let of_shard = shard.and_then(|shard| ranges.get_mut(usize::from(shard)));
        if let (Some(of_shard), Some((after, to))) = (of_shard, route.map.token_range(tablet.id)) {
            of_shard.push(TokenRange { after, to });
        }
    }
    ranges
}

/// The tablets of a table that are about to move to this node, in the first stage of their move, by their last tokens.
/// No request writes to them here yet, so data that the node has of them is out of date. Without those that `before`
/// has in the same stage of the same move: the node has made room for them already.
pub(crate) fn first_targets(view: &ClusterView, before: Option<&ClusterView>, table: TableId) -> BTreeSet<Token> {
    let targets = |view: &ClusterView| -> BTreeSet<(Token, u64)> {
        let Some(route) = view.route(table).filter(|route| route.has_own_tablets) else {
            return BTreeSet::new();
        };
        let is_here = |replica: &Replica| replica.node == view.me;
        let targets = route.map.moving().filter_map(|tablet| {
            let transition = tablet.transition.filter(|t| t.stage == Stage::AllowWriteBothReadOld)?;
            let comes = transition.next.iter().any(is_here) && !tablet.replicas.iter().any(is_here);
            let (_, last) = route.map.token_range(tablet.id).filter(|_| comes)?;
            Some((last, transition.version))
        });
        targets.collect()
    };
    let known = before.map(targets).unwrap_or_default();
    if planted::is_planted(Bug::KeepsTabletOverJump) {
        return BTreeSet::new();
    }
    targets(view).difference(&known).map(|(last, _)| *last).collect()
}

/// The ranges of all shards without those of these tablets.
pub(crate) fn without(ranges: &[Vec<TokenRange>], tablets: &BTreeSet<Token>) -> Vec<Vec<TokenRange>> {
    let others = |ranges: &Vec<TokenRange>| {
        let others = ranges.iter().filter(|range| !tablets.contains(&range.to));
        others.copied().collect()
    };
    ranges.iter().map(others).collect()
}

/// What the files of a table are cut by: all its tablets, or the shards of this node.
pub(crate) fn cuts(view: &ClusterView, table: TableId, shards: u32) -> TableCuts {
    let here: Vec<TokenRange> = ranges_by_shard(view, table, shards).concat();
    let all = match view.own_tablets(table) {
        Some(tablets) => tablets
            .into_iter()
            .map(|(after, to, _)| TokenRange { after, to })
            .collect(),
        None => here.clone(),
    };
    TableCuts { all, here }
}

/// The shard of this node that has a token of a table, or gets it; None when none does.
pub(crate) fn owner(view: &ClusterView, table: TableId, token: Token, shards: u32) -> Option<u32> {
    let Some(route) = view.route(table).filter(|route| route.has_own_tablets) else {
        return Some(types::token::shard_of(token, shards, 0));
    };
    let tablet = route.map.tablet_of(token);
    let next = tablet.transition.map_or(&[][..], |transition| &transition.next);
    let mut replicas = tablet.replicas.iter().chain(next);
    let here = replicas.find(|replica| replica.node == view.me);
    here.map(|replica| u32::from(replica.shard))
}
