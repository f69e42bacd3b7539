//! Writes that one replica refuses permanently, because they are too large for its log, among those that it missed
//! while it was down: three whole nodes with segments of different sizes.

use runtime::sim::CrashKind;
use sim::client::Answer;
use sim::cluster::{ClusterSetup, SEGMENT_BYTES};
use sim::story::{ALL, ONE, QUORUM, Story};
use std::time::Duration;

/// The node whose segments are smaller than those of the others.
const SMALL: usize = 2;
/// Larger than half of a small segment, and smaller than half of the others.
const LARGE_BYTES: usize = 40 << 10;
/// Larger than half of any segment.
const TOO_LARGE_BYTES: usize = 200 << 10;
/// A hint is permanently refused a minute after it was written, at the next look for nodes that are back.
const REFUSAL_WAIT: Duration = Duration::from_secs(100);
/// The large rows among the others.
const LARGE: [i32; 2] = [3, 7];
const ROWS: i32 = 12;

fn begin(seed: u64) -> Story {
    let setup = ClusterSetup {
        segment_bytes: vec![4 * SEGMENT_BYTES, 4 * SEGMENT_BYTES, SEGMENT_BYTES],
        ..Story::setup(3)
    };
    let mut story = Story::begin(seed, &setup);
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 3}";
    story.must(0, &format!("CREATE KEYSPACE sea WITH replication = {replication}"), ALL);
    story.must(0, "CREATE TABLE sea.t (k int PRIMARY KEY, n int, v blob)", ALL);
    story
}

fn insert(k: i32, bytes: usize) -> String {
    format!(
        "INSERT INTO sea.t (k, n, v) VALUES ({k}, {k}, 0x{})",
        "ab".repeat(bytes)
    )
}

fn read(story: &mut Story, node: usize, k: i32, level: u16) -> Option<i32> {
    story.must(node, &format!("SELECT n FROM sea.t WHERE k = {k}"), level)
}

/// How many permanently refused hints a node reports.
fn rejected(story: &mut Story, node: usize) -> u64 {
    let answer = story.operate(node, "GET /hinted_handoff/rejected");
    let counts = answer.split("\"hints\":").skip(1);
    let number = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>();
    counts.map(|rest| number(rest).parse::<u64>().expect("a number")).sum()
}

/// Rows are written while a replica is down, two of which are too large for its log. Which rows it answers alone when
/// it has been back for long.
fn rows_behind_refused_hints() -> (Story, Vec<i32>) {
    let mut story = begin(1);
    story.cluster.crash(SMALL, CrashKind::Kill);
    for k in 0..ROWS {
        let bytes = if LARGE.contains(&k) { LARGE_BYTES } else { 1 };
        // All by one node, whose hints are in one file.
        story.must(0, &insert(k, bytes), QUORUM);
    }
    story.restart(SMALL).expect("nothing is wrong with it");
    story.cluster.sim.run_for(REFUSAL_WAIT);
    let there = (0..ROWS).filter(|k| read(&mut story, SMALL, *k, ONE) == Some(*k));
    let there = there.collect();
    (story, there)
}

#[test]
fn hints_that_a_replica_refuses_for_good_are_set_aside_and_all_others_arrive() {
    let (mut story, there) = rows_behind_refused_hints();
    let expected: Vec<i32> = (0..ROWS).filter(|k| !LARGE.contains(k)).collect();
    assert_eq!(there, expected);
    assert_eq!(rejected(&mut story, 0), LARGE.len() as u64);
    let metrics = story.operate(0, "GET /metrics/all");
    assert!(metrics.contains("\"hints_rejected_total\":2"), "{metrics}");
    let missed = story.operate(0, "GET /storage_service/missed_writes");
    let addresses = story.cluster.addresses();
    let [reporter, target] = [addresses[0].ip(), addresses[SMALL].ip()];
    let span = format!("\"reporter\":\"{reporter}\",\"target\":\"{target}\"");
    assert!(missed.contains(&span), "nobody says what {target} lacks: {missed}");
    let waiting = story.operate(0, "GET /hinted_handoff/pending");
    assert!(waiting.ends_with("[]"), "nothing waits any more: {waiting}");
    for node in 0..3 {
        for k in 0..ROWS {
            assert_eq!(read(&mut story, node, k, QUORUM), Some(k), "row {k} by node {node}");
        }
    }
    // The remedy: written again in a smaller form, the row is everywhere.
    for k in LARGE {
        story.must(0, &insert(k, 1), ALL);
        assert_eq!(read(&mut story, SMALL, k, ONE), Some(k));
    }
    let cleared = story.operate(0, "DELETE /hinted_handoff/rejected");
    assert!(cleared.contains(" 200 "), "{cleared}");
    assert_eq!(rejected(&mut story, 0), 0);
}

#[test]
#[cfg(debug_assertions)]
fn without_setting_aside_the_rows_behind_a_refused_one_do_not_arrive() {
    let _planted = stdx::planted::Planted::new(Some(stdx::planted::Bug::RejectedHintWaits));
    let (mut story, there) = rows_behind_refused_hints();
    assert_eq!(there, [0, 1, 2]);
    assert_eq!(rejected(&mut story, 0), 0);
}

#[test]
fn a_write_that_every_replica_refuses_is_an_error_and_leaves_no_hint() {
    let mut story = begin(2);
    let refused = |story: &mut Story, node: usize, level: u16| {
        let answer = story.ask(node, &insert(100, TOO_LARGE_BYTES), level);
        let Some(Answer::Error { message, .. }) = answer else {
            panic!("{answer:?}");
        };
        assert!(message.contains("too large"), "{message}");
    };
    for node in 0..3 {
        refused(&mut story, node, QUORUM);
        refused(&mut story, node, ONE);
    }
    story.cluster.sim.run_for(REFUSAL_WAIT);
    for node in 0..3 {
        let waiting = story.operate(node, "GET /hinted_handoff/pending");
        assert!(waiting.ends_with("[]"), "node {node}: {waiting}");
        assert_eq!(rejected(&mut story, node), 0, "node {node}");
        assert_eq!(read(&mut story, node, 100, ALL), None);
    }
}
