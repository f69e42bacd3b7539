//! A node of three whose wall clock jumps a day, with clients on all of them: nothing is lost, nothing comes back.

use std::time::Duration;

use sim::story::{ALL, QUORUM, Story};
use stdx::planted::{Bug, Planted};

const SECOND: Duration = Duration::from_secs(1);
const DAY_US: i64 = 86_400_000_000;

/// Rows with a TTL of an hour: so much that memtables are flushed and sstables merged.
fn insert(story: &mut Story, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let text = "x".repeat(20_000);
        let insert = format!("INSERT INTO sea.t (k, v) VALUES ({number}, '{text}') USING TTL 3600");
        story.must(number % 2, &insert, QUORUM);
    }
}

/// Rows that are written before the jump.
const ROWS: usize = 60;
/// All rows: enough that rows from before the jump are merged with rows written during it.
const ALL_ROWS: usize = 4 * ROWS;

/// Rows with a TTL that are there in the end, and the value that was written last: of two writes, the first of which a
/// node with a jump made.
fn after_a_jump(seed: u64, day_us: i64) -> (Option<i32>, Option<i32>) {
    let mut story = Story::begin(seed, &Story::setup(3));
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 3}";
    story.must(0, &format!("CREATE KEYSPACE sea WITH replication = {replication}"), ALL);
    story.must(0, "CREATE TABLE sea.t (k int PRIMARY KEY, v text)", ALL);
    story.must(0, "CREATE TABLE sea.n (k int PRIMARY KEY, n int)", ALL);
    insert(&mut story, 0..ROWS);
    story.must(0, "INSERT INTO sea.n (k, n) VALUES (1, 1)", ALL);
    let machine = story.cluster.machine(2);
    story.cluster.sim.set_clock_skew_us(machine, day_us);
    story.cluster.sim.run_for(SECOND);
    story.must(2, "UPDATE sea.n SET n = 2 WHERE k = 1", ALL);
    story.must(0, "UPDATE sea.n SET n = 3 WHERE k = 1", ALL);
    insert(&mut story, ROWS..ALL_ROWS);
    story.cluster.sim.run_for(20 * SECOND);
    if stdx::planted::is_planted(Bug::UntrustedClock) {
        story.cluster.sim.set_clock_skew_us(machine, 0);
    } else {
        assert!(!story.is_served(2), "it has left service");
        insert(&mut story, 0..ROWS / 2);
        story.cluster.sim.set_clock_skew_us(machine, 0);
        assert!(story.until_served(2) > 3, "it is calm first");
    }
    story.cluster.sim.run_for(10 * SECOND);
    let rows = story.must(2, "SELECT CAST(count(*) AS int) AS n FROM sea.t", ALL);
    let value = story.must(2, "SELECT n FROM sea.n WHERE k = 1", ALL);
    (rows, value)
}

#[test]
fn a_node_whose_clock_jumps_a_day_loses_nothing_and_returns() {
    for (seed, day_us) in [(1, DAY_US), (2, -DAY_US)] {
        let rows = i32::try_from(ALL_ROWS).expect("a few");
        assert_eq!(after_a_jump(seed, day_us), (Some(rows), Some(3)), "by {day_us} us");
    }
}

#[test]
fn a_node_that_follows_its_clock_loses_rows_or_later_writes() {
    let _planted = Planted::new(Some(Bug::UntrustedClock));
    let all = i32::try_from(ALL_ROWS).expect("a few");
    let found = after_a_jump(1, DAY_US);
    eprintln!("rows and value: {found:?}");
    assert_ne!(
        found,
        (Some(all), Some(3)),
        "expired rows are gone, or a write of tomorrow hides that of today"
    );
}
