//! The durable form of nodes, topologies and their commands: records with numbered fields. See crate `record` and
//! docs/dev/schema.md.
//!
//! A command's record has one field for each kind, of which exactly one is there. A new kind is a new field with a
//! feature.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use record::{Field, Message, Of, Record, RecordError};
use types::Token;
use uuid::Uuid;

use crate::codec::TEXT_BYTES_MAX;
use crate::command::{CommandError, TopologyCommand};
use crate::node::{HostId, Location, Loss, NODES_MAX, Node, NodeState, Topology};

/// Where something listens.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AddressRecord {
    /// The IP address: 4 or 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub ip: Vec<u8>,
    /// The port.
    #[prost(uint32, tag = "2")]
    pub port: u32,
}

/// A node.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NodeRecord {
    /// Its identity: 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub host_id: Vec<u8>,
    /// Where other nodes reach it.
    #[prost(message, optional, tag = "2")]
    pub internode: Option<AddressRecord>,
    /// Where clients reach it.
    #[prost(message, optional, tag = "3")]
    pub native: Option<AddressRecord>,
    /// Where clients choose a shard, if they can.
    #[prost(uint32, optional, tag = "4")]
    pub native_shard_aware_port: Option<u32>,
    /// Its datacenter.
    #[prost(string, tag = "5")]
    pub datacenter: String,
    /// Its rack.
    #[prost(string, tag = "6")]
    pub rack: String,
    /// How many shards it has.
    #[prost(uint32, tag = "7")]
    pub shards: u32,
    /// Its tokens, ascending.
    #[prost(sint64, repeated, packed = "false", tag = "8")]
    pub tokens: Vec<i64>,
    /// 1: joining, 2: normal, 3: leaving, 4: left.
    #[prost(uint32, tag = "9")]
    pub state: u32,
    /// What it can do, in order.
    #[prost(string, repeated, tag = "10")]
    pub features: Vec<String>,
    /// Its release.
    #[prost(string, tag = "11")]
    pub release: String,
    /// Its operator has given it up.
    #[prost(message, optional, tag = "12")]
    pub loss: Option<LossRecord>,
}

/// How a lost node leaves.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LossRecord {
    /// The node that takes its place, if one does.
    #[prost(bytes = "vec", optional, tag = "1")]
    pub replaced_by: Option<Vec<u8>>,
}

/// A topology.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TopologyRecord {
    /// How many commands made it.
    #[prost(uint64, tag = "1")]
    pub version: u64,
    /// The cluster's name.
    #[prost(string, tag = "2")]
    pub cluster_name: String,
    /// The cluster's id: 16 bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub cluster_id: Vec<u8>,
    /// What every node must be able to do, in order.
    #[prost(string, repeated, tag = "4")]
    pub enabled_features: Vec<String>,
    /// All nodes that ever were, by their numbers.
    #[prost(message, repeated, tag = "5")]
    pub nodes: Vec<NodeRecord>,
    /// The host ids of zero-token nodes, in order.
    #[prost(bytes = "vec", repeated, tag = "6")]
    pub zero_token: Vec<Vec<u8>>,
    /// The host ids of excluded nodes, in order.
    #[prost(bytes = "vec", repeated, tag = "7")]
    pub excluded: Vec<Vec<u8>>,
}

/// A change of a topology: one of these.
#[derive(Clone, PartialEq, prost::Message)]
#[expect(missing_docs, reason = "they are the kinds of TopologyCommand, under the same names")]
pub struct TopologyCommandRecord {
    #[prost(message, optional, tag = "1")]
    pub add_node: Option<NodeRecord>,
    #[prost(message, optional, tag = "2")]
    pub set_state: Option<SetStateRecord>,
    #[prost(message, optional, tag = "3")]
    pub set_tokens: Option<SetTokensRecord>,
    #[prost(message, optional, tag = "4")]
    pub change_address: Option<ChangeAddressRecord>,
    #[prost(message, optional, tag = "5")]
    pub set_shards: Option<SetShardsRecord>,
    #[prost(message, optional, tag = "6")]
    pub set_features: Option<SetFeaturesRecord>,
    #[prost(message, optional, tag = "7")]
    pub enable_features: Option<EnableFeaturesRecord>,
    #[prost(message, optional, tag = "8")]
    pub remove_node: Option<RemoveNodeRecord>,
    #[prost(message, optional, tag = "9")]
    pub give_up: Option<GiveUpRecord>,
    #[prost(message, optional, tag = "10")]
    pub become_zero_token: Option<HostRecord>,
    #[prost(message, optional, tag = "11")]
    pub exclude: Option<HostRecord>,
    #[prost(message, optional, tag = "12")]
    pub stay: Option<SetTokensRecord>,
}

/// Of a command that only names a node.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HostRecord {
    /// The node.
    #[prost(bytes = "vec", tag = "1")]
    pub host_id: Vec<u8>,
}

/// See [`TopologyCommand::SetState`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct SetStateRecord {
    /// The node.
    #[prost(bytes = "vec", tag = "1")]
    pub host_id: Vec<u8>,
    /// As in [`NodeRecord`].
    #[prost(uint32, tag = "2")]
    pub state: u32,
}

/// See [`TopologyCommand::SetTokens`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct SetTokensRecord {
    /// The node.
    #[prost(bytes = "vec", tag = "1")]
    pub host_id: Vec<u8>,
    /// As in [`NodeRecord`].
    #[prost(sint64, repeated, packed = "false", tag = "2")]
    pub tokens: Vec<i64>,
}

/// See [`TopologyCommand::ChangeAddress`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct ChangeAddressRecord {
    /// The node.
    #[prost(bytes = "vec", tag = "1")]
    pub host_id: Vec<u8>,
    /// As in [`NodeRecord`].
    #[prost(message, optional, tag = "2")]
    pub internode: Option<AddressRecord>,
    /// As in [`NodeRecord`].
    #[prost(message, optional, tag = "3")]
    pub native: Option<AddressRecord>,
    /// As in [`NodeRecord`].
    #[prost(uint32, optional, tag = "4")]
    pub native_shard_aware_port: Option<u32>,
}

/// See [`TopologyCommand::SetShards`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct SetShardsRecord {
    /// The node.
    #[prost(bytes = "vec", tag = "1")]
    pub host_id: Vec<u8>,
    /// How many.
    #[prost(uint32, tag = "2")]
    pub shards: u32,
}

/// See [`TopologyCommand::SetFeatures`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct SetFeaturesRecord {
    /// The node.
    #[prost(bytes = "vec", tag = "1")]
    pub host_id: Vec<u8>,
    /// As in [`NodeRecord`].
    #[prost(string, repeated, tag = "2")]
    pub features: Vec<String>,
    /// As in [`NodeRecord`].
    #[prost(string, tag = "3")]
    pub release: String,
}

/// See [`TopologyCommand::EnableFeatures`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct EnableFeaturesRecord {
    /// As in [`NodeRecord`].
    #[prost(string, repeated, tag = "1")]
    pub features: Vec<String>,
}

/// See [`TopologyCommand::RemoveNode`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct RemoveNodeRecord {
    /// The node.
    #[prost(bytes = "vec", tag = "1")]
    pub host_id: Vec<u8>,
}

/// See [`TopologyCommand::GiveUp`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct GiveUpRecord {
    /// The node.
    #[prost(bytes = "vec", tag = "1")]
    pub host_id: Vec<u8>,
    /// As in [`LossRecord`].
    #[prost(bytes = "vec", optional, tag = "2")]
    pub replaced_by: Option<Vec<u8>>,
}

const HOST_ID: Field = Field::new(1, "host_id", Of::Bytes);

static ADDRESS: Message = Message::new(
    "address",
    &[Field::new(1, "ip", Of::Bytes), Field::new(2, "port", Of::U32)],
);

static NODE: Message = Message::new(
    "node",
    &[
        HOST_ID,
        Field::new(2, "internode", Of::Record(&ADDRESS)),
        Field::new(3, "native", Of::Record(&ADDRESS)),
        Field::new(4, "native_shard_aware_port", Of::U32),
        Field::new(5, "datacenter", Of::Text),
        Field::new(6, "rack", Of::Text),
        Field::new(7, "shards", Of::U32),
        Field::list(8, "tokens", Of::S64),
        Field::new(9, "state", Of::U32),
        Field::list(10, "features", Of::Text),
        Field::new(11, "release", Of::Text),
        Field::new(12, "loss", Of::Record(&LOSS)),
    ],
);

static LOSS: Message = Message::new("loss", &[Field::new(1, "replaced_by", Of::Bytes)]);

/// Of [`TopologyRecord`].
pub static TOPOLOGY: Message = Message::new(
    "topology",
    &[
        Field::new(1, "version", Of::U64),
        Field::new(2, "cluster_name", Of::Text),
        Field::new(3, "cluster_id", Of::Bytes),
        Field::list(4, "enabled_features", Of::Text),
        Field::list(5, "nodes", Of::Record(&NODE)),
        Field::list(6, "zero_token", Of::Bytes),
        Field::list(7, "excluded", Of::Bytes),
    ],
);

/// Of [`TopologyCommandRecord`].
pub static COMMAND: Message = Message::new(
    "topology command",
    &[
        Field::new(1, "add_node", Of::Record(&NODE)),
        Field::new(2, "set_state", Of::Record(&SET_STATE)),
        Field::new(3, "set_tokens", Of::Record(&SET_TOKENS)),
        Field::new(4, "change_address", Of::Record(&CHANGE_ADDRESS)),
        Field::new(5, "set_shards", Of::Record(&SET_SHARDS)),
        Field::new(6, "set_features", Of::Record(&SET_FEATURES)),
        Field::new(7, "enable_features", Of::Record(&ENABLE_FEATURES)),
        Field::new(8, "remove_node", Of::Record(&REMOVE_NODE)),
        Field::new(9, "give_up", Of::Record(&GIVE_UP)),
        Field::new(10, "become_zero_token", Of::Record(&HOST)),
        Field::new(11, "exclude", Of::Record(&HOST)),
        Field::new(12, "stay", Of::Record(&SET_TOKENS)),
    ],
);

static HOST: Message = Message::new("host", &[HOST_ID]);
static SET_STATE: Message = Message::new("set_state", &[HOST_ID, Field::new(2, "state", Of::U32)]);
static SET_TOKENS: Message = Message::new("set_tokens", &[HOST_ID, Field::list(2, "tokens", Of::S64)]);
static CHANGE_ADDRESS: Message = Message::new(
    "change_address",
    &[
        HOST_ID,
        Field::new(2, "internode", Of::Record(&ADDRESS)),
        Field::new(3, "native", Of::Record(&ADDRESS)),
        Field::new(4, "native_shard_aware_port", Of::U32),
    ],
);
static SET_SHARDS: Message = Message::new("set_shards", &[HOST_ID, Field::new(2, "shards", Of::U32)]);
static SET_FEATURES: Message = Message::new(
    "set_features",
    &[
        HOST_ID,
        Field::list(2, "features", Of::Text),
        Field::new(3, "release", Of::Text),
    ],
);
static ENABLE_FEATURES: Message = Message::new("enable_features", &[Field::list(1, "features", Of::Text)]);
static REMOVE_NODE: Message = Message::new("remove_node", &[HOST_ID]);
static GIVE_UP: Message = Message::new("give_up", &[HOST_ID, Field::new(2, "replaced_by", Of::Bytes)]);

impl Record for NodeRecord {
    const MESSAGE: &'static Message = &NODE;
}

impl Record for TopologyRecord {
    const MESSAGE: &'static Message = &TOPOLOGY;
}

impl Record for TopologyCommandRecord {
    const MESSAGE: &'static Message = &COMMAND;
}

impl NodeRecord {
    /// That of a node.
    #[must_use]
    pub fn of(node: &Node) -> Self {
        Self {
            host_id: id_bytes(node.host_id.0),
            internode: Some(address_record(node.internode)),
            native: Some(address_record(node.native)),
            native_shard_aware_port: node.native_shard_aware_port.map(u32::from),
            datacenter: node.location.datacenter.clone(),
            rack: node.location.rack.clone(),
            shards: u32::from(node.shards),
            tokens: node.tokens.iter().map(|token| token.0).collect(),
            state: state_number(node.state),
            features: node.features.iter().cloned().collect(),
            release: node.release.clone(),
            loss: node.loss.map(|loss| LossRecord {
                replaced_by: loss.replaced_by.map(|heir| id_bytes(heir.0)),
            }),
        }
    }

    /// The node of it.
    ///
    /// # Errors
    /// When it describes none.
    pub fn node(self) -> Result<Node, RecordError> {
        let host_id = host_id(&self.host_id, "node, host_id")?;
        let at = |field: &str| format!("node {host_id}, {field}");
        Ok(Node {
            host_id,
            internode: address(self.internode, &at("internode"))?,
            native: address(self.native, &at("native"))?,
            native_shard_aware_port: port(self.native_shard_aware_port, &at("native_shard_aware_port"))?,
            location: Location {
                datacenter: short(self.datacenter, &at("datacenter"))?,
                rack: short(self.rack, &at("rack"))?,
            },
            shards: small(self.shards, &at("shards"))?,
            tokens: self.tokens.into_iter().map(Token).collect(),
            state: state(self.state, &at("state"))?,
            features: texts(self.features, &at("features"))?,
            release: short(self.release, &at("release"))?,
            loss: match self.loss {
                Some(record) => Some(Loss {
                    replaced_by: heir(record.replaced_by, &at("loss, replaced_by"))?,
                }),
                None => None,
            },
        })
    }
}

impl TopologyRecord {
    /// That of a topology.
    #[must_use]
    pub fn of(topology: &Topology) -> Self {
        Self {
            version: topology.version,
            cluster_name: topology.cluster_name.clone(),
            cluster_id: id_bytes(topology.cluster_id),
            enabled_features: topology.enabled_features.iter().cloned().collect(),
            nodes: topology
                .numbered_nodes()
                .map(|(_, node)| NodeRecord::of(node))
                .collect(),
            zero_token: topology.zero_token.iter().map(|host| id_bytes(host.0)).collect(),
            excluded: topology.excluded.iter().map(|host| id_bytes(host.0)).collect(),
        }
    }

    /// The topology of it.
    ///
    /// # Errors
    /// When it describes what cannot be.
    pub fn topology(self) -> Result<Topology, RecordError> {
        let mut topology = Topology {
            version: self.version,
            cluster_name: short(self.cluster_name, "topology, cluster_name")?,
            cluster_id: id(&self.cluster_id, "topology, cluster_id")?,
            enabled_features: texts(self.enabled_features, "topology, enabled_features")?,
            nodes: BTreeMap::new(),
            numbers: Vec::new(),
            zero_token: BTreeSet::new(),
            excluded: BTreeSet::new(),
        };
        if self.nodes.len() > NODES_MAX {
            let why = format!("expected at most {NODES_MAX}, found {}", self.nodes.len());
            return Err(RecordError::damaged("topology, nodes", why));
        }
        for node in self.nodes {
            let node = node.node()?;
            let checked = topology.check_stored(&node);
            checked.map_err(|e| RecordError::damaged("topology, nodes", e.to_string()))?;
            topology.numbers.push(node.host_id);
            topology.nodes.insert(node.host_id, node);
        }
        topology.zero_token = topology.members_of(&self.zero_token, "topology, zero_token")?;
        topology.excluded = topology.members_of(&self.excluded, "topology, excluded")?;
        let has_tokens = |host: &&HostId| topology.nodes.get(*host).is_some_and(|node| !node.tokens.is_empty());
        if let Some(host) = topology.zero_token.iter().find(has_tokens) {
            let why = format!("node {host} is a zero-token node and has tokens");
            return Err(RecordError::damaged("topology, zero_token", why));
        }
        Ok(topology)
    }
}

impl Topology {
    /// The members of these host ids.
    fn members_of(&self, hosts: &[Vec<u8>], place: &str) -> Result<BTreeSet<HostId>, RecordError> {
        let member = |bytes: &Vec<u8>| {
            let host = host_id(bytes, place)?;
            match self.nodes.get(&host) {
                Some(node) if node.state != NodeState::Left => Ok(host),
                _ => Err(RecordError::damaged(place, format!("node {host} is not a member"))),
            }
        };
        hosts.iter().map(member).collect()
    }

    /// What holds of a node of the record against those before it.
    fn check_stored(&self, node: &Node) -> Result<(), CommandError> {
        let host_id = node.host_id;
        if self.nodes.contains_key(&host_id) {
            return Err(CommandError::KnownNode(host_id));
        }
        if node.state == NodeState::Left {
            if !node.tokens.is_empty() {
                let what = "are there although it left";
                return Err(CommandError::Tokens { host_id, what });
            }
            return Ok(());
        }
        self.check_node(node)?;
        self.check_features(host_id, &node.features)
    }
}

impl TopologyCommandRecord {
    /// That of a command.
    #[must_use]
    pub fn of(command: &TopologyCommand) -> Self {
        let mut record = Self::default();
        match command {
            TopologyCommand::AddNode(node) => record.add_node = Some(NodeRecord::of(node)),
            TopologyCommand::SetState { host_id, state } => {
                record.set_state = Some(SetStateRecord {
                    host_id: id_bytes(host_id.0),
                    state: state_number(*state),
                });
            }
            TopologyCommand::SetTokens { host_id, tokens } => {
                record.set_tokens = Some(SetTokensRecord {
                    host_id: id_bytes(host_id.0),
                    tokens: tokens.iter().map(|token| token.0).collect(),
                });
            }
            TopologyCommand::ChangeAddress {
                host_id,
                internode,
                native,
                native_shard_aware_port,
            } => {
                record.change_address = Some(ChangeAddressRecord {
                    host_id: id_bytes(host_id.0),
                    internode: Some(address_record(*internode)),
                    native: Some(address_record(*native)),
                    native_shard_aware_port: native_shard_aware_port.map(u32::from),
                });
            }
            TopologyCommand::SetShards { host_id, shards } => {
                record.set_shards = Some(SetShardsRecord {
                    host_id: id_bytes(host_id.0),
                    shards: u32::from(*shards),
                });
            }
            TopologyCommand::SetFeatures {
                host_id,
                features,
                release,
            } => {
                record.set_features = Some(SetFeaturesRecord {
                    host_id: id_bytes(host_id.0),
                    features: features.iter().cloned().collect(),
                    release: release.clone(),
                });
            }
            TopologyCommand::EnableFeatures(features) => {
                record.enable_features = Some(EnableFeaturesRecord {
                    features: features.iter().cloned().collect(),
                });
            }
            TopologyCommand::GiveUp { host_id, replaced_by } => {
                record.give_up = Some(GiveUpRecord {
                    host_id: id_bytes(host_id.0),
                    replaced_by: replaced_by.map(|heir| id_bytes(heir.0)),
                });
            }
            TopologyCommand::BecomeZeroToken { host_id } => record.become_zero_token = Some(HostRecord::of(*host_id)),
            TopologyCommand::Exclude { host_id } => record.exclude = Some(HostRecord::of(*host_id)),
            TopologyCommand::Stay { host_id, tokens } => {
                record.stay = Some(SetTokensRecord {
                    host_id: id_bytes(host_id.0),
                    tokens: tokens.iter().map(|token| token.0).collect(),
                });
            }
            TopologyCommand::RemoveNode { host_id } => {
                record.remove_node = Some(RemoveNodeRecord {
                    host_id: id_bytes(host_id.0),
                });
            }
        }
        record
    }

    /// The command of it.
    ///
    /// # Errors
    /// When it describes none.
    pub fn command(self) -> Result<TopologyCommand, RecordError> {
        let mut kinds = self.kinds()?;
        match (kinds.pop(), kinds.is_empty()) {
            (Some(command), true) => Ok(command),
            (None, _) => Err(RecordError::damaged("topology command", "it has no kind")),
            (Some(_), false) => Err(RecordError::damaged("topology command", "it has two kinds")),
        }
    }

    /// The commands that are there.
    fn kinds(self) -> Result<Vec<TopologyCommand>, RecordError> {
        let mut kinds = Vec::new();
        if let Some(node) = self.add_node {
            kinds.push(TopologyCommand::AddNode(Box::new(node.node()?)));
        }
        if let Some(record) = self.set_state {
            kinds.push(TopologyCommand::SetState {
                host_id: host_id(&record.host_id, "set_state, host_id")?,
                state: state(record.state, "set_state, state")?,
            });
        }
        if let Some(record) = self.set_tokens {
            kinds.push(TopologyCommand::SetTokens {
                host_id: host_id(&record.host_id, "set_tokens, host_id")?,
                tokens: record.tokens.into_iter().map(Token).collect(),
            });
        }
        if let Some(record) = self.change_address {
            kinds.push(TopologyCommand::ChangeAddress {
                host_id: host_id(&record.host_id, "change_address, host_id")?,
                internode: address(record.internode, "change_address, internode")?,
                native: address(record.native, "change_address, native")?,
                native_shard_aware_port: port(
                    record.native_shard_aware_port,
                    "change_address, native_shard_aware_port",
                )?,
            });
        }
        if let Some(record) = self.set_shards {
            kinds.push(TopologyCommand::SetShards {
                host_id: host_id(&record.host_id, "set_shards, host_id")?,
                shards: small(record.shards, "set_shards, shards")?,
            });
        }
        if let Some(record) = self.set_features {
            kinds.push(TopologyCommand::SetFeatures {
                host_id: host_id(&record.host_id, "set_features, host_id")?,
                features: texts(record.features, "set_features, features")?,
                release: short(record.release, "set_features, release")?,
            });
        }
        if let Some(record) = self.enable_features {
            let features = texts(record.features, "enable_features, features")?;
            kinds.push(TopologyCommand::EnableFeatures(features));
        }
        if let Some(record) = self.remove_node {
            let host_id = host_id(&record.host_id, "remove_node, host_id")?;
            kinds.push(TopologyCommand::RemoveNode { host_id });
        }
        if let Some(record) = self.give_up {
            kinds.push(TopologyCommand::GiveUp {
                host_id: host_id(&record.host_id, "give_up, host_id")?,
                replaced_by: heir(record.replaced_by, "give_up, replaced_by")?,
            });
        }
        if let Some(record) = self.become_zero_token {
            let host_id = host_id(&record.host_id, "become_zero_token, host_id")?;
            kinds.push(TopologyCommand::BecomeZeroToken { host_id });
        }
        if let Some(record) = self.exclude {
            let host_id = host_id(&record.host_id, "exclude, host_id")?;
            kinds.push(TopologyCommand::Exclude { host_id });
        }
        if let Some(record) = self.stay {
            kinds.push(TopologyCommand::Stay {
                host_id: host_id(&record.host_id, "stay, host_id")?,
                tokens: record.tokens.into_iter().map(Token).collect(),
            });
        }
        Ok(kinds)
    }
}

impl HostRecord {
    fn of(host_id: HostId) -> Self {
        Self {
            host_id: id_bytes(host_id.0),
        }
    }
}

fn id_bytes(id: Uuid) -> Vec<u8> {
    id.as_bytes().to_vec()
}

fn id(bytes: &[u8], place: &str) -> Result<Uuid, RecordError> {
    let why = || format!("expected the 16 bytes of a UUID, found {}", bytes.len());
    Uuid::from_slice(bytes).map_err(|_| RecordError::damaged(place, why()))
}

fn heir(bytes: Option<Vec<u8>>, place: &str) -> Result<Option<HostId>, RecordError> {
    bytes.map(|bytes| host_id(&bytes, place)).transpose()
}

fn host_id(bytes: &[u8], place: &str) -> Result<HostId, RecordError> {
    id(bytes, place).map(HostId)
}

fn small(number: u32, place: &str) -> Result<u16, RecordError> {
    let why = || format!("expected at most {}, found {number}", u16::MAX);
    u16::try_from(number).map_err(|_| RecordError::damaged(place, why()))
}

/// Port 0 is none: nothing listens there.
fn port(number: Option<u32>, place: &str) -> Result<Option<u16>, RecordError> {
    match number {
        Some(0) => Err(RecordError::damaged(place, "there is no port 0")),
        number => number.map(|number| small(number, place)).transpose(),
    }
}

fn short(text: String, place: &str) -> Result<String, RecordError> {
    if text.len() > TEXT_BYTES_MAX {
        let why = format!("expected at most {TEXT_BYTES_MAX} bytes, found {}", text.len());
        return Err(RecordError::damaged(place, why));
    }
    Ok(text)
}

fn texts(texts: Vec<String>, place: &str) -> Result<BTreeSet<String>, RecordError> {
    if !texts.is_sorted_by(|a, b| a < b) {
        return Err(RecordError::damaged(place, "expected names in order, each once"));
    }
    texts.into_iter().map(|text| short(text, place)).collect()
}

fn address_record(address: SocketAddr) -> AddressRecord {
    AddressRecord {
        ip: match address.ip() {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        },
        port: u32::from(address.port()),
    }
}

fn address(record: Option<AddressRecord>, place: &str) -> Result<SocketAddr, RecordError> {
    let record = record.ok_or_else(|| RecordError::damaged(place, "it is missing"))?;
    let ip = <[u8; 4]>::try_from(record.ip.as_slice())
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(record.ip.as_slice()).map(IpAddr::from));
    let why = |_| RecordError::damaged(place, "expected an IP address of 4 or 16 bytes");
    Ok(SocketAddr::new(ip.map_err(why)?, small(record.port, place)?))
}

fn state_number(state: NodeState) -> u32 {
    match state {
        NodeState::Joining => 1,
        NodeState::Normal => 2,
        NodeState::Leaving => 3,
        NodeState::Left => 4,
    }
}

fn state(number: u32, place: &str) -> Result<NodeState, RecordError> {
    Ok(match number {
        1 => NodeState::Joining,
        2 => NodeState::Normal,
        3 => NodeState::Leaving,
        4 => NodeState::Left,
        other => {
            let why = format!("expected a state from 1 to 4, found {other}");
            return Err(RecordError::damaged(place, why));
        }
    })
}
