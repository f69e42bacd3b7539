//! What two replicas compare instead of their data.
//!
//! A digest is over what counts of a stretch ([`mutation::counting`]): what lives, the cells that a client would see,
//! with their timestamps and expiries; and the deletions that hide nothing else of the stretch any more and are younger
//! than the table's grace. Where two replicas agree about what lives, neither holds a deletion that hides a cell of the
//! other's, as it would hide its own; so the merge of both shows the same. But if a client learns that something is
//! gone, as many replicas must know it as the level wants, or the next read sees it again. So deletions count as long
//! as no replica may have forgotten them; after that it makes no difference whether a replica has.

use mutation::compact::{LiveColumn, LiveRow};
use mutation::counting::{Counting, Material};
use mutation::row::Values;
use mutation::{Bound, Cell, Liveness, PartitionBlock, RangeTombstone, RowView, Tombstone};
use replica::PlainRow;
use schema::{ClusteringOrder, RowLayout, Table};
use stdx::planted::{self, Bug};
use stdx::{preempt, vint};
use types::token::{murmur3_x64_128, murmur3_x64_128_of_many};

use crate::message::ReadPosition;

/// What an element mostly takes besides its path.
const ELEMENT_BYTES: usize = 64;

/// Collects what counts of a stretch, block by block.
pub(crate) struct Digest {
    material: Vec<u8>,
    /// Rows count in reading order: a block has them in clustering order, and where it ends is no property of the data.
    is_reversed: bool,
    /// The partition that the block before belonged to.
    partition: Option<OpenPartition>,
    /// Of the row's last simple cell that never expires.
    timestamp: Option<i64>,
}

/// A partition of which more blocks may follow.
struct OpenPartition {
    /// Where its material begins, where its key begins, and where its content begins, which is after the key.
    start: usize,
    key_at: usize,
    head: usize,
    /// Range tombstones that count. Where a block ends is no property of the data: those that it cuts are joined again
    /// at the end.
    ranges: Vec<RangeTombstone>,
}

const PARTITION: u8 = 1;
const STATIC: u8 = 2;
const ROW: u8 = 3;
const MARKER: u8 = 4;
const SIMPLE: u8 = 5;
const COMPLEX: u8 = 6;
const ELEMENT: u8 = 7;
const END: u8 = 8;
const DELETED: u8 = 9;
const RANGE: u8 = 10;
const EXPIRED_MARKER: u8 = 11;
/// A simple cell that expires, or is deleted.
const EXPIRING: u8 = 13;
/// A simple cell as old as the cell before it in the row.
const EQUALLY_OLD: u8 = 12;
/// Kind, column and length, of a cell with a short value.
const SHORT_HEAD_BYTES: usize = 1 + 1 + 1;

/// What counts of a read.
fn counting(table: &Table, now: u32) -> Counting {
    let counting = Counting::of_table(table, now);
    if planted::is_planted(Bug::DigestWithoutTombstones) {
        Counting {
            gc_before: u32::MAX,
            ..counting
        }
    } else {
        counting
    }
}

impl Digest {
    /// Of nothing yet.
    pub(crate) fn new(is_reversed: bool) -> Self {
        Self {
            material: Vec::new(),
            is_reversed,
            partition: None,
            timestamp: None,
        }
    }

    /// The digest of a read of one row, and the buffer that was lent.
    pub(crate) fn of_plain_row(
        mut material: Vec<u8>,
        table: &Table,
        key: &[u8],
        clustering: &[u8],
        row: &PlainRow<'_>,
        now: u32,
    ) -> (u128, Vec<u8>) {
        material.clear();
        let mut digest = Self {
            material,
            is_reversed: false,
            partition: None,
            timestamp: None,
        };
        let counting = counting(table, now);
        digest.material.push(PARTITION);
        digest.sized(key);
        let head = digest.material.len();
        counting.deletion(row.partition, Tombstone::NONE, &mut digest);
        if let Some(view) = row.row {
            let start = digest.material.len();
            digest.material.push(ROW);
            digest.sized(clustering);
            if !digest.row(counting, &table.layout, view, row.partition) {
                digest.material.truncate(start);
            }
        }
        if digest.material.len() == head {
            digest.material.clear();
        }
        let found = digest.finish(&table.clustering_order, None);
        (found, digest.material)
    }

    /// Adds a block that follows those before.
    pub(crate) fn add(&mut self, table: &Table, block: &PartitionBlock, now: u32) {
        let counting = counting(table, now);
        // More than it takes, mostly: growing step by step costs as much as the rest.
        self.material.reserve(block.size() + 64);
        let is_other = |p: &OpenPartition| self.material[p.key_at..p.head] != *block.key();
        let is_new = self.partition.as_ref().is_none_or(is_other);
        if is_new {
            self.end_partition(&table.clustering_order);
            let start = self.material.len();
            self.material.push(PARTITION);
            self.sized(block.key());
            self.partition = Some(OpenPartition {
                start,
                key_at: self.material.len() - block.key().len(),
                head: self.material.len(),
                ranges: Vec::new(),
            });
            counting.deletion(block.tombstone, Tombstone::NONE, self);
            if let Some(row) = block.static_row() {
                let start = self.material.len();
                self.material.push(STATIC);
                if !self.row(counting, &table.layout, row, block.tombstone) {
                    self.material.truncate(start);
                }
            }
        }
        if let Some(partition) = &mut self.partition {
            let ranges = block.range_tombstones.iter();
            let counted = ranges.filter(|range| counting.counts_range(range, block.tombstone));
            partition.ranges.extend(counted.cloned());
        }
        for n in 0..block.len() {
            let at = if self.is_reversed { block.len() - 1 - n } else { n };
            let (clustering, row) = (block.clustering(at), block.row(at));
            let deletion = block.deletion_of(&table.clustering_order, clustering);
            let start = self.material.len();
            self.material.push(ROW);
            self.sized(clustering);
            if !self.row(counting, &table.layout, row, deletion) {
                self.material.truncate(start);
            }
        }
    }

    /// Adds the range tombstones of the partition, or takes it back if nothing of it counts: the replica that has never
    /// heard of it must agree.
    fn end_partition(&mut self, order: &ClusteringOrder) {
        let Some(mut partition) = self.partition.take() else {
            return;
        };
        if partition.ranges.is_empty() && self.material.len() == partition.head {
            self.material.truncate(partition.start);
            return;
        }
        partition.ranges.sort_by(|a, b| a.start.compare(order, &b.start));
        let mut ranges = partition.ranges.into_iter().peekable();
        while let Some(mut range) = ranges.next() {
            let timestamp = range.tombstone.timestamp;
            let touches = |next: &RangeTombstone, end: &Bound| {
                next.tombstone.timestamp == timestamp && next.start.compare(order, end).is_le()
            };
            while let Some(next) = ranges.next_if(|next| touches(next, &range.end)) {
                range.end = next.end;
            }
            self.material.push(RANGE);
            for bound in [&range.start, &range.end] {
                self.material.push(bound.kind as u8);
                self.sized(&bound.prefix);
            }
            self.material.extend_from_slice(&timestamp.to_le_bytes());
        }
    }

    /// The digest, of a stretch that ends here.
    pub(crate) fn finish(&mut self, order: &ClusteringOrder, end: Option<&ReadPosition>) -> u128 {
        self.end_partition(order);
        self.material.push(END);
        if let Some(end) = end {
            self.sized(&end.key);
            if let Some(bound) = &end.inside {
                self.material.push(bound.kind as u8);
                self.sized(&bound.prefix);
            }
        }
        let (low, high) = match self.material.len() {
            ..preempt::STEP_BYTES => murmur3_x64_128(&self.material, 0),
            _ => preempt::allowed(|| murmur3_x64_128_of_many(&self.material, 0)),
        };
        u128::from(high) << 64 | u128::from(low)
    }

    fn sized(&mut self, bytes: &[u8]) {
        vint::put_unsigned(&mut self.material, bytes.len() as u64);
        preempt::append(&mut self.material, bytes);
    }

    /// Adds what counts of a row; whether anything does.
    #[inline]
    fn row(&mut self, counting: Counting, layout: &RowLayout, row: RowView<'_>, covering: Tombstone) -> bool {
        self.timestamp = None;
        match LiveRow::new(row, layout, covering, counting.now).plain_values() {
            Some(values) => self.plain_row(row, layout.len(), values),
            None => counting.row(layout, row, covering, self),
        }
    }

    /// Adds a row whose cells all live at its timestamp and do not expire, as nearly all do: the same bytes as
    /// [`Counting::row`], for half of the instructions.
    fn plain_row(&mut self, row: RowView<'_>, columns: usize, values: Values<'_>) -> bool {
        let start = self.material.len();
        let heads = size_of::<i64>() + SHORT_HEAD_BYTES * columns;
        self.material.reserve(row.bytes().len() + heads);
        if let Some(marker) = row.marker {
            self.marker(marker);
        }
        for (id, value) in values {
            self.live_cell(id, row.timestamp, value);
        }
        self.material.len() > start
    }

    /// Adds a simple cell that never expires. Those of one row mostly have one timestamp, which is added once.
    #[inline]
    fn live_cell(&mut self, id: usize, timestamp: i64, value: &[u8]) {
        let is_equally_old = self.timestamp == Some(timestamp);
        let kind = if is_equally_old { EQUALLY_OLD } else { SIMPLE };
        match (u8::try_from(id), u8::try_from(value.len())) {
            // Both are one byte each, nearly always.
            (Ok(id @ ..0x80), Ok(len @ ..0x80)) => self.material.extend_from_slice(&[kind, id, len]),
            _ => {
                self.material.push(kind);
                vint::put_unsigned(&mut self.material, id as u64);
                vint::put_unsigned(&mut self.material, value.len() as u64);
            }
        }
        if !is_equally_old {
            self.timestamp = Some(timestamp);
            self.material.extend_from_slice(&timestamp.to_le_bytes());
        }
        match value.len() {
            ..preempt::STEP_BYTES => self.material.extend_from_slice(value),
            _ => preempt::append(&mut self.material, value),
        }
    }

    fn times(&mut self, ttl: u32, expiry: u32) {
        self.material.push(u8::from(ttl > 0));
        if ttl > 0 {
            self.material.extend_from_slice(&ttl.to_le_bytes());
            self.material.extend_from_slice(&expiry.to_le_bytes());
        }
    }
}

impl Material for Digest {
    #[inline]
    fn deletion(&mut self, tombstone: Tombstone) {
        self.material.push(DELETED);
        self.material.extend_from_slice(&tombstone.timestamp.to_le_bytes());
    }

    #[inline]
    fn marker(&mut self, marker: Liveness) {
        self.material.push(MARKER);
        self.material.extend_from_slice(&marker.timestamp.to_le_bytes());
        self.times(marker.ttl, marker.expiry);
    }

    fn expired_marker(&mut self, tombstone: Tombstone) {
        self.material.push(EXPIRED_MARKER);
        self.deletion(tombstone);
    }

    #[inline]
    fn column(&mut self, id: usize, is_simple: bool) {
        self.material.push(if is_simple { EXPIRING } else { COMPLEX });
        vint::put_unsigned(&mut self.material, id as u64);
    }

    #[inline]
    fn element(&mut self, path: &[u8]) {
        preempt::reserve(&mut self.material, ELEMENT_BYTES + path.len());
        self.material.push(ELEMENT);
        self.sized(path);
    }

    #[inline]
    fn cell(&mut self, cell: &Cell<'_>) {
        self.material.extend_from_slice(&cell.timestamp.to_le_bytes());
        self.times(cell.ttl, cell.deletion_time);
        self.sized(cell.value);
    }

    #[inline]
    fn simple_cell(&mut self, id: usize, cell: &Cell<'_>) {
        if cell.ttl == 0 {
            self.live_cell(id, cell.timestamp, cell.value);
        } else {
            self.column(id, true);
            self.cell(cell);
        }
    }

    #[inline]
    fn taken(&self) -> usize {
        self.material.len()
    }

    #[inline]
    fn give_back(&mut self, taken: usize) {
        self.material.truncate(taken);
    }
}

/// About the bytes of what lives of a row; None when nothing does. Equal wherever the same lives.
pub(crate) fn living(table: &Table, row: RowView<'_>, covering: Tombstone, now: u32) -> Option<usize> {
    let live = LiveRow::new(row, &table.layout, covering, now);
    let mut bytes = live.has_live_marker().then_some(0);
    if let Some(values) = live.plain_values() {
        return values.fold(bytes, |bytes, (_, value)| {
            Some(bytes.unwrap_or(0) + CELL_BYTES + value.len())
        });
    }
    for (_, column) in live.columns() {
        let all = bytes.get_or_insert(0);
        *all += match column {
            LiveColumn::Simple(cell) => CELL_BYTES + cell.value.len(),
            LiveColumn::Complex(elements) => elements
                .map(|(path, cell)| CELL_BYTES + path.len() + cell.value.len())
                .sum(),
        };
    }
    bytes
}

/// What a cell counts for besides its value: its timestamp, and what else it may have.
const CELL_BYTES: usize = 16;

#[cfg(test)]
#[path = "../../../repair/tests/support/random.rs"]
mod random;

#[cfg(test)]
mod tests {
    use super::*;
    use mutation::RowBuilder;
    use mutation::row::Shared;
    use types::CqlType;

    #[test]
    fn cells_that_differ_add_other_bytes() {
        let lengths = [0, 1, 2, 127, 128, 300, 20_000];
        let cells = [0, 1, 127, 128, 300]
            .into_iter()
            .flat_map(|id| lengths.map(|len| (id, vec![7_u8; len])));
        let cells: Vec<(usize, Vec<u8>)> = cells.collect();
        let mut seen = std::collections::BTreeSet::new();
        for (id, value) in &cells {
            for (first, second) in [(5, 5), (5, 6), (6, 5), (6, 6)] {
                let mut digest = Digest::new(false);
                digest.live_cell(*id, first, value);
                digest.live_cell(*id + 1, second, b"");
                assert!(
                    seen.insert(digest.material),
                    "column {id}, {} bytes, {first}, {second}",
                    value.len()
                );
            }
        }
    }

    #[test]
    fn the_timestamp_of_a_row_is_not_that_of_the_row_before() {
        let layout = RowLayout::from_types(&[CqlType::Int]);
        let mut bytes = Vec::new();
        let shared = Shared {
            timestamp: 20,
            ttl: 0,
            expiry: 0,
        };
        let mut row = RowBuilder::begin(&mut bytes, &layout, shared, None, Tombstone::NONE, false, 1);
        row.value(0, &[1, 2, 3, 4]);
        let row = RowView::new(&bytes).expect("a whole row");
        let mut digest = Digest::new(false);
        let mut add = || {
            let start = digest.material.len();
            assert!(digest.row(Counting::EVERYTHING, &layout, row, Tombstone::NONE));
            digest.material[start..].to_vec()
        };
        assert_eq!(add(), add());
    }

    #[test]
    fn a_plain_row_adds_the_same_bytes_as_any_other() {
        let layout = RowLayout::from_types(&[CqlType::Int, CqlType::Blob, CqlType::Blob]);
        let long = [7; 300];
        let values: [&[u8]; 4] = [&[], b"short", &long[..127], &long];
        let marker = Liveness {
            timestamp: 20,
            ttl: 0,
            expiry: 0,
        };
        for (value, marker) in values.into_iter().flat_map(|v| [None, Some(marker)].map(|m| (v, m))) {
            let shared = Shared {
                timestamp: 20,
                ttl: 0,
                expiry: 0,
            };
            let mut bytes = Vec::new();
            let mut row = RowBuilder::begin(&mut bytes, &layout, shared, marker, Tombstone::NONE, false, 3);
            row.value(0, &[1, 2, 3, 4]);
            row.value(2, value);
            let row = RowView::new(&bytes).expect("a whole row");
            for deleted_at in [i64::MIN, 19, 20, 21] {
                let covering = Tombstone {
                    timestamp: deleted_at,
                    deletion_time: 5,
                };
                let counting = Counting::EVERYTHING;
                let (mut plain, mut any) = (Digest::new(false), Digest::new(false));
                let counts = plain.row(counting, &layout, row, covering);
                assert_eq!(counts, counting.row(&layout, row, covering, &mut any));
                assert_eq!(plain.material, any.material, "{} bytes, {deleted_at}", value.len());
                assert_eq!(counts, deleted_at < 20, "{deleted_at}");
            }
        }
    }

    /// Nodes of two releases compare digests: their bytes may not change after the first release.
    #[test]
    fn digests_of_random_partitions_are_those_of_the_first_release() {
        let table = random::table();
        let mut found = Vec::new();
        for is_reversed in [false, true] {
            let mut digest = Digest::new(is_reversed);
            for (_, block) in random::blocks(&table) {
                digest.add(&table, &block, random::NOW);
            }
            found.push(digest.finish(&table.clustering_order, None));
        }
        let mut sum = 0u128;
        for (number, block) in random::blocks(&table) {
            let mut digest = Digest::new(false);
            digest.add(&table, &block, random::NOW);
            sum = sum.rotate_left(1) ^ digest.finish(&table.clustering_order, None).wrapping_add(number);
        }
        found.push(sum);
        assert_eq!(
            found,
            [
                17_997_596_414_388_490_265_253_636_565_586_370_776,
                84_030_647_300_862_477_772_599_459_212_313_525_485,
                53_512_607_811_702_953_084_445_812_038_859_109_123,
            ],
        );
    }
}
