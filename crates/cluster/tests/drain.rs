//! Requests that do not end when the cluster changes, and nodes that do not hear of the change.

use crate::support::{SECOND, Sea, host};
use cluster::Command;
use std::rc::Rc;
use std::time::Duration;

/// What a node has said to another that it has.
fn said(sea: &Sea, to: usize, of: usize) -> u64 {
    let status = sea.cluster(to).status();
    let member = status.members.iter().find(|member| member.host_id == host(of));
    member.expect("all are members").log_index
}

#[test]
fn a_node_whose_requests_do_not_end_has_them_fenced_off_before_it_says_that_it_has_a_change() {
    for seed in 600..603 {
        let mut sea = Sea::formed(seed, 3);
        sea.expect_voters(3);
        sea.expect("all starts are noted, and nothing else changes", |views| {
            views
                .iter()
                .all(|view| view.metadata().index == views[0].metadata().index)
        });
        let before = sea.cluster(0).metadata().index;
        sea.nodes[0].seen.in_flight.set(1);
        sea.create(1, "a_change").expect("all are there");
        let change = before + 1;
        // The request may still do something: no node may believe that it has ended.
        sea.sim.run_for(6 * SECOND);
        assert!(said(&sea, 1, 0) < change, "seed {seed}: a request of before goes on");
        assert!(
            sea.cluster(1).metadata().fence < change,
            "seed {seed}: it had time to end"
        );
        sea.expect("replicas refuse the request", |views| {
            views.iter().all(|view| view.metadata().fence >= change)
        });
        let seen = sea.nodes[0].seen.clone();
        let views: Vec<_> = (1..3).map(|number| sea.cluster(number)).collect();
        sea.expect("the node says that it has the change", |_| {
            views.iter().all(|view| {
                let status = view.status();
                let first = status.members.iter().find(|member| member.host_id == host(0));
                first.is_some_and(|first| first.log_index >= change)
            })
        });
        assert_eq!(seen.in_flight.get(), 1, "the request itself never ended");
    }
}

#[test]
fn a_node_says_that_it_has_the_fence_when_its_shards_have_it() {
    let mut sea = Sea::formed(604, 3);
    sea.expect_voters(3);
    sea.nodes[0].seen.in_flight.set(1);
    sea.create(1, "a_change").expect("all are there");
    let change = sea.cluster(1).metadata().index;
    sea.sim.run_for(SECOND);
    assert_eq!(said(&sea, 1, 2), change);
    // The metadata of node 2 have the fence long before its shards refuse anything.
    sea.nodes[2].seen.take_delay.set(20 * SECOND);
    let slow = sea.cluster(2);
    sea.expect("the fence comes", |_| slow.metadata().fence >= change);
    sea.sim.run_for(15 * SECOND);
    assert!(
        said(&sea, 1, 0) < change,
        "a shard of node 2 takes the request of before, which goes on"
    );
    sea.sim.run_for(15 * SECOND);
    assert!(said(&sea, 1, 0) >= change);
}

/// The request may itself wait for a newer value, because others refuse the one that it began with.
#[test]
fn changes_do_not_wait_for_requests_of_before() {
    let mut sea = Sea::formed(605, 3);
    sea.expect_voters(3);
    sea.nodes[0].seen.in_flight.set(1);
    sea.create(1, "a_change").expect("all are there");
    sea.create(1, "another").expect("all are there");
    let newest = sea.cluster(1).metadata().index;
    sea.sim.run_for(SECOND);
    assert_eq!(sea.cluster(0).metadata().index, newest, "it has the second change");
    assert!(said(&sea, 1, 0) < newest - 1, "a request from before the first goes on");
    sea.nodes[0].seen.in_flight.set(0);
    sea.sim.run_for(SECOND);
    assert_eq!(said(&sea, 1, 0), newest);
}

#[test]
fn a_request_that_ends_in_time_raises_no_fence() {
    let mut sea = Sea::formed(610, 3);
    sea.expect_voters(3);
    sea.nodes[0].seen.in_flight.set(1);
    sea.create(1, "a_change").expect("all are there");
    sea.sim.run_for(3 * SECOND);
    sea.nodes[0].seen.in_flight.set(0);
    sea.sim.run_for(20 * SECOND);
    let metadata = sea.cluster(1).metadata();
    assert_eq!(metadata.fence, 0);
    assert_eq!(said(&sea, 1, 0), metadata.index);
}

#[test]
fn a_node_that_the_change_does_not_reach_hears_of_the_fence_from_any_member() {
    let mut sea = Sea::formed(620, 3);
    sea.expect_voters(3);
    let leader = sea.cluster(0).status().leader.expect("somebody leads");
    let leader = (0..3).find(|number| host(*number) == leader).expect("a member leads");
    let (cut_off, other) = ((leader + 1) % 3, (leader + 2) % 3);
    // The changes come from the leader alone, and do not get through; what the third node says does.
    let (from, to) = (sea.nodes[leader].id, sea.nodes[cut_off].id);
    sea.sim.partition(&[from], &[to]);
    let fence = sea.cluster(other).metadata().index;
    sea.on(leader, move |cluster| async move {
        cluster.propose(Command::Fence { index: fence }).await
    })
    .expect("two of three are a majority");
    sea.create(leader, "behind_the_fence")
        .expect("two of three are a majority");
    let beyond = sea.cluster(leader).metadata().index;
    sea.on(leader, move |cluster| async move {
        cluster.propose(Command::Fence { index: beyond }).await
    })
    .expect("two of three are a majority");
    let seen: Rc<_> = sea.nodes[cut_off].seen.clone();
    let is_told = sea.sim.run_until(Duration::from_secs(5), || {
        seen.told_fenced_off
            .borrow()
            .last()
            .is_some_and(|before| *before == beyond)
    });
    // Clients are not let in before that.
    let caught_up = sea.on(cut_off, |cluster| async move { cluster.catch_up(SECOND).await });
    assert_eq!(caught_up, !is_told, "what it routes is refused: {is_told}");
    let has = sea.cluster(cut_off).metadata().index;
    assert!(
        is_told || has >= beyond,
        "node {cut_off} goes on with {has}, and the others refuse that"
    );
    sea.sim.heal(&[from], &[to]);
    sea.expect_normal(0..3);
    let caught_up = sea.on(cut_off, |cluster| async move { cluster.catch_up(10 * SECOND).await });
    assert!(caught_up, "it waits with its clients though it could go on");
    sea.sim.run_for(SECOND);
    assert!(
        seen.told_fenced_off.borrow().last().is_none_or(|before| *before == 0),
        "it has caught up, and serves nothing"
    );
}
