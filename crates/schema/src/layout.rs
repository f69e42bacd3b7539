//! What the engine needs of a table: how wide each column's value is, and how rows order.
//!
//! A clustering key is serialised as its components one after the other, each a vint length and that many bytes of the
//! type's own serialisation; a prefix is fewer components. Memtables and blocks store it in this form.

use std::cmp::Ordering;

use stdx::vint;
use types::{Comparator, CqlType};

use crate::table::{ColumnId, ColumnKind, DroppedColumn, Table};

/// How the cell of one column is stored in a packed row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CellLayout {
    /// No column ever had this id.
    Unknown,
    /// Always this many bytes, without a length.
    Fixed(u8),
    /// A vint length, then the bytes.
    Variable,
    /// A multi-cell collection or user type, or a counter: a body of elements, each with a path. Those of a counter are
    /// what each source has added to it, by the source's name.
    Complex,
}

/// The layout of every column that the table has or had, by column id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowLayout {
    cells: Vec<CellLayout>,
    paths: Vec<Option<Comparator>>,
    complex: bool,
    /// By column id; empty while nothing was dropped.
    dropped: Vec<Option<Successor>>,
}

/// The column that inherits the newer cells of a dropped one: the living column of its name, or the one of that name
/// that was dropped last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Successor {
    /// Its column id.
    pub id: usize,
    /// Only cells above this timestamp are inherited.
    pub newer_than: i64,
}

impl Successor {
    /// A counter has no successor, because a counter that was dropped cannot be added again.
    fn of(dropped: &DroppedColumn, table: &Table) -> Self {
        let same_name = |d: &&DroppedColumn| d.kind == dropped.kind && d.name == dropped.name;
        let living = table
            .columns
            .iter()
            .find(|c| c.kind == dropped.kind && c.name == dropped.name);
        let last = table.dropped.iter().rfind(same_name).map_or(dropped.id, |d| d.id);
        let drops = table.dropped.iter().filter(same_name).map(|d| d.dropped_at_us);
        Self {
            id: usize::from(living.map_or(last, |c| c.id).0),
            newer_than: match dropped.cql_type {
                CqlType::Counter => i64::MAX,
                _ => drops.max().unwrap_or(dropped.dropped_at_us),
            },
        }
    }
}

impl RowLayout {
    /// Derived from the living and the dropped columns.
    pub fn of(table: &Table) -> Self {
        let mut layout = Self::default();
        let living = table
            .columns
            .iter()
            .filter(|c| matches!(c.kind, ColumnKind::Static | ColumnKind::Regular));
        for c in living {
            layout.set(c.id, &c.cql_type);
        }
        for c in &table.dropped {
            layout.set(c.id, &c.cql_type);
            let id = usize::from(c.id.0);
            if layout.dropped.len() <= id {
                layout.dropped.resize(id + 1, None);
            }
            layout.dropped[id] = Some(Successor::of(c, table));
        }
        layout
    }

    /// A layout from types by id; for tests and system tables.
    pub fn from_types(types: &[CqlType]) -> Self {
        let mut layout = Self::default();
        for (i, t) in types.iter().enumerate() {
            layout.set(
                ColumnId(u16::try_from(i).expect("a table has fewer than 65,535 columns")),
                t,
            );
        }
        layout
    }

    fn set(&mut self, id: ColumnId, cql_type: &CqlType) {
        let i = usize::from(id.0);
        if self.cells.len() <= i {
            self.cells.resize(i + 1, CellLayout::Unknown);
            self.paths.resize(i + 1, None);
        }
        self.cells[i] = match cql_type {
            t if t.is_multi_cell() || t.is_counter() => CellLayout::Complex,
            t => match t.fixed_len().and_then(|n| u8::try_from(n).ok()) {
                Some(n) => CellLayout::Fixed(n),
                None => CellLayout::Variable,
            },
        };
        self.complex |= self.cells[i] == CellLayout::Complex;
        self.paths[i] = match cql_type {
            CqlType::List(_) => Some(CqlType::TimeUuid.comparator()),
            CqlType::Set(k) | CqlType::Map(k, _) => Some(k.comparator()),
            CqlType::Udt(_) => Some(CqlType::SmallInt.comparator()),
            _ => None,
        };
    }

    /// The layout of one column.
    #[inline]
    pub fn cell(&self, id: usize) -> CellLayout {
        self.cells.get(id).copied().unwrap_or(CellLayout::Unknown)
    }

    /// Order of two element paths of a complex column.
    pub fn compare_paths(&self, id: usize, a: &[u8], b: &[u8]) -> Ordering {
        match self.paths.get(id) {
            Some(Some(c)) => c.compare(a, b),
            _ => a.cmp(b),
        }
    }

    /// Whether the column was dropped. No reader sees its cells.
    #[inline]
    pub fn is_dropped(&self, id: usize) -> bool {
        self.successor(id).is_some()
    }

    /// Whether any column was dropped.
    #[inline]
    pub fn has_dropped(&self) -> bool {
        !self.dropped.is_empty()
    }

    /// Of a dropped column: which column inherits its cells, and from which timestamp on.
    #[inline]
    pub fn successor(&self, id: usize) -> Option<Successor> {
        self.dropped.get(id).copied().flatten()
    }

    /// Whether any column ever was a multi-cell one.
    #[inline]
    pub fn has_complex(&self) -> bool {
        self.complex
    }

    /// One more than the largest column id.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether the table never had a static or regular column.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }
}

/// The order of a table's rows: a comparator and a direction for each clustering column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusteringOrder {
    columns: Vec<(Comparator, bool)>,
}

impl ClusteringOrder {
    /// Derived from the clustering columns.
    pub fn of(table: &Table) -> Self {
        Self {
            columns: table
                .clustering()
                .map(|c| (c.cql_type.comparator(), c.descending))
                .collect(),
        }
    }

    /// An order from types and directions (true is descending); for tests.
    pub fn from_types(types: &[(CqlType, bool)]) -> Self {
        Self {
            columns: types.iter().map(|(t, d)| (t.comparator(), *d)).collect(),
        }
    }

    /// How many clustering columns there are.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether a partition has at most one row.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Compares two serialised clustering prefixes over the components that both have.
    ///
    /// Equal means that the shorter one is a prefix of the longer one; bounds add their own weight.
    #[inline]
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        self.compare_first(self.columns.len(), a, b)
    }

    /// Compares two serialised clustering prefixes over the components that both have, at most over the first
    /// `columns`.
    #[inline]
    pub fn compare_first(&self, columns: usize, mut a: &[u8], mut b: &[u8]) -> Ordering {
        for (comparator, descending) in self.columns.iter().take(columns) {
            let (Some((x, rest_a)), Some((y, rest_b))) = (split_component(a), split_component(b)) else {
                return Ordering::Equal;
            };
            let order = match (x, y) {
                (Some(x), Some(y)) => {
                    let order = comparator.compare(x, y);
                    if *descending { order.reverse() } else { order }
                }
                // A null sorts first in either direction.
                _ => x.is_some().cmp(&y.is_some()),
            };
            if order != Ordering::Equal {
                return order;
            }
            (a, b) = (rest_a, rest_b);
        }
        Ordering::Equal
    }
}

/// The encoding of a null component in a serialised clustering prefix. No length is encoded so, as lengths take their
/// shortest form. Only rows of compact storage have null components, in their last columns (docs/dev/schema.md).
const NULL_COMPONENT: [u8; 2] = [0x80, 0x00];

/// Splits the first component off a serialised clustering prefix, which is None where it is null; None at its end (or
/// where it is cut short).
#[inline]
pub fn split_component(prefix: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (&first, rest) = prefix.split_first()?;
    if first < 0x80 {
        let (component, rest) = rest.split_at_checked(usize::from(first))?;
        return Some((Some(component), rest));
    }
    if let Some(rest) = prefix.strip_prefix(&NULL_COMPONENT) {
        return Some((None, rest));
    }
    let (len, used) = vint::get_unsigned(prefix)?;
    let (component, rest) = prefix[used..].split_at_checked(usize::try_from(len).ok()?)?;
    Some((Some(component), rest))
}

/// Appends one component to a serialised clustering prefix.
#[inline]
pub fn push_component(prefix: &mut Vec<u8>, component: &[u8]) {
    vint::put_unsigned(prefix, component.len() as u64);
    prefix.extend_from_slice(component);
}

/// Appends a component that is null to a serialised clustering prefix.
pub fn push_null(prefix: &mut Vec<u8>) {
    prefix.extend_from_slice(&NULL_COMPONENT);
}

/// Appends what makes a prefix of the first `columns` components the clustering key of a row of `order`: nulls.
pub fn pad_with_nulls(prefix: &mut Vec<u8>, columns: usize, order: &ClusteringOrder) {
    (columns..order.len()).for_each(|_| push_null(prefix));
}

/// The components of a serialised clustering prefix, in order; None for those that are null.
pub fn components(mut prefix: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    std::iter::from_fn(move || {
        let (component, rest) = split_component(prefix)?;
        prefix = rest;
        Some(component)
    })
}

/// Component `i` of a serialised partition key, which has several components or is its only one.
#[inline]
pub fn key_component(is_composite: bool, key: &[u8], i: usize) -> Option<&[u8]> {
    if !is_composite {
        return Some(key);
    }
    let mut rest = key;
    for at in 0.. {
        let (len, tail) = rest.split_first_chunk::<2>()?;
        let (part, tail) = tail.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
        if at == i {
            return Some(part);
        }
        rest = tail.get(1..)?;
    }
    None
}
