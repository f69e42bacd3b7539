//! Futures whose polls can be suspended in the middle.
//!
//! [`preemptible`] polls a future on a stack of its own. At a preemption point (`stdx::preempt::point`) in such a poll,
//! if the slice is over, the stack is kept as it is and the poll returns pending; the next poll resumes it. So the code
//! that parses, checks and packs what a client sends consists of plain functions, and a request holds the shard for a
//! slice at most, however large it is. Seastar's threads serve the same purpose.
//!
//! A poll that is not suspended returns its stack at its end, so the stacks in use are those of suspended computations.
//! A shard keeps some for the next polls. Stacks are memory that most tasks have not reserved, and each suspended
//! computation takes a slice in each round of its group's queue. So their number is limited: with as many as may be, a
//! poll does not begin, and its task goes to the end of the queue. Suspended computations are in that queue too, and
//! they need nothing but their own stack. A preemptible future is therefore never polled on the stack of another one,
//! which would have to begin before the inner one could end.
//!
//! A value of the task that is in a `thread_local!` must not be visible to other tasks while it is suspended. There is
//! one such value, the *companion* ([`set_companion`]).

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use stdx::preempt;

use crate::executor::is_preemption_due;

/// Bytes of a stack: as much as a thread of the standard library has. Only what is used of it is memory.
const STACK_BYTES: usize = 2 << 20;
/// Stacks that a thread keeps for the next polls.
const SPARE_STACKS_MAX: usize = 16;
/// Suspended polls of a thread: 128 with 32 KiB each are 4 MiB, and 64 ms until each has had a slice.
const SUSPENDED_MAX: usize = 128;
/// Of them, those of tasks that are known to be long: the others find stacks while clients send nothing but long
/// requests.
const LONG_SUSPENDED_MAX: usize = 96;

thread_local! {
    static SPARE_STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
    /// Suspends the computation that runs on a stack of its own; null outside of one.
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(std::ptr::null()) };
    static SUSPENDED: Cell<usize> = const { Cell::new(0) };
    static COMPANION: RefCell<Option<Rc<dyn Any>>> = const { RefCell::new(None) };
    static HAS_COMPANION: Cell<bool> = const { Cell::new(false) };
}

/// Whether the task that is polled has a companion.
#[inline]
#[must_use]
pub fn has_companion() -> bool {
    HAS_COMPANION.get()
}

/// The companion of the task that is polled: a value for code that does not receive it as an argument, such as the
/// trace.
#[must_use]
pub fn companion() -> Option<Rc<dyn Any>> {
    COMPANION.with_borrow(Clone::clone)
}

/// Replaces the companion and returns the previous one. The caller restores that before its poll ends.
pub fn set_companion(companion: Option<Rc<dyn Any>>) -> Option<Rc<dyn Any>> {
    HAS_COMPANION.set(companion.is_some());
    COMPANION.replace(companion)
}

/// Suspends the poll at a preemption point if the slice is over.
fn suspend_if_due() {
    if !is_preemption_due() {
        return;
    }
    let yielder = YIELDER.get();
    // SAFETY: the pointer comes from a reference that the coroutine's function holds until it returns, and `Outer` sets
    // it only while that coroutine runs. So a pointer that is not null is of the stack that this runs on.
    let Some(yielder) = (unsafe { yielder.as_ref() }) else {
        return;
    };
    let companion = set_companion(None);
    let suspended = Suspended::count();
    preempt::suspended(|| yielder.suspend(()));
    drop(suspended);
    set_companion(companion);
}

/// Counts a suspended poll until it is resumed, or its stack unwound.
struct Suspended;

impl Suspended {
    fn count() -> Self {
        SUSPENDED.set(SUSPENDED.get() + 1);
        Self
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        SUSPENDED.set(SUSPENDED.get() - 1);
    }
}

/// A poll on a stack of its own, running or suspended. It owns the future until it ends.
type Polling<F> = Coroutine<(), (), Polled<F>, DefaultStack>;
/// A poll that has ended: the future and its result.
type Polled<F> = (Pin<Box<F>>, Poll<<F as Future>::Output>);

/// See [`preemptible`].
struct Preemptible<F: Future + 'static> {
    state: State<F>,
    /// A poll begins while fewer are suspended.
    suspended_max: usize,
}

enum State<F: Future + 'static> {
    /// No poll is under way.
    Whole(Pin<Box<F>>),
    /// A poll is suspended; its yielder.
    Suspended(Polling<F>, *const Yielder<(), ()>),
    /// It has ended, or panicked.
    Ended,
}

impl<F: Future + 'static> Unpin for Preemptible<F> {}

/// Polls a future on a stack of its own, on which a poll can be suspended at preemption points.
///
/// While the shard has as many suspended polls as may be, a poll does not begin: it returns pending, and its task is
/// queued again. If the future is dropped while suspended, the poll runs to its end first: values on a stack can be
/// dropped only by resuming it.
pub fn preemptible<F: Future + 'static>(future: F) -> impl Future<Output = F::Output> {
    Preemptible {
        state: State::Whole(Box::pin(future)),
        suspended_max: SUSPENDED_MAX,
    }
}

/// As [`preemptible`], for computations that are known to be long: they leave stacks to the others.
pub fn preemptible_long<F: Future + 'static>(future: F) -> impl Future<Output = F::Output> {
    Preemptible {
        state: State::Whole(Box::pin(future)),
        suspended_max: LONG_SUSPENDED_MAX,
    }
}

fn take_stack() -> DefaultStack {
    let spare = SPARE_STACKS.with_borrow_mut(Vec::pop);
    spare.unwrap_or_else(|| DefaultStack::new(STACK_BYTES).expect("there is address space for a stack"))
}

fn give_back(stack: DefaultStack) {
    SPARE_STACKS.with_borrow_mut(|spare| {
        if spare.len() < SPARE_STACKS_MAX {
            spare.push(stack);
        }
    });
}

/// A poll of the future that has not begun.
fn begin<F: Future + 'static>(mut future: Pin<Box<F>>, waker: Waker) -> Polling<F> {
    Coroutine::with_stack(take_stack(), move |yielder: &Yielder<(), ()>, ()| {
        YIELDER.set(yielder);
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        (future, polled)
    })
}

/// Restores the yielder of the outer stack when a stack is left, also by a panic.
struct Outer(*const Yielder<(), ()>);

impl Drop for Outer {
    fn drop(&mut self) {
        YIELDER.set(self.0);
    }
}

/// Resumes a poll until it ends or is suspended. Returns the result and the poll's yielder.
fn resume<F: Future + 'static>(
    polling: &mut Polling<F>,
    yielder: *const Yielder<(), ()>,
    hook: Option<fn()>,
) -> (CoroutineResult<(), Polled<F>>, *const Yielder<(), ()>) {
    let _outer = Outer(YIELDER.replace(yielder));
    let result = preempt::offer(hook, || polling.resume(()));
    (result, YIELDER.get())
}

impl<F: Future + 'static> Future for Preemptible<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let mut was_suspended = false;
        if matches!(self.state, State::Whole(_)) && SUSPENDED.get() >= self.suspended_max {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let (mut polling, yielder) = match std::mem::replace(&mut self.state, State::Ended) {
            State::Whole(future) => (begin(future, context.waker().clone()), std::ptr::null()),
            State::Suspended(polling, yielder) => {
                was_suspended = true;
                (polling, yielder)
            }
            State::Ended => panic!("a future that has ended is not polled"),
        };
        let (result, yielder) = resume(&mut polling, yielder, Some(suspend_if_due));
        match result {
            CoroutineResult::Yield(()) => {
                self.state = State::Suspended(polling, yielder);
                context.waker().wake_by_ref();
                Poll::Pending
            }
            CoroutineResult::Return((future, polled)) => {
                give_back(polling.into_stack());
                if polled.is_pending() {
                    self.state = State::Whole(future);
                    // A part of the future that was polled before the suspension may have been woken in the meantime.
                    if was_suspended {
                        context.waker().wake_by_ref();
                    }
                }
                polled
            }
        }
    }
}

impl<F: Future + 'static> Drop for Preemptible<F> {
    fn drop(&mut self) {
        if let State::Suspended(mut polling, yielder) = std::mem::replace(&mut self.state, State::Ended) {
            // Resumed at once after each suspension.
            while let CoroutineResult::Yield(()) = resume(&mut polling, yielder, None).0 {}
            give_back(polling.into_stack());
        }
    }
}
