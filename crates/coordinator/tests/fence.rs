//! Coordinators that have missed a change of where data is, on three simulated nodes.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::support;
use crate::support::{Cluster, SECOND, Shape, addition, addressed, counters, everything, rows, sum};
use coordinator::{ClusterView, CoordinatorError, Deadline};
use runtime::StopPoint;
use runtime::sim::Stop;
use topology::{Consistency, HostId, Replication};
use uuid::Uuid;

const QUORUM: Consistency = Consistency::Quorum;

/// A node hears of the cluster's metadata as of a command, and from which on requests are taken.
fn hears(cluster: &Cluster, node: usize, version: u64, fence: u64) {
    hears_of_copies(cluster, node, (version, fence), 3);
}

/// A node hears of the cluster's metadata as of a command, from which version on requests are taken, and how many
/// copies of the data that version has.
fn hears_of_copies(cluster: &Cluster, node: usize, (version, fence): (u64, u64), factor: u16) {
    let host = HostId(Uuid::from_u128(node as u128 + 1));
    let tables = vec![cluster.table.id, counters().id];
    let keyspaces = [("sea", Replication::Simple { factor }, tables)];
    let view = ClusterView::new(cluster.topology.clone(), host, keyspaces.into_iter(), &BTreeMap::new());
    let view = view.expect("the node is a member").at(version, fence);
    cluster.local(node).coordinator.set_view(Arc::new(view));
}

/// All have seen the fourth command, and all but the first node the fifth, which fences off nodes that have not seen
/// it.
fn with_a_stale_node() -> Cluster {
    let cluster = Cluster::new(3, Shape::default());
    hears(&cluster, 0, 4, 0);
    hears(&cluster, 1, 5, 5);
    hears(&cluster, 2, 5, 5);
    cluster
}

fn refused(cluster: &Cluster) -> u64 {
    let stale = |node| cluster.local(node).coordinator.context.metrics().stale_requests;
    stale(1) + stale(2)
}

#[test]
fn what_a_coordinator_sends_that_is_fenced_off_has_no_effect_and_it_says_why() {
    let mut cluster = with_a_stale_node();
    let written = cluster.on(
        0,
        |node| async move { node.insert(b"key", 1, b"one", 10, QUORUM).await },
    );
    let Err(CoordinatorError::WriteFailure { reason, .. }) = written else {
        panic!("a write at QUORUM by a node that missed a change: {written:?}");
    };
    assert!(
        reason.contains("routed by version 4 of the cluster, and only 5 and later"),
        "{reason}"
    );
    assert_eq!(refused(&cluster), 2, "both other replicas refuse");
    for node in [1, 2] {
        let read = cluster.on(node, |node| async move { node.select(b"key", Consistency::One).await });
        assert_eq!(read, Ok(BTreeMap::new()), "node {node} has not taken it");
    }
    let read = cluster.on(0, |node| async move { node.select(b"key", QUORUM).await });
    assert!(matches!(read, Err(CoordinatorError::ReadFailure { .. })), "{read:?}");
    let levels = (Consistency::Serial, QUORUM);
    let swapped = cluster.on(0, move |node| async move {
        node.swap(b"other", (0, 1), levels, SECOND).await
    });
    assert!(
        matches!(swapped, Err(CoordinatorError::CasTimeout { .. })),
        "{swapped:?}"
    );
    let swapped = cluster.on(1, move |node| async move {
        node.swap(b"other", (0, 2), levels, SECOND).await
    });
    assert_eq!(
        swapped,
        Ok(Ok(())),
        "nobody has promised anything to the node that is fenced off"
    );
}

#[test]
fn a_node_that_has_only_heard_of_the_fence_acknowledges_nothing_from_its_own_copy() {
    let mut cluster = with_a_stale_node();
    let stale = cluster.local(0);
    stale.coordinator.context.set_fenced_off(5);
    let store = stale.shard.store(cluster.table.id).expect("the table is open");
    store.set_version(4, stale.coordinator.context.fence(&stale.coordinator.context.view()), 0);
    drop((stale, store));
    let written = cluster.on(0, |node| async move {
        node.insert(b"key", 1, b"one", 10, Consistency::One).await
    });
    let Err(CoordinatorError::WriteFailure { reason, .. }) = written else {
        panic!("a write at ONE by a node that is fenced off: {written:?}");
    };
    assert!(reason.contains("only 5 and later"), "{reason}");
    let read = cluster.on(0, |node| async move { node.select(b"key", Consistency::One).await });
    assert!(matches!(read, Err(CoordinatorError::ReadFailure { .. })), "{read:?}");
}

#[test]
fn a_request_that_was_refused_is_done_again_when_its_coordinator_has_heard_of_the_change() {
    let mut cluster = with_a_stale_node();
    let written = cluster.spawn(
        0,
        |node| async move { node.insert(b"key", 1, b"one", 10, QUORUM).await },
    );
    let levels = (Consistency::Serial, QUORUM);
    let swapped = cluster.spawn(0, move |node| async move {
        node.swap(b"other", (0, 1), levels, SECOND).await
    });
    let read = cluster.spawn(0, |node| async move { node.select(b"third", QUORUM).await });
    cluster.simulation.run_for(Duration::from_millis(100));
    assert!(refused(&cluster) >= 3, "each of the three was refused");
    let are_pending = written.borrow().is_none() && swapped.borrow().is_none() && read.borrow().is_none();
    assert!(are_pending, "they wait for a newer view");
    hears(&cluster, 0, 5, 5);
    cluster.simulation.run_for(Duration::from_millis(100));
    assert_eq!(written.take(), Some(Ok(())));
    assert_eq!(swapped.take(), Some(Ok(Ok(()))));
    assert_eq!(read.take(), Some(Ok(BTreeMap::new())));
    let read = cluster.on(1, |node| async move { node.select(b"key", QUORUM).await });
    assert_eq!(read, Ok(BTreeMap::from([(1, b"one".to_vec())])));
}

#[test]
fn a_decision_that_was_refused_is_told_again_when_its_coordinator_has_heard_of_the_change() {
    let mut cluster = Cluster::new(3, Shape::default());
    (0..3).for_each(|node| hears(&cluster, node, 4, 0));
    let id = cluster.id(0);
    let pause = Stop::Pause(Duration::from_millis(100));
    cluster.simulation.stop_at(id, StopPoint::ProposalAccepted, 0, pause);
    let levels = (Consistency::Serial, Consistency::All);
    let swapped = cluster.spawn(
        0,
        move |node| async move { node.swap(b"key", (0, 7), levels, SECOND).await },
    );
    cluster.simulation.run_for(Duration::from_millis(50));
    assert!(cluster.simulation.is_paused(id), "a quorum has accepted it");
    hears(&cluster, 1, 5, 5);
    hears(&cluster, 2, 5, 5);
    cluster.simulation.run_for(Duration::from_millis(150));
    assert!(refused(&cluster) >= 1, "it was refused");
    assert_eq!(*swapped.borrow(), None, "it waits for a newer view");
    hears(&cluster, 0, 5, 5);
    cluster.simulation.run_for(Duration::from_millis(100));
    assert_eq!(swapped.take(), Some(Ok(Ok(()))));
    for node in 0..3 {
        let read = cluster.on(node, |node| async move { node.select(b"key", Consistency::One).await });
        assert_eq!(read.map(|rows| rows.len()), Ok(1), "node {node} has learned it");
    }
}

#[test]
fn versions_that_may_be_in_use_together_do_not_refuse_each_other() {
    let mut cluster = Cluster::new(3, Shape::default());
    for (node, version) in [(0, 6), (1, 5), (2, 4)] {
        hears(&cluster, node, version, 4);
    }
    for node in 0..3 {
        let written = cluster.on(node, |node| async move {
            node.insert(b"key", 1, b"one", 10, Consistency::All).await
        });
        assert_eq!(written, Ok(()), "a write by node {node}");
    }
}

#[test]
fn a_write_of_which_something_may_be_done_is_not_called_unavailable_when_it_cannot_be_done_again() {
    let mut cluster = with_a_stale_node();
    let written = cluster.spawn(
        0,
        |node| async move { node.insert(b"key", 1, b"one", 10, QUORUM).await },
    );
    cluster.simulation.run_for(Duration::from_millis(100));
    assert_eq!(
        (refused(&cluster), written.borrow().is_none()),
        (2, true),
        "it waits for a newer view"
    );
    cluster.set_live(1, false);
    cluster.set_live(2, false);
    hears(&cluster, 0, 5, 5);
    cluster.simulation.run_for(Duration::from_millis(100));
    let written = written.take();
    assert!(
        matches!(written, Some(Err(CoordinatorError::WriteFailure { .. }))),
        "the first node has it: {written:?}"
    );
}

#[test]
fn a_write_that_is_made_again_does_not_forget_that_a_replica_has_it_already() {
    let shape = Shape {
        datacenters: vec!["north"; 4],
        ..Shape::default()
    };
    let mut cluster = Cluster::new(4, shape);
    (0..4).for_each(|node| hears(&cluster, node, 4, 0));
    let nodes = |cluster: &Cluster, key: u8| -> Vec<usize> {
        let replicas = cluster.replicas(&[key]);
        replicas.iter().map(|replica| replica.node.index()).collect()
    };
    let key = (0..=u8::MAX).find(|key| !nodes(&cluster, *key).contains(&0));
    let key = key.expect("some keys are on the other nodes alone");
    let replicas = nodes(&cluster, key);
    replicas[1..].iter().for_each(|node| hears(&cluster, *node, 5, 5));
    let written = cluster.spawn(0, move |node| async move {
        node.insert(&[key], 1, b"one", 10, QUORUM).await
    });
    cluster.simulation.run_for(Duration::from_millis(100));
    assert!(
        written.borrow().is_none(),
        "two replicas refused, and it waits for a newer view"
    );
    // The ends of the connections are known, and the nodes are not marked as down.
    replicas.iter().for_each(|node| cluster.kill(*node));
    cluster.simulation.run_for(SECOND);
    hears(&cluster, 0, 5, 5);
    cluster.simulation.run_for(Duration::from_millis(100));
    let written = written.take();
    assert!(
        matches!(written, Some(Err(CoordinatorError::WriteTimeout { .. }))),
        "one replica has it: {written:?}"
    );
}

/// Partitions of a scan.
const KEYS: u8 = 40;

/// A scan by node 0 that has read a few rows when the others refuse what it asks for: what it read until it had heard
/// of the change, and then.
fn scan_over_a_change(cluster: &mut Cluster, level: Consistency, copies_afterwards: u16) -> Vec<(Vec<u8>, i32)> {
    let (hold, held) = (Rc::new(Cell::new(true)), Rc::new(Cell::new(false)));
    let (holds, is_held) = (hold.clone(), held.clone());
    let scan = cluster.spawn(0, move |node| async move {
        let mut read = node.read(&support::table(), everything(), level, 3)?;
        let mut found = Vec::new();
        while let Some(block) = read.next_block().await? {
            found.extend(
                rows(&support::table(), std::slice::from_ref(&block))
                    .into_keys()
                    .map(|c| (block.key().to_vec(), c)),
            );
            while found.len() > 10 && holds.get() {
                is_held.set(true);
                runtime::sleep(Duration::from_millis(1)).await;
            }
        }
        Ok::<_, CoordinatorError>(found)
    });
    assert!(
        cluster.simulation.run_until(SECOND, || held.get()),
        "the scan reads the first rows"
    );
    (1..3).for_each(|node| hears_of_copies(cluster, node, (5, 5), copies_afterwards));
    hold.set(false);
    cluster.simulation.run_for(Duration::from_millis(100));
    assert!(refused(cluster) > 0, "replicas refuse the next rows");
    assert!(scan.borrow().is_none(), "the scan waits for a newer view");
    hears_of_copies(cluster, 0, (5, 5), copies_afterwards);
    cluster.simulation.run_for(SECOND);
    let found = scan.take().expect("the scan ends");
    found.expect("the scan goes on in the newer view")
}

#[test]
fn a_scan_that_was_refused_goes_on_where_it_was_when_its_coordinator_has_heard_of_the_change() {
    for (lacks, level, copies) in [
        (false, QUORUM, 3),
        (false, QUORUM, 2),
        // Replicas differ, so what they have is merged.
        (true, Consistency::All, 3),
        (true, Consistency::All, 2),
    ] {
        let mut cluster = Cluster::new(3, Shape::default());
        (0..3).for_each(|node| hears(&cluster, node, 4, 0));
        // It gets no hints.
        cluster.set_live(2, !lacks);
        for k in 0..KEYS {
            for c in 0..2 {
                let written = cluster.on(
                    0,
                    move |node| async move { node.insert(&[k], c, b"v", 10, QUORUM).await },
                );
                assert_eq!(written, Ok(()));
            }
        }
        cluster.set_live(2, true);
        let found = scan_over_a_change(&mut cluster, level, copies);
        let case = format!(
            "{copies} copies afterwards, one replica {}",
            if lacks { "lacks rows" } else { "is as the others" }
        );
        let once: BTreeSet<_> = found.iter().cloned().collect();
        assert_eq!(once.len(), found.len(), "{case}: rows came twice");
        assert_eq!(found.len(), 2 * usize::from(KEYS), "{case}: rows are missing");
    }
}

#[test]
fn an_addition_that_was_refused_is_made_once_when_its_coordinator_has_heard_of_the_change() {
    let shape = Shape {
        replication: Replication::Simple { factor: 1 },
        ..Shape::default()
    };
    let mut cluster = Cluster::new(3, shape);
    hears_of_copies(&cluster, 0, (4, 0), 1);
    (1..3).for_each(|node| hears_of_copies(&cluster, node, (5, 5), 1));
    // Keys of all three nodes, so some are added to elsewhere.
    let added = cluster.spawn(0, |node| async move {
        let additions = (0..20u8).map(|k| addressed(addition(&[k], 1))).collect();
        node.coordinator
            .counters
            .add(additions, &node.dated(Consistency::One))
            .await
    });
    cluster.simulation.run_for(Duration::from_millis(100));
    assert!(
        refused(&cluster) > 0 && added.borrow().is_none(),
        "it waits for a newer view"
    );
    hears_of_copies(&cluster, 0, (5, 5), 1);
    cluster.simulation.run_for(Duration::from_millis(100));
    assert_eq!(added.take(), Some(Ok(())));
    let total = cluster.on(1, |node| async move {
        let mut read = node.read(&counters(), everything(), Consistency::One, 100)?;
        let mut blocks = Vec::new();
        while let Some(block) = read.next_block().await? {
            blocks.push(block);
        }
        Ok::<_, CoordinatorError>(sum(&blocks))
    });
    assert_eq!(total, Ok(20), "each of the twenty counters was added to once");
}

/// Each version that a node took over while it caught up was one level deeper in the addition, until the stack was
/// full.
#[test]
fn an_addition_outlives_thousands_of_versions_that_its_coordinator_takes_over_one_by_one() {
    const VERSIONS: u64 = 4_000;
    let shape = Shape {
        replication: Replication::Simple { factor: 1 },
        ..Shape::default()
    };
    let mut cluster = Cluster::new(3, shape);
    hears_of_copies(&cluster, 0, (4, 0), 1);
    (1..3).for_each(|node| hears_of_copies(&cluster, node, (VERSIONS, VERSIONS), 1));
    // Keys of all three nodes, so some are added to elsewhere.
    let added = cluster.spawn(0, |node| async move {
        let deadline = Deadline::after(Some(Duration::from_mins(1)));
        let dated = node.coordinator.writes.date(Consistency::One, deadline);
        let additions = (0..20u8).map(|k| addressed(addition(&[k], 1))).collect();
        node.coordinator.counters.add(additions, &dated).await
    });
    for version in 5..VERSIONS {
        cluster.simulation.run_for(Duration::from_millis(5));
        hears_of_copies(&cluster, 0, (version, 0), 1);
    }
    assert!(added.borrow().is_none(), "it waits for a newer view");
    assert!(
        refused(&cluster) > VERSIONS / 2,
        "each view was tried: {}",
        refused(&cluster)
    );
    hears_of_copies(&cluster, 0, (VERSIONS, VERSIONS), 1);
    cluster.simulation.run_for(Duration::from_millis(100));
    assert_eq!(added.take(), Some(Ok(())));
}

/// With a replication that no node can read, a table was each node's own: a write at ALL was acknowledged by one node.
#[test]
fn a_table_whose_replicas_nobody_can_tell_is_nobodys_own() {
    let mut cluster = Cluster::new(3, Shape::default());
    let host = HostId(Uuid::from_u128(1));
    let view = ClusterView::new(cluster.topology.clone(), host, std::iter::empty(), &BTreeMap::new());
    let view = view.expect("the node is a member").at(5, 0);
    cluster.local(0).coordinator.take_view(Arc::new(view));
    for level in [Consistency::One, Consistency::All] {
        let written = cluster.on(
            0,
            move |node| async move { node.insert(b"key", 1, b"one", 10, level).await },
        );
        let error = written.expect_err("nobody knows where it belongs").to_string();
        assert!(error.contains("not in the cluster's map"), "{error}");
        let read = cluster.on(0, move |node| async move { node.select(b"key", level).await });
        read.expect_err("nobody knows where it is");
        let store = cluster
            .local(0)
            .shard
            .store(cluster.table.id)
            .expect("the table is open");
        assert_eq!((store.reads_here.get(), store.writes_here.get()), (0, 0), "{level}");
    }
}
