//! The balancer: random clusters that plans are carried out on.

use std::collections::{BTreeMap, BTreeSet};

use crate::common;
use crate::common::holders;
use crate::common::world::{Table, World};
use stdx::random::SplitMix64;
use topology::{Copies, Limits, NodeNumber, Plan, Replica, ReplicaList, Replication, Role, Topology, place_tablets};

const GIB: u64 = 1 << 30;

/// A cluster of nodes given by datacenter, rack and shards.
fn topology(nodes: &[(String, String, u16)]) -> Topology {
    let line = |(datacenter, rack, shards): &(String, String, u16)| format!("n {datacenter} {rack} shards={shards}\n");
    common::cluster(&nodes.iter().map(line).collect::<String>()).topology
}

/// A random cluster with random copies: nothing is as it should be.
fn random_world(random: &mut SplitMix64) -> World {
    let mut nodes = Vec::new();
    let datacenters = 1 + random.below(2);
    for datacenter in 0..datacenters {
        for rack in 0..=random.below(4) {
            for _ in 0..=random.below(4) {
                let shards = [1, 2, 4, 4, 8][random.below(5) as usize];
                nodes.push((format!("dc{datacenter}"), format!("r{rack}"), shards));
            }
        }
    }
    let topology = topology(&nodes);
    let mut inputs = holders(&topology);
    let has_roles = random.one_in(2);
    let knows_capacity = random.one_in(2);
    for input in &mut inputs {
        if has_roles {
            input.role = match random.below(12) {
                0 => Role::Drains,
                1 => Role::Lost,
                2 => Role::Idle,
                3 => Role::Down,
                _ => Role::Holds,
            };
        }
        if knows_capacity {
            input.capacity_bytes = (1 + random.below(2)) * 100_000 * GIB;
        }
    }
    let tables = (0..=random.below(3))
        .map(|_| random_table(random, &topology, nodes.len()))
        .collect();
    World::new(topology, inputs, tables)
}

fn random_table(random: &mut SplitMix64, topology: &Topology, nodes: usize) -> Table {
    let replication = random_replication(random, topology);
    let count = 1 << (2 + random.below(6));
    let copies = 1 + random.below(4) as usize;
    let tablets = (0..count).map(|_| {
        let mut set = ReplicaList::new();
        for _ in 0..copies {
            let node = NodeNumber(random.below(nodes as u64) as u16);
            let shards = topology.numbered(node).expect("one of them").shards;
            let shard = random.below(u64::from(shards)) as u16;
            if set.iter().all(|r| r.node != node) {
                set.push(Replica { node, shard });
            }
        }
        set
    });
    let tablets: Vec<ReplicaList> = tablets.collect();
    let kind = random.below(3);
    let sizes = tablets.iter().map(|_| match kind {
        0 => GIB,
        1 => random.below(2 * GIB),
        _ => GIB / (1 + random.below(50)),
    });
    let sizes = sizes.collect();
    let is_loaded = random.one_in(2);
    let load = tablets.iter().map(|_| {
        if is_loaded {
            20_000.0 / (1 + random.below(20)) as f32
        } else {
            0.0
        }
    });
    let load = load.collect();
    Table {
        replication,
        tablets,
        transitions: BTreeMap::new(),
        sizes,
        load,
        tablet_count_min: 0,
        tablet_count_wanted: 0,
        tablet_count_max: u32::MAX,
        may_resize: true,
    }
}

fn random_replication(random: &mut SplitMix64, topology: &Topology) -> Replication {
    let factor = 1 + random.below(4) as u16;
    match random.below(8) {
        0 => Replication::Simple { factor },
        1 => Replication::Everywhere,
        _ => {
            let mut factors: BTreeMap<String, Copies> = BTreeMap::new();
            for datacenter in topology.datacenters() {
                let copies = match random.below(4) {
                    0 => {
                        let members = topology.members().filter(|n| n.location.datacenter == datacenter);
                        let racks: BTreeSet<String> = members.map(|n| n.location.rack.clone()).collect();
                        Copies::Racks(racks.into_iter().filter(|_| random.one_in(2)).collect())
                    }
                    1 => Copies::Count(0),
                    _ => Copies::Count(1 + random.below(4) as u16),
                };
                factors.insert(datacenter.to_owned(), copies);
            }
            factors.retain(|_, copies| copies.number() > 0);
            if factors.is_empty() {
                factors.insert("dc0".to_owned(), Copies::Count(factor));
            }
            Replication::NetworkTopology(factors)
        }
    }
}

/// No tablet has what it should not have, unless the plan says why.
fn check_settled(world: &World, last: &Plan) {
    assert_eq!(
        last.deferred, 0,
        "something waits for limits although nothing is under way"
    );
    for (at, table) in world.tables.iter().enumerate() {
        if last.unmet.iter().any(|unmet| unmet.table == at) {
            continue;
        }
        for tablet in &table.tablets {
            for replica in tablet {
                let role = world.role(replica.node);
                assert!(
                    !matches!(role, Role::Lost | Role::Drains),
                    "{replica:?} stays on {role:?}"
                );
            }
            match &table.replication {
                Replication::Simple { factor } => assert_eq!(tablet.len(), usize::from(*factor)),
                Replication::NetworkTopology(factors) => {
                    for datacenter in world.topology.datacenters() {
                        let wanted = factors.get(datacenter).map_or(0, Copies::number);
                        let here = tablet.iter().filter(|r| world.location(r.node).0 == datacenter);
                        assert_eq!(
                            here.clone().count(),
                            usize::from(wanted),
                            "in {datacenter}: {tablet:?} of {factors:?}"
                        );
                        let Some(Copies::Racks(racks)) = factors.get(datacenter) else {
                            continue;
                        };
                        let found: BTreeSet<&str> = here.map(|r| world.location(r.node).1).collect();
                        let listed: BTreeSet<&str> = racks.iter().map(String::as_str).collect();
                        let is_fixed = |r: &Replica| world.role(r.node) != Role::Holds;
                        assert!(
                            found == listed || tablet.iter().any(is_fixed),
                            "{found:?} for {listed:?}"
                        );
                    }
                }
                Replication::Everywhere | Replication::Local => {}
            }
        }
    }
}

/// Plans of one step per tablet that a tablet may need: a copy for each node, and some for the rest.
fn rounds_max(world: &World) -> usize {
    world.nodes.len() + 25
}

#[test]
fn random_clusters_settle_whatever_is_wrong_with_them() {
    let (mut longest, mut moves, mut returns) = (0, [0; 2], [0; 2]);
    for seed in testkit::seeds(0..400) {
        let mut random = SplitMix64::new(seed);
        let mut world = random_world(&mut random);
        // Splits and merges have a test of their own.
        world.options.tablet_bytes_goal = 0;
        world.options.split_per_shard_max = 0;
        let is_limited = random.one_in(3);
        if is_limited {
            world.limits = Limits {
                per_node_in: 4,
                per_node_out: 4,
                per_node_shard_moves: 8,
                total: 64,
            };
        }
        println!("seed {seed}: {} nodes, limited: {is_limited}", world.nodes.len());
        let plans = world.settle(if is_limited { 1000 } else { rounds_max(&world) });
        if !is_limited {
            longest = longest.max(plans.len());
        }
        let last = plans.last().expect("at least one");
        check_settled(&world, last);
        let is_loaded = usize::from(world.tables.iter().any(|t| t.load.iter().any(|l| *l > 0.0)));
        moves[is_loaded] += world.moves;
        returns[is_loaded] += world.returns;
    }
    println!("at most {longest} plans without limits");
    println!(
        "moves by bytes alone {}, of these back {}; with load {}, back {}",
        moves[0], returns[0], moves[1], returns[1]
    );
    // A later plan may improve on an earlier one when tablets are few and of different size, never in a circle: every
    // world settled.
    assert!(
        returns[0] * 20 <= moves[0] && returns[1] * 10 <= moves[1],
        "plans undo each other"
    );
}

/// A cluster of one datacenter with 3 racks, even capacities and copies as `place_tablets` puts them.
fn even_world(random: &mut SplitMix64) -> World {
    let nodes_per_rack = 2 + random.below(4);
    let shards = [2, 4][random.below(2) as usize];
    let mut nodes = Vec::new();
    for _ in 0..nodes_per_rack {
        for rack in 0..3 {
            nodes.push(("dc1".to_owned(), format!("r{rack}"), shards));
        }
    }
    let topology = topology(&nodes);
    let replication = Replication::NetworkTopology([("dc1".to_owned(), Copies::Count(3))].into());
    let count = 512;
    let map = place_tablets(&topology, &replication, count).expect("there are nodes");
    let is_even = random.one_in(2);
    let size = |_| if is_even { GIB } else { GIB / 2 + random.below(GIB) };
    let table = Table {
        replication,
        tablets: map.tablets().map(|t| t.replicas.into()).collect(),
        transitions: BTreeMap::new(),
        sizes: (0..count).map(size).collect(),
        load: Vec::new(),
        tablet_count_min: 0,
        tablet_count_wanted: 0,
        tablet_count_max: u32::MAX,
        may_resize: true,
    };
    let inputs = holders(&topology);
    let mut world = World::new(topology, inputs, vec![table]);
    world.options.tablet_bytes_goal = 0;
    world
}

/// The largest relative distance from the average of the holders of a rack, and what one tablet is of that average.
fn distance(world: &World) -> (f64, f64) {
    let weights = world.weights();
    let (mut worst, mut grain): (f64, f64) = (0.0, 0.0);
    let largest = world.tables.iter().flat_map(|t| &t.sizes).max().copied().unwrap_or(0) as f64;
    for rack in ["r0", "r1", "r2"] {
        let here = weights.iter().filter(|(node, _)| world.location(**node).1 == rack);
        let held: Vec<f64> = here
            .filter(|(n, _)| world.role(**n) == Role::Holds)
            .map(|(_, w)| *w)
            .collect();
        let average = held.iter().sum::<f64>() / held.len() as f64;
        for weight in held {
            worst = worst.max((weight / average - 1.0).abs());
        }
        grain = grain.max(largest / average);
    }
    (worst, grain)
}

#[test]
fn a_change_of_the_nodes_moves_hardly_more_than_it_must() {
    let mut worst_ratio: f64 = 0.0;
    for seed in testkit::seeds(0..60) {
        let mut random = SplitMix64::new(seed);
        let mut world = even_world(&mut random);
        // Uneven sizes are levelled first.
        world.settle(25);
        let before = world.weights();
        let victim = NodeNumber(random.below(3) as u16);
        let kind = random.below(3);
        let least = match kind {
            0 => {
                world.nodes[victim.index()].role = Role::Drains;
                before[&victim]
            }
            1 => {
                world.nodes[victim.index()].role = Role::Lost;
                before[&victim]
            }
            _ => {
                // The victim was drained before, and comes back empty.
                world.nodes[victim.index()].role = Role::Drains;
                world.settle(25);
                world.nodes[victim.index()].role = Role::Holds;
                before[&victim]
            }
        };
        let plans = world.settle(25);
        let copied: u64 = plans.iter().map(|p| p.copied_bytes).sum();
        let ratio = copied as f64 / least;
        let (worst, grain) = distance(&world);
        println!(
            "seed {seed}: kind {kind}, {} plans, copied {ratio:.3} of the least, off by {worst:.4}",
            plans.len()
        );
        worst_ratio = worst_ratio.max(ratio);
        assert!(worst <= f64::max(0.05, grain), "off by {worst}, one tablet is {grain}");
        let shard = plans.last().expect("one").bytes_before.shard;
        let shards = f64::from(world.topology.numbered(victim).expect("it exists").shards);
        assert!(shard <= f64::max(0.05, grain * shards), "shards off by {shard}");
    }
    println!("at most {worst_ratio:.3} of the least is copied");
    assert!(worst_ratio <= 1.1, "{worst_ratio}");
}

#[test]
fn tables_are_split_and_merged_until_their_tablets_are_of_the_size_wanted() {
    for seed in testkit::seeds(0..30) {
        let mut random = SplitMix64::new(seed);
        let mut world = even_world(&mut random);
        world.options.tablet_bytes_goal = 5 * GIB;
        let factor = [0.02, 0.3, 1.0, 30.0][random.below(4) as usize];
        for size in &mut world.tables[0].sizes {
            *size = (*size as f64 * factor) as u64;
        }
        let is_limited = random.one_in(2);
        if is_limited {
            world.limits.per_node_in = 8;
        }
        let plans = world.settle(300);
        let table = &world.tables[0];
        let average = table.sizes.iter().sum::<u64>() / table.sizes.len() as u64;
        println!(
            "seed {seed}: factor {factor}, {} plans, {} tablets of {average}",
            plans.len(),
            table.sizes.len()
        );
        assert!(average <= 10 * GIB, "tablets are too large");
        let shards: u32 = world.topology.members().map(|n| u32::from(n.shards)).sum();
        let per_shard = table.tablets.len() as f64 * 3.0 / f64::from(shards);
        assert!(average >= 5 * GIB / 2 || per_shard < 20.0, "tablets are too small");
        assert!(per_shard >= 10.0, "too few tablets");
    }
}

#[test]
fn a_hot_tablet_is_split_and_the_load_is_levelled() {
    let mut random = SplitMix64::new(7);
    let mut world = even_world(&mut random);
    world.options.split_per_shard_max = 10_000;
    let load = &mut world.tables[0].load;
    *load = vec![500.0; 512];
    load[77] = 1_000_000.0;
    let plans = world.settle(60);
    let last = plans.last().expect("one");
    assert!(
        world.tables[0].tablets.len() > 512,
        "the hot tablet's table is not split"
    );
    assert!(last.load_before.node < 0.5, "{last:?}");
    assert!(last.bytes_before.node < 0.05, "{last:?}");
}
