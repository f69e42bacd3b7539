//! The nodes of a cluster, and what one node derives from them for its requests.
//!
//! A node's host id identifies it permanently; its addresses may change. A host id that left never comes back: its node
//! stays in the topology as `Left`, so that a machine that wakes up after a year is notified that it has left.
//!
//! Maps and requests also use a *number* for each node: its position in the order in which nodes were added. Numbers
//! are the same on all nodes and never reused, so a tablet's replica takes four bytes, and facts about nodes are stored
//! in arrays.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;

use types::Token;
use uuid::Uuid;

use crate::disk::DiskLevel;

/// How many nodes a cluster can have in all its life.
pub const NODES_MAX: usize = 1 << 16;
/// How many tokens a node can have, as in Cassandra.
pub const TOKENS_PER_NODE_MAX: usize = 1536;

/// The identity of a node: made once, kept in its data directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostId(pub Uuid);

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A node's place in the order in which nodes were added to the cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeNumber(pub u16);

impl NodeNumber {
    /// As a place in an array.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A node's datacenter and rack.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Location {
    /// Its datacenter.
    pub datacenter: String,
    /// Its rack; racks of different datacenters are different racks.
    pub rack: String,
}

/// A node's part in the cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NodeState {
    /// Admitted; receives data, but no coordinator reads from it.
    Joining,
    /// A full member.
    Normal,
    /// Still serves what it has, and hands it over.
    Leaving,
    /// Gone permanently.
    Left,
}

impl NodeState {
    /// Whether others may read from it, if it has what they look for.
    #[must_use]
    pub fn serves_reads(self) -> bool {
        matches!(self, Self::Normal | Self::Leaving)
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Joining => "JOINING",
            Self::Normal => "NORMAL",
            Self::Leaving => "LEAVING",
            Self::Left => "LEFT",
        })
    }
}

/// What the cluster knows of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its identity.
    pub host_id: HostId,
    /// Where other nodes reach it.
    pub internode: SocketAddr,
    /// Where clients reach it.
    pub native: SocketAddr,
    /// Where clients choose a shard by their source port.
    pub native_shard_aware_port: Option<u16>,
    /// Its datacenter and rack.
    pub location: Location,
    /// How many shards it runs; at least one.
    pub shards: u16,
    /// Its places on the token ring, in order; none for a node that owns nothing of the ring.
    pub tokens: Vec<Token>,
    /// Its part in the cluster.
    pub state: NodeState,
    /// What its release can do.
    pub features: BTreeSet<String>,
    /// Its release.
    pub release: String,
    /// Set when an operator has given the node up: it is `Leaving`, nothing is read from it, and others get copies of
    /// what it had.
    pub loss: Option<Loss>,
}

/// How a node that is lost permanently leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// The node that takes its place, if one does.
    pub replaced_by: Option<HostId>,
}

/// The nodes of a cluster at one version. Changed by [`crate::TopologyCommand`]s only.
///
/// Invariants: every node has a number; no two nodes have a token in common; a node that has not left has at least one
/// shard and every enabled feature; one that left has no tokens, nor has a zero-token node; only members are excluded.
/// Two nodes may have one address only while at least one of them is down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    pub(crate) version: u64,
    pub(crate) cluster_name: String,
    pub(crate) cluster_id: Uuid,
    pub(crate) enabled_features: BTreeSet<String>,
    pub(crate) nodes: BTreeMap<HostId, Node>,
    /// Host ids by node number.
    pub(crate) numbers: Vec<HostId>,
    /// The members that never own anything.
    pub(crate) zero_token: BTreeSet<HostId>,
    /// The members that operators have said are down permanently.
    pub(crate) excluded: BTreeSet<HostId>,
}

impl Node {
    /// Whether it is lost, and this node takes its place.
    #[must_use]
    pub fn is_replaced_by(&self, heir: HostId) -> bool {
        self.loss.is_some_and(|loss| loss.replaced_by == Some(heir))
    }
}

impl Topology {
    /// A cluster without nodes.
    #[must_use]
    pub fn new(cluster_name: &str, cluster_id: Uuid) -> Self {
        Self {
            version: 0,
            cluster_name: cluster_name.to_owned(),
            cluster_id,
            enabled_features: BTreeSet::new(),
            nodes: BTreeMap::new(),
            numbers: Vec::new(),
            zero_token: BTreeSet::new(),
            excluded: BTreeSet::new(),
        }
    }

    /// A cluster of one node that owns the whole ring: for a node that meets no other.
    ///
    /// # Panics
    /// When the node is not one that a cluster can begin with.
    #[must_use]
    pub fn alone(cluster_name: &str, node: Node) -> Self {
        let mut topology = Self::new(cluster_name, node.host_id.0);
        let added = topology.apply(&crate::TopologyCommand::AddNode(Box::new(node)));
        added.expect("a normal node with a token can be the first");
        topology
    }

    /// Grows by one with each command that was applied.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The name that operators gave the cluster.
    #[must_use]
    pub fn cluster_name(&self) -> &str {
        &self.cluster_name
    }

    /// Distinguishes this cluster from others of the same name.
    #[must_use]
    pub fn cluster_id(&self) -> Uuid {
        self.cluster_id
    }

    /// What all nodes could do at some moment, and every node must be able to do since.
    #[must_use]
    pub fn enabled_features(&self) -> &BTreeSet<String> {
        &self.enabled_features
    }

    /// All nodes, those that left included, by host id.
    #[must_use]
    pub fn nodes(&self) -> &BTreeMap<HostId, Node> {
        &self.nodes
    }

    /// The nodes that have not left, by host id.
    pub fn members(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values().filter(|n| n.state != NodeState::Left)
    }

    /// The member that is lost and whose place a node takes, and its number.
    #[must_use]
    pub fn replaced_by(&self, heir: HostId) -> Option<(NodeNumber, &Node)> {
        let mut members = self.numbered_nodes();
        members.find(|(_, node)| node.state != NodeState::Left && node.is_replaced_by(heir))
    }

    /// The node of this identity.
    #[must_use]
    pub fn node(&self, host_id: HostId) -> Option<&Node> {
        self.nodes.get(&host_id)
    }

    /// The number of a node.
    #[must_use]
    pub fn number(&self, host_id: HostId) -> Option<NodeNumber> {
        let at = self.numbers.iter().position(|id| *id == host_id)?;
        Some(NodeNumber(
            u16::try_from(at).expect("a cluster has at most NODES_MAX nodes"),
        ))
    }

    /// The node of a number.
    #[must_use]
    pub fn numbered(&self, number: NodeNumber) -> Option<&Node> {
        self.nodes.get(self.numbers.get(number.index())?)
    }

    /// Every node with its number, in the order in which they were added.
    pub fn numbered_nodes(&self) -> impl Iterator<Item = (NodeNumber, &Node)> {
        self.numbers.iter().zip(0..=u16::MAX).map(|(id, number)| {
            let node = self.nodes.get(id).expect("every number has a node");
            (NodeNumber(number), node)
        })
    }

    /// The datacenters of all members, in order.
    #[must_use]
    pub fn datacenters(&self) -> BTreeSet<&str> {
        self.members().map(|n| n.location.datacenter.as_str()).collect()
    }

    /// Whether a node is a *zero-token node* (`join_ring: false`): it votes and coordinates, and never has a copy of
    /// anything.
    #[must_use]
    pub fn is_zero_token(&self, host_id: HostId) -> bool {
        self.zero_token.contains(&host_id)
    }

    /// Whether an operator has excluded a member: it is permanently down, no node waits for it, and it may not come
    /// back. It keeps its copies until it is removed or replaced.
    #[must_use]
    pub fn is_excluded(&self, host_id: HostId) -> bool {
        self.excluded.contains(&host_id)
    }

    /// Whether a member will not come back: an operator has excluded it, or has given it up.
    #[must_use]
    pub fn is_lost(&self, node: &Node) -> bool {
        node.loss.is_some() || self.is_excluded(node.host_id)
    }

    /// Whether a node may get copies: a full member that is no zero-token node.
    #[must_use]
    pub fn may_hold(&self, node: &Node) -> bool {
        node.state == NodeState::Normal && !self.is_zero_token(node.host_id)
    }

    /// The datacenters whose nodes can have copies, in order: those of all members without the ones that have
    /// zero-token nodes only.
    #[must_use]
    pub fn datacenters_of_data(&self) -> BTreeSet<&str> {
        let holders = self.members().filter(|n| !self.is_zero_token(n.host_id));
        holders.map(|n| n.location.datacenter.as_str()).collect()
    }

    /// What every member can do, and is not enabled yet.
    #[must_use]
    pub fn features_to_enable(&self) -> BTreeSet<String> {
        let mut members = self.members();
        let Some(first) = members.next() else {
            return BTreeSet::new();
        };
        let mut common = first.features.clone();
        for node in members {
            common.retain(|f| node.features.contains(f));
        }
        common.retain(|f| !self.enabled_features.contains(f));
        common
    }
}

/// A datacenter's place in the order of names of one [`Locality`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DatacenterNumber(pub u16);

impl DatacenterNumber {
    /// A datacenter without nodes.
    pub const NONE: Self = Self(u16::MAX);
}

/// How near a node is to the one that asks; the nearest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Proximity {
    /// The node itself.
    Local,
    /// Another in its rack.
    Rack,
    /// Another rack of its datacenter.
    Datacenter,
    /// Another datacenter.
    Remote,
}

#[derive(Clone, Copy, Debug)]
struct NodeLocality {
    datacenter: DatacenterNumber,
    proximity: Proximity,
}

/// One node's view of where all others are. Made once per topology version; a lookup is an array access.
#[derive(Clone, Debug)]
pub struct Locality {
    places: Vec<NodeLocality>,
    datacenters: Vec<String>,
    pub(crate) nodes_by_datacenter: Vec<u16>,
    local: DatacenterNumber,
}

impl Locality {
    /// The view of the node `local`; None when the topology does not have it.
    #[must_use]
    pub fn new(topology: &Topology, local: HostId) -> Option<Self> {
        let here = &topology.node(local)?.location;
        let mut names: BTreeSet<&str> = topology.datacenters();
        names.insert(&here.datacenter);
        let datacenters: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let number = |name: &str| match datacenters.binary_search_by(|d| d.as_str().cmp(name)) {
            Ok(at) => DatacenterNumber(u16::try_from(at).expect("no more datacenters than nodes")),
            Err(_) => DatacenterNumber::NONE,
        };
        let mut nodes_by_datacenter = vec![0; datacenters.len()];
        let mut places = Vec::with_capacity(topology.numbers.len());
        for (_, node) in topology.numbered_nodes() {
            let there = &node.location;
            let datacenter = number(&there.datacenter);
            if node.state.serves_reads()
                && !topology.is_zero_token(node.host_id)
                && let Some(count) = nodes_by_datacenter.get_mut(usize::from(datacenter.0))
            {
                *count += 1;
            }
            let proximity = if node.host_id == local {
                Proximity::Local
            } else if there == here {
                Proximity::Rack
            } else if there.datacenter == here.datacenter {
                Proximity::Datacenter
            } else {
                Proximity::Remote
            };
            places.push(NodeLocality { datacenter, proximity });
        }
        let local = number(&here.datacenter);
        Some(Self {
            places,
            datacenters,
            nodes_by_datacenter,
            local,
        })
    }

    /// The datacenter of this node.
    #[inline]
    #[must_use]
    pub fn local_datacenter(&self) -> DatacenterNumber {
        self.local
    }

    /// The datacenter of a node; `NONE` for a number that the topology does not have.
    #[inline]
    #[must_use]
    pub fn datacenter(&self, node: NodeNumber) -> DatacenterNumber {
        self.places
            .get(node.index())
            .map_or(DatacenterNumber::NONE, |p| p.datacenter)
    }

    /// How many nodes that can have copies serve reads, everywhere.
    #[must_use]
    pub fn nodes(&self) -> u16 {
        self.nodes_by_datacenter.iter().sum()
    }

    /// How many nodes of a datacenter that can have copies serve reads.
    #[must_use]
    pub fn nodes_in(&self, datacenter: DatacenterNumber) -> u16 {
        let count = self.nodes_by_datacenter.get(usize::from(datacenter.0));
        count.copied().unwrap_or(0)
    }

    /// How near a node is; what the topology does not have is as far as can be.
    #[inline]
    #[must_use]
    pub fn proximity(&self, node: NodeNumber) -> Proximity {
        self.places.get(node.index()).map_or(Proximity::Remote, |p| p.proximity)
    }

    /// The number of a datacenter's name; `NONE` when the datacenter has no nodes.
    #[must_use]
    pub fn datacenter_number(&self, name: &str) -> DatacenterNumber {
        match self.datacenters.binary_search_by(|d| d.as_str().cmp(name)) {
            Ok(at) => DatacenterNumber(u16::try_from(at).expect("no more datacenters than nodes")),
            Err(_) => DatacenterNumber::NONE,
        }
    }

    /// The name of a datacenter.
    #[must_use]
    pub fn datacenter_name(&self, datacenter: DatacenterNumber) -> Option<&str> {
        self.datacenters.get(usize::from(datacenter.0)).map(String::as_str)
    }
}

/// Which nodes answer, by node number: one bit each.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Liveness {
    live: NodeSet,
    /// Those that have said that they take no writes.
    refusing: NodeSet,
    /// Those that have said that their disks are full.
    full: NodeSet,
    /// Those, and those that have said that their disks are nearly full.
    nearly_full: NodeSet,
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct NodeSet(Vec<u64>);

impl NodeSet {
    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    fn set(&mut self, node: NodeNumber, is_in: bool) {
        let (word, bit) = (node.index() / 64, node.index() % 64);
        if word >= self.0.len() {
            if !is_in {
                return;
            }
            self.0.resize(word + 1, 0);
        }
        if is_in {
            self.0[word] |= 1 << bit;
        } else {
            self.0[word] &= !(1 << bit);
        }
    }

    fn retain(&mut self, is_kept: impl Fn(NodeNumber) -> bool) {
        for (number, word) in self.0.iter_mut().enumerate() {
            let bits = (0..64).filter(|bit| *word >> bit & 1 == 1);
            let lost = bits.filter(|bit| {
                let node = u16::try_from(number * 64 + bit).map(NodeNumber);
                !node.is_ok_and(&is_kept)
            });
            *word &= !lost.fold(0, |lost, bit| lost | 1 << bit);
        }
    }

    #[inline]
    fn has(&self, node: NodeNumber) -> bool {
        self.0
            .get(node.index() / 64)
            .is_some_and(|word| word >> (node.index() % 64) & 1 == 1)
    }
}

impl Liveness {
    /// Notes whether a node answers.
    pub fn set(&mut self, node: NodeNumber, is_live: bool) {
        self.live.set(node, is_live);
    }

    /// Notes whether a node takes writes when it answers. One that has said nothing does.
    pub fn set_takes_writes(&mut self, node: NodeNumber, takes: bool) {
        self.refusing.set(node, !takes);
    }

    /// Notes how full a node's disks are. Those of one that has said nothing have room.
    pub fn set_disk_level(&mut self, node: NodeNumber, level: DiskLevel) {
        self.full.set(node, level == DiskLevel::Critical);
        self.nearly_full.set(node, level != DiskLevel::Normal);
    }

    /// Forgets how full the disks of all nodes are that are not members.
    pub fn forget_disks(&mut self, is_member: impl Fn(NodeNumber) -> bool) {
        for set in [&mut self.full, &mut self.nearly_full] {
            set.retain(&is_member);
        }
    }

    /// How full a node's disks are.
    #[must_use]
    pub fn disk_level(&self, node: NodeNumber) -> DiskLevel {
        match (self.full.has(node), self.nearly_full.has(node)) {
            (true, _) => DiskLevel::Critical,
            (false, true) => DiskLevel::Warning,
            (false, false) => DiskLevel::Normal,
        }
    }

    /// Whether the disks of some node are full, or nearly.
    #[must_use]
    pub fn is_any_nearly_full(&self) -> bool {
        !self.nearly_full.is_empty()
    }

    /// Whether the disks of some node are full.
    #[inline]
    #[must_use]
    pub fn is_any_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// Whether a node answers; one never heard of does not.
    #[inline]
    #[must_use]
    pub fn is_live(&self, node: NodeNumber) -> bool {
        self.live.has(node)
    }

    /// Whether a node answers and takes writes.
    #[inline]
    #[must_use]
    pub fn takes_writes(&self, node: NodeNumber) -> bool {
        self.live.has(node) && !self.refusing.has(node)
    }

    /// Whether a node answers and takes writes that add data.
    #[inline]
    #[must_use]
    pub fn takes_growth(&self, node: NodeNumber) -> bool {
        self.takes_writes(node) && !self.full.has(node)
    }
}
