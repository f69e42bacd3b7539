//! The range tombstones of one partition: sorted, never overlapping.
//!
//! Where two deletions overlap only the stronger is kept, so a reader finds the one that covers a row by one search
//! and its memory is bounded by the number of distinct bounds. Equal neighbours are joined.

use std::cmp::Ordering;

use schema::ClusteringOrder;

use crate::{Bound, ClusteringSlice, Tombstone};

/// Deletes the rows between two bounds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeTombstone {
    /// Where it begins.
    pub start: Bound,
    /// Where it ends.
    pub end: Bound,
    /// What it deletes there.
    pub tombstone: Tombstone,
}

/// The deletion among sorted, disjoint ones that covers a row, or none.
pub(crate) fn covering(sorted: &[RangeTombstone], order: &ClusteringOrder, key: &[u8]) -> Tombstone {
    let i = sorted.partition_point(|r| r.start.compare_key(order, key) == Ordering::Less);
    match i.checked_sub(1).map(|i| &sorted[i]) {
        Some(r) if r.end.compare_key(order, key) == Ordering::Greater => r.tombstone,
        _ => Tombstone::NONE,
    }
}

impl RangeTombstone {
    /// The bytes that it takes in memory.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.start.prefix.len() + self.end.prefix.len()
    }
}

/// Sorted, disjoint range tombstones.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RangeTombstoneList {
    list: Vec<RangeTombstone>,
}

impl RangeTombstoneList {
    /// A list that is sorted and disjoint already, as blocks carry it.
    pub fn from_sorted(list: Vec<RangeTombstone>) -> Self {
        Self { list }
    }

    /// In order.
    pub fn as_slice(&self) -> &[RangeTombstone] {
        &self.list
    }

    /// In order.
    pub fn into_vec(self) -> Vec<RangeTombstone> {
        self.list
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Adds a deletion; where it overlaps others the stronger stays. An empty range adds nothing.
    pub fn add(&mut self, order: &ClusteringOrder, new: RangeTombstone) {
        self.add_counted(order, new);
    }

    /// As [`Self::add`]. Returns by how many bytes the list has grown, which may be negative.
    pub fn add_counted(&mut self, order: &ClusteringOrder, new: RangeTombstone) -> isize {
        let less = |a: &Bound, b: &Bound| a.compare(order, b) == Ordering::Less;
        if !less(&new.start, &new.end) {
            return 0;
        }
        // Neighbours that only touch are taken too, so that equal ones can be joined.
        let from = self.list.partition_point(|o| less(&o.end, &new.start));
        let to = self.list.partition_point(|o| !less(&new.end, &o.start));
        let mut pieces: Vec<RangeTombstone> = Vec::with_capacity(to - from + 2);
        let mut push = |start: &Bound, end: &Bound, tombstone: Tombstone| {
            if !less(start, end) {
                return;
            }
            if let Some(last) = pieces.last_mut()
                && last.tombstone == tombstone
                && last.end == *start
            {
                last.end = end.clone();
                return;
            }
            pieces.push(RangeTombstone {
                start: start.clone(),
                end: end.clone(),
                tombstone,
            });
        };
        let mut at = new.start.clone();
        for old in &self.list[from..to] {
            if less(&old.start, &new.start) {
                let end = if less(&old.end, &new.start) {
                    &old.end
                } else {
                    &new.start
                };
                push(&old.start, end, old.tombstone);
            }
            if less(&at, &old.start) {
                let end = if less(&old.start, &new.end) {
                    &old.start
                } else {
                    &new.end
                };
                push(&at, end, new.tombstone);
                at = end.clone();
            }
            let end = if less(&old.end, &new.end) { &old.end } else { &new.end };
            if less(&at, end) {
                push(&at, end, old.tombstone.merge(new.tombstone));
                at = end.clone();
            }
            if less(&new.end, &old.end) {
                if less(&at, &new.end) {
                    push(&at, &new.end, new.tombstone);
                    at = new.end.clone();
                }
                let start = if less(&new.end, &old.start) {
                    &old.start
                } else {
                    &new.end
                };
                push(start, &old.end, old.tombstone);
            }
        }
        if less(&at, &new.end) {
            push(&at, &new.end, new.tombstone);
        }
        let bytes = |ranges: &[RangeTombstone]| ranges.iter().map(RangeTombstone::bytes).sum::<usize>();
        let grown = bytes(&pieces).wrapping_sub(bytes(&self.list[from..to])).cast_signed();
        self.list.splice(from..to, pieces);
        grown
    }

    /// The deletion that covers a row, or none.
    pub fn covering(&self, order: &ClusteringOrder, key: &[u8]) -> Tombstone {
        covering(&self.list, order, key)
    }

    /// The parts that lie inside a slice, cut at its bounds.
    pub fn within<'a>(
        &'a self,
        order: &'a ClusteringOrder,
        slice: &'a ClusteringSlice,
    ) -> impl Iterator<Item = RangeTombstone> + 'a {
        let from = self
            .list
            .partition_point(|r| r.end.compare(order, &slice.start) != Ordering::Greater);
        self.list[from..]
            .iter()
            .take_while(|r| r.start.compare(order, &slice.end) == Ordering::Less)
            .map(|r| {
                stdx::preempt::point();
                let start = if r.start.compare(order, &slice.start) == Ordering::Less {
                    &slice.start
                } else {
                    &r.start
                };
                let end = if r.end.compare(order, &slice.end) == Ordering::Greater {
                    &slice.end
                } else {
                    &r.end
                };
                RangeTombstone {
                    start: start.clone(),
                    end: end.clone(),
                    tombstone: r.tombstone,
                }
            })
    }
}
