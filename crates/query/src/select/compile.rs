//! From syntax tree to select plan.

use std::sync::Arc;

use cql::ast::{Direction, Select, Selection as AstSelection, Selector};
use schema::{ColumnKind, Table};
use types::CqlType;

use super::{NOT_NEEDED, PointSource, SelectPlan};
use crate::QueryError;
use crate::restrict::{self, PartitionRestriction, Scope, StatementKind};
use crate::selection::{Selection, SelectionKind, compile_selection};

/// Compiles a SELECT.
pub fn compile_select(select: &Select, table: &Arc<Table>, scope: &mut Scope<'_>) -> Result<SelectPlan, QueryError> {
    let selection = compile_selection(select, table, scope.markers, scope.schema)?;
    let kind = StatementKind::Select {
        allow_filtering: select.allow_filtering,
    };
    let restrictions = restrict::compile(&select.relations, kind, scope)?;
    let kinds = || selection.needed.iter().map(|&i| table.columns[i].kind);
    let only_statics = kinds().any(|k| k == ColumnKind::Static)
        && kinds().all(|k| matches!(k, ColumnKind::Static | ColumnKind::PartitionKey));
    if only_statics && !restrictions.clustering.is_empty() {
        return Err(QueryError::invalid(
            "Cannot restrict clustering columns when selecting only static columns",
        ));
    }
    if select.distinct {
        check_distinct(select, table, &selection, &restrictions)?;
    }
    let limit = select
        .limit
        .as_ref()
        .map(|t| scope.term(t, "[limit]", &CqlType::Int))
        .transpose()?;
    let per_partition_limit = select
        .per_partition_limit
        .as_ref()
        .map(|t| scope.term(t, "[per_partition_limit]", &CqlType::Int))
        .transpose()?;
    let timeout = select
        .timeout
        .as_ref()
        .map(|t| scope.term(t, "[timeout]", &CqlType::Duration))
        .transpose()?;
    if per_partition_limit.is_some() && selection.is_aggregate() && select.group_by.is_empty() {
        return Err(QueryError::invalid(
            "PER PARTITION LIMIT is not allowed with aggregate queries.",
        ));
    }
    if per_partition_limit.is_some() && select.distinct {
        return Err(QueryError::invalid(
            "PER PARTITION LIMIT is not allowed with SELECT DISTINCT queries",
        ));
    }
    let reversed = compile_order(select, table, &restrictions)?;
    let sorted = !select.order_by.is_empty() && matches!(restrictions.partition, PartitionRestriction::Keys(_));
    let group_by = compile_group_by(select, table)?;
    let mut by_id = vec![NOT_NEEDED; table.layout.len()];
    let needed = selection
        .needed
        .iter()
        .copied()
        .chain(restrictions.filters.iter().map(restrict::Filter::column));
    for column in needed {
        let c = &table.columns[column];
        if matches!(c.kind, ColumnKind::Static | ColumnKind::Regular) {
            by_id[usize::from(c.id.0)] = u16::try_from(column).expect("a table has fewer than 65,535 columns");
        }
    }
    let point = compile_point(select, table, &selection, &restrictions);
    Ok(SelectPlan {
        table: table.clone(),
        selection,
        restrictions,
        limit,
        per_partition_limit,
        timeout,
        reversed,
        distinct: select.distinct,
        sorted,
        group_by,
        by_id,
        point,
        source: None,
    })
}

fn check_distinct(
    select: &Select,
    table: &Table,
    selection: &Selection,
    restrictions: &restrict::Restrictions,
) -> Result<(), QueryError> {
    if matches!(select.selection, AstSelection::All) && !table.clustering_order.is_empty() {
        return Err(QueryError::invalid(
            "SELECT DISTINCT queries must only request partition key columns and/or static columns",
        ));
    }
    for &i in &selection.needed {
        let c = &table.columns[i];
        if matches!(c.kind, ColumnKind::Clustering | ColumnKind::Regular) {
            return Err(QueryError::invalid(format!(
                "SELECT DISTINCT queries must only request partition key columns and/or static columns (not {})",
                c.name
            )));
        }
    }
    let all_keys = table
        .columns
        .iter()
        .enumerate()
        .filter(|(_, c)| c.kind == ColumnKind::PartitionKey)
        .all(|(i, _)| selection.needed.contains(&i));
    if !all_keys {
        let missing: Vec<&str> = table
            .columns
            .iter()
            .enumerate()
            .filter(|(i, c)| c.kind == ColumnKind::PartitionKey && !selection.needed.contains(i))
            .map(|(_, c)| c.name.as_str())
            .collect();
        return Err(QueryError::invalid(format!(
            "SELECT DISTINCT queries must request all the partition key columns (missing {})",
            missing.join(", ")
        )));
    }
    if !restrictions.clustering.is_empty() || restrictions.filters.iter().any(|f| is_row_column(table, f.column())) {
        return Err(QueryError::invalid(
            "SELECT DISTINCT with WHERE clause only supports restriction by partition key and/or static columns.",
        ));
    }
    Ok(())
}

fn is_row_column(table: &Table, column: usize) -> bool {
    matches!(table.columns[column].kind, ColumnKind::Clustering | ColumnKind::Regular)
}

/// Whether rows are read backwards.
fn compile_order(select: &Select, table: &Table, restrictions: &restrict::Restrictions) -> Result<bool, QueryError> {
    if select.order_by.is_empty() {
        return Ok(false);
    }
    if !restrictions.partition.is_keys() {
        return Err(QueryError::invalid(
            "ORDER BY is only supported when the partition key is restricted by an EQ or an IN.",
        ));
    }
    let clustering: Vec<_> = table.clustering().collect();
    let mut reversed: Option<bool> = None;
    for (i, ordering) in select.order_by.iter().enumerate() {
        if !table.columns.iter().any(|c| c.name == ordering.column) {
            return Err(QueryError::invalid(format!(
                "Undefined column name {} in table {}.{}",
                schema::quote_identifier(&ordering.column),
                table.keyspace,
                table.name
            )));
        }
        let Some(at) = clustering.iter().position(|c| c.name == ordering.column) else {
            return Err(QueryError::invalid(format!(
                "Order by is currently only supported on the clustered columns of the PRIMARY KEY, got {}",
                ordering.column
            )));
        };
        if at != i {
            return Err(QueryError::invalid(
                "Order by currently only supports the ordering of columns following their declared order in the PRIMARY KEY",
            ));
        }
        let descending = match ordering.direction {
            Direction::Ascending => false,
            Direction::Descending => true,
            Direction::NearestTo(_) => {
                return Err(QueryError::invalid(
                    "ANN ordering is only supported on indexed vector columns",
                ));
            }
        };
        let this = descending != clustering[at].descending;
        if reversed.is_some_and(|r| r != this) {
            return Err(QueryError::invalid("Unsupported order by relation"));
        }
        reversed = Some(this);
    }
    Ok(reversed.unwrap_or(false))
}

/// Columns of GROUP BY: a prefix of the primary key that contains the partition key.
fn compile_group_by(select: &Select, table: &Table) -> Result<Vec<usize>, QueryError> {
    let mut out = Vec::new();
    for selector in &select.group_by {
        let Selector::Column(name) = selector else {
            return Err(QueryError::invalid("GROUP BY with functions is not supported yet"));
        };
        let Some(at) = table.columns.iter().position(|c| &c.name == name) else {
            return Err(QueryError::invalid(format!(
                "Undefined column name {name} in table {}.{}",
                table.keyspace, table.name
            )));
        };
        if !matches!(
            table.columns[at].kind,
            ColumnKind::PartitionKey | ColumnKind::Clustering
        ) {
            return Err(QueryError::invalid(format!(
                "Group by is currently only supported on the columns of the PRIMARY KEY, got {name}"
            )));
        }
        if at != out.len() {
            return Err(QueryError::invalid(
                "Group by currently only support groups of columns following their declared order in the PRIMARY KEY",
            ));
        }
        out.push(at);
    }
    let keys = table.partition_key().count();
    if !out.is_empty() && out.len() < keys {
        return Err(QueryError::invalid(
            "Group by is not supported on only a part of the partition key",
        ));
    }
    Ok(out)
}

/// The sources of a point read's result columns, when the statement is one.
fn compile_point(
    select: &Select,
    table: &Table,
    selection: &Selection,
    restrictions: &restrict::Restrictions,
) -> Option<Vec<PointSource>> {
    let SelectionKind::Plain(columns) = &selection.kind else {
        return None;
    };
    let one_row = matches!(restrictions.partition, PartitionRestriction::Key(_))
        && (table.clustering_order.is_empty() || restrictions.clustering.names_one_row(table))
        && restrictions.filters.is_empty()
        && !select.distinct
        && !selection.needs_times
        && select.limit.is_none()
        && select.per_partition_limit.is_none()
        && select.group_by.is_empty();
    if !one_row {
        return None;
    }
    columns
        .iter()
        .map(|&i| {
            let c = &table.columns[i];
            Some(match c.kind {
                ColumnKind::PartitionKey => PointSource::PartitionKey(c.position),
                ColumnKind::Clustering => PointSource::Clustering(c.position),
                ColumnKind::Regular if c.cql_type.is_counter() => PointSource::Counter(c.id.0),
                ColumnKind::Regular if !c.cql_type.is_multi_cell() => PointSource::Cell(c.id.0),
                ColumnKind::Regular | ColumnKind::Static => return None,
            })
        })
        .collect()
}
