//! A scenario: how the node is set up, what strikes it, how often; played from a seed.
//!
//! A *life* is what passes between a start of the node and its stop. In each life the clients settle and work until the
//! crash that was planned strikes: in the middle of some file operation, or at the moment at which a client gets an
//! acknowledgement, when what was promised is youngest. After the last one the node starts on a good disk, must serve,
//! is terminated, loses its power when it has ended, starts once more, and must still hold everything.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use replica::write::aside::PartsMax;
use runtime::Instant;
use runtime::sim::CrashKind;
use stdx::random::SplitMix64;

use crate::machine::{Durability, Machines, Setup};
use crate::workload::{Clients, Counts};

/// How much longer than its period a sync of the log may take.
const SYNC_LAG: Duration = Duration::from_millis(60);
/// How much longer it may take on a slow disk, where each operation holds up everything: the world's time passes in it.
const SLOW_SYNC_LAG: Duration = Duration::from_secs(30);
/// How long a node may take to start and be read back.
const SETTLE_WAIT_MAX: Duration = Duration::from_mins(2);
const CLIENTS: usize = 3;

/// What strikes the node.
#[derive(Clone, Copy, Default, Debug)]
pub struct Faults {
    /// It is killed.
    pub kills: bool,
    /// Its machine loses power.
    pub power_losses: bool,
    /// Its disk is full for a while.
    pub full_disks: bool,
    /// A file operation fails once in a life.
    pub failing_operations: bool,
    /// Its disk is slow for some lives.
    pub slow_disks: bool,
    /// Clients break off in the middle of a frame, or do not read their answers.
    pub rude_clients: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Shards of the node.
    pub shards: u32,
    /// When it acknowledges.
    pub durability: Durability,
    /// What strikes it.
    pub faults: Faults,
    /// How often it is stopped.
    pub lives: u32,
    /// File operations until a life's crash, at most, where it strikes in one; 0: it never does.
    pub operations: u64,
    /// Acknowledgements until a life's crash, at most, where it strikes at one.
    pub acknowledgements: u64,
    /// Whether the node starts with another number of shards now and then.
    pub reshards: bool,
    /// Whether an interrupted TRUNCATE must have happened wholly or not at all, in each partition.
    pub expects_whole_truncations: bool,
}

/// What a run has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// Virtual time that passed.
    pub time: Duration,
    /// Crashes, full disks, failed operations, slow disks.
    pub faults: u64,
    /// What the clients did.
    pub counts: Counts,
    /// Equal for equal runs.
    pub trace_hash: u64,
}

/// A broken promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The seed that shows it again.
    pub seed: u64,
    /// The life in which it was seen.
    pub life: u32,
    /// What was promised, and what was seen.
    pub text: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}, life {}: {}", self.seed, self.life, self.text)
    }
}

/// The chance of the scenario itself, apart from the world's.
pub(crate) struct Chance(SplitMix64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.0.one_in(times)
    }

    pub(crate) fn millis(&mut self, bound: u64) -> Duration {
        Duration::from_millis(self.below(bound))
    }
}

struct Run<'a> {
    scenario: &'a Scenario,
    machines: Machines,
    clients: Rc<Clients>,
    chance: Chance,
    life: u32,
    faults: u64,
    /// When the node last stopped, if it has not served everything since.
    stopped: Option<Instant>,
}

impl Scenario {
    /// A node of so many shards that nothing strikes, for a few seconds.
    #[must_use]
    pub fn new(shards: u32, durability: Durability) -> Self {
        Self {
            shards,
            durability,
            faults: Faults::default(),
            lives: 6,
            operations: 3000,
            acknowledgements: 150,
            reshards: false,
            expects_whole_truncations: false,
        }
    }

    /// Plays the scenario.
    ///
    /// # Errors
    /// When a promise was broken.
    pub fn run(&self, seed: u64) -> Result<Report, Failure> {
        let _parts_max = PartsMax::of_seed(seed);
        let setup = Setup {
            shards: self.shards,
            durability: self.durability,
            // From a flush with nearly each write to one now and then.
            shard_bytes: [80 << 10, 300 << 10, 1 << 20, 5 << 20][(seed / 7 % 4) as usize],
            segment_bytes: 32 << 10,
            log_bytes: (128 << 10) * u64::from(self.shards),
        };
        let lag = match self.durability {
            Durability::Periodic(period) if self.faults.slow_disks => Some(period + SLOW_SYNC_LAG),
            Durability::Periodic(period) => Some(period + SYNC_LAG),
            Durability::Batch => None,
        };
        let clients = Clients::new(
            CLIENTS,
            lag,
            self.expects_whole_truncations,
            // What a power loss takes in periodic mode it takes without regard to batches.
            self.durability == Durability::Batch || !self.faults.power_losses,
        );
        let (for_machine, rude) = (clients.clone(), self.faults.rude_clients);
        let machines = Machines::new(seed, &setup, move |address| {
            if rude {
                drop(runtime::spawn(crate::client::be_rude(address)));
            }
            Box::pin(for_machine.clone().run(address))
        });
        let mut run = Run {
            scenario: self,
            machines,
            clients,
            chance: Chance::new(seed),
            life: 0,
            faults: 0,
            stopped: None,
        };
        let result = catch_unwind(AssertUnwindSafe(|| run.play()));
        let text = match result {
            Ok(Ok(())) => return Ok(run.report()),
            Ok(Err(text)) => text,
            Err(panic) => {
                // What the panic left half done must not be dropped as if nothing had happened.
                let text = format!("the node panicked: {}", panic_text(&*panic));
                let life = run.life;
                std::mem::forget(run);
                return Err(Failure { seed, life, text });
            }
        };
        Err(Failure {
            seed,
            life: run.life,
            text,
        })
    }
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
        .unwrap_or_default()
}

impl Run<'_> {
    fn report(&self) -> Report {
        Report {
            time: Duration::from_nanos(self.machines.sim.now().as_nanos() - 1_000_000_000),
            faults: self.faults,
            counts: self.clients.counts(),
            trace_hash: self.machines.sim.trace_hash(),
        }
    }

    fn play(&mut self) -> Result<(), String> {
        for life in 0..self.scenario.lives {
            self.life = life;
            self.live()?;
            let kind = self.stop_kind();
            self.crash(kind);
            self.start();
        }
        self.life = self.scenario.lives;
        self.must_settle()?;
        self.run_for(Duration::from_millis(300))?;
        self.end()?;
        self.clients.writes.set(false);
        self.start();
        self.must_settle()
    }

    /// Whether the node or a client says that something is wrong.
    fn verdict(&self) -> Result<(), String> {
        if let Some(text) = self.clients.failure() {
            return Err(text);
        }
        match self.machines.failure() {
            Some(text) if !self.clients.tolerance.errors.get() => Err(format!("the node does not run: {text}")),
            _ => Ok(()),
        }
    }

    /// Runs until the node has stopped, at most that long.
    fn run_for(&mut self, time: Duration) -> Result<(), String> {
        let (node, clients) = (self.machines.node, self.clients.clone());
        let slices = time.as_millis() / 10 + 1;
        for _ in 0..slices {
            self.machines.sim.run_for(Duration::from_millis(10));
            self.verdict()?;
            if clients.are_settled() {
                self.stopped = None;
            }
            if !self.machines.sim.is_running(node) {
                break;
            }
        }
        Ok(())
    }

    fn must_settle(&mut self) -> Result<(), String> {
        let clients = self.clients.clone();
        self.machines
            .sim
            .run_until(SETTLE_WAIT_MAX, || clients.are_settled() || clients.failure().is_some());
        self.verdict()?;
        if clients.are_settled() {
            Ok(())
        } else {
            Err("the node did not serve within two minutes of its start".to_owned())
        }
    }

    /// From a start to the crash.
    fn live(&mut self) -> Result<(), String> {
        let (faults, node) = (self.scenario.faults, self.machines.node);
        let kind = self.stop_kind();
        let most = if self.chance.once_in(4) {
            150
        } else {
            self.scenario.operations
        };
        let operations = self.chance.below(most.max(1));
        let crashes = faults.kills || faults.power_losses;
        let at_acknowledgement = crashes && (self.scenario.operations == 0 || self.chance.once_in(2));
        if crashes && !at_acknowledgement {
            self.machines.sim.crash_after_file_ops(node, operations, kind);
        }
        if faults.slow_disks && self.chance.once_in(2) {
            self.faults += 1;
            let delay = self.chance.millis(20);
            self.machines.sim.set_disk_delay(node, delay);
        }
        if faults.failing_operations {
            self.fail_an_operation()?;
        }
        if faults.full_disks {
            self.fill_the_disk()?;
        }
        if at_acknowledgement {
            return self.run_until_acknowledged();
        }
        self.run_for(Duration::from_secs(5))
    }

    /// Runs until so many acknowledgements have arrived, and not a step further.
    fn run_until_acknowledged(&mut self) -> Result<(), String> {
        self.must_settle_or_stop()?;
        let (node, clients) = (self.machines.node, self.clients.clone());
        let wanted = clients.counts().acknowledged + 1 + self.chance.below(self.scenario.acknowledgements);
        for _ in 0..50 {
            let arrived = || clients.counts().acknowledged >= wanted;
            let has_arrived = self.machines.sim.run_until(Duration::from_millis(100), arrived);
            self.verdict()?;
            if clients.are_settled() {
                self.stopped = None;
            }
            if has_arrived || !self.machines.sim.is_running(node) {
                break;
            }
        }
        Ok(())
    }

    fn fail_an_operation(&mut self) -> Result<(), String> {
        if !self.chance.once_in(4) {
            // Else it may strike the start.
            self.must_settle_or_stop()?;
        }
        self.faults += 1;
        self.clients.tolerance.errors.set(true);
        self.clients.tolerance.read_errors.set(true);
        let operations = self.chance.below(400);
        self.machines
            .sim
            .fail_file_op_after(self.machines.node, operations, std::io::ErrorKind::Other);
        Ok(())
    }

    fn must_settle_or_stop(&mut self) -> Result<(), String> {
        let (clients, node) = (self.clients.clone(), self.machines.node);
        for _ in 0..200 {
            self.machines.sim.run_for(Duration::from_millis(10));
            self.verdict()?;
            if clients.are_settled() || !self.machines.sim.is_running(node) {
                break;
            }
        }
        Ok(())
    }

    /// Writes are refused, reads continue; when there is space again, writes continue too.
    fn fill_the_disk(&mut self) -> Result<(), String> {
        self.must_settle_or_stop()?;
        let before = self.chance.millis(500);
        self.run_for(before)?;
        self.faults += 1;
        let node = self.machines.node;
        self.clients.tolerance.errors.set(true);
        let room = self.machines.used_bytes() + self.chance.below(100 << 10);
        self.machines.sim.set_disk_capacity(node, Some(room));
        let full = Duration::from_millis(500) + self.chance.millis(2000);
        self.run_for(full)?;
        self.machines.sim.set_disk_capacity(node, None);
        if !self.machines.sim.is_running(node) {
            return Ok(());
        }
        let (clients, acknowledged) = (self.clients.clone(), self.clients.counts().acknowledged);
        let mut running = true;
        for _ in 0..1000 {
            self.machines.sim.run_for(Duration::from_millis(10));
            self.verdict()?;
            running = self.machines.sim.is_running(node);
            if !running || clients.counts().acknowledged >= acknowledged + 20 {
                return Ok(());
            }
        }
        if running {
            Err("writes were not taken within ten seconds after the disk had space again".to_owned())
        } else {
            Ok(())
        }
    }

    fn stop_kind(&mut self) -> CrashKind {
        let faults = self.scenario.faults;
        if faults.power_losses && (!faults.kills || self.chance.once_in(2)) {
            CrashKind::PowerLoss
        } else {
            CrashKind::Kill
        }
    }

    /// The node is down, one way or another, after this.
    fn crash(&mut self, kind: CrashKind) {
        self.faults += 1;
        let Machines { sim, node, clients, .. } = &mut self.machines;
        // A crash that has struck was of the kind that was planned; another power loss makes it no better.
        sim.crash(*node, kind);
        sim.crash(*clients, CrashKind::Kill);
        let now = *self.stopped.get_or_insert(sim.now());
        self.clients.node_stopped();
        if let (true, Some(lag)) = (self.scenario.faults.power_losses, self.clients.lag) {
            let lag = u64::try_from(lag.as_nanos()).expect("a short time");
            self.clients
                .power_lost(Instant::from_nanos(now.as_nanos().saturating_sub(lag)));
        }
        sim.clear_file_faults(*node);
        sim.set_disk_capacity(*node, None);
        sim.set_disk_delay(*node, Duration::ZERO);
        self.clients.tolerance.errors.set(false);
        self.clients.tolerance.read_errors.set(false);
    }

    fn start(&mut self) {
        if self.scenario.reshards && self.chance.once_in(2) {
            let shards = 1 + self.chance.below(3);
            self.machines.set_shards(u32::try_from(shards).expect("at most 3"));
        }
        if self.chance.once_in(4) {
            // The node is down when a TTL ends.
            let time = self.chance.millis(20_000);
            self.machines.sim.run_for(time);
        }
        self.machines.restart();
    }

    /// The node is terminated, and ends; then its machine loses power, which must not matter.
    fn end(&mut self) -> Result<(), String> {
        let node = self.machines.node;
        self.machines.sim.terminate(node);
        if !self.machines.sim.run_until_ended(node, Duration::from_mins(1)) {
            return Err("the node did not end within a minute of being asked to".to_owned());
        }
        self.verdict()?;
        self.clients.node_stopped();
        let Machines { sim, node, clients, .. } = &mut self.machines;
        sim.crash(*clients, CrashKind::Kill);
        sim.crash(*node, CrashKind::PowerLoss);
        Ok(())
    }
}
