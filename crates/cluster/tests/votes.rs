//! Who votes in the metadata group while nodes leave: what the others decide never needs one that is gone.

use std::time::Duration;

use crate::support::{SECOND, Sea, host};
use runtime::sim::CrashKind;
use topology::NodeState;

/// Has a node leave, and kills it in the moment in which another one hears that it has left.
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
