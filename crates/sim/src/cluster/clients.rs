//! The clients of a cluster: some at each node, which write and read the same registers as each other.
//!
//! Tables, all in keyspace `k`: `r (p, c, v)` has partitions of a few rows, which are written, overwritten and deleted
//! by row, cell, range and partition; `a` and `b` `(p, v)` are written by logged batches over both, and by nothing
//! else, so they agree in the end; `t (p, v)` is truncated, or dropped and made again, now and then; values of `e (p,
//! v)` end by themselves; `n` has counters ([`super::counters`]), `l` is for conditional statements
//! ([`super::conditional`]), `w` has large values, static columns and collections ([`super::cells`]), and `u` is
//! written at the time of the coordinators' clocks ([`super::clocked`]). Where tombstones are kept for a short time
//! there is `i (p, c, v)`, which forgets deletions at once. Every value is the timestamp that it was written with
//! ([`super::history`]).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use super::cells;
use super::clocked::Clocked;
use super::conditional::Conditional;
use super::contents::Inventory;
use super::counters::Counters;
use super::history::{Asked, History, Key, Level, Span};
use super::indexed;
use super::items::Lists;
use super::layout::Layout;
use super::schema_changes::SchemaChanges;
use super::writes::{Bound, Planned};
use crate::client::{Answer, Client};
use crate::decode::Rows;
use crate::model::Value;

/// Partitions of each table.
pub(crate) const PARTITIONS: i32 = 12;
/// Rows of a partition of `r`.
pub(crate) const ROWS: i32 = 3;
pub(crate) const R: u8 = 0;
pub(crate) const A: u8 = 1;
pub(crate) const B: u8 = 2;
pub(crate) const T: u8 = 3;
pub(crate) const E: u8 = 4;
pub(crate) const W: u8 = 5;
/// Elements of lists of `w`.
pub(crate) const X: u8 = 6;
/// The table that forgets deletions at once.
pub(crate) const I: u8 = 7;
/// The partitions of `a` from here on are written once.
pub(crate) const FRESH: i32 = 1_000_000;
/// The partition of `b` that is written with one of `a`.
pub(crate) fn partition_of_b(p: i32) -> i32 {
    p + 100
}

pub(crate) const TABLE_T: &str = "k.t (p int PRIMARY KEY, v int)";
const TABLE_I: &str = "k.i (p int, c int, v int, PRIMARY KEY (p, c)) WITH tombstone_gc = {'mode': 'immediate'}";
/// How much of a statement a failure shows.
const STORY_CHARS_MAX: usize = 240;
/// Longer than any coordinator takes.
pub(crate) const ANSWER_WAIT_MAX: Duration = Duration::from_secs(15);
/// Schema changes and truncations may wait for an election and for nodes that do not answer.
pub(crate) const CHANGE_WAIT_MAX: Duration = Duration::from_secs(70);

pub(crate) const UNAVAILABLE: i32 = 0x1000;
pub(crate) const OVERLOADED: i32 = 0x1001;
/// What a replica says that has quarantined an sstable.
pub(crate) const LACKS_A_FILE: &str = "this node lacks the sstable";
pub(crate) const TRUNCATE_ERROR: i32 = 0x1003;
pub(crate) const WRITE_TIMEOUT: i32 = 0x1100;
pub(crate) const READ_TIMEOUT: i32 = 0x1200;
pub(crate) const READ_FAILURE: i32 = 0x1300;
pub(crate) const WRITE_FAILURE: i32 = 0x1500;
pub(crate) const CAS_WRITE_UNKNOWN: i32 = 0x1700;

/// What clients have done.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ClusterCounts {
    /// Writes acknowledged.
    pub acknowledged: u64,
    /// Reads answered and checked.
    pub reads: u64,
    /// Errors that a fault explains, and lost connections.
    pub errors: u64,
    /// Requests that failed because a node had no room for them.
    pub overloaded: u64,
    /// Requests that failed because a node that ran them had no room for its answer.
    pub lost_answers: u64,
    /// Deletions that were executed at a second of the client's.
    pub own_seconds: u64,
    /// Schema changes acknowledged.
    pub schema_changes: u64,
    /// Truncations acknowledged.
    pub truncations: u64,
    /// Tables dropped and made again.
    pub remade: u64,
    /// Walks through a table or partition, page by page.
    pub walks: u64,
    /// Increments of counters acknowledged.
    pub increments: u64,
    /// Conditional statements answered, applied or not.
    pub conditional: u64,
    /// Serial reads answered.
    pub serial_reads: u64,
    /// Acknowledgements of coordinators whose replicas were looked at.
    pub acknowledgements: u64,
    /// Reads and conditional statements answered of what is written by the coordinators' clocks.
    pub clocked: u64,
    /// Reads by values answered and checked.
    pub by_value: u64,
    /// Requests of the DynamoDB API that succeeded.
    pub on_items: u64,
    /// Of those, transactions that write.
    pub transactions: u64,
    /// Leases that were renewed before they were deleted.
    pub renewals: u64,
    /// Indexes created and dropped.
    pub index_changes: u64,
    /// Partitions of which all replicas held the same in the end.
    pub partitions_compared: u64,
}

/// What the clients are to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Wait for the cluster, and make the tables.
    SetUp,
    /// Write and read.
    Work,
    /// Truncate a table, when nothing is under way there.
    Truncate,
    /// Nothing, until all is quiet.
    Rest,
    /// Read everything at ALL.
    Repair,
    /// Look at everything.
    Final,
    /// Nothing any more.
    Done,
}

/// See the module.
pub(crate) struct Clients {
    pub(crate) addresses: Vec<SocketAddr>,
    /// Where the nodes are, and what the keyspaces are made with.
    pub(crate) layout: Layout,
    pub(crate) history: RefCell<History>,
    /// What the nodes hold.
    pub(crate) inventory: Rc<Inventory>,
    pub(crate) schema_changes: SchemaChanges,
    pub(crate) conditional: Conditional,
    pub(crate) counters: Counters,
    pub(crate) clocked: Clocked,
    pub(crate) lists: Lists,
    /// The ids of statements.
    pub(super) prepared: RefCell<BTreeMap<&'static str, Vec<u8>>>,
    pub(crate) phase: Cell<Phase>,
    /// Whether an error has an explanation.
    pub(crate) faulty: Cell<bool>,
    /// How often it became so.
    pub(crate) times_faulty: Cell<u64>,
    pub(crate) counts: Cell<ClusterCounts>,
    /// Acknowledgements at QUORUM by each coordinator.
    pub(crate) served: RefCell<Vec<u64>>,
    /// Nodes that are started and not permanently gone.
    pub(crate) members: RefCell<BTreeSet<usize>>,
    /// Whether the keyspaces have the replication that they are to have, as far as statements go.
    pub(crate) is_altered: Cell<bool>,
    /// What is promised besides.
    pub(crate) promises: Promises,
    pub(crate) workload: Workload,
    /// Deletions whose outcome is unknown, to be asked for again.
    again: RefCell<Vec<Planned>>,
    failure: RefCell<Option<String>>,
    /// Requests under way to the table that is truncated while no client uses it.
    pub(crate) at_truncated_table: Cell<usize>,
    /// Whether a table is being truncated while others use it.
    pub(crate) is_truncating: Cell<bool>,
    /// The elements of lists that were sent, by timestamp.
    pub(crate) added: RefCell<BTreeMap<i32, cells::Added>>,
    /// The newest of the rows that [`Mix::Reads`] writes.
    newest: Cell<i32>,
    /// When the timestamps that are used out of order were forgotten.
    pub(super) drawn_since: Cell<u64>,
}

/// What holds besides, if the faults are those.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Promises {
    /// Batches over tables are whole in the end.
    pub(crate) whole_batches: bool,
    /// Conditional statements only.
    pub(crate) conditional_only: bool,
    /// Nodes have so little memory that they refuse requests, or answer them too late, at any time.
    pub(crate) may_refuse: bool,
    /// One node may lack sstables that were damaged: what needs all replicas fails there, and says why.
    pub(crate) may_lack_files: bool,
    /// Hints bring all replicas what was acknowledged.
    pub(crate) whole_hints: bool,
    /// The keyspaces get other numbers of copies.
    pub(crate) changes_replication: bool,
    /// They go from the token ring to tablets, or back.
    pub(crate) changes_kinds: bool,
    /// By how much the clocks of nodes may differ.
    pub(crate) clock_error: Duration,
}

/// What clients do besides, or more than else.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Workload {
    /// A few partitions only, without pauses.
    pub is_hot: bool,
    /// Tables are truncated again and again while others write and read them, and half of all plain requests are to one
    /// of these.
    pub truncates_with_traffic: bool,
    /// How long tombstones are kept, seconds: the grace period, or the propagation delay where repairs decide; some
    /// tables never forget them. Only an outage lasts longer ([`super::ClusterFaults::outages`]).
    pub grace: Option<u32>,
    /// What most requests are.
    pub mix: Mix,
    /// Tables get and lose secondary indexes, and are read by their values ([`super::indexed`]).
    pub indexes: bool,
    /// The nodes serve the DynamoDB API, and some of the clients use it ([`super::items`]).
    pub items: bool,
}

/// What most requests are: scenarios that aim at one promise ask little else.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Mix {
    /// Something of everything.
    #[default]
    Everything,
    /// Reads of rows at QUORUM; now and then a new row is written at QUORUM, deleted or written again at ONE, and read
    /// by all, so that what one replica has alone is read by many and never overwritten.
    Reads,
    /// Logged batches, most of which write partitions that nothing writes again.
    Batches,
    /// Conditional statements in pairs, one for each row of a partition, whose commit waits for one replica; and serial
    /// reads.
    Serial,
    /// Additions to counters, and reads of them.
    Counters,
}

/// The outcome of a request.
pub(crate) enum Outcome {
    Answer(Answer),
    /// The outcome is unknown.
    Lost(String),
}

impl Clients {
    pub(crate) fn new(
        addresses: Vec<SocketAddr>,
        members: usize,
        layout: Layout,
        (promises, workload): (Promises, Workload),
        inventory: Rc<Inventory>,
    ) -> Rc<Self> {
        Rc::new(Self {
            served: RefCell::new(vec![0; addresses.len()]),
            addresses,
            history: RefCell::new(History::new(layout.copies)),
            layout,
            inventory,
            schema_changes: SchemaChanges::default(),
            conditional: Conditional::default(),
            counters: Counters::default(),
            clocked: Clocked::default(),
            lists: Lists::default(),
            prepared: RefCell::default(),
            phase: Cell::new(Phase::SetUp),
            faulty: Cell::new(false),
            times_faulty: Cell::new(0),
            counts: Cell::default(),
            members: RefCell::new((0..members).collect()),
            is_altered: Cell::new(true),
            promises,
            workload,
            again: RefCell::default(),
            failure: RefCell::default(),
            at_truncated_table: Cell::new(0),
            is_truncating: Cell::new(false),
            added: RefCell::default(),
            newest: Cell::new(0),
            drawn_since: Cell::new(0),
        })
    }

    /// Nodes that are started and not permanently gone, in order.
    pub(crate) fn members(&self) -> Vec<usize> {
        self.members.borrow().iter().copied().collect()
    }

    pub(crate) fn is_member(&self, node: usize) -> bool {
        self.members.borrow().contains(&node)
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    pub(crate) fn fail(&self, text: String) {
        self.failure.borrow_mut().get_or_insert(text);
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut ClusterCounts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    pub(crate) fn first_member(&self) -> usize {
        self.members.borrow().first().copied().unwrap_or(0)
    }

    /// Any member.
    pub(crate) fn any_member(&self) -> usize {
        let members = self.members();
        members[usize::try_from(runtime::random_u64() % members.len() as u64).expect("few nodes")]
    }

    /// All clients, on their machine. Ends never.
    pub(crate) async fn run(self: Rc<Self>, per_node: usize) {
        for node in 0..self.addresses.len() {
            for _ in 0..per_node {
                let clients = self.clone();
                drop(runtime::spawn(async move { clients.work(node).await }));
            }
            if self.workload.items {
                drop(runtime::spawn(self.clone().work_on_items(node)));
            }
            let clients = self.clone();
            drop(runtime::spawn(async move { clients.change_schema(node).await }));
        }
        if self.workload.indexes {
            let clients = self.clone();
            drop(runtime::spawn(async move { clients.change_indexes().await }));
        }
        if self.workload.truncates_with_traffic {
            let clients = self.clone();
            drop(runtime::spawn(async move { clients.truncate_with_traffic().await }));
        }
        if self.promises.changes_replication || self.promises.changes_kinds {
            let clients = self.clone();
            drop(runtime::spawn(async move { clients.alter_keyspaces().await }));
        }
        self.direct().await;
    }

    /// What is done once: the tables, the truncations, the look at everything.
    async fn direct(self: Rc<Self>) {
        loop {
            let phase = self.phase.get();
            let done = match phase {
                Phase::SetUp => self.set_up().await,
                Phase::Truncate => self.truncate().await,
                Phase::Repair => self.repair().await,
                Phase::Final => self.look_at_everything().await,
                Phase::Work | Phase::Rest | Phase::Done => {
                    runtime::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            };
            if let Err(text) = done {
                self.fail(text);
            }
            self.phase.set(if phase == Phase::Final {
                Phase::Done
            } else {
                Phase::Work
            });
        }
    }

    /// Waits until every node serves and knows all others, and makes the tables.
    async fn set_up(&self) -> Result<(), String> {
        for node in self.members() {
            self.wait_for_members(node).await?;
        }
        // Nodes that have joined get their tokens.
        runtime::sleep(Duration::from_secs(5)).await;
        let mut client = self.connect_patiently(self.first_member()).await?;
        let tables = [
            "k.r (p int, c int, v int, PRIMARY KEY (p, c))",
            "k.a (p int PRIMARY KEY, v int)",
        ];
        let more = [
            "k.b (p int PRIMARY KEY, v int)",
            TABLE_T,
            "k.e (p int PRIMARY KEY, v int)",
            "k.n (p int PRIMARY KEY, c counter)",
            "k.l (p int, c int, v int, PRIMARY KEY (p, c))",
            cells::TABLE,
            "k.u (p int PRIMARY KEY, v int)",
        ];
        let mut statements = vec![
            self.create_keyspace("k", self.layout.tablets(0)),
            self.create_keyspace("d", self.layout.tablets(1)),
            "CREATE TABLE d.shared (p int PRIMARY KEY, v int)".to_owned(),
        ];
        let grace = self.workload.grace;
        // Every third table forgets its deletions when all replicas are known to have them, and every third one never.
        let options = |number: usize| match (grace, number % 3) {
            (None, _) => String::new(),
            (Some(seconds), 0) => {
                format!(" WITH gc_grace_seconds = {seconds} AND tombstone_gc = {{'mode': 'timeout'}}")
            }
            (Some(seconds), 1) => {
                format!(" WITH tombstone_gc = {{'mode': 'repair', 'propagation_delay_in_seconds': '{seconds}'}}")
            }
            (Some(_), _) => " WITH tombstone_gc = {'mode': 'disabled'}".to_owned(),
        };
        let all = tables.iter().chain(&more).enumerate();
        statements.extend(all.map(|(number, t)| format!("CREATE TABLE {t}{}", options(number))));
        statements.extend(grace.map(|_| format!("CREATE TABLE {TABLE_I}")));
        if self.workload.indexes {
            statements.extend(indexed::first_indexes());
        }
        for statement in statements {
            match client.ask(&statement).await {
                Ok(Answer::Done) => {}
                other => return Err(format!("{statement}: {other:?}")),
            }
        }
        if self.workload.items {
            self.make_item_tables().await?;
        }
        Ok(())
    }

    fn create_keyspace(&self, name: &str, tablets: &str) -> String {
        let replication = Layout::replication(self.layout.wanted.get());
        format!("CREATE KEYSPACE {name} WITH {replication} AND tablets = {{{tablets}}}")
    }

    async fn wait_for_members(&self, node: usize) -> Result<(), String> {
        for _ in 0..600 {
            if let Ok(mut client) = Client::connect(self.addresses[node]).await
                && let Ok(Answer::Rows(rows, _)) = client.ask("SELECT data_center FROM system.peers").await
                && rows.len() + 1 == self.members().len()
            {
                return Ok(());
            }
            runtime::sleep(Duration::from_millis(100)).await;
        }
        Err(format!("node {node} did not meet the others within a minute"))
    }

    pub(crate) async fn connect_patiently(&self, node: usize) -> Result<Client, String> {
        for _ in 0..300 {
            let connecting = Client::connect(self.addresses[node]);
            if let Ok(Ok(client)) = runtime::timeout(Duration::from_secs(5), connecting).await {
                return Ok(client);
            }
            runtime::sleep(Duration::from_millis(100)).await;
        }
        Err(format!("node {node} did not take a connection"))
    }

    /// A client of a node. Ends never.
    async fn work(self: Rc<Self>, node: usize) {
        let mut connection = None;
        loop {
            let pause = if self.workload.is_hot { 8 } else { 60 };
            runtime::sleep(Duration::from_millis(runtime::random_u64() % pause)).await;
            if self.phase.get() != Phase::Work && self.phase.get() != Phase::Truncate || !self.is_member(node) {
                runtime::sleep(Duration::from_millis(50)).await;
                continue;
            }
            let (mut client, number) = match connection.take() {
                Some(connection) => connection,
                None => match self.connect(node).await {
                    Some(client) => (client, self.number_connection()),
                    None => continue,
                },
            };
            if self.act(&mut client, node, number).await {
                connection = Some((client, number));
            }
        }
    }

    pub(crate) async fn connect(&self, node: usize) -> Option<Client> {
        let was_faulty = self.faulty.get();
        let why = match runtime::timeout(Duration::from_secs(5), Client::connect(self.addresses[node])).await {
            Ok(Ok(client)) => return Some(client),
            Ok(Err(e)) => e.to_string(),
            Err(_) => "no answer within five seconds".to_owned(),
        };
        self.explain(was_faulty, || format!("cannot connect to node {node}: {why}"));
        runtime::sleep(Duration::from_millis(200)).await;
        None
    }

    pub(crate) fn begin_fault(&self) {
        self.faulty.set(true);
        self.times_faulty.set(self.times_faulty.get() + 1);
    }

    /// An error is fine while something is broken, and else a broken promise.
    pub(crate) fn explain(&self, was_faulty: bool, text: impl FnOnce() -> String) {
        if was_faulty || self.faulty.get() || self.promises.may_refuse {
            self.count(|c| c.errors += 1);
            log::info!("simulation: a fault explains it: {}", text());
        } else {
            let now = millis();
            self.fail(format!("at {now} ms, without a fault: {}", text()));
        }
    }

    /// One request. Whether the connection is still good.
    async fn act(&self, client: &mut Client, node: usize, connection: u64) -> bool {
        let dice = runtime::random_u64();
        let level = match dice >> 8 & 0xf {
            0 => Level::One,
            1 => Level::All,
            2 => Level::LocalOne,
            3..=5 => Level::LocalQuorum,
            6 => Level::EachQuorum,
            _ => Level::Quorum,
        };
        match dice & 0xf {
            _ if self.promises.conditional_only => self.act_conditionally(client, node, dice >> 16).await,
            _ if self.workload.mix == Mix::Reads && !(dice >> 12).is_multiple_of(12) => {
                let place = (FRESH + self.newest.get() - i32::from(dice & 1 == 1), 0);
                self.read(client, node, Level::Quorum, dice >> 16, place).await
            }
            _ if self.workload.mix == Mix::Reads => self.write_twice_and_read(client, node, dice >> 16).await,
            _ if self.workload.mix == Mix::Batches => self.write(client, node, level, dice >> 16).await,
            0..=14 if self.workload.mix == Mix::Counters => self.act_on_counters(client, node, dice >> 16).await,
            0..=2 => self.act_conditionally(client, node, dice >> 16).await,
            3 => self.act_on_counters(client, node, dice >> 16).await,
            4..=8 if self.workload.indexes && (dice >> 12).is_multiple_of(3) => {
                self.read_by_value(client, node, level, dice >> 16).await
            }
            4..=8 => self.read(client, node, level, dice >> 16, self.place(dice >> 16)).await,
            9..=13 => self.write(client, node, level, dice >> 16).await,
            14 => self.act_by_clock(client, (node, connection), level, dice >> 16).await,
            _ if (dice >> 12).is_multiple_of(4) => {
                let planned = self.plan_element(node, dice >> 16);
                self.write_planned(client, node, Level::Quorum, planned, false).await
            }
            _ if (dice >> 12).is_multiple_of(2) => {
                let planned = self.plan_cells(dice >> 16);
                self.write_planned(client, node, level, planned, false).await
            }
            _ => {
                let p = i32::try_from((dice >> 16) % u64::from(cells::PARTITIONS.unsigned_abs())).expect("few");
                let keys = self.registers_of_cells(p);
                let text = cells::select(p);
                let read = self.read_and_check(client, node, &text, &keys, level, None);
                read.await.is_some()
            }
        }
    }

    /// See [`Mix::Reads`].
    async fn write_twice_and_read(&self, client: &mut Client, node: usize, dice: u64) -> bool {
        self.newest.set(self.newest.get() + 1);
        let place = (FRESH + self.newest.get(), 0);
        let (first, second) = (self.plan_first(place, dice), self.plan_second(place, dice));
        self.write_planned(client, node, Level::Quorum, first, false).await
            && self.write_planned(client, node, Level::One, second, false).await
            && self.read(client, node, Level::Quorum, dice, place).await
    }

    async fn write(&self, client: &mut Client, node: usize, level: Level, dice: u64) -> bool {
        // A deletion in doubt excuses whatever is missing; one that is acknowledged when it is asked for again excuses
        // no more.
        let again = if (dice >> 46).is_multiple_of(4) {
            self.again.borrow_mut().pop()
        } else {
            None
        };
        let is_again = again.is_some();
        let planned = again.unwrap_or_else(|| self.plan(dice));
        self.write_planned(client, node, level, planned, is_again).await
    }

    async fn write_planned(
        &self,
        client: &mut Client,
        node: usize,
        level: Level,
        planned: Planned,
        is_again: bool,
    ) -> bool {
        let is_at_truncated = planned.keys[0].0 == T;
        if is_at_truncated && self.waits_for_truncation() {
            return true;
        }
        let under_way = self.at_truncated_table.get();
        self.at_truncated_table.set(under_way + usize::from(is_at_truncated));
        let was_faulty = self.faulty.get();
        let sent = millis();
        self.begin_element(&planned, sent);
        let Planned {
            text,
            bound,
            keys,
            effect,
            timestamp,
        } = planned;
        // Values may be long.
        let story: String = text.chars().take(STORY_CHARS_MAX).collect();
        let story = format!("{story} by node {node} at {level:?} at {sent} ms");
        if !is_again {
            self.history.borrow_mut().begin(&keys, timestamp, effect, &story);
        }
        let outcome = match &bound {
            Some(bound) => self.execute(client, bound, level, ANSWER_WAIT_MAX).await,
            None => {
                let text = self.with_own_time(&text, timestamp);
                match self.own_second(&text, timestamp) {
                    Some(second) => self.ask_at_second(node, &text, level, second).await,
                    None => self.ask(client, &text, level, ANSWER_WAIT_MAX).await,
                }
            }
        };
        let under_way = self.at_truncated_table.get();
        self.at_truncated_table.set(under_way - usize::from(is_at_truncated));
        let mut history = self.history.borrow_mut();
        // Why it is in doubt, and whether the connection lives.
        let (why, is_connected) = match outcome {
            Outcome::Answer(Answer::Done) => {
                history.acknowledged(&keys, timestamp, self.asked(node, level));
                self.end_element(timestamp, millis());
                self.count(|c| c.acknowledged += 1);
                self.note_served(node, level);
                return true;
            }
            Outcome::Answer(Answer::Error {
                code: UNAVAILABLE,
                message,
            }) => {
                if !is_again {
                    history.refused(&keys, timestamp);
                }
                self.explain(was_faulty, || format!("{story}: {message}"));
                return true;
            }
            Outcome::Answer(Answer::Error { code, message }) => {
                // Where elements are is read first.
                let is_read = keys[0].0 == X && matches!(code, READ_TIMEOUT | READ_FAILURE);
                if !is_read && !matches!(code, OVERLOADED | WRITE_TIMEOUT | WRITE_FAILURE) {
                    self.fail(format!(
                        "{story}: an error that the test does not expect, {code:#x}: {message}"
                    ));
                }
                (message, true)
            }
            Outcome::Answer(other) => {
                self.fail(format!("{story}: {other:?}"));
                return true;
            }
            Outcome::Lost(why) => (why, false),
        };
        history.in_doubt(&keys, timestamp, &why);
        self.explain(was_faulty, || format!("{story}: {why}"));
        self.ask_again(Planned {
            text,
            bound,
            keys,
            effect,
            timestamp,
        });
        is_connected
    }

    /// Most deletions in doubt are asked for again, at the same timestamp. Not those of elements, which read at the
    /// level of the statement what to delete.
    fn ask_again(&self, planned: Planned) {
        if planned.effect.deletes() && planned.keys[0].0 != X && planned.timestamp % 4 != 0 {
            self.again.borrow_mut().push(planned);
        }
    }

    pub(super) fn waits_for_truncation(&self) -> bool {
        self.phase.get() == Phase::Truncate
    }

    pub(crate) fn asked(&self, node: usize, level: Level) -> Asked {
        Asked {
            level,
            datacenter: self.layout.datacenter(node),
        }
    }

    pub(crate) fn note_served(&self, node: usize, level: Level) {
        if level == Level::Quorum {
            self.served.borrow_mut()[node] += 1;
        }
    }

    async fn read(&self, client: &mut Client, node: usize, level: Level, dice: u64, (p, c): (i32, i32)) -> bool {
        let rows = |p| (0..ROWS).map(move |c| (R, p, c));
        let kind = match self.workload.mix {
            Mix::Reads => 6 + (dice >> 32) % 4,
            _ => (dice >> 32) % 16,
        };
        let (text, keys): (String, Vec<Key>) = match kind {
            _ if self.workload.truncates_with_traffic && (dice >> 36).is_multiple_of(2) => {
                (format!("SELECT p, v FROM k.t WHERE p = {p}"), vec![(T, p, 0)])
            }
            _ if self.uses_immediate(dice) => {
                let text = format!("SELECT p, c, v FROM k.i WHERE p = {p}");
                (text, (0..ROWS).map(|c| (I, p, c)).collect())
            }
            // Each row is a group: what comes is the same, and by another way.
            0 => (
                format!(
                    "SELECT p, c, v FROM k.r{}",
                    if (dice >> 46).is_multiple_of(2) {
                        " GROUP BY p, c"
                    } else {
                        ""
                    }
                ),
                (0..PARTITIONS).flat_map(rows).collect(),
            ),
            1 => (format!("SELECT p, v FROM k.t WHERE p = {p}"), vec![(T, p, 0)]),
            10..=11 => (format!("SELECT p, v FROM k.e WHERE p = {p}"), vec![(E, p, 0)]),
            2..=3 => (format!("SELECT p, v FROM k.a WHERE p = {p}"), vec![(A, p, 0)]),
            4..=5 => {
                let p = partition_of_b(p);
                (format!("SELECT p, v FROM k.b WHERE p = {p}"), vec![(B, p, 0)])
            }
            6..=8 => (
                format!("SELECT p, c, v FROM k.r WHERE p = {p} AND c = {c}"),
                vec![(R, p, c)],
            ),
            9 => (
                format!("SELECT p, c, v FROM k.r WHERE p = {p} ORDER BY c DESC"),
                rows(p).collect(),
            ),
            _ => (format!("SELECT p, c, v FROM k.r WHERE p = {p}"), rows(p).collect()),
        };
        if keys[0].0 == T && self.waits_for_truncation() {
            return true;
        }
        let is_serial = keys[0].0 == T && self.workload.truncates_with_traffic && (dice >> 44).is_multiple_of(3);
        let level = if is_serial { Level::Serial } else { level };
        let is_at_truncated = usize::from(keys[0].0 == T);
        self.at_truncated_table
            .set(self.at_truncated_table.get() + is_at_truncated);
        // A table or a partition is also walked through page by page, while others change it.
        let is_walk = keys.len() > 1 && (dice >> 40).is_multiple_of(2);
        let rows_per_page = is_walk.then(|| i32::try_from(1 + (dice >> 42) % 8).expect("few rows"));
        let result = self
            .read_and_check(client, node, &text, &keys, level, rows_per_page)
            .await;
        self.at_truncated_table
            .set(self.at_truncated_table.get() - is_at_truncated);
        result.is_some()
    }

    /// Reads all pages, with some time between them.
    pub(super) async fn walk(&self, client: &mut Client, text: &str, level: Level, rows_per_page: i32) -> Outcome {
        let mut all = Rows::new();
        let mut state: Option<Vec<u8>> = None;
        loop {
            let asking = client.ask_page(text, level.code(), rows_per_page, state.as_deref());
            match self.within(ANSWER_WAIT_MAX, asking).await {
                Outcome::Answer(Answer::Rows(rows, next)) => {
                    all.extend(rows);
                    if next.is_none() {
                        self.count(|c| c.walks += 1);
                        return Outcome::Answer(Answer::Rows(all, None));
                    }
                    state = next;
                }
                other => return other,
            }
            runtime::sleep(Duration::from_millis(runtime::random_u64() % 30)).await;
        }
    }

    /// Reads registers and checks them; None when the connection is lost, and no values after an error.
    pub(crate) async fn read_and_check(
        &self,
        client: &mut Client,
        node: usize,
        text: &str,
        keys: &[Key],
        level: Level,
        rows_per_page: Option<i32>,
    ) -> Option<BTreeMap<Key, i32>> {
        let asked = self.asked(node, level);
        let floors: Vec<i32> = keys
            .iter()
            .map(|key| self.history.borrow().floor(*key, asked))
            .collect();
        let was_faulty = self.faulty.get();
        let sent = millis();
        let weakened = self.history.borrow().weakened();
        let story = || format!("{text} by node {node} at {level:?} at {sent} ms");
        // The statement for one partition is executed as a prepared one at times.
        let bound =
            (keys[0].0 == R && keys.len() == ROWS as usize && sent.is_multiple_of(2) && !text.contains("ORDER")).then(
                || Bound {
                    text: "SELECT p, c, v FROM k.r WHERE p = ?",
                    values: vec![keys[0].1.to_be_bytes().to_vec()],
                },
            );
        let outcome = match (rows_per_page, bound) {
            (None, Some(bound)) => self.execute(client, &bound, level, ANSWER_WAIT_MAX).await,
            (None, None) => self.ask(client, text, level, ANSWER_WAIT_MAX).await,
            (Some(rows), _) => self.walk(client, text, level, rows).await,
        };
        match outcome {
            Outcome::Answer(Answer::Rows(rows, None)) => {
                let values = registers_of(keys[0].0, &rows);
                if let Err(text) = self.check_lists(&rows) {
                    self.fail(format!("{}: {text}", story()));
                }
                if let Some(twice) = first_twice(keys[0].0, &rows) {
                    self.fail(format!("{}: {twice:?} is there twice", story()));
                }
                let span = Span {
                    sent,
                    answered: millis(),
                    weakened,
                };
                let mut history = self.history.borrow_mut();
                let before: BTreeMap<Key, i32> = keys.iter().copied().zip(floors).collect();
                // Writes that began during the read may be there too.
                let meanwhile = values
                    .keys()
                    .filter(|key| !before.contains_key(key))
                    .map(|key| (key, &0));
                for (key, floor) in before.iter().chain(meanwhile) {
                    if let Err(text) = history.check(*key, *floor, asked, span, values.get(key).copied()) {
                        self.fail(format!("{}: {text}", story()));
                    }
                }
                // A walk reads each page at another moment.
                if rows_per_page.is_none() {
                    let read: Vec<_> = keys.iter().map(|key| (*key, values.get(key).copied())).collect();
                    if let Err(text) = history.check_together(&read, &before, asked, span) {
                        self.fail(format!("{}: {text}", story()));
                    }
                }
                self.count(|c| c.reads += 1);
                self.note_served(node, level);
                Some(values)
            }
            Outcome::Answer(Answer::Error { code, message }) => {
                if !matches!(code, UNAVAILABLE | OVERLOADED | READ_TIMEOUT | READ_FAILURE) {
                    self.fail(format!(
                        "{}: an error that the test does not expect, {code:#x}: {message}",
                        story()
                    ));
                }
                let lacks_files = level == Level::All && code == READ_FAILURE && message.contains(LACKS_A_FILE);
                let is_explained = was_faulty || self.promises.may_lack_files && lacks_files;
                self.explain(is_explained, || format!("{}: {message}", story()));
                Some(BTreeMap::new())
            }
            Outcome::Answer(other) => {
                self.fail(format!("{}: {other:?}", story()));
                None
            }
            Outcome::Lost(why) => {
                self.explain(was_faulty, || format!("{}: {why}", story()));
                None
            }
        }
    }
}

pub(crate) fn millis() -> u64 {
    runtime::now().as_nanos() / 1_000_000
}

/// A key that a result has twice.
pub(super) fn first_twice(table: u8, rows: &Rows) -> Option<Key> {
    let mut keys: Vec<Key> = rows.iter().filter_map(|row| key_of(table, row)).collect();
    keys.sort_unstable();
    keys.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

fn int(value: Option<&Value>) -> Option<i32> {
    match value {
        Some(Value::Int(n)) => Some(*n),
        _ => None,
    }
}

fn key_of(table: u8, row: &BTreeMap<String, Value>) -> Option<Key> {
    Some((table, int(row.get("p"))?, int(row.get("c")).unwrap_or(0)))
}

/// The registers of a result.
pub(super) fn registers_of(table: u8, rows: &Rows) -> BTreeMap<Key, i32> {
    if table == W {
        return cells::registers(rows);
    }
    let register = |row: &BTreeMap<String, Value>| Some((key_of(table, row)?, int(row.get("v"))?));
    rows.iter().filter_map(register).collect()
}
