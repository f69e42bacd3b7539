//! Files and directories. Functions named `…_blocking` and the free functions block their thread; call them on job and offload threads,
//! at start, or where the data is in memory. They work on every thread of a production node; in the simulator they act on the disk
//! of the node that runs the caller.
//!
//! What is durable: a file's bytes after a successful `sync_data` or `sync_all`; a name (create, rename, remove, link) after
//! [`sync_dir`] of its directory. The simulator loses everything else at a power loss.

use crate::blocking::run_file_operation;
use crate::driver::{Driver, uring_file};
use crate::executor;
use std::fs as os;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// What direct access wants offsets, lengths and memory aligned to; every disk block size in use divides it.
pub const DIRECT_ALIGNMENT: usize = 4096;

/// How to open a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Make the file if it is not there.
    pub create: bool,
    /// Make the file; an error if it is there.
    pub create_new: bool,
    /// Cut the file to nothing.
    pub truncate: bool,
    /// Past the page cache, where the file system allows it. Reads may have any offset and length (they are widened); writes must be
    /// multiples of [`DIRECT_ALIGNMENT`] in both.
    pub direct: bool,
}

impl OpenOptions {
    /// An existing file, for reading.
    pub const READ: Self = Self {
        read: true,
        write: false,
        create: false,
        create_new: false,
        truncate: false,
        direct: false,
    };
    /// A new file, for reading and writing; an error if it is there.
    pub const CREATE_NEW: Self = Self {
        read: true,
        write: true,
        create: false,
        create_new: true,
        truncate: false,
        direct: false,
    };
}

/// An open file. Clones share it; it is closed with the last of them. Usable from every thread.
#[derive(Clone)]
pub struct File(Arc<Inner>);

enum Inner {
    Os { file: os::File, direct: bool },
}

impl File {
    /// Opens a file. Blocks.
    ///
    /// # Errors
    /// As the system says.
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> io::Result<Self> {
        let mut os_options = os::OpenOptions::new();
        os_options.read(options.read).write(options.write);
        os_options
            .create(options.create)
            .create_new(options.create_new)
            .truncate(options.truncate);
        if options.direct {
            os_options.custom_flags(libc::O_DIRECT);
        }
        match os_options.open(path.as_ref()) {
            // Some file systems have no direct access; then the page cache serves.
            Err(error) if options.direct && error.raw_os_error() == Some(libc::EINVAL) => {
                let mut buffered = options;
                buffered.direct = false;
                // The first attempt may have made the file.
                buffered.create |= buffered.create_new;
                buffered.create_new = false;
                Self::open(path, buffered)
            }
            opened => Ok(Self(Arc::new(Inner::Os {
                file: opened?,
                direct: options.direct,
            }))),
        }
    }

    /// Reads at an offset into the buffer; fewer bytes than asked only at the end of the file.
    ///
    /// # Errors
    /// As the system says.
    pub fn read_at_blocking(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match &*self.0 {
            Inner::Os { file, direct: false } => read_fully(file, buffer, offset),
            Inner::Os { file, direct: true } => {
                let window = Window::around(offset, buffer.len());
                let mut bounce = AlignedBuffer::new(window.length);
                let read = read_fully(file, bounce.bytes_mut(), window.start)?;
                let count = read.saturating_sub(window.skip).min(buffer.len());
                buffer[..count].copy_from_slice(&bounce.bytes()[window.skip..window.skip + count]);
                Ok(count)
            }
        }
    }

    /// Fills the buffer from an offset.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before; else as the system says.
    pub fn read_exact_at_blocking(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let count = self.read_at_blocking(buffer, offset)?;
        if count == buffer.len() {
            return Ok(());
        }
        let message = format!(
            "the file ends {count} bytes into a read of {} bytes at offset {offset}",
            buffer.len()
        );
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, message))
    }

    /// Writes all bytes at an offset.
    ///
    /// # Errors
    /// As the system says; a part may be written then.
    pub fn write_all_at_blocking(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match &*self.0 {
            Inner::Os { file, direct: false } => file.write_all_at(bytes, offset),
            Inner::Os { file, direct: true } => {
                check_direct_write(bytes.len(), offset)?;
                file.write_all_at(AlignedBuffer::from(bytes).bytes(), offset)
            }
        }
    }

    /// Makes the file's bytes durable, and of its metadata what reading them back needs.
    ///
    /// # Errors
    /// As the system says; after an error it is unknown what is durable, and a later success does not change that.
    pub fn sync_data_blocking(&self) -> io::Result<()> {
        match &*self.0 {
            Inner::Os { file, .. } => file.sync_data(),
        }
    }

    /// Makes the file's bytes and metadata durable.
    ///
    /// # Errors
    /// As for [`File::sync_data_blocking`].
    pub fn sync_all_blocking(&self) -> io::Result<()> {
        match &*self.0 {
            Inner::Os { file, .. } => file.sync_all(),
        }
    }

    /// Length in bytes. Blocks, briefly.
    ///
    /// # Errors
    /// As the system says.
    #[expect(
        clippy::len_without_is_empty,
        reason = "the length is asked of the system and may fail"
    )]
    pub fn len(&self) -> io::Result<u64> {
        match &*self.0 {
            Inner::Os { file, .. } => Ok(file.metadata()?.len()),
        }
    }

    /// Cuts the file or extends it with zeros. Blocks.
    ///
    /// # Errors
    /// As the system says.
    pub fn set_len(&self, length: u64) -> io::Result<()> {
        match &*self.0 {
            Inner::Os { file, .. } => file.set_len(length),
        }
    }

    /// Reserves space for the first `length` bytes and makes the file at least that long, so that writing there cannot run out of
    /// disk. Blocks.
    ///
    /// # Errors
    /// As the system says; a full disk is the usual one.
    pub fn allocate(&self, length: u64) -> io::Result<()> {
        match &*self.0 {
            Inner::Os { file, .. } => {
                let length = libc::off_t::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
                // SAFETY: plain numbers; the descriptor is open.
                let error = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) };
                if error == 0 {
                    Ok(())
                } else {
                    Err(io::Error::from_raw_os_error(error))
                }
            }
        }
    }

    /// Locks the file for this process until it is closed; false when another holds it.
    ///
    /// # Errors
    /// As the system says.
    pub fn try_lock_exclusive(&self) -> io::Result<bool> {
        match &*self.0 {
            Inner::Os { file, .. } => match file.try_lock() {
                Ok(()) => Ok(true),
                Err(os::TryLockError::WouldBlock) => Ok(false),
                Err(os::TryLockError::Error(error)) => Err(error),
            },
        }
    }

    /// Appends up to `length` bytes from an offset to the buffer; fewer only at the end of the file.
    pub async fn read_at(&self, buffer: Vec<u8>, offset: u64, length: usize) -> (io::Result<usize>, Vec<u8>) {
        let mut buffer = buffer;
        if !self.is_on_uring() {
            let file = self.clone();
            return run_file_operation(move || {
                let start = buffer.len();
                buffer.resize(start + length, 0);
                let result = file.read_at_blocking(&mut buffer[start..], offset);
                buffer.truncate(start + result.as_ref().copied().unwrap_or(0));
                (result, buffer)
            })
            .await;
        }
        let Inner::Os { file, direct } = &*self.0;
        if *direct {
            let window = Window::around(offset, length);
            let (result, bounce) = self
                .read_on_uring(file, AlignedBuffer::spare(window.length), window.start, window.length)
                .await;
            let count = result.map(|read| read.saturating_sub(window.skip).min(length));
            if let Ok(count) = count {
                let start = bounce.1 + window.skip;
                buffer.extend_from_slice(&bounce.0[start..start + count]);
            }
            return (count, buffer);
        }
        buffer.reserve(length);
        let (result, (buffer, _)) = self.read_on_uring(file, (buffer, 0), offset, length).await;
        (result, buffer)
    }

    /// Reads until the length or the end of the file. The start of the data in an aligned buffer is carried along.
    async fn read_on_uring(
        &self,
        file: &os::File,
        (mut buffer, aligned): (Vec<u8>, usize),
        offset: u64,
        length: usize,
    ) -> (io::Result<usize>, (Vec<u8>, usize)) {
        let mut total = 0;
        while total < length {
            let at = offset + total as u64;
            let (result, back) = uring_file::read(self.clone(), file.as_raw_fd(), buffer, at, length - total).await;
            buffer = back;
            match result {
                Ok(0) => break,
                Ok(count) => total += count,
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) => {}
                Err(error) => return (Err(error), (buffer, aligned)),
            }
            // A direct read that stops off the grid has met the end of the file.
            if aligned != 0 && !total.is_multiple_of(DIRECT_ALIGNMENT) {
                break;
            }
        }
        (Ok(total), (buffer, aligned))
    }

    /// Writes the whole buffer at an offset. A dropped future's write is still done.
    pub async fn write_at(&self, buffer: Vec<u8>, offset: u64) -> (io::Result<()>, Vec<u8>) {
        if !self.is_on_uring() {
            let file = self.clone();
            return run_file_operation(move || (file.write_all_at_blocking(&buffer, offset), buffer)).await;
        }
        let Inner::Os { file, direct } = &*self.0;
        if !*direct {
            return self.write_on_uring(file, buffer, 0, offset).await;
        }
        if let Err(error) = check_direct_write(buffer.len(), offset) {
            return (Err(error), buffer);
        }
        let (result, _) = {
            let bounce = AlignedBuffer::from(&buffer[..]);
            let start = bounce.start;
            self.write_on_uring(file, bounce.into_vec(), start, offset).await
        };
        (result, buffer)
    }

    async fn write_on_uring(
        &self,
        file: &os::File,
        mut buffer: Vec<u8>,
        start: usize,
        offset: u64,
    ) -> (io::Result<()>, Vec<u8>) {
        let mut position = start;
        while position < buffer.len() {
            let at = offset + (position - start) as u64;
            let (result, back) = uring_file::write(self.clone(), file.as_raw_fd(), buffer, position, at).await;
            buffer = back;
            match result {
                Ok(0) => return (Err(io::ErrorKind::WriteZero.into()), buffer),
                Ok(count) => position += count,
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) => {}
                Err(error) => return (Err(error), buffer),
            }
        }
        (Ok(()), buffer)
    }

    /// Makes the file's bytes durable. See [`File::sync_data_blocking`].
    ///
    /// # Errors
    /// As for [`File::sync_data_blocking`].
    pub async fn sync_data(&self) -> io::Result<()> {
        if !self.is_on_uring() {
            let file = self.clone();
            return run_file_operation(move || file.sync_data_blocking()).await;
        }
        let Inner::Os { file, .. } = &*self.0;
        uring_file::sync_data(self.clone(), file.as_raw_fd()).await
    }

    fn is_on_uring(&self) -> bool {
        matches!(&*self.0, Inner::Os { .. }) && executor::with(|executor| matches!(executor.driver, Driver::Uring(_)))
    }
}

fn read_fully(file: &os::File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut total = 0;
    while total < buffer.len() {
        match file.read_at(&mut buffer[total..], offset + total as u64) {
            Ok(0) => break,
            Ok(count) => total += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A direct read that stopped off the grid at the end of the file cannot go on from there.
            Err(_) if total > 0 && !total.is_multiple_of(512) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(total)
}

fn check_direct_write(length: usize, offset: u64) -> io::Result<()> {
    if length.is_multiple_of(DIRECT_ALIGNMENT) && offset.is_multiple_of(DIRECT_ALIGNMENT as u64) {
        return Ok(());
    }
    let message =
        format!("a direct write of {length} bytes at offset {offset}; both must be multiples of {DIRECT_ALIGNMENT}");
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// The aligned range around a wanted one.
struct Window {
    start: u64,
    length: usize,
    /// Bytes before the wanted ones.
    skip: usize,
}

impl Window {
    fn around(offset: u64, length: usize) -> Self {
        let skip = usize::try_from(offset % DIRECT_ALIGNMENT as u64).expect("a remainder of 4096 fits");
        Self {
            start: offset - skip as u64,
            length: (skip + length).next_multiple_of(DIRECT_ALIGNMENT),
            skip,
        }
    }
}

/// Memory as direct access wants it: a vector that is a little too long, and where its aligned part starts.
struct AlignedBuffer {
    vector: Vec<u8>,
    start: usize,
}

impl AlignedBuffer {
    fn new(length: usize) -> Self {
        let (mut vector, start) = Self::spare(length);
        vector.resize(start + length, 0);
        Self { vector, start }
    }

    /// A vector whose spare capacity starts aligned, and where that is.
    fn spare(length: usize) -> (Vec<u8>, usize) {
        let mut vector: Vec<u8> = Vec::with_capacity(length + DIRECT_ALIGNMENT);
        let start = vector.as_ptr().addr().next_multiple_of(DIRECT_ALIGNMENT) - vector.as_ptr().addr();
        vector.resize(start, 0);
        (vector, start)
    }

    fn bytes(&self) -> &[u8] {
        &self.vector[self.start..]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.vector[self.start..]
    }

    fn into_vec(self) -> Vec<u8> {
        self.vector
    }
}

impl From<&[u8]> for AlignedBuffer {
    fn from(bytes: &[u8]) -> Self {
        let (mut vector, start) = Self::spare(bytes.len());
        vector.extend_from_slice(bytes);
        Self { vector, start }
    }
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DirEntry {
    /// The name, without the directory.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Length of a file in bytes; 0 for directories.
    pub len: u64,
}

/// A whole file.
///
/// # Errors
/// As the system says.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    os::read(path)
}

/// Makes or replaces a file. Not atomic and not durable by itself.
///
/// # Errors
/// As the system says.
pub fn write(path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
    os::write(path, bytes)
}

/// Makes a directory and those above it that are missing.
///
/// # Errors
/// As the system says.
pub fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    os::create_dir_all(path)
}

/// The names in a directory, sorted. Names that are not UTF-8 are left out: we never make one.
///
/// # Errors
/// As the system says.
pub fn read_dir(path: impl AsRef<Path>) -> io::Result<Vec<DirEntry>> {
    let mut entries = Vec::new();
    for entry in os::read_dir(path)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let metadata = match entry.path().metadata() {
            Ok(metadata) => metadata,
            // Removed since it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        entries.push(DirEntry {
            name,
            is_dir: metadata.is_dir(),
            len: if metadata.is_dir() { 0 } else { metadata.len() },
        });
    }
    entries.sort_unstable();
    Ok(entries)
}

/// Renames, replacing what has the new name.
///
/// # Errors
/// As the system says.
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    os::rename(from, to)
}

/// Removes a file.
///
/// # Errors
/// As the system says.
pub fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    os::remove_file(path)
}

/// Removes a directory and all in it.
///
/// # Errors
/// As the system says.
pub fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    os::remove_dir_all(path)
}

/// Makes the names of a directory durable.
///
/// # Errors
/// As the system says.
pub fn sync_dir(path: impl AsRef<Path>) -> io::Result<()> {
    os::File::open(path)?.sync_all()
}

/// Whether something has this name.
#[must_use]
pub fn exists(path: impl AsRef<Path>) -> bool {
    path.as_ref().exists()
}

/// Gives a file a second name.
///
/// # Errors
/// As the system says.
pub fn hard_link(original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    os::hard_link(original, link)
}

/// Bytes that can still be written to the file system that holds the path.
///
/// # Errors
/// As the system says.
pub fn available_bytes(path: impl AsRef<Path>) -> io::Result<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_ref().as_os_str().as_bytes())?;
    // SAFETY: statvfs is plain data for which all zeros is valid.
    let mut figures: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero and the figures are a valid local.
    let result = unsafe { libc::statvfs(path.as_ptr(), &raw mut figures) };
    if result == 0 {
        Ok(figures.f_bavail * figures.f_frsize)
    } else {
        Err(io::Error::last_os_error())
    }
}
