//! Nodes that are down for longer than tombstones are usually kept, while rows are deleted and compactions run: nothing
//! deleted returns, in any mode of `tombstone_gc`.

use std::time::Duration;

use runtime::sim::CrashKind;
use sim::cluster::ClusterSetup;
use sim::story::{ALL, ONE, QUORUM, Story};
use sim::{ClusterFaults, ClusterScenario, Workload};

const SECOND: Duration = Duration::from_secs(1);
/// Seconds for which tombstones are usually kept.
const GRACE: u32 = 30;
const ROWS: i32 = 10;
/// The rows below this are deleted.
const DELETED: i32 = 5;
/// Tables, and when they forget deletions. A table of mode `immediate` promises nothing about what a replica has
/// missed.
const TABLES: [(&str, &str); 3] = [
    ("t", "gc_grace_seconds = 30 AND tombstone_gc = {'mode': 'timeout'}"),
    (
        "r",
        "tombstone_gc = {'mode': 'repair', 'propagation_delay_in_seconds': '0'}",
    ),
    ("d", "gc_grace_seconds = 30 AND tombstone_gc = {'mode': 'disabled'}"),
];

fn on_each(story: &mut Story, nodes: &[usize], order: &str) {
    for node in nodes {
        let answer = story.operate(*node, order);
        assert!(answer.contains(" 200 "), "{order}: {answer}");
    }
}

/// The rows of a table that a node reads at a level.
fn rows(story: &mut Story, node: usize, table: &str, level: u16) -> Vec<i32> {
    let mut read = |k: &i32| {
        let text = format!("SELECT n FROM sea.{table} WHERE k = {k}");
        story.must(node, &text, level).is_some()
    };
    (0..ROWS).filter(|k| read(k)).collect()
}

/// One of three nodes is down for longer than the grace, and misses deletions. The others have compacted before and
/// after it is back.
fn outage(seed: u64, hints: bool) -> Story {
    let mut story = Story::begin(
        seed,
        &ClusterSetup {
            hints,
            ..Story::setup(3)
        },
    );
    let replication = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 3}";
    story.must(0, &format!("CREATE KEYSPACE sea WITH replication = {replication}"), ALL);
    for (table, options) in TABLES {
        story.must(
            0,
            &format!("CREATE TABLE sea.{table} (k int PRIMARY KEY, n int) WITH {options}"),
            ALL,
        );
        for k in 0..ROWS {
            story.must(0, &format!("INSERT INTO sea.{table} (k, n) VALUES ({k}, {k})"), ALL);
        }
    }
    on_each(&mut story, &[0, 1, 2], "POST /storage_service/flush");
    story.cluster.crash(2, CrashKind::Kill);
    story.cluster.sim.run_for(10 * SECOND);
    for (table, _) in TABLES {
        for k in 0..DELETED {
            story.must(
                k as usize % 2,
                &format!("DELETE FROM sea.{table} WHERE k = {k}"),
                QUORUM,
            );
        }
    }
    on_each(&mut story, &[0, 1], "POST /storage_service/flush");
    story.cluster.sim.run_for((4 * GRACE) * SECOND);
    on_each(&mut story, &[0, 1], "POST /storage_service/compact");
    story.restart(2).expect("nothing is wrong with it");
    // No client reads, which would repair, before all nodes have reported that they are complete.
    story.cluster.sim.run_for((4 * GRACE) * SECOND);
    on_each(&mut story, &[0, 1], "POST /storage_service/compact");
    story
}

#[test]
fn what_a_node_misses_that_is_down_for_longer_than_the_grace_stays_deleted() {
    let left: Vec<i32> = (DELETED..ROWS).collect();
    for (seed, hints) in [(70, true), (71, false)] {
        let mut story = outage(seed, hints);
        for (table, _) in TABLES {
            for level in [QUORUM, ALL, ONE] {
                for node in 0..3 {
                    let found = rows(&mut story, node, table, level);
                    assert_eq!(found, left, "table {table} by node {node} at {level}, hints: {hints}");
                }
            }
        }
    }
}

/// What repairs bring is kept for as long as it takes, and the deletions go afterwards without anything coming back.
#[test]
fn a_repair_brings_what_was_missed_before_anybody_reads() {
    let left: Vec<i32> = (DELETED..ROWS).collect();
    let mut story = outage(72, false);
    on_each(&mut story, &[0, 1, 2], "POST /ceto/repair?kn=sea");
    story.cluster.sim.run_for((8 * GRACE) * SECOND);
    on_each(&mut story, &[0, 1, 2], "POST /storage_service/compact");
    for (table, _) in TABLES {
        for level in [ONE, QUORUM, ALL] {
            for node in 0..3 {
                assert_eq!(
                    rows(&mut story, node, table, level),
                    left,
                    "table {table} by node {node} at {level}"
                );
            }
        }
    }
}

#[test]
#[cfg(debug_assertions)]
fn what_was_missed_comes_back_when_the_grace_alone_decides() {
    let _planted = stdx::planted::Planted::new(Some(stdx::planted::Bug::ForgottenMiss));
    let mut story = outage(70, true);
    let found = rows(&mut story, 0, "t", ALL);
    assert_eq!(found, (0..ROWS).collect::<Vec<i32>>(), "nothing came back");
    // Nothing is forgotten there, whichever replica missed it.
    let found = rows(&mut story, 0, "d", ALL);
    assert_eq!(found, (DELETED..ROWS).collect::<Vec<i32>>());
}

/// Clients work while the node is down, and the content of all replicas is compared in the end.
fn scenario(faults: ClusterFaults, hints: bool) -> ClusterScenario {
    ClusterScenario {
        faults: ClusterFaults {
            outages: true,
            ..faults
        },
        workload: Workload {
            grace: Some(20),
            ..Workload::default()
        },
        hints,
        rounds: 3,
        ..ClusterScenario::new(3)
    }
}

#[test]
fn nothing_deleted_returns_after_outages_whatever_else_happens() {
    let with_repairs = ClusterFaults {
        repairs: true,
        kills: true,
        ..ClusterFaults::NONE
    };
    let scenarios = [
        scenario(ClusterFaults::NONE, true),
        scenario(ClusterFaults::NONE, false),
        scenario(with_repairs, true),
        scenario(with_repairs, false),
    ];
    for (seed, scenario) in (210..).zip(scenarios) {
        let report = scenario
            .run(seed)
            .unwrap_or_else(|failure| panic!("{scenario:?}\n{failure}"));
        assert!(report.faults > 0, "{report:?}");
    }
}

#[test]
#[cfg(debug_assertions)]
fn tombstones_that_are_forgotten_at_the_end_of_the_grace_are_found() {
    crate::support::is_found(
        stdx::planted::Bug::ForgottenMiss,
        &scenario(ClusterFaults::NONE, true),
        0..24,
        &["was promised"],
    );
}
