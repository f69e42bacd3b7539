//! Cassandra's variable-length integers.
//!
//! The count of leading one bits of the first byte is the count of bytes that follow it; the remaining bits of the
//! first byte and the following bytes are the number, big-endian. One to nine bytes:
//!
//! ```text
//! 0xxxxxxx                      7 bits
//! 10xxxxxx xxxxxxxx            14 bits
//! ...
//! 11111110 x * 7 bytes         56 bits
//! 11111111 x * 8 bytes         64 bits
//! ```
//!
//! A signed number is zigzag encoded first, so that small negative numbers are short too. Writers emit the shortest
//! form; readers accept a longer one.

/// The longest encoding, in bytes.
pub const LEN_MAX: usize = 9;

/// How many bytes [`put_unsigned`] appends for `value`.
#[inline]
#[must_use]
pub const fn unsigned_len(value: u64) -> usize {
    // Seven bits a byte up to eight bytes; the ninth byte is all data. `| 1` gives zero one bit.
    let bits = 64 - (value | 1).leading_zeros() as usize;
    if bits > 56 { 9 } else { bits.div_ceil(7) }
}

/// How many bytes [`put_signed`] appends for `value`.
#[inline]
#[must_use]
pub const fn signed_len(value: i64) -> usize {
    unsigned_len(zigzag(value))
}

/// Appends the shortest encoding of `value`.
#[inline]
pub fn put_unsigned(out: &mut Vec<u8>, value: u64) {
    if value < 0x80 {
        out.push(value.to_le_bytes()[0]);
    } else {
        put_unsigned_long(out, value);
    }
}

/// Writes the shortest encoding of `value` into `out`, which is exactly [`unsigned_len`] long.
#[inline]
pub fn write_unsigned(out: &mut [u8], value: u64) {
    let len = out.len();
    debug_assert_eq!(len, unsigned_len(value));
    let mut rest = value;
    for byte in out.iter_mut().rev() {
        *byte = rest.to_le_bytes()[0];
        rest >>= 8;
    }
    // As many leading ones as bytes follow; the ninth byte leaves no room for a zero.
    out[0] |= !(0xff_u16 >> (len - 1)).to_le_bytes()[0];
}

/// Appends the shortest encoding of the zigzag form of `value`.
#[inline]
pub fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_unsigned(out, zigzag(value));
}

/// The number at the start of `bytes` and the bytes it took; `None` when `bytes` end too early.
#[inline]
#[must_use]
pub fn get_unsigned(bytes: &[u8]) -> Option<(u64, usize)> {
    match bytes.first() {
        Some(&first) if first < 0x80 => Some((u64::from(first), 1)),
        Some(&first) => get_unsigned_long(first, bytes),
        None => None,
    }
}

/// The signed number at the start of `bytes` and the bytes it took; `None` when `bytes` end too early.
#[inline]
#[must_use]
pub fn get_signed(bytes: &[u8]) -> Option<(i64, usize)> {
    get_unsigned(bytes).map(|(value, len)| (unzigzag(value), len))
}

fn put_unsigned_long(out: &mut Vec<u8>, value: u64) {
    let len = unsigned_len(value);
    let bytes = value.to_be_bytes();
    if len == LEN_MAX {
        out.push(0xff);
        out.extend_from_slice(&bytes);
    } else {
        let start = out.len();
        out.extend_from_slice(&bytes[8 - len..]);
        // len - 1 leading ones; the shortest form leaves those bits of the number zero.
        out[start] |= !(0xff_u8 >> (len - 1));
    }
}

fn get_unsigned_long(first: u8, bytes: &[u8]) -> Option<(u64, usize)> {
    let extra = first.leading_ones() as usize;
    let tail = bytes.get(1..=extra)?;
    let head = if extra >= 7 {
        0
    } else {
        u64::from(first) & (0xff >> (extra + 1))
    };
    let value = tail.iter().fold(head, |value, &byte| (value << 8) | u64::from(byte));
    Some((value, extra + 1))
}

#[inline]
const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

#[inline]
const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_in_place_equals_appending() {
        for bits in 0..64 {
            for value in [1u64 << bits, (1u64 << bits) - 1, u64::MAX >> bits] {
                let mut appended = Vec::new();
                put_unsigned(&mut appended, value);
                let mut placed = vec![0; unsigned_len(value)];
                write_unsigned(&mut placed, value);
                assert_eq!(placed, appended, "{value}");
            }
        }
    }

    fn check(value: u64, expected: &[u8]) {
        let mut out = vec![0xaa];
        put_unsigned(&mut out, value);
        assert_eq!(&out[1..], expected, "{value} is encoded as Cassandra does");
        assert_eq!(
            unsigned_len(value),
            expected.len(),
            "length of {value} is known before it is written"
        );
        assert_eq!(
            get_unsigned(expected),
            Some((value, expected.len())),
            "{value} is read back"
        );
        for cut in 0..expected.len() {
            assert_eq!(
                get_unsigned(&expected[..cut]),
                None,
                "{value} cut to {cut} bytes is noticed"
            );
        }
    }

    /// Encodings as Apache Cassandra 5.0 writes them.
    #[test]
    fn unsigned_as_cassandra() {
        check(0, &[0]);
        check(1, &[1]);
        check(127, &[0x7f]);
        check(128, &[0x80, 0x80]);
        check(16_383, &[0xbf, 0xff]);
        check(16_384, &[0xc0, 0x40, 0]);
        check(2_097_151, &[0xdf, 0xff, 0xff]);
        check(2_097_152, &[0xe0, 0x20, 0, 0]);
        check(268_435_455, &[0xef, 0xff, 0xff, 0xff]);
        check((1 << 56) - 1, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        check(1 << 56, &[0xff, 1, 0, 0, 0, 0, 0, 0, 0]);
        check(u64::MAX, &[0xff; 9]);
    }

    #[test]
    fn signed_is_zigzag() {
        let table: [(i64, &[u8]); 7] = [
            (0, &[0]),
            (-1, &[1]),
            (1, &[2]),
            (-64, &[0x7f]),
            (64, &[0x80, 0x80]),
            (i64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe]),
            (i64::MIN, &[0xff; 9]),
        ];
        for (value, expected) in table {
            let mut out = Vec::new();
            put_signed(&mut out, value);
            assert_eq!(out, expected, "{value} is encoded as Cassandra does");
            assert_eq!(signed_len(value), expected.len(), "length of {value}");
            assert_eq!(
                get_signed(expected),
                Some((value, expected.len())),
                "{value} is read back"
            );
        }
    }

    #[test]
    fn every_bit_width_comes_back() {
        for shift in 0..64 {
            for delta in [-1_i64, 0, 1] {
                let value = (1_u64 << shift).wrapping_add_signed(delta);
                let mut out = Vec::new();
                put_unsigned(&mut out, value);
                assert_eq!(out.len(), unsigned_len(value), "length of {value}");
                assert_eq!(get_unsigned(&out), Some((value, out.len())), "{value} is read back");
            }
        }
    }

    #[test]
    fn a_longer_form_than_needed_is_read() {
        assert_eq!(get_unsigned(&[0x80, 5, 9]), Some((5, 2)));
        assert_eq!(get_unsigned(&[0xff, 0, 0, 0, 0, 0, 0, 0, 5]), Some((5, 9)));
    }
}
