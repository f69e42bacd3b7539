//! The source's side of streams: the handler of this crate's verbs, and a session for each stream.
//!
//! A session makes its copy, then waits. It ends when the target closes it, when no request of the target has come for
//! [`SESSION_IDLE`], when an operator aborts its task, and when the table is dropped or truncated. Then its directory
//! is removed. Files are opened for each read, so an open session holds no file.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use replica::{
    Baseline, ExportError, ExportRequest, Exported, Exports, Lost, STREAMS, Shard, TableStore, TokenRange, hull,
};
use rpc::{Caller, Handler, Later, RemoteError, RemoteErrorKind, Reply, Request, Rpc};
use runtime::fs::{self, File, OpenOptions};
use runtime::{Group, Instant, Notify};
use sstable::Component;
use tasks::{JobControl, Origin, Task, Tasks};
use uuid::Uuid;

use crate::error::Refusal;
use crate::kinds;
use crate::manifest::{ListedFile, ListedMarks, ListedSstable, Manifest, SSTABLES_MAX};
use crate::message::{self, GIVEN, Malformed, Open, Opened, Read, StreamId};
use crate::streams::Streams;

/// How long a stream stays open without a request of its target.
pub const SESSION_IDLE: Duration = Duration::from_mins(1);
/// Most streams that a shard serves at once.
pub const SESSIONS_MAX: usize = 32;
/// Most bytes that a shard reads at once for all streams. Reads beyond wait in line.
pub(crate) const SERVING_BYTES_MAX: usize = 32 << 20;
/// Most reads of one stream that run or wait.
const READS_MAX: usize = 32;
/// How long the answer to a request to open a stream waits for the copy.
const OPEN_WAIT: Duration = Duration::from_secs(5);
/// How often a session looks whether it should end.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// Bytes read at once to compute a checksum.
const STEP_BYTES: usize = 1 << 20;

/// A stream from this shard.
pub(crate) struct Session {
    open: Open,
    caller: (Uuid, u32),
    state: RefCell<State>,
    changed: Notify,
    asked_at: Cell<Instant>,
    is_closed: Cell<bool>,
    reads: Cell<usize>,
    control: JobControl,
    baseline: Baseline,
    dir: PathBuf,
}

enum State {
    Preparing,
    Ready(Rc<Ready>),
    Ended(Refusal),
}

/// A copy that can be read.
struct Ready {
    answer: Vec<u8>,
    exported: Vec<Exported>,
    listed: Vec<ListedSstable>,
}

/// Answers the verbs of this crate on this shard, once the shard's tables are open.
#[must_use]
pub fn handler() -> Rc<dyn Handler> {
    Rc::new(SourceHandler)
}

struct SourceHandler;

impl Handler for SourceHandler {
    fn is_repeatable(&self, verb: u16) -> bool {
        verb == message::READ || verb == message::CLOSE
    }

    fn handle(&self, request: Request<'_>) -> Reply {
        match request.verb {
            message::OPEN => match Open::decode(request.body) {
                Ok(open) => open_stream(open, request.peer),
                Err(malformed) => rejected(malformed),
            },
            message::READ => match Read::decode(request.body) {
                Ok(read) => read_file(read, request.peer),
                Err(malformed) => rejected(malformed),
            },
            message::CLOSE => match StreamId::decode(request.body) {
                Ok(stream) => {
                    close_stream(stream, request.peer);
                    Reply::Now(Vec::new())
                }
                Err(malformed) => rejected(malformed),
            },
            verb => Reply::Err(RemoteError::unknown_verb(verb)),
        }
    }
}

fn rejected(malformed: Malformed) -> Reply {
    Reply::Err(RemoteError {
        kind: RemoteErrorKind::Rejected,
        message: malformed.0.to_owned(),
    })
}

fn refused(refusal: &Refusal) -> Reply {
    Reply::Now(refusal.encode())
}

fn later(answer: impl Future<Output = Result<Vec<u8>, RemoteError>> + 'static) -> Reply {
    let answer: Later = Box::pin(answer);
    Reply::Later(answer)
}

/// Opens a stream, or waits for one that is being prepared.
fn open_stream(open: Open, caller: &Caller) -> Reply {
    let streams = Streams::local();
    let caller = (caller.host_id, caller.shard);
    if let Some(session) = streams.session_of(open.stream, caller) {
        session.asked_at.set(runtime::now());
        return later(session.wait_until_ready());
    }
    let Some(shard) = runtime::local::<Shard>() else {
        return Reply::Err(RemoteError {
            kind: RemoteErrorKind::Refused,
            message: "the node is starting".to_owned(),
        });
    };
    let Some(store) = shard.store(open.table) else {
        return refused(&Refusal::UnknownTable);
    };
    let baseline = Baseline::of(&shard, &store);
    if baseline.truncated_at() != Some(open.truncated_at) {
        return refused(&Refusal::Truncated);
    }
    if streams.closed.borrow().contains(&open.stream) {
        return refused(&Refusal::Ended);
    }
    // The target has begun again.
    let is_former = |other: &Session| {
        let is_same = |a: &Open, b: &Open| (a.stream.session, a.table) == (b.stream.session, b.table);
        other.caller == caller && is_same(&other.open, &open) && have_common(&other.open.ranges, &open.ranges)
    };
    for former in streams.sessions.borrow().values().filter(|other| is_former(other)) {
        former.close();
    }
    if streams.sessions.borrow().len() >= SESSIONS_MAX {
        return refused(&Refusal::Overloaded);
    }
    let spec = replica::kinds::of_range(&kinds::SERVE_STREAM, &store, hull(&open.ranges), 0);
    let task = shard.tasks().start(spec, &Origin::Node);
    task.begin();
    let session = Rc::new(Session {
        caller,
        state: RefCell::new(State::Preparing),
        changed: Notify::new(),
        asked_at: Cell::new(runtime::now()),
        is_closed: Cell::new(false),
        reads: Cell::new(0),
        control: task.control(),
        baseline,
        dir: store.dir.join(STREAMS).join(open.stream.directory()),
        open,
    });
    let id = session.open.stream;
    streams.sessions.borrow_mut().insert(id, session.clone());
    streams.count(|metrics| metrics.serving += 1);
    let serving = session.clone().serve(streams, shard, store, task);
    drop(runtime::spawn_in(Group::BACKGROUND, serving));
    later(session.wait_until_ready())
}

/// Whether two lists of ranges have a token in common. Both are in token order.
fn have_common(mut a: &[TokenRange], mut b: &[TokenRange]) -> bool {
    while let (Some((first_a, rest_a)), Some((first_b, rest_b))) = (a.split_first(), b.split_first()) {
        if first_a.intersects(*first_b) {
            return true;
        }
        if first_a.to <= first_b.to {
            a = rest_a
        } else {
            b = rest_b
        }
    }
    false
}

fn close_stream(stream: StreamId, caller: &Caller) {
    let streams = Streams::local();
    streams.note_closed(stream);
    if let Some(session) = streams.session_of(stream, (caller.host_id, caller.shard)) {
        session.close();
    }
}

fn read_file(read: Read, caller: &Caller) -> Reply {
    let streams = Streams::local();
    let Some(session) = streams.session_of(read.stream, (caller.host_id, caller.shard)) else {
        return refused(&Refusal::Ended);
    };
    session.asked_at.set(runtime::now());
    if read.len == 0 {
        return Reply::Now(vec![GIVEN]);
    }
    let ready = match &*session.state.borrow() {
        State::Ready(ready) => ready.clone(),
        State::Preparing => return rejected(Malformed("the stream's files are not listed yet")),
        State::Ended(refusal) => return refused(refusal),
    };
    let Some((path, file)) = ready.file(&read) else {
        return rejected(Malformed("the stream has no such bytes"));
    };
    if session.reads.get() >= READS_MAX {
        return Reply::Err(RemoteError {
            kind: RemoteErrorKind::Overloaded,
            message: "too many reads of the stream wait".to_owned(),
        });
    }
    let reading = Reading::of(&session);
    later(async move {
        let answer = read_bytes(&streams, &reading.0, path, &read).await?;
        if read.offset + u64::from(read.len) == file.len && answer.first() == Some(&GIVEN) {
            streams.count(|metrics| metrics.sent_files += 1);
        }
        Ok(answer)
    })
}

async fn read_bytes(streams: &Streams, session: &Session, path: PathBuf, read: &Read) -> Result<Vec<u8>, RemoteError> {
    let (len, offset) = (read.len as usize, read.offset);
    let _permit = streams.serving_bytes.acquire(len).await;
    session.control.spend_on_shard(u64::from(read.len)).await;
    streams.pace.wait(u64::from(read.len)).await;
    if let Some(refusal) = session.why_to_end() {
        return Ok(refusal.encode());
    }
    let buffer = runtime::local::<Rpc>().map(|rpc| rpc.buffer(1 + len));
    let mut answer = buffer.unwrap_or_else(|| vec![0; 1 + len]);
    let work = move || -> std::io::Result<Vec<u8>> {
        let file = File::open(&path, OpenOptions::READ)?;
        answer[0] = GIVEN;
        file.read_exact_at_blocking(&mut answer[1..], offset)?;
        Ok(answer)
    };
    match runtime::offload_background(work).await {
        Ok(answer) => {
            session.asked_at.set(runtime::now());
            session.control.advance(len as u64);
            streams.count(|metrics| metrics.sent_bytes += len as u64);
            Ok(answer)
        }
        Err(error) => {
            // The files go when the session ends.
            let refusal = session.why_to_end();
            Ok(refusal.unwrap_or_else(|| Refusal::Failed(error.to_string())).encode())
        }
    }
}

/// A read that runs or waits.
struct Reading(Rc<Session>);

impl Reading {
    fn of(session: &Rc<Session>) -> Self {
        session.reads.set(session.reads.get() + 1);
        Self(Rc::clone(session))
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.reads.set(self.0.reads.get() - 1);
    }
}

impl Ready {
    /// The file that a read is about, if it has the bytes.
    fn file(&self, read: &Read) -> Option<(PathBuf, ListedFile)> {
        let at = usize::try_from(read.sstable).ok()?;
        let (listed, exported) = (self.listed.get(at)?, self.exported.get(at)?);
        let file = listed.files.iter().find(|file| file.component == read.component)?;
        let end = read.offset.checked_add(u64::from(read.len))?;
        (end <= file.len).then(|| (exported.descriptor.path(read.component), *file))
    }
}

impl Streams {
    /// The session of a stream that this caller has opened.
    fn session_of(&self, stream: StreamId, caller: (Uuid, u32)) -> Option<Rc<Session>> {
        let sessions = self.sessions.borrow();
        sessions
            .get(&stream)
            .filter(|session| session.caller == caller)
            .cloned()
    }
}

impl Session {
    fn close(&self) {
        self.is_closed.set(true);
        self.changed.notify_all();
    }

    /// Why nothing more of it is given.
    fn why_to_end(&self) -> Option<Refusal> {
        if self.is_closed.get() {
            return Some(Refusal::Ended);
        }
        if self.control.is_aborted() {
            return Some(Refusal::Aborted);
        }
        self.baseline.check_ranges(&self.open.ranges).err().map(refusal_of)
    }

    fn is_idle(&self) -> bool {
        runtime::now().saturating_duration_since(self.asked_at.get()) >= SESSION_IDLE
    }

    /// The answer to a request to open it.
    async fn wait_until_ready(self: Rc<Self>) -> Result<Vec<u8>, RemoteError> {
        let deadline = runtime::now() + OPEN_WAIT;
        loop {
            let changed = self.changed.notified();
            match &*self.state.borrow() {
                State::Ready(ready) => return Ok(ready.answer.clone()),
                State::Ended(refusal) => return Ok(refusal.encode()),
                State::Preparing => {}
            }
            if runtime::timeout_at(deadline, changed).await.is_err() {
                return Ok(Opened::Preparing.encode());
            }
        }
    }

    /// The life of the session.
    async fn serve(self: Rc<Self>, streams: Rc<Streams>, shard: Rc<Shard>, store: Rc<TableStore>, task: Task) {
        let watching = self.clone().watch(shard.tasks().clone(), task.id());
        let watching = runtime::spawn_in(Group::BACKGROUND, watching);
        let ended = match self.prepare(&shard, &store, &task).await {
            Ok(ready) => {
                *self.state.borrow_mut() = State::Ready(Rc::new(ready));
                self.changed.notify_all();
                watching.await
            }
            // A session that was closed has its task aborted.
            Err(_) if self.is_closed.get() => Ok(()),
            Err(refusal) => Err(refusal),
        };
        let refusal = ended.clone().err().unwrap_or(Refusal::Ended);
        *self.state.borrow_mut() = State::Ended(refusal);
        self.changed.notify_all();
        streams.sessions.borrow_mut().remove(&self.open.stream);
        streams.count(|metrics| {
            metrics.serving -= 1;
            metrics.failed_serving += u64::from(ended.is_err());
        });
        remove_dir(self.dir.clone()).await;
        task.end(&ended);
    }

    /// Waits until the session is to end. Ok: the target has closed it. While the copy is made, its task is aborted
    /// then.
    async fn watch(self: Rc<Self>, tasks: Arc<Tasks>, task: Uuid) -> Result<(), Refusal> {
        loop {
            let changed = self.changed.notified();
            if let State::Ended(_) = &*self.state.borrow() {
                return Ok(());
            }
            let reason = self.why_to_end();
            if reason.is_some() || self.is_idle() {
                if matches!(&*self.state.borrow(), State::Preparing) {
                    // It has ended already where this fails.
                    let _ = tasks.abort(task);
                }
                return match reason {
                    Some(Refusal::Ended) => Ok(()),
                    Some(refusal) => Err(refusal),
                    None => Err(Refusal::Failed(
                        "the other node has asked for nothing for too long".to_owned(),
                    )),
                };
            }
            // Late or changed, it looks again.
            let _ = runtime::timeout(LOOK_PERIOD, changed).await;
        }
    }

    async fn prepare(&self, shard: &Rc<Shard>, store: &Rc<TableStore>, task: &Task) -> Result<Ready, Refusal> {
        let columns = store.table().columns_text();
        let wanted = ExportRequest {
            ranges: &self.open.ranges,
            bytes: self.open.bytes,
            sstables: SSTABLES_MAX,
            with_record: self.open.with_marks,
        };
        let exported = shard.export(store, wanted, &self.dir, (task, &self.baseline));
        let exported = exported.await.map_err(|error| match error {
            ExportError::NotHere => Refusal::NotHere,
            ExportError::Missing(names) => Refusal::Missing(names.join(", ")),
            ExportError::Lost(lost) => refusal_of(lost),
            ExportError::Aborted => Refusal::Aborted,
            ExportError::Damaged(reason) | ExportError::Failed(reason) => Refusal::Failed(reason),
        })?;
        let Exports {
            ranges,
            sstables: exported,
            record,
        } = exported;
        if exported.len() > SSTABLES_MAX {
            return Err(Refusal::Failed(format!(
                "the range has {} sstables, and a stream may have {SSTABLES_MAX}: compact the table",
                exported.len()
            )));
        }
        let mut listed = Vec::with_capacity(exported.len());
        for one in exported.clone() {
            if let Some(refusal) = self.why_to_end() {
                return Err(refusal);
            }
            let of_one = runtime::offload_background(move || list_files(&one)).await;
            listed.push(of_one.map_err(Refusal::Failed)?);
        }
        if columns != store.table().columns_text() {
            let reason = "the table was altered while its sstables were copied";
            return Err(Refusal::Failed(reason.to_owned()));
        }
        let record = record.filter(|record| record.since > 0);
        let marks = record.map(|record| ListedMarks {
            session: record.session,
            replicas: record.replicas,
            since: record.since,
            at: record.at,
            is_marked: exported.iter().map(|one| one.is_repaired).collect(),
        });
        let manifest = Manifest {
            columns,
            sstables: listed,
            marks,
        };
        task.set_total(manifest.bytes());
        let listed = manifest.sstables.clone();
        Ok(Ready {
            answer: Opened::Ready(ranges, manifest).encode(),
            exported,
            listed,
        })
    }
}

fn refusal_of(lost: Lost) -> Refusal {
    match lost {
        Lost::Dropped => Refusal::UnknownTable,
        Lost::Truncated => Refusal::Truncated,
        Lost::Left => Refusal::NotHere,
    }
}

/// Removes the directory of a stream. What cannot be removed goes at the next start.
pub(crate) async fn remove_dir(dir: PathBuf) {
    let work = move || {
        if fs::exists(&dir) {
            fs::remove_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))
        } else {
            Ok(())
        }
    };
    if let Err(error) = runtime::offload_background(work).await {
        log::warn!("cannot remove the files of a stream, which the next start removes: {error}");
    }
}

/// The files of an sstable with their lengths and checksums. Blocks.
fn list_files(exported: &Exported) -> Result<ListedSstable, String> {
    let descriptor = &exported.descriptor;
    let digest = digest_of(exported);
    let mut files = Vec::with_capacity(exported.components.len());
    for component in &exported.components {
        let path = descriptor.path(*component);
        let known = digest.filter(|_| *component == Component::Data);
        let (len, crc) = checksum(&path, known).map_err(|e| format!("{}: {e}", path.display()))?;
        files.push(ListedFile {
            component: *component,
            len,
            crc,
        });
    }
    // The list of components is written last: without it nothing is an sstable.
    files.sort_by_key(|file| file.component == Component::Toc);
    Ok(ListedSstable {
        version: descriptor.version,
        files,
    })
}

/// The checksum of Data.db that the sstable brings along. Only of what ceto wrote: others may leave out the end of the
/// file.
fn digest_of(exported: &Exported) -> Option<u32> {
    let has = |component| exported.components.contains(&component);
    if !has(Component::Checksums) || !has(Component::Digest) {
        return None;
    }
    let text = fs::read(exported.descriptor.path(Component::Digest)).ok()?;
    String::from_utf8(text).ok()?.trim().parse().ok()
}

/// Length and checksum of a file; it is read only where the checksum is not known.
fn checksum(path: &std::path::Path, known: Option<u32>) -> std::io::Result<(u64, u32)> {
    let file = File::open(path, OpenOptions::READ)?;
    let len = file.len()?;
    if let Some(crc) = known {
        return Ok((len, crc));
    }
    let (mut hasher, mut buffer, mut at) = (crc32fast::Hasher::new(), Vec::new(), 0);
    while at < len {
        let step = usize::try_from((len - at).min(STEP_BYTES as u64)).expect("a megabyte");
        buffer.resize(step, 0);
        file.read_exact_at_blocking(&mut buffer, at)?;
        hasher.update(&buffer);
        at += step as u64;
    }
    Ok((len, hasher.finalize()))
}
