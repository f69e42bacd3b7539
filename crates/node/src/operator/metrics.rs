//! Everything that a shard counts, as metrics with the shard's label.

use std::collections::BTreeMap;
use std::time::Duration;

use admin::handoff::{MissedWrites, Pending, State};
use admin::operator::{Metric, Node, Value};
use coordinator::Metrics;
use cql_server::Server;
use query::Engine;
use rpc::Rpc;
use tasks::ClassStatus;

/// Metrics of one shard, made one after another.
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
    #[expect(clippy::cast_precision_loss, reason = "a gauge is told in floating point")]
    let value = value as f64;
    value
}

/// What the shard that runs this counts.
pub(super) fn of_shard(engine: &Engine) -> Vec<Metric> {
    let mut shard = Shard {
        label: runtime::shard().0.to_string(),
        metrics: Vec::new(),
    };
    if let Some(server) = runtime::local::<Server>() {
        requests(&mut shard, &server);
    }
    coordinator(&mut shard, &engine.coordinator.metrics());
    if let Some(kept) = engine.coordinator.hints() {
        kept_writes(&mut shard, &kept.metrics());
    }
    storage(&mut shard, engine);
    machine(&mut shard);
    if let Some(rpc) = runtime::local::<Rpc>() {
        links(&mut shard, &rpc);
    }
    shard.metrics
}

fn requests(shard: &mut Shard, server: &Server) {
    let counts = server.counts();
    let kinds = [
        ("query", &counts.queries),
        ("execute", &counts.executes),
        ("prepare", &counts.prepares),
        ("batch", &counts.batches),
    ];
    for (kind, count) in kinds {
        let value = Value::Counter(count.get());
        shard.add(
            "requests_total",
            "Requests of CQL clients by kind.",
            &[("kind", kind)],
            value,
        );
    }
    shard.count("frames_total", "Frames of CQL clients.", server.requests());
    let latencies = [
        ("read", &counts.reads),
        ("write", &counts.writes),
        ("conditional", &counts.conditional),
        ("range", &counts.ranges),
    ];
    for (kind, latencies) in latencies {
        let value = Value::Histogram(latencies.buckets(), latencies.sum());
        let help = "Latencies of requests, from their arrival to their answer; those answered from memory are sampled.";
        shard.add("request_latency_seconds", help, &[("kind", kind)], value);
    }
    let help = "Statements on one partition that were answered in the call that brought them.";
    let at_once = Value::Counter(counts.at_once.get());
    shard.add("requests_at_once_total", help, &[], at_once);
    let places = [
        ("owner", &counts.owned),
        ("owning_node", &counts.owned_by_node),
        ("elsewhere", &counts.foreign),
    ];
    for (place, count) in places {
        let help = "Statements on one partition by whether they came to a shard that has it, to another shard of such a node, or \
                    elsewhere; those that waited are sampled.";
        shard.add(
            "routed_requests_total",
            help,
            &[("came_to", place)],
            Value::Counter(count.get()),
        );
    }
    connections(shard, server);
}

fn connections(shard: &mut Shard, server: &Server) {
    let arrivals = server.arrivals();
    let measured = [
        (
            "cql_connections",
            "Connections of CQL clients.",
            server.connections() as u64,
        ),
        (
            "cql_connections_uninitialized",
            "Connections of CQL clients that are not ready.",
            arrivals.uninitialized as u64,
        ),
        (
            "cql_connections_waiting",
            "Connections of CQL clients that are not ready and wait for their turn to work for it.",
            arrivals.waiting as u64,
        ),
    ];
    for (name, help, value) in measured {
        shard.gauge(name, help, value);
    }
    shard.count_all([
        (
            "cql_connections_accepted_total",
            "Connections of CQL clients that were accepted.",
            arrivals.accepted,
        ),
        (
            "cql_connections_shed_total",
            "Connections of CQL clients that were closed at once, because there were too many.",
            arrivals.shed,
        ),
        (
            "cql_handshakes_total",
            "Connections of CQL clients that became ready.",
            arrivals.handshakes,
        ),
    ]);
}

fn coordinator(shard: &mut Shard, metrics: &Metrics) {
    let told = [
        (
            "coordinator_writes_total",
            "Writes that went to other nodes or shards.",
            metrics.writes,
        ),
        (
            "coordinator_reads_total",
            "Stretches read from other nodes or shards.",
            metrics.reads,
        ),
        (
            "coordinator_digest_mismatches_total",
            "Stretches whose digests differed.",
            metrics.digest_mismatches,
        ),
        (
            "coordinator_repairs_total",
            "Mutations sent to repair a replica that a read found behind.",
            metrics.repairs,
        ),
        (
            "coordinator_speculations_total",
            "Requests to one more replica because another was slow.",
            metrics.speculations,
        ),
        (
            "coordinator_timeouts_total",
            "Requests that too few replicas answered in time.",
            metrics.timeouts,
        ),
        (
            "coordinator_unavailable_total",
            "Requests refused because too few replicas live.",
            metrics.unavailable,
        ),
        (
            "coordinator_stale_requests_total",
            "Requests of other nodes refused because they were routed by a version of the cluster that is fenced off.",
            metrics.stale_requests,
        ),
        (
            "coordinator_rate_limited_total",
            "Reads and writes refused because the limit of their partition was reached.",
            metrics.rate_limited,
        ),
        (
            "coordinator_aggregate_parts_total",
            "Parts of aggregates computed by this shard.",
            metrics.aggregate_parts,
        ),
    ];
    shard.count_all(told);
    conditional(shard, metrics);
}

fn conditional(shard: &mut Shard, metrics: &Metrics) {
    let told = [
        ("cas_total", "Conditional statements and serial reads.", metrics.cas),
        (
            "cas_contentions_total",
            "Ballots that were refused because of a later one.",
            metrics.cas_contentions,
        ),
        (
            "cas_finished_total",
            "Proposals of other leaders that were finished.",
            metrics.cas_finished,
        ),
        (
            "cas_unknown_total",
            "Conditional statements of which nobody knows whether they were applied.",
            metrics.cas_unknown,
        ),
    ];
    shard.count_all(told);
}

fn storage(shard: &mut Shard, engine: &Engine) {
    let (memory, work) = (engine.shard.memory(), engine.shard.work());
    shard.gauge("dirty_bytes", "Bytes of memtables.", memory.dirty as u64);
    shard.gauge("dirty_bytes_max", "Most bytes of memtables.", memory.dirty_max as u64);
    shard.gauge("commitlog_bytes", "Bytes of the commitlog.", engine.shard.log.bytes());
    let cache = &engine.shard.cache;
    let (hits, misses) = cache.hits_and_misses();
    shard.gauge(
        "chunk_cache_bytes",
        "Bytes of cached chunks of sstables.",
        cache.used() as u64,
    );
    shard.count("chunk_cache_hits_total", "Chunks that were in the cache.", hits);
    shard.count("chunk_cache_misses_total", "Chunks that were not in the cache.", misses);
    let rows = engine.shard.row_cache_budget.bytes() as u64;
    shard.gauge("row_cache_bytes", "Bytes of cached rows of sstables.", rows);
    shard.gauge(
        "flushes",
        "Memtables that are being flushed, or wait for it.",
        work.flushes,
    );
    shard.gauge("compactions", "Tablets that are being compacted.", work.compactions);
    shard.count("failed_flushes_total", "Flushes that failed.", work.failed_flushes);
    shard.gauge(
        "sstables_quarantined",
        "Damaged sstables that were moved aside and may have had tokens of the shard: reads of them are refused.",
        work.quarantined,
    );
    shard.gauge(
        "sstables_suspect",
        "Sstables in which damage was found since the start: no compaction takes them.",
        work.suspects,
    );
}

fn kept_writes(shard: &mut Shard, metrics: &hints::Metrics) {
    let told = [
        (
            "hints_written_total",
            "Writes kept for a replica that missed them.",
            metrics.written,
        ),
        (
            "hints_replayed_total",
            "Kept writes that their replica has got.",
            metrics.replayed,
        ),
        ("hints_dropped_total", "Writes that were not kept.", metrics.dropped),
        (
            "hints_expired_total",
            "Kept writes that were too old to be sent.",
            metrics.expired,
        ),
        (
            "hints_rejected_total",
            "Kept writes that their replica has refused for good.",
            metrics.rejected,
        ),
    ];
    shard.count_all(told);
    shard.gauge(
        "hints_waiting_bytes",
        "Bytes of writes kept for replicas.",
        metrics.waiting_bytes,
    );
}

fn machine(shard: &mut Shard) {
    let metrics = runtime::metrics();
    let told = [
        ("polls_total", "Times a task was polled.", metrics.polls),
        ("sleeps_total", "Times the shard slept in the kernel.", metrics.sleeps),
        (
            "kernel_visits_total",
            "Times the shard went to the kernel.",
            metrics.kernel_visits,
        ),
        ("stalls_total", "Polls that took over 10 ms.", metrics.stalls),
        (
            "messages_sent_total",
            "Messages to other shards, answers included.",
            metrics.messages_sent,
        ),
        (
            "messages_received_total",
            "Messages from other shards, answers included.",
            metrics.messages_received,
        ),
        (
            "messages_overflowed_total",
            "Messages that found a full mailbox.",
            metrics.messages_overflowed,
        ),
    ];
    shard.count_all(told);
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let help = "Processor time of the shard's thread, the kernel's part included, in microseconds.";
    shard.count("shard_cpu_time_us_total", help, micros(metrics.cpu_time));
    if let Some(count) = metrics.user_instructions {
        let help = "User instructions of the shard's thread since metrics were first asked for.";
        shard.count("shard_user_instructions_total", help, count);
    }
    for (group, run_time) in &metrics.group_run_times {
        let help = "Processor time of a scheduling group, in microseconds.";
        let us = micros(*run_time);
        shard.add("group_run_time_us_total", help, &[("group", group)], Value::Counter(us));
    }
}

/// A shard's links to all shards of a peer together: the number of lines grows with nodes, not with their shards.
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
            ("rpc_calls_total", "Calls and messages to a node.", peer.calls),
            (
                "rpc_timeouts_total",
                "Calls to a node that had no answer in time.",
                peer.timeouts,
            ),
            (
                "rpc_overloads_total",
                "Calls to a node that were refused because too much waited.",
                peer.overloads,
            ),
            (
                "rpc_disconnects_total",
                "Connections to a node that ended.",
                peer.disconnects,
            ),
            ("rpc_sent_bytes_total", "Bytes sent to a node.", peer.sent),
            ("rpc_received_bytes_total", "Bytes received from a node.", peer.received),
        ];
        for (name, help, count) in counted {
            shard.add(name, help, &labels, Value::Counter(count));
        }
        let measured = [
            ("rpc_connections", "Connections to a node's shards.", peer.connected),
            ("rpc_waiting", "Calls to a node that have no answer yet.", peer.waiting),
        ];
        for (name, help, value) in measured {
            shard.add(name, help, &labels, Value::Gauge(float(value)));
        }
    }
}

/// What the classes of tasks do and did on the node, and their limits.
pub(super) fn of_tasks(classes: &[ClassStatus]) -> Vec<Metric> {
    let mut metrics = Vec::new();
    for class in classes {
        let mut add = |name, help, value| {
            metrics.push(Metric {
                name,
                help,
                labels: vec![("class", class.class.name().to_owned())],
                value,
            });
        };
        let gauge = |value| Value::Gauge(float(value));
        add("tasks_running", "Jobs that have a worker.", gauge(class.running));
        add("tasks_waiting", "Jobs that wait for a worker.", gauge(class.waiting));
        let workers = class.workers.iter().map(|workers| u64::from(*workers)).sum();
        add("tasks_workers", "Workers of all shards.", gauge(workers));
        add(
            "tasks_bytes_per_second_max",
            "Limit of the bytes per second that jobs account for; 0 is none.",
            gauge(class.bytes_per_second),
        );
        let counts = class.counts;
        add(
            "tasks_done_total",
            "Tasks that ended well.",
            Value::Counter(counts.done),
        );
        add(
            "tasks_failed_total",
            "Tasks that failed.",
            Value::Counter(counts.failed),
        );
        add(
            "tasks_aborted_total",
            "Tasks that were aborted.",
            Value::Counter(counts.aborted),
        );
        add(
            "tasks_bytes_total",
            "Bytes that jobs accounted for.",
            Value::Counter(counts.bytes),
        );
    }
    metrics
}

/// Whether hints are kept and handed over, and what waits: a line for each node that hints wait for.
pub(super) fn of_handoff(state: &State, pending: &[Pending], missed: &[MissedWrites]) -> Vec<Metric> {
    let gauge = |name, help, labels, value| Metric {
        name,
        help,
        labels,
        value: Value::Gauge(float(value)),
    };
    let mut metrics = vec![
        gauge(
            "handoff_is_enabled",
            "Whether hints are kept for any datacenter.",
            Vec::new(),
            u64::from(state.is_enabled),
        ),
        gauge(
            "handoff_is_paused",
            "Whether handing hints over is paused.",
            Vec::new(),
            u64::from(state.is_paused),
        ),
        gauge(
            "handoff_targets",
            "Nodes that hints wait for.",
            Vec::new(),
            pending.len() as u64,
        ),
        gauge(
            "tombstones_held_since_seconds",
            "Since which second tombstones are kept beyond the grace period, because replicas may have missed deletions; 0 when none are.",
            Vec::new(),
            missed.iter().map(|missed| missed.first.into()).min().unwrap_or(0),
        ),
        gauge(
            "tombstones_held_spans",
            "Spans of time of which tombstones are kept beyond the grace period.",
            Vec::new(),
            missed.len() as u64,
        ),
    ];
    let help = "Bytes of writes kept for a node.";
    metrics.extend(pending.iter().map(|hints| {
        let labels = vec![("peer", hints.target.to_string())];
        gauge("hints_pending_bytes", help, labels, hints.bytes)
    }));
    metrics
}

/// What the node has once.
pub(super) fn of_node(node: &Node) -> Vec<Metric> {
    let metric = |name, help, value| Metric {
        name,
        help,
        labels: Vec::new(),
        value,
    };
    let gauge = |name, help, value| metric(name, help, Value::Gauge(float(value)));
    let live = node.members.iter().filter(|member| member.is_live).count() as u64;
    let leads = u64::from(node.raft.leader == Some(node.host_id));
    vec![
        gauge(
            "uptime_ms",
            "Milliseconds since the node began to serve.",
            node.uptime_ms,
        ),
        gauge("members", "Members of the cluster.", node.members.len() as u64),
        gauge("members_live", "Members of the cluster that answer.", live),
        gauge(
            "takes_writes",
            "Whether the node's commitlogs take writes.",
            node.me().map_or(1, |me| u64::from(me.takes_writes)),
        ),
        gauge(
            "members_refusing_writes",
            "Members of the cluster whose commitlogs take no writes.",
            node.members.iter().filter(|member| !member.takes_writes).count() as u64,
        ),
        metric(
            "clock_offset_seconds",
            "How far the node's wall clock is ahead of the other nodes, or of where it was before a step.",
            Value::Gauge(node.clock.ahead_seconds),
        ),
        gauge(
            "clock_state",
            "Whether the node trusts its wall clock: 0 yes, 1 no, 2 no and the node is out of service.",
            node.clock.state as u64,
        ),
        metric(
            "raft_term",
            "The metadata group's term.",
            Value::Counter(node.raft.term),
        ),
        metric(
            "raft_applied_index",
            "The last entry of the metadata log that was applied.",
            Value::Counter(node.raft.applied),
        ),
        metric(
            "raft_commit_index",
            "The last entry of the metadata log that is committed.",
            Value::Counter(node.raft.committed),
        ),
        gauge("raft_is_leader", "Whether the node leads the metadata group.", leads),
        gauge(
            "raft_is_withdrawn",
            "Whether the node takes no part in the metadata group because its metadata differs from that of others.",
            u64::from(node.raft.withdrawn.is_some()),
        ),
        gauge(
            "metadata_differing_members",
            "Members whose metadata is known to differ from the node's.",
            node.members.iter().filter(|member| member.differs_at.is_some()).count() as u64,
        ),
        gauge("raft_voters", "Voters of the metadata group.", node.raft.voters as u64),
    ]
}
