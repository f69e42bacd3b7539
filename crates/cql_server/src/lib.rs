//! The CQL server: connections, prepared statements, events.
//!
//! Each shard accepts connections and serves them wholly: requests of one socket read are executed in a loop, their
//! answers go into one buffer, the log is committed once, and one write sends them ([`connection`]). What cannot be
//! answered in one call becomes a task of the connection, bounded in number and bytes. Connections to the shard-aware
//! port are handed to the shard that their source port names.
//!
//! Limits and what happens beyond them: a frame above [`Options::frame_bytes_max`] ends its connection with an error;
//! [`IN_FLIGHT_MAX`] requests of a connection may wait, then its socket is not read; a client that does not read its
//! answers is not read from either once [`OUTBOX_BYTES_MAX`] wait for it; connections above
//! [`Options::connections_max`], or above [`Options::uninitialized_max`] that are not ready, are closed at once.
//!
//! Accepting, handshakes, and connections that only their drivers have used so far run in a group of few shares,
//! [`DRIVERS_GROUP`]: however many come, those that work are served first.

mod admission;
mod batch;
mod cells;
mod client_tables;
mod clients;
mod connection;
mod counts;
mod dispatch;
mod events;
mod handshake;
mod input;
mod long;
mod metadata;
mod outbox;
mod pending;
mod prepare;
mod proxied;
mod respond;
mod room;
mod running;
mod slow;
mod startup;
mod tablets;
mod tracing;
mod values;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use cql_protocol::ClusterEvent;
use ddl::SchemaChange;
use memory::ResultMemory;
use query::Engine;
use runtime::net::{
    DetachedStream, ListenOptions, ReservedAddress, ReservedPath, TcpListener, TcpStream, UnixListener, UnixOptions,
};
use runtime::{Group, Semaphore, ShardId};
use schema::TableId;
use types::Token;

use admission::Admission;
use connection::Connection;
use events::Events;
use proxied::Headers;
use room::{SplitRoom, UnsentRoom};

pub use admission::{Arrivals, UNINITIALIZED_MAX};
pub use cells::{CellWriter, Cells};
pub use client_tables::register_system_tables;
pub use clients::{ClientInfo, Clients};
pub use counts::Counts;
pub use cql_protocol::TabletRoute;
pub use events::MemberEvent;
pub use room::ClientMemory;
pub use running::RunningRequest;

/// The only requests of connections have this part of the memory of requests besides, and such a request is at most so
/// long.
const FIRST_REQUESTS_SHARE: usize = 4;
pub(crate) const FIRST_REQUEST_BYTES_MAX: usize = 64 << 10;

/// Requests of one connection that may wait for disk or other shards.
pub const IN_FLIGHT_MAX: usize = 1024;
/// Bytes of answers that may wait for a client to read them.
pub const OUTBOX_BYTES_MAX: usize = 4 << 20;
/// Bytes that the answers of a connection's waiting requests may come to, by estimate.
pub const ANSWER_BYTES_MAX: usize = 16 << 20;

/// The scheduling group of what drivers do for themselves, and its shares: a sixth of the processor while requests want
/// all of it.
pub const DRIVERS_GROUP: (&str, u32) = ("sl:driver", 200);
/// Default of the handshakes of a shard that work at once.
pub const HANDSHAKES_MAX: usize = 8;

/// Connections that wait in the kernel until they are accepted, which is the cheapest place.
const BACKLOG: u32 = 4096;

/// That connections cannot be accepted is logged once in so long.
const ACCEPT_LOG_PERIOD: Duration = Duration::from_secs(60);

/// Permissions of the maintenance socket: its owner and its group may connect.
const MAINTENANCE_SOCKET_MODE: u32 = 0o660;

/// The socket by which operators reach the node from its own machine. Any process that may open the file may do
/// everything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MaintenanceSocket {
    /// The file.
    pub path: PathBuf,
    /// The group that may connect besides the file's owner; without one, that of the process.
    pub group: Option<String>,
}

/// How the server is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where CQL listens, if it does.
    pub address: Option<SocketAddr>,
    /// The maintenance socket, on the shard that accepts for it.
    pub maintenance_socket: Option<MaintenanceSocket>,
    /// Where the shard-aware port listens, if it does.
    pub shard_aware_address: Option<SocketAddr>,
    /// Where CQL listens for connections that begin with a header of the PROXY protocol, if it does.
    pub proxied_address: Option<SocketAddr>,
    /// Where the shard-aware port for such connections listens, if it does; the port of the client that the header
    /// names chooses the shard.
    pub proxied_shard_aware_address: Option<SocketAddr>,
    /// The longest frame, in bytes.
    pub frame_bytes_max: usize,
    /// Connections of a shard.
    pub connections_max: usize,
    /// Those of them that may work for their handshake at once.
    pub handshakes_max: usize,
    /// Those of them whose handshake may be under way.
    pub uninitialized_max: usize,
    /// How many shards the node has.
    pub shards: u32,
    /// The node's identity, sent in SUPPORTED.
    pub host_id: uuid::Uuid,
    /// The partitioner's class name.
    pub partitioner: String,
    /// The CQL version, sent in SUPPORTED.
    pub cql_version: String,
    /// Whether clients may agree on `TABLETS_ROUTING_V2_EXPERIMENTAL`.
    pub tablets_routing_v2: bool,
    /// Where connections are listed.
    pub clients: Arc<Clients>,
}

/// The location of a statement's tablet, if its table has tablets, it names one partition, and this shard is none of
/// the tablet's replicas. Called for statements that this shard did not answer at once, on connections that request it.
pub type Routes = Box<dyn Fn(TableId, Token) -> Option<TabletRoute>>;

/// One shard's CQL server.
pub struct Server {
    pub(crate) engine: Rc<Engine>,
    pub(crate) options: Options,
    pub(crate) connections: Cell<usize>,
    admission: Rc<Admission>,
    pub(crate) drivers_group: Group,
    pub(crate) events: Events,
    /// Finds the location of a statement's tablet.
    pub(crate) routes: RefCell<Option<Routes>>,
    /// A partition key and a clustering key in the making; kept for their memory.
    pub(crate) key_scratch: RefCell<(Vec<u8>, Vec<u8>)>,
    /// The parts of its memory.
    memory: ClientMemory,
    /// For requests that wait or run, over all connections of the shard.
    pub(crate) request_room: SplitRoom,
    /// Room besides for the only request of a connection: clients that send many and read no answers do not keep it
    /// waiting.
    pub(crate) first_room: Semaphore,
    /// For long frames while they arrive.
    pub(crate) frame_room: SplitRoom,
    /// For read buffers of usual size.
    pub(crate) buffer_room: Semaphore,
    /// For answers that clients have not taken.
    pub(crate) unsent_room: Rc<UnsentRoom>,
    /// It takes no requests: the node is out of service, or ends.
    pub(crate) draining: Cell<bool>,
    /// It never takes any again.
    is_ending: Cell<bool>,
    drain_begins: runtime::Notify,
    /// Told while the node drains.
    connection_ended: runtime::Notify,
    /// The connections that are open, and some that were.
    begun: RefCell<Vec<Weak<Connection>>>,
    pub(crate) requests: Cell<u64>,
    pub(crate) counts: Counts,
    pub(crate) slow: logging::LineLimit,
    accept_failures: logging::LineLimit,
    /// Connections that were closed in the middle of a request.
    pub(crate) unread: logging::LineLimit,
    pub(crate) headers: Headers,
}

/// A shard's ports. Clients that come before [`Server::open`] are refused.
pub struct Listeners {
    /// The CQL port.
    pub cql: Option<ReservedAddress>,
    /// The maintenance socket.
    pub maintenance: Option<ReservedPath>,
    /// The shard-aware port.
    pub shard_aware: Option<ReservedAddress>,
    /// The port for proxies.
    pub proxied: Option<ReservedAddress>,
    /// The shard-aware port for proxies.
    pub proxied_shard_aware: Option<ReservedAddress>,
}

/// What the connections of a port do.
#[derive(Clone, Copy)]
struct Port {
    /// The client's port chooses the shard.
    shard_aware: bool,
    /// A header of the PROXY protocol comes before everything else.
    proxied: bool,
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot listen for CQL on {address}: {error}"))
}

fn cannot_listen_at(path: &Path, error: &io::Error) -> io::Error {
    let message = format!(
        "cannot listen for CQL on the maintenance socket {}: {error}",
        path.display()
    );
    io::Error::new(error.kind(), message)
}

impl Listeners {
    /// Takes the ports, of which every shard of a node has the same, and the maintenance socket.
    pub fn bind(options: &Options) -> io::Result<Self> {
        let reserve = |address: SocketAddr| {
            let shared = ListenOptions {
                reuse_port: true,
                backlog: BACKLOG,
            };
            ReservedAddress::bind(address, shared).map_err(|e| cannot_listen(address, &e))
        };
        let reserve_path = |socket: &MaintenanceSocket| {
            let unix = UnixOptions {
                mode: MAINTENANCE_SOCKET_MODE,
                group: socket.group.clone(),
                backlog: BACKLOG,
            };
            ReservedPath::bind(&socket.path, &unix).map_err(|e| cannot_listen_at(&socket.path, &e))
        };
        Ok(Self {
            cql: options.address.map(reserve).transpose()?,
            maintenance: options.maintenance_socket.as_ref().map(reserve_path).transpose()?,
            shard_aware: options.shard_aware_address.map(reserve).transpose()?,
            proxied: options.proxied_address.map(reserve).transpose()?,
            proxied_shard_aware: options.proxied_shard_aware_address.map(reserve).transpose()?,
        })
    }
}

impl Server {
    /// A server over an engine. `memory` bounds what its clients may take.
    pub fn new(engine: Rc<Engine>, options: Options, memory: ClientMemory) -> Rc<Self> {
        let server = Rc::new(Self {
            engine: engine.clone(),
            connections: Cell::new(0),
            admission: Admission::new(options.handshakes_max, options.uninitialized_max),
            drivers_group: Group::new(DRIVERS_GROUP.0, DRIVERS_GROUP.1),
            options,
            events: Events::default(),
            routes: RefCell::default(),
            key_scratch: RefCell::default(),
            memory,
            request_room: SplitRoom::new(memory.requests),
            first_room: Semaphore::new((memory.requests / FIRST_REQUESTS_SHARE).max(1)),
            frame_room: SplitRoom::new(memory.frames),
            buffer_room: Semaphore::new(memory.buffers),
            unsent_room: UnsentRoom::new(memory.unsent, ResultMemory::new(memory.results)),
            draining: Cell::new(false),
            is_ending: Cell::new(false),
            drain_begins: runtime::Notify::new(),
            connection_ended: runtime::Notify::new(),
            begun: RefCell::default(),
            requests: Cell::new(0),
            counts: Counts::default(),
            slow: slow::limit(),
            accept_failures: logging::LineLimit::of((1, ACCEPT_LOG_PERIOD), |lines| {
                log::warn!("{lines} more times a CQL connection could not be accepted");
            }),
            unread: logging::LineLimit::new(|lines| {
                log::warn!("{lines} more connections are closed in the middle of a request");
            }),
            headers: Headers::default(),
        });
        let listener = Rc::downgrade(&server);
        engine.set_listener(Box::new(move |change| {
            if let Some(server) = listener.upgrade() {
                server.tell(change);
            }
        }));
        server
    }

    /// Requests answered so far.
    pub fn requests(&self) -> u64 {
        self.requests.get()
    }

    /// What was counted.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.connections.get()
    }

    /// The parts of the shard's memory that clients may take.
    pub fn memory(&self) -> ClientMemory {
        self.memory
    }

    /// What clients have taken of them.
    pub fn memory_taken(&self) -> ClientMemory {
        ClientMemory {
            requests: self.request_room.taken(),
            results: self.unsent_room.results().taken(),
            unsent: self.unsent_room.bytes(),
            frames: self.frame_room.taken(),
            buffers: self.memory.buffers - self.buffer_room.available(),
        }
    }

    /// What came of the connections that came.
    pub fn arrivals(&self) -> Arrivals {
        self.admission.arrivals()
    }

    /// Starts to accept clients, until the node drains.
    ///
    /// # Errors
    /// When another process listens there by now.
    pub fn open(self: &Rc<Self>, listeners: Listeners) -> io::Result<()> {
        let ports = [
            (listeners.cql, self.options.address, false, false),
            (listeners.shard_aware, self.options.shard_aware_address, true, false),
            (listeners.proxied, self.options.proxied_address, false, true),
            (
                listeners.proxied_shard_aware,
                self.options.proxied_shard_aware_address,
                true,
                true,
            ),
        ];
        for (reserved, address, shard_aware, proxied) in ports {
            if let (Some(reserved), Some(address)) = (reserved, address) {
                let listener = reserved.listen().map_err(|e| cannot_listen(address, &e))?;
                let accepting = self.clone().accept(listener, Port { shard_aware, proxied });
                drop(runtime::spawn_in(self.drivers_group, accepting));
            }
        }
        if let (Some(reserved), Some(socket)) = (listeners.maintenance, &self.options.maintenance_socket) {
            let listener = reserved.listen().map_err(|e| cannot_listen_at(&socket.path, &e))?;
            drop(runtime::spawn_in(
                self.drivers_group,
                self.clone().accept_operators(listener),
            ));
        }
        Ok(())
    }

    /// A connection that was accepted; after an error, none and a pause.
    async fn accepted_or_rest(&self, accepted: io::Result<TcpStream>) -> Option<TcpStream> {
        match accepted {
            Ok(stream) => Some(stream),
            Err(e) => {
                // Out of file descriptors, or a client that gave up.
                if self.accept_failures.admits() {
                    log::warn!("cannot accept a CQL connection: {e}");
                }
                runtime::sleep(Duration::from_millis(10)).await;
                None
            }
        }
    }

    /// Accepts connections until the node drains. The listener is closed then: a client that is
    /// refused asks another node at once, and one that was accepted and dropped may wait for an answer.
    async fn accept(self: Rc<Self>, listener: TcpListener, port: Port) {
        while let Some(accepted) = self.until_drain(listener.accept()).await {
            let Some(stream) = self.accepted_or_rest(accepted).await else {
                continue;
            };
            // A client that is gone by now has no address.
            if let Ok(peer) = stream.peer_addr() {
                match port.proxied {
                    true => self.serve_proxied(stream, peer, port.shard_aware),
                    false => self.hand_over(stream, peer, port.shard_aware),
                }
            }
            if runtime::should_yield() {
                runtime::yield_now().await;
            }
        }
    }

    /// Accepts connections of the maintenance socket, for all shards of the node; each next connection goes to the next
    /// shard. A connection at a path has no address: it is listed as 0.0.0.0 with its number as the port.
    async fn accept_operators(self: Rc<Self>, listener: UnixListener) {
        let mut number = 0_u16;
        while let Some(accepted) = self.until_drain(listener.accept()).await {
            let Some(stream) = self.accepted_or_rest(accepted).await else {
                continue;
            };
            let wanted = ShardId(u32::from(number) % self.options.shards);
            number = number.wrapping_add(1);
            let peer = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), number);
            self.hand_to(wanted, stream, peer);
            if runtime::should_yield() {
                runtime::yield_now().await;
            }
        }
    }

    /// Makes this shard, or the one that the client's port chooses, serve a connection.
    fn hand_over(self: &Rc<Self>, stream: TcpStream, peer: SocketAddr, shard_aware: bool) {
        let wanted = match shard_aware {
            true => u32::from(peer.port()) % self.options.shards,
            false => self.engine.coordinator.shard().id().0,
        };
        self.hand_to(ShardId(wanted), stream, peer);
    }

    /// Makes a shard serve a connection.
    fn hand_to(self: &Rc<Self>, shard: ShardId, stream: TcpStream, peer: SocketAddr) {
        if shard == self.engine.coordinator.shard().id() {
            return self.clone().serve(stream, peer);
        }
        let stream: DetachedStream = stream.detach();
        drop(runtime::submit_to(shard, move || {
            if let Some(server) = runtime::local::<Server>() {
                server.serve(stream.attach(), peer);
            }
        }));
    }

    /// The result of a future; None when the node drains before.
    pub(crate) async fn until_drain<F: Future>(&self, future: F) -> Option<F::Output> {
        let mut drain_begins = pin!(self.drain_begins.notified());
        let mut future = pin!(future);
        poll_fn(|context| {
            if self.draining.get() || drain_begins.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            future.as_mut().poll(context).map(Some)
        })
        .await
    }

    fn serve(self: Rc<Self>, stream: TcpStream, peer: SocketAddr) {
        let is_full = self.connections.get() >= self.options.connections_max;
        let Some(uninitialized) = self.admission.admit(is_full) else {
            return;
        };
        self.connections.set(self.connections.get() + 1);
        drop(runtime::spawn_in(self.drivers_group, async move {
            connection::run(&self, (stream, peer), uninitialized).await;
            self.connections.set(self.connections.get() - 1);
            if self.draining.get() {
                self.connection_ended.notify_all();
            }
        }));
    }

    /// Sets the function that finds where tablets are; without it clients are not notified.
    pub fn set_routes(&self, routes: Routes) {
        *self.routes.borrow_mut() = Some(routes);
    }

    /// Sends this shard's registered connections the event of a member; `native` is where clients reach it.
    pub fn member_changed(&self, event: MemberEvent, native: SocketAddr) {
        self.events.tell(&events::of_member(event, native));
    }

    /// Tells this shard's registered connections that client routes changed, named by connection and host id.
    pub fn client_routes_changed(&self, changed: &[(String, String)]) {
        events::client_routes(changed, |event| self.events.tell(event));
    }

    /// Tells registered connections of a schema change.
    fn tell(&self, change: &SchemaChange) {
        self.events.tell(&ClusterEvent::Schema(respond::schema_change(change)));
    }

    /// Permanently stops accepting clients; [`Server::close`] does so for a while.
    pub async fn drain(&self, patience: Duration) {
        self.is_ending.set(true);
        self.close(patience).await;
    }

    /// Accepts clients again after [`Server::close`], unless the node ends.
    ///
    /// # Errors
    /// When another process listens there by now.
    pub fn reopen(self: &Rc<Self>) -> io::Result<()> {
        if self.is_ending.get() || !self.draining.get() {
            return Ok(());
        }
        let listeners = Listeners::bind(&self.options)?;
        self.draining.set(false);
        self.open(listeners).inspect_err(|_| self.draining.set(true))
    }

    /// Stops accepting and reading requests; what was read is answered, and then the connections end. Returns when all
    /// have, or after `patience`: a client may take no answers.
    pub async fn close(&self, patience: Duration) {
        self.draining.set(true);
        self.drain_begins.notify_all();
        self.open_connections()
            .iter()
            .for_each(|connection| connection.outbox.end_input());
        let all_ended = async {
            loop {
                let ended = self.connection_ended.notified();
                if self.connections.get() == 0 {
                    return;
                }
                ended.await;
            }
        };
        if runtime::timeout(patience, all_ended).await.is_err() {
            log::warn!(
                "{} CQL connections are closed whose requests did not end, or whose clients took no answers, in {} s",
                self.connections.get(),
                patience.as_secs()
            );
        }
    }

    /// A connection has begun.
    pub(crate) fn note_connection(&self, connection: &Rc<Connection>) {
        let mut begun = self.begun.borrow_mut();
        if begun.len() == begun.capacity() {
            begun.retain(|known| known.strong_count() > 0);
        }
        begun.push(Rc::downgrade(connection));
    }

    /// The connections that are open.
    fn open_connections(&self) -> Vec<Rc<Connection>> {
        self.begun.borrow().iter().filter_map(Weak::upgrade).collect()
    }
}
