//! The stored form of one value or item.
//!
//! ```text
//! value, item = version (1 byte), body          a whole one, as a cell has it
//! body   = tag (1 byte), then by tag:
//!   0 NULL, 1 false, 2 true    nothing
//!   3 S, 4 B                   len, bytes
//!   5 N                        number
//!   6 L                        count, count * body
//!   7 M                        count, count * (len, name, body), names ascending by their bytes
//!   8 SS, 9 BS                 count, count * (len, bytes), ascending
//!   10 NS                      count, count * number, ascending
//! number = head (1 byte), [exponent (i16, little-endian)], coefficient (little-endian, fewest bytes)
//!   head: bit 7 negative, bit 6 an exponent follows (else it is 0), bits 0-4 bytes of the coefficient
//! len, count = unsigned vint
//! ```
//! An item is the body of a map. Equal values have equal bytes. Readers check everything: bytes that no writer makes
//! are [`Malformed`], whatever they are; they accept numbers and vints that are not in the shortest form, but not
//! names or elements out of order.

mod measure;
mod transcode;

use std::fmt;

use stdx::bytes::Reader;
use stdx::{preempt, vint};

use super::{AttributeValue, Item, NESTING_MAX, Number, Set};

pub use measure::stored_value_bytes;
pub use transcode::{write_item_json, write_value_json};

/// The version of the format, the first byte.
pub const VERSION: u8 = 1;

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const STRING: u8 = 3;
const BINARY: u8 = 4;
const NUMBER: u8 = 5;
const LIST: u8 = 6;
const MAP: u8 = 7;
const STRING_SET: u8 = 8;
const BINARY_SET: u8 = 9;
const NUMBER_SET: u8 = 10;

const NEGATIVE: u8 = 0x80;
const WITH_EXPONENT: u8 = 0x40;
const LEN_MASK: u8 = 0x1f;

/// Stored bytes are no value: of another version, cut off or damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malformed stored attribute value")
    }
}

impl std::error::Error for Malformed {}

impl From<stdx::bytes::Truncated> for Malformed {
    fn from(_: stdx::bytes::Truncated) -> Self {
        Self
    }
}

/// Appends the stored form of a value.
pub fn append_value(out: &mut Vec<u8>, value: &AttributeValue) {
    out.push(VERSION);
    append_body(out, value);
}

/// Appends the stored form of an item: that of the map with its attributes.
pub fn append_item(out: &mut Vec<u8>, item: &Item) {
    out.push(VERSION);
    append_map(out, item);
}

/// Reads a value that fills all bytes.
///
/// # Errors
/// If no writer of this version makes such bytes.
pub fn read_value(bytes: &[u8]) -> Result<AttributeValue, Malformed> {
    whole(bytes, |cursor| read_body(cursor, 0))
}

/// What `read` makes of the body of a stored value, which must fill all bytes after the version.
fn whole<T>(bytes: &[u8], read: impl FnOnce(&mut Reader<'_>) -> Result<T, Malformed>) -> Result<T, Malformed> {
    let mut cursor = Reader::new(bytes);
    if cursor.get_u8()? != VERSION {
        return Err(Malformed);
    }
    let value = read(&mut cursor)?;
    if cursor.rest().is_empty() {
        Ok(value)
    } else {
        Err(Malformed)
    }
}

/// Reads an item that fills all bytes.
///
/// # Errors
/// If no writer of this version makes such bytes.
pub fn read_item(bytes: &[u8]) -> Result<Item, Malformed> {
    match read_value(bytes)? {
        AttributeValue::M(item) => Ok(item),
        _ => Err(Malformed),
    }
}

fn append_body(out: &mut Vec<u8>, value: &AttributeValue) {
    preempt::point();
    match value {
        AttributeValue::Null => out.push(NULL),
        AttributeValue::Bool(value) => out.push(if *value { TRUE } else { FALSE }),
        AttributeValue::S(text) => append_sized(out, Some(STRING), text.as_bytes()),
        AttributeValue::B(bytes) => append_sized(out, Some(BINARY), bytes),
        AttributeValue::N(number) => {
            out.push(NUMBER);
            append_number(out, *number);
        }
        AttributeValue::L(list) => {
            append_head(out, LIST, list.len());
            list.iter().for_each(|value| append_body(out, value));
        }
        AttributeValue::M(map) => append_map(out, map),
        AttributeValue::Ss(set) => {
            append_set(out, STRING_SET, set, |out, text| {
                append_sized(out, None, text.as_bytes())
            });
        }
        AttributeValue::Bs(set) => append_set(out, BINARY_SET, set, |out, bytes| append_sized(out, None, bytes)),
        AttributeValue::Ns(set) => append_set(out, NUMBER_SET, set, |out, number| append_number(out, *number)),
    }
}

fn append_map(out: &mut Vec<u8>, map: &Item) {
    append_head(out, MAP, map.len());
    for (name, value) in map {
        append_sized(out, None, name.as_bytes());
        append_body(out, value);
    }
}

fn append_set<T: Ord>(out: &mut Vec<u8>, tag: u8, set: &Set<T>, append: impl Fn(&mut Vec<u8>, &T)) {
    append_head(out, tag, set.len());
    for element in set.as_slice() {
        preempt::point();
        append(out, element);
    }
}

fn append_head(out: &mut Vec<u8>, tag: u8, count: usize) {
    preempt::push(out, tag);
    vint::put_unsigned(out, count as u64);
}

fn append_sized(out: &mut Vec<u8>, tag: Option<u8>, bytes: &[u8]) {
    preempt::reserve(out, bytes.len() + 1 + vint::LEN_MAX);
    out.extend(tag);
    vint::put_unsigned(out, bytes.len() as u64);
    preempt::append(out, bytes);
}

fn append_number(out: &mut Vec<u8>, number: Number) {
    let magnitude = number.coefficient().unsigned_abs();
    let len = (128 - magnitude.leading_zeros()).div_ceil(8);
    let negative = if number.is_negative() { NEGATIVE } else { 0 };
    let exponent = number.exponent();
    let with_exponent = if exponent == 0 { 0 } else { WITH_EXPONENT };
    let len_byte = len.to_le_bytes()[0];
    preempt::push(out, negative | with_exponent | len_byte);
    if exponent != 0 {
        out.extend_from_slice(&exponent.to_le_bytes());
    }
    out.extend_from_slice(&magnitude.to_le_bytes()[..usize::from(len_byte)]);
}

fn read_body(cursor: &mut Reader<'_>, depth: usize) -> Result<AttributeValue, Malformed> {
    preempt::point();
    let tag = cursor.get_u8()?;
    check_depth(tag, depth)?;
    Ok(match tag {
        NULL => AttributeValue::Null,
        FALSE => AttributeValue::Bool(false),
        TRUE => AttributeValue::Bool(true),
        STRING => AttributeValue::S(read_string(cursor)?),
        BINARY => AttributeValue::B(read_bytes(cursor)?),
        NUMBER => AttributeValue::N(read_number(cursor)?),
        LIST => AttributeValue::L(read_elements(cursor, |cursor| read_body(cursor, depth + 1))?),
        MAP => AttributeValue::M(read_map(cursor, depth)?),
        STRING_SET => AttributeValue::Ss(read_set(cursor, read_string)?),
        BINARY_SET => AttributeValue::Bs(read_set(cursor, read_bytes)?),
        NUMBER_SET => AttributeValue::Ns(read_set(cursor, read_number)?),
        _ => return Err(Malformed),
    })
}

/// Lists and maps are nested up to a limit, which does not count the map of an item.
fn check_depth(tag: u8, depth: usize) -> Result<(), Malformed> {
    if matches!(tag, LIST | MAP) && depth > NESTING_MAX {
        return Err(Malformed);
    }
    Ok(())
}

fn read_map(cursor: &mut Reader<'_>, depth: usize) -> Result<Item, Malformed> {
    let mut map = Item::new();
    let mut last = None;
    for _ in 0..cursor.get_vint()? {
        let name = read_str(cursor)?;
        if last.is_some_and(|last| last >= name) {
            return Err(Malformed);
        }
        last = Some(name);
        let value = read_body(cursor, depth + 1)?;
        map.insert(name.to_owned(), value);
    }
    Ok(map)
}

/// Each element takes at least a byte, so damaged counts end with the bytes.
fn read_elements<'a, T>(
    cursor: &mut Reader<'a>,
    mut read: impl FnMut(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let mut elements = Vec::new();
    for _ in 0..cursor.get_vint()? {
        preempt::point();
        preempt::push(&mut elements, read(cursor)?);
    }
    Ok(elements)
}

fn read_set<'a, T: Ord>(
    cursor: &mut Reader<'a>,
    read: impl FnMut(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Set<T>, Malformed> {
    Set::from_ascending(read_elements(cursor, read)?).ok_or(Malformed)
}

fn read_string(cursor: &mut Reader<'_>) -> Result<String, Malformed> {
    String::from_utf8(read_bytes(cursor)?).map_err(|_| Malformed)
}

fn read_bytes(cursor: &mut Reader<'_>) -> Result<Vec<u8>, Malformed> {
    let bytes = read_slice(cursor)?;
    if bytes.len() <= preempt::STEP_BYTES {
        return Ok(bytes.to_vec());
    }
    let mut copy = Vec::new();
    preempt::append(&mut copy, bytes);
    Ok(copy)
}

fn read_str<'a>(cursor: &mut Reader<'a>) -> Result<&'a str, Malformed> {
    std::str::from_utf8(read_slice(cursor)?).map_err(|_| Malformed)
}

fn read_slice<'a>(cursor: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let len = usize::try_from(cursor.get_vint()?).map_err(|_| Malformed)?;
    Ok(cursor.get_slice(len)?)
}

fn read_number(cursor: &mut Reader<'_>) -> Result<Number, Malformed> {
    let head = cursor.get_u8()?;
    let exponent = match head & WITH_EXPONENT {
        0 => 0,
        _ => i16::from_le_bytes(cursor.get_array()?),
    };
    let bytes = cursor.get_slice(usize::from(head & LEN_MASK))?;
    let mut magnitude = [0; 16];
    magnitude
        .get_mut(..bytes.len())
        .ok_or(Malformed)?
        .copy_from_slice(bytes);
    let magnitude = i128::from_le_bytes(magnitude);
    if magnitude < 0 {
        return Err(Malformed);
    }
    let coefficient = if head & NEGATIVE == 0 { magnitude } else { -magnitude };
    Number::from_parts(coefficient, i64::from(exponent)).map_err(|_| Malformed)
}
