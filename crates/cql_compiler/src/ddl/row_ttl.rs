//! The TTL column of a table: `c timestamp TTL` in CREATE TABLE, `ALTER TABLE t TTL c` and `ALTER TABLE t TTL NULL`, as
//! in ScyllaDB.

use cql::ast::ColumnDefinition;
use schema::{Column, ColumnKind, Table};
use types::CqlType;

use crate::error::CompileError;

/// Makes the column of these that is declared with `TTL`, if any, decide when rows expire.
///
/// # Errors
/// When it cannot, or another one does already.
pub(super) fn declare(table: &mut Table, columns: &[ColumnDefinition]) -> Result<(), CompileError> {
    let mut declared = columns.iter().filter(|c| c.is_row_ttl);
    let Some(column) = declared.next() else {
        return Ok(());
    };
    if let Some(other) = declared.next() {
        return Err(CompileError::Invalid(format!(
            "Columns {} and {} are declared as TTL columns: a table has one at most",
            column.name, other.name
        )));
    }
    enable(table, &column.name)
}

/// `TTL c`
///
/// # Errors
/// When the column is none that can say it, or another one does.
pub(super) fn enable(table: &mut Table, name: &str) -> Result<(), CompileError> {
    let full_name = format!("{}.{}", table.keyspace, table.name);
    if let Some(present) = table.ttl_column() {
        return Err(CompileError::Invalid(format!(
            "Table {full_name} has the TTL column {}: it is the only one, until ALTER TABLE {full_name} TTL NULL",
            present.name
        )));
    }
    let Some(column) = table.column(name).filter(|c| !table.is_hidden(c)) else {
        return Err(CompileError::Invalid(format!(
            "Column {name} was not found in table {full_name}: it cannot be its TTL column"
        )));
    };
    check(column)?;
    table.row_ttl = Some(column.id);
    Ok(())
}

/// `TTL NULL`
///
/// # Errors
/// When no column says when rows expire.
pub(super) fn disable(table: &mut Table) -> Result<(), CompileError> {
    match table.row_ttl.take() {
        Some(_) => Ok(()),
        None => Err(CompileError::Invalid(format!(
            "Table {}.{} has no TTL column",
            table.keyspace, table.name
        ))),
    }
}

/// Refuses to drop the TTL column, or to give it another type: rows would stop to expire, or expire at another time.
///
/// # Errors
/// When it is the TTL column.
pub(super) fn check_unused(table: &Table, name: &str, change: &str) -> Result<(), CompileError> {
    match table.ttl_column() {
        Some(column) if column.name == name => Err(CompileError::Invalid(format!(
            "Cannot {change} the TTL column {name}: use ALTER TABLE {}.{} TTL NULL first",
            table.keyspace, table.name
        ))),
        _ => Ok(()),
    }
}

fn check(column: &Column) -> Result<(), CompileError> {
    let refused = |why: String| {
        Err(CompileError::Invalid(format!(
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
