//! What is written is read back: by scans, by reads of slices, forwards and backwards, through every compressor.

use std::cmp::Ordering;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use crate::common;
use crate::common::{TempDir, describe, join, long_partition, long_table, wide_blocks, wide_table};
use mutation::{Bound, ClusteringSlice, PartitionBlock, RangeTombstoneList};
use schema::{CompactStorage, Table};
use sstable::{
    ChunkCache, Component, Compression, Compressor, EncodingBase, ReadLimits, Reader, Writer, WriterOptions,
};
use types::token::KeyHash;
use types::{CqlType, Token};

fn write(dir: &Path, table: &Table, blocks: &[PartitionBlock], compression: Compression) -> Arc<Reader> {
    let base = EncodingBase::of_blocks(&table.layout, blocks);
    let mut options = WriterOptions::of_table(table, blocks.len() as u64, base).expect("known options");
    options.compression = compression;
    options.column_index_size_bytes = 300;
    options.min_index_interval = 4;
    let mut writer = Writer::create(dir, 1, table, options).expect("an empty directory");
    for block in blocks {
        writer.append(block).expect("room on the disk");
    }
    writer.finish().expect("room on the disk");
    Reader::open(dir, 1, table).expect("what was just written")
}

fn lz4() -> Compression {
    Compression {
        compressor: Some(Compressor::Lz4),
        chunk_len: 4096,
    }
}

fn scan_all(reader: &Arc<Reader>, after: Token, to: Token, limits: ReadLimits) -> Vec<PartitionBlock> {
    let mut scan = reader.scan_blocking(after, to, limits).expect("a readable index");
    let mut blocks = Vec::new();
    while let Some(block) = scan.next_block().expect("undamaged data") {
        blocks.push(block);
    }
    blocks
}

/// Joins consecutive blocks of one partition.
fn joined(table: &Table, blocks: &[PartitionBlock]) -> Vec<PartitionBlock> {
    blocks
        .chunk_by(|a, b| a.key() == b.key())
        .map(|parts| join(table, parts))
        .collect()
}

fn texts(table: &Table, blocks: &[PartitionBlock]) -> Vec<String> {
    blocks.iter().map(|b| describe(table, b)).collect()
}

#[test]
fn every_kind_of_cell_row_and_deletion_survives_every_compressor() {
    let table = wide_table();
    let blocks = wide_blocks(&table);
    let zstd = Compression {
        compressor: Some(Compressor::Zstd(1)),
        chunk_len: 256,
    };
    let snappy = Compression {
        compressor: Some(Compressor::Snappy),
        chunk_len: 128,
    };
    let deflate = Compression {
        compressor: Some(Compressor::Deflate),
        chunk_len: 1 << 16,
    };
    for compression in [lz4(), zstd, snappy, deflate, Compression::none()] {
        let dir = TempDir::new("kinds");
        let reader = write(&dir.0, &table, &blocks, compression.clone());
        let read = scan_all(&reader, Token::MIN, Token::MAX, ReadLimits::NONE);
        assert_eq!(texts(&table, &read), texts(&table, &blocks), "{compression:?}");
        for limits in [
            ReadLimits {
                rows: 1,
                bytes: usize::MAX,
            },
            ReadLimits {
                rows: usize::MAX,
                bytes: 1,
            },
        ] {
            let read = scan_all(&reader, Token::MIN, Token::MAX, limits);
            assert_eq!(
                texts(&table, &joined(&table, &read)),
                texts(&table, &blocks),
                "cut by {limits:?}"
            );
        }
        for block in &blocks {
            assert!(reader.may_contain(KeyHash::of(block.key())));
        }
        assert!(!reader.may_contain(KeyHash::of(b"not here")));
    }
}

#[test]
fn a_partition_appended_in_parts_is_the_same_file_as_in_one() {
    let table = wide_table();
    let blocks = wide_blocks(&table);
    let whole = TempDir::new("whole");
    let reader = write(&whole.0, &table, &blocks, lz4());
    for limits in [1, 2, 3].map(|rows| ReadLimits { rows, bytes: 200 }) {
        let parts = scan_all(&reader, Token::MIN, Token::MAX, limits);
        assert!(parts.len() > blocks.len());
        let dir = TempDir::new("parts");
        let base = EncodingBase::of_blocks(&table.layout, &blocks);
        let mut options = WriterOptions::of_table(&table, 7, base).expect("known options");
        options.compression = lz4();
        let mut writer = Writer::create(&dir.0, 1, &table, options).expect("an empty directory");
        parts.iter().for_each(|b| writer.append(b).expect("room on the disk"));
        writer.finish().expect("room on the disk");
        let data = |dir: &Path| runtime::fs::read(dir.join("me-1-big-Data.db")).expect("a data file");
        assert_eq!(data(&dir.0), data(&whole.0), "cut by {limits:?}");
    }
}

#[test]
fn a_row_of_a_thousand_columns_survives_with_any_number_of_them_missing() {
    let mut columns = vec![common::column(
        "k",
        types::CqlType::Text,
        schema::ColumnKind::PartitionKey,
        0,
        false,
    )];
    columns.extend((0..1000).map(|i| common::regular(&format!("v{i:04}"), types::CqlType::Int)));
    let table = common::table("columns", columns);
    let mut blocks: Vec<PartitionBlock> = [0, 1, 400, 499, 500, 501, 999, 1000]
        .into_iter()
        .map(|n| {
            let key = format!("{n} columns");
            let mut b = PartitionBlock::new(types::token::token_of(key.as_bytes()), key.as_bytes());
            let names: Vec<String> = (0..n).map(|i| format!("v{:04}", i * 1000 / n.max(1))).collect();
            let value = 7i32.to_be_bytes();
            let cells: Vec<_> = names
                .iter()
                .map(|name| (name.as_str(), common::Value::Cell(common::live(common::NOW_US, &value))))
                .collect();
            b.push_row(
                b"",
                &common::row(
                    &table,
                    common::marker(common::NOW_US),
                    mutation::Tombstone::NONE,
                    &cells,
                ),
            );
            b
        })
        .collect();
    blocks.sort_by(|a, b| (a.token, a.key()).cmp(&(b.token, b.key())));
    let dir = TempDir::new("columns");
    let reader = write(&dir.0, &table, &blocks, lz4());
    assert_eq!(
        texts(&table, &scan_all(&reader, Token::MIN, Token::MAX, ReadLimits::NONE)),
        texts(&table, &blocks)
    );
}

#[test]
fn a_scan_of_a_token_range_returns_exactly_its_partitions() {
    let table = long_table();
    let mut blocks: Vec<_> = (0..200)
        .map(|i| long_partition(&table, format!("key {i}").as_bytes(), i % 7, 30))
        .collect();
    blocks.retain(|b| !b.is_empty());
    blocks.sort_by(|a, b| (a.token, a.key()).cmp(&(b.token, b.key())));
    let dir = TempDir::new("range");
    let reader = write(&dir.0, &table, &blocks, lz4());
    let tokens: Vec<Token> = blocks.iter().map(|b| b.token).collect();
    let mut edges = vec![Token::MIN, Token(-1), Token(0), Token::MAX];
    edges.extend(
        tokens
            .iter()
            .step_by(17)
            .flat_map(|t| [*t, Token(t.0 - 1), Token(t.0 + 1)]),
    );
    for after in &edges {
        for to in &edges {
            let found: Vec<Token> = scan_all(&reader, *after, *to, ReadLimits::NONE)
                .iter()
                .map(|b| b.token)
                .collect();
            let wanted: Vec<Token> = tokens.iter().copied().filter(|t| t > after && t <= to).collect();
            assert_eq!(found, wanted, "({after}, {to}]");
        }
    }
    let reader = &reader;
    let scanned = on_shard(reader, move |reader, cache| async move {
        let mut results = Vec::new();
        for from in [Token::MIN, Token(0), reader.tokens().1] {
            let mut cursor = reader
                .scan(&cache, from, b"", Token::MAX, ReadLimits::NONE)
                .await
                .expect("an index");
            let mut found = Vec::new();
            while let Some(block) = cursor.next_block().await.expect("undamaged data") {
                found.push(block.token);
            }
            results.push((from, found));
        }
        results
    });
    for (from, found) in scanned {
        let wanted: Vec<Token> = tokens.iter().copied().filter(|t| *t >= from).collect();
        assert_eq!(found, wanted, "from {from} on");
    }
}

/// Runs `body` on a shard.
fn on_shard<T, B, F>(reader: &Arc<Reader>, body: B) -> T
where
    T: Send + 'static,
    B: Fn(Arc<Reader>, Rc<ChunkCache>) -> F + Send + Sync + Copy + 'static,
    F: Future<Output = T> + 'static,
{
    let (sender, receiver) = std::sync::mpsc::channel();
    let (reader, sender) = (Arc::clone(reader), std::sync::Mutex::new(sender));
    runtime::run(runtime::Options::default(), move |_| {
        let (reader, sender) = (Arc::clone(&reader), sender.lock().expect("nobody panicked").clone());
        Box::pin(async move {
            let cache = Rc::new(ChunkCache::new(1 << 20));
            sender.send(body(reader, cache).await).expect("the test waits");
        })
    })
    .expect("a shard");
    receiver.recv().expect("the shard has answered")
}

/// What reading `slices` of a partition must give.
fn model(table: &Table, block: &PartitionBlock, slices: &[ClusteringSlice]) -> PartitionBlock {
    let order = &table.clustering_order;
    let mut out = PartitionBlock::new(block.token, block.key());
    out.tombstone = block.tombstone;
    if let Some(s) = block.static_row() {
        out.set_static_row(s.bytes());
    }
    for (key, row) in block.rows() {
        if slices.iter().any(|s| s.contains(order, key)) {
            out.push_row(key, row.bytes());
        }
    }
    let all = RangeTombstoneList::from_sorted(block.range_tombstones.clone());
    let mut inside = RangeTombstoneList::default();
    for s in slices {
        all.within(order, s).for_each(|r| inside.add(order, r));
    }
    out.range_tombstones = inside.into_vec();
    out
}

fn check_stretches(table: &Table, parts: &[PartitionBlock], reversed: bool) {
    let order = &table.clustering_order;
    let mut at = if reversed { Bound::top() } else { Bound::bottom() };
    for (i, part) in parts.iter().enumerate() {
        let is_last = i + 1 == parts.len();
        assert_eq!(
            part.covered.is_none(),
            is_last,
            "only the last block ends the partition"
        );
        assert!(
            i == 0 || (part.tombstone.is_none() && part.static_row().is_none()),
            "said once, in the first block"
        );
        let edge = part
            .covered
            .clone()
            .unwrap_or(if reversed { Bound::bottom() } else { Bound::top() });
        let (start, end) = if reversed { (&edge, &at) } else { (&at, &edge) };
        let stretch = ClusteringSlice {
            start: start.clone(),
            end: end.clone(),
        };
        assert!(
            part.rows().all(|(key, _)| stretch.contains(order, key)),
            "rows inside the stretch"
        );
        for r in &part.range_tombstones {
            assert!(
                r.start.compare(order, start) != Ordering::Less,
                "range tombstones inside the stretch"
            );
            assert!(
                r.end.compare(order, end) != Ordering::Greater,
                "range tombstones inside the stretch"
            );
        }
        at = edge;
    }
}

async fn read_parts(
    reader: &Arc<Reader>,
    cache: &Rc<ChunkCache>,
    block: &PartitionBlock,
    slices: &[ClusteringSlice],
    reversed: bool,
    limits: ReadLimits,
) -> Vec<PartitionBlock> {
    let cursor = reader
        .read_partition(cache, block.token, block.key(), slices, reversed, limits)
        .await;
    let mut cursor = cursor.expect("a readable index").expect("the partition is there");
    let mut parts = Vec::new();
    while let Some(part) = cursor.next_block().await.expect("undamaged data") {
        parts.push(part);
    }
    parts
}

fn check_reads(
    table: fn() -> Table,
    blocks: fn(&Table) -> Vec<PartitionBlock>,
    slices: fn(&Table, &PartitionBlock) -> Vec<Vec<ClusteringSlice>>,
    name: &str,
) {
    let dir = TempDir::new(name);
    let reader = write(&dir.0, &table(), &blocks(&table()), lz4());
    let checked = on_shard(&reader, move |reader, cache| async move {
        let table = table();
        let mut checked = 0;
        for block in blocks(&table) {
            for slices in slices(&table, &block) {
                let wanted = describe(&table, &model(&table, &block, &slices));
                for reversed in [false, true] {
                    for limits in [
                        ReadLimits::NONE,
                        ReadLimits {
                            rows: 3,
                            bytes: usize::MAX,
                        },
                        ReadLimits {
                            rows: usize::MAX,
                            bytes: 1500,
                        },
                    ] {
                        let mut parts = read_parts(&reader, &cache, &block, &slices, reversed, limits).await;
                        check_stretches(&table, &parts, reversed);
                        if reversed {
                            // The partition's own is said in the first block: the last one in order.
                            let (tombstone, first) = (parts[0].tombstone, parts.len() - 1);
                            let static_row = parts[0].static_row().map(|s| s.bytes().to_vec());
                            parts[first].tombstone = tombstone;
                            if let Some(s) = static_row {
                                parts[first].set_static_row(&s);
                            }
                            parts.reverse();
                        }
                        let found = describe(&table, &join(&table, &parts));
                        assert_eq!(found, wanted, "slices {slices:?}, reversed {reversed}, {limits:?}");
                        checked += 1;
                    }
                }
            }
        }
        assert!(
            reader
                .read_partition(&cache, Token(5), b"none", &[], false, ReadLimits::NONE)
                .await
                .expect("an index")
                .is_none()
        );
        checked
    });
    assert!(checked > 20, "{checked} reads checked");
}

#[test]
fn slices_of_partitions_with_everything_in_them_are_read_forwards_and_backwards() {
    check_reads(
        wide_table,
        wide_blocks,
        |_, _| {
            let one = |start: Bound, end: Bound| vec![ClusteringSlice { start, end }];
            let (a, c) = (common::clustering(&[b"a"]), common::clustering(&[b"c"]));
            let (a3, b5) = (common::wide_clustering("a", 3), common::wide_clustering("b", 5));
            vec![
                vec![ClusteringSlice::all()],
                vec![],
                one(Bound::bottom(), Bound::before(&a)),
                one(Bound::before(&a), Bound::after(&a)),
                one(Bound::after(&a), Bound::top()),
                one(Bound::after(&a3), Bound::before(&b5)),
                one(Bound::before(&a3), Bound::after(&a3)),
                vec![
                    ClusteringSlice::exactly(&a3),
                    ClusteringSlice::exactly(&b5),
                    ClusteringSlice::exactly(&c),
                ],
            ]
        },
        "wide-slices",
    );
}

fn compact_table() -> Table {
    let clustering = |name, cql_type, position, descending| {
        common::column(name, cql_type, schema::ColumnKind::Clustering, position, descending)
    };
    let key = common::column("k", CqlType::Text, schema::ColumnKind::PartitionKey, 0, false);
    let columns = vec![
        key,
        clustering("c1", CqlType::Int, 0, false),
        clustering("c2", CqlType::Text, 1, true),
        common::regular("v", CqlType::Text),
    ];
    let mut table = common::table("compact", columns);
    table.compact = Some(CompactStorage::Dense);
    table
}

/// The clustering key of a row of [`compact_table`].
fn compact_clustering(c1: i32, c2: Option<&str>) -> Vec<u8> {
    let mut key = common::clustering(&[&c1.to_be_bytes()]);
    match c2 {
        Some(c2) => schema::push_component(&mut key, c2.as_bytes()),
        None => schema::push_null(&mut key),
    }
    key
}

fn compact_partition(table: &Table) -> PartitionBlock {
    let mut block = PartitionBlock::new(types::token::token_of(b"key"), b"key");
    let value = [b'v'; 100];
    for c1 in 0..40 {
        for c2 in [None, Some("b"), Some("")] {
            let cells = [("v", common::Value::Cell(common::live(common::NOW_US, &value)))];
            let row = common::row(table, None, mutation::Tombstone::NONE, &cells);
            block.push_row(&compact_clustering(c1, c2), &row);
        }
    }
    block
}

#[test]
fn a_clustering_column_that_a_row_lacks_is_null_in_a_dump() {
    let (table, dir) = (compact_table(), TempDir::new("null-dump"));
    let reader = write(&dir.0, &table, &[compact_partition(&table)], lz4());
    let mut text = Vec::new();
    sstable::tool::dump(&reader.descriptor().path(Component::Data), 0, &mut text).expect("undamaged data");
    let text = String::from_utf8(text).expect("JSON");
    let keys = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("\"clustering\" : "));
    let first: Vec<&str> = keys.take(4).collect();
    assert_eq!(first, ["[ 0, null ],", "[ 0, \"b\" ],", "[ 0, \"\" ],", "[ 1, null ],"]);
}

#[test]
fn rows_without_the_last_clustering_column_are_read_forwards_and_backwards() {
    check_reads(
        compact_table,
        |table| vec![compact_partition(table)],
        |_, _| {
            let slice = |start, end| vec![ClusteringSlice { start, end }];
            let prefix = common::clustering(&[&7_i32.to_be_bytes()]);
            let (null, b) = (compact_clustering(7, None), compact_clustering(7, Some("b")));
            vec![
                slice(Bound::before(&prefix), Bound::after(&prefix)),
                slice(Bound::after(&prefix), Bound::top()),
                slice(Bound::before(&null), Bound::after(&null)),
                slice(Bound::after(&null), Bound::after(&prefix)),
                slice(Bound::before(&prefix), Bound::before(&b)),
                slice(Bound::before(&b), Bound::after(&compact_clustering(20, None))),
            ]
        },
        "nulls",
    );
}

#[test]
fn slices_of_a_partition_of_many_index_blocks_are_read_forwards_and_backwards() {
    check_reads(
        long_table,
        |table| {
            let mut blocks = vec![
                long_partition(table, b"long", 1_000, 100),
                long_partition(table, b"short", 5, 10),
                long_partition(table, b"rows wider than a block", 20, 9_000),
            ];
            blocks.sort_by(|a, b| (a.token, a.key()).cmp(&(b.token, b.key())));
            blocks
        },
        |_, block| {
            let n = i32::try_from(block.len()).expect("few rows");
            let before = |i: i32| Bound::before(&common::clustering(&[&i.to_be_bytes()]));
            let after = |i: i32| Bound::after(&common::clustering(&[&i.to_be_bytes()]));
            let mut cases = vec![vec![ClusteringSlice::all()], vec![]];
            for i in [-5, 0, 1, 2, 10, n / 3, n / 2, n - 1, n, n + 10] {
                cases.push(vec![ClusteringSlice {
                    start: before(i),
                    end: after(i),
                }]);
                cases.push(vec![ClusteringSlice {
                    start: after(i),
                    end: Bound::top(),
                }]);
                cases.push(vec![ClusteringSlice {
                    start: Bound::bottom(),
                    end: before(i),
                }]);
                cases.push(vec![ClusteringSlice {
                    start: before(i),
                    end: after(i + 40),
                }]);
            }
            cases.push(
                (0..n)
                    .step_by(97)
                    .map(|i| ClusteringSlice {
                        start: before(i),
                        end: after(i),
                    })
                    .collect(),
            );
            cases.push(
                (0..n)
                    .step_by(11)
                    .map(|i| ClusteringSlice {
                        start: before(i),
                        end: before(i + 3),
                    })
                    .collect(),
            );
            cases
        },
        "long-slices",
    );
}

#[test]
fn an_unfinished_or_refused_sstable_leaves_no_file_behind() {
    let table = long_table();
    let dir = TempDir::new("unfinished");
    let options = || WriterOptions::of_table(&table, 1, EncodingBase::default()).expect("known options");
    let names = || runtime::fs::read_dir(&dir.0).expect("the directory").len();
    let block = long_partition(&table, b"a", 3, 10);
    let mut writer = Writer::create(&dir.0, 1, &table, options()).expect("an empty directory");
    writer.append(&block).expect("room on the disk");
    assert!(names() > 0);
    drop(writer);
    assert_eq!(names(), 0, "dropped");
    let mut writer = Writer::create(&dir.0, 1, &table, options()).expect("an empty directory");
    writer.append(&block).expect("room on the disk");
    let error = writer.append(&block).expect_err("a partition twice");
    assert!(error.to_string().contains("does not sort after"), "{error}");
    let error = writer
        .append(&long_partition(&table, b"zz", 1, 1))
        .expect_err("after an error");
    assert!(error.to_string().contains("an earlier part"), "{error}");
    assert!(writer.finish().is_err());
    assert_eq!(names(), 0, "refused");
    assert!(
        Writer::create(&dir.0, 1, &table, options())
            .expect("an empty directory")
            .finish()
            .is_err()
    );
    assert_eq!(names(), 0, "empty");
    assert!(Writer::create(&dir.0.join("missing"), 1, &table, options()).is_err());
}

#[test]
fn a_partition_of_which_nothing_remains_is_not_written() {
    let table = long_table();
    let dir = TempDir::new("nothing");
    let options = WriterOptions::of_table(&table, 1, EncodingBase::default()).expect("known options");
    let mut writer = Writer::create(&dir.0, 1, &table, options).expect("an empty directory");
    let empty = PartitionBlock::new(types::token::token_of(b"a"), b"a");
    let mut begun = empty.clone();
    begun.covered = Some(Bound::before(&common::clustering(&[&[0, 0, 0, 1]])));
    writer.append(&empty).expect("nothing to write");
    assert!(writer.is_empty());
    writer.append(&begun).expect("nothing to write");
    writer
        .append(&long_partition(&table, b"a", 3, 10))
        .expect("room on the disk");
    assert_eq!(writer.finish().expect("room on the disk").partitions, 1);
}

#[test]
fn unsealed_files_are_listed_by_nobody_and_removed_at_start() {
    let table = long_table();
    let dir = TempDir::new("unsealed");
    let reader = write(&dir.0, &table, &[long_partition(&table, b"a", 3, 10)], lz4());
    runtime::fs::write(dir.0.join("me-2-big-Data.db"), b"half").expect("a file");
    runtime::fs::write(dir.0.join("other.txt"), b"not ours").expect("a file");
    assert_eq!(
        sstable::list(&dir.0).expect("the directory"),
        vec![reader.descriptor().clone()]
    );
    let unsealed = sstable::remove_unsealed(&dir.0).expect("the directory");
    assert_eq!(unsealed.removed, ["me-2-big-Data.db"]);
    assert_eq!(unsealed.restored, []);
    sstable::delete(reader.descriptor()).expect("the directory");
    let left: Vec<String> = runtime::fs::read_dir(&dir.0)
        .expect("the directory")
        .into_iter()
        .map(|e| e.name)
        .collect();
    assert_eq!(left, vec!["other.txt".to_owned()]);
}

#[test]
fn a_lost_toc_is_written_again_unless_the_sstable_is_unfinished_or_deleted() {
    let table = long_table();
    let partitions = [long_partition(&table, b"a", 3, 10)];
    // What is done to the files of a sealed sstable, and whether it counts after a start.
    type Change = fn(&sstable::Descriptor);
    let cases: [(&str, Change, bool); 5] = [
        ("lost", |_| (), true),
        ("its write did not end", |d| mark(d, "tmp"), false),
        ("its deletion did not end", |d| mark(d, "deleted"), false),
        ("statistics were not written", |d| lose(d, Component::Statistics), false),
        ("another component is lost too", |d| lose(d, Component::Index), true),
    ];
    for (what, change, counts) in cases {
        let dir = TempDir::new("toc");
        let descriptor = write(&dir.0, &table, &partitions, lz4()).descriptor().clone();
        let toc = descriptor.path(Component::Toc);
        let listed = |bytes: Vec<u8>| {
            let mut lines: Vec<String> = String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        let before = listed(runtime::fs::read(&toc).expect("a TOC"));
        runtime::fs::remove_file(&toc).expect("a TOC");
        change(&descriptor);
        let unsealed = sstable::remove_unsealed(&dir.0).expect("the directory");
        assert_eq!(unsealed.removed.is_empty(), counts, "{what}: {unsealed:?}");
        if counts {
            assert_eq!(unsealed.restored, std::slice::from_ref(&descriptor), "{what}");
            assert_eq!(listed(runtime::fs::read(&toc).expect("a TOC")), before, "{what}");
        } else {
            assert_eq!(runtime::fs::read_dir(&dir.0).expect("the directory").len(), 0, "{what}");
        }
        let opened = sstable::tool::verify(&descriptor.path(Component::Data));
        assert_eq!(opened.is_ok(), what == "lost", "{what}: {opened:?}");
        let again = sstable::remove_unsealed(&dir.0).expect("the directory");
        assert!(
            again.removed.is_empty() && again.restored.is_empty(),
            "{what}: {again:?}"
        );
    }

    fn mark(descriptor: &sstable::Descriptor, state: &str) {
        let name = format!("{}.{state}", descriptor.path(Component::Toc).display());
        runtime::fs::write(Path::new(&name), b"Data.db\n").expect("room on the disk");
    }

    fn lose(descriptor: &sstable::Descriptor, component: Component) {
        runtime::fs::remove_file(descriptor.path(component)).expect("a component");
    }
}

#[test]
fn several_sstables_are_deleted_together_even_if_a_crash_interrupts_it() {
    let table = long_table();
    let names = |dir: &TempDir| -> Vec<String> {
        runtime::fs::read_dir(&dir.0)
            .expect("the directory")
            .into_iter()
            .map(|e| e.name)
            .collect()
    };
    let three = |dir: &TempDir| -> Vec<sstable::Descriptor> {
        let create = |generation| {
            let options = WriterOptions::of_table(&table, 1, EncodingBase::default()).expect("known options");
            let mut writer = Writer::create(&dir.0, generation, &table, options).expect("a directory");
            writer
                .append(&long_partition(&table, b"a", 3, 10))
                .expect("room on the disk");
            writer.finish().expect("room on the disk").descriptor
        };
        (1..=3).map(create).collect()
    };
    let dir = TempDir::new("together");
    let descriptors = three(&dir);
    sstable::mark_obsolete(&descriptors[..2])
        .and_then(sstable::Obsolete::delete)
        .expect("a directory");
    assert_eq!(
        sstable::list(&dir.0).expect("a directory"),
        vec![descriptors[2].clone()]
    );
    assert!(names(&dir).iter().all(|n| n.starts_with("me-3-")), "{:?}", names(&dir));

    // A single one counts as deleted as soon as it is marked, whatever becomes of its files.
    let dir = TempDir::new("single");
    let descriptors = three(&dir);
    drop(sstable::mark_obsolete(&descriptors[..1]).expect("room on the disk"));
    sstable::remove_unsealed(&dir.0).expect("a directory");
    assert_eq!(sstable::list(&dir.0).expect("a directory"), descriptors[1..]);

    // The log is durable, one sstable is gone and another has lost its TOC: then the power fails.
    let dir = TempDir::new("interrupted");
    let descriptors = three(&dir);
    let write_list = |file: &str, names: &str| {
        let checksum = crc32fast::hash(names.as_bytes());
        let list = format!("{names}crc32 {checksum:08x}\n");
        runtime::fs::write(dir.0.join(file), list.as_bytes()).expect("room on the disk");
    };
    write_list("obsolete-1.txt", "me-1-big-TOC.txt\nme-2-big-TOC.txt\n");
    sstable::delete(&descriptors[0]).expect("a directory");
    runtime::fs::remove_file(descriptors[1].path(sstable::Component::Toc)).expect("a TOC");
    sstable::remove_unsealed(&dir.0).expect("a directory");
    assert_eq!(
        sstable::list(&dir.0).expect("a directory"),
        vec![descriptors[2].clone()]
    );
    assert!(names(&dir).iter().all(|n| n.starts_with("me-3-")), "{:?}", names(&dir));

    // The power fails before the log has its name: nothing is deleted.
    runtime::fs::write(dir.0.join("obsolete-3.tmp"), b"me-3-big-TOC.txt\n").expect("room on the disk");
    sstable::remove_unsealed(&dir.0).expect("a directory");
    assert_eq!(
        sstable::list(&dir.0).expect("a directory"),
        vec![descriptors[2].clone()]
    );

    write_list("obsolete-3.txt", "me-3-big-TOC.txt\nwhat\n");
    let refusal = || {
        sstable::remove_unsealed(&dir.0)
            .expect_err("it is no list of sstables")
            .to_string()
    };
    let error = refusal();
    assert!(error.contains("what"), "{error}");
    runtime::fs::write(dir.0.join("obsolete-3.txt"), b"me-3-big-TOC.txt\n").expect("room on the disk");
    let error = refusal();
    assert!(error.contains("checksum"), "{error}");
}

/// A read that the disk damaged once took another sstable's name from the list: a deleted one was there at the next
/// start, with rows that had been truncated.
#[test]
fn a_list_of_deleted_sstables_is_believed_only_as_it_was_written() {
    let table = long_table();
    let dir = TempDir::new("changed-list");
    let create = |generation| {
        let options = WriterOptions::of_table(&table, 1, EncodingBase::default()).expect("known options");
        let mut writer = Writer::create(&dir.0, generation, &table, options).expect("a directory");
        let partition = long_partition(&table, b"a", 3, 10);
        writer.append(&partition).expect("room on the disk");
        writer.finish().expect("room on the disk").descriptor
    };
    let descriptors: Vec<sstable::Descriptor> = (1..=3).map(create).collect();
    let list = dir.0.join("obsolete-1.txt");
    let change = || {
        let written = runtime::fs::read(&list).expect("the list");
        let changed = String::from_utf8(written).expect("names").replace("me-2-", "me-3-");
        runtime::fs::write(&list, changed.as_bytes()).expect("room on the disk");
    };
    drop(sstable::mark_obsolete(&descriptors[..2]).expect("room on the disk"));
    change();
    let error = sstable::remove_unsealed(&dir.0).expect_err("its checksum is another");
    let text = error.to_string();
    assert!(text.contains("obsolete-1.txt") && text.contains("checksum"), "{text}");
    assert_eq!(
        sstable::list(&dir.0).expect("a directory"),
        descriptors,
        "none is deleted"
    );
    // The process that made the list knows what it has deleted.
    let obsolete = sstable::mark_obsolete(&descriptors[..2]).expect("room on the disk");
    change();
    obsolete.delete().expect("a directory");
    assert_eq!(sstable::list(&dir.0).expect("a directory"), descriptors[2..]);
    assert!(!runtime::fs::exists(&list));
}
