//! Splits tables whose tablets are large or hot, or fewer than the table's options ask for, and merges those whose
//! tablets are small, or more.
//!
//! A table that is to be split or merged takes part in no levelling, so that its transitions end. A merge needs each
//! pair of tablets on the same nodes and shards: the second tablet of a pair follows the first, one copy per plan, and
//! when all pairs are together the tables is merged.

use super::planner::Planner;
use super::survey::BASE_BYTES;
use super::{Role, Step};
use crate::tablet_map::{Replica, TABLETS_MAX};

/// A table has at least so many copies of tablets per shard after a merge: with fewer, shards are uneven.
const MERGED_PER_SHARD_MIN: f64 = 10.0;

/// A table that shall have another count of tablets.
#[derive(Clone, Copy)]
pub(super) enum Resize {
    Split(usize),
    Merge(usize),
}

impl Planner<'_> {
    /// Chooses the tables to resize, and takes them out of the levelling.
    pub(super) fn choose_resizes(&mut self) -> Vec<Resize> {
        let (load, shards) = self.cluster.holders().fold((0.0, 0.0), |(load, shards), (_, node)| {
            (load + node.load, shards + f64::from(node.shards))
        });
        let fair_load = if shards > 0.0 { load / shards } else { 0.0 };
        let tables = 0..self.tablets.tables.len();
        let resizes: Vec<Resize> = tables.filter_map(|t| self.resize_of(t, shards, fair_load)).collect();
        for resize in &resizes {
            let (Resize::Split(table) | Resize::Merge(table)) = resize;
            self.tablets.pin(*table);
        }
        resizes
    }

    /// `shards` are those of all holders, `fair_load` is the load of each when all are even.
    fn resize_of(&self, table: usize, shards: f64, fair_load: f64) -> Option<Resize> {
        let input = &self.tablets.tables[table];
        let tablets = self.tablets.of_table(table);
        let count = tablets.len() as u32;
        if !input.may_resize || !self.tablets.is_resizable(table) || tablets.is_empty() || shards == 0.0 {
            return None;
        }
        // What the table's options ask for comes before what its tablets are like.
        if count > input.tablet_count_max {
            return (count > 1).then_some(Resize::Merge(table));
        }
        let may_split = count <= TABLETS_MAX / 2 && count.saturating_mul(2) <= input.tablet_count_max;
        if count < input.tablet_count_wanted && may_split {
            return Some(Resize::Split(table));
        }
        let copies: usize = tablets.clone().map(|t| self.tablets.replicas(t).len()).sum();
        let per_shard = copies as f64 / shards;
        // A tablet hotter than the fair load of a shard makes that shard hot wherever it is. Where each shard has one
        // tablet, none is hot.
        let hot = (fair_load * (1.0 + self.options.tolerance)).max(self.options.load_min);
        let hottest = tablets.map(|t| self.tablets.load(t)).fold(0.0, f64::max);
        let goal = self.options.tablet_bytes_goal as f64;
        let knows_bytes = goal > 0.0 && input.sizes.len() >= count as usize;
        let average = input.sizes.iter().map(|s| *s as f64).sum::<f64>() / f64::from(count);
        let is_large = knows_bytes && average > 2.0 * goal;
        let is_hot = hottest > hot && per_shard * 2.0 <= f64::from(self.options.split_per_shard_max);
        if is_large || is_hot {
            return may_split.then_some(Resize::Split(table));
        }
        let is_small = knows_bytes && average < goal / 2.0;
        let may_merge = count > 1 && count / 2 >= input.tablet_count_min && per_shard / 2.0 >= MERGED_PER_SHARD_MIN;
        // The merged tablets must be far from hot.
        (is_small && may_merge && 4.0 * hottest <= hot).then_some(Resize::Merge(table))
    }

    /// The table, and how many tablets it should have.
    pub(super) fn wanted(&self, resize: Resize) -> (usize, u32) {
        let count = |table| self.tablets.of_table(table).len() as u32;
        match resize {
            Resize::Split(table) => (table, count(table) * 2),
            Resize::Merge(table) => (table, count(table) / 2),
        }
    }

    pub(super) fn resize(&mut self, resizes: &[Resize]) {
        for resize in resizes {
            if self.cluster.total_left == 0 {
                return;
            }
            match *resize {
                Resize::Split(table) => {
                    let count = self.tablets.of_table(table).len() as u32;
                    self.push_resize(table, count * 2);
                }
                Resize::Merge(table) => {
                    if self.bring_pairs_together(table) {
                        let count = self.tablets.of_table(table).len() as u32;
                        self.push_resize(table, count / 2);
                    }
                }
            }
        }
    }

    /// Resizes a table none of whose tablets is in transition or has a step.
    fn push_resize(&mut self, table: usize, tablet_count: u32) {
        if !self.tablets.of_table(table).any(|t| self.tablets.is_touched(t)) {
            self.steps.push(Step::Resize { table, tablet_count });
            self.cluster.total_left -= 1;
        }
    }

    /// Moves the second tablet of each pair to where the first is. True when all are there.
    fn bring_pairs_together(&mut self, table: usize) -> bool {
        let mut are_together = true;
        for first in self.tablets.of_table(table).step_by(2) {
            let second = first + 1;
            let (there, here) = (self.tablets.replicas(first), self.tablets.replicas(second));
            let is_same = there.len() == here.len() && there.iter().all(|r| here.contains(r));
            if is_same {
                continue;
            }
            are_together = false;
            if self.cluster.total_left == 0 || self.tablets.is_touched(first) || self.tablets.is_touched(second) {
                continue;
            }
            if !self.follow_node(second, there, here) {
                self.follow_shard(second, there, here);
            }
        }
        are_together
    }

    /// Moves one copy of a tablet from a node where its partner is not to a node of the same rack where its partner is
    /// alone.
    fn follow_node(&mut self, tablet: u32, there: &[Replica], here: &[Replica]) -> bool {
        let has = |set: &[Replica], r: &Replica| set.iter().any(|other| other.node == r.node);
        for to in there.iter().filter(|r| !has(here, r)) {
            let target = self.cluster.index(to.node);
            let node = &self.cluster.nodes[target];
            let bytes = self.tablets.bytes(tablet) - BASE_BYTES;
            if node.role != Role::Holds || node.in_left == 0 || node.room < bytes {
                continue;
            }
            let rack = node.rack;
            let mut leaving = here.iter().filter(|r| !has(there, r));
            let from = leaving.find(|r| {
                let node = self.cluster.node(r.node);
                node.role == Role::Holds && node.out_left > 0 && self.may_change_rack(tablet, node.rack, rack)
            });
            if let Some(from) = from {
                self.push_move(tablet, *from, target);
                return true;
            }
        }
        false
    }

    fn follow_shard(&mut self, tablet: u32, there: &[Replica], here: &[Replica]) {
        for from in here {
            let index = self.cluster.index(from.node);
            let node = &self.cluster.nodes[index];
            let to = there.iter().find(|r| r.node == from.node && r.shard != from.shard);
            if let Some(to) = to
                && node.role == Role::Holds
                && node.shard_moves_left > 0
            {
                self.push_shard(tablet, *from, to.shard);
                return;
            }
        }
    }
}
