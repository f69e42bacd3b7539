//! Random partitions of a table with every kind of column are read back as they were written.

use crate::common;
use crate::common::{
    NOW, NOW_US, TempDir, Value, dead, describe, expiring, join, live, tombstone, wide_table, without_deleted,
};
use mutation::{Bound, Cell, Liveness, PartitionBlock, RangeTombstone, RangeTombstoneList, Tombstone};
use schema::{ColumnKind, Table};
use sstable::{Compression, Compressor, EncodingBase, ReadLimits, Reader, Writer, WriterOptions};
use stdx::random::SplitMix64;
use types::token::token_of;
use types::{CqlType, Token};

struct Dice(SplitMix64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0.below(n)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.0.one_in(n)
    }

    fn timestamp(&mut self) -> i64 {
        NOW_US + self.below(4) as i64
    }

    fn cell<'v>(&mut self, shared: i64, value: &'v [u8]) -> Cell<'v> {
        let timestamp = if self.one_in(3) { self.timestamp() } else { shared };
        match self.below(6) {
            0 => dead(timestamp, NOW + self.below(9) as u32),
            1 => expiring(timestamp, 60, NOW + 60, value),
            2 => live(timestamp, if self.one_in(2) { b"" } else { value }),
            _ => live(timestamp, value),
        }
    }

    fn row(&mut self, table: &Table, kind: ColumnKind) -> Vec<u8> {
        let (int, uuid, text) = ([1, 2, 3, 4], [7; 16], [b'x'; 300]);
        let shared = self.timestamp();
        let marker = match self.below(3) {
            _ if kind == ColumnKind::Static => None,
            0 => None,
            1 => Some(Liveness {
                timestamp: shared,
                ttl: 60,
                expiry: NOW + 60,
            }),
            _ => Some(Liveness {
                timestamp: shared,
                ttl: 0,
                expiry: 0,
            }),
        };
        let deletion = if kind == ColumnKind::Regular && self.one_in(5) {
            tombstone(shared - 1, NOW)
        } else {
            Tombstone::NONE
        };
        let mut values = Vec::new();
        for c in table.columns.iter().filter(|c| c.kind == kind) {
            if self.one_in(2) {
                continue;
            }
            let value: &[u8] = match &c.cql_type {
                CqlType::Int => &int,
                CqlType::BigInt => &uuid[..8],
                CqlType::Uuid => &uuid,
                CqlType::TinyInt => &int[..1],
                _ => &text[..self.below(300) as usize],
            };
            let paths: Vec<Vec<u8>> = (0..self.below(4) as u8)
                .map(|i| match &c.cql_type {
                    CqlType::List(_) => [0x10, 0x20, 0x30, i, 0, 0, 0x11, 0xee, 0x80, 0, 0, 0, 0, 0, 0, i].to_vec(),
                    CqlType::Udt(_) => vec![0, i],
                    _ => vec![b'a' + i; 1 + usize::from(i)],
                })
                .collect();
            let value = if c.cql_type.is_multi_cell() {
                let own = if self.one_in(3) {
                    tombstone(shared - 1, NOW)
                } else {
                    Tombstone::NONE
                };
                let elements: Vec<_> = paths.into_iter().map(|p| (p, self.cell(shared, &int))).collect();
                if elements.is_empty() && own.is_none() {
                    continue;
                }
                Value::Complex(own, elements)
            } else {
                Value::Cell(self.cell(shared, value))
            };
            values.push((c.name.as_str(), value));
        }
        common::row(table, marker, deletion, &values)
    }

    fn prefix(&mut self) -> Vec<u8> {
        let (c1, c2) = ([b'a' + self.below(4) as u8], (self.below(4) as i32).to_be_bytes());
        match self.below(3) {
            0 => Vec::new(),
            1 => common::clustering(&[&c1]),
            _ => common::clustering(&[&c1, &c2]),
        }
    }

    fn bound(&mut self) -> Bound {
        let prefix = self.prefix();
        if self.one_in(2) {
            Bound::before(&prefix)
        } else {
            Bound::after(&prefix)
        }
    }

    fn partition(&mut self, table: &Table, n: i32) -> PartitionBlock {
        let key = common::wide_key(n, "random");
        let mut b = PartitionBlock::new(token_of(&key), &key);
        if self.one_in(4) {
            b.tombstone = tombstone(self.timestamp(), NOW);
        }
        if self.one_in(2) {
            let row = self.row(table, ColumnKind::Static);
            if !mutation::RowView::new(&row).expect("just packed").is_empty() {
                b.set_static_row(&row);
            }
        }
        let mut ranges = RangeTombstoneList::default();
        for _ in 0..self.below(5) {
            let (start, end) = (self.bound(), self.bound());
            let t = tombstone(self.timestamp(), NOW);
            ranges.add(
                &table.clustering_order,
                RangeTombstone {
                    start,
                    end,
                    tombstone: t,
                },
            );
        }
        b.range_tombstones = ranges.into_vec();
        for c1 in 0..4 {
            for c2 in (0..4).rev() {
                if self.one_in(2) {
                    let row = self.row(table, ColumnKind::Regular);
                    if mutation::RowView::new(&row).expect("just packed").is_empty() {
                        continue;
                    }
                    b.push_row(&common::clustering(&[&[b'a' + c1], &i32::to_be_bytes(c2)]), &row);
                }
            }
        }
        b
    }
}

#[test]
fn random_partitions_are_read_back_as_they_were_written() {
    let mut dice = Dice(SplitMix64::new(7));
    let table = wide_table();
    for round in 0..12 {
        let mut blocks: Vec<PartitionBlock> = (0..40).map(|n| dice.partition(&table, n)).collect();
        blocks.retain(|b| !b.is_empty());
        blocks.sort_by(|a, b| (a.token, a.key()).cmp(&(b.token, b.key())));
        let dir = TempDir::new("random");
        let mut options = WriterOptions::of_table(&table, 40, EncodingBase::of_blocks(&table.layout, &blocks))
            .expect("known options");
        options.compression = Compression {
            compressor: Some(Compressor::Lz4),
            chunk_len: 512,
        };
        options.column_index_size_bytes = 300;
        let mut writer = Writer::create(&dir.0, 1, &table, options).expect("a directory");
        blocks.iter().for_each(|b| writer.append(b).expect("room on the disk"));
        let meta = writer.finish().expect("room on the disk");
        sstable::tool::verify(&meta.descriptor.path(sstable::Component::Data)).expect("a sound file");
        let reader = Reader::open(&dir.0, 1, &table).expect("what was just written");
        for limits in [ReadLimits::NONE, ReadLimits { rows: 2, bytes: 1000 }] {
            let mut scan = reader.scan_blocking(Token::MIN, Token::MAX, limits).expect("an index");
            let read: Vec<PartitionBlock> = std::iter::from_fn(|| scan.next_block().expect("undamaged data")).collect();
            let joined: Vec<String> = read
                .chunk_by(|a, b| a.key() == b.key())
                .map(|parts| describe(&table, &join(&table, parts)))
                .collect();
            let wanted: Vec<String> = blocks
                .iter()
                .map(|b| describe(&table, &without_deleted(&table, b)))
                .collect();
            assert_eq!(joined, wanted, "round {round}, {limits:?}");
            // A reader that does not merge within a file takes nothing for living that a deletion of the file covers.
            for block in &read {
                let left = without_deleted(&table, block);
                assert_eq!(
                    describe(&table, &left),
                    describe(&table, block),
                    "round {round}, {limits:?}"
                );
            }
        }
    }
}
