//! PartiQL: the statements of ExecuteStatement and its siblings, made into the expressions that the other operations
//! use ("PartiQL - a SQL-compatible query language for Amazon DynamoDB" of the developer guide).
//!
//! ```text
//! SELECT *|paths FROM table[.index] [WHERE condition] [ORDER BY key [ASC|DESC], ...]
//! INSERT INTO table VALUE {'name': value, ...}
//! UPDATE table (SET path = value | REMOVE path)... WHERE condition [RETURNING ALL|MODIFIED OLD|NEW *]
//! DELETE FROM table WHERE condition [RETURNING ALL OLD *]
//! EXISTS (SELECT ...)
//! ```
//!
//! Comments are from `--` to the end of the line, and from `/*` to `*/`.
//!
//! A WHERE clause is one condition: a server evaluates it on each item it has read, keys included. What of it selects
//! keys is found by [`Select::access`] and [`Update::key`], with the definition of the table.

mod access;
mod parser;
mod returned;
mod token;

pub use access::Access;

use crate::arn::TableReference;
use crate::error::Error;
use crate::expression::{Condition, Projection, Update as Changes};
use crate::request::Clause;
use crate::value::{AttributeValue, Item};

/// A statement.
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    /// Reads items.
    Select(Select),
    /// Stores an item that must not be there yet.
    Insert(Insert),
    /// Changes one item that must be there.
    Update(Update),
    /// Deletes one item.
    Delete(Delete),
    /// Checks, in a transaction, that an item is there and its condition holds.
    Exists(Select),
}

/// A SELECT statement.
#[derive(Clone, PartialEq, Debug)]
pub struct Select {
    /// The table.
    pub table: TableReference,
    /// The secondary index.
    pub index: Option<String>,
    /// What is returned of items; None for all of it.
    pub projection: Option<Clause<Projection>>,
    /// Which items are returned.
    pub condition: Option<Clause<Condition>>,
    /// Keys by which items are sorted, and whether from the largest.
    pub order: Vec<(String, bool)>,
}

/// An INSERT statement.
#[derive(Clone, PartialEq, Debug)]
pub struct Insert {
    /// The table.
    pub table: TableReference,
    /// The item.
    pub item: Item,
}

/// An UPDATE statement.
#[derive(Clone, PartialEq, Debug)]
pub struct Update {
    /// The table.
    pub table: TableReference,
    /// The changes.
    pub changes: Clause<Changes>,
    /// What must hold of the item, its key included.
    pub condition: Option<Clause<Condition>>,
    /// What is returned.
    pub returning: crate::update::ReturnValues,
}

/// A DELETE statement.
#[derive(Clone, PartialEq, Debug)]
pub struct Delete {
    /// The table.
    pub table: TableReference,
    /// What must hold of the item, its key included.
    pub condition: Option<Clause<Condition>>,
    /// Whether the item is returned.
    pub returns_old: bool,
}

impl Command {
    /// The table that the statement names.
    pub fn table(&self) -> &TableReference {
        match self {
            Self::Select(select) | Self::Exists(select) => &select.table,
            Self::Insert(insert) => &insert.table,
            Self::Update(update) => &update.table,
            Self::Delete(delete) => &delete.table,
        }
    }

    /// Whether the statement writes.
    pub fn is_write(&self) -> bool {
        matches!(self, Self::Insert(_) | Self::Update(_) | Self::Delete(_))
    }
}

/// The error for a text that is no statement.
fn malformed(text: impl AsRef<str>) -> Error {
    Error::validation(["Statement wasn't well formed, can't be processed: ", text.as_ref()].concat())
}

/// Reads a statement. `parameters` are the values of its question marks, in order.
///
/// # Errors
/// A ValidationException for a text that is no statement, or another number of parameters than of question marks.
pub fn parse(text: &str, parameters: &[AttributeValue]) -> Result<Command, Error> {
    parser::parse(text, parameters)
}

/// Reads a statement of ExecuteStatement or BatchExecuteStatement.
///
/// # Errors
/// As [`parse`], and for EXISTS, which only transactions have.
pub fn parse_single(text: &str, parameters: &[AttributeValue]) -> Result<Command, Error> {
    match parse(text, parameters)? {
        Command::Exists(_) => Err(Error::validation(
            "EXISTS can only be used in ExecuteTransaction write requests.",
        )),
        command => Ok(command),
    }
}

#[cfg(test)]
mod tests;
