//! Automatic cleanup: when a change of the token ring's owners has ended, the node removes what it has of ranges that
//! it lost.
//!
//! A cleanup is *due* from the moment in which the ring begins to go to other owners: this node may lose ranges, or get
//! ranges and lose them again if the change is given up. It begins when the ring has been at rest for a while
//! (`auto_cleanup_delay_in_seconds`), because nodes often join one after the other, and each cleanup rewrites the
//! sstables that have something to remove. When all tables are cleaned up, the node notes for which owners ([`mark`]);
//! the note is deleted when a cleanup is due again. So a node that stops in between looks again after its start, and a
//! node that has nothing to remove does not look.
//!
//! The module above says what a cleanup removes, and why nothing is lost; docs/dev/ring-moves.md has
//! the rest.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::{Cluster, Metadata};
use query::Engine;
use runtime::{Notify, fs};
use stdx::planted::{self, Bug};
use tasks::Tasks;

use super::{Lost, after_ring_change};

/// How long it is until what failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_mins(5);
/// How often is looked whether the option says another delay.
const LOOK_PERIOD: Duration = Duration::from_secs(5);

/// What shard 0 knows of the ring.
#[derive(Default)]
struct Changes {
    /// Values of the metadata in which the ring was going to other owners.
    seen: Cell<u64>,
    changed: Notify,
}

impl Changes {
    fn local() -> Rc<Self> {
        runtime::local().unwrap_or_else(|| {
            let changes = Rc::new(Self::default());
            runtime::set_local(Rc::clone(&changes));
            changes
        })
    }

    /// Waits for a time, or until the next step of a ring change.
    async fn pause(&self, time: Duration) {
        let _ = runtime::timeout(time, self.changed.notified()).await;
    }

    fn note(&self) {
        self.seen.set(self.seen.get() + 1);
        self.changed.notify_all();
    }
}

/// Takes note of a value of the metadata. On shard 0, for each value that the node takes over.
pub fn see(metadata: &Metadata) {
    if metadata.ring.is_some() {
        Changes::local().note();
    }
}

/// Cleans up whenever it is due; never returns. Runs on shard 0 of a member. `delay`: how long the ring must have been
/// at rest, at this moment.
pub async fn run(
    engine: Rc<Engine>,
    cluster: Rc<Cluster>,
    tasks: Arc<Tasks>,
    workdir: PathBuf,
    delay: impl Fn() -> Duration,
) {
    let changes = Changes::local();
    let note = note_in(&workdir);
    let mut done = None;
    if noted(&note).await.as_deref() == Some(mark(&cluster.metadata()).as_str()) {
        done = Some(changes.seen.get());
    }
    loop {
        if done == Some(changes.seen.get()) {
            changes.changed.notified().await;
            continue;
        }
        let began = changes.seen.get();
        if let Err(why) = forget(&note).await {
            log::warn!("cannot note that a cleanup of the token ring is due: {why}");
        }
        let is_at_rest = rests(&changes, &delay).await && cluster.metadata().ring.is_none();
        if !is_at_rest && !planted::is_planted(Bug::CleansWhileRingMoves) {
            // A ring change may be in progress before this task has seen a step of it.
            changes.pause(LOOK_PERIOD).await;
            continue;
        }
        let mark = mark(&cluster.metadata());
        match after_ring_change(&engine, &tasks).await {
            Ok(Lost { is_aborted: true, .. }) => done = Some(began),
            Ok(lost) if lost.is_all && changes.seen.get() == began => {
                if lost.bytes > 0 {
                    log::info!(
                        "removed {} of ranges of the token ring that other nodes own now",
                        stdx::size::text(lost.bytes)
                    );
                }
                done = Some(began);
                if let Err(why) = remember(&note, mark).await {
                    log::warn!(
                        "cannot note that the cleanup of the token ring is done; the next start looks again: {why}"
                    );
                }
            }
            Ok(_) => changes.pause(LOOK_PERIOD).await,
            Err(why) => {
                log::warn!("what other nodes own now of the token ring is not removed yet: {why}");
                changes.pause(RETRY_PAUSE).await;
            }
        }
    }
}

/// Waits until the ring has been at rest for the delay; false if a step of a ring change came before.
async fn rests(changes: &Changes, delay: &dyn Fn() -> Duration) -> bool {
    let since = runtime::now();
    loop {
        let left = (since + delay()).saturating_duration_since(runtime::now());
        if left.is_zero() {
            return true;
        }
        if runtime::timeout(left.min(LOOK_PERIOD), changes.changed.notified())
            .await
            .is_ok()
        {
            return false;
        }
    }
}

/// Identifies the owners of all ranges, for all keyspaces that may have tables on the ring: the version of the topology
/// and the replications.
fn mark(metadata: &Metadata) -> String {
    let mut mark = format!("topology {}\n", metadata.topology.version());
    for keyspace in metadata.schema.keyspaces.values() {
        if keyspace
            .tables
            .values()
            .any(|table| !metadata.tablets.contains_key(&table.id))
        {
            mark.push_str(&format!("{:?} {:?}\n", keyspace.name, keyspace.replication));
        }
    }
    mark
}

fn note_in(workdir: &Path) -> PathBuf {
    workdir.join("ring_cleanup")
}

async fn noted(note: &Path) -> Option<String> {
    let note = note.to_owned();
    let read = runtime::offload(move || fs::read(&note).ok()).await?;
    String::from_utf8(read).ok()
}

async fn remember(note: &Path, mark: String) -> Result<(), String> {
    let note = note.to_owned();
    runtime::offload(move || {
        fs::replace_durably(&note, mark.as_bytes()).map_err(|e| format!("{}: {e}", note.display()))
    })
    .await
}

async fn forget(note: &Path) -> Result<(), String> {
    let note = note.to_owned();
    runtime::offload(move || {
        if fs::exists(&note) {
            fs::remove_file(&note).map_err(|e| format!("{}: {e}", note.display()))
        } else {
            Ok(())
        }
    })
    .await
}
