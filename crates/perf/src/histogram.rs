//! A histogram of latencies: log-linear buckets, as HdrHistogram has them.
//!
//! Values below 2^7 have a bucket each; above, each power of two is cut into 128 buckets, so a bucket is never wider than
//! 1/128 of its values. Recording is a shift, an add and an increment; the whole is 58 KiB and is never resized.

/// Bits of a value that are kept.
const PRECISION_BITS: u32 = 7;
const BUCKETS_PER_POWER: usize = 1 << PRECISION_BITS;
const BUCKETS: usize = (64 - PRECISION_BITS as usize + 1) * BUCKETS_PER_POWER;

/// Counts of values by size.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Box<[u64]>,
    total: u64,
    sum: u128,
    max: u64,
}

impl Histogram {
    pub(crate) fn new() -> Histogram {
        Histogram {
            counts: vec![0; BUCKETS].into_boxed_slice(),
            total: 0,
            sum: 0,
            max: 0,
        }
    }

    #[inline]
    pub(crate) fn record(&mut self, value: u64) {
        self.counts[bucket_of(value)] += 1;
        self.total += 1;
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    pub(crate) fn mean(&self) -> u64 {
        u64::try_from(self.sum / u128::from(self.total.max(1))).unwrap_or(u64::MAX)
    }

    /// A value that this share of the recorded values, at least, does not exceed: the upper end of its bucket.
    pub(crate) fn quantile(&self, share: f64) -> u64 {
        let rank = ((self.total as f64 * share).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return highest_of(bucket).min(self.max);
            }
        }
        self.max
    }
}

fn bucket_of(value: u64) -> usize {
    let power = (u64::BITS - value.leading_zeros()).saturating_sub(PRECISION_BITS + 1);
    let within = (value >> power) as usize;
    power as usize * BUCKETS_PER_POWER + within
}

/// The highest value of a bucket.
fn highest_of(bucket: usize) -> u64 {
    if bucket < 2 * BUCKETS_PER_POWER {
        return bucket as u64;
    }
    let power = bucket / BUCKETS_PER_POWER - 1;
    let within = (bucket - power * BUCKETS_PER_POWER) as u64;
    (within << power) + ((1 << power) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_narrower_than_a_hundredth_of_its_values() {
        let interesting = (0..64).flat_map(|power| [(1_u64 << power) - 1, 1 << power, (1 << power) + (1 << power) / 3]);
        for value in interesting.chain([u64::MAX]) {
            let bucket = bucket_of(value);
            assert!(bucket < BUCKETS, "{value} has no bucket");
            let highest = highest_of(bucket);
            assert!(
                highest >= value && highest - value <= value / 100,
                "{value} is told as {highest}"
            );
            assert_eq!(bucket_of(highest), bucket, "{highest} is not in the bucket it ends");
            if highest < u64::MAX {
                assert_eq!(bucket_of(highest + 1), bucket + 1, "a gap follows {highest}");
            }
        }
    }

    #[test]
    fn quantiles_of_a_thousand_values() {
        let mut histogram = Histogram::new();
        for value in 1..=1000_u64 {
            histogram.record(value * 1000);
        }
        assert_eq!(
            (histogram.total(), histogram.max(), histogram.mean()),
            (1000, 1_000_000, 500_500)
        );
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
        assert_eq!(Histogram::new().quantile(0.99), 0, "nothing was recorded");
    }
}
