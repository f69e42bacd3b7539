//! From syntax tree to select plan.

use std::sync::Arc;

use cql::ast::{
    ComparisonOperator, Direction, InValues, Ordering, Predicate, Select, Selection as AstSelection, Selector, Subject,
};
use plan::restrict::{PartitionRestriction, Restrictions};
use plan::selection::GroupFunction;
use plan::{SelectPlan, Selection};
use schema::{ColumnKind, Table};
use types::CqlType;

use crate::CompileError;
use crate::restrict::{self, Scope, StatementKind};
use crate::selection::{compile_group_function, take_selection};

/// Compiles a SELECT. The names of the columns that it selects are moved out of it.
pub fn compile_select(
    select: &mut Select,
    table: &Arc<Table>,
    scope: &mut Scope<'_>,
) -> Result<SelectPlan, CompileError> {
    let selection = take_selection(select, table, scope.markers, scope.schema, scope.keyspace)?;
    let select = &*select;
    let kind = StatementKind::Select {
        // Of the keyspaces that are virtual in Cassandra all is computed anyway.
        allow_filtering: select.allow_filtering || schema::is_virtual_keyspace(&table.keyspace),
    };
    let (restrictions, lacks_filtering) = restrict::compile(&select.relations, kind, scope)?;
    let kinds = || selection.needed.iter().map(|&i| table.columns[i].kind);
    let only_statics = kinds().any(|k| k == ColumnKind::Static)
        && kinds().all(|k| matches!(k, ColumnKind::Static | ColumnKind::PartitionKey));
    let is_clustering = |column: usize| table.columns[column].kind == ColumnKind::Clustering;
    let filters_clustering = restrictions.filters.iter().any(|f| is_clustering(f.column()));
    if only_statics && (filters_clustering || !restrictions.clustering.is_empty()) {
        return Err(CompileError::invalid(
            "Cannot restrict clustering columns when selecting only static columns",
        ));
    }
    if select.distinct {
        check_distinct(select, table, &selection, &restrictions)?;
    }
    let limit = scope.optional(select.limit.as_ref(), "[limit]", &CqlType::Int)?;
    let per_partition_limit = scope.optional(
        select.per_partition_limit.as_ref(),
        "[per_partition_limit]",
        &CqlType::Int,
    )?;
    let timeout = scope.optional(select.timeout.as_ref(), "[timeout]", &CqlType::Duration)?;
    if per_partition_limit.is_some() && selection.is_aggregate() && select.group_by.is_empty() {
        return Err(CompileError::invalid(
            "PER PARTITION LIMIT is not allowed with aggregate queries.",
        ));
    }
    if per_partition_limit.is_some() && select.distinct {
        return Err(CompileError::invalid(
            "PER PARTITION LIMIT is not allowed with SELECT DISTINCT queries",
        ));
    }
    let (reversed, ordered) = compile_order(select, table, &restrictions)?;
    let is_of_several = restrictions.partition.has_alternatives();
    if let Some(by) = select.order_by.first()
        && select.distinct
        && is_of_several
    {
        // Rows of several partitions are sorted by columns that such a query does not read.
        return Err(CompileError::invalid(format!(
            "SELECT DISTINCT queries must only request partition key columns and/or static columns (not {})",
            by.column
        )));
    }
    let (group_by, group_function) = compile_group_by(select, table, scope)?;
    if select.distinct
        && group_by
            .iter()
            .any(|&i| table.columns[i].kind == ColumnKind::Clustering)
    {
        return Err(CompileError::invalid(
            "Grouping on clustering columns is not allowed for SELECT DISTINCT queries",
        ));
    }
    if lacks_filtering {
        return Err(CompileError::invalid(restrict::NEEDS_FILTERING));
    }
    Ok(SelectPlan::new(plan::Select {
        table: table.clone(),
        selection,
        restrictions,
        limit,
        per_partition_limit,
        timeout,
        reversed,
        bypasses_cache: select.bypass_cache,
        fragments_of: None,
        distinct: select.distinct,
        sorted: is_of_several.then_some(ordered).filter(|columns| *columns > 0),
        group_by,
        group_function,
        nulls: scope.nulls,
    })?)
}

/// What Cassandra warns of when it prepares: an aggregate over all partitions. That over several of them is known when
/// the values are.
pub(crate) fn warning(plan: &SelectPlan) -> Option<&'static str> {
    let of_partition = |column: usize| plan.table.columns[column].kind == ColumnKind::PartitionKey;
    let is_of_all = matches!(plan.restrictions.partition, PartitionRestriction::All)
        && !plan.restrictions.filters.iter().any(|f| of_partition(f.column()));
    (is_of_all && plan.aggregates_rows() && !schema::is_virtual_keyspace(&plan.table.keyspace))
        .then_some("Aggregation query used without partition key")
}

fn check_distinct(
    select: &Select,
    table: &Table,
    selection: &Selection,
    restrictions: &Restrictions,
) -> Result<(), CompileError> {
    if matches!(select.selection, AstSelection::All)
        && let Some(clustering) = table.clustering().next()
    {
        return Err(CompileError::Invalid(format!(
            "SELECT DISTINCT queries must only request partition key columns and/or static columns (not {})",
            clustering.name
        )));
    }
    for &i in &selection.needed {
        let c = &table.columns[i];
        if matches!(c.kind, ColumnKind::Clustering | ColumnKind::Regular) {
            return Err(CompileError::invalid(format!(
                "SELECT DISTINCT queries must only request partition key columns and/or static columns (not {})",
                c.name
            )));
        }
    }
    let mut keys = table
        .columns
        .iter()
        .enumerate()
        .filter(|(_, c)| c.kind == ColumnKind::PartitionKey);
    if !restrictions.partition.is_keys()
        && let Some((_, missing)) = keys.find(|(i, _)| !selection.needed.contains(i))
    {
        return Err(CompileError::Invalid(format!(
            "SELECT DISTINCT queries must request all the partition key columns (missing {})",
            missing.name
        )));
    }
    if !restrictions.clustering.is_empty() || restrictions.filters.iter().any(|f| is_row_column(table, f.column())) {
        return Err(CompileError::invalid(
            "SELECT DISTINCT with WHERE clause only supports restriction by partition key and/or static columns.",
        ));
    }
    Ok(())
}

fn is_row_column(table: &Table, column: usize) -> bool {
    matches!(table.columns[column].kind, ColumnKind::Clustering | ColumnKind::Regular)
}

/// Whether the statement's relations give a column one value.
fn is_fixed(select: &Select, column: &str) -> bool {
    select.relations.iter().any(|relation| {
        let is_of_one = match &relation.predicate {
            Predicate::Compare(operator, _) => *operator == ComparisonOperator::Equal,
            Predicate::In {
                negated: false,
                values: InValues::Terms(terms),
            } => terms.len() == 1,
            _ => false,
        };
        let is_about = match &relation.subject {
            Subject::Column(name) => name == column,
            Subject::Columns(names) => names.iter().any(|name| name == column),
            _ => false,
        };
        is_of_one && is_about
    })
}

/// Whether rows are read backwards, and how many clustering columns they are ordered by.
fn compile_order(select: &Select, table: &Table, restrictions: &Restrictions) -> Result<(bool, usize), CompileError> {
    if select.order_by.is_empty() {
        return Ok((false, 0));
    }
    for ordering in &select.order_by {
        if table.position(&ordering.column).is_none() {
            return Err(CompileError::undefined_column(&ordering.column, table));
        }
    }
    if select
        .order_by
        .iter()
        .any(|o| matches!(o.direction, Direction::NearestTo(_)))
    {
        return Err(CompileError::invalid(
            "ANN ordering by vector requires the column to be indexed",
        ));
    }
    if !restrictions.partition.is_keys() {
        return Err(CompileError::invalid(
            "ORDER BY is only supported when the partition key is restricted by an EQ or an IN.",
        ));
    }
    let clustering: Vec<_> = table.clustering().collect();
    let mut reversed: Option<bool> = None;
    let mut next = 0;
    for (i, ordering) in select.order_by.iter().enumerate() {
        let of_column = |other: &&Ordering| other.column == ordering.column;
        if select.order_by[..i].iter().any(|other| of_column(&other)) {
            continue;
        }
        // A column that is named twice has the direction that is named last, as in Cassandra.
        let ordering = select.order_by.iter().rev().find(of_column).unwrap_or(ordering);
        let Some(at) = clustering.iter().position(|c| c.name == ordering.column) else {
            return Err(CompileError::invalid(format!(
                "Order by is currently only supported on the clustered columns of the PRIMARY KEY, got {}",
                ordering.column
            )));
        };
        // What has one value is in order, named or not.
        if at < next || clustering[next..at].iter().any(|c| !is_fixed(select, &c.name)) {
            return Err(CompileError::invalid(
                "Order by currently only supports the ordering of columns following their declared order in the PRIMARY KEY",
            ));
        }
        next = at + 1;
        let descending = match ordering.direction {
            Direction::Ascending | Direction::NearestTo(_) => false,
            Direction::Descending => true,
        };
        let this = descending != clustering[at].descending;
        if reversed.is_some_and(|r| r != this) {
            return Err(CompileError::invalid("Unsupported order by relation"));
        }
        reversed = Some(this);
    }
    Ok((reversed.unwrap_or(false), next))
}

/// Columns of GROUP BY: a prefix of the primary key that contains the partition key. Columns that have one value may be
/// left out of the statement, and are in the prefix. The last one may be the argument of a function.
fn compile_group_by(
    select: &Select,
    table: &Table,
    scope: &mut Scope<'_>,
) -> Result<(Vec<usize>, Option<GroupFunction>), CompileError> {
    if select.group_by.is_empty() {
        return Ok((Vec::new(), None));
    }
    let mut out: Vec<usize> = Vec::new();
    let (mut function, mut not_monotonic) = (None, None);
    for selector in &select.group_by {
        if function.is_some() {
            let misplaced =
                || CompileError::invalid("Functions are only supported on the last element of the GROUP BY clause");
            return Err(not_monotonic.unwrap_or_else(misplaced));
        }
        let found;
        let name = match selector {
            Selector::Column(name) => name,
            _ => {
                let compiled = compile_group_function(selector, table, scope.markers, scope.schema, scope.keyspace)?;
                not_monotonic = compiled.not_monotonic;
                function = Some(compiled.function);
                found = compiled.column;
                &found
            }
        };
        let Some((at, _)) = table.visible().find(|(_, c)| &c.name == name) else {
            return Err(CompileError::undefined_column(name, table));
        };
        if !matches!(
            table.columns[at].kind,
            ColumnKind::PartitionKey | ColumnKind::Clustering
        ) {
            return Err(CompileError::invalid(format!(
                "Group by is currently only supported on the columns of the PRIMARY KEY, got {name}"
            )));
        }
        let left_out = out.len()..at;
        if at < out.len() || left_out.clone().any(|i| !is_fixed(select, &table.columns[i].name)) {
            return Err(CompileError::invalid(
                "Group by currently only support groups of columns following their declared order in the PRIMARY KEY",
            ));
        }
        out.extend(left_out);
        out.push(at);
    }
    let keys = table.partition_key().count();
    if !out.is_empty() && out.len() < keys {
        return Err(CompileError::invalid(
            "Group by is not supported on only a part of the partition key",
        ));
    }
    match not_monotonic {
        Some(error) => Err(error),
        None => Ok((out, function)),
    }
}
