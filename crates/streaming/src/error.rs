//! Why data was not copied.

use std::fmt;
use std::io;

use replica::{AdoptError, Lost};
use rpc::RpcError;
use tasks::Aborted;
use uuid::Uuid;

/// Why a source does not give data. On the wire: its number, and for some a sentence for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The table is not there: it was dropped, or the source has not heard of it.
    UnknownTable,
    /// Not every token of the range is of a tablet of that shard.
    NotHere,
    /// Sstables of the range are quarantined, and the copy would lack what they had. Their names.
    Missing(String),
    /// One of both nodes has truncated the table, and the other has not yet; or it was truncated during the copy.
    Truncated,
    /// As many streams are open as may be.
    Overloaded,
    /// The stream is not open: it was closed, idle for too long, or the source has started again.
    Ended,
    /// An operator has aborted the source's task.
    Aborted,
    /// The disk of the source, or damage in a file.
    Failed(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownTable => f.write_str("it does not have the table"),
            Self::NotHere => f.write_str("not every token of the range is of a tablet of its shard"),
            Self::Missing(reason) | Self::Failed(reason) => f.write_str(reason),
            Self::Truncated => f.write_str("the table is truncated on one of both nodes and not on the other"),
            Self::Overloaded => f.write_str("it serves as many streams as it may"),
            Self::Ended => f.write_str("the stream is not open there"),
            Self::Aborted => f.write_str("its task was aborted"),
        }
    }
}

/// Why [`crate::pull`] has not copied everything. What was copied before from other sources is part of the table;
/// nothing of this one is.
#[derive(Debug)]
pub enum StreamError {
    /// The table is not here.
    UnknownTable,
    /// Not every token of the range is of a tablet of this shard.
    NotHere,
    /// A truncation that must come before is not done here yet.
    NotTruncated,
    /// The table was dropped or truncated here during the copy, or a tablet left.
    Lost(Lost),
    /// The source has other columns of the table: one of both nodes has not followed a schema change yet.
    SchemaDiffers,
    /// The source does not give its data.
    Refused {
        /// The node.
        host: Uuid,
        /// Its shard.
        shard: u32,
        /// Why.
        refusal: Refusal,
    },
    /// The source does not answer.
    Unreachable {
        /// The node.
        host: Uuid,
        /// Its shard.
        shard: u32,
        /// How the last attempt failed.
        error: RpcError,
    },
    /// What came is not what the source listed, or not an sstable of the range.
    Damaged(String),
    /// The disk here is full.
    DiskFull(String),
    /// The disk here refuses.
    Disk(String),
    /// The task was aborted.
    Aborted,
}

impl StreamError {
    /// Whether another attempt may succeed without any intervention. It cannot if an operator has aborted the copy, the
    /// disk is full or an sstable of the source is missing.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::NotTruncated | Self::Lost(_) | Self::SchemaDiffers | Self::Unreachable { .. } | Self::Damaged(_) => {
                true
            }
            Self::Refused { refusal, .. } => !matches!(refusal, Refusal::Missing(_) | Refusal::Aborted),
            Self::UnknownTable | Self::NotHere | Self::DiskFull(_) | Self::Disk(_) | Self::Aborted => false,
        }
    }

    pub(crate) fn of_io(what: &std::path::Path, error: &io::Error) -> Self {
        let text = format!("{}: {error}", what.display());
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull(text),
            _ => Self::Disk(text),
        }
    }

    pub(crate) fn of_sstable(error: &sstable::Error) -> Self {
        match error {
            sstable::Error::Io { path, source } => Self::of_io(path, source),
            sstable::Error::Schema { .. } => Self::SchemaDiffers,
            other => Self::Damaged(other.to_string()),
        }
    }
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownTable => f.write_str("the table is not here"),
            Self::NotHere => f.write_str("not every token of the range is of a tablet of this shard"),
            Self::NotTruncated => f.write_str("a truncation of the table is not done here yet"),
            Self::Lost(lost) => write!(f, "{lost}; nothing was taken"),
            Self::SchemaDiffers => f.write_str(
                "the source has other columns of the table; one of both nodes has not followed a schema change yet",
            ),
            Self::Refused { host, shard, refusal } => write!(f, "node {host}, shard {shard}, gives no data: {refusal}"),
            Self::Unreachable { host, shard, error } => write!(f, "node {host}, shard {shard}: {error}"),
            Self::Damaged(reason) | Self::DiskFull(reason) | Self::Disk(reason) => f.write_str(reason),
            Self::Aborted => f.write_str("aborted"),
        }
    }
}

impl std::error::Error for StreamError {}

impl From<Aborted> for StreamError {
    fn from(_: Aborted) -> Self {
        Self::Aborted
    }
}

impl From<Lost> for StreamError {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

impl From<AdoptError> for StreamError {
    fn from(error: AdoptError) -> Self {
        match error {
            AdoptError::Sstable(e) => Self::of_sstable(&e),
            AdoptError::NotHere(reason) => Self::Damaged(reason),
            AdoptError::Lost(lost) => Self::Lost(lost),
            AdoptError::Undone(reason) => Self::Disk(reason),
        }
    }
}
