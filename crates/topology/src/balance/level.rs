//! Levelling: items go from bins that hold more than their share to bins that hold less. Bins are the nodes of a
//! datacenter or the shards of a node, items are copies of tablets.
//!
//! The emptiest bin gets an item from the fullest that has a suitable one, until all are near their shares or nothing
//! helps. An item of weight `w` goes from bin `a` to bin `b` only if that reduces the sum over all bins of `(held -
//! share)² / share`, which it does when `w (1/share_a + 1/share_b) < 2 (relative_a - relative_b)`. The heaviest item
//! that is neither more than `a` has too much nor more than `b` has too little goes first: no bin crosses its share
//! without need, so what it gives does not come back to it.
//!
//! Bins that exceed their share only give, the others only receive. So the difference between two bins shrinks only, a
//! pair that found nothing finds nothing later, and each pair is searched in vain once.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::planner::{mix, ordered};

pub(super) struct Bin {
    /// Which node or shard.
    pub(super) place: usize,
    /// Its rack. Bins of one group can always exchange items as far as groups go.
    pub(super) group: u32,
    pub(super) held: f64,
    pub(super) share: f64,
}

#[derive(Clone, Copy)]
pub(super) struct Item {
    pub(super) tablet: u32,
    pub(super) weight: f64,
}

/// What a level may do, and what it has done. Bins are identified by their place.
pub(super) trait Rules {
    fn may_give(&self, from: usize) -> bool;
    fn may_receive(&self, to: usize) -> bool;
    /// Whether an item may leave for some bin of a group.
    fn may_enter(&self, tablet: u32, from: usize, group: u32) -> bool;
    /// Whether an item may go to a bin. `back` is what comes back in exchange.
    fn may_move(&self, tablet: u32, from: usize, to: usize, back: Option<u32>) -> bool;
    fn moves(&mut self, tablet: u32, from: usize, to: usize);
    /// Whether two items may be exchanged when no single one helps.
    fn may_exchange(&self) -> bool;
}

/// About how many items are checked at most; a plan that has checked more is incomplete, and the next plan continues.
const QUESTIONS_MAX: u64 = 100_000_000;
/// An exchange moves at least this part of what the bins should give and receive: smaller ones would follow each other
/// for long.
const EXCHANGE_MIN: f64 = 0.5;
/// So many items of a bin, and so many partners of each, are tried for an exchange.
const EXCHANGES_TRIED: usize = 64;

/// How full a bin is, a hash that breaks ties, the bin.
type SourceKey = (Reverse<u64>, u64, usize);

struct Level<'r> {
    bins: Vec<Bin>,
    items: Vec<Shelf>,
    rules: &'r mut dyn Rules,
    near: f64,
    /// By group those that give, the fullest first.
    sources: Vec<(u32, BTreeSet<SourceKey>)>,
    /// The emptiest first.
    receivers: BTreeSet<(u64, u64, usize)>,
    closed: BTreeSet<(usize, usize)>,
    /// Bins and groups that can exchange something, or nothing.
    groups: BTreeMap<(usize, u32), bool>,
    questions: u64,
}

/// The items of a bin, the heaviest first. Those that are gone are skipped.
struct Shelf {
    items: Vec<Item>,
    /// For each item the next one that is there, itself included; paths are shortened as they are followed.
    next: Vec<u32>,
}

impl Shelf {
    fn new(mut items: Vec<Item>) -> Self {
        let tie = |item: &Item| mix(u64::from(item.tablet), 3);
        items.sort_by(|a, b| b.weight.total_cmp(&a.weight).then_with(|| tie(a).cmp(&tie(b))));
        let next = (0..=items.len() as u32).collect();
        Self { items, next }
    }

    /// The first item that is there, at this place or after it.
    fn at_or_behind(&mut self, at: usize) -> usize {
        let mut end = at;
        while self.next[end] as usize != end {
            end = self.next[end] as usize;
        }
        let mut walk = at;
        while self.next[walk] as usize != end && walk != end {
            walk = std::mem::replace(&mut self.next[walk], end as u32) as usize;
        }
        end
    }

    fn remove(&mut self, at: usize) {
        self.next[at] = at as u32 + 1;
    }

    /// The first place whose weight is at most this.
    fn at_most(&self, weight: f64) -> usize {
        self.items.partition_point(|item| item.weight > weight)
    }
}

/// Levels bins as far as the rules allow, until each is within `near` of its share, relative to it.
pub(super) fn level(bins: Vec<Bin>, items: Vec<Vec<Item>>, rules: &mut dyn Rules, near: f64) {
    let mut level = Level {
        items: items.into_iter().map(Shelf::new).collect(),
        rules,
        near,
        sources: Vec::new(),
        receivers: BTreeSet::new(),
        closed: BTreeSet::new(),
        groups: BTreeMap::new(),
        questions: 0,
        bins,
    };
    for at in 0..level.bins.len() {
        level.enter(at);
    }
    while level.questions < QUESTIONS_MAX && level.step() {}
}

impl Bin {
    pub(super) fn relative(&self) -> f64 {
        self.held / self.share - 1.0
    }
}

/// Whether some bin is further from its share.
pub(super) fn is_uneven(bins: &[Bin], far: f64) -> bool {
    bins.iter().any(|bin| bin.relative().abs() > far)
}

impl Level<'_> {
    fn enter(&mut self, at: usize) {
        let bin = &self.bins[at];
        let tie = mix(bin.place as u64, 4);
        let relative = bin.relative();
        if relative < 0.0 {
            self.receivers.insert((ordered(relative), tie, at));
            return;
        }
        let (key, group) = ((Reverse(ordered(relative)), tie, at), bin.group);
        match self.sources.iter_mut().find(|(g, _)| *g == group) {
            Some((_, set)) => {
                set.insert(key);
            }
            None => self.sources.push((group, [key].into())),
        }
    }

    /// Gives the emptiest bin an item, or gives the bin up. False when all is done.
    fn step(&mut self) -> bool {
        let Some((_, tie, to)) = self.receivers.pop_first() else {
            return false;
        };
        if !self.rules.may_receive(self.bins[to].place) {
            return true;
        }
        let mut order: Vec<(SourceKey, usize)> = Vec::with_capacity(self.sources.len());
        order.extend(
            self.sources
                .iter()
                .zip(0..)
                .filter_map(|((_, set), at)| Some((*set.first()?, at))),
        );
        order.sort_unstable();
        let is_far = self.bins[to].relative() < -self.near;
        let is_full = order
            .first()
            .is_some_and(|((_, _, at), _)| self.bins[*at].relative() > self.near);
        if !is_far && !is_full {
            return false;
        }
        if order
            .iter()
            .any(|(first, set)| self.fill_from(*set, *first, to, is_far))
        {
            self.receivers.insert((ordered(self.bins[to].relative()), tie, to));
        }
        true
    }

    /// Gives a bin an item of one of the bins of a group, the fullest first.
    fn fill_from(&mut self, set: usize, first: SourceKey, to: usize, is_far: bool) -> bool {
        let mut next = Some(first);
        while let Some(key @ (_, _, from)) = next {
            let relative = self.bins[from].relative();
            if relative <= self.bins[to].relative() || (!is_far && relative <= self.near) {
                return false;
            }
            if !self.rules.may_give(self.bins[from].place) {
                self.sources[set].1.remove(&key);
            } else if self.can_exchange(from, self.bins[to].group) && !self.closed.contains(&(from, to)) {
                if self.exchange(from, to, set, key) {
                    return true;
                }
                self.closed.insert((from, to));
            }
            let behind = (Bound::Excluded(key), Bound::Unbounded);
            next = self.sources[set].1.range(behind).next().copied();
        }
        false
    }

    /// Whether a bin has an item that may go to a group.
    fn can_exchange(&mut self, from: usize, group: u32) -> bool {
        if self.bins[from].group == group {
            return true;
        }
        if let Some(known) = self.groups.get(&(from, group)) {
            return *known;
        }
        let place = self.bins[from].place;
        let mut items = self.items[from].items.iter();
        self.questions += self.items[from].items.len() as u64;
        let can = items.any(|item| self.rules.may_enter(item.tablet, place, group));
        self.groups.insert((from, group), can);
        can
    }

    /// Moves the item that helps most from one bin to another, or exchanges two. False when nothing helps.
    fn exchange(&mut self, from: usize, to: usize, set: usize, key: SourceKey) -> bool {
        let (a, b) = (&self.bins[from], &self.bins[to]);
        let limit = 2.0 * (a.relative() - b.relative()) / (1.0 / a.share + 1.0 / b.share);
        // Rounding must not make a move look useful that is not.
        let limit = limit * (1.0 - 1e-6);
        let fitting = (a.held - a.share).min(b.share - b.held);
        let moved = match self.find(from, to, fitting.min(limit), limit) {
            Some(at) => {
                let weight = self.take(from, to, at);
                Some(weight)
            }
            None if self.rules.may_exchange() => self.find_exchange(from, to, fitting, limit).map(|(out, back)| {
                let weight = self.take(from, to, out);
                weight - self.take(to, from, back)
            }),
            None => None,
        };
        let Some(weight) = moved else { return false };
        self.sources[set].1.remove(&key);
        self.bins[from].held -= weight;
        self.bins[to].held += weight;
        let relative = self.bins[from].relative();
        self.sources[set].1.insert((Reverse(ordered(relative)), key.1, from));
        true
    }

    /// Takes an item off its shelf and moves it; returns its weight.
    fn take(&mut self, from: usize, to: usize, at: usize) -> f64 {
        let item = self.items[from].items[at];
        self.items[from].remove(at);
        self.rules
            .moves(item.tablet, self.bins[from].place, self.bins[to].place);
        item.weight
    }

    /// The heaviest item up to a fitting weight, else the lightest below the limit.
    fn find(&mut self, from: usize, to: usize, fitting: f64, limit: f64) -> Option<usize> {
        let (source, target) = (self.bins[from].place, self.bins[to].place);
        let shelf = &mut self.items[from];
        let first = shelf.at_most(fitting);
        let mut at = shelf.at_or_behind(first);
        while at < shelf.items.len() && shelf.items[at].weight > 0.0 {
            self.questions += 1;
            if self.rules.may_move(shelf.items[at].tablet, source, target, None) {
                return Some(at);
            }
            at = shelf.at_or_behind(at + 1);
        }
        for at in (0..first).rev() {
            let item = shelf.items[at];
            if item.weight >= limit {
                break;
            }
            self.questions += 1;
            if shelf.next[at] as usize == at && self.rules.may_move(item.tablet, source, target, None) {
                return Some(at);
            }
        }
        None
    }

    /// Two items whose exchange moves enough, and less than the limit.
    fn find_exchange(&mut self, from: usize, to: usize, fitting: f64, limit: f64) -> Option<(usize, usize)> {
        let (source, target) = (self.bins[from].place, self.bins[to].place);
        if !self.rules.may_give(target) || !self.rules.may_receive(source) {
            return None;
        }
        let mut out = self.items[from].at_or_behind(0);
        for _ in 0..EXCHANGES_TRIED {
            let given = self.items[from].items.get(out).copied()?;
            let shelf = &mut self.items[to];
            let heaviest = shelf.at_most(given.weight - fitting * EXCHANGE_MIN);
            let mut back = shelf.at_or_behind(heaviest);
            for _ in 0..EXCHANGES_TRIED {
                let Some(taken) = shelf.items.get(back).copied() else {
                    break;
                };
                let moved = given.weight - taken.weight;
                if moved >= limit {
                    break;
                }
                self.questions += 1;
                if self.rules.may_move(given.tablet, source, target, Some(taken.tablet))
                    && self.rules.may_move(taken.tablet, target, source, Some(given.tablet))
                {
                    return Some((out, back));
                }
                back = shelf.at_or_behind(back + 1);
            }
            out = self.items[from].at_or_behind(out + 1);
        }
        None
    }
}
