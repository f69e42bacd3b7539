//! What a connection has read and not executed.
//!
//! A connection has [`INPUT_BYTES_FIRST`] of its own, and [`INPUT_BYTES`] once it fills them, as long as the shard's
//! part for that lasts. A frame that is longer reserves memory of the shard before it is buffered: for all of it at
//! once, so that no two frames wait for each other. Until there is memory the connection is not read; after
//! [`RESERVE_TIME_MAX`] it ends. A frame that has memory must be complete in time ([`frame_time`]): else it would keep
//! the memory from others.
//!
//! On a connection with TLS, what is read is decrypted into the buffer. A record that was not whole before may make
//! that longer than was reserved, by [`RECORD_BYTES_MAX`].

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use runtime::net::ReadHalf;
use runtime::{Instant, Permit};

use crate::client_memory::Memory;
use crate::tls::SharedTls;

/// Every connection has a read buffer of so many bytes.
pub(crate) const INPUT_BYTES_FIRST: usize = 2 << 10;

/// The read buffer of a connection that fills the first one.
pub(crate) const INPUT_BYTES: usize = 16 << 10;

/// A connection that waits reads so many bytes ahead, to see whether its client goes.
const WATCH_BYTES: usize = 512;

/// The longest record of TLS.
const RECORD_BYTES_MAX: usize = 17 << 10;

/// How long a frame waits for memory.
const RESERVE_TIME_MAX: Duration = Duration::from_secs(10);

/// The time of a frame that has memory: so long, and a second for each so many bytes.
const FRAME_TIME: Duration = Duration::from_secs(10);
const FRAME_BYTES_A_SECOND: usize = 256 << 10;

/// How long a frame of this size may take from when it has memory.
fn frame_time(bytes: usize) -> Duration {
    FRAME_TIME + Duration::from_millis(1000 * bytes as u64 / FRAME_BYTES_A_SECOND as u64)
}

/// What cuts the bytes of a connection into requests, as far as their memory goes.
pub trait Framer {
    /// The size of the buffer that the next request needs, as far as that is known.
    fn wanted_bytes(&self) -> usize;

    /// Bytes that it needs besides, to be decompressed or put together.
    fn wanted_scratch_bytes(&self) -> usize {
        0
    }

    /// Its memory is reserved: it may use so many of these bytes.
    fn allow_scratch(&mut self, _bytes: usize) {}

    /// What it had besides is given back, unless the next request is in it.
    fn release_scratch(&mut self) {}

    /// Whether it has more memory of its own than it may keep.
    fn has_scratch(&self) -> bool {
        false
    }
}

/// See the module.
pub struct Input {
    bytes: Vec<u8>,
    tls: Option<SharedTls>,
    /// Memory for a buffer of usual size.
    usual: Option<Permit>,
    long: Option<LongFrame>,
}

/// The memory of a frame that is longer than the buffer.
struct LongFrame {
    bytes: usize,
    deadline: Instant,
    _memory: Permit,
}

/// Why a connection is not read further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unread {
    /// The client ended it, or the network did.
    Ended,
    /// A frame found no memory in time.
    NoMemory(usize),
    /// A frame that has memory was not complete in time.
    Late(usize),
}

impl Input {
    /// Begins with what the handshake left.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            tls: None,
            usual: None,
            long: None,
        }
    }

    /// Of a connection that may have TLS; begins with what followed the handshake.
    #[must_use]
    pub fn secured(bytes: Vec<u8>, tls: Option<SharedTls>) -> Self {
        Self {
            tls,
            ..Self::new(bytes)
        }
    }

    /// What was read.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Works on what was read on a thread of the pool, such as to decompress it.
    pub async fn offload<T: Send + 'static>(&mut self, work: impl FnOnce(&[u8]) -> T + Send + 'static) -> T {
        let bytes = std::mem::take(&mut self.bytes);
        let (bytes, result) = runtime::offload(move || {
            let result = work(&bytes);
            (bytes, result)
        })
        .await;
        self.bytes = bytes;
        result
    }

    /// The size that the buffer may always have.
    fn own_bytes(&self) -> usize {
        if self.usual.is_some() {
            INPUT_BYTES
        } else {
            INPUT_BYTES_FIRST
        }
    }

    /// Waits for the memory that the frame under way needs, if it needs some.
    pub(crate) async fn reserve(&mut self, memory: &Memory, framer: &mut impl Framer) -> Result<(), Unread> {
        let beyond = |bytes: usize, free: usize| if bytes > free { bytes } else { 0 };
        let scratch = framer.wanted_scratch_bytes();
        let wanted = beyond(framer.wanted_bytes(), self.own_bytes()) + scratch;
        if wanted > self.long.as_ref().map_or(0, |long| long.bytes) {
            let reserved = runtime::timeout(RESERVE_TIME_MAX, memory.frames.acquire(wanted)).await;
            self.long = Some(LongFrame {
                bytes: wanted,
                deadline: runtime::now() + frame_time(wanted),
                _memory: reserved.map_err(|_| Unread::NoMemory(wanted))?,
            });
        }
        framer.allow_scratch(scratch);
        Ok(())
    }

    /// Waits for `turn`. Fails if the client ends the connection first, unless it has sent more requests before that.
    pub(crate) async fn wait(&mut self, reader: &mut ReadHalf, turn: impl Future<Output = ()>) -> Result<(), Unread> {
        let mut turn = pin!(turn);
        let mut more = pin!(reader.read(Vec::with_capacity(WATCH_BYTES)));
        let read = poll_fn(|context| match turn.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => more.as_mut().poll(context).map(Some),
        });
        match read.await {
            None => return Ok(()),
            Some((Ok(1..), bytes)) => match &self.tls {
                None => self.bytes.extend_from_slice(&bytes),
                Some(tls) => {
                    let opened = tls.borrow_mut().open(&bytes, &mut self.bytes);
                    opened.map_err(|_| Unread::Ended)?;
                }
            },
            Some(_) => return Err(Unread::Ended),
        }
        turn.await;
        Ok(())
    }

    /// Reads more.
    pub(crate) async fn read(
        &mut self,
        reader: &mut ReadHalf,
        memory: &Memory,
        framer: &impl Framer,
    ) -> Result<(), Unread> {
        let size = framer.wanted_bytes().max(self.own_bytes());
        if let Some(tls) = self.tls.clone() {
            return self.read_secured(reader, memory, (&tls, size)).await;
        }
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
        self.read_ended(&result, memory)
    }

    /// Reads more of a connection with TLS, into a buffer that is to have `size`.
    async fn read_secured(
        &mut self,
        reader: &mut ReadHalf,
        memory: &Memory,
        (tls, size): (&SharedTls, usize),
    ) -> Result<(), Unread> {
        let before = self.bytes.len();
        if self.bytes.capacity() < size {
            self.bytes.reserve_exact(size - before);
        }
        while self.bytes.len() == before {
            let room = (size.saturating_sub(before)).clamp(WATCH_BYTES, RECORD_BYTES_MAX);
            let received = Vec::with_capacity(room.min(self.own_bytes().max(INPUT_BYTES_FIRST)));
            let (result, received) = match &self.long {
                None => reader.read(received).await,
                Some(long) => runtime::timeout_at(long.deadline, reader.read(received))
                    .await
                    .map_err(|_| Unread::Late(long.bytes))?,
            };
            if !matches!(result, Ok(1..)) {
                return Err(Unread::Ended);
            }
            let opened = tls.borrow_mut().open(&received, &mut self.bytes);
            opened.map_err(|_| Unread::Ended)?;
        }
        if self.usual.is_none() && self.bytes.len() >= INPUT_BYTES_FIRST {
            self.usual = memory.buffers.try_acquire(INPUT_BYTES - INPUT_BYTES_FIRST);
        }
        Ok(())
    }

    fn read_ended(&mut self, result: &io::Result<usize>, memory: &Memory) -> Result<(), Unread> {
        if !matches!(result, Ok(count) if *count > 0) {
            return Err(Unread::Ended);
        }
        if self.usual.is_none() && self.bytes.len() == self.bytes.capacity() {
            self.usual = memory.buffers.try_acquire(INPUT_BYTES - INPUT_BYTES_FIRST);
        }
        Ok(())
    }

    /// Takes the first bytes out without a copy of them; [`Input::consume`] gives their memory back.
    pub fn take(&mut self, bytes: usize) -> Vec<u8> {
        let rest = self.bytes.split_off(bytes);
        std::mem::replace(&mut self.bytes, rest)
    }

    /// Forgets what was executed, and gives back what that needed.
    pub fn consume(&mut self, consumed: usize, framer: &mut impl Framer) {
        self.bytes.drain(..consumed);
        framer.release_scratch();
        let own = self.own_bytes();
        if self.bytes.len() >= own {
            return;
        }
        if self.bytes.capacity() > own {
            let mut bytes = Vec::with_capacity(own);
            bytes.extend_from_slice(&self.bytes);
            self.bytes = bytes;
        }
        if !framer.has_scratch() {
            self.long = None;
        }
    }
}
