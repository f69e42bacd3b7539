//! A connection before and after its hello: the exchange of single messages, then the stream of frames.

use crate::LONG_BODY_BYTES;
use crate::Rpc;
use crate::codec::Compression;
use crate::error::Ended;
use crate::frame::{self, Frame, HEADER_BYTES};
use crate::hello;
use crate::outbox::{Outbox, Wire};
use crate::tls::Session;
use runtime::Instant;
use runtime::net::{DetachedStream, Fate, ReadHalf, TcpStream, WriteHalf};
use std::cell::RefCell;
use std::net::Shutdown;
use std::rc::Rc;
use std::time::Duration;

/// A read buffer begins with this size and returns to it.
const INPUT_BYTES: usize = 4 << 10;
/// Room for a read when much arrives.
const READ_BYTES: usize = 64 << 10;
/// Room for a read of TLS: its longest record.
const RECORD_BYTES: usize = 16 << 10;
/// Memory that a header gets for its body before the body has come.
const PROMISED_BYTES: usize = 256 << 10;
/// An empty buffer above this size is given back.
const KEPT_BYTES: usize = 512 << 10;
/// How long, and for how many bytes, an end that was refused is read from, so that it sees the reason before the
/// connection is reset.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 256 << 10;

/// A connection that exchanges messages one by one.
pub(crate) struct Channel {
    stream: TcpStream,
    session: Option<Session>,
    plain: Vec<u8>,
}

/// A channel on its way to another shard.
pub(crate) struct DetachedChannel {
    stream: DetachedStream,
    session: Option<Session>,
}

impl DetachedChannel {
    pub(crate) fn attach(self) -> Channel {
        Channel {
            stream: self.stream.attach(),
            session: self.session,
            plain: Vec::new(),
        }
    }
}

impl Channel {
    pub(crate) fn new(stream: TcpStream, session: Option<Session>) -> Self {
        // Without it small frames wait for acknowledgements of others; a socket without the option still works.
        let _ = stream.set_nodelay(true);
        Self {
            stream,
            session,
            plain: Vec::new(),
        }
    }

    pub(crate) fn peer_addr(&self) -> std::io::Result<std::net::SocketAddr> {
        self.stream.peer_addr()
    }

    async fn flush_tls(&mut self) -> Result<(), Ended> {
        let mut out = Vec::new();
        if let Some(session) = &mut self.session {
            session.encrypt(&[], &mut out)?;
        }
        if !out.is_empty() {
            self.stream.write_all(out).await.0?;
        }
        Ok(())
    }

    async fn receive(&mut self) -> Result<(), Ended> {
        let (result, received) = self.stream.read(Vec::with_capacity(INPUT_BYTES)).await;
        if result? == 0 {
            return Err(Ended::Closed);
        }
        let Some(session) = &mut self.session else {
            self.plain.extend_from_slice(&received);
            return Ok(());
        };
        let decrypted = session.decrypt(&received, &mut self.plain);
        if decrypted.is_err() {
            // The other end is notified of what is wrong, if it still listens.
            let _ = self.flush_tls().await;
        }
        decrypted
    }

    /// Completes the TLS handshake, if there is one.
    pub(crate) async fn handshake(&mut self) -> Result<(), Ended> {
        loop {
            self.flush_tls().await?;
            if !self.session.as_ref().is_some_and(Session::is_handshaking) {
                return Ok(());
            }
            self.receive().await?;
        }
    }

    /// Sends a message.
    pub(crate) async fn send(&mut self, message: Vec<u8>) -> Result<(), Ended> {
        let bytes = match &mut self.session {
            None => message,
            Some(session) => {
                let mut out = Vec::new();
                session.encrypt(&message, &mut out)?;
                out
            }
        };
        Ok(self.stream.write_all(bytes).await.0?)
    }

    /// Receives a message of the hello, and gives what `decode` makes of it. Nothing may follow it yet, as far as
    /// `is_last` says.
    pub(crate) async fn receive_message<T>(
        &mut self,
        decode: impl Fn(&[u8]) -> Result<T, hello::HelloError>,
        is_last: bool,
    ) -> Result<T, Ended> {
        loop {
            let garbage = |error: hello::HelloError| Ended::Garbage(error.to_string());
            if let Some((message, end)) = hello::split(&self.plain).map_err(garbage)? {
                let message = decode(message).map_err(garbage)?;
                if is_last && end < self.plain.len() {
                    return Err(Ended::Garbage("bytes follow a hello that is not answered".to_owned()));
                }
                self.plain.drain(..end);
                return Ok(message);
            }
            self.receive().await?;
        }
    }

    /// Ends a connection whose other end still has to read what was sent last.
    pub(crate) async fn linger(mut self) {
        // Errors say that the other end is gone.
        let _ = self.stream.shutdown(Shutdown::Write);
        let _ = runtime::timeout(LINGER, async {
            let mut bytes = 0;
            while bytes < LINGER_BYTES {
                let (result, _) = self.stream.read(Vec::with_capacity(INPUT_BYTES)).await;
                match result {
                    Ok(read) if read > 0 => bytes += read,
                    _ => break,
                }
            }
        })
        .await;
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    pub(crate) fn detach(self) -> DetachedChannel {
        DetachedChannel {
            stream: self.stream.detach(),
            session: self.session,
        }
    }

    /// The stream of frames that follows the hello.
    pub(crate) fn into_frames(
        self,
        rpc: &Rpc,
        outbox: &Rc<Outbox>,
        compression: Option<Compression>,
    ) -> (Input, WriteHalf, Wire) {
        let (read, write) = self.stream.into_split();
        let wire = Wire {
            codec: rpc.codec.clone(),
            compression,
            session: self.session.map(|session| Rc::new(RefCell::new(session))),
            spares: rpc.spares.clone(),
        };
        let (blocks, frames) = if compression.is_some() {
            (self.plain, Vec::new())
        } else {
            (Vec::new(), self.plain)
        };
        let input = Input {
            half: read,
            outbox: outbox.clone(),
            wire: wire.clone(),
            blocks,
            blocks_read: 0,
            frames,
            frames_read: 0,
            begun: None,
            long_body: None,
            body_bytes_max: rpc.config.limits.body_bytes_max,
            was_full: false,
            read_at: runtime::now(),
            begun_at: None,
        };
        (input, write, wire)
    }
}

/// The frames that a connection receives.
///
/// Bytes go from the socket through TLS to `blocks`, and through decompression to `frames`; without compression
/// directly to `frames`, without TLS directly from the socket. A block is decompressed only when no whole frame is
/// there, so `frames` holds at most a frame and what one read or one block brought. A long body goes to memory of its
/// own; without TLS and compression the socket is read right into it.
pub(crate) struct Input {
    half: ReadHalf,
    outbox: Rc<Outbox>,
    wire: Wire,
    blocks: Vec<u8>,
    blocks_read: usize,
    frames: Vec<u8>,
    frames_read: usize,
    /// A frame whose long body is not whole.
    begun: Option<LongFrame>,
    /// The body of the frame that was read last, if it is a long one.
    long_body: Option<Vec<u8>>,
    body_bytes_max: usize,
    /// The last read filled its buffer, so there is probably more.
    was_full: bool,
    /// When the last read ended.
    read_at: Instant,
    /// When the first bytes of a frame came that is not whole yet.
    begun_at: Option<Instant>,
}

/// A frame with a long body that comes.
struct LongFrame {
    header: [u8; HEADER_BYTES],
    body: Vec<u8>,
    len: usize,
}

impl LongFrame {
    fn missing(&self) -> usize {
        self.len - self.body.len()
    }

    /// Moves what has come of the body from the frames that are not read.
    fn take_from(&mut self, frames: &[u8], read: &mut usize) {
        let come = self.missing().min(frames.len() - *read);
        self.body.extend_from_slice(&frames[*read..*read + come]);
        *read += come;
    }
}

impl Input {
    /// The next frame that has come; its body is read with [`Input::body`] until the next call.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, Ended> {
        let garbage = |error: frame::FrameError| Ended::Garbage(error.to_string());
        if let Some(read) = self.long_body.take() {
            self.wire.spares.give(read);
        }
        loop {
            if let Some(long) = &mut self.begun {
                long.take_from(&self.frames, &mut self.frames_read);
            } else if let Some(frame) =
                frame::parse(&self.frames, self.frames_read, self.body_bytes_max).map_err(garbage)?
            {
                self.frames_read = frame.body.end;
                return Ok(Some(frame));
            } else {
                self.begun = self.begin_long();
            }
            if let Some(long) = self.begun.take_if(|long| long.missing() == 0) {
                let header = frame::parse_apart(&long.header, &long.body).map_err(garbage)?;
                self.long_body = Some(long.body);
                return Ok(Some(Frame {
                    header,
                    body: 0..long.len,
                }));
            }
            discard(&mut self.frames, &mut self.frames_read);
            let Some(compression) = self.wire.compression else {
                return Ok(None);
            };
            let mut codec = self.wire.codec.borrow_mut();
            let decoded = codec.decode_block(compression, &self.blocks, self.blocks_read, &mut self.frames);
            match decoded.map_err(|error| Ended::Garbage(error.to_string()))? {
                Some(end) => self.blocks_read = end,
                None => {
                    discard(&mut self.blocks, &mut self.blocks_read);
                    return Ok(None);
                }
            }
        }
    }

    /// The next frame, and when its first bytes were read: its time has run since, whatever it waited for.
    pub(crate) fn next_arrived(&mut self) -> Result<Option<(Frame, Instant)>, Ended> {
        let Some(frame) = self.next()? else {
            let is_begun = self.begun.is_some() || !self.frames.is_empty() || !self.blocks.is_empty();
            self.begun_at = is_begun.then(|| self.begun_at.unwrap_or(self.read_at));
            return Ok(None);
        };
        Ok(Some((frame, self.begun_at.take().unwrap_or(self.read_at))))
    }

    /// When the last bytes were read.
    pub(crate) fn read_at(&self) -> Instant {
        self.read_at
    }

    /// Begins with the frame that is not whole, if its body is a long one. Memory that is not kept already grows with
    /// what comes, whatever the header says.
    fn begin_long(&mut self) -> Option<LongFrame> {
        let begun = self.frames.get(self.frames_read..)?;
        let header = *begun.first_chunk::<HEADER_BYTES>()?;
        let len = frame::body_bytes(&header);
        if len < LONG_BODY_BYTES {
            return None;
        }
        self.frames_read += HEADER_BYTES;
        let kept = self.wire.spares.take_empty(len);
        let mut long = LongFrame {
            header,
            body: kept.unwrap_or_else(|| Vec::with_capacity(len.min(PROMISED_BYTES))),
            len,
        };
        long.take_from(&self.frames, &mut self.frames_read);
        Some(long)
    }

    pub(crate) fn body(&self, frame: &Frame) -> &[u8] {
        let bytes = self.long_body.as_ref().unwrap_or(&self.frames);
        &bytes[frame.body.clone()]
    }

    /// The body of the frame that was read last; a long one is not copied.
    pub(crate) fn take_body(&mut self, frame: &Frame) -> Vec<u8> {
        match self.long_body.take() {
            Some(body) => body,
            None => self.frames[frame.body.clone()].to_vec(),
        }
    }

    /// What becomes of the frame that was read last.
    pub(crate) fn fate(&self) -> Fate {
        self.half.fate()
    }

    /// Waits for more bytes.
    pub(crate) async fn fill(&mut self) -> Result<(), Ended> {
        let is_compressed = self.wire.compression.is_some();
        let read_bytes = if let Some(session) = self.wire.session.clone() {
            let (result, received) = self.half.read(Vec::with_capacity(RECORD_BYTES)).await;
            let read = result?;
            let target = if is_compressed {
                &mut self.blocks
            } else {
                &mut self.frames
            };
            let mut session = session.borrow_mut();
            session.decrypt(&received, target)?;
            if session.wants_write() {
                self.outbox.wake_writer();
            }
            read
        } else if let Some(long) = self.begun.as_mut().filter(|_| !is_compressed) {
            let mut body = std::mem::take(&mut long.body);
            if body.len() == body.capacity() {
                body.reserve_exact(body.len().min(long.len - body.len()));
            }
            let (result, mut body) = self.half.read(body).await;
            // All that came before went to the body. Its memory can be longer than it is, so the next frame may have
            // begun.
            if body.len() > long.len {
                self.frames.extend_from_slice(&body[long.len..]);
                body.truncate(long.len);
            }
            long.body = body;
            result?
        } else {
            let target = if is_compressed {
                &mut self.blocks
            } else {
                &mut self.frames
            };
            let mut buffer = std::mem::take(target);
            reserve(&mut buffer, self.was_full);
            let (result, buffer) = self.half.read(buffer).await;
            self.was_full = buffer.len() == buffer.capacity();
            *target = buffer;
            result?
        };
        if read_bytes == 0 || self.outbox.is_closed() {
            return Err(Ended::Closed);
        }
        self.read_at = runtime::now();
        let received = &self.outbox.received_bytes;
        received.set(received.get() + read_bytes as u64);
        Ok(())
    }
}

/// Room for a read: grows with what has arrived, not with what a header promises, and shrinks when little comes.
fn reserve(buffer: &mut Vec<u8>, was_full: bool) {
    let is_much = was_full || !buffer.is_empty();
    if is_much && buffer.capacity() - buffer.len() < READ_BYTES / 2 {
        buffer.reserve(READ_BYTES.max(buffer.len() / 2));
    } else if !is_much && (buffer.capacity() == 0 || buffer.capacity() > READ_BYTES / 2) {
        *buffer = Vec::with_capacity(INPUT_BYTES);
    }
}

/// Forgets the bytes that were read.
fn discard(bytes: &mut Vec<u8>, read: &mut usize) {
    bytes.drain(..*read);
    *read = 0;
    if bytes.is_empty() && bytes.capacity() > KEPT_BYTES {
        *bytes = Vec::new();
    }
}
