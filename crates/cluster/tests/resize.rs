//! Tables get more tablets as they grow, and fewer as they shrink.

use crate::support::{SECOND, Sea, host};
use cluster::{Balancing, Cluster, Command, NodeMove};
use runtime::sim::CrashKind;
use schema::{TableId, TabletOptions};
use std::rc::Rc;
use std::time::Duration;
#[cfg(debug_assertions)]
use stdx::planted::{Bug, Planted};
use types::Token;
use uuid::Uuid;

const TABLE: TableId = TableId(Uuid::from_u128(0x7ab1e));
const GIB: u64 = 1 << 30;

/// How many tablets the table has, by what a node knows.
fn count(view: &Cluster) -> u32 {
    view.metadata().tablets.get(&TABLE).map_or(0, |map| map.tablet_count())
}

fn expect_count(sea: &mut Sea, what: &str, wanted: u32) {
    sea.expect(what, |views| {
        views.iter().all(|view: &Rc<Cluster>| count(view) == wanted)
    });
}

/// Every node says that a copy of the table has so many bytes.
fn fill(sea: &Sea, bytes: u64) {
    for node in &sea.nodes {
        node.seen.table_bytes.borrow_mut().insert(TABLE, bytes);
    }
}

/// Any leader looks every ten seconds.
fn look_often(sea: &Sea) {
    for number in 0..sea.nodes.len() {
        sea.cluster(number).set_balancing(Balancing {
            plan_interval: 10 * SECOND,
            ..Balancing::default()
        });
    }
}

/// Nodes that all have all tablets of the table.
fn with_table(seed: u64, nodes: usize, tablets: u32, bytes: u64) -> Sea {
    let mut sea = Sea::formed(seed, nodes);
    look_often(&sea);
    fill(&sea, bytes);
    let all: Vec<usize> = (0..nodes).collect();
    sea.make_table(TABLE, &all, tablets);
    sea
}

#[test]
fn a_table_is_split_until_its_tablets_are_no_larger_than_twice_the_goal_and_again_as_it_grows() {
    let mut sea = with_table(1000, 3, 2, 80 * GIB);
    expect_count(&mut sea, "80 GiB in tablets of 10", 8);
    sea.sim.run_for(40 * SECOND);
    expect_count(&mut sea, "it stays", 8);
    fill(&sea, 80 * GIB + 100);
    expect_count(&mut sea, "a little more", 16);
    let metadata = sea.cluster(0).metadata();
    let nodes = (0..3).map(|number| metadata.topology.number(host(number)));
    let nodes: Vec<_> = nodes.flatten().collect();
    for tablet in metadata.tablets[&TABLE].tablets() {
        let replicas: Vec<_> = tablet.replicas.iter().map(|replica| replica.node).collect();
        assert_eq!(replicas, nodes, "tablet {}", tablet.id.0);
    }
}

#[test]
fn a_table_is_merged_while_its_tablets_are_small_and_shards_have_ten_each() {
    let mut sea = with_table(1001, 3, 64, GIB);
    expect_count(&mut sea, "32 would be merged to 16, and 16 not to 8", 16);
    sea.sim.run_for(40 * SECOND);
    expect_count(&mut sea, "it stays", 16);
}

#[test]
fn pairs_that_are_apart_come_together_before_they_are_merged() {
    let mut sea = Sea::new(1002, 2);
    for node in &sea.nodes {
        node.config.borrow_mut().location.rack = "rack".to_owned();
    }
    (0..2).for_each(|number| sea.start(number));
    sea.expect_normal(0..2);
    // No bytes are known, so tablets are spread and not merged.
    sea.make_table(TABLE, &[0], 64);
    let is_even = |view: &Rc<Cluster>| {
        let metadata = view.metadata();
        let map = &metadata.tablets[&TABLE];
        let first = map.tablet_of(Token::MIN).replicas[0].node;
        let beside = map.tablets().filter(|tablet| tablet.replicas[0].node == first).count();
        (30..=34).contains(&beside) && map.moving().next().is_none()
    };
    sea.expect("as many on each", |views| views.iter().all(is_even));
    fill(&sea, GIB);
    expect_count(&mut sea, "merged", 32);
}

#[test]
fn a_keyspace_says_how_many_tablets_its_tables_have_at_least() {
    let mut sea = with_table(1003, 3, 64, 64 * 3 * GIB);
    sea.set_initial("system", 25);
    fill(&sea, 1);
    expect_count(&mut sea, "25 rounded up to a power of two", 32);
    sea.sim.run_for(40 * SECOND);
    expect_count(&mut sea, "it stays", 32);
}

/// An option of a table brings it to other counts whatever its size is, and keeps it from leaving them.
#[test]
fn a_table_says_how_many_tablets_it_has_at_least_and_at_most() {
    let mut sea = with_table(1008, 3, 2, 1);
    let none = TabletOptions::default();
    let least = TabletOptions {
        min_tablet_count: Some(5),
        ..none
    };
    sea.set_tablet_options("system", TABLE, least);
    expect_count(&mut sea, "5 rounded up to a power of two", 8);
    // One shard in each of three nodes, three copies: as many tablets as each shard is to have.
    let per_shard = TabletOptions {
        min_per_shard_tablet_count: Some(12.5),
        ..none
    };
    sea.set_tablet_options("system", TABLE, per_shard);
    expect_count(&mut sea, "13 rounded up to a power of two", 16);
    let expected = TabletOptions {
        expected_data_size_in_gb: Some(5 * 32),
        min_tablet_count: Some(3),
        ..none
    };
    sea.set_tablet_options("system", TABLE, expected);
    expect_count(&mut sea, "160 GiB in tablets of 5", 32);
    let most = TabletOptions {
        max_tablet_count: Some(7),
        ..none
    };
    sea.set_tablet_options("system", TABLE, most);
    expect_count(&mut sea, "7 rounded down to a power of two", 4);
    fill(&sea, 80 * GIB);
    sea.sim.run_for(60 * SECOND);
    assert_eq!(count(&sea.cluster(0)), 4, "it is not split beyond, however large it is");
    sea.set_tablet_options("system", TABLE, none);
    expect_count(&mut sea, "80 GiB in tablets of 10", 8);
}

#[test]
fn the_goal_may_change_while_the_cluster_runs() {
    let mut sea = with_table(1004, 3, 2, 80);
    sea.sim.run_for(30 * SECOND);
    assert_eq!(count(&sea.cluster(0)), 2);
    let plan_interval = 10 * SECOND;
    let balancing = Balancing {
        tablet_bytes_goal: 5,
        plan_interval,
    };
    (0..3).for_each(|number| sea.cluster(number).set_balancing(balancing));
    sea.sim.run_for(5 * SECOND);
    expect_count(&mut sea, "by the other goal", 8);
    let never = Balancing {
        tablet_bytes_goal: 0,
        plan_interval,
    };
    (0..3).for_each(|number| sea.cluster(number).set_balancing(never));
    fill(&sea, 800 * GIB);
    sea.sim.run_for(40 * SECOND);
    assert_eq!(count(&sea.cluster(0)), 8, "without a goal no size is too large");
}

#[test]
fn nothing_is_split_where_the_operator_wants_no_balance() {
    let mut sea = with_table(1005, 3, 2, 0);
    let told = sea.on(1, |cluster| async move { cluster.set_balanced(false).await });
    told.expect("it is agreed on");
    fill(&sea, 80 * GIB);
    sea.sim.run_for(40 * SECOND);
    assert_eq!(count(&sea.cluster(0)), 2);
    let told = sea.on(1, |cluster| async move { cluster.set_balanced(true).await });
    told.expect("it is agreed on");
    expect_count(&mut sea, "split", 8);
}

#[test]
fn an_operator_may_resize_a_table() {
    let mut sea = with_table(1007, 3, 2, 0);
    let told = sea.on(0, |cluster| async move { cluster.set_balanced(false).await });
    told.expect("it is agreed on");
    let mut resize = |wanted: u32| {
        sea.on(1, move |cluster| async move {
            let deadline = runtime::now() + 30 * SECOND;
            let done = cluster.resize(TABLE, wanted, deadline).await;
            done.map(|()| cluster.metadata().tablets[&TABLE].tablet_count())
        })
    };
    assert_eq!(resize(4), Ok(4));
    assert_eq!(resize(2), Ok(2));
    assert_eq!(resize(2), Err("a map of 2 tablets cannot become one of 2".to_owned()));
    assert_eq!(resize(16), Err("a map of 2 tablets cannot become one of 16".to_owned()));
}

#[test]
fn a_table_is_split_whatever_node_is_killed_meanwhile() {
    for seed in 0..9_u64 {
        let mut sea = with_table(1010 + seed, 3, 2, 0);
        sea.expect_voters(3);
        fill(&sea, 80 * GIB);
        let killed = usize::try_from(seed % 3).expect("three nodes");
        // Around the next look.
        sea.sim
            .run_for(59 * SECOND + SECOND / 2 * u32::try_from(seed / 3).expect("small"));
        sea.crash(killed, CrashKind::Kill);
        sea.sim.run_for(SECOND * 70);
        sea.restart(killed);
        expect_count(&mut sea, &format!("split (seed {seed})"), 8);
    }
}

#[test]
fn a_table_is_not_resized_while_a_tablet_of_it_moves() {
    let mut sea = with_table(1020, 4, 2, 0);
    sea.replicate("system", 3);
    sea.expect("three copies each", |views| {
        views.iter().all(|view| {
            let metadata = view.metadata();
            let mut tablets = metadata.tablets[&TABLE].tablets();
            tablets.all(|tablet| tablet.replicas.len() == 3 && tablet.transition.is_none())
        })
    });
    let metadata = sea.cluster(0).metadata();
    let replicas = metadata.tablets[&TABLE].tablet_of(Token(0)).replicas;
    let number = |wanted: bool| {
        let is_so = |number: &usize| {
            let node = metadata.topology.number(host(*number));
            replicas.iter().any(|replica| Some(replica.node) == node) == wanted
        };
        (0..4).find(is_so).expect("three of four have it")
    };
    let (from, to) = (number(true), number(false));
    sea.nodes[to].seen.copies_that_fail.set(u32::MAX);
    let begin = NodeMove {
        table: TABLE,
        token: Token(0),
        from: host(from),
        from_shard: None,
        to: host(to),
        to_shard: None,
    };
    let command = metadata.node_move(&begin).expect("it can move");
    let begun = sea.on(
        0,
        move |cluster| async move { cluster.propose(command).await.map(drop) },
    );
    begun.expect("the move begins");
    fill(&sea, 80 * GIB);
    sea.sim.run_for(40 * SECOND);
    assert_eq!(count(&sea.cluster(0)), 2, "the move is under way");
    let resize = Command::Resize {
        table: TABLE,
        from_version: sea.cluster(0).metadata().tablets[&TABLE].version(),
        tablet_count: 4,
    };
    let refused = sea.on(0, move |cluster| async move { cluster.propose(resize).await.map(drop) });
    let refused = refused.expect_err("a tablet moves").to_string();
    assert!(refused.contains("tablet 1 is in transition"), "{refused}");
    sea.nodes[to].seen.copies_that_fail.set(0);
    expect_count(&mut sea, "split when the move has ended", 8);
}

#[test]
fn a_table_is_split_when_every_node_has_cut_its_sstables() {
    let mut sea = with_table(1025, 3, 2, 0);
    sea.nodes[2].seen.uncut_bytes.set(10 * GIB);
    fill(&sea, 15 * 2 * GIB);
    sea.sim.run_for(40 * SECOND);
    assert_eq!(count(&sea.cluster(0)), 2, "node 2 has much to cut");
    let told = |sea: &Sea| {
        sea.nodes
            .iter()
            .map(|node| node.seen.told_splits.borrow().clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(told(&sea), vec![vec![(TABLE, 4)]; 3]);
    for number in 0..3 {
        let report = sea.on(number, |cluster| async move { cluster.balance_report().await });
        let report = report.expect("the leader is asked");
        let [table] = &report.tables[..] else {
            panic!("{report:?}");
        };
        assert_eq!(
            (table.tablets, table.wanted, table.uncut),
            (2, 4, Some(10 * GIB)),
            "by node {number}"
        );
        assert_eq!((table.average_bytes, report.tablet_bytes_goal), (15 * GIB, 5 * GIB));
    }
    // The leader dies, and the next one continues.
    sea.expect_voters(3);
    let leader = sea.cluster(0).status().leader.expect("somebody leads");
    let leader = (0..3).find(|number| host(*number) == leader).expect("one of these");
    sea.crash(leader, CrashKind::Kill);
    sea.sim.run_for(30 * SECOND);
    sea.restart(leader);
    sea.expect_normal(0..3);
    look_often(&sea);
    sea.sim.run_for(30 * SECOND);
    assert_eq!(count(&sea.cluster(0)), 2, "node 2 has still much to cut");
    sea.nodes[2].seen.uncut_bytes.set(1 << 20);
    expect_count(&mut sea, "it has cut it", 4);
    sea.sim.run_for(30 * SECOND);
    assert_eq!(told(&sea), vec![vec![]; 3], "nothing is to be cut any more");
    let report = sea.on(1, |cluster| async move { cluster.balance_report().await });
    let report = report.expect("the leader is asked");
    assert_eq!((report.tables[0].wanted, report.tables[0].uncut), (4, None));
    assert_eq!(report.done.splits, 1);
}

#[test]
fn a_split_is_counted_though_its_confirmation_comes_late() {
    let mut sea = Sea::new(1130, 3);
    for node in &sea.nodes {
        node.config.borrow_mut().propose_timeout = Duration::from_millis(300);
    }
    (0..3).for_each(|number| sea.start(number));
    sea.expect_normal(0..3);
    look_often(&sea);
    sea.make_table(TABLE, &[0, 1, 2], 2);
    let slow = |sea: &mut Sea, delay| {
        for number in 0..3 {
            let id = sea.nodes[number].id;
            sea.sim.set_disk_delay(id, delay);
        }
    };
    slow(&mut sea, Duration::from_millis(90));
    fill(&sea, 80 * GIB);
    expect_count(&mut sea, "80 GiB in tablets of 10", 8);
    slow(&mut sea, Duration::ZERO);
    sea.sim.run_for(20 * SECOND);
    let report = sea.on(0, |cluster| async move { cluster.balance_report().await });
    assert_eq!(report.expect("the leader is asked").done.splits, 2);
}

#[test]
fn a_table_that_shrinks_before_it_is_split_stays_as_it_is() {
    let mut sea = with_table(1026, 3, 2, 0);
    sea.nodes[1].seen.uncut_bytes.set(10 * GIB);
    fill(&sea, 15 * 2 * GIB);
    sea.sim.run_for(30 * SECOND);
    fill(&sea, 15 * GIB);
    sea.sim.run_for(30 * SECOND);
    assert!(sea.nodes.iter().all(|node| node.seen.told_splits.borrow().is_empty()));
    sea.nodes[1].seen.uncut_bytes.set(0);
    sea.sim.run_for(30 * SECOND);
    assert_eq!(count(&sea.cluster(0)), 2);
}

/// How many tablets a table has in the end that wants 32, and whose nodes are slow to follow a merge.
fn merged_by_slow_nodes() -> u32 {
    let mut sea = with_table(1030, 3, 64, 192 * GIB);
    for node in &sea.nodes {
        node.seen.follow_delay.set(SECOND * 20);
    }
    // 1.5 GiB each, and 3 GiB after a merge.
    fill(&sea, 96 * GIB);
    sea.sim.run_for(150 * SECOND);
    count(&sea.cluster(0))
}

#[test]
fn a_table_is_merged_once_where_nodes_are_slow_to_follow() {
    assert_eq!(merged_by_slow_nodes(), 32);
}

#[test]
#[cfg(debug_assertions)]
fn a_merge_by_what_was_said_before_the_last_one_is_found() {
    let _planted = Planted::new(Some(Bug::StaleFigures));
    assert!(merged_by_slow_nodes() < 32, "it is merged once");
}
