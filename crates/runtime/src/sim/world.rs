//! What all simulated nodes share: virtual time, the one source of chance, the events to come, and the trace.
//!
//! Time moves only here: by a little for each poll, file operation and look at the clock, and to the next event when no
//! shard can run. Every decision of chance is drawn from one generator in program order, so the same seed and program
//! give the same run. The trace is a hash over everything that happened; two runs that differ anywhere differ in it.

use super::disk::Disk;
use super::faults::Faults;
use super::network::Network;
use super::{CrashKind, NodeId};
use crate::belief::ClockBelief;
use crate::clock::Instant;
use crate::executor::Executor;
use crate::random::Generator;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

/// Where virtual wall clocks start: 1 January 2026, in microseconds since 1970.
const WALL_CLOCK_START_US: i64 = 1_767_225_600_000_000;

/// What looking at the clock costs, so that a loop that waits for time to pass ends.
const LOOK_AT_CLOCK: u64 = 20;

pub(crate) struct World {
    nanos: Cell<u64>,
    /// While a thread beside the shards runs: the time it has taken so far, which does not pass for the shards.
    aside: Cell<Option<Duration>>,
    random: RefCell<Generator>,
    trace: Cell<u64>,
    events: RefCell<BinaryHeap<Event>>,
    next_event: Cell<u64>,
    /// Events and turns so far.
    pub(crate) steps: Cell<u64>,
    /// Memory for the shards that can run; of one step.
    pub(crate) runnable: RefCell<Vec<(NodeId, usize)>>,
    pub(crate) nodes: RefCell<Vec<Rc<SimulatedNode>>>,
    pub(crate) network: RefCell<Network>,
    /// The addresses of host names.
    pub(crate) names: RefCell<BTreeMap<String, Vec<IpAddr>>>,
    /// Of the machines whose polls are measured, the processor time of each; see [`measured_polls`].
    pub(crate) polls: RefCell<BTreeMap<NodeId, Vec<Duration>>>,
}

/// A machine: it keeps its disk and its address when its process dies.
pub(crate) struct SimulatedNode {
    pub(crate) id: NodeId,
    pub(crate) shards: Cell<u32>,
    pub(crate) disk: RefCell<Disk>,
    pub(crate) faults: Faults,
    pub(crate) skew_us: Cell<i64>,
    /// What its process believes of its clock.
    pub(crate) belief: Cell<Option<ClockBelief>>,
    /// Until then no shard of its process runs.
    pub(crate) paused_until: Cell<Instant>,
    /// Moves on with each start; what belongs to an earlier process is ignored by it.
    pub(crate) incarnation: Cell<u64>,
    /// False from the moment of a crash: a process that is being torn down can change nothing any more.
    pub(crate) alive: Cell<bool>,
    pub(crate) terminating: Cell<bool>,
    /// How often the machine has booted; moves on when the power is lost.
    pub(crate) boots: Cell<u64>,
    /// A crash in the middle of a file operation, to be finished by the main loop.
    pub(crate) crashing: Cell<Option<CrashKind>>,
    pub(crate) executors: RefCell<Vec<Rc<Executor>>>,
}

type Action = Box<dyn FnOnce(&Rc<World>)>;

struct Event {
    nanos: u64,
    order: u64,
    action: Action,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    /// The earliest event is the greatest, as the heap wants it.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.nanos, other.order).cmp(&(self.nanos, self.order))
    }
}

impl World {
    pub(crate) fn new(seed: u64) -> Rc<Self> {
        Rc::new(Self {
            nanos: Cell::new(1_000_000_000),
            aside: Cell::new(None),
            random: RefCell::new(Generator::from_seed(seed)),
            trace: Cell::new(seed),
            polls: RefCell::default(),
            events: RefCell::default(),
            next_event: Cell::new(0),
            steps: Cell::new(0),
            runnable: RefCell::default(),
            nodes: RefCell::default(),
            network: RefCell::default(),
            names: RefCell::default(),
        })
    }

    pub(crate) fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let found = self.names.borrow().get(host).cloned();
        found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name is not known"))
    }

    pub(crate) fn node(&self, id: NodeId) -> Rc<SimulatedNode> {
        Rc::clone(&self.nodes.borrow()[id.0 as usize])
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(self.nanos.get()) + self.aside.get().unwrap_or_default()
    }

    pub(crate) fn advance(&self, by: Duration) {
        match self.aside.get() {
            Some(taken) => self.aside.set(Some(taken + by)),
            None => self.nanos.set((self.now() + by).as_nanos()),
        }
    }

    /// Runs the work of another thread: time passes in it, and not for the others. How long it took.
    pub(crate) fn aside(&self, work: impl FnOnce()) -> Duration {
        self.aside.set(Some(Duration::ZERO));
        work();
        self.aside.take().unwrap_or_default()
    }

    pub(crate) fn advance_to(&self, instant: Instant) {
        self.nanos.set(self.nanos.get().max(instant.as_nanos()));
    }

    /// A number below `bound`.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        let word = self.random.borrow_mut().next();
        u64::try_from((u128::from(word) * u128::from(bound)) >> 64).expect("the high half of a product with a u64 fits")
    }

    /// True once in `times`.
    pub(crate) fn once_in(&self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn random_u64(&self) -> u64 {
        self.random.borrow_mut().next()
    }

    /// A duration between two bounds, short ones more often, as latencies are.
    pub(crate) fn latency(&self, least: Duration, most: Duration) -> Duration {
        let span = u64::try_from((most - least).as_nanos()).unwrap_or(u64::MAX);
        let narrowed = span >> self.below(6);
        least + Duration::from_nanos(self.below(narrowed + 1))
    }

    /// Mixes what happened into the trace.
    pub(crate) fn note(&self, what: &str, parts: &[u64]) {
        let mut hash = self.trace.get() ^ self.nanos.get();
        let mut mix = |word: u64| {
            hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^= hash >> 32;
        };
        what.bytes().for_each(|byte| mix(u64::from(byte)));
        parts.iter().copied().for_each(&mut mix);
        self.trace.set(hash);
    }

    pub(crate) fn trace(&self) -> u64 {
        self.trace.get()
    }

    /// Does something later.
    pub(crate) fn after(&self, delay: Duration, action: impl FnOnce(&Rc<Self>) + 'static) {
        self.at(self.now() + delay, action);
    }

    pub(crate) fn at(&self, instant: Instant, action: impl FnOnce(&Rc<Self>) + 'static) {
        let order = self.next_event.get();
        self.next_event.set(order + 1);
        self.events.borrow_mut().push(Event {
            nanos: instant.as_nanos(),
            order,
            action: Box::new(action),
        });
    }

    pub(crate) fn next_event_at(&self) -> Option<Instant> {
        self.events
            .borrow()
            .peek()
            .map(|event| Instant::from_nanos(event.nanos))
    }

    /// The next event that is due.
    pub(crate) fn pop_due_event(&self) -> Option<Action> {
        let mut events = self.events.borrow_mut();
        if events.peek()?.nanos > self.nanos.get() {
            return None;
        }
        events.pop().map(|event| event.action)
    }

    pub(crate) fn clear_events(&self) {
        let events = std::mem::take(&mut *self.events.borrow_mut());
        drop(events);
    }
}

impl SimulatedNode {
    /// Whether something of that incarnation still has a living process.
    pub(crate) fn runs(&self, incarnation: u64) -> bool {
        self.alive.get() && self.incarnation.get() == incarnation
    }
}

thread_local! {
    static WORLD: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
    static SIMULATED: Cell<bool> = const { Cell::new(false) };
    static NODE: Cell<Option<NodeId>> = const { Cell::new(None) };
}

/// While it lives, this thread is inside the world, on a node or between nodes.
pub(crate) struct Inside {
    former_world: Option<Rc<World>>,
    former_node: Option<NodeId>,
}

impl Inside {
    pub(crate) fn enter(world: &Rc<World>, node: Option<NodeId>) -> Self {
        let former_world = WORLD.replace(Some(Rc::clone(world)));
        SIMULATED.set(true);
        Self {
            former_world,
            former_node: NODE.replace(node),
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        NODE.set(self.former_node);
        SIMULATED.set(self.former_world.is_some());
        let own = WORLD.replace(self.former_world.take());
        drop(own);
    }
}

/// Whether this thread is inside a simulation: one load.
#[inline]
pub(crate) fn is_simulated() -> bool {
    SIMULATED.get()
}

/// The world this thread is in.
pub(crate) fn world() -> Rc<World> {
    WORLD
        .with_borrow(|world| world.clone())
        .expect("the thread is inside a simulation")
}

/// The processor time of the simulator's thread for each poll of a machine's tasks since this was called for it before;
/// measuring begins with the first call. Real time, so nothing in the simulation may depend on it.
#[must_use]
pub fn measured_polls(machine: NodeId) -> Vec<Duration> {
    world()
        .polls
        .borrow_mut()
        .insert(machine, Vec::new())
        .unwrap_or_default()
}

/// The machine that runs the caller; None between machines and outside of a simulation.
#[must_use]
pub fn current_machine() -> Option<NodeId> {
    NODE.get()
}

/// The world and the node that runs the caller.
pub(crate) fn world_and_node() -> (Rc<World>, Rc<SimulatedNode>) {
    let world = world();
    let id = NODE
        .get()
        .expect("files and sockets of a simulation belong to a node: use Simulation::on_node");
    let node = world.node(id);
    (world, node)
}

/// The world if the thread is in one; for destructors, which may run after it.
pub(crate) fn try_world() -> Option<Rc<World>> {
    WORLD.with_borrow(|world| world.clone())
}

#[cold]
pub(crate) fn simulated_now() -> Instant {
    let world = world();
    world.advance(Duration::from_nanos(LOOK_AT_CLOCK));
    world.now()
}

/// The steady clock of the node that runs the caller, its system clock less that, and what it believes of it.
#[cold]
pub(crate) fn simulated_clocks() -> (i64, i64, Option<ClockBelief>) {
    let world = world();
    world.advance(Duration::from_nanos(LOOK_AT_CLOCK));
    let nanos = world.now().as_nanos();
    let steady_us = i64::try_from(nanos / 1000).expect("a simulation ends before the year 294000");
    let node = NODE.get().map(|id| world.node(id));
    let skew_us = node.as_ref().map_or(0, |node| node.skew_us.get());
    let belief = node.and_then(|node| node.belief.get());
    (steady_us, WALL_CLOCK_START_US + skew_us, belief)
}

/// Sets what the node that runs the caller believes of its clock.
pub(crate) fn simulated_believe(belief: ClockBelief) {
    let (_, node) = world_and_node();
    node.belief.set(Some(belief));
}
