//! Hard links to sstables, for snapshots and for copies to other nodes.
//!
//! A tablet's sstables are linked as they are at one moment, and nothing waits for a compaction that runs: one that
//! ends concurrently may delete a file before it is linked. Then the links of the tablet are removed, and its sstables
//! are linked as they are afterwards. A part of both would not do: an sstable may lack what hides the rows of another.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use runtime::fs;
use sstable::Reader;

use crate::tablets::tablet::Tablet;

/// Links into a directory what `wanted` takes of a tablet's sstables: of these, or of all those that have replaced them
/// since. Returns which it took, and what else `wanted` says. The caller holds the tablet's `quarantine_turn`: a repair
/// that marks sstables patches their files, one after the other.
///
/// # Errors
/// Those of `wanted`, and when the disk refuses.
pub(crate) async fn link_as_of_one_moment<T, E: From<String>>(
    tablet: &Tablet,
    mut sstables: Vec<Arc<Reader>>,
    target: &Path,
    wanted: impl Fn(&[Arc<Reader>]) -> Result<(Vec<Arc<Reader>>, T), E>,
) -> Result<(Vec<Arc<Reader>>, T), E> {
    loop {
        let (readers, told) = wanted(&sstables)?;
        let (to_link, to) = (readers.clone(), target.to_owned());
        let linked = runtime::offload(move || link_all(&to_link, &to).inspect_err(|_| unlink_all(&to_link, &to))).await;
        let Err(why) = linked else {
            return Ok((readers, told));
        };
        let now = tablet.version().sstables.clone();
        let is_same =
            now.len() == sstables.len() && now.iter().zip(&sstables).all(|(now, then)| Arc::ptr_eq(now, then));
        if is_same {
            return Err(why.into());
        }
        sstables = now;
    }
}

/// The files of an sstable, and where they are linked to in a directory.
fn links<'r>(reader: &'r Reader, to: &'r Path) -> impl Iterator<Item = (PathBuf, PathBuf)> + 'r {
    reader.components().iter().filter_map(|component| {
        let from = reader.descriptor().path(*component);
        let link = to.join(from.file_name()?);
        Some((from, link))
    })
}

/// Links the files of sstables into another directory, which is made. Blocks.
fn link_all(readers: &[Arc<Reader>], to: &Path) -> Result<(), String> {
    let at = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
    fs::create_dir_all(to).map_err(|e| at(to, e))?;
    for (from, link) in readers.iter().flat_map(|reader| links(reader, to)) {
        fs::hard_link(&from, &link).map_err(|e| at(&link, e))?;
    }
    Ok(())
}

/// Removes what was linked of sstables. Blocks.
fn unlink_all(readers: &[Arc<Reader>], to: &Path) {
    for (_, link) in readers.iter().flat_map(|reader| links(reader, to)) {
        // What was not linked is not there.
        let _ = fs::remove_file(link);
    }
}
