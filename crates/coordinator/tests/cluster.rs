//! Writes and reads at consistency levels, on three simulated nodes of which one may be dead or cut off.

use crate::support;
use crate::support::{Cluster, SECOND, Shape};
use coordinator::CoordinatorError;
use std::collections::BTreeMap;
use std::time::Duration;
use topology::Consistency;

fn row(c: i32, v: &[u8]) -> BTreeMap<i32, Vec<u8>> {
    BTreeMap::from([(c, v.to_vec())])
}

const QUORUM: Consistency = Consistency::Quorum;

#[test]
fn what_a_quorum_wrote_every_quorum_reads() {
    for seed in 0..5 {
        for shards in [1, 2] {
            let mut cluster = Cluster::new(
                seed,
                Shape {
                    shards,
                    ..Shape::default()
                },
            );
            let written = cluster.on(
                0,
                |node| async move { node.insert(b"key", 1, b"one", 10, QUORUM).await },
            );
            assert_eq!(written, Ok(()), "seed {seed}");
            for from in 0..3 {
                let read = cluster.on(from, |node| async move { node.select(b"key", QUORUM).await });
                assert_eq!(read, Ok(row(1, b"one")), "seed {seed}, read on node {from}");
            }
        }
    }
}

#[test]
fn a_node_that_was_dead_while_others_wrote_is_repaired_by_a_read() {
    assert_eq!(
        read_at_quorum_and_then_alone("BLOCKING"),
        row(1, b"one"),
        "a read at QUORUM repairs"
    );
}

#[test]
fn a_read_leaves_replicas_as_they_are_where_the_table_says_so() {
    assert_eq!(read_at_quorum_and_then_alone("NONE"), BTreeMap::new());
}

/// What a node has by itself after a read at QUORUM, if it was dead while the others took a row.
fn read_at_quorum_and_then_alone(read_repair: &'static str) -> BTreeMap<i32, Vec<u8>> {
    let shape = Shape {
        read_repair,
        ..Shape::default()
    };
    let mut cluster = Cluster::new(1, shape);
    cluster.kill(2);
    cluster.set_live(2, false);
    let all = cluster.on(0, |node| async move {
        node.insert(b"key", 1, b"x", 9, Consistency::All).await
    });
    assert!(matches!(all, Err(CoordinatorError::Unavailable(_))), "{all:?}");
    let written = cluster.on(
        0,
        |node| async move { node.insert(b"key", 1, b"one", 10, QUORUM).await },
    );
    assert_eq!(written, Ok(()));
    cluster.start_again(2);
    cluster.set_live(2, true);
    let alone = |node: support::Local| async move { node.select(b"key", Consistency::One).await };
    assert_eq!(cluster.on(2, alone), Ok(BTreeMap::new()), "it was dead");
    let read = cluster.on(2, |node| async move { node.select(b"key", QUORUM).await });
    assert_eq!(read, Ok(row(1, b"one")), "two of three have it");
    cluster.on(2, alone).expect("the node has a copy")
}

#[test]
fn a_read_repairs_another_replica_where_one_takes_no_writes_any_more() {
    let mut cluster = Cluster::new(1, Shape::default());
    // As a node does while it drains: it still answers reads.
    cluster.on(1, |node| async move { node.shard.close() });
    // Which two replicas are asked depends on the key.
    for key in 0..8u8 {
        let written = cluster.on(0, move |node| async move {
            node.insert(&[key], 1, b"one", 10, QUORUM).await
        });
        assert_eq!(written, Ok(()), "key {key}: two of three are a quorum");
        for from in 0..3 {
            let read = cluster.on(from, move |node| async move { node.select(&[key], QUORUM).await });
            assert_eq!(read, Ok(row(1, b"one")), "key {key}, read on node {from}");
        }
    }
}

#[test]
fn a_row_that_a_quorum_has_not_found_any_more_does_not_return() {
    let mut cluster = Cluster::new(1, Shape::default());
    // Nodes 0 and 2 get the row, and node 0 alone its deletion.
    cluster.kill(1);
    cluster.set_live(1, false);
    let written = cluster.on(
        0,
        |node| async move { node.insert(b"key", 1, b"one", 10, QUORUM).await },
    );
    assert_eq!(written, Ok(()));
    cluster.set_live(2, false);
    let deleted = cluster.on(
        0,
        |node| async move { node.delete(b"key", 1, 20, Consistency::One).await },
    );
    assert_eq!(deleted, Ok(()));
    // Nodes 0 and 1 are asked, then 1 and 2.
    cluster.start_again(1);
    cluster.set_live(1, true);
    cluster.set_live(2, false);
    let read = |node: support::Local| async move { node.select(b"key", QUORUM).await };
    assert_eq!(cluster.on(0, read), Ok(BTreeMap::new()), "node 0 has the deletion");
    cluster.set_live(2, true);
    cluster.set_live(0, false);
    assert_eq!(
        cluster.on(1, read),
        Ok(BTreeMap::new()),
        "a read at QUORUM has seen that the row is gone, and the next one sees it again"
    );
}

#[test]
fn a_node_that_nobody_knows_to_be_cut_off_costs_a_timeout_only_where_it_is_needed() {
    let mut cluster = Cluster::new(2, Shape::default());
    cluster.split(&[2]);
    let written = cluster.on(
        0,
        |node| async move { node.insert(b"key", 1, b"one", 10, QUORUM).await },
    );
    assert_eq!(written, Ok(()));
    let all = cluster.on(0, |node| async move {
        node.insert(b"key", 1, b"two", 11, Consistency::All).await
    });
    assert!(matches!(all, Err(CoordinatorError::WriteTimeout { .. })), "{all:?}");
    let minority = cluster.on(
        2,
        |node| async move { node.insert(b"key", 1, b"three", 12, QUORUM).await },
    );
    assert!(
        matches!(minority, Err(CoordinatorError::WriteTimeout { .. })),
        "{minority:?}"
    );
    let read = cluster.on(1, |node| async move { node.select(b"key", QUORUM).await });
    assert_eq!(
        read,
        Ok(row(1, b"two")),
        "a read asks another replica when one does not answer"
    );
    cluster.heal(&[2]);
    cluster.simulation.run_for(5 * SECOND);
    let read = cluster.on(0, |node| async move { node.select(b"key", Consistency::All).await });
    assert_eq!(
        read,
        Ok(row(1, b"three")),
        "the write that timed out had happened on one node"
    );
}

#[test]
fn an_acknowledged_write_survives_that_all_nodes_are_killed() {
    let mut cluster = Cluster::new(3, Shape::default());
    let written = cluster.on(
        0,
        |node| async move { node.insert(b"key", 1, b"one", 10, QUORUM).await },
    );
    assert_eq!(written, Ok(()));
    for node in 0..3 {
        cluster.kill(node);
    }
    for node in 0..3 {
        cluster.start_again(node);
    }
    let read = cluster.on(1, |node| async move { node.select(b"key", QUORUM).await });
    assert_eq!(read, Ok(row(1, b"one")));
}

#[test]
fn a_request_that_comes_again_behind_a_truncation_brings_nothing_back() {
    for seed in 0..5 {
        let mut cluster = Cluster::new(seed, Shape::default());
        for (from, to) in (0..3).flat_map(|from| (0..3).map(move |to| (from, to))) {
            let (from, to) = (cluster.id(from), cluster.id(to));
            cluster.simulation.set_message_faults(from, to, 1_000_000, 0);
        }
        let all = Consistency::All;
        let written = cluster.on(
            0,
            move |node| async move { node.insert(b"key", 1, b"one", 10, all).await },
        );
        assert_eq!(written, Ok(()), "seed {seed}");
        let levels = (Consistency::Serial, all);
        let swapped = cluster.on(0, move |node| async move {
            node.swap(b"other", (0, 1), levels, SECOND).await
        });
        assert_eq!(swapped, Ok(Ok(())), "seed {seed}");
        assert_eq!(cluster.truncate(1, Duration::ZERO), Ok(()), "seed {seed}");
        // Until everything has come again.
        cluster.simulation.run_for(2 * SECOND);
        for key in [&b"key"[..], b"other"] {
            let read = cluster.on(2, move |node| async move { node.select(key, all).await });
            assert_eq!(read, Ok(BTreeMap::new()), "seed {seed}: the table is empty");
        }
    }
}
