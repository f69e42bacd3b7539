//! Sockets on epoll: every operation first tries the system call, then waits for readiness. Nothing is ever in flight,
//! so dropping a future needs no care here.

use super::epoll::{Source, Towards};
use super::socket::{self, RawAddress, checked};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

/// The end that reads.
pub(crate) struct Receiver {
    source: Rc<Source>,
    leftover: super::leftover::Leftover,
}

impl Receiver {
    pub(crate) fn new(source: Rc<Source>, leftover: Vec<u8>) -> Self {
        Self {
            source,
            leftover: super::leftover::Leftover::new(leftover, 0),
        }
    }

    pub(crate) async fn receive(&mut self, mut buffer: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        if !self.leftover.is_empty() {
            return (Ok(self.leftover.move_to(&mut buffer)), buffer);
        }
        let fd = self.source.socket.as_raw_fd();
        let result = self
            .source
            .when_ready(Towards::Us, || {
                let spare = buffer.spare_capacity_mut();
                let room = spare.len();
                // SAFETY: the pointer and length describe the buffer's spare capacity.
                let count = unsafe { libc::recv(fd, spare.as_mut_ptr().cast(), room, libc::MSG_DONTWAIT) };
                match usize::try_from(count) {
                    Ok(count) => {
                        // SAFETY: the kernel wrote `count` bytes to the start of the spare capacity.
                        unsafe { buffer.set_len(buffer.len() + count) };
                        (Ok(count), count < room)
                    }
                    Err(_) => (Err(io::Error::last_os_error()), false),
                }
            })
            .await;
        (result, buffer)
    }

    pub(crate) fn into_leftover(self) -> Vec<u8> {
        self.leftover.into_bytes()
    }
}

/// Sends all of the buffer.
/// Sends these bytes of the buffer.
pub(crate) async fn send_all(source: &Source, buffer: Vec<u8>, bytes: Range<usize>) -> (io::Result<()>, Vec<u8>) {
    let fd = source.socket.as_raw_fd();
    let mut sent = bytes.start;
    while sent < bytes.end {
        let rest = &buffer[sent..bytes.end];
        let result = source
            .when_ready(Towards::Them, || {
                // SAFETY: the pointer and length describe the rest of the buffer.
                let count = unsafe {
                    libc::send(
                        fd,
                        rest.as_ptr().cast(),
                        rest.len(),
                        libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                    )
                };
                match usize::try_from(count) {
                    Ok(count) => (Ok(count), count < rest.len()),
                    Err(_) => (Err(io::Error::last_os_error()), false),
                }
            })
            .await;
        match result {
            Ok(count) => sent += count,
            Err(error) => return (Err(error), buffer),
        }
    }
    (Ok(()), buffer)
}

pub(crate) async fn connect(address: SocketAddr) -> io::Result<Source> {
    let socket = Arc::new(socket::new_tcp(address, libc::SOCK_NONBLOCK)?);
    let raw = RawAddress::new(address);
    // SAFETY: the pointer and length describe `raw`.
    let started = checked(unsafe { libc::connect(socket.as_raw_fd(), raw.pointer(), raw.length()) });
    match started {
        Ok(_) => Source::new(socket),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINPROGRESS | libc::EINTR)) => {
            let source = Source::new(socket)?;
            source.wait_for_next_edge(Towards::Them);
            let fd = source.socket.as_raw_fd();
            source
                .when_ready(Towards::Them, || (socket::take_error(fd), false))
                .await?;
            Ok(source)
        }
        Err(error) => Err(error),
    }
}

pub(crate) async fn accept(source: &Source) -> io::Result<Source> {
    let fd = source.socket.as_raw_fd();
    loop {
        let accepted = source
            .when_ready(Towards::Us, || {
                let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
                // SAFETY: null pointers mean that the peer's address is not asked for.
                let accepted = checked(unsafe { libc::accept4(fd, std::ptr::null_mut(), std::ptr::null_mut(), flags) });
                (accepted, false)
            })
            .await;
        match accepted {
            // SAFETY: the descriptor is new and has no other owner.
            Ok(fd) => return Source::new(Arc::new(unsafe { OwnedFd::from_raw_fd(fd) })),
            Err(error) if error.raw_os_error() == Some(libc::ECONNABORTED) => {}
            Err(error) => return Err(error),
        }
    }
}
