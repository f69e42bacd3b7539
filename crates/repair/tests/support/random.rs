//! Random partitions that are the same in every build, for tests of what replicas compare.

use mutation::merge::merge_blocks;
use mutation::{Mutation, PartitionBlock};
use schema::{ColumnKind, Table, TableId, TableOptions};
use stdx::random::SplitMix64;
use types::CqlType;
use types::token::token_of;
use uuid::Uuid;

#[path = "writer.rs"]
#[allow(dead_code, reason = "these tests need random writes alone")]
mod writer;

/// The second at which they are compared.
pub const NOW: u32 = 1_700_000_000;

/// One with columns of every kind.
pub fn table() -> Table {
    let columns = [
        ("k", "int", ColumnKind::PartitionKey),
        ("c", "int", ColumnKind::Clustering),
        ("s", "int", ColumnKind::Static),
        ("sm", "map<int, blob>", ColumnKind::Static),
        ("a", "int", ColumnKind::Regular),
        ("e", "set<blob>", ColumnKind::Regular),
        ("f", "frozen<list<int>>", ColumnKind::Regular),
        ("m", "map<int, blob>", ColumnKind::Regular),
    ];
    let columns = columns.map(|(name, cql_type, kind)| {
        schema::Column::new(name, CqlType::parse_native(cql_type).expect("a type"), kind)
    });
    let options = TableOptions {
        gc_grace_seconds: 1_000,
        ..TableOptions::default()
    };
    Table::new("sea", "t", TableId(Uuid::from_u128(7)), columns.into(), options)
}

/// Partitions with their numbers: each of several writes.
pub fn blocks(table: &Table) -> Vec<(u128, PartitionBlock)> {
    let mut writer = writer::Writer {
        table,
        chance: SplitMix64::new(5),
        now: NOW,
        keys: 1,
        rows: 4,
        has_short_lives: true,
    };
    let partition = |number: u128| {
        let count = 1 + writer.chance.below(20);
        let blocks: Vec<PartitionBlock> = (0..count)
            .map(|_| {
                let bytes = writer.write();
                let mutation = Mutation::new(&bytes).expect("a whole one");
                PartitionBlock::of_mutation(
                    &table.layout,
                    &table.clustering_order,
                    token_of(mutation.key),
                    &mutation,
                )
            })
            .collect();
        let merged = merge_blocks(
            &table.layout,
            &table.clustering_order,
            &blocks.iter().collect::<Vec<_>>(),
        );
        (number, merged.expect("at least one write"))
    };
    (0..500).map(partition).collect()
}
