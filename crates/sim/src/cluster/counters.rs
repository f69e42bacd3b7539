//! Counters: every increment that was acknowledged counts once, every other at most once.
//!
//! What a read at an overlapping level may return lies between two sums. The increments that were acknowledged before it was sent count surely.
//! Those that were under way then or began until it was answered, and those of which nobody knows how they ended, count or not: the positive ones belong to the
//! upper sum, the negative ones to the lower. An increment that its coordinator refused to begin counts never. So where all ended well, one value only is right.

/// What is known of an increment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// Under way, or nobody knows.
    Unknown,
    /// When it was acknowledged.
    Acknowledged(u64),
    Refused,
}

#[derive(Clone, Copy, Debug)]
struct Increment {
    by: i64,
    sent: u64,
    fate: Fate,
}

/// The increments of one counter.
#[derive(Default, Debug)]
pub struct Counter(Vec<Increment>);

impl Counter {
    /// An increment is about to be sent; its number.
    pub fn begin(&mut self, by: i64, sent: u64) -> usize {
        let fate = Fate::Unknown;
        self.0.push(Increment { by, sent, fate });
        self.0.len() - 1
    }

    /// It was acknowledged, at a level that overlaps with that of reads.
    pub fn acknowledged(&mut self, number: usize, now: u64) {
        self.0[number].fate = Fate::Acknowledged(now);
    }

    /// Its coordinator said that it did not begin.
    pub fn refused(&mut self, number: usize) {
        self.0[number].fate = Fate::Refused;
    }

    /// A read of that span of time has returned this.
    ///
    /// # Errors
    /// When no increments make it.
    pub fn check(&self, sent: u64, answered: u64, value: i64) -> Result<(), String> {
        let (mut least, mut most) = (0, 0);
        for increment in &self.0 {
            let counts_surely = matches!(increment.fate, Fate::Acknowledged(time) if time < sent);
            let may_count = increment.fate != Fate::Refused && increment.sent <= answered;
            if counts_surely {
                least += increment.by;
                most += increment.by;
            } else if may_count {
                least += increment.by.min(0);
                most += increment.by.max(0);
            }
        }
        if (least..=most).contains(&value) {
            return Ok(());
        }
        let unknown = self.0.iter().filter(|i| i.fate == Fate::Unknown).count();
        Err(format!(
            "a counter is {value}, and its {} increments, of which {unknown} are in doubt, make {least} at least and {most} at most",
            self.0.len()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_the_sum_of_what_was_acknowledged_and_perhaps_of_what_is_in_doubt() {
        let mut counter = Counter::default();
        for (by, sent) in [(5, 1), (-2, 2), (10, 3), (-3, 4), (100, 5)] {
            counter.begin(by, sent);
        }
        counter.acknowledged(0, 6);
        counter.acknowledged(1, 7);
        counter.refused(4);
        for (value, expected) in [
            (3, true),
            (13, true),
            (0, true),
            (10, true),
            (14, false),
            (-1, false),
            (103, false),
        ] {
            assert_eq!(counter.check(10, 11, value).is_ok(), expected, "{value}");
        }
        assert!(
            counter.check(6, 6, 5).is_ok(),
            "at the time of its acknowledgement it may count or not"
        );
        assert!(counter.check(6, 6, 6 + 10).is_err(), "10 and 5 and 1 were never added");
    }

    #[test]
    fn where_all_ended_well_one_value_is_right() {
        let mut counter = Counter::default();
        for by in [1, 2, 3] {
            let number = counter.begin(by, 1);
            counter.acknowledged(number, 2);
        }
        for value in 5..8 {
            assert_eq!(counter.check(3, 3, value).is_ok(), value == 6, "{value}");
        }
    }
}
