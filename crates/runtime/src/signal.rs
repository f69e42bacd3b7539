//! SIGTERM and SIGINT as a future. The handler sets a flag and rings every gate. The second signal of a kind ends the process as if
//! there were no handler, so that a node that hangs on its way out can be stopped.

use crate::driver::Driver;
use crate::executor::{self, Executor};
use crate::gate::Gate;
use std::future::Future;
use std::pin::Pin;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

static TERMINATING: AtomicBool = AtomicBool::new(false);

/// Whether the process was told to end; in the simulator, the process of the node.
pub(crate) fn is_terminating(executor: &Executor) -> bool {
    match &executor.driver {
        Driver::Simulated(driver) => driver.world.node(driver.node).terminating.get(),
        _ => TERMINATING.load(Ordering::Acquire),
    }
}

/// Resolves when the process is told to end (SIGTERM or SIGINT), on every shard that awaits it. Handlers are installed at the first
/// call; before it the signals end the process.
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

fn install_handlers() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        for signal in [libc::SIGTERM, libc::SIGINT] {
            // SAFETY: an all-zero sigaction is a valid value to fill in.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_RESTART | libc::SA_RESETHAND;
            // SAFETY: the action is complete, and `handle` does only what a signal handler may do: atomic operations and write(2).
            let result = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
            if result != 0 {
                log::error!(
                    "runtime: cannot handle signal {signal}: {}",
                    std::io::Error::last_os_error()
                );
            }
        }
    });
}

extern "C" fn handle(_signal: libc::c_int) {
    // SAFETY: errno of the interrupted thread is read and put back below, through the pointer libc gives for it.
    let errno = unsafe { *libc::__errno_location() };
    TERMINATING.store(true, Ordering::Release);
    for gate in Gate::all() {
        gate.ring();
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}
