//! What says that repairs have made the replicas of sstables equal: the mark in a file, and the record of its token
//! range in the table's directory.
//!
//! ```text
//! repaired-AFTER-TO.txt    ceto repaired 1
//!                          session HEX          the session that marked last
//!                          replicas HEX         a hash of the hosts that took part
//!                          since MILLISECONDS   the mark of the last session that read everything
//!                          at MILLISECONDS      the mark of the last session
//!                          hosts UUID,…         other hosts whose files may have valid marks, if there are any
//!                          crc HEX              CRC-32 of the lines before
//! ```
//!
//! A record that cannot be read is none: then everything is compared again. See docs/dev/incremental-repair.md.

use std::path::{Path, PathBuf};

use runtime::fs;
use types::Token;
use uuid::Uuid;

use crate::directory::component::{Component, Descriptor};
use crate::error::Error;
use crate::io;
use crate::read::checksums::Checksums;
use crate::statistics::Statistics;

const PREFIX: &str = "repaired-";
const SUFFIX: &str = ".txt";
const HEAD: &str = "ceto repaired 1";

/// What the last session has marked of a range of tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RepairRecord {
    /// Exclusive start of the range.
    pub after: Token,
    /// Inclusive end.
    pub to: Token,
    /// The session.
    pub session: u128,
    /// A hash of the hosts that took part.
    pub replicas: u128,
    /// The mark of the last session that read everything: older marks do not count.
    pub since: i64,
    /// The mark of the session.
    pub at: i64,
    /// Hosts that wrote marked files which are here.
    pub hosts: FileHosts,
}

/// Hosts whose files a replica has got by streaming, with their marks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FileHosts([Option<Uuid>; Self::MAX]);

impl FileHosts {
    /// No other host.
    pub const NONE: Self = Self([None; Self::MAX]);
    /// Most of them.
    pub const MAX: usize = 8;

    /// Whether a host is among them.
    #[must_use]
    pub fn has(&self, host: Uuid) -> bool {
        self.0.contains(&Some(host))
    }

    /// Adds a host. Whether it is among them now: there may be too many.
    pub fn add(&mut self, host: Uuid) -> bool {
        if self.has(host) {
            return true;
        }
        let free = self.0.iter_mut().find(|one| one.is_none());
        free.is_some_and(|free| {
            *free = Some(host);
            true
        })
    }

    fn encode(&self) -> String {
        let hosts: Vec<String> = self.0.iter().flatten().map(Uuid::to_string).collect();
        if hosts.is_empty() {
            String::new()
        } else {
            format!("hosts {}\n", hosts.join(","))
        }
    }

    fn decode(text: &str) -> Option<Self> {
        let mut hosts = Self::default();
        for host in text.split(',') {
            hosts.add(Uuid::parse_str(host).ok()?).then_some(())?;
        }
        Some(hosts)
    }
}

impl RepairRecord {
    fn name(&self) -> String {
        format!("{PREFIX}{}-{}{SUFFIX}", self.after.0, self.to.0)
    }

    /// Whether all tokens above `after` up to `to` are in its range.
    #[must_use]
    pub fn covers(&self, after: Token, to: Token) -> bool {
        self.after <= after && to <= self.to
    }

    /// Whether any token from the first to the last is in its range.
    #[must_use]
    pub fn overlaps(&self, first: Token, last: Token) -> bool {
        (last > self.after || self.after.0 == i64::MIN) && first <= self.to
    }

    pub(crate) fn encode(&self) -> String {
        let text = format!(
            "{HEAD}\nsession {:032x}\nreplicas {:032x}\nsince {}\nat {}\n{}",
            self.session,
            self.replicas,
            self.since,
            self.at,
            self.hosts.encode()
        );
        format!("{text}crc {:08x}\n", crc32fast::hash(text.as_bytes()))
    }

    pub(crate) fn decode((after, to): (Token, Token), text: &str) -> Option<Self> {
        let (body, crc) = text.split_at_checked(text.rfind("crc ")?)?;
        let crc = crc.strip_prefix("crc ")?.strip_suffix('\n')?;
        if u32::from_str_radix(crc, 16).ok()? != crc32fast::hash(body.as_bytes()) {
            return None;
        }
        let mut lines = body.lines();
        if lines.next()? != HEAD {
            return None;
        }
        let mut line = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let record = Self {
            after,
            to,
            session: u128::from_str_radix(line("session")?, 16).ok()?,
            replicas: u128::from_str_radix(line("replicas")?, 16).ok()?,
            since: line("since")?.parse().ok()?,
            at: line("at")?.parse().ok()?,
            hosts: FileHosts::default(),
        };
        // What later releases add is not read.
        let hosts = lines.next().and_then(|line| line.strip_prefix("hosts "));
        match hosts {
            None => Some(record),
            Some(hosts) => Some(Self {
                hosts: FileHosts::decode(hosts)?,
                ..record
            }),
        }
    }
}

/// The range in the name of a record.
fn range_of(name: &str) -> Option<(Token, Token)> {
    let range = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    // Each number may begin with a minus.
    let at = range.get(1..)?.find('-')? + 1;
    let token = |text: &str| text.parse().ok().map(Token);
    Some((token(&range[..at])?, token(&range[at + 1..])?))
}

/// The records of a table's directory, without those that cannot be read. Blocks.
///
/// # Errors
/// When the directory cannot be listed.
pub fn records(dir: &Path) -> Result<Vec<RepairRecord>, Error> {
    if !fs::exists(dir) {
        return Ok(Vec::new());
    }
    let names = io::list_names(dir)?;
    let read = |name: &String| {
        let range = range_of(name)?;
        let bytes = fs::read(dir.join(name)).ok()?;
        RepairRecord::decode(range, std::str::from_utf8(&bytes).ok()?)
    };
    Ok(names.iter().filter_map(read).collect())
}

/// Makes a record durable, in place of those whose ranges it includes. Blocks.
///
/// # Errors
/// When the disk refuses: then there is the previous record, this one, or none.
pub fn write_record(dir: &Path, record: &RepairRecord) -> Result<(), Error> {
    let path = dir.join(record.name());
    let temporary = path.with_extension("tmp");
    io::write_all(temporary.clone(), record.encode().as_bytes())?;
    io::rename(&temporary, &path)?;
    for (name, (after, to)) in ranges(dir)? {
        if name != record.name() && record.covers(after, to) {
            io::remove_if_exists(&dir.join(name))?;
        }
    }
    io::sync_dir(dir)
}

/// Removes the records whose ranges have any token from the first to the last, durably. Blocks.
///
/// # Errors
/// When the disk refuses: some may be gone.
pub fn remove_records(dir: &Path, first: Token, last: Token) -> Result<(), Error> {
    if !fs::exists(dir) {
        return Ok(());
    }
    for (name, (after, to)) in ranges(dir)? {
        if (last > after || after.0 == i64::MIN) && first <= to {
            io::remove_if_exists(&dir.join(name))?;
        }
    }
    // Also where none was left: an attempt before may have removed them whose sync failed.
    io::sync_dir(dir)
}

/// Removes one record, durably. Blocks.
///
/// # Errors
/// When the disk refuses.
pub fn remove_record(dir: &Path, record: &RepairRecord) -> Result<(), Error> {
    io::remove_if_exists(&dir.join(record.name()))?;
    io::sync_dir(dir)
}

/// Names of records, and their ranges.
type Ranges = Vec<(String, (Token, Token))>;

fn ranges(dir: &Path) -> Result<Ranges, Error> {
    let names = io::list_names(dir)?.into_iter();
    Ok(names
        .filter_map(|name| range_of(&name).map(|range| (name, range)))
        .collect())
}

/// Sets the mark of a sealed sstable, milliseconds, 0 for none. Nothing else of it changes, and it can be opened after
/// a crash at any moment, with the old mark or the new one. Its files must not be linked in the meantime. Open readers
/// read on. Blocks.
///
/// # Errors
/// When a file is damaged or the disk refuses.
pub fn mark_repaired(descriptor: &Descriptor, repaired_at: i64) -> Result<(), Error> {
    let path = descriptor.path(Component::Statistics);
    let before = io::read_all(&path)?;
    let Some(after) = patched(&path, &before, repaired_at)? else {
        return Ok(());
    };
    let checksums_path = descriptor.path(Component::Checksums);
    let own = if io::exists(&checksums_path) {
        let bytes = io::read_all(&checksums_path)?;
        let own = Checksums::decode(&bytes).map_err(|d| d.in_file(&checksums_path, 0))?;
        own.check(Component::Statistics, &path, &before)?;
        Some(own)
    } else {
        None
    };
    let entry = |bytes: &[u8]| (Component::Statistics, bytes.len() as u64, crc32fast::hash(bytes));
    let with = |entries: &[(Component, u64, u32)]| {
        let own = own.as_ref()?;
        let (mut components, mut entries) = (Vec::new(), entries.iter());
        for known in &own.components {
            match known.0 {
                // What a crash has left of an earlier mark goes with the first.
                Component::Statistics => components.extend(entries.by_ref().copied()),
                _ => components.push(*known),
            }
        }
        let own = Checksums {
            index_len: own.index_len,
            index: own.index.clone(),
            components,
            large: own.large.clone(),
        };
        Some(own.encode())
    };
    if let Some(both) = with(&[entry(&before), entry(&after)]) {
        replace(&checksums_path, &both)?;
    }
    replace(&path, &after)?;
    if let Some(only) = with(&[entry(&after)]) {
        replace(&checksums_path, &only)?;
    }
    Ok(())
}

/// Takes the mark from an sstable whose files are linked and that has no TOC yet; its originals keep theirs.
pub(crate) fn mark_unrepaired(descriptor: &Descriptor) -> Result<(), Error> {
    mark_repaired(descriptor, 0)
}

/// Statistics with another mark; None where they have it.
fn patched(path: &Path, bytes: &[u8], repaired_at: i64) -> Result<Option<Vec<u8>>, Error> {
    let at = Statistics::repaired_at_offset(bytes).map_err(|d| d.in_file(path, 0))?;
    let mark = repaired_at.to_be_bytes();
    if bytes[at..at + mark.len()] == mark {
        return Ok(None);
    }
    let mut patched = bytes.to_vec();
    patched[at..at + mark.len()].copy_from_slice(&mark);
    Ok(Some(patched))
}

/// Replaces a file in one durable step.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut name = path.as_os_str().to_owned();
    name.push(".mark");
    let temporary = PathBuf::from(name);
    io::write_all(temporary.clone(), bytes)?;
    io::rename(&temporary, path)?;
    io::sync_dir(path.parent().unwrap_or(Path::new(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_and_a_changed_one_is_none() {
        let record = RepairRecord {
            after: Token(i64::MIN),
            to: Token(-7),
            session: 1 << 100,
            replicas: u128::MAX,
            since: 3,
            at: 1_700_000_000_000,
            hosts: FileHosts::default(),
        };
        assert_eq!(range_of(&record.name()), Some((record.after, record.to)));
        let range = (record.after, record.to);
        let text = record.encode();
        assert_eq!(RepairRecord::decode(range, &text), Some(record));
        for at in 0..text.len() {
            assert_eq!(RepairRecord::decode(range, &text[..at]), None, "{:?}", &text[..at]);
            let mut changed = text.clone().into_bytes();
            changed[at] ^= 1;
            if let Ok(changed) = std::str::from_utf8(&changed) {
                assert_eq!(RepairRecord::decode(range, changed), None, "{changed:?}");
            }
        }
        let mut hosts = FileHosts::default();
        assert!((1..=8).all(|host| hosts.add(Uuid::from_u128(host)) && hosts.add(Uuid::from_u128(1))));
        assert!(!hosts.add(Uuid::from_u128(9)) && !hosts.has(Uuid::from_u128(9)));
        let with_hosts = RepairRecord { hosts, ..record };
        assert_eq!(RepairRecord::decode(range, &with_hosts.encode()), Some(with_hosts));
        for name in [
            "repaired-.txt",
            "repaired-1.txt",
            "repaired--.txt",
            "repaired-1-x.txt",
            "repaired-1-2.tmp",
        ] {
            assert_eq!(range_of(name), None, "{name}");
        }
    }
}
