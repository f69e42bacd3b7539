//! The steps that bring a tablet's copies to where they should be: away from lost and draining nodes, as many as the
//! replication wants, on distinct racks.
//!
//! A tablet gets the first step that is possible, of this list:
//!
//! 1. Replace a lost copy, or remove it when there are too many.
//! 2. Add a copy where one is missing; only when none can be added, remove one where there are too many. The copies of
//!    a datacenter that the replication gives up stay until every other datacenter has all of its copies, and no copy
//!    is removed while another of its pool is down: those that stay may have to copy from each other
//!    ([`crate::targets`]).
//! 3. Move a copy off a draining node.
//! 4. Move a copy from a rack that has too many to one that has too few.

use smallvec::SmallVec;

use super::planner::{Planner, Receiver, mix, ordered};
use super::survey::{BASE_BYTES, RackCounts, Work};
use super::target::{Bounds, Pool, ReplicationTarget};
use super::unmet::UnmetReason;
use super::{Role, Step};
use crate::movement::targets;
use crate::node::{DatacenterNumber, NodeNumber};
use crate::replication::Replication;
use crate::tablet_map::{Replica, ReplicaList};

/// What to do with a tablet; nodes that receive are places in the array of nodes.
enum Decision {
    Replace {
        lost: Replica,
        to: usize,
    },
    Add {
        to: usize,
    },
    Remove {
        from: Replica,
    },
    Move {
        from: Replica,
        to: usize,
    },
    /// The step waits for limits.
    Wait,
    /// The plan reports what the step waits for; nothing else is done with the tablet in the meantime.
    Blocked,
    Nothing,
}

/// Why no node receives a copy; when several reasons hold, the later variant is reported.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Blocked {
    NoNode,
    Down(NodeNumber),
    NoRoom,
    Limits,
}

/// One tablet, and what its target means for it.
struct Tablet<'p> {
    id: u32,
    target: &'p ReplicationTarget<'p>,
    replicas: &'p [Replica],
    /// The copies that stay.
    counts: RackCounts,
    idle: SmallVec<[u32; 8]>,
}

/// The racks' bounds in one pool.
struct PoolView<'p> {
    pool: &'p Pool,
    /// Required copies.
    factor: u16,
    /// Copies for which there are nodes.
    possible: u16,
    /// Copies now, those on lost and draining nodes too.
    copies: u16,
    /// For tablets that have copies on idle nodes.
    own: Option<Bounds>,
}

impl PoolView<'_> {
    fn bounds(&self, tablet: &Tablet<'_>, rack: u32) -> (u16, u16) {
        match &self.own {
            Some(bounds) => bounds.of(rack),
            None => (tablet.target.low[rack as usize], tablet.target.high[rack as usize]),
        }
    }
}

impl Tablet<'_> {
    fn count(&self, rack: u32) -> u16 {
        let found = self.counts.iter().find(|(r, _)| *r == rack);
        found.map_or(0, |(_, count)| *count)
    }

    fn has(&self, number: u16) -> bool {
        self.replicas.iter().any(|r| r.node.0 == number)
    }
}

impl Planner<'_> {
    pub(super) fn copies(&mut self, work: &Work) {
        let lost = work.lost.iter().map(|(_, tablet)| tablet);
        let all = lost.chain(&work.replication).chain(&work.drain).chain(&work.spread);
        for (at, tablet) in all.enumerate() {
            if at == 0 {
                self.sort_receivers();
            }
            self.mend(*tablet);
        }
    }

    fn sort_receivers(&mut self) {
        self.receivers = vec![Default::default(); self.cluster.racks.len()];
        let receivers: Vec<(u32, Receiver)> = self
            .cluster
            .holders()
            .filter(|(_, n)| n.in_left > 0)
            .map(|(number, n)| (n.rack, self.receiver_key(number)))
            .collect();
        for (rack, key) in receivers {
            self.receivers[rack as usize].insert(key);
        }
    }

    /// The tie is broken again after each step, so neighbouring tablets do not go to the same sequence of nodes.
    fn receiver_key(&self, number: u16) -> Receiver {
        let tie = mix(u64::from(number), self.steps.len() as u64);
        (ordered(self.fill(usize::from(number))), tie, number)
    }

    /// How full a node is, by its fair share.
    fn fill(&self, index: usize) -> f64 {
        let node = &self.cluster.nodes[index];
        if node.bytes_share > 0.0 {
            node.bytes / node.bytes_share
        } else {
            node.bytes / node.capacity
        }
    }

    fn mend(&mut self, id: u32) {
        let mut reasons = Vec::new();
        let decision = self.decide(id, &mut reasons);
        let (table, tablet) = self.tablets.id(id);
        for reason in reasons {
            self.unmet.add(table, reason, 1);
        }
        match decision {
            Decision::Nothing => {}
            Decision::Blocked => self.tablets.touch(id),
            _ if self.cluster.total_left == 0 => self.deferred += 1,
            Decision::Wait => self.deferred += 1,
            Decision::Replace { lost, to } => {
                self.count(id, lost, -1.0);
                let to = self.receive(id, to);
                self.push(
                    id,
                    Step::Replace {
                        table,
                        tablet,
                        lost,
                        to,
                    },
                );
            }
            Decision::Add { to } => {
                let to = self.receive(id, to);
                self.push(id, Step::Add { table, tablet, to });
            }
            Decision::Remove { from } => {
                self.count_and_sort(id, from);
                self.push(id, Step::Remove { table, tablet, from });
            }
            Decision::Move { from, to } => {
                self.forget_receiver(self.cluster.index(from.node));
                self.forget_receiver(to);
                self.push_move(id, from, to);
                self.offer_receiver(self.cluster.index(from.node));
                self.offer_receiver(to);
            }
        }
    }

    fn receive(&mut self, id: u32, to: usize) -> Replica {
        self.forget_receiver(to);
        let replica = self.arrive(id, to);
        self.offer_receiver(to);
        replica
    }

    fn count_and_sort(&mut self, id: u32, from: Replica) {
        let index = self.cluster.index(from.node);
        self.forget_receiver(index);
        self.count(id, from, -1.0);
        self.offer_receiver(index);
    }

    fn forget_receiver(&mut self, index: usize) {
        let rack = self.cluster.nodes[index].rack as usize;
        let (fill, number) = (ordered(self.fill(index)), index as u16);
        let found = self.receivers[rack].range((fill, 0, 0)..=(fill, u64::MAX, u16::MAX));
        if let Some(key) = found.copied().find(|(_, _, n)| *n == number) {
            self.receivers[rack].remove(&key);
        }
    }

    fn offer_receiver(&mut self, index: usize) {
        let node = &self.cluster.nodes[index];
        if node.role == Role::Holds && node.in_left > 0 {
            let rack = node.rack as usize;
            let key = self.receiver_key(index as u16);
            self.receivers[rack].insert(key);
        }
    }

    fn decide(&self, id: u32, unmet: &mut Vec<UnmetReason>) -> Decision {
        let Some(target) = self.target(id) else {
            return Decision::Nothing;
        };
        let replicas = self.tablets.replicas(id);
        let tablet = Tablet {
            id,
            target,
            replicas,
            counts: self.rack_counts(replicas),
            idle: self.idle_racks(replicas),
        };
        let pools: SmallVec<[PoolView<'_>; 4]> = target.pools.iter().map(|pool| self.view(&tablet, pool)).collect();
        for stage in [Self::replace, Self::replicate, Self::drain, Self::spread] {
            let decision = stage(self, &tablet, &pools, unmet);
            if !matches!(decision, Decision::Nothing) {
                return decision;
            }
        }
        Decision::Nothing
    }

    fn view<'p>(&self, tablet: &Tablet<'p>, pool: &'p Pool) -> PoolView<'p> {
        let idle_here = tablet.idle.iter().filter(|rack| pool.racks.contains(rack)).count() as u16;
        let own = (idle_here > 0).then(|| tablet.target.bounds_with(&self.cluster, pool, &tablet.idle));
        let is_everywhere = *tablet.target.replication == Replication::Everywhere;
        PoolView {
            pool,
            factor: pool.factor + if is_everywhere { idle_here } else { 0 },
            possible: own.as_ref().map_or(pool.possible, |b| b.possible),
            copies: self.copies_in(tablet.target, pool, tablet.replicas),
            own,
        }
    }

    fn pool_of<'v, 'p>(&self, tablet: &Tablet<'p>, pools: &'v [PoolView<'p>], node: NodeNumber) -> &'v PoolView<'p> {
        &pools[tablet.target.pool_of_rack[self.cluster.node(node).rack as usize] as usize]
    }

    fn replace(&self, tablet: &Tablet<'_>, pools: &[PoolView<'_>], unmet: &mut Vec<UnmetReason>) -> Decision {
        let role = |r: &Replica| self.cluster.node(r.node).role;
        let Some(lost) = tablet.replicas.iter().find(|r| role(r) == Role::Lost) else {
            return Decision::Nothing;
        };
        let is_live = |r: &&Replica| !matches!(role(r), Role::Lost | Role::Down);
        if !tablet.replicas.iter().any(|r| is_live(&r)) {
            let down = tablet.replicas.iter().find(|r| role(r) == Role::Down);
            unmet.push(match down {
                Some(r) => UnmetReason::NodeDown { node: r.node },
                None => UnmetReason::NoLiveCopy { node: lost.node },
            });
            return Decision::Nothing;
        }
        let pool = self.pool_of(tablet, pools, lost.node);
        if pool.copies > pool.factor {
            let down = tablet.replicas.iter().find(|r| role(r) == Role::Down);
            let Some(down) = down.filter(|_| self.must_copy(tablet, *lost)) else {
                return Decision::Remove { from: *lost };
            };
            unmet.push(UnmetReason::NodeDown { node: down.node });
            return Decision::Blocked;
        }
        if let Some(to) = self.cluster.replacements.get(&lost.node.0) {
            let node = &self.cluster.nodes[usize::from(*to)];
            let is_free = tablet.count(node.rack) < pool.bounds(tablet, node.rack).1 && !tablet.has(*to);
            let has_room = node.room >= self.tablets.bytes(tablet.id) - BASE_BYTES;
            if node.role == Role::Holds && is_free && has_room {
                return match node.in_left {
                    0 => Decision::Wait,
                    _ => Decision::Replace {
                        lost: *lost,
                        to: usize::from(*to),
                    },
                };
            }
        }
        let datacenter = self.cluster.node(lost.node).datacenter;
        match self.receiver(tablet, pool, Some(datacenter), None) {
            Ok(to) => Decision::Replace { lost: *lost, to },
            Err(blocked) => self.blocked(blocked, unmet, || self.too_few(tablet, pool)),
        }
    }

    /// Whether replicas that stay must copy from each other before one leaves.
    fn must_copy(&self, tablet: &Tablet<'_>, goes: Replica) -> bool {
        let next: ReplicaList = tablet
            .replicas
            .iter()
            .filter(|r| r.node != goes.node)
            .copied()
            .collect();
        let datacenter = |node: NodeNumber| DatacenterNumber(self.cluster.node(node).datacenter as u16);
        !targets(tablet.replicas, &next, datacenter).is_empty()
    }

    fn replicate(&self, tablet: &Tablet<'_>, pools: &[PoolView<'_>], unmet: &mut Vec<UnmetReason>) -> Decision {
        let mut waits = false;
        for pool in pools.iter().filter(|p| p.copies < p.factor) {
            if pool.copies >= pool.possible {
                if !pool.pool.is_listed {
                    unmet.push(self.too_few(tablet, pool));
                }
                continue;
            }
            match self.receiver(tablet, pool, None, None) {
                Ok(to) => return Decision::Add { to },
                Err(blocked) => {
                    let decision = self.blocked(blocked, unmet, || self.too_few(tablet, pool));
                    waits |= matches!(decision, Decision::Wait);
                }
            }
        }
        let lacks = pools.iter().any(|p| p.copies < p.factor) || !tablet.target.lacks.is_empty();
        for pool in pools.iter().filter(|p| p.copies > p.factor) {
            if pool.factor == 0 && lacks {
                continue;
            }
            if let Some(from) = self.superfluous(tablet, pools, pool, unmet) {
                return Decision::Remove { from };
            }
        }
        if waits { Decision::Wait } else { Decision::Nothing }
    }

    /// The copy of a pool that is missed least.
    fn superfluous(
        &self,
        tablet: &Tablet<'_>,
        pools: &[PoolView<'_>],
        pool: &PoolView<'_>,
        unmet: &mut Vec<UnmetReason>,
    ) -> Option<Replica> {
        let is_here = |r: &&Replica| std::ptr::eq(self.pool_of(tablet, pools, r.node), pool);
        let here: SmallVec<[Replica; 6]> = tablet.replicas.iter().filter(is_here).copied().collect();
        let role = |r: &Replica| self.cluster.node(r.node).role;
        if let Some(down) = here.iter().find(|r| role(r) == Role::Down) {
            unmet.push(UnmetReason::NodeDown { node: down.node });
            return None;
        }
        let is_live = |r: &&Replica| !matches!(role(r), Role::Lost | Role::Down);
        if tablet.replicas.iter().filter(is_live).count() < 2 {
            // The only live copy stays until those that are down are back.
            let down = tablet.replicas.iter().find(|r| role(r) == Role::Down);
            unmet.extend(down.map(|r| UnmetReason::NodeDown { node: r.node }));
            return None;
        }
        let worth = |r: &Replica| {
            let node = self.cluster.node(r.node);
            let (low, high) = pool.bounds(tablet, node.rack);
            let count = tablet.count(node.rack);
            let fill = ordered(self.fill(self.cluster.index(r.node)));
            let tie = mix(u64::from(r.node.0), u64::from(tablet.id));
            let leaves = node.role == Role::Drains;
            (leaves, count > high, i32::from(count) - i32::from(low), fill, tie)
        };
        here.into_iter().max_by_key(worth)
    }

    fn drain(&self, tablet: &Tablet<'_>, pools: &[PoolView<'_>], unmet: &mut Vec<UnmetReason>) -> Decision {
        let role = |r: &&Replica| self.cluster.node(r.node).role;
        let mut result = Decision::Nothing;
        for from in tablet.replicas.iter().filter(|r| role(r) == Role::Drains) {
            let source = self.cluster.node(from.node);
            if source.out_left == 0 {
                return Decision::Wait;
            }
            let pool = self.pool_of(tablet, pools, from.node);
            match self.receiver(tablet, pool, Some(source.datacenter), None) {
                Ok(to) => return Decision::Move { from: *from, to },
                Err(blocked) => {
                    let reason = || UnmetReason::NoNodeToDrainTo { node: from.node };
                    if let Decision::Wait = self.blocked(blocked, unmet, reason) {
                        result = Decision::Wait;
                    }
                }
            }
        }
        result
    }

    fn spread(&self, tablet: &Tablet<'_>, pools: &[PoolView<'_>], _: &mut Vec<UnmetReason>) -> Decision {
        let mut result = Decision::Nothing;
        let surplus = |r: &Replica| {
            let node = self.cluster.node(r.node);
            let (low, high) = self.pool_of(tablet, pools, r.node).bounds(tablet, node.rack);
            let count = tablet.count(node.rack);
            (count > high, i32::from(count) - i32::from(low))
        };
        let is_movable = |r: &&Replica| self.cluster.node(r.node).role == Role::Holds && surplus(r).1 > 0;
        let mut from: SmallVec<[Replica; 6]> = tablet.replicas.iter().filter(is_movable).copied().collect();
        from.sort_by_key(|r| {
            let fill = ordered(self.fill(self.cluster.index(r.node)));
            std::cmp::Reverse((surplus(r), fill, mix(u64::from(r.node.0), u64::from(tablet.id))))
        });
        for from in from {
            let source = self.cluster.node(from.node);
            let pool = self.pool_of(tablet, pools, from.node);
            let is_over = surplus(&from).0;
            let lacks = |rack: &u32| {
                let is_near = self.cluster.racks[*rack as usize].datacenter == source.datacenter;
                is_near && tablet.count(*rack) < pool.bounds(tablet, *rack).0
            };
            if !is_over && !pool.pool.racks.iter().any(lacks) {
                continue;
            }
            if source.out_left == 0 {
                result = Decision::Wait;
                continue;
            }
            match self.receiver(tablet, pool, Some(source.datacenter), Some(source.rack)) {
                Ok(to) => return Decision::Move { from, to },
                Err(Blocked::Limits) => result = Decision::Wait,
                Err(_) => {}
            }
        }
        result
    }

    /// The holder that gets a copy of a tablet in a pool: in a rack that lacks copies if there is one, else in a rack
    /// with the fewest; there the emptiest. `near` is the datacenter that is preferred. A copy in the rack `without` is
    /// about to leave it.
    fn receiver(
        &self,
        tablet: &Tablet<'_>,
        pool: &PoolView<'_>,
        near: Option<u32>,
        without: Option<u32>,
    ) -> Result<usize, Blocked> {
        let found = self.receiver_in(tablet, pool, near, without);
        match found {
            // Where datacenters do not count, a copy goes to another only when its own has no node for it.
            Err(Blocked::NoNode) if pool.pool.datacenter.is_none() && without.is_none() => {
                self.receiver_in(tablet, pool, None, without)
            }
            found => found,
        }
    }

    fn receiver_in(
        &self,
        tablet: &Tablet<'_>,
        pool: &PoolView<'_>,
        near: Option<u32>,
        without: Option<u32>,
    ) -> Result<usize, Blocked> {
        let datacenter = near.filter(|_| pool.pool.datacenter.is_none());
        let is_near = |rack: &&u32| {
            let rack = &self.cluster.racks[**rack as usize];
            datacenter.is_none_or(|d| rack.datacenter == d)
        };
        // Whether the rack lacks none, its copies, the rack.
        let mut racks: SmallVec<[(bool, u16, u32); 8]> = SmallVec::new();
        for rack in pool.pool.racks.iter().filter(is_near) {
            let (low, high) = pool.bounds(tablet, *rack);
            let count = tablet.count(*rack) - u16::from(without == Some(*rack));
            if count < high && without != Some(*rack) {
                racks.push((count >= low, count, *rack));
            }
        }
        racks.sort_unstable();
        let has_lack = racks.first().is_some_and(|(lacks_none, _, _)| !lacks_none);
        let mut reason = Blocked::NoNode;
        for group in racks.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            if has_lack && group[0].0 {
                break;
            }
            let nodes = group.iter().filter_map(|(_, _, rack)| self.emptiest(tablet, *rack));
            if let Some((_, _, number)) = nodes.min() {
                return Ok(usize::from(number));
            }
            let blocked = group.iter().map(|(_, _, rack)| self.why_none(tablet, *rack)).max();
            reason = reason.max(blocked.unwrap_or(Blocked::NoNode));
        }
        Err(reason)
    }

    fn emptiest(&self, tablet: &Tablet<'_>, rack: u32) -> Option<Receiver> {
        let bytes = self.tablets.bytes(tablet.id) - BASE_BYTES;
        let has_room = |number: u16| self.cluster.nodes[usize::from(number)].room >= bytes;
        let mut nodes = self.receivers[rack as usize].iter();
        nodes.find(|(_, _, n)| !tablet.has(*n) && has_room(*n)).copied()
    }

    /// Why no node of a rack takes a copy.
    fn why_none(&self, tablet: &Tablet<'_>, rack: u32) -> Blocked {
        let place = &self.cluster.racks[rack as usize];
        let mut free = place.holders.iter().filter(|n| !tablet.has(**n)).peekable();
        if free.peek().is_some() {
            let is_busy = |n: &u16| self.cluster.nodes[usize::from(*n)].in_left == 0;
            return if free.any(is_busy) {
                Blocked::Limits
            } else {
                Blocked::NoRoom
            };
        }
        let numbered = (0..=u16::MAX).zip(&self.cluster.nodes);
        let mut down = numbered.filter(|(n, node)| node.role == Role::Down && node.rack == rack && !tablet.has(*n));
        down.next()
            .map_or(Blocked::NoNode, |(n, _)| Blocked::Down(NodeNumber(n)))
    }

    fn blocked(&self, blocked: Blocked, unmet: &mut Vec<UnmetReason>, no_node: impl Fn() -> UnmetReason) -> Decision {
        unmet.push(match blocked {
            Blocked::Limits => return Decision::Wait,
            Blocked::NoRoom => UnmetReason::NoRoom,
            Blocked::Down(node) => UnmetReason::NodeDown { node },
            Blocked::NoNode => no_node(),
        });
        Decision::Nothing
    }

    fn too_few(&self, tablet: &Tablet<'_>, pool: &PoolView<'_>) -> UnmetReason {
        let able = |rack: &u32| usize::from(self.cluster.racks[*rack as usize].able);
        UnmetReason::TooFewNodes {
            datacenter: self.cluster.datacenter_name(pool.pool.datacenter),
            factor: pool.factor,
            nodes: pool.pool.racks.iter().map(able).sum::<usize>() + tablet.idle.len(),
        }
    }
}
