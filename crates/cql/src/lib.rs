//! CQL: text to syntax tree and back.
//!
//! ```
//! let parsed = cql::parse("SELECT name FROM users WHERE id = ? AND since > :since").expect("a valid statement");
//! assert_eq!(parsed.bind_markers, [None, Some("since".to_owned())]);
//! ```
//!
//! The language is that of Apache Cassandra 4.1 to 5.0, with ScyllaDB's `BYPASS CACHE`, `USING TIMEOUT`, local
//! secondary indexes and `REDUCEFUNC`. A tree says what was written; the caller, with the schema, decides whether its
//! names exist and its values fit. No text makes this crate panic, recurse deeper than [`NESTING_MAX`] levels, or use
//! memory beyond a small multiple of its length.

pub mod ast;
mod ast_auth;
mod ast_schema;
mod display;
mod error;
#[doc(hidden)]
pub mod fuzz;
mod keyword;
mod lexer;
mod parser;
mod quote;
mod script;

use ast::{Statement, TypeName};
pub use error::SyntaxError;
pub use parser::NESTING_MAX;
pub use quote::{quote_identifier, quote_string};
pub use script::split_statements;

/// The longest text that is read at all. Servers refuse far shorter ones.
pub const TEXT_BYTES_MAX: usize = 1 << 30;

/// A statement and the bind markers in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// The statement.
    pub statement: Statement,
    /// The name of each variable, in the order in which the text first has them; `None` for `?`.
    pub bind_markers: Vec<Option<String>>,
}

/// What `:name` written twice in one statement means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Variables {
    /// One variable, bound once, as in ScyllaDB.
    #[default]
    ByName,
    /// A variable for each place, as in Cassandra.
    ByPlace,
}

/// The words and symbols of a statement, without blanks, comments and semicolons. A text of more than
/// [`TEXT_BYTES_MAX`] bytes has none.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    let text = if text.len() > TEXT_BYTES_MAX { "" } else { text };
    let is_word = |token: &lexer::Token| token.kind != lexer::TokenKind::Semicolon && token.start < token.end;
    let words = lexer::tokenize(text).into_iter().filter(is_word);
    words.filter_map(|token| text.get(token.start as usize..token.end as usize))
}

/// Reads one statement; semicolons may follow it. Equal names of bind markers are one variable.
pub fn parse(text: &str) -> Result<Parsed, SyntaxError> {
    parse_with(text, Variables::default())
}

/// Reads one statement, as [`parse`], with that meaning of equal names.
pub fn parse_with(text: &str, variables: Variables) -> Result<Parsed, SyntaxError> {
    parser::parse_statement(text, variables)
}

/// Reads a script: statements separated by semicolons. Places of errors are those in the whole text.
pub fn parse_many(text: &str) -> Result<Vec<Parsed>, SyntaxError> {
    parser::parse_many(text)
}

/// Reads a type, such as `map<text, frozen<list<int>>>`.
pub fn parse_type(text: &str) -> Result<TypeName, SyntaxError> {
    parser::parse_type(text)
}
