//! Maps as they stand in a request, validated when the request was decoded.

use crate::error::ProtocolError;
use crate::reader::Reader;

/// A [string map]: the options of STARTUP.
#[derive(Clone, Copy, Debug)]
pub struct StringMap<'a> {
    count: u16,
    entries: &'a [u8],
}

impl<'a> StringMap<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<StringMap<'a>, ProtocolError> {
        let count = reader.short("number of STARTUP options")?;
        let start = *reader;
        for _ in 0..count {
            reader.string("name of a STARTUP option")?;
            reader.string("value of a STARTUP option")?;
        }
        Ok(StringMap {
            count,
            entries: reader.since(start),
        })
    }

    /// How many entries it has.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Its entries, in the order they were sent.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let mut reader = Reader::new(self.entries);
        std::iter::from_fn(move || Some((reader.string("").ok()?, reader.string("").ok()?)))
    }

    /// The value of the first entry with this name.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    }
}

/// A [bytes map]: the custom payload of a frame.
#[derive(Clone, Copy, Debug)]
pub struct BytesMap<'a> {
    count: u16,
    entries: &'a [u8],
}

impl<'a> BytesMap<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<BytesMap<'a>, ProtocolError> {
        let count = reader.short("number of custom payload entries")?;
        let start = *reader;
        for _ in 0..count {
            reader.string("name of a custom payload entry")?;
            reader.bytes("value of a custom payload entry")?;
        }
        Ok(BytesMap {
            count,
            entries: reader.since(start),
        })
    }

    /// How many entries it has.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Its entries, in the order they were sent; `None` is null.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, Option<&'a [u8]>)> + use<'a> {
        let mut reader = Reader::new(self.entries);
        std::iter::from_fn(move || Some((reader.string("").ok()?, reader.bytes("").ok()?)))
    }
}
