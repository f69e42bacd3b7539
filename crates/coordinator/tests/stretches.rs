//! Replicas that agree about what lives agree about digests, however much of what is dead each of them still has.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use crate::support;
use crate::support::{Cluster, Local, Shape, clustering, everything, insert, partition};
use coordinator::Extent;
use mutation::row::{RowBuilder, Shared};
use mutation::{Cell, ClusteringSlice, Mutation, MutationBuilder, Tombstone};
use replica::Shard;
use schema::Table;
use topology::{Consistency, Replication};
use types::token::token_of;

/// Rows that live in each partition: every so many.
const STEP: i32 = 400;

/// The packed mutation of a row that was deleted, or whose only cell has expired, long ago.
fn dead(table: &Table, key: &[u8], c: i32) -> Vec<u8> {
    let mut out = Vec::new();
    let mut builder = MutationBuilder::begin(&mut out, table.id, key);
    let shared = Shared {
        timestamp: 10,
        ttl: 0,
        expiry: 0,
    };
    let is_deleted = c % 2 == 0;
    let tombstone = if is_deleted {
        Tombstone {
            timestamp: 10,
            deletion_time: 1,
        }
    } else {
        Tombstone::NONE
    };
    let expired = Cell {
        timestamp: 10,
        ttl: 5,
        deletion_time: 6,
        dead: false,
        value: b"expired",
    };
    builder.row(&clustering(c), |out| {
        let mut row = RowBuilder::begin(out, &table.layout, shared, None, tombstone, true, 1);
        if !is_deleted {
            row.cell(0, &expired);
        }
    });
    out
}

async fn write(shard: &Rc<Shard>, table: &Table, key: &[u8], bytes: &[u8]) {
    let store = shard.store(table.id).expect("the table is open");
    let mutation = Mutation::new(bytes).expect("a whole mutation");
    while shard.write(&store, token_of(key), &mutation).is_err() {
        shard.room().await.expect("flushes make room");
    }
}

fn keys(count: u8) -> Vec<Vec<u8>> {
    (0..count).map(|n| vec![n]).collect()
}

/// Two replicas with the same rows. The second has forgotten what is dead and the first has not.
fn cluster(partitions: u8, rows: i32) -> Cluster {
    let mut cluster = Cluster::new(
        3,
        Shape {
            datacenters: vec!["north"; 2],
            replication: Replication::Simple { factor: 2 },
            ..Shape::default()
        },
    );
    for node in 0..2 {
        cluster.on(node, move |node: Local| async move {
            let table = support::table();
            for key in keys(partitions) {
                for c in 0..rows {
                    let bytes = match c % STEP {
                        0 => insert(&table, &key, c, &c.to_be_bytes(), 20),
                        _ => dead(&table, &key, c),
                    };
                    write(&node.shard, &table, &key, &bytes).await;
                }
            }
        });
    }
    let sizes = cluster.on(1, |node: Local| async move {
        let store = node.shard.store(support::table().id).expect("the table is open");
        let size = || -> u64 {
            let version = store.tablets()[0].version();
            version.sstables.iter().map(|reader| reader.meta().data_len).sum()
        };
        // Until then a crash would replay what tombstones hide.
        node.shard.forget_old_log().await;
        node.shard.flush_all().await.expect("the disk works");
        let before = size();
        node.shard.compact_table(&store).await.expect("the disk works");
        (before, size())
    });
    assert!(sizes.1 * 10 < sizes.0, "the compaction forgets what is dead: {sizes:?}");
    cluster
}

/// Reads all of an extent at ALL, and checks that no replica was found to differ.
fn check(cluster: &mut Cluster, extent: Extent, wanted: &BTreeMap<(Vec<u8>, i32), ()>, what: &str) {
    for (node, rows_of_stretch) in [(0, 1), (0, 7), (1, 7), (1, 1000)] {
        let extent = extent.clone();
        let (found, metrics) = cluster.on(node, move |node: Local| async move {
            let table: Arc<Table> = support::table();
            let before = node.coordinator.context.metrics();
            let read = node.read(&table, extent, Consistency::All, rows_of_stretch);
            let mut read = read.expect("both replicas live");
            let mut found = BTreeMap::new();
            while let Some(block) = read.next_block().await.expect("both replicas answer") {
                let live = support::live_rows(&table, std::slice::from_ref(&block));
                found.extend(live.into_iter().map(|c| ((block.key().to_vec(), c), ())));
            }
            let after = node.coordinator.context.metrics();
            (
                found,
                (
                    after.digest_mismatches - before.digest_mismatches,
                    after.repairs - before.repairs,
                ),
            )
        });
        assert_eq!(&found, wanted, "{what} by {rows_of_stretch} rows on node {node}");
        assert_eq!(
            metrics,
            (0, 0),
            "{what} by {rows_of_stretch} rows on node {node}: mismatches and repairs"
        );
    }
}

fn wanted(partitions: u8, rows: i32) -> BTreeMap<(Vec<u8>, i32), ()> {
    let all = keys(partitions).into_iter();
    all.flat_map(|key| (0..rows).filter(|c| c % STEP == 0).map(move |c| ((key.clone(), c), ())))
        .collect()
}

#[test]
fn replicas_that_were_compacted_differently_do_not_differ() {
    let (partitions, rows) = (4, 2_000);
    let mut cluster = cluster(partitions, rows);
    check(&mut cluster, everything(), &wanted(partitions, rows), "all tokens");
    let mut of_one = wanted(partitions, rows);
    of_one.retain(|(key, _), ()| key == &[2]);
    check(&mut cluster, partition(&[2]), &of_one, "a partition");
    let reversed = Extent::Partition {
        key: vec![2],
        slices: vec![ClusteringSlice::all()],
        reversed: true,
    };
    check(&mut cluster, reversed, &of_one, "a partition from its end");
}

#[test]
fn a_desert_of_dead_rows_is_crossed_in_step() {
    // More dead rows than a stretch reads at most.
    let rows = 25_000;
    let mut cluster = cluster(1, rows);
    let mut extents = vec![("all tokens", everything()), ("a partition", partition(&[0]))];
    // Nothing lives in the first half, and in the second.
    let slice = |from: i32, to: i32| ClusteringSlice {
        start: mutation::Bound::before(&clustering(from)),
        end: mutation::Bound::after(&clustering(to)),
    };
    for reversed in [false, true] {
        extents.push((
            "two slices",
            Extent::Partition {
                key: vec![0],
                slices: vec![slice(0, 12_000), slice(12_001, 30_000)],
                reversed,
            },
        ));
    }
    for (what, extent) in extents {
        check(&mut cluster, extent, &wanted(1, rows), what);
    }
}
