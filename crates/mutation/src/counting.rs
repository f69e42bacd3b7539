//! What counts of a partition where replicas compare what they have: in digests of reads and in hashes of repairs.
//!
//! - The cells, elements and row markers that live at a second, with their timestamps, expiries and values.
//! - The deletions that hide nothing else of the partition any more and that no replica may have purged yet. A cell or
//!   a marker that has expired is such a deletion, made when it was written.
//!
//! Cells of dropped columns do not count. So a replica that has purged what another one has not is equal to it, and so
//! is one that was compacted.
//!
//! Exact counting is for comparisons of parts of replicas, which must stay equal whatever they are merged with later
//! (docs/dev/incremental-repair.md): what expired counts as it was written, until it may be purged, and the second of a
//! deletion counts.
//!
//! This module says what counts, in which order; a [`Material`] says with which bytes.

use schema::{RowLayout, Table};

use crate::row::{Cell, Column, Liveness, RowView};
use crate::{RangeTombstone, Tombstone};

/// Which cells and deletions count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counting {
    /// What has expired by this second counts as a deletion.
    pub now: u32,
    /// Deletions made before this second do not count: a replica may have purged them.
    pub gc_before: u32,
    /// Whether what expired counts as it was written, and when deletions were made.
    pub is_exact: bool,
}

/// Takes what counts.
pub trait Material {
    /// A deletion.
    fn deletion(&mut self, tombstone: Tombstone);

    /// A deletion that does not count.
    fn hidden_deletion(&mut self) {}

    /// The row marker.
    fn marker(&mut self, marker: Liveness);

    /// A row marker that has expired. It hides older markers and no cells, unlike the same deletion of the row.
    fn expired_marker(&mut self, tombstone: Tombstone);

    /// The cells of a column follow.
    fn column(&mut self, id: usize, is_simple: bool);

    /// The cell of an element follows.
    fn element(&mut self, path: &[u8]);

    /// A cell with its value.
    fn cell(&mut self, cell: &Cell<'_>);

    /// The only cell of a column that has one.
    #[inline]
    fn simple_cell(&mut self, id: usize, cell: &Cell<'_>) {
        self.column(id, true);
        self.cell(cell);
    }

    /// How much was taken.
    fn taken(&self) -> usize;

    /// Gives back what was taken beyond that: nothing that counts followed.
    fn give_back(&mut self, taken: usize);
}

impl Counting {
    /// Of a read, or of a repair that marks nothing, of a table at a second.
    #[must_use]
    pub fn of_table(table: &Table, now: u32) -> Self {
        Self {
            now,
            gc_before: table.options.compared_from(now),
            is_exact: false,
        }
    }

    /// Everything counts as it was written.
    pub const EVERYTHING: Self = Self {
        now: 0,
        gc_before: 0,
        is_exact: true,
    };

    /// Whether a deletion counts, if nothing covers it.
    #[inline]
    #[must_use]
    pub fn counts(self, tombstone: Tombstone) -> bool {
        !tombstone.is_none() && tombstone.deletion_time >= self.gc_before
    }

    /// Whether a range tombstone counts under the deletion of its partition.
    #[inline]
    #[must_use]
    pub fn counts_range(self, range: &RangeTombstone, partition: Tombstone) -> bool {
        range.tombstone.supersedes(partition) && self.counts(range.tombstone)
    }

    /// Whether two deletions of the same are no difference.
    #[must_use]
    pub fn are_same(self, a: Tombstone, b: Tombstone) -> bool {
        a.timestamp == b.timestamp && (!self.is_exact || a.deletion_time == b.deletion_time)
    }

    /// Gives a deletion, if it counts and is stronger than what covers its place. Whether it does.
    #[inline]
    pub fn deletion(self, tombstone: Tombstone, covering: Tombstone, material: &mut impl Material) -> bool {
        if !tombstone.supersedes(covering) {
            return false;
        }
        let counts = self.counts(tombstone);
        if counts {
            material.deletion(tombstone)
        } else {
            material.hidden_deletion()
        }
        counts
    }

    /// Gives what counts of a row under the deletions that cover it. Whether anything does.
    #[inline]
    pub fn row(self, layout: &RowLayout, row: RowView<'_>, covering: Tombstone, material: &mut impl Material) -> bool {
        let before = material.taken();
        self.deletion(row.tombstone, covering, material);
        let deletion = covering.merge(row.tombstone);
        if let Some(marker) = row.marker.filter(|marker| !deletion.covers(marker.timestamp)) {
            self.marker(marker, material);
        }
        for (id, column) in row.columns(layout) {
            if layout.is_dropped(id) {
                continue;
            }
            match column {
                Column::Simple(cell) if !deletion.covers(cell.timestamp) && self.counts_as_written(&cell) => {
                    material.simple_cell(id, &cell);
                }
                Column::Simple(cell) => {
                    let start = material.taken();
                    material.column(id, true);
                    if !self.cell(&cell, deletion, material) {
                        material.give_back(start);
                    }
                }
                Column::Complex(complex) => {
                    let start = material.taken();
                    material.column(id, false);
                    let mut counts = self.deletion(complex.tombstone, deletion, material);
                    let deletion = deletion.merge(complex.tombstone);
                    for (path, cell) in complex.elements() {
                        let start = material.taken();
                        material.element(path);
                        if self.cell(&cell, deletion, material) {
                            counts = true
                        } else {
                            material.give_back(start)
                        }
                    }
                    if !counts {
                        material.give_back(start);
                    }
                }
            }
        }
        material.taken() > before
    }

    fn marker(self, marker: Liveness, material: &mut impl Material) {
        let tombstone = Tombstone {
            timestamp: marker.timestamp,
            deletion_time: marker.written_second(),
        };
        if marker.is_live(self.now) || self.is_exact && self.counts(tombstone) {
            material.marker(marker);
        } else if self.counts(tombstone) {
            material.expired_marker(tombstone);
        } else {
            material.hidden_deletion();
        }
    }

    /// Whether a cell that nothing covers counts with its value.
    #[inline]
    fn counts_as_written(self, cell: &Cell<'_>) -> bool {
        cell.is_live(self.now) || self.is_exact && !cell.dead && self.counts(deletion_of(cell))
    }

    /// Gives a cell, or its deletion. Whether either counts.
    #[inline]
    fn cell(self, cell: &Cell<'_>, deletion: Tombstone, material: &mut impl Material) -> bool {
        if deletion.covers(cell.timestamp) {
            return false;
        }
        if self.counts_as_written(cell) {
            material.cell(cell);
            return true;
        }
        self.deletion(deletion_of(cell), Tombstone::NONE, material)
    }
}

/// The deletion that a cell is which does not live: one that has expired was deleted when it was written.
fn deletion_of(cell: &Cell<'_>) -> Tombstone {
    Tombstone {
        timestamp: cell.timestamp,
        deletion_time: cell.deleted_second(),
    }
}
