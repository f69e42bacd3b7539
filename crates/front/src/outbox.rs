//! Answers on their way to a client, and the task that sends them.
//!
//! Small answers are joined in one buffer; what is longer than [`PIECE_BYTES`] is sent as it is, and freed when it is
//! sent. What waits is counted with the memory of its buffers ([`UnsentMemory`]), from when it is handed over until it
//! is sent or the client is gone. A connection without answers has no buffer.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use runtime::Notify;
use runtime::net::{Closer, WriteHalf};
use stdx::probe;

use crate::OUTBOX_BYTES_MAX;
use crate::client_memory::UnsentMemory;
use crate::tls::SharedTls;

/// Answers are joined up to this size.
const PIECE_BYTES: usize = 64 << 10;

/// After so many bytes it is noted that the client takes them.
const SEND_BYTES: usize = 256 << 10;

/// What is encrypted and sent at once on a connection with TLS: some 50 µs of a processor.
const SEALED_BYTES: usize = 64 << 10;

/// Answers of more bytes are encoded for the wire on a thread of the pool: a megabyte takes a millisecond and more to
/// compress.
const ENCODE_BYTES: usize = 256 << 10;

/// A buffer above this size is not given to answers that need a small part of it.
const LOOSE_BYTES: usize = 4 << 10;

/// How a protocol encodes answers for the wire after they are made: compression, segments with checksums.
pub trait Encoder: Copy + Send + 'static {
    /// Answers are sent as they are.
    fn is_plain(self) -> bool;

    /// Replaces answers by what is sent. `scratch` is a buffer to write into; the two may be exchanged.
    fn encode(self, answers: &mut Vec<u8>, scratch: &mut Vec<u8>);
}

/// The encoder of a protocol whose answers are sent as they are.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

impl Encoder for Plain {
    fn is_plain(self) -> bool {
        true
    }

    fn encode(self, _: &mut Vec<u8>, _: &mut Vec<u8>) {}
}

/// See the module.
pub struct Outbox {
    /// The answers that come last.
    last: RefCell<Vec<u8>>,
    /// Those before them.
    pieces: RefCell<VecDeque<Vec<u8>>>,
    memory: Rc<UnsentMemory>,
    /// What it has of that memory.
    unsent: Cell<usize>,
    /// Bytes that the client's system has taken.
    sent: Cell<u64>,
    peer: SocketAddr,
    closer: RefCell<Option<Closer>>,
    filled: Notify,
    drained: Notify,
    closed: Cell<bool>,
    /// The client ended the connection: it waits for no answers.
    client_gone: Cell<bool>,
    gone: Notify,
    /// The reader has ended: the writer ends when everything is sent.
    finishing: Cell<bool>,
    /// No further requests are read: the writer shuts down the reading half of the socket, which wakes the reader.
    ends_input: Cell<bool>,
}

impl Outbox {
    /// Without answers; what waits is counted in `memory`.
    pub fn new(memory: &Rc<UnsentMemory>, peer: SocketAddr) -> Rc<Self> {
        let outbox = Rc::new(Self {
            last: RefCell::default(),
            pieces: RefCell::default(),
            memory: Rc::clone(memory),
            unsent: Cell::new(0),
            sent: Cell::new(0),
            peer,
            closer: RefCell::new(None),
            filled: Notify::new(),
            drained: Notify::new(),
            closed: Cell::new(false),
            client_gone: Cell::new(false),
            gone: Notify::new(),
            finishing: Cell::new(false),
            ends_input: Cell::new(false),
        });
        memory.note(&outbox);
        outbox
    }

    /// Counts the memory of answers that wait.
    #[inline]
    pub fn count(&self, bytes: usize) {
        let before = self.unsent.get();
        self.unsent.set(before + bytes);
        self.memory.change(before, before + bytes);
    }

    /// They wait no more.
    #[inline]
    pub fn uncount(&self, bytes: usize) {
        let before = self.unsent.get();
        self.unsent.set(before - bytes);
        self.memory.change(before, before - bytes);
    }

    /// Hands over whole answers; `answers` is empty afterwards.
    #[inline]
    pub fn push(&self, answers: &mut Vec<u8>) {
        if answers.is_empty() {
            return;
        }
        if self.closed.get() {
            return answers.clear();
        }
        probe::step(|| format!("connection: {} bytes of answers go to the writer", answers.len()));
        let mut waiting = self.last.borrow_mut();
        if waiting.is_empty() {
            if answers.capacity() > LOOSE_BYTES && answers.capacity() / 4 > answers.len() {
                *waiting = answers.to_vec();
            } else {
                *waiting = std::mem::take(answers);
            }
            self.count(waiting.capacity());
        } else if waiting.len() + answers.len() > PIECE_BYTES {
            let next = std::mem::take(answers);
            self.count(next.capacity());
            let piece = std::mem::replace(&mut *waiting, next);
            self.pieces.borrow_mut().push_back(piece);
        } else {
            let before = waiting.capacity();
            waiting.extend_from_slice(answers);
            self.count(waiting.capacity() - before);
        }
        drop(waiting);
        answers.clear();
        self.filled.notify_one();
    }

    /// Queues a message that the client has not asked for. A client that reads nothing gets a few of them only.
    pub fn event(&self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.unsent.get() > 2 * OUTBOX_BYTES_MAX {
            return self.end();
        }
        let mut message = Vec::new();
        write(&mut message);
        self.push(&mut message);
    }

    /// Takes what waits to be sent, which the client never gets: for tests of what is written.
    #[doc(hidden)]
    pub fn take(&self) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(piece) = self.next_piece() {
            self.uncount(piece.capacity());
            all.extend(piece);
        }
        all
    }

    fn next_piece(&self) -> Option<Vec<u8>> {
        let first = self.pieces.borrow_mut().pop_front();
        first.or_else(|| Some(self.last.take()).filter(|last| !last.is_empty()))
    }

    /// Memory of the answers that wait.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.unsent.get()
    }

    /// Bytes of answers that the client's system has taken so far.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent.get()
    }

    /// The client's address.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether the connection has ended, or is about to.
    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    pub(crate) fn ends_input(&self) -> bool {
        self.ends_input.get()
    }

    /// Whether further answers may be made, of about so many bytes.
    #[inline]
    pub fn is_free(&self, bytes: usize) -> bool {
        let own = self.unsent.get();
        self.closed.get() || own <= OUTBOX_BYTES_MAX && self.memory.has_memory(own + bytes)
    }

    /// Waits until the client, or others, have read enough for an answer of about so many bytes, or the client is gone.
    pub async fn until_free(&self, bytes: usize) {
        while !self.is_free(bytes) {
            if !self.memory.has_memory(self.unsent.get() + bytes) {
                self.memory.watch();
            }
            let (mut own, mut others) = (pin!(self.drained.notified()), pin!(self.memory.freed()));
            poll_fn(|context| match own.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => others.as_mut().poll(context),
            })
            .await;
        }
    }

    /// The node drains: a reader that waits for requests waits no more.
    pub(crate) fn end_input(&self) {
        self.ends_input.set(true);
        self.filled.notify_all();
    }

    /// The reader has ended: the writer ends when everything is sent.
    pub(crate) fn finish(&self) {
        self.finishing.set(true);
        self.filled.notify_all();
    }

    /// The result of a read that may take long; None, and the work is dropped, when the client is gone before.
    pub async fn unless_gone<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let mut gone = pin!(self.gone.notified());
        if self.client_gone.get() {
            return None;
        }
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => gone.as_mut().poll(context).map(|()| None),
        })
        .await
    }

    /// The client is gone.
    pub(crate) fn abandon(&self) {
        self.client_gone.set(true);
        self.gone.notify_all();
    }

    /// Ends the connection, whatever it waits for.
    pub(crate) fn end(&self) {
        if let Some(closer) = &*self.closer.borrow() {
            // An error says that it has ended.
            let _ = closer.close();
        }
        self.close();
    }

    fn close(&self) {
        self.closed.set(true);
        while let Some(piece) = self.next_piece() {
            self.uncount(piece.capacity());
        }
        self.abandon();
        self.filled.notify_all();
        self.drained.notify_all();
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.memory.change(self.unsent.get(), 0);
    }
}

/// Sends whatever the outbox gets, until the connection ends; encrypted if it has TLS.
pub(crate) async fn write(outbox: Rc<Outbox>, mut half: WriteHalf, (encoder, tls): (impl Encoder, Option<SharedTls>)) {
    outbox.closer.replace(Some(half.closer()));
    loop {
        let Some(piece) = outbox.next_piece() else {
            if outbox.closed.get() || outbox.finishing.get() {
                if let Some(tls) = tls.filter(|_| !outbox.closed.get()) {
                    let mut notice = Vec::new();
                    tls.borrow_mut().seal_end(&mut notice);
                    let _ = half.write_all(notice).await;
                }
                let _ = half.shutdown(std::net::Shutdown::Both);
                return;
            }
            if outbox.ends_input.get() {
                let _ = half.shutdown(std::net::Shutdown::Read);
            }
            outbox.filled.notified().await;
            continue;
        };
        let is_sent = send(&outbox, &mut half, piece, (encoder, &tls)).await;
        outbox.drained.notify_all();
        if !is_sent {
            return outbox.close();
        }
    }
}

/// Sends a piece. Whether the client took it.
async fn send(
    outbox: &Outbox,
    half: &mut WriteHalf,
    mut piece: Vec<u8>,
    (encoder, tls): (impl Encoder, &Option<SharedTls>),
) -> bool {
    let memory = &outbox.memory;
    let mut counted = piece.capacity();
    if !encoder.is_plain() {
        let mut plain = memory.spare();
        if piece.len() > ENCODE_BYTES {
            (piece, plain) = runtime::offload(move || {
                encoder.encode(&mut piece, &mut plain);
                (piece, plain)
            })
            .await;
        } else {
            encoder.encode(&mut piece, &mut plain);
        }
        memory.give_back(plain);
        outbox.count(piece.capacity());
        outbox.uncount(std::mem::replace(&mut counted, piece.capacity()));
    }
    if let Some(tls) = tls {
        let is_sent = send_sealed(outbox, half, &piece, tls).await;
        memory.give_back(piece);
        outbox.uncount(counted);
        return is_sent;
    }
    let mut at = 0;
    let mut is_sent = true;
    while is_sent && at < piece.len() {
        let end = piece.len().min(at + SEND_BYTES);
        let (result, same) = half.write_range(piece, at..end).await;
        piece = same;
        is_sent = result.is_ok();
        if is_sent {
            outbox.sent.set(outbox.sent.get() + (end - at) as u64);
        }
        at = end;
    }
    memory.give_back(piece);
    outbox.uncount(counted);
    is_sent
}

/// Encrypts and sends a piece, a part of it at a time. Whether the client took it.
async fn send_sealed(outbox: &Outbox, half: &mut WriteHalf, piece: &[u8], tls: &SharedTls) -> bool {
    for part in piece.chunks(SEALED_BYTES) {
        let mut sealed = outbox.memory.spare();
        if tls.borrow_mut().seal(part, &mut sealed).is_err() {
            return false;
        }
        let counted = sealed.capacity();
        outbox.count(counted);
        let (result, sealed) = half.write_all(sealed).await;
        outbox.memory.give_back(sealed);
        outbox.uncount(counted);
        if result.is_err() {
            return false;
        }
        outbox.sent.set(outbox.sent.get() + part.len() as u64);
    }
    true
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use memory::ResultMemory;
    use runtime::sim::Simulation;

    use super::*;

    /// Without a client.
    fn outbox(memory: &Rc<UnsentMemory>) -> Rc<Outbox> {
        Outbox::new(memory, SocketAddr::from((Ipv4Addr::LOCALHOST, 1)))
    }

    fn memory(bytes_max: usize) -> Rc<UnsentMemory> {
        UnsentMemory::new(bytes_max, ResultMemory::new(bytes_max))
    }

    #[test]
    fn what_waits_is_counted_until_it_is_sent_or_the_client_is_gone() {
        let memory = memory(1 << 20);
        let (first, second) = (outbox(&memory), outbox(&memory));
        let mut sent = Vec::new();
        for size in [1, 100, PIECE_BYTES, 3, PIECE_BYTES - 3, 300_000, 7] {
            let frame = vec![u8::try_from(sent.len() % 251).expect("small"); size];
            sent.extend_from_slice(&frame);
            first.push(&mut frame.clone());
            second.push(&mut frame.clone());
        }
        assert!(first.unsent_bytes() >= sent.len(), "less than it holds");
        assert!(
            first.unsent_bytes() < sent.len() * 2,
            "buffers are much larger than answers"
        );
        assert_eq!(memory.bytes(), first.unsent_bytes() + second.unsent_bytes());
        assert_eq!(first.take(), sent, "answers are lost or have another order");
        assert_eq!(first.unsent_bytes(), 0);
        second.close();
        assert_eq!(memory.bytes(), 0, "the client is gone");
        second.push(&mut vec![1]);
        assert_eq!(memory.bytes(), 0, "nobody takes this");
    }

    #[test]
    fn a_small_answer_does_not_keep_a_large_buffer() {
        let memory = memory(1 << 20);
        let outbox = outbox(&memory);
        let mut frames = Vec::with_capacity(200_000);
        frames.push(1);
        outbox.push(&mut frames);
        assert!(outbox.unsent_bytes() < 100, "{} bytes for one", outbox.unsent_bytes());
    }

    #[test]
    fn a_client_that_takes_no_events_is_closed() {
        let memory = memory(1 << 20);
        let outbox = outbox(&memory);
        let event = |message: &mut Vec<u8>| message.extend_from_slice(b"an event");
        outbox.event(event);
        assert!(!outbox.is_closed());
        outbox.push(&mut vec![0; 3 * OUTBOX_BYTES_MAX]);
        outbox.event(event);
        assert!(outbox.is_closed());
        assert_eq!(memory.bytes(), 0);
    }

    #[test]
    fn a_long_read_ends_when_its_client_is_gone_and_not_before() {
        let mut sim = Simulation::new(1);
        let node = sim.add_node(1);
        sim.start(node, |_| {
            Box::pin(async {
                let outbox = outbox(&memory(1));
                let slow = || async {
                    runtime::sleep(Duration::from_secs(60)).await;
                    "rows"
                };
                assert_eq!(outbox.unless_gone(slow()).await, Some("rows"));
                let leaving = outbox.clone();
                drop(runtime::spawn(async move {
                    runtime::sleep(Duration::from_secs(1)).await;
                    leaving.abandon();
                }));
                let began = runtime::now();
                assert_eq!(outbox.unless_gone(slow()).await, None, "somebody waits for the rows");
                assert!(began.elapsed() < Duration::from_secs(2), "it was read on for nobody");
                assert_eq!(outbox.unless_gone(slow()).await, None, "it was begun for nobody");
            })
        });
        assert!(sim.run_until_ended(node, Duration::from_secs(300)), "it did not end");
    }
}
