//! An answer in the making: one stretch of what a shard has.
//!
//! A stretch ends after the living row with which the requested rows or bytes are reached. Only what lives counts:
//! replicas that agree about it end at the same row, however much of what is deleted, shadowed or expired each of them
//! still has. So their digests are over the same stretch.
//!
//! What is dead must have a limit too, as it takes time and memory. After so many dead rows or bytes
//! ([`DEAD_ROWS_MAX`], [`DEAD_BYTES_MAX`]) a stretch *pauses*, and its answer says so. Replicas with different dead
//! data pause at different places; the coordinator then asks those that went further again, up to the nearest place
//! ([`ReadCommand::until`]), and compares there.
//!
//! A static row that lives counts as a row where its partition ends and no row of it lives.

use std::cmp::Ordering;
use std::rc::Rc;
use std::sync::Arc;

use memory::{NoLongRows, RowMemory, UNRESERVED_ROW_BYTES_MAX};
use mutation::candidates::{CandidatesFrom, PassedPosition};
use mutation::compact::shadow_row;
use mutation::terms::{IndexLookup, IndexTerms, TermPlace};
use mutation::{Bound, ClusteringSlice, PartitionBlock, RowBuilder, RowView};
use replica::{
    BlockLimits, PartitionRead, ReadError, ReadOptions, Shard, ShardReader, TableStore, TokenRange, split_block,
};
use schema::Table;
use stdx::preempt;
use types::Token;
use types::token::KeyHash;

use crate::message::{Answer, Extent, Listing, ReadCommand, ReadPosition};
use crate::read::digest::{self, Digest};
use crate::service::ReplicaError;

/// Dead rows after which a stretch pauses.
pub(crate) const DEAD_ROWS_MAX: usize = 10_000;
/// Dead bytes after which a stretch pauses, about.
pub(crate) const DEAD_BYTES_MAX: usize = 4 << 20;

/// See the module.
pub(crate) struct Stretch {
    /// The second at which rows live or not.
    now: u32,
    rows_max: usize,
    bytes_max: usize,
    until: Option<ReadPosition>,
    digest_only: bool,
    bypasses_cache: bool,
    is_scan: bool,
    is_reversed: bool,
    table: Arc<Table>,
    /// None: no other replica's is compared with it.
    digest: Option<Digest>,
    blocks: Vec<PartitionBlock>,
    rows: usize,
    bytes: usize,
    dead_rows: usize,
    dead_bytes: usize,
    range_tombstones: usize,
    /// The partition of the last block, and whether anything of it counted as a row.
    partition: Option<(Token, Vec<u8>, bool)>,
    /// Where it ends, when not everything was read.
    end: Option<ReadPosition>,
    /// The block in which it ends, whole, if the reader is worth to be kept.
    last: Option<PartitionBlock>,
    keeps_last: bool,
    is_paused: bool,
    /// Of tokens, which rows are read.
    listing: Option<KnownListing>,
    /// Refuses long rows, if the coordinator has no memory for one yet ([`ReadCommand::withholds`]).
    no_long_rows: Option<Arc<NoLongRows>>,
}

/// The rows that a coordinator asks for, as far as this node knows the indexes: one may be dropped, or created just
/// now. Without look-ups all rows match; the coordinator checks each row.
struct KnownListing {
    names_only: bool,
    tests: Vec<(IndexLookup, IndexTerms)>,
}

impl KnownListing {
    fn new(listing: &Listing, table: &Table) -> Self {
        let known = |lookup: &IndexLookup| {
            let index = table.indexes.iter().find(|index| index.id == lookup.id)?;
            Some((lookup.clone(), IndexTerms::of(table, index)?))
        };
        Self {
            names_only: listing.names_only,
            tests: listing.lookups.iter().filter_map(known).collect(),
        }
    }

    fn lookups(&self) -> Vec<IndexLookup> {
        self.tests.iter().map(|(lookup, _)| lookup.clone()).collect()
    }
}

impl Stretch {
    /// Nothing yet of what a command asks for, and what that is.
    pub(crate) fn new(command: ReadCommand, table: Arc<Table>) -> (Self, Extent) {
        let is_reversed = command.extent.is_reversed();
        let listing = command.listing.map(|listing| KnownListing::new(&listing, &table));
        let stretch = Self {
            listing,
            now: command.now,
            rows_max: command.rows,
            bytes_max: command.bytes,
            until: command.until,
            digest_only: command.digest_only,
            bypasses_cache: command.bypasses_cache,
            is_scan: matches!(command.extent, Extent::Tokens { .. }),
            is_reversed,
            table,
            digest: Some(Digest::new(is_reversed)),
            blocks: Vec::new(),
            rows: 0,
            bytes: 0,
            dead_rows: 0,
            dead_bytes: 0,
            range_tombstones: 0,
            partition: None,
            end: None,
            last: None,
            keeps_last: false,
            is_paused: false,
            no_long_rows: (command.withholds && !command.digest_only).then(Arc::default),
        };
        (stretch, command.extent)
    }

    /// Computes no digest: the answer has 0 in its place.
    pub(crate) fn without_digest(self) -> Self {
        Self { digest: None, ..self }
    }

    /// How much is read at once.
    pub(crate) fn limits(&self) -> BlockLimits {
        BlockLimits {
            rows: self.rows_max.saturating_sub(self.rows).max(1),
            bytes: self.bytes_max.saturating_sub(self.bytes).max(1),
        }
    }

    /// Living rows so far, and tombstones: dead rows and range tombstones.
    pub(crate) fn met(&self) -> (u64, u64) {
        (self.rows as u64, (self.dead_rows + self.range_tombstones) as u64)
    }

    fn is_full(&self) -> bool {
        self.end.is_some()
    }

    /// The length of the long row that is withheld.
    fn withheld(&self) -> Option<usize> {
        self.no_long_rows.as_ref()?.refused()
    }

    /// The next block of a reader, or its error; None also if the reader was refused a long row.
    fn unless_withheld<T>(&self, read: Result<Option<T>, ReadError>) -> Result<Option<T>, ReplicaError> {
        match read {
            Err(ReadError::NoRowMemory(_)) if self.withheld().is_some() => Ok(None),
            read => Ok(read?),
        }
    }

    /// Withholds a long row that came from a memtable.
    fn look_for_long_row(&self, block: &PartitionBlock) {
        let is_long = block.size() > UNRESERVED_ROW_BYTES_MAX;
        let Some(no_long_rows) = self.no_long_rows.as_ref().filter(|_| is_long) else {
            return;
        };
        let rows = (0..block.len()).map(|n| block.row(n)).chain(block.static_row());
        let longest = rows.map(|row| row.bytes().len()).max().unwrap_or(0);
        if longest > UNRESERVED_ROW_BYTES_MAX {
            no_long_rows.note(longest);
        }
    }

    fn keep(&mut self, block: PartitionBlock) {
        if self.listing.is_some() && self.is_nothing(&block) {
            return;
        }
        self.look_for_long_row(&block);
        if let Some(digest) = &mut self.digest {
            preempt::allowed(|| digest.add(&self.table, &block, self.now));
        }
        if self.digest_only {
            return;
        }
        let is_of_names = self.listing.as_ref().is_some_and(|listing| listing.names_only);
        self.blocks.push(if is_of_names { names_of(&block) } else { block });
    }

    /// Whether a block of listed rows has none, and ends no partition of which others were kept.
    fn is_nothing(&self, block: &PartitionBlock) -> bool {
        let is_same = |last: &PartitionBlock| (last.token, last.key()) == (block.token, block.key());
        let is_open = self
            .blocks
            .last()
            .is_some_and(|last| last.covered.is_some() && is_same(last));
        block.has_no_rows() && block.static_row().is_none() && !is_open
    }

    /// Adds a block as far as the stretch goes, and finds out whether it ends there.
    fn push(&mut self, block: PartitionBlock) {
        let (order, is_reversed) = (self.table.clustering_order.clone(), self.is_reversed);
        let mut block = block;
        let mut reached = None;
        if let Some(until) = &self.until {
            let is_reached;
            (block, is_reached) = match until.clip(block, &order, is_reversed) {
                (Some(block), is_reached) => (block, is_reached),
                (None, _) => {
                    self.end = Some(until.clone());
                    return;
                }
            };
            reached = is_reached.then(|| until.clone());
        }
        self.begin_partition(&block);
        if let Some(bound) = self.count(&block, is_reversed) {
            if block.covered.as_ref() != Some(&bound) {
                self.last = self.keeps_last.then(|| block.clone());
                split_block(&mut block, &bound, &order, is_reversed);
            }
            self.end = Some(ReadPosition::behind(&block));
        } else {
            self.end = reached;
        }
        if self.end.is_none() {
            self.end_block(&block);
        }
        if self.keeps_last && self.end.is_some() && self.last.is_none() {
            self.last = Some(block.clone());
        }
        self.keep(block);
    }

    fn begin_partition(&mut self, block: &PartitionBlock) {
        let is_new = self
            .partition
            .as_ref()
            .is_none_or(|(token, key, _)| (*token, &key[..]) != (block.token, block.key()));
        if !is_new {
            return;
        }
        let row = block.static_row();
        let living = row.and_then(|row| digest::living(&self.table, row, block.tombstone, self.now));
        self.bytes += living.unwrap_or(0);
        // Without a static row nothing is to be counted at the partition's end.
        self.partition = Some((block.token, block.key().to_vec(), living.is_none()));
    }

    /// Counts the rows of a block; returns the bound after the row with which the stretch is full.
    fn count(&mut self, block: &PartitionBlock, is_reversed: bool) -> Option<Bound> {
        preempt::allowed(|| self.count_rows(block, is_reversed))
    }

    fn count_rows(&mut self, block: &PartitionBlock, is_reversed: bool) -> Option<Bound> {
        self.range_tombstones += block.range_tombstones.len();
        let before = self.bytes;
        for n in 0..block.len() {
            let at = if is_reversed { block.len() - 1 - n } else { n };
            let clustering = block.clustering(at);
            let covering = block.deletion_of(&self.table.clustering_order, clustering);
            let Some(bytes) = digest::living(&self.table, block.row(at), covering, self.now) else {
                self.dead_rows += 1;
                continue;
            };
            self.rows += 1;
            self.bytes += clustering.len() + bytes;
            if let Some((_, _, is_counted)) = &mut self.partition {
                *is_counted = true;
            }
            if self.rows >= self.rows_max || self.bytes >= self.bytes_max {
                return Some(if is_reversed {
                    Bound::before(clustering)
                } else {
                    Bound::after(clustering)
                });
            }
        }
        self.dead_bytes += block.size().saturating_sub(self.bytes - before);
        None
    }

    /// Ends the stretch after a block that was counted, if it is full or has to pause there.
    fn end_block(&mut self, block: &PartitionBlock) {
        if let (None, Some((_, _, is_counted @ false))) = (&block.covered, &mut self.partition) {
            *is_counted = true;
            self.rows += 1;
            if self.is_scan && (self.rows >= self.rows_max || self.bytes >= self.bytes_max) {
                self.end = Some(ReadPosition::behind(block));
                return;
            }
        }
        let is_paused = self.dead_rows >= DEAD_ROWS_MAX || self.dead_bytes >= DEAD_BYTES_MAX;
        if is_paused && (self.is_scan || block.covered.is_some()) {
            self.end = Some(ReadPosition::behind(block));
            self.is_paused = true;
        }
    }

    fn options(&self) -> ReadOptions {
        let row_memory = self.no_long_rows.clone().map(|memory| memory as Arc<dyn RowMemory>);
        ReadOptions {
            bypasses_cache: self.bypasses_cache,
            row_memory,
        }
    }

    /// Slices of one partition.
    pub(crate) async fn partition(
        &mut self,
        shard: (&Rc<Shard>, &TableStore),
        read: PartitionRead,
    ) -> Result<(), ReplicaError> {
        let token = read.hash.token();
        let options = self.options();
        let listed = self.listing.as_ref().and_then(|listing| {
            ShardReader::of_listed_partition(shard, &self.table, &read, &listing.lookups(), &options)
        });
        let reader = listed.or_else(|| ShardReader::of_partition(shard, self.table.clone(), read, options));
        let mut reader = reader.ok_or(ReplicaError::NotHere(token))?;
        let is_of_row = reader.is_of_row();
        loop {
            let next = reader.next_block().await;
            let Some(block) = self.unless_withheld(next)? else {
                break;
            };
            let block = preempt::allowed(|| self.matching(block));
            if is_of_row {
                // The slice ends with the row, however many were asked for.
                self.count(&block, false);
                self.keep(block);
                return Ok(());
            }
            let is_last = block.covered.is_none();
            // What `until` cuts off is not kept.
            self.keeps_last = self.until.is_none() && reader.is_worth_keeping();
            self.push(block);
            self.keeps_last = false;
            if self.withheld().is_some() {
                return Ok(());
            }
            if is_last || self.is_full() {
                if let Some(last) = self.last.take() {
                    reader.keep(last);
                }
                return Ok(());
            }
            runtime::give_way().await;
        }
        // The last slices have no block, or the partition is not here at all: nothing comes after what was read.
        if let Some(last) = self.blocks.last_mut() {
            last.covered = None;
        }
        Ok(())
    }

    pub(crate) async fn tokens(
        &mut self,
        shard: (&Rc<Shard>, &TableStore),
        (after, to): (Token, Token),
        mut from: (Token, Vec<u8>),
        inside: Option<Bound>,
    ) -> Result<(), ReplicaError> {
        let lists_rows = |listing: &KnownListing| !listing.tests.iter().all(|(_, terms)| terms.lists_partitions());
        if let Some(listing) = &self.listing
            && (inside.is_none() || lists_rows(listing))
        {
            let passed = inside.map_or(PassedPosition::Nothing, PassedPosition::To);
            let (token, key) = from;
            let from = CandidatesFrom { token, key, passed };
            return self.listed(shard, (after, to), from).await;
        }
        if let Some(bound) = inside {
            let read = PartitionRead {
                hash: KeyHash::of(&from.1),
                key: from.1.clone(),
                slices: vec![ClusteringSlice {
                    start: bound,
                    end: Bound::top(),
                }],
                reversed: false,
                limits: self.limits(),
            };
            self.partition(shard, read).await?;
            if self.is_full() || self.withheld().is_some() {
                return Ok(());
            }
            from.1.push(0);
        }
        if self.listing.is_some() {
            let (token, key) = from;
            let passed = PassedPosition::Nothing;
            return self
                .listed(shard, (after, to), CandidatesFrom { token, key, passed })
                .await;
        }
        let extent = (TokenRange { after, to }, from);
        let mut reader = ShardReader::of_tokens(shard, shard.1.table(), extent, self.limits(), self.options());
        loop {
            let next = reader.next_block().await;
            let Some(block) = self.unless_withheld(next)? else {
                return Ok(());
            };
            self.push(block);
            if self.is_full() || self.withheld().is_some() {
                return Ok(());
            }
            runtime::give_way().await;
        }
    }

    /// The rows of a token range that indexes list, and that match here.
    async fn listed(
        &mut self,
        shard: (&Rc<Shard>, &TableStore),
        (after, to): (Token, Token),
        from: CandidatesFrom,
    ) -> Result<(), ReplicaError> {
        let lookups = self.listing.as_ref().map(KnownListing::lookups);
        let extent = (TokenRange { after, to }, from);
        let how = (self.limits(), self.options());
        let mut reader = ShardReader::of_index(shard, self.table.clone(), extent, lookups.unwrap_or_default(), how);
        loop {
            let next = reader.next_block().await;
            let Some(block) = self.unless_withheld(next)? else {
                return Ok(());
            };
            let matching = preempt::allowed(|| self.matching(block));
            self.push(matching);
            if self.is_full() || self.withheld().is_some() {
                return Ok(());
            }
            runtime::give_way().await;
        }
    }

    /// What of a block matches all look-ups here. Replicas that agree about the data agree about it, whatever their
    /// indexes still list.
    fn matching(&mut self, block: PartitionBlock) -> PartitionBlock {
        let Some(listing) = &self.listing else {
            return block;
        };
        let (table, now) = (&self.table, self.now);
        let is_match = |clustering: &[u8], row: Option<RowView<'_>>| {
            listing.tests.iter().all(|(lookup, terms)| {
                let mut is_one = false;
                let mut note = |term: &[u8]| is_one |= lookup.takes(term);
                match terms.place {
                    TermPlace::PartitionKey(_) => terms.of_key(block.key(), &mut note),
                    TermPlace::Clustering(_) => terms.of_clustering(clustering, &mut note),
                    TermPlace::Static => {
                        if let Some(row) = block.static_row() {
                            terms.of_live_row(&table.layout, row, (block.tombstone, now), &mut note);
                        }
                    }
                    TermPlace::Regular => {
                        if let Some(row) = row {
                            let deletion = block.deletion_of(&table.clustering_order, clustering);
                            terms.of_live_row(&table.layout, row, (deletion, now), &mut note);
                        }
                    }
                }
                is_one
            })
        };
        let is_of_partition = listing.tests.iter().all(|(_, terms)| terms.lists_partitions());
        let (layout, order) = (&table.layout, &table.clustering_order);
        let mut matching = PartitionBlock::new(block.token, block.key());
        let mut shadowed = Vec::new();
        // Without deletions: an index lists other rows here than elsewhere, so other deletions surround them.
        for (clustering, row) in block.rows() {
            shadowed.clear();
            if !is_match(clustering, Some(row)) {
                self.dead_rows += 1;
            } else if shadow_row(layout, row, block.deletion_of(order, clustering), &mut shadowed) {
                matching.push_row(clustering, &shadowed);
            }
        }
        let is_wanted = if is_of_partition {
            is_match(&[], None)
        } else {
            !matching.has_no_rows()
        };
        shadowed.clear();
        if let Some(row) = block.static_row()
            && is_wanted
            && shadow_row(layout, row, block.tombstone, &mut shadowed)
        {
            matching.set_static_row(&shadowed);
        }
        matching.covered.clone_from(&block.covered);
        matching
    }

    pub(crate) fn finish(self) -> Answer {
        if let Some(bytes) = self.withheld() {
            return Answer::of_long_row(bytes);
        }
        // What goes no further than the place that was asked for ends there all the same.
        let end = self.end.or(self.until);
        Answer {
            digest: self.digest.map_or(0, |mut digest| {
                digest.finish(&self.table.clustering_order, end.as_ref())
            }),
            blocks: self.blocks,
            end,
            is_paused: self.is_paused,
            withheld: None,
        }
    }
}

/// A block with the same rows, and nothing in them.
fn names_of(block: &PartitionBlock) -> PartitionBlock {
    let mut names = PartitionBlock::new(block.token, block.key());
    let mut nothing = Vec::new();
    RowBuilder::put_empty(&mut nothing);
    for (clustering, _) in block.rows() {
        names.push_row(clustering, &nothing);
    }
    if block.static_row().is_some() {
        names.set_static_row(&nothing);
    }
    names.covered.clone_from(&block.covered);
    names
}

impl ReadPosition {
    /// The part of a block that does not go beyond this position, and whether that part reaches it; None when the block
    /// is after it.
    pub(crate) fn clip(
        &self,
        mut block: PartitionBlock,
        order: &schema::ClusteringOrder,
        is_reversed: bool,
    ) -> (Option<PartitionBlock>, bool) {
        match (block.token, block.key()).cmp(&(self.token, &self.key[..])) {
            Ordering::Less => (Some(block), false),
            Ordering::Greater => (None, true),
            Ordering::Equal => {
                let Some(bound) = &self.inside else {
                    let is_reached = block.covered.is_none();
                    return (Some(block), is_reached);
                };
                let in_order = |o: Ordering| if is_reversed { o.reverse() } else { o };
                let is_reached = block
                    .covered
                    .as_ref()
                    .is_none_or(|c| in_order(c.compare(order, bound)).is_ge());
                if is_reached && block.covered.as_ref() != Some(bound) {
                    split_block(&mut block, bound, order, is_reversed);
                }
                (Some(block), is_reached)
            }
        }
    }
}
