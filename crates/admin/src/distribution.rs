//! How many values there are of each size.

use std::collections::BTreeMap;

use crate::operator::percentile;

/// Values, counted in buckets: what a histogram says at one moment, or several together.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Distribution {
    /// The count of each bucket that has any value, by the greatest value of the bucket.
    pub buckets: BTreeMap<u64, u64>,
    /// The sum of all values.
    pub sum: u64,
}

impl Distribution {
    /// Adds values: buckets by their greatest value, and the sum.
    pub fn add(&mut self, buckets: impl IntoIterator<Item = (u64, u64)>, sum: u64) {
        for (last, count) in buckets.into_iter().filter(|(_, count)| *count > 0) {
            *self.buckets.entry(last).or_default() += count;
        }
        self.sum = self.sum.saturating_add(sum);
    }

    /// Adds those of another.
    pub fn merge(&mut self, other: Self) {
        self.add(other.buckets, other.sum);
    }

    /// How many values there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.values().sum()
    }

    /// A value that this part of the values does not exceed; 0 when there are none.
    #[must_use]
    pub fn percentile(&self, part: f64) -> u64 {
        percentile(&self.buckets, part)
    }

    /// The least value, or the greatest one of its bucket; 0 when there are none.
    #[must_use]
    pub fn min(&self) -> u64 {
        self.buckets.keys().next().copied().unwrap_or(0)
    }

    /// The greatest value, or the greatest one of its bucket; 0 when there are none.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.buckets.keys().next_back().copied().unwrap_or(0)
    }

    /// The mean; 0 when there are no values.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a mean is shown with a few digits")]
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.count().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_distributions_together_are_that_of_all_values() {
        let mut all = Distribution::default();
        assert_eq!((all.count(), all.min(), all.max(), all.percentile(0.5)), (0, 0, 0, 0));
        assert!(all.mean().abs() < 1e-9, "nothing was counted");
        all.add([(1, 0), (10, 3)], 24);
        let mut other = Distribution::default();
        other.add([(10, 1), (100, 4)], 326);
        all.merge(other);
        assert_eq!(
            all.buckets,
            BTreeMap::from([(10, 4), (100, 4)]),
            "an empty bucket is none"
        );
        assert_eq!((all.count(), all.min(), all.max()), (8, 10, 100));
        assert!((all.mean() - 43.75).abs() < 1e-9);
        assert_eq!((all.percentile(0.5), all.percentile(0.51)), (10, 100));
    }
}
