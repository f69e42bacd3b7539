//! Tables of what the node measures: estimates of sizes, caches, workers, latencies, compactions, hints, requests.
//! Columns are those of Apache Cassandra 4.1, but for `disk_levels`, which it does not have.
//!
//! A table is a [`Measured`]: its definition, and a function that gathers its rows from all shards when it is read.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use admin::Distribution;
use admin::control::{REQUESTS_POOL, pool_name};
use admin::operator::Table;
use coordinator::{Coordinator, Handoff};
use cql_server::Server;
use front::Front;
use query::Engine;
use system_tables::{Builder, Content, Definition, Opening, Options, Partitions, Request, Rows, Value, VirtualTable};
use tasks::{Module, State};
use topology::{Node, NodeNumber, NodeState};
use uuid::Uuid;

use super::estimates;
use crate::follow::on_all_shards;
use crate::operator;

/// A value that was gathered.
#[derive(Clone, PartialEq, PartialOrd, Debug)]
pub(super) enum Cell {
    Null,
    Text(String),
    Int(i32),
    BigInt(i64),
    Double(f64),
    Float(f32),
    Boolean(bool),
    Uuid(Uuid),
    Inet(IpAddr),
    TextList(Vec<String>),
    /// A set, in any order.
    Texts(Vec<String>),
    /// A serialised value.
    Bytes(Vec<u8>),
    /// Milliseconds.
    Timestamp(i64),
}

impl Cell {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(super) fn count(count: u64) -> Self {
        Self::BigInt(i64::try_from(count).unwrap_or(i64::MAX))
    }

    fn int(count: u64) -> Self {
        Self::Int(i32::try_from(count).unwrap_or(i32::MAX))
    }

    fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Text(text) => Value::Text(text),
            Self::Int(number) => Value::Int(*number),
            Self::BigInt(number) => Value::BigInt(*number),
            Self::Double(number) => Value::Double(*number),
            Self::Float(number) => Value::Float(*number),
            Self::Boolean(is_true) => Value::Boolean(*is_true),
            Self::Uuid(uuid) => Value::Uuid(*uuid),
            Self::TextList(texts) => Value::TextList(texts.clone()),
            Self::Texts(texts) => Value::Texts(texts.iter().map(String::as_str).collect()),
            Self::Bytes(bytes) => Value::Blob(bytes),
            Self::Inet(address) => Value::Inet(*address),
            Self::Timestamp(ms) => Value::Timestamp(*ms),
        }
    }
}

/// A row: all columns with their names, in the order of the definition.
pub(super) type Row = Vec<(&'static str, Cell)>;

pub(super) type Gathering = Pin<Box<dyn Future<Output = Vec<Row>>>>;

/// A table of what the node measures.
struct Measured {
    definition: Definition,
    /// How many columns the partition key has.
    key_columns: usize,
    gather: fn(Request) -> Gathering,
}

impl VirtualTable for Measured {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn open(&self, request: Request) -> Opening<'_> {
        Box::pin(async move {
            let rows = (self.gather)(request).await;
            let content: Box<dyn Content> = Box::new(Gathered::new(rows, self.key_columns));
            content
        })
    }
}

/// Rows by partition.
pub(super) struct Gathered {
    key_columns: usize,
    partitions: Vec<Vec<Row>>,
}

impl Gathered {
    pub(super) fn new(mut rows: Vec<Row>, key_columns: usize) -> Self {
        let key = |row: &Row| {
            row[..key_columns]
                .iter()
                .map(|(_, cell)| cell.clone())
                .collect::<Vec<_>>()
        };
        rows.sort_by(|a, b| key(a).partial_cmp(&key(b)).expect("no key is a number that is none"));
        let mut partitions: Vec<Vec<Row>> = Vec::new();
        for row in rows {
            match partitions
                .last_mut()
                .filter(|partition| key(&partition[0]) == key(&row))
            {
                Some(partition) => partition.push(row),
                None => partitions.push(vec![row]),
            }
        }
        Self {
            key_columns,
            partitions,
        }
    }
}

impl Content for Gathered {
    fn partitions(&self, partitions: &mut Partitions) {
        for (number, rows) in self.partitions.iter().enumerate() {
            let key = rows[0][..self.key_columns].iter().map(|(_, cell)| cell.value());
            partitions.add(number, &key.collect::<Vec<_>>());
        }
    }

    fn rows(&self, partition: usize, rows: &mut Rows<'_>) {
        for row in &self.partitions[partition] {
            let row: Vec<_> = row.iter().map(|(name, cell)| (*name, cell.value())).collect();
            rows.push(&row);
        }
    }
}

/// Registers a table whose partition key is its first columns, this many.
pub(super) fn add(
    tables: &mut Builder,
    keyspace: &'static str,
    key_columns: usize,
    cql: &'static str,
    gather: fn(Request) -> Gathering,
) {
    let options = match keyspace {
        "system_views" => Options::USUAL,
        _ => Options::NO_GRACE,
    };
    tables.virtual_table(Arc::new(Measured {
        definition: Definition { keyspace, cql, options },
        key_columns,
        gather,
    }));
}

pub(super) fn register(tables: &mut Builder) {
    let mut add = |keyspace, key_columns, cql, gather| add(tables, keyspace, key_columns, cql, gather);
    add("system", 1, SIZE_ESTIMATES, |request| {
        Box::pin(estimates::gather(request, &[None]))
    });
    add("system", 1, TABLE_ESTIMATES, |request| {
        Box::pin(estimates::gather(request, &[Some("primary"), Some("local_primary")]))
    });
    add("system_views", 1, CACHES, |_| Box::pin(caches()));
    add("system_views", 1, CQL_METRICS, |_| Box::pin(cql_metrics()));
    add("system_views", 1, THREAD_POOLS, |_| Box::pin(thread_pools()));
    add("system_views", 1, SSTABLE_TASKS, |_| {
        Box::pin(std::future::ready(sstable_tasks()))
    });
    add("system_views", 1, PENDING_HINTS, |_| Box::pin(pending_hints()));
    add("system_views", 2, DISK_USAGE, |_| {
        Box::pin(of_tables(|table| sized(table.disk_bytes)))
    });
    add("system_views", 1, DISK_LEVELS, |_| {
        Box::pin(std::future::ready(disk_levels()))
    });
    add("system_views", 2, MAX_PARTITION_SIZE, |_| {
        Box::pin(of_tables(|table| sized(table.partition_bytes.max())))
    });
    add("system_views", 2, MAX_SSTABLE_DURATION, |_| {
        Box::pin(of_tables(|table| {
            vec![("max_sstable_duration", Cell::count(table.sstable_span_us / 1000))]
        }))
    });
    add("system_views", 1, QUERIES, |_| Box::pin(queries()));
    add("system_views", 2, READ_LATENCY, |_| {
        Box::pin(of_tables(|table| latencies(&table.reads)))
    });
    add("system_views", 2, SCAN_LATENCY, |_| {
        Box::pin(of_tables(|table| latencies(&table.scans)))
    });
    add("system_views", 2, WRITE_LATENCY, |_| {
        Box::pin(of_tables(|table| latencies(&table.writes)))
    });
    add("system_views", 1, BATCH_METRICS, |_| Box::pin(batch_metrics()));
    for cql in [LOCAL_READ_LATENCY, LOCAL_SCAN_LATENCY, LOCAL_WRITE_LATENCY] {
        add("system_views", 2, cql, |_| Box::pin(of_tables(|_| no_latencies())));
    }
    add("system_views", 2, TOMBSTONES_PER_READ, |_| {
        Box::pin(of_tables(|table| counts(&table.tombstones_per_read)))
    });
    add("system_views", 2, ROWS_PER_READ, |_| {
        Box::pin(of_tables(|table| counts(&table.rows_per_read)))
    });
}

const SIZE_ESTIMATES: &str = "size_estimates (keyspace_name text, table_name text, range_start text, range_end text, \
     mean_partition_size bigint, partitions_count bigint, \
     PRIMARY KEY (keyspace_name, table_name, range_start, range_end))";
const TABLE_ESTIMATES: &str = "table_estimates (keyspace_name text, table_name text, range_type text, range_start text, range_end text, \
     mean_partition_size bigint, partitions_count bigint, \
     PRIMARY KEY (keyspace_name, table_name, range_type, range_start, range_end))";
const CACHES: &str = "caches (name text PRIMARY KEY, capacity_bytes bigint, entry_count int, hit_count bigint, hit_ratio double, \
     recent_hit_rate_per_second bigint, recent_request_rate_per_second bigint, request_count bigint, \
     size_bytes bigint)";
const CQL_METRICS: &str = "cql_metrics (name text PRIMARY KEY, value double)";
const THREAD_POOLS: &str = "thread_pools (name text PRIMARY KEY, active_tasks int, active_tasks_limit int, blocked_tasks bigint, \
     blocked_tasks_all_time bigint, completed_tasks bigint, pending_tasks int)";
const SSTABLE_TASKS: &str = "sstable_tasks (keyspace_name text, table_name text, task_id timeuuid, completion_ratio double, kind text, \
     progress bigint, sstables int, total bigint, unit text, PRIMARY KEY (keyspace_name, table_name, task_id))";
const PENDING_HINTS: &str = "pending_hints (host_id uuid PRIMARY KEY, address inet, dc text, files int, newest timestamp, oldest timestamp, \
     port int, rack text, status text)";
const DISK_USAGE: &str =
    "disk_usage (keyspace_name text, table_name text, mebibytes bigint, PRIMARY KEY ((keyspace_name, table_name)))";
const DISK_LEVELS: &str = "disk_levels (host_id uuid PRIMARY KEY, address inet, level text)";
const MAX_PARTITION_SIZE: &str = "max_partition_size (keyspace_name text, table_name text, mebibytes bigint, PRIMARY KEY ((keyspace_name, table_name)))";
const MAX_SSTABLE_DURATION: &str = "max_sstable_duration (keyspace_name text, table_name text, max_sstable_duration bigint, \
     PRIMARY KEY ((keyspace_name, table_name)))";
const QUERIES: &str = "queries (thread_id text PRIMARY KEY, queued_micros bigint, running_micros bigint, task text)";
const READ_LATENCY: &str = "coordinator_read_latency (keyspace_name text, table_name text, count bigint, max_ms double, p50th_ms double, \
     p99th_ms double, per_second double, PRIMARY KEY ((keyspace_name, table_name)))";
const SCAN_LATENCY: &str = "coordinator_scan_latency (keyspace_name text, table_name text, count bigint, max_ms double, p50th_ms double, \
     p99th_ms double, per_second double, PRIMARY KEY ((keyspace_name, table_name)))";
const WRITE_LATENCY: &str = "coordinator_write_latency (keyspace_name text, table_name text, count bigint, max_ms double, p50th_ms double, \
     p99th_ms double, per_second double, PRIMARY KEY ((keyspace_name, table_name)))";
const BATCH_METRICS: &str =
    "batch_metrics (name text PRIMARY KEY, max bigint, p50th double, p999th double, p99th double)";
const LOCAL_READ_LATENCY: &str = "local_read_latency (keyspace_name text, table_name text, count bigint, max_ms double, p50th_ms double, \
     p99th_ms double, per_second double, PRIMARY KEY ((keyspace_name, table_name)))";
const LOCAL_SCAN_LATENCY: &str = "local_scan_latency (keyspace_name text, table_name text, count bigint, max_ms double, p50th_ms double, \
     p99th_ms double, per_second double, PRIMARY KEY ((keyspace_name, table_name)))";
const LOCAL_WRITE_LATENCY: &str = "local_write_latency (keyspace_name text, table_name text, count bigint, max_ms double, p50th_ms double, \
     p99th_ms double, per_second double, PRIMARY KEY ((keyspace_name, table_name)))";
const TOMBSTONES_PER_READ: &str = "tombstones_per_read (keyspace_name text, table_name text, count bigint, max double, p50th double, \
     p99th double, PRIMARY KEY ((keyspace_name, table_name)))";
const ROWS_PER_READ: &str = "rows_per_read (keyspace_name text, table_name text, count bigint, max double, p50th double, p99th double, \
     PRIMARY KEY ((keyspace_name, table_name)))";

/// A row for each table of which the node stores anything. What the node keeps beside a user's table is no table to a
/// client.
async fn of_tables(columns: fn(&Table) -> Row) -> Vec<Row> {
    let engine = Engine::local();
    let schema = engine.schema();
    let known: BTreeSet<(String, String)> = schema
        .keyspaces
        .values()
        .flat_map(|keyspace| {
            keyspace
                .tables
                .keys()
                .map(|table| (keyspace.name.clone(), table.clone()))
        })
        .collect();
    let tables = operator::tables().await.into_iter();
    let rows = tables
        .filter(|(name, _)| known.contains(name))
        .map(|((keyspace, name), table)| {
            let key = [
                ("keyspace_name", Cell::Text(keyspace)),
                ("table_name", Cell::Text(name)),
            ];
            key.into_iter().chain(columns(&table)).collect()
        });
    rows.collect()
}

/// Bytes in whole mebibytes, rounded up.
fn sized(bytes: u64) -> Row {
    vec![("mebibytes", Cell::count(bytes.div_ceil(1 << 20)))]
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds with a few digits")]
fn latencies(latencies: &Distribution) -> Row {
    let ms = |us: u64| Cell::Double(us as f64 / 1000.0);
    vec![
        ("count", Cell::count(latencies.count())),
        ("max_ms", ms(latencies.max())),
        ("p50th_ms", ms(latencies.percentile(0.5))),
        ("p99th_ms", ms(latencies.percentile(0.99))),
        // Counted since the start; no rate is kept.
        ("per_second", Cell::Null),
    ]
}

/// How long a replica takes is not measured apart from its coordinator.
fn no_latencies() -> Row {
    let columns = ["count", "max_ms", "p50th_ms", "p99th_ms", "per_second"];
    columns.into_iter().map(|name| (name, Cell::Null)).collect()
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn counts(counts: &Distribution) -> Row {
    let number = |count: u64| Cell::Double(count as f64);
    vec![
        ("count", Cell::count(counts.count())),
        ("max", number(counts.max())),
        ("p50th", number(counts.percentile(0.5))),
        ("p99th", number(counts.percentile(0.99))),
    ]
}

/// A cache, summed over shards.
#[derive(Default)]
struct Cache {
    capacity: u64,
    size: u64,
    entries: Option<u64>,
    hits: Option<(u64, u64)>,
}

async fn caches() -> Vec<Row> {
    let of_shard = async |engine: Rc<Engine>| {
        let (chunks, rows) = (
            &engine.coordinator.context.shard.cache,
            &engine.coordinator.context.shard.row_cache_budget,
        );
        [
            (
                chunks.budget() as u64,
                chunks.used() as u64,
                chunks.chunks() as u64,
                chunks.hits_and_misses(),
            ),
            (rows.bytes_max() as u64, rows.bytes() as u64, 0, (0, 0)),
        ]
    };
    let (mut chunks, mut rows) = (Cache::default(), Cache::default());
    for [
        (capacity, size, entries, (hits, misses)),
        (rows_capacity, rows_size, ..),
    ] in on_all_shards(of_shard).await
    {
        chunks.capacity += capacity;
        chunks.size += size;
        chunks.entries = Some(chunks.entries.unwrap_or(0) + entries);
        let (had_hits, had_misses) = chunks.hits.unwrap_or((0, 0));
        chunks.hits = Some((had_hits + hits, had_misses + misses));
        rows.capacity += rows_capacity;
        rows.size += rows_size;
    }
    vec![cache("chunks", &chunks), cache("rows", &rows)]
}

#[expect(clippy::cast_precision_loss, reason = "a ratio is shown with a few digits")]
fn cache(name: &str, cache: &Cache) -> Row {
    let count = |count: Option<u64>| count.map_or(Cell::Null, Cell::count);
    let requests = cache.hits.map(|(hits, misses)| hits + misses);
    let ratio = cache.hits.zip(requests.filter(|requests| *requests > 0));
    vec![
        ("name", Cell::text(name)),
        ("capacity_bytes", Cell::count(cache.capacity)),
        ("entry_count", cache.entries.map_or(Cell::Null, Cell::int)),
        ("hit_count", count(cache.hits.map(|(hits, _)| hits))),
        (
            "hit_ratio",
            ratio.map_or(Cell::Null, |((hits, _), requests)| {
                Cell::Double(hits as f64 / requests as f64)
            }),
        ),
        // Counted since the start; no rate is kept.
        ("recent_hit_rate_per_second", Cell::Null),
        ("recent_request_rate_per_second", Cell::Null),
        ("request_count", count(requests)),
        ("size_bytes", Cell::count(cache.size)),
    ]
}

/// What the shards work on for their clients. A request has no thread of its own here, so the name says where else to
/// find it.
async fn queries() -> Vec<Row> {
    let of_shard = async |_: Rc<Engine>| {
        let front = runtime::local::<Front>();
        front.map_or_else(Vec::new, |front| front.running_requests())
    };
    let microseconds = |time: Duration| Cell::count(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    let requests = on_all_shards(of_shard).await.into_iter().flatten();
    let rows = requests.map(|request| {
        vec![
            ("thread_id", Cell::Text(request.name)),
            ("queued_micros", microseconds(request.queued)),
            ("running_micros", microseconds(request.running)),
            ("task", Cell::Text(request.text)),
        ]
    });
    rows.collect()
}

#[expect(clippy::cast_precision_loss, reason = "counts are shown as floating point")]
async fn cql_metrics() -> Vec<Row> {
    let of_shard = async |_: Rc<Engine>| {
        let server = runtime::local::<Server>();
        server.map_or((0, 0), |server| {
            (server.counts().executes.get(), server.counts().queries.get())
        })
    };
    let (mut prepared, mut regular) = (0, 0);
    for (executes, queries) in on_all_shards(of_shard).await {
        prepared += executes;
        regular += queries;
    }
    let ratio = prepared as f64 / (prepared + regular).max(1) as f64;
    let row = |name, value| vec![("name", Cell::text(name)), ("value", Cell::Double(value))];
    vec![
        row("prepared_statements_executed", prepared as f64),
        row("prepared_statements_ratio", ratio),
        row("regular_statements_executed", regular as f64),
    ]
}

/// How many partitions batches had since the start, by the kind of the batch.
#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
async fn batch_metrics() -> Vec<Row> {
    let of_shard = async |engine: Rc<Engine>| {
        let counts = engine.batch_partitions();
        [&counts.counter, &counts.logged, &counts.unlogged].map(|histogram| (histogram.buckets(), histogram.sum()))
    };
    let mut whole: [Distribution; 3] = Default::default();
    for of_kinds in on_all_shards(of_shard).await {
        for (whole, (buckets, sum)) in whole.iter_mut().zip(of_kinds) {
            whole.add(buckets, sum);
        }
    }
    let row = |(kind, found): (&str, &Distribution)| {
        let part = |part: f64| Cell::Double(found.percentile(part) as f64);
        vec![
            ("name", Cell::Text(format!("partitions_per_{kind}_batch"))),
            ("max", Cell::count(found.max())),
            ("p50th", part(0.5)),
            ("p999th", part(0.999)),
            ("p99th", part(0.99)),
        ]
    };
    ["counter", "logged", "unlogged"]
        .into_iter()
        .zip(&whole)
        .map(row)
        .collect()
}

async fn thread_pools() -> Vec<Row> {
    let engine = Engine::local();
    let mut rows = Vec::new();
    for class in engine.coordinator.context.shard.tasks().classes() {
        let counts = class.counts;
        let limit = class.workers.iter().map(|workers| u64::from(*workers)).sum();
        rows.push(vec![
            ("name", Cell::text(pool_name(class.class))),
            ("active_tasks", Cell::int(class.running)),
            ("active_tasks_limit", Cell::int(limit)),
            ("blocked_tasks", Cell::Null),
            ("blocked_tasks_all_time", Cell::Null),
            (
                "completed_tasks",
                Cell::count(counts.done + counts.failed + counts.aborted),
            ),
            ("pending_tasks", Cell::int(class.waiting)),
        ]);
    }
    let frames = async |_: Rc<Engine>| runtime::local::<Server>().map_or(0, |server| server.counts().frames.get());
    rows.push(vec![
        ("name", Cell::text(REQUESTS_POOL)),
        ("active_tasks", Cell::Null),
        ("active_tasks_limit", Cell::Null),
        ("blocked_tasks", Cell::Null),
        ("blocked_tasks_all_time", Cell::Null),
        (
            "completed_tasks",
            Cell::count(on_all_shards(frames).await.into_iter().sum()),
        ),
        ("pending_tasks", Cell::Null),
    ]);
    rows
}

/// Compactions of tablets that run.
#[expect(clippy::cast_precision_loss, reason = "a ratio is shown with a few digits")]
fn sstable_tasks() -> Vec<Row> {
    let engine = Engine::local();
    let mut running = engine.coordinator.context.shard.tasks().list(Module::Compaction, true);
    running.retain(|status| status.state == State::Running && status.scope == "tablet");
    let row = |status: tasks::Status| {
        let ratio = status.completed as f64 / status.total.max(1) as f64;
        vec![
            ("keyspace_name", Cell::Text(status.keyspace)),
            ("table_name", Cell::Text(status.table)),
            ("task_id", Cell::Uuid(status.id)),
            ("completion_ratio", Cell::Double(ratio)),
            ("kind", Cell::text(status.kind.name)),
            ("progress", Cell::count(status.completed)),
            ("sstables", Cell::Null),
            ("total", Cell::count(status.total)),
            ("unit", Cell::text(status.kind.units)),
        ]
    };
    running.into_iter().map(row).collect()
}

/// How full the disks of each member are, as far as it has said. Cassandra has no such table.
fn disk_levels() -> Vec<Row> {
    let coordinator = Coordinator::local();
    let view = coordinator.context.view();
    let row = |(number, node): (NodeNumber, &Node)| {
        vec![
            ("host_id", Cell::Uuid(node.host_id.0)),
            ("address", Cell::Inet(node.internode.ip())),
            ("level", Cell::text(coordinator.context.disk_level(number).name())),
        ]
    };
    let members = view.topology.numbered_nodes();
    members
        .filter(|(_, node)| node.state != NodeState::Left)
        .map(row)
        .collect()
}

async fn pending_hints() -> Vec<Row> {
    let engine = Engine::local();
    let view = engine.coordinator.context.view();
    let pending = Handoff::pending().await.into_iter();
    let rows = pending.map(|hints| {
        let node = view.topology.node(hints.target);
        let number = view.topology.number(hints.target);
        let is_live = number.is_some_and(|number| engine.coordinator.context.is_live(number));
        let time = |us: Option<i64>| us.map_or(Cell::Null, |us| Cell::Timestamp(us / 1000));
        vec![
            ("host_id", Cell::Uuid(hints.target.0)),
            (
                "address",
                node.map_or(Cell::Null, |node| Cell::Inet(node.internode.ip())),
            ),
            (
                "dc",
                node.map_or(Cell::Null, |node| Cell::text(&*node.location.datacenter)),
            ),
            ("files", Cell::int(hints.segments)),
            ("newest", time(hints.begun_us.map(|(_, newest)| newest))),
            ("oldest", time(hints.begun_us.map(|(oldest, _)| oldest))),
            (
                "port",
                node.map_or(Cell::Null, |node| Cell::Int(i32::from(node.internode.port()))),
            ),
            ("rack", node.map_or(Cell::Null, |node| Cell::text(&*node.location.rack))),
            ("status", Cell::text(if is_live { "UP" } else { "DOWN" })),
        ]
    });
    rows.collect()
}

/// Rows of tables by name, for estimates.
pub(super) type ByTable<T> = BTreeMap<schema::TableId, Vec<T>>;
