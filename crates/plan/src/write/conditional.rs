//! A conditional statement or batch in one execution: what it must read of its partition, whether it applies to what
//! was read, what it answers and what it writes.
//!
//! All of this is a function of the statements, their values and the rows: the caller reads the rows, and decides which
//! of several conditional statements comes first. A [`ConditionalRequest`] is made once, is asked
//! [`ConditionalRequest::what_to_read`], and then receives the [`CurrentRows`].
//!
//! What is answered when it does not apply is what users of Cassandra know: one row for each row with a condition that
//! exists; every column of the table after IF EXISTS or IF NOT EXISTS, else those of the conditions, and in a batch the
//! primary key. A condition on static columns alone is answered with the first row of the partition.

use std::cell::OnceCell;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use mutation::compact::{LiveColumn, LiveRow};
use mutation::{Column as StoredColumn, MutationBuilder, PartitionBlock, RowView};
use schema::{Column, ColumnKind, Table, components};
use stdx::{LongVec, preempt};
use types::Token;

use super::condition::{BoundCondition, Conditions};
use super::{ListContents, ModificationKind, Target, WriteClock, WritePlan};
use crate::{Execution, PlanError, Row, key_component, put_collection};

/// A write with its values.
#[derive(Clone, Debug)]
pub struct BoundWrite {
    /// What to do.
    pub plan: Arc<WritePlan>,
    /// Its values.
    pub run: Execution,
}

/// Which rows of one partition must be read. The static row is always read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadSpec {
    /// Clustering keys, in order, each once.
    pub rows: Vec<Vec<u8>>,
    /// And the first row that can be answered.
    pub first_row: bool,
}

/// What a partition holds of what was asked for.
#[derive(Debug)]
pub struct CurrentRows {
    /// The rows asked for by name.
    pub named: Vec<PartitionBlock>,
    /// Up to the first row that can be answered, when it was asked for.
    pub first: Vec<PartitionBlock>,
    /// The moment at which cells live or have expired, seconds.
    pub now: u32,
    /// The numbers of the named blocks that have rows, in clustering order.
    with_rows: OnceCell<Vec<usize>>,
}

/// What is asked of one row.
#[derive(Debug)]
enum RowCondition {
    NotExists,
    Exists,
    Columns(Vec<BoundCondition>),
}

/// Conditional statements on one partition, bound.
#[derive(Debug)]
pub struct ConditionalRequest {
    /// The table.
    pub table: Arc<Table>,
    /// The partition's token.
    pub token: Token,
    /// The partition's serialised key.
    pub key: Vec<u8>,
    /// By clustering key, in clustering order.
    rows: LongVec<(Vec<u8>, RowCondition)>,
    statics: Option<RowCondition>,
    /// Positions in `table.columns` of what is answered when it does not apply.
    shown: Vec<usize>,
    /// For each of `table.columns`: whether its value is answered, or null.
    is_read: Vec<bool>,
    /// Whether a statement with a condition changes static columns.
    updates_statics: bool,
    /// Whether a statement changes rows.
    updates_rows: bool,
    reads: ReadSpec,
}

/// The answer of a conditional statement.
#[derive(Clone, PartialEq, Debug)]
pub struct ConditionalAnswer {
    /// Its table.
    pub table: Arc<Table>,
    /// Whether it was applied.
    pub applied: bool,
    /// Positions in `table.columns` of the current values that are answered; none when it was applied.
    pub shown: Vec<usize>,
    /// The current rows, if there are any: a value for each column that is shown.
    pub rows: Vec<Vec<Option<Vec<u8>>>>,
}

impl WritePlan {
    /// Whether it has an IF clause.
    #[inline]
    pub fn is_conditional(&self) -> bool {
        !matches!(self.conditions, Conditions::None)
    }

    fn updates_statics(&self) -> bool {
        !self.statics.is_empty()
    }

    fn updates_rows(&self) -> bool {
        self.table.clustering_order.is_empty() || !matches!(self.target, Target::Statics | Target::Partition)
    }

    /// The clustering keys of the rows that its conditions are about.
    fn rows_of_conditions(&self, run: &Execution) -> Result<Vec<Vec<u8>>, PlanError> {
        if let Target::Rows(r) | Target::WholeRows(r) | Target::Range(r) = &self.target
            && r.has_alternatives()
        {
            return Err(PlanError::invalid(format!(
                "IN on the clustering key columns is not supported with conditional {}",
                self.kind.plural()
            )));
        }
        run.with(|ctx| self.named_rows(ctx))
    }
}

impl ModificationKind {
    /// What several of them are called in messages.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Delete => "deletions",
            Self::Insert | Self::Update => "updates",
        }
    }
}

fn invalid<T>(text: &str) -> Result<T, PlanError> {
    Err(PlanError::invalid(text))
}

impl ConditionalRequest {
    /// Binds the conditions of statements on one partition. `batch`: they are those of a BATCH.
    pub fn new(statements: &[BoundWrite], batch: bool) -> Result<Self, PlanError> {
        let Some(first) = statements.first() else {
            return Err(PlanError::Internal("a conditional request has a statement".to_owned()));
        };
        let table = first.plan.table.clone();
        if statements.iter().any(|s| s.plan.table.id != table.id) {
            return invalid("Batch with conditions cannot span multiple tables");
        }
        let (token, key) = one_partition(statements)?;
        let conditional = || statements.iter().filter(|s| s.plan.is_conditional());
        let mut request = Self {
            token,
            key,
            rows: LongVec::new(),
            statics: None,
            shown: Vec::new(),
            is_read: vec![false; table.columns.len()],
            updates_statics: conditional().any(|s| s.plan.updates_statics()),
            updates_rows: statements.iter().any(|s| s.plan.updates_rows()),
            reads: ReadSpec {
                rows: Vec::new(),
                first_row: false,
            },
            table: table.clone(),
        };
        let mut exists = false;
        for BoundWrite { plan, run } in statements {
            preempt::point();
            let named = plan.rows_of_conditions(run)?;
            if plan.reads() {
                request.reads.rows.extend(named.iter().cloned());
            }
            let row = named.into_iter().next();
            match &plan.conditions {
                Conditions::None => {}
                Conditions::NotExists => {
                    exists = true;
                    request.add(row, RowCondition::NotExists)?;
                }
                Conditions::Exists => {
                    exists = true;
                    request.add(row, RowCondition::Exists)?;
                }
                Conditions::Columns(conditions) => {
                    let of_kind = |kind| {
                        let of_kind = conditions.iter().filter(|c| table.columns[c.column].kind == kind);
                        run.with(|ctx| of_kind.map(|c| c.bind(ctx)).collect::<Result<Vec<_>, _>>())
                    };
                    let (regular, statics) = (of_kind(ColumnKind::Regular)?, of_kind(ColumnKind::Static)?);
                    for (row, conditions) in [(row, regular), (None, statics)] {
                        if !conditions.is_empty() {
                            request.add(row, RowCondition::Columns(conditions))?;
                        }
                    }
                }
            }
        }
        request.join_rows()?;
        request.show(statements, exists, batch);
        let order = &table.clustering_order;
        let reads = &mut request.reads;
        reads.first_row = request.rows.is_empty();
        reads.rows.extend(request.rows.iter().map(|(row, _)| row.clone()));
        preempt::sort_by(&mut reads.rows, |a, b| order.compare(a, b));
        reads.rows.dedup_by(|a, b| {
            preempt::point();
            order.compare(a, b).is_eq()
        });
        Ok(request)
    }

    /// Which columns are answered.
    fn show(&mut self, statements: &[BoundWrite], exists: bool, batch: bool) {
        let table = self.table.clone();
        let mut with_conditions: Vec<usize> = Vec::new();
        for statement in statements {
            let Conditions::Columns(conditions) = &statement.plan.conditions else {
                continue;
            };
            with_conditions.reserve(conditions.len());
            for kind in [ColumnKind::Regular, ColumnKind::Static] {
                let columns = conditions.iter().map(|condition| condition.column);
                with_conditions.extend(columns.filter(|column| table.columns[*column].kind == kind));
            }
        }
        let is_key = |c: &Column| matches!(c.kind, ColumnKind::PartitionKey | ColumnKind::Clustering);
        if exists {
            self.shown = table.visible().map(|(i, _)| i).collect();
            let (of_statics, of_rows) = (self.updates_statics, self.updates_rows);
            for (i, c) in table.columns.iter().enumerate() {
                let is_of_kind = match c.kind {
                    ColumnKind::PartitionKey | ColumnKind::Clustering => true,
                    ColumnKind::Static => of_statics,
                    ColumnKind::Regular => of_rows,
                };
                self.is_read[i] = is_of_kind || with_conditions.contains(&i);
            }
            return;
        }
        if batch {
            self.shown
                .extend((0..table.columns.len()).filter(|&i| is_key(&table.columns[i])));
        }
        for c in with_conditions {
            if !self.shown.contains(&c) {
                self.shown.push(c);
            }
        }
        for &c in &self.shown {
            self.is_read[c] = true;
        }
    }

    /// Adds the condition of a statement on a row, or on the static row. Those of one row meet in
    /// [`ConditionalRequest::join_rows`].
    fn add(&mut self, row: Option<Vec<u8>>, new: RowCondition) -> Result<(), PlanError> {
        match (row, &mut self.statics) {
            (Some(row), _) => self.rows.push((row, new)),
            (None, Some(known)) => known.join(new)?,
            (None, none) => *none = Some(new),
        }
        Ok(())
    }

    /// Joins the conditions of several statements on one row, and puts the rows in order.
    fn join_rows(&mut self) -> Result<(), PlanError> {
        let order = &self.table.clustering_order;
        let mut added = std::mem::take(&mut self.rows);
        preempt::sort_by(&mut added, |a, b| order.compare(&a.0, &b.0));
        for (row, condition) in added {
            preempt::point();
            match self.rows.last_mut() {
                Some((last, known)) if order.compare(last, &row).is_eq() => known.join(condition)?,
                _ => self.rows.push((row, condition)),
            }
        }
        Ok(())
    }

    /// Which rows the decision, the answer and the writes need.
    pub fn what_to_read(&self) -> &ReadSpec {
        &self.reads
    }

    /// Whether every condition holds.
    pub fn applies(&self, current: &CurrentRows) -> bool {
        let of_statics = self.statics.iter().all(|c| {
            let live = current.static_row(&self.table);
            c.holds(live.as_ref().map(|live| || self.row(current, None, Some(live))))
        });
        of_statics
            && self.rows.iter().all(|(clustering, c)| {
                let found = current.find(&self.table, clustering);
                c.holds(
                    found
                        .as_ref()
                        .map(|(stored, live)| || self.row(current, Some(stored), Some(live))),
                )
            })
    }

    /// The columns of a row, over those in `into` already.
    fn set(&self, into: &mut Row, live: &LiveRow<'_>) {
        // Columns of the key have a number that no cell has.
        let place = |id: usize| self.table.columns.iter().position(|c| usize::from(c.id.0) == id);
        if let Some(values) = live.plain_values() {
            let found = values.filter_map(|(id, value)| place(id).map(|at| (at, value)));
            return found.for_each(|(at, value)| into.set(at, value));
        }
        for (id, column) in live.columns() {
            let Some(at) = place(id) else { continue };
            match column {
                LiveColumn::Simple(cell) => into.set(at, cell.value),
                LiveColumn::Complex(elements) => {
                    into.set_with(at, |out| {
                        put_collection(out, &self.table.columns[at].cql_type, elements)
                    });
                }
            }
        }
    }

    fn row(&self, current: &CurrentRows, clustering: Option<&[u8]>, live: Option<&LiveRow<'_>>) -> Row {
        let mut row = Row::new(&self.table);
        let table = &self.table;
        for (i, c) in table.columns.iter().enumerate() {
            if c.kind == ColumnKind::PartitionKey
                && let Some(v) = key_component(table, &self.key, usize::from(c.position))
            {
                row.set(i, v);
            }
        }
        let first = table.partition_key().count();
        for (i, value) in clustering.into_iter().flat_map(components).enumerate() {
            if let Some(value) = value {
                row.set(first + i, value);
            }
        }
        if let Some(statics) = current.static_row(table) {
            self.set(&mut row, &statics);
        }
        if let Some(live) = live {
            self.set(&mut row, live);
        }
        row
    }

    /// The answer.
    pub fn answer(&self, applied: bool, current: &CurrentRows) -> ConditionalAnswer {
        let table = &self.table;
        let mut rows: Vec<Row> = Vec::new();
        if !applied {
            if self.rows.is_empty() {
                let first = current.first_row(self);
                rows.extend(first.map(|(clustering, live)| self.row(current, Some(clustering), Some(&live))));
            }
            for (clustering, _) in &self.rows {
                let found = current.find(table, clustering);
                rows.extend(found.map(|(stored, live)| self.row(current, Some(stored), Some(&live))));
            }
            if rows.is_empty() && self.shows_statics(current) {
                rows.push(self.row(current, None, None));
            }
        }
        let shown: &[usize] = if rows.is_empty() { &[] } else { &self.shown };
        let value = |row: &Row, c: usize| row.get(c).filter(|_| self.is_read[c]).map(<[u8]>::to_vec);
        let values = |row: &Row| shown.iter().map(|&c| value(row, c)).collect();
        ConditionalAnswer {
            table: Arc::clone(table),
            applied,
            shown: shown.to_vec(),
            rows: preempt::collect(rows.iter().map(values)),
        }
    }

    /// Whether the static row is answered where no row is: one of the columns that are answered has a value, or the
    /// statements change static columns.
    fn shows_statics(&self, current: &CurrentRows) -> bool {
        let Some(live) = current.static_row(&self.table) else {
            return false;
        };
        if self.updates_statics {
            return true;
        }
        let mut row = Row::new(&self.table);
        self.set(&mut row, &live);
        (0..self.table.columns.len()).any(|c| self.is_read[c] && row.get(c).is_some())
    }

    /// Whether a row that lives counts as one for the answer: the statements change rows, an INSERT wrote it, or a
    /// column that is answered has a value.
    fn shows_row(&self, live: &LiveRow<'_>) -> bool {
        let is_read = |id: usize| {
            let columns = self.table.columns.iter().zip(&self.is_read);
            let mut regular = columns.filter(|(c, _)| c.kind == ColumnKind::Regular);
            regular.any(|(c, is_read)| *is_read && usize::from(c.id.0) == id)
        };
        self.updates_rows || live.has_live_marker() || live.columns().any(|(id, _)| is_read(id))
    }

    /// Whether a block has a row that can be answered.
    pub fn shows_row_of(&self, block: &PartitionBlock, now: u32) -> bool {
        let rows = CurrentRows::new(Vec::new(), Vec::new(), now);
        let table = &*self.table;
        let mut live = (0..block.len()).filter_map(|i| rows.live(table, block, i));
        live.any(|live| self.shows_row(&live))
    }

    /// The one mutation that the statements make of the partition; None when they change nothing.
    pub fn mutation(
        &self,
        statements: &[BoundWrite],
        current: &CurrentRows,
        timestamp: i64,
        clock: &WriteClock,
    ) -> Result<Option<Vec<u8>>, PlanError> {
        // More than most take: to grow step by step costs as much as the rest.
        let mut out = Vec::with_capacity(self.key.len() + 512);
        let mut builder = MutationBuilder::begin(&mut out, self.table.id, &self.key);
        let mut any = false;
        // Each statement sees the lists as they are before the request.
        let reads = statements.iter().any(|s| s.plan.reads());
        let lists = reads.then(|| current.lists(statements, &self.table, &self.key));
        for BoundWrite { plan, run } in statements {
            any |= run.with(|ctx| plan.pack_onto(&mut builder, &self.key, timestamp, ctx, clock, lists.as_ref()))?;
        }
        Ok(any.then_some(out))
    }
}

impl RowCondition {
    /// Adds what another statement wants of the same row.
    fn join(&mut self, new: Self) -> Result<(), PlanError> {
        match (self, new) {
            (Self::NotExists, Self::NotExists) | (Self::Exists, Self::Exists) => Ok(()),
            (Self::Columns(known), Self::Columns(mut new)) => {
                known.append(&mut new);
                Ok(())
            }
            (Self::Columns(_), Self::Exists) => invalid("Cannot mix IF conditions and IF EXISTS for the same row"),
            (Self::Columns(_), _) | (_, Self::Columns(_)) => {
                invalid("Cannot mix IF conditions and IF NOT EXISTS for the same row")
            }
            _ => invalid("Cannot mix IF EXISTS and IF NOT EXISTS conditions for the same row"),
        }
    }

    /// Whether it holds for the row that `row` makes, or for none.
    fn holds(&self, row: Option<impl FnOnce() -> Row>) -> bool {
        match self {
            Self::NotExists => row.is_none(),
            Self::Exists => row.is_some(),
            Self::Columns(conditions) => {
                let row = row.map(|row| row());
                conditions.iter().all(|c| c.holds(row.as_ref()))
            }
        }
    }
}

fn one_partition(statements: &[BoundWrite]) -> Result<(Token, Vec<u8>), PlanError> {
    let mut partition: Option<(Token, Vec<u8>)> = None;
    for BoundWrite { plan, run } in statements {
        preempt::point();
        if plan.is_conditional() && plan.partition.has_alternatives() {
            return Err(PlanError::invalid(format!(
                "IN on the partition key is not supported with conditional {}",
                plan.kind.plural()
            )));
        }
        let mut keys = run.with(|ctx| plan.keys(ctx))?;
        let (Some(key), true) = (keys.pop(), keys.is_empty()) else {
            return invalid(
                "Batch with conditions cannot span multiple partitions (you cannot use IN on the partition key)",
            );
        };
        match &partition {
            Some(known) if *known != key => return invalid("Batch with conditions cannot span multiple partitions"),
            Some(_) => {}
            None => partition = Some(key),
        }
    }
    partition.ok_or_else(|| PlanError::Internal("a conditional request has a statement".to_owned()))
}

impl CurrentRows {
    /// The rows asked for by name, and those up to the first that can be answered, as they are at a second.
    pub fn new(named: Vec<PartitionBlock>, first: Vec<PartitionBlock>, now: u32) -> Self {
        Self {
            named,
            first,
            now,
            with_rows: OnceCell::new(),
        }
    }

    fn blocks(&self) -> impl Iterator<Item = &PartitionBlock> {
        self.named.iter().chain(&self.first)
    }

    fn live<'a>(&self, table: &'a Table, block: &'a PartitionBlock, i: usize) -> Option<LiveRow<'a>> {
        preempt::point();
        let deletion = block.deletion_of(&table.clustering_order, block.clustering(i));
        let live = LiveRow::new(block.row(i), &table.layout, deletion, self.now);
        live.is_live().then_some(live)
    }

    /// The row of that clustering key, if it lives, and the key as it is stored: 1.0 may have been written as 1.00.
    fn find<'a>(&'a self, table: &'a Table, clustering: &[u8]) -> Option<(&'a [u8], LiveRow<'a>)> {
        let order = &table.clustering_order;
        // A request may name thousands of rows, and each comes in a block of its own.
        let blocks = self.with_rows.get_or_init(|| {
            let mut blocks: Vec<usize> = (0..self.named.len())
                .filter(|n| !self.named[*n].has_no_rows())
                .collect();
            preempt::sort_by(&mut blocks, |a, b| {
                order.compare(self.named[*a].clustering(0), self.named[*b].clustering(0))
            });
            blocks
        });
        let after = blocks.partition_point(|n| order.compare(self.named[*n].clustering(0), clustering).is_le());
        let block = &self.named[blocks[after.checked_sub(1)?]];
        let at = first_at_or_above(block, |c| order.compare(c, clustering));
        if at >= block.len() || order.compare(block.clustering(at), clustering).is_ne() {
            return None;
        }
        Some((block.clustering(at), self.live(table, block, at)?))
    }

    /// The first row that can be answered, and its clustering key.
    fn first_row<'a>(&'a self, request: &'a ConditionalRequest) -> Option<(&'a [u8], LiveRow<'a>)> {
        self.first.iter().find_map(|block| {
            let live = |i: usize| Some((block.clustering(i), self.live(&request.table, block, i)?));
            (0..block.len())
                .filter_map(live)
                .find(|(_, live)| request.shows_row(live))
        })
    }

    /// The static row, if it lives.
    fn static_row<'a>(&'a self, table: &'a Table) -> Option<LiveRow<'a>> {
        if !table.has_statics() {
            return None;
        }
        let live = self
            .blocks()
            .find_map(|b| Some(LiveRow::new(b.static_row()?, &table.layout, b.tombstone, self.now)))?;
        live.is_live().then_some(live)
    }

    /// The newest timestamp of everything here, deletions included; `i64::MIN` when there is nothing.
    pub fn timestamp_max(&self, table: &Table) -> i64 {
        let mut max = i64::MIN;
        for block in self.blocks() {
            preempt::point();
            max = max.max(block.tombstone.timestamp);
            max = block
                .range_tombstones
                .iter()
                .fold(max, |m, r| m.max(r.tombstone.timestamp));
            let rows = block.rows().map(|(_, row)| row).chain(block.static_row());
            max = rows.fold(max, |m, row| m.max(row_timestamp(table, row)));
        }
        max
    }

    /// The elements of the lists that statements change by place or value, and the values that they compute with.
    fn lists(&self, statements: &[BoundWrite], table: &Table, key: &[u8]) -> ListContents {
        let mut lists = ListContents::new();
        let ids: BTreeSet<usize> = statements.iter().flat_map(|s| s.plan.columns_read()).collect();
        let ids: Vec<usize> = ids.into_iter().collect();
        for block in self.blocks() {
            collect_lists(table, &ids, block, key, self.now, &mut lists);
        }
        lists
    }
}

/// Adds the elements that a block has of some list columns and the values of other columns, by id.
pub fn collect_lists(
    table: &Table,
    ids: &[usize],
    block: &PartitionBlock,
    key: &[u8],
    now: u32,
    lists: &mut ListContents,
) {
    let statics = block.static_row().map(|r| (true, key, r, block.tombstone));
    let rows = block.rows().map(|(ck, r)| {
        let deletion = block.deletion_of(&table.clustering_order, ck);
        (false, ck, r, deletion)
    });
    for (is_static, name, row, deletion) in statics.into_iter().chain(rows) {
        for (id, column) in LiveRow::new(row, &table.layout, deletion, now).columns() {
            if !ids.contains(&id) {
                continue;
            }
            let elements = match column {
                LiveColumn::Complex(elements) => elements.map(|(p, c)| (p.to_vec(), c.value.to_vec())).collect(),
                LiveColumn::Simple(cell) => vec![(Vec::new(), cell.value.to_vec())],
            };
            if is_static {
                lists.insert_static(name, id, elements)
            } else {
                lists.insert(name, id, elements)
            }
        }
    }
}

/// The newest timestamp in a row, whether what it dates lives or not.
fn row_timestamp(table: &Table, row: RowView<'_>) -> i64 {
    let marker = row.marker.map_or(i64::MIN, |m| m.timestamp);
    let mut max = marker.max(row.tombstone.timestamp);
    if row.is_uniform() && !table.layout.has_complex() {
        let has_cells = row.values(&table.layout).next().is_some();
        return if has_cells { max.max(row.timestamp) } else { max };
    }
    for (_, column) in row.columns(&table.layout) {
        max = max.max(match column {
            StoredColumn::Simple(cell) => cell.timestamp,
            StoredColumn::Complex(c) => {
                let elements = c.elements().map(|(_, cell)| cell.timestamp);
                elements.fold(c.tombstone.timestamp, i64::max)
            }
        });
    }
    max
}

/// The first row of a block that is not below what `compare` looks for.
fn first_at_or_above(block: &PartitionBlock, compare: impl Fn(&[u8]) -> Ordering) -> usize {
    let (mut low, mut high) = (0, block.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if compare(block.clustering(middle)).is_lt() {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
