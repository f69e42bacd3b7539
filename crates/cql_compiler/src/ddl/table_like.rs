//! CREATE TABLE … LIKE: the columns and options of another table, without its data, its id and the columns that it has
//! no more.

use cql::ast::CreateTableLike;
use schema::{Column, Keyspace, Schema, Table, TableId};
use types::CqlType;

use super::table::{check_name, created, existing_table, keyspace_for};
use super::{DdlContext, DdlOutcome, keyspace_of, options};
use crate::error::CompileError;

pub(super) fn create(
    schema: &Schema,
    s: &CreateTableLike,
    ctx: &DdlContext<'_>,
) -> Result<Option<DdlOutcome>, CompileError> {
    let keyspace_name = keyspace_of(&s.table, ctx)?;
    let source_keyspace = keyspace_of(&s.source, ctx)?;
    if system_tables::kind(source_keyspace).is_some() {
        return Err(CompileError::Invalid(format!(
            "Cannot make a table like {source_keyspace}.{}, which is a table of the system",
            s.source.name
        )));
    }
    let Some((_, source)) = existing_table(schema, &s.source, false, "SELECT", ctx)? else {
        return Ok(None);
    };
    let name = &s.table.name;
    let Some(keyspace) = keyspace_for(schema, keyspace_name, name, s.if_not_exists)? else {
        return Ok(None);
    };
    check_name(keyspace_name, name)?;
    let (table_options, id) = options::copy(keyspace, &source.options, &s.properties)?;
    if source.is_counter() {
        options::check_counter_ttl(&table_options)?;
    }
    let columns = source.columns.iter().map(|column| {
        Ok(Column {
            cql_type: type_in(keyspace, &column.cql_type)?,
            ..column.clone()
        })
    });
    let columns = columns.collect::<Result<_, CompileError>>()?;
    let id = TableId(id.unwrap_or(ctx.new_id));
    let mut table = Table {
        compact: source.compact,
        ..Table::new(keyspace_name, name, id, columns, table_options)
    };
    if let Some(column) = source.ttl_column() {
        table.row_ttl = table.column(&column.name).map(|c| c.id);
    }
    created(schema, keyspace, table, &s.properties).map(Some)
}

/// The type as it is in a keyspace: the user-defined types in it are those of that keyspace, which must have the same
/// fields.
fn type_in(keyspace: &Keyspace, cql_type: &CqlType) -> Result<CqlType, CompileError> {
    let own = cql_type.in_keyspace(&keyspace.name);
    for udt in own.user_types() {
        match keyspace.types.get(&udt.name) {
            Some(here) if here == udt => {}
            Some(_) => {
                return Err(CompileError::Invalid(format!(
                    "User type {} of keyspace {} has other fields than the one that the source has",
                    udt.name, keyspace.name
                )));
            }
            None => {
                return Err(CompileError::Invalid(format!(
                    "Keyspace {} has no user type {}, which the source has: create it first",
                    keyspace.name, udt.name
                )));
            }
        }
    }
    Ok(own)
}
