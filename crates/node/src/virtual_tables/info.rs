//! What a node says of itself and of the other nodes.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use ::cluster::ClientRoutes;
use config::Config;
use query::describe::DescribedNode;
use topology::NodeState;
use uuid::Uuid;

/// The release of Cassandra that a node is to be taken for.
pub(super) const RELEASE_VERSION: &str = "4.1.7";
/// The version of the language.
pub(super) const CQL_VERSION: &str = "3.4.6";

/// What a node says of itself now. Changed while it enters its cluster and when its members change; read by system
/// tables and DESCRIBE.
#[derive(Debug)]
pub(crate) struct About(Mutex<Arc<NodeInfo>>);

impl About {
    pub(crate) fn new(info: NodeInfo) -> Self {
        Self(Mutex::new(Arc::new(info)))
    }

    fn lock(&self) -> MutexGuard<'_, Arc<NodeInfo>> {
        self.0
            .lock()
            .expect("no thread panics while holding the node's identity")
    }

    /// What it says now.
    pub(crate) fn info(&self) -> Arc<NodeInfo> {
        self.lock().clone()
    }

    /// Changes what it says from here on.
    pub(crate) fn change(&self, change: impl FnOnce(&mut NodeInfo)) {
        change(Arc::make_mut(&mut self.lock()));
    }
}

/// A node, as its system tables describe it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NodeInfo {
    /// The cluster's name.
    pub(crate) cluster_name: String,
    /// The node's identity.
    pub(crate) host_id: Uuid,
    /// Where other nodes reach it.
    pub(crate) listen_address: IpAddr,
    /// The address that it announces to other nodes.
    pub(crate) broadcast_address: IpAddr,
    /// Where clients reach it.
    pub(crate) rpc_address: IpAddr,
    /// The port for clients.
    pub(crate) port: u16,
    /// The port for other nodes.
    pub(crate) storage_port: u16,
    /// Its datacenter.
    pub(crate) data_center: String,
    /// Its rack in the datacenter.
    pub(crate) rack: String,
    /// The release of Cassandra that it is to be taken for.
    pub(crate) release_version: String,
    /// The version of the language.
    pub(crate) cql_version: String,
    /// The newest version of the protocol that it speaks.
    pub(crate) native_protocol_version: String,
    /// The full class of the partitioner.
    pub(crate) partitioner: String,
    /// The tokens that it owns, in decimal.
    pub(crate) tokens: Vec<String>,
    /// How many shards it has.
    pub(crate) shards: u32,
    /// How many of the highest bits of a token do not decide its shard.
    pub(crate) shard_bits_ignored: u8,
    /// Seconds since the epoch at its start.
    pub(crate) gossip_generation: i32,
    /// Its configuration by name, for `system_views.settings`; None is a value that is not set.
    pub(crate) settings: BTreeMap<String, Option<String>>,
    /// Its part in the cluster.
    pub(crate) state: NodeState,
    /// The other nodes of its cluster, in any order.
    pub(crate) peers: Vec<PeerInfo>,
    /// Where clients reach the nodes through proxies.
    pub(crate) client_routes: Arc<ClientRoutes>,
}

impl NodeInfo {
    /// A node alone in its cluster, on one address, with the usual names and the smallest token.
    pub(crate) fn alone(host_id: Uuid, address: IpAddr, port: u16, shards: u32) -> Self {
        Self {
            cluster_name: "ceto".to_owned(),
            host_id,
            listen_address: address,
            broadcast_address: address,
            rpc_address: address,
            port,
            storage_port: 7000,
            data_center: "datacenter1".to_owned(),
            rack: "rack1".to_owned(),
            release_version: RELEASE_VERSION.to_owned(),
            cql_version: CQL_VERSION.to_owned(),
            native_protocol_version: "5".to_owned(),
            partitioner: "org.apache.cassandra.dht.Murmur3Partitioner".to_owned(),
            tokens: vec![i64::MIN.to_string()],
            shards,
            shard_bits_ignored: 12,
            gossip_generation: 0,
            settings: BTreeMap::new(),
            state: NodeState::Normal,
            peers: Vec::new(),
            client_routes: Arc::default(),
        }
    }

    /// The node of a configuration, before it has entered its cluster.
    pub(crate) fn of(config: &Config, host_id: Uuid) -> Self {
        Self {
            cluster_name: config.cluster_name.clone(),
            data_center: config.data_center.clone(),
            rack: config.rack.clone(),
            listen_address: config.listen_address,
            broadcast_address: config.broadcast_address,
            storage_port: config.storage_port,
            settings: config.settings.clone(),
            ..Self::alone(host_id, config.rpc_address, config.native_transport_port, config.smp)
        }
    }

    /// What DESCRIBE CLUSTER says of it.
    pub(crate) fn described(&self) -> DescribedNode {
        DescribedNode {
            cluster_name: self.cluster_name.clone(),
            partitioner: self.partitioner.clone(),
            endpoint: SocketAddr::new(self.broadcast_address, self.storage_port),
            tokens: self.tokens.clone(),
        }
    }
}

/// Another node of the cluster, as the system tables describe it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PeerInfo {
    /// Its identity.
    pub(crate) host_id: Uuid,
    /// Where other nodes reach it.
    pub(crate) internode: SocketAddr,
    /// Where clients reach it; never a wildcard.
    pub(crate) native: SocketAddr,
    /// Its datacenter.
    pub(crate) data_center: String,
    /// Its rack in the datacenter.
    pub(crate) rack: String,
    /// The release of Cassandra that it is to be taken for.
    pub(crate) release_version: String,
    /// The schema that it has, as far as this node knows.
    pub(crate) schema_version: Option<Uuid>,
    /// The tokens that it owns, in decimal.
    pub(crate) tokens: Vec<String>,
    /// Its part in the cluster.
    pub(crate) state: NodeState,
    /// Whether it is a zero-token node.
    pub(crate) is_zero_token: bool,
    /// Whether it is lost and another node has its place.
    pub(crate) is_superseded: bool,
    /// Whether it answers.
    pub(crate) up: bool,
}

impl PeerInfo {
    /// Whether drivers find it in the system tables. Cassandra does not list nodes that join, that have left or that
    /// were replaced. A zero-token node serves clients that connect to it and has no data that a driver could look for
    /// there: in ScyllaDB drivers ignore it.
    pub(crate) fn is_member(&self) -> bool {
        match self.state {
            NodeState::Normal | NodeState::Leaving => !self.is_zero_token && !self.is_superseded,
            NodeState::Joining | NodeState::Left => false,
        }
    }
}
