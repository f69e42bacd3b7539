//! Recovery when most voters are gone permanently: what an operator is shown, must confirm, and may do. Offline: the
//! node does not run.
//!
//! One survivor becomes the only voter ([`recover`]); others that live take over what it has ([`follow`]). Each step
//! needs a sentence that names the nodes it is about, so that no script and no line from a shell's history does it to
//! another cluster, or twice.

use crate::config::Reach;
use crate::error::LoadError;
use crate::members::peers::node_number;
use crate::members::start::group_of;
use crate::messages::wire;
use crate::metadata::Metadata;
use crate::metadata::file;
use crate::metadata::lineage::own_raft_id;
use consensus::{Epoch, RECOVERY_CONFIRMATION, Recovery, RecoveryError, follow_recovered, recover_from_lost_majority};
use record::Known;
use rpc::{Rpc, RpcError};
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use topology::{HostId, NodeState};
use uuid::Uuid;

/// How long a voter is given to show that it lives.
const ALIVE_TIMEOUT: Duration = Duration::from_secs(2);

/// A node that would be given up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// Its identity.
    pub host_id: HostId,
    /// Where other nodes reached it.
    pub internode: SocketAddr,
    /// Its part in the cluster.
    pub state: NodeState,
    /// Whether it has a vote in the metadata group, or may have one.
    pub votes: bool,
}

/// What giving up a lost majority would mean for a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prospect {
    /// The cluster's name.
    pub cluster_name: String,
    /// The cluster's id.
    pub cluster_id: Uuid,
    /// The node that would continue.
    pub host_id: HostId,
    /// Where other nodes reach it.
    pub internode: SocketAddr,
    /// Whether it has a vote.
    pub votes: bool,
    /// The last change that it has applied.
    pub log_index: u64,
    /// The metadata group's own description of itself.
    pub raft: consensus::Prospect,
    /// All other members of the group.
    pub lost: Vec<Lost>,
}

impl Prospect {
    /// What must be said to make the node the only voter.
    #[must_use]
    pub fn confirmation(&self) -> String {
        let voters: Vec<String> = self
            .lost
            .iter()
            .filter(|lost| lost.votes)
            .map(|lost| lost.internode.to_string())
            .collect();
        format!("{RECOVERY_CONFIRMATION}: {}", voters.join(", "))
    }

    /// What must be said to make the node take what another has that was made the only voter, in the epoch that this
    /// began.
    #[must_use]
    pub fn follow_confirmation(&self, epoch: Epoch) -> String {
        format!(
            "{} forgets its metadata log and follows epoch {epoch} of '{}'",
            self.internode, self.cluster_name
        )
    }

    /// How many voters make a majority.
    #[must_use]
    pub fn majority(&self) -> usize {
        self.raft.voters.len() / 2 + 1
    }
}

/// Why a lost majority was not given up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RecoverError {
    /// The metadata file cannot be read.
    Load(LoadError),
    /// The node was never in a cluster, or is not in the one whose files it has.
    NotAMember,
    /// Something else was said than what must be.
    NotConfirmed {
        /// What must be said.
        expected: String,
    },
    /// The group's log says no.
    Recovery(RecoveryError),
    /// The disk does not take the metadata.
    Disk(String),
}

impl fmt::Display for RecoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => error.fmt(f),
            Self::NotAMember => f.write_str("this node is in no cluster"),
            Self::NotConfirmed { expected } => {
                write!(
                    f,
                    "the confirmation is not the one for this node, and nothing was changed; expected \"{expected}\""
                )
            }
            Self::Recovery(error) => error.fmt(f),
            Self::Disk(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for RecoverError {}

fn member(dir: &Path, host_id: HostId) -> Result<(Metadata, u64, u64), RecoverError> {
    let metadata = file::load(dir, &Known::everything())
        .map_err(RecoverError::Load)?
        .ok_or(RecoverError::NotAMember)?;
    let id = own_raft_id(&metadata, host_id).ok_or(RecoverError::NotAMember)?;
    let group = group_of(metadata.topology.cluster_id());
    Ok((metadata, group, id))
}

/// What giving up a lost majority would mean for this node. Changes nothing. Blocks.
///
/// # Errors
/// [`RecoverError`].
pub fn prospect(dir: &Path, host_id: HostId) -> Result<Prospect, RecoverError> {
    let (metadata, group, id) = member(dir, host_id)?;
    let raft = consensus::prospect(&file::raft_dir(dir), group, id).map_err(RecoverError::Recovery)?;
    let topology = &metadata.topology;
    let lost = raft.lost.iter().filter_map(|id| {
        let node = topology.numbered(node_number(*id)?)?;
        Some(Lost {
            host_id: node.host_id,
            internode: node.internode,
            state: node.state,
            votes: raft.voters.contains(id),
        })
    });
    Ok(Prospect {
        cluster_name: topology.cluster_name().to_owned(),
        cluster_id: topology.cluster_id(),
        host_id,
        internode: topology.node(host_id).ok_or(RecoverError::NotAMember)?.internode,
        votes: raft.voters.contains(&id),
        log_index: metadata.index,
        lost: lost.collect(),
        raft,
    })
}

/// Those of the nodes that would be given up that answer where they were, reached as `reach` says.
pub async fn answering(prospect: &Prospect, rpc: &Rc<Rpc>, reach: &Reach) -> Vec<SocketAddr> {
    let calls: Vec<_> = prospect
        .lost
        .iter()
        .map(|lost| {
            let peer = reach.anywhere(lost.host_id.0, lost.internode);
            let call = rpc.call(&peer, 0, wire::WHO, Vec::new(), ALIVE_TIMEOUT);
            (lost.internode, call)
        })
        .collect();
    let mut alive = Vec::new();
    for (address, call) in calls {
        if matches!(call.await, Ok(_) | Err(RpcError::Remote(_))) {
            alive.push(address);
        }
    }
    alive
}

/// Makes this node the only voter of its cluster's metadata, for the case that most voters are gone permanently.
/// Offline: the node must not run. Blocks. `confirmation` is [`Prospect::confirmation`], word for word. The lost nodes
/// stay members until they are removed.
///
/// # Errors
/// [`RecoverError`]; nothing was changed then.
pub fn recover(dir: &Path, host_id: HostId, confirmation: &str) -> Result<Recovery, RecoverError> {
    let expected = prospect(dir, host_id)?.confirmation();
    if confirmation != expected {
        return Err(RecoverError::NotConfirmed { expected });
    }
    let (_, group, id) = member(dir, host_id)?;
    recover_from_lost_majority(&file::raft_dir(dir), group, id, RECOVERY_CONFIRMATION).map_err(RecoverError::Recovery)
}

/// Makes this node, which survived too, take over what the only voter has. It keeps its identity and its data. Offline:
/// the node must not run. Blocks. `epoch` is the one that the only voter began, and `confirmation` is
/// [`Prospect::follow_confirmation`], word for word.
///
/// # Errors
/// [`RecoverError`].
pub fn follow(dir: &Path, host_id: HostId, epoch: Epoch, confirmation: &str) -> Result<(), RecoverError> {
    let prospect = prospect(dir, host_id)?;
    let own = prospect.raft.epoch;
    if epoch.number <= own.number {
        let error = RecoveryError::NotLater { own, followed: epoch };
        return Err(RecoverError::Recovery(error));
    }
    let expected = prospect.follow_confirmation(epoch);
    if confirmation != expected {
        return Err(RecoverError::NotConfirmed { expected });
    }
    let (mut metadata, group, id) = member(dir, host_id)?;
    // What this node applied after the end of the survivor's log did not happen: whatever the survivor sends replaces
    // all of it. This step comes first, because with the old log it is undone by a start, and the other way round it
    // would be missing.
    metadata.index = 0;
    file::save_whole(dir, &metadata).map_err(RecoverError::Disk)?;
    follow_recovered(&file::raft_dir(dir), group, id, epoch).map_err(RecoverError::Recovery)
}
