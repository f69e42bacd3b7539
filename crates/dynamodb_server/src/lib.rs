//! The front door of the DynamoDB API: HTTP/1.1 with and without TLS, signatures, compression.
//!
//! It is a [`front::Door`] on top of [`front`], which has its listeners, admission, sessions and memory. Each shard
//! serves its connections wholly. This crate makes an [`ApiRequest`] of what a client sends and an HTTP answer of the
//! [`ApiAnswer`]; the trait [`Api`] has the operations.
//!
//! **Invariants**
//! - A connection has one operation at a time, and answers leave in the order of the requests: a server must not run
//!   requests of one connection at once unless all of them are safe (RFC 9112, section 9.3.2), and each operation is a
//!   POST.
//! - A request has memory before its body is copied or decompressed. Until then it is in the read buffer, and its
//!   connection is not read.
//! - With [`Settings::enforces_authorization`], no operation runs whose signature was not verified. If the secrets
//!   cannot be read, it is answered with 503.
//! - No loop over a client's bytes is longer than a slice: hashes, checksums and compression have preemption points and
//!   run in a preemptible task.
//!
//! Sources: the DynamoDB API Reference and its developer guide (programming with the low-level API, error handling),
//! and AWS Signature Version 4 (`sigv4.rs`).

mod access_keys;
mod answer;
mod authorization;
mod connection;
mod counts;
mod encoding;
mod errors;
#[doc(hidden)]
pub mod fuzz;
mod operation;
mod route;
pub mod sigv4;

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use front::{Accepted, Door, Endpoints, Front, Principal, Tls};
use logging::LineLimit;
use runtime::Instant;

use access_keys::AccessKeys;

pub use counts::{Counts, OPERATIONS};
pub use encoding::BODY_BYTES_MAX;
pub use errors::Refusal;

/// A request for one operation.
#[derive(Clone, Debug)]
pub struct ApiRequest {
    /// The name after the dot of X-Amz-Target, such as `GetItem`.
    pub operation: String,
    /// The body, decompressed: at most [`BODY_BYTES_MAX`] bytes that should be JSON.
    pub body: Vec<u8>,
    /// The user whose key signed the request; anonymous where signatures are not verified.
    pub principal: Principal,
    /// The client's address.
    pub client: SocketAddr,
    /// By when the answer must be there. The implementation keeps it.
    pub deadline: Instant,
}

/// The answer to an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiAnswer {
    /// 200, or 400 and more for an error.
    pub status: u16,
    /// JSON.
    pub body: Vec<u8>,
}

/// The operations. Lives on each shard.
pub trait Api {
    /// Executes one. The future is polled by a preemptible task (`runtime::preemptible`), so its computations may be
    /// suspended where `stdx::preempt::allowed` permits that. It runs to its end also when the client has disconnected.
    fn execute(&self, request: ApiRequest) -> Pin<Box<dyn Future<Output = ApiAnswer>>>;
}

/// What is known of an access key.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// The secret key that belongs to it.
    Known(String),
    /// There is no such access key.
    Unknown,
    /// It was valid once.
    Expired,
}

impl fmt::Debug for Secret {
    /// Without the secret: it must not be in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Known(_) => "Known",
            Self::Unknown => "Unknown",
            Self::Expired => "Expired",
        })
    }
}

/// The secrets cannot be read now; the text is for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SecretsUnavailable(pub String);

/// The secrets of access keys. Lives on each shard. The server keeps each answer for some seconds.
pub trait Secrets {
    /// The secret of an access key. The implementation keeps the deadline.
    fn secret(
        &self,
        access_key: &str,
        deadline: Instant,
    ) -> Pin<Box<dyn Future<Output = Result<Secret, SecretsUnavailable>>>>;
}

/// The nodes of the cluster, for clients that spread their requests. Lives on each shard.
pub trait Nodes {
    /// Addresses where live nodes serve this API, without ports: of a datacenter and a rack; of this node's datacenter
    /// if none is given, and of all its racks if none is given.
    fn addresses(&self, datacenter: Option<&str>, rack: Option<&str>) -> Vec<String>;
}

/// What operators choose; may change while the server runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Whether each operation must be signed with the secret of a known access key.
    pub enforces_authorization: bool,
    /// Whether operations without a valid signature are logged and counted. They run unless the setting above refuses
    /// them.
    pub warns_authorization: bool,
    /// How long an operation may take.
    pub timeout: Duration,
    /// Answers of so many bytes and more are compressed for clients that accept that; None: none is.
    pub compression_bytes_min: Option<usize>,
    /// How hard they are compressed, from 1 to 9.
    pub compression_level: u32,
    /// The value of the header Server; None: it is not sent.
    pub server_header: Option<String>,
    /// Whether answers have the header Date.
    pub sends_date: bool,
    /// Whether answers have the header Content-Type.
    pub sends_content_type: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enforces_authorization: false,
            warns_authorization: false,
            timeout: Duration::from_secs(10),
            compression_bytes_min: Some(4 << 10),
            compression_level: 1,
            server_header: None,
            sends_date: true,
            sends_content_type: true,
        }
    }
}

/// What the server is made of besides the front.
pub struct Parts {
    /// The operations.
    pub api: Rc<dyn Api>,
    /// The secrets of access keys.
    pub secrets: Rc<dyn Secrets>,
    /// The nodes of the cluster.
    pub nodes: Rc<dyn Nodes>,
}

/// What the ports of one shard share.
pub struct Server {
    pub(crate) front: Rc<Front>,
    pub(crate) parts: Parts,
    pub(crate) access_keys: AccessKeys,
    /// Lines on operations without a valid signature.
    pub(crate) unauthorized_lines: LineLimit,
    settings: RefCell<Rc<Settings>>,
    tls: RefCell<Option<Tls>>,
    pub(crate) counts: Counts,
}

/// A port of a [`Server`]: plain, or with TLS.
pub struct Port {
    pub(crate) server: Rc<Server>,
    endpoints: Endpoints,
    pub(crate) has_tls: bool,
}

impl Server {
    /// A server without ports.
    #[must_use]
    pub fn new(front: Rc<Front>, parts: Parts, settings: Settings) -> Rc<Self> {
        Rc::new(Self {
            front,
            access_keys: AccessKeys::new(parts.secrets.clone()),
            parts,
            unauthorized_lines: authorization::lines(),
            settings: RefCell::new(Rc::new(settings)),
            tls: RefCell::new(None),
            counts: Counts::default(),
        })
    }

    /// A port without TLS; [`front::listeners::open`] opens it.
    #[must_use]
    pub fn plain_port(self: &Rc<Self>, endpoints: Endpoints) -> Rc<Port> {
        self.port(endpoints, false)
    }

    /// A port with TLS. Connections to it end at once while there is no certificate ([`Server::set_tls`]).
    #[must_use]
    pub fn tls_port(self: &Rc<Self>, endpoints: Endpoints) -> Rc<Port> {
        self.port(endpoints, true)
    }

    fn port(self: &Rc<Self>, endpoints: Endpoints, has_tls: bool) -> Rc<Port> {
        Rc::new(Port {
            server: Rc::clone(self),
            endpoints,
            has_tls,
        })
    }

    /// Replaces the certificate for new connections.
    pub fn set_tls(&self, tls: Tls) {
        self.tls.replace(Some(tls));
    }

    /// Replaces the settings, for requests that begin from now on.
    pub fn set_settings(&self, settings: Settings) {
        self.settings.replace(Rc::new(settings));
    }

    /// What was counted.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    pub(crate) fn settings(&self) -> Rc<Settings> {
        self.settings.borrow().clone()
    }

    pub(crate) fn tls(&self) -> Option<Tls> {
        self.tls.borrow().clone()
    }
}

impl Door for Port {
    fn front(&self) -> &Rc<Front> {
        &self.server.front
    }

    fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    async fn serve(self: Rc<Self>, connection: Accepted) {
        connection::run(&self, connection).await;
    }
}
