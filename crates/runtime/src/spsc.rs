//! A bounded ring for one producer and one consumer, the carrier of messages between an ordered pair of shards.
//!
//! `tail` counts what was ever pushed, `head` what was ever popped; a slot belongs to the producer while `tail - head <
//! capacity` does not cover it, to the consumer otherwise. Each side keeps the last value it saw of the other's
//! counter, so that the shared cache lines move once per batch, not once per message. The two ends are values that
//! cannot be cloned: that there is one producer and one consumer is checked by the compiler.

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A counter on cache lines of its own.
#[repr(align(128))]
struct Counter(AtomicUsize);

struct Ring<T> {
    head: Counter,
    tail: Counter,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: a slot is accessed by one side at a time, handed over by the release store and acquire load of the counters;
// values cross threads, hence `T: Send`.
unsafe impl<T: Send> Sync for Ring<T> {}
// SAFETY: the ring owns its values and has no tie to a thread.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        let (head, tail) = (*self.head.0.get_mut(), *self.tail.0.get_mut());
        for position in head..tail {
            let index = position & (self.slots.len() - 1);
            // SAFETY: slots between head and tail hold values that were pushed and not popped, and this is the last
            // owner of the ring.
            unsafe { self.slots[index].get_mut().assume_init_drop() };
        }
    }
}

/// The end that pushes.
pub(crate) struct Producer<T> {
    ring: Arc<Ring<T>>,
    head_seen: Cell<usize>,
}

/// The end that pops.
pub(crate) struct Consumer<T> {
    ring: Arc<Ring<T>>,
    tail_seen: Cell<usize>,
}

/// A ring of `capacity` values; a power of two.
pub(crate) fn ring<T: Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    assert!(capacity.is_power_of_two());
    let slots = (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
    let counter = || Counter(AtomicUsize::new(0));
    let ring = Arc::new(Ring {
        head: counter(),
        tail: counter(),
        slots,
    });
    (
        Producer {
            ring: Arc::clone(&ring),
            head_seen: Cell::new(0),
        },
        Consumer {
            ring,
            tail_seen: Cell::new(0),
        },
    )
}

impl<T> Producer<T> {
    /// Gives the value back when the ring is full.
    #[inline]
    pub(crate) fn push(&self, value: T) -> Result<(), T> {
        let ring = &*self.ring;
        let tail = ring.tail.0.load(Ordering::Relaxed);
        if tail - self.head_seen.get() == ring.slots.len() {
            self.head_seen.set(ring.head.0.load(Ordering::Acquire));
            if tail - self.head_seen.get() == ring.slots.len() {
                return Err(value);
            }
        }
        // SAFETY: tail - head < capacity, so the consumer has popped this slot (seen by the acquire load) and no other
        // producer exists.
        unsafe { (*ring.slots[tail & (ring.slots.len() - 1)].get()).write(value) };
        ring.tail.0.store(tail + 1, Ordering::Release);
        Ok(())
    }
}

impl<T> Consumer<T> {
    /// The oldest value.
    #[inline]
    pub(crate) fn pop(&self) -> Option<T> {
        let ring = &*self.ring;
        let head = ring.head.0.load(Ordering::Relaxed);
        if head == self.tail_seen.get() {
            self.tail_seen.set(ring.tail.0.load(Ordering::Acquire));
            if head == self.tail_seen.get() {
                return None;
            }
        }
        // SAFETY: head < tail_seen <= tail, so the producer wrote this slot (seen by the acquire load) and will not
        // touch it before head moves.
        let value = unsafe { (*ring.slots[head & (ring.slots.len() - 1)].get()).assume_init_read() };
        ring.head.0.store(head + 1, Ordering::Release);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_gives_the_value_back_and_takes_it_later() {
        let (producer, consumer) = ring(4);
        for value in 0..4 {
            producer.push(value).expect("the ring has room for four");
        }
        assert_eq!(producer.push(4), Err(4));
        assert_eq!(consumer.pop(), Some(0));
        assert_eq!(producer.push(4), Ok(()));
        assert_eq!(std::iter::from_fn(|| consumer.pop()).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(consumer.pop(), None);
    }

    #[test]
    fn values_cross_threads_in_order_and_none_is_lost() {
        let (producer, consumer) = ring(8);
        let sender = std::thread::spawn(move || {
            for value in 0..100_000_u64 {
                let mut value = Box::new(value);
                while let Err(back) = producer.push(value) {
                    value = back;
                    std::thread::yield_now();
                }
            }
        });
        for expected in 0..100_000_u64 {
            let value = loop {
                match consumer.pop() {
                    Some(value) => break value,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(*value, expected);
        }
        sender.join().expect("the sender does not panic");
    }

    #[test]
    fn values_left_in_the_ring_are_dropped_with_it() {
        let witness = Arc::new(());
        let (producer, consumer) = ring(4);
        assert!(producer.push(Arc::clone(&witness)).is_ok());
        assert!(producer.push(Arc::clone(&witness)).is_ok());
        drop(consumer.pop());
        drop((producer, consumer));
        assert_eq!(Arc::strong_count(&witness), 1);
    }
}
