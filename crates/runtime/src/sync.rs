//! Waiting for each other on one shard: [`Notify`] and [`Semaphore`] are cheap to clone and fair (first come, first
//! served); a [`Signal`] is for one waiter.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Notifies waiting tasks of this shard that something happened. Nothing is remembered: only tasks that already wait
/// are notified, so check the condition after making the future and before awaiting it.
#[derive(Clone, Default)]
pub struct Notify(Rc<RefCell<NotifyState>>);

#[derive(Default)]
struct NotifyState {
    /// By their tickets, which grow.
    waiters: VecDeque<(u64, Waker)>,
    /// The next ticket to give out. Taking a waiter's ticket from the queue notifies it.
    next_ticket: u64,
    /// Tickets below this were notified by `notify_all`.
    told_before: u64,
    /// Tickets notified one by one whose futures were not polled since.
    told: Vec<u64>,
}

impl Notify {
    /// Without waiters.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for the next notification after this call, whether polled before it or not.
    pub fn notified(&self) -> Notified {
        let mut state = self.0.borrow_mut();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiters.push_back((ticket, Waker::noop().clone()));
        Notified {
            notify: Rc::clone(&self.0),
            ticket,
            done: false,
        }
    }

    /// Notifies all waiters.
    pub fn notify_all(&self) {
        let waiters = {
            let mut state = self.0.borrow_mut();
            state.told_before = state.next_ticket;
            state.told.clear();
            std::mem::take(&mut state.waiters)
        };
        for (_, waker) in waiters {
            waker.wake();
        }
    }

    /// Notifies the waiter that waits longest. A notified future that is dropped before it was polled notifies the next
    /// waiter.
    pub fn notify_one(&self) {
        notify_one(&self.0);
    }
}

fn notify_one(state: &RefCell<NotifyState>) {
    let waiter = {
        let mut state = state.borrow_mut();
        let waiter = state.waiters.pop_front();
        if let Some((ticket, _)) = &waiter {
            state.told.push(*ticket);
        }
        waiter
    };
    if let Some((_, waker)) = waiter {
        waker.wake();
    }
}

/// See [`Notify::notified`].
#[must_use = "futures do nothing unless awaited"]
pub struct Notified {
    notify: Rc<RefCell<NotifyState>>,
    ticket: u64,
    done: bool,
}

impl Future for Notified {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let ticket = self.ticket;
        let told = {
            let mut state = self.notify.borrow_mut();
            if ticket < state.told_before {
                true
            } else if let Some(position) = state.told.iter().position(|&told| told == ticket) {
                state.told.swap_remove(position);
                true
            } else {
                if let Ok(position) = state.waiters.binary_search_by_key(&ticket, |(waiting, _)| *waiting) {
                    state.waiters[position].1.clone_from(context.waker());
                }
                false
            }
        };
        if told {
            self.done = true;
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl Drop for Notified {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let pass_on = {
            let mut state = self.notify.borrow_mut();
            let ticket = self.ticket;
            if let Ok(position) = state.waiters.binary_search_by_key(&ticket, |(waiting, _)| *waiting) {
                state.waiters.remove(position);
            }
            match state.told.iter().position(|&told| told == ticket) {
                Some(position) => {
                    state.told.swap_remove(position);
                    ticket >= state.told_before
                }
                None => false,
            }
        };
        if pass_on {
            notify_one(&self.notify);
        }
    }
}

/// One task that waits for something to become true.
#[derive(Default)]
pub struct Signal(Cell<Option<Waker>>);

impl Signal {
    /// The condition may hold now.
    pub fn ring(&self) {
        if let Some(waker) = self.0.take() {
            waker.wake();
        }
    }

    /// Waits until it does; it is looked at again at each ring.
    pub async fn wait_until(&self, mut condition: impl FnMut() -> bool) {
        poll_fn(|context| {
            if condition() {
                return Poll::Ready(());
            }
            self.wait(context.waker());
            Poll::Pending
        })
        .await;
    }

    /// Sets the waker to wake at the next ring, for futures that poll the condition themselves.
    pub fn wait(&self, waker: &Waker) {
        self.0.set(Some(waker.clone()));
    }
}

/// Units that tasks of this shard take and give back: memory, requests in flight, disk tokens.
#[derive(Clone)]
pub struct Semaphore(Rc<RefCell<SemaphoreState>>);

struct SemaphoreState {
    available: usize,
    waiters: VecDeque<SemaphoreWaiter>,
    next_ticket: u64,
}

struct SemaphoreWaiter {
    ticket: u64,
    units: usize,
    waker: Waker,
}

impl Semaphore {
    /// A semaphore with this many units.
    #[must_use]
    pub fn new(units: usize) -> Self {
        Self(Rc::new(RefCell::new(SemaphoreState {
            available: units,
            waiters: VecDeque::new(),
            next_ticket: 0,
        })))
    }

    /// Waits in line for `units` units. A request for more units than there are in all waits until more are added.
    pub async fn acquire(&self, units: usize) -> Permit {
        Acquire {
            semaphore: self,
            units,
            ticket: None,
        }
        .await
    }

    /// Takes the units if they are free and no task waits in line.
    #[must_use]
    pub fn try_acquire(&self, units: usize) -> Option<Permit> {
        let mut state = self.0.borrow_mut();
        if !state.waiters.is_empty() || state.available < units {
            return None;
        }
        state.available -= units;
        Some(Permit {
            semaphore: self.clone(),
            units,
        })
    }

    /// Free units.
    #[must_use]
    pub fn available(&self) -> usize {
        self.0.borrow().available
    }

    /// Tasks in line.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.borrow().waiters.len()
    }

    /// Adds units.
    pub fn add(&self, units: usize) {
        self.give_back(units);
    }

    fn give_back(&self, units: usize) {
        self.0.borrow_mut().available += units;
        self.wake_first();
    }

    /// Wakes the first in line if there is enough for it.
    fn wake_first(&self) {
        let waker = {
            let state = self.0.borrow();
            state
                .waiters
                .front()
                .filter(|first| first.units <= state.available)
                .map(|first| first.waker.clone())
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

struct Acquire<'a> {
    semaphore: &'a Semaphore,
    units: usize,
    ticket: Option<u64>,
}

impl Future for Acquire<'_> {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit> {
        let units = self.units;
        let taken = {
            let mut state = self.semaphore.0.borrow_mut();
            let first = state.waiters.front().map(|waiter| waiter.ticket);
            let my_turn = first.is_none() || first == self.ticket;
            if my_turn && state.available >= units {
                state.available -= units;
                if self.ticket.take().is_some() {
                    state.waiters.pop_front();
                }
                true
            } else {
                match self.ticket {
                    Some(ticket) => {
                        if let Some(waiter) = state.waiters.iter_mut().find(|waiter| waiter.ticket == ticket) {
                            waiter.waker.clone_from(context.waker());
                        }
                    }
                    None => {
                        let ticket = state.next_ticket;
                        state.next_ticket += 1;
                        state.waiters.push_back(SemaphoreWaiter {
                            ticket,
                            units,
                            waker: context.waker().clone(),
                        });
                        self.ticket = Some(ticket);
                    }
                }
                false
            }
        };
        if !taken {
            return Poll::Pending;
        }
        // What is left may be enough for the next in line.
        self.semaphore.wake_first();
        Poll::Ready(Permit {
            semaphore: self.semaphore.clone(),
            units,
        })
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.semaphore
                .0
                .borrow_mut()
                .waiters
                .retain(|waiter| waiter.ticket != ticket);
            self.semaphore.wake_first();
        }
    }
}

/// Units taken from a [`Semaphore`]; given back when dropped.
#[must_use = "dropping the permit gives the units back"]
pub struct Permit {
    semaphore: Semaphore,
    units: usize,
}

impl Permit {
    /// Units it holds.
    #[must_use]
    pub fn units(&self) -> usize {
        self.units
    }

    /// Gives back some of the units early; keeps the rest.
    pub fn shrink(&mut self, units: usize) {
        let units = units.min(self.units);
        self.units -= units;
        self.semaphore.give_back(units);
    }

    /// The units are not given back.
    pub fn forget(mut self) {
        self.units = 0;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.units > 0 {
            self.semaphore.give_back(self.units);
        }
    }
}
