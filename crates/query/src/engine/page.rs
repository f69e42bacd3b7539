//! Makes result rows of merged blocks, and determines where the next page continues.
//!
//! A [`Consumer`] takes the blocks of a read in order, decides which rows live, filters, counts limits and gives the
//! result rows to its sink. It is a value that may travel: a page that begins on one shard continues on the next with
//! the same consumer. When its page is full, it knows the position after its last row; that position and the limits
//! left are the opaque paging state.

use std::cell::OnceCell;
use std::sync::Arc;

use coordinator::Deadline;
use memory::{Reservation, RowMemory};
use mutation::compact::LiveRow;
use mutation::{ClusteringSlice, PartitionBlock};
use plan::restrict::{Alternatives, Partitions};
use plan::selection::AggregateState;
use plan::{BindContext, Evaluated, Operand, Row, RowSink, SelectPlan, ValueRows, key_component};
use schema::{ColumnKind, components};
use stdx::planted::{self, Bug};
use stdx::{LongVec, preempt, size};
use types::Comparator;

use super::Engine;
use super::columns::set_columns;
use super::groups::{Found, GroupPart, is_one_group};
use super::paging_state::{PagingState, Position, statement_hash};
use super::patience::Patience;
use super::tombstones::{PageLimits, TombstoneCount, TombstoneWarning};
use crate::QueryError;

/// How much a client wants at once.
#[derive(Clone, Debug, Default)]
pub struct PageRequest {
    /// Rows in a page; None for everything.
    pub rows: Option<u32>,
    /// What the page before returned.
    pub state: Option<Vec<u8>>,
    /// The text of the statement. The next page must be of the same one.
    pub statement: Option<Arc<str>>,
}

/// What the reader does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// It continues.
    Continue,
    /// Nothing more of this partition is needed.
    SkipPartition,
    /// The page is full.
    PageFull,
    /// The limit is reached: no further row is needed, of any partition.
    Done,
}

/// Turns blocks into result rows.
#[derive(Debug)]
pub struct Consumer<S> {
    /// The rows so far.
    pub out: S,
    /// How many rows they are.
    pub rows: u32,
    position: Position,
    rows_max: u32,
    paged: bool,
    spans_pages: bool,
    /// The text of the statement.
    statement: Option<Arc<str>>,
    limit_left: u64,
    per_partition_max: u64,
    per_partition_left: u64,
    /// Whether the current partition had a row.
    partition_has_rows: bool,
    in_partition: bool,
    group: Option<AggregateState>,
    /// The groups, where they go to another sink than the page.
    groups: Option<Vec<GroupPart>>,
    /// About how many bytes they are.
    group_bytes: usize,
    group_key: Vec<Option<Vec<u8>>>,
    /// For each column of GROUP BY how its values compare: those of clustering columns may be written in several ways
    /// (1.0 and 1.00), those of a partition key are one if their bytes are.
    group_order: Vec<Option<Comparator>>,
    /// Limits and pages are of groups, of which each may be of many rows.
    counts_groups: bool,
    /// The clustering key of the group's first row, where groups are sorted.
    group_name: Vec<u8>,
    /// Partition key and clustering key of the last row of the group, where groups are paged.
    last_row: (Vec<u8>, Vec<u8>),
    row: Row,
    /// For each filter what it compares rows with, where that is IN.
    alternatives: Vec<Alternatives>,
    /// Rows that are sorted over several partitions go to the sink when all are here.
    sorted: Option<Kept>,
    /// The slices of rows that the statement names, once they are known.
    slices: OnceCell<Arc<LongVec<ClusteringSlice>>>,
    /// Of a scan: only rows inside one of these count.
    row_slices: Option<Arc<LongVec<ClusteringSlice>>>,
    /// Of a statement that may read much.
    patience: Option<Patience>,
    /// The room of what it holds.
    reservation: Option<Arc<Reservation>>,
    /// Bytes of the partitions and slices that the statement names by IN.
    named_bytes: usize,
    /// How many rows one step of the read takes.
    rows_at_once: usize,
    /// Blocks since the patience was asked.
    blocks: u8,
    /// Living rows that it was given, and tombstones: dead rows and range tombstones.
    met: (u64, u64),
    /// The tombstones of the whole page.
    tombstones: TombstoneCount,
    /// Whether a page without rows may have a successor.
    takes_empty_pages: bool,
    /// The sizes of pages and results.
    limits: PageLimits,
}

/// Result rows that are kept until their order is known.
#[derive(Debug, Default)]
struct Kept {
    /// The clustering key of each.
    names: Vec<Vec<u8>>,
    values: ValueRows,
}

/// After so many blocks the patience is asked at the latest.
const BLOCKS_UNASKED_MAX: u8 = 64;

/// Rows that one step of a read takes; where each has functions of users called on it, so few that others have their
/// turn and timeouts are minded.
const ROWS_AT_ONCE: usize = 1000;
const ROWS_AT_ONCE_OF_FUNCTIONS: usize = 16;

/// How many rows one step of a read takes at the most.
pub(super) fn rows_at_once(plan: &SelectPlan) -> usize {
    let rows = if plan.selection.calls_user_functions {
        ROWS_AT_ONCE_OF_FUNCTIONS
    } else {
        ROWS_AT_ONCE
    };
    // Each row is tested by every filter.
    (rows / plan.restrictions.filters.len().max(1)).max(1)
}

fn evaluate_limit(operand: Option<&Operand>, what: &str, ctx: &BindContext<'_>) -> Result<u64, QueryError> {
    let Some(operand) = operand else { return Ok(u64::MAX) };
    match operand.eval(ctx)? {
        Evaluated::Unset => Ok(u64::MAX),
        Evaluated::Null => Err(QueryError::invalid(format!(
            "Invalid null value of {}",
            what.to_lowercase()
        ))),
        Evaluated::Value(v) => {
            let n = v.as_ref().try_into().map(i32::from_be_bytes).unwrap_or(0);
            u64::try_from(n)
                .ok()
                .filter(|&n| n > 0)
                .ok_or_else(|| QueryError::invalid(format!("{what} must be strictly positive")))
        }
    }
}

/// Whether the statement names a partition and rows of it: IN () and bounds that contradict each other do not.
fn names_any(plan: &SelectPlan, ctx: &BindContext<'_>) -> Result<bool, QueryError> {
    let (table, restrictions) = (&plan.table, &plan.restrictions);
    let partitions = restrictions.partition.partitions(table, ctx)?;
    let names_none = matches!(partitions, Partitions::Keys(keys) if keys.is_empty());
    Ok(!names_none && !restrictions.clustering.slices(table, ctx)?.is_empty())
}

pub(super) fn group_order(plan: &SelectPlan) -> Vec<Option<Comparator>> {
    let columns = plan.group_by.iter().map(|&at| &plan.table.columns[at]);
    columns
        .map(|column| (column.kind == ColumnKind::Clustering).then(|| column.cql_type.comparator()))
        .collect()
}

fn too_large(bytes_max: u64) -> QueryError {
    QueryError::ReadFailure(format!(
        "The result is larger than the {} that a query without paging may return: use paging (see max_memory_for_unlimited_query_hard_limit)",
        size::text(bytes_max)
    ))
}

impl<S: RowSink> Consumer<S> {
    /// Begins a page, whose rows go to `out`.
    pub fn new(plan: &SelectPlan, ctx: &BindContext<'_>, page: &PageRequest, out: S) -> Result<Self, QueryError> {
        let mut alternatives = Vec::with_capacity(plan.restrictions.filters.len());
        for filter in &plan.restrictions.filters {
            filter.check(&plan.table, ctx)?;
            alternatives.push(filter.alternatives(ctx)?);
        }
        plan.selection.check(ctx)?;
        if let Some(function) = &plan.group_function {
            function.check(ctx)?;
        }
        let limit = evaluate_limit(plan.limit.as_ref(), "LIMIT", ctx)?;
        let per_partition = evaluate_limit(plan.per_partition_limit.as_ref(), "LIMIT", ctx)?;
        let aggregate = plan.selection.is_aggregate() || !plan.group_by.is_empty();
        let mut consumer = Self {
            out,
            rows: 0,
            position: Position::Start,
            rows_max: if aggregate && plan.group_by.is_empty() {
                u32::MAX
            } else {
                page.rows.unwrap_or(u32::MAX)
            },
            paged: page.rows.is_some(),
            spans_pages: page.state.is_some(),
            statement: page.statement.clone(),
            limit_left: limit,
            per_partition_max: if plan.distinct { 1 } else { per_partition },
            per_partition_left: 0,
            partition_has_rows: false,
            in_partition: false,
            group: None,
            groups: None,
            group_bytes: 0,
            group_key: Vec::new(),
            group_order: group_order(plan),
            counts_groups: !plan.group_by.is_empty(),
            group_name: Vec::new(),
            last_row: Default::default(),
            row: Row::new(&plan.table),
            alternatives,
            sorted: plan.sorted.map(|_| Kept::default()),
            slices: OnceCell::new(),
            row_slices: None,
            rows_at_once: rows_at_once(plan),
            patience: None,
            reservation: None,
            named_bytes: 0,
            blocks: 0,
            met: (0, 0),
            tombstones: TombstoneCount::UNLIMITED,
            takes_empty_pages: false,
            limits: PageLimits::default(),
        };
        let would_page = page.rows.is_some() && u64::from(consumer.rows_max) < consumer.limit_left;
        consumer.spans_pages |= would_page;
        if plan.sorted.is_some() && would_page && names_any(plan, ctx)? {
            return Err(QueryError::invalid(
                "Cannot page queries with both ORDER BY and a IN restriction on the partition key; you must either remove \
                 the ORDER BY or the IN and sort client side, or disable paging for this query",
            ));
        }
        if let Some(state) = &page.state {
            let state = PagingState::decode(state)?;
            state.check(|| consumer.statement_hash(plan, ctx))?;
            // What comes back through a client is not trusted beyond what the statement allows.
            consumer.limit_left = state.limit_left.clamp(1, limit);
            consumer.per_partition_left = state.per_partition_left.clamp(1, consumer.per_partition_max);
            consumer.in_partition = matches!(state.position, Position::BehindRow { .. });
            consumer.partition_has_rows = consumer.in_partition;
            consumer.position = state.position;
        }
        Ok(consumer)
    }

    /// Begins a scan: of each partition, only rows in the slices of the statement count.
    pub(super) fn begin_scan(&mut self, plan: &SelectPlan, ctx: &BindContext<'_>) -> Result<(), QueryError> {
        let restricts_rows = !plan.restrictions.clustering.is_empty();
        self.row_slices = restricts_rows.then(|| self.slices(plan, ctx)).transpose()?;
        Ok(())
    }

    /// The slices of rows that the statement names in each partition. Evaluated once, however many partitions there
    /// are.
    pub(super) fn slices(
        &self,
        plan: &SelectPlan,
        ctx: &BindContext<'_>,
    ) -> Result<Arc<LongVec<ClusteringSlice>>, QueryError> {
        if let Some(slices) = self.slices.get() {
            return Ok(slices.clone());
        }
        let slices = plan.restrictions.clustering.slices(&plan.table, ctx)?;
        Ok(self.slices.get_or_init(|| Arc::new(slices.into())).clone())
    }

    /// Whether there may be more rows than one page takes.
    pub(super) fn spans_pages(&self) -> bool {
        self.spans_pages
    }

    /// Has the bytes of pages and of the result limited.
    pub(super) fn limit_sizes(&mut self, limits: PageLimits) {
        self.limits = limits;
    }

    fn check_size(&self, bytes: usize) -> Result<(), QueryError> {
        if bytes as u64 > self.limits.result_bytes {
            Err(too_large(self.limits.result_bytes))
        } else {
            Ok(())
        }
    }

    /// What the client should know of the size of a result without pages.
    pub(super) fn size_warning(&self) -> Option<String> {
        let bytes = self.out.bytes() as u64;
        let is_large = !self.paged && bytes > self.limits.unpaged_bytes_warn;
        is_large.then(|| {
            format!(
                "The result of this query without paging has {}, and max_memory_for_unlimited_query_soft_limit is {}: use paging",
                size::text(bytes),
                size::text(self.limits.unpaged_bytes_warn)
            )
        })
    }

    /// Limits the tombstones that the page may meet.
    pub(super) fn limit_tombstones(&mut self, plan: &SelectPlan, limits: PageLimits, takes_empty_pages: bool) {
        self.tombstones = TombstoneCount::new(limits.for_select(plan, self.paged));
        self.takes_empty_pages = takes_empty_pages;
    }

    /// Whether the page ends before it has all its rows, since it has met too much else. Drivers of Cassandra take an
    /// empty page for the end of the result: theirs has a row.
    fn is_cut_short(&self) -> bool {
        self.tombstones.is_page_full() && (self.takes_empty_pages || self.rows > 0)
    }

    /// What the client should know of the tombstones of the page, at its end.
    pub(super) fn take_tombstone_warning(&mut self) -> Option<TombstoneWarning> {
        std::mem::replace(&mut self.tombstones, TombstoneCount::UNLIMITED).warning(self.rows)
    }

    /// Has the read end when this says so.
    pub(super) fn set_patience(&mut self, patience: Patience) {
        self.patience = Some(patience);
    }

    /// Sets the memory of the result.
    pub(super) fn set_reservation(&mut self, reservation: Option<Arc<Reservation>>) {
        self.reservation = reservation;
    }

    /// Where the read reserves memory for long rows.
    pub(super) fn row_memory(&self) -> Option<Arc<dyn RowMemory>> {
        let reservation = self.reservation.clone()?;
        Some(reservation)
    }

    /// Bytes of the result, of what becomes a part of it, and of what the statement names.
    fn held_bytes(&self) -> usize {
        let sorted = self.sorted.as_ref().map_or(0, |kept| kept.values.bytes());
        self.out.bytes() + sorted + self.group_bytes + self.named_bytes
    }

    /// Waits for the memory of partitions and slices that the statement names by IN, before they are built.
    pub(super) async fn hold_named(&mut self, bytes: usize) -> Result<(), QueryError> {
        self.named_bytes += bytes;
        match &self.reservation {
            Some(reservation) if bytes > 0 => Ok(reservation.hold(self.held_bytes()).await?),
            _ => Ok(()),
        }
    }

    /// When the client gives up, if the statement says so.
    pub(super) fn own_deadline(&self) -> Deadline {
        self.patience.as_ref().map_or(Deadline::USUAL, Patience::own_deadline)
    }

    /// What comes of `work` that is done elsewhere, if it comes in time.
    pub(super) async fn within<T>(&self, work: impl Future<Output = T>) -> Result<T, QueryError> {
        match &self.patience {
            None => Ok(work.await),
            Some(patience) => patience.within(work).await,
        }
    }

    /// Between two blocks: waits until there is room for a result that has grown, gives way to others when this task
    /// has run long enough, and ends a read whose time is up.
    pub(super) async fn pause(&mut self) -> Result<(), QueryError> {
        if let Some(reservation) = &self.reservation {
            reservation.hold(self.held_bytes()).await?;
        }
        let is_due = runtime::should_yield();
        if is_due {
            runtime::yield_now().await;
        }
        let Some(patience) = &self.patience else { return Ok(()) };
        self.blocks += 1;
        if is_due || self.blocks >= BLOCKS_UNASKED_MAX {
            self.blocks = 0;
            patience.check()?;
        }
        Ok(())
    }

    /// Where the read begins or continues.
    pub fn position(&self) -> &Position {
        &self.position
    }

    fn statement_hash(&self, plan: &SelectPlan, ctx: &BindContext<'_>) -> u64 {
        statement_hash(self.statement.as_deref().unwrap_or(""), plan.table.id, ctx.values)
    }

    /// The state that the next page begins with, after a full page.
    pub fn paging_state(&self, plan: &SelectPlan, ctx: &BindContext<'_>) -> Vec<u8> {
        PagingState {
            statement: self.statement_hash(plan, ctx),
            position: self.position.clone(),
            limit_left: self.limit_left,
            per_partition_left: self.per_partition_left,
        }
        .encode()
    }

    /// Begins a partition, unless the page continues inside it. Returns whether it began.
    fn begin_partition(&mut self) -> bool {
        let begins = !self.in_partition;
        if begins {
            self.in_partition = true;
            self.partition_has_rows = false;
            self.per_partition_left = self.per_partition_max;
        }
        begins
    }

    fn set_partition_columns(&mut self, plan: &SelectPlan, ctx: &BindContext<'_>, block: &PartitionBlock) {
        self.row.clear();
        for (i, c) in plan.table.columns.iter().enumerate() {
            if c.kind != ColumnKind::PartitionKey {
                break;
            }
            if let Some(v) = key_component(&plan.table, block.key(), usize::from(c.position)) {
                self.row.set(i, v);
            }
        }
        if let Some(view) = block.static_row() {
            let live = LiveRow::new(view, &plan.table.layout, block.tombstone, ctx.expiry_now());
            set_columns(&mut self.row, plan, live, ctx.expiry_now());
        }
    }

    /// How many living rows and how many tombstones it was given since this was asked last.
    pub(super) fn take_met(&mut self) -> (u64, u64) {
        std::mem::take(&mut self.met)
    }

    /// Takes the rows of a block, and counts its tombstones on the shard that runs this.
    pub fn block(
        &mut self,
        plan: &SelectPlan,
        ctx: &BindContext<'_>,
        block: &PartitionBlock,
    ) -> Result<Flow, QueryError> {
        let is_deleted = self.begin_partition() && !block.tombstone.is_none();
        let before = self.met.1;
        let of_block = block.range_tombstones.len() as u64 + u64::from(is_deleted);
        if of_block > 0 {
            self.met.1 += of_block;
            self.tombstones.add(of_block, &plan.table, block.key())?;
        }
        let flow = self.live_rows(plan, ctx, block);
        let tombstones = self.met.1 - before;
        if tombstones > 0 {
            Engine::local().count_tombstones(tombstones);
        }
        flow
    }

    /// Takes the rows of a block that live, and counts the others.
    fn live_rows(
        &mut self,
        plan: &SelectPlan,
        ctx: &BindContext<'_>,
        block: &PartitionBlock,
    ) -> Result<Flow, QueryError> {
        let order = &plan.table.clustering_order;
        let first = plan.table.partition_key().count();
        let n = block.len();
        // What the rows of a partition share is set once, but for its times.
        let mut is_kept = false;
        for step in 0..n {
            let i = if plan.reversed { n - 1 - step } else { step };
            let (clustering, view) = (block.clustering(i), block.row(i));
            if self
                .row_slices
                .as_ref()
                .is_some_and(|slices| !ClusteringSlice::any_contains(slices, order, clustering))
            {
                self.tombstones.reject();
                if self.is_cut_short() {
                    return Ok(self.end_page_behind(block.key(), clustering));
                }
                continue;
            }
            let deletion = block.deletion_of(order, clustering);
            let live = LiveRow::new(view, &plan.table.layout, deletion, ctx.expiry_now());
            if !live.is_live() {
                self.met.1 += 1;
                self.tombstones.add(1, &plan.table, block.key())?;
                if self.is_cut_short() && !self.owes_static_row(plan, ctx, block) {
                    return Ok(self.end_page_behind(block.key(), clustering));
                }
                continue;
            }
            self.met.0 += 1;
            self.partition_has_rows = true;
            if is_kept {
                self.row.clear_to_kept()
            } else {
                self.set_partition_columns(plan, ctx, block);
                is_kept = !plan.selection.needs_times;
                if is_kept {
                    self.row.keep();
                }
            }
            for (c, value) in components(clustering).enumerate() {
                if let Some(value) = value {
                    self.row.set(first + c, value);
                }
            }
            set_columns(&mut self.row, plan, live, ctx.expiry_now());
            let flow = self.row(plan, ctx, (block.key(), clustering))?;
            if flow == Flow::PageFull && plan.group_by.is_empty() {
                self.position = if self.per_partition_left == 0 {
                    self.in_partition = false;
                    Position::BehindPartition {
                        key: block.key().to_vec(),
                    }
                } else {
                    Position::BehindRow {
                        key: block.key().to_vec(),
                        clustering: clustering.to_vec(),
                    }
                };
            }
            if flow != Flow::Continue {
                return Ok(flow);
            }
        }
        Ok(Flow::Continue)
    }

    fn end_page_behind(&mut self, key: &[u8], clustering: &[u8]) -> Flow {
        self.position = Position::BehindRow {
            key: key.to_vec(),
            clustering: clustering.to_vec(),
        };
        Flow::PageFull
    }

    /// Ends a partition: its static row alone is a row when nothing else was, and the statement asked for the whole
    /// partition. `block` is any block of it.
    pub fn end_partition(
        &mut self,
        plan: &SelectPlan,
        ctx: &BindContext<'_>,
        block: &PartitionBlock,
    ) -> Result<Flow, QueryError> {
        self.begin_partition();
        self.in_partition = false;
        if !self.owes_static_row(plan, ctx, block) {
            if !self.partition_has_rows {
                self.tombstones.reject();
            }
            if self.is_cut_short() {
                self.position = Position::BehindPartition {
                    key: block.key().to_vec(),
                };
                return Ok(Flow::PageFull);
            }
            return Ok(Flow::Continue);
        }
        self.set_partition_columns(plan, ctx, block);
        let flow = self.row(plan, ctx, (block.key(), &[]))?;
        if flow == Flow::PageFull && plan.group_by.is_empty() {
            self.position = Position::BehindPartition {
                key: block.key().to_vec(),
            };
        }
        Ok(if flow == Flow::SkipPartition {
            Flow::Continue
        } else {
            flow
        })
    }

    /// Whether the static row of the partition is a row of the result unless another row comes. A page that ends inside
    /// the partition would forget that.
    fn owes_static_row(&self, plan: &SelectPlan, ctx: &BindContext<'_>, block: &PartitionBlock) -> bool {
        if self.partition_has_rows || !plan.restrictions.clustering.is_empty() || plan.table.clustering_order.is_empty()
        {
            return false;
        }
        let row = block.static_row();
        row.is_some_and(|v| LiveRow::new(v, &plan.table.layout, block.tombstone, ctx.expiry_now()).is_live())
    }

    /// Takes the row in `self.row`, of that partition key and clustering key.
    fn row(&mut self, plan: &SelectPlan, ctx: &BindContext<'_>, name: (&[u8], &[u8])) -> Result<Flow, QueryError> {
        for (f, alternatives) in plan.restrictions.filters.iter().zip(&self.alternatives) {
            let is_believed = planted::is_planted(Bug::StaleRowReturned) && !plan.restrictions.indexed.is_empty();
            if !f.passes(&self.row, ctx, alternatives)? && !is_believed {
                self.tombstones.reject();
                return Ok(if self.is_cut_short() {
                    Flow::PageFull
                } else {
                    Flow::Continue
                });
            }
        }
        if plan.selection.is_aggregate() || !plan.group_by.is_empty() {
            return self.aggregate(plan, ctx, name);
        }
        let bytes = match &mut self.sorted {
            Some(kept) => {
                plan.selection.write_row(&self.row, ctx, &mut kept.values)?;
                preempt::push(&mut kept.names, name.1.to_vec());
                kept.values.bytes()
            }
            None => {
                plan.selection.write_row(&self.row, ctx, &mut self.out)?;
                self.out.bytes()
            }
        };
        self.check_size(bytes)?;
        self.rows += 1;
        if self.sorted.is_some() {
            // Which rows the limit leaves is known when all are here.
            self.per_partition_left = self.per_partition_left.saturating_sub(1);
            return Ok(if self.per_partition_left == 0 {
                Flow::SkipPartition
            } else {
                Flow::Continue
            });
        }
        self.limit_left -= 1;
        self.per_partition_left = self.per_partition_left.saturating_sub(1);
        if self.limit_left == 0 {
            return Ok(Flow::Done);
        }
        if self.rows >= self.rows_max || (self.paged && bytes as u64 >= self.limits.page_bytes) {
            return Ok(Flow::PageFull);
        }
        Ok(if self.per_partition_left == 0 {
            Flow::SkipPartition
        } else {
            Flow::Continue
        })
    }

    fn aggregate(
        &mut self,
        plan: &SelectPlan,
        ctx: &BindContext<'_>,
        (partition, clustering): (&[u8], &[u8]),
    ) -> Result<Flow, QueryError> {
        let made = match &plan.group_function {
            Some(function) => function.eval(&self.row, ctx)?,
            None => None,
        };
        let is_new = self.group.is_none() || !self.is_of_group(plan, made.as_deref());
        if self.group.is_some() && is_new {
            self.finish_group(plan, ctx)?;
            if self.limit_left == 0 {
                return Ok(Flow::Done);
            }
            if self.paged && self.sorted.is_none() && self.is_page_full() {
                self.end_page_behind_group(partition);
                return Ok(Flow::PageFull);
            }
        }
        if is_new && !plan.group_by.is_empty() && !plan.distinct {
            // A group does not reach beyond its partition, whose limit counts groups.
            if self.per_partition_left == 0 {
                return Ok(Flow::SkipPartition);
            }
            self.per_partition_left -= 1;
        }
        if is_new {
            let value = |&c: &usize| self.row.get(c).map(<[u8]>::to_vec);
            self.group_key = plan.group_by.iter().map(value).collect();
            if let Some(last) = self.group_key.last_mut().filter(|_| plan.group_function.is_some()) {
                *last = made;
            }
        }
        if is_new && self.sorted.is_some() {
            self.group_name = clustering.to_vec();
        }
        if (self.paged || self.groups.is_some()) && !plan.group_by.is_empty() {
            let (key, row) = &mut self.last_row;
            for (place, bytes) in [(key, partition), (row, clustering)] {
                place.clear();
                place.extend_from_slice(bytes);
            }
        }
        let state = self.group.get_or_insert_with(|| plan.selection.new_group());
        plan.selection.accumulate(state, &self.row, ctx)?;
        Ok(if plan.distinct {
            Flow::SkipPartition
        } else {
            Flow::Continue
        })
    }

    /// Whether the row's values of the columns of GROUP BY are those of the group; of the last one what a function made
    /// of it, when there is one.
    fn is_of_group(&self, plan: &SelectPlan, made: Option<&[u8]>) -> bool {
        let mut columns = plan.group_by.as_slice();
        if plan.group_function.is_some() {
            if self.group_key.last().is_some_and(|last| last.as_deref() != made) {
                return false;
            }
            columns = &columns[..columns.len().saturating_sub(1)];
        }
        let pairs = columns.iter().zip(&self.group_key);
        is_one_group(
            &self.group_order,
            pairs.map(|(&column, value)| (self.row.get(column), value.as_deref())),
        )
    }

    fn is_page_full(&self) -> bool {
        self.rows >= self.rows_max || self.out.bytes() as u64 >= self.limits.page_bytes
    }

    /// Ends the page after the last row of the group that was just given; the next row is of the partition `next`.
    fn end_page_behind_group(&mut self, next: &[u8]) {
        let (key, clustering) = self.last_row.clone();
        let is_same = key == next && self.per_partition_left > 0;
        self.in_partition = is_same;
        self.position = if is_same {
            Position::BehindRow { key, clustering }
        } else {
            Position::BehindPartition { key }
        };
    }

    fn finish_group(&mut self, plan: &SelectPlan, ctx: &BindContext<'_>) -> Result<(), QueryError> {
        let Some(state) = self.group.take() else { return Ok(()) };
        if self.groups.is_some() {
            self.keep_group(state);
            return Ok(());
        }
        match &mut self.sorted {
            // Which groups the limit leaves is known when all are here.
            Some(kept) => {
                plan.selection.write_group(state, ctx, &mut kept.values)?;
                kept.names.push(std::mem::take(&mut self.group_name));
            }
            None => {
                plan.selection.write_group(state, ctx, &mut self.out)?;
                self.limit_left -= 1;
                self.check_size(self.out.bytes())?;
            }
        }
        self.rows += 1;
        Ok(())
    }

    /// Ends the read: an aggregate over everything has a row even when there was none to count.
    pub fn finish(&mut self, plan: &SelectPlan, ctx: &BindContext<'_>) -> Result<(), QueryError> {
        if plan.selection.is_aggregate() && plan.group_by.is_empty() {
            self.group.get_or_insert_with(|| plan.selection.new_group());
        }
        if self.limit_left > 0 {
            self.finish_group(plan, ctx)?;
        }
        if let Some(kept) = self.sorted.take() {
            self.give_sorted(plan, kept);
        }
        Ok(())
    }

    /// Gives the rows of several partitions to the sink in the statement's order, as many as the limit says.
    fn give_sorted(&mut self, plan: &SelectPlan, kept: Kept) {
        let (order, columns) = (&plan.table.clustering_order, plan.sorted.unwrap_or(0));
        let mut rows = preempt::collect(kept.names.into_iter().zip(kept.values.rows));
        preempt::sort_by(&mut rows, |(a, _), (b, _)| {
            // A partition of static columns alone has a row without a name, which comes before all others.
            let o = b.is_empty().cmp(&a.is_empty());
            let o = o.then_with(|| order.compare_first(columns, a, b));
            if plan.reversed { o.reverse() } else { o }
        });
        let cut = rows.len().min(usize::try_from(self.limit_left).unwrap_or(usize::MAX));
        preempt::drop_each(rows.split_off(cut));
        self.rows = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        for (_, values) in rows {
            preempt::point();
            values.iter().for_each(|value| self.out.value(value.as_deref()));
            self.out.end_row();
        }
    }

    /// The page. What was needed to make it is dropped.
    pub(super) fn into_sink(self) -> S {
        self.out
    }

    /// Continues in the middle of a partition, of which rows were seen or not.
    pub(super) fn resume_partition(&mut self, has_rows: bool) {
        self.in_partition = true;
        self.partition_has_rows = has_rows;
        self.per_partition_left = self.per_partition_max;
    }

    /// Leaves a partition that has nothing more: what comes next begins another one, with a limit of its own.
    pub(super) fn leave_partition(&mut self) {
        self.in_partition = false;
    }

    /// Whether rows of the current partition were seen.
    pub(super) fn partition_has_rows(&self) -> bool {
        self.partition_has_rows
    }

    /// Takes what was aggregated so far of a statement without groups. The next row starts a new aggregate.
    fn take_group(&mut self, plan: &SelectPlan) -> AggregateState {
        self.group.take().unwrap_or_else(|| plan.selection.new_group())
    }

    /// Has the groups of a statement that has several kept for [`Consumer::take_found`].
    pub(super) fn keep_groups(&mut self, plan: &SelectPlan) {
        self.groups = (!plan.group_by.is_empty()).then(Vec::new);
    }

    fn keep_group(&mut self, state: AggregateState) {
        let group = GroupPart {
            key: std::mem::take(&mut self.group_key),
            last_row: self.last_row.clone(),
            state,
        };
        self.group_bytes += group.held_bytes();
        self.groups.get_or_insert_default().push(group);
    }

    /// Whether so many groups are kept that they should be handed over.
    pub(super) fn has_many_groups(&self) -> bool {
        self.group_bytes as u64 >= self.limits.page_bytes
    }

    /// Takes what was aggregated so far. The next row starts a new aggregate.
    pub(super) fn take_found(&mut self, plan: &SelectPlan) -> Found {
        if self.groups.is_none() {
            return Found::All(self.take_group(plan));
        }
        if let Some(state) = self.group.take() {
            self.keep_group(state);
        }
        Found::Groups(self.groups.take().unwrap_or_default())
    }

    /// How many groups the page takes; all of them: `u64::MAX`.
    pub(super) fn groups_wanted(&self) -> u64 {
        let page = if self.paged { u64::from(self.rows_max) } else { u64::MAX };
        page.min(self.limit_left)
    }

    /// Takes the next group that was found elsewhere; it comes after the groups before it.
    pub(super) fn take_part(
        &mut self,
        plan: &SelectPlan,
        ctx: &BindContext<'_>,
        part: GroupPart,
    ) -> Result<Flow, QueryError> {
        if self.group.is_some() {
            self.finish_group(plan, ctx)?;
            if self.limit_left == 0 {
                return Ok(Flow::Done);
            }
            if self.paged && self.is_page_full() {
                self.end_page_behind_group(&part.last_row.0);
                return Ok(Flow::PageFull);
            }
        }
        self.last_row = part.last_row;
        // Groups that come from elsewhere have no per-partition limit of their own: a page that ends between two groups
        // of one partition continues there.
        self.per_partition_left = self.per_partition_max;
        self.group = Some(part.state);
        Ok(Flow::Continue)
    }

    /// Continues with what was aggregated elsewhere.
    pub(super) fn give_group(&mut self, group: AggregateState) {
        self.group = Some(group);
    }

    /// How many more rows of a partition a reader should fetch at once.
    pub fn rows_wanted(&self) -> usize {
        self.rows_left().clamp(1, self.rows_at_once)
    }

    /// How many more rows the page takes, as far as that is known.
    pub fn rows_left(&self) -> usize {
        if self.counts_groups {
            return usize::MAX;
        }
        let page = u64::from(self.rows_max - self.rows.min(self.rows_max));
        usize::try_from(page.min(self.limit_left)).unwrap_or(usize::MAX)
    }
}
