//! CREATE, ALTER and DROP TABLE.

use cql::ast::{
    AlterTable, ColumnDefinition, CreateTable, CreateTableLike, DropTable, Literal, PrimaryKey, TableChange, TypeName,
};
use ddl::{Definition, NewColumn};
use schema::{ColumnKind, Keyspace, Schema};
use types::CqlType;

use super::properties::first_duplicate;
use super::types::resolve;
use super::{DdlContext, full_name, options};
use crate::error::CompileError;

pub(super) fn create(
    schema: &Schema,
    s: &CreateTable,
    ctx: &DdlContext<'_>,
) -> Result<Option<Definition>, CompileError> {
    let table = full_name(&s.table, ctx)?;
    let key = check_statement(s)?;
    let Some(keyspace) = ddl::keyspace_of_new_table(schema, &table, s.if_not_exists)? else {
        return Ok(None);
    };
    let (id, options) = options::read(&s.options.properties)?;
    let columns = columns(keyspace, s, key)?;
    Ok(Some(Definition::CreateTable(ddl::CreateTable {
        table,
        if_not_exists: s.if_not_exists,
        id,
        columns,
        ttl_column: ttl_column(&s.columns)?,
        is_compact: s.options.compact_storage,
        options,
    })))
}

/// The refusal of `MASKED WITH`. It is Cassandra's by default, where an operator may turn masking on.
fn mask_refused() -> CompileError {
    CompileError::invalid("Cannot mask columns because dynamic data masking is not enabled")
}

/// What is wrong whatever the schema is. Returns the primary key.
fn check_statement(s: &CreateTable) -> Result<&PrimaryKey, CompileError> {
    if s.columns.iter().any(|c| c.mask.is_some()) {
        return Err(mask_refused());
    }
    let table = &s.table.name;
    ddl::check_new_columns(table, s.columns.iter().map(|c| c.name.as_str()))?;
    if let Some(name) = first_duplicate(s.options.clustering_order.iter().map(|o| o.column.as_str())) {
        return Err(CompileError::Invalid(format!(
            "Duplicate column '{name}' in CLUSTERING ORDER BY clause for table '{table}'"
        )));
    }
    match s.primary_keys.as_slice() {
        [key] => Ok(key),
        [] => Err(ddl::no_primary_key(table).into()),
        _ => Err(CompileError::Invalid(format!(
            "Multiple PRIMARY KEY specified for table '{table}' (exactly one required)"
        ))),
    }
}

/// The columns in key order, then those outside the key by name.
fn columns(keyspace: &Keyspace, s: &CreateTable, key: &PrimaryKey) -> Result<Vec<NewColumn>, CompileError> {
    let mut others = Vec::with_capacity(s.columns.len());
    for c in &s.columns {
        others.push(new_column(keyspace, c)?);
    }
    let mut columns = Vec::with_capacity(s.columns.len());
    let parts = key.partition.iter().map(|name| (name, ColumnKind::PartitionKey));
    let rest = key.clustering.iter().map(|name| (name, ColumnKind::Clustering));
    if let Some(name) = first_duplicate(key.partition.iter().chain(&key.clustering).map(String::as_str)) {
        return Err(CompileError::Invalid(format!(
            "Duplicate column '{name}' in PRIMARY KEY clause for table '{}'",
            s.table.name
        )));
    }
    for (name, kind) in parts.chain(rest) {
        columns.push(key_column(&mut others, name, kind, s)?);
    }
    check_clustering_order(s, key)?;
    check_counter_names(s, keyspace, &others)?;
    others.sort_by(|a, b| a.name.cmp(&b.name));
    columns.extend(others);
    Ok(columns)
}

fn new_column(keyspace: &Keyspace, c: &ColumnDefinition) -> Result<NewColumn, CompileError> {
    let kind = if c.is_static {
        ColumnKind::Static
    } else {
        ColumnKind::Regular
    };
    Ok(NewColumn::new(&c.name, resolve(keyspace, &c.type_name)?, kind))
}

/// Takes a column of the key out of all columns.
fn key_column(
    columns: &mut Vec<NewColumn>,
    name: &str,
    kind: ColumnKind,
    s: &CreateTable,
) -> Result<NewColumn, CompileError> {
    let Some(at) = columns.iter().position(|column| column.name == name) else {
        return Err(CompileError::Invalid(format!(
            "Unknown column '{name}' referenced in PRIMARY KEY for table '{}'",
            s.table.name
        )));
    };
    let column = columns.remove(at);
    if column.kind == ColumnKind::Static {
        return Err(CompileError::Invalid(format!(
            "Static column '{name}' cannot be part of the PRIMARY KEY"
        )));
    }
    let mut order = s.options.clustering_order.iter();
    let descending = kind == ColumnKind::Clustering && order.any(|o| o.descending && o.column == name);
    Ok(NewColumn {
        kind,
        descending,
        ..column
    })
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

/// Refuses a counter that is named by its Java class, outside the key: only the type `counter` makes a table of
/// counters.
fn check_counter_names(s: &CreateTable, keyspace: &Keyspace, columns: &[NewColumn]) -> Result<(), CompileError> {
    let is_counter = |name: &str| columns.iter().any(|c| c.name == name && c.cql_type == CqlType::Counter);
    let by_class = |c: &&ColumnDefinition| matches!(c.type_name, TypeName::Custom(_)) && is_counter(&c.name);
    match s.columns.iter().find(by_class) {
        None => Ok(()),
        Some(c) => Err(CompileError::Config(format!(
            "{}.{}: Cannot have a counter column (\"{}\") in a non counter table",
            keyspace.name, s.table.name, c.name
        ))),
    }
}

/// The column that is declared with `TTL`, if one is.
fn ttl_column(columns: &[ColumnDefinition]) -> Result<Option<String>, CompileError> {
    let mut declared = columns.iter().filter(|c| c.is_row_ttl);
    match (declared.next(), declared.next()) {
        (Some(column), Some(other)) => Err(CompileError::Invalid(format!(
            "Columns {} and {} are declared as TTL columns: a table has one at most",
            column.name, other.name
        ))),
        (column, _) => Ok(column.map(|column| column.name.clone())),
    }
}

pub(super) fn create_like(s: &CreateTableLike, ctx: &DdlContext<'_>) -> Result<Definition, CompileError> {
    let (id, options) = options::read(&s.properties)?;
    Ok(Definition::CreateTableLike(ddl::CreateTableLike {
        table: full_name(&s.table, ctx)?,
        if_not_exists: s.if_not_exists,
        id,
        source: full_name(&s.source, ctx)?,
        has_indexes: s.has_indexes,
        options,
    }))
}

pub(super) fn alter(schema: &Schema, s: &AlterTable, ctx: &DdlContext<'_>) -> Result<Option<Definition>, CompileError> {
    if let TableChange::AlterMask { mask: Some(_), .. } = &s.change {
        return Err(mask_refused());
    }
    let name = full_name(&s.table, ctx)?;
    let Some((keyspace, table)) = ddl::existing_table(schema, &name, s.if_exists, "ALTER")? else {
        return Ok(None);
    };
    let change = match &s.change {
        TableChange::Add { if_not_exists, columns } => {
            let is_passed_over = |c: &&ColumnDefinition| *if_not_exists && table.column(&c.name).is_some();
            let added = columns.iter().filter(|c| !is_passed_over(c));
            let added = added.map(|c| match &c.mask {
                Some(_) => Err(mask_refused()),
                None => new_column(keyspace, c),
            });
            ddl::TableChange::Add {
                if_not_exists: *if_not_exists,
                columns: added.collect::<Result<_, _>>()?,
                ttl_column: ttl_column(columns)?,
            }
        }
        TableChange::Drop {
            if_exists,
            columns,
            timestamp,
        } => ddl::TableChange::Drop {
            if_exists: *if_exists,
            columns: columns.clone(),
            dropped_at_us: drop_time(timestamp.as_ref(), ctx)?,
        },
        TableChange::Rename { if_exists, columns } => ddl::TableChange::Rename {
            if_exists: *if_exists,
            columns: columns.clone(),
        },
        TableChange::Properties(properties) => match options::read(properties)? {
            (None, options) => ddl::TableChange::Options(options),
            (Some(_), _) => return Err(CompileError::Config("Cannot alter table id.".to_owned())),
        },
        TableChange::AlterType {
            if_exists,
            column,
            type_name,
        } => ddl::TableChange::Type {
            if_exists: *if_exists,
            column: column.clone(),
            cql_type: resolve(keyspace, type_name)?,
        },
        TableChange::AlterMask { if_exists, column, .. } => {
            if *if_exists || table.column(column).is_some() {
                return Ok(None);
            }
            return Err(CompileError::Invalid(format!(
                "Column with name '{column}' doesn't exist on table '{}'",
                table.name
            )));
        }
        TableChange::DropCompactStorage => ddl::TableChange::DropCompactStorage,
        TableChange::RowTtl(column) => ddl::TableChange::TtlColumn(column.clone()),
    };
    Ok(Some(Definition::AlterTable(ddl::AlterTable {
        table: name,
        if_exists: s.if_exists,
        change,
    })))
}

fn drop_time(timestamp: Option<&Literal>, ctx: &DdlContext<'_>) -> Result<i64, CompileError> {
    let Some(literal) = timestamp else {
        return Ok(ctx.now_us);
    };
    literal
        .text
        .parse()
        .map_err(|_| CompileError::Invalid(format!("Invalid timestamp {} of dropped columns", literal.text)))
}

pub(super) fn drop(s: &DropTable, ctx: &DdlContext<'_>) -> Result<Definition, CompileError> {
    Ok(Definition::DropTable(ddl::DropTable {
        table: full_name(&s.table, ctx)?,
        if_exists: s.if_exists,
    }))
}
