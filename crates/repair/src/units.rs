//! What replicas compare: the units of a partition and their hashes.
//!
//! A unit is the deletion of a partition, its static row, a row, or a range tombstone. Its hash is over the partition key, the unit's place, and what counts of it:
//!
//! - the cells, elements and row markers that live at the second of the repair, with their timestamps, expiries and values;
//! - the deletions that hide nothing else of the partition any more and that no replica may have purged yet, with their timestamps. A cell or a marker that has
//!   expired is such a deletion, made when it was written.
//!
//! Cells of dropped columns do not count. This is the rule by which replicas agree on a read (docs/dev/replication.md), so a replica that has purged what another
//! has not is equal to it, and so is one that was compacted.
//!
//! A repair that marks sstables compares everything as it was written ([`Times::EXACT`]): what lives, what expired, and when deletions were made.
//!
//! A range tombstone is one unit from where it begins to where it ends, however blocks cut it. The hash of several units is the sum of their hashes, so it does
//! not depend on blocks either.

use std::ops::Range;
use std::sync::Arc;

use mutation::{Bound, Cell, Column, Liveness, PartitionBlock, RangeTombstone, RangeTombstoneList, RowView, Tombstone};
use schema::Table;
use stdx::planted::{self, Bug};
use stdx::vint;
use types::token::murmur3_x64_128;

/// The second of a repair, and that before which deletions do not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Times {
    pub(crate) now: u32,
    pub(crate) gc_before: u32,
}

impl Times {
    /// Of a repair of a table.
    pub(crate) fn new(table: &Table, now: u32) -> Self {
        Self {
            now,
            gc_before: table.options.compared_from(now),
        }
    }

    /// Of a repair that marks sstables: everything counts as it was written.
    pub(crate) const EXACT: Self = Self { now: 0, gc_before: 0 };

    /// Whether deletions differ that were made at other times and delete the same.
    fn is_exact(self) -> bool {
        self == Self::EXACT
    }

    fn are_same(self, a: Tombstone, b: Tombstone) -> bool {
        a.timestamp == b.timestamp && (!self.is_exact() || a.deletion_time == b.deletion_time)
    }

    fn counts(self, tombstone: Tombstone) -> bool {
        !tombstone.is_none() && tombstone.deletion_time >= self.gc_before
    }
}

/// A unit of a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    /// The deletion of the partition.
    Deletion,
    /// The static row.
    Static,
    /// The row with this number.
    Row(usize),
    /// The range tombstones with these numbers, which are one. Of several blocks: those of the last block.
    Range(Range<usize>),
}

/// What is known of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hash {
    /// Over what counts of it.
    pub(crate) hash: u128,
    /// Whether it has deletions that do not count.
    pub(crate) is_partly_hidden: bool,
}

const DELETION: u8 = 1;
const STATIC: u8 = 2;
const ROW: u8 = 3;
const RANGE: u8 = 4;
const MARKER: u8 = 5;
const SIMPLE: u8 = 6;
const COMPLEX: u8 = 7;
const ELEMENT: u8 = 8;
const DELETED: u8 = 9;
const LIVING: u8 = 10;
const EXPIRED_MARKER: u8 = 11;

/// A range tombstone of which more may follow.
struct OpenRange {
    start: Bound,
    end: Bound,
    tombstone: Tombstone,
    numbers: Range<usize>,
}

/// Hashes the units of blocks that come in the order of the table.
pub(crate) struct Hasher {
    table: Arc<Table>,
    times: Times,
    /// The partition key, then what is being hashed.
    material: Vec<u8>,
    /// Where the key ends.
    head: usize,
    range: Option<OpenRange>,
    /// Whether what is being hashed has deletions that do not count.
    is_partly_hidden: bool,
    /// Bytes hashed since the start.
    pub(crate) bytes: usize,
}

impl Hasher {
    pub(crate) fn new(table: Arc<Table>, times: Times) -> Self {
        Self {
            table,
            times,
            material: Vec::new(),
            head: 0,
            range: None,
            is_partly_hidden: false,
            bytes: 0,
        }
    }

    /// Calls `unit` with each unit of a block and its hash. With `begins`, the block has the deletion and the static row of its partition. The last range tombstone
    /// comes with the next block of another place, or with [`Hasher::end`].
    pub(crate) fn add(&mut self, block: &PartitionBlock, begins: bool, unit: &mut impl FnMut(Unit, Hash)) {
        let table = self.table.clone();
        if begins {
            self.end(unit);
        }
        self.material.clear();
        self.sized(block.key());
        self.head = self.material.len();
        if begins {
            self.restart(DELETION);
            if self.deletion(block.tombstone, Tombstone::NONE) {
                unit(Unit::Deletion, self.hash());
            }
            if let Some(row) = block.static_row() {
                self.restart(STATIC);
                if self.row(&table, row, block.tombstone) {
                    unit(Unit::Static, self.hash());
                }
            }
        }
        let ranges = RangeTombstoneList::from_sorted(block.range_tombstones.clone());
        for (number, (clustering, row)) in block.rows().enumerate() {
            let covering = match ranges.is_empty() {
                true => block.tombstone,
                false => block
                    .tombstone
                    .merge(ranges.covering(&table.clustering_order, clustering)),
            };
            self.restart(ROW);
            self.sized(clustering);
            if self.row(&table, row, covering) {
                unit(Unit::Row(number), self.hash());
            }
        }
        for (number, range) in block.range_tombstones.iter().enumerate() {
            if range.tombstone.supersedes(block.tombstone) && self.times.counts(range.tombstone) {
                self.add_range(range, number, unit);
            }
        }
    }

    fn add_range(&mut self, range: &RangeTombstone, number: usize, unit: &mut impl FnMut(Unit, Hash)) {
        if planted::is_planted(Bug::UncomparedRanges) {
            return;
        }
        let order = self.table.clustering_order.clone();
        if let Some(open) = &mut self.range
            && self.times.are_same(open.tombstone, range.tombstone)
            && range.start.compare(&order, &open.end).is_le()
        {
            open.end = range.end.clone();
            open.numbers = open.numbers.start.min(number)..number + 1;
            return;
        }
        self.end(unit);
        self.range = Some(OpenRange {
            start: range.start.clone(),
            end: range.end.clone(),
            tombstone: range.tombstone,
            numbers: number..number + 1,
        });
    }

    /// Ends the last range tombstone: what comes next does not go on with it.
    pub(crate) fn end(&mut self, unit: &mut impl FnMut(Unit, Hash)) {
        let Some(range) = self.range.take() else { return };
        self.restart(RANGE);
        for bound in [&range.start, &range.end] {
            self.material.push(bound.kind as u8);
            self.sized(&bound.prefix);
        }
        self.tombstone(range.tombstone);
        unit(Unit::Range(range.numbers), self.hash());
    }

    fn restart(&mut self, kind: u8) {
        self.is_partly_hidden = false;
        self.material.truncate(self.head);
        self.material.push(kind);
    }

    fn hash(&mut self) -> Hash {
        self.bytes += self.material.len();
        let (low, high) = murmur3_x64_128(&self.material, 0);
        Hash {
            hash: u128::from(high) << 64 | u128::from(low),
            is_partly_hidden: self.is_partly_hidden,
        }
    }

    fn sized(&mut self, bytes: &[u8]) {
        vint::put_unsigned(&mut self.material, bytes.len() as u64);
        self.material.extend_from_slice(bytes);
    }

    /// Adds a deletion that counts and is stronger than what covers its place. Whether it is.
    fn deletion(&mut self, tombstone: Tombstone, covering: Tombstone) -> bool {
        if !tombstone.supersedes(covering) {
            return false;
        }
        let counts = self.times.counts(tombstone);
        self.is_partly_hidden |= !counts;
        if counts {
            self.material.push(DELETED);
            self.tombstone(tombstone);
        }
        counts
    }

    fn tombstone(&mut self, tombstone: Tombstone) {
        self.material.extend_from_slice(&tombstone.timestamp.to_le_bytes());
        if self.times.is_exact() {
            self.material.extend_from_slice(&tombstone.deletion_time.to_le_bytes());
        }
    }

    /// Adds what counts of a row under the deletions that cover it. Whether anything does.
    fn row(&mut self, table: &Table, row: RowView<'_>, covering: Tombstone) -> bool {
        let before = self.material.len();
        self.deletion(row.tombstone, covering);
        let deletion = covering.merge(row.tombstone);
        if let Some(marker) = row.marker.filter(|marker| !deletion.covers(marker.timestamp)) {
            self.marker(marker);
        }
        for (id, column) in row.columns(&table.layout) {
            if table.layout.is_dropped(id) {
                continue;
            }
            let start = self.material.len();
            let is_simple = matches!(column, Column::Simple(_));
            self.material.push(if is_simple { SIMPLE } else { COMPLEX });
            vint::put_unsigned(&mut self.material, id as u64);
            let counts = match column {
                Column::Simple(cell) => self.cell(&cell, deletion),
                Column::Complex(complex) => {
                    let mut counts = self.deletion(complex.tombstone, deletion);
                    let deletion = deletion.merge(complex.tombstone);
                    for (path, cell) in complex.elements() {
                        let start = self.material.len();
                        self.material.push(ELEMENT);
                        self.sized(path);
                        match self.cell(&cell, deletion) {
                            true => counts = true,
                            false => self.material.truncate(start),
                        }
                    }
                    counts
                }
            };
            if !counts {
                self.material.truncate(start);
            }
        }
        self.material.len() > before
    }

    fn marker(&mut self, marker: Liveness) {
        if marker.is_live(self.times.now) {
            self.material.push(MARKER);
            self.material.extend_from_slice(&marker.timestamp.to_le_bytes());
            self.life(marker.ttl, marker.expiry);
            return;
        }
        let tombstone = Tombstone {
            timestamp: marker.timestamp,
            deletion_time: marker.expiry.saturating_sub(marker.ttl),
        };
        let start = self.material.len();
        // The same deletion by itself is another thing: it also hides cells.
        self.material.push(EXPIRED_MARKER);
        if !self.deletion(tombstone, Tombstone::NONE) {
            self.material.truncate(start);
        }
    }

    /// Adds a cell that lives, or its deletion. Whether either counts.
    fn cell(&mut self, cell: &Cell<'_>, deletion: Tombstone) -> bool {
        if deletion.covers(cell.timestamp) {
            return false;
        }
        if cell.is_live(self.times.now) {
            self.material.push(LIVING);
            self.material.extend_from_slice(&cell.timestamp.to_le_bytes());
            self.life(cell.ttl, cell.deletion_time);
            self.sized(cell.value);
            return true;
        }
        let written_at = match cell.dead {
            true => cell.deletion_time,
            false => cell.deletion_time.saturating_sub(cell.ttl),
        };
        let tombstone = Tombstone {
            timestamp: cell.timestamp,
            deletion_time: written_at,
        };
        self.deletion(tombstone, Tombstone::NONE)
    }

    fn life(&mut self, ttl: u32, expiry: u32) {
        self.material.push(u8::from(ttl > 0));
        if ttl > 0 {
            self.material.extend_from_slice(&ttl.to_le_bytes());
            self.material.extend_from_slice(&expiry.to_le_bytes());
        }
    }
}
