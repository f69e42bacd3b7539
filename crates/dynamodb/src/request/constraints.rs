//! Constraints on single members of a request, which the service checks first and reports together:
//! `2 validation errors detected: Value '…' at 'tableName' failed to satisfy constraint: …; …`.

use std::fmt::{Display, Write};

use super::json::{List, Text};
use crate::error::Error;

/// Errors of constraints that the service lists in one answer.
const LISTED_MAX: usize = 10;
/// Bytes of a value that an error repeats: an answer must not be as large as a body.
const REPEATED_BYTES_MAX: usize = 10_000;

/// An enumeration of the API: its values are words.
pub(crate) trait Words: Sized {
    /// The words in the order in which the service lists them.
    const LISTED: &'static str;
    /// The value of a word.
    fn from_word(word: &str) -> Option<Self>;
}

/// Declares an enumeration of the API. The text before the values lists the words as the service's error does, whose
/// order is that of a hash table.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident $listed:literal {
        $($(#[$value_meta:meta])* $value:ident = $word:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$value_meta])* #[serde(rename = $word)] $value,)*
        }

        impl $name {
            /// The word of the API.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)*
                }
            }
        }

        impl $crate::request::constraints::Words for $name {
            const LISTED: &'static str = $listed;
            fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$value),)*
                    _ => None,
                }
            }
        }
    };
}
pub(crate) use words;

/// The violated constraints of a request.
#[derive(Default)]
pub(crate) struct Constraints {
    text: String,
    count: usize,
}

impl Constraints {
    /// Adds a whole text.
    pub(crate) fn add(&mut self, text: impl Display) {
        if self.count == LISTED_MAX {
            return;
        }
        let separator = if self.count == 0 { "" } else { "; " };
        self.count += 1;
        // Writing to a string does not fail.
        let _ = write!(self.text, "{separator}{text}");
    }

    /// Adds that a value violates a constraint.
    pub(crate) fn value(&mut self, value: impl Display, at: impl Display, constraint: impl Display) {
        if self.count == LISTED_MAX {
            return;
        }
        let mut value = value.to_string();
        if value.len() > REPEATED_BYTES_MAX {
            value.truncate(value.floor_char_boundary(REPEATED_BYTES_MAX));
            value.push_str("...");
        }
        self.add(format_args!(
            "Value '{value}' at '{at}' failed to satisfy constraint: {constraint}"
        ));
    }

    /// Adds that a required member is absent.
    pub(crate) fn null(&mut self, at: impl Display) {
        self.add(format_args!(
            "Value null at '{at}' failed to satisfy constraint: Member must not be null"
        ));
    }

    /// Checks that a member is there.
    pub(crate) fn required<T>(&mut self, member: Option<&T>, at: impl Display) {
        if member.is_none() {
            self.null(at);
        }
    }

    /// Checks a word, and gives its value.
    pub(crate) fn word<W: Words>(&mut self, word: Option<&Text>, at: impl Display) -> Option<W> {
        let Text(word) = word?;
        let value = W::from_word(word);
        if value.is_none() {
            self.value(
                word,
                at,
                format_args!("Member must satisfy enum value set: {}", W::LISTED),
            );
        }
        value
    }

    /// Checks the length of a text in characters.
    pub(crate) fn length(&mut self, text: &str, at: impl Display, least: usize, most: usize) {
        let characters = text.chars().count();
        if characters < least {
            self.value(
                text,
                &at,
                format_args!("Member must have length greater than or equal to {least}"),
            );
        }
        if characters > most {
            self.value(
                text,
                &at,
                format_args!("Member must have length less than or equal to {most}"),
            );
        }
    }

    /// Checks the characters of a name.
    pub(crate) fn pattern(&mut self, name: &str, at: impl Display) {
        if !crate::arn::is_name(name) {
            self.value(
                name,
                at,
                "Member must satisfy regular expression pattern: [a-zA-Z0-9_.-]+",
            );
        }
    }

    /// Checks that a number is not below a bound.
    pub(crate) fn at_least(&mut self, value: i64, at: impl Display, least: i64) {
        if value < least {
            self.value(
                value,
                at,
                format_args!("Member must have value greater than or equal to {least}"),
            );
        }
    }

    /// Checks that a number is not above a bound.
    pub(crate) fn at_most(&mut self, value: i64, at: impl Display, most: i64) {
        if value > most {
            self.value(
                value,
                at,
                format_args!("Member must have value less than or equal to {most}"),
            );
        }
    }

    /// Checks that a list has an element.
    pub(crate) fn not_empty<T>(&mut self, list: Option<&List<T>>, at: impl Display) {
        if list.is_some_and(|list| list.0.is_empty()) {
            self.value("[]", at, "Member must have length greater than or equal to 1");
        }
    }

    /// Whether nothing is violated yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Ends the check.
    ///
    /// # Errors
    /// A ValidationException that lists the violated constraints, ten at most.
    pub(crate) fn finish(self) -> Result<(), Error> {
        match self.count {
            0 => Ok(()),
            1 => Err(Error::validation(self.text).prefixed(DETECTED)),
            count => Err(Error::validation(self.text).prefixed(&format!("{count} validation errors detected: "))),
        }
    }
}

/// The text before one violated constraint, and before errors of PutItem, UpdateItem and DeleteItem since 2026.
pub(crate) const DETECTED: &str = "1 validation error detected: ";
