//! Files and directories. Functions named `…_blocking` and the free functions block their thread; call them on job and
//! offload threads, at start, or where the data is in memory. They work on every thread of a production node; in the
//! simulator they act on the disk of the node that runs the caller.
//!
//! What is durable: a file's bytes after a successful `sync_data` or `sync_all`; a name (create, rename, remove, link)
//! after [`sync_dir`] of its directory. The simulator loses everything else at a power loss.

use crate::blocking::run_file_operation;
use crate::driver::Driver;
use crate::executor;
use crate::os_file::OsFile;
use crate::sim::files::{self as simulated, SimulatedFile};
use crate::sim::world::is_simulated;
use std::fs as os;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub use crate::os_file::DIRECT_ALIGNMENT;

/// How often [`read_surely`] reads a file again at the most.
const SURE_READS_MAX: usize = 4;

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
    /// Past the page cache, where the file system allows it. Reads may have any offset and length (they are widened);
    /// writes must be multiples of [`DIRECT_ALIGNMENT`] in both.
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
    Os(OsFile),
    Simulated(SimulatedFile),
}

impl File {
    /// Opens a file. Blocks.
    ///
    /// # Errors
    /// As the system says.
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> io::Result<Self> {
        let inner = if is_simulated() {
            Inner::Simulated(SimulatedFile::open(path.as_ref(), options)?)
        } else {
            Inner::Os(OsFile::open(path.as_ref(), options)?)
        };
        Ok(Self(Arc::new(inner)))
    }

    /// Reads at an offset into the buffer; fewer bytes than asked only at the end of the file.
    ///
    /// # Errors
    /// As the system says.
    pub fn read_at_blocking(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match &*self.0 {
            Inner::Os(file) => file.read(buffer, offset),
            Inner::Simulated(file) => file.read(buffer, offset),
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
            Inner::Os(file) => file.write(bytes, offset),
            Inner::Simulated(file) => file.write(bytes, offset),
        }
    }

    /// Makes the file's bytes durable, and of its metadata what reading them back needs.
    ///
    /// # Errors
    /// As the system says; after an error it is unknown what is durable, and a later success does not change that.
    pub fn sync_data_blocking(&self) -> io::Result<()> {
        match &*self.0 {
            Inner::Os(file) => file.sync_data(),
            Inner::Simulated(file) => file.sync(),
        }
    }

    /// Makes the file's bytes and metadata durable.
    ///
    /// # Errors
    /// As for [`File::sync_data_blocking`].
    pub fn sync_all_blocking(&self) -> io::Result<()> {
        match &*self.0 {
            Inner::Os(file) => file.sync_all(),
            Inner::Simulated(file) => file.sync(),
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
            Inner::Os(file) => file.len(),
            Inner::Simulated(file) => file.len(),
        }
    }

    /// Cuts the file or extends it with zeros. Blocks.
    ///
    /// # Errors
    /// As the system says.
    pub fn set_len(&self, length: u64) -> io::Result<()> {
        match &*self.0 {
            Inner::Os(file) => file.set_len(length),
            Inner::Simulated(file) => file.set_len(length),
        }
    }

    /// Reserves space for the first `length` bytes and makes the file at least that long, so that writing there cannot
    /// run out of disk. Blocks.
    ///
    /// # Errors
    /// As the system says; a full disk is the usual one.
    pub fn allocate(&self, length: u64) -> io::Result<()> {
        match &*self.0 {
            Inner::Os(file) => file.allocate(length),
            Inner::Simulated(file) => file.allocate(length),
        }
    }

    /// Locks the file for this process until it is closed; false when another holds it.
    ///
    /// # Errors
    /// As the system says.
    pub fn try_lock_exclusive(&self) -> io::Result<bool> {
        match &*self.0 {
            Inner::Os(file) => file.try_lock(),
            Inner::Simulated(file) => file.try_lock(),
        }
    }

    /// Appends up to `length` bytes from an offset to the buffer; fewer only at the end of the file.
    pub async fn read_at(&self, buffer: Vec<u8>, offset: u64, length: usize) -> (io::Result<usize>, Vec<u8>) {
        if let Some(file) = self.on_ring() {
            return file.read_on_ring(self, buffer, offset, length).await;
        }
        let file = self.clone();
        run_blocking(move || {
            let mut buffer = buffer;
            let start = buffer.len();
            buffer.resize(start + length, 0);
            let result = file.read_at_blocking(&mut buffer[start..], offset);
            buffer.truncate(start + result.as_ref().copied().unwrap_or(0));
            (result, buffer)
        })
        .await
    }

    /// Writes the whole buffer at an offset. A dropped future's write is still done.
    pub async fn write_at(&self, buffer: Vec<u8>, offset: u64) -> (io::Result<()>, Vec<u8>) {
        if let Some(file) = self.on_ring() {
            return file.write_on_ring(self, buffer, offset).await;
        }
        let file = self.clone();
        run_blocking(move || (file.write_all_at_blocking(&buffer, offset), buffer)).await
    }

    /// Makes the file's bytes durable. See [`File::sync_data_blocking`].
    ///
    /// # Errors
    /// As for [`File::sync_data_blocking`].
    pub async fn sync_data(&self) -> io::Result<()> {
        if let Some(file) = self.on_ring() {
            return file.sync_on_ring(self).await;
        }
        let file = self.clone();
        if is_simulated() {
            return simulated::sync_later(move || file.sync_data_blocking()).await;
        }
        run_blocking(move || file.sync_data_blocking()).await
    }

    /// The file, if the current shard has a ring to work on it.
    fn on_ring(&self) -> Option<&OsFile> {
        match &*self.0 {
            Inner::Os(file) => executor::with(|executor| matches!(executor.driver, Driver::Uring(_)).then_some(file)),
            Inner::Simulated(_) => None,
        }
    }
}

/// Does a blocking operation without blocking the shard.
async fn run_blocking<T: Send + 'static>(operation: impl FnOnce() -> T + Send + 'static) -> T {
    if is_simulated() {
        simulated::later(operation).await
    } else {
        run_file_operation(operation).await
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

/// Reads a small file that nothing checks: two reads in a row have to agree, because a disk, a controller or a bus may
/// change a bit on the way once.
///
/// # Errors
/// As [`read`]; and when no two of a few reads in a row agree.
pub fn read_surely(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut last = read(&path)?;
    for _ in 0..SURE_READS_MAX {
        let next = read(&path)?;
        if next == last {
            return Ok(next);
        }
        last = next;
    }
    Err(io::Error::other("each read of the file returns something else"))
}

/// A whole file.
///
/// # Errors
/// As the system says.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    if is_simulated() {
        let file = File::open(path, OpenOptions::READ)?;
        let mut bytes = vec![0; usize::try_from(file.len()?).map_err(|_| io::ErrorKind::FileTooLarge)?];
        file.read_exact_at_blocking(&mut bytes, 0)?;
        return Ok(bytes);
    }
    os::read(path)
}

/// Makes or replaces a file. Not atomic and not durable by itself.
///
/// # Errors
/// As the system says.
pub fn write(path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
    if is_simulated() {
        let options = OpenOptions {
            write: true,
            create: true,
            truncate: true,
            ..OpenOptions::default()
        };
        return File::open(path, options)?.write_all_at_blocking(bytes, 0);
    }
    os::write(path, bytes)
}

/// Makes a directory and those above it that are missing.
///
/// # Errors
/// As the system says.
pub fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    if is_simulated() {
        return simulated::create_dir_all(path.as_ref());
    }
    os::create_dir_all(path)
}

/// The names in a directory, sorted. Names that are not UTF-8 are left out: we never make one.
///
/// # Errors
/// As the system says.
pub fn read_dir(path: impl AsRef<Path>) -> io::Result<Vec<DirEntry>> {
    if is_simulated() {
        return simulated::read_dir(path.as_ref());
    }
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
    if is_simulated() {
        return simulated::rename(from.as_ref(), to.as_ref());
    }
    os::rename(from, to)
}

/// Removes a file.
///
/// # Errors
/// As the system says.
pub fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    if is_simulated() {
        return simulated::remove_file(path.as_ref());
    }
    os::remove_file(path)
}

/// Removes a directory and all in it.
///
/// # Errors
/// As the system says.
pub fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    if is_simulated() {
        return simulated::remove_dir_all(path.as_ref());
    }
    os::remove_dir_all(path)
}

/// Makes the names of a directory durable.
///
/// # Errors
/// As the system says.
pub fn sync_dir(path: impl AsRef<Path>) -> io::Result<()> {
    if is_simulated() {
        return simulated::sync_dir(path.as_ref());
    }
    os::File::open(path)?.sync_all()
}

/// Replaces a small file, or makes it: after any stop it has the old content as a whole or the new one, and once this
/// returns the new one. What is under way has the same name with the extension `next`. Blocks.
///
/// # Errors
/// As the system says; the file has the old content or the new one then.
pub fn replace_durably(path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
    let path = path.as_ref();
    let next = path.with_extension("next");
    let options = OpenOptions {
        write: true,
        create: true,
        truncate: true,
        ..OpenOptions::default()
    };
    let file = File::open(&next, options)?;
    file.write_all_at_blocking(bytes, 0)?;
    file.sync_all_blocking()?;
    rename(&next, path)?;
    sync_dir(path.parent().unwrap_or_else(|| Path::new(".")))
}

/// Whether something has this name.
#[must_use]
pub fn exists(path: impl AsRef<Path>) -> bool {
    if is_simulated() {
        return simulated::exists(path.as_ref());
    }
    path.as_ref().exists()
}

/// Gives a file a second name.
///
/// # Errors
/// As the system says.
pub fn hard_link(original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    if is_simulated() {
        return simulated::hard_link(original.as_ref(), link.as_ref());
    }
    os::hard_link(original, link)
}

/// Room in a file system, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskSpace {
    /// Its size.
    pub total: u64,
    /// Held by files and by the file system itself.
    pub used: u64,
    /// Left to processes without special rights: `total - used` without what the file system reserves for the
    /// superuser.
    pub available: u64,
}

/// The room in the file system that holds the path.
///
/// # Errors
/// As the system says.
pub fn disk_space(path: impl AsRef<Path>) -> io::Result<DiskSpace> {
    use std::os::unix::ffi::OsStrExt;
    if is_simulated() {
        return simulated::disk_space();
    }
    let path = std::ffi::CString::new(path.as_ref().as_os_str().as_bytes())?;
    // SAFETY: statvfs is plain data for which all zeros is valid.
    let mut told: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero and the struct is a valid local.
    let result = unsafe { libc::statvfs(path.as_ptr(), &raw mut told) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(DiskSpace {
        total: told.f_blocks * told.f_frsize,
        used: told.f_blocks.saturating_sub(told.f_bfree) * told.f_frsize,
        available: told.f_bavail * told.f_frsize,
    })
}
