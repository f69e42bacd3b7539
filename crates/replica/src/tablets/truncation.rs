//! Which truncation of a table a node is done with: a file beside the table's sstables.
//!
//! ```text
//! truncation.mark    u64 version of the truncation, u64 its complement, little endian
//! ```
//!
//! Invariant: the mark is durable before any shard takes a write that follows the truncation. So a start that finds an
//! older mark than the cluster's metadata say may truncate the table: nothing newer is there.

use std::io;
use std::path::{Path, PathBuf};

use runtime::fs;

/// The mark of a table. See the module.
pub struct TruncationMark {
    path: PathBuf,
}

impl TruncationMark {
    /// The mark of the table that is kept in this directory.
    #[must_use]
    pub fn of(table_dir: &Path) -> Self {
        Self {
            path: table_dir.join("truncation.mark"),
        }
    }

    /// The version of the last truncation that the node is done with; 0 when there was none. Blocks.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged: an older version would let the next start truncate what was written
    /// since.
    pub fn read(&self) -> Result<u64, String> {
        if !fs::exists(&self.path) {
            return Ok(0);
        }
        let bytes = fs::read(&self.path).map_err(|e| format!("{}: {e}", self.path.display()))?;
        let number = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        match (number(0), number(8), bytes.len()) {
            (Some(version), Some(complement), 16) if version == !complement => Ok(version),
            _ => Err(format!(
                "{}: damaged: expected the version of a truncation and its complement, 16 bytes",
                self.path.display()
            )),
        }
    }

    /// Makes another version the mark, durably. Blocks.
    ///
    /// # Errors
    /// Those of the disk; the mark is the old one or this one then.
    pub fn write(&self, version: u64) -> io::Result<()> {
        let dir = self.path.parent().expect("the mark is in the table's directory");
        fs::create_dir_all(dir)?;
        fs::replace_durably(&self.path, &[version.to_le_bytes(), (!version).to_le_bytes()].concat())?;
        // The directories are new where the table was never flushed.
        for above in dir.ancestors().skip(1).take(2) {
            fs::sync_dir(above)?;
        }
        Ok(())
    }
}
