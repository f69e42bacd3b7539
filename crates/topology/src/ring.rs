//! The tablet map of a keyspace that lives on the token ring, as Cassandra places its ranges.
//!
//! Each node has tokens. A key belongs to the first token at or above its own, around the ring; its replicas are found
//! by walking the ring from there:
//!
//! - SimpleStrategy takes the next distinct nodes.
//! - NetworkTopologyStrategy takes for each datacenter the next distinct nodes there, but passes by a node of a rack
//!   that it has already, unless there are fewer racks than copies: then as many repeats are taken as racks are
//!   missing, the first that come. Of a list of racks it takes the next node in each.
//! - EverywhereStrategy takes all.
//!
//! Fewer nodes than copies is no error: there are as many copies as nodes.
//!
//! **Shards.** On the ring a shard of a node owns a contiguous part of all tokens, the one of `types::token::shard_of`
//! with no bit ignored. Because a tablet has one shard per replica, the map is also cut where the shard changes on any
//! node. That adds at most one cut per shard and distinct number of shards.
//!
//! **Moves.** The replicas are those of the nodes that serve reads (`Normal`, `Leaving`), by the former replication of
//! the keyspace. Where they will be others once the `Joining` nodes that have tokens are normal, the `Leaving` ones
//! gone and the replication the new one, the tablet is in transition. All transitions of the ring are in one stage,
//! that of the [`RingChange`]. A node that joins without tokens owns nothing of the ring, so nothing moves to it.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;
use types::Token;
use types::token::shard_of;

use crate::node::{Node, NodeNumber, NodeState, Topology};
use crate::place::unknown_datacenter;
use crate::replication::{Copies, PlacementError, Replication};
use crate::tablet_map::{Boundaries, Builder, Replica, ReplicaList, Stage, TabletMap, Transition};

/// How far the ring has come from its former owners to its next ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingChange {
    /// The version of the cluster's metadata in which the stage began.
    pub version: u64,
    /// The stage.
    pub stage: Stage,
}

/// The map of a keyspace without tablets, while its replication stays. Its version is the topology's.
///
/// # Errors
/// As [`changing_ring_map`].
pub fn ring_map(topology: &Topology, replication: &Replication) -> Result<TabletMap, PlacementError> {
    let change = RingChange {
        version: topology.version(),
        stage: Stage::WriteBothReadOld,
    };
    changing_ring_map(topology, (replication, replication), change)
}

/// The map of a keyspace without tablets that goes from one replication to another. Its version is the topology's.
///
/// # Errors
/// When no node has tokens, or a replication names a datacenter that is not there.
pub fn changing_ring_map(
    topology: &Topology,
    (former, replication): (&Replication, &Replication),
    change: RingChange,
) -> Result<TabletMap, PlacementError> {
    check_datacenters(topology, former)?;
    check_datacenters(topology, replication)?;
    let now = Ring::new(topology, |state| state.serves_reads());
    if now.tokens.is_empty() {
        return Err(PlacementError::NoTokens);
    }
    let later = Ring::new(topology, |state| {
        matches!(state, NodeState::Normal | NodeState::Joining)
    });
    let is_other = later.tokens != now.tokens || former != replication;
    let later = (!later.tokens.is_empty() && is_other).then_some(later);

    let mut cuts: BTreeSet<Token> = now.tokens.iter().map(|(token, _)| *token).collect();
    if let Some(later) = &later {
        cuts.extend(later.tokens.iter().map(|(token, _)| *token));
    }
    let shard_counts: BTreeSet<u16> = topology.members().map(|n| n.shards).collect();
    cuts.extend(shard_counts.into_iter().flat_map(shard_ends));
    cuts.insert(Token::MAX);

    // The replicas are the same from one ring token to the next, so they are found once for each.
    let mut now = Walker::new(topology, former, &now);
    let mut later = later.as_ref().map(|ring| Walker::new(topology, replication, ring));
    let last_tokens: Vec<Token> = cuts.into_iter().collect();
    let mut builder = Builder::new(topology.version(), Boundaries::LastTokens(last_tokens.clone().into()))?;
    for last in last_tokens {
        let replicas = now.replicas(last);
        let next = later.as_mut().map(|walker| walker.replicas(last));
        let transition = next.filter(|next| !same_set(next, &replicas)).map(|next| Transition {
            stage: change.stage,
            next,
            version: change.version,
            copied: SmallVec::new(),
        });
        builder.push(&replicas, transition)?;
    }
    Ok(builder.finish()?)
}

fn check_datacenters(topology: &Topology, replication: &Replication) -> Result<(), PlacementError> {
    match replication {
        Replication::Local => Err(PlacementError::Local),
        Replication::NetworkTopology(factors) => {
            let known = topology.datacenters();
            let unknown = factors.keys().find(|name| !known.contains(name.as_str()));
            unknown.map_or(Ok(()), |unknown| Err(unknown_datacenter(topology, unknown)))
        }
        Replication::Simple { .. } | Replication::Everywhere => Ok(()),
    }
}

/// The last token of each shard but the last, whose end is the ring's.
fn shard_ends(shards: u16) -> impl Iterator<Item = Token> {
    (1..u128::from(shards)).map(move |shard| {
        let first_of_next = (shard << 64).div_ceil(u128::from(shards));
        let last = u64::try_from(first_of_next - 1).expect("a fraction of 2^64");
        Token((last ^ (1 << 63)).cast_signed())
    })
}

fn same_set(a: &[Replica], b: &[Replica]) -> bool {
    a.len() == b.len() && a.iter().all(|replica| b.contains(replica))
}

struct Ring<'t> {
    /// In order of tokens.
    tokens: Vec<(Token, NodeNumber)>,
    owners: Vec<(NodeNumber, &'t Node)>,
}

impl<'t> Ring<'t> {
    fn new(topology: &'t Topology, is_owner: impl Fn(NodeState) -> bool) -> Self {
        let is_owner = |node: &Node| is_owner(node.state) && !node.tokens.is_empty();
        let owners: Vec<_> = topology.numbered_nodes().filter(|(_, node)| is_owner(node)).collect();
        let owned = owners
            .iter()
            .flat_map(|(number, node)| node.tokens.iter().map(|t| (*t, *number)));
        let mut tokens: Vec<_> = owned.collect();
        tokens.sort_unstable();
        Self { tokens, owners }
    }
}

/// Finds replicas for tokens that come in ascending order.
struct Walker<'r> {
    ring: &'r Ring<'r>,
    replication: &'r Replication,
    nodes: BTreeMap<NodeNumber, &'r Node>,
    /// Nodes and racks of each datacenter.
    datacenters: BTreeMap<&'r str, (usize, usize)>,
    last_start: Option<usize>,
    last_nodes: Vec<NodeNumber>,
}

impl<'r> Walker<'r> {
    fn new(topology: &'r Topology, replication: &'r Replication, ring: &'r Ring<'r>) -> Self {
        let mut racks: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, node) in &ring.owners {
            let location = &node.location;
            racks.entry(&location.datacenter).or_default().insert(&location.rack);
            *counts.entry(&location.datacenter).or_default() += 1;
        }
        let datacenters = racks
            .into_iter()
            .map(|(name, racks)| (name, (counts[name], racks.len())));
        Self {
            ring,
            replication,
            nodes: topology.numbered_nodes().collect(),
            datacenters: datacenters.collect(),
            last_start: None,
            last_nodes: Vec::new(),
        }
    }

    fn replicas(&mut self, token: Token) -> ReplicaList {
        let at = self.ring.tokens.partition_point(|(t, _)| *t < token);
        // After the last token the ring begins again.
        let start = if at == self.ring.tokens.len() { 0 } else { at };
        if self.last_start != Some(start) {
            self.last_nodes = self.walk(start);
            self.last_start = Some(start);
        }
        let replica = |number: &NodeNumber| Replica {
            node: *number,
            shard: shard_on(token, self.nodes[number].shards),
        };
        self.last_nodes.iter().map(replica).collect()
    }

    fn walk(&self, start: usize) -> Vec<NodeNumber> {
        let (before, from) = self.ring.tokens.split_at(start);
        let clockwise = from.iter().chain(before).map(|(_, number)| *number);
        match self.replication {
            Replication::Local => Vec::new(),
            Replication::Simple { factor } => {
                let copies = usize::from(*factor).min(self.ring.owners.len());
                next_nodes(clockwise, copies)
            }
            Replication::Everywhere => next_nodes(clockwise, self.ring.owners.len()),
            Replication::NetworkTopology(factors) => self.walk_datacenters(clockwise, factors),
        }
    }

    fn walk_datacenters(
        &self,
        clockwise: impl Iterator<Item = NodeNumber>,
        factors: &BTreeMap<String, Copies>,
    ) -> Vec<NodeNumber> {
        struct Search<'a> {
            missing: usize,
            repeats: usize,
            racks: SmallVec<[&'a str; 8]>,
            /// None when copies may be in any rack.
            listed: Option<&'a [String]>,
        }
        let mut searches: BTreeMap<&str, Search<'_>> = BTreeMap::new();
        for (datacenter, copies) in factors {
            let factor = usize::from(copies.number());
            let listed = match copies {
                Copies::Count(_) => None,
                Copies::Racks(racks) => Some(&**racks),
            };
            let (nodes, racks) = self.datacenters.get(datacenter.as_str()).copied().unwrap_or((0, 0));
            let search = Search {
                missing: factor.min(nodes),
                repeats: if listed.is_some() {
                    0
                } else {
                    factor.saturating_sub(racks)
                },
                racks: SmallVec::new(),
                listed,
            };
            searches.insert(datacenter, search);
        }
        let mut missing: usize = searches.values().map(|s| s.missing).sum();
        let mut found = Vec::with_capacity(missing);
        for number in clockwise {
            if missing == 0 {
                break;
            }
            let location = &self.nodes[&number].location;
            let Some(search) = searches.get_mut(location.datacenter.as_str()) else {
                continue;
            };
            if search.missing == 0 || found.contains(&number) {
                continue;
            }
            if search.listed.is_some_and(|listed| !listed.contains(&location.rack)) {
                continue;
            }
            if !search.racks.contains(&location.rack.as_str()) {
                search.racks.push(&location.rack);
            } else if search.repeats > 0 {
                search.repeats -= 1;
            } else {
                continue;
            }
            search.missing -= 1;
            missing -= 1;
            found.push(number);
        }
        found
    }
}

fn next_nodes(clockwise: impl Iterator<Item = NodeNumber>, copies: usize) -> Vec<NodeNumber> {
    let mut found = Vec::with_capacity(copies);
    for number in clockwise {
        if found.len() == copies {
            break;
        }
        if !found.contains(&number) {
            found.push(number);
        }
    }
    found
}

fn shard_on(token: Token, shards: u16) -> u16 {
    u16::try_from(shard_of(token, u32::from(shards), 0)).expect("less than the count of shards")
}
