//! The few file operations that sstables need; the rest of the crate does not name the runtime's.

use std::io::{Error as IoError, ErrorKind};
use std::path::{Path, PathBuf};

use runtime::fs;

use crate::error::Error;

/// A file that is read at offsets.
#[derive(Clone)]
pub(crate) struct InputFile {
    path: PathBuf,
    file: fs::File,
    len: u64,
}

impl InputFile {
    /// Blocks.
    pub(crate) fn open(path: PathBuf) -> Result<Self, Error> {
        let file = fs::File::open(&path, fs::OpenOptions::READ).map_err(Error::io(&path))?;
        let len = file.len().map_err(Error::io(&path))?;
        Ok(Self { path, file, len })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Appends `len` bytes from `offset` to `out`. Blocks.
    pub(crate) fn read_blocking(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        self.check(offset, len)?;
        let start = out.len();
        out.resize(start + len, 0);
        let mut at = start;
        while at < out.len() {
            let n = self
                .file
                .read_at_blocking(&mut out[at..], offset + (at - start) as u64)
                .map_err(Error::io(&self.path))?;
            if n == 0 {
                return Err(self.ended(offset + (at - start) as u64));
            }
            at += n;
        }
        Ok(())
    }

    /// The `len` bytes from `offset`, on a shard's thread.
    pub(crate) async fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        self.check(offset, len)?;
        let mut out: Vec<u8> = Vec::new();
        while out.len() < len {
            let wanted = len - out.len();
            let (result, mut buf) = self
                .file
                .read_at(Vec::with_capacity(wanted), offset + out.len() as u64, wanted)
                .await;
            let n = result.map_err(Error::io(&self.path))?;
            if n == 0 {
                return Err(self.ended(offset + out.len() as u64));
            }
            buf.truncate(n);
            if out.is_empty() {
                out = buf;
            } else {
                out.extend_from_slice(&buf);
            }
        }
        Ok(out)
    }

    fn check(&self, offset: u64, len: usize) -> Result<(), Error> {
        if offset.checked_add(len as u64).is_none_or(|end| end > self.len) {
            return Err(Error::damaged(
                &self.path,
                self.len,
                format!("{len} bytes from {offset} on"),
            ));
        }
        Ok(())
    }

    fn ended(&self, at: u64) -> Error {
        let source = IoError::new(
            ErrorKind::UnexpectedEof,
            format!("became shorter than {} bytes: ends at {at}", self.len),
        );
        Error::Io {
            path: self.path.clone(),
            source,
        }
    }
}

/// A file that is written from its start to its end. Blocks.
pub(crate) struct OutputFile {
    path: PathBuf,
    file: fs::File,
    written: u64,
    buffer: Vec<u8>,
}

/// Bytes that are gathered before the kernel is asked to take them.
const OUTPUT_BUFFER: usize = 256 << 10;

/// A leftover of a crash may bear the name: it is cut to nothing.
const OVERWRITE: fs::OpenOptions = fs::OpenOptions {
    read: false,
    write: true,
    create: true,
    create_new: false,
    truncate: true,
    direct: false,
};

impl OutputFile {
    pub(crate) fn create(path: PathBuf) -> Result<Self, Error> {
        let file = fs::File::open(&path, OVERWRITE).map_err(Error::io(&path))?;
        Ok(Self {
            path,
            file,
            written: 0,
            buffer: Vec::with_capacity(OUTPUT_BUFFER),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file position of the next byte.
    pub(crate) fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// The buffer, for callers that append to it; they must call [`Self::spill`] afterwards.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Hands the buffer to the kernel when it is full.
    pub(crate) fn spill(&mut self) -> Result<(), Error> {
        if self.buffer.len() >= OUTPUT_BUFFER {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.file
            .write_all_at_blocking(&self.buffer, self.written)
            .map_err(Error::io(&self.path))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes what is buffered, of a file that need not be durable.
    pub(crate) fn close(mut self) -> Result<(), Error> {
        self.flush()
    }

    /// Writes what is buffered and makes the file durable.
    pub(crate) fn finish(mut self) -> Result<u64, Error> {
        self.flush()?;
        self.file.sync_data_blocking().map_err(Error::io(&self.path))?;
        Ok(self.written)
    }
}

/// A whole small file. Blocks.
pub(crate) fn read_all(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(Error::io(path))
}

/// Writes a whole file and makes it durable. Blocks.
pub(crate) fn write_all(path: PathBuf, bytes: &[u8]) -> Result<(), Error> {
    let mut file = OutputFile::create(path)?;
    file.buffer().extend_from_slice(bytes);
    file.finish().map(|_| ())
}

/// Blocks.
pub(crate) fn remove_if_exists(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io(path)(e)),
        _ => Ok(()),
    }
}

/// Blocks.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    fs::rename(from, to).map_err(Error::io(from))
}

/// Makes a directory, and those above it. Blocks.
pub(crate) fn create_dir(dir: &Path) -> Result<(), Error> {
    fs::create_dir_all(dir).map_err(Error::io(dir))
}

/// A second name for a file. Blocks.
pub(crate) fn hard_link(original: &Path, link: &Path) -> Result<(), Error> {
    fs::hard_link(original, link).map_err(Error::io(link))
}

/// Whether there is a file of this name. Blocks.
pub(crate) fn exists(path: &Path) -> bool {
    fs::exists(path)
}

/// Makes names of files durable. Blocks.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), Error> {
    fs::sync_dir(dir).map_err(Error::io(dir))
}

/// The names of the files of a directory, sorted. Blocks.
pub(crate) fn list_names(dir: &Path) -> Result<Vec<String>, Error> {
    let entries = fs::read_dir(dir).map_err(Error::io(dir))?;
    let mut names: Vec<String> = entries.into_iter().map(|e| e.name).collect();
    names.sort();
    Ok(names)
}
