//! Reads and writes as values: what a front end builds, and what the engine executes.
//!
//! A plan names its table's columns by position and id, and holds values in the serialised form that the table stores.
//! It is built once, which checks it against its table, and executed many times, each time with the values of an
//! [`Execution`]. A plan knows no language and no protocol: the CQL compiler builds plans from syntax trees, and Rust
//! code builds the same plans by hand.
//!
//! - [`SelectPlan`]: which rows ([`restrict`]), what of each row or group of rows ([`selection`]), in what order, how
//!   many.
//! - [`WritePlan`]: which rows, which changes, under which conditions ([`write`]). It packs mutations.
//! - [`BatchPlan`]: several writes at one moment.
//! - [`RowSink`]: where result rows go.

mod batch;
mod bind;
pub mod encoding;
mod error;
pub mod function;
mod operand;
pub mod restrict;
mod row;
mod select;
pub mod selection;
mod sink;
mod timeout;
pub mod write;

use std::sync::Arc;

pub use batch::{BatchKind, BatchPlan};
pub use bind::{BindContext, Bound, BoundValues, Evaluated, Execution, OwnedBound, ResultColumn};
pub use error::{FunctionFailure, PlanError};
pub use operand::{InOperand, Operand};
pub use row::{Row, key_component, put_collection};
pub use select::{PointKey, PointSource, Select, SelectPlan};
pub use selection::Selection;
pub use sink::{PageSink, RowSink, ValueRows};
pub use timeout::own_timeout;
pub use write::{Write, WritePlan};

/// What the engine executes.
#[derive(Clone, Debug)]
pub enum Plan {
    /// Reads.
    Select(Arc<SelectPlan>),
    /// Writes.
    Write(Arc<WritePlan>),
    /// Writes several times at one moment.
    Batch(Arc<BatchPlan>),
    /// Writes to a virtual table.
    VirtualWrite(Arc<WritePlan>),
}

impl Plan {
    /// Whether it writes only if a condition holds.
    #[inline]
    pub fn is_conditional(&self) -> bool {
        match self {
            Self::Select(_) | Self::VirtualWrite(_) => false,
            Self::Write(write) => write.is_conditional(),
            Self::Batch(batch) => batch.writes.iter().any(|write| write.is_conditional()),
        }
    }
}
