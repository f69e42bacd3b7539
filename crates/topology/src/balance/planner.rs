//! What a plan is made with.

use std::collections::BTreeSet;

use stdx::random::scramble;

use super::cluster::Cluster;
use super::survey::{BASE_BYTES, Tablets};
use super::target::ReplicationTarget;
use super::unmet::UnmetCounts;
use super::{Deviation, Limits, NodeInput, Options, Relocation, Step, TableInput};
use crate::node::Topology;
use crate::replication::Replication;
use crate::tablet_map::Replica;

pub(super) struct Planner<'a> {
    pub(super) options: Options,
    pub(super) tablets: Tablets<'a>,
    pub(super) cluster: Cluster,
    pub(super) targets: Vec<ReplicationTarget<'a>>,
    /// The target of each table.
    pub(super) target_of: Vec<usize>,
    pub(super) steps: Vec<Step>,
    pub(super) relocations: Vec<Relocation>,
    pub(super) unmet: UnmetCounts,
    pub(super) deferred: u64,
    pub(super) copied_bytes: u64,
    /// By rack the holders that may receive, the emptiest first. Empty until the first step needs it.
    pub(super) receivers: Vec<BTreeSet<Receiver>>,
}

/// Fill as ordered bits, a hash that breaks ties, the node.
pub(super) type Receiver = (u64, u64, u16);

/// Bytes or operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Metric {
    Bytes,
    Load,
}

impl<'a> Planner<'a> {
    pub(super) fn new(
        topology: &Topology,
        nodes: &[NodeInput],
        tables: &'a [TableInput<'a>],
        limits: &Limits,
        options: &Options,
    ) -> Self {
        let cluster = Cluster::new(topology, nodes, limits, options);
        let mut targets: Vec<ReplicationTarget<'a>> = Vec::new();
        let mut target_of = Vec::with_capacity(tables.len());
        for table in tables {
            let known = targets.iter().position(|g| g.replication == table.replication);
            target_of.push(known.unwrap_or_else(|| {
                targets.push(ReplicationTarget::new(table.replication, &cluster));
                targets.len() - 1
            }));
        }
        Self {
            options: *options,
            tablets: Tablets::new(tables),
            cluster,
            targets,
            target_of,
            steps: Vec::new(),
            relocations: Vec::new(),
            unmet: UnmetCounts::default(),
            deferred: 0,
            copied_bytes: 0,
            receivers: Vec::new(),
        }
    }

    /// The target of a tablet's table; None for tables that have no copies elsewhere.
    pub(super) fn target(&self, tablet: u32) -> Option<&ReplicationTarget<'a>> {
        let target = &self.targets[self.target_of[self.tablets.table(tablet)]];
        (*target.replication != Replication::Local).then_some(target)
    }

    /// Computes each holder's fair share of the bytes and the load that all copies have when every table has its
    /// replication.
    pub(super) fn set_shares(&mut self) {
        for target in &self.targets {
            target.add_shares(&mut self.cluster);
        }
        self.scale_shares();
    }

    /// Makes the shares of a datacenter's holders add up to what they hold, as planned so far.
    pub(super) fn scale_shares(&mut self) {
        let mut sums = vec![[0.0; 4]; self.cluster.datacenters.len()];
        for (_, node) in self.cluster.holders() {
            let add = [node.bytes, node.bytes_share, node.load, node.load_share];
            let sum = &mut sums[node.datacenter as usize];
            sum.iter_mut().zip(add).for_each(|(s, a)| *s += a);
        }
        let factor = |held: f64, share: f64| if share > 0.0 { held / share } else { 1.0 };
        for node in &mut self.cluster.nodes {
            let [bytes, bytes_share, load, load_share] = sums[node.datacenter as usize];
            node.bytes_share *= if bytes > 0.0 { factor(bytes, bytes_share) } else { 1.0 };
            node.load_share *= if load > 0.0 { factor(load, load_share) } else { 1.0 };
        }
    }

    /// The largest deviations of bytes and of load.
    pub(super) fn deviations(&self) -> (Deviation, Deviation) {
        (self.deviation(Metric::Bytes), self.deviation(Metric::Load))
    }

    fn deviation(&self, metric: Metric) -> Deviation {
        let mut deviation = Deviation::default();
        let relative = |held: f64, share: f64| if share > 0.0 { (held / share - 1.0).abs() } else { 0.0 };
        let mut racks = vec![(0.0, 0.0); self.cluster.racks.len()];
        for (_, node) in self.cluster.holders() {
            let (held, share, shards) = match metric {
                Metric::Bytes => (node.bytes, node.bytes_share, &self.cluster.shard_bytes),
                Metric::Load => (node.load, node.load_share, &self.cluster.shard_load),
            };
            let rack = &mut racks[node.rack as usize];
            rack.0 += held;
            rack.1 += share;
            deviation.node = deviation.node.max(relative(held, share));
            let average = held / f64::from(node.shards);
            for shard in &shards[node.first_shard..node.first_shard + usize::from(node.shards)] {
                deviation.shard = deviation.shard.max(relative(*shard, average));
            }
        }
        for (held, share) in racks {
            deviation.rack = deviation.rack.max(relative(held, share));
        }
        deviation
    }

    /// Counts a copy of a tablet that a node receives, and returns it: on the emptiest shard.
    pub(super) fn arrive(&mut self, tablet: u32, index: usize) -> Replica {
        let shard = self.cluster.emptiest_shard(index);
        let to = Replica {
            node: crate::NodeNumber(u16::try_from(index).expect("a holder has a number")),
            shard,
        };
        self.count(tablet, to, 1.0);
        let bytes = self.tablets.bytes(tablet);
        let node = &mut self.cluster.nodes[index];
        node.room -= bytes - BASE_BYTES;
        node.in_left = node.in_left.saturating_sub(1);
        self.copied_bytes = self.copied_bytes.saturating_add((bytes - BASE_BYTES) as u64);
        to
    }

    /// Counts a copy of a tablet on a node and its shard; -1 takes it away.
    pub(super) fn count(&mut self, tablet: u32, replica: Replica, sign: f64) {
        let (bytes, load) = (self.tablets.bytes(tablet), self.tablets.load(tablet));
        let index = self.cluster.index(replica.node);
        let node = &mut self.cluster.nodes[index];
        node.bytes += sign * bytes;
        node.load += sign * load;
        let shard = node.shard_index(replica.shard);
        self.cluster.shard_bytes[shard] += sign * bytes;
        self.cluster.shard_load[shard] += sign * load;
    }

    /// Takes a tablet's step into the plan.
    pub(super) fn push(&mut self, tablet: u32, step: Step) {
        self.steps.push(step);
        self.tablets.touch(tablet);
        self.cluster.total_left = self.cluster.total_left.saturating_sub(1);
    }

    /// Plans the move of a copy to another node.
    pub(super) fn push_move(&mut self, tablet: u32, from: Replica, to: usize) {
        let source = self.cluster.index(from.node);
        self.count(tablet, from, -1.0);
        let node = &mut self.cluster.nodes[source];
        node.out_left = node.out_left.saturating_sub(1);
        let to = self.arrive(tablet, to);
        let (table, id) = self.tablets.id(tablet);
        self.push(
            tablet,
            Step::Move {
                table,
                tablet: id,
                from,
                to,
            },
        );
    }

    /// Plans the move of a copy to another shard of its node.
    pub(super) fn push_shard(&mut self, tablet: u32, from: Replica, to: u16) {
        self.count(tablet, from, -1.0);
        self.count(tablet, Replica { shard: to, ..from }, 1.0);
        let index = self.cluster.index(from.node);
        let node = &mut self.cluster.nodes[index];
        node.shard_moves_left = node.shard_moves_left.saturating_sub(1);
        let (table, id) = self.tablets.id(tablet);
        let step = Step::Shard {
            table,
            tablet: id,
            node: from.node,
            from: from.shard,
            to,
        };
        self.push(tablet, step);
    }
}

/// Breaks ties.
pub(super) fn mix(a: u64, b: u64) -> u64 {
    scramble(a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.wrapping_add(0xd1b5_4a32_d192_ed03))
}

/// A number whose order is that of the float.
pub(super) fn ordered(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}
