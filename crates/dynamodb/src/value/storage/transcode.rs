//! From the stored form to JSON, with no value in between: what a read without a projection does for each row.

use stdx::bytes::Reader;
use stdx::preempt;

use super::{
    BINARY, BINARY_SET, FALSE, LIST, MAP, Malformed, NULL, NUMBER, NUMBER_SET, STRING, STRING_SET, TRUE, check_depth,
    read_number, read_slice, read_str, whole,
};
use crate::value::json;

/// Appends a stored value as JSON. What is appended is that of [`json::write_value`] for the value that
/// [`super::read_value`] reads.
///
/// # Errors
/// If no writer of this version makes such bytes; nothing is appended then. The order of names and elements is not
/// checked.
pub fn write_value_json(out: &mut Vec<u8>, stored: &[u8]) -> Result<(), Malformed> {
    appended(out, stored, |cursor, out| write_body(cursor, out, 0))
}

/// As [`write_value_json`], of an item: its attributes without the type of a map.
///
/// # Errors
/// As of [`write_value_json`].
pub fn write_item_json(out: &mut Vec<u8>, stored: &[u8]) -> Result<(), Malformed> {
    appended(out, stored, |cursor, out| match cursor.get_u8()? {
        MAP => write_map(cursor, out, 0),
        _ => Err(Malformed),
    })
}

/// Appends what `write` makes of a stored value, or nothing if it fails.
fn appended(
    out: &mut Vec<u8>,
    stored: &[u8],
    write: impl FnOnce(&mut Reader<'_>, &mut Vec<u8>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let start = out.len();
    let written = whole(stored, |cursor| write(cursor, out));
    if written.is_err() {
        out.truncate(start);
    }
    written
}

fn write_body(cursor: &mut Reader<'_>, out: &mut Vec<u8>, depth: usize) -> Result<(), Malformed> {
    preempt::point();
    let open = |out: &mut Vec<u8>, start: &str| {
        preempt::reserve(out, start.len());
        out.extend_from_slice(start.as_bytes());
    };
    let tag = cursor.get_u8()?;
    check_depth(tag, depth)?;
    match tag {
        NULL => open(out, "{\"NULL\":true"),
        FALSE => open(out, "{\"BOOL\":false"),
        TRUE => open(out, "{\"BOOL\":true"),
        STRING => {
            open(out, "{\"S\":");
            write_string(cursor, out)?;
        }
        BINARY => {
            open(out, "{\"B\":");
            write_binary(cursor, out)?;
        }
        NUMBER => {
            open(out, "{\"N\":");
            write_number(cursor, out)?;
        }
        LIST => {
            open(out, "{\"L\":");
            write_elements(cursor, out, |cursor, out| write_body(cursor, out, depth + 1))?;
        }
        MAP => {
            open(out, "{\"M\":");
            write_map(cursor, out, depth)?;
        }
        STRING_SET => {
            open(out, "{\"SS\":");
            write_elements(cursor, out, write_string)?;
        }
        BINARY_SET => {
            open(out, "{\"BS\":");
            write_elements(cursor, out, write_binary)?;
        }
        NUMBER_SET => {
            open(out, "{\"NS\":");
            write_elements(cursor, out, write_number)?;
        }
        _ => return Err(Malformed),
    }
    preempt::push(out, b'}');
    Ok(())
}

fn write_map(cursor: &mut Reader<'_>, out: &mut Vec<u8>, depth: usize) -> Result<(), Malformed> {
    preempt::push(out, b'{');
    for number in 0..cursor.get_vint()? {
        if number > 0 {
            preempt::push(out, b',');
        }
        write_string(cursor, out)?;
        preempt::push(out, b':');
        write_body(cursor, out, depth + 1)?;
    }
    preempt::push(out, b'}');
    Ok(())
}

fn write_elements<'a>(
    cursor: &mut Reader<'a>,
    out: &mut Vec<u8>,
    write: impl Fn(&mut Reader<'a>, &mut Vec<u8>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    preempt::push(out, b'[');
    for number in 0..cursor.get_vint()? {
        preempt::point();
        if number > 0 {
            preempt::push(out, b',');
        }
        write(cursor, out)?;
    }
    preempt::push(out, b']');
    Ok(())
}

fn write_string(cursor: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), Malformed> {
    json::write_string(out, read_str(cursor)?);
    Ok(())
}

fn write_binary(cursor: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), Malformed> {
    json::write_binary(out, read_slice(cursor)?);
    Ok(())
}

fn write_number(cursor: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), Malformed> {
    let number = read_number(cursor)?;
    out.push(b'"');
    number.append_text(out);
    out.push(b'"');
    Ok(())
}
