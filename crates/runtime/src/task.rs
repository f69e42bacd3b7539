//! Tasks of one shard: a table of futures, their wakers, and the handles that await their results.
//!
//! A waker is the task's id in the pointer's place: clone and drop do nothing. A slot's generation moves on when its
//! task ends, so an old waker finds a number that does not match and is ignored. While a task is polled its future is
//! out of the table; a wake-up in that time queues the slot again as it should.

use crate::executor;
use crate::gate::{Gate, TaskId};
use crate::group::Group;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

/// What a thread beside the shards is to do; it returns what makes the result known.
pub(crate) type Work = Box<dyn FnOnce() -> Box<dyn FnOnce() + Send> + Send>;

/// A task without its result's type.
pub(crate) type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;

/// The tasks of one shard.
#[derive(Default)]
pub(crate) struct Tasks {
    slots: Vec<TaskSlot>,
    free: Vec<u32>,
}

struct TaskSlot {
    future: Option<TaskFuture>,
    generation: u32,
    queued: bool,
    group: Group,
}

impl Tasks {
    /// Adds a task; the caller makes it runnable.
    pub(crate) fn insert(&mut self, group: Group, future: TaskFuture) -> (u32, u32) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(TaskSlot {
                future: None,
                generation: 0,
                queued: false,
                group,
            });
            u32::try_from(self.slots.len() - 1).expect("task memory ends long before 2^28 tasks")
        });
        let entry = &mut self.slots[slot as usize];
        entry.future = Some(future);
        entry.group = group;
        entry.queued = false;
        (slot, entry.generation)
    }

    /// Marks the task runnable. Its group if it must be queued; `None` when it is queued already, or is gone.
    #[inline]
    pub(crate) fn make_ready(&mut self, task: TaskId) -> Option<Group> {
        let entry = self.slots.get_mut(task.slot() as usize)?;
        if entry.queued || !task.is_of_generation(entry.generation) {
            return None;
        }
        entry.queued = true;
        Some(entry.group)
    }

    /// Puts the task into another group. The group if it is queued in its former one; `None` when it is not, or is
    /// gone.
    pub(crate) fn set_group(&mut self, task: TaskId, group: Group) -> Option<Group> {
        let entry = self.slots.get_mut(task.slot() as usize)?;
        if !task.is_of_generation(entry.generation) || entry.group == group {
            return None;
        }
        entry.group = group;
        entry.queued.then_some(group)
    }

    /// Takes the future out to poll it. `None` when the task ended while it was queued.
    #[inline]
    pub(crate) fn start_poll(&mut self, slot: u32) -> Option<(TaskFuture, u32)> {
        let entry = &mut self.slots[slot as usize];
        entry.queued = false;
        let future = entry.future.take()?;
        Some((future, entry.generation))
    }

    /// Puts back a future that is not done.
    #[inline]
    pub(crate) fn put_back(&mut self, slot: u32, future: TaskFuture) {
        self.slots[slot as usize].future = Some(future);
    }

    /// Ends a task: its wakers are stale from here on.
    #[inline]
    pub(crate) fn end(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        entry.generation = entry.generation.wrapping_add(1);
        // A wake-up while its last poll ran may have queued it; the queue entry then finds no future, or the next task,
        // once for nothing.
        entry.queued = false;
        self.free.push(slot);
    }

    /// Takes any one future, to be dropped by the caller; `None` when no task is left.
    pub(crate) fn take_any(&mut self) -> Option<TaskFuture> {
        let slot = self.slots.iter().position(|entry| entry.future.is_some())?;
        let future = self.slots[slot].future.take();
        self.end(u32::try_from(slot).expect("the slot was made from a u32"));
        future
    }
}

/// The waker of a task. `Send + Sync` without any count: it is a number.
#[inline]
pub(crate) fn waker(task: TaskId) -> Waker {
    // SAFETY: the functions of the table treat the data as a number and never as a pointer, so cloning, waking and
    // dropping it are valid from any thread at any time, also after the task or its runtime has ended.
    unsafe { Waker::from_raw(raw_waker(task)) }
}

static WAKER_TABLE: RawWakerVTable = RawWakerVTable::new(
    |data| raw_waker(task_of(data)),
    |data| wake(task_of(data)),
    |data| wake(task_of(data)),
    |_| {},
);

#[inline]
fn raw_waker(task: TaskId) -> RawWaker {
    RawWaker::new(std::ptr::without_provenance(task.to_bits() as usize), &WAKER_TABLE)
}

#[inline]
fn task_of(data: *const ()) -> TaskId {
    TaskId::from_bits(data.addr() as u64)
}

#[inline]
fn wake(task: TaskId) {
    if !executor::wake_if_current(task)
        && let Some(gate) = Gate::of(task)
    {
        gate.wake_task(task);
    }
}

/// The result of a task or job, to be awaited. Dropping it detaches: the work continues.
#[must_use = "a dropped handle detaches the task; say so with `drop`"]
pub struct JoinHandle<T>(Inner<T>);

enum Inner<T> {
    Task(Rc<TaskResult<T>>),
    Job(Arc<Mutex<JobResult<T>>>),
}

struct TaskResult<T> {
    value: Cell<Option<T>>,
    task: Cell<Option<TaskId>>,
    waiter: RefCell<Option<Waker>>,
}

/// What a thread of a pool leaves for the shard that asked.
pub(crate) struct JobResult<T> {
    value: Option<T>,
    waiter: Option<Waker>,
}

/// A future, and what becomes of its output. Not an async block: that would keep the future twice, as what it captured
/// and as what it awaits, and move it once more.
pub(crate) struct Then<F, C> {
    future: F,
    then: Option<C>,
}

impl<F, C> Then<F, C> {
    pub(crate) fn new(future: F, then: C) -> Self {
        Self {
            future,
            then: Some(then),
        }
    }
}

impl<F: Future, C: FnOnce(F::Output)> Future for Then<F, C> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // SAFETY: `future` is pinned with the whole and is never moved out of it; `then` is never pinned.
        let (future, then) = unsafe {
            let this = self.get_unchecked_mut();
            (Pin::new_unchecked(&mut this.future), &mut this.then)
        };
        future.poll(context).map(|output| {
            if let Some(then) = then.take() {
                then(output);
            }
        })
    }
}

impl<T> JoinHandle<T> {
    /// The task that fills the handle, and the handle.
    pub(crate) fn for_task(future: impl Future<Output = T> + 'static) -> (TaskFuture, Self)
    where
        T: 'static,
    {
        let result = Rc::new(TaskResult {
            value: Cell::new(None),
            task: Cell::new(None),
            waiter: RefCell::new(None),
        });
        let handle = Self(Inner::Task(Rc::clone(&result)));
        let fill = move |value| {
            result.value.set(Some(value));
            if let Some(waiter) = result.waiter.take() {
                waiter.wake();
            }
        };
        (Box::pin(Then::new(future, fill)), handle)
    }

    /// The closure that fills the handle from any thread, and the handle.
    pub(crate) fn for_job(work: impl FnOnce() -> T + Send + 'static) -> (Work, Self)
    where
        T: Send + 'static,
    {
        let result = Arc::new(Mutex::new(JobResult {
            value: None,
            waiter: None,
        }));
        let handle = Self(Inner::Job(Arc::clone(&result)));
        let work = Box::new(move || {
            let value = work();
            let publish: Box<dyn FnOnce() + Send> = Box::new(move || {
                let mut result = result.lock().expect("no code panics while it holds a job's result");
                result.value = Some(value);
                let waiter = result.waiter.take();
                drop(result);
                if let Some(waiter) = waiter {
                    waiter.wake();
                }
            });
            publish
        });
        (work, handle)
    }

    /// Which task fills the handle.
    pub(crate) fn note_task(&self, task: TaskId) {
        if let Inner::Task(result) = &self.0 {
            result.task.set(Some(task));
        }
    }

    /// Puts the task into another scheduling group: from its next poll on it runs there, and what it starts runs there
    /// too. Jobs have no group.
    pub fn set_group(&self, group: Group) {
        if let Inner::Task(result) = &self.0
            && let Some(task) = result.task.get()
        {
            executor::with(|executor| executor.set_group(task, group));
        }
    }

    /// Whether the result is there.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Inner::Task(result) => {
                let value = result.value.take();
                let finished = value.is_some();
                result.value.set(value);
                finished
            }
            Inner::Job(result) => result
                .lock()
                .expect("no code panics while it holds a job's result")
                .value
                .is_some(),
        }
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match &self.0 {
            Inner::Task(result) => match result.value.take() {
                Some(value) => Poll::Ready(value),
                None => {
                    *result.waiter.borrow_mut() = Some(context.waker().clone());
                    Poll::Pending
                }
            },
            Inner::Job(result) => {
                let mut result = result.lock().expect("no code panics while it holds a job's result");
                match result.value.take() {
                    Some(value) => Poll::Ready(value),
                    None => {
                        result.waiter = Some(context.waker().clone());
                        Poll::Pending
                    }
                }
            }
        }
    }
}
