//! Why bytes are not the record that they should be.

use std::fmt;

/// A record that this node does not read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordError {
    /// The record, by the names of the objects around it, and the field.
    pub place: String,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong with a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Problem {
    /// It holds a field that this node's release does not know. The bytes are whole.
    Unknown {
        /// The field's number.
        number: u32,
        /// What the number is kept for, where this release knows that.
        reserved_for: Option<&'static str>,
    },
    /// It is not what any release writes. The sentence says why.
    Damaged(String),
}

impl RecordError {
    /// Of a record, or of a field of it, that is not what any release writes.
    #[must_use]
    pub fn damaged(place: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            problem: Problem::Damaged(why.into()),
        }
    }

    /// Adds the outer record to the place of an error in a nested record.
    #[must_use]
    pub fn within(self, outer: &str) -> Self {
        Self {
            place: format!("{outer}, {}", self.place),
            ..self
        }
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = &self.place;
        match &self.problem {
            Problem::Unknown {
                number,
                reserved_for: None,
            } => write!(
                f,
                "{place} has field {number}, which this release does not know; a later release wrote it"
            ),
            Problem::Unknown {
                number,
                reserved_for: Some(what),
            } => write!(
                f,
                "{place} has field {number} ({what}), which this release does not support; a later release wrote it"
            ),
            Problem::Damaged(why) => write!(f, "{place} is damaged: {why}"),
        }
    }
}

impl std::error::Error for RecordError {}
