//! Reading the files of a copy from its source: chunks in flight, written and checked in order.
//!
//! Requests go out ahead of what is written, over the ends of files, so that small files cost no round trip each.
//! Answers are taken in the order of the requests, which makes one pass of the checksum enough. Writing, checksums and
//! syncs are done by threads of the runtime's pool; syncs beside the next writes, at most [`SYNCS_MAX`] of them.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use crc32fast::Hasher;
use rpc::{Call, Rpc, RpcError};
use runtime::JoinHandle;
use runtime::fs::{File, OpenOptions};
use sstable::{Descriptor, Generation};

use crate::CHUNK_BYTES;
use crate::error::StreamError;
use crate::manifest::{ListedFile, Manifest};
use crate::message::{self, Read, StreamId, decode_bytes};
use crate::source::SESSION_IDLE;
use crate::streams::Streams;
use crate::target::{IN_FLIGHT_BYTES_MAX, Source, Stop};

/// Bytes of a request. The answer passes through a shard's thread of each node, where it is copied and its checksum
/// computed: with 2 MiB, reads waited for 10 ms and more, most of it for fresh pages of memory. The file's pages are
/// written whole.
const ASKED_BYTES: usize = 252 << 10;
/// Most requests of a stream in flight, however short; a source takes 32.
const IN_FLIGHT_MAX: usize = 32;
/// How long a source may take to say how far its copy is.
const OPEN_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a read may take: a source with little bandwidth makes it wait. That the source is gone shows by its
/// connection.
const READ_TIMEOUT: Duration = Duration::from_mins(2);
/// How often a request is made again before its source counts as gone.
const RETRIES: u32 = 5;
/// The pause before the first repetition; each further one is twice as long.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// How often a target that waits for its own bandwidth signals to the source that it is there.
const KEEP_OPEN_PERIOD: Duration = SESSION_IDLE.checked_div(4).expect("four is not zero");
/// Bytes of a file between two syncs.
const SYNC_BYTES: u64 = 64 << 20;
/// Syncs that may run beside the writes.
const SYNCS_MAX: usize = 2;

/// The source of a copy, and how it is asked.
pub(crate) struct Asking<'a> {
    pub(crate) rpc: &'a Rc<Rpc>,
    pub(crate) source: &'a Source,
    pub(crate) stop: &'a Stop,
}

impl Asking<'_> {
    fn call(&self, verb: u16, body: Vec<u8>) -> Call {
        let Source { peer, shard } = self.source;
        let timeout = match verb {
            message::OPEN => OPEN_TIMEOUT,
            _ => READ_TIMEOUT,
        };
        self.rpc.call(peer, *shard, verb, body, timeout)
    }

    /// The answer to a request that has perhaps been made already; it is made again where it failed in passing.
    pub(crate) async fn answer(
        &self,
        verb: u16,
        body: impl Fn() -> Vec<u8>,
        first: Option<First>,
    ) -> Result<Vec<u8>, StreamError> {
        let mut result = match first {
            Some(First::Answered(result)) => result,
            Some(First::Call(call)) => self.stop.or(call).await?,
            None => self.stop.or(self.call(verb, body())).await?,
        };
        let mut pause = RETRY_PAUSE;
        for attempt in 0.. {
            match result {
                Ok(answer) => return Ok(answer),
                Err(error) if attempt < RETRIES && error.is_passing() => {}
                Err(error) => return Err(self.unreachable(error)),
            }
            self.stop.or(runtime::sleep(pause)).await?;
            pause *= 2;
            result = self.stop.or(self.call(verb, body())).await?;
        }
        unreachable!("attempts are counted")
    }

    fn unreachable(&self, error: RpcError) -> StreamError {
        StreamError::Unreachable {
            host: self.source.peer.host_id,
            shard: self.source.shard,
            error,
        }
    }
}

/// A request that was made ahead.
pub(crate) enum First {
    Call(Call),
    /// It was looked at already.
    Answered(Result<Vec<u8>, RpcError>),
}

impl First {
    /// Whether its answer has come, and is no error.
    async fn is_answered(&mut self) -> bool {
        if let Self::Call(call) = self {
            let now = poll_fn(|context| match Pin::new(&mut *call).poll(context) {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending => Poll::Ready(None),
            });
            let Some(result) = now.await else { return false };
            *self = Self::Answered(result);
        }
        matches!(self, Self::Answered(Ok(_)))
    }
}

/// A part of a file.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    sstable: usize,
    file: ListedFile,
    offset: u64,
    len: usize,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.offset + self.len as u64
    }

    fn is_last(&self) -> bool {
        self.end() == self.file.len
    }
}

/// All chunks of a copy, file by file. An empty file has one.
fn chunks(manifest: &Manifest) -> impl Iterator<Item = Chunk> {
    let of_file = |(sstable, file): (usize, ListedFile)| {
        let count = file.len.div_ceil(ASKED_BYTES as u64).max(1);
        (0..count).map(move |number| {
            let offset = number * ASKED_BYTES as u64;
            let left = usize::try_from(file.len - offset).unwrap_or(usize::MAX);
            Chunk {
                sstable,
                file,
                offset,
                len: left.min(ASKED_BYTES),
            }
        })
    };
    let sstables = manifest.sstables.iter().enumerate();
    let files = sstables.flat_map(|(at, sstable)| sstable.files.iter().map(move |file| (at, *file)));
    files.flat_map(of_file)
}

/// A file that is being written.
struct Written {
    path: PathBuf,
    file: File,
    crc: Hasher,
    synced: u64,
}

/// The name of an sstable of a copy: its number in the list, whatever it is called elsewhere.
pub(crate) fn descriptor_of(dir: &Path, manifest: &Manifest, at: usize) -> Descriptor {
    Descriptor {
        dir: dir.to_owned(),
        version: manifest.sstables[at].version,
        generation: Generation::Number(at as u64 + 1),
    }
}

/// Reads all files of a copy into a directory, durably, and checks them against the list.
pub(crate) async fn receive(
    asking: &Asking<'_>,
    streams: &Streams,
    (stream, manifest): (StreamId, &Manifest),
    dir: &Path,
) -> Result<(), StreamError> {
    let mut syncs = Syncs::default();
    let received = receive_files(asking, streams, (stream, manifest), dir, &mut syncs).await;
    // No sync of a file is under way when its directory goes.
    let synced = syncs.end().await;
    received.and(synced)
}

async fn receive_files(
    asking: &Asking<'_>,
    streams: &Streams,
    (stream, manifest): (StreamId, &Manifest),
    dir: &Path,
    syncs: &mut Syncs,
) -> Result<(), StreamError> {
    let mut to_ask = chunks(manifest).peekable();
    let mut in_flight: VecDeque<(Chunk, Option<First>)> = VecDeque::new();
    let mut in_flight_bytes = 0;
    let mut written: Option<Written> = None;
    let request = |chunk: &Chunk| {
        let len = u32::try_from(chunk.len).expect("a chunk is short");
        let read = Read {
            stream,
            sstable: chunk.sstable as u64,
            component: chunk.file.component,
            offset: chunk.offset,
            len,
        };
        read.encode()
    };
    loop {
        while let Some(chunk) = to_ask.peek().copied() {
            let is_full = in_flight.len() >= IN_FLIGHT_MAX || in_flight_bytes + chunk.len > IN_FLIGHT_BYTES_MAX;
            if is_full && !in_flight.is_empty() {
                break;
            }
            to_ask.next();
            let call = if chunk.len == 0 {
                None
            } else {
                spend(asking, stream, chunk.len as u64).await?;
                asking.stop.or(streams.pace.wait(chunk.len as u64)).await?;
                Some(First::Call(asking.call(message::READ, request(&chunk))))
            };
            in_flight_bytes += chunk.len;
            in_flight.push_back((chunk, call));
        }
        // What has come of a file while the chunks before it were written is written at once.
        let mut come: Vec<Come> = Vec::new();
        let mut come_bytes = 0;
        while let Some((chunk, call)) = in_flight.front_mut() {
            if let Some((before, _)) = come.last()
                && (before.is_last() || come_bytes + chunk.len > CHUNK_BYTES || !is_answered(call).await)
            {
                break;
            }
            let Some((chunk, call)) = in_flight.pop_front() else {
                break;
            };
            let mut answer = Vec::new();
            if let Some(call) = call {
                answer = asking.answer(message::READ, || request(&chunk), Some(call)).await?;
                check_answer(asking, &answer, &chunk)?;
            }
            come_bytes += chunk.len;
            come.push((chunk, answer));
        }
        let Some((chunk, _)) = come.last() else { return Ok(()) };
        let chunk = *chunk;
        in_flight_bytes -= come_bytes;
        let path = descriptor_of(dir, manifest, chunk.sstable).path(chunk.file.component);
        let (file, is_sync_due) = write(asking.rpc, written.take(), path, come).await?;
        asking.stop.control.advance(come_bytes as u64);
        streams.count(|metrics| metrics.received_bytes += come_bytes as u64);
        let is_whole = chunk.is_last();
        if is_whole || is_sync_due {
            syncs.begin(&file).await?;
        }
        if is_whole {
            check_file(asking, file, &chunk)?;
            streams.count(|metrics| metrics.received_files += 1);
        } else {
            written = Some(file);
        }
    }
}

async fn is_answered(call: &mut Option<First>) -> bool {
    match call {
        Some(call) => call.is_answered().await,
        None => true,
    }
}

/// Waits until the bandwidth of the class allows so many bytes, and keeps the stream open while it waits.
async fn spend(asking: &Asking<'_>, stream: StreamId, bytes: u64) -> Result<(), StreamError> {
    let mut spending = pin!(asking.stop.control.spend_on_shard(bytes));
    loop {
        match asking
            .stop
            .or(runtime::timeout(KEEP_OPEN_PERIOD, spending.as_mut()))
            .await?
        {
            Ok(()) => return Ok(()),
            Err(_) => {
                let nothing = || Read::nothing(stream).encode();
                drop(asking.answer(message::READ, nothing, None).await?);
            }
        }
    }
}

fn check_answer(asking: &Asking<'_>, answer: &[u8], chunk: &Chunk) -> Result<(), StreamError> {
    match decode_bytes(answer) {
        Ok(Ok(bytes)) if bytes.len() == chunk.len => Ok(()),
        Ok(Ok(bytes)) => Err(StreamError::Damaged(format!(
            "node {} answered with {} bytes of {} where {} were asked for",
            asking.source.peer.host_id,
            bytes.len(),
            chunk.file.component.suffix(),
            chunk.len
        ))),
        Ok(Err(refusal)) => Err(asking.source.refused(refusal)),
        Err(malformed) => Err(asking.source.malformed(malformed)),
    }
}

/// A chunk with the answer that has it.
type Come = (Chunk, Vec<u8>);

/// Appends chunks to a file and returns whether the file should be synced. The first call creates the file.
async fn write(
    rpc: &Rpc,
    written: Option<Written>,
    path: PathBuf,
    come: Vec<Come>,
) -> Result<(Written, bool), StreamError> {
    let name = path.clone();
    let work = move || -> std::io::Result<(Written, bool, Vec<Come>)> {
        let mut written = match written {
            Some(written) => written,
            None => Written {
                file: File::open(&path, OpenOptions::CREATE_NEW)?,
                path,
                crc: Hasher::new(),
                synced: 0,
            },
        };
        let mut end = 0;
        for (chunk, answer) in &come {
            let bytes = answer.get(1..).unwrap_or_default();
            written.file.write_all_at_blocking(bytes, chunk.offset)?;
            written.crc.update(bytes);
            end = chunk.end();
        }
        let is_sync_due = end - written.synced >= SYNC_BYTES;
        if is_sync_due {
            written.synced = end;
        }
        Ok((written, is_sync_due, come))
    };
    let (written, is_sync_due, read) = runtime::offload_background(work)
        .await
        .map_err(|e| StreamError::of_io(&name, &e))?;
    for (_, answer) in read {
        rpc.give_back(answer);
    }
    Ok((written, is_sync_due))
}

fn check_file(asking: &Asking<'_>, written: Written, chunk: &Chunk) -> Result<(), StreamError> {
    let (found, listed) = (written.crc.finalize(), chunk.file.crc);
    if found == listed {
        return Ok(());
    }
    Err(StreamError::Damaged(format!(
        "{} of sstable {} from node {}: expected checksum {listed:08x}, found {found:08x}",
        chunk.file.component.suffix(),
        chunk.sstable,
        asking.source.peer.host_id
    )))
}

/// Syncs that run beside the writes.
#[derive(Default)]
struct Syncs(VecDeque<(PathBuf, JoinHandle<std::io::Result<()>>)>);

impl Syncs {
    async fn begin(&mut self, written: &Written) -> Result<(), StreamError> {
        while self.0.len() >= SYNCS_MAX {
            self.end_one().await?;
        }
        let file = written.file.clone();
        let syncing = async move { runtime::offload_background(move || file.sync_data_blocking()).await };
        self.0.push_back((written.path.clone(), runtime::spawn(syncing)));
        Ok(())
    }

    async fn end_one(&mut self) -> Result<(), StreamError> {
        match self.0.pop_front() {
            Some((path, syncing)) => syncing.await.map_err(|e| StreamError::of_io(&path, &e)),
            None => Ok(()),
        }
    }

    async fn end(mut self) -> Result<(), StreamError> {
        let mut result = Ok(());
        while !self.0.is_empty() {
            let ended = self.end_one().await;
            result = result.and(ended);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::ListedSstable;
    use sstable::{Component, Version};

    #[test]
    fn a_file_is_cut_into_chunks_that_have_each_byte_once() {
        let chunk = ASKED_BYTES as u64;
        for len in [0, 1, chunk - 1, chunk, chunk + 1, 3 * chunk] {
            let file = ListedFile {
                component: Component::Data,
                len,
                crc: 0,
            };
            let sstable = ListedSstable {
                version: Version::Me,
                files: vec![file],
            };
            let manifest = Manifest {
                columns: String::new(),
                sstables: vec![sstable],
                marks: None,
            };
            let mut at = 0;
            for chunk in chunks(&manifest) {
                assert_eq!(chunk.offset, at, "{len}");
                assert!(chunk.len > 0 || len == 0, "{len}");
                at += chunk.len as u64;
            }
            assert_eq!(at, len);
            assert!(chunks(&manifest).count() > 0, "an empty file is made too");
        }
    }
}
