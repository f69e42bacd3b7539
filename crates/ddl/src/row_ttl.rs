//! The TTL column of a table, whose value says when a row expires, as in ScyllaDB.

use schema::{Column, ColumnKind, Table};
use types::CqlType;

use crate::error::DdlError;

/// Makes a column the TTL column.
///
/// # Errors
/// When the column is none that can say it, or another one does.
pub(crate) fn enable(table: &mut Table, name: &str) -> Result<(), DdlError> {
    let full_name = format!("{}.{}", table.keyspace, table.name);
    if let Some(present) = table.ttl_column() {
        return Err(DdlError::Invalid(format!(
            "Table {full_name} has the TTL column {}: it is the only one, until ALTER TABLE {full_name} TTL NULL",
            present.name
        )));
    }
    let Some(column) = table.column(name).filter(|c| !table.is_hidden(c)) else {
        return Err(DdlError::Invalid(format!(
            "Column {name} was not found in table {full_name}: it cannot be its TTL column"
        )));
    };
    check(column)?;
    table.row_ttl = Some(column.id);
    Ok(())
}

/// No column is the TTL column any more.
///
/// # Errors
/// When no column says when rows expire.
pub(crate) fn disable(table: &mut Table) -> Result<(), DdlError> {
    match table.row_ttl.take() {
        Some(_) => Ok(()),
        None => Err(DdlError::Invalid(format!(
            "Table {}.{} has no TTL column",
            table.keyspace, table.name
        ))),
    }
}

/// Refuses to drop the TTL column, or to give it another type: rows would stop to expire, or expire at another time.
///
/// # Errors
/// When it is the TTL column.
pub(crate) fn check_unused(table: &Table, name: &str, change: &str) -> Result<(), DdlError> {
    match table.ttl_column() {
        Some(column) if column.name == name => Err(DdlError::Invalid(format!(
            "Cannot {change} the TTL column {name}: use ALTER TABLE {}.{} TTL NULL first",
            table.keyspace, table.name
        ))),
        _ => Ok(()),
    }
}

fn check(column: &Column) -> Result<(), DdlError> {
    let refused = |why: String| {
        Err(DdlError::Invalid(format!(
            "Column {} cannot be the TTL column: {why}",
            column.name
        )))
    };
    match column.kind {
        ColumnKind::PartitionKey | ColumnKind::Clustering => refused("it is a column of the primary key".to_owned()),
        ColumnKind::Static => refused("it is static".to_owned()),
        ColumnKind::Regular if Table::can_be_row_ttl(&column.cql_type) => Ok(()),
        ColumnKind::Regular => refused(format!(
            "it has the type {}; expected {}, {} or {}",
            column.cql_type,
            CqlType::Timestamp,
            CqlType::BigInt,
            CqlType::Int
        )),
    }
}
