//! How large a partition and rows of it are already, for writes to tables that refuse them where that is too much
//! (`large_data_guardrails_enabled`).
//!
//! The lists of the sstables are asked (`sstable/src/write/large.rs`), which are in memory, and the memtables for the
//! rows; no file is read. Of several sources the largest figure counts: what several sstables have of one partition may
//! be versions of the same rows.

use std::collections::{BTreeMap, BTreeSet};

use mutation::row::{Column, RowView};
use schema::Table;
use sstable::{LargeKind, LargeThresholds, large_thresholds};
use types::Token;
use types::token::KeyHash;

use crate::tablets::tablet::{TableStore, Version};

/// A partition that is to be written to, and which of its rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Touched {
    /// The partition's.
    pub token: Token,
    /// Serialised partition key.
    pub key: Vec<u8>,
    /// Serialised clustering keys; an empty one is that of the static row.
    pub rows: BTreeSet<Vec<u8>>,
}

/// How large a partition is, as far as that is more than a threshold.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Measured {
    /// Bytes of the partition in its largest sstable.
    pub bytes: u64,
    /// Rows of the partition in the sstable that has most.
    pub rows: u64,
    /// Those of [`Touched::rows`] that are large or have something large.
    pub of_rows: BTreeMap<Vec<u8>, MeasuredRow>,
}

/// How large a row is, as far as that is more than a threshold.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct MeasuredRow {
    /// Bytes of the row.
    pub bytes: u64,
    /// Elements of its collections, by column id.
    pub elements: BTreeMap<u16, u64>,
}

impl Measured {
    fn row(&mut self, clustering: &[u8]) -> &mut MeasuredRow {
        self.of_rows.entry(clustering.to_vec()).or_default()
    }
}

impl MeasuredRow {
    /// Takes over what another source says of the row.
    fn raise(&mut self, id: u16, elements: u64) {
        let known = self.elements.entry(id).or_default();
        *known = elements.max(*known);
    }
}

impl TableStore {
    /// What this shard's sstables and memtables say of a partition.
    #[must_use]
    pub fn measure(&self, touched: &Touched) -> Measured {
        let mut measured = Measured::default();
        if let Some(tablet) = self.tablet(touched.token) {
            let table = self.table();
            tablet.with_version(|version| {
                of_sstables(&table, version, touched, &mut measured);
                of_memtables(&table, version, touched, &mut measured);
            });
        }
        measured
    }
}

fn of_sstables(table: &Table, version: &Version, touched: &Touched, measured: &mut Measured) {
    let hash = KeyHash::of(&touched.key);
    let listed = version
        .sstables
        .iter()
        .filter(|reader| !reader.meta().large.entries.is_empty());
    for reader in listed.filter(|reader| reader.may_contain(hash)) {
        let entries = reader.meta().large.entries.iter();
        for entry in entries.filter(|entry| *entry.key == *touched.key) {
            if let LargeKind::Partition { rows, .. } = entry.kind {
                measured.bytes = entry.bytes.max(measured.bytes);
                measured.rows = rows.max(measured.rows);
                continue;
            }
            if !touched.rows.contains(&*entry.clustering) {
                continue;
            }
            let row = measured.row(&entry.clustering);
            match &entry.kind {
                LargeKind::Cell { column, elements } if *elements > 0 => {
                    if let Some(column) = table.column(column) {
                        row.raise(column.id.0, *elements);
                    }
                }
                LargeKind::Row => row.bytes = entry.bytes.max(row.bytes),
                LargeKind::Cell { .. } | LargeKind::Partition { .. } => {}
            }
        }
    }
}

fn of_memtables(table: &Table, version: &Version, touched: &Touched, measured: &mut Measured) {
    let thresholds = large_thresholds(table);
    // An element takes a byte at least.
    let bytes_min = thresholds.row_bytes.min(thresholds.elements);
    let active = version.active.borrow();
    let frozen = version
        .frozen
        .iter()
        .filter(|frozen| frozen.range.contains(touched.token));
    let frozen = frozen.map(|frozen| &*frozen.memtable);
    for memtable in frozen.chain(std::iter::once(&*active)) {
        let Some(partition) = memtable.partition(touched.token, &touched.key) else {
            continue;
        };
        for clustering in &touched.rows {
            let is_static = clustering.is_empty() && table.clustering().next().is_some();
            let row = if is_static {
                partition.static_row()
            } else {
                partition.row(clustering)
            };
            if let Some(row) = row.filter(|row| row.bytes_len() as u64 > bytes_min) {
                let mut buffer = Vec::new();
                of_row(table, clustering, &row.view(&mut buffer), thresholds, measured);
            }
        }
    }
}

fn of_row(table: &Table, clustering: &[u8], row: &RowView<'_>, thresholds: LargeThresholds, measured: &mut Measured) {
    let bytes = row.bytes().len() as u64;
    if bytes > thresholds.row_bytes {
        let known = &mut measured.row(clustering).bytes;
        *known = bytes.max(*known);
    }
    for (id, column) in row.columns(&table.layout) {
        if let Column::Complex(complex) = column
            && complex.count as u64 > thresholds.elements
        {
            let id = u16::try_from(id).unwrap_or(u16::MAX);
            measured.row(clustering).raise(id, complex.count as u64);
        }
    }
}
