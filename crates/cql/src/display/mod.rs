//! Trees printed as canonical CQL: `parse(tree.to_string())` gives the tree again.
//!
//! Keywords are upper case, names are quoted when they must be, and clauses are in the order of the grammar. Where a
//! name could be taken for a word of the grammar in its position, it is quoted although it is not reserved.

mod auth;
mod describe;
mod modify;
mod schema;
mod select;
mod term;

use std::fmt::{self, Display, Formatter};

use crate::ast::{QualifiedName, Statement};
use crate::quote::quote_identifier;

impl Display for Statement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Statement::Select(statement) => statement.fmt(f),
            Statement::Insert(statement) => statement.fmt(f),
            Statement::Update(statement) => statement.fmt(f),
            Statement::Delete(statement) => statement.fmt(f),
            Statement::Batch(statement) => statement.fmt(f),
            Statement::Truncate(statement) => statement.fmt(f),
            Statement::Use(statement) => statement.fmt(f),
            Statement::CreateKeyspace(statement) => statement.fmt(f),
            Statement::AlterKeyspace(statement) => statement.fmt(f),
            Statement::DropKeyspace(statement) => statement.fmt(f),
            Statement::CreateTable(statement) => statement.fmt(f),
            Statement::CreateTableLike(statement) => statement.fmt(f),
            Statement::AlterTable(statement) => statement.fmt(f),
            Statement::DropTable(statement) => statement.fmt(f),
            Statement::CreateType(statement) => statement.fmt(f),
            Statement::AlterType(statement) => statement.fmt(f),
            Statement::DropType(statement) => statement.fmt(f),
            Statement::CreateIndex(statement) => statement.fmt(f),
            Statement::DropIndex(statement) => statement.fmt(f),
            Statement::CreateMaterializedView(statement) => statement.fmt(f),
            Statement::AlterMaterializedView(statement) => statement.fmt(f),
            Statement::DropMaterializedView(statement) => statement.fmt(f),
            Statement::CreateFunction(statement) => statement.fmt(f),
            Statement::DropFunction(statement) => statement.fmt(f),
            Statement::CreateAggregate(statement) => statement.fmt(f),
            Statement::DropAggregate(statement) => statement.fmt(f),
            Statement::CreateTrigger(statement) => statement.fmt(f),
            Statement::DropTrigger(statement) => statement.fmt(f),
            Statement::CreateRole(statement) => statement.fmt(f),
            Statement::AlterRole(statement) => statement.fmt(f),
            Statement::DropRole(statement) => statement.fmt(f),
            Statement::CreateUser(statement) => statement.fmt(f),
            Statement::AlterUser(statement) => statement.fmt(f),
            Statement::DropUser(statement) => statement.fmt(f),
            Statement::AddIdentity(statement) => statement.fmt(f),
            Statement::DropIdentity(statement) => statement.fmt(f),
            Statement::Grant(statement) => statement.fmt(f),
            Statement::Revoke(statement) => statement.fmt(f),
            Statement::GrantRole(statement) => statement.fmt(f),
            Statement::RevokeRole(statement) => statement.fmt(f),
            Statement::ListPermissions(statement) => statement.fmt(f),
            Statement::ListRoles(statement) => statement.fmt(f),
            Statement::ListUsers => f.write_str("LIST USERS"),
            Statement::ListSuperusers => f.write_str("LIST SUPERUSERS"),
            Statement::Describe(statement) => statement.fmt(f),
        }
    }
}

impl Display for QualifiedName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(keyspace) = &self.keyspace {
            write!(f, "{}.", quote_identifier(keyspace))?;
        }
        f.write_str(&quote_identifier(&self.name))
    }
}

/// A name in the place of an argument of `write!`.
struct Name<'a>(&'a str);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&quote_identifier(self.0))
    }
}

/// Items with a separator between them.
fn separated<T>(
    f: &mut Formatter<'_>,
    separator: &str,
    items: &[T],
    mut write: impl FnMut(&mut Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(separator)?;
        }
        write(f, item)?;
    }
    Ok(())
}

/// `a, b`
fn list<T: Display>(f: &mut Formatter<'_>, items: &[T]) -> fmt::Result {
    separated(f, ", ", items, |f, item| item.fmt(f))
}

/// Names as `a, b`.
fn names(f: &mut Formatter<'_>, items: &[String]) -> fmt::Result {
    separated(f, ", ", items, |f, name| Name(name).fmt(f))
}

/// Brackets, such as `()`, around what a function writes.
fn bracketed(
    f: &mut Formatter<'_>,
    brackets: &str,
    write: impl FnOnce(&mut Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    let (open, close) = brackets.split_at(1);
    f.write_str(open)?;
    write(f)?;
    f.write_str(close)
}

/// `{key: value, key: value}`
fn entries_of<K: Display, V: Display>(f: &mut Formatter<'_>, entries: &[(K, V)]) -> fmt::Result {
    bracketed(f, "{}", |f| {
        separated(f, ", ", entries, |f, (key, value)| write!(f, "{key}: {value}"))
    })
}

/// `{field: value, field: value}`
fn fields_of<V: Display>(f: &mut Formatter<'_>, fields: &[(String, V)]) -> fmt::Result {
    bracketed(f, "{}", |f| {
        separated(f, ", ", fields, |f, (field, value)| {
            write!(f, "{}: {value}", Name(field))
        })
    })
}

/// ` WITH a AND b`, or nothing when there are no items.
fn conjunction<T: Display>(f: &mut Formatter<'_>, word: &str, items: &[T]) -> fmt::Result {
    if items.is_empty() {
        return Ok(());
    }
    write!(f, " {word} ")?;
    separated(f, " AND ", items, |f, item| item.fmt(f))
}

/// The text when the condition holds.
fn when(condition: bool, text: &str) -> &str {
    if condition { text } else { "" }
}

/// A clause of one value, with a space before it, when there is a value.
fn clause(f: &mut Formatter<'_>, words: &str, value: Option<&dyn Display>) -> fmt::Result {
    match value {
        Some(value) => write!(f, " {words} {value}"),
        None => Ok(()),
    }
}

/// A value that may be missing, as [`clause`] takes it.
fn maybe<T: Display>(value: &Option<T>) -> Option<&dyn Display> {
    value.as_ref().map(|value| value as &dyn Display)
}
