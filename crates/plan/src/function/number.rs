//! Numbers of every CQL type in one form, and the conversions between them.
//!
//! Conversions are those of Java's numbers, which applications of Cassandra know: to a narrower integer they keep the
//! low bits, from a floating point number they saturate, from a decimal they drop the fraction.
//!
//! A varint or a decimal of more than [`DIGITS_MAX`] digits is no operand: multiplication and division are one call
//! each of a library, and the time of a call grows faster than the count of the digits. With so many it is far below
//! a slice.

use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive, Zero};
use stdx::preempt;
use types::{CqlType, Decimal, Value};

/// The most digits of an operand, and the most by which an operation may lengthen it before it computes.
pub(crate) const DIGITS_MAX: i64 = 10_000;

/// The bytes of [`DIGITS_MAX`] digits and a sign.
const BYTES_MAX: usize = 4_153;

/// Bytes of the scale of a serialised decimal.
const SCALE_BYTES: usize = 4;

/// Numbers with more bits are not written out in decimal digits: it takes time that grows with the square of their
/// count.
const WRITTEN_BITS_MAX: u64 = 262_144;

/// A number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Number {
    /// tinyint, smallint, int, bigint, counter, and the integers that timestamps are stored as.
    Integer(i64),
    Float(f32),
    Double(f64),
    VarInt(BigInt),
    Decimal(Decimal),
}

/// Why a number has no value of another type.
pub(crate) type Problem = String;

impl Number {
    /// The number these bytes are; `None` when they are empty or no number's.
    ///
    /// # Errors
    /// When it has too many digits.
    pub(crate) fn read(cql_type: &CqlType, bytes: &[u8]) -> Result<Option<Self>, Problem> {
        let bytes_max = match cql_type {
            CqlType::Decimal => SCALE_BYTES + BYTES_MAX,
            _ => BYTES_MAX,
        };
        // Before it is made: that takes milliseconds for one of megabytes.
        if bytes.len() > bytes_max {
            return Err(too_many_digits());
        }
        let Ok(value) = cql_type.deserialize(bytes) else {
            return Ok(None);
        };
        Ok(Some(match value {
            Value::TinyInt(n) => Self::Integer(n.into()),
            Value::SmallInt(n) => Self::Integer(n.into()),
            Value::Int(n) => Self::Integer(n.into()),
            Value::BigInt(n) | Value::Counter(n) | Value::Timestamp(n) => Self::Integer(n),
            Value::Float(x) => Self::Float(x),
            Value::Double(x) => Self::Double(x),
            Value::VarInt(n) => Self::VarInt(n),
            Value::Decimal(d) => Self::Decimal(d),
            _ => return Ok(None),
        }))
    }

    /// The serialised value of that type.
    pub(crate) fn write(&self, cql_type: &CqlType) -> Result<Vec<u8>, Problem> {
        Ok(match cql_type {
            CqlType::TinyInt => low_bits_i8(self.to_i32()).to_be_bytes().to_vec(),
            CqlType::SmallInt => low_bits_i16(self.to_i32()).to_be_bytes().to_vec(),
            CqlType::Int => self.to_i32().to_be_bytes().to_vec(),
            CqlType::BigInt | CqlType::Counter | CqlType::Timestamp => self.to_i64().to_be_bytes().to_vec(),
            CqlType::Float => self.to_f32().to_be_bytes().to_vec(),
            CqlType::Double => self.to_f64().to_be_bytes().to_vec(),
            CqlType::VarInt => self.to_varint()?.to_signed_bytes_be(),
            CqlType::Decimal => Value::Decimal(self.to_decimal()?).serialize(),
            other => return Err(format!("{other} is not a type of numbers")),
        })
    }

    fn to_i32(&self) -> i32 {
        match self {
            #[expect(clippy::cast_possible_truncation, reason = "saturates, as Java's conversion does")]
            Self::Float(x) => *x as i32,
            #[expect(clippy::cast_possible_truncation, reason = "saturates, as Java's conversion does")]
            Self::Double(x) => *x as i32,
            #[expect(
                clippy::cast_possible_truncation,
                reason = "keeps the low bits, as Java's conversion does"
            )]
            _ => self.to_i64() as i32,
        }
    }

    pub(crate) fn to_i64(&self) -> i64 {
        match self {
            Self::Integer(n) => *n,
            #[expect(clippy::cast_possible_truncation, reason = "saturates, as Java's conversion does")]
            Self::Float(x) => *x as i64,
            #[expect(clippy::cast_possible_truncation, reason = "saturates, as Java's conversion does")]
            Self::Double(x) => *x as i64,
            Self::VarInt(n) => low_bits_i64(n),
            Self::Decimal(d) => truncate(d).map_or(0, |n| low_bits_i64(&n)),
        }
    }

    fn to_f32(&self) -> f32 {
        match self {
            Self::Float(x) => *x,
            #[expect(clippy::cast_precision_loss, reason = "the nearest float is the result")]
            Self::Integer(n) => *n as f32,
            #[expect(clippy::cast_possible_truncation, reason = "the nearest float is the result")]
            Self::Double(x) => *x as f32,
            Self::VarInt(n) => n.to_f32().unwrap_or(f32::NAN),
            Self::Decimal(d) => decimal_text(d).map_or(f32::NAN, |text| text.parse().unwrap_or(f32::NAN)),
        }
    }

    pub(crate) fn to_f64(&self) -> f64 {
        match self {
            Self::Float(x) => (*x).into(),
            Self::Double(x) => *x,
            #[expect(clippy::cast_precision_loss, reason = "the nearest double is the result")]
            Self::Integer(n) => *n as f64,
            Self::VarInt(n) => n.to_f64().unwrap_or(f64::NAN),
            Self::Decimal(d) => decimal_text(d).map_or(f64::NAN, |text| text.parse().unwrap_or(f64::NAN)),
        }
    }

    pub(crate) fn to_varint(&self) -> Result<BigInt, Problem> {
        match self {
            Self::Integer(n) => Ok((*n).into()),
            Self::VarInt(n) => Ok(n.clone()),
            // Infinities become what a bigint holds, and NaN zero, as in Java.
            Self::Float(x) if !x.is_finite() => Ok(self.to_i64().into()),
            Self::Double(x) if !x.is_finite() => Ok(self.to_i64().into()),
            Self::Float(_) | Self::Double(_) | Self::Decimal(_) => {
                truncate(&self.to_decimal()?).ok_or_else(too_many_digits)
            }
        }
    }

    pub(crate) fn to_decimal(&self) -> Result<Decimal, Problem> {
        match self {
            Self::Integer(n) => Ok(Decimal {
                unscaled: (*n).into(),
                scale: 0,
            }),
            Self::VarInt(n) => Ok(Decimal {
                unscaled: n.clone(),
                scale: 0,
            }),
            Self::Decimal(d) => Ok(d.clone()),
            Self::Float(_) | Self::Double(_) => {
                let value = self.to_f64();
                if value.is_nan() {
                    return Err("A NaN cannot be converted into a decimal".to_owned());
                }
                if value.is_infinite() {
                    return Err("An infinite number cannot be converted into a decimal".to_owned());
                }
                read_decimal(&double_text(value)).ok_or_else(too_many_digits)
            }
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "keeps the low bits, as Java's conversion does"
)]
const fn low_bits_i8(n: i32) -> i8 {
    n as i8
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "keeps the low bits, as Java's conversion does"
)]
const fn low_bits_i16(n: i32) -> i16 {
    n as i16
}

fn low_bits_i64(n: &BigInt) -> i64 {
    let bytes = n.to_signed_bytes_le();
    let fill = if n.is_negative() { 0xff } else { 0 };
    let mut low = [fill; 8];
    let len = bytes.len().min(8);
    low[..len].copy_from_slice(&bytes[..len]);
    i64::from_le_bytes(low)
}

fn too_many_digits() -> Problem {
    format!("the number has more than {DIGITS_MAX} digits")
}

/// Refuses an operand of too many digits: a result may have more.
pub(crate) fn check_digits(number: &BigInt) -> Result<(), Problem> {
    if number.bits() > 8 * BYTES_MAX as u64 {
        return Err(too_many_digits());
    }
    Ok(())
}

/// Ten to a power of at most [`DIGITS_MAX`].
pub(crate) fn ten_to(power: i64) -> Option<BigInt> {
    if !(0..=DIGITS_MAX).contains(&power) {
        return None;
    }
    Some(BigInt::from(10).pow(u32::try_from(power).ok()?))
}

/// The decimal without its fraction; `None` when it has too many digits to write out.
fn truncate(decimal: &Decimal) -> Option<BigInt> {
    let scale = i64::from(decimal.scale);
    check_digits(&decimal.unscaled).ok()?;
    if scale <= 0 {
        return Some(&decimal.unscaled * ten_to(-scale)?);
    }
    // More digits after the point than there are digits: nothing is left before it.
    ten_to(scale).map_or_else(|| Some(BigInt::zero()), |unit| Some(&decimal.unscaled / unit))
}

/// Divides a number by ten, at most so many times, as long as nothing is left over. Returns how often.
pub(crate) fn strip_zeros(number: &mut BigInt, most: i64) -> i64 {
    let (mut stripped, mut power) = (0, DIGITS_MAX);
    loop {
        // A multiple of ten to a power is one of two to that power, which is asked without a division.
        let twos = number.trailing_zeros().and_then(|twos| i64::try_from(twos).ok());
        power = power.min(most - stripped).min(twos.unwrap_or(0));
        let Some(unit) = ten_to(power).filter(|_| power > 0) else {
            return stripped;
        };
        preempt::long_step();
        let quotient = &*number / &unit;
        if &quotient * unit == *number {
            *number = quotient;
            stripped += power;
        } else {
            power /= 2;
        }
    }
}

pub(crate) fn read_decimal(text: &str) -> Option<Decimal> {
    let bytes = CqlType::Decimal.parse_literal(types::LiteralKind::Float, text).ok()?;
    match CqlType::Decimal.deserialize(&bytes).ok()? {
        Value::Decimal(decimal) => Some(decimal),
        _ => None,
    }
}

/// In a form that Rust reads: digits and an exponent; `None` when there are too many of them.
fn decimal_text(decimal: &Decimal) -> Option<String> {
    let is_short = decimal.unscaled.bits() <= WRITTEN_BITS_MAX;
    is_short.then(|| format!("{}e{}", decimal.unscaled, -i64::from(decimal.scale)))
}

/// A double as Java writes it: at least one digit after the point, an exponent below 10^-3 and from 10^7 on.
pub(crate) fn double_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let is_plain = value == 0.0 || (1e-3..1e7).contains(&value.abs());
    if is_plain {
        format!("{value:?}")
    } else {
        scientific(&format!("{value:e}"), &format!("{value:.1e}"))
    }
}

/// A float as Java writes it.
pub(crate) fn float_text(value: f32) -> String {
    if value.is_nan() || value.is_infinite() {
        return double_text(value.into());
    }
    let is_plain = value == 0.0 || (1e-3..1e7).contains(&value.abs());
    if is_plain {
        format!("{value:?}")
    } else {
        scientific(&format!("{value:e}"), &format!("{value:.1e}"))
    }
}

/// The shortest form of a number, or where that has one digit, the nearest of two digits.
fn scientific(shortest: &str, of_two_digits: &str) -> String {
    if shortest.contains('.') {
        shortest.replace('e', "E")
    } else {
        of_two_digits.replace('e', "E")
    }
}

/// A decimal as Java writes it: with an exponent when it would begin with more than five zeros or end in some that are
/// not stored.
pub(crate) fn decimal_in_java(decimal: &Decimal) -> String {
    if decimal.unscaled.bits() > WRITTEN_BITS_MAX {
        return CqlType::Decimal.format(&Value::Decimal(decimal.clone()).serialize());
    }
    let digits = decimal.unscaled.magnitude().to_string();
    let sign = if decimal.unscaled.is_negative() { "-" } else { "" };
    let count = i64::try_from(digits.len()).unwrap_or(i64::MAX);
    let scale = i64::from(decimal.scale);
    let exponent = count - 1 - scale;
    if scale == 0 {
        return format!("{sign}{digits}");
    }
    if scale > 0 && exponent >= -6 {
        return match usize::try_from(count - scale) {
            Ok(whole) if whole > 0 => format!("{sign}{}.{}", &digits[..whole], &digits[whole..]),
            _ => {
                let zeros = usize::try_from(scale - count).unwrap_or(0);
                format!("{sign}0.{}{digits}", "0".repeat(zeros))
            }
        };
    }
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    format!("{sign}{first}{point}{rest}E{exponent:+}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_stripped_as_if_one_by_one() {
        let by_one = |mut number: BigInt, most: i64| {
            let mut stripped = 0;
            while stripped < most && (&number % 10_u8).is_zero() {
                number /= 10_u8;
                stripped += 1;
            }
            (number, stripped)
        };
        for digits in [1, 8, 1_024, 123_456_789, -125_000] {
            for zeros in [0, 1, 2, 7, 31, 100, 999] {
                let number = BigInt::from(digits) * BigInt::from(10).pow(zeros);
                for most in [0, 1, 5, 100, 2_000] {
                    let mut stripped = number.clone();
                    let count = strip_zeros(&mut stripped, most);
                    assert_eq!(
                        (stripped, count),
                        by_one(number.clone(), most),
                        "{digits}, {zeros}, {most}"
                    );
                }
            }
        }
        assert_eq!(strip_zeros(&mut BigInt::zero(), 100), 0);
    }
}
