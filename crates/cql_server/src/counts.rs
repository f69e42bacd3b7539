//! What a shard's front door counts. Written on the request path, so a count costs an addition to memory that is in the cache, and the
//! clock is asked for one socket read in [`SAMPLE_EVERY`] only; what it says then stands for all of them.

use std::cell::Cell;

/// One socket read in so many is timed.
pub(crate) const SAMPLE_EVERY: u64 = 16;
/// Of so many requests that were not answered at once it is found whether they came to an owner; a prime, so that no pattern of
/// clients hides from it.
pub(crate) const OWNER_EVERY: u64 = 7;
/// Four buckets in each octave of microseconds, up to 2^34 µs, more than any request takes.
const BUCKETS: usize = 33 * 4;

/// Latencies in buckets that are each a fifth wider than the one before.
#[derive(Debug)]
pub struct Latencies {
    counts: [Cell<u64>; BUCKETS],
    sum_us: Cell<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            counts: [const { Cell::new(0) }; BUCKETS],
            sum_us: Cell::new(0),
        }
    }
}

fn bucket(us: u64) -> usize {
    if us < 4 {
        return us as usize;
    }
    let exponent = us.ilog2() as usize;
    let quarter = (us >> (exponent - 2)) as usize & 3;
    ((exponent - 1) * 4 + quarter).min(BUCKETS - 1)
}

/// The largest latency of a bucket.
fn last_us(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let (exponent, quarter) = (bucket / 4 + 1, bucket as u64 % 4);
    ((4 + quarter + 1) << (exponent - 2)) - 1
}

impl Latencies {
    /// Counts `weight` requests that took so long.
    #[inline]
    pub(crate) fn add(&self, us: u64, weight: u64) {
        let count = &self.counts[bucket(us)];
        count.set(count.get() + weight);
        self.sum_us.set(self.sum_us.get() + us * weight);
    }

    /// The count of each bucket by its last microsecond, in order.
    #[must_use]
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        let counts = self.counts.iter().enumerate();
        counts.map(|(i, count)| (last_us(i), count.get())).collect()
    }

    /// All of them together, in microseconds.
    #[must_use]
    pub fn sum_us(&self) -> u64 {
        self.sum_us.get()
    }
}

/// What a shard's front door counts.
#[derive(Default, Debug)]
pub struct Counts {
    /// Statements that came as text.
    pub queries: Cell<u64>,
    /// Prepared statements.
    pub executes: Cell<u64>,
    /// Statements that were prepared.
    pub prepares: Cell<u64>,
    /// BATCH messages.
    pub batches: Cell<u64>,
    /// Statements on one partition that came to a shard that has it.
    pub owned: Cell<u64>,
    /// Statements on one partition that came to another shard of a node that has it.
    pub owned_by_node: Cell<u64>,
    /// Statements on one partition that came to a node that does not have it.
    pub foreign: Cell<u64>,
    /// Requests that did not wait for a disk, a shard or a node are sampled; see the module.
    pub reads: Latencies,
    /// The same of writes and batches.
    pub writes: Latencies,
    /// Conditional statements and serial reads.
    pub conditional: Latencies,
    /// Reads of more than one partition.
    pub ranges: Latencies,
    /// Socket reads, to know which to time.
    pub(crate) socket_reads: Cell<u64>,
    /// Requests that were not answered at once, to know of which to find the owner.
    pub(crate) later: Cell<u64>,
}

#[inline]
pub(crate) fn increment(count: &Cell<u64>) {
    count.set(count.get() + 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_without_gaps_and_a_quarter_wide_at_most() {
        let mut first = 0;
        for i in 0..BUCKETS {
            let last = last_us(i);
            assert!(last >= first, "bucket {i} is empty: {first} to {last}");
            assert_eq!((bucket(first), bucket(last)), (i, i), "bucket of {first} to {last}");
            assert!(first < 4 || (last - first) * 4 <= first, "bucket {i} is too wide");
            first = last + 1;
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1, "what takes for ever is counted too");
    }

    #[test]
    fn weights_count_as_so_many_requests() {
        let latencies = Latencies::default();
        latencies.add(100, 16);
        latencies.add(3, 1);
        let counted: Vec<_> = latencies
            .buckets()
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(counted, [(3, 1), (111, 16)]);
        assert_eq!(latencies.sum_us(), 1603);
    }
}
