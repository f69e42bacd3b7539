//! The directories of a node that hold data of their own, and how the node notices that one of them is not the one that
//! it ran with.
//!
//! Model. Sstables, the commitlog and hints may each be on a volume of its own. A volume that is not mounted, and a
//! directory that was emptied, look like those of a new node: it would start, and lack rows that it has acknowledged.
//! So each directory has an id. A *marker* in the directory has the id, and a *note* in the workdir has the ids of all
//! three. A start needs each marker to have the noted id. A marker moves with the content of its directory, so a
//! directory may be configured to another place.
//!
//! ```text
//! marker   data-directory-id, commitlog-directory-id or hints-directory-id, in the directory
//!              format 1
//!              node HOST_ID
//!              directory UUID
//! note     directory_ids, in the workdir
//!              format 1
//!              data UUID
//!              commitlog UUID
//!              hints UUID [loss-accepted]
//! ```
//!
//! The name of a marker has hyphens, because keyspaces have directories beside it and no keyspace has such a name.
//!
//! Invariants
//! - The note is written when all markers are durable. While there is no note, the node has put nothing into these
//!   directories that a later start needs. The next start writes the markers again.
//! - Nothing in a directory is created, opened or removed before its marker was checked.
//! - `loss-accepted` stays until what follows from the loss is durable in the ledger of missed writes
//!   (`coordinator/src/tombstones.rs`).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use config::Config;
use coordinator::AcceptedLoss;
use runtime::fs;
use stdx::planted::{self, Bug};
use uuid::Uuid;

use crate::identity;

const FORMAT: &str = "format 1";
const NOTE: &str = "directory_ids";
const LOSS_ACCEPTED: &str = "loss-accepted";
/// What a new file system has in its root.
const LOST_AND_FOUND: &str = "lost+found";

/// A directory that holds data of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub enum Directory {
    /// Sstables.
    Data,
    /// The commitlog.
    Commitlog,
    /// Hints, and the ledger of missed writes.
    Hints,
}

impl Directory {
    pub(crate) const ALL: [Self; 3] = [Self::Data, Self::Commitlog, Self::Hints];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Commitlog => "commitlog",
            Self::Hints => "hints",
        }
    }

    /// Where it is.
    pub(crate) fn path(self, config: &Config) -> PathBuf {
        match self {
            Self::Data => config.data_dir.clone(),
            Self::Commitlog => config.commitlog_dir.clone(),
            Self::Hints => config.workdir.join("hints"),
        }
    }

    /// The option that says where it is.
    fn option(self) -> &'static str {
        match self {
            Self::Data => "data_file_directories",
            Self::Commitlog => "commitlog_directory",
            Self::Hints => "workdir",
        }
    }

    fn marker(self) -> String {
        format!("{}-directory-id", self.name())
    }
}

/// What the workdir notes of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Noted {
    id: Uuid,
    /// The operator has accepted that what an earlier directory had is lost, and the ledger does not have it yet.
    is_loss_accepted: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Note(BTreeMap<Directory, Noted>);

/// The content of a marker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Marker {
    node: Uuid,
    id: Uuid,
}

/// The state of a directory that the options name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DirectoryState {
    /// The directory that the node ran with.
    Same,
    /// No directory.
    Nothing,
    Empty,
    /// Files, and no marker.
    Unmarked,
    /// A marker that cannot be read.
    Damaged,
    /// A directory of another node.
    OfNode(Uuid),
    /// A directory of this node with another id.
    OtherId,
}

impl std::fmt::Display for DirectoryState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Same => f.write_str("is the one that the node ran with"),
            Self::Nothing => f.write_str("does not exist"),
            Self::Empty => f.write_str("is empty"),
            Self::Unmarked => f.write_str("has files, but no marker"),
            Self::Damaged => f.write_str("has a marker that cannot be read"),
            Self::OfNode(node) => write!(f, "is a directory of node {node}"),
            Self::OtherId => f.write_str("is a directory that this node used at another time"),
        }
    }
}

fn random_id() -> Uuid {
    let mut random = [0; 16];
    runtime::random_bytes(&mut random);
    uuid::Builder::from_random_bytes(random).into_uuid()
}

/// A whole file as text; None when there is none.
fn read(path: &Path) -> Result<Option<String>, String> {
    match fs::read_surely(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(format!("{}: {e}", path.display())),
    }
}

impl Marker {
    fn encode(self) -> String {
        format!("{FORMAT}\nnode {}\ndirectory {}\n", self.node, self.id)
    }

    fn decode(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let is_known = lines.next()? == FORMAT;
        let node = Uuid::parse_str(lines.next()?.strip_prefix("node ")?).ok()?;
        let id = Uuid::parse_str(lines.next()?.strip_prefix("directory ")?).ok()?;
        is_known.then_some(Self { node, id })
    }

    fn write(self, directory: Directory, path: &Path) -> Result<(), String> {
        let at = path.join(directory.marker());
        fs::replace_durably(&at, self.encode().as_bytes()).map_err(|e| format!("{}: {e}", at.display()))
    }
}

/// What the fuzzer begins with: a marker and a note.
pub(crate) fn samples() -> Vec<String> {
    let id = Uuid::from_u128(7);
    let noted = |is_loss_accepted| Noted { id, is_loss_accepted };
    let note = Directory::ALL.into_iter().zip([false, true].into_iter().cycle());
    let note = Note(note.map(|(directory, accepted)| (directory, noted(accepted))).collect());
    vec![Marker { node: id, id }.encode(), note.encode()]
}

/// Reads a text as a marker and as a note; what is read is written as it was.
pub(crate) fn read_sample(text: &str) {
    if let Some(marker) = Marker::decode(text) {
        assert_eq!(
            Marker::decode(&marker.encode()),
            Some(marker),
            "a marker changes when it is written"
        );
    }
    if let Some(note) = Note::decode(text) {
        assert_eq!(
            Note::decode(&note.encode()),
            Some(note),
            "a note changes when it is written"
        );
    }
}

impl Note {
    fn encode(&self) -> String {
        let mut text = format!("{FORMAT}\n");
        for (directory, noted) in &self.0 {
            let accepted = if noted.is_loss_accepted {
                format!(" {LOSS_ACCEPTED}")
            } else {
                String::new()
            };
            let _ = writeln!(text, "{} {}{accepted}", directory.name(), noted.id);
        }
        text
    }

    fn decode(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let is_known = lines.next()? == FORMAT;
        let note = Directory::ALL.into_iter().map(|directory| {
            let mut words = lines.next()?.split(' ');
            let is_it = words.next()? == directory.name();
            let id = Uuid::parse_str(words.next()?).ok()?;
            let is_loss_accepted = words.next().map(|word| word == LOSS_ACCEPTED);
            let is_whole = is_it && is_loss_accepted != Some(false) && words.next().is_none();
            is_whole.then_some((
                directory,
                Noted {
                    id,
                    is_loss_accepted: is_loss_accepted.is_some(),
                },
            ))
        });
        let note = note.collect::<Option<_>>().map(Self);
        note.filter(|_| is_known && lines.next().is_none())
    }

    fn load(workdir: &Path) -> Result<Option<Self>, String> {
        let path = workdir.join(NOTE);
        let Some(text) = read(&path)? else {
            return Ok(None);
        };
        let note = Self::decode(&text);
        note.map(Some).ok_or_else(|| {
            format!(
                "{}: expected the ids of this node's directories in format 1",
                path.display()
            )
        })
    }

    fn save(&self, workdir: &Path) -> Result<(), String> {
        let path = workdir.join(NOTE);
        fs::replace_durably(&path, self.encode().as_bytes()).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// What the operator has accepted and the ledger does not have yet.
    fn accepted(&self) -> AcceptedLoss {
        let is_lost = |directory| self.0[&directory].is_loss_accepted;
        AcceptedLoss {
            writes: is_lost(Directory::Data) || is_lost(Directory::Commitlog),
            hints: is_lost(Directory::Hints),
        }
    }
}

/// What is at the place of a directory, for a node that has noted this id.
fn look(directory: Directory, path: &Path, host_id: Uuid, noted: Option<Uuid>) -> Result<DirectoryState, String> {
    if let Some(text) = read(&path.join(directory.marker()))? {
        return Ok(match Marker::decode(&text) {
            None => DirectoryState::Damaged,
            Some(marker) if Some(marker.id) == noted => DirectoryState::Same,
            Some(marker) if marker.node != host_id => DirectoryState::OfNode(marker.node),
            Some(_) => DirectoryState::OtherId,
        });
    }
    match fs::read_dir(path) {
        Ok(entries) if entries.iter().all(|entry| entry.name == LOST_AND_FOUND) => Ok(DirectoryState::Empty),
        Ok(_) => Ok(DirectoryState::Unmarked),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(DirectoryState::Nothing),
        Err(e) => Err(format!("{}: {e}", path.display())),
    }
}

/// Makes sure that each directory is the one that the node ran with last, before anything is done there. At the first
/// start it gives them their ids. Returns what the operator has accepted to be lost since the last start. Blocks.
///
/// # Errors
/// In words for the operator. Nothing was changed in a directory that is not the node's.
pub(crate) fn check(config: &Config, host_id: Uuid) -> Result<AcceptedLoss, String> {
    let Some(note) = Note::load(&config.workdir)? else {
        return begin(config, host_id);
    };
    let mut wrong = Vec::new();
    for (directory, noted) in &note.0 {
        let path = directory.path(config);
        if planted::is_planted(Bug::UncheckedDirectory) {
            create(&path)?;
            continue;
        }
        let found = look(*directory, &path, host_id, Some(noted.id))?;
        if found != DirectoryState::Same {
            wrong.push((*directory, path, found));
        }
    }
    if wrong.is_empty() {
        Ok(note.accepted())
    } else {
        Err(refusal(config, &wrong))
    }
}

/// Gives the directories their ids.
fn begin(config: &Config, host_id: Uuid) -> Result<AcceptedLoss, String> {
    for directory in Directory::ALL {
        let path = directory.path(config);
        // What another node left there is no part of this one.
        if let DirectoryState::OfNode(node) = look(directory, &path, host_id, None)? {
            return Err(format!(
                "the {} directory {} is a directory of node {node}, and this workdir is that of node {host_id}, which starts with its directories for the first \
                 time. Give this node directories of its own: mount the right volume, or correct {}. Nothing was changed",
                directory.name(),
                path.display(),
                directory.option()
            ));
        }
    }
    let mut note = Note(BTreeMap::new());
    for directory in Directory::ALL {
        let (path, id) = (directory.path(config), random_id());
        create(&path)?;
        Marker { node: host_id, id }.write(directory, &path)?;
        let is_loss_accepted = false;
        note.0.insert(directory, Noted { id, is_loss_accepted });
    }
    note.save(&config.workdir)?;
    Ok(note.accepted())
}

fn create(path: &Path) -> Result<(), String> {
    identity::create_durably(path).map_err(|e| format!("cannot create the directory {}: {e}", path.display()))
}

fn refusal(config: &Config, wrong: &[(Directory, PathBuf, DirectoryState)]) -> String {
    let mut text = String::new();
    for (directory, path, found) in wrong {
        let _ = write!(
            text,
            "the {} directory {} ({}) {found}, and is not the one that this node ran with last. ",
            directory.name(),
            path.display(),
            directory.option()
        );
    }
    let accept: Vec<String> = wrong
        .iter()
        .map(|(directory, ..)| {
            format!(
                "ceto recover-directory --workdir {} --accept {}",
                config.workdir.display(),
                directory.name()
            )
        })
        .collect();
    let _ = write!(
        text,
        "The node would lack data that it has acknowledged, so it does not start. Mount the right volume, restore the directory that ran last, or correct the option. \
         If the directory is lost permanently and other replicas have copies, remove this node and start a new one on an empty workdir (`ceto page rejoin`). To \
         accept the loss instead: {}. Nothing was changed",
        accept.join("; ")
    );
    text
}

/// What the operator accepted follows from the ledger now. Blocks.
pub(crate) fn forget_accepted(workdir: &Path) -> Result<(), String> {
    let Some(mut note) = Note::load(workdir)? else {
        return Ok(());
    };
    for noted in note.0.values_mut() {
        noted.is_loss_accepted = false;
    }
    note.save(workdir)
}

/// `ceto recover-directory`: accepts that what a directory had is lost, on a node that does not run. Gives what is to
/// be printed. Without a confirmation it changes nothing. A crash at any step leaves a node that does not start; the
/// command is then repeated. Blocks.
///
/// # Errors
/// In words for the operator. Nothing was changed, unless it says that a file could not be written.
pub fn recover_directory(config: &Config, directory: Directory, confirmation: Option<&str>) -> Result<String, String> {
    let workdir = config.workdir.as_path();
    // Looked for first: what locks the workdir creates it.
    if !fs::exists(workdir.join("host_id")) {
        return Err(format!("{}: no node has this workdir", workdir.display()));
    }
    let _lock = identity::lock(workdir)?;
    let host_id = identity::host_id(workdir)?;
    let Some(mut note) = Note::load(workdir)? else {
        return Err(format!(
            "{}: this node has not noted the ids of its directories yet, so nothing was missed. Start it",
            workdir.display()
        ));
    };
    let path = directory.path(config);
    let noted = note.0.get_mut(&directory).expect("a note has all directories");
    let found = look(directory, &path, host_id, Some(noted.id))?;
    let place = format!("the {} directory {}", directory.name(), path.display());
    match found {
        DirectoryState::Same => {
            return Err(format!(
                "{place} is the one that this node ran with last: nothing is lost. Start the node. Nothing was changed"
            ));
        }
        DirectoryState::OfNode(node) => {
            return Err(format!(
                "{place} is a directory of node {node}, and this is node {host_id}. Mount this node's own directory, or an empty one, or give the options \
                 that the node is started with (--options-file, --data-file-directories, --commitlog-directory). Nothing was changed"
            ));
        }
        DirectoryState::Nothing
        | DirectoryState::Empty
        | DirectoryState::Unmarked
        | DirectoryState::Damaged
        | DirectoryState::OtherId => {}
    }
    let expected = format!(
        "node {host_id} continues without what its {} directory had",
        directory.name()
    );
    match confirmation {
        None => return Ok(explain(directory, &place, found, host_id, &expected)),
        Some(confirmation) if confirmation != expected => {
            return Err(format!(
                "the confirmation is not the one for this node and directory, and nothing was changed; expected \"{expected}\""
            ));
        }
        Some(_) => {}
    }
    if directory != Directory::Hints {
        // What was counted under the old names may be lost: other replicas would take what is counted under them now
        // for older.
        identity::forget_counter_sources(workdir)?;
    }
    create(&path)?;
    // Another id: if the lost directory is found, it is not taken for this one.
    *noted = Noted {
        id: random_id(),
        is_loss_accepted: true,
    };
    let id = noted.id;
    Marker { node: host_id, id }.write(directory, &path)?;
    note.save(workdir)?;
    Ok(format!(
        "{place} is the one of this node now. Start the node with its usual options, then make it whole as `ceto page rejoin` says.\n"
    ))
}

fn explain(directory: Directory, place: &str, found: DirectoryState, host_id: Uuid, sentence: &str) -> String {
    let lacks = match directory {
        Directory::Data | Directory::Commitlog => {
            "If the node starts without what the directory had, it lacks rows that it has acknowledged:\n\
             - reads at ONE miss these rows;\n\
             - reads at QUORUM miss a row, and a conditional statement ignores an earlier one, if another replica lacks it too;\n\
             - rows that only this node had are lost.\n\
             The other replicas keep all tombstones until the node is whole. Repair every table (nodetool repair on this node) before anything relies on the node, \
             then release the tombstones on it (ceto nodetool releasetombstones; `ceto page rejoin`)."
        }
        Directory::Hints => {
            "If the node starts without its hints, the writes that other nodes missed do not reach them by this node, and it no longer knows which writes they \
             missed:\n\
             - reads at ONE by these nodes miss these rows;\n\
             - reads at QUORUM miss a row that was acknowledged below QUORUM.\n\
             All replicas keep all tombstones until the cluster is whole. Repair every table (nodetool repair on each node), then release the tombstones on this node \
             (ceto nodetool releasetombstones; `ceto page rejoin`)."
        }
    };
    format!(
        "Node {host_id}: {place} {found}, and is not the one that the node ran with last.\n\n\
         If the directory is on a volume that is not mounted, or was moved, mount it or correct the options: nothing is lost then.\n\n\
         {lacks}\n\n\
         Where other replicas have copies, it is safer to remove the node and start a new one on an empty workdir.\n\n\
         Nothing was changed. To accept the loss, repeat the command with\n\n  --confirm \"{sentence}\"\n"
    )
}

#[cfg(test)]
#[path = "directories_tests.rs"]
mod tests;
