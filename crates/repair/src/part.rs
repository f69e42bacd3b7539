//! What one replica has of one partition, taken apart into units and merged with what others have.
//!
//! A replica keeps deletions that no other compares any more, because the others may have purged them: *hidden* ones,
//! alone or in a row of which other things count. They matter where another replica shows what they hide, and only
//! there ([`merge`]).

use std::sync::Arc;

use mutation::compact::{Purge, compact_block};
use mutation::counting::Counting;
use mutation::merge::{merge_blocks, missing_part};
use mutation::{Bound, MutationBuilder, PartitionBlock, RangeTombstone, Tombstone};
use replica::split_block;
use schema::{ClusteringOrder, Table, TableId};

use crate::units::{Hash, Hasher, Unit};

/// Forgets nothing, and takes nothing for expired.
const KEEP_ALL: Purge<'static> = Purge {
    now: 0,
    gc_before: 0,
    max_purgeable_timestamp: i64::MIN,
    held: &[],
    keeps_expired: false,
};

/// One partition, or what a stretch has of it, with the hash of each unit.
#[derive(Debug)]
pub(crate) struct Part {
    /// Without what its own deletions hide.
    pub(crate) block: PartitionBlock,
    /// Whether the deletion and the static row of the partition belong to it. Without, the deletion is known but is no
    /// unit.
    begins: bool,
    deletion: Option<Hash>,
    static_row: Option<Hash>,
    rows: Vec<Option<Hash>>,
    ranges: Vec<Option<Hash>>,
}

impl Part {
    /// Of a block that has all of the part.
    pub(crate) fn new(table: &Arc<Table>, counting: Counting, block: &PartitionBlock, begins: bool) -> Self {
        let mut block = compact_block(&table.layout, &table.clustering_order, block, &KEEP_ALL);
        if !begins {
            block.clear_static_row();
        }
        let (mut rows, mut ranges) = (vec![None; block.len()], vec![None; block.range_tombstones.len()]);
        let (mut deletion, mut static_row) = (None, None);
        let mut note = |unit: Unit, hash| match unit {
            Unit::Deletion => deletion = Some(hash),
            Unit::Static => static_row = Some(hash),
            Unit::Row(number) => rows[number] = Some(hash),
            Unit::Range(numbers) => ranges[numbers].fill(Some(hash)),
        };
        let mut hasher = Hasher::new(table.clone(), counting);
        hasher.add(&block, begins, &mut note);
        hasher.end(&mut note);
        Self {
            block,
            begins,
            deletion,
            static_row,
            rows,
            ranges,
        }
    }

    /// The hashes of its units. That of a range tombstone may come several times.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = u128> + '_ {
        let rows = self.rows.iter().chain(&self.ranges).flatten();
        self.deletion
            .iter()
            .chain(&self.static_row)
            .chain(rows)
            .map(|hash| hash.hash)
    }

    /// Whether it has deletions that are not compared.
    pub(crate) fn has_hidden(&self) -> bool {
        self.deletion.is_none() && !self.block.tombstone.is_none()
            || self.block.static_row().is_some() && is_hidden(self.static_row.as_ref())
            || self
                .rows
                .iter()
                .chain(&self.ranges)
                .any(|hash| is_hidden(hash.as_ref()))
    }

    /// The units whose hashes are requested, and those that are hidden or partly so if hidden ones are.
    pub(crate) fn pick(&self, is_wanted: &dyn Fn(u128) -> bool, is_hidden_wanted: bool) -> PartitionBlock {
        let wants = |hash: Option<Hash>| {
            is_hidden_wanted && is_hidden(hash.as_ref()) || hash.is_some_and(|hash| is_wanted(hash.hash))
        };
        let mut picked = PartitionBlock::new(self.block.token, self.block.key());
        picked.covered.clone_from(&self.block.covered);
        if wants(self.deletion) {
            picked.tombstone = self.block.tombstone;
        }
        if let Some(row) = self.block.static_row().filter(|_| wants(self.static_row)) {
            picked.set_static_row(row.bytes());
        }
        for ((clustering, row), hash) in self.block.rows().zip(&self.rows) {
            if wants(*hash) {
                picked.push_row(clustering, row.bytes());
            }
        }
        let ranges = self.block.range_tombstones.iter().zip(&self.ranges);
        picked.range_tombstones = ranges
            .filter(|(_, hash)| wants(**hash))
            .map(|(range, _)| range.clone())
            .collect();
        picked
    }

    /// What is there without hidden deletions.
    fn shown(&self, table: &Table, counting: Counting) -> PartitionBlock {
        let purge = Purge {
            now: counting.now,
            gc_before: counting.gc_before,
            max_purgeable_timestamp: i64::MAX,
            held: &[],
            keeps_expired: true,
        };
        let mut shown = compact_block(&table.layout, &table.clustering_order, &self.block, &purge);
        if !self.begins {
            shown.tombstone = Tombstone::NONE;
        }
        shown
    }

    /// Drops what is after a bound. What is cut keeps the hash of the whole.
    pub(crate) fn cut(&mut self, order: &ClusteringOrder, bound: &Bound) {
        split_block(&mut self.block, bound, order, false);
        self.rows.truncate(self.block.len());
        self.ranges.truncate(self.block.range_tombstones.len());
    }
}

/// Whether a unit has deletions that do not count: it is hidden, or has a hash and hides more.
fn is_hidden(hash: Option<&Hash>) -> bool {
    hash.is_none_or(|hash| hash.is_partly_hidden)
}

/// Appends a block to another one of the same partition that ends where it begins.
pub(crate) fn append(order: &ClusteringOrder, whole: &mut PartitionBlock, next: &PartitionBlock) {
    whole.tombstone = whole.tombstone.merge(next.tombstone);
    whole.covered.clone_from(&next.covered);
    if let Some(row) = next.static_row() {
        // Each block has what the blocks before it have given, merged.
        whole.set_static_row(row.bytes());
    }
    for (clustering, row) in next.rows() {
        whole.push_row(clustering, row.bytes());
    }
    for range in &next.range_tombstones {
        match whole.range_tombstones.last_mut() {
            Some(last) if last.tombstone == range.tombstone && last.end.compare(order, &range.start).is_eq() => {
                last.end = range.end.clone();
            }
            _ => whole.range_tombstones.push(range.clone()),
        }
    }
}

/// What replicas have of a partition, merged.
pub(crate) struct Merged {
    target: PartitionBlock,
    /// Whether the deletion of the partition is a unit of it: it is sent with each part of the partition, and counted
    /// once.
    begins: bool,
}

/// Merges what replicas have of one partition. Hidden deletions are left out unless they hide what a replica shows:
/// then each replica gets them.
pub(crate) fn merge(table: &Arc<Table>, counting: Counting, parts: &[&Part]) -> Option<Merged> {
    let begins = parts.iter().any(|part| part.begins);
    let merged = |blocks: &[&PartitionBlock]| {
        let merged = merge_blocks(&table.layout, &table.clustering_order, blocks)?;
        Some(Part::new(table, counting, &merged, begins))
    };
    let blocks: Vec<&PartitionBlock> = parts.iter().map(|part| &part.block).collect();
    let all = merged(&blocks)?;
    if !parts.iter().any(|part| part.has_hidden()) {
        return Some(Merged {
            target: all.block,
            begins,
        });
    }
    let shown: Vec<PartitionBlock> = parts.iter().map(|part| part.shown(table, counting)).collect();
    let shown = merged(&shown.iter().collect::<Vec<_>>())?;
    let is_same = shown.hashes().eq(all.hashes());
    Some(Merged {
        target: if is_same { shown.block } else { all.block },
        begins,
    })
}

/// What a replica lacks, as a mutation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Missing {
    pub(crate) mutation: Vec<u8>,
    /// Deletions, static rows, rows and range tombstones in it.
    pub(crate) units: u64,
}

impl Merged {
    /// What a replica lacks that has these blocks. None when it lacks nothing.
    pub(crate) fn missing(&self, table: &Table, have: &[&PartitionBlock]) -> Option<Missing> {
        let have = merge_blocks(&table.layout, &table.clustering_order, have);
        difference(table, (&self.target, self.begins), have.as_ref())
    }
}

fn difference(
    table: &Table,
    (target, begins): (&PartitionBlock, bool),
    have: Option<&PartitionBlock>,
) -> Option<Missing> {
    let (order, layout, id): (_, _, TableId) = (&table.clustering_order, &table.layout, table.id);
    let (mut mutation, mut units, mut is_empty) = (Vec::new(), 0, true);
    let mut builder = MutationBuilder::begin(&mut mutation, id, target.key());
    let known = have.map_or(Tombstone::NONE, |have| have.tombstone);
    if target.tombstone.supersedes(known) {
        builder.partition_tombstone(target.tombstone);
        units += u64::from(begins);
        is_empty = false;
    }
    let mut part = Vec::new();
    if let Some(row) = target.static_row() {
        let lacks = match have.and_then(PartitionBlock::static_row) {
            Some(have) => missing_part(layout, row, have, &mut part),
            None => {
                part.extend_from_slice(row.bytes());
                true
            }
        };
        if lacks {
            builder.static_row(|out| out.extend_from_slice(&part));
            units += 1;
        }
    }
    let mut at = 0;
    for (clustering, row) in target.rows() {
        let here = have.filter(|have| {
            while at < have.len() && order.compare(have.clustering(at), clustering).is_lt() {
                at += 1;
            }
            at < have.len() && order.compare(have.clustering(at), clustering).is_eq()
        });
        part.clear();
        let lacks = match here {
            Some(have) => missing_part(layout, row, have.row(at), &mut part),
            None => {
                part.extend_from_slice(row.bytes());
                true
            }
        };
        if lacks {
            builder.row(clustering, |out| out.extend_from_slice(&part));
            units += 1;
        }
    }
    let known = have.map_or(&[][..], |have| &have.range_tombstones);
    for range in &target.range_tombstones {
        if !is_covered(order, range, known) {
            builder.range_tombstone(range);
            units += 1;
        }
    }
    (units > 0 || !is_empty).then_some(Missing { mutation, units })
}

/// A block as what a replica lacks.
pub(crate) fn missing_of(table: &Table, block: &PartitionBlock) -> Missing {
    let units = usize::from(!block.tombstone.is_none())
        + usize::from(block.static_row().is_some())
        + block.len()
        + block.range_tombstones.len();
    Missing {
        mutation: packed(table.id, block),
        units: units as u64,
    }
}

/// What a block that has all that another one has, merged with more, has beyond that.
pub(crate) fn missing_beside(table: &Table, merged: &PartitionBlock, have: Option<&PartitionBlock>) -> Option<Missing> {
    let merged = compact_block(&table.layout, &table.clustering_order, merged, &KEEP_ALL);
    difference(table, (&merged, true), have)
}

/// The mutation that makes a block.
pub(crate) fn packed(table: TableId, block: &PartitionBlock) -> Vec<u8> {
    let mut out = Vec::new();
    block.pack(table, &mut out);
    out
}

/// What of a mutation a replica must be written that has a block of what is there: all but the deletions that `purge`
/// forgets and that hide nothing that is there. A compaction would forget those at once. The deletion of the partition
/// stays, as the block does not show what it hides. None when nothing is left.
pub(crate) fn without_forgotten(
    table: &Table,
    purge: &Purge<'_>,
    missing: PartitionBlock,
    have: Option<&PartitionBlock>,
) -> Option<PartitionBlock> {
    let (layout, order) = (&table.layout, &table.clustering_order);
    let mut left = compact_block(layout, order, &missing, purge);
    left.tombstone = missing.tombstone;
    let after = |written: &PartitionBlock| {
        let blocks: Vec<&PartitionBlock> = std::iter::once(written).chain(have).collect();
        merge_blocks(layout, order, &blocks).map(|merged| compact_block(layout, order, &merged, purge))
    };
    let shown = |block: Option<PartitionBlock>| {
        block
            .filter(|block| !block.is_empty())
            .map(|block| packed(table.id, &block))
    };
    let is_same = shown(after(&left)) == shown(after(&missing));
    let left = if is_same { left } else { missing };
    (!left.is_empty()).then_some(left)
}

/// Whether range tombstones, in order, delete as strongly everything that one deletes.
fn is_covered(order: &ClusteringOrder, range: &RangeTombstone, known: &[RangeTombstone]) -> bool {
    let mut at = &range.start;
    for one in known {
        let reaches = one.start.compare(order, at).is_le() && one.end.compare(order, at).is_gt();
        if reaches && !range.tombstone.supersedes(one.tombstone) {
            at = &one.end;
        }
    }
    at.compare(order, &range.end).is_ge()
}
