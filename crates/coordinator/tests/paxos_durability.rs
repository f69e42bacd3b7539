//! What conditional statements have decided outlasts power losses, replicas that learn late, and deletions.

use std::time::Duration;

use crate::support;
use crate::support::{Cluster, SECOND, Shape, insert, read_of, rows, table};
use coordinator::{CasRequest, Decision, ReadResult};
use mutation::PartitionBlock;
use runtime::sim::CrashKind;
#[cfg(debug_assertions)]
use stdx::planted::{Bug, Planted};
use topology::Consistency;

const LEVELS: (Consistency, Consistency) = (Consistency::Serial, Consistency::Quorum);

/// A statement is applied on two of three replicas. One of them, `partner`, only accepted it; the other loses its power
/// the moment after its timer wrote what it had learned. Whether the two then agree that nothing was ever applied.
fn is_forgotten(seed: u64, partner: usize) -> bool {
    let third = 3 - partner;
    let mut cluster = Cluster::new(seed, Shape::default());
    // Longer than a sector, so that the mutation and the note about it are lost or kept apart.
    let key: &'static [u8] = &[b'k'; 700];
    let connected = cluster.on(
        0,
        |node| async move { node.swap(b"other", (0, 1), LEVELS, SECOND).await },
    );
    assert_eq!(connected, Ok(Ok(())));
    cluster.simulation.run_for(3 * SECOND);
    let (from, to) = (cluster.id(0), cluster.id(partner));
    cluster.simulation.set_delay(from, to, Duration::from_millis(8));
    let swapped = cluster.on(
        0,
        move |node| async move { node.swap(key, (0, 7), LEVELS, SECOND).await },
    );
    if swapped != Ok(Ok(())) {
        return false;
    }
    cluster.kill(partner);
    cluster.simulation.set_delay(from, to, Duration::ZERO);
    cluster.on(third, |node| async move {
        node.coordinator.cas.note_learned().await.expect("the log takes it")
    });
    cluster.crash(third, CrashKind::PowerLoss);
    cluster.start_again(partner);
    cluster.start_again(third);
    cluster.simulation.run_for(SECOND);
    cluster.split(&[0]);
    let again = cluster.on(partner, move |node| async move {
        node.swap(key, (0, 9), LEVELS, 5 * SECOND).await
    });
    again == Ok(Ok(()))
}

fn seeds_that_forget(seeds: std::ops::Range<u64>) -> Vec<(u64, usize)> {
    let plays = seeds.flat_map(|seed| [(seed, 1), (seed, 2)]);
    plays.filter(|(seed, partner)| is_forgotten(*seed, *partner)).collect()
}

#[test]
fn what_was_applied_is_known_after_a_power_loss_of_a_replica_that_only_learned_it() {
    assert_eq!(seeds_that_forget(0..60), []);
}

#[test]
#[cfg(debug_assertions)]
fn that_a_note_outlived_its_mutation_would_be_seen() {
    let _planted = Planted::new(Some(Bug::UnsyncedNote));
    // One of seventy plays shows it, so the chance that none of these does is below one in a thousand.
    assert!((0..300).any(|seed| is_forgotten(seed, 1) || is_forgotten(seed, 2)));
}

/// A proposal stays with one acceptor, which lost its power; the row is deleted everywhere, and the deletion is older
/// than the table's grace. What a serial read sees after every replica was compacted.
fn after_a_purge(seed: u64) -> u64 {
    let shape = Shape {
        gc_grace_seconds: 1,
        ..Shape::default()
    };
    let mut cluster = Cluster::new(seed, shape);
    let proposed = cluster.on(0, |node| async move {
        node.swap(b"key", (0, 2), (Consistency::Serial, Consistency::Any), SECOND)
            .await
    });
    assert_eq!(proposed, Ok(Ok(())));
    cluster.crash(0, CrashKind::PowerLoss);
    cluster.start_again(0);
    cluster.simulation.run_for(SECOND);
    let deleted = cluster.on(1, |node| async move {
        let now = runtime::wall_clock_us();
        node.delete(b"key", 0, now, Consistency::All).await
    });
    assert_eq!(deleted, Ok(()));
    cluster.simulation.run_for(20 * SECOND);
    for node in 0..3 {
        cluster.on(node, |node| async move {
            node.shard.flush_all().await.expect("it flushes");
            node.shard.forget_old_log().await;
            node.shard.compact_all().await.expect("it compacts");
        });
    }
    let read = cluster.on(2, |node| async move {
        node.read_register(b"key", Consistency::Serial, SECOND).await
    });
    read.expect("nothing is broken")
}

#[test]
fn a_deleted_row_does_not_return_with_a_proposal_from_before_the_deletion() {
    for seed in 0..5 {
        assert_eq!(after_a_purge(seed), 0, "seed {seed}: the row was deleted everywhere");
    }
}

#[test]
#[cfg(debug_assertions)]
fn that_a_tombstone_was_purged_too_early_would_be_seen() {
    let _planted = Planted::new(Some(Bug::EarlyPurge));
    assert!((0..5).any(|seed| after_a_purge(seed) != 0));
}

/// The numbers in rows 0 and 1 of a partition.
fn two_rows<'b>(blocks: impl Iterator<Item = &'b PartitionBlock>) -> (u64, u64) {
    let blocks: Vec<PartitionBlock> = blocks.cloned().collect();
    let found = rows(&table(), &blocks);
    let number = |c| {
        found
            .get(&c)
            .map_or(0, |v| u64::from_be_bytes(v[..].try_into().expect("eight bytes")))
    };
    (number(0), number(1))
}

/// Sets the row with the smaller number to one above the other: the two are always neighbours.
async fn climb(node: &support::Local, key: &[u8]) -> bool {
    let table = table();
    let request = CasRequest {
        table: table.clone(),
        key: key.to_vec(),
        reads: vec![read_of(key)],
        now: 1,
        serial: Consistency::Serial,
        commit: Consistency::One,
        deadline: runtime::now() + SECOND,
        contention_deadline: runtime::now() + SECOND,
        timestamp_us: runtime::wall_clock_us(),
        memory: None,
    };
    let mut decide = |found: &mut [ReadResult], timestamp: i64| {
        let (zero, one) = two_rows(found[0].blocks.iter());
        let (c, number) = if zero <= one { (0, one + 1) } else { (1, zero + 1) };
        Decision::Write(insert(&table, key, c, &number.to_be_bytes(), timestamp))
    };
    node.coordinator
        .cas
        .compare_and_set(&request, &mut decide)
        .await
        .unwrap_or(false)
}

/// Runs statements that raise two rows in turn, and serial reads of both rows at the same time, on links whose
/// latencies differ. Returns how many reads saw two values that the rows never had together.
fn torn_reads(seed: u64) -> usize {
    let mut cluster = Cluster::new(seed, Shape::default());
    let writers: Vec<_> = (0..3)
        .map(|node| {
            cluster.spawn(node, |local| async move {
                for _ in 0..100 {
                    climb(&local, b"key").await;
                }
            })
        })
        .collect();
    let readers: Vec<_> = (0..3)
        .map(|node| {
            cluster.spawn(node, |local| async move {
                let mut torn = 0;
                for _ in 0..150 {
                    let (table, deadline) = (table(), runtime::now() + SECOND);
                    let read = local.coordinator.cas.serial_read(
                        &table,
                        read_of(b"key"),
                        usize::MAX,
                        Consistency::Serial,
                        1,
                        deadline,
                    );
                    if let Ok(found) = read.await {
                        let (zero, one) = two_rows(found.blocks.iter());
                        torn += usize::from(zero.abs_diff(one) > 1);
                    }
                }
                torn
            })
        })
        .collect();
    let mut chance = seed;
    let mut is_over = false;
    for _ in 0..30_000 {
        if is_over {
            break;
        }
        // Messages on different links overtake each other.
        for (from, to) in [(0, 1), (1, 0), (1, 2), (2, 1), (2, 0), (0, 2)] {
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let delay = Duration::from_millis(if (chance >> 33).is_multiple_of(4) { 40 } else { 0 });
            let (from, to) = (cluster.id(from), cluster.id(to));
            cluster.simulation.set_delay(from, to, delay);
        }
        cluster.simulation.run_for(Duration::from_millis(20));
        is_over = writers.iter().all(|w| w.borrow().is_some()) && readers.iter().all(|r| r.borrow().is_some());
    }
    assert!(is_over, "statements hang");
    readers.into_iter().map(|r| r.take().unwrap_or(0)).sum()
}

#[test]
fn a_serial_read_of_several_rows_is_of_one_moment() {
    for seed in 0..10 {
        assert_eq!(
            torn_reads(seed),
            0,
            "seed {seed}: reads saw one row of before and one of after a statement"
        );
    }
}
