//! Index files: the same whether they are written with the sstable or made for it later, and never trusted when they
//! are damaged.

use std::collections::BTreeMap;
use std::ops::Bound as RangeBound;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use mutation::PartitionBlock;
use mutation::candidates::CandidatesFrom;
use mutation::terms::{IndexLookup, IndexTerms, TermRange};
use schema::{IndexKind, IndexPart, Table};
use sstable::{ChunkCache, Compression, EncodingBase, Reader, Writer, WriterOptions};
use types::Token;

use crate::common::{TempDir, long_partition, long_table, wide_blocks, wide_table};
use crate::lookups::on_shard;

fn write(dir: &Path, table: &Table, blocks: &[PartitionBlock]) -> Arc<Reader> {
    let base = EncodingBase::of_blocks(&table.layout, blocks);
    let mut options = WriterOptions::of_table(table, blocks.len() as u64, base).expect("known options");
    options.compression = Compression::default();
    let mut writer = Writer::create(dir, 1, table, options).expect("a directory");
    blocks
        .iter()
        .for_each(|block| writer.append(block).expect("room on the disk"));
    writer.finish().expect("room on the disk");
    Reader::open(dir, 1, table).expect("what was just written")
}

/// An index on each column that can have one.
fn indexed(mut table: Table) -> Table {
    let columns: Vec<_> = table
        .columns
        .iter()
        .map(|c| (c.name.clone(), c.cql_type.clone()))
        .collect();
    for (column, cql_type) in columns {
        let part = if cql_type.is_multi_cell() {
            IndexPart::Values
        } else {
            IndexPart::Value
        };
        let name = format!("i_{column}");
        table.add_index(&name, (&column, part), IndexKind::Legacy, BTreeMap::new());
    }
    table
}

fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let names = std::fs::read_dir(dir)
        .expect("a directory")
        .map(|entry| entry.expect("a file").path());
    let names = names.filter(|path| path.to_string_lossy().contains("CetoIndex"));
    names
        .map(|path| (path.clone(), runtime::fs::read(path).expect("a file")))
        .collect()
}

/// How many candidates an index has in all.
async fn count(reader: &Arc<Reader>, table: &Table, column: &str) -> Result<Option<usize>, String> {
    let index = table
        .indexes
        .iter()
        .find(|index| index.column == column)
        .expect("each has one");
    let terms = IndexTerms::of(table, index).expect("it has the column");
    let range = TermRange {
        from: RangeBound::Unbounded,
        to: RangeBound::Unbounded,
    };
    let lookup = IndexLookup {
        id: index.id,
        ranges: vec![range],
        pattern: None,
    };
    let cache = Rc::new(ChunkCache::new(1 << 20));
    let Some(mut cursor) = reader.index_cursor(&cache, &terms, lookup) else {
        return Ok(None);
    };
    let mut from = CandidatesFrom::token(Token(i64::MIN));
    let mut found = 0;
    loop {
        let some = cursor.next(&table.clustering_order, &from, 7).await;
        let some = some.map_err(|error| {
            assert!(error.is_damage(), "{error}");
            assert!(
                reader.leave_damaged_index(index.id, &error),
                "{error} is about the index"
            );
            assert!(!reader.has_index(index.id));
            error.to_string()
        })?;
        let Some(last) = some.last() else {
            return Ok(Some(found));
        };
        from = CandidatesFrom::behind(last);
        found += some.len();
    }
}

#[test]
fn a_file_that_is_made_later_is_the_one_that_is_written_with_the_sstable() {
    let (wide, long) = (indexed(wide_table()), indexed(long_table()));
    let mut many: Vec<_> = (0..40_u8)
        .map(|k| long_partition(&long, &[k], i32::from(k) * 9, 10))
        .collect();
    many.sort_by(|a, b| (a.token, a.key()).cmp(&(b.token, b.key())));
    for (table, blocks) in [(&wide, wide_blocks(&wide)), (&long, many)] {
        let dir = TempDir::new("index files");
        drop(write(&dir.0, table, &blocks));
        let written = files(&dir.0);
        assert_eq!(written.len(), table.indexes.len());
        written
            .keys()
            .for_each(|path| runtime::fs::remove_file(path).expect("it is there"));
        let reader = Reader::open(&dir.0, 1, table).expect("a whole sstable without its index files");
        assert!(table.indexes.iter().all(|index| !reader.has_index(index.id)));
        let ids: Vec<_> = table.indexes.iter().map(|index| index.id).collect();
        let stopped = sstable::build_indexes(&reader, table, &ids, |_| false);
        assert!(!stopped.expect("room on the disk"), "it was told to stop");
        assert!(files(&dir.0).is_empty(), "nothing remains of what was stopped");
        assert!(sstable::build_indexes(&reader, table, &ids, |_| true).expect("room on the disk"));
        assert!(table.indexes.iter().all(|index| reader.has_index(index.id)));
        assert!(files(&dir.0) == written, "the files are the same");
    }
}

#[test]
fn a_damaged_index_file_is_an_error_that_names_it_or_no_index_and_never_a_wrong_answer() {
    let table = Arc::new(indexed(long_table()));
    let blocks: Vec<_> = (0..1_u8).map(|k| long_partition(&table, &[k], 300, 10)).collect();
    let dir = TempDir::new("damaged index");
    let reader = write(&dir.0, &table, &blocks);
    let column = table.regulars().next().expect("it has one").name.clone();
    let whole = on_shard({
        let (reader, table, column) = (reader.clone(), table.clone(), column.clone());
        move || {
            let (reader, table, column) = (reader.clone(), table.clone(), column.clone());
            Box::pin(async move { count(&reader, &table, &column).await })
        }
    });
    assert_eq!(whole, Ok(Some(300)));
    let index = table
        .indexes
        .iter()
        .find(|index| index.column == column)
        .expect("each has one");
    let (path, bytes) = (files(&dir.0).into_iter())
        .find(|(path, _)| path.to_string_lossy().contains(&format!("CetoIndex_{}.db", index.id.0)))
        .expect("it was written");
    for at in (0..bytes.len()).step_by(bytes.len() / 150) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x40;
        runtime::fs::write(&path, &damaged).expect("room on the disk");
        let reader = Reader::open(&dir.0, 1, &table).expect("the sstable is whole");
        let (table, column) = (table.clone(), column.clone());
        let found = on_shard(move || {
            let (reader, table, column) = (reader.clone(), table.clone(), column.clone());
            Box::pin(async move { count(&reader, &table, &column).await })
        });
        match found {
            Ok(None) => {}
            Err(error) => assert!(error.contains("CetoIndex"), "{error}"),
            Ok(Some(found)) => panic!("byte {at} is damaged, and {found} candidates were found"),
        }
    }
}
