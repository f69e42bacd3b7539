//! Copies of a machine's directories, and what an operator does with them: copy one, put a copy back, empty one.
//!
//! All of it happens at once and is durable. The caller ends the machine's process first: a process that runs keeps its
//! open files.

use super::{NodeId, Simulation};
use crate::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// The files and directories below a directory, as they were when they were copied. It may be put on another machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectoryCopy {
    directory: PathBuf,
    directories: Vec<PathBuf>,
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl Simulation {
    /// Copies a directory with everything below it. The copy of a directory that is not there is empty.
    ///
    /// # Panics
    /// When the disk cannot be read.
    pub fn copy_directory(&mut self, node: NodeId, directory: impl AsRef<Path>) -> DirectoryCopy {
        let mut copy = DirectoryCopy {
            directory: directory.as_ref().to_owned(),
            directories: Vec::new(),
            files: Vec::new(),
        };
        let result = self.on_node(node, || read_below(directory.as_ref(), &mut copy));
        result.unwrap_or_else(|error| panic!("cannot copy {}: {error}", directory.as_ref().display()));
        copy
    }

    /// Replaces a directory by the copy of it: what was created since is removed.
    ///
    /// # Panics
    /// When the disk does not take it.
    pub fn put_directory(&mut self, node: NodeId, copy: &DirectoryCopy) {
        self.empty_directory(node, &copy.directory);
        let result = self.on_node(node, || write_below(copy));
        result.unwrap_or_else(|error| panic!("cannot put back {}: {error}", copy.directory.display()));
    }

    /// Removes everything below a directory. The directory itself stays.
    ///
    /// # Panics
    /// When the disk refuses.
    pub fn empty_directory(&mut self, node: NodeId, directory: impl AsRef<Path>) {
        let directory = directory.as_ref();
        let result = self.on_node(node, || {
            if fs::exists(directory) {
                fs::remove_dir_all(directory)?;
            }
            fs::create_dir_all(directory)?;
            sync_up(directory);
            Ok::<(), io::Error>(())
        });
        result.unwrap_or_else(|error| panic!("cannot empty {}: {error}", directory.display()));
    }
}

fn read_below(directory: &Path, copy: &mut DirectoryCopy) -> io::Result<()> {
    if !fs::exists(directory) {
        return Ok(());
    }
    for entry in fs::read_dir(directory)? {
        let path = directory.join(&entry.name);
        if entry.is_dir {
            copy.directories.push(path.clone());
            read_below(&path, copy)?;
        } else {
            let bytes = fs::read(&path)?;
            copy.files.push((path, bytes));
        }
    }
    Ok(())
}

fn write_below(copy: &DirectoryCopy) -> io::Result<()> {
    for directory in &copy.directories {
        fs::create_dir_all(directory)?;
    }
    for (path, bytes) in &copy.files {
        let options = OpenOptions {
            write: true,
            create: true,
            truncate: true,
            ..OpenOptions::default()
        };
        let file = File::open(path, options)?;
        file.write_all_at_blocking(bytes, 0)?;
        file.sync_all_blocking()?;
    }
    for directory in copy.directories.iter().chain([&copy.directory]) {
        fs::sync_dir(directory)?;
    }
    Ok(())
}

/// Makes the names of a directory and of those above it durable.
fn sync_up(directory: &Path) {
    for directory in directory.ancestors().filter(|above| !above.as_os_str().is_empty()) {
        // The root has no name of its own to keep.
        let _ = fs::sync_dir(directory);
    }
}
