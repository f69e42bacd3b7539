//! Ranges of the token ring get other owners, whatever happens to the nodes during that: no node becomes an owner of
//! what it has not copied.

use crate::support::{SECOND, Sea, host};
use cluster::{Cluster, RingState};
use runtime::sim::CrashKind;
use schema::TableId;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use topology::{HostId, NodeState, Replication, Stage, ring_map};
use types::Token;
use uuid::Uuid;

const TABLE: TableId = TableId(Uuid::from_u128(0x7ab1e));

/// A cluster with a table on the ring, and one node more that has not been started.
fn with_table(seed: u64, count: usize, copies: usize) -> Sea {
    let mut sea = Sea::new(seed, count + 1);
    (0..count).for_each(|number| sea.start(number));
    sea.expect_normal(0..count);
    sea.make_ring_table(TABLE, copies);
    sea
}

fn is_at_rest(view: &Rc<Cluster>) -> bool {
    view.metadata().ring.is_none()
}

fn expect_rest(sea: &mut Sea) {
    sea.expect("the ring is at rest", |views| views.iter().all(is_at_rest));
}

fn state(sea: &Sea, by: usize, of: usize) -> Option<NodeState> {
    state_in(&sea.cluster(by), of)
}

fn state_in(view: &Rc<Cluster>, of: usize) -> Option<NodeState> {
    view.metadata().topology.node(host(of)).map(|node| node.state)
}

/// The last token of each range, and the owners of the range.
type Owners = Vec<(Token, BTreeSet<HostId>)>;

/// Where the ring is cut, and the owners of each range.
fn owners(sea: &Sea, by: usize) -> Owners {
    let metadata = sea.cluster(by).metadata();
    let keyspace = &metadata.schema.keyspaces["ks"];
    let datacenters = metadata.topology.datacenters();
    let replication = Replication::parse(&keyspace.replication, &datacenters).expect("a replication");
    let map = ring_map(&metadata.topology, &replication).expect("a map");
    let name = |replica: &topology::Replica| metadata.topology.numbered(replica.node).expect("a node").host_id;
    let owners = |tablet: topology::Tablet<'_>| tablet.replicas.iter().map(name).collect();
    let last = |tablet: &topology::Tablet<'_>| map.token_range(tablet.id).expect("a range").1;
    map.tablets().map(|tablet| (last(&tablet), owners(tablet))).collect()
}

fn owns(owners: &Owners, token: Token, number: usize) -> bool {
    let at = owners.partition_point(|(last, _)| *last < token);
    owners[at].1.contains(&host(number))
}

/// Whether a node has copied everything that it owns and did not own before; and how many ranges that are.
fn has_copied(sea: &Sea, number: usize, (before, after): (&Owners, &Owners)) -> (bool, usize) {
    let copied = sea.nodes[number].seen.copied.borrow();
    let all = before.iter().chain(after).map(|(token, _)| *token);
    let gained = all.filter(|token| owns(after, *token, number) && !owns(before, *token, number));
    let gained: Vec<Token> = gained.collect();
    let is_in = |token: &Token| {
        let is_inside = |(after, to): &(Token, Token)| after < token && to >= token;
        let covers = |copy: &cluster::Copy| copy.ranges.iter().any(is_inside) && !copy.sources.is_empty();
        copied.iter().any(covers)
    };
    (gained.iter().all(is_in), gained.len())
}

#[test]
fn a_node_that_joins_copies_its_ranges_before_it_owns_them() {
    let mut sea = with_table(1000, 3, 2);
    let before = owners(&sea, 0);
    sea.nodes[3].seen.copies_that_fail.set(u32::MAX);
    sea.start(3);
    sea.sim.run_for(20 * SECOND);
    assert_eq!(
        state(&sea, 0, 3),
        Some(NodeState::Joining),
        "it owns what it has not copied"
    );
    let stage = sea.cluster(0).metadata().ring.as_ref().map(|ring| ring.stage);
    assert_eq!(stage, Some(Stage::Streaming));
    sea.nodes[3].seen.copies_that_fail.set(0);
    expect_rest(&mut sea);
    sea.expect_normal(0..4);
    let (has_all, ranges) = has_copied(&sea, 3, (&before, &owners(&sea, 0)));
    assert!(has_all && ranges > 0, "it owns a range that it has not copied");
    expect_removal_before_writes(&sea);
    let discarded = sea.nodes[3].seen.discarded.borrow();
    let ranges_discarded: usize = discarded.iter().map(|discard| discard.ranges.len()).sum();
    assert!(ranges_discarded > 0, "what it may have from before is not removed");
}

#[test]
fn nothing_is_copied_where_there_are_no_tables_on_the_ring() {
    let mut sea = Sea::formed(1001, 3);
    expect_rest(&mut sea);
    for node in &sea.nodes {
        assert!(node.seen.copied.borrow().is_empty());
    }
    sea.make_ring_table(TABLE, 2);
    expect_rest(&mut sea);
}

#[test]
fn a_join_goes_on_after_any_node_was_killed_at_any_moment_of_it() {
    for seed in 0..24_u64 {
        let mut sea = with_table(1010 + seed, 3, 2);
        sea.expect_voters(3);
        let before = owners(&sea, 0);
        sea.start(3);
        sea.sim.run_for(Duration::from_millis(20 + seed / 4 * 40));
        let killed = usize::try_from(seed % 4).expect("four nodes");
        sea.crash(killed, CrashKind::Kill);
        sea.sim.run_for(SECOND);
        sea.restart(killed);
        sea.expect_normal(0..4);
        let (has_all, _) = has_copied(&sea, 3, (&before, &owners(&sea, 0)));
        assert!(has_all, "it owns a range that it has not copied (seed {seed})");
    }
}

#[test]
fn two_nodes_that_join_at_once_both_get_their_ranges() {
    let mut sea = Sea::new(1040, 4);
    (0..2).for_each(|number| sea.start(number));
    sea.expect_normal(0..2);
    sea.make_ring_table(TABLE, 2);
    let before = owners(&sea, 0);
    (2..4).for_each(|number| sea.start(number));
    sea.expect_normal(0..4);
    expect_rest(&mut sea);
    for number in 2..4 {
        let (has_all, _) = has_copied(&sea, number, (&before, &owners(&sea, 0)));
        assert!(has_all, "node {number} owns a range that it has not copied");
    }
}

/// What a node removes for a change that was given up must not take effect after what it copies for the next one.
#[test]
fn a_node_copies_for_one_change_of_the_ring_at_a_time() {
    let mut sea = Sea::new(1043, 5);
    (0..3).for_each(|number| sea.start(number));
    sea.expect_normal(0..3);
    sea.make_ring_table(TABLE, 2);
    let removing = |views: &[Rc<Cluster>]| -> Option<u64> {
        let metadata = views.first()?.metadata();
        let ring = metadata
            .ring
            .as_ref()
            .filter(|ring| ring.stage == Stage::AllowWriteBothReadOld);
        ring.map(|ring| ring.version)
    };
    sea.nodes[3].seen.discard_delay.set(Duration::from_secs(10));
    sea.start(3);
    sea.expect("a change for which the fourth removes what it has", |views| {
        removing(views).is_some()
    });
    sea.sim.run_for(SECOND);
    let first = removing(&[sea.cluster(0)]);
    sea.start(4);
    sea.expect("the change begins again", |views| {
        removing(views).is_some_and(|version| Some(version) != first)
    });
    sea.sim.run_for(SECOND);
    assert_eq!(
        sea.nodes[3].seen.discarding.get(),
        1,
        "the removal for the former change is over: nothing is tested"
    );
    sea.expect_normal(0..5);
    assert_eq!(sea.nodes[3].seen.discards_at_once.get(), 1);
    expect_removal_before_writes(&sea);
}

/// No node has removed what it had of its ranges while it was written as a next owner: a write could be gone that it
/// had acknowledged.
fn expect_removal_before_writes(sea: &Sea) {
    for (number, node) in sea.nodes.iter().enumerate() {
        assert!(
            !node.seen.removes_what_is_written.get(),
            "node {number} removes what is written"
        );
    }
}

/// The node reports that it is done, and hears nothing any more until it is killed. The group continues, and the node
/// removes once more when it is started again.
#[test]
fn a_node_that_was_started_again_is_not_written_before_it_has_removed_what_it_had() {
    let mut sea = with_table(1300, 3, 2);
    let seen = sea.nodes[3].seen.clone();
    seen.discard_delay.set(SECOND);
    sea.start(3);
    sea.expect("the fourth removes what it had", |_| seen.discarding.get() > 0);
    let ids: Vec<_> = sea.nodes.iter().map(|node| node.id).collect();
    for other in &ids[..3] {
        sea.sim.set_link_up(*other, ids[3], false);
    }
    sea.expect("the group knows that it is done", |views| {
        let metadata = views.first().expect("three run").metadata();
        let is_next = |ring: &RingState| ring.stage == Stage::WriteBothReadOld;
        metadata.ring.as_ref().is_some_and(is_next)
    });
    sea.crash(3, CrashKind::Kill);
    for other in &ids[..3] {
        sea.sim.set_link_up(*other, ids[3], true);
    }
    seen.discarding.set(0);
    let before = seen.discarded.borrow().len();
    seen.discard_delay.set(5 * SECOND);
    sea.restart(3);
    sea.sim.run_for(3 * SECOND);
    assert!(
        seen.discarded.borrow().len() > before,
        "it does not remove again: nothing is tested"
    );
    sea.expect_normal(0..4);
    expect_removal_before_writes(&sea);
}

/// A node has nothing to remove or to copy for the tables that are there, and then for one that is made in the middle
/// of the change.
#[test]
fn a_change_of_the_ring_ends_though_a_table_in_the_middle_makes_more_nodes_next_owners() {
    let mut shown = 0;
    for (seed, stage) in
        (0..12).flat_map(|seed| [Stage::AllowWriteBothReadOld, Stage::Streaming].map(|stage| (seed, stage)))
    {
        let mut sea = Sea::new(1400 + seed, 4);
        for node in 0..4 {
            sea.nodes[node].config.borrow_mut().num_tokens = 1;
            sea.start(node);
        }
        sea.expect("all are members", |views| {
            let is_normal = |view: &Rc<Cluster>| (0..4).all(|node| state_in(view, node) == Some(NodeState::Normal));
            views.len() == 4 && views.iter().all(is_normal)
        });
        sea.make_ring_table(TABLE, 1);
        for node in &sea.nodes {
            match stage {
                Stage::Streaming => node.seen.copies_that_fail.set(u32::MAX),
                _ => node.seen.discard_delay.set(5 * SECOND),
            }
        }
        let leaving = sea.spawn(3, |cluster| async move { cluster.decommission().await });
        sea.expect("the change is in the stage", |views| {
            let metadata = views[0].metadata();
            metadata.ring.as_ref().is_some_and(|ring| ring.stage == stage)
        });
        sea.sim.run_for(SECOND);
        let has_nothing = |node: &usize| sea.nodes[*node].seen.discarded.borrow().is_empty();
        shown += usize::from((0..3).any(|node| has_nothing(&node)));
        sea.make_ring_table_in("later", TableId(Uuid::from_u128(0x7ab1f)), 2);
        for node in &sea.nodes {
            node.seen.copies_that_fail.set(0);
        }
        sea.expect("the ring is at rest", |views| views[..3].iter().all(is_at_rest));
        drop(leaving);
    }
    assert!(
        shown > 0,
        "every node was a next owner from the beginning: nothing is tested"
    );
}

#[test]
fn a_node_that_dies_while_it_joins_gives_its_tokens_back() {
    let mut sea = with_table(1041, 3, 2);
    sea.nodes[3].seen.copies_that_fail.set(u32::MAX);
    sea.start(3);
    sea.expect("it copies", |views| {
        let is_streaming = |view: &Rc<Cluster>| {
            let metadata = view.metadata();
            metadata
                .ring
                .as_ref()
                .is_some_and(|ring| ring.stage == Stage::Streaming)
        };
        views.iter().any(is_streaming)
    });
    sea.crash(3, CrashKind::Kill);
    sea.sim.run_for(60 * SECOND);
    let metadata = sea.cluster(0).metadata();
    assert!(metadata.ring.is_none(), "the ring waits for a node that is gone");
    assert!(metadata.topology.node(host(3)).expect("a member").tokens.is_empty());
}

#[test]
fn a_node_that_comes_back_while_it_joins_waits_for_its_place_no_longer() {
    let mut sea = with_table(1042, 3, 2);
    sea.nodes[3].seen.copies_that_fail.set(u32::MAX);
    sea.start(3);
    sea.sim.run_for(25 * SECOND);
    assert!(!sea.has_started(3), "it serves without a place, and may have one soon");
    sea.sim.run_for(10 * SECOND);
    assert!(sea.has_started(3), "it waits for its place indefinitely");
    sea.crash(3, CrashKind::Kill);
    sea.restart(3);
    sea.sim.run_for(2 * SECOND);
    assert!(sea.has_started(3), "clients wait for it once more");
    sea.nodes[3].seen.copies_that_fail.set(0);
    sea.expect_normal(0..4);
}

#[test]
fn a_node_that_is_decommissioned_gives_its_ranges_away_and_leaves() {
    let mut sea = with_table(1050, 3, 2);
    sea.start(3);
    sea.expect_normal(0..4);
    for node in &sea.nodes {
        node.seen.copied.borrow_mut().clear();
    }
    let before = owners(&sea, 0);
    let left = sea.on(3, |cluster| async move { cluster.decommission().await });
    left.expect("it leaves");
    for number in 0..3 {
        let (has_all, _) = has_copied(&sea, number, (&before, &owners(&sea, 0)));
        assert!(has_all, "node {number} owns a range that it has not copied");
    }
    // The node that left knows it first.
    sea.sim.run_for(SECOND);
    assert_eq!(state(&sea, 0, 3), Some(NodeState::Left));
}

#[test]
fn what_a_lost_node_owned_is_rebuilt_from_the_other_owners() {
    let mut sea = with_table(1051, 3, 2);
    sea.start(3);
    sea.expect_normal(0..4);
    sea.nodes.iter().for_each(|node| node.seen.copied.borrow_mut().clear());
    sea.crash(3, CrashKind::PowerLoss);
    sea.sim.run_for(10 * SECOND);
    let removed = sea.on(0, |cluster| async move { cluster.remove_node(host(3)).await });
    removed.expect("it is removed");
    let copied: usize = sea.nodes[..3].iter().map(|node| node.seen.copied.borrow().len()).sum();
    assert!(copied > 0, "its ranges have one copy less");
    let from_lost = |copy: &cluster::Copy| copy.sources.iter().any(|(peer, _)| peer.host_id == host(3).0);
    let lost_is_asked = sea.nodes[..3]
        .iter()
        .any(|node| node.seen.copied.borrow().iter().any(from_lost));
    assert!(!lost_is_asked, "it does not answer");
}

#[test]
fn a_dead_node_is_removed_for_which_one_that_joins_and_one_that_leaves_wait() {
    for joins_first in [true, false] {
        let mut sea = with_table(1053, 4, 3);
        sea.make_table(TableId(Uuid::from_u128(0x7ab1e7)), &[0, 1, 3], 4);
        sea.crash(3, CrashKind::PowerLoss);
        sea.sim.run_for(10 * SECOND);
        sea.nodes[4].seen.copies_that_fail.set(u32::MAX);
        for joins in [joins_first, !joins_first] {
            if joins {
                sea.start(4)
            } else {
                drop(sea.spawn(1, |cluster| async move { cluster.decommission().await }))
            }
            sea.sim.run_for(5 * SECOND);
        }
        sea.nodes[4].seen.copies_that_fail.set(0);
        let removed = sea.on(0, |cluster| async move { cluster.remove_node(host(3)).await });
        removed.expect("the one that joins takes what it had");
        sea.expect("one has joined and one has left", |views| {
            let states = |view: &Rc<Cluster>| [1, 4].map(|of| state_in(view, of));
            views[1..]
                .iter()
                .all(|view| states(view) == [Some(NodeState::Left), Some(NodeState::Normal)])
        });
    }
}

#[test]
fn a_node_that_alone_owns_a_part_of_a_keyspace_is_not_given_up() {
    let mut sea = with_table(1052, 3, 1);
    sea.crash(2, CrashKind::PowerLoss);
    sea.sim.run_for(10 * SECOND);
    let refused = sea.on(0, |cluster| async move { cluster.remove_node(host(2)).await });
    let why = refused.expect_err("its rows are nowhere else").to_string();
    assert!(why.contains("the node alone owns a part of keyspace ks"), "{why}");
}

#[test]
fn another_replication_is_read_when_its_owners_have_copied() {
    let mut sea = with_table(1060, 4, 1);
    for node in &sea.nodes {
        node.seen.copies_that_fail.set(u32::MAX);
    }
    sea.replicate("ks", 3);
    sea.sim.run_for(10 * SECOND);
    let metadata = sea.cluster(0).metadata();
    let ring = metadata.ring.as_ref().expect("a change is under way");
    assert_eq!(ring.stage, Stage::Streaming);
    assert_eq!(ring.former["ks"]["replication_factor"], "1");
    for node in &sea.nodes {
        node.seen.copies_that_fail.set(0);
    }
    expect_rest(&mut sea);
    for number in 0..4 {
        assert!(!sea.nodes[number].seen.copied.borrow().is_empty(), "node {number}");
    }
    sea.replicate("ks", 2);
    expect_rest(&mut sea);
}

#[test]
fn a_change_of_the_ring_waits_for_requests_that_any_member_began_before_it() {
    let mut sea = with_table(1070, 3, 2);
    sea.nodes[1].seen.in_flight.set(1);
    sea.start(3);
    sea.sim.run_for(5 * SECOND);
    let stage = |sea: &Sea| sea.cluster(0).metadata().ring.as_ref().map(|ring| ring.stage);
    assert_eq!(
        stage(&sea),
        Some(Stage::CleanupTarget),
        "node 1 may still write to next owners of a former change"
    );
    assert!(sea.nodes[3].seen.discarded.borrow().is_empty());
    sea.nodes[3].seen.discard_delay.set(Duration::from_secs(2));
    sea.nodes[1].seen.in_flight.set(0);
    sea.expect("the fourth removes what it has", |views| {
        let metadata = views.first().expect("they run").metadata();
        metadata
            .ring
            .as_ref()
            .is_some_and(|ring| ring.stage == Stage::AllowWriteBothReadOld)
    });
    sea.nodes[1].seen.in_flight.set(1);
    sea.sim.run_for(8 * SECOND);
    assert_eq!(
        stage(&sea),
        Some(Stage::WriteBothReadOld),
        "node 1 may still write to the former owners alone"
    );
    sea.nodes[1].seen.in_flight.set(0);
    sea.expect_normal(0..4);
}

/// A node that takes the place of another.
fn replace(sea: &mut Sea, dead: usize, heir: usize) {
    sea.crash(dead, CrashKind::PowerLoss);
    sea.sim.run_for(10 * SECOND);
    {
        let mut config = sea.nodes[heir].config.borrow_mut();
        config.replaces = Some(topology::Replaced::Host(host(dead)));
        config.location = sea.nodes[dead].config.borrow().location.clone();
    }
    sea.start(heir);
}

#[test]
fn a_node_takes_the_place_of_one_that_is_lost() {
    let mut sea = with_table(1080, 3, 2);
    sea.make_table(TableId(Uuid::from_u128(0x7ab1e7)), &[0, 1, 2], 4);
    let tokens = sea
        .cluster(0)
        .metadata()
        .topology
        .node(host(2))
        .expect("a member")
        .tokens
        .clone();
    replace(&mut sea, 2, 3);
    sea.expect("the other has left", |views| {
        let has_left = |view: &Rc<Cluster>| {
            let metadata = view.metadata();
            metadata.topology.node(host(2)).expect("it stays known").state == NodeState::Left
        };
        views.iter().all(has_left)
    });
    expect_rest(&mut sea);
    let metadata = sea.cluster(0).metadata();
    let heir = metadata.topology.node(host(3)).expect("a member");
    assert_eq!((heir.state, &heir.tokens), (NodeState::Normal, &tokens));
    let number = metadata.topology.number(host(3)).expect("a member");
    let map = &metadata.tablets[&TableId(Uuid::from_u128(0x7ab1e7))];
    assert!(
        map.tablets()
            .all(|tablet| tablet.replicas.iter().any(|replica| replica.node == number))
    );
    let copied = sea.nodes[3].seen.copied.borrow();
    let is_ring = |copy: &&cluster::Copy| copy.table == TABLE;
    assert!(copied.iter().filter(is_ring).count() > 0 && copied.iter().filter(|copy| !is_ring(copy)).count() == 4);
}

#[test]
fn a_replacement_goes_on_after_any_node_was_killed() {
    for seed in 0..8_u64 {
        let mut sea = with_table(1090 + seed, 3, 2);
        sea.expect_voters(3);
        replace(&mut sea, 2, 3);
        sea.sim.run_for(Duration::from_millis(30 + seed / 3 * 60));
        let killed = [0, 1, 3][usize::try_from(seed % 3).expect("three nodes")];
        sea.crash(killed, CrashKind::Kill);
        sea.sim.run_for(SECOND);
        sea.restart(killed);
        sea.expect(&format!("the heir is a full member (seed {seed})"), |views| {
            let is_done = |view: &Rc<Cluster>| {
                let metadata = view.metadata();
                let state = |number| metadata.topology.node(host(number)).map(|node| node.state);
                state(2) == Some(NodeState::Left) && state(3) == Some(NodeState::Normal)
            };
            views.len() == 3 && views.iter().all(is_done)
        });
    }
}

#[test]
fn what_cannot_be_replaced_is_refused_with_the_reason() {
    let mut sea = with_table(1100, 3, 1);
    let stories = [
        (host(9), "is no member of this cluster"),
        (host(1), "is alive: stop it first"),
    ];
    for (named, expected) in stories {
        sea.nodes[3].config.borrow_mut().replaces = Some(topology::Replaced::Host(named));
        sea.nodes[3].seen.error.take();
        sea.start(3);
        let why = sea.refusal(3).to_string();
        assert!(why.contains(expected), "{why}");
    }
    sea.nodes[3].seen.error.take();
    replace(&mut sea, 2, 3);
    let why = sea.refusal(3).to_string();
    assert!(why.contains("the node alone owns a part of keyspace ks"), "{why}");
}

#[test]
fn a_node_that_joins_an_idle_cluster_is_a_full_member_at_once() {
    let mut sea = with_table(1110, 3, 2);
    sea.expect_voters(3);
    let began = sea.sim.now();
    sea.start(3);
    sea.expect_normal(0..4);
    let took = sea.sim.now() - began;
    // Each of its ranges takes the simulated disk and network 20 ms.
    assert!(took < 2 * SECOND, "it takes {took:?}");
}

/// The change waits for its confirmation, which no longer arrives.
#[test]
fn a_node_that_dies_when_the_next_owners_are_read_already_can_be_given_up() {
    let mut sea = with_table(1120, 4, 2);
    sea.expect_voters(3);
    sea.nodes[4].seen.copies_that_fail.set(u32::MAX);
    sea.start(4);
    let is_in = |view: &Rc<Cluster>, stage| view.metadata().ring.as_ref().is_some_and(|ring| ring.stage == stage);
    sea.expect("it copies", |views| {
        views.iter().any(|view| is_in(view, Stage::Streaming))
    });
    sea.nodes[1].seen.in_flight.set(1);
    sea.nodes[4].seen.copies_that_fail.set(0);
    let is_read = |view: &Rc<Cluster>| is_in(view, Stage::WriteBothReadNew);
    sea.expect("the next owners are read", |views| views.iter().all(is_read));
    sea.crash(1, CrashKind::PowerLoss);
    sea.sim.run_for(20 * SECOND);
    assert!(
        is_read(&sea.cluster(0)),
        "a former owner that nobody heard of may still answer its clients"
    );
    let removed = sea.on(0, |cluster| async move { cluster.remove_node(host(1)).await });
    removed.expect("it is removed");
    expect_rest(&mut sea);
    assert_eq!(state(&sea, 0, 1), Some(NodeState::Left));
    assert_eq!(state(&sea, 0, 4), Some(NodeState::Normal));
    let from_lost = |copy: &cluster::Copy| copy.sources.iter().any(|(peer, _)| peer.host_id == host(1).0);
    let rebuilt = sea.nodes[2].seen.copied.borrow().len() + sea.nodes[3].seen.copied.borrow().len();
    assert!(rebuilt > 0, "what it owned has one copy less");
    assert!(
        !sea.nodes[2].seen.copied.borrow().iter().any(from_lost),
        "it does not answer"
    );
}

/// Until it stops, its clients may ask a node that has left, and it hears of no change any more: it would read former
/// owners, and write to them alone.
#[test]
fn what_a_node_that_has_left_asks_for_is_refused_before_the_next_change_goes_on() {
    let mut sea = with_table(1125, 4, 2);
    sea.expect_voters(3);
    let left = sea.on(3, |cluster| async move { cluster.decommission().await });
    left.expect("it leaves");
    expect_rest(&mut sea);
    let before = sea.cluster(0).metadata();
    assert_eq!(state(&sea, 0, 3), Some(NodeState::Left));
    let expect_rest_of_members = |sea: &mut Sea| {
        sea.expect("the ring is at rest", |views| views[..3].iter().all(is_at_rest));
    };
    for copies in [3, 2, 3] {
        sea.replicate("ks", copies);
        expect_rest_of_members(&mut sea);
    }
    let after = sea.cluster(0).metadata();
    assert!(
        after.fence > before.index,
        "the fence is at {}, and it left at {}",
        after.fence,
        before.index
    );
    // Once is enough: it hears of nothing later.
    sea.sim.run_for(5 * SECOND);
    sea.replicate("ks", 2);
    expect_rest_of_members(&mut sea);
    assert_eq!(sea.cluster(0).metadata().fence, after.fence);
}

/// A replication changes on the ring, the next owners are read, and a request that still runs delays the end for a
/// while.
fn with_next_owners_read(seed: u64) -> Sea {
    let mut sea = with_table(seed, 4, 1);
    sea.expect_voters(3);
    sea.nodes
        .iter()
        .for_each(|node| node.seen.copies_that_fail.set(u32::MAX));
    sea.replicate("ks", 2);
    let is_in = |view: &Rc<Cluster>, stage| view.metadata().ring.as_ref().is_some_and(|ring| ring.stage == stage);
    sea.expect("they copy", |views| {
        views.iter().all(|view| is_in(view, Stage::Streaming))
    });
    sea.nodes[1].seen.in_flight.set(1);
    sea.nodes.iter().for_each(|node| node.seen.copies_that_fail.set(0));
    sea.expect("the next owners are read", |views| {
        views.iter().all(|view| is_in(view, Stage::WriteBothReadNew))
    });
    sea
}

fn copies_of(sea: &Sea) -> BTreeSet<usize> {
    owners(sea, 0).iter().map(|(_, owners)| owners.len()).collect()
}

#[test]
fn another_replication_waits_until_the_next_owners_are_the_only_ones_and_then_begins() {
    let mut sea = with_next_owners_read(1130);
    sea.replicate("ks", 3);
    let metadata = sea.cluster(0).metadata();
    let ring = metadata.ring.as_ref().expect("a change is under way").clone();
    assert!(ring.stage.reads_new());
    assert_eq!(ring.former["ks"]["replication_factor"], "1");
    assert_eq!(
        ring.towards["ks"]["replication_factor"], "2",
        "the change that is under way is another"
    );
    // A third goal takes the place of the second one; the first one back leaves nothing to wait for.
    sea.replicate("ks", 2);
    assert!(
        sea.cluster(0)
            .metadata()
            .ring
            .as_ref()
            .is_some_and(|ring| ring.towards.is_empty())
    );
    sea.replicate("ks", 4);
    for node in &sea.nodes {
        node.seen.copied.borrow_mut().clear();
        node.seen.copies_that_fail.set(u32::MAX);
    }
    sea.nodes[1].seen.in_flight.set(0);
    sea.expect("the next change begins", |views| {
        let is_next = |view: &Rc<Cluster>| {
            let metadata = view.metadata();
            let ring = metadata.ring.as_ref();
            ring.is_some_and(|ring| ring.stage == Stage::Streaming && ring.former["ks"]["replication_factor"] == "2")
        };
        views.iter().all(is_next)
    });
    sea.nodes.iter().for_each(|node| node.seen.copies_that_fail.set(0));
    expect_rest(&mut sea);
    assert_eq!(copies_of(&sea), BTreeSet::from([4]));
    let copied: usize = sea.nodes[..4].iter().map(|node| node.seen.copied.borrow().len()).sum();
    assert!(copied > 0, "owners are read that have copied nothing");
}

#[test]
fn what_waits_for_the_ring_survives_the_loss_of_any_node() {
    for killed in 0..4 {
        let mut sea = with_next_owners_read(1140 + killed as u64);
        sea.replicate("ks", 4);
        let leaves = sea.spawn(3, |cluster| async move { cluster.decommission().await });
        sea.expect("it waits to leave", |views| {
            let waits = |view: &Rc<Cluster>| {
                let metadata = view.metadata();
                let number = metadata.topology.number(host(3)).expect("a member");
                metadata
                    .ring
                    .as_ref()
                    .is_some_and(|ring| ring.leaving.contains(&number))
            };
            views.iter().all(waits)
        });
        assert_eq!(state(&sea, 0, 3), Some(NodeState::Normal), "it begins later");
        drop(leaves);
        sea.crash(killed, CrashKind::Kill);
        sea.nodes[1].seen.in_flight.set(0);
        sea.sim.run_for(SECOND);
        sea.restart(killed);
        sea.expect(&format!("it has left (node {killed} was killed)"), |views| {
            let has_left = |view: &Rc<Cluster>| {
                let metadata = view.metadata();
                let state = metadata.topology.node(host(3)).map(|node| node.state);
                state == Some(NodeState::Left) && metadata.ring.is_none()
            };
            views.iter().take(3).all(has_left)
        });
        assert_eq!(copies_of(&sea), BTreeSet::from([3]), "three nodes have all");
    }
}

#[test]
fn a_node_that_waits_to_leave_may_stay() {
    let mut sea = with_next_owners_read(1150);
    let left = sea.spawn(3, |cluster| async move { cluster.decommission().await });
    let waits = |view: &Rc<Cluster>| {
        view.metadata()
            .ring
            .as_ref()
            .is_some_and(|ring| !ring.leaving.is_empty())
    };
    sea.expect("it waits to leave", |views| views.iter().all(waits));
    let stays = sea.on(0, |cluster| async move { cluster.stay(host(3)).await });
    stays.expect("nothing of it has begun");
    sea.nodes[1].seen.in_flight.set(0);
    expect_rest(&mut sea);
    assert_eq!(state(&sea, 0, 3), Some(NodeState::Normal));
    let told = left.borrow_mut().take().expect("the command has ended");
    let why = told.expect_err("it did not leave").to_string();
    assert!(why.contains("an operator had node"), "{why}");
}

#[test]
fn two_nodes_that_leave_at_once_both_leave() {
    let mut sea = with_table(1151, 4, 2);
    sea.start(4);
    sea.expect_normal(0..5);
    expect_rest(&mut sea);
    let leaving = [3, 4].map(|number| sea.spawn(number, |cluster| async move { cluster.decommission().await }));
    sea.expect("both have left", |views| {
        let has_left = |view: &Rc<Cluster>, number| {
            let metadata = view.metadata();
            metadata.topology.node(host(number)).map(|node| node.state) == Some(NodeState::Left)
        };
        views.iter().take(3).all(|view| has_left(view, 3) && has_left(view, 4))
    });
    for left in leaving {
        assert!(left.borrow_mut().take().is_none_or(|left| left.is_ok()));
    }
    expect_rest(&mut sea);
    assert_eq!(copies_of(&sea), BTreeSet::from([2]));
}

#[test]
fn of_two_owners_that_leave_at_once_one_is_refused() {
    let mut sea = with_table(1152, 2, 1);
    let leaving = [0, 1].map(|number| sea.spawn(number, |cluster| async move { cluster.decommission().await }));
    sea.sim.run_for(30 * SECOND);
    let refused = leaving.iter().filter(|left| {
        let left = left.borrow();
        let why = left.as_ref().and_then(|left| left.as_ref().err());
        why.is_some_and(|why| why.to_string().contains("no node would own the token ring"))
    });
    assert_eq!(refused.count(), 1);
}

/// Two datacenters, of which one has a single node, and another one to take its place.
fn with_datacenters(seed: u64) -> Sea {
    let mut sea = Sea::new(seed, 4);
    for (number, datacenter) in ["a", "a", "b", "b"].into_iter().enumerate() {
        sea.nodes[number].config.borrow_mut().location.datacenter = datacenter.to_owned();
    }
    (0..3).for_each(|number| sea.start(number));
    sea.expect_normal(0..3);
    sea
}

#[test]
fn the_only_copy_of_a_datacenter_is_rebuilt_from_another_one_when_its_node_is_replaced() {
    let mut sea = with_datacenters(1160);
    let with_tablets = TableId(Uuid::from_u128(0x7ab1e7));
    sea.make_table(with_tablets, &[0, 2], 4);
    sea.replicate_in("system", &[("a", 1), ("b", 1)]);
    sea.make_ring_table(TABLE, 1);
    sea.replicate_in("ks", &[("a", 1), ("b", 1)]);
    expect_rest(&mut sea);
    sea.expect_voters(3);
    replace(&mut sea, 2, 3);
    sea.expect("the other has its place", |views| {
        let is_done = |view: &Rc<Cluster>| {
            let metadata = view.metadata();
            let state = |number| metadata.topology.node(host(number)).map(|node| node.state);
            let moves = metadata.ring.is_some() || metadata.moving().next().is_some();
            !moves && state(2) == Some(NodeState::Left) && state(3) == Some(NodeState::Normal)
        };
        views.len() == 3 && views.iter().all(is_done)
    });
    let copied = sea.nodes[3].seen.copied.borrow();
    for table in [TABLE, with_tablets] {
        let mut copies = copied.iter().filter(|copy| copy.table == table).peekable();
        assert!(copies.peek().is_some(), "it has copied nothing of {table:?}");
        let is_elsewhere = |peer: &rpc::Peer| [host(0), host(1)].contains(&HostId(peer.host_id));
        assert!(copies.all(|copy| !copy.sources.is_empty() && copy.sources.iter().all(|(peer, _)| is_elsewhere(peer))));
    }
}

/// Of two nodes that had all copies, the first is given up and not rebuilt yet when the second is lost.
#[test]
fn a_node_is_not_given_up_that_has_the_only_copies_besides_lost_ones() {
    let mut sea = with_table(1161, 4, 2);
    sea.start(4);
    sea.expect_normal(0..5);
    expect_rest(&mut sea);
    sea.expect_voters(5);
    for node in &sea.nodes {
        node.seen.copies_that_fail.set(u32::MAX);
    }
    sea.crash(4, CrashKind::PowerLoss);
    sea.sim.run_for(10 * SECOND);
    drop(sea.spawn(0, |cluster| async move { cluster.remove_node(host(4)).await }));
    sea.expect("it is given up", |views| {
        let is_leaving = |view: &Rc<Cluster>| {
            let metadata = view.metadata();
            metadata.topology.node(host(4)).map(|node| node.state) == Some(NodeState::Leaving)
        };
        views.iter().all(is_leaving)
    });
    sea.crash(3, CrashKind::PowerLoss);
    sea.sim.run_for(10 * SECOND);
    let refused = sea.on(0, |cluster| async move { cluster.remove_node(host(3)).await });
    let why = refused.expect_err("some rows are nowhere else").to_string();
    assert!(why.contains("the node alone owns a part of keyspace ks"), "{why}");
}
