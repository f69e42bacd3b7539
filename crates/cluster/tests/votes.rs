//! The voters of the metadata group while nodes leave: what the others decide never needs a node that is gone.

use std::time::Duration;

use crate::support::{SECOND, Sea, host};
use runtime::sim::CrashKind;
use topology::{NodeState, Replaced};

/// Makes a node leave, and kills it in the moment in which another one hears that it has left.
fn leaves_and_is_killed(sea: &mut Sea, leaver: usize, other: usize) {
    sea.spawn(leaver, |cluster| async move { cluster.decommission().await });
    for _ in 0..60_000 {
        sea.sim.run_for(Duration::from_millis(1));
        let metadata = sea.cluster(other).metadata();
        if metadata
            .topology
            .node(host(leaver))
            .is_none_or(|node| node.state == NodeState::Left)
        {
            sea.crash(leaver, CrashKind::Kill);
            return;
        }
    }
    panic!("node {leaver} has not left in a minute");
}

#[test]
fn the_only_node_that_votes_leaves_and_the_others_decide_without_it() {
    for count in [2, 3] {
        let mut sea = Sea::formed(830, count);
        sea.expect_voters(count - (count + 1) % 2);
        leaves_and_is_killed(&mut sea, 0, 1);
        sea.sim.run_for(5 * SECOND);
        sea.create(1, "made").expect("the others make changes");
    }
}

#[test]
fn a_node_leaves_while_another_voter_is_down() {
    let mut sea = Sea::formed(831, 3);
    sea.expect_voters(3);
    sea.crash(1, CrashKind::Kill);
    sea.sim.run_for(5 * SECOND);
    leaves_and_is_killed(&mut sea, 0, 2);
    sea.sim.run_for(5 * SECOND);
    sea.create(2, "made").expect("the one that answers makes changes alone");
}

/// Four machines on which new members wait for their votes, as in production; three nodes run and vote.
fn three_of_four(seed: u64) -> Sea {
    let mut sea = Sea::new(seed, 4);
    for number in 0..4 {
        sea.nodes[number].config.borrow_mut().vote_after = cluster::VOTE_AFTER;
    }
    (0..3).for_each(|number| sea.start(number));
    sea.expect_normal(0..3);
    sea.expect_voters(3);
    sea
}

/// Runs until node 1 hears that another one has left.
fn wait_until_left(sea: &mut Sea, leaver: usize) {
    for _ in 0..60_000 {
        sea.sim.run_for(Duration::from_millis(1));
        let metadata = sea.cluster(1).metadata();
        if metadata.topology.node(host(leaver)).map(|node| node.state) == Some(NodeState::Left) {
            return;
        }
    }
    panic!("node {leaver} has not left in a minute");
}

#[test]
fn a_cluster_survives_the_loss_of_its_leader_as_soon_as_another_lost_node_is_replaced() {
    let mut sea = three_of_four(832);
    sea.crash(2, CrashKind::PowerLoss);
    sea.sim.run_for(10 * SECOND);
    sea.nodes[3].config.borrow_mut().replaces = Some(Replaced::Host(host(2)));
    let begun = sea.sim.now();
    sea.start(3);
    wait_until_left(&mut sea, 2);
    assert!(
        sea.sim.now() - begun < cluster::VOTE_AFTER,
        "an heir does not wait for its vote"
    );
    sea.crash(0, CrashKind::PowerLoss);
    sea.sim.run_for(5 * SECOND);
    sea.create(1, "made").expect("the heir votes");
}

#[test]
fn a_cluster_survives_the_loss_of_its_leader_as_soon_as_a_lost_node_is_removed_for_which_another_came() {
    let mut sea = three_of_four(833);
    sea.crash(2, CrashKind::PowerLoss);
    sea.sim.run_for(10 * SECOND);
    sea.start(3);
    sea.expect("a new node is there", |views| {
        let is_normal = |view: &std::rc::Rc<cluster::Cluster>| {
            let metadata = view.metadata();
            metadata.topology.node(host(3)).map(|node| node.state) == Some(NodeState::Normal)
        };
        views.iter().all(is_normal)
    });
    sea.spawn(1, |cluster| async move { cluster.remove_node(host(2)).await });
    wait_until_left(&mut sea, 2);
    sea.crash(0, CrashKind::PowerLoss);
    sea.sim.run_for(5 * SECOND);
    sea.create(1, "made").expect("the new node votes");
}
