//! `ceto perf memory-footprint`: the bytes that the same rows take in a memtable and in an sstable.
//!
//! Schema `pk blob, ck blob` and N blob columns. Each partition has a random key of 10 bytes and rows with a random
//! clustering key of 10 bytes; all columns are set to random values at timestamp 1; no row marker, no TTL. The sstable
//! is uncompressed.

use std::fmt;

use memtable::Memtable;
use mutation::row::{RowBuilder, Shared};
use mutation::{ClusteringSlice, Mutation, MutationBuilder, Tombstone};
use runtime::fs;
use schema::{Column, ColumnId, ColumnKind, Table, TableId, TableOptions, push_component};
use sstable::{EncodingBase, Writer, WriterOptions};
use types::CqlType;
use types::token::token_of;
use uuid::Uuid;

use crate::temporary::Directory;

/// Bytes of partition and clustering keys.
const KEY_BYTES: usize = 10;
/// The write timestamp of every cell, microseconds.
const TIMESTAMP_US: i64 = 1;
/// Bytes of a block handed to the sstable writer at once.
const BLOCK_BYTES: usize = 256 << 10;

/// Options of `ceto perf memory-footprint`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Rows of each partition.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub row_count: u32,
    /// Partitions.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub partition_count: u32,
    /// Bytes of each value.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub data_size: u32,
    /// Columns besides the keys.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=2_000))]
    pub column_count: u16,
}

/// Bytes of the rows, by where they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// Of the memtable's living data.
    pub in_memtable: usize,
    /// Of all memory that the memtable holds, unused space included.
    pub held_by_memtable: usize,
    /// Of Data.db, version `me`, uncompressed.
    pub in_sstable_me: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "in memtable:      {:>12}", self.in_memtable)?;
        writeln!(f, "held by memtable: {:>12}", self.held_by_memtable)?;
        writeln!(f, "in sstable me:    {:>12}", self.in_sstable_me)
    }
}

/// Fills a memtable, writes it as an sstable, and measures both.
///
/// # Errors
/// When the sstable cannot be written to a temporary directory.
pub fn run(options: &Options) -> Result<Report, String> {
    let table = table(options.column_count);
    let memtable = fill(&table, options);
    let directory = Directory::create(None)?;
    let in_sstable_me = write(&memtable, &table, &directory)?;
    Ok(Report {
        in_memtable: memtable.used_bytes(),
        held_by_memtable: memtable.bytes(),
        in_sstable_me,
    })
}

fn table(column_count: u16) -> Table {
    let column = |name: String, kind, id| Column {
        name,
        cql_type: CqlType::Blob,
        kind,
        position: 0,
        descending: false,
        id: ColumnId(id),
    };
    let keys = [("pk", ColumnKind::PartitionKey), ("ck", ColumnKind::Clustering)];
    let keys = keys.map(|(name, kind)| column(name.to_owned(), kind, u16::MAX));
    let regulars = (0..column_count).map(|i| column(format!("c{i}"), ColumnKind::Regular, i));
    let columns = keys.into_iter().chain(regulars).collect();
    Table::new(
        "ks",
        "cf",
        TableId(Uuid::from_u128(1)),
        columns,
        TableOptions::default(),
    )
}

fn fill(table: &Table, options: &Options) -> Memtable {
    let mut memtable = Memtable::new(table);
    let (mut packed, mut value) = (Vec::new(), vec![0; options.data_size as usize]);
    for _ in 0..options.partition_count {
        let mut key = [0; KEY_BYTES];
        fill_with_random(&mut key);
        for _ in 0..options.row_count {
            let mut clustering_key = [0; KEY_BYTES];
            fill_with_random(&mut clustering_key);
            let mut clustering = Vec::new();
            push_component(&mut clustering, &clustering_key);
            packed.clear();
            MutationBuilder::begin(&mut packed, table.id, &key).row(&clustering, |out| {
                let shared = Shared {
                    timestamp: TIMESTAMP_US,
                    ttl: 0,
                    expiry: 0,
                };
                let columns = usize::from(options.column_count);
                let mut row = RowBuilder::begin(out, &table.layout, shared, None, Tombstone::NONE, false, columns);
                for id in 0..columns {
                    fill_with_random(&mut value);
                    row.value(id, &value);
                }
            });
            let mutation = Mutation::new(&packed).expect("it was packed just now");
            memtable.apply(token_of(&key), &mutation);
        }
    }
    memtable
}

fn fill_with_random(bytes: &mut [u8]) {
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&runtime::random_u64().to_le_bytes()[..chunk.len()]);
    }
}

/// Writes the memtable as an sstable; the length of its Data.db.
fn write(memtable: &Memtable, table: &Table, directory: &Directory) -> Result<u64, String> {
    let base = EncodingBase::of_minima(Some(memtable.min_timestamp()), None, None);
    let mut options = WriterOptions::of_table(table, memtable.partition_count() as u64, base)?;
    options.compression.compressor = None;
    let mut writer = Writer::create(directory.path(), 1, table, options).map_err(|error| error.to_string())?;
    for partition in memtable.partitions() {
        let mut slice = ClusteringSlice::all();
        loop {
            let block = partition.block(&slice, false, usize::MAX, BLOCK_BYTES);
            writer.append(&block).map_err(|error| error.to_string())?;
            match block.covered {
                Some(bound) => slice.start = bound,
                None => break,
            }
        }
    }
    writer.finish().map_err(|error| error.to_string())?;
    let files = fs::read_dir(directory.path()).map_err(|error| error.to_string())?;
    let data = files.iter().find(|file| file.name.ends_with("-Data.db"));
    data.map(|file| file.len)
        .ok_or_else(|| "the sstable has no Data.db".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_shape_stays_inside_its_budget() {
        let options = Options {
            row_count: 20,
            partition_count: 100,
            data_size: 8,
            column_count: 16,
        };
        let report = run(&options).expect("the temporary directory takes an sstable");
        let payload = 100 * (10 + 20 * (10 + 16 * 8));
        assert!(
            report.in_memtable > payload,
            "{report} is less than the {payload} bytes of keys and values"
        );
        assert!(
            report.in_memtable <= 900_000,
            "{report} is more than the budget of 900,000 bytes in a memtable"
        );
        assert!(
            report.held_by_memtable >= report.in_memtable,
            "{report} holds less than it uses"
        );
        assert!(
            report.in_sstable_me as usize > payload,
            "{report} is less than the {payload} bytes of keys and values"
        );
    }

    #[test]
    fn a_report_names_each_place_in_a_line() {
        let report = Report {
            in_memtable: 1,
            held_by_memtable: 22,
            in_sstable_me: 333,
        };
        let expected =
            "in memtable:                 1\nheld by memtable:           22\nin sstable me:             333\n";
        assert_eq!(report.to_string(), expected);
    }
}
