//! The files of an sstable and their names.
//!
//! `me-7-big-Data.db` is component Data of generation 7 in version `me`. TOC.txt lists the components, one a line, and
//! makes the sstable *sealed*. It has another name, durably, while the sstable does not count: `TOC.txt.tmp` from
//! before the sstable has its statistics until it is whole, and `TOC.txt.deleted` while the other files are removed. So
//! a start can distinguish three cases of an sstable without TOC.txt:
//!
//! - with one of the two names, or without Statistics.db: the remains of a write or a deletion that a crash
//!   interrupted. They are removed.
//! - else TOC.txt was lost: it is written again from the components that are there, as Cassandra does.
//!
//! Several are deleted together or not at all: first `obsolete-7.txt` lists their TOCs ([`crate::named`]), under its
//! final name only when it is durable; then they go; then it goes. Otherwise a crash could leave an
//! sstable whose rows were deleted, and not the one that deletes them. How several come into a directory together says
//! [`crate::adopt`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::secondary::{index_suffix, is_unfinished_index};
use schema::IndexId;

use crate::directory::generation::Generation;
use crate::directory::named;
use crate::error::Error;
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
        self.file(component.suffix())
    }

    /// The path of the file of one of the table's indexes.
    pub(crate) fn index_path(&self, id: IndexId) -> PathBuf {
        self.file(&index_suffix(id))
    }

    /// The list of components of an sstable that is not whole yet.
    pub(crate) fn toc_tmp(&self) -> PathBuf {
        self.file(TOC_TMP)
    }

    fn file(&self, suffix: &str) -> PathBuf {
        self.dir
            .join(format!("{}-{}-big-{suffix}", self.version.name(), self.generation))
    }

    /// Takes its TOC from an sstable. The caller syncs the directory.
    fn unseal(&self) -> Result<(), Error> {
        let toc = self.path(Component::Toc);
        if io::exists(&toc) && io::rename(&toc, &self.file(TOC_DELETED)).is_err() {
            // A disk without room for the longer name.
            return io::remove_if_exists(&toc);
        }
        Ok(())
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

/// The names of a TOC whose sstable does not count.
const TOC_TMP: &str = "TOC.txt.tmp";
const TOC_DELETED: &str = "TOC.txt.deleted";
/// A TOC that is being written again.
const TOC_NEW: &str = "TOC.txt.new";

fn is_unsealed_toc(suffix: &str) -> bool {
    [TOC_TMP, TOC_DELETED].contains(&suffix)
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

/// Refuses a directory with sstables of a version that cannot be read: else their rows would be missing without notice.
/// Blocks.
///
/// # Errors
/// For the first of them; when the directory cannot be read.
pub fn refuse_unreadable(dir: &Path) -> Result<(), Error> {
    let is_data = |name: &String| name.ends_with("-Data.db") && parse_name(name).is_none();
    match io::list_names(dir)?.into_iter().find(is_data) {
        None => Ok(()),
        Some(name) => Err(Error::unsupported(
            &dir.join(name),
            "an sstable of a version that cannot be read here (mc, md and me can): move its files out of this directory. `ceto page moving` says how its rows get here",
        )),
    }
}

/// Deletes an sstable, its TOC first: if power fails between, the rest is an unsealed leftover. Blocks.
///
/// # Errors
/// When a file that exists cannot be removed.
pub fn delete(descriptor: &Descriptor) -> Result<(), Error> {
    delete_all(std::slice::from_ref(descriptor))
}

/// Deletes sstables of one directory. Blocks.
fn delete_all(descriptors: &[Descriptor]) -> Result<(), Error> {
    let Some(Descriptor { dir, .. }) = descriptors.first() else {
        return Ok(());
    };
    descriptors.iter().try_for_each(Descriptor::unseal)?;
    io::sync_dir(dir)?;
    remove_all(dir, descriptors)
}

/// Removes the files of an sstable that was never sealed. Blocks.
pub(crate) fn discard(descriptor: &Descriptor) -> Result<(), Error> {
    if !io::exists(&descriptor.dir) {
        return Ok(());
    }
    remove_all(&descriptor.dir, std::slice::from_ref(descriptor))
}

/// Removes the files of unsealed sstables of one directory.
fn remove_all(dir: &Path, descriptors: &[Descriptor]) -> Result<(), Error> {
    let names = io::list_names(dir)?;
    let is_theirs = |name: &&String| {
        parse_name(name).is_some_and(|(version, generation, _)| {
            descriptors
                .iter()
                .any(|descriptor| descriptor.version == version && descriptor.generation == generation)
        })
    };
    remove_files(dir, names.iter().filter(is_theirs))
}

/// Removes files of unsealed sstables: those that say so last, once it is durable that the others are gone. Otherwise
/// an sstable without some of its removals would look like one that has lost its TOC.
fn remove_files<'n>(dir: &Path, names: impl Iterator<Item = &'n String>) -> Result<(), Error> {
    let is_mark = |name: &&String| parse_name(name).is_some_and(|(_, _, suffix)| is_unsealed_toc(suffix));
    let (marks, others): (Vec<&String>, Vec<&String>) = names.partition(is_mark);
    for name in &others {
        io::remove_if_exists(&dir.join(name))?;
    }
    if !others.is_empty() && !marks.is_empty() {
        io::sync_dir(dir)?;
    }
    marks.iter().try_for_each(|name| io::remove_if_exists(&dir.join(name)))
}

/// Sstables that count as deleted, as [`mark_obsolete`] has made durable.
#[must_use = "their files are still there"]
pub struct Obsolete {
    descriptors: Vec<Descriptor>,
    /// The file that lists them. None for none, and for one of which no list could be made: its deletion cannot be
    /// halved.
    list: Option<PathBuf>,
}

/// Marks sstables of one directory as deleted so that after a crash all of them are there or, once [`remove_unsealed`]
/// has been there, none.
///
/// A compaction's inputs must go together: one may hold the tombstone of what is in another. A file lists them; once it
/// is durable they count as deleted. A single one is listed too, or it would be there again at the next start when its
/// first file cannot be removed; only where there is no room for a list it goes without. Blocks.
///
/// # Errors
/// When the list cannot be made durable: then none is deleted.
pub fn mark_obsolete(descriptors: &[Descriptor]) -> Result<Obsolete, Error> {
    let list = match descriptors.first().map(|first| write_list(first, descriptors)) {
        Some(Err(error)) if descriptors.len() > 1 => return Err(error),
        Some(Ok(list)) => Some(list),
        Some(Err(_)) | None => None,
    };
    Ok(Obsolete {
        descriptors: descriptors.to_vec(),
        list,
    })
}

/// Makes the list of what is deleted, durably. On failure there is none.
fn write_list(first: &Descriptor, descriptors: &[Descriptor]) -> Result<PathBuf, Error> {
    let path = first
        .dir
        .join(format!("{OBSOLETE_PREFIX}{}{OBSOLETE_SUFFIX}", first.generation));
    named::write(&path, descriptors)?;
    if let Err(e) = io::sync_dir(&first.dir) {
        // It is unknown whether the list is durable. The caller, which keeps the sstables, needs it removed, also after
        // a power loss.
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
        // By what is known, not by what a disk would say: a name that is read wrongly leaves an sstable.
        delete_all(&self.descriptors)?;
        self.list.map_or(Ok(()), |list| remove_list(&list))
    }
}

/// The name of a file that lists sstables which are being deleted: `obsolete-GENERATION.txt`.
const OBSOLETE_PREFIX: &str = "obsolete-";
const OBSOLETE_SUFFIX: &str = ".txt";

/// Permanently deletes the sstables that a file lists, and then the file: their generations may be used again after the
/// next start.
fn delete_listed(list: &Path) -> Result<(), Error> {
    delete_all(&named::read(list)?)?;
    remove_list(list)
}

fn remove_list(list: &Path) -> Result<(), Error> {
    io::remove_if_exists(list)?;
    io::sync_dir(list.parent().unwrap_or(Path::new(".")))
}

/// What [`remove_unsealed`] has done.
#[derive(Default, Debug)]
pub struct Unsealed {
    /// Names of files that were removed: of sstables that were never sealed, or whose deletion did not finish.
    pub removed: Vec<String>,
    /// Sstables that had lost their TOC, and have one again.
    pub restored: Vec<Descriptor>,
}

/// Ends what a crash has interrupted in a table's directory: adoptions and deletions of sstables. Removes the files of
/// sstables that were not written to their end, and writes the TOC of those that have lost it. Blocks.
///
/// Call it at start, when nothing writes to the directory yet.
///
/// # Errors
/// When the directory cannot be read, a file not be removed, or a TOC not be written.
pub fn remove_unsealed(dir: &Path) -> Result<Unsealed, Error> {
    crate::directory::adopt::finish_adoptions(dir)?;
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
    let names = io::list_names(dir)?;
    let mut sstables: BTreeMap<(Generation, Version), Vec<(&String, &str)>> = BTreeMap::new();
    for name in &names {
        if let Some((version, generation, suffix)) = parse_name(name) {
            let files = sstables.entry((generation, version)).or_default();
            files.push((name, suffix));
        }
    }
    let mut done = Unsealed::default();
    let mut removed = Vec::new();
    for ((generation, version), files) in sstables {
        let has = |component: Component| files.iter().any(|(_, suffix)| *suffix == component.suffix());
        if has(Component::Toc) {
            let is_leftover =
                |suffix: &str| is_unsealed_toc(suffix) || suffix.ends_with(".mark") || is_unfinished_index(suffix);
            removed.extend(
                files
                    .iter()
                    .filter(|(_, suffix)| is_leftover(suffix))
                    .map(|(name, _)| *name),
            );
        } else if has(Component::Statistics) && !files.iter().any(|(_, suffix)| is_unsealed_toc(suffix)) {
            let dir = dir.to_owned();
            let descriptor = Descriptor {
                dir,
                version,
                generation,
            };
            restore_toc(&descriptor, has)?;
            done.restored.push(descriptor);
        } else {
            removed.extend(files.iter().map(|(name, _)| *name));
        }
    }
    remove_files(dir, removed.iter().copied())?;
    done.removed = removed.into_iter().cloned().collect();
    Ok(done)
}

/// Writes the TOC of an sstable again: the components that are there, and those that every sstable has, so that one
/// that lacks them is found damaged.
fn restore_toc(descriptor: &Descriptor, has: impl Fn(Component) -> bool) -> Result<(), Error> {
    let always = [Component::Data, Component::Index, Component::Statistics, Component::Toc];
    let listed = Component::ALL
        .into_iter()
        .filter(|component| has(*component) || always.contains(component));
    let text: String = listed.map(|component| format!("{}\n", component.suffix())).collect();
    let new = descriptor.file(TOC_NEW);
    io::write_all(new.clone(), text.as_bytes())?;
    io::rename(&new, &descriptor.path(Component::Toc))?;
    io::sync_dir(&descriptor.dir)
}
