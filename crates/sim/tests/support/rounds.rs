//! Rounds of writes on the tables of a story, and the check that all of them are there: `t` of plain rows, `l` of rows
//! that conditional statements write, `c` of counters.

use sim::story::{QUORUM, Story};

/// Rows of each table.
pub const ROWS: i32 = 24;

/// One more round on every row: a plain write, a conditional one and an addition, by one node after the other of those
/// that serve.
pub fn write(story: &mut Story, round: i32, nodes: &[usize]) {
    for k in 0..ROWS {
        let node = nodes[k as usize % nodes.len()];
        let plain = format!("INSERT INTO sea.t (k, n) VALUES ({k}, {round})");
        story.must(node, &plain, QUORUM);
        let conditional = match round {
            1 => format!("INSERT INTO sea.l (k, n) VALUES ({k}, 1) IF NOT EXISTS"),
            _ => format!("UPDATE sea.l SET n = {round} WHERE k = {k} IF n = {}", round - 1),
        };
        story.must(node, &conditional, QUORUM);
        story.must(node, &format!("UPDATE sea.c SET n = n + 1 WHERE k = {k}"), QUORUM);
    }
}

/// Every row is as of a round, wherever it is read.
#[track_caller]
pub fn check(story: &mut Story, round: i32, nodes: &[usize], levels: &[u16]) {
    for level in levels {
        for k in 0..ROWS {
            for node in nodes {
                let read = |table: &str| format!("SELECT n FROM sea.{table} WHERE k = {k}");
                let plain = story.must(*node, &read("t"), *level);
                assert_eq!(plain, Some(round), "row {k} by node {node} at {level}");
                let conditional = story.must(*node, &read("l"), *level);
                assert_eq!(
                    conditional,
                    Some(round),
                    "conditional row {k} by node {node} at {level}"
                );
                let count = format!("SELECT CAST(n AS int) AS n FROM sea.c WHERE k = {k}");
                let counted = story.must(*node, &count, *level);
                assert_eq!(counted, Some(round), "counter {k} by node {node} at {level}");
            }
        }
    }
    let whole = story.must(1, "SELECT CAST(COUNT(*) AS int) AS n FROM sea.t", QUORUM);
    assert_eq!(whole, Some(ROWS), "a scan finds each row once");
}
