//! Partitions, rows and cells that are larger than is good for reads and compactions: noticed when they are written,
//! listed with their sstable.
//!
//! An sstable lists them at the end of its Checksums.db, ceto's own component:
//!
//! ```text
//! u64 seconds since the epoch when it was written, u32 n, n x {
//!     u8 kind: 1 partition, 2 row, 3 cell
//!     u64 bytes; u64 rows, u64 range tombstones and u64 dead rows of a partition; u64 elements of a cell
//!     u32 length and partition key, u32 length and clustering key, u16 length and name of the column
//! }
//! ```
//!
//! Thresholds are those of the node, and change while it runs. Where a table refuses writes to what is too large
//! (`large_data_guardrails_enabled`), what is beyond the limit of that is listed too, however high the threshold is,
//! because the list is what such writes are compared with. columns and defaults of the lists are ScyllaDB's
//! ("Troubleshooting large partitions tables" and "large rows and large cells tables" of its documentation).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mutation::{Column, RowView};
use schema::Table;

use crate::error::Damage;
use stdx::bytes::Reader as Bytes;

/// Above which size something is large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LargeThresholds {
    /// Bytes of a partition.
    pub partition_bytes: u64,
    /// Rows of a partition.
    pub rows: u64,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// Bytes of a cell, all elements of a collection together.
    pub cell_bytes: u64,
    /// Elements of a collection.
    pub elements: u64,
}

impl Default for LargeThresholds {
    fn default() -> Self {
        Self {
            partition_bytes: 1000 << 20,
            rows: 100_000,
            row_bytes: 10 << 20,
            cell_bytes: 1 << 20,
            elements: 10_000,
        }
    }
}

/// What was written so far by this process that was large.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LargeCounts {
    /// Partitions.
    pub partitions: u64,
    /// Rows.
    pub rows: u64,
    /// Cells.
    pub cells: u64,
}

static THRESHOLDS: [AtomicU64; 5] = [
    AtomicU64::new(1000 << 20),
    AtomicU64::new(100_000),
    AtomicU64::new(10 << 20),
    AtomicU64::new(1 << 20),
    AtomicU64::new(10_000),
];
/// Beyond which writes of tables that guard themselves are refused.
static LIMITS: [AtomicU64; 5] = [const { AtomicU64::new(u64::MAX) }; 5];
static COUNTS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// Sets the thresholds of the sstables that this process begins to write from here on, and the limits beyond which
/// writes are refused.
pub fn set_large_thresholds(to: LargeThresholds, limits: LargeThresholds) {
    for (statics, to) in [(&THRESHOLDS, to), (&LIMITS, limits)] {
        let values = [to.partition_bytes, to.rows, to.row_bytes, to.cell_bytes, to.elements];
        for (threshold, value) in statics.iter().zip(values) {
            threshold.store(value, Ordering::Relaxed);
        }
    }
}

/// The thresholds of this process: what is beyond is listed with its sstable. `of` says of which table, for those that
/// guard themselves have lower ones where the limits are lower.
#[must_use]
pub fn large_thresholds(of: &Table) -> LargeThresholds {
    let mut values = THRESHOLDS.each_ref().map(|threshold| threshold.load(Ordering::Relaxed));
    if of.options.guards_large_data {
        for (value, limit) in values.iter_mut().zip(&LIMITS) {
            *value = limit.load(Ordering::Relaxed).min(*value);
        }
    }
    let [partition_bytes, rows, row_bytes, cell_bytes, elements] = values;
    LargeThresholds {
        partition_bytes,
        rows,
        row_bytes,
        cell_bytes,
        elements,
    }
}

/// How often this process has written something large.
#[must_use]
pub fn large_counts() -> LargeCounts {
    let [partitions, rows, cells] = COUNTS.each_ref().map(|count| count.load(Ordering::Relaxed));
    LargeCounts {
        partitions,
        rows,
        cells,
    }
}

/// What is large.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LargeKind {
    /// A partition, by its bytes or its rows.
    Partition {
        /// How many rows it has.
        rows: u64,
        /// How many range tombstones.
        range_tombstones: u64,
        /// How many of the rows are deleted as a whole.
        dead_rows: u64,
    },
    /// A row; the static row has no clustering key.
    Row,
    /// A cell, or all elements of a collection.
    Cell {
        /// The name of its column.
        column: String,
        /// How many elements; 0 where it is no collection.
        elements: u64,
    },
}

/// Something large, and where it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LargeEntry {
    /// What it is.
    pub kind: LargeKind,
    /// Its bytes in Data.db, before compression.
    pub bytes: u64,
    /// Serialised partition key.
    pub key: Box<[u8]>,
    /// Serialised clustering key; empty for a partition and a static row.
    pub clustering: Box<[u8]>,
}

/// What is large in an sstable.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LargeData {
    /// When the sstable was written, seconds since the epoch; 0 of one that another database wrote.
    pub written_at: u64,
    /// At most [`ENTRIES_MAX`] of each kind.
    pub entries: Arc<[LargeEntry]>,
}

/// Of each kind an sstable lists so many at most, those that it came upon first.
pub const ENTRIES_MAX: usize = 1_000;
/// And of all kinds so many bytes of keys: the lists of open sstables are in memory.
const KEY_BYTES_MAX: usize = 256 << 10;

impl LargeData {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let put = |out: &mut Vec<u8>, bytes: &[u8]| {
            out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
            out.extend_from_slice(bytes);
        };
        out.extend_from_slice(&self.written_at.to_be_bytes());
        out.extend_from_slice(&u32::try_from(self.entries.len()).unwrap_or(0).to_be_bytes());
        for entry in &*self.entries {
            let (kind, counts, column) = match &entry.kind {
                LargeKind::Partition {
                    rows,
                    range_tombstones,
                    dead_rows,
                } => (1, vec![*rows, *range_tombstones, *dead_rows], ""),
                LargeKind::Row => (2, Vec::new(), ""),
                LargeKind::Cell { column, elements } => (3, vec![*elements], &column[..]),
            };
            out.push(kind);
            out.extend_from_slice(&entry.bytes.to_be_bytes());
            counts
                .iter()
                .for_each(|count| out.extend_from_slice(&count.to_be_bytes()));
            put(out, &entry.key);
            put(out, &entry.clustering);
            put(out, column.as_bytes());
        }
    }

    pub(crate) fn decode(r: &mut Bytes<'_>) -> Result<Self, Damage> {
        let written_at = r.get_u64()?;
        let mut entries = Vec::new();
        for _ in 0..r.get_u32()? {
            let at = r.rest().len();
            let kind = r.get_u8()?;
            let bytes = r.get_u64()?;
            let mut kind = match kind {
                1 => LargeKind::Partition {
                    rows: r.get_u64()?,
                    range_tombstones: r.get_u64()?,
                    dead_rows: r.get_u64()?,
                },
                2 => LargeKind::Row,
                3 => LargeKind::Cell {
                    elements: r.get_u64()?,
                    column: String::new(),
                },
                _ => return Err(Damage::new(at, "the kind of something large")),
            };
            let mut sized = || {
                let len = usize::try_from(r.get_u32()?).unwrap_or(usize::MAX);
                r.get_slice(len)
            };
            let (key, clustering, name) = (sized()?, sized()?, sized()?);
            if let LargeKind::Cell { column, .. } = &mut kind {
                *column = String::from_utf8_lossy(name).into_owned();
            }
            entries.push(LargeEntry {
                kind,
                bytes,
                key: key.into(),
                clustering: clustering.into(),
            });
        }
        Ok(Self {
            written_at,
            entries: entries.into(),
        })
    }
}

/// What a writer has come upon.
pub(crate) struct Finder {
    thresholds: LargeThresholds,
    /// No row of fewer bytes has anything large.
    row_bytes_min: u64,
    found: [Vec<LargeEntry>; 3],
    key_bytes: usize,
}

impl Finder {
    pub(crate) fn new(table: &Table) -> Self {
        let thresholds = large_thresholds(table);
        Self {
            // An element takes a byte at least.
            row_bytes_min: thresholds.row_bytes.min(thresholds.cell_bytes).min(thresholds.elements),
            thresholds,
            found: Default::default(),
            key_bytes: 0,
        }
    }

    fn note(&mut self, place: usize, entry: LargeEntry) {
        COUNTS[place].fetch_add(1, Ordering::Relaxed);
        let key_bytes = self.key_bytes + entry.key.len() + entry.clustering.len();
        if self.found[place].len() < ENTRIES_MAX && key_bytes <= KEY_BYTES_MAX {
            self.key_bytes = key_bytes;
            self.found[place].push(entry);
        }
    }

    /// A row of so many bytes was written.
    #[inline]
    pub(crate) fn row(&mut self, table: &Table, key: &[u8], clustering: &[u8], row: &RowView<'_>, bytes: u64) {
        if bytes > self.row_bytes_min {
            self.look_at(table, key, clustering, row, bytes);
        }
    }

    #[cold]
    fn look_at(&mut self, table: &Table, key: &[u8], clustering: &[u8], row: &RowView<'_>, bytes: u64) {
        let entry = |kind, bytes| LargeEntry {
            kind,
            bytes,
            key: key.into(),
            clustering: clustering.into(),
        };
        if bytes > self.thresholds.row_bytes {
            self.note(1, entry(LargeKind::Row, bytes));
        }
        for (id, column) in row.columns(&table.layout) {
            let (bytes, elements) = match &column {
                Column::Simple(cell) => (cell.value.len() as u64, 0),
                Column::Complex(complex) => {
                    let sizes = complex
                        .elements()
                        .map(|(path, cell)| (path.len() + cell.value.len()) as u64);
                    (sizes.sum(), complex.count as u64)
                }
            };
            if bytes > self.thresholds.cell_bytes || elements > self.thresholds.elements {
                let named = table.columns.iter().find(|column| usize::from(column.id.0) == id);
                let column = named.map_or_else(String::new, |column| column.name.clone());
                self.note(2, entry(LargeKind::Cell { column, elements }, bytes));
            }
        }
    }

    /// A partition of so many bytes is complete.
    #[inline]
    pub(crate) fn partition(&mut self, key: &[u8], bytes: u64, kind: LargeKind) {
        let is_large = matches!(kind, LargeKind::Partition { rows, .. } if rows > self.thresholds.rows);
        if is_large || bytes > self.thresholds.partition_bytes {
            self.note(
                0,
                LargeEntry {
                    kind,
                    bytes,
                    key: key.into(),
                    clustering: Box::default(),
                },
            );
        }
    }

    /// What it has found; says so in the log.
    pub(crate) fn finish(self, table: &Table, name: &str, written_at: u64) -> LargeData {
        for (found, what) in self.found.iter().zip(["partitions", "rows", "cells"]) {
            if let Some(largest) = found.iter().max_by_key(|entry| entry.bytes) {
                log::warn!(
                    "{}.{}: the sstable {name} has {} large {what}, one of {} bytes; system.large_{what} lists them",
                    table.keyspace,
                    table.name,
                    found.len(),
                    largest.bytes
                );
            }
        }
        LargeData {
            written_at,
            entries: self.found.into_iter().flatten().collect(),
        }
    }
}
