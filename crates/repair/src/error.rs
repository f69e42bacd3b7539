//! Why replicas were not made equal.

use std::fmt;

use replica::{Lost, ReadError};
use rpc::RpcError;
use tasks::Aborted;
use uuid::Uuid;

/// Why a participant does not take part. On the wire: its number, and for some a sentence for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The table is not there: it was dropped, or the node has not heard of it.
    UnknownTable,
    /// A part of the range is of no tablet of that shard.
    NotHere,
    /// An sstable of the range is quarantined or damaged, so the replica lacks rows that it should have. Says which.
    Missing(String),
    /// One of both nodes has truncated the table, and the other has not yet; or it was truncated during the repair.
    Truncated,
    /// The node has other columns of the table.
    SchemaDiffers,
    /// The shard serves as many repairs as it may.
    Overloaded,
    /// The repair is not open there: it was closed, idle for too long, or the node has started again.
    Ended,
    /// An operator has aborted the participant's task.
    Aborted,
    /// The disk of the node is so full that it takes deletes alone.
    DiskFull,
    /// The participant cannot mark what was repaired.
    Unmarked(String),
    /// The participant cannot read or write.
    Failed(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownTable => f.write_str("it does not have the table"),
            Self::Unmarked(reason) => write!(f, "what was repaired is not marked: {reason}"),
            Self::NotHere => f.write_str("a part of the range is of no tablet of its shard"),
            Self::Missing(reason) | Self::Failed(reason) => f.write_str(reason),
            Self::Truncated => f.write_str("the table is truncated on one of both nodes and not on the other"),
            Self::SchemaDiffers => f.write_str("it has other columns of the table"),
            Self::Overloaded => f.write_str("it serves as many repairs as it may"),
            Self::Ended => f.write_str("the repair is not open there"),
            Self::Aborted => f.write_str("its task was aborted"),
            Self::DiskFull => f.write_str("its disk is full: it takes no data until it has room"),
        }
    }
}

/// Why [`crate::repair`] has not made the replicas equal. What was written before the error stays: it is what the
/// replicas had.
#[derive(Debug)]
pub enum RepairError {
    /// The table is not here.
    UnknownTable,
    /// A part of the range is of no tablet of this shard.
    NotHere,
    /// A truncation of the table is not done here yet.
    NotTruncated,
    /// The table was dropped or truncated here during the repair, or a tablet left.
    Lost(Lost),
    /// The table was altered here during the repair.
    SchemaDiffers,
    /// An sstable of the range is quarantined or damaged here, so this replica lacks rows that it should have. Says
    /// which.
    Missing(String),
    /// This shard cannot read.
    Read(String),
    /// This shard's commitlog or memory does not take the writes.
    Write(String),
    /// A participant does not take part.
    Refused {
        /// The node.
        host: Uuid,
        /// Its shard.
        shard: u32,
        /// Why.
        refusal: Refusal,
    },
    /// A participant does not answer.
    Unreachable {
        /// The node.
        host: Uuid,
        /// Its shard.
        shard: u32,
        /// How the last attempt failed.
        error: RpcError,
    },
    /// An answer is not what a participant sends.
    Malformed {
        /// The node.
        host: Uuid,
        /// What is wrong.
        reason: &'static str,
    },
    /// The disk of this node is so full that it takes deletes alone.
    DiskFull,
    /// The replicas are equal, and this shard cannot mark what was repaired.
    Unmarked(String),
    /// The task was aborted.
    Aborted,
}

impl RepairError {
    /// Whether another attempt may succeed without intervention: not if an operator has aborted, or an sstable is
    /// missing.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::NotTruncated
            | Self::Lost(_)
            | Self::SchemaDiffers
            | Self::Write(_)
            | Self::Unmarked(_)
            | Self::Unreachable { .. }
            | Self::Malformed { .. } => true,
            Self::Refused { refusal, .. } => {
                !matches!(refusal, Refusal::Missing(_) | Refusal::Aborted | Refusal::DiskFull)
            }
            Self::UnknownTable | Self::NotHere | Self::Missing(_) | Self::Read(_) | Self::DiskFull | Self::Aborted => {
                false
            }
        }
    }
}

impl fmt::Display for RepairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownTable => f.write_str("the table is not here"),
            Self::NotHere => f.write_str("a part of the range is of no tablet of this shard"),
            Self::NotTruncated => f.write_str("a truncation of the table is not done here yet"),
            Self::Lost(lost) => lost.fmt(f),
            Self::SchemaDiffers => f.write_str("the table was altered during the repair"),
            Self::Missing(reason) | Self::Read(reason) | Self::Write(reason) => f.write_str(reason),
            Self::Refused { host, shard, refusal } => write!(f, "node {host}, shard {shard}, takes no part: {refusal}"),
            Self::Unreachable { host, shard, error } => write!(f, "node {host}, shard {shard}: {error}"),
            Self::Malformed { host, reason } => write!(f, "the answer of node {host}: {reason}"),
            Self::Unmarked(reason) => write!(f, "what was repaired is not marked: {reason}"),
            Self::DiskFull => f.write_str("the disk of this node is full: it takes no data until it has room"),
            Self::Aborted => f.write_str("aborted"),
        }
    }
}

impl std::error::Error for RepairError {}

impl From<Aborted> for RepairError {
    fn from(_: Aborted) -> Self {
        Self::Aborted
    }
}

/// Why a shard cannot do its part, on either side of a repair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    NotHere,
    Lost(Lost),
    SchemaDiffers,
    Missing(String),
    Read(String),
    /// There is no room now.
    Full(String),
    /// The commitlog does not take a write.
    Log(String),
    /// The disk is so full that the node takes deletes alone.
    DiskFull,
    /// What was repaired cannot be marked.
    Unmarked(String),
    Aborted,
}

impl From<Lost> for Trouble {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

impl From<ReadError> for Trouble {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Missing { .. } => Self::Missing(error.to_string()),
            ReadError::File(reason) | ReadError::NoRowMemory(reason) => Self::Read(reason),
            ReadError::NoIndex | ReadError::NotIndexed { .. } => Self::Read(error.to_string()),
        }
    }
}

impl From<Trouble> for RepairError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::NotHere => Self::NotHere,
            Trouble::Lost(lost) => Self::Lost(lost),
            Trouble::SchemaDiffers => Self::SchemaDiffers,
            Trouble::Missing(reason) => Self::Missing(reason),
            Trouble::Read(reason) => Self::Read(reason),
            Trouble::Full(reason) | Trouble::Log(reason) => Self::Write(reason),
            Trouble::DiskFull => Self::DiskFull,
            Trouble::Unmarked(reason) => Self::Unmarked(reason),
            Trouble::Aborted => Self::Aborted,
        }
    }
}

impl From<Trouble> for Refusal {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::NotHere | Trouble::Lost(Lost::Left) => Self::NotHere,
            Trouble::Lost(Lost::Dropped) => Self::UnknownTable,
            Trouble::Lost(Lost::Truncated) => Self::Truncated,
            Trouble::SchemaDiffers => Self::SchemaDiffers,
            Trouble::Missing(reason) => Self::Missing(reason),
            Trouble::Read(reason) | Trouble::Full(reason) | Trouble::Log(reason) => Self::Failed(reason),
            Trouble::DiskFull => Self::DiskFull,
            Trouble::Unmarked(reason) => Self::Unmarked(reason),
            Trouble::Aborted => Self::Aborted,
        }
    }
}
