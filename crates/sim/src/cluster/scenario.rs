//! A scenario of a cluster: how it is set up and what strikes it; played from a seed.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use replica::write::aside::PartsMax;
use rpc::Limits;
use runtime::StopPoint;
use stdx::planted::{Bug, Planted};

use super::clients::{Clients, ClusterCounts, Phase, Promises, Workload};
use super::distinct;
use super::faults::{ClusterFaults, FAULTS};
use super::layout::{Datacenter, Elastic, Layout};
use super::machines::{Cluster, ClusterSetup, SEGMENT_BYTES, SHARD_BYTES};
use super::operator::Operator;
use crate::machine::Durability;
use crate::scenario::{Chance, Failure, panic_text};

/// How long a cluster may take to form, until its tables are there.
const FORM_WAIT_MAX: Duration = Duration::from_mins(3);
/// After everything is healed, how long until every node has served QUORUM again.
const SERVE_WAIT_MAX: Duration = Duration::from_secs(30);
/// How long after that until no error is expected any more: a peer that crashed often must answer sixteen pings before
/// it is trusted again.
const TRUST_WAIT: Duration = Duration::from_secs(20);
/// When the clients rest, until nothing is under way any more: the network tries for a minute.
const QUIET_WAIT: Duration = Duration::from_secs(75);
/// How long the look at everything may take.
const LOOK_WAIT_MAX: Duration = Duration::from_mins(5);
/// How wrong a clock may be, either way.
pub(super) const CLOCK_ERROR_MAX: Duration = Duration::from_secs(10);
/// How far a clock jumps, either way. One that is so wrong sends its node out of service, and is set right by the
/// operator.
pub(super) const CLOCK_JUMP_MAX: Duration = Duration::from_hours(1);
/// How far a clock jumps, either way, that stays wrong: any two that do are nearer to each other than what sends a node
/// out of service.
pub(super) const CLOCK_STEP_MAX: Duration = Duration::from_secs(25);
/// How often the log shows the time.
const LOGGED_TIME_NANOS: u64 = 100_000_000;
/// Where messages are repeated and overtaken: of a million, how many are one, and how many the other, unless the
/// scenario says so.
const DISTURBED_PER_MILLION: u64 = 30_000;
/// Machines of each datacenter on which no node runs at first, where nodes join and leave.
const SPARES: usize = 3;
/// When everything is healed and all clients rest, until a node that has joined has copied its ranges of the token
/// ring.
const PLACE_WAIT_MAX: Duration = Duration::from_mins(3);
/// When everything is healed and all clients rest, until tablets are where they should be and even: moves go a few at a
/// time, and sizes are asked for now and then.
const BALANCE_WAIT_MAX: Duration = Duration::from_mins(4);
/// For how much longer than the grace a node is down: compactions run in this time.
const OUTAGE_BEYOND_GRACE: Duration = Duration::from_secs(15);
/// How long until every member has reported that it is complete beyond what it did before: reports are made every
/// twenty seconds, and lag by twice the longest timeout and ten seconds.
const REPORTS_WAIT: Duration = Duration::from_secs(60);
/// Options are of each node: what one takes for late, another one may still send. None is shorter: a conditional
/// statement asks several times, and messages may be 800 ms late.
const WRITE_TIMEOUTS: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(5), Duration::from_secs(3)];
/// The grace of tables in scenarios with outages, seconds.
const OUTAGE_GRACE: u32 = 20;
/// How many delays of cleanups there are: none, five seconds, ten.
const RING_CLEANUP_DELAYS: u64 = 3;
/// The first seed whose clients may use the DynamoDB API.
const FIRST_WITH_ITEMS: u64 = 6_000_000;
/// The first seed whose tables have secondary indexes.
const FIRST_WITH_INDEXES: u64 = 1000;
/// Between two looks at it.
const BALANCE_LOOK: Duration = Duration::from_secs(1);
pub(super) const SLICE: Duration = Duration::from_millis(10);

/// Connections between nodes that take so few requests and answers at once that many are refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FewSlots {
    /// Requests of a connection that are sent and not answered, or that run; one more waits in line, and whatever comes
    /// on top is refused.
    pub requests: usize,
    /// Clients of each node: more than find room.
    pub clients: usize,
}

impl FewSlots {
    /// As few as clients that do something of everything need to be refused often.
    pub const USUAL: Self = Self {
        requests: 2,
        clients: 6,
    };

    fn limits(self) -> Limits {
        Limits {
            in_flight_max: self.requests,
            handling_max: self.requests,
            waiting_max: 1,
            outbox_bytes_max: 1 << 10,
            // An answer finds no room where another one has not left yet.
            answer_bytes_max: 64,
            ..Limits::default()
        }
    }
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterScenario {
    /// Where the nodes are.
    pub datacenters: Vec<Datacenter>,
    /// Nodes that join when the cluster has data already.
    pub joiners: usize,
    /// Whether something strikes while they join.
    pub joins_under_faults: bool,
    /// Memory of each shard. Where it is less than [`SHARD_BYTES`], requests may fail at any time, which no fault has
    /// to explain.
    pub shard_bytes: u64,
    /// Where connections have few slots, requests may fail at any time, which no fault has to explain.
    pub few_slots: Option<FewSlots>,
    /// Most shards of a node.
    pub shards_max: u32,
    /// When nodes acknowledge.
    pub durability: Durability,
    /// What strikes them.
    pub faults: ClusterFaults,
    /// How often something does.
    pub rounds: u32,
    /// Of a million messages, how many come after later ones, where messages are disturbed.
    pub overtaken_per_million: u64,
    /// Whether logged batches must be whole in the end.
    pub whole_batches: bool,
    /// Whether nodes keep writes that others missed.
    pub hints: bool,
    /// Whether clients do nothing but conditional statements and serial reads, which lose nothing also where the log is
    /// synced now and then.
    pub conditional_only: bool,
    /// What clients do besides.
    pub workload: Workload,
    /// The only stop point of those that strike.
    pub stop_point: Option<StopPoint>,
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
    /// What struck nodes, by kind, in the order of [`FAULTS`].
    pub faults_by_kind: [u64; FAULTS.len()],
    /// Requests between nodes that arrived twice, or after later ones.
    pub disturbed_messages: u64,
    /// What the clients did.
    pub counts: ClusterCounts,
    /// Equal for equal runs.
    pub trace_hash: u64,
}

pub(super) struct Run<'a> {
    pub(super) scenario: &'a ClusterScenario,
    pub(super) cluster: Cluster,
    pub(super) clients: Rc<Clients>,
    pub(super) chance: Chance,
    round: u32,
    pub(super) faults_by_kind: [u64; FAULTS.len()],
    /// Nodes whose process may end by itself, or will.
    pub(super) may_end: Vec<bool>,
    /// Nodes whose operator will start them again: a log that could not be synced takes no writes until then.
    pub(super) must_restart: Vec<bool>,
    /// Nodes whose latencies change all the time.
    pub(super) reordered: Vec<bool>,
    /// By how much the clocks of nodes are permanently wrong.
    pub(super) clock_us: Vec<i64>,
    pub(super) operator: Operator,
    /// The node whose sstables are damaged.
    pub(super) rotten: Option<usize>,
    /// The node that is down until the tables' grace is over.
    pub(super) outage: Option<usize>,
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
            joins_under_faults: false,
            shard_bytes: SHARD_BYTES,
            few_slots: None,
            shards_max: 2,
            durability: Durability::Batch,
            faults: ClusterFaults::default(),
            rounds: 3,
            overtaken_per_million: DISTURBED_PER_MILLION,
            whole_batches: true,
            hints: true,
            conditional_only: false,
            workload: Workload::default(),
            stop_point: None,
            planted: None,
        }
    }

    /// The scenario that a seed chooses.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let mut scenario = Self::basic_of_seed(seed);
        let mut chance = Chance::new(seed ^ 0xfa_0175);
        let mut on = || chance.once_in(3);
        scenario.faults = ClusterFaults {
            failed_syncs: on(),
            broken_disks: on(),
            torn_writes: on(),
            damaged_reads: on(),
            pauses: on(),
            clock_jumps: on(),
            stop_points: on(),
            moves: on(),
            ..scenario.faults
        };
        scenario.joins_under_faults = on();
        scenario.workload.truncates_with_traffic = on();
        scenario.workload.is_hot = on() && on();
        scenario.workload.indexes = Self::has_indexes(seed);
        scenario.workload.items = scenario.may_have_items() && Self::has_items(seed);
        if scenario.nodes() <= 3 && chance.once_in(6) {
            scenario.few_slots = Some(FewSlots::USUAL);
        }
        if chance.once_in(3) {
            return Self::elastic_of_seed(seed);
        }
        scenario
    }

    /// The scenario that a seed chooses in which operators change members and replicas, and repair. Few other faults
    /// strike at the same time, so that these operations get somewhere.
    #[must_use]
    pub fn elastic_of_seed(seed: u64) -> Self {
        let mut chance = Chance::new(seed ^ 0xe1a5_71c0);
        let mut on = |times| chance.once_in(times);
        let kills = on(2);
        let power_losses = on(4);
        let faults = ClusterFaults {
            leaves: on(2),
            replacements: on(2),
            replications: on(2),
            repairs: on(2),
            // Drawn apart: the other faults of a seed are what they were before there was this one.
            kinds: Chance::new(seed ^ 0x00c0_4e27).once_in(3),
            outages: Chance::new(seed ^ 0x0074_a6e5).once_in(6),
            kills,
            power_losses,
            restarts: on(4),
            splits: on(3),
            bad_links: on(4),
            wrong_clocks: on(8),
            slow_disks: on(8),
            full_disks: on(12),
            failing_operations: on(8),
            reorders: on(4),
            reshards: on(6),
            wide_splits: on(6),
            disturbed_messages: on(2),
            failed_syncs: on(12),
            broken_disks: on(12),
            pauses: on(4),
            stop_points: on(6),
            moves: on(3),
            ..ClusterFaults::NONE
        };
        let faults = if faults.is_elastic() {
            faults
        } else {
            faults.with_elastic()
        };
        let needs_batch = power_losses || faults.replacements || faults.stop_points;
        let durability = if needs_batch || on(2) {
            Durability::Batch
        } else {
            Durability::Periodic(Duration::from_millis(100))
        };
        let truncates_with_traffic = on(4);
        let joiners = usize::from(on(4));
        let shapes: [&[(usize, usize)]; 8] = [
            &[(3, 3)],
            &[(3, 3)],
            &[(3, 2)],
            &[(4, 3)],
            &[(4, 3)],
            &[(5, 3)],
            &[(3, 3), (2, 2)],
            &[(4, 2)],
        ];
        let shape = shapes[usize::try_from(chance.below(shapes.len() as u64)).expect("few shapes")];
        Self {
            joiners,
            durability,
            faults,
            rounds: 5,
            datacenters: Self::datacenters(shape, &mut chance),
            workload: Workload {
                truncates_with_traffic,
                grace: faults.outages.then_some(OUTAGE_GRACE),
                indexes: Self::has_indexes(seed),
                ..Workload::default()
            },
            ..Self::new(3)
        }
    }

    /// Seeds below this one name failures from before there were indexes.
    fn has_indexes(seed: u64) -> bool {
        seed >= FIRST_WITH_INDEXES && Chance::new(seed ^ 0x001d_de5e).once_in(2)
    }

    /// Whether clients may use the DynamoDB API: its conditional writes are ordered in one datacenter, so all clients
    /// must be there, and its tables have the copies that they were created with.
    #[must_use]
    pub fn may_have_items(&self) -> bool {
        self.datacenters.len() == 1 && !self.faults.replications
    }

    /// Seeds below the first one name failures from before there was the API.
    fn has_items(seed: u64) -> bool {
        seed >= FIRST_WITH_ITEMS && Chance::new(seed ^ 0x0d1a_a0db).once_in(3)
    }

    /// The scenario that a seed chose when there were fewer faults: such seeds name failures that were found then.
    #[must_use]
    pub fn basic_of_seed(seed: u64) -> Self {
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
            ..ClusterFaults::NONE
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
        Self::datacenters(shape, chance)
    }

    /// Datacenters of so many nodes and copies, with a few racks.
    fn datacenters(shape: &[(usize, usize)], chance: &mut Chance) -> Vec<Datacenter> {
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

    /// Whether so many messages come late that requests time out for it.
    fn is_always_disturbed(&self) -> bool {
        self.faults.disturbed_messages && self.overtaken_per_million > DISTURBED_PER_MILLION
    }

    fn elastic(&self) -> Elastic {
        let faults = self.faults;
        let is_growing = faults.leaves || faults.replacements;
        Elastic {
            spares: if is_growing { SPARES * self.datacenters.len() } else { 0 },
            weakens: faults.replacements || faults.replications,
            has_both_kinds: faults.is_elastic(),
        }
    }

    fn promises(&self) -> Promises {
        let faults = self.faults;
        let has_same_replicas =
            self.joiners == 0 && !faults.leaves && !faults.replacements && !faults.replications && !faults.kinds;
        Promises {
            // What is noted is lost with the machines that note it, and what ONE promised with that one.
            whole_batches: self.whole_batches && !faults.replacements,
            conditional_only: self.conditional_only,
            may_lack_files: faults.bit_rot,
            may_refuse: self.shard_bytes < SHARD_BYTES || self.few_slots.is_some(),
            whole_hints: self.hints && !faults.may_lose_hints() && has_same_replicas,
            changes_replication: faults.replications,
            changes_kinds: faults.kinds,
            clock_error: if faults.clock_jumps {
                CLOCK_JUMP_MAX + CLOCK_ERROR_MAX
            } else if faults.wrong_clocks {
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
        let _parts_max = PartsMax::of_seed(seed);
        let mut chance = Chance::new(seed);
        let elastic = self.elastic();
        let size = self.nodes() + self.joiners + elastic.spares;
        let most = u64::from(self.shards_max);
        // A tablet moves where there is another shard.
        let least = if self.faults.moves { 2 } else { 1 };
        let shards = (0..size).map(|_| u32::try_from(1 + chance.below(most)).expect("few shards").max(least));
        let shards: Vec<u32> = shards.collect();
        let seeds = usize::try_from(1 + chance.below(self.nodes() as u64)).expect("few nodes");
        let has_tablets = chance.once_in(2) || self.faults.moves;
        let layout = Layout::new(&self.datacenters, self.joiners, has_tablets, elastic);
        let setup = ClusterSetup {
            segment_bytes: vec![SEGMENT_BYTES; shards.len()],
            limits: self.few_slots.map_or_else(Limits::default, FewSlots::limits),
            shards,
            places: layout.names(),
            hints: self.hints,
            write_timeouts: WRITE_TIMEOUTS.to_vec(),
            // Not drawn: each seed plays what it played before there were cleanups.
            ring_cleanup_delay: Duration::from_secs(seed % RING_CLEANUP_DELAYS * 5),
            durability: self.durability,
            seeds,
            shard_bytes: self.shard_bytes,
            serves_items: self.workload.items,
        };
        let mut cluster = Cluster::new(seed, &setup);
        cluster.set_spares(elastic.spares);
        if self.faults.disturbed_messages {
            cluster.disturb_messages(DISTURBED_PER_MILLION, self.overtaken_per_million);
        }
        let clients = Clients::new(
            cluster.addresses(),
            self.nodes(),
            layout,
            (self.promises(), self.workload),
            cluster.inventory.clone(),
        );
        let _watch = distinct::watch(&clients);
        let mut run = Run {
            scenario: self,
            cluster,
            clients,
            chance,
            round: 0,
            faults_by_kind: [0; FAULTS.len()],
            may_end: vec![false; size],
            must_restart: vec![false; size],
            reordered: vec![false; size],
            clock_us: vec![0; size],
            operator: Operator::new(size, elastic.spares),
            rotten: None,
            outage: None,
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
            faults: self.faults_by_kind.iter().sum(),
            faults_by_kind: self.faults_by_kind,
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
            self.clients
                .faulty
                .set(self.clients.faulty.get() || self.scenario.is_always_disturbed());
            if round == 2 {
                self.join()?;
            }
            self.strike();
            let time = Duration::from_millis(500) + self.chance.millis(9000);
            self.run_for(time)?;
            if self.outage.is_some() {
                self.outlast()?;
                self.must_be_well()?;
            } else if self.chance.once_in(2) {
                self.heal();
                self.must_be_well()?;
            } else if self.chance.once_in(2) || self.scenario.workload.grace.is_some() {
                self.heal();
            }
        }
        self.heal();
        self.must_be_well()?;
        self.end()
    }

    /// A node stays down until the tables' grace is over and the others have compacted what was deleted in that time;
    /// then all is healed. In half of the cases no client reads, which would repair, before all members have reported
    /// that they are complete. Then the others may forget what the node has missed unless they know that it did.
    fn outlast(&mut self) -> Result<(), String> {
        let grace = self.scenario.workload.grace.unwrap_or_default();
        let beyond = Duration::from_secs(u64::from(grace)) + OUTAGE_BEYOND_GRACE;
        self.clients.phase.set(Phase::Rest);
        self.run_for(beyond)?;
        self.clients.phase.set(Phase::Work);
        let time = self.chance.millis(3000);
        self.run_for(time)?;
        let is_quiet = self.chance.once_in(2);
        if is_quiet {
            self.clients.phase.set(Phase::Rest);
        }
        self.heal();
        if is_quiet {
            let end = self.cluster.sim.now() + REPORTS_WAIT + beyond;
            while self.cluster.sim.now() < end {
                self.start_what_ended();
                self.run_for(Duration::from_secs(1))?;
            }
            self.clients.phase.set(Phase::Work);
        }
        Ok(())
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
        let usual = if nodes > 5 { 1 } else { 2 };
        let per_node = self.scenario.few_slots.map_or(usual, |few| few.clients);
        self.cluster
            .start_clients(move || Box::pin(clients.clone().run(per_node)));
        self.wait_for(FORM_WAIT_MAX, "the cluster did not form", |run| {
            run.clients.phase.get() == Phase::Work
        })
    }

    /// New nodes join a cluster with data.
    fn join(&mut self) -> Result<(), String> {
        let nodes = self.scenario.nodes();
        for node in nodes..nodes + self.scenario.joiners {
            // A node does not join where clocks differ, so an operator sets them right before.
            self.clock_us.fill(0);
            self.heal();
            self.clients.begin_fault();
            self.clients.history.borrow_mut().begin_change();
            // The common seeds may have left by now.
            let members = self.clients.members();
            self.cluster.start_late(node, &members, None);
            self.clients.members.borrow_mut().insert(node);
            if self.scenario.joins_under_faults {
                self.may_end[node] = true;
                let time = self.chance.millis(3000);
                self.run_for(time)?;
                self.strike();
                let time = self.chance.millis(6000);
                self.run_for(time)?;
                self.heal();
                self.may_end[node] = true;
            }
            let what = "a node that joined did not serve QUORUM";
            let minute = Duration::from_mins(1);
            self.wait_for(minute, what, |run| {
                run.start_what_ended();
                run.clients.served.borrow()[node] > 0
            })?;
        }
        Ok(())
    }

    /// What was healed serves soon, and after some time without any error.
    fn must_be_well(&mut self) -> Result<(), String> {
        let before = self.clients.served.borrow().clone();
        let late = |run: &Self| -> Vec<usize> {
            let served = run.clients.served.borrow();
            let mut members = run.clients.members();
            members.retain(|node| served[*node] <= before[*node] + 3 && !run.operator.is_coming(*node));
            members
        };
        let what = "not every node served QUORUM within thirty seconds after all was healed";
        let waited = self.wait_for(SERVE_WAIT_MAX, what, |run| {
            run.start_what_ended();
            late(run).is_empty()
        });
        waited.map_err(|why| match late(self)[..] {
            [] => why,
            ref late => format!("{why}: nodes {late:?}; the operator's: {}", self.operator.story()),
        })?;
        self.settle()?;
        self.clients.phase.set(Phase::Rest);
        self.run_for(TRUST_WAIT)?;
        self.start_what_ended();
        self.clients.phase.set(Phase::Work);
        self.run_for(Duration::from_secs(1))?;
        self.may_end.fill(false);
        self.clients.faulty.set(self.scenario.is_always_disturbed());
        if !self.scenario.workload.truncates_with_traffic && self.chance.once_in(2) {
            self.clients.phase.set(Phase::Truncate);
        }
        let calm = Duration::from_secs(2);
        self.run_for(calm)?;
        let is_done = |run: &mut Self| run.clients.phase.get() == Phase::Work;
        self.wait_for(Duration::from_mins(1), "TRUNCATE did not end", is_done)
    }

    /// A node that ended late, or by a failure that struck its start, is started again.
    pub(super) fn start_what_ended(&mut self) {
        for node in self.clients.members() {
            if !self.cluster.is_running(node) && self.may_end[node] {
                self.cluster.restart(node);
            }
        }
    }

    fn end(&mut self) -> Result<(), String> {
        self.clients.phase.set(Phase::Rest);
        self.run_for(QUIET_WAIT)?;
        self.accept_loss()?;
        let what = "a node that has joined had no place in the cluster minutes after the last fault";
        self.wait_for(PLACE_WAIT_MAX, what, |run| {
            let members = run.clients.members();
            let has_place = |node: usize| run.clients.inventory.is_full_member(run.cluster.address(node));
            members.into_iter().all(has_place)
        })?;
        if self.scenario.faults.is_elastic() {
            self.must_be_placed()?;
            self.clients.history.borrow_mut().end_moves();
        }
        self.clients.phase.set(Phase::Final);
        let is_done = |run: &mut Self| run.clients.phase.get() == Phase::Done;
        self.wait_for(LOOK_WAIT_MAX, "the last look at everything did not end", is_done)
    }

    /// Tablets and ranges are where they should be, on all nodes, and even, some time after the last fault.
    fn must_be_placed(&mut self) -> Result<(), String> {
        let end = self.cluster.sim.now() + BALANCE_WAIT_MAX;
        let mut lacks = String::new();
        loop {
            self.run_for(BALANCE_LOOK)?;
            let nodes = self.clients.members();
            let nodes: BTreeSet<_> = nodes.into_iter().map(|node| self.cluster.address(node)).collect();
            match self.clients.inventory.check_placement(&nodes) {
                Ok(()) => return Ok(()),
                Err(why) if self.cluster.sim.now() >= end => {
                    return Err(format!("{BALANCE_WAIT_MAX:?} after the last fault {why}"));
                }
                Err(why) if why != lacks => {
                    log::info!("simulation: not all is where it should be: {why}");
                    lacks = why;
                }
                Err(_) => {}
            }
        }
    }

    pub(super) fn verdict(&mut self) -> Result<(), String> {
        if let Some(text) = self.clients.failure() {
            return Err(text);
        }
        for node in 0..self.cluster.size() {
            // One that joins may be refused until the dead node is known to be dead; its operator starts it again.
            if self.may_end[node] || self.operator.is_going(node) || self.operator.is_coming(node) {
                continue;
            }
            if let Some(text) = self.cluster.failure(node) {
                return Err(format!("node {node} has ended: {text}"));
            }
        }
        Ok(())
    }

    pub(super) fn slice(&mut self) {
        self.operate();
        // During an outage no client writes either, and compactions are what is waited for.
        self.cluster
            .set_rest(self.clients.phase.get() == Phase::Rest && self.outage.is_none());
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

    pub(super) fn wait_for(
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
