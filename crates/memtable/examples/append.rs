//! Appends elements one by one to one collection of one row: what does the last append cost, what do all of them hold?
//!
//! ```text
//! cargo build --release -p memtable --example append
//! valgrind --tool=callgrind target/release/examples/append ascending 99000
//! valgrind --tool=callgrind target/release/examples/append ascending 100000
//! ```
//!
//! The difference of two counts is that of the appends between them. The order of the elements is `ascending` (a list),
//! `descending` or `random` (a map).

use memtable::Memtable;
use mutation::row::{Cell, RowBuilder, Shared};
use mutation::{Mutation, MutationBuilder, Tombstone};
use schema::{Column, ColumnKind, Table, TableId, TableOptions};
use types::CqlType;
use types::token::token_of;
use uuid::Uuid;

fn table() -> Table {
    let map = CqlType::parse_native("map<int, text>").expect("a map type");
    let columns = vec![
        Column::new("k", CqlType::Int, ColumnKind::PartitionKey),
        Column::new("m", map, ColumnKind::Regular),
    ];
    Table::new("ks", "t", TableId(Uuid::from_u128(1)), columns, TableOptions::default())
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let order = arguments.next().unwrap_or_else(|| "ascending".to_owned());
    let appends: u32 = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let table = table();
    let mut memtable = Memtable::new(&table);
    let mut bytes = Vec::new();
    for n in 0..appends {
        let path = match order.as_str() {
            "ascending" => n,
            "descending" => u32::MAX / 2 - n,
            // An odd factor permutes; Knuth's spreads.
            _ => n.wrapping_mul(2_654_435_761) >> 1,
        };
        let timestamp = i64::from(n);
        let value = Cell {
            timestamp,
            ttl: 0,
            deletion_time: 0,
            dead: false,
            value: b"sixteen bytes...",
        };
        let shared = Shared {
            timestamp,
            ttl: 0,
            expiry: 0,
        };
        bytes.clear();
        MutationBuilder::begin(&mut bytes, table.id, &[0, 0, 0, 1]).row(&[], |out| {
            let mut row = RowBuilder::begin(out, &table.layout, shared, None, Tombstone::NONE, false, 1);
            row.complex(0, Tombstone::NONE, std::iter::once((&path.to_be_bytes()[..], value)));
        });
        let mutation = Mutation::new(&bytes).expect("a packed mutation");
        memtable.apply(token_of(mutation.key), &mutation);
    }
    println!(
        "{appends} appends, {order}: {} bytes held, {} used",
        memtable.bytes(),
        memtable.used_bytes()
    );
}
