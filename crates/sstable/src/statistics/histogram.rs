//! The histograms of Statistics.db.
//!
//! ```text
//! estimated   u32 n, n x {i64 offset, i64 count}: bucket i counts values in (offset[i-1], offset[i]]; each pair holds
//!             the offset below its bucket (the first pair: the first offset again), the last bucket what is greater
//! tombstone   u32 bins at most, u32 n, n x {f64 deletion time, i64 count}
//! ```

use std::collections::BTreeMap;

use stdx::bytes::{Reader, Truncated};

/// Counts in buckets that grow by a fifth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EstimatedHistogram {
    offsets: Vec<i64>,
    counts: Vec<i64>,
}

impl EstimatedHistogram {
    /// Empty, with so many bounded buckets.
    #[must_use]
    pub fn new(buckets: usize) -> Self {
        let mut offsets = Vec::with_capacity(buckets);
        let mut last: i64 = 1;
        while offsets.len() < buckets {
            offsets.push(last);
            // Round half up of last * 1.2, in integers.
            last = ((last * 12 + 5) / 10).max(last + 1);
        }
        Self {
            counts: vec![0; buckets + 1],
            offsets,
        }
    }

    /// Counts one value.
    pub fn add(&mut self, value: u64) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        let bucket = self.offsets.partition_point(|&o| o < value);
        self.counts[bucket] += 1;
    }

    /// Upper bounds of the buckets and their counts; the last bucket has no bound.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<i64>, i64)> {
        self.counts
            .iter()
            .enumerate()
            .map(|(i, &n)| (self.offsets.get(i).copied(), n))
    }

    /// How many values were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts
            .iter()
            .fold(0u64, |sum, &n| sum.saturating_add(n.max(0).cast_unsigned()))
    }

    /// The mean of the buckets' bounds, 0 when empty.
    #[must_use]
    pub fn mean(&self) -> u64 {
        let (mut sum, mut n) = (0u128, 0u128);
        for (bound, count) in self.buckets() {
            let bound = bound
                .or(self.offsets.last().copied())
                .unwrap_or(0)
                .max(0)
                .cast_unsigned();
            let count = count.max(0).cast_unsigned();
            // Numbers of a file may be any.
            sum = sum.saturating_add(u128::from(bound) * u128::from(count));
            n += u128::from(count);
        }
        sum.checked_div(n).map_or(0, |m| u64::try_from(m).unwrap_or(u64::MAX))
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&u32::try_from(self.counts.len()).expect("few buckets").to_be_bytes());
        for (i, count) in self.counts.iter().enumerate() {
            out.extend_from_slice(&self.offsets[i.saturating_sub(1)].to_be_bytes());
            out.extend_from_slice(&count.to_be_bytes());
        }
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, Truncated> {
        let n = read_count(r)?;
        let (mut offsets, mut counts) = (Vec::with_capacity(n), Vec::with_capacity(n));
        for i in 0..n {
            let offset = r.get_i64()?;
            if i > 0 {
                offsets.push(offset);
            }
            counts.push(r.get_i64()?);
        }
        Ok(Self { offsets, counts })
    }
}

/// How many tombstones there are by deletion time: what a compaction could drop.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TombstoneHistogram {
    bins: BTreeMap<u32, u64>,
}

/// As many bins as Cassandra writes.
const BINS_MAX: usize = 100;
/// As many as are held while counting.
const SPOOL_MAX: usize = 4096;
/// Deletion times are rounded up to whole minutes.
const ROUND_SECONDS: u32 = 60;

impl TombstoneHistogram {
    /// Counts `n` tombstones, or cells that expire then.
    pub fn add(&mut self, deletion_time: u32, n: u64) {
        let rounded = deletion_time
            .checked_next_multiple_of(ROUND_SECONDS)
            .unwrap_or(deletion_time);
        *self
            .bins
            .entry(rounded.min(crate::data::header::DELETION_TIME_MAX))
            .or_default() += n;
        if self.bins.len() > SPOOL_MAX {
            self.shrink(SPOOL_MAX / 2);
        }
    }

    /// Joins the closest neighbours until no more than `max` bins remain.
    fn shrink(&mut self, max: usize) {
        while self.bins.len() > max {
            let keys: Vec<u32> = self.bins.keys().copied().collect();
            let mut gaps: Vec<(u32, usize)> = keys.windows(2).enumerate().map(|(i, w)| (w[1] - w[0], i)).collect();
            gaps.sort_unstable();
            let mut excess = self.bins.len() - max;
            let mut joined = vec![false; keys.len()];
            for (_, i) in gaps {
                if excess == 0 {
                    break;
                }
                // A bin takes part in one join a round, so that a row of close ones does not collapse into one.
                if joined[i] || joined[i + 1] {
                    continue;
                }
                (joined[i], joined[i + 1]) = (true, true);
                let n = self.bins.remove(&keys[i]).unwrap_or(0);
                *self.bins.entry(keys[i + 1]).or_default() += n;
                excess -= 1;
            }
        }
    }

    /// How many were deleted or expire before `second`.
    #[must_use]
    pub fn count_before(&self, second: u32) -> u64 {
        let counts = self.bins.range(..second);
        counts.fold(0, |sum, (_, n)| sum.saturating_add(*n))
    }

    /// Deletion times and counts.
    pub fn bins(&self) -> impl Iterator<Item = (u32, u64)> {
        self.bins.iter().map(|(&t, &n)| (t, n))
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut reduced = self.clone();
        reduced.shrink(BINS_MAX);
        out.extend_from_slice(&u32::try_from(BINS_MAX).expect("a hundred").to_be_bytes());
        out.extend_from_slice(
            &u32::try_from(reduced.bins.len())
                .expect("at most a hundred")
                .to_be_bytes(),
        );
        for (t, n) in &reduced.bins {
            out.extend_from_slice(&f64::from(*t).to_be_bytes());
            out.extend_from_slice(&n.to_be_bytes());
        }
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, Truncated> {
        r.get_u32()?;
        let n = read_count(r)?;
        let mut bins = BTreeMap::new();
        for _ in 0..n {
            let point = f64::from_be_bytes(r.get_array()?);
            let count = r.get_u64()?;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "float casts saturate"
            )]
            let second = point as u32;
            let bin: &mut u64 = bins.entry(second).or_default();
            *bin = bin.saturating_add(count);
        }
        Ok(Self { bins })
    }
}

/// The number of buckets or bins that follow, each of 16 bytes.
fn read_count(r: &mut Reader<'_>) -> Result<usize, Truncated> {
    let count = r.get_u32()? as usize;
    let bytes = count.saturating_mul(16);
    if r.rest().len() < bytes {
        return Err(Truncated {
            at: r.at(),
            wanted: bytes,
        });
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_damaged_file_are_added_up_without_overflow() {
        let mut bytes = 6_u32.to_be_bytes().to_vec();
        for _ in 0..6 {
            bytes.extend_from_slice(&i64::MAX.to_be_bytes());
            bytes.extend_from_slice(&i64::MAX.to_be_bytes());
        }
        let sizes = EstimatedHistogram::read(&mut Reader::new(&bytes)).expect("six buckets");
        assert_eq!(sizes.count(), u64::MAX);
        assert!(sizes.mean() <= i64::MAX.cast_unsigned(), "{}", sizes.mean());
        let mut bytes = [100_u32, 2].map(u32::to_be_bytes).concat();
        for second in [1.0, 2.0] {
            bytes.extend_from_slice(&f64::to_be_bytes(second));
            bytes.extend_from_slice(&u64::MAX.to_be_bytes());
        }
        let tombstones = TombstoneHistogram::read(&mut Reader::new(&bytes)).expect("two bins");
        assert_eq!(tombstones.count_before(10), u64::MAX);
    }
}
