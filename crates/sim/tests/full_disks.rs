//! Disks that fill up, step by step on three whole nodes with small disks: what clients are refused, what continues to
//! work, and how the nodes recover by themselves.

use std::time::Duration;

use runtime::sim::CrashKind;
use sim::client::Answer;
use sim::model::Value;
use sim::story::{ALL, ONE, QUORUM, Story};

const SECOND: Duration = Duration::from_secs(1);
/// Until hints are handed over.
const HINTS_WAIT: Duration = Duration::from_secs(20);
/// What a disk has left beside what is used, at first.
const ROOM: u64 = 256 << 20;
/// What other programs use.
const FILLER: usize = 64 << 20;
const NODES: [usize; 3] = [0, 1, 2];
/// The node whose disk is full first.
const HIT: usize = 2;
const WRITE_FAILURE: i32 = 0x1500;

/// Three nodes, each with a small disk, and tables with three copies.
fn three_nodes(seed: u64) -> Story {
    let mut setup = Story::setup(3);
    setup.seeds = 3;
    let mut story = Story::begin(seed, &setup);
    for node in NODES {
        // Else the last percent of so small a node is a few pages.
        let machine = story.cluster.machine(node);
        let filler = || runtime::fs::write("/filler", &vec![0; FILLER]).expect("there is room");
        story.cluster.sim.on_node(machine, filler);
        story.cluster.set_disk_room(node, Some(ROOM));
    }
    // Until now the disks were large, and seldom looked at.
    story.cluster.sim.run_for(6 * SECOND);
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 3} AND tablets = {'enabled': false}";
    story.must(0, &format!("CREATE KEYSPACE sea WITH replication = {replication}"), ALL);
    for table in ["t", "other", "third"] {
        story.must(0, &format!("CREATE TABLE sea.{table} (k int PRIMARY KEY, n int)"), ALL);
        story.must(0, &format!("INSERT INTO sea.{table} (k, n) VALUES (0, 0)"), ALL);
    }
    story
}

/// Leaves a node one part in 200 of its disk, and waits until it has looked.
fn fill(story: &mut Story, node: usize) {
    let machine = story.cluster.machine(node);
    let space = story.cluster.sim.on_node(machine, || runtime::fs::disk_space("/"));
    let used = space.expect("a simulated disk").used;
    story.cluster.set_disk_room(node, Some(used / 199));
    story.cluster.sim.run_for(SECOND);
}

fn empty(story: &mut Story, node: usize) {
    story.cluster.set_disk_room(node, Some(ROOM));
    story.cluster.sim.run_for(SECOND);
}

/// What a node says of the disks of all.
fn levels(story: &mut Story, node: usize) -> String {
    let answer = story.operate(node, "GET /ceto/disks");
    answer.rsplit("\r\n\r\n").next().unwrap_or_default().to_owned()
}

#[track_caller]
fn assert_refused(story: &mut Story, node: usize, statement: &str, level: u16) {
    match story.ask(node, statement, level) {
        Some(Answer::Error { code, message }) => {
            assert_eq!(code, WRITE_FAILURE, "{statement}: {message}");
            let is_said = message.starts_with("Write request failed because disk usage exceeds the failure threshold");
            assert!(is_said, "{statement}: {message}");
        }
        other => panic!("node {node} takes {statement} at {level}: {other:?}"),
    }
}

/// Whether a conditional statement was applied.
#[track_caller]
fn applied(story: &mut Story, node: usize, statement: &str) -> bool {
    match story.ask(node, statement, QUORUM) {
        Some(Answer::Rows(rows, _)) => rows[0].get("[applied]") == Some(&Value::Int(1)),
        other => panic!("{statement}: {other:?}"),
    }
}

#[test]
fn a_node_whose_disk_fills_up_is_sent_no_data_and_gets_it_when_it_has_room() {
    let mut story = three_nodes(1);
    fill(&mut story, HIT);
    for node in NODES {
        assert_eq!(
            levels(&mut story, node).matches("critical").count(),
            1,
            "node {node} knows"
        );
    }
    for (node, k) in NODES.into_iter().zip(1..) {
        assert_refused(&mut story, node, "INSERT INTO sea.t (k, n) VALUES (9, 9)", ALL);
        story.must(node, &format!("INSERT INTO sea.t (k, n) VALUES ({k}, {k})"), QUORUM);
        assert_eq!(
            story.must(node, &format!("SELECT n FROM sea.t WHERE k = {k}"), QUORUM),
            Some(k)
        );
        assert!(applied(
            &mut story,
            node,
            &format!("INSERT INTO sea.other (k, n) VALUES ({k}, {k}) IF NOT EXISTS")
        ));
    }
    story.must(HIT, "DELETE FROM sea.t WHERE k = 0", ALL);
    empty(&mut story, HIT);
    story.cluster.sim.run_for(HINTS_WAIT);
    assert!(!levels(&mut story, 0).contains("critical"));
    for k in 1..4 {
        for node in NODES {
            assert_eq!(
                story.must(node, &format!("SELECT n FROM sea.t WHERE k = {k}"), ALL),
                Some(k)
            );
        }
    }
    assert_eq!(
        story.must(HIT, "SELECT n FROM sea.t WHERE k = 9", ALL),
        None,
        "what was refused is nowhere"
    );
    story.must(HIT, "INSERT INTO sea.t (k, n) VALUES (9, 9)", ALL);
}

#[test]
fn a_cluster_whose_disks_are_full_serves_reads_and_deletes_and_recovers() {
    let mut story = three_nodes(2);
    for k in 1..10 {
        story.must(0, &format!("INSERT INTO sea.t (k, n) VALUES ({k}, {k})"), ALL);
    }
    for node in NODES {
        fill(&mut story, node);
    }
    for node in NODES {
        for level in [ONE, QUORUM, ALL] {
            assert_refused(&mut story, node, "INSERT INTO sea.t (k, n) VALUES (99, 99)", level);
            assert_refused(&mut story, node, "UPDATE sea.t SET n = 99 WHERE k = 1", level);
            let batch =
                "BEGIN BATCH INSERT INTO sea.t (k, n) VALUES (99, 99); DELETE FROM sea.t WHERE k = 1; APPLY BATCH";
            assert_refused(&mut story, node, batch, level);
        }
        assert_refused(
            &mut story,
            node,
            "INSERT INTO sea.t (k, n) VALUES (99, 99) IF NOT EXISTS",
            QUORUM,
        );
        assert_eq!(story.must(node, "SELECT n FROM sea.t WHERE k = 1", ALL), Some(1));
        assert!(
            !applied(
                &mut story,
                node,
                "INSERT INTO sea.t (k, n) VALUES (1, 99) IF NOT EXISTS"
            ),
            "it reads"
        );
    }
    story.must(0, "DELETE FROM sea.t WHERE k = 1", ALL);
    story.must(
        1,
        "BEGIN BATCH DELETE FROM sea.t WHERE k = 2; DELETE FROM sea.t WHERE k = 3; APPLY BATCH",
        ALL,
    );
    assert!(applied(&mut story, 2, "DELETE FROM sea.t WHERE k = 4 IF EXISTS"));
    story.must(0, "TRUNCATE sea.other", ALL);
    story.must(0, "DROP TABLE sea.third", ALL);
    for (k, n) in [(1, None), (2, None), (3, None), (4, None), (5, Some(5))] {
        assert_eq!(story.must(1, &format!("SELECT n FROM sea.t WHERE k = {k}"), ALL), n);
    }
    // It starts while its disk is full, with what its log has.
    story.cluster.crash(HIT, CrashKind::Kill);
    story.restart(HIT).expect("a node with a full disk starts");
    story.until_served(HIT);
    assert_eq!(story.must(HIT, "SELECT n FROM sea.t WHERE k = 5", ONE), Some(5));
    assert_refused(&mut story, HIT, "INSERT INTO sea.t (k, n) VALUES (99, 99)", ONE);
    for node in NODES {
        empty(&mut story, node);
    }
    for node in NODES {
        story.must(node, &format!("INSERT INTO sea.t (k, n) VALUES ({node}, 7)"), ALL);
    }
    assert_eq!(story.must(0, "SELECT n FROM sea.t WHERE k = 99", ALL), None);
}
