//! CRC-32C (Castagnoli), as in RFC 3720, appendix B.4: the checksum of many short messages.
//!
//! The processor has an instruction for it that takes eight bytes. A frame of 80 bytes costs a third of what CRC-32
//! does, for which there is an instruction for long messages only. docs/decisions/0010 compares libraries.

/// The checksum of some bytes.
#[inline]
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    extend(0, bytes)
}

/// The checksum of bytes of which `checksum` is known, and of more that follow them. Of no bytes it is 0.
#[inline]
#[must_use]
pub fn extend(checksum: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction.
        return unsafe { by_instruction(checksum, bytes) };
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("crc") {
        // SAFETY: the processor has the instruction.
        return unsafe { by_instruction(checksum, bytes) };
    }
    by_table(checksum, bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn by_instruction(checksum: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks();
    let crc = words.iter().fold(u64::from(!checksum), |crc, word| {
        _mm_crc32_u64(crc, u64::from_le_bytes(*word))
    });
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the instruction leaves the upper half zero"
    )]
    let crc = crc as u32;
    !rest.iter().fold(crc, |crc, byte| _mm_crc32_u8(crc, *byte))
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "crc")]
fn by_instruction(checksum: u32, bytes: &[u8]) -> u32 {
    use std::arch::aarch64::{__crc32cb, __crc32cd};
    let (words, rest) = bytes.as_chunks();
    let crc = words
        .iter()
        .fold(!checksum, |crc, word| __crc32cd(crc, u64::from_le_bytes(*word)));
    !rest.iter().fold(crc, |crc, byte| __crc32cb(crc, *byte))
}

fn by_table(checksum: u32, bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| TABLE[usize::from(crc.to_le_bytes()[0] ^ byte)] ^ crc >> 8;
    !bytes.iter().fold(!checksum, step)
}

/// What each byte adds.
static TABLE: [u32; 256] = {
    // The polynomial, its bits reversed.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 3720, and the usual one.
    #[test]
    fn it_is_the_checksum_of_the_rfc() {
        let ascending: Vec<u8> = (0..32).collect();
        for (bytes, checksum) in [
            (&b"123456789"[..], 0xe306_9283),
            (&[], 0),
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&ascending, 0x46dd_794e),
        ] {
            assert_eq!(crc32c(bytes), checksum, "{bytes:?}");
            assert_eq!(by_table(0, bytes), checksum, "{bytes:?} by the table");
        }
    }

    #[test]
    fn all_ways_give_the_same_wherever_the_bytes_begin_and_end() {
        let bytes: Vec<u8> = (0..200_u8).map(|n| n.wrapping_mul(37)).collect();
        for start in 0..10 {
            for end in start..bytes.len() {
                assert_eq!(
                    crc32c(&bytes[start..end]),
                    by_table(0, &bytes[start..end]),
                    "{start}..{end}"
                );
            }
        }
    }

    #[test]
    fn a_checksum_goes_on_wherever_the_bytes_are_cut() {
        let bytes: Vec<u8> = (0..100_u8).map(|n| n.wrapping_mul(37)).collect();
        for cut in 0..=bytes.len() {
            let (first, rest) = bytes.split_at(cut);
            assert_eq!(extend(crc32c(first), rest), crc32c(&bytes), "cut at {cut}");
            assert_eq!(
                by_table(by_table(0, first), rest),
                crc32c(&bytes),
                "cut at {cut}, by the table"
            );
        }
    }
}
