//! Ports and sockets of a front door, and which shard serves a connection.
//!
//! Every shard listens on the same ports, and the kernel spreads connections over them. A connection to a shard-aware
//! port belongs to the shard that its client's port names, and is handed over to it; so does each next connection of
//! the maintenance socket, of which there is one. Accepting runs in the group of drivers ([`crate::DRIVERS_GROUP`]).

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use runtime::ShardId;
use runtime::net::{
    DetachedStream, ListenOptions, ReservedAddress, ReservedPath, TcpListener, TcpStream, UnixListener, UnixOptions,
};

use crate::admission::Uninitialized;
use crate::clients::Listed;
use crate::{Front, proxied};

/// Connections that wait in the kernel until they are accepted, which is the cheapest place.
const BACKLOG: u32 = 4096;

/// Permissions of the maintenance socket: its owner and its group may connect.
const MAINTENANCE_SOCKET_MODE: u32 = 0o660;

/// The server of one protocol on one shard, on top of its [`Front`]. It is a shard local value
/// (`runtime::set_local`): that is how a connection that another shard accepted reaches it.
pub trait Door: 'static {
    /// What it shares with the shard's other front doors.
    fn front(&self) -> &Rc<Front>;

    /// Where it listens.
    fn endpoints(&self) -> &Endpoints;

    /// Serves a connection to its end, from its first byte on.
    fn serve(self: Rc<Self>, connection: Accepted) -> impl Future<Output = ()>;
}

/// A connection that was accepted and let in.
pub struct Accepted {
    /// Its socket.
    pub stream: TcpStream,
    /// The client's address.
    pub peer: SocketAddr,
    /// Its entry in the list of clients.
    pub client: Listed,
    /// Its admission, until the handshake is done.
    pub uninitialized: Uninitialized,
}

/// The socket by which operators reach the node from its own machine. Any process that may open the file may do
/// everything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MaintenanceSocket {
    /// The file.
    pub path: PathBuf,
    /// The group that may connect besides the file's owner; without one, that of the process.
    pub group: Option<String>,
}

/// Where a front door listens.
#[derive(Clone, Debug)]
pub struct Endpoints {
    /// The protocol, as messages and lists of clients call it.
    pub protocol: &'static str,
    /// The port, if there is one.
    pub address: Option<SocketAddr>,
    /// The maintenance socket, on the shard that accepts for it.
    pub maintenance_socket: Option<MaintenanceSocket>,
    /// The shard-aware port, if there is one.
    pub shard_aware_address: Option<SocketAddr>,
    /// The port for connections that begin with a header of the PROXY protocol, if there is one.
    pub proxied_address: Option<SocketAddr>,
    /// The shard-aware port for such connections, if there is one; the port of the client that the header names chooses
    /// the shard.
    pub proxied_shard_aware_address: Option<SocketAddr>,
}

/// A front door's ports on one shard. Clients that come before [`open`] are refused.
pub struct Listeners {
    /// The port.
    pub address: Option<ReservedAddress>,
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

impl Endpoints {
    fn cannot_listen(&self, address: SocketAddr, error: &io::Error) -> io::Error {
        let message = format!("cannot listen for {} on {address}: {error}", self.protocol);
        io::Error::new(error.kind(), message)
    }

    fn cannot_listen_at(&self, path: &Path, error: &io::Error) -> io::Error {
        let message = format!(
            "cannot listen for {} on the maintenance socket {}: {error}",
            self.protocol,
            path.display()
        );
        io::Error::new(error.kind(), message)
    }
}

impl Listeners {
    /// Takes the ports, of which every shard of a node has the same, and the maintenance socket.
    ///
    /// # Errors
    /// When an address cannot be taken.
    pub fn bind(endpoints: &Endpoints) -> io::Result<Self> {
        let reserve = |address: SocketAddr| {
            let shared = ListenOptions {
                reuse_port: true,
                backlog: BACKLOG,
            };
            ReservedAddress::bind(address, shared).map_err(|e| endpoints.cannot_listen(address, &e))
        };
        let reserve_path = |socket: &MaintenanceSocket| {
            let unix = UnixOptions {
                mode: MAINTENANCE_SOCKET_MODE,
                group: socket.group.clone(),
                backlog: BACKLOG,
            };
            ReservedPath::bind(&socket.path, &unix).map_err(|e| endpoints.cannot_listen_at(&socket.path, &e))
        };
        Ok(Self {
            address: endpoints.address.map(reserve).transpose()?,
            maintenance: endpoints.maintenance_socket.as_ref().map(reserve_path).transpose()?,
            shard_aware: endpoints.shard_aware_address.map(reserve).transpose()?,
            proxied: endpoints.proxied_address.map(reserve).transpose()?,
            proxied_shard_aware: endpoints.proxied_shard_aware_address.map(reserve).transpose()?,
        })
    }
}

/// Starts to accept a front door's clients on this shard, until the node drains; again after [`Front::reopen`].
///
/// # Errors
/// When another process listens there by now.
pub fn open<D: Door>(door: &Rc<D>, listeners: Listeners) -> io::Result<()> {
    listen(door, listeners)?;
    let reopened = Rc::downgrade(door);
    door.front().note_door(Box::new(move || match reopened.upgrade() {
        Some(door) => listen(&door, Listeners::bind(door.endpoints())?),
        None => Ok(()),
    }));
    Ok(())
}

fn listen<D: Door>(door: &Rc<D>, listeners: Listeners) -> io::Result<()> {
    let (front, endpoints) = (door.front(), door.endpoints());
    let ports = [
        (listeners.address, endpoints.address, false, false),
        (listeners.shard_aware, endpoints.shard_aware_address, true, false),
        (listeners.proxied, endpoints.proxied_address, false, true),
        (
            listeners.proxied_shard_aware,
            endpoints.proxied_shard_aware_address,
            true,
            true,
        ),
    ];
    for (reserved, address, shard_aware, proxied) in ports {
        if let (Some(reserved), Some(address)) = (reserved, address) {
            let listener = reserved.listen().map_err(|e| endpoints.cannot_listen(address, &e))?;
            let accepting = accept(door.clone(), listener, Port { shard_aware, proxied });
            drop(runtime::spawn_in(front.drivers_group, accepting));
        }
    }
    if let (Some(reserved), Some(socket)) = (listeners.maintenance, &endpoints.maintenance_socket) {
        let listener = reserved
            .listen()
            .map_err(|e| endpoints.cannot_listen_at(&socket.path, &e))?;
        drop(runtime::spawn_in(
            front.drivers_group,
            accept_operators(door.clone(), listener),
        ));
    }
    Ok(())
}

/// A connection that was accepted; after an error, none and a pause.
async fn accepted_or_rest(door: &impl Door, accepted: io::Result<TcpStream>) -> Option<TcpStream> {
    match accepted {
        Ok(stream) => Some(stream),
        Err(e) => {
            // Out of file descriptors, or a client that gave up.
            if door.front().accept_failures.admits() {
                log::warn!("cannot accept a {} connection: {e}", door.endpoints().protocol);
            }
            runtime::sleep(Duration::from_millis(10)).await;
            None
        }
    }
}

/// Accepts connections until the node drains. The listener is closed then: a client that is refused asks another node
/// at once, and one that was accepted and dropped may wait for an answer.
async fn accept<D: Door>(door: Rc<D>, listener: TcpListener, port: Port) {
    while let Some(accepted) = door.front().until_drain(listener.accept()).await {
        let Some(stream) = accepted_or_rest(&*door, accepted).await else {
            continue;
        };
        // A client that is gone by now has no address.
        if let Ok(peer) = stream.peer_addr() {
            if port.proxied {
                proxied::serve(door.clone(), stream, peer, port.shard_aware);
            } else {
                hand_over(door.clone(), stream, peer, port.shard_aware);
            }
        }
        if runtime::should_yield() {
            runtime::yield_now().await;
        }
    }
}

/// Accepts connections of the maintenance socket, for all shards of the node; each next connection goes to the next
/// shard. A connection at a path has no address: it is listed as 0.0.0.0 with its number as the port.
async fn accept_operators<D: Door>(door: Rc<D>, listener: UnixListener) {
    let mut number = 0_u16;
    while let Some(accepted) = door.front().until_drain(listener.accept()).await {
        let Some(stream) = accepted_or_rest(&*door, accepted).await else {
            continue;
        };
        let shard = ShardId(u32::from(number) % door.front().options.shards);
        number = number.wrapping_add(1);
        let peer = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), number);
        hand_to(door.clone(), shard, stream, peer);
        if runtime::should_yield() {
            runtime::yield_now().await;
        }
    }
}

/// Makes this shard, or the one that the client's port chooses, serve a connection.
pub(crate) fn hand_over<D: Door>(door: Rc<D>, stream: TcpStream, peer: SocketAddr, shard_aware: bool) {
    let shard = if shard_aware {
        ShardId(u32::from(peer.port()) % door.front().options.shards)
    } else {
        runtime::shard()
    };
    hand_to(door, shard, stream, peer);
}

/// Makes a shard serve a connection.
fn hand_to<D: Door>(door: Rc<D>, shard: ShardId, stream: TcpStream, peer: SocketAddr) {
    if shard == runtime::shard() {
        return serve(door, stream, peer);
    }
    let stream: DetachedStream = stream.detach();
    drop(runtime::submit_to(shard, move || {
        if let Some(door) = runtime::local::<D>() {
            serve(door, stream.attach(), peer);
        }
    }));
}

/// Lets a connection in and serves it, or closes it at once.
fn serve<D: Door>(door: Rc<D>, stream: TcpStream, peer: SocketAddr) {
    let front = door.front().clone();
    let Some(uninitialized) = front.admit() else {
        return;
    };
    drop(runtime::spawn_in(front.drivers_group, async move {
        // A connection of the maintenance socket has no such option, and sends at once.
        let _ = stream.set_nodelay(true);
        let clients = &front.node.clients;
        let client = clients.open(door.endpoints().protocol, runtime::shard().0, peer);
        client.set_group(front.drivers_group);
        let accepted = Accepted {
            stream,
            peer,
            client,
            uninitialized,
        };
        door.serve(accepted).await;
        front.note_end();
    }));
}
