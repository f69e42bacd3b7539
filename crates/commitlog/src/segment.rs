//! One file of the log.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};

use runtime::fs::{self, File, OpenOptions};

use crate::format::{ReplayPosition, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::{LogError, Options};

/// A segment that this process writes.
pub(crate) struct Segment {
    id: u64,
    path: RefCell<PathBuf>,
    file: File,
    /// Where the next chunk goes.
    end: Cell<u32>,
    /// How often it was written.
    writes: Cell<u64>,
    /// How many of those writes are durable.
    synced: Cell<u64>,
    /// Whether its name survives a power loss: the first sync sees to it, so that no directory is synced on the shard's
    /// thread.
    is_named: Cell<bool>,
}

/// What the name of a released segment ends with, that waits to be used again.
pub(crate) const SPARE_EXTENSION: &str = "spare";

/// What the name of the file ends with that says that a sync of the segment failed.
pub(crate) const UNSYNCED_EXTENSION: &str = "unsynced";

/// Name of a segment: `commitlog-SHARD-ID.log`.
pub(crate) fn file_name(shard: u32, id: u64) -> String {
    format!("commitlog-{shard}-{id:016}.log")
}

/// Shard and id from a segment's name.
pub(crate) fn parse_file_name(name: &str) -> Option<(u32, u64)> {
    let (shard, id) = name.strip_prefix("commitlog-")?.strip_suffix(".log")?.split_once('-')?;
    Some((shard.parse().ok()?, id.parse().ok()?))
}

fn io_error(file: &Path, e: &io::Error) -> LogError {
    LogError::Io {
        file: file.to_owned(),
        kind: e.kind(),
        message: e.to_string(),
    }
}

impl Segment {
    /// A new file with all its space allocated.
    pub(crate) fn create(options: &Options, id: u64, previous: ReplayPosition) -> Result<Self, LogError> {
        let path = options.dir.join(file_name(options.shard, id));
        let make = || -> io::Result<File> {
            let file = File::open(
                &path,
                OpenOptions {
                    read: true,
                    write: true,
                    create: true,
                    truncate: true,
                    ..OpenOptions::default()
                },
            )?;
            file.allocate(options.segment_bytes)?;
            file.write_all_at_blocking(&header(options, id, previous), 0)?;
            Ok(file)
        };
        let file = make().map_err(|e| {
            // Half a segment is no segment; if it cannot even be removed, replay takes it for empty.
            let _ = fs::remove_file(&path);
            io_error(&path, &e)
        })?;
        Ok(Self::opened(id, path, file))
    }

    /// Uses a released segment's file again under a new name and id.
    pub(crate) fn reuse(old: &Segment, options: &Options, id: u64, previous: ReplayPosition) -> Result<Self, LogError> {
        let path = options.dir.join(file_name(options.shard, id));
        let take = || -> io::Result<()> {
            fs::rename(&*old.path.borrow(), &path)?;
            old.file.write_all_at_blocking(&header(options, id, previous), 0)
        };
        take().map_err(|e| io_error(&path, &e))?;
        Ok(Self::opened(id, path, old.file.clone()))
    }

    fn opened(id: u64, path: PathBuf, file: File) -> Self {
        let end = Cell::new(SEGMENT_HEADER_BYTES as u32);
        Self {
            id,
            path: RefCell::new(path),
            file,
            end,
            // The header was written.
            writes: Cell::new(1),
            synced: Cell::new(0),
            is_named: Cell::new(false),
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.path.borrow().clone()
    }

    pub(crate) fn end(&self) -> u32 {
        self.end.get()
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.writes.get() != self.synced.get()
    }

    /// Whether nothing of it waits to be synced, so that its file may serve again.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.is_dirty()
    }

    /// Writes a sealed chunk at the end; on failure the place stays free for the next one.
    pub(crate) fn write(&self, chunk: &[u8]) -> Result<(), LogError> {
        let at = self.end.get();
        self.file
            .write_all_at_blocking(chunk, u64::from(at))
            .map_err(|e| io_error(&self.path.borrow(), &e))?;
        self.end
            .set(at + u32::try_from(chunk.len()).expect("a chunk is smaller than its segment"));
        self.writes.set(self.writes.get() + 1);
        Ok(())
    }

    pub(crate) async fn sync(&self) -> io::Result<()> {
        let writes = self.writes.get();
        self.file.sync_data().await?;
        if !self.is_named.get() {
            let dir = self.path().parent().unwrap_or(Path::new(".")).to_owned();
            runtime::offload(move || fs::sync_dir(dir)).await?;
            self.is_named.set(true);
        }
        self.synced.set(writes);
        Ok(())
    }

    /// Says that a sync failed: the kernel may have dropped bytes of it that were written before others. The file need
    /// not be durable, because a start after a power loss expects nothing of what was not synced. Blocks.
    pub(crate) fn mark_unsynced(&self) -> io::Result<()> {
        let options = OpenOptions {
            write: true,
            create: true,
            ..OpenOptions::default()
        };
        File::open(self.path.borrow().with_extension(UNSYNCED_EXTENSION), options).map(drop)
    }

    /// The name of its file while it waits to be used again.
    pub(crate) fn spare_path(&self) -> PathBuf {
        self.path.borrow().with_extension(SPARE_EXTENSION)
    }

    pub(crate) fn set_path(&self, path: PathBuf) {
        *self.path.borrow_mut() = path;
    }
}

/// Takes a segment's file out of the log permanently: renames it, or removes it. Blocks.
pub(crate) fn release(path: &Path, spare: Option<&Path>) -> io::Result<()> {
    match spare {
        Some(spare) => fs::rename(path, spare)?,
        None => {
            let sign = path.with_extension(UNSYNCED_EXTENSION);
            for path in [path, &sign] {
                match fs::remove_file(path) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                    _ => {}
                }
            }
        }
    }
    fs::sync_dir(path.parent().unwrap_or(Path::new(".")))
}

fn header(options: &Options, id: u64, previous: ReplayPosition) -> [u8; SEGMENT_HEADER_BYTES] {
    SegmentHeader {
        shard: options.shard,
        id,
        boot_id: options.boot_id,
        previous,
        shards: options.shards,
        run: options.first_segment,
    }
    .encode()
}
