//! What a mutation says of its partition, as a block.

use std::cmp::Ordering;

use schema::{ClusteringOrder, RowLayout};
use types::Token;

use crate::merge::merge_rows;
use crate::{Mutation, MutationItem, PartitionBlock, RangeTombstoneList, RowView};

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
