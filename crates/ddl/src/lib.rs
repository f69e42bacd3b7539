//! Changes of the schema: one schema and a definition in, the next schema out.
//!
//! A front end says what it asks for as a [`Definition`], a value without text and syntax tree. [`apply`] is a function
//! of its arguments: ids and the moment come from the caller, so every node that applies the same definitions in the
//! same order has the same schema, and the same [`schema_version`]. Refusals are in the words that users of Cassandra
//! 4.1 know; the order of the checks is Cassandra's too where it decides which of two errors is seen.

mod alter;
mod compact;
mod compaction;
mod compression;
mod definition;
mod difference;
mod error;
mod function;
mod index;
mod index_class;
mod keyspace;
mod option;
mod options;
mod rack_lists;
mod retry;
mod retype;
mod row_ttl;
mod table;
mod table_like;
mod type_limits;
mod unbuilt;
mod user_type;
mod version;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schema::{Keyspace, Schema, Table, TableId};
use system_tables::KeyspaceKind;
use uuid::Uuid;

pub use definition::{
    AlterKeyspace, AlterTable, AlterType, CreateAggregate, CreateFunction, CreateIndex, CreateKeyspace, CreateTable,
    CreateTableLike, CreateType, Definition, DropAggregate, DropFunction, DropIndex, DropKeyspace, DropTable, DropType,
    DroppedSignature, Existing, IndexClass, IndexTarget, KeyspaceTablets, NameInKeyspace, NewColumn, TableChange,
    TypeChange,
};
pub use difference::{SchemaDifference, schema_difference};
pub use error::DdlError;
pub use function::check_keyspace_of_functions;
pub use option::{TABLE_PROPERTIES, TableOption};
pub use options::{rate_limits, tablet_options, tombstone_gc};
pub use table::{check_new_columns, existing_table, keyspace_of_new_table, no_primary_key};
pub use user_type::{keyspace_of_new_type, type_to_alter};
pub use version::schema_version;

/// The longest name that clients are notified of, in bytes: a column, a type, a field, a function, an argument. The
/// protocol has 16 bits for its length.
const TOLD_NAME_BYTES_MAX: usize = 65_535;

/// What a schema change needs to know besides the schema and the definition.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The identity of a new table that is given none.
    pub new_id: Uuid,
    /// How many nodes each datacenter has.
    pub nodes: &'a BTreeMap<String, u32>,
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

/// The schema after a change.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// The new schema, under its new version.
    pub schema: Schema,
    /// What changed; the first is what the client that asked is answered.
    pub changes: Vec<SchemaChange>,
    /// Tables whose data can be forgotten.
    pub dropped_tables: Vec<TableId>,
    /// For the client to read.
    pub warnings: Vec<String>,
}

/// Makes the next schema. None: the schema is already as asked.
///
/// # Errors
/// When the definition does not fit the schema, or is none that a schema can have.
pub fn apply(schema: &Schema, definition: &Definition, ctx: &Context<'_>) -> Result<Option<Outcome>, DdlError> {
    match definition {
        Definition::CreateKeyspace(create) => keyspace::create(schema, create, ctx),
        Definition::AlterKeyspace(alter) => keyspace::alter(schema, alter, ctx),
        Definition::DropKeyspace(dropped) => keyspace::drop(schema, dropped),
        Definition::CreateTable(create) => table::create(schema, create, ctx),
        Definition::CreateTableLike(create) => table_like::create(schema, create, ctx),
        Definition::AlterTable(alter) => alter::alter(schema, alter),
        Definition::DropTable(dropped) => table::drop(schema, dropped),
        Definition::CreateIndex(create) => index::create(schema, create),
        Definition::DropIndex(dropped) => index::drop(schema, dropped),
        Definition::CreateType(create) => user_type::create(schema, create),
        Definition::AlterType(alter) => user_type::alter(schema, alter),
        Definition::DropType(dropped) => user_type::drop(schema, dropped),
        Definition::CreateFunction(create) => function::create_function(schema, create, ctx),
        Definition::DropFunction(dropped) => function::drop_function(schema, dropped),
        Definition::CreateAggregate(create) => function::create_aggregate(schema, create),
        Definition::DropAggregate(dropped) => function::drop_aggregate(schema, dropped),
    }
}

/// The first name that was there before. Names may be many where someone means harm.
fn first_duplicate<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = BTreeSet::new();
    names.into_iter().find(|name| !seen.insert(*name))
}

/// The keyspace of that name.
fn existing_keyspace<'s>(schema: &'s Schema, name: &str) -> Result<&'s Keyspace, DdlError> {
    let found = schema.keyspaces.get(name).map(|keyspace| &**keyspace);
    found.ok_or_else(|| DdlError::Invalid(format!("Keyspace '{name}' doesn't exist")))
}

/// Refuses to change what the node keeps for itself. `verb` and `resource` name the change.
fn check_modifiable(keyspace: &str, verb: &str, resource: impl FnOnce() -> String) -> Result<(), DdlError> {
    match system_tables::kind(keyspace) {
        None => Ok(()),
        Some(KeyspaceKind::Local) => Err(DdlError::Unauthorized(format!(
            "{keyspace} keyspace is not user-modifiable."
        ))),
        Some(KeyspaceKind::Replicated) => Err(DdlError::Unauthorized(format!("Cannot {verb} <{}>", resource()))),
    }
}

/// The outcome of replacing, adding or (with None) removing one keyspace.
fn outcome(schema: &Schema, name: &str, keyspace: Option<Keyspace>, change: SchemaChange) -> Outcome {
    let mut next = schema.clone();
    let former = schema.keyspaces.get(name).map(|keyspace| &**keyspace);
    next.version = version::version_behind(schema.version, former, keyspace.as_ref());
    match keyspace {
        Some(k) => next.keyspaces.insert(name.to_owned(), Arc::new(k)),
        None => next.keyspaces.remove(name),
    };
    Outcome {
        schema: next,
        changes: vec![change],
        dropped_tables: Vec::new(),
        warnings: Vec::new(),
    }
}

/// The outcome of replacing or adding one table.
fn outcome_of_table(schema: &Schema, keyspace: &Keyspace, table: Table, change: ChangeKind) -> Outcome {
    let change = SchemaChange::Table {
        change,
        keyspace: table.keyspace.clone(),
        table: table.name.clone(),
    };
    let mut keyspace = keyspace.clone();
    keyspace.tables.insert(table.name.clone(), Arc::new(table));
    outcome(schema, &keyspace.name.clone(), Some(keyspace), change)
}
