//! CREATE and DROP TABLE.

use std::collections::BTreeMap;

use cql::ast::{ColumnDefinition, CreateTable, DropTable, PrimaryKey, Property, QualifiedName, TypeName};
use schema::{Column, ColumnId, ColumnKind, Keyspace, Schema, Table, TableId};
use types::CqlType;

use super::TOLD_NAME_BYTES_MAX;
use super::properties::first_duplicate;
use super::row_ttl;
use super::{
    ChangeKind, DdlContext, DdlOutcome, SchemaChange, check_modifiable, compact, keyspace_of, options, outcome,
    outcome_of_table, types as column_types,
};
use crate::error::CompileError;

/// The longest name of a table, in bytes: followed by its id, it is the name of a directory.
const NAME_BYTES_MAX: usize = 222;
/// Static and regular columns that a table can have had in its life: a packed row counts them in 255 bytes of bits.
pub(super) const COLUMNS_MAX: u16 = 2040;

/// Refuses names that the protocol has no room for.
pub(super) fn check_column_name(name: &str) -> Result<(), CompileError> {
    match name.len() {
        0..=TOLD_NAME_BYTES_MAX => Ok(()),
        length => Err(CompileError::Invalid(format!(
            "The name of a column has at most {TOLD_NAME_BYTES_MAX} bytes (got {length})"
        ))),
    }
}

/// Whether a name is safe as a part of a path everywhere.
pub(super) fn is_word(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

pub(super) fn create(
    schema: &Schema,
    s: &CreateTable,
    ctx: &DdlContext<'_>,
) -> Result<Option<DdlOutcome>, CompileError> {
    let keyspace_name = keyspace_of(&s.table, ctx)?;
    let key = check_statement(s)?;
    let Some(keyspace) = keyspace_for(schema, keyspace_name, &s.table.name, s.if_not_exists)? else {
        return Ok(None);
    };
    let table = build(keyspace, s, key, ctx)?;
    created(schema, keyspace, table, &s.options.properties).map(Some)
}

/// The keyspace in which a table of that name is to be made; None when it is there and may be.
pub(super) fn keyspace_for<'s>(
    schema: &'s Schema,
    keyspace_name: &str,
    name: &str,
    if_not_exists: bool,
) -> Result<Option<&'s Keyspace>, CompileError> {
    check_modifiable(keyspace_name, "CREATE", || format!("all tables in {keyspace_name}"))?;
    let Some(keyspace) = schema.keyspaces.get(keyspace_name) else {
        return Err(CompileError::Invalid(format!(
            "Keyspace '{keyspace_name}' doesn't exist"
        )));
    };
    match keyspace.tables.contains_key(name) {
        false => Ok(Some(keyspace)),
        true if if_not_exists => Ok(None),
        true => Err(CompileError::AlreadyExists {
            keyspace: keyspace_name.to_owned(),
            table: name.to_owned(),
        }),
    }
}

/// The schema with a new table, and what its client is warned of.
pub(super) fn created(
    schema: &Schema,
    keyspace: &Keyspace,
    table: Table,
    properties: &[Property],
) -> Result<DdlOutcome, CompileError> {
    if schema.table_by_id(table.id).is_some() {
        return Err(CompileError::Config(format!(
            "A table with id {} already exists",
            table.id.0
        )));
    }
    let warnings = options::warnings(&table.options, properties);
    Ok(DdlOutcome {
        warnings,
        ..outcome_of_table(schema, keyspace, table, ChangeKind::Created)
    })
}

/// The refusal of `MASKED WITH`. It is Cassandra's by default, where an operator may turn masking on.
pub(super) fn mask_refused() -> CompileError {
    CompileError::invalid("Cannot mask columns because dynamic data masking is not enabled")
}

/// Refuses a counter that is named by its Java class: only the type `counter` makes a table of counters.
fn check_counter_names(keyspace: &str, s: &CreateTable, columns: &[Column]) -> Result<(), CompileError> {
    let is_counter = |name: &str| columns.iter().any(|c| c.name == name && c.cql_type == CqlType::Counter);
    let by_class = |c: &&ColumnDefinition| matches!(c.type_name, TypeName::Custom(_)) && is_counter(&c.name);
    match s.columns.iter().find(by_class) {
        None => Ok(()),
        Some(c) => Err(CompileError::Config(format!(
            "{keyspace}.{}: Cannot have a counter column (\"{}\") in a non counter table",
            s.table.name, c.name
        ))),
    }
}

/// What is wrong whatever the schema is. Returns the primary key.
fn check_statement(s: &CreateTable) -> Result<&PrimaryKey, CompileError> {
    if s.columns.iter().any(|c| c.mask.is_some()) {
        return Err(mask_refused());
    }
    let table = &s.table.name;
    if let Some(name) = first_duplicate(s.columns.iter().map(|c| c.name.as_str())) {
        return Err(CompileError::Invalid(format!(
            "Duplicate column '{name}' declaration for table '{table}'"
        )));
    }
    if let Some(name) = first_duplicate(s.options.clustering_order.iter().map(|o| o.column.as_str())) {
        return Err(CompileError::Invalid(format!(
            "Duplicate column '{name}' in CLUSTERING ORDER BY clause for table '{table}'"
        )));
    }
    s.columns
        .iter()
        .try_for_each(|column| check_column_name(&column.name))?;
    if s.columns.len() > usize::from(COLUMNS_MAX) {
        return Err(CompileError::Invalid(format!(
            "A table has at most {COLUMNS_MAX} columns (got {})",
            s.columns.len()
        )));
    }
    match s.primary_keys.as_slice() {
        [key] => Ok(key),
        [] => Err(CompileError::Invalid(format!(
            "No PRIMARY KEY specifed for table '{table}' (exactly one required)"
        ))),
        _ => Err(CompileError::Invalid(format!(
            "Multiple PRIMARY KEY specified for table '{table}' (exactly one required)"
        ))),
    }
}

fn build(of: &Keyspace, s: &CreateTable, key: &PrimaryKey, ctx: &DdlContext<'_>) -> Result<Table, CompileError> {
    let (keyspace, name) = (of.name.as_str(), &s.table.name);
    let (table_options, id) = options::create(&s.options.properties, ctx.has_tombstone_gc && of.has_tablets())?;
    options::check_tablets(of, &s.options.properties, &table_options)?;
    let mut types: BTreeMap<&str, (CqlType, bool)> = BTreeMap::new();
    for c in &s.columns {
        types.insert(&c.name, (column_type(of, &c.type_name)?, c.is_static));
    }
    let columns = columns(s, key, types)?;
    let (columns, compact) = match s.options.compact_storage {
        true => compact::columns(columns).map(|(columns, compact)| (columns, Some(compact)))?,
        false => (columns, None),
    };
    if columns.iter().any(|c| c.cql_type == CqlType::Counter) {
        check_counter_names(keyspace, s, &columns)?;
        let mixed =
            |c: &Column| matches!(c.kind, ColumnKind::Regular | ColumnKind::Static) && c.cql_type != CqlType::Counter;
        if columns.iter().any(mixed) {
            return Err(CompileError::invalid(
                "Cannot mix counter and non counter columns in the same table",
            ));
        }
        options::check_counter_ttl(&table_options)?;
    }
    check_name(keyspace, name)?;
    options::validate(&table_options)?;
    let mut table = Table {
        compact,
        ..Table::new(
            keyspace,
            name,
            TableId(id.unwrap_or(ctx.new_id)),
            columns,
            table_options,
        )
    };
    row_ttl::declare(&mut table, &s.columns)?;
    Ok(table)
}

pub(super) fn check_name(keyspace: &str, name: &str) -> Result<(), CompileError> {
    let refused = |why: String| {
        Err(CompileError::Config(format!(
            "{keyspace}.{name}: Table name must not be {why}"
        )))
    };
    if !is_word(name) {
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

fn column_type(keyspace: &Keyspace, name: &TypeName) -> Result<CqlType, CompileError> {
    let cql_type = column_types::resolve(keyspace, name)?;
    match column_types::has_nested_collection(&cql_type) {
        true => Err(CompileError::invalid(
            "Non-frozen UDTs with nested non-frozen collections are not supported",
        )),
        false => Ok(cql_type),
    }
}

/// The columns in key order, those outside the key by name.
fn columns(
    s: &CreateTable,
    key: &PrimaryKey,
    mut types: BTreeMap<&str, (CqlType, bool)>,
) -> Result<Vec<Column>, CompileError> {
    let mut columns = Vec::with_capacity(s.columns.len());
    let descending = descending(s, key);
    let parts = key.partition.iter().map(|c| (c, ColumnKind::PartitionKey)).enumerate();
    let rest = key.clustering.iter().map(|c| (c, ColumnKind::Clustering)).enumerate();
    for (position, (name, kind)) in parts.chain(rest) {
        if columns.iter().any(|c: &Column| c.name == *name) {
            return Err(CompileError::Invalid(format!(
                "Duplicate column '{name}' in PRIMARY KEY clause for table '{}'",
                s.table.name
            )));
        }
        let Some((cql_type, is_static)) = types.remove(name.as_str()) else {
            return Err(CompileError::Invalid(format!(
                "Unknown column '{name}' referenced in PRIMARY KEY for table '{}'",
                s.table.name
            )));
        };
        check_key_type(name, &cql_type)?;
        if is_static {
            return Err(CompileError::Invalid(format!(
                "Static column '{name}' cannot be part of the PRIMARY KEY"
            )));
        }
        columns.push(Column {
            name: name.clone(),
            cql_type,
            kind,
            position: u16::try_from(position).expect("key columns are distinct, and COLUMNS_MAX bounds them"),
            descending: kind == ColumnKind::Clustering && descending.contains(&name.as_str()),
            id: ColumnId(u16::MAX),
        });
    }
    let is_compact = s.options.compact_storage;
    if !is_compact && key.clustering.is_empty() && types.values().any(|(_, is_static)| *is_static) {
        return Err(static_without_clustering());
    }
    check_clustering_order(s, key)?;
    columns.extend(types.into_iter().map(|(name, (cql_type, is_static))| Column {
        name: name.to_owned(),
        cql_type,
        kind: if is_static {
            ColumnKind::Static
        } else {
            ColumnKind::Regular
        },
        position: 0,
        descending: false,
        id: ColumnId(u16::MAX),
    }));
    Ok(columns)
}

pub(super) fn static_without_clustering() -> CompileError {
    CompileError::invalid(
        "Static columns are only useful (and thus allowed) if the table has at least one clustering column",
    )
}

fn check_key_type(name: &str, t: &CqlType) -> Result<(), CompileError> {
    if t.is_multi_cell() {
        let (what, t) = match t {
            CqlType::Udt(udt) => ("user-defined", format!("\"{}.{}\"", udt.keyspace, udt.name)),
            _ => ("collection", t.to_string()),
        };
        return Err(CompileError::Invalid(format!(
            "Invalid non-frozen {what} type {t} for PRIMARY KEY column '{name}'"
        )));
    }
    let kind = match t {
        CqlType::Counter => "counter",
        t if column_types::has_duration(t) => "duration",
        _ => return Ok(()),
    };
    Err(CompileError::Invalid(format!(
        "{kind} type is not supported for PRIMARY KEY column '{name}'"
    )))
}

fn descending<'a>(s: &'a CreateTable, key: &PrimaryKey) -> Vec<&'a str> {
    let order = s.options.clustering_order.iter();
    order
        .filter(|o| o.descending && key.clustering.contains(&o.column))
        .map(|o| o.column.as_str())
        .collect()
}

fn check_clustering_order(s: &CreateTable, key: &PrimaryKey) -> Result<(), CompileError> {
    let order = &s.options.clustering_order;
    let strangers: Vec<&str> = order
        .iter()
        .map(|o| o.column.as_str())
        .filter(|c| !key.clustering.iter().any(|k| k == c))
        .collect();
    if !strangers.is_empty() {
        return Err(CompileError::Invalid(format!(
            "Only clustering key columns can be defined in CLUSTERING ORDER directive: [{}] are not clustering columns",
            strangers.join(", ")
        )));
    }
    for (o, column) in order.iter().zip(&key.clustering) {
        if o.column != *column {
            return Err(CompileError::Invalid(if order.iter().any(|o| o.column == *column) {
                format!(
                    "The order of columns in the CLUSTERING ORDER directive must match that of the clustering columns \
                     ({column} must appear before {})",
                    o.column
                )
            } else {
                format!("Missing CLUSTERING ORDER for column {column}")
            }));
        }
    }
    Ok(())
}

/// The table that a statement changes, with its keyspace; None when the statement takes it as well that there is none.
pub(super) fn existing_table<'s>(
    schema: &'s Schema,
    table: &QualifiedName,
    if_exists: bool,
    verb: &str,
    ctx: &DdlContext<'_>,
) -> Result<Option<(&'s Keyspace, &'s Table)>, CompileError> {
    let keyspace_name = keyspace_of(table, ctx)?;
    let name = &table.name;
    check_modifiable(keyspace_name, verb, || format!("table {keyspace_name}.{name}"))?;
    let keyspace = schema.keyspaces.get(keyspace_name);
    let found = keyspace.and_then(|keyspace| Some((&**keyspace, &**keyspace.tables.get(name)?)));
    if found.is_none() && !if_exists {
        return Err(CompileError::Invalid(format!(
            "Table '{keyspace_name}.{name}' doesn't exist"
        )));
    }
    Ok(found)
}

pub(super) fn drop(schema: &Schema, s: &DropTable, ctx: &DdlContext<'_>) -> Result<Option<DdlOutcome>, CompileError> {
    let Some((keyspace, table)) = existing_table(schema, &s.table, s.if_exists, "DROP", ctx)? else {
        return Ok(None);
    };
    let mut next = Keyspace::clone(keyspace);
    next.tables.remove(&table.name);
    let change = SchemaChange::Table {
        change: ChangeKind::Dropped,
        keyspace: table.keyspace.clone(),
        table: table.name.clone(),
    };
    Ok(Some(DdlOutcome {
        dropped_tables: vec![table.id],
        ..outcome(schema, &table.keyspace, Some(next), change)
    }))
}
