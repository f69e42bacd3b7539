//! Why a value is refused.

use std::fmt;

use crate::cql_type::CqlType;
use crate::literal::LiteralKind;

/// A value that a type does not take. Its words are those that Cassandra's users know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeError {
    /// Serialised bytes that are no value of the type.
    Malformed(String),
    /// A literal of a kind that the type does not take.
    WrongLiteral {
        /// The kind.
        kind: LiteralKind,
        /// The literal as written in the statement.
        text: String,
        /// The type of its receiver.
        of: CqlType,
    },
    /// A literal of the right kind whose text does not read as a value of the type.
    Unreadable(String),
}

impl TypeError {
    /// The message for a client, when the value was meant for a column or a named place in one.
    #[must_use]
    pub fn message_for(&self, receiver: &str) -> String {
        match self {
            Self::WrongLiteral { kind, text, of } => {
                format!("Invalid {kind} constant ({text}) for \"{receiver}\" of type {of}")
            }
            Self::Malformed(_) | Self::Unreadable(_) => self.to_string(),
        }
    }
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(message) | Self::Unreadable(message) => f.write_str(message),
            Self::WrongLiteral { kind, text, of } => write!(f, "Invalid {kind} constant ({text}) for type {of}"),
        }
    }
}

impl std::error::Error for TypeError {}
