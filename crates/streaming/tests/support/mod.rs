//! Nodes of one shard each in the simulator, with the table `sea.t (k int PRIMARY KEY, v blob)`, that copy from each
//! other.
//!
//! ```text
//! let mut cluster = Cluster::new(1, &[WHOLE, WHOLE]);
//! cluster.on(0, |node| async move { node.write(7, 10).await });
//! cluster.pull(1, WHOLE, &[0]).expect("nothing fails");
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mutation::compact::{LiveColumn, LiveRow};
use mutation::row::Shared;
use mutation::{ClusteringSlice, Liveness, Mutation, MutationBuilder, RowBuilder, Tombstone};
use replica::{BlockLimits, INCOMING, PartitionRead, PartitionReader, STREAMS, Shard, TableStore, TokenRange};
use rpc::{Limits, Peer, Rpc};
use runtime::ShardId;
use schema::{Column, ColumnKind, Table, TableId, TableOptions};
use streaming::{PART_BYTES, Pulled, Request, Source, StreamError};
use tasks::Origin;
use test_node::{Hosted, Machines, Options, Process};
use types::token::{KeyHash, token_of};
use types::{CqlType, Token};
use uuid::Uuid;

pub const SECOND: Duration = Duration::from_secs(1);
pub const MOMENT: Duration = Duration::from_millis(1);

pub const WHOLE: TokenRange = TokenRange::ALL;
/// The ring cut in two.
pub const LOW: TokenRange = TokenRange {
    after: Token(i64::MIN),
    to: Token(0),
};
pub const HIGH: TokenRange = TokenRange {
    after: Token(0),
    to: Token(i64::MAX),
};

/// What a client sees: for each key the time of its row.
pub type Rows = BTreeMap<u32, i64>;

/// The table, whose deletions may be forgotten at once.
pub fn table() -> Table {
    let columns = vec![
        Column::new("k", CqlType::Int, ColumnKind::PartitionKey),
        Column::new("v", CqlType::Blob, ColumnKind::Regular),
    ];
    let options = TableOptions {
        gc_grace_seconds: 0,
        ..TableOptions::default()
    };
    Table::new("sea", "t", TableId(Uuid::from_u128(7)), columns, options)
}

pub fn table_dir() -> PathBuf {
    replica::table_dir(Path::new("/data"), &table())
}

pub fn session() -> Uuid {
    Uuid::from_u128(0x5e55)
}

/// The value of a row: of its key and time, and of no use to a compressor.
fn value(k: u32, at: i64, len: usize) -> Vec<u8> {
    let mut state = u64::from(k) << 32 ^ at.cast_unsigned() ^ 0x9e37_79b9_7f4a_7c15;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes: Vec<u8> = at.to_be_bytes().to_vec();
    while bytes.len() < len {
        bytes.extend_from_slice(&next());
    }
    bytes
}

/// The insert of a row, or its deletion.
fn mutation(table: &Table, k: u32, at: i64, len: Option<usize>) -> Vec<u8> {
    let mut out = Vec::new();
    let (ttl, expiry, timestamp) = (0, 0, at);
    let shared = Shared { timestamp, ttl, expiry };
    let marker = Liveness { timestamp, ttl, expiry };
    MutationBuilder::begin(&mut out, table.id, &k.to_be_bytes()).row(&[], |out| match len {
        Some(len) => {
            let id = usize::from(table.column("v").expect("a column").id.0);
            let value = value(k, at, len);
            let mut row = RowBuilder::begin(out, &table.layout, shared, Some(marker), Tombstone::NONE, false, id + 1);
            row.value(id, &value);
        }
        None => {
            let deletion = Tombstone {
                timestamp,
                deletion_time: 1,
            };
            RowBuilder::begin(out, &table.layout, shared, None, deletion, false, 0);
        }
    });
    out
}

/// Result of a copy that has ended.
pub type Pulling = Rc<RefCell<Option<Result<Pulled, StreamError>>>>;

/// What a task on a node works with.
#[derive(Clone)]
pub struct Local {
    pub shard: Rc<Shard>,
    pub rpc: Rc<Rpc>,
}

impl Local {
    pub fn store(&self) -> Rc<TableStore> {
        self.shard.store(table().id).expect("the table is open")
    }

    pub async fn apply(&self, k: u32, at: i64, len: Option<usize>) {
        let store = self.store();
        let bytes = mutation(&store.table(), k, at, len);
        let (mutation, token) = (Mutation::new(&bytes).expect("a whole one"), token_of(&k.to_be_bytes()));
        if store.tablet(token).is_none() {
            return;
        }
        let logged = self.shard.write(&store, token, &mutation).expect("there is room");
        let position = self.shard.commit(&logged).expect("the log takes it");
        self.shard.log.synced(position).await.expect("the log takes it");
    }

    /// Inserts a row, where its token is here.
    pub async fn write(&self, k: u32, at: i64) {
        self.apply(k, at, Some(100)).await;
    }

    pub async fn delete(&self, k: u32, at: i64) {
        self.apply(k, at, None).await;
    }

    pub async fn flush(&self) {
        self.shard.flush_all().await.expect("the disk works");
    }

    pub async fn compact(&self) {
        self.shard.compact_all().await.expect("the disk works");
    }

    /// The rows of these keys that live here, and that each has the value that was written with it.
    pub async fn rows(&self, keys: std::ops::Range<u32>) -> Rows {
        let (store, mut rows) = (self.store(), Rows::new());
        let v = store.table().column("v").map(|column| usize::from(column.id.0));
        for k in keys {
            let key = k.to_be_bytes();
            let Some(tablet) = store.tablet(token_of(&key)) else {
                continue;
            };
            let read = PartitionRead {
                hash: KeyHash::of(&key),
                key: key.to_vec(),
                slices: vec![ClusteringSlice::all()],
                reversed: false,
                limits: BlockLimits {
                    rows: 10,
                    bytes: 1 << 20,
                },
            };
            let (table, version) = (store.table(), tablet.version());
            let mut reader = PartitionReader::new(table.clone(), version, self.shard.cache.clone(), read);
            while let Some(block) = reader.next_block().await.expect("the files can be read") {
                for (_, row) in block.rows() {
                    let live = LiveRow::new(row, &table.layout, block.tombstone, 1_000);
                    if !live.is_live() {
                        continue;
                    }
                    let cell = live.columns().find(|(id, _)| Some(*id) == v);
                    let Some((_, LiveColumn::Simple(cell))) = cell else {
                        panic!("row {k} has no value");
                    };
                    let at = i64::from_be_bytes(cell.value[..8].try_into().expect("eight bytes"));
                    assert_eq!(cell.value, value(k, at, cell.value.len()), "the value of row {k}");
                    assert!(rows.insert(k, at).is_none(), "row {k} is there twice");
                }
            }
        }
        rows
    }

    /// What a node does when the cluster truncates the table.
    pub async fn truncate(&self, version: u64) {
        test_node::truncate(&self.shard, &self.store(), version).await;
    }

    /// Copies a range from nodes, as a task of its own.
    pub async fn pull(&self, range: TokenRange, sources: Vec<Source>) -> Result<Pulled, StreamError> {
        self.pull_of(table().id, range, sources).await
    }

    /// Copies a range from nodes with the marks of repairs.
    pub async fn pull_with_marks(&self, range: TokenRange, sources: Vec<Source>) -> Result<Pulled, StreamError> {
        self.pull_as((table().id, true, PART_BYTES), &[range], sources).await
    }

    /// Copies a range of the table with that id from nodes.
    pub async fn pull_of(&self, id: TableId, range: TokenRange, sources: Vec<Source>) -> Result<Pulled, StreamError> {
        self.pull_as((id, false, PART_BYTES), &[range], sources).await
    }

    /// Copies ranges from nodes together, so many bytes at once.
    pub async fn pull_ranges(
        &self,
        ranges: &[TokenRange],
        part_bytes: u64,
        sources: Vec<Source>,
    ) -> Result<Pulled, StreamError> {
        self.pull_as((table().id, false, part_bytes), ranges, sources).await
    }

    async fn pull_as(
        &self,
        (id, with_marks, part_bytes): (TableId, bool, u64),
        ranges: &[TokenRange],
        sources: Vec<Source>,
    ) -> Result<Pulled, StreamError> {
        let Some(store) = self.shard.store(id) else {
            return Err(StreamError::UnknownTable);
        };
        let request = Request {
            table: id,
            ranges: ranges.to_vec(),
            part_bytes,
            sources,
            truncated_at: 0,
            session: session(),
            with_marks,
        };
        let task = streaming::kinds::stream_tablet(&self.shard, &store, ranges, &Origin::Node);
        let pulled = streaming::pull(&self.rpc, &self.shard, &request, &task).await;
        task.end(&pulled);
        pulled
    }
}

/// Streams whose directories are there. Blocks.
pub fn stream_dirs() -> Vec<String> {
    let mut found = Vec::new();
    for kind in [STREAMS, INCOMING] {
        let dir = table_dir().join(kind);
        if runtime::fs::exists(&dir) {
            let entries = runtime::fs::read_dir(&dir).expect("the disk works");
            found.extend(entries.into_iter().map(|entry| format!("{kind}/{}", entry.name)));
        }
    }
    found
}

/// Whether a copy is on its way that has bytes. Blocks.
fn has_bytes() -> bool {
    let dir = table_dir().join(INCOMING);
    let files = |name: &str| runtime::fs::read_dir(dir.join(name)).expect("the disk works");
    runtime::fs::exists(&dir)
        && stream_dirs()
            .iter()
            .filter_map(|name| name.strip_prefix("incoming/"))
            .any(|name| files(name).iter().any(|file| file.len > 0))
}

pub struct Cluster {
    machines: Machines<Local>,
    addresses: Vec<SocketAddr>,
    /// The table as each node knows it.
    tables: Vec<Rc<RefCell<Arc<Table>>>>,
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

fn host(number: usize) -> Uuid {
    Uuid::from_u128(number as u128 + 1)
}

impl Cluster {
    /// Nodes with these tokens of the table.
    pub fn new(seed: u64, ranges: &[TokenRange]) -> Self {
        let mut cluster = Self {
            machines: Machines::new(seed),
            addresses: Vec::new(),
            tables: Vec::new(),
        };
        for (number, range) in ranges.iter().copied().enumerate() {
            let address = cluster.add(1);
            let known = Rc::new(RefCell::new(Arc::new(table())));
            cluster.addresses.push(address);
            cluster.tables.push(known.clone());
            let prepare = move || prepare(host(number), known.borrow().clone(), range);
            cluster.start(number, prepare, move |process| start(process, host(number), address));
        }
        for number in 0..ranges.len() {
            cluster.await_start(number);
        }
        cluster
    }

    pub fn source(&self, number: usize) -> Source {
        Source {
            peer: Peer::new(host(number), self.addresses[number]),
            shard: 0,
        }
    }

    /// Changes the table as a node knows it, as of its next start too.
    pub fn alter(&mut self, number: usize, change: impl FnOnce(&mut Table) + 'static) {
        let known = &self.tables[number];
        let mut table = (**known.borrow()).clone();
        change(&mut table);
        let table = Arc::new(table);
        *known.borrow_mut() = table.clone();
        self.on(
            number,
            |local| async move { test_node::alter(&local.shard, table).await },
        );
    }

    pub fn begin_pull(&mut self, to: usize, range: TokenRange, from: &[usize]) -> Pulling {
        let sources = from.iter().map(|number| self.source(*number)).collect();
        self.spawn(to, move |local| async move { local.pull(range, sources).await })
    }

    pub fn pull(&mut self, to: usize, range: TokenRange, from: &[usize]) -> Result<Pulled, StreamError> {
        let sources = from.iter().map(|number| self.source(*number)).collect();
        self.on(to, move |local| async move { local.pull(range, sources).await })
    }

    pub fn pull_ranges(
        &mut self,
        to: usize,
        (ranges, part_bytes): (&[TokenRange], u64),
        from: &[usize],
    ) -> Result<Pulled, StreamError> {
        let sources = from.iter().map(|number| self.source(*number)).collect();
        let ranges = ranges.to_vec();
        self.on(to, move |local| async move {
            local.pull_ranges(&ranges, part_bytes, sources).await
        })
    }

    pub fn begin_pull_with_marks(&mut self, to: usize, range: TokenRange, from: &[usize]) -> Pulling {
        let sources = from.iter().map(|number| self.source(*number)).collect();
        self.spawn(
            to,
            move |local| async move { local.pull_with_marks(range, sources).await },
        )
    }

    pub fn pull_with_marks(&mut self, to: usize, range: TokenRange, from: &[usize]) -> Result<Pulled, StreamError> {
        let sources = from.iter().map(|number| self.source(*number)).collect();
        self.on(
            to,
            move |local| async move { local.pull_with_marks(range, sources).await },
        )
    }

    pub fn rows(&mut self, number: usize, keys: std::ops::Range<u32>) -> Rows {
        self.on(number, move |local| async move { local.rows(keys).await })
    }

    /// Runs until a node has received some bytes of a copy and not all.
    pub fn await_bytes(&mut self, number: usize) {
        self.slow_disks();
        let id = self.id(number);
        for _ in 0..1_000 {
            self.simulation.run_for(MOMENT);
            if self.simulation.on_node(id, has_bytes) {
                return;
            }
        }
        panic!("no bytes come to node {number}");
    }

    /// Streams whose directories a node has, once a close had the time to arrive.
    pub fn leftovers(&mut self, number: usize) -> Vec<String> {
        self.simulation.run_for(3 * SECOND);
        let id = self.id(number);
        self.simulation.on_node(id, stream_dirs)
    }

    pub fn dirs(&mut self, number: usize) -> Vec<String> {
        let id = self.id(number);
        self.simulation.on_node(id, stream_dirs)
    }
}

/// What a run before left on a node's disk.
fn prepare(host_id: Uuid, table: Arc<Table>, range: TokenRange) -> Process {
    let of_acceptors = Arc::new(Table {
        id: replica::paxos_state_id(table.id),
        name: "t$paxos".to_owned(),
        ..(*table).clone()
    });
    let hosted = [table, of_acceptors].map(|table| Hosted {
        table,
        tablets: vec![vec![range]],
    });
    let options = Options {
        host_id,
        dirty_bytes_max: 64 << 20,
        ..Options::default()
    };
    let process = Process::start(options, hosted.to_vec());
    assert_eq!(stream_dirs(), Vec::<String>::new(), "a start removes what streams left");
    process
}

async fn start(process: Rc<Process>, host: Uuid, address: SocketAddr) -> Local {
    let shard = process.open(ShardId(0));
    process.recover(std::slice::from_ref(&shard)).await;
    runtime::set_local(shard.clone());
    let store = shard.store(table().id).expect("the table is open");
    let truncated_at = store.truncated_at.get();
    store.set_version(truncated_at, 0, truncated_at);
    let config = rpc::Config {
        listen: Some(address),
        limits: Limits {
            ping_interval: SECOND,
            ..Limits::default()
        },
        ..rpc::Config::new("sea", host)
    };
    let rpc = Rpc::start(config, streaming::handler()).expect("the port is free");
    Local { shard, rpc }
}

/// A short name of a result.
pub fn name_of<T>(result: &Result<T, StreamError>) -> &'static str {
    match result {
        Ok(_) => "copied",
        Err(StreamError::UnknownTable) => "unknown table",
        Err(StreamError::NotHere) => "not here",
        Err(StreamError::NotTruncated) => "not truncated",
        Err(StreamError::Lost(_)) => "lost",
        Err(StreamError::SchemaDiffers) => "schema differs",
        Err(StreamError::Refused { .. }) => "refused",
        Err(StreamError::Unreachable { .. }) => "unreachable",
        Err(StreamError::Damaged(_)) => "damaged",
        Err(StreamError::DiskFull(_)) => "disk full",
        Err(StreamError::Disk(_)) => "disk",
        Err(StreamError::Aborted) => "aborted",
    }
}
