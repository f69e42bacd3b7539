//! `USING TIMEOUT`: how long a client waits for one statement.

use std::time::Duration;

use crate::{BindContext, Evaluated, Operand, PlanError};

/// The time that a statement gives itself; None where it leaves that to the node.
///
/// # Errors
/// When the value is no duration that a statement may have.
pub fn own_timeout(operand: Option<&Operand>, ctx: &BindContext<'_>) -> Result<Option<Duration>, PlanError> {
    let Some(operand) = operand else { return Ok(None) };
    let refuse = |why: &str| PlanError::invalid(format!("Invalid USING TIMEOUT: {why}"));
    let bytes = match operand.eval(ctx)? {
        Evaluated::Value(bytes) => bytes,
        Evaluated::Unset => return Ok(None),
        Evaluated::Null => return Err(refuse("expected a duration, got null")),
    };
    let duration = types::Duration::deserialize(&bytes).map_err(|e| refuse(&e.to_string()))?;
    if duration.months != 0 || duration.days != 0 {
        return Err(refuse("expected hours and what is shorter, got days or months"));
    }
    let nanoseconds = u64::try_from(duration.nanoseconds).ok().filter(|n| *n >= 1_000_000);
    let nanoseconds = nanoseconds.ok_or_else(|| refuse("expected a millisecond at least"))?;
    Ok(Some(Duration::from_nanos(nanoseconds)))
}
