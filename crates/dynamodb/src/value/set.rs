//! Sets of strings, numbers or byte strings.

use std::cmp::Ordering;

use stdx::preempt;

/// Distinct elements in ascending order: equal sets are equal vectors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Set<T> {
    /// Strictly ascending.
    elements: Vec<T>,
}

impl<T: Ord> Set<T> {
    /// A set of elements in any order.
    ///
    /// # Errors
    /// The elements as they were, if two are equal.
    pub fn new(mut elements: Vec<T>) -> Result<Self, Vec<T>> {
        if !is_ascending(elements.iter()) {
            let mut sorted: Vec<&T> = preempt::collect(elements.iter());
            preempt::sort_by(&mut sorted, |a, b| a.cmp(b));
            if !is_ascending(sorted.into_iter()) {
                return Err(elements);
            }
            preempt::sort_by(&mut elements, T::cmp);
        }
        Ok(Self { elements })
    }

    /// A set of elements that are strictly ascending; `None` if they are not.
    pub fn from_ascending(elements: Vec<T>) -> Option<Self> {
        is_ascending(elements.iter()).then_some(Self { elements })
    }

    /// The elements, ascending.
    pub fn as_slice(&self) -> &[T] {
        &self.elements
    }

    /// The elements, ascending.
    pub fn into_vec(self) -> Vec<T> {
        self.elements
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// Whether there is no element; a value never has such a set.
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// Whether this is an element.
    pub fn contains(&self, element: &T) -> bool {
        self.elements.binary_search(element).is_ok()
    }

    /// Whether both have the same elements, with preemption points.
    pub fn equals(&self, other: &Self) -> bool {
        let mut pairs = self.elements.iter().zip(&other.elements);
        self.len() == other.len()
            && pairs.all(|(a, b)| {
                preempt::point();
                a == b
            })
    }

    /// The elements of both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        let mut elements = Vec::new();
        preempt::reserve(&mut elements, self.len() + other.len());
        let (mut left, mut right) = (
            self.elements.into_iter().peekable(),
            other.elements.into_iter().peekable(),
        );
        loop {
            preempt::point();
            let order = match (left.peek(), right.peek()) {
                (Some(a), Some(b)) => a.cmp(b),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return Self { elements },
            };
            if order.is_ge() {
                let next = right.next();
                if order.is_gt() {
                    elements.extend(next);
                }
            }
            if order.is_le() {
                elements.extend(left.next());
            }
        }
    }

    /// The elements that `other` does not have; may be empty.
    #[must_use]
    pub fn difference(mut self, other: &Self) -> Self {
        self.elements.retain(|element| {
            preempt::point();
            !other.contains(element)
        });
        self
    }
}

impl<T: Clone> Set<T> {
    /// A copy, with preemption points.
    pub fn copy(&self) -> Self {
        let elements = preempt::collect(self.elements.iter().cloned());
        Self { elements }
    }
}

fn is_ascending<'a, T: Ord + 'a>(mut elements: impl Iterator<Item = &'a T>) -> bool {
    let Some(mut last) = elements.next() else { return true };
    elements.all(|element| {
        preempt::point();
        let ascends = last < element;
        last = element;
        ascends
    })
}
