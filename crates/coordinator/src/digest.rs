//! What two replicas compare instead of their data.
//!
//! A digest is over what lives, the cells that a client would see, with their timestamps and expiries; and over the deletions that
//! hide nothing else of the stretch any more and are younger than the table's grace. Where two replicas agree about what lives, neither
//! holds a deletion that hides a cell of the other's, as it would hide its own; so the merge of both shows the same. But where a client
//! is told that something is gone, as many replicas must know it as the level wants, or the next read sees it again; so deletions
//! count, as long as no replica may have forgotten them: whether it has makes no difference afterwards.

use mutation::{Cell, Column, PartitionBlock, RangeTombstoneList, RowView, Tombstone};
use schema::Table;
use smallvec::SmallVec;
use stdx::vint;
use types::token::murmur3_x64_128;

/// Collects what counts of a stretch, block by block.
#[derive(Default)]
pub(crate) struct Digest {
    material: Vec<u8>,
    /// The partition that the block before belonged to, if anything of it counted.
    key: Option<SmallVec<[u8; 32]>>,
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

/// The second of the read, and that before which deletions do not count.
#[derive(Clone, Copy)]
struct Times {
    now: u32,
    gc_before: u32,
}

impl Times {
    fn counts(self, tombstone: Tombstone) -> bool {
        !tombstone.is_none() && tombstone.deletion_time >= self.gc_before
    }
}

impl Digest {
    /// Adds a block that follows those before.
    pub(crate) fn add(&mut self, table: &Table, block: &PartitionBlock, now: u32) {
        let grace = u32::try_from(table.options.gc_grace_seconds).unwrap_or(0);
        let times = Times {
            now,
            gc_before: now.saturating_sub(grace),
        };
        // More than it takes, mostly: growing step by step costs as much as the rest.
        self.material.reserve(block.size() + 64);
        let is_new = self.key.as_deref() != Some(block.key());
        let before = self.material.len();
        if is_new {
            self.material.push(PARTITION);
            self.sized(block.key());
        }
        let head = self.material.len();
        if is_new {
            self.deletion(block.tombstone, Tombstone::NONE, times);
            if let Some(row) = block.static_row() {
                let start = self.material.len();
                self.material.push(STATIC);
                if !self.row(table, row, block.tombstone, times) {
                    self.material.truncate(start);
                }
            }
        }
        for range in &block.range_tombstones {
            if range.tombstone.supersedes(block.tombstone) && times.counts(range.tombstone) {
                self.material.push(RANGE);
                for bound in [&range.start, &range.end] {
                    self.material.push(bound.kind as u8);
                    self.sized(&bound.prefix);
                }
                self.deletion(range.tombstone, block.tombstone, times);
            }
        }
        let ranges = RangeTombstoneList::from_sorted(block.range_tombstones.clone());
        for (clustering, row) in block.rows() {
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
        if is_new && self.material.len() == head {
            // Nothing of it counts so far: the replica that has never heard of the partition must agree.
            self.material.truncate(before);
        } else {
            self.key = Some(SmallVec::from_slice(block.key()));
        }
    }

    /// The digest, of a stretch that ends here.
    pub(crate) fn finish(mut self, end: &[u8]) -> u128 {
        self.material.push(END);
        self.sized(end);
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
        // One that has expired hides older ones, and is nothing that a client sees: who has an older one that lives still differs.
        let marker = row
            .marker
            .filter(|m| m.is_live(times.now) && !deletion.covers(m.timestamp));
        if let Some(marker) = marker {
            self.material.push(MARKER);
            self.material.extend_from_slice(&marker.timestamp.to_le_bytes());
            self.times(marker.ttl, marker.expiry);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_that_lives_for_ever_adds_the_same_bytes_however_it_is_added() {
        for (id, value) in [(0, vec![]), (1, vec![7; 100]), (300, vec![1; 20_000])] {
            let cell = Cell {
                timestamp: 1_700_000_000_000_000,
                ttl: 0,
                deletion_time: 0,
                dead: false,
                value: &value,
            };
            let mut in_two_steps = Digest::default();
            in_two_steps.live_cell(id, &cell);
            let mut in_seven = Digest::default();
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
