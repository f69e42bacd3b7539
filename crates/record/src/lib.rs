//! Durable records with numbered fields, in the encoding of Protocol Buffers.
//!
//! `prost` encodes and decodes a record. It drops a field that it does not know, so two releases could read one record
//! differently. Therefore each record also has a [`Message`]: a table of its fields by number. [`decode`] checks the
//! bytes against that table first, and refuses
//!
//! - a field that the table does not have, and a field whose *feature* this node does not know ([`Known`]): both are
//!   *unknown*;
//! - bytes that are damaged: a wrong wire type, a number out of range, text that is not UTF-8, a length beyond the end;
//! - an encoding that this release would not have written: fields out of order or repeated, a default written out.
//!
//! Invariants:
//! - One value has one encoding. So a field of the table that the struct lacks is found too: the value does not encode
//!   to the same bytes.
//! - A field number is never used for anything else. A field that goes away becomes a reserved number.
//! - An error names the record, by the object's name where it has one, and the field.
//! - No bytes make a reader panic, recurse deeper than [`DEPTH_MAX`], or allocate more than a small multiple of their
//!   length.
//!
//! How to add a field: docs/dev/schema.md.

mod check;
mod error;
pub mod text;

pub use error::{Problem, RecordError};

use check::Walk;
use std::collections::BTreeSet;

/// How deep records may be nested. `prost` gives up at 100.
pub const DEPTH_MAX: usize = 90;

/// What a record of one kind may hold.
#[derive(Debug)]
pub struct Message {
    /// What errors call it.
    pub name: &'static str,
    /// The text fields that name an object of this kind to a person, for errors.
    pub title: &'static [u32],
    /// Its fields, by ascending number.
    pub fields: &'static [Field],
    /// Numbers that must not be given to a field, with what they mean: of fields that are gone, or that are kept for
    /// something that is planned.
    pub reserved: &'static [(u32, &'static str)],
}

/// A field of a record.
#[derive(Debug)]
pub struct Field {
    /// Its number.
    pub number: u32,
    /// What errors call it.
    pub name: &'static str,
    /// What it holds.
    pub of: Of,
    /// Whether it may occur more than once.
    pub is_repeated: bool,
    /// The cluster feature that it came with; None for a field of the base format, which every release knows.
    pub feature: Option<&'static str>,
}

/// What a field holds.
#[derive(Clone, Copy, Debug)]
pub enum Of {
    /// A truth value.
    Bool,
    /// A number of 32 bits without sign.
    U32,
    /// A number of 64 bits without sign.
    U64,
    /// A number of 32 bits with sign (`sint32`).
    S32,
    /// A number of 64 bits with sign (`sint64`).
    S64,
    /// A number with fraction, in eight bytes.
    Double,
    /// UTF-8.
    Text,
    /// Any bytes.
    Bytes,
    /// Another record.
    Record(&'static Message),
}

impl Field {
    /// A field of the base format that occurs once at most.
    #[must_use]
    pub const fn new(number: u32, name: &'static str, of: Of) -> Self {
        Self {
            number,
            name,
            of,
            is_repeated: false,
            feature: None,
        }
    }

    /// A field that occurs once for each element of a list or map.
    #[must_use]
    pub const fn list(number: u32, name: &'static str, of: Of) -> Self {
        Self {
            is_repeated: true,
            ..Self::new(number, name, of)
        }
    }

    /// Adds the feature that the field came with.
    #[must_use]
    pub const fn since(self, feature: &'static str) -> Self {
        Self {
            feature: Some(feature),
            ..self
        }
    }
}

impl Message {
    /// A record with these fields. Errors call it by its kind alone.
    #[must_use]
    pub const fn new(name: &'static str, fields: &'static [Field]) -> Self {
        Self {
            name,
            title: &[],
            fields,
            reserved: &[],
        }
    }

    /// Adds the text fields that name the record in errors.
    #[must_use]
    pub const fn titled(self, title: &'static [u32]) -> Self {
        Self { title, ..self }
    }

    /// Adds numbers that must not be given to a field.
    #[must_use]
    pub const fn reserving(self, reserved: &'static [(u32, &'static str)]) -> Self {
        Self { reserved, ..self }
    }

    /// The field of a number.
    #[must_use]
    pub fn field(&self, number: u32) -> Option<&Field> {
        let place = self.fields.binary_search_by_key(&number, |field| field.number).ok()?;
        Some(&self.fields[place])
    }
}

/// An entry of a map from text to text: a record stores the map as a list of entries.
pub static OPTION: Message = Message::new(
    "option",
    &[Field::new(1, "key", Of::Text), Field::new(2, "value", Of::Text)],
)
.titled(&[1]);

/// The durable form of a value.
pub trait Record: prost::Message + Default {
    /// The table of its fields.
    const MESSAGE: &'static Message;
}

/// The features that this node's release knows. A field that came with another one is unknown to it.
///
/// A node that holds a feature back (`--hold-back-feature`) thereby reads records as a release from before the feature
/// does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known(Option<BTreeSet<String>>);

impl Known {
    /// Everything that this build knows: for tools that only show records, and for tests.
    #[must_use]
    pub const fn everything() -> Self {
        Self(None)
    }

    /// These features.
    pub fn features<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self(Some(names.into_iter().map(Into::into).collect()))
    }

    /// Whether a field may be read.
    #[must_use]
    pub fn has(&self, feature: Option<&str>) -> bool {
        match (&self.0, feature) {
            (None, _) | (_, None) => true,
            (Some(known), Some(feature)) => known.contains(feature),
        }
    }
}

/// A field of a record that not every release knows.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Need {
    /// The feature that a node must have to read the field.
    pub feature: &'static str,
    /// The record and the field, for people.
    pub place: String,
}

/// The bytes of a record.
#[must_use]
pub fn encode<R: Record>(record: &R) -> Vec<u8> {
    record.encode_to_vec()
}

/// The record of these bytes.
///
/// # Errors
/// When they are damaged, or hold a field that this node does not know.
pub fn decode<R: Record>(bytes: &[u8], known: &Known) -> Result<R, RecordError> {
    Walk::new(known).check(bytes, R::MESSAGE)?;
    let record = R::decode(bytes).map_err(|e| RecordError::damaged(R::MESSAGE.name, e.to_string()))?;
    let again = record.encode_to_vec();
    if again != bytes {
        let same = again.iter().zip(bytes).take_while(|(a, b)| a == b).count();
        let place = check::place_of(bytes, same, R::MESSAGE);
        return Err(RecordError::damaged(
            place,
            "the encoding is not the one that this release writes".to_owned(),
        ));
    }
    Ok(record)
}

/// The features that a node must have to read this record: each with the first field that needs it.
#[must_use]
pub fn needs<R: Record>(record: &R) -> Vec<Need> {
    check::needs(&record.encode_to_vec(), R::MESSAGE)
}
