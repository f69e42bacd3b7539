//! SIGTERM and SIGINT as a future, and SIGHUP as another. A handler sets a flag or counts, and rings every gate. The
//! second SIGTERM or SIGINT ends the process as if there were no handler, so that a node that hangs on its way out can
//! be stopped; SIGHUP never does.

use crate::driver::Driver;
use crate::executor::{self, Executor};
use crate::gate::Gate;
use std::future::Future;
use std::pin::Pin;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

static TERMINATING: AtomicBool = AtomicBool::new(false);
/// How many SIGHUP came.
static HANGUPS: AtomicU64 = AtomicU64::new(0);

/// How many SIGHUP came so far.
pub(crate) fn hangups() -> u64 {
    HANGUPS.load(Ordering::Acquire)
}

/// Whether the process has received SIGTERM or SIGINT; in the simulator, whether the node's process was asked to end.
pub(crate) fn is_terminating(executor: &Executor) -> bool {
    match &executor.driver {
        Driver::Simulated(driver) => driver.world.node(driver.node).terminating.get(),
        _ => TERMINATING.load(Ordering::Acquire),
    }
}

/// Resolves when the process receives SIGTERM or SIGINT, on every shard that awaits it. Handlers are installed at the
/// first call; before it the signals end the process.
pub fn on_signal_terminate() -> TerminateSignal {
    if !crate::sim::world::is_simulated() {
        install_handlers();
    }
    TerminateSignal(())
}

/// See [`on_signal_terminate`].
#[must_use = "futures do nothing unless awaited"]
pub struct TerminateSignal(());

impl Future for TerminateSignal {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        executor::with(|executor| {
            // First leave the waker, then look: the handler sets the flag before it rings.
            let mut waiters = executor.terminate_waiters.borrow_mut();
            if !waiters.iter().any(|waiter| waiter.will_wake(context.waker())) {
                waiters.push(context.waker().clone());
            }
            if is_terminating(executor) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
    }
}

/// From here on SIGHUP does not end the process, but resolves what this gives. None comes in the simulator.
pub fn on_signal_hangup() -> HangupSignal {
    static INSTALLED: Once = Once::new();
    if !crate::sim::world::is_simulated() {
        INSTALLED.call_once(|| install(libc::SIGHUP, handle_hangup, libc::SA_RESTART));
    }
    HangupSignal { seen: hangups() }
}

/// Resolves at the next SIGHUP after [`on_signal_hangup`].
#[must_use = "futures do nothing unless awaited"]
pub struct HangupSignal {
    seen: u64,
}

impl Future for HangupSignal {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        executor::with(|executor| {
            // First leave the waker, then look: the handler counts before it rings.
            executor.hangup_waiters.borrow_mut().push(context.waker().clone());
            if hangups() == self.seen {
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        })
    }
}

fn install_handlers() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        for signal in [libc::SIGTERM, libc::SIGINT] {
            install(signal, handle, libc::SA_RESTART | libc::SA_RESETHAND);
        }
    });
}

fn install(signal: libc::c_int, handler: extern "C" fn(libc::c_int), flags: libc::c_int) {
    // SAFETY: an all-zero sigaction is a valid value to fill in.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = flags;
    // SAFETY: the action is complete, and the handlers do only what a signal handler may do: atomic operations and
    // write(2).
    let result = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    if result != 0 {
        log::error!(
            "runtime: cannot handle signal {signal}: {}",
            std::io::Error::last_os_error()
        );
    }
}

extern "C" fn handle(_signal: libc::c_int) {
    TERMINATING.store(true, Ordering::Release);
    ring_all();
}

extern "C" fn handle_hangup(_signal: libc::c_int) {
    HANGUPS.fetch_add(1, Ordering::AcqRel);
    ring_all();
}

/// Wakes all shards; from a signal handler.
fn ring_all() {
    // SAFETY: errno of the interrupted thread is read and put back below, through the pointer libc gives for it.
    let errno = unsafe { *libc::__errno_location() };
    for gate in Gate::all() {
        gate.ring();
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}
