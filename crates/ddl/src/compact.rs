//! `WITH COMPACT STORAGE`: the columns of such a table, as Cassandra stores them.
//!
//! Without clustering columns, the declared columns are stored as static ones, beside a clustering column of type text
//! and a regular column of type blob, where clients of Thrift had columns that no schema named. With clustering columns
//! there is one regular column; if none was declared, one of type `empty`. What is added is hidden
//! (`Table::is_hidden`).

use schema::{Column, ColumnId, ColumnKind, CompactStorage, Table};
use types::CqlType;

use crate::error::DdlError;

/// The columns that the table has when these are declared, and how it is stored.
///
/// # Errors
/// When compact storage has no place for a column.
pub(crate) fn columns(mut declared: Vec<Column>) -> Result<(Vec<Column>, CompactStorage), DdlError> {
    if declared.iter().any(|c| c.kind == ColumnKind::Static) {
        return Err(DdlError::invalid(
            "Static columns are not supported in COMPACT STORAGE tables",
        ));
    }
    if declared.iter().any(|c| c.cql_type.is_multi_cell()) {
        return Err(DdlError::invalid(
            "Non-frozen collections and UDTs are not supported with COMPACT STORAGE",
        ));
    }
    let is_regular = |c: &&Column| c.kind == ColumnKind::Regular;
    let regular: Vec<&str> = declared.iter().filter(is_regular).map(|c| c.name.as_str()).collect();
    let has_clustering = declared.iter().any(|c| c.kind == ColumnKind::Clustering);
    match (has_clustering, regular.len()) {
        (false, 0) => Err(DdlError::invalid(
            "No definition found that is not part of the PRIMARY KEY",
        )),
        (false, _) => {
            let is_counter = declared.iter().any(|c| c.cql_type == CqlType::Counter);
            for column in declared.iter_mut().filter(|c| c.kind == ColumnKind::Regular) {
                column.kind = ColumnKind::Static;
            }
            let value = if is_counter { CqlType::Counter } else { CqlType::Blob };
            let added = [
                added(free_name(&declared, "column", 1), CqlType::Text, ColumnKind::Clustering),
                added(free_name(&declared, "value", 0), value, ColumnKind::Regular),
            ];
            declared.extend(added);
            Ok((declared, CompactStorage::Static))
        }
        (true, 0) => {
            let name = free_name(&declared, "value", 0);
            declared.push(added(name, CqlType::Empty, ColumnKind::Regular));
            Ok((declared, CompactStorage::Dense))
        }
        (true, 1) => Ok((declared, CompactStorage::Dense)),
        (true, _) => Err(DdlError::Invalid(format!(
            "COMPACT STORAGE with composite PRIMARY KEY allows no more than one column not part of the PRIMARY KEY (got: {})",
            regular.join(", ")
        ))),
    }
}

fn added(name: String, cql_type: CqlType, kind: ColumnKind) -> Column {
    Column {
        name,
        cql_type,
        kind,
        position: 0,
        descending: false,
        id: ColumnId(u16::MAX),
    }
}

/// The word with the first number from `first` on that no column has for its name; 0 is not written.
fn free_name(columns: &[Column], word: &str, first: usize) -> String {
    let numbered = |number: usize| match number {
        0 => word.to_owned(),
        number => format!("{word}{number}"),
    };
    // Among one more than there are columns one is free.
    let mut names = (first..=first + columns.len()).map(numbered);
    let free = names.find(|name| columns.iter().all(|c| c.name != *name));
    free.unwrap_or_else(|| numbered(first + columns.len()))
}

/// Refuses a new column.
///
/// # Errors
/// When the table has compact storage.
pub(crate) fn check_add(table: &Table) -> Result<(), DdlError> {
    match table.compact {
        None => Ok(()),
        Some(_) => Err(DdlError::invalid("Cannot add new column to a COMPACT STORAGE table")),
    }
}

/// Refuses to drop the only column that has values.
///
/// # Errors
/// When rows would have no cells.
pub(crate) fn check_drop(table: &Table, column: &Column) -> Result<(), DdlError> {
    let is_last = |kind: ColumnKind| table.columns.iter().filter(|c| c.kind == kind).count() == 1;
    match table.compact {
        Some(CompactStorage::Dense) => Err(DdlError::Invalid(format!(
            "Cannot drop column {}: the rows of a COMPACT STORAGE table are in it",
            column.name
        ))),
        Some(CompactStorage::Static) if is_last(ColumnKind::Static) => Err(DdlError::Invalid(format!(
            "Cannot drop column {}: it is the only one of a COMPACT STORAGE table",
            column.name
        ))),
        _ => Ok(()),
    }
}

/// `DROP COMPACT STORAGE`: the table becomes one that shows all its columns.
///
/// # Errors
/// When it has no compact storage.
pub(crate) fn drop_storage(table: &mut Table) -> Result<(), DdlError> {
    match table.compact.take() {
        Some(_) => Ok(()),
        None => Err(DdlError::invalid(
            "Cannot DROP COMPACT STORAGE on table without COMPACT STORAGE",
        )),
    }
}
