//! Nodes that give their data to others and leave, as their operators see it.

use std::time::Duration;

use runtime::sim::CrashKind;
use sim::story::{ONE, QUORUM, Story};

const DONE_WITHIN: Duration = Duration::from_mins(3);
/// After so long a node is missed.
const SECONDS: Duration = Duration::from_secs(10);
const REPORTED_AFTER: Duration = Duration::from_mins(1);

/// Four nodes with a table, of which some rows are written and deleted by the last one.
fn begin(seed: u64, copies: usize, tablets: bool) -> Story {
    let mut story = Story::begin(seed, &Story::setup(4));
    let replication = format!("{{'class': 'NetworkTopologyStrategy', 'datacenter1': {copies}}}");
    let keyspace =
        format!("CREATE KEYSPACE ks WITH replication = {replication} AND tablets = {{'enabled': {tablets}}}");
    story.must(0, &keyspace, ONE);
    story.must(0, "CREATE TABLE ks.t (k int PRIMARY KEY, v int)", ONE);
    for k in 0..20 {
        story.must(3, &format!("INSERT INTO ks.t (k, v) VALUES ({k}, 1)"), QUORUM);
        story.must(3, &format!("DELETE FROM ks.t WHERE k = {k}"), QUORUM);
    }
    story
}

/// The operator of a node decommissions it. Returns when the operator has the answer.
fn decommission(story: &mut Story, node: usize) {
    let ticket = story.cluster.order_apart(node, "POST /storage_service/decommission");
    until_left(story, node, ticket);
}

fn until_left(story: &mut Story, node: usize, ticket: u64) {
    let end = story.cluster.sim.now() + DONE_WITHIN;
    while story.cluster.answer_to(node, ticket).is_none() {
        assert!(story.cluster.sim.now() < end, "the node does not leave");
        story.cluster.sim.run_for(Duration::from_millis(100));
    }
    let answer = story.cluster.answer_to(node, ticket).expect("it has answered");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn a_node_that_has_left_ends_in_order_leaves_no_missed_writes_and_does_not_start_again() {
    for (seed, tablets) in [(1, true), (2, false)] {
        let mut story = begin(seed, 3, tablets);
        decommission(&mut story, 3);
        let machine = story.cluster.machine(3);
        assert!(
            story.cluster.sim.run_until_ended(machine, DONE_WITHIN),
            "it ends by itself"
        );
        assert_eq!(story.cluster.failure(3), None, "without an error");
        story.cluster.sim.run_for(REPORTED_AFTER);
        for node in 0..3 {
            let held = story.operate(node, "GET /storage_service/missed_writes");
            assert!(held.ends_with("\r\n\r\n[]"), "node {node} keeps tombstones: {held}");
        }
        story.cluster.crash(3, CrashKind::Kill);
        let reason = story.restart(3).expect_err("it has left");
        assert!(reason.contains("has left its cluster"), "{reason}");
    }
}

#[test]
fn a_departure_that_waits_for_a_node_that_is_down_says_so() {
    let mut story = begin(3, 2, false);
    story.stop(2);
    story.cluster.sim.run_for(SECONDS);
    let ticket = story.cluster.order_apart(3, "POST /storage_service/decommission");
    story.cluster.sim.run_for(2 * SECONDS);
    assert_eq!(story.cluster.answer_to(3, ticket), None, "it waits");
    let operations = story.operate(0, "GET /ceto/operations");
    let down = format!("node {} ", story.cluster.address(2));
    let waits = operations.split("\"waits\":\"").nth(1).unwrap_or_default();
    assert!(waits.starts_with(&down) && waits.contains("is down"), "{operations}");
    story.restart(2).expect("it comes back");
    until_left(&mut story, 3, ticket);
}
