//! Tables are created and dropped.

use schema::{Column, ColumnId, ColumnKind, Keyspace, Schema, Table, TableId};
use types::CqlType;

use crate::error::DdlError;
use crate::type_limits::{self, has_nested_collection};
use crate::{
    ChangeKind, Context, CreateTable, DropTable, NameInKeyspace, NewColumn, Outcome, SchemaChange, TOLD_NAME_BYTES_MAX,
    TableOption, check_modifiable, compact, existing_keyspace, first_duplicate, options, outcome, outcome_of_table,
    row_ttl,
};

/// The longest name of a table, in bytes: followed by its id, it is the name of a directory.
const NAME_BYTES_MAX: usize = 222;
/// Static and regular columns that a table can have had in its life: a packed row counts them in 255 bytes of bits.
pub(crate) const COLUMNS_MAX: u16 = 2040;

/// Refuses names that the protocol has no room for.
pub(crate) fn check_column_name(name: &str) -> Result<(), DdlError> {
    match name.len() {
        0..=TOLD_NAME_BYTES_MAX => Ok(()),
        length => Err(DdlError::Invalid(format!(
            "The name of a column has at most {TOLD_NAME_BYTES_MAX} bytes (got {length})"
        ))),
    }
}

/// Whether a name is safe as a part of a path everywhere.
pub(crate) fn is_word(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// What the names of the keyspaces of the DynamoDB API begin with.
const FREE_PREFIX: &str = "alternator_";

/// The longest name of such a keyspace, in bytes.
pub(crate) const FREE_NAME_BYTES_MAX: usize = FREE_PREFIX.len() + NAME_BYTES_MAX;

/// Whether a keyspace is one of the DynamoDB API. The names of its tables have dots and dashes too; none of them is a
/// path of another directory, because of what the keyspace begins with and because an id follows the table's name.
pub(crate) fn has_free_names(keyspace: &str) -> bool {
    keyspace.starts_with(FREE_PREFIX)
}

/// Whether a name has only characters that tables of the DynamoDB API may have, or those that it keeps for itself.
pub(crate) fn is_free_name(name: &str) -> bool {
    let may_be = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b'~');
    !name.is_empty() && name.bytes().all(may_be)
}

pub(crate) fn create(schema: &Schema, create: &CreateTable, ctx: &Context<'_>) -> Result<Option<Outcome>, DdlError> {
    let name = &create.table.name;
    check_new_columns(name, create.columns.iter().map(|column| column.name.as_str()))?;
    if create.columns.iter().all(|c| c.kind != ColumnKind::PartitionKey) {
        return Err(no_primary_key(name));
    }
    let Some(keyspace) = keyspace_of_new_table(schema, &create.table, create.if_not_exists)? else {
        return Ok(None);
    };
    let table = build(keyspace, create, ctx)?;
    created(schema, keyspace, table, &create.options).map(Some)
}

/// The keyspace in which a table of that name is to be made; None when there is one and that is no error.
///
/// # Errors
/// When no table of that name may be made.
pub fn keyspace_of_new_table<'s>(
    schema: &'s Schema,
    table: &NameInKeyspace,
    if_not_exists: bool,
) -> Result<Option<&'s Keyspace>, DdlError> {
    let NameInKeyspace { keyspace, name } = table;
    check_modifiable(keyspace, "CREATE", || format!("all tables in {keyspace}"))?;
    let found = existing_keyspace(schema, keyspace)?;
    if !found.tables.contains_key(name) {
        Ok(Some(found))
    } else if if_not_exists {
        Ok(None)
    } else {
        Err(DdlError::AlreadyExists {
            keyspace: keyspace.clone(),
            table: name.clone(),
        })
    }
}

/// The schema with a new table, and what its client is warned of.
pub(crate) fn created(
    schema: &Schema,
    keyspace: &Keyspace,
    table: Table,
    given: &[TableOption],
) -> Result<Outcome, DdlError> {
    if schema.table_by_id(table.id).is_some() {
        return Err(DdlError::Config(format!(
            "A table with id {} already exists",
            table.id.0
        )));
    }
    let warnings = options::warnings(&table.options, given);
    Ok(Outcome {
        warnings,
        ..outcome_of_table(schema, keyspace, table, ChangeKind::Created)
    })
}

/// What is wrong with the columns of a new table whatever the schema is, by their names in order.
///
/// # Errors
/// When a name is there twice or is too long, or there are too many.
pub fn check_new_columns<'n>(table: &str, names: impl Iterator<Item = &'n str> + Clone) -> Result<(), DdlError> {
    if let Some(name) = first_duplicate(names.clone()) {
        return Err(DdlError::Invalid(format!(
            "Duplicate column '{name}' declaration for table '{table}'"
        )));
    }
    names.clone().try_for_each(check_column_name)?;
    match names.count() {
        count if count > usize::from(COLUMNS_MAX) => Err(DdlError::Invalid(format!(
            "A table has at most {COLUMNS_MAX} columns (got {count})"
        ))),
        _ => Ok(()),
    }
}

/// The refusal of a table without a partition key.
#[must_use]
pub fn no_primary_key(table: &str) -> DdlError {
    DdlError::Invalid(format!(
        "No PRIMARY KEY specifed for table '{table}' (exactly one required)"
    ))
}

fn build(of: &Keyspace, create: &CreateTable, ctx: &Context<'_>) -> Result<Table, DdlError> {
    let (keyspace, name) = (of.name.as_str(), &create.table.name);
    let table_options = options::create(&create.options, of.has_tablets())?;
    options::check_tablets(of, &create.options, &table_options)?;
    let columns = columns(create)?;
    let (columns, compact) = if create.is_compact {
        compact::columns(columns).map(|(columns, compact)| (columns, Some(compact)))?
    } else {
        (columns, None)
    };
    if columns.iter().any(|c| c.cql_type == CqlType::Counter) {
        let mixed =
            |c: &Column| matches!(c.kind, ColumnKind::Regular | ColumnKind::Static) && c.cql_type != CqlType::Counter;
        if columns.iter().any(mixed) {
            return Err(DdlError::invalid(
                "Cannot mix counter and non counter columns in the same table",
            ));
        }
        options::check_counter_ttl(&table_options)?;
    }
    check_name(keyspace, name)?;
    options::validate(&table_options)?;
    let id = create.id.unwrap_or(TableId(ctx.new_id));
    let mut table = Table {
        compact,
        ..Table::new(keyspace, name, id, columns, table_options)
    };
    if let Some(column) = &create.ttl_column {
        row_ttl::enable(&mut table, column)?;
    }
    Ok(table)
}

pub(crate) fn check_name(keyspace: &str, name: &str) -> Result<(), DdlError> {
    let refused = |why: String| {
        Err(DdlError::Config(format!(
            "{keyspace}.{name}: Table name must not be {why}"
        )))
    };
    if !(is_word(name) || has_free_names(keyspace) && is_free_name(name)) {
        return refused(format!(
            "empty or not contain non-alphanumeric-underscore characters (got \"{name}\")"
        ));
    }
    if name.len() > NAME_BYTES_MAX {
        return refused(format!(
            "more than {NAME_BYTES_MAX} characters long (got {} characters for \"{name}\")",
            name.len()
        ));
    }
    Ok(())
}

/// The columns as the schema has them, those of a key with their positions in it.
fn columns(create: &CreateTable) -> Result<Vec<Column>, DdlError> {
    for NewColumn { cql_type, .. } in &create.columns {
        type_limits::check(cql_type)?;
        if has_nested_collection(cql_type) {
            return Err(DdlError::invalid(
                "Non-frozen UDTs with nested non-frozen collections are not supported",
            ));
        }
    }
    let is_of = |kind: ColumnKind| move |column: &&NewColumn| column.kind == kind;
    let in_key = |kind| create.columns.iter().filter(is_of(kind)).zip(0..);
    let key = in_key(ColumnKind::PartitionKey).chain(in_key(ColumnKind::Clustering));
    for (column, _) in key.clone() {
        check_key_type(&column.name, &column.cql_type)?;
    }
    let has = |kind| create.columns.iter().any(|column| column.kind == kind);
    if !create.is_compact && has(ColumnKind::Static) && !has(ColumnKind::Clustering) {
        return Err(static_without_clustering());
    }
    let others = create.columns.iter();
    let others = others.filter(|column| matches!(column.kind, ColumnKind::Static | ColumnKind::Regular));
    let columns = key.chain(others.map(|column| (column, 0)));
    let columns = columns.map(|(column, position)| Column {
        name: column.name.clone(),
        cql_type: column.cql_type.clone(),
        kind: column.kind,
        position,
        descending: column.kind == ColumnKind::Clustering && column.descending,
        id: ColumnId(u16::MAX),
    });
    Ok(columns.collect())
}

pub(crate) fn static_without_clustering() -> DdlError {
    DdlError::invalid(
        "Static columns are only useful (and thus allowed) if the table has at least one clustering column",
    )
}

fn check_key_type(name: &str, t: &CqlType) -> Result<(), DdlError> {
    if t.is_multi_cell() {
        let (what, t) = match t {
            CqlType::Udt(udt) => ("user-defined", format!("\"{}.{}\"", udt.keyspace, udt.name)),
            _ => ("collection", t.to_string()),
        };
        return Err(DdlError::Invalid(format!(
            "Invalid non-frozen {what} type {t} for PRIMARY KEY column '{name}'"
        )));
    }
    let kind = match t {
        CqlType::Counter => "counter",
        t if t.has_duration() => "duration",
        _ => return Ok(()),
    };
    Err(DdlError::Invalid(format!(
        "{kind} type is not supported for PRIMARY KEY column '{name}'"
    )))
}

/// The table that is changed, with its keyspace; None when there is none and that is no error.
///
/// # Errors
/// When there is no such table, or it may not be changed. `verb` names the change.
pub fn existing_table<'s>(
    schema: &'s Schema,
    table: &NameInKeyspace,
    if_exists: bool,
    verb: &str,
) -> Result<Option<(&'s Keyspace, &'s Table)>, DdlError> {
    let NameInKeyspace { keyspace, name } = table;
    check_modifiable(keyspace, verb, || format!("table {keyspace}.{name}"))?;
    let found = schema.keyspaces.get(keyspace);
    let found = found.and_then(|of| Some((&**of, &**of.tables.get(name)?)));
    if found.is_none() && !if_exists {
        return Err(DdlError::Invalid(format!("Table '{keyspace}.{name}' doesn't exist")));
    }
    Ok(found)
}

pub(crate) fn drop(schema: &Schema, dropped: &DropTable) -> Result<Option<Outcome>, DdlError> {
    let Some((keyspace, table)) = existing_table(schema, &dropped.table, dropped.if_exists, "DROP")? else {
        return Ok(None);
    };
    let mut next = Keyspace::clone(keyspace);
    next.tables.remove(&table.name);
    let change = SchemaChange::Table {
        change: ChangeKind::Dropped,
        keyspace: table.keyspace.clone(),
        table: table.name.clone(),
    };
    Ok(Some(Outcome {
        dropped_tables: vec![table.id],
        ..outcome(schema, &table.keyspace, Some(next), change)
    }))
}
