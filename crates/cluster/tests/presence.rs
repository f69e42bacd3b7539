//! Nodes that start and stop in good order: which nodes get requests when, under the simulator.

use crate::support::{SECOND, Sea, host};
use runtime::sim::CrashKind;
use std::time::Duration;
use topology::NodeState;

/// How long a node that starts waits for peers of which it knows nothing.
const PATIENCE: Duration = Duration::from_secs(2);

fn formed(seed: u64) -> Sea {
    Sea::formed(seed, 3)
}

fn restart(sea: &mut Sea, number: usize) {
    sea.restart(number);
    let seen = sea.nodes[number].seen.clone();
    let is_in = sea.sim.run_until(SECOND, || seen.cluster.borrow().is_some());
    assert!(is_in, "a node with files goes on at once");
}

/// Restarts a node and has it meet its peers: whether it did, and how long that took.
fn restart_and_meet(sea: &mut Sea, number: usize) -> (bool, Duration) {
    let begun = sea.sim.now();
    restart(sea, number);
    let has_met = sea.on(number, |cluster| async move { cluster.meet_peers().await });
    (has_met, sea.sim.now() - begun)
}

/// What a node's clients were notified of another node since the last call of this.
fn told(sea: &Sea, number: usize, of: usize) -> Vec<bool> {
    let told = sea.nodes[number].seen.told_clients.take();
    let of_host = told.iter().filter(|(id, _)| *id == host(of));
    of_host.map(|(_, serves)| *serves).collect()
}

#[test]
fn a_node_that_has_met_its_peers_is_up_for_all_of_them() {
    for (seed, kind) in [(1, None), (2, Some(CrashKind::Kill)), (3, Some(CrashKind::PowerLoss))] {
        let mut sea = formed(seed);
        if kind.is_none() {
            sea.on(2, |cluster| async move { cluster.stop().await });
        }
        sea.crash(2, kind.unwrap_or(CrashKind::Kill));
        // Some are missed before they are back, and some are not.
        sea.sim.run_for(Duration::from_secs(seed * 2));
        let (has_met, took) = restart_and_meet(&mut sea, 2);
        assert!(has_met, "after {kind:?}");
        assert!(took < PATIENCE, "after {kind:?} it took {took:?}");
        for number in 0..2 {
            assert!(sea.cluster(number).is_live(host(2)), "node {number} after {kind:?}");
            assert!(sea.cluster(2).is_live(host(number)), "node {number} after {kind:?}");
        }
    }
}

#[test]
fn a_dead_peer_is_not_waited_for_when_another_knows_that_it_is_dead() {
    let mut sea = formed(4);
    for number in 0..3 {
        sea.on(number, |cluster| async move { cluster.open() });
    }
    sea.crash(1, CrashKind::Kill);
    sea.expect("node 1 is missed", |views| {
        views.iter().all(|view| !view.is_live(host(1)))
    });
    sea.on(2, |cluster| async move { cluster.stop().await });
    sea.crash(2, CrashKind::Kill);
    let (has_met, took) = restart_and_meet(&mut sea, 2);
    assert!(has_met && took < SECOND / 2, "it took {took:?}");
}

#[test]
fn a_node_whose_peers_are_all_silent_goes_on_without_them() {
    let mut sea = formed(5);
    for number in 0..3 {
        sea.crash(number, CrashKind::PowerLoss);
    }
    let (has_met, took) = restart_and_meet(&mut sea, 2);
    assert!(!has_met);
    assert!(took >= PATIENCE && took < PATIENCE + SECOND, "it took {took:?}");
}

#[test]
fn clients_hear_of_a_node_when_it_lets_them_in_and_not_before() {
    let mut sea = formed(6);
    for number in 0..3 {
        sea.on(number, |cluster| async move { cluster.open() });
    }
    sea.sim.run_for(SECOND);
    assert_eq!(told(&sea, 0, 2), [true], "it came");
    sea.on(2, |cluster| async move { cluster.leave().await });
    assert_eq!(told(&sea, 0, 2), [false], "it said goodbye");
    sea.on(2, |cluster| async move { cluster.stop().await });
    sea.crash(2, CrashKind::Kill);
    restart_and_meet(&mut sea, 2);
    sea.sim.run_for(5 * SECOND);
    assert!(sea.cluster(0).is_live(host(2)), "other nodes may ask it");
    assert!(!sea.cluster(0).serves_clients(host(2)), "it is not open");
    assert!(told(&sea, 0, 2).is_empty(), "nobody was let in yet");
    // The first word of it is lost.
    let (near, far) = ([sea.nodes[0].id], [sea.nodes[2].id]);
    sea.sim.partition(&near, &far);
    sea.on(2, |cluster| async move { cluster.open() });
    sea.sim.run_for(SECOND / 2);
    sea.sim.heal(&near, &far);
    sea.sim.run_for(5 * SECOND);
    assert_eq!(told(&sea, 0, 2), [true]);
    // A node that is silent for a while and comes back is the same that it was.
    sea.sim.partition(&near, &far);
    sea.expect("node 2 is missed", |views| !views[0].is_live(host(2)));
    sea.sim.heal(&near, &far);
    sea.expect("node 2 is back", |views| views[0].is_live(host(2)));
    assert_eq!(told(&sea, 0, 2), [false, true]);
}

#[test]
fn a_node_that_its_operator_closes_to_clients_is_known_to_be_closed_also_to_members_that_start() {
    let mut sea = formed(8);
    for number in 0..3 {
        sea.on(number, |cluster| async move { cluster.open() });
    }
    sea.sim.run_for(SECOND);
    told(&sea, 0, 2);
    sea.on(2, |cluster| async move { cluster.set_closed(true).await });
    assert_eq!(told(&sea, 0, 2), [false], "clients are notified");
    assert!(sea.cluster(0).is_live(host(2)), "other nodes may ask it");
    sea.crash(0, CrashKind::Kill);
    restart_and_meet(&mut sea, 0);
    assert!(!sea.cluster(0).serves_clients(host(2)), "it says so when it is greeted");
    assert!(sea.cluster(0).serves_clients(host(1)));
    sea.sim.run_for(5 * SECOND);
    told(&sea, 0, 2);
    // The message is lost at first.
    let (near, far) = ([sea.nodes[0].id], [sea.nodes[2].id]);
    sea.sim.partition(&near, &far);
    sea.on(2, |cluster| async move { cluster.set_closed(false).await });
    assert!(told(&sea, 0, 2).is_empty());
    sea.sim.heal(&near, &far);
    sea.sim.run_for(5 * SECOND);
    assert_eq!(told(&sea, 0, 2), [true]);
}

#[test]
fn a_node_that_leaves_is_down_for_the_others_and_goes_on_with_their_help() {
    let mut sea = formed(7);
    sea.on(2, |cluster| async move { cluster.leave().await });
    for number in 0..2 {
        assert!(!sea.cluster(number).is_live(host(2)), "node {number} was told");
    }
    sea.create(2, "last").expect("what clients asked for before is done");
    for _ in 0..50 {
        sea.sim.run_for(SECOND / 10);
        assert!(
            !sea.cluster(0).is_live(host(2)),
            "it was taken for alive again while it was leaving"
        );
    }
    assert!(sea.cluster(2).is_live(host(0)) && sea.cluster(2).is_live(host(1)));
}

#[test]
fn a_node_that_comes_back_elsewhere_is_up_when_all_know_where() {
    let mut sea = formed(8);
    sea.on(2, |cluster| async move { cluster.stop().await });
    sea.crash(2, CrashKind::Kill);
    sea.nodes[2].config.borrow_mut().internode.set_port(7001);
    let elsewhere = sea.nodes[2].config.borrow().internode;
    restart(&mut sea, 2);
    let meeting = sea.spawn(2, |cluster| async move { cluster.meet_peers().await });
    while meeting.borrow().is_none() {
        sea.sim.run_for(Duration::from_millis(5));
        for number in 0..2 {
            let cluster = sea.cluster(number);
            let registered = cluster.metadata().topology.node(host(2)).map(|node| node.internode);
            assert!(
                !cluster.is_live(host(2)) || registered == Some(elsewhere),
                "requests of node {number} go to where it was"
            );
        }
    }
    assert_eq!(meeting.take(), Some(true), "it serves before the others reach it");
    sea.expect_normal(0..3);
}

#[test]
fn a_node_that_joins_is_given_nothing_before_all_members_reach_it() {
    let mut sea = Sea::new(9, 4);
    for number in 0..3 {
        sea.start(number);
    }
    sea.expect_normal(0..3);
    sea.nodes[3].config.borrow_mut().seeds = sea.seeds(0..1);
    let (near, far) = ([sea.nodes[1].id], [sea.nodes[3].id]);
    sea.sim.partition(&near, &far);
    sea.start(3);
    let joined = |sea: &Sea| sea.cluster(0).metadata().topology.node(host(3)).cloned();
    let (mut has_joined, mut waited) = (false, Duration::ZERO);
    while waited < SECOND {
        let step = Duration::from_millis(5);
        sea.sim.run_for(step);
        if let Some(node) = joined(&sea) {
            has_joined = true;
            assert_eq!(
                (node.state, node.tokens.len()),
                (NodeState::Joining, 0),
                "node 1 cannot reach it"
            );
            waited += step;
        }
    }
    assert!(has_joined);
    sea.sim.heal(&near, &far);
    while joined(&sea).is_some_and(|node| node.tokens.is_empty()) {
        sea.sim.run_for(Duration::from_millis(1));
    }
    for number in 0..3 {
        assert!(
            sea.cluster(number).is_live(host(3)),
            "node {number} does not reach an owner of the ring"
        );
    }
    sea.expect_normal(0..4);
}
