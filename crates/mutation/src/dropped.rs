//! Cells of dropped columns, on their way into a file.
//!
//! A dropped column may be added again. The new column has another id, and it inherits the cells that are newer than
//! the DROP (`ALTER TABLE … DROP c USING TIMESTAMP t`); older cells are gone. Files name their columns, so a file hands
//! its cells over when it is opened. Rows in memory have ids, so a writer of files moves the cells of a dropped id to
//! the id of its successor ([`RowLayout::successor`]). While there is no new column, the successor is the dropped
//! column itself, and its newer cells stay as they are, unseen by readers.

use std::collections::BTreeSet;

use schema::{RowLayout, Successor};

use crate::Tombstone;
use crate::block::PartitionBlock;
use crate::merge::merge_rows;
use crate::row::{Cell, Column, Elements, RowBuilder, RowView};

/// The cells of a complex column that its successor inherits.
#[derive(Clone)]
struct Inherited<'a> {
    elements: Elements<'a>,
    newer_than: i64,
}

impl<'a> Iterator for Inherited<'a> {
    type Item = (&'a [u8], Cell<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let newer_than = self.newer_than;
        self.elements.find(|(_, cell)| cell.timestamp > newer_than)
    }
}

/// What a successor inherits of one column.
enum Part<'a> {
    Simple(Cell<'a>),
    Complex(Tombstone, Inherited<'a>),
}

fn part_of<'a>(column: &Column<'a>, successor: Successor) -> Option<Part<'a>> {
    let newer_than = successor.newer_than;
    match column {
        Column::Simple(cell) => (cell.timestamp > newer_than).then_some(Part::Simple(*cell)),
        Column::Complex(complex) => {
            let is_newer = !complex.tombstone.is_none() && complex.tombstone.timestamp > newer_than;
            let tombstone = if is_newer { complex.tombstone } else { Tombstone::NONE };
            let elements = Inherited {
                elements: complex.elements(),
                newer_than,
            };
            (is_newer || elements.clone().next().is_some()).then_some(Part::Complex(tombstone, elements))
        }
    }
}

fn has_dropped(layout: &RowLayout, row: RowView<'_>) -> bool {
    row.columns(layout).any(|(id, _)| layout.is_dropped(id))
}

/// Appends a row with the cells of dropped columns moved to the columns' successors. Cells that no successor
/// inherits are left out.
pub fn inherit_row(layout: &RowLayout, row: RowView<'_>, out: &mut Vec<u8>) {
    let ids = row.presence().len() * 8;
    let mut whole = Vec::new();
    let mut builder = RowBuilder::begin(&mut whole, layout, row.shared(), row.marker, row.tombstone, true, ids);
    for (id, column) in row.columns(layout).filter(|(id, _)| !layout.is_dropped(*id)) {
        match column {
            Column::Simple(cell) => builder.cell(id, &cell),
            Column::Complex(complex) => builder.complex(id, complex.tombstone, complex.elements()),
        }
    }
    for (id, column) in row.columns(layout) {
        let Some(successor) = layout.successor(id) else {
            continue;
        };
        let Some(part) = part_of(&column, successor) else {
            continue;
        };
        let (mut alone, mut merged) = (Vec::new(), Vec::new());
        let to = successor.id;
        let mut builder = RowBuilder::begin(&mut alone, layout, row.shared(), None, Tombstone::NONE, true, to + 1);
        match part {
            Part::Simple(cell) => builder.cell(to, &cell),
            Part::Complex(tombstone, elements) => builder.complex(to, tombstone, elements),
        }
        let view = |bytes| RowView::new(bytes).expect("a row that was just packed");
        merge_rows(layout, view(&whole), view(&alone), &mut merged);
        whole = merged;
    }
    out.extend_from_slice(&whole);
}

/// A block with the cells of dropped columns where their successors have them; None if it has no such cells.
#[must_use]
pub fn inherit_block(layout: &RowLayout, block: &PartitionBlock) -> Option<PartitionBlock> {
    if !layout.has_dropped() {
        return None;
    }
    let mut rows = block.static_row().into_iter().chain(block.rows().map(|(_, row)| row));
    if !rows.any(|row| has_dropped(layout, row)) {
        return None;
    }
    let mut out = PartitionBlock::new(block.token, block.key());
    out.covered.clone_from(&block.covered);
    out.tombstone = block.tombstone;
    out.range_tombstones.clone_from(&block.range_tombstones);
    if let Some(row) = block.static_row() {
        let mut packed = Vec::new();
        inherit_row(layout, row, &mut packed);
        out.set_static_row(&packed);
    }
    for (key, row) in block.rows() {
        out.push_row_with(key, |bytes| {
            inherit_row(layout, row, bytes);
            true
        });
    }
    Some(out)
}

/// Notes the ids of dropped columns that are successors and inherit cells of a block.
pub fn note_inherited(layout: &RowLayout, block: &PartitionBlock, noted: &mut BTreeSet<usize>) {
    for row in block.static_row().into_iter().chain(block.rows().map(|(_, row)| row)) {
        for (id, column) in row.columns(layout) {
            if let Some(successor) = layout.successor(id)
                && layout.is_dropped(successor.id)
                && part_of(&column, successor).is_some()
            {
                noted.insert(successor.id);
            }
        }
    }
}
