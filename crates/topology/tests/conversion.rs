//! Tables that go from the token ring to tablets and back: plans are carried out on random clusters until nothing is
//! left to do.

use std::collections::{BTreeMap, BTreeSet};

use crate::common;
use crate::common::holders;
use stdx::random::SplitMix64;
use topology::{
    Boundaries, Conversion, Copies, Limits, NodeInput, NodeNumber, Options, Plan, Replica, ReplicaList, Replication,
    Role, TableInput, TabletChange, TabletEdit, TabletMap, Topology, UnmetReason, plan, ring_map,
};

struct World {
    topology: Topology,
    nodes: Vec<NodeInput>,
    replication: Replication,
    map: TabletMap,
    sizes: Vec<u64>,
    limits: Limits,
}

/// A cluster of one datacenter whose nodes have random racks, shards and tokens.
fn random_topology(random: &mut SplitMix64) -> Topology {
    let racks = 1 + random.below(4);
    let mut text = String::new();
    for _ in 0..2 + random.below(6) {
        let tokens: BTreeSet<i64> = (0..1 + random.below(8)).map(|_| random.draw().cast_signed()).collect();
        let tokens: Vec<String> = tokens.iter().map(ToString::to_string).collect();
        let (rack, shards) = (random.below(racks), 1 + random.below(4));
        text += &format!("n dc r{rack} shards={shards} tokens={}\n", tokens.join(","));
    }
    common::cluster(&text).topology
}

fn racks_of(topology: &Topology, replicas: &[Replica]) -> usize {
    let rack = |replica: &Replica| topology.numbered(replica.node).expect("a node").location.rack.clone();
    replicas.iter().map(rack).collect::<BTreeSet<_>>().len()
}

fn random_limits(random: &mut SplitMix64) -> Limits {
    match random.below(3) {
        0 => Limits::NONE,
        1 => Limits::default(),
        _ => Limits {
            per_node_in: 1,
            per_node_out: 1,
            per_node_shard_moves: 1,
            total: 3,
        },
    }
}

impl World {
    /// A table of the ring that begins to go to tablets.
    fn random(random: &mut SplitMix64) -> Self {
        let topology = random_topology(random);
        let count = topology.members().count() as u64;
        let factor = 1 + random.below(count.min(4)) as u16;
        let replication = Replication::NetworkTopology([("dc".to_owned(), Copies::Count(factor))].into());
        let ring = ring_map(&topology, &replication).expect("nodes have tokens");
        let log2 = random.below(6) as u8;
        let map = ring.cut(1000, &Boundaries::PowerOfTwo(log2)).expect("nothing moves");
        let limits = random_limits(random);
        let mut world = Self {
            nodes: holders(&topology),
            topology,
            replication,
            map,
            sizes: Vec::new(),
            limits,
        };
        world.draw_sizes(random);
        world
    }

    fn draw_sizes(&mut self, random: &mut SplitMix64) {
        let is_known = !random.one_in(4);
        let sizes = (0..self.map.tablet_count()).filter(|_| is_known);
        self.sizes = sizes.map(|_| random.below(10 << 30)).collect();
    }

    fn ring(&self) -> TabletMap {
        ring_map(&self.topology, &self.replication).expect("nodes have tokens")
    }

    fn plan(&self, conversion: Conversion<'_>) -> Plan {
        let table = TableInput {
            map: &self.map,
            replication: &self.replication,
            sizes: &self.sizes,
            load: &[],
            tablet_count_min: 1,
            tablet_count_wanted: 0,
            tablet_count_max: u32::MAX,
            may_resize: true,
            conversion: Some(conversion),
        };
        let tables = [table];
        let made = plan(&self.topology, &self.nodes, &tables, &self.limits, &Options::default());
        let again = plan(&self.topology, &self.nodes, &tables, &self.limits, &Options::default());
        assert_eq!(made, again, "the same input gives another plan");
        made
    }

    /// Carries the moves of a plan out, and checks each. The bytes that went to other nodes.
    fn apply(&mut self, plan: &Plan) -> u64 {
        let mut received: BTreeMap<NodeNumber, u32> = BTreeMap::new();
        let mut copied = 0;
        let mut touched = BTreeSet::new();
        let mut edits = Vec::new();
        for moved in &plan.relocations {
            assert!(touched.insert(moved.tablet), "a piece moves twice");
            let before = self.map.tablet(moved.tablet).expect("a piece").replicas;
            let nodes: BTreeSet<_> = moved.next.iter().map(|r| r.node).collect();
            assert_eq!(nodes.len(), moved.next.len(), "two replicas on a node");
            assert_eq!(moved.next.len(), before.len(), "another number of copies");
            assert!(racks_of(&self.topology, &moved.next) >= racks_of(&self.topology, before));
            let is_new = |r: &&Replica| before.iter().all(|b| b.node != r.node);
            let changes_nodes = moved.next.iter().any(|r| is_new(&r));
            for replica in &moved.next {
                let stays = before.iter().find(|b| b.node == replica.node);
                match stays {
                    Some(stays) => assert!(!changes_nodes || stays == replica, "shards change with nodes"),
                    None => {
                        *received.entry(replica.node).or_default() += 1;
                        copied += self.sizes.get(moved.tablet.0 as usize).copied().unwrap_or(0);
                    }
                }
                assert!(replica.shard < self.topology.numbered(replica.node).expect("a node").shards);
            }
            edits.push(TabletEdit {
                tablet: moved.tablet,
                replicas: moved.next.clone(),
                transition: None,
            });
        }
        assert!(received.values().all(|count| *count <= self.limits.per_node_in));
        edits.sort_by_key(|edit| edit.tablet);
        let change = TabletChange {
            from_version: self.map.version(),
            version: self.map.version() + 1,
            edits,
        };
        self.map.apply(&change).expect("these are its pieces");
        copied
    }

    /// Carries plans out until nothing is to be done; how many it took.
    fn settle(&mut self, to_ring: bool) -> usize {
        let ring = self.ring();
        let most = self.map.tablet_count() as usize * 10 + 10;
        for round in 0..most {
            let conversion = if to_ring {
                Conversion::ToRing(&ring)
            } else {
                Conversion::Align
            };
            let plan = self.plan(conversion);
            assert!(plan.unmet.is_empty(), "{:?}", plan.unmet);
            assert!(plan.steps.is_empty(), "{:?}", plan.steps);
            if plan.relocations.is_empty() {
                assert_eq!(plan.deferred, 0);
                return round;
            }
            self.apply(&plan);
        }
        panic!("it does not end after {most} plans");
    }
}

#[test]
fn a_table_of_the_ring_comes_to_tablets_of_equal_size_and_back() {
    for seed in 0..300 {
        let random = &mut SplitMix64::new(seed);
        let mut world = World::random(random);
        let cut = world.map.clone();
        world.settle(false);
        let equal = world.map.aligned(5000).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(equal.boundaries(), &Boundaries::PowerOfTwo(cut.whole_tablets()));
        // As good among racks as the ring.
        let least = cut.tablets().map(|t| racks_of(&world.topology, t.replicas)).min();
        assert!(equal.tablets().map(|t| racks_of(&world.topology, t.replicas)).min() >= least);

        let ring = world.ring();
        world.map = equal.cut(6000, ring.boundaries()).expect("nothing moves");
        world.draw_sizes(random);
        world.settle(true);
        assert!(world.map.says_the_same(&ring), "seed {seed}");
    }
}

#[test]
fn a_group_goes_to_where_most_of_its_bytes_are() {
    let random = &mut SplitMix64::new(7);
    let mut seen = 0;
    for _ in 0..200 {
        let mut world = World::random(random);
        world.limits = Limits::NONE;
        // Where racks differ, a set that is better spread may cost more.
        let racks: BTreeSet<&str> = world.topology.members().map(|node| &*node.location.rack).collect();
        if world.sizes.is_empty() || racks.len() > 1 {
            continue;
        }
        // What each replica set would cost, group by group, if all pieces went there.
        let groups = Boundaries::PowerOfTwo(world.map.whole_tablets());
        let equal = TabletMap::new(
            1,
            groups.clone(),
            &vec![ReplicaList::new(); groups.tablet_count() as usize],
        );
        let equal = equal.expect("a map");
        let mut least = 0;
        for group in 0..groups.tablet_count() {
            let range = |id| world.map.token_range(id).expect("a piece").1;
            let pieces = world
                .map
                .tablets()
                .filter(|piece| equal.tablet_id(range(piece.id)).0 == group);
            let pieces: Vec<_> = pieces.collect();
            let cost = |goal: &[Replica]| -> u64 {
                let of = pieces.iter().map(|piece| {
                    let is_new = |to: &&Replica| piece.replicas.iter().all(|r| r.node != to.node);
                    // An empty tablet weighs something, too.
                    goal.iter().filter(is_new).count() as u64 * (world.sizes[piece.id.0 as usize] + (1 << 20))
                });
                of.sum()
            };
            least += pieces.iter().map(|piece| cost(piece.replicas)).min().unwrap_or(0);
        }
        let plan = world.plan(Conversion::Align);
        seen += 1;
        let weights = plan.relocations.iter().map(|moved| {
            let before = world.map.tablet(moved.tablet).expect("a piece").replicas;
            let is_new = |r: &&Replica| before.iter().all(|b| b.node != r.node);
            let size = world.sizes[moved.tablet.0 as usize] + (1 << 20);
            moved.next.iter().filter(is_new).count() as u64 * size
        });
        assert_eq!(weights.sum::<u64>(), least);
    }
    assert!(seen > 20, "{seen} clusters were looked at");
}

#[test]
fn pieces_with_a_replica_on_a_node_that_is_down_wait_and_it_is_said_for_whom() {
    let random = &mut SplitMix64::new(11);
    let mut waited = 0;
    for _ in 0..100 {
        let mut world = World::random(random);
        world.limits = Limits::NONE;
        world.nodes[0].role = Role::Down;
        let down = world.nodes[0].number;
        let plan = world.plan(Conversion::Align);
        for moved in &plan.relocations {
            let before = world.map.tablet(moved.tablet).expect("a piece").replicas;
            let on = |replicas: &[Replica]| replicas.iter().any(|replica| replica.node == down);
            let changes_nodes = moved.next.iter().any(|r| before.iter().all(|b| b.node != r.node));
            assert!(!on(&moved.next) || !changes_nodes);
        }
        let is_said = |unmet: &topology::Unmet| unmet.reason == UnmetReason::NodeDown { node: down };
        waited += usize::from(plan.unmet.iter().any(is_said));
        // Once the node is back, everything continues.
        world.nodes[0].role = Role::Holds;
        world.settle(false);
        assert!(world.map.aligned(5000).is_ok());
    }
    assert!(waited > 10, "{waited} waited");
}

#[test]
fn nothing_moves_to_a_node_that_joins_and_nothing_of_a_table_that_is_about_to_be_cut() {
    let random = &mut SplitMix64::new(12);
    for _ in 0..50 {
        let mut world = World::random(random);
        world.settle(false);
        let ring = world.ring();
        world.map = world.map.cut(6000, ring.boundaries()).expect("nothing moves");
        world.limits = Limits::NONE;
        assert!(world.plan(Conversion::Rest).relocations.is_empty());
        world.nodes[0].role = Role::Idle;
        let idle = world.nodes[0].number;
        let plan = world.plan(Conversion::ToRing(&ring));
        for moved in &plan.relocations {
            let before = world.map.tablet(moved.tablet).expect("a piece").replicas;
            let arrives = moved.next.iter().any(|r| r.node == idle) && before.iter().all(|b| b.node != idle);
            assert!(!arrives, "{moved:?}");
        }
    }
}

#[test]
fn a_table_whose_tablets_are_pieces_is_neither_levelled_nor_resized() {
    let random = &mut SplitMix64::new(13);
    for _ in 0..50 {
        let mut world = World::random(random);
        world.settle(false);
        world.sizes = vec![100 << 30; world.map.tablet_count() as usize];
        let plan = world.plan(Conversion::Align);
        assert!(plan.steps.is_empty() && plan.relocations.is_empty(), "{plan:?}");
    }
}
