//! One row merged from what memory has of it, without a block: the shortest way from memtables to a value.

use mutation::compact::LiveRow;
use mutation::{RowView, Tombstone, merge, stretch};
use schema::RowLayout;

use crate::read::point::{RowName, Sources};
use crate::read::row_cache::CachedRow;
use crate::tablets::tablet::Version;

/// Buffers that reads of rows from memory reuse.
#[derive(Default, Debug)]
pub struct RowBuffers {
    pub(crate) merged: Vec<u8>,
    other: Vec<u8>,
    pub(crate) name: Vec<u8>,
}

/// What a reader of a merged row wants of it.
pub struct RowProjection<'r, C: Fn() -> Vec<u16>> {
    /// How the table's rows are packed.
    pub layout: &'r RowLayout,
    /// The second at which cells live or not.
    pub now: u32,
    /// The columns that are returned, by id. Of a row that a memtable holds in fragments no others are read, unless
    /// nothing of them lives.
    pub columns: C,
}

/// What memory says of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InMemory<R> {
    /// What came of the row.
    Row(R),
    /// The row has to be read in the general way.
    General,
    /// An sstable has the row, or may have it.
    Missed,
}

impl Version {
    /// Runs `f` on a row and the deletion over it, if memory alone can answer for it; on None if nothing is known of
    /// the row.
    #[inline]
    pub fn read_merged<R>(
        &self,
        row: RowName<'_>,
        wanted: &RowProjection<'_, impl Fn() -> Vec<u16>>,
        buffers: &mut RowBuffers,
        f: impl FnOnce(Option<RowView<'_>>, Tombstone) -> R,
    ) -> InMemory<R> {
        let RowBuffers { merged, other, name } = buffers;
        let read = self.read_memory(row, name, |sources, cached| {
            merge_row(row.clustering, wanted, (sources, cached), (merged, other), f)
        });
        match read {
            Some(Some(result)) => InMemory::Row(result),
            Some(None) => InMemory::General,
            None => InMemory::Missed,
        }
    }

    /// As [`Version::read_merged`], with what [`Version::load_row`] has just read of the row. None: the row has to be
    /// read in the general way.
    pub fn read_merged_with<R>(
        &self,
        row: RowName<'_>,
        loaded: &CachedRow,
        wanted: &RowProjection<'_, impl Fn() -> Vec<u16>>,
        buffers: &mut RowBuffers,
        f: impl FnOnce(Option<RowView<'_>>, Tombstone) -> R,
    ) -> Option<R> {
        let RowBuffers { merged, other, .. } = buffers;
        let read = self.read_loaded(row, loaded, |sources, loaded| {
            merge_row(row.clustering, wanted, (sources, loaded), (merged, other), f)
        });
        read.flatten()
    }
}

/// None: the row has to be read in the general way.
#[inline]
fn merge_row<R>(
    clustering: &[u8],
    wanted: &RowProjection<'_, impl Fn() -> Vec<u16>>,
    (sources, cached): (&Sources<'_>, Option<&CachedRow>),
    (merged, other): (&mut Vec<u8>, &mut Vec<u8>),
    f: impl FnOnce(Option<RowView<'_>>, Tombstone) -> R,
) -> Option<R> {
    let mut deletion = Tombstone::NONE;
    let mut found = 0;
    let mut row: Option<RowView<'_>> = None;
    if let Some(cached) = cached {
        deletion = cached.deletion();
        row = cached.row.as_deref().and_then(RowView::new);
        found = u32::from(row.is_some());
    }
    for part in sources.iter() {
        deletion = deletion.merge(part.deletion_of(clustering));
        let Some((row_name, part_row)) = part.named_row(clustering) else {
            continue;
        };
        if row_name != clustering {
            // Equal, but written in another way, which is what is answered.
            return None;
        }
        let Some(view) = part_row.packed() else {
            if sources.iter().any(|part| part.has_long_row(clustering)) {
                return None;
            }
            deletion = assemble_large_row(clustering, wanted, (sources, cached), (merged, other));
            (row, found) = (None, 1);
            break;
        };
        found += 1;
        if found == 1 {
            row = Some(view);
            continue;
        }
        // Several memtables hold the row: merge into one buffer, then into the other.
        let have = match row.take() {
            Some(view) => view,
            None => RowView::new(merged).expect("a merged row is well formed"),
        };
        other.clear();
        merge::merge_rows(wanted.layout, have, view, other);
        std::mem::swap(merged, other);
    }
    if row.is_none() && found > 0 {
        row = Some(RowView::new(merged).expect("a merged row is well formed"));
    }
    Some(f(row, deletion))
}

/// Puts a row that a memtable holds in fragments together in `merged`; returns the deletion over it.
///
/// Only fragments of the columns that are returned are read, unless nothing of them lives. Then another cell may, and
/// the row is there all the same.
#[cold]
fn assemble_large_row(
    clustering: &[u8],
    wanted: &RowProjection<'_, impl Fn() -> Vec<u16>>,
    (sources, cached): (&Sources<'_>, Option<&CachedRow>),
    (merged, other): (&mut Vec<u8>, &mut Vec<u8>),
) -> Tombstone {
    let (layout, ids) = (wanted.layout, (wanted.columns)());
    let mut deletion = cached.map_or(Tombstone::NONE, CachedRow::deletion);
    for part in sources.iter() {
        deletion = deletion.merge(part.deletion_of(clustering));
    }
    let cached_row = cached.and_then(|c| c.row.as_deref()).and_then(RowView::new);
    let mut one = Vec::new();
    for whole in [false, true] {
        merged.clear();
        match cached_row {
            Some(row) if whole => merged.extend_from_slice(row.bytes()),
            Some(row) => stretch::select(row, layout, &ids, merged),
            None => {}
        }
        for row in sources.iter().filter_map(|part| part.row(clustering)) {
            one.clear();
            if whole {
                row.pack(&mut one);
            } else {
                row.pack_columns(&ids, &mut one);
            }
            if merged.is_empty() {
                std::mem::swap(merged, &mut one);
                continue;
            }
            other.clear();
            let (a, b) = (RowView::new(merged), RowView::new(&one));
            let (a, b) = a.zip(b).expect("rows in memory are well formed");
            merge::merge_rows(layout, a, b, other);
            std::mem::swap(merged, other);
        }
        let view = RowView::new(merged).expect("a memtable holds the row");
        if LiveRow::new(view, layout, deletion, wanted.now).is_live() {
            break;
        }
    }
    deletion
}
