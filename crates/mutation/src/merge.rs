//! Which write wins.
//!
//! - The greater write timestamp wins.
//! - At equal timestamps a tombstone or an expiring cell beats a cell that lives forever, a tombstone beats an expiring
//!   cell, the later deletion time beats the earlier, and at last the greater value (unsigned bytes) beats the smaller.
//!   So the outcome depends neither on the order of arrival nor on the clock.
//! - A tombstone of a row or of a whole collection removes what it covers (timestamps at or below its own).
//! - Row markers follow the same rules without a value.
//!
//! These are Apache Cassandra's rules as its documentation and the running peer show them; the naive model in the
//! tests restates them cell by cell.

use std::cmp::Ordering;

use schema::{CellLayout, RowLayout};
use stdx::preempt;

use crate::row::{Cell, Column, Columns, Complex, Elements, Liveness, RowBuilder, RowView, Shared, needs_mixed};
use crate::{PartitionBlock, RangeTombstoneList, Tombstone};

/// Greater is the one that wins.
#[inline]
pub fn compare_cells(a: &Cell<'_>, b: &Cell<'_>) -> Ordering {
    a.timestamp.cmp(&b.timestamp).then_with(|| {
        let mortal = |c: &Cell<'_>| c.dead || c.ttl > 0;
        mortal(a)
            .cmp(&mortal(b))
            .then(a.dead.cmp(&b.dead))
            .then(a.deletion_time.cmp(&b.deletion_time))
            .then_with(|| a.value.cmp(b.value))
            .then(b.ttl.cmp(&a.ttl))
    })
}

/// The stronger of two row markers.
#[inline]
pub fn merge_markers(a: Option<Liveness>, b: Option<Liveness>) -> Option<Liveness> {
    let (Some(x), Some(y)) = (a, b) else {
        return a.or(b);
    };
    let order = x.timestamp.cmp(&y.timestamp).then_with(|| {
        (x.ttl > 0).cmp(&(y.ttl > 0)).then_with(|| {
            if x.ttl > 0 {
                // The shorter life that ends in the same second was written later.
                x.expiry.cmp(&y.expiry).then(y.ttl.cmp(&x.ttl))
            } else {
                Ordering::Equal
            }
        })
    });
    Some(if order == Ordering::Less { y } else { x })
}

/// The elements of one complex column in two rows, merged, without those that `tombstone` covers.
#[derive(Clone)]
struct MergedElements<'a> {
    a: Elements<'a>,
    b: Elements<'a>,
    next_a: Option<(&'a [u8], Cell<'a>)>,
    next_b: Option<(&'a [u8], Cell<'a>)>,
    layout: &'a RowLayout,
    id: usize,
    tombstone: Tombstone,
}

impl<'a> Iterator for MergedElements<'a> {
    type Item = (&'a [u8], Cell<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let order = match (&self.next_a, &self.next_b) {
                (None, None) => return None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((p, _)), Some((q, _))) => self.layout.compare_paths(self.id, p, q),
            };
            let mut best: Option<(&'a [u8], Cell<'a>)> = None;
            if order != Ordering::Greater {
                best = std::mem::replace(&mut self.next_a, self.a.next());
            }
            if order != Ordering::Less {
                let b = std::mem::replace(&mut self.next_b, self.b.next());
                best = match (best, b) {
                    (Some(x), Some(y)) => Some(if compare_cells(&x.1, &y.1) == Ordering::Less {
                        y
                    } else {
                        x
                    }),
                    (x, y) => x.or(y),
                };
            }
            if let Some((_, cell)) = &best
                && self.tombstone.covers(cell.timestamp)
            {
                continue;
            }
            return best;
        }
    }
}

fn merge_complex<'a>(
    layout: &'a RowLayout,
    id: usize,
    a: Complex<'a>,
    b: Complex<'a>,
    row: Tombstone,
) -> Option<(Tombstone, MergedElements<'a>)> {
    let own = a.tombstone.merge(b.tombstone);
    let covering = own.merge(row);
    let (mut x, mut y) = (a.elements(), b.elements());
    let merged = MergedElements {
        next_a: x.next(),
        next_b: y.next(),
        a: x,
        b: y,
        layout,
        id,
        tombstone: covering,
    };
    let own = if own.supersedes(row) { own } else { Tombstone::NONE };
    (!own.is_none() || merged.clone().next().is_some()).then_some((own, merged))
}

#[expect(clippy::large_enum_variant, reason = "lives on the stack for the length of one call")]
enum Merged<'a> {
    Simple(Cell<'a>),
    Complex(Tombstone, MergedElements<'a>),
}

/// Calls `f` with each column of the merge of two rows, in id order, without what `tombstone` covers.
fn walk<'a>(
    layout: &'a RowLayout,
    mut a: Columns<'a>,
    mut b: Columns<'a>,
    tombstone: Tombstone,
    mut f: impl FnMut(usize, Merged<'a>),
) {
    loop {
        let (x, y) = (a.peek_id(), b.peek_id());
        let id = match (x, y) {
            (None, None) => return,
            (Some(i), None) | (None, Some(i)) => i,
            (Some(i), Some(j)) => i.min(j),
        };
        let left = if x == Some(id) { a.next().map(|(_, c)| c) } else { None };
        let right = if y == Some(id) { b.next().map(|(_, c)| c) } else { None };
        match (left, right) {
            (Some(Column::Simple(c)), Some(Column::Simple(d))) => {
                let cell = if compare_cells(&c, &d) == Ordering::Less { d } else { c };
                if !tombstone.covers(cell.timestamp) {
                    f(id, Merged::Simple(cell));
                }
            }
            (Some(Column::Simple(c)), _) | (_, Some(Column::Simple(c))) => {
                if !tombstone.covers(c.timestamp) {
                    f(id, Merged::Simple(c));
                }
            }
            (left, right) => {
                let part = |c: Option<Column<'a>>| match c {
                    Some(Column::Complex(c)) => c,
                    _ => Complex::empty(),
                };
                if let Some((own, elements)) = merge_complex(layout, id, part(left), part(right), tombstone) {
                    f(id, Merged::Complex(own, elements));
                }
            }
        }
    }
}

/// Memory for the merge of longer rows is reserved before: a buffer that grows is copied in one step.
const LONG_ROW_BYTES: usize = 64 << 10;

/// Appends the merge of two rows to `out`. The order of the arguments does not matter.
pub fn merge_rows(layout: &RowLayout, a: RowView<'_>, b: RowView<'_>, out: &mut Vec<u8>) {
    if supersedes(layout, a, b) {
        preempt::append(out, a.bytes());
        return;
    }
    if supersedes(layout, b, a) {
        preempt::append(out, b.bytes());
        return;
    }
    let tombstone = a.tombstone.merge(b.tombstone);
    let marker = merge_markers(a.marker, b.marker).filter(|m| !tombstone.covers(m.timestamp));
    // First pass: which timestamp do most cells share, and does any cell differ from its row?
    let (mut at_a, mut at_b, mut columns) = (0usize, 0usize, 0usize);
    walk(layout, a.columns(layout), b.columns(layout), tombstone, |id, merged| {
        columns = id + 1;
        let mut count = |t: i64| {
            at_a += usize::from(t == a.timestamp);
            at_b += usize::from(t == b.timestamp);
        };
        match merged {
            Merged::Simple(c) => count(c.timestamp),
            Merged::Complex(_, elements) => elements.for_each(|(_, c)| count(c.timestamp)),
        }
    });
    let base = if at_a >= at_b { a } else { b };
    let shared = Shared {
        timestamp: base.timestamp,
        ttl: base.ttl,
        expiry: base.expiry,
    };
    let mut mixed = false;
    walk(layout, a.columns(layout), b.columns(layout), tombstone, |id, merged| {
        if let Merged::Simple(c) = merged {
            mixed |= needs_mixed(&c, layout.cell(id), shared.timestamp, shared.ttl, shared.expiry);
        }
    });
    if a.bytes().len() + b.bytes().len() > LONG_ROW_BYTES {
        out.reserve(a.bytes().len() + b.bytes().len());
    }
    let mut builder = RowBuilder::begin(out, layout, shared, marker, tombstone, mixed, columns);
    walk(
        layout,
        a.columns(layout),
        b.columns(layout),
        tombstone,
        |id, merged| match merged {
            Merged::Simple(c) => builder.cell(id, &c),
            Merged::Complex(own, elements) => builder.complex(id, own, elements),
        },
    );
}

/// Whether a row holds what its own tombstones hide: merging it with any row would drop that.
///
/// A row that is packed once and never merged may do so: a peer's row, or that of a batch that deletes a row and
/// replaces a collection of it at one timestamp. Code that stores the parts of a row apart must keep what
/// [`merge_rows`] keeps of the whole, so it stores [`settle_row`] instead.
#[inline]
pub fn hides_itself(layout: &RowLayout, row: RowView<'_>) -> bool {
    (!row.tombstone.is_none() || layout.has_complex()) && hides_some_of_itself(layout, row)
}

#[cold]
fn hides_some_of_itself(layout: &RowLayout, row: RowView<'_>) -> bool {
    let hides_column = |column: Column<'_>| match column {
        Column::Simple(cell) => row.tombstone.covers(cell.timestamp),
        Column::Complex(complex) => {
            let is_idle = !complex.tombstone.is_none() && !complex.tombstone.supersedes(row.tombstone);
            let is_empty = complex.tombstone.is_none() && complex.count == 0;
            let covering = complex.tombstone.merge(row.tombstone);
            is_idle || is_empty || complex.timestamps().is_some_and(|(least, _)| covering.covers(least))
        }
    };
    row.marker.is_some_and(|marker| row.tombstone.covers(marker.timestamp))
        || row.columns(layout).any(|(_, column)| hides_column(column))
}

/// Appends a row without what its own tombstones hide.
pub fn settle_row(layout: &RowLayout, row: RowView<'_>, out: &mut Vec<u8>) {
    merge_rows(layout, row, row, out);
}

/// Appends the part of a merged row that another row, one of those that were merged, lacks: merging the two gives the
/// merged row. False, and nothing appended, when it lacks nothing.
pub fn missing_part(layout: &RowLayout, merged: RowView<'_>, have: RowView<'_>, out: &mut Vec<u8>) -> bool {
    let (before, mut any) = (out.len(), false);
    let marker = merged.marker.filter(|marker| have.marker != Some(*marker));
    let tombstone = lacking(merged.tombstone, have.tombstone);
    any |= marker.is_some() || !tombstone.is_none();
    let ids = merged.presence().len() * 8;
    let mut builder = RowBuilder::begin(out, layout, merged.shared(), marker, tombstone, true, ids);
    let mut others = have.columns(layout).peekable();
    for (id, column) in merged.columns(layout) {
        while others.next_if(|(other, _)| *other < id).is_some() {}
        let other = others.next_if(|(other, _)| *other == id).map(|(_, column)| column);
        match (column, other) {
            (Column::Simple(cell), Some(Column::Simple(other))) if compare_cells(&cell, &other).is_eq() => {}
            (Column::Simple(cell), _) => {
                builder.cell(id, &cell);
                any = true;
            }
            (Column::Complex(complex), other) => {
                let other = match other {
                    Some(Column::Complex(other)) => other,
                    _ => Complex::empty(),
                };
                let tombstone = lacking(complex.tombstone, other.tombstone);
                let missing = missing_elements(layout, id, &complex, &other);
                if !tombstone.is_none() || !missing.is_empty() {
                    builder.complex(id, tombstone, missing.iter().copied());
                    any = true;
                }
            }
        }
    }
    if !any {
        out.truncate(before);
    }
    any
}

/// A deletion, unless the other is as strong.
fn lacking(deletion: Tombstone, other: Tombstone) -> Tombstone {
    if deletion.supersedes(other) {
        deletion
    } else {
        Tombstone::NONE
    }
}

fn missing_elements<'a>(
    layout: &RowLayout,
    id: usize,
    merged: &Complex<'a>,
    have: &Complex<'_>,
) -> Vec<(&'a [u8], Cell<'a>)> {
    let mut others = have.elements().peekable();
    let is_missing = |(path, cell): &(&'a [u8], Cell<'a>)| {
        while others
            .next_if(|(p, _)| layout.compare_paths(id, p, path).is_lt())
            .is_some()
        {}
        let other = others.next_if(|(p, _)| layout.compare_paths(id, p, path).is_eq());
        other.is_none_or(|(_, other)| compare_cells(cell, &other).is_ne())
    };
    merged.elements().filter(is_missing).collect()
}

/// Whether `new` replaces `old` whole: newer, no deletions involved, and nothing of `old` is missing from it.
#[inline]
fn supersedes(layout: &RowLayout, new: RowView<'_>, old: RowView<'_>) -> bool {
    new.is_uniform()
        && old.is_uniform()
        && new.timestamp > old.timestamp
        && (new.marker.is_some() || old.marker.is_none())
        && old.presence().len() <= new.presence().len()
        && old.presence().iter().zip(new.presence()).all(|(o, n)| o & !n == 0)
        && (!has_complex(layout, new.presence()) || replaces_complex(layout, new, old))
}

/// Whether the multi-cell columns of `new` replace those of `old` whole, as when a whole collection is written: their
/// tombstones cover all of `old`, and nothing of `new`.
fn replaces_complex(layout: &RowLayout, new: RowView<'_>, old: RowView<'_>) -> bool {
    let mut former = old.columns(layout).peekable();
    for (id, column) in new.columns(layout) {
        while former.next_if(|(other, _)| *other < id).is_some() {}
        let other = former.next_if(|(other, _)| *other == id);
        let Column::Complex(complex) = column else { continue };
        if complex
            .timestamps()
            .is_some_and(|(least, _)| complex.tombstone.covers(least))
        {
            return false;
        }
        match other {
            None => {}
            Some((_, Column::Complex(other))) => {
                let is_covered = |(_, greatest): (i64, i64)| complex.tombstone.covers(greatest);
                let is_weaker = other.tombstone.is_none() || complex.tombstone.supersedes(other.tombstone);
                if !is_weaker || !other.timestamps().is_none_or(is_covered) {
                    return false;
                }
            }
            Some(_) => return false,
        }
    }
    true
}

#[inline]
fn has_complex(layout: &RowLayout, presence: &[u8]) -> bool {
    layout.has_complex()
        && (0..presence.len() * 8)
            .any(|id| presence[id / 8] & (1 << (id % 8)) != 0 && layout.cell(id) == CellLayout::Complex)
}

/// Merges blocks of the same partition, all complete up to the same bound (or whole). Rows of equal clustering merge,
/// range tombstones are laid over each other; what partition or range tombstones cover stays, for the compaction or
/// the reader to drop.
pub fn merge_blocks(
    layout: &RowLayout,
    order: &schema::ClusteringOrder,
    blocks: &[&PartitionBlock],
) -> Option<PartitionBlock> {
    let first = blocks.first()?;
    let mut out = PartitionBlock::new(first.token, first.key());
    out.covered = first.covered.clone();
    let mut deletions = RangeTombstoneList::default();
    let mut scratch = Vec::new();
    let mut static_row: Option<Vec<u8>> = None;
    for block in blocks {
        out.tombstone = out.tombstone.merge(block.tombstone);
        if deletions.is_empty() {
            deletions = RangeTombstoneList::from_sorted(block.range_tombstones.clone());
        } else {
            for r in &block.range_tombstones {
                deletions.add(order, r.clone());
            }
        }
        if let Some(row) = block.static_row() {
            static_row = Some(match static_row.take() {
                None => row.bytes().to_vec(),
                Some(have) => {
                    scratch.clear();
                    let have = RowView::new(&have).expect("a merged row is well formed");
                    merge_rows(layout, have, row, &mut scratch);
                    std::mem::take(&mut scratch)
                }
            });
        }
    }
    if let Some(row) = static_row {
        out.set_static_row(&row);
    }
    out.range_tombstones = deletions.into_vec();
    let mut at = vec![0usize; blocks.len()];
    let mut same: Vec<usize> = Vec::with_capacity(blocks.len());
    let (mut left, mut right) = (Vec::new(), Vec::new());
    loop {
        same.clear();
        for (i, block) in blocks.iter().enumerate() {
            if at[i] == block.len() {
                continue;
            }
            let key = block.clustering(at[i]);
            match same
                .first()
                .map(|&f: &usize| order.compare(key, blocks[f].clustering(at[f])))
            {
                None | Some(Ordering::Equal) => same.push(i),
                Some(Ordering::Less) => {
                    same.clear();
                    same.push(i);
                }
                Some(Ordering::Greater) => {}
            }
        }
        let Some(&f) = same.first() else {
            return Some(out);
        };
        let key = blocks[f].clustering(at[f]);
        if let [only] = same[..] {
            out.push_row(key, blocks[only].row(at[only]).bytes());
        } else {
            let row = |i: usize| blocks[i].row(at[i]);
            left.clear();
            merge_rows(layout, row(same[0]), row(same[1]), &mut left);
            for &i in &same[2..] {
                right.clear();
                let have = RowView::new(&left).expect("a merged row is well formed");
                merge_rows(layout, have, row(i), &mut right);
                std::mem::swap(&mut left, &mut right);
            }
            out.push_row(key, &left);
        }
        for &i in &same {
            at[i] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use schema::{Column as TableColumn, ColumnKind, Table, TableId, TableOptions};
    use types::CqlType;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn replicas_that_got_two_inserts_in_different_order_keep_the_same_marker() {
        let marker = |timestamp, ttl, expiry| Liveness { timestamp, ttl, expiry };
        // From the weakest to the strongest.
        let markers = [
            None,
            Some(marker(1, 100, 900)),
            Some(marker(2, 0, 0)),
            Some(marker(2, 100, 500)),
            Some(marker(2, 200, 600)),
            Some(marker(2, 100, 600)),
            Some(marker(3, 0, 0)),
        ];
        for (i, weaker) in markers.iter().enumerate() {
            for stronger in &markers[i..] {
                assert_eq!(merge_markers(*weaker, *stronger), *stronger);
                assert_eq!(merge_markers(*stronger, *weaker), *stronger, "in the other order");
            }
        }
    }
    #[test]
    fn the_timestamps_of_a_collection_are_those_of_its_elements() {
        let map = CqlType::Map(Arc::new(CqlType::Text), Arc::new(CqlType::Text));
        let columns = vec![
            TableColumn::new("k", CqlType::Blob, ColumnKind::PartitionKey),
            TableColumn::new("m", map, ColumnKind::Regular),
        ];
        let id = TableId(Uuid::from_u128(7));
        let layout = Table::new("ks", "t", id, columns, TableOptions::default()).layout;
        let cell = |timestamp, ttl, dead, value: &'static [u8]| Cell {
            timestamp,
            ttl,
            deletion_time: if dead || ttl > 0 { 77 } else { 0 },
            dead,
            value,
        };
        let long = &[b'v'; 300];
        let elements: [(&[u8], Cell<'_>); 6] = [
            (b"a", cell(1_000, 0, false, b"lives")),
            (b"b", cell(-900, 0, false, b"older")),
            (b"c", cell(1_100, 9, false, b"expires")),
            (b"d", cell(1_200, 0, true, b"")),
            (b"e", cell(1_000, 60, false, b"expires with the row")),
            (b"f", cell(1_000, 0, false, long)),
        ];
        let shared = Shared {
            timestamp: 1_000,
            ttl: 60,
            expiry: 77,
        };
        for from in 0..=elements.len() {
            for to in from..=elements.len() {
                let mut bytes = Vec::new();
                RowBuilder::begin(&mut bytes, &layout, shared, None, Tombstone::NONE, false, 1).complex(
                    0,
                    Tombstone::NONE,
                    elements[from..to].iter().copied(),
                );
                let view = RowView::new(&bytes).expect("a row that was packed");
                let Some((_, Column::Complex(complex))) = view.columns(&layout).next() else {
                    panic!("the column has elements");
                };
                let read: Vec<i64> = complex.elements().map(|(_, cell)| cell.timestamp).collect();
                assert_eq!(read.len(), to - from);
                let range = read.iter().copied().min().zip(read.iter().copied().max());
                assert_eq!(complex.timestamps(), range, "elements {from} to {to}");
            }
        }
    }
}
