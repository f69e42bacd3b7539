//! Rows, markers and partition headers, from the file's form (see [`crate::encode`]) to packed rows.
//!
//! Functions take the bytes that are there and answer with what they read, or with how many more they want.

use std::ops::Range;

use mutation::row::{ELEMENT_HEAD_BYTES_MAX, MANY_ELEMENTS, Shared};
use mutation::{BoundKind, Cell, Liveness, RowBuilder, Tombstone};
use schema::{CellLayout, RowLayout};
use stdx::bytes::{Reader, Truncated};

use crate::data::clustering::{decode_values, kind, marker_side};
use crate::data::counter;
use crate::data::encode::{BITMAP_COLUMNS, Format, cell_flag, flag};
use crate::data::header::{EncodingBase, NO_DELETION_TIME, Slot};
use crate::error::Damage;

/// Why decoding stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// So many more bytes are needed, at least.
    More(usize),
    /// The bytes are wrong.
    Damage(Damage),
}

impl From<Damage> for Stop {
    fn from(d: Damage) -> Self {
        Self::Damage(d)
    }
}

/// Before an item's size is known, bytes that end are bytes to be fetched.
fn more(bytes: &[u8]) -> impl Fn(Truncated) -> Stop + '_ {
    |t| Stop::More(t.at.saturating_add(t.wanted).saturating_sub(bytes.len()).max(1))
}

/// The head of a partition.
pub(crate) struct PartitionHead {
    pub(crate) key: Range<usize>,
    pub(crate) tombstone: Tombstone,
    /// Bytes it takes.
    pub(crate) len: usize,
}

/// Reads up to the static row.
pub(crate) fn partition_head(bytes: &[u8]) -> Result<PartitionHead, Stop> {
    let mut r = Reader::new(bytes);
    let more = more(bytes);
    let key_len = usize::from(r.get_u16().map_err(&more)?);
    let start = r.at();
    r.get_slice(key_len).map_err(&more)?;
    let key = start..r.at();
    let at = r.at();
    let whole = r.get_array::<12>().map_err(&more)?;
    let tombstone = whole_deletion(&whole).ok_or_else(|| Damage::new(at, "a partition deletion"))?;
    Ok(PartitionHead {
        key,
        tombstone,
        len: r.at(),
    })
}

/// A deletion that is not relative to anything: i32 deletion time, i64 timestamp.
pub(crate) fn whole_deletion(bytes: &[u8; 12]) -> Option<Tombstone> {
    let (time, timestamp) = bytes.split_first_chunk::<4>()?;
    let time = i32::from_be_bytes(*time);
    let timestamp = i64::from_be_bytes(timestamp.try_into().ok()?);
    if timestamp == i64::MIN {
        return (time == i32::MAX).then_some(Tombstone::NONE);
    }
    Some(Tombstone {
        timestamp,
        deletion_time: u32::try_from(time).ok()?,
    })
}

/// What an item is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ItemKind {
    /// The byte that ends a partition.
    End,
    /// The static row.
    StaticRow,
    /// A row.
    Row,
    /// The start, the end or both of range deletions.
    Marker { kind: u8, side: BoundKind },
}

/// An item whose every byte is there.
pub(crate) struct ItemHead {
    pub(crate) kind: ItemKind,
    flags: u8,
    extended: u8,
    /// The body without the size before it.
    pub(crate) body: Range<usize>,
}

/// Reads an item's head; its clustering replaces what is in `clustering`.
#[inline]
pub(crate) fn item_head(format: &Format, bytes: &[u8], clustering: &mut Vec<u8>) -> Result<ItemHead, Stop> {
    let mut r = Reader::new(bytes);
    let more = more(bytes);
    clustering.clear();
    let flags = r.get_u8().map_err(&more)?;
    if flags & flag::END_OF_PARTITION != 0 {
        return Ok(ItemHead {
            kind: ItemKind::End,
            flags,
            extended: 0,
            body: 1..1,
        });
    }
    let kind = if flags & flag::MARKER != 0 {
        if flags != flag::MARKER {
            return Err(Damage::new(0, "a marker without flags of rows").into());
        }
        let kind = r.get_u8().map_err(&more)?;
        let Some(side) = marker_side(kind) else {
            return Err(Damage::new(1, "the kind of a range tombstone marker").into());
        };
        let count = usize::from(r.get_u16().map_err(&more)?);
        if count > format.widths.len() {
            return Err(Damage::new(2, format!("at most {} components in a bound", format.widths.len())).into());
        }
        decode_values(&mut r, &format.widths, count, clustering).map_err(&more)?;
        (ItemKind::Marker { kind, side }, 0)
    } else {
        let extended = if flags & flag::EXTENDED != 0 {
            r.get_u8().map_err(&more)?
        } else {
            0
        };
        if extended & !(flag::STATIC | flag::SHADOWABLE) != 0 {
            return Err(Damage::new(1, "known extended row flags").into());
        }
        if extended & flag::STATIC != 0 {
            (ItemKind::StaticRow, extended)
        } else {
            decode_values(&mut r, &format.widths, format.widths.len(), clustering).map_err(&more)?;
            (ItemKind::Row, extended)
        }
    };
    let at = r.at();
    let body_len = usize::try_from(r.get_vint().map_err(&more)?).unwrap_or(usize::MAX);
    let start = r.at();
    r.get_slice(body_len).map_err(&more)?;
    let end = r.at();
    let mut body = Reader::new(&bytes[start..end]);
    body.get_vint()
        .map_err(|_| Damage::new(at, "a body of at least the size before it"))?;
    let (kind, extended) = kind;
    Ok(ItemHead {
        kind,
        flags,
        extended,
        body: start + body.at()..end,
    })
}

/// The deletions of a marker: which ends, which begins.
pub(crate) struct MarkerDeletions {
    pub(crate) ends: Option<Tombstone>,
    pub(crate) begins: Option<Tombstone>,
}

/// Reads the body of a marker.
pub(crate) fn marker_deletions(
    format: &Format,
    bytes: &[u8],
    item: &ItemHead,
    kind: u8,
) -> Result<MarkerDeletions, Damage> {
    let mut r = Body::new(bytes, item);
    let first = r.deletion(&format.base)?;
    let deletions = match kind {
        kind::EXCL_END_INCL_START | kind::INCL_END_EXCL_START => MarkerDeletions {
            ends: Some(first),
            begins: Some(r.deletion(&format.base)?),
        },
        kind::EXCL_END | kind::INCL_END => MarkerDeletions {
            ends: Some(first),
            begins: None,
        },
        _ => MarkerDeletions {
            ends: None,
            begins: Some(first),
        },
    };
    r.expect_end()?;
    Ok(deletions)
}

/// An element has at least flags and the length of its path.
const ELEMENT_BYTES_MIN: usize = 2;
/// Most elements have at least so many bytes.
const ELEMENT_BYTES_USUAL: usize = 8;

/// A cursor over a body, whose failures are damage at a place in the whole item.
struct Body<'a> {
    r: Reader<'a>,
    start: usize,
}

impl<'a> Body<'a> {
    fn new(bytes: &'a [u8], item: &ItemHead) -> Self {
        Self {
            r: Reader::new(&bytes[item.body.clone()]),
            start: item.body.start,
        }
    }

    fn at(&self) -> usize {
        self.start + self.r.at()
    }

    /// Bytes that are not read yet.
    fn left(&self) -> usize {
        self.r.rest().len()
    }

    #[cold]
    fn damage(&self, expected: impl Into<String>) -> Damage {
        Damage::new(self.at(), expected)
    }

    #[inline]
    fn vint(&mut self) -> Result<u64, Damage> {
        self.r
            .get_vint()
            .map_err(|_| self.damage("a vint inside the row's size"))
    }

    #[inline]
    fn u8(&mut self) -> Result<u8, Damage> {
        self.r.get_u8().map_err(|_| self.damage("a byte inside the row's size"))
    }

    /// Where the next `len` bytes are.
    #[inline]
    fn bytes(&mut self, len: usize) -> Result<(u32, u32), Damage> {
        let at = self.at();
        self.r
            .get_slice(len)
            .map_err(|_| self.damage(format!("{len} bytes inside the row's size")))?;
        match (u32::try_from(at), u32::try_from(len)) {
            (Ok(at), Ok(len)) => Ok((at, len)),
            _ => Err(self.damage("a row of less than 4 GiB")),
        }
    }

    #[inline]
    fn sized(&mut self) -> Result<(u32, u32), Damage> {
        let len = usize::try_from(self.vint()?).unwrap_or(usize::MAX);
        self.bytes(len)
    }

    #[inline]
    fn deletion_time(&mut self, base: &EncodingBase) -> Result<u32, Damage> {
        let delta = self.vint()?;
        base.deletion_time(delta).ok_or_else(|| self.damage("a deletion time"))
    }

    #[inline]
    fn ttl(&mut self, base: &EncodingBase) -> Result<u32, Damage> {
        let delta = self.vint()?;
        base.ttl(delta).ok_or_else(|| self.damage("a time to live"))
    }

    fn deletion(&mut self, base: &EncodingBase) -> Result<Tombstone, Damage> {
        let timestamp = base.timestamp(self.vint()?);
        let deletion_time = self.deletion_time(base)?;
        if timestamp == i64::MIN {
            return Ok(Tombstone::NONE);
        }
        Ok(Tombstone {
            timestamp,
            deletion_time: deletion_time.min(NO_DELETION_TIME),
        })
    }

    fn expect_end(&self) -> Result<(), Damage> {
        if self.r.is_empty() {
            Ok(())
        } else {
            Err(self.damage("the end of the item"))
        }
    }
}

#[derive(Clone, Copy)]
struct RawCell {
    timestamp: i64,
    ttl: u32,
    deletion_time: u32,
    dead: bool,
    path: (u32, u32),
    value: (u32, u32),
}

impl RawCell {
    #[inline]
    fn cell<'a>(&self, bytes: &'a [u8]) -> Cell<'a> {
        Cell {
            timestamp: self.timestamp,
            ttl: self.ttl,
            deletion_time: self.deletion_time,
            dead: self.dead,
            value: slice(bytes, self.value),
        }
    }

    /// As [`mutation::RowBuilder`] sees it: whether the cell shares all of its row's state.
    #[inline]
    fn is_shared(&self, shared: &Shared, layout: CellLayout) -> bool {
        !self.dead
            && self.timestamp == shared.timestamp
            && self.ttl == shared.ttl
            && (shared.ttl == 0 || self.deletion_time == shared.expiry)
            && !(self.value.1 == 0 && matches!(layout, CellLayout::Fixed(_)))
    }
}

#[inline]
fn slice(bytes: &[u8], (at, len): (u32, u32)) -> &[u8] {
    &bytes[at as usize..at as usize + len as usize]
}

enum RawColumn {
    Simple(u16, CellLayout, RawCell),
    /// Tombstone and a range of `elements`.
    Complex(u16, Tombstone, Range<usize>),
}

impl RawColumn {
    fn id(&self) -> u16 {
        match self {
            Self::Simple(id, ..) | Self::Complex(id, ..) => *id,
        }
    }
}

/// Converts rows; its buffers are reused from row to row.
#[derive(Default)]
pub(crate) struct RowDecoder {
    columns: Vec<RawColumn>,
    elements: Vec<RawCell>,
    missing: Vec<bool>,
    marker: Option<Liveness>,
    tombstone: Option<Tombstone>,
}

impl RowDecoder {
    /// Reads the body of a row (static or not) of which `item` is the head.
    #[inline]
    pub(crate) fn read(
        &mut self,
        format: &Format,
        layout: &RowLayout,
        bytes: &[u8],
        item: &ItemHead,
    ) -> Result<(), Damage> {
        let slots = if item.kind == ItemKind::StaticRow {
            &format.statics
        } else {
            &format.regulars
        };
        let base = &format.base;
        let flags = item.flags;
        let mut r = Body::new(bytes, item);
        self.columns.clear();
        self.elements.clear();
        self.marker = None;
        self.tombstone = None;
        if flags & flag::HAS_TIMESTAMP != 0 {
            let mut m = Liveness {
                timestamp: base.timestamp(r.vint()?),
                ttl: 0,
                expiry: 0,
            };
            if flags & flag::HAS_TTL != 0 {
                m.ttl = r.ttl(base)?;
                m.expiry = r.deletion_time(base)?;
            }
            self.marker = Some(m);
        } else if flags & flag::HAS_TTL != 0 {
            return Err(Damage::new(0, "a row marker where there is a ttl"));
        }
        if flags & flag::HAS_DELETION != 0 {
            let deletion = r.deletion(base)?;
            let is_shadowed =
                item.extended & flag::SHADOWABLE != 0 && self.marker.is_some_and(|m| m.timestamp > deletion.timestamp);
            self.tombstone = (!is_shadowed).then_some(deletion);
        }
        let total = slots.slots.len();
        self.columns.reserve(total);
        if flags & flag::HAS_ALL_COLUMNS != 0 {
            for slot in &slots.slots {
                self.column(&mut r, format, layout, bytes, flags, slot)?;
            }
        } else if total < BITMAP_COLUMNS {
            let missing = r.vint()?;
            if total < 64 && missing >> total != 0 {
                return Err(r.damage("a bitmap of the columns that the header lists"));
            }
            for (i, slot) in slots.slots.iter().enumerate() {
                if missing & 1 << i == 0 {
                    self.column(&mut r, format, layout, bytes, flags, slot)?;
                }
            }
        } else {
            self.read_missing(&mut r, total)?;
            for (i, slot) in slots.slots.iter().enumerate() {
                if !self.missing[i] {
                    self.column(&mut r, format, layout, bytes, flags, slot)?;
                }
            }
        }
        r.expect_end()?;
        if !slots.are_ids_ascending {
            self.columns.sort_unstable_by_key(RawColumn::id);
        }
        Ok(())
    }

    fn read_missing(&mut self, r: &mut Body<'_>, total: usize) -> Result<(), Damage> {
        let missing = usize::try_from(r.vint()?).unwrap_or(usize::MAX);
        let Some(present) = total.checked_sub(missing) else {
            return Err(r.damage(format!("at most {total} missing columns")));
        };
        let lists_present = present < total / 2;
        self.missing.clear();
        self.missing.resize(total, lists_present);
        for _ in 0..if lists_present { present } else { missing } {
            let i = usize::try_from(r.vint()?).unwrap_or(usize::MAX);
            match self.missing.get_mut(i) {
                Some(m) => *m = !lists_present,
                None => return Err(r.damage(format!("a column number below {total}"))),
            }
        }
        Ok(())
    }

    #[inline]
    fn column(
        &mut self,
        r: &mut Body<'_>,
        format: &Format,
        layout: &RowLayout,
        bytes: &[u8],
        flags: u8,
        slot: &Slot,
    ) -> Result<(), Damage> {
        if slot.is_complex {
            return self.complex(r, format, layout, bytes, flags, slot);
        }
        let at = r.at();
        let cell = self.cell(r, &format.base, slot)?;
        if let Some(id) = slot.id
            && cell.timestamp > slot.dropped_at
        {
            if slot.is_counter() {
                return self.counter(id, &cell, bytes, at);
            }
            if let CellLayout::Fixed(n) = slot.layout
                && !cell.dead
                && cell.value.1 != 0
                && cell.value.1 != u32::from(n)
            {
                return Err(Damage::new(at, format!("a value of {n} bytes")));
            }
            self.columns.push(RawColumn::Simple(id, slot.layout, cell));
        }
        Ok(())
    }

    fn complex(
        &mut self,
        r: &mut Body<'_>,
        format: &Format,
        layout: &RowLayout,
        bytes: &[u8],
        flags: u8,
        slot: &Slot,
    ) -> Result<(), Damage> {
        let mut tombstone = Tombstone::NONE;
        if flags & flag::HAS_COMPLEX_DELETION != 0 {
            tombstone = r.deletion(&format.base)?;
        }
        let first = self.elements.len();
        let count = r.vint()?;
        // A list that grows is copied in one step, so the first long column reserves memory for the others, too. A
        // damaged count is more than the bytes have.
        let count_max = usize::try_from(count).map_or(0, |count| count.min(r.left() / ELEMENT_BYTES_MIN));
        let of_row = if count_max >= MANY_ELEMENTS && self.elements.is_empty() {
            r.left() / ELEMENT_BYTES_USUAL
        } else {
            0
        };
        self.elements.reserve(count_max.max(of_row));
        for _ in 0..count {
            stdx::preempt::point();
            let at = r.at();
            let cell = self.cell(r, &format.base, slot)?;
            let Some(id) = slot.id else { continue };
            if cell.timestamp <= slot.dropped_at {
                continue;
            }
            if let Some(last) = self.elements.get(first..).and_then(<[RawCell]>::last)
                && layout
                    .compare_paths(usize::from(id), slice(bytes, last.path), slice(bytes, cell.path))
                    .is_ge()
            {
                return Err(Damage::new(at, "a cell path after the previous one"));
            }
            self.elements.push(cell);
        }
        if let Some(id) = slot.id {
            if !tombstone.is_none() && tombstone.timestamp <= slot.dropped_at {
                tombstone = Tombstone::NONE;
            }
            let elements = first..self.elements.len();
            if !elements.is_empty() || !tombstone.is_none() {
                self.columns.push(RawColumn::Complex(id, tombstone, elements));
            }
        }
        Ok(())
    }

    /// Takes a counter's cell apart.
    fn counter(&mut self, id: u16, cell: &RawCell, bytes: &[u8], at: usize) -> Result<(), Damage> {
        let first = self.elements.len();
        let mut tombstone = Tombstone::NONE;
        if cell.dead {
            tombstone = Tombstone {
                timestamp: cell.timestamp,
                deletion_time: cell.deletion_time,
            };
        } else {
            let shards =
                counter::shards(slice(bytes, cell.value)).ok_or_else(|| Damage::new(at, "a counter's shards"))?;
            for shard in shards {
                if let Some(deletion) = shard.deletion() {
                    tombstone = deletion;
                    continue;
                }
                let base = cell.value.0;
                self.elements.push(RawCell {
                    timestamp: shard.clock,
                    ttl: 0,
                    deletion_time: 0,
                    dead: false,
                    path: (base + shard.id_at, 16),
                    value: (base + shard.count_at, 8),
                });
            }
            let elements = &mut self.elements[first..];
            // The later of two that have one name comes first, and the other goes.
            elements.sort_by(|a, b| {
                let by_name = slice(bytes, a.path).cmp(slice(bytes, b.path));
                by_name.then(b.timestamp.cmp(&a.timestamp))
            });
            let mut kept = first;
            for i in first..self.elements.len() {
                if i == first || slice(bytes, self.elements[i].path) != slice(bytes, self.elements[kept - 1].path) {
                    self.elements.swap(kept, i);
                    kept += 1;
                }
            }
            self.elements.truncate(kept);
        }
        let elements = first..self.elements.len();
        if !elements.is_empty() || !tombstone.is_none() {
            self.columns.push(RawColumn::Complex(id, tombstone, elements));
        }
        Ok(())
    }

    #[inline]
    fn cell(&self, r: &mut Body<'_>, base: &EncodingBase, slot: &Slot) -> Result<RawCell, Damage> {
        let at = r.at();
        let flags = r.u8()?;
        if flags & !cell_flag::ALL != 0 {
            return Err(Damage::new(at, "known cell flags"));
        }
        let mut cell = RawCell {
            timestamp: 0,
            ttl: 0,
            deletion_time: 0,
            dead: false,
            path: (0, 0),
            value: (0, 0),
        };
        cell.timestamp = if flags & cell_flag::ROW_TIMESTAMP == 0 {
            base.timestamp(r.vint()?)
        } else {
            match self.marker {
                Some(m) => m.timestamp,
                None => return Err(Damage::new(at, "a cell with its own timestamp in a row without one")),
            }
        };
        let (is_dead, is_expiring) = (flags & cell_flag::DELETED != 0, flags & cell_flag::EXPIRING != 0);
        if flags & cell_flag::ROW_TTL != 0 {
            match self.marker {
                Some(m) if m.ttl > 0 => (cell.ttl, cell.deletion_time) = (m.ttl, m.expiry),
                _ => return Err(Damage::new(at, "a cell with its own ttl in a row without one")),
            }
        } else if is_dead || is_expiring {
            cell.deletion_time = r.deletion_time(base)?;
            if is_expiring {
                cell.ttl = r.ttl(base)?;
            }
        }
        if slot.is_complex {
            cell.path = r.sized()?;
        }
        if flags & cell_flag::EMPTY == 0 {
            cell.value = match slot.fixed_len {
                Some(n) if !slot.is_complex => r.bytes(n)?,
                _ => r.sized()?,
            };
        }
        if is_dead {
            (cell.dead, cell.ttl, cell.value) = (true, 0, (0, 0));
        }
        Ok(cell)
    }

    /// Appends the packed form of what was read; `bytes` are the same as then.
    #[inline]
    pub(crate) fn pack(&self, layout: &RowLayout, bytes: &[u8], out: &mut Vec<u8>) {
        let shared = match (self.marker, self.columns.first()) {
            (Some(m), _) => Shared {
                timestamp: m.timestamp,
                ttl: m.ttl,
                expiry: m.expiry,
            },
            (None, Some(RawColumn::Simple(_, _, c))) => share(c),
            (None, Some(RawColumn::Complex(_, t, elements))) => match self.elements.get(elements.start) {
                Some(c) if !elements.is_empty() => share(c),
                _ => Shared {
                    timestamp: t.timestamp,
                    ttl: 0,
                    expiry: 0,
                },
            },
            (None, None) => Shared {
                timestamp: self.tombstone.map_or(0, |t| t.timestamp),
                ttl: 0,
                expiry: 0,
            },
        };
        let is_mixed = self.columns.iter().any(|c| match c {
            RawColumn::Simple(_, layout, cell) => !cell.is_shared(&shared, *layout),
            RawColumn::Complex(..) => false,
        });
        let columns = self.columns.last().map_or(0, |c| usize::from(c.id()) + 1);
        let tombstone = self.tombstone.unwrap_or(Tombstone::NONE);
        if self.elements.len() >= MANY_ELEMENTS {
            let elements = self.elements.iter();
            out.reserve(
                elements
                    .map(|cell| ELEMENT_HEAD_BYTES_MAX + (cell.path.1 + cell.value.1) as usize)
                    .sum(),
            );
        }
        let mut builder = RowBuilder::begin(out, layout, shared, self.marker, tombstone, is_mixed, columns);
        for column in &self.columns {
            match column {
                RawColumn::Simple(id, _, cell) if !is_mixed => {
                    builder.value(usize::from(*id), slice(bytes, cell.value))
                }
                RawColumn::Simple(id, _, cell) => builder.cell(usize::from(*id), &cell.cell(bytes)),
                RawColumn::Complex(id, tombstone, elements) => {
                    let elements = self.elements[elements.clone()].iter();
                    builder.complex(
                        usize::from(*id),
                        *tombstone,
                        elements.map(|c| (slice(bytes, c.path), c.cell(bytes))),
                    );
                }
            }
        }
    }

    /// Whether nothing was read: an empty static row.
    pub(crate) fn is_empty(&self) -> bool {
        self.marker.is_none() && self.tombstone.is_none() && self.columns.is_empty()
    }
}

fn share(cell: &RawCell) -> Shared {
    if cell.dead || cell.ttl == 0 {
        Shared {
            timestamp: cell.timestamp,
            ttl: 0,
            expiry: 0,
        }
    } else {
        Shared {
            timestamp: cell.timestamp,
            ttl: cell.ttl,
            expiry: cell.deletion_time,
        }
    }
}
