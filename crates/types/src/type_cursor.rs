//! Reading the name of a type, in CQL or as a Java class, token by token; and what is wrong with one that is none.

use std::fmt;

use crate::cql_type::{CqlType, DIMENSION_MAX};

/// How deep types may be inside each other. Each level costs stack when a type is read, compared or dropped.
pub const NESTING_MAX: usize = 64;

/// A text that names no type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeNameError {
    /// The whole text.
    pub text: String,
    /// Byte offset in it where reading stopped.
    pub at: usize,
    /// What is wrong there.
    pub problem: TypeNameProblem,
}

/// What is wrong with the name of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeNameProblem {
    /// Something else is expected here.
    Expected(&'static str),
    /// Neither a native type nor a user-defined one that the resolver knows.
    Unknown(String),
    /// `frozen<>` around a type that is one cell by nature.
    NotFreezable(CqlType),
    /// More than [`NESTING_MAX`] levels.
    TooDeep,
    /// A vector's dimension outside 1 to 65,535.
    Dimension(String),
}

impl fmt::Display for TypeNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            TypeNameProblem::Expected(what) => write!(f, "expected {what}")?,
            TypeNameProblem::Unknown(name) => write!(f, "Unknown type {name}")?,
            TypeNameProblem::NotFreezable(inner) => {
                write!(
                    f,
                    "frozen<> is only allowed on collections, tuples, and user-defined types (got {inner})"
                )?;
            }
            TypeNameProblem::TooDeep => write!(f, "types are nested more than {NESTING_MAX} deep")?,
            TypeNameProblem::Dimension(dimension) => {
                write!(f, "a vector has 1 to {DIMENSION_MAX} dimensions, not {dimension}")?;
            }
        }
        write!(f, " at offset {} of type name '{}'", self.at, self.text)
    }
}

impl std::error::Error for TypeNameError {}

/// A place in a name.
pub(crate) struct TypeCursor<'a> {
    pub(crate) text: &'a str,
    pub(crate) at: usize,
}

impl<'a> TypeCursor<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// What is not read yet.
    pub(crate) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(crate) fn skip_spaces(&mut self) {
        self.at += self.rest().bytes().take_while(u8::is_ascii_whitespace).count();
    }

    /// Whether `token` comes next, after any spaces.
    pub(crate) fn peeks(&mut self, token: &str) -> bool {
        self.skip_spaces();
        self.rest().starts_with(token)
    }

    /// Reads the token if it comes next.
    pub(crate) fn take(&mut self, token: &str) -> bool {
        let found = self.peeks(token);
        if found {
            self.at += token.len();
        }
        found
    }

    pub(crate) fn expect(&mut self, token: &str, what: &'static str) -> Result<(), TypeNameError> {
        if self.take(token) {
            Ok(())
        } else {
            Err(self.expected(what))
        }
    }

    /// Fails when anything but spaces is left.
    pub(crate) fn expect_end(&mut self, what: &'static str) -> Result<(), TypeNameError> {
        self.skip_spaces();
        if self.rest().is_empty() {
            Ok(())
        } else {
            Err(self.expected(what))
        }
    }

    pub(crate) fn expected(&self, what: &'static str) -> TypeNameError {
        self.error(TypeNameProblem::Expected(what))
    }

    pub(crate) fn error(&self, problem: TypeNameProblem) -> TypeNameError {
        TypeNameError {
            text: self.text.to_owned(),
            at: self.at,
            problem,
        }
    }
}
