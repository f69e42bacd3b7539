//! The rows of one partition: blocks of neighbouring rows, each one contiguous piece of the arena.
//!
//! ```text
//! block: u16 count, u16 offset of each entry's end (from the block's start; unused in a block of one), entries
//! entry: vint length, clustering key, packed row to the entry's end
//! ```
//!
//! A block grows to [`BLOCK_BYTES_MAX`], then splits in two. A row above that is a *large row*: it is stored elsewhere,
//! with a stub here ([`crate::large`]); one that consists of a single large value has a block of its own. So an insert
//! or an overwrite copies at most a block, never a partition. A partition with one block names it directly; one with
//! several has a list of them in order, itself in chunks, so that a partition of millions of rows still moves little.

use std::cmp::Ordering;

use mutation::{RowView, merge};
use schema::{ClusteringOrder, RowLayout};
use stdx::vint;

use crate::arena::{Arena, Handle};
use crate::large::{LargeRows, LargeScratch, Stub};

/// A block that would grow above this size splits.
pub const BLOCK_BYTES_MAX: usize = 4096;
/// Blocks named by one chunk of a long list.
pub(crate) const CHUNK_BLOCKS_MAX: usize = 512;

/// The blocks of a partition, in clustering order.
#[derive(Debug)]
pub enum Blocks {
    /// No row yet.
    None,
    /// All rows in one block.
    One(Handle),
    /// Many blocks: chunks of block lists, none of them empty.
    #[expect(
        clippy::box_collection,
        reason = "nearly all partitions have one block: keep their entry at 16 bytes"
    )]
    Many(Box<Vec<Vec<Handle>>>),
}

/// A row's place: number of its chunk and block, and its number inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowPosition {
    pub(crate) chunk: usize,
    pub(crate) block: usize,
    pub(crate) row: usize,
}

/// A block's entries.
#[derive(Clone, Copy)]
pub(crate) struct BlockView<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> BlockView<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            count: usize::from(u16::from_le_bytes([bytes[0], bytes[1]])),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    #[inline]
    fn end(&self, i: usize) -> usize {
        if i + 1 == self.count {
            return self.bytes.len();
        }
        let at = 2 + 2 * i;
        usize::from(u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]))
    }

    #[inline]
    fn start(&self, i: usize) -> usize {
        if i == 0 { 2 + 2 * self.count } else { self.end(i - 1) }
    }

    /// Clustering key and packed row of entry `i`.
    #[inline]
    pub(crate) fn entry(&self, i: usize) -> (&'a [u8], &'a [u8]) {
        let entry = &self.bytes[self.start(i)..self.end(i)];
        let first = entry[0];
        let (len, used) = if first < 0x80 {
            (usize::from(first), 1)
        } else {
            let (len, used) = vint::get_unsigned(entry).expect("an entry begins with its key's length");
            (len as usize, used)
        };
        entry[used..].split_at(len)
    }

    /// The first entry at or after `key`, and whether it is equal.
    #[inline]
    fn search(&self, order: &ClusteringOrder, key: &[u8]) -> (usize, bool) {
        let (mut from, mut to) = (0, self.count);
        while from < to {
            let middle = (from + to) / 2;
            match order.compare(self.entry(middle).0, key) {
                Ordering::Less => from = middle + 1,
                Ordering::Equal => return (middle, true),
                Ordering::Greater => to = middle,
            }
        }
        (from, false)
    }

    /// The first entry for which `before` is false; entries that are before come first.
    fn partition_point(&self, before: impl Fn(&[u8]) -> bool) -> usize {
        let (mut from, mut to) = (0, self.count);
        while from < to {
            let middle = (from + to) / 2;
            if before(self.entry(middle).0) {
                from = middle + 1
            } else {
                to = middle
            }
        }
        from
    }
}

fn entry_len(key: &[u8], row: &[u8]) -> usize {
    vint::unsigned_len(key.len() as u64) + key.len() + row.len()
}

/// Writes a block of the given entries into a piece of the right length.
fn write_block<'a>(out: &mut Vec<u8>, entries: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])>) {
    let count = entries.len();
    out.clear();
    out.extend_from_slice(
        &u16::try_from(count)
            .expect("a block has fewer than 65,536 rows")
            .to_le_bytes(),
    );
    out.resize(2 + 2 * count, 0);
    for (i, (key, row)) in entries.enumerate() {
        vint::put_unsigned(out, key.len() as u64);
        out.extend_from_slice(key);
        out.extend_from_slice(row);
        // The last end is the block's length; a block of one may be longer than 64 KiB.
        if i + 1 < count {
            let end = u16::try_from(out.len()).expect("a block of several rows is at most 4 KiB");
            out[2 + 2 * i..4 + 2 * i].copy_from_slice(&end.to_le_bytes());
        }
    }
}

impl Blocks {
    /// Whether there is more than one.
    pub(crate) const fn has_many_blocks(&self) -> bool {
        matches!(self, Self::Many(_))
    }

    /// Bytes outside the arena.
    pub(crate) fn list_bytes(&self) -> usize {
        match self {
            Self::None | Self::One(_) => 0,
            Self::Many(chunks) => {
                let lists: usize = chunks.iter().map(|c| c.capacity() * size_of::<Handle>()).sum();
                lists + chunks.capacity() * size_of::<Vec<Handle>>()
            }
        }
    }

    fn handle(&self, chunk: usize, block: usize) -> Option<Handle> {
        match self {
            Self::None => None,
            Self::One(h) => (chunk == 0 && block == 0).then_some(*h),
            Self::Many(chunks) => chunks.get(chunk)?.get(block).copied(),
        }
    }

    /// Chunk and block that hold `key`, or where it belongs.
    #[inline]
    fn locate(&self, arena: &Arena, before: impl Fn(&[u8]) -> bool) -> (usize, usize) {
        let Self::Many(chunks) = self else { return (0, 0) };
        let first = |h: Handle| BlockView::new(arena.get(h)).entry(0).0;
        let chunk = chunks.partition_point(|c| before(first(c[0]))).saturating_sub(1);
        let block = chunks[chunk].partition_point(|&h| before(first(h))).saturating_sub(1);
        (chunk, block)
    }

    /// Key and packed row of this clustering key. Keys that are equal may have different bytes.
    #[inline]
    pub(crate) fn find<'a>(
        &self,
        arena: &'a Arena,
        order: &ClusteringOrder,
        key: &[u8],
    ) -> Option<(&'a [u8], &'a [u8])> {
        let (chunk, block) = self.locate(arena, |first| order.compare(first, key) != Ordering::Greater);
        let view = BlockView::new(arena.get(self.handle(chunk, block)?));
        match view.search(order, key) {
            (i, true) => Some(view.entry(i)),
            _ => None,
        }
    }

    /// The first row that is not `before`.
    pub(crate) fn lower_bound(&self, arena: &Arena, before: impl Fn(&[u8]) -> bool) -> RowPosition {
        let (chunk, block) = self.locate(arena, &before);
        let row = match self.handle(chunk, block) {
            Some(h) => BlockView::new(arena.get(h)).partition_point(before),
            None => 0,
        };
        self.normalise(arena, RowPosition { chunk, block, row })
    }

    fn normalise(&self, arena: &Arena, mut p: RowPosition) -> RowPosition {
        while let Some(h) = self.handle(p.chunk, p.block) {
            if p.row < BlockView::new(arena.get(h)).len() {
                break;
            }
            p = RowPosition {
                chunk: p.chunk,
                block: p.block + 1,
                row: 0,
            };
            if let Self::Many(chunks) = self
                && p.block == chunks[p.chunk].len()
            {
                p = RowPosition {
                    chunk: p.chunk + 1,
                    block: 0,
                    row: 0,
                };
            }
        }
        p
    }

    /// Key and row at a place; None after the last.
    #[inline]
    pub(crate) fn get<'a>(&self, arena: &'a Arena, p: RowPosition) -> Option<(&'a [u8], &'a [u8])> {
        let view = BlockView::new(arena.get(self.handle(p.chunk, p.block)?));
        (p.row < view.len()).then(|| view.entry(p.row))
    }

    pub(crate) fn next(&self, arena: &Arena, p: RowPosition) -> RowPosition {
        self.normalise(arena, RowPosition { row: p.row + 1, ..p })
    }

    /// The place before; None at the first row.
    pub(crate) fn previous(&self, arena: &Arena, p: RowPosition) -> Option<RowPosition> {
        if p.row > 0 {
            return Some(RowPosition { row: p.row - 1, ..p });
        }
        let (chunk, block) = if p.block > 0 {
            (p.chunk, p.block - 1)
        } else {
            let Self::Many(chunks) = self else { return None };
            let chunk = p.chunk.checked_sub(1)?;
            (chunk, chunks[chunk].len() - 1)
        };
        let rows = BlockView::new(arena.get(self.handle(chunk, block)?)).len();
        Some(RowPosition {
            chunk,
            block,
            row: rows - 1,
        })
    }

    /// Adds a row, or merges it with the one of equal key. Returns true when the row is new.
    #[inline]
    pub(crate) fn upsert(&mut self, store: &mut Store<'_>, key: &[u8], row: RowView<'_>) -> bool {
        let Store {
            arena,
            large,
            layout,
            order,
            scratch,
        } = store;
        let mut packed = row.bytes();
        if let Self::None = self {
            let stub = large_stub(packed, arena, large, layout, &mut scratch.large);
            if let Some(stub) = &stub {
                packed = stub;
            }
            write_block(&mut scratch.block, [(key, packed)].into_iter());
            let handle = arena.allocate(scratch.block.len());
            arena.get_mut(handle).copy_from_slice(&scratch.block);
            *self = Self::One(handle);
            return true;
        }
        let (chunk, block) = self.locate(arena, |first| order.compare(first, key) != Ordering::Greater);
        let handle = self
            .handle(chunk, block)
            .expect("locate finds a block in a partition that has rows");
        let view = BlockView::new(arena.get(handle));
        let (i, found) = view.search(order, key);
        if found {
            let old = view.entry(i).1;
            if let Some(stub) = Stub::read(old) {
                let became_small = large.merge(stub, arena, layout, &mut scratch.large, row, &mut scratch.row);
                if !became_small {
                    return false;
                }
            } else {
                scratch.row.clear();
                let old_row = RowView::new(old).expect("rows in a memtable are well formed");
                merge::merge_rows(layout, old_row, row, &mut scratch.row);
                if scratch.row.len() == old.len() {
                    let end = view.end(i);
                    let from = end - old.len();
                    arena.get_mut(handle)[from..end].copy_from_slice(&scratch.row);
                    return false;
                }
            }
        }
        let Scratch {
            row: merged,
            block: out,
            large: large_scratch,
        } = scratch;
        if found {
            packed = &merged[..];
        }
        let stub = large_stub(packed, arena, large, layout, large_scratch);
        if let Some(stub) = &stub {
            packed = stub;
        }
        let row = packed;
        let view = BlockView::new(arena.get(handle));
        let kept = usize::from(found);
        let count = view.len() + 1 - kept;
        let old_len = if found {
            entry_len(view.entry(i).0, view.entry(i).1)
        } else {
            0
        };
        let key = if found { view.entry(i).0 } else { key };
        let size = arena.get(handle).len() + entry_len(key, row) - old_len + 2 * (1 - kept);
        let entry = |n: usize| match n.cmp(&i) {
            Ordering::Less => view.entry(n),
            Ordering::Equal => (key, row),
            Ordering::Greater => view.entry(n - 1 + kept),
        };
        if size <= BLOCK_BYTES_MAX || count == 1 {
            write_block(out, (0..count).map(entry));
            let new = arena.resize(handle, out.len());
            arena.get_mut(new).copy_from_slice(out);
            self.replace(chunk, block, new);
            return !found;
        }
        // Split where the bytes halve; an append at the very end leaves the old block full.
        let split = if !found && i == view.len() {
            count - 1
        } else {
            let mut bytes = 0;
            let half = (0..count).find(|&n| {
                bytes += entry_len(entry(n).0, entry(n).1);
                bytes * 2 >= size
            });
            half.map_or(1, |n| n + 1).clamp(1, count - 1)
        };
        // A row that is a block by itself may be among small ones: then the pieces may be three.
        let mut cuts = vec![0, split, count];
        for n in 0..count {
            if entry_len(entry(n).0, entry(n).1) > BLOCK_BYTES_MAX {
                cuts.extend([n, n + 1]);
            }
        }
        cuts.sort_unstable();
        cuts.dedup();
        let mut pieces: Vec<Vec<u8>> = Vec::with_capacity(cuts.len() - 1);
        for cut in cuts.windows(2) {
            let mut piece = Vec::new();
            write_block(&mut piece, (cut[0]..cut[1]).map(entry));
            pieces.push(piece);
        }
        arena.free(handle);
        let handles: Vec<Handle> = pieces
            .iter()
            .map(|piece| {
                let h = arena.allocate(piece.len());
                arena.get_mut(h).copy_from_slice(piece);
                h
            })
            .collect();
        self.splice(chunk, block, &handles);
        !found
    }

    fn replace(&mut self, chunk: usize, block: usize, new: Handle) {
        match self {
            Self::None => {}
            Self::One(h) => *h = new,
            Self::Many(chunks) => chunks[chunk][block] = new,
        }
    }

    fn splice(&mut self, chunk: usize, block: usize, new: &[Handle]) {
        let chunks = match self {
            Self::Many(chunks) => chunks,
            _ => {
                *self = Self::Many(Box::new(vec![new.to_vec()]));
                return;
            }
        };
        chunks[chunk].splice(block..=block, new.iter().copied());
        if chunks[chunk].len() > CHUNK_BLOCKS_MAX {
            let half = chunks[chunk].len() / 2;
            let rest = chunks[chunk].split_off(half);
            chunks.insert(chunk + 1, rest);
        }
    }
}

/// What a block stores for a row that is cut into fragments; None when it stores the row itself.
#[inline]
fn large_stub(
    row: &[u8],
    arena: &mut Arena,
    large: &mut LargeRows,
    layout: &RowLayout,
    scratch: &mut LargeScratch,
) -> Option<[u8; Stub::BYTES]> {
    if row.len() <= BLOCK_BYTES_MAX {
        return None;
    }
    large.insert(arena, layout, scratch, row).map(Stub::bytes)
}

/// Where rows are stored, and what is needed to read them.
pub(crate) struct Store<'m> {
    pub(crate) arena: &'m mut Arena,
    pub(crate) large: &'m mut LargeRows,
    pub(crate) layout: &'m RowLayout,
    pub(crate) order: &'m ClusteringOrder,
    pub(crate) scratch: &'m mut Scratch,
}

/// Buffers that upserts reuse.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) row: Vec<u8>,
    pub(crate) block: Vec<u8>,
    pub(crate) large: LargeScratch,
}
