//! How many copies of a tablet each rack may have under a replication, and the fair shares that follow.
//!
//! The nodes among which a replication places a number of copies are a *pool*: a datacenter, or the whole cluster where
//! datacenters do not count. Copies are dealt to racks in rounds, one per rack and round, while the rack has nodes
//! left. So with `r` rounds a rack of `n` nodes has `min(n, r)` copies at most and `min(n, r - 1)` at least: *high* and
//! *low*. A list of racks fixes both.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::Role;
use super::cluster::Cluster;
use super::unmet::UnmetReason;
use crate::replication::{Copies, Replication};

/// A replication, with all tables that have it.
pub(super) struct ReplicationTarget<'a> {
    pub(super) replication: &'a Replication,
    pub(super) pools: Vec<Pool>,
    /// The pool of each rack.
    pub(super) pool_of_rack: Vec<u32>,
    /// By rack.
    pub(super) low: Vec<u16>,
    pub(super) high: Vec<u16>,
    /// The weight of one copy of all its tablets.
    pub(super) bytes: f64,
    /// The load of one copy of all its tablets.
    pub(super) load: f64,
    /// What nodes hold that keep it whatever is planned.
    pub(super) kept: BTreeMap<usize, Kept>,
    /// What the topology lacks for it.
    pub(super) lacks: Vec<UnmetReason>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Kept {
    pub(super) bytes: f64,
    pub(super) load: f64,
}

pub(super) struct Pool {
    /// None for the whole cluster.
    pub(super) datacenter: Option<u32>,
    pub(super) racks: Vec<u32>,
    /// The copies that the replication wants.
    pub(super) factor: u16,
    /// The copies for which there are nodes.
    pub(super) possible: u16,
    /// The sum of the racks' lows.
    pub(super) low_total: u16,
    pub(super) is_listed: bool,
}

/// What one tablet's racks may have, when it has copies on idle nodes.
pub(super) struct Bounds {
    pub(super) possible: u16,
    pub(super) low_total: u16,
    /// Rack, low, high.
    racks: SmallVec<[(u32, u16, u16); 8]>,
}

impl Bounds {
    pub(super) fn of(&self, rack: u32) -> (u16, u16) {
        let found = self.racks.iter().find(|(r, _, _)| *r == rack);
        found.map_or((0, 0), |(_, low, high)| (*low, *high))
    }
}

impl<'a> ReplicationTarget<'a> {
    pub(super) fn new(replication: &'a Replication, cluster: &Cluster) -> Self {
        let racks = cluster.racks.len();
        let mut target = Self {
            replication,
            pools: Vec::new(),
            pool_of_rack: vec![0; racks],
            low: vec![0; racks],
            high: vec![0; racks],
            bytes: 0.0,
            load: 0.0,
            kept: BTreeMap::new(),
            lacks: Vec::new(),
        };
        let all = 0..cluster.racks.len() as u32;
        match replication {
            Replication::Local => {}
            Replication::Simple { factor } => target.add_pool(cluster, None, all.collect(), &Copies::Count(*factor)),
            Replication::Everywhere => {
                let able = cluster.racks.iter().map(|r| u32::from(r.able)).sum::<u32>();
                let factor = u16::try_from(able).unwrap_or(u16::MAX);
                target.add_pool(cluster, None, all.collect(), &Copies::Count(factor));
            }
            Replication::NetworkTopology(factors) => {
                for (at, name) in (0..).zip(&cluster.datacenters) {
                    let here = all.clone().filter(|r| cluster.racks[*r as usize].datacenter == at);
                    let copies = factors.get(name).cloned().unwrap_or(Copies::Count(0));
                    target.add_pool(cluster, Some(at), here.collect(), &copies);
                }
                let unknown = factors.iter().filter(|(name, copies)| {
                    copies.number() > 0 && !cluster.datacenters.iter().any(|known| known == *name)
                });
                let lacks = unknown.map(|(name, _)| UnmetReason::UnknownDatacenter {
                    datacenter: name.clone(),
                });
                target.lacks.extend(lacks);
            }
        }
        target
    }

    fn add_pool(&mut self, cluster: &Cluster, datacenter: Option<u32>, racks: Vec<u32>, copies: &Copies) {
        let at = self.pools.len() as u32;
        for rack in &racks {
            self.pool_of_rack[*rack as usize] = at;
        }
        let mut pool = Pool {
            datacenter,
            racks,
            factor: copies.number(),
            possible: 0,
            low_total: 0,
            is_listed: false,
        };
        match copies {
            Copies::Count(_) => {
                let able: SmallVec<[u16; 8]> = pool.racks.iter().map(|r| cluster.racks[*r as usize].able).collect();
                let rounds = Rounds::new(&able, pool.factor);
                pool.possible = rounds.possible;
                for (rack, able) in pool.racks.iter().zip(&able) {
                    let (low, high) = rounds.bounds(*able);
                    self.low[*rack as usize] = low;
                    self.high[*rack as usize] = high;
                    pool.low_total += low;
                }
            }
            Copies::Racks(names) => {
                pool.is_listed = true;
                for name in names {
                    let mut found = pool.racks.iter().filter(|r| cluster.racks[**r as usize].name == *name);
                    match found.next() {
                        Some(rack) if cluster.racks[*rack as usize].able > 0 => {
                            self.low[*rack as usize] = 1;
                            self.high[*rack as usize] = 1;
                            pool.possible += 1;
                            pool.low_total += 1;
                        }
                        _ => self.lacks.push(UnmetReason::EmptyRack {
                            datacenter: cluster.datacenter_name(datacenter).unwrap_or_default(),
                            rack: name.clone(),
                        }),
                    }
                }
            }
        }
        self.pools.push(pool);
    }

    /// The bounds in a pool for a tablet that has copies on idle nodes of these racks.
    pub(super) fn bounds_with(&self, cluster: &Cluster, pool: &Pool, idle_racks: &[u32]) -> Bounds {
        let racks = pool.racks.iter().copied();
        if pool.is_listed {
            return Bounds {
                possible: pool.possible,
                low_total: pool.low_total,
                racks: racks
                    .map(|r| (r, self.low[r as usize], self.high[r as usize]))
                    .collect(),
            };
        }
        let able = |rack: u32| {
            let idle = idle_racks.iter().filter(|r| **r == rack).count();
            cluster.racks[rack as usize].able + u16::try_from(idle).unwrap_or(u16::MAX)
        };
        let all: SmallVec<[u16; 8]> = racks.clone().map(able).collect();
        let rounds = Rounds::new(&all, pool.factor);
        let bounds = racks.zip(&all).map(|(rack, able)| {
            let (low, high) = rounds.bounds(*able);
            (rack, low, high)
        });
        let racks: SmallVec<[(u32, u16, u16); 8]> = bounds.collect();
        Bounds {
            possible: rounds.possible,
            low_total: racks.iter().map(|(_, low, _)| low).sum(),
            racks,
        }
    }

    /// Adds the fair share of this target's bytes and load to each holder.
    pub(super) fn add_shares(&self, cluster: &mut Cluster) {
        for pool in self.pools.iter().filter(|p| p.possible > 0) {
            self.add_pool_shares(
                cluster,
                pool,
                self.bytes,
                |n| n.capacity,
                |k| k.bytes,
                |n| &mut n.bytes_share,
            );
            let shards = |n: &super::cluster::Node| f64::from(n.shards);
            self.add_pool_shares(cluster, pool, self.load, shards, |k| k.load, |n| &mut n.load_share);
        }
    }

    /// Shares are counted in copies of all tablets: racks have from low to high of them, a node at most one.
    fn add_pool_shares(
        &self,
        cluster: &mut Cluster,
        pool: &Pool,
        whole: f64,
        capacity: impl Fn(&super::cluster::Node) -> f64,
        kept: impl Fn(&Kept) -> f64,
        share: impl Fn(&mut super::cluster::Node) -> &mut f64,
    ) {
        if whole <= 0.0 {
            return;
        }
        let mut kept_by_rack: BTreeMap<u32, f64> = BTreeMap::new();
        for (node, what) in &self.kept {
            *kept_by_rack.entry(cluster.nodes[*node].rack).or_default() += kept(what) / whole;
        }
        let racks: Vec<Part> = pool
            .racks
            .iter()
            .map(|rack| {
                let kept = kept_by_rack.get(rack).copied().unwrap_or(0.0);
                let holders = &cluster.racks[*rack as usize].holders;
                let capacity = holders.iter().map(|n| capacity(&cluster.nodes[usize::from(*n)])).sum();
                let (low, high) = (
                    f64::from(self.low[*rack as usize]),
                    f64::from(self.high[*rack as usize]),
                );
                let holds = holders.len() as f64;
                Part {
                    capacity,
                    low: (low - kept).clamp(0.0, holds),
                    high: (high - kept).clamp(0.0, holds),
                }
            })
            .collect();
        let kept_here: f64 = pool.racks.iter().filter_map(|r| kept_by_rack.get(r)).sum();
        let rack_shares = divide(f64::from(pool.possible) - kept_here, &racks);
        for (rack, rack_share) in pool.racks.iter().zip(rack_shares) {
            let holders = cluster.racks[*rack as usize].holders.clone();
            let part = |n: &u16| Part {
                capacity: capacity(&cluster.nodes[usize::from(*n)]),
                low: 0.0,
                high: 1.0,
            };
            let parts: Vec<Part> = holders.iter().map(part).collect();
            for (node, copies) in holders.iter().zip(divide(rack_share, &parts)) {
                *share(&mut cluster.nodes[usize::from(*node)]) += copies * whole;
            }
        }
    }
}

/// Dealing copies to racks.
struct Rounds {
    possible: u16,
    rounds: u16,
}

impl Rounds {
    fn new(able: &[u16], factor: u16) -> Self {
        let within = |rounds: u16| able.iter().map(|n| u32::from(*n.min(&rounds))).sum::<u32>();
        let possible = u16::try_from(within(u16::MAX)).unwrap_or(u16::MAX).min(factor);
        // Few: no more than copies.
        let rounds = (0..=possible).find(|rounds| within(*rounds) >= u32::from(possible));
        Self {
            possible,
            rounds: rounds.unwrap_or(0),
        }
    }

    fn bounds(&self, able: u16) -> (u16, u16) {
        (able.min(self.rounds.saturating_sub(1)), able.min(self.rounds))
    }
}

#[derive(Clone, Copy)]
struct Part {
    capacity: f64,
    low: f64,
    high: f64,
}

/// Divides a total in proportion to capacities, within each part's bounds.
fn divide(total: f64, parts: &[Part]) -> Vec<f64> {
    /// Halvings of an interval of floating point numbers beyond which nothing changes.
    const HALVINGS: usize = 100;
    let at = |level: f64| parts.iter().map(move |p| (p.capacity * level).clamp(p.low, p.high));
    let capacity: f64 = parts.iter().map(|p| p.capacity).sum();
    let is_within = |p: &Part| {
        let share = p.capacity * total / capacity;
        (p.low..=p.high).contains(&share)
    };
    if capacity > 0.0 && parts.iter().all(is_within) {
        return at(total / capacity).collect();
    }
    let (mut below, mut above) = (0.0, 1.0);
    let most: f64 = parts.iter().map(|p| p.high).sum();
    let total = total.min(most * (1.0 - 1e-12));
    let smallest = parts
        .iter()
        .map(|p| p.capacity)
        .filter(|c| *c > 0.0)
        .fold(f64::INFINITY, f64::min);
    if smallest.is_finite() {
        above = parts.iter().map(|p| p.high).fold(0.0, f64::max) / smallest;
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(below, above);
        if at(middle).sum::<f64>() < total {
            below = middle;
        } else {
            above = middle;
        }
    }
    at(above).collect()
}

/// Whether a copy on a node of this role counts for the racks: it is not going away.
pub(super) fn stays(role: Role) -> bool {
    matches!(role, Role::Holds | Role::Idle | Role::Down)
}
