//! Cutting a mutation that is too long for the log into several that together do the same.
//!
//! A row grows by many mutations and may become longer than the log takes at once. A sender of such a whole row, such
//! as a repair, sends it in cuts: between rows, and in [`stretches`](crate::stretch) of a long row. Applied in any
//! order, they do what the whole does. In between, a reader may see some of them.

use schema::{RowLayout, TableId};

use crate::row::RowView;
use crate::stretch::{self, Fill, Stretches};
use crate::{Mutation, MutationBuilder, MutationItem};

/// Bytes that an item may take beside its row, its clustering key or its bounds.
const ITEM_BYTES_MAX: usize = 48;

/// Mutations of about `bytes_max` bytes each at the most, the partition key not counted, that together do what this one
/// does. What cannot be cut, a cell with its place, may be longer.
#[must_use]
pub fn cut(mutation: &Mutation<'_>, layout: &RowLayout, bytes_max: usize) -> Vec<Vec<u8>> {
    let mut cuts = Cuts {
        table: mutation.table,
        key: mutation.key,
        bytes_max,
        done: Vec::new(),
        bytes: 0,
    };
    for item in mutation.items() {
        match item {
            MutationItem::Partition(tombstone) => {
                cuts.add(ITEM_BYTES_MAX, |builder| builder.partition_tombstone(tombstone));
            }
            MutationItem::Range(range) => {
                let bytes = ITEM_BYTES_MAX + range.start.prefix.len() + range.end.prefix.len();
                cuts.add(bytes, |builder| builder.range_tombstone(&range));
            }
            MutationItem::StaticRow(row) => cuts.cut_row(None, row, layout),
            MutationItem::Row { clustering, row } => cuts.cut_row(Some(clustering), row, layout),
        }
    }
    cuts.done
}

struct Cuts<'m> {
    table: TableId,
    key: &'m [u8],
    bytes_max: usize,
    done: Vec<Vec<u8>>,
    /// Of the last one.
    bytes: usize,
}

impl Cuts<'_> {
    /// Adds an item of so many bytes to the last cut, or to a new one when it is full.
    fn add(&mut self, bytes: usize, put: impl FnOnce(&mut MutationBuilder<'_>)) {
        let is_full = self.bytes + bytes > self.bytes_max;
        let mut builder = match self.done.last_mut() {
            Some(last) if !is_full => MutationBuilder::go_on(last),
            _ => {
                self.bytes = 0;
                self.done.push(Vec::new());
                let last = self.done.last_mut().expect("one was added");
                MutationBuilder::begin(last, self.table, self.key)
            }
        };
        self.bytes += bytes;
        put(&mut builder);
    }

    /// Adds a row or a stretch of one; `clustering` is None of the static row.
    fn add_row(&mut self, clustering: Option<&[u8]>, row: &[u8]) {
        let bytes = clustering.map_or(0, <[u8]>::len) + ITEM_BYTES_MAX + row.len();
        self.add(bytes, |builder| match clustering {
            Some(clustering) => builder.row(clustering, |out| stdx::preempt::append(out, row)),
            None => builder.static_row(|out| stdx::preempt::append(out, row)),
        });
    }

    /// Adds a row, in stretches when it is long.
    fn cut_row(&mut self, clustering: Option<&[u8]>, row: &[u8], layout: &RowLayout) {
        let bytes_max = self
            .bytes_max
            .saturating_sub(clustering.map_or(0, <[u8]>::len) + ITEM_BYTES_MAX);
        let view = RowView::new(row).filter(|_| row.len() > bytes_max);
        let cuts = view.map(|view| stretch::cuts(view, layout, bytes_max, Fill::Full, true));
        let (Some(view), Some(cuts)) = (view, cuts.filter(|cuts| !cuts.is_empty())) else {
            return self.add_row(clustering, row);
        };
        let mut stretches = Stretches::new(view, layout);
        let ends = cuts.into_iter().map(Some).chain([None]);
        let mut part = Vec::new();
        for (n, end) in ends.enumerate() {
            part.clear();
            if stretches.take(end, n == 0, &mut part) {
                self.add_row(clustering, &part);
                // A mutation has a row once.
                self.bytes = self.bytes_max;
            }
        }
    }
}
