//! What an operator and the node steer running jobs with: stop, and how many bytes a second.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use runtime::Instant;

/// Shared by those who steer and the jobs that obey. A job checks it every few hundred kilobytes.
#[derive(Debug, Default)]
pub struct Control {
    should_stop: AtomicBool,
    /// 0 is unlimited.
    bytes_per_second: AtomicU64,
    /// Nanoseconds at which the bytes so far have been paid for. All jobs that share the control share the budget.
    paid_until: AtomicU64,
    changed: Mutex<()>,
    changes: Condvar,
}

/// How far behind its budget a job may be and catch up in one burst.
const BURST: Duration = Duration::from_millis(100);

impl Control {
    /// Without a limit, running.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes jobs end soon, without result. They cannot be told to go on again.
    pub fn stop(&self) {
        self.should_stop.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether jobs are to end.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.should_stop.load(Ordering::Acquire)
    }

    /// Limits the bytes that jobs read and write in a second; 0 is no limit. Takes effect at once.
    pub fn set_bytes_per_second(&self, bytes: u64) {
        self.bytes_per_second.store(bytes, Ordering::Release);
        self.paid_until.store(0, Ordering::Release);
        self.wake();
    }

    /// The limit; 0 is none.
    #[must_use]
    pub fn bytes_per_second(&self) -> u64 {
        self.bytes_per_second.load(Ordering::Acquire)
    }

    fn wake(&self) {
        // Taken so that a waiter cannot miss the change between looking and waiting.
        drop(self.changed.lock().unwrap_or_else(PoisonError::into_inner));
        self.changes.notify_all();
    }

    /// How long to wait before `bytes` more are spent at `now`.
    fn charge(&self, bytes: u64, now: Instant) -> Duration {
        let rate = self.bytes_per_second();
        if rate == 0 {
            return Duration::ZERO;
        }
        let cost = u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(rate)).unwrap_or(u64::MAX);
        let now = now.as_nanos();
        let earliest = now.saturating_sub(u64::try_from(BURST.as_nanos()).unwrap_or(u64::MAX));
        let paid = |until: u64| until.max(earliest).saturating_add(cost);
        let before = self
            .paid_until
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |until| Some(paid(until)));
        let until = paid(before.unwrap_or_else(|until| until));
        Duration::from_nanos(until.saturating_sub(now))
    }

    /// Spends bytes: blocks until the budget allows it, the limit changes, or the job is to stop.
    pub(crate) fn spend(&self, bytes: u64) {
        let wait = self.charge(bytes, runtime::now());
        if wait.is_zero() || self.is_stopped() {
            return;
        }
        let rate = self.bytes_per_second();
        let guard = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_waiting = |(): &mut ()| !self.is_stopped() && self.bytes_per_second() == rate;
        drop(self.changes.wait_timeout_while(guard, wait, is_waiting));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_spreads_bytes_over_time_and_no_rate_does_not() {
        let control = Control::new();
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        assert_eq!(control.charge(1 << 40, at(1_000)), Duration::ZERO);
        control.set_bytes_per_second(1_000_000);
        // A tenth of a second is free after a pause; then a byte costs a microsecond.
        assert_eq!(control.charge(100_000, at(1_000)), Duration::ZERO);
        assert_eq!(control.charge(50_000, at(1_000)), Duration::from_millis(50));
        assert_eq!(control.charge(50_000, at(1_050)), Duration::from_millis(50));
        assert_eq!(control.charge(100_000, at(5_000)), Duration::ZERO);
        control.set_bytes_per_second(0);
        assert_eq!(control.charge(1 << 40, at(5_000)), Duration::ZERO);
    }

    #[test]
    fn stopping_wakes_a_job_that_waits_for_its_budget() {
        let control = Control::new();
        control.set_bytes_per_second(1);
        control.stop();
        control.spend(1 << 40);
        assert!(control.is_stopped());
    }
}
