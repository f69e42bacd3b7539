//! Tables and data for tests and examples: every kind of cell, row and deletion that the format can hold.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mutation::compact::{may_shadow, shadow_row};
use mutation::row::Shared;
use mutation::{Bound, Cell, Liveness, PartitionBlock, RangeTombstone, RowBuilder, RowView, Tombstone};
use schema::{Column, ColumnKind, Table, TableId, TableOptions, push_component};
use sstable::{Descriptor, EncodingBase, Error, Writer, WriterOptions};
use types::token::token_of;
use types::{CqlType, UdtType};

/// Microseconds: 2024-01-01.
pub const NOW_US: i64 = 1_704_067_200_000_000;
/// Seconds.
pub const NOW: u32 = 1_704_067_200;

/// A directory that is removed when it is dropped.
pub struct TempDir(pub PathBuf);

impl TempDir {
    pub fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("ceto-sstable-{}-{name}", std::process::id()));
        let _ = runtime::fs::remove_dir_all(&dir);
        runtime::fs::create_dir_all(&dir).expect("a temporary directory");
        Self(dir)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = runtime::fs::remove_dir_all(&self.0);
    }
}

/// Removes the checksums of the first sstable, and their components from its list.
pub fn forget_checksums(dir: &TempDir) {
    let checksums = ["CRC.db", "Digest.crc32", "Checksums.db"];
    let toc = dir.0.join("me-1-big-TOC.txt");
    let listed = String::from_utf8(runtime::fs::read(&toc).expect("a TOC")).expect("text");
    let kept: Vec<&str> = listed.lines().filter(|name| !checksums.contains(name)).collect();
    runtime::fs::write(&toc, format!("{}\n", kept.join("\n")).as_bytes()).expect("room on the disk");
    for name in listed.lines().filter(|name| checksums.contains(name)) {
        runtime::fs::remove_file(dir.0.join(format!("me-1-big-{name}"))).expect("a component");
    }
}

pub fn column(name: &str, cql_type: CqlType, kind: ColumnKind, position: u16, descending: bool) -> Column {
    Column {
        position,
        descending,
        ..Column::new(name, cql_type, kind)
    }
}

pub fn regular(name: &str, cql_type: CqlType) -> Column {
    column(name, cql_type, ColumnKind::Regular, 0, false)
}

pub fn table(name: &str, columns: Vec<Column>) -> Table {
    Table::new(
        "ks",
        name,
        TableId(uuid::Uuid::from_u128(7)),
        columns,
        TableOptions::default(),
    )
}

fn arc(t: CqlType) -> Arc<CqlType> {
    Arc::new(t)
}

pub fn point() -> CqlType {
    CqlType::Udt(Arc::new(UdtType {
        keyspace: "ks".to_owned(),
        name: "point".to_owned(),
        fields: vec![("x".to_owned(), CqlType::Int), ("y".to_owned(), CqlType::Text)],
    }))
}

/// A table with every kind of column.
pub fn wide_table() -> Table {
    table(
        "sample",
        vec![
            column("k1", CqlType::Int, ColumnKind::PartitionKey, 0, false),
            column("k2", CqlType::Text, ColumnKind::PartitionKey, 1, false),
            column("c1", CqlType::Text, ColumnKind::Clustering, 0, false),
            column("c2", CqlType::Int, ColumnKind::Clustering, 1, true),
            column("s_int", CqlType::Int, ColumnKind::Static, 0, false),
            column("s_set", CqlType::Set(arc(CqlType::Text)), ColumnKind::Static, 0, false),
            regular("a_map", CqlType::Map(arc(CqlType::Text), arc(CqlType::Int))),
            regular("b_int", CqlType::Int),
            regular("c_text", CqlType::Text),
            regular("d_list", CqlType::List(arc(CqlType::Int))),
            regular("e_bigint", CqlType::BigInt),
            regular("f_frozen", CqlType::Frozen(arc(CqlType::List(arc(CqlType::Int))))),
            regular("g_point", point()),
            regular("h_tinyint", CqlType::TinyInt),
            regular("i_uuid", CqlType::Uuid),
        ],
    )
}

/// Serialised key of a partition of [`wide_table`].
pub fn wide_key(k1: i32, k2: &str) -> Vec<u8> {
    let mut key = Vec::new();
    for component in [&k1.to_be_bytes()[..], k2.as_bytes()] {
        key.extend_from_slice(&u16::try_from(component.len()).expect("short").to_be_bytes());
        key.extend_from_slice(component);
        key.push(0);
    }
    key
}

pub fn clustering(components: &[&[u8]]) -> Vec<u8> {
    let mut prefix = Vec::new();
    components.iter().for_each(|c| push_component(&mut prefix, c));
    prefix
}

pub fn wide_clustering(c1: &str, c2: i32) -> Vec<u8> {
    clustering(&[c1.as_bytes(), &c2.to_be_bytes()])
}

pub fn live(timestamp: i64, value: &[u8]) -> Cell<'_> {
    Cell {
        timestamp,
        ttl: 0,
        deletion_time: 0,
        dead: false,
        value,
    }
}

pub fn expiring(timestamp: i64, ttl: u32, expiry: u32, value: &[u8]) -> Cell<'_> {
    Cell {
        timestamp,
        ttl,
        deletion_time: expiry,
        dead: false,
        value,
    }
}

pub fn dead(timestamp: i64, deletion_time: u32) -> Cell<'static> {
    Cell {
        timestamp,
        ttl: 0,
        deletion_time,
        dead: true,
        value: &[],
    }
}

pub fn tombstone(timestamp: i64, deletion_time: u32) -> Tombstone {
    Tombstone {
        timestamp,
        deletion_time,
    }
}

/// A cell or the elements of a complex column.
pub enum Value<'a> {
    Cell(Cell<'a>),
    Complex(Tombstone, Vec<(Vec<u8>, Cell<'a>)>),
}

/// Packs a row; columns by name in any order.
pub fn row(table: &Table, marker: Option<Liveness>, deletion: Tombstone, values: &[(&str, Value<'_>)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut by_id: Vec<(usize, &Value<'_>)> = values
        .iter()
        .map(|(name, v)| (usize::from(table.column(name).expect("a column of the table").id.0), v))
        .collect();
    by_id.sort_by_key(|(id, _)| *id);
    let shared = match marker {
        Some(m) => Shared {
            timestamp: m.timestamp,
            ttl: m.ttl,
            expiry: m.expiry,
        },
        None => Shared {
            timestamp: NOW_US,
            ttl: 0,
            expiry: 0,
        },
    };
    let columns = by_id.last().map_or(0, |(id, _)| id + 1);
    let mut builder = RowBuilder::begin(&mut out, &table.layout, shared, marker, deletion, true, columns);
    for (id, value) in by_id {
        match value {
            Value::Cell(c) => builder.cell(id, c),
            Value::Complex(t, elements) => {
                builder.complex(id, *t, elements.iter().map(|(path, cell)| (&path[..], *cell)));
            }
        }
    }
    out
}

pub fn marker(timestamp: i64) -> Option<Liveness> {
    Some(Liveness {
        timestamp,
        ttl: 0,
        expiry: 0,
    })
}

fn time_uuid(n: u8) -> Vec<u8> {
    let mut uuid = vec![0x10, 0x20, 0x30, n, 0x40, 0x50, 0x11, 0xee, 0x80, 0, 1, 2, 3, 4, 5, 6];
    uuid[15] = n;
    uuid
}

fn int(n: i32) -> [u8; 4] {
    n.to_be_bytes()
}

fn new(key: Vec<u8>) -> PartitionBlock {
    PartitionBlock::new(token_of(&key), &key)
}

/// Partitions of [`wide_table`] with everything in them, sorted.
pub fn wide_blocks(table: &Table) -> Vec<PartitionBlock> {
    let mut blocks = vec![cells(table), empty_values(table), ranges(table)];
    blocks.extend(deleted(table));
    blocks.extend(without_rows(table));
    blocks.sort_by(|a, b| (a.token, a.key()).cmp(&(b.token, b.key())));
    blocks
}

/// Writes an sstable of [`wide_blocks`].
pub fn write_sample(dir: &Path) -> Result<Descriptor, Error> {
    let table = wide_table();
    let blocks = wide_blocks(&table);
    let base = EncodingBase::of_blocks(&table.layout, &blocks);
    let options = WriterOptions::of_table(&table, 7, base).expect("known options");
    let mut writer = Writer::create(dir, 1, &table, options)?;
    blocks.iter().try_for_each(|block| writer.append(block))?;
    Ok(writer.finish()?.descriptor)
}

/// Every cell kind, a static row, a row of a marker alone.
fn cells(table: &Table) -> PartitionBlock {
    let one = int(1);
    let two = int(2);
    let three = int(3);
    let mut b = new(wide_key(1, "cells"));
    b.set_static_row(&row(
        table,
        None,
        Tombstone::NONE,
        &[
            ("s_int", Value::Cell(live(NOW_US, &one))),
            (
                "s_set",
                Value::Complex(
                    tombstone(NOW_US - 1, NOW),
                    vec![(b"x".to_vec(), live(NOW_US, b"")), (b"y".to_vec(), dead(NOW_US, NOW))],
                ),
            ),
        ],
    ));
    let map = vec![
        (b"a".to_vec(), live(NOW_US, &one)),
        (b"b".to_vec(), expiring(NOW_US, 1000, NOW + 300_000_000, &two)),
        (b"c".to_vec(), dead(NOW_US + 5, NOW + 5)),
    ];
    let list = vec![
        (time_uuid(1), live(NOW_US, &one)),
        (time_uuid(2), live(NOW_US + 1, &three)),
    ];
    let fields = vec![(vec![0, 0], live(NOW_US, &two)), (vec![0, 1], live(NOW_US, b"why"))];
    let frozen = [0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 9];
    b.push_row(
        &wide_clustering("a", 5),
        &row(
            table,
            marker(NOW_US),
            Tombstone::NONE,
            &[
                ("a_map", Value::Complex(Tombstone::NONE, map)),
                ("b_int", Value::Cell(live(NOW_US, &one))),
                ("c_text", Value::Cell(live(NOW_US, b"hello"))),
                ("d_list", Value::Complex(tombstone(NOW_US - 1, NOW - 1), list)),
                ("e_bigint", Value::Cell(live(NOW_US - 77, &int(0).repeat(2)))),
                ("f_frozen", Value::Cell(live(NOW_US, &frozen))),
                ("g_point", Value::Complex(Tombstone::NONE, fields)),
                ("h_tinyint", Value::Cell(live(NOW_US, &[7]))),
                ("i_uuid", Value::Cell(live(NOW_US, &[0x11; 16]))),
            ],
        ),
    );
    b.push_row(
        &wide_clustering("a", 3),
        &row(table, marker(NOW_US), Tombstone::NONE, &[]),
    );
    b.push_row(
        &wide_clustering("a", -1),
        &row(
            table,
            None,
            Tombstone::NONE,
            &[
                ("b_int", Value::Cell(dead(NOW_US, NOW))),
                ("c_text", Value::Cell(live(NOW_US, b""))),
                ("e_bigint", Value::Cell(live(NOW_US, b""))),
            ],
        ),
    );
    push_mortal_rows(table, &mut b);
    b
}

/// Rows that expire or are deleted.
fn push_mortal_rows(table: &Table, b: &mut PartitionBlock) {
    let two = int(2);
    let three = int(3);
    let ttl = Liveness {
        timestamp: NOW_US,
        ttl: 3600,
        expiry: NOW + 300_003_600,
    };
    b.push_row(
        &wide_clustering("b", 1),
        &row(
            table,
            Some(ttl),
            Tombstone::NONE,
            &[
                ("b_int", Value::Cell(expiring(NOW_US, 3600, NOW + 300_003_600, &three))),
                ("c_text", Value::Cell(expiring(NOW_US, 60, NOW + 300_000_060, b"soon"))),
                ("h_tinyint", Value::Cell(live(NOW_US, &[1]))),
            ],
        ),
    );
    b.push_row(&wide_clustering("c", 1), &row(table, None, tombstone(NOW_US, NOW), &[]));
    b.push_row(
        &wide_clustering("c", 0),
        &row(
            table,
            marker(NOW_US + 10),
            tombstone(NOW_US, NOW),
            &[("b_int", Value::Cell(live(NOW_US + 10, &two)))],
        ),
    );
}

/// Empty clustering values sort first, or last where the order descends.
fn empty_values(table: &Table) -> PartitionBlock {
    let mut b = new(wide_key(2, ""));
    b.push_row(
        &wide_clustering("", 1),
        &row(table, marker(NOW_US), Tombstone::NONE, &[]),
    );
    b.push_row(
        &clustering(&[b"", b""]),
        &row(table, marker(NOW_US), Tombstone::NONE, &[]),
    );
    b.push_row(
        &clustering(&[b"x", b""]),
        &row(table, marker(NOW_US), Tombstone::NONE, &[]),
    );
    b
}

/// A partition tombstone alone, and one with a row after it.
fn deleted(table: &Table) -> Vec<PartitionBlock> {
    let one = int(1);
    let mut blocks = Vec::new();
    let mut b = new(wide_key(3, "deleted"));
    b.tombstone = tombstone(NOW_US, NOW);
    blocks.push(b);
    let mut b = new(wide_key(4, "deleted and written"));
    b.tombstone = tombstone(NOW_US, NOW);
    b.push_row(
        &wide_clustering("z", 0),
        &row(
            table,
            marker(NOW_US + 1),
            Tombstone::NONE,
            &[("b_int", Value::Cell(live(NOW_US + 1, &one)))],
        ),
    );
    blocks.push(b);
    blocks
}

/// Deletes from one bound to another, `t` microseconds after [`NOW_US`].
fn range(start: Bound, end: Bound, t: i64) -> RangeTombstone {
    RangeTombstone {
        start,
        end,
        tombstone: tombstone(NOW_US + t, NOW),
    }
}

/// Range tombstones: all sides, a boundary, adjacent ones of one time apart, around and between rows.
fn ranges(table: &Table) -> PartitionBlock {
    let one = int(1);
    let mut b = new(wide_key(5, "ranges"));
    let (a, c) = (clustering(&[b"a"]), clustering(&[b"c"]));
    b.range_tombstones = vec![
        range(Bound::bottom(), Bound::before(&a), 1),
        range(Bound::before(&a), Bound::after(&wide_clustering("a", 3)), 2),
        range(Bound::after(&wide_clustering("a", 3)), Bound::after(&a), 3),
        range(
            Bound::before(&wide_clustering("b", 9)),
            Bound::before(&wide_clustering("b", 1)),
            4,
        ),
        range(Bound::after(&c), Bound::top(), 5),
    ];
    for (c1, c2) in [
        ("a", 5),
        ("a", 3),
        ("a", 1),
        ("b", 10),
        ("b", 5),
        ("b", 1),
        ("c", 0),
        ("d", 0),
    ] {
        b.push_row(
            &wide_clustering(c1, c2),
            &row(
                table,
                marker(NOW_US + 9),
                Tombstone::NONE,
                &[("b_int", Value::Cell(live(NOW_US + 9, &one)))],
            ),
        );
    }
    b
}

/// Only a static row; only a range tombstone.
fn without_rows(table: &Table) -> Vec<PartitionBlock> {
    let two = int(2);
    let mut blocks = Vec::new();
    let (a, c) = (clustering(&[b"a"]), clustering(&[b"c"]));
    let mut b = new(wide_key(6, "static"));
    b.set_static_row(&row(
        table,
        None,
        Tombstone::NONE,
        &[("s_int", Value::Cell(live(NOW_US, &two)))],
    ));
    blocks.push(b);
    let mut b = new(wide_key(7, "range"));
    b.range_tombstones = vec![range(Bound::before(&a), Bound::after(&c), 0)];
    blocks.push(b);
    blocks
}

/// A partition of `rows` rows of `value_len` bytes in `table`, which has one clustering column of type int and a text
/// column `v`; a range tombstone covers every tenth row and the one after it.
pub fn long_partition(table: &Table, key: &[u8], rows: i32, value_len: usize) -> PartitionBlock {
    let mut b = PartitionBlock::new(token_of(key), key);
    for i in 0..rows {
        let value: Vec<u8> = (0..value_len)
            .map(|j| b'a' + ((i as usize * 7 + j) % 23) as u8)
            .collect();
        let at = NOW_US + i64::from(i);
        let packed = row(
            table,
            marker(at),
            Tombstone::NONE,
            &[("v", Value::Cell(live(at, &value)))],
        );
        b.push_row(&clustering(&[&i.to_be_bytes()]), &packed);
        if i % 10 == 0 {
            b.range_tombstones.push(RangeTombstone {
                start: Bound::before(&clustering(&[&i.to_be_bytes()])),
                end: Bound::after(&clustering(&[&(i + 1).to_be_bytes()])),
                tombstone: tombstone(NOW_US - 1000 + i64::from(i), NOW),
            });
        }
    }
    b
}

pub fn long_table() -> Table {
    table(
        "long",
        vec![
            column("k", CqlType::Text, ColumnKind::PartitionKey, 0, false),
            column("c", CqlType::Int, ColumnKind::Clustering, 0, false),
            regular("v", CqlType::Text),
        ],
    )
}

/// What a file has of a block: without what its own deletions cover.
pub fn without_deleted(table: &Table, block: &PartitionBlock) -> PartitionBlock {
    let mut left = PartitionBlock::new(block.token, block.key());
    left.tombstone = block.tombstone;
    left.range_tombstones = block.range_tombstones.clone();
    let layout = &table.layout;
    let shadow = |row: RowView<'_>, deletion: Tombstone, out: &mut Vec<u8>| {
        if may_shadow(layout, row, deletion) {
            shadow_row(layout, row, deletion, out)
        } else {
            out.extend_from_slice(row.bytes());
            true
        }
    };
    let mut bytes = Vec::new();
    if let Some(row) = block.static_row()
        && shadow(row, block.tombstone, &mut bytes)
    {
        left.set_static_row(&bytes);
    }
    for (key, row) in block.rows() {
        let deletion = block.deletion_of(&table.clustering_order, key);
        left.push_row_with(key, |out| shadow(row, deletion, out));
    }
    left
}

/// A text that two blocks share when they mean the same.
pub fn describe(table: &Table, block: &PartitionBlock) -> String {
    use std::fmt::Write as _;
    let mut out = String::new();
    let _ = writeln!(out, "partition {:?} {:?}", block.key(), block.tombstone);
    let mut put_row = |what: &[u8], r: &mutation::RowView<'_>| {
        let _ = write!(out, "  row {what:?} marker {:?} {:?}", r.marker, r.tombstone);
        for (id, column) in r.columns(&table.layout) {
            match column {
                mutation::Column::Simple(c) => {
                    let _ = write!(out, " {id}={c:?}");
                }
                mutation::Column::Complex(c) => {
                    let _ = write!(out, " {id}={:?}{:?}", c.tombstone, c.elements().collect::<Vec<_>>());
                }
            }
        }
        out.push('\n');
    };
    if let Some(r) = block.static_row() {
        put_row(b"static", &r);
    }
    for (key, r) in block.rows() {
        put_row(key, &r);
    }
    for r in &block.range_tombstones {
        let _ = writeln!(out, "  range {r:?}");
    }
    out
}

/// Joins the blocks of one partition, as they came, into one.
pub fn join(table: &Table, parts: &[PartitionBlock]) -> PartitionBlock {
    let mut out = PartitionBlock::new(parts[0].token, parts[0].key());
    out.tombstone = parts[0].tombstone;
    if let Some(s) = parts[0].static_row() {
        out.set_static_row(s.bytes());
    }
    let mut ranges = mutation::RangeTombstoneList::default();
    for p in parts {
        p.rows().for_each(|(key, r)| out.push_row(key, r.bytes()));
        p.range_tombstones
            .iter()
            .for_each(|r| ranges.add(&table.clustering_order, r.clone()));
    }
    out.range_tombstones = ranges.into_vec();
    out
}
