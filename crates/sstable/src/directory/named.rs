//! Files that name sstables of their directory: those that are being deleted, and those that are being adopted.
//!
//! ```text
//! me-1-big-TOC.txt       a line for each, the name of its list of components
//! me-2-big-TOC.txt
//! crc32 89abcdef         CRC-32 of the lines before, in hexadecimal digits
//! ```
//!
//! A changed name could be that of another sstable, or of none: what was deleted would be there again. So the checksum
//! is verified.

use std::path::Path;

use crate::directory::component::{Component, Descriptor};
use crate::error::Error;
use crate::io;

const CHECKSUM: &str = "crc32 ";

/// Makes such a file under its final name. The caller makes the name durable, by a sync of the directory. Blocks.
///
/// # Errors
/// When the disk refuses.
pub(crate) fn write(path: &Path, descriptors: &[Descriptor]) -> Result<(), Error> {
    let mut text = String::new();
    for descriptor in descriptors {
        let toc = descriptor.path(Component::Toc);
        text.push_str(toc.file_name().and_then(|name| name.to_str()).unwrap_or_default());
        text.push('\n');
    }
    let checksum = crc32fast::hash(text.as_bytes());
    let temporary = path.with_extension("tmp");
    io::write_all(
        temporary.clone(),
        format!("{text}{CHECKSUM}{checksum:08x}\n").as_bytes(),
    )?;
    io::rename(&temporary, path)
}

/// The sstables that such a file names. Blocks.
///
/// # Errors
/// When it cannot be read, has no checksum or not that of its lines, or a line names no sstable.
pub(crate) fn read(path: &Path) -> Result<Vec<Descriptor>, Error> {
    let bytes = io::read_all(path)?;
    let damaged = |at: usize, expected: String| Error::damaged(path, at as u64, expected);
    let text = std::str::from_utf8(&bytes).map_err(|e| damaged(e.valid_up_to(), "names of sstables".to_owned()))?;
    let (names, noted) = text.rsplit_once(CHECKSUM).unwrap_or((text, ""));
    let found = format!("{:08x}", crc32fast::hash(names.as_bytes()));
    if noted.trim_end() != found {
        return Err(damaged(names.len(), format!("checksum {found} of the lines before")));
    }
    let descriptors = names
        .lines()
        .map(|name| Descriptor::of_path(&path.with_file_name(name)));
    descriptors.collect()
}
