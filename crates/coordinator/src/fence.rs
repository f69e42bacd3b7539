//! Fencing: a replica does nothing for a coordinator that does not know where data is, or that it was truncated.
//!
//! Every request that reads or writes data ends with its *stamp*: the version of the view that it was routed by, and
//! the last truncation of its tables that its sender knows. A replica compares the stamp with the table's own numbers
//! ([`TableStore::admits`]) when the request arrives and again in the moment in which a mutation is applied or a state
//! changes, because between the two the replica may have waited. The same holds for work on the sender's own node.
//!
//! - **Moved data.** A move of data changes the metadata in steps such that neighbouring versions may be in use
//!   together, waits until every node has ended what it began in older ones, and raises the *fence* if a node does not
//!   confirm that. Older requests are refused as stale, and have no effect. A coordinator that is refused waits for a
//!   newer view, and does the request again in it, with the timestamps that it had.
//! - **Truncated data.** A truncation is a version too (`truncate.rs`). Requests from before it are refused by every
//!   replica that has it; requests from after it wait at a replica that is not yet done with it.
//!
//! ```text
//! a fenced request    its bytes, u64 version, u64 version of the last truncation, little endian
//! ```

use replica::{Admission, TableStore};
use schema::TableId;
use stdx::planted::{self, Bug};
use types::Token;

use crate::ClusterView;
use crate::service::ReplicaError;

/// By what a request was routed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stamp {
    version: u64,
    truncated_at: u64,
}

impl Stamp {
    /// Of a request that no version of the cluster can make stale, because it is not derived from anything older than
    /// the moment of its application.
    pub const PRESENT: Self = Self {
        version: u64::MAX,
        truncated_at: 0,
    };

    /// What [`Stamp::sign`] appends.
    pub(crate) const BYTES: usize = 2 * size_of::<u64>();

    /// Of a request about one table.
    #[must_use]
    pub fn of(view: &ClusterView, table: TableId) -> Self {
        Self::of_tables(view, std::iter::once(table))
    }

    /// Of a request about these tables.
    #[must_use]
    #[inline]
    pub fn of_tables(view: &ClusterView, tables: impl Iterator<Item = TableId>) -> Self {
        let truncations = tables.map(|table| view.truncated_at(table));
        Self {
            version: view.version,
            truncated_at: truncations.max().unwrap_or(0),
        }
    }

    /// Appends it to a request.
    pub(crate) fn sign(self, body: &mut Vec<u8>) {
        body.extend_from_slice(&self.version.to_le_bytes());
        body.extend_from_slice(&self.truncated_at.to_le_bytes());
    }

    pub(crate) fn take(body: &[u8]) -> Option<(&[u8], Self)> {
        let (body, truncated_at) = body.split_last_chunk()?;
        let (body, version) = body.split_last_chunk()?;
        let stamp = Self {
            version: u64::from_le_bytes(*version),
            truncated_at: u64::from_le_bytes(*truncated_at),
        };
        Some((body, stamp))
    }

    /// Whether a table takes the request now; false: the request has to wait for a truncation.
    ///
    /// # Errors
    /// When it is stale.
    #[inline]
    pub(crate) fn check(self, store: &TableStore) -> Result<bool, ReplicaError> {
        match store.admits(self.version, self.truncated_at) {
            // What a truncation itself does.
            _ if self == Self::PRESENT => Ok(true),
            Admission::Now => Ok(true),
            Admission::Later => Ok(false),
            Admission::Never if planted::is_planted(Bug::IgnoredFence) => Ok(true),
            Admission::Never => Err(self.stale(store.oldest_admitted())),
        }
    }

    /// Whether a table takes the request for a token now; false: it has to wait for a truncation, for a tablet that
    /// arrives from another shard, or for the version of the cluster that says so.
    ///
    /// # Errors
    /// When it is stale, or another shard has the token.
    #[inline]
    pub(crate) fn check_at(self, store: &TableStore, token: Token) -> Result<bool, ReplicaError> {
        if !self.check(store)? {
            return Ok(false);
        }
        match store.tablet(token) {
            Some(_) => Ok(true),
            None => self.absent(store, store.is_arriving(token), token),
        }
    }

    /// Whether a table takes the request now for every token above `after` up to `to`; false: it has to wait, as for
    /// [`Self::check_at`].
    ///
    /// # Errors
    /// When it is stale, or another shard has some of the tokens.
    pub(crate) fn check_range(self, store: &TableStore, after: Token, to: Token) -> Result<bool, ReplicaError> {
        if !self.check(store)? {
            return Ok(false);
        }
        if store.covers(after, to) {
            Ok(true)
        } else {
            self.absent(store, store.is_any_arriving(after, to), to)
        }
    }

    /// What becomes of a request for what is not here.
    #[cold]
    pub(crate) fn absent(self, store: &TableStore, is_arriving: bool, token: Token) -> Result<bool, ReplicaError> {
        if self.version < store.version() {
            return Err(ReplicaError::Stale(format!(
                "the request was routed by version {} of the cluster, and version {} has the token {} elsewhere; it was not done",
                self.version,
                store.version(),
                token.0
            )));
        }
        if is_arriving || self.version > store.version() && self != Self::PRESENT {
            return Ok(false);
        }
        Err(ReplicaError::NotHere(token))
    }

    /// The error of a request whose token was here when it began, and has left since.
    pub(crate) fn or_moved(self, store: &TableStore, error: ReplicaError) -> ReplicaError {
        match error {
            ReplicaError::NotHere(token) => self.absent(store, false, token).err().unwrap_or(error),
            error => error,
        }
    }

    /// Whether a shard takes the request that refuses those from before version `fence`.
    ///
    /// # Errors
    /// When it is stale.
    #[inline]
    pub(crate) fn pass(self, fence: u64) -> Result<(), ReplicaError> {
        if self.version >= fence || planted::is_planted(Bug::IgnoredFence) {
            Ok(())
        } else {
            Err(self.stale(fence))
        }
    }

    #[cold]
    fn stale(self, oldest: u64) -> ReplicaError {
        ReplicaError::Stale(format!(
            "the request was routed by version {} of the cluster, and only {oldest} and later are taken; it was not done",
            self.version
        ))
    }
}
