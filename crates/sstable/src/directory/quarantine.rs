//! Damaged sstables, moved aside.
//!
//! A damaged sstable is not opened, not deleted and not overwritten: its files move, under their own names, into a
//! directory of their own below the table's. That directory is the durable sign that data is missing here.
//!
//! ```text
//! damaged/me-7-big-0/quarantine.txt      what is wrong, and the tokens that are missing: durable before any file moves
//! damaged/me-7-big-0/me-7-big-Data.db    the components; TOC.txt moves last
//! damaged/me-7-big-0/accepted.txt        an operator has accepted the loss
//! ```
//!
//! Until TOC.txt has moved, the sstable counts as one of the table's whose files are missing, so a start after a crash
//! finds it damaged and moves the rest. The last number distinguishes sstables that had the same generation at
//! different times.
//!
//! `quarantine.txt` has three lines: `ceto quarantine 1`, `tokens FIRST LAST`, `reason TEXT`. One that cannot be read
//! counts as one that misses every token.

use std::path::{Path, PathBuf};

use runtime::fs;
use stdx::planted::{self, Bug};
use types::Token;

use crate::directory::component::{Component, Descriptor, parse_name};
use crate::error::Error;
use crate::io;
use crate::read::reader::Reader;

/// The directory of a table's damaged sstables, inside the table's.
const DAMAGED: &str = "damaged";
const MARKER: &str = "quarantine.txt";
const ACCEPTED: &str = "accepted.txt";
const HEAD: &str = "ceto quarantine 1";

/// An sstable that was moved aside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quarantined {
    /// Where its files are.
    pub dir: PathBuf,
    /// Its generation, if it is a number.
    pub generation: Option<u64>,
    /// The first token that it may have.
    pub first: Token,
    /// The last token that it may have.
    pub last: Token,
    /// Which file was damaged, where, and what was expected there.
    pub reason: String,
    /// Whether an operator has accepted the loss.
    pub is_accepted: bool,
}

impl Quarantined {
    /// Whether any token from the first of these up to the second may be missing.
    #[must_use]
    pub fn overlaps(&self, first: Token, last: Token) -> bool {
        self.first <= last && first <= self.last
    }

    /// The name by which an operator knows it.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.dir.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    fn read(dir: PathBuf) -> Self {
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let generation = name.split('-').nth(1).and_then(|number| number.parse().ok());
        let text = fs::read(dir.join(MARKER)).unwrap_or_default();
        let known = decode(&String::from_utf8_lossy(&text));
        let (first, last, reason) = known.unwrap_or_else(|| {
            let reason = format!("{} cannot be read", dir.join(MARKER).display());
            (Token(i64::MIN), Token(i64::MAX), reason)
        });
        Self {
            generation,
            first,
            last,
            reason,
            is_accepted: fs::exists(dir.join(ACCEPTED)),
            dir,
        }
    }
}

pub(crate) fn encode(first: Token, last: Token, reason: &str) -> String {
    let reason = reason.replace('\n', " ");
    format!("{HEAD}\ntokens {} {}\nreason {reason}\n", first.0, last.0)
}

pub(crate) fn decode(text: &str) -> Option<(Token, Token, String)> {
    let mut lines = text.lines();
    if lines.next()? != HEAD {
        return None;
    }
    let (first, last) = lines.next()?.strip_prefix("tokens ")?.split_once(' ')?;
    let reason = lines.next()?.strip_prefix("reason ")?;
    let token = |text: &str| text.parse().ok().map(Token);
    Some((token(first)?, token(last)?, reason.to_owned()))
}

/// The sstables of a table's directory that were moved aside, by name. Blocks.
///
/// # Errors
/// When a directory cannot be read.
pub fn quarantined(table_dir: &Path) -> Result<Vec<Quarantined>, Error> {
    let damaged = table_dir.join(DAMAGED);
    if !fs::exists(&damaged) {
        return Ok(Vec::new());
    }
    let names = io::list_names(&damaged)?;
    Ok(names.iter().map(|name| Quarantined::read(damaged.join(name))).collect())
}

/// Moves a damaged sstable aside. `error` says what is wrong with it. Blocks.
///
/// # Errors
/// When the disk refuses: what has moved is durable or not, and the next start moves the rest.
pub fn quarantine(descriptor: &Descriptor, error: &Error) -> Result<Quarantined, Error> {
    let damaged = descriptor.dir.join(DAMAGED);
    let (first, last) = Reader::certain_tokens(descriptor).unwrap_or((Token(i64::MIN), Token(i64::MAX)));
    // What the file had cannot be relied on any more.
    crate::directory::repaired::remove_records(&descriptor.dir, first, last)?;
    let files = files_of(descriptor)?;
    let dir = place(&damaged, descriptor, &files);
    if !fs::exists(dir.join(MARKER)) {
        fs::create_dir_all(&dir).map_err(Error::io(&dir))?;
        let temporary = dir.join("quarantine.tmp");
        io::write_all(temporary.clone(), encode(first, last, &error.to_string()).as_bytes())?;
        io::rename(&temporary, &dir.join(MARKER))?;
        for dir in [&dir, &damaged, &descriptor.dir] {
            io::sync_dir(dir)?;
        }
    }
    let (seal, others): (Vec<&String>, Vec<&String>) =
        files.iter().partition(|name| name.ends_with(Component::Toc.suffix()));
    for names in [others, seal] {
        for name in names {
            io::rename(&descriptor.dir.join(name), &dir.join(name))?;
        }
        io::sync_dir(&dir)?;
        io::sync_dir(&descriptor.dir)?;
    }
    if planted::is_planted(Bug::DamagedFileIgnored) {
        io::write_all(dir.join(ACCEPTED), b"")?;
    }
    Ok(Quarantined::read(dir))
}

/// The names of an sstable's files.
fn files_of(descriptor: &Descriptor) -> Result<Vec<String>, Error> {
    let mut names = io::list_names(&descriptor.dir)?;
    names.retain(|name| {
        parse_name(name).is_some_and(|(version, generation, _)| {
            version == descriptor.version && generation == descriptor.generation
        })
    });
    Ok(names)
}

/// The first directory that has none of these files: a new one, or one that a crash left half filled.
fn place(damaged: &Path, descriptor: &Descriptor, files: &[String]) -> PathBuf {
    let toc = descriptor.path(Component::Toc);
    let toc = toc.file_name().unwrap_or_default();
    let mut dirs = (0u64..).map(|n| {
        let (version, generation) = (descriptor.version.name(), &descriptor.generation);
        damaged.join(format!("{version}-{generation}-big-{n}"))
    });
    let is_free = |dir: &PathBuf| !fs::exists(dir.join(toc)) && files.iter().all(|name| !fs::exists(dir.join(name)));
    dirs.find(is_free).expect("the numbers do not end")
}

/// Reads something of an sstable, and once more where it is damaged: a controller, a cable or memory may have changed
/// what was read, and not the file.
///
/// # Errors
/// What was wrong the second time.
pub fn read_twice<T>(read: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    let error = match read() {
        Err(error) if error.is_damage() => error,
        other => return other,
    };
    let again = read();
    if again.is_ok() {
        log::warn!(
            "{error}, but not when it was read again: the damage is not in the file. Check memory, controller and cables"
        );
    }
    again
}

/// Makes it durable that an operator has accepted the loss. Its files stay. Blocks.
///
/// # Errors
/// When the disk refuses.
pub fn accept(quarantined: &Quarantined) -> Result<(), Error> {
    io::write_all(quarantined.dir.join(ACCEPTED), b"")?;
    io::sync_dir(&quarantined.dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_read_back_and_a_damaged_one_is_none() {
        let text = encode(Token(-5), Token(i64::MAX), "a\nb");
        assert_eq!(decode(&text), Some((Token(-5), Token(i64::MAX), "a b".to_owned())));
        for len in 0..text.len() - "a b\n".len() {
            assert_eq!(decode(&text[..len]), None, "{:?}", &text[..len]);
        }
        assert_eq!(decode(&text.replace("quarantine 1", "quarantine 2")), None);
    }
}
