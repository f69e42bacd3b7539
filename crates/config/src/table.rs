//! Every option that a node takes, in one table. The command line, the YAML file, `--help`, `--print-config` and the
//! page `docs/operating/configuration.md` all follow from it, so that none of them can contradict the others.
//!
//! An option has one name of ours, the newest that cassandra.yaml or scylla.yaml has for it. Older spellings carry the
//! unit in the name (`commitlog_sync_period_in_ms: 10000`) and are turned into the newest one's text
//! (`commitlog_sync_period: 10000ms`).

/// One option.
pub(super) struct Row {
    /// Its name in the YAML file.
    pub name: &'static str,
    pub group: Group,
    pub takes: Takes,
    pub default: DefaultValue,
    /// When another value may be given.
    pub changes: Changes,
    /// One sentence, without the full stop.
    pub meaning: &'static str,
    /// Other spellings, with the unit that their names carry.
    pub spellings: &'static [(&'static str, Unit)],
}

/// The value without the option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DefaultValue {
    /// Always this.
    Is(&'static str),
    /// It follows from the machine or from other options, in these words.
    Follows(&'static str),
}

/// What an option is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Group {
    Node,
    Network,
    Storage,
    Guardrails,
    Cluster,
    Internode,
    Timeouts,
    Hints,
}

impl Group {
    pub const ALL: [Self; 8] = [
        Self::Node,
        Self::Network,
        Self::Storage,
        Self::Guardrails,
        Self::Cluster,
        Self::Internode,
        Self::Timeouts,
        Self::Hints,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Network => "Network",
            Self::Storage => "Storage",
            Self::Guardrails => "Guardrails",
            Self::Cluster => "Cluster",
            Self::Internode => "Between nodes",
            Self::Timeouts => "Timeouts",
            Self::Hints => "Hints",
        }
    }
}

/// The form of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Takes {
    Address,
    Directory,
    Duration,
    File,
    List,
    Name,
    Number,
    Port,
    PortOrNone,
    ProxyPort,
    Rate,
    Seconds,
    Size,
    Switch,
}

impl Takes {
    /// The placeholder on the command line.
    pub fn placeholder(self) -> &'static str {
        match self {
            Self::Address => "ADDRESS",
            Self::Directory => "DIR",
            Self::Duration => "DURATION",
            Self::File => "FILE",
            Self::List => "LIST",
            Self::Name => "NAME",
            Self::Number => "N",
            Self::Port | Self::PortOrNone | Self::ProxyPort => "PORT",
            Self::Rate => "RATE",
            Self::Seconds => "SECONDS",
            Self::Size => "SIZE",
            Self::Switch => "0|1",
        }
    }

    /// The form in words, with the unit.
    pub fn words(self) -> &'static str {
        match self {
            Self::Address => "IP address or host name",
            Self::Directory => "directory",
            Self::Duration => "duration with its unit: `200us`, `500ms`, `10s`, `5m`, `3h`, `1d`",
            Self::File => "file in PEM form",
            Self::List => "values separated by commas",
            Self::Name => "text",
            Self::Number => "number",
            Self::Port => "port; 0 takes any free one",
            Self::PortOrNone => "port; 0 takes any free one, `none` does without",
            Self::ProxyPort => "port; 0 does without",
            Self::Rate => "bytes per second with the unit: `64MiB/s`; `0` for no limit",
            Self::Seconds => "seconds",
            Self::Size => "bytes with the unit: `512KiB`, `32MiB`, `4GiB`",
            Self::Switch => "`true` or `false`",
        }
    }
}

/// When an option may have another value than before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Changes {
    /// At any restart.
    Restart,
    /// At any restart, and at a SIGHUP.
    Hangup,
    /// At any restart, and in between by a command of nodetool.
    Command(&'static str),
    /// Never after the node has joined its cluster.
    Never,
    /// Every node of the cluster must have the same.
    Together,
}

impl Changes {
    pub fn words(self) -> String {
        match self {
            Self::Restart => "at a restart".to_owned(),
            Self::Hangup => "at a restart, or when the node gets SIGHUP".to_owned(),
            Self::Command(command) => format!("at a restart; until the next one by `ceto nodetool {command}`"),
            Self::Never => "not after the node has joined".to_owned(),
            Self::Together => "at a restart, on all nodes".to_owned(),
        }
    }
}

/// How the text of a spelling becomes the option's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    /// It is the option's.
    Same,
    /// A whole number of milliseconds.
    Milliseconds,
    /// A whole number of kibibytes.
    Kibibytes,
    /// A whole number of mebibytes, or -1.
    Mebibytes,
    /// A whole number of mebibytes per second.
    MebibytesPerSecond,
    /// A whole number of megabits, of a million bits each, per second.
    MegabitsPerSecond,
}

impl Unit {
    /// The value as the option's text; nothing for what is no whole number where the name has the unit.
    pub fn apply(self, written: &str) -> Option<String> {
        let written = written.trim();
        let suffix = match self {
            Self::Same => return Some(written.to_owned()),
            Self::Mebibytes if written == "-1" => return Some(written.to_owned()),
            Self::Milliseconds => "ms",
            Self::Kibibytes => "KiB",
            Self::Mebibytes => "MiB",
            Self::MebibytesPerSecond => "MiB/s",
            Self::MegabitsPerSecond => {
                let bytes = written.parse::<u64>().ok()?.checked_mul(125_000)?;
                return Some(format!("{bytes}B/s"));
            }
        };
        let is_whole = !written.is_empty() && written.bytes().all(|b| b.is_ascii_digit());
        is_whole.then(|| format!("{written}{suffix}"))
    }
}

/// Whether a running node takes another value of an option over when it gets SIGHUP.
pub fn changes_at_hangup(option: &str) -> bool {
    find(option).is_some_and(|(row, _)| row.changes == Changes::Hangup)
}

/// The option of a spelling, and the spelling's unit.
pub(super) fn find(spelling: &str) -> Option<(&'static Row, Unit)> {
    TABLE.iter().find_map(|row| {
        if row.name == spelling {
            return Some((row, Unit::Same));
        }
        let (_, unit) = row.spellings.iter().find(|(other, _)| *other == spelling)?;
        Some((row, *unit))
    })
}

/// Every spelling of every option.
pub(super) fn spellings() -> impl Iterator<Item = &'static str> {
    TABLE
        .iter()
        .flat_map(|row| std::iter::once(row.name).chain(row.spellings.iter().map(|(spelling, _)| *spelling)))
}

/// A row from its fields in the order of [`Row`]; the table is unreadable with their names repeated.
const fn row(
    name: &'static str,
    group: Group,
    takes: Takes,
    default: DefaultValue,
    changes: Changes,
    meaning: &'static str,
    spellings: &'static [(&'static str, Unit)],
) -> Row {
    Row {
        name,
        group,
        takes,
        default,
        changes,
        meaning,
        spellings,
    }
}

use Changes::{Command, Hangup, Never, Restart, Together};
use DefaultValue::{Follows, Is};
use Group::{Cluster, Guardrails, Hints, Internode, Network, Node, Storage, Timeouts};
use Takes::{
    Address, Directory, Duration, File, List, Name, Number, Port, PortOrNone, ProxyPort, Rate, Seconds, Size, Switch,
};
use Unit::{Kibibytes, Mebibytes, MebibytesPerSecond, MegabitsPerSecond, Milliseconds, Same};

/// The options, by group and in the order in which they are shown.
#[rustfmt::skip]
pub(super) const TABLE: &[Row] = &[
    row("workdir", Node, Directory, Is("data"), Restart,
        "Directory of everything that the node keeps; without the option a start makes no new node", &[]),
    row("smp", Node, Number, Follows("one for each processor of cpuset"), Restart,
        "Number of shards, one thread each", &[]),
    row("memory", Node, Size, Follows("half of the machine's memory"), Restart,
        "Memory of the whole node, such as 512M or 1.5G", &[]),
    row("cpuset", Node, List, Follows("the processors that the process may use"), Restart,
        "Processors to pin shards to, such as 0-3,8", &[]),
    row("overprovisioned", Node, Switch, Follows("true under a limit of processor time, else false"), Restart,
        "Neither pin shards nor let them spin: for a machine that is shared", &[]),
    row("developer_mode", Node, Switch, Is("false"), Restart,
        "Relax checks of the environment; durability is the same", &[]),
    row("backend", Node, Name, Is("auto"), Restart,
        "Interface to the kernel: auto, io_uring or epoll", &[("reactor_backend", Same)]),
    row("default_log_level", Node, Name, Is("info"), Hangup,
        "Least severe message to log: off, error, warn, info, debug or trace; until the next start or SIGHUP also by ceto nodetool setlogginglevel", &[]),
    row("enable_cql_config_updates", Node, Switch, Is("true"), Hangup,
        "Whether clients may change options by UPDATE on system.config", &[("live_updatable_config_params_changeable_via_cql", Same)]),
    row("log_format", Node, Name, Is("text"), Restart,
        "Form of log lines: text, or json for one JSON object per line", &[]),
    row("task_ttl_in_seconds", Node, Seconds, Is("60"), Command("tasks ttl"),
        "How long a task that the node began by itself is listed after its end", &[]),
    row("user_task_ttl_in_seconds", Node, Seconds, Is("3600"), Command("tasks user-ttl"),
        "How long a task that an operator asked for is listed after its end", &[]),

    row("listen_address", Network, Address, Is("127.0.0.1"), Restart,
        "Address for other nodes", &[]),
    row("broadcast_address", Network, Address, Follows("listen_address"), Restart,
        "Address that other nodes connect to", &[]),
    row("rpc_address", Network, Address, Is("127.0.0.1"), Restart,
        "Address for clients; a wildcard needs broadcast_rpc_address", &[]),
    row("broadcast_rpc_address", Network, Address, Follows("rpc_address"), Restart,
        "Address that clients connect to", &[]),
    row("native_transport_port", Network, Port, Is("9042"), Restart,
        "CQL port", &[]),
    row("native_shard_aware_transport_port", Network, PortOrNone, Is("19042"), Restart,
        "CQL port where the client's port chooses the shard", &[]),
    row("native_transport_port_proxy_protocol", Network, ProxyPort, Is("0"), Restart,
        "CQL port for proxies, whose connections begin with a header of the PROXY protocol, version 1 or 2", &[]),
    row("native_shard_aware_transport_port_proxy_protocol", Network, ProxyPort, Is("0"), Restart,
        "The same where the port of the client that the header names chooses the shard", &[]),
    row("native_transport_max_frame_size", Network, Size, Is("16MiB"), Restart,
        "Longest request that is taken, from 4KiB to 256MiB", &[("native_transport_max_frame_size_in_mb", Mebibytes)]),
    row("native_transport_max_concurrent_connections", Network, Number, Is("-1"), Restart,
        "Client connections of the node; -1 for 10000 a shard", &[]),
    row("uninitialized_connections_semaphore_cpu_concurrency", Network, Number, Is("8"), Restart,
        "Connections of a shard that may work for their handshake at once; the others wait in line", &[]),
    row("experimental_features", Network, List, Follows("none"), Restart,
        "Experimental features that are on: tablets-routing-v2 offers TABLETS_ROUTING_V2_EXPERIMENTAL to drivers; others are warned of", &[]),
    row("maintenance_mode", Network, Switch, Is("false"), Restart,
        "Whether the node stays apart from its cluster and serves its own data on the maintenance socket alone", &[]),
    row("maintenance_socket", Network, Name, Follows("ignore; workdir in maintenance mode"), Restart,
        "Unix domain socket for CQL with all permissions, for operators on this machine: a path, workdir for cql.m in the workdir, or ignore for none", &[]),
    row("maintenance_socket_group", Network, Name, Follows("that of the process"), Restart,
        "Group whose members may use the maintenance socket besides the user of the process", &[]),
    row("api_address", Network, Address, Follows("listen_address if that is a loopback address, else 127.0.0.1"), Restart,
        "Address of the REST API (no authentication)", &[]),
    row("api_port", Network, PortOrNone, Is("10000"), Restart,
        "Port of the REST API", &[]),
    row("prometheus_address", Network, Address, Follows("listen_address"), Restart,
        "Address of the metrics for Prometheus", &[]),
    row("prometheus_port", Network, PortOrNone, Is("9180"), Restart,
        "Port of the metrics for Prometheus", &[]),
    row("enable_node_aggregated_table_metrics", Network, Switch, Is("false"), Restart,
        "Export per-table metrics", &[]),

    row("alternator_address", Network, Address, Follows("rpc_address"), Restart,
        "Address for clients of the DynamoDB API", &[]),
    row("alternator_port", Network, ProxyPort, Is("0"), Restart,
        "Port of the DynamoDB API", &[]),
    row("alternator_https_port", Network, ProxyPort, Is("0"), Restart,
        "Port of the DynamoDB API with TLS 1.3; needs a certificate and a key", &[]),
    row("alternator_encryption_options.certificate", Network, File, Follows("none"), Hangup,
        "Certificate of that port", &[]),
    row("alternator_encryption_options.keyfile", Network, File, Follows("none"), Hangup,
        "Key of the certificate", &[]),
    row("alternator_encryption_options.truststore", Network, File, Follows("none"), Hangup,
        "Certificates that vouch for those of clients", &[]),
    row("alternator_encryption_options.require_client_auth", Network, Switch, Is("false"), Hangup,
        "Whether clients of that port must show a certificate", &[]),
    row("alternator_enforce_authorization", Network, Switch, Is("false"), Hangup,
        "Whether each operation of the DynamoDB API must be signed with the secret of a known access key", &[]),
    row("alternator_warn_authorization", Network, Switch, Is("false"), Hangup,
        "Whether operations of the DynamoDB API that are not so signed are logged and counted; they are executed unless alternator_enforce_authorization refuses them", &[]),
    row("alternator_write_isolation", Network, Name, Is("always_use_lwt"), Restart,
        "How writes of the DynamoDB API to one item are isolated, for tables without a tag for it: always_use_lwt (or always), only_rmw_uses_lwt, forbid_rmw (or forbid), unsafe_rmw (or unsafe)", &[]),
    row("alternator_max_items_in_batch_write", Network, Number, Is("25"), Restart,
        "Items that one BatchWriteItem may have", &[]),
    row("alternator_describe_table_info_cache_validity_in_seconds", Network, Seconds, Is("21600"), Restart,
        "How long DescribeTable shows the same estimate of a table's items and bytes", &[]),
    row("alternator_timeout", Network, Duration, Is("10000ms"), Hangup,
        "How long an operation of the DynamoDB API may take", &[("alternator_timeout_in_ms", Milliseconds)]),
    row("alternator_response_compression_threshold_in_bytes", Network, Number, Is("4096"), Hangup,
        "Bytes from which on answers of the DynamoDB API are compressed, if the client accepts gzip or deflate", &[]),
    row("alternator_response_compression_level", Network, Number, Is("1"), Hangup,
        "How hard they are compressed, from 1 to 9; 0: not at all", &[]),
    row("alternator_http_response_server_header", Network, Name, Follows("none"), Hangup,
        "Header Server of answers of the DynamoDB API; none: they have no such header", &[]),
    row("alternator_http_response_disable_date_header", Network, Switch, Is("false"), Hangup,
        "Leave the header Date out of these answers", &[]),
    row("alternator_http_response_disable_content_type_header", Network, Switch, Is("false"), Hangup,
        "Leave the header Content-Type out of these answers", &[]),

    row("data_file_directories", Storage, Directory, Follows("data in the workdir"), Restart,
        "Directory of sstables; there can be one", &[]),
    row("commitlog_directory", Storage, Directory, Follows("commitlog in the workdir"), Restart,
        "Directory of the commitlog", &[]),
    row("commitlog_sync", Storage, Name, Is("periodic"), Restart,
        "When a write is acknowledged: periodic (in the kernel; on disk within the period) or batch (on disk)", &[]),
    row("commitlog_sync_period", Storage, Duration, Is("10000ms"), Restart,
        "Period of commitlog_sync periodic", &[("commitlog_sync_period_in_ms", Milliseconds)]),
    row("commitlog_segment_size", Storage, Size, Is("32MiB"), Restart,
        "Size of a commitlog segment, from 1MiB to 1GiB", &[("commitlog_segment_size_in_mb", Mebibytes)]),
    row("commitlog_total_space", Storage, Size, Follows("as much as the memory"), Restart,
        "Size of the whole commitlog; -1 for as much as the memory", &[("commitlog_total_space_in_mb", Mebibytes)]),
    row("compaction_throughput", Storage, Rate, Is("0B/s"), Hangup,
        "Limit of what compactions write; until the next start or SIGHUP also by ceto nodetool setcompactionthroughput", &[("compaction_throughput_mb_per_sec", MebibytesPerSecond)]),
    row("stream_throughput_outbound", Storage, Rate, Is("0B/s"), Hangup,
        "Limit of what streams to and from other nodes move; until the next start or SIGHUP also by ceto nodetool setstreamthroughput",
        &[("stream_throughput_outbound_megabits_per_sec", MegabitsPerSecond), ("stream_io_throughput_mb_per_sec", MebibytesPerSecond)]),

    row("disk_failure_policy", Storage, Name, Is("best_effort"), Hangup,
        "What the node does when a disk fails: best_effort or ignore (refuse the reads concerned), stop (leave service when the disk cannot read or write a place), stop_paranoid (also when an sstable is damaged), die (end)", &[]),

    row("critical_disk_utilization_level", Storage, Number, Is("0.98"), Hangup,
        "Fraction of a disk above which the node refuses writes that add data; 1: never", &[]),
    row("data_disk_usage_percentage_fail_threshold", Storage, Number, Is("-1"), Hangup,
        "The same in percent, where it is lower; -1: none", &[]),
    row("data_disk_usage_percentage_warn_threshold", Storage, Number, Is("-1"), Hangup,
        "Percentage of a disk above which clients that write are warned; -1: never", &[]),
    row("uuid_sstable_identifiers_enabled", Storage, Switch, Is("true"), Restart,
        "Whether new sstables are named by UUIDs, which no file copied into the table's directory has; Cassandra before 4.1 reads numbers only", &[]),
    row("batch_size_warn_threshold", Storage, Size, Is("128KiB"), Hangup,
        "Size of a batch over several partitions above which its client is warned, at least 1KiB", &[("batch_size_warn_threshold_in_kb", Kibibytes)]),
    row("unlogged_batch_across_partitions_warn_threshold", Storage, Number, Is("10"), Hangup,
        "Partitions of an unlogged batch above which its client is warned; -1: never", &[]),
    row("batch_size_fail_threshold", Storage, Size, Is("1MiB"), Hangup,
        "Size of a batch over several partitions above which it is refused, at least 1KiB", &[("batch_size_fail_threshold_in_kb", Kibibytes)]),
    row("cql_duplicate_bind_variable_names_refer_to_same_variable", Storage, Switch, Is("true"), Restart,
        "Whether :name written twice in one statement is one variable, bound once, or, as in Cassandra, one for each place; give it on all nodes", &[]),
    row("comparisons_with_null", Storage, Name, Is("error"), Restart,
        "What a comparison with null in WHERE is: error, as in Cassandra, or unknown, as in ScyllaDB and SQL: true of no row; give it on all nodes", &[]),
    row("tombstone_warn_threshold", Storage, Number, Is("1000"), Hangup,
        "Tombstones that one page of a read may meet before its client is warned; 0: any number", &[]),
    row("tombstone_failure_threshold", Storage, Number, Is("100000"), Hangup,
        "Tombstones that one page of a read may meet before the read fails; 0: any number", &[]),
    row("query_tombstone_page_limit", Storage, Number, Is("10000"), Hangup,
        "Tombstones after which a page ends, without a row only for drivers of ScyllaDB; 0: any number", &[]),
    row("query_rejected_rows_page_limit", Storage, Number, Is("100000"), Hangup,
        "Living rows and partitions outside the result after which a page ends, without a row only for drivers of ScyllaDB; 0: any number", &[]),

    row("query_page_size_in_bytes", Storage, Number, Is("1048576"), Hangup,
        "Bytes after which a page ends, whatever its number of rows, 1024 to 67108864; also with a unit, 64KiB", &[]),
    row("max_memory_for_unlimited_query_soft_limit", Storage, Number, Is("0"), Hangup,
        "Bytes that the result of a read without pages may have before its client is warned; also with a unit, 16MiB; 0: never", &[]),
    row("max_memory_for_unlimited_query_hard_limit", Storage, Number, Is("67108864"), Hangup,
        "Bytes that the result of a read without pages may have before the read fails, 1048576 to 268435456; also with a unit, 64MiB", &[]),
    row("max_relations_in_where_clause", Guardrails, Number, Is("-1"), Hangup,
        "Relations that WHERE of a statement may have before it is refused; -1: any number", &[]),
    row("compaction_large_partition_warning_threshold", Storage, Size, Is("1000MiB"), Hangup,
        "Size above which a partition is listed in system.large_partitions when it is written to an sstable; 0: never",
        &[("compaction_large_partition_warning_threshold_mb", Mebibytes), ("partition_size_warn_threshold", Same)]),
    row("compaction_rows_count_warning_threshold", Storage, Number, Is("100000"), Hangup,
        "Rows above which a partition is listed there; 0: never", &[]),
    row("compaction_large_row_warning_threshold", Storage, Size, Is("10MiB"), Hangup,
        "Size above which a row is listed in system.large_rows when it is written to an sstable; 0: never",
        &[("compaction_large_row_warning_threshold_mb", Mebibytes)]),
    row("compaction_large_cell_warning_threshold", Storage, Size, Is("1MiB"), Hangup,
        "Size above which a cell, or a collection as a whole, is listed in system.large_cells when it is written to an sstable; 0: never",
        &[("compaction_large_cell_warning_threshold_mb", Mebibytes)]),
    row("compaction_collection_elements_count_warning_threshold", Storage, Number, Is("10000"), Hangup,
        "Elements above which a collection is listed there; 0: never", &[]),

    row("alternator_ttl_period_in_seconds", Storage, Seconds, Is("86400"), Hangup,
        "How often a shard looks for rows whose TTL column says that they have expired: the time from the beginning of one pass to that of the next", &[]),
    row("auto_snapshot", Storage, Switch, Is("true"), Hangup,
        "Whether a table is kept in a snapshot before it is dropped or truncated", &[]),
    row("auto_snapshot_ttl", Storage, Duration, Follows("none, they are kept until an operator clears them"), Hangup,
        "How long such snapshots are kept", &[]),

    row("minimum_replication_factor_warn_threshold", Guardrails, Number, Is("3"), Hangup,
        "Copies in a datacenter; for a keyspace that gets fewer, its client is warned; -1: never", &[]),
    row("minimum_replication_factor_fail_threshold", Guardrails, Number, Is("-1"), Hangup,
        "Copies in a datacenter; for a keyspace that gets fewer, it is refused; -1: never", &[]),
    row("maximum_replication_factor_warn_threshold", Guardrails, Number, Is("-1"), Hangup,
        "Copies in a datacenter; for a keyspace that gets more, its client is warned; -1: never", &[]),
    row("maximum_replication_factor_fail_threshold", Guardrails, Number, Is("-1"), Hangup,
        "Copies in a datacenter; for a keyspace that gets more, it is refused; -1: never", &[]),
    row("replication_strategy_warn_list", Guardrails, List, Is("SimpleStrategy"), Hangup,
        "Replication strategies of new keyspaces that clients are warned of", &[]),
    row("replication_strategy_fail_list", Guardrails, List, Is("none"), Hangup,
        "Replication strategies that are refused", &[]),
    row("simplestrategy_enabled", Guardrails, Switch, Is("true"), Hangup,
        "Whether keyspaces may have SimpleStrategy", &[]),
    row("keyspaces_warn_threshold", Guardrails, Number, Is("-1"), Hangup,
        "Keyspaces of users; with one more, its client is warned; -1: never", &[]),
    row("keyspaces_fail_threshold", Guardrails, Number, Is("-1"), Hangup,
        "Keyspaces of users; with one more, it is refused; -1: never", &[]),
    row("tables_warn_threshold", Guardrails, Number, Is("-1"), Hangup,
        "Tables of users; with one more, its client is warned; -1: never", &[]),
    row("tables_fail_threshold", Guardrails, Number, Is("-1"), Hangup,
        "Tables of users; with one more, it is refused; -1: never", &[]),
    row("columns_per_table_warn_threshold", Guardrails, Number, Is("-1"), Hangup,
        "Columns of a table; with more, its client is warned; -1: never", &[]),
    row("columns_per_table_fail_threshold", Guardrails, Number, Is("-1"), Hangup,
        "Columns of a table; with more, it is refused; -1: never", &[]),
    row("secondary_indexes_per_table_warn_threshold", Guardrails, Number, Is("-1"), Hangup,
        "Secondary indexes of a table; with more, its client is warned; -1: never", &[]),
    row("secondary_indexes_per_table_fail_threshold", Guardrails, Number, Is("-1"), Hangup,
        "Secondary indexes of a table; with more, it is refused; -1: never", &[]),
    row("secondary_indexes_enabled", Guardrails, Switch, Is("true"), Hangup,
        "Whether secondary indexes are created", &[]),
    row("table_properties_warned", Guardrails, List, Is("none"), Hangup,
        "Properties of tables that clients are warned of when they give them", &[]),
    row("table_properties_disallowed", Guardrails, List, Is("none"), Hangup,
        "Properties of tables that are refused", &[]),
    row("twcs_max_window_count", Guardrails, Number, Is("-1"), Hangup,
        "Windows of TimeWindowCompactionStrategy that the rows of a table may live for; -1: any number", &[]),
    row("restrict_twcs_without_default_ttl", Guardrails, Name, Is("warn"), Hangup,
        "Whether TimeWindowCompactionStrategy without default_time_to_live is refused: true, false or warn", &[]),
    row("uncompressed_tables_enabled", Guardrails, Switch, Is("true"), Hangup,
        "Whether tables may be without compression", &[]),
    row("alter_table_enabled", Guardrails, Switch, Is("true"), Hangup,
        "Whether ALTER TABLE is taken", &[]),
    row("compact_tables_enabled", Guardrails, Switch, Is("true"), Hangup,
        "Whether tables WITH COMPACT STORAGE are made", &[("enable_create_table_with_compact_storage", Same)]),
    row("drop_compact_storage_enabled", Guardrails, Switch, Is("false"), Hangup,
        "Whether ALTER TABLE DROP COMPACT STORAGE is taken", &[("enable_drop_compact_storage", Same)]),
    row("drop_truncate_table_enabled", Guardrails, Switch, Is("true"), Hangup,
        "Whether DROP TABLE and TRUNCATE are taken", &[]),
    row("drop_keyspace_enabled", Guardrails, Switch, Is("true"), Hangup,
        "Whether DROP KEYSPACE is taken", &[]),
    row("allow_filtering_enabled", Guardrails, Switch, Is("true"), Hangup,
        "Whether reads that need ALLOW FILTERING are taken", &[]),
    row("group_by_enabled", Guardrails, Switch, Is("true"), Hangup,
        "Whether GROUP BY is taken", &[]),
    row("read_before_write_list_operations_enabled", Guardrails, Switch, Is("true"), Hangup,
        "Whether operations on lists that read before they write are taken", &[]),
    row("user_timestamps_enabled", Guardrails, Switch, Is("true"), Hangup,
        "Whether USING TIMESTAMP is taken", &[]),
    row("restrict_future_timestamp", Guardrails, Switch, Is("false"), Hangup,
        "Whether USING TIMESTAMP more than three days ahead of the node's clock is refused", &[]),
    row("maximum_timestamp_warn_threshold", Guardrails, Duration, Is("3d"), Hangup,
        "How far USING TIMESTAMP may be ahead of the node's clock before its client is warned; none: never", &[]),
    row("maximum_timestamp_fail_threshold", Guardrails, Duration, Is("none"), Hangup,
        "How far USING TIMESTAMP may be ahead of the node's clock before it is refused; none: never", &[]),
    row("minimum_timestamp_warn_threshold", Guardrails, Duration, Is("none"), Hangup,
        "How much earlier than the node's clock USING TIMESTAMP may be before its client is warned; none: never", &[]),
    row("minimum_timestamp_fail_threshold", Guardrails, Duration, Is("none"), Hangup,
        "How much earlier than the node's clock USING TIMESTAMP may be before it is refused; none: never", &[]),
    row("max_partition_key_restrictions_per_query", Guardrails, Number, Is("-1"), Hangup,
        "Most combinations that the IN restrictions of a partition key may produce; -1: any number", &[]),
    row("max_clustering_key_restrictions_per_query", Guardrails, Number, Is("-1"), Hangup,
        "Most combinations that the IN restrictions of a clustering key may produce; -1: any number", &[]),
    row("partition_keys_in_select_warn_threshold", Guardrails, Number, Is("-1"), Hangup,
        "Partitions that a read may name by IN before its client is warned; -1: never", &[]),
    row("partition_keys_in_select_fail_threshold", Guardrails, Number, Is("-1"), Hangup,
        "Partitions that a read may name by IN before it is refused; -1: never", &[]),
    row("in_select_cartesian_product_warn_threshold", Guardrails, Number, Is("-1"), Hangup,
        "Most combinations that the IN restrictions of a read may produce before its client is warned; -1: never", &[]),
    row("in_select_cartesian_product_fail_threshold", Guardrails, Number, Is("-1"), Hangup,
        "Most combinations that the IN restrictions of a read may produce before it is refused; -1: never", &[]),
    row("page_size_warn_threshold", Guardrails, Number, Is("-1"), Hangup,
        "Rows that a page of a read may be asked to have before its client is warned; -1: never", &[]),
    row("page_size_fail_threshold", Guardrails, Number, Is("-1"), Hangup,
        "Rows that a page of a read may be asked to have before it is refused; -1: never", &[]),
    row("read_consistency_levels_warned", Guardrails, List, Is("none"), Hangup,
        "Consistency levels of reads that clients are warned of", &[]),
    row("read_consistency_levels_disallowed", Guardrails, List, Is("none"), Hangup,
        "Consistency levels of reads that are refused", &[]),
    row("write_consistency_levels_warned", Guardrails, List, Is("none"), Hangup,
        "Consistency levels of writes that clients are warned of", &[]),
    row("write_consistency_levels_disallowed", Guardrails, List, Is("none"), Hangup,
        "Consistency levels of writes that are refused", &[]),
    row("items_per_collection_warn_threshold", Guardrails, Number, Is("-1"), Hangup,
        "Items of one collection that a statement may write before its client is warned; -1: never", &[]),
    row("items_per_collection_fail_threshold", Guardrails, Number, Is("-1"), Hangup,
        "Items of one collection that a statement may write before it is refused; -1: never", &[]),
    row("collection_size_warn_threshold", Guardrails, Size, Is("none"), Hangup,
        "Bytes of one collection that a statement may write before its client is warned; none: never", &[]),
    row("collection_size_fail_threshold", Guardrails, Size, Is("none"), Hangup,
        "Bytes of one collection that a statement may write before it is refused; none: never", &[]),
    row("large_partition_fail_threshold", Guardrails, Size, Is("2000MiB"), Hangup,
        "A write to a partition of which an sstable has more bytes is refused, in tables with large_data_guardrails_enabled; 0: never",
        &[("large_partition_fail_threshold_mb", Mebibytes)]),
    row("rows_count_fail_threshold", Guardrails, Number, Is("200000"), Hangup,
        "A write to a partition of which an sstable has more rows is refused, in tables with large_data_guardrails_enabled; 0: never", &[]),
    row("large_row_fail_threshold", Guardrails, Size, Is("20MiB"), Hangup,
        "A write of a larger row, or to a row that is larger in an sstable or in memory, is refused, in tables with large_data_guardrails_enabled; 0: never",
        &[("large_row_fail_threshold_mb", Mebibytes)]),
    row("large_cell_fail_threshold", Guardrails, Size, Is("2MiB"), Hangup,
        "A write of a larger value is refused, in tables with large_data_guardrails_enabled; 0: never",
        &[("large_cell_fail_threshold_mb", Mebibytes)]),
    row("large_collection_elements_fail_threshold", Guardrails, Number, Is("20000"), Hangup,
        "A write of more elements of a collection, or to a collection that has more in an sstable or in memory, is refused, in tables with large_data_guardrails_enabled; 0: never", &[]),
    row("large_data_cql_warnings", Guardrails, Switch, Is("true"), Hangup,
        "Whether clients are warned of writes to what is listed as large, in tables with large_data_guardrails_enabled; the log says it in any case", &[]),
    row("column_value_size_warn_threshold", Guardrails, Size, Is("none"), Hangup,
        "Bytes that a value, or an element of a collection, may have before its client is warned; none: never", &[]),
    row("column_value_size_fail_threshold", Guardrails, Size, Is("none"), Hangup,
        "Bytes that a value, or an element of a collection, may have before it is refused; none: never", &[]),
    row("user_defined_functions_enabled", Guardrails, Switch, Is("false"), Restart,
        "Whether functions may be created; those that exist may be called in any case", &[("enable_user_defined_functions", Same)]),
    row("user_defined_function_time_limit_ms", Guardrails, Number, Is("10"), Restart,
        "Milliseconds that one call of a user-defined function may take, 1 to 10000", &[]),
    row("user_defined_function_allocation_limit_bytes", Guardrails, Number, Is("1048576"), Restart,
        "Bytes of memory that one call of a user-defined function may use, 65536 to 1073741824; also with a unit, 1MiB; a WebAssembly module may use twice as many", &[]),

    row("cluster_name", Cluster, Name, Is("Test Cluster"), Never,
        "Name of the cluster; a node of another name is refused", &[]),
    row("join_secret", Cluster, Name, Is("none"), Together,
        "Secret that nodes show each other before they talk, 16 bytes and more; better given in the file", &[]),
    row("seeds", Cluster, List, Follows("none, a node alone"), Restart,
        "Nodes that know the cluster, such as 10.0.0.1,node2.example.com:7000; a name is resolved at each start, and again when no node answers at its address", &[("seed_provider", Same)]),
    row("num_tokens", Cluster, Number, Follows("16, or as many as initial_token has"), Never,
        "Number of tokens that the node takes when it joins", &[]),
    row("initial_token", Cluster, List, Follows("chosen by the node"), Never,
        "The tokens that the node takes when it joins", &[]),
    row("auto_bootstrap", Cluster, Switch, Is("true"), Never,
        "Whether a node that joins takes its part of the token ring", &[]),
    row("join_ring", Cluster, Switch, Is("true"), Never,
        "Whether the node may own data; false makes a zero-token node, which votes and coordinates requests", &[]),
    row("replace_node_first_boot", Cluster, Name, Is("none"), Never,
        "Host id of the member whose place the node takes when it joins; without effect once it has joined", &[]),
    row("replace_address_first_boot", Cluster, Name, Is("none"), Never,
        "The same by the member's address", &[("replace_address", Same)]),
    row("ignore_dead_nodes_for_replace", Cluster, List, Follows("none"), Never,
        "Other members that are down permanently, by host id or address: they are excluded when the node takes the place of another", &[]),
    row("enable_new_features", Cluster, Switch, Is("true"), Restart,
        "Whether the cluster may enable features of this release when all nodes have it; false on all nodes keeps the way back to the older release open", &[]),
    row("auto_repair_enabled_default", Cluster, Switch, Is("true"), Hangup,
        "Whether the node repairs its tables by itself, at low priority", &[]),
    row("auto_repair_threshold_default_in_seconds", Cluster, Seconds, Is("86400"), Hangup,
        "How long ago the replicas of a range may have been known to be equal, before the node repairs it by itself", &[]),
    row("auto_cleanup_delay_in_seconds", Cluster, Seconds, Is("300"), Hangup,
        "How long the token ring has had the same owners before the node removes its data of ranges that other nodes own now", &[]),
    row("endpoint_snitch", Cluster, Name, Is("SimpleSnitch"), Never,
        "How the node learns its datacenter and rack: SimpleSnitch, RackInferringSnitch or GossipingPropertyFileSnitch", &[]),
    row("enforce_rack_list", Cluster, Switch, Is("false"), Restart,
        "Whether replication factors of keyspaces with tablets are written out as lists of racks; includes rf_rack_valid_keyspaces", &[]),
    row("rf_rack_valid_keyspaces", Cluster, Switch, Is("false"), Restart,
        "Whether a keyspace with tablets must have 0 copies, 1 copy or one in each rack, in each datacenter; give it on all nodes", &[]),
    row("data_center", Cluster, Name, Follows("as the snitch says"), Never,
        "Datacenter of the node", &[]),
    row("rack", Cluster, Name, Follows("as the snitch says"), Never,
        "Rack of the node", &[]),
    row("clock_offset_max", Cluster, Duration, Is("5000ms"), Together,
        "How far the wall clock may be off before the node stops trusting it", &[]),
    row("clock_offset_out_of_service", Cluster, Duration, Follows("60000ms, or clock_offset_max when that is longer"), Together,
        "How far the wall clock may be off before the node leaves service", &[]),

    row("target_tablet_size_in_bytes", Cluster, Size, Is("5GiB"), Hangup,
        "A table is split when its tablets are larger than twice this on average, and merged when they are smaller than half; 0: neither for its size. That of the node that leads the metadata group counts, so it should be the same on all", &[]),
    row("tablet_load_stats_refresh_interval_in_seconds", Cluster, Seconds, Is("60"), Hangup,
        "How often the node that leads the metadata group looks how large tablets are, at least 1", &[]),

    row("storage_port", Internode, Port, Is("7000"), Together,
        "Port for other nodes", &[]),
    row("ssl_storage_port", Internode, Port, Is("7001"), Together,
        "Port for other nodes' TLS connections", &[]),
    row("internode_compression", Internode, Name, Is("none"), Restart,
        "Which connections to other nodes are compressed: none, dc (to other datacenters), rack (to other racks) or all", &[]),
    row("internode_compression_algorithms", Internode, List, Is("lz4,zstd"), Restart,
        "With what they are compressed, the preferred first", &[]),
    row("server_encryption_options.internode_encryption", Internode, Name, Is("none"), Together,
        "Which connections to other nodes have TLS: none, dc (to other datacenters), rack (to other racks) or all", &[]),
    row("server_encryption_options.certificate", Internode, File, Follows("none"), Hangup,
        "The node's certificate, with those between it and the root", &[]),
    row("server_encryption_options.keyfile", Internode, File, Follows("none"), Hangup,
        "The private key of the certificate", &[]),
    row("server_encryption_options.truststore", Internode, File, Follows("none"), Hangup,
        "The certificates that vouch for other nodes", &[]),
    row("server_encryption_options.require_endpoint_verification", Internode, Switch, Is("false"), Hangup,
        "Whether a node's certificate must name the address it is reached at", &[]),

    row("read_request_timeout", Timeouts, Duration, Is("5000ms"), Hangup,
        "How long a read of given partitions may take", &[("read_request_timeout_in_ms", Milliseconds)]),
    row("range_request_timeout", Timeouts, Duration, Is("10000ms"), Hangup,
        "How long a page of a scan may take", &[("range_request_timeout_in_ms", Milliseconds)]),
    row("scan_request_timeout", Timeouts, Duration, Is("600000ms"), Hangup,
        "How long an aggregate over a whole table may take", &[]),
    row("write_request_timeout", Timeouts, Duration, Is("2000ms"), Hangup,
        "How long a write may take", &[("write_request_timeout_in_ms", Milliseconds)]),
    row("counter_write_request_timeout", Timeouts, Duration, Is("5000ms"), Hangup,
        "How long a write of counters may take", &[("counter_write_request_timeout_in_ms", Milliseconds)]),
    row("cas_contention_timeout", Timeouts, Duration, Is("1000ms"), Hangup,
        "How long a conditional statement retries after losing a ballot", &[("cas_contention_timeout_in_ms", Milliseconds)]),
    row("truncate_request_timeout", Timeouts, Duration, Is("60000ms"), Restart,
        "How long TRUNCATE may take", &[("truncate_request_timeout_in_ms", Milliseconds)]),
    row("slow_query_log_timeout", Timeouts, Duration, Is("500ms"), Hangup,
        "How long a request may take before it is logged as slow; 0ms: none is logged", &[("slow_query_log_timeout_in_ms", Milliseconds)]),
    row("request_timeout", Timeouts, Duration, Is("10000ms"), Restart,
        "How long a change of the schema or of members may wait for the metadata group", &[("request_timeout_in_ms", Milliseconds)]),

    row("hinted_handoff_enabled", Hints, List, Is("true"), Command("enablehandoff"),
        "Whether writes that a replica missed are kept for it: true, false, or the datacenters whose replicas they are kept for", &[]),
    row("hinted_handoff_disabled_datacenters", Hints, List, Follows("none"), Command("disablehintsfordc"),
        "Datacenters whose replicas no hints are kept for", &[]),
    row("max_hint_window", Hints, Duration, Is("10800000ms"), Command("setmaxhintwindow"),
        "How long hints are kept for a node that is down", &[("max_hint_window_in_ms", Milliseconds)]),
];
