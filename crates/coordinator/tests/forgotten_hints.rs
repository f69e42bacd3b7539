//! A node that is down for long loses what it holds for others, so that it does not keep their tombstones; and nothing
//! of that brings a deleted row back. On simulated nodes.
//!
//! Nodes 0 and 1 have the partition. Node 2 has no copy of it; it coordinates an insert that node 1 misses, keeps a
//! hint, and is down while the row is deleted and the replicas are repaired.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::{Cluster, SECOND, Shape};
use coordinator::{ClusterView, Forgotten, Handoff};
use replica::{RepairedRange, TokenRange};
use schema::{TombstoneGc, TombstoneGcMode};
use stdx::planted::{Bug, Planted};
use topology::{Boundaries, Consistency, HostId, NodeNumber, Replica, Replication, TabletMap};
use uuid::Uuid;

/// The version of the cluster in which what node 2 holds is forgotten.
const FORGOTTEN_AT: u64 = 7;

const NODE_2: HostId = HostId(Uuid::from_u128(3));

/// Repair decides, and nothing is kept for longer than it says.
const BY_REPAIR: TombstoneGc = TombstoneGc {
    mode: TombstoneGcMode::Repair,
    propagation_delay_seconds: 0,
};

fn now(cluster: &mut Cluster) -> u32 {
    let us = cluster.on(0, |_| async { runtime::wall_clock_us() });
    u32::try_from(us / 1_000_000).expect("the clock is right")
}

/// A partition that nodes 0 and 1 have.
fn key(cluster: &Cluster) -> &'static [u8] {
    const KEYS: [&[u8]; 8] = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"];
    let is_theirs = |key: &&&[u8]| {
        let replicas = cluster.replicas(key);
        replicas.iter().all(|replica| replica.node.index() < 2)
    };
    KEYS.iter().find(is_theirs).expect("one of eight keys")
}

/// The table gets a tablet of its own, which nodes 0 and 1 have.
fn route(cluster: &mut Cluster, node: usize) {
    let (topology, table) = (cluster.topology.clone(), cluster.table.id);
    cluster.on(node, move |local| async move {
        let replicas = (0..2).map(|node| Replica {
            node: NodeNumber(node),
            shard: 0,
        });
        let map = TabletMap::new(1, Boundaries::PowerOfTwo(0), &[replicas.collect()]).expect("one tablet");
        let keyspaces = [("sea", Replication::Simple { factor: 2 }, vec![table])];
        let host = HostId(Uuid::from_u128(node as u128 + 1));
        let tablets = BTreeMap::from([(table, Arc::new(map))]);
        let view = ClusterView::new(topology, host, keyspaces.into_iter(), &tablets);
        local
            .coordinator
            .set_view(Arc::new(view.expect("the node is a member")));
    });
}

/// Node 2 is down and has a hint of an insert for node 1. The row is deleted on both replicas, and they were repaired.
fn with_a_stale_hint(seed: u64) -> (Cluster, &'static [u8]) {
    let mut cluster = Cluster::new(
        seed,
        Shape {
            hints: true,
            replication: Replication::Simple { factor: 2 },
            tombstone_gc: Some(BY_REPAIR),
            ..Shape::default()
        },
    );
    let key = key(&cluster);
    (0..3).for_each(|node| route(&mut cluster, node));
    cluster.simulation.run_for(60 * SECOND);
    cluster.kill(1);
    cluster.set_live(1, false);
    let inserted = cluster.on(2, move |node| async move {
        node.insert(key, 1, b"old", 10, Consistency::One).await
    });
    assert_eq!(inserted, Ok(()));
    cluster.simulation.run_for(10 * SECOND);
    let pending = cluster.on(2, |_| Handoff::pending());
    assert_eq!(pending.len(), 1, "the insert waits for node 1");
    cluster.kill(2);
    cluster.set_live(2, false);
    cluster.start_again(1);
    route(&mut cluster, 1);
    cluster.set_live(1, true);
    cluster.set_live(2, false);
    let deleted = cluster.on(
        0,
        move |node| async move { node.delete(key, 1, 20, Consistency::All).await },
    );
    assert_eq!(deleted, Ok(()));
    cluster.simulation.run_for(60 * SECOND);
    repair(&mut cluster, key);
    (cluster, key)
}

/// As a repair of both replicas would.
fn repair(cluster: &mut Cluster, key: &'static [u8]) {
    assert_eq!(read(cluster, 0, key), BTreeMap::new());
    let until = now(cluster) - 1;
    for node in 0..2 {
        let equal = RepairedRange::new(cluster.table.id, TokenRange::ALL, until);
        cluster.on(node, move |node| async move { node.shard.note_repaired(&equal) });
    }
}

fn read(cluster: &mut Cluster, node: usize, key: &'static [u8]) -> BTreeMap<i32, Vec<u8>> {
    let read = cluster.on(
        node,
        move |node| async move { node.select(key, Consistency::All).await },
    );
    read.expect("both replicas live")
}

/// A node takes over the version of the cluster in which what node 2 made before a second is forgotten.
fn forget(cluster: &mut Cluster, node: usize, before: u32, fence: u64) {
    let table = cluster.table.id;
    cluster.on(node, move |node| async move {
        let forgotten = Forgotten {
            before,
            version: FORGOTTEN_AT,
        };
        let view = ClusterView::clone(&node.coordinator.context.view()).at(FORGOTTEN_AT, fence);
        let view = view.forgetting(BTreeMap::from([(NODE_2, forgotten)]));
        let store = node.shard.store(table).expect("the table is open");
        store.set_version(FORGOTTEN_AT, fence, 0);
        node.coordinator.set_view(Arc::new(view));
    });
}

/// Purges what may be purged on the replicas. Whether they have a tombstone still.
fn has_tombstone(cluster: &mut Cluster) -> [bool; 2] {
    cluster.simulation.run_for(60 * SECOND);
    [0, 1].map(|node| {
        cluster.on(node, |node| async move {
            node.shard.forget_old_log().await;
            node.shard.flush_all().await.expect("it flushes");
            node.shard.compact_all().await.expect("it compacts");
        });
        cluster.local(node).shard.has_data()
    })
}

#[test]
fn a_node_that_is_down_and_none_of_the_replicas_keeps_tombstones_until_its_hints_are_forgotten() {
    let (mut cluster, _) = with_a_stale_hint(1);
    assert_eq!(has_tombstone(&mut cluster), [true; 2], "its hints may come back");
    let before = now(&mut cluster);
    forget(&mut cluster, 0, before, 0);
    forget(&mut cluster, 1, before, 0);
    assert_eq!(
        has_tombstone(&mut cluster),
        [true; 2],
        "the replicas take what it sends by an older view"
    );
    forget(&mut cluster, 0, before, FORGOTTEN_AT);
    assert_eq!(has_tombstone(&mut cluster), [true; 2], "node 1 takes it still");
    forget(&mut cluster, 1, before, FORGOTTEN_AT);
    assert_eq!(has_tombstone(&mut cluster), [false; 2], "it may go on both");
}

#[test]
fn a_node_that_is_down_holds_what_was_deleted_after_the_second_that_is_forgotten() {
    let (mut cluster, key) = with_a_stale_hint(2);
    let before = now(&mut cluster) - 3_600;
    for node in 0..2 {
        forget(&mut cluster, node, before, FORGOTTEN_AT);
    }
    repair(&mut cluster, key);
    assert_eq!(has_tombstone(&mut cluster), [true; 2]);
}

#[test]
fn without_a_repair_what_is_forgotten_counts_as_missed() {
    let (mut cluster, _) = with_a_stale_hint(3);
    // A restart forgets what was repaired: it was not written down here.
    for node in 0..2 {
        cluster.kill(node);
        cluster.start_again(node);
        route(&mut cluster, node);
        cluster.set_live(2, false);
    }
    let before = now(&mut cluster);
    for node in 0..2 {
        forget(&mut cluster, node, before, FORGOTTEN_AT);
    }
    assert_eq!(has_tombstone(&mut cluster), [true; 2]);
}

/// Node 2 comes back after the tombstone is gone, first without knowing what is forgotten, then with it. What a read of
/// all replicas says.
fn come_back(seed: u64) -> BTreeMap<i32, Vec<u8>> {
    let (mut cluster, key) = with_a_stale_hint(seed);
    let before = now(&mut cluster);
    for node in 0..2 {
        forget(&mut cluster, node, before, FORGOTTEN_AT);
    }
    assert_eq!(has_tombstone(&mut cluster), [false; 2]);
    cluster.start_again(2);
    cluster.set_live(2, true);
    cluster.simulation.run_for(60 * SECOND);
    let pending = cluster.on(2, |_| Handoff::pending());
    assert_eq!(pending.len(), 1, "the hint is refused, and waits for the present view");
    route(&mut cluster, 2);
    forget(&mut cluster, 2, before, FORGOTTEN_AT);
    cluster.simulation.run_for(60 * SECOND);
    let pending = cluster.on(2, |_| Handoff::pending());
    assert!(pending.is_empty(), "{pending:?}");
    let held = cluster.on(0, |node| async move { node.coordinator.tombstones.held() });
    let of_node_1 = held
        .iter()
        .filter(|held| held.reporter == NODE_2 && held.target == Some(HostId(Uuid::from_u128(2))));
    assert!(of_node_1.count() > 0, "what node 1 has not got is missed: {held:?}");
    read(&mut cluster, 0, key)
}

#[test]
fn a_node_that_comes_back_brings_no_deleted_row_back() {
    for seed in 10..15 {
        assert_eq!(come_back(seed), BTreeMap::new(), "seed {seed}");
    }
}

#[test]
fn a_node_that_hands_over_what_is_forgotten_brings_a_deleted_row_back() {
    let _planted = Planted::new(Some(Bug::ForgottenHintReplayed));
    assert_eq!(come_back(10).len(), 1);
}
