//! The target's side: [`pull`].

use std::cell::Cell;
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use replica::{Baseline, INCOMING, Inheritance, Lost, Shard, TableStore, TokenRange, has_others, hull};
use rpc::{Peer, Rpc};
use runtime::{Group, Notify, fs};
use schema::TableId;
use sstable::{Descriptor, Reader};
use tasks::{JobControl, Task};
use uuid::Uuid;

use crate::CHUNK_BYTES;
use crate::error::{Refusal, StreamError};
use crate::manifest::Manifest;
use crate::message::{self, Malformed, Open, Opened, RANGES_MAX, StreamId};
use crate::receive::{Asking, descriptor_of, receive};
use crate::source::remove_dir;
use crate::streams::Streams;

/// Most bytes of a stream that are asked for and not written yet: what it holds in memory here, and at its source.
pub const IN_FLIGHT_BYTES_MAX: usize = 4 * CHUNK_BYTES;
/// Most bytes of a copy of several ranges, by estimate; one range may have more.
pub const PART_BYTES: u64 = 256 << 20;
/// How long a source has to hear that a stream is closed. Where it does not, the stream ends by itself.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A shard to copy from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source {
    /// Its node.
    pub peer: Peer,
    /// Which of the node's shards.
    pub shard: u32,
}

impl Source {
    pub(crate) fn refused(&self, refusal: Refusal) -> StreamError {
        StreamError::Refused {
            host: self.peer.host_id,
            shard: self.shard,
            refusal,
        }
    }

    pub(crate) fn malformed(&self, malformed: Malformed) -> StreamError {
        StreamError::Damaged(format!("the answer of node {}: {}", self.peer.host_id, malformed.0))
    }
}

/// What to copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The table.
    pub table: TableId,
    /// The tokens: at least one range, in token order, none over another. This shard has them, and each source has
    /// them.
    pub ranges: Vec<TokenRange>,
    /// How many bytes one copy of several ranges should have at most, which a source needs on its disk, and which is
    /// copied again after a failure: usually [`PART_BYTES`].
    pub part_bytes: u64,
    /// The sources: everything that each of them has is copied.
    pub sources: Vec<Source>,
    /// The version of the last truncation that the copy must come after.
    pub truncated_at: u64,
    /// What the copy is for. A call with the same session and table ends the streams of the calls before that have one
    /// of its tokens.
    pub session: Uuid,
    /// Whether the copy keeps the marks that repairs have left at the source, with the source's record. Only where
    /// there is one range, a whole tablet that is new here, there is one source, and all nodes know of it
    /// (docs/dev/incremental-repair.md).
    pub with_marks: bool,
}

/// What was copied.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Pulled {
    /// How many of the ranges, from the first: one at least. The caller asks for the others.
    pub ranges: usize,
    /// From each source, in the order of the request.
    pub sources: Vec<PulledFrom>,
}

impl Pulled {
    /// Sstables that are part of the table now.
    #[must_use]
    pub fn sstables(&self) -> usize {
        self.sources.iter().map(|source| source.sstables).sum()
    }

    /// Bytes of their files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sources.iter().map(|source| source.bytes).sum()
    }
}

/// What was copied from one source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PulledFrom {
    /// The node.
    pub host: Uuid,
    /// Its shard.
    pub shard: u32,
    /// Sstables.
    pub sstables: usize,
    /// Bytes of their files.
    pub bytes: u64,
}

/// Copies what the sources have of the first ranges. When this returns Ok, all of these is durable and part of the
/// tablets here. `task` is of [`crate::kinds::STREAM_TABLET`] ([`crate::kinds::stream_tablet`]) and has not begun; the
/// caller ends it. Sources are read one after the other.
///
/// Both ends must get all writes of the range already, and the sources must have every write from before: what is in no
/// memtable and no sstable of a source when it is asked is not copied. Until this has returned Ok, the ranges are
/// awaited here ([`TableStore::set_awaited`]).
///
/// Call it again after any failure or crash: what was taken twice counts once. Dropping the future ends the streams.
///
/// # Errors
/// See [`StreamError`]; nothing of the source that the error is about was taken then, and its files are removed.
pub async fn pull(rpc: &Rc<Rpc>, shard: &Rc<Shard>, request: &Request, task: &Task) -> Result<Pulled, StreamError> {
    let worker = task.worker().await?;
    let stop = Rc::new(Stop {
        control: task.control(),
        is_given_up: Cell::new(false),
        changed: Notify::new(),
    });
    let _guard = GivesUp(Rc::clone(&stop));
    let (rpc, shard, request) = (Rc::clone(rpc), Rc::clone(shard), request.clone());
    // A task of its own: its files are removed though the caller gives up.
    let pulling = async move {
        let _worker = worker;
        pull_all(&rpc, &shard, &request, &stop).await
    };
    runtime::spawn_in(Group::BACKGROUND, pulling).await
}

/// When a stream is to end before its time.
pub(crate) struct Stop {
    pub(crate) control: JobControl,
    is_given_up: Cell<bool>,
    changed: Notify,
}

impl Stop {
    fn is_over(&self) -> bool {
        self.is_given_up.get() || self.control.is_aborted()
    }

    /// The future's output, or the error that ends the stream.
    pub(crate) async fn or<T>(&self, future: impl Future<Output = T>) -> Result<T, StreamError> {
        let mut aborted = pin!(self.control.aborted());
        let mut given_up = pin!(self.changed.notified());
        let mut future = pin!(future);
        poll_fn(|context| {
            let is_changed = aborted.as_mut().poll(context).is_ready() || given_up.as_mut().poll(context).is_ready();
            if is_changed || self.is_over() {
                return Poll::Ready(Err(StreamError::Aborted));
            }
            future.as_mut().poll(context).map(Ok)
        })
        .await
    }

    fn check(&self) -> Result<(), StreamError> {
        if self.is_over() {
            Err(StreamError::Aborted)
        } else {
            Ok(())
        }
    }
}

/// When dropped, notifies the stream that its caller no longer waits for it.
struct GivesUp(Rc<Stop>);

impl Drop for GivesUp {
    fn drop(&mut self) {
        self.0.is_given_up.set(true);
        self.0.changed.notify_all();
    }
}

impl PulledFrom {
    fn nothing(source: &Source) -> Self {
        Self {
            host: source.peer.host_id,
            shard: source.shard,
            sstables: 0,
            bytes: 0,
        }
    }
}

async fn pull_all(rpc: &Rc<Rpc>, shard: &Rc<Shard>, request: &Request, stop: &Stop) -> Result<Pulled, StreamError> {
    let streams = Streams::local();
    let store = shard.store(request.table).filter(|_| request.sources.len() > 1);
    let _copying = store.map(|store| shard.copy_from_several(&store));
    // What the first source has ready in one piece is copied from the others, too, in however many pieces.
    let mut ranges = &request.ranges[..request.ranges.len().min(RANGES_MAX)];
    let mut sources = Vec::with_capacity(request.sources.len());
    for (at, source) in request.sources.iter().enumerate() {
        let asking = Asking { rpc, source, stop };
        let (mut all, mut rest) = (PulledFrom::nothing(source), ranges);
        while !rest.is_empty() {
            streams.count(|metrics| metrics.pulling += 1);
            let part = pull_from(&asking, &streams, shard, (request, rest)).await;
            streams.count(|metrics| {
                metrics.pulling -= 1;
                metrics.failed_pulling += u64::from(part.is_err());
            });
            let (copied, part) = part?;
            all.sstables += part.sstables;
            all.bytes += part.bytes;
            let (copied, further) = rest.split_at(copied);
            (ranges, rest) = if at == 0 { (copied, &[][..]) } else { (ranges, further) };
        }
        sources.push(all);
    }
    Ok(Pulled {
        ranges: ranges.len(),
        sources,
    })
}

async fn pull_from(
    asking: &Asking<'_>,
    streams: &Streams,
    shard: &Rc<Shard>,
    (request, ranges): (&Request, &[TokenRange]),
) -> Result<(usize, PulledFrom), StreamError> {
    if !shard.takes_growth() {
        return Err(StreamError::DiskFull(
            "disk utilisation is above critical_disk_utilization_level, and the node takes no tablets until it has room".to_owned(),
        ));
    }
    let store = shard.store(request.table).ok_or(StreamError::UnknownTable)?;
    if !ranges.iter().all(|range| store.covers(range.after, range.to)) {
        return Err(StreamError::NotHere);
    }
    // What a truncation here has forgotten, or is about to, must not come from a source that has not heard of it.
    let baseline = Baseline::of(shard, &store);
    let done = baseline.truncated_at().filter(|done| *done >= request.truncated_at);
    let truncated_at = done.ok_or(StreamError::NotTruncated)?;
    let stream = StreamId {
        session: request.session,
        attempt: runtime::random_u64(),
    };
    let open = Open {
        stream,
        table: request.table,
        ranges: ranges.to_vec(),
        bytes: match ranges {
            [_] => u64::MAX,
            _ => request.part_bytes,
        },
        truncated_at,
        with_marks: request.with_marks && request.sources.len() == 1 && ranges.len() == 1,
    };
    let incoming = store.dir.join(INCOMING).join(stream.directory());
    let copy = Copy {
        asking,
        streams,
        store: &store,
        baseline: &baseline,
        ranges,
    };
    let taken = copy.take(shard, &open, &incoming).await;
    close(asking, stream);
    remove_dir(incoming).await;
    taken
}

/// Notifies the source that the stream is over.
fn close(asking: &Asking<'_>, stream: StreamId) {
    let (rpc, source) = (Rc::clone(asking.rpc), *asking.source);
    drop(runtime::spawn(async move {
        // Where it does not hear of it, it ends the stream by itself.
        let _ = rpc
            .call(
                &source.peer,
                source.shard,
                message::CLOSE,
                stream.encode(),
                CLOSE_TIMEOUT,
            )
            .await;
    }));
}

/// A copy of ranges on its way from one source.
struct Copy<'a> {
    asking: &'a Asking<'a>,
    streams: &'a Streams,
    store: &'a Rc<TableStore>,
    baseline: &'a Baseline,
    ranges: &'a [TokenRange],
}

impl Copy<'_> {
    async fn take(&self, shard: &Rc<Shard>, open: &Open, incoming: &Path) -> Result<(usize, PulledFrom), StreamError> {
        let (ranges, manifest) = self.list(open).await?;
        if manifest.columns != self.store.table().columns_text() {
            return Err(StreamError::SchemaDiffers);
        }
        let bytes = manifest.bytes();
        self.asking.stop.control.add_total(bytes);
        let marks = manifest.marks.as_ref().filter(|_| open.with_marks);
        let inheritance = marks
            .zip(open.ranges.first())
            .map(|(marks, range)| marks.inheritance(*range));
        if !manifest.sstables.is_empty() {
            make_room(incoming.to_owned(), bytes).await?;
            receive(self.asking, self.streams, (open.stream, &manifest), incoming).await?;
        }
        if !manifest.sstables.is_empty() || inheritance.is_some() {
            self.adopt(
                shard,
                (&self.ranges[..ranges], &manifest, inheritance.as_ref()),
                incoming,
            )
            .await?;
        }
        let part = PulledFrom {
            sstables: manifest.sstables.len(),
            bytes,
            ..PulledFrom::nothing(self.asking.source)
        };
        Ok((ranges, part))
    }

    /// Opens the stream, and waits until the source has its copy ready: of how many ranges, and its files.
    async fn list(&self, open: &Open) -> Result<(usize, Manifest), StreamError> {
        loop {
            let answer = self.asking.answer(message::OPEN, || open.encode(), None).await?;
            match Opened::decode(&answer) {
                Ok(Ok(Opened::Ready(ranges, manifest))) if ranges <= open.ranges.len() => {
                    return Ok((ranges, manifest));
                }
                Ok(Ok(Opened::Preparing)) => self.check_ranges()?,
                Ok(Ok(Opened::Ready(..))) => {
                    let other = Malformed("the copy is of other ranges than were asked for");
                    return Err(self.asking.source.malformed(other));
                }
                Ok(Err(refusal)) => return Err(self.asking.source.refused(refusal)),
                Err(malformed) => return Err(self.asking.source.malformed(malformed)),
            }
        }
    }

    fn check_ranges(&self) -> Result<(), Lost> {
        self.baseline.check_ranges(self.ranges)
    }

    /// Opens and checks the sstables, and takes them into the table.
    async fn adopt(
        &self,
        shard: &Rc<Shard>,
        (ranges, manifest, inheritance): (&[TokenRange], &Manifest, Option<&Inheritance>),
        incoming: &Path,
    ) -> Result<(), StreamError> {
        let count = manifest.sstables.len();
        let descriptors: Vec<Descriptor> = (0..count).map(|at| descriptor_of(incoming, manifest, at)).collect();
        let (table, ranges, dir) = (self.store.table(), ranges.to_vec(), incoming.to_owned());
        let to_check = descriptors.clone();
        let work = move || -> Result<(), StreamError> {
            if to_check.is_empty() {
                return Ok(());
            }
            fs::sync_dir(&dir).map_err(|e| StreamError::of_io(&dir, &e))?;
            for descriptor in &to_check {
                let reader = Reader::open_descriptor(descriptor, &table).map_err(|e| StreamError::of_sstable(&e))?;
                reader
                    .verify_index_blocking()
                    .map_err(|e| StreamError::of_sstable(&e))?;
                check_tokens(&reader, &ranges)?;
            }
            Ok(())
        };
        runtime::offload_background(work).await?;
        self.asking.stop.check()?;
        // From here on `adopt_sstables` looks.
        self.check_ranges()?;
        shard.adopt_and_inherit(self.store, descriptors, inheritance).await?;
        self.streams.count(|metrics| metrics.adopted_sstables += count as u64);
        Ok(())
    }
}

/// Whether all partitions of an sstable are in these ranges. Blocks.
fn check_tokens(reader: &Arc<Reader>, ranges: &[TokenRange]) -> Result<(), StreamError> {
    let has_others = match ranges {
        [range] => {
            let (first, last) = reader.tokens();
            !range.contains(first) || !range.contains(last)
        }
        _ => has_others(reader, ranges).map_err(|e| StreamError::of_sstable(&e))?,
    };
    if !has_others {
        return Ok(());
    }
    let ((first, last), whole) = (reader.tokens(), hull(ranges));
    Err(StreamError::Damaged(format!(
        "an sstable of the source has tokens {} to {}, expected such of {} ranges above {} up to {}",
        first.0,
        last.0,
        ranges.len(),
        whole.after.0,
        whole.to.0
    )))
}

/// Makes the directory of a copy, if the disk has room for so many bytes.
async fn make_room(dir: PathBuf, bytes: u64) -> Result<(), StreamError> {
    let work = move || {
        fs::create_dir_all(&dir).map_err(|e| StreamError::of_io(&dir, &e))?;
        let space = fs::disk_space(&dir).map_err(|e| StreamError::of_io(&dir, &e))?;
        if space.available < bytes {
            let (dir, available) = (dir.display(), space.available);
            return Err(StreamError::DiskFull(format!(
                "there is no room in {dir}: the copy has {bytes} bytes, and {available} are free"
            )));
        }
        Ok(())
    };
    runtime::offload_background(work).await
}
