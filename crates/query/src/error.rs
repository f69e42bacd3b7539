//! What a statement can end with, other than a result.
//!
//! Each variant is an error that clients know by its code; texts are in the words of Cassandra's users. Servers turn
//! them into their protocol's bodies.

use std::fmt;

use coordinator::CoordinatorError;
use coordinator::service::ReplicaError;
use cql_compiler::CompileError;
use ddl::DdlError;
use plan::{FunctionFailure, PlanError};

/// Why a statement was not executed, or not wholly.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QueryError {
    /// The text is not CQL.
    Syntax(String),
    /// What the client sent is not what the server gave it.
    Protocol(String),
    /// The statement is CQL but cannot be meant.
    Invalid(String),
    /// The statement's options cannot be had here.
    Config(String),
    /// CREATE of what exists; `table` is empty for a keyspace.
    AlreadyExists {
        /// Keyspace name.
        keyspace: String,
        /// Table name or nothing.
        table: String,
    },
    /// No prepared statement has this id.
    Unprepared(Vec<u8>),
    /// The replicas did not do what the consistency level wants.
    Replicas(CoordinatorError),
    /// The role may not do this.
    Unauthorized(String),
    /// The shard refuses work that it has no room for; nothing was written.
    Overloaded(String),
    /// TRUNCATE failed.
    Truncate(String),
    /// The write failed on the replica; whether it may come back is in the text.
    WriteFailure(String),
    /// The read failed on the replica.
    ReadFailure(String),
    /// The read met more tombstones than it may.
    TooManyTombstones(String),
    /// A function raised.
    Function(String),
    /// A user-defined function failed.
    UserFunction(Box<FunctionFailure>),
    /// A bug or a broken part of this node.
    Server(String),
}

impl QueryError {
    /// An [`QueryError::Invalid`] from any text.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::Invalid(text.into())
    }

    /// The text that the client is shown.
    pub fn message(&self) -> String {
        match self {
            Self::Syntax(m)
            | Self::Protocol(m)
            | Self::Invalid(m)
            | Self::Config(m)
            | Self::Unauthorized(m)
            | Self::Overloaded(m)
            | Self::Truncate(m)
            | Self::WriteFailure(m)
            | Self::ReadFailure(m)
            | Self::TooManyTombstones(m)
            | Self::Function(m)
            | Self::Server(m) => m.clone(),
            Self::UserFunction(failure) => failure.message.clone(),
            Self::Replicas(CoordinatorError::Unavailable(unavailable)) => {
                format!("Cannot achieve consistency level {}", unavailable.consistency)
            }
            Self::Replicas(error) => error.to_string(),
            Self::AlreadyExists { keyspace, table } if table.is_empty() => {
                format!("Cannot add existing keyspace \"{keyspace}\"")
            }
            Self::AlreadyExists { keyspace, table } => {
                format!("Cannot add already existing table \"{table}\" to keyspace \"{keyspace}\"")
            }
            Self::Unprepared(id) => {
                let hex: String = id.iter().map(|b| format!("{b:02x}")).collect();
                format!(
                    "Prepared query with ID {hex} not found (either the query was not prepared on this host (maybe the \
                     host has been restarted?) or you have prepared too many queries and it has been evicted from the \
                     internal cache)"
                )
            }
        }
    }
}

impl From<memory::Overloaded> for QueryError {
    fn from(error: memory::Overloaded) -> Self {
        Self::Overloaded(error.0)
    }
}

impl QueryError {
    /// What a shard of this node made of a mutation.
    pub(crate) fn of_replica(error: ReplicaError) -> Self {
        match error {
            ReplicaError::UnknownTable(_) => Self::invalid("unconfigured table: it was dropped meanwhile"),
            ReplicaError::Overloaded(_) => Self::Overloaded(format!("{error}.")),
            ReplicaError::TooLarge(reason) => Self::invalid(reason),
            ReplicaError::Partial(_) | ReplicaError::Stale(_) | ReplicaError::Log(_) | ReplicaError::DiskFull(_) => {
                Self::WriteFailure(format!("{error}."))
            }
            ReplicaError::NotHere(_)
            | ReplicaError::Malformed(_)
            | ReplicaError::Read(_)
            | ReplicaError::NotIndexed(_)
            | ReplicaError::CannotLead(_) => Self::Server(error.to_string()),
        }
    }

    /// What became of a request that went to replicas.
    pub fn of_replicas(error: CoordinatorError) -> Self {
        match error {
            CoordinatorError::Overloaded(reason) => Self::Overloaded(reason),
            CoordinatorError::Rejected(reason) => Self::Invalid(reason),
            CoordinatorError::Internal(reason) => Self::Server(reason),
            other => Self::Replicas(other),
        }
    }
}

impl From<PlanError> for QueryError {
    #[cold]
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Invalid(m) => Self::Invalid(m),
            PlanError::Function(m) => Self::Function(m),
            PlanError::UserFunction(failure) => Self::UserFunction(failure),
            PlanError::Internal(m) => Self::Server(m),
        }
    }
}

impl From<DdlError> for QueryError {
    fn from(error: DdlError) -> Self {
        CompileError::from(error).into()
    }
}

impl From<CompileError> for QueryError {
    fn from(error: CompileError) -> Self {
        match error {
            CompileError::Syntax(m) => Self::Syntax(m),
            CompileError::Invalid(m) => Self::Invalid(m),
            CompileError::Config(m) => Self::Config(m),
            CompileError::AlreadyExists { keyspace, table } => Self::AlreadyExists { keyspace, table },
            CompileError::Unauthorized(m) => Self::Unauthorized(m),
            CompileError::Function(m) => Self::Function(m),
            CompileError::UserFunction(failure) => Self::UserFunction(failure),
            CompileError::Internal(m) => Self::Server(m),
        }
    }
}

impl From<CoordinatorError> for QueryError {
    fn from(error: CoordinatorError) -> Self {
        Self::of_replicas(error)
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

impl std::error::Error for QueryError {}
