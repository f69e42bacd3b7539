//! Members that are down permanently.
//!
//! An operator *excludes* a dead member whose replacement or removal is for later. It stays a member and keeps its
//! tokens and copies, so no data moves. But nothing waits for it any more: stages of moves pass without it, it is in no
//! metadata group, TRUNCATE does without it. It may not come back: every member answers it that it has left. So a node
//! that still answers is never excluded.

use crate::error::ChangeError;
use crate::messages::wire;
use crate::metadata::Metadata;
use crate::metadata::command::Command;
use crate::service::Cluster;
use rpc::{RemoteErrorKind, RpcError};
use std::sync::Arc;
use std::time::Duration;
use topology::{HostId, NodeState, TopologyCommand};

/// How long the leader may take to ask all nodes where they were whether they live, and to have the group agree.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

impl Cluster {
    /// Refuses what is done to dead nodes only.
    pub(crate) async fn check_dead(&self, host_id: HostId, what: &str) -> Result<(), ChangeError> {
        if let Some(address) = self.answers(host_id).await {
            return Err(ChangeError::Refused(format!(
                "node {host_id} is alive at {address}; only a node that is down can be {what}"
            )));
        }
        if self.peers.is_live(host_id) {
            return Err(ChangeError::Refused(format!(
                "node {host_id} answered a moment ago; only a node that is down can be {what}"
            )));
        }
        Ok(())
    }

    /// Declares members to be down permanently: nothing waits for them any more, and they may not come back. They keep
    /// what they own until they are removed or replaced.
    ///
    /// # Errors
    /// [`ChangeError`], with the reason; then no node is excluded, unless the leader could not be heard.
    pub async fn exclude_nodes(&self, hosts: &[HostId]) -> Result<(), ChangeError> {
        if hosts.is_empty() {
            return Ok(());
        }
        if self.leads() {
            return self.decide_exclusion(hosts).await;
        }
        let leader = self.status().leader.ok_or_else(|| {
            let why = "the metadata group has no leader at the moment: try again";
            ChangeError::NoQuorum(why.to_owned())
        })?;
        let peer = self.peers.peer(leader).ok_or_else(|| {
            let why = format!("node {leader}, which leads the metadata group, cannot be reached");
            ChangeError::NoQuorum(why)
        })?;
        let body = wire::encode_hosts(hosts);
        match self.rpc.call(&peer, 0, wire::EXCLUDE, body, ANSWER_WAIT).await {
            // Waits until this node knows it too, for a caller that looks here whether it is done.
            Ok(_) => self.barrier().await.map(drop),
            Err(RpcError::Remote(error)) if error.kind == RemoteErrorKind::Refused => {
                Err(ChangeError::Refused(error.message))
            }
            Err(RpcError::Remote(error)) => Err(ChangeError::NoQuorum(error.message)),
            Err(error) => Err(ChangeError::Timeout(format!(
                "node {leader}, which leads the metadata group, did not answer, and may have excluded the nodes: {error}"
            ))),
        }
    }

    /// Excludes nodes, all of them or none. On the leader: it hears of all members, so whether one lives is decided
    /// once, and by the node that knows best.
    pub(crate) async fn decide_exclusion(&self, hosts: &[HostId]) -> Result<(), ChangeError> {
        if !self.leads() {
            let why = "the node does not lead the metadata group any more: try again";
            return Err(ChangeError::NoQuorum(why.to_owned()));
        }
        let metadata = self.barrier().await?;
        self.check_excludable(&metadata, hosts).await?;
        let is_new = |host: &HostId| !metadata.topology.is_excluded(*host);
        let hosts: Vec<HostId> = hosts.iter().copied().filter(is_new).collect();
        if hosts.is_empty() {
            return Ok(());
        }
        self.propose(Command::Exclude { hosts: hosts.clone() }).await?;
        for host_id in hosts {
            log::info!("node {host_id} is excluded: nothing waits for it any more");
        }
        Ok(())
    }

    /// Whether each of these nodes may be excluded.
    async fn check_excludable(&self, metadata: &Metadata, hosts: &[HostId]) -> Result<(), ChangeError> {
        let refused = |why: String| Err(ChangeError::Refused(why));
        for host in hosts {
            if *host == self.config.host_id {
                return refused("this node runs; only a node that is down can be excluded".to_owned());
            }
            match metadata.topology.node(*host).map(|node| node.state) {
                None => return refused(format!("host id {host} is not a member of this cluster")),
                Some(NodeState::Left) => return refused(format!("node {host} has left already, or was removed")),
                Some(NodeState::Joining) => {
                    return refused(format!(
                        "node {host} is joining and owns nothing: remove it instead of excluding it"
                    ));
                }
                Some(NodeState::Normal | NodeState::Leaving) => self.check_dead(*host, "excluded").await?,
            }
        }
        Ok(())
    }
}

impl Metadata {
    /// What this is when these nodes are excluded.
    ///
    /// # Errors
    /// A sentence, when one of them cannot be.
    pub(crate) fn excluding(&self, hosts: &[HostId]) -> Result<Self, String> {
        let mut next = self.clone();
        for host_id in hosts.iter().copied() {
            let command = TopologyCommand::Exclude { host_id };
            let topology = Arc::make_mut(&mut next.topology);
            topology.apply(&command).map_err(|e| e.to_string())?;
        }
        Ok(next)
    }
}
