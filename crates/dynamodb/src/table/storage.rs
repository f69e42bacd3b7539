//! The stored form of a definition, and of the record of a backup: a byte with the version, then JSON with short names.
//!
//! Members that a definition does not have are left out, and a later version may add members: a node that reads a
//! definition with a member it does not know refuses it, because it would lose that member with its next change.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::TableDefinition;

/// The version that is written.
pub const VERSION: u8 = 1;

/// Why stored bytes are not a definition or a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StorageError {
    /// There are no bytes.
    Empty,
    /// A version that this node does not know.
    Version(u8),
    /// The rest is not what is written for it.
    Malformed(String),
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it is empty"),
            Self::Version(version) => write!(f, "it has the unknown version {version}"),
            Self::Malformed(text) => write!(f, "it is malformed: {text}"),
        }
    }
}

impl std::error::Error for StorageError {}

impl TableDefinition {
    /// The stored form.
    ///
    /// # Errors
    /// None that a definition can cause; the JSON library reports failures of its writer.
    pub fn encode(&self) -> Result<Vec<u8>, StorageError> {
        encode(VERSION, self)
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`StorageError`] for other bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, StorageError> {
        decode(VERSION, bytes)
    }
}

/// The stored form of a definition or a record.
pub(crate) fn encode(version: u8, stored: &impl Serialize) -> Result<Vec<u8>, StorageError> {
    let mut bytes = vec![version];
    match serde_json::to_writer(&mut bytes, stored) {
        Ok(()) => Ok(bytes),
        Err(error) => Err(StorageError::Malformed(error.to_string())),
    }
}

/// Reads the stored form of a definition or a record.
pub(crate) fn decode<T: DeserializeOwned>(version: u8, bytes: &[u8]) -> Result<T, StorageError> {
    match bytes.split_first() {
        None => Err(StorageError::Empty),
        Some((known, json)) if *known == version => {
            serde_json::from_slice(json).map_err(|error| StorageError::Malformed(error.to_string()))
        }
        Some((unknown, _)) => Err(StorageError::Version(*unknown)),
    }
}
