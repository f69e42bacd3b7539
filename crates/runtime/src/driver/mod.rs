//! The kernel as one shard sees it. One of the backends; which one is decided once, at start.

pub(crate) mod epoll;
pub(crate) mod epoll_net;
mod leftover;
pub(crate) mod socket;
pub(crate) mod unix_socket;
pub(crate) mod uring;
pub(crate) mod uring_file;
pub(crate) mod uring_net;

use crate::clock::{self, Instant};
use crate::gate::Gate;
use crate::sim::SimulatedDriver;
use crate::start::Backend;
use epoll::Epoll;
use std::io;
use std::time::Duration;
use uring::Uring;

/// How long a visit to the kernel may take.
#[derive(Clone, Copy)]
pub(crate) enum Wait {
    /// Hand over and fetch, do not sleep.
    No,
    /// Sleep until something completes, the gate is rung, or the deadline.
    Until(Option<Instant>),
}

/// The backend of one shard.
pub(crate) enum Driver {
    Uring(Box<Uring>),
    Epoll(Box<Epoll>),
    Simulated(SimulatedDriver),
}

impl Driver {
    pub(crate) fn open(backend: Backend, gate: &'static Gate) -> io::Result<Self> {
        match backend {
            Backend::IoUring | Backend::Auto => Ok(Self::Uring(Box::new(Uring::open(gate)?))),
            Backend::Epoll => Ok(Self::Epoll(Box::new(Epoll::open(gate)?))),
        }
    }

    /// Whether the kernel lets us use io_uring with all we need of it.
    pub(crate) fn probe_io_uring() -> io::Result<()> {
        Uring::probe()
    }

    /// Whether [`Driver::completion_waits`] can ever be true.
    pub(crate) fn signals_completions(&self) -> bool {
        match self {
            Self::Uring(_) | Self::Simulated(_) => true,
            Self::Epoll(_) => false,
        }
    }

    /// Whether a completion waits to be fetched: one load.
    #[inline]
    pub(crate) fn completion_waits(&self) -> bool {
        match self {
            Self::Uring(uring) => uring.completion_waits(),
            Self::Epoll(_) => false,
            Self::Simulated(driver) => driver.world.once_in(8),
        }
    }

    /// Whether something waits to be handed to the kernel.
    #[inline]
    pub(crate) fn has_submissions(&self) -> bool {
        match self {
            Self::Uring(uring) => uring.has_submissions(),
            Self::Epoll(_) | Self::Simulated(_) => false,
        }
    }

    /// Hands over what waits, fetches what is done, and wakes its tasks.
    pub(crate) fn visit(&self, wait: Wait) {
        match self {
            Self::Uring(uring) => uring.visit(wait),
            Self::Epoll(epoll) => epoll.visit(wait),
            Self::Simulated(_) => {}
        }
    }

    /// Called in a loop by a shard that polls before it sleeps.
    pub(crate) fn visit_while_spinning(&self) {
        match self {
            Self::Uring(_) => std::hint::spin_loop(),
            Self::Epoll(epoll) => epoll.visit(Wait::No),
            Self::Simulated(_) => {}
        }
    }

    /// Ends every operation in flight, after all tasks were dropped.
    pub(crate) fn shut_down(&self) {
        match self {
            Self::Uring(uring) => uring.shut_down(),
            Self::Epoll(_) | Self::Simulated(_) => {}
        }
    }

    /// The processor's counter; virtual in the simulator.
    #[inline]
    pub(crate) fn ticks(&self) -> u64 {
        match self {
            Self::Uring(_) | Self::Epoll(_) => clock::ticks(),
            Self::Simulated(driver) => driver.world.now().as_nanos(),
        }
    }

    /// Called before each poll of a task. In the simulator polls take time. Returns the thread's processor time if the
    /// simulator measures polls of this node.
    #[inline]
    pub(crate) fn before_poll(&self, shard: u32, slot: u32) -> Option<Duration> {
        if let Self::Simulated(driver) = self {
            driver
                .world
                .advance(Duration::from_nanos(500 + driver.world.below(8000)));
            driver
                .world
                .note("poll", &[u64::from(driver.node.0), u64::from(shard), u64::from(slot)]);
            return driver
                .world
                .polls
                .borrow()
                .contains_key(&driver.node)
                .then(clock::real_thread_cpu_time);
        }
        None
    }

    /// Called after each poll of a task, with the result of [`Self::before_poll`].
    #[inline]
    pub(crate) fn after_poll(&self, began: Option<Duration>) {
        if let (Self::Simulated(driver), Some(began)) = (self, began)
            && let Some(polls) = driver.world.polls.borrow_mut().get_mut(&driver.node)
        {
            polls.push(clock::real_thread_cpu_time().saturating_sub(began));
        }
    }
}
