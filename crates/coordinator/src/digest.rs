//! What two replicas compare instead of their data.
//!
//! A digest is over what lives: the cells that a client would see, with their timestamps and expiries. Where two replicas agree
//! about that, neither holds a deletion that hides a cell of the other's, as it would hide its own; so the merge of both shows the
//! same, and it does not matter which deletions each has forgotten already.

use mutation::compact::{LiveColumn, LiveRow};
use mutation::{Cell, PartitionBlock, RangeTombstoneList, RowView, Tombstone};
use schema::Table;
use stdx::vint;
use types::token::murmur3_x64_128;

/// Collects what lives of a stretch, block by block.
#[derive(Default)]
pub(crate) struct Digest {
    material: Vec<u8>,
    /// The partition that the block before belonged to had a living row, or a living static row.
    key: Option<Vec<u8>>,
}

const PARTITION: u8 = 1;
const STATIC: u8 = 2;
const ROW: u8 = 3;
const MARKER: u8 = 4;
const SIMPLE: u8 = 5;
const COMPLEX: u8 = 6;
const ELEMENT: u8 = 7;
const END: u8 = 8;

impl Digest {
    /// Adds a block that follows those before.
    pub(crate) fn add(&mut self, table: &Table, block: &PartitionBlock, now: u32) {
        let is_new = self.key.as_deref() != Some(block.key());
        let before = self.material.len();
        if is_new {
            self.material.push(PARTITION);
            self.sized(block.key());
        }
        let head = self.material.len();
        if is_new && let Some(row) = block.static_row() {
            self.material.push(STATIC);
            self.row(table, row, block.tombstone, now);
        }
        let ranges = RangeTombstoneList::from_sorted(block.range_tombstones.clone());
        for (clustering, row) in block.rows() {
            let deletion = block
                .tombstone
                .merge(ranges.covering(&table.clustering_order, clustering));
            let start = self.material.len();
            self.material.push(ROW);
            self.sized(clustering);
            if !self.row(table, row, deletion, now) {
                self.material.truncate(start);
            }
        }
        if is_new && self.material.len() == head {
            // Nothing of it lives so far: the replica that has never heard of the partition must agree.
            self.material.truncate(before);
        } else {
            self.key = Some(block.key().to_vec());
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

    /// Adds what lives of a row; whether anything does.
    fn row(&mut self, table: &Table, row: RowView<'_>, deletion: Tombstone, now: u32) -> bool {
        let live = LiveRow::new(row, &table.layout, deletion, now);
        let before = self.material.len();
        if let Some(marker) = row.marker.filter(|_| live.has_live_marker()) {
            self.material.push(MARKER);
            self.material.extend_from_slice(&marker.timestamp.to_le_bytes());
            self.times(marker.ttl, marker.expiry);
        }
        for (id, column) in live.columns() {
            match column {
                LiveColumn::Simple(cell) => {
                    self.material.push(SIMPLE);
                    vint::put_unsigned(&mut self.material, id as u64);
                    self.cell(&cell);
                }
                LiveColumn::Complex(elements) => {
                    self.material.push(COMPLEX);
                    vint::put_unsigned(&mut self.material, id as u64);
                    for (path, cell) in elements {
                        self.material.push(ELEMENT);
                        self.sized(path);
                        self.cell(&cell);
                    }
                }
            }
        }
        self.material.len() > before
    }

    fn cell(&mut self, cell: &Cell<'_>) {
        self.material.extend_from_slice(&cell.timestamp.to_le_bytes());
        self.times(cell.ttl, cell.deletion_time);
        self.sized(cell.value);
    }

    fn times(&mut self, ttl: u32, expiry: u32) {
        self.material.push(u8::from(ttl > 0));
        if ttl > 0 {
            self.material.extend_from_slice(&ttl.to_le_bytes());
            self.material.extend_from_slice(&expiry.to_le_bytes());
        }
    }
}
