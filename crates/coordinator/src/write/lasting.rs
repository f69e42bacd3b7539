//! Writes and read repairs that may take longer than reports of tombstones allow for (`tombstones.rs`).
//!
//! A write that reaches a replica late, or a read that repairs it late, may bring back data that was deleted since the
//! write or read began, if the tombstones have already been purged. So a node's report is complete only until the
//! oldest of these began. Requests with the timeouts of the node's options are not recorded here: reports are late by
//! more than those timeouts.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use runtime::Instant;

use super::deadlines::Flights;
use crate::Timeouts;

/// When the operations with a [`Lasting`] began, and how many of them began then; microseconds.
#[derive(Default)]
pub(crate) struct Begun(RefCell<BTreeMap<i64, u32>>);

/// Guard of a long write or read repair: it may write what was read or made when it began. While the guard lives,
/// reports do not pass that time.
pub(crate) struct Lasting {
    flights: Rc<Flights>,
    began_us: i64,
}

impl Lasting {
    /// When it began; microseconds since the epoch.
    pub(crate) fn began_us(&self) -> i64 {
        self.began_us
    }

    /// It began then.
    pub(crate) fn since(flights: &Rc<Flights>, began: Instant) -> Self {
        let began_us = wall_clock_at(began);
        *flights.begun.0.borrow_mut().entry(began_us).or_default() += 1;
        Self {
            flights: Rc::clone(flights),
            began_us,
        }
    }
}

impl Drop for Lasting {
    fn drop(&mut self) {
        let mut begun = self.flights.begun.0.borrow_mut();
        if let Some(count) = begun.get_mut(&self.began_us) {
            *count -= 1;
            if *count == 0 {
                begun.remove(&self.began_us);
            }
        }
    }
}

/// A write continues after its request was answered while this lives.
pub(crate) struct UnderWay(Rc<Flights>);

impl UnderWay {
    pub(crate) fn new(flights: &Rc<Flights>) -> Self {
        flights.under_way.set(flights.under_way.get() + 1);
        Self(Rc::clone(flights))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let count = &self.0.under_way;
        count.set(count.get() - 1);
    }
}

/// The wall clock at a moment that has passed; microseconds.
pub(crate) fn wall_clock_at(moment: Instant) -> i64 {
    let elapsed = runtime::now().saturating_duration_since(moment);
    runtime::wall_clock_us() - i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX)
}

impl Timeouts {
    /// Whether a request that may take so long can write what it read or made when it began, later than reports take
    /// for granted.
    #[must_use]
    pub(crate) fn is_lasting(&self, timeout: Duration) -> bool {
        // Here it waits for so long, and then at a replica.
        timeout.saturating_mul(2) > Duration::from_secs(u64::from(self.late_write_seconds()))
    }
}

impl Flights {
    /// When the oldest operation began that is in progress on this shard and may write; microseconds.
    pub(crate) fn oldest_us(&self) -> Option<i64> {
        let lasting = self.begun.0.borrow().keys().next().copied();
        lasting.into_iter().chain(self.oldest_write_us()).min()
    }

    /// How many writes continue after their requests were answered.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.get()
    }
}
