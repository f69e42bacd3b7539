//! Counts of latencies in decimal buckets, so that a histogram with the bounds 1, 2, 5, 10, … is exact.
//!
//! ```text
//! values    0 1 2 … 9  10 12 15 20 25 30 40 50 60 80  100 120 150 …  800,000,000 and more
//! ```
//!
//! Each value below 10 µs has a bucket of its own; above, a decade has ten buckets, each at most a third wider than its
//! first value. A bucket holds the values from its first one to one below the next bucket's first. The last bucket also
//! counts all greater values: 1,000 s is more than any request takes. Finding a bucket is a table lookup by the highest
//! set bit and at most four comparisons. Counts are cells, because they belong to one shard; they take 720 bytes.

use std::cell::Cell;

const BUCKETS_PER_DECADE: usize = 10;
const DECADES: usize = 9;
const BUCKETS: usize = BUCKETS_PER_DECADE * DECADES;
/// First values of a decade's buckets, in tenths of the decade's first value.
const STEPS: [u64; BUCKETS_PER_DECADE] = [10, 12, 15, 20, 25, 30, 40, 50, 60, 80];
/// The value after each bucket: the first one of the next.
const ENDS: [u64; BUCKETS] = ends();
/// The bucket of each power of two, by its exponent.
const FIRST: [u8; 64] = first();

const fn ends() -> [u64; BUCKETS] {
    let mut ends = [0; BUCKETS];
    let (mut bucket, mut decade) = (0, 1);
    while bucket < BUCKETS {
        let next = bucket + 1;
        ends[bucket] = if next < BUCKETS_PER_DECADE {
            next as u64
        } else {
            if next % BUCKETS_PER_DECADE == 0 {
                decade *= 10;
            }
            decade * STEPS[next % BUCKETS_PER_DECADE] / 10
        };
        bucket = next;
    }
    ends
}

const fn first() -> [u8; 64] {
    let mut first = [0; 64];
    let (mut exponent, mut bucket) = (0, 0);
    while exponent < 64 {
        while bucket + 1 < BUCKETS && ENDS[bucket] <= 1 << exponent {
            bucket += 1;
        }
        // At most 89.
        first[exponent] = bucket as u8;
        exponent += 1;
    }
    first
}

/// Counts of latencies in microseconds. See the module.
#[derive(Clone, Debug)]
pub struct Latencies {
    counts: [Cell<u64>; BUCKETS],
    sum: Cell<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            counts: [const { Cell::new(0) }; BUCKETS],
            sum: Cell::new(0),
        }
    }
}

impl Latencies {
    #[inline]
    fn bucket(us: u64) -> usize {
        if us == 0 {
            return 0;
        }
        let mut bucket = usize::from(FIRST[us.ilog2() as usize]);
        while bucket + 1 < BUCKETS && ENDS[bucket] <= us {
            bucket += 1;
        }
        bucket
    }

    /// Counts a latency `weight` times.
    #[inline]
    pub fn add(&self, us: u64, weight: u64) {
        let count = &self.counts[Self::bucket(us)];
        count.set(count.get() + weight);
        self.sum.set(self.sum.get().wrapping_add(us.wrapping_mul(weight)));
    }

    /// The count of each bucket by its greatest value, in order.
    #[must_use]
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        ENDS.iter()
            .zip(&self.counts)
            .map(|(end, count)| (end - 1, count.get()))
            .collect()
    }

    /// The sum of all latencies in microseconds.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_without_gaps_and_a_third_wide_at_most() {
        let mut first = 0;
        for (bucket, end) in ENDS.into_iter().enumerate() {
            let last = end - 1;
            assert!(last >= first, "bucket {bucket} is empty: {first} to {last}");
            assert_eq!(
                (Latencies::bucket(first), Latencies::bucket(last)),
                (bucket, bucket),
                "buckets of {first} and {last}"
            );
            assert!(first < 10 || (end - first) * 3 <= end, "bucket {bucket} is too wide");
            first = end;
        }
        assert_eq!(first, 1_000_000_000, "a bucket ends at 1,000 s");
        for more in [1_000_000_000, 1 << 40, u64::MAX] {
            assert_eq!(Latencies::bucket(more), BUCKETS - 1, "{more} is in the last bucket");
        }
    }

    #[test]
    fn every_1_2_5_step_ends_a_bucket() {
        for power in 0..9 {
            for step in [1, 2, 5] {
                let bound = step * 10_u64.pow(power);
                assert!(ENDS.contains(&bound), "no bucket ends at {bound}");
            }
        }
    }

    #[test]
    fn weights_count_as_so_many_values() {
        let latencies = Latencies::default();
        latencies.add(100, 16);
        latencies.add(3, 1);
        let counted: Vec<_> = latencies
            .buckets()
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(counted, [(3, 1), (119, 16)]);
        assert_eq!(latencies.sum(), 1603);
    }
}
