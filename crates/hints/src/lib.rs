//! Hints: writes that a replica missed, kept for it in files of the coordinator's shard until it is back.
//!
//! Model. A hint is one packed mutation for one target node. [`Hints::note`] appends it to the target's buffer; at the end of the
//! shard's turn the buffer goes to the kernel with one write, at the end of the target's newest segment file. [`Hints::replay`]
//! hands a target's hints over in their order, file by file, notes in the file how far it came, and removes files that are done.
//!
//! Invariants
//! - What [`Hints::write`] returned success for survives that the process is killed. No hint is ever the only copy of a write: a
//!   power loss, a full disk, or more than `bytes_max` lose hints, which repair makes good.
//! - A hint that is older than the grace period of its table, as it was when it was noted or as it is now, is dropped: the
//!   tombstones that would hide it may be forgotten.
//! - What was noted before a truncation is not handed over after it: once [`Hints::truncate`] returned, nothing of the table that
//!   was noted before is on its way.
//! - A segment takes hints of one process only, and is never appended to once its replay has begun. Segment numbers of a node only grow.
//!
//! Lives on its shard, and sees the files of its shard; a shard takes over those of shards that the node has no more. The bytes are
//! in `format.rs`. See docs/dev/hints.md.

mod format;
mod replay;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use runtime::Notify;
use runtime::fs::{self, File, OpenOptions};
use schema::TableId;
use stdx::planted::{self, Bug};
use topology::HostId;

use format::{SegmentId, Truncation};
pub use replay::{Deliver, Delivery, GraceOf, Interrupted};

/// Default size at which a segment is full.
pub const SEGMENT_BYTES_DEFAULT: u64 = 4 << 20;
/// Default of the most that all hints of a node take.
pub const BYTES_MAX_DEFAULT: u64 = 1 << 30;
/// Default of how fast a shard hands hints over.
pub const BYTES_PER_SECOND_DEFAULT: u64 = 8 << 20;

/// How a shard keeps hints.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory that all shards share.
    pub dir: PathBuf,
    /// The shard.
    pub shard: u32,
    /// How many shards the node has.
    pub shards: u32,
    /// Most bytes of waiting hints of this shard; what is above is dropped.
    pub bytes_max: u64,
    /// No hints are kept for a node that has been down for longer.
    pub window: Duration,
    /// Size at which a segment is full.
    pub segment_bytes: u64,
    /// How fast hints are handed over.
    pub bytes_per_second: u64,
}

/// What was counted since the start, and what waits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Metrics {
    /// Hints taken.
    pub written: u64,
    /// Hints handed over.
    pub replayed: u64,
    /// Hints not taken, or lost: no room, a target down for too long, a failed write, damage.
    pub dropped: u64,
    /// Hints that were not wanted any more: too old, or their table dropped or truncated.
    pub expired: u64,
    /// Bytes that wait.
    pub waiting_bytes: u64,
}

/// Why hints cannot be kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HintsError {
    /// The file or directory.
    pub file: PathBuf,
    /// What the system said.
    pub message: String,
}

impl HintsError {
    fn new(file: &Path, error: &io::Error) -> Self {
        Self {
            file: file.to_owned(),
            message: error.to_string(),
        }
    }
}

impl std::fmt::Display for HintsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "hints {}: {}", self.file.display(), self.message)
    }
}

impl std::error::Error for HintsError {}

/// A segment file that waits to be handed over.
#[derive(Clone, Copy, Debug)]
struct Segment {
    id: SegmentId,
    bytes: u64,
}

/// The segment that hints are appended to; the last of its target.
struct Open {
    file: File,
    end: u64,
}

/// One node's hints.
#[derive(Default)]
struct Target {
    /// Oldest first.
    segments: VecDeque<Segment>,
    open: Option<Open>,
    /// Records that the kernel does not have yet, and how many.
    buffer: Vec<u8>,
    buffered: u64,
    is_live: bool,
    /// Since when it is not live, as far as this shard saw; microseconds.
    down_since_us: Option<i64>,
    /// When the oldest hint that waits was noted.
    oldest_us: Option<i64>,
    is_replaying: bool,
    /// Whether hints of it are on their way, and how often they have arrived or failed.
    is_sending: bool,
    sent: u64,
}

/// One shard's hints. See the module.
pub struct Hints {
    options: Options,
    targets: RefCell<BTreeMap<HostId, Target>>,
    /// Hints of a table in segments of a shard below this number were truncated.
    truncations: RefCell<BTreeMap<(u32, TableId), u64>>,
    next_segment: Cell<u64>,
    metrics: Cell<Metrics>,
    /// A task will write the buffers at the end of this turn.
    write_is_due: Cell<bool>,
    /// A replay went on: sent something, or ended a segment.
    progressed: Notify,
}

impl Hints {
    /// Finds the hints of earlier runs. Blocks. All shards must have started before any of them truncates.
    ///
    /// # Errors
    /// When the directory or a file in it cannot be read.
    pub fn start(options: Options) -> Result<Rc<Self>, HintsError> {
        let dir = &options.dir;
        fs::create_dir_all(dir).map_err(|e| HintsError::new(dir, &e))?;
        let entries = fs::read_dir(dir).map_err(|e| HintsError::new(dir, &e))?;
        let mut found: Vec<Segment> = Vec::new();
        let mut next_segment = 1;
        for entry in entries {
            let Some(id) = SegmentId::parse(&entry.name) else {
                continue;
            };
            next_segment = next_segment.max(id.number + 1);
            if id.shard % options.shards == options.shard {
                let bytes = entry.len;
                found.push(Segment { id, bytes });
            }
        }
        found.sort_by_key(|segment| segment.id);
        let mut targets: BTreeMap<HostId, Target> = BTreeMap::new();
        let mut waiting_bytes = 0;
        for segment in found {
            let target = targets.entry(segment.id.target).or_default();
            if target.oldest_us.is_none() {
                target.oldest_us = begun_us(dir, &segment.id)?;
            }
            waiting_bytes += segment.bytes;
            target.segments.push_back(segment);
        }
        let (truncations, highest, is_from_others) = load_truncations(&options)?;
        if is_from_others {
            save_truncations(dir, options.shard, &truncations)?;
        }
        Ok(Rc::new(Self {
            options,
            targets: RefCell::new(targets),
            truncations: RefCell::new(truncations),
            next_segment: Cell::new(next_segment.max(highest)),
            metrics: Cell::new(Metrics {
                waiting_bytes,
                ..Metrics::default()
            }),
            write_is_due: Cell::new(false),
            progressed: Notify::new(),
        }))
    }

    /// Takes over whether a node lives. One that nobody has seen alive since the start counts as down from its first hint on.
    pub fn set_live(&self, target: HostId, is_live: bool) {
        let mut targets = self.targets.borrow_mut();
        let entry = targets.entry(target).or_default();
        entry.is_live = is_live;
        if is_live {
            entry.down_since_us = None;
        } else {
            entry.down_since_us.get_or_insert_with(runtime::wall_clock_us);
        }
    }

    /// Keeps a packed mutation for a node; false when it is dropped. It is the kernel's at the end of the shard's turn, or with the
    /// next [`Hints::write`]. `gc_grace_seconds` is its table's.
    pub fn note(self: &Rc<Self>, target: HostId, gc_grace_seconds: u32, mutation: &[u8]) -> bool {
        if planted::is_planted(Bug::DroppedHint) {
            return true;
        }
        let now_us = runtime::wall_clock_us();
        let bytes = (format::RECORD_HEADER_BYTES + mutation.len()) as u64;
        let is_full = self.metrics.get().waiting_bytes + bytes > self.options.bytes_max;
        let mut targets = self.targets.borrow_mut();
        let entry = targets.entry(target).or_default();
        // Without a grace period nothing may come late.
        if is_full || gc_grace_seconds == 0 || entry.is_down_too_long(now_us, self.options.window) {
            self.count(|m| m.dropped += 1);
            return false;
        }
        format::put_record(&mut entry.buffer, now_us, gc_grace_seconds, mutation);
        entry.buffered += 1;
        entry.oldest_us.get_or_insert(now_us);
        drop(targets);
        self.count(|m| {
            m.written += 1;
            m.waiting_bytes += bytes;
        });
        if !self.write_is_due.replace(true) {
            let hints = Rc::clone(self);
            drop(runtime::spawn(async move {
                if let Err(e) = hints.write() {
                    log::warn!("{e}; hints are lost");
                }
            }));
        }
        true
    }

    /// Hands everything noted so far to the kernel.
    ///
    /// # Errors
    /// When a file does not take it: hints that were noted since the last write are lost then.
    pub fn write(&self) -> Result<(), HintsError> {
        self.write_is_due.set(false);
        let mut result = Ok(());
        for (id, target) in self.targets.borrow_mut().iter_mut() {
            let written = self.write_target(*id, target);
            result = result.and(written);
        }
        result
    }

    fn write_target(&self, id: HostId, target: &mut Target) -> Result<(), HintsError> {
        if target.buffer.is_empty() {
            return Ok(());
        }
        let records = std::mem::take(&mut target.buffer);
        let count = std::mem::take(&mut target.buffered);
        let bytes = records.len() as u64;
        self.append(id, target, records).inspect_err(|_| {
            // Where a part of it may stand nothing is appended: to its reader it would be damage.
            target.open = None;
            self.count(|m| {
                m.dropped += count;
                m.waiting_bytes = m.waiting_bytes.saturating_sub(bytes);
            });
        })
    }

    fn append(&self, id: HostId, target: &mut Target, records: Vec<u8>) -> Result<(), HintsError> {
        if target
            .open
            .as_ref()
            .is_some_and(|open| open.end >= self.options.segment_bytes)
        {
            target.open = None;
        }
        let mut bytes = records;
        if target.open.is_none() {
            let segment = SegmentId {
                number: self.next_segment.get(),
                shard: self.options.shard,
                target: id,
            };
            self.next_segment.set(segment.number + 1);
            let path = self.path(&segment);
            let file = File::open(&path, OpenOptions::CREATE_NEW).map_err(|e| HintsError::new(&path, &e))?;
            let mut whole = format::header(&segment, runtime::wall_clock_us());
            self.count(|m| m.waiting_bytes += whole.len() as u64);
            whole.append(&mut bytes);
            bytes = whole;
            target.open = Some(Open { file, end: 0 });
            target.segments.push_back(Segment { id: segment, bytes: 0 });
        }
        let segment = target.segments.back_mut().expect("an open segment is the last");
        let open = target.open.as_mut().expect("it is open since the lines above");
        let written = open.file.write_all_at_blocking(&bytes, open.end);
        written.map_err(|e| HintsError::new(&self.options.dir.join(segment.id.file_name()), &e))?;
        open.end += bytes.len() as u64;
        segment.bytes = open.end;
        Ok(())
    }

    /// The nodes for which hints wait.
    #[must_use]
    pub fn targets(&self) -> Vec<HostId> {
        let targets = self.targets.borrow();
        let waiting = targets.iter().filter(|(_, target)| target.has_hints());
        waiting.map(|(id, _)| *id).collect()
    }

    /// Waits until everything that was noted for a node before this call was handed over or dropped; false when that has not come
    /// by then.
    pub async fn wait_until_replayed(&self, target: HostId, patience: Duration) -> bool {
        let deadline = runtime::now() + patience;
        if let Err(e) = self.write() {
            log::warn!("{e}; hints are lost");
        }
        let end = self.next_segment.get();
        if let Some(entry) = self.targets.borrow_mut().get_mut(&target) {
            // What follows goes to a segment behind the end.
            entry.open = None;
        }
        loop {
            let is_done = self.targets.borrow().get(&target).is_none_or(|entry| {
                let first = entry.segments.front();
                first.is_none_or(|segment| segment.id.number >= end)
            });
            if is_done {
                return true;
            }
            let left = deadline.saturating_duration_since(runtime::now());
            if left.is_zero() || runtime::timeout(left, self.progressed.notified()).await.is_err() {
                return false;
            }
        }
    }

    /// Forgets the hints of a table, for good, and waits until none of them is on its way.
    ///
    /// # Errors
    /// When that cannot be made durable.
    pub async fn truncate(&self, table: TableId) -> Result<(), HintsError> {
        if let Err(e) = self.write() {
            log::warn!("{e}; hints are lost");
        }
        let below = self.next_segment.get();
        let mut sending = Vec::new();
        {
            let mut targets = self.targets.borrow_mut();
            let mut truncations = self.truncations.borrow_mut();
            for (id, target) in targets.iter_mut() {
                target.open = None;
                for segment in &target.segments {
                    truncations.insert((segment.id.shard, table), below);
                }
                if target.is_sending {
                    sending.push((*id, target.sent));
                }
            }
            truncations.retain(|(shard, _), below| {
                let mut segments = targets.values().flat_map(|target| &target.segments);
                segments.any(|segment| segment.id.shard == *shard && segment.id.number < *below)
            });
        }
        self.save_truncations().await?;
        for (id, sent) in sending {
            while self
                .targets
                .borrow()
                .get(&id)
                .is_some_and(|t| t.is_sending && t.sent == sent)
            {
                self.progressed.notified().await;
            }
        }
        Ok(())
    }

    async fn save_truncations(&self) -> Result<(), HintsError> {
        let (dir, shard) = (self.options.dir.clone(), self.options.shard);
        let truncations = self.truncations.borrow().clone();
        runtime::offload(move || save_truncations(&dir, shard, &truncations)).await
    }

    /// What was counted.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.metrics.get()
    }

    fn count(&self, change: impl FnOnce(&mut Metrics)) {
        let mut metrics = self.metrics.get();
        change(&mut metrics);
        self.metrics.set(metrics);
    }

    fn path(&self, segment: &SegmentId) -> PathBuf {
        self.options.dir.join(segment.file_name())
    }
}

impl Target {
    fn has_hints(&self) -> bool {
        !self.segments.is_empty() || !self.buffer.is_empty()
    }

    /// A node that restarts the coordinator does not begin a new window: the oldest hint tells since when it was down at least.
    fn is_down_too_long(&mut self, now_us: i64, window: Duration) -> bool {
        if self.is_live {
            return false;
        }
        let since = *self.down_since_us.get_or_insert(now_us);
        let since = self.oldest_us.map_or(since, |oldest| oldest.min(since));
        u128::from(now_us.saturating_sub(since).max(0).cast_unsigned()) > window.as_micros()
    }
}

/// When a segment was begun; None when its header is not whole.
fn begun_us(dir: &Path, id: &SegmentId) -> Result<Option<i64>, HintsError> {
    let path = dir.join(id.file_name());
    let read = || {
        let mut header = [0; format::HEADER_BYTES];
        let count = File::open(&path, OpenOptions::READ)?.read_at_blocking(&mut header, 0)?;
        Ok(format::read_header(&header[..count], id))
    };
    read().map_err(|e: io::Error| HintsError::new(&path, &e))
}

type Truncations = BTreeMap<(u32, TableId), u64>;

/// Replaces the file of truncations, durably. Blocks.
fn save_truncations(dir: &Path, shard: u32, truncations: &Truncations) -> Result<(), HintsError> {
    let path = dir.join(format::truncations_name(shard));
    if truncations.is_empty() && !fs::exists(&path) {
        return Ok(());
    }
    let entries = truncations.iter().map(|((shard, table), below)| Truncation {
        shard: *shard,
        table: *table,
        below: *below,
    });
    let (next, bytes) = (path.with_extension("next"), format::put_truncations(entries));
    let options = OpenOptions {
        write: true,
        create: true,
        truncate: true,
        ..OpenOptions::default()
    };
    let replace = || {
        let file = File::open(&next, options)?;
        file.write_all_at_blocking(&bytes, 0)?;
        file.sync_all_blocking()?;
        fs::rename(&next, &path)?;
        fs::sync_dir(dir)
    };
    replace().map_err(|e| HintsError::new(&path, &e))
}

/// The truncations of this shard's files and of those it takes over, the highest number among them, and whether the file of another
/// shard holds any of them. A file that is damaged is an error: without it deleted rows would come back.
fn load_truncations(options: &Options) -> Result<(Truncations, u64, bool), HintsError> {
    let dir = &options.dir;
    let entries = fs::read_dir(dir).map_err(|e| HintsError::new(dir, &e))?;
    let mut truncations = Truncations::new();
    let (mut highest, mut is_from_others) = (1, false);
    for entry in entries {
        let shard = entry
            .name
            .strip_prefix("truncations-")
            .and_then(|s| s.parse::<u32>().ok());
        let Some(shard) = shard else { continue };
        let path = dir.join(&entry.name);
        let bytes = fs::read(&path).map_err(|e| HintsError::new(&path, &e))?;
        let read = format::read_truncations(&bytes).ok_or_else(|| HintsError {
            file: path,
            message: "damaged: expected truncated tables and their checksum. Remove it and all hints".to_owned(),
        })?;
        for truncation in read {
            highest = highest.max(truncation.below);
            if truncation.shard % options.shards == options.shard {
                is_from_others |= shard != options.shard;
                let below = truncations.entry((truncation.shard, truncation.table)).or_default();
                *below = truncation.below.max(*below);
            }
        }
    }
    Ok((truncations, highest, is_from_others))
}
