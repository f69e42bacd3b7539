//! The metadata file under the simulator: what a change costs, and that no power loss takes back what was acknowledged.

use crate::support;
use crate::support::{SECOND, Sea, dir};
use cluster::{Command, SchemaChange, TabletsChange};
use runtime::sim::CrashKind;
use schema::{Keyspace, Schema, Table, TableId, TableOptions};
use std::collections::BTreeMap;
use std::sync::Arc;
use topology::{Boundaries, NodeNumber, Replica, ReplicaList, TabletChange, TabletEdit, TabletId, TabletMap};
use uuid::Uuid;

const TABLE: TableId = TableId(Uuid::from_u128(0x7ab1e));

fn replicas(first: u16) -> ReplicaList {
    [0, 1, 2]
        .map(|turn| Replica {
            node: NodeNumber((first + turn) % 3),
            shard: 0,
        })
        .into_iter()
        .collect()
}

/// A schema with one table, and the map of its tablets.
fn table_with_tablets(base: &Schema, power: u8) -> Command {
    let table = Table {
        keyspace: "ks".to_owned(),
        name: "t".to_owned(),
        id: TABLE,
        columns: Vec::new(),
        dropped: Vec::new(),
        next_column_id: 0,
        options: TableOptions::default(),
        compact: None,
        row_ttl: None,
        indexes: Vec::new(),
        next_index_id: 0,
        layout: Arc::default(),
        clustering_order: Arc::default(),
    };
    let keyspace = Keyspace {
        name: "ks".to_owned(),
        replication: BTreeMap::new(),
        durable_writes: true,
        tablets: None,
        types: BTreeMap::new(),
        functions: BTreeMap::new(),
        aggregates: BTreeMap::new(),
        tables: [("t".to_owned(), Arc::new(table))].into(),
    };
    let mut next = base.clone();
    next.version = Uuid::from_u128(2);
    next.keyspaces.insert("ks".to_owned(), Arc::new(keyspace));
    let sets = vec![replicas(0); 1 << power];
    let map = TabletMap::new(1, Boundaries::PowerOfTwo(power), &sets).expect("a map of these tablets");
    Command::Schema(SchemaChange {
        tablets: [(TABLE, Arc::new(map))].into(),
        ..SchemaChange::between(base, &next)
    })
}

fn one_tablet(from_version: u64) -> Command {
    let edit = TabletEdit {
        tablet: TabletId(u32::try_from(from_version * 37 % 1024).expect("small")),
        replicas: replicas(1),
        transition: None,
    };
    let change = TabletChange {
        from_version,
        version: from_version + 1,
        edits: vec![edit],
    };
    Command::Tablets {
        table: TABLE,
        change: TabletsChange::Part(change),
    }
}

fn file_bytes(sea: &mut Sea) -> usize {
    let id = sea.nodes[0].id;
    sea.sim.on_node(id, || {
        runtime::fs::read(dir().join("metadata")).expect("it is there").len()
    })
}

#[test]
fn a_change_of_one_tablet_of_131072_writes_a_hundred_bytes() {
    const CHANGES: u64 = 200;
    let mut sea = Sea::formed(1, 1);
    let (before, after) = sea.on(0, |cluster| async move {
        let schema = cluster.metadata().schema.clone();
        cluster
            .propose(table_with_tablets(&schema, 17))
            .await
            .expect("it is its own majority");
        // The first change of a run rewrites the file.
        cluster.propose(one_tablet(1)).await.expect("the map is of version 1");
        let before = cluster.written();
        for version in 2..2 + CHANGES {
            cluster.propose(one_tablet(version)).await.expect("one after the other");
        }
        (before, cluster.written())
    });
    let (records, bytes) = (after.records - before.records, after.record_bytes - before.record_bytes);
    let whole = file_bytes(&mut sea);
    println!(
        "a change of one tablet in a map of 131,072: {} bytes written; the whole file has {whole}",
        bytes / records
    );
    assert_eq!(
        (records, after.wholes),
        (CHANGES, before.wholes),
        "each change is appended"
    );
    assert!(
        bytes / records < 200,
        "{} bytes for a change of one tablet",
        bytes / records
    );
    assert!(whole > 900_000, "the map is large: {whole}");
    sea.crash(0, CrashKind::PowerLoss);
    sea.restart(0);
    sea.expect_normal(0..1);
    let version = sea.cluster(0).metadata().tablets[&TABLE].version();
    assert_eq!(version, 2 + CHANGES, "a restart has all changes");
}

#[test]
fn a_file_that_grows_is_written_anew_and_stays_within_twice_its_value() {
    let mut sea = Sea::formed(2, 1);
    let written = sea.on(0, |cluster| async move {
        let schema = cluster.metadata().schema.clone();
        cluster
            .propose(table_with_tablets(&schema, 10))
            .await
            .expect("it is its own majority");
        for version in 1..2500 {
            cluster.propose(one_tablet(version)).await.expect("one after the other");
        }
        cluster.written()
    });
    assert!(
        (3..20).contains(&written.wholes) && written.records > 2400,
        "now and then: {written:?}"
    );
    let bytes = file_bytes(&mut sea);
    assert!(bytes < 200 << 10, "the file does not grow without limit: {bytes}");
    sea.crash(0, CrashKind::Kill);
    sea.restart(0);
    sea.expect_normal(0..1);
    assert_eq!(sea.cluster(0).metadata().tablets[&TABLE].version(), 2500);
}

#[test]
fn no_power_loss_at_any_step_takes_back_an_acknowledged_change() {
    for operations in 0..40 {
        let mut sea = Sea::formed(100 + operations, 1);
        sea.create(0, "first").expect("it is its own majority");
        let id = sea.nodes[0].id;
        let mut acknowledged = vec!["first".to_owned()];
        sea.sim.crash_after_file_ops(id, operations, CrashKind::PowerLoss);
        for number in 0..30 {
            let name = format!("ks_{number}");
            let created = sea.spawn(0, {
                let name = name.clone();
                move |cluster| async move { support::create_keyspace(&cluster, &name).await }
            });
            sea.sim.run_until(2 * SECOND, || created.borrow().is_some());
            match created.take() {
                Some(Ok(())) => acknowledged.push(name),
                _ => break,
            }
        }
        sea.sim.clear_file_faults(id);
        if !sea.sim.is_running(id) {
            sea.restart(0);
        }
        sea.expect_normal(0..1);
        let metadata = sea.cluster(0).metadata();
        for name in &acknowledged {
            assert!(
                metadata.schema.keyspaces.contains_key(name),
                "after {operations} operations: {name} was acknowledged and is lost"
            );
        }
        sea.create(0, "afterwards").expect("it goes on");
    }
}
