//! Bound values as encoded in a request: a lazy sequence over the bytes of the frame.

use crate::codes::ProtocolVersion;
use crate::error::ProtocolError;
use crate::reader::Reader;

/// One bound value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// The encoded value, possibly of length 0.
    Bytes(&'a [u8]),
    /// Null: a tombstone when it is written.
    Null,
    /// Not set: leaves what is stored as it is (version 4 and later).
    Unset,
}

/// The bound values of one statement. Every length was checked when the request was decoded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Values<'a> {
    count: u16,
    named: bool,
    entries: &'a [u8],
}

impl<'a> Values<'a> {
    pub(crate) fn read(
        reader: &mut Reader<'a>,
        named: bool,
        version: ProtocolVersion,
    ) -> Result<Values<'a>, ProtocolError> {
        let count = reader.short("number of values")?;
        let start = *reader;
        for _ in 0..count {
            if named {
                reader.string("name of a value")?;
            }
            let length = reader.int("length of a value")?;
            if let Ok(length) = usize::try_from(length) {
                reader.take(length, "value")?;
            } else if !(length == -1 || (length == -2 && version >= ProtocolVersion::V4)) {
                let expected = match version {
                    ProtocolVersion::V3 => "0 or more, or -1 for null",
                    _ => "0 or more, -1 for null or -2 for not set",
                };
                return Err(ProtocolError::OutOfRange {
                    field: "length of a value",
                    expected,
                    found: length.into(),
                });
            }
        }
        Ok(Values {
            count,
            named,
            entries: reader.since(start),
        })
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether each value has a name.
    pub fn is_named(&self) -> bool {
        self.named
    }

    /// The values, in the order they were sent.
    pub fn iter(&self) -> ValuesIter<'a> {
        ValuesIter {
            named: self.named,
            rest: Reader::new(self.entries),
        }
    }

    /// The values with their names; empty when they have none.
    pub fn iter_named(&self) -> impl Iterator<Item = (&'a str, Value<'a>)> + use<'a> {
        let mut values = self.iter();
        std::iter::from_fn(move || values.named.then(|| values.next_entry()).flatten())
    }
}

impl<'a> IntoIterator for Values<'a> {
    type Item = Value<'a>;
    type IntoIter = ValuesIter<'a>;

    fn into_iter(self) -> ValuesIter<'a> {
        self.iter()
    }
}

/// Iterates over [`Values`].
#[derive(Clone, Debug)]
pub struct ValuesIter<'a> {
    named: bool,
    rest: Reader<'a>,
}

impl<'a> ValuesIter<'a> {
    fn next_entry(&mut self) -> Option<(&'a str, Value<'a>)> {
        let name = if self.named { self.rest.string("").ok()? } else { "" };
        Some((name, self.next_value()?))
    }

    #[inline]
    fn next_value(&mut self) -> Option<Value<'a>> {
        match self.rest.int("").ok()? {
            -1 => Some(Value::Null),
            -2 => Some(Value::Unset),
            length => Some(Value::Bytes(self.rest.take(usize::try_from(length).ok()?, "").ok()?)),
        }
    }
}

impl<'a> Iterator for ValuesIter<'a> {
    type Item = Value<'a>;

    #[inline]
    fn next(&mut self) -> Option<Value<'a>> {
        if self.named {
            self.rest.short_bytes("").ok()?;
        }
        self.next_value()
    }
}
