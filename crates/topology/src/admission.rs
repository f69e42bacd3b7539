//! Which nodes may join, and which may come back.
//!
//! A node that starts asks a member, with what it believes of itself: its host id, the cluster that its files are of,
//! its place. The answer is a decision over values: commands for the metadata's log, or a refusal that says why and
//! what to do. The member decides by its copy of the topology; the commands are checked once more when they are
//! applied.
//!
//! **Data is never lost by a join.** A node that joins can only receive. It is added as `Joining`, no coordinator reads
//! from it, and nothing it says changes what others own:
//!
//! - *Tablets* do not move because a node joins. The balancer moves them afterwards, one by one, each through its
//!   stages.
//! - *On the ring* a node that joins is written to as soon as it has tokens, and read when it has copied its ranges.
//!   One that does not bootstrap (`auto_bootstrap: false`) joins without tokens, whatever `num_tokens` says, and owns
//!   no part of the ring.
//!
//! A *zero-token node* (`join_ring: false`) owns nothing at all, for its life.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use types::Token;
use uuid::Uuid;

use crate::command::TopologyCommand;
use crate::node::{HostId, Location, Node, NodeState, Topology};

/// How far a node's clock may be from a member's.
pub const CLOCK_OFFSET_MAX: Duration = Duration::from_secs(5);

/// What a node that starts says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinRequest {
    /// The cluster's name by its configuration.
    pub cluster_name: String,
    /// The cluster that its files are of; None while they are of none. A node notes it after it was added.
    pub cluster_id: Option<Uuid>,
    /// The node, with the tokens that it has or has chosen. Its state is `Joining`, and counts for nothing.
    pub node: Node,
    /// Its wall clock when it asked, since the epoch.
    pub wall_clock: Duration,
    /// Whether it takes its part of the ring, by `auto_bootstrap`.
    pub auto_bootstrap: bool,
    /// Whether it may own anything, by `join_ring`; a zero-token node never does.
    pub joins_ring: bool,
    /// The member whose place a new node takes.
    pub replaces: Option<Replaced>,
    /// The dead members that no node shall wait for while it joins: they are excluded.
    pub ignored: Vec<Replaced>,
}

/// How an operator names the member that a new node replaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replaced {
    /// By its identity.
    Host(HostId),
    /// By its address, for other nodes or for clients.
    Address(IpAddr),
}

impl Replaced {
    /// Whether a node is the one that is named.
    fn is(&self, node: &Node) -> bool {
        match *self {
            Self::Host(host_id) => node.host_id == host_id,
            Self::Address(ip) => node.internode.ip() == ip || node.native.ip() == ip,
        }
    }
}

impl fmt::Display for Replaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host_id) => write!(f, "host id {host_id}"),
            Self::Address(address) => write!(f, "address {address}"),
        }
    }
}

/// What the member that decides knows besides the topology.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinFacts {
    /// The member's wall clock when the request came, since the epoch.
    pub wall_clock: Duration,
    /// The nodes that are alive, by its failure detector.
    pub alive: BTreeSet<HostId>,
    /// How far clocks may differ: [`CLOCK_OFFSET_MAX`] where nothing else is configured.
    pub clock_offset_max: Duration,
}

/// A node that may come in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Admission {
    /// A new node.
    Join {
        /// Apply them in order.
        commands: Vec<TopologyCommand>,
        /// It owns nothing of the ring.
        is_empty_receiver: bool,
    },
    /// A member that was restarted.
    Restart {
        /// Apply them in order; none when nothing has changed.
        commands: Vec<TopologyCommand>,
    },
}

/// Why a node may not come in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It is configured for a cluster of another name.
    ClusterName {
        /// The cluster's.
        ours: String,
        /// The node's.
        theirs: String,
    },
    /// Its files are of another cluster.
    OtherCluster {
        /// The cluster's id.
        ours: Uuid,
        /// That in its files.
        theirs: Uuid,
    },
    /// Another process with its identity is alive.
    DuplicateIdentity {
        /// The identity.
        host_id: HostId,
        /// Where it is alive.
        alive_at: SocketAddr,
        /// Where it asks from.
        asks_from: SocketAddr,
    },
    /// It left or was removed.
    HasLeft(HostId),
    /// Its files are of this cluster, but it never was a member.
    NotAMember(HostId),
    /// It is a member, but its files are of no cluster.
    LostFiles(HostId),
    /// Its clock is off.
    Clock {
        /// By how much.
        offset: Duration,
        /// Whether it is ahead.
        is_ahead: bool,
        /// The limit.
        limit: Duration,
    },
    /// It lacks features that the cluster has enabled.
    LacksFeatures {
        /// Those that it lacks.
        missing: Vec<String>,
        /// Those that it has.
        known: Vec<String>,
    },
    /// Its location has changed.
    LocationChanged {
        /// Before.
        from: Location,
        /// Now.
        to: Location,
    },
    /// It has no shards.
    NoShards,
    /// It has other tokens than before.
    TokensChanged {
        /// How many before.
        from: usize,
        /// How many now.
        to: usize,
    },
    /// Another node has its address.
    AddressInUse {
        /// The address.
        address: SocketAddr,
        /// The node that has it.
        by: HostId,
        /// Whether that node is alive.
        is_alive: bool,
    },
    /// Another node has one of its tokens.
    TokenInUse {
        /// The token.
        token: Token,
        /// The node that has it.
        by: HostId,
    },
    /// The member that it is to replace cannot be replaced.
    CannotReplace {
        /// As the operator named it.
        named: Replaced,
        /// What it is instead of a full member that is down.
        why: &'static str,
    },
    /// It is a zero-token node, and was none before, or the other way round.
    JoinRingChanged {
        /// Whether it was one before.
        was_zero_token: bool,
    },
    /// The first node of a cluster owns the ring.
    FirstWithoutTokens,
    /// An operator has said that it is down permanently.
    Excluded(HostId),
    /// A dead node that it names cannot be excluded.
    CannotIgnore {
        /// As the operator named it.
        named: Replaced,
        /// Why not.
        why: &'static str,
    },
    /// The topology does not take it, for the reason given.
    Command(crate::CommandError),
}

fn listed(features: &[String]) -> String {
    match features {
        [] => "none".to_owned(),
        features => features.join(", "),
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClusterName { ours, theirs } => write!(
                f,
                "This cluster is named '{ours}', the node is configured for '{theirs}'. \
                 Correct cluster_name or the seeds of the node."
            ),
            Self::OtherCluster { ours, theirs } => write!(
                f,
                "The node's files are of cluster {theirs}, this is cluster {ours}. \
                 Correct the seeds, or start the node on an empty data directory."
            ),
            Self::DuplicateIdentity {
                host_id,
                alive_at,
                asks_from,
            } => write!(
                f,
                "Host id {host_id} is alive at {alive_at}, and asks to join from {asks_from}: two nodes have one identity. \
                 Stop one of them; if the data directory was copied, start the copy on an empty one."
            ),
            Self::HasLeft(host_id) => write!(
                f,
                "Host id {host_id} has left the cluster, or was removed, and its data is out of date. \
                 Start the node on an empty data directory to join as a new one."
            ),
            Self::NotAMember(host_id) => write!(
                f,
                "The node's files are of this cluster, but host id {host_id} never was a member of it. \
                 Start the node on an empty data directory, and load its data with the tools if it is needed."
            ),
            Self::LostFiles(host_id) => write!(
                f,
                "Host id {host_id} is a member that holds data, but the node comes without its files. \
                 Restore its data directory; if only the metadata is lost, have the node take it from the members (ceto recover-metadata --rejoin); \
                 else remove the member (ceto nodetool removenode) and start the node with a new host id."
            ),
            Self::Clock {
                offset,
                is_ahead,
                limit,
            } => write!(
                f,
                "The node's clock is {:.1} s {} of this cluster's, more than {:.1} s: its writes would win or lose wrongly. \
                 Synchronize its clock (NTP) and start it again.",
                offset.as_secs_f64(),
                if *is_ahead { "ahead" } else { "behind" },
                limit.as_secs_f64()
            ),
            Self::LacksFeatures { missing, known } => write!(
                f,
                "The cluster has enabled features that the node's release lacks: {}. The node has: {}. \
                 Start the node with the release of the other nodes, or a later one.",
                listed(missing),
                listed(known)
            ),
            Self::LocationChanged { from, to } => write!(
                f,
                "The node was in datacenter {} rack {}, and now says {} rack {}; its replicas were placed by the former. \
                 Restore the snitch's settings, or decommission the node and let it join again.",
                from.datacenter, from.rack, to.datacenter, to.rack
            ),
            Self::NoShards => f.write_str("The node has no shards. Start it with at least 1 shard (--smp)."),
            Self::TokensChanged { from, to } => write!(
                f,
                "The node owns {from} tokens and now comes with {to} others; ownership would change without its data. \
                 Restore num_tokens and initial_token, or decommission the node and let it join again."
            ),
            Self::AddressInUse { address, by, is_alive } => {
                write!(f, "Address {address} is that of node {by}, which is ")?;
                if *is_alive {
                    write!(
                        f,
                        "alive, or was until a moment ago. If that one is gone permanently, say because its disk was lost, start this one with replace_node_first_boot: {by} \
                         when the others take that one for down; otherwise give this one another listen_address or broadcast_address."
                    )
                } else {
                    write!(
                        f,
                        "down. If the node is to take its place, start it with replace_node_first_boot: {by}; otherwise give it another listen_address or \
                         broadcast_address, or remove {by} first (nodetool removenode)."
                    )
                }
            }
            Self::CannotReplace { named, why } => write!(
                f,
                "The node is to replace {named}, which {why}. Correct replace_node_first_boot, or leave it empty to join as a further node."
            ),
            Self::JoinRingChanged { was_zero_token: true } => f.write_str(
                "The node has been a zero-token node since it joined (join_ring: false), and comes with join_ring: true. A node keeps this for its life: \
                 set join_ring: false again, or decommission the node and let it join as a new one on an empty data directory.",
            ),
            Self::JoinRingChanged { was_zero_token: false } => f.write_str(
                "The node joined to own data, and comes with join_ring: false. A node keeps this for its life: set join_ring: true again, or decommission the \
                 node and let it join as a new one on an empty data directory.",
            ),
            Self::FirstWithoutTokens => f.write_str(
                "The node forms a cluster, and with join_ring: false no node would own the token ring. Start a node with join_ring: true first, or correct the seeds.",
            ),
            Self::Excluded(host_id) => write!(
                f,
                "Host id {host_id} was excluded: an operator has said that it is down permanently, and the cluster no longer waits for it. Its data is out of date. \
                 Remove or replace it, and start the node on an empty data directory to join as a new one."
            ),
            Self::CannotIgnore { named, why } => write!(
                f,
                "The node is to ignore {named}, which {why}. Correct ignore_dead_nodes_for_replace."
            ),
            Self::TokenInUse { token, by } => write!(
                f,
                "Token {token} is owned by node {by}. Leave initial_token empty, or choose others."
            ),
            Self::Command(e) => write!(
                f,
                "The topology does not take the node: {e}. Correct its configuration."
            ),
        }
    }
}

impl std::error::Error for Refusal {}

/// Whether a node may join or come back, and by which commands.
///
/// # Errors
/// The first reason why not.
pub fn admit(topology: &Topology, request: &JoinRequest, facts: &JoinFacts) -> Result<Admission, Refusal> {
    if request.cluster_name != topology.cluster_name {
        return Err(Refusal::ClusterName {
            ours: topology.cluster_name.clone(),
            theirs: request.cluster_name.clone(),
        });
    }
    if let Some(theirs) = request.cluster_id.filter(|id| *id != topology.cluster_id) {
        return Err(Refusal::OtherCluster {
            ours: topology.cluster_id,
            theirs,
        });
    }
    let is_ahead = request.wall_clock > facts.wall_clock;
    let offset = request.wall_clock.abs_diff(facts.wall_clock);
    if offset > facts.clock_offset_max {
        return Err(Refusal::Clock {
            offset,
            is_ahead,
            limit: facts.clock_offset_max,
        });
    }
    let known = &request.node.features;
    let missing: Vec<String> = topology.enabled_features.difference(known).cloned().collect();
    if !missing.is_empty() {
        return Err(Refusal::LacksFeatures {
            missing,
            known: known.iter().cloned().collect(),
        });
    }
    let commands = match topology.node(request.node.host_id) {
        Some(node) => restart(topology, node, request, facts)?,
        None => join(topology, request, facts)?,
    };
    // What is refused here would be refused by every node; better now, with a sentence, than after it was proposed.
    let mut after = topology.clone();
    for command in &commands {
        after.apply(command).map_err(Refusal::Command)?;
    }
    Ok(match topology.node(request.node.host_id) {
        Some(_) => Admission::Restart { commands },
        None => Admission::Join {
            commands,
            is_empty_receiver: !takes_tokens(topology, request),
        },
    })
}

fn restart(
    topology: &Topology,
    node: &Node,
    request: &JoinRequest,
    facts: &JoinFacts,
) -> Result<Vec<TopologyCommand>, Refusal> {
    let asking = &request.node;
    let host_id = node.host_id;
    if node.state == NodeState::Left {
        return Err(Refusal::HasLeft(host_id));
    }
    if topology.is_excluded(host_id) {
        return Err(Refusal::Excluded(host_id));
    }
    // One that has no place yet may still become either.
    let was_zero_token = topology.is_zero_token(host_id);
    let is_undecided = node.state == NodeState::Joining && node.tokens.is_empty();
    if was_zero_token == request.joins_ring && !is_undecided {
        return Err(Refusal::JoinRingChanged { was_zero_token });
    }
    let has_moved = node.internode != asking.internode;
    if has_moved && facts.alive.contains(&host_id) {
        return Err(Refusal::DuplicateIdentity {
            host_id,
            alive_at: node.internode,
            asks_from: asking.internode,
        });
    }
    // A node that crashed while it joined may not have noted the cluster yet, and holds nothing.
    if request.cluster_id.is_none() && node.state != NodeState::Joining {
        return Err(Refusal::LostFiles(host_id));
    }
    if node.location != asking.location {
        return Err(Refusal::LocationChanged {
            from: node.location.clone(),
            to: asking.location.clone(),
        });
    }
    if asking.shards == 0 {
        return Err(Refusal::NoShards);
    }
    // An empty receiver has none in the topology, and what it has chosen itself does not count.
    if !node.tokens.is_empty() && node.tokens != asking.tokens {
        return Err(Refusal::TokensChanged {
            from: node.tokens.len(),
            to: asking.tokens.len(),
        });
    }
    // Two nodes that are down may swap addresses, as containers do; so only the living count.
    if has_moved {
        let holder = address_holder(topology, request).find(|n| facts.alive.contains(&n.host_id));
        if let Some(other) = holder {
            return Err(Refusal::AddressInUse {
                address: asking.internode,
                by: other.host_id,
                is_alive: true,
            });
        }
    }
    let mut commands = Vec::new();
    // A node that crashed while it joined, before the other was given up.
    let replaced = match node.state {
        NodeState::Joining => replaced(topology, request, facts)?,
        NodeState::Normal | NodeState::Leaving | NodeState::Left => None,
    };
    commands.extend(replaced.and_then(|other| take_place(other, host_id)));
    if has_moved || node.native != asking.native || node.native_shard_aware_port != asking.native_shard_aware_port {
        commands.push(TopologyCommand::ChangeAddress {
            host_id,
            internode: asking.internode,
            native: asking.native,
            native_shard_aware_port: asking.native_shard_aware_port,
        });
    }
    if node.shards != asking.shards {
        commands.push(TopologyCommand::SetShards {
            host_id,
            shards: asking.shards,
        });
    }
    if node.features != asking.features || node.release != asking.release {
        commands.push(TopologyCommand::SetFeatures {
            host_id,
            features: asking.features.clone(),
            release: asking.release.clone(),
        });
    }
    Ok(commands)
}

fn join(topology: &Topology, request: &JoinRequest, facts: &JoinFacts) -> Result<Vec<TopologyCommand>, Refusal> {
    let is_first = topology.members().next().is_none();
    if request.cluster_id.is_some() && !is_first {
        return Err(Refusal::NotAMember(request.node.host_id));
    }
    if request.node.shards == 0 {
        return Err(Refusal::NoShards);
    }
    if is_first && !request.joins_ring {
        return Err(Refusal::FirstWithoutTokens);
    }
    let replaced = replaced(topology, request, facts)?;
    let ignored = ignored(topology, request, facts)?;
    let is_other = |node: &&Node| {
        let is_ignored = ignored.contains(&node.host_id) || topology.is_excluded(node.host_id);
        !is_ignored && replaced.is_none_or(|replaced| replaced.host_id != node.host_id)
    };
    if let Some(other) = address_holder(topology, request).find(is_other) {
        return Err(Refusal::AddressInUse {
            address: request.node.internode,
            by: other.host_id,
            is_alive: facts.alive.contains(&other.host_id),
        });
    }
    // The first node owns the whole ring, whatever it says: there is no other node to take it from.
    let takes_tokens = takes_tokens(topology, request);
    let tokens = if takes_tokens {
        request.node.tokens.clone()
    } else {
        Vec::new()
    };
    for other in topology.members() {
        if let Some(token) = tokens.iter().find(|t| other.tokens.binary_search(t).is_ok()) {
            return Err(Refusal::TokenInUse {
                token: *token,
                by: other.host_id,
            });
        }
    }
    let state = if is_first {
        NodeState::Normal
    } else {
        NodeState::Joining
    };
    let node = Node {
        tokens,
        state,
        ..request.node.clone()
    };
    // First, for what is lost keeps no address from others.
    let ignored = ignored.into_iter().filter(|host_id| !topology.is_excluded(*host_id));
    let mut commands: Vec<TopologyCommand> = ignored.map(|host_id| TopologyCommand::Exclude { host_id }).collect();
    commands.extend(replaced.and_then(|other| take_place(other, node.host_id)));
    commands.push(TopologyCommand::AddNode(Box::new(node)));
    Ok(commands)
}

/// Gives a lost node up for another one, unless that was done.
fn take_place(lost: &Node, heir: HostId) -> Option<TopologyCommand> {
    let command = TopologyCommand::GiveUp {
        host_id: lost.host_id,
        replaced_by: Some(heir),
    };
    (!lost.is_replaced_by(heir)).then_some(command)
}

/// The member whose place a node takes.
fn replaced<'t>(topology: &'t Topology, request: &JoinRequest, facts: &JoinFacts) -> Result<Option<&'t Node>, Refusal> {
    let Some(named) = request.replaces else {
        return Ok(None);
    };
    let refused = |why| Err(Refusal::CannotReplace { named, why });
    let own = request.node.host_id;
    let others = topology.members().filter(|node| node.host_id != own);
    let Some(node) = others.into_iter().find(|node| named.is(node)) else {
        return refused("is no member of this cluster");
    };
    if facts.alive.contains(&node.host_id) {
        return refused("is alive: stop it first");
    }
    let heir = node.loss.and_then(|loss| loss.replaced_by);
    let has_other_heir = heir
        .and_then(|heir| topology.node(heir))
        .is_some_and(|heir| heir.host_id != own && heir.state != NodeState::Left);
    match node.state {
        _ if has_other_heir => refused("is replaced by another node already"),
        NodeState::Joining => refused("has joined and owns nothing yet: remove it"),
        _ if topology.is_zero_token(node.host_id) && request.joins_ring => {
            refused("is a zero-token node: set join_ring: false, for only such a node takes its place")
        }
        _ if !topology.is_zero_token(node.host_id) && !request.joins_ring => {
            refused("owns data, which a node with join_ring: false cannot take")
        }
        _ if node.location.datacenter != request.node.location.datacenter => {
            refused("is in another datacenter, where the copies must stay")
        }
        NodeState::Normal | NodeState::Leaving | NodeState::Left => Ok(Some(node)),
    }
}

/// The first node owns the whole ring, whatever it says: there is no other node to take it from.
fn takes_tokens(topology: &Topology, request: &JoinRequest) -> bool {
    (request.auto_bootstrap && request.joins_ring) || topology.members().next().is_none()
}

/// The dead members that an operator has named besides the one that is replaced.
fn ignored(topology: &Topology, request: &JoinRequest, facts: &JoinFacts) -> Result<BTreeSet<HostId>, Refusal> {
    let find = |named: &Replaced| {
        let refused = |why| Err(Refusal::CannotIgnore { named: *named, why });
        let Some(node) = topology.members().find(|node| named.is(node)) else {
            return refused("is no member of this cluster");
        };
        if facts.alive.contains(&node.host_id) {
            return refused("is alive: only a node that is down permanently can be ignored");
        }
        match node.state {
            NodeState::Joining => refused("has joined and owns nothing yet: remove it"),
            NodeState::Normal | NodeState::Leaving | NodeState::Left => Ok(node.host_id),
        }
    };
    // Without a node that is replaced the option says nothing: it may be left over in a configuration.
    match request.replaces {
        Some(_) => request.ignored.iter().map(find).collect(),
        None => Ok(BTreeSet::new()),
    }
}

/// The members that have the address already.
fn address_holder<'t>(topology: &'t Topology, request: &JoinRequest) -> impl Iterator<Item = &'t Node> {
    let (host_id, address) = (request.node.host_id, request.node.internode);
    topology
        .members()
        .filter(move |n| n.host_id != host_id && n.internode == address)
}
