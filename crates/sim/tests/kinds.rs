//! A keyspace that goes from the token ring to tablets and back on whole nodes, with everything that is known of its
//! rows: conditional statements, counters, deletions, hints.

use std::time::Duration;

use crate::support::rounds::{ROWS, check, write};
use runtime::StopPoint;
use runtime::sim::{CrashKind, Stop};
use sim::client::Answer;
use sim::cluster::ClusterSetup;
use sim::story::{ALL, ONE, QUORUM, Story};

const SECOND: Duration = Duration::from_secs(1);
const TABLES: [&str; 3] = ["t", "l", "c"];
/// How many tablets tables get: a half and a quarter of the ring end where shards do.
const TABLETS: usize = 4;

/// Four machines of two shards; so many nodes run, with tables on the ring of so many copies each.
fn begin(seed: u64, nodes: usize, copies: usize) -> Story {
    let setup = ClusterSetup {
        shards: vec![2; 4],
        ..Story::setup(4)
    };
    let mut story = Story::of_machines(seed, &setup);
    for node in 0..nodes {
        story.cluster.start(node);
        story.until_served(node);
    }
    story.cluster.sim.run_for(5 * SECOND);
    let replication = format!("{{'class': 'NetworkTopologyStrategy', 'datacenter1': {copies}}}");
    let tablets = format!("{{'enabled': false, 'initial': {TABLETS}}}");
    let keyspace = format!("CREATE KEYSPACE sea WITH replication = {replication} AND tablets = {tablets}");
    story.must(0, &keyspace, ALL);
    story.must(
        0,
        "CREATE TABLE sea.t (k int PRIMARY KEY, n int) WITH gc_grace_seconds = 0",
        ALL,
    );
    story.must(0, "CREATE TABLE sea.l (k int PRIMARY KEY, n int)", ALL);
    story.must(0, "CREATE TABLE sea.c (k int PRIMARY KEY, n counter)", ALL);
    story
}

fn alter(story: &mut Story, node: usize, is_enabled: bool) {
    story.must(
        node,
        &format!("ALTER KEYSPACE sea WITH tablets = {{'enabled': {is_enabled}}}"),
        ALL,
    );
}

/// How many tablets a node says that a table has.
fn tablets(story: &mut Story, node: usize, table: &str) -> Option<usize> {
    let read = format!(
        "SELECT last_token FROM system.tablets WHERE keyspace_name = 'sea' AND table_name = '{table}' ALLOW FILTERING"
    );
    match story.ask(node, &read, ONE) {
        Some(Answer::Rows(rows, _)) => Some(rows.len()),
        _ => None,
    }
}

/// Every node says that each table has as many tablets; 0 on the ring.
#[track_caller]
fn expect(story: &mut Story, nodes: &[usize], wanted: usize) {
    for node in nodes {
        for table in TABLES {
            let mut found = None;
            for _ in 0..120 {
                found = tablets(story, *node, table);
                if found == Some(wanted) {
                    break;
                }
                story.cluster.sim.run_for(SECOND);
            }
            assert_eq!(found, Some(wanted), "tablets of {table} by node {node}");
        }
    }
}

const ALL_NODES: [usize; 4] = [0, 1, 2, 3];

#[test]
fn rows_proposals_and_counters_survive_the_way_to_tablets_and_back() {
    for seed in 60..62 {
        let mut story = begin(seed, 4, 3);
        write(&mut story, 1, &ALL_NODES);
        let mut round = 1;
        for is_enabled in [true, false, true] {
            alter(&mut story, round as usize % 4, is_enabled);
            for _ in 0..2 {
                round += 1;
                write(&mut story, round, &ALL_NODES);
            }
            expect(&mut story, &ALL_NODES, if is_enabled { TABLETS } else { 0 });
            check(&mut story, round, &ALL_NODES, &[QUORUM]);
            if is_enabled {
                (0..4).for_each(|node| drop(story.operate(node, "POST /storage_service/flush")));
            }
        }
        check(&mut story, round, &ALL_NODES, &[ALL]);
    }
}

/// A node crashes at a step of what it does when the maps of tables are cut, and restarts.
fn crash_at(seed: u64, point: StopPoint, is_enabled: bool) {
    let mut story = begin(seed, 4, 3);
    write(&mut story, 1, &ALL_NODES);
    if !is_enabled {
        alter(&mut story, 0, true);
        expect(&mut story, &ALL_NODES, TABLETS);
    }
    (0..4).for_each(|node| drop(story.operate(node, "POST /storage_service/flush")));
    write(&mut story, 2, &ALL_NODES);
    let struck = usize::try_from(seed % 4).expect("four nodes");
    let kind = match seed % 2 {
        0 => CrashKind::PowerLoss,
        _ => CrashKind::Kill,
    };
    let machine = story.cluster.machine(struck);
    story.cluster.sim.stop_at(machine, point, 0, Stop::Crash(kind));
    alter(&mut story, (struck + 1) % 4, is_enabled);
    story.cluster.sim.run_for(20 * SECOND);
    assert!(
        !story.is_served(struck),
        "seed {seed}: node {struck} has not come to {point:?}"
    );
    let others: Vec<usize> = ALL_NODES.into_iter().filter(|node| *node != struck).collect();
    write(&mut story, 3, &others);
    story.restart(struck).expect("it starts");
    expect(&mut story, &ALL_NODES, if is_enabled { TABLETS } else { 0 });
    story.cluster.sim.run_for(60 * SECOND);
    check(&mut story, 3, &ALL_NODES, &[QUORUM, ALL]);
}

#[test]
fn no_crash_at_any_step_of_the_way_to_tablets_loses_or_doubles_anything() {
    crash_at(70, StopPoint::SstableCut, true);
    crash_at(71, StopPoint::TabletFlushed, true);
    crash_at(72, StopPoint::TabletSealed, true);
    crash_at(73, StopPoint::TabletsCut, true);
    crash_at(74, StopPoint::TabletsCut, true);
}

#[test]
fn no_crash_at_any_step_of_the_way_to_the_ring_loses_or_doubles_anything() {
    crash_at(84, StopPoint::SstableCut, false);
    crash_at(81, StopPoint::TabletFlushed, false);
    crash_at(82, StopPoint::TabletSealed, false);
    crash_at(85, StopPoint::TabletsCut, false);
    crash_at(86, StopPoint::TabletsCut, false);
}

#[test]
fn what_a_former_owner_of_the_ring_has_does_not_come_back() {
    let mut story = begin(90, 3, 2);
    write(&mut story, 1, &[0, 1, 2]);
    (0..3).for_each(|node| drop(story.operate(node, "POST /storage_service/flush")));
    // Node 3 gets ranges. Those that had them keep their files.
    story.cluster.start(3);
    story.until_served(3);
    story.cluster.sim.run_for(30 * SECOND);
    for k in 0..ROWS {
        story.must(0, &format!("DELETE FROM sea.t WHERE k = {k}"), ALL);
    }
    // The owners drop the tombstones and what they delete.
    for node in 0..4 {
        story.operate(node, "POST /storage_service/flush");
        story.cluster.sim.run_for(2 * SECOND);
        story.operate(node, "POST /storage_service/keyspace_compaction/sea");
    }
    story.cluster.sim.run_for(30 * SECOND);
    for is_enabled in [true, false, true] {
        alter(&mut story, 1, is_enabled);
        expect(&mut story, &ALL_NODES, if is_enabled { TABLETS } else { 0 });
        story.cluster.sim.run_for(10 * SECOND);
        for k in 0..ROWS {
            for node in 0..4 {
                let read = format!("SELECT n FROM sea.t WHERE k = {k}");
                assert_eq!(story.must(node, &read, ALL), None, "row {k} is back by node {node}");
            }
        }
        let whole = story.must(1, "SELECT CAST(COUNT(*) AS int) AS n FROM sea.t", ALL);
        assert_eq!(whole, Some(0), "a scan finds rows that were deleted");
    }
}
