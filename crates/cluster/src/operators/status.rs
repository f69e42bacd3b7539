//! Status reports for operators.

use crate::members::peers::raft_id;
use crate::messages::wire;
use crate::metadata::bytes::Malformed;
use crate::service::Cluster;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use topology::{ClockVerdict, DiskLevel, HostId, Location, NodeNumber, NodeState};
use uuid::Uuid;

/// A node's part in the metadata group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Leads; has a vote.
    Leader,
    /// Has a vote.
    Voter,
    /// Gets the log without a vote.
    Learner,
    /// Is not in the group yet, or not any more.
    None,
}

/// A member, as this node sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberStatus {
    /// Its identity.
    pub host_id: HostId,
    /// Its number.
    pub number: NodeNumber,
    /// Its part in the cluster.
    pub state: NodeState,
    /// Where other nodes reach it.
    pub internode: SocketAddr,
    /// Its location.
    pub location: Location,
    /// Whether it answers.
    pub is_live: bool,
    /// Whether it is a zero-token node.
    pub is_zero_token: bool,
    /// Whether an operator has excluded it: it is down permanently.
    pub is_excluded: bool,
    /// Whether its log takes writes, as far as it has not said otherwise.
    pub takes_writes: bool,
    /// How full its disks are, as far as it has said.
    pub disk: DiskLevel,
    /// For how long it has not answered.
    pub down_for: Duration,
    /// The schema version that it said last.
    pub schema_version: Option<Uuid>,
    /// How far it has applied the log, as it said last.
    pub log_index: u64,
    /// Its part in the metadata group.
    pub role: Role,
    /// The lowest index at which its metadata is known to differ from this node's.
    pub differs_at: Option<u64>,
}

/// The cluster, as this node sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Its name.
    pub cluster_name: String,
    /// Its id.
    pub cluster_id: Uuid,
    /// The last command that was applied here.
    pub log_index: u64,
    /// The schema's version.
    pub schema_version: Uuid,
    /// The topology's version.
    pub topology_version: u64,
    /// The leader of the metadata group.
    pub leader: Option<HostId>,
    /// All nodes that have not left, in the order in which they were added.
    pub members: Vec<MemberStatus>,
    /// The metadata group's own description of itself.
    pub raft: consensus::Status,
    /// What this node makes of its wall clock.
    pub clock: ClockVerdict,
    /// Whether this node has not left service because of its clock.
    pub is_in_service: bool,
    /// Why metadata cannot be kept at the moment.
    pub disk_error: Option<String>,
    /// Why this node takes no part in the metadata group.
    pub withdrawn: Option<String>,
    /// Why this node cannot read what the other members have agreed on, and so takes no change of the metadata.
    pub unreadable: Option<String>,
}

/// How long a member may take to answer with a number.
const NUMBER_WAIT_MAX: Duration = Duration::from_secs(1);

impl Cluster {
    /// Bytes of the sstables of each other member that reports them in time.
    pub async fn loads(&self) -> BTreeMap<HostId, u64> {
        let others = self
            .peers
            .live()
            .into_iter()
            .filter(|host| *host != self.config.host_id);
        self.ask_all(others, (wire::LOAD, &[]), wire::decode_load).await
    }

    /// Asks nodes for a number each, all at once. Nodes that do not answer in time are left out.
    pub(crate) async fn ask_all<T>(
        &self,
        hosts: impl Iterator<Item = HostId>,
        (verb, body): (u16, &[u8]),
        decode: fn(&[u8]) -> Result<T, Malformed>,
    ) -> BTreeMap<HostId, T> {
        let asked: Vec<_> = hosts
            .filter_map(|host| Some((host, self.peers.peer(host)?)))
            .map(|(host, peer)| {
                let answer = self.peers.rpc().call(&peer, 0, verb, body.to_vec(), NUMBER_WAIT_MAX);
                (host, answer)
            })
            .collect();
        let mut answers = BTreeMap::new();
        for (host, answer) in asked {
            if let Ok(answer) = answer.await
                && let Ok(said) = decode(&answer)
            {
                answers.insert(host, said);
            }
        }
        answers
    }

    /// The cluster, as this node sees it.
    #[must_use]
    pub fn status(&self) -> Status {
        let (metadata, raft) = (self.metadata(), self.consensus.status());
        let versions = self.peers.schema_versions();
        let differing = self.differing();
        let topology = &metadata.topology;
        let members = topology
            .numbered_nodes()
            .filter(|(_, node)| node.state != NodeState::Left);
        let members = members.map(|(number, node)| {
            let (host_id, id) = (node.host_id, raft_id(number, metadata.generation_of(number)));
            let differs = differing.iter().find(|(host, _)| *host == host_id);
            let is_self = host_id == self.config.host_id;
            MemberStatus {
                host_id,
                number,
                state: node.state,
                internode: node.internode,
                location: node.location.clone(),
                is_live: self.peers.is_live(host_id),
                is_zero_token: topology.is_zero_token(host_id),
                is_excluded: topology.is_excluded(host_id),
                takes_writes: self.peers.takes_writes(host_id),
                disk: self.peers.disk_level(host_id),
                down_for: self.peers.down_for(host_id),
                schema_version: if is_self {
                    Some(metadata.schema.version)
                } else {
                    versions.get(&host_id).copied()
                },
                log_index: if is_self {
                    metadata.index
                } else {
                    self.peers.log_index(host_id)
                },
                role: if raft.leader == Some(id) {
                    Role::Leader
                } else if raft.voters.contains(&id) {
                    Role::Voter
                } else if raft.learners.contains(&id) {
                    Role::Learner
                } else {
                    Role::None
                },
                differs_at: differs.map(|(_, index)| *index),
            }
        });
        Status {
            cluster_name: topology.cluster_name().to_owned(),
            cluster_id: topology.cluster_id(),
            log_index: metadata.index,
            schema_version: metadata.schema.version,
            topology_version: topology.version(),
            leader: raft
                .leader
                .and_then(crate::members::peers::node_number)
                .and_then(|number| topology.numbered(number))
                .map(|node| node.host_id),
            members: members.collect(),
            clock: self.clock(),
            is_in_service: self.is_in_service(),
            disk_error: self.machine.disk_error.borrow().clone().or(raft.storage_error.clone()),
            withdrawn: self.withdrawn.borrow().clone(),
            unreadable: self.machine.unreadable.borrow().clone(),
            raft,
        }
    }
}
