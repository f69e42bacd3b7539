//! How a node takes part in a cluster, and the listener of what happens there.

use crate::members::seeds::Seed;
use crate::metadata::Metadata;
use crate::tablets::mover::{Copy, Discard};
use record::Known;
use rpc::Peer;
use schema::{Schema, TableId};
use std::collections::BTreeSet;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use topology::{ClockLimits, DiskLevel, FailureDetectorConfig, HostId, Location, Replaced};
use types::Token;
use uuid::Uuid;

/// The default time limit of a change of the schema.
pub const SCHEMA_TIMEOUT: Duration = Duration::from_millis(4500);

/// How long a new member serves before it may vote. Longer than the failure detector takes to notice that a member is
/// gone, so one that joins and vanishes never has a vote.
pub const VOTE_AFTER: Duration = Duration::from_secs(5);
/// How long a member that never served and owns nothing may be away before it is removed.
pub const FORGET_JOINING_AFTER: Duration = Duration::from_secs(600);
/// Default downtime after which what a member holds for others is forgotten: as long as hints are kept for it.
pub const FORGET_HINTS_AFTER: Duration = Duration::from_hours(3);
/// Members that have joined and have not served yet; others are asked to wait.
pub const NEWCOMERS_MAX: usize = 16;

/// Connections that something is done for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InternodeScope {
    /// None.
    None,
    /// Those to other datacenters.
    Datacenters,
    /// Those to other racks, wherever they are.
    Racks,
    /// All.
    All,
}

impl InternodeScope {
    /// Whether it is done for a connection from one place to another.
    #[must_use]
    pub fn has(self, from: &Location, to: &Location) -> bool {
        match self {
            Self::None => false,
            Self::Datacenters => from.datacenter != to.datacenter,
            Self::Racks => from != to,
            Self::All => true,
        }
    }
}

/// How nodes are reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reach {
    /// The nodes that are reached by TLS.
    pub encryption: InternodeScope,
    /// The port for TLS, the same on all nodes.
    pub tls_port: u16,
    /// The nodes to which compression is offered.
    pub compression: InternodeScope,
}

impl Reach {
    /// How to reach a node at a location; None if its location is not known yet.
    #[must_use]
    pub fn peer(&self, host: Uuid, address: SocketAddr, from: &Location, to: Option<&Location>) -> Peer {
        let Some(to) = to else {
            return self.anywhere(host, address);
        };
        let compress = self.compression.has(from, to);
        self.by(host, address, self.encryption.has(from, to), compress)
    }

    /// How to reach a node at any location: by TLS if TLS is there at all, because all nodes accept it then.
    #[must_use]
    pub fn anywhere(&self, host: Uuid, address: SocketAddr) -> Peer {
        let compress = self.compression == InternodeScope::All;
        self.by(host, address, self.encryption != InternodeScope::None, compress)
    }

    fn by(&self, host: Uuid, mut address: SocketAddr, tls: bool, compress: bool) -> Peer {
        if tls {
            address.set_port(self.tls_port);
        }
        Peer {
            host_id: host,
            address,
            tls,
            compress,
        }
    }
}

/// What a node says of itself, and how patient it is.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of the metadata; made if it is not there.
    pub dir: PathBuf,
    /// The cluster's name.
    pub cluster_name: String,
    /// The node's identity.
    pub host_id: HostId,
    /// Where other nodes reach it.
    pub internode: SocketAddr,
    /// Where clients reach it.
    pub native: SocketAddr,
    /// Where clients choose a shard.
    pub native_shard_aware_port: Option<u16>,
    /// Its location, by its snitch.
    pub location: Location,
    /// How many shards it runs.
    pub shards: u16,
    /// How many tokens it takes when it joins, unless `initial_tokens` has some.
    pub num_tokens: usize,
    /// The tokens it takes when it joins; empty: `num_tokens` that follow from the host id.
    pub initial_tokens: Vec<Token>,
    /// Nodes that know the cluster, with their internode addresses; may contain the node's own. The first node of the
    /// list forms a cluster when no other has one.
    pub seeds: Vec<Seed>,
    /// How it reaches others.
    pub reach: Reach,
    /// Whether it takes its part of the ring.
    pub auto_bootstrap: bool,
    /// Whether it may own anything: tokens, tablets, copies. A zero-token node does not.
    pub joins_ring: bool,
    /// Whether what it proposes must leave keyspaces that fit the racks.
    pub rack_rules: bool,
    /// The member whose place this node takes when it joins.
    pub replaces: Option<Replaced>,
    /// Other dead members, which are excluded when this node joins.
    pub ignores: Vec<Replaced>,
    /// What its release can do. A field of a record that came with another feature is unknown to the node.
    pub features: BTreeSet<String>,
    /// Its release.
    pub release: String,
    /// What a cluster that it forms begins with.
    pub initial_schema: Arc<Schema>,
    /// How long the first seed looks for a cluster before it forms one, while other seeds do not answer.
    pub ring_delay: Duration,
    /// How long a node tries to join before it gives up.
    pub join_timeout: Duration,
    /// How long a change may take.
    pub propose_timeout: Duration,
    /// How long a schema change waits for the nodes that are alive to have it.
    pub agreement_timeout: Duration,
    /// How long a change of the schema takes in all: a client must see the answer, and drivers wait ten seconds, cqlsh
    /// five.
    pub schema_timeout: Duration,
    /// How long a voter must be down before another gets its vote.
    pub replace_voter_after: Duration,
    /// How long a node that joins may be down before its tokens are taken back.
    pub give_up_joining_after: Duration,
    /// How far clocks may differ; a node that is farther off than the first limit may not join.
    pub clock_limits: ClockLimits,
    /// See [`VOTE_AFTER`].
    pub vote_after: Duration,
    /// See [`FORGET_JOINING_AFTER`].
    pub forget_joining_after: Duration,
    /// How long a member must be down before what it holds for others is forgotten.
    pub forget_hints_after: Duration,
    /// How liveness is judged.
    pub failure_detector: FailureDetectorConfig,
}

impl Config {
    /// What this node reads of records.
    #[must_use]
    pub fn known(&self) -> Known {
        Known::features(self.features.iter().cloned())
    }

    /// A node alone on the default places, with the usual patience.
    #[must_use]
    pub fn new(dir: PathBuf, cluster_name: &str, host_id: HostId, internode: SocketAddr, schema: Arc<Schema>) -> Self {
        Self {
            dir,
            cluster_name: cluster_name.to_owned(),
            host_id,
            internode,
            native: SocketAddr::new(internode.ip(), 9042),
            native_shard_aware_port: None,
            location: Location {
                datacenter: "datacenter1".to_owned(),
                rack: "rack1".to_owned(),
            },
            shards: 1,
            num_tokens: 16,
            initial_tokens: Vec::new(),
            seeds: Vec::new(),
            reach: Reach {
                encryption: InternodeScope::None,
                tls_port: 7001,
                compression: InternodeScope::None,
            },
            auto_bootstrap: true,
            joins_ring: true,
            rack_rules: false,
            replaces: None,
            ignores: Vec::new(),
            features: BTreeSet::new(),
            release: "0".to_owned(),
            initial_schema: schema,
            ring_delay: Duration::from_secs(3),
            join_timeout: Duration::from_secs(120),
            propose_timeout: Duration::from_secs(10),
            agreement_timeout: Duration::from_secs(2),
            schema_timeout: SCHEMA_TIMEOUT,
            replace_voter_after: Duration::from_secs(60),
            give_up_joining_after: Duration::from_secs(30),
            clock_limits: ClockLimits::default(),
            vote_after: VOTE_AFTER,
            forget_joining_after: FORGET_JOINING_AFTER,
            forget_hints_after: FORGET_HINTS_AFTER,
            failure_detector: FailureDetectorConfig::default(),
        }
    }
}

/// A future of this shard.
pub type Local<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Resolves to true when every request that was planned with an older value of the metadata has ended, and to false
/// when some did not end in time. That a node may join with tokens while others write rests on this: in the second case
/// the others refuse such requests before the node counts as one that has the newer value. Changes of the metadata do
/// not wait for it, because an older request may itself wait for a newer value.
pub struct Drain(pub Local<'static, bool>);

/// How large a tablet is on a node, and how much is asked of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TabletBytes {
    /// Its table.
    pub table: TableId,
    /// Its last token.
    pub last: Token,
    /// The bytes of its sstables.
    pub bytes: u64,
    /// Requests per second, averaged over minutes; None while the node does not know.
    pub load: Option<f32>,
}

/// The file system of a node's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disk {
    /// Its size, as far as programs can use it.
    pub capacity: u64,
    /// What is in use.
    pub used: u64,
}

/// What a node says of its tablets.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct TabletReport {
    /// Each of them.
    pub tablets: Vec<TabletBytes>,
    /// The file system that they are on; None when it is not known.
    pub disk: Option<Disk>,
    /// Of the tables that are about to be split: the bytes of sstables that are still to be cut.
    pub uncut: Vec<(TableId, u64)>,
}

/// Tables that are about to be split, or to leave the token ring, and how many tablets of equal size they have then.
/// With 0, a table is about to be cut where the ring is.
pub type Splits = Vec<(TableId, u32)>;

/// Takes notifications of what happens. Lives on shard 0, as [`crate::Cluster`] does.
pub trait Listener {
    /// The metadata has changed, and is durable. Awaited before the next command is applied and before the proposer is
    /// answered; it resolves when all shards have taken the value over, with what is still to be waited for: requests
    /// that were planned with the former one.
    fn changed(&self, next: Arc<Metadata>) -> Local<'_, Drain>;

    /// The others refuse requests that were routed by versions before this one, and this node has none as new yet:
    /// until it has, it does nothing for clients from its own data either. 0: nothing is refused any more.
    fn fenced_off(&self, before: u64);

    /// A node answers, or does not any more: requests are sent to it, or are not. May be called again for a node that
    /// answers; then connections to it that failed are to be tried at once.
    fn liveness(&self, host: HostId, is_live: bool);

    /// Resolves when all shards use what `liveness` had reported before the call.
    fn liveness_taken(&self) -> Local<'_, ()>;

    /// A member's commitlog takes writes, or does not any more. Called for this node too.
    fn takes_writes(&self, host: HostId, takes: bool);

    /// A member's disks are as full as this. Called for this node too. A member that takes no growth is sent no writes
    /// that add data.
    fn disk_level(&self, host: HostId, level: DiskLevel);

    /// This node leaves service, or returns to it. Resolves when no client is served, or clients are.
    fn set_in_service(&self, is_in_service: bool) -> Local<'_, ()>;

    /// Whether any table of users holds data on this node, in memory or on disk. Asked before this node joins a
    /// cluster.
    fn has_user_data(&self) -> Local<'_, bool>;

    /// Bytes of the node's sstables, which other members show to their operators.
    fn load(&self) -> Local<'_, u64>;

    /// What the leader plans by. The node cuts the sstables of these tables, and of no others, so that a split finds
    /// little to do.
    fn tablet_report(&self, splits: Splits) -> Local<'_, TabletReport>;

    /// Removes what this node has of ranges that it is about to copy, from a time when it owned them before; resolves
    /// when that is durable. The error is a sentence.
    fn discard(&self, discard: Discard) -> Local<'_, Result<(), String>>;

    /// Copies what other nodes have of the first ranges of a copy; resolves to how many, one at least, when all of
    /// these is durable and part of the table here. It does no harm to copy again. The error is a sentence.
    fn copy(&self, copy: Copy) -> Local<'_, Result<usize, String>>;

    /// The node is no longer a member and must end, and may not be started again from its directories. None: it has
    /// given its data to others, and ends in order. Else why it was removed.
    fn left(&self, removed: Option<String>);

    /// The node must stop, for example because another process has its identity.
    fn fatal(&self, reason: String);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_and_compression_are_used_where_they_are_asked_for() {
        use InternodeScope::{All, Datacenters, Racks};
        let place = |text: &str| {
            let (datacenter, rack) = text.split_once('/').expect("datacenter/rack");
            Location {
                datacenter: datacenter.to_owned(),
                rack: rack.to_owned(),
            }
        };
        // Seen from a/r: the node's location, whether it is reached by TLS, whether it is offered compression.
        let cases = [
            (InternodeScope::None, Some("b/r"), false, false),
            (InternodeScope::None, None, false, false),
            (Datacenters, Some("a/r"), false, false),
            (Datacenters, Some("a/s"), false, false),
            (Datacenters, Some("b/r"), true, true),
            (Datacenters, None, true, false),
            (Racks, Some("a/r"), false, false),
            (Racks, Some("a/s"), true, true),
            (Racks, Some("b/r"), true, true),
            (Racks, None, true, false),
            (All, Some("a/r"), true, true),
            (All, None, true, true),
        ];
        for (between, to, tls, compress) in cases {
            let address = SocketAddr::from(([10, 0, 0, 1], 7000));
            let to = to.map(place);
            let reached = |encryption, compression| {
                let reach = Reach {
                    encryption,
                    tls_port: 7001,
                    compression,
                };
                let peer = reach.peer(Uuid::nil(), address, &place("a/r"), to.as_ref());
                (peer.tls, peer.address.port(), peer.compress)
            };
            let port = if tls { 7001 } else { 7000 };
            let name = format!("{between:?} to {to:?}");
            assert_eq!(reached(between, InternodeScope::None), (tls, port, false), "TLS {name}");
            assert_eq!(
                reached(InternodeScope::None, between),
                (false, 7000, compress),
                "compression {name}"
            );
        }
    }
}
