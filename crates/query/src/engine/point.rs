//! A row named by its whole key, answered from memory in one call.
//!
//! This is the shortest way through the engine: key bytes, token, tablet, memtable, row, and its values straight into
//! the sink. It allocates nothing beyond the buffers that its caller reuses.

use coordinator::{InMemory, LoadedRow, Own, OwnRow, OwnTable, Reads, RowBuffers, RowName, RowProjection};
use mutation::compact::{LiveColumn, LiveElements, LiveRow};
use mutation::{RowView, Tombstone};
use plan::{BindContext, PlanError, PointSource, RowSink, SelectPlan, key_component, put_collection};
use schema::components;
use smallvec::SmallVec;
use stdx::probe;
use topology::Consistency;
use types::Token;
use types::token::KeyHash;

use super::columns::count;

/// Buffers that point reads reuse.
#[derive(Debug, Default)]
pub struct PointScratch {
    pub(super) key: Vec<u8>,
    pub(super) clustering: Vec<u8>,
    row: RowBuffers,
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

impl MissedRow {
    pub(super) fn name(&self) -> RowName<'_> {
        RowName {
            hash: self.hash,
            key: &self.key,
            clustering: &self.clustering,
        }
    }
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

/// Tries to answer from the memory of this shard, which satisfies the read; gives the row to `out`.
#[inline]
pub(super) fn read_point(
    plan: &SelectPlan,
    ctx: &BindContext<'_>,
    table: OwnTable,
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
    let Some(row) = table.row((token, &scratch.key)) else {
        return Ok(PointOutcome::OtherShard(owner(token)));
    };
    probe::step(|| "coordinator: this shard suffices for a read of every level".to_owned());
    Ok(read_named(plan, sources, ctx, (&row, hash), scratch, out))
}

/// Tries to answer from memory; the row is named in the scratch.
#[inline]
fn read_named(
    plan: &SelectPlan,
    sources: &[PointSource],
    ctx: &BindContext<'_>,
    (row, hash): (&OwnRow, KeyHash),
    scratch: &mut PointScratch,
    out: &mut impl RowSink,
) -> PointOutcome {
    let now = ctx.expiry_now();
    let PointScratch {
        key,
        clustering,
        row: buffers,
        missed,
    } = scratch;
    let name = RowName { hash, key, clustering };
    let read = row.read(name, &wanted(plan, sources, now), buffers, |row, deletion| {
        write_row(plan, sources, (row, deletion), name, now, out)
    });
    match read {
        InMemory::Row(rows) => PointOutcome::Rows(rows),
        InMemory::General => PointOutcome::NeedsDisk,
        InMemory::Missed => {
            *missed = Some(hash);
            PointOutcome::Missed
        }
    }
}

/// What a point read wants of a row.
#[inline]
fn wanted<'w>(
    plan: &'w SelectPlan,
    sources: &'w [PointSource],
    now: u32,
) -> RowProjection<'w, impl Fn() -> Vec<u16> + use<'w>> {
    RowProjection {
        layout: &plan.table.layout,
        now,
        columns: || {
            let ids = sources.iter().filter_map(|source| match source {
                PointSource::Cell(id) | PointSource::Counter(id) | PointSource::Elements { id, .. } => Some(*id),
                PointSource::PartitionKey(_) | PointSource::Clustering(_) => None,
            });
            ids.collect()
        },
    }
}

/// Answers a point read of a row from what was just read of it from files, and from memory.
pub(super) fn read_loaded(
    own: &Own,
    (plan, level): (&SelectPlan, Consistency),
    ctx: &BindContext<'_>,
    (name, loaded): (RowName<'_>, &LoadedRow),
    scratch: &mut PointScratch,
    out: &mut impl RowSink,
) -> Option<u32> {
    let sources = plan.point()?;
    let now = ctx.expiry_now();
    let (table, wanted) = ((&*plan.table, level), wanted(plan, sources, now));
    loaded.read(own, table, name, &wanted, &mut scratch.row, |row, deletion| {
        write_row(plan, sources, (row, deletion), name, now, out)
    })
}

/// Tries to answer a point read whose names are in the scratch already: see [`SelectPlan::point_names`].
pub(super) fn read_here(
    plan: &SelectPlan,
    ctx: &BindContext<'_>,
    row: (&OwnRow, KeyHash),
    scratch: &mut PointScratch,
    out: &mut impl RowSink,
) -> PointOutcome {
    match plan.point() {
        Some(sources) => read_named(plan, sources, ctx, row, scratch, out),
        None => PointOutcome::NeedsDisk,
    }
}

/// Gives a row to the sink, if it lives; how many rows live, 0 or 1.
#[inline]
fn write_row(
    plan: &SelectPlan,
    sources: &[PointSource],
    (row, deletion): (Option<RowView<'_>>, Tombstone),
    name: RowName<'_>,
    now: u32,
    out: &mut impl RowSink,
) -> u32 {
    match row {
        Some(view) => write_live_row(plan, sources, (view, deletion), name, now, out),
        None => 0,
    }
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
    if let Some(values) = live.plain_values() {
        values.for_each(|(id, value)| {
            any = true;
            cells[id] = Some(value);
        });
        return any;
    }
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
    RowName { key, clustering, .. }: RowName<'_>,
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

/// Reads a plain row from this shard's memory, to be confirmed by other replicas if it `needs_others`: gives it to
/// `out`, and says how many rows live and the row's digest. None: in the general way.
pub(super) fn read_plain(
    reads: &Reads,
    (plan, needs_others): (&SelectPlan, bool),
    ctx: &BindContext<'_>,
    (row, hash): (&OwnRow, KeyHash),
    scratch: &mut PointScratch,
    out: &mut impl RowSink,
) -> Option<(u32, u128)> {
    let sources = plan.point()?;
    let now = ctx.expiry_now();
    let PointScratch {
        key,
        clustering,
        row: buffers,
        ..
    } = scratch;
    let name = RowName { hash, key, clustering };
    let (of_table, digest) = ((&*plan.table, name), (now, needs_others));
    row.read_plain(reads, of_table, buffers, digest, |row, deletion| {
        write_row(plan, sources, (row, deletion), name, now, out)
    })
}

/// Where a multi-cell column is returned.
fn complex_source(sources: &[PointSource], id: usize) -> Option<PointSource> {
    let is_it = |source: &&PointSource| match source {
        PointSource::Counter(of) | PointSource::Elements { id: of, .. } => usize::from(*of) == id,
        PointSource::Cell(_) | PointSource::PartitionKey(_) | PointSource::Clustering(_) => false,
    };
    sources.iter().find(is_it).copied()
}
