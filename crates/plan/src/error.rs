//! What building or evaluating a plan can end with, other than a result.

use std::fmt;

/// A function that failed, with its signature.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionFailure {
    /// Its keyspace.
    pub keyspace: String,
    /// Its name.
    pub function: String,
    /// The types of its arguments.
    pub argument_types: Vec<String>,
    /// What it says.
    pub message: String,
}

/// Why a plan cannot be built, or cannot be executed with these values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlanError {
    /// The plan does not fit its table, or a value does not fit its place.
    Invalid(String),
    /// A function failed whose signature is not known.
    Function(String),
    /// A function failed.
    UserFunction(Box<FunctionFailure>),
    /// A bug of this program.
    Internal(String),
}

impl PlanError {
    /// A [`PlanError::Invalid`] from any text.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::Invalid(text.into())
    }

    /// The text that a user is shown.
    pub fn message(&self) -> &str {
        match self {
            Self::Invalid(m) | Self::Function(m) | Self::Internal(m) => m,
            Self::UserFunction(failure) => &failure.message,
        }
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for PlanError {}
