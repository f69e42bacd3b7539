//! The command line of a server. Every value is kept as text: it goes through the same parser as the file's, so that both accept
//! and refuse the same things in the same words.

use std::path::PathBuf;

/// Options of a server.
#[derive(clap::Args, Clone, Default, Debug)]
#[command(next_help_heading = "Server options")]
pub struct ServerArgs {
    /// Directory of everything this node keeps [default: ./data]
    #[arg(short = 'W', long, value_name = "DIR")]
    pub workdir: Option<PathBuf>,
    /// YAML file with names of cassandra.yaml or scylla.yaml [default: ceto.yaml in the workdir, if it is there]
    #[arg(long, value_name = "FILE")]
    pub options_file: Option<PathBuf>,
    /// Number of shards, one thread each [default: one for each processor]
    #[arg(short = 'c', long, value_name = "N")]
    pub smp: Option<String>,
    /// Memory of the whole node, e.g. 512M, 1.5G [default: half of the machine's]
    #[arg(short = 'm', long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Processors to pin shards to, e.g. 0-3,8 [default: those the process may use]
    #[arg(long, value_name = "LIST")]
    pub cpuset: Option<String>,
    /// Neither pin shards nor let them spin: for a machine that is shared
    #[arg(long, value_name = "0|1", num_args = 0..=1, default_missing_value = "1")]
    pub overprovisioned: Option<String>,
    /// Relax checks of the environment; durability is the same
    #[arg(long, value_name = "0|1", num_args = 0..=1, default_missing_value = "1")]
    pub developer_mode: Option<String>,
    /// Keep every shard busy with a background task, to measure what that costs requests.
    #[arg(long, hide = true)]
    pub background_hog: bool,
    /// Hold the node at an older level: a feature that it does not show to others. May be given several times.
    #[arg(long, hide = true, value_name = "FEATURE")]
    pub hold_back_feature: Vec<String>,
    /// Seconds by which the node's clock is wrong, to test what a cluster makes of that; only with --developer-mode.
    #[arg(long, hide = true, value_name = "SECONDS", allow_hyphen_values = true)]
    pub clock_wrong_by: Option<i64>,
    /// Interface to the kernel: auto, io_uring or epoll [default: auto]
    #[arg(long, alias = "reactor-backend", value_name = "NAME")]
    pub backend: Option<String>,
    /// Least severe message to log: off, error, warn, info, debug or trace [default: info]
    #[arg(long, alias = "log-level", value_name = "LEVEL")]
    pub default_log_level: Option<String>,

    /// Address for other nodes [default: localhost]
    #[arg(long, value_name = "ADDRESS", help_heading = "Server options: network")]
    pub listen_address: Option<String>,
    /// Address for clients [default: localhost]
    #[arg(long, value_name = "ADDRESS", help_heading = "Server options: network")]
    pub rpc_address: Option<String>,
    /// Address that other nodes are told [default: the listen address]
    #[arg(long, value_name = "ADDRESS", help_heading = "Server options: network")]
    pub broadcast_address: Option<String>,
    /// Address that clients are told [default: the rpc address]
    #[arg(long, value_name = "ADDRESS", help_heading = "Server options: network")]
    pub broadcast_rpc_address: Option<String>,
    /// CQL port; 0 for any free one [default: 9042]
    #[arg(long, value_name = "PORT", help_heading = "Server options: network")]
    pub native_transport_port: Option<String>,
    /// CQL port where the client's port chooses the shard; 0 for any free one, none to do without [default: 19042]
    #[arg(long, value_name = "PORT", help_heading = "Server options: network")]
    pub native_shard_aware_transport_port: Option<String>,
    /// Connections of a shard that may work for their handshake at once; the others wait in line [default: 8]
    #[arg(long, value_name = "N", help_heading = "Server options: network")]
    pub uninitialized_connections_semaphore_cpu_concurrency: Option<String>,

    /// Port of the REST API; 0 for any free one, none to do without [default: 10000]
    #[arg(long, value_name = "PORT", help_heading = "Server options: network")]
    pub api_port: Option<String>,
    /// Address of the REST API, which asks nobody who they are [default: localhost]
    #[arg(long, value_name = "ADDRESS", help_heading = "Server options: network")]
    pub api_address: Option<String>,
    /// Port for Prometheus; 0 for any free one, none to do without [default: 9180]
    #[arg(long, value_name = "PORT", help_heading = "Server options: network")]
    pub prometheus_port: Option<String>,
    /// Address for Prometheus [default: localhost]
    #[arg(long, value_name = "ADDRESS", help_heading = "Server options: network")]
    pub prometheus_address: Option<String>,
    /// Tell Prometheus of each table [default: false]
    #[arg(long, value_name = "0|1", num_args = 0..=1, default_missing_value = "1", help_heading = "Server options: network")]
    pub enable_node_aggregated_table_metrics: Option<String>,

    /// Directory of the commitlog [default: commitlog in the workdir]
    #[arg(long, value_name = "DIR", help_heading = "Server options: storage")]
    pub commitlog_directory: Option<PathBuf>,
    /// Directory of sstables [default: data in the workdir]
    #[arg(long, value_name = "DIR", help_heading = "Server options: storage")]
    pub data_file_directories: Option<PathBuf>,
    /// When a write is acknowledged: periodic (in the kernel; on disk within the period) or batch (on disk) [default: periodic]
    #[arg(long, value_name = "MODE", help_heading = "Server options: storage")]
    pub commitlog_sync: Option<String>,
    /// Period of `periodic`, in milliseconds [default: 10000]
    #[arg(long, value_name = "MS", help_heading = "Server options: storage")]
    pub commitlog_sync_period_in_ms: Option<String>,
    /// Size of a commitlog segment, in MiB [default: 32]
    #[arg(long, value_name = "MB", help_heading = "Server options: storage")]
    pub commitlog_segment_size_in_mb: Option<String>,
    /// Size of the whole commitlog, in MiB; -1 for as much as the memory [default: -1]
    #[arg(
        long,
        value_name = "MB",
        allow_hyphen_values = true,
        help_heading = "Server options: storage"
    )]
    pub commitlog_total_space_in_mb: Option<String>,
    /// Limit of what compaction writes, in MiB per second; 0 for none [default: 0]
    #[arg(long, value_name = "MB", help_heading = "Server options: storage")]
    pub compaction_throughput_mb_per_sec: Option<String>,

    /// Name of the cluster [default: Test Cluster]
    #[arg(long, value_name = "NAME", help_heading = "Server options: cluster")]
    pub cluster_name: Option<String>,
    /// Secret that nodes show each other before they talk, 16 bytes and more; better given in the file [default: none]
    #[arg(long, value_name = "TEXT", help_heading = "Server options: cluster")]
    pub join_secret: Option<String>,
    /// Nodes that know the cluster, e.g. 10.0.0.1,10.0.0.2:7000 [default: none, a node alone]
    #[arg(long, value_name = "LIST", help_heading = "Server options: cluster")]
    pub seeds: Option<String>,
    /// Port for other nodes; 0 for any free one [default: 7000]
    #[arg(long, value_name = "PORT", help_heading = "Server options: cluster")]
    pub storage_port: Option<String>,
    /// Port for other nodes' TLS connections; 0 for any free one [default: 7001]
    #[arg(long, value_name = "PORT", help_heading = "Server options: cluster")]
    pub ssl_storage_port: Option<String>,
    /// Number of tokens the node takes when it joins [default: 16]
    #[arg(long, value_name = "N", help_heading = "Server options: cluster")]
    pub num_tokens: Option<String>,
    /// The tokens it takes when it joins, separated by commas [default: chosen by the node]
    #[arg(
        long,
        value_name = "LIST",
        allow_hyphen_values = true,
        help_heading = "Server options: cluster"
    )]
    pub initial_token: Option<String>,
    /// Whether a node that joins takes its part of the ring [default: true]
    #[arg(long, value_name = "0|1", help_heading = "Server options: cluster")]
    pub auto_bootstrap: Option<String>,
    /// How the node learns where it stands: SimpleSnitch, RackInferringSnitch, GossipingPropertyFileSnitch [default: SimpleSnitch]
    #[arg(long, value_name = "NAME", help_heading = "Server options: cluster")]
    pub endpoint_snitch: Option<String>,
    /// Data center of this node [default: the snitch's]
    #[arg(long, alias = "dc", value_name = "NAME", help_heading = "Server options: cluster")]
    pub data_center: Option<String>,
    /// Rack of this node [default: the snitch's]
    #[arg(long, value_name = "NAME", help_heading = "Server options: cluster")]
    pub rack: Option<String>,
}

impl ServerArgs {
    /// What was given, by YAML name.
    pub(super) fn given(&self) -> Vec<(&'static str, String)> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|p| p.to_string_lossy().into_owned());
        let options = [
            ("workdir", path(&self.workdir)),
            ("smp", self.smp.clone()),
            ("memory", self.memory.clone()),
            ("cpuset", self.cpuset.clone()),
            ("overprovisioned", self.overprovisioned.clone()),
            ("developer_mode", self.developer_mode.clone()),
            ("backend", self.backend.clone()),
            ("default_log_level", self.default_log_level.clone()),
            ("listen_address", self.listen_address.clone()),
            ("rpc_address", self.rpc_address.clone()),
            ("broadcast_address", self.broadcast_address.clone()),
            ("broadcast_rpc_address", self.broadcast_rpc_address.clone()),
            ("native_transport_port", self.native_transport_port.clone()),
            (
                "native_shard_aware_transport_port",
                self.native_shard_aware_transport_port.clone(),
            ),
            (
                "uninitialized_connections_semaphore_cpu_concurrency",
                self.uninitialized_connections_semaphore_cpu_concurrency.clone(),
            ),
            ("api_port", self.api_port.clone()),
            ("api_address", self.api_address.clone()),
            ("prometheus_port", self.prometheus_port.clone()),
            ("prometheus_address", self.prometheus_address.clone()),
            (
                "enable_node_aggregated_table_metrics",
                self.enable_node_aggregated_table_metrics.clone(),
            ),
            ("commitlog_directory", path(&self.commitlog_directory)),
            ("data_file_directories", path(&self.data_file_directories)),
            ("commitlog_sync", self.commitlog_sync.clone()),
            ("commitlog_sync_period_in_ms", self.commitlog_sync_period_in_ms.clone()),
            (
                "commitlog_segment_size_in_mb",
                self.commitlog_segment_size_in_mb.clone(),
            ),
            ("commitlog_total_space_in_mb", self.commitlog_total_space_in_mb.clone()),
            (
                "compaction_throughput_mb_per_sec",
                self.compaction_throughput_mb_per_sec.clone(),
            ),
            ("cluster_name", self.cluster_name.clone()),
            ("join_secret", self.join_secret.clone()),
            ("seeds", self.seeds.clone()),
            ("storage_port", self.storage_port.clone()),
            ("ssl_storage_port", self.ssl_storage_port.clone()),
            ("num_tokens", self.num_tokens.clone()),
            ("initial_token", self.initial_token.clone()),
            ("auto_bootstrap", self.auto_bootstrap.clone()),
            ("endpoint_snitch", self.endpoint_snitch.clone()),
            ("data_center", self.data_center.clone()),
            ("rack", self.rack.clone()),
        ];
        options
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }
}
