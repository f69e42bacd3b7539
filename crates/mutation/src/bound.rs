//! Places between the rows of a partition.
//!
//! A bound is a clustering prefix and a side: before everything that starts with the prefix, or after it. So the same
//! value serves as an inclusive start (before) or exclusive start (after), as an exclusive end (before) or inclusive
//! end (after), and two adjacent ranges share one bound.

use std::cmp::Ordering;

use schema::{ClusteringOrder, components};

/// Which side of its prefix a bound is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum BoundKind {
    /// Before every row that starts with the prefix.
    Before,
    /// After every row that starts with the prefix.
    After,
}

impl BoundKind {
    fn weight(self) -> Ordering {
        match self {
            Self::Before => Ordering::Less,
            Self::After => Ordering::Greater,
        }
    }
}

/// A place between rows.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct Bound {
    /// Serialised clustering prefix, possibly empty.
    pub prefix: Box<[u8]>,
    /// The side.
    pub kind: BoundKind,
}

impl Bound {
    /// Before every row of a partition.
    pub fn bottom() -> Self {
        Self {
            prefix: Box::default(),
            kind: BoundKind::Before,
        }
    }

    /// After every row of a partition.
    pub fn top() -> Self {
        Self {
            prefix: Box::default(),
            kind: BoundKind::After,
        }
    }

    /// Just before everything that starts with `prefix`.
    pub fn before(prefix: &[u8]) -> Self {
        Self {
            prefix: prefix.into(),
            kind: BoundKind::Before,
        }
    }

    /// Just after everything that starts with `prefix`.
    pub fn after(prefix: &[u8]) -> Self {
        Self {
            prefix: prefix.into(),
            kind: BoundKind::After,
        }
    }

    /// The order of this bound relative to a whole clustering key. Never equal.
    #[inline]
    pub fn compare_key(&self, order: &ClusteringOrder, key: &[u8]) -> Ordering {
        if self.prefix.is_empty() {
            return self.kind.weight();
        }
        order.compare(&self.prefix, key).then(self.kind.weight())
    }

    /// The order of two bounds.
    pub fn compare(&self, order: &ClusteringOrder, other: &Self) -> Ordering {
        let by_prefix = order.compare(&self.prefix, &other.prefix);
        if by_prefix != Ordering::Equal {
            return by_prefix;
        }
        let (a, b) = (components(&self.prefix).count(), components(&other.prefix).count());
        match a.cmp(&b) {
            Ordering::Equal => self.kind.cmp(&other.kind),
            Ordering::Less => self.kind.weight(),
            Ordering::Greater => other.kind.weight().reverse(),
        }
    }
}

/// The rows between two bounds of a partition.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct ClusteringSlice {
    /// Where it begins.
    pub start: Bound,
    /// Where it ends.
    pub end: Bound,
}

impl ClusteringSlice {
    /// Every row.
    pub fn all() -> Self {
        Self {
            start: Bound::bottom(),
            end: Bound::top(),
        }
    }

    /// Exactly the rows that start with `prefix`.
    pub fn exactly(prefix: &[u8]) -> Self {
        Self {
            start: Bound::before(prefix),
            end: Bound::after(prefix),
        }
    }

    /// Whether a row with this clustering key is inside.
    #[inline]
    pub fn contains(&self, order: &ClusteringOrder, key: &[u8]) -> bool {
        self.start.compare_key(order, key) == Ordering::Less && self.end.compare_key(order, key) == Ordering::Greater
    }

    /// Whether a row with this clustering key is inside one of these slices, which are in order and disjoint.
    pub fn any_contains(slices: &[Self], order: &ClusteringOrder, key: &[u8]) -> bool {
        let begun = slices.partition_point(|slice| slice.start.compare_key(order, key).is_lt());
        let last = begun.checked_sub(1).and_then(|last| slices.get(last));
        last.is_some_and(|last| last.end.compare_key(order, key).is_gt())
    }

    /// Joins slices that overlap or touch, so that the same rows are covered by disjoint slices in order.
    #[must_use]
    pub fn joined(mut slices: Vec<Self>, order: &ClusteringOrder) -> Vec<Self> {
        stdx::preempt::sort_by(&mut slices, |a, b| a.start.compare(order, &b.start));
        let mut joined: Vec<Self> = Vec::with_capacity(slices.len());
        for slice in slices {
            stdx::preempt::point();
            match joined.last_mut() {
                Some(last) if slice.start.compare(order, &last.end) != Ordering::Greater => {
                    if slice.end.compare(order, &last.end) == Ordering::Greater {
                        last.end = slice.end;
                    }
                }
                _ => joined.push(slice),
            }
        }
        joined
    }

    /// Whether nothing can be inside.
    pub fn is_empty(&self, order: &ClusteringOrder) -> bool {
        self.start.compare(order, &self.end) != Ordering::Less
    }
}
