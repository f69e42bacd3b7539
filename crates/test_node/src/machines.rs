//! Machines in the simulator, and the tasks that a test runs on their shards.

use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use runtime::ShardId;
use runtime::sim::{CrashKind, NodeId, Simulation, TaskQueue};

/// The port at which a node listens to others.
const PORT: u16 = 7000;
/// How long a start or a task may take, in the time of the simulation.
const LIMIT: Duration = Duration::from_hours(1);

/// Machines that each run one program. `L` is what a shard of it gives to the tasks of the test.
pub struct Machines<L> {
    /// The world of the machines.
    pub simulation: Simulation,
    machines: Vec<Machine<L>>,
}

struct Machine<L> {
    id: NodeId,
    shards: Vec<Rc<Served<L>>>,
}

/// A shard as the test sees it.
struct Served<L> {
    /// None until its program serves tasks.
    local: RefCell<Option<L>>,
    tasks: TaskQueue<L>,
}

impl<L: Clone + 'static> Machines<L> {
    /// None yet.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            simulation: Simulation::new(seed),
            machines: Vec::new(),
        }
    }

    /// Adds a machine, on which nothing runs yet. They are numbered from 0. Returns the address at which its program
    /// may listen.
    pub fn add(&mut self, shards: u32) -> SocketAddr {
        let id = self.simulation.add_node(shards);
        let served = |_| {
            Rc::new(Served {
                local: RefCell::new(None),
                tasks: TaskQueue::default(),
            })
        };
        self.machines.push(Machine {
            id,
            shards: (0..shards).map(served).collect(),
        });
        SocketAddr::new(self.simulation.address(id), PORT)
    }

    /// Starts a machine's program. The first of its shards that runs calls `prepare`; each runs `live` with the result,
    /// and serves the tasks of the test with what that returns. A restart does all of it again.
    pub fn start<P: 'static, F: Future<Output = L> + 'static>(
        &mut self,
        number: usize,
        prepare: impl Fn() -> P + 'static,
        live: impl Fn(Rc<P>) -> F + 'static,
    ) {
        let machine = &self.machines[number];
        let shards = machine.shards.clone();
        let (prepare, live) = (Rc::new(prepare), Rc::new(live));
        let prepared: Rc<RefCell<Option<Rc<P>>>> = Rc::default();
        self.simulation.start(machine.id, move |shard| {
            let served = shards[shard.0 as usize].clone();
            served.tasks.clear();
            served.local.take();
            if shard == ShardId(0) {
                prepared.take();
            }
            let (prepare, live, prepared) = (prepare.clone(), live.clone(), prepared.clone());
            Box::pin(async move {
                let of_all = prepared.borrow_mut().get_or_insert_with(|| Rc::new(prepare())).clone();
                let local = live(of_all).await;
                *served.local.borrow_mut() = Some(local.clone());
                served.tasks.serve(local).await;
            })
        });
    }

    /// Runs the simulation until every shard of a machine serves tasks.
    ///
    /// # Panics
    /// When one does not within an hour.
    pub fn await_start(&mut self, number: usize) {
        let shards = self.machines[number].shards.clone();
        let serve = || shards.iter().all(|served| served.local.borrow().is_some());
        assert!(self.simulation.run_until(LIMIT, serve), "node {number} does not start");
    }

    /// How many machines there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.machines.len()
    }

    /// How many shards the program of a machine has.
    #[must_use]
    pub fn shards(&self, number: usize) -> usize {
        self.machines[number].shards.len()
    }

    /// The simulator's name for a machine.
    #[must_use]
    pub fn id(&self, number: usize) -> NodeId {
        self.machines[number].id
    }

    /// Whether a machine's program runs.
    #[must_use]
    pub fn is_running(&self, number: usize) -> bool {
        self.simulation.is_running(self.machines[number].id)
    }

    /// Whether shard 0 of a machine serves tasks.
    #[must_use]
    pub fn serves(&self, number: usize) -> bool {
        self.machines[number].shards[0].local.borrow().is_some()
    }

    /// What shard 0 of a machine gives to tasks.
    ///
    /// # Panics
    /// When it does not serve any.
    #[must_use]
    pub fn local(&self, number: usize) -> L {
        let local = self.machines[number].shards[0].local.borrow().clone();
        local.expect("the node runs")
    }

    /// What all shards that serve tasks give to them.
    #[must_use]
    pub fn locals(&self) -> Vec<L> {
        let shards = self.machines.iter().flat_map(|machine| &machine.shards);
        shards.filter_map(|served| served.local.borrow().clone()).collect()
    }

    /// Begins a task on shard 0 of a machine; the cell gets its output.
    pub fn spawn<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        number: usize,
        task: impl FnOnce(L) -> F + 'static,
    ) -> Rc<RefCell<Option<T>>> {
        self.spawn_on(number, 0, task)
    }

    /// Begins a task on a shard of a machine; the cell gets its output.
    pub fn spawn_on<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        number: usize,
        shard: usize,
        task: impl FnOnce(L) -> F + 'static,
    ) -> Rc<RefCell<Option<T>>> {
        let machine = &self.machines[number];
        self.simulation.spawn(machine.id, &machine.shards[shard].tasks, task)
    }

    /// Runs a task on shard 0 of a machine to its end.
    pub fn on<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        number: usize,
        task: impl FnOnce(L) -> F + 'static,
    ) -> T {
        let machine = &self.machines[number];
        self.simulation
            .run_task(machine.id, &machine.shards[0].tasks, LIMIT, task)
    }

    /// Ends a machine's program, if it runs.
    pub fn crash(&mut self, number: usize, kind: CrashKind) {
        let machine = &self.machines[number];
        self.simulation.crash(machine.id, kind);
        for served in &machine.shards {
            served.local.take();
            served.tasks.clear();
        }
    }

    /// Ends a machine's program, if it runs: what was written to its files stays.
    pub fn kill(&mut self, number: usize) {
        self.crash(number, CrashKind::Kill);
    }

    /// Starts the program of a machine again, on a disk without faults, and runs the simulation until it serves tasks.
    pub fn start_again(&mut self, number: usize) {
        let id = self.machines[number].id;
        self.simulation.clear_file_faults(id);
        self.simulation.restart(id);
        self.await_start(number);
    }

    /// Ends a machine's program, if it runs, and starts it again.
    pub fn restart(&mut self, number: usize, kind: CrashKind) {
        self.crash(number, kind);
        self.start_again(number);
    }

    /// Sets whether what one machine sends reaches another.
    pub fn set_link_up(&mut self, from: usize, to: usize, is_up: bool) {
        let (from, to) = (self.machines[from].id, self.machines[to].id);
        self.simulation.set_link_up(from, to, is_up);
    }

    /// Makes each operation on a disk take two milliseconds, so that much happens in between.
    pub fn slow_disks(&mut self) {
        for machine in &self.machines {
            self.simulation.set_disk_delay(machine.id, Duration::from_millis(2));
        }
    }
}
