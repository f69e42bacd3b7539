//! A table is created like another one: with its columns and options, and with indexes like its own if that is asked
//! for; without its data, its id and the columns that it has no more.

use schema::{Column, Keyspace, Schema, Table, TableId};
use types::CqlType;

use crate::error::DdlError;
use crate::index::free_name;
use crate::table::{check_name, created, existing_table, keyspace_of_new_table};
use crate::{Context, CreateTableLike, Outcome, options};

pub(crate) fn create(
    schema: &Schema,
    create: &CreateTableLike,
    ctx: &Context<'_>,
) -> Result<Option<Outcome>, DdlError> {
    if system_tables::kind(&create.source.keyspace).is_some() {
        return Err(DdlError::Invalid(format!(
            "Cannot make a table like {}.{}, which is a table of the system",
            create.source.keyspace, create.source.name
        )));
    }
    let Some((_, source)) = existing_table(schema, &create.source, false, "SELECT")? else {
        return Ok(None);
    };
    let Some(keyspace) = keyspace_of_new_table(schema, &create.table, create.if_not_exists)? else {
        return Ok(None);
    };
    let name = &create.table.name;
    check_name(&keyspace.name, name)?;
    let table_options = options::copy(keyspace, &source.options, &create.options)?;
    if source.is_counter() {
        options::check_counter_ttl(&table_options)?;
    }
    let columns = source.columns.iter().map(|column| {
        Ok(Column {
            cql_type: type_in(keyspace, &column.cql_type)?,
            ..column.clone()
        })
    });
    let columns = columns.collect::<Result<_, DdlError>>()?;
    let id = create.id.unwrap_or(TableId(ctx.new_id));
    let mut table = Table {
        compact: source.compact,
        ..Table::new(&keyspace.name, name, id, columns, table_options)
    };
    if let Some(column) = source.ttl_column() {
        table.row_ttl = table.column(&column.name).map(|c| c.id);
    }
    if create.has_indexes {
        copy_indexes(keyspace, source, &mut table);
    }
    created(schema, keyspace, table, &create.options).map(Some)
}

/// Gives a new table indexes like those of the source, under names of its own.
fn copy_indexes(keyspace: &Keyspace, source: &Table, table: &mut Table) {
    for index in &source.indexes {
        let column = table.column(&index.column).expect("it has the columns of the source");
        let name = free_name(keyspace, table, &[(column, index.part)]);
        let target = (index.column.as_str(), index.part);
        table.add_index(&name, target, index.kind, index.options.clone()).class = index.class.clone();
    }
}

/// The type as it is in a keyspace: the user-defined types in it are those of that keyspace, which must have the same
/// fields.
fn type_in(keyspace: &Keyspace, cql_type: &CqlType) -> Result<CqlType, DdlError> {
    let own = cql_type.in_keyspace(&keyspace.name);
    for udt in own.user_types() {
        match keyspace.types.get(&udt.name) {
            Some(here) if here == udt => {}
            Some(_) => {
                return Err(DdlError::Invalid(format!(
                    "User type {} of keyspace {} has other fields than the one that the source has",
                    udt.name, keyspace.name
                )));
            }
            None => {
                return Err(DdlError::Invalid(format!(
                    "Keyspace {} has no user type {}, which the source has: create it first",
                    keyspace.name, udt.name
                )));
            }
        }
    }
    Ok(own)
}
