//! Plain system calls on sockets that both production backends share, and socket addresses as the kernel wants them.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A socket address in the kernel's form.
pub(crate) struct RawAddress {
    storage: libc::sockaddr_storage,
    length: libc::socklen_t,
}

impl RawAddress {
    fn empty() -> Self {
        // SAFETY: sockaddr_storage is plain data for which all zeros is valid.
        let storage = unsafe { std::mem::zeroed() };
        Self {
            storage,
            length: size_of::<libc::sockaddr_storage>() as libc::socklen_t,
        }
    }

    pub(crate) fn new(address: SocketAddr) -> Self {
        let mut raw = Self::empty();
        match address {
            SocketAddr::V4(v4) => {
                let inner = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from(*v4.ip()).to_be(),
                    },
                    sin_zero: [0; 8],
                };
                // SAFETY: sockaddr_storage is at least as large and as aligned as any socket address.
                unsafe { (&raw mut raw.storage).cast::<libc::sockaddr_in>().write(inner) };
                raw.length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            }
            SocketAddr::V6(v6) => {
                let inner = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr {
                        s6_addr: v6.ip().octets(),
                    },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: as above.
                unsafe { (&raw mut raw.storage).cast::<libc::sockaddr_in6>().write(inner) };
                raw.length = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            }
        }
        raw
    }

    pub(crate) fn pointer(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }

    pub(crate) fn length(&self) -> libc::socklen_t {
        self.length
    }

    fn to_socket_addr(&self) -> io::Result<SocketAddr> {
        match i32::from(self.storage.ss_family) {
            libc::AF_INET => {
                // SAFETY: the kernel wrote an address of this family into storage that is large and aligned enough.
                let inner = unsafe { (&raw const self.storage).cast::<libc::sockaddr_in>().read() };
                let ip = Ipv4Addr::from(u32::from_be(inner.sin_addr.s_addr));
                Ok(SocketAddrV4::new(ip, u16::from_be(inner.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let inner = unsafe { (&raw const self.storage).cast::<libc::sockaddr_in6>().read() };
                let ip = Ipv6Addr::from(inner.sin6_addr.s6_addr);
                let port = u16::from_be(inner.sin6_port);
                Ok(SocketAddrV6::new(ip, port, inner.sin6_flowinfo, inner.sin6_scope_id).into())
            }
            family => Err(io::Error::other(format!(
                "socket address of family {family}, expected IPv4 or IPv6"
            ))),
        }
    }
}

/// A result of the C library as a result of Rust.
pub(crate) fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// A new TCP socket for addresses of this family; `flags` is `SOCK_NONBLOCK` or 0.
pub(crate) fn new_tcp(address: SocketAddr, flags: libc::c_int) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    // SAFETY: plain numbers in, a new descriptor or -1 out.
    let fd = checked(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | flags, 0) })?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(crate) fn set_option(fd: RawFd, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the value is a local int and its length is given.
    checked(unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), length) }).map(drop)
}

/// A socket that has the address and does not listen yet.
pub(crate) fn reserve(address: SocketAddr, reuse_port: bool, flags: libc::c_int) -> io::Result<OwnedFd> {
    let socket = new_tcp(address, flags)?;
    let fd = socket.as_raw_fd();
    set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    if reuse_port {
        set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    }
    if address.is_ipv6() {
        set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    }
    let raw = RawAddress::new(address);
    // SAFETY: the pointer and length describe `raw`, which lives through the call.
    checked(unsafe { libc::bind(fd, raw.pointer(), raw.length()) })?;
    Ok(socket)
}

pub(crate) fn begin_to_listen(socket: &OwnedFd, backlog: u32) -> io::Result<()> {
    let backlog = libc::c_int::try_from(backlog).unwrap_or(libc::c_int::MAX);
    // SAFETY: plain numbers.
    checked(unsafe { libc::listen(socket.as_raw_fd(), backlog) }).map(drop)
}

pub(crate) fn local_address(fd: RawFd) -> io::Result<SocketAddr> {
    let mut raw = RawAddress::empty();
    // SAFETY: the storage and its length are locals that the call may write.
    checked(unsafe { libc::getsockname(fd, (&raw mut raw.storage).cast(), &raw mut raw.length) })?;
    raw.to_socket_addr()
}

pub(crate) fn peer_address(fd: RawFd) -> io::Result<SocketAddr> {
    let mut raw = RawAddress::empty();
    // SAFETY: the storage and its length are locals that the call may write.
    checked(unsafe { libc::getpeername(fd, (&raw mut raw.storage).cast(), &raw mut raw.length) })?;
    raw.to_socket_addr()
}

pub(crate) fn shut_down(fd: RawFd, how: std::net::Shutdown) -> io::Result<()> {
    let how = match how {
        std::net::Shutdown::Read => libc::SHUT_RD,
        std::net::Shutdown::Write => libc::SHUT_WR,
        std::net::Shutdown::Both => libc::SHUT_RDWR,
    };
    // SAFETY: plain numbers.
    checked(unsafe { libc::shutdown(fd, how) }).map(drop)
}

/// The error that an asynchronous operation left at the socket.
pub(crate) fn take_error(fd: RawFd) -> io::Result<()> {
    let mut error: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the value is a local int and its length is given.
    checked(unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            (&raw mut error).cast(),
            &raw mut length,
        )
    })?;
    if error == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(error))
    }
}
