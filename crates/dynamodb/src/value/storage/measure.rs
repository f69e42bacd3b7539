//! The size of a stored value as the API counts it, without the value.

use stdx::bytes::Reader;
use stdx::preempt;

use super::{
    BINARY, BINARY_SET, FALSE, LIST, MAP, Malformed, NULL, NUMBER, NUMBER_SET, STRING, STRING_SET, TRUE, check_depth,
    read_number, read_slice, whole,
};
use crate::value::size::{CONTAINER_BYTES, ELEMENT_BYTES, number_bytes};

/// The size in bytes of a stored value: what [`crate::value::size::value_bytes`] says of the value that
/// [`super::read_value`] reads.
///
/// # Errors
/// If no writer of this version makes such bytes. The order of names and elements is not checked, nor is UTF-8.
pub fn stored_value_bytes(stored: &[u8]) -> Result<usize, Malformed> {
    whole(stored, |cursor| body_bytes(cursor, 0))
}

fn body_bytes(cursor: &mut Reader<'_>, depth: usize) -> Result<usize, Malformed> {
    preempt::point();
    let tag = cursor.get_u8()?;
    check_depth(tag, depth)?;
    Ok(match tag {
        NULL | FALSE | TRUE => 1,
        STRING | BINARY => read_slice(cursor)?.len(),
        NUMBER => number_bytes(read_number(cursor)?),
        LIST => {
            let element = |cursor: &mut Reader<'_>| Ok(ELEMENT_BYTES + body_bytes(cursor, depth + 1)?);
            CONTAINER_BYTES + sum(cursor, element)?
        }
        MAP => {
            let element = |cursor: &mut Reader<'_>| {
                let name = read_slice(cursor)?.len();
                Ok(ELEMENT_BYTES + name + body_bytes(cursor, depth + 1)?)
            };
            CONTAINER_BYTES + sum(cursor, element)?
        }
        STRING_SET | BINARY_SET => sum(cursor, |cursor| Ok(read_slice(cursor)?.len()))?,
        NUMBER_SET => sum(cursor, |cursor| Ok(number_bytes(read_number(cursor)?)))?,
        _ => return Err(Malformed),
    })
}

/// Each element takes at least a byte, so damaged counts end with the bytes.
fn sum(
    cursor: &mut Reader<'_>,
    bytes: impl Fn(&mut Reader<'_>) -> Result<usize, Malformed>,
) -> Result<usize, Malformed> {
    let mut all = 0;
    for _ in 0..cursor.get_vint()? {
        preempt::point();
        all += bytes(cursor)?;
    }
    Ok(all)
}
