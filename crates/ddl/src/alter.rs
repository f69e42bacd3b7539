//! Tables are altered.

use schema::{Column, ColumnKind, DroppedColumn, Schema, Table};
use types::CqlType;

use crate::error::DdlError;
use crate::retype::retype;
use crate::table::{COLUMNS_MAX, check_column_name, existing_table, static_without_clustering};
use crate::type_limits::{self, has_nested_collection};
use crate::{
    AlterTable, ChangeKind, NewColumn, Outcome, TableChange, compact, index, options, outcome_of_table, row_ttl,
};

pub(crate) fn alter(schema: &Schema, alter: &AlterTable) -> Result<Option<Outcome>, DdlError> {
    let Some((keyspace, old)) = existing_table(schema, &alter.table, alter.if_exists, "ALTER")? else {
        return Ok(None);
    };
    let mut table = Table::clone(old);
    let mut warnings = Vec::new();
    match &alter.change {
        TableChange::Add {
            if_not_exists,
            columns,
            ttl_column,
        } => {
            for column in columns {
                add(&mut table, column, *if_not_exists)?;
            }
            if let Some(column) = ttl_column {
                row_ttl::enable(&mut table, column)?;
            }
        }
        TableChange::Drop {
            if_exists,
            columns,
            dropped_at_us,
        } => {
            for column in columns {
                drop(&mut table, column, *if_exists, *dropped_at_us)?;
            }
        }
        TableChange::Rename { if_exists, columns } => {
            for (from, to) in columns {
                rename(old, &mut table, from, to, *if_exists)?;
            }
        }
        TableChange::Options(given) => {
            table.options = options::alter(&old.options, given)?;
            options::check_tablets(keyspace, given, &table.options)?;
            warnings = options::warnings(&table.options, given);
            if old.is_counter() {
                options::check_counter_ttl(&table.options)?;
            }
        }
        TableChange::Type {
            if_exists,
            column,
            cql_type,
        } => {
            type_limits::check(cql_type)?;
            if table.column(column).is_some() || !if_exists {
                retype(&mut table, column, cql_type.clone())?;
            }
        }
        TableChange::DropCompactStorage => compact::drop_storage(&mut table)?,
        TableChange::TtlColumn(Some(column)) => row_ttl::enable(&mut table, column)?,
        TableChange::TtlColumn(None) => row_ttl::disable(&mut table)?,
    }
    if table == *old {
        return Ok(None);
    }
    Ok(Some(Outcome {
        warnings,
        ..outcome_of_table(schema, keyspace, table, ChangeKind::Updated)
    }))
}

fn add(table: &mut Table, c: &NewColumn, if_not_exists: bool) -> Result<(), DdlError> {
    if table.column(&c.name).is_some() {
        if if_not_exists {
            return Ok(());
        }
        return Err(DdlError::Invalid(format!(
            "Column with name '{}' already exists",
            c.name
        )));
    }
    if matches!(c.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
        return Err(DdlError::Invalid(format!(
            "Column {} cannot be added to the PRIMARY KEY",
            c.name
        )));
    }
    check_column_name(&c.name)?;
    compact::check_add(table)?;
    type_limits::check(&c.cql_type)?;
    if has_nested_collection(&c.cql_type) {
        return Err(DdlError::Invalid(format!(
            "Non-frozen UDTs with nested non-frozen collections are not supported for column {}",
            c.name
        )));
    }
    if c.kind == ColumnKind::Static && table.clustering().next().is_none() {
        return Err(static_without_clustering());
    }
    if let Some(dropped) = table.last_dropped().find(|d| d.name == c.name) {
        check_successor(dropped, &c.cql_type, c.kind)?;
    }
    let full_name = format_args!("{}.{}", table.keyspace, table.name).to_string();
    match (table.is_counter(), c.cql_type == CqlType::Counter) {
        (true, false) => {
            return Err(DdlError::Config(format!(
                "{full_name}: Cannot have a non counter column (\"{}\") in a counter table",
                c.name
            )));
        }
        (false, true) => {
            return Err(DdlError::Config(format!(
                "{full_name}: Cannot have a counter column (\"{}\") in a non counter table",
                c.name
            )));
        }
        _ => {}
    }
    // Those of the key have no number.
    let in_key = table.partition_key().chain(table.clustering()).count();
    if usize::from(table.next_column_id) + in_key >= usize::from(COLUMNS_MAX) {
        return Err(DdlError::Invalid(format!(
            "Table '{full_name}' has had {COLUMNS_MAX} columns, dropped ones included, and can have no more"
        )));
    }
    table.add_column(&c.name, c.cql_type.clone(), c.kind);
    Ok(())
}

/// A column may follow a dropped one of its name only if its type can read what older files may still hold.
fn check_successor(dropped: &DroppedColumn, cql_type: &CqlType, kind: ColumnKind) -> Result<(), DdlError> {
    let name = &dropped.name;
    if !reads_as(cql_type, &dropped.cql_type) {
        return Err(DdlError::Invalid(format!(
            "Cannot add a column '{name}' of type {cql_type}, incompatible with previously dropped column '{name}' of type {}",
            dropped.cql_type
        )));
    }
    if kind != dropped.kind {
        let word = |kind| {
            if kind == ColumnKind::Static {
                "STATIC"
            } else {
                "REGULAR"
            }
        };
        return Err(DdlError::Invalid(format!(
            "Cannot re-add previously dropped column '{name}' of kind {}, incompatible with previous kind {}",
            word(kind),
            word(dropped.kind)
        )));
    }
    if *cql_type == CqlType::Counter {
        return Err(DdlError::Invalid(format!(
            "Cannot re-add previously dropped counter column {name}"
        )));
    }
    Ok(())
}

/// Whether every value and every cell of type `old` is one of type `new`.
fn reads_as(new: &CqlType, old: &CqlType) -> bool {
    use CqlType as T;
    if new == old {
        return true;
    }
    match (new, old) {
        // As Cassandra, which takes tuples and refuses frozen collections.
        (T::Blob, _) if old.unfrozen().is_collection() => false,
        (T::Blob, _) => !old.is_multi_cell() && *old != T::Counter && old.fixed_len().is_none(),
        (T::Text, T::Ascii) | (T::Uuid, T::TimeUuid) => true,
        (T::BigInt, T::Timestamp) | (T::Timestamp, T::BigInt) => true,
        // What is in a cell's path keeps its order only if it keeps its type.
        (T::List(new), T::List(old)) => reads_as(new, old),
        (T::Map(new_key, new), T::Map(old_key, old)) => new_key == old_key && reads_as(new, old),
        // Later elements of an older tuple are null.
        (T::Tuple(new), T::Tuple(old)) => new.len() >= old.len() && new.iter().zip(&**old).all(|(n, o)| reads_as(n, o)),
        _ => false,
    }
}

fn drop(table: &mut Table, name: &str, if_exists: bool, dropped_at_us: i64) -> Result<(), DdlError> {
    let is_key = |c: &Column| matches!(c.kind, ColumnKind::PartitionKey | ColumnKind::Clustering);
    match table.column(name).filter(|c| is_key(c) || !table.is_hidden(c)) {
        None if if_exists => Ok(()),
        None => Err(DdlError::Invalid(format!(
            "Column {name} was not found in table '{}'",
            table.quoted_name()
        ))),
        Some(c) if is_key(c) => Err(DdlError::Invalid(format!("Cannot drop PRIMARY KEY column {name}"))),
        // Which cells belong to which field would be forgotten with the type.
        Some(c) if matches!(c.cql_type, CqlType::Udt(_)) => Err(DdlError::Invalid(format!(
            "Cannot drop non-frozen column {name} of user type {}",
            c.cql_type
        ))),
        Some(c) => {
            compact::check_drop(table, c)?;
            row_ttl::check_unused(table, name, "drop")?;
            if let Some(indexes) = index::names_of_column(table, name) {
                return Err(DdlError::Invalid(format!(
                    "Cannot drop column {name} because it has dependent secondary indexes ({indexes})"
                )));
            }
            table.drop_column(name, dropped_at_us);
            Ok(())
        }
    }
}

/// `old` is the table before the statement: a chain of renames does not pass through names of its own making.
fn rename(old: &Table, table: &mut Table, from: &str, to: &str, if_exists: bool) -> Result<(), DdlError> {
    check_column_name(to)?;
    match old.column(from).filter(|c| !old.is_hidden(c)) {
        None if if_exists => return Ok(()),
        None => return Err(DdlError::undefined_column(from, old)),
        Some(c) if matches!(c.kind, ColumnKind::Static | ColumnKind::Regular) => {
            return Err(DdlError::Invalid(format!(
                "Cannot rename non PRIMARY KEY column {from}"
            )));
        }
        Some(_) => {}
    }
    if old.column(to).is_some() || table.column(to).is_some() {
        return Err(DdlError::Invalid(format!(
            "Cannot rename column {from} to {to} in table '{}'; another column with that name already exists",
            table.quoted_name()
        )));
    }
    if let Some(indexes) = index::names_of_column(old, from) {
        return Err(DdlError::Invalid(format!(
            "Can't rename column {from} because it has dependent secondary indexes ({indexes})"
        )));
    }
    table.rename_column(from, to);
    Ok(())
}
