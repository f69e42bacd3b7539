//! Tables that go from the token ring to tablets of equal size, or back ([`Conversion`]): which piece moves to which
//! replicas.
//!
//! A piece moves to all of its next replicas at once. Replicas that stay keep their shards until the nodes are right;
//! then shards follow.
//!
//! **Why it ends.** On the way to the ring the goal of a piece depends on the ring alone, and each move brings a piece
//! to its goal. On the way to tablets the goal of a group is the one of its pieces' replica sets with the lowest
//! *cost*: the bytes that move to other nodes, then those that move to other shards. Sets with as many copies in each
//! rack as there should be come first; where no piece has one, the tablet is spread when it is one. Each move lowers
//! the cost of the goal, so the lowest cost falls with each move, and a group has finitely many sets of replicas.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::planner::Planner;
use super::survey::{BASE_BYTES, Work};
use super::unmet::UnmetReason;
use super::{Conversion, Relocation, Role};
use crate::node::NodeNumber;
use crate::tablet_map::{Boundaries, Replica, ReplicaList, Stage, TabletMap};

/// What becomes of a move.
enum Attempt {
    Begun,
    /// For limits of moves at a time.
    Waits,
    Blocked(UnmetReason),
    /// A node is to come first: one that joins gets its replicas when it has joined.
    NotYet,
}

impl Planner<'_> {
    /// Takes tables in conversion out of the levelling.
    pub(super) fn pin_conversions(&mut self) {
        for table in 0..self.tablets.tables.len() {
            if self.tablets.tables[table].conversion.is_some() {
                self.tablets.pin(table);
            }
        }
    }

    /// The next moves of tables in conversion.
    pub(super) fn convert(&mut self) {
        for table in 0..self.tablets.tables.len() {
            match self.tablets.tables[table].conversion {
                None | Some(Conversion::Rest) => {}
                Some(Conversion::Align) => self.align(table),
                Some(Conversion::ToRing(ring)) => self.bring_to_ring(table, ring),
            }
        }
    }

    fn bring_to_ring(&mut self, table: usize, ring: &TabletMap) {
        let map = self.tablets.tables[table].map;
        for (piece, last) in self.tablets.of_table(table).zip(map.boundaries().last_tokens()) {
            let goal = ring.tablet_of(last);
            let goal = match goal.transition {
                Some(transition) if transition.stage != Stage::CleanupTarget => &transition.next[..],
                _ => goal.replicas,
            };
            self.bring(piece, goal);
        }
    }

    fn align(&mut self, table: usize) {
        let map = self.tablets.tables[table].map;
        let groups = Boundaries::PowerOfTwo(map.whole_tablets());
        let mut pieces = Vec::new();
        for (piece, last) in self.tablets.of_table(table).zip(map.boundaries().last_tokens()) {
            pieces.push(piece);
            if groups.has_end(last) {
                self.align_group(&pieces);
                pieces.clear();
            }
        }
    }

    fn align_group(&mut self, pieces: &[u32]) {
        let Some(goal) = self.goal_of_group(pieces) else {
            return;
        };
        for piece in pieces {
            // What it lacks more than its place is cared for elsewhere.
            if self.is_as_wanted(*piece) {
                self.bring(*piece, &goal);
            }
        }
    }

    fn is_as_wanted(&self, piece: u32) -> bool {
        let mut work = Work::default();
        self.sort_into(piece, &mut work);
        work.is_empty()
    }

    /// The replicas of one of the pieces to which the fewest bytes must be copied, of those that may stay as they are.
    fn goal_of_group(&self, pieces: &[u32]) -> Option<ReplicaList> {
        // By replicas in order: a piece that has them, and the bytes of all.
        let mut sets: BTreeMap<ReplicaList, (u32, f64)> = BTreeMap::new();
        for piece in pieces {
            let mut replicas: ReplicaList = self.tablets.replicas(*piece).iter().copied().collect();
            replicas.sort_unstable();
            sets.entry(replicas).or_insert((*piece, 0.0)).1 += self.tablets.bytes(*piece);
        }
        let may_stay = |replicas: &ReplicaList, piece: u32| {
            let holds = |replica: &Replica| self.cluster.node(replica.node).role == Role::Holds;
            !replicas.is_empty() && replicas.iter().all(holds) && self.is_as_wanted(piece)
        };
        // Bytes that move to other nodes, then bytes that move to other shards.
        let cost = |goal: &ReplicaList| -> (f64, f64) {
            let of = sets.iter().map(|(from, (_, bytes))| {
                let arrives = goal.iter().filter(|to| !is_in(from, to.node)).count() as f64;
                let goes = goal.iter().filter(|to| !from.contains(to)).count() as f64;
                (arrives * bytes, goes * bytes)
            });
            of.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
        };
        let candidates = sets.iter().filter(|(replicas, (piece, _))| may_stay(replicas, *piece));
        let ranked = candidates.map(|(replicas, (piece, _))| (!self.is_well_spread(*piece), cost(replicas), replicas));
        type Ranked<'r> = (bool, (f64, f64), &'r ReplicaList);
        let by_rank = |one: &Ranked<'_>, other: &Ranked<'_>| -> Ordering {
            let by_nodes = one.1.0.total_cmp(&other.1.0);
            one.0.cmp(&other.0).then(by_nodes).then(one.1.1.total_cmp(&other.1.1))
        };
        let best = ranked.min_by(by_rank);
        best.map(|(_, _, replicas)| replicas.clone())
    }

    /// Moves a piece to these replicas, unless it is there or moves.
    fn bring(&mut self, piece: u32, goal: &[Replica]) {
        let here = self.tablets.replicas(piece);
        let is_there = here.len() == goal.len() && goal.iter().all(|replica| here.contains(replica));
        if is_there || self.tablets.is_touched(piece) || goal.is_empty() {
            return;
        }
        let has_nodes = here.len() == goal.len() && goal.iter().all(|replica| is_in(here, replica.node));
        let attempt = if has_nodes {
            self.change_shards(piece, goal)
        } else {
            self.relocate(piece, goal)
        };
        match attempt {
            Attempt::Begun | Attempt::NotYet => {}
            Attempt::Waits => self.deferred += 1,
            Attempt::Blocked(reason) => {
                let (table, _) = self.tablets.id(piece);
                self.unmet.add(table, reason, 1);
            }
        }
    }

    /// The first node of these that is down.
    fn down(&self, replicas: impl Iterator<Item = Replica>) -> Option<NodeNumber> {
        let mut nodes = replicas.map(|replica| replica.node);
        nodes.find(|node| self.cluster.node(*node).role == Role::Down)
    }

    fn relocate(&mut self, piece: u32, goal: &[Replica]) -> Attempt {
        let here = self.tablets.replicas(piece);
        if let Some(node) = self.down(here.iter().chain(goal).copied()) {
            return Attempt::Blocked(UnmetReason::NodeDown { node });
        }
        let arriving: ReplicaList = goal.iter().filter(|r| !is_in(here, r.node)).copied().collect();
        let leaving: ReplicaList = here.iter().filter(|r| !is_in(goal, r.node)).copied().collect();
        let node = |replica: &Replica| self.cluster.node(replica.node);
        if !arriving.iter().all(|replica| node(replica).role == Role::Holds) {
            return Attempt::NotYet;
        }
        let bytes = self.tablets.bytes(piece);
        if arriving.iter().any(|replica| node(replica).room < bytes - BASE_BYTES) {
            return Attempt::Blocked(UnmetReason::NoRoom);
        }
        let sends = |replica: &&Replica| node(replica).role != Role::Lost;
        if self.cluster.total_left == 0
            || arriving.iter().any(|replica| node(replica).in_left == 0)
            || leaving.iter().filter(sends).any(|replica| node(replica).out_left == 0)
        {
            return Attempt::Waits;
        }
        let stays = |to: &Replica| here.iter().find(|from| from.node == to.node).copied();
        let next: ReplicaList = goal.iter().map(|to| stays(to).unwrap_or(*to)).collect();
        for replica in &leaving {
            self.count(piece, *replica, -1.0);
            let index = self.cluster.index(replica.node);
            let node = &mut self.cluster.nodes[index];
            node.out_left = node.out_left.saturating_sub(1);
        }
        for replica in &arriving {
            self.count(piece, *replica, 1.0);
            let index = self.cluster.index(replica.node);
            let node = &mut self.cluster.nodes[index];
            node.in_left = node.in_left.saturating_sub(1);
            node.room -= bytes - BASE_BYTES;
            self.copied_bytes = self.copied_bytes.saturating_add((bytes - BASE_BYTES) as u64);
        }
        self.begin(piece, next);
        Attempt::Begun
    }

    fn change_shards(&mut self, piece: u32, goal: &[Replica]) -> Attempt {
        let here = self.tablets.replicas(piece);
        let changing: ReplicaList = goal.iter().filter(|to| !here.contains(to)).copied().collect();
        if let Some(node) = self.down(changing.iter().copied()) {
            return Attempt::Blocked(UnmetReason::NodeDown { node });
        }
        let may = |replica: &Replica| self.cluster.node(replica.node).shard_moves_left > 0;
        if self.cluster.total_left == 0 || !changing.iter().all(may) {
            return Attempt::Waits;
        }
        for to in &changing {
            if let Some(from) = here.iter().find(|from| from.node == to.node) {
                self.count(piece, *from, -1.0);
                self.count(piece, *to, 1.0);
            }
            let index = self.cluster.index(to.node);
            self.cluster.nodes[index].shard_moves_left -= 1;
        }
        self.begin(piece, goal.iter().copied().collect());
        Attempt::Begun
    }

    fn begin(&mut self, piece: u32, next: ReplicaList) {
        let (table, tablet) = self.tablets.id(piece);
        self.relocations.push(Relocation { table, tablet, next });
        self.tablets.touch(piece);
        self.cluster.total_left = self.cluster.total_left.saturating_sub(1);
    }
}

fn is_in(replicas: &[Replica], node: NodeNumber) -> bool {
    replicas.iter().any(|replica| replica.node == node)
}
