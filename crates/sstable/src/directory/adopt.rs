//! Taking sealed sstables of another directory into a table's, all or none.
//!
//! Their files are linked under names of the table's own, the lists of components under a temporary name, by which
//! nothing is an sstable yet. Then `adoption-9.txt` lists the new names ([`crate::named`]), under its
//! final name only when it is durable: from there they count as the table's. Then the lists of components get their
//! names, then the file goes. The mark of a repair is not taken over: where it was set, other replicas relied on it. A
//! start ends what a crash has interrupted ([`finish_adoptions`]).

use std::path::{Path, PathBuf};

use crate::directory::component::{Component, Descriptor, delete};
use crate::directory::generation::Generation;
use crate::directory::named;
use crate::directory::repaired::mark_unrepaired;
use crate::error::Error;
use crate::io;

const PREFIX: &str = "adoption-";
const SUFFIX: &str = ".txt";

/// Links sealed sstables into a table's directory on the same file system, under the generations that `next_generation`
/// gives. Their names there. The originals stay. Blocks.
///
/// # Errors
/// When a file cannot be linked or listed: then none is the table's, now and after a crash. Where not even that can be
/// made sure, the next start ends the adoption.
pub fn adopt(
    originals: &[Descriptor],
    into: &Path,
    mut next_generation: impl FnMut() -> Generation,
) -> Result<Vec<Descriptor>, Error> {
    let adopted: Vec<Descriptor> = originals
        .iter()
        .map(|original| Descriptor {
            dir: into.to_owned(),
            version: original.version,
            generation: next_generation(),
        })
        .collect();
    let Some(first) = adopted.first() else {
        return Ok(adopted);
    };
    let list = into.join(format!("{PREFIX}{}{SUFFIX}", first.generation));
    let linked = originals
        .iter()
        .zip(&adopted)
        .try_for_each(|(original, adopted)| link(original, adopted).and_then(|()| mark_unrepaired(adopted)))
        .and_then(|()| io::sync_dir(into))
        .and_then(|()| named::write(&list, &adopted))
        .and_then(|()| io::sync_dir(into))
        .and_then(|()| adopted.iter().try_for_each(seal))
        .and_then(|()| io::sync_dir(into));
    if let Err(error) = linked {
        // Not the table's any more before any of them goes.
        io::remove_if_exists(&list)?;
        io::sync_dir(into)?;
        adopted.iter().try_for_each(delete)?;
        return Err(error);
    }
    // Where it stays, a start finds nothing left to do in it.
    let _ = io::remove_if_exists(&list);
    Ok(adopted)
}

/// Moves a sealed sstable to another directory of the same file system, under its own name. A crash leaves it in one of
/// them or in both. Blocks.
///
/// # Errors
/// When the disk refuses.
pub fn move_to(descriptor: &Descriptor, dir: &Path) -> Result<(), Error> {
    let moved = Descriptor {
        dir: dir.to_owned(),
        ..descriptor.clone()
    };
    io::create_dir(dir)?;
    link(descriptor, &moved)?;
    seal(&moved)?;
    io::sync_dir(dir)?;
    io::sync_dir(&descriptor.dir)?;
    delete(descriptor)
}

/// Links every file of a sealed sstable. The list of components comes first, under a temporary name and durably:
/// without it the others would look like an sstable that has lost its list.
fn link(original: &Descriptor, adopted: &Descriptor) -> Result<(), Error> {
    let relink = |from: &Path, to: &Path| {
        // An attempt before may have linked it.
        io::remove_if_exists(to)?;
        io::hard_link(from, to)
    };
    relink(&original.path(Component::Toc), &adopted.toc_tmp())?;
    io::sync_dir(&adopted.dir)?;
    for component in Component::ALL
        .into_iter()
        .filter(|component| *component != Component::Toc)
    {
        let from = original.path(component);
        if io::exists(&from) {
            relink(&from, &adopted.path(component))?;
        }
    }
    Ok(())
}

fn seal(adopted: &Descriptor) -> Result<(), Error> {
    io::rename(&adopted.toc_tmp(), &adopted.path(Component::Toc))
}

/// Completes the adoptions that a crash interrupted after the point from which they count, and drops the others. Call
/// it at start, when nothing writes to the directory yet, and before what is not sealed is removed. Blocks.
///
/// # Errors
/// When the directory cannot be read, or a file not be renamed or removed.
pub(crate) fn finish_adoptions(dir: &Path) -> Result<(), Error> {
    let names = io::list_names(dir)?;
    for name in names.iter().filter(|name| name.starts_with(PREFIX)) {
        let list: PathBuf = dir.join(name);
        if name.ends_with(SUFFIX) {
            for descriptor in named::read(&list)? {
                if io::exists(&descriptor.toc_tmp()) {
                    seal(&descriptor)?;
                }
            }
            io::sync_dir(dir)?;
        }
        io::remove_if_exists(&list)?;
    }
    Ok(())
}
