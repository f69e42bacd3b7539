//! The files of an sstable and their names.
//!
//! `me-7-big-Data.db` is component Data of generation 7 in version `me`. TOC.txt lists the components, one a line; it
//! is written under a temporary name and renamed last, so an sstable with a TOC is whole, and one without is a leftover.
//! Deleting begins with the TOC.
//!
//! Several are deleted together or not at all: first `deletion-7.log` names them, one a line (`me-7`), under its
//! final name only when it is durable; then they go; then it goes. Otherwise a crash could leave an sstable whose rows were deleted, and not the
//! one that deletes them. How several come into a directory together says [`crate::adopt`].

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::generation::Generation;
use crate::io;

/// One file of an sstable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Component {
    /// The partitions.
    Data,
    /// Where each partition starts, and the promoted index of the large ones.
    Index,
    /// A sample of the index.
    Summary,
    /// Bloom filter of the keys.
    Filter,
    /// Bounds, histograms and the serialisation header.
    Statistics,
    /// Where each compressed chunk is.
    CompressionInfo,
    /// Checksums of the chunks of uncompressed data.
    Crc,
    /// Checksum of the whole of Data.db.
    Digest,
    /// Checksums of the components that have none of their own. Written by ceto only; others ignore it.
    Checksums,
    /// The list of components.
    Toc,
}

impl Component {
    /// Every component that ceto knows.
    pub const ALL: [Self; 10] = [
        Self::Data,
        Self::Index,
        Self::Summary,
        Self::Filter,
        Self::Statistics,
        Self::CompressionInfo,
        Self::Crc,
        Self::Digest,
        Self::Checksums,
        Self::Toc,
    ];

    /// The end of the file name, as TOC.txt has it.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Data => "Data.db",
            Self::Index => "Index.db",
            Self::Summary => "Summary.db",
            Self::Filter => "Filter.db",
            Self::Statistics => "Statistics.db",
            Self::CompressionInfo => "CompressionInfo.db",
            Self::Crc => "CRC.db",
            Self::Digest => "Digest.crc32",
            Self::Checksums => "Checksums.db",
            Self::Toc => "TOC.txt",
        }
    }

    /// The component whose file name ends so.
    #[must_use]
    pub fn from_suffix(suffix: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.suffix() == suffix)
    }
}

/// Which version of the format. All three are Cassandra 3's "big" format; they differ in what Statistics.db means.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Version {
    /// Cassandra 3.0.8.
    Mc,
    /// Cassandra 3.11.4: minimum and maximum clustering are right.
    Md,
    /// Cassandra 3.11.11: names the host that wrote it.
    Me,
}

impl Version {
    /// The two letters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mc => "mc",
            Self::Md => "md",
            Self::Me => "me",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        [Self::Mc, Self::Md, Self::Me].into_iter().find(|v| v.name() == name)
    }
}

/// Names an sstable: where it is and how its files are called.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Descriptor {
    /// The table's directory.
    pub dir: PathBuf,
    /// Version of the format.
    pub version: Version,
    /// Which of the table's sstables.
    pub generation: Generation,
}

impl Descriptor {
    /// The path of a component.
    #[must_use]
    pub fn path(&self, component: Component) -> PathBuf {
        self.dir.join(format!(
            "{}-{}-big-{}",
            self.version.name(),
            self.generation,
            component.suffix()
        ))
    }

    pub(crate) fn toc_tmp(&self) -> PathBuf {
        self.dir
            .join(format!("{}-{}-big-TOC.txt.tmp", self.version.name(), self.generation))
    }

    /// The sstable that a component's path belongs to.
    ///
    /// # Errors
    /// When the file name is not that of a component of a version that can be read.
    pub fn of_path(path: &Path) -> Result<Self, Error> {
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let dir = match path.parent() {
            Some(p) if !p.as_os_str().is_empty() => p.to_owned(),
            _ => PathBuf::from("."),
        };
        match parse_name(name) {
            Some((version, generation, _)) => Ok(Self {
                dir,
                version,
                generation,
            }),
            None => Err(Error::unsupported(
                path,
                "the name is not that of a component of version mc, md or me, such as me-1-big-Data.db",
            )),
        }
    }
}

pub(crate) fn parse_name(name: &str) -> Option<(Version, Generation, &str)> {
    let mut parts = name.splitn(4, '-');
    let version = Version::parse(parts.next()?)?;
    let generation = Generation::parse(parts.next()?)?;
    if parts.next()? != "big" {
        return None;
    }
    Some((version, generation, parts.next()?))
}

/// The sealed sstables of a directory, by generation. At start, [`remove_unsealed`] comes before. Blocks.
///
/// # Errors
/// When the directory cannot be read.
pub fn list(dir: &Path) -> Result<Vec<Descriptor>, Error> {
    let mut found: Vec<Descriptor> = io::list_names(dir)?
        .iter()
        .filter_map(|name| parse_name(name))
        .filter(|(_, _, suffix)| *suffix == Component::Toc.suffix())
        .map(|(version, generation, _)| Descriptor {
            dir: dir.to_owned(),
            version,
            generation,
        })
        .collect();
    found.sort_by(|a, b| (&a.generation, a.version).cmp(&(&b.generation, b.version)));
    Ok(found)
}

/// Refuses a directory with sstables of a version that cannot be read: what they hold would be missing, and nobody would know. Blocks.
///
/// # Errors
/// For the first of them; when the directory cannot be read.
pub fn refuse_unreadable(dir: &Path) -> Result<(), Error> {
    let is_data = |name: &String| name.ends_with("-Data.db") && parse_name(name).is_none();
    match io::list_names(dir)?.into_iter().find(is_data) {
        None => Ok(()),
        Some(name) => Err(Error::unsupported(
            &dir.join(name),
            "an sstable of a version that cannot be read here (mc, md and me can): move its files out of this directory. docs/moving.md says how its rows get here",
        )),
    }
}

/// Deletes an sstable, its TOC first: if power fails between, the rest is an unsealed leftover. Blocks.
///
/// # Errors
/// When a file that exists cannot be removed.
pub fn delete(descriptor: &Descriptor) -> Result<(), Error> {
    io::remove_if_exists(&descriptor.path(Component::Toc))?;
    io::sync_dir(&descriptor.dir)?;
    for name in io::list_names(&descriptor.dir)? {
        let ours = parse_name(&name).is_some_and(|(version, generation, _)| {
            version == descriptor.version && generation == descriptor.generation
        });
        if ours {
            io::remove_if_exists(&descriptor.dir.join(name))?;
        }
    }
    Ok(())
}

/// Sstables that count as deleted, as [`mark_obsolete`] has made durable.
#[must_use = "their files are still there"]
pub struct Obsolete(ObsoleteFiles);

enum ObsoleteFiles {
    /// One or none, of which no list could be made: their deletion cannot be halved.
    Few(Vec<Descriptor>),
    /// The file that lists them.
    Listed(PathBuf),
}

/// Marks sstables of one directory as deleted so that after a crash all of them are there or, once [`remove_unsealed`] has been
/// there, none.
///
/// A compaction's inputs must go together: one may hold the tombstone of what is in another. A file lists them; once it is durable
/// they count as deleted. A single one is listed too, or it would be there again at the next start when its first file cannot be removed; only where there is
/// no room for a list it goes without. Blocks.
///
/// # Errors
/// When the list cannot be made durable: then none is deleted.
pub fn mark_obsolete(descriptors: &[Descriptor]) -> Result<Obsolete, Error> {
    let [first, ..] = descriptors else {
        return Ok(Obsolete(ObsoleteFiles::Few(Vec::new())));
    };
    match write_list(first, descriptors) {
        Ok(list) => Ok(Obsolete(ObsoleteFiles::Listed(list))),
        Err(_) if descriptors.len() == 1 => Ok(Obsolete(ObsoleteFiles::Few(descriptors.to_vec()))),
        Err(error) => Err(error),
    }
}

/// Makes the list of what is deleted, durably. On failure there is none.
fn write_list(first: &Descriptor, descriptors: &[Descriptor]) -> Result<PathBuf, Error> {
    let path = first
        .dir
        .join(format!("{OBSOLETE_PREFIX}{}{OBSOLETE_SUFFIX}", first.generation));
    let mut text = String::new();
    for descriptor in descriptors {
        let toc = descriptor.path(Component::Toc);
        text.push_str(toc.file_name().and_then(|name| name.to_str()).unwrap_or_default());
        text.push('\n');
    }
    let temporary = path.with_extension("tmp");
    io::write_all(temporary.clone(), text.as_bytes())?;
    io::rename(&temporary, &path)?;
    if let Err(e) = io::sync_dir(&first.dir) {
        // Nobody knows whether it is durable, but whoever keeps the sstables needs it gone, and gone behind a power loss too.
        io::remove_if_exists(&path)?;
        io::sync_dir(&first.dir)?;
        return Err(e);
    }
    Ok(path)
}

impl Obsolete {
    /// Deletes the files. Blocks.
    ///
    /// # Errors
    /// When a file cannot be removed; [`remove_unsealed`] does it at the next start.
    pub fn delete(self) -> Result<(), Error> {
        match self.0 {
            ObsoleteFiles::Few(descriptors) => descriptors.iter().try_for_each(delete),
            ObsoleteFiles::Listed(path) => delete_listed(&path),
        }
    }
}

/// The name of a file that lists sstables which are being deleted: `obsolete-GENERATION.txt`.
const OBSOLETE_PREFIX: &str = "obsolete-";
const OBSOLETE_SUFFIX: &str = ".txt";

/// Deletes the sstables that a file lists, and then the file, for good: their generations may be used again after the next start.
fn delete_listed(list: &Path) -> Result<(), Error> {
    let bytes = io::read_all(list)?;
    for name in String::from_utf8_lossy(&bytes).lines() {
        delete(&Descriptor::of_path(&list.with_file_name(name))?)?;
    }
    io::remove_if_exists(list)?;
    io::sync_dir(list.parent().unwrap_or(Path::new(".")))
}

/// Removes the files of sstables that were never sealed, or whose deletion did not finish, and ends adoptions that did not; the names of what was never sealed.
/// Blocks.
///
/// For a directory that nobody writes to yet: at start.
///
/// # Errors
/// When the directory cannot be read or a file not be removed.
pub fn remove_unsealed(dir: &Path) -> Result<Vec<String>, Error> {
    crate::adopt::finish_adoptions(dir)?;
    for name in io::list_names(dir)?
        .iter()
        .filter(|name| name.starts_with(OBSOLETE_PREFIX))
    {
        if name.ends_with(OBSOLETE_SUFFIX) {
            delete_listed(&dir.join(name))?;
        } else {
            io::remove_if_exists(&dir.join(name))?;
        }
    }
    let sealed = list(dir)?;
    let mut removed = Vec::new();
    for name in io::list_names(dir)? {
        let Some((version, generation, suffix)) = parse_name(&name) else {
            continue;
        };
        let is_sealed = sealed
            .iter()
            .any(|d| d.version == version && d.generation == generation);
        if !is_sealed || suffix == "TOC.txt.tmp" || suffix.ends_with(".mark") {
            io::remove_if_exists(&dir.join(&name))?;
            removed.push(name);
        }
    }
    Ok(removed)
}
