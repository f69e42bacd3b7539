//! Hinted handoff on three simulated nodes: a node that was away gets what it missed, and nothing that was permanently
//! deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Cluster, Local, SECOND, Shape};
use coordinator::{ClusterView, CoordinatorError, Handoff};
use hints::{Change, Order, SyncPoint};
#[cfg(debug_assertions)]
use runtime::StopPoint;
#[cfg(debug_assertions)]
use runtime::sim::{CrashKind, Stop};
use topology::{Consistency, HostId, NodeState, Replication, TopologyCommand};
use uuid::Uuid;

const QUORUM: Consistency = Consistency::Quorum;
const KEYS: u8 = 40;

fn shape() -> Shape {
    Shape {
        hints: true,
        ..Shape::default()
    }
}

fn host(node: usize) -> HostId {
    HostId(Uuid::from_u128(node as u128 + 1))
}

/// Writes every key at a level.
fn write_all(cluster: &mut Cluster, node: usize, v: &'static [u8], timestamp: i64, level: Consistency) {
    for key in 0..KEYS {
        let written = cluster.on(node, move |node| async move {
            node.insert(&[key], 1, v, timestamp, level).await
        });
        assert_eq!(written, Ok(()), "key {key} at {level}");
    }
}

/// Kills node 2 and writes every key without it.
fn write_without_node_2(cluster: &mut Cluster, v: &'static [u8]) {
    cluster.kill(2);
    cluster.set_live(2, false);
    write_all(cluster, 0, v, 10, QUORUM);
}

/// What a node has of each key, by itself.
fn has(cluster: &mut Cluster, node: usize) -> Vec<Option<Vec<u8>>> {
    let read = |key: u8| {
        move |node: Local| async move {
            let rows: BTreeMap<i32, Vec<u8>> = node.select(&[key], Consistency::One).await.expect("it is a replica");
            rows.get(&1).cloned()
        }
    };
    (0..KEYS).map(|key| cluster.on(node, read(key))).collect()
}

fn all(v: &[u8]) -> Vec<Option<Vec<u8>>> {
    vec![Some(v.to_vec()); usize::from(KEYS)]
}

/// The sync point of a node's hints for another, or for all.
fn sync_point(cluster: &mut Cluster, from: usize, to: Option<usize>) -> SyncPoint {
    let targets = to.map(|to| BTreeSet::from([host(to)]));
    cluster.on(from, move |node| async move {
        node.coordinator.hints.sync_point(targets).await
    })
}

fn wait(cluster: &mut Cluster, node: usize, point: SyncPoint, patience: Duration) -> bool {
    cluster.on(node, move |_| Handoff::wait_until_reached(point, patience))
}

fn wait_until_replayed(cluster: &mut Cluster, from: usize, to: usize) -> bool {
    let point = sync_point(cluster, from, Some(to));
    wait(cluster, from, point, 60 * SECOND)
}

#[test]
fn a_node_that_was_dead_has_everything_without_any_read_when_it_is_back() {
    for shards in [1, 2] {
        let mut cluster = Cluster::new(1, Shape { shards, ..shape() });
        write_without_node_2(&mut cluster, b"one");
        cluster.start_again(2);
        assert_eq!(has(&mut cluster, 2), vec![None; usize::from(KEYS)], "it was dead");
        cluster.set_live(2, true);
        assert!(wait_until_replayed(&mut cluster, 0, 2), "{shards} shards");
        for node in 0..3 {
            assert_eq!(has(&mut cluster, node), all(b"one"), "node {node} of {shards} shards");
        }
        let metrics = cluster.hint_metrics(0);
        assert_eq!((metrics.written, metrics.replayed), (u64::from(KEYS), u64::from(KEYS)));
        assert_eq!(metrics.waiting_bytes, 0);
    }
}

#[test]
fn a_node_that_did_not_answer_and_was_never_called_dead_has_everything_when_it_answers_again() {
    let mut cluster = Cluster::new(2, shape());
    cluster.split(&[2]);
    write_all(&mut cluster, 1, b"one", 10, QUORUM);
    cluster.simulation.run_for(10 * SECOND);
    cluster.heal(&[2]);
    assert!(wait_until_replayed(&mut cluster, 1, 2));
    assert_eq!(has(&mut cluster, 2), all(b"one"));
}

#[test]
fn hints_of_a_coordinator_that_was_killed_are_handed_over_by_its_next_life() {
    let mut cluster = Cluster::new(3, shape());
    write_without_node_2(&mut cluster, b"one");
    cluster.kill(0);
    cluster.start_again(2);
    cluster.start_again(0);
    cluster.set_live(2, true);
    assert!(wait_until_replayed(&mut cluster, 0, 2));
    assert_eq!(has(&mut cluster, 2), all(b"one"));
}

#[test]
fn a_hint_does_not_undo_what_was_written_since() {
    let mut cluster = Cluster::new(4, shape());
    write_without_node_2(&mut cluster, b"old");
    cluster.start_again(2);
    write_all(&mut cluster, 2, b"new", 20, QUORUM);
    cluster.set_live(2, true);
    assert!(wait_until_replayed(&mut cluster, 0, 2));
    assert_eq!(has(&mut cluster, 2), all(b"new"));
}

/// A cluster where each row has one copy, and a key whose copy is on node 2.
fn of_one_copy(seed: u64) -> (Cluster, u8) {
    let cluster = Cluster::new(
        seed,
        Shape {
            replication: Replication::Simple { factor: 1 },
            ..shape()
        },
    );
    let number = cluster.topology.number(host(2)).expect("it is a member");
    let is_there = |key: &u8| cluster.replicas(&[*key]).iter().all(|r| r.node == number);
    let key = (0..=u8::MAX).find(is_there).expect("some key is on each node");
    (cluster, key)
}

#[test]
fn at_any_a_stored_hint_is_an_acknowledgement_and_survives_the_coordinator() {
    let (mut cluster, key) = of_one_copy(5);
    cluster.kill(2);
    cluster.set_live(2, false);
    let write = |level| move |node: Local| async move { node.insert(&[key], 1, b"one", 10, level).await };
    let at_one = cluster.on(0, write(Consistency::One));
    assert!(matches!(at_one, Err(CoordinatorError::Unavailable(_))), "{at_one:?}");
    assert_eq!(cluster.on(0, write(Consistency::Any)), Ok(()));
    cluster.kill(0);
    cluster.start_again(0);
    cluster.start_again(2);
    cluster.set_live(2, true);
    assert!(wait_until_replayed(&mut cluster, 0, 2));
    let read = cluster.on(
        1,
        move |node| async move { node.select(&[key], Consistency::One).await },
    );
    assert_eq!(read, Ok(BTreeMap::from([(1, b"one".to_vec())])));
}

/// Such a hint was tried again every five seconds, and hints that were noted later waited in the queue until it
/// expired.
#[test]
fn a_hint_that_its_target_will_never_take_does_not_hold_up_later_ones() {
    let (mut cluster, key) = of_one_copy(20);
    cluster.kill(2);
    cluster.set_live(2, false);
    let write = |c: i32, bytes: usize| {
        move |node: Local| async move {
            let value = vec![7; bytes];
            node.insert(&[key], c, &value, 10, Consistency::Any).await
        }
    };
    // Half a segment of the log is 512 KiB, and only the target looks at the length.
    assert_eq!(cluster.on(0, write(0, 600 << 10)), Ok(()));
    assert_eq!(cluster.on(0, write(1, 1)), Ok(()));
    cluster.start_again(2);
    cluster.set_live(2, true);
    cluster.simulation.run_for(120 * SECOND);
    let read = cluster.on(
        2,
        move |node| async move { node.select(&[key], Consistency::One).await },
    );
    assert_eq!(read, Ok(BTreeMap::from([(1, vec![7])])));
    assert!(cluster.on(0, |_| Handoff::pending()).is_empty());
    let rejected = cluster.on(0, |_| Handoff::rejected());
    assert_eq!(rejected.get(&host(2)).map(|rejected| rejected.count), Some(1));
    cluster
        .on(0, |_| Handoff::clear_rejected(None))
        .expect("the disk works");
    assert!(cluster.on(0, |_| Handoff::rejected()).is_empty());
}

#[test]
fn at_any_a_replica_that_does_not_answer_is_hinted_in_time_and_without_hints_it_is_a_timeout() {
    for hints in [true, false] {
        let mut cluster = Cluster::new(
            6,
            Shape {
                replication: Replication::Simple { factor: 1 },
                hints,
                ..Shape::default()
            },
        );
        let number = cluster.topology.number(host(2)).expect("it is a member");
        let is_there = |key: &u8| cluster.replicas(&[*key]).iter().all(|r| r.node == number);
        let key = (0..=u8::MAX).find(is_there).expect("some key is on each node");
        cluster.split(&[2]);
        let written = cluster.on(0, move |node| async move {
            node.insert(&[key], 1, b"one", 10, Consistency::Any).await
        });
        if hints {
            assert_eq!(written, Ok(()));
        } else {
            assert!(
                matches!(written, Err(CoordinatorError::WriteTimeout { .. })),
                "{written:?}"
            );
        }
    }
}

#[test]
fn hints_for_a_node_that_was_removed_go_to_the_replicas_that_took_over() {
    let (mut cluster, key) = of_one_copy(7);
    cluster.kill(2);
    cluster.set_live(2, false);
    let written = cluster.on(0, move |node| async move {
        node.insert(&[key], 1, b"one", 10, Consistency::Any).await
    });
    assert_eq!(written, Ok(()));
    let mut topology = (*cluster.topology).clone();
    for state in [NodeState::Leaving, NodeState::Left] {
        let host_id = host(2);
        let applied = topology.apply(&TopologyCommand::SetState { host_id, state });
        applied.expect("a node may leave");
    }
    let topology = Arc::new(topology);
    for node in 0..2 {
        let keyspaces = [("sea", Replication::Simple { factor: 1 }, vec![cluster.table.id])];
        let view = ClusterView::new(topology.clone(), host(node), keyspaces.into_iter(), &BTreeMap::new());
        let view = view.expect("the node is a member");
        cluster.local(node).coordinator.set_view(Arc::new(view));
    }
    assert!(wait_until_replayed(&mut cluster, 0, 2));
    for node in 0..2 {
        let read = cluster.on(
            node,
            move |node| async move { node.select(&[key], Consistency::One).await },
        );
        assert_eq!(read, Ok(BTreeMap::from([(1, b"one".to_vec())])), "read on node {node}");
    }
}

#[test]
fn hints_wait_while_their_node_is_down() {
    let mut cluster = Cluster::new(8, shape());
    write_without_node_2(&mut cluster, b"one");
    cluster.simulation.run_for(Duration::from_mins(10));
    let metrics = cluster.hint_metrics(0);
    assert_eq!((metrics.replayed, metrics.dropped), (0, 0));
    assert!(metrics.waiting_bytes > 0);
}

#[test]
fn hints_are_kept_for_nodes_of_the_allowed_datacenters_alone_also_when_that_changes() {
    let mut cluster = Cluster::new(
        9,
        Shape {
            datacenters: vec!["north", "north", "south"],
            shards: 2,
            replication: Replication::NetworkTopology(BTreeMap::from([
                ("north".to_owned(), 2.into()),
                ("south".to_owned(), 1.into()),
            ])),
            ..shape()
        },
    );
    cluster.split(&[1]);
    cluster.split(&[2]);
    cluster.set_live(1, false);
    cluster.set_live(2, false);
    let change = |cluster: &mut Cluster, change: Change| {
        cluster.on(0, move |_| Handoff::order(Order::Allow(change)));
    };
    let waits_for = |cluster: &mut Cluster| {
        let pending = cluster.on(0, |_| Handoff::pending());
        pending.iter().map(|hints| hints.target).collect::<Vec<HostId>>()
    };
    let write = |cluster: &mut Cluster| {
        let written = cluster.on(0, |node| async move {
            node.insert(&[1], 1, b"v", 10, Consistency::One).await
        });
        assert_eq!(written, Ok(()));
    };
    change(&mut cluster, Change::Enable(false));
    write(&mut cluster);
    assert_eq!(waits_for(&mut cluster), [], "it is switched off");
    change(&mut cluster, Change::Only(BTreeSet::from(["south".to_owned()])));
    write(&mut cluster);
    assert_eq!(waits_for(&mut cluster), [host(2)], "the north is not on the list");
    cluster.on(0, |_| Handoff::forget(None)).expect("the disk works");
    change(&mut cluster, Change::Datacenter("north".to_owned(), true));
    change(&mut cluster, Change::Datacenter("south".to_owned(), false));
    write(&mut cluster);
    assert_eq!(waits_for(&mut cluster), [host(1)], "the lists are turned around");
}

#[test]
fn a_sync_point_is_reached_when_what_was_noted_before_it_is_handed_over_also_after_a_restart() {
    let mut cluster = Cluster::new(10, Shape { shards: 2, ..shape() });
    cluster.kill(2);
    cluster.set_live(2, false);
    let before = sync_point(&mut cluster, 0, None);
    assert!(wait(&mut cluster, 0, before, Duration::ZERO), "nothing waits yet");
    write_all(&mut cluster, 0, b"one", 10, QUORUM);
    let text = sync_point(&mut cluster, 0, Some(2)).encode();
    let elsewhere = sync_point(&mut cluster, 0, Some(1));
    let point = SyncPoint::decode(&text, host(0)).expect("this node made it");
    assert!(!wait(&mut cluster, 0, point.clone(), SECOND), "node 2 is down");
    assert!(
        wait(&mut cluster, 0, elsewhere, Duration::ZERO),
        "no hints are for node 1"
    );
    cluster.kill(0);
    cluster.start_again(0);
    assert!(
        !wait(&mut cluster, 0, point.clone(), SECOND),
        "a restart hands nothing over"
    );
    cluster.start_again(2);
    cluster.set_live(2, true);
    assert!(wait(&mut cluster, 0, point.clone(), 60 * SECOND), "node 2 is back");
    assert_eq!(has(&mut cluster, 2), all(b"one"));
    // What is noted by a later run does not count, though no file of the earlier one is left.
    cluster.kill(2);
    cluster.kill(0);
    cluster.start_again(0);
    cluster.set_live(2, false);
    write_all(&mut cluster, 0, b"two", 20, QUORUM);
    assert!(wait(&mut cluster, 0, point, Duration::ZERO), "these hints are later");
}

#[test]
fn handing_over_stops_while_it_is_paused_and_goes_on_where_it_stopped() {
    let mut cluster = Cluster::new(11, shape());
    write_without_node_2(&mut cluster, b"one");
    let point = sync_point(&mut cluster, 0, None);
    cluster.on(0, |_| Handoff::order(Order::Pause(true)));
    cluster.start_again(2);
    cluster.set_live(2, true);
    assert!(!wait(&mut cluster, 0, point.clone(), 60 * SECOND), "it is paused");
    assert_eq!(has(&mut cluster, 2), vec![None; usize::from(KEYS)]);
    cluster.on(0, |_| Handoff::order(Order::Pause(false)));
    assert!(wait(&mut cluster, 0, point, SECOND), "it goes on at once");
    assert_eq!(has(&mut cluster, 2), all(b"one"));
}

#[test]
fn hints_that_an_operator_forgets_are_not_handed_over_and_no_sync_point_waits_for_them() {
    let mut cluster = Cluster::new(12, Shape { shards: 2, ..shape() });
    write_without_node_2(&mut cluster, b"one");
    let point = sync_point(&mut cluster, 0, None);
    cluster
        .on(0, |_| Handoff::forget(Some(host(1))))
        .expect("the disk works");
    assert!(
        !wait(&mut cluster, 0, point.clone(), Duration::ZERO),
        "another node's are forgotten"
    );
    cluster
        .on(0, |_| Handoff::forget(Some(host(2))))
        .expect("the disk works");
    assert!(wait(&mut cluster, 0, point, Duration::ZERO), "nothing is left");
    cluster.kill(0);
    cluster.start_again(0);
    cluster.start_again(2);
    cluster.set_live(2, true);
    assert!(wait_until_replayed(&mut cluster, 0, 2));
    assert_eq!(
        has(&mut cluster, 2),
        vec![None; usize::from(KEYS)],
        "they are forgotten permanently"
    );
}

#[test]
fn no_hint_is_handed_over_while_its_table_is_being_truncated() {
    let mut cluster = Cluster::new(13, shape());
    write_without_node_2(&mut cluster, b"one");
    cluster.start_again(2);
    // The others are done when node 0 has only heard of it.
    let truncated = cluster.table.id;
    for node in [1, 2] {
        let done = cluster.on(
            node,
            move |node| async move { node.take_truncation(truncated, 1).await },
        );
        assert_eq!(done, Ok(()));
    }
    cluster.on(0, move |node| async move { node.hear_of_truncation(truncated, 1) });
    cluster.set_live(2, true);
    cluster.simulation.run_for(20 * SECOND);
    let done = cluster.on(0, move |node| async move { node.take_truncation(truncated, 1).await });
    assert_eq!(done, Ok(()));
    cluster.simulation.run_for(20 * SECOND);
    for node in 0..3 {
        assert_eq!(
            has(&mut cluster, node),
            vec![None; usize::from(KEYS)],
            "node {node}: rows are back"
        );
    }
}

#[test]
#[cfg(debug_assertions)]
fn a_hint_of_a_statement_that_is_finished_late_is_as_old_as_the_statement() {
    let shape = Shape {
        gc_grace_seconds: 300,
        ..shape()
    };
    let mut cluster = Cluster::new(14, shape);
    cluster.kill(2);
    cluster.set_live(2, false);
    let any = (Consistency::Serial, Consistency::Any);
    // Nodes 0 and 1 accept it, and no node is notified of the decision.
    let decided = StopPoint::ProposalAccepted;
    let first = cluster.id(0);
    cluster
        .simulation
        .stop_at(first, decided, 0, Stop::Crash(CrashKind::PowerLoss));
    drop(cluster.spawn(
        0,
        move |node| async move { node.swap(b"key", (0, 7), any, SECOND).await },
    ));
    assert!(cluster.simulation.run_until_ended(first, SECOND), "it is accepted");
    cluster.crash(0, CrashKind::PowerLoss);
    cluster.start_again(0);
    cluster.set_live(2, false);
    cluster.simulation.run_for(200 * SECOND);
    let finished = cluster.on(1, |node| async move {
        node.read_register(b"key", Consistency::Serial, SECOND).await
    });
    assert_eq!(finished, Ok(7));
    cluster.simulation.run_for(200 * SECOND);
    cluster.start_again(2);
    cluster.set_live(2, true);
    cluster.simulation.run_for(60 * SECOND);
    let found = cluster.on(2, |node| async move { node.select(b"key", Consistency::One).await });
    assert_eq!(
        found,
        Ok(BTreeMap::new()),
        "node 2 may have forgotten the tombstones of what was written 400 s ago"
    );
}
