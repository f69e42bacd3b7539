//! Frames on their way to the other end, and the task that sends them.
//!
//! What is pushed before the writer runs next leaves in one write, up to [`WRITE_BYTES`]. The outbox does not refuse
//! anything: a sender checks [`Outbox::bytes`] first, and [`Drain`] notifies the owner when the kernel has taken some.
//!
//! A long body is sent from where it is: its header ends a write, and the body is the next one.
//!
//! Frames carry times (`clock.rs`), which are written when they go to the socket: what a request waits in the outbox
//! counts.

use crate::clock::Clock;
use crate::codec::{Codec, Compression};
use crate::error::Ended;
use crate::frame::{self, HEADER_BYTES, Header, Kind};
use crate::spares::Spares;
use crate::tls::Session;
use runtime::net::WriteHalf;
use runtime::{Instant, Signal};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::net::Shutdown;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// About how many bytes of frames are in one write: the frames after them get their times when those are gone.
const WRITE_BYTES: usize = 256 << 10;
/// A buffer that is not in use keeps at most so many bytes.
const KEPT_BYTES: usize = 16 << 10;

/// Is notified when the kernel has taken what an outbox held, and when the outbox is closed.
pub(crate) trait Drain {
    /// There is room again, or the connection is gone.
    fn drained(&self);
}

/// Frames that wait, and which of them have a deadline.
#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// What of the bytes is gone.
    taken: usize,
    /// Where a frame with a deadline begins, in order.
    deadlines: VecDeque<(usize, Instant)>,
    /// Long bodies, and where the header of each ends, in order. They have no deadlines.
    bodies: VecDeque<(usize, Vec<u8>)>,
    body_bytes: usize,
}

impl Waiting {
    /// Moves whole frames into an empty buffer, completed as of now. With a body, the last of them is its header only.
    fn take(&mut self, buffer: &mut Vec<u8>, clock: &Clock, now: Instant) -> Option<Vec<u8>> {
        let header_end = self.bodies.front().map(|(end, _)| *end);
        let whole_end = header_end.map_or(self.bytes.len(), |end| end - HEADER_BYTES);
        let mut end = self.taken;
        if whole_end - self.taken <= WRITE_BYTES {
            end = whole_end;
        }
        while let Some(next) = frame::end(&self.bytes[..whole_end], end)
            && (end == self.taken || next - self.taken <= WRITE_BYTES)
        {
            end = next;
        }
        let mut body = None;
        if let Some(header_end) = header_end
            && end == whole_end
        {
            end = header_end;
            body = self.bodies.pop_front().map(|(_, body)| body);
        }
        let start = self.taken;
        if start == 0 && end == self.bytes.len() {
            std::mem::swap(&mut self.bytes, buffer);
        } else {
            buffer.extend_from_slice(&self.bytes[start..end]);
            self.taken = end;
        }
        while let Some((at, deadline)) = self.deadlines.pop_front_if(|(at, _)| *at < end) {
            frame::put_time(buffer, at - start, clock.deadline_time(deadline, now));
        }
        // What is gone is given back when it is the larger part, so each byte is moved once at most.
        if self.taken > self.bytes.len() / 2 {
            self.bytes.drain(..self.taken);
            let after = self.deadlines.iter_mut().map(|(at, _)| at);
            for at in after.chain(self.bodies.iter_mut().map(|(at, _)| at)) {
                *at -= self.taken;
            }
            self.taken = 0;
            if self.bytes.is_empty() {
                self.bytes = Vec::new();
            }
        }
        let answer_time = clock.answer_time(now);
        frame::seal(buffer, answer_time);
        if let Some(body) = &body {
            frame::seal_apart(buffer, body, answer_time);
            self.body_bytes -= body.len();
        }
        body
    }

    fn len(&self) -> usize {
        self.bytes.len() - self.taken + self.body_bytes
    }
}

/// Frames of one connection that are not sent.
pub(crate) struct Outbox {
    frames: RefCell<Waiting>,
    pub(crate) clock: Clock,
    /// Bytes that the writer has taken and the kernel has not.
    writing: Cell<usize>,
    writer: Signal,
    closed: Cell<bool>,
    why: RefCell<Option<Ended>>,
    /// Bytes that went to the kernel, as they are on the wire.
    pub(crate) sent_bytes: Cell<u64>,
    /// Bytes that came from it.
    pub(crate) received_bytes: Cell<u64>,
}

impl Outbox {
    pub(crate) fn new(clock: Clock) -> Rc<Self> {
        Rc::new(Self {
            frames: RefCell::default(),
            clock,
            writing: Cell::new(0),
            writer: Signal::default(),
            closed: Cell::new(false),
            why: RefCell::default(),
            sent_bytes: Cell::new(0),
            received_bytes: Cell::new(0),
        })
    }

    /// Bytes that the kernel has not taken.
    pub(crate) fn bytes(&self) -> usize {
        self.frames.borrow().len() + self.writing.get()
    }

    /// Adds a frame. After the end it goes nowhere.
    pub(crate) fn push(&self, header: Header, body: &[u8]) {
        if self.closed.get() {
            return;
        }
        frame::append(&mut self.frames.borrow_mut().bytes, header, body);
        self.writer.ring();
    }

    /// Adds a frame of an answer, whose body is copied only where it is short.
    pub(crate) fn push_answer(&self, header: Header, body: Vec<u8>) {
        if body.len() < crate::LONG_BODY_BYTES {
            return self.push(header, &body);
        }
        if self.closed.get() {
            return;
        }
        let mut frames = self.frames.borrow_mut();
        frame::append_header(&mut frames.bytes, header, body.len());
        frames.body_bytes += body.len();
        let end = frames.bytes.len();
        frames.bodies.push_back((end, body));
        drop(frames);
        self.writer.ring();
    }

    /// Adds a request or a one-way message whose body `write` appends. Its deadline is written when it goes to the
    /// socket.
    #[inline]
    pub(crate) fn push_until(&self, deadline: Instant, header: Header, write: impl FnOnce(&mut Vec<u8>)) {
        if self.closed.get() {
            return;
        }
        let mut frames = self.frames.borrow_mut();
        let at = frames.bytes.len();
        frames.deadlines.push_back((at, deadline));
        frame::append_with(&mut frames.bytes, header, write);
        drop(frames);
        self.writer.ring();
    }

    /// Adds a frame without a body.
    pub(crate) fn push_plain(&self, kind: Kind, id: u64) {
        self.push(Header::plain(kind, id), &[]);
    }

    /// TLS has something to say.
    pub(crate) fn wake_writer(&self) {
        self.writer.ring();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Ends the connection; the first reason stays.
    pub(crate) fn close(&self, why: Ended) {
        if !self.closed.replace(true) {
            *self.why.borrow_mut() = Some(why);
            *self.frames.borrow_mut() = Waiting::default();
            self.writer.ring();
        }
    }

    /// Why it ended, once.
    pub(crate) fn take_reason(&self) -> Ended {
        self.why.borrow_mut().take().unwrap_or(Ended::Closed)
    }
}

/// How the bytes of a connection are changed on their way.
#[derive(Clone)]
pub(crate) struct Wire {
    pub(crate) codec: Rc<RefCell<Codec>>,
    pub(crate) compression: Option<Compression>,
    pub(crate) session: Option<Rc<RefCell<Session>>>,
    pub(crate) spares: Rc<Spares>,
}

impl Wire {
    /// Replaces the frames in `buffer` by what goes to the kernel; `scratch` is for keeping its memory only.
    fn encode(&self, buffer: &mut Vec<u8>, scratch: &mut Vec<u8>) -> Result<(), Ended> {
        if let Some(compression) = self.compression
            && !buffer.is_empty()
        {
            scratch.clear();
            self.codec.borrow_mut().append_blocks(compression, buffer, scratch);
            std::mem::swap(buffer, scratch);
        }
        if let Some(session) = &self.session {
            scratch.clear();
            session.borrow_mut().encrypt(buffer, scratch)?;
            std::mem::swap(buffer, scratch);
        }
        Ok(())
    }

    fn wants_write(&self) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|session| session.borrow().wants_write())
    }
}

/// Sends what the outbox gets, until it is closed or the other end is gone.
pub(crate) async fn write(outbox: Rc<Outbox>, mut half: WriteHalf, wire: Wire, owner: Rc<dyn Drain>) {
    let (mut buffer, mut scratch) = (Vec::new(), Vec::new());
    loop {
        outbox
            .writer
            .wait_until(|| outbox.is_closed() || outbox.frames.borrow().len() > 0 || wire.wants_write())
            .await;
        if outbox.is_closed() {
            break;
        }
        let body = outbox
            .frames
            .borrow_mut()
            .take(&mut buffer, &outbox.clock, runtime::now());
        let body_bytes = body.as_ref().map_or(0, Vec::len);
        outbox.writing.set(buffer.len() + body_bytes);
        let Some(back) = send(&outbox, &mut half, &wire, buffer, &mut scratch).await else {
            break;
        };
        buffer = back;
        if let Some(body) = body {
            outbox.writing.set(body_bytes);
            let Some(back) = send(&outbox, &mut half, &wire, body, &mut scratch).await else {
                break;
            };
            wire.spares.give(back);
        }
        outbox.writing.set(0);
        buffer.clear();
        for kept in [&mut buffer, &mut scratch] {
            if kept.capacity() > KEPT_BYTES {
                *kept = Vec::new();
            }
        }
        owner.drained();
    }
    // An error here says that the connection is gone, which is the purpose.
    let _ = half.shutdown(Shutdown::Both);
    outbox.writing.set(0);
    owner.drained();
}

/// Encodes and writes a buffer, which it gives back. `None`: the outbox is closed.
async fn send(
    outbox: &Outbox,
    half: &mut WriteHalf,
    wire: &Wire,
    mut buffer: Vec<u8>,
    scratch: &mut Vec<u8>,
) -> Option<Vec<u8>> {
    if let Err(ended) = wire.encode(&mut buffer, scratch) {
        outbox.close(ended);
        return None;
    }
    let wire_bytes = buffer.len() as u64;
    match write_or_close(outbox, half, buffer).await? {
        (Ok(()), back) => {
            outbox.sent_bytes.set(outbox.sent_bytes.get() + wire_bytes);
            Some(back)
        }
        (Err(error), _) => {
            outbox.close(error.into());
            None
        }
    }
}

/// Writes the buffer, unless the outbox is closed first: a peer that does not read must not keep its connection.
async fn write_or_close(
    outbox: &Outbox,
    half: &mut WriteHalf,
    buffer: Vec<u8>,
) -> Option<(std::io::Result<()>, Vec<u8>)> {
    let mut writing = pin!(half.write_all(buffer));
    poll_fn(|context| {
        if outbox.is_closed() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(written) = writing.as_mut().poll(context) {
            return Poll::Ready(Some(written));
        }
        outbox.writer.wait(context.waker());
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    /// The deadline of each frame in seconds, and the bytes of its body.
    fn frames(bytes: &[u8]) -> Vec<(u64, usize)> {
        let (mut start, mut found) = (0, Vec::new());
        while let Some(frame) = frame::parse(bytes, start, 1 << 20).expect("sealed frames are whole") {
            found.push((u64::from(frame.header.time) / 1_000, frame.body.len()));
            start = frame.body.end;
        }
        found
    }

    #[test]
    fn a_long_body_goes_behind_its_header_from_the_memory_where_it_was() {
        let outbox = Outbox::new(Clock::of_caller(at(0)));
        let long: Vec<u8> = (0..u8::MAX).cycle().take(crate::LONG_BODY_BYTES).collect();
        let memory = long.as_ptr();
        let answer = |id: u64| Header::plain(Kind::Response, id);
        outbox.push_answer(answer(1), vec![1; 10]);
        outbox.push_answer(answer(2), long.clone());
        outbox.push_answer(answer(3), long);
        outbox.push_until(at(9), answer(4), |out| out.extend_from_slice(&[4; 30]));
        assert_eq!(outbox.bytes(), 4 * HEADER_BYTES + 40 + 2 * crate::LONG_BODY_BYTES);

        let (mut stream, mut writes, mut found) = (Vec::new(), Vec::new(), Vec::new());
        while outbox.bytes() > 0 {
            let mut buffer = Vec::new();
            let body = outbox.frames.borrow_mut().take(&mut buffer, &outbox.clock, at(5));
            stream.extend_from_slice(&buffer);
            writes.push(buffer.len());
            if let Some(body) = body {
                stream.extend_from_slice(&body);
                found.push(body.as_ptr());
            }
        }
        assert_eq!(
            writes,
            [HEADER_BYTES + 10 + HEADER_BYTES, HEADER_BYTES, HEADER_BYTES + 30]
        );
        assert_eq!(found[1], memory, "the body that was pushed was copied");
        let lengths = [
            (0, 10),
            (0, crate::LONG_BODY_BYTES),
            (0, crate::LONG_BODY_BYTES),
            (9, 30),
        ];
        assert_eq!(frames(&stream), lengths);
    }

    #[test]
    fn a_deadline_goes_out_as_a_moment_and_a_long_line_goes_in_pieces() {
        let mut waiting = Waiting::default();
        for (bytes, deadline) in [
            (10, Some(9)),
            (20, None),
            (WRITE_BYTES, Some(8)),
            (30, Some(7)),
            (40, Some(3)),
        ] {
            if let Some(seconds) = deadline {
                waiting.deadlines.push_back((waiting.bytes.len(), at(seconds)));
            }
            frame::append(&mut waiting.bytes, Header::plain(Kind::Request, 1), &vec![1; bytes]);
        }
        let mut take = |now: u64| {
            let mut buffer = Vec::new();
            waiting.take(&mut buffer, &Clock::of_caller(at(0)), at(now));
            (frames(&buffer), waiting.len() > 0)
        };
        assert_eq!(take(1), (vec![(9, 10), (0, 20)], true));
        assert_eq!(
            take(2),
            (vec![(8, WRITE_BYTES)], true),
            "a frame above the limit goes alone"
        );
        assert_eq!(
            take(5),
            (vec![(7, 30), (3, 40)], false),
            "what is late keeps its moment"
        );
        assert_eq!(take(6), (vec![], false));
    }
}
