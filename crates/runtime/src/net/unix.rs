//! Unix domain sockets: a name in the file system for clients on this machine; its mode and group control which may
//! connect.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use super::{ListenerInner, TcpStream};
use crate::driver::epoll::Source;
use crate::driver::unix_socket::{self, SocketFile};
use crate::driver::{Driver, socket, uring_net};
use crate::executor;

/// Bytes that the path of a Unix domain socket may have.
pub const UNIX_PATH_BYTES_MAX: usize = unix_socket::PATH_BYTES_MAX;

/// How to listen at a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnixOptions {
    /// Permissions of the socket's file; users with write permission may connect.
    pub mode: u32,
    /// The group that the file belongs to; without one, that of the process.
    pub group: Option<String>,
    /// Connections the kernel keeps until they are accepted.
    pub backlog: u32,
}

/// A bound path that does not listen yet: connections are refused.
pub struct ReservedPath {
    socket: OwnedFd,
    is_epoll: bool,
    file: SocketFile,
    backlog: u32,
}

/// A listening socket of this shard at a path. Dropping it removes the path.
pub struct UnixListener {
    listener: ListenerInner,
    file: SocketFile,
}

impl ReservedPath {
    /// Takes the path. The socket that a process left there which has ended is replaced.
    ///
    /// # Errors
    /// `AddrInUse` when a process listens there; `AlreadyExists` when another kind of file is there; `NotFound` when
    /// there is no such group; else as the system says. The simulator has no such sockets: `Unsupported`.
    pub fn bind(path: &Path, options: &UnixOptions) -> io::Result<Self> {
        let (is_epoll, flags) = executor::with(|executor| match &executor.driver {
            Driver::Uring(_) => Ok((false, 0)),
            Driver::Epoll(_) => Ok((true, libc::SOCK_NONBLOCK)),
            Driver::Simulated(_) => Err(io::Error::from(io::ErrorKind::Unsupported)),
        })?;
        let (socket, file) = unix_socket::reserve(path, options, flags)?;
        Ok(Self {
            socket,
            is_epoll,
            file,
            backlog: options.backlog,
        })
    }

    /// Listens there from now on.
    ///
    /// # Errors
    /// As the system says.
    pub fn listen(self) -> io::Result<UnixListener> {
        socket::begin_to_listen(&self.socket, self.backlog)?;
        let listener = if self.is_epoll {
            ListenerInner::Epoll(Source::new(Arc::new(self.socket))?)
        } else {
            ListenerInner::Uring(uring_net::Listener::new(self.socket))
        };
        Ok(UnixListener {
            listener,
            file: self.file,
        })
    }
}

impl UnixListener {
    /// Listens at the path, as [`ReservedPath::bind`] takes it.
    ///
    /// # Errors
    /// As those of [`ReservedPath::bind`].
    pub fn bind(path: &Path, options: &UnixOptions) -> io::Result<Self> {
        ReservedPath::bind(path, options)?.listen()
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The next connection. It has no address: what asks for one fails.
    ///
    /// # Errors
    /// As those of [`super::TcpListener::accept`].
    pub async fn accept(&self) -> io::Result<TcpStream> {
        self.listener.accept().await
    }
}

impl TcpStream {
    /// Connects to the socket at a path.
    ///
    /// # Errors
    /// As the system says: `ConnectionRefused` when no process listens there, `NotFound` when there is no such file.
    /// The simulator has no such sockets.
    pub fn connect_unix(path: &Path) -> io::Result<Self> {
        enum On {
            Uring,
            Epoll,
        }
        let on = executor::with(|executor| match &executor.driver {
            Driver::Uring(_) => Ok(On::Uring),
            Driver::Epoll(_) => Ok(On::Epoll),
            Driver::Simulated(_) => Err(io::Error::from(io::ErrorKind::Unsupported)),
        })?;
        let socket = Arc::new(unix_socket::connected(path)?);
        match on {
            On::Uring => Ok(Self::on_uring(socket, Vec::new())),
            On::Epoll => Ok(Self::on_epoll(Source::new(socket)?, Vec::new())),
        }
    }
}
