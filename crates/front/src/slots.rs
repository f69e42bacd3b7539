//! Requests in flight, each by a number: what works on a request returns the number with the outcome, and needs no task
//! for it.

use std::cell::RefCell;
use std::rc::Rc;

/// Requests that wait or run, by number. What an entry is belongs to the front door.
#[derive(Debug)]
pub struct Slots<T> {
    slots: RefCell<Vec<Option<T>>>,
    free: RefCell<Vec<u32>>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            slots: RefCell::default(),
            free: RefCell::default(),
        }
    }
}

impl<T> Slots<T> {
    /// Adds a request; its number.
    pub fn add(&self, request: T) -> u32 {
        let mut slots = self.slots.borrow_mut();
        if let Some(number) = self.free.borrow_mut().pop() {
            slots[number as usize] = Some(request);
            return number;
        }
        slots.push(Some(request));
        u32::try_from(slots.len() - 1).expect("a connection has few requests in flight")
    }

    /// Takes the request of a number, once.
    pub fn take(&self, number: u32) -> Option<T> {
        let request = self.slots.borrow_mut().get_mut(number as usize)?.take()?;
        self.free.borrow_mut().push(number);
        Some(request)
    }

    /// Adds a request until the slot is dropped.
    pub fn hold(self: &Rc<Self>, request: T) -> Slot<T> {
        Slot {
            slots: Rc::clone(self),
            number: self.add(request),
        }
    }

    /// Shows all of them, in no order.
    pub fn each(&self, show: impl FnMut(&T)) {
        self.slots.borrow().iter().flatten().for_each(show);
    }
}

/// A request's slot, given back when this is dropped.
#[derive(Debug)]
pub struct Slot<T> {
    slots: Rc<Slots<T>>,
    number: u32,
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        self.slots.take(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_names_one_request_until_it_is_taken() {
        let slots = Slots::default();
        let (first, second) = (slots.add("first"), slots.add("second"));
        assert_eq!(slots.take(first), Some("first"));
        assert_eq!(slots.take(first), None, "it was taken");
        assert_eq!(slots.add("third"), first, "a number that is free is used again");
        assert_eq!((slots.take(second), slots.take(first)), (Some("second"), Some("third")));
        assert_eq!(slots.take(7), None, "no request had it");
    }

    #[test]
    fn a_request_is_shown_as_long_as_its_slot_is_held() {
        let slots = Rc::new(Slots::default());
        let shown = || {
            let mut shown = Vec::new();
            slots.each(|request| shown.push(*request));
            shown
        };
        let (first, second) = (slots.hold(1), slots.hold(2));
        assert_eq!(shown(), [1, 2]);
        drop(first);
        assert_eq!(shown(), [2]);
        drop(second);
        assert_eq!(shown(), [0; 0]);
    }
}
