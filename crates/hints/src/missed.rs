//! What nodes have permanently missed: writes that no hint will bring them.
//!
//! A hint that is dropped, lost, expired or never made leaves its target without a write. If the write was a deletion,
//! the other replicas must keep its tombstone: once they purge it, an older row of the target is the newest in the
//! cluster, and is visible again. So every such loss leaves a *span*: the seconds in which the deletion may have been
//! made. Crate `coordinator` collects them, makes them durable and reports them to the other nodes.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use stdx::planted::{self, Bug};
use topology::HostId;

use crate::Hints;

/// Most spans of one node; beyond that the two nearest become one, which holds more tombstones than it must.
pub const SPANS_MAX: usize = 64;

/// By how many seconds the clock of another coordinator may be ahead of this node's: deletions that this node knows
/// only from files may have seconds as late.
pub const CLOCK_MARGIN_SECONDS: u32 = 10;

/// Seconds of the wall clock: ranges in order that neither overlap nor touch.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Spans(Vec<RangeInclusive<u32>>);

impl Spans {
    /// Adds the seconds from `first` to `last`, both included.
    pub fn add(&mut self, first: u32, last: u32) {
        let (mut first, mut last) = (first, last.max(first));
        self.0.retain(|span| {
            let touches = *span.start() <= last.saturating_add(1) && first <= span.end().saturating_add(1);
            if touches {
                first = first.min(*span.start());
                last = last.max(*span.end());
            }
            !touches
        });
        let at = self.0.partition_point(|span| *span.end() < first);
        self.0.insert(at, first..=last);
        if self.0.len() > SPANS_MAX {
            let gap = |at: &usize| self.0[at + 1].start() - self.0[*at].end();
            let nearest = (0..self.0.len() - 1).min_by_key(gap).expect("there are several");
            let next = self.0.remove(nearest + 1);
            self.0[nearest] = *self.0[nearest].start()..=*next.end();
        }
    }

    /// Adds all seconds of others.
    pub fn extend(&mut self, others: &Self) {
        others.iter().for_each(|span| self.add(*span.start(), *span.end()));
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = &RangeInclusive<u32>> {
        self.0.iter()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Spans by the node that missed something in them.
pub type Missed = BTreeMap<HostId, Spans>;

/// Where a span of writes ends that are missed now, microseconds: at the present, or at the second of their last
/// deletion if that is later.
pub(crate) fn end_of_span(last_deletion: u32) -> i64 {
    let now_us = runtime::wall_clock_us();
    if planted::is_planted(Bug::SpanEndsBeforeDeletion) {
        return now_us;
    }
    now_us.max(i64::from(last_deletion) * 1_000_000)
}

/// The second of a moment in microseconds; what is before 1970 is second 0.
pub(crate) fn second(us: i64) -> u32 {
    u32::try_from(us / 1_000_000).unwrap_or(if us < 0 { 0 } else { u32::MAX })
}

impl Hints {
    /// Notes that a node will not get writes that were made between two moments, in microseconds.
    pub fn miss(&self, target: HostId, first_us: i64, last_us: i64) {
        let mut missed = self.missed.borrow_mut();
        missed.entry(target).or_default().add(second(first_us), second(last_us));
    }

    /// Notes that a node will not get the hints of a file, which were made at a moment or later; microseconds. When
    /// their deletions were made is unknown.
    pub(crate) fn miss_file(&self, target: HostId, first_us: i64) {
        let last_us = runtime::wall_clock_us() + i64::from(CLOCK_MARGIN_SECONDS) * 1_000_000;
        self.miss(target, first_us, last_us);
    }

    /// Takes what was noted since the last call.
    #[must_use]
    pub fn take_missed(&self) -> Missed {
        std::mem::take(&mut *self.missed.borrow_mut())
    }

    /// Since when the oldest hint waits for each node; microseconds. Until it is delivered its target lacks it.
    #[must_use]
    pub fn waiting_since(&self) -> BTreeMap<HostId, i64> {
        let targets = self.targets.borrow();
        let waiting = targets.iter().filter(|(_, target)| target.has_hints());
        // Without a whole header it is unknown when a file was begun.
        waiting
            .map(|(id, target)| (*id, target.oldest_us.unwrap_or(0)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(text: &str) -> Spans {
        let mut spans = Spans::default();
        for span in text.split_whitespace() {
            let (first, last) = span.split_once('-').expect("first-last");
            let number = |text: &str| text.parse().expect("a second");
            spans.add(number(first), number(last));
        }
        spans
    }

    fn text(spans: &Spans) -> String {
        let texts: Vec<String> = spans.iter().map(|s| format!("{}-{}", s.start(), s.end())).collect();
        texts.join(" ")
    }

    #[test]
    fn spans_that_overlap_or_touch_become_one() {
        for (added, expected) in [
            ("", ""),
            ("5-7", "5-7"),
            ("5-7 1-2", "1-2 5-7"),
            ("5-7 8-9", "5-9"),
            ("5-7 3-4", "3-7"),
            ("1-2 5-6 9-10 2-9", "1-10"),
            ("1-9 3-4", "1-9"),
            ("9-3", "9-9"),
            ("0-4294967295 7-8", "0-4294967295"),
        ] {
            assert_eq!(text(&spans(added)), expected, "{added}");
        }
    }

    #[test]
    fn above_the_limit_the_nearest_become_one_and_no_second_is_lost() {
        let mut spans = Spans::default();
        let seconds = (0..200u32).map(|n| n * 10 + n % 3);
        seconds.clone().for_each(|second| spans.add(second, second));
        assert_eq!(spans.iter().count(), SPANS_MAX);
        for second in seconds {
            assert!(spans.iter().any(|span| span.contains(&second)), "{second}");
        }
    }
}
