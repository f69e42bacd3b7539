//! The nodes, racks and shards with what they hold as planned so far.

use std::collections::BTreeMap;

use super::{Limits, NodeInput, Options, Role};
use crate::node::{NodeNumber, NodeState, Topology};

/// A node; its place in [`Cluster::nodes`] is its number.
pub(super) struct Node {
    pub(super) role: Role,
    pub(super) rack: u32,
    pub(super) datacenter: u32,
    pub(super) shards: u16,
    /// Where its shards begin in the arrays of shards.
    pub(super) first_shard: usize,
    /// Its part in a fair distribution of bytes, relative to others of its datacenter.
    pub(super) capacity: f64,
    /// The bytes that it may still receive.
    pub(super) room: f64,
    pub(super) bytes: f64,
    pub(super) load: f64,
    pub(super) bytes_share: f64,
    pub(super) load_share: f64,
    pub(super) in_left: u32,
    pub(super) out_left: u32,
    pub(super) shard_moves_left: u32,
}

pub(super) struct Rack {
    pub(super) name: String,
    pub(super) datacenter: u32,
    /// The nodes that may receive copies, in order of number.
    pub(super) holders: Vec<u16>,
    /// The nodes that a copy may be on: holders, and those that are down for now.
    pub(super) able: u16,
}

pub(super) struct Cluster {
    /// By number; after the last one, a lost node that represents all numbers which the topology does not have.
    pub(super) nodes: Vec<Node>,
    pub(super) racks: Vec<Rack>,
    pub(super) datacenters: Vec<String>,
    pub(super) shard_bytes: Vec<f64>,
    pub(super) shard_load: Vec<f64>,
    /// The node that gets the copies of a lost one first.
    pub(super) replacements: BTreeMap<u16, u16>,
    pub(super) total_left: u32,
}

impl Cluster {
    pub(super) fn new(topology: &Topology, inputs: &[NodeInput], limits: &Limits, options: &Options) -> Self {
        let inputs: BTreeMap<NodeNumber, &NodeInput> = inputs.iter().map(|n| (n.number, n)).collect();
        let mut cluster = Self {
            nodes: Vec::new(),
            racks: Vec::new(),
            datacenters: Vec::new(),
            shard_bytes: Vec::new(),
            shard_load: Vec::new(),
            replacements: BTreeMap::new(),
            total_left: limits.total,
        };
        let mut known: BTreeMap<(&str, &str), u32> = BTreeMap::new();
        let mut datacenters: BTreeMap<&str, u32> = BTreeMap::new();
        let mut first_shard = 0;
        for (number, node) in topology.numbered_nodes() {
            let location = (node.location.datacenter.as_str(), node.location.rack.as_str());
            let datacenter = *datacenters.entry(location.0).or_insert_with(|| {
                cluster.datacenters.push(location.0.to_owned());
                place(cluster.datacenters.len() - 1)
            });
            let rack = *known.entry(location).or_insert_with(|| {
                cluster.racks.push(Rack::new(location.1, datacenter));
                place(cluster.racks.len() - 1)
            });
            let input = inputs.get(&number).copied();
            let role = match (input, node.state) {
                (_, NodeState::Left) => Role::Lost,
                (Some(input), _) => input.role,
                (None, NodeState::Joining) => Role::Idle,
                (None, _) => Role::Down,
            };
            if let Some(lost) = input.and_then(|i| i.replaces) {
                cluster.replacements.insert(lost.0, number.0);
            }
            let shards = node.shards.max(1);
            let new = Node {
                role,
                rack,
                datacenter,
                shards,
                first_shard,
                ..Node::new(input, limits, options)
            };
            first_shard += usize::from(shards);
            cluster.add(new, number.0);
        }
        cluster.add_unknown(first_shard);
        cluster.shard_bytes = vec![0.0; first_shard + 1];
        cluster.shard_load = vec![0.0; first_shard + 1];
        cluster.use_shards_where_capacity_is_unknown();
        cluster
    }

    fn add(&mut self, node: Node, number: u16) {
        let rack = &mut self.racks[node.rack as usize];
        if node.role == Role::Holds {
            rack.holders.push(number);
        }
        if matches!(node.role, Role::Holds | Role::Down) {
            rack.able += 1;
        }
        self.nodes.push(node);
    }

    /// The node that represents unknown numbers, in a rack and a datacenter that no replication names.
    fn add_unknown(&mut self, first_shard: usize) {
        self.datacenters.push(String::new());
        let datacenter = place(self.datacenters.len() - 1);
        self.racks.push(Rack::new("", datacenter));
        let rack = place(self.racks.len() - 1);
        let node = Node {
            rack,
            datacenter,
            first_shard,
            ..Node::new(None, &Limits::NONE, &Options::default())
        };
        self.nodes.push(node);
    }

    fn use_shards_where_capacity_is_unknown(&mut self) {
        let mut is_known = vec![true; self.datacenters.len()];
        for node in self.nodes.iter().filter(|n| n.role == Role::Holds) {
            is_known[node.datacenter as usize] &= node.capacity > 0.0;
        }
        for node in &mut self.nodes {
            if !is_known[node.datacenter as usize] {
                node.capacity = f64::from(node.shards);
            }
        }
    }

    /// The place of a node in `nodes`.
    #[inline]
    pub(super) fn index(&self, number: NodeNumber) -> usize {
        number.index().min(self.nodes.len() - 1)
    }

    #[inline]
    pub(super) fn node(&self, number: NodeNumber) -> &Node {
        &self.nodes[self.index(number)]
    }

    /// The holders with their numbers.
    pub(super) fn holders(&self) -> impl Iterator<Item = (u16, &Node)> {
        let numbered = (0..=u16::MAX).zip(&self.nodes);
        numbered.filter(|(_, n)| n.role == Role::Holds)
    }

    /// The name of a datacenter, or None for the whole cluster.
    pub(super) fn datacenter_name(&self, datacenter: Option<u32>) -> Option<String> {
        datacenter.map(|d| self.datacenters[d as usize].clone())
    }

    /// The shard of a node that holds least.
    pub(super) fn emptiest_shard(&self, index: usize) -> u16 {
        let node = &self.nodes[index];
        let shards = node.first_shard..node.first_shard + usize::from(node.shards);
        let by_fill = |(a, _): &(usize, u16), (b, _): &(usize, u16)| {
            let bytes = self.shard_bytes[*a].total_cmp(&self.shard_bytes[*b]);
            bytes.then_with(|| self.shard_load[*a].total_cmp(&self.shard_load[*b]))
        };
        shards.zip(0..).min_by(by_fill).map_or(0, |(_, shard)| shard)
    }
}

impl Rack {
    fn new(name: &str, datacenter: u32) -> Self {
        Self {
            name: name.to_owned(),
            datacenter,
            holders: Vec::new(),
            able: 0,
        }
    }
}

impl Node {
    /// A lost node that holds nothing, with the limits and the room of `input`.
    fn new(input: Option<&NodeInput>, limits: &Limits, options: &Options) -> Self {
        let (capacity, used) = input.map_or((0, 0), |i| (i.capacity_bytes, i.used_bytes));
        let room = if capacity == 0 {
            f64::INFINITY
        } else {
            capacity as f64 * options.disk_fill_max - used as f64
        };
        Self {
            role: Role::Lost,
            rack: 0,
            datacenter: 0,
            shards: 1,
            first_shard: 0,
            capacity: capacity as f64,
            room,
            bytes: 0.0,
            load: 0.0,
            bytes_share: 0.0,
            load_share: 0.0,
            in_left: limits.per_node_in,
            out_left: limits.per_node_out,
            shard_moves_left: limits.per_node_shard_moves,
        }
    }

    /// The index of one of its shards in the arrays of shards. A shard that the node no longer has counts as the shard
    /// that its tablets are on.
    #[inline]
    pub(super) fn shard_index(&self, shard: u16) -> usize {
        self.first_shard + usize::from(shard % self.shards)
    }
}

/// Racks and datacenters are no more than nodes.
fn place(at: usize) -> u32 {
    u32::try_from(at).expect("no more racks than nodes")
}
