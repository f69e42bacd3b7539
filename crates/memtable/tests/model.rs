//! Memtables, block merges and compaction against a naive model that keeps every write and decides cell by cell.

use std::collections::{BTreeMap, BTreeSet};

use memtable::Memtable;
use mutation::compact::{LiveColumn, LiveRow, Purge, compact_block};
use mutation::merge::merge_blocks;
use mutation::row::{Cell, Liveness, RowBuilder, Shared};
use mutation::{Bound, ClusteringSlice, Mutation, MutationBuilder, PartitionBlock, RangeTombstone, Tombstone};
use proptest::prelude::*;
use schema::{Column, ColumnId, ColumnKind, Table, TableId, TableOptions};
use types::CqlType;
use types::token::token_of;
use uuid::Uuid;

const A: usize = 0; // int
const B: usize = 1; // text
const M: usize = 2; // map<int, text>

fn table(descending: bool) -> Table {
    let column = |name: &str, cql_type, kind, position, descending| Column {
        name: name.to_owned(),
        cql_type,
        kind,
        position,
        descending,
        id: ColumnId(0),
    };
    let map = CqlType::parse_native("map<int, text>").expect("a map type");
    Table::new(
        "ks",
        "t",
        TableId(Uuid::from_u128(1)),
        vec![
            column("k", CqlType::Int, ColumnKind::PartitionKey, 0, false),
            column("c", CqlType::Int, ColumnKind::Clustering, 0, descending),
            column("a", CqlType::Int, ColumnKind::Regular, 0, false),
            column("b", CqlType::Text, ColumnKind::Regular, 0, false),
            column("m", map, ColumnKind::Regular, 0, false),
        ],
        TableOptions::default(),
    )
}

/// One cell of a write: column, map key for the map, value (None deletes).
#[derive(Clone, Debug)]
struct Write {
    column: usize,
    path: i32,
    value: Option<u8>,
}

#[derive(Clone, Debug)]
enum Op {
    Row {
        key: u8,
        row: i32,
        ts: i64,
        ttl: u32,
        marker: bool,
        writes: Vec<Write>,
        clear_map: bool,
    },
    DeleteRow {
        key: u8,
        row: i32,
        ts: i64,
    },
    DeleteRange {
        key: u8,
        from: i32,
        from_inclusive: bool,
        to: i32,
        to_inclusive: bool,
        ts: i64,
    },
    DeletePartition {
        key: u8,
        ts: i64,
    },
}

/// Every write is made at this second; ttl counts from it.
const WRITTEN: u32 = 1000;

fn op() -> impl Strategy<Value = Op> {
    op_of(40, 4, 4)
}

/// Writes to a few rows, each of many elements, so that rows outgrow blocks.
fn wide_op() -> impl Strategy<Value = Op> {
    op_of(3, 200, 40)
}

fn op_of(rows: i32, paths: i32, writes_max: usize) -> impl Strategy<Value = Op> {
    let write = (0..3usize, 0..paths, prop::option::weighted(0.8, 0..4u8)).prop_map(|(column, path, value)| Write {
        column,
        path,
        value,
    });
    let ts = 0..6i64;
    let key = 0..3u8;
    let row = 0..rows;
    prop_oneof![
        8 => (key.clone(), row.clone(), ts.clone(), prop_oneof![3 => Just(0u32), 1 => 1..20u32], any::<bool>(),
              prop::collection::vec(write, 0..writes_max), prop::bool::weighted(0.1))
            .prop_map(|(key, row, ts, ttl, marker, writes, clear_map)|
                Op::Row { key, row, ts, ttl, marker, writes, clear_map }),
        1 => (key.clone(), row.clone(), ts.clone()).prop_map(|(key, row, ts)| Op::DeleteRow { key, row, ts }),
        1 => (key.clone(), row.clone(), any::<bool>(), row, any::<bool>(), ts.clone()).prop_map(
            |(key, from, from_inclusive, to, to_inclusive, ts)|
                Op::DeleteRange { key, from, from_inclusive, to, to_inclusive, ts }),
        1 => (key, ts).prop_map(|(key, ts)| Op::DeletePartition { key, ts }),
    ]
}

fn clustering(row: i32) -> Vec<u8> {
    let mut out = Vec::new();
    schema::push_component(&mut out, &row.to_be_bytes());
    out
}

fn value_of(column: usize, v: u8) -> Vec<u8> {
    if column == A {
        i32::from(v).to_be_bytes().to_vec()
    } else {
        vec![b'x'; usize::from(v) * 300]
    }
}

impl Op {
    fn key(&self) -> u8 {
        match self {
            Self::Row { key, .. }
            | Self::DeleteRow { key, .. }
            | Self::DeleteRange { key, .. }
            | Self::DeletePartition { key, .. } => *key,
        }
    }

    fn range(&self, table: &Table) -> Option<RangeTombstone> {
        let Self::DeleteRange {
            from,
            from_inclusive,
            to,
            to_inclusive,
            ts,
            ..
        } = self
        else {
            return None;
        };
        let (from, to) = (clustering(*from), clustering(*to));
        let start = if *from_inclusive {
            Bound::before(&from)
        } else {
            Bound::after(&from)
        };
        let end = if *to_inclusive {
            Bound::after(&to)
        } else {
            Bound::before(&to)
        };
        let tombstone = Tombstone {
            timestamp: *ts,
            deletion_time: WRITTEN,
        };
        let slice = ClusteringSlice {
            start: start.clone(),
            end: end.clone(),
        };
        (!slice.is_empty(&table.clustering_order)).then_some(RangeTombstone { start, end, tombstone })
    }

    /// The cells of the last write to each (column, path), as a statement would send them.
    fn cells(&self) -> BTreeMap<(usize, i32), Option<u8>> {
        let Self::Row { writes, .. } = self else {
            return BTreeMap::new();
        };
        writes
            .iter()
            .map(|w| ((w.column, if w.column == M { w.path } else { 0 }), w.value))
            .collect()
    }

    fn pack(&self, table: &Table) -> Vec<u8> {
        let mut out = Vec::new();
        let mut m = MutationBuilder::begin(&mut out, table.id, &i32::from(self.key()).to_be_bytes());
        match self {
            Self::Row {
                row,
                ts,
                ttl,
                marker,
                clear_map,
                ..
            } => {
                let (ts, ttl, expiry) = (*ts, *ttl, WRITTEN + ttl);
                let cells = self.cells();
                let live = |v: &[u8]| Cell {
                    timestamp: ts,
                    ttl,
                    deletion_time: if ttl > 0 { expiry } else { 0 },
                    dead: false,
                    value: leak(v),
                };
                let dead = Cell {
                    timestamp: ts,
                    ttl: 0,
                    deletion_time: WRITTEN,
                    dead: true,
                    value: &[],
                };
                let elements: Vec<(Vec<u8>, Cell<'static>)> = cells
                    .iter()
                    .filter(|((c, _), _)| *c == M)
                    .map(|((_, p), v)| (p.to_be_bytes().to_vec(), v.map_or(dead, |v| live(&value_of(M, v)))))
                    .collect();
                let mixed = cells.iter().any(|((c, _), v)| *c != M && v.is_none());
                let marker = marker.then_some(Liveness {
                    timestamp: ts,
                    ttl,
                    expiry,
                });
                m.row(&clustering(*row), |out| {
                    let shared = Shared {
                        timestamp: ts,
                        ttl,
                        expiry,
                    };
                    let mut b = RowBuilder::begin(out, &table.layout, shared, marker, Tombstone::NONE, mixed, 3);
                    for (&(c, _), v) in cells.iter().filter(|((c, _), _)| *c != M) {
                        match v {
                            Some(v) => b.value(c, &value_of(c, *v)),
                            None => b.cell(c, &dead),
                        }
                    }
                    if !elements.is_empty() || *clear_map {
                        let t = if *clear_map {
                            Tombstone {
                                timestamp: ts - 1,
                                deletion_time: WRITTEN,
                            }
                        } else {
                            Tombstone::NONE
                        };
                        b.complex(M, t, elements.iter().map(|(p, c)| (&p[..], *c)));
                    }
                });
            }
            Self::DeleteRow { row, ts, .. } => m.row(&clustering(*row), |out| {
                let t = Tombstone {
                    timestamp: *ts,
                    deletion_time: WRITTEN,
                };
                RowBuilder::begin(
                    out,
                    &table.layout,
                    Shared {
                        timestamp: *ts,
                        ttl: 0,
                        expiry: 0,
                    },
                    None,
                    t,
                    false,
                    0,
                );
            }),
            Self::DeleteRange { .. } => {
                if let Some(r) = self.range(table) {
                    m.range_tombstone(&r);
                }
            }
            Self::DeletePartition { ts, .. } => {
                m.partition_tombstone(Tombstone {
                    timestamp: *ts,
                    deletion_time: WRITTEN,
                });
            }
        }
        out
    }
}

/// Test values live for the whole test.
fn leak(v: &[u8]) -> &'static [u8] {
    Box::leak(v.to_vec().into_boxed_slice())
}

type Answer = BTreeMap<(u8, i32), BTreeMap<(usize, i32), u8>>;

/// What a SELECT * at `now` returns, decided write by write.
fn model(ops: &[Op], table: &Table, now: u32) -> Answer {
    let mut answer = Answer::new();
    let rows: BTreeSet<(u8, i32)> = ops
        .iter()
        .filter_map(|o| {
            if let Op::Row { key, row, .. } = o {
                Some((*key, *row))
            } else {
                None
            }
        })
        .collect();
    for (key, row) in rows {
        let covered = |ts: i64| {
            ops.iter().filter(|o| o.key() == key).any(|o| match o {
                Op::DeletePartition { ts: t, .. } => ts <= *t,
                Op::DeleteRow { row: r, ts: t, .. } => *r == row && ts <= *t,
                Op::DeleteRange { .. } => o.range(table).is_some_and(|r| {
                    let slice = ClusteringSlice {
                        start: r.start,
                        end: r.end,
                    };
                    slice.contains(&table.clustering_order, &clustering(row)) && ts <= r.tombstone.timestamp
                }),
                Op::Row { .. } => false,
            })
        };
        let mine: Vec<&Op> = ops
            .iter()
            .filter(|o| matches!(o, Op::Row { key: k, row: r, .. } if *k == key && *r == row))
            .collect();
        let written: Vec<_> = mine.iter().map(|o| (*o, Op::cells(o))).collect();
        let cleared = mine
            .iter()
            .filter_map(|o| match o {
                Op::Row {
                    clear_map: true, ts, ..
                } => Some(ts - 1),
                _ => None,
            })
            .max();
        let mut cells = BTreeMap::new();
        let names: BTreeSet<(usize, i32)> = written.iter().flat_map(|(_, cells)| cells.keys().copied()).collect();
        for name in names {
            // (timestamp, mortal, tombstone, deletion time, value): the greatest wins.
            let best = written
                .iter()
                .filter_map(|(o, cells)| {
                    let Op::Row { ts, ttl, .. } = o else { return None };
                    let v = *cells.get(&name)?;
                    let time = if v.is_none() {
                        WRITTEN
                    } else if *ttl > 0 {
                        WRITTEN + ttl
                    } else {
                        0
                    };
                    Some((
                        *ts,
                        v.is_none() || *ttl > 0,
                        v.is_none(),
                        time,
                        v.map(|v| value_of(name.0, v)),
                        v,
                    ))
                })
                .max();
            let Some((ts, mortal, dead, time, _, v)) = best else {
                continue;
            };
            let alive = !dead && (!mortal || time > now);
            if alive && !covered(ts) && !(name.0 == M && cleared.is_some_and(|c| ts <= c)) {
                cells.insert(name, v.expect("a living cell has a value"));
            }
        }
        let marked = mine
            .iter()
            .filter_map(|o| match o {
                Op::Row {
                    marker: true, ts, ttl, ..
                } => Some((*ts, *ttl > 0, WRITTEN + ttl)),
                _ => None,
            })
            .max()
            .is_some_and(|(ts, mortal, expiry)| (!mortal || expiry > now) && !covered(ts));
        if marked || !cells.is_empty() {
            answer.insert((key, row), cells);
        }
    }
    answer
}

fn read_block(answer: &mut Answer, table: &Table, block: &PartitionBlock, now: u32) {
    let order = &table.clustering_order;
    let mut last: Option<Vec<u8>> = None;
    for (ck, row) in block.rows() {
        if let Some(last) = &last {
            assert!(order.compare(last, ck).is_lt(), "rows come in clustering order");
        }
        last = Some(ck.to_vec());
        mutation::RowView::validate(row.bytes(), &table.layout).expect("a merged row is well formed");
        let deletion = block.deletion_of(order, ck);
        let live = LiveRow::new(row, &table.layout, deletion, now);
        if !live.is_live() {
            continue;
        }
        let key = u8::try_from(i32::from_be_bytes(block.key().try_into().expect("an int key"))).expect("small");
        let row = schema::split_component(ck)
            .and_then(|(row, _)| row)
            .expect("one component");
        let row = i32::from_be_bytes(row.try_into().expect("an int"));
        let cells = answer.entry((key, row)).or_default();
        for (id, column) in live.columns() {
            match column {
                LiveColumn::Simple(c) => {
                    let v = if id == A {
                        c.value[3]
                    } else {
                        u8::try_from(c.value.len() / 300).expect("small")
                    };
                    cells.insert((id, 0), v);
                }
                LiveColumn::Complex(elements) => {
                    for (p, c) in elements {
                        let path = i32::from_be_bytes(p.try_into().expect("an int"));
                        cells.insert((M, path), u8::try_from(c.value.len() / 300).expect("small"));
                    }
                }
            }
        }
    }
}

fn fill<'o>(ops: impl Iterator<Item = &'o Op>, table: &Table) -> Memtable {
    let mut memtable = Memtable::new(table);
    for op in ops {
        let bytes = op.pack(table);
        let m = Mutation::new(&bytes).expect("a packed mutation");
        m.validate(&table.layout).expect("a packed mutation is well formed");
        memtable.apply(token_of(m.key), &m);
    }
    memtable
}

/// Reads a whole memtable in blocks of at most `rows_max` rows, forwards or backwards.
fn blocks(memtable: &Memtable, rows_max: usize, reversed: bool) -> Vec<Vec<PartitionBlock>> {
    memtable
        .partitions()
        .map(|p| {
            let mut slice = ClusteringSlice::all();
            let mut out = Vec::new();
            loop {
                let block = p.block(&slice, reversed, rows_max, usize::MAX);
                match block.covered.clone() {
                    Some(b) if reversed => slice.end = b,
                    Some(b) => slice.start = b,
                    None => {
                        out.push(block);
                        break;
                    }
                }
                out.push(block);
            }
            out
        })
        .collect()
}

/// Blocks of any size, in either direction, say what the model says.
fn check_reads(ops: &[Op], descending: bool, now: u32) {
    let table = table(descending);
    let want = model(ops, &table, now);
    for (rows_max, reversed) in [(usize::MAX, false), (3, false), (3, true)] {
        let memtable = fill(ops.iter(), &table);
        let mut got = Answer::new();
        let mut tokens = Vec::new();
        for partition in blocks(&memtable, rows_max, reversed) {
            tokens.push(partition[0].token);
            for block in &partition {
                read_block(&mut got, &table, block, now);
            }
        }
        assert!(tokens.is_sorted());
        assert_eq!(&got, &want);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn reads_agree_with_the_model(ops in prop::collection::vec(op(), 0..120), descending: bool, now in 1000..1025u32) {
        check_reads(&ops, descending, now);
    }

    #[test]
    fn reads_of_large_rows_agree_with_the_model(
        ops in prop::collection::vec(wide_op(), 0..60),
        descending: bool,
        now in 1000..1025u32,
    ) {
        check_reads(&ops, descending, now);
    }

    #[test]
    fn it_does_not_matter_where_and_when_writes_arrive(
        ops in prop_oneof![
            2 => prop::collection::vec((op().boxed(), 0..3usize), 0..120),
            1 => prop::collection::vec((wide_op().boxed(), 0..3usize), 0..40),
        ],
        now in 1000..1025u32,
    ) {
        let table = table(false);
        let all: Vec<Op> = ops.iter().map(|(o, _)| o.clone()).collect();
        let want = model(&all, &table, now);
        // Three memtables, one of them filled backwards, merged and compacted.
        let memtables: Vec<Memtable> = (0..3)
            .map(|n| {
                let mine: Vec<&Op> = ops.iter().filter(|(_, m)| *m == n).map(|(o, _)| o).collect();
                if n == 1 { fill(mine.into_iter().rev(), &table) } else { fill(mine.into_iter(), &table) }
            })
            .collect();
        let mut folded = Memtable::new(&table);
        memtables.iter().for_each(|m| folded.merge_in(m));
        let mut in_one = Answer::new();
        blocks(&folded, usize::MAX, false).iter().flatten().for_each(|block| read_block(&mut in_one, &table, block, now));
        prop_assert_eq!(&in_one, &want);
        prop_assert_eq!(Some(folded.min_timestamp()), memtables.iter().map(Memtable::min_timestamp).min());
        let mut by_key: BTreeMap<Vec<u8>, Vec<PartitionBlock>> = BTreeMap::new();
        for m in &memtables {
            for mut p in blocks(m, usize::MAX, false) {
                let block = p.remove(0);
                by_key.entry(block.key().to_vec()).or_default().push(block);
            }
        }
        let keep = Purge { now, gc_before: 0, max_purgeable_timestamp: i64::MIN, held: &[], keeps_expired: false, };
        let forget = Purge { now, gc_before: u32::MAX, max_purgeable_timestamp: i64::MAX, held: &[], keeps_expired: false, };
        let (mut merged, mut compacted, mut purged) = (Answer::new(), Answer::new(), Answer::new());
        for sources in by_key.values() {
            let refs: Vec<&PartitionBlock> = sources.iter().collect();
            let block = merge_blocks(&table.layout, &table.clustering_order, &refs).expect("there is a source");
            read_block(&mut merged, &table, &block, now);
            let kept = compact_block(&table.layout, &table.clustering_order, &block, &keep);
            read_block(&mut compacted, &table, &kept, now);
            let gone = compact_block(&table.layout, &table.clustering_order, &block, &forget);
            prop_assert!(gone.tombstone.is_none() && gone.range_tombstones.is_empty(), "old tombstones are forgotten");
            read_block(&mut purged, &table, &gone, now);
        }
        prop_assert_eq!(&merged, &want);
        prop_assert_eq!(&compacted, &want);
        prop_assert_eq!(&purged, &want);
    }
}

/// A shard has a memtable for each of its tablets, and all are charged to one budget.
#[test]
fn a_memtable_with_one_row_is_charged_for_little() {
    let table = table(false);
    let row = Op::Row {
        key: 1,
        row: 1,
        ts: 1,
        ttl: 0,
        marker: true,
        writes: Vec::new(),
        clear_map: false,
    };
    let memtable = fill(std::iter::once(&row), &table);
    assert!(
        memtable.bytes() <= 6 << 10,
        "one row is charged {} bytes",
        memtable.bytes()
    );
}

#[test]
fn overwriting_the_same_rows_does_not_grow() {
    let table = table(false);
    let write = |n: i64| Op::Row {
        key: (n % 3) as u8,
        row: (n % 200) as i32,
        ts: n,
        ttl: 0,
        marker: true,
        writes: vec![Write {
            column: B,
            path: 0,
            value: Some((n % 4) as u8),
        }],
        clear_map: false,
    };
    let mut memtable = fill((0..2000).map(write).collect::<Vec<_>>().iter(), &table);
    let settled = memtable.bytes();
    for n in 2000..40_000 {
        let bytes = write(n).pack(&table);
        let m = Mutation::new(&bytes).expect("a packed mutation");
        memtable.apply(token_of(m.key), &m);
    }
    assert!(
        memtable.bytes() <= settled * 2,
        "{} bytes grew to {}",
        settled,
        memtable.bytes()
    );
    assert_eq!(memtable.row_count(), 600);
}

#[test]
fn a_scan_begins_with_the_partition_that_it_is_given() {
    let table = table(false);
    let mut memtable = Memtable::new(&table);
    for key in 0..5 {
        let bytes = Op::DeletePartition { key, ts: 1 }.pack(&table);
        let mutation = Mutation::new(&bytes).expect("a whole mutation");
        memtable.apply(token_of(mutation.key), &mutation);
    }
    let all: Vec<_> = memtable.partitions().map(|p| (p.token(), p.key().to_vec())).collect();
    assert_eq!(all.len(), 5);
    for (at, (token, key)) in all.iter().enumerate() {
        let rest: Vec<_> = memtable
            .partitions_from(*token, key)
            .map(|p| (p.token(), p.key().to_vec()))
            .collect();
        assert_eq!(rest, all[at..]);
        // The least key above this one.
        let mut behind = key.clone();
        behind.push(0);
        assert_eq!(memtable.partitions_from(*token, &behind).count(), all.len() - at - 1);
    }
}
