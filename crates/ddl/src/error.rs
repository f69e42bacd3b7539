//! Why a change of the schema is refused.

use std::fmt;

use schema::Table;

/// Why a definition is not applied. The texts are those that users of Cassandra know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DdlError {
    /// It does not fit the schema.
    Invalid(String),
    /// An option is refused.
    Config(String),
    /// A name means something else where it would be read back.
    Reserved(String),
    /// What is to be created exists; `table` is empty for a keyspace.
    AlreadyExists {
        /// Keyspace name.
        keyspace: String,
        /// Table name or nothing.
        table: String,
    },
    /// The keyspace may not be changed.
    Unauthorized(String),
}

impl DdlError {
    /// A [`DdlError::Invalid`] from any text.
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::Invalid(text.into())
    }

    /// The refusal of a column that its table does not have.
    pub(crate) fn undefined_column(name: &str, table: &Table) -> Self {
        Self::Invalid(format!(
            "Undefined column name {} in table {}",
            schema::quote_identifier(name),
            table.quoted_name()
        ))
    }
}

impl fmt::Display for DdlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(text) | Self::Config(text) | Self::Reserved(text) | Self::Unauthorized(text) => {
                f.write_str(text)
            }
            Self::AlreadyExists { keyspace, table } if table.is_empty() => {
                write!(f, "Cannot add existing keyspace \"{keyspace}\"")
            }
            Self::AlreadyExists { keyspace, table } => {
                write!(
                    f,
                    "Cannot add already existing table \"{table}\" to keyspace \"{keyspace}\""
                )
            }
        }
    }
}

impl std::error::Error for DdlError {}
