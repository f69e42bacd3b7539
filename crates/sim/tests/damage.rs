//! A node of three that lacks an sstable: clients of it notice nothing.

use std::time::Duration;

use sim::client::Answer;
use sim::story::{ALL, ONE, QUORUM, Story};

/// Rows and counters that all replicas have in sstables; those of node 2 are damaged.
fn damaged(seed: u64) -> Story {
    let mut story = Story::begin(seed, &Story::setup(3));
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 3}";
    story.must(0, &format!("CREATE KEYSPACE sea WITH replication = {replication}"), ALL);
    story.must(0, "CREATE TABLE sea.t (k int PRIMARY KEY, n int)", ALL);
    story.must(0, "CREATE TABLE sea.c (k int PRIMARY KEY, n counter)", ALL);
    for k in 0..20 {
        story.must(0, &format!("INSERT INTO sea.t (k, n) VALUES ({k}, {k})"), ALL);
        story.must(2, &format!("UPDATE sea.c SET n = n + 1 WHERE k = {k}"), ALL);
    }
    story.operate(2, "POST /storage_service/flush");
    let files = story.files(2, "/ceto/data/sea", "-Data.db");
    assert!(files.len() >= 2, "{files:?}");
    story.damage(2, &files);
    story
}

/// The counter, whose number is no int.
fn counted(story: &mut Story, node: usize, k: i32, level: u16) -> String {
    let text = format!("SELECT n FROM sea.c WHERE k = {k}");
    match story.ask(node, &text, level) {
        Some(Answer::Rows(rows, _)) => format!("{:?}", rows[0]["n"]),
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn other_replicas_answer_at_one_for_a_node_whose_sstable_is_damaged() {
    let mut story = damaged(1);
    for _ in 0..2 {
        for k in 0..20 {
            let text = format!("SELECT n FROM sea.t WHERE k = {k}");
            assert_eq!(story.must(2, &text, ONE), Some(k), "{text}");
            assert_eq!(story.must(2, &text, QUORUM), Some(k), "{text}");
        }
        let text = "SELECT CAST(count(*) AS int) AS n FROM sea.t";
        assert_eq!(story.must(2, text, ONE), Some(20));
        // By now it is quarantined, and the node says so.
        story.cluster.sim.run_for(Duration::from_secs(2));
        let listed = story.operate(2, "GET /storage_service/quarantined");
        assert!(listed.contains("big-Data.db"), "{listed}");
    }
    let accepted = story.operate(2, "DELETE /storage_service/quarantined/sea?cf=t");
    assert!(accepted.contains(" 200 "), "{accepted}");
    // The node answers alone again, and lacks the row until it is read at ALL.
    let text = "SELECT n FROM sea.t WHERE k = 7";
    assert_eq!(story.must(2, text, ONE), None);
    assert_eq!(story.must(2, text, ALL), Some(7));
    story.cluster.sim.run_for(Duration::from_secs(2));
    assert_eq!(story.must(2, text, ONE), Some(7));
}

#[test]
fn counters_go_on_where_a_leader_cannot_read_what_it_has_added() {
    let mut story = damaged(2);
    for k in 0..20 {
        story.must(2, &format!("UPDATE sea.c SET n = n + 1 WHERE k = {k}"), QUORUM);
    }
    let accepted = story.operate(2, "DELETE /storage_service/quarantined/sea?cf=c");
    assert!(accepted.contains(" 200 "), "{accepted}");
    // What the node adds now must not be taken for older than what it had added before.
    for k in 0..20 {
        story.must(2, &format!("UPDATE sea.c SET n = n + 1 WHERE k = {k}"), QUORUM);
        assert!(counted(&mut story, 0, k, ALL).contains("(3)"), "counter {k}");
    }
}

#[test]
fn a_truncation_ends_what_a_damaged_sstable_refuses() {
    let mut story = damaged(3);
    let text = "SELECT n FROM sea.t WHERE k = 7";
    assert_eq!(story.must(2, text, QUORUM), Some(7));
    story.cluster.sim.run_for(Duration::from_secs(2));
    story.must(0, "TRUNCATE sea.t", ALL);
    let listed = story.operate(2, "GET /storage_service/quarantined");
    assert!(!listed.contains("\"t\""), "{listed}");
    assert_eq!(story.must(2, text, ALL), None);
    story.must(2, "INSERT INTO sea.t (k, n) VALUES (7, 8)", ONE);
    assert_eq!(story.must(2, text, ONE), Some(8));
}
