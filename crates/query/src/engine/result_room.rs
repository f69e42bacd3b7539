//! The room of a shard for results in the making: each SELECT that is not answered in one call has a share of it, by
//! estimate.
//!
//! A [`ResultShare`] travels with the consumer of its result, perhaps to other shards, so the room is shared between
//! threads. Small shares may use all of the room, large ones only a part of it: small results never wait for large
//! ones.
//!
//! A result that outgrows its share takes more if there is more. If not, it waits for its *turn to grow*: one result at
//! a time may exceed the room, and only while the answers that clients have not taken leave room. So results in the
//! making come to the room and one result more, and some read always proceeds. A result also grows before a long row is
//! read for it ([`RowMemory`]). A result that waits longer than [`GROWTH_WAIT_MAX`] fails as overloaded and frees its
//! memory.
//!
//! A result of unknown size need not wait until there is room for a large one: it may begin with a *trial*, a small
//! share that never grows. If it is outgrown, what was read is dropped and the read begins anew with a share that may.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use stdx::row_memory::{Reserving, RowMemory};

use crate::QueryError;

/// A share of at most so many bytes is small.
pub const SMALL_SHARE_BYTES_MAX: usize = 512 << 10;

/// What a read of several rows has besides its result: blocks of its sources.
pub const READ_BYTES: usize = super::read::BLOCK_BYTES;

/// How long a result waits for its turn to grow.
pub const GROWTH_WAIT_MAX: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub struct ResultRoom {
    bytes_max: usize,
    state: Mutex<State>,
    /// Clients have taken so little of their answers that no result may exceed the room.
    is_blocked: AtomicBool,
}

#[derive(Default, Debug)]
struct State {
    /// Bytes of all shares.
    taken: usize,
    /// Bytes with which small shares began.
    small_taken: usize,
    small: Line,
    large: Line,
    growing: Line,
    /// The share that may grow now.
    grower: Option<u64>,
    next_ticket: u64,
}

/// The waiting shares, in order of arrival.
#[derive(Default, Debug)]
struct Line(VecDeque<(u64, Waker)>);

impl Line {
    fn is_first(&self, ticket: u64) -> bool {
        self.0.front().is_none_or(|(first, _)| *first == ticket)
    }

    fn wait(&mut self, ticket: u64, waker: &Waker) {
        match self.place(ticket) {
            Ok(place) => self.0[place].1.clone_from(waker),
            Err(place) => self.0.insert(place, (ticket, waker.clone())),
        }
    }

    fn leave(&mut self, ticket: u64) {
        if let Ok(place) = self.place(ticket) {
            self.0.remove(place);
        }
    }

    /// Tickets grow.
    fn place(&self, ticket: u64) -> Result<usize, usize> {
        self.0.binary_search_by_key(&ticket, |(waiting, _)| *waiting)
    }

    fn first(&self) -> Option<Waker> {
        self.0.front().map(|(_, waker)| waker.clone())
    }
}

impl ResultRoom {
    /// A room of so many bytes.
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

    /// What shares of this size may come to with all others.
    const fn limit(&self, is_small: bool) -> usize {
        if is_small {
            self.bytes_max
        } else {
            self.bytes_max / 3 * 2 + 1
        }
    }

    /// Bytes of all shares.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.lock().taken
    }

    /// Says whether answers that clients have not taken leave room for results that exceed theirs.
    pub fn set_blocked(&self, is_blocked: bool) {
        self.is_blocked.store(is_blocked, Ordering::Relaxed);
        if !is_blocked {
            self.wake();
        }
    }

    /// Whether a share of so many bytes would not wait.
    #[must_use]
    pub fn is_free(&self, bytes: usize) -> bool {
        let (place, bytes) = self.place(bytes);
        let mut state = self.lock();
        state.line(place).0.is_empty() && state.taken + bytes <= self.limit(matches!(place, Place::Small))
    }

    /// Where a share of so many bytes waits, and how many it gets. A third of the room is for small shares, whatever
    /// large ones have grown to; one of them always fits there.
    fn place(&self, bytes: usize) -> (Place, usize) {
        match bytes <= SMALL_SHARE_BYTES_MAX {
            true => (Place::Small, bytes.min(self.bytes_max / 3)),
            false => (Place::Large, bytes.min(self.limit(false))),
        }
    }

    /// Waits in line for a share. One that is larger than the room takes all of it.
    pub async fn reserve(self: &Arc<Self>, bytes: usize) -> Arc<ResultShare> {
        self.share(bytes, None).await
    }

    /// Waits in line for a share that never grows.
    pub async fn reserve_trial(self: &Arc<Self>, bytes: usize) -> Arc<ResultShare> {
        self.share(bytes, Some(bytes)).await
    }

    async fn share(self: &Arc<Self>, bytes: usize, trial_bytes_max: Option<usize>) -> Arc<ResultShare> {
        let (place, bytes) = self.place(bytes);
        let (is_small, for_small) = (matches!(place, Place::Small), self.bytes_max / 3);
        let waiting = self.ticket(place);
        poll_fn(|context| {
            let mut state = self.lock();
            let fits =
                state.taken + bytes <= self.limit(is_small) || is_small && state.small_taken + bytes <= for_small;
            let line = state.line(waiting.place);
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
        Arc::new(ResultShare {
            room: Arc::clone(self),
            small_bytes: if is_small { bytes } else { 0 },
            bytes: AtomicUsize::new(bytes),
            held: AtomicUsize::new(0),
            turn: AtomicUsize::new(0),
            trial_bytes_max,
            is_outgrown: AtomicBool::new(false),
        })
    }

    fn ticket(&self, place: Place) -> Ticket<'_> {
        let mut state = self.lock();
        state.next_ticket += 1;
        Ticket {
            room: self,
            place,
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

/// The lines of the room.
#[derive(Clone, Copy, Debug)]
enum Place {
    Small,
    Large,
    Growing,
}

impl State {
    fn line(&mut self, place: Place) -> &mut Line {
        match place {
            Place::Small => &mut self.small,
            Place::Large => &mut self.large,
            Place::Growing => &mut self.growing,
        }
    }
}

/// A place in a line, left when this is dropped.
struct Ticket<'a> {
    room: &'a ResultRoom,
    place: Place,
    number: u64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.room.lock().line(self.place).leave(self.number);
        self.room.wake();
    }
}

/// What one result may take of the room; given back when the last owner drops it.
#[derive(Debug)]
pub struct ResultShare {
    room: Arc<ResultRoom>,
    /// What it began with if it was small, else 0.
    small_bytes: usize,
    bytes: AtomicUsize,
    /// The size of the result so far.
    held: AtomicUsize,
    /// The number of its turn to grow, or 0.
    turn: AtomicUsize,
    /// Of a trial, what its result may have.
    trial_bytes_max: Option<usize>,
    is_outgrown: AtomicBool,
}

impl ResultShare {
    /// The bytes that it has.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Records the size of the result, and grows the share by a block if there is no room for one. May wait for its
    /// turn.
    ///
    /// # Errors
    /// As [`ResultShare::grow_to`].
    pub async fn hold(&self, bytes: usize) -> Result<(), QueryError> {
        self.held.store(bytes, Ordering::Relaxed);
        self.grow_to(bytes + READ_BYTES).await
    }

    /// Grows the share by a long row of `bytes` bytes and its copies. May wait for its turn.
    ///
    /// # Errors
    /// As [`ResultShare::grow_to`].
    pub async fn grow_for_row(&self, bytes: usize) -> Result<(), QueryError> {
        let held = self.held.load(Ordering::Relaxed);
        self.grow_to(held + READ_BYTES + bytes.saturating_mul(ROW_COPIES)).await
    }

    /// Gives back what it has, and its turn to grow. It may grow again.
    pub fn give_back(&self) {
        {
            let mut state = self.room.lock();
            state.taken -= self.bytes.swap(0, Ordering::Relaxed);
            if self.turn.swap(0, Ordering::Relaxed) != 0 {
                state.grower = None;
            }
        }
        self.held.store(0, Ordering::Relaxed);
        self.room.wake();
    }

    /// Whether this is a trial, and the result did not fit. The error of the read is no answer then.
    #[must_use]
    pub fn is_outgrown(&self) -> bool {
        self.is_outgrown.load(Ordering::Relaxed)
    }

    /// Makes the share this large. May wait for its turn.
    ///
    /// # Errors
    /// `Overloaded` when the turn does not come in time, and when it is a trial.
    pub async fn grow_to(&self, bytes: usize) -> Result<(), QueryError> {
        let has = self.bytes();
        if bytes <= has.max(self.trial_bytes_max.unwrap_or(0)) {
            return Ok(());
        }
        if let Some(most) = self.trial_bytes_max {
            self.is_outgrown.store(true, Ordering::Relaxed);
            return Err(QueryError::Overloaded(format!(
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
                QueryError::Overloaded(format!(
                    "The result grew to {bytes} bytes, and the node has no room for more of it: results that are being made, or that clients do not read, \
                     have it all; use pages"
                ))
            })?;
        }
        let mut state = self.room.lock();
        state.taken += bytes - has;
        self.bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Takes more of the room if it is free.
    fn try_take(&self, more: usize) -> bool {
        let mut state = self.room.lock();
        let is_small = self.bytes() + more <= SMALL_SHARE_BYTES_MAX;
        let fits = state.taken + more <= self.room.limit(is_small);
        if fits {
            state.taken += more;
            self.bytes.fetch_add(more, Ordering::Relaxed);
        }
        fits
    }

    async fn wait_for_turn(&self) {
        let waiting = self.room.ticket(Place::Growing);
        poll_fn(|context| {
            let mut state = self.room.lock();
            let is_free = state.grower.is_none() && !self.room.is_blocked.load(Ordering::Relaxed);
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

/// A long row takes its length so many times until the share counts it in the result: in the file's window, in its
/// block, and in the result's buffer while that doubles.
const ROW_COPIES: usize = 4;

impl RowMemory for ResultShare {
    fn reserve_row(&self, bytes: usize) -> Reserving<'_> {
        Box::pin(async move { self.grow_for_row(bytes).await.map_err(|error| error.to_string()) })
    }

    fn hold(&self, bytes: usize) -> Reserving<'_> {
        Box::pin(async move { Self::hold(self, bytes).await.map_err(|error| error.to_string()) })
    }
}

/// A share that is taken when something is to be held: for what reads little as a rule.
#[derive(Debug)]
pub struct LateShare {
    room: Arc<ResultRoom>,
    share: Mutex<Option<Arc<ResultShare>>>,
}

impl LateShare {
    /// A share of this room.
    #[must_use]
    pub fn new(room: Arc<ResultRoom>) -> Self {
        Self {
            room,
            share: Mutex::default(),
        }
    }

    async fn share(&self) -> Arc<ResultShare> {
        let lock = || self.share.lock().unwrap_or_else(PoisonError::into_inner);
        let has = lock().clone();
        match has {
            Some(share) => share,
            None => {
                let share = self.room.reserve(READ_BYTES).await;
                lock().get_or_insert(share).clone()
            }
        }
    }
}

impl RowMemory for LateShare {
    fn reserve_row(&self, bytes: usize) -> Reserving<'_> {
        Box::pin(async move { self.share().await.reserve_row(bytes).await })
    }

    fn hold(&self, bytes: usize) -> Reserving<'_> {
        Box::pin(async move { RowMemory::hold(&*self.share().await, bytes).await })
    }
}

impl Drop for ResultShare {
    fn drop(&mut self) {
        {
            let mut state = self.room.lock();
            state.taken -= self.bytes();
            state.small_taken -= self.small_bytes;
            if *self.turn.get_mut() != 0 {
                state.grower = None;
            }
        }
        self.room.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::Context;

    use super::*;

    const ROOM: usize = 3 << 20;
    const LARGE: usize = 1 << 20;

    fn poll<T>(mut future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
        future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    fn share(room: &Arc<ResultRoom>, bytes: usize) -> Option<Arc<ResultShare>> {
        match poll(pin!(room.reserve(bytes))) {
            Poll::Ready(share) => Some(share),
            Poll::Pending => None,
        }
    }

    #[test]
    fn large_shares_leave_a_third_of_the_room_to_small_ones() {
        let room = ResultRoom::new(ROOM);
        let large: Vec<_> = (0..2).map(|_| share(&room, LARGE).expect("the room is free")).collect();
        assert!(share(&room, LARGE).is_none(), "large shares have all of the room");
        let mut waits = pin!(room.reserve(LARGE));
        assert!(poll(waits.as_mut()).is_pending(), "there is no room for a third");
        let small: Vec<_> = (0..2)
            .map(|_| share(&room, SMALL_SHARE_BYTES_MAX).expect("small shares do not wait for large ones"))
            .collect();
        assert!(share(&room, 1).is_none(), "the room is full");
        drop(large);
        assert!(
            poll(waits.as_mut()).is_ready(),
            "the room that was given back is not used"
        );
        drop(small);
        assert_eq!(room.taken(), 0, "a share that is gone holds room");
    }

    #[test]
    fn a_share_that_is_larger_than_the_room_takes_what_large_ones_may_have() {
        let room = ResultRoom::new(ROOM);
        let all = share(&room, 100 * ROOM).expect("the room is free");
        assert!(share(&room, LARGE).is_none(), "large shares have more than their part");
        assert!(share(&room, 1).is_some(), "small ones have nothing");
        drop(all);
        assert!(share(&room, LARGE).is_some(), "the room is not given back");
    }

    #[test]
    fn one_result_at_a_time_exceeds_the_room_and_only_while_clients_take_their_answers() {
        let mut sim = runtime::sim::Simulation::new(1);
        let node = sim.add_node(1);
        sim.start(node, |_| {
            Box::pin(async {
                let room = ResultRoom::new(ROOM);
                let (first, second) = (room.reserve(LARGE).await, room.reserve(LARGE).await);
                room.set_blocked(true);
                let mut grows = Box::pin(first.grow_to(10 * ROOM));
                assert!(poll(grows.as_mut()).is_pending(), "clients take nothing");
                room.set_blocked(false);
                assert_eq!(poll(grows.as_mut()), Poll::Ready(Ok(())), "it is its turn");
                drop(grows);
                assert_eq!(room.taken(), 10 * ROOM + LARGE, "what it has is not counted");
                let mut waits = Box::pin(second.grow_to(2 * LARGE));
                assert!(poll(waits.as_mut()).is_pending(), "two results exceed the room");
                assert_eq!(first.grow_to(11 * ROOM).await, Ok(()), "it is still its turn");
                drop(first);
                assert_eq!(poll(waits.as_mut()), Poll::Ready(Ok(())), "the room is free");
            })
        });
        assert!(sim.run_until_ended(node, Duration::from_secs(60)), "it did not end");
    }

    #[test]
    fn a_trial_does_not_grow_and_says_that_it_was_outgrown() {
        let room = ResultRoom::new(ROOM);
        let large: Vec<_> = (0..2).map(|_| share(&room, LARGE).expect("the room is free")).collect();
        assert!(!room.is_free(LARGE) && room.is_free(READ_BYTES));
        let Poll::Ready(trial) = poll(pin!(room.reserve_trial(READ_BYTES + 1000))) else {
            panic!("a trial is small and waits for no large ones")
        };
        drop(large);
        assert_eq!(poll(pin!(trial.hold(1000))), Poll::Ready(Ok(())));
        assert!(!trial.is_outgrown());
        let outgrown = poll(pin!(trial.hold(1001)));
        assert!(
            matches!(outgrown, Poll::Ready(Err(QueryError::Overloaded(_)))),
            "{outgrown:?}"
        );
        assert!(trial.is_outgrown() && trial.bytes() == READ_BYTES + 1000);
        assert!(room.is_free(LARGE), "{room:?}");
    }

    #[test]
    fn a_long_row_takes_room_for_its_copies_beside_what_the_result_has() {
        let room = ResultRoom::new(ROOM);
        let result = share(&room, 1).expect("it is free");
        assert_eq!(poll(pin!(result.grow_to(10 * ROOM))), Poll::Ready(Ok(())), "its turn");
        result.give_back();
        assert!(room.taken() == 0 && room.is_free(LARGE), "{room:?}");
        let other = share(&room, 1).expect("it is free");
        assert_eq!(
            poll(pin!(other.grow_to(10 * ROOM))),
            Poll::Ready(Ok(())),
            "the turn is free"
        );
        drop(other);
        assert_eq!(poll(pin!(result.hold(1000))), Poll::Ready(Ok(())), "there is room");
        assert!(poll(result.reserve_row(LARGE / 8).as_mut()).is_ready(), "there is room");
        assert!(result.bytes() >= 1000 + READ_BYTES + LARGE / 2, "{}", result.bytes());
    }

    #[test]
    fn a_result_whose_turn_does_not_come_fails_and_gives_its_room_back() {
        let mut sim = runtime::sim::Simulation::new(1);
        let node = sim.add_node(1);
        sim.start(node, |_| {
            Box::pin(async {
                let room = ResultRoom::new(ROOM);
                let (first, second) = (room.reserve(LARGE).await, room.reserve(LARGE).await);
                first.grow_to(2 * ROOM).await.expect("it is its turn");
                let began = runtime::now();
                let error = second.grow_to(ROOM).await.expect_err("the first has its turn");
                assert!(matches!(error, QueryError::Overloaded(_)), "{error:?}");
                let waited = began.elapsed();
                assert!(
                    waited >= GROWTH_WAIT_MAX && waited < GROWTH_WAIT_MAX + Duration::from_secs(1),
                    "{waited:?}"
                );
                drop((first, second));
                assert_eq!(room.taken(), 0, "a share that is gone holds room");
                assert!(share(&room, LARGE).is_some(), "somebody stands in line still");
            })
        });
        assert!(sim.run_until_ended(node, Duration::from_secs(60)), "it did not end");
    }
}
