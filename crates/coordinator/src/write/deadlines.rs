//! The deadlines of reads and writes on their way: one queue and one timer for all of a shard, instead of a timer for
//! each.
//!
//! Requests that begin later end later, mostly, so the queue is nearly in order by itself; one that is not goes to its
//! place. What has ended is taken from the front whenever something is added, so the queue is about as long as there
//! are requests on their way.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use runtime::{Instant, Signal};

use super::lasting::Begun;
use crate::spawn;

/// A request on its way that is to be looked at when a time has come.
pub(crate) trait Expiring {
    /// The time has come; when to look again, if at all.
    fn expire(self: Rc<Self>, now: Instant) -> Option<Instant>;

    /// Of a write: when it was born (`birth.rs`); microseconds since the epoch.
    fn birth_us(&self) -> Option<i64>;
}

/// Which flight: a slot and its generation. Generation 0 is of none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct FlightId {
    slot: u32,
    generation: u32,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    flight: Option<Rc<dyn Expiring>>,
}

#[derive(Default)]
struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// By deadline; requests that have ended may still be in it.
    queue: VecDeque<(Instant, FlightId)>,
}

/// The requests of one shard that are on their way.
#[derive(Default)]
pub(crate) struct Flights {
    table: RefCell<Table>,
    /// A task watches.
    is_watched: Cell<bool>,
    /// When the task looks again, unless `earlier` notifies it that a request is due before that.
    looks_at: Cell<Option<Instant>>,
    earlier: Signal,
    /// What may take longer than reports of tombstones allow for (`lasting.rs`).
    pub(super) begun: Begun,
    /// Writes that continue after their requests were answered.
    pub(super) under_way: Cell<usize>,
}

/// The request that is due first.
enum Due {
    /// It is due.
    Now(FlightId, Rc<dyn Expiring>),
    /// No request is due before this.
    At(Instant),
}

impl Table {
    fn get(&self, id: FlightId) -> Option<&Rc<dyn Expiring>> {
        let slot = self.slots.get(id.slot as usize)?;
        slot.flight.as_ref().filter(|_| slot.generation == id.generation)
    }

    fn add(&mut self, flight: Rc<dyn Expiring>, at: Instant) -> FlightId {
        while let Some((_, id)) = self.queue.front()
            && self.get(*id).is_none()
        {
            self.queue.pop_front();
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).expect("memory ends long before 2^32 requests")
        });
        let entry = &mut self.slots[slot as usize];
        entry.generation = entry.generation.wrapping_add(1).max(1);
        entry.flight = Some(flight);
        let id = FlightId {
            slot,
            generation: entry.generation,
        };
        self.queue(at, id);
        id
    }

    fn queue(&mut self, at: Instant, id: FlightId) {
        match self.queue.back() {
            Some((last, _)) if *last > at => {
                let place = self.queue.partition_point(|(other, _)| *other <= at);
                self.queue.insert(place, (at, id));
            }
            _ => self.queue.push_back((at, id)),
        }
    }

    fn remove(&mut self, id: FlightId) -> Option<Rc<dyn Expiring>> {
        self.get(id)?;
        self.free.push(id.slot);
        self.slots[id.slot as usize].flight.take()
    }

    /// The one whose time comes first, if it has come; else when to look again. None: nothing is on its way.
    fn due(&mut self, now: Instant) -> Option<Due> {
        loop {
            let (at, id) = *self.queue.front()?;
            let Some(flight) = self.get(id).cloned() else {
                self.queue.pop_front();
                continue;
            };
            if at > now {
                return Some(Due::At(at));
            }
            self.queue.pop_front();
            return Some(Due::Now(id, flight));
        }
    }
}

impl Flights {
    /// Keeps a request until it is removed, and looks at it when its time comes.
    pub(crate) fn add(self: &Rc<Self>, flight: Rc<dyn Expiring>, at: Instant) -> FlightId {
        let id = self.table.borrow_mut().add(flight, at);
        if !self.is_watched.replace(true) {
            spawn(watch(Rc::downgrade(self)));
        } else if self.looks_at.get().is_some_and(|then| at < then) {
            self.looks_at.set(None);
            self.earlier.ring();
        }
        id
    }

    /// When the oldest write that is on its way was born; microseconds since the epoch. Looks at all requests.
    pub(crate) fn oldest_write_us(&self) -> Option<i64> {
        let table = self.table.borrow();
        let on_their_way = table.slots.iter().filter_map(|slot| slot.flight.as_ref());
        on_their_way.filter_map(|flight| flight.birth_us()).min()
    }

    /// A request has ended.
    pub(crate) fn remove(&self, id: FlightId) {
        // It is dropped after the borrow.
        let ended = self.table.borrow_mut().remove(id);
        drop(ended);
    }
}

/// Looks at requests whose time has come, until none is on its way.
async fn watch(flights: Weak<Flights>) {
    loop {
        let next = {
            let Some(flights) = flights.upgrade() else {
                return;
            };
            let due = flights.table.borrow_mut().due(runtime::now());
            match due {
                None => {
                    flights.is_watched.set(false);
                    return;
                }
                Some(Due::Now(id, flight)) => {
                    if let Some(next) = flight.expire(runtime::now()) {
                        flights.table.borrow_mut().queue(next, id);
                    }
                    continue;
                }
                Some(Due::At(next)) => next,
            }
        };
        let Some(flights) = flights.upgrade() else {
            return;
        };
        flights.looks_at.set(Some(next));
        let told = flights.earlier.wait_until(|| flights.looks_at.get().is_none());
        let _ = runtime::timeout_at(next, told).await;
        flights.looks_at.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Request(Option<i64>);

    impl Expiring for Request {
        fn expire(self: Rc<Self>, _: Instant) -> Option<Instant> {
            None
        }

        fn birth_us(&self) -> Option<i64> {
            self.0
        }
    }

    #[test]
    fn the_oldest_write_is_found_among_all_that_is_on_its_way() {
        let flights = Flights::default();
        let add = |made_us| {
            flights
                .table
                .borrow_mut()
                .add(Rc::new(Request(made_us)), runtime::now())
        };
        assert_eq!(flights.oldest_write_us(), None);
        let (_read, young, old) = (add(None), add(Some(30)), add(Some(20)));
        assert_eq!(flights.oldest_write_us(), Some(20));
        flights.remove(old);
        assert_eq!(flights.oldest_write_us(), Some(30));
        flights.remove(young);
        assert_eq!(flights.oldest_write_us(), None);
    }
}
