//! Several writes at one moment.

use std::sync::Arc;
use std::time::Duration;

use stdx::LongVec;

use crate::{BindContext, Evaluated, Operand, PlanError, WritePlan, own_timeout};

/// What a batch promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchKind {
    /// All of its writes or none.
    Logged,
    /// Nothing beyond its writes.
    Unlogged,
    /// Additions to counters.
    Counter,
}

/// Several writes at one moment.
#[derive(Debug)]
pub struct BatchPlan {
    /// What it promises.
    pub kind: BatchKind,
    /// The write timestamp of all of them, a bigint; None for the one of the request.
    pub timestamp: Option<Operand>,
    /// How long its client waits, a duration; None for the shortest that one of its writes says.
    pub timeout: Option<Operand>,
    /// The writes.
    pub writes: LongVec<Arc<WritePlan>>,
}

impl BatchPlan {
    /// The write timestamp that the batch gives itself, if it gives one.
    ///
    /// # Errors
    /// When its term cannot be evaluated, or is no write timestamp.
    pub fn own_timestamp(&self, ctx: &BindContext<'_>) -> Result<Option<i64>, PlanError> {
        self.timestamp
            .as_ref()
            .map_or(Ok(None), |operand| write_timestamp(operand, ctx))
    }

    /// How long its client waits, if the batch itself says so.
    ///
    /// # Errors
    /// As [`own_timeout`].
    pub fn own_timeout(&self, ctx: &BindContext<'_>) -> Result<Option<Duration>, PlanError> {
        own_timeout(self.timeout.as_ref(), ctx)
    }

    /// Checks what a batch may hold.
    ///
    /// # Errors
    /// When additions to counters are among other writes, or where they may not be.
    pub fn check<'p>(
        kind: BatchKind,
        writes: impl Iterator<Item = &'p WritePlan>,
        has_timestamp: bool,
    ) -> Result<(), PlanError> {
        let (mut counters, mut others) = (false, false);
        for plan in writes {
            if plan.table.is_counter() {
                counters = true
            } else {
                others = true
            }
        }
        let why = if kind == BatchKind::Counter && has_timestamp {
            "Cannot provide custom timestamp for counter BATCH"
        } else if counters && has_timestamp {
            "Cannot provide custom timestamp for a BATCH containing counters"
        } else if kind == BatchKind::Counter && others {
            "Cannot include non-counter statement in a counter batch"
        } else if counters && others {
            "Counter and non-counter mutations cannot exist in the same batch"
        } else if kind == BatchKind::Logged && counters {
            "Cannot include a counter statement in a logged batch"
        } else {
            return Ok(());
        };
        Err(PlanError::invalid(why))
    }
}

/// The write timestamp that a term of `USING TIMESTAMP` evaluates to; `None` when it is unset.
pub(crate) fn write_timestamp(operand: &Operand, ctx: &BindContext<'_>) -> Result<Option<i64>, PlanError> {
    match operand.eval(ctx)? {
        Evaluated::Value(v) => {
            let bytes = v
                .as_ref()
                .try_into()
                .map_err(|_| PlanError::invalid("Invalid timestamp value"))?;
            match i64::from_be_bytes(bytes) {
                i64::MIN => Err(PlanError::Invalid(format!(
                    "Out of bound timestamp, must be in [{}, {}]",
                    i64::MIN + 1,
                    i64::MAX
                ))),
                timestamp => Ok(Some(timestamp)),
            }
        }
        Evaluated::Null => Err(PlanError::invalid("Invalid null value of timestamp")),
        Evaluated::Unset => Ok(None),
    }
}
