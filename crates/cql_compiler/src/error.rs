//! What compiling a statement can end with, other than a plan.

use std::fmt;

use ddl::DdlError;
use plan::{FunctionFailure, PlanError};
use schema::Table;

/// Why a statement is not compiled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CompileError {
    /// The text is not CQL.
    Syntax(String),
    /// The statement is CQL but does not fit the schema.
    Invalid(String),
    /// An option of the statement is refused.
    Config(String),
    /// CREATE of what exists; `table` is empty for a keyspace.
    AlreadyExists {
        /// Keyspace name.
        keyspace: String,
        /// Table name or nothing.
        table: String,
    },
    /// The keyspace may not be changed.
    Unauthorized(String),
    /// A function failed while its constant arguments were evaluated.
    Function(String),
    /// A user-defined function failed while its constant arguments were evaluated.
    UserFunction(Box<FunctionFailure>),
    /// A bug of this program.
    Internal(String),
}

impl CompileError {
    /// A [`CompileError::Invalid`] from any text.
    pub fn invalid(text: impl Into<String>) -> Self {
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

    /// The text that a user is shown.
    pub fn message(&self) -> String {
        match self {
            Self::Syntax(m)
            | Self::Invalid(m)
            | Self::Config(m)
            | Self::Unauthorized(m)
            | Self::Function(m)
            | Self::Internal(m) => m.clone(),
            Self::UserFunction(failure) => failure.message.clone(),
            Self::AlreadyExists { keyspace, table } if table.is_empty() => {
                format!("Cannot add existing keyspace \"{keyspace}\"")
            }
            Self::AlreadyExists { keyspace, table } => {
                format!("Cannot add already existing table \"{table}\" to keyspace \"{keyspace}\"")
            }
        }
    }
}

impl From<DdlError> for CompileError {
    fn from(error: DdlError) -> Self {
        match error {
            DdlError::Invalid(m) => Self::Invalid(m),
            DdlError::Config(m) => Self::Config(m),
            DdlError::Reserved(m) => Self::Syntax(m),
            DdlError::AlreadyExists { keyspace, table } => Self::AlreadyExists { keyspace, table },
            DdlError::Unauthorized(m) => Self::Unauthorized(m),
        }
    }
}

impl From<PlanError> for CompileError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Invalid(m) => Self::Invalid(m),
            PlanError::Function(m) => Self::Function(m),
            PlanError::UserFunction(failure) => Self::UserFunction(failure),
            PlanError::Internal(m) => Self::Internal(m),
        }
    }
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

impl std::error::Error for CompileError {}
