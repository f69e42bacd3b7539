//! Hints: writes that a replica missed, kept for it in files of the coordinator's shard until it is back.
//!
//! Model. A hint is one packed mutation for one target node. [`Hints::note`] appends it to the target's buffer; at the
//! end of the shard's turn the buffer goes to the kernel with one write, at the end of the target's newest segment
//! file. [`Hints::replay`] hands a target's hints over in their order, file by file, notes its progress in the file,
//! and removes files that are done.
//!
//! Invariants
//! - What [`Hints::write`] returned success for survives that the process is killed, and what [`Hints::sync`] did, a
//!   power loss. No hint is ever the only copy of a write: a power loss, a full disk, or more than `bytes_max` lose
//!   hints.
//! - A hint that is lost, expires, or is never made although its table has a grace period, leaves a span of what its
//!   target has missed.
//! - A hint that its target permanently refuses does not hold up those after it.
//! - A hint that is older than the grace period of its table, as it was when it was noted or as it is now, is dropped:
//!   the tombstones that would hide it may be forgotten.
//! - What was noted before a truncation is not handed over after it: once [`Hints::truncate`] returned, nothing of the
//!   table that was noted before is on its way.
//! - A segment takes hints of one process only, and is never appended to once its replay has begun. Segment numbers of
//!   a node only grow.
//!
//! Lives on its shard, and sees the files of its shard; a shard takes over those of shards that the node no longer has.
//! The bytes are in `format.rs`, the choice of nodes for which hints are kept in `allowed.rs`, what is forgotten in
//! `truncation.rs`, what is permanently refused in `rejected.rs`, what is lost in `missed.rs` and `ledger.rs`, and
//! waiting for a replay in `sync_point.rs`. See docs/dev/hints.md.

mod allowed;
mod format;
#[doc(hidden)]
pub mod fuzz;
mod ledger;
mod missed;
mod rejected;
mod replay;
mod sync_point;
mod truncation;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use runtime::Notify;
use runtime::fs::{self, File, OpenOptions};
use schema::TableId;
use stdx::planted::{self, Bug};
use topology::HostId;

pub use allowed::{Allowed, Change};
use format::SegmentId;
pub use ledger::{Ledger, Report};
use missed::end_of_span;
pub use missed::{CLOCK_MARGIN_SECONDS, Missed, SPANS_MAX, Spans};
pub use rejected::{REJECTED_BYTES_MAX, Rejected};
pub use replay::{Deliver, Delivery, Interrupted, NotTaken, Terms, TermsOf};
pub use sync_point::{Mark, SyncPoint, SyncPointError};

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
    /// No hints are kept for a node that has been down for longer; at first, see [`Order`].
    pub window: Duration,
    /// The nodes for which hints are kept; at first, see [`Order`].
    pub allowed: Allowed,
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
    /// Hints not taken, or lost: no room, a target down for too long, a failed write, damage. Writes to a table without
    /// a grace period are none of them: it has no hints.
    pub dropped: u64,
    /// Hints that became too old before their target could take them. Those of dropped and truncated tables are none of
    /// them: no replica lacks these writes.
    pub expired: u64,
    /// Hints that their target permanently refused.
    pub rejected: u64,
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

/// What an operator requests of a shard while it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// Keep hints for others than before.
    Allow(Change),
    /// Keep no hints for a node that has been down for longer.
    Window(Duration),
    /// True: stop handing over after what is on its way. False: resume.
    Pause(bool),
}

/// A write that a node missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MissedWrite<'m> {
    /// Packed.
    pub mutation: &'m [u8],
    /// Of its table.
    pub gc_grace_seconds: u32,
    /// When it was made, in microseconds: now, or when the logged batch that it belongs to was noted.
    pub made_us: i64,
    /// Names the set of nodes that the write was sent to. A node that is not among them, and is a replica when the hint
    /// is handed over, needs the hint too. Opaque here.
    pub placement: u64,
    /// The second of the last deletion that it carries: later than this node's clock, if the coordinator that made the
    /// deletion has a clock that is ahead. 0 if it carries none.
    pub last_deletion: u32,
}

/// A hint as it is handed over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hint {
    /// Packed.
    pub mutation: Vec<u8>,
    /// As it was noted ([`MissedWrite::placement`]); None if it is unknown.
    pub placement: Option<u64>,
    /// As it was noted ([`MissedWrite::made_us`]).
    pub made_us: i64,
    /// As it was noted ([`MissedWrite::gc_grace_seconds`]).
    pub gc_grace_seconds: u32,
}

/// What waits for a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pending {
    /// The node.
    pub target: HostId,
    /// Files.
    pub segments: u64,
    /// Bytes, those that are not in a file yet included.
    pub bytes: u64,
    /// When the oldest file, and the newest, was begun; microseconds.
    pub begun_us: Option<(i64, i64)>,
}

/// A segment file that waits to be handed over.
#[derive(Clone, Copy, Debug)]
struct Segment {
    id: SegmentId,
    bytes: u64,
    /// When it was begun; None when its header is not whole.
    begun_us: Option<i64>,
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
    /// When the oldest write among them was made; microseconds.
    buffer_since_us: i64,
    /// The second of the last deletion among them; 0 if there is none.
    buffer_last_deletion: u32,
    /// Segments that were appended to since they were synced last.
    dirty: BTreeSet<u64>,
    is_live: bool,
    /// Since when it is not live, as far as this shard saw; microseconds.
    down_since_us: Option<i64>,
    /// When the oldest write that waits was made, or its segment begun.
    oldest_us: Option<i64>,
    /// Hints in segments below this number are not needed any more.
    forgotten_below: u64,
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
    allowed: RefCell<Allowed>,
    window: Cell<Duration>,
    /// Nothing is handed over.
    is_paused: Cell<bool>,
    metrics: Cell<Metrics>,
    /// What was made before this microsecond is not handed over: the cluster counts it as missed.
    forgotten_before_us: Cell<i64>,
    /// What nodes have permanently missed since it was last taken.
    missed: RefCell<Missed>,
    rejected: RefCell<BTreeMap<HostId, Rejected>>,
    /// A task will write the buffers at the end of this turn.
    write_is_due: Cell<bool>,
    /// Notified when a replay has sent something or ended a segment.
    progressed: Notify,
}

impl Hints {
    /// Finds the hints of earlier runs. Blocks. All shards must have started before any of them truncates.
    ///
    /// # Errors
    /// When the directory or a file in it cannot be read.
    pub fn start(options: Options) -> Result<Rc<Self>, HintsError> {
        let dir = &options.dir;
        make_dir(dir).map_err(|e| HintsError::new(dir, &e))?;
        let entries = fs::read_dir(dir).map_err(|e| HintsError::new(dir, &e))?;
        let mut found: Vec<Segment> = Vec::new();
        // Above those of earlier runs, also where none of these is left: sync points outlive them.
        let mut next_segment = u64::try_from(runtime::wall_clock_us()).unwrap_or(0).max(1);
        for entry in entries {
            let Some(id) = SegmentId::parse(&entry.name) else {
                continue;
            };
            next_segment = next_segment.max(id.number + 1);
            if id.shard % options.shards == options.shard {
                found.push(Segment {
                    id,
                    bytes: entry.len,
                    begun_us: begun_us(dir, &id)?,
                });
            }
        }
        found.sort_by_key(|segment| segment.id);
        let mut targets: BTreeMap<HostId, Target> = BTreeMap::new();
        let mut waiting_bytes = 0;
        for segment in found {
            let target = targets.entry(segment.id.target).or_default();
            waiting_bytes += segment.bytes;
            target.segments.push_back(segment);
            target.note_oldest();
        }
        let (truncations, highest, is_from_others) = truncation::load_truncations(&options)?;
        if is_from_others {
            truncation::save_truncations(dir, options.shard, &truncations)?;
        }
        let rejected = rejected::load(&options)?.into_iter();
        let rejected = rejected.fold(
            BTreeMap::new(),
            |mut sum: BTreeMap<HostId, Rejected>, (target, part)| {
                let whole = sum.entry(target).or_default();
                whole.count += part.count;
                whole.bytes += part.bytes;
                sum
            },
        );
        Ok(Rc::new(Self {
            allowed: RefCell::new(options.allowed.clone()),
            window: Cell::new(options.window),
            is_paused: Cell::new(false),
            forgotten_before_us: Cell::new(0),
            options,
            targets: RefCell::new(targets),
            truncations: RefCell::new(truncations),
            next_segment: Cell::new(next_segment.max(highest)),
            metrics: Cell::new(Metrics {
                waiting_bytes,
                ..Metrics::default()
            }),
            missed: RefCell::default(),
            rejected: RefCell::new(rejected),
            write_is_due: Cell::new(false),
            progressed: Notify::new(),
        }))
    }

    /// Takes over whether a node lives. A node that was never seen alive since the start counts as down from its first
    /// hint on.
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

    /// Keeps a write for a node; false when it is dropped. It is the kernel's at the end of the shard's turn, or with
    /// the next [`Hints::write`].
    pub fn note(self: &Rc<Self>, target: HostId, write: MissedWrite<'_>) -> bool {
        if planted::is_planted(Bug::DroppedHint) {
            return true;
        }
        // Without a grace period nothing may come late: such a table has no hints, and none is lost.
        if write.gc_grace_seconds == 0 {
            return false;
        }
        let now_us = runtime::wall_clock_us();
        let bytes = (format::HINT_HEADER_BYTES + write.mutation.len()) as u64;
        let is_full = self.metrics.get().waiting_bytes + bytes > self.options.bytes_max;
        let mut targets = self.targets.borrow_mut();
        let entry = targets.entry(target).or_default();
        if is_full || entry.is_down_too_long(now_us, self.window.get()) {
            drop(targets);
            self.count(|m| m.dropped += 1);
            self.miss_write(target, write);
            return false;
        }
        let made_us = write.made_us.min(now_us);
        if entry.buffer.is_empty() {
            (entry.buffer_since_us, entry.buffer_last_deletion) = (made_us, 0);
        }
        entry.buffer_since_us = entry.buffer_since_us.min(made_us);
        entry.buffer_last_deletion = entry.buffer_last_deletion.max(write.last_deletion);
        let hint = (write.placement, write.mutation);
        format::put_hint(&mut entry.buffer, made_us, write.gc_grace_seconds, hint);
        entry.buffered += 1;
        entry.oldest_us = Some(entry.oldest_us.map_or(made_us, |oldest| oldest.min(made_us)));
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

    /// Notes that a node will not get a write. A table without a grace period promises nothing about deletions.
    pub fn miss_write(&self, target: HostId, write: MissedWrite<'_>) {
        if write.gc_grace_seconds > 0 {
            self.miss(target, write.made_us, end_of_span(write.last_deletion));
        }
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
        let (since_us, last_deletion) = (target.buffer_since_us, target.buffer_last_deletion);
        self.append(id, target, records).inspect_err(|_| {
            self.miss(id, since_us, end_of_span(last_deletion));
            // Nothing is appended after what may be a part of the write: its reader would take that part for damage.
            target.open = None;
            self.count(|m| {
                m.dropped += count;
                m.waiting_bytes = m.waiting_bytes.saturating_sub(bytes);
            });
        })
    }

    fn append(&self, id: HostId, target: &mut Target, records: Vec<u8>) -> Result<(), HintsError> {
        let since_us = target.buffer_since_us;
        let is_full = |open: &Open| open.end >= self.options.segment_bytes;
        // From the header, the next run learns since when its hints wait.
        let is_younger = |segment: &Segment| segment.begun_us.is_none_or(|begun| begun > since_us);
        if target.open.as_ref().is_some_and(is_full) || target.segments.back().is_some_and(is_younger) {
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
            let begun_us = runtime::wall_clock_us().min(since_us);
            let mut whole = format::header(&segment, begun_us);
            self.count(|m| m.waiting_bytes += whole.len() as u64);
            whole.append(&mut bytes);
            bytes = whole;
            target.open = Some(Open { file, end: 0 });
            target.segments.push_back(Segment {
                id: segment,
                bytes: 0,
                begun_us: Some(begun_us),
            });
        }
        let segment = target.segments.back_mut().expect("an open segment is the last");
        let open = target.open.as_mut().expect("it is open since the lines above");
        let written = open.file.write_all_at_blocking(&bytes, open.end);
        written.map_err(|e| HintsError::new(&self.options.dir.join(segment.id.file_name()), &e))?;
        open.end += bytes.len() as u64;
        segment.bytes = open.end;
        target.dirty.insert(segment.id.number);
        Ok(())
    }

    /// Makes everything durable that was noted for some nodes, or for all.
    ///
    /// # Errors
    /// When a file does not take it or cannot be synced.
    pub async fn sync(&self, of: Option<&BTreeSet<HostId>>) -> Result<(), HintsError> {
        self.write()?;
        let mut dirty = Vec::new();
        for (target, entry) in self.targets.borrow_mut().iter_mut() {
            if of.is_none_or(|of| of.contains(target)) {
                let shard = self.options.shard;
                let ids = std::mem::take(&mut entry.dirty).into_iter();
                dirty.extend(ids.map(|number| SegmentId {
                    number,
                    shard,
                    target: *target,
                }));
            }
        }
        if dirty.is_empty() {
            return Ok(());
        }
        let (dir, files) = (self.options.dir.clone(), dirty.clone());
        let synced = runtime::offload(move || sync_files(&dir, &files)).await;
        if synced.is_err() {
            let mut targets = self.targets.borrow_mut();
            for id in dirty {
                targets.entry(id.target).or_default().dirty.insert(id.number);
            }
        }
        synced
    }

    /// The nodes for which hints wait.
    #[must_use]
    pub fn targets(&self) -> Vec<HostId> {
        let targets = self.targets.borrow();
        let waiting = targets.iter().filter(|(_, target)| target.has_hints());
        waiting.map(|(id, _)| *id).collect()
    }

    /// What waits, by node.
    #[must_use]
    pub fn pending(&self) -> Vec<Pending> {
        let targets = self.targets.borrow();
        let waiting = targets.iter().filter(|(_, target)| target.has_hints());
        let told = waiting.map(|(id, target)| {
            let mut begun = target.segments.iter().filter_map(|segment| segment.begun_us);
            let oldest = begun.next();
            let bytes: u64 = target.segments.iter().map(|segment| segment.bytes).sum();
            Pending {
                target: *id,
                segments: target.segments.len() as u64,
                bytes: bytes + target.buffer.len() as u64,
                begun_us: oldest.map(|oldest| (oldest, begun.next_back().unwrap_or(oldest))),
            }
        });
        told.collect()
    }

    /// The nodes for which hints are kept.
    #[must_use]
    pub fn allowed(&self) -> Allowed {
        self.allowed.borrow().clone()
    }

    /// Whether hints are kept for nodes of a datacenter.
    #[must_use]
    pub fn keeps_for(&self, datacenter: &str) -> bool {
        self.allowed.borrow().has(datacenter)
    }

    /// Does what an operator orders, until the node restarts.
    pub fn obey(&self, order: Order) {
        match order {
            Order::Allow(change) => self.allowed.borrow_mut().change(change),
            Order::Window(window) => self.window.set(window),
            Order::Pause(is_paused) => self.is_paused.set(is_paused),
        }
    }

    /// After how long a node is given up.
    #[must_use]
    pub fn window(&self) -> Duration {
        self.window.get()
    }

    /// Hands over nothing that was made before this microsecond: the cluster has given it up, and each such hint counts
    /// as missed when a replay reaches it.
    pub fn forget_before(&self, made_us: i64) {
        self.forgotten_before_us
            .set(made_us.max(self.forgotten_before_us.get()));
    }

    /// Whether nothing is handed over.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.is_paused.get()
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

    /// The window is measured from the oldest hint that is left. It need not be in the first segment: a logged batch is
    /// given up long after it was made.
    fn note_oldest(&mut self) {
        let begun = self.segments.iter().filter_map(|segment| segment.begun_us);
        let noted = (!self.buffer.is_empty()).then_some(self.buffer_since_us);
        self.oldest_us = begun.chain(noted).min();
    }

    /// A node that restarts the coordinator does not begin a new window: the oldest hint shows since when it was down
    /// at least.
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

/// Makes the directory where it is not there, durably.
fn make_dir(dir: &Path) -> io::Result<()> {
    if fs::exists(dir) {
        return Ok(());
    }
    fs::create_dir_all(dir)?;
    dir.parent().map_or(Ok(()), fs::sync_dir)
}

/// Makes segments durable, and their names. Blocks. One that was handed over concurrently is gone.
fn sync_files(dir: &Path, files: &[SegmentId]) -> Result<(), HintsError> {
    for id in files {
        let path = dir.join(id.file_name());
        let options = OpenOptions {
            read: true,
            write: true,
            ..OpenOptions::default()
        };
        match File::open(&path, options).and_then(|file| file.sync_data_blocking()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(HintsError::new(&path, &e)),
            _ => {}
        }
    }
    fs::sync_dir(dir).map_err(|e| HintsError::new(dir, &e))
}
