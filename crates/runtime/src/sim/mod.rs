//! The simulator: many nodes with all their shards in one thread, on virtual time, driven by one seed.
//!
//! The program under test is the same as in production: it calls the functions of this crate, and on a thread that is
//! inside a simulation they act on the simulated node. Each step does one thing: an event that is due, or one turn of
//! one shard that can run, chosen by chance; when no shard can run, time jumps to the next event or timer. Same seed,
//! same program: same run, which [`Simulation::trace_hash`] shows. Programs keep that promise only if they do not look
//! at addresses, at hash maps with random state, or at `thread_local!`s, which all simulated shards share.
//!
//! A panic in a task, message or job reaches the caller of `run_for` or `run_until`, so tests may assert inside the
//! node.

mod directory;
mod disk;
pub(crate) mod faults;
pub(crate) mod files;
pub(crate) mod network;
mod task_queue;
pub(crate) mod world;

use crate::blocking::Pools;
use crate::clock::Instant;
use crate::driver::Driver;
use crate::executor::{Executor, ShardId};
use crate::gate::SHARDS_MAX;
use crate::group::Group;
use crate::mailbox::Mailboxes;
use crate::start::Node;
use crate::task::Work;
pub use directory::DirectoryCopy;
use disk::Disk;
pub use faults::{DiskErrors, FailedSync, Stop};
use faults::{Faults, when_awake};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
pub use task_queue::TaskQueue;
use world::{Inside, SimulatedNode, World};
pub use world::{current_machine, measured_polls};

/// A machine of the simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u32);

impl fmt::Display for NodeId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "node {}", self.0)
    }
}

/// How a process ends before its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrashKind {
    /// The process is killed; the kernel keeps what was written, and resets its connections.
    Kill,
    /// The machine loses power: what was not synced vanishes, or survives in part, by chance; peers get no notice.
    PowerLoss,
}

/// What unwinds from the middle of a file operation to the main loop when the process crashes there.
pub(crate) struct SimulatedCrash;

type Main = Rc<dyn Fn(ShardId) -> Pin<Box<dyn Future<Output = ()>>>>;

/// The seam of a simulated shard.
pub(crate) struct SimulatedDriver {
    pub(crate) world: Rc<World>,
    pub(crate) node: NodeId,
}

/// A network of machines, their disks and their clocks. See the module.
pub struct Simulation {
    world: Rc<World>,
    mains: Vec<Option<Main>>,
}

impl Simulation {
    /// An empty world. Everything that happens in it follows from the seed and the program.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            world: World::new(seed),
            mains: Vec::new(),
        }
    }

    /// Adds a machine with an empty disk. Nothing runs on it yet.
    ///
    /// # Panics
    /// When the shards are none or more than 256.
    pub fn add_node(&mut self, shards: u32) -> NodeId {
        let shards = Cell::new(checked(shards));
        let id = NodeId(u32::try_from(self.mains.len()).expect("a simulation has few nodes"));
        self.mains.push(None);
        self.world.nodes.borrow_mut().push(Rc::new(SimulatedNode {
            id,
            shards,
            disk: RefCell::new(Disk::new()),
            faults: Faults::default(),
            skew_us: Cell::new(0),
            belief: Cell::new(None),
            paused_until: Cell::new(Instant::from_nanos(0)),
            incarnation: Cell::new(0),
            alive: Cell::new(false),
            terminating: Cell::new(false),
            boots: Cell::new(1),
            crashing: Cell::new(None),
            executors: RefCell::default(),
        }));
        id
    }

    /// How many shards the process has that starts next on the machine.
    ///
    /// # Panics
    /// When the shards are none or more than 256.
    pub fn set_shards(&mut self, node: NodeId, shards: u32) {
        self.world.node(node).shards.set(checked(shards));
    }

    /// The address of a machine, at which others reach its listeners.
    #[must_use]
    pub fn address(&self, node: NodeId) -> IpAddr {
        network::address_of(node)
    }

    /// A second address of a node's machine, for programs that change theirs.
    #[must_use]
    pub fn second_address(&self, node: NodeId) -> IpAddr {
        network::addresses_of(node)[1]
    }

    /// Gives a host name these addresses from now on, as an operator of the name server does; none at all makes it
    /// resolve to nothing.
    pub fn set_name(&mut self, name: &str, addresses: &[IpAddr]) {
        self.world
            .names
            .borrow_mut()
            .insert(name.to_owned(), addresses.to_vec());
    }

    /// Starts a process on a machine: `main` on each shard, as [`crate::run`] does.
    ///
    /// # Panics
    /// When a process runs there already.
    pub fn start<F>(&mut self, node: NodeId, main: F)
    where
        F: Fn(ShardId) -> Pin<Box<dyn Future<Output = ()>>> + 'static,
    {
        assert!(!self.is_running(node), "{node} runs already");
        self.mains[node.0 as usize] = Some(Rc::new(main));
        self.restart(node);
    }

    /// Starts the same program again on a machine whose process has ended or crashed.
    ///
    /// # Panics
    /// When it still runs, or was never started.
    pub fn restart(&mut self, node: NodeId) {
        assert!(!self.is_running(node), "{node} runs already");
        let main = self.mains[node.0 as usize]
            .clone()
            .expect("a node is restarted after it was started");
        let machine = self.world.node(node);
        machine.incarnation.set(machine.incarnation.get() + 1);
        machine.alive.set(true);
        machine.terminating.set(false);
        machine.belief.set(None);
        self.world.note("start", &[u64::from(node.0)]);
        let _inside = Inside::enter(&self.world, Some(node));
        let shards = machine.shards.get();
        let shared = Arc::new(Node::new_simulated(shards, Pools::start(shards)));
        for (shard, mailboxes) in (0..shards).zip(Mailboxes::for_shards(shards as usize)) {
            let driver = Driver::Simulated(SimulatedDriver {
                world: Rc::clone(&self.world),
                node,
            });
            let executor = Rc::new(Executor::new(
                Arc::clone(&shared),
                shard,
                driver,
                mailboxes,
                Duration::ZERO,
            ));
            let entered = executor.enter();
            let future = main(ShardId(shard));
            let ending = Arc::clone(&shared);
            executor.add_task(
                Group::STATEMENT,
                Box::pin(async move {
                    future.await;
                    ending.end_main();
                }),
            );
            drop(entered);
            machine.executors.borrow_mut().push(executor);
        }
    }

    /// Whether a process runs on the machine: started, not crashed, and not every shard's main done.
    #[must_use]
    pub fn is_running(&self, node: NodeId) -> bool {
        self.world.node(node).alive.get()
    }

    /// Ends the process on a machine, if one runs, between two of its steps.
    pub fn crash(&mut self, node: NodeId, kind: CrashKind) {
        let machine = self.world.node(node);
        if machine.alive.get() {
            machine.alive.set(false);
            finish_crash(&self.world, &machine, kind);
        } else if kind == CrashKind::PowerLoss {
            lose_power(&self.world, &machine);
        }
    }

    /// Asks the process to end, as SIGTERM does.
    pub fn terminate(&mut self, node: NodeId) {
        let machine = self.world.node(node);
        machine.terminating.set(true);
        for executor in machine.executors.borrow().iter() {
            executor.gate.ring();
        }
    }

    /// Runs until the condition holds or that much virtual time has passed. Whether the condition holds.
    pub fn run_until(&mut self, limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
        let _inside = Inside::enter(&self.world, None);
        let limit = self.world.now() + limit;
        loop {
            if condition() {
                return true;
            }
            if !step(&self.world, limit) {
                return condition();
            }
        }
    }

    /// Runs until the process of the node has ended or crashed, at most for that much virtual time. Whether it has.
    pub fn run_until_ended(&mut self, node: NodeId, limit: Duration) -> bool {
        let machine = self.world.node(node);
        self.run_until(limit, || !machine.alive.get())
    }

    /// Runs for that much virtual time.
    pub fn run_for(&mut self, duration: Duration) {
        self.run_until(duration, || false);
    }

    /// Virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.world.now()
    }

    /// Cuts or mends the link in one direction. What is sent over a cut link is sent again for a minute, then the
    /// connection is lost.
    pub fn set_link_up(&mut self, from: NodeId, to: NodeId, is_up: bool) {
        self.world.network.borrow_mut().link(from, to).is_up = is_up;
    }

    /// Cuts the links between each node of one side and each of the other, both ways.
    pub fn partition(&mut self, one: &[NodeId], other: &[NodeId]) {
        self.set_links(one, other, false);
    }

    /// Mends the links between each node of one side and each of the other, both ways.
    pub fn heal(&mut self, one: &[NodeId], other: &[NodeId]) {
        self.set_links(one, other, true);
    }

    fn set_links(&mut self, one: &[NodeId], other: &[NodeId], is_up: bool) {
        for &left in one {
            for &right in other {
                self.set_link_up(left, right, is_up);
                self.set_link_up(right, left, is_up);
            }
        }
    }

    /// Adds to the latency of the link in one direction.
    pub fn set_delay(&mut self, from: NodeId, to: NodeId, delay: Duration) {
        self.world.network.borrow_mut().link(from, to).extra_delay = delay;
    }

    /// Of a million segments over the link in one direction, how many are lost and sent again later.
    pub fn set_loss(&mut self, from: NodeId, to: NodeId, lost_per_million: u64) {
        self.world.network.borrow_mut().link(from, to).lost_per_million = lost_per_million;
    }

    /// Of a million messages that arrive by the link in one direction, how many take effect twice, and how many after
    /// later ones: for readers of whole messages ([`crate::net::ReadHalf::fate`]).
    pub fn set_message_faults(
        &mut self,
        from: NodeId,
        to: NodeId,
        repeated_per_million: u64,
        overtaken_per_million: u64,
    ) {
        let mut network = self.world.network.borrow_mut();
        let link = network.link(from, to);
        link.repeated_per_million = repeated_per_million;
        link.overtaken_per_million = overtaken_per_million;
    }

    /// How many messages took effect twice or after later ones.
    #[must_use]
    pub fn disturbed_messages(&self) -> u64 {
        self.world.network.borrow().disturbed
    }

    /// How many events and turns of shards there were so far: what the run has cost, on any computer.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.world.steps.get()
    }

    /// A hash over everything that has happened so far. Equal for equal seeds and programs.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.world.trace()
    }

    /// As [`measured_polls`], from outside of the simulation.
    #[must_use]
    pub fn measured_polls(&self, machine: NodeId) -> Vec<Duration> {
        let _inside = Inside::enter(&self.world, None);
        measured_polls(machine)
    }
}

impl Drop for Simulation {
    /// Ends all processes, in the world, so that what their tasks drop finds it.
    fn drop(&mut self) {
        let machines = self.world.nodes.borrow().clone();
        for machine in machines {
            machine.alive.set(false);
            drop_process(&self.world, &machine);
        }
        let _inside = Inside::enter(&self.world, None);
        self.world.clear_events();
    }
}

fn checked(shards: u32) -> u32 {
    assert!(
        shards > 0 && shards as usize <= SHARDS_MAX,
        "a node has 1 to {SHARDS_MAX} shards, not {shards}"
    );
    shards
}

/// Does one thing. False when there is nothing to do before the limit, which is then the time.
fn step(world: &Rc<World>, limit: Instant) -> bool {
    let steps = world.steps.get() + 1;
    if let Some(action) = world.pop_due_event() {
        world.steps.set(steps);
        action(world);
        return true;
    }
    let mut runnable = world.runnable.borrow_mut();
    runnable.clear();
    let mut next = world.next_event_at();
    let now = world.now();
    for machine in world.nodes.borrow().iter() {
        let paused_until = machine.paused_until.get();
        if paused_until > now {
            next = [next, Some(paused_until)].into_iter().flatten().min();
            continue;
        }
        for (shard, executor) in machine.executors.borrow().iter().enumerate() {
            let timer = executor.timers.borrow().next_deadline();
            if executor.has_work() || timer.is_some_and(|deadline| deadline <= now) {
                runnable.push((machine.id, shard));
            }
            next = [next, timer].into_iter().flatten().min();
        }
    }
    if now >= limit {
        return false;
    }
    if !runnable.is_empty() {
        let (node, shard) =
            runnable[usize::try_from(world.below(runnable.len() as u64)).expect("an index of a vector")];
        drop(runnable);
        world.steps.set(steps);
        turn(world, &world.node(node), shard);
        return true;
    }
    match next {
        Some(next) if next <= limit => {
            world.advance_to(next);
            true
        }
        _ => {
            world.advance_to(limit);
            false
        }
    }
}

/// One turn of one shard.
fn turn(world: &Rc<World>, machine: &Rc<SimulatedNode>, shard: usize) {
    let executor = Rc::clone(&machine.executors.borrow()[shard]);
    guard(world, machine, || {
        let _entered = executor.enter();
        executor.turn();
    });
    if machine.alive.get() && executor.node.is_done() {
        world.note("end", &[u64::from(machine.id.0)]);
        drop(executor);
        drop_process(world, machine);
        machine.alive.set(false);
        network::forget_process(world, machine.id, true);
        machine.disk.borrow_mut().kill();
    }
}

/// Runs something on a node if its process is still that one: completions, jobs, offloaded work.
pub(crate) fn run_on_node(world: &Rc<World>, node: NodeId, incarnation: u64, work: impl FnOnce()) {
    let machine = world.node(node);
    if machine.runs(incarnation) {
        guard(world, &machine, work);
    }
}

/// Calls `work` on a machine and finishes the crash that may happen in it. Other panics are passed on.
fn guard(world: &Rc<World>, machine: &Rc<SimulatedNode>, work: impl FnOnce()) {
    let inside = Inside::enter(world, Some(machine.id));
    let ended = catch_unwind(AssertUnwindSafe(work));
    drop(inside);
    if let Err(panic) = ended
        && !panic.is::<SimulatedCrash>()
    {
        resume_unwind(panic);
    }
    if let Some(kind) = machine.crashing.take() {
        machine.alive.set(false);
        finish_crash(world, machine, kind);
    }
}

fn finish_crash(world: &Rc<World>, machine: &Rc<SimulatedNode>, kind: CrashKind) {
    world.note("crash", &[u64::from(machine.id.0), kind as u64]);
    drop_process(world, machine);
    machine.paused_until.set(Instant::from_nanos(0));
    network::forget_process(world, machine.id, kind == CrashKind::Kill);
    machine.disk.borrow_mut().kill();
    if kind == CrashKind::PowerLoss {
        lose_power(world, machine);
    }
}

fn lose_power(world: &World, machine: &SimulatedNode) {
    machine.boots.set(machine.boots.get() + 1);
    machine.disk.borrow_mut().lose_power(|bound| world.below(bound));
}

/// Drops the tasks of all shards of a process, each on its shard.
fn drop_process(world: &Rc<World>, machine: &Rc<SimulatedNode>) {
    let _inside = Inside::enter(world, Some(machine.id));
    let executors = machine.executors.take();
    for executor in &executors {
        let _entered = executor.enter();
        executor.drop_tasks();
    }
}

/// Runs work of a pool at a later time. All its effects but its result are there at once; the result comes when as much
/// time has passed as the work took.
pub(crate) fn run_later(driver: &SimulatedDriver, least: Duration, most: Duration, work: Work) {
    let (node, incarnation) = (driver.node, driver.world.node(driver.node).incarnation.get());
    let delay = driver.world.latency(least, most);
    let run = move |world: &Rc<World>| {
        let mut publish = None;
        let taken = world.aside(|| run_on_node(world, node, incarnation, || publish = Some(work())));
        if let Some(publish) = publish {
            let finish = move |world: &Rc<World>| run_on_node(world, node, incarnation, publish);
            world.after(taken, move |world| when_awake(world, node, finish));
        }
    };
    driver.world.after(delay, move |world| when_awake(world, node, run));
}
