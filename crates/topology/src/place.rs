//! Where the tablets of a new table go.
//!
//! Greedy, tablet by tablet: for each copy the rack that has the fewest copies of this tablet, of those the one whose
//! shards hold least, there the node whose shards hold least, there the shard that holds least. So
//!
//! - two copies are on one rack only when there are fewer racks with a free node than copies, and never on one node;
//! - nodes of a rack with equally many shards differ by at most one tablet of the table, and so do the shards of a
//!   node;
//! - a node with twice the shards gets twice the tablets.
//!
//! Ties go to the node or shard that holds less of other tables ([`Load`]), then by a hash of tablet and node: the
//! copies of a node's tablets are spread over all other nodes, and the same topology gives the same map everywhere.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use stdx::random::scramble;

use crate::node::{Node, NodeNumber, Topology};
use crate::replication::{Copies, PlacementError, Replication};
use crate::tablet_map::{Boundaries, Builder, Replica, ReplicaList, TABLETS_MAX, TabletMap};

/// Beyond so many tablets for each shard, their number is no reason any more why one shard has more of them than
/// another.
const EVEN_PER_SHARD_MAX: u32 = 10;

/// How many tablets the shards hold, over several tables.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Load(BTreeMap<Replica, u64>);

impl Load {
    /// Counts the tablets of one more table; those that move count where they will be.
    pub fn add(&mut self, map: &TabletMap) {
        for tablet in map.tablets() {
            let replicas = tablet.transition.map_or(tablet.replicas, |t| &t.next);
            for replica in replicas {
                *self.0.entry(*replica).or_default() += 1;
            }
        }
    }

    fn shards(&self, node: NodeNumber, shards: u16) -> Vec<u64> {
        let of = |shard| self.0.get(&Replica { node, shard }).copied().unwrap_or(0);
        (0..shards).map(of).collect()
    }
}

/// Places the tablets of a table as if it were the first of the cluster.
///
/// # Errors
/// When the nodes do not suffice for the replication, or the count is no power of two.
pub fn place_tablets(
    topology: &Topology,
    replication: &Replication,
    tablet_count: u32,
) -> Result<TabletMap, PlacementError> {
    place_tablets_beside(topology, replication, tablet_count, &Load::default())
}

/// Places the tablets of a table where those of others are already.
///
/// # Errors
/// As [`place_tablets`].
pub fn place_tablets_beside(
    topology: &Topology,
    replication: &Replication,
    tablet_count: u32,
    load: &Load,
) -> Result<TabletMap, PlacementError> {
    if !tablet_count.is_power_of_two() || tablet_count > TABLETS_MAX {
        return Err(PlacementError::TabletCount(tablet_count));
    }
    let log2 = u8::try_from(tablet_count.trailing_zeros()).expect("a 32-bit number");
    let mut pools = pools(topology, replication, load)?;
    let mut builder = Builder::new(0, Boundaries::PowerOfTwo(log2))?;
    for tablet in 0..tablet_count {
        let mut replicas = ReplicaList::new();
        for pool in &mut pools {
            pool.place(tablet, &mut replicas);
        }
        builder.push(&replicas, None)?;
    }
    Ok(builder.finish()?)
}

/// The count of tablets with which a table begins: the smallest power of two that gives every shard `per_shard_goal`
/// tablets on average, in each datacenter that has copies; at least one.
///
/// # Errors
/// When the nodes do not suffice for the replication.
pub fn initial_tablet_count(
    topology: &Topology,
    replication: &Replication,
    per_shard_goal: u32,
) -> Result<u32, PlacementError> {
    let pools = pools(topology, replication, &Load::default())?;
    let wanted = pools.iter().map(|pool| {
        let replicas = pool.shards().saturating_mul(u64::from(per_shard_goal));
        replicas.div_ceil(pool.factor as u64)
    });
    let wanted = wanted.max().unwrap_or(1).clamp(1, u64::from(TABLETS_MAX));
    Ok(u32::try_from(wanted).expect("at most TABLETS_MAX").next_power_of_two())
}

/// The least power of two that gives every shard `goal` replicas of tablets on average, in each datacenter that has
/// copies, as far as there are nodes for them.
///
/// # Errors
/// When no node can hold any.
pub fn tablets_per_shard(topology: &Topology, replication: &Replication, goal: f64) -> Result<u32, PlacementError> {
    let pools = pools(topology, &possible(topology, replication), &Load::default())?;
    let wanted = pools.iter().map(|pool| {
        #[expect(clippy::cast_precision_loss, reason = "shards of a cluster are few")]
        let replicas = pool.shards() as f64 * goal.max(0.0);
        replicas / pool.factor.max(1) as f64
    });
    let wanted = wanted.fold(0.0, f64::max).ceil().min(f64::from(TABLETS_MAX));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 0 to TABLETS_MAX"
    )]
    let wanted = wanted as u32;
    Ok(wanted.max(1).next_power_of_two())
}

/// The tablets of a new table: `initial` of them, rounded up to a power of two, or as few as [`even_tablet_count`]
/// says. Where there are fewer nodes than required copies, each has one.
///
/// # Errors
/// When no node can hold any, or there are to be too many.
pub fn first_tablets(
    topology: &Topology,
    replication: &Replication,
    initial: Option<u32>,
    load: &Load,
) -> Result<TabletMap, PlacementError> {
    let count = first_tablet_count(topology, replication, initial)?;
    place_tablets_beside(topology, &possible(topology, replication), count, load)
}

/// How many tablets [`first_tablets`] gives a table.
///
/// # Errors
/// As [`first_tablets`].
pub fn first_tablet_count(
    topology: &Topology,
    replication: &Replication,
    initial: Option<u32>,
) -> Result<u32, PlacementError> {
    match initial {
        Some(wanted) => wanted
            .max(1)
            .checked_next_power_of_two()
            .filter(|count| *count <= TABLETS_MAX)
            .ok_or(PlacementError::TabletCount(wanted)),
        None => even_tablet_count(topology, &possible(topology, replication)),
    }
}

/// The replication as far as there are nodes for it.
fn possible(topology: &Topology, replication: &Replication) -> Replication {
    let usable = || topology.members().filter(|n| topology.may_hold(n));
    let at_most = |factor: u16, nodes: usize| factor.min(u16::try_from(nodes).unwrap_or(u16::MAX));
    match replication {
        Replication::Simple { factor } => Replication::Simple {
            factor: at_most(*factor, usable().count()),
        },
        Replication::NetworkTopology(factors) => {
            let locations: Vec<_> = usable().map(|n| &n.location).collect();
            let possible = factors.iter().map(|(name, copies)| {
                let copies = match copies {
                    Copies::Count(factor) => {
                        let nodes = locations.iter().filter(|l| l.datacenter == *name).count();
                        Copies::Count(at_most(*factor, nodes))
                    }
                    Copies::Racks(racks) => {
                        let has_node = |rack: &&String| {
                            let mut here = locations.iter().filter(|l| l.datacenter == *name);
                            here.any(|l| l.rack == **rack)
                        };
                        Copies::Racks(racks.iter().filter(has_node).cloned().collect())
                    }
                };
                (name.clone(), copies)
            });
            Replication::NetworkTopology(possible.filter(|(_, copies)| copies.number() > 0).collect())
        }
        Replication::Local | Replication::Everywhere => replication.clone(),
    }
}

/// As few tablets as give every shard at least one and none over a tenth more than the average of its datacenter; where
/// that takes more than ten for each shard, those. Few tablets make large sstables; a table that grows is split.
///
/// # Errors
/// When the nodes do not suffice for the replication.
pub fn even_tablet_count(topology: &Topology, replication: &Replication) -> Result<u32, PlacementError> {
    let mut count = initial_tablet_count(topology, replication, 1)?;
    let most = initial_tablet_count(topology, replication, EVEN_PER_SHARD_MAX)?;
    while count < most {
        let mut pools = pools(topology, replication, &Load::default())?;
        let mut replicas = ReplicaList::new();
        for tablet in 0..count {
            replicas.clear();
            pools.iter_mut().for_each(|pool| pool.place(tablet, &mut replicas));
        }
        if pools.iter().all(Pool::is_even) {
            break;
        }
        count *= 2;
    }
    Ok(count)
}

/// Whether the loss of a rack takes at most one copy, and racks share the copies evenly: in each datacenter as many
/// copies as racks, or one. Materialized views and per-rack statements want that.
///
/// # Errors
/// The first datacenter where it is not so.
pub fn check_racks(topology: &Topology, replication: &Replication) -> Result<(), PlacementError> {
    let Replication::NetworkTopology(factors) = replication else {
        return Ok(());
    };
    for (datacenter, copies) in factors {
        let holders = topology.members().filter(|n| !topology.is_zero_token(n.host_id));
        let nodes = holders.filter(|n| n.location.datacenter == *datacenter);
        let racks: BTreeSet<&str> = nodes.map(|n| n.location.rack.as_str()).collect();
        if racks.is_empty() {
            return Err(unknown_datacenter(topology, datacenter));
        }
        match copies {
            Copies::Racks(listed) => check_listed(datacenter, listed, &racks)?,
            Copies::Count(factor) if *factor != 1 && usize::from(*factor) != racks.len() => {
                return Err(PlacementError::RackMismatch {
                    datacenter: datacenter.clone(),
                    factor: *factor,
                    racks: racks.len(),
                });
            }
            Copies::Count(_) => {}
        }
    }
    Ok(())
}

/// Refuses a list with a rack that has no node.
fn check_listed(datacenter: &str, listed: &[String], racks: &BTreeSet<&str>) -> Result<(), PlacementError> {
    match listed.iter().find(|rack| !racks.contains(rack.as_str())) {
        Some(rack) => Err(PlacementError::EmptyRack {
            datacenter: datacenter.to_owned(),
            rack: rack.clone(),
        }),
        None => Ok(()),
    }
}

pub(crate) fn unknown_datacenter(topology: &Topology, datacenter: &str) -> PlacementError {
    PlacementError::UnknownDatacenter {
        datacenter: datacenter.to_owned(),
        known: topology.datacenters_of_data().into_iter().map(str::to_owned).collect(),
    }
}

/// The nodes among which a number of copies is placed.
struct Pool {
    factor: usize,
    racks: Vec<Rack>,
}

struct Rack {
    key: u64,
    /// Copies of the table so far.
    tablets: u64,
    shards: u64,
    nodes: Vec<Candidate>,
    /// Copies of the tablet that is being placed.
    of_this_tablet: usize,
}

struct Candidate {
    number: NodeNumber,
    key: u64,
    tablets: u64,
    /// Tablets of other tables.
    others: u64,
    shards: Vec<ShardLoad>,
    has_this_tablet: bool,
}

/// Tablets of the table, then of others.
type ShardLoad = (u64, u64);

fn pools(topology: &Topology, replication: &Replication, load: &Load) -> Result<Vec<Pool>, PlacementError> {
    let usable = |n: &Node| topology.may_hold(n);
    match replication {
        Replication::Local => Err(PlacementError::Local),
        Replication::Simple { factor: 0 } => Ok(Vec::new()),
        Replication::Simple { factor } => pool(topology, load, None, *factor, usable).map(|p| vec![p]),
        Replication::Everywhere => {
            let nodes = topology.members().filter(|n| usable(n)).count();
            let factor = u16::try_from(nodes).unwrap_or(u16::MAX);
            pool(topology, load, None, factor, usable).map(|p| vec![p])
        }
        Replication::NetworkTopology(factors) => {
            let pools = factors
                .iter()
                .filter(|(_, copies)| copies.number() > 0)
                .map(|(datacenter, copies)| datacenter_pool(topology, load, datacenter, copies));
            pools.collect()
        }
    }
}

fn datacenter_pool(
    topology: &Topology,
    load: &Load,
    datacenter: &String,
    copies: &Copies,
) -> Result<Pool, PlacementError> {
    let here = |n: &Node| topology.may_hold(n) && n.location.datacenter == *datacenter;
    let Copies::Racks(listed) = copies else {
        return pool(topology, load, Some(datacenter), copies.number(), here);
    };
    if topology.datacenters_of_data().contains(datacenter.as_str()) {
        let racks = topology.members().filter(|n| here(n)).map(|n| n.location.rack.as_str());
        check_listed(datacenter, listed, &racks.collect())?;
    }
    // Each of these racks has a node, so the first copies go to one rack each, and there are no more copies than racks.
    let is_listed = |n: &Node| here(n) && listed.contains(&n.location.rack);
    pool(topology, load, Some(datacenter), copies.number(), is_listed)
}

fn pool(
    topology: &Topology,
    load: &Load,
    datacenter: Option<&String>,
    factor: u16,
    may_hold: impl Fn(&Node) -> bool,
) -> Result<Pool, PlacementError> {
    if let Some(name) = datacenter
        && !topology.datacenters_of_data().contains(name.as_str())
    {
        return Err(unknown_datacenter(topology, name));
    }
    let mut racks: BTreeMap<_, Vec<Candidate>> = BTreeMap::new();
    let mut nodes = 0;
    for (number, node) in topology.numbered_nodes().filter(|(_, n)| may_hold(n)) {
        let shards: Vec<ShardLoad> = load.shards(number, node.shards).into_iter().map(|l| (0, l)).collect();
        racks.entry(&node.location).or_default().push(Candidate {
            number,
            key: mix(u64::from(number.0), 1),
            tablets: 0,
            others: shards.iter().map(|s| s.1).sum(),
            shards,
            has_this_tablet: false,
        });
        nodes += 1;
    }
    if nodes < usize::from(factor) || nodes == 0 {
        return Err(PlacementError::NotEnoughNodes {
            datacenter: datacenter.cloned(),
            factor,
            nodes,
        });
    }
    let racks = racks.into_values().zip(0..).map(|(nodes, at)| Rack {
        key: mix(at, 2),
        tablets: 0,
        shards: nodes.iter().map(|n| n.shards.len() as u64).sum(),
        nodes,
        of_this_tablet: 0,
    });
    Ok(Pool {
        factor: usize::from(factor),
        racks: racks.collect(),
    })
}

impl Pool {
    fn shards(&self) -> u64 {
        self.racks.iter().map(|r| r.shards).sum()
    }

    /// Whether no shard holds over a tenth more than the average.
    fn is_even(&self) -> bool {
        let shards = self.racks.iter().flat_map(|r| &r.nodes).flat_map(|n| &n.shards);
        let most = shards.map(|(tablets, _)| *tablets).max().unwrap_or(0);
        let all: u64 = self.racks.iter().map(|r| r.tablets).sum();
        most * self.shards() * 10 <= all * 11
    }

    /// Adds the copies of one tablet.
    fn place(&mut self, tablet: u32, replicas: &mut ReplicaList) {
        let tablet = u64::from(tablet);
        for rack in &mut self.racks {
            rack.of_this_tablet = 0;
            for node in &mut rack.nodes {
                node.has_this_tablet = false;
            }
        }
        for _ in 0..self.factor {
            let free = self.racks.iter_mut().filter(|r| r.of_this_tablet < r.nodes.len());
            let rack = free
                .min_by(|a, b| {
                    let fewest = a.of_this_tablet.cmp(&b.of_this_tablet);
                    let emptiest = || per_shard(a.tablets, a.shards, b.tablets, b.shards);
                    fewest
                        .then_with(emptiest)
                        .then_with(|| mix(a.key, tablet).cmp(&mix(b.key, tablet)))
                })
                .expect("the pool has as many nodes as copies");
            rack.of_this_tablet += 1;
            rack.tablets += 1;
            replicas.push(rack.place(tablet));
        }
    }
}

impl Rack {
    fn place(&mut self, tablet: u64) -> Replica {
        let free = self.nodes.iter_mut().filter(|n| !n.has_this_tablet);
        let node = free
            .min_by(|a, b| {
                let (a_shards, b_shards) = (a.shards.len() as u64, b.shards.len() as u64);
                let emptiest = per_shard(a.tablets, a_shards, b.tablets, b_shards);
                let others = || per_shard(a.others, a_shards, b.others, b_shards);
                emptiest
                    .then_with(others)
                    .then_with(|| mix(a.key, tablet).cmp(&mix(b.key, tablet)))
            })
            .expect("the rack has a free node");
        node.has_this_tablet = true;
        node.tablets += 1;
        let shards = node.shards.iter_mut().zip(0_u16..);
        let (load, shard) = shards
            .min_by_key(|(load, shard)| (**load, *shard))
            .expect("a node has a shard");
        load.0 += 1;
        Replica {
            node: node.number,
            shard,
        }
    }
}

/// Whose shards would hold less with one tablet more.
fn per_shard(a: u64, a_shards: u64, b: u64, b_shards: u64) -> Ordering {
    ((a + 1) * b_shards).cmp(&((b + 1) * a_shards))
}

/// Mixes two numbers well enough to break ties.
fn mix(a: u64, b: u64) -> u64 {
    scramble(a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.wrapping_add(0xd1b5_4a32_d192_ed03))
}
