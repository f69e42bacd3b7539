//! TRUNCATE beside readers and writers, on three simulated nodes that hear of it one after the other.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use crate::support;
use crate::support::{Cluster, SECOND, Shape, everything};
use runtime::StopPoint;
use runtime::sim::Stop;
#[cfg(debug_assertions)]
use stdx::planted::{Bug, Planted};
use topology::Consistency;

const ALL: (Consistency, Consistency) = (Consistency::Serial, Consistency::All);

/// What runs beside a truncation.
#[derive(Clone, Copy, Debug)]
enum Beside {
    Nothing,
    Reads(Consistency),
    SerialReads,
    Swaps,
    Additions,
}

/// Writes 7 to a row's register, and truncates the table while two nodes run other requests. Returns what each node
/// then reads of the register.
fn after_a_truncation(seed: u64, delay: Duration, beside: Beside) -> Vec<u64> {
    let shape = Shape {
        hints: true,
        ..Shape::default()
    };
    let mut cluster = Cluster::new(seed, shape);
    let done = cluster.on(0, |node| async move { node.swap(b"key", (0, 7), ALL, SECOND).await });
    assert_eq!(done, Ok(Ok(())));
    cluster.simulation.run_for(5 * SECOND);
    let others: Vec<_> = [0, 2]
        .into_iter()
        .map(|node| {
            cluster.spawn(node, move |node| async move {
                for _ in 0..40 {
                    match beside {
                        Beside::Nothing => {}
                        Beside::Reads(level) => drop(node.select(b"key", level).await),
                        Beside::SerialReads => {
                            drop(node.read_register(b"key", Consistency::Serial, SECOND).await);
                        }
                        Beside::Swaps => drop(node.swap(b"key", (7, 8), ALL, SECOND).await),
                        Beside::Additions => {
                            let _ = node.increment(b"key", SECOND).await;
                        }
                    }
                    runtime::yield_now().await;
                }
            })
        })
        .collect();
    assert_eq!(cluster.truncate(1, delay), Ok(()), "seed {seed}");
    let is_over = cluster
        .simulation
        .run_until(60 * SECOND, || others.iter().all(|other| other.borrow().is_some()));
    assert!(is_over, "seed {seed}: requests beside the truncation hang");
    cluster.simulation.run_for(5 * SECOND);
    (0..3)
        .map(|node| {
            let read = cluster.on(node, |node| async move {
                node.read_register(b"key", Consistency::Serial, SECOND).await
            });
            read.expect("nothing is broken")
        })
        .collect()
}

/// Seeds, delays and companions of truncations after which the row of before is back.
fn returns(seeds: std::ops::Range<u64>, besides: &[Beside]) -> Vec<(u64, u64, Beside)> {
    let mut wrong = Vec::new();
    for (seed, delay) in seeds.flat_map(|seed| [0, 5, 20].map(|delay| (seed, delay))) {
        for beside in besides {
            // After the truncation there is nothing to add to but what was added after it.
            let most = if matches!(beside, Beside::Additions) { 80 } else { 0 };
            let registers = after_a_truncation(seed, Duration::from_millis(delay), *beside);
            if registers.iter().any(|value| *value > most) {
                wrong.push((seed, delay, *beside));
            }
        }
    }
    wrong
}

const BESIDES: [Beside; 6] = [
    Beside::Nothing,
    Beside::Reads(Consistency::One),
    Beside::Reads(Consistency::Quorum),
    Beside::SerialReads,
    Beside::Swaps,
    Beside::Additions,
];

#[test]
fn nothing_comes_back_behind_a_truncation_whatever_goes_on_beside_it() {
    let wrong = returns(0..8, &BESIDES);
    assert!(
        wrong.is_empty(),
        "rows of before a truncation are back (seed, delay in ms, beside): {wrong:?}"
    );
}

#[test]
#[cfg(debug_assertions)]
fn that_a_replica_took_requests_from_before_a_truncation_would_be_seen() {
    let _planted = Planted::new(Some(Bug::IgnoredFence));
    assert!(!returns(0..8, &BESIDES).is_empty());
}

/// A proposal that was not finished, and a truncation.
fn after_a_proposal(seed: u64) -> u64 {
    let mut cluster = Cluster::new(seed, Shape::default());
    // The others accept it, and never learn of it.
    let proposed = cluster.on(0, |node| async move {
        node.swap(b"key", (0, 7), (Consistency::Serial, Consistency::Any), SECOND)
            .await
    });
    assert_eq!(proposed, Ok(Ok(())));
    cluster.crash(0, runtime::sim::CrashKind::PowerLoss);
    cluster.start_again(0);
    cluster.simulation.run_for(SECOND);
    assert_eq!(cluster.truncate(1, Duration::from_millis(5)), Ok(()), "seed {seed}");
    let read = cluster.on(2, |node| async move {
        node.read_register(b"key", Consistency::Serial, SECOND).await
    });
    read.expect("nothing is broken")
}

#[test]
fn a_truncation_takes_proposals_with_it() {
    for seed in 0..10 {
        assert_eq!(after_a_proposal(seed), 0, "seed {seed}");
    }
}

#[test]
#[cfg(debug_assertions)]
fn that_a_truncation_left_proposals_would_be_seen() {
    let _planted = Planted::new(Some(Bug::TruncationForgetsNoProposal));
    assert!((0..10).any(|seed| after_a_proposal(seed) != 0));
}

#[test]
fn a_truncation_needs_the_replicas_of_the_table_and_no_other_node() {
    let shape = Shape {
        replication: topology::Replication::Simple { factor: 3 },
        ..Shape::default()
    };
    let mut cluster = Cluster::new(1, shape);
    cluster.kill(2);
    cluster.set_live(2, false);
    let refused = cluster.truncate(0, Duration::ZERO).expect_err("a replica is down");
    assert!(
        refused.contains("is down, and TRUNCATE needs all replicas"),
        "{refused}"
    );
}

#[test]
fn a_node_that_ends_in_the_middle_of_a_truncation_is_done_with_it_when_it_takes_requests_again() {
    for seed in 0..10 {
        let mut cluster = Cluster::new(seed, Shape::default());
        let written = cluster.on(0, |node| async move {
            node.insert(b"key", 1, b"one", 10, Consistency::All).await
        });
        assert_eq!(written, Ok(()));
        // It ends at one of the next operations on its files, with the metadata durable and the data perhaps there.
        let id = cluster.id(2);
        cluster
            .simulation
            .crash_after_file_ops(id, 1 + seed, runtime::sim::CrashKind::PowerLoss);
        assert_eq!(
            cluster.truncate_but(0, Duration::from_millis(1), 2),
            Ok(()),
            "seed {seed}"
        );
        cluster.simulation.clear_file_faults(id);
        if cluster.simulation.is_running(id) {
            cluster.crash(2, runtime::sim::CrashKind::PowerLoss);
        }
        cluster.start_again(2);
        for level in [Consistency::One, Consistency::Quorum, Consistency::All] {
            let read = cluster.on(2, move |node| async move { node.select(b"key", level).await });
            assert_eq!(
                read.map(|rows| rows.len()),
                Ok(0),
                "seed {seed}, {level}: the row is back"
            );
        }
    }
}

/// The errors of conditional statements over truncations that nothing else disturbs, from a node that hears of them at
/// once and one that hears of them late.
fn errors_over_truncations(seeds: std::ops::Range<u64>) -> BTreeSet<String> {
    let mut errors = BTreeSet::new();
    for (seed, delay) in seeds.flat_map(|seed| [0, 5, 20].map(|delay| (seed, delay))) {
        let mut cluster = Cluster::new(seed, Shape::default());
        let levels = (Consistency::Serial, Consistency::Quorum);
        let swaps: Vec<_> = [0, 2]
            .into_iter()
            .map(|node| {
                cluster.spawn(node, move |node| async move {
                    let (mut old, mut errors) = (0, Vec::new());
                    for new in 1..200 {
                        match node.swap(b"key", (old, new), levels, 5 * SECOND).await {
                            Ok(Ok(())) => old = new,
                            Ok(Err(found)) => old = found,
                            Err(error) => errors.push(error.to_string()),
                        }
                    }
                    errors
                })
            })
            .collect();
        for _ in 0..3 {
            assert_eq!(cluster.truncate(1, Duration::from_millis(delay)), Ok(()), "seed {seed}");
        }
        let are_over = || swaps.iter().all(|swaps| swaps.borrow().is_some());
        assert!(
            cluster.simulation.run_until(120 * SECOND, are_over),
            "seed {seed}: statements hang"
        );
        errors.extend(swaps.iter().flat_map(|swaps| swaps.take().expect("they are over")));
    }
    errors
}

/// It was decided before the truncation, which has taken it away since; there is nothing left that replicas could lack.
#[test]
fn a_decision_that_a_truncation_overtakes_is_answered_as_applied() {
    let errors = errors_over_truncations(0..10);
    let unknown = "the table was truncated meanwhile";
    assert!(errors.iter().all(|error| error.contains(unknown)), "{errors:#?}");
}

/// The coordinator sends the decision to the replicas when the truncation is done, except for its own node's part.
#[test]
fn a_decision_that_comes_behind_a_truncation_leaves_nothing_there() {
    for seed in 0..5 {
        let mut cluster = Cluster::new(seed, Shape::default());
        let id = cluster.id(0);
        cluster
            .simulation
            .stop_at(id, StopPoint::ProposalAccepted, 0, Stop::Pause(SECOND));
        let levels = (Consistency::Serial, Consistency::Quorum);
        let swapped = cluster.spawn(0, move |node| async move {
            node.swap(b"key", (0, 7), levels, 10 * SECOND).await
        });
        cluster.simulation.run_for(SECOND / 10);
        assert!(
            cluster.simulation.is_paused(id),
            "seed {seed}: a quorum has accepted it"
        );
        assert_eq!(cluster.truncate(1, Duration::ZERO), Ok(()), "seed {seed}");
        cluster.simulation.run_for(5 * SECOND);
        assert_eq!(swapped.take(), Some(Ok(Ok(()))), "seed {seed}");
        for node in 0..3 {
            let read = cluster.on(node, |node| async move { node.select(b"key", Consistency::One).await });
            assert_eq!(read.map(|rows| rows.len()), Ok(0), "seed {seed}: node {node} has it");
        }
    }
}

/// Partitions of a table in eight tablets.
const KEYS: u8 = 40;

/// How many partitions a read of all finds that has no more of the processor's time when it has waited so often, until
/// the table is truncated.
fn found_over_a_truncation(waits: usize) -> usize {
    let shape = Shape {
        datacenters: vec!["north"],
        tablets: 8,
        replication: topology::Replication::Simple { factor: 1 },
        ..Shape::default()
    };
    let mut cluster = Cluster::new(1, shape);
    cluster.on(0, |node| async move {
        for key in 0..KEYS {
            let written = node.insert(&[key], 1, b"v", 10, Consistency::One).await;
            written.expect("the node lives");
        }
        node.shard.flush_all().await.expect("the disk works");
    });
    let truncated = Rc::new(Cell::new(false));
    let is_truncated = Rc::clone(&truncated);
    let read = cluster.spawn(0, move |node| async move {
        let mut reading = Box::pin(async move {
            let read = node.read(&support::table(), everything(), Consistency::One, 1000);
            let (mut read, mut found) = (read.expect("the node lives"), 0);
            while let Some(block) = read.next_block().await.expect("it is done again") {
                found += block.len();
            }
            found
        });
        let mut left = waits;
        let before = poll_fn(|context| {
            if left == 0 {
                return Poll::Ready(None);
            }
            left -= 1;
            reading.as_mut().poll(context).map(Some)
        });
        if let Some(found) = before.await {
            return found;
        }
        while !is_truncated.get() {
            runtime::sleep(Duration::from_millis(1)).await;
        }
        reading.await
    });
    cluster.simulation.run_for(SECOND);
    assert_eq!(cluster.truncate(0, Duration::ZERO), Ok(()));
    truncated.set(true);
    cluster.simulation.run_for(SECOND);
    read.take().expect("it ends")
}

#[test]
fn a_read_that_a_truncation_overtakes_returns_all_rows_or_none() {
    let found: BTreeSet<usize> = (1..40).map(found_over_a_truncation).collect();
    assert_eq!(found, BTreeSet::from([0, usize::from(KEYS)]));
}

/// A node without a replica is not waited for. Its client writes when the truncation has been answered, and the node
/// does not know of it yet: replicas refuse the write, which is done again and is not older than the truncation.
#[test]
fn a_write_behind_a_truncation_is_not_taken_with_it_by_a_node_that_has_not_heard_of_it() {
    let shape = Shape {
        datacenters: vec!["north"; 4],
        ..Shape::default()
    };
    for seed in 0..8 {
        let mut cluster = Cluster::new(seed, shape.clone());
        let replicas: Vec<usize> = cluster
            .replicas(b"key")
            .iter()
            .map(|replica| replica.node.index())
            .collect();
        let other = (0..4)
            .find(|node| !replicas.contains(node))
            .expect("three of four have it");
        let table = cluster.table.id;
        let version = 1_000;
        for node in &replicas {
            let taken = cluster.on(
                *node,
                move |node| async move { node.take_truncation(table, version).await },
            );
            assert_eq!(taken, Ok(()));
        }
        let written = cluster.spawn(other, |node| async move {
            node.insert(b"key", 1, b"new", 10, Consistency::All).await
        });
        cluster.simulation.run_for(Duration::from_millis(500));
        assert_eq!(
            *written.borrow(),
            None,
            "seed {seed}: it does not wait to hear why it is refused"
        );
        cluster.local(other).hear_of_truncation(table, version);
        cluster.simulation.run_for(SECOND);
        assert_eq!(written.take(), Some(Ok(())), "seed {seed}");
        let read = cluster.on(replicas[0], |node| async move {
            node.select(b"key", Consistency::Quorum).await
        });
        assert_eq!(
            read.map(|rows| rows.len()),
            Ok(1),
            "seed {seed}: an acknowledged row is gone"
        );
    }
}
