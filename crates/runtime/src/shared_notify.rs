//! Waiting for something that any thread may change: [`SharedNotify`], the counterpart of [`crate::Notify`] for what
//! shards and background jobs share.
//!
//! It counts changes. A waiter reads the count, then the condition, then waits for another count, so it cannot miss a
//! change in between. Waiters are woken in the order in which they began to wait, which keeps simulated runs
//! deterministic.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::sim::world;

/// Notifies waiting tasks of all shards, and waiting background jobs, that something changed. See the module.
#[derive(Default, Debug)]
pub struct SharedNotify {
    state: Mutex<State>,
    /// For jobs, which block.
    changed: Condvar,
}

#[derive(Default, Debug)]
struct State {
    changes: u64,
    next_ticket: u64,
    waiters: BTreeMap<u64, Waker>,
}

impl SharedNotify {
    /// Without waiters.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many changes there were.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// Counts a change and wakes everyone. Call this after the change.
    pub fn notify_all(&self) {
        let waiters = {
            let mut state = self.lock();
            state.changes += 1;
            std::mem::take(&mut state.waiters)
        };
        self.changed.notify_all();
        for waker in waiters.into_values() {
            waker.wake();
        }
    }

    /// Waits until there were more changes than `seen`.
    pub fn changed_since(&self, seen: u64) -> Changed<'_> {
        Changed {
            notify: self,
            seen,
            ticket: None,
        }
    }

    /// Waits until a condition holds; it is checked now and after each change.
    pub async fn until(&self, mut condition: impl FnMut() -> bool) {
        loop {
            let seen = self.changes();
            if condition() {
                return;
            }
            self.changed_since(seen).await;
        }
    }

    /// Blocks a background job until there were more changes than `seen`, or for `limit`. In the simulator a job runs
    /// as a whole, so nothing changes during it: the job's virtual time passes.
    pub fn block(&self, seen: u64, limit: Duration) {
        if world::is_simulated() {
            if self.changes() == seen {
                world::world().advance(limit);
            }
            return;
        }
        let guard = self.lock();
        drop(
            self.changed
                .wait_timeout_while(guard, limit, |state| state.changes == seen),
        );
    }
}

/// Notifies when it is dropped: the end of whatever holds it.
#[derive(Default, Debug)]
pub struct EndNotify(Arc<SharedNotify>);

impl EndNotify {
    /// What is notified.
    #[must_use]
    pub fn at_end(&self) -> Arc<SharedNotify> {
        self.0.clone()
    }
}

impl Drop for EndNotify {
    fn drop(&mut self) {
        self.0.notify_all();
    }
}

/// See [`SharedNotify::changed_since`].
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct Changed<'a> {
    notify: &'a SharedNotify,
    seen: u64,
    ticket: Option<u64>,
}

impl Future for Changed<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let notify = self.notify;
        let mut state = notify.lock();
        if state.changes != self.seen {
            self.ticket = None;
            return Poll::Ready(());
        }
        let ticket = *self.ticket.get_or_insert_with(|| {
            state.next_ticket += 1;
            state.next_ticket
        });
        state.waiters.insert(ticket, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Changed<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.notify.lock().waiters.remove(&ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;
    use crate::sim::Simulation;

    #[test]
    fn a_change_wakes_those_who_wait_on_other_shards() {
        let (notify, reached) = (
            Arc::new(SharedNotify::new()),
            Arc::new(std::sync::atomic::AtomicU32::new(0)),
        );
        let mut simulation = Simulation::new(1);
        let node = simulation.add_node(3);
        simulation.start(node, move |_| {
            let (notify, reached) = (notify.clone(), reached.clone());
            Box::pin(async move {
                use std::sync::atomic::Ordering::SeqCst;
                reached.fetch_add(1, SeqCst);
                notify.notify_all();
                notify.until(|| reached.load(SeqCst) == 3).await;
            })
        });
        assert!(
            simulation.run_until_ended(node, Duration::from_secs(1)),
            "a shard was not woken by another"
        );
    }

    #[test]
    fn a_waiter_that_gives_up_leaves_nothing_behind() {
        let mut simulation = Simulation::new(1);
        let node = simulation.add_node(1);
        let left = Rc::new(Cell::new(usize::MAX));
        let seen = left.clone();
        simulation.start(node, move |_| {
            let seen = seen.clone();
            Box::pin(async move {
                let notify = SharedNotify::new();
                for _ in 0..3 {
                    let waited = crate::timeout(Duration::from_millis(1), notify.until(|| false)).await;
                    assert!(waited.is_err(), "nothing changed");
                }
                seen.set(notify.lock().waiters.len());
            })
        });
        assert!(simulation.run_until_ended(node, Duration::from_secs(1)));
        assert_eq!(left.get(), 0, "wakers pile up with every wait that ends early");
    }

    #[test]
    fn a_blocked_job_goes_on_at_a_change() {
        let notify = Arc::new(SharedNotify::new());
        let seen = notify.changes();
        notify.notify_all();
        // Would block indefinitely if the change between looking and waiting were missed.
        notify.block(seen, Duration::MAX);
    }
}
