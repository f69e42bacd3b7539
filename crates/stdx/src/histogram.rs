//! Counts of values by size, for latencies: buckets that grow with the value, as HdrHistogram has them.
//!
//! Values below 2^`FINE_BITS` have a bucket each; above, each power of two is cut into 2^`FINE_BITS` buckets. So a
//! bucket is at most 1/2^`FINE_BITS` of its values wide, and finding it is a shift and an addition. The last of the
//! `BUCKETS` counts all greater values too. Counts are cells, because they belong to one shard.
//! docs/decisions/0010 compares a library.

use std::cell::Cell;

/// See the module. [`buckets_of`] says how many buckets hold all values of so many bits.
#[derive(Clone, Debug)]
pub struct Histogram<const FINE_BITS: u32, const BUCKETS: usize> {
    counts: [Cell<u64>; BUCKETS],
    sum: Cell<u64>,
}

/// The buckets that values of up to `bits` bits fall into.
#[must_use]
pub const fn buckets_of(fine_bits: u32, bits: u32) -> usize {
    ((bits - fine_bits + 1) as usize) << fine_bits
}

impl<const FINE_BITS: u32, const BUCKETS: usize> Default for Histogram<FINE_BITS, BUCKETS> {
    fn default() -> Self {
        Self {
            counts: [const { Cell::new(0) }; BUCKETS],
            sum: Cell::new(0),
        }
    }
}

impl<const FINE_BITS: u32, const BUCKETS: usize> Histogram<FINE_BITS, BUCKETS> {
    #[inline]
    fn bucket(value: u64) -> usize {
        let shift = value.checked_ilog2().unwrap_or(0).saturating_sub(FINE_BITS);
        let at = (u64::from(shift) << FINE_BITS) + (value >> shift);
        // At most 65 << FINE_BITS.
        (at as usize).min(BUCKETS - 1)
    }

    /// The greatest value of a bucket, though the last one counts greater values as well.
    fn last(bucket: usize) -> u64 {
        let shift = (bucket >> FINE_BITS).saturating_sub(1);
        let within = (bucket - (shift << FINE_BITS)) as u64;
        (within << shift) + ((1 << shift) - 1)
    }

    /// Counts a value `weight` times.
    #[inline]
    pub fn add(&self, value: u64, weight: u64) {
        let count = &self.counts[Self::bucket(value)];
        count.set(count.get() + weight);
        self.sum.set(self.sum.get().wrapping_add(value.wrapping_mul(weight)));
    }

    /// The count of each bucket by its greatest value, in order.
    #[must_use]
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        let counts = self.counts.iter().enumerate();
        counts.map(|(i, count)| (Self::last(i), count.get())).collect()
    }

    /// The sum of all values.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum.get()
    }

    /// How many values were counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().map(Cell::get).sum()
    }

    /// The mean of all values, 0 of none.
    #[must_use]
    pub fn mean(&self) -> u64 {
        self.sum() / self.total().max(1)
    }

    /// A value that this share of the counted values does not exceed: the greatest of its bucket. 0 when nothing was
    /// counted.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u64 {
        let total = self.total();
        let rank = ((total as f64 * share).ceil() as u64).clamp(1, total.max(1));
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count.get();
            if seen >= rank {
                return Self::last(bucket);
            }
        }
        0
    }

    /// Halves all counts, so that what was counted long ago matters less and less. The sum is halved with them.
    #[cold]
    pub fn halve(&self) {
        self.counts.iter().for_each(|count| count.set(count.get() / 2));
        self.sum.set(self.sum.get() / 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: usize = buckets_of(7, 64);
    type Fine = Histogram<7, ALL>;
    type Coarse = Histogram<2, { buckets_of(2, 34) }>;

    #[test]
    fn a_bucket_is_narrower_than_a_hundredth_of_its_values() {
        let interesting = (0..64).flat_map(|power| [(1_u64 << power) - 1, 1 << power, (1 << power) + (1 << power) / 3]);
        for value in interesting.chain([u64::MAX]) {
            let bucket = Fine::bucket(value);
            let last = Fine::last(bucket);
            assert!(
                last >= value && last - value <= value / 100,
                "{value} is told as {last}"
            );
            assert_eq!(Fine::bucket(last), bucket, "{last} is not in the bucket it ends");
            if last < u64::MAX {
                assert_eq!(Fine::bucket(last + 1), bucket + 1, "a gap follows {last}");
            }
        }
        assert_eq!(
            Fine::bucket(u64::MAX),
            ALL - 1,
            "there are as many buckets as values need"
        );
    }

    #[test]
    fn coarse_buckets_are_without_gaps_and_a_quarter_wide_at_most() {
        let mut first = 0;
        for i in 0..buckets_of(2, 34) {
            let last = Coarse::last(i);
            assert!(last >= first, "bucket {i} is empty: {first} to {last}");
            assert_eq!(
                (Coarse::bucket(first), Coarse::bucket(last)),
                (i, i),
                "bucket of {first} to {last}"
            );
            assert!(first < 4 || (last - first) * 4 <= first, "bucket {i} is too wide");
            first = last + 1;
        }
        assert_eq!(first, 1 << 34, "all values of 34 bits have a bucket");
        assert_eq!(
            Coarse::bucket(u64::MAX),
            buckets_of(2, 34) - 1,
            "what takes indefinitely long is counted too"
        );
    }

    #[test]
    fn weights_count_as_so_many_values() {
        let histogram = Coarse::default();
        histogram.add(100, 16);
        histogram.add(3, 1);
        let counted: Vec<_> = histogram
            .buckets()
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(counted, [(3, 1), (111, 16)]);
        assert_eq!((histogram.sum(), histogram.total()), (1603, 17));
        histogram.halve();
        assert_eq!((histogram.sum(), histogram.total()), (801, 8));
    }

    #[test]
    fn quantiles_of_a_thousand_values() {
        let histogram = Fine::default();
        (1..=1000_u64).for_each(|value| histogram.add(value * 1000, 1));
        assert_eq!((histogram.total(), histogram.mean()), (1000, 500_500));
        for (share, exact) in [
            (0.5, 500_000),
            (0.99, 990_000),
            (0.999, 999_000),
            (1.0, 1_000_000),
            (0.0, 1_000),
        ] {
            let told = histogram.quantile(share);
            assert!(
                told >= exact && told <= exact + exact / 100,
                "the {share} quantile is {exact}, told as {told}"
            );
        }
        assert_eq!(Fine::default().quantile(0.99), 0, "nothing was counted");
    }
}
