//! What one call may use: steps, time, and memory outside the interpreter.
//!
//! A step is about ten nanoseconds of work: an instruction of the virtual machine, or a few bytes that a library
//! function looks at. Steps are counted, so a call ends at the same place on every node and in the simulator, whose
//! clock does not advance during a call. Some instructions take far longer than others, such as one that joins two long
//! strings; so the clock is checked too, and ends a call that takes ten times what it is allowed.

use std::cell::Cell;
use std::time::Duration;

use runtime::Instant;

use crate::{Error, Limits};

/// Steps for each millisecond of the time limit.
pub(crate) const STEPS_PER_MS: u64 = 100_000;
/// How much longer than the limit a call may take by the clock.
const CLOCK_FACTOR: u32 = 10;

/// What is left of what one call may use.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: Limits,
    steps: Cell<u64>,
    ends: Cell<Instant>,
    /// Bytes of numbers that the interpreter refers to and does not count.
    foreign: Cell<usize>,
    /// Why nothing is left, once that is so. Code that catches errors cannot undo it.
    spent: Cell<Option<Spent>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spent {
    Time,
    Memory,
}

impl Budget {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            steps: Cell::new(0),
            ends: Cell::new(Instant::from_nanos(0)),
            foreign: Cell::new(0),
            spent: Cell::new(None),
        }
    }

    pub(crate) const fn limits(&self) -> Limits {
        self.limits
    }

    /// Begins a call.
    pub(crate) fn begin(&self) {
        let ms = self.limits.time_ms;
        self.steps.set(ms.saturating_mul(STEPS_PER_MS));
        self.ends
            .set(runtime::now() + Duration::from_millis(ms).saturating_mul(CLOCK_FACTOR));
        self.spent.set(None);
    }

    /// Takes steps.
    ///
    /// # Errors
    /// When the call has used up its time, from then on always.
    pub(crate) fn take(&self, steps: u64) -> Result<(), Error> {
        let left = self.steps.get().checked_sub(steps);
        self.steps.set(left.unwrap_or(0));
        if left.is_none() || runtime::now() > self.ends.get() {
            self.spent.set(self.spent.get().or(Some(Spent::Time)));
        }
        self.error().map_or(Ok(()), Err)
    }

    /// Takes the steps of looking at so many bytes.
    pub(crate) fn take_bytes(&self, bytes: usize) -> Result<(), Error> {
        self.take(bytes as u64 / 16 + 1)
    }

    /// Why nothing is left.
    pub(crate) fn error(&self) -> Option<Error> {
        self.spent.get().map(|spent| match spent {
            Spent::Time => Error::Time(self.limits.time_ms),
            Spent::Memory => Error::Memory(self.limits.memory_bytes),
        })
    }

    /// Notes that the memory is used up: nothing is left from then on.
    pub(crate) fn out_of_memory(&self) -> Error {
        self.spent.set(Some(Spent::Memory));
        Error::Memory(self.limits.memory_bytes)
    }

    /// Counts bytes outside the interpreter; false when they are too many, and then they are not counted.
    pub(crate) fn hold(&self, bytes: usize) -> bool {
        let held = self.foreign.get().saturating_add(bytes);
        let fits = held <= self.limits.memory_bytes;
        if fits {
            self.foreign.set(held);
        }
        fits
    }

    /// Gives back what [`Budget::hold`] counted.
    pub(crate) fn release(&self, bytes: usize) {
        self.foreign.set(self.foreign.get().saturating_sub(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spent_stays_spent_until_the_next_call() {
        let budget = Budget::new(Limits {
            time_ms: 1,
            memory_bytes: 100,
        });
        budget.begin();
        assert_eq!(budget.take(STEPS_PER_MS - 1), Ok(()));
        assert_eq!(budget.take(2), Err(Error::Time(1)));
        assert_eq!(budget.take(0), Err(Error::Time(1)));
        budget.begin();
        assert_eq!(budget.take(1), Ok(()));
        assert!(budget.hold(100) && !budget.hold(1));
        budget.release(50);
        assert!(budget.hold(50));
    }
}
