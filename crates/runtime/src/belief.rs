//! How far the system's wall clock is believed.
//!
//! A wall clock may jump: a time server is wrong, an operator mistypes a date, a virtual machine resumes.
//! [`crate::wall_clock_us`], by which data expires and writes get their timestamps, does not follow a jump. It compares
//! the system's wall clock with the *steady* clock, which counts the time since the machine booted and is never set.
//! Their difference, the *offset*, stays the same while the wall clock is right.
//!
//! A [`ClockBelief`] is the offset that is believed. While the system's clock is within the limit of it, the system's
//! clock is the time; as soon as it is not, or while the clock is not trusted, the time is the steady clock plus the
//! believed offset. The comparison is made where the system's clock is read, so no jump is ever seen by a request.
//! Callers above this crate set the belief; without one the system's clock is the time.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

/// What is believed of the system's wall clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockBelief {
    /// The wall clock less the steady clock, in microseconds.
    pub offset_us: i64,
    /// How far the system's clock may be from that.
    pub limit: Duration,
    /// Whether the system's clock is the time while it is within the limit.
    pub is_trusted: bool,
}

impl ClockBelief {
    /// Whether the system's clock is the time, where its offset is this.
    pub(crate) fn trusts(&self, offset_us: i64) -> bool {
        self.is_trusted && u128::from(offset_us.abs_diff(self.offset_us)) <= self.limit.as_micros()
    }

    /// The wall clock, where the system's has this offset.
    pub(crate) fn wall_us(&self, steady_us: i64, offset_us: i64) -> i64 {
        let offset_us = if self.trusts(offset_us) {
            offset_us
        } else {
            self.offset_us
        };
        steady_us.saturating_add(offset_us)
    }
}

/// The belief of this process: each part is read alone, so a reader may see parts of two beliefs for one moment, each
/// of which is near the truth.
pub(crate) struct SharedBelief {
    is_set: AtomicBool,
    is_trusted: AtomicBool,
    offset_us: AtomicI64,
    limit_us: AtomicI64,
}

impl SharedBelief {
    pub(crate) const fn none() -> Self {
        Self {
            is_set: AtomicBool::new(false),
            is_trusted: AtomicBool::new(false),
            offset_us: AtomicI64::new(0),
            limit_us: AtomicI64::new(0),
        }
    }

    pub(crate) fn set(&self, belief: ClockBelief) {
        let limit_us = i64::try_from(belief.limit.as_micros()).unwrap_or(i64::MAX);
        self.limit_us.store(limit_us, Ordering::Relaxed);
        self.offset_us.store(belief.offset_us, Ordering::Relaxed);
        self.is_trusted.store(belief.is_trusted, Ordering::Relaxed);
        self.is_set.store(true, Ordering::Release);
    }

    pub(crate) fn get(&self) -> Option<ClockBelief> {
        if !self.is_set.load(Ordering::Acquire) {
            return None;
        }
        let limit_us = self.limit_us.load(Ordering::Relaxed).unsigned_abs();
        Some(ClockBelief {
            offset_us: self.offset_us.load(Ordering::Relaxed),
            limit: Duration::from_micros(limit_us),
            is_trusted: self.is_trusted.load(Ordering::Relaxed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_follows_small_steps_and_no_jump() {
        const DAY: i64 = 86_400_000_000;
        let belief = |is_trusted| ClockBelief {
            offset_us: 1000,
            limit: Duration::from_secs(5),
            is_trusted,
        };
        // Trusted, offset of the system's clock, whether it is the time, the offset of the time.
        let cases = [
            (true, 1000, true, 1000),
            (true, 1000 + 5_000_000, true, 1000 + 5_000_000),
            (true, 1000 + 5_000_001, false, 1000),
            (true, 1000 + DAY, false, 1000),
            (true, 1000 - DAY, false, 1000),
            (true, i64::MIN, false, 1000),
            (false, 2000, false, 1000),
        ];
        for (is_trusted, offset_us, trusts, expected) in cases {
            let belief = belief(is_trusted);
            assert_eq!(belief.trusts(offset_us), trusts, "{offset_us}");
            assert_eq!(belief.wall_us(7, offset_us), 7 + expected, "{offset_us}");
        }
    }
}
