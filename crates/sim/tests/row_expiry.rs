//! Rows that expire by their TTL column, on three nodes of which one has missed that others live longer.

use std::time::Duration;

use runtime::sim::CrashKind;
use sim::cluster::ClusterSetup;
use sim::story::{ALL, ONE, QUORUM, Story};

const SECOND: Duration = Duration::from_secs(1);
const ROWS: i32 = 24;
/// The rows below this are to live longer than was said at first.
const PROLONGED: i32 = 12;
/// Seconds that rows live at first.
const LIFE: i32 = 60;

/// The nodes' clock: seconds since the epoch.
fn now(story: &mut Story) -> i32 {
    let statement = "SELECT CAST(to_unix_timestamp(now()) / 1000 AS int) AS n FROM system.local";
    story.must(1, statement, ONE).expect("a number")
}

/// The rows that a node reads whole at a level.
fn whole_rows(story: &mut Story, node: usize, level: u16) -> Vec<i32> {
    let mut reads = |k: &i32| {
        let statement = format!("SELECT n FROM sea.t WHERE k = {k} AND c = 0");
        story.must(node, &statement, level) == Some(*k)
    };
    (0..ROWS).filter(|k| reads(k)).collect()
}

/// Rows that live on, and a node that was down when that was said. It is back, and has looked for expired rows.
fn prolonged(seed: u64, down: usize) -> Story {
    let setup = ClusterSetup {
        hints: false,
        ..Story::setup(3)
    };
    let mut story = Story::begin(seed, &setup);
    let replication = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 3}";
    story.must(0, &format!("CREATE KEYSPACE sea WITH replication = {replication}"), ALL);
    let columns = "k int, c int, n int, ends bigint TTL, s int static, PRIMARY KEY (k, c)";
    story.must(0, &format!("CREATE TABLE sea.t ({columns})"), ALL);
    let first = now(&mut story) + LIFE;
    for k in 0..ROWS {
        let row = format!("INSERT INTO sea.t (k, c, n, ends, s) VALUES ({k}, 0, {k}, {first}, {k})");
        story.must(0, &row, ALL);
    }
    story.cluster.crash(down, CrashKind::Kill);
    story.cluster.sim.run_for(10 * SECOND);
    let up = (down + 1) % 3;
    for k in 0..PROLONGED {
        let later = first + 1_000_000;
        let prolong = format!("UPDATE sea.t SET ends = {later} WHERE k = {k} AND c = 0");
        story.must(up, &prolong, QUORUM);
    }
    assert_eq!(
        whole_rows(&mut story, up, QUORUM).len(),
        ROWS as usize,
        "none has expired yet"
    );
    story.cluster.sim.run_for((LIFE as u32 + 60) * SECOND);
    let left: Vec<i32> = (0..PROLONGED).collect();
    assert_eq!(whole_rows(&mut story, up, QUORUM), left, "while node {down} is down");
    story.restart(down).expect("nothing is wrong with it");
    story.cluster.sim.run_for(60 * SECOND);
    story
}

// Each node is the first replica of some rows, or of none.
#[test]
fn what_has_expired_goes_while_a_replica_is_down_and_what_was_prolonged_stays_when_it_is_back() {
    let left: Vec<i32> = (0..PROLONGED).collect();
    for down in 0..3 {
        let mut story = prolonged(down as u64, down);
        for (node, level) in [(0, QUORUM), (1, QUORUM), (2, ALL)] {
            let whole = whole_rows(&mut story, node, level);
            assert_eq!(whole, left, "by node {node} at {level}, node {down} was down");
        }
        let statics = story.must(0, "SELECT s AS n FROM sea.t WHERE k = 20 LIMIT 1", QUORUM);
        assert_eq!(statics, Some(20), "the static row of an expired row stays");
    }
}

#[test]
#[cfg(debug_assertions)]
fn rows_that_go_by_the_word_of_one_copy_are_found() {
    let _planted = stdx::planted::Planted::new(Some(stdx::planted::Bug::UnconfirmedExpiry));
    let is_found = (0..3).any(|down| {
        let mut story = prolonged(down as u64, down);
        whole_rows(&mut story, 2, ALL).len() < PROLONGED as usize
    });
    assert!(is_found, "the planted bug did nothing");
}
