//! The metadata file: what a restart serves from at once, without asking anybody.
//!
//! ```text
//! DIR/metadata        "CETOMETA", then the metadata in its checksummed form
//! DIR/metadata.tmp    the next one while it is written
//! DIR/raft/           the log of the metadata group
//! ```
//!
//! The file is replaced as a whole: the next one is written beside it, synced, renamed over it, and the directory is synced. So after any stop it
//! is one of the values that were applied, with the index of the command that made it.

use crate::error::LoadError;
use crate::metadata::Metadata;
use runtime::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"CETOMETA";

pub(crate) fn path(dir: &Path) -> PathBuf {
    dir.join("metadata")
}

/// Where the log of the group is.
pub(crate) fn raft_dir(dir: &Path) -> PathBuf {
    dir.join("raft")
}

/// Whether the group's log was begun.
pub(crate) fn has_log(dir: &Path) -> bool {
    fs::exists(raft_dir(dir).join("metadata-raft.log"))
}

/// Reads the metadata of a node; None when it was never in a cluster. Blocks; called before the shards start.
///
/// # Errors
/// When the file is damaged or cannot be read.
pub fn load(dir: &Path) -> Result<Option<Metadata>, LoadError> {
    let path = path(dir);
    let at = |why: String| LoadError {
        path: path.clone(),
        why,
    };
    if !fs::exists(&path) {
        return Ok(None);
    }
    let bytes = fs::read(&path).map_err(|e| at(e.to_string()))?;
    let body = bytes
        .strip_prefix(MAGIC)
        .ok_or_else(|| at("expected a file that begins with CETOMETA".to_owned()))?;
    Metadata::decode(body).map(Some).map_err(|e| at(e.to_string()))
}

/// Makes the metadata durable. Blocks.
pub(crate) fn save(dir: &Path, encoded: &[u8]) -> io::Result<()> {
    let path = path(dir);
    let temporary = dir.join("metadata.tmp");
    let open = OpenOptions {
        write: true,
        create: true,
        truncate: true,
        ..OpenOptions::default()
    };
    let file = File::open(&temporary, open)?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(encoded);
    file.write_all_at_blocking(&bytes, 0)?;
    file.sync_all_blocking()?;
    fs::rename(&temporary, &path)?;
    fs::sync_dir(dir)
}

/// Makes the directory, and its name and those above it survive a power loss. Blocks.
pub(crate) fn create_dir(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for above in dir.ancestors().skip(1).filter(|d| !d.as_os_str().is_empty()) {
        // Directories that were there before may be closed to us; ours are not.
        if fs::sync_dir(above).is_err() {
            break;
        }
    }
    Ok(())
}
