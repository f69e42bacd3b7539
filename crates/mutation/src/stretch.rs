//! Stretches: a packed row taken apart into packed rows, and put together again.
//!
//! The cells of a row are in order: by column id, then by element path. A *stretch* is a packed row that holds the
//! cells between two positions ([`Position`]) of another one. It also holds whatever decides about any cell that could
//! be between them: the row tombstone, and the tombstone of each complex column that can have cells there. So merging
//! stretch by stretch is merging whole rows. The row marker goes with the first stretch.
//!
//! ```text
//! row        marker  a=1  m: deleted before 5, {1: x, 4: y, 9: z}  s=2
//! cut before m[4] and before s:
//!   stretch  marker  a=1  m: deleted before 5, {1: x}
//!   stretch               m: deleted before 5, {4: y, 9: z}
//!   stretch                                                        s=2
//! ```

use std::cmp::Ordering;

use schema::RowLayout;
use stdx::vint;

use crate::Tombstone;
use crate::row::{Cell, Column, Columns, Complex, Elements, RowBuilder, RowView, Shared, needs_mixed};

/// A position before or after a cell of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position<'a> {
    /// Column id.
    pub id: usize,
    /// An element's path; empty is before every element, and the place of a simple cell.
    pub path: &'a [u8],
    /// After that cell, not before it.
    pub after: bool,
}

impl<'a> Position<'a> {
    /// Before everything.
    pub const FIRST: Self = Self::column(0);

    /// Before everything of a column.
    pub const fn column(id: usize) -> Self {
        Self {
            id,
            path: &[],
            after: false,
        }
    }

    /// Before an element.
    pub const fn element(id: usize, path: &'a [u8]) -> Self {
        Self { id, path, after: false }
    }

    /// Which of two places comes first.
    pub fn compare(&self, other: &Position<'_>, layout: &RowLayout) -> Ordering {
        let paths = || match (self.path.is_empty(), other.path.is_empty()) {
            (false, false) => layout.compare_paths(self.id, self.path, other.path),
            (a, b) => b.cmp(&a),
        };
        self.id
            .cmp(&other.id)
            .then_with(paths)
            .then(self.after.cmp(&other.after))
    }
}

/// Where the part of a row that is not taken yet begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest<'a> {
    /// Everything is taken.
    Nothing,
    /// In the stretch right after the last one, whatever its position: a deletion reaches into it.
    Adjacent,
    /// At this position; stretches before it are not affected.
    At(Position<'a>),
}

/// Takes a row apart, from its first cell to its last.
pub struct Stretches<'a> {
    row: RowView<'a>,
    layout: &'a RowLayout,
    columns: Columns<'a>,
    /// The complex column that the last stretch ended in, and its elements to come.
    open: Option<(usize, Tombstone, Elements<'a>)>,
}

impl<'a> Stretches<'a> {
    /// Nothing is taken yet.
    pub fn new(row: RowView<'a>, layout: &'a RowLayout) -> Self {
        Self {
            row,
            layout,
            columns: row.columns(layout),
            open: None,
        }
    }

    /// Where the rest begins.
    pub fn rest(&self) -> Rest<'a> {
        if !self.row.tombstone.is_none() {
            return Rest::Adjacent;
        }
        if let Some((id, tombstone, elements)) = &self.open {
            if !tombstone.is_none() {
                return Rest::Adjacent;
            }
            if let Some((path, _)) = elements.clone().next() {
                return Rest::At(Position::element(*id, path));
            }
        }
        for (id, column) in self.columns.clone() {
            match column {
                Column::Complex(c) if c.tombstone.is_none() => {
                    if let Some((path, _)) = c.elements().next() {
                        return Rest::At(Position::element(id, path));
                    }
                }
                _ => return Rest::At(Position::column(id)),
            }
        }
        Rest::Nothing
    }

    /// Appends the stretch up to `end` to `out`, with the row marker if it is the row's `first`; None is the row's end.
    /// Returns false if it holds nothing.
    pub fn take(&mut self, end: Option<Position<'_>>, first: bool, out: &mut Vec<u8>) -> bool {
        let Self {
            row,
            layout,
            columns,
            open,
        } = self;
        let marker = if first { row.marker } else { None };
        let ids = row.presence().len() * 8;
        let mut builder = RowBuilder::begin(out, layout, row.shared(), marker, row.tombstone, row.is_mixed(), ids);
        let mut any = marker.is_some() || !row.tombstone.is_none();
        loop {
            if let Some((id, tombstone, mut elements)) = open.take() {
                let goes_on = end.is_some_and(|e| e.id == id);
                let inside =
                    |path: &[u8]| end.is_none_or(|e| Position::element(id, path).compare(&e, layout) == Ordering::Less);
                let count = if goes_on {
                    elements.clone().take_while(|(path, _)| inside(path)).count()
                } else {
                    elements.clone().count()
                };
                if count > 0 || !tombstone.is_none() {
                    builder.complex(id, tombstone, elements.clone().take(count));
                    any = true;
                }
                if goes_on {
                    if count > 0 {
                        elements.nth(count - 1);
                    }
                    *open = Some((id, tombstone, elements));
                    return any;
                }
            }
            let Some(id) = columns.peek_id() else { return any };
            if end.is_some_and(|e| Position::column(id).compare(&e, layout) != Ordering::Less) {
                return any;
            }
            match columns.next() {
                Some((id, Column::Simple(cell))) => {
                    builder.cell(id, &cell);
                    any = true;
                }
                Some((id, Column::Complex(c))) => *open = Some((id, c.tombstone, c.elements())),
                None => return any,
            }
        }
    }
}

/// Calls `f` with the place and the packed bytes, or a few more, of every simple cell and element of a row.
fn each_cell<'a>(row: RowView<'a>, layout: &'a RowLayout, mut f: impl FnMut(Position<'a>, usize)) {
    let bytes = |path: &[u8], cell: &Cell<'_>| {
        let own = cell.timestamp != row.timestamp;
        let timestamp = if own {
            vint::signed_len(cell.timestamp.wrapping_sub(row.timestamp))
        } else {
            0
        };
        let times = if cell.dead || cell.ttl > 0 { 8 } else { 0 };
        path.len() + cell.value.len() + CELL_BYTES + timestamp + times
    };
    for (id, column) in row.columns(layout) {
        match column {
            Column::Simple(cell) => f(Position::column(id), bytes(&[], &cell)),
            Column::Complex(c) => c
                .elements()
                .for_each(|(path, cell)| f(Position::element(id, path), bytes(path, &cell))),
        }
    }
}

/// Flags and the usual lengths of path and value.
const CELL_BYTES: usize = 4;

/// How many simple cells and elements the row has.
pub fn cell_count(row: RowView<'_>, layout: &RowLayout) -> usize {
    row.columns(layout)
        .map(|(_, column)| match column {
            Column::Simple(_) => 1,
            Column::Complex(c) => c.count,
        })
        .sum()
}

/// The place of the last simple cell or element of a row.
pub fn last_position<'a>(row: RowView<'a>, layout: &'a RowLayout) -> Option<Position<'a>> {
    let mut last = None;
    for (id, column) in row.columns(layout) {
        match column {
            Column::Simple(_) => last = Some((id, None)),
            Column::Complex(c) if c.count > 0 => last = Some((id, Some(c))),
            Column::Complex(_) => {}
        }
    }
    let (id, complex) = last?;
    Some(match complex.and_then(|c: Complex<'a>| c.elements().last()) {
        Some((path, _)) => Position::element(id, path),
        None => Position::column(id),
    })
}

/// What every stretch holds besides presence bits and cells: timestamp, ttl, tombstones.
const HEAD_BYTES: usize = 48;

/// How [`cuts`] fills stretches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fill {
    /// Each as full as it may be: the row grows at its end.
    Full,
    /// All about equally, with room to grow.
    Even,
}

/// Where to cut a row so that no stretch has more than about `bytes_max` bytes, but for a larger cell alone.
///
/// `head`: the row begins with something that is not a cell, which is then kept apart from a large first cell. Empty
/// when the row is small.
pub fn cuts<'a>(
    row: RowView<'a>,
    layout: &'a RowLayout,
    bytes_max: usize,
    fill: Fill,
    head: bool,
) -> Vec<Position<'a>> {
    let mut cuts = Vec::new();
    let head_len = row.presence().len() + HEAD_BYTES;
    let len = row.bytes().len();
    let step = match fill {
        Fill::Full => usize::MAX,
        Fill::Even => len.div_ceil(len.div_ceil(bytes_max / 4 * 3).max(2)),
    };
    let mut next = step;
    let (mut cells, mut all, mut stretch) = (0usize, 0usize, head_len);
    let mut last: Option<Position<'a>> = None;
    let mut last_is_large = false;
    each_cell(row, layout, |at, len| {
        let large = len > bytes_max;
        let cut = if cells == 0 {
            head && large
        } else {
            large || last_is_large || stretch + len > bytes_max || all >= next
        };
        if cut {
            cuts.push(match last {
                // After a large cell, so that a cell added between the two does not copy it.
                Some(l) if l.id == at.id && last_is_large => Position { after: true, ..l },
                Some(l) if l.id == at.id => at,
                _ => Position::column(at.id),
            });
            (cells, stretch) = (0, head_len);
            while next <= all {
                next = next.saturating_add(step);
            }
        }
        (cells, all, stretch) = (cells + 1, all + len, stretch + len);
        (last, last_is_large) = (Some(at), large);
    });
    cuts
}

/// Appends the row that consists of these stretches, given in order, but of its columns only those that are `wanted`.
pub fn join<'a>(
    stretches: impl Iterator<Item = RowView<'a>> + Clone,
    layout: &'a RowLayout,
    wanted: &dyn Fn(usize) -> bool,
    out: &mut Vec<u8>,
) {
    let Some(first) = stretches.clone().next() else { return };
    // The first one may be without cells: what most cells share is likelier found in one that has some.
    let shared = stretches
        .clone()
        .find(|s| cell_count(*s, layout) > 0)
        .unwrap_or(first)
        .shared();
    let mut mixed = false;
    let mut ids = 0;
    let mut complex: Vec<(usize, Tombstone, usize)> = Vec::new();
    for stretch in stretches.clone() {
        stdx::preempt::point();
        let same = !stretch.is_mixed() && stretch.shared() == shared;
        for (id, column) in stretch.columns(layout).filter(|(id, _)| wanted(*id)) {
            ids = id + 1;
            match (column, complex.last_mut()) {
                (Column::Simple(c), _) => {
                    let Shared { timestamp, ttl, expiry } = shared;
                    mixed |= !same && needs_mixed(&c, layout.cell(id), timestamp, ttl, expiry);
                }
                (Column::Complex(c), Some((last, tombstone, count))) if *last == id => {
                    *tombstone = tombstone.merge(c.tombstone);
                    *count += c.count;
                }
                (Column::Complex(c), _) => complex.push((id, c.tombstone, c.count)),
            }
        }
    }
    let mut builder = RowBuilder::begin(out, layout, shared, first.marker, first.tombstone, mixed, ids);
    let mut totals = complex.into_iter();
    let mut open: Option<(usize, usize)> = None;
    for stretch in stretches {
        stdx::preempt::point();
        for (id, column) in stretch.columns(layout).filter(|(id, _)| wanted(*id)) {
            if let Some((_, at)) = open.take_if(|(last, _)| *last != id) {
                builder.end_complex(at);
            }
            match column {
                Column::Simple(c) => builder.cell(id, &c),
                Column::Complex(c) => {
                    if open.is_none() {
                        let (_, tombstone, count) = totals.next().expect("both passes see the same columns");
                        open = Some((id, builder.begin_complex(id, tombstone, count)));
                    }
                    builder.extend_complex(&c);
                }
            }
        }
    }
    if let Some((_, at)) = open {
        builder.end_complex(at);
    }
}

/// Appends a row with those of its columns whose ids are given, marker and tombstone included.
pub fn select(row: RowView<'_>, layout: &RowLayout, ids: &[u16], out: &mut Vec<u8>) {
    let wanted = |id: usize| ids.iter().any(|&i| usize::from(i) == id);
    join(std::iter::once(row), layout, &wanted, out);
}
