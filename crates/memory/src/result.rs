//! A shard's memory for results in the making: each SELECT that is not answered in one call reserves some, by estimate.
//!
//! A [`Reservation`] travels with the consumer of its result, perhaps to other shards, so the memory is shared between
//! threads. Small reservations may use all of it, large ones only a part: small results never wait for large ones.
//!
//! A result that outgrows its reservation takes more if there is more. If not, it waits for its *turn to grow*: one
//! result at a time may exceed the limit, and only while the answers that clients have not taken leave memory. So
//! results in the making take at most the limit and one result more, and some read always proceeds. A result also grows
//! before a long row is read for it ([`RowMemory`]). A result that waits longer than [`GROWTH_WAIT_MAX`] fails as
//! overloaded and frees its memory.
//!
//! A result of unknown size need not wait until there is memory for a large one: it may begin with a *trial*, a small
//! reservation that never grows. If the result outgrows it, what was read is dropped, and the read starts again with a
//! reservation that may grow.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::{Overloaded, Reserving, RowMemory};

/// A reservation of at most so many bytes is small.
pub const SMALL_BYTES_MAX: usize = 512 << 10;

/// What a read of several rows has besides its result: a block of its sources.
pub const READ_BYTES: usize = 256 << 10;

/// How long a result waits for its turn to grow.
pub const GROWTH_WAIT_MAX: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub struct ResultMemory {
    bytes_max: usize,
    state: Mutex<State>,
    /// Clients have taken so little of their answers that no result may exceed the limit.
    is_blocked: AtomicBool,
}

#[derive(Default, Debug)]
struct State {
    /// Bytes of all reservations.
    taken: usize,
    /// Bytes with which small reservations began.
    small_taken: usize,
    small: Line,
    large: Line,
    growing: Line,
    /// The reservation that may grow now.
    grower: Option<u64>,
    next_ticket: u64,
}

/// The waiting reservations, in order of arrival.
#[derive(Default, Debug)]
struct Line(VecDeque<(u64, Waker)>);

impl Line {
    fn is_first(&self, ticket: u64) -> bool {
        self.0.front().is_none_or(|(first, _)| *first == ticket)
    }

    fn wait(&mut self, ticket: u64, waker: &Waker) {
        match self.position(ticket) {
            Ok(at) => self.0[at].1.clone_from(waker),
            Err(at) => self.0.insert(at, (ticket, waker.clone())),
        }
    }

    fn leave(&mut self, ticket: u64) {
        if let Ok(at) = self.position(ticket) {
            self.0.remove(at);
        }
    }

    /// Tickets grow.
    fn position(&self, ticket: u64) -> Result<usize, usize> {
        self.0.binary_search_by_key(&ticket, |(waiting, _)| *waiting)
    }

    fn first(&self) -> Option<Waker> {
        self.0.front().map(|(_, waker)| waker.clone())
    }
}

impl ResultMemory {
    /// A limit of so many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes_max: bytes_max.max(1),
            state: Mutex::default(),
            is_blocked: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of all reservations up to which one of this size is granted.
    const fn limit(&self, is_small: bool) -> usize {
        if is_small {
            self.bytes_max
        } else {
            self.bytes_max / 3 * 2 + 1
        }
    }

    /// Bytes of all reservations.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.lock().taken
    }

    /// Sets whether answers that clients have not taken forbid results to exceed the limit.
    pub fn set_blocked(&self, is_blocked: bool) {
        self.is_blocked.store(is_blocked, Ordering::Relaxed);
        if !is_blocked {
            self.wake();
        }
    }

    /// Whether a reservation of so many bytes would not wait.
    #[must_use]
    pub fn is_free(&self, bytes: usize) -> bool {
        let (queue, bytes) = self.queue(bytes);
        let mut state = self.lock();
        state.line(queue).0.is_empty() && state.taken + bytes <= self.limit(matches!(queue, Queue::Small))
    }

    /// Where a reservation of so many bytes waits, and how many it gets. A third of the memory is for small ones,
    /// whatever large ones have grown to; one of them always fits there.
    fn queue(&self, bytes: usize) -> (Queue, usize) {
        if bytes <= SMALL_BYTES_MAX {
            (Queue::Small, bytes.min(self.bytes_max / 3))
        } else {
            (Queue::Large, bytes.min(self.limit(false)))
        }
    }

    /// Waits in line for a reservation. One that is larger than the limit takes all of it.
    pub async fn reserve(self: &Arc<Self>, bytes: usize) -> Arc<Reservation> {
        self.reservation(bytes, None).await
    }

    /// Waits in line for a reservation that never grows.
    pub async fn reserve_trial(self: &Arc<Self>, bytes: usize) -> Arc<Reservation> {
        self.reservation(bytes, Some(bytes)).await
    }

    async fn reservation(self: &Arc<Self>, bytes: usize, trial_bytes_max: Option<usize>) -> Arc<Reservation> {
        let asked_bytes = bytes;
        let (queue, bytes) = self.queue(bytes);
        let (is_small, for_small) = (matches!(queue, Queue::Small), self.bytes_max / 3);
        let waiting = self.ticket(queue);
        poll_fn(|context| {
            let mut state = self.lock();
            let fits =
                state.taken + bytes <= self.limit(is_small) || is_small && state.small_taken + bytes <= for_small;
            let line = state.line(waiting.queue);
            if fits && line.is_first(waiting.number) {
                state.taken += bytes;
                state.small_taken += if is_small { bytes } else { 0 };
                return Poll::Ready(());
            }
            line.wait(waiting.number, context.waker());
            Poll::Pending
        })
        .await;
        drop(waiting);
        Arc::new(Reservation {
            memory: Arc::clone(self),
            small_bytes: if is_small { bytes } else { 0 },
            asked_bytes: if is_small { asked_bytes } else { 0 },
            bytes: AtomicUsize::new(bytes),
            held: AtomicUsize::new(0),
            turn: AtomicUsize::new(0),
            trial_bytes_max,
            is_outgrown: AtomicBool::new(false),
        })
    }

    fn ticket(&self, queue: Queue) -> Ticket<'_> {
        let mut state = self.lock();
        state.next_ticket += 1;
        Ticket {
            memory: self,
            queue,
            number: state.next_ticket,
        }
    }

    /// Wakes the first of each line.
    fn wake(&self) {
        let first = {
            let state = self.lock();
            let grower = state.growing.first().filter(|_| state.grower.is_none());
            [state.small.first(), state.large.first(), grower]
        };
        first.into_iter().flatten().for_each(Waker::wake);
    }
}

/// The lines in which reservations wait.
#[derive(Clone, Copy, Debug)]
enum Queue {
    Small,
    Large,
    Growing,
}

impl State {
    fn line(&mut self, queue: Queue) -> &mut Line {
        match queue {
            Queue::Small => &mut self.small,
            Queue::Large => &mut self.large,
            Queue::Growing => &mut self.growing,
        }
    }
}

/// A position in a line, left when this is dropped.
struct Ticket<'a> {
    memory: &'a ResultMemory,
    queue: Queue,
    number: u64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.memory.lock().line(self.queue).leave(self.number);
        self.memory.wake();
    }
}

/// What one result may take of the memory; given back when the last owner drops it.
#[derive(Debug)]
pub struct Reservation {
    memory: Arc<ResultMemory>,
    /// What it began with if it was small, else 0.
    small_bytes: usize,
    /// What it asked for if it was small, else 0: in little memory it began with less, and need not grow to have that.
    asked_bytes: usize,
    bytes: AtomicUsize,
    /// The size of the result so far.
    held: AtomicUsize,
    /// The number of its turn to grow, or 0.
    turn: AtomicUsize,
    /// Of a trial, what its result may have.
    trial_bytes_max: Option<usize>,
    is_outgrown: AtomicBool,
}

impl Reservation {
    /// The bytes that it has.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Records the size of the result, and grows the reservation by a block if it has no memory left for one. May wait
    /// for its turn.
    ///
    /// # Errors
    /// As [`Reservation::grow_to`].
    pub async fn hold(&self, bytes: usize) -> Result<(), Overloaded> {
        self.held.store(bytes, Ordering::Relaxed);
        self.grow_to(bytes + READ_BYTES).await
    }

    /// Grows the reservation by a long row of `bytes` bytes and its copies. May wait for its turn.
    ///
    /// # Errors
    /// As [`Reservation::grow_to`].
    pub async fn grow_for_row(&self, bytes: usize) -> Result<(), Overloaded> {
        let held = self.held.load(Ordering::Relaxed);
        self.grow_to(held + READ_BYTES + bytes.saturating_mul(ROW_COPIES)).await
    }

    /// Gives back what it has, and its turn to grow. It may grow again.
    pub fn give_back(&self) {
        {
            let mut state = self.memory.lock();
            state.taken -= self.bytes.swap(0, Ordering::Relaxed);
            if self.turn.swap(0, Ordering::Relaxed) != 0 {
                state.grower = None;
            }
        }
        self.held.store(0, Ordering::Relaxed);
        self.memory.wake();
    }

    /// Whether this is a trial, and the result did not fit. The error of the read is no answer then.
    #[must_use]
    pub fn is_outgrown(&self) -> bool {
        self.is_outgrown.load(Ordering::Relaxed)
    }

    /// Makes the reservation this large. May wait for its turn.
    ///
    /// # Errors
    /// `Overloaded` when the turn does not come in time, and when it is a trial.
    pub async fn grow_to(&self, bytes: usize) -> Result<(), Overloaded> {
        let has = self.bytes();
        let was_asked = has > 0 && bytes <= self.asked_bytes;
        if was_asked || bytes <= has.max(self.trial_bytes_max.unwrap_or(0)) {
            return Ok(());
        }
        if let Some(most) = self.trial_bytes_max {
            self.is_outgrown.store(true, Ordering::Relaxed);
            return Err(Overloaded(format!(
                "The result grew to {bytes} bytes, beyond the {most} that it was tried with"
            )));
        }
        // Twice as much, so that a result of any size asks a few times only.
        if self.try_take(bytes.max(has * 2) - has) || self.try_take(bytes - has) {
            return Ok(());
        }
        if self.turn.load(Ordering::Relaxed) == 0 {
            let turn = runtime::timeout(GROWTH_WAIT_MAX, self.wait_for_turn()).await;
            turn.map_err(|_| {
                Overloaded(format!(
                    "The result grew to {bytes} bytes, and the node has no room for more of it: results that are being made, or that clients do not read, \
                     have it all; use pages"
                ))
            })?;
        }
        let mut state = self.memory.lock();
        state.taken += bytes - has;
        self.bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Takes more if it is free.
    fn try_take(&self, more: usize) -> bool {
        let mut state = self.memory.lock();
        let is_small = self.bytes() + more <= SMALL_BYTES_MAX;
        let fits = state.taken + more <= self.memory.limit(is_small);
        if fits {
            state.taken += more;
            self.bytes.fetch_add(more, Ordering::Relaxed);
        }
        fits
    }

    async fn wait_for_turn(&self) {
        let waiting = self.memory.ticket(Queue::Growing);
        poll_fn(|context| {
            let mut state = self.memory.lock();
            let is_free = state.grower.is_none() && !self.memory.is_blocked.load(Ordering::Relaxed);
            if is_free && state.growing.is_first(waiting.number) {
                state.grower = Some(waiting.number);
                self.turn
                    .store(usize::try_from(waiting.number).unwrap_or(usize::MAX), Ordering::Relaxed);
                return Poll::Ready(());
            }
            state.growing.wait(waiting.number, context.waker());
            Poll::Pending
        })
        .await;
    }
}

/// A long row takes its length so many times until the reservation counts it in the result: in the file's window, in
/// its block, and in the result's buffer while that doubles.
const ROW_COPIES: usize = 4;

impl RowMemory for Reservation {
    fn reserve_row(&self, bytes: usize) -> Reserving<'_> {
        Box::pin(async move { self.grow_for_row(bytes).await.map_err(|error| error.to_string()) })
    }

    fn hold(&self, bytes: usize) -> Reserving<'_> {
        Box::pin(async move { Self::hold(self, bytes).await.map_err(|error| error.to_string()) })
    }
}

/// A reservation that is made when something is to be held: for what reads little as a rule.
#[derive(Debug)]
pub struct LateReservation {
    memory: Arc<ResultMemory>,
    reservation: Mutex<Option<Arc<Reservation>>>,
}

impl LateReservation {
    /// Reserves of this memory.
    #[must_use]
    pub fn new(memory: Arc<ResultMemory>) -> Self {
        Self {
            memory,
            reservation: Mutex::default(),
        }
    }

    async fn reservation(&self) -> Arc<Reservation> {
        let lock = || self.reservation.lock().unwrap_or_else(PoisonError::into_inner);
        let has = lock().clone();
        match has {
            Some(reservation) => reservation,
            None => {
                let reservation = self.memory.reserve(READ_BYTES).await;
                lock().get_or_insert(reservation).clone()
            }
        }
    }
}

impl RowMemory for LateReservation {
    fn reserve_row(&self, bytes: usize) -> Reserving<'_> {
        Box::pin(async move { self.reservation().await.reserve_row(bytes).await })
    }

    fn hold(&self, bytes: usize) -> Reserving<'_> {
        Box::pin(async move { RowMemory::hold(&*self.reservation().await, bytes).await })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        {
            let mut state = self.memory.lock();
            state.taken -= self.bytes();
            state.small_taken -= self.small_bytes;
            if *self.turn.get_mut() != 0 {
                state.grower = None;
            }
        }
        self.memory.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::Context;

    use super::*;

    const LIMIT: usize = 3 << 20;
    const LARGE: usize = 1 << 20;

    fn poll<T>(mut future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
        future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    fn reservation(memory: &Arc<ResultMemory>, bytes: usize) -> Option<Arc<Reservation>> {
        match poll(pin!(memory.reserve(bytes))) {
            Poll::Ready(reservation) => Some(reservation),
            Poll::Pending => None,
        }
    }

    #[test]
    fn large_reservations_leave_a_third_of_the_memory_to_small_ones() {
        let memory = ResultMemory::new(LIMIT);
        let large: Vec<_> = (0..2)
            .map(|_| reservation(&memory, LARGE).expect("it is free"))
            .collect();
        assert!(reservation(&memory, LARGE).is_none(), "large ones have all of it");
        let mut waits = pin!(memory.reserve(LARGE));
        assert!(poll(waits.as_mut()).is_pending(), "a third does not fit");
        let small: Vec<_> = (0..2)
            .map(|_| reservation(&memory, SMALL_BYTES_MAX).expect("small ones do not wait for large ones"))
            .collect();
        assert!(reservation(&memory, 1).is_none(), "it is full");
        drop(large);
        assert!(poll(waits.as_mut()).is_ready(), "what was given back is not used");
        drop(small);
        assert_eq!(memory.taken(), 0, "one that is gone holds memory");
    }

    #[test]
    fn a_reservation_above_the_limit_takes_what_large_ones_may_have() {
        let memory = ResultMemory::new(LIMIT);
        let all = reservation(&memory, 100 * LIMIT).expect("it is free");
        assert!(
            reservation(&memory, LARGE).is_none(),
            "large ones have more than their part"
        );
        assert!(reservation(&memory, 1).is_some(), "small ones have nothing");
        drop(all);
        assert!(reservation(&memory, LARGE).is_some(), "it is not given back");
    }

    #[test]
    fn one_result_at_a_time_exceeds_the_limit_and_only_while_clients_take_their_answers() {
        let mut sim = runtime::sim::Simulation::new(1);
        let node = sim.add_node(1);
        sim.start(node, |_| {
            Box::pin(async {
                let memory = ResultMemory::new(LIMIT);
                let (first, second) = (memory.reserve(LARGE).await, memory.reserve(LARGE).await);
                memory.set_blocked(true);
                let mut grows = Box::pin(first.grow_to(10 * LIMIT));
                assert!(poll(grows.as_mut()).is_pending(), "clients take nothing");
                memory.set_blocked(false);
                assert_eq!(poll(grows.as_mut()), Poll::Ready(Ok(())), "it is its turn");
                drop(grows);
                assert_eq!(memory.taken(), 10 * LIMIT + LARGE, "what it has is not counted");
                let mut waits = Box::pin(second.grow_to(2 * LARGE));
                assert!(poll(waits.as_mut()).is_pending(), "two results exceed the limit");
                assert_eq!(first.grow_to(11 * LIMIT).await, Ok(()), "it is still its turn");
                drop(first);
                assert_eq!(poll(waits.as_mut()), Poll::Ready(Ok(())), "it is free");
            })
        });
        assert!(sim.run_until_ended(node, Duration::from_secs(60)), "it did not end");
    }

    #[test]
    fn a_small_result_of_a_small_node_does_not_wait_for_what_it_asked_for() {
        let memory = ResultMemory::new(2 * READ_BYTES);
        let _large = reservation(&memory, 100 * LIMIT).expect("it is free");
        let Poll::Ready(small) = poll(pin!(memory.reserve(READ_BYTES + 100))) else {
            panic!("a third is for small ones")
        };
        assert!(small.bytes() < READ_BYTES, "it has a third");
        let before = memory.taken();
        assert_eq!(poll(pin!(small.hold(100))), Poll::Ready(Ok(())));
        assert_eq!(memory.taken(), before, "it has not grown");
    }

    #[test]
    fn a_trial_does_not_grow_and_says_that_it_was_outgrown() {
        let memory = ResultMemory::new(LIMIT);
        let large: Vec<_> = (0..2)
            .map(|_| reservation(&memory, LARGE).expect("it is free"))
            .collect();
        assert!(!memory.is_free(LARGE) && memory.is_free(READ_BYTES));
        let Poll::Ready(trial) = poll(pin!(memory.reserve_trial(READ_BYTES + 1000))) else {
            panic!("a trial is small and waits for no large ones")
        };
        drop(large);
        assert_eq!(poll(pin!(trial.hold(1000))), Poll::Ready(Ok(())));
        assert!(!trial.is_outgrown());
        let outgrown = poll(pin!(trial.hold(1001)));
        assert!(matches!(outgrown, Poll::Ready(Err(Overloaded(_)))), "{outgrown:?}");
        assert!(trial.is_outgrown() && trial.bytes() == READ_BYTES + 1000);
        assert!(memory.is_free(LARGE), "{memory:?}");
    }

    #[test]
    fn a_long_row_takes_memory_for_its_copies_beside_what_the_result_has() {
        let memory = ResultMemory::new(LIMIT);
        let result = reservation(&memory, 1).expect("it is free");
        assert_eq!(poll(pin!(result.grow_to(10 * LIMIT))), Poll::Ready(Ok(())), "its turn");
        result.give_back();
        assert!(memory.taken() == 0 && memory.is_free(LARGE), "{memory:?}");
        let other = reservation(&memory, 1).expect("it is free");
        assert_eq!(
            poll(pin!(other.grow_to(10 * LIMIT))),
            Poll::Ready(Ok(())),
            "the turn is free"
        );
        drop(other);
        assert_eq!(poll(pin!(result.hold(1000))), Poll::Ready(Ok(())), "there is memory");
        assert!(
            poll(result.reserve_row(LARGE / 8).as_mut()).is_ready(),
            "there is memory"
        );
        assert!(result.bytes() >= 1000 + READ_BYTES + LARGE / 2, "{}", result.bytes());
    }

    #[test]
    fn a_result_whose_turn_does_not_come_fails_and_gives_its_memory_back() {
        let mut sim = runtime::sim::Simulation::new(1);
        let node = sim.add_node(1);
        sim.start(node, |_| {
            Box::pin(async {
                let memory = ResultMemory::new(LIMIT);
                let (first, second) = (memory.reserve(LARGE).await, memory.reserve(LARGE).await);
                first.grow_to(2 * LIMIT).await.expect("it is its turn");
                let began = runtime::now();
                let error = second.grow_to(LIMIT).await.expect_err("the first has its turn");
                assert!(matches!(error, Overloaded(_)), "{error:?}");
                let waited = began.elapsed();
                assert!(
                    waited >= GROWTH_WAIT_MAX && waited < GROWTH_WAIT_MAX + Duration::from_secs(1),
                    "{waited:?}"
                );
                drop((first, second));
                assert_eq!(memory.taken(), 0, "one that is gone holds memory");
                assert!(
                    reservation(&memory, LARGE).is_some(),
                    "a position in the line was not left"
                );
            })
        });
        assert!(sim.run_until_ended(node, Duration::from_secs(60)), "it did not end");
    }
}
