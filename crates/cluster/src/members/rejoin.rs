//! How a node that has lost its metadata or the log of the metadata group comes back with its identity and its data.
//!
//! Offline, on the node: a member is asked for the metadata, and the group gives the node another *generation*: another
//! Raft id, because no node knows what the lost log had promised under the former one. The node keeps its number, its
//! tokens and its tablets, and gets nothing besides. What it has written into its files then lets it begin one log
//! under the new id.
//!
//! A member agrees only while no process with the node's identity is alive, by its failure detector and by asking where
//! the node was. A process that is started later on a copy of the directory has a former generation, and stops.

use crate::config::Reach;
use crate::error::ChangeError;
use crate::members::peers::parts;
use crate::members::removal;
use crate::members::start::has_identity_elsewhere;
use crate::messages::wire::{self, JoinAnswer};
use crate::metadata::Metadata;
use crate::metadata::command::Command;
use crate::metadata::file;
use crate::metadata::lineage::{addresses, own_raft_id};
use crate::service::Cluster;
use record::Known;
use rpc::{NodeAddress, Rpc};
use runtime::Instant;
use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use topology::{HostId, NodeState, Role, TopologyCommand};
use uuid::Uuid;

/// How long a member may take to decide.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// How long members are asked again that say "not now": a process that has just ended is taken for alive for some
/// seconds.
const ASK_FOR: Duration = Duration::from_secs(30);
/// Between two rounds of asking.
const ROUND: Duration = Duration::from_millis(500);

/// Why a node did not get new metadata. Nothing was changed on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RejoinError {
    /// No member is known that could be asked.
    NoSeeds,
    /// A member says no, for this reason.
    Refused(String),
    /// No member gave it, for these reasons.
    NotNow(String),
    /// The disk does not take it.
    Disk(String),
}

impl fmt::Display for RejoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSeeds => f.write_str(
                "no member of the cluster is known that could be asked for the metadata; name some with --seeds. Nothing was changed",
            ),
            Self::Refused(why) => write!(f, "{why}. Nothing was changed"),
            Self::NotNow(why) => write!(f, "no member gave the metadata ({why}). Nothing was changed here; try again"),
            Self::Disk(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for RejoinError {}

/// The confirmation that an operator must give for a node to take the metadata from the members.
#[must_use]
pub fn rejoin_confirmation(host_id: HostId) -> String {
    format!(
        "node {host_id} forgets its metadata and takes that of the other members; its data is the newest that it had"
    )
}

/// Takes the metadata from a member for a node that does not run, in the place of what it has, and gives the cluster's
/// name. Asks the seeds, and the members that the node's own metadata names if it can be read. The node's identity and
/// data stay.
///
/// # Errors
/// [`RejoinError`].
pub async fn rejoin(
    dir: &Path,
    host_id: HostId,
    seeds: &[SocketAddr],
    rpc: &Rc<Rpc>,
    reach: &Reach,
) -> Result<String, RejoinError> {
    let mut asked: BTreeSet<SocketAddr> = seeds.iter().copied().collect();
    if let Ok(Some(metadata)) = file::load(dir, &Known::everything()) {
        asked.extend(addresses(&metadata, host_id));
    }
    if asked.is_empty() {
        return Err(RejoinError::NoSeeds);
    }
    let deadline = runtime::now() + ASK_FOR;
    let metadata = ask(host_id, &asked, rpc, reach, deadline).await?;
    let id = own_raft_id(&metadata, host_id)
        .ok_or_else(|| RejoinError::Refused("the metadata that was given does not have this node".to_owned()))?;
    let name = metadata.topology.cluster_name().to_owned();
    let (dir, generation) = (dir.to_owned(), parts(id).0);
    runtime::offload(move || file::take_anew(&dir, &metadata, generation))
        .await
        .map_err(RejoinError::Disk)?;
    Ok(name)
}

async fn ask(
    host_id: HostId,
    addresses: &BTreeSet<SocketAddr>,
    rpc: &Rc<Rpc>,
    reach: &Reach,
    deadline: Instant,
) -> Result<Metadata, RejoinError> {
    loop {
        let mut reasons = Vec::new();
        for address in addresses {
            let peer = reach.anywhere(Uuid::nil(), *address);
            let place = NodeAddress {
                address: peer.address,
                tls: peer.tls,
            };
            let answer = match rpc.ask(place, wire::REJOIN, Vec::new(), ANSWER_TIMEOUT).await {
                Ok((host, Ok(answer))) if host != host_id.0 => answer,
                Ok((_, Ok(_))) => {
                    return Err(RejoinError::Refused(format!(
                        "this node runs at {address}; stop it first"
                    )));
                }
                Ok((_, Err(error))) => {
                    reasons.push(format!("{address}: {error}"));
                    continue;
                }
                Err(error) => {
                    reasons.push(format!("{address}: {error}"));
                    continue;
                }
            };
            match JoinAnswer::decode(&answer) {
                Ok(JoinAnswer::Welcome(bytes)) => {
                    return Metadata::decode(&bytes, &Known::everything())
                        .map_err(|e| RejoinError::Refused(e.to_string()));
                }
                Ok(JoinAnswer::Refused(why)) => return Err(RejoinError::Refused(why)),
                Ok(JoinAnswer::Later(why)) => reasons.push(format!("{address}: {why}")),
                Err(error) => reasons.push(format!("{address}: {error}")),
            }
        }
        if runtime::now() >= deadline {
            return Err(RejoinError::NotNow(reasons.join("; ")));
        }
        runtime::sleep(ROUND).await;
    }
}

impl Cluster {
    /// Decides about a node that has lost its metadata and asks for it.
    pub(crate) async fn let_rejoin(&self, host_id: HostId) -> JoinAnswer {
        let refused = |why: String| JoinAnswer::Refused(why);
        if let Err(error) = self.barrier().await {
            return JoinAnswer::Later(error.to_string());
        }
        let metadata = self.metadata();
        match metadata.topology.node(host_id).map(|node| node.state) {
            None => {
                return refused(format!(
                    "host id {host_id} never was a member of cluster '{}': start the node on an empty data directory to join as a new one",
                    metadata.topology.cluster_name()
                ));
            }
            Some(NodeState::Left) => {
                return refused(format!(
                    "host id {host_id} has left the cluster, or was removed, and its data is out of date: start the node on an empty data directory"
                ));
            }
            Some(_) if metadata.topology.is_excluded(host_id) => {
                return refused(format!(
                    "host id {host_id} was excluded, and its data is out of date: start the node on an empty data directory"
                ));
            }
            Some(NodeState::Joining | NodeState::Normal | NodeState::Leaving) => {}
        }
        if let Some(address) = self.answers(host_id).await {
            return refused(format!(
                "host id {host_id} is alive at {address}; stop that process first"
            ));
        }
        if self.peers.is_live(host_id) {
            return JoinAnswer::Later(format!("node {host_id} answered a moment ago"));
        }
        let Some(number) = metadata.topology.number(host_id) else {
            return JoinAnswer::Later("the node has no number".to_owned());
        };
        let Some(generation) = metadata.generation_of(number).checked_add(1) else {
            return refused(format!("node {host_id} has rejoined as often as it can"));
        };
        match self.propose(Command::Rejoin { host_id, generation }).await {
            Ok(metadata) => {
                log::info!("node {host_id} takes new metadata and gets a new Raft id");
                JoinAnswer::Welcome(metadata.encode())
            }
            Err(error) => JoinAnswer::Later(error.to_string()),
        }
    }

    /// Where a process with a member's identity answers now, if one does where the member was.
    pub(crate) async fn answers(&self, host_id: HostId) -> Option<SocketAddr> {
        let metadata = self.metadata();
        let registered = metadata.topology.node(host_id).map(|node| node.internode);
        let of_host = self.peers.addresses().into_iter().filter(|(host, _)| *host == host_id);
        let places: BTreeSet<SocketAddr> = registered
            .into_iter()
            .chain(of_host.map(|(_, address)| address))
            .collect();
        for address in places {
            // No process has the incarnation 0 but by a chance of one in 2^64.
            if has_identity_elsewhere(&self.config, &self.rpc, host_id, address, 0).await {
                return Some(address);
            }
        }
        None
    }

    /// Whether a new node may take the place of a member.
    ///
    /// # Errors
    /// A sentence that says why not.
    pub(crate) async fn why_not_replaced(&self, metadata: &Metadata, host_id: HostId) -> Result<(), String> {
        if let Some(address) = self.answers(host_id).await {
            return Err(format!(
                "Node {host_id} is alive at {address}. Stop it before it is replaced."
            ));
        }
        removal::check_alone(metadata, host_id)
            .map_err(|why| format!("Node {host_id} cannot be replaced, for its data is nowhere else: {why}."))
    }

    /// Whether a node that is down and has data may be given up: whether the others can rebuild its copies.
    async fn check_give_up(&self, metadata: &Arc<Metadata>, host_id: HostId) -> Result<(), ChangeError> {
        removal::check_ring(metadata, host_id, true).map_err(ChangeError::Refused)?;
        // A zero-token node has nothing that must go anywhere.
        let is_empty = metadata.topology.is_zero_token(host_id);
        let why = if is_empty {
            None
        } else {
            self.why_it_cannot_leave(metadata, host_id, Role::Lost).await
        };
        why.map_or(Ok(()), |why| Err(ChangeError::Refused(why)))
    }

    /// Gives up a node that is down and has data or a vote, and waits until the others have rebuilt its copies and have
    /// its vote.
    async fn give_up(&self, host_id: HostId) -> Result<(), ChangeError> {
        let replaced_by = None;
        self.propose_to_ring(TopologyCommand::GiveUp { host_id, replaced_by })
            .await?;
        log::info!("node {host_id} is given up: the others rebuild the copies that it had");
        self.has_left(host_id).await
    }

    /// Permanently removes a node that is down. If it has tablets, returns when the others have rebuilt its copies.
    /// Refused where another node would own data that it does not have; see `removal.rs`.
    ///
    /// # Errors
    /// [`ChangeError`], with the reason.
    pub async fn remove_node(&self, host_id: HostId) -> Result<(), ChangeError> {
        self.remove_node_ignoring(host_id, &[]).await
    }

    /// As [`Self::remove_node`]. `ignored` are other dead members, which are excluded before: nothing waits for them.
    /// As they may not come back, none is excluded unless the node can be removed without them.
    ///
    /// # Errors
    /// [`ChangeError`], with the reason.
    pub async fn remove_node_ignoring(&self, host_id: HostId, ignored: &[HostId]) -> Result<(), ChangeError> {
        if host_id == self.config.host_id {
            return Err(ChangeError::Refused(
                "this node runs; a node is removed through another one when it is down".to_owned(),
            ));
        }
        let metadata = self.barrier().await?;
        let is_member = metadata.topology.members().any(|node| node.host_id == host_id);
        if is_member {
            self.check_dead(host_id, "removed").await?;
        }
        let without = metadata.excluding(ignored).map_err(ChangeError::Refused)?;
        let can_go_now = removal::check(&without, host_id);
        let joins = |node: &topology::Node| node.state == NodeState::Joining;
        let is_joining = without.topology.node(host_id).is_some_and(joins);
        let votes = without
            .topology
            .number(host_id)
            .is_some_and(|number| self.votes(number));
        // Others get its vote before its place, so one that has nothing else is given up, too.
        let has_something = can_go_now.is_err() || votes;
        let is_given_up = is_member && !is_joining && has_something;
        if is_given_up {
            self.check_give_up(&Arc::new(without), host_id).await?
        } else {
            // As the group would.
            can_go_now.map_err(ChangeError::Rejected)?
        }
        self.exclude_nodes(ignored).await?;
        if is_given_up {
            return self.give_up(host_id).await;
        }
        self.propose(Command::RemoveNode { host_id }).await?;
        log::info!("node {host_id} was removed from the cluster");
        Ok(())
    }
}
