//! Guardrails of statements that read and write.

use cql_compiler::Statement;
use plan::restrict::PartitionRestriction;
use plan::write::WrittenValue;
use plan::{BindContext, Execution, Plan, SelectPlan, WritePlan};
use schema::{Column, Table};
use types::{CollectionIter, CqlType, MapIter};

use super::{Guardrails, check_limit, refused};
use crate::QueryError;
use crate::engine::Request;

/// How far ahead of the node's clock `restrict_future_timestamp` lets USING TIMESTAMP be: three days, in microseconds.
const FUTURE_US: u64 = 3 * 86_400 * 1_000_000;

const READ_LEVELS: (&str, &str) = ("read_consistency_levels_warned", "read_consistency_levels_disallowed");
const WRITE_LEVELS: (&str, &str) = ("write_consistency_levels_warned", "write_consistency_levels_disallowed");

fn is_of_users(table: &Table) -> bool {
    system_tables::kind(&table.keyspace).is_none()
}

impl Guardrails {
    /// Refuses a statement for what its text says.
    ///
    /// # Errors
    /// When a guardrail refuses it.
    pub(crate) fn check_text(&self, statement: &Statement) -> Result<(), QueryError> {
        match statement {
            Statement::Plan(Plan::Select(select)) if is_of_users(&select.table) => self.check_text_of_select(select),
            Statement::Plan(Plan::Write(write)) => self.check_text_of_write(write),
            Statement::Plan(Plan::Batch(batch)) => {
                if self.forbids_timestamps && batch.timestamp.is_some() {
                    return Err(timestamps_forbidden());
                }
                batch
                    .writes
                    .iter()
                    .try_for_each(|write| self.check_text_of_write(write))
            }
            Statement::Truncate(..) if self.schema.forbids_drop_table => Err(refused(format_args!(
                "TRUNCATE is refused: drop_truncate_table_enabled is false"
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses a statement with too many relations in WHERE.
    ///
    /// # Errors
    /// When it has.
    pub(crate) fn check_relations(&self, relations: usize) -> Result<(), QueryError> {
        let what = format_args!("The statement has {relations} relations in WHERE");
        check_limit(
            self.relations_max,
            relations as u64,
            "max_relations_in_where_clause",
            what,
        )
    }

    fn check_text_of_select(&self, select: &SelectPlan) -> Result<(), QueryError> {
        if self.forbids_filtering && select.restrictions.indexed.is_empty() && !select.restrictions.filters.is_empty() {
            return Err(refused(format_args!(
                "ALLOW FILTERING is refused: allow_filtering_enabled is false"
            )));
        }
        if self.forbids_group_by && !select.group_by.is_empty() {
            return Err(refused(format_args!("GROUP BY is refused: group_by_enabled is false")));
        }
        Ok(())
    }

    fn check_text_of_write(&self, write: &WritePlan) -> Result<(), QueryError> {
        if !is_of_users(&write.table) {
            return Ok(());
        }
        if self.forbids_timestamps && write.has_timestamp() {
            return Err(timestamps_forbidden());
        }
        if self.forbids_list_reads && write.reads_lists() {
            return Err(refused(format_args!(
                "An operation on a list that reads before it writes is refused: read_before_write_list_operations_enabled is false"
            )));
        }
        Ok(())
    }

    /// Whether executions of a statement have to be checked that could be answered in one call. Timestamps have a check
    /// of their own there ([`Guardrails::usual_timestamps`]).
    pub(crate) fn watches(&self, statement: &Statement) -> bool {
        match statement.plan() {
            Some(Plan::Select(select)) => is_of_users(&select.table) && !self.read_levels.is_empty(),
            Some(Plan::Write(write)) => {
                is_of_users(&write.table)
                    && (write.guards_large_data()
                        || !self.write_levels.is_empty()
                        || self.limits_values() && write.has_values()
                        || self.limits_products() && write.has_alternatives())
            }
            Some(Plan::Batch(_) | Plan::VirtualWrite(_)) | None => false,
        }
    }

    /// The microseconds before and after the node's clock between which no guardrail looks at USING TIMESTAMP.
    pub(crate) fn usual_timestamps(&self) -> (u64, u64) {
        let first = |limits: super::Thresholds| [limits.warn, limits.fail].into_iter().flatten().min();
        let future = self.restricts_future.then_some(FUTURE_US);
        let ahead = first(self.ahead_us).into_iter().chain(future).min();
        (first(self.behind_us).unwrap_or(u64::MAX), ahead.unwrap_or(u64::MAX))
    }

    fn limits_values(&self) -> bool {
        [self.collection_items, self.collection_bytes, self.value_bytes]
            .iter()
            .any(|limits| !limits.is_none())
    }

    fn limits_products(&self) -> bool {
        self.partition_product_max.is_some() || self.clustering_product_max.is_some()
    }

    /// Checks one execution before anything is done. `clock_us` is the node's clock. The answer is the warnings.
    ///
    /// # Errors
    /// When a guardrail refuses it, or a value of the statement cannot be evaluated.
    pub(crate) fn check(
        &self,
        plan: &Plan,
        run: &Execution,
        request: &Request,
        clock_us: i64,
    ) -> Result<Vec<String>, QueryError> {
        let mut warnings = Vec::new();
        match plan {
            Plan::Select(select) => self.check_select(select, run, request, &mut warnings)?,
            Plan::Write(write) => {
                self.check_levels(write, request, &mut warnings)?;
                self.check_write(write, run, clock_us, &mut warnings)?;
            }
            Plan::Batch(batch) => {
                if let Some(first) = batch.writes.iter().find(|write| is_of_users(&write.table)) {
                    self.check_levels(first, request, &mut warnings)?;
                }
                if let Some(timestamp) = run.with(|ctx| batch.own_timestamp(ctx))? {
                    self.check_timestamp(timestamp, clock_us, &mut warnings)?;
                }
                for write in &batch.writes {
                    self.check_write(write, run, clock_us, &mut warnings)?;
                }
            }
            Plan::VirtualWrite(_) => {}
        }
        Ok(warnings)
    }

    fn check_select(
        &self,
        select: &SelectPlan,
        run: &Execution,
        request: &Request,
        warnings: &mut Vec<String>,
    ) -> Result<(), QueryError> {
        if !is_of_users(&select.table) {
            return Ok(());
        }
        let level = request.level;
        let what = format_args!("The read has the consistency level {level}");
        self.read_levels.check(&level, READ_LEVELS, what, warnings)?;
        if select.is_point() {
            return Ok(());
        }
        if let Some(rows) = request.page_rows {
            let what = format_args!("The pages of the read have {rows} rows");
            self.page_rows.check_max(u64::from(rows), "page_size", what, warnings)?;
        }
        let without_nulls = run.with(|ctx| select.without_nulls(ctx))?;
        let select = without_nulls.as_ref().unwrap_or(select);
        let restrictions = &select.restrictions;
        let limits_select = !self.partitions_in_select.is_none() || !self.product_in_select.is_none();
        let has_alternatives = restrictions.partition.has_alternatives() || restrictions.clustering.has_alternatives();
        if !has_alternatives || !(limits_select || self.limits_products()) {
            return Ok(());
        }
        let partition = &restrictions.partition;
        let (partitions, rows) =
            run.with(|ctx| Ok::<_, QueryError>((partition.product(ctx)?, restrictions.clustering.product(ctx)?)))?;
        self.check_products(partitions, rows)?;
        if matches!(
            partition,
            PartitionRestriction::Keys(_) | PartitionRestriction::KeysWithin { .. }
        ) {
            let what = format_args!("The read names {partitions} partitions");
            self.partitions_in_select
                .check_max(partitions, "partition_keys_in_select", what, warnings)?;
        }
        for (product, key) in [(partitions, "partition"), (rows, "clustering")] {
            let what = format_args!("The IN restrictions of the {key} key come to {product} combinations");
            self.product_in_select
                .check_max(product, "in_select_cartesian_product", what, warnings)?;
        }
        Ok(())
    }

    fn check_products(&self, partitions: u64, rows: u64) -> Result<(), QueryError> {
        let what = format_args!("The restrictions of the partition key come to {partitions} combinations");
        let option = "max_partition_key_restrictions_per_query";
        check_limit(self.partition_product_max, partitions, option, what)?;
        let what = format_args!("The restrictions of the clustering key come to {rows} combinations");
        let option = "max_clustering_key_restrictions_per_query";
        check_limit(self.clustering_product_max, rows, option, what)
    }

    /// Checks the consistency levels of a write; of a conditional one also that of its decision.
    pub(crate) fn check_levels(
        &self,
        write: &WritePlan,
        request: &Request,
        warnings: &mut Vec<String>,
    ) -> Result<(), QueryError> {
        if self.write_levels.is_empty() || !is_of_users(&write.table) {
            return Ok(());
        }
        let serial = write.is_conditional().then_some(request.serial_level);
        for level in [Some(request.level), serial].into_iter().flatten() {
            let what = format_args!("The write has the consistency level {level}");
            self.write_levels.check(&level, WRITE_LEVELS, what, warnings)?;
        }
        Ok(())
    }

    /// Checks what one modification names and writes.
    pub(crate) fn check_write(
        &self,
        write: &WritePlan,
        run: &Execution,
        clock_us: i64,
        warnings: &mut Vec<String>,
    ) -> Result<(), QueryError> {
        if !is_of_users(&write.table) {
            return Ok(());
        }
        let run = &*write.read_json(run)?;
        if self.limits_products() && write.has_alternatives() {
            let (partitions, rows) = run.with(|ctx| write.products(ctx))?;
            self.check_products(partitions, rows)?;
        }
        if write.has_timestamp()
            && let Some(timestamp) = run.with(|ctx| write.own_timestamp(ctx))?
        {
            self.check_timestamp(timestamp, clock_us, warnings)?;
        }
        if self.limits_values() && write.has_values() {
            run.with(|ctx| self.check_values(write, ctx, warnings))?;
        }
        Ok(())
    }

    fn check_timestamp(&self, timestamp: i64, clock_us: i64, warnings: &mut Vec<String>) -> Result<(), QueryError> {
        let ahead = u64::try_from(timestamp.saturating_sub(clock_us)).unwrap_or(0);
        let behind = u64::try_from(clock_us.saturating_sub(timestamp)).unwrap_or(0);
        if self.restricts_future && ahead > FUTURE_US {
            return Err(refused(format_args!(
                "The timestamp {timestamp} is {ahead} µs ahead of the node's clock, more than three days, and \
                 restrict_future_timestamp is true; a timestamp is in microseconds"
            )));
        }
        let what = format_args!("The timestamp {timestamp} is {ahead} µs ahead of the node's clock");
        self.ahead_us.check_max(ahead, "maximum_timestamp", what, warnings)?;
        let what = format_args!("The timestamp {timestamp} is {behind} µs behind the node's clock");
        self.behind_us.check_max(behind, "minimum_timestamp", what, warnings)
    }

    fn check_values(
        &self,
        write: &WritePlan,
        ctx: &BindContext<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<(), QueryError> {
        write.each_value(ctx, |column, value| match value {
            WrittenValue::Element(element) => self.check_size(&write.table, column, element.len(), warnings),
            WrittenValue::Whole(bytes) if is_collection(&column.cql_type) => {
                let name = format_args!("{}.{}.{}", write.table.keyspace, write.table.name, column.name).to_string();
                let (items, longest) = measure(&column.cql_type, bytes);
                let what = format_args!("The statement writes {items} items of the collection {name}");
                self.collection_items
                    .check_max(items, "items_per_collection", what, warnings)?;
                let size = bytes.len() as u64;
                let what = format_args!("The statement writes {size} bytes of the collection {name}");
                self.collection_bytes
                    .check_max(size, "collection_size", what, warnings)?;
                // A frozen collection is one value.
                let longest = if column.cql_type.is_multi_cell() {
                    longest
                } else {
                    bytes.len()
                };
                self.check_size(&write.table, column, longest, warnings)
            }
            WrittenValue::Whole(bytes) => self.check_size(&write.table, column, bytes.len(), warnings),
        })
    }

    fn check_size(
        &self,
        table: &Table,
        column: &Column,
        bytes: usize,
        warnings: &mut Vec<String>,
    ) -> Result<(), QueryError> {
        let (keyspace, name) = (&table.keyspace, &table.name);
        let what = format_args!(
            "A value of the column {keyspace}.{name}.{} has {bytes} bytes",
            column.name
        );
        self.value_bytes
            .check_max(bytes as u64, "column_value_size", what, warnings)
    }
}

#[cold]
fn timestamps_forbidden() -> QueryError {
    refused(format_args!(
        "USING TIMESTAMP is refused: user_timestamps_enabled is false"
    ))
}

pub(super) fn is_collection(cql_type: &CqlType) -> bool {
    matches!(
        cql_type.unfrozen(),
        CqlType::List(_) | CqlType::Set(_) | CqlType::Map(..)
    )
}

/// How many items a serialised collection has, and the bytes of its longest. Of bytes that are malformed only what
/// precedes the fault counts: the write itself refuses them.
pub(super) fn measure(cql_type: &CqlType, bytes: &[u8]) -> (u64, usize) {
    let (mut items, mut longest) = (0, 0);
    let mut add = |len: usize| {
        items += 1;
        longest = longest.max(len);
    };
    if matches!(cql_type.unfrozen(), CqlType::Map(..)) {
        let pairs = MapIter::new(bytes).into_iter().flatten().map_while(Result::ok);
        pairs.for_each(|(key, value)| add(key.len().max(value.len())));
    } else {
        let elements = CollectionIter::new(bytes).into_iter().flatten().map_while(Result::ok);
        elements.for_each(|element| add(element.len()));
    }
    (items, longest)
}
