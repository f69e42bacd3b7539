//! Faults that last, step by step on whole nodes, and the bugs that each of these stories finds when they are planted.
//!
//! Some stories are elsewhere: directories that are restored or lost (`UncheckedRun`, `UncheckedDirectory`,
//! `UncomparedHistory`) in `directories.rs`, hints that are refused permanently (`RejectedHintWaits`) in
//! `refused_hints.rs`, clocks (`UntrustedClock`) in `clocks.rs`, and a log that takes no writes (`UnheededLog`) in
//! `crates/coordinator/tests/refusing.rs`.

use std::time::Duration;

use runtime::sim::CrashKind;
use sim::client::Answer;
use sim::cluster::ClusterSetup;
use sim::story::{ALL, EACH_QUORUM, ONE, QUORUM, Story};
use stdx::planted::{Bug, Planted};

const SECOND: Duration = Duration::from_secs(1);
const LOCAL_QUORUM: u16 = 6;
/// Rows of the table.
const ROWS: i32 = 10;

/// Changes bytes of all sstables of a node's table while the node runs; what the node then answers alone for each row.
fn answers_of_a_damaged_node() -> Vec<Option<i32>> {
    let mut story = Story::begin(1, &Story::setup(3));
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 3}";
    story.must(0, &format!("CREATE KEYSPACE sea WITH replication = {replication}"), ALL);
    story.must(0, "CREATE TABLE sea.t (k int PRIMARY KEY, n int)", ALL);
    for k in 0..ROWS {
        story.must(0, &format!("INSERT INTO sea.t (k, n) VALUES ({k}, {k})"), ALL);
    }
    story.operate(2, "POST /storage_service/flush");
    let files = story.files(2, "/ceto/data/sea", "-Data.db");
    story.damage(2, &files);
    let read = |story: &mut Story, k: i32| story.must(2, &format!("SELECT n FROM sea.t WHERE k = {k}"), ONE);
    read(&mut story, 0);
    story.cluster.sim.run_for(5 * SECOND);
    (0..ROWS).map(|k| read(&mut story, k)).collect()
}

#[test]
fn a_damaged_file_costs_no_answer() {
    let all: Vec<Option<i32>> = (0..ROWS).map(Some).collect();
    assert_eq!(answers_of_a_damaged_node(), all);
    let _planted = Planted::new(Some(Bug::DamagedFileIgnored));
    assert_ne!(answers_of_a_damaged_node(), all, "rows are missing without a word");
}

/// Two nodes here and one there, whose datacenter goes away while a logged batch at EACH_QUORUM is on its way: how many
/// segments the largest log has when much was written since, and whether the batch is whole when the datacenter is
/// back.
fn segments_behind_a_batch() -> (usize, [Option<i32>; 2]) {
    let place = |datacenter: &str| (datacenter.to_owned(), "rack1".to_owned());
    let setup = ClusterSetup {
        places: vec![place("datacenter1"), place("datacenter1"), place("datacenter2")],
        ..Story::setup(3)
    };
    let mut story = Story::begin(3, &setup);
    let replication = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 2, 'datacenter2': 1}";
    story.must(0, &format!("CREATE KEYSPACE sea WITH replication = {replication}"), ALL);
    story.must(0, "CREATE TABLE sea.t (k int PRIMARY KEY, n int)", ALL);
    story.must(0, "CREATE TABLE sea.b (k int PRIMARY KEY, v blob)", ALL);
    story.cluster.split(&[2], &[0, 1]);
    let batch =
        "BEGIN BATCH INSERT INTO sea.t (k, n) VALUES (1, 1); INSERT INTO sea.t (k, n) VALUES (2, 2); APPLY BATCH";
    let answer = story.ask(0, batch, EACH_QUORUM);
    assert!(matches!(answer, Some(Answer::Error { .. })), "{answer:?}");
    let value = "00".repeat(20_000);
    for k in 0..300 {
        let insert = format!("INSERT INTO sea.b (k, v) VALUES ({k}, 0x{value})");
        story.must(k % 2, &insert, LOCAL_QUORUM);
        story.cluster.sim.run_for(SECOND / 2);
    }
    let segments = (0..2).map(|node| story.files(node, "/ceto/commitlog", ".log").len());
    let segments = segments.max().expect("two nodes");
    story.cluster.set_links(2, true, true);
    story.cluster.sim.run_for(60 * SECOND);
    let read = |k: i32| format!("SELECT n FROM sea.t WHERE k = {k}");
    let parts = [1, 2].map(|k| story.must(2, &read(k), ONE));
    (segments, parts)
}

#[test]
fn a_batch_that_waits_for_a_datacenter_keeps_no_log() {
    let (segments, parts) = segments_behind_a_batch();
    let _planted = Planted::new(Some(Bug::BatchPinsLog));
    let (pinned, _) = segments_behind_a_batch();
    eprintln!("{segments} segments, and {pinned} with the bug");
    assert_eq!(
        parts,
        [Some(1), Some(2)],
        "the batch is whole in the datacenter that is back"
    );
    // The limit of the log is sixteen segments, and watched five times a second.
    assert!(
        segments <= 24 && pinned > 2 * segments,
        "{segments} segments, and {pinned} with the bug"
    );
}

#[test]
fn a_node_that_is_removed_for_good_is_not_missed_and_does_not_return() {
    let mut setup = Story::setup(4);
    setup.seeds = 2;
    let mut story = Story::of_machines(4, &setup);
    for node in 0..3 {
        story.cluster.start(node);
        story.until_served(node);
    }
    story.cluster.sim.run_for(5 * SECOND);
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 3} AND tablets = {'enabled': false}";
    story.must(0, &format!("CREATE KEYSPACE sea WITH replication = {replication}"), ALL);
    story.must(0, "CREATE TABLE sea.t (k int PRIMARY KEY, n int)", ALL);
    for k in 0..ROWS {
        story.must(
            k as usize % 3,
            &format!("INSERT INTO sea.t (k, n) VALUES ({k}, {k})"),
            QUORUM,
        );
    }
    let gone = story.host_id(2);
    let request = format!("POST /storage_service/remove_node?host_id={gone}");
    let refused = story.operate(0, &request);
    assert!(!refused.contains(" 200 ") && refused.contains("alive"), "{refused}");
    story.cluster.crash(2, CrashKind::PowerLoss);
    story.cluster.sim.run_for(40 * SECOND);
    let removed = story.operate(0, &request);
    assert!(removed.contains(" 200 "), "{removed}");
    let check = |story: &mut Story, nodes: &[usize]| {
        for node in nodes {
            for k in 0..ROWS {
                let text = format!("SELECT n FROM sea.t WHERE k = {k}");
                assert_eq!(story.must(*node, &text, QUORUM), Some(k), "{text} by node {node}");
            }
        }
    };
    check(&mut story, &[0, 1]);
    // No node waits for the removed node, and it does not come back.
    story.must(0, "CREATE TABLE sea.u (k int PRIMARY KEY, n int)", ALL);
    story.cluster.restart(2);
    story.cluster.sim.run_for(30 * SECOND);
    assert!(!story.is_served(2), "a node that was removed serves");
    let why = story.cluster.failure(2).unwrap_or_default();
    assert!(why.contains("removed") || why.contains("left"), "{why}");
    // A machine that takes its place joins as a new node.
    story.cluster.start(3);
    story.until_served(3);
    check(&mut story, &[0, 1, 3]);
    let status = story.operate(1, "GET /storage_service/host_id");
    assert!(!status.contains(&gone), "{status}");
}
