//! The configuration of a node: from the command line, a YAML file with the names of cassandra.yaml and scylla.yaml,
//! and defaults.
//!
//! The command line beats the file, which beats the default. A value is text until this crate knows its option,
//! wherever it came from. A wrong value is an error that names the option, what was given and what is expected; all
//! errors are reported at once. Nothing is ignored in silence: if a name of the two files asks for something that is
//! not done, it stops the start, causes a warning, or is counted as meaningless here ([`wishes`]). Any other name is an
//! error that suggests the nearest. The options are those of one [`table`].

mod admin;
mod args;
mod cluster;
#[cfg(test)]
mod cluster_tests;
mod dialect;
mod dynamodb;
mod error;
mod experimental;
mod file;
#[doc(hidden)]
pub mod fuzz;
mod given;
mod guardrails;
mod large_data;
mod live;
mod machine;
mod maintenance;
mod nested;
mod network;
mod options;
mod print;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod stock_tests;
mod table;
#[cfg(test)]
mod tests;
mod value;
mod wishes;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use coordinator::Timeouts;
use log::LevelFilter;
use query::Dialect;
use query::engine::PageLimits;
use rpc::Compression;
use runtime::Backend;
use topology::{ClockLimits, DiskLimits, Location, Replaced, Utilization};
use types::Token;

pub use args::{Mode, ServerArgs};
use cluster::Cluster;
pub use cluster::{Encryption, Hints, InternodeScope};
pub use dynamodb::{DynamoDb, WriteIsolation};
pub use error::{ConfigError, OptionOrigin};
pub use experimental::Experimental;
pub use given::{Given, SetOptions};
pub use live::{Changed, Described, described, set};
pub use machine::Machine;
use options::{Lookup, Options};
pub use print::print;
pub use table::changes_at_hangup;

/// What is kept of tables that are dropped or truncated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AutoSnapshot {
    /// A table is kept in a snapshot before it is dropped or truncated.
    pub is_on: bool,
    /// How long such a snapshot is kept; None until an operator clears it.
    pub ttl: Option<Duration>,
}

/// The whole configuration of a node.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of everything this node keeps.
    pub workdir: PathBuf,
    /// Directory of sstables.
    pub data_dir: PathBuf,
    /// Directory of the commitlog.
    pub commitlog_dir: PathBuf,
    /// Number of shards.
    pub smp: u32,
    /// The processors that shards are pinned to, one each; None does not pin.
    pub cpus: Option<Vec<usize>>,
    /// The machine is shared: shards neither pin nor spin.
    pub overprovisioned: bool,
    /// Memory of the whole node in bytes.
    pub memory: u64,
    /// Checks of the environment are relaxed; durability is the same.
    pub developer_mode: bool,
    /// Experimental features that are on.
    pub experimental: Experimental,
    /// Whether every shard is kept busy with a background task: for measurements only.
    pub background_hog: bool,
    /// Seconds by which the clock is to be wrong, for tests.
    pub clock_wrong_by_s: i64,
    /// Features of the release that the node does not show to others.
    pub held_back_features: Vec<String>,
    /// Whether the node shows features that its cluster has not enabled.
    pub enable_new_features: bool,
    /// How long ago the replicas of a range may have been known to be equal, before the node repairs it by itself;
    /// None: it does not.
    pub repair_threshold: Option<Duration>,
    /// Address for other nodes.
    pub listen_address: IpAddr,
    /// Address for clients.
    pub rpc_address: IpAddr,
    /// Address announced to other nodes.
    pub broadcast_address: IpAddr,
    /// Address announced to clients; never a wildcard.
    pub broadcast_rpc_address: IpAddr,
    /// CQL port; 0 takes any free one.
    pub native_transport_port: u16,
    /// CQL port where the client's port chooses the shard; 0 takes any free one, None does without.
    pub shard_aware_port: Option<u16>,
    /// CQL port for proxies, and the one of those where the client's port chooses the shard; None does without.
    pub proxied_ports: [Option<u16>; 2],
    /// How the DynamoDB API is served.
    pub dynamodb: DynamoDb,
    /// Whether the node stays apart from its cluster, so that an operator can see to its data.
    pub maintenance_mode: bool,
    /// The socket by which operators reach the node from its machine, if it has one.
    pub maintenance_socket: Option<front::MaintenanceSocket>,
    /// Where the REST API listens, if it does; a port of 0 takes any free one.
    pub api: Option<SocketAddr>,
    /// Where Prometheus is answered, if it is; a port of 0 takes any free one.
    pub prometheus: Option<SocketAddr>,
    /// Whether Prometheus gets metrics of each table.
    pub table_metrics: bool,
    /// When a write is acknowledged.
    pub commitlog_sync: CommitlogSync,
    /// Size of a commitlog segment in bytes.
    pub commitlog_segment_size: u64,
    /// Size of the node's commitlog in bytes: above it tables are flushed so that segments can go.
    pub commitlog_total_space: u64,
    /// Name of the cluster.
    pub cluster_name: String,
    /// What a node must know to talk to this one.
    pub join_secret: Option<rpc::JoinSecret>,
    /// This node's data center.
    pub data_center: String,
    /// This node's rack.
    pub rack: String,
    /// Data center and rack as the cluster knows them: from the options, else from the snitch.
    pub location: Location,
    /// How far the node's wall clock may be off.
    pub clock_limits: ClockLimits,
    /// Where nodes are asked that know the cluster; none for a node that forms one of its own.
    pub seeds: Vec<::cluster::Seed>,
    /// Port for other nodes; 0 takes any free one.
    pub storage_port: u16,
    /// Port for other nodes' TLS connections; 0 takes any free one.
    pub ssl_storage_port: u16,
    /// How many tokens the node takes when it joins.
    pub num_tokens: usize,
    /// The tokens it takes when it joins; empty when it may choose them.
    pub initial_tokens: Vec<Token>,
    /// Whether it takes its part of the ring when it joins.
    pub auto_bootstrap: bool,
    /// Whether it may own anything: tokens, tablets, copies.
    pub joins_ring: bool,
    /// The member whose place the node takes when it joins.
    pub replaces: Option<Replaced>,
    /// Other dead members, which are excluded when the node joins.
    pub ignores: Vec<Replaced>,
    /// How long coordinators wait for replicas.
    pub timeouts: Timeouts,
    /// How long a request that is none of these may take.
    pub request_timeout: Duration,
    /// From when on a request is logged as slow; zero: none is.
    pub slow_request: Duration,
    /// How long a change of the schema takes in all, its answer included. No option: the simulator gives more.
    pub schema_timeout: Duration,
    /// Connections to other nodes that are compressed.
    pub internode_compression: InternodeScope,
    /// With what they are, the preferred first.
    pub internode_compression_algorithms: Vec<Compression>,
    /// TLS between nodes, if any connection has it.
    pub encryption: Option<Encryption>,
    /// The limits of connections with other nodes. No option changes them; the simulator makes them small.
    pub internode_limits: rpc::Limits,
    /// What becomes of writes that a replica missed.
    pub hints: Hints,
    /// The longest frame body that is taken, in bytes.
    pub native_transport_max_frame_size: usize,
    /// Client connections that a shard takes.
    pub max_connections_per_shard: usize,
    /// Client connections of a shard that may work for their handshake at once.
    pub handshakes_per_shard: usize,
    /// Limit of what compaction writes, bytes per second.
    pub compaction_throughput: Option<u64>,
    /// Limit of what streams to and from other nodes move, bytes per second.
    pub stream_throughput: Option<u64>,
    /// Whether keyspaces with tablets must fit the racks.
    pub rf_rack_valid_keyspaces: bool,
    /// Whether statements write the copies of keyspaces with tablets as lists of racks.
    pub enforce_rack_list: bool,
    /// What statements mean where servers differ.
    pub dialect: Dialect,
    /// Whether functions may be created.
    pub user_defined_functions_enabled: bool,
    /// What one call of a user-defined function may use.
    pub function_limits: functions::Limits,
    /// How many tombstones a page of a read may meet.
    pub page_limits: PageLimits,
    /// Above which size partitions, rows and cells are listed as large.
    pub large: sstable::LargeThresholds,
    /// Beyond which size writes to them are refused, where tables want that.
    pub large_limits: sstable::LargeThresholds,
    /// The limits of statements besides.
    pub guardrails: query::guardrails::Guardrails,
    /// What is kept of tables that are dropped or truncated.
    pub auto_snapshot: AutoSnapshot,
    /// Whether new sstables are named by UUIDs.
    pub uuid_generations: bool,
    /// What the node does when a disk fails.
    pub disk_failure_policy: DiskFailurePolicy,
    /// How full the disks may be.
    pub disk_limits: DiskLimits,
    /// How this node balances tablets while it leads the metadata group.
    pub balancing: ::cluster::Balancing,
    /// How long a task of the node is kept after its end.
    pub task_ttl: Duration,
    /// How long a task that an operator asked for is kept after its end.
    pub user_task_ttl: Duration,
    /// How long the token ring rests before the node removes what other nodes own now.
    pub ring_cleanup_delay: Duration,
    /// From the beginning of a pass over rows that may have expired to that of the next.
    pub row_expiry_period: Duration,
    /// The interface to the kernel.
    pub backend: Backend,
    /// The least severe message that is logged.
    pub log_level: LevelFilter,
    /// The form of log lines.
    pub log_format: logging::Format,
    /// Every effective setting by YAML name as text, for `system_views.settings`.
    pub settings: BTreeMap<String, Option<String>>,
    /// Where each setting that was given has its value from; one that is not here has its default.
    pub sources: BTreeMap<&'static str, Source>,
    /// Whether clients may change options by statements on `system.config`.
    pub changes_by_cql: bool,
    /// What the configuration follows from; None for one that was not read.
    pub given: Option<Arc<Given>>,
    /// What the operator should know; log each once at start.
    pub warnings: Vec<String>,
}

/// Where an option has its value from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Nowhere: it has its default.
    Default,
    /// The options file.
    File,
    /// The command line.
    CommandLine,
    /// A statement on `system.config`.
    Cql,
    /// The node itself, or a command of nodetool.
    Internal,
}

impl Source {
    /// The name that `system.config` has for it, as in ScyllaDB.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File => "config",
            Self::CommandLine => "cli",
            Self::Cql => "cql",
            Self::Internal => "internal",
        }
    }
}

impl Config {
    /// Whether keyspaces with tablets must fit the racks.
    #[must_use]
    pub fn checks_racks(&self) -> bool {
        self.rf_rack_valid_keyspaces || self.enforce_rack_list
    }

    /// Refuses to make a node in a directory that no option names. Where the default directory has one already, that is
    /// started.
    ///
    /// # Errors
    /// What to type instead.
    pub fn check_workdir(&self) -> Result<(), String> {
        let is_node = || {
            ["lock", OPTIONS_FILE]
                .iter()
                .any(|name| runtime::fs::exists(self.workdir.join(name)))
        };
        if self.sources.contains_key("workdir") || is_node() {
            return Ok(());
        }
        let workdir = self.workdir.display();
        Err(format!(
            "no workdir is given, and there is no node in ./{workdir}. To make one there: ceto --workdir ./{workdir}. To see the options: ceto --help"
        ))
    }

    /// The configuration of a node for which no option is given.
    #[must_use]
    pub fn defaults(machine: &Machine) -> Self {
        let world = World {
            machine,
            read: &|_| None,
            lookup: &|_| Err("it is not looked up".to_owned()),
        };
        resolve(&ServerArgs::default(), None, &SetOptions::new(), &world)
            .expect("each default is a value that its option takes")
    }
}

/// When a write is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitlogSync {
    /// Once its bytes are in the kernel; they are made durable within the period.
    Periodic {
        /// The period.
        period: Duration,
    },
    /// Once its bytes are durable.
    Batch,
}

/// The runtime has no more.
const SHARDS_MAX: u32 = 256;
/// What a node needs for its buffers and one memtable.
const MEMORY_MIN: u64 = 128 << 20;
/// The protocol's own limit of a frame.
const FRAME_BYTES_MAX: u64 = 256 << 20;
/// Below this not even the requests of a driver's start fit.
const FRAME_BYTES_MIN: u64 = 4 << 10;
/// The smallest segment that holds the largest mutation this node takes from a frame of the default size.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;
/// The largest segment; offsets in one are 32 bits.
const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// A shorter period would only sync without a pause: that is `batch`.
const SYNC_PERIOD_MIN: Duration = Duration::from_millis(1);
/// Unless `auto_cleanup_delay_in_seconds` says otherwise.
const RING_CLEANUP_DELAY: Duration = Duration::from_mins(5);
/// Unless `auto_repair_threshold_default_in_seconds` says otherwise: a day, ScyllaDB's default.
const REPAIR_THRESHOLD: Duration = Duration::from_hours(24);
/// Connections of a shard when no limit is given.
const CONNECTIONS_PER_SHARD: usize = 10_000;
/// Of a disk, in millionths, where ScyllaDB refuses too.
const CRITICAL_DISK_UTILIZATION: u32 = 980_000;
/// The options file that is read without being named, in the workdir.
const OPTIONS_FILE: &str = "ceto.yaml";
/// The file of GossipingPropertyFileSnitch, beside the options file or in the workdir.
const RACKDC_FILE: &str = "cassandra-rackdc.properties";
/// The default workdir.
const WORKDIR: &str = "data";

/// What a configuration depends on besides its options.
struct World<'w> {
    machine: &'w Machine,
    /// Gives the text of a file, if it is there.
    read: &'w dyn Fn(&Path) -> Option<String>,
    lookup: Lookup<'w>,
}

/// The configuration of a node. Host names are looked up, which blocks: the shards must not run yet.
///
/// # Errors
/// When the options file cannot be read or parsed, and with every option that is unknown or wrong.
pub fn load(args: &ServerArgs, machine: &Machine) -> Result<Config, ConfigError> {
    let given = Arc::new(Given::read(args, machine)?);
    let config = given.config(&SetOptions::new())?;
    Ok(Config {
        given: Some(given),
        ..config
    })
}

/// The configuration from the arguments, the text of the options file and the options that clients have set.
fn resolve(
    args: &ServerArgs,
    file: Option<(&Path, &str)>,
    set: &SetOptions,
    world: &World<'_>,
) -> Result<Config, ConfigError> {
    let mut options = Options::new(world.lookup);
    if let Some((path, text)) = file {
        let entries = file::parse(text).map_err(|message| ConfigError::Syntax {
            path: path.to_owned(),
            message,
        })?;
        options.add_file(path, entries);
    }
    for (name, text) in args.given() {
        options.add_argument(name, text.clone());
    }
    for (spelling, text) in set.values() {
        options.add_set(spelling, text.clone());
    }
    let beside = file.and_then(|(path, _)| path.parent());
    let config = effective(&mut options, args, beside, world);
    options.check()?;
    Ok(Config {
        sources: options.sources(),
        settings: options.settings,
        warnings: options.warnings,
        ..config
    })
}

/// The configuration by the options, with the defaults in the place of values that are wrong.
fn effective(options: &mut Options<'_>, args: &ServerArgs, beside: Option<&Path>, world: &World<'_>) -> Config {
    let (workdir, data_dir, commitlog_dir) = directories(options);
    let (smp, cpus, overprovisioned) = shards(options, world.machine);
    let memory = memory(options, world.machine);
    let network = network::resolve(options);
    let (api, prometheus, table_metrics) = admin::resolve(options, network.listen, network.port);
    let cluster = Cluster::resolve(options, network.broadcast, &|| {
        let mut paths = beside.into_iter().chain([&*workdir]).map(|dir| dir.join(RACKDC_FILE));
        paths.find_map(|path| (world.read)(&path).map(|text| (path, text)))
    });
    let commitlog_sync = commitlog_sync(options);
    let (commitlog_segment_size, commitlog_total_space) = commitlog_sizes(options, smp, memory);
    let (maintenance_mode, maintenance_socket) = maintenance::resolve(options, &workdir);
    let developer_mode = options.get("developer_mode", SWITCH, value::switch).unwrap_or(false);
    options.note("developer_mode", developer_mode);
    let large = large_data::resolve(options);
    Config {
        workdir,
        data_dir,
        commitlog_dir,
        smp,
        cpus,
        overprovisioned,
        memory,
        developer_mode,
        experimental: experimental::resolve(options),
        background_hog: args.mode.background_hog,
        clock_wrong_by_s: clock_wrong_by(options, args, developer_mode),
        held_back_features: args.mode.hold_back_feature.clone(),
        enable_new_features: cluster::switch(options, "enable_new_features", true),
        repair_threshold: repair_threshold(options),
        listen_address: network.listen,
        rpc_address: network.rpc,
        broadcast_address: network.broadcast,
        broadcast_rpc_address: network.broadcast_rpc,
        native_transport_port: network.port,
        shard_aware_port: network.shard_aware_port,
        proxied_ports: network.proxied_ports,
        dynamodb: dynamodb::resolve(options, &network),
        maintenance_mode,
        maintenance_socket,
        api,
        prometheus,
        table_metrics,
        commitlog_sync,
        commitlog_segment_size,
        commitlog_total_space,
        cluster_name: name(options, "cluster_name", "Test Cluster"),
        join_secret: join_secret(options),
        data_center: cluster.location.datacenter.clone(),
        rack: cluster.location.rack.clone(),
        location: cluster.location,
        clock_limits: cluster.clock_limits,
        seeds: cluster.seeds,
        storage_port: cluster.storage_port,
        ssl_storage_port: cluster.ssl_storage_port,
        num_tokens: cluster.num_tokens,
        initial_tokens: cluster.initial_tokens,
        auto_bootstrap: cluster.auto_bootstrap,
        joins_ring: cluster.joins_ring,
        replaces: cluster.replaces,
        ignores: cluster.ignores,
        timeouts: cluster.timeouts,
        request_timeout: cluster.request_timeout,
        slow_request: cluster.slow_request,
        schema_timeout: ::cluster::SCHEMA_TIMEOUT.min(cluster.request_timeout),
        internode_compression: cluster.compression,
        internode_compression_algorithms: cluster.compression_algorithms,
        encryption: cluster.encryption,
        internode_limits: rpc::Limits::default(),
        hints: cluster.hints,
        native_transport_max_frame_size: frame_size(options),
        max_connections_per_shard: connections(options, smp),
        handshakes_per_shard: handshakes(options),
        compaction_throughput: throughput(options, "compaction_throughput"),
        stream_throughput: throughput(options, "stream_throughput_outbound"),
        rf_rack_valid_keyspaces: cluster::switch(options, ::cluster::RACK_OPTION, false),
        enforce_rack_list: cluster::switch(options, "enforce_rack_list", false),
        dialect: dialect::resolve(options),
        user_defined_functions_enabled: cluster::switch(options, "user_defined_functions_enabled", false),
        function_limits: function_limits(options),
        page_limits: guardrails::page_limits(options),
        large: large.thresholds,
        large_limits: large.limits,
        guardrails: guardrails::guardrails(options, large.guardrails()),
        auto_snapshot: auto_snapshot(options),
        uuid_generations: cluster::switch(options, "uuid_sstable_identifiers_enabled", true),
        disk_failure_policy: disk_failure_policy(options),
        disk_limits: disk_limits(options),
        balancing: cluster.balancing,
        task_ttl: seconds(options, "task_ttl_in_seconds", tasks::TTL_DEFAULT),
        user_task_ttl: seconds(options, "user_task_ttl_in_seconds", tasks::USER_TTL_DEFAULT),
        ring_cleanup_delay: seconds(options, "auto_cleanup_delay_in_seconds", RING_CLEANUP_DELAY),
        row_expiry_period: row_expiry_period(options),
        backend: backend(options),
        log_level: log_level(options),
        log_format: log_format(options),
        changes_by_cql: cluster::switch(options, live::SWITCH, true),
        settings: BTreeMap::new(),
        sources: BTreeMap::new(),
        given: None,
        warnings: Vec::new(),
    }
}

/// `auto_snapshot` and `auto_snapshot_ttl`.
fn auto_snapshot(options: &mut Options<'_>) -> AutoSnapshot {
    let is_on = options.get("auto_snapshot", SWITCH, value::switch).unwrap_or(true);
    options.note("auto_snapshot", is_on);
    // ScyllaDB's is a number of seconds.
    let time = |text: &str| match text {
        "none" => Some(None),
        text => value::duration(text)
            .or_else(|| text.parse().ok().map(Duration::from_secs))
            .map(Some),
    };
    let ttl = options
        .get("auto_snapshot_ttl", "a time such as 30d or 12h, or none", time)
        .flatten();
    options.note_or_none("auto_snapshot_ttl", ttl.map(|ttl| format!("{}s", ttl.as_secs())));
    AutoSnapshot { is_on, ttl }
}

/// What a node does when a disk fails, by Cassandra's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskFailurePolicy {
    /// Continue without what is damaged: reads of its tokens are refused. Also Cassandra's `ignore`.
    BestEffort,
    /// Leave service when the disk cannot read or write a place.
    Stop,
    /// Leave service, or do not start, when an sstable is damaged, too.
    StopParanoid,
    /// End in all these cases.
    Die,
}

fn disk_failure_policy(options: &mut Options<'_>) -> DiskFailurePolicy {
    const POLICIES: [(&str, DiskFailurePolicy); 5] = [
        ("best_effort", DiskFailurePolicy::BestEffort),
        ("ignore", DiskFailurePolicy::BestEffort),
        ("stop", DiskFailurePolicy::Stop),
        ("stop_paranoid", DiskFailurePolicy::StopParanoid),
        ("die", DiskFailurePolicy::Die),
    ];
    let named = |text: &str| POLICIES.into_iter().find(|(name, _)| *name == text);
    let (name, policy) = options
        .get(
            "disk_failure_policy",
            "best_effort, ignore, stop, stop_paranoid or die",
            named,
        )
        .unwrap_or(POLICIES[0]);
    options.note("disk_failure_policy", name);
    policy
}

/// `critical_disk_utilization_level`, and the two thresholds that Cassandra has in percent. The lower of the two that
/// refuse counts.
fn disk_limits(options: &mut Options<'_>) -> DiskLimits {
    let option = "critical_disk_utilization_level";
    let level = options.get(
        option,
        "a fraction of a disk from 0.01 to 1, such as 0.98",
        value::fraction,
    );
    let level = level.unwrap_or(CRITICAL_DISK_UTILIZATION);
    options.note(option, value::fraction_text(level));
    let mut percentage = |option: &'static str| {
        let given = options.get(option, "a percentage from 1 to 100, or -1 for none", value::percentage);
        let given = given.flatten();
        options.note(option, given.map_or(-1, i64::from));
        given.map(|percent| Utilization(percent * 10_000))
    };
    let fail = percentage("data_disk_usage_percentage_fail_threshold");
    let warn = percentage("data_disk_usage_percentage_warn_threshold");
    // At the whole there is nothing left to refuse for.
    let level = Some(Utilization(level)).filter(|level| *level < Utilization::WHOLE);
    DiskLimits {
        warn,
        critical: [level, fail].into_iter().flatten().min(),
    }
}

/// `auto_repair_enabled_default` and `auto_repair_threshold_default_in_seconds`.
fn repair_threshold(options: &mut Options<'_>) -> Option<Duration> {
    let is_on = cluster::switch(options, "auto_repair_enabled_default", true);
    let threshold = seconds(options, "auto_repair_threshold_default_in_seconds", REPAIR_THRESHOLD);
    is_on.then_some(threshold)
}

/// A number of seconds.
fn seconds(options: &mut Options<'_>, name: &'static str, default: Duration) -> Duration {
    let given = options.get(name, "a number of seconds", |text| text.parse().ok());
    let time = given.map_or(default, Duration::from_secs);
    options.note(name, time.as_secs());
    time
}

fn row_expiry_period(options: &mut Options<'_>) -> Duration {
    let option = "alternator_ttl_period_in_seconds";
    let is_some = |seconds: &u64| *seconds > 0;
    let given = options.get(option, "a number of seconds above 0", |text| {
        text.parse().ok().filter(is_some)
    });
    let seconds = given.unwrap_or(24 * 60 * 60);
    options.note(option, seconds);
    Duration::from_secs(seconds)
}

fn clock_wrong_by(options: &mut Options<'_>, args: &ServerArgs, developer_mode: bool) -> i64 {
    let seconds = args.mode.clock_wrong_by.unwrap_or(0);
    if seconds != 0 && !developer_mode {
        options.error(ConfigError::WrongValue {
            option: "clock_wrong_by".to_owned(),
            place: OptionOrigin::CommandLine,
            given: seconds.to_string(),
            expected: "--developer-mode beside it, for write timestamps follow the clock".to_owned(),
        });
    }
    seconds
}

fn throughput(options: &mut Options<'_>, option: &'static str) -> Option<u64> {
    let rate = options.get(option, "a rate such as 64MiB/s, or 0", value::rate);
    options.note(option, rate_text(rate.unwrap_or(0)));
    rate.filter(|rate| *rate > 0)
}

/// Bytes per second as the option's text; 0 is no limit.
pub fn rate_text(bytes_per_second: u64) -> String {
    format!("{}/s", value::size_text(bytes_per_second))
}

fn function_limits(options: &mut Options<'_>) -> functions::Limits {
    let usual = functions::Limits::DEFAULT;
    let time = options.get(
        "user_defined_function_time_limit_ms",
        "a number of milliseconds from 1 to 10000",
        |text| text.parse().ok().filter(|ms| (1..=10_000).contains(ms)),
    );
    let memory = options.get(
        "user_defined_function_allocation_limit_bytes",
        "a number of bytes, or a size such as 1MiB, from 65536 to 1073741824",
        |text| value::size(text).filter(|bytes| (65_536..=1 << 30).contains(bytes)),
    );
    let memory = memory.and_then(|bytes| usize::try_from(bytes).ok());
    let limits = functions::Limits {
        time_ms: time.unwrap_or(usual.time_ms),
        memory_bytes: memory.unwrap_or(usual.memory_bytes),
    };
    options.note("user_defined_function_time_limit_ms", limits.time_ms);
    options.note("user_defined_function_allocation_limit_bytes", limits.memory_bytes);
    limits
}

fn backend(options: &mut Options<'_>) -> Backend {
    const BACKENDS: [(&str, Backend); 3] = [
        ("auto", Backend::Auto),
        ("io_uring", Backend::IoUring),
        ("epoll", Backend::Epoll),
    ];
    let named = |text: &str| BACKENDS.into_iter().find(|(name, _)| *name == text);
    let (name, backend) = options
        .get("backend", "auto, io_uring or epoll", named)
        .unwrap_or(BACKENDS[0]);
    options.note("backend", name);
    backend
}

fn log_level(options: &mut Options<'_>) -> LevelFilter {
    let option = "default_log_level";
    let expected = "off, error, warn, info, debug or trace";
    let level = options.get(option, expected, |text| text.parse().ok());
    let level = level.unwrap_or(LevelFilter::Info);
    options.note(option, level.as_str().to_ascii_lowercase());
    level
}

fn log_format(options: &mut Options<'_>) -> logging::Format {
    let option = "log_format";
    let format = options.get(option, "text or json", |text| match text {
        "text" => Some(logging::Format::Text),
        "json" => Some(logging::Format::Json),
        _ => None,
    });
    if format.is_none() {
        options.note(option, "text");
    }
    format.unwrap_or(logging::Format::Text)
}

const SWITCH: &str = "true or false";
const SIZE: &str = "a size with its unit, such as 32MiB";
const ADDRESS: &str = "an IP address or a host name";
const PORT: &str = "a port from 0 to 65535";
const PORT_OR_NONE: &str = "a port from 0 to 65535, or none";

fn port_or_none(text: &str) -> Option<Option<u16>> {
    match text {
        "none" => Some(None),
        _ => text.parse().ok().map(Some),
    }
}

fn directories(options: &mut Options<'_>) -> (PathBuf, PathBuf, PathBuf) {
    let mut directory = |option, default: PathBuf| {
        let path = options.get(option, "a path", |text| (!text.is_empty()).then(|| PathBuf::from(text)));
        let path = path.unwrap_or(default);
        options.note(option, path.display());
        path
    };
    let workdir = directory("workdir", PathBuf::from(WORKDIR));
    let data_dir = directory("data_file_directories", workdir.join("data"));
    let commitlog_dir = directory("commitlog_directory", workdir.join("commitlog"));
    (workdir, data_dir, commitlog_dir)
}

/// Shards, the processors they are pinned to, and whether the machine is shared.
fn shards(options: &mut Options<'_>, machine: &Machine) -> (u32, Option<Vec<usize>>, bool) {
    // Under a limit of processor time a spinning shard would use up what another needs.
    let limited = (machine.shards() as usize) < machine.cpus.len();
    let overprovisioned = options.get("overprovisioned", SWITCH, value::switch).unwrap_or(limited);
    options.note("overprovisioned", overprovisioned);

    let cpuset = options.get("cpuset", "processors such as 0-3,8", value::cpu_list);
    if let Some(missing) = cpuset.iter().flatten().find(|cpu| !machine.cpus.contains(cpu)) {
        options.refuse("cpuset", &format!("processors this process may use; {missing} is none"));
    }
    let cpus = cpuset.as_ref().unwrap_or(&machine.cpus);
    let pinnable = u32::try_from(cpus.len()).unwrap_or(u32::MAX);

    let in_range = |text: &str| text.parse().ok().filter(|n| (1..=SHARDS_MAX).contains(n));
    let smp = options.get("smp", "a number of shards from 1 to 256", in_range);
    let default = if cpuset.is_some() { pinnable } else { machine.shards() };
    let smp = smp.unwrap_or(default.clamp(1, SHARDS_MAX));
    options.note("smp", smp);
    if overprovisioned {
        return (smp, None, true);
    }
    if smp > pinnable {
        let expected = format!("at most {pinnable}, one for each processor, or --overprovisioned");
        options.refuse("smp", &expected);
    }
    let pinned = cpus.iter().take(smp as usize).copied();
    (smp, Some(pinned.collect()), false)
}

fn memory(options: &mut Options<'_>, machine: &Machine) -> u64 {
    let in_range = |text: &str| value::size(text).filter(|size| *size >= MEMORY_MIN);
    let memory = options.get("memory", "a size such as 512M or 1.5G, at least 128M", in_range);
    let memory = memory.unwrap_or((machine.memory_bytes / 2).max(MEMORY_MIN));
    options.note("memory", value::size_text(memory));
    if memory > machine.memory_bytes {
        options.warnings.push(format!(
            "memory is {}, but this machine has only {}",
            value::size_text(memory),
            value::size_text(machine.memory_bytes)
        ));
    }
    memory
}

fn commitlog_sync(options: &mut Options<'_>) -> CommitlogSync {
    let at_least = |text: &str| value::duration(text).filter(|period| *period >= SYNC_PERIOD_MIN);
    let period = options.get(
        "commitlog_sync_period",
        "a duration of at least 1ms, such as 10000ms",
        at_least,
    );
    let period = period.unwrap_or(Duration::from_secs(10));
    options.note("commitlog_sync_period", format!("{}ms", period.as_millis()));
    let sync = options.get("commitlog_sync", "periodic or batch", |text| match text {
        "periodic" => Some(CommitlogSync::Periodic { period }),
        "batch" => Some(CommitlogSync::Batch),
        _ => None,
    });
    let sync = sync.unwrap_or(CommitlogSync::Periodic { period });
    options.note(
        "commitlog_sync",
        if sync == CommitlogSync::Batch {
            "batch"
        } else {
            "periodic"
        },
    );
    sync
}

/// The sizes of a segment and of the whole log. Each shard needs a segment to write and one to flush from.
fn commitlog_sizes(options: &mut Options<'_>, smp: u32, memory: u64) -> (u64, u64) {
    let range = SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX;
    let expected = format!("{SIZE}, from 1MiB to 1GiB");
    let segment = options.get("commitlog_segment_size", &expected, |t| {
        sized(t).filter(|size| range.contains(size))
    });
    let segment = segment.unwrap_or(32 << 20);
    options.note("commitlog_segment_size", value::size_text(segment));

    let least = segment * 2 * u64::from(smp);
    let option = "commitlog_total_space";
    let total = options.get(option, &format!("{SIZE}, or -1"), |text| match text {
        "-1" => Some(None),
        _ => sized(text).map(Some),
    });
    let total = total.flatten();
    if total.is_some_and(|total| total < least) {
        let expected = format!("at least {}, two segments for each shard", value::size_text(least));
        options.refuse(option, &expected);
    }
    let total = total.unwrap_or(memory.max(least));
    options.note(option, value::size_text(total));
    (segment, total)
}

fn frame_size(options: &mut Options<'_>) -> usize {
    let option = "native_transport_max_frame_size";
    let in_range = |text: &str| sized(text).filter(|size| (FRAME_BYTES_MIN..=FRAME_BYTES_MAX).contains(size));
    let size = options
        .get(option, &format!("{SIZE}, from 4KiB to 256MiB"), in_range)
        .unwrap_or(16 << 20);
    options.note(option, value::size_text(size));
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// Connections of a shard; the option counts those of the node.
fn connections(options: &mut Options<'_>, smp: u32) -> usize {
    let option = "native_transport_max_concurrent_connections";
    let limit = options.get(
        option,
        "a number of connections, or -1 for no limit of the node",
        |text| match text {
            "-1" => Some(None),
            _ => text.parse::<usize>().ok().filter(|limit| *limit > 0).map(Some),
        },
    );
    let limit = limit.flatten();
    options.note(option, limit.map_or("-1".to_owned(), |limit| limit.to_string()));
    limit.map_or(CONNECTIONS_PER_SHARD, |limit| limit.div_ceil(smp as usize))
}

/// Connections of a shard that work for their handshake at once.
fn handshakes(options: &mut Options<'_>) -> usize {
    let option = "uninitialized_connections_semaphore_cpu_concurrency";
    let limit = options.get(option, "a number of connections, at least 1", |text| {
        text.parse::<usize>().ok().filter(|limit| *limit > 0)
    });
    let limit = limit.unwrap_or(front::HANDSHAKES_MAX);
    options.note(option, limit);
    limit
}

fn name(options: &mut Options<'_>, option: &'static str, default: &str) -> String {
    let name = options.get(option, "a name", |text| (!text.is_empty()).then(|| text.to_owned()));
    let name = name.unwrap_or_else(|| default.to_owned());
    options.note(option, &name);
    name
}

/// The secret itself is shown nowhere.
fn join_secret(options: &mut Options<'_>) -> Option<rpc::JoinSecret> {
    let expected = "a text of 16 bytes and more, or none";
    let secret = options.get("join_secret", expected, |text| match text {
        "none" => Some(None),
        _ => rpc::JoinSecret::new(text).ok().map(Some),
    });
    let secret = secret.flatten();
    options.note_or_none("join_secret", secret.as_ref().map(|_| "(hidden)".to_owned()));
    secret
}

/// A size with its unit. A bare number is refused: it could mean bytes or mebibytes.
fn sized(text: &str) -> Option<u64> {
    text.ends_with(|c: char| c.is_ascii_alphabetic())
        .then(|| value::size(text))
        .flatten()
}
