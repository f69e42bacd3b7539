//! Statements that change the schema, as definitions.
//!
//! [`compile_ddl`] resolves the names, types and values of a statement against a schema; [`ddl::apply`] checks what
//! comes of it and makes the next schema. Faults of the statement itself are refused here, in the words that users of
//! Cassandra 4.1 know. Where Cassandra looks at the schema before it reads the rest of a statement, so does this, by
//! the checks of `ddl`.

mod function;
mod index;
mod keyspace;
mod options;
mod properties;
mod table;
mod types;
mod user_type;

use cql::ast::{QualifiedName, Statement};
use ddl::{Definition, NameInKeyspace};
use schema::Schema;

use crate::error::CompileError;

/// What the compilation of a statement that changes the schema needs besides the schema and the statement.
#[derive(Clone, Copy, Debug)]
pub struct DdlContext<'a> {
    /// The keyspace in use.
    pub keyspace: Option<&'a str>,
    /// Wall clock, microseconds since the epoch.
    pub now_us: i64,
}

/// Makes a definition of a statement that changes the schema. None: IF EXISTS or IF NOT EXISTS makes it do nothing.
///
/// # Errors
/// When the statement is wrong whatever it is applied to, names types that the schema does not have, or is none that
/// changes the schema.
pub fn compile_ddl(
    schema: &Schema,
    statement: &Statement,
    ctx: &DdlContext<'_>,
) -> Result<Option<Definition>, CompileError> {
    match statement {
        Statement::CreateKeyspace(s) => keyspace::create(s).map(Some),
        Statement::AlterKeyspace(s) => keyspace::alter(s).map(Some),
        Statement::DropKeyspace(s) => Ok(Some(keyspace::drop(s))),
        Statement::CreateTable(s) => table::create(schema, s, ctx),
        Statement::CreateTableLike(s) => table::create_like(s, ctx).map(Some),
        Statement::AlterTable(s) => table::alter(schema, s, ctx),
        Statement::DropTable(s) => table::drop(s, ctx).map(Some),
        Statement::CreateType(s) => user_type::create(schema, s, ctx),
        Statement::AlterType(s) => user_type::alter(schema, s, ctx),
        Statement::DropType(s) => user_type::drop(s, ctx).map(Some),
        Statement::CreateIndex(s) => index::create(s, ctx).map(Some),
        Statement::DropIndex(s) => index::drop(s, ctx).map(Some),
        Statement::DropMaterializedView(s) => absent("Materialized view", &s.name, s.if_exists, ctx),
        Statement::AlterMaterializedView(s) => absent("Materialized view", &s.name, s.if_exists, ctx),
        Statement::CreateFunction(s) => function::create_function(schema, s, ctx).map(Some),
        Statement::DropFunction(s) => function::drop_function(schema, s, ctx).map(Some),
        Statement::CreateAggregate(s) => function::create_aggregate(schema, s, ctx).map(Some),
        Statement::DropAggregate(s) => function::drop_aggregate(schema, s, ctx).map(Some),
        Statement::DropTrigger(s) if s.if_exists => Ok(None),
        Statement::DropTrigger(s) => Err(CompileError::Invalid(format!(
            "Trigger '{}' on '{}.{}' doesn't exist",
            s.name,
            keyspace_of(&s.table, ctx)?,
            s.table.name
        ))),
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

/// The answer of a statement about what no schema has yet.
fn absent(
    what: &str,
    name: &QualifiedName,
    if_exists: bool,
    ctx: &DdlContext<'_>,
) -> Result<Option<Definition>, CompileError> {
    let keyspace = keyspace_of(name, ctx)?;
    if if_exists {
        return Ok(None);
    }
    Err(CompileError::Invalid(format!(
        "{what} '{keyspace}.{}' doesn't exist",
        name.name
    )))
}

/// The keyspace that a name is in: its own, or the one in use.
fn keyspace_of<'a>(name: &'a QualifiedName, ctx: &DdlContext<'a>) -> Result<&'a str, CompileError> {
    name.keyspace.as_deref().or(ctx.keyspace).ok_or_else(|| {
        CompileError::invalid(
            "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename",
        )
    })
}

/// The full name of what a statement names.
fn full_name(name: &QualifiedName, ctx: &DdlContext<'_>) -> Result<NameInKeyspace, CompileError> {
    Ok(NameInKeyspace {
        keyspace: keyspace_of(name, ctx)?.to_owned(),
        name: name.name.clone(),
    })
}

#[cfg(test)]
mod tests;
