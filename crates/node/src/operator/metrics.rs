//! What a shard counts and measures, as metrics with the shard's label; [`node`] has what a node has once.

pub(super) mod node;

use std::collections::BTreeMap;

use admin::operator::{Metric, Value};
use coordinator::Metrics;
use cql_server::Server;
use front::{Counts, Front};
use query::Engine;
use replica::PausedCounts;
use rpc::Rpc;
use upkeep::repairs::Ages;
use upkeep::row_expiry::{self, RowExpiryCounts};

/// The metrics of one shard, while they are collected.
struct Shard {
    label: String,
    metrics: Vec<Metric>,
}

impl Shard {
    fn add(&mut self, name: &'static str, help: &'static str, labels: &[(&'static str, &str)], value: Value) {
        let shard = std::iter::once(("shard", self.label.clone()));
        let labels = shard.chain(labels.iter().map(|(name, value)| (*name, (*value).to_owned())));
        self.metrics.push(Metric {
            name,
            help,
            labels: labels.collect(),
            value,
        });
    }

    fn count(&mut self, name: &'static str, help: &'static str, count: u64) {
        self.add(name, help, &[], Value::Counter(count));
    }

    /// Name, help and number of each.
    fn count_all(&mut self, counts: impl IntoIterator<Item = (&'static str, &'static str, u64)>) {
        for (name, help, count) in counts {
            self.count(name, help, count);
        }
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.add(name, help, &[], Value::Gauge(float(value)));
    }
}

fn float(value: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "gauges are floating-point numbers")]
    let value = value as f64;
    value
}

/// The metrics of the shard that runs this.
pub(super) fn of_shard(engine: &Engine) -> Vec<Metric> {
    let mut shard = Shard {
        label: runtime::shard().0.to_string(),
        metrics: Vec::new(),
    };
    if let Some(server) = runtime::local::<Server>() {
        messages(&mut shard, server.counts());
    }
    match runtime::local::<dynamodb_server::Server>() {
        Some(server) => dynamodb_operations(&mut shard, server.counts()),
        // A node without the port has the same metrics, at 0.
        None => dynamodb_operations(&mut shard, &dynamodb_server::Counts::default()),
    }
    if let Some(front) = runtime::local::<Front>() {
        requests(&mut shard, &front.counts);
        connections(&mut shard, &front);
        client_memory(&mut shard, &front);
    }
    coordinator(&mut shard, &engine.coordinator.context.metrics());
    if let Some(kept) = engine.coordinator.hints.kept() {
        kept_writes(&mut shard, &kept.metrics());
    }
    storage(&mut shard, engine);
    machine(&mut shard);
    if let Some(rpc) = runtime::local::<Rpc>() {
        links(&mut shard, &rpc);
    }
    streams(&mut shard, &streaming::metrics());
    repairs(&mut shard, &repair::metrics());
    repaired_ranges(&mut shard, &upkeep::repairs::ages(engine));
    expired_rows(&mut shard, row_expiry::counts());
    shard.metrics
}

fn expired_rows(shard: &mut Shard, counts: RowExpiryCounts) {
    shard.count_all([
        (
            "expiration_scan_passes_total",
            "Passes over the rows of tables with a TTL column.",
            counts.passes,
        ),
        (
            "expiration_scan_tables_total",
            "Tables with a TTL column that passes have looked through.",
            counts.tables,
        ),
        (
            "expiration_scanned_rows_total",
            "Rows of tables with a TTL column that passes have looked at.",
            counts.looked_at,
        ),
        (
            "expiration_items_deleted_total",
            "Rows that were deleted because their TTL column said so.",
            counts.deleted,
        ),
        (
            "expiration_failures_total",
            "Ranges that a pass could not look through, each time.",
            counts.failures,
        ),
    ]);
}

fn streams(shard: &mut Shard, metrics: &streaming::StreamMetrics) {
    shard.count_all([
        (
            "streaming_sent_bytes_total",
            "Bytes of sstable files sent to other nodes.",
            metrics.sent_bytes,
        ),
        (
            "streaming_received_bytes_total",
            "Bytes of sstable files received from other nodes.",
            metrics.received_bytes,
        ),
        (
            "streaming_sent_files_total",
            "Files of sstables sent to other nodes to their ends.",
            metrics.sent_files,
        ),
        (
            "streaming_received_files_total",
            "Files of sstables received whole from other nodes.",
            metrics.received_files,
        ),
        (
            "streaming_adopted_sstables_total",
            "Sstables of other nodes that became part of a table.",
            metrics.adopted_sstables,
        ),
        (
            "streaming_failed_serves_total",
            "Streams to other nodes that ended with an error.",
            metrics.failed_serving,
        ),
        (
            "streaming_failed_pulls_total",
            "Streams from other nodes that ended with an error.",
            metrics.failed_pulling,
        ),
    ]);
    shard.gauge(
        "streaming_serving",
        "Streams to other nodes that are open.",
        metrics.serving,
    );
    shard.gauge(
        "streaming_pulling",
        "Streams from other nodes that run.",
        metrics.pulling,
    );
}

fn repairs(shard: &mut Shard, metrics: &repair::RepairMetrics) {
    shard.count_all([
        (
            "repair_compared_rows_total",
            "Rows and deletions hashed by repairs of this shard.",
            metrics.compared_rows,
        ),
        (
            "repair_differing_rows_total",
            "Rows and deletions that a replica lacked, found by repairs of this shard.",
            metrics.differing_rows,
        ),
        (
            "repair_read_bytes_total",
            "Bytes of rows that this shard read to compare them, for its repairs and those of others.",
            metrics.read_bytes,
        ),
        (
            "repair_skipped_bytes_total",
            "Bytes of sstables that incremental repairs left unread, because earlier ones have marked them.",
            metrics.skipped_bytes,
        ),
        (
            "repair_marked_sstables_total",
            "Sstables that repairs have marked.",
            metrics.marked_sstables,
        ),
        (
            "repair_sent_bytes_total",
            "Bytes of hashes and rows sent to other nodes by repairs.",
            metrics.sent_bytes,
        ),
        (
            "repair_received_bytes_total",
            "Bytes of hashes and rows received from other nodes by repairs.",
            metrics.received_bytes,
        ),
        (
            "repair_failed_total",
            "Repairs of this shard that ended with an error.",
            metrics.failed,
        ),
        (
            "repair_failed_serves_total",
            "Repairs of other shards that ended with an error here.",
            metrics.failed_serving,
        ),
    ]);
    shard.gauge("repair_running", "Repairs of this shard that run.", metrics.running);
    shard.gauge(
        "repair_serving",
        "Repairs of other shards in which this one takes part.",
        metrics.serving,
    );
}

fn repaired_ranges(shard: &mut Shard, ages: &Ages) {
    shard.gauge(
        "repair_oldest_seconds",
        "Seconds since the replicas of a range that this shard repairs were known to be equal, of the range for which it is longest.",
        ages.oldest_seconds,
    );
    shard.gauge(
        "repair_unrepaired_ranges",
        "Ranges that this shard repairs and that were never repaired.",
        ages.never,
    );
}

fn messages(shard: &mut Shard, counts: &cql_server::Counts) {
    let kinds = [
        ("query", &counts.queries),
        ("execute", &counts.executes),
        ("prepare", &counts.prepares),
        ("batch", &counts.batches),
    ];
    for (kind, count) in kinds {
        let value = Value::Counter(count.get());
        shard.add("requests_total", "Requests from CQL clients.", &[("kind", kind)], value);
    }
    shard.count("frames_total", "Frames received from CQL clients.", counts.frames.get());
    for (code, count) in counts.errors() {
        let help = "Error responses to CQL clients, by the protocol's name of the error.";
        shard.add(
            "cql_errors_total",
            help,
            &[("kind", code.name())],
            Value::Counter(count),
        );
    }
}

fn dynamodb_operations(shard: &mut Shard, counts: &dynamodb_server::Counts) {
    for (operation, count) in counts.operations() {
        let help = "Operations of the DynamoDB API that ran.";
        let value = Value::Counter(count);
        shard.add("dynamodb_operations_total", help, &[("operation", operation)], value);
    }
    shard.count_all([
        (
            "dynamodb_requests_total",
            "Requests to the ports of the DynamoDB API, refused ones included.",
            counts.requests.get(),
        ),
        (
            "dynamodb_authentication_failures_total",
            "Requests to the DynamoDB API whose signature was refused.",
            counts.authentication_failures.get(),
        ),
        (
            "dynamodb_authentication_warnings_total",
            "Requests to the DynamoDB API without a valid signature that were executed.",
            counts.authentication_warnings.get(),
        ),
        (
            "dynamodb_access_key_lookups_total",
            "Reads of access keys of the DynamoDB API.",
            counts.access_key_lookups.get(),
        ),
        (
            "dynamodb_access_key_lookup_failures_total",
            "Reads of access keys of the DynamoDB API that failed.",
            counts.access_key_lookup_failures.get(),
        ),
        (
            "dynamodb_client_errors_total",
            "Answers of the DynamoDB API with a status of 400 to 499.",
            counts.client_errors.get(),
        ),
        (
            "dynamodb_server_errors_total",
            "Answers of the DynamoDB API with a status of 500 and more.",
            counts.server_errors.get(),
        ),
    ]);
}

fn requests(shard: &mut Shard, counts: &Counts) {
    let latencies = [
        ("read", &counts.reads),
        ("write", &counts.writes),
        ("conditional", &counts.conditional),
        ("range", &counts.ranges),
    ];
    for (kind, latencies) in latencies {
        let value = Value::Histogram(latencies.buckets(), latencies.sum());
        let help = "Time from the arrival of a request to its response; requests that memory answers are sampled.";
        shard.add("request_latency_seconds", help, &[("kind", kind)], value);
    }
    let help = "Statements on one partition that were answered at once, from memory and without another shard or node.";
    let at_once = Value::Counter(counts.at_once.get());
    shard.add("requests_at_once_total", help, &[], at_once);
    let places = [
        ("owner", &counts.owned),
        ("owning_node", &counts.owned_by_node),
        ("elsewhere", &counts.foreign),
    ];
    for (place, count) in places {
        let help = "Statements on one partition, by where the client sent them: to a shard that owns the partition, to another shard of \
                    an owning node, or elsewhere; statements that had to wait are sampled.";
        shard.add(
            "routed_requests_total",
            help,
            &[("kind", place)],
            Value::Counter(count.get()),
        );
    }
}

fn paused_readers(shard: &mut Shard, counts: PausedCounts) {
    let help = "Reads of partitions that wait for the client to ask for the next page.";
    shard.gauge("paused_readers", help, counts.readers as u64);
    let help = "Memory of the reads that wait for the client to ask for the next page, about.";
    shard.gauge("paused_readers_bytes", help, counts.bytes as u64);
    let help = "Pages that ended inside a partition, with their reader kept for the next page.";
    shard.count("pages_paused_total", help, counts.paused);
    let help = "Pages that resumed the reader of the previous page.";
    shard.count("pages_resumed_total", help, counts.resumed);
    let help = "Readers that were dropped before the next page: their files were replaced, or memory was short.";
    shard.count("paused_readers_dropped_total", help, counts.dropped);
}

fn connections(shard: &mut Shard, front: &Front) {
    let arrivals = front.arrivals();
    let measured = [
        (
            "cql_connections",
            "Open connections of CQL clients.",
            front.connections() as u64,
        ),
        (
            "cql_connections_uninitialized",
            "Connections of CQL clients whose handshake is not complete.",
            arrivals.uninitialized as u64,
        ),
        (
            "cql_connections_waiting",
            "Connections of CQL clients that wait for their turn to do the handshake.",
            arrivals.waiting as u64,
        ),
    ];
    for (name, help, value) in measured {
        shard.gauge(name, help, value);
    }
    shard.count_all([
        (
            "cql_connections_accepted_total",
            "Accepted connections of CQL clients.",
            arrivals.accepted,
        ),
        (
            "cql_connections_shed_total",
            "Connections of CQL clients that were closed at once because the limit was reached.",
            arrivals.shed,
        ),
        (
            "cql_handshakes_total",
            "Connections of CQL clients that completed their handshake.",
            arrivals.handshakes,
        ),
    ]);
}

fn client_memory(shard: &mut Shard, front: &Front) {
    let (taken, limits) = (front.memory.taken(), front.memory.limits());
    let parts = [
        ("requests", taken.requests, limits.requests),
        ("results", taken.results, limits.results),
        ("unsent", taken.unsent, limits.unsent),
        ("frames", taken.frames, limits.frames),
        ("buffers", taken.buffers, limits.buffers),
    ];
    for (part, taken, limit) in parts {
        let help = "Memory that CQL clients have taken, by what it is for.";
        let taken = Value::Gauge(float(taken as u64));
        shard.add("cql_memory_bytes", help, &[("kind", part)], taken);
        let help = "The part of the memory that CQL clients may take, by what it is for.";
        let limit = Value::Gauge(float(limit as u64));
        shard.add("cql_memory_limit_bytes", help, &[("kind", part)], limit);
    }
}

fn coordinator(shard: &mut Shard, metrics: &Metrics) {
    let told = [
        (
            "coordinator_writes_total",
            "Writes sent to other shards or nodes.",
            metrics.writes,
        ),
        (
            "coordinator_reads_total",
            "Token ranges and rows read from other shards or nodes.",
            metrics.reads,
        ),
        (
            "coordinator_digest_mismatches_total",
            "Reads whose replicas sent different digests.",
            metrics.digest_mismatches,
        ),
        (
            "coordinator_repairs_total",
            "Mutations sent to replicas that a read found outdated.",
            metrics.repairs,
        ),
        (
            "coordinator_speculations_total",
            "Requests sent to an additional replica because another one was slow.",
            metrics.speculations,
        ),
        (
            "coordinator_timeouts_total",
            "Requests that failed because too few replicas responded in time.",
            metrics.timeouts,
        ),
        (
            "coordinator_unavailable_total",
            "Requests refused because too few replicas are up.",
            metrics.unavailable,
        ),
        (
            "coordinator_stale_requests_total",
            "Requests from other nodes refused because they used an outdated version of the topology.",
            metrics.stale_requests,
        ),
        (
            "coordinator_rate_limited_total",
            "Reads and writes refused by the per-partition rate limit.",
            metrics.rate_limited,
        ),
        (
            "coordinator_refused_full_total",
            "Writes refused because the disks of too many replicas are full.",
            metrics.refused_full,
        ),
        (
            "coordinator_aggregate_parts_total",
            "Parts of aggregates that this shard computed.",
            metrics.aggregate_parts,
        ),
    ];
    shard.count_all(told);
    conditional(shard, metrics);
}

fn conditional(shard: &mut Shard, metrics: &Metrics) {
    let told = [
        (
            "cas_total",
            "Conditional statements and serial reads that needed other replicas.",
            metrics.cas,
        ),
        (
            "cas_contentions_total",
            "Ballots refused because of a later ballot.",
            metrics.cas_contentions,
        ),
        (
            "cas_finished_total",
            "Proposals of other coordinators that this shard completed.",
            metrics.cas_finished,
        ),
        (
            "cas_unknown_total",
            "Conditional statements that were answered with an unknown outcome.",
            metrics.cas_unknown,
        ),
    ];
    shard.count_all(told);
}

fn storage(shard: &mut Shard, engine: &Engine) {
    let (memory, work) = (
        engine.coordinator.context.shard.memory(),
        engine.coordinator.context.shard.work(),
    );
    shard.gauge("dirty_bytes", "Size of the memtables.", memory.dirty as u64);
    shard.gauge(
        "dirty_bytes_max",
        "Size at which writers wait for memtables to be flushed.",
        memory.dirty_max as u64,
    );
    shard.gauge(
        "commitlog_bytes",
        "Size of the commitlog on disk.",
        engine.coordinator.context.shard.log.bytes(),
    );
    let cache = &engine.coordinator.context.shard.cache;
    let (hits, misses) = cache.hits_and_misses();
    shard.gauge(
        "chunk_cache_bytes",
        "Size of the cached sstable chunks.",
        cache.used() as u64,
    );
    shard.count("chunk_cache_hits_total", "Chunk lookups that the cache answered.", hits);
    shard.count("chunk_cache_misses_total", "Chunk lookups that went to disk.", misses);
    let rows = engine.coordinator.context.shard.row_cache_budget.bytes() as u64;
    shard.gauge("row_cache_bytes", "Size of the cached sstable rows.", rows);
    paused_readers(shard, engine.coordinator.context.shard.paused_readers.counts());
    shard.gauge(
        "flushes",
        "Memtables that are being flushed or wait to be flushed.",
        work.flushes,
    );
    shard.gauge("sstables", "Number of sstables.", work.sstables);
    shard.gauge("sstable_bytes", "Size of the sstables.", work.sstable_bytes);
    let help = "Size of the sstables that wait to be compacted or are being compacted.";
    shard.gauge("compaction_backlog_bytes", help, work.compaction_backlog_bytes);
    let help = "Tombstones that SELECT statements read: range tombstones, deleted partitions, and rows without live cells; statements \
                on one row by its full primary key are not counted.";
    shard.count("tombstones_read_total", help, engine.tombstones_read());
    let (warned, failed) = engine.tombstone_excesses();
    let help = "Pages of SELECT statements that met more tombstones than tombstone_warn_threshold.";
    shard.count("tombstone_warnings_total", help, warned);
    let help = "SELECT statements that failed because a page met more tombstones than tombstone_failure_threshold.";
    shard.count("tombstone_failures_total", help, failed);
    shard.gauge(
        "compactions",
        "Running compactions, at most one for each tablet.",
        work.compactions,
    );
    shard.count("failed_flushes_total", "Flushes that failed.", work.failed_flushes);
    shard.gauge(
        "sstables_quarantined",
        "Damaged sstables that were moved aside; reads of their token ranges are refused.",
        work.quarantined,
    );
    shard.gauge(
        "sstables_suspect",
        "Sstables with damage that is being examined; no compaction uses them.",
        work.suspects,
    );
    shard.count(
        "sstables_damaged_total",
        "Sstables that were found damaged while the node ran, and moved aside.",
        work.damaged,
    );
    shard.count(
        "disk_failures_total",
        "Sstables that the disk could not read or write in some place (EIO).",
        work.disk_failures,
    );
}

fn kept_writes(shard: &mut Shard, metrics: &hints::Metrics) {
    let told = [
        (
            "hints_written_total",
            "Hints stored for replicas that missed a write.",
            metrics.written,
        ),
        (
            "hints_replayed_total",
            "Hints delivered to their replica.",
            metrics.replayed,
        ),
        (
            "hints_dropped_total",
            "Hints that were not stored: no room, or the hint window had passed.",
            metrics.dropped,
        ),
        (
            "hints_expired_total",
            "Hints deleted because they were too old to deliver.",
            metrics.expired,
        ),
        (
            "hints_rejected_total",
            "Hints that their replica refused permanently.",
            metrics.rejected,
        ),
    ];
    shard.count_all(told);
    shard.gauge(
        "hints_waiting_bytes",
        "Size of the stored hints.",
        metrics.waiting_bytes,
    );
}

fn machine(shard: &mut Shard) {
    let metrics = runtime::metrics();
    let told = [
        ("polls_total", "Polls of tasks.", metrics.polls),
        (
            "sleeps_total",
            "Times the shard slept because it had nothing to do.",
            metrics.sleeps,
        ),
        (
            "kernel_visits_total",
            "Times the shard called the kernel for input and output.",
            metrics.kernel_visits,
        ),
        (
            "stalls_total",
            "Polls that took longer than 10 ms while the thread had a processor.",
            metrics.stalls,
        ),
        (
            "messages_sent_total",
            "Messages sent to other shards, responses included.",
            metrics.messages_sent,
        ),
        (
            "messages_received_total",
            "Messages received from other shards, responses included.",
            metrics.messages_received,
        ),
        (
            "messages_overflowed_total",
            "Messages that had to wait because the mailbox of the receiving shard was full.",
            metrics.messages_overflowed,
        ),
    ];
    shard.count_all(told);
    let help = "Processor time of the shard's thread, in user mode and in the kernel.";
    shard.add("shard_cpu_seconds_total", help, &[], Value::Time(metrics.cpu_time));
    if let Some(count) = metrics.user_instructions {
        let help = "User-mode instructions of the shard's thread since the first scrape.";
        shard.count("shard_user_instructions_total", help, count);
    }
    for (group, run_time) in &metrics.group_run_times {
        let help = "Time for which tasks of the scheduling group ran.";
        shard.add(
            "group_run_seconds_total",
            help,
            &[("group", group)],
            Value::Time(*run_time),
        );
    }
}

/// The links of a shard to all shards of a peer, added up: the number of lines grows with nodes, not with their shards.
#[derive(Default)]
struct Peer {
    calls: u64,
    timeouts: u64,
    overloads: u64,
    disconnects: u64,
    sent: u64,
    received: u64,
    connected: u64,
    waiting: u64,
}

fn links(shard: &mut Shard, rpc: &Rpc) {
    let mut peers: BTreeMap<String, Peer> = BTreeMap::new();
    for link in rpc.link_metrics() {
        let peer = peers.entry(link.host_id.to_string()).or_default();
        peer.calls += link.calls + link.one_way;
        peer.timeouts += link.timeouts;
        peer.overloads += link.overloads;
        peer.disconnects += link.disconnects;
        peer.sent += link.sent_bytes;
        peer.received += link.received_bytes;
        peer.connected += u64::from(link.is_connected);
        peer.waiting += (link.in_flight + link.waiting) as u64;
    }
    for (id, peer) in peers {
        let labels = [("peer", id.as_str())];
        let counted = [
            (
                "rpc_calls_total",
                "Calls and one-way messages sent to the peer.",
                peer.calls,
            ),
            (
                "rpc_timeouts_total",
                "Calls that the peer did not answer in time.",
                peer.timeouts,
            ),
            (
                "rpc_overloads_total",
                "Calls refused because too many others waited for the peer.",
                peer.overloads,
            ),
            (
                "rpc_disconnects_total",
                "Calls that failed because the connection to the peer broke.",
                peer.disconnects,
            ),
            ("rpc_sent_bytes_total", "Bytes sent to the peer.", peer.sent),
            (
                "rpc_received_bytes_total",
                "Bytes received from the peer.",
                peer.received,
            ),
        ];
        for (name, help, count) in counted {
            shard.add(name, help, &labels, Value::Counter(count));
        }
        let measured = [
            (
                "rpc_connections",
                "Open connections to the shards of the peer.",
                peer.connected,
            ),
            ("rpc_waiting", "Calls that the peer has not answered yet.", peer.waiting),
        ];
        for (name, help, value) in measured {
            shard.add(name, help, &labels, Value::Gauge(float(value)));
        }
    }
}
