//! What two replicas compare instead of their data.
//!
//! A digest is over what lives, the cells that a client would see, with their timestamps and expiries; and over the deletions that
//! hide nothing else of the stretch any more and are younger than the table's grace. Where two replicas agree about what lives, neither
//! holds a deletion that hides a cell of the other's, as it would hide its own; so the merge of both shows the same. But where a client
//! is told that something is gone, as many replicas must know it as the level wants, or the next read sees it again; so deletions
//! count, as long as no replica may have forgotten them: whether it has makes no difference afterwards.

use mutation::compact::{LiveColumn, LiveRow};
use mutation::{Bound, Cell, Column, PartitionBlock, RangeTombstone, RangeTombstoneList, RowView, Tombstone};
use replica::PlainRow;
use schema::{ClusteringOrder, Table};
use stdx::planted::{self, Bug};
use stdx::vint;
use types::token::murmur3_x64_128;

use crate::message::ReadPosition;

/// Collects what counts of a stretch, block by block.
pub(crate) struct Digest {
    material: Vec<u8>,
    /// Rows count in reading order: a block has them in clustering order, and where it ends is no property of the data.
    is_reversed: bool,
    /// The partition that the block before belonged to.
    partition: Option<OpenPartition>,
}

/// A partition of which more blocks may follow.
struct OpenPartition {
    /// Where the material begins that is of it, where its key begins, and where its content does: behind the key.
    start: usize,
    key_at: usize,
    head: usize,
    /// Range tombstones that count. Where a block ends is no property of the data: those that it cuts are joined again at the end.
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

/// The second of the read, and that before which deletions do not count.
#[derive(Clone, Copy)]
struct Times {
    now: u32,
    gc_before: u32,
}

impl Times {
    fn new(table: &Table, now: u32) -> Self {
        Self {
            now,
            gc_before: table.options.compared_from(now),
        }
    }

    fn counts(self, tombstone: Tombstone) -> bool {
        !tombstone.is_none()
            && tombstone.deletion_time >= self.gc_before
            && !planted::is_planted(Bug::DigestWithoutTombstones)
    }
}

impl Digest {
    /// Of nothing yet.
    pub(crate) fn new(is_reversed: bool) -> Self {
        Self {
            material: Vec::new(),
            is_reversed,
            partition: None,
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
        };
        let times = Times::new(table, now);
        digest.material.push(PARTITION);
        digest.sized(key);
        let head = digest.material.len();
        digest.deletion(row.partition, Tombstone::NONE, times);
        if let Some(view) = row.row {
            let start = digest.material.len();
            digest.material.push(ROW);
            digest.sized(clustering);
            if !digest.row(table, view, row.partition, times) {
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
        let times = Times::new(table, now);
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
            self.deletion(block.tombstone, Tombstone::NONE, times);
            if let Some(row) = block.static_row() {
                let start = self.material.len();
                self.material.push(STATIC);
                if !self.row(table, row, block.tombstone, times) {
                    self.material.truncate(start);
                }
            }
        }
        if let Some(partition) = &mut self.partition {
            let ranges = block.range_tombstones.iter();
            let counts = |r: &&RangeTombstone| r.tombstone.supersedes(block.tombstone) && times.counts(r.tombstone);
            partition.ranges.extend(ranges.filter(counts).cloned());
        }
        let ranges = RangeTombstoneList::from_sorted(block.range_tombstones.clone());
        for n in 0..block.len() {
            let at = if self.is_reversed { block.len() - 1 - n } else { n };
            let (clustering, row) = (block.clustering(at), block.row(at));
            let deletion = block
                .tombstone
                .merge(ranges.covering(&table.clustering_order, clustering));
            let start = self.material.len();
            self.material.push(ROW);
            self.sized(clustering);
            if !self.row(table, row, deletion, times) {
                self.material.truncate(start);
            }
        }
    }

    /// Adds the range tombstones of the partition, or takes it back if nothing of it counts: the replica that has never heard of it must
    /// agree.
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
        let (low, high) = murmur3_x64_128(&self.material, 0);
        u128::from(high) << 64 | u128::from(low)
    }

    fn sized(&mut self, bytes: &[u8]) {
        vint::put_unsigned(&mut self.material, bytes.len() as u64);
        self.material.extend_from_slice(bytes);
    }

    /// Adds a deletion that counts and is stronger than what covers its place.
    fn deletion(&mut self, tombstone: Tombstone, covering: Tombstone, times: Times) {
        if tombstone.supersedes(covering) && times.counts(tombstone) {
            self.material.push(DELETED);
            self.material.extend_from_slice(&tombstone.timestamp.to_le_bytes());
        }
    }

    /// Adds what counts of a row; whether anything does.
    fn row(&mut self, table: &Table, row: RowView<'_>, covering: Tombstone, times: Times) -> bool {
        let before = self.material.len();
        self.deletion(row.tombstone, covering, times);
        let deletion = covering.merge(row.tombstone);
        match row.marker.filter(|m| !deletion.covers(m.timestamp)) {
            Some(marker) if marker.is_live(times.now) => {
                self.material.push(MARKER);
                self.material.extend_from_slice(&marker.timestamp.to_le_bytes());
                self.times(marker.ttl, marker.expiry);
            }
            // One that has expired deletes older ones, since it was written: as a cell does.
            Some(marker) => {
                let tombstone = Tombstone {
                    timestamp: marker.timestamp,
                    deletion_time: marker.expiry.saturating_sub(marker.ttl),
                };
                let start = self.material.len();
                // The same deletion by itself is another thing: it also hides cells.
                self.material.push(EXPIRED_MARKER);
                self.deletion(tombstone, Tombstone::NONE, times);
                if self.material.len() == start + 1 {
                    self.material.truncate(start);
                }
            }
            None => {}
        }
        for (id, column) in row.columns(&table.layout) {
            if table.layout.is_dropped(id) {
                continue;
            }
            if let Column::Simple(cell) = &column
                && cell.ttl == 0
                && cell.is_live(times.now)
                && !deletion.covers(cell.timestamp)
            {
                self.live_cell(id, cell);
                continue;
            }
            let start = self.material.len();
            self.material.push(if matches!(column, Column::Simple(_)) {
                SIMPLE
            } else {
                COMPLEX
            });
            vint::put_unsigned(&mut self.material, id as u64);
            let head = self.material.len();
            match column {
                Column::Simple(cell) => self.cell(&cell, deletion, times),
                Column::Complex(complex) => {
                    self.deletion(complex.tombstone, deletion, times);
                    let deletion = deletion.merge(complex.tombstone);
                    for (path, cell) in complex.elements() {
                        let start = self.material.len();
                        self.material.push(ELEMENT);
                        self.sized(path);
                        let head = self.material.len();
                        self.cell(&cell, deletion, times);
                        if self.material.len() == head {
                            self.material.truncate(start);
                        }
                    }
                }
            }
            if self.material.len() == head {
                self.material.truncate(start);
            }
        }
        self.material.len() > before
    }

    /// Adds a simple cell that lives for ever: the same bytes as those that [`Digest::cell`] adds, in two steps instead of seven.
    fn live_cell(&mut self, id: usize, cell: &Cell<'_>) {
        let (id, len) = (id as u64, cell.value.len() as u64);
        if let (Ok(id @ ..0x80), Ok(len @ ..0x80)) = (u8::try_from(id), u8::try_from(len)) {
            // Both are one byte each, nearly always.
            let mut head = [0; 1 + 1 + 8 + 1 + 1];
            (head[0], head[1], head[11]) = (SIMPLE, id, len);
            head[2..10].copy_from_slice(&cell.timestamp.to_le_bytes());
            self.material.extend_from_slice(&head);
            self.material.extend_from_slice(cell.value);
            return;
        }
        let mut head = [0; 1 + 9 + 8 + 1 + 9];
        head[0] = SIMPLE;
        let timestamp_at = 1 + vint::unsigned_len(id);
        vint::write_unsigned(&mut head[1..timestamp_at], id);
        head[timestamp_at..timestamp_at + 8].copy_from_slice(&cell.timestamp.to_le_bytes());
        let len_at = timestamp_at + 9;
        let end = len_at + vint::unsigned_len(len);
        vint::write_unsigned(&mut head[len_at..end], len);
        self.material.extend_from_slice(&head[..end]);
        self.material.extend_from_slice(cell.value);
    }

    /// Adds a cell that lives, or its deletion; one that has expired was deleted when it was written.
    fn cell(&mut self, cell: &Cell<'_>, deletion: Tombstone, times: Times) {
        if deletion.covers(cell.timestamp) {
            return;
        }
        if cell.is_live(times.now) {
            self.material.extend_from_slice(&cell.timestamp.to_le_bytes());
            self.times(cell.ttl, cell.deletion_time);
            self.sized(cell.value);
            return;
        }
        let tombstone = Tombstone {
            timestamp: cell.timestamp,
            deletion_time: if cell.dead {
                cell.deletion_time
            } else {
                cell.deletion_time.saturating_sub(cell.ttl)
            },
        };
        self.deletion(tombstone, Tombstone::NONE, times);
    }

    fn times(&mut self, ttl: u32, expiry: u32) {
        self.material.push(u8::from(ttl > 0));
        if ttl > 0 {
            self.material.extend_from_slice(&ttl.to_le_bytes());
            self.material.extend_from_slice(&expiry.to_le_bytes());
        }
    }
}

/// About the bytes of what lives of a row; None when nothing does. Equal wherever the same lives.
pub(crate) fn living(table: &Table, row: RowView<'_>, covering: Tombstone, now: u32) -> Option<usize> {
    let live = LiveRow::new(row, &table.layout, covering, now);
    let mut bytes = live.has_live_marker().then_some(0);
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
mod tests {
    use super::*;

    #[test]
    fn a_cell_that_lives_for_ever_adds_the_same_bytes_however_it_is_added() {
        for (id, value) in [
            (0, vec![]),
            (1, vec![7; 100]),
            (127, vec![7; 127]),
            (127, vec![7; 128]),
            (128, vec![7; 127]),
            (300, vec![1; 20_000]),
        ] {
            let cell = Cell {
                timestamp: 1_700_000_000_000_000,
                ttl: 0,
                deletion_time: 0,
                dead: false,
                value: &value,
            };
            let mut in_two_steps = Digest::new(false);
            in_two_steps.live_cell(id, &cell);
            let mut in_seven = Digest::new(false);
            in_seven.material.push(SIMPLE);
            vint::put_unsigned(&mut in_seven.material, id as u64);
            let times = Times { now: 1, gc_before: 0 };
            in_seven.cell(&cell, Tombstone::NONE, times);
            assert_eq!(
                in_two_steps.material,
                in_seven.material,
                "column {id}, {} bytes",
                value.len()
            );
        }
    }
}
