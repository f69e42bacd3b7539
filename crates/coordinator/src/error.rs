//! How requests end that replicas do not answer as the consistency level wants, and why one replica did not do its
//! part.

use std::fmt;
use std::net::IpAddr;

use rpc::{RemoteError, RemoteErrorKind, RpcError};
use stdx::planted::{self, Bug};
use topology::{Consistency, Unavailable};

use crate::limits::{Admission, Operation};
use crate::service::ReplicaError;

/// The kind of a write, as drivers receive it when the write times out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteKind {
    /// One partition.
    Simple,
    /// A logged batch.
    Batch,
    /// An unlogged batch of several partitions.
    UnloggedBatch,
    /// A counter's change.
    Counter,
    /// The note of a logged batch.
    BatchLog,
    /// A conditional statement.
    Cas,
}

/// Answers that came, and those that were needed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tally {
    /// The level asked for.
    pub consistency: Consistency,
    /// Answers that came.
    pub received: u16,
    /// Answers that were needed.
    pub block_for: u16,
}

/// Why a request has no result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CoordinatorError {
    /// Too few replicas live; nothing was sent.
    Unavailable(Unavailable),
    /// Too few replicas acknowledged the write in time. It may have happened.
    WriteTimeout {
        /// How many did.
        tally: Tally,
        /// What was written.
        kind: WriteKind,
        /// Which replicas did not answer.
        missing: String,
    },
    /// Replicas refused the write. It may have happened on others.
    WriteFailure {
        /// How many took it.
        tally: Tally,
        /// What was written.
        kind: WriteKind,
        /// The nodes that refused, and the code of why.
        failures: Vec<(IpAddr, u16)>,
        /// Why, in words.
        reason: String,
    },
    /// Too few replicas answered the read in time.
    ReadTimeout {
        /// How many did.
        tally: Tally,
        /// Whether one of them sent data.
        data_present: bool,
        /// Which replicas did not answer.
        missing: String,
    },
    /// Replicas could not read.
    ReadFailure {
        /// How many could.
        tally: Tally,
        /// Whether one of them sent data.
        data_present: bool,
        /// The nodes that could not, and the code of why.
        failures: Vec<(IpAddr, u16)>,
        /// Why, in words.
        reason: String,
    },
    /// A conditional statement was not decided in time, and never will be: nothing was proposed.
    CasTimeout {
        /// Of the phase under way.
        tally: Tally,
        /// How often it met other statements.
        contentions: u16,
    },
    /// A conditional statement was proposed, and it is unknown whether it was chosen.
    CasUnknown {
        /// Of the phase under way.
        tally: Tally,
        /// How often it met other statements.
        contentions: u16,
        /// What went wrong.
        reason: String,
    },
    /// The table's limit for one partition is reached; nothing was done.
    RateLimited {
        /// What was asked for.
        admission: Admission,
        /// Whether this node counts for the partition.
        by_coordinator: bool,
    },
    /// The disks of so many replicas are full that the level cannot be met; nothing was written.
    DiskFull {
        /// None did it.
        tally: Tally,
        /// What was to be written.
        kind: WriteKind,
        /// The nodes whose disks are full, and the code of why.
        failures: Vec<(IpAddr, u16)>,
        /// The replicas whose disks are full, as names.
        full: String,
    },
    /// Replicas have no room; nothing was written.
    Overloaded(String),
    /// No replica will ever take this; nothing was written.
    Rejected(String),
    /// A part of this node is missing or broken.
    Internal(String),
}

impl From<Unavailable> for CoordinatorError {
    fn from(unavailable: Unavailable) -> Self {
        Self::Unavailable(unavailable)
    }
}

impl fmt::Display for CoordinatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(unavailable) => unavailable.fmt(f),
            Self::WriteTimeout { tally, missing, .. } => write!(
                f,
                "Operation timed out - received only {} responses of {} at {}; no acknowledgement from {missing}. The write may \
                 have happened",
                tally.received, tally.block_for, tally.consistency
            ),
            Self::ReadTimeout { tally, missing, .. } => write!(
                f,
                "Operation timed out - received only {} responses of {} at {}; no answer from {missing}",
                tally.received, tally.block_for, tally.consistency
            ),
            Self::WriteFailure { tally, reason, .. } => write!(
                f,
                "Operation failed - received {} responses of {} at {}: {reason}. The write may have happened on other replicas",
                tally.received, tally.block_for, tally.consistency
            ),
            Self::ReadFailure { tally, reason, .. } => write!(
                f,
                "Operation failed - received {} responses of {} at {}: {reason}",
                tally.received, tally.block_for, tally.consistency
            ),
            Self::CasTimeout { tally, contentions } => write!(
                f,
                "CAS operation timed out: received only {} responses of {} at {} after {contentions} contentions. The statement \
                 has not been and will not be applied",
                tally.received, tally.block_for, tally.consistency
            ),
            Self::CasUnknown {
                tally,
                contentions,
                reason,
            } => write!(
                f,
                "CAS operation result is unknown: received {} responses of {} at {} after {contentions} contentions: {reason}. \
                 The statement may have been applied, or may be by the next one on its partition",
                tally.received, tally.block_for, tally.consistency
            ),
            Self::RateLimited { admission, .. } => {
                let what = match admission.operation {
                    Operation::Read => "reads",
                    Operation::Write => "writes",
                };
                write!(
                    f,
                    "Per-partition rate limit reached: the table takes {} {what} of one partition in a second. Nothing was done",
                    admission.limit
                )
            }
            Self::DiskFull { tally, full, .. } => write!(
                f,
                "Write request failed because disk usage exceeds the failure threshold on {full}, and {} needs {} replicas with room. \
                 Nothing was written. Deletes and TRUNCATE are taken",
                tally.consistency, tally.block_for
            ),
            Self::Overloaded(reason) | Self::Rejected(reason) | Self::Internal(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for CoordinatorError {}

/// Why one replica did not do its part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TargetError {
    /// Nothing was heard of it in time; it may have done it.
    Silent,
    /// It takes no requests of the version of the cluster that this one was routed by, and did nothing.
    Stale(String),
    /// It has no room, and did nothing.
    Overloaded(String),
    /// It will never do this, even if it is asked again, and did nothing.
    Rejected(String),
    /// It cannot do it now, and did nothing.
    Refused(String),
    /// An index that the read needs is not built there yet.
    NotIndexed(String),
    /// There is no connection to it, so it did nothing. It may be taken to live for a moment still, or again.
    Unreachable(String),
    /// It tried and failed, or its answer was lost; it may have done it.
    Failed(String),
}

impl From<RpcError> for TargetError {
    fn from(error: RpcError) -> Self {
        match error {
            RpcError::Timeout { .. } | RpcError::Disconnected { may_have_run: true } => Self::Silent,
            RpcError::Remote(RemoteError { kind, message }) => match kind {
                RemoteErrorKind::AnswerLost if planted::is_planted(Bug::LostAnswer) => Self::Refused(message),
                RemoteErrorKind::Failed | RemoteErrorKind::AnswerLost => Self::Failed(message),
                RemoteErrorKind::Stale => Self::Stale(message),
                RemoteErrorKind::Overloaded => Self::Overloaded(message),
                RemoteErrorKind::Rejected => Self::Rejected(message),
                RemoteErrorKind::NotIndexed => Self::NotIndexed(message),
                RemoteErrorKind::Expired | RemoteErrorKind::UnknownVerb | RemoteErrorKind::Refused => {
                    Self::Refused(message)
                }
            },
            RpcError::Overloaded => Self::Overloaded(error.to_string()),
            RpcError::TooLarge { .. } => Self::Rejected(error.to_string()),
            RpcError::Disconnected { may_have_run: false } => Self::Unreachable(error.to_string()),
            RpcError::Refused(_) => Self::Refused(error.to_string()),
        }
    }
}

impl From<ReplicaError> for TargetError {
    fn from(error: ReplicaError) -> Self {
        match error {
            ReplicaError::Log(_) | ReplicaError::Read(_) | ReplicaError::Partial(_) => Self::Failed(error.to_string()),
            ReplicaError::Overloaded(_) => Self::Overloaded(error.to_string()),
            ReplicaError::TooLarge(_) | ReplicaError::Malformed(_) => Self::Rejected(error.to_string()),
            ReplicaError::UnknownTable(_)
            | ReplicaError::NotHere(_)
            | ReplicaError::CannotLead(_)
            | ReplicaError::DiskFull(_) => Self::Refused(error.to_string()),
            ReplicaError::Stale(reason) => Self::Stale(reason),
            ReplicaError::NotIndexed(reason) => Self::NotIndexed(reason),
        }
    }
}

impl TargetError {
    /// Why, in words; None when nothing was heard.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Silent => None,
            Self::Stale(reason)
            | Self::Overloaded(reason)
            | Self::Rejected(reason)
            | Self::Refused(reason)
            | Self::NotIndexed(reason)
            | Self::Unreachable(reason)
            | Self::Failed(reason) => Some(reason),
        }
    }

    /// Nothing was sent: the node has no connections to others, or none to that one.
    pub(crate) fn without_connections() -> Self {
        Self::Refused("this node has no connections to others".to_owned())
    }

    /// A sentence about the replica of this name, with the reason.
    #[must_use]
    pub fn about(&self, name: &str) -> String {
        match self.reason() {
            Some(reason) => format!("{name}: {reason}"),
            None => format!("{name} did not answer"),
        }
    }

    /// The code of the protocol's failure map: 0 is "unknown", 6 that an index is not available.
    pub(crate) const fn code(&self) -> u16 {
        match self {
            Self::NotIndexed(_) => 6,
            _ => 0,
        }
    }
}
