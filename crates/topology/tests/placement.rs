//! Clusters and keyspaces as text, replicas as text.

use std::collections::{BTreeMap, BTreeSet};

use crate::common;
use crate::common::{Cluster, cluster};
use smallvec::SmallVec;
use topology::{
    Copies, Load, PlacementError, Replica, ReplicaList, Replication, Stage, TabletChange, TabletEdit, TabletMap,
    Transition, check_racks, first_tablets, initial_tablet_count, place_tablets, place_tablets_beside, ring_map,
};
use types::Token;

/// `class` and `key:value`s.
fn options(text: &str) -> BTreeMap<String, String> {
    let mut words = text.split_whitespace();
    let class = words.next().map(|class| ("class".to_owned(), class.to_owned()));
    let pairs = words.map(|w| w.split_once(':').expect("key:value"));
    class
        .into_iter()
        .chain(pairs.map(|(k, v)| (k.to_owned(), v.to_owned())))
        .collect()
}

fn replication(cluster: &Cluster, text: &str) -> Replication {
    Replication::parse(&options(text), &cluster.topology.datacenters()).expect("a replication")
}

/// A line per tablet whose replicas differ from those before: last token, replicas, and after an arrow those after its
/// move.
fn show(cluster: &Cluster, map: &TabletMap) -> String {
    let mut lines: Vec<(String, String)> = Vec::new();
    for tablet in map.tablets() {
        let (_, last) = map.token_range(tablet.id).expect("a tablet of the map");
        let mut line = cluster.show(tablet.replicas);
        if let Some(transition) = tablet.transition {
            line = format!("{line} -> {}", cluster.show(&transition.next));
        }
        let last = if last == Token::MAX {
            "max".to_owned()
        } else {
            last.to_string()
        };
        match lines.last_mut() {
            Some(before) if before.1 == line => before.0 = last,
            _ => lines.push((last, line)),
        }
    }
    lines.iter().map(|(last, line)| format!("{last}: {line}\n")).collect()
}

fn check_ring(story: &str, nodes: &str, keyspace: &str, expected: &str) {
    let cluster = cluster(nodes);
    let map = ring_map(&cluster.topology, &replication(&cluster, keyspace)).expect(story);
    let expected: String = expected.split('|').map(|line| format!("{}\n", line.trim())).collect();
    assert_eq!(show(&cluster, &map), expected, "{story}");
}

#[test]
fn ranges_of_the_ring_have_the_replicas_that_cassandra_gives_them() {
    let six = "a dc1 r1 tokens=0
               b dc1 r1 tokens=100
               c dc1 r2 tokens=200
               d dc1 r2 tokens=300
               e dc1 r3 tokens=400
               f dc1 r3 tokens=500";
    check_ring(
        "SimpleStrategy takes the next nodes and ignores racks; behind the last token the ring begins again",
        six,
        "SimpleStrategy replication_factor:3",
        "0: a b c | 100: b c d | 200: c d e | 300: d e f | 400: e f a | 500: f a b | max: a b c",
    );
    check_ring(
        "NetworkTopologyStrategy passes by a rack that it has",
        six,
        "NetworkTopologyStrategy dc1:3",
        "0: a c e | 100: b c e | 200: c e a | 300: d e a | 400: e a c | 500: f a c | max: a c e",
    );
    check_ring(
        "fewer copies than racks are in distinct racks",
        six,
        "NetworkTopologyStrategy dc1:2",
        "0: a c | 100: b c | 200: c e | 300: d e | 400: e a | 500: f a | max: a c",
    );
    check_ring(
        "with a rack too few, the first repeat that comes is taken",
        six,
        "NetworkTopologyStrategy dc1:4",
        "0: a b c e | 100: b c d e | 200: c d e a | 300: d e f a | 400: e f a c | 500: f a b c | max: a b c e",
    );
    check_ring(
        "a single rack is no restriction",
        "a dc1 r1 tokens=0
         b dc1 r1 tokens=100
         c dc1 r1 tokens=200",
        "NetworkTopologyStrategy dc1:2",
        "0: a b | 100: b c | 200: c a | max: a b",
    );
    check_ring(
        "more copies than nodes are as many copies as nodes",
        "a dc1 r1 tokens=0
         b dc1 r2 tokens=100",
        "NetworkTopologyStrategy dc1:3",
        "0: a b | 100: b a | max: a b",
    );
    check_ring(
        "a rack with one node of three takes no more than one copy",
        "a dc1 r1 tokens=0
         b dc1 r2 tokens=100
         c dc1 r2 tokens=200
         d dc1 r2 tokens=300",
        "NetworkTopologyStrategy dc1:3",
        "0: a b c | 100: b c a | 200: c d a | 300: d a b | max: a b c",
    );
    check_ring(
        "several tokens of a node are one replica",
        "a dc1 r1 tokens=0,10,200
         b dc1 r1 tokens=100,300",
        "SimpleStrategy replication_factor:2",
        "10: a b | 100: b a | 200: a b | 300: b a | max: a b",
    );
}

#[test]
fn ranges_of_several_datacenters_have_the_replicas_that_cassandra_gives_them() {
    check_ring(
        "datacenters have their own counts, and their replicas stand in the order of the ring",
        "a dc1 r1 tokens=0
         b dc2 r1 tokens=50
         c dc1 r2 tokens=100
         d dc2 r2 tokens=150
         e dc1 r1 tokens=200",
        "NetworkTopologyStrategy dc1:2 dc2:1",
        "0: a b c | 50: b c e | 100: c d e | 150: d e c | 200: e b c | max: a b c",
    );
    check_ring(
        "a datacenter without copies is passed by",
        "a dc1 r1 tokens=0
         b dc2 r1 tokens=50",
        "NetworkTopologyStrategy dc2:1",
        "max: b",
    );
    check_ring(
        "the same rack name in two datacenters is two racks",
        "a dc1 r1 tokens=0
         b dc2 r1 tokens=50",
        "NetworkTopologyStrategy replication_factor:1",
        "0: a b | 50: b a | max: a b",
    );
    check_ring(
        "EverywhereStrategy takes all",
        "a dc1 r1 tokens=0
         b dc2 r1 tokens=50
         c dc1 r1",
        "EverywhereStrategy",
        "0: a b | 50: b a | max: a b",
    );
}

#[test]
fn the_ring_is_cut_where_the_shard_changes() {
    check_ring(
        "a shard owns a contiguous part of all tokens, on each node by its own count",
        "a dc1 r1 tokens=100 shards=2
         b dc1 r2 tokens=-100 shards=3",
        "NetworkTopologyStrategy dc1:2",
        "-3074457345618258603: b/0 a/0 | -100: b/1 a/0 | -1: a/0 b/1 | 100: a/1 b/1 | \
         3074457345618258602: b/1 a/1 | max: b/2 a/1",
    );
    let cluster = cluster("a dc1 r1 tokens=7 shards=5");
    let map = ring_map(
        &cluster.topology,
        &replication(&cluster, "SimpleStrategy replication_factor:1"),
    )
    .expect("a map");
    for tablet in map.tablets() {
        let (after, last) = map.token_range(tablet.id).expect("a tablet");
        let first = if after == Token::MIN { after } else { Token(after.0 + 1) };
        for token in [first, last] {
            let shard = types::token::shard_of(token, 5, 0);
            assert_eq!(u32::from(tablet.replicas[0].shard), shard, "shard of token {token}");
        }
    }
}

#[test]
fn ranges_that_will_have_other_replicas_are_written_to_both() {
    check_ring(
        "a joining node is pending for what it will own, and read by nobody",
        "a dc1 r1 tokens=0
         b dc1 r1 tokens=100
         c dc1 r1 tokens=50 state=joining",
        "SimpleStrategy replication_factor:1",
        "0: a | 50: b -> c | 100: b | max: a",
    );
    check_ring(
        "a leaving node is read until it is gone",
        "a dc1 r1 tokens=0
         b dc1 r1 tokens=100
         c dc1 r1 tokens=200 state=leaving",
        "SimpleStrategy replication_factor:1",
        "0: a | 100: b | 200: c -> a | max: a",
    );
    check_ring(
        "an empty receiver owns nothing of the ring, joining or normal; a node that left neither",
        "a dc1 r1 tokens=0
         b dc1 r1 state=joining
         c dc1 r1
         d dc1 r1 tokens=77 state=left",
        "SimpleStrategy replication_factor:3",
        "max: a",
    );
}

/// Replicas of the map per node and per shard.
fn loads(map: &TabletMap) -> (BTreeMap<u16, u32>, BTreeMap<Replica, u32>) {
    let (mut nodes, mut shards) = (BTreeMap::new(), BTreeMap::new());
    for tablet in map.tablets() {
        for replica in tablet.replicas {
            *nodes.entry(replica.node.0).or_default() += 1;
            *shards.entry(*replica).or_default() += 1;
        }
    }
    (nodes, shards)
}

fn spread(loads: impl Iterator<Item = u32>) -> u32 {
    let loads: Vec<u32> = loads.collect();
    loads.iter().max().expect("a load") - loads.iter().min().expect("a load")
}

#[test]
fn tablets_are_balanced_over_nodes_and_shards_and_apart_in_racks() {
    // Datacenter, and the nodes of each of its racks.
    type Case = (&'static str, &'static str, &'static [&'static [usize]], u32, u16);
    let cases: [Case; 8] = [
        ("one node", "dc1:1", &[&[1]], 1, 8),
        ("three racks, three copies", "dc1:3", &[&[2, 2, 2]], 3, 4),
        ("racks of unequal size", "dc1:3", &[&[1, 2, 5]], 3, 3),
        ("more racks than copies", "dc1:2", &[&[2, 2, 2, 2]], 2, 2),
        ("fewer racks than copies", "dc1:3", &[&[3, 3]], 3, 2),
        ("one rack", "dc1:3", &[&[5]], 3, 2),
        ("a rack too small for its share", "dc1:3", &[&[1, 4]], 3, 2),
        ("two datacenters", "dc1:3 dc2:2", &[&[2, 2, 2], &[3, 1]], 5, 4),
    ];
    for (story, factors, datacenters, copies, shards) in cases {
        let mut text = String::new();
        for (dc, racks) in (1..).zip(datacenters) {
            for (rack, nodes) in (1..).zip(*racks) {
                for n in 0..*nodes {
                    text += &format!("n{dc}{rack}{n} dc{dc} r{rack} shards={shards}\n");
                }
            }
        }
        let cluster = cluster(&text);
        let keyspace = replication(&cluster, &format!("NetworkTopologyStrategy {factors}"));
        for count in [1, 16, 256, 1024] {
            let map = place_tablets(&cluster.topology, &keyspace, count).expect(story);
            check_racks_of(story, &cluster, &map, factors);
            let (by_node, by_shard) = loads(&map);
            assert_eq!(
                by_node.values().sum::<u32>(),
                count * copies,
                "{story}: all copies are placed"
            );
            let mut racks: BTreeMap<_, Vec<u32>> = BTreeMap::new();
            for (number, node) in cluster.topology.numbered_nodes() {
                let of_node = by_node.get(&number.0).copied().unwrap_or(0);
                racks.entry(&node.location).or_default().push(of_node);
                let of_shard = |shard| by_shard.get(&Replica { node: number, shard }).copied().unwrap_or(0);
                let unevenness = spread((0..shards).map(of_shard));
                assert!(
                    unevenness <= 1,
                    "{story}: shards of node {number:?} differ by {unevenness}"
                );
            }
            for (location, of_nodes) in racks {
                let unevenness = spread(of_nodes.iter().copied());
                assert!(unevenness <= 1, "{story}: nodes of {location:?} hold {of_nodes:?}");
            }
        }
    }
}

/// No rack has two copies of a tablet while another rack with a free node has none.
fn check_racks_of(story: &str, cluster: &Cluster, map: &TabletMap, factors: &str) {
    for tablet in map.tablets() {
        let mut used: BTreeMap<_, (usize, usize)> = BTreeMap::new();
        for (number, node) in cluster.topology.numbered_nodes() {
            let rack = used.entry(&node.location).or_default();
            rack.0 += usize::from(tablet.replicas.iter().any(|r| r.node == number));
            rack.1 += 1;
        }
        for factor in factors.split(' ') {
            let (datacenter, factor) = factor.split_once(':').expect("dc:factor");
            let of_dc: Vec<_> = used.iter().filter(|(l, _)| l.datacenter == datacenter).collect();
            let copies: usize = of_dc.iter().map(|(_, (copies, _))| copies).sum();
            assert_eq!(
                copies.to_string(),
                factor,
                "{story}: copies of {:?} in {datacenter}",
                tablet.id
            );
            let crowded = of_dc.iter().map(|(_, (copies, _))| *copies).max().expect("a rack");
            for (location, (copies, nodes)) in of_dc {
                assert!(
                    copies + 1 >= crowded || copies == nodes,
                    "{story}: {:?} has {copies} copies in {location:?} with {nodes} nodes, and {crowded} in another rack",
                    tablet.id
                );
            }
        }
    }
}

#[test]
fn a_node_with_twice_the_shards_holds_twice_the_tablets() {
    let cluster = cluster(
        "a dc1 r1 shards=8
         b dc1 r1 shards=4
         c dc1 r1 shards=4",
    );
    let keyspace = replication(&cluster, "NetworkTopologyStrategy dc1:1");
    let map = place_tablets(&cluster.topology, &keyspace, 64).expect("a map");
    assert_eq!(loads(&map).0, BTreeMap::from([(0, 32), (1, 16), (2, 16)]));
}

#[test]
fn tables_of_one_tablet_do_not_pile_up_on_one_node() {
    let cluster = cluster(
        "a dc1 r1 shards=2
         b dc1 r1 shards=2
         c dc1 r1 shards=2",
    );
    let keyspace = replication(&cluster, "NetworkTopologyStrategy dc1:1");
    let mut load = Load::default();
    let mut shards = BTreeSet::new();
    for _ in 0..6 {
        let map = place_tablets_beside(&cluster.topology, &keyspace, 1, &load).expect("a map");
        shards.insert(map.tablet_of(Token(0)).replicas[0]);
        load.add(&map);
    }
    assert_eq!(shards.len(), 6, "six tables of one tablet are on {shards:?}");
}

#[test]
fn the_copies_of_one_nodes_tablets_are_on_all_nodes_of_the_other_racks() {
    let cluster = cluster(&(0..12).map(|n| format!("n{n} dc1 r{}\n", n % 3)).collect::<String>());
    let keyspace = replication(&cluster, "NetworkTopologyStrategy dc1:3");
    let map = place_tablets(&cluster.topology, &keyspace, 256).expect("a map");
    assert_eq!(
        map,
        place_tablets(&cluster.topology, &keyspace, 256).expect("a map"),
        "placement is not deterministic"
    );
    let mut partners = BTreeSet::new();
    let mut first = BTreeSet::new();
    for tablet in map.tablets() {
        first.insert(tablet.replicas[0].node);
        if tablet.replicas.iter().any(|r| r.node.0 == 0) {
            partners.extend(tablet.replicas.iter().map(|r| r.node.0).filter(|n| *n != 0));
        }
    }
    assert_eq!(
        partners.len(),
        8,
        "when node 0 dies, only {partners:?} take over its reads"
    );
    assert_eq!(first.len(), 12, "only {first:?} are first replicas");
}

#[test]
fn a_table_begins_with_as_many_tablets_as_its_shards_want() {
    let cases = [
        ("a dc1 r1 shards=2", "SimpleStrategy replication_factor:1", 10, 32),
        ("a dc1 r1 shards=1", "SimpleStrategy replication_factor:1", 1, 1),
        ("a dc1 r1 shards=1", "SimpleStrategy replication_factor:1", 0, 1),
        (
            "a dc1 r1 shards=4\nb dc1 r2 shards=4\nc dc1 r3 shards=4",
            "NetworkTopologyStrategy dc1:3",
            8,
            32,
        ),
        (
            "a dc1 r1 shards=1\nb dc2 r1 shards=16",
            "NetworkTopologyStrategy dc1:1 dc2:1",
            1,
            16,
        ),
        (
            "a dc1 r1 shards=100",
            "SimpleStrategy replication_factor:1",
            u32::MAX,
            topology::TABLETS_MAX,
        ),
    ];
    for (nodes, keyspace, goal, expected) in cases {
        let cluster = cluster(nodes);
        let keyspace = replication(&cluster, keyspace);
        let count = initial_tablet_count(&cluster.topology, &keyspace, goal);
        assert_eq!(count, Ok(expected), "{nodes}, {keyspace:?}, {goal} tablets per shard");
    }
}

#[test]
fn what_cannot_be_placed_is_refused_with_what_lacks() {
    let cluster = cluster(
        "a dc1 r1 tokens=1
         b dc1 r2 tokens=2
         c dc2 r1 tokens=3
         d dc1 r3 state=joining",
    );
    let t = &cluster.topology;
    let keyspace = |text| replication(&cluster, text);
    let unknown = Replication::NetworkTopology(BTreeMap::from([("dc9".to_owned(), 1.into())]));
    let errors: Vec<(Result<TabletMap, PlacementError>, &str)> = vec![
        (
            place_tablets(t, &keyspace("NetworkTopologyStrategy dc1:3"), 4),
            "Datacenter dc1 doesn't have enough nodes for replication_factor=3: it has 2",
        ),
        (
            place_tablets(t, &keyspace("SimpleStrategy replication_factor:4"), 4),
            "The cluster doesn't have enough nodes for replication_factor=4: it has 3",
        ),
        (
            place_tablets(t, &unknown, 4),
            "Unrecognized datacenter dc9: it has no nodes; the datacenters are dc1, dc2",
        ),
        (
            ring_map(t, &unknown),
            "Unrecognized datacenter dc9: it has no nodes; the datacenters are dc1, dc2",
        ),
        (
            place_tablets(t, &keyspace("NetworkTopologyStrategy dc1:1"), 3),
            "3 tablets: a power of two up to 4194304 is expected",
        ),
        (
            place_tablets(t, &keyspace("NetworkTopologyStrategy dc1:1"), 0),
            "0 tablets: a power of two up to 4194304 is expected",
        ),
        (
            place_tablets(t, &Replication::Local, 1),
            "tables of LocalStrategy are whole on each node and have no tablet map",
        ),
        (
            check_racks(t, &keyspace("NetworkTopologyStrategy dc1:2"))
                .map(|()| unreachable!("two copies on three racks")),
            "The replication factor 2 in datacenter dc1 is not valid for its 3 racks: use 3, or 1, or 0",
        ),
    ];
    for (result, expected) in errors {
        assert_eq!(result.expect_err(expected).to_string(), expected);
    }
    assert_eq!(check_racks(t, &keyspace("NetworkTopologyStrategy dc1:3 dc2:1")), Ok(()));
    let no_tokens = common::cluster("a dc1 r1");
    let error = ring_map(&no_tokens.topology, &keyspace("SimpleStrategy replication_factor:1")).expect_err("no tokens");
    assert_eq!(
        error.to_string(),
        "no node of the ring has a token: start nodes with num_tokens above 0"
    );
}

#[test]
fn replication_options_are_understood_or_refused_in_users_words() {
    let table = [
        (
            "org.apache.cassandra.locator.SimpleStrategy replication_factor:3",
            "Simple { factor: 3 }",
        ),
        (
            "NetworkTopologyStrategy replication_factor:3",
            r#"NetworkTopology({"dc1": Count(3), "dc2": Count(3)})"#,
        ),
        (
            "NetworkTopologyStrategy replication_factor:3 dc2:1",
            r#"NetworkTopology({"dc1": Count(3), "dc2": Count(1)})"#,
        ),
        (
            "NetworkTopologyStrategy replication_factor:3 dc2:0",
            r#"NetworkTopology({"dc1": Count(3)})"#,
        ),
        ("NetworkTopologyStrategy dc2:2", r#"NetworkTopology({"dc2": Count(2)})"#),
        (
            "NetworkTopologyStrategy replication_factor:2 dc1:['r2','it''s']",
            r#"NetworkTopology({"dc1": Racks(["it's", "r2"]), "dc2": Count(2)})"#,
        ),
        (
            "NetworkTopologyStrategy dc1:[] dc2:['r1']",
            r#"NetworkTopology({"dc2": Racks(["r1"])})"#,
        ),
        ("LocalStrategy", "Local"),
        ("EverywhereStrategy", "Everywhere"),
        ("", "Missing replication strategy class"),
        ("FooStrategy", "Unable to find replication strategy class 'FooStrategy'"),
        (
            "SimpleStrategy",
            "SimpleStrategy requires a replication_factor strategy option.",
        ),
        (
            "SimpleStrategy dc1:1",
            "Unrecognized strategy option {dc1} passed to SimpleStrategy",
        ),
        (
            "NetworkTopologyStrategy dc3:1",
            "Unrecognized strategy option {dc3} passed to NetworkTopologyStrategy: the datacenters are dc1, dc2",
        ),
        (
            "NetworkTopologyStrategy",
            "Configuration for at least one datacenter must be present",
        ),
        (
            "LocalStrategy dc1:1",
            "Unrecognized strategy option {dc1} passed to LocalStrategy",
        ),
        (
            "NetworkTopologyStrategy dc1:-1",
            "Replication factor must be a number from 0 to 65535, found '-1' for dc1",
        ),
        (
            "NetworkTopologyStrategy dc1:['r1','r1']",
            "Invalid list of racks ['r1','r1'] for datacenter dc1: a rack is named twice",
        ),
        (
            "NetworkTopologyStrategy dc1:['r1',]",
            "Invalid list of racks ['r1',] for datacenter dc1: racks in single quotes, separated by commas, are expected",
        ),
        (
            "NetworkTopologyStrategy dc1:['r1",
            "Invalid list of racks ['r1 for datacenter dc1: racks in single quotes, separated by commas, are expected",
        ),
        (
            "NetworkTopologyStrategy replication_factor:['r1']",
            "Replication factor must be a number from 0 to 65535, found '['r1']' for replication_factor",
        ),
        (
            "NetworkTopologyStrategy dc1:3/1",
            "Transient replication is not supported, found '3/1' for dc1",
        ),
    ];
    let datacenters = BTreeSet::from(["dc1", "dc2"]);
    for (text, expected) in table {
        let found = match Replication::parse(&options(text), &datacenters) {
            Ok(replication) => format!("{replication:?}"),
            Err(e) => e.to_string(),
        };
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn a_list_of_racks_gets_a_copy_in_each_of_them() {
    let cluster = cluster(
        "a dc1 r1 tokens=0
         b dc1 r1 tokens=100
         c dc1 r2 tokens=200
         d dc1 r3 tokens=300
         e dc2 r1 tokens=400",
    );
    let keyspace = replication(&cluster, "NetworkTopologyStrategy dc1:['r3','r1'] dc2:['r1']");
    let map = place_tablets(&cluster.topology, &keyspace, 4).expect("each rack has a node");
    for tablet in map.tablets() {
        let nodes = cluster.show(tablet.replicas);
        assert!(matches!(nodes.as_str(), "a d e" | "b d e"), "{nodes}");
    }
    assert_eq!(initial_tablet_count(&cluster.topology, &keyspace, 1), Ok(2));
    assert_eq!(check_racks(&cluster.topology, &keyspace), Ok(()));
    let no_copies = topology::Replication::Simple { factor: 0 };
    assert_eq!(
        initial_tablet_count(&cluster.topology, &no_copies, 1),
        Ok(1),
        "of nothing"
    );
    check_ring(
        "of the ring, the next node in each rack of the list",
        "a dc1 r1 tokens=0
         b dc1 r1 tokens=100
         c dc1 r2 tokens=200
         d dc1 r3 tokens=300",
        "NetworkTopologyStrategy dc1:['r3','r1']",
        "0: a d | 100: b d | 300: d a | max: a d",
    );
    let absent = replication(&cluster, "NetworkTopologyStrategy dc1:['r1','r9']");
    let refused = "Rack r9 of datacenter dc1 has no node that can hold a copy";
    for result in [
        place_tablets(&cluster.topology, &absent, 1).map(|_| ()),
        check_racks(&cluster.topology, &absent),
    ] {
        assert_eq!(result.expect_err(refused).to_string(), refused);
    }
    // A new table has the copies that there are nodes for.
    let map = first_tablets(&cluster.topology, &absent, Some(1), &Load::default()).expect("a rack has nodes");
    assert_eq!(map.tablets().next().map(|t| t.replicas.len()), Some(1));
    let written = Copies::Racks(vec!["it's".to_owned(), "r2".to_owned()]).to_string();
    assert_eq!(written, "['it''s', 'r2']");
}

#[test]
fn a_table_begins_with_as_few_tablets_as_keep_its_shards_even() {
    let cases = [
        ("a dc1 r1 shards=1", "SimpleStrategy replication_factor:1", None, 1, 1),
        ("a dc1 r1 shards=2", "SimpleStrategy replication_factor:1", None, 2, 1),
        // 16 tablets on 3 shards are 6, 5 and 5: over a tenth more than the average.
        ("a dc1 r1 shards=3", "SimpleStrategy replication_factor:1", None, 32, 11),
        (
            "a dc1 r1 shards=2\nb dc1 r1 shards=2\nc dc1 r1 shards=2",
            "NetworkTopologyStrategy dc1:3",
            None,
            2,
            1,
        ),
        (
            "a dc1 r1 shards=2\nb dc1 r1 shards=2\nc dc1 r1 shards=2\nd dc1 r1 shards=2",
            "NetworkTopologyStrategy dc1:3",
            None,
            8,
            3,
        ),
        (
            "a dc1 r1 shards=2",
            "SimpleStrategy replication_factor:1",
            Some(5),
            8,
            4,
        ),
        // One node for three copies: one copy.
        ("a dc1 r1 shards=2", "NetworkTopologyStrategy dc1:3", None, 2, 1),
    ];
    for (nodes, keyspace, initial, tablets, most) in cases {
        let cluster = cluster(nodes);
        let keyspace = replication(&cluster, keyspace);
        let map = first_tablets(&cluster.topology, &keyspace, initial, &Load::default()).expect("there are nodes");
        assert_eq!(map.tablet_count(), tablets, "{nodes}, {keyspace:?}, {initial:?}");
        let mut load = BTreeMap::<Replica, u32>::new();
        for replica in map.tablets().flat_map(|t| t.replicas) {
            *load.entry(*replica).or_default() += 1;
        }
        assert_eq!(load.values().max(), Some(&most), "{nodes}, {keyspace:?}: {load:?}");
    }
}

#[test]
fn on_fewer_shards_tablets_stand_on_those_that_are_left() {
    let cluster = cluster("a dc1 r1 shards=4\nb dc1 r1 shards=4");
    let keyspace = replication(&cluster, "SimpleStrategy replication_factor:2");
    let map = place_tablets(&cluster.topology, &keyspace, 16).expect("there are nodes");
    let asked = std::cell::Cell::new(0);
    let four = |_| {
        asked.set(asked.get() + 1);
        4
    };
    assert_eq!(map.on_shards(four), None, "nothing is to change");
    assert_eq!(
        asked.get(),
        2,
        "a map in which nothing changes is looked at by node, not by replica"
    );
    let first = map.tablets().next().expect("a tablet").replicas[0].node;
    let fewer = map
        .on_shards(|node| if node == first { 2 } else { 4 })
        .expect("a node has fewer shards");
    for (before, after) in map.tablets().zip(fewer.tablets()) {
        for (b, a) in before.replicas.iter().zip(after.replicas) {
            let shards = if b.node == first { 2 } else { 4 };
            assert_eq!((a.node, a.shard), (b.node, b.shard % shards), "tablet {:?}", before.id);
        }
    }
    assert_eq!(fewer.boundaries(), map.boundaries());

    // A change that brings a tablet to a shard which the node has not, to begin with as the end of a move.
    let mut moving = map.clone();
    let tablet = map.tablets().last().expect("a tablet");
    let mut next: ReplicaList = tablet.replicas.into();
    next[0].shard = 9;
    let edit = TabletEdit {
        tablet: tablet.id,
        replicas: tablet.replicas.into(),
        transition: Some(Transition {
            stage: Stage::Streaming,
            next,
            version: map.version() + 1,
            copied: SmallVec::new(),
        }),
    };
    let change = TabletChange {
        from_version: map.version(),
        version: map.version() + 1,
        edits: vec![edit],
    };
    moving.apply(&change).expect("it is of this map's version");
    let fewer = moving.on_shards(|_| 4).expect("shard 9 is not there");
    let transition = fewer.tablets().last().and_then(|t| t.transition.cloned());
    assert_eq!(transition.map(|t| t.next[0].shard), Some(1));
}
