//! A file keeps its meaning while its table changes; and extreme values keep theirs.

use std::path::Path;
use std::sync::Arc;

use crate::common;
use crate::common::{NOW, NOW_US, TempDir, Value, column, describe, live, marker, regular, row, table};
use mutation::{BoundKind, Liveness, PartitionBlock, Tombstone};
use schema::{ColumnKind, Table};
use sstable::{EncodingBase, ReadLimits, Reader, Writer, WriterOptions};
use types::token::token_of;
use types::{CqlType, Token};

fn write(dir: &Path, table: &Table, blocks: &[PartitionBlock], base: EncodingBase) -> sstable::Meta {
    let options = WriterOptions::of_table(table, blocks.len() as u64, base).expect("known options");
    let mut writer = Writer::create(dir, 1, table, options).expect("a directory");
    blocks.iter().for_each(|b| writer.append(b).expect("room on the disk"));
    writer.finish().expect("room on the disk")
}

fn read(dir: &Path, table: &Table) -> Vec<PartitionBlock> {
    let reader: Arc<Reader> = Reader::open(dir, 1, table).expect("what was just written");
    let mut scan = reader
        .scan_blocking(Token::MIN, Token::MAX, ReadLimits::NONE)
        .expect("an index");
    std::iter::from_fn(|| scan.next_block().expect("undamaged data")).collect()
}

fn small_table() -> Table {
    table(
        "small",
        vec![
            column("k", CqlType::Text, ColumnKind::PartitionKey, 0, false),
            column("c", CqlType::Int, ColumnKind::Clustering, 0, false),
            regular("m", CqlType::Int),
            regular("t", CqlType::Text),
        ],
    )
}

fn one_row(table: &Table, timestamp: i64, values: &[(&str, Value<'_>)]) -> PartitionBlock {
    let mut b = PartitionBlock::new(token_of(b"k"), b"k");
    b.push_row(
        &common::clustering(&[&[0, 0, 0, 1]]),
        &row(table, marker(timestamp), Tombstone::NONE, values),
    );
    b
}

#[test]
fn columns_that_were_added_dropped_and_added_again_keep_their_values_apart() {
    let before = small_table();
    let (five, six) = (5i32.to_be_bytes(), 6i32.to_be_bytes());
    let dir = TempDir::new("alter");
    let values = [
        ("m", Value::Cell(live(NOW_US, &five))),
        ("t", Value::Cell(live(NOW_US, b"old"))),
    ];
    write(
        &dir.0,
        &before,
        &[one_row(&before, NOW_US, &values)],
        EncodingBase::default(),
    );

    // A column whose name sorts first, but whose id is the last.
    let mut added = before.clone();
    added.add_column("a", CqlType::Int, ColumnKind::Regular);
    assert_eq!(
        describe(&added, &read(&dir.0, &added)[0]),
        describe(&added, &one_row(&added, NOW_US, &values))
    );
    let three = [
        ("a", Value::Cell(live(NOW_US, &six))),
        ("m", Value::Cell(live(NOW_US, &five))),
        ("t", Value::Cell(live(NOW_US, b"old"))),
    ];
    let other = TempDir::new("alter-again");
    write(
        &other.0,
        &added,
        &[one_row(&added, NOW_US, &three)],
        EncodingBase::default(),
    );
    assert_eq!(
        describe(&added, &read(&other.0, &added)[0]),
        describe(&added, &one_row(&added, NOW_US, &three))
    );

    // Dropped: its cells are not read. Added again: only cells after the drop are.
    let mut dropped = before.clone();
    dropped.drop_column("t", NOW_US);
    let only = [("m", Value::Cell(live(NOW_US, &five)))];
    assert_eq!(
        describe(&dropped, &read(&dir.0, &dropped)[0]),
        describe(&dropped, &one_row(&dropped, NOW_US, &only))
    );
    let mut again = dropped.clone();
    again.add_column("t", CqlType::Text, ColumnKind::Regular);
    assert_eq!(
        describe(&again, &read(&dir.0, &again)[0]),
        describe(&again, &one_row(&again, NOW_US, &only))
    );
    let mut earlier = before.clone();
    earlier.drop_column("t", NOW_US - 1);
    earlier.add_column("t", CqlType::Text, ColumnKind::Regular);
    assert_eq!(
        describe(&earlier, &read(&dir.0, &earlier)[0]),
        describe(&earlier, &one_row(&earlier, NOW_US, &values))
    );
}

#[test]
fn a_row_of_which_only_dropped_cells_remain_is_not_there() {
    let before = small_table();
    let dir = TempDir::new("dropped-row");
    let mut block = PartitionBlock::new(token_of(b"k"), b"k");
    for (i, name, value) in [(1u8, "t", &b"old"[..]), (2, "m", &[0, 0, 0, 5])] {
        let packed = row(
            &before,
            None,
            Tombstone::NONE,
            &[(name, Value::Cell(live(NOW_US, value)))],
        );
        block.push_row(&common::clustering(&[&[0, 0, 0, i]]), &packed);
    }
    write(&dir.0, &before, &[block], EncodingBase::default());
    let mut dropped = before.clone();
    dropped.drop_column("t", NOW_US);
    let found = read(&dir.0, &dropped);
    let keys: Vec<&[u8]> = found[0].rows().map(|(key, _)| key).collect();
    assert_eq!(keys, vec![&common::clustering(&[&[0, 0, 0, 2]])[..]]);
}

#[test]
fn a_file_of_another_table_is_refused_with_the_difference() {
    let before = small_table();
    let dir = TempDir::new("mismatch");
    write(
        &dir.0,
        &before,
        &[one_row(&before, NOW_US, &[])],
        EncodingBase::default(),
    );
    let with = |columns: Vec<schema::Column>| table("small", columns);
    let key = || column("k", CqlType::Text, ColumnKind::PartitionKey, 0, false);
    let clustering = |descending| column("c", CqlType::Int, ColumnKind::Clustering, 0, descending);
    for (other, words) in [
        (
            with(vec![key(), clustering(false), regular("m", CqlType::Text)]),
            "column m is int in the file, text in the table",
        ),
        (with(vec![key(), clustering(true)]), "clustering column c"),
        (with(vec![key()]), "1 clustering columns in the file, 0 in the table"),
        (
            with(vec![
                column("k", CqlType::Int, ColumnKind::PartitionKey, 0, false),
                clustering(false),
            ]),
            "partition key",
        ),
        (
            with(vec![
                key(),
                clustering(false),
                regular("m", CqlType::Set(Arc::new(CqlType::Int))),
            ]),
            "column m is int in the file, set<int> in the table",
        ),
    ] {
        let error = Reader::open(&dir.0, 1, &other).expect_err(words);
        assert!(error.to_string().contains(words), "{error}");
    }
    let wider = with(vec![
        key(),
        clustering(false),
        regular("m", CqlType::Blob),
        regular("t", CqlType::Blob),
    ]);
    assert!(Reader::open(&dir.0, 1, &wider).is_ok(), "any value is a blob");
}

#[test]
fn extreme_times_survive_any_base() {
    let table = small_table();
    let five = 5i32.to_be_bytes();
    let expiring = |ttl, expiry| Liveness {
        timestamp: 7,
        ttl,
        expiry,
    };
    let mut block = PartitionBlock::new(token_of(b"k"), b"k");
    block.tombstone = common::tombstone(i64::MIN + 1, 0);
    let mut at = 0i32;
    let mut push = |marker: Option<Liveness>, deletion: Tombstone, cell: mutation::Cell<'_>| {
        at += 1;
        let packed = row(&table, marker, deletion, &[("m", Value::Cell(cell))]);
        block.push_row(&common::clustering(&[&at.to_be_bytes()]), &packed);
    };
    for timestamp in [i64::MIN + 1, -1, 0, 1, NOW_US, i64::MAX] {
        push(
            marker(timestamp),
            Tombstone::NONE,
            live(timestamp.wrapping_add(1).max(i64::MIN + 1), &five),
        );
        push(
            None,
            common::tombstone(timestamp, 5),
            common::dead(timestamp, i32::MAX as u32 - 1),
        );
    }
    for (ttl, expiry) in [(1, 2), (630_720_000, i32::MAX as u32 - 1), (1, NOW)] {
        push(
            Some(expiring(ttl, expiry)),
            Tombstone::NONE,
            common::expiring(7, ttl, expiry, &five),
        );
        push(None, Tombstone::NONE, common::expiring(-9, ttl, expiry, &five));
    }
    let bases = [
        EncodingBase::default(),
        EncodingBase::of_blocks(&table.layout, [&block]),
        EncodingBase::of_minima(Some(i64::MAX), Some(u32::MAX), Some(u32::MAX)),
    ];
    for base in bases {
        let dir = TempDir::new("extreme");
        let meta = write(&dir.0, &table, std::slice::from_ref(&block), base);
        let found = read(&dir.0, &table);
        assert_eq!(
            describe(&table, &found[0]),
            describe(&table, &common::without_deleted(&table, &block)),
            "{base:?}"
        );
        assert_eq!(
            (meta.statistics.min_timestamp, meta.statistics.max_timestamp),
            (i64::MIN + 1, i64::MAX)
        );
        assert_eq!(
            (meta.statistics.min_deletion_time, meta.statistics.max_ttl),
            (0, 630_720_000)
        );
        assert_eq!(meta.statistics.rows, 18);
    }
}

#[test]
fn an_expiry_behind_2038_is_written_as_the_last_second_that_the_format_has() {
    let table = small_table();
    let late = Liveness {
        timestamp: NOW_US,
        ttl: 630_720_000,
        expiry: NOW + 630_720_000,
    };
    let five = 5i32.to_be_bytes();
    let cell = common::expiring(NOW_US, late.ttl, late.expiry, &five);
    let mut block = PartitionBlock::new(token_of(b"k"), b"k");
    let packed = row(&table, Some(late), Tombstone::NONE, &[("m", Value::Cell(cell))]);
    block.push_row(&common::clustering(&[&[0, 0, 0, 1]]), &packed);
    let dir = TempDir::new("late");
    write(&dir.0, &table, &[block], EncodingBase::default());
    let found = read(&dir.0, &table);
    let marker = found[0].row(0).marker.expect("a marker");
    assert_eq!((marker.ttl, marker.expiry), (late.ttl, i32::MAX as u32 - 1));
}

#[test]
fn metadata_bounds_the_clustering_of_rows_and_range_tombstones() {
    let table = common::long_table();
    let dir = TempDir::new("bounds");
    let meta = write(
        &dir.0,
        &table,
        &[common::long_partition(&table, b"a", 101, 10)],
        EncodingBase::default(),
    );
    let (min, max) = meta.clustering_bounds();
    let bound = |i: i32, kind| {
        Some(mutation::Bound {
            prefix: common::clustering(&[&i.to_be_bytes()]).into(),
            kind,
        })
    };
    assert_eq!(min, bound(0, BoundKind::Before));
    // The last range tombstone reaches to row 101, which is not there.
    assert_eq!(max, bound(101, BoundKind::After));
    let reader = Reader::open(&dir.0, 1, &table).expect("what was just written");
    assert_eq!(reader.meta().clustering_bounds(), (min, max));
    assert_eq!(*reader.meta().statistics, *meta.statistics);
}
