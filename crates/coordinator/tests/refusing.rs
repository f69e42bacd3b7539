//! Nodes whose log takes no writes: no node sends them any, and they are read from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::support;
use crate::support::{Cluster, Local, SECOND, Shape, addition, addressed, counters, insert, partition, sum, table};
use coordinator::{Atomicity, CoordinatorError, WriteKind};
use stdx::planted::{Bug, Planted};
use topology::{Consistency, Replication};

const KEY: &[u8] = b"key";

/// Three nodes with hints, of which the last has had its disk filled.
fn with_full_disk(seed: u64) -> Cluster {
    let shape = Shape {
        hints: true,
        ..Shape::default()
    };
    let mut cluster = Cluster::new(seed, shape);
    write(&mut cluster, 0, 0, Consistency::All).expect("all nodes take it");
    let full = cluster.id(2);
    cluster.simulation.set_disk_capacity(full, Some(0));
    support::fill_log(&mut cluster, 2);
    cluster
}

fn write(cluster: &mut Cluster, node: usize, c: i32, level: Consistency) -> Result<(), CoordinatorError> {
    cluster.on(node, move |local| async move {
        local.insert(KEY, c, b"v", 100, level).await
    })
}

fn read(cluster: &mut Cluster, node: usize, level: Consistency) -> BTreeMap<i32, Vec<u8>> {
    let read = cluster.on(node, move |local| async move { local.select(KEY, level).await });
    read.expect("it is read from")
}

fn add(cluster: &mut Cluster, node: usize, key: &'static [u8]) -> Result<(), CoordinatorError> {
    cluster.on(node, move |local| async move {
        let additions = vec![addressed(addition(key, 1))];
        local
            .coordinator
            .counters
            .add(additions, &local.dated(Consistency::Quorum))
            .await
    })
}

fn counted(cluster: &mut Cluster, key: &'static [u8]) -> i64 {
    let blocks = cluster.on(0, move |local| async move {
        let mut read = local
            .read(&support::counters(), partition(key), Consistency::Quorum, 100)
            .expect("all live");
        let mut blocks = Vec::new();
        while let Some(block) = read.next_block().await.expect("all answer") {
            blocks.push(block);
        }
        blocks
    });
    sum(&blocks)
}

/// As many errors as additions, some of them by the node itself, end with while a node's log refuses writes.
fn failed_additions(cluster: &mut Cluster) -> usize {
    let keys: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
    let mut failed = 0;
    for key in keys {
        for node in 0..3 {
            failed += usize::from(add(cluster, node, key).is_err());
        }
    }
    failed
}

#[test]
fn a_node_whose_log_refuses_writes_leads_no_additions() {
    let mut cluster = with_full_disk(1);
    assert!(!cluster.announce_log(2), "its disk is full");
    assert_eq!(failed_additions(&mut cluster), 0);
    for key in [b"a", b"b", b"c", b"d"] {
        assert_eq!(counted(&mut cluster, key), 3);
    }
    let _planted = Planted::new(Some(Bug::UnheededLog));
    assert!(failed_additions(&mut cluster) > 0, "the promise is checked");
}

#[test]
fn it_counts_as_down_for_writes_and_is_read_from_last() {
    let mut cluster = with_full_disk(2);
    cluster.announce_log(2);
    write(&mut cluster, 0, 10, Consistency::Quorum).expect("two take it");
    write(&mut cluster, 2, 11, Consistency::Quorum).expect("the node has others write it");
    let refused = write(&mut cluster, 0, 12, Consistency::All);
    assert!(matches!(refused, Err(CoordinatorError::Unavailable(_))), "{refused:?}");
    for node in 0..3 {
        // A read that found it outdated could not repair it.
        assert_eq!(read(&mut cluster, node, Consistency::Quorum).len(), 3, "node {node}");
    }
    cluster.kill(1);
    cluster.set_live(1, false);
    let refused = write(&mut cluster, 0, 13, Consistency::Quorum);
    assert!(matches!(refused, Err(CoordinatorError::Unavailable(_))), "{refused:?}");
    write(&mut cluster, 0, 14, Consistency::One).expect("one takes it");
    let of_two = cluster.on(
        0,
        |local| async move { local.select(b"filler", Consistency::Quorum).await },
    );
    of_two.expect("what it has it is asked for");
}

#[test]
fn it_holds_no_batches() {
    let mut cluster = with_full_disk(3);
    cluster.announce_log(2);
    cluster.kill(1);
    cluster.set_live(1, false);
    let batch = |key: &[u8]| addressed(insert(&support::table(), key, 1, b"v", 100));
    let mutations = vec![batch(b"x"), batch(b"y")];
    let begun = cluster.simulation.now();
    let refused = cluster.on(0, move |local| async move {
        local
            .coordinator
            .writes
            .write_logged(mutations, &local.dated(Consistency::One))
            .await
    });
    assert!(matches!(refused, Err(CoordinatorError::Unavailable(_))), "{refused:?}");
    assert!(cluster.simulation.now() - begun < SECOND, "it is not asked");
}

#[test]
fn what_it_missed_is_hinted_and_it_gets_it_when_its_disk_has_room() {
    let mut cluster = with_full_disk(4);
    cluster.announce_log(2);
    for c in 10..20 {
        write(&mut cluster, 0, c, Consistency::Quorum).expect("two take it");
    }
    cluster.simulation.run_for(20 * SECOND);
    assert_eq!(cluster.hint_metrics(0).written, 10);
    assert_eq!(cluster.hint_metrics(0).replayed, 0);
    let full = cluster.id(2);
    cluster.simulation.set_disk_capacity(full, None);
    assert!(
        cluster.announce_log(2),
        "nobody writes to it, and it finds out all the same"
    );
    cluster.simulation.run_for(20 * SECOND);
    assert_eq!(cluster.hint_metrics(0).replayed, 10);
    assert_eq!(read(&mut cluster, 2, Consistency::One).len(), 11, "its own data");
    write(&mut cluster, 0, 20, Consistency::All).expect("all take it");
}

#[test]
fn after_a_failed_sync_it_takes_writes_again_with_its_next_run() {
    let mut cluster = Cluster::new(5, Shape::default());
    write(&mut cluster, 0, 0, Consistency::All).expect("all take it");
    let broken = cluster.id(2);
    cluster
        .simulation
        .fail_file_op_after(broken, 0, std::io::ErrorKind::Other);
    cluster.simulation.run_for(2 * SECOND);
    assert!(!cluster.announce_log(2), "its sync failed");
    cluster.simulation.run_for(2 * SECOND);
    assert!(!cluster.announce_log(2), "which no attempt mends");
    assert_eq!(failed_additions(&mut cluster), 0);
    cluster.kill(2);
    cluster.start_again(2);
    assert!(cluster.announce_log(2));
    cluster.simulation.run_for(5 * SECOND);
    let kind = WriteKind::Simple;
    let all = cluster.on(0, move |local| async move {
        let mutations = vec![addressed(insert(&support::table(), KEY, 1, b"v", 100))];
        local
            .coordinator
            .writes
            .write(
                mutations,
                &local.dated(Consistency::All),
                kind,
                coordinator::Atomicity::Mutation,
            )
            .await
    });
    all.expect("all take it");
}

/// The log's chunk is of all writes under way: when it could not be written, a write that had a part in it and waited
/// was acknowledged.
#[test]
fn a_write_of_which_the_log_lost_a_part_with_another_write_is_not_acknowledged() {
    let shape = Shape {
        datacenters: vec!["north"],
        replication: Replication::Simple { factor: 1 },
        ..Shape::default()
    };
    let mut cluster = Cluster::new(6, shape);
    write(&mut cluster, 0, 0, Consistency::One).expect("the log has a segment");
    // Writes of the second table wait, because it is being truncated.
    let store = |local: &Local, id| local.shard.store(id).expect("the table is open");
    cluster.on(0, move |local| async move {
        store(&local, table().id).set_version(1, 0, 0);
        store(&local, counters().id).set_version(1, 0, 1);
        let truncations = BTreeMap::from([(counters().id, 1)]);
        let view = (*local.coordinator.context.view())
            .clone()
            .at(1, 0)
            .truncated(truncations);
        local.coordinator.set_view(Arc::new(view));
    });
    let written = cluster.spawn(0, |local| async move {
        let parts = [insert(&table(), b"lost", 1, b"v", 100), addition(b"lost", 1)];
        let mutations = parts.map(addressed).to_vec();
        local
            .coordinator
            .writes
            .write(
                mutations,
                &local.dated(Consistency::One),
                WriteKind::Batch,
                Atomicity::Mutation,
            )
            .await
    });
    cluster.simulation.run_for(Duration::from_millis(10));
    assert!(written.borrow().is_none(), "its second part waits");
    let broken = cluster.id(0);
    cluster
        .simulation
        .fail_file_op_after(broken, 0, std::io::ErrorKind::StorageFull);
    let other = write(&mut cluster, 0, 1, Consistency::One);
    assert!(matches!(other, Err(CoordinatorError::WriteFailure { .. })), "{other:?}");
    cluster.on(0, move |local| async move {
        store(&local, counters().id).set_truncated_at(1);
    });
    cluster.simulation.run_for(Duration::from_millis(10));
    let written = written.take().expect("it does not wait any more");
    cluster.kill(0);
    cluster.start_again(0);
    let found = cluster.on(0, |local| async move { local.select(b"lost", Consistency::One).await });
    assert_eq!(found, Ok(BTreeMap::new()), "the log does not have its first part");
    assert!(
        matches!(written, Err(CoordinatorError::WriteFailure { .. })),
        "{written:?}"
    );
}
