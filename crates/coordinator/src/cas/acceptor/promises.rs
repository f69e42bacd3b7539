//! Promises that an acceptor keeps in memory alone.
//!
//! A promise outlasts a crash because of a *mark*, a moment that a file of the node has: every promise that is in
//! memory alone is of a ballot before the mark. A node that starts refuses all ballots before the mark that it finds,
//! as if it had promised a later one. So it keeps every promise that it made, whether or not it remembers which ones
//! they were.
//!
//! The mark is a little ahead of the wall clock, if the node trusts that, and of the ballots that come, and is moved on
//! while conditional statements come, so it costs two writes of a small file a second, and a promise costs neither a
//! row nor a sync. A ballot that is not before the mark is promised in the partition's row: the first ones after a
//! pause, and those of coordinators whose clock is ahead.
//!
//! Within a run there is a *floor*: the latest of the promises that are in memory no more, because their partition left
//! memory or the shard. A state that is read from its row promises the floor at least.
//!
//! Invariants
//! - The file has the mark before any promise relies on it.
//! - The mark and the floor never go back.
//! - A shard that gets a tablet reads its states after the shard that had it has raised the floor.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use paxos::Ballot;
use runtime::fs;
use stdx::planted::{self, Bug};

use crate::spawn;

const FILE: &str = "promises";
const FORMAT: &str = "format 1";
/// How far the mark is set ahead of the wall clock. A node that starts at once may have to wait so long.
const LEAD: Duration = Duration::from_secs(1);

/// What the acceptors of a node, on all its shards, keep of promises that no row has.
pub struct Promises {
    /// None: there is no file, and each promise is written to its row.
    path: Option<PathBuf>,
    /// Microseconds since the epoch. A ballot before it may be promised in memory alone.
    mark_us: AtomicI64,
    /// Ballots up to this timestamp may have been promised.
    floor_us: AtomicI64,
    is_moving: AtomicBool,
}

impl Promises {
    /// Those of a node without a file: each promise is written to its row.
    #[must_use]
    pub fn in_rows() -> Arc<Self> {
        Self::new(None, i64::MIN)
    }

    /// Those of the node of this directory. What it promised in earlier runs is kept from here on.
    ///
    /// # Errors
    /// When the file cannot be read: the sentence says what to do.
    pub fn open(workdir: &Path) -> Result<Arc<Self>, String> {
        let path = workdir.join(FILE);
        let mark_us = match fs::read_surely(&path) {
            Ok(bytes) => decode(&bytes).ok_or_else(|| {
                format!(
                    "{}: expected '{FORMAT}', and behind it a time and its check. It says which ballots of conditional statements this \
                     node may have promised. If the clock of this machine was not set back since the node ran last, remove the file",
                    path.display()
                )
            })?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => i64::MIN,
            Err(e) => return Err(format!("{}: {e}", path.display())),
        };
        Ok(Self::new(Some(path), mark_us))
    }

    fn new(path: Option<PathBuf>, floor_us: i64) -> Arc<Self> {
        Arc::new(Self {
            path,
            mark_us: AtomicI64::new(i64::MIN),
            floor_us: AtomicI64::new(floor_us),
            is_moving: AtomicBool::new(false),
        })
    }

    /// Waits until the wall clock is past all ballots that earlier runs may have promised, so that no leader with a
    /// right clock is refused because of them. A clock that was set back is not waited for.
    pub async fn wait_for_clock(&self) {
        let ahead_us = self
            .floor_us
            .load(Ordering::Relaxed)
            .saturating_sub(runtime::wall_clock_us());
        if let Ok(ahead_us) = u64::try_from(ahead_us) {
            runtime::sleep(Duration::from_micros(ahead_us).min(LEAD)).await;
        }
    }

    /// Whether a ballot may be promised in memory alone.
    pub(crate) fn cover(&self, ballot: Ballot) -> bool {
        ballot.timestamp_us < self.mark_us.load(Ordering::Acquire)
    }

    /// The least that any acceptor of the node has promised.
    pub(crate) fn floor(&self) -> Ballot {
        if planted::is_planted(Bug::ForgottenPromise) {
            return Ballot::NONE;
        }
        match self.floor_us.load(Ordering::Acquire) {
            i64::MIN => Ballot::NONE,
            // The last ballot of this timestamp: no other one is admitted after it.
            timestamp_us => Ballot {
                timestamp_us,
                node: u16::MAX,
                shard: u16::MAX,
                unique: u32::MAX,
            },
        }
    }

    /// A promise leaves memory, and no row has it.
    pub(crate) fn raise_floor(&self, promised: Ballot) {
        self.floor_us.fetch_max(promised.timestamp_us, Ordering::AcqRel);
    }

    /// Moves the mark on if ballots like this one will soon not be before it.
    pub(crate) fn follow(self: &Arc<Self>, ballot: Ballot) {
        let lead_us = i64::try_from(LEAD.as_micros()).expect("it is short");
        let mark_us = self.mark_us.load(Ordering::Relaxed);
        let is_ahead = |at_us: i64| at_us.saturating_add(lead_us / 2) < mark_us;
        let Some(path) = self.path.as_ref().filter(|_| !is_ahead(ballot.timestamp_us)) else {
            return;
        };
        // Were it ahead of all right clocks after a start, leaders would have to take ballots from there, which are
        // write timestamps: so both clocks are asked.
        let now_us = runtime::wall_clock_us().min(ballot.timestamp_us);
        if is_ahead(now_us) || !runtime::is_clock_trusted() || self.is_moving.swap(true, Ordering::AcqRel) {
            return;
        }
        let (promises, path) = (Arc::clone(self), path.clone());
        let next_us = now_us
            .saturating_add(lead_us)
            .max(mark_us)
            .max(self.floor_us.load(Ordering::Relaxed));
        spawn(async move {
            let written = runtime::offload(move || fs::replace_durably(&path, encode(next_us).as_bytes())).await;
            match written {
                Ok(()) => drop(promises.mark_us.fetch_max(next_us, Ordering::AcqRel)),
                Err(e) => {
                    log::warn!(
                        "promises of conditional statements are written one by one, because the file '{FILE}' cannot be: {e}"
                    );
                    runtime::sleep(LEAD).await;
                }
            }
            promises.is_moving.store(false, Ordering::Release);
        });
    }
}

pub(crate) fn encode(mark_us: i64) -> String {
    format!("{FORMAT}\nbefore {mark_us}\ncheck {}\n", !mark_us)
}

pub(crate) fn decode(bytes: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let numbers = text
        .strip_prefix(FORMAT)?
        .strip_prefix("\nbefore ")?
        .strip_suffix('\n')?;
    let (mark, check) = numbers.split_once("\ncheck ")?;
    let mark_us: i64 = mark.parse().ok()?;
    (check.parse() == Ok(!mark_us)).then_some(mark_us)
}
