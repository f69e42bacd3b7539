//! Levels the shards of each node: by bytes, then by load. Nothing is copied.

use super::level::{Bin, Item, Rules, is_uneven, level};
use super::nodes::NEAR;
use super::planner::{Metric, Planner};
use crate::tablet_map::Replica;

impl Planner<'_> {
    pub(super) fn level_shards(&mut self) {
        for metric in [Metric::Bytes, Metric::Load] {
            let uneven: Vec<usize> = self
                .cluster
                .holders()
                .map(|(number, _)| usize::from(number))
                .filter(|node| is_uneven(&self.shard_bins(*node, metric), self.options.tolerance))
                .collect();
            if uneven.is_empty() || self.cluster.total_left == 0 {
                continue;
            }
            let items = self.items_of_shards(&uneven, metric);
            for (node, items) in uneven.into_iter().zip(items) {
                let bins = self.shard_bins(node, metric);
                let near = self.near(metric);
                let mut rules = ShardRules {
                    planner: self,
                    node,
                    metric,
                };
                level(bins, items, &mut rules, near);
            }
        }
    }

    /// The shards of a node; none where there is nothing to level.
    fn shard_bins(&self, index: usize, metric: Metric) -> Vec<Bin> {
        let node = &self.cluster.nodes[index];
        let (total, held) = match metric {
            Metric::Bytes => (node.bytes, &self.cluster.shard_bytes),
            Metric::Load => (node.load, &self.cluster.shard_load),
        };
        let share = total / f64::from(node.shards);
        if node.shards < 2 || share <= 0.0 || (metric == Metric::Load && share < self.options.load_min) {
            return Vec::new();
        }
        let bin = |shard: u16| Bin {
            place: usize::from(shard),
            group: 0,
            held: held[node.first_shard + usize::from(shard)],
            share,
        };
        (0..node.shards).map(bin).collect()
    }

    /// The copies on these nodes, by node and shard.
    fn items_of_shards(&self, nodes: &[usize], metric: Metric) -> Vec<Vec<Vec<Item>>> {
        let mut place_of = vec![None; self.cluster.nodes.len()];
        let mut items = Vec::with_capacity(nodes.len());
        for (at, node) in nodes.iter().enumerate() {
            place_of[*node] = Some(at);
            items.push(vec![Vec::new(); usize::from(self.cluster.nodes[*node].shards)]);
        }
        for tablet in 0..self.tablets.count() {
            if !self.tablets.is_free(tablet) || self.target(tablet).is_none() {
                continue;
            }
            let weight = match metric {
                Metric::Bytes => self.tablets.bytes(tablet),
                Metric::Load => self.tablets.load(tablet),
            };
            for replica in self.tablets.replicas(tablet) {
                let index = self.cluster.index(replica.node);
                if let Some(at) = place_of[index] {
                    let shard = replica.shard % self.cluster.nodes[index].shards;
                    items[at][usize::from(shard)].push(Item { tablet, weight });
                }
            }
        }
        items
    }
}

struct ShardRules<'p, 'a> {
    planner: &'p mut Planner<'a>,
    node: usize,
    metric: Metric,
}

impl ShardRules<'_, '_> {
    fn keeps_bytes(&self, shard: usize, growth: f64) -> bool {
        let node = &self.planner.cluster.nodes[self.node];
        let share = node.bytes / f64::from(node.shards);
        let now = self.planner.cluster.shard_bytes[node.first_shard + shard] - share;
        let then = now + growth;
        then.abs() <= self.planner.options.tolerance * NEAR * share || then.abs() < now.abs()
    }
}

impl Rules for ShardRules<'_, '_> {
    fn may_give(&self, _: usize) -> bool {
        self.planner.cluster.total_left > 0 && self.planner.cluster.nodes[self.node].shard_moves_left > 0
    }

    fn may_receive(&self, _: usize) -> bool {
        self.may_give(0)
    }

    fn may_enter(&self, _: u32, _: usize, _: u32) -> bool {
        true
    }

    fn may_move(&self, tablet: u32, from: usize, to: usize, back: Option<u32>) -> bool {
        if self.planner.tablets.is_touched(tablet) {
            return false;
        }
        if self.metric == Metric::Bytes {
            return true;
        }
        let tablets = &self.planner.tablets;
        let growth = tablets.bytes(tablet) - back.map_or(0.0, |other| tablets.bytes(other));
        self.keeps_bytes(to, growth) && self.keeps_bytes(from, -growth)
    }

    fn moves(&mut self, tablet: u32, _: usize, to: usize) {
        let replicas: &[Replica] = self.planner.tablets.replicas(tablet);
        let here = replicas
            .iter()
            .find(|r| self.planner.cluster.index(r.node) == self.node);
        if let (Some(from), Ok(to)) = (here, u16::try_from(to)) {
            self.planner.push_shard(tablet, *from, to);
        }
    }

    fn may_exchange(&self) -> bool {
        let planner = &self.planner;
        let left = planner
            .cluster
            .total_left
            .min(planner.cluster.nodes[self.node].shard_moves_left);
        self.metric == Metric::Load && left >= 2
    }
}
