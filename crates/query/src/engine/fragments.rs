//! Reads of `MUTATION_FRAGMENTS(table)`: what each memtable and each sstable of this node has of a table, before
//! anything is merged.
//!
//! Every source is read alone, by the reader that merges them otherwise, so what it shows is what a read would take
//! from it. A fragment is a row of a table that is made up for the statement (`cql_compiler/src/fragments.rs`), and
//! passes through the same consumer as others. The next page continues after the place of the last fragment: sources
//! are ordered by name, and fragments within a source by region and by position in the order of the table.
//!
//! Source of columns and words: "Reading mutation fragments" and "dump-data" in ScyllaDB's documentation.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use coordinator::{Coordinator, OwnRead, OwnSource, ReadOptions, Stretch};
use mutation::row::Shared;
use mutation::{
    Bound, BoundKind, Cell, ClusteringSlice, Liveness, PartitionBlock, RangeTombstone, RowBuilder, Tombstone,
};
use plan::restrict::Partitions;
use plan::{Execution, PageSink, RowSink, SelectPlan};
use schema::{ClusteringOrder, Table, components, push_component, push_null};
use stdx::LongVec;
use types::Token;
use types::token::token_of;

use super::fragment_text::{metadata_of_row, metadata_of_static, tombstone_text, values};
use super::page::{Consumer, Flow};
use super::paging_state::Position;
use super::read::{BlockSource, Page, Part, consume_partition, end_page, failure, keys_read, start_behind, stretch_of};
use super::{Engine, Request};
use crate::QueryError;

const PARTITION_START: u8 = 0;
const STATIC_ROW: u8 = 1;
const CLUSTERED: u8 = 2;
const PARTITION_END: u8 = 3;

impl Engine {
    /// Reads a page of the fragments that this node has of a table.
    pub(super) async fn read_fragments<S: PageSink>(
        self: &Rc<Self>,
        of: &Table,
        select: &Arc<SelectPlan>,
        run: &Execution,
        request: &Request,
    ) -> Result<Page<S>, QueryError> {
        let table = &select.table;
        if self.node.system_tables.virtual_table(table.id).is_some() {
            return Err(QueryError::invalid(format!(
                "MUTATION_FRAGMENTS of {} cannot be read: its rows are computed, and nowhere stored",
                of.quoted_name()
            )));
        }
        let (mut consumer, _waiting) = self.consumer::<S>(select, run, request)?;
        let parts: Vec<(u32, Part)> = match run.with(|ctx| select.restrictions.partition.partitions(table, ctx))? {
            Partitions::None => Vec::new(),
            Partitions::Keys(keys) => {
                let from = keys_read(&keys, &consumer);
                // Those of other nodes are not here.
                let here = |(token, key): (Token, Vec<u8>)| {
                    let pieces = self.coordinator.own.pieces_here(table.id, token, token);
                    pieces
                        .first()
                        .map(|(shard, ..)| (*shard, Part::Partition(token, key, None)))
                };
                keys.into_iter().skip(from).filter_map(here).collect()
            }
            Partitions::Tokens(from, to) => {
                let begin = match consumer.position() {
                    Position::Start => from,
                    Position::BehindPartition { key } | Position::BehindRow { key, .. } => from.max(token_of(key)),
                };
                let pieces = self.coordinator.own.pieces_here(table.id, from, to).into_iter();
                let left = pieces.filter(|(_, _, last)| *last >= begin);
                left.map(|(shard, first, last)| (shard, Part::Tokens(first, last)))
                    .collect()
            }
        };
        let mut flow = Flow::Continue;
        let run = &Arc::new(run.clone());
        for (shard, part) in parts {
            (consumer, flow) = self.part_on(shard, select, run, consumer, part).await?;
            if matches!(flow, Flow::PageFull | Flow::Done) {
                break;
            }
        }
        end_page(select, run, consumer, flow)
    }

    /// Gives this shard's fragments of one partition to a consumer.
    pub(super) async fn fragments_of_partition(
        &self,
        of: &Arc<Table>,
        select: &SelectPlan,
        run: &Execution,
        consumer: &mut Consumer<impl RowSink>,
        (token, key): (Token, &[u8]),
    ) -> Result<Flow, QueryError> {
        let behind = match consumer.position() {
            Position::BehindRow { key: last, clustering } if last == key => Some(Place::parse(clustering)),
            _ => None,
        };
        let sources = self.coordinator.own.sources(&select.table, token);
        let mut sources = sources.map_err(|e| failure(&select.table, e))?;
        if let Some(place) = &behind {
            let is_read =
                |name: &[u8]| name < &place.source[..] || name == place.source && place.region == PARTITION_END;
            sources.retain(|source| !is_read(source.name.as_bytes()));
        }
        let mut fragments = Fragments {
            of: of.clone(),
            shown: select.table.clone(),
            key: key.to_vec(),
            token,
            coordinator: self.coordinator.clone(),
            sources: sources.into(),
            source: None,
            behind,
            slices: run.with(|ctx| consumer.slices(select, ctx))?,
            stretch: stretch_of(consumer),
        };
        consume_partition(select, run, consumer, &mut fragments).await
    }

    /// Gives this shard's fragments of every partition with those tokens to a consumer.
    pub(super) async fn fragments_of_tokens(
        &self,
        of: &Arc<Table>,
        select: &SelectPlan,
        run: &Execution,
        consumer: &mut Consumer<impl RowSink>,
        (from, to): (Token, Token),
    ) -> Result<Flow, QueryError> {
        let start = match consumer.position().clone() {
            Position::Start => (from, Vec::new()),
            Position::BehindPartition { key } => start_behind(key, from),
            Position::BehindRow { key, .. } => match token_of(&key) {
                token if token >= from => (token, key),
                _ => (from, Vec::new()),
            },
        };
        let failure = |e| failure(&select.table, e);
        let extent = ((Token(from.0.saturating_sub(1)), to), start);
        let options = ReadOptions {
            bypasses_cache: true,
            row_memory: None,
        };
        let keys_alone = Stretch { rows: 1, bytes: 1 };
        let scan = self.coordinator.own.read_tokens(of, extent, keys_alone, options);
        let mut scan = scan.map_err(failure)?;
        while let Some(block) = scan.next_block().await.map_err(failure)? {
            let partition = (block.token, block.key());
            let flow = self
                .fragments_of_partition(of, select, run, consumer, partition)
                .await?;
            if matches!(flow, Flow::PageFull | Flow::Done) {
                return Ok(flow);
            }
            scan.skip_partition().await.map_err(failure)?;
        }
        Ok(Flow::Continue)
    }
}

/// Where a fragment is in its partition.
struct Place {
    source: Vec<u8>,
    region: u8,
    /// The clustering prefix, and on which side of what begins with it: a row is at it.
    prefix: Vec<u8>,
    weight: i8,
}

impl Place {
    /// As a clustering key of the table that is shown. Regions without rows have the first two components only.
    fn clustering(&self, order: &ClusteringOrder) -> Vec<u8> {
        let mut out = Vec::new();
        push_component(&mut out, &self.source);
        push_component(&mut out, &[self.region]);
        if self.region == CLUSTERED {
            let given = components(&self.prefix).count();
            out.extend_from_slice(&self.prefix);
            for _ in given..order.len() {
                push_null(&mut out);
            }
            push_component(&mut out, &self.weight.to_be_bytes());
        }
        out
    }

    /// Decodes such a key. Beside a row, null components at the end represent those that a bound does not have.
    fn parse(clustering: &[u8]) -> Self {
        let mut parts: Vec<Option<&[u8]>> = components(clustering).collect();
        let first_byte = |part: Option<&[u8]>| part.and_then(|part| part.first().copied());
        let weight = match parts.len() {
            0..3 => 0,
            _ => parts.pop().and_then(first_byte).map_or(0, u8::cast_signed),
        };
        let mut rest = parts.split_off(parts.len().min(2));
        while weight != 0 && rest.last().is_some_and(Option::is_none) {
            rest.pop();
        }
        let mut prefix = Vec::new();
        for part in rest {
            match part {
                Some(part) => push_component(&mut prefix, part),
                None => push_null(&mut prefix),
            }
        }
        Self {
            source: parts.first().copied().flatten().unwrap_or_default().to_vec(),
            region: parts.get(1).copied().and_then(first_byte).unwrap_or(0),
            prefix,
            weight,
        }
    }

    fn bound(&self) -> Bound {
        match self.weight {
            ..0 => Bound::before(&self.prefix),
            _ => Bound::after(&self.prefix),
        }
    }

    fn compare(&self, order: &ClusteringOrder, other: &Self) -> Ordering {
        let clustered = || match (self.weight, other.weight) {
            (0, 0) => order.compare(&self.prefix, &other.prefix),
            (0, _) => other.bound().compare_key(order, &self.prefix).reverse(),
            (_, 0) => self.bound().compare_key(order, &other.prefix),
            _ => self.bound().compare(order, &other.bound()),
        };
        let before = self.source.cmp(&other.source).then(self.region.cmp(&other.region));
        before.then_with(clustered)
    }
}

/// A source that is being read.
struct Reading {
    name: String,
    read: OwnRead,
    has_begun: bool,
    /// The range tombstone that covers what follows, and where it is cut.
    open: Option<(Tombstone, Bound)>,
}

/// The fragments of one partition, source by source.
struct Fragments {
    of: Arc<Table>,
    shown: Arc<Table>,
    key: Vec<u8>,
    token: Token,
    coordinator: Rc<Coordinator>,
    sources: VecDeque<OwnSource>,
    source: Option<Reading>,
    /// The place of the last fragment of the page before.
    behind: Option<Place>,
    /// Which of them the statement wants.
    slices: Arc<LongVec<ClusteringSlice>>,
    stretch: Stretch,
}

impl BlockSource for Fragments {
    async fn next_block(&mut self) -> Result<Option<PartitionBlock>, QueryError> {
        loop {
            let Some(reading) = &mut self.source else {
                let Some(source) = self.sources.pop_front() else {
                    return Ok(None);
                };
                self.begin(source);
                continue;
            };
            let of_source = reading.read.next_block().await.map_err(|e| failure(&self.of, e))?;
            let mut out = PartitionBlock::new(self.token, &self.key);
            match of_source {
                Some(block) => self.show_block(&block, &mut out),
                None => {
                    self.show_end(&mut out);
                    self.source = None;
                }
            }
            if !out.has_no_rows() {
                let last = out.clustering(out.len() - 1);
                out.covered = Some(Bound::after(last));
                return Ok(Some(out));
            }
        }
    }

    async fn skip_partition(&mut self) -> Result<(), QueryError> {
        self.sources.clear();
        self.source = None;
        Ok(())
    }
}

impl Fragments {
    fn begin(&mut self, source: OwnSource) {
        // The page continues among the rows of this source: what is before them is not read again.
        let behind = self.behind.as_ref();
        let inside = behind.filter(|place| place.source == source.name.as_bytes() && place.region == CLUSTERED);
        let mut slice = ClusteringSlice::all();
        if let Some(place) = inside {
            // The row itself is read again, for a range tombstone may begin right after it.
            slice.start = Bound::before(&place.prefix);
        }
        self.source = Some(Reading {
            read: source.read(&self.coordinator.own, &self.of, &self.key, slice, self.stretch),
            name: source.name,
            has_begun: false,
            open: None,
        });
    }

    fn show_block(&mut self, block: &PartitionBlock, out: &mut PartitionBlock) {
        let Some(mut reading) = self.source.take() else { return };
        if !reading.has_begun {
            reading.has_begun = true;
            let metadata = format!("{{\"tombstone\":{}}}", tombstone_text(block.tombstone));
            let head = (PARTITION_START, &[][..], 0);
            self.show(&reading.name, head, ("partition start", Some(metadata), None), out);
            if let Some(row) = block.static_row() {
                let texts = (metadata_of_static(&self.of, &row), values(&self.of, &row));
                let head = (STATIC_ROW, &[][..], 0);
                self.show(&reading.name, head, ("static row", Some(texts.0), Some(texts.1)), out);
            }
        }
        let order = self.of.clustering_order.clone();
        let mut ranges = block.range_tombstones.iter().peekable();
        for (clustering, row) in block.rows() {
            while let Some(range) = ranges.next_if(|range| range.start.compare_key(&order, clustering).is_lt()) {
                self.show_range(&mut reading, range, out);
            }
            if reading
                .open
                .as_ref()
                .is_some_and(|(_, end)| end.compare_key(&order, clustering).is_lt())
            {
                self.close(&mut reading, out);
            }
            let texts = (metadata_of_row(&self.of, &row), values(&self.of, &row));
            let head = (CLUSTERED, clustering, 0);
            self.show(
                &reading.name,
                head,
                ("clustering row", Some(texts.0), Some(texts.1)),
                out,
            );
        }
        for range in ranges {
            self.show_range(&mut reading, range, out);
        }
        // A range tombstone that reaches to the end of the block may continue in the next.
        let is_cut = |end: &Bound| block.covered.as_ref() == Some(end);
        if reading.open.as_ref().is_some_and(|(_, end)| !is_cut(end)) {
            self.close(&mut reading, out);
        }
        self.source = Some(reading);
    }

    /// A range tombstone begins; where another ends at its start there is one change.
    fn show_range(&self, reading: &mut Reading, range: &RangeTombstone, out: &mut PartitionBlock) {
        let touches = reading.open.as_ref().is_some_and(|(_, end)| *end == range.start);
        if !touches {
            self.close(reading, out);
        }
        if reading.open.as_ref().is_none_or(|(open, _)| *open != range.tombstone) {
            self.show_change(&reading.name, &range.start, range.tombstone, out);
        }
        reading.open = Some((range.tombstone, range.end.clone()));
    }

    fn close(&self, reading: &mut Reading, out: &mut PartitionBlock) {
        if let Some((_, end)) = reading.open.take() {
            self.show_change(&reading.name, &end, Tombstone::NONE, out);
        }
    }

    fn show_change(&self, source: &str, at: &Bound, tombstone: Tombstone, out: &mut PartitionBlock) {
        let weight = match at.kind {
            BoundKind::Before => -1,
            BoundKind::After => 1,
        };
        let metadata = format!("{{\"tombstone\":{}}}", tombstone_text(tombstone));
        let head = (CLUSTERED, &at.prefix[..], weight);
        self.show(source, head, ("range tombstone change", Some(metadata), None), out);
    }

    fn show_end(&mut self, out: &mut PartitionBlock) {
        let Some(mut reading) = self.source.take() else { return };
        self.close(&mut reading, out);
        let goes_on_inside = self
            .behind
            .as_ref()
            .is_some_and(|place| place.source == reading.name.as_bytes());
        if reading.has_begun || goes_on_inside {
            self.show(
                &reading.name,
                (PARTITION_END, &[], 0),
                ("partition end", None, None),
                out,
            );
        }
    }

    /// Appends a fragment, if the statement wants it and no page has shown it.
    fn show(
        &self,
        source: &str,
        (region, prefix, weight): (u8, &[u8], i8),
        (kind, metadata, value): (&str, Option<String>, Option<String>),
        out: &mut PartitionBlock,
    ) {
        let place = Place {
            source: source.as_bytes().to_vec(),
            region,
            prefix: prefix.to_vec(),
            weight,
        };
        let (order, clustering) = (&self.of.clustering_order, place.clustering(&self.of.clustering_order));
        let is_shown = |last: &Place| Place::parse(&clustering).compare(order, last).is_le();
        if self.behind.as_ref().is_some_and(is_shown) {
            return;
        }
        let shown = &self.shown.clustering_order;
        if !ClusteringSlice::any_contains(&self.slices, shown, &clustering) {
            return;
        }
        let texts = [
            ("metadata", metadata.as_deref()),
            ("mutation_fragment_kind", Some(kind)),
            ("value", value.as_deref()),
        ];
        out.push_row_with(&clustering, |out| {
            pack(&self.shown, &texts, out);
            true
        });
    }
}

/// Packs the texts of a fragment as a living row. The table's columns have their ids in the order of their names.
fn pack(shown: &Table, texts: &[(&str, Option<&str>)], out: &mut Vec<u8>) {
    let shared = Shared {
        timestamp: 0,
        ttl: 0,
        expiry: 0,
    };
    let marker = Liveness {
        timestamp: 0,
        ttl: 0,
        expiry: 0,
    };
    let mut row = RowBuilder::begin(
        out,
        &shown.layout,
        shared,
        Some(marker),
        Tombstone::NONE,
        false,
        texts.len(),
    );
    for (id, (_, text)) in texts.iter().enumerate() {
        if let Some(text) = text {
            let cell = Cell {
                timestamp: 0,
                ttl: 0,
                deletion_time: 0,
                dead: false,
                value: text.as_bytes(),
            };
            row.cell(id, &cell);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_from_the_key_that_it_is_shown_as() {
        let order = ClusteringOrder::default();
        for region in [PARTITION_START, STATIC_ROW, PARTITION_END] {
            let place = Place {
                source: b"memtable:0".to_vec(),
                region,
                prefix: Vec::new(),
                weight: 0,
            };
            let again = Place::parse(&place.clustering(&order));
            assert_eq!(again.compare(&order, &place), Ordering::Equal, "region {region}");
        }
    }
}
