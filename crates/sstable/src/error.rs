//! What can go wrong with an sstable.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use stdx::bytes::Truncated;

/// What Linux says of a place on the disk that cannot be read: EIO, EBADMSG, EUCLEAN.
const UNREADABLE: [i32; 3] = [5, 74, 117];

/// Why an sstable could not be read or written.
#[derive(Debug)]
pub enum Error {
    /// The operating system refused.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// The bytes are not what they should be: the file is damaged, or not an sstable.
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in the file; for compressed data, where in the uncompressed data unless `expected` says otherwise.
        offset: u64,
        /// What should have been there.
        expected: String,
    },
    /// A file that may be whole, but uses what this version does not know.
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What it uses.
        what: String,
    },
    /// The file does not fit the table it is opened for.
    Schema {
        /// The file.
        path: PathBuf,
        /// How they differ.
        what: String,
    },
    /// A read could not reserve memory for a long row: see [`RowMemory`](memory::RowMemory).
    NoRowMemory {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// A partition or row was appended that does not fit the format or the order of the file.
    Rejected {
        /// The file being written.
        path: PathBuf,
        /// Why it cannot be taken.
        what: String,
    },
}

impl Error {
    /// Whether the files are damaged, or some of them missing or unreadable. Not so: what a later attempt, an operator
    /// or another version of ceto may be able to read (no permission, too many open files, an unknown compressor).
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::Io { source, .. } => {
                let is_gone = matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof);
                is_gone || self.is_disk_failure()
            }
            Self::Unsupported { .. } | Self::Schema { .. } | Self::NoRowMemory { .. } | Self::Rejected { .. } => false,
        }
    }

    /// Whether the disk could not read or write a place: EIO, EBADMSG, EUCLEAN.
    #[must_use]
    pub fn is_disk_failure(&self) -> bool {
        let Self::Io { source, .. } = self else { return false };
        source.raw_os_error().is_some_and(|code| UNREADABLE.contains(&code))
    }

    /// The error for clients: it names the file and the place in it, and no directory of the server.
    #[must_use]
    pub fn without_directory(&self) -> String {
        let (whole, path) = (self.to_string(), self.path().display().to_string());
        let name = self.path().file_name().map(|name| name.to_string_lossy());
        match name {
            Some(name) => whole.replace(&path, &name),
            None => whole,
        }
    }

    /// The file that it is about.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Io { path, .. }
            | Self::Damaged { path, .. }
            | Self::Unsupported { path, .. }
            | Self::Schema { path, .. }
            | Self::NoRowMemory { path, .. }
            | Self::Rejected { path, .. } => path,
        }
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        |source| Self::Io {
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn damaged(path: &Path, offset: u64, expected: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            offset,
            expected: expected.into(),
        }
    }

    pub(crate) fn unsupported(path: &Path, what: impl Into<String>) -> Self {
        Self::Unsupported {
            path: path.to_owned(),
            what: what.into(),
        }
    }

    pub(crate) fn schema(path: &Path, what: impl Into<String>) -> Self {
        Self::Schema {
            path: path.to_owned(),
            what: what.into(),
        }
    }

    pub(crate) fn rejected(path: &Path, what: impl Into<String>) -> Self {
        Self::Rejected {
            path: path.to_owned(),
            what: what.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Damaged { path, offset, expected } => {
                write!(f, "{}: damaged at offset {offset}: expected {expected}", path.display())
            }
            Self::Unsupported { path, what } => write!(f, "{}: unsupported: {what}", path.display()),
            Self::Schema { path, what } => write!(f, "{}: does not fit the table: {what}", path.display()),
            Self::NoRowMemory { path, why } => write!(f, "{}: no memory for a row: {why}", path.display()),
            Self::Rejected { path, what } => write!(f, "{}: not written: {what}", path.display()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Why bytes could not be decoded, before anyone has said which file they come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Offset in the decoded slice.
    pub(crate) at: usize,
    /// What should have been there.
    pub(crate) expected: String,
}

impl Damage {
    #[cold]
    pub(crate) fn new(at: usize, expected: impl Into<String>) -> Self {
        Self {
            at,
            expected: expected.into(),
        }
    }

    /// The error, for a slice that starts at `base` in the file.
    #[cold]
    pub(crate) fn in_file(self, path: &Path, base: u64) -> Error {
        Error::damaged(path, base + self.at as u64, self.expected)
    }
}

impl From<Truncated> for Damage {
    #[cold]
    fn from(t: Truncated) -> Self {
        Self {
            at: t.at,
            expected: format!("{} more bytes", t.wanted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_see_the_file_and_the_place_and_no_directory() {
        let path = Path::new("/var/lib/ceto/data/ks/t-1/me-3-big-Data.db");
        for error in [
            Error::damaged(path, 4096, "a checksum of 7"),
            Error::io(path)(io::Error::from_raw_os_error(5)),
        ] {
            assert!(
                error.to_string().contains("/var/lib/ceto"),
                "the log has the whole path"
            );
            let shown = error.without_directory();
            assert!(shown.contains("me-3-big-Data.db") && !shown.contains("/var"), "{shown}");
        }
        assert!(Error::damaged(path, 4096, "x").without_directory().contains("4096"));
    }

    #[test]
    fn a_place_that_cannot_be_read_is_a_failure_of_the_disk_and_a_missing_file_is_not() {
        let of = |code| Error::io(Path::new("file"))(io::Error::from_raw_os_error(code)).is_disk_failure();
        // EIO, EBADMSG, EUCLEAN; ENOENT, EMFILE, ENOSPC.
        assert_eq!([5, 74, 117, 2, 24, 28].map(of), [true, true, true, false, false, false]);
    }
}
