//! Deadlines by the clock of the answering side.
//!
//! A request must not run long after its caller has given up, wherever it was held up: in the memory of a process that
//! was stopped, in a kernel, or on the wire. The time that was left for it when it was sent cannot say that, because
//! the receiver does not know when that was. So a request carries its deadline as a moment of the answering side's own
//! clock, which the caller estimates: every frame of an answer carries the moment at which it was sent, and when it has
//! come that moment has passed.
//!
//! The estimate is never ahead of the clock: each moment that was heard was true when it was sent, so at most the way
//! of the fastest answer is missing, and that much earlier a request expires. Over slow links, and after a hello that
//! took long, that may be all the time of a short message, so what comes a little late still runs if it can at once
//! ([`LATE_MAX`]). No two wall clocks are compared. The clocks of two machines may drift, so an estimate is forgotten
//! after two windows; a link that is silent is pinged before (`link.rs`).
//!
//! A moment is a number of milliseconds, of which the low 32 bits go over the wire: 49 days, within which moments that
//! are compared are near each other.

use runtime::Instant;
use std::cell::Cell;
use std::time::Duration;
use stdx::planted::{self, Bug};

/// How long the best of what was heard counts, and the best of the window before it. In two windows, clocks drift 20 ms
/// when the kernel slews one of them (500 millionths), and 3.4 s when chrony corrects seconds as fast as it may (83,333
/// millionths).
const WINDOW: Duration = Duration::from_secs(20);
/// The longest time that a request may have; what is above is cut.
const LEFT_MAX: Duration = Duration::from_mins(71);

/// What comes so late at most still runs, if it takes no longer than [`LATE_LEFT`]. Far below the ten seconds that
/// purges of tombstones allow for.
const LATE_MAX: Duration = Duration::from_secs(2);
const LATE_LEFT: Duration = Duration::from_millis(100);

/// How an end of a connection writes and reads the times of frames.
pub(crate) enum Clock {
    /// Of the calling side.
    Caller(Estimate),
    /// Of the answering side; since when its clock counts. That is before the caller heard of the connection.
    Answerer(Instant),
}

impl Clock {
    /// Of a caller that has heard of the connection by now.
    pub(crate) fn of_caller(heard: Instant) -> Self {
        Self::Caller(Estimate::new(heard))
    }

    /// What a request carries that goes to the socket now.
    pub(crate) fn deadline_time(&self, deadline: Instant, now: Instant) -> u32 {
        match self {
            Self::Caller(estimate) => estimate.moment(deadline.min(now + LEFT_MAX)),
            // Answers have no deadline.
            Self::Answerer(_) => 0,
        }
    }

    /// What an answer carries that goes to the socket now.
    pub(crate) fn answer_time(&self, now: Instant) -> Option<u32> {
        match self {
            Self::Answerer(began) => Some(millis_down(now - *began)),
            _ => None,
        }
    }

    /// A frame of an answer with this time had come by now.
    #[inline]
    pub(crate) fn hear(&self, time: u32, now: Instant) {
        if let Self::Caller(estimate) = self {
            estimate.hear(time, now);
        }
    }

    /// The deadline of a request with this time, whose first bytes came at a moment.
    pub(crate) fn deadline(&self, time: u32, came: Instant) -> Instant {
        let Self::Answerer(began) = self else {
            // A caller receives no requests.
            return came;
        };
        let left_ms = time.wrapping_sub(millis_down(came - *began)).cast_signed();
        let left = match u64::try_from(left_ms) {
            Ok(left_ms @ 1..) => Duration::from_millis(left_ms),
            _ => {
                let late = Duration::from_millis(u64::from(left_ms.unsigned_abs()));
                let runs = late <= LATE_MAX || planted::is_planted(Bug::LateRequestRuns);
                if runs { LATE_LEFT } else { Duration::ZERO }
            }
        };
        came + left
    }
}

/// What a caller knows of the answering side's clock: how far it is ahead of its own at least, in milliseconds. The
/// numbers wrap.
pub(crate) struct Estimate {
    best: Cell<u32>,
    /// The best of the window that runs.
    next: Cell<u32>,
    window_began: Cell<Instant>,
}

impl Estimate {
    /// The clock of the other end started before that.
    fn new(now: Instant) -> Self {
        let ahead = 0_u32.wrapping_sub(own_millis_up(now));
        Self {
            best: Cell::new(ahead),
            next: Cell::new(ahead),
            window_began: Cell::new(now),
        }
    }

    fn hear(&self, time: u32, now: Instant) {
        let ahead = time.wrapping_sub(own_millis_up(now));
        let since = now - self.window_began.get();
        if since > WINDOW {
            let next = self.next.replace(ahead);
            self.best.set(if since > 2 * WINDOW { ahead } else { next });
            self.window_began.set(now);
        }
        for known in [&self.best, &self.next] {
            if ahead.wrapping_sub(known.get()).cast_signed() > 0 {
                known.set(ahead);
            }
        }
    }

    /// A moment that the other end's clock has reached when this end's shows `at`.
    fn moment(&self, at: Instant) -> u32 {
        self.best.get().wrapping_add(millis_down(at - Instant::from_nanos(0)))
    }
}

/// The low 32 bits of the whole milliseconds in a duration.
#[expect(clippy::cast_possible_truncation, reason = "the numbers wrap")]
fn millis_down(duration: Duration) -> u32 {
    duration.as_millis() as u32
}

/// The caller's own clock, in milliseconds that have begun.
#[expect(clippy::cast_possible_truncation, reason = "the numbers wrap")]
fn own_millis_up(now: Instant) -> u32 {
    now.as_nanos().div_ceil(1_000_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at_us(us: u64) -> Instant {
        Instant::from_nanos(us * 1_000)
    }

    /// Two ends that know the moments of each other's clocks: the answering side's counts from `began`, runs `drift`
    /// millionths faster, and shows other numbers.
    struct Ends {
        caller: Clock,
        answerer: Clock,
        ahead_us: i64,
        drift: i64,
    }

    impl Ends {
        fn new(connected_us: u64, hello_us: u64, ahead_us: i64, drift: i64) -> Self {
            let mut ends = Self {
                caller: Clock::of_caller(at_us(connected_us + hello_us)),
                answerer: Clock::Answerer(at_us(0)),
                ahead_us,
                drift,
            };
            ends.answerer = Clock::Answerer(ends.answerers(connected_us));
            ends
        }

        /// The answering side's clock when the caller's shows so much.
        fn answerers(&self, us: u64) -> Instant {
            let us = i64::try_from(us).expect("small") + self.ahead_us;
            at_us(u64::try_from(us + us * self.drift / 1_000_000).expect("positive"))
        }

        /// An answer that was sent at a moment of the caller's clock and took so long.
        fn answer(&self, sent_us: u64, way_us: u64) {
            let time = self
                .answerer
                .answer_time(self.answerers(sent_us))
                .expect("it has moments");
            self.caller.hear(time, at_us(sent_us + way_us));
        }

        /// What is left at the answering side, microseconds, of a request with `timeout_us` that was sent at a moment
        /// and took so long.
        fn left_us(&self, sent_us: u64, timeout_us: u64, way_us: u64) -> u64 {
            let time = self.caller.deadline_time(at_us(sent_us + timeout_us), at_us(sent_us));
            let came = self.answerers(sent_us + way_us);
            u64::try_from((self.answerer.deadline(time, came) - came).as_micros()).expect("small")
        }
    }

    const SECOND_US: u64 = 1_000_000;

    proptest! {
        #[test]
        fn a_request_never_has_more_time_than_its_caller_gave_it(
            ahead_us in 0..100_000_000_000_000_i64,
            drift in -500..500_i64,
            hello_us in 0..5 * SECOND_US,
            answers in prop::collection::vec((0..30 * SECOND_US, 0..20 * SECOND_US), 0..40),
            timeout_us in 0..600 * SECOND_US,
            way_us in 0..200 * SECOND_US,
        ) {
            let mut now = 90 * SECOND_US;
            let ends = Ends::new(now, hello_us, ahead_us, drift);
            now += hello_us;
            for (later, way) in answers {
                ends.answer(now + later, way);
                now += later + way;
            }
            let left = ends.left_us(now, timeout_us, way_us);
            // Drift of two windows, of one silence and of the request's own time, and three roundings to milliseconds.
            let drifted = (2 * 20 * SECOND_US + 50 * SECOND_US + timeout_us) / 2_000 + 3_000;
            let most = timeout_us.saturating_sub(way_us) + drifted;
            let is_little_late = way_us <= timeout_us + drifted + 2 * SECOND_US;
            prop_assert!(left <= most || is_little_late && left <= 100_000, "{left} of {timeout_us} after {way_us}");
        }

        #[test]
        fn it_lacks_the_way_of_the_fastest_answer_at_most(
            ahead_us in 0..100_000_000_000_000_i64,
            hello_us in 0..5 * SECOND_US,
            ways in prop::collection::vec(0..2 * SECOND_US, 1..9),
            timeout_us in 0..600 * SECOND_US,
            way_us in 0..20 * SECOND_US,
        ) {
            let mut now = 90 * SECOND_US;
            let ends = Ends::new(now, hello_us, ahead_us, 0);
            now += hello_us;
            for way in &ways {
                ends.answer(now, *way);
                now += way;
            }
            let fastest = ways.iter().copied().min().unwrap_or(0).min(hello_us);
            let left = ends.left_us(now, timeout_us, way_us);
            prop_assert!(left + way_us + fastest + 3_000 >= timeout_us, "{left} of {timeout_us} after {way_us}, fastest {fastest}");
        }
    }

    #[test]
    fn moments_wrap_after_49_days() {
        let days = 49 * 24 * 3_600 * SECOND_US;
        let ends = Ends::new(SECOND_US, 0, 7, 0);
        for hours in 0..48 {
            let now = days + hours * 3_600 * SECOND_US;
            ends.answer(now, 1_000);
            ends.answer(now + 61 * SECOND_US, 1_000);
            let left = ends.left_us(now + 62 * SECOND_US, 2 * SECOND_US, 500_000);
            assert!((1_490_000..=1_500_000).contains(&left), "{left} at hour {hours}");
            assert_eq!(ends.left_us(now + 62 * SECOND_US, 2 * SECOND_US, 5 * SECOND_US), 0);
        }
    }

    #[test]
    fn a_message_over_a_slow_link_runs_though_the_estimate_lacks_the_way_back() {
        let ends = Ends::new(90 * SECOND_US, 800_000, 0, 0);
        ends.answer(100 * SECOND_US, 800_000);
        assert_eq!(ends.left_us(110 * SECOND_US, SECOND_US, 800_000), 100_000);
        assert_eq!(
            ends.left_us(110 * SECOND_US, SECOND_US, 2_300_000),
            0,
            "2.1 s and the way back late"
        );
    }
}
