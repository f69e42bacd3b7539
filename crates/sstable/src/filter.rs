//! Filter.db: a bloom filter of the partition keys.
//!
//! ```text
//! u32 hash functions, u32 words, words x u64
//! ```
//! Function i looks at bit `|(h1 + i * h0) mod bits|` (signed arithmetic) where (h0, h1) are the halves of the key's
//! Murmur3 hash. Bit b is bit b mod 64 of word b / 64.

use stdx::bytes::Reader;
use types::token::murmur3_x64_128;

use crate::error::Damage;

/// The hash of a key, from which the bits are derived.
pub(crate) fn hash(key: &[u8]) -> (u64, u64) {
    murmur3_x64_128(key, 0)
}

/// A bloom filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    functions: u32,
    words: Vec<u64>,
}

impl Filter {
    /// For so many keys, with so many false positives. None when the chance says that no filter is wanted.
    pub(crate) fn new(keys: u64, false_positive_chance: f64) -> Option<Self> {
        if !(false_positive_chance > 0.0 && false_positive_chance < 1.0) {
            return None;
        }
        let ln2 = std::f64::consts::LN_2;
        let bits_per_key = (-false_positive_chance.ln() / (ln2 * ln2)).ceil().clamp(1.0, 40.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 1 and 40"
        )]
        let (bits_per_key, functions) = (
            bits_per_key as u64,
            (bits_per_key * ln2).round().clamp(1.0, 20.0) as u32,
        );
        let bits = keys.max(1).saturating_mul(bits_per_key) + 20;
        let words = usize::try_from(bits.div_ceil(64))
            .unwrap_or(usize::MAX)
            .min(u32::MAX as usize / 8);
        Some(Self {
            functions,
            words: vec![0; words],
        })
    }

    #[inline]
    fn bits(&self, hash: (u64, u64)) -> impl Iterator<Item = u64> + use<> {
        let bits = (self.words.len() as u64 * 64).cast_signed();
        let (mut base, step) = (hash.1.cast_signed(), hash.0.cast_signed());
        let functions = self.functions;
        (0..functions).map(move |_| {
            let bit = (base % bits).unsigned_abs();
            base = base.wrapping_add(step);
            bit
        })
    }

    pub(crate) fn add(&mut self, hash: (u64, u64)) {
        for bit in self.bits(hash) {
            self.words[(bit / 64) as usize] |= 1 << (bit % 64);
        }
    }

    /// False: the key is not in the sstable.
    #[inline]
    pub(crate) fn may_contain(&self, hash: (u64, u64)) -> bool {
        self.bits(hash)
            .all(|bit| self.words[(bit / 64) as usize] & (1 << (bit % 64)) != 0)
    }

    pub(crate) fn memory(&self) -> usize {
        self.words.capacity() * 8
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 + self.words.len() * 8);
        out.extend_from_slice(&self.functions.to_be_bytes());
        out.extend_from_slice(
            &u32::try_from(self.words.len())
                .expect("bounded where it is made")
                .to_be_bytes(),
        );
        for w in &self.words {
            out.extend_from_slice(&w.to_be_bytes());
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let mut r = Reader::new(bytes);
        let functions = r.get_u32()?;
        if !(1..=255).contains(&functions) {
            return Err(Damage::new(0, "1 to 255 hash functions"));
        }
        let words = r.get_u32()? as usize;
        if words == 0 || r.rest().len() != words.saturating_mul(8) {
            return Err(Damage::new(
                4,
                format!("the count of the {} bytes that follow, in words", r.rest().len()),
            ));
        }
        let words = r
            .rest()
            .as_chunks::<8>()
            .0
            .iter()
            .map(|w| u64::from_be_bytes(*w))
            .collect();
        Ok(Self { functions, words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_added_key_is_found_and_few_others_are() {
        for chance in [0.1, 0.01, 0.001] {
            let mut filter = Filter::new(10_000, chance).expect("a filter is wanted");
            for i in 0..10_000u32 {
                filter.add(hash(&i.to_be_bytes()));
            }
            let filter = Filter::decode(&filter.encode()).expect("what was encoded");
            assert!((0..10_000u32).all(|i| filter.may_contain(hash(&i.to_be_bytes()))));
            let wrong = (10_000..30_000u32)
                .filter(|i| filter.may_contain(hash(&i.to_be_bytes())))
                .count();
            assert!(
                (wrong as f64) < 20_000.0 * chance * 1.5 + 5.0,
                "{wrong} false positives of 20000 at {chance}"
            );
        }
        assert!(Filter::new(10, 1.0).is_none());
    }
}
