//! Fencing: a replica takes no request of a coordinator that does not know where data is by now.
//!
//! Every request that reads or writes data ends with the version of the view that it was routed by. Whoever moves data changes the metadata in steps
//! such that neighbouring versions may be in use together, waits until every node has ended what it began in older ones (a node says that it has
//! a version when it has), and where a node does not say so raises the *fence*: what such a node still sends is refused as stale, and
//! has no effect. A coordinator that is refused waits for a newer view, and does the request again in it, with the timestamps that it had.
//!
//! ```text
//! a fenced request    its bytes, u64 version, little endian
//! ```

use std::sync::Arc;

use rpc::{RemoteError, RemoteErrorKind};
use runtime::Instant;

use crate::message::Malformed;
use crate::{ClusterView, Coordinator, Verb};

impl Verb {
    /// Whether its requests carry the version that they were routed by.
    pub(crate) fn is_fenced(self) -> bool {
        matches!(
            self,
            Self::Mutate | Self::Read | Self::Paxos | Self::Add | Self::Aggregate
        )
    }

    pub(crate) fn is_fenced_number(number: u16) -> bool {
        let fenced = [Self::Mutate, Self::Read, Self::Paxos, Self::Add, Self::Aggregate];
        fenced.iter().any(|verb| *verb as u16 == number)
    }
}

/// Says in a request by which version it was routed.
#[inline]
pub(crate) fn sign(verb: Verb, body: &mut Vec<u8>, view: &ClusterView) {
    if verb.is_fenced() {
        body.extend_from_slice(&view.version.to_le_bytes());
    }
}

impl Coordinator {
    /// What a request of another node says, when it may be done.
    pub(crate) fn pass<'b>(&self, body: &'b [u8]) -> Result<&'b [u8], RemoteError> {
        let Some((body, version)) = body.split_last_chunk() else {
            let malformed = Malformed("the version that a request was routed by");
            return Err(RemoteError::failed(malformed.to_string()));
        };
        let (version, fence) = (u64::from_le_bytes(*version), self.with_view(|view| view.fence));
        if version >= fence {
            return Ok(body);
        }
        self.count(|m| m.stale_requests += 1);
        Err(RemoteError {
            kind: RemoteErrorKind::Stale,
            message: format!(
                "the request was routed by version {version} of the cluster, and only {fence} and later are taken; it was not done"
            ),
        })
    }

    /// Waits until there is a newer view than this one; None when there is none in time.
    pub(crate) async fn newer_view(&self, than: &ClusterView, until: Instant) -> Option<Arc<ClusterView>> {
        loop {
            let changed = self.view_changed.notified();
            let view = self.view();
            if view.version > than.version {
                return Some(view);
            }
            runtime::timeout_at(until, changed).await.ok()?;
        }
    }
}
