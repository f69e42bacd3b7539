//! Why something did not happen, and whether it may have.

use crate::members::VOTERS_MAX;
use crate::store::StoreError;
use std::fmt;

/// Why a member does not start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StartError {
    /// Its file cannot be used.
    Store(StoreError),
    /// The options or the initial voters make no sense.
    Invalid(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Invalid(what) => write!(f, "the metadata group cannot start: {what}"),
        }
    }
}

impl std::error::Error for StartError {}

/// Why a proposal has no index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProposeError {
    /// It is larger than a command may be; it did not happen.
    TooLarge {
        /// Its bytes.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// Too many wait already; it did not happen.
    Overloaded,
    /// In all the time no leader was known: most voters are down or cut off. It did not happen.
    NoQuorum,
    /// The time is over; it may have happened, or happen before the next proposal of this node does.
    Timeout,
    /// The member stops; it may have happened.
    Shutdown,
    /// The group continued without this member after a majority was given up; it may have happened before.
    Superseded {
        /// The epoch that the group is in.
        epoch: u64,
    },
    /// The member takes no part in the group; it did not happen, unless it was under way when the member withdrew.
    Withdrawn(String),
}

impl fmt::Display for ProposeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes, bytes_max } => {
                write!(f, "a metadata change of {bytes} bytes; at most {bytes_max} are possible")
            }
            Self::Overloaded => f.write_str("too many metadata changes wait already; it did not happen"),
            Self::NoQuorum => f.write_str(
                "no majority of the metadata voters can be reached; the change did not happen; reads and writes continue",
            ),
            Self::Timeout => f.write_str("the metadata change was not confirmed in time; it may have happened"),
            Self::Shutdown => f.write_str("the node stops; the metadata change may have happened"),
            Self::Withdrawn(why) => f.write_str(why),
            Self::Superseded { epoch } => write!(
                f,
                "this node was given up when the metadata group was recovered (epoch {epoch}); it must join again, empty"
            ),
        }
    }
}

impl std::error::Error for ProposeError {}

/// Why a read barrier was not passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadError {
    /// Too many wait already.
    Overloaded,
    /// No leader has confirmed in time.
    Timeout,
    /// The member stops.
    Shutdown,
    /// The member takes no part in the group.
    Withdrawn,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overloaded => "too many wait for the metadata leader already",
            Self::Timeout => "the metadata leader did not confirm in time that this node is up to date",
            Self::Shutdown => "the node stops",
            Self::Withdrawn => "this node takes no part in the metadata group",
        })
    }
}

impl std::error::Error for ReadError {}

/// Why the members are not as requested.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MembershipError {
    /// The group would have more than [`VOTERS_MAX`] voters.
    TooManyVoters,
    /// The group would have none.
    NoVoter,
    /// An id is 0 or is named twice.
    InvalidId(u64),
    /// The time is over; it may have happened, or happen later.
    Timeout,
    /// The member stops; it may have happened.
    Shutdown,
}

impl fmt::Display for MembershipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyVoters => write!(f, "a metadata group has at most {VOTERS_MAX} voters"),
            Self::NoVoter => f.write_str("a metadata group needs a voter"),
            Self::InvalidId(id) => write!(f, "member id {id} is 0 or named twice"),
            Self::Timeout => f.write_str("the membership change was not confirmed in time; it may have happened"),
            Self::Shutdown => f.write_str("the node stops; the membership change may have happened"),
        }
    }
}

impl std::error::Error for MembershipError {}
