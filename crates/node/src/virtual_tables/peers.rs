//! `system.peers`, `system.peers_v2` and `system.cluster_status`: the other nodes, in Cassandra's and in ScyllaDB's
//! columns.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use system_tables::{Content, Definition, Opening, Options, Partitions, Request, Rows, Value, VirtualTable, ready};
use topology::NodeState;
use uuid::Uuid;

use super::info::{About, NodeInfo, PeerInfo};
use super::own::SUPPORTED_FEATURES;

static PEERS: Definition = Definition {
    keyspace: "system",
    cql: "peers (peer inet PRIMARY KEY, data_center text, host_id uuid, preferred_ip inet, rack text, \
     release_version text, rpc_address inet, schema_version uuid, supported_features text, tokens set<text>)",
    options: Options::NO_GRACE,
};

static PEERS_V2: Definition = Definition {
    keyspace: "system",
    cql: "peers_v2 (peer inet, peer_port int, data_center text, host_id uuid, native_address inet, native_port int, \
     preferred_ip inet, preferred_port int, rack text, release_version text, schema_version uuid, tokens set<text>, \
     PRIMARY KEY (peer, peer_port))",
    options: Options::NO_GRACE,
};

static CLUSTER_STATUS: Definition = Definition {
    keyspace: "system",
    cql: "cluster_status (peer inet PRIMARY KEY, dc text, host_id uuid, load text, owns float, status text, \
     tokens int, up boolean)",
    options: Options::NO_GRACE,
};

/// `system.peers`, which knows nodes by their address alone.
pub(super) struct Peers(pub(super) Arc<About>);

/// `system.peers_v2`, which knows nodes by address and port.
pub(super) struct PeersV2(pub(super) Arc<About>);

/// `system.cluster_status`: all nodes that have not left, this one too.
pub(super) struct ClusterStatus(pub(super) Arc<About>);

impl VirtualTable for Peers {
    fn definition(&self) -> &'static Definition {
        &PEERS
    }

    fn open(&self, request: Request) -> Opening<'_> {
        // Of several at one address it has the first.
        let mut members = members(&self.0.info());
        members.dedup_by_key(|peer| peer.internode.ip());
        ready(PeersContent {
            addresses: of_addresses(members, &request),
            row: peers_row,
        })
    }
}

impl VirtualTable for PeersV2 {
    fn definition(&self) -> &'static Definition {
        &PEERS_V2
    }

    fn open(&self, request: Request) -> Opening<'_> {
        let mut members = members(&self.0.info());
        members.dedup_by_key(|peer| peer.internode);
        ready(PeersContent {
            addresses: of_addresses(members, &request),
            row: peers_v2_row,
        })
    }
}

impl VirtualTable for ClusterStatus {
    fn definition(&self) -> &'static Definition {
        &CLUSTER_STATUS
    }

    fn open(&self, _: Request) -> Opening<'_> {
        ready(StatusContent(status(&self.0.info())))
    }
}

/// The members, those of one address next to each other and the one that answers first among them.
fn members(node: &NodeInfo) -> Vec<PeerInfo> {
    let mut members: Vec<PeerInfo> = node.peers.iter().filter(|peer| peer.is_member()).cloned().collect();
    members.sort_by_key(|peer| (peer.internode, !peer.up, peer.host_id));
    members
}

/// The address of several nodes, and the nodes by port.
type OfAddress = (IpAddr, Vec<PeerInfo>);

/// Nodes by the address that is their partition, those that the read wants. They come in the order of [`members`].
fn of_addresses(members: Vec<PeerInfo>, request: &Request) -> Vec<OfAddress> {
    let mut by_address: Vec<OfAddress> = Vec::new();
    for peer in members {
        let address = peer.internode.ip();
        match by_address.last_mut() {
            Some((last, peers)) if *last == address => peers.push(peer),
            _ if request.wanted.includes(&octets(address)) => by_address.push((address, vec![peer])),
            _ => {}
        }
    }
    by_address
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn tokens(peer: &PeerInfo) -> Value<'_> {
    Value::Texts(peer.tokens.iter().map(String::as_str).collect())
}

/// Nodes by their address, in the columns of one of the tables.
struct PeersContent {
    addresses: Vec<OfAddress>,
    row: fn(&PeerInfo, &mut Rows<'_>),
}

impl Content for PeersContent {
    fn partitions(&self, partitions: &mut Partitions) {
        for (number, (address, _)) in self.addresses.iter().enumerate() {
            partitions.add(number, &[Value::Inet(*address)]);
        }
    }

    fn rows(&self, partition: usize, rows: &mut Rows<'_>) {
        for peer in &self.addresses[partition].1 {
            (self.row)(peer, rows);
        }
    }
}

/// Clients wait after a schema change until all that have a version have the same one: a node that is down does not get
/// it now.
fn schema_version(peer: &PeerInfo) -> Value<'static> {
    Value::uuid(peer.schema_version.filter(|_| peer.up))
}

fn peers_row(peer: &PeerInfo, rows: &mut Rows<'_>) {
    rows.push(&[
        ("peer", Value::Inet(peer.internode.ip())),
        ("data_center", Value::Text(&peer.data_center)),
        ("host_id", Value::Uuid(peer.host_id)),
        ("preferred_ip", Value::Null),
        ("rack", Value::Text(&peer.rack)),
        ("release_version", Value::Text(&peer.release_version)),
        ("rpc_address", Value::Inet(peer.native.ip())),
        ("schema_version", schema_version(peer)),
        // Releases that form a cluster with this one can do it too.
        ("supported_features", Value::Text(SUPPORTED_FEATURES)),
        ("tokens", tokens(peer)),
    ]);
}

fn peers_v2_row(peer: &PeerInfo, rows: &mut Rows<'_>) {
    rows.push(&[
        ("peer", Value::Inet(peer.internode.ip())),
        ("peer_port", Value::Int(i32::from(peer.internode.port()))),
        ("data_center", Value::Text(&peer.data_center)),
        ("host_id", Value::Uuid(peer.host_id)),
        ("native_address", Value::Inet(peer.native.ip())),
        ("native_port", Value::Int(i32::from(peer.native.port()))),
        ("preferred_ip", Value::Null),
        ("preferred_port", Value::Null),
        ("rack", Value::Text(&peer.rack)),
        ("release_version", Value::Text(&peer.release_version)),
        ("schema_version", schema_version(peer)),
        ("tokens", tokens(peer)),
    ]);
}

/// What `system.cluster_status` says of a node, this one or another.
struct Status {
    peer: IpAddr,
    data_center: String,
    host_id: Uuid,
    state: NodeState,
    tokens: usize,
    owns: f32,
    up: bool,
}

/// The nodes that have not left, in the order of their addresses.
fn status(node: &NodeInfo) -> Vec<Status> {
    let own = (
        node.broadcast_address,
        &node.data_center,
        node.host_id,
        node.state,
        &node.tokens,
        true,
    );
    let others = node.peers.iter().map(|peer| {
        let address = peer.internode.ip();
        (
            address,
            &peer.data_center,
            peer.host_id,
            peer.state,
            &peer.tokens,
            peer.up,
        )
    });
    let mut all: Vec<_> = std::iter::once(own).chain(others).collect();
    all.retain(|(.., state, _, _)| *state != NodeState::Left);
    // Of two nodes at one address, the one that answers; which one is the same on each read.
    all.sort_by_key(|(address, _, host_id, .., up)| (*address, !up, *host_id));
    all.dedup_by_key(|(address, ..)| *address);
    let owns = ownership(all.iter().map(|(_, _, host_id, _, tokens, _)| (*host_id, &tokens[..])));
    let status = all
        .into_iter()
        .map(|(peer, data_center, host_id, state, tokens, up)| Status {
            peer,
            data_center: data_center.clone(),
            host_id,
            state,
            tokens: tokens.len(),
            owns: owns.get(&host_id).copied().unwrap_or(0.0),
            up,
        });
    status.collect()
}

struct StatusContent(Vec<Status>);

impl Content for StatusContent {
    fn partitions(&self, partitions: &mut Partitions) {
        for (number, status) in self.0.iter().enumerate() {
            partitions.add(number, &[Value::Inet(status.peer)]);
        }
    }

    fn rows(&self, partition: usize, rows: &mut Rows<'_>) {
        let status = &self.0[partition];
        rows.push(&[
            ("peer", Value::Inet(status.peer)),
            ("dc", Value::Text(&status.data_center)),
            ("host_id", Value::Uuid(status.host_id)),
            // How much data a node has is not known here.
            ("load", Value::Null),
            ("owns", Value::Float(status.owns)),
            ("status", Value::Text(&status.state.to_string())),
            ("tokens", Value::count(status.tokens)),
            ("up", Value::Boolean(status.up)),
        ]);
    }
}

/// Each node's part of the token ring, by host id: a token owns the range between the previous one and itself.
fn ownership<'a>(nodes: impl Iterator<Item = (Uuid, &'a [String])>) -> BTreeMap<Uuid, f32> {
    let mut ring: Vec<(i64, Uuid)> = nodes
        .flat_map(|(host, tokens)| tokens.iter().filter_map(move |token| Some((token.parse().ok()?, host))))
        .collect();
    ring.sort_unstable();
    ring.dedup_by_key(|(token, _)| *token);
    let mut owned: BTreeMap<Uuid, f64> = BTreeMap::new();
    let mut before = ring.last().map_or(0, |(token, _)| *token);
    for (token, host) in &ring {
        // Around the end of the ring the difference wraps, as the ring does; of one token alone it is none, and it owns
        // all.
        let length = match token.cmp(&before) {
            Ordering::Equal => RING,
            Ordering::Less | Ordering::Greater => {
                #[expect(clippy::cast_precision_loss, reason = "a share is shown to seven digits")]
                let length = token.wrapping_sub(before).cast_unsigned() as f64;
                length
            }
        };
        *owned.entry(*host).or_default() += length / RING;
        before = *token;
    }
    #[expect(clippy::cast_possible_truncation, reason = "a share is shown to seven digits")]
    let shares = owned.into_iter().map(|(host, share)| (host, share as f32)).collect();
    shares
}

/// The length of the token ring, 2^64.
const RING: f64 = 18_446_744_073_709_551_616.0;
