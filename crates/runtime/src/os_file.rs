//! A file of the operating system: blocking calls, and operations on a shard's ring.
//!
//! A direct file goes past the page cache, which wants offsets, lengths and memory aligned. Reads are widened to the
//! grid and copied out of an aligned buffer; writes that are off the grid are refused, since widening them would mean
//! to read first.

use crate::blocking::close_file;
use crate::driver::uring_file;
use crate::fs::{File, OpenOptions};
use std::fs as os;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// What direct access wants offsets, lengths and memory aligned to; every disk block size in use divides it.
pub const DIRECT_ALIGNMENT: usize = 4096;

pub(crate) struct OsFile {
    /// There until it is dropped.
    file: Option<os::File>,
    direct: bool,
    is_locked: AtomicBool,
}

impl Drop for OsFile {
    fn drop(&mut self) {
        match self.file.take() {
            // The caller relies on the lock being free after the drop.
            Some(file) if *self.is_locked.get_mut() => drop(file),
            Some(file) => close_file(file),
            None => {}
        }
    }
}

impl OsFile {
    fn file(&self) -> &os::File {
        self.file.as_ref().expect("a file is taken away when it is dropped")
    }

    pub(crate) fn open(path: &Path, options: OpenOptions) -> io::Result<Self> {
        let mut os_options = os::OpenOptions::new();
        os_options.read(options.read).write(options.write);
        os_options
            .create(options.create)
            .create_new(options.create_new)
            .truncate(options.truncate);
        if options.direct {
            os_options.custom_flags(libc::O_DIRECT);
        }
        match os_options.open(path) {
            // Some file systems have no direct access; then the page cache serves.
            Err(error) if options.direct && error.raw_os_error() == Some(libc::EINVAL) => {
                // The first attempt may have made the file.
                let create = options.create || options.create_new;
                Self::open(
                    path,
                    OpenOptions {
                        direct: false,
                        create,
                        create_new: false,
                        ..options
                    },
                )
            }
            opened => Ok(Self {
                file: Some(opened?),
                direct: options.direct,
                is_locked: AtomicBool::new(false),
            }),
        }
    }

    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if !self.direct {
            return read_fully(self.file(), buffer, offset);
        }
        let window = Window::around(offset, buffer.len());
        let mut bounce = AlignedBuffer::new(window.length);
        let read = read_fully(self.file(), bounce.bytes_mut(), window.start)?;
        let count = read.saturating_sub(window.skip).min(buffer.len());
        buffer[..count].copy_from_slice(&bounce.bytes()[window.skip..window.skip + count]);
        Ok(count)
    }

    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if !self.direct {
            return self.file().write_all_at(bytes, offset);
        }
        check_direct_write(bytes.len(), offset)?;
        self.file().write_all_at(AlignedBuffer::from(bytes).bytes(), offset)
    }

    pub(crate) fn sync_data(&self) -> io::Result<()> {
        self.file().sync_data()
    }

    pub(crate) fn sync_all(&self) -> io::Result<()> {
        self.file().sync_all()
    }

    pub(crate) fn len(&self) -> io::Result<u64> {
        Ok(self.file().metadata()?.len())
    }

    pub(crate) fn set_len(&self, length: u64) -> io::Result<()> {
        self.file().set_len(length)
    }

    pub(crate) fn allocate(&self, length: u64) -> io::Result<()> {
        let length = libc::off_t::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        // SAFETY: plain numbers; the descriptor is open.
        let error = unsafe { libc::posix_fallocate(self.file().as_raw_fd(), 0, length) };
        if error == 0 {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(error))
        }
    }

    pub(crate) fn try_lock(&self) -> io::Result<bool> {
        match self.file().try_lock() {
            Ok(()) => {
                self.is_locked.store(true, Ordering::Relaxed);
                Ok(true)
            }
            Err(os::TryLockError::WouldBlock) => Ok(false),
            Err(os::TryLockError::Error(error)) => Err(error),
        }
    }

    /// Appends to the buffer. `keep` is this file, which the operation keeps open.
    pub(crate) async fn read_on_ring(
        &self,
        keep: &File,
        mut buffer: Vec<u8>,
        offset: u64,
        length: usize,
    ) -> (io::Result<usize>, Vec<u8>) {
        if !self.direct {
            buffer.reserve(length);
            return self.read_until_end(keep, buffer, offset, length).await;
        }
        let window = Window::around(offset, length);
        let bounce = AlignedBuffer::with_capacity(window.length);
        let start = bounce.start + window.skip;
        let (result, bounce) = self
            .read_until_end(keep, bounce.vector, window.start, window.length)
            .await;
        let count = result.map(|read| read.saturating_sub(window.skip).min(length));
        if let Ok(count) = count {
            buffer.extend_from_slice(&bounce[start..start + count]);
        }
        (count, buffer)
    }

    async fn read_until_end(
        &self,
        keep: &File,
        mut buffer: Vec<u8>,
        offset: u64,
        length: usize,
    ) -> (io::Result<usize>, Vec<u8>) {
        let (mut total, fd) = (0, self.file().as_raw_fd());
        while total < length {
            let at = offset + total as u64;
            let (result, back) = uring_file::read(keep.clone(), fd, buffer, at, length - total).await;
            buffer = back;
            match result {
                Ok(0) => break,
                Ok(count) => total += count,
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) => {}
                Err(error) => return (Err(error), buffer),
            }
            // A direct read that stops off the grid has met the end of the file.
            if self.direct && !total.is_multiple_of(DIRECT_ALIGNMENT) {
                break;
            }
        }
        (Ok(total), buffer)
    }

    /// Writes the whole buffer. `keep` is this file, which the operation keeps open.
    pub(crate) async fn write_on_ring(&self, keep: &File, buffer: Vec<u8>, offset: u64) -> (io::Result<()>, Vec<u8>) {
        if !self.direct {
            return self.write_from(keep, buffer, 0, offset).await;
        }
        if let Err(error) = check_direct_write(buffer.len(), offset) {
            return (Err(error), buffer);
        }
        let bounce = AlignedBuffer::from(&buffer[..]);
        let (result, _) = self.write_from(keep, bounce.vector, bounce.start, offset).await;
        (result, buffer)
    }

    /// Writes the buffer from `start` on.
    async fn write_from(
        &self,
        keep: &File,
        mut buffer: Vec<u8>,
        start: usize,
        offset: u64,
    ) -> (io::Result<()>, Vec<u8>) {
        let mut position = start;
        while position < buffer.len() {
            let at = offset + (position - start) as u64;
            let (result, back) = uring_file::write(keep.clone(), self.file().as_raw_fd(), buffer, position, at).await;
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

    /// `fdatasync`. `keep` is this file, which the operation keeps open.
    pub(crate) async fn sync_on_ring(&self, keep: &File) -> io::Result<()> {
        uring_file::sync_data(keep.clone(), self.file().as_raw_fd()).await
    }
}

fn read_fully(file: &os::File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut total = 0;
    while total < buffer.len() {
        match file.read_at(&mut buffer[total..], offset + total as u64) {
            Ok(0) => break,
            Ok(count) => total += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A direct read that stopped at an unaligned end of the file cannot continue from there.
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

/// The aligned range around a requested one.
struct Window {
    start: u64,
    length: usize,
    /// Bytes before the requested ones.
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
        let mut buffer = Self::with_capacity(length);
        buffer.vector.resize(buffer.start + length, 0);
        buffer
    }

    /// Nothing yet, but room for that much, aligned.
    fn with_capacity(length: usize) -> Self {
        let mut vector: Vec<u8> = Vec::with_capacity(length + DIRECT_ALIGNMENT);
        let start = vector.as_ptr().addr().next_multiple_of(DIRECT_ALIGNMENT) - vector.as_ptr().addr();
        vector.resize(start, 0);
        Self { vector, start }
    }

    fn bytes(&self) -> &[u8] {
        &self.vector[self.start..]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.vector[self.start..]
    }
}

impl From<&[u8]> for AlignedBuffer {
    fn from(bytes: &[u8]) -> Self {
        let mut buffer = Self::with_capacity(bytes.len());
        buffer.vector.extend_from_slice(bytes);
        buffer
    }
}
