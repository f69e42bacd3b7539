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
    /// A partition or row was appended that does not fit the format or the order of the file.
    Rejected {
        /// The file being written.
        path: PathBuf,
        /// Why it cannot be taken.
        what: String,
    },
}

impl Error {
    /// Whether the files are damaged, or some of them missing or unreadable. Not so: what a later attempt, an operator or another
    /// version of ceto may be able to read (no permission, too many open files, an unknown compressor).
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::Io { source, .. } => {
                let is_gone = matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof);
                is_gone || source.raw_os_error().is_some_and(|code| UNREADABLE.contains(&code))
            }
            Self::Unsupported { .. } | Self::Schema { .. } | Self::Rejected { .. } => false,
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
