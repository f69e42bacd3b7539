//! Log lines of work that is tried again and again: one for each reason, and one a minute while it lasts. Reasons that
//! differ in numbers, or in names with numbers, are one.

use runtime::Instant;
use std::time::Duration;

/// Between two lines with one reason.
const INTERVAL: Duration = Duration::from_mins(1);

/// A reason without what has a digit: sizes, times and the names of files.
fn kind_of(why: &str) -> String {
    let has_no_digit = |word: &&str| !word.contains(|c: char| c.is_ascii_digit());
    why.split_whitespace()
        .filter(has_no_digit)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The last line of one piece of work.
#[derive(Default)]
pub(crate) struct Repeated(Option<(String, Instant)>);

impl Repeated {
    /// Whether a failure is logged that happened now for this reason.
    pub(crate) fn is_due(&mut self, why: &str, now: Instant) -> bool {
        let kind = kind_of(why);
        let is_known = |(said, at): &(String, Instant)| *said == kind && now.saturating_duration_since(*at) < INTERVAL;
        if self.0.as_ref().is_some_and(is_known) {
            return false;
        }
        self.0 = Some((kind, now));
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
        let mut lines = Repeated::default();
        assert!(lines.is_due("/data/ks/incoming/9f3a: the copy has 10 bytes, and 7 are free", at(0)));
        assert!(!lines.is_due("/data/ks/incoming/c41b: the copy has 10 bytes, and 6 are free", at(1)));
        assert!(lines.is_due("node 3 is down", at(2)));
    }
}
