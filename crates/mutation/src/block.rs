//! A stretch of one partition, as sources hand it to readers, flushes and compactions.
//!
//! All bytes (key, clustering keys, packed rows) are in one buffer; the rest are spans into it. A large partition comes
//! as several blocks: `covered` is the bound up to which this one is complete, and the next continues from there.

use schema::{ClusteringOrder, TableId};
use types::Token;

use crate::range_tombstones::covering;
use crate::{Bound, MutationBuilder, RangeTombstone, RowView, Tombstone};

/// A piece of a block's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// Length in bytes.
    pub len: u32,
}

/// One partition, or a part of it: rows in clustering order, with the deletions that cover them.
#[derive(Clone, Debug)]
pub struct PartitionBlock {
    /// The partition's token.
    pub token: Token,
    /// Deletes everything older in the partition.
    pub tombstone: Tombstone,
    /// Sorted and disjoint; those of this stretch, cut at its bounds.
    pub range_tombstones: Vec<RangeTombstone>,
    /// None: the partition ends here. Some: rows after this bound come in the next block.
    pub covered: Option<Bound>,
    bytes: Vec<u8>,
    key: Span,
    static_row: Option<Span>,
    rows: Vec<(Span, Span)>,
}

impl PartitionBlock {
    /// Appends the mutation that makes the block.
    pub fn pack(&self, table: TableId, out: &mut Vec<u8>) {
        let mut builder = MutationBuilder::begin(out, table, self.key());
        if !self.tombstone.is_none() {
            builder.partition_tombstone(self.tombstone);
        }
        if let Some(row) = self.static_row() {
            builder.static_row(|out| stdx::preempt::append(out, row.bytes()));
        }
        for (clustering, row) in self.rows() {
            builder.row(clustering, |out| stdx::preempt::append(out, row.bytes()));
        }
        for range in &self.range_tombstones {
            builder.range_tombstone(range);
        }
    }

    /// A partition without rows.
    pub fn new(token: Token, key: &[u8]) -> Self {
        Self::with_room(token, key, 256, 0)
    }

    /// Makes an empty block with capacity for so many bytes besides the key and for so many rows.
    pub fn with_room(token: Token, key: &[u8], bytes: usize, rows: usize) -> Self {
        let mut block = Self {
            token,
            tombstone: Tombstone::NONE,
            range_tombstones: Vec::new(),
            covered: None,
            bytes: Vec::with_capacity(key.len() + bytes),
            key: Span { start: 0, len: 0 },
            static_row: None,
            rows: Vec::with_capacity(rows),
        };
        block.key = block.put(key);
        block
    }

    fn put(&mut self, bytes: &[u8]) -> Span {
        let start = u32::try_from(self.bytes.len()).expect("a block is smaller than 4 GiB");
        stdx::preempt::append(&mut self.bytes, bytes);
        Span {
            start,
            len: u32::try_from(bytes.len()).expect("a block is smaller than 4 GiB"),
        }
    }

    #[inline]
    fn get(&self, span: Span) -> &[u8] {
        &self.bytes[span.start as usize..span.start as usize + span.len as usize]
    }

    /// The serialised partition key.
    pub fn key(&self) -> &[u8] {
        self.get(self.key)
    }

    /// The strongest of the partition and range tombstones over a row.
    #[inline]
    pub fn deletion_of(&self, order: &ClusteringOrder, clustering: &[u8]) -> Tombstone {
        if self.range_tombstones.is_empty() {
            return self.tombstone;
        }
        self.tombstone.merge(self.range_deletion_of(order, clustering))
    }

    /// The range tombstone over a row, or none.
    pub fn range_deletion_of(&self, order: &ClusteringOrder, clustering: &[u8]) -> Tombstone {
        covering(&self.range_tombstones, order, clustering)
    }

    /// The static row's packed bytes.
    pub fn static_row(&self) -> Option<RowView<'_>> {
        self.static_row.and_then(|s| RowView::new(self.get(s)))
    }

    /// Sets the static row.
    pub fn set_static_row(&mut self, row: &[u8]) {
        self.static_row = Some(self.put(row));
    }

    /// Forgets the static row.
    pub fn clear_static_row(&mut self) {
        self.static_row = None;
    }

    /// Appends a row, which must sort after all rows before it.
    pub fn push_row(&mut self, clustering: &[u8], row: &[u8]) {
        let c = self.put(clustering);
        let r = self.put(row);
        self.rows.push((c, r));
    }

    /// Appends a row that `pack` writes straight into the block's buffer; if it returns false nothing is kept.
    pub fn push_row_with(&mut self, clustering: &[u8], pack: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
        let before = self.bytes.len();
        let c = self.put(clustering);
        let start = self.bytes.len();
        if !pack(&mut self.bytes) {
            self.bytes.truncate(before);
            return false;
        }
        let end = u32::try_from(self.bytes.len()).expect("a block is smaller than 4 GiB");
        let start = u32::try_from(start).expect("a block is smaller than 4 GiB");
        self.rows.push((
            c,
            Span {
                start,
                len: end - start,
            },
        ));
        true
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no row; deletions there may be.
    pub fn has_no_rows(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether nothing at all is here: no row, no deletion.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
            && self.static_row.is_none()
            && self.tombstone.is_none()
            && self.range_tombstones.is_empty()
    }

    /// Clustering key of row `i`.
    #[inline]
    pub fn clustering(&self, i: usize) -> &[u8] {
        self.get(self.rows[i].0)
    }

    /// Packed row `i`.
    #[inline]
    pub fn row(&self, i: usize) -> RowView<'_> {
        RowView::new(self.get(self.rows[i].1)).expect("rows are validated where they enter a block")
    }

    /// All rows with their clustering keys.
    pub fn rows(&self) -> impl Iterator<Item = (&[u8], RowView<'_>)> {
        (0..self.rows.len()).map(|i| (self.clustering(i), self.row(i)))
    }

    /// Bytes held.
    pub fn size(&self) -> usize {
        self.bytes.capacity() + self.rows.capacity() * size_of::<(Span, Span)>()
    }
}
