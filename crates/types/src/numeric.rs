//! Numbers of any size in their serialised form.
//!
//! ```text
//! varint  = two's complement, big-endian; writers use the fewest bytes, readers accept more
//! decimal = i32 scale, varint unscaled: unscaled * 10^-scale
//! ```
//! A scale comes from outside and may be any i32, so nothing here raises ten to a power that the length of the digits
//! does not bound.

use std::cmp::Ordering;

use num_bigint::{BigInt, Sign};
use num_traits::Signed;

/// Orders varints by value without building them. Empty is first.
pub(crate) fn compare_varint(a: &[u8], b: &[u8]) -> Ordering {
    if a.is_empty() || b.is_empty() {
        return a.len().cmp(&b.len());
    }
    let (a_negative, b_negative) = (is_negative(a), is_negative(b));
    if a_negative != b_negative {
        return b_negative.cmp(&a_negative);
    }
    let (a, b) = (trim_sign(a), trim_sign(b));
    // With the same sign, more bytes are further from zero; as many bytes compare as they are.
    let by_len = if a_negative {
        b.len().cmp(&a.len())
    } else {
        a.len().cmp(&b.len())
    };
    by_len.then_with(|| a.cmp(b))
}

/// Orders decimals by value. Empty is first, bytes too short for a scale are last.
pub(crate) fn compare_decimal(a: &[u8], b: &[u8]) -> Ordering {
    let (Some((a_scale, a_digits)), Some((b_scale, b_digits))) = (split_decimal(a), split_decimal(b)) else {
        let rank = |bytes: &[u8]| match bytes.len() {
            0 => 0,
            1..4 => 2,
            _ => 1,
        };
        return rank(a).cmp(&rank(b)).then_with(|| a.cmp(b));
    };
    if a_scale == b_scale && !a_digits.is_empty() && !b_digits.is_empty() {
        return compare_varint(a_digits, b_digits);
    }
    let (a_unscaled, b_unscaled) = (
        BigInt::from_signed_bytes_be(a_digits),
        BigInt::from_signed_bytes_be(b_digits),
    );
    compare_scaled(&a_unscaled, a_scale, &b_unscaled, b_scale)
}

/// The scale and the bytes of the unscaled value; `None` for fewer than four bytes.
pub(crate) fn split_decimal(bytes: &[u8]) -> Option<(i32, &[u8])> {
    bytes
        .split_first_chunk::<4>()
        .map(|(scale, digits)| (i32::from_be_bytes(*scale), digits))
}

fn compare_scaled(a: &BigInt, a_scale: i32, b: &BigInt, b_scale: i32) -> Ordering {
    let by_sign = sign_rank(a).cmp(&sign_rank(b));
    if by_sign.is_ne() || a.sign() == Sign::NoSign {
        return by_sign;
    }
    let by_magnitude = compare_magnitudes(a, a_scale, b, b_scale);
    if a.is_negative() {
        by_magnitude.reverse()
    } else {
        by_magnitude
    }
}

fn sign_rank(number: &BigInt) -> i8 {
    match number.sign() {
        Sign::Minus => -1,
        Sign::NoSign => 0,
        Sign::Plus => 1,
    }
}

/// First by bounds on the decimal exponent, which cost nothing; numbers of nearly the same size are then brought to one
/// scale, and the difference of scales is bounded by the difference of their digits.
fn compare_magnitudes(a: &BigInt, a_scale: i32, b: &BigInt, b_scale: i32) -> Ordering {
    let (a_low, a_high) = exponent_bounds(a, a_scale);
    let (b_low, b_high) = exponent_bounds(b, b_scale);
    if a_low > b_high {
        return Ordering::Greater;
    }
    if b_low > a_high {
        return Ordering::Less;
    }
    let difference = i64::from(a_scale) - i64::from(b_scale);
    let power = u32::try_from(difference.unsigned_abs()).expect("two i32 differ by less than 2^32");
    let (a, b) = (a.magnitude(), b.magnitude());
    let ten = num_bigint::BigUint::from(10_u8);
    match difference.cmp(&0) {
        Ordering::Greater => a.cmp(&(b * ten.pow(power))),
        Ordering::Less => (a * ten.pow(power)).cmp(b),
        Ordering::Equal => a.cmp(b),
    }
}

/// Whole exponents `low` and `high` with 10^low <= number * 10^-scale <= 10^high.
pub(crate) fn exponent_bounds(number: &BigInt, scale: i32) -> (i64, i64) {
    // log10(2) is 0.30102999566...; both bounds are on the safe side of it.
    let bits = i64::try_from(number.bits()).expect("a number in memory has less than 2^63 bits");
    let low = (bits - 1) * 30_102_999 / 100_000_000;
    let high = bits * 30_103_000 / 100_000_000 + 1;
    (low - i64::from(scale), high - i64::from(scale))
}

pub(crate) fn is_negative(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| *first >= 0x80)
}

/// Without the leading bytes that only repeat the sign.
pub(crate) fn trim_sign(mut bytes: &[u8]) -> &[u8] {
    while let [first, second, ..] = bytes {
        let repeats = matches!((first, second), (0, ..0x80) | (0xff, 0x80..));
        if !repeats {
            break;
        }
        bytes = &bytes[1..];
    }
    bytes
}
