//! Writes in memory, ordered by token and key, until they are flushed.
//!
//! One memtable belongs to one tablet and lives on that tablet's shard. Rows are packed in blocks in an arena
//! ([`rows`], [`arena`]), rows larger than a block in fragments ([`large`]); a B+tree finds partitions by token
//! ([`tree`]). Applying a mutation merges each of its rows with the one of equal key by the rules of `mutation::merge`,
//! so there is one version of everything. Reads are function calls on the same thread and borrow from the arena; a read
//! that has to wait copies a [`PartitionBlock`] first. A full memtable is frozen: the same value in an `Arc`, never
//! written again, read by the shard and by the flush thread alike.
//!
//! Invariants: partitions are in (token, key) order, rows in clustering order, range tombstones sorted and disjoint;
//! `bytes()` counts every byte held.

mod arena;
mod large;
mod partition;
mod rows;
mod terms;
mod tree;

use std::sync::Arc;

use mutation::candidates::{CandidatesFrom, FirstCandidates};
use mutation::terms::IndexLookup;
use mutation::{
    ClusteringSlice, Mutation, MutationItem, RangeTombstone, RangeTombstoneList, RowView, Tombstone, merge,
};
use schema::{ClusteringOrder, IndexId, RowLayout, Table};
use stdx::planted::{self, Bug};
use types::Token;

use arena::{Arena, Handle};
pub use large::{LargeRow, RowRef};
use large::{LargeRows, Stub, view};
pub use partition::{PartitionRef, Rows};
pub use rows::BLOCK_BYTES_MAX;
use rows::{Blocks, Scratch, Store};
use terms::MemtableTerms;
use tree::Tree;

/// What few partitions have: deletions and a static row.
#[derive(Debug)]
pub(crate) struct Extras {
    pub(crate) tombstone: Tombstone,
    pub(crate) static_row: Handle,
    pub(crate) ranges: RangeTombstoneList,
}

#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) key: Handle,
    pub(crate) rows: Blocks,
    pub(crate) extras: Option<Box<Extras>>,
}

/// The writes of one tablet that are not yet in an sstable.
#[derive(Debug)]
pub struct Memtable {
    layout: Arc<RowLayout>,
    order: Arc<ClusteringOrder>,
    arena: Arena,
    tree: Tree,
    partitions: Vec<Partition>,
    large: LargeRows,
    scratch: Scratch,
    /// What the table's indexes list of it; None where it has none.
    terms: Option<Box<MemtableTerms>>,
    /// Bytes of block lists and extras, which live outside the arena.
    other_bytes: usize,
    rows: u64,
    min_timestamp: i64,
}

impl Memtable {
    /// An empty memtable for rows of that table.
    pub fn new(table: &Table) -> Self {
        let mut memtable = Self::placeholder();
        memtable.set_table(table);
        memtable
    }

    /// A memtable of no table, holding nothing, in the place of one that was moved away.
    pub fn placeholder() -> Self {
        Self {
            layout: Arc::default(),
            order: Arc::default(),
            arena: Arena::default(),
            tree: Tree::default(),
            partitions: Vec::new(),
            large: LargeRows::default(),
            scratch: Scratch::default(),
            terms: None,
            other_bytes: 0,
            rows: 0,
            min_timestamp: i64::MAX,
        }
    }

    /// Takes over the layout of an altered table; rows already here keep their meaning because column ids are stable.
    /// Indexes that are new to it are taken over only while it is empty: see [`Memtable::has_index`].
    pub fn set_table(&mut self, table: &Table) {
        self.layout = table.layout.clone();
        self.order = table.clustering_order.clone();
        if self.is_empty() {
            self.terms = MemtableTerms::of(table);
        } else if let Some(terms) = &mut self.terms {
            terms.retain(table);
        }
    }

    /// Whether it lists its rows for that index of its table. One that had rows when the index was created does not.
    pub fn has_index(&self, id: IndexId) -> bool {
        planted::is_planted(Bug::UnscannedMemtable) || self.terms.as_ref().is_some_and(|terms| terms.has(id))
    }

    /// Offers the candidates that a query asks an index for, after a position: rows that may have been overwritten
    /// since.
    pub fn offer_candidates(&self, lookup: &IndexLookup, from: &CandidatesFrom, first: &mut FirstCandidates<'_>) {
        if let Some(terms) = &self.terms {
            let key_of = |number: u32| self.arena.get(self.partitions[number as usize].key);
            terms.offer(lookup, from, key_of, first);
        }
    }

    /// How many candidates a query would get from an index, as far as that is no more than `max`.
    pub fn count_candidates(&self, lookup: &IndexLookup, max: usize) -> usize {
        self.terms.as_ref().map_or(0, |terms| terms.count(lookup, max))
    }

    /// All memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.arena.held_bytes() + self.overhead_bytes()
    }

    /// Memory of living data, in bytes: rows, keys, tree nodes, lists; without the arena's unused space.
    pub fn used_bytes(&self) -> usize {
        self.arena.used_bytes() + self.overhead_bytes()
    }

    fn overhead_bytes(&self) -> usize {
        let terms = self.terms.as_ref().map_or(0, |terms| terms.bytes());
        let partitions = self.partitions.capacity() * size_of::<Partition>();
        self.tree.bytes() + partitions + self.large.bytes() + self.other_bytes + terms
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// How many partitions there are.
    pub fn partition_count(&self) -> usize {
        self.partitions.len()
    }

    /// How many rows there are, static rows not counted.
    pub fn row_count(&self) -> u64 {
        self.rows
    }

    /// The smallest write timestamp that was applied: no tombstone at or above it may be forgotten elsewhere.
    pub fn min_timestamp(&self) -> i64 {
        self.min_timestamp
    }

    fn find(&self, token: Token, key: &[u8]) -> Option<u32> {
        let mut p = self.tree.lower_bound(token.0);
        loop {
            let (t, i) = self.tree.get(p)?;
            if t != token.0 {
                return None;
            }
            if self.arena.get(self.partitions[i as usize].key) == key {
                return Some(i);
            }
            p = self.tree.next(p);
        }
    }

    fn find_or_insert(&mut self, token: Token, key: &[u8]) -> u32 {
        if let Some(terms) = &mut self.terms {
            terms.set_token(token);
        }
        if let Some(i) = self.find(token, key) {
            return i;
        }
        let handle = self.arena.allocate(key.len());
        self.arena.get_mut(handle).copy_from_slice(key);
        let number = number_of(self.partitions.len());
        self.partitions.push(Partition {
            key: handle,
            rows: Blocks::None,
            extras: None,
        });
        let Self {
            tree,
            arena,
            partitions,
            ..
        } = self;
        tree.insert(token.0, number, |other| key < arena.get(partitions[other as usize].key));
        if let Some(terms) = &mut self.terms {
            terms.add_partition(number, key, &self.order);
        }
        number
    }

    /// Merges a mutation in. Its token is the key's; its bytes were validated where they entered the node.
    pub fn apply(&mut self, token: Token, mutation: &Mutation<'_>) {
        let number = self.find_or_insert(token, mutation.key) as usize;
        for item in mutation.items() {
            match item {
                MutationItem::Row { clustering, row } => self.apply_row(number, clustering, row),
                MutationItem::StaticRow(row) => self.apply_static_row(number, row),
                MutationItem::Partition(t) => self.apply_partition_tombstone(number, t),
                MutationItem::Range(r) => self.apply_range(number, r),
            }
        }
    }

    /// Merges in all that another memtable of the table has.
    pub fn merge_in(&mut self, other: &Self) {
        // Of what was overwritten there, too.
        self.min_timestamp = self.min_timestamp.min(other.min_timestamp);
        let mut buffer = Vec::new();
        for partition in other.partitions() {
            let number = self.find_or_insert(partition.token(), partition.key()) as usize;
            if !partition.tombstone().is_none() {
                self.apply_partition_tombstone(number, partition.tombstone());
            }
            for range in partition.range_tombstones() {
                self.apply_range(number, range.clone());
            }
            if let Some(row) = partition.static_row() {
                self.apply_static_row(number, row.view(&mut buffer).bytes());
            }
            for (key, row) in partition.rows(&ClusteringSlice::all(), false) {
                self.apply_row(number, key, row.view(&mut buffer).bytes());
            }
        }
    }

    fn apply_partition_tombstone(&mut self, number: usize, tombstone: Tombstone) {
        self.min_timestamp = self.min_timestamp.min(tombstone.timestamp);
        let extras = self.extras(number);
        extras.tombstone = extras.tombstone.merge(tombstone);
    }

    fn apply_range(&mut self, number: usize, range: RangeTombstone) {
        self.min_timestamp = self.min_timestamp.min(range.tombstone.timestamp);
        let order = self.order.clone();
        let grown = self.extras(number).ranges.add_counted(&order, range);
        self.other_bytes = self.other_bytes.wrapping_add_signed(grown);
    }

    #[inline]
    fn apply_row(&mut self, number: usize, clustering: &[u8], row: &[u8]) {
        let row = view(row);
        if !row.is_uniform() || self.layout.has_complex() {
            return self.apply_mixed_row(number, clustering, row);
        }
        self.min_timestamp = self.min_timestamp.min(row.timestamp);
        self.put_row(number, clustering, row);
    }

    /// A row whose parts may hide each other, or have other timestamps than the row.
    #[inline(never)]
    fn apply_mixed_row(&mut self, number: usize, clustering: &[u8], row: RowView<'_>) {
        let mut settled = Vec::new();
        let row = settle(&self.layout, row, &mut settled);
        self.min_timestamp = self.min_timestamp.min(row.min_timestamp(&self.layout));
        self.put_row(number, clustering, row);
    }

    #[inline]
    fn put_row(&mut self, number: usize, clustering: &[u8], view: RowView<'_>) {
        if self.terms.is_some() {
            self.list_row(number, clustering, view);
        }
        let Self {
            layout,
            order,
            arena,
            partitions,
            large,
            scratch,
            ..
        } = self;
        let rows = &mut partitions[number].rows;
        let was_list = matches!(rows, Blocks::Many(_));
        let before = if was_list { rows.list_bytes() } else { 0 };
        let mut store = Store {
            arena,
            large,
            layout,
            order,
            scratch,
        };
        let new = rows.upsert(&mut store, clustering, view);
        if was_list || matches!(rows, Blocks::Many(_)) {
            self.other_bytes = self.other_bytes + rows.list_bytes() - before;
        }
        self.rows += u64::from(new);
    }

    /// Lists a row that is written under the terms of what is written.
    #[cold]
    fn list_row(&mut self, number: usize, clustering: &[u8], view: RowView<'_>) {
        let (layout, order) = (&self.layout, &self.order);
        if planted::is_planted(Bug::UnlistedOverwrite)
            && self.partitions[number]
                .rows
                .find(&self.arena, order, clustering)
                .is_some()
        {
            return;
        }
        if let Some(terms) = &mut self.terms {
            terms.add_row(number_of(number), (clustering, view), (layout, order));
        }
    }

    fn apply_static_row(&mut self, number: usize, row: &[u8]) {
        let have = self.extras(number).static_row;
        let Self {
            layout,
            order,
            arena,
            large,
            scratch,
            terms,
            ..
        } = self;
        let mut settled = Vec::new();
        let view = settle(layout, view(row), &mut settled);
        if let Some(terms) = terms {
            terms.add_static_row(number_of(number), view, (layout, order));
        }
        self.min_timestamp = self.min_timestamp.min(view.min_timestamp(layout));
        let mut merged = std::mem::take(&mut scratch.row);
        merged.clear();
        if have.is_none() {
            merged.extend_from_slice(view.bytes());
        } else if let Some(stub) = Stub::read(arena.get(have)) {
            let became_small = large.merge(stub, arena, layout, &mut scratch.large, view, &mut merged);
            if !became_small {
                scratch.row = merged;
                return;
            }
        } else {
            let old = RowView::new(arena.get(have)).expect("rows in a memtable are well formed");
            merge::merge_rows(layout, old, view, &mut merged);
        }
        if merged.len() > BLOCK_BYTES_MAX
            && let Some(stub) = large.insert(arena, layout, &mut scratch.large, &merged)
        {
            merged.clear();
            merged.extend_from_slice(&stub.bytes());
        }
        let handle = if have.is_none() {
            arena.allocate(merged.len())
        } else {
            arena.resize(have, merged.len())
        };
        arena.get_mut(handle).copy_from_slice(&merged);
        scratch.row = merged;
        self.extras(number).static_row = handle;
    }

    fn extras(&mut self, number: usize) -> &mut Extras {
        let other_bytes = &mut self.other_bytes;
        self.partitions[number].extras.get_or_insert_with(|| {
            *other_bytes += size_of::<Extras>();
            Box::new(Extras {
                tombstone: Tombstone::NONE,
                static_row: Handle::NONE,
                ranges: RangeTombstoneList::default(),
            })
        })
    }

    /// The partition of that key.
    #[inline]
    pub fn partition(&self, token: Token, key: &[u8]) -> Option<PartitionRef<'_>> {
        let number = self.find(token, key)?;
        Some(PartitionRef::new(self, token, number))
    }

    /// Partitions from the first whose (token, key) is at or above the given one, in order.
    pub fn partitions_from(&self, token: Token, key: &[u8]) -> impl Iterator<Item = PartitionRef<'_>> {
        let mut position = self.tree.lower_bound(token.0);
        while let Some((t, i)) = self.tree.get(position) {
            if t != token.0 || self.arena.get(self.partitions[i as usize].key) >= key {
                break;
            }
            position = self.tree.next(position);
        }
        std::iter::from_fn(move || {
            let (token, number) = self.tree.get(position)?;
            position = self.tree.next(position);
            Some(PartitionRef::new(self, Token(token), number))
        })
    }

    /// All partitions in order.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionRef<'_>> {
        self.partitions_from(Token(i64::MIN), &[])
    }
}

fn number_of(partition: usize) -> u32 {
    u32::try_from(partition).expect("fewer than 2^32 partitions")
}

/// A row as it is stored: without what its own tombstones hide. Fragments of a large row are merged one by one, so one
/// that no write touches would keep what the merge of the whole row drops.
fn settle<'r>(layout: &RowLayout, row: RowView<'r>, buffer: &'r mut Vec<u8>) -> RowView<'r> {
    if !merge::hides_itself(layout, row) {
        return row;
    }
    merge::settle_row(layout, row, buffer);
    RowView::new(buffer).expect("a merged row is well formed")
}
