//! The memory of a shard that clients' bytes can take: what each part holds, and what waits when it is full.
//!
//! Each part is a share of the shard's memory:
//! - *requests*, 10 %: requests that wait or run, with their tasks. Beyond it the connection is not read.
//! - *first requests*, 2.5 %: requests that are alone on their connection, when *requests* is full. Beyond it the
//!   connection is not read.
//! - *results*, 8 %: results being made ([`ResultMemory`]). Beyond it further reads wait; one result at a time may
//!   exceed it.
//! - *unsent*, 8 %, and half as much for clients that have at most 64 KiB of them: answers that clients have not taken.
//!   Beyond it no large result begins and no further request is read; a client that takes nothing is closed.
//! - *frames*, 5 %: frames that are longer than a connection's buffer, while they arrive. Beyond it the connection is
//!   not read, and closed after a while.
//! - *buffers*, 2 %: read buffers above [`INPUT_BYTES_FIRST`](crate::input::INPUT_BYTES_FIRST). Beyond it connections
//!   keep their small buffer.
//!
//! Small and large pieces have parts of their own, so that small ones never wait for large ones.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use logging::LineLimit;
use memory::ResultMemory;
use runtime::{Notify, Permit, Semaphore};

use crate::outbox::Outbox;

/// The only requests of connections have this part of the memory of requests besides, and such a request is at most so
/// long.
const FIRST_REQUESTS_SHARE: usize = 4;
pub(crate) const FIRST_REQUEST_BYTES_MAX: usize = 64 << 10;

/// The parts of a shard's memory that its clients may take, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientMemory {
    /// Requests that wait or run.
    pub requests: usize,
    /// Results in the making.
    pub results: usize,
    /// Answers that clients have not taken.
    pub unsent: usize,
    /// Long frames while they arrive.
    pub frames: usize,
    /// Read buffers of usual size.
    pub buffers: usize,
}

impl ClientMemory {
    /// Of a shard with so many bytes.
    #[must_use]
    pub fn of_shard(bytes: usize) -> Self {
        let percent = |part: usize| bytes / 100 * part;
        Self {
            requests: percent(10),
            results: percent(8),
            unsent: percent(8),
            frames: percent(5),
            buffers: percent(2),
        }
    }
}

/// The memory that the clients of a shard have taken.
pub struct Memory {
    limits: ClientMemory,
    /// Of requests that wait or run, over all connections of the shard.
    pub(crate) requests: SplitMemory,
    /// Besides, of the only requests of their connections: clients that send many and read no answers do not keep them
    /// waiting.
    pub(crate) first_requests: Semaphore,
    /// Of long frames while they arrive.
    pub frames: SplitMemory,
    /// Of read buffers of usual size.
    pub(crate) buffers: Semaphore,
    /// Of results in the making.
    pub results: Arc<ResultMemory>,
    /// Of answers that clients have not taken.
    pub unsent: Rc<UnsentMemory>,
}

impl Memory {
    /// Nothing is taken of what clients may take.
    pub(crate) fn new(limits: ClientMemory) -> Self {
        let results = ResultMemory::new(limits.results);
        Self {
            limits,
            requests: SplitMemory::new(limits.requests),
            first_requests: Semaphore::new((limits.requests / FIRST_REQUESTS_SHARE).max(1)),
            frames: SplitMemory::new(limits.frames),
            buffers: Semaphore::new(limits.buffers),
            unsent: UnsentMemory::new(limits.unsent, results.clone()),
            results,
        }
    }

    /// What clients may take.
    #[must_use]
    pub fn limits(&self) -> ClientMemory {
        self.limits
    }

    /// What they have taken.
    #[must_use]
    pub fn taken(&self) -> ClientMemory {
        ClientMemory {
            requests: self.requests.taken(),
            results: self.results.taken(),
            unsent: self.unsent.bytes(),
            frames: self.frames.taken(),
            buffers: self.limits.buffers - self.buffers.available(),
        }
    }
}

/// A piece of at most so many bytes is small: a segment of version 5 of the CQL protocol with its checksums, and what
/// it is decompressed to.
pub(crate) const SMALL_BYTES_MAX: usize = 264 << 10;

/// Memory for which requests wait in two lines: small pieces never wait for large ones.
pub struct SplitMemory {
    small: Semaphore,
    large: Semaphore,
    small_bytes: usize,
    large_bytes: usize,
}

impl SplitMemory {
    /// A half for small pieces, a half for large ones.
    pub(crate) fn new(bytes: usize) -> Self {
        let half = (bytes / 2).max(1);
        Self {
            small: Semaphore::new(half),
            large: Semaphore::new(half),
            small_bytes: half,
            large_bytes: half,
        }
    }

    /// The half that a piece belongs to, and how much of it the piece takes. A piece that is larger than the half takes
    /// all of it: otherwise it would wait forever, and block all pieces after it.
    fn part(&self, bytes: usize) -> (&Semaphore, usize) {
        if bytes <= SMALL_BYTES_MAX {
            (&self.small, bytes.min(self.small_bytes))
        } else {
            (&self.large, bytes.min(self.large_bytes))
        }
    }

    /// Memory, if there is enough and no piece of this kind waits.
    pub(crate) fn try_acquire(&self, bytes: usize) -> Option<Permit> {
        let (part, bytes) = self.part(bytes);
        part.try_acquire(bytes)
    }

    /// Waits in line for memory.
    pub async fn acquire(&self, bytes: usize) -> Permit {
        let (part, bytes) = self.part(bytes);
        part.acquire(bytes).await
    }

    /// Bytes of it that are taken.
    pub(crate) fn taken(&self) -> usize {
        self.small_bytes + self.large_bytes - self.small.available() - self.large.available()
    }
}

/// So much is little.
pub const LITTLE_UNSENT_BYTES: usize = 64 << 10;

/// While answers fill their memory, a client that has some of it must take [`TAKEN_BYTES_MIN`], or all that it has, in
/// so long, or is closed.
const TAKING_PERIOD: Duration = Duration::from_secs(10);
const TAKEN_BYTES_MIN: u64 = 256 << 10;

/// Buffers of answers that are kept for use again, and the largest of them.
const SPARES_MAX: usize = 16;
const SPARE_BYTES_MAX: usize = 256 << 10;

/// Answers of a shard that clients have not taken. Those of clients that have little and of those that have much are
/// counted apart, so that a client that takes its answers never waits for those that do not.
pub struct UnsentMemory {
    /// Bytes of clients that have more than [`LITTLE_UNSENT_BYTES`], and their limit.
    much: Cell<usize>,
    much_max: usize,
    /// Bytes of the other clients, and their limit.
    little: Cell<usize>,
    little_max: usize,
    /// Whether the two are exceeded.
    is_full: Cell<(bool, bool)>,
    freed: Notify,
    /// Learns whether clients take their answers.
    results: Arc<ResultMemory>,
    outboxes: RefCell<Vec<Weak<Outbox>>>,
    is_watched: Cell<bool>,
    closed: LineLimit,
    spares: RefCell<Vec<Vec<u8>>>,
}

impl UnsentMemory {
    /// So many bytes, and half as many for clients that have little.
    pub fn new(bytes_max: usize, results: Arc<ResultMemory>) -> Rc<Self> {
        Rc::new(Self {
            much: Cell::new(0),
            much_max: bytes_max,
            little: Cell::new(0),
            little_max: bytes_max / 2,
            is_full: Cell::new((false, false)),
            freed: Notify::new(),
            results,
            outboxes: RefCell::default(),
            is_watched: Cell::new(false),
            closed: LineLimit::new(|lines| log::warn!("{lines} more connections are closed that take no answers")),
            spares: RefCell::default(),
        })
    }

    /// Bytes of all answers that clients have not taken.
    pub fn bytes(&self) -> usize {
        self.much.get() + self.little.get()
    }

    /// A client has so much unsent, after it had so much before.
    #[inline]
    pub(crate) fn change(&self, before: usize, after: usize) {
        let account = |bytes: usize| {
            if bytes > LITTLE_UNSENT_BYTES {
                &self.much
            } else {
                &self.little
            }
        };
        account(before).set(account(before).get() - before);
        account(after).set(account(after).get() + after);
        let is_full = (self.much.get() > self.much_max, self.little.get() > self.little_max);
        if is_full != self.is_full.get() {
            self.fullness_changed(is_full);
        }
    }

    #[cold]
    fn fullness_changed(&self, is_full: (bool, bool)) {
        let was_full = self.is_full.replace(is_full);
        if was_full.0 != is_full.0 {
            self.results.set_blocked(is_full.0);
        }
        if was_full.0 && !is_full.0 || was_full.1 && !is_full.1 {
            self.freed.notify_all();
        }
    }

    /// Whether a client may have more that will have so much unsent.
    #[inline]
    pub(crate) fn has_memory(&self, own: usize) -> bool {
        let (much_is_full, little_is_full) = self.is_full.get();
        if own > LITTLE_UNSENT_BYTES {
            !much_is_full
        } else {
            !little_is_full
        }
    }

    /// The next time that there is more memory.
    pub(crate) fn freed(&self) -> runtime::Notified {
        self.freed.notified()
    }

    /// A connection may have answers from now on.
    pub(crate) fn note(&self, outbox: &Rc<Outbox>) {
        let mut outboxes = self.outboxes.borrow_mut();
        if outboxes.len() == outboxes.capacity() {
            outboxes.retain(|known| known.strong_count() > 0);
        }
        outboxes.push(Rc::downgrade(outbox));
    }

    /// Closes connections that take no answers, until no request waits for their memory any more.
    pub(crate) fn watch(self: &Rc<Self>) {
        if !self.is_watched.replace(true) {
            drop(runtime::spawn(self.clone().close_stalled()));
        }
    }

    async fn close_stalled(self: Rc<Self>) {
        loop {
            let before: Vec<(Weak<Outbox>, u64, u64)> = self
                .open()
                .map(|outbox| {
                    let wanted = TAKEN_BYTES_MIN.min(outbox.unsent_bytes() as u64);
                    (Rc::downgrade(&outbox), outbox.sent_bytes(), wanted)
                })
                .collect();
            runtime::sleep(TAKING_PERIOD).await;
            for (outbox, sent_before, wanted) in before {
                let Some(outbox) = outbox.upgrade() else { continue };
                let (unsent, sent) = (outbox.unsent_bytes(), outbox.sent_bytes() - sent_before);
                let is_needed = unsent > LITTLE_UNSENT_BYTES || self.is_full.get().1;
                if is_needed && sent < wanted {
                    if self.closed.admits() {
                        log::warn!(
                            "the connection of {} is closed: it has taken {sent} bytes of answers in {} s, {unsent} bytes wait for it, and answers \
                             that clients have not read fill their part of the memory",
                            outbox.peer(),
                            TAKING_PERIOD.as_secs()
                        );
                    }
                    outbox.end();
                }
            }
            if self.is_full.get() == (false, false) {
                return self.is_watched.set(false);
            }
        }
    }

    /// Connections with answers that wait.
    fn open(&self) -> impl Iterator<Item = Rc<Outbox>> {
        let open: Vec<_> = self.outboxes.borrow().iter().filter_map(Weak::upgrade).collect();
        open.into_iter()
            .filter(|outbox| !outbox.is_closed() && outbox.unsent_bytes() > 0)
    }

    /// An empty buffer for answers, with memory if some is kept.
    #[inline]
    pub fn spare(&self) -> Vec<u8> {
        self.spares.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps a buffer's memory for the next answers of any connection.
    #[inline]
    pub fn give_back(&self, mut buffer: Vec<u8>) {
        let mut spares = self.spares.borrow_mut();
        if buffer.capacity() > 0 && buffer.capacity() <= SPARE_BYTES_MAX && spares.len() < SPARES_MAX {
            buffer.clear();
            spares.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    const LARGE: usize = SMALL_BYTES_MAX + 1;

    #[test]
    fn a_piece_that_is_larger_than_its_half_takes_all_of_it_and_those_after_it_follow() {
        let memory = SplitMemory::new(4 * LARGE);
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(first) = pin!(memory.acquire(LARGE)).poll(&mut context) else {
            panic!("nothing is taken");
        };
        let (mut whole, mut next) = (pin!(memory.acquire(100 * LARGE)), pin!(memory.acquire(LARGE)));
        assert!(whole.as_mut().poll(&mut context).is_pending(), "a part is taken");
        assert!(next.as_mut().poll(&mut context).is_pending(), "it waits in line");
        assert!(memory.try_acquire(LARGE).is_none(), "others wait");
        drop(first);
        let Poll::Ready(whole) = whole.as_mut().poll(&mut context) else {
            panic!("the whole half is not enough");
        };
        assert!(next.as_mut().poll(&mut context).is_pending(), "nothing is left");
        drop(whole);
        assert!(next.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn small_pieces_do_not_wait_for_large_ones() {
        let memory = SplitMemory::new(2 * LARGE);
        let mut context = Context::from_waker(Waker::noop());
        let _large = memory.try_acquire(LARGE).expect("nothing is taken");
        let mut waits = pin!(memory.acquire(LARGE));
        assert!(waits.as_mut().poll(&mut context).is_pending(), "its half is taken");
        let small = memory
            .try_acquire(SMALL_BYTES_MAX)
            .expect("a small piece waits for a large one");
        assert!(memory.try_acquire(2).is_none(), "the small half is taken");
        assert_eq!(memory.taken(), LARGE + SMALL_BYTES_MAX);
        drop(small);
        assert_eq!(memory.taken(), LARGE);
    }

    #[test]
    fn clients_that_have_little_do_not_wait_for_those_that_have_much() {
        const MUCH: usize = 1 << 20;
        let memory = UnsentMemory::new(MUCH, ResultMemory::new(1));
        memory.change(0, MUCH);
        assert!(memory.has_memory(MUCH), "the limit is not exceeded");
        memory.change(0, 2 * MUCH);
        assert!(!memory.has_memory(LITTLE_UNSENT_BYTES + 1), "it is");
        let little = MUCH / 2 / LITTLE_UNSENT_BYTES;
        (0..little).for_each(|_| memory.change(0, LITTLE_UNSENT_BYTES));
        assert!(
            memory.has_memory(LITTLE_UNSENT_BYTES),
            "it waits for those that have much"
        );
        memory.change(0, 1);
        assert!(!memory.has_memory(0), "clients with little have all that is for them");
        memory.change(1, 0);
        assert!(memory.has_memory(0));
        memory.change(LITTLE_UNSENT_BYTES, LITTLE_UNSENT_BYTES + 1);
        memory.change(2 * MUCH, 0);
        assert!(!memory.has_memory(MUCH), "one that had little has much now");
        memory.change(LITTLE_UNSENT_BYTES + 1, 0);
        assert!(memory.has_memory(MUCH));
    }

    #[test]
    fn the_parts_leave_most_of_the_memory_to_data() {
        let parts = ClientMemory::of_shard(1 << 30);
        let all = parts.requests + parts.results + parts.unsent + parts.unsent / 2 + parts.frames + parts.buffers;
        // Memtables and caches have half of it.
        assert!(all < (1 << 30) / 100 * 40, "{all} bytes");
    }
}
