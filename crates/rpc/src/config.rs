//! What a node says of itself, the nodes that it calls, and the limits of a connection.

use crate::codec::Compression;
use crate::hello::Lane;
use crate::secret::JoinSecret;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;
use uuid::Uuid;

/// Calls of one connection that are sent and not answered.
pub const IN_FLIGHT_MAX: usize = 1024;
/// Bytes of the requests of those calls.
pub const IN_FLIGHT_BYTES_MAX: usize = 16 << 20;
/// Calls and one-way messages of one connection that wait to be sent.
pub const WAITING_MAX: usize = 4096;
/// Bytes of those.
pub const WAITING_BYTES_MAX: usize = 16 << 20;
/// The longest body of a frame.
pub const BODY_BYTES_MAX: usize = 16 << 20;
/// Bytes handed to a connection and not taken by the kernel, beyond which nothing more is taken up.
pub const OUTBOX_BYTES_MAX: usize = 4 << 20;
/// An answer that is longer is sent in parts of so many bytes.
pub const PART_BYTES: usize = 1 << 20;
/// The longest answer.
pub const LONG_ANSWER_BYTES_MAX: usize = 256 << 20;
/// Bytes of long answers of one connection that wait for their turn; one alone may be longer.
pub const LONG_WAITING_BYTES_MAX: usize = 64 << 20;
/// Bytes that answers of tasks may fill the outbox to; what comes on top is answered as overloaded.
pub const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Requests of one connection that run as tasks.
pub const HANDLING_MAX: usize = 512;
/// Bytes of the requests of those.
pub const HANDLING_BYTES_MAX: usize = 16 << 20;
/// Connections that a shard serves.
pub const CONNECTIONS_MAX: usize = 4096;
/// Connections of a shard that have not identified themselves yet.
pub const HELLOS_MAX: usize = 64;

/// The limits of connections. What happens beyond each is described where it is applied; `docs/dev/rpc.md` has them in
/// a table.
#[derive(Clone, Debug)]
pub struct Limits {
    /// See [`IN_FLIGHT_MAX`].
    pub in_flight_max: usize,
    /// See [`IN_FLIGHT_BYTES_MAX`].
    pub in_flight_bytes_max: usize,
    /// See [`WAITING_MAX`].
    pub waiting_max: usize,
    /// See [`WAITING_BYTES_MAX`].
    pub waiting_bytes_max: usize,
    /// See [`BODY_BYTES_MAX`].
    pub body_bytes_max: usize,
    /// See [`PART_BYTES`].
    pub part_bytes: usize,
    /// See [`LONG_ANSWER_BYTES_MAX`].
    pub long_answer_bytes_max: usize,
    /// See [`LONG_WAITING_BYTES_MAX`].
    pub long_waiting_bytes_max: usize,
    /// See [`OUTBOX_BYTES_MAX`].
    pub outbox_bytes_max: usize,
    /// See [`ANSWER_BYTES_MAX`].
    pub answer_bytes_max: usize,
    /// See [`HANDLING_MAX`].
    pub handling_max: usize,
    /// See [`HANDLING_BYTES_MAX`].
    pub handling_bytes_max: usize,
    /// See [`CONNECTIONS_MAX`].
    pub connections_max: usize,
    /// How long connecting, the TLS handshake and the hello may take together.
    pub hello_timeout: Duration,
    /// A connection that has received nothing for so long is pinged; after as long again without an answer it is
    /// closed.
    pub ping_interval: Duration,
    /// After a first failure a peer is not connected to for so long; doubled by each further one.
    pub retry_after: Duration,
    /// The longest such pause.
    pub retry_after_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            in_flight_max: IN_FLIGHT_MAX,
            in_flight_bytes_max: IN_FLIGHT_BYTES_MAX,
            waiting_max: WAITING_MAX,
            waiting_bytes_max: WAITING_BYTES_MAX,
            body_bytes_max: BODY_BYTES_MAX,
            part_bytes: PART_BYTES,
            long_answer_bytes_max: LONG_ANSWER_BYTES_MAX,
            long_waiting_bytes_max: LONG_WAITING_BYTES_MAX,
            outbox_bytes_max: OUTBOX_BYTES_MAX,
            answer_bytes_max: ANSWER_BYTES_MAX,
            handling_max: HANDLING_MAX,
            handling_bytes_max: HANDLING_BYTES_MAX,
            connections_max: CONNECTIONS_MAX,
            hello_timeout: Duration::from_secs(5),
            ping_interval: Duration::from_secs(5),
            retry_after: Duration::from_millis(50),
            retry_after_max: Duration::from_secs(2),
        }
    }
}

/// The files that TLS needs, in PEM form. Both sides of each connection show a certificate and check the other's.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The node's certificate, with those between it and the root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The certificates that vouch for the others.
    pub trust: PathBuf,
    /// Whether a node's certificate must name the address it is reached at.
    pub verify_endpoint: bool,
}

/// What a node says of itself, and how its connections are set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// The cluster it belongs to; others are refused.
    pub cluster_name: String,
    /// The node's identity.
    pub host_id: Uuid,
    /// Where plain connections are accepted, if they are.
    pub listen: Option<SocketAddr>,
    /// Where TLS connections are accepted, if they are; needs `tls`.
    pub listen_tls: Option<SocketAddr>,
    /// Certificates, if TLS is accepted or asked for.
    pub tls: Option<TlsFiles>,
    /// What both ends of every connection must know. All nodes have the same, or none has one.
    pub join_secret: Option<JoinSecret>,
    /// What this version can do, by names that both ends know.
    pub features: Vec<String>,
    /// Features that are kept to oneself, which holds the node at an older level.
    pub hidden_features: Vec<String>,
    /// Compression to offer and to accept, the preferred first.
    pub compression: Vec<Compression>,
    /// Verbs that have a connection of their own, with limits of its own, so that they never wait for the others. None
    /// by default.
    pub control_verbs: RangeInclusive<u16>,
    /// The limits.
    pub limits: Limits,
}

impl Config {
    /// A node with this identity that listens nowhere, with all defaults.
    #[must_use]
    pub fn new(cluster_name: &str, host_id: Uuid) -> Self {
        Self {
            cluster_name: cluster_name.to_owned(),
            host_id,
            listen: None,
            listen_tls: None,
            tls: None,
            join_secret: None,
            features: Vec::new(),
            hidden_features: Vec::new(),
            compression: Vec::new(),
            control_verbs: RangeInclusive::new(1, 0),
            limits: Limits::default(),
        }
    }

    pub(crate) fn lane(&self, verb: u16) -> Lane {
        if self.control_verbs.contains(&verb) {
            Lane::Control
        } else {
            Lane::Data
        }
    }

    /// The features that this node shows to others.
    pub(crate) fn shown_features(&self) -> Vec<String> {
        let is_shown = |feature: &&String| !self.hidden_features.contains(feature);
        self.features.iter().filter(is_shown).cloned().collect()
    }
}

/// Where some node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeAddress {
    /// Its plain or its TLS port.
    pub address: SocketAddr,
    /// Whether the address is the TLS port.
    pub tls: bool,
}

/// A node to call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its identity: a node that answers at the address with another identity is not called.
    pub host_id: Uuid,
    /// Its plain or its TLS port.
    pub address: SocketAddr,
    /// Whether the address is the TLS port.
    pub tls: bool,
    /// Whether compression is offered.
    pub compress: bool,
}

impl Peer {
    /// A node reached plainly and without compression.
    #[must_use]
    pub const fn new(host_id: Uuid, address: SocketAddr) -> Self {
        Self {
            host_id,
            address,
            tls: false,
            compress: false,
        }
    }
}
