//! The workdir: it is used by one node at a time, and keeps the node's identity.

use std::path::Path;

use runtime::fs::{self, File, OpenOptions};
use uuid::Uuid;

/// How the files begin that keep the names under which shards add to counters.
const COUNTER_SOURCE: &str = "counter_source_";

/// Holds the workdir for this process.
pub(crate) struct WorkdirLock(#[expect(dead_code, reason = "the open file is the lock")] File);

/// Creates the workdir and locks it. Err says what is wrong in words for the user.
pub(crate) fn lock(workdir: &Path) -> Result<WorkdirLock, String> {
    create_durably(workdir).map_err(|e| format!("cannot create the directory {}: {e}", workdir.display()))?;
    let path = workdir.join("lock");
    let open = OpenOptions {
        read: true,
        write: true,
        create: true,
        ..OpenOptions::default()
    };
    let file = File::open(&path, open).map_err(|e| format!("cannot use the workdir {}: {e}", workdir.display()))?;
    match file.try_lock_exclusive() {
        Ok(true) => Ok(WorkdirLock(file)),
        Ok(false) => Err(format!("another node is running on the workdir {}", workdir.display())),
        Err(e) => Err(format!("cannot lock {}: {e}", path.display())),
    }
}

/// Creates a directory and makes its entry, and those above it, survive a power loss.
pub(crate) fn create_durably(dir: &Path) -> std::io::Result<()> {
    fs::create_dir_all(dir)?;
    for above in dir.ancestors().skip(1).filter(|d| !d.as_os_str().is_empty()) {
        // Directories that were there before may be closed to us; ours are not.
        if fs::sync_dir(above).is_err() {
            break;
        }
    }
    Ok(())
}

/// The node's host id: made at its first start, kept in the workdir.
pub(crate) fn host_id(workdir: &Path) -> Result<Uuid, String> {
    let path = workdir.join("host_id");
    let at = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    if fs::exists(&path) {
        let text = fs::read_surely(&path).map_err(|e| at(&e))?;
        let text = String::from_utf8_lossy(&text);
        return Uuid::parse_str(text.trim()).map_err(|_| at(&"expected a UUID"));
    }
    let mut random = [0; 16];
    runtime::random_bytes(&mut random);
    let id = uuid::Builder::from_random_bytes(random).into_uuid();
    fs::replace_durably(&path, format!("{id}\n").as_bytes()).map_err(|e| at(&e))?;
    Ok(id)
}

/// Notes whether the node reaches others by TLS, for commands that are run while it is down: without TLS they would
/// reach no node.
pub(crate) fn note_encryption(workdir: &Path, is_encrypted: bool) -> Result<(), String> {
    let path = encryption_note(workdir);
    let noted = match (is_encrypted, fs::exists(&path)) {
        (true, false) => fs::replace_durably(&path, b"other nodes are reached by TLS\n"),
        (false, true) => fs::remove_file(&path),
        _ => Ok(()),
    };
    noted.map_err(|e| format!("{}: {e}", path.display()))
}

/// Whether the node reached others by TLS when it ran last.
pub(crate) fn was_encrypted(workdir: &Path) -> bool {
    fs::exists(encryption_note(workdir))
}

/// Notes that the node is a member of a cluster, so that it is not taken for a new one when its metadata is lost.
pub(crate) fn note_member(workdir: &Path, cluster_name: &str) -> Result<(), String> {
    let path = member_note(workdir);
    let text = format!("{cluster_name}\n");
    if fs::read(&path).is_ok_and(|noted| noted == text.as_bytes()) {
        return Ok(());
    }
    fs::replace_durably(&path, text.as_bytes()).map_err(|e| format!("{}: {e}", path.display()))
}

/// The cluster that the node is a member of, if it ever was in one.
pub(crate) fn noted_cluster(workdir: &Path) -> Option<String> {
    let text = fs::read(member_note(workdir)).ok()?;
    Some(String::from_utf8_lossy(&text).trim().to_owned())
}

/// Notes that the node has left its cluster permanently.
pub(crate) fn note_left(workdir: &Path) -> Result<(), String> {
    let path = left_note(workdir);
    let noted = fs::replace_durably(&path, b"the node has left its cluster\n");
    noted.map_err(|e| format!("{}: {e}", path.display()))
}

/// Whether it is noted that the node has left its cluster.
pub(crate) fn is_noted_as_left(workdir: &Path) -> bool {
    fs::exists(left_note(workdir))
}

fn left_note(workdir: &Path) -> std::path::PathBuf {
    workdir.join("left")
}

fn member_note(workdir: &Path) -> std::path::PathBuf {
    workdir.join("cluster")
}

fn encryption_note(workdir: &Path) -> std::path::PathBuf {
    workdir.join("internode_tls")
}

/// Under which name a shard adds to counters: that of its last run, when it ended in order, else a new one. What was
/// kept is used up by this, permanently.
pub(crate) fn take_counter_source(workdir: &Path, shard: u32) -> Result<[u8; 16], String> {
    let path = counter_source_path(workdir, shard);
    let at = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    if !fs::exists(&path) {
        return Ok(replica::new_counter_source());
    }
    let text = fs::read_surely(&path).map_err(|e| at(&e))?;
    let source = Uuid::parse_str(String::from_utf8_lossy(&text).trim()).map_err(|_| at(&"expected a UUID"))?;
    fs::remove_file(&path).map_err(|e| at(&e))?;
    fs::sync_dir(workdir).map_err(|e| at(&e))?;
    Ok(*source.as_bytes())
}

/// Keeps the name under which a shard added to counters, now that all it has written is durable.
pub(crate) fn keep_counter_source(workdir: &Path, shard: u32, source: [u8; 16]) -> Result<(), String> {
    let path = counter_source_path(workdir, shard);
    let text = format!("{}\n", Uuid::from_bytes(source));
    fs::replace_durably(&path, text.as_bytes()).map_err(|e| format!("{}: {e}", path.display()))
}

/// Has all shards add to counters under new names from the next start on.
pub(crate) fn forget_counter_sources(workdir: &Path) -> Result<(), String> {
    let at = |e: std::io::Error| format!("{}: {e}", workdir.display());
    for entry in fs::read_dir(workdir).map_err(at)? {
        if entry.name.starts_with(COUNTER_SOURCE) {
            fs::remove_file(workdir.join(&entry.name)).map_err(at)?;
        }
    }
    fs::sync_dir(workdir).map_err(at)
}

fn counter_source_path(workdir: &Path, shard: u32) -> std::path::PathBuf {
    workdir.join(format!("{COUNTER_SOURCE}{shard}"))
}
