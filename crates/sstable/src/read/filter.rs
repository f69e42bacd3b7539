//! Filter.db: a bloom filter of the partition keys.
//!
//! ```text
//! u32 hash functions, u32 words, words x u64
//! ```
//! Function i looks at bit `|(h1 + i * h0) mod bits|` (signed arithmetic) where (h0, h1) are the halves of the key's
//! Murmur3 hash. Bit b is bit b mod 64 of word b / 64.
//!
//! How many keys there will be is not known when the first one is added: a merge has some of them several times, a cut
//! has a part, and an output may end before the inputs do. So the filter is made for as many as there may be, with a
//! count of words that has many divisors, and folded when all are there: where M divides N, `(h mod N) mod M` is `h mod
//! M`, so the words of each M-th part, or-ed, are the filter of M bits for the same keys.

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
    /// For so many keys, with so many false positives. None when the chance asks for no filter.
    pub(crate) fn new(keys: u64, false_positive_chance: f64) -> Option<Self> {
        let (bits_per_key, functions) = parameters_of(false_positive_chance)?;
        let words = words_for(keys, bits_per_key);
        // An eighth more at the most.
        let divisible_by = FOLDS.into_iter().find(|folds| words >= folds * 8).unwrap_or(1);
        Some(Self {
            functions,
            words: vec![0; words.next_multiple_of(divisible_by)],
        })
    }

    /// Makes it as small as that many keys need, where it was made for more of them: at most twice as large.
    pub(crate) fn fold(&mut self, keys: u64, false_positive_chance: f64) {
        let Some((bits_per_key, _)) = parameters_of(false_positive_chance) else {
            return;
        };
        let (needed, words) = (words_for(keys, bits_per_key), self.words.len());
        let is_fold = |parts: &usize| words.is_multiple_of(*parts) && words / parts >= needed;
        let parts = (1..=FOLDS[0]).rev().find(is_fold).unwrap_or(1);
        if parts == 1 {
            return;
        }
        let (folded, rest) = self.words.split_at_mut(words / parts);
        for part in rest.chunks(folded.len()) {
            folded.iter_mut().zip(part).for_each(|(word, other)| *word |= other);
        }
        self.words.truncate(words / parts);
        self.words.shrink_to_fit();
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

/// What the count of words can be divided by: the first where it is large.
const FOLDS: [usize; 3] = [720, 60, 12];

/// Bits for each key, and hash functions; None when the chance asks for no filter.
fn parameters_of(false_positive_chance: f64) -> Option<(u64, u32)> {
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
    let parameters = (
        bits_per_key as u64,
        (bits_per_key * ln2).round().clamp(1.0, 20.0) as u32,
    );
    Some(parameters)
}

fn words_for(keys: u64, bits_per_key: u64) -> usize {
    let bits = keys.max(1).saturating_mul(bits_per_key).saturating_add(20);
    let words = usize::try_from(bits.div_ceil(64)).unwrap_or(usize::MAX);
    words.min(u32::MAX as usize / 8 - FOLDS[0])
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

    #[test]
    fn a_filter_for_more_keys_than_came_is_folded_and_finds_them_all() {
        const KEYS: u32 = 10_000;
        let of = |keys: u64| Filter::new(keys, 0.01).expect("a filter is wanted");
        for estimated in [1, 10_000, 11_000, 25_000, 160_000, 3_000_000] {
            let mut filter = of(estimated);
            (0..KEYS).for_each(|i| filter.add(hash(&i.to_be_bytes())));
            let before = filter.clone();
            filter.fold(u64::from(KEYS), 0.01);
            let filter = Filter::decode(&filter.encode()).expect("what was encoded");
            assert!(
                (0..KEYS).all(|i| filter.may_contain(hash(&i.to_be_bytes()))),
                "for {estimated}"
            );
            assert!(filter.memory() <= 2 * of(u64::from(KEYS)).memory(), "for {estimated}");
            if estimated < u64::from(KEYS) {
                assert_eq!(filter, before, "it is too small already");
                continue;
            }
            let others = KEYS..3 * KEYS;
            let wrong = others.filter(|i| filter.may_contain(hash(&i.to_be_bytes()))).count();
            assert!(wrong < 320, "{wrong} false positives of 20000, made for {estimated}");
        }
        let mut few = of(1_000_000);
        few.fold(0, 0.01);
        assert!(few.memory() <= 16 << 10, "{} bytes for nothing", few.memory());
    }
}
