//! A row named by its whole key, answered from memory in one call.
//!
//! This is the shortest way through the engine: key bytes, token, tablet, memtable, row, and its values straight into
//! the sink. It allocates nothing beyond the buffers that its caller reuses.

use mutation::compact::{LiveColumn, LiveElements, LiveRow};
use mutation::{RowView, Tombstone, merge, stretch};
use plan::{BindContext, PlanError, PointSource, RowSink, SelectPlan, key_component, put_collection};
use replica::{CachedRow, PlainRow, Sources, TableStore, Tablet, Version};
use schema::components;
use smallvec::SmallVec;
use stdx::probe;
use types::Token;
use types::token::KeyHash;

use super::columns::count;

/// Buffers that point reads reuse.
#[derive(Debug, Default)]
pub struct PointScratch {
    pub(super) key: Vec<u8>,
    pub(super) clustering: Vec<u8>,
    merged: Vec<u8>,
    other: Vec<u8>,
    name: Vec<u8>,
    /// The hash of `key`, after [`PointOutcome::Missed`].
    missed: Option<KeyHash>,
}

/// A row by its whole key, which the memory of this shard was just asked for in vain.
#[derive(Clone, Debug)]
pub struct MissedRow {
    pub(super) hash: KeyHash,
    pub(super) key: Vec<u8>,
    pub(super) clustering: Vec<u8>,
}

impl PointScratch {
    /// The row of the last [`PointOutcome::Missed`].
    pub(super) fn take_missed(&mut self) -> Option<MissedRow> {
        self.missed.take().map(|hash| MissedRow {
            hash,
            key: self.key.clone(),
            clustering: self.clustering.clone(),
        })
    }
}

/// What came of an attempt to answer from memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PointOutcome {
    /// So many rows (none or one) were given to the sink.
    Rows(u32),
    /// So many rows (none or one) were given to the sink, which other replicas have to confirm.
    Unconfirmed(u32),
    /// Another shard owns the key.
    OtherShard(u32),
    /// An sstable may hold it.
    NeedsDisk,
    /// An sstable of this shard holds it, or may: the buffers have its name.
    Missed,
}

/// Tries to answer from this shard's memory; gives the row to `out`.
#[inline]
pub(super) fn read_point(
    plan: &SelectPlan,
    ctx: &BindContext<'_>,
    store: &TableStore,
    owner: impl FnOnce(Token) -> u32,
    scratch: &mut PointScratch,
    out: &mut impl RowSink,
) -> Result<PointOutcome, PlanError> {
    let Some(sources) = plan.point() else {
        return Ok(PointOutcome::NeedsDisk);
    };
    plan.point_names(ctx, &mut scratch.key, &mut scratch.clustering)?;
    let hash = KeyHash::of(&scratch.key);
    let token = hash.token();
    probe::step(|| format!("engine: key of {} bytes, token {}", scratch.key.len(), token.0));
    let Some(tablet) = store.tablet(token) else {
        return Ok(PointOutcome::OtherShard(owner(token)));
    };
    probe::step(|| "coordinator: this shard suffices for a read of every level".to_owned());
    store.metrics.note_read(&scratch.key);
    tablet.count_request();
    Ok(read_named(plan, sources, ctx, (&tablet, hash), scratch, out))
}

/// Tries to answer from the memory of a tablet of this shard, whose row is named in the scratch.
#[inline]
fn read_named(
    plan: &SelectPlan,
    sources: &[PointSource],
    ctx: &BindContext<'_>,
    (tablet, hash): (&Tablet, KeyHash),
    scratch: &mut PointScratch,
    out: &mut impl RowSink,
) -> PointOutcome {
    let now = ctx.expiry_now();
    let PointScratch {
        key,
        clustering,
        merged,
        other,
        name,
        missed,
    } = scratch;
    let rows = tablet.with_version(|v| {
        v.read_memory(hash, key, clustering, name, |parts, cached| {
            point_row(plan, sources, parts, cached, key, clustering, now, merged, other, out)
        })
    });
    match rows {
        Some(Some(rows)) => PointOutcome::Rows(rows),
        Some(None) => PointOutcome::NeedsDisk,
        None => {
            *missed = Some(hash);
            PointOutcome::Missed
        }
    }
}

/// Answers a point read of a row from what was just read of it from files, and from memory.
pub(super) fn read_loaded(
    plan: &SelectPlan,
    ctx: &BindContext<'_>,
    (version, row): (&Version, &MissedRow),
    loaded: &CachedRow,
    scratch: &mut PointScratch,
    out: &mut impl RowSink,
) -> Option<u32> {
    let sources = plan.point()?;
    let now = ctx.expiry_now();
    let PointScratch { merged, other, .. } = scratch;
    let (key, clustering) = (&row.key[..], &row.clustering[..]);
    let rows = version.read_loaded((row.hash, key), loaded, |parts, loaded| {
        point_row(plan, sources, parts, loaded, key, clustering, now, merged, other, out)
    });
    rows.flatten()
}

/// Tries to answer a point read whose names are in the scratch already: see [`SelectPlan::point_names`].
pub(super) fn read_here(
    plan: &SelectPlan,
    ctx: &BindContext<'_>,
    tablet: (&Tablet, KeyHash),
    scratch: &mut PointScratch,
    out: &mut impl RowSink,
) -> PointOutcome {
    match plan.point() {
        Some(sources) => read_named(plan, sources, ctx, tablet, scratch, out),
        None => PointOutcome::NeedsDisk,
    }
}

/// How many rows live, 0 or 1; None when the row must be read in the general way.
#[inline]
#[expect(
    clippy::too_many_arguments,
    reason = "borrowed pieces of one scratch, on the hot path"
)]
fn point_row(
    plan: &SelectPlan,
    sources: &[PointSource],
    parts: &Sources<'_>,
    cached: Option<&CachedRow>,
    key: &[u8],
    clustering: &[u8],
    now: u32,
    merged: &mut Vec<u8>,
    other: &mut Vec<u8>,
    out: &mut impl RowSink,
) -> Option<u32> {
    let layout = &*plan.table.layout;
    let mut deletion = Tombstone::NONE;
    let mut found = 0;
    let mut row: Option<RowView<'_>> = None;
    if let Some(cached) = cached {
        deletion = cached.deletion();
        row = cached.row.as_deref().and_then(RowView::new);
        found = u32::from(row.is_some());
    }
    for part in parts.iter() {
        deletion = deletion.merge(part.deletion_of(clustering));
        let Some((row_name, part_row)) = part.named_row(clustering) else {
            continue;
        };
        if row_name != clustering {
            // Equal, but written in another way, which is what is answered.
            return None;
        }
        let Some(view) = part_row.packed() else {
            if parts.iter().any(|part| part.has_long_row(clustering)) {
                return None;
            }
            deletion = assemble_large_row(plan, sources, parts, cached, clustering, now, merged, other);
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
            Some(v) => v,
            None => RowView::new(merged).expect("a merged row is well formed"),
        };
        other.clear();
        merge::merge_rows(layout, have, view, other);
        std::mem::swap(merged, other);
    }
    let view = match row {
        Some(v) => v,
        None if found == 0 => return Some(0),
        None => RowView::new(merged).expect("a merged row is well formed"),
    };
    Some(write_live_row(
        plan,
        sources,
        (view, deletion),
        key,
        clustering,
        now,
        out,
    ))
}

/// The living values of a row's plain columns, by column id.
type LiveCells<'r> = SmallVec<[Option<&'r [u8]>; 32]>;
/// The living multi-cell columns that are returned.
#[derive(Default)]
struct LiveComplex<'r> {
    /// Counters by column id.
    counters: SmallVec<[(usize, [u8; 8]); 8]>,
    /// Collections and user-defined types by column id.
    elements: SmallVec<[(usize, LiveElements<'r>); 1]>,
}

/// Finds what lives of a row; whether anything does.
///
/// Does not depend on the sink, so it is compiled once, here. The closure lets the compiler join the loop with the
/// iterators that it runs over.
fn gather<'r>(
    live: LiveRow<'r>,
    sources: &[PointSource],
    cells: &mut [Option<&'r [u8]>],
    complex: &mut LiveComplex<'r>,
) -> bool {
    let mut any = live.has_live_marker();
    live.columns().for_each(|(id, column)| {
        any = true;
        match column {
            LiveColumn::Simple(c) => cells[id] = Some(c.value),
            LiveColumn::Complex(elements) => match complex_source(sources, id) {
                Some(PointSource::Counter(_)) => {
                    complex.counters.push((id, count(elements).sum.to_be_bytes()));
                }
                Some(_) => complex.elements.push((id, elements)),
                None => {}
            },
        }
    });
    any
}

/// Gives a row to the sink; how many rows live, 0 or 1.
#[inline]
fn write_live_row(
    plan: &SelectPlan,
    sources: &[PointSource],
    (view, deletion): (RowView<'_>, Tombstone),
    key: &[u8],
    clustering: &[u8],
    now: u32,
    out: &mut impl RowSink,
) -> u32 {
    let layout = &*plan.table.layout;
    let live = LiveRow::new(view, layout, deletion, now);
    let mut cells: LiveCells<'_> = SmallVec::from_elem(None, layout.len());
    let mut complex = LiveComplex::default();
    let cells = &mut cells[..];
    let any = gather(live, sources, cells, &mut complex);
    if !any {
        return 0;
    }
    for source in sources {
        match *source {
            PointSource::Cell(id) => out.value(cells[usize::from(id)]),
            PointSource::Counter(id) => {
                let counter = complex.counters.iter().find(|(counted, _)| *counted == usize::from(id));
                out.value(counter.map(|(_, sum)| &sum[..]));
            }
            PointSource::Elements { id, column } => {
                let found = complex.elements.iter().find(|(of, _)| *of == usize::from(id));
                let value = found.map(|(_, elements)| {
                    let cql_type = &plan.table.columns[usize::from(column)].cql_type;
                    // Lengths take four bytes each.
                    let packed = view.bytes().len();
                    let mut value = Vec::with_capacity(packed + packed / 2);
                    put_collection(&mut value, cql_type, elements.clone());
                    value
                });
                out.value(value.as_deref());
            }
            PointSource::Clustering(i) => out.value(components(clustering).nth(usize::from(i)).flatten()),
            PointSource::PartitionKey(i) => out.value(key_component(&plan.table, key, usize::from(i))),
        }
    }
    out.end_row();
    1
}

/// Reads a plain row from this shard's memory, to be confirmed by other replicas: gives it to `out`, and says how many
/// rows live and the row's digest, as `digest` computes it from key, clustering key, row and second. None: in the
/// general way.
pub(super) fn read_plain(
    plan: &SelectPlan,
    ctx: &BindContext<'_>,
    (tablet, hash): (&Tablet, KeyHash),
    scratch: &mut PointScratch,
    out: &mut impl RowSink,
    digest: impl FnOnce(&[u8], &[u8], &PlainRow<'_>, u32) -> u128,
) -> Option<(u32, u128)> {
    let sources = plan.point()?;
    let now = ctx.expiry_now();
    let PointScratch {
        key,
        clustering,
        merged,
        name,
        ..
    } = scratch;
    tablet.with_version(|v| {
        v.read_plain_row(&plan.table, (hash, key, clustering), name, merged, |row| {
            let rows = match row.row {
                Some(view) => write_live_row(plan, sources, (view, row.partition), key, clustering, now, out),
                None => 0,
            };
            (rows, digest(key, clustering, &row, now))
        })
    })
}

/// Puts a row that a memtable holds in fragments together in `merged`; returns the deletion over it.
///
/// Only fragments of the columns that are returned are read, unless nothing of them lives. Then another cell may, and
/// the row is there all the same.
#[cold]
#[expect(clippy::too_many_arguments, reason = "those of point_row")]
fn assemble_large_row(
    plan: &SelectPlan,
    sources: &[PointSource],
    parts: &Sources<'_>,
    cached: Option<&CachedRow>,
    clustering: &[u8],
    now: u32,
    merged: &mut Vec<u8>,
    other: &mut Vec<u8>,
) -> Tombstone {
    let layout = &*plan.table.layout;
    let ids = sources.iter().filter_map(|source| match source {
        PointSource::Cell(id) | PointSource::Counter(id) | PointSource::Elements { id, .. } => Some(*id),
        PointSource::PartitionKey(_) | PointSource::Clustering(_) => None,
    });
    let ids: Vec<u16> = ids.collect();
    let mut deletion = cached.map_or(Tombstone::NONE, CachedRow::deletion);
    for part in parts.iter() {
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
        for row in parts.iter().filter_map(|part| part.row(clustering)) {
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
        if LiveRow::new(view, layout, deletion, now).is_live() {
            break;
        }
    }
    deletion
}

/// Where a multi-cell column is returned.
fn complex_source(sources: &[PointSource], id: usize) -> Option<PointSource> {
    let is_it = |source: &&PointSource| match source {
        PointSource::Counter(of) | PointSource::Elements { id: of, .. } => usize::from(*of) == id,
        PointSource::Cell(_) | PointSource::PartitionKey(_) | PointSource::Clustering(_) => false,
    };
    sources.iter().find(is_it).copied()
}
