//! What a node says of itself in its system tables.

use std::collections::BTreeMap;
use std::net::IpAddr;

use topology::NodeState;
use uuid::Uuid;

use super::peer::PeerInfo;

/// A node, as its system tables describe it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeInfo {
    /// The cluster's name.
    pub cluster_name: String,
    /// The node's identity.
    pub host_id: Uuid,
    /// Where other nodes reach it.
    pub listen_address: IpAddr,
    /// The address it tells other nodes to use.
    pub broadcast_address: IpAddr,
    /// Where clients reach it.
    pub rpc_address: IpAddr,
    /// The port for clients.
    pub port: u16,
    /// The port for other nodes.
    pub storage_port: u16,
    /// Where it stands.
    pub data_center: String,
    /// Where it stands in the datacenter.
    pub rack: String,
    /// The release of Cassandra that it is to be taken for.
    pub release_version: String,
    /// The version of the language.
    pub cql_version: String,
    /// The newest version of the protocol that it speaks.
    pub native_protocol_version: String,
    /// The full class of the partitioner.
    pub partitioner: String,
    /// The tokens that it owns, in decimal.
    pub tokens: Vec<String>,
    /// How many shards it has.
    pub shards: u32,
    /// How many of the highest bits of a token do not decide its shard.
    pub shard_bits_ignored: u8,
    /// Seconds since the epoch at its start.
    pub gossip_generation: i32,
    /// Its configuration by name, for `system_views.settings`; None is a value that is not set.
    pub settings: BTreeMap<String, Option<String>>,
    /// Its part in the cluster.
    pub state: NodeState,
    /// The other nodes of its cluster, in any order.
    pub peers: Vec<PeerInfo>,
    /// Who is connected.
    pub clients: Vec<ClientInfo>,
}

impl NodeInfo {
    /// A node alone in its cluster, on one address, with the usual names and the smallest token.
    pub fn alone(host_id: Uuid, address: IpAddr, port: u16, shards: u32) -> Self {
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
            release_version: "4.1.7".to_owned(),
            cql_version: "3.4.6".to_owned(),
            native_protocol_version: "5".to_owned(),
            partitioner: "org.apache.cassandra.dht.Murmur3Partitioner".to_owned(),
            tokens: vec![i64::MIN.to_string()],
            shards,
            shard_bits_ignored: 12,
            gossip_generation: 0,
            settings: BTreeMap::new(),
            state: NodeState::Normal,
            peers: Vec::new(),
            clients: Vec::new(),
        }
    }
}

/// A connection of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientInfo {
    /// The client's address.
    pub address: IpAddr,
    /// The client's port.
    pub port: u16,
    /// The shard that serves it.
    pub shard: u32,
    /// Its host name, or its address when it has none.
    pub hostname: String,
    /// Who logged in; `anonymous` where nobody must.
    pub username: String,
    /// How far it came: `established`, `authenticating` or `ready`.
    pub connection_stage: String,
    /// The scheduling group that its requests run in.
    pub scheduling_group: String,
    /// The version of the protocol that it speaks, once it is ready.
    pub protocol_version: Option<u8>,
    /// What it said of itself at STARTUP.
    pub driver_name: Option<String>,
    /// What it said of itself at STARTUP.
    pub driver_version: Option<String>,
    /// All options of STARTUP.
    pub client_options: BTreeMap<String, String>,
    /// How many requests it made.
    pub request_count: i64,
    /// TLS protocol and cipher suite of an encrypted connection.
    pub tls: Option<(String, String)>,
}
