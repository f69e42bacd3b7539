//! Which partitions of a table are read and written most, while an operator asks.
//!
//! A shard samples its part of the table ([`Sampler`]): the space-saving algorithm (Metwally, Agrawal, El Abbadi, 2005)
//! keeps a bounded number of keys with their counts. A key that is not among them takes the place and the count of the
//! least one; that count is the most by which its own may be too high. While no operator asks, a request of the table
//! only checks one flag.

use std::collections::HashMap;

/// Keys that a sampler keeps at most, whatever is asked for.
pub const SAMPLED_KEYS_MAX: usize = 4096;
/// Bits of the estimate of how many keys there are: 8 KiB.
const DISTINCT_BITS: usize = 1 << 16;

/// The partitions that were seen most, of all that were.
#[derive(Clone, Debug)]
pub struct Sampler {
    capacity: usize,
    counts: HashMap<Box<[u8]>, Sampled, foldhash::fast::FixedState>,
    /// A bit for the hash of each key.
    seen: Vec<u64>,
}

/// How often a partition was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sampled {
    /// At most so often.
    pub count: u64,
    /// And at least so much less often.
    pub error: u64,
}

impl Sampler {
    /// Keeps so many keys, 1 to [`SAMPLED_KEYS_MAX`].
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity.clamp(1, SAMPLED_KEYS_MAX),
            counts: HashMap::default(),
            seen: vec![0; DISTINCT_BITS / 64],
        }
    }

    /// Counts a partition by its serialised key.
    pub fn add(&mut self, key: &[u8]) {
        let bit = usize::from(u16::try_from(hash(key) >> 48).expect("sixteen bits"));
        self.seen[bit / 64] |= 1 << (bit % 64);
        if let Some(known) = self.counts.get_mut(key) {
            known.count += 1;
            return;
        }
        let mut error = 0;
        if self.counts.len() >= self.capacity {
            let least = self.counts.iter().min_by_key(|(_, sampled)| sampled.count);
            if let Some((least, count)) = least.map(|(least, sampled)| (least.clone(), sampled.count)) {
                self.counts.remove(&least);
                error = count;
            }
        }
        let sampled = Sampled {
            count: error + 1,
            error,
        };
        self.counts.insert(key.into(), sampled);
    }

    /// About how many different partitions were seen, by linear counting.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate of fewer than 2^20"
    )]
    pub fn distinct(&self) -> u64 {
        let bits = DISTINCT_BITS as f64;
        let unset: u32 = self.seen.iter().map(|word| word.count_zeros()).sum();
        (-bits * (f64::from(unset.max(1)) / bits).ln()).round() as u64
    }

    /// The keys that are kept, the most frequent first.
    #[must_use]
    pub fn into_top(self) -> Vec<(Box<[u8]>, Sampled)> {
        let mut top: Vec<_> = self.counts.into_iter().collect();
        top.sort_by(|(a_key, a), (b_key, b)| b.count.cmp(&a.count).then_with(|| a_key.cmp(b_key)));
        top
    }
}

fn hash(key: &[u8]) -> u64 {
    use std::hash::BuildHasher;
    foldhash::quality::FixedState::default().hash_one(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_partitions_are_kept_and_their_counts_are_within_the_error() {
        let mut sampler = Sampler::new(8);
        // Ten keys that are asked for again and again, among a thousand that are asked for once.
        for round in 0..1000_u32 {
            for (key, times) in [(b"a", 5), (b"b", 3)] {
                (0..times).for_each(|_| sampler.add(key));
            }
            sampler.add(&round.to_be_bytes());
        }
        let distinct = sampler.distinct();
        assert!(distinct.abs_diff(1002) < 60, "1002 partitions, estimated as {distinct}");
        let top = sampler.into_top();
        assert_eq!(top.len(), 8, "no more are kept than was asked for");
        for ((key, sampled), (expected, times)) in top.iter().zip([(b"a", 5000), (b"b", 3000)]) {
            assert_eq!(&key[..], expected);
            assert!(
                sampled.count >= times && sampled.count - sampled.error <= times,
                "{sampled:?}"
            );
        }
    }

    #[test]
    fn nothing_was_seen_at_the_begin() {
        assert_eq!(Sampler::new(0).distinct(), 0);
        assert!(Sampler::new(0).into_top().is_empty());
    }
}
