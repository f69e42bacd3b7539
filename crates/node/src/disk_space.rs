//! Whether the node's disks have room: the monitor that looks, and what it reports.
//!
//! Lives on shard 0, sees the node. It reads the utilisation of the file systems of the data and the commitlog
//! directory, four times a second while one of them is near a threshold ([`DiskLimits::look_after`]), and rarely
//! otherwise. The fuller one counts. The cluster gets the level (`Cluster::set_disk_level`) and reports it to every
//! node, this one too; what follows from it is decided there (`coordinator/src/context/disks.rs`). The first look comes
//! before clients are let in.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use config::Config;
use replica::Shard;
use runtime::fs::DiskSpace;
use runtime::{ShardId, SharedNotify};
use topology::{DiskLevel, DiskLimits, RECOVERY, Utilization};

use crate::directories::Directory;
use crate::start::Shared;

/// Directories whose file systems count. Hints have a limit of their own.
const WATCHED: [Directory; 2] = [Directory::Data, Directory::Commitlog];

/// Thresholds as the options say, which change while the node runs.
#[derive(Debug)]
pub(crate) struct DiskMonitor {
    limits: Mutex<DiskLimits>,
    changed: SharedNotify,
}

impl DiskMonitor {
    pub(crate) fn new(limits: DiskLimits) -> Self {
        Self {
            limits: Mutex::new(limits),
            changed: SharedNotify::new(),
        }
    }

    /// Takes other thresholds over.
    pub(crate) fn set_limits(&self, limits: DiskLimits) {
        *self.limits.lock().expect("no thread panics while holding the limits") = limits;
        self.changed.notify_all();
    }

    fn limits(&self) -> DiskLimits {
        *self.limits.lock().expect("no thread panics while holding the limits")
    }
}

/// A directory and the room in its file system.
struct Seen {
    directory: Directory,
    path: PathBuf,
    space: DiskSpace,
}

impl Seen {
    fn utilization(&self) -> Utilization {
        utilization(self.space)
    }
}

/// How full a file system is for this node.
pub(crate) fn utilization(space: DiskSpace) -> Utilization {
    Utilization::of(space.used, space.available)
}

/// The watched directories, and whether the file systems of all of them say how full they are.
fn look_at_all(config: &Config) -> (Vec<Seen>, bool) {
    let seen = WATCHED.into_iter().filter_map(|directory| {
        let path = directory.path(config);
        match runtime::fs::disk_space(&path) {
            Ok(space) => Some(Seen { directory, path, space }),
            Err(error) => {
                log::debug!("cannot determine how full the disk of {} is: {error}", path.display());
                None
            }
        }
    });
    let seen: Vec<Seen> = seen.collect();
    let is_all = seen.len() == WATCHED.len();
    (seen, is_all)
}

/// What the monitor has found so far.
struct Watch {
    shared: Arc<Shared>,
    tell: Box<dyn Fn(DiskLevel)>,
    limits: DiskLimits,
    level: DiskLevel,
    /// The level that was logged last.
    told: DiskLevel,
}

impl Watch {
    /// Looks once, and reports what has changed.
    fn look(&mut self) -> std::time::Duration {
        let limits = self.shared.disk_monitor.limits();
        if limits != self.limits {
            // The recovery is of the former thresholds.
            (self.limits, self.level) = (limits, DiskLevel::Normal);
        }
        let (all, is_all) = look_at_all(&self.shared.config);
        let waits = all
            .iter()
            .map(|seen| limits.look_after(seen.utilization(), seen.space.available));
        let Some(wait) = waits.min() else {
            return limits.look_after(Utilization::WHOLE, 0);
        };
        let Some(seen) = all.iter().max_by_key(|seen| seen.utilization()) else {
            return wait;
        };
        let level = limits.judge(self.level, seen.utilization());
        // One that does not answer may be the full one.
        let level = if is_all { level } else { level.max(self.level) };
        if level != self.told {
            say(seen, level, &limits);
        }
        (self.level, self.told) = (level, level);
        (self.tell)(level);
        wait
    }
}

fn say(seen: &Seen, level: DiskLevel, limits: &DiskLimits) {
    let what = format!(
        "the file system of the {} directory {} is {} full",
        seen.directory.name(),
        seen.path.display(),
        seen.utilization()
    );
    let below = |threshold: Option<Utilization>| {
        let threshold = threshold.unwrap_or(Utilization::WHOLE).0;
        Utilization(threshold.saturating_sub(RECOVERY.0))
    };
    match level {
        DiskLevel::Critical => log::error!(
            "{what}: this node refuses writes that add data until it is {} full or less. It serves reads, takes deletes, and gives tablets away",
            below(limits.critical)
        ),
        DiskLevel::Warning => log::warn!(
            "{what}: clients that write are warned until it is {} full or less",
            below(limits.warn)
        ),
        DiskLevel::Normal => log::info!("{what}: this node takes all writes"),
    }
}

/// Looks for the first time, then begins to watch until the node ends. `tell` hears the level after each look.
pub(crate) fn watch(shared: &Arc<Shared>, tell: Box<dyn Fn(DiskLevel)>) {
    let mut watch = Watch {
        shared: Arc::clone(shared),
        tell,
        limits: shared.disk_monitor.limits(),
        level: DiskLevel::Normal,
        told: DiskLevel::Normal,
    };
    let mut wait = watch.look();
    drop(runtime::spawn(async move {
        loop {
            let seen = watch.shared.disk_monitor.changed.changes();
            let shared = Arc::clone(&watch.shared);
            let _ = runtime::timeout(wait, shared.disk_monitor.changed.changed_since(seen)).await;
            wait = watch.look();
            for shard in 0..runtime::shard_count() {
                drop(runtime::submit_to(ShardId(shard), || {
                    if let Some(shard) = runtime::local::<Shard>() {
                        shard.retry_compactions();
                    }
                }));
            }
        }
    }));
}
