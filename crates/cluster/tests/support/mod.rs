//! A simulated cluster: real `rpc` over the simulated network, the metadata group on simulated disks, and a listener
//! that records its notifications.

pub mod joins;

use cluster::{
    ChangeError, Cluster, ClusterError, Command, Config, Discard, Drain, Listener, Local, Metadata, RejoinError,
    SchemaChange, Seed, Splits, TabletBytes, TabletReport,
};
use rpc::Rpc;
use runtime::ShardId;
use runtime::sim::{CrashKind, DirectoryCopy, NodeId, Simulation, TaskQueue};
use schema::{Column, ColumnKind, Keyspace, Schema, Table, TableId, TableOptions, TabletOptions};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use topology::{Boundaries, DiskLevel, HostId, NodeState, Replica, Selector, TabletMap};
use types::CqlType;
use uuid::Uuid;

pub const SECOND: Duration = Duration::from_secs(1);

pub fn dir() -> PathBuf {
    PathBuf::from("/data/cluster")
}

pub fn host(number: usize) -> HostId {
    HostId(Uuid::from_u128(0xcee7_0000 + number as u128))
}

/// A schema of these keyspaces; equal ones have equal versions.
pub fn schema_of(names: impl IntoIterator<Item = String>) -> Schema {
    let keyspaces: BTreeMap<String, Arc<Keyspace>> = names
        .into_iter()
        .map(|name| {
            let keyspace = Keyspace {
                name: name.clone(),
                replication: BTreeMap::new(),
                durable_writes: true,
                tablets: None,
                types: BTreeMap::new(),
                functions: BTreeMap::new(),
                aggregates: BTreeMap::new(),
                tables: BTreeMap::new(),
            };
            (name, Arc::new(keyspace))
        })
        .collect();
    let text: String = keyspaces.keys().flat_map(|name| [name.as_str(), " "]).collect();
    let (high, low) = types::token::murmur3_x64_128(text.as_bytes(), 0);
    Schema {
        version: Uuid::from_u64_pair(high, low),
        keyspaces,
    }
}

/// Adds a keyspace; tries again until no other change of the schema came in between.
pub async fn create_keyspace(cluster: &Cluster, name: &str) -> Result<(), ChangeError> {
    loop {
        let now = cluster.metadata().schema.clone();
        let names = now.keyspaces.keys().cloned().chain([name.to_owned()]);
        let next = Arc::new(schema_of(names));
        match cluster.propose_schema(now.version, next).await {
            Err(ChangeError::Conflict) => runtime::sleep(Duration::from_millis(20)).await,
            result => return result,
        }
    }
}

/// What the test knows of a node, and what the node notes for the test.
#[derive(Default)]
pub struct Seen {
    pub cluster: RefCell<Option<Rc<Cluster>>>,
    pub error: RefCell<Option<ClusterError>>,
    pub load_error: RefCell<Option<String>>,
    pub fatal: RefCell<Option<String>>,
    /// The node was notified that it has left.
    pub has_left: Cell<bool>,
    pub has_user_data: Cell<bool>,
    /// The next start takes the metadata from the members instead, and ends.
    pub rejoins: Cell<bool>,
    pub rejoined: RefCell<Option<Result<String, RejoinError>>>,
    /// The rows that the node holds, and writes that it coordinates and that have not arrived.
    pub rows: RefCell<BTreeSet<u64>>,
    pub in_flight: Cell<u64>,
    /// What the node reported to its clients: which nodes serve them, and which no longer do.
    pub told_clients: RefCell<Vec<(HostId, bool)>>,
    /// The node's notifications of which nodes take writes.
    pub told_writes: RefCell<Vec<(HostId, bool)>>,
    pub told_disks: RefCell<Vec<(HostId, DiskLevel)>>,
    /// When the node left service and returned.
    pub told_service: RefCell<Vec<bool>>,
    /// The node's notifications of what others refuse.
    pub told_fenced_off: RefCell<Vec<u64>>,
    /// What the node has copied from others.
    pub copied: RefCell<Vec<cluster::Copy>>,
    /// All nodes: from them it copies rows.
    pub others: RefCell<BTreeMap<HostId, Weak<Seen>>>,
    /// What the node has removed before it copied.
    pub discarded: RefCell<Vec<Discard>>,
    /// Whether it removed some of that while writes went to the next owners of the ring: it would have removed them as
    /// well.
    pub removes_what_is_written: Cell<bool>,
    /// How long that takes, how many removals are under way, and how many were at once.
    pub discard_delay: Cell<Duration>,
    pub discarding: Cell<u32>,
    pub discards_at_once: Cell<u32>,
    /// What the node says of the size of its tablets.
    pub tablet_bytes: RefCell<Vec<TabletBytes>>,
    /// Tables whose bytes are spread evenly over their tablets, and how many a copy of all tablets has.
    pub table_bytes: RefCell<BTreeMap<TableId, u64>>,
    /// What the node says of its disk.
    pub disk: Cell<Option<cluster::Disk>>,
    /// The last splits that the node was notified of, and what it says that it has still to cut.
    pub told_splits: RefCell<Splits>,
    pub uncut_bytes: Cell<u64>,
    /// How often the node was asked for the size of its tablets, and how long it takes to say it.
    pub reports: Cell<u32>,
    pub report_delay: Cell<Duration>,
    /// How long the node's shards take to have a value of the metadata.
    pub take_delay: Cell<Duration>,
    /// How long the node takes to follow a change of a table's tablets.
    pub follow_delay: Cell<Duration>,
    /// So many attempts to copy fail.
    pub copies_that_fail: Cell<u32>,
    /// So many copies succeed, and then none; None: all.
    pub copies_that_succeed: Cell<Option<u32>>,
    last: RefCell<Option<Arc<Metadata>>>,
    tasks: TaskQueue<Rc<Cluster>>,
}

impl Seen {
    fn note_removal(&self, metadata: &Metadata) {
        let is_written = metadata
            .ring
            .as_ref()
            .is_some_and(|ring| ring.stage.writes() == Selector::Both);
        self.removes_what_is_written
            .set(self.removes_what_is_written.get() || is_written);
    }
}

/// How long a change waits for older requests.
const OLD_REQUESTS_WAIT: Duration = Duration::from_secs(10);

struct Notes(Rc<Seen>);

impl Listener for Notes {
    fn changed(&self, next: Arc<Metadata>) -> Local<'_, Drain> {
        Box::pin(async move {
            if let Some(last) = &*self.0.last.borrow() {
                assert!(next.index > last.index, "changes come in order, each once");
            }
            runtime::sleep(self.0.take_delay.get().max(Duration::from_millis(1))).await;
            let counts = |metadata: &Metadata| -> Vec<u32> {
                let maps = metadata.tablets.values();
                maps.map(|map| map.tablet_count()).collect()
            };
            let is_resized = (self.0.last.borrow().as_ref()).is_some_and(|last| counts(last) != counts(&next));
            if is_resized {
                runtime::sleep(self.0.follow_delay.get()).await;
            }
            if self.0.discarding.get() > 0 {
                self.0.note_removal(&next);
            }
            *self.0.last.borrow_mut() = Some(next);
            let seen = self.0.clone();
            Drain(Box::pin(async move {
                let deadline = runtime::now() + OLD_REQUESTS_WAIT;
                while seen.in_flight.get() > 0 && runtime::now() < deadline {
                    runtime::sleep(Duration::from_millis(5)).await;
                }
                seen.in_flight.get() == 0
            }))
        })
    }

    fn fenced_off(&self, before: u64) {
        self.0.told_fenced_off.borrow_mut().push(before);
    }

    fn liveness(&self, _host: HostId, _is_live: bool) {}

    fn liveness_taken(&self) -> Local<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn takes_writes(&self, host: HostId, takes: bool) {
        self.0.told_writes.borrow_mut().push((host, takes));
    }

    fn disk_level(&self, host: HostId, level: DiskLevel) {
        self.0.told_disks.borrow_mut().push((host, level));
    }

    fn set_in_service(&self, is_in_service: bool) -> Local<'_, ()> {
        self.0.told_service.borrow_mut().push(is_in_service);
        Box::pin(std::future::ready(()))
    }

    fn has_user_data(&self) -> Local<'_, bool> {
        Box::pin(std::future::ready(
            self.0.has_user_data.get() || !self.0.rows.borrow().is_empty(),
        ))
    }

    fn discard(&self, discard: Discard) -> Local<'_, Result<(), String>> {
        self.0.discarded.borrow_mut().push(discard);
        Box::pin(async move {
            let seen = &self.0;
            if let Some(last) = &*seen.last.borrow() {
                seen.note_removal(last);
            }
            seen.discarding.set(seen.discarding.get() + 1);
            let most = seen.discards_at_once.get().max(seen.discarding.get());
            seen.discards_at_once.set(most);
            runtime::sleep(seen.discard_delay.get()).await;
            seen.discarding.set(seen.discarding.get() - 1);
            Ok(())
        })
    }

    fn tablet_report(&self, splits: Splits) -> Local<'_, TabletReport> {
        self.0.reports.set(self.0.reports.get() + 1);
        let mut tablets = self.0.tablet_bytes.borrow().clone();
        let metadata = self.0.last.borrow().clone();
        for (table, total) in self.0.table_bytes.borrow().iter() {
            let Some(map) = metadata.as_ref().and_then(|metadata| metadata.tablets.get(table)) else {
                continue;
            };
            tablets.extend(map.tablets().map(|tablet| TabletBytes {
                table: *table,
                last: map.token_range(tablet.id).expect("it is of the map").1,
                bytes: total / u64::from(map.tablet_count()),
                load: None,
            }));
        }
        let uncut = splits.iter().map(|(table, _)| (*table, self.0.uncut_bytes.get()));
        let report = TabletReport {
            tablets,
            disk: self.0.disk.get(),
            uncut: uncut.collect(),
        };
        *self.0.told_splits.borrow_mut() = splits;
        let delay = self.0.report_delay.get();
        Box::pin(async move {
            if !delay.is_zero() {
                runtime::sleep(delay).await;
            }
            report
        })
    }

    fn load(&self) -> Local<'_, u64> {
        Box::pin(std::future::ready(self.0.rows.borrow().len() as u64))
    }

    /// Copies the first half of the ranges: no caller may take one call for all of them.
    fn copy(&self, mut copy: cluster::Copy) -> Local<'_, Result<usize, String>> {
        Box::pin(async move {
            runtime::sleep(Duration::from_millis(20)).await;
            if self.0.copies_that_fail.get() > 0 {
                self.0.copies_that_fail.set(self.0.copies_that_fail.get() - 1);
                return Err("the disk is full".to_owned());
            }
            match self.0.copies_that_succeed.get() {
                Some(0) => return Err("the sources are gone".to_owned()),
                Some(left) => self.0.copies_that_succeed.set(Some(left - 1)),
                None => {}
            }
            for (peer, _) in &copy.sources {
                let source = self
                    .0
                    .others
                    .borrow()
                    .get(&HostId(peer.host_id))
                    .and_then(Weak::upgrade);
                let rows = source.map(|source| source.rows.borrow().clone());
                self.0.rows.borrow_mut().extend(rows.into_iter().flatten());
            }
            let ranges = copy.ranges.len().div_ceil(2);
            copy.ranges.truncate(ranges);
            self.0.copied.borrow_mut().push(copy);
            Ok(ranges)
        })
    }

    fn left(&self, removed: Option<String>) {
        self.0.has_left.set(true);
        if let Some(reason) = removed {
            self.fatal(reason);
        }
    }

    fn fatal(&self, reason: String) {
        self.0.fatal.borrow_mut().get_or_insert(reason);
    }
}

pub struct Node {
    pub id: NodeId,
    /// What the next start goes by.
    pub config: Rc<RefCell<Config>>,
    pub seen: Rc<Seen>,
}

/// A schema of which the keyspace has so many copies.
fn replicated(schema: &Schema, keyspace: &str, factor: usize) -> Schema {
    let mut next = schema.clone();
    let keyspace = next.keyspaces.get_mut(keyspace).expect("it is there");
    let options = [
        ("class", "SimpleStrategy".to_owned()),
        ("replication_factor", factor.to_string()),
    ];
    Arc::make_mut(keyspace).replication = options.map(|(name, value)| (name.to_owned(), value)).into();
    next.version = Uuid::from_u128(next.version.as_u128() + 1);
    next
}

/// Machines with nodes. The first two are seeds.
pub struct Sea {
    pub sim: Simulation,
    pub nodes: Vec<Node>,
}

impl Sea {
    /// Machines; nothing runs yet.
    pub fn new(seed: u64, count: usize) -> Self {
        let mut sea = Self {
            sim: Simulation::new(seed),
            nodes: Vec::new(),
        };
        for number in 0..count {
            let id = sea.sim.add_node(1);
            let address = SocketAddr::new(sea.sim.address(id), 7000);
            let schema = Arc::new(schema_of(["system".to_owned()]));
            let mut config = Config::new(dir(), "sea", host(number), address, schema);
            config.location.rack = format!("rack{}", number % 3);
            config.num_tokens = 4;
            // Tests of other things need not wait for votes.
            config.vote_after = Duration::ZERO;
            config.features = cluster::FEATURES.iter().map(|feature| (*feature).to_owned()).collect();
            sea.nodes.push(Node {
                id,
                config: Rc::new(RefCell::new(config)),
                seen: Rc::default(),
            });
        }
        let seeds = sea.seeds(0..count.min(2));
        let others: BTreeMap<HostId, Weak<Seen>> = (0..count)
            .map(|number| (host(number), Rc::downgrade(&sea.nodes[number].seen)))
            .collect();
        for node in &sea.nodes {
            node.config.borrow_mut().seeds = seeds.clone();
            *node.seen.others.borrow_mut() = others.clone();
        }
        sea
    }

    /// All machines run, and all nodes are full members.
    pub fn formed(seed: u64, count: usize) -> Self {
        let mut sea = Self::new(seed, count);
        for number in 0..count {
            sea.start(number);
        }
        sea.expect_normal(0..count);
        sea
    }

    /// Makes a table on the token ring, in a keyspace of its own with so many copies.
    pub fn make_ring_table(&mut self, id: TableId, copies: usize) {
        self.make_ring_table_in("ks", id, copies);
    }

    /// Makes a table on the token ring, in a new keyspace of this name with so many copies.
    pub fn make_ring_table_in(&mut self, name: &str, id: TableId, copies: usize) {
        let metadata = self.cluster(0).metadata();
        let columns = vec![Column::new("k", CqlType::Int, ColumnKind::PartitionKey)];
        let table = Table::new(name, "t", id, columns, TableOptions::default());
        let keyspace = Keyspace {
            name: name.to_owned(),
            replication: BTreeMap::new(),
            durable_writes: true,
            tablets: None,
            types: BTreeMap::new(),
            functions: BTreeMap::new(),
            aggregates: BTreeMap::new(),
            tables: BTreeMap::from([(table.name.clone(), Arc::new(table))]),
        };
        let mut next = (*metadata.schema).clone();
        next.keyspaces.insert(keyspace.name.clone(), Arc::new(keyspace));
        let next = replicated(&next, name, copies);
        self.change_schema(next, BTreeMap::new());
        self.expect("all nodes know the table", |views| {
            views
                .iter()
                .all(|view| view.metadata().schema.table_by_id(id).is_some())
        });
    }

    /// Makes a table of so many tablets, all with replicas on these nodes.
    pub fn make_table(&mut self, id: TableId, replicas: &[usize], tablets: u32) {
        self.make_named_table("moving", id, replicas, tablets);
    }

    /// Makes a table with this name and so many tablets, all with replicas on these nodes.
    pub fn make_named_table(&mut self, name: &str, id: TableId, replicas: &[usize], tablets: u32) {
        let metadata = self.cluster(0).metadata();
        let columns = vec![Column::new("k", CqlType::Int, ColumnKind::PartitionKey)];
        let table = Table::new("system", name, id, columns, TableOptions::default());
        let mut next = replicated(&metadata.schema, "system", replicas.len());
        let keyspace = next.keyspaces.get_mut("system").expect("it is there");
        let tables = &mut Arc::make_mut(keyspace).tables;
        tables.insert(table.name.clone(), Arc::new(table));
        let replica = |number: &usize| Replica {
            node: metadata.topology.number(host(*number)).expect("a member"),
            shard: 0,
        };
        let on: Vec<Replica> = replicas.iter().map(replica).collect();
        let log2 = u8::try_from(tablets.trailing_zeros()).expect("a power of two");
        let all: Vec<_> = (0..tablets).map(|_| on.clone().into()).collect();
        let map = TabletMap::new(1, Boundaries::PowerOfTwo(log2), &all).expect("a map");
        let maps = BTreeMap::from([(id, Arc::new(map))]);
        self.change_schema(next, maps);
        self.expect("all nodes know the table", |views| {
            views.iter().all(|view| view.metadata().tablets.contains_key(&id))
        });
    }

    /// Gives the keyspace of the table another number of copies.
    pub fn replicate(&mut self, keyspace: &str, factor: usize) {
        let next = replicated(&self.cluster(0).metadata().schema, keyspace, factor);
        self.change_schema(next, BTreeMap::new());
    }

    /// Gives a keyspace so many copies in each of these datacenters.
    pub fn replicate_in(&mut self, keyspace: &str, factors: &[(&str, usize)]) {
        let mut next = (*self.cluster(0).metadata().schema).clone();
        let changed = next.keyspaces.get_mut(keyspace).expect("it is there");
        let mut options = BTreeMap::from([("class".to_owned(), "NetworkTopologyStrategy".to_owned())]);
        options.extend(
            factors
                .iter()
                .map(|(name, factor)| ((*name).to_owned(), factor.to_string())),
        );
        Arc::make_mut(changed).replication = options;
        next.version = Uuid::from_u128(next.version.as_u128() + 1);
        self.change_schema(next, BTreeMap::new());
    }

    /// Sets the least number of tablets for each table of the keyspace.
    pub fn set_initial(&mut self, keyspace: &str, initial: u32) {
        let mut next = (*self.cluster(0).metadata().schema).clone();
        let changed = next.keyspaces.get_mut(keyspace).expect("it is there");
        Arc::make_mut(changed).tablets = Some(BTreeMap::from([("initial".to_owned(), initial.to_string())]));
        next.version = Uuid::from_u128(next.version.as_u128() + 1);
        self.change_schema(next, BTreeMap::new());
    }

    /// Sets how many tablets the table is to have.
    pub fn set_tablet_options(&mut self, keyspace: &str, id: TableId, options: TabletOptions) {
        let mut next = (*self.cluster(0).metadata().schema).clone();
        let changed = next.keyspaces.get_mut(keyspace).expect("it is there");
        let mut tables = Arc::make_mut(changed).tables.values_mut();
        let table = tables.find(|table| table.id == id).expect("it is there");
        Arc::make_mut(table).options.tablets = Some(options);
        next.version = Uuid::from_u128(next.version.as_u128() + 1);
        self.change_schema(next, BTreeMap::new());
    }

    /// Alters a keyspace so that its tables are to have tablets, or to be on the token ring.
    pub fn set_tablets(&mut self, keyspace: &str, is_enabled: bool) {
        let mut next = (*self.cluster(0).metadata().schema).clone();
        let changed = next.keyspaces.get_mut(keyspace).expect("it is there");
        Arc::make_mut(changed).tablets = Some(BTreeMap::from([("enabled".to_owned(), is_enabled.to_string())]));
        next.version = Uuid::from_u128(next.version.as_u128() + 1);
        self.change_schema(next, BTreeMap::new());
    }

    fn change_schema(&mut self, next: Schema, tablets: BTreeMap<TableId, Arc<TabletMap>>) {
        let metadata = self.cluster(0).metadata();
        let change = SchemaChange {
            tablets,
            ..SchemaChange::between(&metadata.schema, &next)
        };
        let changed = self.on(0, move |cluster| async move {
            cluster.propose(Command::Schema(change)).await
        });
        changed.expect("the schema changes");
    }

    pub fn addresses(&self, numbers: std::ops::Range<usize>) -> Vec<SocketAddr> {
        numbers
            .map(|number| self.nodes[number].config.borrow().internode)
            .collect()
    }

    /// The nodes with these numbers, as seeds of others.
    pub fn seeds(&self, numbers: std::ops::Range<usize>) -> Vec<Seed> {
        self.addresses(numbers).into_iter().map(Seed::from).collect()
    }

    pub fn start(&mut self, number: usize) {
        let (config, seen) = (self.nodes[number].config.clone(), self.nodes[number].seen.clone());
        self.sim.start(self.nodes[number].id, move |shard| {
            let (config, seen) = (config.borrow().clone(), seen.clone());
            Box::pin(async move {
                assert_eq!(shard, ShardId(0));
                run(config, seen).await;
            })
        });
    }

    pub fn crash(&mut self, number: usize, kind: CrashKind) {
        let node = &self.nodes[number];
        self.sim.crash(node.id, kind);
        self.forget(number);
    }

    /// What the test holds of a run that has ended.
    fn forget(&mut self, number: usize) {
        let seen = self.nodes[number].seen.clone();
        self.sim.on_node(self.nodes[number].id, || {
            seen.cluster.take();
            seen.tasks.clear();
        });
        seen.last.take();
        seen.in_flight.set(0);
    }

    pub fn restart(&mut self, number: usize) {
        self.forget(number);
        self.nodes[number].seen.error.take();
        self.sim.restart(self.nodes[number].id);
    }

    /// Whether `Cluster::start` has returned, after which a node lets clients in.
    pub fn has_started(&self, number: usize) -> bool {
        self.nodes[number].seen.cluster.borrow().is_some()
    }

    pub fn cluster(&self, number: usize) -> Rc<Cluster> {
        let cluster = self.nodes[number].seen.cluster.borrow().clone();
        cluster.unwrap_or_else(|| {
            panic!(
                "node {number} is not in its cluster: {:?}",
                self.nodes[number].seen.error.borrow()
            )
        })
    }

    /// Begins a task on a node; the cell gets its output.
    pub fn spawn<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        number: usize,
        task: impl FnOnce(Rc<Cluster>) -> F + 'static,
    ) -> Rc<RefCell<Option<T>>> {
        let node = &self.nodes[number];
        self.sim.spawn(node.id, &node.seen.tasks, task)
    }

    /// Runs a task on a node to its end.
    pub fn on<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        number: usize,
        task: impl FnOnce(Rc<Cluster>) -> F + 'static,
    ) -> T {
        let node = &self.nodes[number];
        self.sim.run_task(node.id, &node.seen.tasks, 60 * SECOND, task)
    }

    pub fn create(&mut self, number: usize, name: &str) -> Result<(), ChangeError> {
        let name = name.to_owned();
        self.on(number, |cluster| async move { create_keyspace(&cluster, &name).await })
    }

    /// Runs until a condition over the running nodes' views holds.
    pub fn expect(&mut self, story: &str, mut holds: impl FnMut(&[Rc<Cluster>]) -> bool) {
        let seen: Vec<_> = self.nodes.iter().map(|node| node.seen.clone()).collect();
        let views = || -> Vec<Rc<Cluster>> { seen.iter().filter_map(|seen| seen.cluster.borrow().clone()).collect() };
        if !self.sim.run_until(90 * SECOND, || holds(&views())) {
            let errors: Vec<_> = seen.iter().map(|seen| seen.error.borrow().clone()).collect();
            let states: Vec<_> = views().iter().map(|cluster| cluster.status()).collect();
            panic!("never happens: {story}; errors {errors:?}; {states:#?}");
        }
    }

    /// These nodes are full members, live to each other, and have the same metadata.
    pub fn expect_normal(&mut self, numbers: std::ops::Range<usize>) {
        let hosts: Vec<HostId> = numbers.clone().map(host).collect();
        self.expect("all are full members with the same metadata", |views| {
            let first = views.first().map(|view| view.metadata());
            views.len() >= hosts.len()
                && views.iter().all(|view| {
                    let metadata = view.metadata();
                    let is_full = |id: &HostId| {
                        view.is_live(*id)
                            && metadata
                                .topology
                                .node(*id)
                                .is_some_and(|node| node.state == NodeState::Normal && node.tokens.len() == 4)
                    };
                    hosts.iter().all(is_full)
                        && first
                            .as_ref()
                            .is_some_and(|first| first.schema == metadata.schema && first.topology == metadata.topology)
                })
        });
    }

    /// Runs until a node has been refused or has ended in an error, and says why.
    pub fn refusal(&mut self, number: usize) -> ClusterError {
        let seen = self.nodes[number].seen.clone();
        let is_refused = self.sim.run_until(150 * SECOND, || seen.error.borrow().is_some());
        assert!(is_refused, "node {number} is not refused");
        seen.error.borrow().clone().expect("it is there")
    }

    /// The number of voters that the running nodes agree on.
    pub fn expect_voters(&mut self, count: usize) {
        self.expect(&format!("{count} voters"), |views| {
            views.iter().all(|view| {
                let raft = view.status().raft;
                raft.voters.len() == count && !raft.is_joint
            })
        });
    }

    pub fn has_files(&mut self, number: usize) -> bool {
        self.sim.on_node(self.nodes[number].id, || runtime::fs::exists(dir()))
    }

    /// The files of a machine.
    pub fn files(&mut self, number: usize) -> DirectoryCopy {
        self.sim.copy_directory(self.nodes[number].id, dir())
    }

    /// Puts files on a machine whose node does not run, in the place of what it has.
    pub fn put_files(&mut self, number: usize, files: &DirectoryCopy) {
        self.sim.put_directory(self.nodes[number].id, files);
    }

    pub fn remove_file(&mut self, number: usize, name: &str) {
        self.sim.on_node(self.nodes[number].id, || {
            runtime::fs::remove_file(dir().join(name)).expect("it is there");
        });
    }

    /// Makes a node that does not run take the metadata from the members.
    pub fn rejoin(&mut self, number: usize) -> Result<String, RejoinError> {
        let seen = self.nodes[number].seen.clone();
        seen.rejoins.set(true);
        seen.rejoined.take();
        self.restart(number);
        let is_done = self.sim.run_until(90 * SECOND, || seen.rejoined.borrow().is_some());
        assert!(is_done, "node {number} neither rejoins nor gives up");
        self.crash(number, CrashKind::Kill);
        seen.rejoined.take().expect("it is done")
    }

    /// All members understand histories, and the last start of each of these nodes is noted.
    pub fn expect_noted(&mut self, numbers: std::ops::Range<usize>) {
        self.expect("the runs of all nodes are noted everywhere", |views| {
            let runs: Vec<_> = views.iter().map(|view| view.status().raft.runs).collect();
            views.iter().all(|view| {
                let metadata = view.metadata();
                numbers.clone().all(|number| {
                    let noted = metadata.run_of(host(number));
                    noted.is_some_and(|noted| runs.iter().any(|runs| runs.last() == Some(&noted.name)))
                })
            })
        });
    }

    /// Copies the files of one machine to another.
    pub fn copy_files(&mut self, from: usize, to: usize) {
        let files = self.files(from);
        self.put_files(to, &files);
    }
}

/// Chance outside the simulation, by a seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 += 1;
        types::token::murmur3_x64_128(&self.0.to_be_bytes(), 7).0 % limit
    }
}

async fn run(config: Config, seen: Rc<Seen>) {
    if seen.rejoins.take() {
        let rpc_config = rpc::Config::new(&config.cluster_name, config.host_id.0);
        let rpc = Rpc::client(rpc_config).expect("a client needs no port");
        let seeds: Vec<SocketAddr> = config.seeds.iter().map(|seed| seed.address).collect();
        let result = cluster::rejoin(&config.dir, config.host_id, &seeds, &rpc, &config.reach).await;
        rpc.stop();
        *seen.rejoined.borrow_mut() = Some(result);
        return;
    }
    let initial = match cluster::load(&config.dir, &config.known()) {
        Ok(initial) => initial,
        Err(error) => {
            *seen.load_error.borrow_mut() = Some(error.to_string());
            return;
        }
    };
    let mut rpc_config = rpc::Config::new(&config.cluster_name, config.host_id.0);
    rpc_config.listen = Some(config.internode);
    rpc_config.limits.ping_interval = SECOND;
    rpc_config.control_verbs = cluster::FIRST_VERB..=cluster::LAST_VERB;
    let rpc = Rpc::start(rpc_config, cluster::handler()).expect("the port is free");
    match Cluster::start(config, rpc.clone(), Rc::new(Notes(seen.clone())), initial).await {
        Ok(cluster) => {
            *seen.cluster.borrow_mut() = Some(cluster.clone());
            drop(runtime::spawn(note_serving(seen.clone(), cluster.clone())));
            seen.tasks.serve(cluster).await;
        }
        Err(error) => {
            rpc.stop();
            *seen.error.borrow_mut() = Some(error);
        }
    }
}

/// Notes when other members begin and cease to serve clients.
async fn note_serving(seen: Rc<Seen>, cluster: Rc<Cluster>) {
    let mut serving: BTreeSet<HostId> = BTreeSet::new();
    loop {
        let changed = cluster.members_changed();
        let members: Vec<HostId> = cluster.metadata().topology.members().map(|node| node.host_id).collect();
        for host in members {
            let serves = cluster.serves_clients(host);
            let is_other = if serves {
                serving.insert(host)
            } else {
                serving.remove(&host)
            };
            if is_other {
                seen.told_clients.borrow_mut().push((host, serves));
            }
        }
        changed.await;
    }
}
