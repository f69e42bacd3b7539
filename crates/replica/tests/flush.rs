//! Flushes and compactions beside crashes, truncations, drops and full disks: no write is lost, and none comes back.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{open_table, options, replay, shard, shard_with, whole};
use commitlog::SyncMode;
use mutation::row::Shared;
use mutation::{Mutation, MutationBuilder, RowBuilder, Tombstone};
use replica::{DiskFailure, PartitionReader, Shard, TableStore, WantedTable};
use runtime::StopPoint;
use runtime::sim::{CrashKind, DiskErrors, FailedSync, NodeId, Simulation, Stop};
use schema::{Column, ColumnKind, Table, TableId, TableOptions, push_component};
use test_node::Options;
use types::CqlType;
use types::token::token_of;
use uuid::Uuid;

const HOUR: Duration = Duration::from_hours(1);
const KEY: &[u8] = b"key";
const VALUE_BYTES: usize = 8 << 10;

/// `sea.NAME (k blob, c int, v blob, PRIMARY KEY (k, c))`.
fn table(name: &str) -> Arc<Table> {
    let columns = vec![
        Column::new("k", CqlType::Blob, ColumnKind::PartitionKey),
        Column::new("c", CqlType::Int, ColumnKind::Clustering),
        Column::new("v", CqlType::Blob, ColumnKind::Regular),
    ];
    let id = TableId(Uuid::from_u128(name.bytes().map(u128::from).sum()));
    Arc::new(Table::new("sea", name, id, columns, TableOptions::default()))
}

/// An insert of one row.
fn insert(table: &Table, c: u32) -> Vec<u8> {
    let (mut bytes, mut clustering) = (Vec::new(), Vec::new());
    push_component(&mut clustering, &c.to_be_bytes());
    let shared = Shared {
        timestamp: 10,
        ttl: 0,
        expiry: 0,
    };
    MutationBuilder::begin(&mut bytes, table.id, KEY).row(&clustering, |out| {
        RowBuilder::begin(out, &table.layout, shared, None, Tombstone::NONE, false, 1).value(0, &[0; VALUE_BYTES]);
    });
    bytes
}

/// A node's start with tables `t` and `other`, and what it has of `t`. The run before it, if there was one, made at
/// most so many sstables.
async fn start(sstables_max: u64) -> (Rc<Shard>, Rc<TableStore>) {
    let (shard, table) = (shard(1 << 20, sstables_max), table("t"));
    for table in [&table, &self::table("other")] {
        open_table(&shard, table, &[shard.token_range()]);
    }
    replay(&shard).await;
    let store = shard.store(table.id).expect("it was opened");
    (shard, store)
}

fn write(shard: &Rc<Shard>, store: &TableStore, c: u32) {
    let bytes = insert(&store.table(), c);
    let mutation = Mutation::new(&bytes).expect("a whole mutation");
    shard
        .write(store, token_of(KEY), &mutation)
        .expect("there is room")
        .is_not_awaited();
}

/// The rows that a client sees.
async fn rows(shard: &Shard, store: &TableStore) -> usize {
    let (table, version) = (store.table(), store.tablets()[0].version());
    let mut reader = PartitionReader::new(table, version, shard.cache.clone(), whole(KEY, 100));
    let mut count = 0;
    while let Some(block) = reader.next_block().await.expect("the files can be read") {
        count += block.rows().count();
    }
    count
}

fn run<F: Future<Output = ()> + 'static>(simulation: &mut Simulation, node: NodeId, f: impl Fn() -> F + 'static) {
    simulation.start(node, move |_| Box::pin(f()));
    assert!(simulation.run_until_ended(node, HOUR), "the node has not ended");
}

#[test]
fn what_a_replay_did_not_flush_is_replayed_again_after_the_next_crash() {
    // More than twice the memory, so that flushes make room while the log is read.
    const ROWS: u32 = (40 << 20) / VALUE_BYTES as u32;
    for flushes in 1..5 {
        let mut simulation = Simulation::new(1);
        let node = simulation.add_node(1);
        run(&mut simulation, node, || async {
            let (shard, store) = start(0).await;
            for c in 0..ROWS {
                let appended = shard.log.append(&insert(&store.table(), c));
                appended.expect("there is room").is_not_awaited();
            }
            shard.log.write().expect("the disk works");
        });
        simulation.stop_at(node, StopPoint::FlushFrozen, flushes, Stop::Crash(CrashKind::Kill));
        run(&mut simulation, node, || async {
            let _shard = start(0).await;
            runtime::sleep(HOUR / 2).await;
            unreachable!("the process ends before all is flushed");
        });
        simulation.clear_file_faults(node);
        run(&mut simulation, node, move || async move {
            let (shard, store) = start(100).await;
            assert_eq!(rows(&shard, &store).await, ROWS as usize, "after {flushes} flushes");
        });
    }
}

#[test]
fn the_log_of_what_could_not_be_flushed_stays_when_another_table_is_flushed() {
    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    run(&mut simulation, node, || async {
        let (shard, store) = start(0).await;
        write(&shard, &store, 0);
        runtime::fs::create_dir_all("/data/sea").expect("the disk works");
        runtime::fs::write(&store.dir, b"in the way").expect("the disk works");
        let refused = shard.flush(&store, &store.tablets()[0]).await;
        refused.expect_err("there is no directory");
        // More than a segment of the log.
        let other = shard.store(table("other").id).expect("it was opened");
        for c in 0..(2 << 20) / VALUE_BYTES as u32 {
            write(&shard, &other, c);
        }
        shard.flush(&other, &other.tablets()[0]).await.expect("the disk works");
        runtime::fs::remove_file(&store.dir).expect("the disk works");
    });
    run(&mut simulation, node, || async {
        let (shard, store) = start(100).await;
        assert_eq!(rows(&shard, &store).await, 1);
    });
}

#[test]
fn rows_of_a_truncated_table_stay_away_when_power_goes() {
    for seed in 0..4 {
        let mut simulation = Simulation::new(seed);
        let node = simulation.add_node(1);
        let (is_written, is_full) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
        let (written, full) = (is_written.clone(), is_full.clone());
        simulation.start(node, move |_| {
            let (written, full) = (written.clone(), full.clone());
            Box::pin(async move {
                let (shard, store) = start(0).await;
                write(&shard, &store, 0);
                shard.log.write().expect("the disk works");
                shard.log.sync().await.expect("the disk works");
                written.set(true);
                while !full.get() {
                    runtime::sleep(Duration::from_millis(1)).await;
                }
                // The rows are in the log alone, as no flush has room.
                shard.truncate(&store).await.expect("a truncation needs no room");
                assert_eq!(rows(&shard, &store).await, 0);
            })
        });
        assert!(simulation.run_until(HOUR, || is_written.get()));
        simulation.set_disk_capacity(node, Some(0));
        is_full.set(true);
        assert!(simulation.run_until_ended(node, HOUR), "the node has not ended");
        simulation.crash(node, CrashKind::PowerLoss);
        simulation.set_disk_capacity(node, None);
        run(&mut simulation, node, move || async move {
            let (shard, store) = start(0).await;
            assert_eq!(rows(&shard, &store).await, 0, "seed {seed}: the row is back");
        });
    }
}

#[test]
fn a_flush_leaves_no_file_of_a_table_that_is_dropped_meanwhile() {
    // From the sync of the log until the file is there.
    for turns in 0..40 {
        let mut simulation = Simulation::new(1);
        let node = simulation.add_node(1);
        run(&mut simulation, node, move || async move {
            let (shard, store) = start(0).await;
            write(&shard, &store, 0);
            let (flushing, of) = (shard.clone(), store.clone());
            let flush = runtime::spawn(async move { flushing.flush(&of, &of.tablets()[0]).await });
            while store.tablets()[0].version().frozen.is_empty() {
                runtime::yield_now().await;
            }
            for _ in 0..turns {
                runtime::yield_now().await;
            }
            shard.drop_table(store.table().id).await.expect("the disk works");
            flush.await.expect("the disk works");
            let left = sstable::list(&store.dir).expect("the disk works");
            assert!(left.is_empty(), "after {turns} turns: {left:?}");
        });
    }
}

/// Rows that are there at the start after a truncation, and whether a compaction before it failed and left files that
/// are not its inputs: the disk became full so many microseconds after the compaction began.
fn compacted_on_a_full_disk(micros: u64) -> (usize, bool) {
    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    let (is_begun, failed) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let (begun, has_failed) = (is_begun.clone(), failed.clone());
    simulation.start(node, move |_| {
        let (begun, has_failed) = (begun.clone(), has_failed.clone());
        Box::pin(async move {
            let (shard, store) = start(0).await;
            for c in 0..2 {
                write(&shard, &store, c);
                shard.flush(&store, &store.tablets()[0]).await.expect("the disk works");
            }
            begun.set(true);
            has_failed.set(shard.compact_table(&store).await.is_err());
            shard.truncate(&store).await.expect("a truncation needs no room");
        })
    });
    assert!(simulation.run_until(HOUR, || is_begun.get()));
    simulation.run_for(Duration::from_micros(micros));
    simulation.set_disk_capacity(node, Some(0));
    assert!(simulation.run_until_ended(node, HOUR), "the node has not ended");
    simulation.set_disk_capacity(node, None);
    let found = Rc::new(Cell::new(0));
    let count = found.clone();
    run(&mut simulation, node, move || {
        let count = count.clone();
        async move {
            let (shard, store) = start(100).await;
            count.set(rows(&shard, &store).await);
        }
    });
    (found.get(), failed.get())
}

#[test]
fn what_a_compaction_wrote_that_a_full_disk_stopped_does_not_bring_rows_back() {
    let (mut failed, mut finished) = (0, 0);
    for micros in (0..30_000).step_by(100) {
        let (rows, has_failed) = compacted_on_a_full_disk(micros);
        assert_eq!(rows, 0, "the disk became full after {micros} us");
        *if has_failed { &mut failed } else { &mut finished } += 1;
    }
    assert!(
        failed > 0 && finished > 0,
        "{failed} compactions failed, {finished} did not"
    );
}

#[test]
fn a_flush_that_the_disk_fails_is_told_once_an_attempt_and_succeeds_on_a_healed_disk() {
    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    let stage = Rc::new(Cell::new(0));
    let shared = stage.clone();
    simulation.start(node, move |_| {
        let stage = shared.clone();
        Box::pin(async move {
            let until = async |wanted| {
                while stage.get() < wanted {
                    runtime::sleep(Duration::from_millis(1)).await;
                }
            };
            let (shard, store) = start(0).await;
            let failures = Rc::new(Cell::new(0));
            let seen = failures.clone();
            shard.on_disk_failure(Box::new(move |failure, reason| {
                assert_eq!(failure, DiskFailure::Io, "{reason}");
                seen.set(seen.get() + 1);
            }));
            write(&shard, &store, 0);
            stage.set(1);
            until(2).await;
            let refused = shard.flush(&store, &store.tablets()[0]).await;
            refused.expect_err("the disk writes nothing");
            assert_eq!((failures.get(), shard.disk_failures()), (1, 1));
            stage.set(3);
            until(4).await;
            shard
                .flush(&store, &store.tablets()[0])
                .await
                .expect("the disk is healed");
            assert_eq!((failures.get(), rows(&shard, &store).await), (1, 1));
        })
    });
    assert!(simulation.run_until(HOUR, || stage.get() == 1));
    simulation.set_disk_errors(node, Some(DiskErrors::Writes));
    stage.set(2);
    assert!(simulation.run_until(HOUR, || stage.get() == 3));
    simulation.set_disk_errors(node, None);
    stage.set(4);
    assert!(simulation.run_until_ended(node, HOUR), "the node has not ended");
}

#[test]
fn a_compaction_that_does_not_fit_waits_until_there_is_room() {
    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    let (used, step) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (filled, reached) = (used.clone(), step.clone());
    simulation.start(node, move |_| {
        let (used, step) = (filled.clone(), reached.clone());
        Box::pin(async move {
            let (shard, store) = start(0).await;
            shard.set_compacts_by_itself(&store, false);
            for c in 0..4 {
                write(&shard, &store, c);
                shard.flush(&store, &store.tablets()[0]).await.expect("the disk works");
            }
            let sstables = || store.tablets()[0].version().sstables.len();
            used.set(runtime::fs::disk_space("/").expect("a simulated disk").used);
            step.set(1);
            while step.get() == 1 {
                runtime::yield_now().await;
            }
            let refused = shard.compact_table(&store).await.expect_err("an operator is told");
            assert!(refused.starts_with("it may need "), "{refused}");
            shard.set_compacts_by_itself(&store, true);
            runtime::sleep(Duration::from_mins(1)).await;
            assert_eq!(sstables(), 4, "one that begins by itself waits");
            step.set(3);
            while step.get() == 3 {
                runtime::yield_now().await;
            }
            shard.set_takes_growth(false);
            assert!(!shard.takes_growth());
            runtime::sleep(Duration::from_mins(1)).await;
            assert_eq!(sstables(), 4, "nobody looked again");
            shard.set_takes_growth(true);
            runtime::sleep(Duration::from_mins(1)).await;
            assert_eq!(sstables(), 1);
            assert_eq!(rows(&shard, &store).await, 4);
        })
    });
    assert!(simulation.run_until(HOUR, || step.get() == 1));
    simulation.set_disk_capacity(node, Some(used.get() + 100));
    step.set(2);
    assert!(simulation.run_until(HOUR, || step.get() == 3));
    simulation.set_disk_capacity(node, None);
    step.set(4);
    assert!(simulation.run_until_ended(node, HOUR), "the node has not ended");
}

#[test]
fn a_table_with_a_flush_period_is_in_sstables_when_the_period_has_ended() {
    let mut simulation = Simulation::new(3);
    let node = simulation.add_node(1);
    run(&mut simulation, node, || async {
        let (shard, store) = start(0).await;
        drop(runtime::spawn(shard.clone().flush_periodically()));
        let files = |store: &TableStore| store.tablets()[0].version().sstables.len();
        write(&shard, &store, 0);
        runtime::sleep(HOUR / 4).await;
        assert_eq!(files(&store), 0, "no period, no flush");
        let with_period = |millis| {
            let mut table = Table::clone(&store.table());
            table.options.memtable_flush_period_in_ms = millis;
            let table = Arc::new(table);
            let ranges = vec![shard.token_range()];
            shard.reconcile(&[WantedTable {
                table,
                ranges,
                keeps_shards: false,
            }]);
        };
        with_period(60_000);
        runtime::sleep(Duration::from_secs(59)).await;
        assert_eq!(files(&store), 0, "the period begins with the option");
        runtime::sleep(Duration::from_secs(2)).await;
        assert_eq!(files(&store), 1);
        runtime::sleep(Duration::from_mins(5)).await;
        assert_eq!(files(&store), 1, "an empty memtable is not flushed");
        write(&shard, &store, 1);
        runtime::sleep(Duration::from_secs(61)).await;
        assert_eq!(files(&store), 2);
        with_period(0);
        write(&shard, &store, 2);
        runtime::sleep(HOUR / 4).await;
        assert_eq!(files(&store), 2, "the option was taken back");
        assert_eq!(rows(&shard, &store).await, 3);
    });
}

#[test]
fn a_long_memtable_is_not_freed_by_the_reader_that_has_it_last() {
    let mut simulation = Simulation::new(9);
    let node = simulation.add_node(1);
    run(&mut simulation, node, || async {
        let (shard, store) = start(0).await;
        for c in 0..1_000 {
            write(&shard, &store, c);
        }
        let reader = store.tablets()[0].version();
        let flushing = shard.clone();
        let flush = runtime::spawn(async move { flushing.flush_all().await });
        runtime::yield_now().await;
        let memtable = Arc::downgrade(&store.tablets()[0].version().frozen[0].memtable);
        flush.await.expect("there is room");
        assert!(store.tablets()[0].version().frozen.is_empty());
        runtime::sleep(Duration::from_secs(1)).await;
        drop(reader);
        assert!(memtable.upgrade().is_some(), "the reader freed it in its poll");
        runtime::sleep(Duration::from_secs(1)).await;
        assert!(memtable.upgrade().is_none(), "it is kept though no reader has it");
        assert_eq!(rows(&shard, &store).await, 1_000);
    });
}

#[test]
fn no_half_of_a_batch_becomes_durable_after_its_log_failed_to_sync() {
    async fn start() -> (Rc<Shard>, [Rc<TableStore>; 2]) {
        let options = Options {
            sync: SyncMode::Batch,
            ..options(1 << 20)
        };
        let (shard, tables) = (shard_with(options, 0), ["t", "other"].map(table));
        for table in &tables {
            open_table(&shard, table, &[shard.token_range()]);
        }
        replay(&shard).await;
        let stores = tables.map(|table| shard.store(table.id).expect("it was opened"));
        (shard, stores)
    }

    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    let is_ready = Rc::new(Cell::new(false));
    let ready = is_ready.clone();
    simulation.start(node, move |_| {
        let is_ready = ready.clone();
        Box::pin(async move {
            let (shard, stores) = start().await;
            let bytes = stores.each_ref().map(|store| insert(&store.table(), 1));
            let mutations = bytes.each_ref().map(|b| Mutation::new(b).expect("a whole mutation"));
            let [t, other] = stores.clone();
            let [of_t, of_other] = mutations;
            let batch = [(t, token_of(KEY), of_t), (other, token_of(KEY), of_other)];
            let logged = shard.write_batch(&batch).expect("there is room");
            shard.commit(&logged).expect("the kernel takes it");
            is_ready.set(true);
            runtime::sleep(Duration::from_millis(1)).await;
            let flushed = shard.flush(&stores[0], &stores[0].tablets()[0]).await;
            assert!(shard.log.trouble().is_some(), "a sync failed");
            flushed.expect_err("the log may lose the batch");
        })
    });
    assert!(simulation.run_until(HOUR, || is_ready.get()));
    simulation.fail_sync_after(node, 0, FailedSync::Dropped);
    assert!(simulation.run_until_ended(node, HOUR), "the node has not ended");
    simulation.crash(node, CrashKind::PowerLoss);
    run(&mut simulation, node, || async {
        let (shard, stores) = start().await;
        assert_eq!([rows(&shard, &stores[0]).await, rows(&shard, &stores[1]).await], [0, 0]);
    });
}
