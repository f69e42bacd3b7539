//! The binary form of what the metadata log, the metadata file and messages between nodes hold.
//!
//! ```text
//! kind: u8 · format: u8 · body · CRC-32 of all before: u32
//! ```
//!
//! In a body numbers have eight bytes and are big-endian, a text or blob is its length (four bytes) and its bytes, an
//! option is 0 or 1 and the value, a list its count (four bytes) and its elements. The bodies of commands and of
//! metadata are records (`record.rs`); the others are read field by field. Whatever the bytes are, decoding ends with a
//! value or an error.

use record::{Known, Record};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use stdx::bytes::Reader;
use uuid::Uuid;

/// Bytes that are not what they should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Malformed {
    /// What was to be read.
    pub what: &'static str,
    /// What is wrong, and where.
    pub why: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be read: {}", self.what, self.why)
    }
}

impl std::error::Error for Malformed {}

/// The header of a body.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    /// Distinguishes the values.
    pub(crate) kind: u8,
    /// The first format that this release reads.
    pub(crate) oldest: u8,
    /// The format this release writes, and the latest it reads.
    pub(crate) format: u8,
    /// For errors.
    pub(crate) name: &'static str,
}

impl Form {
    pub(crate) fn malformed(self, why: impl fmt::Display) -> Malformed {
        Malformed {
            what: self.name,
            why: why.to_string(),
        }
    }
}

pub(crate) struct Encoder(Vec<u8>);

impl Encoder {
    pub(crate) fn begin(form: Form) -> Self {
        Self(vec![form.kind, form.format])
    }

    pub(crate) fn seal(mut self) -> Vec<u8> {
        let checksum = crc32fast::hash(&self.0);
        self.0.extend_from_slice(&checksum.to_be_bytes());
        self.0
    }

    /// A record, up to the end.
    pub(crate) fn record<R: Record>(&mut self, record: &R) {
        self.0.extend_from_slice(&record::encode(record));
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    pub(crate) fn uuid(&mut self, id: Uuid) {
        self.0.extend_from_slice(id.as_bytes());
    }

    pub(crate) fn count(&mut self, count: usize) {
        let count = u32::try_from(count).expect("what is encoded is smaller than 4 GiB");
        self.0.extend_from_slice(&count.to_be_bytes());
    }

    pub(crate) fn blob(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn option<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) {
        self.byte(u8::from(value.is_some()));
        if let Some(value) = value {
            put(self, value);
        }
    }

    pub(crate) fn address(&mut self, address: SocketAddr) {
        match address.ip() {
            IpAddr::V4(ip) => {
                self.byte(4);
                self.0.extend_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                self.byte(6);
                self.0.extend_from_slice(&ip.octets());
            }
        }
        self.0.extend_from_slice(&address.port().to_be_bytes());
    }
}

pub(crate) struct Decoder<'a> {
    reader: Reader<'a>,
    what: &'static str,
}

impl<'a> Decoder<'a> {
    /// Checks kind, format and checksum.
    pub(crate) fn open(bytes: &'a [u8], form: Form) -> Result<Self, Malformed> {
        let malformed = |why: String| form.malformed(why);
        let Some((sealed, checksum)) = bytes.split_last_chunk::<4>() else {
            return Err(malformed(format!("{} bytes are too few", bytes.len())));
        };
        let [kind, format, body @ ..] = sealed else {
            return Err(malformed(format!("{} bytes are too few", bytes.len())));
        };
        if *kind != form.kind {
            return Err(malformed(format!("expected kind {}, found {kind}", form.kind)));
        }
        if crc32fast::hash(sealed) != u32::from_be_bytes(*checksum) {
            return Err(malformed("the checksum does not match".to_owned()));
        }
        if *format > form.format || *format < form.oldest {
            return Err(malformed(format!(
                "it is in format {format}, which another release writes; this one reads formats {} to {}",
                form.oldest, form.format
            )));
        }
        Ok(Self {
            reader: Reader::new(body),
            what: form.name,
        })
    }

    /// The record that all the rest is.
    pub(crate) fn record<R: Record>(self, known: &Known) -> Result<R, Malformed> {
        let what = self.what;
        record::decode(self.reader.rest(), known).map_err(|e| Malformed {
            what,
            why: e.to_string(),
        })
    }

    pub(crate) fn malformed(&self, why: impl fmt::Display) -> Malformed {
        Malformed {
            what: self.what,
            why: format!("{why} (before offset {})", self.reader.at() + 2),
        }
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        self.reader.get_u8().map_err(|e| self.malformed(e))
    }

    pub(crate) fn number(&mut self) -> Result<u64, Malformed> {
        self.reader.get_u64().map_err(|e| self.malformed(e))
    }

    pub(crate) fn uuid(&mut self) -> Result<Uuid, Malformed> {
        let bytes = self.reader.get_array().map_err(|e| self.malformed(e))?;
        Ok(Uuid::from_bytes(bytes))
    }

    /// A count of elements that have a byte at least.
    pub(crate) fn count(&mut self) -> Result<usize, Malformed> {
        let count = self.reader.get_u32().map_err(|e| self.malformed(e))? as usize;
        if count > self.reader.rest().len() {
            return Err(self.malformed(format!(
                "{count} elements where {} bytes follow",
                self.reader.rest().len()
            )));
        }
        Ok(count)
    }

    pub(crate) fn blob(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.count()?;
        self.reader.get_slice(length).map_err(|e| self.malformed(e))
    }

    pub(crate) fn text(&mut self) -> Result<String, Malformed> {
        let bytes = self.blob()?;
        let text = std::str::from_utf8(bytes).map_err(|e| self.malformed(e))?;
        Ok(text.to_owned())
    }

    pub(crate) fn bool(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.malformed(format!("expected 0 or 1, found {other}"))),
        }
    }

    pub(crate) fn option<T>(
        &mut self,
        get: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        if self.bool()? { get(self).map(Some) } else { Ok(None) }
    }

    pub(crate) fn address(&mut self) -> Result<SocketAddr, Malformed> {
        let ip = match self.byte()? {
            4 => IpAddr::from(self.reader.get_array::<4>().map_err(|e| self.malformed(e))?),
            6 => IpAddr::from(self.reader.get_array::<16>().map_err(|e| self.malformed(e))?),
            other => return Err(self.malformed(format!("expected an address of 4 or 6, found {other}"))),
        };
        let port = self.reader.get_u16().map_err(|e| self.malformed(e))?;
        Ok(SocketAddr::new(ip, port))
    }

    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.reader.is_empty() {
            Ok(())
        } else {
            Err(self.malformed(format!("{} bytes follow its end", self.reader.rest().len())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value of which a release writes format 2 and still reads format 1.
    const SECOND: Form = Form {
        kind: b'?',
        oldest: 1,
        format: 2,
        name: "a thing",
    };
    /// Its form in the release before that.
    const FIRST: Form = Form { format: 1, ..SECOND };

    fn bytes(form: Form) -> Vec<u8> {
        let mut out = Encoder::begin(form);
        out.number(7);
        out.seal()
    }

    fn read(bytes: &[u8], form: Form) -> Result<u64, String> {
        let read = || {
            let mut d = Decoder::open(bytes, form)?;
            let number = d.number()?;
            d.end().map(|()| number)
        };
        read().map_err(|error| error.to_string())
    }

    #[test]
    fn a_release_reads_the_formats_since_its_oldest_and_names_those_it_does_not_know() {
        let [zero, first, second] = [0, 1, 2].map(|format| bytes(Form { format, ..SECOND }));
        for format in [&first, &second] {
            assert_eq!(read(format, SECOND), Ok(7));
        }
        assert_eq!(read(&first, FIRST), Ok(7));
        let refused = |found, known| {
            Err(format!(
                "a thing cannot be read: it is in format {found}, which another release writes; this one reads formats {known}"
            ))
        };
        assert_eq!(read(&second, FIRST), refused(2, "1 to 1"));
        assert_eq!(read(&zero, SECOND), refused(0, "1 to 2"));
        assert_eq!(read(&first, Form { oldest: 2, ..SECOND }), refused(1, "2 to 2"));
    }
}
