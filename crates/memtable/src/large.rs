//! Large rows: rows above a block, cut into fragments so that a write copies some of them and never the whole row.
//!
//! A fragment is a stretch of the row (`mutation::stretch`), a packed row by itself, in a piece of the arena:
//!
//! ```text
//! fragment: u16 column id, u8 1 when after that cell, vint length and element path; u32 length, packed row; padding
//! stub:     u8 80, u32 number    in place of the packed row of an ordinary row (whose first byte is below 80)
//! ```
//!
//! The bytes before the packed row say where the fragment begins: it holds what is at or after that place, up to where
//! the next one begins. The first begins before everything, has the marker, and is never removed. Each fragment has the
//! row tombstone and the tombstones of complex columns that concern it, so a fragment is merged without looking at
//! another one. One that grows above [`FRAGMENT_BYTES_MAX`] is cut; a value above that has a fragment of its own, so
//! that its neighbours can change without copying it. One that has become small or has no cell left is merged into the
//! one before. Fragments are listed in chunks like the blocks of a partition, found by binary search.

use std::cmp::Ordering;

use mutation::merge::merge_rows;
use mutation::row::Cell;
use mutation::stretch::{self, Fill, Position, Rest, Stretches};
use mutation::{Column, RowView};
use schema::RowLayout;
use stdx::vint;

use crate::Memtable;
use crate::arena::{self, Arena, Handle};
use crate::rows::{BLOCK_BYTES_MAX, CHUNK_BLOCKS_MAX};

/// A fragment whose packed row would grow above this is cut. Less than a block: a merge looks at each of its elements.
const FRAGMENT_BYTES_MAX: usize = 960;
/// A row of more bytes in fragments is long.
const LONG_ROW_BYTES: usize = 64 << 10;
/// Pieces of fragments are padded to a multiple of this, or each class of the arena would keep the pieces that as many
/// fragments have grown out of.
const PIECE_BYTES: usize = 256;

/// First byte of a stub; no flag of a packed row.
const STUB: u8 = 0x80;

/// What is stored in place of a large row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stub(u32);

impl Stub {
    /// Its length.
    pub(crate) const BYTES: usize = 5;

    /// Reads a stub; None when the bytes are a packed row.
    #[inline]
    pub(crate) fn read(row: &[u8]) -> Option<Self> {
        if row[0] & STUB == 0 {
            return None;
        }
        Some(Self::decode(row))
    }

    #[cold]
    fn decode(row: &[u8]) -> Self {
        Self(u32::from_le_bytes([row[1], row[2], row[3], row[4]]))
    }

    pub(crate) fn bytes(self) -> [u8; Self::BYTES] {
        let [a, b, c, d] = self.0.to_le_bytes();
        [STUB, a, b, c, d]
    }
}

/// A fragment's piece, its beginning read.
#[derive(Clone, Copy)]
struct Fragment<'a> {
    start: Position<'a>,
    /// `start` as it is written.
    start_bytes: &'a [u8],
    row: &'a [u8],
}

impl<'a> Fragment<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let (position, start) = read_start(bytes);
        let (row_len, rest) = bytes[start..]
            .split_first_chunk::<4>()
            .expect("the packed row's length follows");
        Self {
            start: position,
            start_bytes: &bytes[..start],
            row: &rest[..u32::from_le_bytes(*row_len) as usize],
        }
    }

    fn row(&self) -> RowView<'a> {
        view(self.row)
    }
}

pub(crate) fn view(row: &[u8]) -> RowView<'_> {
    RowView::new(row).expect("rows in a memtable are well formed")
}

/// A start, and how many bytes it takes.
fn read_start(bytes: &[u8]) -> (Position<'_>, usize) {
    let (len, used) = vint::get_unsigned(&bytes[3..]).expect("a fragment begins with its start");
    let end = 3 + used + len as usize;
    let position = Position {
        id: usize::from(u16::from_le_bytes([bytes[0], bytes[1]])),
        path: &bytes[3 + used..end],
        after: bytes[2] != 0,
    };
    (position, end)
}

fn put_start(out: &mut Vec<u8>, start: &Position<'_>) {
    let id = u16::try_from(start.id).expect("a table has fewer than 65,536 columns");
    out.extend_from_slice(&id.to_le_bytes());
    out.push(u8::from(start.after));
    vint::put_unsigned(out, start.path.len() as u64);
    out.extend_from_slice(start.path);
}

/// Writes a fragment's piece: its start, and the packed row that `pack` appends. Returns where the row begins.
fn write_piece(piece: &mut Vec<u8>, start: impl FnOnce(&mut Vec<u8>), pack: impl FnOnce(&mut Vec<u8>)) -> usize {
    piece.clear();
    start(piece);
    piece.extend_from_slice(&[0; 4]);
    let row = piece.len();
    pack(piece);
    let len = u32::try_from(piece.len() - row).expect("a row is smaller than 4 GiB");
    piece[row - 4..row].copy_from_slice(&len.to_le_bytes());
    row
}

/// Stores a piece in place of `old`, if there is one.
fn put_piece(arena: &mut Arena, old: Option<Handle>, piece: &[u8]) -> Handle {
    // A large value is a piece by itself and has nothing to share.
    let padded = (piece.len() + arena::HEADER).next_multiple_of(PIECE_BYTES) - arena::HEADER;
    let len = if piece.len() > BLOCK_BYTES_MAX {
        piece.len()
    } else {
        padded
    };
    let handle = match old {
        Some(old) => arena.resize(old, len),
        None => arena.allocate(len),
    };
    arena.get_mut(handle)[..piece.len()].copy_from_slice(piece);
    handle
}

/// Buffers that merges reuse.
#[derive(Debug, Default)]
pub(crate) struct LargeScratch {
    piece: Vec<u8>,
    merged: Vec<u8>,
    end: Vec<u8>,
}

/// The fragments of one row.
#[derive(Debug, Default)]
struct Fragments {
    /// Never empty, none of them empty.
    chunks: Vec<Vec<Handle>>,
    /// Lengths of all fragments.
    bytes: usize,
}

/// Chunk and number inside.
type ChunkPosition = (usize, usize);

/// The large rows of a memtable.
#[derive(Debug, Default)]
pub(crate) struct LargeRows {
    rows: Vec<Fragments>,
    vacant: Vec<u32>,
    /// Bytes of all lists of fragments.
    list_bytes: usize,
}

impl LargeRows {
    /// Bytes held outside the arena.
    pub(crate) fn bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Fragments>() + self.vacant.capacity() * size_of::<u32>() + self.list_bytes
    }

    /// Cuts a packed row; None when it is not worth it: a single value, or little besides.
    #[cold]
    pub(crate) fn insert(
        &mut self,
        arena: &mut Arena,
        layout: &RowLayout,
        scratch: &mut LargeScratch,
        row: &[u8],
    ) -> Option<Stub> {
        let row = view(row);
        let cuts = stretch::cuts(row, layout, FRAGMENT_BYTES_MAX, Fill::Full, true);
        if cuts.is_empty() || stretch::cell_count(row, layout) < 2 {
            return None;
        }
        let mut fragments = Fragments::default();
        let mut start = Vec::new();
        put_start(&mut start, &Position::FIRST);
        let handles = fragments.write(arena, layout, &mut scratch.piece, &start, row, &cuts);
        fragments.chunks = handles.chunks(CHUNK_BLOCKS_MAX).map(<[Handle]>::to_vec).collect();
        self.list_bytes += fragments.list_bytes();
        let number = match self.vacant.pop() {
            Some(n) => {
                self.rows[n as usize] = fragments;
                n
            }
            None => {
                self.rows.push(fragments);
                u32::try_from(self.rows.len() - 1).expect("fewer than 2^32 rows")
            }
        };
        Some(Stub(number))
    }

    /// Merges a packed row into a large one. Returns true when that became small: it is then in `out`, not here.
    #[cold]
    pub(crate) fn merge(
        &mut self,
        stub: Stub,
        arena: &mut Arena,
        layout: &RowLayout,
        scratch: &mut LargeScratch,
        row: RowView<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        let fragments = &mut self.rows[stub.0 as usize];
        let before = fragments.list_bytes();
        fragments.merge(arena, layout, scratch, row);
        self.list_bytes = self.list_bytes + fragments.list_bytes() - before;
        if fragments.chunks.len() > 1 || fragments.chunks[0].len() > 1 {
            return false;
        }
        let last = fragments.chunks[0][0];
        let fragment = Fragment::new(arena.get(last));
        if fragment.row().bytes().len() > BLOCK_BYTES_MAX {
            return false;
        }
        out.clear();
        out.extend_from_slice(fragment.row().bytes());
        arena.free(last);
        self.list_bytes -= fragments.list_bytes();
        *fragments = Fragments::default();
        self.vacant.push(stub.0);
        true
    }
}

impl Fragments {
    fn list_bytes(&self) -> usize {
        let lists: usize = self.chunks.iter().map(|c| c.capacity() * size_of::<Handle>()).sum();
        lists + self.chunks.capacity() * size_of::<Vec<Handle>>()
    }

    fn get(&self, place: ChunkPosition) -> Option<Handle> {
        self.chunks.get(place.0)?.get(place.1).copied()
    }

    fn next(&self, (chunk, i): ChunkPosition) -> ChunkPosition {
        if i + 1 < self.chunks[chunk].len() {
            (chunk, i + 1)
        } else {
            (chunk + 1, 0)
        }
    }

    /// The fragment that holds what is at or right after `position`.
    fn locate(&self, arena: &Arena, layout: &RowLayout, position: &Position<'_>) -> ChunkPosition {
        let begins = |h: Handle| Fragment::new(arena.get(h)).start.compare(position, layout) != Ordering::Greater;
        let chunk = self.chunks.partition_point(|c| begins(c[0])).saturating_sub(1);
        let i = self.chunks[chunk].partition_point(|&h| begins(h)).saturating_sub(1);
        (chunk, i)
    }

    /// Writes the stretches of a row between `cuts`, the first of which begins at `start`.
    fn write(
        &mut self,
        arena: &mut Arena,
        layout: &RowLayout,
        piece: &mut Vec<u8>,
        start: &[u8],
        row: RowView<'_>,
        cuts: &[Position<'_>],
    ) -> Vec<Handle> {
        let mut stretches = Stretches::new(row, layout);
        (0..=cuts.len())
            .map(|i| {
                let put_start = |out: &mut Vec<u8>| match i {
                    0 => out.extend_from_slice(start),
                    _ => put_start(out, &cuts[i - 1]),
                };
                let row = write_piece(piece, put_start, |out| {
                    stretches.take(cuts.get(i).copied(), i == 0, out);
                });
                self.bytes += piece.len() - row;
                put_piece(arena, None, piece)
            })
            .collect()
    }

    fn merge(&mut self, arena: &mut Arena, layout: &RowLayout, scratch: &mut LargeScratch, row: RowView<'_>) {
        let mut rest = Stretches::new(row, layout);
        let mut place = match rest.rest() {
            Rest::At(position) if row.marker.is_none() => self.locate(arena, layout, &position),
            Rest::Nothing if row.marker.is_none() => return,
            _ => (0, 0),
        };
        loop {
            // Where the next one begins, kept because merging moves fragments about.
            let next = self.get(self.next(place));
            scratch.end.clear();
            let end = next.map(|h| {
                scratch.end.extend_from_slice(Fragment::new(arena.get(h)).start_bytes);
                read_start(&scratch.end).0
            });
            scratch.piece.clear();
            if rest.take(end, place == (0, 0), &mut scratch.piece) {
                self.merge_fragment(place, arena, layout, &mut scratch.piece, &mut scratch.merged);
            }
            place = match (rest.rest(), end) {
                (Rest::Nothing, _) | (_, None) => return,
                (Rest::Adjacent, Some(end)) => self.locate(arena, layout, &end),
                (Rest::At(position), _) => self.locate(arena, layout, &position),
            };
        }
    }

    /// Merges `piece`, a packed row, into one fragment; then cuts that, or joins it with the one before, if need be.
    fn merge_fragment(
        &mut self,
        place: ChunkPosition,
        arena: &mut Arena,
        layout: &RowLayout,
        piece: &mut Vec<u8>,
        merged: &mut Vec<u8>,
    ) {
        let handle = self.chunks[place.0][place.1];
        let old = Fragment::new(arena.get(handle));
        let row_at = write_piece(
            merged,
            |out| out.extend_from_slice(old.start_bytes),
            |out| merge_rows(layout, old.row(), view(piece), out),
        );
        let (start, row) = (&merged[..row_at - 4], view(&merged[row_at..]));
        let (old_len, len) = (old.row.len(), row.bytes().len());
        let is_first = place == (0, 0);
        if len > FRAGMENT_BYTES_MAX {
            let position = |row| stretch::last_position(row, layout);
            let at_end = match (position(view(piece)), position(old.row())) {
                (Some(new), Some(old)) => new.compare(&old, layout) == Ordering::Greater,
                _ => false,
            };
            let fill = if at_end { Fill::Full } else { Fill::Even };
            let cuts = stretch::cuts(row, layout, FRAGMENT_BYTES_MAX, fill, is_first);
            if !cuts.is_empty() {
                self.bytes -= old_len;
                arena.free(handle);
                let handles = self.write(arena, layout, piece, start, row, &cuts);
                self.splice(place, &handles);
                return;
            }
        } else if !is_first && len < old_len {
            let before = match place {
                (chunk, 0) => (chunk - 1, self.chunks[chunk - 1].len() - 1),
                (chunk, i) => (chunk, i - 1),
            };
            let target = self.chunks[before.0][before.1];
            let have = Fragment::new(arena.get(target));
            let have_len = have.row.len();
            if have_len + len <= FRAGMENT_BYTES_MAX / 2 || stretch::cell_count(row, layout) == 0 {
                let joined_at = write_piece(
                    piece,
                    |out| out.extend_from_slice(have.start_bytes),
                    |out| merge_rows(layout, have.row(), row, out),
                );
                self.bytes = self.bytes + piece.len() - joined_at - have_len - old_len;
                arena.free(handle);
                self.remove(place);
                self.chunks[before.0][before.1] = put_piece(arena, Some(target), piece);
                return;
            }
        }
        self.bytes = self.bytes + len - old_len;
        self.chunks[place.0][place.1] = put_piece(arena, Some(handle), merged);
    }

    fn splice(&mut self, (chunk, i): ChunkPosition, new: &[Handle]) {
        self.chunks[chunk].splice(i..=i, new.iter().copied());
        if self.chunks[chunk].len() > CHUNK_BLOCKS_MAX {
            let all = std::mem::take(&mut self.chunks[chunk]);
            let pieces = all.len().div_ceil(CHUNK_BLOCKS_MAX).max(2);
            let halves = all.chunks(all.len().div_ceil(pieces)).map(<[Handle]>::to_vec);
            self.chunks.splice(chunk..=chunk, halves);
        }
    }

    fn remove(&mut self, (chunk, i): ChunkPosition) {
        self.chunks[chunk].remove(i);
        if self.chunks[chunk].is_empty() {
            self.chunks.remove(chunk);
        }
    }
}

/// A row above a block, borrowed from its memtable in fragments.
#[derive(Clone, Copy)]
pub struct LargeRow<'a> {
    arena: &'a Arena,
    layout: &'a RowLayout,
    fragments: &'a Fragments,
}

impl<'a> LargeRow<'a> {
    /// About the bytes of the packed row.
    pub fn bytes_len(&self) -> usize {
        self.fragments.bytes
    }

    /// Appends the whole packed row.
    pub fn pack(&self, out: &mut Vec<u8>) {
        out.reserve(self.bytes_len());
        let handles = self.fragments.chunks.iter().flatten();
        let rows = handles.map(|&h| Fragment::new(self.arena.get(h)).row());
        stretch::join(rows, self.layout, &|_| true, out);
    }

    /// Appends the packed row with these columns only, marker and tombstone included; other columns are not read.
    pub fn pack_columns(&self, ids: &[u16], out: &mut Vec<u8>) {
        // The first fragment has the marker.
        let mut places: Vec<ChunkPosition> = vec![(0, 0)];
        for &id in ids {
            let column = Position::column(usize::from(id));
            let mut place = self.fragments.locate(self.arena, self.layout, &column);
            loop {
                places.push(place);
                place = self.fragments.next(place);
                let Some(next) = self.fragments.get(place) else { break };
                let start = Fragment::new(self.arena.get(next)).start;
                if start.id != column.id || start == column {
                    break;
                }
            }
        }
        places.sort_unstable();
        places.dedup();
        let rows = places
            .iter()
            .filter_map(|&p| self.fragments.get(p))
            .map(|h| Fragment::new(self.arena.get(h)).row());
        stretch::join(rows, self.layout, &|id| ids.iter().any(|&i| usize::from(i) == id), out);
    }

    /// One element of a complex column, dead or alive, but for what the row's own tombstones cover. Reads one fragment.
    pub fn element(&self, id: u16, path: &[u8]) -> Option<Cell<'a>> {
        let id = usize::from(id);
        let place = self
            .fragments
            .locate(self.arena, self.layout, &Position::element(id, path));
        let row = Fragment::new(self.arena.get(self.fragments.get(place)?)).row();
        let (_, column) = row.columns(self.layout).find(|(i, _)| *i == id)?;
        let Column::Complex(c) = column else { return None };
        let same = |p: &[u8]| self.layout.compare_paths(id, p, path) == Ordering::Equal;
        c.elements().find(|(p, _)| same(p)).map(|(_, cell)| cell)
    }
}

/// A row as its memtable holds it: in one piece, or in fragments.
#[derive(Clone, Copy)]
pub struct RowRef<'a> {
    memtable: &'a Memtable,
    /// The packed row, or a stub.
    row: &'a [u8],
}

impl<'a> RowRef<'a> {
    #[inline]
    pub(crate) fn new(memtable: &'a Memtable, row: &'a [u8]) -> Self {
        Self { memtable, row }
    }

    /// The row, if it is stored in one piece.
    #[inline]
    pub fn packed(&self) -> Option<RowView<'a>> {
        (self.row[0] & STUB == 0).then(|| view(self.row))
    }

    /// The row, if it is stored in fragments.
    pub fn large(&self) -> Option<LargeRow<'a>> {
        let stub = Stub::read(self.row)?;
        Some(LargeRow {
            arena: &self.memtable.arena,
            layout: &self.memtable.layout,
            fragments: &self.memtable.large.rows[stub.0 as usize],
        })
    }

    /// The whole row; a large one is packed into `buffer`, which is emptied for it.
    pub fn view<'b>(&self, buffer: &'b mut Vec<u8>) -> RowView<'b>
    where
        'a: 'b,
    {
        match self.large() {
            None => view(self.row),
            Some(row) => {
                buffer.clear();
                row.pack(buffer);
                view(buffer)
            }
        }
    }

    /// Appends the packed row.
    pub fn pack(&self, out: &mut Vec<u8>) {
        match self.large() {
            None => out.extend_from_slice(self.row),
            Some(row) => row.pack(out),
        }
    }

    /// Appends the packed row with these columns only, marker and tombstone included.
    pub fn pack_columns(&self, ids: &[u16], out: &mut Vec<u8>) {
        match self.large() {
            None => stretch::select(view(self.row), &self.memtable.layout, ids, out),
            Some(row) => row.pack_columns(ids, out),
        }
    }

    /// Whether it takes long to put together: more than a read does in one step.
    pub fn is_long(&self) -> bool {
        self.large().is_some_and(|row| row.bytes_len() > LONG_ROW_BYTES)
    }

    /// Bytes of the packed row, of a large one about.
    pub fn bytes_len(&self) -> usize {
        self.large().map_or(self.row.len(), |row| row.bytes_len())
    }
}
