//! A page that resumes the reader of the previous page returns what a new reader returns, whatever was written, flushed
//! and compacted in between; and it resumes wherever it can.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{open_table, shard};
use mutation::row::Shared;
use mutation::{
    Bound, Cell, ClusteringSlice, Mutation, MutationBuilder, PartitionBlock, RangeTombstone, RowBuilder, Tombstone,
};
use replica::{BlockLimits, PartitionRead, PartitionReader, PausedCounts, Shard, TableStore};
use runtime::random_u64;
use runtime::sim::Simulation;
use schema::{Column, ColumnKind, Table, TableId, TableOptions, push_component};
use types::CqlType;
use types::token::{KeyHash, token_of};
use uuid::Uuid;

const CACHE_BYTES_MAX: usize = 256 << 20;
const SEEDS: u64 = 24;
const ROWS: i32 = 300;
const READS: u64 = 25;
const KEY: &[u8] = b"key";

/// `sea.t (k blob, c int, s int static, v int, PRIMARY KEY (k, c))`
fn table() -> Arc<Table> {
    let columns = vec![
        Column::new("k", CqlType::Blob, ColumnKind::PartitionKey),
        Column::new("c", CqlType::Int, ColumnKind::Clustering),
        Column::new("s", CqlType::Int, ColumnKind::Static),
        Column::new("v", CqlType::Int, ColumnKind::Regular),
    ];
    let id = TableId(Uuid::from_u128(7));
    Arc::new(Table::new("sea", "t", id, columns, TableOptions::default()))
}

fn below(n: u64) -> u64 {
    random_u64() % n
}

fn clustering(c: i32) -> Vec<u8> {
    let mut out = Vec::new();
    push_component(&mut out, &c.to_be_bytes());
    out
}

fn any_row() -> i32 {
    i32::try_from(below(ROWS.unsigned_abs().into())).expect("a small number")
}

fn tombstone() -> Tombstone {
    Tombstone {
        timestamp: i64::try_from(below(1000)).expect("a small number"),
        deletion_time: 1000,
    }
}

fn pack_row(table: &Table, column: &str, out: &mut Vec<u8>) {
    let id = usize::from(table.column(column).expect("a column").id.0);
    let shared = Shared {
        timestamp: i64::try_from(below(1000)).expect("a small number"),
        ttl: 0,
        expiry: 0,
    };
    let deletion = if below(8) == 0 { tombstone() } else { Tombstone::NONE };
    let mut row = RowBuilder::begin(out, &table.layout, shared, None, deletion, true, id + 1);
    row.cell(
        id,
        &Cell {
            timestamp: shared.timestamp,
            ttl: 0,
            deletion_time: 0,
            dead: false,
            value: &random_u64().to_be_bytes()[..4],
        },
    );
}

fn write(shard: &Rc<Shard>, store: &Rc<TableStore>) {
    let (table, mut out) = (store.table(), Vec::new());
    let mut builder = MutationBuilder::begin(&mut out, table.id, KEY);
    match below(60) {
        0 => builder.partition_tombstone(Tombstone {
            timestamp: i64::try_from(below(100)).expect("a small number"),
            deletion_time: 1000,
        }),
        1..=3 => {
            let start = any_row();
            let length = i32::try_from(below(20)).expect("a small number");
            builder.range_tombstone(&RangeTombstone {
                start: Bound::before(&clustering(start)),
                end: Bound::after(&clustering(start + length)),
                tombstone: tombstone(),
            });
        }
        4 | 5 => builder.static_row(|out| pack_row(&table, "s", out)),
        _ => builder.row(&clustering(any_row()), |out| pack_row(&table, "v", out)),
    }
    let mutation = Mutation::new(&out).expect("a whole mutation");
    shard
        .write(store, token_of(KEY), &mutation)
        .expect("there is room")
        .is_not_awaited();
}

/// What a block says of each row and of the partition.
fn said(table: &Table, block: &PartitionBlock) -> (String, BTreeMap<Vec<u8>, String>) {
    let row = |row: mutation::RowView<'_>| {
        let cells = row.columns(&table.layout).map(|(id, column)| match column {
            mutation::Column::Simple(cell) => format!("{id}={cell:?}"),
            mutation::Column::Complex(_) => panic!("the table has no collection"),
        });
        format!("{:?} {:?}", row.tombstone, cells.collect::<Vec<_>>())
    };
    let head = format!("{:?} {:?}", block.tombstone, block.static_row().map(row));
    let rows = block.rows().map(|(name, r)| {
        let covering = block.range_deletion_of(&table.clustering_order, name);
        (name.to_vec(), format!("{} under {covering:?}", row(r)))
    });
    (head, rows.collect())
}

fn slices() -> Vec<ClusteringSlice> {
    let mut ends: Vec<i32> = (0..2 * (1 + below(3))).map(|_| any_row()).collect();
    ends.sort_unstable();
    ends.dedup();
    let slice = |pair: &[i32]| ClusteringSlice {
        start: Bound::before(&clustering(pair[0])),
        end: Bound::after(&clustering(pair[1])),
    };
    match below(2) {
        0 => vec![ClusteringSlice::all()],
        _ => ends.chunks_exact(2).map(slice).collect(),
    }
}

/// Cuts slices after a row, as the request for the next page does.
fn behind(table: &Table, slices: &mut Vec<ClusteringSlice>, row: &[u8], reversed: bool) {
    let order = &table.clustering_order;
    if reversed {
        let end = Bound::before(row);
        slices.retain(|s| s.start.compare(order, &end).is_lt());
        let last = slices.last_mut().filter(|s| s.end.compare(order, &end).is_gt());
        last.into_iter().for_each(|s| s.end = end.clone());
    } else {
        let start = Bound::after(row);
        slices.retain(|s| s.end.compare(order, &start).is_gt());
        let first = slices.first_mut().filter(|s| s.start.compare(order, &start).is_lt());
        first.into_iter().for_each(|s| s.start = start.clone());
    }
}

/// Reads the partition page by page, and each page once more by a new reader. Returns the number of pages.
async fn read_in_pages(shard: &Rc<Shard>, store: &Rc<TableStore>, disturb: impl AsyncFn()) -> u64 {
    let (table, reversed) = (store.table(), below(2) == 0);
    let (mut left, mut pages) = (slices(), 0);
    let tablet = store.tablets()[0].clone();
    while !left.is_empty() {
        let read = PartitionRead {
            hash: KeyHash::of(KEY),
            key: KEY.to_vec(),
            slices: left.clone(),
            reversed,
            limits: BlockLimits {
                rows: usize::try_from(1 + below(20)).expect("a small number"),
                bytes: 1 << 20,
            },
        };
        let (version, cache) = (tablet.version(), shard.cache.clone());
        let mut anew = PartitionReader::new(table.clone(), version.clone(), cache.clone(), read.clone());
        let (mut head, mut rows) = (None, BTreeMap::new());
        while let Some(block) = anew.next_block().await.expect("the files can be read") {
            let said = said(&table, &block);
            head = Some(said.0);
            rows.extend(said.1);
        }
        let mut reader = PartitionReader::resumed(&shard.paused_readers, table.clone(), version, cache, read);
        let mut blocks = below(3);
        loop {
            let Some(block) = reader.next_block().await.expect("the files can be read") else {
                assert_eq!(
                    rows,
                    BTreeMap::new(),
                    "rows that the resumed reader did not show, reversed: {reversed}"
                );
                return pages;
            };
            let said = said(&table, &block);
            assert_eq!(Some(&said.0), head.as_ref(), "deletion and static row of the partition");
            // The next ones in reading order; within a block they ascend.
            let mut next = BTreeMap::new();
            for _ in 0..said.1.len() {
                next.extend(if reversed { rows.pop_last() } else { rows.pop_first() });
            }
            assert_eq!(said.1, next, "the next rows, reversed: {reversed}");
            if blocks > 0 || block.has_no_rows() {
                blocks = blocks.saturating_sub(1);
                continue;
            }
            // The page ends after one of the rows.
            let used = usize::try_from(below(block.len() as u64)).expect("a small number");
            let row = block
                .clustering(if below(2) == 0 {
                    used
                } else if reversed {
                    0
                } else {
                    block.len() - 1
                })
                .to_vec();
            behind(&table, &mut left, &row, reversed);
            shard.paused_readers.pause(&tablet, reader, block);
            pages += 1;
            break;
        }
        disturb().await;
    }
    pages
}

fn play(seed: u64, test: impl AsyncFn(Rc<Shard>, Rc<TableStore>) + Clone + 'static) {
    let mut simulation = Simulation::new(seed);
    let node = simulation.add_node(1);
    simulation.start(node, move |_| {
        let test = test.clone();
        Box::pin(async move {
            let (shard, table) = (shard(CACHE_BYTES_MAX, 0), table());
            open_table(&shard, &table, &[shard.token_range()]);
            let store = shard.store(table.id).expect("it was opened");
            for _ in 0..1 + below(4) {
                for _ in 0..below(400) {
                    write(&shard, &store);
                }
                flush(&shard, &store).await;
            }
            for _ in 0..below(100) {
                write(&shard, &store);
            }
            test(shard, store).await;
        })
    });
    assert!(
        simulation.run_until_ended(node, Duration::from_hours(1)),
        "seed {seed}: the pages are read"
    );
}

async fn flush(shard: &Rc<Shard>, store: &Rc<TableStore>) {
    let tablet = store.tablets()[0].clone();
    shard.flush(store, &tablet).await.expect("the disk works");
}

#[test]
fn a_resumed_page_shows_what_a_page_that_begins_anew_shows() {
    for seed in 0..SEEDS {
        play(seed, async |shard, store| {
            let mut pages = 0;
            for _ in 0..READS {
                pages += read_in_pages(&shard, &store, async || {
                    for _ in 0..below(6) {
                        write(&shard, &store);
                    }
                    if below(30) == 0 {
                        flush(&shard, &store).await;
                    }
                })
                .await;
            }
            let counts = shard.paused_readers.counts();
            assert!(
                counts.resumed > READS,
                "of {pages} pages only {} went on: {counts:?}",
                counts.resumed
            );
        });
    }
}

#[test]
fn every_page_goes_on_while_the_version_stays() {
    play(1, async |shard, store| {
        flush(&shard, &store).await;
        let mut pages = 0;
        for _ in 0..READS {
            pages += read_in_pages(&shard, &store, async || write(&shard, &store)).await;
        }
        let counts = shard.paused_readers.counts();
        assert_eq!(counts.paused, pages, "each page leaves its reader: {counts:?}");
        // After the last row of a slice there is nothing to resume.
        assert!(
            counts.resumed * 10 > pages * 8,
            "most of {pages} pages go on: {counts:?}"
        );
        assert_eq!(counts.dropped, 0, "{counts:?}");
    });
}

#[test]
fn readers_end_with_the_version_that_they_read() {
    play(1, async |shard, store| {
        flush(&shard, &store).await;
        read_in_pages(&shard, &store, async || {
            write(&shard, &store);
            let before = shard.paused_readers.counts();
            assert_eq!(before.readers, 1, "the page's reader is kept: {before:?}");
            flush(&shard, &store).await;
            let PausedCounts { readers, bytes, .. } = shard.paused_readers.counts();
            assert_eq!((readers, bytes), (0, 0), "after a flush nothing is kept");
        })
        .await;
    });
}
