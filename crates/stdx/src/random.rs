//! Numbers that look like chance and are the same in every run.

/// SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014): from one seed the same
/// sequence, whatever else draws.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The sequence of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    #[inline]
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.0)
    }

    /// The next number, brought below a bound that is not 0. Small bounds only: a large one prefers small numbers.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    /// The next number, brought below a bound by multiplication: without a division.
    #[inline]
    pub const fn scaled(&mut self, bound: u64) -> u64 {
        ((self.draw() as u128 * bound as u128) >> 64) as u64
    }

    /// True once in so many draws.
    pub const fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// SplitMix64's finish: neighbouring numbers give unrelated ones.
#[inline]
#[must_use]
pub const fn scramble(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of seed 1234567, as the reference implementation draws them.
    #[test]
    fn it_draws_what_the_reference_draws() {
        let mut random = SplitMix64::new(1_234_567);
        let drawn = [random.draw(), random.draw(), random.draw()];
        assert_eq!(
            drawn,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }
}
