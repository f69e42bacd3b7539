//! Long writes, which are merged aside: each is seen whole or not at all, in its turn, and survives whatever ends the
//! process.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use crate::support::{blobs, open_table, options, replay, shard, shard_with, whole};
use mutation::row::{Column, Shared};
use mutation::{Mutation, MutationBuilder, RowBuilder, Tombstone};
use replica::write::aside::{Addressee, Aside, is_long};
use replica::{PartitionReader, Shard, TableStore, TokenRange, WantedTable};
use runtime::StopPoint;
use runtime::sim::{CrashKind, NodeId, Simulation, Stop};
use schema::push_component;
use stdx::planted::{Bug, Planted};
use test_node::Options;
use types::Token;
use types::token::token_of;

const HOUR: Duration = Duration::from_hours(1);
const KEY: &[u8] = b"key";
/// Rows of a long write.
const ROWS: u32 = 520;

/// Rows of the partition with a value each, which is their timestamp too.
fn insert(rows: std::ops::Range<u32>, value: u32) -> Vec<u8> {
    let table = blobs();
    let mut bytes = Vec::new();
    let mut builder = MutationBuilder::begin(&mut bytes, table.id, KEY);
    for c in rows {
        let mut clustering = Vec::new();
        push_component(&mut clustering, &c.to_be_bytes());
        let shared = Shared {
            timestamp: i64::from(value),
            ttl: 0,
            expiry: 0,
        };
        builder.row(&clustering, |out| {
            RowBuilder::begin(out, &table.layout, shared, None, Tombstone::NONE, false, 1)
                .value(0, &value.to_be_bytes());
        });
    }
    bytes
}

async fn start(sstables_max: u64) -> (Rc<Shard>, Rc<TableStore>) {
    start_with(Options::default().dirty_bytes_max, sstables_max).await
}

/// With so much memory for memtables.
async fn start_with(dirty_bytes_max: usize, sstables_max: u64) -> (Rc<Shard>, Rc<TableStore>) {
    let options = Options {
        dirty_bytes_max,
        ..options(1 << 20)
    };
    let (shard, table) = (shard_with(options, sstables_max), blobs());
    open_table(&shard, &table, &[shard.token_range()]);
    replay(&shard).await;
    let store = shard.store(table.id).expect("it was opened");
    (shard, store)
}

async fn merged(shard: &Rc<Shard>, mutations: &[Addressee<'_>]) -> Aside {
    let aside = shard.merge_aside(mutations).await;
    aside.expect("there is room").expect("its token is here")
}

/// A long write, until it is in the log; false where a tablet has left before that.
async fn write_long(shard: &Rc<Shard>, store: &Rc<TableStore>, value: u32) -> bool {
    let bytes = insert(0..ROWS, value);
    let mutation = Mutation::new(&bytes).expect("a whole mutation");
    let mutations = [(Rc::clone(store), token_of(KEY), mutation)];
    assert!(is_long(&mutations));
    let aside = merged(shard, &mutations).await;
    let written = shard.write_aside(&mutations, aside).expect("there is room");
    shard.log.write().expect("the disk works");
    written.is_some()
}

/// A write of one row after those of long writes.
fn write_short(shard: &Rc<Shard>, store: &TableStore, value: u32) {
    let bytes = insert(ROWS..ROWS + 1, value);
    let mutation = Mutation::new(&bytes).expect("a whole mutation");
    shard
        .write(store, token_of(KEY), &mutation)
        .expect("there is room")
        .is_not_awaited();
    shard.log.write().expect("the disk works");
}

/// The values of the rows of long writes that a client sees, and that of the row of short ones.
async fn values(shard: &Shard, store: &TableStore) -> (Vec<u32>, u32) {
    let (table, version) = (store.table(), store.tablets()[0].version());
    let mut reader = PartitionReader::new(table.clone(), version, shard.cache.clone(), whole(KEY, 10_000));
    // Something else has its turn between the version and the read.
    runtime::yield_now().await;
    let (mut long, mut short) = (Vec::new(), 0);
    while let Some(block) = reader.next_block().await.expect("the files can be read") {
        for n in 0..block.len() {
            let (_, Column::Simple(cell)) = block.row(n).columns(&table.layout).next().expect("it has a value") else {
                unreachable!("it is a blob");
            };
            let value = u32::from_be_bytes(cell.value.try_into().expect("four bytes"));
            if block.clustering(n).ends_with(&ROWS.to_be_bytes()) {
                short = value
            } else {
                long.push(value)
            }
        }
    }
    (long, short)
}

fn run<F: Future<Output = ()> + 'static>(simulation: &mut Simulation, node: NodeId, f: impl Fn() -> F + 'static) {
    simulation.start(node, move |_| Box::pin(f()));
    assert!(simulation.run_until_ended(node, HOUR), "the node has not ended");
}

#[test]
fn a_long_write_is_seen_whole_and_not_later_than_what_came_behind_it() {
    for seed in 0..3 {
        let mut simulation = Simulation::new(seed);
        let node = simulation.add_node(1);
        run(&mut simulation, node, || async {
            let (shard, store) = start(0).await;
            let is_over = Rc::new(Cell::new(false));
            let readers: Vec<_> = (0..3)
                .map(|_| {
                    let (shard, store, is_over) = (shard.clone(), store.clone(), is_over.clone());
                    runtime::spawn(runtime::preemptible(async move {
                        let mut seen = 0;
                        while !is_over.get() {
                            let (long, short) = values(&shard, &store).await;
                            let value = long.first().copied().unwrap_or(0);
                            assert!(
                                long.iter().all(|other| *other == value),
                                "a part of a long write: {long:?}"
                            );
                            assert!(long.is_empty() || long.len() == ROWS as usize, "{} rows", long.len());
                            assert!(short <= value, "{short} is there, and {value} before it is not");
                            assert!(value >= seen, "{value} after {seen}");
                            seen = value;
                            runtime::sleep(Duration::from_micros(100)).await;
                        }
                        seen
                    }))
                })
                .collect();
            for value in 1..=30 {
                assert!(write_long(&shard, &store, value).await);
                write_short(&shard, &store, value);
                if value % 7 == 0 {
                    shard.flush(&store, &store.tablets()[0]).await.expect("the disk works");
                }
                let frozen = store.tablets()[0].version().frozen.len();
                assert!(frozen <= 12, "{frozen} memtables");
                runtime::sleep(Duration::from_millis(1)).await;
            }
            is_over.set(true);
            for reader in readers {
                assert!(reader.await > 0, "it has seen nothing");
            }
            // Folded, not flushed.
            runtime::sleep(Duration::from_secs(1)).await;
            let frozen = store.tablets()[0].version().frozen.len();
            assert!(frozen <= 4, "{frozen} memtables aside");
            shard.flush(&store, &store.tablets()[0]).await.expect("the disk works");
            assert_eq!(shard.memory().dirty, 0, "bytes of memory that are never given back");
            assert_eq!(values(&shard, &store).await, (vec![30; ROWS as usize], 30));
        });
    }
}

/// What is missing after a kill at a flush, of what was in the log before it.
fn lost(stop: StopPoint, flushes: u64) -> Option<(u32, u32)> {
    let mut simulation = Simulation::new(flushes);
    let node = simulation.add_node(1);
    simulation.stop_at(node, stop, flushes, Stop::Crash(CrashKind::Kill));
    let written = Rc::new(Cell::new(0));
    let so_far = written.clone();
    simulation.start(node, move |_| {
        let so_far = so_far.clone();
        Box::pin(async move {
            let (shard, store) = start(0).await;
            for value in 1..=25 {
                // The short one stays in the active memtable while the long ones are flushed.
                assert!(write_long(&shard, &store, value).await);
                write_short(&shard, &store, value);
                so_far.set(value);
                if value % 5 == 0 {
                    let (shard, store) = (shard.clone(), store.clone());
                    let flush = async move { shard.flush(&store, &store.tablets()[0]).await };
                    drop(runtime::spawn(flush));
                }
                runtime::sleep(Duration::from_millis(2)).await;
            }
            runtime::sleep(HOUR / 2).await;
        })
    });
    simulation.run_until_ended(node, HOUR);
    simulation.clear_file_faults(node);
    let found = Rc::new(RefCell::new((Vec::new(), 0)));
    let out = found.clone();
    run(&mut simulation, node, move || {
        let out = out.clone();
        async move {
            let (shard, store) = start(1000).await;
            *out.borrow_mut() = values(&shard, &store).await;
        }
    });
    let (long, short) = found.take();
    let value = long.first().copied().unwrap_or(0);
    assert!(long.iter().all(|other| *other == value), "a part of a long write");
    (value < written.get() || short < written.get()).then_some((value, short))
}

#[test]
fn a_long_write_survives_a_kill_at_any_flush() {
    for stop in [StopPoint::FlushFrozen, StopPoint::FlushSealed] {
        for flushes in [1, 2, 3, 5, 8] {
            assert_eq!(lost(stop, flushes), None, "killed at {stop:?} number {flushes}");
        }
    }
}

/// Whether a long write is lost by a kill after the flush of what was in memory before it.
fn is_lost_after_what_was_before(bug: Option<Bug>) -> bool {
    let _planted = Planted::new(bug);
    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    // After that of the short write, which is the first.
    simulation.stop_at(node, StopPoint::FlushFrozen, 1, Stop::Crash(CrashKind::Kill));
    run(&mut simulation, node, || async {
        // Too little memory to fold the two into one.
        let (shard, store) = start_with(128 << 10, 0).await;
        write_short(&shard, &store, 1);
        assert!(write_long(&shard, &store, 2).await);
        let flushed = shard.flush(&store, &store.tablets()[0]).await;
        unreachable!("the process ends before {flushed:?}");
    });
    simulation.clear_file_faults(node);
    let is_lost = Rc::new(Cell::new(false));
    let out = is_lost.clone();
    run(&mut simulation, node, move || {
        let out = out.clone();
        async move {
            let (shard, store) = start(100).await;
            let (long, short) = values(&shard, &store).await;
            assert_eq!(short, 1);
            out.set(long.is_empty());
        }
    });
    is_lost.get()
}

#[test]
fn a_flush_that_discards_the_long_write_after_it_is_found() {
    assert!(!is_lost_after_what_was_before(None));
    assert!(is_lost_after_what_was_before(Some(Bug::FlushedWithWhatWasBefore)));
}

#[test]
fn a_long_write_is_merged_again_when_its_tablet_has_left() {
    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    run(&mut simulation, node, || async {
        let (shard, store) = start(0).await;
        write_short(&shard, &store, 1);
        let bytes = insert(0..ROWS, 1);
        let mutations = [(
            Rc::clone(&store),
            token_of(KEY),
            Mutation::new(&bytes).expect("a whole mutation"),
        )];
        let aside = merged(&shard, &mutations).await;
        let halves = [(i64::MIN, 0), (0, i64::MAX)].map(|(after, to)| TokenRange {
            after: Token(after),
            to: Token(to),
        });
        shard.keep_in_memory(&store, &halves).await;
        shard.reconcile(&[WantedTable {
            table: store.table(),
            ranges: halves.to_vec(),
            keeps_shards: true,
        }]);
        let appended = shard.log.appended();
        let written = shard.write_aside(&mutations, aside).expect("there is room");
        assert_eq!(written, None, "its tablet has left");
        assert_eq!(shard.log.appended(), appended, "nothing was done");
    });
}

/// A long write is all that a tablet has in memory. Its flush lets the log go, so that no start brings it back after a
/// compaction has purged what deleted it.
#[test]
fn the_log_of_a_long_write_goes_with_its_flush() {
    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    run(&mut simulation, node, || async {
        let (shard, store) = start(0).await;
        for value in 1..=3 {
            assert!(write_long(&shard, &store, value).await);
        }
        shard.flush(&store, &store.tablets()[0]).await.expect("the disk works");
        for reader in &store.tablets()[0].version().sstables {
            sstable::delete(reader.descriptor()).expect("the disk works");
        }
    });
    run(&mut simulation, node, || async {
        let (shard, store) = start(100).await;
        assert_eq!(values(&shard, &store).await, (Vec::new(), 0), "a replay brought it");
    });
}

#[test]
fn a_table_that_is_dropped_or_truncated_while_a_write_is_merged_holds_no_memory() {
    for is_dropped in [true, false] {
        let mut simulation = Simulation::new(1);
        let node = simulation.add_node(1);
        run(&mut simulation, node, move || async move {
            let (shard, store) = start(0).await;
            let bytes = insert(0..ROWS, 1);
            let mutation = Mutation::new(&bytes).expect("a whole mutation");
            let mutations = [(Rc::clone(&store), token_of(KEY), mutation)];
            let aside = merged(&shard, &mutations).await;
            assert!(shard.memory().dirty > 0, "what is merged is not counted");
            let gone = if is_dropped {
                shard.drop_table(store.table().id).await
            } else {
                shard.truncate(&store).await
            };
            gone.expect("the disk works");
            let written = shard.write_aside(&mutations, aside);
            assert_eq!(written.is_err(), is_dropped, "{written:?}");
            let has_rows = !values(&shard, &store).await.0.is_empty();
            assert_eq!(has_rows, !is_dropped, "it came after the truncation");
            if !is_dropped {
                shard.truncate(&store).await.expect("the disk works");
            }
            // Short ones find no place either.
            let short = insert(0..1, 1);
            let short = Mutation::new(&short).expect("a whole mutation");
            assert_eq!(shard.write(&store, token_of(KEY), &short).is_err(), is_dropped);
            if !is_dropped {
                shard.truncate(&store).await.expect("the disk works");
            }
            assert_eq!(shard.memory().dirty, 0, "bytes of memory that are never given back");
        });
    }
}

/// One record of the log for tablets that have many parts of it and others that have few: the latter are written in
/// their active memtables.
#[test]
fn a_batch_of_many_tablets_moves_few_of_them_aside() {
    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    run(&mut simulation, node, || async {
        let (shard, table) = (shard(1 << 20, 0), blobs());
        let cuts: Vec<i64> = (-8..=8).map(|n| n * (i64::MAX / 8)).collect();
        let ranges: Vec<TokenRange> = cuts
            .windows(2)
            .map(|ends| TokenRange {
                after: Token(ends[0]),
                to: Token(ends[1]),
            })
            .collect();
        open_table(&shard, &table, &ranges);
        replay(&shard).await;
        let store = shard.store(table.id).expect("it was opened");
        let count = |n: i64| if n == 3 { 480 } else { 10 };
        let bytes: Vec<Vec<u8>> = (0..16).map(|n| insert(0..count(n), 1)).collect();
        let tokens = cuts[..16].iter().map(|after| Token(after + 1));
        let mutations: Vec<_> = tokens
            .zip(&bytes)
            .map(|(token, bytes)| {
                (
                    Rc::clone(&store),
                    token,
                    Mutation::new(bytes).expect("a whole mutation"),
                )
            })
            .collect();
        assert!(is_long(&mutations));
        let aside = merged(&shard, &mutations).await;
        shard
            .write_aside(&mutations, aside)
            .expect("there is room")
            .expect("all are here")
            .is_not_awaited();
        let tablets = store.tablets();
        let frozen: Vec<usize> = tablets.iter().map(|tablet| tablet.version().frozen.len()).collect();
        assert_eq!(frozen.iter().sum::<usize>(), 1, "{frozen:?}");
        let rows: u64 = tablets
            .iter()
            .map(|tablet| tablet.version().active.borrow().row_count())
            .sum();
        assert_eq!(rows, 15 * 10, "rows of active memtables");
        shard.flush_all().await.expect("the disk works");
        assert_eq!(shard.memory().dirty, 0);
    });
}

/// Rows of several partitions, which are one record of the log.
fn one_row_each(keys: u32) -> Vec<(Vec<u8>, Vec<u8>)> {
    let table = blobs();
    let row = |number: u32| {
        let (key, mut bytes) = (number.to_be_bytes().to_vec(), Vec::new());
        let shared = Shared {
            timestamp: 1,
            ttl: 0,
            expiry: 0,
        };
        let mut clustering = Vec::new();
        push_component(&mut clustering, &1_u32.to_be_bytes());
        MutationBuilder::begin(&mut bytes, table.id, &key).row(&clustering, |out| {
            RowBuilder::begin(out, &table.layout, shared, None, Tombstone::NONE, false, 1).value(0, &[1; 4]);
        });
        (key, bytes)
    };
    (0..keys).map(row).collect()
}

/// A tablet is split while it is found out which tablets have how much of a write.
#[test]
fn no_part_of_a_long_write_is_lost_when_its_tablet_is_split_meanwhile() {
    const KEYS: u32 = 800;
    let splits_between = Rc::new(Cell::new(0));
    for seed in 0..12 {
        let mut simulation = Simulation::new(seed);
        let node = simulation.add_node(1);
        let splits_between = splits_between.clone();
        run(&mut simulation, node, move || {
            let splits_between = splits_between.clone();
            async move {
                let (shard, store) = start(0).await;
                write_short(&shard, &store, 1);
                // Nearly all tokens are in the second.
                let halves = [(i64::MIN, i64::MIN + (1 << 50)), (i64::MIN + (1 << 50), i64::MAX)];
                let halves = halves.map(|(after, to)| TokenRange {
                    after: Token(after),
                    to: Token(to),
                });
                let prepared = shard.prepare_to_leave(&store, &halves, &halves).await;
                prepared.expect("the disk works");
                let rows = one_row_each(KEYS);
                let (writing, writes, written) = (shard.clone(), store.clone(), rows.clone());
                let is_written = Rc::new(Cell::new(false));
                let said = is_written.clone();
                let writer = runtime::spawn(async move {
                    let of = |(key, bytes): &'_ (Vec<u8>, Vec<u8>)| (token_of(key), bytes.clone());
                    let owned: Vec<_> = written.iter().map(of).collect();
                    let mutations: Vec<_> = owned
                        .iter()
                        .map(|(token, bytes)| (writes.clone(), *token, Mutation::new(bytes).expect("a whole mutation")))
                        .collect();
                    loop {
                        let aside = merged(&writing, &mutations).await;
                        if writing.write_aside(&mutations, aside).expect("there is room").is_some() {
                            break;
                        }
                    }
                    said.set(true);
                });
                for _ in 0..seed / 2 {
                    runtime::yield_now().await;
                }
                shard.keep_in_memory(&store, &halves).await;
                splits_between.set(splits_between.get() + u32::from(!is_written.get()));
                shard.reconcile(&[WantedTable {
                    table: store.table(),
                    ranges: halves.to_vec(),
                    keeps_shards: true,
                }]);
                writer.await;
                for (key, _) in &rows {
                    let tablet = store.tablet(token_of(key)).expect("all tokens are here");
                    let read = whole(key, 10);
                    let mut reader = PartitionReader::new(store.table(), tablet.version(), shard.cache.clone(), read);
                    let block = reader.next_block().await.expect("the files can be read");
                    assert_eq!(block.map(|block| block.len()), Some(1), "seed {seed}: {key:?} is lost");
                }
            }
        });
    }
    assert!(splits_between.get() > 3, "the splits came too late");
}

/// A flush that fails once leaves its memtables. The log, whose segments they hold, asks for the next one.
#[test]
fn the_log_gets_its_room_back_after_a_flush_that_failed() {
    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    run(&mut simulation, node, || async {
        let options = Options {
            log_bytes_max: 2 << 20,
            ..options(1 << 20)
        };
        let (shard, table) = (shard_with(options, 0), blobs());
        open_table(&shard, &table, &[shard.token_range()]);
        replay(&shard).await;
        let store = shard.store(table.id).expect("it was opened");
        assert!(write_long(&shard, &store, 1).await);
        // Nothing can be made where the file of the table's directory is.
        runtime::fs::create_dir_all(store.dir.parent().expect("it is of a keyspace")).expect("the disk works");
        runtime::fs::write(&store.dir, b"").expect("the disk works");
        shard
            .flush(&store, &store.tablets()[0])
            .await
            .expect_err("there is no directory");
        runtime::fs::remove_file(&store.dir).expect("the disk works");
        drop(runtime::spawn(shard.clone().watch_log()));
        for value in 2..200 {
            assert!(write_long(&shard, &store, value).await);
            runtime::sleep(Duration::from_millis(20)).await;
        }
        let first = store.tablets()[0]
            .version()
            .frozen
            .iter()
            .map(|frozen| frozen.first_segment)
            .min();
        assert!(first.is_none_or(|first| first > 1), "the first segment is still held");
    });
}

#[test]
fn a_flush_ends_though_long_writes_go_on() {
    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    run(&mut simulation, node, || async {
        let (shard, store) = start(0).await;
        assert!(write_long(&shard, &store, 1).await);
        let is_over = Rc::new(Cell::new(false));
        let (writing, writes, ends) = (shard.clone(), store.clone(), is_over.clone());
        let writer = runtime::spawn(async move {
            let mut value = 1;
            while !ends.get() {
                value += 1;
                assert!(write_long(&writing, &writes, value).await);
            }
        });
        for _ in 0..10 {
            let flushed = runtime::timeout(Duration::from_secs(5), shard.flush(&store, &store.tablets()[0])).await;
            flushed.expect("it ends").expect("the disk works");
        }
        is_over.set(true);
        writer.await;
    });
}
