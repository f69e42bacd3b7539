//! Zero-token nodes, excluded nodes, and nodes that leave and are then asked to stay.

use crate::support::{SECOND, Sea, host};
use cluster::{Cluster, Operation, OperationKind};
use runtime::sim::CrashKind;
use schema::TableId;
use std::rc::Rc;
use topology::{NodeState, Replaced};
use uuid::Uuid;

const TABLE: TableId = TableId(Uuid::from_u128(0x7ab1e));
const TABLETS: u32 = 8;

/// Nodes, of which the last are zero-token nodes, all members.
fn with_zero_token(seed: u64, owners: usize, zero_token: usize) -> Sea {
    let mut sea = Sea::new(seed, owners + zero_token);
    for number in owners..owners + zero_token {
        sea.nodes[number].config.borrow_mut().joins_ring = false;
    }
    (0..owners + zero_token).for_each(|number| sea.start(number));
    sea.expect_normal(0..owners);
    sea.expect("the others are zero-token nodes", |views| {
        let is_one = |view: &Rc<Cluster>, number| view.metadata().topology.is_zero_token(host(number));
        views
            .iter()
            .all(|view| (owners..owners + zero_token).all(|number| is_one(view, number)))
    });
    sea
}

fn state(sea: &Sea, by: usize, of: usize) -> Option<NodeState> {
    sea.cluster(by)
        .metadata()
        .topology
        .node(host(of))
        .map(|node| node.state)
}

/// How many replicas each node has of the table, those included that it gets.
fn replicas(view: &Cluster, nodes: usize) -> Vec<usize> {
    let metadata = view.metadata();
    let mut counts = vec![0; nodes];
    for tablet in metadata.tablets[&TABLE].tablets() {
        let next = tablet.transition.map_or(tablet.replicas, |t| &t.next);
        for replica in next {
            // Nodes are numbered in the order in which they joined, which is chance.
            let owner = metadata.topology.numbered(replica.node).map(|node| node.host_id);
            let number = (0..nodes).find(|number| owner == Some(host(*number)));
            counts[number.expect("it is one of these nodes")] += 1;
        }
    }
    counts
}

fn at_rest(view: &Rc<Cluster>) -> bool {
    let metadata = view.metadata();
    metadata.ring.is_none() && metadata.moving().next().is_none()
}

#[test]
fn a_zero_token_node_votes_and_gets_no_data_however_few_others_there_are() {
    let mut sea = with_zero_token(1200, 2, 1);
    sea.make_table(TABLE, &[0], TABLETS);
    sea.replicate("system", 3);
    sea.expect("both owners have all", |views| {
        views.iter().all(|view| replicas(view, 3) == [8, 8, 0] && at_rest(view))
    });
    sea.make_ring_table(TableId(Uuid::from_u128(9)), 3);
    sea.sim.run_for(5 * SECOND);
    assert!(sea.nodes[2].seen.copied.borrow().is_empty());
    sea.expect_voters(3);
    // It makes the majority that two nodes alone cannot lose one of.
    sea.crash(1, CrashKind::Kill);
    sea.sim.run_for(10 * SECOND);
    sea.create(2, "more").expect("two of three voters agree");
}

#[test]
fn a_zero_token_node_is_one_for_its_life() {
    let mut sea = with_zero_token(1201, 2, 1);
    sea.crash(2, CrashKind::Kill);
    sea.restart(2);
    sea.expect("it is back", |views| {
        views.len() == 3 && views.iter().all(|v| v.is_live(host(2)))
    });
    for (number, joins_ring, expected) in [
        (2, true, "set join_ring: false again"),
        (1, false, "set join_ring: true again"),
    ] {
        sea.crash(number, CrashKind::Kill);
        sea.nodes[number].config.borrow_mut().joins_ring = joins_ring;
        sea.restart(number);
        let why = sea.refusal(number).to_string();
        assert!(why.contains(expected), "{why}");
        sea.nodes[number].config.borrow_mut().joins_ring = !joins_ring;
        sea.restart(number);
        sea.expect("it is back", |views| views.len() == 3);
    }
}

#[test]
fn the_first_node_of_a_cluster_is_no_zero_token_node() {
    let mut sea = Sea::new(1202, 1);
    sea.nodes[0].config.borrow_mut().joins_ring = false;
    sea.start(0);
    let why = sea.refusal(0).to_string();
    assert!(why.contains("no node would own the token ring"), "{why}");
}

#[test]
fn zero_token_nodes_leave_and_are_removed_at_once_whatever_others_lack() {
    let mut sea = with_zero_token(1203, 2, 2);
    // No node may hold the third copy, which is no reason to stay.
    sea.make_table(TABLE, &[0], TABLETS);
    sea.replicate("system", 3);
    let left = sea.on(2, |cluster| async move { cluster.decommission().await });
    left.expect("it has nothing to give away");
    sea.crash(3, CrashKind::PowerLoss);
    sea.sim.run_for(10 * SECOND);
    let removed = sea.on(0, |cluster| async move { cluster.remove_node(host(3)).await });
    removed.expect("it had nothing");
    for number in [2, 3] {
        assert_eq!(state(&sea, 0, number), Some(NodeState::Left));
    }
}

#[test]
fn nothing_waits_for_an_excluded_node_and_it_may_not_come_back() {
    let mut sea = Sea::new(1210, 5);
    (0..4).for_each(|number| sea.start(number));
    sea.expect_normal(0..4);
    sea.make_ring_table(TABLE, 2);
    sea.expect_voters(3);
    let refused = sea.on(0, |cluster| async move { cluster.exclude_nodes(&[host(3)]).await });
    let why = refused.expect_err("it is alive").to_string();
    assert!(why.contains("only a node that is down can be excluded"), "{why}");

    sea.crash(3, CrashKind::Kill);
    sea.sim.run_for(10 * SECOND);
    // It is an owner that loses a range, so its confirmation is waited for.
    sea.start(4);
    sea.sim.run_for(30 * SECOND);
    assert_eq!(state(&sea, 0, 4), Some(NodeState::Joining));
    let excluded = sea.on(0, |cluster| async move { cluster.exclude_nodes(&[host(3)]).await });
    excluded.expect("it is down");
    sea.expect("the join goes on", |views| {
        let joined = |view: &Rc<Cluster>| {
            let metadata = view.metadata();
            metadata.ring.is_none()
                && metadata
                    .topology
                    .node(host(4))
                    .is_some_and(|n| n.state == NodeState::Normal)
        };
        views.iter().all(joined)
    });
    let status = sea.cluster(0).status();
    let member = status
        .members
        .iter()
        .find(|m| m.host_id == host(3))
        .expect("it is a member");
    assert!(member.is_excluded && !member.is_live);
    assert_eq!(member.state, NodeState::Normal, "it keeps what it owns");

    sea.restart(3);
    let seen = sea.nodes[3].seen.clone();
    assert!(
        sea.sim.run_until(60 * SECOND, || seen.fatal.borrow().is_some()
            || seen.error.borrow().is_some()),
        "an excluded node is back"
    );
    assert!(!sea.cluster(0).is_live(host(3)));
    sea.crash(3, CrashKind::Kill);
    sea.sim.run_for(10 * SECOND);
    let removed = sea.on(0, |cluster| async move { cluster.remove_node(host(3)).await });
    removed.expect("it is removed in the end");
}

#[test]
fn a_removal_ignores_other_dead_nodes_that_it_is_told() {
    let mut sea = Sea::new(1211, 5);
    (0..5).for_each(|number| sea.start(number));
    sea.expect_normal(0..5);
    sea.make_ring_table(TABLE, 3);
    sea.expect_voters(5);
    sea.crash(4, CrashKind::PowerLoss);
    sea.crash(3, CrashKind::PowerLoss);
    sea.sim.run_for(10 * SECOND);
    let ignored = [host(3), host(0)];
    let refused = sea.on(0, move |cluster| async move {
        cluster.remove_node_ignoring(host(4), &ignored).await
    });
    assert!(refused.is_err(), "it cannot ignore itself");
    assert!(
        !sea.cluster(0).metadata().topology.is_excluded(host(3)),
        "nothing was changed"
    );
    let removed = sea.spawn(0, |cluster| async move {
        cluster.remove_node_ignoring(host(4), &[host(3)]).await
    });
    sea.expect("the ignored one is excluded", |views| {
        views.iter().all(|view| view.metadata().topology.is_excluded(host(3)))
    });
    sea.sim.run_for(5 * SECOND);
    drop(removed);
}

#[test]
fn a_replacement_excludes_the_dead_nodes_of_its_list() {
    let mut sea = Sea::new(1212, 5);
    (0..4).for_each(|number| sea.start(number));
    sea.expect_normal(0..4);
    sea.expect_voters(3);
    sea.crash(2, CrashKind::PowerLoss);
    sea.sim.run_for(30 * SECOND);
    sea.crash(3, CrashKind::PowerLoss);
    sea.sim.run_for(10 * SECOND);
    let address = sea.addresses(3..4)[0].ip();
    {
        let mut config = sea.nodes[4].config.borrow_mut();
        config.replaces = Some(Replaced::Host(host(2)));
        config.ignores = vec![Replaced::Address(address)];
    }
    sea.start(4);
    sea.expect("it has taken the place", |views| {
        let is_done = |view: &Rc<Cluster>| {
            let topology = &view.metadata().topology;
            let state = |n| topology.node(host(n)).map(|node| node.state);
            topology.is_excluded(host(3)) && (state(2), state(4)) == (Some(NodeState::Left), Some(NodeState::Normal))
        };
        views.len() == 3 && views.iter().all(is_done)
    });
}

/// The member that lets the node in asks the leader to exclude the dead nodes, and cannot reach it; it does not know
/// yet that another one leads.
#[test]
fn a_replacement_excludes_the_dead_nodes_of_its_list_though_the_leader_is_cut_off() {
    let mut sea = Sea::new(1213, 8);
    (0..7).for_each(|number| sea.start(number));
    sea.expect_normal(0..7);
    sea.expect_voters(5);
    // A majority of the voters is left.
    let has_no_vote = |number: &usize| {
        let raft = sea.cluster(*number).status().raft;
        !raft.voters.contains(&raft.id)
    };
    let dead: Vec<usize> = (0..7).filter(has_no_vote).collect();
    let [replaced, ignored] = dead[..] else {
        panic!("{dead:?} of seven nodes have no vote")
    };
    for dead in [replaced, ignored] {
        sea.crash(dead, CrashKind::PowerLoss);
        sea.sim.run_for(30 * SECOND);
    }
    let alive: Vec<usize> = (0..7).filter(|number| !dead.contains(number)).collect();
    let leader = alive.iter().copied().find(|number| sea.cluster(*number).leads());
    let leader = leader.expect("one leads");
    let follower = alive
        .iter()
        .copied()
        .find(|number| *number != leader)
        .expect("four follow");
    {
        let mut config = sea.nodes[7].config.borrow_mut();
        config.replaces = Some(Replaced::Host(host(replaced)));
        config.ignores = vec![Replaced::Host(host(ignored))];
    }
    let id = |number: usize| sea.nodes[number].id;
    let others = alive.iter().copied().chain([7]).filter(|number| *number != leader);
    let (alone, others): (_, Vec<_>) = (id(leader), others.map(id).collect());
    sea.sim.partition(&[alone], &others);
    sea.start(7);
    sea.sim.run_for(60 * SECOND);
    let is_excluded = |sea: &Sea, number| sea.cluster(number).metadata().topology.is_excluded(host(ignored));
    assert!(is_excluded(&sea, follower), "a majority is there");
    assert!(!is_excluded(&sea, leader), "nobody told it");
    sea.sim.heal(&[alone], &others);
    sea.expect("it has taken the place", |views| {
        let is_done = |view: &Rc<Cluster>| {
            let topology = &view.metadata().topology;
            let state = |n| topology.node(host(n)).map(|node| node.state);
            let states = (state(replaced), state(7));
            topology.is_excluded(host(ignored)) && states == (Some(NodeState::Left), Some(NodeState::Normal))
        };
        views.len() == 6 && views.iter().all(is_done)
    });
}

#[test]
fn a_node_that_leaves_can_be_told_to_stay() {
    let mut sea = Sea::new(1220, 3);
    for node in &sea.nodes {
        node.config.borrow_mut().location.rack = "rack".to_owned();
    }
    (0..3).for_each(|number| sea.start(number));
    sea.expect_normal(0..3);
    sea.make_table(TABLE, &[2], TABLETS);
    sea.make_ring_table(TableId(Uuid::from_u128(9)), 2);
    let tokens = sea
        .cluster(0)
        .metadata()
        .topology
        .node(host(2))
        .expect("a member")
        .tokens
        .clone();
    for node in &sea.nodes {
        node.seen.copies_that_fail.set(u32::MAX);
    }
    let left = sea.spawn(2, |cluster| async move { cluster.decommission().await });
    sea.sim.run_for(5 * SECOND);
    assert_eq!(state(&sea, 0, 2), Some(NodeState::Leaving));
    let stays = sea.on(0, |cluster| async move { cluster.stay(host(2)).await });
    stays.expect("nobody has its ranges yet");
    for node in &sea.nodes {
        node.seen.copies_that_fail.set(0);
    }
    sea.expect("all is at rest", |views| views.iter().all(at_rest));
    let metadata = sea.cluster(0).metadata();
    let node = metadata.topology.node(host(2)).expect("a member");
    assert_eq!((node.state, &node.tokens), (NodeState::Normal, &tokens));
    let told = left
        .borrow_mut()
        .take()
        .expect("the command has ended")
        .expect_err("it did not leave");
    assert!(told.to_string().contains("stay"), "{told}");
    let again = sea.on(0, |cluster| async move { cluster.stay(host(2)).await });
    assert!(
        again
            .expect_err("it does not leave")
            .to_string()
            .contains("does not leave")
    );
}

#[test]
fn a_node_whose_ranges_others_have_does_not_stay() {
    let mut sea = Sea::new(1221, 3);
    (0..3).for_each(|number| sea.start(number));
    sea.expect_normal(0..3);
    // The tablets stay on it: no other node takes copies.
    sea.make_table(TABLE, &[2], TABLETS);
    let tokens = sea
        .cluster(0)
        .metadata()
        .topology
        .node(host(2))
        .expect("a member")
        .tokens
        .clone();
    for node in &sea.nodes {
        node.seen.copies_that_fail.set(u32::MAX);
    }
    drop(sea.spawn(2, |cluster| async move { cluster.decommission().await }));
    sea.expect("its tokens are gone", |views| {
        let has_none = |view: &Rc<Cluster>| {
            let metadata = view.metadata();
            let node = metadata.topology.node(host(2)).expect("a member");
            node.state == NodeState::Leaving && node.tokens.is_empty()
        };
        views.iter().all(has_none)
    });
    let elsewhere = sea.on(0, |cluster| async move { cluster.stay(host(2)).await });
    assert!(
        elsewhere
            .expect_err("it takes tokens")
            .to_string()
            .contains("ask that node")
    );
    // No keyspace has data on the ring, so it may have them back.
    let stays = sea.on(2, |cluster| async move { cluster.stay(host(2)).await });
    stays.expect("nobody has data there");
    let node = sea
        .cluster(2)
        .metadata()
        .topology
        .node(host(2))
        .expect("a member")
        .clone();
    assert_eq!((node.state, &node.tokens), (NodeState::Normal, &tokens));

    drop(sea.spawn(2, |cluster| async move { cluster.decommission().await }));
    sea.expect("it leaves again", |views| {
        views.iter().all(|view| {
            view.metadata()
                .topology
                .node(host(2))
                .is_some_and(|n| n.tokens.is_empty())
        })
    });
    sea.make_ring_table(TableId(Uuid::from_u128(9)), 2);
    let refused = sea.on(2, |cluster| async move { cluster.stay(host(2)).await });
    let why = refused.expect_err("others own what it owned").to_string();
    assert!(why.contains("belong to others already"), "{why}");
}

fn kinds(view: &Cluster) -> Vec<OperationKind> {
    let (metadata, live) = (view.metadata(), view.live());
    let operations = metadata.operations(view.host_id(), &live);
    operations.iter().map(|operation| operation.kind).collect()
}

fn operation(sea: &Sea, by: usize, kind: OperationKind) -> Operation {
    let view = sea.cluster(by);
    let operations = view.metadata().operations(host(by), &view.live());
    let found = operations.iter().find(|operation| operation.kind == kind);
    found
        .unwrap_or_else(|| panic!("{kind:?} is not among {operations:#?}"))
        .clone()
}

fn copies_fail(sea: &Sea, count: u32) {
    for node in &sea.nodes {
        node.seen.copies_that_fail.set(count);
    }
}

#[test]
fn a_join_waits_for_an_owner_that_is_down_says_so_and_copies_nobody_else_meanwhile() {
    let mut sea = Sea::new(1225, 4);
    (0..3).for_each(|number| sea.start(number));
    sea.expect_normal(0..3);
    sea.make_ring_table(TABLE, 2);
    sea.crash(2, CrashKind::Kill);
    sea.sim.run_for(10 * SECOND);
    sea.start(3);
    sea.sim.run_for(20 * SECOND);
    let join = operation(&sea, 0, OperationKind::Join);
    assert!(join.stage.contains("copy their ranges"), "{join:?}");
    let waits = join.waits.expect("an owner is down");
    let says = format!(
        "loses ranges of the token ring and is down: start it, or say that it is gone permanently (nodetool excludenode {})",
        host(2)
    );
    assert!(waits.contains(&says), "{waits}");
    assert_eq!(
        sea.nodes[3].seen.copied.borrow().len(),
        0,
        "it may have what nobody else has"
    );
    sea.restart(2);
    sea.expect_normal(0..4);
}

#[test]
fn each_node_tells_of_a_join_what_is_left_and_what_it_waits_for() {
    let mut sea = Sea::new(1230, 4);
    (0..3).for_each(|number| sea.start(number));
    sea.expect_normal(0..3);
    sea.make_ring_table(TABLE, 2);
    assert_eq!(kinds(&sea.cluster(0)), []);
    copies_fail(&sea, u32::MAX);
    sea.start(3);
    sea.expect("all tell of it", |views| {
        views.len() == 4
            && views
                .iter()
                .all(|view| kinds(view) == [OperationKind::Join] && !at_rest(view))
    });
    sea.sim.run_for(2 * SECOND);
    for by in 0..3 {
        let join = operation(&sea, by, OperationKind::Join);
        assert_eq!(
            (join.host, join.waits.clone(), join.is_abortable),
            (Some(host(3)), None, true)
        );
        assert!(
            join.left > Some(0) && join.stage.contains("copy their ranges"),
            "{join:?}"
        );
    }
    sea.crash(3, CrashKind::Kill);
    sea.sim.run_for(10 * SECOND);
    let waits = operation(&sea, 0, OperationKind::Join).waits.expect("it is down");
    assert!(waits.contains("the node is down: start it"), "{waits}");

    // An operator aborts it: nothing is left of it.
    let aborted = sea.on(0, |cluster| async move {
        cluster.abort_operation(OperationKind::Join, Some(host(3)), None).await
    });
    aborted.expect("nobody reads it yet");
    sea.expect("nothing goes on", |views| {
        views.iter().all(|view| kinds(view).is_empty() && at_rest(view))
    });
    assert_eq!(state(&sea, 0, 3), Some(NodeState::Left));
    let again = sea.on(0, |cluster| async move {
        cluster.abort_operation(OperationKind::Join, Some(host(3)), None).await
    });
    assert!(again.is_err(), "it is gone");
}

#[test]
fn a_join_tells_how_much_of_the_token_ring_it_has_copied_before_it_has_copied_all() {
    let mut sea = Sea::new(1232, 4);
    (0..3).for_each(|number| sea.start(number));
    sea.expect_normal(0..3);
    sea.make_ring_table(TABLE, 2);
    sea.nodes[3].seen.copies_that_succeed.set(Some(1));
    sea.start(3);
    sea.expect("it copies", |views| {
        views.len() == 4
            && views
                .iter()
                .all(|view| kinds(view) == [OperationKind::Join] && !at_rest(view))
    });
    sea.sim.run_for(5 * SECOND);
    let left = |sea: &mut Sea, by: usize| {
        let told = sea.on(by, |cluster| async move { cluster.operations().await });
        told[0].left.expect("it has tokens")
    };
    let all = left(&mut sea, 0);
    let own = left(&mut sea, 3);
    assert!(0 < own && own < all, "{own} of {all} are left when a part is copied");
    for by in 0..3 {
        let is_copying = sea.on(by, |cluster| async move { cluster.ask_ring_copies().await });
        assert!(is_copying, "it is asked");
        assert_eq!(left(&mut sea, by), own, "node {by} knows what the node itself knows");
    }
    sea.nodes[3].seen.copies_that_succeed.set(None);
    sea.expect("it has joined", |views| {
        views.iter().all(|view| kinds(view).is_empty() && at_rest(view))
    });
}

#[test]
fn a_change_of_a_replication_is_told_by_keyspace_and_goes_back_by_another_one() {
    let mut sea = Sea::new(1231, 3);
    (0..3).for_each(|number| sea.start(number));
    sea.expect_normal(0..3);
    sea.make_table(TableId(Uuid::from_u128(9)), &[0], TABLETS);
    sea.make_ring_table(TABLE, 1);
    sea.expect("all is at rest", |views| views.iter().all(at_rest));
    copies_fail(&sea, u32::MAX);
    sea.replicate("ks", 3);
    sea.replicate("system", 2);
    sea.sim.run_for(5 * SECOND);
    let view = sea.cluster(1);
    let told = view.metadata().operations(host(1), &view.live());
    let of = |name: &str| {
        let is_it = |operation: &&Operation| operation.keyspace.as_deref() == Some(name);
        told.iter().find(is_it).unwrap_or_else(|| panic!("{told:#?}")).clone()
    };
    let ring = of("ks");
    assert!(
        ring.left > Some(0) && ring.stage.contains("'replication_factor': '1'"),
        "{ring:?}"
    );
    assert!(
        of("system").stage.contains("8 tablets do not have the copies"),
        "{told:#?}"
    );
    sea.replicate("ks", 1);
    sea.replicate("system", 1);
    copies_fail(&sea, 0);
    sea.expect("nothing goes on", |views| {
        views.iter().all(|view| kinds(view).is_empty())
    });
}

#[test]
fn a_departure_tells_what_is_left_and_what_holds_it_up() {
    let mut sea = Sea::new(1232, 4);
    for node in &sea.nodes {
        node.config.borrow_mut().location.rack = "rack".to_owned();
    }
    (0..4).for_each(|number| sea.start(number));
    sea.expect_normal(0..4);
    sea.make_table(TABLE, &[2, 3], TABLETS);
    sea.expect("all is at rest", |views| views.iter().all(at_rest));
    copies_fail(&sea, u32::MAX);
    drop(sea.spawn(3, |cluster| async move { cluster.decommission().await }));
    sea.sim.run_for(5 * SECOND);
    let leave = operation(&sea, 0, OperationKind::Leave);
    assert!(
        leave.left > Some(0) && leave.waits.is_none() && leave.is_abortable,
        "{leave:?}"
    );
    assert!(
        !kinds(&sea.cluster(0)).contains(&OperationKind::Balance),
        "what leaves is not balance"
    );
    sea.crash(3, CrashKind::Kill);
    sea.sim.run_for(10 * SECOND);
    let leave = operation(&sea, 0, OperationKind::Leave);
    assert!(leave.waits.is_some_and(|waits| waits.contains("or remove it")));
    let removed = sea.spawn(0, |cluster| async move { cluster.remove_node(host(3)).await });
    sea.sim.run_for(5 * SECOND);
    let remove = operation(&sea, 1, OperationKind::Remove);
    assert!(remove.left > Some(0) && !remove.is_abortable, "{remove:?}");
    let refused = sea.on(0, |cluster| async move {
        cluster
            .abort_operation(OperationKind::Remove, Some(host(3)), None)
            .await
    });
    assert!(
        refused
            .expect_err("it is agreed on")
            .to_string()
            .contains("cannot be stopped")
    );
    copies_fail(&sea, 0);
    sea.expect("it is gone", |views| views.iter().all(|view| kinds(view).is_empty()));
    removed
        .borrow_mut()
        .take()
        .expect("the command has ended")
        .expect("it is removed");
}

#[test]
fn what_excluded_nodes_alone_had_is_told_to_hold_the_ring_up() {
    let mut sea = Sea::new(1233, 4);
    (0..3).for_each(|number| sea.start(number));
    sea.expect_normal(0..3);
    sea.make_ring_table(TABLE, 1);
    sea.expect_voters(3);
    sea.crash(2, CrashKind::PowerLoss);
    sea.sim.run_for(10 * SECOND);
    let excluded = sea.on(0, |cluster| async move { cluster.exclude_nodes(&[host(2)]).await });
    excluded.expect("it is down");
    sea.start(3);
    sea.sim.run_for(20 * SECOND);
    let waits = operation(&sea, 0, OperationKind::Join)
        .waits
        .expect("nobody has the data");
    assert!(waits.contains("drop the keyspaces without tablets"), "{waits}");
}

/// What a keyspace says.
fn factor(view: &Cluster, keyspace: &str) -> String {
    view.metadata().schema.keyspaces[keyspace].replication["replication_factor"].clone()
}

fn abort(sea: &mut Sea, by: usize, keyspace: &'static str) -> Result<(), cluster::ChangeError> {
    sea.on(by, move |cluster| async move {
        cluster
            .abort_operation(OperationKind::Replication, None, Some(keyspace))
            .await
    })
}

#[test]
fn a_replication_that_is_not_reached_goes_back_to_what_it_was_before_all_changes_of_it() {
    let mut sea = Sea::new(1240, 4);
    (0..4).for_each(|number| sea.start(number));
    sea.expect_normal(0..4);
    sea.make_table(TableId(Uuid::from_u128(9)), &[0], TABLETS);
    sea.make_ring_table(TABLE, 1);
    sea.expect("all is at rest", |views| views.iter().all(at_rest));
    for keyspace in ["ks", "system"] {
        let refused = abort(&mut sea, 1, keyspace).expect_err("nothing goes on").to_string();
        assert!(refused.contains("has what it wants"), "{refused}");
        copies_fail(&sea, u32::MAX);
        sea.replicate(keyspace, 2);
        sea.replicate(keyspace, 3);
        sea.sim.run_for(5 * SECOND);
        let told = operation(&sea, 2, OperationKind::Replication);
        assert!(
            told.is_abortable && told.keyspace.as_deref() == Some(keyspace),
            "{told:?}"
        );
        // A leader that is lost takes nothing of it along.
        sea.crash(0, CrashKind::Kill);
        sea.sim.run_for(SECOND);
        sea.restart(0);
        sea.expect("it is back", |views| {
            views.len() == 4 && views.iter().all(|v| v.is_live(host(0)))
        });
        abort(&mut sea, 1, keyspace).expect("it goes back");
        copies_fail(&sea, 0);
        sea.expect("it is where it was", |views| {
            let is_back = |view: &Rc<Cluster>| factor(view, keyspace) == "1" && kinds(view).is_empty() && at_rest(view);
            views.iter().all(is_back)
        });
        let again = abort(&mut sea, 1, keyspace).expect_err("it has gone back").to_string();
        assert!(again.contains("has what it wants"), "{again}");
    }
}

#[test]
fn a_replication_that_was_reached_is_not_taken_back_when_nodes_change_its_copies_later() {
    let mut sea = Sea::new(1241, 3);
    (0..2).for_each(|number| sea.start(number));
    sea.expect_normal(0..2);
    sea.make_table(TABLE, &[0], TABLETS);
    sea.expect("all is at rest", |views| views.iter().all(at_rest));
    sea.replicate("system", 3);
    sea.expect("both nodes have all, and what was before is forgotten", |views| {
        let has_all =
            |view: &Rc<Cluster>| replicas(view, 3) == [8, 8, 0] && at_rest(view) && view.metadata().altered.is_empty();
        views.iter().all(has_all)
    });
    copies_fail(&sea, u32::MAX);
    sea.start(2);
    sea.expect("a third node is to have copies", |views| {
        views.len() == 3
            && views
                .iter()
                .all(|view| kinds(view).contains(&OperationKind::Replication))
    });
    assert!(!operation(&sea, 0, OperationKind::Replication).is_abortable);
    assert!(abort(&mut sea, 0, "system").is_err());
    assert_eq!(factor(&sea.cluster(0), "system"), "3");
}

/// Whatever moment the answer comes in, it is true, and no node stays without the tokens that it had.
#[test]
fn a_node_that_is_told_to_stay_while_its_ring_change_ends_stays_whole_or_leaves() {
    let (mut stayed, mut refused) = (0, 0);
    for moment in 0..12 {
        for has_ring_data in [true, false] {
            let mut sea = Sea::new(1250 + moment, 3);
            (0..3).for_each(|number| sea.start(number));
            sea.expect_normal(0..3);
            sea.make_table(TABLE, &[2], TABLETS);
            if has_ring_data {
                sea.make_ring_table(TableId(Uuid::from_u128(9)), 2);
            }
            sea.expect("all is at rest", |views| views.iter().all(at_rest));
            drop(sea.spawn(2, |cluster| async move { cluster.decommission().await }));
            sea.sim.run_for(std::time::Duration::from_millis(10 + 25 * moment));
            // The node knows its own tokens, others know them while it has them.
            let by = usize::from(moment % 2 == 0) * 2;
            let told = sea.on(by, |cluster| async move { cluster.stay(host(2)).await });
            sea.sim.run_for(5 * SECOND);
            let metadata = sea.cluster(0).metadata();
            let node = metadata.topology.node(host(2)).expect("it stays known");
            match told {
                Ok(()) => {
                    stayed += 1;
                    assert_eq!(
                        (node.state, node.tokens.len()),
                        (NodeState::Normal, 4),
                        "moment {moment}"
                    );
                }
                Err(why) => {
                    refused += 1;
                    let is_left = matches!(node.state, NodeState::Leaving | NodeState::Left);
                    assert!(
                        is_left || why.to_string().contains("does not leave"),
                        "moment {moment}: {why}"
                    );
                }
            }
        }
    }
    assert!(stayed > 0 && refused > 0, "{stayed} stayed, {refused} were refused");
}

#[test]
fn a_node_that_never_had_tokens_stays_although_others_have_data_on_the_ring() {
    let mut sea = Sea::new(1290, 3);
    sea.nodes[2].config.borrow_mut().auto_bootstrap = false;
    (0..3).for_each(|number| sea.start(number));
    sea.expect_normal(0..2);
    sea.expect("the third is a full member", |views| {
        let is_full = |view: &Rc<Cluster>| {
            let metadata = view.metadata();
            metadata.topology.node(host(2)).map(|node| node.state) == Some(NodeState::Normal)
        };
        views.len() == 3 && views.iter().all(is_full)
    });
    sea.make_table(TABLE, &[2], TABLETS);
    sea.make_ring_table(TableId(Uuid::from_u128(9)), 2);
    copies_fail(&sea, u32::MAX);
    drop(sea.spawn(2, |cluster| async move { cluster.decommission().await }));
    sea.expect("it leaves", |views| {
        let leaves = |view: &Rc<Cluster>| {
            let metadata = view.metadata();
            metadata.topology.node(host(2)).map(|node| node.state) == Some(NodeState::Leaving)
        };
        views.iter().all(leaves)
    });
    let elsewhere = sea.on(0, |cluster| async move { cluster.stay(host(2)).await });
    let why = elsewhere.expect_err("it knows itself").to_string();
    assert!(why.contains("ask that node"), "{why}");
    let stays = sea.on(2, |cluster| async move { cluster.stay(host(2)).await });
    stays.expect("it gives nothing of the ring away");
    assert_eq!(state(&sea, 0, 2), Some(NodeState::Normal));
}

#[test]
fn a_datacenter_of_zero_token_nodes_takes_no_copies_and_keeps_nobody_from_leaving() {
    let mut sea = Sea::new(1291, 4);
    for node in &sea.nodes {
        node.config.borrow_mut().location.rack = "rack".to_owned();
    }
    {
        let mut arbiter = sea.nodes[3].config.borrow_mut();
        arbiter.joins_ring = false;
        arbiter.location.datacenter = "arbiter".to_owned();
    }
    (0..4).for_each(|number| sea.start(number));
    sea.expect_normal(0..3);
    sea.expect("the fourth is an arbiter", |views| {
        views.len() == 4 && views.iter().all(|view| view.metadata().topology.is_zero_token(host(3)))
    });
    sea.make_table(TABLE, &[0, 1], TABLETS);
    let here = sea.nodes[0].config.borrow().location.datacenter.clone();
    sea.replicate_in("system", &[(here.as_str(), 2), ("arbiter", 1)]);
    sea.expect("nothing is left to do", |views| {
        views
            .iter()
            .all(|view| kinds(view).is_empty() && at_rest(view) && view.metadata().altered.is_empty())
    });
    assert_eq!(replicas(&sea.cluster(0), 4)[3], 0);
    let left = sea.on(2, |cluster| async move { cluster.decommission().await });
    left.expect("two nodes are left for two copies");
}
