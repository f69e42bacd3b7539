//! What a connection has read and not executed.
//!
//! A connection has [`INPUT_BYTES_FIRST`] of its own, and [`INPUT_BYTES`] once it fills them, as long as the shard's
//! part for that lasts. A frame that is longer takes room of the shard before it is buffered: for all of it at once, so
//! that no two frames wait for each other. Until there is room the connection is not read; after [`ROOM_WAIT_MAX`] it
//! ends. A frame that has room must be complete in time ([`frame_time`]): else it would keep the room from others.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use cql_protocol::{CompressedBody, DecompressedBody, Splitter};
use runtime::net::ReadHalf;
use runtime::{Instant, Permit};

use crate::Server;

/// Every connection has a read buffer of so many bytes.
pub(crate) const INPUT_BYTES_FIRST: usize = 2 << 10;

/// The read buffer of a connection that fills the first one.
pub(crate) const INPUT_BYTES: usize = 16 << 10;

/// A connection that waits reads so many bytes ahead, to see whether its client goes.
const WATCH_BYTES: usize = 512;

/// How long a frame waits for room.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(10);

/// The time of a frame that has room: so long, and a second for each so many bytes.
const FRAME_TIME: Duration = Duration::from_secs(10);
const FRAME_BYTES_A_SECOND: usize = 256 << 10;

/// How long a frame of this size may take from when it has room.
fn frame_time(bytes: usize) -> Duration {
    FRAME_TIME + Duration::from_millis(1000 * bytes as u64 / FRAME_BYTES_A_SECOND as u64)
}

/// See the module.
pub(crate) struct Input {
    bytes: Vec<u8>,
    /// Room for a buffer of usual size.
    usual: Option<Permit>,
    long: Option<LongFrame>,
}

/// The room of a frame that is longer than the buffer.
struct LongFrame {
    bytes: usize,
    deadline: Instant,
    _room: Permit,
}

/// Why a connection is not read further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unread {
    /// The client ended it, or the network did.
    Ended,
    /// A frame found no room in time.
    NoRoom(usize),
    /// A frame that has room was not complete in time.
    Late(usize),
}

impl Input {
    /// Begins with what the handshake left.
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            usual: None,
            long: None,
        }
    }

    /// What was read.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Decompresses a long body on a thread of the pool; what was read begins with the consumed bytes.
    pub(crate) async fn decompress(&mut self, body: CompressedBody, consumed: usize) -> DecompressedBody {
        let bytes = std::mem::take(&mut self.bytes);
        let (bytes, body) = runtime::offload(move || {
            let body = body.decompress(&bytes[consumed..]);
            (bytes, body)
        })
        .await;
        self.bytes = bytes;
        body
    }

    /// The size that the buffer may always have.
    fn own_bytes(&self) -> usize {
        if self.usual.is_some() {
            INPUT_BYTES
        } else {
            INPUT_BYTES_FIRST
        }
    }

    /// Waits for the room that the frame under way needs, if it needs some.
    pub(crate) async fn make_room(&mut self, server: &Server, splitter: &mut Splitter) -> Result<(), Unread> {
        let beyond = |bytes: usize, free: usize| if bytes > free { bytes } else { 0 };
        let scratch = splitter.wanted_scratch_bytes();
        let wanted = beyond(splitter.wanted_bytes(), self.own_bytes()) + scratch;
        if wanted > self.long.as_ref().map_or(0, |long| long.bytes) {
            let room = runtime::timeout(ROOM_WAIT_MAX, server.frame_room.acquire(wanted)).await;
            self.long = Some(LongFrame {
                bytes: wanted,
                deadline: runtime::now() + frame_time(wanted),
                _room: room.map_err(|_| Unread::NoRoom(wanted))?,
            });
        }
        splitter.allow_scratch(scratch);
        Ok(())
    }

    /// Waits for `turn`, and looks meanwhile whether the client ends the connection, unless it has sent more requests.
    pub(crate) async fn wait(&mut self, reader: &mut ReadHalf, turn: impl Future<Output = ()>) -> Result<(), Unread> {
        let mut turn = pin!(turn);
        let mut more = pin!(reader.read(Vec::with_capacity(WATCH_BYTES)));
        let read = poll_fn(|context| match turn.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => more.as_mut().poll(context).map(Some),
        });
        match read.await {
            None => return Ok(()),
            Some((Ok(1..), bytes)) => self.bytes.extend_from_slice(&bytes),
            Some(_) => return Err(Unread::Ended),
        }
        turn.await;
        Ok(())
    }

    /// Reads more.
    pub(crate) async fn read(
        &mut self,
        reader: &mut ReadHalf,
        server: &Server,
        splitter: &Splitter,
    ) -> Result<(), Unread> {
        let size = splitter.wanted_bytes().max(self.own_bytes());
        let mut bytes = std::mem::take(&mut self.bytes);
        if bytes.capacity() < size {
            bytes.reserve_exact(size - bytes.len());
        }
        let (result, bytes) = match &self.long {
            None => reader.read(bytes).await,
            Some(long) => runtime::timeout_at(long.deadline, reader.read(bytes))
                .await
                .map_err(|_| Unread::Late(long.bytes))?,
        };
        self.bytes = bytes;
        self.read_ended(&result, server)
    }

    fn read_ended(&mut self, result: &io::Result<usize>, server: &Server) -> Result<(), Unread> {
        if !matches!(result, Ok(count) if *count > 0) {
            return Err(Unread::Ended);
        }
        if self.usual.is_none() && self.bytes.len() == self.bytes.capacity() {
            self.usual = server.buffer_room.try_acquire(INPUT_BYTES - INPUT_BYTES_FIRST);
        }
        Ok(())
    }

    /// Forgets what was executed, and gives back what that needed.
    pub(crate) fn consume(&mut self, consumed: usize, splitter: &mut Splitter) {
        self.bytes.drain(..consumed);
        splitter.release_scratch();
        let own = self.own_bytes();
        if self.bytes.len() >= own {
            return;
        }
        if self.bytes.capacity() > own {
            let mut bytes = Vec::with_capacity(own);
            bytes.extend_from_slice(&self.bytes);
            self.bytes = bytes;
        }
        if !splitter.has_scratch() {
            self.long = None;
        }
    }
}
