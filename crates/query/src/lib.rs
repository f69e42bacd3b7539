//! Statements to plans, plans to results.
//!
//! A statement is parsed once, checked against one schema and compiled into a plan that names its table, columns and
//! key parts by number; execution binds values to it. This crate does not know which protocol asked.

mod bind;
pub mod ddl;
pub mod describe;
pub mod engine;
mod error;
mod function;
mod operand;
pub mod restrict;
mod row;
pub mod select;
pub mod selection;
pub mod system;
mod term;
pub mod write;

pub use bind::{BindContext, Bound, Evaluated, MarkerSpec, ResultColumn};
pub use engine::{Engine, Execution, NodeState, Outcome, OwnedBound, Page, Params, Plan, Prepared};
pub use error::QueryError;
pub use function::decode_json_row;
pub use row::Row;
pub use term::{InOperand, Markers, Operand, Receiver, compile_in, compile_term, compile_term_of_table};

/// A consistency level, and how requests end that replicas do not answer as it wants.
pub use coordinator::{Confirmation, CoordinatorError, Operation, ReadDone, WriteDone, WriteKind};
pub use topology::Consistency as Level;
