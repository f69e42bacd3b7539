//! Logged batches on three simulated nodes: they happen wholly or not at all, also when their coordinator dies in the
//! middle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Cluster, Local, SECOND, Shape, addressed, insert, table};
use commitlog::SyncMode;
use coordinator::{ClusterView, CoordinatorError, Handoff, WriteKind};
use hints::{Change, Order};
use mutation::MutationBuilder;
use runtime::sim::CrashKind;
use schema::TableId;
use stdx::planted::{Bug, Planted};
use topology::{Consistency, HostId, Replication};
use uuid::Uuid;

const ONE: Consistency = Consistency::One;

/// A cluster where each row has one copy, and a key for each node that has its copy there.
fn of_one_copy(seed: u64, shards: u32) -> (Cluster, [u8; 3]) {
    of_one_copy_in(
        seed,
        Shape {
            shards,
            ..Shape::default()
        },
    )
}

fn of_one_copy_in(seed: u64, shape: Shape) -> (Cluster, [u8; 3]) {
    let cluster = Cluster::new(
        seed,
        Shape {
            replication: Replication::Simple { factor: 1 },
            hints: true,
            ..shape
        },
    );
    let key_of = |node: u128| {
        let number = cluster.topology.number(HostId(Uuid::from_u128(node + 1)));
        let is_there = |key: &u8| cluster.replicas(&[*key]).iter().all(|r| Some(r.node) == number);
        (0..=u8::MAX).find(is_there).expect("some key is on each node")
    };
    let keys = [key_of(0), key_of(1), key_of(2)];
    (cluster, keys)
}

async fn write(node: Local, keys: [u8; 3], v: &'static [u8]) -> Result<(), CoordinatorError> {
    let mutation = |key: &u8| addressed(insert(&table(), &[*key], 1, v, 10));
    let mutations = keys.iter().map(mutation).collect();
    node.coordinator.writes.write_logged(mutations, &node.dated(ONE)).await
}

/// What the batch left: whether each node has its part.
fn has(cluster: &mut Cluster, from: usize, keys: [u8; 3]) -> [Option<bool>; 3] {
    keys.map(|key| {
        let read = cluster.on(from, move |node| async move { node.select(&[key], ONE).await });
        read.ok().map(|rows: BTreeMap<i32, Vec<u8>>| rows.contains_key(&1))
    })
}

fn open(cluster: &Cluster) -> Vec<usize> {
    let open = |node| cluster.local(node).coordinator.batches.open_count();
    (0..3).map(open).collect()
}

/// Both note a batch before node 0 hears of it: nothing is written before the first of them has answered.
fn slow_down_holders(cluster: &mut Cluster) {
    for holder in [1, 2] {
        let (holder, coordinator) = (cluster.id(holder), cluster.id(0));
        let delay = Duration::from_millis(20);
        cluster.simulation.set_delay(holder, coordinator, delay);
    }
}

/// Begins a batch on node 0, and cuts it off from node 2 when the others hold it: node 1 gets its part, node 2 does
/// not.
fn begin_and_cut(cluster: &mut Cluster, keys: [u8; 3]) {
    slow_down_holders(cluster);
    let output = cluster.spawn(0, move |node| write(node, keys, b"one"));
    let (first, second) = (cluster.local(1), cluster.local(2));
    let is_held = || first.coordinator.batches.open_count() + second.coordinator.batches.open_count() == 2;
    assert!(
        cluster.simulation.run_until(SECOND, is_held),
        "the batch is noted on both"
    );
    cluster.set_link_up(0, 2, false);
    cluster.simulation.run_for(Duration::from_millis(50));
    assert!(output.borrow().is_none(), "it waits for node 2");
    assert_eq!(
        has(cluster, 1, keys)[1..],
        [Some(true), Some(false)],
        "half of it is written"
    );
}

#[test]
fn an_acknowledged_batch_is_there_and_no_note_of_it_is_left() {
    for shards in [1, 2] {
        let (mut cluster, keys) = of_one_copy(1, shards);
        assert_eq!(cluster.on(0, move |node| write(node, keys, b"one")), Ok(()));
        assert_eq!(has(&mut cluster, 1, keys), [Some(true); 3]);
        cluster.simulation.run_for(SECOND);
        assert_eq!(open(&cluster), [0, 0, 0]);
    }
}

/// It waited for both, so one that did not answer delayed every batch by the write timeout.
#[test]
fn a_holder_that_does_not_answer_delays_no_batch() {
    let (mut cluster, keys) = of_one_copy(10, 1);
    let keys = [keys[0], keys[1], keys[1]];
    cluster.set_link_up(0, 2, false);
    let output = cluster.spawn(0, move |node| write(node, keys, b"one"));
    cluster.simulation.run_for(Duration::from_millis(100));
    assert_eq!(output.take(), Some(Ok(())), "node 1 holds it");
}

#[test]
fn a_batch_whose_coordinator_died_in_the_middle_is_completed_by_the_others() {
    let (mut cluster, keys) = of_one_copy(2, 1);
    let keys = [keys[1], keys[1], keys[2]];
    begin_and_cut(&mut cluster, keys);
    cluster.kill(0);
    cluster.set_live(0, false);
    cluster.simulation.run_for(20 * SECOND);
    assert_eq!(
        has(&mut cluster, 1, keys),
        [Some(true); 3],
        "the coordinator never came back"
    );
    for node in [1, 2] {
        assert_eq!(cluster.local(node).coordinator.batches.open_count(), 0, "node {node}");
    }
}

#[test]
fn a_batch_that_is_older_than_the_grace_period_of_its_table_is_not_finished() {
    for (seconds, is_finished) in [(1, true), (60, false)] {
        let shape = Shape {
            gc_grace_seconds: 50,
            ..Shape::default()
        };
        let (mut cluster, keys) = of_one_copy_in(12, shape);
        let keys = [keys[1], keys[1], keys[2]];
        begin_and_cut(&mut cluster, keys);
        (0..3).for_each(|node| cluster.kill(node));
        cluster.set_link_up(0, 2, true);
        cluster.simulation.run_for(seconds * SECOND);
        (0..3).for_each(|node| cluster.start_again(node));
        cluster.simulation.run_for(30 * SECOND);
        assert_eq!(open(&cluster), [0, 0, 0], "after {seconds} s");
        let part = has(&mut cluster, 1, keys)[2];
        assert_eq!(part, Some(is_finished), "after {seconds} s: tombstones may be purged");
    }
}

/// The note of a batch of node 0, as the log has it.
fn note(id: u128) -> Vec<u8> {
    let mut key = id.to_le_bytes().to_vec();
    key.extend_from_slice(Uuid::from_u128(1).as_bytes());
    key.extend_from_slice(&0_u16.to_le_bytes());
    key.extend_from_slice(&runtime::wall_clock_us().to_le_bytes());
    key.push(ONE as u8);
    key.extend_from_slice(&1_u64.to_le_bytes());
    let notes = TableId(Uuid::from_u128(0xce70_ba7c_0000_4000_8000_0000_0000_0001));
    let mut out = Vec::new();
    MutationBuilder::begin(&mut out, notes, &key);
    out
}

#[test]
fn a_batch_in_the_log_without_a_whole_note_is_refused_by_name() {
    let (mut cluster, [key, ..]) = of_one_copy(14, 1);
    let refused = cluster.on(0, move |node| async move {
        let part = insert(&table(), &[key], 1, b"one", 10);
        let mut cut = Vec::new();
        MutationBuilder::begin(
            &mut cut,
            TableId(Uuid::from_u128(0xce70_ba7c_0000_4000_8000_0000_0000_0001)),
            &[7; 43],
        );
        let mut refused = Vec::new();
        for batch in [vec![], vec![part.clone()], vec![cut, part]] {
            refused.push(node.coordinator.batches.resume(7, batch).await);
        }
        refused
    });
    let expected = Err("logged batch 00000000000000000000000000000007 does not begin with its note".to_owned());
    assert_eq!(refused, vec![expected; 3]);
    assert_eq!(open(&cluster), [0, 0, 0]);
}

/// The node alone has the batch, so its tombstones wait for it; a dropped table has none.
#[test]
fn a_batch_of_one_node_is_finished_at_any_age_after_one_of_its_tables_was_dropped() {
    let shape = Shape {
        gc_grace_seconds: 0,
        ..Shape::default()
    };
    let (mut cluster, [key, _, _]) = of_one_copy_in(13, shape);
    let rows = cluster.on(0, move |node| async move {
        let mut dropped = (*table()).clone();
        dropped.id = TableId(Uuid::from_u128(99));
        let parts = [&dropped, &*table()].map(|table| insert(table, &[key], 1, b"one", 10));
        let batch = std::iter::once(note(7)).chain(parts).collect();
        node.coordinator.batches.resume(7, batch).await.expect("the disk works");
        runtime::sleep(Duration::from_millis(10)).await;
        node.coordinator
            .writes
            .finish_batches()
            .await
            .expect("this node is enough");
        node.select(&[key], ONE).await
    });
    assert_eq!(rows, Ok(BTreeMap::from([(1, b"one".to_vec())])));
    assert_eq!(open(&cluster), [0, 0, 0]);
}

/// A table is truncated while a batch waits to be completed. Whether each part is there afterwards.
fn after_a_batch_outlived_a_truncation() -> [Option<bool>; 3] {
    let (mut cluster, keys) = of_one_copy(8, 1);
    begin_and_cut(&mut cluster, keys);
    cluster.kill(0);
    cluster.set_link_up(0, 2, true);
    cluster.start_again(0);
    // The holders note it still, and would ask about it only later.
    let truncated = (0..50).any(|_| {
        cluster.simulation.run_for(Duration::from_millis(20));
        cluster.truncate(1, Duration::ZERO).is_ok()
    });
    assert!(truncated, "the restarted node is connected within a second");
    assert_eq!(has(&mut cluster, 1, keys), [Some(false); 3]);
    cluster.simulation.run_for(60 * SECOND);
    assert_eq!(open(&cluster), [0, 0, 0], "it is finished");
    let found = has(&mut cluster, 1, keys);
    for node in 0..3 {
        cluster.kill(node);
        cluster.start_again(node);
    }
    cluster.simulation.run_for(60 * SECOND);
    assert_eq!(has(&mut cluster, 1, keys), found, "a restart changes nothing");
    found
}

#[test]
fn a_batch_that_waits_to_be_completed_does_not_come_back_behind_a_truncation() {
    assert_eq!(after_a_batch_outlived_a_truncation(), [Some(false); 3]);
}

#[test]
#[cfg(debug_assertions)]
fn that_a_batch_brought_back_what_was_truncated_would_be_seen() {
    let _planted = Planted::new(Some(Bug::BatchOutlivesTruncation));
    assert_eq!(after_a_batch_outlived_a_truncation(), [Some(true); 3]);
}

#[test]
fn a_batch_that_has_just_ended_does_not_come_back_behind_a_truncation_and_a_power_loss() {
    for seed in 0..5 {
        // Batches and their notes are durable when they are acknowledged.
        let shape = Shape {
            sync: SyncMode::Batch,
            ..Shape::default()
        };
        let (mut cluster, [_, first, second]) = of_one_copy_in(seed, shape);
        // The coordinator notes it, and has nothing of the table that it would have to truncate.
        let keys = [first, second, second];
        let written = cluster.on(0, move |node| write(node, keys, b"one"));
        assert_eq!(written, Ok(()), "seed {seed}");
        assert_eq!(cluster.truncate(0, Duration::ZERO), Ok(()), "seed {seed}");
        (0..3).for_each(|node| cluster.crash(node, CrashKind::PowerLoss));
        (0..3).for_each(|node| cluster.start_again(node));
        // As long as the holders of a batch wait until they finish it.
        cluster.simulation.run_for(60 * SECOND);
        let found = has(&mut cluster, 0, keys);
        assert_eq!(found, [Some(false); 3], "seed {seed}: what was truncated is back");
    }
}

const ALL: Consistency = Consistency::All;

/// Begins a batch of two partitions at ALL that node 2 cannot take, and lets its client have a timeout.
fn begin_without_node_2(cluster: &mut Cluster) {
    cluster.kill(2);
    let batch = cluster.on(0, |node| async move {
        let parts = [&b"a"[..], b"b"].map(|key| addressed(insert(&table(), key, 1, b"one", 10)));
        node.coordinator
            .writes
            .write_logged(parts.to_vec(), &node.dated(ALL))
            .await
    });
    assert!(batch.is_err(), "node 2 is a replica of both");
    cluster.set_live(2, false);
}

/// Writes some MiB, and has all of it in files.
fn write_much(cluster: &mut Cluster) {
    cluster.on(0, |node| async move {
        for number in 0..60_u32 {
            let (key, value) = (number.to_be_bytes(), vec![1; 100 << 10]);
            let written = node.insert(&key, 1, &value, 20, Consistency::Quorum).await;
            written.expect("a quorum lives");
        }
    });
    for node in [0, 1] {
        cluster.on(node, |node| async move {
            node.shard.forget_old_log().await;
        });
    }
    cluster.simulation.run_for(5 * SECOND);
    for node in [0, 1] {
        cluster.on(
            node,
            |node| async move { node.shard.flush_all().await.expect("it flushes") },
        );
    }
}

/// What node 2 has of the batch, by itself.
fn parts_on_node_2(cluster: &mut Cluster) -> [bool; 2] {
    [b"a", b"b"].map(|key| {
        let read = cluster.on(2, move |node| async move { node.select(key, ONE).await });
        read.expect("it is a replica").contains_key(&1)
    })
}

/// The note pinned its segment and all later ones until the batch ended.
#[test]
fn a_batch_that_stays_open_holds_few_log_segments_and_is_finished_wherever_its_nodes_are_killed() {
    // Without hints it is open until node 2 is back.
    for step in 0..12 {
        let mut cluster = Cluster::new(20 + step, Shape::default());
        begin_without_node_2(&mut cluster);
        for round in 0..4 {
            write_much(&mut cluster);
            let bytes = [0, 1].map(|node| cluster.local(node).shard.log.bytes() >> 20);
            assert!(bytes.iter().all(|mib| *mib <= 4), "round {round}: {bytes:?} MiB of log");
            assert_eq!(cluster.local(0).coordinator.batches.open_count(), 1, "node 2 is away");
        }
        // The third write begins a new segment; the note is written again within a second, and older segments are
        // released.
        let write = cluster.spawn(0, |node| async move {
            for number in 0..40_u32 {
                let (key, value) = (number.to_be_bytes(), vec![2; 100 << 10]);
                let _ = node.insert(&key, 1, &value, 30, Consistency::Quorum).await;
            }
            node.shard.flush_all().await
        });
        cluster.simulation.run_for(Duration::from_millis(step * 150));
        drop(write);
        let kind = if step % 2 == 0 {
            CrashKind::Kill
        } else {
            CrashKind::PowerLoss
        };
        (0..2).for_each(|node| cluster.crash(node, kind));
        (0..3).for_each(|node| cluster.start_again(node));
        (0..3).for_each(|node| cluster.set_live(node, true));
        cluster.simulation.run_for(30 * SECOND);
        assert_eq!(parts_on_node_2(&mut cluster), [true; 2], "step {step}");
        assert_eq!(open(&cluster), [0, 0, 0], "step {step}");
    }
}

#[test]
fn an_open_batch_ends_with_durable_hints_for_the_replicas_that_do_not_take_it() {
    for kind in [CrashKind::Kill, CrashKind::PowerLoss] {
        let shape = Shape {
            hints: true,
            ..Shape::default()
        };
        let mut cluster = Cluster::new(40, shape);
        begin_without_node_2(&mut cluster);
        cluster.simulation.run_for(90 * SECOND);
        for node in [0, 1] {
            assert_eq!(cluster.local(node).coordinator.batches.open_count(), 0, "node {node}");
        }
        write_much(&mut cluster);
        write_much(&mut cluster);
        (0..2).for_each(|node| cluster.crash(node, kind));
        (0..3).for_each(|node| cluster.start_again(node));
        (0..3).for_each(|node| cluster.set_live(node, true));
        cluster.simulation.run_for(30 * SECOND);
        assert_eq!(parts_on_node_2(&mut cluster), [true; 2]);
    }
}

#[test]
fn hints_that_end_a_batch_outlast_a_power_loss_a_moment_later() {
    for seed in 0..10 {
        let shape = Shape {
            hints: true,
            ..Shape::default()
        };
        let mut cluster = Cluster::new(seed, shape);
        begin_without_node_2(&mut cluster);
        // Node 1 alone is left to finish it.
        cluster.kill(0);
        cluster.set_live(0, false);
        let finishing = cluster.local(1).coordinator;
        let is_ended = cluster
            .simulation
            .run_until(180 * SECOND, || finishing.batches.open_count() == 0);
        assert!(
            is_ended,
            "seed {seed}: hints stand for the replicas that do not take it"
        );
        drop(finishing);
        // The end of the batch is durable, so it is not finished again.
        cluster.on(
            1,
            |node| async move { node.shard.log.sync().await.expect("the disk works") },
        );
        cluster.crash(1, CrashKind::PowerLoss);
        (1..3).for_each(|node| cluster.start_again(node));
        (1..3).for_each(|node| cluster.set_live(node, true));
        cluster.set_live(0, false);
        cluster.simulation.run_for(30 * SECOND);
        assert_eq!(parts_on_node_2(&mut cluster), [true; 2], "seed {seed}");
    }
}

#[test]
fn a_batch_whose_hints_cannot_be_kept_stays_open_until_its_replica_is_back() {
    let shape = Shape {
        hints: true,
        ..Shape::default()
    };
    let mut cluster = Cluster::new(41, shape);
    cluster.on(0, |_| Handoff::order(Order::Allow(Change::Enable(false))));
    cluster.on(1, |_| Handoff::order(Order::Allow(Change::Enable(false))));
    begin_without_node_2(&mut cluster);
    cluster.simulation.run_for(300 * SECOND);
    assert_eq!(cluster.local(0).coordinator.batches.open_count(), 1);
    cluster.start_again(2);
    cluster.set_live(2, true);
    cluster.simulation.run_for(30 * SECOND);
    assert_eq!(parts_on_node_2(&mut cluster), [true; 2]);
    assert_eq!(open(&cluster), [0, 0, 0]);
}

#[test]
fn with_the_bug_planted_an_open_batch_pins_the_log() {
    let _planted = Planted::new(Some(Bug::BatchPinsLog));
    let mut cluster = Cluster::new(20, Shape::default());
    begin_without_node_2(&mut cluster);
    write_much(&mut cluster);
    assert!(cluster.local(0).shard.log.bytes() >> 20 > 4);
}

#[test]
fn hints_that_wait_do_not_come_back_behind_a_truncation() {
    let (mut cluster, keys) = of_one_copy(9, 1);
    cluster.split(&[2]);
    let key = keys[2];
    let written = cluster.on(0, move |node| async move {
        node.insert(&[key], 1, b"one", 10, Consistency::Any).await
    });
    assert_eq!(written, Ok(()), "a hint is stored");
    cluster.heal(&[2]);
    assert_eq!(cluster.truncate(1, Duration::ZERO), Ok(()));
    cluster.simulation.run_for(60 * SECOND);
    let metrics = cluster.hint_metrics(0);
    assert_eq!(
        (metrics.written, metrics.replayed, metrics.waiting_bytes),
        (1, 0, 0),
        "it was waiting, and was passed by"
    );
    assert_eq!(metrics.expired, 0, "a truncation loses nothing");
    assert_eq!(has(&mut cluster, 1, keys)[2], Some(false));
}

#[test]
fn holders_complete_a_batch_without_its_coordinator_even_when_they_were_killed_too() {
    // Two copies of each row: every part has one on the nodes that live.
    let mut cluster = Cluster::new(
        3,
        Shape {
            replication: Replication::Simple { factor: 2 },
            hints: true,
            ..Shape::default()
        },
    );
    let number = cluster
        .topology
        .number(HostId(Uuid::from_u128(1)))
        .expect("it is a member");
    // The coordinator has no part of it, so nothing of it is left there.
    let is_elsewhere = |key: &u8| cluster.replicas(&[*key]).iter().all(|r| r.node != number);
    let keys: Vec<u8> = (0..=u8::MAX).filter(is_elsewhere).take(3).collect();
    let keys: [u8; 3] = keys.try_into().expect("a third of all keys is elsewhere");
    slow_down_holders(&mut cluster);
    let output = cluster.spawn(0, move |node| write(node, keys, b"one"));
    let (first, second) = (cluster.local(1), cluster.local(2));
    let is_held = || first.coordinator.batches.open_count() + second.coordinator.batches.open_count() == 2;
    assert!(
        cluster.simulation.run_until(SECOND, is_held),
        "the batch is noted on both"
    );
    cluster.kill(0);
    drop((first, second));
    assert!(output.borrow().is_none(), "nobody was told that it happened");
    for node in [1, 2] {
        cluster.kill(node);
    }
    for node in [1, 2] {
        cluster.start_again(node);
    }
    cluster.set_live(0, false);
    assert_eq!(has(&mut cluster, 1, keys), [Some(false); 3], "nothing of it was sent");
    cluster.simulation.run_for(20 * SECOND);
    for node in [1, 2] {
        assert_eq!(has(&mut cluster, node, keys), [Some(true); 3], "node {node}");
        assert_eq!(cluster.local(node).coordinator.batches.open_count(), 0, "node {node}");
    }
}

#[test]
fn a_batch_is_completed_by_its_coordinator_when_that_restarts() {
    let (mut cluster, keys) = of_one_copy(4, 1);
    begin_and_cut(&mut cluster, keys);
    cluster.kill(0);
    cluster.set_link_up(0, 2, true);
    cluster.start_again(0);
    cluster.simulation.run_for(3 * SECOND);
    assert_eq!(
        has(&mut cluster, 1, keys),
        [Some(true); 3],
        "before any holder would begin"
    );
    cluster.simulation.run_for(20 * SECOND);
    assert_eq!(open(&cluster), [0, 0, 0], "the holders asked and found that it is done");
}

#[test]
fn in_batch_mode_a_power_loss_of_all_nodes_leaves_no_half_of_a_batch() {
    for seed in 0..20 {
        let shape = Shape {
            shards: 4,
            sync: SyncMode::Batch,
            ..Shape::default()
        };
        let (mut cluster, [_, first, second]) = of_one_copy_in(seed, shape);
        let keys = [first, first, second];
        let shard = cluster.replicas(&[first])[0].shard;
        assert_ne!(shard, 0, "to sync this part syncs no note");
        for key in keys {
            let connected = cluster.on(
                0,
                move |node| async move { node.insert(&[key], 2, b"other", 10, ONE).await },
            );
            assert_eq!(connected, Ok(()), "seed {seed}");
        }
        begin_and_cut(&mut cluster, keys);
        (0..3).for_each(|node| cluster.crash(node, CrashKind::PowerLoss));
        cluster.set_link_up(0, 2, true);
        (0..3).for_each(|node| cluster.start_again(node));
        cluster.simulation.run_for(60 * SECOND);
        assert_eq!(has(&mut cluster, 0, keys), [Some(true); 3], "seed {seed}");
    }
}

#[test]
fn a_batch_that_timed_out_is_completed_when_its_replica_answers_again() {
    let (mut cluster, keys) = of_one_copy(5, 1);
    begin_and_cut(&mut cluster, keys);
    cluster.simulation.run_for(30 * SECOND);
    assert!(
        cluster.local(0).coordinator.batches.open_count() == 1,
        "it is tried again and again"
    );
    cluster.set_link_up(0, 2, true);
    cluster.simulation.run_for(30 * SECOND);
    assert_eq!(has(&mut cluster, 1, keys), [Some(true); 3]);
    assert_eq!(open(&cluster), [0, 0, 0]);
}

/// It was answered as unavailable, which says that nothing happens, and a node that had noted it finished it.
#[test]
fn a_batch_whose_replica_dies_when_it_is_noted_is_not_refused_because_it_will_be_finished() {
    let (mut cluster, keys) = of_one_copy(8, 1);
    for node in [1, 2] {
        let (holder, coordinator) = (cluster.id(node), cluster.id(0));
        cluster
            .simulation
            .set_delay(holder, coordinator, Duration::from_millis(300));
    }
    let output = cluster.spawn(0, move |node| write(node, keys, b"one"));
    let (first, second) = (cluster.local(1), cluster.local(2));
    let is_held = || first.coordinator.batches.open_count() + second.coordinator.batches.open_count() == 2;
    assert!(cluster.simulation.run_until(SECOND, is_held), "it is noted on both");
    cluster.set_live(2, false);
    cluster.simulation.run_for(2 * SECOND);
    let answer = output.take().expect("it is answered");
    let says_that_it_may_happen = matches!(
        answer,
        Err(CoordinatorError::WriteTimeout {
            kind: WriteKind::Batch,
            ..
        })
    );
    assert!(says_that_it_may_happen, "{answer:?}");
    cluster.set_live(2, true);
    cluster.simulation.run_for(30 * SECOND);
    assert_eq!(has(&mut cluster, 1, keys), [Some(true); 3]);
    assert_eq!(open(&cluster), [0, 0, 0]);
}

#[test]
fn wherever_the_coordinator_is_killed_a_batch_happens_wholly_or_not_at_all() {
    let (mut whole, mut none) = (0, 0);
    for step in 0..60 {
        let (mut cluster, keys) = of_one_copy(100 + step, 1);
        let output = cluster.spawn(0, move |node| write(node, keys, b"one"));
        cluster.simulation.run_for(Duration::from_micros(step * 60));
        let acknowledged = *output.borrow() == Some(Ok(()));
        cluster.kill(0);
        cluster.set_live(0, false);
        if step % 2 == 0 {
            cluster.simulation.run_for(15 * SECOND);
        }
        cluster.start_again(0);
        cluster.set_live(0, true);
        cluster.simulation.run_for(30 * SECOND);
        let found = has(&mut cluster, 1, keys);
        let expected = [found[0]; 3];
        assert_eq!(found, expected, "killed after {} microseconds", step * 60);
        assert!(!acknowledged || found[0] == Some(true), "acknowledged and not there");
        assert_eq!(open(&cluster), [0, 0, 0], "killed after {} microseconds", step * 60);
        if found[0] == Some(true) { whole += 1 } else { none += 1 }
    }
    assert!(whole > 5 && none > 0, "{whole} happened, {none} did not");
}

#[test]
fn a_batch_that_no_other_node_can_note_is_refused_and_nothing_of_it_is_written() {
    let (mut cluster, keys) = of_one_copy(7, 1);
    // Only keys of the coordinator itself, so that its replicas live.
    let keys = [keys[0]; 3];
    cluster.split(&[0]);
    let refused = cluster.on(0, move |node| write(node, keys, b"one"));
    let is_timeout = matches!(
        refused,
        Err(CoordinatorError::WriteTimeout {
            kind: WriteKind::BatchLog,
            ..
        })
    );
    assert!(is_timeout, "{refused:?}");
    for node in [1, 2] {
        cluster.set_live(node, false);
    }
    let refused = cluster.on(0, move |node| write(node, keys, b"one"));
    assert!(matches!(refused, Err(CoordinatorError::Unavailable(_))), "{refused:?}");
    assert_eq!(cluster.local(0).coordinator.batches.open_count(), 0);
    cluster.simulation.run_for(20 * SECOND);
    assert_eq!(has(&mut cluster, 0, keys), [Some(false); 3]);
}

/// The cluster as a node sees it, as of a command of its metadata, with so many copies of each row.
fn view(cluster: &Cluster, node: usize, version: u64, copies: u16) -> Arc<ClusterView> {
    let host = HostId(Uuid::from_u128(node as u128 + 1));
    let keyspaces = [("sea", Replication::Simple { factor: copies }, vec![cluster.table.id])];
    let view = ClusterView::new(cluster.topology.clone(), host, keyspaces.into_iter(), &BTreeMap::new());
    Arc::new(view.expect("the node is a member").at(version, 0))
}

/// Node 1 has both rows of a batch as node 0 knows it, and refuses the batch because other nodes are to have copies of
/// them, too. Whether the batch is noted before it is written again.
fn is_noted_when_its_replicas_part(planted: Option<Bug>) -> bool {
    let _planted = Planted::new(planted);
    let (mut cluster, [_, key, _]) = of_one_copy(11, 1);
    let is_beside = |other: &u8| *other != key && cluster.replicas(&[*other]) == cluster.replicas(&[key]);
    let other = (0..=u8::MAX).find(is_beside).expect("node 1 has several keys");
    for node in [0, 2] {
        cluster.local(node).coordinator.take_view(view(&cluster, node, 4, 1));
    }
    let newer = view(&cluster, 1, 5, 2);
    cluster.on(1, move |local| async move {
        let store = local.shard.store(table().id).expect("the table is open");
        local.coordinator.take_view(newer);
        store.set_version(5, 5, 0);
    });
    let written = cluster.spawn(0, move |node| async move {
        let mutation = |key: u8| addressed(insert(&table(), &[key], 1, b"one", 10));
        let mutations = [key, other].map(mutation).into_iter().collect();
        node.coordinator.writes.write_batch(mutations, &node.dated(ONE)).await
    });
    cluster.simulation.run_for(Duration::from_millis(100));
    assert!(
        written.borrow().is_none(),
        "it waits for the view in which others have copies"
    );
    slow_down_holders(&mut cluster);
    for node in [0, 2] {
        cluster.local(node).coordinator.take_view(view(&cluster, node, 5, 2));
    }
    let (first, second) = (cluster.local(1), cluster.local(2));
    let is_held = || first.coordinator.batches.open_count() + second.coordinator.batches.open_count() == 2;
    let is_noted = cluster.simulation.run_until(SECOND, is_held);
    cluster.simulation.run_for(SECOND);
    assert_eq!(written.take(), Some(Ok(())));
    let there = [key, other].map(|key| {
        let read = cluster.on(1, move |node| async move { node.select(&[key], ONE).await });
        read.map(|rows| rows.len())
    });
    assert_eq!(there, [Ok(1), Ok(1)]);
    is_noted
}

#[test]
fn a_batch_that_one_replica_had_alone_is_noted_when_its_replicas_part() {
    assert!(is_noted_when_its_replicas_part(None));
}

#[test]
fn that_a_batch_is_written_again_without_a_note_would_be_seen() {
    assert!(!is_noted_when_its_replicas_part(Some(Bug::BatchAgainWithoutNote)));
}
