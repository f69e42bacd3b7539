//! Rows, markers and partition headers, from packed rows to the file's form.
//!
//! ```text
//! partition  u16 key length, key, i32 deletion time, i64 deletion timestamp, [static row], rows and markers, u8 01
//! row        u8 flags, [u8 extended flags], clustering values, vint body size, vint size of the item before, body
//! body       [vint timestamp][vint ttl, vint expiry] of the row marker, [vint timestamp, vint deletion time] of the
//!            row tombstone, [which columns are missing], cells
//! cell       u8 flags, [vint timestamp], [vint deletion time or expiry], [vint ttl], [sized path], [value]
//! complex    [vint timestamp, vint deletion time], vint n, cells
//! marker     u8 02, u8 kind, u16 components, values, vint body size, vint size before, one or two deletions
//! ```
//! Times are differences to the header's minima. The body size counts the size-before that follows it.

use mutation::dates::durable_expiry;
use mutation::{Bound, Cell, Column, Liveness, RowView, Tombstone};
use schema::{RowLayout, Table};
use stdx::vint;

use crate::data::clustering::{self, encode_bound};
use crate::data::counter;
use crate::data::header::{DELETION_TIME_MAX, EncodingBase, NO_DELETION_TIME, SerializationHeader, Slot, Slots};
use crate::statistics::Collector;

/// Bits of an item's first byte.
pub(crate) mod flag {
    pub(crate) const END_OF_PARTITION: u8 = 0x01;
    pub(crate) const MARKER: u8 = 0x02;
    pub(crate) const HAS_TIMESTAMP: u8 = 0x04;
    pub(crate) const HAS_TTL: u8 = 0x08;
    pub(crate) const HAS_DELETION: u8 = 0x10;
    pub(crate) const HAS_ALL_COLUMNS: u8 = 0x20;
    pub(crate) const HAS_COMPLEX_DELETION: u8 = 0x40;
    pub(crate) const EXTENDED: u8 = 0x80;
    /// Extended: the static row.
    pub(crate) const STATIC: u8 = 0x01;
    /// Extended: the row's deletion gives way to a newer row marker.
    pub(crate) const SHADOWABLE: u8 = 0x02;
}

/// Bits of a cell's first byte.
pub(crate) mod cell_flag {
    pub(crate) const DELETED: u8 = 0x01;
    pub(crate) const EXPIRING: u8 = 0x02;
    pub(crate) const EMPTY: u8 = 0x04;
    pub(crate) const ROW_TIMESTAMP: u8 = 0x08;
    pub(crate) const ROW_TTL: u8 = 0x10;
    pub(crate) const ALL: u8 = 0x1f;
}

/// How many columns a row's bitmap can mark as missing; above, it lists them.
pub(crate) const BITMAP_COLUMNS: usize = 64;

/// What converting rows of one file needs to know of it and of the table.
#[derive(Clone, Debug)]
pub(crate) struct Format {
    pub(crate) base: EncodingBase,
    pub(crate) widths: Vec<Option<usize>>,
    pub(crate) statics: Slots,
    pub(crate) regulars: Slots,
}

impl Format {
    /// Err says how the file and the table differ.
    pub(crate) fn of(header: &SerializationHeader, table: &Table) -> Result<Self, String> {
        let key: Vec<_> = table.partition_key().map(|c| &c.cql_type).collect();
        if key.len() != header.partition_key.len()
            || !key
                .iter()
                .zip(&header.partition_key)
                .all(|(t, f)| crate::data::header::fits(f, t))
        {
            return Err(format!(
                "partition key {:?} in the file, {key:?} in the table",
                header.partition_key
            ));
        }
        let clustering: Vec<_> = table.clustering().collect();
        if clustering.len() != header.clustering.len() {
            let (file, ours) = (header.clustering.len(), clustering.len());
            return Err(format!("{file} clustering columns in the file, {ours} in the table"));
        }
        for (column, (file, descends)) in clustering.iter().zip(&header.clustering) {
            if !crate::data::header::fits(file, &column.cql_type) || *descends != column.descending {
                return Err(format!(
                    "clustering column {} is {file} in the file, {} in the table, or of the other order",
                    column.name, column.cql_type
                ));
            }
        }
        Ok(Self {
            base: header.base,
            widths: header.clustering.iter().map(|(t, _)| t.fixed_len()).collect(),
            statics: Slots::of(&header.statics, schema::ColumnKind::Static, table)?,
            regulars: Slots::of(&header.regulars, schema::ColumnKind::Regular, table)?,
        })
    }
}

/// Encodes the items of partitions. Err of its functions says what the format cannot hold.
pub(crate) struct Encoder {
    pub(crate) format: Format,
    /// The slot of each column id, for static and for regular rows.
    static_slots: Vec<Option<u16>>,
    regular_slots: Vec<Option<u16>>,
    head: Vec<u8>,
    cells: Vec<u8>,
    present: Vec<u16>,
}

fn slots_by_id(slots: &Slots) -> Vec<Option<u16>> {
    let mut by_id = Vec::new();
    for (i, slot) in slots.slots.iter().enumerate() {
        if let Some(id) = slot.id {
            let id = usize::from(id);
            if by_id.len() <= id {
                by_id.resize(id + 1, None);
            }
            by_id[id] = Some(u16::try_from(i).expect("a table has fewer than 65,536 columns"));
        }
    }
    by_id
}

impl Encoder {
    pub(crate) fn new(format: Format) -> Self {
        Self {
            static_slots: slots_by_id(&format.statics),
            regular_slots: slots_by_id(&format.regulars),
            format,
            head: Vec::new(),
            cells: Vec::new(),
            present: Vec::new(),
        }
    }

    /// Appends a row; `clustering` is None for the static row.
    pub(crate) fn row(
        &mut self,
        clustering: Option<&[u8]>,
        row: &RowView<'_>,
        layout: &RowLayout,
        size_before: u64,
        seen: &mut Collector,
        out: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        let base = self.format.base;
        let (slots, by_id) = match clustering {
            None => (&self.format.statics, &self.static_slots),
            Some(_) => (&self.format.regulars, &self.regular_slots),
        };
        let mut flags = 0;
        self.head.clear();
        self.cells.clear();
        self.present.clear();
        if let Some(m) = row.marker {
            flags |= flag::HAS_TIMESTAMP;
            vint::put_unsigned(&mut self.head, base.delta_timestamp(m.timestamp));
            if m.ttl > 0 {
                flags |= flag::HAS_TTL;
                let (ttl, expiry) = durable_expiry(m.ttl, m.expiry);
                let expiry = expiry.min(DELETION_TIME_MAX);
                vint::put_unsigned(&mut self.head, base.delta_ttl(ttl));
                vint::put_unsigned(&mut self.head, base.delta_deletion_time(expiry));
                seen.expiring(m.timestamp, ttl, expiry);
            } else {
                seen.live(m.timestamp);
            }
        }
        if !row.tombstone.is_none() {
            flags |= flag::HAS_DELETION;
            put_deletion(&base, row.tombstone, &mut self.head);
            seen.deletion(row.tombstone);
        }
        let mut cells = CellWriter {
            base,
            marker: row.marker,
            has_complex_deletion: slots.has_complex
                && row
                    .columns(layout)
                    .any(|(_, c)| matches!(c, Column::Complex(c) if !c.tombstone.is_none())),
            out: &mut self.cells,
            seen,
        };
        let slot_of = |id: usize| by_id.get(id).copied().flatten();
        if slots.are_ids_ascending {
            for (id, column) in row.columns(layout) {
                // A dropped column's cells end here, unless the file keeps what is newer than the DROP.
                let Some(slot) = slot_of(id) else { continue };
                self.present.push(slot);
                cells.column(&slots.slots[usize::from(slot)], &column)?;
            }
        } else {
            let mut columns: Vec<(u16, Column<'_>)> = row
                .columns(layout)
                .filter_map(|(id, column)| slot_of(id).map(|slot| (slot, column)))
                .collect();
            columns.sort_unstable_by_key(|(slot, _)| *slot);
            for (slot, column) in &columns {
                self.present.push(*slot);
                cells.column(&slots.slots[usize::from(*slot)], column)?;
            }
        }
        if cells.has_complex_deletion {
            flags |= flag::HAS_COMPLEX_DELETION;
        }
        if self.present.len() == slots.slots.len() {
            flags |= flag::HAS_ALL_COLUMNS;
        } else {
            put_missing(&self.present, slots.slots.len(), &mut self.head);
        }
        match clustering {
            None => out.extend_from_slice(&[flags | flag::EXTENDED, flag::STATIC]),
            Some(key) => {
                out.push(flags);
                clustering::encode_values(key, &self.format.widths, out)?;
            }
        }
        let body = self.head.len() + self.cells.len() + vint::unsigned_len(size_before);
        vint::put_unsigned(out, body as u64);
        vint::put_unsigned(out, size_before);
        out.extend_from_slice(&self.head);
        out.extend_from_slice(&self.cells);
        Ok(())
    }

    /// Appends a marker: one deletion for a bound, two (that ends, that begins) for a boundary.
    pub(crate) fn marker(
        &mut self,
        kind: u8,
        bound: &Bound,
        deletions: &[Tombstone],
        size_before: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        out.push(flag::MARKER);
        encode_bound(kind, &bound.prefix, &self.format.widths, out)?;
        self.head.clear();
        for t in deletions {
            put_deletion(&self.format.base, *t, &mut self.head);
        }
        let body = self.head.len() + vint::unsigned_len(size_before);
        vint::put_unsigned(out, body as u64);
        vint::put_unsigned(out, size_before);
        out.extend_from_slice(&self.head);
        Ok(())
    }
}

/// Appends the head of a partition, up to the static row.
pub(crate) fn partition_header(key: &[u8], tombstone: Tombstone, out: &mut Vec<u8>) -> Result<(), &'static str> {
    let len = u16::try_from(key.len()).map_err(|_| "a partition key longer than 65,535 bytes")?;
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(key);
    put_whole_deletion(tombstone, out);
    Ok(())
}

/// Appends a deletion as partition headers and the promoted index have it: not relative to anything.
pub(crate) fn put_whole_deletion(tombstone: Tombstone, out: &mut Vec<u8>) {
    let (deletion_time, timestamp) = if tombstone.is_none() {
        (NO_DELETION_TIME, i64::MIN)
    } else {
        (tombstone.deletion_time.min(DELETION_TIME_MAX), tombstone.timestamp)
    };
    out.extend_from_slice(&deletion_time.to_be_bytes());
    out.extend_from_slice(&timestamp.to_be_bytes());
}

fn put_deletion(base: &EncodingBase, t: Tombstone, out: &mut Vec<u8>) {
    let deletion_time = if t.is_none() {
        NO_DELETION_TIME
    } else {
        t.deletion_time.min(DELETION_TIME_MAX)
    };
    vint::put_unsigned(out, base.delta_timestamp(t.timestamp));
    vint::put_unsigned(out, base.delta_deletion_time(deletion_time));
}

/// Which of `total` columns are missing, when only `present` (ascending) are there.
fn put_missing(present: &[u16], total: usize, out: &mut Vec<u8>) {
    if total < BITMAP_COLUMNS {
        let all = (1u64 << total) - 1;
        let here = present.iter().fold(0u64, |bits, slot| bits | 1 << slot);
        vint::put_unsigned(out, all & !here);
        return;
    }
    vint::put_unsigned(out, (total - present.len()) as u64);
    if present.len() < total / 2 {
        for slot in present {
            vint::put_unsigned(out, u64::from(*slot));
        }
    } else {
        let mut rest = present;
        for slot in 0..total {
            match rest.split_first() {
                Some((first, tail)) if usize::from(*first) == slot => rest = tail,
                _ => vint::put_unsigned(out, slot as u64),
            }
        }
    }
}

struct CellWriter<'w> {
    base: EncodingBase,
    marker: Option<Liveness>,
    has_complex_deletion: bool,
    out: &'w mut Vec<u8>,
    seen: &'w mut Collector,
}

impl CellWriter<'_> {
    #[inline]
    fn column(&mut self, slot: &Slot, column: &Column<'_>) -> Result<(), &'static str> {
        match column {
            Column::Simple(cell) => self.cell(slot.fixed_len, cell, None),
            Column::Complex(counter) if slot.is_counter() => {
                let mut context = Vec::new();
                match counter::encode(counter, &mut context) {
                    Some(timestamp) => {
                        let cell = Cell {
                            timestamp,
                            ttl: 0,
                            deletion_time: 0,
                            dead: false,
                            value: &context,
                        };
                        self.cell(None, &cell, None)
                    }
                    None => {
                        let cell = Cell {
                            timestamp: counter.tombstone.timestamp,
                            ttl: 0,
                            deletion_time: counter.tombstone.deletion_time,
                            dead: true,
                            value: &[],
                        };
                        self.cell(None, &cell, None)
                    }
                }
            }
            Column::Complex(complex) => {
                if self.has_complex_deletion {
                    put_deletion(&self.base, complex.tombstone, self.out);
                }
                if !complex.tombstone.is_none() {
                    self.seen.deletion(complex.tombstone);
                }
                vint::put_unsigned(self.out, complex.count as u64);
                for (path, cell) in complex.elements() {
                    self.cell(None, &cell, Some(path))?;
                }
                Ok(())
            }
        }
    }

    #[inline]
    fn cell(&mut self, fixed_len: Option<usize>, cell: &Cell<'_>, path: Option<&[u8]>) -> Result<(), &'static str> {
        let is_expiring = !cell.dead && cell.ttl > 0;
        let (ttl, deletion_time) = if is_expiring {
            durable_expiry(cell.ttl, cell.deletion_time)
        } else {
            (0, cell.deletion_time)
        };
        let mut flags = 0;
        if cell.dead {
            flags |= cell_flag::DELETED | cell_flag::EMPTY;
        } else if cell.value.is_empty() {
            flags |= cell_flag::EMPTY;
        }
        let deletion_time = deletion_time.min(DELETION_TIME_MAX);
        if let Some(m) = self.marker
            && m.timestamp == cell.timestamp
        {
            flags |= cell_flag::ROW_TIMESTAMP;
        }
        if is_expiring {
            flags |= cell_flag::EXPIRING;
            if let Some(m) = self.marker
                && m.ttl == cell.ttl
                && m.expiry == cell.deletion_time
            {
                flags |= cell_flag::ROW_TTL;
            }
            self.seen.expiring(cell.timestamp, ttl, deletion_time);
        } else if cell.dead {
            self.seen.dead(cell.timestamp, deletion_time);
        } else {
            self.seen.live(cell.timestamp);
        }
        self.seen.cell();
        self.out.push(flags);
        if flags & cell_flag::ROW_TIMESTAMP == 0 {
            vint::put_unsigned(self.out, self.base.delta_timestamp(cell.timestamp));
        }
        if (is_expiring || cell.dead) && flags & cell_flag::ROW_TTL == 0 {
            vint::put_unsigned(self.out, self.base.delta_deletion_time(deletion_time));
            if is_expiring {
                vint::put_unsigned(self.out, self.base.delta_ttl(ttl));
            }
        }
        if let Some(path) = path {
            vint::put_unsigned(self.out, path.len() as u64);
            self.out.extend_from_slice(path);
        }
        if flags & cell_flag::EMPTY == 0 {
            match fixed_len {
                Some(n) if n != cell.value.len() => return Err("a value that has not the width of its column's type"),
                Some(_) => {}
                None => vint::put_unsigned(self.out, cell.value.len() as u64),
            }
            self.out.extend_from_slice(cell.value);
        }
        Ok(())
    }
}
