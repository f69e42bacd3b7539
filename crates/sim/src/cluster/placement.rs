//! Where copies are in the end, and whether all nodes agree on it.
//!
//! Each shard of each node says now and then what it sees of the metadata and which tablets it has open ([`Seen`]): the
//! task is the one of [`super::contents`], and it holds nothing that requests wait for. When nothing is under way any
//! more,
//!
//! - all nodes have the same metadata: version, members, tablets, owners of the token ring;
//! - no tablet moves, the token ring is at rest, and all members are full ones;
//! - each tablet has so many replicas in each datacenter as its replication wants and nodes allow, on distinct nodes,
//!   in as many racks as there can be;
//! - the shard of each replica has the tablet open, with the table of what acceptors know, and no other shard has;
//! - each range of the token ring has the owners that the walk over the members' tokens gives;
//! - the planner has no step left for the bytes that the tablets have.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ::cluster::{BalanceReport, Cluster};
use coordinator::Coordinator;
use query::Engine;
use schema::TableId;
use topology::{
    Boundaries, HostId, Limits, NodeInput, NodeNumber, NodeState, Options, Replication, Role, Step, TableInput,
    TabletMap, Topology, plan, ring_map,
};
use types::Token;

use super::contents::{Inventory, KEYSPACES};
use super::history::Copies;
use super::layout;

/// The disk of a machine that has no capacity of its own.
const DISK_BYTES: u64 = 1 << 40;
/// The state that acceptors keep of a table's partitions is a table beside it, with this appended to its name.
const OF_ACCEPTORS: &str = "$paxos";
/// How many places of one kind a failure names.
const NAMED_MAX: usize = 4;

/// A shard of a node.
type ShardAddress = (IpAddr, u32);
/// The tokens of a tablet: those after the first one, up to and with the second one.
type Range = (Token, Token);

/// A table, as one shard sees it.
struct SeenTable {
    name: String,
    replication: BTreeMap<String, String>,
    /// Clients make statements about it; else it is of the DynamoDB API.
    is_of_statements: bool,
    map: Arc<TabletMap>,
    has_own_tablets: bool,
}

/// A tablet that a shard has open, of a table or of what acceptors know.
struct Open {
    table: String,
    range: Range,
    bytes: u64,
}

/// What one shard sees.
pub(super) struct Seen {
    version: u64,
    topology: Arc<Topology>,
    me: NodeNumber,
    is_ring_at_rest: bool,
    tables: BTreeMap<TableId, SeenTable>,
    open: Vec<Open>,
    /// What the last plan of the leader of the metadata group found, where this is its shard 0.
    planned: Option<BalanceReport>,
    /// The voters of the metadata group, as its leader reports them.
    voters: Option<BTreeSet<IpAddr>>,
}

/// Of this shard; None while it has no data yet.
pub(super) fn look() -> Option<Seen> {
    let coordinator = runtime::local::<Coordinator>()?;
    let engine = runtime::local::<Engine>()?;
    let view = coordinator.context.view();
    let schema = engine.schema();
    let mut tables = BTreeMap::new();
    for keyspace in schema.keyspaces.values() {
        for table in keyspace.tables.values() {
            let Some(route) = view.route(table.id) else { continue };
            let seen = SeenTable {
                name: format!("{}.{}", table.keyspace, table.name),
                replication: keyspace.replication.clone(),
                is_of_statements: KEYSPACES.contains(&&*keyspace.name),
                map: route.map.clone(),
                has_own_tablets: route.has_own_tablets,
            };
            tables.insert(table.id, seen);
        }
    }
    let mut open = Vec::new();
    for store in engine.coordinator.context.shard.stores() {
        let table = store.table();
        let name = format!("{}.{}", table.keyspace, table.name);
        open.extend(store.tablets().iter().map(|tablet| Open {
            table: name.clone(),
            range: (tablet.range.after, tablet.range.to),
            bytes: tablet.disk_bytes(),
        }));
    }
    let cluster = runtime::local::<Cluster>();
    let leader = cluster.filter(|cluster| cluster.leads());
    Some(Seen {
        voters: leader.as_ref().map(|cluster| voters(cluster)),
        planned: leader.map(|cluster| cluster.own_balance_report()),
        version: view.version,
        topology: view.topology.clone(),
        me: view.me,
        is_ring_at_rest: !tables.keys().any(|table| view.changes_ring(*table)),
        tables,
        open,
    })
}

fn voters(leader: &Cluster) -> BTreeSet<IpAddr> {
    let members = leader.status().members.into_iter();
    let voting = members.filter(|member| matches!(member.role, ::cluster::Role::Leader | ::cluster::Role::Voter));
    voting.map(|member| member.internode.ip()).collect()
}

impl Inventory {
    /// Whether the metadata group can decide with these of its voters alone, as one that leads it says.
    pub(super) fn is_majority(&self, left: impl Fn(IpAddr) -> bool) -> bool {
        let seen = self.seen.borrow();
        let told = seen
            .values()
            .filter_map(|seen| seen.voters.as_ref().map(|voters| (seen.version, voters)));
        let newest = told.max_by_key(|(version, _)| *version);
        newest.is_some_and(|(_, voters)| 2 * voters.iter().filter(|voter| left(**voter)).count() > voters.len())
    }

    /// What the shard with the newest metadata sees, of one that runs.
    fn newest<R>(&self, of: impl FnOnce(&Seen) -> R) -> Option<R> {
        let seen = self.seen.borrow();
        let newest = seen.values().max_by_key(|seen| seen.version)?;
        Some(of(newest))
    }

    /// A node is not asked any more what it sees: it does not run.
    pub(super) fn forget(&self, node: IpAddr) {
        self.seen.borrow_mut().retain(|(of, _), _| *of != node);
    }

    /// The state of a member, by the newest metadata.
    pub(super) fn state(&self, host: HostId) -> Option<NodeState> {
        self.newest(|seen| seen.topology.node(host).map(|node| node.state))?
    }

    /// Whether a node is a full member, by the newest metadata.
    pub(super) fn is_full_member(&self, node: IpAddr) -> bool {
        let is_it = |member: &topology::Node| member.internode.ip() == node && member.state == NodeState::Normal;
        self.newest(|seen| seen.topology.members().any(is_it)) == Some(true)
    }

    /// Whether all tables of these keyspaces, given by the beginning of their tables' names, have tablets of equal
    /// size, or are of the token ring, by the newest metadata.
    pub(super) fn has_kinds(&self, wanted: &[(&str, bool)]) -> bool {
        let is_it = |seen: &Seen| {
            seen.tables.values().all(|table| {
                let of = wanted.iter().find(|(keyspace, _)| table.name.starts_with(keyspace));
                let is_even = || matches!(table.map.boundaries(), Boundaries::PowerOfTwo(_));
                of.is_none_or(|(_, has_tablets)| *has_tablets == table.has_own_tablets && (!has_tablets || is_even()))
            })
        };
        self.newest(is_it) == Some(true)
    }

    /// Whether every table has so many copies, where its replication wants them, and nothing moves, by the newest
    /// metadata. Fewer nodes have fewer copies, and levels count those.
    pub(super) fn is_placed(&self, wanted: Copies) -> bool {
        let is_it = |seen: &Seen| {
            let nodes = |number: usize| {
                let name = layout::name(number);
                let members = seen.topology.members();
                members.filter(|node| node.location.datacenter == name).count()
            };
            let mut wanted_here = wanted.0.iter().enumerate();
            let has_room = wanted_here.all(|(number, copies)| nodes(number) >= *copies);
            let mut tables = seen.tables.values().filter(|table| table.is_of_statements);
            has_room
                && tables.all(|table| has_factors(table, wanted))
                && check_rest(seen).is_ok()
                && check_replicas(seen).is_ok()
        };
        self.newest(is_it) == Some(true)
    }

    /// Everything that the module promises.
    ///
    /// # Errors
    /// What does not hold, or not yet.
    pub(super) fn check_placement(&self, nodes: &BTreeSet<IpAddr>) -> Result<(), String> {
        let all = self.seen.borrow();
        let there: BTreeSet<IpAddr> = all.keys().map(|(node, _)| *node).collect();
        if there != *nodes {
            return Err(format!("of the nodes {nodes:?} these say what they see: {there:?}"));
        }
        let Some((first, seen)) = all.first_key_value() else {
            return Err("no node says what it sees".to_owned());
        };
        for (place, other) in &*all {
            let is_same = seen.version == other.version && seen.topology == other.topology && same_maps(seen, other);
            if !is_same {
                return Err(format!(
                    "{place:?} has other metadata, version {}, than {first:?}, version {}",
                    other.version, seen.version
                ));
            }
        }
        let members: BTreeSet<IpAddr> = seen.topology.members().map(|node| node.internode.ip()).collect();
        if members != *nodes {
            return Err(format!("the nodes are {nodes:?}, and the members {members:?}"));
        }
        check_rest(seen)?;
        check_replicas(seen)?;
        check_open(&all)?;
        check_balance(seen, &all)
    }
}

fn same_maps(one: &Seen, other: &Seen) -> bool {
    let maps = |seen: &Seen| -> Vec<(TableId, Arc<TabletMap>)> {
        let tables = seen.tables.iter();
        tables.map(|(id, table)| (*id, table.map.clone())).collect()
    };
    maps(one) == maps(other)
}

/// Whether the keyspace of a table is to have so many copies.
fn has_factors(table: &SeenTable, wanted: Copies) -> bool {
    let mut datacenters = wanted.0.iter().enumerate();
    datacenters.all(|(number, copies)| match table.replication.get(&layout::name(number)) {
        Some(factor) => *factor == copies.to_string(),
        None => *copies == 0,
    })
}

fn check_rest(seen: &Seen) -> Result<(), String> {
    if !seen.is_ring_at_rest {
        return Err("ranges of the token ring go to other owners".to_owned());
    }
    for table in seen.tables.values() {
        if let Some(tablet) = table.map.moving().next() {
            return Err(format!(
                "tablet {} of {} is on its way: {:?}",
                tablet.id.0, table.name, tablet.transition
            ));
        }
    }
    for node in seen.topology.members() {
        if node.state != NodeState::Normal || node.loss.is_some() {
            return Err(format!("member {} is {:?} still", node.internode, node.state));
        }
    }
    Ok(())
}

fn replication_of(seen: &Seen, table: &SeenTable) -> Result<Replication, String> {
    let parsed = Replication::parse(&table.replication, &seen.topology.datacenters());
    parsed.map_err(|e| format!("{}: {e}", table.name))
}

/// Each range has the replicas that its replication asks for, as far as nodes and racks allow.
fn check_replicas(seen: &Seen) -> Result<(), String> {
    for table in seen.tables.values() {
        let replication = replication_of(seen, table)?;
        if !table.has_own_tablets {
            let wanted = ring_map(&seen.topology, &replication).map_err(|e| format!("{}: {e}", table.name))?;
            let owners = |map: &TabletMap| -> Vec<(Option<Range>, BTreeSet<u16>)> {
                let nodes = |tablet: &topology::Tablet<'_>| tablet.replicas.iter().map(|r| r.node.0).collect();
                let tablets = map.tablets();
                tablets
                    .map(|tablet| (map.token_range(tablet.id), nodes(&tablet)))
                    .collect()
            };
            if owners(&wanted) != owners(&table.map) {
                return Err(format!(
                    "ranges of {} do not have the owners that the ring gives",
                    table.name
                ));
            }
            continue;
        }
        let Replication::NetworkTopology(factors) = &replication else {
            return Err(format!("{} has a replication that no scenario makes", table.name));
        };
        for tablet in table.map.tablets() {
            let mut by_datacenter: BTreeMap<&str, (BTreeSet<NodeNumber>, BTreeSet<&str>)> = BTreeMap::new();
            for replica in tablet.replicas {
                let node = seen.topology.numbered(replica.node);
                let node = node.filter(|node| node.state == NodeState::Normal);
                let node = node.ok_or_else(|| {
                    format!(
                        "tablet {} of {} has a replica on {:?}, which is no full member",
                        tablet.id.0, table.name, replica.node
                    )
                })?;
                let there = by_datacenter.entry(&node.location.datacenter).or_default();
                there.0.insert(replica.node);
                there.1.insert(&node.location.rack);
            }
            let has: usize = by_datacenter.values().map(|(nodes, _)| nodes.len()).sum();
            if has != tablet.replicas.len() {
                return Err(format!(
                    "tablet {} of {} has two replicas on a node",
                    tablet.id.0, table.name
                ));
            }
            for datacenter in seen.topology.datacenters() {
                let members = seen.topology.members();
                let here: Vec<&topology::Node> = members.filter(|n| n.location.datacenter == datacenter).collect();
                let racks: BTreeSet<&str> = here.iter().map(|node| &*node.location.rack).collect();
                let wanted = factors.get(datacenter).map_or(0, |factor| usize::from(factor.number()));
                let wanted = wanted.min(here.len());
                let (nodes, in_racks) = by_datacenter
                    .get(datacenter)
                    .map_or((0, 0), |(nodes, racks)| (nodes.len(), racks.len()));
                if nodes != wanted || in_racks != wanted.min(racks.len()) {
                    return Err(format!(
                        "tablet {} of {} has {nodes} replicas in {in_racks} racks of {datacenter}, and should have {wanted} in {}",
                        tablet.id.0,
                        table.name,
                        wanted.min(racks.len())
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Every replica that the metadata lists has its tablet open, and no other shard has.
fn check_open(all: &BTreeMap<ShardAddress, Seen>) -> Result<(), String> {
    let Some(seen) = all.values().next() else { return Ok(()) };
    let addresses: BTreeMap<NodeNumber, IpAddr> = all.iter().map(|((node, _), seen)| (seen.me, *node)).collect();
    let mut wanted: BTreeSet<(String, Range, ShardAddress)> = BTreeSet::new();
    let mut named: BTreeSet<String> = BTreeSet::new();
    for table in seen.tables.values().filter(|table| table.has_own_tablets) {
        named.insert(table.name.clone());
        for tablet in table.map.tablets() {
            let range = table.map.token_range(tablet.id).ok_or("a tablet without tokens")?;
            for replica in tablet.replicas {
                let node = addresses.get(&replica.node);
                let node = node.ok_or_else(|| format!("{:?} does not say what it has open", replica.node))?;
                wanted.insert((table.name.clone(), range, (*node, u32::from(replica.shard))));
            }
        }
    }
    let mut twice = Vec::new();
    let mut open: BTreeSet<(String, Range, ShardAddress)> = BTreeSet::new();
    let mut of_acceptors: BTreeSet<(String, Range, ShardAddress)> = BTreeSet::new();
    for (place, seen) in all {
        for tablet in &seen.open {
            let base = tablet.table.strip_suffix(OF_ACCEPTORS);
            let name = base.unwrap_or(&tablet.table);
            if !named.contains(name) {
                continue;
            }
            let kind = if base.is_some() { &mut of_acceptors } else { &mut open };
            let one = (name.to_owned(), tablet.range, *place);
            if !kind.insert(one.clone()) {
                twice.push(one);
            }
        }
    }
    for (what, has) in [("", &open), (OF_ACCEPTORS, &of_acceptors)] {
        // A table has one of acceptors only when conditional statements were asked of it.
        let of = |one: &&(String, Range, ShardAddress)| what.is_empty() || has.iter().any(|other| other.0 == one.0);
        let lacking: Vec<_> = wanted.iter().filter(of).filter(|one| !has.contains(*one)).collect();
        let besides: Vec<_> = has.iter().filter(|one| !wanted.contains(*one)).collect();
        if !lacking.is_empty() || !besides.is_empty() || !twice.is_empty() {
            let few = |all: &[&(String, Range, ShardAddress)]| format!("{:?}", &all[..all.len().min(NAMED_MAX)]);
            return Err(format!(
                "tablets{what} by their replicas: not open {}, open elsewhere {}, open twice {:?}",
                few(&lacking),
                few(&besides),
                &twice[..twice.len().min(NAMED_MAX)]
            ));
        }
    }
    Ok(())
}

/// The leader adds the tablets up in another order, so one that it finds just within the tolerance may be just outside
/// here.
const ROUNDING: f64 = 1e-9;

/// The planner, asked as the leader of the metadata group asks it, has no step left.
fn check_balance(seen: &Seen, all: &BTreeMap<ShardAddress, Seen>) -> Result<(), String> {
    let nodes: Vec<NodeInput> = seen
        .topology
        .numbered_nodes()
        .filter(|(_, node)| node.state != NodeState::Left)
        .map(|(number, _)| NodeInput {
            number,
            role: Role::Holds,
            // All machines have the same disk.
            capacity_bytes: DISK_BYTES,
            used_bytes: 0,
            replaces: None,
        })
        .collect();
    let tables: Vec<&SeenTable> = seen.tables.values().filter(|table| table.has_own_tablets).collect();
    let mut sizes: Vec<Vec<u64>> = Vec::new();
    let mut replications = Vec::new();
    for table in &tables {
        let count = usize::try_from(table.map.tablet_count()).map_err(|e| e.to_string())?;
        let mut of_table = vec![0; count];
        for tablet in all
            .values()
            .flat_map(|seen| &seen.open)
            .filter(|open| open.table == table.name)
        {
            let id = usize::try_from(table.map.tablet_of(tablet.range.1).id.0).map_err(|e| e.to_string())?;
            of_table[id] = tablet.bytes.max(of_table[id]);
        }
        sizes.push(of_table);
        replications.push(replication_of(seen, table)?);
    }
    let inputs: Vec<TableInput<'_>> = tables
        .iter()
        .zip(&sizes)
        .zip(&replications)
        .map(|((table, sizes), replication)| TableInput {
            map: &table.map,
            replication,
            sizes,
            load: &[],
            may_resize: false,
            conversion: None,
            tablet_count_min: table.map.tablet_count(),
            tablet_count_wanted: 0,
            tablet_count_max: u32::MAX,
        })
        .collect();
    let options = Options::default();
    let options = Options {
        tolerance: options.tolerance * (1.0 + ROUNDING),
        ..options
    };
    let planned = plan(&seen.topology, &nodes, &inputs, &Limits::default(), &options);
    let step = planned.steps.iter().find(|step| !matches!(step, Step::Resize { .. }));
    match step {
        Some(step) => {
            let leader = all.values().find_map(|seen| seen.planned.as_ref());
            Err(format!(
                "the planner has a step left: {step:?}, with {:?} before; the leader: {leader:?}",
                planned.bytes_before
            ))
        }
        None => Ok(()),
    }
}
