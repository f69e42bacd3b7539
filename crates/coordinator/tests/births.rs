//! A deletion that a replica still lacks is dated by the second that it carries, wherever it waits, so no other replica
//! purges the tombstone before that replica has it. The deletion may have been made long before the coordinator begins
//! to send it: the request waited, or its process did.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::support::{Cluster, SECOND, Shape, addressed, clustering, insert, table};
use coordinator::{Atomicity, Deadline, Handoff, WriteKind};
use hints::{Change, Order};
use mutation::row::{RowBuilder, Shared};
use mutation::{Addressed, MutationBuilder, Tombstone};
use replica::{RepairedRange, TokenRange};
use schema::{TombstoneGc, TombstoneGcMode};
use stdx::planted::{Bug, Planted};
use topology::{Consistency, HostId, NodeNumber};
use types::token::token_of;
use uuid::Uuid;

const QUORUM: Consistency = Consistency::Quorum;
/// How long a request waited between its deletion and its coordinator: longer than every margin.
const WAITED_SECONDS: u32 = 100;
const MODES: [Option<TombstoneGc>; 2] = [
    None,
    Some(TombstoneGc {
        mode: TombstoneGcMode::Repair,
        propagation_delay_seconds: 0,
    }),
];

/// Deletes row 1 of a partition; the deletion was made in a second.
fn deletion(key: &[u8], second: u32) -> Addressed {
    let table = table();
    let mut out = Vec::new();
    let mut builder = MutationBuilder::begin(&mut out, table.id, key);
    let tombstone = Tombstone {
        timestamp: 20,
        deletion_time: second,
    };
    let shared = Shared {
        timestamp: 20,
        ttl: 0,
        expiry: 0,
    };
    builder.row(&clustering(1), |out| {
        RowBuilder::begin(out, &table.layout, shared, None, tombstone, false, 0);
    });
    addressed(out)
}

/// Where a deletion waits for node 2, which is cut off.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Place {
    /// Its client waits for an hour.
    Flight,
    Hint,
    /// No hint is kept: a span.
    Span,
    /// A logged batch whose level is not met.
    Batch,
}

/// Whether node 1 may forget a deletion that waits in a place.
fn is_forgotten(seed: u64, place: Place, mode: Option<TombstoneGc>) -> bool {
    is_forgotten_of(seed, place, mode, |now| now - WAITED_SECONDS)
}

/// As [`is_forgotten`], of a deletion of another second than the coordinator's present.
fn is_forgotten_of(seed: u64, place: Place, mode: Option<TombstoneGc>, second_at: fn(u32) -> u32) -> bool {
    let mut cluster = Cluster::new(
        seed,
        Shape {
            hints: true,
            gc_grace_seconds: 3_600,
            tombstone_gc: mode,
            tablets: 8,
            ..Shape::default()
        },
    );
    cluster.simulation.run_for((WAITED_SECONDS + 60) * SECOND);
    let us = cluster.on(0, |_| async { runtime::wall_clock_us() });
    let second = second_at(u32::try_from(us / 1_000_000).expect("the clock is right"));
    let (zero, two) = (cluster.id(0), cluster.id(2));
    if place == Place::Span {
        cluster.on(0, |_| Handoff::order(Order::Allow(Change::Enable(false))));
    }
    cluster.simulation.set_link_up(zero, two, false);
    if place == Place::Hint || place == Place::Span {
        cluster.set_live(2, false);
    }
    let writing = cluster.spawn(0, move |node| async move {
        match place {
            Place::Batch => {
                let mutations = (0..8_u8).map(|key| deletion(&[key], second)).collect();
                node.coordinator
                    .writes
                    .write_logged(mutations, &node.dated(Consistency::All))
                    .await
            }
            _ => {
                let timeout = (place == Place::Flight).then_some(Duration::from_secs(3_600));
                let dated = node.coordinator.writes.date(QUORUM, Deadline::after(timeout));
                let mutations = vec![deletion(b"k", second)];
                node.coordinator
                    .writes
                    .write(mutations, &dated, WriteKind::Simple, Atomicity::Mutation)
                    .await
            }
        }
    });
    cluster.simulation.run_for(50 * SECOND);
    assert!(place == Place::Batch || writing.take().is_some_and(|written| written.is_ok()));
    let table = table().id;
    cluster.on(1, move |node| async move {
        let hold = node.shard.tombstone_hold(table, TokenRange::ALL);
        match mode {
            None => hold.from > second && !hold.spans.iter().any(|span| span.contains(&second)),
            Some(_) => hold.watermark > second,
        }
    })
}

#[test]
fn a_deletion_that_waits_is_dated_by_its_second_wherever_it_waits() {
    for mode in MODES {
        for (seed, place) in (0..).zip([Place::Flight, Place::Hint, Place::Span, Place::Batch]) {
            assert!(!is_forgotten(seed, place, mode), "{place:?}, {mode:?}");
        }
    }
}

#[test]
#[cfg(debug_assertions)]
fn dated_by_when_it_is_sent_it_would_be_forgotten() {
    let _planted = Planted::new(Some(Bug::LateBirth));
    for mode in MODES {
        for (seed, place) in (0..).zip([Place::Flight, Place::Hint, Place::Span, Place::Batch]) {
            assert!(is_forgotten(seed, place, mode), "{place:?}, {mode:?}");
        }
    }
}

/// A logged batch is written again and again while a replica is cut off, and for a minute at most before it ends with
/// hints. Its deletions were made long before it was noted: the tombstones that they leave may be purged earlier, too.
#[test]
fn a_part_of_a_batch_is_given_up_when_its_deletion_is_older_than_the_grace_period() {
    let mut cluster = Cluster::new(
        7,
        Shape {
            hints: true,
            gc_grace_seconds: 300,
            tablets: 8,
            ..Shape::default()
        },
    );
    cluster.simulation.run_for(400 * SECOND);
    let us = cluster.on(0, |_| async { runtime::wall_clock_us() });
    let second = u32::try_from(us / 1_000_000).expect("the clock is right") - 260;
    let (zero, two) = (cluster.id(0), cluster.id(2));
    cluster.simulation.set_link_up(zero, two, false);
    let writing = cluster.spawn(0, move |node| async move {
        let mutations = (0..8_u8).map(|key| deletion(&[key], second)).collect();
        let dated = node.dated(Consistency::All);
        node.coordinator.writes.write_logged(mutations, &dated).await
    });
    cluster.simulation.run_for(90 * SECOND);
    assert!(
        writing.take().is_some_and(|written| written.is_err()),
        "node 2 is cut off"
    );
    let held = cluster.on(0, |node| async move { node.coordinator.tombstones.held() });
    // It is unknown which replicas have a part that is given up.
    let replicas: Vec<_> = (1..=3).map(|number| HostId(Uuid::from_u128(number))).collect();
    for replica in replicas {
        assert!(held.iter().any(|held| held.target == Some(replica)), "{held:?}");
    }
}

/// Node 1 proposed the deletion, as a conditional statement, with a clock that is 5 s ahead, and died. Node 0 finishes
/// the proposal, and node 2 misses it permanently.
fn ahead(now: u32) -> u32 {
    now + 5
}

#[test]
fn a_span_reaches_the_deletion_of_a_coordinator_whose_clock_is_ahead() {
    for mode in MODES {
        assert!(!is_forgotten_of(0, Place::Span, mode, ahead), "{mode:?}");
    }
}

#[test]
#[cfg(debug_assertions)]
fn if_the_span_ended_at_the_present_the_deletion_would_be_forgotten() {
    let _planted = Planted::new(Some(Bug::SpanEndsBeforeDeletion));
    assert!(is_forgotten_of(0, Place::Span, None, ahead));
}

/// One copy, for which the other node has a hint of an older row. Whether the owner may forget the deletion while that
/// hint waits.
fn is_forgotten_on_its_only_copy(seed: u64) -> bool {
    let mut cluster = Cluster::new(
        seed,
        Shape {
            datacenters: vec!["north"; 2],
            replication: topology::Replication::Simple { factor: 1 },
            hints: true,
            tombstone_gc: MODES[1],
            ..Shape::default()
        },
    );
    cluster.simulation.run_for(60 * SECOND);
    let owner = node_of(&cluster, cluster.replicas(b"k")[0].node);
    let other = 1 - owner;
    cluster.set_live(owner, false);
    let written = cluster.on(other, |node| async move {
        node.insert(b"k", 1, b"old", 10, Consistency::Any).await
    });
    assert_eq!(written, Ok(()), "the hint is enough");
    cluster.on(other, |_| Handoff::order(Order::Pause(true)));
    cluster.set_live(owner, true);
    let deleted = cluster.on(owner, |node| async move {
        let second = u32::try_from(runtime::wall_clock_us() / 1_000_000).expect("the clock is right");
        node.delete(b"k", 1, 20, Consistency::One).await.map(|()| second)
    });
    let second = deleted.expect("its owner lives");
    cluster.simulation.run_for(120 * SECOND);
    let local = cluster.local(owner);
    let view = local.coordinator.context.view();
    let map = &view.route(table().id).expect("it has a route").map;
    let (after, to) = map.token_range(map.tablet_of(token_of(b"k")).id).expect("it is there");
    local
        .shard
        .tombstone_hold(table().id, TokenRange { after, to })
        .watermark
        > second
}

#[test]
fn a_hint_for_the_only_copy_of_a_row_holds_its_deletion() {
    assert!(!is_forgotten_on_its_only_copy(40));
}

#[test]
#[cfg(debug_assertions)]
fn the_deletion_would_be_forgotten_if_one_copy_waited_for_nothing() {
    let _planted = Planted::new(Some(Bug::NothingWaitsForOneCopy));
    assert!(is_forgotten_on_its_only_copy(40));
}

/// The node of the cluster with a number.
fn node_of(cluster: &Cluster, number: NodeNumber) -> usize {
    let nodes = 0..cluster.count();
    let mut found = nodes.filter(|node| cluster.local(*node).coordinator.context.view().me == number);
    found.next().expect("it is one of them")
}

/// Three copies, and a coordinator that has none. A deletion waits there for a minute and more while a repair of all
/// replicas runs, and one of them misses it afterwards. Whether the row is back when the others have compacted.
fn is_back_after_a_repair(seed: u64) -> bool {
    let mut cluster = Cluster::new(
        seed,
        Shape {
            datacenters: vec!["north"; 4],
            hints: true,
            tombstone_gc: MODES[1],
            ..Shape::default()
        },
    );
    cluster.simulation.run_for(60 * SECOND);
    let replicas: Vec<usize> = cluster
        .replicas(b"k")
        .iter()
        .map(|r| node_of(&cluster, r.node))
        .collect();
    let without = (0..4)
        .find(|node| !replicas.contains(node))
        .expect("there are three copies");
    let written = cluster.on(without, |node| async move {
        node.insert(b"k", 1, b"old", 10, Consistency::All).await
    });
    assert_eq!(written, Ok(()));
    cluster.on(without, |_| Handoff::order(Order::Allow(Change::Enable(false))));
    let is_sent = Rc::new(Cell::new(false));
    let sends = is_sent.clone();
    let deleting = cluster.spawn(without, move |node| async move {
        let dated = node.dated(QUORUM);
        while !sends.get() {
            runtime::sleep(SECOND).await;
        }
        let second = u32::try_from(dated.now_us() / 1_000_000).expect("the clock is right");
        let mutations = vec![deletion(b"k", second)];
        node.coordinator
            .writes
            .write(mutations, &dated, WriteKind::Simple, Atomicity::Mutation)
            .await
    });
    cluster.simulation.run_for(100 * SECOND);
    // As `upkeep/src/repairs/part.rs` does it: all replicas have what any had.
    let table = table().id;
    let until = cluster.on(replicas[0], move |node| async move {
        let now = u32::try_from(runtime::wall_clock_us() / 1_000_000).expect("the clock is right");
        let begun = now - node.coordinator.context.timeouts().late_write_seconds();
        begun.min(node.coordinator.tombstones.complete_until(table, TokenRange::ALL))
    });
    for node in &replicas {
        let equal = RepairedRange::new(table, TokenRange::ALL, until);
        cluster.on(*node, move |node| async move { node.shard.note_repaired(&equal) });
    }
    let [first, second, misses] = replicas[..] else {
        panic!("there are three copies")
    };
    cluster.kill(misses);
    cluster.set_live(misses, false);
    is_sent.set(true);
    cluster.simulation.run_for(100 * SECOND);
    assert_eq!(deleting.take(), Some(Ok(())), "two of three took it");
    cluster.compact(&[first, second]);
    cluster.start_again(misses);
    cluster.set_live(misses, true);
    cluster.simulation.run_for(60 * SECOND);
    cluster.compact(&[first, second]);
    let read = cluster.on(first, |node| async move { node.select(b"k", Consistency::All).await });
    !read.expect("all live").is_empty()
}

#[test]
fn a_repair_does_not_count_for_a_deletion_that_was_on_its_way() {
    assert!(!is_back_after_a_repair(50));
}

#[test]
#[cfg(debug_assertions)]
fn a_row_would_be_back_if_a_repair_counted_for_what_was_on_its_way() {
    let _planted = Planted::new(Some(Bug::RepairOutrunsWrites));
    assert!(is_back_after_a_repair(50));
}

/// A batch of old data is noted, then its coordinator is cut off; most of a minute later the others finish the batch.
/// Whether one of them may then forget a deletion that was made in between, while it has a hint for the coordinator.
fn is_forgotten_for_a_batch_that_is_finished_later(seed: u64) -> bool {
    let shape = Shape {
        hints: true,
        gc_grace_seconds: 3_600,
        tablets: 8,
        ..Shape::default()
    };
    let mut cluster = Cluster::new(seed, shape);
    cluster.simulation.run_for(60 * SECOND);
    let (zero, others) = (cluster.id(0), [cluster.id(1), cluster.id(2)]);
    // Nothing is written before the first holder has answered.
    for other in others {
        cluster.simulation.set_delay(other, zero, Duration::from_millis(20));
    }
    let writing = cluster.spawn(0, |node| async move {
        let old = |key: u8| addressed(insert(&table(), &[key], 1, b"old", 10));
        let dated = node.dated(QUORUM);
        node.coordinator
            .writes
            .write_logged((0..8).map(old).collect(), &dated)
            .await
    });
    let (first, second) = (cluster.local(1), cluster.local(2));
    let are_noted = || first.coordinator.batches.open_count() + second.coordinator.batches.open_count() == 2;
    assert!(cluster.simulation.run_until(SECOND, are_noted), "both note it");
    let us = cluster.on(1, |_| async { runtime::wall_clock_us() });
    for node in 0..3 {
        cluster.set_live(node, false);
    }
    for other in others {
        cluster.simulation.set_link_up(zero, other, false);
    }
    cluster.simulation.run_for(45 * SECOND);
    assert!(
        writing.take().is_some_and(|written| written.is_err()),
        "no quorum answers"
    );
    for node in [1, 2] {
        cluster.on(node, |_| Handoff::order(Order::Pause(true)));
        cluster.set_live(node, true);
    }
    cluster.simulation.run_for(10 * SECOND);
    let local = cluster.local(1);
    assert_eq!(local.coordinator.batches.open_count(), 0, "it is finished");
    // The coordinator hands over what it wrote itself.
    for other in others {
        cluster.simulation.set_link_up(zero, other, true);
    }
    cluster.set_live(0, true);
    cluster.simulation.run_for(120 * SECOND);
    let noted = u32::try_from(us / 1_000_000).expect("the clock is right");
    let hold = local.shard.tombstone_hold(table().id, TokenRange::ALL);
    hold.from > noted && !hold.spans.iter().any(|span| span.contains(&noted))
}

#[test]
fn a_batch_that_is_finished_later_is_dated_by_when_it_was_noted() {
    assert!(!is_forgotten_for_a_batch_that_is_finished_later(60));
}
