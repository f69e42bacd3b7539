//! Statements that change the schema: one schema in, the next one out.
//!
//! [`apply`] is a function of its arguments: ids and the moment come from the caller, so every node that applies the
//! same statements in the same order has the same schema, and the same [`schema_version`]. Refusals are in the words
//! that users of Cassandra 4.1 know; the order of the checks is Cassandra's too where it decides which of two errors is
//! seen.

mod alter;
mod compact;
mod compaction;
mod compression;
mod difference;
mod function;
mod keyspace;
mod options;
mod properties;
mod rack_lists;
mod retry;
mod retype;
mod row_ttl;
mod table;
mod table_like;
mod types;
mod unbuilt;
mod user_type;
mod version;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cql::ast::{CreateIndex, IndexTarget, QualifiedName, Statement};
use schema::{Keyspace, Schema, Table, TableId};
use system_tables::KeyspaceKind;
use uuid::Uuid;

use crate::error::CompileError;

pub use difference::{SchemaDifference, schema_difference};
pub use options::KNOWN as TABLE_PROPERTIES;
pub(crate) use types::has_duration;
pub use version::schema_version;

/// The longest name that clients are notified of, in bytes: a column, a type, a field, a function, an argument. The
/// protocol has 16 bits for its length.
const TOLD_NAME_BYTES_MAX: usize = 65_535;

/// What a schema change needs to know besides the schema and the statement.
#[derive(Clone, Copy, Debug)]
pub struct DdlContext<'a> {
    /// The keyspace in use.
    pub keyspace: Option<&'a str>,
    /// Wall clock, microseconds since the epoch.
    pub now_us: i64,
    /// The identity of the table that a CREATE makes.
    pub new_id: Uuid,
    /// How many nodes each datacenter has.
    pub nodes: &'a BTreeMap<String, u32>,
    /// Whether all nodes know `tombstone_gc`.
    pub has_tombstone_gc: bool,
    /// Whether functions may be created (`user_defined_functions_enabled`).
    pub has_functions: bool,
    /// The racks of each datacenter that have nodes which hold data.
    pub racks: &'a BTreeMap<String, BTreeSet<String>>,
    /// Whether keyspaces with tablets list the racks of their copies (`enforce_rack_list`).
    pub lists_racks: bool,
}

/// What happened to a part of the schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeKind {
    /// It is new.
    Created,
    /// It is not as it was.
    Updated,
    /// It was dropped.
    Dropped,
}

/// A change of which clients are notified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SchemaChange {
    /// Of a keyspace.
    Keyspace {
        /// What happened.
        change: ChangeKind,
        /// To which keyspace.
        keyspace: String,
    },
    /// Of a table.
    Table {
        /// What happened.
        change: ChangeKind,
        /// The table's keyspace.
        keyspace: String,
        /// To which table.
        table: String,
    },
    /// Of a user-defined type.
    Type {
        /// What happened.
        change: ChangeKind,
        /// The type's keyspace.
        keyspace: String,
        /// To which type.
        name: String,
    },
    /// Of a user-defined function.
    Function {
        /// What happened.
        change: ChangeKind,
        /// The function's keyspace.
        keyspace: String,
        /// To which function.
        name: String,
        /// The types of its arguments.
        argument_types: Vec<String>,
    },
    /// Of a user-defined aggregate.
    Aggregate {
        /// What happened.
        change: ChangeKind,
        /// The aggregate's keyspace.
        keyspace: String,
        /// To which aggregate.
        name: String,
        /// The types of its arguments.
        argument_types: Vec<String>,
    },
}

/// The schema after a statement.
#[derive(Clone, PartialEq, Debug)]
pub struct DdlOutcome {
    /// The new schema, under its new version.
    pub schema: Schema,
    /// What changed; the first is the statement's result.
    pub changes: Vec<SchemaChange>,
    /// Tables whose data can be forgotten.
    pub dropped_tables: Vec<TableId>,
    /// For the client to read.
    pub warnings: Vec<String>,
}

/// Applies a statement that changes the schema. None: IF EXISTS or IF NOT EXISTS made it do nothing.
///
/// # Errors
/// When the statement does not fit the schema, or is none that changes it.
pub fn apply(schema: &Schema, statement: &Statement, ctx: &DdlContext<'_>) -> Result<Option<DdlOutcome>, CompileError> {
    match statement {
        Statement::CreateKeyspace(s) => keyspace::create(schema, s, ctx),
        Statement::AlterKeyspace(s) => keyspace::alter(schema, s, ctx),
        Statement::DropKeyspace(s) => keyspace::drop(schema, s),
        Statement::CreateTable(s) => table::create(schema, s, ctx),
        Statement::CreateTableLike(s) => table_like::create(schema, s, ctx),
        Statement::AlterTable(s) => alter::alter(schema, s, ctx),
        Statement::DropTable(s) => table::drop(schema, s, ctx),
        Statement::CreateType(s) => user_type::create(schema, s, ctx),
        Statement::AlterType(s) => user_type::alter(schema, s, ctx),
        Statement::DropType(s) => user_type::drop(schema, s, ctx),
        Statement::DropIndex(s) => absent("Index", &s.name, s.if_exists, ctx),
        Statement::DropMaterializedView(s) => absent("Materialized view", &s.name, s.if_exists, ctx),
        Statement::AlterMaterializedView(s) => absent("Materialized view", &s.name, s.if_exists, ctx),
        Statement::CreateFunction(s) => function::create_function(schema, s, ctx),
        Statement::DropFunction(s) => function::drop_function(schema, s, ctx),
        Statement::CreateAggregate(s) => function::create_aggregate(schema, s, ctx),
        Statement::DropAggregate(s) => function::drop_aggregate(schema, s, ctx),
        Statement::CreateIndex(s) => {
            let table = indexed_table(schema, s, ctx)?;
            Err(missing_column(table, &s.targets).unwrap_or_else(|| unsupported("CREATE INDEX")))
        }
        Statement::DropTrigger(s) => match s.if_exists {
            true => Ok(None),
            false => Err(CompileError::Invalid(format!(
                "Trigger '{}' on '{}.{}' doesn't exist",
                s.name,
                keyspace_of(&s.table, ctx)?,
                s.table.name
            ))),
        },
        other if is_about_roles(other) => Err(CompileError::Unauthorized(
            "You have to be logged in and not anonymous to perform this request".to_owned(),
        )),
        other => Err(match name_of_unsupported(other) {
            Some(name) => unsupported(name),
            None => CompileError::invalid("The statement does not change the schema"),
        }),
    }
}

fn unsupported(name: &str) -> CompileError {
    CompileError::Invalid(format!("{name} is not supported yet"))
}

/// The name of a statement that changes the schema and is not executed yet.
const fn name_of_unsupported(statement: &Statement) -> Option<&'static str> {
    match statement {
        Statement::CreateMaterializedView(_) => Some("CREATE MATERIALIZED VIEW"),
        Statement::CreateTrigger(_) => Some("CREATE TRIGGER"),
        _ => None,
    }
}

/// Whether a statement is about roles: there are none, so every client is anonymous.
const fn is_about_roles(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::CreateRole(_)
            | Statement::AlterRole(_)
            | Statement::DropRole(_)
            | Statement::CreateUser(_)
            | Statement::AlterUser(_)
            | Statement::DropUser(_)
            | Statement::AddIdentity(_)
            | Statement::DropIdentity(_)
            | Statement::Grant(_)
            | Statement::GrantRole(_)
            | Statement::Revoke(_)
            | Statement::RevokeRole(_)
            | Statement::ListPermissions(_)
            | Statement::ListRoles(_)
            | Statement::ListUsers
            | Statement::ListSuperusers
    )
}

/// The table that an index is to be of.
fn indexed_table<'s>(
    schema: &'s Schema,
    statement: &CreateIndex,
    ctx: &DdlContext<'_>,
) -> Result<&'s Table, CompileError> {
    let keyspace = keyspace_of(&statement.table, ctx)?;
    let missing = |what: &str, name: &str| CompileError::Invalid(format!("{what} '{name}' doesn't exist"));
    let found = schema
        .keyspaces
        .get(keyspace)
        .ok_or_else(|| missing("Keyspace", keyspace))?;
    let table = found.tables.get(&statement.table.name).map(|table| &**table);
    table.ok_or_else(|| missing("Table", &statement.table.name))
}

/// The refusal of an index on a column that its table does not have.
fn missing_column(table: &Table, targets: &[IndexTarget]) -> Option<CompileError> {
    let missing = targets.iter().find_map(|target| match target {
        IndexTarget::Column(name) => table.visible().all(|(_, c)| c.name != *name).then_some(name),
        _ => None,
    })?;
    Some(CompileError::undefined_column(missing, table))
}

/// The answer of a statement about what no schema has yet.
fn absent(
    what: &str,
    name: &QualifiedName,
    if_exists: bool,
    ctx: &DdlContext<'_>,
) -> Result<Option<DdlOutcome>, CompileError> {
    let keyspace = keyspace_of(name, ctx)?;
    match if_exists {
        true => Ok(None),
        false => Err(CompileError::Invalid(format!(
            "{what} '{keyspace}.{}' doesn't exist",
            name.name
        ))),
    }
}

/// The keyspace that a name is in: its own, or the one in use.
fn keyspace_of<'a>(name: &'a QualifiedName, ctx: &DdlContext<'a>) -> Result<&'a str, CompileError> {
    name.keyspace.as_deref().or(ctx.keyspace).ok_or_else(|| {
        CompileError::invalid(
            "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename",
        )
    })
}

/// Refuses to change what the node keeps for itself. `verb` and `resource` name the change.
fn check_modifiable(keyspace: &str, verb: &str, resource: impl FnOnce() -> String) -> Result<(), CompileError> {
    match system_tables::kind(keyspace) {
        None => Ok(()),
        Some(KeyspaceKind::Local) => Err(CompileError::Unauthorized(format!(
            "{keyspace} keyspace is not user-modifiable."
        ))),
        Some(KeyspaceKind::Replicated) => Err(CompileError::Unauthorized(format!("Cannot {verb} <{}>", resource()))),
    }
}

/// The outcome of replacing, adding or (with None) removing one keyspace.
fn outcome(schema: &Schema, name: &str, keyspace: Option<Keyspace>, change: SchemaChange) -> DdlOutcome {
    let mut next = schema.clone();
    let former = schema.keyspaces.get(name).map(|keyspace| &**keyspace);
    next.version = version::version_behind(schema.version, former, keyspace.as_ref());
    match keyspace {
        Some(k) => next.keyspaces.insert(name.to_owned(), Arc::new(k)),
        None => next.keyspaces.remove(name),
    };
    DdlOutcome {
        schema: next,
        changes: vec![change],
        dropped_tables: Vec::new(),
        warnings: Vec::new(),
    }
}

/// The outcome of replacing or adding one table.
fn outcome_of_table(schema: &Schema, keyspace: &Keyspace, table: Table, change: ChangeKind) -> DdlOutcome {
    let change = SchemaChange::Table {
        change,
        keyspace: table.keyspace.clone(),
        table: table.name.clone(),
    };
    let mut keyspace = keyspace.clone();
    keyspace.tables.insert(table.name.clone(), Arc::new(table));
    outcome(schema, &keyspace.name.clone(), Some(keyspace), change)
}
