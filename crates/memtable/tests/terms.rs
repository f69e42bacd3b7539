//! What a memtable lists for its indexes, against a list of everything that was written.

use std::collections::BTreeMap;
use std::ops::Bound as RangeBound;

use memtable::Memtable;
use mutation::candidates::{Candidate, CandidatesFrom, FirstCandidates};
use mutation::row::{Liveness, RowBuilder, Shared};
use mutation::terms::{IndexLookup, IndexTerms, TermRange};
use mutation::{Mutation, MutationBuilder, Tombstone};
use proptest::prelude::*;
use schema::{Column, ColumnKind, Index, IndexKind, IndexPart, Table, TableId, TableOptions};
use types::CqlType;
use types::token::token_of;
use uuid::Uuid;

/// A table with an index on each kind of column; clustering in descending order.
fn table() -> Table {
    let columns = vec![
        Column::new("k", CqlType::Int, ColumnKind::PartitionKey),
        Column {
            descending: true,
            ..Column::new("c", CqlType::Int, ColumnKind::Clustering)
        },
        Column::new("s", CqlType::Int, ColumnKind::Static),
        Column::new("v", CqlType::Int, ColumnKind::Regular),
    ];
    let mut table = Table::new("ks", "t", TableId(Uuid::from_u128(1)), columns, TableOptions::default());
    for column in ["k", "c", "s", "v"] {
        let name = format!("t_{column}_idx");
        table.add_index(&name, (column, IndexPart::Value), IndexKind::Legacy, BTreeMap::new());
    }
    table
}

/// A write of one value: of the static column, or of a row's.
#[derive(Clone, Copy, Debug)]
struct Write {
    key: i32,
    row: Option<i32>,
    value: i32,
}

fn writes() -> impl Strategy<Value = Vec<Write>> {
    let row = prop_oneof![1 => Just(None), 8 => (0..1500).prop_map(Some)];
    let write = (0..6, row, 0..8).prop_map(|(key, row, value)| Write { key, row, value });
    prop::collection::vec(write, 1..400)
}

fn clustering(row: i32) -> Vec<u8> {
    let mut out = Vec::new();
    schema::push_component(&mut out, &row.to_be_bytes());
    out
}

fn apply(memtable: &mut Memtable, table: &Table, write: Write) {
    let id = |name: &str| usize::from(table.column(name).expect("a column of the table").id.0);
    let key = write.key.to_be_bytes();
    let column = id(if write.row.is_some() { "v" } else { "s" });
    let shared = Shared {
        timestamp: 7,
        ttl: 0,
        expiry: 0,
    };
    let mut row = Vec::new();
    let marker = write.row.map(|_| Liveness {
        timestamp: 7,
        ttl: 0,
        expiry: 0,
    });
    let mut builder = RowBuilder::begin(
        &mut row,
        &table.layout,
        shared,
        marker,
        Tombstone::NONE,
        false,
        column + 1,
    );
    builder.value(column, &write.value.to_be_bytes());
    let mut out = Vec::new();
    let mut builder = MutationBuilder::begin(&mut out, table.id, &key);
    match write.row {
        Some(number) => builder.row(&clustering(number), |out| out.extend_from_slice(&row)),
        None => builder.static_row(|out| out.extend_from_slice(&row)),
    }
    let mutation = Mutation::new(&out).expect("a whole mutation");
    memtable.apply(token_of(&key), &mutation);
}

fn index<'t>(table: &'t Table, column: &str) -> &'t Index {
    let found = table.indexes.iter().find(|index| index.column == column);
    found.expect("each column has an index")
}

/// What an index should list of these writes between two values.
fn expected(table: &Table, writes: &[Write], column: &str, (low, high): (i32, i32)) -> Vec<Candidate> {
    let mut found = Vec::new();
    for write in writes {
        let (value, row) = match (column, write.row) {
            ("k", _) => (write.key, None),
            ("c", Some(row)) => (row, Some(row)),
            ("s", None) => (write.value, None),
            ("v", Some(row)) => (write.value, Some(row)),
            _ => continue,
        };
        if (low..=high).contains(&value) {
            let key = write.key.to_be_bytes();
            found.push(Candidate {
                token: token_of(&key),
                key: key.to_vec(),
                clustering: row.map(clustering),
            });
        }
    }
    found.sort_by(|a, b| a.compare(&table.clustering_order, b));
    found.dedup();
    found
}

proptest! {
    #[test]
    fn what_was_written_is_listed_in_the_order_of_reads_however_many_are_taken_at_once(
        writes in writes(), low in -1..9i32, width in 0..4i32, max in 1..40usize,
    ) {
        let table = table();
        let mut memtable = Memtable::new(&table);
        writes.iter().for_each(|write| apply(&mut memtable, &table, *write));
        for column in ["k", "c", "s", "v"] {
            let index = index(&table, column);
            prop_assert!(memtable.has_index(index.id));
            let terms = IndexTerms::of(&table, index).expect("the table has the column");
            let (from, to) = (low.to_be_bytes(), (low + width).to_be_bytes());
            let range = terms.range(None, RangeBound::Included(&from), RangeBound::Included(&to));
            let lookup = IndexLookup { id: index.id, ranges: vec![range], pattern: None };
            let mut found = Vec::new();
            let mut place = CandidatesFrom::token(types::Token(i64::MIN));
            loop {
                let mut first = FirstCandidates::new(&table.clustering_order, max);
                memtable.offer_candidates(&lookup, &place, &mut first);
                let (some, is_cut) = first.finish();
                prop_assert!(some.len() <= max);
                prop_assert!(is_cut || some.len() < max + 1);
                if let Some(last) = some.last() {
                    place = CandidatesFrom::behind(last);
                }
                found.extend(some);
                if !is_cut {
                    break;
                }
            }
            prop_assert_eq!(found, expected(&table, &writes, column, (low, low + width)), "{}", column);
        }
    }
}

#[test]
fn many_rows_of_one_term_are_charged_and_listed_from_any_row_on() {
    let table = table();
    let mut memtable = Memtable::new(&table);
    let mut plain = table.clone();
    plain.indexes.clear();
    let mut without = Memtable::new(&plain);
    for row in 0..3000 {
        let write = Write {
            key: 1,
            row: Some(row * 7 % 3000),
            value: 5,
        };
        apply(&mut memtable, &table, write);
        apply(&mut without, &plain, write);
    }
    assert!(memtable.bytes() > without.bytes() + 3000 * 16, "postings are charged");
    let lookup = IndexLookup {
        id: index(&table, "v").id,
        ranges: vec![TermRange {
            from: RangeBound::Unbounded,
            to: RangeBound::Unbounded,
        }],
        pattern: None,
    };
    for row in [0, 1, 511, 512, 1499, 2998, 2999] {
        let key = 1_i32.to_be_bytes();
        let behind = Candidate {
            token: token_of(&key),
            key: key.to_vec(),
            clustering: Some(clustering(row)),
        };
        let mut first = FirstCandidates::new(&table.clustering_order, 2);
        memtable.offer_candidates(&lookup, &CandidatesFrom::behind(&behind), &mut first);
        let rows: Vec<_> = first
            .finish()
            .0
            .into_iter()
            .filter_map(|found| found.clustering)
            .collect();
        // They descend.
        let expected: Vec<_> = (0..row).rev().take(2).map(clustering).collect();
        assert_eq!(rows, expected, "behind {row}");
    }
}

#[test]
fn an_index_that_came_after_the_first_row_is_not_there_until_the_next_memtable() {
    let indexed = table();
    let mut plain = indexed.clone();
    plain.indexes.clear();
    let mut memtable = Memtable::new(&plain);
    memtable.set_table(&indexed);
    assert!(memtable.has_index(index(&indexed, "v").id), "it was empty");
    let mut memtable = Memtable::new(&plain);
    let write = Write {
        key: 1,
        row: Some(1),
        value: 1,
    };
    apply(&mut memtable, &plain, write);
    memtable.set_table(&indexed);
    assert!(
        !memtable.has_index(index(&indexed, "v").id),
        "its first row is not listed"
    );
}
