//! The packed row: one row of a partition, or its static row, as one string of bytes.
//!
//! ```text
//! u8   flags          MARKER 01, TTL 02, TOMBSTONE 04, MIXED 08, MARKER_OWN 10
//! i64  timestamp      shared by the marker and every cell that does not say otherwise (little endian, as all here)
//! TTL:        u32 ttl, u32 expiry          shared likewise
//! MARKER_OWN: vint delta to timestamp (signed), vint ttl, u32 expiry when ttl > 0
//! TOMBSTONE:  i64 timestamp, u32 deletion time
//! u8   n, n bytes     presence: bit i of byte j says that column 8j+i has a cell
//! cells, in column id order:
//!   simple  MIXED: u8 cell flags, then what they announce; always: value, in place when the type has a fixed width,
//!           else vint length and bytes
//!   complex u32 length of what follows, u8 1 when a tombstone (i64, u32) follows, vint count, elements in path order:
//!           u8 cell flags and what they announce, vint length and path, vint length and value
//! cell flags: DEAD 01 (u32 deletion time, no value), TTL 02 (u32 ttl, u32 expiry), OWN_TS 04 (signed vint delta),
//!             EMPTY 08 (a fixed width value that is empty), ROW_TTL 10 (expires with the row)
//! ```
//!
//! A plain INSERT of n blobs costs 10 bytes, n/8 bits and a length byte per cell. Without MIXED every cell is alive at
//! the shared timestamp and expires with the shared ttl. Widths come from the table's [`RowLayout`], whose column ids
//! are never reused, so ALTER rewrites nothing. Readers of bytes that come from a disk or a peer call
//! [`RowView::validate`] once; after that a malformed row is a bug.

mod builder;

use schema::{CellLayout, RowLayout};
use stdx::vint;

use crate::Tombstone;
use crate::dates::written_second;

pub(crate) use builder::needs_mixed;
pub use builder::{RowBuilder, Shared};

pub(crate) const MARKER: u8 = 0x01;
pub(crate) const TTL: u8 = 0x02;
pub(crate) const TOMBSTONE: u8 = 0x04;
pub(crate) const MIXED: u8 = 0x08;
pub(crate) const MARKER_OWN: u8 = 0x10;
const ROW_FLAGS: u8 = 0x1f;
const HEADER: usize = 9;
/// What an element may take besides its path and value: flags, timestamp, times of its expiry, two lengths.
pub const ELEMENT_HEAD_BYTES_MAX: usize = 32;
/// The buffer grows once for so many elements: it is copied in one step when it grows.
pub const MANY_ELEMENTS: usize = 1024;

/// What distinguishes a cell from its row's shared state.
pub struct CellFlags;

impl CellFlags {
    /// A tombstone of one cell.
    pub const DEAD: u8 = 0x01;
    /// The cell has its own ttl.
    pub const TTL: u8 = 0x02;
    /// The cell has its own timestamp.
    pub const OWN_TS: u8 = 0x04;
    /// A value of zero bytes in a column of fixed width.
    pub const EMPTY: u8 = 0x08;
    /// The cell expires with the row's ttl.
    pub const ROW_TTL: u8 = 0x10;
    const ALL: u8 = 0x1f;
}

/// Timestamp and expiry of a row marker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Liveness {
    /// Client write timestamp, microseconds.
    pub timestamp: i64,
    /// Seconds; 0 is forever.
    pub ttl: u32,
    /// Seconds since the epoch at which it expires; meaningful when `ttl > 0`.
    pub expiry: u32,
}

impl Liveness {
    /// Whether it still lives at `now` (seconds).
    #[inline]
    pub fn is_live(&self, now: u32) -> bool {
        self.ttl == 0 || self.expiry > now
    }

    /// The second in which it was written, if it expires: once expired it counts as a deletion made then.
    #[must_use]
    pub fn written_second(&self) -> u32 {
        written_second(self.ttl, self.expiry)
    }
}

/// One cell, unpacked: borrowed value, absolute times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell<'a> {
    /// Client write timestamp, microseconds.
    pub timestamp: i64,
    /// Seconds; 0 when it does not expire.
    pub ttl: u32,
    /// A tombstone's deletion time or an expiring cell's expiry, seconds since the epoch; 0 when neither.
    pub deletion_time: u32,
    /// Whether this is a tombstone.
    pub dead: bool,
    /// Serialised value, empty for a tombstone.
    pub value: &'a [u8],
}

impl Cell<'_> {
    /// Whether it still lives at `now` (seconds).
    #[inline]
    pub fn is_live(&self, now: u32) -> bool {
        !self.dead && (self.ttl == 0 || self.deletion_time > now)
    }

    /// Of a tombstone, the second of the deletion; of a cell that expires, the second in which it was written: once
    /// expired it counts as a deletion made then.
    #[must_use]
    pub fn deleted_second(&self) -> u32 {
        if self.dead {
            self.deletion_time
        } else {
            written_second(self.ttl, self.deletion_time)
        }
    }
}

/// What a row holds of one column.
#[derive(Clone, Copy, Debug)]
pub enum Column<'a> {
    /// An atomic value.
    Simple(Cell<'a>),
    /// The elements of a multi-cell column.
    Complex(Complex<'a>),
}

/// The elements of a multi-cell column in one row.
#[derive(Clone, Copy, Debug)]
pub struct Complex<'a> {
    /// Deletes the elements written before.
    pub tombstone: Tombstone,
    /// How many elements follow.
    pub count: usize,
    elements: &'a [u8],
    timestamp: i64,
    ttl: u32,
    expiry: u32,
}

impl<'a> Complex<'a> {
    /// A complex column without elements.
    pub fn empty() -> Self {
        Self {
            tombstone: Tombstone::NONE,
            count: 0,
            elements: &[],
            timestamp: 0,
            ttl: 0,
            expiry: 0,
        }
    }

    /// The elements in path order: path and cell.
    pub fn elements(&self) -> Elements<'a> {
        Elements {
            cursor: Cursor {
                bytes: self.elements,
                at: 0,
            },
            left: self.count,
            timestamp: self.timestamp,
            ttl: self.ttl,
            expiry: self.expiry,
        }
    }

    /// The least and the greatest write timestamp of the elements; None without elements. Passes over paths and values.
    pub(crate) fn timestamps(&self) -> Option<(i64, i64)> {
        let mut cursor = Cursor {
            bytes: self.elements,
            at: 0,
        };
        let (mut least, mut greatest, mut any) = (i64::MAX, i64::MIN, false);
        for _ in 0..self.count {
            let Some(timestamp) = cursor.pass_element(self.timestamp) else {
                break;
            };
            (least, greatest, any) = (least.min(timestamp), greatest.max(timestamp), true);
        }
        any.then_some((least, greatest))
    }
}

/// Iterator over the elements of a complex column.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    cursor: Cursor<'a>,
    left: usize,
    timestamp: i64,
    ttl: u32,
    expiry: u32,
}

impl<'a> Iterator for Elements<'a> {
    type Item = (&'a [u8], Cell<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        stdx::preempt::point();
        let c = &mut self.cursor;
        let mut cell = c.cell_head(c.peek_flags()?, self.timestamp, self.ttl, self.expiry)?;
        let path = c.sized()?;
        if !cell.dead {
            cell.value = c.sized()?;
        }
        Some((path, cell))
    }
}

/// Why bytes are not a packed row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowError {
    /// Offset inside the row.
    pub at: usize,
    /// What was expected there.
    pub expected: &'static str,
}

impl std::fmt::Display for RowError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "packed row: expected {} at byte {}", self.expected, self.at)
    }
}

impl std::error::Error for RowError {}

/// A cursor whose reads return None past the end.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(n)?;
        let piece = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(piece)
    }

    #[inline]
    fn u8(&mut self) -> Option<u8> {
        let b = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(b)
    }

    #[inline]
    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    #[inline]
    fn i64(&mut self) -> Option<i64> {
        Some(i64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    #[inline]
    fn vint(&mut self) -> Option<u64> {
        let &first = self.bytes.get(self.at)?;
        if first < 0x80 {
            self.at += 1;
            return Some(u64::from(first));
        }
        let (v, n) = vint::get_unsigned(&self.bytes[self.at..])?;
        self.at += n;
        Some(v)
    }

    #[inline]
    fn signed_vint(&mut self) -> Option<i64> {
        let v = self.vint()?;
        Some((v >> 1) as i64 ^ -((v & 1) as i64))
    }

    #[inline]
    fn sized(&mut self) -> Option<&'a [u8]> {
        let n = usize::try_from(self.vint()?).ok()?;
        self.take(n)
    }

    #[inline]
    fn peek_flags(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Reads a cell's flag byte and what it announces, all but the value.
    #[inline]
    fn cell_head(&mut self, flags: u8, timestamp: i64, ttl: u32, expiry: u32) -> Option<Cell<'a>> {
        self.at += 1;
        let mut cell = Cell {
            timestamp,
            ttl: 0,
            deletion_time: 0,
            dead: false,
            value: &[],
        };
        if flags & CellFlags::OWN_TS != 0 {
            cell.timestamp = timestamp.wrapping_add(self.signed_vint()?);
        }
        if flags & CellFlags::DEAD != 0 {
            cell.dead = true;
            cell.deletion_time = self.u32()?;
        } else if flags & CellFlags::TTL != 0 {
            cell.ttl = self.u32()?;
            cell.deletion_time = self.u32()?;
        } else if flags & CellFlags::ROW_TTL != 0 {
            cell.ttl = ttl;
            cell.deletion_time = expiry;
        }
        Some(cell)
    }

    /// Passes over an element of a complex column; its write timestamp.
    #[inline]
    fn pass_element(&mut self, shared: i64) -> Option<i64> {
        let flags = self.u8()?;
        let mut timestamp = shared;
        if flags & CellFlags::OWN_TS != 0 {
            timestamp = shared.wrapping_add(self.signed_vint()?);
        }
        if flags & CellFlags::DEAD != 0 {
            self.take(4)?;
            self.sized()?;
            return Some(timestamp);
        }
        if flags & CellFlags::TTL != 0 {
            self.take(8)?;
        }
        self.sized()?;
        self.sized()?;
        Some(timestamp)
    }
}

/// A packed row, its header read.
#[derive(Clone, Copy, Debug)]
pub struct RowView<'a> {
    bytes: &'a [u8],
    flags: u8,
    /// Shared timestamp.
    pub timestamp: i64,
    /// Shared ttl, 0 when none.
    pub ttl: u32,
    /// Shared expiry.
    pub expiry: u32,
    /// The row marker, left by INSERT.
    pub marker: Option<Liveness>,
    /// The row tombstone, [`Tombstone::NONE`] when there is none.
    pub tombstone: Tombstone,
    presence: &'a [u8],
    cells: usize,
}

impl<'a> RowView<'a> {
    /// Reads the header. None when the bytes are cut short.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let flags = *bytes.first()?;
        let mut c = Cursor { bytes, at: 1 };
        let timestamp = c.i64()?;
        let (mut ttl, mut expiry) = (0, 0);
        if flags & TTL != 0 {
            ttl = c.u32()?;
            expiry = c.u32()?;
        }
        let mut marker = None;
        if flags & MARKER != 0 {
            marker = Some(Liveness { timestamp, ttl, expiry });
            if flags & MARKER_OWN != 0 {
                let timestamp = timestamp.wrapping_add(c.signed_vint()?);
                let ttl = u32::try_from(c.vint()?).ok()?;
                let expiry = if ttl > 0 { c.u32()? } else { 0 };
                marker = Some(Liveness { timestamp, ttl, expiry });
            }
        }
        let mut tombstone = Tombstone::NONE;
        if flags & TOMBSTONE != 0 {
            tombstone = Tombstone {
                timestamp: c.i64()?,
                deletion_time: c.u32()?,
            };
        }
        let n = usize::from(c.u8()?);
        let presence = c.take(n)?;
        Some(Self {
            bytes,
            flags,
            timestamp,
            ttl,
            expiry,
            marker,
            tombstone,
            presence,
            cells: c.at,
        })
    }

    /// The bytes it was read from.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether every cell is alive at the shared timestamp and expires with the shared ttl, and no tombstone is here.
    #[inline]
    pub fn is_uniform(&self) -> bool {
        self.flags & (TOMBSTONE | MIXED | MARKER_OWN) == 0
    }

    /// The least write timestamp of anything in the row: what the row shares is only that of most of its cells.
    #[inline]
    pub fn min_timestamp(&self, layout: &RowLayout) -> i64 {
        if self.is_uniform() && !layout.has_complex() {
            return self.timestamp;
        }
        self.min_timestamp_of_all(layout)
    }

    #[cold]
    fn min_timestamp_of_all(&self, layout: &RowLayout) -> i64 {
        let mut least = self.timestamp;
        self.each_timestamp(layout, |timestamp| least = least.min(timestamp));
        least
    }

    /// The greatest write timestamp of anything in the row, deletions included.
    pub fn max_timestamp(&self, layout: &RowLayout) -> i64 {
        let mut greatest = i64::MIN;
        self.each_timestamp(layout, |timestamp| greatest = greatest.max(timestamp));
        greatest
    }

    /// Gives the write timestamps of all that is in the row; of the elements of a column, the least and the greatest.
    fn each_timestamp(&self, layout: &RowLayout, mut see: impl FnMut(i64)) {
        if !self.tombstone.is_none() {
            see(self.tombstone.timestamp);
        }
        self.marker.iter().for_each(|marker| see(marker.timestamp));
        for (_, column) in self.columns(layout) {
            match column {
                Column::Simple(cell) => see(cell.timestamp),
                Column::Complex(complex) => {
                    if !complex.tombstone.is_none() {
                        see(complex.tombstone.timestamp);
                    }
                    if let Some((least, greatest)) = complex.timestamps() {
                        see(least);
                        see(greatest);
                    }
                }
            }
        }
    }

    /// Whether each simple cell says how it differs from what the row shares.
    pub(crate) fn is_mixed(&self) -> bool {
        self.flags & MIXED != 0
    }

    /// What the row shares among its cells.
    pub(crate) fn shared(&self) -> Shared {
        Shared {
            timestamp: self.timestamp,
            ttl: self.ttl,
            expiry: self.expiry,
        }
    }

    /// The bitmap of present columns.
    #[inline]
    pub fn presence(&self) -> &'a [u8] {
        self.presence
    }

    /// Whether neither marker, tombstone nor cell is here.
    pub fn is_empty(&self) -> bool {
        self.marker.is_none() && self.tombstone.is_none() && self.presence.iter().all(|&b| b == 0)
    }

    /// Whether it brings data: a row marker, a value or an element. A row that only deletes brings none.
    #[must_use]
    pub fn adds_data(&self, layout: &'a RowLayout) -> bool {
        self.marker.is_some()
            || self.columns(layout).any(|(_, column)| match column {
                Column::Simple(cell) => !cell.dead,
                Column::Complex(complex) => complex.elements().any(|(_, cell)| !cell.dead),
            })
    }

    /// The present columns in id order.
    #[inline]
    pub fn columns(&self, layout: &'a RowLayout) -> Columns<'a> {
        Columns {
            cursor: Cursor {
                bytes: self.bytes,
                at: self.cells,
            },
            layout,
            present: Present::new(self.presence),
            mixed: self.flags & MIXED != 0,
            timestamp: self.timestamp,
            ttl: self.ttl,
            expiry: self.expiry,
        }
    }

    /// The values of a uniform row ([`RowView::is_uniform`]) by column id: as [`RowView::columns`], without the checks
    /// that only other rows need. Ends before a multi-cell column and before what is malformed.
    #[inline]
    pub fn values(&self, layout: &'a RowLayout) -> Values<'a> {
        debug_assert!(self.is_uniform(), "cells have flags of their own");
        Values {
            cursor: Cursor {
                bytes: self.bytes,
                at: self.cells,
            },
            layout,
            present: Present::new(self.presence),
        }
    }

    /// Checks that every byte is accounted for. Done once for bytes that come from a disk or a peer.
    pub fn validate(bytes: &[u8], layout: &RowLayout) -> Result<(), RowError> {
        let err = |at, expected| Err(RowError { at, expected });
        if bytes.first().is_some_and(|f| f & !ROW_FLAGS != 0) {
            return err(0, "known row flags");
        }
        let Some(view) = RowView::new(bytes) else {
            return err(0, "a whole row header");
        };
        if view.is_uniform() {
            let mut values = view.values(layout);
            values.by_ref().for_each(drop);
            if values.is_at_end() {
                debug_assert_eq!(view.validate_columns(layout), Ok(()));
                return Ok(());
            }
        }
        view.validate_columns(layout)
    }

    fn validate_columns(&self, layout: &RowLayout) -> Result<(), RowError> {
        let err = |at, expected| Err(RowError { at, expected });
        let mut columns = self.columns(layout);
        while let Some(id) = columns.peek_id() {
            let at = columns.cursor.at;
            if layout.cell(id) == CellLayout::Unknown {
                return err(at, "a column that the table has or had");
            }
            let flags = columns.cursor.peek_flags();
            if columns.mixed
                && layout.cell(id) != CellLayout::Complex
                && flags.is_some_and(|f| f & !CellFlags::ALL != 0)
            {
                return err(at, "known cell flags");
            }
            match columns.next() {
                Some((_, Column::Complex(c))) => {
                    let mut elements = c.elements();
                    let mut last: Option<&[u8]> = None;
                    let mut n = 0;
                    for (path, _) in elements.by_ref() {
                        if last.is_some_and(|l| layout.compare_paths(id, l, path).is_ge()) {
                            return err(at, "elements in path order");
                        }
                        last = Some(path);
                        n += 1;
                    }
                    if n != c.count || elements.cursor.at != elements.cursor.bytes.len() {
                        return err(at, "as many elements as counted");
                    }
                }
                Some(_) => {}
                None => return err(at, "a whole cell"),
            }
        }
        if columns.cursor.at != self.bytes.len() {
            return err(columns.cursor.at, "the end of the row");
        }
        Ok(())
    }
}

/// The ids of the present columns that are still to be read.
#[derive(Clone, Debug)]
struct Present<'a> {
    presence: &'a [u8],
    byte: usize,
    /// Of this byte, those still to be read.
    bits: u8,
}

impl<'a> Present<'a> {
    #[inline]
    fn new(presence: &'a [u8]) -> Self {
        Self {
            presence,
            byte: 0,
            bits: presence.first().copied().unwrap_or(0),
        }
    }

    /// The next one.
    #[inline]
    fn peek(&mut self) -> Option<usize> {
        while self.bits == 0 {
            self.byte += 1;
            self.bits = *self.presence.get(self.byte)?;
        }
        Some(self.byte * 8 + self.bits.trailing_zeros() as usize)
    }

    /// Passes over the one that was peeked at.
    #[inline]
    fn pass(&mut self) {
        self.bits &= self.bits - 1;
    }
}

/// Iterator over the present columns of a row, in id order.
#[derive(Clone, Debug)]
pub struct Columns<'a> {
    cursor: Cursor<'a>,
    layout: &'a RowLayout,
    present: Present<'a>,
    mixed: bool,
    timestamp: i64,
    ttl: u32,
    expiry: u32,
}

impl<'a> Columns<'a> {
    /// The id of the column that `next` will return.
    #[inline]
    pub fn peek_id(&mut self) -> Option<usize> {
        self.present.peek()
    }

    // On the way of every read from memory, and called by `next` alone: as a call it costs a tenth of the whole.
    #[inline(always)]
    fn read(&mut self, id: usize) -> Option<Column<'a>> {
        let width = self.layout.cell(id);
        if width == CellLayout::Complex {
            return self.read_complex();
        }
        let c = &mut self.cursor;
        let mut cell = Cell {
            timestamp: self.timestamp,
            ttl: self.ttl,
            deletion_time: self.expiry,
            dead: false,
            value: &[],
        };
        let mut empty = false;
        if self.mixed {
            let flags = c.peek_flags()?;
            cell = c.cell_head(flags, self.timestamp, self.ttl, self.expiry)?;
            empty = flags & CellFlags::EMPTY != 0;
        }
        if !cell.dead && !empty {
            cell.value = match width {
                CellLayout::Fixed(n) => c.take(usize::from(n))?,
                _ => c.sized()?,
            };
        }
        Some(Column::Simple(cell))
    }

    #[cold]
    fn read_complex(&mut self) -> Option<Column<'a>> {
        let len = self.cursor.u32()? as usize;
        let mut body = Cursor {
            bytes: self.cursor.take(len)?,
            at: 0,
        };
        let mut tombstone = Tombstone::NONE;
        if body.u8()? != 0 {
            tombstone = Tombstone {
                timestamp: body.i64()?,
                deletion_time: body.u32()?,
            };
        }
        let count = usize::try_from(body.vint()?).ok()?;
        Some(Column::Complex(Complex {
            tombstone,
            count,
            elements: body.bytes.get(body.at..)?,
            timestamp: self.timestamp,
            ttl: self.ttl,
            expiry: self.expiry,
        }))
    }
}

impl<'a> Iterator for Columns<'a> {
    type Item = (usize, Column<'a>);

    // A call costs a third of what it does.
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let id = self.present.peek()?;
        self.present.pass();
        let column = self.read(id)?;
        Some((id, column))
    }
}

/// Iterator over the values of a uniform row, in id order.
#[derive(Clone, Debug)]
pub struct Values<'a> {
    cursor: Cursor<'a>,
    layout: &'a RowLayout,
    present: Present<'a>,
}

impl Values<'_> {
    /// Whether every byte of the row was read.
    fn is_at_end(&mut self) -> bool {
        self.present.peek().is_none() && self.cursor.at == self.cursor.bytes.len()
    }
}

impl<'a> Iterator for Values<'a> {
    type Item = (usize, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let id = self.present.peek()?;
        let value = match self.layout.cell(id) {
            CellLayout::Fixed(n) => self.cursor.take(usize::from(n))?,
            CellLayout::Variable => self.cursor.sized()?,
            CellLayout::Complex | CellLayout::Unknown => return None,
        };
        self.present.pass();
        Some((id, value))
    }
}
