//! What tombstones and time hide, and what may be forgotten.
//!
//! A reader sees the cells that no tombstone covers and that have not expired. A compaction writes the same, but keeps
//! the tombstones themselves until they can have nothing left to cover: their deletion time is before `gc_before`, and
//! no data outside the compaction is as old as they are (`max_purgeable_timestamp`), and no replica may have missed
//! them (`held`). An expired cell becomes a tombstone, counted as deleted when it was written (expiry minus ttl), as
//! Cassandra does, or with `keeps_expired` stays until that tombstone could be forgotten; an expired row marker is kept
//! as long.

use std::ops::RangeInclusive;

use schema::{ClusteringOrder, RowLayout};

use crate::Tombstone;
use crate::block::PartitionBlock;
use crate::row::{Cell, Column, Complex, Elements, Liveness, RowBuilder, RowView, Shared, Values, needs_mixed};

/// A row as a reader at `now` sees it under the deletions that cover it.
#[derive(Clone, Copy)]
pub struct LiveRow<'a> {
    view: RowView<'a>,
    layout: &'a RowLayout,
    deletion: Tombstone,
    now: u32,
}

/// A living column of a row.
pub enum LiveColumn<'a> {
    /// A cell that lives.
    Simple(Cell<'a>),
    /// The elements that live; there is at least one.
    Complex(LiveElements<'a>),
}

/// The living elements of a complex column, in path order.
#[derive(Clone)]
pub struct LiveElements<'a> {
    elements: Elements<'a>,
    deletion: Tombstone,
    now: u32,
}

impl<'a> Iterator for LiveElements<'a> {
    type Item = (&'a [u8], Cell<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (deletion, now) = (self.deletion, self.now);
        self.elements
            .find(|(_, c)| c.is_live(now) && !deletion.covers(c.timestamp))
    }
}

impl<'a> LiveRow<'a> {
    /// `deletion` is the strongest of the partition and range tombstones that cover the row; its own is added here.
    #[inline]
    pub fn new(view: RowView<'a>, layout: &'a RowLayout, deletion: Tombstone, now: u32) -> Self {
        Self {
            view,
            layout,
            deletion: deletion.merge(view.tombstone),
            now,
        }
    }

    /// Whether an INSERT keeps the row alive even without a living cell.
    #[inline]
    pub fn has_live_marker(&self) -> bool {
        self.view
            .marker
            .is_some_and(|m| m.is_live(self.now) && !self.deletion.covers(m.timestamp))
    }

    /// The living columns in id order; those of dropped columns are not among them.
    #[inline]
    pub fn columns(self) -> impl Iterator<Item = (usize, LiveColumn<'a>)> {
        self.view
            .columns(self.layout)
            .filter_map(move |(id, column)| match column {
                _ if self.layout.is_dropped(id) => None,
                Column::Simple(c) => {
                    (c.is_live(self.now) && !self.deletion.covers(c.timestamp)).then_some((id, LiveColumn::Simple(c)))
                }
                Column::Complex(c) => {
                    let live = LiveElements {
                        elements: c.elements(),
                        deletion: self.deletion.merge(c.tombstone),
                        now: self.now,
                    };
                    live.clone().next().is_some().then_some((id, LiveColumn::Complex(live)))
                }
            })
    }

    /// The values by column id, if every cell of the row lives and none is of a multi-cell or a dropped column, as in
    /// nearly all rows: for a third of the instructions of [`LiveRow::columns`].
    #[inline]
    pub fn plain_values(self) -> Option<Values<'a>> {
        let is_plain = self.view.is_uniform()
            && self.view.ttl == 0
            && !self.deletion.covers(self.view.timestamp)
            && !self.layout.has_complex()
            && !self.layout.has_dropped();
        is_plain.then(|| self.view.values(self.layout))
    }

    /// Whether a SELECT returns the row.
    pub fn is_live(self) -> bool {
        self.has_live_marker() || self.columns().next().is_some()
    }
}

/// When a tombstone may be forgotten.
#[derive(Clone, Copy, Debug)]
pub struct Purge<'h> {
    /// Seconds since the epoch.
    pub now: u32,
    /// Deletions made before this second are old enough.
    pub gc_before: u32,
    /// Deletions at or above this write timestamp may still cover data elsewhere. `i64::MIN` forgets nothing.
    pub max_purgeable_timestamp: i64,
    /// Deletions made in these seconds are kept, however old.
    pub held: &'h [RangeInclusive<u32>],
    /// Whether what has expired stays as it was written until it is forgotten, instead of becoming a tombstone.
    pub keeps_expired: bool,
}

impl Purge<'static> {
    /// Forgets no tombstone and takes nothing as expired: only what a newer deletion covers goes.
    pub const NOTHING: Self = Self {
        now: 0,
        gc_before: 0,
        max_purgeable_timestamp: i64::MIN,
        held: &[],
        keeps_expired: true,
    };
}

impl Purge<'_> {
    fn forgets(&self, timestamp: i64, deletion_time: u32) -> bool {
        deletion_time < self.gc_before
            && timestamp < self.max_purgeable_timestamp
            && !self.held.iter().any(|span| span.contains(&deletion_time))
    }

    fn keep(&self, t: Tombstone) -> Tombstone {
        if self.forgets(t.timestamp, t.deletion_time) {
            Tombstone::NONE
        } else {
            t
        }
    }

    /// Whether an expired marker may go. Until then it stays as it is: it covers older ones elsewhere, as an expired
    /// cell does.
    fn forgets_marker(&self, m: Liveness) -> bool {
        !m.is_live(self.now) && self.forgets(m.timestamp, m.written_second())
    }

    /// What remains of a cell: itself, its tombstone, or nothing.
    fn cell<'a>(&self, c: Cell<'a>, deletion: Tombstone) -> Option<Cell<'a>> {
        if deletion.covers(c.timestamp) {
            return None;
        }
        if c.is_live(self.now) {
            return Some(c);
        }
        let deleted = if c.dead {
            c
        } else {
            Cell {
                dead: true,
                deletion_time: c.deleted_second(),
                ttl: 0,
                value: &[],
                ..c
            }
        };
        let kept = if self.keeps_expired { c } else { deleted };
        (!self.forgets(c.timestamp, deleted.deletion_time)).then_some(kept)
    }
}

#[derive(Clone)]
struct KeptElements<'a, 'p> {
    elements: Elements<'a>,
    purge: &'p Purge<'p>,
    deletion: Tombstone,
}

impl<'a> Iterator for KeptElements<'a, '_> {
    type Item = (&'a [u8], Cell<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (purge, deletion) = (self.purge, self.deletion);
        self.elements
            .by_ref()
            .find_map(|(path, c)| purge.cell(c, deletion).map(|c| (path, c)))
    }
}

fn kept_complex<'a, 'p>(
    c: &Complex<'a>,
    purge: &'p Purge<'p>,
    deletion: Tombstone,
) -> Option<(Tombstone, KeptElements<'a, 'p>)> {
    let own = if c.tombstone.supersedes(deletion) {
        purge.keep(c.tombstone)
    } else {
        Tombstone::NONE
    };
    let kept = KeptElements {
        elements: c.elements(),
        purge,
        deletion: deletion.merge(c.tombstone),
    };
    (!own.is_none() || kept.clone().next().is_some()).then_some((own, kept))
}

/// Whether a deletion may cover something in a row: a row for which this is false is what [`shadow_row`] would leave of
/// it.
#[inline]
#[must_use]
pub fn may_shadow(layout: &RowLayout, row: RowView<'_>, deletion: Tombstone) -> bool {
    !deletion.is_none() && row.min_timestamp(layout) <= deletion.timestamp
}

/// Appends to `out` what a deletion leaves of a row: cells, markers and tombstones that it covers go. False, and
/// nothing appended, when nothing is left.
///
/// An sstable must not hold both: a reader that does not merge within a file, as Cassandra's `UnfilteredRowIterator`
/// requires, would return what is deleted.
pub fn shadow_row(layout: &RowLayout, row: RowView<'_>, deletion: Tombstone, out: &mut Vec<u8>) -> bool {
    compact_row(layout, row, deletion, &Purge::NOTHING, out)
}

/// Appends what remains of a row to `out`; false (and nothing appended) when nothing does.
pub fn compact_row(
    layout: &RowLayout,
    view: RowView<'_>,
    deletion: Tombstone,
    purge: &Purge<'_>,
    out: &mut Vec<u8>,
) -> bool {
    let covering = deletion.merge(view.tombstone);
    let own = if view.tombstone.supersedes(deletion) {
        purge.keep(view.tombstone)
    } else {
        Tombstone::NONE
    };
    let marker: Option<Liveness> = view
        .marker
        .filter(|m| !covering.covers(m.timestamp) && !purge.forgets_marker(*m));
    // Nothing changes: the common case of a compaction.
    if view.is_uniform()
        && deletion.is_none()
        && !layout.has_complex()
        && (view.ttl == 0 || view.expiry > purge.now)
        && !view.is_empty()
    {
        out.extend_from_slice(view.bytes());
        return true;
    }
    let shared = Shared {
        timestamp: view.timestamp,
        ttl: view.ttl,
        expiry: view.expiry,
    };
    let (mut columns, mut mixed) = (0, false);
    for (id, column) in view.columns(layout) {
        match column {
            Column::Simple(c) => {
                if let Some(c) = purge.cell(c, covering) {
                    columns = id + 1;
                    mixed |= needs_mixed(&c, layout.cell(id), shared.timestamp, shared.ttl, shared.expiry);
                }
            }
            Column::Complex(c) => {
                if kept_complex(&c, purge, covering).is_some() {
                    columns = id + 1;
                }
            }
        }
    }
    if columns == 0 && marker.is_none() && own.is_none() {
        return false;
    }
    let mut builder = RowBuilder::begin(out, layout, shared, marker, own, mixed, columns);
    for (id, column) in view.columns(layout) {
        match column {
            Column::Simple(c) => {
                if let Some(c) = purge.cell(c, covering) {
                    builder.cell(id, &c);
                }
            }
            Column::Complex(c) => {
                if let Some((own, kept)) = kept_complex(&c, purge, covering) {
                    builder.complex(id, own, kept);
                }
            }
        }
    }
    true
}

/// What remains of a block. The result may be empty.
pub fn compact_block(
    layout: &RowLayout,
    order: &ClusteringOrder,
    block: &PartitionBlock,
    purge: &Purge<'_>,
) -> PartitionBlock {
    let mut out = PartitionBlock::new(block.token, block.key());
    out.covered = block.covered.clone();
    out.tombstone = purge.keep(block.tombstone);
    let mut packed = Vec::new();
    if let Some(row) = block.static_row()
        && compact_row(layout, row, block.tombstone, purge, &mut packed)
    {
        out.set_static_row(&packed);
    }
    for (key, row) in block.rows() {
        let deletion = block.deletion_of(order, key);
        out.push_row_with(key, |bytes| compact_row(layout, row, deletion, purge, bytes));
    }
    let ranges = block.range_tombstones.iter();
    out.range_tombstones = ranges
        .filter(|r| r.tombstone.supersedes(block.tombstone) && !purge.keep(r.tombstone).is_none())
        .cloned()
        .collect();
    out
}

#[cfg(test)]
mod tests {
    use types::CqlType;

    use super::*;

    /// A row of a marker alone.
    fn inserted(layout: &RowLayout, timestamp: i64, ttl: u32, expiry: u32) -> Vec<u8> {
        let mut out = Vec::new();
        let shared = Shared { timestamp, ttl, expiry };
        let marker = Liveness { timestamp, ttl, expiry };
        RowBuilder::begin(&mut out, layout, shared, Some(marker), Tombstone::NONE, false, 0);
        out
    }

    #[test]
    fn the_values_of_a_plain_row_are_those_of_its_living_columns_and_no_other_row_has_any() {
        let simple = RowLayout::from_types(&[CqlType::Int, CqlType::Blob, CqlType::Blob]);
        let complex = RowLayout::from_types(&[
            CqlType::Int,
            CqlType::Set(std::sync::Arc::new(CqlType::Int)),
            CqlType::Blob,
        ]);
        let deletions = [i64::MIN, 19, 20, 21].map(|timestamp| Tombstone {
            timestamp,
            deletion_time: 5,
        });
        let mut plain = 0;
        for (layout, ttl) in [(&simple, 0), (&simple, 4), (&complex, 0)] {
            let shared = Shared {
                timestamp: 20,
                ttl,
                expiry: if ttl > 0 { 104 } else { 0 },
            };
            let mut bytes = Vec::new();
            let mut row = RowBuilder::begin(&mut bytes, layout, shared, None, Tombstone::NONE, false, 2);
            row.value(0, &[1, 2, 3, 4]);
            row.value(2, b"value");
            let view = RowView::new(&bytes).expect("a whole row");
            for deletion in deletions {
                let live = LiveRow::new(view, layout, deletion, 100);
                let all: Vec<(usize, &[u8])> = live
                    .columns()
                    .filter_map(|(id, column)| match column {
                        LiveColumn::Simple(cell) => Some((id, cell.value)),
                        LiveColumn::Complex(_) => None,
                    })
                    .collect();
                if let Some(values) = live.plain_values() {
                    assert_eq!(values.collect::<Vec<_>>(), all);
                    plain += 1;
                } else {
                    assert!(deletion.timestamp >= 20 || ttl > 0 || layout.has_complex());
                }
            }
        }
        assert_eq!(plain, 2, "deletions at 20 and later cover the row");
    }

    #[test]
    fn an_insert_that_expired_covers_an_older_one_that_comes_later() {
        let layout = RowLayout::from_types(&[CqlType::Int]);
        let view = |bytes: &'static [u8]| RowView::new(bytes).expect("a row");
        let newer: &'static [u8] = inserted(&layout, 20, 4, 104).leak();
        let older: &'static [u8] = inserted(&layout, 10, 0, 0).leak();
        let early = Purge {
            now: 200,
            gc_before: 100,
            max_purgeable_timestamp: i64::MAX,
            held: &[],
            keeps_expired: false,
        };
        let mut kept = Vec::new();
        assert!(
            compact_row(&layout, view(newer), Tombstone::NONE, &early, &mut kept),
            "it was forgotten before its grace was over"
        );
        let mut merged = Vec::new();
        crate::merge::merge_rows(&layout, view(kept.leak()), view(older), &mut merged);
        let row = LiveRow::new(view(merged.leak()), &layout, Tombstone::NONE, 200);
        assert!(
            !row.has_live_marker(),
            "the older INSERT, which another had replaced, is back"
        );
        for (purge, is_kept) in [
            (
                Purge {
                    gc_before: 101,
                    ..early
                },
                false,
            ),
            (
                Purge {
                    gc_before: 101,
                    max_purgeable_timestamp: 20,
                    ..early
                },
                true,
            ),
            (
                Purge {
                    now: 103,
                    gc_before: 101,
                    ..early
                },
                true,
            ),
            (
                Purge {
                    gc_before: 101,
                    held: &[5..=8, 100..=100],
                    ..early
                },
                true,
            ),
            (
                Purge {
                    gc_before: 101,
                    held: &[101..=200],
                    ..early
                },
                false,
            ),
        ] {
            let is_left = compact_row(&layout, view(newer), Tombstone::NONE, &purge, &mut Vec::new());
            assert_eq!(is_left, is_kept, "{purge:?}");
        }
    }
}
