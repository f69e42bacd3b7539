//! Which connections are let in, and which of them may work while they are not ready yet.
//!
//! A connection is *uninitialized* from its acceptance until its handshake is done. Thousands may come at once, when an
//! application starts or a network is back. So that they do not slow down clients that are ready:
//!
//! - they work in the group of drivers' connections, which gives way to requests;
//! - at most [`Options::handshakes_max`](crate::Options) of a shard have a *place*, which work for a handshake needs;
//!   the others wait in the order in which their bytes came. A connection that waits for its client has no place;
//! - above [`Options::uninitialized_max`](crate::Options) of them further ones are *shed*: closed before anything of
//!   them is read.
//!
//! The order matters as much as the number: if all of them were served a little, all would be ready late, and clients
//! that had given up waiting would connect again.
//!
//! Lives on each shard and sees that shard's connections.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use runtime::{Instant, Permit, Semaphore};

use crate::counts::increment;

/// Uninitialized connections of a shard, beyond which further ones are shed. A handshake costs some 100 µs of a
/// processor, and drivers wait five seconds for one: where the shard has a sixth of its time for them, as when requests
/// take the rest, the last of so many is served in half of that. A later one would wait in vain. Each costs its socket
/// and a kilobyte or two.
pub const UNINITIALIZED_MAX: usize = 4096;

/// What is said of connections that are shed is said once in so long.
const LOG_PAUSE: Duration = Duration::from_secs(60);

/// What came of the connections of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Arrivals {
    /// Connections that were accepted, those that were shed included.
    pub accepted: u64,
    /// Those that were closed at once.
    pub shed: u64,
    /// Those whose handshake was done.
    pub handshakes: u64,
    /// Those that are open and whose handshake is not done.
    pub uninitialized: usize,
    /// Those of them that wait for a place.
    pub waiting: usize,
}

/// Admission of connections on one shard.
pub(crate) struct Admission {
    places: Semaphore,
    uninitialized_max: usize,
    uninitialized: Cell<usize>,
    accepted: Cell<u64>,
    shed: Cell<u64>,
    handshakes: Cell<u64>,
    last_log: Cell<Option<Instant>>,
}

/// A connection that was let in and is not ready.
pub struct Uninitialized(Rc<Admission>);

impl Admission {
    pub(crate) fn new(handshakes_max: usize, uninitialized_max: usize) -> Rc<Self> {
        Rc::new(Self {
            places: Semaphore::new(handshakes_max.max(1)),
            uninitialized_max,
            uninitialized: Cell::new(0),
            accepted: Cell::new(0),
            shed: Cell::new(0),
            handshakes: Cell::new(0),
            last_log: Cell::new(None),
        })
    }

    /// Lets a connection in, unless too many wait or `is_full`; None: it is to be closed at once.
    pub(crate) fn admit(self: &Rc<Self>, is_full: bool) -> Option<Uninitialized> {
        increment(&self.accepted);
        if is_full || self.uninitialized.get() >= self.uninitialized_max {
            self.note_shed();
            return None;
        }
        self.uninitialized.set(self.uninitialized.get() + 1);
        Some(Uninitialized(self.clone()))
    }

    #[cold]
    fn note_shed(&self) {
        increment(&self.shed);
        let now = runtime::now();
        if self.last_log.get().is_none_or(|last| now - last >= LOG_PAUSE) {
            self.last_log.set(Some(now));
            log::warn!(
                "connections of clients are closed at once, because {} handshakes are not done, or there are as many connections as may be \
                 ({} closed so far)",
                self.uninitialized.get(),
                self.shed.get()
            );
        }
    }

    pub(crate) fn arrivals(&self) -> Arrivals {
        Arrivals {
            accepted: self.accepted.get(),
            shed: self.shed.get(),
            handshakes: self.handshakes.get(),
            uninitialized: self.uninitialized.get(),
            waiting: self.places.waiting(),
        }
    }
}

impl Uninitialized {
    /// Waits for a place, first come, first served. To be given back before the client is waited for.
    pub async fn place(&self) -> Permit {
        self.0.places.acquire(1).await
    }

    /// The handshake is done.
    pub fn become_ready(self) {
        increment(&self.0.handshakes);
    }
}

impl Drop for Uninitialized {
    fn drop(&mut self) {
        self.0.uninitialized.set(self.0.uninitialized.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use runtime::sim::Simulation;

    use super::*;

    /// Runs a test on a simulated shard.
    fn on_shard(test: impl AsyncFn() + Copy + 'static) {
        let mut sim = Simulation::new(1);
        let node = sim.add_node(1);
        sim.start(node, move |_| Box::pin(async move { test().await }));
        assert!(sim.run_until_ended(node, Duration::from_secs(300)), "it did not end");
    }

    #[test]
    fn handshakes_are_done_in_the_order_they_came_and_so_many_at_once() {
        on_shard(async || {
            let admission = Admission::new(8, 1000);
            let (working, most) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
            let order = Rc::new(RefCell::new(Vec::new()));
            let connections: Vec<_> = (0..100)
                .map(|number| {
                    let connection = admission.admit(false).expect("a hundred are under the bound");
                    let (working, most, order) = (working.clone(), most.clone(), order.clone());
                    runtime::spawn(async move {
                        let place = connection.place().await;
                        order.borrow_mut().push(number);
                        working.set(working.get() + 1);
                        most.set(most.get().max(working.get()));
                        // As a handshake that has a password hashed elsewhere.
                        runtime::sleep(Duration::from_millis(10)).await;
                        working.set(working.get() - 1);
                        drop(place);
                        connection.become_ready();
                    })
                })
                .collect();
            runtime::sleep(Duration::from_millis(5)).await;
            let first = admission.arrivals();
            assert_eq!(
                (first.uninitialized, first.waiting),
                (100, 92),
                "eight work, the others wait"
            );
            for connection in connections {
                connection.await;
            }
            assert_eq!(most.get(), 8, "so many worked at once");
            assert_eq!(
                *order.borrow(),
                (0..100).collect::<Vec<_>>(),
                "not in the order they came"
            );
            let done = Arrivals {
                accepted: 100,
                handshakes: 100,
                ..Arrivals::default()
            };
            assert_eq!(admission.arrivals(), done);
        });
    }

    #[test]
    fn above_the_bound_connections_are_shed_and_below_it_none_is() {
        on_shard(async || {
            let admission = Admission::new(8, 3);
            let mut open: Vec<_> = (0..3)
                .map(|_| admission.admit(false).expect("under the bound"))
                .collect();
            assert!(admission.admit(false).is_none(), "a fourth was let in");
            open.pop().expect("three are open").become_ready();
            open.push(admission.admit(false).expect("one is ready and counts no more"));
            open.pop();
            open.push(admission.admit(false).expect("one went away and counts no more"));
            open.pop();
            assert!(
                admission.admit(true).is_none(),
                "the shard has all the connections that it takes"
            );
            let counted = Arrivals {
                accepted: 7,
                shed: 2,
                handshakes: 1,
                uninitialized: 2,
                waiting: 0,
            };
            assert_eq!(admission.arrivals(), counted);
        });
    }

    #[test]
    fn a_connection_that_ends_while_it_waits_leaves_its_place_to_the_next() {
        on_shard(async || {
            let admission = Admission::new(1, 10);
            let (first, second, third) = (admission.admit(false), admission.admit(false), admission.admit(false));
            let [first, second, third] = [first, second, third].map(|admitted| admitted.expect("under the bound"));
            let place = first.place().await;
            let gave_up = runtime::timeout(Duration::from_millis(1), second.place()).await;
            assert!(gave_up.is_err(), "there is one place, and it is taken");
            drop(second);
            let waiting = runtime::spawn(async move { drop(third.place().await) });
            runtime::yield_now().await;
            drop(place);
            assert!(
                runtime::timeout(Duration::from_secs(1), waiting).await.is_ok(),
                "the place went to a connection that is gone"
            );
        });
    }
}
