//! A vector whose length a client chooses.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::preempt;

/// Up to so many elements are dropped without preemption points.
const SHORT: usize = 32;

/// A vector that grows and is dropped with preemption points ([`preempt::point`]).
#[derive(Clone, PartialEq, Eq)]
pub struct LongVec<T>(Vec<T>);

impl<T> LongVec<T> {
    /// Without elements.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Appends an element, as [`preempt::push`] does.
    #[inline]
    pub fn push(&mut self, item: T) {
        preempt::push(&mut self.0, item);
    }

    /// Appends elements, with a preemption point after each.
    pub fn extend(&mut self, items: impl IntoIterator<Item = T>) {
        let items = items.into_iter();
        preempt::reserve(&mut self.0, items.size_hint().0);
        for item in items {
            self.push(item);
            preempt::point();
        }
    }

    /// The elements as a vector, which is dropped without preemption points.
    #[must_use]
    pub fn into_vec(mut self) -> Vec<T> {
        std::mem::take(&mut self.0)
    }
}

impl<T: fmt::Debug> fmt::Debug for LongVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> Default for LongVec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for LongVec<T> {
    #[inline]
    fn drop(&mut self) {
        // A stack that unwinds is not left.
        if self.0.len() > SHORT && !std::thread::panicking() {
            preempt::drop_each(std::mem::take(&mut self.0));
        }
    }
}

impl<T> Deref for LongVec<T> {
    type Target = Vec<T>;

    #[inline]
    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T> DerefMut for LongVec<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.0
    }
}

impl<T> From<Vec<T>> for LongVec<T> {
    fn from(items: Vec<T>) -> Self {
        Self(items)
    }
}

impl<T> FromIterator<T> for LongVec<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self(preempt::collect(items.into_iter()))
    }
}

impl<T> IntoIterator for LongVec<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.into_vec().into_iter()
    }
}

impl<'a, T> IntoIterator for &'a LongVec<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static REACHED: Cell<u32> = const { Cell::new(0) };
    }

    #[test]
    fn a_long_vector_is_dropped_with_preemption_points_and_a_short_one_is_not() {
        let reached_by_drop_of = |len: u32| {
            let mut items = LongVec::new();
            items.extend(0..len);
            assert!(items.iter().copied().eq(0..len));
            let hook: Option<fn()> = Some(|| REACHED.set(REACHED.get() + 1));
            REACHED.set(0);
            preempt::offer(hook, || preempt::allowed(|| drop(items)));
            REACHED.get()
        };
        assert_eq!(reached_by_drop_of(SHORT as u32), 0);
        assert!(reached_by_drop_of(1000) > 10);
    }
}
