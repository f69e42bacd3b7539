//! The executor of one shard: its loop, and the functions a task calls to reach it.
//!
//! One turn of the loop: run groups, for a slice each, until nothing is runnable or the kernel is due; answer the gate
//! (mailboxes, wake-ups from other threads); fire timers; visit the kernel, or sleep in it when nothing is runnable.
//! Two rules come from measurements: submissions reach the kernel *between* groups (else each reply waits one
//! background slice), and the loop itself looks for waiting completions after every background poll (else it polls the
//! task again that has just given way).

use crate::clock::{self, Instant};
use crate::driver::{Driver, Wait};
use crate::gate::{Gate, TaskId};
use crate::group::{GROUPS_MAX, Group, RunQueues};
use crate::instructions::InstructionCounter;
use crate::mailbox::{self, Mailboxes};
use crate::sim::world;
use crate::start::Node;
use crate::task::{self, JoinHandle, TaskFuture, Tasks};
use crate::timer::Timers;
use std::any::{Any, TypeId};
use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How long a group runs before the next has its turn.
const SLICE: Duration = Duration::from_micros(500);

/// How long a group runs that should give way to completions but cannot see them (epoll): the longest that a request
/// waits for such a group. The visit of the kernel in between costs under one percent of it.
const SLICE_WITHOUT_SIGNAL: Duration = Duration::from_micros(50);

/// Polls of tasks that do not give way, after which the shards that were sent messages are rung.
const POLLS_PER_RING: u32 = 16;

/// A poll that takes longer is a stall: counted, and logged at most once per second and shard.
const STALL: Duration = Duration::from_millis(10);

/// A shard of this node: one core, one thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ShardId(pub u32);

impl fmt::Display for ShardId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "shard {}", self.0)
    }
}

/// Everything of one shard. Lives on the shard's thread.
pub(crate) struct Executor {
    pub(crate) node: Arc<Node>,
    pub(crate) shard: u32,
    pub(crate) gate: &'static Gate,
    pub(crate) driver: Driver,
    pub(crate) mailboxes: Mailboxes,
    pub(crate) timers: RefCell<Timers>,
    pub(crate) terminate_waiters: RefCell<Vec<Waker>>,
    pub(crate) hangup_waiters: RefCell<Vec<Waker>>,
    hangups_seen: Cell<u64>,
    /// Memory for the tasks that other threads woke; empty between turns.
    woken: RefCell<Vec<TaskId>>,
    tasks: RefCell<Tasks>,
    queues: RefCell<RunQueues>,
    current_group: Cell<Group>,
    current_task: Cell<Option<TaskId>>,
    slice_end: Cell<u64>,
    slice_ticks: u64,
    /// Of groups that give way.
    background_slice_ticks: u64,
    stall_ticks: u64,
    spin: Duration,
    locals: RefCell<Vec<(TypeId, Rc<dyn Any>)>>,
    counters: Counters,
    /// Of this thread; started at the first read, because a counter makes each switch of threads more expensive.
    instructions: OnceCell<Option<InstructionCounter>>,
}

#[derive(Default)]
struct Counters {
    polls: Cell<u64>,
    sleeps: Cell<u64>,
    kernel_visits: Cell<u64>,
    stalls: Cell<u64>,
    last_stall_log: Cell<Option<Instant>>,
    /// What the node does before it serves; None while it serves.
    start_phase: Cell<Option<&'static str>>,
    /// When the thread's processor time was read last, and what it was.
    processor: Cell<Option<(u64, Duration)>>,
}

/// Metrics of one shard since its start.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Times a task was polled.
    pub polls: u64,
    /// Times the shard slept in the kernel.
    pub sleeps: u64,
    /// Times the shard went to the kernel for submissions and completions, sleeping or not.
    pub kernel_visits: u64,
    /// Polls that took over 10 ms while the thread had a processor.
    pub stalls: u64,
    /// Messages this shard put into other shards' mailboxes, answers included.
    pub messages_sent: u64,
    /// Messages this shard took out of its mailboxes, answers included.
    pub messages_received: u64,
    /// Messages that found a full mailbox and had to wait.
    pub messages_overflowed: u64,
    /// Run time of each scheduling group that ran, by name.
    pub group_run_times: Vec<(String, Duration)>,
    /// Processor time of the shard's thread, the kernel's part included; zero in the simulator.
    pub cpu_time: Duration,
    /// User instructions of the shard's thread since the first call of [`metrics`], where the kernel counts them.
    pub user_instructions: Option<u64>,
}

thread_local! {
    static CURRENT: Cell<*const Executor> = const { Cell::new(std::ptr::null()) };
}

/// Calls `f` with the executor whose task, message or loop is running on this thread.
///
/// # Panics
/// When this thread runs no shard.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&Executor) -> R) -> R {
    try_with(f).expect("this function works only on a shard: inside `run`, a task or a message")
}

/// Calls `f` with the executor of this thread's shard. `None` when this thread runs no shard.
#[inline]
pub(crate) fn try_with<R>(f: impl FnOnce(&Executor) -> R) -> Option<R> {
    let current = CURRENT.get();
    // SAFETY: `Entered` sets the pointer from a reference that it keeps borrowed, and restores the former value when it
    // ends, so a non-null pointer is to a live executor of this thread; only shared references are ever made from it.
    unsafe { current.as_ref() }.map(f)
}

/// While it lives, the executor is the current one of this thread.
pub(crate) struct Entered<'a> {
    _executor: &'a Executor,
    former: *const Executor,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        CURRENT.set(self.former);
    }
}

/// Wakes a task of the current shard; false when the task belongs to another.
#[inline]
pub(crate) fn wake_if_current(task: TaskId) -> bool {
    try_with(|executor| {
        let own = executor.gate.index() == task.gate();
        if own {
            executor.make_ready(task);
        }
        own
    })
    .unwrap_or(false)
}

impl Executor {
    pub(crate) fn new(node: Arc<Node>, shard: u32, driver: Driver, mailboxes: Mailboxes, spin: Duration) -> Self {
        let background_slice = if driver.signals_completions() {
            SLICE
        } else {
            SLICE_WITHOUT_SIGNAL
        };
        let slice_ticks = clock::ticks_in(SLICE);
        Self {
            gate: node.gates[shard as usize],
            node,
            shard,
            driver,
            mailboxes,
            timers: RefCell::default(),
            terminate_waiters: RefCell::default(),
            hangup_waiters: RefCell::default(),
            hangups_seen: Cell::new(crate::signal::hangups()),
            woken: RefCell::default(),
            tasks: RefCell::default(),
            queues: RefCell::new(RunQueues::new(slice_ticks)),
            current_group: Cell::new(Group::STATEMENT),
            current_task: Cell::new(None),
            slice_end: Cell::new(0),
            slice_ticks,
            background_slice_ticks: clock::ticks_in(background_slice),
            stall_ticks: clock::ticks_in(STALL),
            spin,
            locals: RefCell::default(),
            counters: Counters::default(),
            instructions: OnceCell::new(),
        }
    }

    /// Makes this the current executor of the thread.
    pub(crate) fn enter(&self) -> Entered<'_> {
        Entered {
            _executor: self,
            former: CURRENT.replace(self),
        }
    }

    fn user_instructions(&self) -> Option<u64> {
        let start = || {
            if world::is_simulated() {
                None
            } else {
                InstructionCounter::start()
            }
        };
        self.instructions.get_or_init(start).as_ref()?.read()
    }

    /// The loop of a production shard, until `done`.
    pub(crate) fn run_until(&self, done: impl Fn() -> bool) {
        loop {
            self.read_processor();
            self.run_groups();
            let busy = self.answer_gate();
            self.fire_timers();
            if done() {
                return;
            }
            if busy || !self.queues.borrow().is_idle() {
                self.counters.kernel_visits.set(self.counters.kernel_visits.get() + 1);
                self.driver.visit(Wait::No);
            } else {
                self.idle();
            }
        }
    }

    /// One turn of a simulated shard.
    pub(crate) fn turn(&self) {
        self.answer_gate();
        self.fire_timers();
        self.run_groups();
    }

    /// Whether a turn would do something, timers aside.
    pub(crate) fn has_work(&self) -> bool {
        !self.queues.borrow().is_idle() || self.gate.is_rung() || self.mailboxes.is_overflowing()
    }

    /// Runs groups by their virtual time until nothing is runnable, the turn's time is over, or the kernel or another
    /// thread must be attended to.
    fn run_groups(&self) {
        let mut now = self.driver.ticks();
        let turn_end = now + self.slice_ticks;
        loop {
            let Some(group) = self.queues.borrow_mut().next_group() else {
                return;
            };
            now = self.run_slice(group, now);
            let must_ask_kernel = group.gives_way() && !self.driver.signals_completions();
            if now >= turn_end || must_ask_kernel || self.driver.has_submissions() || self.somebody_waits() {
                return;
            }
        }
    }

    /// Runs one group for at most one slice. The ticks at its end.
    fn run_slice(&self, group: Group, start: u64) -> u64 {
        let mut now = start;
        let gives_way = group.gives_way();
        let end = start
            + if gives_way {
                self.background_slice_ticks
            } else {
                self.slice_ticks
            };
        self.current_group.set(group);
        self.slice_end.set(end);
        let mut polls = 0_u32;
        loop {
            let next = self.queues.borrow_mut().pop(group);
            let Some(slot) = next else { break };
            self.poll_task(slot);
            polls += 1;
            if gives_way || polls.is_multiple_of(POLLS_PER_RING) {
                self.mailboxes.ring_targets(self.shard, &self.node.gates);
            }
            let before = now;
            now = self.driver.ticks();
            if now.wrapping_sub(before) > self.stall_ticks {
                self.note_stall(group, now.wrapping_sub(before));
            }
            if now >= end || (gives_way && self.somebody_waits()) {
                break;
            }
        }
        self.mailboxes.ring_targets(self.shard, &self.node.gates);
        self.queues.borrow_mut().charge(group, now.saturating_sub(start));
        self.current_group.set(Group::STATEMENT);
        now
    }

    /// Whether a completion, a message or a wake-up from another thread waits: two loads.
    #[inline]
    fn somebody_waits(&self) -> bool {
        self.gate.is_rung() || self.driver.completion_waits()
    }

    fn poll_task(&self, slot: u32) {
        let started = self.tasks.borrow_mut().start_poll(slot);
        let Some((mut future, generation)) = started else {
            return;
        };
        self.counters.polls.set(self.counters.polls.get() + 1);
        let began = self.driver.before_poll(self.shard, slot);
        // Not dropped, because dropping a waker of ours does nothing.
        let task = TaskId::new(self.gate.index(), generation, slot);
        self.current_task.set(Some(task));
        let waker = ManuallyDrop::new(task::waker(task));
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        self.driver.after_poll(began);
        match polled {
            Poll::Pending => self.tasks.borrow_mut().put_back(slot, future),
            Poll::Ready(()) => {
                drop(future);
                self.tasks.borrow_mut().end(slot);
            }
        }
    }

    /// Takes in what other threads left. True when there is more to do at once.
    fn answer_gate(&self) -> bool {
        let rung = self.gate.answer();
        if rung {
            let mut woken = self.woken.take();
            self.gate.take_woken(&mut woken);
            for task in woken.drain(..) {
                self.make_ready(task);
            }
            self.woken.replace(woken);
            if crate::signal::is_terminating(self) {
                for waker in self.terminate_waiters.take() {
                    waker.wake();
                }
            }
            let hangups = crate::signal::hangups();
            if self.hangups_seen.replace(hangups) != hangups {
                for waker in self.hangup_waiters.take() {
                    waker.wake();
                }
            }
        }
        mailbox::poll(self, rung)
    }

    fn fire_timers(&self) {
        if self.timers.borrow().next_deadline().is_none() {
            return;
        }
        let now = clock::now();
        loop {
            let fired = self.timers.borrow_mut().fire(now);
            match fired {
                Some(waker) => waker.wake(),
                None => return,
            }
        }
    }

    /// Nothing is runnable: polls for a while if configured so, then sleeps in the kernel until something happens.
    fn idle(&self) {
        if !self.spin.is_zero() && self.spin_until_work() {
            return;
        }
        let deadline = self.timers.borrow().next_deadline();
        self.counters.kernel_visits.set(self.counters.kernel_visits.get() + 1);
        if self.gate.fall_asleep() {
            self.counters.sleeps.set(self.counters.sleeps.get() + 1);
            self.driver.visit(Wait::Until(deadline));
            self.gate.wake_up();
        } else {
            self.driver.visit(Wait::No);
        }
    }

    fn spin_until_work(&self) -> bool {
        let now = clock::now();
        let end = now + self.spin;
        let end = self
            .timers
            .borrow()
            .next_deadline()
            .map_or(end, |deadline| deadline.min(end));
        self.driver.visit(Wait::No);
        loop {
            if self.somebody_waits() || !self.queues.borrow().is_idle() {
                self.driver.visit(Wait::No);
                return true;
            }
            if clock::now() >= end {
                return false;
            }
            self.driver.visit_while_spinning();
        }
    }

    /// Queues a task that can make progress.
    #[inline]
    pub(crate) fn make_ready(&self, task: TaskId) {
        let group = self.tasks.borrow_mut().make_ready(task);
        if let Some(group) = group {
            self.queues.borrow_mut().push(group, task.slot());
        }
    }

    pub(crate) fn add_task(&self, group: Group, future: TaskFuture) -> TaskId {
        let (slot, generation) = self.tasks.borrow_mut().insert(group, future);
        let task = TaskId::new(self.gate.index(), generation, slot);
        self.make_ready(task);
        task
    }

    /// Puts a task into another group. A queued task is queued there too: the second pop polls it for nothing.
    pub(crate) fn set_group(&self, task: TaskId, group: Group) {
        let queued = self.tasks.borrow_mut().set_group(task, group);
        if let Some(group) = queued {
            self.queues.borrow_mut().push(group, task.slot());
        }
    }

    /// Drops every task and local of the shard, as it must be done while the executor is entered.
    pub(crate) fn drop_tasks(&self) {
        loop {
            let future = self.tasks.borrow_mut().take_any();
            match future {
                Some(future) => drop(future),
                None => break,
            }
        }
        drop(self.locals.take());
        // Locals may have spawned on their way out.
        while let Some(future) = { self.tasks.borrow_mut().take_any() } {
            drop(future);
        }
    }

    /// Notes the thread's processor time, unless that was done shortly before.
    #[inline]
    fn read_processor(&self) {
        let now = clock::ticks();
        let last = self.counters.processor.get();
        if last.is_none_or(|(at, _)| now.wrapping_sub(at) > self.stall_ticks / 2) {
            self.counters.processor.set(Some((now, clock::thread_cpu_time())));
        }
    }

    /// Whether the thread was without a processor for most of a time that ends now: the machine is busy then, and no
    /// task is to blame.
    fn had_no_processor(&self, ticks: u64) -> bool {
        let Some((at, used)) = self.counters.processor.get() else {
            return false;
        };
        let passed = clock::ticks_to_duration(clock::ticks().wrapping_sub(at));
        let without = passed.saturating_sub(clock::thread_cpu_time().saturating_sub(used));
        without > clock::ticks_to_duration(ticks / 2)
    }

    #[cold]
    fn note_stall(&self, group: Group, ticks: u64) {
        if self.had_no_processor(ticks) {
            return;
        }
        self.counters.stalls.set(self.counters.stalls.get() + 1);
        let now = clock::now();
        let recently = self
            .counters
            .last_stall_log
            .get()
            .is_some_and(|last| now - last < Duration::from_secs(1));
        if !recently {
            self.counters.last_stall_log.set(Some(now));
            let (shard, group, time) = (ShardId(self.shard), group.name(), clock::ticks_to_duration(ticks));
            let stalls = self.counters.stalls.get();
            match self.counters.start_phase.get() {
                None => log::warn!(
                    "stall: {shard} was kept by one poll of a task in group {group} for {time:?} ({stalls} stalls so far)"
                ),
                // The node does not serve yet, so no client waits.
                Some(phase) => log::debug!(
                    "stall while the node starts ({phase}): {shard} was kept by one poll of a task in group {group} for {time:?}"
                ),
            }
        }
    }
}

/// Says what this shard does before the node serves, or that it serves (`None`, as without a call). Stalls are logged
/// at DEBUG with the phase before, and at WARN from then on.
pub fn set_start_phase(phase: Option<&'static str>) {
    with(|executor| {
        executor.counters.start_phase.set(phase);
        // A line of one phase does not keep back one of the next.
        executor.counters.last_stall_log.set(None);
    });
}

/// The shard that runs the caller.
///
/// # Panics
/// When this thread runs no shard.
#[must_use]
#[inline]
pub fn shard() -> ShardId {
    with(|executor| ShardId(executor.shard))
}

/// The shard that runs the caller; `None` on a thread that runs no shard.
#[must_use]
pub fn try_shard() -> Option<ShardId> {
    try_with(|executor| ShardId(executor.shard))
}

/// Shards of this node.
///
/// # Panics
/// When this thread runs no shard.
#[must_use]
pub fn shard_count() -> u32 {
    with(|executor| u32::try_from(executor.node.gates.len()).expect("a node has at most 256 shards"))
}

/// Starts a task on this shard, in the scheduling group of the caller.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let group = with(|executor| executor.current_group.get());
    spawn_in(group, future)
}

/// Starts a task on this shard, in this scheduling group.
pub fn spawn_in<F>(group: Group, future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let (task, handle) = JoinHandle::for_task(future);
    handle.note_task(with(|executor| executor.add_task(group, task)));
    handle
}

/// The scheduling group of the running task.
#[must_use]
pub fn group() -> Group {
    with(|executor| executor.current_group.get())
}

/// Moves the running task to another scheduling group. What it spawns from then on runs there too.
pub async fn continue_in(group: Group) {
    let moves = with(|executor| {
        let task = executor.current_task.get();
        let moves = executor.current_group.get() != group;
        if let Some(task) = task.filter(|_| moves) {
            executor.set_group(task, group);
        }
        moves
    });
    if moves {
        yield_now().await;
    }
}

/// Lets other tasks, and the kernel, have their turn.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Whether a long task should call [`yield_now`]: its slice is over, a completion waits, or another shard rang. Cheap
/// enough to ask every microsecond. False on threads that run no shard (jobs).
#[must_use]
#[inline]
pub fn should_yield() -> bool {
    try_with(|executor| executor.somebody_waits() || executor.driver.ticks() >= executor.slice_end.get())
        .unwrap_or(false)
}

/// Lets other tasks of the shard run if this one is to give way ([`should_yield`]).
pub async fn give_way() {
    if should_yield() {
        yield_now().await;
    }
}

/// Whether a computation is to be suspended, or a task that works in batches is to give way: the slice is over. In the
/// simulator, where a poll takes no time, by chance. False on threads that run no shard (jobs).
#[must_use]
pub fn is_preemption_due() -> bool {
    try_with(|executor| match executor.driver {
        Driver::Simulated(_) => executor.somebody_waits(),
        _ => executor.driver.ticks() >= executor.slice_end.get(),
    })
    .unwrap_or(false)
}

/// Whether the slice of the running group is over.
pub(crate) fn is_slice_over() -> bool {
    with(|executor| executor.driver.ticks() >= executor.slice_end.get())
}

/// Keeps a value for this shard, to be found by tasks and messages with [`local`]; replaces the value of the same type.
/// It is dropped, on its shard, when the shard ends.
pub fn set_local<T: 'static>(value: Rc<T>) {
    let former = with(|executor| {
        let mut locals = executor.locals.borrow_mut();
        match locals.iter_mut().find(|(id, _)| *id == TypeId::of::<T>()) {
            Some((_, known)) => Some(std::mem::replace(known, value)),
            None => {
                locals.push((TypeId::of::<T>(), value));
                None
            }
        }
    });
    drop(former);
}

/// The value of this type that [`set_local`] kept for this shard.
#[must_use]
pub fn local<T: 'static>() -> Option<Rc<T>> {
    with(|executor| {
        let locals = executor.locals.borrow();
        let (_, value) = locals.iter().find(|(id, _)| *id == TypeId::of::<T>())?;
        Rc::clone(value).downcast::<T>().ok()
    })
}

/// The metrics of this shard.
#[must_use]
pub fn metrics() -> Metrics {
    with(|executor| {
        let run_ticks = executor.queues.borrow().run_ticks();
        let ran = (0..GROUPS_MAX).filter(|&index| run_ticks[index] > 0);
        Metrics {
            polls: executor.counters.polls.get(),
            sleeps: executor.counters.sleeps.get(),
            kernel_visits: executor.counters.kernel_visits.get(),
            stalls: executor.counters.stalls.get(),
            messages_sent: executor.mailboxes.sent.get(),
            messages_received: executor.mailboxes.received.get(),
            messages_overflowed: executor.mailboxes.overflowed.get(),
            group_run_times: ran
                .map(|index| {
                    (
                        Group::from_index(index).name(),
                        clock::ticks_to_duration(run_ticks[index]),
                    )
                })
                .collect(),
            cpu_time: clock::thread_cpu_time(),
            user_instructions: executor.user_instructions(),
        }
    })
}
