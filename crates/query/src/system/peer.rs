//! What a node says of the others in its system tables.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use topology::NodeState;
use uuid::Uuid;

use super::node::NodeInfo;
use super::rows::{Field, Rows};

/// Another node of the cluster, as the system tables describe it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerInfo {
    /// Its identity.
    pub host_id: Uuid,
    /// Where other nodes reach it.
    pub internode: SocketAddr,
    /// Where clients reach it; never a wildcard.
    pub native: SocketAddr,
    /// Where it stands.
    pub data_center: String,
    /// Where it stands in the datacenter.
    pub rack: String,
    /// The release of Cassandra that it is to be taken for.
    pub release_version: String,
    /// The schema that it has, as far as this node knows.
    pub schema_version: Option<Uuid>,
    /// The tokens that it owns, in decimal.
    pub tokens: Vec<String>,
    /// Its part in the cluster.
    pub state: NodeState,
    /// Whether it answers.
    pub up: bool,
}

impl PeerInfo {
    /// Whether drivers are told of it. One that joins serves nobody yet, and one that left never will: Cassandra lists neither.
    fn is_member(&self) -> bool {
        match self.state {
            NodeState::Normal | NodeState::Leaving => true,
            NodeState::Joining | NodeState::Left => false,
        }
    }

    fn tokens(&self) -> Field<'_> {
        Field::Texts(self.tokens.iter().map(String::as_str).collect())
    }
}

/// The members, those of one address next to each other and the one that answers first among them.
fn members(node: &NodeInfo) -> Vec<&PeerInfo> {
    let mut members: Vec<&PeerInfo> = node.peers.iter().filter(|peer| peer.is_member()).collect();
    members.sort_by_key(|peer| (peer.internode, !peer.up, peer.host_id));
    members
}

/// `system.peers`, which knows nodes by their address alone: of several at one address it has the first.
pub(super) fn peers(rows: &mut Rows<'_>, node: &NodeInfo) {
    let mut members = members(node);
    members.dedup_by_key(|peer| peer.internode.ip());
    for peer in members {
        rows.push(&[
            ("peer", Field::Inet(peer.internode.ip())),
            ("data_center", Field::Text(&peer.data_center)),
            ("host_id", Field::Uuid(peer.host_id)),
            ("rack", Field::Text(&peer.rack)),
            ("release_version", Field::Text(&peer.release_version)),
            ("rpc_address", Field::Inet(peer.native.ip())),
            ("schema_version", Field::uuid(peer.schema_version)),
            ("tokens", peer.tokens()),
        ]);
    }
}

/// `system.peers_v2`, which knows nodes by address and port.
pub(super) fn peers_v2(rows: &mut Rows<'_>, node: &NodeInfo) {
    let mut members = members(node);
    members.dedup_by_key(|peer| peer.internode);
    for peer in members {
        rows.push(&[
            ("peer", Field::Inet(peer.internode.ip())),
            ("peer_port", Field::Int(i32::from(peer.internode.port()))),
            ("data_center", Field::Text(&peer.data_center)),
            ("host_id", Field::Uuid(peer.host_id)),
            ("native_address", Field::Inet(peer.native.ip())),
            ("native_port", Field::Int(i32::from(peer.native.port()))),
            ("rack", Field::Text(&peer.rack)),
            ("release_version", Field::Text(&peer.release_version)),
            ("schema_version", Field::uuid(peer.schema_version)),
            ("tokens", peer.tokens()),
        ]);
    }
}

/// What `system.cluster_status` says of a node, this one or another.
struct Status<'a> {
    peer: IpAddr,
    data_center: &'a str,
    host_id: Uuid,
    state: NodeState,
    tokens: &'a [String],
    up: bool,
}

/// `system.cluster_status`, a table of ScyllaDB: all nodes that have not left, this one too. Loads are not known.
pub(super) fn cluster_status(rows: &mut Rows<'_>, node: &NodeInfo) {
    let own = Status {
        peer: node.broadcast_address,
        data_center: &node.data_center,
        host_id: node.host_id,
        state: node.state,
        tokens: &node.tokens,
        up: true,
    };
    let others = node.peers.iter().map(|peer| Status {
        peer: peer.internode.ip(),
        data_center: &peer.data_center,
        host_id: peer.host_id,
        state: peer.state,
        tokens: &peer.tokens,
        up: peer.up,
    });
    let mut all: Vec<Status<'_>> = std::iter::once(own).chain(others).collect();
    all.retain(|status| status.state != NodeState::Left);
    // Of two nodes at one address, the one that answers; which one is the same on each read.
    all.sort_by(|a, b| {
        let preferred = b.up.cmp(&a.up).then(a.host_id.cmp(&b.host_id));
        a.peer.cmp(&b.peer).then(preferred)
    });
    all.dedup_by_key(|status| status.peer);
    let owns = ownership(all.iter().map(|status| (status.host_id, status.tokens)));
    for status in &all {
        let tokens = i32::try_from(status.tokens.len()).unwrap_or(i32::MAX);
        let state = status.state.to_string();
        rows.push(&[
            ("peer", Field::Inet(status.peer)),
            ("dc", Field::Text(status.data_center)),
            ("host_id", Field::Uuid(status.host_id)),
            ("owns", Field::Float(owns.get(&status.host_id).copied().unwrap_or(0.0))),
            ("status", Field::Text(&state)),
            ("tokens", Field::Int(tokens)),
            ("up", Field::Boolean(status.up)),
        ]);
    }
}

/// Each node's part of the token ring, by host id: a token owns what lies between the one before and itself.
fn ownership<'a>(nodes: impl Iterator<Item = (Uuid, &'a [String])>) -> BTreeMap<Uuid, f32> {
    let mut ring: Vec<(i64, Uuid)> = nodes
        .flat_map(|(host, tokens)| tokens.iter().filter_map(move |token| Some((token.parse().ok()?, host))))
        .collect();
    ring.sort_unstable();
    ring.dedup_by_key(|(token, _)| *token);
    let mut owned: BTreeMap<Uuid, f64> = BTreeMap::new();
    let mut before = ring.last().map_or(0, |(token, _)| *token);
    for (token, host) in &ring {
        // Around the end of the ring the difference wraps, as the ring does; of one token alone it is none, and it owns all.
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
