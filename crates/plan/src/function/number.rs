//! Numbers of every CQL type in one form, and the conversions between them.
//!
//! Conversions are those of Java's numbers, which applications of Cassandra know: to a narrower integer they keep the
//! low bits, from a floating point number they saturate, from a decimal they drop the fraction.

use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive, Zero};
use types::{CqlType, Decimal, Value};

/// The most digits that an operation on decimals may have to write out.
pub(crate) const DECIMAL_DIGITS_MAX: i64 = 10_000;

/// Numbers with more bits are not written out in decimal digits: it takes time that grows with the square of their
/// count.
pub(crate) const DECIMAL_BITS_MAX: u64 = 262_144;

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
    pub(crate) fn read(cql_type: &CqlType, bytes: &[u8]) -> Option<Self> {
        Some(match cql_type.deserialize(bytes).ok()? {
            Value::TinyInt(n) => Self::Integer(n.into()),
            Value::SmallInt(n) => Self::Integer(n.into()),
            Value::Int(n) => Self::Integer(n.into()),
            Value::BigInt(n) | Value::Counter(n) | Value::Timestamp(n) => Self::Integer(n),
            Value::Float(x) => Self::Float(x),
            Value::Double(x) => Self::Double(x),
            Value::VarInt(n) => Self::VarInt(n),
            Value::Decimal(d) => Self::Decimal(d),
            _ => return None,
        })
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
                truncate(&self.to_decimal()?).ok_or_else(|| "the number has too many digits".to_owned())
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
                read_decimal(&double_text(value)).ok_or_else(|| "the number has too many digits".to_owned())
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

/// Ten to a power that was checked against [`DECIMAL_DIGITS_MAX`].
pub(crate) fn ten_to(power: i64) -> Option<BigInt> {
    if !(0..=DECIMAL_DIGITS_MAX).contains(&power) {
        return None;
    }
    Some(BigInt::from(10).pow(u32::try_from(power).ok()?))
}

/// The decimal without its fraction; `None` when it has too many digits to write out.
fn truncate(decimal: &Decimal) -> Option<BigInt> {
    let scale = i64::from(decimal.scale);
    if scale <= 0 {
        return Some(&decimal.unscaled * ten_to(-scale)?);
    }
    // More digits after the point than there are digits: nothing is left before it.
    if scale > i64::try_from(decimal.unscaled.bits()).ok()? {
        return Some(BigInt::zero());
    }
    Some(&decimal.unscaled / BigInt::from(10).pow(u32::try_from(scale).ok()?))
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
    let is_short = decimal.unscaled.bits() <= DECIMAL_BITS_MAX;
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
    if decimal.unscaled.bits() > DECIMAL_BITS_MAX {
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
