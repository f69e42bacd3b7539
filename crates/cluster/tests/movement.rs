//! Tablets that move between nodes, whatever happens to the nodes during a move.

use crate::support::{SECOND, Sea, host};
use cluster::NodeMove;
use runtime::sim::CrashKind;
use schema::TableId;
use std::sync::Arc;
use std::time::Duration;
use topology::{NodeState, Replica, Stage};
use types::Token;
use uuid::Uuid;

const TABLE: TableId = TableId(Uuid::from_u128(0x7ab1e));

/// A cluster with a table of one tablet, whose replicas are on these nodes, where these stories put them: nothing moves
/// by itself.
fn with_table(seed: u64, count: usize, replicas: &[usize]) -> Sea {
    let mut sea = Sea::formed(seed, count);
    let told = sea.on(0, |cluster| async move { cluster.set_balanced(false).await });
    told.expect("nothing moves by itself");
    sea.make_table(TABLE, replicas, 1);
    sea
}

fn wanted(from: usize, to: usize) -> NodeMove {
    NodeMove {
        table: TABLE,
        token: Token(0),
        from: host(from),
        from_shard: None,
        to: host(to),
        to_shard: None,
    }
}

/// The numbers of the nodes that have a replica, by what a node knows; None while the tablet moves.
fn replicas(sea: &Sea, by: usize) -> Option<Vec<usize>> {
    let metadata = sea.cluster(by).metadata();
    let tablet = metadata.tablets.get(&TABLE)?.tablet_of(Token(0));
    tablet.transition.is_none().then(|| numbers(sea, tablet.replicas))
}

/// The numbers of the nodes that have the replicas after the move.
fn next_replicas(sea: &Sea) -> Vec<usize> {
    let metadata = sea.cluster(0).metadata();
    let tablet = metadata.tablets[&TABLE].tablet_of(Token(0));
    numbers(sea, &tablet.transition.expect("it moves").next)
}

fn numbers(sea: &Sea, replicas: &[Replica]) -> Vec<usize> {
    let metadata = sea.cluster(0).metadata();
    let number = |replica: &Replica| {
        let host_id = metadata.topology.numbered(replica.node).expect("a member").host_id;
        let mut all = 0..sea.nodes.len();
        all.find(|number| host(*number) == host_id).expect("one of these")
    };
    replicas.iter().map(number).collect()
}

fn stage(sea: &Sea, by: usize) -> Option<Stage> {
    let metadata = sea.cluster(by).metadata();
    let tablet = metadata.tablets.get(&TABLE)?.tablet_of(Token(0));
    tablet.transition.map(|transition| transition.stage)
}

fn begin(sea: &mut Sea, by: usize, wanted: NodeMove) {
    let command = sea.cluster(by).metadata().node_move(&wanted).expect("it can move");
    let begun = sea.on(by, move |cluster| async move { cluster.propose(command).await });
    begun.expect("the move begins");
}

#[test]
fn a_tablet_moves_and_its_new_replica_copies_the_one_that_leaves() {
    let mut sea = with_table(700, 4, &[0, 1, 2]);
    let began = sea.sim.now();
    let moved = sea.on(1, move |cluster| async move {
        let deadline = runtime::now() + 30 * SECOND;
        cluster.move_between_nodes(&wanted(2, 3), deadline).await
    });
    moved.expect("it moves");
    let took = sea.sim.now() - began;
    assert!(took < SECOND, "an idle cluster takes {took:?} for five stages");
    assert_eq!(replicas(&sea, 1), Some(vec![0, 1, 3]));
    let copied = sea.nodes[3].seen.copied.borrow().clone();
    assert_eq!(copied.len(), 1, "it is copied once");
    let sources: Vec<_> = copied[0]
        .sources
        .iter()
        .map(|(peer, shard)| (peer.host_id, *shard))
        .collect();
    assert_eq!(sources, [(host(2).0, 0)]);
}

#[test]
fn a_stage_waits_for_requests_that_any_member_began_before_it() {
    let mut sea = with_table(790, 4, &[0, 1, 2]);
    sea.nodes[1].seen.in_flight.set(1);
    begin(&mut sea, 0, wanted(2, 3));
    sea.sim.run_for(5 * SECOND);
    let first = Some(Stage::AllowWriteBothReadOld);
    assert_eq!(
        stage(&sea, 0),
        first,
        "node 1 may still write to the old replicas alone"
    );
    sea.nodes[1].seen.in_flight.set(0);
    sea.sim.run_for(5 * SECOND);
    assert_eq!(replicas(&sea, 0), Some(vec![0, 1, 3]));
}

#[test]
fn a_move_goes_on_after_any_node_was_killed_at_any_moment_of_it() {
    for seed in 0..24_u64 {
        let mut sea = with_table(710 + seed, 4, &[0, 1, 2]);
        sea.expect_voters(3);
        begin(&mut sea, 1, wanted(2, 3));
        sea.sim.run_for(Duration::from_millis(seed / 4 * 12));
        let killed = usize::try_from(seed % 4).expect("four nodes");
        sea.crash(killed, CrashKind::Kill);
        sea.sim.run_for(SECOND);
        sea.restart(killed);
        sea.expect(&format!("the tablet has moved (seed {seed})"), |views| {
            let is_moved = |view: &std::rc::Rc<cluster::Cluster>| {
                let metadata = view.metadata();
                let tablet = metadata.tablets[&TABLE].tablet_of(Token(0));
                let last = metadata.topology.number(host(3));
                tablet.transition.is_none() && Some(tablet.replicas[2].node) == last
            };
            views.len() == 4 && views.iter().all(is_moved)
        });
    }
}

#[test]
fn a_copy_that_fails_is_tried_again() {
    let mut sea = with_table(740, 4, &[0, 1, 2]);
    sea.nodes[3].seen.copies_that_fail.set(3);
    begin(&mut sea, 0, wanted(0, 3));
    sea.sim.run_for(SECOND);
    assert_eq!(
        stage(&sea, 0),
        Some(Stage::Streaming),
        "nothing is read of what was not copied"
    );
    sea.sim.run_for(5 * SECOND);
    assert_eq!(replicas(&sea, 0), Some(vec![3, 1, 2]));
}

#[test]
fn a_move_is_abandoned_when_the_node_that_gets_the_tablet_is_down_for_long() {
    let mut sea = with_table(750, 4, &[0, 1, 2]);
    sea.nodes[3].seen.copies_that_fail.set(u32::MAX);
    begin(&mut sea, 0, wanted(2, 3));
    sea.sim.run_for(SECOND);
    sea.crash(3, CrashKind::Kill);
    sea.sim.run_for(20 * SECOND);
    assert_eq!(stage(&sea, 0), Some(Stage::Streaming), "it may come back");
    sea.sim.run_for(30 * SECOND);
    assert_eq!(replicas(&sea, 0), Some(vec![0, 1, 2]), "the tablet stays where it was");
}

/// What ONE acknowledged may be on the replica that leaves alone.
#[test]
fn a_new_replica_copies_no_other_while_the_one_that_leaves_is_down_unless_it_is_excluded() {
    for is_excluded in [false, true] {
        let mut sea = with_table(755, 4, &[0, 1, 2]);
        sea.nodes[3].seen.copies_that_fail.set(u32::MAX);
        begin(&mut sea, 0, wanted(2, 3));
        sea.sim.run_for(SECOND);
        sea.crash(2, CrashKind::Kill);
        sea.sim.run_for(10 * SECOND);
        sea.nodes[3].seen.copies_that_fail.set(0);
        sea.sim.run_for(20 * SECOND);
        assert_eq!(sea.nodes[3].seen.copied.borrow().len(), 0, "others lack something");
        assert_eq!(stage(&sea, 0), Some(Stage::Streaming));
        if is_excluded {
            let excluded = sea.on(0, |cluster| async move { cluster.exclude_nodes(&[host(2)]).await });
            excluded.expect("it is down permanently");
        } else {
            sea.restart(2)
        }
        sea.sim.run_for(20 * SECOND);
        assert_eq!(replicas(&sea, 0), Some(vec![0, 1, 3]));
        let copied = sea.nodes[3].seen.copied.borrow();
        let sources: Vec<_> = copied[0].sources.iter().map(|(peer, _)| peer.host_id).collect();
        let expected = if is_excluded {
            vec![host(0).0, host(1).0]
        } else {
            vec![host(2).0]
        };
        assert_eq!(sources, expected);
    }
}

#[test]
fn a_replica_that_leaves_is_waited_for_while_it_is_down() {
    let mut sea = with_table(760, 4, &[0, 1, 2]);
    // It is held where the new replica is read, so that the one that leaves falls before it has passed that stage.
    sea.nodes[2].seen.in_flight.set(1);
    begin(&mut sea, 0, wanted(2, 3));
    sea.crash(2, CrashKind::Kill);
    sea.sim.run_for(60 * SECOND);
    let is_ended = replicas(&sea, 0) == Some(vec![0, 1, 3]);
    assert!(!is_ended, "a replica that nobody heard of may still answer its clients");
    sea.restart(2);
    sea.sim.run_for(30 * SECOND);
    assert_eq!(replicas(&sea, 0), Some(vec![0, 1, 3]));
}

#[test]
fn members_that_are_down_and_have_nothing_to_do_with_the_tablet_are_fenced_off() {
    let mut sea = with_table(770, 5, &[0, 1, 2]);
    sea.expect_voters(5);
    sea.crash(4, CrashKind::Kill);
    sea.sim.run_for(10 * SECOND);
    begin(&mut sea, 0, wanted(2, 3));
    sea.sim.run_for(20 * SECOND);
    assert_eq!(replicas(&sea, 0), Some(vec![0, 1, 3]));
    let metadata = sea.cluster(0).metadata();
    assert!(metadata.fence > 0, "what node 4 may have begun is refused");
}

/// Where the replicas of the tablet are when nothing moves and the node has left.
fn after_leaving(sea: &mut Sea, left: usize, by: usize) -> Vec<usize> {
    let is_left = |view: &std::rc::Rc<cluster::Cluster>| {
        let metadata = view.metadata();
        let node = metadata.topology.node(host(left)).expect("nodes stay in the topology");
        node.state == NodeState::Left && metadata.moving().next().is_none()
    };
    sea.expect("the node has left", |views| {
        views.iter().filter(|view| view.host_id() != host(left)).all(is_left)
    });
    replicas(sea, by).expect("nothing moves")
}

/// How often a node's tasks were run in a second.
fn polls_of_a_second(sea: &mut Sea, by: usize) -> u64 {
    let polls = |sea: &mut Sea| sea.on(by, |_| async { runtime::metrics().polls });
    let before = polls(sea);
    sea.sim.run_for(SECOND);
    polls(sea) - before
}

#[test]
fn a_replica_that_has_nothing_to_copy_rests_while_another_copies() {
    let mut sea = with_table(725, 4, &[0, 1, 2]);
    let idle = polls_of_a_second(&mut sea, 0);
    sea.nodes[3].seen.copies_that_fail.set(u32::MAX);
    begin(&mut sea, 0, wanted(2, 3));
    sea.sim.run_for(SECOND);
    assert_eq!(stage(&sea, 0), Some(Stage::Streaming));
    let busy = polls_of_a_second(&mut sea, 0);
    assert!(
        busy < 2 * idle + 100,
        "{busy} polls in a second, of {idle} while nothing moves"
    );
}

#[test]
fn a_node_that_is_decommissioned_gives_its_tablets_away_and_leaves() {
    let mut sea = with_table(800, 4, &[0, 1, 2]);
    let left = sea.on(2, |cluster| async move { cluster.decommission().await });
    left.expect("it leaves");
    assert_eq!(after_leaving(&mut sea, 2, 0), [0, 1, 3]);
    let copied = sea.nodes[3].seen.copied.borrow();
    assert_eq!(copied[0].sources.len(), 1, "a node that is alive gives its own copy");
}

#[test]
fn a_node_that_no_other_can_replace_is_not_decommissioned() {
    let mut sea = with_table(810, 3, &[0, 1, 2]);
    let refused = sea.on(2, |cluster| async move { cluster.decommission().await });
    let why = refused.expect_err("three copies need three nodes").to_string();
    assert!(why.contains("system.moving"), "{why}");
    assert_eq!(replicas(&sea, 0), Some(vec![0, 1, 2]));
    let metadata = sea.cluster(0).metadata();
    assert!(metadata.topology.members().all(|node| node.state == NodeState::Normal));
}

#[test]
fn of_two_nodes_that_leave_at_once_one_leaves_where_three_copies_need_the_other() {
    for seed in 0..40 {
        let mut sea = with_table(870 + seed, 4, &[0, 1, 2]);
        let leaving = [2, 3].map(|number| sea.spawn(number, |cluster| async move { cluster.decommission().await }));
        sea.sim.run_for(60 * SECOND);
        let refused = leaving.iter().filter(|left| matches!(&*left.borrow(), Some(Err(_))));
        let metadata = sea.cluster(0).metadata();
        assert_eq!(refused.count(), 1, "seed {seed}");
        let members: Vec<NodeState> = metadata.topology.members().map(|node| node.state).collect();
        assert_eq!(members, [NodeState::Normal; 3], "seed {seed}: the other has left");
    }
}

#[test]
fn what_a_lost_node_had_is_rebuilt_from_a_quorum_of_the_others() {
    let mut sea = with_table(820, 4, &[0, 1, 2]);
    sea.crash(2, CrashKind::PowerLoss);
    sea.sim.run_for(10 * SECOND);
    let removed = sea.on(0, |cluster| async move { cluster.remove_node(host(2)).await });
    removed.expect("it is removed");
    assert_eq!(after_leaving(&mut sea, 2, 0), [0, 1, 3]);
    let copied = sea.nodes[3].seen.copied.borrow();
    let sources: Vec<_> = copied[0].sources.iter().map(|(peer, _)| peer.host_id).collect();
    assert_eq!(
        sources,
        [host(0).0, host(1).0],
        "either may have the only other copy of a row"
    );
}

#[test]
fn a_decommission_goes_on_after_any_node_was_killed() {
    for seed in 0..8_u64 {
        let mut sea = with_table(830 + seed, 4, &[0, 1, 2]);
        sea.expect_voters(3);
        drop(sea.spawn(2, |cluster| async move { drop(cluster.decommission().await) }));
        sea.sim.run_for(Duration::from_millis(30 + seed / 4 * 25));
        let killed = usize::try_from(seed % 4).expect("four nodes");
        sea.crash(killed, CrashKind::Kill);
        sea.sim.run_for(SECOND);
        sea.restart(killed);
        assert_eq!(after_leaving(&mut sea, 2, 0), [0, 1, 3], "seed {seed}");
    }
}

/// The sources that a node has copied from as a replica that stays.
fn repaired_from(sea: &Sea, number: usize) -> Vec<Uuid> {
    let copied = sea.nodes[number].seen.copied.borrow();
    let of_replica = copied.iter().filter(|copy| copy.is_replica);
    of_replica
        .flat_map(|copy| copy.sources.iter().map(|(peer, _)| peer.host_id))
        .collect()
}

#[test]
fn replicas_that_stay_copy_each_other_before_one_of_three_goes() {
    let mut sea = with_table(850, 3, &[0, 1, 2]);
    for seen in sea.nodes.iter().map(|node| &node.seen) {
        seen.copies_that_fail.set(u32::MAX);
    }
    sea.replicate("system", 2);
    sea.sim.run_for(10 * SECOND);
    assert_eq!(
        stage(&sea, 0),
        Some(Stage::Streaming),
        "a write may be on one alone of those that stay"
    );
    let stay = next_replicas(&sea);
    // One of both has copied.
    sea.nodes[stay[0]].seen.copies_that_fail.set(0);
    sea.sim.run_for(10 * SECOND);
    assert_eq!(stage(&sea, 0), Some(Stage::Streaming), "one of both has not copied yet");
    sea.nodes[stay[1]].seen.copies_that_fail.set(0);
    sea.sim.run_for(10 * SECOND);
    assert_eq!(replicas(&sea, 0), Some(stay.clone()));
    for number in stay {
        let sources = repaired_from(&sea, number);
        assert_eq!(sources.len(), 1, "with its own, two of three have each write");
        assert_ne!(sources, [host(number).0]);
    }
}

#[test]
fn fewer_replicas_do_not_wait_for_one_that_stays_and_leaves_later() {
    for seed in 0..6 {
        let mut sea = with_table(880 + seed, 5, &[0, 1, 2]);
        for number in [1, 2] {
            drop(sea.spawn(number, |cluster| async move { cluster.decommission().await }));
        }
        sea.replicate("system", 2);
        sea.expect(&format!("both have left (seed {seed})"), |views| {
            let is_gone = |view: &&std::rc::Rc<cluster::Cluster>| {
                let metadata = view.metadata();
                metadata.topology.members().count() == 3 && metadata.moving().next().is_none()
            };
            views.iter().filter(is_gone).count() == 3
        });
        let stay = replicas(&sea, 0).expect("nothing moves");
        assert!(
            stay.len() == 2 && !stay.contains(&1) && !stay.contains(&2),
            "seed {seed}: {stay:?}"
        );
    }
}

#[test]
fn fewer_replicas_wait_for_one_that_stays_and_is_down_and_the_tablet_is_as_before_meanwhile() {
    let mut sea = with_table(851, 3, &[0, 1, 2]);
    for seen in sea.nodes.iter().map(|node| &node.seen) {
        seen.copies_that_fail.set(u32::MAX);
    }
    sea.replicate("system", 2);
    sea.sim.run_for(5 * SECOND);
    let down = next_replicas(&sea)[1];
    let by = (down + 1) % 3;
    sea.crash(down, CrashKind::Kill);
    sea.sim.run_for(60 * SECOND);
    assert_eq!(
        replicas(&sea, by),
        Some(vec![0, 1, 2]),
        "it is abandoned, and does not begin again"
    );
    for seen in sea.nodes.iter().map(|node| &node.seen) {
        seen.copies_that_fail.set(0);
    }
    sea.restart(down);
    sea.expect("two replicas", |views| {
        let has_two = |view: &std::rc::Rc<cluster::Cluster>| {
            let metadata = view.metadata();
            let tablet = metadata.tablets[&TABLE].tablet_of(Token(0));
            tablet.transition.is_none() && tablet.replicas.len() == 2
        };
        views.len() == 3 && views.iter().all(has_two)
    });
}

#[test]
fn fewer_replicas_are_reached_after_any_node_was_killed_at_any_moment() {
    for seed in 0..18_u64 {
        let mut sea = with_table(860 + seed, 3, &[0, 1, 2]);
        sea.expect_voters(3);
        sea.replicate("system", 2);
        sea.sim.run_for(Duration::from_millis(seed / 3 * 14));
        let killed = usize::try_from(seed % 3).expect("three nodes");
        sea.crash(killed, CrashKind::Kill);
        sea.sim.run_for(SECOND);
        sea.restart(killed);
        sea.expect(&format!("two replicas are left (seed {seed})"), |views| {
            let has_two = |view: &std::rc::Rc<cluster::Cluster>| {
                let metadata = view.metadata();
                let tablet = metadata.tablets[&TABLE].tablet_of(Token(0));
                tablet.transition.is_none() && tablet.replicas.len() == 2
            };
            views.len() == 3 && views.iter().all(has_two)
        });
        let stay = replicas(&sea, 0).expect("nothing moves");
        for number in &stay {
            assert!(
                !repaired_from(&sea, *number).is_empty(),
                "node {number} has not copied (seed {seed})"
            );
        }
    }
}

#[test]
fn what_cannot_move_is_refused_with_the_reason() {
    let sea = with_table(780, 4, &[0, 1, 2]);
    let metadata = sea.cluster(0).metadata();
    let mut apart = (*metadata).clone();
    let mut nodes = topology::Topology::new("sea", metadata.topology.cluster_id());
    for (number, (_, node)) in metadata.topology.numbered_nodes().enumerate() {
        let mut node = node.clone();
        if node.host_id == host(3) {
            node.location.datacenter = "elsewhere".to_owned();
        }
        let host_id = node.host_id;
        node.state = if number == 0 {
            NodeState::Normal
        } else {
            NodeState::Joining
        };
        nodes
            .apply(&topology::TopologyCommand::AddNode(Box::new(node)))
            .expect("a node");
        if number > 0 {
            let state = NodeState::Normal;
            nodes
                .apply(&topology::TopologyCommand::SetState { host_id, state })
                .expect("a member");
        }
    }
    apart.topology = Arc::new(nodes);
    let why = apart.node_move(&wanted(2, 3)).expect_err("another datacenter");
    assert!(why.contains("in elsewhere"), "{why}");
    let refusal = |wanted: NodeMove| metadata.node_move(&wanted).expect_err("it cannot move");
    assert!(refusal(wanted(3, 0)).contains("has a replica of tablet 0 already"));
    assert!(refusal(wanted(3, 9)).contains("is not a full member"));
    let other_shard = NodeMove {
        to_shard: Some(7),
        ..wanted(2, 3)
    };
    assert!(refusal(other_shard).contains("there is no shard 7"));
    let other_table = NodeMove {
        table: TableId(Uuid::from_u128(1)),
        ..wanted(2, 3)
    };
    assert!(refusal(other_table).contains("has no tablets of its own"));
}
