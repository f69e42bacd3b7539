//! Statements to plans, plans to results.
//!
//! A statement is parsed once, checked against one schema and compiled into a plan that names its table, columns and
//! key parts by number; execution binds values to it. This crate does not know which protocol asked.

mod bind;
pub mod ddl;
pub mod describe;
mod error;
mod row;
pub mod system;

pub use bind::{BindContext, Bound, Evaluated, MarkerSpec, ResultColumn};
pub use error::QueryError;
pub use row::Row;
