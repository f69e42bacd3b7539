//! Plain system calls on Unix domain sockets that both production backends share.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::socket::checked;
use crate::net::UnixOptions;

/// Bytes that the path of a Unix domain socket may have; the kernel's field has one more, for the terminating zero.
pub(crate) const PATH_BYTES_MAX: usize = 107;

/// How large the buffer for an entry of the group database may get.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// The file of a socket. Dropping it removes the file, unless another file has replaced it.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = std::fs::symlink_metadata(path)?;
        Ok(Self {
            path: path.to_owned(),
            identity: (metadata.dev(), metadata.ino()),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let found = std::fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == self.identity) {
            // If the removal fails, the next start treats the file as left by a dead process.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A path in the kernel's form.
fn raw_address(path: &Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() || bytes.len() > PATH_BYTES_MAX || bytes.contains(&0) {
        let message = format!("the path of a socket has 1 to {PATH_BYTES_MAX} bytes, none of them zero");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    // SAFETY: sockaddr_un is plain data for which all zeros is valid.
    let mut raw: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    raw.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in raw.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    let length = std::mem::offset_of!(libc::sockaddr_un, sun_path) + bytes.len() + 1;
    Ok((raw, libc::socklen_t::try_from(length).unwrap_or(0)))
}

fn new_socket(flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: plain numbers in, a new descriptor or -1 out.
    let fd = checked(unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | flags, 0) })?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Begins to connect, without waiting.
fn connect(socket: &OwnedFd, path: &Path) -> io::Result<()> {
    let (raw, length) = raw_address(path)?;
    // SAFETY: the pointer and length describe `raw`, which lives through the call.
    checked(unsafe { libc::connect(socket.as_raw_fd(), (&raw const raw).cast(), length) }).map(drop)
}

/// A non-blocking connection to the socket at a path. The kernel makes it at once or says why not.
pub(crate) fn connected(path: &Path) -> io::Result<OwnedFd> {
    let socket = new_socket(libc::SOCK_NONBLOCK)?;
    connect(&socket, path)?;
    Ok(socket)
}

/// Removes the socket file of a process that has ended.
fn remove_stale(path: &Path) -> io::Result<()> {
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        let message = "there is a file of that name that is not a socket";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
    }
    match connected(path) {
        // No process listens there any more.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A full queue of connections has its listener too.
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) => Err(error),
    }
}

/// A socket that has the path, with mode and group, and does not listen yet: until it listens, connections are refused.
pub(crate) fn reserve(path: &Path, options: &UnixOptions, flags: libc::c_int) -> io::Result<(OwnedFd, SocketFile)> {
    let group = options.group.as_deref().map(group_id).transpose()?;
    remove_stale(path)?;
    let socket = new_socket(flags)?;
    let (raw, length) = raw_address(path)?;
    // SAFETY: the pointer and length describe `raw`, which lives through the call.
    checked(unsafe { libc::bind(socket.as_raw_fd(), (&raw const raw).cast(), length) })?;
    let file = SocketFile::of(path)?;
    if let Some(group) = group {
        std::os::unix::fs::lchown(path, None, Some(group))?;
    }
    let mode = std::os::unix::fs::PermissionsExt::from_mode(options.mode);
    std::fs::set_permissions(path, mode)?;
    Ok((socket, file))
}

/// The number of a group of this machine.
fn group_id(name: &str) -> io::Result<u32> {
    let no_group = || io::Error::new(io::ErrorKind::NotFound, format!("there is no group '{name}'"));
    let wanted = CString::new(name).map_err(|_| no_group())?;
    let mut buffer = vec![0_u8; 1 << 10];
    loop {
        // SAFETY: group is plain data for which all zeros is valid.
        let mut entry: libc::group = unsafe { std::mem::zeroed() };
        let mut found: *mut libc::group = std::ptr::null_mut();
        // SAFETY: the name ends with a zero; entry, buffer with its length and result are locals that the call may
        // write.
        let failed = unsafe {
            libc::getgrnam_r(
                wanted.as_ptr(),
                &raw mut entry,
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                &raw mut found,
            )
        };
        match failed {
            0 if found.is_null() => return Err(no_group()),
            0 => return Ok(entry.gr_gid),
            libc::ERANGE if buffer.len() < GROUP_BYTES_MAX => buffer.resize(buffer.len() * 2, 0),
            libc::EINTR => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}
