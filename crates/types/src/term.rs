//! Terms: the bytes under which an index lists a value. The order of terms, byte by byte, is the order of the values.
//!
//! ```text
//! empty                   no bytes
//! text, blob, inet, ...   the value
//! tinyint ... bigint      big-endian, the sign bit flipped
//! float, double           the bits as an integer, negative ones reversed, all NaNs one and last; the sign bit flipped
//! boolean                 0 or 1
//! timeuuid                time (60 bits), version (4), clock sequence and node with the sign bits of the bytes flipped
//! uuid                    version (4 bits); the other 60 bits of the first half, or the time of a version 1; the
//!                         second half
//! varint                  length, two's complement without repeated signs. The length is 0x80 + length - 1, or 0xff
//!                         and 4 bytes from 128 on; of a negative number all its bits are flipped
//! decimal                 1, exponent, digits, 0xff negative: all bits after the 1 but the 0xff flipped
//!                         2                         zero
//!                         3, exponent, digits       positive: 0.digits * 10^exponent
//!                         The exponent has 5 bytes and is biased by 2^39. A byte for two digits, plus one; no digits
//!                         are zeros at the end.
//! list, set, map          for each element 1 if it is null, or 2, its term escaped, 0; then 0
//! tuple, UDT, vector      the same for each field, without the 0 at the end
//! ```
//! A zero in an escaped term is followed by 0xff. What follows the 0 at its end is 2 at most, so an element sorts
//! before all elements that it is a prefix of.
//!
//! A term is cut to [`TERM_MAX`] bytes. A prefix of two terms is in their order or is equal, so ranges of values are
//! still ranges of terms. Bytes that are no value of the type have a term too, in most types after all others.

use num_bigint::{BigInt, BigUint, Sign};

use crate::Comparator;
use crate::compare::{
    double_key, float_key, split_element, split_field, split_vector_element, time_then_version, time_uuid_key,
    uuid_halves,
};
use crate::cql_type::CqlType;
use crate::numeric::{exponent_bounds, is_negative, split_decimal, trim_sign};

/// The length of the longest term, in bytes.
pub const TERM_MAX: usize = 1024;
/// A term has no more digits of a decimal: two in each byte.
const DIGITS_MAX: usize = 2 * TERM_MAX;
/// A varint of more bytes has its length in four bytes.
const SHORT_VARINT_MAX: usize = 0x7f;
const EXPONENT_BIAS: i64 = 1 << 39;

const NULL: u8 = 1;
const PRESENT: u8 = 2;
const NEGATIVE: u8 = 1;
const ZERO: u8 = 2;
const POSITIVE: u8 = 3;
/// After the digits of a negative decimal, and before bytes that are no value.
const LAST: u8 = 0xff;

/// Appends the term of a serialised value of this type. For two values that [`CqlType::validate`] accepts, the terms
/// compare as [`Comparator`] does; where a term is cut to [`TERM_MAX`] bytes, different values may have the same.
///
/// The cost of a decimal grows faster than its digits, like that of a comparison between two scales.
pub fn put_term(cql_type: &CqlType, value: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    put(&cql_type.comparator(), value, out);
    out.truncate(start + TERM_MAX);
}

/// Appends at least the first [`TERM_MAX`] bytes of the term, or all of it.
fn put(comparator: &Comparator, value: &[u8], out: &mut Vec<u8>) {
    if value.is_empty() {
        return;
    }
    match comparator {
        Comparator::Bytes => out.extend_from_slice(&value[..value.len().min(TERM_MAX)]),
        Comparator::Boolean => put_fixed(value, out, |[byte]: [u8; 1]| [u8::from(byte != 0)]),
        Comparator::TinyInt => put_fixed(value, out, |bytes: [u8; 1]| flip_sign(bytes)),
        Comparator::SmallInt => put_fixed(value, out, |bytes: [u8; 2]| flip_sign(bytes)),
        Comparator::Int => put_fixed(value, out, |bytes: [u8; 4]| flip_sign(bytes)),
        Comparator::BigInt => put_fixed(value, out, |bytes: [u8; 8]| flip_sign(bytes)),
        Comparator::Float => put_fixed(value, out, |bytes| flip_sign(float_key(bytes).to_be_bytes())),
        Comparator::Double => put_fixed(value, out, |bytes| flip_sign(double_key(bytes).to_be_bytes())),
        Comparator::TimeUuid => put_fixed(value, out, |bytes| join_halves(time_uuid_key(bytes))),
        Comparator::Uuid => put_fixed(value, out, uuid_term),
        Comparator::VarInt => put_varint(value, out),
        Comparator::Decimal => put_decimal(value, out),
        Comparator::List(element) => put_collection(value, [element, element], out),
        Comparator::Map(pair) => put_collection(value, [&pair[0], &pair[1]], out),
        Comparator::Tuple(elements) => put_tuple(value, elements, out),
        Comparator::Vector(element, element_len) => put_vector(value, element, *element_len, out),
    }
}

/// A value of another length is no value: it sorts after those of the right length, by its bytes.
fn put_fixed<const N: usize, const M: usize>(value: &[u8], out: &mut Vec<u8>, term: impl Fn([u8; N]) -> [u8; M]) {
    match <[u8; N]>::try_from(value) {
        Ok(bytes) => out.extend_from_slice(&term(bytes)),
        Err(_) => {
            out.extend_from_slice(&[LAST; M]);
            out.extend_from_slice(&value[..value.len().min(TERM_MAX)]);
        }
    }
}

const fn flip_sign<const N: usize>(mut bytes: [u8; N]) -> [u8; N] {
    bytes[0] ^= 0x80;
    bytes
}

const fn join_halves((high, low): (u64, u64)) -> [u8; 16] {
    ((high as u128) << 64 | low as u128).to_be_bytes()
}

/// The version is moved to the front. What is left of the first half keeps its order without it.
const fn uuid_term(bytes: [u8; 16]) -> [u8; 16] {
    let (high, low) = uuid_halves(bytes);
    let version = (high >> 12) & 0xf;
    let rest = if version == 1 {
        time_then_version(high) >> 4
    } else {
        (high >> 16) << 12 | high & 0xfff
    };
    join_halves((version << 60 | rest, low))
}

fn put_varint(value: &[u8], out: &mut Vec<u8>) {
    let digits = trim_sign(value);
    // Of two numbers of the same sign, the longer one is further from zero.
    let flip = if is_negative(digits) { 0xff } else { 0 };
    if digits.len() <= SHORT_VARINT_MAX {
        let len = u8::try_from(digits.len() - 1).expect("at most 0x7f");
        out.push((0x80 + len) ^ flip);
    } else {
        let len = u32::try_from(digits.len()).unwrap_or(u32::MAX);
        out.push(0xff ^ flip);
        out.extend(len.to_be_bytes().map(|byte| byte ^ flip));
    }
    out.extend_from_slice(&digits[..digits.len().min(TERM_MAX)]);
}

fn put_decimal(value: &[u8], out: &mut Vec<u8>) {
    let Some((scale, digits)) = split_decimal(value) else {
        out.push(LAST);
        out.extend_from_slice(value);
        return;
    };
    let unscaled = BigInt::from_signed_bytes_be(digits);
    let (marker, flip) = match unscaled.sign() {
        Sign::Minus => (NEGATIVE, 0xff),
        Sign::NoSign => return out.push(ZERO),
        Sign::Plus => (POSITIVE, 0),
    };
    let (digits, digit_count) = leading_digits(&unscaled);
    let exponent = digit_count - i64::from(scale) + EXPONENT_BIAS;
    out.push(marker);
    out.extend(exponent.to_be_bytes()[3..].iter().map(|byte| byte ^ flip));
    let pairs = digits.chunks(2).map(|pair| match pair {
        [first, second] => first * 10 + second,
        rest => rest[0] * 10,
    });
    out.extend(pairs.map(|pair| (pair + 1) ^ flip));
    // No flipped pair is so great: a negative number that others continue is greater than they are.
    out.extend((marker == NEGATIVE).then_some(LAST));
}

/// The first digits of a number that is not zero, [`DIGITS_MAX`] at most and without zeros at the end, and how many
/// digits the number has in all.
fn leading_digits(number: &BigInt) -> (Vec<u8>, i64) {
    let (least_exponent, _) = exponent_bounds(number, 0);
    // One digit more than are kept, so that the bound need not be exact.
    let skipped = usize::try_from(least_exponent).map_or(0, |least| least.saturating_sub(DIGITS_MAX));
    let mut digits = if skipped == 0 {
        number.magnitude().to_radix_be(10)
    } else {
        let power = u32::try_from(skipped).expect("a number in memory has less than 2^32 digits");
        (number.magnitude() / BigUint::from(10_u8).pow(power)).to_radix_be(10)
    };
    let digit_count = i64::try_from(digits.len() + skipped).expect("a number in memory has less than 2^63 digits");
    digits.truncate(DIGITS_MAX);
    let len = digits.iter().rposition(|digit| *digit != 0).map_or(0, |last| last + 1);
    digits.truncate(len);
    (digits, digit_count)
}

fn put_collection(value: &[u8], comparators: [&Comparator; 2], out: &mut Vec<u8>) {
    let start = out.len();
    let Some(mut rest) = value.get(4..) else {
        out.push(LAST);
        out.extend_from_slice(value);
        return;
    };
    for turn in [0, 1].into_iter().cycle() {
        if rest.is_empty() || out.len() - start > TERM_MAX {
            break;
        }
        put_element(comparators[turn], split_element(&mut rest), out);
    }
    out.push(0);
}

fn put_tuple(value: &[u8], comparators: &[Comparator], out: &mut Vec<u8>) {
    let start = out.len();
    let mut rest = value;
    for comparator in comparators {
        if out.len() - start > TERM_MAX {
            return;
        }
        put_element(comparator, split_field(&mut rest), out);
    }
    out.extend_from_slice(&rest[..rest.len().min(TERM_MAX)]);
}

fn put_vector(value: &[u8], element: &Comparator, element_len: Option<usize>, out: &mut Vec<u8>) {
    let start = out.len();
    let mut rest = value;
    while !rest.is_empty() && out.len() - start <= TERM_MAX {
        put_element(element, Some(split_vector_element(&mut rest, element_len)), out);
    }
}

fn put_element(comparator: &Comparator, element: Option<&[u8]>, out: &mut Vec<u8>) {
    let Some(element) = element else {
        return out.push(NULL);
    };
    out.push(PRESENT);
    let mut term = Vec::new();
    put(comparator, element, &mut term);
    // What is cut here is not in the first TERM_MAX bytes of `out` either.
    term.truncate(TERM_MAX);
    for byte in term {
        out.push(byte);
        out.extend((byte == 0).then_some(0xff));
    }
    out.push(0);
}
