//! Why a node is not in the cluster, and why a change was not made.

use crate::metadata::Rejected;
use consensus::{MembershipError, ProposeError, ReadError, StartError};
use std::fmt;
use std::path::PathBuf;

/// Why the metadata file cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}. Restore the directory that ran last, or see `ceto page rejoin`",
            self.path.display(),
            self.why
        )
    }
}

impl std::error::Error for LoadError {}

/// Why a node does not come into the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClusterError {
    /// The cluster, or the node's own files, refuse; the sentence says why and what to do. A retry does not help.
    Refused(String),
    /// No seed has a cluster and none may be formed, or the join was not completed in time. Trying again may help.
    Unreachable(String),
    /// The disk does not take the metadata.
    Disk(String),
    /// The metadata log cannot be used.
    Consensus(StartError),
}

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(reason) => write!(f, "the node may not join the cluster: {reason}"),
            Self::Unreachable(reason) => write!(f, "the node cannot join the cluster: {reason}"),
            Self::Disk(reason) => write!(f, "the cluster's metadata cannot be kept: {reason}"),
            Self::Consensus(error) => write!(
                f,
                "{error}. Restore the directory that ran last, or see `ceto page rejoin`"
            ),
        }
    }
}

impl std::error::Error for ClusterError {}

/// Why a change of the metadata was not made, or may not have been.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChangeError {
    /// It was made for a state that is not the present one any more. It did not happen; it can be made again for the
    /// present one.
    Conflict,
    /// It cannot be applied. It did not happen.
    Rejected(String),
    /// It has a part that not every member can read. It did not happen.
    NeedsFeature(String),
    /// Most voters are down or cut off. It did not happen.
    NoQuorum(String),
    /// It was not confirmed in time. It may have happened.
    Timeout(String),
    /// It is too large, too many wait, or the node takes no part in the metadata group. It did not happen.
    Refused(String),
    /// The node stops, or was given up by the cluster. It may have happened.
    Stopping(String),
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict => f.write_str("the metadata was concurrently changed by another node"),
            Self::Rejected(why)
            | Self::NeedsFeature(why)
            | Self::NoQuorum(why)
            | Self::Timeout(why)
            | Self::Refused(why)
            | Self::Stopping(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ChangeError {}

impl From<ProposeError> for ChangeError {
    fn from(error: ProposeError) -> Self {
        let text = error.to_string();
        match error {
            ProposeError::TooLarge { .. } | ProposeError::Overloaded | ProposeError::Withdrawn(_) => {
                Self::Refused(text)
            }
            ProposeError::NoQuorum => Self::NoQuorum(text),
            ProposeError::Timeout => Self::Timeout(text),
            ProposeError::Shutdown | ProposeError::Superseded { .. } => Self::Stopping(text),
        }
    }
}

impl From<Rejected> for ChangeError {
    fn from(rejected: Rejected) -> Self {
        match rejected {
            Rejected::Conflict { .. } => Self::Conflict,
            Rejected::Invalid { why } => Self::Rejected(why),
        }
    }
}

impl From<ReadError> for ChangeError {
    fn from(error: ReadError) -> Self {
        let text = error.to_string();
        match error {
            ReadError::Overloaded | ReadError::Withdrawn => Self::Refused(text),
            ReadError::Timeout => Self::NoQuorum(text),
            ReadError::Shutdown => Self::Stopping(text),
        }
    }
}

impl From<MembershipError> for ChangeError {
    fn from(error: MembershipError) -> Self {
        let text = error.to_string();
        match error {
            MembershipError::Timeout => Self::Timeout(text),
            MembershipError::Shutdown => Self::Stopping(text),
            MembershipError::TooManyVoters | MembershipError::NoVoter | MembershipError::InvalidId(_) => {
                Self::Rejected(text)
            }
        }
    }
}
