//! Tablets find their places by themselves: new nodes get their share, and each tablet the copies that its keyspace
//! wants.

use crate::support::{SECOND, Sea, host};
use cluster::{Cluster, Disk, TabletBytes};
use runtime::sim::CrashKind;
use schema::TableId;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use topology::DiskLevel;
use types::Token;
use uuid::Uuid;

const TABLE: TableId = TableId(Uuid::from_u128(0x7ab1e));
const TABLETS: u32 = 16;

/// How many tablets each node has, by what a node knows; None while one moves.
fn counts(view: &Cluster) -> Option<BTreeMap<usize, usize>> {
    let metadata = view.metadata();
    let map = metadata.tablets.get(&TABLE)?;
    let mut counts = BTreeMap::new();
    for tablet in map.tablets() {
        if tablet.transition.is_some() {
            return None;
        }
        for replica in tablet.replicas {
            *counts.entry(usize::from(replica.node.0)).or_default() += 1;
        }
    }
    Some(counts)
}

fn expect_counts(sea: &mut Sea, what: &str, wanted: &[(usize, usize)]) {
    let wanted: BTreeMap<usize, usize> = wanted.iter().copied().collect();
    let is_so = |view: &Rc<Cluster>| counts(view).as_ref() == Some(&wanted);
    sea.expect(what, |views| views.iter().all(is_so));
}

/// A cluster whose nodes are in one rack.
fn in_one_rack(seed: u64, count: usize) -> Sea {
    let sea = Sea::new(seed, count);
    for node in &sea.nodes {
        node.config.borrow_mut().location.rack = "rack".to_owned();
    }
    sea
}

#[test]
fn a_node_that_comes_when_there_are_tablets_gets_its_share() {
    let mut sea = in_one_rack(900, 4);
    (0..3).for_each(|number| sea.start(number));
    sea.expect_normal(0..3);
    sea.make_table(TABLE, &[0, 1, 2], TABLETS);
    sea.start(3);
    sea.expect_normal(0..4);
    expect_counts(&mut sea, "each has as many", &[(0, 12), (1, 12), (2, 12), (3, 12)]);
    assert_eq!(sea.nodes[3].seen.copied.borrow().len(), 12, "each is copied once");
}

#[test]
fn changes_that_come_one_after_the_other_are_planned_for_together() {
    let mut sea = Sea::formed(901, 3);
    // As where there are thousands of tables.
    let takes = Duration::from_millis(20);
    sea.nodes.iter().for_each(|node| node.seen.report_delay.set(takes));
    let begun = sea.sim.now();
    let tables: u32 = 60;
    for number in 0..tables {
        let id = TableId(Uuid::from_u128(u128::from(number) + 1));
        sea.make_named_table(&format!("t{number}"), id, &[0, 1, 2], 4);
    }
    // The last one is planned for, too.
    sea.sim.run_for(2 * SECOND);
    let asked = sea.nodes[0].seen.reports.get();
    let took = sea.sim.now() - begun;
    assert!(
        asked > 0 && takes * asked < took / 8,
        "in {took:?} a node was asked {asked} times for all its tablets, which takes {takes:?}"
    );
}

#[test]
fn it_goes_on_when_the_leader_dies_in_the_middle() {
    let mut sea = in_one_rack(902, 4);
    (0..3).for_each(|number| sea.start(number));
    sea.expect_normal(0..3);
    sea.make_table(TABLE, &[0, 1, 2], TABLETS);
    sea.start(3);
    sea.expect_normal(0..4);
    sea.expect_voters(3);
    sea.sim.run_for(SECOND / 4);
    let leader = sea.cluster(0).status().leader.expect("somebody leads");
    let leader = (0..4).find(|number| host(*number) == leader).expect("one of these");
    sea.crash(leader, CrashKind::Kill);
    sea.sim.run_for(20 * SECOND);
    sea.restart(leader);
    expect_counts(&mut sea, "each has as many", &[(0, 12), (1, 12), (2, 12), (3, 12)]);
}

#[test]
fn tablets_get_the_copies_that_their_keyspace_wants_whatever_the_number_was() {
    let mut sea = in_one_rack(903, 4);
    (0..4).for_each(|number| sea.start(number));
    sea.expect_normal(0..4);
    sea.make_table(TABLE, &[0], TABLETS);
    expect_counts(&mut sea, "one copy each, evenly", &[(0, 4), (1, 4), (2, 4), (3, 4)]);
    sea.replicate("system", 4);
    expect_counts(&mut sea, "from one to four", &[(0, 16), (1, 16), (2, 16), (3, 16)]);
    sea.replicate("system", 2);
    expect_counts(&mut sea, "from four to two", &[(0, 8), (1, 8), (2, 8), (3, 8)]);
    sea.replicate("system", 3);
    expect_counts(&mut sea, "from two to three", &[(0, 12), (1, 12), (2, 12), (3, 12)]);
}

#[test]
fn bytes_count_and_not_tablets() {
    let mut sea = in_one_rack(904, 2);
    (0..2).for_each(|number| sea.start(number));
    sea.expect_normal(0..2);
    let width = (1_i128 << 64) / i128::from(TABLETS);
    let last = |tablet: u32| {
        let last = i128::from(i64::MIN) + width * i128::from(tablet + 1) - 1;
        Token(i64::try_from(last).expect("a token"))
    };
    // The first tablet is as large as all others together.
    let bytes = |tablet: u32| if tablet == 0 { 15 << 30 } else { 1 << 30 };
    let sizes = (0..TABLETS).map(|tablet| TabletBytes {
        table: TABLE,
        last: last(tablet),
        bytes: bytes(tablet),
        load: None,
    });
    *sea.nodes[0].seen.tablet_bytes.borrow_mut() = sizes.collect();
    sea.make_table(TABLE, &[0], TABLETS);
    let is_even = |view: &Rc<Cluster>| {
        counts(view).is_some_and(|counts| counts.values().copied().min() == Some(1) && counts.len() == 2)
    };
    sea.expect("the large tablet is alone on its node", |views| {
        views.iter().all(is_even)
    });
}

#[test]
fn nothing_moves_for_balance_where_the_operator_wants_none_and_replication_goes_on() {
    let mut sea = in_one_rack(905, 4);
    (0..4).for_each(|number| sea.start(number));
    sea.expect_normal(0..4);
    let told = sea.on(1, |cluster| async move { cluster.set_balanced(false).await });
    told.expect("it is agreed on");
    sea.make_table(TABLE, &[0], TABLETS);
    sea.sim.run_for(10 * SECOND);
    expect_counts(&mut sea, "all stay", &[(0, 16)]);
    sea.replicate("system", 2);
    let has_all = |view: &Rc<Cluster>| {
        counts(view).is_some_and(|counts| counts[&0] == 16 && counts.values().sum::<usize>() == 32)
    };
    sea.expect("each has its second copy", |views| views.iter().all(has_all));
    let told = sea.on(2, |cluster| async move { cluster.set_balanced(true).await });
    told.expect("it is agreed on");
    expect_counts(&mut sea, "evenly", &[(0, 8), (1, 8), (2, 8), (3, 8)]);
}

/// The copies that each node has, in order of nodes, when nothing moves any more.
fn settled(sea: &mut Sea) -> Vec<usize> {
    let mut still = 0;
    let mut last = None;
    for _ in 0..200 {
        sea.sim.run_for(SECOND);
        let now = counts(&sea.cluster(0));
        still = if now.is_some() && now == last { still + 1 } else { 0 };
        last = now;
        if still == 15 {
            break;
        }
    }
    last.expect("nothing moves").into_values().collect()
}

/// What a node says of the tablets: their bytes, and their load.
fn say(sea: &Sea, of: impl Fn(u32) -> (u64, f32)) {
    let width = (1_i128 << 64) / i128::from(TABLETS);
    let last = |tablet: u32| {
        let last = i128::from(i64::MIN) + width * i128::from(tablet + 1) - 1;
        Token(i64::try_from(last).expect("a token"))
    };
    let said = (0..TABLETS).map(|tablet| TabletBytes {
        table: TABLE,
        last: last(tablet),
        bytes: of(tablet).0,
        load: Some(of(tablet).1),
    });
    *sea.nodes[0].seen.tablet_bytes.borrow_mut() = said.collect();
}

#[test]
fn a_node_with_a_larger_disk_has_as_much_more() {
    let mut sea = in_one_rack(906, 3);
    // One after the other, so that the last has the last number.
    for number in 0..3 {
        sea.start(number);
        sea.expect_normal(0..number + 1);
    }
    let capacity = |tebibytes: u64| {
        Some(Disk {
            capacity: tebibytes << 40,
            used: 1 << 30,
        })
    };
    for (node, tebibytes) in sea.nodes.iter().zip([1, 1, 2]) {
        node.seen.disk.set(capacity(tebibytes));
    }
    say(&sea, |_| (1 << 30, 0.0));
    sea.make_table(TABLE, &[0], TABLETS);
    assert_eq!(settled(&mut sea), [4, 4, 8]);
}

#[test]
fn a_disk_that_is_almost_full_gets_nothing() {
    let mut sea = in_one_rack(907, 2);
    (0..2).for_each(|number| sea.start(number));
    sea.expect_normal(0..2);
    for (node, used) in sea.nodes.iter().zip([10, 96]) {
        let (capacity, used) = (100 << 30, used << 30);
        node.seen.disk.set(Some(Disk { capacity, used }));
    }
    say(&sea, |_| (2 << 30, 0.0));
    sea.make_table(TABLE, &[0], TABLETS);
    sea.sim.run_for(60 * SECOND);
    expect_counts(&mut sea, "node 1 has no room for one more", &[(0, 16)]);
}

#[test]
fn the_copies_of_a_hot_tablet_stand_beside_fewer_others() {
    let mut sea = in_one_rack(908, 4);
    (0..4).for_each(|number| sea.start(number));
    sea.expect_normal(0..4);
    // Every node has four small tablets; four of them get almost all requests, and begin on two nodes. Only bytes are
    // even.
    say(&sea, |tablet| (1 << 20, if tablet < 4 { 20_000.0 } else { 100.0 }));
    sea.make_table(TABLE, &[0], TABLETS);
    settled(&mut sea);
    let metadata = sea.cluster(0).metadata();
    let hot = metadata.tablets[&TABLE].tablets().take(4);
    let nodes: std::collections::BTreeSet<_> = hot.map(|tablet| tablet.replicas[0].node).collect();
    assert_eq!(nodes.len(), 4, "each hot tablet is on a node of its own");
}

#[test]
fn a_node_that_refuses_data_gets_no_tablet() {
    let mut sea = in_one_rack(909, 2);
    (0..2).for_each(|number| sea.start(number));
    sea.expect_normal(0..2);
    for node in &sea.nodes {
        let (capacity, used) = (100 << 30, 1 << 30);
        node.seen.disk.set(Some(Disk { capacity, used }));
    }
    sea.cluster(1).set_disk_level(DiskLevel::Critical);
    sea.sim.run_for(5 * SECOND);
    say(&sea, |_| (1 << 20, 0.0));
    sea.make_table(TABLE, &[0], TABLETS);
    sea.sim.run_for(60 * SECOND);
    expect_counts(&mut sea, "node 1 takes none", &[(0, 16)]);
    sea.cluster(1).set_disk_level(DiskLevel::Normal);
    expect_counts(&mut sea, "at the next look", &[(0, 8), (1, 8)]);
}
