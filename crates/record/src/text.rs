//! Records as text, for tests and for people to read.
//!
//! ```text
//! 2 {                          a field's number, and the record in it
//!   1 "ks"                     text
//!   3 0x00ff                   bytes
//!   6 5                        a number without sign, or a truth value
//!   7 -5s                      a number with sign
//!   8 0.25d                    a number with fraction
//! }
//! ```
//!
//! [`print`] writes the names of the fields after `#`. [`parse`] knows no table: it encodes what the text says, so a
//! test can write any damage.

use crate::{Message, Of};
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};
use std::fmt::Write;

/// A record that [`crate::decode`] has accepted.
///
/// # Panics
/// When the bytes are no such record.
#[must_use]
pub fn print(bytes: &[u8], message: &'static Message) -> String {
    let mut text = String::new();
    print_fields(&mut text, bytes, message, 0);
    text
}

fn print_fields(text: &mut String, mut bytes: &[u8], message: &'static Message, depth: usize) {
    const WHOLE: &str = "the record was decoded before";
    while !bytes.is_empty() {
        let (number, wire) = decode_key(&mut bytes).expect(WHOLE);
        let field = message.field(number).expect(WHOLE);
        let mut take = |count: usize| {
            let (value, rest) = bytes.split_at_checked(count).expect(WHOLE);
            bytes = rest;
            value
        };
        let value = match wire {
            WireType::SixtyFourBit => take(8),
            WireType::LengthDelimited => {
                let length = decode_varint(&mut bytes).expect(WHOLE);
                let (value, rest) = bytes.split_at(usize::try_from(length).expect(WHOLE));
                bytes = rest;
                value
            }
            _ => &[],
        };
        let indent = "  ".repeat(depth);
        let name = match field.feature {
            Some(feature) => format!("{} (feature {feature})", field.name),
            None => field.name.to_owned(),
        };
        let shown = match field.of {
            Of::Record(inner) => {
                let _ = writeln!(text, "{indent}{number} {{ # {name}");
                print_fields(text, value, inner, depth + 1);
                let _ = writeln!(text, "{indent}}}");
                continue;
            }
            Of::Text => format!("{:?}", String::from_utf8_lossy(value)),
            Of::Bytes => {
                let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("0x{digits}")
            }
            Of::Double => {
                let bits = <[u8; 8]>::try_from(value).expect(WHOLE);
                format!("{}d", f64::from_le_bytes(bits))
            }
            Of::Bool | Of::U32 | Of::U64 => decode_varint(&mut bytes).expect(WHOLE).to_string(),
            Of::S32 | Of::S64 => {
                let number = decode_varint(&mut bytes).expect(WHOLE);
                format!("{}s", (number >> 1).cast_signed() ^ -((number & 1).cast_signed()))
            }
        };
        let _ = writeln!(text, "{indent}{number} {shown} # {name}");
    }
}

/// The bytes of a text.
///
/// # Errors
/// A sentence that names the line.
pub fn parse(text: &str) -> Result<Vec<u8>, String> {
    let mut open: Vec<(u32, Vec<u8>)> = Vec::new();
    let mut bytes = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let wrong = || format!("no field: {line}");
        if line == "}" {
            let (number, outer) = open.pop().ok_or_else(wrong)?;
            let inner = std::mem::replace(&mut bytes, outer);
            put_bytes(&mut bytes, number, &inner);
            continue;
        }
        let (number, rest) = line.split_once(' ').ok_or_else(wrong)?;
        let number: u32 = number.parse().map_err(|_| wrong())?;
        if rest.starts_with('{') {
            open.push((number, std::mem::take(&mut bytes)));
            continue;
        }
        put_value(&mut bytes, number, rest).ok_or_else(wrong)?;
    }
    if open.is_empty() {
        Ok(bytes)
    } else {
        Err("a record is not closed".to_owned())
    }
}

fn put_value(bytes: &mut Vec<u8>, number: u32, text: &str) -> Option<()> {
    if let Some(quoted) = text.strip_prefix('"') {
        // Without escapes: tests have no need of them.
        put_bytes(bytes, number, &quoted.as_bytes()[..quoted.find('"')?]);
        return Some(());
    }
    let value = text.split_once(" #").map_or(text, |(value, _)| value).trim();
    if let Some(digits) = value.strip_prefix("0x") {
        let pairs = digits.as_bytes().chunks(2);
        let value: Option<Vec<u8>> = pairs
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        put_bytes(bytes, number, &value?);
    } else if let Some(double) = value.strip_suffix('d') {
        encode_key(number, WireType::SixtyFourBit, bytes);
        bytes.extend_from_slice(&double.parse::<f64>().ok()?.to_le_bytes());
    } else {
        let value = match value.strip_suffix('s') {
            Some(signed) => {
                let signed: i64 = signed.parse().ok()?;
                ((signed << 1) ^ (signed >> 63)).cast_unsigned()
            }
            None => value.parse().ok()?,
        };
        encode_key(number, WireType::Varint, bytes);
        encode_varint(value, bytes);
    }
    Some(())
}

fn put_bytes(bytes: &mut Vec<u8>, number: u32, value: &[u8]) {
    encode_key(number, WireType::LengthDelimited, bytes);
    encode_varint(value.len() as u64, bytes);
    bytes.extend_from_slice(value);
}

/// The fields of a kind of record, and of those in it that were not listed yet: a line each.
#[must_use]
pub fn fields(message: &'static Message) -> String {
    let (mut text, mut listed, mut waiting) = (String::new(), Vec::new(), vec![message]);
    while let Some(message) = waiting.pop() {
        if listed.contains(&message.name) {
            continue;
        }
        listed.push(message.name);
        let _ = writeln!(text, "{}", message.name);
        for field in message.fields {
            let list = if field.is_repeated { "list of " } else { "" };
            let of = match field.of {
                Of::Record(inner) => {
                    waiting.push(inner);
                    inner.name.to_owned()
                }
                other => format!("{other:?}"),
            };
            let feature = field
                .feature
                .map_or(String::new(), |feature| format!(", feature {feature}"));
            let _ = writeln!(text, "  {} {}: {list}{of}{feature}", field.number, field.name);
        }
        for (number, what) in message.reserved {
            let _ = writeln!(text, "  {number} kept for {what}");
        }
    }
    text
}
