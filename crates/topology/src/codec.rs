//! The binary form of tablet maps and their changes: data rather than a record, because a map has a line for each of up
//! to 131,072 tablets.
//!
//! ```text
//! kind: u8 · format: u8 · body · CRC-32 of all before: u32
//! ```
//!
//! In a body numbers are vints, and a list is its count and its elements. Whatever the bytes are, decoding ends with a
//! value that holds the invariants of its type, or with an error; a count is never trusted for more memory than the
//! bytes that follow could fill.

use std::fmt;

use stdx::bytes::Reader;

/// Names and other short texts, in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 1024;

/// Bytes that are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end inside a field.
    Truncated {
        /// The field.
        field: &'static str,
        /// Its offset.
        at: usize,
    },
    /// A field that holds what it may not.
    Invalid {
        /// The field.
        field: &'static str,
        /// Its offset, or where it ends.
        at: usize,
        /// What it may hold.
        expected: &'static str,
    },
    /// Another kind of value than was asked for.
    Kind {
        /// What was to be read.
        wanted: &'static str,
        /// The kind byte.
        found: u8,
    },
    /// A format that a later release writes.
    Format {
        /// What was to be read.
        what: &'static str,
        /// The format byte.
        found: u8,
        /// The latest format that is understood.
        known: u8,
    },
    /// The bytes are not those that were written.
    Checksum {
        /// What was to be read.
        what: &'static str,
    },
    /// More bytes than the value has.
    Trailing {
        /// Where the value ends.
        at: usize,
    },
    /// Well-formed, but no state that a cluster can be in.
    Inconsistent {
        /// What does not hold.
        what: String,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { field, at } => write!(f, "bytes end inside {field} at offset {at}"),
            Self::Invalid { field, at, expected } => {
                write!(f, "{field} at offset {at} is invalid: expected {expected}")
            }
            Self::Kind { wanted, found } => write!(f, "expected the bytes of a {wanted}, found kind {found}"),
            Self::Format { what, found, known } => write!(
                f,
                "{what} is in format {found}, which a later release writes; this one reads up to {known}"
            ),
            Self::Checksum { what } => write!(f, "{what} is damaged: its checksum does not match"),
            Self::Trailing { at } => write!(f, "bytes follow the end of the value at offset {at}"),
            Self::Inconsistent { what } => write!(f, "the bytes describe what cannot be: {what}"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// The header before a body.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    /// Distinguishes the values.
    pub(crate) kind: u8,
    /// The format this release writes, and the latest it reads.
    pub(crate) format: u8,
    /// For errors.
    pub(crate) name: &'static str,
}

pub(crate) fn begin(form: Form) -> Vec<u8> {
    vec![form.kind, form.format]
}

pub(crate) fn seal(mut out: Vec<u8>) -> Vec<u8> {
    let checksum = crc32fast::hash(&out);
    out.extend_from_slice(&checksum.to_be_bytes());
    out
}

/// Reads a sealed value field by field.
pub(crate) struct Decoder<'a> {
    reader: Reader<'a>,
}

impl<'a> Decoder<'a> {
    /// Checks kind, format and checksum.
    pub(crate) fn open(bytes: &'a [u8], form: Form) -> Result<Self, DecodeError> {
        let truncated = DecodeError::Truncated {
            field: form.name,
            at: bytes.len(),
        };
        let Some((sealed, checksum)) = bytes.split_last_chunk::<4>() else {
            return Err(truncated);
        };
        let &[kind, format, ..] = sealed else {
            return Err(truncated);
        };
        if kind != form.kind {
            return Err(DecodeError::Kind {
                wanted: form.name,
                found: kind,
            });
        }
        if crc32fast::hash(sealed) != u32::from_be_bytes(*checksum) {
            return Err(DecodeError::Checksum { what: form.name });
        }
        if format == 0 || format > form.format {
            return Err(DecodeError::Format {
                what: form.name,
                found: format,
                known: form.format,
            });
        }
        let mut reader = Reader::new(sealed);
        reader.get_u16().expect("kind and format are there");
        Ok(Self { reader })
    }

    pub(crate) fn end(&self) -> Result<(), DecodeError> {
        if self.reader.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::Trailing { at: self.reader.at() })
        }
    }

    pub(crate) fn invalid(&self, field: &'static str, expected: &'static str) -> DecodeError {
        DecodeError::Invalid {
            field,
            at: self.reader.at(),
            expected,
        }
    }

    pub(crate) fn byte(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        self.reader
            .get_u8()
            .map_err(|e| DecodeError::Truncated { field, at: e.at })
    }

    pub(crate) fn number(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        self.reader
            .get_vint()
            .map_err(|e| DecodeError::Truncated { field, at: e.at })
    }

    pub(crate) fn small(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        u16::try_from(self.number(field)?).map_err(|_| self.invalid(field, "at most 65535"))
    }

    /// A count of elements that take at least `element_bytes_min` bytes each: more than the rest could hold are
    /// refused.
    pub(crate) fn count(&mut self, field: &'static str, element_bytes_min: usize) -> Result<usize, DecodeError> {
        let count = self.number(field)?;
        let fits = (self.reader.rest().len() / element_bytes_min) as u64;
        if count > fits {
            return Err(self.invalid(field, "no more elements than bytes follow"));
        }
        Ok(usize::try_from(count).expect("no more than the bytes in memory"))
    }
}
