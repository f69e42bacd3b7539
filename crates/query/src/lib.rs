//! The engine: executes plans over the shards of a node and over the cluster.
//!
//! A [`plan::Plan`] comes from a front end, by way of the CQL compiler or built by hand; its rows go into the front
//! end's [`plan::RowSink`]. This crate does not know which protocol asked.

pub mod engine;
mod error;
pub mod guardrails;

#[doc(hidden)]
pub use engine::fuzz;

/// What is recorded of a table's requests on a shard.
pub use coordinator::Recorded;
pub use coordinator::trace;
pub use cql::Variables;
pub use cql_compiler::Dialect;
pub use cql_compiler::{MarkerSpec, Statement, describe};
pub use engine::{Engine, ExpiredRows, NodeState, Outcome, Page, PointOutcome, Prepared, Request};
pub use error::QueryError;
pub use plan::restrict::NullRule;
pub use plan::{BindContext, Bound, Execution, OwnedBound, Plan, ResultColumn, ValueRows};

/// A consistency level, and how requests end that replicas do not answer as it wants.
pub use coordinator::{Confirmation, CoordinatorError, Logged, Operation, ReadDone, Unsynced, WriteDone, WriteKind};
pub use topology::Consistency as Level;
