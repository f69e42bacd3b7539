//! A row named by its whole key, answered from memory in one call.
//!
//! This is the shortest way through the engine: key bytes, token, tablet, memtable, row, and its cells straight into the
//! response. It allocates nothing beyond the buffers that its caller reuses.

use mutation::compact::{LiveColumn, LiveRow};
use mutation::{RowView, Tombstone, merge, stretch};
use replica::{CachedRow, PlainRow, Sources, TableStore, Tablet};
use schema::{components, push_component};
use smallvec::SmallVec;
use types::Token;
use types::token::KeyHash;

use super::page::count;
use super::{PointSource, SelectPlan};
use crate::restrict::{PartitionRestriction, partition_key_bytes};
use crate::term::Operand;
use crate::{BindContext, Evaluated, QueryError};

/// Buffers that point reads reuse.
#[derive(Debug, Default)]
pub struct PointScratch {
    pub(crate) key: Vec<u8>,
    pub(crate) clustering: Vec<u8>,
    merged: Vec<u8>,
    other: Vec<u8>,
    name: Vec<u8>,
}

/// Hash of the partition key, partition key and clustering key of a row.
pub type PointKey = (KeyHash, Vec<u8>, Vec<u8>);

/// What came of an attempt to answer from memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PointOutcome {
    /// So many rows (none or one) were appended.
    Rows(u32),
    /// So many rows (none or one) were appended, which other replicas have to confirm.
    Unconfirmed(u32),
    /// Another shard owns the key.
    OtherShard(u32),
    /// An sstable may hold it.
    NeedsDisk,
}

#[inline]
fn put_cell(out: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        None => out.extend_from_slice(&(-1i32).to_be_bytes()),
        Some(v) => {
            let len = u32::try_from(v.len()).expect("a value is smaller than 2 GiB");
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(v);
        }
    }
}

impl SelectPlan {
    /// Whether [`SelectPlan::read_point`] may be tried.
    #[inline]
    pub fn is_point(&self) -> bool {
        self.point.is_some()
    }

    /// The key and clustering key of a point read, into emptied buffers.
    fn point_names(
        &self,
        operands: &[Operand],
        ctx: &BindContext<'_>,
        key: &mut Vec<u8>,
        clustering: &mut Vec<u8>,
    ) -> Result<(), QueryError> {
        key.clear();
        partition_key_bytes(&self.table, operands, ctx, key)?;
        clustering.clear();
        let mut bad = None;
        self.restrictions
            .clustering
            .each_single(|operand| match operand.eval(ctx) {
                Ok(Evaluated::Value(v)) => push_component(clustering, &v),
                Ok(Evaluated::Null) => {
                    bad = Some(QueryError::invalid(
                        "Invalid null value in condition for clustering column",
                    ))
                }
                Ok(Evaluated::Unset) => bad = Some(QueryError::invalid("Invalid unset value for clustering column")),
                Err(e) => bad = Some(e),
            });
        if let Some(e) = bad {
            return Err(e);
        }
        Ok(())
    }

    /// The key of a point read, hashed, and its clustering key.
    pub fn point_key(&self, ctx: &BindContext<'_>) -> Result<Option<PointKey>, QueryError> {
        let PartitionRestriction::Key(operands) = &self.restrictions.partition else {
            return Ok(None);
        };
        let (mut key, mut clustering) = (Vec::new(), Vec::new());
        self.point_names(operands, ctx, &mut key, &mut clustering)?;
        Ok(Some((KeyHash::of(&key), key, clustering)))
    }

    /// Tries to answer from this shard's memory; appends the cells of the row to `out`.
    #[inline]
    pub fn read_point(
        &self,
        ctx: &BindContext<'_>,
        store: &TableStore,
        owner: impl FnOnce(Token) -> u32,
        scratch: &mut PointScratch,
        out: &mut Vec<u8>,
    ) -> Result<PointOutcome, QueryError> {
        let (Some(sources), PartitionRestriction::Key(operands)) = (&self.point, &self.restrictions.partition) else {
            return Ok(PointOutcome::NeedsDisk);
        };
        self.point_names(operands, ctx, &mut scratch.key, &mut scratch.clustering)?;
        let hash = KeyHash::of(&scratch.key);
        let token = hash.token();
        let Some(tablet) = store.tablet(token) else {
            return Ok(PointOutcome::OtherShard(owner(token)));
        };
        Ok(self.read_named(sources, ctx, (&tablet, hash), scratch, out))
    }

    /// Tries to answer from the memory of a tablet of this shard, whose row is named in the scratch.
    #[inline]
    fn read_named(
        &self,
        sources: &[PointSource],
        ctx: &BindContext<'_>,
        (tablet, hash): (&Tablet, KeyHash),
        scratch: &mut PointScratch,
        out: &mut Vec<u8>,
    ) -> PointOutcome {
        let now = u32::try_from(ctx.now_us / 1_000_000).unwrap_or(0);
        let PointScratch {
            key,
            clustering,
            merged,
            other,
            name,
        } = scratch;
        let rows = tablet.with_version(|v| {
            v.read_memory(hash, key, clustering, name, |parts, cached| {
                self.point_row(sources, parts, cached, key, clustering, now, merged, other, out)
            })
        });
        rows.flatten().map_or(PointOutcome::NeedsDisk, PointOutcome::Rows)
    }

    /// The same, of a point read whose names are in the scratch: see [`SelectPlan::point_hash`].
    pub(crate) fn read_here(
        &self,
        ctx: &BindContext<'_>,
        tablet: (&Tablet, KeyHash),
        scratch: &mut PointScratch,
        out: &mut Vec<u8>,
    ) -> PointOutcome {
        match &self.point {
            Some(sources) => self.read_named(sources, ctx, tablet, scratch, out),
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
        &self,
        sources: &[PointSource],
        parts: &Sources<'_>,
        cached: Option<&CachedRow>,
        key: &[u8],
        clustering: &[u8],
        now: u32,
        merged: &mut Vec<u8>,
        other: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        let layout = &*self.table.layout;
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
                deletion = self.assemble_large_row(sources, parts, cached, clustering, now, merged, other);
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
        Some(self.write_live_row(sources, (view, deletion), key, clustering, now, out))
    }

    /// Appends the cells of a row; how many rows live, 0 or 1.
    #[inline]
    fn write_live_row(
        &self,
        sources: &[PointSource],
        (view, deletion): (RowView<'_>, Tombstone),
        key: &[u8],
        clustering: &[u8],
        now: u32,
        out: &mut Vec<u8>,
    ) -> u32 {
        let layout = &*self.table.layout;
        let live = LiveRow::new(view, layout, deletion, now);
        let mut cells: SmallVec<[Option<&[u8]>; 32]> = SmallVec::from_elem(None, layout.len());
        let mut counters: SmallVec<[(usize, [u8; 8]); 8]> = SmallVec::new();
        let mut any = live.has_live_marker();
        for (id, column) in live.columns() {
            any = true;
            match column {
                LiveColumn::Simple(c) => cells[id] = Some(c.value),
                LiveColumn::Complex(elements) if returns_counter(sources, id) => {
                    counters.push((id, count(elements).sum.to_be_bytes()));
                }
                LiveColumn::Complex(_) => {}
            }
        }
        if !any {
            return 0;
        }
        for source in sources {
            match *source {
                PointSource::Cell(id) => put_cell(out, cells[usize::from(id)]),
                PointSource::Counter(id) => {
                    let counter = counters.iter().find(|(counted, _)| *counted == usize::from(id));
                    put_cell(out, counter.map(|(_, sum)| &sum[..]));
                }
                PointSource::Clustering(i) => put_cell(out, components(clustering).nth(usize::from(i))),
                PointSource::PartitionKey(i) => put_cell(out, key_component(&self.table, key, usize::from(i))),
            }
        }
        1
    }

    /// Reads a plain row from this shard's memory, to be confirmed by other replicas: appends its cells to `out`, and says how many rows live and the row's
    /// digest, as `digest` computes it from key, clustering key, row and second. None: in the general way.
    pub(crate) fn read_plain(
        &self,
        ctx: &BindContext<'_>,
        (tablet, hash): (&Tablet, KeyHash),
        scratch: &mut PointScratch,
        out: &mut Vec<u8>,
        digest: impl FnOnce(&[u8], &[u8], &PlainRow<'_>, u32) -> u128,
    ) -> Option<(u32, u128)> {
        let sources = self.point.as_ref()?;
        let now = u32::try_from(ctx.now_us / 1_000_000).unwrap_or(0);
        let PointScratch {
            key,
            clustering,
            merged,
            name,
            ..
        } = scratch;
        tablet.with_version(|v| {
            v.read_plain_row(&self.table, (hash, key, clustering), name, merged, |row| {
                let rows = match row.row {
                    Some(view) => self.write_live_row(sources, (view, row.partition), key, clustering, now, out),
                    None => 0,
                };
                (rows, digest(key, clustering, &row, now))
            })
        })
    }

    /// The hash of a point read's key; key and clustering key are in the scratch afterwards.
    pub(crate) fn point_hash(
        &self,
        ctx: &BindContext<'_>,
        scratch: &mut PointScratch,
    ) -> Result<Option<KeyHash>, QueryError> {
        let PartitionRestriction::Key(operands) = &self.restrictions.partition else {
            return Ok(None);
        };
        self.point_names(operands, ctx, &mut scratch.key, &mut scratch.clustering)?;
        Ok(Some(KeyHash::of(&scratch.key)))
    }

    /// Puts a row that a memtable holds in fragments together in `merged`; returns the deletion over it.
    ///
    /// Only fragments of the columns that are returned are read, unless nothing of them lives. Then another cell may, and the
    /// row is there all the same.
    #[cold]
    #[expect(clippy::too_many_arguments, reason = "those of point_row")]
    fn assemble_large_row(
        &self,
        sources: &[PointSource],
        parts: &Sources<'_>,
        cached: Option<&CachedRow>,
        clustering: &[u8],
        now: u32,
        merged: &mut Vec<u8>,
        other: &mut Vec<u8>,
    ) -> Tombstone {
        let layout = &*self.table.layout;
        let ids = sources.iter().filter_map(|source| match source {
            PointSource::Cell(id) | PointSource::Counter(id) => Some(*id),
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
}

fn returns_counter(sources: &[PointSource], id: usize) -> bool {
    let is_it = |source: &PointSource| matches!(source, PointSource::Counter(counter) if usize::from(*counter) == id);
    sources.iter().any(is_it)
}

/// Component `i` of a serialised partition key.
pub(crate) fn key_component<'k>(table: &schema::Table, key: &'k [u8], i: usize) -> Option<&'k [u8]> {
    if table.partition_key().nth(1).is_none() {
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
