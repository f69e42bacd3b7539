//! Whether bytes from a client or a file are a value of a type.
//!
//! Well-formed bytes cost no allocation. As in Cassandra, the empty value belongs to most types, a time's range is not
//! checked, and a set's elements may be in any order.

use crate::collection::{CollectionIter, Malformed, MapIter, TupleIter, VectorIter};
use crate::cql_type::CqlType;
use crate::duration::Duration;
use crate::error::TypeError;

impl CqlType {
    /// Checks that `bytes` are a serialised value of this type; a multi-cell type is checked in its frozen form.
    ///
    /// # Errors
    /// [`TypeError::Malformed`], in Cassandra's words.
    pub fn validate(&self, bytes: &[u8]) -> Result<(), TypeError> {
        let len = bytes.len();
        match self {
            Self::Blob | Self::VarInt => Ok(()),
            Self::Text if is_ascii(bytes) || std::str::from_utf8(bytes).is_ok() => Ok(()),
            Self::Text => malformed("String didn't validate."),
            Self::Ascii => match bytes.iter().find(|byte| !byte.is_ascii()) {
                None => Ok(()),
                Some(byte) => malformed(format!("Invalid byte for ascii: {}", byte.cast_signed())),
            },
            Self::Int if matches!(len, 0 | 4) => Ok(()),
            Self::Int => malformed(format!("Expected 4 or 0 byte int ({len})")),
            Self::BigInt | Self::Counter if matches!(len, 0 | 8) => Ok(()),
            Self::BigInt | Self::Counter => malformed(format!("Expected 8 or 0 byte long ({len})")),
            Self::Timestamp if matches!(len, 0 | 8) => Ok(()),
            Self::Timestamp => malformed(format!("Expected 8 or 0 byte long for date ({len})")),
            Self::Boolean if len <= 1 => Ok(()),
            Self::Boolean => malformed(format!("Expected 1 or 0 byte value ({len})")),
            Self::Double if matches!(len, 0 | 8) => Ok(()),
            Self::Double => malformed(format!("Expected 8 or 0 byte value for a double ({len})")),
            Self::Float if matches!(len, 0 | 4) => Ok(()),
            Self::Float => malformed(format!("Expected 4 or 0 byte value for a float ({len})")),
            Self::SmallInt if len == 2 => Ok(()),
            Self::SmallInt => malformed(format!("Expected 2 bytes for a smallint ({len})")),
            Self::TinyInt if len == 1 => Ok(()),
            Self::TinyInt => malformed(format!("Expected 1 byte for a tinyint ({len})")),
            Self::Date if len == 4 => Ok(()),
            Self::Date => malformed(format!("Expected 4 byte long for date ({len})")),
            Self::Time if len == 8 => Ok(()),
            Self::Time => malformed(format!("Expected 8 byte long for time ({len})")),
            Self::Uuid | Self::TimeUuid => self.validate_uuid(bytes),
            Self::Inet if matches!(len, 0 | 4 | 16) => Ok(()),
            Self::Inet => malformed(format!("Expected 4 or 16 byte inetaddress; got {}", to_hex(bytes))),
            Self::Decimal if !matches!(len, 1..4) => Ok(()),
            Self::Decimal => malformed(format!("Expected 0 or at least 4 bytes ({len})")),
            Self::Duration => Duration::deserialize(bytes).map(|_| ()),
            Self::Empty if len == 0 => Ok(()),
            Self::Empty => malformed("EmptyType only accept empty values"),
            Self::List(element) => validate_elements(bytes, element, "list", |_| {}),
            Self::Set(element) => validate_elements(bytes, element, "set", |_| {}),
            Self::Map(key, value) => validate_map(bytes, key, value, |_| {}),
            Self::Tuple(elements) => validate_tuple(bytes, elements),
            Self::Udt(udt) => validate_udt(bytes, &udt.fields),
            Self::Vector(element, dimension) => self.validate_vector(bytes, element, *dimension),
            Self::Frozen(inner) => inner.validate(bytes),
        }
    }

    fn validate_uuid(&self, bytes: &[u8]) -> Result<(), TypeError> {
        match bytes {
            [] => Ok(()),
            [_, _, _, _, _, _, version, ..] if bytes.len() == 16 => match version >> 4 {
                version if version != 1 && *self == Self::TimeUuid => {
                    malformed(format!("Invalid version for TimeUUID type: 0x{version:x}"))
                }
                _ => Ok(()),
            },
            _ => malformed(format!("UUID should be 16 or 0 bytes ({})", bytes.len())),
        }
    }

    fn validate_vector(&self, bytes: &[u8], element: &Self, dimension: u32) -> Result<(), TypeError> {
        if bytes.is_empty() {
            return malformed("Invalid empty vector value");
        }
        for item in VectorIter::new(bytes, dimension, element.fixed_len()) {
            match item {
                Ok(bytes) => element.validate(bytes)?,
                Err(Malformed::Extraneous(len)) => {
                    return malformed(format!("Unexpected {len} extraneous bytes after {self} value"));
                }
                Err(_) => return malformed(format!("Not enough bytes to read a {self}")),
            }
        }
        Ok(())
    }
}

/// Whether text is ASCII. Most is, and short: eight bytes at a time cost less than half of the library's decoder.
#[inline]
fn is_ascii(bytes: &[u8]) -> bool {
    const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
    let (words, rest) = bytes.as_chunks();
    let of_words = words.iter().fold(0, |all, word| all | u64::from_ne_bytes(*word));
    // The last eight bytes, some of them for the second time.
    let of_rest = match bytes.last_chunk() {
        Some(last) => u64::from_ne_bytes(*last),
        None => rest.iter().fold(0, |all, byte| all | u64::from(*byte)),
    };
    (of_words | of_rest) & HIGH_BITS == 0
}

fn malformed<T>(message: impl Into<String>) -> Result<T, TypeError> {
    Err(TypeError::Malformed(message.into()))
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn collection_error(problem: Malformed, name: &str) -> TypeError {
    TypeError::Malformed(match problem {
        Malformed::Truncated => format!("Not enough bytes to read a {name}"),
        Malformed::Null => "Null value read when not allowed".to_owned(),
        Malformed::Extraneous(_) => format!("Unexpected extraneous bytes after {name} value"),
    })
}

/// Checks the elements of a list or set. Gives each, when it is valid, to `see`.
pub(crate) fn validate_elements<'v>(
    bytes: &'v [u8],
    element: &CqlType,
    name: &str,
    mut see: impl FnMut(&'v [u8]),
) -> Result<(), TypeError> {
    for item in CollectionIter::new(bytes).map_err(|problem| collection_error(problem, name))? {
        let item = item.map_err(|problem| collection_error(problem, name))?;
        element.validate(item)?;
        see(item);
    }
    Ok(())
}

/// Checks the keys and values of a map. Gives each key, when it and its value are valid, to `see`.
pub(crate) fn validate_map<'v>(
    bytes: &'v [u8],
    key: &CqlType,
    value: &CqlType,
    mut see: impl FnMut(&'v [u8]),
) -> Result<(), TypeError> {
    for pair in MapIter::new(bytes).map_err(|problem| collection_error(problem, "map"))? {
        let (key_bytes, value_bytes) = pair.map_err(|problem| collection_error(problem, "map"))?;
        key.validate(key_bytes)?;
        value.validate(value_bytes)?;
        see(key_bytes);
    }
    Ok(())
}

fn validate_tuple(bytes: &[u8], elements: &[CqlType]) -> Result<(), TypeError> {
    let mut items = TupleIter::new(bytes);
    for (index, element) in elements.iter().enumerate() {
        let rest = items.rest();
        match items.next() {
            None => return Ok(()),
            Some(Ok(None)) => {}
            Some(Ok(Some(bytes))) => element.validate(bytes)?,
            Some(Err(_)) => {
                let what = if rest.len() < 4 { "size of " } else { "" };
                return malformed(format!("Not enough bytes to read {what}{index}th component"));
            }
        }
    }
    if items.rest().is_empty() {
        Ok(())
    } else {
        malformed("Invalid remaining data after end of tuple value")
    }
}

fn validate_udt(bytes: &[u8], fields: &[(String, CqlType)]) -> Result<(), TypeError> {
    let mut items = TupleIter::new(bytes);
    for (index, (name, field)) in fields.iter().enumerate() {
        let rest = items.rest();
        match items.next() {
            None => return Ok(()),
            Some(Ok(None)) => {}
            Some(Ok(Some(bytes))) => field
                .validate(bytes)
                .or_else(|error| malformed(format!("Failure validating the {index}th field {name}; {error}")))?,
            Some(Err(_)) => {
                let what = if rest.len() < 4 { "size of " } else { "" };
                return malformed(format!("Not enough bytes to read {what}{index}th field {name}"));
            }
        }
    }
    if items.rest().is_empty() {
        Ok(())
    } else {
        malformed("Invalid remaining data after end of UDT value")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_ascii_when_each_of_its_bytes_is() {
        for length in 0..40 {
            let mut text = vec![0x7f; length];
            assert!(is_ascii(&text), "{length} bytes");
            for at in 0..length {
                text[at] = 0x80;
                assert!(!is_ascii(&text), "byte {at} of {length}");
                text[at] = 0x7f;
            }
        }
    }
}
