//! Nodes whose disks are full: no node sends them data, they take deletes, and they are read from.

use std::collections::BTreeMap;

use crate::support::{Cluster, Local, SECOND, Shape, addition, addressed, delete, insert, table};
use coordinator::{CoordinatorError, WriteKind};
use topology::{Consistency, NodeNumber, Replication};
use types::token::token_of;

const KEY: &[u8] = b"key";
const ALL: [usize; 3] = [0, 1, 2];

/// Three nodes with hints and one row, of which the last ones have full disks, and all know it.
fn with_full_disks(seed: u64, full: &[usize]) -> Cluster {
    let shape = Shape {
        hints: true,
        ..Shape::default()
    };
    let mut cluster = Cluster::new(seed, shape);
    write(&mut cluster, 0, 0, Consistency::All).expect("all nodes take it");
    for node in full {
        cluster.announce_disk(*node, true, &ALL);
    }
    cluster
}

fn write(cluster: &mut Cluster, node: usize, c: i32, level: Consistency) -> Result<(), CoordinatorError> {
    cluster.on(node, move |local| async move {
        local.insert(KEY, c, b"v", 100, level).await
    })
}

fn remove(cluster: &mut Cluster, node: usize, c: i32, level: Consistency) -> Result<(), CoordinatorError> {
    cluster.on(node, move |local| async move { local.delete(KEY, c, 200, level).await })
}

fn read(cluster: &mut Cluster, node: usize, level: Consistency) -> BTreeMap<i32, Vec<u8>> {
    let read = cluster.on(node, move |local| async move { local.select(KEY, level).await });
    read.expect("it is read from")
}

/// How many living rows of the partition a node has itself.
fn own_rows(cluster: &mut Cluster, node: usize) -> usize {
    let rows = cluster.on(node, move |local| async move {
        let view = local.coordinator.context.view();
        let others: Vec<NodeNumber> = view.topology.numbered_nodes().map(|(number, _)| number).collect();
        let set_live = |is_live| {
            others
                .iter()
                .for_each(|other| local.coordinator.set_live(*other, is_live))
        };
        set_live(false);
        let rows = local.select(KEY, Consistency::One).await;
        set_live(true);
        rows
    });
    rows.expect("its own data").len()
}

fn hints(cluster: &Cluster, node: usize) -> (u64, u64) {
    let metrics = cluster.hint_metrics(node);
    (metrics.written, metrics.replayed)
}

#[track_caller]
fn assert_full(refused: &Result<(), CoordinatorError>, of: WriteKind, names: usize) {
    match refused {
        Err(
            error @ CoordinatorError::DiskFull {
                tally, kind, failures, ..
            },
        ) => {
            assert_eq!((tally.received, *kind, failures.len()), (0, of, names), "{error}");
            assert!(
                error
                    .to_string()
                    .starts_with("Write request failed because disk usage exceeds"),
                "{error}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn data_goes_to_the_others_and_hints_bring_it_when_there_is_room() {
    let mut cluster = with_full_disks(1, &[2]);
    for c in 10..20 {
        write(&mut cluster, 0, c, Consistency::Quorum).expect("two take it");
    }
    assert_full(&write(&mut cluster, 0, 30, Consistency::All), WriteKind::Simple, 1);
    cluster.simulation.run_for(20 * SECOND);
    assert_eq!(hints(&cluster, 0), (10, 0), "hints wait");
    assert_eq!(own_rows(&mut cluster, 2), 1, "nothing was added to it");
    assert!(
        !read(&mut cluster, 0, Consistency::Quorum).contains_key(&30),
        "what was refused is nowhere"
    );
    cluster.announce_disk(2, false, &ALL);
    cluster.simulation.run_for(20 * SECOND);
    assert_eq!(hints(&cluster, 0), (10, 10));
    assert_eq!(own_rows(&mut cluster, 2), 11, "its own data");
    write(&mut cluster, 0, 31, Consistency::All).expect("all take it");
}

#[test]
fn writers_are_warned_of_the_replicas_that_they_write_to() {
    let shape = Shape {
        replication: Replication::Simple { factor: 1 },
        ..Shape::default()
    };
    let mut cluster = Cluster::new(4, shape);
    let warned = |cluster: &mut Cluster| {
        cluster.on(0, |local| async move {
            let keys = (0..100_u8).map(|key| token_of(&[key]));
            let warned = keys.filter(|token| local.coordinator.context.warns_writer_of(Some((table().id, *token))));
            (local.coordinator.context.warns_of_disks(), warned.count())
        })
    };
    assert_eq!(warned(&mut cluster), (false, 0));
    cluster.announce_disk(2, true, &ALL);
    let (does_warn, keys) = warned(&mut cluster);
    assert!(
        does_warn && (10..70).contains(&keys),
        "{keys} of 100 keys are on one node of three"
    );
    cluster.announce_disk(1, true, &ALL);
    cluster.announce_disk(0, true, &ALL);
    assert_eq!(warned(&mut cluster), (true, 100));
}

#[test]
fn deletes_and_reads_go_on_when_all_disks_are_full() {
    let mut cluster = with_full_disks(2, &ALL);
    for node in ALL {
        for level in [Consistency::One, Consistency::Quorum, Consistency::All] {
            let refused = write(&mut cluster, node, 40, level);
            assert_full(&refused, WriteKind::Simple, 3);
        }
        assert_eq!(read(&mut cluster, node, Consistency::All).len(), 1);
    }
    remove(&mut cluster, 1, 0, Consistency::All).expect("all take a delete");
    assert!(read(&mut cluster, 2, Consistency::All).is_empty());
    let metrics = cluster.local(0).coordinator.context.metrics();
    assert_eq!((metrics.refused_full, metrics.unavailable), (3, 0));
}

#[test]
fn a_full_node_refuses_what_a_coordinator_sends_that_has_not_heard() {
    let mut cluster = with_full_disks(3, &[]);
    cluster.announce_disk(2, true, &[2]);
    let refused = write(&mut cluster, 0, 10, Consistency::All);
    match refused {
        Err(CoordinatorError::WriteFailure { failures, reason, .. }) => {
            assert_eq!(failures.len(), 1);
            assert!(reason.contains("critical_disk_utilization_level"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    write(&mut cluster, 0, 11, Consistency::Quorum).expect("two take it");
    assert_eq!(own_rows(&mut cluster, 2), 1);
    remove(&mut cluster, 0, 0, Consistency::All).expect("it takes a delete");
    cluster.simulation.run_for(20 * SECOND);
    assert_eq!(
        own_rows(&mut cluster, 2),
        0,
        "a hint that is handed over is refused too"
    );
    cluster.announce_disk(2, false, &[2]);
    cluster.simulation.run_for(30 * SECOND);
    assert_eq!(own_rows(&mut cluster, 2), 2, "what it refused is hinted");
}

#[test]
fn a_quorum_that_needs_a_full_node_reads_what_the_node_has_missed() {
    let mut cluster = with_full_disks(4, &[2]);
    write(&mut cluster, 0, 10, Consistency::Quorum).expect("two take it");
    cluster.kill(1);
    cluster.set_live(1, false);
    assert_eq!(
        read(&mut cluster, 0, Consistency::Quorum).len(),
        2,
        "the read repairs it"
    );
    assert_eq!(own_rows(&mut cluster, 2), 2);
    let refused = write(&mut cluster, 0, 11, Consistency::Quorum);
    assert_full(&refused, WriteKind::Simple, 1);
    cluster.kill(0);
    [0, 1].into_iter().for_each(|node| cluster.set_live(node, false));
    let refused = write(&mut cluster, 2, 11, Consistency::Quorum);
    assert!(
        matches!(refused, Err(CoordinatorError::Unavailable(_))),
        "too few live anyway: {refused:?}"
    );
}

#[test]
fn a_batch_with_data_is_refused_before_it_is_noted_and_one_of_deletes_is_taken() {
    let mut cluster = with_full_disks(5, &[1, 2]);
    let batch = |mutations: Vec<Vec<u8>>| mutations.into_iter().map(addressed).collect::<Vec<_>>();
    let table = table();
    let mixed = batch(vec![insert(&table, b"x", 1, b"v", 100), delete(&table, KEY, 0, 200)]);
    let refused = cluster.on(0, move |local| async move {
        local
            .coordinator
            .writes
            .write_logged(mixed, &local.dated(Consistency::Quorum))
            .await
    });
    assert_full(&refused, WriteKind::Batch, 2);
    cluster.simulation.run_for(60 * SECOND);
    assert_eq!(
        read(&mut cluster, 0, Consistency::All).len(),
        1,
        "no part of it is written later"
    );
    let deletes = batch(vec![delete(&table, b"x", 1, 200), delete(&table, KEY, 0, 200)]);
    let taken = cluster.on(0, move |local| async move {
        local
            .coordinator
            .writes
            .write_logged(deletes, &local.dated(Consistency::All))
            .await
    });
    taken.expect("all take it");
    assert!(read(&mut cluster, 0, Consistency::All).is_empty());
}

#[test]
fn an_addition_that_its_leader_has_made_is_not_called_undone_when_the_others_are_full() {
    let mut cluster = with_full_disks(8, &[]);
    // The coordinator has not heard that the others are full. Each of these has heard it of the other, so the leader
    // finds no replica to send the addition to.
    cluster.announce_disk(0, true, &ALL);
    cluster.announce_disk(1, true, &[2]);
    cluster.announce_disk(2, true, &[1]);
    let refused = cluster.on(0, async move |local: Local| {
        let additions = vec![addressed(addition(KEY, 1))];
        local
            .coordinator
            .counters
            .add(additions, &local.dated(Consistency::Quorum))
            .await
    });
    match refused {
        Err(CoordinatorError::WriteFailure {
            kind: WriteKind::Counter,
            reason,
            ..
        }) => assert!(reason.contains("added by its leader"), "{reason}"),
        other => panic!("its leader has added it: {other:?}"),
    }
}

#[test]
fn additions_to_counters_are_led_and_kept_by_nodes_with_room() {
    let mut cluster = with_full_disks(6, &[2]);
    let add = |cluster: &mut Cluster, node: usize, level| {
        cluster.on(node, move |local: Local| async move {
            local
                .coordinator
                .counters
                .add(vec![addressed(addition(KEY, 1))], &local.dated(level))
                .await
        })
    };
    for node in ALL {
        add(&mut cluster, node, Consistency::Quorum).expect("two take it");
    }
    cluster.announce_disk(1, true, &ALL);
    for node in ALL {
        assert_full(&add(&mut cluster, node, Consistency::Quorum), WriteKind::Counter, 2);
    }
    // One that has not heard asks, and is refused.
    cluster.announce_disk(1, false, &[0]);
    cluster.announce_disk(2, false, &[0]);
    cluster.announce_disk(0, true, &[0]);
    let refused = add(&mut cluster, 0, Consistency::One);
    assert!(matches!(refused, Err(CoordinatorError::Overloaded(_))), "{refused:?}");
}

#[test]
fn a_conditional_statement_that_adds_data_is_refused_before_it_is_proposed() {
    const LEVELS: (Consistency, Consistency) = (Consistency::Serial, Consistency::Quorum);
    let mut cluster = with_full_disks(7, &[2]);
    let swap = |cluster: &mut Cluster, node: usize, from: u64, to: u64| {
        cluster.on(node, move |local| async move {
            local.swap(b"register", (from, to), LEVELS, 2 * SECOND).await
        })
    };
    for (node, value) in (0..).zip(0..3) {
        assert_eq!(swap(&mut cluster, node, value, value + 1), Ok(Ok(())), "two have room");
    }
    cluster.announce_disk(1, true, &ALL);
    for node in ALL {
        let refused = swap(&mut cluster, node, 3, 4).map(drop);
        assert_full(&refused, WriteKind::Cas, 2);
        assert_eq!(
            swap(&mut cluster, node, 9, 10),
            Ok(Err(3)),
            "one that does not apply is answered"
        );
    }
    cluster.announce_disk(1, false, &ALL);
    assert_eq!(
        swap(&mut cluster, 0, 3, 4),
        Ok(Ok(())),
        "what was refused has not happened"
    );
}

#[test]
fn a_node_alone_refuses_data_on_every_way() {
    let shape = Shape {
        datacenters: vec!["north"],
        replication: topology::Replication::Simple { factor: 1 },
        ..Shape::default()
    };
    let mut cluster = Cluster::new(8, shape);
    write(&mut cluster, 0, 0, Consistency::One).expect("it has room");
    cluster.announce_disk(0, true, &[0]);
    assert_full(&write(&mut cluster, 0, 1, Consistency::One), WriteKind::Simple, 1);
    let here = cluster.on(0, |local| async move {
        let insert = addressed(insert(&table(), KEY, 2, b"v", 100));
        local.coordinator.own.write(insert.located(), Consistency::One)
    });
    assert_eq!(
        here.expect("the log works"),
        None,
        "the short way leaves it to the long one"
    );
    let refused = cluster.on(0, |local| async move {
        let levels = (Consistency::Serial, Consistency::One);
        local.swap(b"register", (0, 1), levels, SECOND).await
    });
    assert_full(&refused.map(drop), WriteKind::Cas, 1);
    remove(&mut cluster, 0, 0, Consistency::One).expect("a delete");
    cluster.announce_disk(0, false, &[0]);
    write(&mut cluster, 0, 1, Consistency::One).expect("it has room again");
    assert_eq!(
        read(&mut cluster, 0, Consistency::One).into_keys().collect::<Vec<_>>(),
        [1]
    );
}
