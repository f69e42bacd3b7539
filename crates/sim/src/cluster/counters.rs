//! Counters: every increment that was acknowledged counts once, every other at most once.
//!
//! What a read at an overlapping level may return lies between two sums. The increments that were acknowledged before
//! it was sent count surely. Those that were under way then or began until it was answered, and those whose outcome is
//! unknown, count or not: the positive ones belong to the upper sum, the negative ones to the lower. What was
//! acknowledged before a TRUNCATE was sent does not count after its answer, and what was in progress during it counts
//! or not. An increment that its coordinator refused to begin never counts. So where all ended well, only one value is
//! right.

use std::cell::RefCell;

use super::clients::{ANSWER_WAIT_MAX, Clients, OVERLOADED, Outcome, READ_FAILURE, READ_TIMEOUT, UNAVAILABLE};
use super::clients::{WRITE_FAILURE, WRITE_TIMEOUT};
use super::history::Level;
use crate::client::{Answer, Client};
use crate::model::Value;

/// Counters of table `n (p, c)`, all written and read at QUORUM.
const COUNTERS: usize = 4;

/// All counters.
pub(crate) type Counters = [RefCell<Counter>; COUNTERS];

/// What is known of an increment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// Under way, or the outcome is unknown.
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

/// A TRUNCATE of the table while others add.
#[derive(Clone, Copy, Debug)]
struct Truncation {
    sent: u64,
    /// From when on it can change nothing more. None: that is not known.
    ended: Option<u64>,
    is_acknowledged: bool,
}

/// The increments of one counter.
#[derive(Default, Debug)]
pub struct Counter {
    increments: Vec<Increment>,
    truncations: Vec<Truncation>,
}

impl Counter {
    /// An increment is about to be sent; its number.
    pub fn begin(&mut self, by: i64, sent: u64) -> usize {
        let fate = Fate::Unknown;
        self.increments.push(Increment { by, sent, fate });
        self.increments.len() - 1
    }

    /// It was acknowledged, at a level that overlaps with that of reads.
    pub fn acknowledged(&mut self, number: usize, now: u64) {
        self.increments[number].fate = Fate::Acknowledged(now);
    }

    /// Its coordinator said that it did not begin.
    pub fn refused(&mut self, number: usize) {
        self.increments[number].fate = Fate::Refused;
    }

    /// A TRUNCATE is about to be sent.
    pub fn begin_truncation(&mut self, sent: u64) {
        self.truncations.push(Truncation {
            sent,
            ended: None,
            is_acknowledged: false,
        });
    }

    /// The one that was sent last was acknowledged; those before it, which failed, change nothing any more.
    pub fn end_truncation(&mut self, now: u64) {
        for truncation in &mut self.truncations {
            truncation.ended.get_or_insert(now);
        }
        if let Some(last) = self.truncations.last_mut() {
            last.is_acknowledged = true;
        }
    }

    /// Whether a read of that span can miss an increment, or must, because of a truncation.
    fn truncated(&self, increment: &Increment, sent: u64, answered: u64) -> (bool, bool) {
        let can = |t: &Truncation| t.sent <= answered && t.ended.is_none_or(|ended| increment.sent <= ended);
        let must = |t: &Truncation| {
            let was_there = matches!(increment.fate, Fate::Acknowledged(time) if time < t.sent);
            was_there && t.is_acknowledged && t.ended.is_some_and(|ended| ended < sent)
        };
        (self.truncations.iter().any(can), self.truncations.iter().any(must))
    }

    /// A read of that span of time has returned this.
    ///
    /// # Errors
    /// When no increments make it.
    pub fn check(&self, sent: u64, answered: u64, value: i64) -> Result<(), String> {
        let (mut least, mut most) = (0, 0);
        for increment in &self.increments {
            let (may_be_gone, is_gone) = self.truncated(increment, sent, answered);
            let counts_surely = matches!(increment.fate, Fate::Acknowledged(time) if time < sent) && !may_be_gone;
            let may_count = increment.fate != Fate::Refused && increment.sent <= answered && !is_gone;
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
        let unknown = self.increments.iter().filter(|i| i.fate == Fate::Unknown).count();
        Err(format!(
            "a counter is {value}, and its {} increments, of which {unknown} are in doubt, make {least} at least and {most} at most",
            self.increments.len()
        ))
    }
}

pub(crate) fn now() -> u64 {
    runtime::now().as_nanos() / 1000
}

impl Clients {
    /// One increment of a counter, or one look at it. Whether the connection is still good.
    pub(crate) async fn act_on_counters(&self, client: &mut Client, node: usize, dice: u64) -> bool {
        let p = usize::try_from(dice % COUNTERS as u64).expect("few counters");
        if (dice >> 4).is_multiple_of(3) {
            return self.read_counter(client, node, p).await.is_some();
        }
        let by = i64::try_from((dice >> 8) % 9).expect("below 9") - 3;
        let text = format!("UPDATE k.n SET c = c + {by} WHERE p = {p}");
        let was_faulty = self.faulty.get();
        let number = self.counters[p].borrow_mut().begin(by, now());
        let asking = client.ask_at(&text, Level::Quorum.code());
        let (why, is_connected) = match self.within(ANSWER_WAIT_MAX, asking).await {
            Outcome::Answer(Answer::Done) => {
                self.counters[p].borrow_mut().acknowledged(number, now());
                self.count(|c| c.increments += 1);
                self.note_served(node, Level::Quorum);
                return true;
            }
            Outcome::Answer(Answer::Error { code, message }) => {
                if code == UNAVAILABLE {
                    self.counters[p].borrow_mut().refused(number);
                } else if !matches!(code, OVERLOADED | WRITE_TIMEOUT | WRITE_FAILURE) {
                    self.fail(format!(
                        "{text}: an error that the test does not expect, {code:#x}: {message}"
                    ));
                }
                (message, true)
            }
            Outcome::Answer(other) => {
                self.fail(format!("{text}: {other:?}"));
                return true;
            }
            Outcome::Lost(why) => (why, false),
        };
        self.explain(was_faulty, || format!("{text} by node {node}: {why}"));
        is_connected
    }

    /// Reads a counter and checks it. None when the connection is lost, false after an error.
    pub(crate) async fn read_counter(&self, client: &mut Client, node: usize, p: usize) -> Option<bool> {
        let text = format!("SELECT c FROM k.n WHERE p = {p}");
        let was_faulty = self.faulty.get();
        let sent = now();
        let asking = client.ask_at(&text, Level::Quorum.code());
        match self.within(ANSWER_WAIT_MAX, asking).await {
            Outcome::Answer(Answer::Rows(rows, None)) => {
                // A counter without additions is not there.
                let value = match rows.first().and_then(|row| row.get("c")) {
                    Some(Value::Int(value)) => (*value).into(),
                    _ => 0,
                };
                if let Err(why) = self.counters[p].borrow().check(sent, now(), value) {
                    self.fail(format!("{text} by node {node}, sent at {sent} us: {why}"));
                }
                self.count(|c| c.reads += 1);
                Some(true)
            }
            Outcome::Answer(Answer::Error { code, message }) => {
                if !matches!(code, UNAVAILABLE | OVERLOADED | READ_TIMEOUT | READ_FAILURE) {
                    self.fail(format!(
                        "{text}: an error that the test does not expect, {code:#x}: {message}"
                    ));
                }
                self.explain(was_faulty, || format!("{text} by node {node}: {message}"));
                Some(false)
            }
            Outcome::Answer(other) => {
                self.fail(format!("{text}: {other:?}"));
                None
            }
            Outcome::Lost(why) => {
                self.explain(was_faulty, || format!("{text} by node {node}: {why}"));
                None
            }
        }
    }

    /// Each node looks at each counter once more.
    pub(crate) async fn look_at_counters(&self) -> Result<(), String> {
        for node in self.members() {
            let mut client = self.connect_patiently(node).await?;
            for p in 0..COUNTERS {
                if self.read_counter(&mut client, node, p).await != Some(true) && self.failure().is_none() {
                    return Err(format!("counter {p} cannot be read by node {node} when all is quiet"));
                }
            }
        }
        Ok(())
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
    fn what_was_added_before_a_truncation_counts_no_more_behind_it() {
        let mut counter = Counter::default();
        // Before the truncation, while it is under way, and after it.
        for (by, sent, answered) in [(1, 1, 2), (10, 11, 13), (100, 21, 22)] {
            let number = counter.begin(by, sent);
            counter.acknowledged(number, answered);
        }
        counter.begin_truncation(10);
        let possible = |counter: &Counter, sent, answered| -> Vec<i64> {
            let is_possible = |value: &i64| counter.check(sent, answered, *value).is_ok();
            (0..112).filter(is_possible).collect()
        };
        assert_eq!(possible(&counter, 5, 6), [1], "before it was sent");
        assert_eq!(
            possible(&counter, 30, 31),
            (0..112).collect::<Vec<_>>(),
            "one without an answer excuses all"
        );
        counter.end_truncation(20);
        assert_eq!(possible(&counter, 15, 16), (0..12).collect::<Vec<_>>(), "meanwhile");
        assert_eq!(possible(&counter, 30, 31), (100..111).collect::<Vec<_>>(), "behind it");
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
