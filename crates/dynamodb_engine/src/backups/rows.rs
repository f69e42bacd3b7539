//! The rows of a snapshot's sstables as mutations of the table that is restored.
//!
//! Values and deletions keep their timestamps, so the rows of several replicas merge in the new table as they would
//! have in the old one, in any order. Locks of transactions are left out: see docs/dev/dynamodb-backups.md. So are
//! columns that the API does not know, which CQL may have added.

use std::path::Path;
use std::sync::Arc;

use mutation::block::PartitionBlock;
use mutation::row::{Column, Complex, RowBuilder, Shared};
use mutation::{Addressed, Mutation, MutationBuilder, RowView, Tombstone};
use record::Known;
use schema::record::open_objects;
use schema::{Object, Table};
use sstable::{Descriptor, ReadLimits};
use stdx::preempt;

use crate::row::ATTRIBUTES;
use crate::table::ItemTable;

/// The file of a snapshot with the table as it was.
const SCHEMA_RECORDS: &str = "schema.records";
/// How much of a partition is read at once.
pub(super) const BLOCK: ReadLimits = ReadLimits {
    rows: 256,
    bytes: 64 << 10,
};
/// A mutation that is longer is cut. The log takes far longer ones.
const MUTATION_BYTES_MAX: usize = 1 << 20;

/// The sstables of a snapshot.
pub(super) struct SnapshotFiles {
    /// The files, none of which is open.
    pub(super) sstables: Vec<Descriptor>,
    /// The table as it was.
    pub(super) table: Arc<Table>,
}

/// Looks for the files of a snapshot. Blocks.
///
/// # Errors
/// When the schema beside them is damaged or missing.
pub(super) fn find(directory: &Path) -> Result<SnapshotFiles, String> {
    let path = directory.join(SCHEMA_RECORDS);
    let at = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let records = runtime::fs::read(&path).map_err(|error| at(&error))?;
    let objects = open_objects(&records, &Known::everything()).map_err(|error| at(&error))?;
    let mut tables = objects.into_iter().filter_map(|object| match object {
        Object::Table(table) => Some(table),
        _ => None,
    });
    let table = tables.next().ok_or_else(|| at(&"there is no table in it"))?;
    let sstables = sstable::list(directory).map_err(|error| error.to_string())?;
    Ok(SnapshotFiles { sstables, table })
}

/// Makes mutations of a table that is restored.
pub(super) struct Restored {
    target: Arc<ItemTable>,
    source: Arc<Table>,
    /// The column of the attributes in the rows of the source.
    attributes: usize,
}

impl Restored {
    /// Rows of `source` become rows of `target`.
    ///
    /// # Errors
    /// When the source is no table of the API.
    pub(super) fn new(target: Arc<ItemTable>, source: Arc<Table>) -> Result<Self, String> {
        let column = source.column(ATTRIBUTES);
        let attributes = column.ok_or("the table of the backup has no column of attributes")?.id;
        Ok(Self {
            target,
            attributes: usize::from(attributes.0),
            source,
        })
    }

    /// The mutations that write a block of the source to the target; none if nothing is left of it.
    pub(super) fn mutations(&self, block: &PartitionBlock) -> Vec<Addressed> {
        let table = &self.target.table;
        let (mut packed, mut is_empty) = (Vec::new(), true);
        let mut builder = MutationBuilder::begin(&mut packed, table.id, block.key());
        if !block.tombstone.is_none() {
            builder.partition_tombstone(block.tombstone);
            is_empty = false;
        }
        let mut bytes = Vec::new();
        for (clustering, row) in block.rows() {
            preempt::point();
            bytes.clear();
            if self.append_row(row, &mut bytes) {
                builder.row(clustering, |out| preempt::append(out, &bytes));
                is_empty = false;
            }
        }
        for range in &block.range_tombstones {
            builder.range_tombstone(range);
            is_empty = false;
        }
        if is_empty {
            return Vec::new();
        }
        let parts = match Mutation::new(&packed) {
            Some(whole) if packed.len() > MUTATION_BYTES_MAX => {
                mutation::cut::cut(&whole, &table.layout, MUTATION_BYTES_MAX)
            }
            _ => vec![packed],
        };
        let addressed = parts.into_iter().filter_map(|part| Addressed::at(block.token, part));
        addressed.collect()
    }

    /// Appends a row without its lock; whether anything is left of it.
    fn append_row(&self, row: RowView<'_>, out: &mut Vec<u8>) -> bool {
        let attributes = row.columns(&self.source.layout).find_map(|(id, column)| match column {
            Column::Complex(complex) if id == self.attributes => Some(complex),
            Column::Complex(_) | Column::Simple(_) => None,
        });
        let is_written = |complex: &Complex<'_>| !complex.tombstone.is_none() || complex.elements().next().is_some();
        let attributes = attributes.filter(is_written);
        if row.marker.is_none() && row.tombstone.is_none() && attributes.is_none() {
            return false;
        }
        let shared = Shared {
            timestamp: row.timestamp,
            ttl: row.ttl,
            expiry: row.expiry,
        };
        let (layout, columns) = (&self.target.table.layout, self.target.attributes + 1);
        let columns = attributes.map_or(0, |_| columns);
        let tombstone: Tombstone = row.tombstone;
        let mut builder = RowBuilder::begin(out, layout, shared, row.marker, tombstone, false, columns);
        if let Some(attributes) = attributes {
            builder.complex(self.target.attributes, attributes.tombstone, attributes.elements());
        }
        true
    }
}
