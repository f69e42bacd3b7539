//! Rows above a block, which are stored in fragments, against whole rows merged by `merge_rows`.

use memtable::Memtable;
use mutation::merge::{merge_rows, settle_row};
use mutation::row::{Cell, Column, Liveness, RowBuilder, Shared};
use mutation::{ClusteringSlice, Mutation, MutationBuilder, RowView, Tombstone};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use schema::{ColumnKind, Table, TableId, TableOptions};
use types::CqlType;
use types::token::token_of;
use uuid::Uuid;

const KEY: [u8; 4] = [0, 0, 0, 1];
/// Column ids: static columns come first, then by name.
const STATIC_MAP: usize = 0;
const INT: usize = 2;
const MAP: usize = 3;
const SET: usize = 5;
const OTHER_MAP: usize = 6;
const REGULAR: [usize; 6] = [INT, MAP, 4, SET, OTHER_MAP, 7];

fn table() -> Table {
    let columns = [
        ("k", "int", ColumnKind::PartitionKey),
        ("c", "int", ColumnKind::Clustering),
        ("s1", "map<int, blob>", ColumnKind::Static),
        ("s2", "blob", ColumnKind::Static),
        ("a", "int", ColumnKind::Regular),
        ("b", "map<int, blob>", ColumnKind::Regular),
        ("d", "blob", ColumnKind::Regular),
        ("e", "set<blob>", ColumnKind::Regular),
        ("f", "map<int, blob>", ColumnKind::Regular),
        ("g", "blob", ColumnKind::Regular),
    ];
    let column = |(name, cql_type, kind): (&str, &str, ColumnKind)| {
        schema::Column::new(name, CqlType::parse_native(cql_type).expect("a type"), kind)
    };
    let columns = columns.into_iter().map(column).collect();
    Table::new("ks", "t", TableId(Uuid::from_u128(1)), columns, TableOptions::default())
}

/// What one statement says of one column.
#[derive(Clone, Debug)]
enum Change {
    /// Simple: a value of that many bytes; complex: elements from..from+count*step, each with such a value.
    Set {
        from: u16,
        step: u16,
        count: u16,
        size: u16,
    },
    /// Simple: a tombstone; complex: tombstones of those elements.
    Delete { from: u16, step: u16, count: u16 },
    /// Complex: everything before is deleted, and these elements written.
    Replace { count: u16, size: u16 },
}

#[derive(Clone, Debug)]
struct Op {
    is_static: bool,
    timestamp: i64,
    ttl: u32,
    marker: bool,
    /// A row tombstone of the timestamp before.
    delete_row: bool,
    /// By number of the column among the row's.
    changes: Vec<(usize, Change)>,
}

fn change() -> impl Strategy<Value = Change> {
    let sizes = prop_oneof![20 => 0..40u16, 4 => 40..900u16, 1 => 4000..9000u16];
    prop_oneof![
        12 => (0..500u16, 1..4u16, 1..12u16, sizes.clone())
            .prop_map(|(from, step, count, size)| Change::Set { from, step, count, size }),
        4 => (0..500u16, 1..4u16, 100..400u16, 0..40u16)
            .prop_map(|(from, step, count, size)| Change::Set { from, step, count, size }),
        3 => (0..500u16, 1..4u16, 1..60u16).prop_map(|(from, step, count)| Change::Delete { from, step, count }),
        1 => (0..5u16, sizes).prop_map(|(count, size)| Change::Replace { count, size }),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    (
        prop::bool::weighted(0.2),
        1..12i64,
        prop_oneof![4 => Just(0u32), 1 => 1..20u32],
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.03),
        prop::collection::vec((0..REGULAR.len(), change()), 0..3),
    )
        .prop_map(|(is_static, timestamp, ttl, marker, delete_row, changes)| Op {
            is_static,
            timestamp,
            ttl,
            marker: marker && !is_static,
            delete_row,
            changes,
        })
}

fn cell(timestamp: i64, ttl: u32, value: &[u8]) -> Cell<'_> {
    Cell {
        timestamp,
        ttl,
        deletion_time: if ttl > 0 { 1000 + ttl } else { 0 },
        dead: false,
        value,
    }
}

fn dead(timestamp: i64) -> Cell<'static> {
    Cell {
        timestamp,
        ttl: 0,
        deletion_time: 1000,
        dead: true,
        value: &[],
    }
}

fn deleted(timestamp: i64) -> Tombstone {
    Tombstone {
        timestamp,
        deletion_time: 1000,
    }
}

/// Wide enough that paths of a set have many lengths.
fn path(id: usize, n: u32) -> Vec<u8> {
    if id == SET {
        n.to_be_bytes()[2..].repeat(1 + n as usize % 30)
    } else {
        n.to_be_bytes().to_vec()
    }
}

impl Op {
    fn pack(&self, table: &Table) -> Vec<u8> {
        let ids: &[usize] = if self.is_static { &[STATIC_MAP, 1] } else { &REGULAR };
        let mut changes: Vec<(usize, &Change)> = self.changes.iter().map(|(n, c)| (ids[n % ids.len()], c)).collect();
        changes.sort_by_key(|(id, _)| *id);
        changes.dedup_by_key(|(id, _)| *id);
        let (timestamp, ttl) = (self.timestamp, self.ttl);
        let expiry = if ttl > 0 { 1000 + ttl } else { 0 };
        let shared = Shared { timestamp, ttl, expiry };
        let marker = self.marker.then_some(Liveness { timestamp, ttl, expiry });
        let tombstone = if self.delete_row {
            deleted(timestamp - 1)
        } else {
            Tombstone::NONE
        };
        let simple_dies = |(id, c): &(usize, &Change)| !is_complex(*id) && !matches!(c, Change::Set { .. });
        let mixed = changes.iter().any(simple_dies);
        let mut out = Vec::new();
        let mut b = RowBuilder::begin(&mut out, &table.layout, shared, marker, tombstone, mixed, 8);
        for (id, change) in changes {
            let value_len = |size: u16| if id == INT { 4 } else { usize::from(size) };
            if !is_complex(id) {
                match change {
                    Change::Set { from, size, .. } => b.value(id, &vec![from.to_be_bytes()[1]; value_len(*size)]),
                    _ => b.cell(id, &dead(timestamp)),
                }
                continue;
            }
            let (from, step, count, size, live, clear) = match *change {
                Change::Set {
                    from,
                    step,
                    count,
                    size,
                } => (from, step, count, size, true, false),
                Change::Delete { from, step, count } => (from, step, count, 0, false, false),
                Change::Replace { count, size } => (7, 3, count, size, true, true),
            };
            // A wide statement has small values, or a test of many would be slow.
            let size = if count > 20 { size % 40 } else { size };
            let value = if id == SET {
                Vec::new()
            } else {
                vec![step.to_be_bytes()[1]; usize::from(size)]
            };
            let mut paths: Vec<Vec<u8>> = (0..u32::from(count))
                .map(|n| path(id, u32::from(from) + n * u32::from(step)))
                .collect();
            paths.sort_by(|p, q| table.layout.compare_paths(id, p, q));
            let t = if clear { deleted(timestamp - 1) } else { Tombstone::NONE };
            let cell = if live {
                cell(timestamp, ttl, &value)
            } else {
                dead(timestamp)
            };
            b.complex(id, t, paths.iter().map(|p| (&p[..], cell)));
        }
        out
    }
}

fn is_complex(id: usize) -> bool {
    [STATIC_MAP, MAP, SET, OTHER_MAP].contains(&id)
}

fn clustering() -> Vec<u8> {
    let mut out = Vec::new();
    schema::push_component(&mut out, &1i32.to_be_bytes());
    out
}

fn apply(memtable: &mut Memtable, table: &Table, is_static: bool, row: &[u8]) {
    let mut bytes = Vec::new();
    let mut m = MutationBuilder::begin(&mut bytes, table.id, &KEY);
    if is_static {
        m.static_row(|out| out.extend_from_slice(row));
    } else {
        m.row(&clustering(), |out| out.extend_from_slice(row));
    }
    let m = Mutation::new(&bytes).expect("a packed mutation");
    m.validate(&table.layout).expect("a packed mutation is well formed");
    memtable.apply(token_of(m.key), &m);
}

type Element = (Vec<u8>, Cell<'static>, Vec<u8>);

/// A row unpacked, so that two packings of the same row are equal.
#[derive(PartialEq, Debug)]
struct Content {
    marker: Option<Liveness>,
    tombstone: Tombstone,
    /// Column id, its tombstone, its elements; a simple cell is an element without a path.
    columns: Vec<(usize, Tombstone, Vec<Element>)>,
}

fn content(table: &Table, row: RowView<'_>) -> Content {
    RowView::validate(row.bytes(), &table.layout).expect("a row in memory is well formed");
    let element = |path: &[u8], c: Cell<'_>| (path.to_vec(), Cell { value: &[][..], ..c }, c.value.to_vec());
    let element = |path: &[u8], c: Cell<'_>| {
        let (
            path,
            Cell {
                timestamp,
                ttl,
                deletion_time,
                dead,
                ..
            },
            value,
        ) = element(path, c);
        (
            path,
            Cell {
                timestamp,
                ttl,
                deletion_time,
                dead,
                value: &[],
            },
            value,
        )
    };
    Content {
        marker: row.marker,
        tombstone: row.tombstone,
        columns: row
            .columns(&table.layout)
            .map(|(id, column)| match column {
                Column::Simple(c) => (id, Tombstone::NONE, vec![element(&[], c)]),
                Column::Complex(c) => (id, c.tombstone, c.elements().map(|(p, c)| element(p, c)).collect()),
            })
            .collect(),
    }
}

/// The row and the static row as whole packed rows, merged write by write.
#[derive(Default)]
struct Whole {
    rows: [Option<Vec<u8>>; 2],
}

impl Whole {
    fn apply(&mut self, table: &Table, is_static: bool, row: &[u8]) {
        let have = &mut self.rows[usize::from(is_static)];
        *have = Some(match have.take() {
            None => {
                let mut settled = Vec::new();
                settle_row(&table.layout, RowView::new(row).expect("a row"), &mut settled);
                settled
            }
            Some(have) => {
                let mut merged = Vec::new();
                let (a, b) = (RowView::new(&have), RowView::new(row));
                merge_rows(&table.layout, a.expect("a row"), b.expect("a row"), &mut merged);
                merged
            }
        });
    }
}

/// Every way to read the two rows gives what merging whole rows gives.
fn check(memtable: &Memtable, table: &Table, whole: &Whole) {
    let partition = memtable.partition(token_of(&KEY), &KEY).expect("it was written");
    let found = [partition.row(&clustering()), partition.static_row()];
    for (found, want) in found.iter().zip(&whole.rows) {
        assert_eq!(found.is_some(), want.is_some(), "a row that was written is there");
        let (Some(found), Some(want)) = (found, want) else {
            continue;
        };
        let want_view = RowView::new(want).expect("a row");
        let want = content(table, want_view);
        let mut buffer = Vec::new();
        assert_eq!(
            content(table, found.view(&mut buffer)),
            want,
            "a row in fragments is the merged row"
        );
        for ids in [
            &[INT as u16][..],
            &[MAP as u16, 7],
            &[STATIC_MAP as u16, SET as u16],
            &[],
        ] {
            let mut part = Vec::new();
            found.pack_columns(ids, &mut part);
            let part = content(table, RowView::new(&part).expect("a row"));
            assert_eq!((part.marker, part.tombstone), (want.marker, want.tombstone));
            let wanted = |(id, _, _): &&(usize, _, _)| ids.iter().any(|&i| usize::from(i) == *id);
            let columns: Vec<_> = want.columns.iter().filter(wanted).collect();
            assert_eq!(
                part.columns.iter().collect::<Vec<_>>(),
                columns,
                "some columns of a row are those of the whole"
            );
        }
        let Some(large) = found.large() else { continue };
        for (id, _, elements) in want.columns.iter().filter(|(id, _, _)| is_complex(*id)) {
            for n in 0..40u32 {
                let path = path(*id, n * 13);
                let found = large
                    .element(*id as u16, &path)
                    .map(|c| (c.timestamp, c.dead, c.value.to_vec()));
                let want = elements.iter().find(|(p, _, _)| *p == path);
                let want = want.map(|(_, c, value)| (c.timestamp, c.dead, value.clone()));
                assert_eq!(found, want, "element {path:?} of column {id} is found by its key");
            }
        }
    }
    for reversed in [false, true] {
        let block = partition.block(&ClusteringSlice::all(), reversed, usize::MAX, usize::MAX);
        let rows = [block.rows().next().map(|(_, row)| row), block.static_row()];
        for (found, want) in rows.iter().zip(&whole.rows) {
            let want = want.as_deref().and_then(RowView::new).map(|row| content(table, row));
            assert_eq!(found.map(|row| content(table, row)), want, "a block has the whole row");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, rng_seed: RngSeed::Fixed(11), ..ProptestConfig::default() })]

    #[test]
    fn fragments_say_what_merged_whole_rows_say(ops in prop::collection::vec(op(), 1..60)) {
        let table = table();
        let (mut memtable, mut whole) = (Memtable::new(&table), Whole::default());
        for (n, op) in ops.iter().enumerate() {
            let row = op.pack(&table);
            apply(&mut memtable, &table, op.is_static, &row);
            whole.apply(&table, op.is_static, &row);
            if n % 8 == 7 {
                check(&memtable, &table, &whole);
            }
        }
        check(&memtable, &table, &whole);
    }
}

fn set(timestamp: i64, column: usize, from: u16, count: u16, size: u16) -> Op {
    Op {
        is_static: false,
        timestamp,
        ttl: 0,
        marker: false,
        delete_row: false,
        changes: vec![(
            column,
            Change::Set {
                from,
                step: 1,
                count,
                size,
            },
        )],
    }
}

/// Applies to both, and returns the memtable.
fn fill(table: &Table, ops: &[Op]) -> (Memtable, Whole) {
    let (mut memtable, mut whole) = (Memtable::new(table), Whole::default());
    for op in ops {
        let row = op.pack(table);
        apply(&mut memtable, table, op.is_static, &row);
        whole.apply(table, op.is_static, &row);
    }
    check(&memtable, table, &whole);
    (memtable, whole)
}

/// Numbers of [`REGULAR`].
const INT_NUMBER: usize = 0;
const MAP_NUMBER: usize = 1;
const BLOB_NUMBER: usize = 2;
const OTHER_MAP_NUMBER: usize = 4;

fn is_large(memtable: &Memtable) -> bool {
    let partition = memtable.partition(token_of(&KEY), &KEY).expect("it was written");
    partition.row(&clustering()).is_some_and(|row| row.large().is_some())
}

#[test]
fn an_old_write_stays_hidden_wherever_in_a_deleted_column_it_falls() {
    // The deletion is older than some elements, so fragments of the column remain. Between, before and after them, and
    // before the column that follows, an older write must find it.
    let table = table();
    let mut ops = vec![set(5, INT_NUMBER, 0, 1, 0), set(5, MAP_NUMBER, 100, 200, 100)];
    ops.push(Op {
        changes: vec![(MAP_NUMBER, Change::Replace { count: 0, size: 0 })],
        ..set(5, 0, 0, 0, 0)
    });
    ops.push(set(6, OTHER_MAP_NUMBER, 100, 200, 100));
    for from in [0, 99, 150, 299, 400] {
        ops.push(set(3, MAP_NUMBER, from, 3, 50));
    }
    let (memtable, whole) = fill(&table, &ops);
    assert!(is_large(&memtable));
    let row = RowView::new(whole.rows[0].as_deref().expect("a row")).expect("a row");
    let Some((_, Column::Complex(map))) = row.columns(&table.layout).find(|(id, _)| *id == MAP) else {
        panic!("the map is there")
    };
    assert_eq!(map.count, 200);
}

/// Fragments that no write touched kept the deletion of the column, and the merged whole row dropped it.
#[test]
fn a_deletion_of_a_column_that_a_deletion_of_its_row_covers_is_in_no_fragment() {
    let table = table();
    let replaced = |is_static: bool| Op {
        is_static,
        delete_row: true,
        changes: vec![(MAP_NUMBER, Change::Replace { count: 300, size: 30 })],
        ..set(5, 0, 0, 0, 0)
    };
    let tiny = |is_static: bool| Op {
        is_static,
        ..set(6, INT_NUMBER, 0, 1, 0)
    };
    for is_static in [false, true] {
        let mut op = replaced(is_static);
        if is_static {
            op.changes[0].0 = 0;
        }
        let (memtable, whole) = fill(&table, &[op, tiny(is_static)]);
        let partition = memtable.partition(token_of(&KEY), &KEY).expect("it was written");
        let found = if is_static {
            partition.static_row()
        } else {
            partition.row(&clustering())
        };
        assert!(found.is_some_and(|row| row.large().is_some()));
        let row = whole.rows[usize::from(is_static)].as_deref();
        let row = RowView::new(row.expect("a row")).expect("a row");
        let has_own_deletion = |(_, column): (usize, Column<'_>)| match column {
            Column::Complex(complex) => !complex.tombstone.is_none(),
            Column::Simple(_) => false,
        };
        assert!(!row.tombstone.is_none() && !row.columns(&table.layout).any(has_own_deletion));
    }
}

/// A repair brings rows whose cells were written at different times: a deletion that one of them needs must not be
/// forgotten.
#[test]
fn the_oldest_cell_of_a_row_counts_for_the_memtable() {
    let table = table();
    let shared = Shared {
        timestamp: 100,
        ttl: 0,
        expiry: 0,
    };
    for is_static in [false, true] {
        let mut row = Vec::new();
        let (id, map) = if is_static { (1, STATIC_MAP) } else { (INT, MAP) };
        let mut builder = RowBuilder::begin(&mut row, &table.layout, shared, None, Tombstone::NONE, true, 8);
        if is_static {
            builder.complex(
                map,
                Tombstone::NONE,
                [(&[0, 0, 0, 1][..], cell(7, 0, b"x"))].into_iter(),
            );
            builder.cell(id, &cell(100, 0, b"abcd"));
        } else {
            builder.cell(id, &cell(7, 0, b"abcd"));
        }
        let mut memtable = Memtable::new(&table);
        apply(&mut memtable, &table, is_static, &row);
        assert_eq!(memtable.min_timestamp(), 7);
    }
}

#[test]
fn a_row_is_large_only_when_several_values_make_it_so() {
    let table = table();
    let (one_value, _) = fill(&table, &[set(1, BLOB_NUMBER, 0, 1, 60_000)]);
    assert!(!is_large(&one_value), "a single large value is not cut");
    let (two, _) = fill(
        &table,
        &[set(1, BLOB_NUMBER, 0, 1, 60_000), set(1, INT_NUMBER, 0, 1, 0)],
    );
    assert!(is_large(&two));
    let (small, _) = fill(&table, &[set(1, MAP_NUMBER, 0, 100, 10)]);
    assert!(!is_large(&small));
    let (many, _) = fill(&table, &[set(1, MAP_NUMBER, 0, 300, 30)]);
    assert!(is_large(&many));
}

#[test]
fn a_deleted_large_row_gives_its_memory_back() {
    let table = table();
    let gone = Op {
        delete_row: true,
        ..set(20, INT_NUMBER, 0, 1, 0)
    };
    let (small, _) = fill(&table, std::slice::from_ref(&gone));
    for is_static in [false, true] {
        let mut ops: Vec<Op> = (0..40).map(|n| set(1, n % 6, n as u16 * 50, 100, 39)).collect();
        ops.push(gone.clone());
        ops.iter_mut().for_each(|op| op.is_static = is_static);
        let (large, _) = fill(&table, &ops);
        let (have, want) = (large.used_bytes(), small.used_bytes());
        assert!(
            have < want + 512,
            "{have} bytes used after the deletion, {want} without the row"
        );
    }
}

#[test]
fn overwriting_a_large_row_does_not_grow() {
    let table = table();
    let (mut memtable, mut whole) = (Memtable::new(&table), Whole::default());
    let mut settled = 0;
    for round in 0..60i64 {
        for n in 0..20u16 {
            let size = 30 + (u16::try_from(round).expect("small") * 7 + n) % 9;
            let row = set(round, MAP_NUMBER, n * 20, 20, size).pack(&table);
            apply(&mut memtable, &table, false, &row);
            whole.apply(&table, false, &row);
        }
        if round == 5 {
            settled = memtable.bytes();
        }
    }
    check(&memtable, &table, &whole);
    assert!(
        memtable.bytes() <= settled * 2,
        "{settled} bytes grew to {}",
        memtable.bytes()
    );
}

#[test]
fn a_block_that_was_read_does_not_change_when_its_row_does() {
    let table = table();
    let (mut memtable, whole) = fill(
        &table,
        &[set(1, MAP_NUMBER, 0, 300, 30), set(1, OTHER_MAP_NUMBER, 0, 300, 30)],
    );
    let partition = memtable.partition(token_of(&KEY), &KEY).expect("it was written");
    let block = partition.block(&ClusteringSlice::all(), false, usize::MAX, usize::MAX);
    for n in 0..300 {
        apply(&mut memtable, &table, false, &set(2, MAP_NUMBER, n, 3, 35).pack(&table));
    }
    let want = RowView::new(whole.rows[0].as_deref().expect("a row")).expect("a row");
    assert_eq!(content(&table, block.row(0)), content(&table, want));
}
