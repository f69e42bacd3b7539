//! The io_uring backend: one ring per shard, used by its thread alone.
//!
//! Every operation has a slot, and the slot owns what the kernel works on: buffer, address, descriptor. A completion
//! fills the slot and wakes the task. When the future is dropped first, its slot is orphaned: it keeps its parts until
//! the kernel's completion comes, then it is freed. An operation on a socket is also cancelled then; one on a file is
//! let finish.
//!
//! The ring is set up so that the kernel does the work of completions only when we enter it, and raises `TASKRUN` in
//! shared memory until then: `completion_waits` is one load. The completion queue cannot lose entries (`NODROP`): what
//! overflows is kept by the kernel and fetched by the next visit, which always asks for events.

use super::Wait;
use super::socket::RawAddress;
use crate::clock;
use crate::executor;
use crate::gate::Gate;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Entries handed over in one visit at most; a fuller queue is handed over early.
const SUBMISSIONS: u32 = 1024;

/// Completions that fit before the kernel has to keep them aside.
const COMPLETIONS: u32 = 8192;

/// User data of completions that no task waits for.
const IGNORED: u64 = u64::MAX;
/// User data of the poll on the gate's eventfd.
const GATE: u64 = u64::MAX - 1;

/// How long a shard that ends waits for the kernel to give buffers back.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(2);

const ENTER_GETEVENTS: u32 = 1;

pub(crate) struct Uring {
    ring: RefCell<IoUring>,
    operations: RefCell<Operations>,
    event_fd: RawFd,
    /// The poll on the eventfd ended and must be armed again.
    gate_unarmed: Cell<bool>,
}

/// What the kernel works on while an operation is in flight.
#[derive(Default)]
pub(crate) struct Held {
    pub(crate) buffer: Vec<u8>,
    #[expect(dead_code, reason = "the kernel reads it; here it is only kept")]
    pub(crate) address: Option<Box<RawAddress>>,
    #[expect(dead_code, reason = "kept open for the kernel")]
    pub(crate) socket: Option<Arc<OwnedFd>>,
    pub(crate) file: Option<crate::fs::File>,
    /// The result is a new descriptor, to be closed if no task takes it.
    pub(crate) yields_descriptor: bool,
}

#[derive(Default)]
struct Operations {
    slots: Vec<Slot>,
    free: Vec<u32>,
    in_flight: usize,
}

enum Slot {
    Free,
    InFlight { held: Held, waker: Option<Waker> },
    Orphaned { held: Held },
    Done { held: Held, result: i32 },
}

impl Uring {
    fn build(submissions: u32, completions: u32) -> io::Result<IoUring> {
        let ring: IoUring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize(completions)
            .build(submissions)?;
        let parameters = ring.params();
        if !parameters.is_feature_nodrop() || !parameters.is_feature_ext_arg() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's io_uring lacks NODROP or EXT_ARG",
            ));
        }
        Ok(ring)
    }

    /// Whether a ring as we need it can be made. What a filter or an old kernel forbids shows here.
    pub(crate) fn probe() -> io::Result<()> {
        let ring = Self::build(8, 16)?;
        let mut probe = io_uring::register::Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Recv::CODE,
            opcode::Send::CODE,
            opcode::Accept::CODE,
            opcode::Connect::CODE,
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::Fsync::CODE,
            opcode::PollAdd::CODE,
            opcode::AsyncCancel::CODE,
        ];
        if needed.iter().all(|&code| probe.is_supported(code)) {
            Ok(())
        } else {
            Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's io_uring lacks an operation",
            ))
        }
    }

    pub(crate) fn open(gate: &'static Gate) -> io::Result<Self> {
        let uring = Self {
            ring: RefCell::new(Self::build(SUBMISSIONS, COMPLETIONS)?),
            operations: RefCell::default(),
            event_fd: gate.event_fd(),
            gate_unarmed: Cell::new(true),
        };
        uring.arm_gate();
        Ok(uring)
    }

    /// Edge-triggered poll on the eventfd: each write gives a completion, the counter is never read.
    fn arm_gate(&self) {
        if self.gate_unarmed.replace(false) {
            let poll = opcode::PollAdd::new(types::Fd(self.event_fd), libc::POLLIN as u32)
                .multi(true)
                .build();
            self.push(poll.user_data(GATE));
        }
    }

    #[inline]
    pub(crate) fn completion_waits(&self) -> bool {
        self.ring.borrow_mut().submission().taskrun()
    }

    #[inline]
    pub(crate) fn has_submissions(&self) -> bool {
        !self.ring.borrow_mut().submission().is_empty()
    }

    fn push(&self, entry: squeue::Entry) {
        loop {
            // SAFETY: what the entry points to is owned by its slot until the completion comes (`start`), or it points
            // to nothing.
            let pushed = unsafe { self.ring.borrow_mut().submission().push(&entry) };
            if pushed.is_ok() {
                return;
            }
            // The queue is full: hand it over, and fetch, since a kernel with a full completion queue may refuse.
            self.enter(Wait::No);
            self.reap();
        }
    }

    /// Hands over and fetches.
    pub(crate) fn visit(&self, wait: Wait) {
        self.arm_gate();
        self.enter(wait);
        self.reap();
    }

    fn enter(&self, wait: Wait) {
        let mut ring = self.ring.borrow_mut();
        let entered = match wait {
            Wait::No => {
                let (waiting, due) = {
                    let submissions = ring.submission();
                    (submissions.len(), submissions.taskrun() || submissions.cq_overflow())
                };
                if waiting == 0 && !due {
                    return;
                }
                let waiting = u32::try_from(waiting).expect("the submission queue has 1024 entries");
                // SAFETY: entries are valid as `push` promises; no signal mask is passed.
                unsafe {
                    ring.submitter()
                        .enter::<libc::sigset_t>(waiting, 0, ENTER_GETEVENTS, None)
                }
            }
            Wait::Until(None) => ring.submit_and_wait(1),
            Wait::Until(Some(deadline)) => {
                let wait = types::Timespec::from(deadline - clock::now());
                ring.submitter()
                    .submit_with_args(1, &types::SubmitArgs::new().timespec(&wait))
            }
        };
        if let Err(error) = entered {
            match error.raw_os_error() {
                // Interrupted, timed out, or the kernel wants completions fetched first: the loop comes back by itself.
                Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN) => {}
                _ => panic!("io_uring_enter: {error}"),
            }
        }
    }

    /// Fetches completions and wakes the tasks that wait for them.
    fn reap(&self) {
        let mut ring = self.ring.borrow_mut();
        let mut operations = self.operations.borrow_mut();
        for completion in ring.completion() {
            match completion.user_data() {
                IGNORED => {}
                GATE => {
                    if !cqueue::more(completion.flags()) {
                        self.gate_unarmed.set(true);
                    }
                }
                slot => operations.complete(slot, completion.result()),
            }
        }
    }

    /// Starts an operation that works on `held`.
    ///
    /// # Safety
    /// The entry may point only into the heap memory that `held` owns, and use only descriptors that `held` keeps open.
    pub(crate) unsafe fn start(&self, entry: squeue::Entry, held: Held) -> Operation {
        let cancel_when_dropped = held.file.is_none();
        let slot = self.operations.borrow_mut().insert(held);
        self.push(entry.user_data(u64::from(slot)));
        Operation {
            slot,
            cancel_when_dropped,
            not_send: PhantomData,
        }
    }

    fn cancel(&self, slot: u32) {
        self.push(opcode::AsyncCancel::new(u64::from(slot)).build().user_data(IGNORED));
    }

    /// Cancels everything and waits for the kernel to give all buffers back. What it keeps longer is leaked rather than
    /// freed.
    pub(crate) fn shut_down(&self) {
        let deadline = clock::now() + SHUTDOWN_WAIT;
        let in_flight: Vec<u32> = self.operations.borrow().in_flight();
        for slot in in_flight {
            self.cancel(slot);
        }
        while self.operations.borrow().in_flight > 0 && clock::now() < deadline {
            self.visit(Wait::Until(Some(deadline)));
        }
        if self.operations.borrow().in_flight > 0 {
            log::error!(
                "runtime: {} operations did not end with their shard",
                self.operations.borrow().in_flight
            );
            std::mem::forget(self.operations.take());
        }
    }
}

impl Operations {
    fn insert(&mut self, held: Held) -> u32 {
        self.in_flight += 1;
        let slot = Slot::InFlight { held, waker: None };
        match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 operations at once")
            }
        }
    }

    fn complete(&mut self, index: u64, result: i32) {
        let index = u32::try_from(index).expect("user data is a slot number");
        let slot = &mut self.slots[index as usize];
        match std::mem::replace(slot, Slot::Free) {
            Slot::InFlight { held, waker } => {
                *slot = Slot::Done { held, result };
                self.in_flight -= 1;
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            Slot::Orphaned { held } => {
                self.in_flight -= 1;
                self.free.push(index);
                discard(held, result);
            }
            Slot::Free | Slot::Done { .. } => panic!("a completion came for operation {index}, which is not in flight"),
        }
    }

    /// The result, once; the slot is free after it.
    fn take(&mut self, index: u32, waker: &Waker) -> Option<(i32, Held)> {
        let slot = &mut self.slots[index as usize];
        match std::mem::replace(slot, Slot::Free) {
            Slot::Done { held, result } => {
                self.free.push(index);
                Some((result, held))
            }
            Slot::InFlight { held, .. } => {
                *slot = Slot::InFlight {
                    held,
                    waker: Some(waker.clone()),
                };
                None
            }
            Slot::Free | Slot::Orphaned { .. } => panic!("operation {index} was polled after its end"),
        }
    }

    /// The operation's future was dropped. Returns whether the operation is still in flight.
    fn orphan(&mut self, index: u32) -> bool {
        let slot = &mut self.slots[index as usize];
        match std::mem::replace(slot, Slot::Free) {
            Slot::InFlight { held, .. } => {
                *slot = Slot::Orphaned { held };
                true
            }
            Slot::Done { held, result } => {
                self.free.push(index);
                discard(held, result);
                false
            }
            Slot::Free | Slot::Orphaned { .. } => panic!("operation {index} was dropped after its end"),
        }
    }

    fn in_flight(&self) -> Vec<u32> {
        let in_flight = self
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| matches!(slot, Slot::InFlight { .. } | Slot::Orphaned { .. }));
        in_flight
            .map(|(index, _)| u32::try_from(index).expect("fewer than 2^32 operations at once"))
            .collect()
    }
}

/// Drops what an abandoned operation worked on, and the descriptor it made, if any.
fn discard(held: Held, result: i32) {
    if held.yields_descriptor && result >= 0 {
        // SAFETY: the operation made this descriptor, and its result was never taken.
        drop(unsafe { OwnedFd::from_raw_fd(result) });
    }
}

/// An operation in flight, or done and not yet looked at. Dropping it is always safe.
pub(crate) struct Operation {
    slot: u32,
    cancel_when_dropped: bool,
    /// The slot is one of this shard's.
    not_send: PhantomData<*const ()>,
}

/// The slot of a finished operation was taken and must not be touched again.
const TAKEN: u32 = u32::MAX;

impl Operation {
    /// The kernel's result and what it worked on.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<(io::Result<usize>, Held)> {
        let taken = executor::with(|executor| {
            ring_of(executor)
                .operations
                .borrow_mut()
                .take(self.slot, context.waker())
        });
        match taken {
            Some((result, held)) => {
                self.slot = TAKEN;
                let result = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
                Poll::Ready((result, held))
            }
            None => Poll::Pending,
        }
    }

    pub(crate) async fn finish(mut self) -> (io::Result<usize>, Held) {
        poll_fn(|context| self.poll(context)).await
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if self.slot == TAKEN {
            return;
        }
        executor::try_with(|executor| {
            let ring = ring_of(executor);
            let in_flight = ring.operations.borrow_mut().orphan(self.slot);
            if in_flight && self.cancel_when_dropped {
                ring.cancel(self.slot);
            }
        });
    }
}

/// The ring of the current shard, which an operation of the ring can rely on.
pub(crate) fn ring_of(executor: &executor::Executor) -> &Uring {
    match &executor.driver {
        super::Driver::Uring(uring) => uring,
        _ => panic!("an operation of the io_uring backend on a shard of another backend"),
    }
}

impl Operation {
    /// Cancels the operation and waits, in the kernel, for its end. For the rare moment when a socket leaves the shard.
    pub(crate) fn cancel_now(mut self) -> (io::Result<usize>, Held) {
        executor::with(|executor| ring_of(executor).cancel(self.slot));
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(ended) = self.poll(&mut context) {
                return ended;
            }
            executor::with(|executor| ring_of(executor).visit(Wait::Until(None)));
        }
    }
}
