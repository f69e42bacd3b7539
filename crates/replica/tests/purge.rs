//! What compactions may forget, and what every block of a partition carries.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{open_table, shard, whole};
use mutation::compact::LiveRow;
use mutation::row::Shared;
use mutation::{Bound, Liveness, Mutation, MutationBuilder, PartitionBlock, RangeTombstone, RowBuilder, Tombstone};
use replica::{PartitionReader, Shard, TableStore, TokenRange, TombstoneHold};
use runtime::sim::{FailedSync, Simulation};
use schema::{Column, ColumnKind, Table, TableId, TableOptions, TombstoneGc, TombstoneGcMode, push_component};
use stdx::planted::{self, Bug, Planted};
use types::token::token_of;
use types::{CqlType, Token};
use uuid::Uuid;

const KEY: &[u8] = b"key";
/// Seconds after 1970: every grace period is over.
const LONG_AGO: u32 = 1_000;

/// `sea.t (k blob, c int, s int static, PRIMARY KEY (k, c))`.
fn table() -> Arc<Table> {
    let columns = vec![
        Column::new("k", CqlType::Blob, ColumnKind::PartitionKey),
        Column::new("c", CqlType::Int, ColumnKind::Clustering),
        Column::new("s", CqlType::Int, ColumnKind::Static),
    ];
    let id = TableId(Uuid::from_u128(7));
    Arc::new(Table::new("sea", "t", id, columns, TableOptions::default()))
}

fn clustering(c: i32) -> Vec<u8> {
    let mut out = Vec::new();
    push_component(&mut out, &c.to_be_bytes());
    out
}

fn tombstone(timestamp: i64) -> Tombstone {
    Tombstone {
        timestamp,
        deletion_time: LONG_AGO,
    }
}

struct Local {
    shard: Rc<Shard>,
    store: Rc<TableStore>,
}

impl Local {
    /// A shard with the table, which has nothing yet.
    fn new() -> Self {
        let (shard, table) = (shard(1 << 20, 0), table());
        open_table(&shard, &table, &[shard.token_range()]);
        let store = shard.store(table.id).expect("it was opened");
        Self { shard, store }
    }

    /// A change of the partition.
    fn mutation(&self, change: impl FnOnce(&mut MutationBuilder<'_>, &Table)) -> Vec<u8> {
        let (table, mut out) = (self.store.table(), Vec::new());
        change(&mut MutationBuilder::begin(&mut out, table.id, KEY), &table);
        out
    }

    fn inserted(&self, c: i32, timestamp: i64) -> Vec<u8> {
        self.mutation(|builder, table| {
            builder.row(&clustering(c), |out| {
                let (shared, marker) = times(timestamp);
                RowBuilder::begin(out, &table.layout, shared, Some(marker), Tombstone::NONE, false, 0);
            });
        })
    }

    fn take(&self, mutation: &[u8]) {
        let mutation = Mutation::new(mutation).expect("a whole mutation");
        let written = self.shard.write(&self.store, token_of(KEY), &mutation);
        written.expect("there is room").is_not_awaited();
    }

    fn write(&self, change: impl FnOnce(&mut MutationBuilder<'_>, &Table)) {
        self.take(&self.mutation(change));
    }

    fn insert(&self, c: i32, timestamp: i64) {
        self.take(&self.inserted(c, timestamp));
    }

    fn delete(&self, c: i32, timestamp: i64) {
        self.write(|builder, table| {
            builder.row(&clustering(c), |out| {
                let (shared, _) = times(timestamp);
                RowBuilder::begin(out, &table.layout, shared, None, tombstone(timestamp), false, 0);
            });
        });
    }

    async fn flush(&self) {
        let tablet = self.store.tablets()[0].clone();
        self.shard.flush(&self.store, &tablet).await.expect("the disk works");
    }

    async fn compact(&self) {
        self.shard.compact_table(&self.store).await.expect("the disk works");
    }

    /// The partition, so many rows at a time.
    async fn read(&self, rows: usize) -> Vec<PartitionBlock> {
        let read = whole(KEY, rows);
        let (table, version) = (self.store.table(), self.store.tablets()[0].version());
        let mut reader = PartitionReader::new(table, version, self.shard.cache.clone(), read);
        let mut blocks = Vec::new();
        while let Some(block) = reader.next_block().await.expect("the files can be read") {
            blocks.push(block);
        }
        blocks
    }

    /// The rows that a client sees.
    async fn living(&self, rows: usize) -> usize {
        let table = self.store.table();
        let of_block = |block: &PartitionBlock| {
            let is_live = |(clustering, row): &(&[u8], mutation::RowView<'_>)| {
                let deletion = block.deletion_of(&table.clustering_order, clustering);
                LiveRow::new(*row, &table.layout, deletion, LONG_AGO).is_live()
            };
            block.rows().filter(is_live).count()
        };
        self.read(rows).await.iter().map(of_block).sum()
    }

    /// Whether a file still has the deletion of a row.
    async fn keeps_deletion(&self) -> bool {
        let blocks = self.read(100).await;
        blocks
            .iter()
            .any(|block| block.rows().any(|(_, row)| !row.tombstone.is_none()))
    }
}

fn times(timestamp: i64) -> (Shared, Liveness) {
    let (ttl, expiry) = (0, 0);
    (Shared { timestamp, ttl, expiry }, Liveness { timestamp, ttl, expiry })
}

fn play<F: Future<Output = ()> + 'static>(work: impl Fn(Local) -> F + 'static) {
    play_for(Duration::from_hours(1), work);
}

fn play_for<F: Future<Output = ()> + 'static>(time: Duration, work: impl Fn(Local) -> F + 'static) {
    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    let work = Rc::new(work);
    simulation.start(node, move |_| {
        let work = work.clone();
        Box::pin(async move { work(Local::new()).await })
    });
    assert!(simulation.run_until_ended(node, time), "it ends");
}

#[test]
fn a_tombstone_that_hides_nothing_is_purged() {
    play(|local| async move {
        local.insert(0, 10);
        local.delete(0, 20);
        local.flush().await;
        local.compact().await;
        assert!(!local.keeps_deletion().await);
    });
}

/// Nothing is written or flushed any more once the tombstone is old enough, and no operator asks for a compaction.
#[test]
fn the_tombstones_of_an_idle_table_are_purged() {
    play_for(Duration::from_hours(48), |local| async move {
        drop(runtime::spawn(local.shard.clone().compact_periodically()));
        local.insert(0, 10);
        local.delete(0, 20);
        local.flush().await;
        runtime::sleep(Duration::from_hours(23)).await;
        assert!(
            local.keeps_deletion().await,
            "the file is younger than tombstone_compaction_interval"
        );
        runtime::sleep(Duration::from_hours(2)).await;
        assert!(!local.keeps_deletion().await);
        assert_eq!(
            local.store.tablets()[0].version().sstables.len(),
            0,
            "nothing is left of it"
        );
    });
}

#[test]
fn a_tombstone_stays_while_an_older_write_is_in_memory() {
    play(|local| async move {
        local.delete(0, 20);
        local.flush().await;
        local.insert(0, 10);
        // A younger row beside it: the least timestamp counts, not the last.
        local.insert(1, 30);
        local.compact().await;
        assert!(local.keeps_deletion().await);
        assert_eq!(local.living(100).await, 1);
    });
}

#[test]
fn a_tombstone_stays_while_an_older_write_is_being_flushed() {
    play(|local| async move {
        local.delete(0, 20);
        local.flush().await;
        local.insert(0, 10);
        let (shard, store) = (local.shard.clone(), local.store.clone());
        let flush = runtime::spawn(async move { shard.flush(&store, &store.tablets()[0].clone()).await });
        while local.store.tablets()[0].version().frozen.is_empty() {
            runtime::yield_now().await;
        }
        local.compact().await;
        flush.await.expect("the disk works");
        assert_eq!(local.living(100).await, 0);
    });
}

#[test]
fn a_tombstone_stays_while_a_file_that_is_not_compacted_may_have_an_older_write() {
    play(|local| async move {
        local.insert(0, 10);
        local.flush().await;
        local.delete(0, 20);
        local.flush().await;
        // A compaction leaves out what is suspect.
        assert!(local.store.tablets()[0].version().sstables[0].suspect());
        local.compact().await;
        assert!(local.keeps_deletion().await);
        assert_eq!(local.living(100).await, 0);
    });
}

#[test]
fn a_tombstone_stays_while_the_log_of_an_earlier_run_is_there() {
    play(|local| async move {
        local.shard.keep_old_log();
        local.delete(0, 20);
        local.flush().await;
        local.compact().await;
        assert!(local.keeps_deletion().await, "a replay may write older rows again");
        local.shard.forget_old_log().await;
        local.compact().await;
        assert!(!local.keeps_deletion().await);
    });
}

/// The older row is in the log, the deletion only in an sstable, because the sync of the log failed.
#[test]
fn a_tombstone_stays_while_the_log_takes_no_writes() {
    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    let is_ready = Rc::new(Cell::new(false));
    let ready = is_ready.clone();
    simulation.start(node, move |_| {
        let is_ready = ready.clone();
        Box::pin(async move {
            let local = Local::new();
            local.insert(0, 10);
            local.flush().await;
            local.delete(0, 20);
            is_ready.set(true);
            runtime::sleep(Duration::from_millis(1)).await;
            local.flush().await;
            assert!(local.shard.log.trouble().is_some(), "a sync failed");
            local.compact().await;
            assert!(local.keeps_deletion().await, "a replay may write the older row again");
        })
    });
    assert!(simulation.run_until(Duration::from_hours(1), || is_ready.get()));
    simulation.fail_sync_after(node, 0, FailedSync::Dropped);
    assert!(simulation.run_until_ended(node, Duration::from_hours(1)), "it ends");
}

#[test]
fn a_tombstone_stays_until_the_end_of_an_older_batch_is_durable() {
    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    // A sync takes long, so that the second batch ends during the sync of the end of the first.
    simulation.set_disk_delay(node, Duration::from_millis(100));
    simulation.start(node, |_| {
        Box::pin(async {
            let local = Local::new();
            let (younger, older) = (local.inserted(1, 30), local.inserted(0, 10));
            for (id, mutation) in [(1, &younger), (2, &older)] {
                let noted = local.shard.begin_batch(id, [&mutation[..]].into_iter());
                noted.expect("there is room");
            }
            local.insert(1, 30);
            local.insert(0, 10);
            local.delete(0, 20);
            local.flush().await;
            local.shard.end_batch(1);
            // Ends are made durable a second later.
            runtime::sleep(Duration::from_millis(1050)).await;
            local.shard.end_batch(2);
            runtime::sleep(Duration::from_millis(450)).await;
            local.compact().await;
            assert!(local.keeps_deletion().await, "a replay may write the batch again");
            runtime::sleep(Duration::from_secs(5)).await;
            local.compact().await;
            assert!(!local.keeps_deletion().await);
        })
    });
    assert!(simulation.run_until_ended(node, Duration::from_hours(1)), "it ends");
}

#[test]
fn a_tombstone_stays_while_a_replica_may_lack_it() {
    let nothing = TombstoneHold::ALONE;
    let reported_until = |from| TombstoneHold {
        from,
        ..nothing.clone()
    };
    let missed = |first, last| TombstoneHold {
        spans: vec![first..=last],
        ..nothing.clone()
    };
    for (hold, is_kept) in [
        (nothing.clone(), false),
        (reported_until(LONG_AGO + 1), false),
        (reported_until(LONG_AGO), true),
        (missed(LONG_AGO - 5, LONG_AGO - 1), false),
        (missed(LONG_AGO - 5, LONG_AGO), true),
        (missed(LONG_AGO, LONG_AGO + 5), true),
    ] {
        play(move |local| {
            let hold = hold.clone();
            async move {
                let told = hold.clone();
                local.shard.hold_tombstones(Box::new(move |_, _| told.clone()));
                local.delete(0, 20);
                local.flush().await;
                local.compact().await;
                assert_eq!(local.keeps_deletion().await, is_kept, "{hold:?}");
            }
        });
    }
}

/// A tablet that is new on its node takes a deletion before it has the older row.
async fn delete_compact_and_receive(local: &Local) -> usize {
    local.store.set_awaited(vec![local.shard.token_range()]);
    local.delete(0, 20);
    local.flush().await;
    local.compact().await;
    // What the other node had.
    local.insert(0, 10);
    local.flush().await;
    local.store.set_awaited(Vec::new());
    local.living(100).await
}

#[test]
fn a_tombstone_stays_while_older_data_is_on_its_way_from_another_node() {
    play(|local| async move {
        assert_eq!(delete_compact_and_receive(&local).await, 0, "the row stays deleted");
        local.compact().await;
        assert!(!local.keeps_deletion().await, "all is here: the tombstone may go");
    });
}

#[test]
fn a_deleted_row_is_back_where_its_tombstone_is_purged_before_it_has_arrived() {
    let _planted = Planted::new(Some(Bug::PurgedBeforeArrival));
    play(|local| async move {
        let expected = usize::from(planted::is_planted(Bug::PurgedBeforeArrival));
        assert_eq!(delete_compact_and_receive(&local).await, expected);
    });
}

#[test]
fn data_that_is_awaited_for_other_tokens_keeps_no_tombstone() {
    play(|local| async move {
        let token = token_of(KEY);
        let (after, to) = (Token(token.0 - 1), Token(token.0 + 1));
        let range = |after, to| TokenRange { after, to };
        for (awaited, is_kept) in [
            (range(token, to), false),
            (range(Token(i64::MIN), after), false),
            (range(after, token), true),
        ] {
            local.store.set_awaited(vec![awaited]);
            assert_eq!(local.store.awaits_data(range(after, token)), is_kept, "{awaited:?}");
        }
    });
}

#[test]
fn an_expired_cell_hides_an_older_one_that_is_on_its_way_from_another_node() {
    play(|local| async move {
        let expiring = |timestamp: i64, ttl: u32, expiry: u32| {
            local.mutation(|builder, table| {
                builder.row(&clustering(0), |out| {
                    let shared = Shared { timestamp, ttl, expiry };
                    let marker = Liveness { timestamp, ttl, expiry };
                    RowBuilder::begin(out, &table.layout, shared, Some(marker), Tombstone::NONE, false, 0);
                });
            })
        };
        local.store.set_awaited(vec![local.shard.token_range()]);
        local.take(&expiring(20, 10, LONG_AGO));
        local.flush().await;
        local.compact().await;
        local.insert(0, 10);
        assert_eq!(local.living(100).await, 0, "the row has expired");
    });
}

#[test]
fn every_block_of_a_partition_carries_its_deletion_and_its_static_row() {
    play(|local| async move {
        for c in 0..10 {
            local.insert(c, 10);
        }
        local.flush().await;
        for c in 0..5 {
            local.insert(c, 30);
        }
        local.write(|builder, table| {
            let id = table
                .column("s")
                .map(|column| usize::from(column.id.0))
                .expect("a static column");
            builder.static_row(|out| {
                let (shared, _) = times(30);
                RowBuilder::begin(out, &table.layout, shared, None, Tombstone::NONE, false, id + 1).value(id, &[0; 4]);
            });
        });
        local.write(|builder, _| builder.partition_tombstone(tombstone(20)));
        local.flush().await;
        let blocks = local.read(2).await;
        assert!(blocks.len() >= 5, "{} blocks", blocks.len());
        for block in &blocks {
            assert_eq!(block.tombstone, tombstone(20));
            assert!(block.static_row().is_some());
        }
        assert_eq!(
            local.living(2).await,
            5,
            "the deletion hides the rows of the older file"
        );
    });
}

#[test]
fn a_range_deletion_hides_its_rows_wherever_blocks_are_cut() {
    play(|local| async move {
        for c in 0..10 {
            local.insert(c, 10);
        }
        local.flush().await;
        // Of another source, which gives it in one piece.
        local.write(|builder, _| {
            builder.range_tombstone(&RangeTombstone {
                start: Bound::before(&clustering(1)),
                end: Bound::after(&clustering(8)),
                tombstone: tombstone(20),
            });
        });
        for rows in [1, 3, 100] {
            assert_eq!(local.living(rows).await, 2, "by {rows} rows, from memory");
        }
        local.flush().await;
        for rows in [1, 3, 100] {
            assert_eq!(local.living(rows).await, 2, "by {rows} rows, from files");
        }
    });
}

/// Whether a deletion of [`LONG_AGO`] is kept by a table with this option, when its replicas have what `hold` says.
fn is_kept(options: impl Fn(&mut TableOptions) + Clone + 'static, hold: TombstoneHold, is_held: bool) -> bool {
    let kept = Rc::new(Cell::new(false));
    let told = kept.clone();
    play(move |local| {
        let (options, hold, told) = (options.clone(), hold.clone(), told.clone());
        async move {
            let mut table = (*local.store.table()).clone();
            options(&mut table.options);
            *local.store.table.borrow_mut() = Arc::new(table);
            local.shard.hold_tombstones(Box::new(move |_, _| hold.clone()));
            let _held = is_held.then(|| local.store.hold_purges(TokenRange::ALL, LONG_AGO));
            local.delete(0, 20);
            local.flush().await;
            local.compact().await;
            told.set(local.keeps_deletion().await);
        }
    });
    kept.get()
}

#[test]
fn each_mode_of_tombstone_gc_keeps_a_deletion_as_long_as_it_says() {
    let mode = |mode, delay| {
        move |options: &mut TableOptions| {
            options.tombstone_gc = Some(TombstoneGc {
                mode,
                propagation_delay_seconds: delay,
            });
        }
    };
    let equal_until = |watermark| TombstoneHold {
        watermark,
        ..TombstoneHold::ALONE
    };
    let for_ever = u32::MAX;
    for (what, option, hold, kept) in [
        (
            "repair, all have it",
            mode(TombstoneGcMode::Repair, 0),
            equal_until(LONG_AGO + 1),
            false,
        ),
        (
            "repair, one may lack it",
            mode(TombstoneGcMode::Repair, 0),
            equal_until(LONG_AGO),
            true,
        ),
        (
            "repair, it may be on its way",
            mode(TombstoneGcMode::Repair, for_ever),
            equal_until(u32::MAX),
            true,
        ),
        (
            "disabled",
            mode(TombstoneGcMode::Disabled, 0),
            TombstoneHold::ALONE,
            true,
        ),
        (
            "immediate",
            mode(TombstoneGcMode::Immediate, 0),
            TombstoneHold::UNKNOWN,
            false,
        ),
        (
            "timeout",
            mode(TombstoneGcMode::Timeout, 0),
            TombstoneHold::ALONE,
            false,
        ),
        (
            "timeout, a member is silent",
            mode(TombstoneGcMode::Timeout, 0),
            TombstoneHold::UNKNOWN,
            true,
        ),
    ] {
        assert_eq!(is_kept(option, hold.clone(), false), kept, "{what}");
        assert!(
            is_kept(option, hold, true),
            "{what}, while a repair carries rows of before"
        );
    }
    // Cassandra's option of a strategy.
    let repaired_only = |options: &mut TableOptions| {
        let option = ("only_purge_repaired_tombstones".to_owned(), "true".to_owned());
        options.compaction.extend([option]);
    };
    for (repaired, kept) in [(0, true), (LONG_AGO, true), (LONG_AGO + 1, false)] {
        let hold = TombstoneHold {
            repaired,
            ..TombstoneHold::ALONE
        };
        assert_eq!(is_kept(repaired_only, hold, false), kept, "repaired until {repaired}");
    }
}
