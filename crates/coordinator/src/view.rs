//! One version of the cluster, as this node sees it: its members, and where each table's tokens live.
//!
//! A view is an immutable value, made when schema or topology change and handed to every shard. What a request needs of
//! it is computed then: a table's [`Route`] says without looking at the map which consistency levels this node meets
//! alone.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use rpc::Peer;
use runtime::{EndNotify, SharedNotify};
use schema::TableId;
use topology::{
    Boundaries, Consistency, Factors, HostId, Locality, Node, NodeNumber, Replica, ReplicaCounts, ReplicaList,
    Replication, Requirement, RingChange, Stage, Tablet, TabletId, TabletMap, Topology, changing_ring_map,
};
use types::Token;

/// A set of consistency levels.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Levels(u16);

impl Levels {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// Every one.
    pub const ALL: Self = Self(u16::MAX);

    /// Those that `holds` is true for.
    fn that(holds: impl Fn(Consistency) -> bool) -> Self {
        let levels = Consistency::all().filter(|level| holds(*level));
        Self(levels.fold(0, |set, level| set | 1 << level as u16))
    }

    /// As bits, for [`replica::TableStore`].
    #[must_use]
    pub fn bits(self) -> u16 {
        self.0
    }

    /// From bits.
    #[inline]
    #[must_use]
    pub fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Whether a level is among them.
    #[inline]
    #[must_use]
    pub fn contains(self, level: Consistency) -> bool {
        self.0 >> level as u16 & 1 == 1
    }
}

/// Where one table's tokens live.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its tablets and their replicas.
    pub map: Arc<TabletMap>,
    /// What the map was made of: itself, unless nodes have fewer shards than it says.
    source: Arc<TabletMap>,
    /// How many copies it has, or is to have when its replication changes.
    factors: Arc<Factors>,
    /// Some tablets have other numbers of copies than the factors say, because they do not have all their replicas yet,
    /// or still have more. Each counts its own then.
    is_changing: bool,
    /// The levels at which this node may answer reads from its own data, whatever the key.
    pub read_here: Levels,
    /// The levels at which a write needs no other node, whatever the key.
    pub write_here: Levels,
    /// The levels for which one replica is enough.
    of_one: Levels,
    /// Some tablets go to other replicas.
    moves: bool,
    /// Its tablets may have other numbers of copies than the factors say.
    may_change: bool,
    /// Whether the tablets are the table's own. Those of the token ring are made of the members' tokens, and a shard
    /// keeps what it has of them as one.
    pub has_own_tablets: bool,
}

/// How the token ring is on its way to other owners.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ring {
    /// The stage of all ranges whose owners change.
    pub stage: RingChange,
    /// Of keyspaces whose replication changes: the one before.
    pub former: BTreeMap<String, Replication>,
    /// Of keyspaces whose replication changes once more when the next owners are those that are read: the one that they
    /// have on the ring until then.
    pub towards: BTreeMap<String, Replication>,
}

impl Ring {
    /// No replication changes. Where a node joins or leaves, its ranges have former and next owners all the same.
    #[must_use]
    pub fn at_rest(topology: &Topology) -> Self {
        Self {
            stage: RingChange {
                version: topology.version(),
                stage: Stage::WriteBothReadOld,
            },
            former: BTreeMap::new(),
            towards: BTreeMap::new(),
        }
    }
}

/// The map of a keyspace's tables on the token ring, and what it was made of besides the topology.
#[derive(Clone, Debug)]
struct KeyspaceRing {
    former: Replication,
    next: Replication,
    stage: RingChange,
    map: Arc<TabletMap>,
}

/// What a member that was down for long holds for others, hints and notes of batches, is given up: it hands nothing of
/// it over when it comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forgotten {
    /// What was made before this second.
    pub before: u32,
    /// The version of the cluster that says so. A replica whose fence is there takes nothing of a coordinator that has
    /// not seen it.
    pub version: u64,
}

/// One version of the cluster. See the module.
#[derive(Clone, Debug)]
pub struct ClusterView {
    /// The members.
    pub topology: Arc<Topology>,
    /// The datacenters and racks of the members, seen from this node.
    pub locality: Locality,
    /// This node.
    pub me: NodeNumber,
    /// What of the cluster's metadata it was made of: the index of the last command.
    pub version: u64,
    /// Requests that were routed by an older version than this are not taken.
    pub fence: u64,
    routes: HashMap<TableId, Arc<Route>, foldhash::fast::FixedState>,
    /// By keyspace: the map of its tables on the token ring.
    rings: BTreeMap<String, KeyspaceRing>,
    peers: Vec<Option<Peer>>,
    /// The version of the last truncation of each table that was ever truncated.
    truncations: BTreeMap<TableId, u64>,
    /// What members hold for others that the cluster has given up.
    forgotten: BTreeMap<HostId, Forgotten>,
    /// Notifies when the last request with this view has ended.
    end: Arc<EndNotify>,
}

impl ClusterView {
    /// The view of the node `host_id`. `keyspaces` gives each keyspace's replication and its tables, `tablets` the maps
    /// of tables that have their own.
    ///
    /// # Errors
    /// When the topology does not have the node.
    pub fn new<'k>(
        topology: Arc<Topology>,
        host_id: HostId,
        keyspaces: impl Iterator<Item = (&'k str, Replication, Vec<TableId>)>,
        tablets: &BTreeMap<TableId, Arc<TabletMap>>,
    ) -> Result<Self, NotAMember> {
        let ring = Ring::at_rest(&topology);
        Self::with_ring(topology, host_id, keyspaces, (tablets, &ring), None)
    }

    /// The view of the node `host_id` while the token ring goes to other owners. From the view `before` it keeps the
    /// maps of keyspaces on the ring, and the routes of tables for which nothing has changed. Most versions are steps
    /// of single tablets, and to find the owners of all ranges, or to look at all tablets, takes long.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_ring<'k>(
        topology: Arc<Topology>,
        host_id: HostId,
        keyspaces: impl Iterator<Item = (&'k str, Replication, Vec<TableId>)>,
        (tablets, change): (&BTreeMap<TableId, Arc<TabletMap>>, &Ring),
        before: Option<&Self>,
    ) -> Result<Self, NotAMember> {
        let before = before.filter(|view| view.topology == topology);
        let mut rings = BTreeMap::new();
        let locality = Locality::new(&topology, host_id).ok_or(NotAMember(host_id))?;
        let me = topology.number(host_id).ok_or(NotAMember(host_id))?;
        let mut routes = HashMap::default();
        for (name, replication, tables) in keyspaces {
            if replication == Replication::Local {
                continue;
            }
            let factors = Arc::new(Factors::of(&replication, &locality));
            let former = change.former.get(name);
            let on_ring = change.towards.get(name).unwrap_or(&replication);
            let ring_factors = if change.towards.contains_key(name) {
                Arc::new(Factors::of(on_ring, &locality))
            } else {
                Arc::clone(&factors)
            };
            let mut ring = None;
            for table in tables {
                let own = tablets.get(&table);
                let source = match (own, &ring) {
                    (Some(map), _) | (None, Some(map)) => Arc::clone(map),
                    (None, None) => {
                        let next = within(on_ring, &topology);
                        let former = former.map_or_else(|| next.clone(), |former| within(former, &topology));
                        let known = before.and_then(|view| view.rings.get(name));
                        let of = KeyspaceRing::new(name, &topology, (former, next, change.stage), known);
                        let map = ring.insert(of.map.clone()).clone();
                        rings.insert(name.to_owned(), of);
                        map
                    }
                };
                // On the ring there are as many copies as nodes allow, at any time; so their number differs only while
                // it is another.
                let may_change = own.is_some() || former.is_some();
                let kind = RouteKind {
                    has_own_tablets: own.is_some(),
                    may_change,
                };
                let factors = if own.is_some() { &factors } else { &ring_factors };
                let known = before.and_then(|view| view.routes.get(&table));
                let route = match known.filter(|route| route.is_of(&source, kind, factors)) {
                    Some(route) => Arc::clone(route),
                    None => {
                        let shards = |node| topology.numbered(node).map_or(1, |node| node.shards);
                        let fitted = if own.is_some() { source.on_shards(shards) } else { None };
                        let map = fitted.map_or_else(|| Arc::clone(&source), Arc::new);
                        Arc::new(Route::new((map, source), kind, Arc::clone(factors), &locality, me))
                    }
                };
                routes.insert(table, route);
            }
        }
        let mut peers = Vec::new();
        for (number, node) in topology.numbered_nodes() {
            if peers.len() <= number.index() {
                peers.resize(number.index() + 1, None);
            }
            peers[number.index()] = Some(Peer::new(node.host_id.0, node.internode));
        }
        Ok(Self {
            topology,
            locality,
            me,
            version: 0,
            fence: 0,
            routes,
            rings,
            peers,
            truncations: BTreeMap::new(),
            forgotten: BTreeMap::new(),
            end: Arc::default(),
        })
    }

    /// Notified when nothing holds this view any more.
    #[must_use]
    pub fn at_end(&self) -> Arc<SharedNotify> {
        self.end.at_end()
    }

    /// This view, as of a command of the cluster's metadata.
    #[must_use]
    pub fn at(self, version: u64, fence: u64) -> Self {
        Self { version, fence, ..self }
    }

    /// This view, in which tables were truncated last by the commands of these versions.
    #[must_use]
    pub fn truncated(self, truncations: BTreeMap<TableId, u64>) -> Self {
        Self { truncations, ..self }
    }

    /// This view, in which members have lost what they held for others.
    #[must_use]
    pub fn forgetting(self, forgotten: BTreeMap<HostId, Forgotten>) -> Self {
        Self { forgotten, ..self }
    }

    /// What a member holds for others that the cluster has given up.
    #[must_use]
    pub fn forgotten_of(&self, host: HostId) -> Option<Forgotten> {
        self.forgotten.get(&host).copied()
    }

    /// What this node holds for others that the cluster has given up.
    #[must_use]
    pub fn own_forgotten(&self) -> Option<Forgotten> {
        if self.forgotten.is_empty() {
            return None;
        }
        self.forgotten_of(self.topology.numbered(self.me)?.host_id)
    }

    /// The version of the last truncation of a table; 0 when there was none.
    #[inline]
    #[must_use]
    pub fn truncated_at(&self, table: TableId) -> u64 {
        if self.truncations.is_empty() {
            0
        } else {
            self.truncations.get(&table).copied().unwrap_or(0)
        }
    }

    /// The tables that were ever truncated, with the version of the last time.
    pub fn truncations(&self) -> impl Iterator<Item = (TableId, u64)> + '_ {
        self.truncations.iter().map(|(table, version)| (*table, *version))
    }

    /// This view, in which nodes are reached as `reach` says. In a new view all nodes are reached plainly.
    #[must_use]
    pub fn reached_by(mut self, reach: impl Fn(&Node) -> Peer) -> Self {
        for (number, node) in self.topology.numbered_nodes() {
            self.peers[number.index()] = Some(reach(node));
        }
        self
    }

    /// Gives topology and this node's identity to `f`.
    pub fn with<R>(&self, f: impl FnOnce(&Arc<Topology>, HostId) -> R) -> R {
        let me = self.topology.numbered(self.me).expect("a view is of a member");
        f(&self.topology, me.host_id)
    }

    /// Where a table's tokens live; None for tables that each node has for itself.
    #[inline]
    #[must_use]
    pub fn route(&self, table: TableId) -> Option<&Arc<Route>> {
        self.routes.get(&table)
    }

    /// The shard of this node that has a token of a table: that of its tablet, where the table has its own and one of
    /// its replicas is here.
    #[inline]
    #[must_use]
    pub fn shard_here(&self, table: TableId, token: Token) -> Option<u32> {
        let route = self.route(table).filter(|route| route.has_own_tablets)?;
        let mut replicas = route.map.tablet_of(token).replicas.iter();
        let here = replicas.find(|replica| replica.node == self.me)?;
        Some(u32::from(here.shard))
    }

    /// The tablets of a table that has its own: for each, what is before its first token, its last, and the shard of
    /// this node that has it. None for tables on the token ring and those that each node has for itself.
    #[must_use]
    pub fn own_tablets(&self, table: TableId) -> Option<Vec<(Token, Token, Option<u32>)>> {
        let map = &self.route(table).filter(|route| route.has_own_tablets)?.map;
        let tablets = map.tablets().filter_map(|tablet| {
            let next = tablet.transition.map_or(&[][..], |t| &t.next);
            let mut replicas = tablet.replicas.iter().chain(next);
            let here = replicas.find(|replica| replica.node == self.me);
            let (after, last) = map.token_range(tablet.id)?;
            Some((after, last, here.map(|replica| u32::from(replica.shard))))
        });
        Some(tablets.collect())
    }

    /// Whether a table is on the token ring, and some of its ranges go to other owners.
    #[must_use]
    pub fn changes_ring(&self, table: TableId) -> bool {
        let route = self.route(table).filter(|route| !route.has_own_tablets);
        route.is_some_and(|route| route.moves)
    }

    /// How to reach a node; None for a number that the topology does not have.
    #[inline]
    #[must_use]
    pub fn peer(&self, node: NodeNumber) -> Option<Peer> {
        self.peers.get(node.index()).copied().flatten()
    }

    /// A node in errors and traces: its address for other nodes, as in Cassandra. That for clients may be a loopback or
    /// a shared one.
    pub(crate) fn address(&self, node: NodeNumber) -> IpAddr {
        let node = self.topology.numbered(node);
        node.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |node| node.internode.ip())
    }

    /// The name of a replica in errors and traces: address and shard.
    #[must_use]
    pub fn name(&self, replica: Replica) -> String {
        format!("{} shard {}", self.address(replica.node), replica.shard)
    }

    /// The names of replicas in errors: address and shard.
    pub(crate) fn names(&self, replicas: impl Iterator<Item = Replica>) -> String {
        let names = replicas.map(|replica| self.name(replica));
        names.collect::<Vec<_>>().join(", ")
    }

    /// Cuts `(after, to]` into pieces of which each has the same replicas throughout: pairs of exclusive start and
    /// inclusive end.
    #[must_use]
    pub fn pieces(&self, table: TableId, after: Token, to: Token) -> Vec<(Token, Token)> {
        let Some(route) = self.route(table) else {
            return Vec::new();
        };
        let map = &route.map;
        let mut pieces: Vec<(Token, Token)> = Vec::new();
        let mut last: Option<ReplicaList> = None;
        let first = if after.0 == i64::MIN { after } else { Token(after.0 + 1) };
        let mut id = map.tablet_id(first).0;
        let mut start = after;
        while let Some(tablet) = map.tablet(TabletId(id)) {
            let (_, end) = map.token_range(tablet.id).expect("the map has the tablet");
            let end = end.min(to);
            let mut replicas: ReplicaList = tablet.read_replicas().into();
            replicas.sort_unstable();
            match (pieces.last_mut(), &last) {
                (Some(piece), Some(before)) if *before == replicas => piece.1 = end,
                _ => {
                    pieces.push((start, end));
                    last = Some(replicas);
                }
            }
            if end >= to {
                break;
            }
            start = end;
            id += 1;
        }
        pieces
    }
}

/// The replication without the datacenters that have no nodes.
fn within(replication: &Replication, topology: &Topology) -> Replication {
    let mut replication = replication.clone();
    if let Replication::NetworkTopology(factors) = &mut replication {
        let known = topology.datacenters();
        factors.retain(|name, _| known.contains(name.as_str()));
    }
    replication
}

impl KeyspaceRing {
    /// `known` is that of the same keyspace and topology in the view before.
    fn new(
        keyspace: &str,
        topology: &Topology,
        (former, next, stage): (Replication, Replication, RingChange),
        known: Option<&Self>,
    ) -> Self {
        // The map has the stage only in ranges that go to other owners.
        let is_of_stage = |known: &Self| known.stage == stage || known.map.moving().next().is_none();
        let is_same = |known: &&Self| known.former == former && known.next == next && is_of_stage(known);
        if let Some(known) = known.filter(is_same) {
            return known.clone();
        }
        let map = changing_ring_map(topology, (&former, &next), stage);
        let map = map.unwrap_or_else(|reason| {
            log::error!("keyspace {keyspace} has no replicas: {reason}");
            nowhere(topology)
        });
        Self {
            former,
            next,
            stage,
            map: Arc::new(map),
        }
    }
}

/// The map of a table that no node can hold: what is asked of it is unavailable.
fn nowhere(topology: &Topology) -> TabletMap {
    TabletMap::new(topology.version(), Boundaries::PowerOfTwo(0), &[ReplicaList::new()])
        .expect("one tablet without replicas is a map")
}

#[derive(Clone, Copy)]
struct RouteKind {
    has_own_tablets: bool,
    /// Its tablets may have other numbers of copies than the factors say.
    may_change: bool,
}

impl Route {
    fn new(
        (map, source): (Arc<TabletMap>, Arc<TabletMap>),
        kind: RouteKind,
        factors: Arc<Factors>,
        locality: &Locality,
        me: NodeNumber,
    ) -> Self {
        let has_all = map
            .tablets()
            .all(|t| t.read_replicas().iter().any(|r| r.node == me) && t.transition.is_none());
        let is_only = has_all && map.tablets().all(|t| t.replicas.len() == 1);
        let is_changing = kind.may_change && is_changing(&map, &factors, locality);
        // A changing tablet may have more copies than the factors say. A quorum of its copies is then more than one,
        // even if a quorum by the factors is one.
        let is_one = |level| matches!(level, Consistency::Any | Consistency::One | Consistency::LocalOne);
        let met = |level| Requirement::of(level, &factors, locality.local_datacenter()).block_for() <= 1;
        let levels = Levels::that(|level| met(level) && (!is_changing || is_one(level)));
        let moves = map.moving().next().is_some();
        Self {
            map,
            source,
            factors,
            is_changing,
            read_here: if has_all { levels } else { Levels::NONE },
            write_here: if is_only { levels } else { Levels::NONE },
            of_one: levels,
            moves,
            may_change: kind.may_change,
            has_own_tablets: kind.has_own_tablets,
        }
    }

    /// Whether it is what such a table has, on the same nodes.
    fn is_of(&self, source: &Arc<TabletMap>, kind: RouteKind, factors: &Factors) -> bool {
        let is_of_kind = self.has_own_tablets == kind.has_own_tablets && self.may_change == kind.may_change;
        Arc::ptr_eq(&self.source, source) && is_of_kind && *self.factors == *factors
    }

    /// What a level needs of a tablet.
    #[inline]
    #[must_use]
    pub fn requirement(&self, level: Consistency, tablet: &Tablet<'_>, locality: &Locality) -> Requirement {
        if self.is_changing {
            return self.own_requirement(level, tablet, locality);
        }
        Requirement::of(level, &self.factors, locality.local_datacenter())
    }

    /// What a level needs of a tablet that has other numbers of copies than its table is to have: those that are read
    /// now count.
    #[cold]
    fn own_requirement(&self, level: Consistency, tablet: &Tablet<'_>, locality: &Locality) -> Requirement {
        Requirement::of(
            level,
            &self.factors.of_tablet(tablet, locality),
            locality.local_datacenter(),
        )
    }

    /// What a level needs of a write to a tablet: while it moves, of both of its sets of replicas.
    #[inline]
    #[must_use]
    pub fn write_requirement(&self, level: Consistency, tablet: &Tablet<'_>, locality: &Locality) -> Requirement {
        let requirement = self.requirement(level, tablet, locality);
        match tablet.other_replicas() {
            None => requirement,
            Some(others) => self.of_both(requirement, tablet, others, locality),
        }
    }

    #[cold]
    fn of_both(
        &self,
        requirement: Requirement,
        tablet: &Tablet<'_>,
        others: &[Replica],
        locality: &Locality,
    ) -> Requirement {
        let factors = self.factors.of_replicas(others, locality);
        let other = Requirement::of(requirement.consistency(), &factors, locality.local_datacenter());
        requirement.and(tablet.read_replicas(), other, others)
    }

    /// What a level waits for, of tablets that have all their replicas.
    #[must_use]
    pub fn block_for(&self, level: Consistency, locality: &Locality) -> u16 {
        Requirement::of(level, &self.factors, locality.local_datacenter()).block_for()
    }

    /// Whether a replica may answer a read of a token at a level from its own data.
    #[must_use]
    pub fn reads_alone(&self, replica: Replica, token: Token, level: Consistency) -> bool {
        let tablet = self.map.tablet_of(token);
        self.of_one.contains(level) && tablet.transition.is_none() && tablet.replicas.contains(&replica)
    }

    /// Whether a replica has the only copy of a token, and its write is enough for a level.
    #[must_use]
    pub fn writes_alone(&self, replica: Replica, token: Token, level: Consistency) -> bool {
        self.reads_alone(replica, token, level) && self.map.tablet_of(token).replicas.len() == 1
    }
}

/// Whether some tablet has another number of copies than its table is to have, and can have with the nodes that are
/// there.
fn is_changing(map: &TabletMap, factors: &Factors, locality: &Locality) -> bool {
    let has_others = |replicas: &[Replica]| {
        let others = |has: u16, wanted: u16, nodes: u16| has > wanted || has < wanted.min(nodes);
        let has = ReplicaCounts::of(replicas, locality, |_| true);
        if factors.by_datacenter.is_empty() {
            return others(has.total(), factors.total, locality.nodes());
        }
        let mut datacenters = has.iter().chain(factors.by_datacenter.iter());
        datacenters.any(|(datacenter, _)| {
            let wanted = factors.by_datacenter.get(datacenter);
            others(has.get(datacenter), wanted, locality.nodes_in(datacenter))
        })
    };
    let mut last: &[Replica] = &[];
    map.tablets().any(|tablet| {
        // Neighbours often have the same replicas.
        let is_known = tablet.transition.is_none() && tablet.replicas == last && !last.is_empty();
        last = tablet.replicas;
        let next = tablet.transition.map(|transition| &transition.next[..]);
        !is_known && (has_others(tablet.replicas) || next.is_some_and(has_others))
    })
}

/// The topology does not have this node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotAMember(pub HostId);

impl std::fmt::Display for NotAMember {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {} is not a member of the cluster", self.0.0)
    }
}

impl std::error::Error for NotAMember {}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::SocketAddr;

    use topology::{Copies, Location, NodeState, TopologyCommand};
    use uuid::Uuid;

    use super::*;

    /// A node of datacenter north, on 127.0.0.N.
    pub(crate) fn node(number: u8, state: NodeState) -> Node {
        let address = SocketAddr::from(([127, 0, 0, number], 7000));
        Node {
            host_id: HostId(Uuid::from_u128(u128::from(number))),
            internode: address,
            native: SocketAddr::new(address.ip(), 9042),
            native_shard_aware_port: None,
            location: Location {
                datacenter: "north".to_owned(),
                rack: "rack".to_owned(),
            },
            shards: 1,
            tokens: vec![Token(i64::from(number))],
            state,
            features: std::collections::BTreeSet::new(),
            release: "1".to_owned(),
            loss: None,
        }
    }

    /// The view of node 1 that follows the view `before`, with a keyspace on the ring that has this many copies.
    fn view(topology: &Topology, copies: u16, ring: &Ring, before: Option<&ClusterView>) -> ClusterView {
        let factors = BTreeMap::from([("north".to_owned(), Copies::Count(copies))]);
        let keyspace = ("k", Replication::NetworkTopology(factors), vec![TABLE]);
        let host = HostId(Uuid::from_u128(1));
        let topology = Arc::new(topology.clone());
        ClusterView::with_ring(topology, host, [keyspace].into_iter(), (&BTreeMap::new(), ring), before)
            .expect("node 1 is a member")
    }

    const TABLE: TableId = TableId(Uuid::from_u128(7));

    fn map(view: &ClusterView) -> &Arc<TabletMap> {
        &view.route(TABLE).expect("the table is there").map
    }

    /// The ring of a version of the metadata.
    fn ring(version: u64, stage: Stage) -> Ring {
        Ring {
            stage: RingChange { version, stage },
            former: BTreeMap::new(),
            towards: BTreeMap::new(),
        }
    }

    #[test]
    fn a_route_is_made_again_only_where_something_of_its_table_is_another() {
        let topology = Topology::alone("sea", node(1, NodeState::Normal));
        let at = |shard| topology::Replica {
            node: topology.number(HostId(Uuid::from_u128(1))).expect("a member"),
            shard,
        };
        let map = |version| {
            let replicas: ReplicaList = [at(0)].into_iter().collect();
            Arc::new(TabletMap::new(version, Boundaries::PowerOfTwo(0), &[replicas]).expect("a map of one tablet"))
        };
        let tables = [1, 2].map(|number| TableId(Uuid::from_u128(number)));
        let mut tablets = BTreeMap::from(tables.map(|table| (table, map(1))));
        let view = |tablets: &BTreeMap<TableId, Arc<TabletMap>>, copies, before: Option<&ClusterView>| {
            let factors = BTreeMap::from([("north".to_owned(), Copies::Count(copies))]);
            let keyspace = ("k", Replication::NetworkTopology(factors), tables.to_vec());
            let (at, host) = (ring(1, Stage::WriteBothReadOld), HostId(Uuid::from_u128(1)));
            let topology = Arc::new(topology.clone());
            ClusterView::with_ring(topology, host, [keyspace].into_iter(), (tablets, &at), before).expect("a member")
        };
        let is_same = |a: &ClusterView, b: &ClusterView| {
            tables.map(|table| {
                Arc::ptr_eq(
                    a.route(table).expect("it is there"),
                    b.route(table).expect("it is there"),
                )
            })
        };
        let first = view(&tablets, 1, None);
        let second = view(&tablets, 1, Some(&first));
        assert_eq!(is_same(&first, &second), [true, true], "nothing is another");
        tablets.insert(tables[1], map(2));
        let third = view(&tablets, 1, Some(&second));
        assert_eq!(is_same(&second, &third), [true, false], "the tablets of one are others");
        let fourth = view(&tablets, 2, Some(&third));
        assert_eq!(
            is_same(&third, &fourth),
            [false, false],
            "their keyspace is to have more copies"
        );
    }

    #[test]
    fn the_owners_of_the_ring_are_found_again_only_where_something_of_it_is_another() {
        let mut topology = Topology::alone("sea", node(1, NodeState::Normal));
        let first = view(&topology, 1, &ring(1, Stage::WriteBothReadOld), None);
        let second = view(&topology, 1, &ring(2, Stage::WriteBothReadOld), Some(&first));
        assert!(Arc::ptr_eq(map(&first), map(&second)), "nothing of the ring is another");
        let copies = view(&topology, 2, &ring(3, Stage::WriteBothReadOld), Some(&second));
        assert!(!Arc::ptr_eq(map(&second), map(&copies)), "another replication");
        let joining = TopologyCommand::AddNode(Box::new(node(2, NodeState::Joining)));
        topology.apply(&joining).expect("it may join");
        let joins = view(&topology, 2, &ring(4, Stage::WriteBothReadOld), Some(&copies));
        let moves = |view: &ClusterView| map(view).moving().next().and_then(|t| t.transition.map(|t| t.stage));
        assert_eq!(moves(&joins), Some(Stage::WriteBothReadOld), "another topology");
        let copied = view(&topology, 2, &ring(4, Stage::WriteBothReadNew), Some(&joins));
        assert_eq!(moves(&copied), Some(Stage::WriteBothReadNew), "another stage");
    }
}
