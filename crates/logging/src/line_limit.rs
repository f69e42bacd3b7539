//! How many lines about one subject a shard writes, where a client could make it write one with each request.

use std::cell::Cell;
use std::time::Duration;

use runtime::Instant;

/// Lines of a period, where nothing else is said.
const LINES_MAX: u32 = 10;
const PERIOD: Duration = Duration::from_mins(1);

/// A shard's lines about one subject: so many in a period, and the rest is counted.
pub struct LineLimit {
    lines_max: u32,
    period: Duration,
    /// Logs how many lines a period left out.
    log_unlogged: fn(u32),
    period_began: Cell<Option<Instant>>,
    /// Those of the period, written or not.
    seen: Cell<u32>,
}

impl LineLimit {
    /// Ten lines in a minute. `log_unlogged` logs, when the next period begins, how many lines the last one left out.
    #[must_use]
    pub const fn new(log_unlogged: fn(u32)) -> Self {
        Self::of((LINES_MAX, PERIOD), log_unlogged)
    }

    /// So many lines in such a period.
    #[must_use]
    pub const fn of((lines_max, period): (u32, Duration), log_unlogged: fn(u32)) -> Self {
        Self {
            lines_max,
            period,
            log_unlogged,
            period_began: Cell::new(None),
            seen: Cell::new(0),
        }
    }

    /// Counts a line. Whether it may be written.
    pub fn admits(&self) -> bool {
        let now = runtime::now();
        let is_over = |began: Instant| now.saturating_duration_since(began) >= self.period;
        if self.period_began.get().is_none_or(is_over) {
            let unlogged = self.seen.replace(0).saturating_sub(self.lines_max);
            self.period_began.set(Some(now));
            if unlogged > 0 {
                (self.log_unlogged)(unlogged);
            }
        }
        self.seen.set(self.seen.get().saturating_add(1));
        self.seen.get() <= self.lines_max
    }
}
