//! Levels the nodes of each datacenter: by bytes, then by load.

use super::Role;
use super::level::{Bin, Item, Rules, is_uneven, level};
use super::planner::{Metric, Planner};
use super::survey::BASE_BYTES;
use crate::tablet_map::Replica;

/// Levelling by bytes begins when a bin is further from its share than the tolerance, and ends when all are within this
/// part of it.
pub(super) const NEAR: f64 = 0.4;

impl Planner<'_> {
    pub(super) fn level_nodes(&mut self) {
        for datacenter in 0..self.cluster.datacenters.len() as u32 {
            for metric in [Metric::Bytes, Metric::Load] {
                self.level_datacenter(datacenter, metric);
            }
        }
    }

    fn level_datacenter(&mut self, datacenter: u32, metric: Metric) {
        let here = self.cluster.holders().filter(|(_, n)| n.datacenter == datacenter);
        let bins = here.map(|(number, node)| {
            let (held, share) = match metric {
                Metric::Bytes => (node.bytes, node.bytes_share),
                Metric::Load => (node.load, node.load_share),
            };
            Bin {
                place: usize::from(number),
                group: node.rack,
                held,
                share,
            }
        });
        let bins: Vec<Bin> = bins.filter(|bin| bin.share > 0.0).collect();
        if metric == Metric::Load && !self.is_loaded(&bins) {
            return;
        }
        if bins.len() < 2 || !is_uneven(&bins, self.options.tolerance) || self.cluster.total_left == 0 {
            return;
        }
        let needs_all = metric == Metric::Load;
        let items = self.items(&bins, metric, |bin| needs_all || bin.relative() >= 0.0);
        let near = self.near(metric);
        let mut rules = NodeRules { planner: self, metric };
        level(bins, items, &mut rules, near);
    }

    /// How near to their shares bins are levelled. Load changes all the time, so it is levelled no further than it must
    /// be.
    pub(super) fn near(&self, metric: Metric) -> f64 {
        match metric {
            Metric::Bytes => self.options.tolerance * NEAR,
            Metric::Load => self.options.tolerance,
        }
    }

    /// Whether the load of these nodes is worth any move.
    fn is_loaded(&self, bins: &[Bin]) -> bool {
        let load: f64 = bins.iter().map(|b| b.held).sum();
        let shards: f64 = bins.iter().map(|b| f64::from(self.cluster.nodes[b.place].shards)).sum();
        load >= self.options.load_min * shards
    }

    /// The copies on the selected nodes, by bin.
    fn items(&self, bins: &[Bin], metric: Metric, is_wanted: impl Fn(&Bin) -> bool) -> Vec<Vec<Item>> {
        let mut bin_of = vec![None; self.cluster.nodes.len()];
        for (at, bin) in bins.iter().enumerate().filter(|(_, bin)| is_wanted(bin)) {
            bin_of[bin.place] = Some(at);
        }
        let mut items = vec![Vec::new(); bins.len()];
        for tablet in 0..self.tablets.count() {
            if !self.tablets.is_free(tablet) || self.target(tablet).is_none() {
                continue;
            }
            let weight = match metric {
                Metric::Bytes => self.tablets.bytes(tablet),
                Metric::Load => self.tablets.load(tablet),
            };
            for replica in self.tablets.replicas(tablet) {
                if let Some(at) = bin_of[self.cluster.index(replica.node)] {
                    items[at].push(Item { tablet, weight });
                }
            }
        }
        items
    }
}

struct NodeRules<'p, 'a> {
    planner: &'p mut Planner<'a>,
    metric: Metric,
}

impl NodeRules<'_, '_> {
    fn replica_on(&self, tablet: u32, node: usize) -> Option<Replica> {
        let replicas = self.planner.tablets.replicas(tablet);
        replicas.iter().find(|r| r.node.index() == node).copied()
    }

    /// Whether the node's bytes are near its share when they have grown by so many, so that no step by bytes follows.
    fn keeps_bytes(&self, node: usize, growth: f64) -> bool {
        let node = &self.planner.cluster.nodes[node];
        let now = node.bytes - node.bytes_share;
        let then = now + growth;
        // What is far from its share may come nearer.
        then.abs() <= self.planner.options.tolerance * NEAR * node.bytes_share || then.abs() < now.abs()
    }
}

impl Rules for NodeRules<'_, '_> {
    fn may_give(&self, from: usize) -> bool {
        self.planner.cluster.total_left > 0 && self.planner.cluster.nodes[from].out_left > 0
    }

    fn may_receive(&self, to: usize) -> bool {
        let node = &self.planner.cluster.nodes[to];
        self.planner.cluster.total_left > 0 && node.in_left > 0 && node.role == Role::Holds
    }

    fn may_enter(&self, tablet: u32, from: usize, group: u32) -> bool {
        let left = self.planner.cluster.nodes[from].rack;
        self.planner.may_change_rack(tablet, left, group)
    }

    fn may_move(&self, tablet: u32, from: usize, to: usize, back: Option<u32>) -> bool {
        let planner = &*self.planner;
        let node = &planner.cluster.nodes[to];
        if planner.tablets.is_touched(tablet) || self.replica_on(tablet, to).is_some() {
            return false;
        }
        let bytes = planner.tablets.bytes(tablet);
        if node.room < bytes - BASE_BYTES || !self.may_enter(tablet, from, node.rack) {
            return false;
        }
        if self.metric == Metric::Bytes {
            return true;
        }
        let growth = bytes - back.map_or(0.0, |other| planner.tablets.bytes(other));
        self.keeps_bytes(to, growth) && self.keeps_bytes(from, -growth)
    }

    fn moves(&mut self, tablet: u32, from: usize, to: usize) {
        if let Some(replica) = self.replica_on(tablet, from) {
            self.planner.push_move(tablet, replica, to);
        }
    }

    fn may_exchange(&self) -> bool {
        self.metric == Metric::Load && self.planner.cluster.total_left >= 2
    }
}
