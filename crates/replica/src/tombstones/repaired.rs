//! Up to when repairs have made the replicas of a table's tokens equal, and what is kept while one runs.

use std::rc::Rc;

use schema::TableId;

use crate::shard::Shard;
use crate::tablets::tablet::{TableStore, TokenRange};

/// A second for each range of tokens, the ranges disjoint and in order. What is in none has second 0.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct RepairedRanges(Vec<(TokenRange, u32)>);

impl RepairedRanges {
    /// All replicas of the range are equal up to a second; where they are known to be up to a later one, that stays.
    pub(crate) fn note(&mut self, range: TokenRange, second: u32) {
        if range.to <= range.after {
            return;
        }
        // Those that meet the range or touch it; the others stay.
        let first = self.0.partition_point(|(known, _)| known.to < range.after);
        let end = self.0.partition_point(|(known, _)| known.after <= range.to).max(first);
        let mut next: Vec<(TokenRange, u32)> = Vec::with_capacity(end - first + 2);
        let mut after = range.after;
        let mut put = |range: TokenRange, second: u32| match next.last_mut() {
            Some((last, same)) if last.to == range.after && *same == second => last.to = range.to,
            _ if range.after < range.to => next.push((range, second)),
            _ => {}
        };
        for (known, before) in &self.0[first..end] {
            let cut = |token: types::Token| token.max(known.after).min(known.to);
            let (first, last) = (cut(range.after), cut(range.to));
            let part = |after, to| TokenRange { after, to };
            if known.after >= range.to {
                put(part(after.min(range.to), range.to), second);
                after = range.to;
                put(*known, *before);
                continue;
            }
            put(part(known.after, first), *before);
            put(part(after, first.max(after)), second);
            put(part(first, last), second.max(*before));
            after = after.max(last);
            if last == range.to {
                put(part(last, known.to), *before);
            }
        }
        put(
            TokenRange {
                after,
                to: range.to.max(after),
            },
            second,
        );
        self.0.splice(first..end, next);
    }

    /// Up to which second all tokens of a range are known to be equal.
    pub(crate) fn until(&self, range: TokenRange) -> u32 {
        let mut after = range.after;
        let mut until = u32::MAX;
        let first = self.0.partition_point(|(known, _)| known.to <= range.after);
        for (known, second) in self.0[first..].iter().take_while(|(known, _)| known.after < range.to) {
            if known.after > after {
                return 0;
            }
            until = until.min(*second);
            after = known.to;
        }
        if after >= range.to { until } else { 0 }
    }
}

/// As many changed ranges are remembered one by one.
const CHANGES_MAX: usize = 1_024;

/// Keeps what is deleted from a second on, while it lives.
pub struct PurgeHold {
    store: Rc<TableStore>,
    number: u64,
}

impl Drop for PurgeHold {
    fn drop(&mut self) {
        let mut holds = self.store.purge_holds.borrow_mut();
        holds.retain(|(number, _, _)| *number != self.number);
    }
}

impl TableStore {
    /// Keeps the tombstones of deletions that are made from a second on, while the guard lives: a task that carries
    /// rows which were read before could bring back what they delete.
    #[must_use]
    pub fn hold_purges(self: &Rc<Self>, range: TokenRange, from: u32) -> PurgeHold {
        let mut holds = self.purge_holds.borrow_mut();
        let number = holds.last().map_or(0, |(number, _, _)| number + 1);
        holds.push((number, range, from));
        drop(holds);
        PurgeHold {
            store: Rc::clone(self),
            number,
        }
    }

    /// From which second on deletions of any of these tokens are kept.
    pub(crate) fn purges_held_from(&self, range: TokenRange) -> u32 {
        let holds = self.purge_holds.borrow();
        let of_range = holds.iter().filter(|(_, held, _)| held.intersects(range));
        of_range.map(|(_, _, from)| *from).min().unwrap_or(u32::MAX)
    }

    /// Up to which second a repair has made all replicas of these tokens equal; 0: none has.
    pub fn repaired_until(&self, range: TokenRange) -> u32 {
        self.repaired.borrow().until(range)
    }

    /// Up to which second repairs have compared all replicas of these tokens: by this the next repair is due. 0: none
    /// has.
    pub fn compared_until(&self, range: TokenRange) -> u32 {
        self.compared.borrow().until(range)
    }

    /// The tokens for which [`TableStore::compared_until`] may return another second than when this was called last:
    /// for one caller that keeps the seconds of its ranges.
    pub fn take_repaired_changes(&self) -> Vec<TokenRange> {
        self.repaired_changes.take()
    }

    fn note_repaired(&self, repaired: &RepairedRange) {
        let range = repaired.range;
        self.repaired.borrow_mut().note(range, repaired.until);
        self.compared.borrow_mut().note(range, repaired.compared);
        let mut changes = self.repaired_changes.borrow_mut();
        if changes.len() < CHANGES_MAX {
            changes.push(range)
        } else {
            *changes = vec![TokenRange::ALL]
        }
    }
}

/// A range of a table whose replicas a repair has made equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RepairedRange {
    /// The table.
    pub table: TableId,
    /// Its tokens.
    pub range: TokenRange,
    /// All replicas have what was written before this second: nothing older was on its way to any of them when the
    /// repair began.
    pub until: u32,
    /// The repair began so late that it compared what was written before this second, if it had arrived.
    pub compared: u32,
}

impl RepairedRange {
    /// A range that was repaired when nothing older than `until` was on its way.
    #[must_use]
    pub fn new(table: TableId, range: TokenRange, until: u32) -> Self {
        Self {
            table,
            range,
            until,
            compared: until,
        }
    }
}

impl Shard {
    /// Notes that a repair has made all replicas of a range equal. The shard does not remember it over a restart.
    pub fn note_repaired(&self, repaired: &RepairedRange) {
        if let Some(store) = self.store(repaired.table) {
            store.note_repaired(repaired);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(ranges: &RepairedRanges) -> Vec<(i64, i64, u32)> {
        let parts = ranges.0.iter();
        parts
            .map(|(range, second)| (range.after.0, range.to.0, *second))
            .collect()
    }

    #[test]
    fn a_range_is_equal_up_to_the_oldest_repair_of_its_tokens() {
        let mut ranges = RepairedRanges::default();
        assert_eq!(ranges.until(TokenRange::of(0, 10)), 0, "nothing was repaired");
        ranges.note(TokenRange::of(0, 10), 5);
        ranges.note(TokenRange::of(20, 30), 7);
        assert_eq!(shown(&ranges), [(0, 10, 5), (20, 30, 7)]);
        assert_eq!(
            (ranges.until(TokenRange::of(2, 10)), ranges.until(TokenRange::of(2, 11))),
            (5, 0)
        );
        assert_eq!(ranges.until(TokenRange::of(5, 25)), 0, "there is a gap");
        ranges.note(TokenRange::of(5, 25), 6);
        assert_eq!(
            shown(&ranges),
            [(0, 5, 5), (5, 20, 6), (20, 30, 7)],
            "the later of both stays"
        );
        assert_eq!(
            (ranges.until(TokenRange::of(0, 30)), ranges.until(TokenRange::of(6, 30))),
            (5, 6)
        );
        ranges.note(TokenRange::of(-10, 40), 9);
        assert_eq!(shown(&ranges), [(-10, 40, 9)]);
        ranges.note(TokenRange::of(0, 1), 4);
        ranges.note(TokenRange::of(3, 3), 10);
        assert_eq!(
            shown(&ranges),
            [(-10, 40, 9)],
            "nothing older, and nothing of no token, changes it"
        );
        ranges.note(TokenRange::of(50, 60), 1);
        ranges.note(TokenRange::of(41, 45), 2);
        assert_eq!(shown(&ranges), [(-10, 40, 9), (41, 45, 2), (50, 60, 1)]);
    }

    /// A walk over all ranges for each would take minutes.
    #[test]
    fn each_of_131_072_tablets_is_noted_and_found_without_a_walk_over_all() {
        let mut ranges = RepairedRanges::default();
        let tablet = |number: i64| TokenRange::of(number * 10, number * 10 + 10);
        // No two neighbours have the same second.
        let second = |number: i64| 5 + (number % 2) as u32;
        for number in 0..131_072 {
            ranges.note(tablet(number), second(number));
        }
        assert_eq!(ranges.0.len(), 131_072);
        for number in 0..131_072 {
            ranges.note(tablet(number), second(number) + 10);
            assert_eq!(ranges.until(tablet(number)), second(number) + 10);
        }
        assert_eq!(ranges.until(TokenRange::of(0, 1_310_720)), 15);
        assert_eq!(ranges.until(TokenRange::of(-1, 10)), 0);
    }

    #[test]
    fn many_repairs_are_remembered_as_one_by_one_tokens_would_be() {
        let mut state = 7_u64;
        let mut random = move |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let (mut ranges, mut expected) = (RepairedRanges::default(), [0_u32; 64]);
        for _ in 0..2_000 {
            let (from, length, second) = (random(60) as usize, random(8) as usize, random(1_000) as u32 + 1);
            let to = (from + length).min(64);
            ranges.note(TokenRange::of(from as i64, to as i64), second);
            expected[from..to]
                .iter_mut()
                .for_each(|known| *known = second.max(*known));
            let (from, to) = (random(32) as usize, 33 + random(31) as usize);
            let least = expected[from..to].iter().min();
            assert_eq!(Some(&ranges.until(TokenRange::of(from as i64, to as i64))), least);
        }
    }
}
