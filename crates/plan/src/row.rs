//! A row as selectors and filters see it: serialised values by column.

use mutation::compact::LiveElements;
use schema::Table;
use types::{CollectionBuilder, CqlType, TupleBuilder};

/// Where a value is in the row's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Slot {
    start: u32,
    /// Length plus one; 0 is null.
    len_plus_one: u32,
}

/// The values of one row, by position in `table.columns`. Reused from row to row.
///
/// Multi-cell collections are serialised here as one value. Timestamps and ttls are kept only when a selector asks
/// (`writetime`, `ttl`); those of collections are per element, and are kept in a map of the elements' paths.
#[derive(Clone, Debug, Default)]
pub struct Row {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
    timestamps: Vec<i64>,
    ttls: Vec<i32>,
    /// By column: the serialised map of [`Row::set_cells`].
    cells: Vec<(usize, Vec<u8>)>,
    /// What [`Row::keep`] keeps of `bytes` and `slots`.
    kept: (usize, Vec<Slot>),
}

/// Bytes that say when an element was written, and how long it has to live: an i64 and an i32, big endian.
pub const CELL_TIMES_BYTES: usize = 12;

/// The timestamp that means none.
pub const NO_TIMESTAMP: i64 = i64::MIN;

impl Row {
    /// A row of that table with every column null.
    pub fn new(table: &Table) -> Self {
        let n = table.columns.len();
        Self {
            // More than most rows take.
            bytes: Vec::with_capacity(256),
            slots: vec![Slot::default(); n],
            timestamps: vec![NO_TIMESTAMP; n],
            ttls: vec![0; n],
            cells: Vec::new(),
            kept: Default::default(),
        }
    }

    /// About how many bytes of memory it takes.
    pub fn held_bytes(&self) -> usize {
        let per_column = 2 * size_of::<Slot>() + size_of::<i64>() + size_of::<i32>();
        let of_cells: usize = self.cells.iter().map(|(_, map)| map.len()).sum();
        size_of::<Self>() + self.bytes.capacity() + self.slots.len() * per_column + of_cells
    }

    /// Keeps the values that are set now for [`Row::clear_to_kept`]; their times are not kept.
    pub fn keep(&mut self) {
        self.kept.0 = self.bytes.len();
        self.kept.1.clone_from(&self.slots);
    }

    /// Makes every column null again but those whose values were kept last.
    pub fn clear_to_kept(&mut self) {
        self.bytes.truncate(self.kept.0);
        self.slots.copy_from_slice(&self.kept.1);
    }

    /// Makes every column null again.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.slots.fill(Slot::default());
        self.timestamps.fill(NO_TIMESTAMP);
        self.ttls.fill(0);
        self.cells.clear();
    }

    /// Sets a column's value.
    #[inline]
    pub fn set(&mut self, column: usize, value: &[u8]) {
        self.set_with(column, |out| out.extend_from_slice(value));
    }

    /// Sets a column to what `write` appends.
    #[inline]
    pub fn set_with(&mut self, column: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        let len = self.bytes.len() - start;
        let fit = |n: usize| u32::try_from(n).expect("a row is smaller than 4 GiB");
        self.slots[column] = Slot {
            start: fit(start),
            len_plus_one: fit(len + 1),
        };
    }

    /// Notes when and for how long a column was written.
    pub fn set_times(&mut self, column: usize, timestamp: i64, ttl_left: i32) {
        self.timestamps[column] = timestamp;
        self.ttls[column] = ttl_left;
    }

    /// Notes for the elements of a column, by path, when each was written, and the seconds until it expires; 0: never.
    pub fn set_cells<'p>(&mut self, column: usize, elements: impl Iterator<Item = (&'p [u8], i64, i32)>) {
        let mut map = Vec::new();
        let mut builder = CollectionBuilder::new(&mut map);
        for (path, timestamp, ttl_left) in elements {
            let mut times = [0; CELL_TIMES_BYTES];
            times[..8].copy_from_slice(&timestamp.to_be_bytes());
            times[8..].copy_from_slice(&ttl_left.to_be_bytes());
            builder.push_pair(path, &times);
        }
        builder.finish();
        self.cells.push((column, map));
    }

    /// Notes for each of the `fields` fields of a user-defined type when it was written, and the seconds that it still
    /// has to live, as [`Self::set_cells`] does; fields that are null have no times.
    pub fn set_field_cells<'p>(
        &mut self,
        column: usize,
        fields: usize,
        elements: impl Iterator<Item = (&'p [u8], i64, i32)>,
    ) {
        let mut times = vec![(NO_TIMESTAMP, 0); fields];
        for (path, timestamp, ttl_left) in elements {
            if let Some(time) = field_of(path).and_then(|place| times.get_mut(place)) {
                *time = (timestamp, ttl_left);
            }
        }
        let paths: Vec<[u8; 2]> = (0..=u16::MAX).take(fields).map(u16::to_be_bytes).collect();
        let all = paths.iter().zip(times);
        self.set_cells(column, all.map(|(path, (timestamp, ttl))| (&path[..], timestamp, ttl)));
    }

    /// What [`Row::set_cells`] noted of a column.
    pub(crate) fn cells(&self, column: usize) -> Option<&[u8]> {
        let of_column = self.cells.iter().find(|(of, _)| *of == column);
        of_column.map(|(_, map)| &map[..])
    }

    /// A column's value; None is null.
    #[inline]
    pub fn get(&self, column: usize) -> Option<&[u8]> {
        let s = self.slots[column];
        let len = s.len_plus_one.checked_sub(1)?;
        Some(&self.bytes[s.start as usize..s.start as usize + len as usize])
    }

    /// A column's write timestamp, microseconds.
    pub fn timestamp(&self, column: usize) -> Option<i64> {
        Some(self.timestamps[column]).filter(|&t| t != NO_TIMESTAMP)
    }

    /// The seconds a column still has to live.
    pub fn ttl(&self, column: usize) -> Option<i32> {
        Some(self.ttls[column]).filter(|&t| t != 0)
    }
}

/// Component `i` of a serialised partition key.
pub fn key_component<'k>(table: &Table, key: &'k [u8], i: usize) -> Option<&'k [u8]> {
    schema::key_component(table.partition_key().nth(1).is_some(), key, i)
}

/// The place of the field that has this path in a multi-cell user-defined type.
fn field_of(path: &[u8]) -> Option<usize> {
    path.try_into().map(u16::from_be_bytes).map(usize::from).ok()
}

/// Serialises the living fields of a multi-cell user-defined type with so many fields as one value. Fields that the
/// type does not have are left out: another node may know a later definition.
fn put_fields(out: &mut Vec<u8>, fields: usize, elements: LiveElements<'_>) {
    let mut builder = TupleBuilder::new(out);
    let mut next = 0;
    for (path, cell) in elements {
        let Some(place) = field_of(path).filter(|place| (next..fields).contains(place)) else {
            continue;
        };
        (next..place).for_each(|_| builder.push(None));
        builder.push(Some(cell.value));
        next = place + 1;
    }
    (next..fields).for_each(|_| builder.push(None));
}

/// Serialises the living elements of a multi-cell column as one value.
pub fn put_collection(out: &mut Vec<u8>, cql_type: &CqlType, elements: LiveElements<'_>) {
    if let CqlType::Udt(udt) = cql_type {
        return put_fields(out, udt.fields.len(), elements);
    }
    let mut builder = CollectionBuilder::new(out);
    for (path, cell) in elements {
        match cql_type {
            CqlType::Set(_) => builder.push(path),
            CqlType::Map(..) => builder.push_pair(path, cell.value),
            _ => builder.push(cell.value),
        }
    }
    builder.finish();
}
