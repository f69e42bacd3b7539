//! A mutation: what one statement changes in one partition, as the bytes that the log keeps and replicas receive.
//!
//! ```text
//! [u8; 16] table id, vint length and partition key, then items until the end:
//!   1  partition tombstone  i64 timestamp, u32 deletion time
//!   2  static row           vint length and packed row
//!   3  row                  vint length and clustering key, vint length and packed row
//!   4  range tombstone      twice (u8 side: 0 before, 1 after; vint length and prefix),
//!                           i64 timestamp, u32 deletion time
//! ```

use schema::{RowLayout, TableId};
use stdx::vint;
use uuid::Uuid;

use crate::bound::{Bound, BoundKind};
use crate::{RangeTombstone, RowError, RowView, Tombstone};

const PARTITION_TOMBSTONE: u8 = 1;
const STATIC_ROW: u8 = 2;
const ROW: u8 = 3;
const RANGE_TOMBSTONE: u8 = 4;
/// More than a short row takes.
const ROWS_BYTES: usize = 256;

/// A packed mutation, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Mutation<'a> {
    /// The table it belongs to.
    pub table: TableId,
    /// Serialised partition key.
    pub key: &'a [u8],
    bytes: &'a [u8],
    items: usize,
}

/// One change of a mutation.
#[derive(Clone, Debug)]
pub enum MutationItem<'a> {
    /// Deletes the partition.
    Partition(Tombstone),
    /// Changes the static row.
    StaticRow(&'a [u8]),
    /// Changes a row.
    Row {
        /// Serialised clustering key.
        clustering: &'a [u8],
        /// Packed row.
        row: &'a [u8],
    },
    /// Deletes the rows between two bounds.
    Range(RangeTombstone),
}

fn take<'a>(bytes: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (piece, rest) = bytes.split_at_checked(n)?;
    *bytes = rest;
    Some(piece)
}

#[inline]
fn sized<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let &first = bytes.first()?;
    let (n, used) = if first < 0x80 {
        (u64::from(first), 1)
    } else {
        vint::get_unsigned(bytes)?
    };
    *bytes = bytes.get(used..)?;
    take(bytes, usize::try_from(n).ok()?)
}

fn tombstone(bytes: &mut &[u8]) -> Option<Tombstone> {
    let timestamp = i64::from_le_bytes(take(bytes, 8)?.try_into().ok()?);
    let deletion_time = u32::from_le_bytes(take(bytes, 4)?.try_into().ok()?);
    Some(Tombstone {
        timestamp,
        deletion_time,
    })
}

fn bound(bytes: &mut &[u8]) -> Option<Bound> {
    let kind = match take(bytes, 1)?[0] {
        0 => BoundKind::Before,
        1 => BoundKind::After,
        _ => return None,
    };
    Some(Bound {
        prefix: sized(bytes)?.into(),
        kind,
    })
}

impl<'a> Mutation<'a> {
    /// Reads table and key. None when the bytes are cut short.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = bytes;
        let table = TableId(Uuid::from_bytes(take(&mut rest, 16)?.try_into().ok()?));
        let key = sized(&mut rest)?;
        Some(Self {
            table,
            key,
            bytes,
            items: bytes.len() - rest.len(),
        })
    }

    /// A mutation whose bytes were read before.
    #[inline]
    pub(crate) fn from_parts(table: TableId, key: &'a [u8], bytes: &'a [u8], items: usize) -> Self {
        Self {
            table,
            key,
            bytes,
            items,
        }
    }

    /// Where the changes begin in its bytes: right after the key.
    #[inline]
    pub(crate) fn items_at(&self) -> usize {
        self.items
    }

    /// The bytes it was read from.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The changes in the order they were made.
    #[inline]
    pub fn items(&self) -> Items<'a> {
        Items {
            rest: &self.bytes[self.items..],
        }
    }

    /// Whether it brings data: a row marker, a value or an element. A mutation that only deletes brings none.
    #[must_use]
    pub fn adds_data(&self, layout: &RowLayout) -> bool {
        self.items().any(|item| match item {
            MutationItem::Partition(_) | MutationItem::Range(_) => false,
            MutationItem::StaticRow(row) | MutationItem::Row { row, .. } => {
                // Bytes that are no row count as data: the caller refuses them rather than takes them.
                RowView::new(row).is_none_or(|row| row.adds_data(layout))
            }
        })
    }

    /// Checks every byte; done once for mutations from a disk or a peer.
    pub fn validate(&self, layout: &RowLayout) -> Result<(), RowError> {
        let mut items = self.items();
        loop {
            let at = self.bytes.len() - items.rest.len();
            stdx::preempt::point();
            match items.next() {
                Some(MutationItem::StaticRow(row) | MutationItem::Row { row, .. }) => {
                    RowView::validate(row, layout).map_err(|e| RowError { at: at + e.at, ..e })?;
                }
                Some(_) => {}
                None if items.rest.is_empty() => return Ok(()),
                None => {
                    return Err(RowError {
                        at,
                        expected: "a whole mutation item",
                    });
                }
            }
        }
    }
}

/// Iterator over the changes of a mutation; ends early where the bytes are malformed.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    rest: &'a [u8],
}

impl<'a> Items<'a> {
    fn read(rest: &mut &'a [u8]) -> Option<MutationItem<'a>> {
        Some(match take(rest, 1)?[0] {
            PARTITION_TOMBSTONE => MutationItem::Partition(tombstone(rest)?),
            STATIC_ROW => MutationItem::StaticRow(sized(rest)?),
            ROW => MutationItem::Row {
                clustering: sized(rest)?,
                row: sized(rest)?,
            },
            RANGE_TOMBSTONE => {
                let (start, end) = (bound(rest)?, bound(rest)?);
                MutationItem::Range(RangeTombstone {
                    start,
                    end,
                    tombstone: tombstone(rest)?,
                })
            }
            _ => return None,
        })
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = MutationItem<'a>;

    #[inline]
    fn next(&mut self) -> Option<MutationItem<'a>> {
        let mut rest = self.rest;
        let item = Self::read(&mut rest)?;
        self.rest = rest;
        Some(item)
    }
}

/// Packs a mutation into a buffer.
pub struct MutationBuilder<'b> {
    out: &'b mut Vec<u8>,
}

impl<'b> MutationBuilder<'b> {
    /// Begins a mutation at the end of `out`.
    #[inline]
    pub fn begin(out: &'b mut Vec<u8>, table: TableId, key: &[u8]) -> Self {
        out.extend_from_slice(table.0.as_bytes());
        vint::put_unsigned(out, key.len() as u64);
        out.extend_from_slice(key);
        Self { out }
    }

    /// Continues the mutation that ends `out`.
    pub(crate) fn go_on(out: &'b mut Vec<u8>) -> Self {
        Self { out }
    }

    /// How many bytes the mutation has, with what was in the buffer before it.
    pub const fn bytes(&self) -> usize {
        self.out.len()
    }

    fn tombstone(&mut self, t: Tombstone) {
        self.out.extend_from_slice(&t.timestamp.to_le_bytes());
        self.out.extend_from_slice(&t.deletion_time.to_le_bytes());
    }

    /// Deletes the partition.
    pub fn partition_tombstone(&mut self, t: Tombstone) {
        self.out.push(PARTITION_TOMBSTONE);
        self.tombstone(t);
    }

    /// Changes the static row; `pack` appends the packed row.
    pub fn static_row(&mut self, pack: impl FnOnce(&mut Vec<u8>)) {
        self.out.push(STATIC_ROW);
        self.sized(pack);
    }

    /// Makes room for a row or more: a buffer that grows is copied, here with preemption points.
    pub fn reserve_rows(&mut self) {
        stdx::preempt::reserve(self.out, ROWS_BYTES);
    }

    /// Changes a row; `pack` appends the packed row.
    #[inline]
    pub fn row(&mut self, clustering: &[u8], pack: impl FnOnce(&mut Vec<u8>)) {
        self.out.push(ROW);
        vint::put_unsigned(self.out, clustering.len() as u64);
        self.out.extend_from_slice(clustering);
        self.sized(pack);
    }

    /// Deletes the rows between two bounds.
    pub fn range_tombstone(&mut self, r: &RangeTombstone) {
        self.out.push(RANGE_TOMBSTONE);
        for b in [&r.start, &r.end] {
            self.out.push(u8::from(b.kind == BoundKind::After));
            vint::put_unsigned(self.out, b.prefix.len() as u64);
            self.out.extend_from_slice(&b.prefix);
        }
        self.tombstone(r.tombstone);
    }

    /// Appends what `pack` writes with its length before it. The length is a vint of two bytes at first guess, moved
    /// when the row turns out to need another width.
    #[inline]
    fn sized(&mut self, pack: impl FnOnce(&mut Vec<u8>)) {
        const GUESS: usize = 2;
        let at = self.out.len();
        self.out.extend_from_slice(&[0; GUESS]);
        pack(self.out);
        let len = self.out.len() - at - GUESS;
        let width = vint::unsigned_len(len as u64);
        if width != GUESS {
            let end = at + GUESS + len;
            self.out.resize(end.max(at + width + len), 0);
            self.out.copy_within(at + GUESS..end, at + width);
            self.out.truncate(at + width + len);
        }
        vint::write_unsigned(&mut self.out[at..at + width], len as u64);
    }
}
