//! The epoll backend: readiness of sockets by an edge-triggered set per shard; file operations go to the pool in
//! `blocking`.
//!
//! A socket is put into the set once, for both directions. Its readiness flags start true and are cleared by what the
//! system calls say: "would block", or less than there was room for. Clearing after a short read is right because new
//! bytes raise a new edge; it is not right once the other end has hung up, since that edge comes only once, so
//! `hung_up` is kept apart and never cleared.
//!
//! There is no sign here that a completion waits. Background groups get shorter slices instead, with a visit of the set
//! in between.

use super::Wait;
use super::socket::{self, checked};
use crate::clock;
use crate::executor;
use crate::gate::Gate;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// Events fetched in one visit at most.
const EVENTS: usize = 256;

/// The event of the gate's eventfd.
const GATE: u64 = u64::MAX;

pub(crate) struct Epoll {
    set: OwnedFd,
    sources: RefCell<Sources>,
    events: RefCell<Vec<libc::epoll_event>>,
    /// The kernel has `epoll_pwait2`, which sleeps to the nanosecond.
    fine_timeouts: Cell<bool>,
}

#[derive(Default)]
struct Sources {
    slots: Vec<Option<Rc<Readiness>>>,
    free: Vec<usize>,
}

/// What is known of a socket.
struct Readiness {
    readable: Direction,
    writable: Direction,
    hung_up: Cell<bool>,
}

impl Readiness {
    fn new() -> Self {
        Self {
            readable: Direction::new(),
            writable: Direction::new(),
            hung_up: Cell::new(false),
        }
    }
}

struct Direction {
    ready: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

impl Direction {
    fn new() -> Self {
        Self {
            ready: Cell::new(true),
            waiting: RefCell::default(),
        }
    }

    fn set_ready(&self) {
        self.ready.set(true);
        for waker in self.waiting.borrow_mut().drain(..) {
            waker.wake();
        }
    }
}

/// Which way bytes go.
#[derive(Clone, Copy)]
pub(crate) enum Towards {
    Us,
    Them,
}

impl Epoll {
    pub(crate) fn open(gate: &'static Gate) -> io::Result<Self> {
        // SAFETY: a flag in, a new descriptor or -1 out.
        let fd = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor is new and has no other owner.
        let set = unsafe { OwnedFd::from_raw_fd(fd) };
        let event = libc::epoll_event { events: 0, u64: 0 };
        let epoll = Self {
            set,
            sources: RefCell::default(),
            events: RefCell::new(vec![event; EVENTS]),
            fine_timeouts: Cell::new(true),
        };
        // Edge-triggered, so that the counter need not be read: each write is a new edge.
        epoll.control(
            libc::EPOLL_CTL_ADD,
            gate.event_fd(),
            libc::EPOLLIN | libc::EPOLLET,
            GATE,
        )?;
        Ok(epoll)
    }

    fn control(&self, operation: libc::c_int, fd: libc::c_int, events: libc::c_int, data: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: events.cast_unsigned(),
            u64: data,
        };
        // SAFETY: the event is a valid local; the kernel copies it.
        checked(unsafe { libc::epoll_ctl(self.set.as_raw_fd(), operation, fd, &raw mut event) }).map(drop)
    }

    /// Fetches events and wakes the tasks that wait for them.
    pub(crate) fn visit(&self, wait: Wait) {
        let mut events = self.events.borrow_mut();
        let count = match self.wait(&mut events, wait) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => panic!("epoll_wait: {error}"),
        };
        let sources = self.sources.borrow();
        for event in &events[..count] {
            let (flags, source) = (event.events.cast_signed(), event.u64);
            if source == GATE {
                continue;
            }
            let Some(readiness) = usize::try_from(source)
                .ok()
                .and_then(|slot| sources.slots.get(slot)?.as_ref())
            else {
                continue;
            };
            if flags & (libc::EPOLLHUP | libc::EPOLLRDHUP | libc::EPOLLERR) != 0 {
                readiness.hung_up.set(true);
            }
            if flags & (libc::EPOLLIN | libc::EPOLLHUP | libc::EPOLLRDHUP | libc::EPOLLERR) != 0 {
                readiness.readable.set_ready();
            }
            if flags & (libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR) != 0 {
                readiness.writable.set_ready();
            }
        }
    }

    fn wait(&self, events: &mut [libc::epoll_event], wait: Wait) -> io::Result<usize> {
        let (set, room) = (self.set.as_raw_fd(), EVENTS as libc::c_int);
        let pointer = events.as_mut_ptr();
        let timeout = match wait {
            Wait::No => None,
            Wait::Until(None) => Some(-1),
            Wait::Until(Some(deadline)) => {
                let left = deadline - clock::now();
                if self.fine_timeouts.get() {
                    let left = libc::timespec {
                        tv_sec: libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX),
                        tv_nsec: libc::c_long::from(left.subsec_nanos().cast_signed()),
                    };
                    let no_mask = std::ptr::null::<libc::sigset_t>();
                    // SAFETY: `events` has room for EVENTS entries, the timeout is a valid local, there is no signal
                    // mask.
                    let count = unsafe {
                        libc::syscall(
                            libc::SYS_epoll_pwait2,
                            set,
                            pointer,
                            room,
                            &raw const left,
                            no_mask,
                            0_usize,
                        )
                    };
                    match usize::try_from(count) {
                        Ok(count) => return Ok(count),
                        Err(_) => {
                            let error = io::Error::last_os_error();
                            if !matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) {
                                return Err(error);
                            }
                            self.fine_timeouts.set(false);
                        }
                    }
                }
                Some(libc::c_int::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(libc::c_int::MAX))
            }
        };
        // SAFETY: `events` has room for EVENTS entries.
        let count = checked(unsafe { libc::epoll_wait(set, pointer, room, timeout.unwrap_or(0)) })?;
        Ok(usize::try_from(count).expect("not negative"))
    }

    fn add(&self, socket: &OwnedFd) -> io::Result<(usize, Rc<Readiness>)> {
        let readiness = Rc::new(Readiness::new());
        let mut sources = self.sources.borrow_mut();
        let slot = sources.free.pop().unwrap_or_else(|| {
            sources.slots.push(None);
            sources.slots.len() - 1
        });
        let events = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        match self.control(libc::EPOLL_CTL_ADD, socket.as_raw_fd(), events, slot as u64) {
            Ok(()) => {
                sources.slots[slot] = Some(Rc::clone(&readiness));
                Ok((slot, readiness))
            }
            Err(error) => {
                sources.free.push(slot);
                Err(error)
            }
        }
    }

    fn remove(&self, socket: &OwnedFd, slot: usize) {
        if let Err(error) = self.control(libc::EPOLL_CTL_DEL, socket.as_raw_fd(), 0, 0) {
            log::error!("runtime: a socket cannot leave its epoll set: {error}");
        }
        let mut sources = self.sources.borrow_mut();
        sources.slots[slot] = None;
        sources.free.push(slot);
    }
}

/// A socket in the set of its shard.
pub(crate) struct Source {
    pub(crate) socket: Arc<OwnedFd>,
    /// `None` when it could not be put into the set and was shut down instead.
    slot: Option<usize>,
    readiness: Rc<Readiness>,
}

impl Source {
    /// Puts a non-blocking socket into the set of the current shard.
    pub(crate) fn new(socket: Arc<OwnedFd>) -> io::Result<Self> {
        let (slot, readiness) = executor::with(|executor| epoll_of(executor).add(&socket))?;
        Ok(Self {
            socket,
            slot: Some(slot),
            readiness,
        })
    }

    /// Watches a socket that comes from another shard. If epoll cannot add it (the user's limit of watches), the
    /// connection is shut down: reads and writes then report that, as after any loss of a connection.
    pub(crate) fn adopt(socket: Arc<OwnedFd>) -> Self {
        match executor::with(|executor| epoll_of(executor).add(&socket)) {
            Ok((slot, readiness)) => Self {
                socket,
                slot: Some(slot),
                readiness,
            },
            Err(error) => {
                log::error!("runtime: a connection cannot be watched and is ended: {error}");
                drop(socket::shut_down(socket.as_raw_fd(), std::net::Shutdown::Both));
                let readiness = Readiness::new();
                readiness.hung_up.set(true);
                Self {
                    socket,
                    slot: None,
                    readiness: Rc::new(readiness),
                }
            }
        }
    }

    fn direction(&self, towards: Towards) -> &Direction {
        match towards {
            Towards::Us => &self.readiness.readable,
            Towards::Them => &self.readiness.writable,
        }
    }

    /// Tries the system call whenever it may succeed, until it says something else than "would block". The call answers
    /// with its result and whether it used up what was ready.
    pub(crate) async fn when_ready<T>(
        &self,
        towards: Towards,
        mut attempt: impl FnMut() -> (io::Result<T>, bool),
    ) -> io::Result<T> {
        // A socket that is always ready would never let its task go.
        if executor::is_slice_over() {
            executor::yield_now().await;
        }
        let direction = self.direction(towards);
        loop {
            if direction.ready.get() || self.readiness.hung_up.get() {
                let (result, used_up) = attempt();
                if used_up {
                    direction.ready.set(false);
                }
                match result {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        direction.ready.set(false);
                        self.next_edge(direction).await;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    result => return result,
                }
            } else {
                self.next_edge(direction).await;
            }
        }
    }

    async fn next_edge(&self, direction: &Direction) {
        poll_fn(|context| {
            if direction.ready.get() {
                return Poll::Ready(());
            }
            let mut waiting = direction.waiting.borrow_mut();
            if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Forgets what was ready: for a socket whose connection is only now being made.
    pub(crate) fn wait_for_next_edge(&self, towards: Towards) {
        self.direction(towards).ready.set(false);
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            executor::try_with(|executor| epoll_of(executor).remove(&self.socket, slot));
        }
    }
}

/// The set of the current shard, which a source of the set can rely on.
fn epoll_of(executor: &executor::Executor) -> &Epoll {
    match &executor.driver {
        super::Driver::Epoll(epoll) => epoll,
        _ => panic!("a socket of the epoll backend on a shard of another backend"),
    }
}
