//! What the fuzzer needs of mutations: real ones to begin with, and what is done with those that are valid.

use std::sync::Arc;

use schema::{ClusteringOrder, Column as TableColumn, ColumnKind, RowLayout, Table, TableId, TableOptions};
use types::CqlType;
use uuid::Uuid;

use crate::compact::{Purge, compact_row};
use crate::cut::cut;
use crate::merge::{merge_rows, missing_part, settle_row};
use crate::row::Shared;
use crate::stretch::{cell_count, last_position};
use crate::{
    Addressed, Bound, Cell, ClusteringSlice, Column, Liveness, Mutation, MutationBuilder, MutationItem, PartitionBlock,
    RangeTombstone, RowBuilder, RowView, Tombstone,
};

const DELETION: Tombstone = Tombstone {
    timestamp: 5,
    deletion_time: 6,
};
const SHARED: Shared = Shared {
    timestamp: 9,
    ttl: 60,
    expiry: 2_000,
};

fn table() -> Table {
    let map = CqlType::Map(Arc::new(CqlType::Int), Arc::new(CqlType::Text));
    let columns = vec![
        TableColumn::new("k", CqlType::Blob, ColumnKind::PartitionKey),
        TableColumn::new("c", CqlType::Int, ColumnKind::Clustering),
        TableColumn::new("a", CqlType::Int, ColumnKind::Regular),
        TableColumn::new("b", CqlType::Text, ColumnKind::Regular),
        TableColumn::new("m", map, ColumnKind::Regular),
    ];
    let id = TableId(Uuid::from_u128(7));
    Table::new("ks", "t", id, columns, TableOptions::default())
}

fn cell(timestamp: i64, dead: bool, value: &[u8]) -> Cell<'_> {
    Cell {
        timestamp,
        ttl: 0,
        deletion_time: u32::from(dead),
        dead,
        value,
    }
}

/// A row with every kind of cell, in one of two packings.
fn row(layout: &RowLayout, mixed: bool, out: &mut Vec<u8>) {
    let marker = Liveness {
        timestamp: 9,
        ttl: 60,
        expiry: 2_000,
    };
    let mut row = RowBuilder::begin(out, layout, SHARED, Some(marker), Tombstone::NONE, mixed, 3);
    if !mixed {
        row.value(0, &7_i32.to_be_bytes());
        row.value(1, b"text");
        return;
    }
    row.cell(0, &cell(3, true, b""));
    row.cell(1, &cell(8, false, b"older"));
    let (first, second) = (1_i32.to_be_bytes(), 2_i32.to_be_bytes());
    let elements = [(&first[..], cell(7, false, b"x")), (&second[..], cell(6, true, b""))];
    row.complex(2, DELETION, elements.into_iter());
}

/// Mutations of each kind, and rows by themselves.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let table = table();
    let mut inserted = Vec::new();
    let mut builder = MutationBuilder::begin(&mut inserted, table.id, b"key");
    for (number, mixed) in [(1, false), (2, true)] {
        builder.row(&[4, 0, 0, 0, number], |out| row(&table.layout, mixed, out));
    }
    let mut deleted = Vec::new();
    let mut builder = MutationBuilder::begin(&mut deleted, table.id, b"key");
    builder.partition_tombstone(DELETION);
    builder.range_tombstone(&RangeTombstone {
        start: Bound::before(&[4, 0, 0, 0, 1]),
        end: Bound::after(&[4, 0, 0, 0, 3]),
        tombstone: DELETION,
    });
    builder.static_row(|out| {
        RowBuilder::begin(out, &table.layout, SHARED, None, DELETION, false, 0);
    });
    vec![inserted, deleted]
}

/// Reads the bytes as a mutation; one that is valid goes the ways of mutations: into blocks, merged, compacted and cut.
pub fn read(bytes: &[u8]) {
    let table = table();
    let (layout, order) = (&*table.layout, &*table.clustering_order);
    let Some(addressed) = Addressed::new(bytes.to_vec()) else {
        return;
    };
    let mutation = addressed.mutation();
    assert_eq!(mutation.bytes(), bytes, "a mutation is not its bytes");
    if let Err(error) = mutation.validate(layout) {
        assert!(error.at <= bytes.len(), "the place of an error is not in the bytes");
        return;
    }
    let only_deletes = |item| matches!(item, MutationItem::Partition(_) | MutationItem::Range(_));
    if mutation.items().all(only_deletes) {
        assert!(!mutation.adds_data(layout), "a mutation without rows brings data");
    }
    for item in mutation.items() {
        match item {
            MutationItem::Row { row, .. } | MutationItem::StaticRow(row) => read_row(layout, row),
            MutationItem::Partition(_) | MutationItem::Range(_) => {}
        }
    }
    let _ = PartitionBlock::of_mutation(layout, order, addressed.token(), &mutation);
    for bytes_max in [1, 100] {
        for part in cut(&mutation, layout, bytes_max) {
            let part = Mutation::new(&part).expect("a cut is a mutation");
            assert_eq!(part.validate(layout), Ok(()), "a cut is not valid");
        }
    }
    read_slices(order, &mutation);
}

fn read_slices(order: &ClusteringOrder, mutation: &Mutation<'_>) {
    let slices: Vec<ClusteringSlice> = mutation
        .items()
        .filter_map(|item| match item {
            MutationItem::Range(range) => Some(ClusteringSlice {
                start: range.start,
                end: range.end,
            }),
            _ => None,
        })
        .collect();
    let count = slices.len();
    assert!(
        ClusteringSlice::joined(slices, order).len() <= count,
        "slices are more when they are joined"
    );
}

/// What a row says, whatever its cells share.
fn contents(layout: &RowLayout, bytes: &[u8]) -> String {
    let view = RowView::new(bytes).expect("it was packed");
    let mut out = format!("{:?} {:?}", view.marker, view.tombstone);
    for (id, column) in view.columns(layout) {
        out += &match column {
            Column::Simple(cell) => format!("\n{id} {cell:?}"),
            Column::Complex(complex) => {
                format!(
                    "\n{id} {:?} {:?}",
                    complex.tombstone,
                    complex.elements().collect::<Vec<_>>()
                )
            }
        };
    }
    out
}

fn read_row(layout: &RowLayout, bytes: &[u8]) {
    let view = RowView::new(bytes).expect("the mutation is valid");
    let merged = |a: RowView<'_>, b: RowView<'_>| {
        let mut out = Vec::new();
        merge_rows(layout, a, b, &mut out);
        assert_eq!(RowView::validate(&out, layout), Ok(()), "a merged row is not valid");
        out
    };
    let mut other = Vec::new();
    row(layout, true, &mut other);
    let other = RowView::new(&other).expect("it was packed");
    let mut settled = Vec::new();
    settle_row(layout, view, &mut settled);
    let settled = RowView::new(&settled).expect("it was packed");
    assert_eq!(
        merged(settled, settled),
        settled.bytes(),
        "a settled row changes when it is merged with itself"
    );
    let both = merged(view, other);
    let turned = merged(other, view);
    // The bytes may differ: the timestamp that most cells share may be either row's, where both have as many.
    assert_eq!(
        contents(layout, &both),
        contents(layout, &turned),
        "the order of merging matters"
    );
    let mut part = Vec::new();
    let both = RowView::new(&both).expect("it was packed");
    if missing_part(layout, both, other, &mut part) {
        assert_eq!(
            RowView::validate(&part, layout),
            Ok(()),
            "the missing part of a row is not valid"
        );
    }
    let _ = (
        cell_count(view, layout),
        last_position(view, layout),
        view.min_timestamp(layout),
    );
    let mut compacted = Vec::new();
    let purge = Purge {
        now: 10_000,
        gc_before: 100,
        max_purgeable_timestamp: 8,
        held: &[],
        keeps_expired: false,
    };
    if compact_row(layout, view, DELETION, &purge, &mut compacted) {
        assert_eq!(
            RowView::validate(&compacted, layout),
            Ok(()),
            "a compacted row is not valid"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_is_a_valid_mutation_and_so_are_its_ends() {
        let table = table();
        for seed in seeds() {
            let mutation = Mutation::new(&seed).expect("a mutation");
            assert_eq!(mutation.validate(&table.layout), Ok(()));
            (0..=seed.len()).for_each(|end| read(&seed[..end]));
        }
    }

    #[test]
    fn rows_that_share_different_times_to_live_merge_to_the_same_content() {
        let table = table();
        let packed = |ttl: u32| {
            let mut out = Vec::new();
            let shared = Shared { ttl, ..SHARED };
            let mut row = RowBuilder::begin(&mut out, &table.layout, shared, None, Tombstone::NONE, false, 2);
            row.value(0, &[0, 0, 0, 7]);
            row.value(1, b"text");
            out
        };
        for ttl in [0, 61] {
            read_row(&table.layout, &packed(ttl));
        }
    }
}
