//! Which replicas' answers a request needs, and what replicas have when it is answered, on simulated nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::support;
use crate::support::{Cluster, Local, SECOND, Shape, addition, addressed, counters, insert, partition, table};
use commitlog::Replay;
use coordinator::{CasRequest, ClusterView, CoordinatorError, Decision, Levels, Origin, ReadResult, Stamp, apply};
use mutation::compact::{LiveColumn, LiveRow};
use mutation::{Addressed, Mutation, MutationBuilder, RowView, Tombstone};
use smallvec::SmallVec;
use topology::{
    Boundaries, Consistency, HostId, NodeNumber, Replica, ReplicaList, Replication, Stage, TabletChange, TabletEdit,
    TabletId, TabletMap, Transition,
};
use types::Token;
use types::token::token_of;
use uuid::Uuid;

const ALL: Consistency = Consistency::All;
const ONE: Consistency = Consistency::One;
const QUORUM: Consistency = Consistency::Quorum;

/// Gives one replica alone a row.
fn write_at(cluster: &mut Cluster, node: usize, key: u8, c: i32, timestamp: i64) {
    cluster.on(node, move |node: Local| async move {
        let bytes = insert(&table(), &[key], c, &timestamp.to_be_bytes(), timestamp);
        let store = node.shard.store(table().id).expect("the table is open");
        let mutation = Mutation::new(&bytes).expect("a whole mutation");
        node.shard
            .write(&store, token_of(&[key]), &mutation)
            .expect("there is room")
            .is_not_awaited();
    });
}

fn select(cluster: &mut Cluster, node: usize, key: u8, level: Consistency) -> BTreeMap<i32, Vec<u8>> {
    let read = cluster.on(node, move |node| async move { node.select(&[key], level).await });
    read.expect("all live")
}

fn row(timestamp: i64) -> BTreeMap<i32, Vec<u8>> {
    BTreeMap::from([(0, timestamp.to_be_bytes().to_vec())])
}

#[test]
fn the_newest_value_is_found_whichever_replica_has_it() {
    for newest in 0..3 {
        for from in 0..3 {
            let mut cluster = Cluster::new(1, Shape::default());
            (0..3).for_each(|node| write_at(&mut cluster, node, 0, 0, 10));
            write_at(&mut cluster, newest, 0, 0, 20);
            let read = select(&mut cluster, from, 0, ALL);
            assert_eq!(read, row(20), "node {newest} has it, read by node {from}");
        }
    }
}

#[test]
fn a_read_is_unavailable_while_there_are_no_connections_to_replicas_that_are_taken_to_live() {
    let mut cluster = Cluster::new(3, Shape::default());
    write_at(&mut cluster, 0, 0, 0, 10);
    // They are not marked as down yet.
    (1..3).for_each(|node| cluster.kill(node));
    let mut is_refused = || match cluster.on(0, |node| async move { node.select(&[0], QUORUM).await }) {
        Err(CoordinatorError::Unavailable(unavailable)) => {
            assert_eq!((unavailable.required, unavailable.alive), (2, 1));
            true
        }
        // The end of a connection is not known at once.
        Err(CoordinatorError::ReadTimeout { .. }) => false,
        other => panic!("{other:?}"),
    };
    assert!((0..10).any(|_| is_refused()), "no read was refused at once");
    assert!(is_refused(), "the next one is refused, too");
}

#[test]
fn a_read_times_out_where_replicas_that_can_be_reached_are_enough_and_say_nothing() {
    let mut cluster = Cluster::new(4, Shape::default());
    write_at(&mut cluster, 0, 0, 0, 10);
    cluster.kill(1);
    // Until the end of the connection is known; the node is not marked as down.
    for _ in 0..4 {
        cluster.on(0, |node| async move {
            node.select(&[0], QUORUM).await.map(drop).unwrap_or_default()
        });
    }
    cluster.split(&[2]);
    let read = cluster.on(0, |node| async move { node.select(&[0], QUORUM).await });
    assert!(matches!(read, Err(CoordinatorError::ReadTimeout { .. })), "{read:?}");
}

/// Nodes to which hints are kept.
fn hinted(cluster: &mut Cluster) -> Vec<HostId> {
    cluster.on(0, |node| async move {
        node.coordinator.hints.kept().expect("it keeps hints").targets()
    })
}

/// A cluster of so many nodes that keeps hints, and how writes to a key end right after all other nodes have died. None
/// of these is marked as down yet, except one if `one_is_missed`.
fn written_when_others_died(
    nodes: usize,
    (level, one_is_missed): (Consistency, bool),
    key: impl Fn(&Cluster) -> u8,
) -> (Cluster, Vec<CoordinatorError>) {
    let shape = Shape {
        datacenters: vec!["north"; nodes],
        hints: true,
        ..Shape::default()
    };
    let mut cluster = Cluster::new(3, shape);
    let key = key(&cluster);
    (1..nodes).for_each(|node| cluster.kill(node));
    // Node 0 notices that the connections have ended.
    cluster.simulation.run_for(SECOND);
    if one_is_missed {
        cluster.set_live(1, false);
    }
    let write = |c: i32| {
        let written = cluster.on(
            0,
            move |node| async move { node.insert(&[key], c, b"v", 10, level).await },
        );
        written.expect_err("a quorum is dead")
    };
    let errors = (0..10).map(write).collect();
    (cluster, errors)
}

#[test]
fn a_write_is_no_failure_while_there_are_no_connections_to_replicas_that_are_taken_to_live() {
    let (mut cluster, errors) = written_when_others_died(3, (QUORUM, false), |_| 0);
    for error in errors {
        match error {
            CoordinatorError::WriteTimeout { tally, missing, .. } => {
                assert_eq!((tally.received, tally.block_for), (1, 2), "this node has it");
                assert!(
                    missing.contains("10.0.0.2") && missing.contains("10.0.0.3"),
                    "{missing}"
                );
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(hinted(&mut cluster).len(), 2, "a node has it, so the others get it");
}

/// A key of which the first node has no copy.
fn on_the_others(cluster: &Cluster) -> u8 {
    let has_it = |key: &u8| {
        !cluster
            .replicas(&[*key])
            .iter()
            .any(|replica| replica.node == NodeNumber(0))
    };
    (0..=u8::MAX)
        .find(has_it)
        .expect("some keys are on the other nodes alone")
}

#[test]
fn a_write_is_unavailable_when_there_is_no_connection_to_any_replica() {
    let (mut cluster, errors) = written_when_others_died(4, (QUORUM, false), on_the_others);
    for error in errors {
        match error {
            CoordinatorError::Unavailable(unavailable) => {
                assert_eq!((unavailable.required, unavailable.alive), (2, 0));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(hinted(&mut cluster), [], "what is refused comes to nobody later");
}

#[test]
fn a_write_that_is_unavailable_leaves_no_hint_for_a_replica_that_is_down() {
    let (mut cluster, errors) = written_when_others_died(4, (Consistency::One, true), on_the_others);
    for error in errors {
        assert!(matches!(error, CoordinatorError::Unavailable(_)), "{error:?}");
    }
    assert_eq!(hinted(&mut cluster), [], "what is refused comes to nobody later");
}

#[test]
fn what_a_read_at_quorum_returns_two_replicas_have_though_one_takes_no_writes() {
    let mut cluster = Cluster::new(2, Shape::default());
    // It still answers reads, so it is asked, and its repair fails.
    cluster.on(1, |node| async move { node.shard.close() });
    for key in 0..8 {
        write_at(&mut cluster, 0, key, 0, 10);
        // Until the node that has it is asked.
        while select(&mut cluster, 0, key, QUORUM) != row(10) {}
        assert_eq!(select(&mut cluster, 2, key, ONE), row(10), "key {key}");
    }
}

#[test]
fn replicas_whose_answers_end_at_different_rows_are_merged_row_by_row() {
    for (step, rows) in [(2, 1), (2, 3), (2, 7), (3, 3), (3, 100)] {
        let shape = Shape {
            replication: Replication::Simple { factor: 2 },
            datacenters: vec!["north"; 2],
            ..Shape::default()
        };
        let mut cluster = Cluster::new(3, shape);
        for c in 0..30 {
            write_at(&mut cluster, usize::from(c % step == 0), 0, c, 10);
        }
        let found = cluster.on(0, move |node: Local| async move {
            let mut read = node.read(&table(), partition(&[0]), ALL, rows)?;
            let mut found = Vec::new();
            while let Some(block) = read.next_block().await? {
                found.extend(support::live_rows(&table(), std::slice::from_ref(&block)));
            }
            Ok::<_, CoordinatorError>(found)
        });
        assert_eq!(found, Ok((0..30).collect::<Vec<i32>>()), "by {rows} rows");
    }
}

#[test]
fn a_replica_that_is_asked_for_data_after_its_digest_counts_once() {
    let mut cluster = Cluster::new(4, Shape::default());
    (0..3).for_each(|node| write_at(&mut cluster, node, 0, 0, 10));
    // The nearest replica, which sends data, cannot read.
    cluster.on(0, |node| async move {
        node.shard.drop_table(table().id).await.expect("the disk works");
    });
    let read = cluster.on(0, |node| async move { node.select(&[0], ALL).await });
    assert!(
        matches!(
            read,
            Err(CoordinatorError::ReadFailure { .. } | CoordinatorError::ReadTimeout { .. })
        ),
        "{read:?}"
    );
}

fn replica(node: u16) -> Replica {
    Replica {
        node: NodeNumber(node),
        shard: 0,
    }
}

/// A view of node 0: one tablet on these nodes, which perhaps moves to others.
fn view(cluster: &Cluster, replicas: &[u16], next: Option<&[u16]>) -> ClusterView {
    let list = |nodes: &[u16]| -> ReplicaList { nodes.iter().map(|node| replica(*node)).collect() };
    let mut map = TabletMap::new(1, Boundaries::PowerOfTwo(0), &[list(replicas)]).expect("a map");
    if let Some(next) = next {
        let transition = Transition {
            stage: Stage::WriteBothReadOld,
            next: list(next),
            version: 2,
            copied: SmallVec::new(),
        };
        let edit = TabletEdit {
            tablet: TabletId(0),
            replicas: list(replicas),
            transition: Some(transition),
        };
        let change = TabletChange {
            from_version: 1,
            version: 2,
            edits: vec![edit],
        };
        map.apply(&change).expect("a change");
    }
    let factor = u16::try_from(replicas.len()).expect("few");
    with_factor(cluster, map, factor)
}

fn with_factor(cluster: &Cluster, map: TabletMap, factor: u16) -> ClusterView {
    let keyspaces = [("sea", Replication::Simple { factor }, vec![table().id])];
    let tablets = BTreeMap::from([(table().id, Arc::new(map))]);
    let host = HostId(Uuid::from_u128(1));
    ClusterView::new(cluster.topology.clone(), host, keyspaces.into_iter(), &tablets).expect("a member")
}

#[test]
fn a_node_answers_alone_only_where_nobody_else_has_a_copy_or_will_have_one() {
    let cluster = Cluster::new(5, Shape::default());
    let here = |replicas: &[u16], next: Option<&[u16]>| {
        let view = view(&cluster, replicas, next);
        let route = view.route(table().id).expect("a table of the view");
        (route.read_here, route.write_here)
    };
    let (reads, writes) = here(&[0], None);
    assert!(
        reads.contains(QUORUM) && writes.contains(QUORUM),
        "the only copy is here"
    );
    let (reads, writes) = here(&[0, 1, 2], None);
    assert!(reads.contains(ONE) && !reads.contains(QUORUM));
    assert_eq!(writes, Levels::NONE, "the others need it too");
    assert_eq!(here(&[0], Some(&[1])), (Levels::NONE, Levels::NONE), "it moves away");
    assert_eq!(here(&[1], None), (Levels::NONE, Levels::NONE));
}

/// What a quorum acknowledged may be on the two others.
#[test]
fn a_node_reads_a_quorum_of_the_copies_that_a_tablet_has_until_it_has_as_few_as_are_wanted() {
    let cluster = Cluster::new(7, Shape::default());
    let all: ReplicaList = (0..3).map(replica).collect();
    let map = TabletMap::new(1, Boundaries::PowerOfTwo(0), &[all]).expect("a map");
    let view = with_factor(&cluster, map, 1);
    let route = view.route(table().id).expect("a table of the view");
    assert!(route.read_here.contains(ONE) && !route.read_here.contains(QUORUM));
    assert!(route.reads_alone(replica(0), Token(7), ONE));
    assert!(!route.reads_alone(replica(0), Token(7), QUORUM));
}

#[test]
fn a_write_needs_the_replica_that_a_tablet_gains() {
    let mut cluster = Cluster::new(6, Shape::default());
    let moving = view(&cluster, &[0], Some(&[1]));
    cluster.local(0).coordinator.set_view(Arc::new(moving));
    cluster.set_live(1, false);
    let written = cluster.on(0, |node| async move { node.insert(b"key", 1, b"one", 10, ONE).await });
    let Err(CoordinatorError::Unavailable(unavailable)) = written else {
        panic!("the replica that is read has it, and the one that will be read has not: {written:?}");
    };
    assert_eq!(
        (unavailable.required, unavailable.alive),
        (1, 0),
        "of those that will be read"
    );
}

async fn add(node: Local, number: i64) -> Result<(), CoordinatorError> {
    let additions = vec![addressed(addition(b"k", number))];
    node.coordinator.counters.add(additions, &node.dated(ALL)).await
}

/// The counter's value as a client sees it.
async fn counted(node: Local) -> Result<i64, CoordinatorError> {
    let mut read = node.read(&counters(), partition(b"k"), QUORUM, 100)?;
    let mut sum = 0;
    while let Some(block) = read.next_block().await? {
        let of_row = |row: RowView<'_>| -> i64 {
            let table = counters();
            let columns = LiveRow::new(row, &table.layout, block.tombstone, 0).columns();
            let elements = columns.filter_map(|(_, column)| match column {
                LiveColumn::Complex(elements) => Some(elements),
                LiveColumn::Simple(_) => None,
            });
            let number = |value: &[u8]| i64::from_be_bytes(value.try_into().expect("eight bytes"));
            elements.flatten().map(|(_, cell)| number(cell.value)).sum()
        };
        sum += block.rows().map(|(_, row)| of_row(row)).sum::<i64>();
    }
    Ok(sum)
}

#[test]
fn an_addition_counts_after_the_clock_of_its_leader_went_back() {
    let mut cluster = Cluster::new(7, Shape::default());
    assert_eq!(cluster.on(0, |node| add(node, 1)), Ok(()));
    let node = cluster.id(0);
    cluster.simulation.jump_clock_us(node, -3_600_000_000);
    assert_eq!(cluster.on(0, |node| add(node, 2)), Ok(()));
    assert_eq!(cluster.on(1, counted), Ok(3));
}

#[test]
fn an_addition_counts_behind_a_deletion_by_a_clock_that_is_ahead() {
    let mut cluster = Cluster::new(8, Shape::default());
    assert_eq!(cluster.on(0, |node| add(node, 1)), Ok(()));
    let deleted = cluster.on(0, |node: Local| async move {
        let mut out = Vec::new();
        let tombstone = Tombstone {
            timestamp: runtime::wall_clock_us() + 3_600_000_000,
            deletion_time: u32::try_from(runtime::wall_clock_us() / 1_000_000).expect("seconds"),
        };
        MutationBuilder::begin(&mut out, counters().id, b"k").partition_tombstone(tombstone);
        let mutations = vec![addressed(out)];
        let kind = coordinator::WriteKind::Simple;
        node.coordinator
            .writes
            .write(mutations, &node.dated(ALL), kind, coordinator::Atomicity::Mutation)
            .await
    });
    assert_eq!(deleted, Ok(()));
    assert_eq!(cluster.on(1, counted), Ok(0));
    assert_eq!(cluster.on(0, |node| add(node, 5)), Ok(()));
    assert_eq!(cluster.on(1, counted), Ok(5));
}

#[test]
fn additions_of_which_one_was_made_are_not_answered_as_refused() {
    let mut cluster = Cluster::new(9, Shape::default());
    let added = cluster.on(0, |node: Local| async move {
        // The second is no addition at all, which its leader finds when the first is made.
        let additions = vec![
            addressed(addition(b"k", 1)),
            addressed(insert(&table(), b"k", 1, b"no number", 10)),
        ];
        node.coordinator.counters.add(additions, &node.dated(ALL)).await
    });
    assert!(matches!(added, Err(CoordinatorError::WriteFailure { .. })), "{added:?}");
    cluster.simulation.run_for(Duration::from_secs(1));
    assert_eq!(cluster.on(1, counted), Ok(1));
}

#[test]
fn a_conditional_statement_is_decided_above_a_row_that_has_its_very_timestamp() {
    let mut cluster = Cluster::new(10, Shape::default());
    let (applied, asked) = cluster.on(0, |node: Local| async move {
        let request = CasRequest {
            table: table(),
            key: b"k".to_vec(),
            reads: vec![support::read_of(b"k")],
            now: 0,
            serial: Consistency::Serial,
            commit: QUORUM,
            deadline: runtime::now() + SECOND,
            contention_deadline: runtime::now() + SECOND,
            timestamp_us: runtime::wall_clock_us(),
            memory: None,
        };
        let mut asked: Vec<i64> = Vec::new();
        let mut decide = |_: &mut [ReadResult], timestamp: i64| {
            asked.push(timestamp);
            match asked.len() {
                1 => Decision::Above(timestamp),
                _ => Decision::Write(insert(&table(), b"k", 0, b"v", timestamp)),
            }
        };
        let applied = node.coordinator.cas.compare_and_set(&request, &mut decide).await;
        (applied, asked)
    });
    assert_eq!(applied, Ok(true));
    assert!(asked.len() == 2 && asked[1] > asked[0], "{asked:?}");
}

#[test]
fn a_replica_that_does_not_learn_a_decision_gets_a_hint() {
    let shape = Shape {
        hints: true,
        ..Shape::default()
    };
    let mut cluster = Cluster::new(11, shape);
    cluster.on(2, |node| async move { node.shard.close() });
    let swapped = cluster.on(0, |node: Local| async move {
        node.swap(b"k", (0, 1), (Consistency::Serial, QUORUM), SECOND).await
    });
    assert_eq!(swapped, Ok(Ok(())));
    cluster.simulation.run_for(Duration::from_millis(100));
    let targets = cluster.on(0, |node: Local| async move {
        let hints = node.coordinator.hints.kept().expect("it keeps hints");
        hints.targets()
    });
    assert_eq!(targets, [HostId(Uuid::from_u128(3))]);
}

#[test]
fn a_write_that_a_silent_replica_may_have_is_not_answered_as_refused() {
    let shape = Shape {
        datacenters: vec!["north"; 4],
        ..Shape::default()
    };
    let mut cluster = Cluster::new(12, shape);
    let node_of = |cluster: &Cluster, replica: &Replica| {
        let is_it = |node: &usize| {
            let host = HostId(Uuid::from_u128(*node as u128 + 1));
            cluster.topology.number(host) == Some(replica.node)
        };
        (0..4).find(is_it).expect("a node of the cluster")
    };
    let replicas = |cluster: &Cluster, key: u8| -> Vec<usize> {
        let replicas = cluster.replicas(&[key]);
        replicas.iter().map(|replica| node_of(cluster, replica)).collect()
    };
    let key = (0..=u8::MAX).find(|key| !replicas(&cluster, *key).contains(&0));
    let key = key.expect("some keys are on the other nodes alone");
    let replicas = replicas(&cluster, key);
    for node in &replicas[..2] {
        cluster.on(*node, |node| async move { node.shard.close() });
    }
    // It is unknown whether the third has it.
    cluster.set_link_up(replicas[2], 0, false);
    let written = cluster.on(0, move |node| async move {
        node.insert(&[key], 1, b"one", 10, QUORUM).await
    });
    assert!(
        matches!(written, Err(CoordinatorError::WriteFailure { .. })),
        "{written:?}"
    );
}

#[test]
fn mutations_that_count_all_or_not_at_all_are_one_record_of_the_log() {
    let mut cluster = Cluster::new(13, Shape::default());
    let positions = cluster.on(0, |node: Local| async move {
        let mutations: Vec<_> = [1u8, 2]
            .map(|key| addressed(insert(&table(), &[key], 1, b"one", 10)))
            .into();
        let located: Vec<_> = mutations.iter().map(Addressed::located).collect();
        let applied = apply(&node.shard, &located, true, Origin::Local, Stamp::PRESENT).await;
        applied.expect("the disk works");
        let mut replay = Replay::open("/log".as_ref(), runtime::boot_id(), 0, 1).expect("the log is whole");
        let mut positions = Vec::new();
        let mut note = |record: commitlog::Record<'_>| {
            positions.push(record.position);
            Ok(())
        };
        while replay.next_segment(&mut note).expect("the log is whole") {}
        positions
    });
    assert_eq!(positions.len(), 2);
    assert_eq!(positions[0], positions[1], "a crash leaves both or none");
}

#[test]
fn a_read_at_local_quorum_returns_nothing_that_only_another_datacenter_could_be_told() {
    let factors = [("north".to_owned(), 2.into()), ("south".to_owned(), 1.into())];
    let shape = Shape {
        datacenters: vec!["north", "north", "south"],
        replication: Replication::NetworkTopology(factors.into()),
        ..Shape::default()
    };
    let mut cluster = Cluster::new(14, shape);
    // It still answers reads, so it is asked, and its repair fails.
    cluster.on(1, |node| async move { node.shard.close() });
    write_at(&mut cluster, 0, 0, 0, 10);
    let read = cluster.on(
        0,
        |node| async move { node.select(&[0], Consistency::LocalQuorum).await },
    );
    assert!(
        matches!(read, Err(CoordinatorError::ReadFailure { .. })),
        "one node of the north has the row, which is no quorum: {read:?}"
    );
}
