//! Maps as encoded in a request, validated when the request was decoded.

use crate::error::ProtocolError;
use crate::reader::Reader;

/// A [string map]: the options of STARTUP.
#[derive(Clone, Copy, Debug)]
pub struct StringMap<'a>(Entries<'a>);

/// A [bytes map]: the custom payload of a frame.
#[derive(Clone, Copy, Debug)]
pub struct BytesMap<'a>(Entries<'a>);

/// Names, and values of one notation.
#[derive(Clone, Copy, Debug)]
struct Entries<'a> {
    count: u16,
    bytes: &'a [u8],
}

impl<'a> Entries<'a> {
    /// Passes over the entries. `fields` is what the count and the names are.
    fn read<V>(
        reader: &mut Reader<'a>,
        fields: [&'static str; 2],
        value: impl Fn(&mut Reader<'a>) -> Result<V, ProtocolError>,
    ) -> Result<Self, ProtocolError> {
        let count = reader.short(fields[0])?;
        let start = *reader;
        for _ in 0..count {
            reader.string(fields[1])?;
            value(reader)?;
        }
        Ok(Self {
            count,
            bytes: reader.since(start),
        })
    }

    fn iter<V>(self, value: fn(&mut Reader<'a>) -> Result<V, ProtocolError>) -> impl Iterator<Item = (&'a str, V)> {
        let mut reader = Reader::new(self.bytes);
        std::iter::from_fn(move || Some((reader.string("").ok()?, value(&mut reader).ok()?)))
    }
}

impl<'a> StringMap<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<StringMap<'a>, ProtocolError> {
        let fields = ["number of STARTUP options", "name of a STARTUP option"];
        Entries::read(reader, fields, |reader| reader.string("value of a STARTUP option")).map(Self)
    }

    /// How many entries it has.
    pub fn len(&self) -> usize {
        usize::from(self.0.count)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.0.count == 0
    }

    /// Its entries, in the order they were sent.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.0.iter(|reader| reader.string(""))
    }

    /// The value of the first entry with this name.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    }
}

impl<'a> BytesMap<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<BytesMap<'a>, ProtocolError> {
        let fields = ["number of custom payload entries", "name of a custom payload entry"];
        Entries::read(reader, fields, |reader| reader.bytes("value of a custom payload entry")).map(Self)
    }

    /// How many entries it has.
    pub fn len(&self) -> usize {
        usize::from(self.0.count)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.0.count == 0
    }

    /// Its entries, in the order they were sent; `None` is null.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, Option<&'a [u8]>)> + use<'a> {
        self.0.iter(|reader| reader.bytes(""))
    }
}
