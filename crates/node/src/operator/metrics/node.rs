//! What a node has once: its process, its disks, its view of the cluster, its tasks, and hinted handoff.

use admin::handoff::{MissedWrites, Pending, State};
use admin::operator::{Metric, Node, Value};
use config::Config;
use tasks::ClassStatus;

use super::float;
use crate::directories::Directory;

type Labels = Vec<(&'static str, String)>;

fn metric(name: &'static str, help: &'static str, labels: Labels, value: Value) -> Metric {
    Metric {
        name,
        help,
        labels,
        value,
    }
}

fn gauge(name: &'static str, help: &'static str, value: u64) -> Metric {
    metric(name, help, Labels::new(), Value::Gauge(float(value)))
}

fn gauge_of(name: &'static str, help: &'static str, label: (&'static str, String), value: u64) -> Metric {
    metric(name, help, vec![label], Value::Gauge(float(value)))
}

/// The classes of tasks: what runs, what ended, and the limits.
pub(in crate::operator) fn tasks(classes: &[ClassStatus]) -> Vec<Metric> {
    let mut metrics = Vec::new();
    for class in classes {
        let label = ("class", class.class.name().to_owned());
        let workers = class.workers.iter().map(|workers| u64::from(*workers)).sum();
        let measured = [
            ("tasks_running", "Jobs that have a worker.", class.running),
            ("tasks_waiting", "Jobs that wait for a worker.", class.waiting),
            ("tasks_workers", "Workers of all shards.", workers),
            (
                "tasks_bytes_per_second_max",
                "Limit of the throughput of the jobs in bytes per second; 0 means no limit.",
                class.bytes_per_second,
            ),
        ];
        metrics.extend(measured.map(|(name, help, value)| gauge_of(name, help, label.clone(), value)));
        let counts = class.counts;
        let counted = [
            ("tasks_done_total", "Tasks that succeeded.", counts.done),
            ("tasks_failed_total", "Tasks that failed.", counts.failed),
            ("tasks_aborted_total", "Tasks that were aborted.", counts.aborted),
            ("tasks_bytes_total", "Bytes that jobs processed.", counts.bytes),
        ];
        metrics
            .extend(counted.map(|(name, help, count)| metric(name, help, vec![label.clone()], Value::Counter(count))));
    }
    metrics
}

/// What sstables were written with that is larger than the thresholds.
pub(in crate::operator) fn large_data(counts: sstable::LargeCounts) -> Vec<Metric> {
    let help = "Partitions, rows and cells above the thresholds of the configuration, each time that they were written to an sstable.";
    let of = |kind: &str, count| {
        metric(
            "large_data_total",
            help,
            vec![("kind", kind.to_owned())],
            Value::Counter(count),
        )
    };
    vec![
        of("partition", counts.partitions),
        of("row", counts.rows),
        of("cell", counts.cells),
    ]
}

/// What the node did as the leader so that tablets are even, and how even they were at its last look.
pub(in crate::operator) fn balance(report: &cluster::BalanceReport) -> Vec<Metric> {
    let done = report.done;
    let counted = [
        (
            "balance_moves_total",
            "Moves of tablets between nodes that the node began as the leader of the metadata group.",
            done.moves,
        ),
        (
            "balance_shard_moves_total",
            "Moves of tablets between shards that the node had done as the leader of the metadata group.",
            done.shard_moves,
        ),
        (
            "balance_splits_total",
            "Tables whose tablets the node had split as the leader of the metadata group.",
            done.splits,
        ),
        (
            "balance_merges_total",
            "Tables whose tablets the node had merged as the leader of the metadata group.",
            done.merges,
        ),
    ];
    let mut metrics: Vec<Metric> = counted
        .into_iter()
        .map(|(name, help, count)| metric(name, help, Labels::new(), Value::Counter(count)))
        .collect();
    let off = [
        (
            "balance_bytes_off_ratio",
            "Largest relative distance from the fair share of the bytes of tablets, as the node saw it last as the leader.",
            report.bytes,
        ),
        (
            "balance_load_off_ratio",
            "Largest relative distance from the fair share of the load of tablets, as the node saw it last as the leader.",
            report.load,
        ),
    ];
    for (name, help, deviation) in off {
        let parts = [
            ("rack", deviation.rack),
            ("node", deviation.node),
            ("shard", deviation.shard),
        ];
        metrics.extend(
            parts.map(|(kind, ratio)| metric(name, help, vec![("kind", kind.to_owned())], Value::Gauge(ratio))),
        );
    }
    metrics
}

/// Hinted handoff: whether it is enabled, and what waits; a line for each node that hints wait for.
pub(in crate::operator) fn handoff(state: &State, pending: &[Pending], missed: &[MissedWrites]) -> Vec<Metric> {
    let first_missed = missed.iter().map(|missed| missed.first.into()).min();
    let mut metrics = vec![
        gauge(
            "handoff_is_enabled",
            "1 if hints are stored for any datacenter.",
            u64::from(state.is_enabled),
        ),
        gauge(
            "handoff_is_paused",
            "1 if the delivery of hints is paused.",
            u64::from(state.is_paused),
        ),
        gauge("handoff_targets", "Nodes that hints wait for.", pending.len() as u64),
        gauge(
            "tombstones_held_since_seconds",
            "Unix time from which on tombstones are kept beyond the grace period because replicas may have missed deletions; 0 if none are.",
            first_missed.unwrap_or(0),
        ),
        gauge(
            "tombstones_held_spans",
            "Time spans whose tombstones are kept beyond the grace period.",
            missed.len() as u64,
        ),
    ];
    metrics.extend(pending.iter().map(|hints| {
        let label = ("peer", hints.target.to_string());
        gauge_of(
            "hints_pending_bytes",
            "Size of the hints that wait for the peer.",
            label,
            hints.bytes,
        )
    }));
    metrics
}

/// What was started, and when.
pub(in crate::operator) fn build(node: &Node) -> Vec<Metric> {
    let labels = vec![("version", node.version.clone()), ("release", node.release.clone())];
    let help = "1, labelled with the version of ceto and the release of Cassandra that it reports to clients.";
    vec![
        metric("build_info", help, labels, Value::Gauge(1.0)),
        gauge(
            "start_time_seconds",
            "Unix time at which the node began to serve.",
            u64::try_from(node.started_s).unwrap_or(0),
        ),
        metric(
            "uptime_seconds",
            "Time since the node began to serve.",
            Labels::new(),
            Value::Gauge(float(node.uptime_ms) / 1e3),
        ),
        gauge("memory_bytes_max", "Memory that the node may use.", node.memory),
    ]
}

/// The process and the file systems of its directories. What the system does not report is left out. Blocks.
pub(in crate::operator) fn machine(config: &Config) -> Vec<Metric> {
    let mut metrics = Vec::new();
    match runtime::process() {
        Ok(process) => metrics.extend([
            gauge(
                "process_resident_memory_bytes",
                "Resident memory of the process.",
                process.resident_bytes,
            ),
            metric(
                "process_cpu_seconds_total",
                "Processor time of all threads of the process, in user mode and in the kernel.",
                Labels::new(),
                Value::Time(process.cpu_time),
            ),
            gauge("process_open_fds", "Open file descriptors.", process.open_files),
            gauge(
                "process_max_fds",
                "Limit of open file descriptors.",
                process.open_files_max,
            ),
        ]),
        Err(error) => log::debug!("metrics of the process are not exported: {error}"),
    }
    for directory in Directory::ALL {
        let path = directory.path(config);
        let space = match runtime::fs::disk_space(&path) {
            Ok(space) => space,
            Err(error) => {
                log::debug!("metrics of the disk of {} are not exported: {error}", path.display());
                continue;
            }
        };
        let measured = [
            (
                "disk_total_bytes",
                "Size of the file system that has the directory.",
                space.total,
            ),
            (
                "disk_used_bytes",
                "Used space of the file system that has the directory, by any program.",
                space.used,
            ),
            (
                "disk_utilization_ppm",
                "Used part of what programs can use of the file system that has the directory, in millionths.",
                u64::from(crate::disk_space::utilization(space).0),
            ),
            (
                "disk_available_bytes",
                "Free space that the node can use of the file system that has the directory.",
                space.available,
            ),
        ];
        let label = ("kind", directory.name().to_owned());
        metrics.extend(measured.map(|(name, help, value)| gauge_of(name, help, label.clone(), value)));
    }
    metrics
}

/// The cluster as the node sees it.
pub(in crate::operator) fn cluster(node: &Node) -> Vec<Metric> {
    let count = |counts: fn(&&admin::operator::Member) -> bool| node.members.iter().filter(counts).count() as u64;
    let mut metrics = vec![
        gauge("members", "Members of the cluster.", node.members.len() as u64),
        gauge(
            "members_live",
            "Members of the cluster that are up, this node included.",
            count(|member| member.is_live),
        ),
        gauge(
            "takes_writes",
            "1 if the commitlogs of the node accept writes.",
            node.me().map_or(1, |me| u64::from(me.takes_writes)),
        ),
        gauge(
            "members_refusing_writes",
            "Members of the cluster whose commitlogs refuse writes.",
            count(|member| !member.takes_writes),
        ),
        gauge(
            "disk_level",
            "How full the disks of the node are: 0 normal, 1 warning, 2 critical.",
            node.me().map_or(0, |me| me.disk as u64),
        ),
        gauge(
            "members_with_full_disks",
            "Members of the cluster whose disks are full: they take deletes and no data.",
            count(|member| member.disk == admin::operator::DiskLevel::Critical),
        ),
        gauge(
            "metadata_differing_members",
            "Members whose metadata is known to differ from that of the node.",
            count(|member| member.differs_at.is_some()),
        ),
        metric(
            "clock_offset_seconds",
            "How far the wall clock is ahead of the other nodes, or of itself before a step.",
            Labels::new(),
            Value::Gauge(node.clock.ahead_seconds),
        ),
        gauge(
            "clock_state",
            "State of the wall clock: 0 trusted, 1 not trusted, 2 not trusted and the node is out of service.",
            node.clock.state as u64,
        ),
        gauge("raft_term", "Term of the metadata group.", node.raft.term),
        gauge(
            "raft_applied_index",
            "Log index of the last metadata entry that the node applied.",
            node.raft.applied,
        ),
        gauge(
            "raft_commit_index",
            "Log index of the last metadata entry known to be committed.",
            node.raft.committed,
        ),
        gauge(
            "raft_is_leader",
            "1 if the node leads the metadata group.",
            u64::from(node.raft.leader == Some(node.host_id)),
        ),
        gauge(
            "raft_is_withdrawn",
            "1 if the node applies no metadata changes because its metadata differs or a change cannot be read.",
            u64::from(node.raft.withdrawn.is_some()),
        ),
        gauge("raft_voters", "Voters of the metadata group.", node.raft.voters as u64),
    ];
    let peers = node.members.iter().filter(|member| member.host_id != node.host_id);
    metrics.extend(peers.map(|peer| {
        let label = ("peer", peer.host_id.to_string());
        gauge_of(
            "peer_up",
            "1 if the node considers the peer up.",
            label,
            u64::from(peer.is_live),
        )
    }));
    metrics
}
