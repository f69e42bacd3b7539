//! Tables that are split and merged on whole nodes, with everything that is known of their rows: conditional
//! statements, counters, truncations, batches and hints.

use std::time::Duration;

use crate::support::rounds::{ROWS, check, write};
use runtime::StopPoint;
use runtime::sim::{CrashKind, Stop};
use sim::client::Answer;
use sim::cluster::ClusterSetup;
use sim::story::{ALL, ONE, QUORUM, Story};

const SECOND: Duration = Duration::from_secs(1);

/// Three nodes of two shards, with tables of two tablets and three copies each.
fn begin(seed: u64) -> Story {
    let setup = ClusterSetup {
        shards: vec![2; 3],
        ..Story::setup(3)
    };
    let mut story = Story::begin(seed, &setup);
    let replication = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 3}";
    let keyspace = format!("CREATE KEYSPACE sea WITH replication = {replication} AND tablets = {{'initial': 2}}");
    story.must(0, &keyspace, ALL);
    story.must(0, "CREATE TABLE sea.t (k int PRIMARY KEY, n int)", ALL);
    story.must(0, "CREATE TABLE sea.l (k int PRIMARY KEY, n int)", ALL);
    story.must(0, "CREATE TABLE sea.c (k int PRIMARY KEY, n counter)", ALL);
    story
}

/// An operator of a node resizes a table of the keyspace. The task is not waited for.
fn resize(story: &mut Story, node: usize, table: &str, tablets: u32) {
    let request = format!("POST /ceto/tasks/resize_table?ks=sea&table={table}&tablet_count={tablets}");
    story.cluster.order(node, &request);
}

/// Every node says that a table has so many tablets.
#[track_caller]
fn expect_tablets(story: &mut Story, table: &str, tablets: usize) {
    let read = format!(
        "SELECT last_token FROM system.tablets WHERE keyspace_name = 'sea' AND table_name = '{table}' ALLOW FILTERING"
    );
    for node in 0..3 {
        let mut found = 0;
        for _ in 0..60 {
            if let Some(Answer::Rows(rows, _)) = story.ask(node, &read, ONE) {
                found = rows.len();
            }
            if found == tablets {
                break;
            }
            story.cluster.sim.run_for(SECOND);
        }
        assert_eq!(found, tablets, "tablets of {table} by node {node}");
    }
}

const TABLES: [&str; 3] = ["t", "l", "c"];

#[test]
fn rows_proposals_and_counters_survive_splits_and_merges() {
    let mut story = begin(40);
    write(&mut story, 1, &[0, 1, 2]);
    let mut round = 1;
    // The two that a table begins with are on different shards, so they are not merged.
    for tablets in [4, 8, 4, 2, 4, 2] {
        for (node, table) in TABLES.into_iter().enumerate() {
            resize(&mut story, node, table, tablets);
        }
        round += 1;
        write(&mut story, round, &[0, 1, 2]);
        for table in TABLES {
            expect_tablets(&mut story, table, tablets as usize);
        }
        if tablets % 4 == 0 {
            for node in 0..3 {
                story.operate(node, "POST /storage_service/flush");
            }
        }
        check(&mut story, round, &[0, 1, 2], &[QUORUM]);
    }
    check(&mut story, round, &[0, 1, 2], &[ALL, ONE]);
}

#[test]
fn a_split_while_a_node_is_down_loses_no_hint_and_no_truncation() {
    let mut story = begin(41);
    write(&mut story, 1, &[0, 1, 2]);
    story.must(0, "CREATE TABLE sea.gone (k int PRIMARY KEY, n int)", ALL);
    for k in 0..ROWS {
        story.must(0, &format!("INSERT INTO sea.gone (k, n) VALUES ({k}, 1)"), ALL);
    }
    story.cluster.crash(2, CrashKind::Kill);
    story.cluster.sim.run_for(20 * SECOND);
    for table in TABLES {
        resize(&mut story, 0, table, 4);
    }
    resize(&mut story, 0, "gone", 4);
    story.cluster.sim.run_for(5 * SECOND);
    write(&mut story, 2, &[0, 1]);
    story.restart(2).expect("it starts");
    for table in TABLES {
        expect_tablets(&mut story, table, 4);
    }
    story.must(1, "TRUNCATE sea.gone", ALL);
    resize(&mut story, 2, "gone", 2);
    expect_tablets(&mut story, "gone", 2);
    story.cluster.sim.run_for(60 * SECOND);
    check(&mut story, 2, &[0, 1, 2], &[ONE, QUORUM]);
    for node in 0..3 {
        for k in 0..ROWS {
            let read = format!("SELECT n FROM sea.gone WHERE k = {k}");
            assert_eq!(story.must(node, &read, ONE), None, "row {k} is back on node {node}");
        }
    }
}

#[test]
fn no_crash_at_any_step_of_a_split_loses_or_doubles_anything() {
    let points = [StopPoint::SstableCut, StopPoint::FlushSealed, StopPoint::TabletsCut];
    for (seed, point) in (42..).zip(points.into_iter().chain(points)) {
        let mut story = begin(seed);
        write(&mut story, 1, &[0, 1, 2]);
        for node in 0..3 {
            story.operate(node, "POST /storage_service/flush");
        }
        let struck = usize::try_from(seed % 3).expect("three nodes");
        let kind = if seed % 2 == 0 {
            CrashKind::PowerLoss
        } else {
            CrashKind::Kill
        };
        let machine = story.cluster.machine(struck);
        story.cluster.sim.stop_at(machine, point, 0, Stop::Crash(kind));
        let operator = (struck + 1) % 3;
        for table in TABLES {
            resize(&mut story, operator, table, 4);
        }
        story.cluster.sim.run_for(20 * SECOND);
        assert!(
            !story.is_served(struck),
            "seed {seed}: node {struck} has not come to {point:?}"
        );
        let others: Vec<usize> = (0..3).filter(|node| *node != struck).collect();
        write(&mut story, 2, &others);
        story.restart(struck).expect("it starts");
        for table in TABLES {
            expect_tablets(&mut story, table, 4);
        }
        story.cluster.sim.run_for(60 * SECOND);
        check(&mut story, 2, &[0, 1, 2], &[QUORUM, ALL]);
    }
}

/// The rows of a table with one copy that are there after its tablets were merged on nodes of which one is killed
/// before it has flushed that many memtables.
fn rows_after_a_merge(seed: u64, flushes: u64) -> i32 {
    let mut story = Story::begin(seed, &Story::setup(3));
    let replication = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}";
    let keyspace = format!("CREATE KEYSPACE sea WITH replication = {replication} AND tablets = {{'initial': 2}}");
    story.must(0, &keyspace, ALL);
    story.must(0, "CREATE TABLE sea.t (k int PRIMARY KEY, n int)", ALL);
    // The halves stay together.
    story.operate(0, "POST /storage_service/tablets/balancing?enabled=false");
    resize(&mut story, 0, "t", 4);
    expect_tablets(&mut story, "t", 4);
    for k in 0..ROWS {
        story.must(0, &format!("INSERT INTO sea.t (k, n) VALUES ({k}, 1)"), ALL);
    }
    for node in 0..3 {
        let machine = story.cluster.machine(node);
        let kill = Stop::Crash(CrashKind::Kill);
        story
            .cluster
            .sim
            .stop_at(machine, StopPoint::FlushFrozen, flushes, kill);
    }
    resize(&mut story, 0, "t", 2);
    story.cluster.sim.run_for(20 * SECOND);
    for node in 0..3 {
        if !story.is_served(node) {
            story.restart(node).expect("it starts");
        }
    }
    expect_tablets(&mut story, "t", 2);
    story
        .must(0, "SELECT CAST(COUNT(*) AS int) AS n FROM sea.t", ALL)
        .expect("a count")
}

#[test]
fn no_row_in_memory_is_lost_when_nodes_are_killed_while_merged_tablets_flush_it() {
    for (seed, flushes) in (60..62).flat_map(|seed| (0..4).map(move |flushes| (seed, flushes))) {
        let rows = rows_after_a_merge(seed, flushes);
        assert_eq!(rows, ROWS, "seed {seed}, killed before flush {flushes}");
    }
}

#[test]
#[cfg(debug_assertions)]
fn a_tablet_that_tells_the_log_of_more_than_it_has_written_is_found() {
    let _planted = stdx::planted::Planted::new(Some(stdx::planted::Bug::HeirDiscardsAll));
    // Where the tablets are, and so which flush is of which, follows from the seed.
    let is_found = (60..68).any(|seed| (0..4).any(|flushes| rows_after_a_merge(seed, flushes) < ROWS));
    assert!(is_found, "the planted bug did nothing");
}
