//! A shard's log: every write is in it before it is acknowledged.
//!
//! Model. Writes are appended to a chunk in memory ([`Commitlog::append`]); at the end of a batch of requests the chunk
//! goes to the kernel with one write ([`Commitlog::write`]) and only then are the answers sent. So `kill -9` never
//! loses an acknowledged write. In `periodic` mode a task makes the segments durable at each period: a power loss costs
//! at most that. In `batch` mode (and for records that ask for it) the answer waits for [`Commitlog::synced`], and all
//! that wait share one sync.
//!
//! Segments are allocated in full before use, so that a full disk shows when a segment is made, where a write can still
//! be refused by value, and never in the middle of one. Released segments are used again; until then they have a name
//! that no replay reads.
//!
//! Invariants: positions only grow; a chunk is written at most once at its position; a record is acknowledged only when
//! its chunk was written (periodic) or synced (batch); a segment is released only when no memtable needs it or an older
//! one. After a failed sync nothing more is accepted: what the kernel then holds is unknown.
//!
//! Lives on its shard, sees only its shard's files. See docs/dev/commitlog.md.

mod format;
#[doc(hidden)]
pub mod fuzz;
mod logged;
mod long;
mod replay;
mod segment;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use runtime::Notify;

use format::{
    ALIGN, CHUNK_HEADER_BYTES, KIND_BATCH, KIND_BATCH_BEGUN, KIND_BATCH_ENDED, KIND_DISCARD, KIND_MUTATION,
    RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES,
};
pub use format::{Discard, ReplayPosition};
pub use logged::{LogMark, LogPlace, Logged};
pub use long::LongRecord;
use long::Pending;
pub use replay::{OldLog, Record, Replay, ReplayError, ReplayStats};
use segment::Segment;

/// Default size of a segment.
pub const SEGMENT_BYTES_DEFAULT: u64 = 32 << 20;
/// Released segments kept to be used again.
const SPARE_SEGMENTS_MAX: usize = 2;
/// A chunk above this size is written even in the middle of a batch.
const CHUNK_BYTES_MAX: usize = 1 << 20;

/// When an acknowledged write is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncMode {
    /// Acknowledged when the kernel has it; durable at most this much later.
    Periodic(Duration),
    /// Acknowledged when durable.
    Batch,
}

/// How a shard keeps its log.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory that all shards share.
    pub dir: PathBuf,
    /// The shard.
    pub shard: u32,
    /// How many shards the node has.
    pub shards: u32,
    /// Size of a segment in bytes.
    pub segment_bytes: u64,
    /// When a write is durable.
    pub sync: SyncMode,
    /// The machine's boot, to distinguish a power loss from a killed process.
    pub boot_id: u128,
    /// The first segment id to use: above every id that exists, and the same for all shards of a run of the node.
    pub first_segment: u64,
}

/// How long the log waits before it tries again to say that a sync failed.
const MARK_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Why the log does not take a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogError {
    /// Larger than half a segment.
    TooLarge {
        /// Bytes of the record.
        bytes: usize,
        /// The most that is taken.
        bytes_max: usize,
    },
    /// A segment could not be made or written; the next attempt may succeed.
    Io {
        /// The file.
        file: PathBuf,
        /// What the kernel said.
        kind: io::ErrorKind,
        /// The error in words.
        message: String,
    },
    /// A sync failed earlier: the node must be restarted.
    Broken {
        /// What failed.
        message: String,
    },
    /// What was appended could not be written with what others had appended.
    Lost,
}

impl std::fmt::Display for LogError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLarge { bytes, bytes_max } => {
                write!(
                    f,
                    "Mutation of {bytes} bytes is too large for the maximum size of {bytes_max}"
                )
            }
            Self::Io { file, message, .. } => write!(f, "commitlog {}: {message}", name_of(file)),
            Self::Lost => f.write_str("an earlier write to it failed"),
            Self::Broken { message } => {
                write!(
                    f,
                    "the commitlog stopped after a failed sync ({message}); writes need a restart"
                )
            }
        }
    }
}

impl std::error::Error for LogError {}

/// The name of a file in errors, which clients see. It lacks the directory: there is only one, and it does not concern
/// clients.
fn name_of(file: &Path) -> std::borrow::Cow<'_, str> {
    file.file_name().unwrap_or(file.as_os_str()).to_string_lossy()
}

/// One shard's log.
pub struct Commitlog {
    options: Options,
    chunk: RefCell<Pending>,
    /// Position after the last record appended.
    appended: Cell<ReplayPosition>,
    /// Position after the last record that the kernel has.
    written: Cell<ReplayPosition>,
    /// Position after the last record that is durable.
    synced: Cell<ReplayPosition>,
    /// Oldest first; the last is being written.
    segments: RefCell<VecDeque<Rc<Segment>>>,
    spare: RefCell<Vec<Rc<Segment>>>,
    next_segment: Cell<u64>,
    sync_running: Cell<bool>,
    releasing: Cell<bool>,
    sync_done: Notify,
    broken: RefCell<Option<String>>,
    is_broken: Cell<bool>,
    losses: Cell<u64>,
    /// The last write failed, and the log has a message for the operator.
    is_refusing: Cell<bool>,
    /// Why it failed.
    refusal: RefCell<Option<LogError>>,
    /// Notified when a segment begins or is released, and when the log begins or ceases to take writes.
    pub changed: Notify,
}

impl Commitlog {
    /// Opens the log for writing; the first segment is made by the first append.
    pub fn new(options: Options) -> Rc<Self> {
        let first = options.first_segment;
        Rc::new(Self {
            options,
            chunk: RefCell::new(Pending::new()),
            appended: Cell::default(),
            written: Cell::default(),
            synced: Cell::default(),
            segments: RefCell::default(),
            spare: RefCell::default(),
            next_segment: Cell::new(first),
            sync_running: Cell::new(false),
            releasing: Cell::new(false),
            sync_done: Notify::new(),
            broken: RefCell::default(),
            is_broken: Cell::new(false),
            losses: Cell::new(0),
            is_refusing: Cell::new(false),
            refusal: RefCell::default(),
            changed: Notify::new(),
        })
    }

    /// The largest mutation that is taken, in bytes.
    pub fn mutation_bytes_max(&self) -> usize {
        usize::try_from(self.options.segment_bytes / 2).unwrap_or(usize::MAX)
    }

    /// Whether acknowledgements wait for [`Commitlog::synced`].
    pub fn is_batch(&self) -> bool {
        self.options.sync == SyncMode::Batch
    }

    /// Adds a mutation to the chunk being built.
    #[inline]
    pub fn append(&self, mutation: &[u8]) -> Result<Logged, LogError> {
        self.append_record(KIND_MUTATION, mutation)
    }

    /// Notes that a table's mutations up to a position need no replay. Durable after the next sync.
    pub fn append_discard(&self, discard: &Discard) -> Result<Logged, LogError> {
        self.append_record(KIND_DISCARD, &discard.encode())
    }

    /// Adds mutations that take effect all or not at all: they are in one record.
    pub fn append_batch<'m>(&self, mutations: impl Iterator<Item = &'m [u8]>) -> Result<Logged, LogError> {
        let mut body = Vec::new();
        format::put_mutations(&mut body, mutations);
        self.append_record(KIND_BATCH, &body)
    }

    /// Notes a batch whose mutations go to several shards, before any of them has its part: a replay that finds no
    /// [`Commitlog::append_batch_ended`] for it hands it out again ([`Replay::unfinished_batches`]).
    pub fn append_batch_begun<'m>(
        &self,
        id: u128,
        mutations: impl Iterator<Item = &'m [u8]>,
    ) -> Result<Logged, LogError> {
        let mut body = id.to_le_bytes().to_vec();
        format::put_mutations(&mut body, mutations);
        self.append_record(KIND_BATCH_BEGUN, &body)
    }

    /// Notes that every shard has its part of a batch in its own log.
    pub fn append_batch_ended(&self, id: u128) -> Result<Logged, LogError> {
        self.append_record(KIND_BATCH_ENDED, &id.to_le_bytes())
    }

    /// As [`Commitlog::append`] and [`Commitlog::append_batch`], of a record that was built before.
    pub fn append_long(&self, record: LongRecord) -> Result<Logged, LogError> {
        let bytes = record.bytes();
        self.make_ready(bytes)?;
        if !self.chunk.borrow().is_empty() {
            self.write()?;
            // A chunk is padded, so less may be left.
            self.make_ready(bytes)?;
        }
        *self.chunk.borrow_mut() = record.into_pending();
        Ok(self.advance(CHUNK_HEADER_BYTES + bytes))
    }

    fn append_record(&self, kind: u8, body: &[u8]) -> Result<Logged, LogError> {
        let bytes = RECORD_HEADER_BYTES + body.len();
        self.make_ready(bytes)?;
        let mut chunk = self.chunk.borrow_mut();
        let header = if chunk.is_empty() { CHUNK_HEADER_BYTES } else { 0 };
        chunk.push(kind, body);
        Ok(self.advance(header + bytes))
    }

    /// So many bytes more are appended.
    fn advance(&self, bytes: usize) -> Logged {
        let appended = self.appended.get();
        let after = ReplayPosition {
            offset: appended.offset + bytes as u32,
            ..appended
        };
        self.appended.set(after);
        Logged::new(after, self.mark())
    }

    /// Has the current segment, or the next, take a record of so many bytes.
    fn make_ready(&self, bytes: usize) -> Result<(), LogError> {
        if self.is_broken.get() {
            return Err(self.broken_error());
        }
        if bytes > self.mutation_bytes_max() {
            return Err(LogError::TooLarge {
                bytes,
                bytes_max: self.mutation_bytes_max(),
            });
        }
        let appended = self.appended.get();
        let end = appended.offset as usize + CHUNK_HEADER_BYTES + bytes;
        if appended.segment == 0
            || end + ALIGN > self.options.segment_bytes as usize
            || self.chunk.borrow().bytes.len() > CHUNK_BYTES_MAX
        {
            self.make_room(bytes)?;
        }
        Ok(())
    }

    /// Writes out the chunk and goes to a new segment where the current one cannot take `bytes` more.
    #[cold]
    fn make_room(&self, bytes: usize) -> Result<(), LogError> {
        self.write()?;
        let p = self.appended.get();
        if p.segment == 0
            || p.offset as usize + CHUNK_HEADER_BYTES + bytes + ALIGN > self.options.segment_bytes as usize
        {
            self.next_segment().inspect_err(|e| self.refuse(e))?;
        }
        Ok(())
    }

    /// Logs one message for the operator, however many writes fail; each client gets the error of its own write.
    #[cold]
    fn refuse(&self, error: &LogError) {
        *self.refusal.borrow_mut() = Some(error.clone());
        if !self.is_refusing.replace(true) {
            log::error!("{error}; writes are refused until there is room for them");
            self.changed.notify_all();
        }
    }

    fn next_segment(&self) -> Result<(), LogError> {
        let id = self.next_segment.get();
        let previous = self
            .segments
            .borrow()
            .back()
            .map_or_else(ReplayPosition::default, |s| ReplayPosition {
                segment: s.id(),
                offset: s.end(),
            });
        let spare = self.spare.borrow_mut().pop();
        let segment = match spare {
            Some(s) => Segment::reuse(&s, &self.options, id, previous)?,
            None => Segment::create(&self.options, id, previous)?,
        };
        self.next_segment.set(id + 1);
        self.segments.borrow_mut().push_back(Rc::new(segment));
        let start = ReplayPosition {
            segment: id,
            offset: SEGMENT_HEADER_BYTES as u32,
        };
        self.appended.set(start);
        // After any failure the next record begins a segment, so the failure is over when there is room for a segment.
        if self.is_refusing.replace(false) {
            log::info!("the commitlog takes writes again");
        }
        self.changed.notify_all();
        Ok(())
    }

    /// Hands everything appended to the kernel. Nothing may be acknowledged before.
    ///
    /// On failure the records in the chunk are dropped: what was appended after a [`LogMark`] from before is lost, in
    /// part or whole, and must not be acknowledged.
    pub fn write(&self) -> Result<ReplayPosition, LogError> {
        if self.is_broken.get() {
            return Err(self.broken_error());
        }
        let mut chunk = self.chunk.borrow_mut();
        if chunk.is_empty() {
            return Ok(self.written.get());
        }
        let segment = self
            .segments
            .borrow()
            .back()
            .cloned()
            .expect("a chunk with records has a segment");
        let checksum = chunk.checksum.take();
        format::seal_chunk(&mut chunk.bytes, segment.id(), self.synced.get(), checksum.as_ref());
        let result = segment.write(&chunk.bytes);
        let written = self.appended.get();
        chunk.clear(2 * CHUNK_BYTES_MAX);
        let end = segment.end();
        self.appended.set(ReplayPosition {
            segment: segment.id(),
            offset: end,
        });
        if let Err(e) = result {
            self.losses.set(self.losses.get() + 1);
            self.refuse(&e);
            // Positions never go back: a memtable may have been frozen at a position after the lost chunk, and the note
            // that it is flushed would cover what is appended next. So the next record begins a new segment.
            self.appended.set(ReplayPosition {
                segment: segment.id(),
                offset: u32::try_from(self.options.segment_bytes).unwrap_or(u32::MAX),
            });
            return Err(e);
        }
        self.written.set(written);
        Ok(written)
    }

    /// Why the log takes no writes; None while it takes them, as far as the last attempt showed.
    #[must_use]
    pub fn trouble(&self) -> Option<LogError> {
        if self.is_broken.get() {
            return Some(self.broken_error());
        }
        let refusal = self.refusal.borrow();
        refusal.clone().filter(|_| self.is_refusing.get())
    }

    /// Looks whether a log that refuses writes can take them again, by making a segment: without, a node that is sent
    /// no writes for it would not find out. After a failed sync it cannot.
    pub fn try_again(&self) {
        if self.is_refusing.get() && !self.is_broken.get() {
            // A failure was logged when it first occurred.
            let _ = self.write().and_then(|_| self.next_segment());
        }
    }

    #[cold]
    fn broken_error(&self) -> LogError {
        LogError::Broken {
            message: self.broken.borrow().clone().unwrap_or_default(),
        }
    }

    /// Position after the last record appended.
    pub fn appended(&self) -> ReplayPosition {
        self.appended.get()
    }

    /// Position after the last record that the kernel has.
    pub fn written(&self) -> ReplayPosition {
        self.written.get()
    }

    /// For how long what was acknowledged may not be durable yet.
    pub fn unsynced_max(&self) -> Duration {
        match self.options.sync {
            SyncMode::Periodic(period) => period,
            SyncMode::Batch => Duration::ZERO,
        }
    }

    /// A position after everything that is in the log, including the log of earlier runs.
    pub fn end(&self) -> ReplayPosition {
        match self.appended.get() {
            p if p.segment == 0 => ReplayPosition {
                segment: self.options.first_segment - 1,
                offset: u32::MAX,
            },
            p => p,
        }
    }

    /// Whether everything up to `position` is durable.
    #[inline]
    pub fn is_synced(&self, position: ReplayPosition) -> bool {
        position <= self.synced.get()
    }

    /// Waits until everything up to `position` that was written is durable; the waiters share the syncs.
    pub async fn synced(self: &Rc<Self>, position: ReplayPosition) -> Result<(), LogError> {
        loop {
            if let Some(message) = &*self.broken.borrow() {
                return Err(LogError::Broken {
                    message: message.clone(),
                });
            }
            if self.synced.get() >= position.min(self.written.get()) {
                return Ok(());
            }
            if self.sync_running.get() {
                self.sync_done.notified().await;
            } else {
                self.sync().await?;
            }
        }
    }

    /// Makes durable everything that was written so far.
    pub async fn sync(self: &Rc<Self>) -> Result<(), LogError> {
        while self.sync_running.get() {
            self.sync_done.notified().await;
        }
        let target = self.written.get();
        if target == self.synced.get() {
            return Ok(());
        }
        self.sync_running.set(true);
        let _running = Running(self);
        let dirty: Vec<Rc<Segment>> = self
            .segments
            .borrow()
            .iter()
            .filter(|s| s.is_dirty())
            .cloned()
            .collect();
        for segment in dirty {
            if let Err(e) = segment.sync().await {
                let message = format!("{}: {e}", name_of(&segment.path()));
                log::error!("commitlog sync failed: {message}; no more writes are accepted");
                *self.broken.borrow_mut() = Some(message.clone());
                self.is_broken.set(true);
                self.changed.notify_all();
                drop(runtime::spawn(self.clone().mark_unsynced()));
                return Err(LogError::Broken { message });
            }
        }
        self.synced.set(self.synced.get().max(target));
        Ok(())
    }

    /// Leaves signs for the next start that a sync failed, as soon as the disk takes them.
    async fn mark_unsynced(self: Rc<Self>) {
        loop {
            let segments = self.segments.borrow().clone();
            let mut unsynced = segments.iter().filter(|segment| segment.is_dirty());
            if unsynced.all(|segment| segment.mark_unsynced().is_ok()) {
                return;
            }
            runtime::sleep(MARK_RETRY_DELAY).await;
        }
    }

    /// Syncs at each period until the node stops; to be spawned in periodic mode.
    pub async fn run_periodic(self: Rc<Self>) {
        let SyncMode::Periodic(period) = self.options.sync else {
            return;
        };
        loop {
            runtime::sleep(period).await;
            if self.sync().await.is_err() {
                return;
            }
        }
    }

    /// Bytes of all segments that replay would read.
    pub fn bytes(&self) -> u64 {
        self.segments.borrow().len() as u64 * self.options.segment_bytes
    }

    /// The oldest segment, when there is more than the one being written.
    pub fn oldest_full_segment(&self) -> Option<u64> {
        let segments = self.segments.borrow();
        (segments.len() > 1).then(|| segments[0].id())
    }

    /// Releases the segments below `segment`: nothing in them is needed any more.
    ///
    /// Releases them one by one, each durably before the next: the record that says that an older segment's mutations
    /// are not needed is in a younger segment, so a crash must never leave the older without the younger.
    pub async fn release_below(self: &Rc<Self>, segment: u64) {
        if self.releasing.replace(true) {
            return;
        }
        let _releasing = Releasing(self);
        loop {
            let released = {
                let mut segments = self.segments.borrow_mut();
                if segments.len() < 2 || segments[0].id() >= segment {
                    return;
                }
                segments.pop_front().expect("there are two")
            };
            let spares = released.is_quiet() && self.spare.borrow().len() < SPARE_SEGMENTS_MAX;
            let (path, spare) = (released.path(), spares.then(|| released.spare_path()));
            let to = spare.clone();
            if let Err(e) = runtime::offload(move || segment::release(&path, to.as_deref())).await {
                log::warn!("commitlog {}: cannot release: {e}", released.path().display());
                self.segments.borrow_mut().push_front(released);
                return;
            }
            if let Some(spare) = spare {
                released.set_path(spare);
                self.spare.borrow_mut().push(released);
            }
            self.changed.notify_all();
        }
    }

    /// Writes, syncs and removes every segment: all memtables have been flushed. Called when the node drains.
    pub async fn close(self: &Rc<Self>) -> Result<(), LogError> {
        self.write()?;
        self.sync().await?;
        // A note of a flush may have been appended concurrently.
        self.write()?;
        let segments = std::mem::take(&mut *self.segments.borrow_mut());
        let spare = std::mem::take(&mut *self.spare.borrow_mut());
        // Whatever is appended from here on begins a new segment.
        self.appended.set(ReplayPosition::default());
        for s in segments.iter().chain(&spare) {
            let path = s.path();
            if let Err(e) = runtime::offload(move || segment::release(&path, None)).await {
                log::warn!("commitlog {}: cannot remove: {e}", s.path().display());
                break;
            }
        }
        Ok(())
    }
}

/// Ends a sync however its future ends.
struct Running<'a>(&'a Commitlog);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.sync_running.set(false);
        self.0.sync_done.notify_all();
    }
}

/// Ends a release however its future ends.
struct Releasing<'a>(&'a Commitlog);

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        self.0.releasing.set(false);
    }
}
