//! One row read by its name says what a reader of its partition says, whatever is in memtables, in files and in the row
//! cache.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{open_table, shard, whole};
use mutation::row::Shared;
use mutation::{
    Bound, Cell, ClusteringSlice, Liveness, Mutation, MutationBuilder, PartitionBlock, RangeTombstone, RowBuilder,
    RowView, Tombstone,
};
use replica::{PartitionRead, PartitionReader, RowName, Shard, TableStore, row_of};
use runtime::random_u64;
use runtime::sim::Simulation;
use schema::{Column, ColumnKind, Table, TableId, TableOptions, push_component};
use types::CqlType;
use types::token::token_of;
use uuid::Uuid;

const ROUNDS: u64 = 400;
const SEEDS: u64 = 12;

/// `sea.t (k blob, c decimal, s text static, a int, m map<int, text>, PRIMARY KEY (k, c))`; without `c` and `s` when it
/// is `flat`.
fn table(flat: bool) -> Arc<Table> {
    let map = CqlType::parse_native("map<int, text>").expect("a map type");
    let mut columns = vec![
        Column::new("k", CqlType::Blob, ColumnKind::PartitionKey),
        Column::new("c", CqlType::Decimal, ColumnKind::Clustering),
        Column::new("s", CqlType::Text, ColumnKind::Static),
        Column::new("a", CqlType::Int, ColumnKind::Regular),
        Column::new("m", map, ColumnKind::Regular),
    ];
    if flat {
        columns.retain(|c| !matches!(c.kind, ColumnKind::Clustering | ColumnKind::Static));
    }
    let id = TableId(Uuid::from_u128(7));
    Arc::new(Table::new("sea", "t", id, columns, TableOptions::default()))
}

fn below(n: u64) -> u64 {
    random_u64() % n
}

fn key() -> Vec<u8> {
    vec![u8::try_from(below(4)).expect("a small number")]
}

/// A clustering key: a small decimal, sometimes with a zero that makes it no other number.
fn clustering(table: &Table) -> Vec<u8> {
    let mut out = Vec::new();
    if !table.clustering_order.is_empty() {
        let (n, has_zero) = (i8::try_from(below(6)).expect("a small number"), below(4) == 0);
        let (scale, unscaled) = if has_zero { (1, n * 10) } else { (0i32, n) };
        let value: Vec<u8> = scale.to_be_bytes().into_iter().chain(unscaled.to_be_bytes()).collect();
        push_component(&mut out, &value);
    }
    out
}

fn tombstone() -> Tombstone {
    Tombstone {
        timestamp: timestamp(),
        deletion_time: 1000,
    }
}

fn timestamp() -> i64 {
    i64::try_from(below(30)).expect("a small number")
}

fn pack_row(table: &Table, is_static: bool, out: &mut Vec<u8>) {
    let id = |name: &str| table.column(name).map(|c| usize::from(c.id.0));
    let at = timestamp();
    let shared = Shared {
        timestamp: at,
        ttl: 0,
        expiry: 0,
    };
    let marker = (!is_static && below(2) == 0).then_some(Liveness {
        timestamp: at,
        ttl: 0,
        expiry: 0,
    });
    let deletion = if below(8) == 0 { tombstone() } else { Tombstone::NONE };
    let value = random_u64().to_be_bytes();
    let cell = |value| Cell {
        timestamp: at,
        ttl: 0,
        deletion_time: 0,
        dead: false,
        value,
    };
    let mut columns: Vec<usize> = if is_static {
        vec![id("s").expect("a static column")]
    } else {
        [id("a"), id("m")]
            .into_iter()
            .flatten()
            .filter(|_| below(2) == 0)
            .collect()
    };
    columns.sort_unstable();
    let count = columns.last().map_or(0, |id| id + 1);
    let mut row = RowBuilder::begin(out, &table.layout, shared, marker, deletion, true, count);
    for column in columns {
        if Some(column) == id("m") {
            let own = if below(3) == 0 { tombstone() } else { Tombstone::NONE };
            let path = i32::try_from(below(3)).expect("a small number").to_be_bytes();
            row.complex(column, own, [(&path[..], cell(&value[..3]))].into_iter());
        } else {
            row.cell(column, &cell(&value[..4]));
        }
    }
}

fn mutation(table: &Table, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut builder = MutationBuilder::begin(&mut out, table.id, key);
    match below(20) {
        0 => builder.partition_tombstone(tombstone()),
        1 | 2 if !table.clustering_order.is_empty() => {
            let (a, b) = (clustering(table), clustering(table));
            let (low, high) = if table.clustering_order.compare(&a, &b).is_gt() {
                (b, a)
            } else {
                (a, b)
            };
            builder.range_tombstone(&RangeTombstone {
                start: Bound::before(&low),
                end: Bound::after(&high),
                tombstone: tombstone(),
            });
        }
        3 | 4 if table.has_statics() => builder.static_row(|out| pack_row(table, true, out)),
        _ => builder.row(&clustering(table), |out| pack_row(table, false, out)),
    }
    out
}

/// So little that rows leave the row cache.
const CACHE_BYTES_MAX: usize = 24 << 10;

/// Everything a block says, however its rows are packed; nothing when it says nothing.
fn said(table: &Table, block: Option<&PartitionBlock>) -> String {
    let row = |row: RowView<'_>| {
        let columns: Vec<String> = row
            .columns(&table.layout)
            .map(|(id, column)| match column {
                mutation::Column::Simple(cell) => format!("{id}={cell:?}"),
                mutation::Column::Complex(complex) => {
                    let elements: Vec<_> = complex.elements().collect();
                    format!("{id}={:?} {elements:?}", complex.tombstone)
                }
            })
            .collect();
        format!("{:?} {:?} {columns:?}", row.marker, row.tombstone)
    };
    // A bound may be written in each of the ways that its number has.
    let bound = |b: &Bound| {
        (
            b.prefix
                .last()
                .map(|n| n / if b.prefix.get(4) == Some(&1) { 10 } else { 1 }),
            b.kind,
        )
    };
    let range = |r: &RangeTombstone| (bound(&r.start), bound(&r.end), r.tombstone);
    let Some(block) = block.filter(|block| !block.is_empty()) else {
        return String::new();
    };
    let rows: Vec<_> = block.rows().map(|(name, r)| (name.to_vec(), row(r))).collect();
    format!(
        "{:?} {:?} static {:?} rows {rows:?} up to {:?}",
        block.tombstone,
        block.range_tombstones.iter().map(range).collect::<Vec<_>>(),
        block.static_row().map(row),
        block.covered
    )
}

/// Reads the row both ways; whether anything was said.
async fn compare(shard: &Rc<Shard>, store: &Rc<TableStore>) -> bool {
    let (table, key) = (store.table(), key());
    let (clustering, token) = (clustering(&table), token_of(&key));
    let tablet = store.tablet(token).expect("the shard has every token");
    let slice = ClusteringSlice::exactly(&clustering);
    assert_eq!(row_of(&table, &slice), Some(&clustering[..]), "the slice is one row");
    // A compaction between the two may forget old deletions.
    let version = tablet.version();
    let by_name = version
        .read_row(&table, &shard.cache, RowName::new(&key, &clustering))
        .await;
    let by_name = by_name.expect("the files can be read");
    let read = PartitionRead {
        slices: vec![slice],
        ..whole(&key, 100)
    };
    let mut reader = PartitionReader::new(table.clone(), version, shard.cache.clone(), read);
    let by_partition = reader.next_block().await.expect("the files can be read");
    let (one, other) = (said(&table, by_name.as_ref()), said(&table, by_partition.as_ref()));
    assert_eq!(
        one, other,
        "row {clustering:?} of partition {key:?}, by its name and in its partition"
    );
    !one.is_empty()
}

async fn play(flat: bool) {
    let (shard, table) = (shard(CACHE_BYTES_MAX, 0), table(flat));
    open_table(&shard, &table, &[shard.token_range()]);
    let store = shard.store(table.id).expect("it was opened");
    let mut found = 0;
    for _ in 0..ROUNDS {
        let key = key();
        let bytes = mutation(&table, &key);
        let mutation = Mutation::new(&bytes).expect("a whole mutation");
        mutation
            .validate(&table.layout)
            .expect("a mutation that a coordinator would send");
        shard
            .write(&store, token_of(&key), &mutation)
            .expect("there is room")
            .is_not_awaited();
        if below(40) == 0 {
            shard
                .flush(&store, &store.tablets()[0].clone())
                .await
                .expect("the disk works");
        }
        for _ in 0..4 {
            found += u64::from(compare(&shard, &store).await);
        }
    }
    assert!(found > ROUNDS, "only {found} rows of {} were there", 4 * ROUNDS);
}

#[test]
fn a_row_read_by_its_name_is_what_its_partition_shows() {
    for seed in 0..SEEDS {
        let mut simulation = Simulation::new(seed);
        let node = simulation.add_node(1);
        simulation.start(node, move |_| Box::pin(play(seed % 2 == 0)));
        assert!(
            simulation.run_until_ended(node, Duration::from_hours(1)),
            "seed {seed}: the rows are read"
        );
    }
}

#[test]
fn a_slice_is_one_row_only_when_it_names_all_of_its_clustering_key() {
    let (deep, flat) = (table(false), table(true));
    let mut whole = Vec::new();
    push_component(&mut whole, &[0, 0, 0, 0, 5]);
    let exactly = ClusteringSlice::exactly(&whole);
    let empty = ClusteringSlice {
        end: Bound::before(&whole),
        ..exactly.clone()
    };
    let to_end = ClusteringSlice {
        end: Bound::top(),
        ..exactly.clone()
    };
    assert_eq!(row_of(&deep, &exactly), Some(&whole[..]));
    assert_eq!(row_of(&deep, &empty), None);
    assert_eq!(row_of(&deep, &to_end), None);
    assert_eq!(row_of(&deep, &ClusteringSlice::all()), None);
    assert_eq!(row_of(&flat, &ClusteringSlice::all()), Some(&[][..]));
}
