//! The order of serialised values, as Cassandra defines it for each type.
//!
//! It is total on any bytes. Among well-formed values it is Cassandra's; the empty value comes first; bytes that are no
//! value of the type come last, in the order of bytes. Different bytes may be equal: 1.0 and 1.00 are, and so are all
//! NaNs.

use std::cmp::Ordering;

use stdx::vint;

use crate::cql_type::CqlType;
use crate::numeric::{compare_decimal, compare_varint};

/// How two values of one type are compared, worked out once so that a loop costs one match for each comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparator {
    /// Unsigned bytes, a prefix before what it is a prefix of.
    Bytes,
    /// False before true.
    Boolean,
    /// Signed, one byte.
    TinyInt,
    /// Signed, two bytes.
    SmallInt,
    /// Signed, four bytes.
    Int,
    /// Signed, eight bytes.
    BigInt,
    /// `-0` before `0`, NaN last.
    Float,
    /// `-0` before `0`, NaN last.
    Double,
    /// Numeric.
    VarInt,
    /// Numeric, whatever the scales.
    Decimal,
    /// By time, then by signed bytes.
    TimeUuid,
    /// By version, then version 1 by time, then by unsigned bytes.
    Uuid,
    /// Element by element, then the shorter first: lists and sets.
    List(Box<Comparator>),
    /// Key, value, key, value, then the shorter first.
    Map(Box<[Comparator; 2]>),
    /// Element by element, null first: tuples and user-defined types.
    Tuple(Box<[Comparator]>),
    /// Element by element; the length of an element, when that is fixed.
    Vector(Box<Comparator>, Option<usize>),
}

impl CqlType {
    /// The order of this type's values.
    #[must_use]
    pub fn comparator(&self) -> Comparator {
        match self {
            Self::Ascii
            | Self::Blob
            | Self::Date
            | Self::Duration
            | Self::Empty
            | Self::Inet
            | Self::Text
            | Self::Time => Comparator::Bytes,
            Self::Boolean => Comparator::Boolean,
            Self::TinyInt => Comparator::TinyInt,
            Self::SmallInt => Comparator::SmallInt,
            Self::Int => Comparator::Int,
            Self::BigInt | Self::Counter | Self::Timestamp => Comparator::BigInt,
            Self::Float => Comparator::Float,
            Self::Double => Comparator::Double,
            Self::VarInt => Comparator::VarInt,
            Self::Decimal => Comparator::Decimal,
            Self::TimeUuid => Comparator::TimeUuid,
            Self::Uuid => Comparator::Uuid,
            Self::List(element) | Self::Set(element) => Comparator::List(Box::new(element.comparator())),
            Self::Map(key, value) => Comparator::Map(Box::new([key.comparator(), value.comparator()])),
            Self::Tuple(elements) => Comparator::Tuple(elements.iter().map(Self::comparator).collect()),
            Self::Udt(udt) => Comparator::Tuple(udt.fields.iter().map(|(_, field)| field.comparator()).collect()),
            Self::Vector(element, _) => Comparator::Vector(Box::new(element.comparator()), element.fixed_len()),
            Self::Frozen(inner) => inner.comparator(),
        }
    }

    /// Compares two values once; where many are compared, keep [`CqlType::comparator`].
    #[must_use]
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        self.comparator().compare(a, b)
    }
}

impl Comparator {
    /// Orders two serialised values.
    #[inline]
    #[must_use]
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Self::Bytes => a.cmp(b),
            Self::BigInt => compare_fixed(a, b, i64::from_be_bytes),
            Self::Int => compare_fixed(a, b, i32::from_be_bytes),
            Self::TimeUuid => compare_fixed(a, b, time_uuid_key),
            Self::Uuid => compare_fixed(a, b, uuid_key),
            Self::Boolean => compare_fixed(a, b, |[byte]: [u8; 1]| byte != 0),
            Self::TinyInt => compare_fixed(a, b, i8::from_be_bytes),
            Self::SmallInt => compare_fixed(a, b, i16::from_be_bytes),
            Self::Float => compare_fixed(a, b, float_key),
            Self::Double => compare_fixed(a, b, double_key),
            _ => self.compare_varying(a, b),
        }
    }

    /// The types whose comparison is long enough that a call does not matter.
    fn compare_varying(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Self::VarInt => compare_varint(a, b),
            Self::Decimal => compare_decimal(a, b),
            Self::List(element) => compare_collections(a, b, [element, element]),
            Self::Map(pair) => compare_collections(a, b, [&pair[0], &pair[1]]),
            Self::Tuple(elements) => compare_tuples(a, b, elements),
            Self::Vector(element, element_len) => compare_vectors(a, b, element, *element_len),
            _ => self.compare(a, b),
        }
    }
}

#[inline]
fn compare_fixed<const N: usize, K: Ord>(a: &[u8], b: &[u8], key: impl Fn([u8; N]) -> K) -> Ordering {
    match (<[u8; N]>::try_from(a), <[u8; N]>::try_from(b)) {
        (Ok(a), Ok(b)) => key(a).cmp(&key(b)),
        _ => compare_lengths_then_bytes(a, b, N),
    }
}

/// Empty, then right, then wrong lengths. At most one of the two has the right one.
#[cold]
fn compare_lengths_then_bytes(a: &[u8], b: &[u8], len: usize) -> Ordering {
    let rank = |bytes: &[u8]| match bytes.len() {
        0 => 0,
        right if right == len => 1,
        _ => 2,
    };
    rank(a).cmp(&rank(b)).then_with(|| a.cmp(b))
}

/// Java's order of floats: bits as a number, negative ones reversed, all NaNs one and last.
#[inline]
pub(crate) const fn float_key(bytes: [u8; 4]) -> i32 {
    let bits = i32::from_be_bytes(bytes);
    if bits & i32::MAX > 0x7f80_0000 {
        i32::MAX
    } else {
        bits ^ ((bits >> 31) & i32::MAX)
    }
}

#[inline]
pub(crate) const fn double_key(bytes: [u8; 8]) -> i64 {
    let bits = i64::from_be_bytes(bytes);
    if bits & i64::MAX > 0x7ff0_0000_0000_0000 {
        i64::MAX
    } else {
        bits ^ ((bits >> 63) & i64::MAX)
    }
}

/// The two halves of a UUID: what holds its time and version, and the rest.
#[inline]
pub(crate) const fn uuid_halves(bytes: [u8; 16]) -> (u64, u64) {
    let bits = u128::from_be_bytes(bytes);
    #[expect(clippy::cast_possible_truncation, reason = "each half is used by itself")]
    ((bits >> 64) as u64, bits as u64)
}

/// The 60 bits of time, most significant first, then the four of version.
#[inline]
pub(crate) const fn time_then_version(high_half: u64) -> u64 {
    let (low, middle, version_and_high) = (high_half >> 32, (high_half >> 16) & 0xffff, high_half & 0xffff);
    (version_and_high << 52) | (middle << 36) | (low << 4) | (version_and_high >> 12)
}

#[inline]
pub(crate) const fn time_uuid_key(bytes: [u8; 16]) -> (u64, u64) {
    let (high, low) = uuid_halves(bytes);
    // Signed bytes compare as unsigned ones do once their sign bits are flipped.
    (time_then_version(high), low ^ 0x8080_8080_8080_8080)
}

#[inline]
const fn uuid_key(bytes: [u8; 16]) -> (u64, u64, u64) {
    let (high, low) = uuid_halves(bytes);
    let version = (high >> 12) & 0xf;
    (version, if version == 1 { time_then_version(high) } else { high }, low)
}

/// The next element of a collection or tuple. Lengths beyond the end give what there is, so that damaged bytes still
/// have one place in the order.
pub(crate) fn split_element<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let Some((len, tail)) = rest.split_first_chunk::<4>() else {
        return Some(std::mem::take(rest));
    };
    let len = i32::from_be_bytes(*len);
    let Ok(len) = usize::try_from(len) else {
        *rest = tail;
        return None;
    };
    let (element, tail) = tail.split_at(len.min(tail.len()));
    *rest = tail;
    Some(element)
}

/// The next field of a tuple: those beyond the end are null.
pub(crate) fn split_field<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    if rest.is_empty() { None } else { split_element(rest) }
}

pub(crate) fn split_vector_element<'a>(rest: &mut &'a [u8], element_len: Option<usize>) -> &'a [u8] {
    let (header, len) = match element_len {
        Some(len) => (0, len.max(1)),
        None => match vint::get_unsigned(rest) {
            Some((len, header)) => (header, usize::try_from(len).unwrap_or(usize::MAX)),
            None => (0, rest.len()),
        },
    };
    let bytes = &rest[header..];
    let (element, tail) = bytes.split_at(len.min(bytes.len()));
    *rest = tail;
    element
}

fn compare_nullable(a: Option<&[u8]>, b: Option<&[u8]>, comparator: &Comparator) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => comparator.compare(a, b),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// Lists and sets have the same comparator twice, maps that of keys and that of values.
fn compare_collections(a: &[u8], b: &[u8], comparators: [&Comparator; 2]) -> Ordering {
    let (Some(mut a_rest), Some(mut b_rest)) = (a.get(4..), b.get(4..)) else {
        return compare_missing_counts(a, b);
    };
    let mut turn = 0;
    while !a_rest.is_empty() && !b_rest.is_empty() {
        let ordering = compare_nullable(
            split_element(&mut a_rest),
            split_element(&mut b_rest),
            comparators[turn],
        );
        if ordering.is_ne() {
            return ordering;
        }
        turn ^= 1;
    }
    (!a_rest.is_empty()).cmp(&!b_rest.is_empty())
}

/// Empty, then those with a count, then those too short for one.
#[cold]
fn compare_missing_counts(a: &[u8], b: &[u8]) -> Ordering {
    let rank = |bytes: &[u8]| match bytes.len() {
        0 => 0,
        1..4 => 2,
        _ => 1,
    };
    rank(a).cmp(&rank(b)).then_with(|| a.cmp(b))
}

fn compare_tuples(a: &[u8], b: &[u8], comparators: &[Comparator]) -> Ordering {
    if a.is_empty() || b.is_empty() {
        return a.len().cmp(&b.len());
    }
    let (mut a_rest, mut b_rest) = (a, b);
    for comparator in comparators {
        let ordering = compare_nullable(split_field(&mut a_rest), split_field(&mut b_rest), comparator);
        if ordering.is_ne() {
            return ordering;
        }
    }
    a_rest.cmp(b_rest)
}

fn compare_vectors(a: &[u8], b: &[u8], comparator: &Comparator, element_len: Option<usize>) -> Ordering {
    let (mut a_rest, mut b_rest) = (a, b);
    while !a_rest.is_empty() && !b_rest.is_empty() {
        let a_element = split_vector_element(&mut a_rest, element_len);
        let b_element = split_vector_element(&mut b_rest, element_len);
        let ordering = comparator.compare(a_element, b_element);
        if ordering.is_ne() {
            return ordering;
        }
    }
    a_rest.len().cmp(&b_rest.len()).then_with(|| a.len().cmp(&b.len()))
}
