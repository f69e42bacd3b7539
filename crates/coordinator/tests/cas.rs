//! Conditional statements that a node decides alone, because it has the only copy as far as it knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::{Cluster, Local, SECOND, Shape, insert_rows, read_of, rows, table};
use coordinator::{CasRead, CasRequest, ClusterView, CoordinatorError, Decision, Levels, ReadResult, Stretch};
use runtime::sim::CrashKind;
use stdx::planted::{Bug, Planted};
use topology::{Consistency, HostId, Replication};
use uuid::Uuid;

const KEY: &[u8] = b"counter";

/// `UPDATE t SET v = ? WHERE k = ? AND c = 1 IF v = ?`, which counts: what it has written.
async fn increment(node: &Local) -> Result<u8, CoordinatorError> {
    increment_rows(node, 1, Consistency::One)
        .await
        .map(|(written, _)| written)
}

/// Does as [`increment`] on the first `count` rows. What it has written, and how many rows it has found.
async fn increment_rows(node: &Local, count: i32, commit: Consistency) -> Result<(u8, usize), CoordinatorError> {
    let now = runtime::now();
    let timeouts = node.coordinator.context.timeouts();
    let request = CasRequest {
        table: table(),
        key: KEY.to_vec(),
        reads: vec![CasRead {
            stretch: Stretch {
                rows: 1000,
                bytes: 1 << 20,
            },
            ..read_of(KEY)
        }],
        now: 1,
        serial: Consistency::Serial,
        commit,
        deadline: now + timeouts.write,
        contention_deadline: now + timeouts.cas_contention,
        timestamp_us: runtime::wall_clock_us(),
        memory: None,
    };
    let (mut written, mut found_rows) = (0, 0);
    let mut decide = |found: &mut [ReadResult], timestamp: i64| {
        let markers = found[0].blocks.iter().flat_map(mutation::PartitionBlock::rows);
        let markers = markers.filter_map(|(_, row)| row.marker.map(|marker| marker.timestamp));
        match markers.max() {
            Some(last) if last >= timestamp => return Decision::Above(last),
            _ => {}
        }
        let present = rows(&table(), &found[0].blocks);
        (written, found_rows) = (present.get(&1).map_or(0, |value| value[0]) + 1, present.len());
        Decision::Write(insert_rows(&table(), KEY, 1..=count, &[written], timestamp))
    };
    node.coordinator.cas.compare_and_set(&request, &mut decide).await?;
    Ok((written, found_rows))
}

/// Makes a node take over a version of the cluster in which the table has so many copies.
fn hears_of_copies(cluster: &Cluster, node: usize, version: u64, factor: u16) {
    let host = HostId(Uuid::from_u128(node as u128 + 1));
    let keyspaces = [("sea", Replication::Simple { factor }, vec![table().id])];
    let view = ClusterView::new(cluster.topology.clone(), host, keyspaces.into_iter(), &BTreeMap::new());
    let local = cluster.local(node);
    let store = local.shard.store(table().id).expect("the table is open");
    store.reads_here.set(Levels::ALL.bits());
    store.writes_here.set(Levels::ALL.bits());
    let view = view.expect("the node is a member").at(version, 0);
    local.coordinator.set_view(Arc::new(view));
}

/// A cluster in which one node, which is returned, has the only copy.
fn of_one_copy(seed: u64) -> (Cluster, usize) {
    let cluster = Cluster::new(seed, Shape::default());
    (0..3).for_each(|node| hears_of_copies(&cluster, node, 4, 1));
    let replicas = cluster.local(0).coordinator.context.with_view(|view| {
        let route = view.route(table().id).expect("the table is in the view");
        route.map.tablet_of(types::token::token_of(KEY)).replicas.to_vec()
    });
    let owner = usize::from(replicas[0].node.0);
    (cluster, owner)
}

#[test]
fn a_shard_with_the_only_copy_decides_without_asking_anybody() {
    let (mut cluster, owner) = of_one_copy(1);
    let others: Vec<usize> = (0..3).filter(|node| *node != owner).collect();
    cluster.split(&others);
    let written = cluster.on(owner, |node| async move {
        let mut written = Vec::new();
        for _ in 0..5 {
            written.push(increment(&node).await);
        }
        (written, node.coordinator.context.metrics().cas)
    });
    assert_eq!(
        written,
        ((1..=5).map(Ok).collect(), 0),
        "what was written, and rounds of Paxos"
    );
}

#[test]
fn what_a_shard_decided_alone_survives_a_power_loss_at_once() {
    let (mut cluster, owner) = of_one_copy(2);
    let written = cluster.on(owner, |node| async move { increment(&node).await });
    assert_eq!(written, Ok(1));
    cluster.crash(owner, CrashKind::PowerLoss);
    cluster.start_again(owner);
    hears_of_copies(&cluster, owner, 4, 1);
    let written = cluster.on(owner, |node| async move { increment(&node).await });
    assert_eq!(written, Ok(2), "the statement before was acknowledged");
}

#[test]
fn a_decision_of_many_rows_is_written_whole_by_one_copy_and_by_three() {
    const ROWS: i32 = 700;
    for copies in [1, 3] {
        let (mut cluster, owner) = match copies {
            1 => of_one_copy(3),
            _ => (Cluster::new(3, Shape::default()), 0),
        };
        for (so_far, present) in [(1, 0), (2, ROWS as usize)] {
            let node = if copies == 1 { owner } else { usize::from(so_far) };
            let written = cluster.on(node, |node| async move {
                increment_rows(&node, ROWS, Consistency::All).await
            });
            assert_eq!(written, Ok((so_far, present)), "{copies} copies");
        }
        if copies == 1 {
            cluster.crash(owner, CrashKind::PowerLoss);
            cluster.start_again(owner);
            hears_of_copies(&cluster, owner, 4, 1);
        }
        let written = cluster.on(owner, |node| async move { increment(&node).await });
        assert_eq!(written, Ok(3), "{copies} copies");
    }
}

/// Two nodes count at once: the one with the former only copy, which has not heard of a second one yet, and the one
/// with the second. How many statements succeeded, and what the last of them wrote.
fn counts_while_a_second_copy_comes(seed: u64) -> (usize, u8) {
    let (mut cluster, owner) = of_one_copy(seed);
    let other = (owner + 1) % 3;
    for node in (0..3).filter(|node| *node != owner) {
        hears_of_copies(&cluster, node, 5, 2);
    }
    let mut counting = Vec::new();
    for (node, count) in [(owner, 12), (other, 12), (owner, 12)] {
        counting.push(cluster.spawn(node, move |node| async move {
            let mut written = Vec::new();
            for _ in 0..count {
                written.extend(increment(&node).await.ok());
                // Give the other node's statements a chance to come between.
                runtime::sleep(std::time::Duration::from_micros(runtime::random_u64() % 3000)).await;
            }
            written
        }));
    }
    cluster.simulation.run_for(60 * SECOND);
    let ended = counting
        .into_iter()
        .map(|counted| counted.take().expect("all of them end"));
    let written: Vec<u8> = ended.flatten().collect();
    (written.len(), written.into_iter().max().unwrap_or(0))
}

#[test]
fn no_update_is_lost_while_a_second_node_joins() {
    for seed in 0..10 {
        let (count, last) = counts_while_a_second_copy_comes(seed);
        // A statement that timed out may have been applied all the same.
        assert!(
            count > 12 && count <= usize::from(last),
            "seed {seed}: {count} succeeded, and the counter is at {last}"
        );
    }
}

#[test]
fn a_shard_that_does_not_heed_its_acceptor_loses_updates() {
    let _planted = Planted::new(Some(Bug::UnheededAcceptor));
    let lost = (0..10).map(counts_while_a_second_copy_comes);
    assert!(lost.filter(|(count, last)| *count > usize::from(*last)).count() > 0);
}
