//! The bytes of a batch, counted as Cassandra counts them, so that a limit means the same here, and the guardrails of
//! batches.
//!
//! ```text
//! partition  8, the static row, the rows; and when it has range tombstones 4, with 12 and both bounds for each
//! row        the values of the clustering key, 8 (20 when it expires), 13, and its columns
//! cell       20 and its value; an element of a collection also its path, and its column 12
//! ```
//!
//! A partition without a static row counts an empty one. A row that several statements write counts for each of them.

use std::collections::BTreeSet;

use mutation::row::{Column, RowView};
use mutation::{Mutation, MutationItem, RangeTombstone};
use plan::BatchKind;
use schema::{Table, components};
use stdx::histogram::{Histogram, buckets_of};
use stdx::preempt;

use crate::QueryError;
use crate::guardrails::BatchGuardrails;

const PARTITION_BYTES: usize = 8;
const ROW_BYTES: usize = 8 + 13;
const EXPIRY_BYTES: usize = 12;
const CELL_BYTES: usize = 20;
const COLLECTION_BYTES: usize = 12;
const RANGES_BYTES: usize = 4;
const RANGE_BYTES: usize = 12;

/// Numbers of partitions, in buckets that are each a quarter wider than the one before at most.
pub type PartitionHistogram = Histogram<2, { buckets_of(2, 34) }>;

/// How many partitions batches have: logged ones, unlogged ones, and those of counters.
#[derive(Default, Debug)]
pub struct BatchPartitions {
    /// Of logged batches.
    pub logged: PartitionHistogram,
    /// Of unlogged batches.
    pub unlogged: PartitionHistogram,
    /// Of batches of counters.
    pub counter: PartitionHistogram,
}

impl BatchPartitions {
    fn of(&self, kind: BatchKind) -> &PartitionHistogram {
        match kind {
            BatchKind::Logged => &self.logged,
            BatchKind::Unlogged => &self.unlogged,
            BatchKind::Counter => &self.counter,
        }
    }
}

/// Counts the mutations of a batch.
#[derive(Default)]
pub(super) struct BatchSize<'a> {
    bytes: usize,
    /// Partitions of tables.
    partitions: BTreeSet<(&'a str, &'a str, &'a [u8])>,
    /// Those among them with a static row.
    with_static_row: BTreeSet<(&'a str, &'a str, &'a [u8])>,
    with_ranges: BTreeSet<(&'a str, &'a str, &'a [u8])>,
}

impl<'a> BatchSize<'a> {
    /// Adds a mutation of the table.
    pub(super) fn add(&mut self, table: &'a Table, mutation: &Mutation<'a>) {
        let partition = (&*table.keyspace, &*table.name, mutation.key);
        self.partitions.insert(partition);
        for item in mutation.items() {
            self.bytes += match item {
                MutationItem::Partition(_) => 0,
                MutationItem::StaticRow(row) => {
                    self.with_static_row.insert(partition);
                    row_bytes(table, row)
                }
                MutationItem::Row { clustering, row } => values(clustering) + row_bytes(table, row),
                MutationItem::Range(RangeTombstone { start, end, .. }) => {
                    self.with_ranges.insert(partition);
                    RANGE_BYTES + values(&start.prefix) + values(&end.prefix)
                }
            };
        }
    }

    /// Counts the partitions of the batch.
    pub(super) fn record(&self, kind: BatchKind, counts: &BatchPartitions) {
        counts.of(kind).add(self.partitions.len() as u64, 1);
    }

    /// Whether the batch is about several partitions: one of a single partition is one write, however large.
    fn is_of_several(&self) -> bool {
        let names = self.partitions.iter().map(|(keyspace, _, key)| (keyspace, key));
        let mut names = names.inspect(|_| preempt::point());
        let first = names.next();
        names.any(|name| Some(name) != first)
    }

    /// The tables, as Cassandra lists them.
    fn tables(&self) -> String {
        let names: BTreeSet<_> = self
            .partitions
            .iter()
            .map(|(keyspace, table, _)| (keyspace, table))
            .inspect(|_| preempt::point())
            .collect();
        let names: Vec<String> = names
            .into_iter()
            .map(|(keyspace, table)| format!("{keyspace}.{table}"))
            .collect();
        format!("[{}]", names.join(", "))
    }

    /// What the client is to be warned of, in Cassandra's words.
    ///
    /// # Errors
    /// When there are more bytes than the limit.
    pub(super) fn check(&self, kind: BatchKind, limits: BatchGuardrails) -> Result<Vec<String>, QueryError> {
        if !self.is_of_several() {
            return Ok(Vec::new());
        }
        let bytes = self.bytes() as u64;
        if let Some(max) = limits.bytes.fail.filter(|max| bytes > *max) {
            return Err(QueryError::invalid(format!(
                "Batch too large: it has {bytes} bytes, and batch_size_fail_threshold is {max}"
            )));
        }
        let mut warnings = Vec::new();
        if let Some(max) = limits.bytes.warn.filter(|max| bytes > *max) {
            warnings.push(format!(
                "Batch for {} is of size {bytes}, exceeding specified threshold of {max} by {}.",
                self.tables(),
                bytes - max
            ));
        }
        // Of the same key in two tables Cassandra counts one.
        let keys = || {
            let keys = self.partitions.iter().map(|(_, _, key)| key);
            let keys: BTreeSet<_> = keys.inspect(|_| preempt::point()).collect();
            keys.len() as u64
        };
        if kind != BatchKind::Logged
            && let Some(max) = limits.unlogged_partitions
            && self.partitions.len() as u64 > max
            && keys() > max
        {
            let tables = self.tables();
            let plural = if tables.contains(',') { "s" } else { "" };
            warnings.push(format!(
                "Unlogged batch covering {} partitions detected against table{plural} {tables}. You should use a logged batch for atomicity, or \
                 asynchronous writes for performance.",
                keys()
            ));
        }
        Ok(warnings)
    }

    /// The bytes of all that was added.
    fn bytes(&self) -> usize {
        let empty_static_rows = self.partitions.len() - self.with_static_row.len();
        self.bytes
            + self.partitions.len() * PARTITION_BYTES
            + empty_static_rows * ROW_BYTES
            + self.with_ranges.len() * RANGES_BYTES
    }
}

fn values(clustering: &[u8]) -> usize {
    components(clustering).flatten().map(<[u8]>::len).sum()
}

fn row_bytes(table: &Table, row: &[u8]) -> usize {
    let Some(row) = RowView::new(row) else { return 0 };
    let expires = row.marker.is_some_and(|marker| marker.ttl > 0);
    let columns = row.columns(&table.layout).map(|(_, column)| match column {
        Column::Simple(cell) => CELL_BYTES + cell.value.len(),
        Column::Complex(collection) => {
            let elements = collection.elements();
            let bytes = elements.map(|(path, cell)| CELL_BYTES + path.len() + cell.value.len());
            COLLECTION_BYTES + bytes.sum::<usize>()
        }
    });
    ROW_BYTES + if expires { EXPIRY_BYTES } else { 0 } + columns.sum::<usize>()
}
