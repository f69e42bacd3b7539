//! TCP. Buffers are owned by the operation while it is in flight and come back with the result, so dropping a future is
//! always safe: a dropped `read` or `accept` loses nothing (the next one gets what it received), a dropped `write_all`
//! leaves an unknown part written and every later write fails. Connections at a path of the file system
//! ([`UnixListener`]) are streams of the same kind.

mod unix;

pub use unix::{ReservedPath, UNIX_PATH_BYTES_MAX, UnixListener, UnixOptions};

use crate::driver::epoll::Source;
use crate::driver::{Driver, epoll_net, socket, uring_net};
use crate::executor;
use crate::sim::network::{self, SimulatedEnd, SimulatedListener};
use crate::sim::world;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, ToSocketAddrs};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The addresses of a host, as the system's resolver orders them, each once. Blocks, for seconds when a name server
/// does not answer: not to be called on a shard, where [`resolve`] is the function. In the simulator names are those of
/// [`crate::sim::Simulation::set_name`].
///
/// # Errors
/// The resolver's: there is no such name, or no name server answers.
pub fn lookup(host: &str) -> io::Result<Vec<IpAddr>> {
    if world::is_simulated() {
        return world::world().lookup(host);
    }
    let mut addresses = Vec::new();
    for address in (host, 0).to_socket_addrs()? {
        if !addresses.contains(&address.ip()) {
            addresses.push(address.ip());
        }
    }
    Ok(addresses)
}

/// The addresses of a host, as [`lookup`] returns them, without blocking the shard: another thread calls the resolver.
///
/// # Errors
/// Those of [`lookup`].
pub async fn resolve(host: &str) -> io::Result<Vec<IpAddr>> {
    let host = host.to_owned();
    crate::offload(move || lookup(&host)).await
}

/// The address to use of several: the first of IPv4, else the first.
#[must_use]
pub fn preferred(addresses: &[IpAddr]) -> Option<IpAddr> {
    let preferred = addresses.iter().find(|address| address.is_ipv4());
    preferred.or(addresses.first()).copied()
}

/// How to listen.
#[derive(Clone, Copy, Debug)]
pub struct ListenOptions {
    /// Several sockets, one for each shard, share the address; the kernel spreads the connections.
    pub reuse_port: bool,
    /// Connections the kernel keeps until they are accepted.
    pub backlog: u32,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            reuse_port: false,
            backlog: 1024,
        }
    }
}

/// A listening socket of this shard.
pub struct TcpListener(ListenerInner);

enum ListenerInner {
    Uring(uring_net::Listener),
    Epoll(Source),
    Simulated(SimulatedListener),
}

impl ListenerInner {
    async fn accept(&self) -> io::Result<TcpStream> {
        match self {
            Self::Uring(listener) => Ok(TcpStream::on_uring(listener.accept().await?, Vec::new())),
            Self::Epoll(source) => Ok(TcpStream::on_epoll(epoll_net::accept(source).await?, Vec::new())),
            Self::Simulated(listener) => Ok(TcpStream::simulated(listener.accept().await?)),
        }
    }
}

/// A bound address that does not listen yet: connections are refused. If another socket listens there first,
/// [`Self::listen`] fails.
pub struct ReservedAddress {
    socket: ReservedSocket,
    backlog: u32,
}

enum ReservedSocket {
    Uring(OwnedFd),
    Epoll(OwnedFd),
    Simulated(SimulatedListener),
}

impl ReservedAddress {
    /// Takes the address; port 0 takes a free one.
    ///
    /// # Errors
    /// As the system says: the address is in use, is not ours, is not permitted.
    pub fn bind(address: SocketAddr, options: ListenOptions) -> io::Result<Self> {
        let socket = executor::with(|executor| match &executor.driver {
            Driver::Uring(_) => socket::reserve(address, options.reuse_port, 0).map(ReservedSocket::Uring),
            Driver::Epoll(_) => {
                socket::reserve(address, options.reuse_port, libc::SOCK_NONBLOCK).map(ReservedSocket::Epoll)
            }
            Driver::Simulated(_) => {
                SimulatedListener::reserve(address, options.reuse_port, options.backlog).map(ReservedSocket::Simulated)
            }
        })?;
        Ok(Self {
            socket,
            backlog: options.backlog,
        })
    }

    /// The address, with the port that was taken.
    ///
    /// # Errors
    /// As the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.socket {
            ReservedSocket::Uring(socket) | ReservedSocket::Epoll(socket) => socket::local_address(socket.as_raw_fd()),
            ReservedSocket::Simulated(listener) => Ok(listener.local_address()),
        }
    }

    /// Listens there from now on.
    ///
    /// # Errors
    /// As the system says.
    pub fn listen(self) -> io::Result<TcpListener> {
        let inner = match self.socket {
            ReservedSocket::Uring(socket) => {
                socket::begin_to_listen(&socket, self.backlog)?;
                ListenerInner::Uring(uring_net::Listener::new(socket))
            }
            ReservedSocket::Epoll(socket) => {
                socket::begin_to_listen(&socket, self.backlog)?;
                ListenerInner::Epoll(Source::new(Arc::new(socket))?)
            }
            ReservedSocket::Simulated(listener) => {
                listener.begin_to_listen()?;
                ListenerInner::Simulated(listener)
            }
        };
        Ok(TcpListener(inner))
    }
}

impl TcpListener {
    /// Listens at the address; port 0 takes a free one.
    ///
    /// # Errors
    /// As the system says: the address is in use, is not ours, is not permitted.
    pub fn bind(address: SocketAddr, options: ListenOptions) -> io::Result<Self> {
        ReservedAddress::bind(address, options)?.listen()
    }

    /// The address it listens at, with the port that was taken.
    ///
    /// # Errors
    /// As the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.0 {
            ListenerInner::Uring(listener) => socket::local_address(listener.socket().as_raw_fd()),
            ListenerInner::Epoll(source) => socket::local_address(source.socket.as_raw_fd()),
            ListenerInner::Simulated(listener) => Ok(listener.local_address()),
        }
    }

    /// The next connection.
    ///
    /// # Errors
    /// As the system says; too many open files is the usual one, and accepting again later may work.
    pub async fn accept(&self) -> io::Result<TcpStream> {
        self.0.accept().await
    }
}

/// A connection of this shard.
pub struct TcpStream {
    read: ReadHalf,
    write: WriteHalf,
}

/// The reading end of a connection.
pub struct ReadHalf(Receiver);

/// What happens to a message between its arrival and its effect. Connections deliver once and in order, so nothing
/// happens, except in simulations that ask for it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Fate {
    /// It takes effect this much later, after messages that were sent after it.
    pub late: Option<Duration>,
    /// It takes effect once more, this much later.
    pub again: Option<Duration>,
}

/// The writing end of a connection. Dropping it does not end the direction; [`WriteHalf::shutdown`] does.
pub struct WriteHalf {
    sender: Sender,
    /// A write was dropped half-way.
    broken: bool,
}

enum Receiver {
    Uring(uring_net::Receiver),
    Epoll(epoll_net::Receiver),
    Simulated(Arc<SimulatedEnd>),
}

enum Sender {
    Uring(Arc<OwnedFd>),
    Epoll(Rc<Source>),
    Simulated(Arc<SimulatedEnd>),
}

/// What a sender is of, whatever the backend.
enum Socket<'a> {
    Os(&'a Arc<OwnedFd>),
    Simulated(&'a Arc<SimulatedEnd>),
}

impl Sender {
    fn socket(&self) -> Socket<'_> {
        match self {
            Self::Uring(socket) => Socket::Os(socket),
            Self::Epoll(source) => Socket::Os(&source.socket),
            Self::Simulated(end) => Socket::Simulated(end),
        }
    }
}

impl TcpStream {
    fn on_uring(socket: Arc<OwnedFd>, leftover: Vec<u8>) -> Self {
        Self {
            read: ReadHalf(Receiver::Uring(uring_net::Receiver::new(Arc::clone(&socket), leftover))),
            write: WriteHalf {
                sender: Sender::Uring(socket),
                broken: false,
            },
        }
    }

    fn on_epoll(source: Source, leftover: Vec<u8>) -> Self {
        let source = Rc::new(source);
        Self {
            read: ReadHalf(Receiver::Epoll(epoll_net::Receiver::new(Rc::clone(&source), leftover))),
            write: WriteHalf {
                sender: Sender::Epoll(source),
                broken: false,
            },
        }
    }

    fn simulated(end: Arc<SimulatedEnd>) -> Self {
        Self {
            read: ReadHalf(Receiver::Simulated(Arc::clone(&end))),
            write: WriteHalf {
                sender: Sender::Simulated(end),
                broken: false,
            },
        }
    }

    /// Connects to the address.
    ///
    /// # Errors
    /// As the system says.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        enum On {
            Uring,
            Epoll,
            Simulated,
        }
        let on = executor::with(|executor| match &executor.driver {
            Driver::Uring(_) => On::Uring,
            Driver::Epoll(_) => On::Epoll,
            Driver::Simulated(_) => On::Simulated,
        });
        match on {
            On::Uring => Ok(Self::on_uring(uring_net::connect(address).await?, Vec::new())),
            On::Epoll => Ok(Self::on_epoll(epoll_net::connect(address).await?, Vec::new())),
            On::Simulated => Ok(Self::simulated(network::connect(address).await?)),
        }
    }

    /// The other end's address.
    ///
    /// # Errors
    /// As the system says; an end that is gone has no address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self.write.sender.socket() {
            Socket::Os(socket) => socket::peer_address(socket.as_raw_fd()),
            Socket::Simulated(end) => Ok(end.peer_address()),
        }
    }

    /// This end's address.
    ///
    /// # Errors
    /// As the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self.write.sender.socket() {
            Socket::Os(socket) => socket::local_address(socket.as_raw_fd()),
            Socket::Simulated(end) => Ok(end.local_address()),
        }
    }

    /// Whether small writes are sent at once instead of being collected.
    ///
    /// # Errors
    /// As the system says.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        match self.write.sender.socket() {
            Socket::Os(socket) => socket::set_option(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_NODELAY,
                i32::from(nodelay),
            ),
            Socket::Simulated(_) => Ok(()),
        }
    }

    /// See [`ReadHalf::read`].
    pub async fn read(&mut self, buffer: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        self.read.read(buffer).await
    }

    /// See [`WriteHalf::write_all`].
    pub async fn write_all(&mut self, buffer: Vec<u8>) -> (io::Result<()>, Vec<u8>) {
        self.write.write_all(buffer).await
    }

    /// Ends one or both directions.
    ///
    /// # Errors
    /// As the system says.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.write.shutdown(how)
    }

    /// Two ends that two tasks of this shard can use at once. The connection is closed when both are dropped.
    #[must_use]
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        (self.read, self.write)
    }

    /// Puts the two ends of one connection together again.
    #[must_use]
    pub fn from_split(read: ReadHalf, write: WriteHalf) -> Self {
        Self { read, write }
    }

    /// Takes the connection off this shard, with what was received and not read, to be sent to another.
    #[must_use]
    pub fn detach(self) -> DetachedStream {
        let broken = self.write.broken;
        let socket = match self.write.sender.socket() {
            Socket::Os(socket) => Detached::Os(Arc::clone(socket)),
            Socket::Simulated(end) => Detached::Simulated(Arc::clone(end)),
        };
        let leftover = match self.read.0 {
            Receiver::Uring(receiver) => receiver.into_leftover(),
            Receiver::Epoll(receiver) => receiver.into_leftover(),
            Receiver::Simulated(_) => Vec::new(),
        };
        DetachedStream {
            socket,
            leftover,
            broken,
        }
    }
}

/// A connection that belongs to no shard, on its way to one.
pub struct DetachedStream {
    socket: Detached,
    leftover: Vec<u8>,
    broken: bool,
}

/// Ends a connection whose halves are in use. See [`WriteHalf::closer`].
pub struct Closer(Detached);

impl Closer {
    /// Ends both directions: reads and writes that are under way end, too.
    ///
    /// # Errors
    /// As the system says.
    pub fn close(&self) -> io::Result<()> {
        match &self.0 {
            Detached::Os(socket) => socket::shut_down(socket.as_raw_fd(), Shutdown::Both),
            Detached::Simulated(end) => end.shut_down(Shutdown::Both),
        }
    }
}

enum Detached {
    Os(Arc<OwnedFd>),
    Simulated(Arc<SimulatedEnd>),
}

impl DetachedStream {
    /// Takes the connection over to this shard.
    #[must_use]
    pub fn attach(self) -> TcpStream {
        let is_epoll = executor::with(|executor| matches!(executor.driver, Driver::Epoll(_)));
        let mut stream = match self.socket {
            Detached::Os(socket) if is_epoll => TcpStream::on_epoll(Source::adopt(socket), self.leftover),
            Detached::Os(socket) => TcpStream::on_uring(socket, self.leftover),
            Detached::Simulated(end) => TcpStream::simulated(end),
        };
        stream.write.broken = self.broken;
        stream
    }
}

impl ReadHalf {
    /// Appends what has arrived, at most the buffer's spare capacity; waits until there is something. `Ok(0)` is the
    /// end of the stream. Dropping the future loses no bytes, only the buffer.
    pub async fn read(&mut self, buffer: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        if buffer.len() == buffer.capacity() {
            return (
                Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "a read into a buffer without spare capacity",
                )),
                buffer,
            );
        }
        match &mut self.0 {
            Receiver::Uring(receiver) => receiver.receive(buffer).await,
            Receiver::Epoll(receiver) => receiver.receive(buffer).await,
            Receiver::Simulated(end) => end.receive(buffer).await,
        }
    }

    /// What becomes of a message that was read from here: to be asked once for each, by protocols that say what
    /// repeated and overtaken requests do.
    #[must_use]
    pub fn fate(&self) -> Fate {
        match &self.0 {
            Receiver::Uring(_) | Receiver::Epoll(_) => Fate::default(),
            Receiver::Simulated(end) => end.fate(),
        }
    }
}

impl WriteHalf {
    /// Sends the whole buffer. Dropping the future leaves an unknown part sent, and every later write fails.
    pub async fn write_all(&mut self, buffer: Vec<u8>) -> (io::Result<()>, Vec<u8>) {
        let all = 0..buffer.len();
        self.write_range(buffer, all).await
    }

    /// Sends a part of the buffer, so that a caller sees how far a long one has come. Dropping the future has the
    /// effect that it has for [`Self::write_all`].
    ///
    /// # Panics
    /// If the buffer has no such bytes.
    pub async fn write_range(&mut self, buffer: Vec<u8>, bytes: Range<usize>) -> (io::Result<()>, Vec<u8>) {
        assert!(bytes.end <= buffer.len(), "the range is a part of the buffer");
        if self.broken {
            let error = io::Error::new(io::ErrorKind::BrokenPipe, "an earlier write was abandoned half-way");
            return (Err(error), buffer);
        }
        self.broken = true;
        let (result, buffer) = match &mut self.sender {
            Sender::Uring(socket) => uring_net::send_all(socket, buffer, bytes).await,
            Sender::Epoll(source) => epoll_net::send_all(source, buffer, bytes).await,
            Sender::Simulated(end) => end.send_all(buffer, bytes).await,
        };
        self.broken = result.is_err();
        (result, buffer)
    }

    /// Ends one or both directions.
    ///
    /// # Errors
    /// As the system says.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self.sender.socket() {
            Socket::Os(socket) => socket::shut_down(socket.as_raw_fd(), how),
            Socket::Simulated(end) => end.shut_down(how),
        }
    }

    /// What ends the connection from elsewhere on this shard, also while a write is under way.
    #[must_use]
    pub fn closer(&self) -> Closer {
        Closer(match self.sender.socket() {
            Socket::Os(socket) => Detached::Os(Arc::clone(socket)),
            Socket::Simulated(end) => Detached::Simulated(Arc::clone(end)),
        })
    }

    /// The descriptor, for diagnostics; `None` in the simulator.
    #[must_use]
    pub fn raw_fd(&self) -> Option<RawFd> {
        match self.sender.socket() {
            Socket::Os(socket) => Some(socket.as_raw_fd()),
            Socket::Simulated(_) => None,
        }
    }
}
