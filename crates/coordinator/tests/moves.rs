//! Requests that reach a shard whose tablets have left it, or are on their way to it, on three simulated nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Cluster, Local, SECOND, Shape, addition, addressed, counters, table};
use coordinator::{ClusterView, paxos_state_of};
use replica::{TokenRange, WantedTable};
use topology::{Consistency, HostId, Replication};
use uuid::Uuid;

const ALL: Consistency = Consistency::All;
const LEVELS: (Consistency, Consistency) = (Consistency::Serial, ALL);
const MOMENT: Duration = Duration::from_millis(100);

/// The cluster as a node sees it, as of a command of its metadata.
fn view(cluster: &Cluster, node: usize, version: u64) -> Arc<ClusterView> {
    let host = HostId(Uuid::from_u128(node as u128 + 1));
    let tables = vec![cluster.table.id, counters().id];
    let keyspaces = [("sea", Replication::Simple { factor: 3 }, tables)];
    let view = ClusterView::new(cluster.topology.clone(), host, keyspaces.into_iter(), &BTreeMap::new());
    Arc::new(view.expect("the node is a member").at(version, 0))
}

fn hears(cluster: &Cluster, node: usize, version: u64) {
    cluster.local(node).coordinator.take_view(view(cluster, node, version));
}

/// The shard is to have these tokens of every table from a version on.
fn reconcile(cluster: &mut Cluster, node: usize, version: u64, ranges: &'static [TokenRange]) {
    let view = view(cluster, node, version);
    cluster.on(node, move |local| async move {
        let wanted = [table(), counters(), paxos_state_of(&table())].map(|table| WantedTable {
            table,
            ranges: ranges.to_vec(),
            keeps_shards: false,
        });
        let changed = local.shard.reconcile(&wanted);
        local.coordinator.take_view(view);
        local.coordinator.cas.forget_left(&changed);
    });
}

/// What left the shard comes back to it.
async fn hand_over(local: Local) {
    for table in [paxos_state_of(&table()), table(), counters()] {
        let store = local.shard.store(table.id).expect("the table is open");
        let sealed = local.shard.seal_leaving(&store, &[TokenRange::ALL]).await;
        local.shard.open_arrived(&store, &sealed.expect("the disk works"));
        local.shard.forget_left(&store).await;
    }
}

/// Three nodes of the fourth version that keep hints.
fn cluster_with_hints() -> Cluster {
    let shape = Shape {
        hints: true,
        ..Shape::default()
    };
    let cluster = Cluster::new(3, shape);
    (0..3).for_each(|node| hears(&cluster, node, 4));
    cluster
}

/// The shard has none of the tokens, as of a version.
fn leave(local: &Local, version: u64) {
    let wanted = [table(), counters(), paxos_state_of(&table())].map(|table| WantedTable {
        table,
        ranges: Vec::new(),
        keeps_shards: false,
    });
    let _ = local.shard.reconcile(&wanted);
    let store = local.shard.store(table().id).expect("the table is open");
    store.set_version(version, 0, 0);
}

#[test]
fn requests_by_an_older_view_are_done_again_and_those_by_a_newer_one_wait_for_what_arrives() {
    let mut cluster = Cluster::new(3, Shape::default());
    (0..3).for_each(|node| hears(&cluster, node, 4));
    let inserted = cluster.on(0, |node| async move { node.insert(b"old", 1, b"one", 10, ALL).await });
    assert_eq!(inserted, Ok(()));
    reconcile(&mut cluster, 1, 5, &[]);
    let written = cluster.spawn(0, |node| async move { node.insert(b"key", 1, b"one", 10, ALL).await });
    let read = cluster.spawn(0, |node| async move { node.select(b"old", ALL).await });
    let swapped = cluster.spawn(
        0,
        |node| async move { node.swap(b"other", (0, 1), LEVELS, SECOND).await },
    );
    let added = cluster.spawn(1, |node| async move {
        let addition = vec![addressed(addition(b"key", 3))];
        node.coordinator.counters.add(addition, &node.dated(ALL)).await
    });
    let is_pending = || written.borrow().is_none() && read.borrow().is_none() && swapped.borrow().is_none();
    cluster.simulation.run_for(MOMENT);
    assert!(is_pending(), "they wait for the view in which the tokens are elsewhere");
    // They were elsewhere, and come back.
    for node in [0, 2] {
        hears(&cluster, node, 6);
    }
    cluster.simulation.run_for(MOMENT);
    assert!(is_pending(), "the shard has not heard of the version that says so");
    reconcile(&mut cluster, 1, 6, &[TokenRange::ALL]);
    cluster.simulation.run_for(MOMENT);
    assert!(is_pending(), "what the tablet had is on its way");
    cluster.on(1, |local| async move { hand_over(local).await });
    cluster.simulation.run_for(MOMENT);
    assert_eq!(written.take(), Some(Ok(())));
    assert_eq!(read.take(), Some(Ok(BTreeMap::from([(1, b"one".to_vec())]))));
    assert_eq!(swapped.take(), Some(Ok(Ok(()))));
    assert_eq!(added.take(), Some(Ok(())));
}

#[test]
fn a_coordinator_takes_its_own_share_in_the_next_view_where_the_others_sufficed() {
    let mut cluster = cluster_with_hints();
    // The tokens have left its shard, and the coordinator has not heard of that.
    cluster.on(1, |local| async move { leave(&local, 5) });
    let written = cluster.on(1, |node| async move {
        node.insert(b"key", 1, b"one", 10, Consistency::Quorum).await
    });
    assert_eq!(written, Ok(()));
    for node in [0, 2] {
        hears(&cluster, node, 6);
    }
    reconcile(&mut cluster, 1, 6, &[TokenRange::ALL]);
    cluster.on(1, |local| async move { hand_over(local).await });
    cluster.simulation.run_for(MOMENT);
    let read = cluster.on(1, |node| async move { node.select(b"key", Consistency::One).await });
    assert_eq!(read, Ok(BTreeMap::from([(1, b"one".to_vec())])));
    let missed = cluster.on(1, |node| async move {
        let hints = node.coordinator.hints.kept().expect("it keeps hints");
        format!("{:?}", hints.take_missed())
    });
    assert_eq!(missed, format!("{:?}", hints::Missed::default()));
}

/// Node 1 refuses a write at ALL as stale, the next attempt fails because node 2 is down, and the coordinator's own
/// shard has not taken the write.
#[test]
fn a_share_that_the_coordinator_has_not_taken_when_the_last_attempt_fails_is_missed() {
    let mut cluster = cluster_with_hints();
    cluster.on(1, |local| async move {
        let store = local.shard.store(table().id).expect("the table is open");
        store.set_version(5, 5, 0);
    });
    // Its own shard waits for what arrives, and refuses when the tokens are elsewhere.
    cluster.on(0, |local| async move { leave(&local, 3) });
    let written = cluster.spawn(0, |node| async move { node.insert(b"key", 1, b"one", 10, ALL).await });
    cluster.simulation.run_for(MOMENT);
    cluster.set_live(2, false);
    hears(&cluster, 0, 6);
    cluster.simulation.run_for(MOMENT);
    assert!(written.take().is_some_and(|written| written.is_err()));
    cluster.on(0, |local| async move {
        let store = local.shard.store(table().id).expect("the table is open");
        store.set_version(7, 0, 0);
    });
    cluster.simulation.run_for(MOMENT);
    let missed = cluster.on(0, |node| async move {
        node.coordinator.hints.kept().expect("it keeps hints").take_missed()
    });
    let me = HostId(Uuid::from_u128(1));
    assert!(missed.contains_key(&me), "{missed:?}");
}

#[test]
fn acceptors_know_what_they_promised_when_their_tablet_is_back() {
    let mut cluster = Cluster::new(3, Shape::default());
    (0..3).for_each(|node| hears(&cluster, node, 4));
    for round in 0..4 {
        let swap = (round, round + 1);
        let swapped = cluster.on(
            0,
            move |node| async move { node.swap(b"key", swap, LEVELS, SECOND).await },
        );
        assert_eq!(swapped, Ok(Ok(())), "round {round}");
        for node in 0..3 {
            reconcile(&mut cluster, node, 5 + 2 * round, &[]);
        }
        for node in 0..3 {
            reconcile(&mut cluster, node, 6 + 2 * round, &[TokenRange::ALL]);
            cluster.on(node, |local| async move { hand_over(local).await });
        }
    }
    let swapped = cluster.on(1, |node| async move { node.swap(b"key", (0, 9), LEVELS, SECOND).await });
    assert_eq!(swapped, Ok(Err(4)), "the value that was set last");
}
