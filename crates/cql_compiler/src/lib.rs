//! CQL statements to plans, and to definitions and descriptions of the schema.
//!
//! A statement is parsed, checked against one schema and compiled: reads and writes into a [`plan::Plan`], which names
//! its table and columns by number. Statements that change or describe the schema stay syntax trees until they are
//! executed; then [`compile_ddl`] makes a [`ddl::Definition`] of one, and [`describe::describe`] the rows of a
//! description. Everything here is a function of text, schema and arguments: no clock, no task, no file.

mod definition;
pub mod describe;
mod describe_function;
mod error;
mod fragments;
mod function_call;
#[doc(hidden)]
pub mod fuzz;
mod literal;
pub mod restrict;
mod select;
mod selection;
mod statement;
mod term;
mod text;
mod type_name;
mod write;

pub use definition::{DdlContext, compile_ddl};
pub use error::CompileError;
pub use select::compile_select;
pub use selection::compile_selection;
pub use statement::{Compiled, Dialect, Statement, compile, compile_with};
pub use term::{MarkerSpec, Markers, Receiver, compile_in, compile_term, compile_term_of_table};
pub use write::{compile_delete, compile_insert, compile_update};
