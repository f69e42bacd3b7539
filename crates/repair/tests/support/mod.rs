//! Nodes of one shard each in the simulator, each a replica of all of `sea.t`, that are repaired.
//!
//! ```text
//! let mut sea = Sea::new(1, 3, &wide());
//! sea.on(0, async |node| node.apply(&[write]).await);
//! sea.repair(0, Mode::Repair).expect("nothing fails");
//! ```

pub mod writer;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mutation::compact::{Purge, compact_block};
use mutation::merge::merge_blocks;
use mutation::{Cell, Column, Mutation, PartitionBlock, RowView, Tombstone};
use repair::{Marks, Mode, Participant, RepairError, Repaired, Request};
use replica::{BlockLimits, Shard, TableStore, TabletScan, TokenRange};
use rpc::{Limits, Peer, Rpc};
use runtime::ShardId;
use schema::{ColumnKind, Table, TableId, TableOptions};
use tasks::Origin;
use test_node::{Hosted, Machines, Options, Process};
use types::token::token_of;
use types::{CqlType, Token};
use uuid::Uuid;

pub const SECOND: Duration = Duration::from_secs(1);
pub const HOUR: Duration = Duration::from_hours(1);
pub const MOMENT: Duration = Duration::from_millis(1);
pub const WHOLE: TokenRange = TokenRange::ALL;
pub const LOW: TokenRange = TokenRange {
    after: Token(i64::MIN),
    to: Token(0),
};
/// Seconds that deletions of the tables are kept.
pub const GRACE: u32 = 1_000;

fn table_of(columns: &[(&str, &str, ColumnKind)]) -> Table {
    let column = |(name, cql_type, kind): &(&str, &str, ColumnKind)| {
        schema::Column::new(name, CqlType::parse_native(cql_type).expect("a type"), *kind)
    };
    let options = TableOptions {
        gc_grace_seconds: i32::try_from(GRACE).expect("small"),
        ..TableOptions::default()
    };
    let columns = columns.iter().map(column).collect();
    Table::new("sea", "t", TableId(Uuid::from_u128(7)), columns, options)
}

/// `(k int, c int, s int static, sm map<int, blob> static, a int, e set<blob>, f frozen<list<int>>, m map<int, blob>)`.
pub fn wide() -> Table {
    table_of(&[
        ("k", "int", ColumnKind::PartitionKey),
        ("c", "int", ColumnKind::Clustering),
        ("s", "int", ColumnKind::Static),
        ("sm", "map<int, blob>", ColumnKind::Static),
        ("a", "int", ColumnKind::Regular),
        ("e", "set<blob>", ColumnKind::Regular),
        ("f", "frozen<list<int>>", ColumnKind::Regular),
        ("m", "map<int, blob>", ColumnKind::Regular),
    ])
}

/// `(k int, c int, n counter)`.
pub fn counting() -> Table {
    table_of(&[
        ("k", "int", ColumnKind::PartitionKey),
        ("c", "int", ColumnKind::Clustering),
        ("n", "counter", ColumnKind::Regular),
    ])
}

/// `(k int, c int, v blob)`.
pub fn plain() -> Table {
    table_of(&[
        ("k", "int", ColumnKind::PartitionKey),
        ("c", "int", ColumnKind::Clustering),
        ("v", "blob", ColumnKind::Regular),
    ])
}

pub fn table_dir() -> PathBuf {
    replica::table_dir(Path::new("/data"), &wide())
}

/// Blocks by partition, each whole.
pub type Content = BTreeMap<(Token, Vec<u8>), PartitionBlock>;
/// What a client may see of content, and the deletions that no replica may have purged: a line for each.
pub type Shown = Vec<String>;

/// The result of a repair, when it has ended.
pub type Repairing = Rc<RefCell<Option<Result<Repaired, RepairError>>>>;

/// What a task on a node works with.
#[derive(Clone)]
pub struct Local {
    pub shard: Rc<Shard>,
    pub rpc: Rc<Rpc>,
    pub id: TableId,
}

pub fn now() -> u32 {
    u32::try_from(runtime::wall_clock_us() / 1_000_000).expect("before 2106")
}

impl Local {
    pub fn store(&self) -> Rc<TableStore> {
        self.shard.store(self.id).expect("the table is open")
    }

    /// Applies mutations, where their tokens are here.
    pub async fn apply(&self, mutations: &[Vec<u8>]) {
        let store = self.store();
        let mut last = None;
        for bytes in mutations {
            let mutation = Mutation::new(bytes).expect("a whole one");
            let token = token_of(mutation.key);
            if store.tablet(token).is_some() {
                last = Some(self.shard.write(&store, token, &mutation).expect("there is room"));
            }
        }
        self.shard.log.write().expect("the log takes it");
        if let Some(logged) = last {
            self.shard
                .log
                .synced(logged.place().position)
                .await
                .expect("the log takes it");
        }
    }

    pub async fn flush(&self) {
        self.shard.flush_all().await.expect("the disk works");
    }

    pub async fn compact(&self) {
        self.shard.compact_all().await.expect("the disk works");
    }

    /// Everything that is here.
    pub async fn content(&self) -> Content {
        let limits = BlockLimits {
            rows: 1_000_000,
            bytes: 1 << 30,
        };
        let mut scan = TabletScan::all(&self.store(), self.shard.cache.clone(), limits);
        let mut content = Content::new();
        while let Some(block) = scan.next_block().await.expect("the files can be read") {
            assert_eq!(block.covered, None, "a partition is one block");
            content.insert((block.token, block.key().to_vec()), block);
        }
        content
    }

    /// What a node does when the cluster truncates the table.
    pub async fn truncate(&self, version: u64) {
        test_node::truncate(&self.shard, &self.store(), version).await;
    }

    /// Repairs a range with others, as a task of its own.
    pub async fn repair(
        &self,
        range: TokenRange,
        others: Vec<Participant>,
        mode: Mode,
    ) -> Result<Repaired, RepairError> {
        self.repair_with((range, others), mode, None).await
    }

    /// Repairs a range with others, as a task of its own, and marks what it makes equal if there are `marks`.
    pub async fn repair_with(
        &self,
        (range, others): (TokenRange, Vec<Participant>),
        mode: Mode,
        marks: Option<Marks>,
    ) -> Result<Repaired, RepairError> {
        let Some(store) = self.shard.store(self.id) else {
            return Err(RepairError::UnknownTable);
        };
        let request = Request {
            table: self.id,
            range,
            others,
            now: now(),
            mode,
            rest: 0,
            marks,
        };
        let task = repair::kinds::repair_range(&self.shard, &store, range, &Origin::Node);
        let repaired = repair::repair(&self.rpc, &self.shard, &request, &task).await;
        task.end(&repaired);
        repaired
    }
}

/// What all of these have, merged.
pub fn merged(table: &Table, all: &[Content]) -> Content {
    let keys = all.iter().flat_map(|content| content.keys().cloned());
    let keys: std::collections::BTreeSet<_> = keys.collect();
    keys.into_iter()
        .map(|key| {
            let blocks: Vec<&PartitionBlock> = all.iter().filter_map(|content| content.get(&key)).collect();
            let block = merge_blocks(&table.layout, &table.clustering_order, &blocks).expect("one has it");
            (key, block)
        })
        .collect()
}

/// What of content counts at a second. Written without the code that hashes it.
pub fn shown(table: &Table, content: &Content, now: u32) -> Shown {
    let purge = Purge {
        now,
        gc_before: now - GRACE,
        max_purgeable_timestamp: i64::MAX,
        held: &[],
        keeps_expired: false,
    };
    let mut lines = Vec::new();
    for ((token, key), block) in content {
        let block = compact_block(&table.layout, &table.clustering_order, block, &purge);
        let head = format!("{} {key:02x?}", token.0);
        if !block.tombstone.is_none() {
            lines.push(format!("{head} deleted {}", block.tombstone.timestamp));
        }
        if let Some(row) = block.static_row() {
            show_row(table, row, now, &format!("{head} static"), &mut lines);
        }
        for (clustering, row) in block.rows() {
            show_row(table, row, now, &format!("{head} {clustering:02x?}"), &mut lines);
        }
        let mut last: Option<mutation::RangeTombstone> = None;
        let mut ranges = Vec::new();
        for range in block.range_tombstones {
            match &mut last {
                Some(last) if last.end == range.start && last.tombstone.timestamp == range.tombstone.timestamp => {
                    last.end = range.end;
                }
                _ => ranges.extend(last.replace(range)),
            }
        }
        ranges.extend(last);
        lines.extend(ranges.into_iter().map(|range| {
            let (start, end) = (range.start, range.end);
            format!("{head} from {start:?} to {end:?} deleted {}", range.tombstone.timestamp)
        }));
    }
    lines
}

fn show_row(table: &Table, row: RowView<'_>, now: u32, head: &str, lines: &mut Shown) {
    let mut deleted = |what: &str, tombstone: Tombstone| {
        if !tombstone.is_none() {
            lines.push(format!("{head}{what} deleted {}", tombstone.timestamp));
        }
    };
    deleted("", row.tombstone);
    let mut cells: Vec<(String, Cell<'_>)> = Vec::new();
    for (id, column) in row.columns(&table.layout) {
        match column {
            Column::Simple(cell) => cells.push((format!(" {id}"), cell)),
            Column::Complex(complex) => {
                deleted(&format!(" {id}"), complex.tombstone);
                let elements = complex.elements();
                cells.extend(elements.map(|(path, cell)| (format!(" {id}[{path:02x?}]"), cell)));
            }
        }
    }
    if let Some(marker) = row.marker {
        if marker.is_live(now) {
            lines.push(format!("{head} inserted {marker:?}"))
        } else {
            lines.push(format!("{head} was inserted {}", marker.timestamp))
        }
    }
    for (name, cell) in cells {
        if cell.is_live(now) {
            lines.push(format!("{head}{name} = {cell:02x?}"))
        } else {
            lines.push(format!("{head}{name} deleted {}", cell.timestamp))
        }
    }
}

pub struct Sea {
    pub table: Table,
    machines: Machines<Local>,
    addresses: Vec<SocketAddr>,
    /// The table as each node knows it.
    tables: Vec<Rc<RefCell<Arc<Table>>>>,
}

impl Deref for Sea {
    type Target = Machines<Local>;

    fn deref(&self) -> &Machines<Local> {
        &self.machines
    }
}

impl DerefMut for Sea {
    fn deref_mut(&mut self) -> &mut Machines<Local> {
        &mut self.machines
    }
}

fn host(number: usize) -> Uuid {
    Uuid::from_u128(number as u128 + 1)
}

impl Sea {
    /// Replicas of a table.
    pub fn new(seed: u64, nodes: usize, table: &Table) -> Self {
        let mut sea = Self {
            table: table.clone(),
            machines: Machines::new(seed),
            addresses: Vec::new(),
            tables: Vec::new(),
        };
        for number in 0..nodes {
            let address = sea.add(1);
            let known = Rc::new(RefCell::new(Arc::new(table.clone())));
            sea.addresses.push(address);
            sea.tables.push(known.clone());
            let prepare = move || prepare(host(number), known.borrow().clone());
            let id = table.id;
            sea.start(number, prepare, move |process| {
                start(process, host(number), address, id)
            });
        }
        for number in 0..nodes {
            sea.await_start(number);
        }
        sea
    }

    /// All nodes but one.
    pub fn others(&self, number: usize) -> Vec<Participant> {
        let others = self.addresses.iter().enumerate().filter(|(at, _)| *at != number);
        others
            .map(|(at, address)| Participant {
                peer: Peer::new(host(at), *address),
                shard: 0,
            })
            .collect()
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

    pub fn apply(&mut self, number: usize, mutations: Vec<Vec<u8>>) {
        self.on(number, |local| async move { local.apply(&mutations).await });
    }

    pub fn flush(&mut self, number: usize) {
        self.on(number, |local| async move { local.flush().await });
    }

    pub fn compact(&mut self, number: usize) {
        self.on(number, |local| async move { local.compact().await });
    }

    pub fn content(&mut self, number: usize) -> Content {
        self.on(number, |local| async move { local.content().await })
    }

    pub fn contents(&mut self) -> Vec<Content> {
        (0..self.count()).map(|number| self.content(number)).collect()
    }

    /// The second of a node's wall clock.
    pub fn now(&mut self) -> u32 {
        self.on(0, async |_| now())
    }

    pub fn begin_repair(&mut self, number: usize, mode: Mode) -> Repairing {
        let others = self.others(number);
        self.spawn(
            number,
            move |local| async move { local.repair(WHOLE, others, mode).await },
        )
    }

    pub fn repair(&mut self, number: usize, mode: Mode) -> Result<Repaired, RepairError> {
        let others = self.others(number);
        self.on(
            number,
            move |local| async move { local.repair(WHOLE, others, mode).await },
        )
    }

    /// Begins a repair that marks; with `reads_all` a full one.
    pub fn begin_marking(&mut self, number: usize, reads_all: bool) -> Repairing {
        let others = self.others(number);
        let marks = Some(Marks {
            reads_all,
            full_before: 0,
        });
        self.spawn(number, move |local| async move {
            local.repair_with((WHOLE, others), Mode::Repair, marks).await
        })
    }

    pub fn repair_marking(&mut self, number: usize, reads_all: bool) -> Result<Repaired, RepairError> {
        let repairing = self.begin_marking(number, reads_all);
        assert!(
            self.simulation.run_until(HOUR, || repairing.borrow().is_some()),
            "it ends"
        );
        repairing.take().expect("it has ended")
    }

    /// The marks of a node's sstables: those that count, and those in the files.
    pub fn marks(&mut self, number: usize) -> Vec<(i64, i64)> {
        self.on(number, |local| async move {
            let mut marks = Vec::new();
            for tablet in local.store().tablets().iter() {
                let version = tablet.version();
                for reader in &version.sstables {
                    let table = local.store().table();
                    let again = sstable::Reader::open_descriptor(reader.descriptor(), &table).expect("a sound file");
                    marks.push((reader.repaired_at(), again.meta().statistics.repaired_at));
                }
            }
            marks
        })
    }

    /// Whether all nodes show the same; else what differs.
    pub fn difference(&mut self) -> Option<String> {
        self.difference_of(|_| true)
    }

    /// What of the living rows differs between nodes: when a deletion is forgotten may differ.
    pub fn living_difference(&mut self) -> Option<String> {
        self.difference_of(|line| !line.contains(" deleted ") && !line.contains(" was inserted "))
    }

    fn difference_of(&mut self, is_meant: impl Fn(&str) -> bool) -> Option<String> {
        let (now, table) = (self.now(), self.table.clone());
        let all: Vec<Shown> = (0..self.count())
            .map(|number| shown(&table, &self.content(number), now))
            .map(|lines| lines.into_iter().filter(|line| is_meant(line)).collect())
            .collect();
        (1..all.len()).find_map(|number| {
            let only = |a: &Shown, b: &Shown| a.iter().filter(|line| !b.contains(line)).cloned().collect::<Vec<_>>();
            let (here, there) = (only(&all[0], &all[number]), only(&all[number], &all[0]));
            let is_same = here.is_empty() && there.is_empty();
            (!is_same).then(|| format!("only node 0 shows {here:#?}, only node {number} shows {there:#?}"))
        })
    }

    /// Compares what the nodes show with what content shows.
    pub fn assert_shows(&mut self, expected: &Content, what: &str) {
        let (now, table) = (self.now(), self.table.clone());
        let expected = shown(&table, expected, now);
        for number in 0..self.count() {
            let content = self.content(number);
            let found = shown(&table, &content, now);
            let missing: Vec<_> = expected.iter().filter(|line| !found.contains(line)).collect();
            let more: Vec<_> = found.iter().filter(|line| !expected.contains(line)).collect();
            assert!(
                missing.is_empty() && more.is_empty(),
                "{what}: node {number} lacks {missing:#?} and shows {more:#?}"
            );
        }
    }
}

/// What a run before left on a node's disk.
fn prepare(host_id: Uuid, table: Arc<Table>) -> Process {
    let options = Options {
        host_id,
        dirty_bytes_max: 64 << 20,
        ..Options::default()
    };
    Process::start(options, vec![Hosted::on_ring(table, 1)])
}

async fn start(process: Rc<Process>, host: Uuid, address: SocketAddr, id: TableId) -> Local {
    let shard = process.open(ShardId(0));
    process.recover(std::slice::from_ref(&shard)).await;
    runtime::set_local(shard.clone());
    let store = shard.store(id).expect("the table is open");
    shard.set_compacts_by_itself(&store, false);
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
    let rpc = Rpc::start(config, repair::handler()).expect("the port is free");
    Local { shard, rpc, id }
}

/// A short name of a result.
pub fn name_of<T>(result: &Result<T, RepairError>) -> &'static str {
    match result {
        Ok(_) => "repaired",
        Err(RepairError::UnknownTable) => "unknown table",
        Err(RepairError::NotHere) => "not here",
        Err(RepairError::NotTruncated) => "not truncated",
        Err(RepairError::Lost(_)) => "lost",
        Err(RepairError::SchemaDiffers) => "schema differs",
        Err(RepairError::Missing(_)) => "missing",
        Err(RepairError::Read(_)) => "read",
        Err(RepairError::Write(_)) => "write",
        Err(RepairError::Refused { .. }) => "refused",
        Err(RepairError::Unreachable { .. }) => "unreachable",
        Err(RepairError::Malformed { .. }) => "malformed",
        Err(RepairError::Unmarked(_)) => "unmarked",
        Err(RepairError::DiskFull) => "disk full",
        Err(RepairError::Aborted) => "aborted",
    }
}
