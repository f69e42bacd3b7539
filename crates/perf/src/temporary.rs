//! A directory of a bench's own, removed with everything in it at the end.

use std::path::{Path, PathBuf};

use runtime::fs;

#[derive(Debug)]
pub(crate) struct Directory(PathBuf);

impl Directory {
    /// Makes one in `parent`, or where the system keeps temporary files.
    pub(crate) fn create(parent: Option<&Path>) -> Result<Directory, String> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let path = parent.join(format!("ceto-perf-{:016x}", runtime::random_u64()));
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Directory(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What cannot be removed now is only litter among temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}
