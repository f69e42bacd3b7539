//! Packs rows.

use schema::{CellLayout, RowLayout};
use stdx::vint;

use super::{
    Cell, CellFlags, Complex, ELEMENT_HEAD_BYTES_MAX, HEADER, Liveness, MANY_ELEMENTS, MARKER, MARKER_OWN, MIXED,
    TOMBSTONE, TTL,
};
use crate::Tombstone;

/// Packs a row into a buffer. Columns come in ascending id order.
///
/// `begin` fixes what the whole row shares. A row whose cells all live at that timestamp is packed with
/// `mixed = false`, and then only [`RowBuilder::value`] may be called; otherwise any cell may be given.
pub struct RowBuilder<'b> {
    out: &'b mut Vec<u8>,
    layout: &'b RowLayout,
    timestamp: i64,
    ttl: u32,
    expiry: u32,
    mixed: bool,
    presence: usize,
}

/// What a row shares among its cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shared {
    /// Client write timestamp, microseconds.
    pub timestamp: i64,
    /// Seconds; 0 is forever.
    pub ttl: u32,
    /// Seconds since the epoch; meaningful when `ttl > 0`.
    pub expiry: u32,
}

impl<'b> RowBuilder<'b> {
    /// Appends a row of nothing: no marker, no deletion, no cell.
    pub fn put_empty(out: &mut Vec<u8>) {
        let shared = Shared {
            timestamp: 0,
            ttl: 0,
            expiry: 0,
        };
        RowBuilder::begin(out, &RowLayout::default(), shared, None, Tombstone::NONE, false, 0);
    }

    /// Writes the header. `columns` is one more than the largest column id that will be given.
    #[inline]
    pub fn begin(
        out: &'b mut Vec<u8>,
        layout: &'b RowLayout,
        shared: Shared,
        marker: Option<Liveness>,
        tombstone: Tombstone,
        mixed: bool,
        columns: usize,
    ) -> Self {
        let Shared { timestamp, ttl, expiry } = shared;
        let mut flags = 0;
        let mut own = None;
        if ttl > 0 {
            flags |= TTL;
        }
        if let Some(m) = marker {
            flags |= MARKER;
            if m.timestamp != timestamp || m.ttl != ttl || (m.ttl > 0 && m.expiry != expiry) {
                flags |= MARKER_OWN;
                own = Some(m);
            }
        }
        if !tombstone.is_none() {
            flags |= TOMBSTONE;
        }
        if mixed {
            flags |= MIXED;
        }
        out.reserve(HEADER + 32);
        out.push(flags);
        out.extend_from_slice(&timestamp.to_le_bytes());
        if ttl > 0 {
            out.extend_from_slice(&ttl.to_le_bytes());
            out.extend_from_slice(&expiry.to_le_bytes());
        }
        if let Some(m) = own {
            vint::put_signed(out, m.timestamp.wrapping_sub(timestamp));
            vint::put_unsigned(out, u64::from(m.ttl));
            if m.ttl > 0 {
                out.extend_from_slice(&m.expiry.to_le_bytes());
            }
        }
        if !tombstone.is_none() {
            out.extend_from_slice(&tombstone.timestamp.to_le_bytes());
            out.extend_from_slice(&tombstone.deletion_time.to_le_bytes());
        }
        let n = columns.div_ceil(8);
        out.push(u8::try_from(n).expect("a table has at most 2,040 columns"));
        let presence = out.len();
        out.resize(presence + n, 0);
        Self {
            out,
            layout,
            timestamp,
            ttl,
            expiry,
            mixed,
            presence,
        }
    }

    #[inline]
    fn mark(&mut self, id: usize) {
        self.out[self.presence + id / 8] |= 1 << (id % 8);
    }

    /// A live cell at the shared timestamp and ttl.
    #[inline]
    pub fn value(&mut self, id: usize, value: &[u8]) {
        self.mark(id);
        let layout = self.layout.cell(id);
        if self.mixed {
            let mut flags = if self.ttl > 0 { CellFlags::ROW_TTL } else { 0 };
            if value.is_empty() && matches!(layout, CellLayout::Fixed(_)) {
                flags |= CellFlags::EMPTY;
            }
            self.out.push(flags);
        }
        self.put_value(layout, value);
    }

    #[inline]
    fn put_value(&mut self, layout: CellLayout, value: &[u8]) {
        if let CellLayout::Fixed(n) = layout {
            debug_assert!(value.len() == usize::from(n) || (self.mixed && value.is_empty()));
        } else {
            vint::put_unsigned(self.out, value.len() as u64);
        }
        self.out.extend_from_slice(value);
    }

    /// Any simple cell; the row must have been begun as mixed unless the cell shares all of the row's state.
    pub fn cell(&mut self, id: usize, cell: &Cell<'_>) {
        self.mark(id);
        let layout = self.layout.cell(id);
        if !self.mixed {
            debug_assert!(!needs_mixed(cell, layout, self.timestamp, self.ttl, self.expiry));
            self.put_value(layout, cell.value);
            return;
        }
        let empty = matches!(layout, CellLayout::Fixed(_)) && cell.value.is_empty();
        self.cell_head(cell, empty && !cell.dead);
        if !cell.dead && !empty {
            self.put_value(layout, cell.value);
        }
    }

    #[inline]
    fn cell_head(&mut self, cell: &Cell<'_>, empty: bool) {
        let mut flags = 0;
        if empty {
            flags |= CellFlags::EMPTY;
        }
        if cell.timestamp != self.timestamp {
            flags |= CellFlags::OWN_TS;
        }
        if cell.dead {
            flags |= CellFlags::DEAD;
        } else if cell.ttl > 0 {
            let shared = cell.ttl == self.ttl && cell.deletion_time == self.expiry;
            flags |= if shared { CellFlags::ROW_TTL } else { CellFlags::TTL };
        }
        self.out.push(flags);
        if flags & CellFlags::OWN_TS != 0 {
            vint::put_signed(self.out, cell.timestamp.wrapping_sub(self.timestamp));
        }
        if flags & CellFlags::TTL != 0 {
            self.out.extend_from_slice(&cell.ttl.to_le_bytes());
        }
        if flags & (CellFlags::TTL | CellFlags::DEAD) != 0 {
            self.out.extend_from_slice(&cell.deletion_time.to_le_bytes());
        }
    }

    /// A multi-cell column: `elements` in path order, as many as the iterator gives.
    pub fn complex<'e>(
        &mut self,
        id: usize,
        tombstone: Tombstone,
        elements: impl Iterator<Item = (&'e [u8], Cell<'e>)> + Clone,
    ) {
        let bytes_of =
            |(count, bytes), (path, cell): (&[u8], Cell<'_>)| (count + 1, bytes + path.len() + cell.value.len());
        let (count, bytes) = elements.clone().fold((0, 0), bytes_of);
        if count >= MANY_ELEMENTS {
            stdx::preempt::reserve(self.out, bytes + ELEMENT_HEAD_BYTES_MAX * count);
        }
        let at = self.begin_complex(id, tombstone, count);
        for (path, cell) in elements {
            self.element(path, &cell);
            stdx::preempt::point();
        }
        self.end_complex(at);
    }

    /// Begins a multi-cell column of `count` elements; returns what [`RowBuilder::end_complex`] wants to know.
    pub(crate) fn begin_complex(&mut self, id: usize, tombstone: Tombstone, count: usize) -> usize {
        self.mark(id);
        let len_at = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        if tombstone.is_none() {
            self.out.push(0);
        } else {
            self.out.push(1);
            self.out.extend_from_slice(&tombstone.timestamp.to_le_bytes());
            self.out.extend_from_slice(&tombstone.deletion_time.to_le_bytes());
        }
        vint::put_unsigned(self.out, count as u64);
        len_at
    }

    #[inline]
    fn element(&mut self, path: &[u8], cell: &Cell<'_>) {
        self.cell_head(cell, false);
        vint::put_unsigned(self.out, path.len() as u64);
        self.out.extend_from_slice(path);
        if !cell.dead {
            vint::put_unsigned(self.out, cell.value.len() as u64);
            self.out.extend_from_slice(cell.value);
        }
    }

    /// Further elements of the column that was begun: bytes as they are if their row shares the same.
    pub(crate) fn extend_complex(&mut self, part: &Complex<'_>) {
        let same = part.timestamp == self.timestamp && part.ttl == self.ttl && part.expiry == self.expiry;
        if same {
            stdx::preempt::append(self.out, part.elements);
        } else {
            // A count that a peer sent may be anything.
            let count = part.count.min(part.elements.len());
            stdx::preempt::reserve(self.out, part.elements.len() + ELEMENT_HEAD_BYTES_MAX * count);
            for (path, cell) in part.elements() {
                self.element(path, &cell);
                stdx::preempt::point();
            }
        }
    }

    /// Ends the column that `begin_complex` began at `len_at`.
    pub(crate) fn end_complex(&mut self, len_at: usize) {
        let len = u32::try_from(self.out.len() - len_at - 4).expect("a row is smaller than 4 GiB");
        self.out[len_at..len_at + 4].copy_from_slice(&len.to_le_bytes());
    }
}

/// Whether a cell differs from what its row shares, so that the row must be packed as mixed.
#[inline]
pub(crate) fn needs_mixed(cell: &Cell<'_>, layout: CellLayout, timestamp: i64, ttl: u32, expiry: u32) -> bool {
    cell.dead
        || cell.timestamp != timestamp
        || cell.ttl != ttl
        || (ttl > 0 && cell.deletion_time != expiry)
        || (cell.value.is_empty() && matches!(layout, CellLayout::Fixed(_)))
}
