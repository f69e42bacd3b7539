//! How many requests a tablet gets per second, averaged over minutes.
//!
//! A request adds one to a counter. Each query of the load turns what was counted since the last one into an average in
//! which older times weigh less and less: by half after two minutes. A young average counts what there is of it, and
//! not the zero that it began with; a tablet of a few seconds has none.

use runtime::Instant;

/// The time constant of the average, seconds: after it, what was weighs 1 / e.
const FADE_SECONDS: f64 = 180.0;
/// A tablet that is younger has no average, in seconds.
const KNOWN_AFTER_SECONDS: f64 = 10.0;

/// The requests of a tablet, as they were looked at last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadMeter {
    began: Instant,
    looked: Instant,
    counted: u64,
    /// As if there had been none before it began.
    average: f64,
}

impl LoadMeter {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            began: now,
            looked: now,
            counted: 0,
            average: 0.0,
        }
    }

    /// Looks at a counter. Requests per second, if they are known by now.
    pub(crate) fn look(&mut self, now: Instant, counter: u64) -> Option<f32> {
        let seconds = now.saturating_duration_since(self.looked).as_secs_f64();
        if seconds > 0.0 {
            let rate = counter.wrapping_sub(self.counted) as f64 / seconds;
            let kept = (-seconds / FADE_SECONDS).exp();
            self.average = self.average * kept + rate * (1.0 - kept);
            (self.looked, self.counted) = (now, counter);
        }
        let age = now.saturating_duration_since(self.began).as_secs_f64();
        let weight = 1.0 - (-age / FADE_SECONDS).exp();
        (age >= KNOWN_AFTER_SECONDS).then_some((self.average / weight) as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn after(began: Instant, seconds: u64) -> Instant {
        began + Duration::from_secs(seconds)
    }

    #[test]
    fn an_average_is_right_from_its_beginning_whenever_it_is_looked_at() {
        let began = runtime::now();
        for steps in [1, 7, 60] {
            let mut meter = LoadMeter::new(began);
            assert_eq!(meter.look(after(began, 9), 9 * 500), None, "too young");
            for at in (10..600).step_by(steps) {
                let load = meter.look(after(began, at), at * 500).expect("it is old enough");
                assert!((load - 500.0).abs() < 1.0, "{load} after {at} seconds");
            }
        }
    }

    #[test]
    fn what_was_fades_within_minutes_and_a_moment_changes_little() {
        let began = runtime::now();
        let mut meter = LoadMeter::new(began);
        meter.look(after(began, 600), 600 * 1000);
        // Ten seconds without a request.
        let load = meter.look(after(began, 610), 600 * 1000).expect("it is old enough");
        assert!((940.0..960.0).contains(&load), "{load}");
        let load = meter
            .look(after(began, 610 + 125), 600 * 1000)
            .expect("it is old enough");
        assert!((450.0..500.0).contains(&load), "{load}");
        let load = meter.look(after(began, 3600), 600 * 1000).expect("it is old enough");
        assert!(load < 1.0, "{load}");
    }
}
