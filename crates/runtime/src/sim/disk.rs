//! The disk of a simulated node: a *live* image, which processes see, and a *durable* one, which survives a power loss.
//!
//! - A file's bytes become durable by a sync of the file: sectors of 512 bytes that were changed since the last sync
//!   are *dirty*.
//! - A name becomes durable by a sync of its directory. Changes of names wait in order as transactions; a rename is
//!   one, so after a power loss it happened as a whole or not at all.
//! - Power loss: each file keeps its durable bytes; its dirty sectors vanish, survive, or survive one by one, by
//!   chance; its length is the old, the new or between. Waiting name changes survive up to a point, or one by one, by
//!   chance. What survived is then durable.
//!
//! The disk knows no time, no faults and no chance of its own: those come from the caller.

use super::faults::FailedSync;
use crate::fs::DiskSpace;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Error, ErrorKind, Result};
use std::ops::Bound;
use std::path::Path;

/// What a disk writes as a whole.
pub(crate) const SECTOR: usize = 512;

/// A file's number on its disk.
pub(crate) type FileNumber = u64;

/// An absolute path in its shortest form. Most of a run looks for names, and text is compared faster than the
/// components of a path.
type Name = String;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entry {
    Directory,
    File(FileNumber),
}

/// See the module.
pub(crate) struct Disk {
    files: BTreeMap<FileNumber, FileData>,
    live: BTreeMap<Name, Entry>,
    durable: BTreeMap<Name, Entry>,
    /// Name changes that no directory sync has made durable, in order.
    waiting: BTreeMap<u64, Transaction>,
    /// Which of them change a name in a directory. Most syncs are of directories in which nothing waits, while others
    /// are never synced.
    waiting_in: BTreeMap<Name, BTreeSet<u64>>,
    changes: u64,
    next_number: FileNumber,
    capacity: Option<u64>,
}

/// Name changes that happen as a whole: a path and what it names afterwards.
struct Transaction(Vec<(Name, Option<Entry>)>);

impl Transaction {
    /// Where it changes names.
    fn directories(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|(name, _)| parent(name))
    }
}

#[derive(Default)]
struct FileData {
    live: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
    /// Space promised by `allocate` beyond the length is not modelled: allocate sets the length.
    handles: u32,
    /// How many names lead to it: live ones, durable ones and waiting ones.
    names: u32,
    locked: bool,
}

/// How to open; the subset of the options that concerns the disk.
#[derive(Clone, Copy)]
pub(crate) struct Open {
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) truncate: bool,
}

impl Disk {
    pub(crate) fn new() -> Self {
        let root = BTreeMap::from([("/".to_owned(), Entry::Directory)]);
        Self {
            files: BTreeMap::new(),
            live: root.clone(),
            durable: root,
            waiting: BTreeMap::new(),
            waiting_in: BTreeMap::new(),
            changes: 0,
            next_number: 1,
            capacity: None,
        }
    }

    pub(crate) fn set_capacity(&mut self, capacity: Option<u64>) {
        self.capacity = capacity;
    }

    /// The room that files have and can still get.
    pub(crate) fn space(&self) -> DiskSpace {
        const UNLIMITED: u64 = 1 << 40;
        let used = self.used();
        let available = self
            .capacity
            .map_or(UNLIMITED, |capacity| capacity.saturating_sub(used));
        DiskSpace {
            total: used + available,
            used,
            available,
        }
    }

    fn available(&self) -> u64 {
        self.space().available
    }

    fn used(&self) -> u64 {
        self.files.values().map(|file| file.live.len() as u64).sum()
    }

    fn need(&self, more: usize) -> Result<()> {
        if self.capacity.is_some() && self.available() < more as u64 {
            return Err(Error::from_raw_os_error(libc::ENOSPC));
        }
        Ok(())
    }

    pub(crate) fn open(&mut self, path: &Path, how: Open) -> Result<FileNumber> {
        let path = normal(path);
        let number = match self.live.get(&path) {
            Some(Entry::Directory) => return Err(Error::from(ErrorKind::IsADirectory)),
            Some(Entry::File(_)) if how.create_new => return Err(Error::from(ErrorKind::AlreadyExists)),
            Some(&Entry::File(number)) => number,
            None if how.create || how.create_new => {
                self.parent_must_exist(&path)?;
                self.need(1)?;
                let number = self.next_number;
                self.next_number += 1;
                self.files.insert(number, FileData::default());
                self.change(vec![(path, Some(Entry::File(number)))]);
                number
            }
            None => return Err(Error::from(ErrorKind::NotFound)),
        };
        if how.truncate {
            self.set_len(number, 0)?;
        }
        self.file(number).handles += 1;
        Ok(number)
    }

    /// One handle less.
    pub(crate) fn close(&mut self, number: FileNumber, held_lock: bool) {
        if let Some(file) = self.files.get_mut(&number) {
            file.handles = file.handles.saturating_sub(1);
            file.locked &= !held_lock;
            if file.is_unreachable() {
                self.files.remove(&number);
            }
        }
    }

    fn file(&mut self, number: FileNumber) -> &mut FileData {
        self.files.get_mut(&number).expect("a file with a handle is kept")
    }

    pub(crate) fn read(&self, number: FileNumber, buffer: &mut [u8], offset: u64) -> usize {
        let bytes = &self.files[&number].live;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let count = buffer.len().min(bytes.len() - start);
        buffer[..count].copy_from_slice(&bytes[start..start + count]);
        count
    }

    /// Where there is no room for all bytes, those for which there is are written.
    pub(crate) fn write(&mut self, number: FileNumber, bytes: &[u8], offset: u64) -> Result<()> {
        let start = usize::try_from(offset).map_err(|_| Error::from(ErrorKind::FileTooLarge))?;
        let end = start + bytes.len();
        let length = self.files[&number].live.len();
        if let Err(full) = self.need(end.saturating_sub(length)) {
            let room = length.saturating_add(usize::try_from(self.available()).unwrap_or(usize::MAX));
            let fitting = room.saturating_sub(start).min(bytes.len().saturating_sub(1));
            if fitting > 0 {
                self.write(number, &bytes[..fitting], offset)?;
            }
            return Err(full);
        }
        let file = self.file(number);
        if file.live.len() < end {
            file.resize(end);
        }
        file.live[start..end].copy_from_slice(bytes);
        file.dirty.extend(start / SECTOR..end.div_ceil(SECTOR));
        Ok(())
    }

    pub(crate) fn len(&self, number: FileNumber) -> u64 {
        self.files[&number].live.len() as u64
    }

    pub(crate) fn set_len(&mut self, number: FileNumber, length: u64) -> Result<()> {
        let length = usize::try_from(length).map_err(|_| Error::from(ErrorKind::FileTooLarge))?;
        self.need(length.saturating_sub(self.files[&number].live.len()))?;
        self.file(number).resize(length);
        Ok(())
    }

    pub(crate) fn sync(&mut self, number: FileNumber) {
        self.file(number).sync();
    }

    /// A sync that fails: by chance each dirty sector is durable all the same; `bytes` says what becomes of the others.
    /// `below(n)` is a number below n.
    pub(crate) fn fail_sync(&mut self, number: FileNumber, bytes: FailedSync, mut below: impl FnMut(u64) -> u64) {
        self.file(number).fail_sync(bytes, &mut below);
    }

    /// Changes one bit of a file, wherever its bytes are. Where; None when it has none.
    pub(crate) fn rot(&mut self, path: &Path, mut below: impl FnMut(u64) -> u64) -> Result<Option<u64>> {
        let number = match self.live.get(&normal(path)) {
            Some(&Entry::File(number)) => number,
            Some(Entry::Directory) => return Err(Error::from(ErrorKind::IsADirectory)),
            None => return Err(Error::from(ErrorKind::NotFound)),
        };
        let file = self.file(number);
        if file.live.is_empty() {
            return Ok(None);
        }
        let bit = below(file.live.len() as u64 * 8);
        let byte = usize::try_from(bit / 8).expect("within a length");
        for image in [&mut file.live, &mut file.durable] {
            if let Some(byte) = image.get_mut(byte) {
                *byte ^= 1 << (bit % 8);
            }
        }
        Ok(Some(bit / 8))
    }

    /// Takes the lock. True when it was free.
    pub(crate) fn try_lock(&mut self, number: FileNumber) -> bool {
        !std::mem::replace(&mut self.file(number).locked, true)
    }

    pub(crate) fn create_dir_all(&mut self, path: &Path) -> Result<()> {
        let path = normal(path);
        let missing: Vec<Name> = std::iter::successors(Some(&*path), |name| parent(name))
            .take_while(|above| !self.live.contains_key(*above))
            .map(str::to_owned)
            .collect();
        let lowest = missing.last().map_or(Some(&*path), |lowest| parent(lowest));
        if lowest.is_some_and(|existing| !matches!(self.live.get(existing), Some(Entry::Directory))) {
            return Err(Error::from(ErrorKind::NotADirectory));
        }
        for directory in missing.into_iter().rev() {
            self.change(vec![(directory, Some(Entry::Directory))]);
        }
        Ok(())
    }

    /// Names in a directory with their length, `None` for directories; sorted.
    pub(crate) fn read_dir(&self, path: &Path) -> Result<Vec<(String, Option<u64>)>> {
        let path = normal(path);
        match self.live.get(&path) {
            Some(Entry::Directory) => {}
            Some(Entry::File(_)) => return Err(Error::from(ErrorKind::NotADirectory)),
            None => return Err(Error::from(ErrorKind::NotFound)),
        }
        let children = self.below(&path).filter(|(child, _)| parent(child) == Some(&path));
        Ok(children
            .filter_map(|(child, entry)| {
                let name = child.rsplit('/').next()?.to_owned();
                let length = match entry {
                    Entry::Directory => None,
                    Entry::File(number) => Some(self.len(*number)),
                };
                Some((name, length))
            })
            .collect())
    }

    pub(crate) fn rename(&mut self, from: &Path, to: &Path) -> Result<()> {
        let (from, to) = (normal(from), normal(to));
        let entry = *self.live.get(&from).ok_or(ErrorKind::NotFound)?;
        self.parent_must_exist(&to)?;
        match (entry, self.live.get(&to)) {
            (Entry::File(_), Some(Entry::Directory)) => return Err(Error::from(ErrorKind::IsADirectory)),
            (Entry::Directory, Some(Entry::File(_))) => return Err(Error::from(ErrorKind::NotADirectory)),
            (Entry::Directory, Some(Entry::Directory)) if self.has_children(&to) => {
                return Err(Error::from(ErrorKind::DirectoryNotEmpty));
            }
            _ => {}
        }
        let moved: Vec<_> = std::iter::once((from.clone(), entry))
            .chain(self.below(&from).map(|(path, &entry)| (path.clone(), entry)))
            .collect();
        let mut changes = Vec::new();
        for (path, entry) in moved {
            let below = path.strip_prefix(&from).expect("it starts with the old name");
            let target = format!("{to}{below}");
            changes.push((path, None));
            changes.push((target, Some(entry)));
        }
        self.change(changes);
        Ok(())
    }

    pub(crate) fn remove_file(&mut self, path: &Path) -> Result<()> {
        let path = normal(path);
        match self.live.get(&path) {
            Some(Entry::File(_)) => self.change(vec![(path, None)]),
            Some(Entry::Directory) => return Err(Error::from(ErrorKind::IsADirectory)),
            None => return Err(Error::from(ErrorKind::NotFound)),
        }
        Ok(())
    }

    /// Names are removed one by one, so a power loss may leave some of them.
    pub(crate) fn remove_dir_all(&mut self, path: &Path) -> Result<()> {
        let path = normal(path);
        if !matches!(self.live.get(&path).ok_or(ErrorKind::NotFound)?, Entry::Directory) {
            return Err(Error::from(ErrorKind::NotADirectory));
        }
        let names: Vec<Name> = self.below(&path).map(|(name, _)| name.clone()).collect();
        for name in names.into_iter().rev().chain([path]) {
            self.change(vec![(name, None)]);
        }
        Ok(())
    }

    pub(crate) fn hard_link(&mut self, original: &Path, link: &Path) -> Result<()> {
        let (original, link) = (normal(original), normal(link));
        let entry = *self.live.get(&original).ok_or(ErrorKind::NotFound)?;
        if entry == Entry::Directory {
            return Err(Error::from(ErrorKind::PermissionDenied));
        }
        if self.live.contains_key(&link) {
            return Err(Error::from(ErrorKind::AlreadyExists));
        }
        self.parent_must_exist(&link)?;
        self.change(vec![(link, Some(entry))]);
        Ok(())
    }

    pub(crate) fn exists(&self, path: &Path) -> bool {
        self.live.contains_key(&normal(path))
    }

    /// Makes the names in a directory durable: every waiting transaction that changes one of them, as a whole.
    pub(crate) fn sync_dir(&mut self, path: &Path) -> Result<()> {
        let path = normal(path);
        if !matches!(self.live.get(&path).ok_or(ErrorKind::NotFound)?, Entry::Directory) {
            // As on Linux: opening and syncing works on files too.
            if let Some(&Entry::File(number)) = self.live.get(&path) {
                self.sync(number);
            }
            return Ok(());
        }
        for number in self.waiting_in.remove(&path).unwrap_or_default() {
            let transaction = self.waiting.remove(&number).expect("what waits in a directory waits");
            for other in transaction.directories().filter(|other| **other != *path) {
                if let Some(others) = self.waiting_in.get_mut(other) {
                    others.remove(&number);
                }
            }
            // The waiting names become durable ones.
            let displaced = apply(&mut self.durable, &transaction);
            self.lose_names(displaced);
        }
        Ok(())
    }

    /// The process died: handles and locks are gone, bytes and names are not.
    pub(crate) fn kill(&mut self) {
        for file in self.files.values_mut() {
            file.handles = 0;
            file.locked = false;
        }
        self.files.retain(|_, file| !file.is_unreachable());
    }

    /// The power is gone. `below(n)` is a number below n.
    pub(crate) fn lose_power(&mut self, mut below: impl FnMut(u64) -> u64) {
        self.waiting_in.clear();
        let waiting = std::mem::take(&mut self.waiting);
        let one_by_one = below(2) == 0;
        let up_to = below(waiting.len() as u64 + 1);
        for (position, transaction) in (0..).zip(waiting.into_values()) {
            let survives = if one_by_one { below(2) == 0 } else { position < up_to };
            if survives {
                apply(&mut self.durable, &transaction);
            }
        }
        // A name whose directory did not survive is unreachable.
        let directories: BTreeSet<Name> = self
            .durable
            .iter()
            .filter(|(_, entry)| **entry == Entry::Directory)
            .map(|(path, _)| path.clone())
            .collect();
        self.durable.retain(|name, _| {
            std::iter::successors(parent(name), |name| parent(name)).all(|above| directories.contains(above))
        });
        self.live = self.durable.clone();
        for file in self.files.values_mut() {
            file.names = 0;
            file.lose_power(&mut below);
        }
        for entry in self.live.values().chain(self.durable.values()) {
            gain_name(&mut self.files, *entry);
        }
        self.kill();
    }

    fn parent_must_exist(&self, name: &str) -> Result<()> {
        match parent(name).and_then(|parent| self.live.get(parent)) {
            Some(Entry::Directory) => Ok(()),
            Some(Entry::File(_)) => Err(Error::from(ErrorKind::NotADirectory)),
            None => Err(Error::from(ErrorKind::NotFound)),
        }
    }

    fn has_children(&self, name: &str) -> bool {
        self.below(name).next().is_some()
    }

    /// The live names inside a directory, at any depth. They are adjacent in the map, as they have the same prefix.
    fn below(&self, name: &str) -> impl Iterator<Item = (&Name, &Entry)> {
        let start = format!("{}/", name.trim_end_matches('/'));
        let inside = (Bound::Excluded(start.clone()), Bound::Unbounded);
        self.live
            .range::<Name, _>(inside)
            .take_while(move |(name, _)| name.starts_with(&start))
    }

    fn change(&mut self, changes: Vec<(Name, Option<Entry>)>) {
        let transaction = Transaction(changes);
        for entry in transaction.0.iter().filter_map(|(_, entry)| *entry) {
            // The live name and the waiting one.
            gain_name(&mut self.files, entry);
            gain_name(&mut self.files, entry);
        }
        let displaced = apply(&mut self.live, &transaction);
        self.changes += 1;
        for directory in transaction.directories() {
            let waiting = self.waiting_in.entry(directory.to_owned()).or_default();
            waiting.insert(self.changes);
        }
        self.waiting.insert(self.changes, transaction);
        self.lose_names(displaced);
    }

    /// Names do not lead there any more. Frees the files that no other name, nor a handle, leads to.
    fn lose_names(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            let Entry::File(number) = entry else { continue };
            let file = self.files.get_mut(&number).expect("a file with a name is kept");
            file.names -= 1;
            if file.is_unreachable() {
                self.files.remove(&number);
            }
        }
    }
}

fn gain_name(files: &mut BTreeMap<FileNumber, FileData>, entry: Entry) {
    if let Entry::File(number) = entry {
        files.get_mut(&number).expect("a file with a name is kept").names += 1;
    }
}

/// Changes names. What they led to before is returned.
fn apply(names: &mut BTreeMap<Name, Entry>, transaction: &Transaction) -> Vec<Entry> {
    let changes = transaction.0.iter();
    changes
        .filter_map(|(path, entry)| match entry {
            Some(entry) => names.insert(path.clone(), *entry),
            None => names.remove(path),
        })
        .collect()
}

impl FileData {
    fn is_unreachable(&self) -> bool {
        self.handles == 0 && self.names == 0
    }

    fn resize(&mut self, length: usize) {
        let (shorter, longer) = (self.live.len().min(length), self.live.len().max(length));
        self.live.resize(length, 0);
        self.dirty.extend(shorter / SECTOR..longer.div_ceil(SECTOR));
    }

    fn sync(&mut self) {
        self.durable.resize(self.live.len(), 0);
        for sector in std::mem::take(&mut self.dirty) {
            copy_sector(&self.live, &mut self.durable, sector);
        }
    }

    fn fail_sync(&mut self, bytes: FailedSync, below: &mut impl FnMut(u64) -> u64) {
        let failed: Vec<usize> = self.dirty.iter().copied().filter(|_| below(2) == 0).collect();
        if failed.len() < self.dirty.len() {
            self.durable.resize(self.live.len(), 0);
        }
        for sector in std::mem::take(&mut self.dirty) {
            if failed.binary_search(&sector).is_err() {
                copy_sector(&self.live, &mut self.durable, sector);
            }
        }
        match bytes {
            FailedSync::KeptDirty => self.dirty.extend(failed),
            FailedSync::Cleaned => {}
            FailedSync::Dropped => {
                let mut on_disk = self.durable.clone();
                on_disk.resize(self.live.len(), 0);
                for sector in failed {
                    copy_sector(&on_disk, &mut self.live, sector);
                }
            }
        }
    }

    fn lose_power(&mut self, below: &mut impl FnMut(u64) -> u64) {
        if !self.dirty.is_empty() {
            let (old, new) = (self.durable.len(), self.live.len());
            let length = match below(3) {
                0 => old,
                1 => new,
                _ => old.min(new) + usize::try_from(below(old.abs_diff(new) as u64 + 1)).expect("within a length"),
            };
            self.durable.resize(length, 0);
            // None, all, or each by chance.
            let fate = below(3);
            for sector in std::mem::take(&mut self.dirty) {
                if fate == 1 || (fate == 2 && below(2) == 0) {
                    copy_sector(&self.live, &mut self.durable, sector);
                }
            }
        }
        self.live = self.durable.clone();
    }
}

/// Copies what both files have of a sector.
fn copy_sector(from: &[u8], to: &mut [u8], sector: usize) {
    let start = sector * SECTOR;
    let end = (start + SECTOR).min(from.len()).min(to.len());
    if start < end {
        to[start..end].copy_from_slice(&from[start..end]);
    }
}

/// The absolute form of a path. There are no links to follow and no working directory but the root.
fn normal(path: &Path) -> Name {
    let text = path.to_str().expect("this disk has names that are text");
    if text.starts_with('/') && !["//", "/."].iter().any(|odd| text.contains(odd)) && !text.ends_with('/') {
        return text.to_owned();
    }
    let mut names: Vec<&str> = Vec::new();
    for name in text.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    format!("/{}", names.join("/"))
}

/// The directory of a name; None of the root.
fn parent(name: &str) -> Option<&str> {
    let at = name.rfind('/')?;
    match (at, name.len()) {
        (0, 1) => None,
        (0, _) => Some("/"),
        _ => Some(&name[..at]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Generator;

    const NEW: Open = Open {
        create: false,
        create_new: true,
        truncate: false,
    };

    /// Contents of the disk as text: one line per name.
    fn picture(disk: &Disk) -> String {
        let line = |(path, entry): (&Name, &Entry)| match entry {
            Entry::Directory => format!("{path}/"),
            Entry::File(number) => format!("{path} {}", String::from_utf8_lossy(&disk.files[number].live)),
        };
        disk.live.iter().skip(1).map(line).collect::<Vec<_>>().join("\n")
    }

    fn each_power_loss(mut make: impl FnMut() -> Disk, mut check: impl FnMut(&Disk, String)) {
        for seed in 0..200 {
            let mut disk = make();
            let mut random = Generator::from_seed(seed);
            disk.lose_power(|bound| random.next() % bound);
            check(&disk, picture(&disk));
        }
    }

    #[test]
    fn what_was_synced_survives_every_power_loss() {
        let make = || {
            let mut disk = Disk::new();
            let file = disk.open(Path::new("/a"), NEW).expect("the disk is empty");
            disk.write(file, b"synced", 0).expect("the disk has no limit");
            disk.sync(file);
            disk.sync_dir(Path::new("/")).expect("the root is there");
            disk
        };
        each_power_loss(make, |_, picture| assert_eq!(picture, "/a synced"));
    }

    #[test]
    fn a_name_that_was_not_synced_may_vanish_or_not() {
        let make = || {
            let mut disk = Disk::new();
            let file = disk.open(Path::new("/a"), NEW).expect("the disk is empty");
            disk.write(file, b"synced", 0).expect("the disk has no limit");
            disk.sync(file);
            disk
        };
        let mut seen = BTreeSet::new();
        each_power_loss(make, |_, picture| {
            seen.insert(picture);
        });
        assert_eq!(Vec::from_iter(seen), ["", "/a synced"]);
    }

    #[test]
    fn a_rename_happened_as_a_whole_or_not_at_all() {
        let make = || {
            let mut disk = Disk::new();
            for (path, text) in [("/old", "old"), ("/new", "new")] {
                let file = disk.open(Path::new(path), NEW).expect("the name is free");
                disk.write(file, text.as_bytes(), 0).expect("the disk has no limit");
                disk.sync(file);
            }
            disk.sync_dir(Path::new("/")).expect("the root is there");
            disk.rename(Path::new("/new"), Path::new("/old"))
                .expect("both are files");
            disk
        };
        let mut seen = BTreeSet::new();
        each_power_loss(make, |_, picture| {
            seen.insert(picture);
        });
        assert_eq!(Vec::from_iter(seen), ["/new new\n/old old", "/old new"]);
    }

    #[test]
    fn unsynced_sectors_survive_in_every_mixture_but_never_in_part() {
        let make = || {
            let mut disk = Disk::new();
            let file = disk.open(Path::new("/a"), NEW).expect("the disk is empty");
            disk.write(file, &[1; 4 * SECTOR], 0).expect("the disk has no limit");
            disk.sync(file);
            disk.sync_dir(Path::new("/")).expect("the root is there");
            disk.write(file, &[2; 4 * SECTOR], 0).expect("the disk has no limit");
            disk
        };
        let mut seen = BTreeSet::new();
        each_power_loss(make, |disk, _| {
            let bytes = &disk.files.values().next().expect("there is one file").live;
            let sectors: Vec<u8> = bytes.chunks(SECTOR).map(|sector| sector[0]).collect();
            assert!(
                bytes
                    .chunks(SECTOR)
                    .all(|sector| sector.iter().all(|byte| *byte == sector[0])),
                "a torn sector"
            );
            seen.insert(sectors);
        });
        assert!(
            seen.contains(&vec![1; 4]) && seen.contains(&vec![2; 4]) && seen.len() > 5,
            "{seen:?}"
        );
    }

    #[test]
    fn a_full_disk_refuses_and_frees_what_is_removed() {
        let mut disk = Disk::new();
        disk.set_capacity(Some(1000));
        let file = disk.open(Path::new("/a"), NEW).expect("the disk is empty");
        disk.write(file, &[0; 900], 0).expect("there is room");
        let full = disk.write(file, &[0; 200], 900).expect_err("there is no room");
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        disk.write(file, &[1; 900], 0).expect("overwriting needs no room");
        disk.close(file, false);
        disk.remove_file(Path::new("/a")).expect("it is there");
        disk.sync_dir(Path::new("/")).expect("the root is there");
        assert_eq!(disk.available(), 1000);
    }

    #[test]
    fn a_write_for_which_there_is_too_little_room_writes_what_fits() {
        let mut disk = Disk::new();
        disk.set_capacity(Some(10));
        let file = disk.open(Path::new("/a"), NEW).expect("the disk is empty");
        disk.write(file, b"12345678", 0).expect("there is room");
        disk.write(file, b"abcdef", 6).expect_err("there is no room");
        assert_eq!(picture(&disk), "/a 123456abcd");
    }

    /// What the file reads as after a failed sync, and what is left of it if power is lost after the next sync, which
    /// succeeds.
    fn behind_a_failed_sync(seed: u64, bytes: FailedSync) -> (String, String) {
        let mut random = Generator::from_seed(seed);
        let mut below = |bound| random.next() % bound;
        let mut disk = Disk::new();
        let file = disk.open(Path::new("/a"), NEW).expect("the disk is empty");
        disk.write(file, &[b'1'; 2 * SECTOR], 0).expect("the disk has no limit");
        disk.sync(file);
        disk.sync_dir(Path::new("/")).expect("the root is there");
        disk.write(file, &[b'2'; 3 * SECTOR], 0).expect("the disk has no limit");
        disk.fail_sync(file, bytes, &mut below);
        let firsts = |disk: &Disk| {
            let bytes = &disk.files[&file].live;
            let first = |sector: &[u8]| if sector[0] == 0 { '0' } else { char::from(sector[0]) };
            bytes.chunks(SECTOR).map(first).collect::<String>()
        };
        let read = firsts(&disk);
        disk.sync(file);
        disk.lose_power(&mut below);
        (read, firsts(&disk))
    }

    #[test]
    fn a_failed_sync_loses_or_keeps_what_was_written_and_the_next_one_succeeds() {
        let outcomes =
            |bytes| -> BTreeSet<(String, String)> { (0..100).map(|seed| behind_a_failed_sync(seed, bytes)).collect() };
        let kept = outcomes(FailedSync::KeptDirty);
        assert_eq!(Vec::from_iter(kept), [("222".to_owned(), "222".to_owned())]);
        let cleaned = outcomes(FailedSync::Cleaned);
        assert!(cleaned.iter().all(|(read, _)| read == "222"), "{cleaned:?}");
        assert!(
            cleaned.iter().any(|(_, left)| left == "110") && cleaned.len() > 4,
            "{cleaned:?}"
        );
        let dropped = outcomes(FailedSync::Dropped);
        assert!(dropped.iter().all(|(read, left)| read == left), "{dropped:?}");
        assert!(
            dropped.iter().any(|(read, _)| read == "110") && dropped.len() > 4,
            "{dropped:?}"
        );
    }
}
