//! The tablets of all tables, and one look at each of them: what nodes hold, and which tablets are not as they should
//! be.

use smallvec::SmallVec;

use super::planner::Planner;
use super::target::{Pool, ReplicationTarget, stays};
use super::{Conversion, Role, TableInput};
use crate::tablet_map::{Boundaries, Replica, Selector, Stage, TabletId};

/// What a tablet weighs besides its bytes, so that empty tablets are distributed too: they are about to grow.
pub(super) const BASE_BYTES: f64 = (1 << 20) as f64;

/// All tablets in one order: table by table.
pub(super) struct Tablets<'a> {
    pub(super) tables: &'a [TableInput<'a>],
    /// The first tablet of each table, and at the end the position after the last tablet.
    first: Vec<u32>,
    /// The table of each tablet.
    table_of: Vec<u32>,
    touched: Vec<bool>,
    /// By table: whether its tablets stay where they are for now.
    pinned: Vec<bool>,
    average_bytes: f64,
}

/// The tablets that are not as they should be, in order of importance.
#[derive(Default)]
pub(super) struct Work {
    /// With a copy on a lost node, and how many live copies it has.
    pub(super) lost: Vec<(u16, u32)>,
    pub(super) replication: Vec<u32>,
    pub(super) drain: Vec<u32>,
    pub(super) spread: Vec<u32>,
    /// Whether a tablet will not be as it should be when its transition has ended.
    pub(super) has_unfinished: bool,
}

impl Work {
    pub(super) fn is_empty(&self) -> bool {
        self.lost.is_empty() && self.replication.is_empty() && self.drain.is_empty() && self.spread.is_empty()
    }
}

impl<'a> Tablets<'a> {
    pub(super) fn new(tables: &'a [TableInput<'a>]) -> Self {
        let mut first = vec![0];
        let mut table_of = Vec::new();
        let (mut known, mut bytes) = (0_u64, 0.0);
        for (table, at) in tables.iter().zip(0..) {
            let count = table.map.tablet_count() as usize;
            table_of.resize(table_of.len() + count, at);
            first.push(u32::try_from(table_of.len()).expect("fewer tablets than a plan can have"));
            for size in table.sizes.iter().take(count) {
                known += 1;
                bytes += *size as f64;
            }
        }
        Self {
            tables,
            first,
            touched: vec![false; table_of.len()],
            pinned: vec![false; tables.len()],
            table_of,
            average_bytes: if known == 0 { 0.0 } else { bytes / known as f64 },
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.first.last().copied().unwrap_or(0)
    }

    /// The tablets of a table.
    pub(super) fn of_table(&self, table: usize) -> std::ops::Range<u32> {
        self.first[table]..self.first[table + 1]
    }

    #[inline]
    pub(super) fn table(&self, tablet: u32) -> usize {
        self.table_of[tablet as usize] as usize
    }

    /// The table of a tablet and its id there.
    #[inline]
    pub(super) fn id(&self, tablet: u32) -> (usize, TabletId) {
        let table = self.table(tablet);
        (table, TabletId(tablet - self.first[table]))
    }

    /// What a copy weighs.
    #[inline]
    pub(super) fn bytes(&self, tablet: u32) -> f64 {
        let (table, id) = self.id(tablet);
        let known = self.tables[table].sizes.get(id.0 as usize);
        BASE_BYTES + known.map_or(self.average_bytes, |bytes| *bytes as f64)
    }

    /// What a copy is asked.
    #[inline]
    pub(super) fn load(&self, tablet: u32) -> f64 {
        let (table, id) = self.id(tablet);
        let load = self.tables[table].load.get(id.0 as usize).copied().unwrap_or(0.0);
        // A rate that is no number, or negative, says nothing.
        if load.is_finite() {
            f64::from(load.max(0.0))
        } else {
            0.0
        }
    }

    /// Where a tablet's copies are, or will be when its transition has ended.
    #[inline]
    pub(super) fn replicas(&self, tablet: u32) -> &'a [Replica] {
        let (table, id) = self.id(tablet);
        let tablet = self.tables[table].map.tablet(id);
        tablet.map_or(&[], |tablet| tablet.arrives_at())
    }

    /// Whether a tablet has a step already, or is in transition.
    #[inline]
    pub(super) fn is_touched(&self, tablet: u32) -> bool {
        self.touched[tablet as usize]
    }

    pub(super) fn touch(&mut self, tablet: u32) {
        self.touched[tablet as usize] = true;
    }

    /// Takes the tablets of a table out of the levelling.
    pub(super) fn pin(&mut self, table: usize) {
        self.pinned[table] = true;
    }

    /// Whether levelling may move a tablet.
    #[inline]
    pub(super) fn is_free(&self, tablet: u32) -> bool {
        !self.is_touched(tablet) && !self.pinned[self.table(tablet)]
    }

    /// Whether the copies of a table's tablets are chosen without regard to what its replication says: the token ring
    /// says it.
    pub(super) fn has_own_goal(&self, table: usize) -> bool {
        matches!(
            self.tables[table].conversion,
            Some(Conversion::ToRing(_) | Conversion::Rest)
        )
    }

    /// Whether a table's tablets are pieces that come together: racks are chosen for all of a group.
    pub(super) fn aligns(&self, table: usize) -> bool {
        matches!(self.tables[table].conversion, Some(Conversion::Align))
    }

    pub(super) fn is_resizable(&self, table: usize) -> bool {
        matches!(self.tables[table].map.boundaries(), Boundaries::PowerOfTwo(_))
    }
}

/// The copies of a rack that stay, of one tablet.
pub(super) type RackCounts = SmallVec<[(u32, u16); 8]>;

impl Planner<'_> {
    pub(super) fn survey(&mut self) -> Work {
        let mut work = Work::default();
        for tablet in 0..self.tablets.count() {
            let (table, id) = self.tablets.id(tablet);
            let moving = self.tablets.tables[table].map.tablet(id).and_then(|t| t.transition);
            if let Some(transition) = moving {
                self.count_transition(tablet, transition.stage);
            }
            self.count_tablet(tablet);
            if self.tablets.has_own_goal(table) {
                continue;
            }
            if moving.is_none() {
                self.sort_into(tablet, &mut work);
            } else if !work.has_unfinished {
                let mut later = Work::default();
                self.sort_into(tablet, &mut later);
                work.has_unfinished = !later.is_empty();
            }
        }
        // The fewest live copies first.
        work.lost.sort_unstable();
        for (at, target) in self.target_of.iter().enumerate() {
            for reason in &self.targets[*target].lacks {
                self.unmet
                    .add(at, reason.clone(), self.tablets.of_table(at).len() as u32);
            }
        }
        work
    }

    /// A tablet in transition takes up limits.
    fn count_transition(&mut self, tablet: u32, stage: Stage) {
        self.tablets.touch(tablet);
        let cluster = &mut self.cluster;
        cluster.total_left = cluster.total_left.saturating_sub(1);
        if stage.writes() == Selector::New {
            // The data is there.
            return;
        }
        let (table, id) = self.tablets.id(tablet);
        let Some(view) = self.tablets.tables[table].map.tablet(id) else {
            return;
        };
        let next = view.transition.map_or(view.replicas, |t| &t.next);
        let has = |set: &[Replica], r: &Replica| set.iter().any(|other| other.node == r.node);
        for gained in next.iter().filter(|r| !has(view.replicas, r)) {
            let index = cluster.index(gained.node);
            let node = &mut cluster.nodes[index];
            node.in_left = node.in_left.saturating_sub(1);
            node.room -= self.tablets.bytes(tablet) - BASE_BYTES;
        }
        for left in view.replicas.iter().filter(|r| !has(next, r)) {
            let index = cluster.index(left.node);
            let node = &mut cluster.nodes[index];
            node.out_left = node.out_left.saturating_sub(1);
        }
    }

    fn count_tablet(&mut self, tablet: u32) {
        let (bytes, load) = (self.tablets.bytes(tablet), self.tablets.load(tablet));
        let replicas = self.tablets.replicas(tablet);
        let target = &mut self.targets[self.target_of[self.tablets.table(tablet)]];
        target.bytes += bytes;
        target.load += load;
        for replica in replicas {
            let index = self.cluster.index(replica.node);
            let node = &mut self.cluster.nodes[index];
            node.bytes += bytes;
            node.load += load;
            let shard = node.shard_index(replica.shard);
            if matches!(node.role, Role::Idle | Role::Down) {
                let kept = target.kept.entry(index).or_default();
                kept.bytes += bytes;
                kept.load += load;
            }
            self.cluster.shard_bytes[shard] += bytes;
            self.cluster.shard_load[shard] += load;
        }
    }

    /// Finds what a tablet lacks most.
    pub(super) fn sort_into(&self, tablet: u32, work: &mut Work) {
        let Some(target) = self.target(tablet) else { return };
        let replicas = self.tablets.replicas(tablet);
        let (mut lost, mut drains, mut idle) = (false, false, false);
        for replica in replicas {
            match self.cluster.node(replica.node).role {
                Role::Lost => lost = true,
                Role::Drains => drains = true,
                Role::Idle => idle = true,
                Role::Holds | Role::Down => {}
            }
        }
        if lost {
            let is_live = |r: &&Replica| !matches!(self.cluster.node(r.node).role, Role::Lost | Role::Down);
            let live = replicas.iter().filter(is_live).count();
            work.lost.push((u16::try_from(live).unwrap_or(u16::MAX), tablet));
            return;
        }
        let has_number = |pool: &Pool| self.copies_in(target, pool, replicas) == pool.factor;
        if !target.pools.iter().all(has_number) {
            work.replication.push(tablet);
        } else if drains {
            work.drain.push(tablet);
        } else if !self.is_spread(target, replicas, idle) && !self.tablets.aligns(self.tablets.table(tablet)) {
            work.spread.push(tablet);
        }
    }

    /// The copies of a tablet in a pool, whether they stay or not.
    pub(super) fn copies_in(&self, target: &ReplicationTarget<'_>, pool: &Pool, replicas: &[Replica]) -> u16 {
        if pool.datacenter.is_none() {
            return replicas.len() as u16;
        }
        let is_here = |r: &&Replica| {
            let rack = self.cluster.node(r.node).rack as usize;
            target.pools[target.pool_of_rack[rack] as usize].datacenter == pool.datacenter
        };
        replicas.iter().filter(is_here).count() as u16
    }

    /// The copies that stay, by rack.
    pub(super) fn rack_counts(&self, replicas: &[Replica]) -> RackCounts {
        let mut counts = RackCounts::new();
        for replica in replicas {
            let node = self.cluster.node(replica.node);
            if !stays(node.role) {
                continue;
            }
            match counts.iter_mut().find(|(rack, _)| *rack == node.rack) {
                Some((_, count)) => *count += 1,
                None => counts.push((node.rack, 1)),
            }
        }
        counts
    }

    /// Whether racks have neither fewer nor more copies of a tablet than they should.
    pub(super) fn is_well_spread(&self, tablet: u32) -> bool {
        let replicas = self.tablets.replicas(tablet);
        let has_idle = !self.idle_racks(replicas).is_empty();
        self.target(tablet)
            .is_none_or(|target| self.is_spread(target, replicas, has_idle))
    }

    /// Whether racks have neither fewer nor more copies than they should.
    fn is_spread(&self, target: &ReplicationTarget<'_>, replicas: &[Replica], has_idle: bool) -> bool {
        let counts = self.rack_counts(replicas);
        if has_idle {
            let idle = self.idle_racks(replicas);
            return target.pools.iter().all(|pool| {
                let bounds = target.bounds_with(&self.cluster, pool, &idle);
                let here = counts.iter().filter(|(rack, _)| pool.racks.contains(rack));
                let mut low = 0;
                let mut fits = true;
                for (rack, count) in here {
                    let (l, h) = bounds.of(*rack);
                    low += l.min(*count);
                    fits &= *count <= h;
                }
                fits && low >= bounds.low_total
            });
        }
        let fits = |(rack, count): &(u32, u16)| *count <= target.high[*rack as usize];
        let low = |(rack, count): &(u32, u16)| u32::from(*count.min(&target.low[*rack as usize]));
        let lows: u32 = target.pools.iter().map(|p| u32::from(p.low_total)).sum();
        counts.iter().all(fits) && counts.iter().map(low).sum::<u32>() >= lows
    }

    /// Whether a copy of a tablet may go from one rack to another without leaving the bounds of either.
    pub(super) fn may_change_rack(&self, tablet: u32, from: u32, to: u32) -> bool {
        if from == to {
            return true;
        }
        let Some(target) = self.target(tablet) else {
            return false;
        };
        if target.pool_of_rack[from as usize] != target.pool_of_rack[to as usize] {
            return false;
        }
        let replicas = self.tablets.replicas(tablet);
        let counts = self.rack_counts(replicas);
        let count = |rack: u32| counts.iter().find(|(r, _)| *r == rack).map_or(0, |(_, count)| *count);
        let idle = self.idle_racks(replicas);
        let (low, high) = if idle.is_empty() {
            (target.low[from as usize], target.high[to as usize])
        } else {
            // The bounds by which copies are spread, or the two would undo each other.
            let pool = &target.pools[target.pool_of_rack[from as usize] as usize];
            let bounds = target.bounds_with(&self.cluster, pool, &idle);
            (bounds.of(from).0, bounds.of(to).1)
        };
        count(from) > low && count(to) < high
    }

    pub(super) fn idle_racks(&self, replicas: &[Replica]) -> SmallVec<[u32; 8]> {
        let nodes = replicas.iter().map(|r| self.cluster.node(r.node));
        nodes.filter(|n| n.role == Role::Idle).map(|n| n.rack).collect()
    }
}
