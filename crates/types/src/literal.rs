//! The literals of CQL, read as serialised values of the type they are meant for.
//!
//! | literal  | types |
//! |----------|-------|
//! | string   | text, ascii, date, time, timestamp, inet, tuple |
//! | integer  | every numeric type, counter, date (days), time (nanoseconds), timestamp (milliseconds) |
//! | float    | float, double, decimal |
//! | boolean, hex, duration | boolean, blob, duration |
//! | uuid     | uuid, timeuuid |

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use num_bigint::BigInt;
use uuid::Uuid;

use crate::calendar;
use crate::collection::TupleBuilder;
use crate::cql_type::CqlType;
use crate::duration::Duration;
use crate::error::TypeError;

/// The most digits a number may have in a statement: reading them takes time that grows with their square.
pub const NUMBER_DIGITS_MAX: usize = 65_536;

/// What a lexer knows of a literal without its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LiteralKind {
    /// `'text'`; its text is without the quotes.
    String,
    /// `-12`
    Integer,
    /// `1.5e3`, and the words NaN and Infinity.
    Float,
    /// `true`
    Boolean,
    /// `f81d4fae-7dec-11d0-a765-00a0c91e6bf6`
    Uuid,
    /// `0xcafe`
    Hex,
    /// `1y2mo`, `P1Y2M`
    Duration,
}

impl fmt::Display for LiteralKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::String => "STRING",
            Self::Integer => "INTEGER",
            Self::Float => "FLOAT",
            Self::Boolean => "BOOLEAN",
            Self::Uuid => "UUID",
            Self::Hex => "HEX",
            Self::Duration => "DURATION",
        })
    }
}

impl CqlType {
    /// The serialised value of a literal meant for this type.
    ///
    /// # Errors
    /// [`TypeError::WrongLiteral`] when the type takes no literal of this kind, [`TypeError::Unreadable`] when the text
    /// is not that of one of its values.
    pub fn parse_literal(&self, kind: LiteralKind, text: &str) -> Result<Vec<u8>, TypeError> {
        use LiteralKind::{Boolean, Duration as Span, Float, Hex, Integer, String as Str, Uuid as Id};
        match (self, kind) {
            (Self::Text, Str) => Ok(text.as_bytes().to_vec()),
            (Self::Ascii, Str) if text.is_ascii() => Ok(text.as_bytes().to_vec()),
            (Self::Ascii, Str) => unreadable("Invalid ASCII character in string literal".to_owned()),
            (Self::TinyInt, Integer) => parse_integer::<i8>(text, "byte").map(|value| value.to_be_bytes().to_vec()),
            (Self::SmallInt, Integer) => parse_integer::<i16>(text, "short").map(|value| value.to_be_bytes().to_vec()),
            (Self::Int, Integer) => parse_integer::<i32>(text, "int").map(|value| value.to_be_bytes().to_vec()),
            (Self::BigInt | Self::Counter, Integer) => {
                parse_integer::<i64>(text, "long").map(|value| value.to_be_bytes().to_vec())
            }
            (Self::VarInt, Integer) => parse_varint(text).map(|value| value.to_signed_bytes_be()),
            (Self::Decimal, Integer | Float) => parse_decimal(text),
            (Self::Float, Integer | Float) => parse_float(text),
            (Self::Double, Integer | Float) => parse_double(text),
            (Self::Boolean, Boolean) => parse_boolean(text),
            (Self::Uuid | Self::TimeUuid, Id) => self.parse_uuid(text),
            (Self::Blob, Hex) => parse_hex(text),
            (Self::Duration, Span) => {
                let mut out = Vec::new();
                Duration::parse(text)?.serialize_into(&mut out);
                Ok(out)
            }
            (Self::Date, Str | Integer) => parse_date(text),
            (Self::Time, Str | Integer) => parse_time(text),
            (Self::Timestamp, Str | Integer) => parse_timestamp(text),
            (Self::Inet, Str) => parse_inet(text),
            (Self::Tuple(_), Str) => self.parse_text(text),
            // Cassandra reads it as one, without its sign.
            (Self::Duration, Integer) => unreadable(format!(
                "Unable to convert '{}' to a duration",
                text.trim_start_matches('-')
            )),
            (Self::Frozen(inner), _) => inner.parse_literal(kind, text).map_err(|error| match error {
                TypeError::WrongLiteral { kind, text, .. } => TypeError::WrongLiteral {
                    kind,
                    text,
                    of: self.clone(),
                },
                other => other,
            }),
            _ => Err(TypeError::WrongLiteral {
                kind,
                text: text.to_owned(),
                of: self.clone(),
            }),
        }
    }

    /// The serialised value of a text by itself, such as a field in a tuple's text: numbers are digits, and other types
    /// that are stored as bytes (blobs, collections, vectors) are hexadecimal. Tuples and user-defined types have `:`
    /// between their fields, and `@` for a null one; in a field that is text, `\\:` and `\\@` are escapes of these
    /// characters.
    fn parse_text(&self, text: &str) -> Result<Vec<u8>, TypeError> {
        let kind = match self {
            Self::Frozen(inner) => return inner.parse_text(text),
            Self::Tuple(types) => return self.parse_fields(text, types.len(), |at| &types[at]),
            Self::Udt(udt) => return self.parse_fields(text, udt.fields.len(), |at| &udt.fields[at].1),
            Self::Blob | Self::List(_) | Self::Set(_) | Self::Map(..) | Self::Vector(..) | Self::Empty => {
                let bytes = hex_bytes(text)?;
                self.validate(&bytes)?;
                return Ok(bytes);
            }
            Self::Boolean if text.is_empty() => return Ok(vec![0]),
            Self::Text | Self::Ascii | Self::Date | Self::Time => LiteralKind::String,
            _ if text.is_empty() => return Ok(Vec::new()),
            Self::Timestamp | Self::Inet => LiteralKind::String,
            Self::TinyInt | Self::SmallInt | Self::Int | Self::BigInt | Self::VarInt | Self::Counter => {
                LiteralKind::Integer
            }
            Self::Decimal | Self::Float | Self::Double => LiteralKind::Float,
            Self::Boolean => LiteralKind::Boolean,
            Self::Uuid | Self::TimeUuid => LiteralKind::Uuid,
            Self::Duration => LiteralKind::Duration,
        };
        self.parse_literal(kind, text)
    }

    /// The value of a tuple's text; it may have fewer fields than the type.
    fn parse_fields<'t>(
        &self,
        text: &str,
        count: usize,
        field_type: impl Fn(usize) -> &'t Self,
    ) -> Result<Vec<u8>, TypeError> {
        let fields = split_fields(text);
        if fields.len() > count {
            return unreadable(format!(
                "Invalid tuple literal: too many elements. Type {self} expects {count} but got {}",
                fields.len()
            ));
        }
        let mut out = Vec::new();
        let mut builder = TupleBuilder::new(&mut out);
        for (at, field) in fields.into_iter().enumerate() {
            match field {
                "@" => builder.push(None),
                text => {
                    let text = text.replace("\\:", ":").replace("\\@", "@");
                    builder.push(Some(&field_type(at).parse_text(&text)?));
                }
            }
        }
        Ok(out)
    }

    fn parse_uuid(&self, text: &str) -> Result<Vec<u8>, TypeError> {
        // Uuid also reads forms without hyphens or in braces, which are no literals.
        match Uuid::try_parse(text) {
            Ok(uuid) if *self == Self::TimeUuid && uuid.get_version_num() != 1 => {
                unreadable("TimeUUID supports only version 1 UUIDs".to_owned())
            }
            Ok(uuid) if text.len() == 36 => Ok(uuid.as_bytes().to_vec()),
            _ => unreadable(format!("Unable to make UUID from '{text}'")),
        }
    }
}

fn unreadable<T>(message: String) -> Result<T, TypeError> {
    Err(TypeError::Unreadable(message))
}

fn parse_integer<T: FromStr>(text: &str, what: &str) -> Result<T, TypeError> {
    text.parse()
        .or_else(|_| unreadable(format!("Unable to make {what} from '{text}'")))
}

fn parse_varint(text: &str) -> Result<BigInt, TypeError> {
    if text.len() > NUMBER_DIGITS_MAX {
        return unreadable(format!(
            "a number has at most {NUMBER_DIGITS_MAX} digits, not {}",
            text.len()
        ));
    }
    // BigInt would also read underscores between the digits.
    if text.contains('_') {
        return unreadable(format!("Unable to make integer from '{text}'"));
    }
    parse_integer(text, "integer")
}

/// Digits with an optional point and exponent; the scale is the count of digits after the point less the exponent.
fn parse_decimal(text: &str) -> Result<Vec<u8>, TypeError> {
    let fail = || TypeError::Unreadable(format!("unable to make BigDecimal from '{text}'"));
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().map_err(|_| fail())?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    // A sign or separator inside the fraction must not become part of the joined digits.
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return Err(fail());
    }
    let digits = format!("{whole}{fraction}");
    let unscaled = parse_varint(&digits).map_err(|error| {
        if digits.len() > NUMBER_DIGITS_MAX {
            error
        } else {
            fail()
        }
    })?;
    let fraction_len = i64::try_from(fraction.len()).expect("a text in memory has less than 2^63 digits");
    let scale = i32::try_from(fraction_len - i64::from(exponent)).map_err(|_| fail())?;
    let mut out = scale.to_be_bytes().to_vec();
    out.extend_from_slice(&unscaled.to_signed_bytes_be());
    Ok(out)
}

fn parse_float(text: &str) -> Result<Vec<u8>, TypeError> {
    let value: f32 = text
        .parse()
        .or_else(|_| unreadable(format!("Unable to make float from '{text}'")))?;
    let value = if value.is_nan() { f32::NAN } else { value };
    Ok(value.to_be_bytes().to_vec())
}

fn parse_double(text: &str) -> Result<Vec<u8>, TypeError> {
    let value: f64 = text
        .parse()
        .or_else(|_| unreadable(format!("Unable to make double from '{text}'")))?;
    let value = if value.is_nan() { f64::NAN } else { value };
    Ok(value.to_be_bytes().to_vec())
}

fn parse_boolean(text: &str) -> Result<Vec<u8>, TypeError> {
    if text.eq_ignore_ascii_case("true") {
        Ok(vec![1])
    } else if text.eq_ignore_ascii_case("false") {
        Ok(vec![0])
    } else {
        unreadable(format!("Unable to make boolean from '{text}'"))
    }
}

/// The fields of a tuple's text: the text between colons that no backslash precedes.
fn split_fields(text: &str) -> Vec<&str> {
    let mut fields = Vec::new();
    let mut start = 0;
    for (at, _) in text.match_indices(':') {
        if !text[..at].ends_with('\\') {
            fields.push(&text[start..at]);
            start = at + 1;
        }
    }
    fields.push(&text[start..]);
    fields
}

fn parse_hex(text: &str) -> Result<Vec<u8>, TypeError> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    hex_bytes(digits.unwrap_or(text))
}

fn hex_bytes(digits: &str) -> Result<Vec<u8>, TypeError> {
    let nibble = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let bytes = pairs
        .iter()
        .map(|&[high, low]| Some((nibble(high)? << 4) | nibble(low)?))
        .collect::<Option<Vec<u8>>>();
    match bytes {
        Some(bytes) if rest.is_empty() => Ok(bytes),
        _ => unreadable(format!("cannot parse '{digits}' as hex bytes")),
    }
}

fn is_whole_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

fn parse_date(text: &str) -> Result<Vec<u8>, TypeError> {
    if is_whole_number(text) {
        let days: u32 = text
            .parse()
            .or_else(|_| unreadable(format!("Unable to make unsigned int (for date) from: '{text}'")))?;
        return Ok(days.to_be_bytes().to_vec());
    }
    // A year of more than four digits has a sign, as in ISO 8601.
    let year = text.bytes().take_while(u8::is_ascii_digit).count();
    let Some(days) = (year <= 4).then(|| calendar::parse_date(text)).flatten() else {
        return unreadable(format!("Unable to coerce '{text}' to a formatted date (long)"));
    };
    match u32::try_from(days + calendar::EPOCH_DAY) {
        Ok(days) => Ok(days.to_be_bytes().to_vec()),
        Err(_) if days < 0 => unreadable(format!(
            "Input date {text} is less than min supported date -5877641-06-23T00:00Z"
        )),
        Err(_) => unreadable(format!(
            "Input date {text} is greater than max supported date +5881580-07-11T00:00Z"
        )),
    }
}

fn parse_time(text: &str) -> Result<Vec<u8>, TypeError> {
    let nanos = if is_whole_number(text) {
        match text.parse() {
            Ok(nanos) if (0..calendar::NANOS_PER_DAY).contains(&nanos) => nanos,
            _ => return unreadable(format!("Unable to make long (for time) from: '{text}'")),
        }
    } else {
        match calendar::parse_time(text.trim()) {
            Some(nanos) => nanos,
            None => {
                return unreadable(format!(
                    "(TimeType) Unable to coerce '{text}' to a formatted time (long)"
                ));
            }
        }
    };
    Ok(nanos.to_be_bytes().to_vec())
}

fn parse_timestamp(text: &str) -> Result<Vec<u8>, TypeError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    if is_whole_number(text) {
        let millis: i64 = text
            .parse()
            .or_else(|_| unreadable(format!("Unable to make long (for date) from: '{text}'")))?;
        return Ok(millis.to_be_bytes().to_vec());
    }
    match calendar::parse_timestamp(text) {
        Some(millis) => Ok(millis.to_be_bytes().to_vec()),
        None => unreadable(format!("Unable to parse a date/time from '{text}'")),
    }
}

/// Addresses only: a name would have to be looked up, and would mean something else tomorrow.
fn parse_inet(text: &str) -> Result<Vec<u8>, TypeError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let parsed = match bare {
        Some(bare) => bare.parse().map(IpAddr::V6),
        None => text.parse(),
    };
    match parsed.map(|address: IpAddr| address.to_canonical()) {
        Ok(IpAddr::V4(address)) => Ok(address.octets().to_vec()),
        Ok(IpAddr::V6(address)) => Ok(address.octets().to_vec()),
        Err(_) => match short_inet(text) {
            Some(octets) => Ok(octets.to_vec()),
            None => unreadable(format!("Unable to make inet address from '{text}'")),
        },
    }
}

/// An IPv4 address of fewer than four parts; the last part also covers those that are left out, as in `127.1`. A part
/// may have leading zeros.
fn short_inet(text: &str) -> Option<[u8; 4]> {
    let parts: Vec<&str> = text.split('.').collect();
    let is_number = |part: &&str| !part.is_empty() && part.len() <= 10 && part.bytes().all(|b| b.is_ascii_digit());
    if parts.len() > 4 || !parts.iter().all(is_number) {
        return None;
    }
    let (last, first) = parts.split_last()?;
    let last: u64 = last.parse().ok()?;
    let bits = 8 * (4 - first.len());
    if last >> bits != 0 {
        return None;
    }
    let mut octets = u32::try_from(last).ok()?.to_be_bytes();
    for (octet, part) in octets.iter_mut().zip(first) {
        *octet = part.parse().ok()?;
    }
    Some(octets)
}
