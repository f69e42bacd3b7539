//! Key values: strings, numbers and binaries, and the bytes that they have as CQL's `text`, `decimal` and `blob`.
//!
//! ```text
//! S  UTF-8            text
//! N  i32 scale, varint unscaled       decimal: unscaled * 10^-scale
//! B  the bytes        blob
//! ```
//! The unscaled value of a number has no trailing zero and as few bytes as possible, so equal keys have equal bytes.

use super::number::NumberError;
use super::{AttributeValue, Number, ValueType};

/// Bytes that the value of a partition key may have.
pub const PARTITION_KEY_BYTES_MAX: usize = 2048;
/// Bytes that the value of a sort key may have.
pub const SORT_KEY_BYTES_MAX: usize = 1024;

/// Why a value cannot be a key, or bytes no key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyError {
    /// The type of the value is none of S, N and B.
    Type(ValueType),
    /// A string or binary has no bytes.
    Empty,
    /// It has more bytes than a key of its role may have.
    TooLong,
    /// The stored bytes are no value of the type.
    Malformed,
}

/// Appends the bytes of a key as CQL's type has them.
///
/// # Errors
/// If the type is none of S, N and B.
pub fn append_cql(out: &mut Vec<u8>, value: &AttributeValue) -> Result<(), KeyError> {
    match value {
        AttributeValue::S(text) => out.extend_from_slice(text.as_bytes()),
        AttributeValue::B(bytes) => out.extend_from_slice(bytes),
        AttributeValue::N(number) => append_decimal(out, *number),
        other => return Err(KeyError::Type(other.value_type())),
    }
    Ok(())
}

/// The key value of bytes that CQL's type has.
///
/// # Errors
/// If the type is none of S, N and B, or the bytes are no value of it that DynamoDB has.
pub fn from_cql(key_type: ValueType, bytes: &[u8]) -> Result<AttributeValue, KeyError> {
    match key_type {
        ValueType::S => {
            let text = std::str::from_utf8(bytes).map_err(|_| KeyError::Malformed)?;
            Ok(AttributeValue::S(text.to_owned()))
        }
        ValueType::B => Ok(AttributeValue::B(bytes.to_vec())),
        ValueType::N => parse_decimal(bytes).map(AttributeValue::N).ok_or(KeyError::Malformed),
        other => Err(KeyError::Type(other)),
    }
}

/// Checks what every key value must be: S, N or B, not empty, at most `bytes_max` bytes.
///
/// # Errors
/// What is wrong.
pub fn check(value: &AttributeValue, bytes_max: usize) -> Result<(), KeyError> {
    let len = match value {
        AttributeValue::S(text) => text.len(),
        AttributeValue::B(bytes) => bytes.len(),
        AttributeValue::N(_) => 1,
        other => return Err(KeyError::Type(other.value_type())),
    };
    match len {
        0 => Err(KeyError::Empty),
        len if len > bytes_max => Err(KeyError::TooLong),
        _ => Ok(()),
    }
}

fn append_decimal(out: &mut Vec<u8>, number: Number) {
    out.extend_from_slice(&(-i32::from(number.exponent())).to_be_bytes());
    out.extend_from_slice(shortest(&number.coefficient().to_be_bytes()));
}

/// Two's complement without the first bytes that only repeat the sign.
fn shortest(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    while let [first, second, ..] = rest {
        let repeats = (*first == 0 && *second < 0x80) || (*first == 0xff && *second >= 0x80);
        if !repeats {
            break;
        }
        rest = &rest[1..];
    }
    rest
}

fn parse_decimal(bytes: &[u8]) -> Option<Number> {
    let (scale, digits) = bytes.split_first_chunk::<4>()?;
    let digits = shortest(digits);
    let first = *digits.first()?;
    let filler = if first < 0x80 { 0 } else { 0xff };
    let mut coefficient = [filler; 16];
    let start = coefficient.len().checked_sub(digits.len())?;
    coefficient[start..].copy_from_slice(digits);
    let exponent = -i64::from(i32::from_be_bytes(*scale));
    let number: Result<Number, NumberError> = Number::from_parts(i128::from_be_bytes(coefficient), exponent);
    number.ok()
}
