//! Timers of one shard: a binary heap by deadline that can drop a timer from its middle, because most timeouts are
//! cancelled long before they are due and must not pile up. Equal deadlines fire in the order they were set.

use crate::clock::{Instant, now};
use crate::executor;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The timers of one shard.
#[derive(Default)]
pub(crate) struct Timers {
    /// Slots in heap order.
    heap: Vec<u32>,
    slots: Vec<Timer>,
    free: Vec<u32>,
    set: u64,
}

struct Timer {
    deadline: Instant,
    /// Ties between equal deadlines.
    order: u64,
    position: Position,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq)]
enum Position {
    InHeap(u32),
    Fired,
}

impl Timers {
    fn insert(&mut self, deadline: Instant, waker: Waker) -> u32 {
        let position = u32::try_from(self.heap.len()).expect("fewer than 2^32 timers");
        let timer = Timer {
            deadline,
            order: self.set,
            position: Position::InHeap(position),
            waker: Some(waker),
        };
        self.set += 1;
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = timer;
                slot
            }
            None => {
                self.slots.push(timer);
                u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 timers")
            }
        };
        self.heap.push(slot);
        self.sift_up(self.heap.len() - 1);
        slot
    }

    /// Whether the timer fired; otherwise it will wake `waker`.
    fn poll(&mut self, slot: u32, waker: &Waker) -> bool {
        let timer = &mut self.slots[slot as usize];
        if timer.position == Position::Fired {
            return true;
        }
        if !timer.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            timer.waker = Some(waker.clone());
        }
        false
    }

    fn remove(&mut self, slot: u32) {
        if let Position::InHeap(position) = self.slots[slot as usize].position {
            self.remove_from_heap(position as usize);
        }
        self.slots[slot as usize].waker = None;
        self.free.push(slot);
    }

    /// The earliest deadline.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.heap.first().map(|&slot| self.slots[slot as usize].deadline)
    }

    /// Marks the next due timer as fired and hands its waker over.
    pub(crate) fn fire(&mut self, now: Instant) -> Option<Waker> {
        let &slot = self.heap.first()?;
        if self.slots[slot as usize].deadline > now {
            return None;
        }
        self.remove_from_heap(0);
        let timer = &mut self.slots[slot as usize];
        timer.position = Position::Fired;
        timer.waker.take()
    }

    fn remove_from_heap(&mut self, position: usize) {
        self.heap.swap_remove(position);
        if position < self.heap.len() {
            self.note_position(position);
            self.sift_down(position);
            self.sift_up(position);
        }
    }

    fn is_before(&self, left: usize, right: usize) -> bool {
        let key = |position: usize| {
            let timer = &self.slots[self.heap[position] as usize];
            (timer.deadline, timer.order)
        };
        key(left) < key(right)
    }

    fn note_position(&mut self, position: usize) {
        let slot = self.heap[position];
        self.slots[slot as usize].position = Position::InHeap(u32::try_from(position).expect("fewer than 2^32 timers"));
    }

    fn swap(&mut self, left: usize, right: usize) {
        self.heap.swap(left, right);
        self.note_position(left);
        self.note_position(right);
    }

    fn sift_up(&mut self, mut position: usize) {
        while position > 0 && self.is_before(position, (position - 1) / 2) {
            self.swap(position, (position - 1) / 2);
            position = (position - 1) / 2;
        }
    }

    fn sift_down(&mut self, mut position: usize) {
        loop {
            let children = [2 * position + 1, 2 * position + 2];
            let smallest =
                children
                    .into_iter()
                    .filter(|&child| child < self.heap.len())
                    .fold(
                        position,
                        |best, child| {
                            if self.is_before(child, best) { child } else { best }
                        },
                    );
            if smallest == position {
                return;
            }
            self.swap(position, smallest);
            position = smallest;
        }
    }
}

/// Resolves at a deadline. Dropping it takes the timer back.
#[must_use = "futures do nothing unless awaited"]
pub struct Sleep {
    deadline: Instant,
    /// A number among the timers of the shard that polled it first, where it has to stay.
    timer: Option<u32>,
    not_send: PhantomData<*const ()>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let deadline = self.deadline;
        let fired = executor::with(|executor| {
            let mut timers = executor.timers.borrow_mut();
            match self.timer {
                Some(slot) => timers.poll(slot, context.waker()),
                None if deadline <= now() => true,
                None => {
                    self.timer = Some(timers.insert(deadline, context.waker().clone()));
                    false
                }
            }
        });
        if fired { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(slot) = self.timer.take() {
            executor::try_with(|executor| executor.timers.borrow_mut().remove(slot));
        }
    }
}

/// Waits for a duration, counted from the call.
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(now() + duration)
}

/// Waits for an instant.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep {
        deadline,
        timer: None,
        not_send: PhantomData,
    }
}

/// The time was over before the future was done; the future was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the operation took longer than its timeout")
    }
}

impl std::error::Error for Elapsed {}

/// Awaits the future for at most `duration`, counted from the call, then drops it. A future that is ready wins over a
/// timeout that is due.
pub fn timeout<F: Future>(duration: Duration, future: F) -> Timeout<F> {
    timeout_at(now() + duration, future)
}

/// Awaits the future until an instant at most, then drops it. A future that is ready wins over a timeout that is due.
pub fn timeout_at<F: Future>(deadline: Instant, future: F) -> Timeout<F> {
    Timeout {
        limit: sleep_until(deadline),
        future,
    }
}

/// See [`timeout`]. Not an async function: that would keep the future twice, as its argument and as what it awaits.
#[must_use = "futures do nothing unless awaited"]
pub struct Timeout<F> {
    limit: Sleep,
    future: F,
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: `future` is pinned with the whole and is never moved out of it; `limit` is `Unpin`, and dropping is
        // the compiler's.
        let (future, limit) = unsafe {
            let this = self.get_unchecked_mut();
            (Pin::new_unchecked(&mut this.future), &mut this.limit)
        };
        if let Poll::Ready(output) = future.poll(context) {
            return Poll::Ready(Ok(output));
        }
        Pin::new(limit).poll(context).map(|()| Err(Elapsed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_by_deadline_whatever_was_removed_between() {
        let mut timers = Timers::default();
        let mut random = crate::random::Generator::from_seed(7);
        let mut expected = Vec::new();
        let mut slots = Vec::new();
        for _ in 0..1000 {
            let deadline = random.next() % 500;
            slots.push((
                timers.insert(Instant::from_nanos(deadline), Waker::noop().clone()),
                deadline,
            ));
        }
        for (slot, deadline) in slots {
            if random.next().is_multiple_of(3) {
                timers.remove(slot);
            } else {
                expected.push(deadline);
            }
        }
        expected.sort_unstable();
        let mut fired = Vec::new();
        while let Some(next) = timers.next_deadline() {
            assert!(
                next.as_nanos() == 0 || timers.fire(next - Duration::from_nanos(1)).is_none(),
                "a timer fired early"
            );
            if timers.fire(next).is_some() {
                fired.push(next.as_nanos());
            }
        }
        assert_eq!(fired, expected);
    }
}
