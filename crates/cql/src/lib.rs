//! CQL text to syntax tree.

pub mod ast;
mod ast_auth;
mod ast_schema;
