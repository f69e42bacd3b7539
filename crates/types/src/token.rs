//! The position of a partition key on the ring: its Murmur3 token, and the shard that a token belongs to.
//!
//! The hash is MurmurHash3 x64_128 with one peculiarity of Cassandra's: the up to fifteen bytes after the last whole
//! block are sign-extended before they are shifted into place. The token is the first half of the hash. `i64::MIN` is
//! the place before the ring: the empty key alone has it, and a key that hashes to it gets `i64::MAX`.

use std::fmt;

use stdx::preempt;

/// A place on the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub i64);

impl Token {
    /// Before every key's token: the start of the first token range, which does not contain it.
    pub const MIN: Self = Self(i64::MIN);
    /// The last token.
    pub const MAX: Self = Self(i64::MAX);
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The hash of a serialised partition key, for code that needs the token and also queries the filters of sstables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyHash {
    token: Token,
    halves: (u64, u64),
}

impl KeyHash {
    /// Of a serialised partition key.
    #[inline]
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        let halves = murmur3_x64_128(key, 0);
        let token = match halves.0.cast_signed() {
            _ if key.is_empty() => Token::MIN,
            i64::MIN => Token::MAX,
            token => Token(token),
        };
        Self { token, halves }
    }

    /// The key's token.
    #[inline]
    #[must_use]
    pub fn token(self) -> Token {
        self.token
    }

    /// Both halves of the hash: a bloom filter's bits are made of them.
    #[inline]
    #[must_use]
    pub fn halves(self) -> (u64, u64) {
        self.halves
    }
}

/// The token of a serialised partition key.
#[inline]
#[must_use]
pub fn token_of(key: &[u8]) -> Token {
    KeyHash::of(key).token
}

/// The shard of `token`, by the algorithm that drivers know as `biased-token-round-robin`.
///
/// `ignore_msb` most significant bits of the token do not count, so that each shard gets many small ranges of the ring.
#[inline]
#[must_use]
pub fn shard_of(token: Token, nr_shards: u32, ignore_msb: u32) -> u32 {
    let biased = token.0.cast_unsigned() ^ (1 << 63);
    let biased = biased.checked_shl(ignore_msb).unwrap_or(0);
    let shard = (u128::from(biased) * u128::from(nr_shards)) >> 64;
    u32::try_from(shard).expect("a 64-bit fraction of nr_shards is less than nr_shards")
}

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

/// Both halves of the hash: a token is made of the first, a bloom filter's bits of both.
#[inline]
#[must_use]
pub fn murmur3_x64_128(key: &[u8], seed: u64) -> (u64, u64) {
    let (blocks, tail) = key.as_chunks::<16>();
    finished(mix_blocks((seed, seed), blocks), tail, key.len())
}

/// As [`murmur3_x64_128`], for many bytes: with preemption points.
#[must_use]
pub fn murmur3_x64_128_of_many(key: &[u8], seed: u64) -> (u64, u64) {
    let (blocks, tail) = key.as_chunks::<16>();
    let mut hash = (seed, seed);
    for piece in blocks.chunks(BLOCKS_PER_STEP) {
        hash = mix_blocks(hash, piece);
        preempt::long_step();
    }
    finished(hash, tail, key.len())
}

/// Blocks that are mixed between two preemption points.
const BLOCKS_PER_STEP: usize = preempt::STEP_BYTES / 16;

#[inline]
fn mix_blocks((mut h1, mut h2): (u64, u64), blocks: &[[u8; 16]]) -> (u64, u64) {
    for block in blocks {
        let block = u128::from_le_bytes(*block);
        #[expect(clippy::cast_possible_truncation, reason = "the low half is used")]
        let (k1, k2) = (block as u64, (block >> 64) as u64);
        h1 ^= mix_k1(k1);
        h1 = h1
            .rotate_left(27)
            .wrapping_add(h2)
            .wrapping_mul(5)
            .wrapping_add(0x52dc_e729);
        h2 ^= mix_k2(k2);
        h2 = h2
            .rotate_left(31)
            .wrapping_add(h1)
            .wrapping_mul(5)
            .wrapping_add(0x3849_5ab5);
    }
    (h1, h2)
}

/// The hash, given that of the whole blocks, what follows them, and the bytes of both.
#[inline]
fn finished((mut h1, mut h2): (u64, u64), tail: &[u8], len: usize) -> (u64, u64) {
    if let Some((low, high)) = tail.split_first_chunk::<8>() {
        // Nothing mixes to nothing, and keys of eight bytes are common.
        if !high.is_empty() {
            h2 ^= mix_k2(sign_extend_bytes(load_le(high)));
        }
        h1 ^= mix_k1(sign_extend_bytes(u64::from_le_bytes(*low)));
    } else {
        h1 ^= mix_k1(sign_extend_bytes(load_le(tail)));
    }
    let len = len as u64;
    h1 ^= len;
    h2 ^= len;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    h1 = mix_final(h1);
    h2 = mix_final(h2);
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    (h1, h2)
}

#[inline]
const fn mix_k1(k1: u64) -> u64 {
    k1.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

#[inline]
const fn mix_k2(k2: u64) -> u64 {
    k2.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

#[inline]
const fn mix_final(mut k: u64) -> u64 {
    k ^= k >> 33;
    k = k.wrapping_mul(0xff51_afd7_ed55_8ccd);
    k ^= k >> 33;
    k = k.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ (k >> 33)
}

/// Up to seven bytes, little-endian, zeroes above them. Reads overlap rather than loop.
#[inline]
fn load_le(bytes: &[u8]) -> u64 {
    if let (Some(low), Some(high)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let shift = 8 * (bytes.len() - 4);
        u64::from(u32::from_le_bytes(*low)) | (u64::from(u32::from_le_bytes(*high)) << shift)
    } else if let (Some(&first), Some(&last)) = (bytes.first(), bytes.last()) {
        let middle = bytes.len() / 2;
        u64::from(first) | (u64::from(bytes[middle]) << (8 * middle)) | (u64::from(last) << (8 * (bytes.len() - 1)))
    } else {
        0
    }
}

/// The exclusive or of each byte of `word`, sign-extended to 64 bits and shifted to its place, all at once.
///
/// A negative byte flips every bit above itself. So byte `j` of the result is flipped when an odd count of the bytes
/// below it is negative; the multiplication makes those counts.
#[inline]
const fn sign_extend_bytes(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let negative = (word >> 7) & ONES;
    let negative_below = negative.wrapping_mul(ONES) << 8;
    word ^ (negative_below & ONES).wrapping_mul(0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_from_hex(hex: &str) -> Vec<u8> {
        hex.as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ascii"), 16).expect("hex"))
            .collect()
    }

    /// Both halves as Apache Cassandra 5.0's MurmurHash gives them.
    #[test]
    fn hashes_as_cassandra() {
        let table: [(&str, u64, i64, i64); 12] = [
            ("", 0, 0, 0),
            ("00", 0, 5_048_724_184_180_415_669, 5_864_299_874_987_029_891),
            ("ff", 0, -4_442_228_696_663_692_417, -6_049_531_771_631_615_289),
            ("ffffff", 0, -9_154_616_442_117_352_147, 8_818_615_291_861_393_149),
            ("68656c6c6f", 0, -3_758_069_500_696_749_310, 6_565_844_092_913_065_241),
            (
                "68656c6c6f",
                12_345,
                -1_005_756_795_447_425_919,
                -3_070_337_192_675_570_892,
            ),
            (
                "fffefdfcfbfaf9f8",
                0,
                8_315_091_272_545_024_489,
                -5_041_479_967_276_960_847,
            ),
            (
                "fffefdfcfbfaf9f8f7",
                0,
                7_679_185_608_729_260_073,
                -3_379_852_028_492_281_626,
            ),
            (
                "000102030405060708090a0b0c0d0e",
                0,
                5_125_964_547_706_398_185,
                -3_637_661_727_744_164_375,
            ),
            (
                "000102030405060708090a0b0c0d0e0f",
                0,
                4_920_504_430_128_807_728,
                -6_084_252_774_064_723_899,
            ),
            (
                "000102030405060708090a0b0c0d0e0f10",
                0,
                6_662_781_046_685_680_142,
                -4_512_885_640_352_061_404,
            ),
            (
                "fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0efeeedecebea",
                0,
                -1_739_344_068_773_063_146,
                7_658_030_475_870_512_606,
            ),
        ];
        for (hex, seed, first, second) in table {
            let hash = murmur3_x64_128(&bytes_from_hex(hex), seed);
            assert_eq!(
                hash,
                (first.cast_unsigned(), second.cast_unsigned()),
                "hash of 0x{hex} with seed {seed}"
            );
        }
        let many: Vec<u8> = (0..5 * BLOCKS_PER_STEP * 16 / 2 + 11).map(|n| (n * 7) as u8).collect();
        for bytes in [&many[..], &many[..16 * BLOCKS_PER_STEP], &many[..5]] {
            assert_eq!(murmur3_x64_128_of_many(bytes, 3), murmur3_x64_128(bytes, 3));
        }
    }

    /// Tokens as Apache Cassandra 5.0's Murmur3Partitioner gives them.
    #[test]
    fn tokens_as_cassandra() {
        let table = [
            ("", i64::MIN),
            ("0000000000000001", 6_292_367_497_774_912_474),
            ("ffffffff", 7_297_452_126_230_313_552),
            ("f81d4fae7dec11d0a76500a0c91e6bf6", 4_089_685_340_580_616_096),
        ];
        for (hex, token) in table {
            assert_eq!(token_of(&bytes_from_hex(hex)), Token(token), "token of 0x{hex}");
        }
    }

    /// The shortcuts for the tail agree with the definition, byte by byte.
    #[test]
    fn every_tail_is_sign_extended() {
        let mut state = 1_u64;
        for round in 0..2_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let word = mix_final(state).to_le_bytes();
            let tail = &word[..round % 9];
            let expected = tail.iter().enumerate().fold(0_u64, |all, (index, &byte)| {
                all ^ (i64::from(byte.cast_signed()).cast_unsigned() << (8 * index))
            });
            let loaded = tail.try_into().map_or_else(|_| load_le(tail), u64::from_le_bytes);
            assert_eq!(sign_extend_bytes(loaded), expected, "tail {tail:02x?}");
        }
    }

    #[test]
    fn shards_divide_the_ring() {
        let table = [
            (Token(i64::MIN), 8, 12, 0),
            (Token(-1), 2, 0, 0),
            (Token(0), 2, 0, 1),
            (Token(i64::MAX), 7, 0, 6),
            (Token(i64::MAX), 7, 12, 6),
            (Token(0), 8, 12, 0),
            (Token(1 << 51), 8, 12, 4),
            (Token(i64::MAX), 1, 12, 0),
            (Token(i64::MAX), 8, 64, 0),
            (Token(i64::MAX), u32::MAX, 0, u32::MAX - 1),
        ];
        for (token, nr_shards, ignore_msb, shard) in table {
            assert_eq!(
                shard_of(token, nr_shards, ignore_msb),
                shard,
                "{token} of {nr_shards} shards, {ignore_msb} bits ignored"
            );
        }
    }
}
