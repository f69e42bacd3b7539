//! One partition of a memtable, to read.

use mutation::{Bound, ClusteringSlice, PartitionBlock, RangeTombstone, Tombstone};
use schema::ClusteringOrder;
use std::cmp::Ordering;
use types::Token;

use crate::rows::RowPosition;
use crate::{Memtable, Partition, RowRef};

/// A partition, borrowed from its memtable.
#[derive(Clone, Copy)]
pub struct PartitionRef<'a> {
    memtable: &'a Memtable,
    partition: &'a Partition,
    token: Token,
}

impl<'a> PartitionRef<'a> {
    pub(crate) fn new(memtable: &'a Memtable, token: Token, number: u32) -> Self {
        Self {
            memtable,
            partition: &memtable.partitions[number as usize],
            token,
        }
    }

    /// Its token.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Its serialised key.
    pub fn key(&self) -> &'a [u8] {
        self.memtable.arena.get(self.partition.key)
    }

    /// Whether it may have anything besides rows: deletions or a static row.
    #[inline]
    pub fn has_extras(&self) -> bool {
        self.partition.extras.is_some()
    }

    /// Deletes everything older in it.
    #[inline]
    pub fn tombstone(&self) -> Tombstone {
        self.partition.extras.as_ref().map_or(Tombstone::NONE, |e| e.tombstone)
    }

    /// Its static row.
    pub fn static_row(&self) -> Option<RowRef<'a>> {
        let extras = self.partition.extras.as_ref()?;
        if extras.static_row.is_none() {
            return None;
        }
        Some(RowRef::new(self.memtable, self.memtable.arena.get(extras.static_row)))
    }

    /// Its range tombstones.
    pub fn range_tombstones(&self) -> &'a [RangeTombstone] {
        self.partition.extras.as_ref().map_or(&[], |e| e.ranges.as_slice())
    }

    /// The strongest of the partition and range tombstones over a row.
    #[inline]
    pub fn deletion_of(&self, clustering: &[u8]) -> Tombstone {
        match &self.partition.extras {
            None => Tombstone::NONE,
            Some(e) => e.tombstone.merge(e.ranges.covering(&self.memtable.order, clustering)),
        }
    }

    /// Whether its rows fill more than one block.
    pub fn has_many_rows(&self) -> bool {
        self.partition.rows.has_many_blocks()
    }

    /// The row with that whole clustering key.
    #[inline]
    pub fn row(&self, clustering: &[u8]) -> Option<RowRef<'a>> {
        self.named_row(clustering).map(|(_, row)| row)
    }

    /// The row with that whole clustering key, and its key as it was written first: `1.0` and `1.00` are one row.
    #[inline]
    pub fn named_row(&self, clustering: &[u8]) -> Option<(&'a [u8], RowRef<'a>)> {
        let Self {
            partition, memtable, ..
        } = self;
        let (name, bytes) = partition.rows.find(&memtable.arena, &memtable.order, clustering)?;
        Some((name, RowRef::new(memtable, bytes)))
    }

    /// Whether there is a row with that clustering key that takes long to put together.
    pub fn has_long_row(&self, clustering: &[u8]) -> bool {
        self.row(clustering).is_some_and(|row| row.is_long())
    }

    fn order(&self) -> &'a ClusteringOrder {
        &self.memtable.order
    }

    /// The first row after a bound.
    fn behind(&self, bound: &Bound) -> RowPosition {
        let order = self.order();
        self.partition.rows.lower_bound(&self.memtable.arena, |key| {
            bound.compare_key(order, key) == Ordering::Greater
        })
    }

    /// The rows of a slice, ascending, or descending when `reversed`.
    pub fn rows(&self, slice: &ClusteringSlice, reversed: bool) -> Rows<'a> {
        let (start, end) = (self.behind(&slice.start), self.behind(&slice.end));
        let next = if reversed {
            if start == end {
                None
            } else {
                self.partition.rows.previous(&self.memtable.arena, end)
            }
        } else {
            (start != end).then_some(start)
        };
        let next = if slice.is_empty(self.order()) { None } else { next };
        Rows {
            partition: *self,
            next,
            stop: if reversed { start } else { end },
            reversed,
        }
    }

    /// Copies the rows of a slice, at most `rows_max` of them and about `bytes_max` bytes, with the deletions over
    /// them; rows ascend in the block even when `reversed` takes them from the end.
    ///
    /// If a block is cut short, `covered` is the bound after its last row, or before its first one when reversed.
    /// Static row and partition tombstone are always there.
    pub fn block(&self, slice: &ClusteringSlice, reversed: bool, rows_max: usize, bytes_max: usize) -> PartitionBlock {
        let mut block = PartitionBlock::with_room(self.token, self.key(), 256, 1);
        block.tombstone = self.tombstone();
        if let Some(row) = self.static_row() {
            block.set_static_row(row.view(&mut Vec::new()).bytes());
        }
        let mut bytes = 0;
        let mut covered = slice.clone();
        if reversed {
            let mut taken: Vec<(&[u8], RowRef<'_>)> = Vec::new();
            for (key, row) in self.rows(slice, true) {
                if taken.len() == rows_max || bytes > bytes_max {
                    let last = taken.last().map_or_else(Bound::top, |(k, _)| Bound::before(k));
                    covered.start = last.clone();
                    block.covered = Some(last);
                    break;
                }
                bytes += key.len() + row.bytes_len();
                taken.push((key, row));
            }
            for (key, row) in taken.iter().rev() {
                push_row(&mut block, key, *row);
            }
        } else {
            for (key, row) in self.rows(slice, false) {
                if block.len() == rows_max || bytes > bytes_max {
                    let last = if block.has_no_rows() {
                        slice.start.clone()
                    } else {
                        Bound::after(block.clustering(block.len() - 1))
                    };
                    covered.end = last.clone();
                    block.covered = Some(last);
                    break;
                }
                bytes += key.len() + row.bytes_len();
                push_row(&mut block, key, row);
            }
        }
        if let Some(extras) = &self.partition.extras {
            block.range_tombstones = extras.ranges.within(self.order(), &covered).collect();
        }
        block
    }
}

fn push_row(block: &mut PartitionBlock, key: &[u8], row: RowRef<'_>) {
    block.push_row_with(key, |out| {
        row.pack(out);
        true
    });
}

/// Iterator over the rows of a slice.
pub struct Rows<'a> {
    partition: PartitionRef<'a>,
    next: Option<RowPosition>,
    /// Forward: the place after the last row. Reversed: the last row to return.
    stop: RowPosition,
    reversed: bool,
}

impl<'a> Iterator for Rows<'a> {
    type Item = (&'a [u8], RowRef<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.next?;
        let rows = &self.partition.partition.rows;
        let arena = &self.partition.memtable.arena;
        let (key, row) = rows.get(arena, at)?;
        self.next = if self.reversed {
            if at == self.stop {
                None
            } else {
                rows.previous(arena, at)
            }
        } else {
            Some(rows.next(arena, at)).filter(|&p| p != self.stop)
        };
        Some((key, RowRef::new(self.partition.memtable, row)))
    }
}
