//! What of a partition mutations touch.

use std::cmp::Ordering;

use schema::{ClusteringOrder, RowLayout};
use types::Token;

use crate::merge::merge_rows;
use crate::{Bound, ClusteringSlice, Mutation, MutationItem, PartitionBlock, RangeTombstoneList, RowView};

/// The slices in which rows lie that mutations of one partition touch, in clustering order and disjoint. When they touch the static row alone it is one slice
/// in which no row lies, as nothing is read without a slice.
#[must_use]
pub fn touched_slices(order: &ClusteringOrder, mutations: &[Mutation<'_>]) -> Vec<ClusteringSlice> {
    let mut slices: Vec<ClusteringSlice> = Vec::new();
    for item in mutations.iter().flat_map(Mutation::items) {
        match item {
            MutationItem::Partition(_) => return vec![ClusteringSlice::all()],
            MutationItem::StaticRow(_) => {}
            MutationItem::Row { clustering, .. } => slices.push(ClusteringSlice::exactly(clustering)),
            MutationItem::Range(range) => slices.push(ClusteringSlice {
                start: range.start,
                end: range.end,
            }),
        }
    }
    if slices.is_empty() {
        // Before everything: no row lies there.
        let nowhere = Bound::bottom();
        return vec![ClusteringSlice {
            start: nowhere.clone(),
            end: nowhere,
        }];
    }
    ClusteringSlice::joined(slices, order)
}

impl PartitionBlock {
    /// What a mutation says, as a block of its partition.
    #[must_use]
    pub fn of_mutation(layout: &RowLayout, order: &ClusteringOrder, token: Token, mutation: &Mutation<'_>) -> Self {
        let mut block = Self::new(token, mutation.key);
        let mut rows: Vec<(&[u8], Vec<u8>)> = Vec::new();
        let mut ranges = RangeTombstoneList::default();
        let merged = |a: &[u8], b: &[u8]| {
            let view = |bytes| RowView::new(bytes).expect("a mutation that is applied has been checked");
            let mut out = Vec::with_capacity(a.len() + b.len());
            merge_rows(layout, view(a), view(b), &mut out);
            out
        };
        for item in mutation.items() {
            match item {
                MutationItem::Partition(tombstone) => block.tombstone = block.tombstone.merge(tombstone),
                MutationItem::StaticRow(row) => {
                    let row = match block.static_row() {
                        Some(have) => merged(have.bytes(), row),
                        None => row.to_vec(),
                    };
                    block.set_static_row(&row);
                }
                MutationItem::Row { clustering, row } => rows.push((clustering, row.to_vec())),
                MutationItem::Range(range) => ranges.add(order, range),
            }
        }
        rows.sort_by(|(a, _), (b, _)| order.compare(a, b));
        rows.dedup_by(|(name, row), (before, have)| {
            let is_same = order.compare(name, before) == Ordering::Equal;
            if is_same {
                *have = merged(have, row);
            }
            is_same
        });
        for (clustering, row) in &rows {
            block.push_row(clustering, row);
        }
        block.range_tombstones = ranges.into_vec();
        block
    }
}
