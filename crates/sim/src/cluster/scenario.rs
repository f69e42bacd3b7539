//! A scenario of a cluster: how it is set up and what strikes it; played from a seed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use runtime::sim::CrashKind;
use stdx::planted::{Bug, Planted};

use super::clients::{Clients, ClusterCounts, Phase, Promises};
use super::layout::{Datacenter, Layout};
use super::machines::{Cluster, ClusterSetup};
use crate::machine::Durability;
use crate::scenario::{Chance, Failure, panic_text};

/// How long a cluster may take to form, until its tables are there.
const FORM_WAIT_MAX: Duration = Duration::from_mins(3);
/// After everything is healed, how long until every node has served QUORUM again.
const SERVE_WAIT_MAX: Duration = Duration::from_secs(30);
/// How long after that until no error comes any more: a peer that fell often must answer sixteen pings before it is trusted again.
const TRUST_WAIT: Duration = Duration::from_secs(20);
/// When the clients rest, until nothing is under way any more: the network tries for a minute.
const QUIET_WAIT: Duration = Duration::from_secs(75);
/// How long the look at everything may take.
const LOOK_WAIT_MAX: Duration = Duration::from_mins(5);
/// How wrong a clock may be, either way.
const CLOCK_ERROR_MAX: Duration = Duration::from_secs(10);
/// How often the log tells the time.
const LOGGED_TIME_NANOS: u64 = 100_000_000;
/// Where messages are repeated and overtaken: of a million, how many are one, and how many the other.
const DISTURBED_PER_MILLION: u64 = 30_000;
const SLICE: Duration = Duration::from_millis(10);

/// What strikes nodes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ClusterFaults {
    /// A process is killed, between two steps or in a file operation.
    pub kills: bool,
    /// A machine loses power.
    pub power_losses: bool,
    /// All machines lose power at once.
    pub blackouts: bool,
    /// A node is told to end, and starts again.
    pub restarts: bool,
    /// A node is cut off from the others, in one direction or both.
    pub splits: bool,
    /// The network of a node is slow, or loses segments.
    pub bad_links: bool,
    /// The clock of a node is wrong.
    pub wrong_clocks: bool,
    /// The disk of a node is slow.
    pub slow_disks: bool,
    /// The disk of a node is full.
    pub full_disks: bool,
    /// A file operation of a node fails.
    pub failing_operations: bool,
    /// The latencies of a node's connections change all the time, so that what goes over one overtakes what goes over another.
    pub reorders: bool,
    /// A node stops and starts again with another number of shards.
    pub reshards: bool,
    /// A datacenter, or where there is one only some of the nodes, is cut off from the rest.
    pub wide_splits: bool,
    /// From the beginning to the end some requests between nodes come twice, and some behind those that were sent after them. That explains no error.
    pub disturbed_messages: bool,
}

impl ClusterFaults {
    /// Nothing.
    pub const NONE: Self = Self {
        kills: false,
        power_losses: false,
        blackouts: false,
        restarts: false,
        splits: false,
        bad_links: false,
        wrong_clocks: false,
        slow_disks: false,
        full_disks: false,
        failing_operations: false,
        reorders: false,
        reshards: false,
        wide_splits: false,
        disturbed_messages: false,
    };

    /// All that a node in batch mode must survive.
    pub const ALL: Self = Self {
        kills: true,
        power_losses: true,
        blackouts: true,
        restarts: true,
        splits: true,
        bad_links: true,
        wrong_clocks: true,
        slow_disks: true,
        full_disks: true,
        failing_operations: true,
        reorders: true,
        reshards: true,
        wide_splits: true,
        disturbed_messages: true,
    };

    fn list(self) -> Vec<Fault> {
        let all = [
            (self.kills, Fault::Kill),
            (self.power_losses, Fault::PowerLoss),
            (self.blackouts, Fault::Blackout),
            (self.restarts, Fault::Restart),
            (self.splits, Fault::Split),
            (self.bad_links, Fault::BadLink),
            (self.wrong_clocks, Fault::WrongClock),
            (self.slow_disks, Fault::SlowDisk),
            (self.full_disks, Fault::FullDisk),
            (self.failing_operations, Fault::FailingOperation),
            (self.reorders, Fault::Reorder),
            (self.reshards, Fault::Reshard),
            (self.wide_splits, Fault::WideSplit),
        ];
        all.iter()
            .filter(|(is_on, _)| *is_on)
            .map(|(_, fault)| *fault)
            .collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Kill,
    PowerLoss,
    Blackout,
    Restart,
    Split,
    BadLink,
    WrongClock,
    SlowDisk,
    FullDisk,
    FailingOperation,
    Reorder,
    Reshard,
    WideSplit,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterScenario {
    /// Where the nodes are.
    pub datacenters: Vec<Datacenter>,
    /// Nodes that join when the cluster has data already.
    pub joiners: usize,
    /// Most shards of a node.
    pub shards_max: u32,
    /// When nodes acknowledge.
    pub durability: Durability,
    /// What strikes them.
    pub faults: ClusterFaults,
    /// How often something does.
    pub rounds: u32,
    /// Whether logged batches must be whole in the end.
    pub whole_batches: bool,
    /// Whether nodes keep writes that others missed.
    pub hints: bool,
    /// Whether clients do nothing but conditional statements and serial reads, which lose nothing also where the log is synced now and then.
    pub conditional_only: bool,
    /// A bug on purpose.
    pub planted: Option<Bug>,
}

/// What a run has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClusterReport {
    /// Virtual time that passed.
    pub time: Duration,
    /// What struck nodes.
    pub faults: u64,
    /// Requests between nodes that came twice, or behind later ones.
    pub disturbed_messages: u64,
    /// What the clients did.
    pub counts: ClusterCounts,
    /// Equal for equal runs.
    pub trace_hash: u64,
}

struct Run<'a> {
    scenario: &'a ClusterScenario,
    cluster: Cluster,
    clients: Rc<Clients>,
    chance: Chance,
    round: u32,
    faults: u64,
    /// Nodes whose process may end by itself, or will.
    may_end: Vec<bool>,
    /// Nodes whose operator will start them again: a log that could not be synced takes no writes until then.
    must_restart: Vec<bool>,
    /// Nodes whose latencies change all the time.
    reordered: Vec<bool>,
}

impl ClusterScenario {
    /// A cluster of so many nodes in one datacenter, with three copies, that nothing strikes.
    #[must_use]
    pub fn new(nodes: usize) -> Self {
        let datacenter = Datacenter {
            nodes,
            copies: 3,
            racks: 1,
        };
        Self {
            datacenters: vec![datacenter],
            joiners: 0,
            shards_max: 2,
            durability: Durability::Batch,
            faults: ClusterFaults::default(),
            rounds: 3,
            whole_batches: true,
            hints: true,
            conditional_only: false,
            planted: None,
        }
    }

    /// The scenario that a seed chooses.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let mut chance = Chance::new(seed ^ 0x5eed);
        let mut on = || chance.once_in(2);
        let faults = ClusterFaults {
            kills: on(),
            power_losses: on(),
            blackouts: false,
            restarts: on(),
            splits: on(),
            bad_links: on(),
            wrong_clocks: on(),
            slow_disks: on(),
            full_disks: on(),
            failing_operations: on(),
            reorders: on(),
            reshards: on(),
            wide_splits: on(),
            disturbed_messages: false,
        };
        let durability = if faults.power_losses || on() {
            Durability::Batch
        } else {
            Durability::Periodic(Duration::from_millis(100))
        };
        let mut scenario = Self {
            joiners: usize::from(chance.once_in(4)),
            durability,
            faults,
            rounds: 4,
            datacenters: Self::datacenters_of_seed(&mut chance),
            ..Self::new(3)
        };
        scenario.faults.disturbed_messages = chance.once_in(2);
        scenario.faults.blackouts = durability == Durability::Batch && chance.once_in(4);
        scenario
    }

    /// Half of the clusters have three nodes, since they are the quickest to play.
    fn datacenters_of_seed(chance: &mut Chance) -> Vec<Datacenter> {
        let shapes: [&[(usize, usize)]; 12] = [
            &[(3, 3)],
            &[(3, 3)],
            &[(3, 3)],
            &[(3, 3)],
            &[(3, 3)],
            &[(3, 3)],
            &[(5, 3)],
            &[(7, 3)],
            &[(9, 3)],
            &[(3, 3), (2, 2)],
            &[(3, 3), (3, 3)],
            &[(3, 3), (3, 1), (3, 2)],
        ];
        let shape = shapes[usize::try_from(chance.below(shapes.len() as u64)).expect("few shapes")];
        let racks = usize::try_from(1 + chance.below(3)).expect("few racks");
        let datacenter = |(nodes, copies): &(usize, usize)| Datacenter {
            nodes: *nodes,
            copies: *copies,
            racks: racks.min(*nodes),
        };
        shape.iter().map(datacenter).collect()
    }

    /// Nodes from the beginning.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.datacenters.iter().map(|datacenter| datacenter.nodes).sum()
    }

    fn promises(&self) -> Promises {
        let faults = self.faults;
        // A hint is noted when a replica does not answer, and is not synced.
        let may_lose_hints = faults.kills
            || faults.power_losses
            || faults.blackouts
            || faults.restarts
            || faults.reshards
            || faults.full_disks
            || faults.failing_operations;
        Promises {
            whole_batches: self.whole_batches,
            conditional_only: self.conditional_only,
            whole_hints: self.hints && !may_lose_hints && self.joiners == 0,
            clock_error: if faults.wrong_clocks {
                CLOCK_ERROR_MAX
            } else {
                Duration::ZERO
            },
        }
    }

    /// Plays the scenario.
    ///
    /// # Errors
    /// When a promise was broken.
    pub fn run(&self, seed: u64) -> Result<ClusterReport, Failure> {
        let _planted = Planted::new(self.planted);
        let mut chance = Chance::new(seed);
        let size = self.nodes() + self.joiners;
        let most = u64::from(self.shards_max);
        let shards = (0..size).map(|_| u32::try_from(1 + chance.below(most)).expect("few shards"));
        let shards: Vec<u32> = shards.collect();
        let seeds = usize::try_from(1 + chance.below(self.nodes() as u64)).expect("few nodes");
        let layout = Layout::new(&self.datacenters, self.joiners, chance.once_in(2));
        let setup = ClusterSetup {
            shards,
            places: layout.names(),
            hints: self.hints,
            durability: self.durability,
            seeds,
        };
        let mut cluster = Cluster::new(seed, &setup);
        if self.faults.disturbed_messages {
            cluster.disturb_messages(DISTURBED_PER_MILLION, DISTURBED_PER_MILLION);
        }
        let clients = Clients::new(cluster.addresses(), self.nodes(), layout, self.promises());
        let mut run = Run {
            scenario: self,
            cluster,
            clients,
            chance,
            round: 0,
            faults: 0,
            may_end: vec![false; size],
            must_restart: vec![false; size],
            reordered: vec![false; size],
        };
        let failed = |life, text| Failure { seed, life, text };
        match catch_unwind(AssertUnwindSafe(|| run.play())) {
            Ok(Ok(())) => Ok(run.report()),
            Ok(Err(text)) => Err(failed(run.round, text)),
            Err(panic) => {
                // What the panic left half done must not be dropped as if nothing had happened.
                let failure = failed(run.round, format!("a node panicked: {}", panic_text(&*panic)));
                std::mem::forget(run);
                Err(failure)
            }
        }
    }
}

impl Run<'_> {
    fn report(&self) -> ClusterReport {
        ClusterReport {
            time: Duration::from_nanos(self.cluster.sim.now().as_nanos() - 1_000_000_000),
            faults: self.faults,
            disturbed_messages: self.cluster.sim.disturbed_messages(),
            counts: self.clients.counts.get(),
            trace_hash: self.cluster.sim.trace_hash(),
        }
    }

    fn play(&mut self) -> Result<(), String> {
        self.form()?;
        self.run_for(Duration::from_secs(3))?;
        for round in 1..=self.scenario.rounds {
            self.round = round;
            if round == 2 {
                self.join()?;
            }
            self.strike();
            let time = Duration::from_millis(500) + self.chance.millis(9000);
            self.run_for(time)?;
            if self.chance.once_in(2) {
                self.heal();
                self.must_be_well()?;
            } else if self.chance.once_in(2) {
                self.heal();
            }
        }
        self.heal();
        self.must_be_well()?;
        self.end()
    }

    /// Nodes start in any order, the clients make the tables.
    fn form(&mut self) -> Result<(), String> {
        let nodes = self.scenario.nodes();
        let first = usize::try_from(self.chance.below(nodes as u64)).expect("few nodes");
        for n in 0..nodes {
            self.cluster.start((first + n) % nodes);
            let pause = self.chance.millis(300);
            self.run_for(pause)?;
        }
        let clients = self.clients.clone();
        let per_node = if nodes > 5 { 1 } else { 2 };
        self.cluster
            .start_clients(move || Box::pin(clients.clone().run(per_node)));
        self.wait_for(FORM_WAIT_MAX, "the cluster did not form", |run| {
            run.clients.phase.get() == Phase::Work
        })
    }

    /// New nodes come to a cluster with data.
    fn join(&mut self) -> Result<(), String> {
        let size = self.cluster.size();
        for node in self.clients.members.get()..size {
            self.heal();
            self.clients.faulty.set(true);
            self.cluster.start(node);
            self.clients.members.set(node + 1);
            let what = "a node that joined did not serve QUORUM";
            let minute = Duration::from_mins(1);
            self.wait_for(minute, what, |run| run.clients.served.borrow()[node] > 0)?;
        }
        Ok(())
    }

    /// Something strikes one node, or two.
    fn strike(&mut self) {
        let faults = self.scenario.faults.list();
        if faults.is_empty() {
            return;
        }
        self.clients.faulty.set(true);
        for _ in 0..1 + self.chance.below(2) {
            let fault = faults[self.index(faults.len())];
            let node = self.index(self.clients.members.get());
            self.faults += 1;
            log::info!("simulation: {fault:?} strikes node {node}");
            self.strike_with(fault, node);
        }
    }

    fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.chance.below(bound as u64)).expect("below a length")
    }

    fn strike_with(&mut self, fault: Fault, node: usize) {
        let machine = self.cluster.machine(node);
        match fault {
            Fault::Kill | Fault::PowerLoss => {
                let kind = if fault == Fault::Kill {
                    CrashKind::Kill
                } else {
                    CrashKind::PowerLoss
                };
                if self.chance.once_in(2) {
                    self.cluster.crash(node, kind);
                } else {
                    self.may_end[node] = true;
                    let operations = self.chance.below(400);
                    self.cluster.sim.crash_after_file_ops(machine, operations, kind);
                }
            }
            Fault::Blackout => {
                for node in 0..self.clients.members.get() {
                    self.cluster.crash(node, CrashKind::PowerLoss);
                }
            }
            Fault::Restart => {
                if self.cluster.is_running(node) {
                    self.may_end[node] = true;
                    self.cluster.sim.terminate(machine);
                }
            }
            Fault::Split => {
                let (to_others, from_others) = [(false, false), (false, true), (true, false)][self.index(3)];
                self.cluster.set_links(node, to_others, from_others);
            }
            Fault::BadLink => {
                let delay = self.chance.millis(800);
                let lost = self.chance.below(300_000);
                self.cluster.set_link_quality(node, delay, lost);
            }
            Fault::WrongClock => {
                let most = i64::try_from(CLOCK_ERROR_MAX.as_micros()).expect("seconds");
                let skew = i64::try_from(self.chance.below(most.unsigned_abs() * 2)).expect("seconds") - most;
                self.cluster.sim.set_clock_skew_us(machine, skew);
            }
            Fault::SlowDisk => {
                let delay = self.chance.millis(20);
                self.cluster.sim.set_disk_delay(machine, delay);
            }
            Fault::FullDisk => {
                self.may_end[node] = true;
                let room = self.chance.below(100 << 10);
                self.cluster.set_disk_room(node, Some(room));
            }
            Fault::FailingOperation => {
                self.may_end[node] = true;
                self.must_restart[node] = true;
                let operations = self.chance.below(400);
                self.cluster
                    .sim
                    .fail_file_op_after(machine, operations, std::io::ErrorKind::Other);
            }
            Fault::Reorder => self.reordered[node] = true,
            Fault::Reshard => {
                let shards = 1 + self.chance.below(u64::from(self.scenario.shards_max) + 1);
                let shards = u32::try_from(shards).expect("few shards");
                self.cluster.set_shards(node, shards);
                if self.cluster.is_running(node) {
                    self.may_end[node] = true;
                    self.cluster.sim.terminate(machine);
                }
            }
            Fault::WideSplit => {
                let size = self.cluster.size();
                let datacenter = self.clients.layout.datacenter(node);
                let is_apart = |other: usize| match self.clients.layout.datacenters() {
                    1 => (other + size - node) % size < size / 2,
                    _ => self.clients.layout.datacenter(other) == datacenter,
                };
                let (apart, rest): (Vec<usize>, Vec<usize>) = (0..size).partition(|other| is_apart(*other));
                self.cluster.split(&apart, &rest);
            }
        }
    }

    /// Ends all faults, and starts what has stopped.
    fn heal(&mut self) {
        for node in 0..self.clients.members.get() {
            let machine = self.cluster.machine(node);
            self.cluster.set_links(node, true, true);
            self.reordered[node] = false;
            self.cluster.set_link_quality(node, Duration::ZERO, 0);
            self.cluster.sim.set_clock_skew_us(machine, 0);
            self.cluster.sim.set_disk_delay(machine, Duration::ZERO);
            self.cluster.set_disk_room(node, None);
            self.cluster.sim.clear_file_faults(machine);
            if std::mem::take(&mut self.must_restart[node]) {
                self.cluster.crash(node, CrashKind::Kill);
            }
            // One that is ending must have time to.
            if self.may_end[node] && self.cluster.is_running(node) {
                self.cluster.sim.run_until_ended(machine, Duration::from_secs(2));
            }
            if !self.cluster.is_running(node) {
                self.cluster.restart(node);
                self.may_end[node] = false;
            }
        }
    }

    /// What was healed serves soon, and after some time without any error.
    fn must_be_well(&mut self) -> Result<(), String> {
        let before = self.clients.served.borrow().clone();
        let members = self.clients.members.get();
        let what = "not every node served QUORUM within thirty seconds after all was healed";
        self.wait_for(SERVE_WAIT_MAX, what, |run| {
            run.start_what_ended();
            let served = run.clients.served.borrow();
            (0..members).all(|node| served[node] > before[node] + 3)
        })?;
        self.clients.phase.set(Phase::Rest);
        self.run_for(TRUST_WAIT)?;
        self.start_what_ended();
        self.clients.phase.set(Phase::Work);
        self.run_for(Duration::from_secs(1))?;
        self.may_end.fill(false);
        self.clients.faulty.set(false);
        if self.chance.once_in(2) {
            self.clients.phase.set(Phase::Truncate);
        }
        let calm = Duration::from_secs(2);
        self.run_for(calm)?;
        let is_done = |run: &mut Self| run.clients.phase.get() == Phase::Work;
        self.wait_for(Duration::from_mins(1), "TRUNCATE did not end", is_done)
    }

    /// A node that ended late, or by a failure that struck its start, is started again.
    fn start_what_ended(&mut self) {
        for node in 0..self.clients.members.get() {
            if !self.cluster.is_running(node) && self.may_end[node] {
                self.cluster.restart(node);
            }
        }
    }

    fn end(&mut self) -> Result<(), String> {
        self.clients.phase.set(Phase::Rest);
        self.run_for(QUIET_WAIT)?;
        self.clients.phase.set(Phase::Final);
        let is_done = |run: &mut Self| run.clients.phase.get() == Phase::Done;
        self.wait_for(LOOK_WAIT_MAX, "the last look at everything did not end", is_done)
    }

    fn verdict(&mut self) -> Result<(), String> {
        if let Some(text) = self.clients.failure() {
            return Err(text);
        }
        for node in 0..self.cluster.size() {
            if self.may_end[node] {
                continue;
            }
            if let Some(text) = self.cluster.failure(node) {
                return Err(format!("node {node} has ended: {text}"));
            }
        }
        Ok(())
    }

    fn slice(&mut self) {
        for node in 0..self.reordered.len() {
            if self.reordered[node] {
                let delay = self.chance.millis(60);
                self.cluster.set_link_quality(node, delay, 0);
            }
        }
        let before = self.cluster.sim.now().as_nanos() / LOGGED_TIME_NANOS;
        self.cluster.sim.run_for(SLICE);
        let now = self.cluster.sim.now().as_nanos() / LOGGED_TIME_NANOS;
        if now > before {
            log::info!("simulation: at {} ms", now * LOGGED_TIME_NANOS / 1_000_000);
        }
    }

    fn run_for(&mut self, time: Duration) -> Result<(), String> {
        let end = self.cluster.sim.now() + time;
        while self.cluster.sim.now() < end {
            self.slice();
            self.verdict()?;
        }
        Ok(())
    }

    fn wait_for(
        &mut self,
        limit: Duration,
        what: &str,
        mut is_done: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), String> {
        let end = self.cluster.sim.now() + limit;
        while !is_done(self) {
            if self.cluster.sim.now() >= end {
                return Err(what.to_owned());
            }
            self.slice();
            self.verdict()?;
        }
        Ok(())
    }
}
