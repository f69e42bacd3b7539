//! A cluster in the simulator: nodes that each have, on every shard, a [`Shard`], an [`Rpc`] and a [`Coordinator`] over
//! one fixed topology, and one table.
//!
//! ```text
//! let mut cluster = Cluster::new(seed, Shape::default());       // three nodes, one shard each, RF 3
//! let result = cluster.on(0, |node| async move { node.coordinator.writes.write(…).await });
//! cluster.kill(1);  cluster.start_again(1);  cluster.split(&[2]);  cluster.heal();
//! ```
//!
//! The table is `sea.t (k blob, c int, v blob, PRIMARY KEY (k, c))`; beside it is `sea.n (k blob, c int, v counter,
//! PRIMARY KEY (k, c))`.

#![allow(dead_code, missing_docs, reason = "each test file uses its part of the cluster")]

mod process;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut, RangeInclusive};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use commitlog::SyncMode;
use coordinator::{
    CasRead, CasRequest, ClusterView, Coordinator, CoordinatorError, Decision, Extent, ReadResult, ReplicatedRead,
    Stretch,
};
use mutation::compact::LiveRow;
use mutation::row::{Cell, Shared};
use mutation::{Addressed, ClusteringSlice, Liveness, MutationBuilder, PartitionBlock, RowBuilder, Tombstone};
use replica::{Shard, TruncationMark};
use rpc::{Limits, Rpc};
use runtime::sim::NodeId;
use schema::{Column, ColumnKind, IndexKind, IndexPart, Table, TableId, TableOptions, TombstoneGc};
use test_node::Machines;
use topology::{Consistency, DiskLevel, HostId, Location, Node, NodeState, Replication, Topology, TopologyCommand};
use types::token::token_of;
use types::{CqlType, Token};
use uuid::Uuid;

pub const SECOND: Duration = Duration::from_secs(1);

/// What a cluster is made of.
#[derive(Clone)]
pub struct Shape {
    /// The datacenter of each node.
    pub datacenters: Vec<&'static str>,
    /// Shards of each node.
    pub shards: u32,
    /// Tablets of each table on each shard.
    pub tablets: u16,
    /// Copies: of all (SimpleStrategy), or by datacenter.
    pub replication: Replication,
    /// When an ordinary write is durable.
    pub sync: SyncMode,
    /// Whether nodes keep hints.
    pub hints: bool,
    /// What may wait on nodes' connections.
    pub limits: Limits,
    /// How long `sea.t` keeps tombstones.
    pub gc_grace_seconds: i32,
    /// Of the table.
    pub tombstone_gc: Option<TombstoneGc>,
    /// Whether reads of `sea.t` repair replicas.
    pub read_repair: &'static str,
    /// Whether acceptors write each promise to its row.
    pub promises_in_rows: bool,
    /// Whether `sea.t` has an index of `v`.
    pub is_indexed: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            datacenters: vec!["north"; 3],
            shards: 1,
            tablets: 1,
            replication: Replication::Simple { factor: 3 },
            sync: SyncMode::Periodic(SECOND),
            hints: false,
            limits: Limits {
                ping_interval: SECOND,
                ..Limits::default()
            },
            gc_grace_seconds: TableOptions::default().gc_grace_seconds,
            tombstone_gc: None,
            read_repair: "BLOCKING",
            promises_in_rows: false,
            is_indexed: false,
        }
    }
}

/// What a task on a shard works with.
#[derive(Clone)]
pub struct Local {
    pub shard: Rc<Shard>,
    pub coordinator: Rc<Coordinator>,
    pub rpc: Rc<Rpc>,
}

/// Nodes, their network, and what runs on them.
pub struct Cluster {
    pub table: Arc<Table>,
    pub topology: Arc<Topology>,
    machines: Machines<Local>,
    /// The version of the last truncation: what all nodes have of the cluster's metadata when they start.
    version: Rc<std::cell::Cell<u64>>,
}

impl Deref for Cluster {
    type Target = Machines<Local>;

    fn deref(&self) -> &Machines<Local> {
        &self.machines
    }
}

impl DerefMut for Cluster {
    fn deref_mut(&mut self) -> &mut Machines<Local> {
        &mut self.machines
    }
}

fn host(number: usize) -> HostId {
    HostId(Uuid::from_u128(number as u128 + 1))
}

/// `sea.t`.
pub fn table() -> Arc<Table> {
    table_of("t", 0x7ea, CqlType::Blob)
}

/// `sea.n`.
pub fn counters() -> Arc<Table> {
    table_of("n", 0x7eb, CqlType::Counter)
}

fn table_of(name: &str, id: u128, value: CqlType) -> Arc<Table> {
    let columns = vec![
        Column::new("k", CqlType::Blob, ColumnKind::PartitionKey),
        Column::new("c", CqlType::Int, ColumnKind::Clustering),
        Column::new("v", value, ColumnKind::Regular),
    ];
    let id = TableId(Uuid::from_u128(id));
    Arc::new(Table::new("sea", name, id, columns, TableOptions::default()))
}

/// Nodes at these addresses, each in a rack of its own, with an equal part of the ring.
fn topology_of(shape: &Shape, addresses: &[SocketAddr]) -> Topology {
    let mut topology = Topology::new("sea", Uuid::from_u128(1));
    let count = i64::try_from(addresses.len()).expect("a test has few nodes");
    let shards = u16::try_from(shape.shards).expect("a node has few shards");
    for ((number, address), datacenter) in (0..).zip(addresses).zip(&shape.datacenters) {
        let host_id = host(number);
        let is_first = number == 0;
        let place = i64::try_from(number).expect("a test has few nodes");
        let node = Node {
            // A proxy: it is no name of a node.
            native: SocketAddr::from(([192, 0, 2, 1], 9042)),
            location: Location {
                datacenter: (*datacenter).to_owned(),
                rack: format!("rack{number}"),
            },
            tokens: vec![Token(i64::MIN / 2 + i64::MAX / count * place)],
            state: if is_first {
                NodeState::Normal
            } else {
                NodeState::Joining
            },
            features: BTreeSet::new(),
            ..test_node::member(host_id, *address, shards)
        };
        let mut apply = |command| topology.apply(&command).expect("the nodes form a cluster");
        apply(TopologyCommand::AddNode(Box::new(node)));
        if !is_first {
            let state = NodeState::Normal;
            apply(TopologyCommand::SetState { host_id, state });
        }
    }
    topology
}

/// `sea.t` with the options of a shape.
fn table_of_shape(shape: &Shape) -> Arc<Table> {
    let mut table = (*table()).clone();
    table.options.gc_grace_seconds = shape.gc_grace_seconds;
    table.options.tombstone_gc = shape.tombstone_gc;
    shape.read_repair.clone_into(&mut table.options.read_repair);
    if shape.is_indexed {
        table.add_index("t_v_idx", ("v", IndexPart::Value), IndexKind::Legacy, BTreeMap::new());
    }
    Arc::new(table)
}

/// The serialised clustering key of a row.
pub fn clustering(c: i32) -> Vec<u8> {
    let mut out = vec![4];
    out.extend_from_slice(&c.to_be_bytes());
    out
}

/// Writes until the log of a node whose disk is full takes nothing more.
pub fn fill_log(cluster: &mut Cluster, node: usize) {
    cluster.on(node, |local| async move {
        let table = table();
        let store = local.shard.store(table.id).expect("the table is open");
        for bytes in [400 << 10, 40 << 10, 4 << 10, 400, 40, 1] {
            let filler = insert(&table, b"filler", 0, &vec![7; bytes], 10);
            let filler = mutation::Mutation::new(&filler).expect("a whole mutation");
            let takes = || local.shard.write(&store, token_of(b"filler"), &filler).is_ok();
            while takes() && local.shard.log.write().is_ok() {}
        }
    });
}

/// The packed mutation of `INSERT INTO t (k, c, v) VALUES (…) USING TIMESTAMP …`.
pub fn insert(table: &Table, key: &[u8], c: i32, v: &[u8], timestamp: i64) -> Vec<u8> {
    insert_rows(table, key, c..=c, v, timestamp)
}

/// The packed mutation that inserts a row for each of these clustering keys.
pub fn insert_rows(table: &Table, key: &[u8], rows: RangeInclusive<i32>, v: &[u8], timestamp: i64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut builder = MutationBuilder::begin(&mut out, table.id, key);
    let shared = Shared {
        timestamp,
        ttl: 0,
        expiry: 0,
    };
    let marker = Liveness {
        timestamp,
        ttl: 0,
        expiry: 0,
    };
    for c in rows {
        builder.row(&clustering(c), |out| {
            RowBuilder::begin(out, &table.layout, shared, Some(marker), Tombstone::NONE, false, 1).value(0, v);
        });
    }
    out
}

/// What `UPDATE n SET v = v + … WHERE k = … AND c = 0` asks to add.
pub fn addition(key: &[u8], number: i64) -> Vec<u8> {
    let (table, mut out) = (counters(), Vec::new());
    let mut builder = MutationBuilder::begin(&mut out, table.id, key);
    let shared = Shared {
        timestamp: 0,
        ttl: 0,
        expiry: 0,
    };
    let value = number.to_be_bytes();
    let cell = Cell {
        timestamp: 0,
        ttl: 0,
        deletion_time: 0,
        dead: false,
        value: &value,
    };
    builder.row(&clustering(0), |out| {
        let mut row = RowBuilder::begin(out, &table.layout, shared, None, Tombstone::NONE, true, 1);
        row.complex(0, Tombstone::NONE, [(&[][..], cell)].into_iter());
    });
    out
}

/// The sum of all counters of blocks.
pub fn sum(blocks: &[PartitionBlock]) -> i64 {
    let table = counters();
    let rows = blocks.iter().flat_map(PartitionBlock::rows);
    let columns = rows.flat_map(|(_, row)| row.columns(&table.layout).collect::<Vec<_>>());
    let elements = columns.flat_map(|(_, column)| match column {
        mutation::Column::Complex(counter) => counter.elements().collect::<Vec<_>>(),
        mutation::Column::Simple(_) => Vec::new(),
    });
    let number = |cell: Cell<'_>| i64::from_be_bytes(cell.value.try_into().expect("a sum has eight bytes"));
    elements.map(|(_, cell)| number(cell)).sum()
}

/// The packed mutation of `DELETE FROM t USING TIMESTAMP … WHERE k = … AND c = …`.
pub fn delete(table: &Table, key: &[u8], c: i32, timestamp: i64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut builder = MutationBuilder::begin(&mut out, table.id, key);
    let shared = Shared {
        timestamp: 0,
        ttl: 0,
        expiry: 0,
    };
    let tombstone = Tombstone {
        timestamp,
        deletion_time: wall_seconds(),
    };
    builder.row(&clustering(c), |out| {
        RowBuilder::begin(out, &table.layout, shared, None, tombstone, false, 0);
    });
    out
}

/// The column `v` of the rows of blocks, by `c`.
pub fn rows(table: &Table, blocks: &[PartitionBlock]) -> BTreeMap<i32, Vec<u8>> {
    let mut found = BTreeMap::new();
    for block in blocks {
        for (key, row) in block.rows() {
            let c = i32::from_be_bytes(key[1..5].try_into().expect("an int has four bytes"));
            for (_, column) in row.columns(&table.layout) {
                if let mutation::Column::Simple(cell) = column {
                    found.insert(c, cell.value.to_vec());
                }
            }
        }
    }
    found
}

/// The rows of blocks that a client would see, by `c`.
pub fn live_rows(table: &Table, blocks: &[PartitionBlock]) -> Vec<i32> {
    let mut found = Vec::new();
    for block in blocks {
        for (key, row) in block.rows() {
            let deletion = block.deletion_of(&table.clustering_order, key);
            if LiveRow::new(row, &table.layout, deletion, wall_seconds()).is_live() {
                found.push(i32::from_be_bytes(key[1..5].try_into().expect("an int has four bytes")));
            }
        }
    }
    found
}

/// Every partition as a read's extent.
pub fn everything() -> Extent {
    let (after, to) = (Token(i64::MIN), Token(i64::MAX));
    Extent::Tokens {
        after,
        to,
        from: (after, Vec::new()),
        inside: None,
    }
}

/// A packed mutation with its address.
pub fn addressed(mutation: Vec<u8>) -> Addressed {
    Addressed::new(mutation).expect("a whole mutation")
}

/// A whole partition as a read's extent.
pub fn partition(key: &[u8]) -> Extent {
    Extent::Partition {
        key: key.to_vec(),
        slices: vec![ClusteringSlice::all()],
        reversed: false,
    }
}

impl Local {
    /// A write that is dated now.
    pub fn dated(&self, level: Consistency) -> coordinator::Dated {
        self.coordinator.writes.date(level, coordinator::Deadline::USUAL)
    }

    /// Writes one row through the coordinator.
    pub async fn insert(
        &self,
        key: &[u8],
        c: i32,
        v: &[u8],
        timestamp: i64,
        level: Consistency,
    ) -> Result<(), coordinator::CoordinatorError> {
        let mutation = insert(&table(), key, c, v, timestamp);
        let kind = coordinator::WriteKind::Simple;
        let mutations = vec![addressed(mutation)];
        self.coordinator
            .writes
            .write(mutations, &self.dated(level), kind, coordinator::Atomicity::Mutation)
            .await
    }

    /// Deletes one row through the coordinator.
    pub async fn delete(
        &self,
        key: &[u8],
        c: i32,
        timestamp: i64,
        level: Consistency,
    ) -> Result<(), coordinator::CoordinatorError> {
        let mutation = delete(&table(), key, c, timestamp);
        let kind = coordinator::WriteKind::Simple;
        let mutations = vec![addressed(mutation)];
        self.coordinator
            .writes
            .write(mutations, &self.dated(level), kind, coordinator::Atomicity::Mutation)
            .await
    }

    /// Reads a partition through the coordinator.
    pub async fn select(
        &self,
        key: &[u8],
        level: Consistency,
    ) -> Result<BTreeMap<i32, Vec<u8>>, coordinator::CoordinatorError> {
        // With the options of the shape, where this node has the table.
        let table = self.shard.store(table().id).map_or_else(table, |store| store.table());
        let mut read = self.read(&table, partition(key), level, 100)?;
        let mut blocks = Vec::new();
        while let Some(block) = read.next_block().await? {
            blocks.push(block);
        }
        Ok(rows(&table, &blocks))
    }

    /// Begins a read through the coordinator, some rows at a time.
    pub fn read(
        &self,
        table: &Arc<Table>,
        extent: Extent,
        level: Consistency,
        rows: usize,
    ) -> Result<ReplicatedRead, coordinator::CoordinatorError> {
        let (view, stretch) = (self.coordinator.context.view(), Stretch { rows, bytes: 1 << 20 });
        ReplicatedRead::new(
            &self.coordinator.reads,
            &view,
            table,
            level,
            extent,
            wall_seconds(),
            stretch,
        )
    }
}

/// The value of a register: the row `c = 0` of a partition, 0 while there is none.
fn register(table: &Table, blocks: &[PartitionBlock]) -> u64 {
    let value = rows(table, blocks).remove(&0);
    value.map_or(0, |v| {
        u64::from_be_bytes(v.try_into().expect("registers hold eight bytes"))
    })
}

/// What reads a whole partition.
pub fn read_of(key: &[u8]) -> CasRead {
    CasRead {
        extent: partition(key),
        stretch: Stretch {
            rows: 100,
            bytes: 1 << 20,
        },
    }
}

fn wall_seconds() -> u32 {
    u32::try_from(runtime::wall_clock_us() / 1_000_000).unwrap_or(0)
}

impl Local {
    /// What a node does first when the metadata have a truncation: from now on it takes no requests from before it.
    pub fn hear_of_truncation(&self, table: TableId, version: u64) {
        let store = self.shard.store(table).expect("the table is open");
        let former = self.coordinator.context.view();
        let truncations = former.truncations().chain([(table, version)]).collect();
        let next = (*former)
            .clone()
            .at(version.max(former.version), former.fence)
            .truncated(truncations);
        store.set_version(version.max(former.version), former.fence, version);
        self.coordinator.set_view(Arc::new(next));
    }

    /// A part of what a node does when the metadata have a truncation; see `coordinator/src/truncate.rs`.
    pub async fn take_truncation(&self, table: TableId, version: u64) -> Result<(), String> {
        self.hear_of_truncation(table, version);
        let store = self.shard.store(table).expect("the table is open");
        self.coordinator.forget_table(table).await?;
        let marked = TruncationMark::of(&store.dir).write(version);
        marked.map_err(|e| e.to_string())?;
        store.set_truncated_at(version);
        Ok(())
    }

    /// Sets a register to `to` if it is `from`; what it was, if it was another.
    pub async fn swap(
        &self,
        key: &[u8],
        (from, to): (u64, u64),
        (serial, commit): (Consistency, Consistency),
        timeout: Duration,
    ) -> Result<Result<(), u64>, CoordinatorError> {
        // With the options of the shape.
        let table = self.shard.store(table().id).map_or_else(table, |store| store.table());
        let request = CasRequest {
            table: table.clone(),
            key: key.to_vec(),
            reads: vec![read_of(key)],
            now: wall_seconds(),
            serial,
            commit,
            deadline: runtime::now() + timeout,
            contention_deadline: runtime::now() + timeout,
            timestamp_us: runtime::wall_clock_us(),
            memory: None,
        };
        let mut seen = 0;
        let mut decide = |found: &mut [ReadResult], timestamp: i64| {
            assert!(found[0].is_all, "a small partition is read at once");
            seen = register(&table, &found[0].blocks);
            if seen != from {
                return Decision::Keep;
            }
            Decision::Write(insert(&table, key, 0, &to.to_be_bytes(), timestamp))
        };
        let is_swapped = self.coordinator.cas.compare_and_set(&request, &mut decide).await?;
        Ok(if is_swapped { Ok(()) } else { Err(seen) })
    }

    /// Adds one to a register, whatever it is.
    pub async fn increment(&self, key: &[u8], timeout: Duration) -> Result<bool, CoordinatorError> {
        self.increment_until(key, timeout, timeout).await
    }

    /// Adds one to a register, and gives up earlier when others come before it.
    pub async fn increment_until(
        &self,
        key: &[u8],
        timeout: Duration,
        contention: Duration,
    ) -> Result<bool, CoordinatorError> {
        let table = table();
        let decide =
            |value: u64, timestamp: i64| Decision::Write(insert(&table, key, 0, &(value + 1).to_be_bytes(), timestamp));
        self.change(key, timeout, contention, decide).await
    }

    /// Sets a register whose row was written at `above`.
    pub async fn swap_above(&self, key: &[u8], (from, to): (u64, u64), above: i64) -> Result<bool, CoordinatorError> {
        let table = table();
        let decide = |value: u64, timestamp: i64| {
            if timestamp <= above {
                return Decision::Above(above);
            }
            assert_eq!(value, from, "the row is read");
            Decision::Write(insert(&table, key, 0, &to.to_be_bytes(), timestamp))
        };
        self.change(key, SECOND, SECOND, decide).await
    }

    async fn change(
        &self,
        key: &[u8],
        timeout: Duration,
        contention: Duration,
        decide: impl Fn(u64, i64) -> Decision,
    ) -> Result<bool, CoordinatorError> {
        let table = table();
        let request = CasRequest {
            table: table.clone(),
            key: key.to_vec(),
            reads: vec![read_of(key)],
            now: wall_seconds(),
            serial: Consistency::Serial,
            commit: Consistency::Quorum,
            deadline: runtime::now() + timeout,
            contention_deadline: runtime::now() + contention,
            timestamp_us: runtime::wall_clock_us(),
            memory: None,
        };
        let mut decide =
            |found: &mut [ReadResult], timestamp: i64| decide(register(&table, &found[0].blocks), timestamp);
        self.coordinator.cas.compare_and_set(&request, &mut decide).await
    }

    /// Reads a register at a serial level.
    pub async fn read_register(
        &self,
        key: &[u8],
        serial: Consistency,
        timeout: Duration,
    ) -> Result<u64, CoordinatorError> {
        let (table, deadline) = (table(), runtime::now() + timeout);
        let read = self
            .coordinator
            .cas
            .serial_read(&table, read_of(key), usize::MAX, serial, wall_seconds(), deadline);
        Ok(register(&table, &read.await?.blocks))
    }
}

impl Cluster {
    /// What a node counts of the hints that it keeps.
    pub fn hint_metrics(&self, node: usize) -> hints::Metrics {
        let hints = self.local(node).coordinator.hints.kept();
        hints.expect("it keeps hints").metrics()
    }

    /// A cluster whose nodes all run and know each other as alive.
    pub fn new(seed: u64, shape: Shape) -> Self {
        let mut machines = Machines::new(seed);
        let addresses: Vec<SocketAddr> = shape.datacenters.iter().map(|_| machines.add(shape.shards)).collect();
        let (table, topology) = (table_of_shape(&shape), Arc::new(topology_of(&shape, &addresses)));
        let mut cluster = Self {
            table: table.clone(),
            topology: topology.clone(),
            machines,
            version: Rc::default(),
        };
        for number in 0..addresses.len() {
            let host = host(number);
            let keyspaces = [("sea", shape.replication.clone(), vec![table.id, counters().id])];
            let view = ClusterView::new(topology.clone(), host, keyspaces.into_iter(), &BTreeMap::new());
            let view = view.expect("the node is a member");
            let (shape, table, version) = (shape.clone(), table.clone(), Rc::clone(&cluster.version));
            let prepare = {
                let (shape, table) = (shape.clone(), table.clone());
                move || process::prepare(&shape, &table, host)
            };
            cluster.start(number, prepare, move |boot| {
                let view = match version.get() {
                    0 => view.clone(),
                    version => view
                        .clone()
                        .at(version, 0)
                        .truncated(BTreeMap::from([(table.id, version)])),
                };
                process::live(boot, shape.clone(), Arc::new(view), host)
            });
        }
        cluster.simulation.run_for(Duration::from_millis(20));
        cluster
    }

    /// The replicas of a partition as the first node sees them: nodes, and the shards that the token belongs to.
    pub fn replicas(&self, key: &[u8]) -> Vec<topology::Replica> {
        let local = self.local(0);
        let view = local.coordinator.context.view();
        let route = view.route(self.table.id).expect("the table has a route");
        route.map.tablet_of(token_of(key)).replicas.to_vec()
    }

    /// Sets on all nodes whether they believe a node to be alive, as a failure detector does.
    pub fn set_live(&mut self, node: usize, is_live: bool) {
        let number = self.topology.number(host(node)).expect("it is a member");
        for local in self.locals() {
            local.coordinator.set_live(number, is_live);
        }
    }

    /// Makes a node look whether its log takes writes, and notifies all nodes: what detector messages do. Returns
    /// whether it does.
    pub fn announce_log(&mut self, node: usize) -> bool {
        let log = self.local(node).shard.log.clone();
        let id = self.id(node);
        let takes = self.simulation.on_node(id, || {
            log.try_again();
            log.trouble().is_none()
        });
        let number = self.topology.number(host(node)).expect("it is a member");
        for local in self.locals() {
            local.coordinator.set_takes_writes(number, takes);
        }
        takes
    }

    /// Sets on these nodes whether they take a node's disk for full, as detector messages do.
    pub fn announce_disk(&mut self, node: usize, is_full: bool, hearers: &[usize]) {
        let number = self.topology.number(host(node)).expect("it is a member");
        for hearer in hearers {
            self.on(*hearer, move |local| async move {
                let level = if is_full {
                    DiskLevel::Critical
                } else {
                    DiskLevel::Normal
                };
                local.coordinator.set_disk_level(number, level);
            });
        }
    }

    /// Cuts some nodes off from the rest.
    pub fn split(&mut self, nodes: &[usize]) {
        let (one, other) = self.sides(nodes);
        self.simulation.partition(&one, &other);
    }

    /// Joins what [`Cluster::split`] cut off.
    pub fn heal(&mut self, nodes: &[usize]) {
        let (one, other) = self.sides(nodes);
        self.simulation.heal(&one, &other);
    }

    fn sides(&self, nodes: &[usize]) -> (Vec<NodeId>, Vec<NodeId>) {
        let (one, other): (Vec<_>, Vec<_>) = (0..self.count()).partition(|n| nodes.contains(n));
        let ids = |side: Vec<usize>| side.into_iter().map(|n| self.id(n)).collect();
        (ids(one), ids(other))
    }

    /// Truncates `sea.t` as a cluster does: the nodes hear of it one after the other, the later ones after `delay` more
    /// each. Returns the answer that the coordinator gets; every node that runs has done it when this returns.
    pub fn truncate(&mut self, coordinator: usize, delay: Duration) -> Result<(), String> {
        self.truncate_but(coordinator, delay, usize::MAX)
    }

    /// Truncates `sea.t` as [`Cluster::truncate`] does, but one node may end before it is done; that node gets a
    /// second.
    pub fn truncate_but(&mut self, coordinator: usize, delay: Duration, lost: usize) -> Result<(), String> {
        let table = self.table.id;
        let is_up: Vec<bool> = (0..self.count()).map(|node| self.serves(node)).collect();
        coordinator::replicas_to_truncate(&self.local(coordinator).coordinator.context, table)?;
        let version = 1 + self.version.get();
        self.version.set(version);
        let mut done = Vec::new();
        for (place, node) in (0u32..).zip((0..is_up.len()).map(|n| (coordinator + n) % is_up.len())) {
            if !is_up[node] {
                continue;
            }
            for shard in 0..self.shards(node) {
                let part = self.spawn_on(node, shard, move |local| async move {
                    runtime::sleep(delay * place).await;
                    local.take_truncation(table, version).await
                });
                if node != lost {
                    done.push(part);
                }
            }
        }
        let is_done = self
            .simulation
            .run_until(Duration::from_mins(10), || done.iter().all(|d| d.borrow().is_some()));
        assert!(is_done, "the truncation hangs");
        if lost != usize::MAX {
            self.simulation.run_for(SECOND);
        }
        done.into_iter().try_for_each(|d| d.take().expect("it is done"))
    }

    /// Purges what may be purged on some nodes.
    pub fn compact(&mut self, nodes: &[usize]) {
        for node in nodes {
            self.on(*node, |node| async move {
                node.shard.forget_old_log().await;
                node.shard.flush_all().await.expect("it flushes");
                node.shard.compact_all().await.expect("it compacts");
            });
        }
    }
}
