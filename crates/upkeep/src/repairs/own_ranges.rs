//! The ranges that a shard repairs, by up to when their replicas are known to be equal.
//!
//! They are kept between looks. A look costs a comparison of pointers for each table, each 1,024 tablets of a table
//! whose map is a new one, and the work for what has changed: 1,024 tablets for each that has other replicas, and a
//! step in a tree for each range that was repaired.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::ops::Range;
use std::sync::Arc;

use replica::TokenRange;
use topology::{Boundaries, Replica, TabletId, TabletMap};
use types::Token;

/// Up to which second the replicas of a range are known to be equal; 0: never.
pub(super) type RepairedUntil<'a> = &'a dyn Fn(TokenRange) -> u32;

/// Those of one table.
pub(super) struct OwnRanges {
    map: Arc<TabletMap>,
    here: Replica,
    /// By their last tokens.
    ranges: BTreeMap<Token, OwnRange>,
    by_second: BTreeSet<(u32, Token)>,
    never: u64,
    /// Tablets of maps that were looked at.
    looked_at: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OwnRange {
    after: Token,
    until: u32,
}

impl OwnRanges {
    /// Those of a shard, as the table's map has them.
    pub(super) fn new(map: &Arc<TabletMap>, here: Replica, until: RepairedUntil<'_>) -> Self {
        let mut own = Self {
            map: map.clone(),
            here,
            ranges: BTreeMap::new(),
            by_second: BTreeSet::new(),
            never: 0,
            looked_at: 0,
        };
        own.look_at_all(until);
        own
    }

    /// Follows the map, and the repairs of some ranges.
    pub(super) fn follow(&mut self, map: &Arc<TabletMap>, repaired: &[TokenRange], until: RepairedUntil<'_>) {
        let before = std::mem::replace(&mut self.map, map.clone());
        if !Arc::ptr_eq(&before, map) {
            match (map.changed_since(&before), map.boundaries()) {
                (Some(changed), Boundaries::PowerOfTwo(_)) => {
                    changed.into_iter().for_each(|ids| self.look_at(ids, until));
                }
                (Some(changed), _) if changed.is_empty() => {}
                // Neighbours of the token ring with the same owners are one range, so one change may be of many.
                _ => self.look_at_all(until),
            }
        }
        for changed in repaired {
            self.read_seconds(*changed, until);
        }
    }

    fn look_at_all(&mut self, until: RepairedUntil<'_>) {
        self.ranges.clear();
        self.by_second.clear();
        self.never = 0;
        self.look_at(0..self.map.tablet_count(), until);
    }

    /// Looks again at some tablets.
    fn look_at(&mut self, ids: Range<u32>, until: RepairedUntil<'_>) {
        self.looked_at += u64::from(ids.end - ids.start);
        let map = self.map.clone();
        let range_of = |id: u32| {
            let (after, to) = map.token_range(TabletId(id)).expect("the map has it");
            TokenRange { after, to }
        };
        if ids.is_empty() {
            return;
        }
        let (first, last) = (range_of(ids.start).after, range_of(ids.end - 1).to);
        let known: Vec<Token> = self.ends((first, last)).collect();
        known.into_iter().for_each(|end| self.remove(end));
        let is_ring = matches!(map.boundaries(), Boundaries::LastTokens(_));
        let mut open: Option<(TokenRange, u32)> = None;
        for id in ids {
            let Some(tablet) = map.tablet(TabletId(id)) else {
                continue;
            };
            let replicas = tablet.read_replicas();
            if replicas.first() != Some(&self.here) || replicas.len() < 2 {
                continue;
            }
            let range = range_of(id);
            match &mut open {
                Some((whole, last)) if is_ring && whole.to == range.after && self.has_same_owners(*last, id) => {
                    whole.to = range.to;
                    *last = id;
                }
                open => {
                    let before = open.replace((range, id));
                    before.into_iter().for_each(|(whole, _)| self.insert(whole, until));
                }
            }
        }
        open.into_iter().for_each(|(whole, _)| self.insert(whole, until));
    }

    fn has_same_owners(&self, one: u32, other: u32) -> bool {
        let of = |id: u32| self.map.tablet(TabletId(id));
        let same = of(one).zip(of(other)).map(|(one, other)| {
            one.read_replicas() == other.read_replicas() && one.transition.is_some() == other.transition.is_some()
        });
        same.unwrap_or(false)
    }

    /// Asks again for the seconds of the ranges that have any of these tokens.
    fn read_seconds(&mut self, changed: TokenRange, until: RepairedUntil<'_>) {
        if changed.after >= changed.to {
            return;
        }
        let from = self.ranges.range((Excluded(changed.after), Unbounded));
        let touched: Vec<TokenRange> = from
            .map(|(to, range)| TokenRange {
                after: range.after,
                to: *to,
            })
            .take_while(|range| range.after < changed.to)
            .collect();
        for range in touched {
            self.remove(range.to);
            self.insert(range, until);
        }
    }

    /// The last tokens of ranges that are greater than the first token and at most the second.
    fn ends(&self, (after, to): (Token, Token)) -> impl Iterator<Item = Token> {
        self.ranges.range((Excluded(after), Included(to))).map(|(end, _)| *end)
    }

    fn insert(&mut self, range: TokenRange, until: RepairedUntil<'_>) {
        let second = until(range);
        self.never += u64::from(second == 0);
        self.by_second.insert((second, range.to));
        let own = OwnRange {
            after: range.after,
            until: second,
        };
        self.ranges.insert(range.to, own);
    }

    fn remove(&mut self, end: Token) {
        if let Some(range) = self.ranges.remove(&end) {
            self.never -= u64::from(range.until == 0);
            self.by_second.remove(&(range.until, end));
        }
    }

    /// How many there are whose replicas were never equal.
    pub(super) fn never(&self) -> u64 {
        self.never
    }

    /// The second of the range that was repaired longest ago, of those that were.
    pub(super) fn oldest(&self) -> Option<u32> {
        self.by_second
            .range((1, Token::MIN)..)
            .next()
            .map(|(second, _)| *second)
    }

    /// Those whose replicas are known to be equal up to an earlier second than this, with that second: the earliest
    /// first.
    pub(super) fn before(&self, second: u32) -> impl Iterator<Item = (u32, TokenRange)> {
        let due = self.by_second.range(..(second, Token::MIN));
        due.filter_map(|(until, to)| {
            let range = self.ranges.get(to)?;
            let range = TokenRange {
                after: range.after,
                to: *to,
            };
            Some((*until, range))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use topology::{NodeNumber, ReplicaList, TabletChange, TabletEdit};

    use super::*;

    const HERE: Replica = Replica {
        node: NodeNumber(1),
        shard: 0,
    };
    const TABLETS: u32 = 1 << 17;

    fn replicas(first: u16) -> ReplicaList {
        let replica = |node: u16| Replica {
            node: NodeNumber(node),
            shard: 0,
        };
        (0..3).map(|n| replica((first + n) % 3)).collect()
    }

    fn map() -> Arc<TabletMap> {
        let sets: Vec<ReplicaList> = (0..TABLETS)
            .map(|id| replicas(u16::try_from(id % 3).expect("small")))
            .collect();
        Arc::new(TabletMap::new(1, Boundaries::PowerOfTwo(17), &sets).expect("a sound map"))
    }

    fn moved(map: &TabletMap, tablet: u32, first: u16) -> Arc<TabletMap> {
        let mut map = map.clone();
        let change = TabletChange {
            from_version: map.version(),
            version: map.version() + 1,
            edits: vec![TabletEdit {
                tablet: TabletId(tablet),
                replicas: replicas(first),
                transition: None,
            }],
        };
        map.apply(&change).expect("it follows");
        Arc::new(map)
    }

    fn range(map: &TabletMap, tablet: u32) -> TokenRange {
        let (after, to) = map.token_range(TabletId(tablet)).expect("it is there");
        TokenRange { after, to }
    }

    /// What a shard looked at before, at each scrape and at each look for what is due.
    fn all_in_one_pass(map: &TabletMap, until: RepairedUntil<'_>) -> Vec<(u32, TokenRange)> {
        let own = map
            .tablets()
            .filter(|tablet| tablet.read_replicas().first() == Some(&HERE));
        let mut all: Vec<(u32, TokenRange)> = own
            .map(|tablet| range(map, tablet.id.0))
            .map(|range| (until(range), range))
            .collect();
        all.sort_by_key(|(second, range)| (*second, range.to));
        all
    }

    #[test]
    fn a_look_costs_what_has_changed_of_many_tablets() {
        let map = map();
        let seconds: RefCell<BTreeMap<Token, u32>> = RefCell::default();
        let until = |range: TokenRange| seconds.borrow().get(&range.to).copied().unwrap_or(0);
        let mut own = OwnRanges::new(&map, HERE, &until);
        assert_eq!(own.looked_at, u64::from(TABLETS));
        assert_eq!((own.never(), own.oldest()), (u64::from(TABLETS).div_ceil(3), None));
        // Nothing changed, then a range is repaired, then two.
        own.follow(&map, &[], &until);
        for (tablet, second) in [(1, 50), (4, 30), (1, 60)] {
            seconds.borrow_mut().insert(range(&map, tablet).to, second);
            own.follow(&map, &[range(&map, tablet)], &until);
        }
        assert_eq!(own.looked_at, u64::from(TABLETS));
        assert_eq!(
            (own.never(), own.oldest()),
            (u64::from(TABLETS).div_ceil(3) - 2, Some(30))
        );
        // A tablet moves to another node first, and one arrives.
        let changed = moved(&moved(&map, 4, 2), 100_001, 1);
        own.follow(&changed, &[], &until);
        assert_eq!(own.looked_at, u64::from(TABLETS) + 2 * 1_024);
        assert_eq!(own.oldest(), Some(60));
        assert!(own.before(u32::MAX).eq(all_in_one_pass(&changed, &until)));
        assert_eq!(own.before(60).count() as u64, own.never());
    }

    #[test]
    fn what_covers_many_ranges_changes_all_of_them() {
        let map = map();
        let second = std::cell::Cell::new(7);
        let until = |_: TokenRange| second.get();
        let mut own = OwnRanges::new(&map, HERE, &until);
        second.set(9);
        let (first, last) = (range(&map, 10), range(&map, 20));
        let changed = TokenRange {
            after: first.after,
            to: Token(last.after.0 + 1),
        };
        own.follow(&map, &[changed], &until);
        let of_nine = own.before(u32::MAX).filter(|(second, _)| *second == 9);
        assert_eq!(of_nine.count(), (10..=20).filter(|id| id % 3 == 1).count());
        own.follow(&map, &[TokenRange::ALL], &until);
        assert_eq!((own.oldest(), own.never()), (Some(9), 0));
    }

    #[test]
    fn a_map_with_other_boundaries_is_looked_at_anew() {
        let until = |_: TokenRange| 0;
        let mut own = OwnRanges::new(&map(), HERE, &until);
        let halves = [replicas(1), replicas(0)];
        let halves = Arc::new(TabletMap::new(2, Boundaries::PowerOfTwo(1), &halves).expect("a sound map"));
        own.follow(&halves, &[], &until);
        assert!(own.before(1).eq([(0, range(&halves, 0))]));
    }

    /// Neighbours of the token ring with the same owners are repaired as one.
    #[test]
    fn ranges_of_the_ring_with_the_same_owners_are_one() {
        let until = |_: TokenRange| 0;
        let ends: Arc<[Token]> = [-5, 0, 5, i64::MAX].map(Token).into();
        let sets = [replicas(1), replicas(1), replicas(0), replicas(1)];
        let map = Arc::new(TabletMap::new(1, Boundaries::LastTokens(ends), &sets).expect("a sound map"));
        let own = OwnRanges::new(&map, HERE, &until);
        let found: Vec<(i64, i64)> = own.before(1).map(|(_, range)| (range.after.0, range.to.0)).collect();
        assert_eq!(found, [(i64::MIN, 0), (5, i64::MAX)]);
    }
}
