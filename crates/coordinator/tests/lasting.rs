//! Requests that take longer than writes usually do hold tombstones: a client may wait for an hour (`USING TIMEOUT`),
//! and a read that found a difference may write what it read long ago.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use crate::support::{Cluster, SECOND, Shape, addressed, everything, insert, partition, table};
use coordinator::{Atomicity, CoordinatorError, Deadline, Handoff, WriteKind};
use hints::{Change, Order};
use schema::{TombstoneGc, TombstoneGcMode};
use topology::Consistency;

const ALL: Consistency = Consistency::All;
const GRACE: i32 = 60;
const MODES: [Option<TombstoneGc>; 2] = [
    None,
    Some(TombstoneGc {
        mode: TombstoneGcMode::Repair,
        propagation_delay_seconds: 0,
    }),
];

fn begin(seed: u64, tombstone_gc: Option<TombstoneGc>) -> Cluster {
    let mut cluster = Cluster::new(
        seed,
        Shape {
            hints: true,
            gc_grace_seconds: GRACE,
            tombstone_gc,
            ..Shape::default()
        },
    );
    cluster.simulation.run_for(60 * SECOND);
    cluster
}

fn has_data(cluster: &Cluster, node: usize) -> bool {
    cluster.local(node).shard.has_data()
}

/// What it writes may be older than the deletion, and reach a replica that has purged the tombstone.
#[test]
fn what_is_deleted_while_a_write_goes_on_for_long_is_kept_until_it_has_ended() {
    for (seed, mode) in (0..).zip(MODES) {
        let mut cluster = begin(seed, mode);
        let inserted = cluster.on(0, |node| async move { node.insert(b"k", 1, b"old", 10, ALL).await });
        assert_eq!(inserted, Ok(()));
        let is_over = Rc::new(Cell::new(false));
        let ends = is_over.clone();
        let write = cluster.spawn(1, move |node| async move {
            let _held = node.dated(ALL);
            while !ends.get() {
                runtime::sleep(SECOND).await;
            }
        });
        let deleted = cluster.on(0, |node| async move { node.delete(b"k", 1, 20, ALL).await });
        assert_eq!(deleted, Ok(()));
        for is_last in [false, true] {
            cluster.simulation.run_for(10 * 60 * SECOND);
            cluster.compact(&[0, 1, 2]);
            let kept = [0, 1, 2].map(|node| has_data(&cluster, node));
            assert_eq!(kept, [!is_last; 3], "{mode:?}, when the write has ended: {is_last}");
            is_over.set(true);
        }
        assert_eq!(write.take(), Some(()));
    }
}

/// A row of the last of four partitions is on two replicas only. A read at ALL finds the difference, and has all four
/// in hand when its client pauses after the first.
#[test]
fn a_read_that_pauses_does_not_bring_back_what_was_deleted_meanwhile() {
    for (seed, mode) in (10..).zip(MODES) {
        let mut cluster = begin(seed, mode);
        let keys: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
        for node in 0..2 {
            cluster.on(node, move |node| async move {
                for key in keys {
                    let mutation = addressed(insert(&table(), key, 1, b"old", 10));
                    let store = node.shard.store(table().id).expect("the table is here");
                    let written = node.shard.write(&store, mutation.token(), &mutation.mutation());
                    written.expect("there is room").is_not_awaited();
                }
            });
        }
        let goes_on = Rc::new(Cell::new(false));
        let may_go_on = goes_on.clone();
        let read = cluster.spawn(0, move |node| async move {
            let mut read = node.read(&table(), everything(), ALL, 100).expect("all live");
            let mut partitions = 0;
            while let Some(_block) = read.next_block().await? {
                partitions += 1;
                while !may_go_on.get() {
                    runtime::sleep(SECOND).await;
                }
            }
            Ok::<_, coordinator::CoordinatorError>(partitions)
        });
        cluster.simulation.run_for(5 * SECOND);
        for key in keys {
            let deleted = cluster.on(1, move |node| async move { node.delete(key, 1, 20, ALL).await });
            assert_eq!(deleted, Ok(()));
        }
        cluster.simulation.run_for(10 * 60 * SECOND);
        cluster.compact(&[0, 1, 2]);
        goes_on.set(true);
        cluster.simulation.run_for(20 * SECOND);
        assert_eq!(read.take(), Some(Ok(4)));
        for key in keys {
            let read = cluster.on(2, move |node| async move { node.select(key, ALL).await });
            assert_eq!(read, Ok(BTreeMap::new()), "{mode:?}, partition {key:?}");
        }
        cluster.simulation.run_for(10 * 60 * SECOND);
        cluster.compact(&[0, 1, 2]);
        let kept = [0, 1, 2].map(|node| has_data(&cluster, node));
        assert!(
            mode.is_some() || kept == [false; 3],
            "deletions are kept although the read has ended: {kept:?}"
        );
    }
}

/// The write was made when its statement came. What it waited for until it began, say a list that it reads, is not what
/// a span of a replica that misses it begins with.
#[test]
fn a_write_that_began_late_is_dated_by_when_it_was_made() {
    for (seed, mode) in (20..).zip(MODES) {
        let mut cluster = begin(seed, mode);
        let waited = 100 * SECOND;
        let made_us = cluster.on(0, |_| async { runtime::wall_clock_us() });
        let is_sent = Rc::new(Cell::new(false));
        let sends = is_sent.clone();
        let writing = cluster.spawn(0, move |node| async move {
            let dated = node.dated(Consistency::Quorum);
            while !sends.get() {
                runtime::sleep(SECOND).await;
            }
            let mutations = vec![addressed(insert(&table(), b"k", 1, b"old", 10))];
            node.coordinator
                .writes
                .write(mutations, &dated, WriteKind::Simple, Atomicity::Mutation)
                .await
        });
        let deleted = cluster.on(0, |node| async move { node.delete(b"k", 1, 20, ALL).await });
        assert_eq!(deleted, Ok(()));
        cluster.simulation.run_for(waited);
        cluster.on(0, |_| Handoff::order(Order::Allow(Change::Enable(false))));
        cluster.kill(2);
        cluster.set_live(2, false);
        is_sent.set(true);
        cluster.simulation.run_for(60 * SECOND);
        assert_eq!(writing.take(), Some(Ok(())));
        let held = cluster.on(0, |node| async move { node.coordinator.tombstones.held() });
        let made = u32::try_from(made_us / 1_000_000).expect("the clock is right");
        assert!(
            held.iter().any(|held| held.first < made && held.last >= made),
            "{mode:?}: {held:?}"
        );
    }
}

/// Its client waits, and it has reached no replica: no hint and no span is there for it yet.
#[test]
fn a_node_that_stops_in_order_while_a_write_goes_on_has_not_said_its_last_word() {
    let spans = |holds: bool| {
        let mut cluster = begin(30, None);
        let _write = cluster.spawn(0, move |node| async move {
            let _held = holds.then(|| node.dated(ALL));
            std::future::pending::<()>().await;
        });
        cluster.simulation.run_for(SECOND);
        cluster.on(0, |node| async move { node.coordinator.tombstones.end_reports().await });
        cluster.kill(0);
        cluster.start_again(0);
        cluster.simulation.run_for(60 * SECOND);
        let held = cluster.on(1, |node| async move { node.coordinator.tombstones.held() });
        held.len()
    };
    assert_eq!(spans(false), 0);
    assert!(spans(true) > 0, "what was under way counts as written everywhere");
}

/// Each of its rounds of requests had the whole time of the client once more.
#[test]
fn a_read_ends_when_its_client_gives_up_however_many_rounds_it_takes() {
    let mut cluster = Cluster::new(40, Shape::default());
    for c in 0..6 {
        let written = cluster.on(0, move |node| async move { node.insert(b"k", c, b"v", 10, ALL).await });
        assert_eq!(written, Ok(()));
    }
    for other in [1, 2] {
        let (other, reader) = (cluster.id(other), cluster.id(0));
        cluster.simulation.set_delay(other, reader, Duration::from_millis(400));
    }
    let (blocks, error, took) = cluster.on(0, |node| async move {
        let began = runtime::now();
        let read = node.read(&table(), partition(b"k"), ALL, 1).expect("all live");
        let mut read = read.until(Deadline::after(Some(SECOND)));
        let mut blocks = 0;
        loop {
            match read.next_block().await {
                Ok(Some(_)) => blocks += 1,
                Ok(None) => panic!("all was read, in {:?}", began.elapsed()),
                Err(error) => return (blocks, error, began.elapsed()),
            }
        }
    });
    assert!(matches!(error, CoordinatorError::ReadTimeout { .. }), "{error:?}");
    assert!(blocks > 0, "the first round was answered");
    assert!((SECOND..SECOND * 11 / 10).contains(&took), "{took:?}");
}
