//! Log lines of work that is tried again and again: one for each reason, and one a minute while it lasts.

use runtime::Instant;
use std::time::Duration;

/// Between two lines with one reason.
const INTERVAL: Duration = Duration::from_mins(1);

/// The last line of one piece of work.
#[derive(Default)]
pub(crate) struct Repeated(Option<(String, Instant)>);

impl Repeated {
    /// Whether a failure is logged that happened now for this reason.
    pub(crate) fn is_due(&mut self, why: &str, now: Instant) -> bool {
        let is_known = |(said, at): &(String, Instant)| said == why && now.saturating_duration_since(*at) < INTERVAL;
        if self.0.as_ref().is_some_and(is_known) {
            return false;
        }
        self.0 = Some((why.to_owned(), now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_reason_is_logged_once_a_minute_and_another_one_at_once() {
        let mut lines = Repeated::default();
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        let logged: Vec<bool> = [
            ("full", 0),
            ("full", 1),
            ("full", 59),
            ("down", 59),
            ("full", 60),
            ("full", 119),
            ("full", 120),
        ]
        .into_iter()
        .map(|(why, seconds)| lines.is_due(why, at(seconds)))
        .collect();
        assert_eq!(logged, [true, false, false, true, true, false, true]);
    }
}
