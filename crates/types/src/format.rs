//! Serialised values as text.
//!
//! The text is a CQL literal, written as Cassandra's DESCRIBE writes it, and reads back as the same value. Two things
//! are written otherwise: a timestamp before year 1 has its ISO year, and a duration of no time is `0s`. Bytes that are
//! no value of the type are written as a blob, so that a log or an error message can show whatever there is.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use num_bigint::BigInt;
use num_traits::Signed;
use uuid::Uuid;

use crate::calendar;
use crate::collection::{CollectionIter, MapIter, TupleIter, VectorIter};
use crate::cql_type::{CqlType, quote_identifier};
use crate::duration::Duration;
use crate::numeric::split_decimal;

/// Numbers of more bytes are written as blobs: making decimal digits takes time that grows with the square of their
/// count.
const NUMBER_BYTES_MAX: usize = 32_768;

impl CqlType {
    /// The value as a CQL literal.
    #[must_use]
    pub fn format(&self, bytes: &[u8]) -> String {
        let mut out = String::new();
        self.write_checked(&mut out, bytes, true);
        out
    }

    /// The value as a CQL literal, without quotes around a text, date, time, timestamp or address at the top level.
    #[must_use]
    pub fn format_unquoted(&self, bytes: &[u8]) -> String {
        let mut out = String::new();
        self.write_checked(&mut out, bytes, false);
        out
    }

    fn write_checked(&self, out: &mut String, bytes: &[u8], is_quoted: bool) {
        if self.validate(bytes).is_ok() {
            self.write(out, bytes, is_quoted)
        } else {
            write_hex(out, bytes)
        }
    }

    /// Appends the literal of validated bytes.
    fn write(&self, out: &mut String, bytes: &[u8], is_quoted: bool) {
        let is_null = bytes.is_empty()
            && !matches!(
                self,
                Self::Text | Self::Ascii | Self::Blob | Self::Tuple(_) | Self::Udt(_) | Self::Frozen(_)
            );
        if is_null {
            return out.push_str("null");
        }
        match self {
            Self::Text | Self::Ascii => {
                let text = String::from_utf8_lossy(bytes);
                write_quoted(out, is_quoted, |out| {
                    if is_quoted {
                        out.push_str(&text.replace('\'', "''"))
                    } else {
                        out.push_str(&text)
                    }
                });
            }
            Self::Date => write_quoted(out, is_quoted, |out| {
                calendar::write_date(out, i64::from(u32::from_be_bytes(array(bytes))) - calendar::EPOCH_DAY);
            }),
            Self::Time => {
                let nanos = i64::from_be_bytes(array(bytes));
                // Nanoseconds that are no time of day have no text; as a number they are at least the same value.
                let is_quoted = is_quoted && (0..calendar::NANOS_PER_DAY).contains(&nanos);
                write_quoted(out, is_quoted, |out| calendar::write_time(out, nanos));
            }
            Self::Timestamp => {
                let millis = i64::from_be_bytes(array(bytes));
                write_quoted(out, is_quoted, |out| calendar::write_timestamp(out, millis));
            }
            Self::Inet => write_quoted(out, is_quoted, |out| write_inet(out, bytes)),
            Self::Blob | Self::Empty => write_hex(out, bytes),
            Self::Boolean => out.push_str(if bytes == [0] { "false" } else { "true" }),
            Self::TinyInt => push(out, i8::from_be_bytes(array(bytes))),
            Self::SmallInt => push(out, i16::from_be_bytes(array(bytes))),
            Self::Int => push(out, i32::from_be_bytes(array(bytes))),
            Self::BigInt | Self::Counter => push(out, i64::from_be_bytes(array(bytes))),
            Self::Float => {
                let value = f32::from_be_bytes(array(bytes));
                write_float(out, value.is_nan(), &format!("{value:e}"), &format!("{value:.1e}"));
            }
            Self::Double => {
                let value = f64::from_be_bytes(array(bytes));
                write_float(out, value.is_nan(), &format!("{value:e}"), &format!("{value:.1e}"));
            }
            Self::VarInt | Self::Decimal if bytes.len() > NUMBER_BYTES_MAX => write_hex(out, bytes),
            Self::VarInt => push(out, BigInt::from_signed_bytes_be(bytes)),
            Self::Decimal => match split_decimal(bytes) {
                Some((scale, digits)) => write_decimal(out, &BigInt::from_signed_bytes_be(digits), scale),
                None => write_hex(out, bytes),
            },
            Self::TimeUuid | Self::Uuid => push(out, Uuid::from_bytes(array(bytes))),
            Self::Duration => push(out, Duration::deserialize(bytes).unwrap_or_default()),
            Self::List(element) => {
                let elements = CollectionIter::new(bytes).into_iter().flatten().flatten();
                write_list(out, ['[', ']'], elements, |out, bytes| element.write(out, bytes, true));
            }
            Self::Set(element) => {
                let elements = CollectionIter::new(bytes).into_iter().flatten().flatten();
                write_list(out, ['{', '}'], elements, |out, bytes| element.write(out, bytes, true));
            }
            Self::Map(key, value) => {
                let pairs = MapIter::new(bytes).into_iter().flatten().flatten();
                write_list(out, ['{', '}'], pairs, |out, (key_bytes, value_bytes)| {
                    key.write(out, key_bytes, true);
                    out.push_str(": ");
                    value.write(out, value_bytes, true);
                });
            }
            Self::Vector(element, dimension) => {
                let elements = VectorIter::new(bytes, *dimension, element.fixed_len()).flatten();
                write_list(out, ['[', ']'], elements, |out, bytes| element.write(out, bytes, true));
            }
            Self::Tuple(elements) => {
                let items = elements.iter().zip(TupleIter::new(bytes).flatten());
                write_list(out, ['(', ')'], items, |out, (element, bytes)| {
                    element.write_nullable(out, bytes)
                });
            }
            Self::Udt(udt) => {
                let items = udt.fields.iter().zip(TupleIter::new(bytes).flatten());
                write_list(out, ['{', '}'], items, |out, ((name, field), bytes)| {
                    out.push_str(&quote_identifier(name));
                    out.push_str(": ");
                    field.write_nullable(out, bytes);
                });
            }
            Self::Frozen(inner) => inner.write(out, bytes, is_quoted),
        }
    }

    fn write_nullable(&self, out: &mut String, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.write(out, bytes, true),
            None => out.push_str("null"),
        }
    }
}

/// The bytes of a fixed-length value that is validated and not empty.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().unwrap_or([0; N])
}

fn push(out: &mut String, value: impl std::fmt::Display) {
    let _ = write!(out, "{value}");
}

fn write_quoted(out: &mut String, is_quoted: bool, write: impl FnOnce(&mut String)) {
    let quote = if is_quoted { "'" } else { "" };
    out.push_str(quote);
    write(out);
    out.push_str(quote);
}

fn write_list<T>(
    out: &mut String,
    [open, close]: [char; 2],
    items: impl Iterator<Item = T>,
    mut write: impl FnMut(&mut String, T),
) {
    out.push(open);
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        write(out, item);
    }
    out.push(close);
}

fn write_hex(out: &mut String, bytes: &[u8]) {
    out.push_str("0x");
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
}

/// IPv6 without `::`, as Java writes it; an IPv4 address in IPv6 clothes as IPv4.
fn write_inet(out: &mut String, bytes: &[u8]) {
    if let Ok(octets) = <[u8; 4]>::try_from(bytes) {
        return push(out, Ipv4Addr::from(octets));
    }
    let address = Ipv6Addr::from(array::<16>(bytes));
    match address.to_ipv4_mapped() {
        Some(mapped) => push(out, mapped),
        None => {
            let [a, b, c, d, e, f, g, h] = address.segments();
            let _ = write!(out, "{a:x}:{b:x}:{c:x}:{d:x}:{e:x}:{f:x}:{g:x}:{h:x}");
        }
    }
}

/// Writes the digits as Java does: the shortest that read back the same, at least one after the point, and an exponent
/// from 10^7 up and below 10^-3. `shortest` and `two_digits` are Rust's scientific forms; Java never writes fewer than
/// two digits, and then takes the nearest of those.
fn write_float(out: &mut String, is_nan: bool, shortest: &str, two_digits: &str) {
    if is_nan {
        return out.push_str("NaN");
    }
    let (magnitude, sign) = shortest.strip_prefix('-').map_or((shortest, ""), |rest| (rest, "-"));
    out.push_str(sign);
    let scientific = if magnitude.contains('.') {
        magnitude
    } else {
        two_digits.trim_start_matches('-')
    };
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return out.push_str("Infinity");
    };
    let exponent: i32 = exponent.parse().expect("Rust writes an integer after e");
    let digits = mantissa.replace('.', "");
    match exponent {
        -3..0 => {
            let zeroes = usize::try_from(-1 - exponent).expect("the exponent is negative");
            let digits = digits.trim_end_matches('0');
            let _ = write!(
                out,
                "0.{}{}",
                "0".repeat(zeroes),
                if digits.is_empty() { "0" } else { digits }
            );
        }
        0..7 => {
            let whole = usize::try_from(exponent + 1).expect("the exponent is positive");
            let digits = format!("{digits:0<width$}", width = whole + 1);
            let (whole, fraction) = digits.split_at(whole);
            let fraction = fraction.trim_end_matches('0');
            let _ = write!(out, "{whole}.{}", if fraction.is_empty() { "0" } else { fraction });
        }
        _ => {
            let _ = write!(out, "{mantissa}E{exponent}");
        }
    }
}

/// Writes the number as Java's BigDecimal does: plain if that adds no zeros before the point and only few after it.
fn write_decimal(out: &mut String, unscaled: &BigInt, scale: i32) {
    if unscaled.is_negative() {
        out.push('-');
    }
    let digits = unscaled.magnitude().to_string();
    let behind = i64::try_from(digits.len()).expect("limited by NUMBER_BYTES_MAX") - 1;
    let exponent = behind - i64::from(scale);
    if scale >= 0 && exponent >= -6 {
        let scale = usize::try_from(scale).expect("it is not negative");
        let digits = format!("{digits:0>width$}", width = scale + 1);
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        out.push_str(whole);
        if !fraction.is_empty() {
            let _ = write!(out, ".{fraction}");
        }
        return;
    }
    let (first, rest) = digits.split_at(1);
    out.push_str(first);
    if !rest.is_empty() {
        let _ = write!(out, ".{rest}");
    }
    if exponent != 0 {
        let _ = write!(out, "E{exponent:+}");
    }
}
