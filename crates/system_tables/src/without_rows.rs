//! Virtual tables that drivers and tools expect to find, and of which this node has no rows: views, types and functions, which it does not
//! have, and figures that it does not tell here. Definitions are those of Apache Cassandra 4.1. Who has facts for one takes its
//! definition from here and registers the table.

use crate::definition::{Group, Options};

/// The tables by keyspace and options.
pub(crate) const TABLES: &[Group] = &[
    ("system", Options::NO_GRACE, SYSTEM),
    ("system", BATCHES_OPTIONS, BATCHES),
    ("system", COMPACTION_HISTORY_OPTIONS, COMPACTION_HISTORY),
    ("system", PAXOS_OPTIONS, PAXOS),
    ("system_schema", Options::WEEK_OF_GRACE, SYSTEM_SCHEMA),
    ("system_views", Options::USUAL, SYSTEM_VIEWS),
];

const SYSTEM: &[&str] = &[
    "available_ranges (keyspace_name text PRIMARY KEY, ranges set<blob>)",
    "available_ranges_v2 (keyspace_name text PRIMARY KEY, full_ranges set<blob>, transient_ranges set<blob>)",
    "built_views (keyspace_name text, view_name text, status_replicated boolean, \
     PRIMARY KEY (keyspace_name, view_name))",
    "IndexInfo (table_name text, index_name text, value blob, PRIMARY KEY (table_name, index_name))",
    "paxos_repair_history (keyspace_name text, table_name text, points frozen<list<frozen<tuple<blob, timeuuid>>>>, \
     PRIMARY KEY (keyspace_name, table_name))",
    "peer_events (peer inet PRIMARY KEY, hints_dropped map<timeuuid, int>)",
    "peer_events_v2 (peer inet, peer_port int, hints_dropped map<timeuuid, int>, PRIMARY KEY (peer, peer_port))",
    "prepared_statements (prepared_id blob PRIMARY KEY, logged_keyspace text, query_string text)",
    "repairs (parent_id timeuuid PRIMARY KEY, coordinator inet, coordinator_port int, last_update timestamp, \
     repaired_at timestamp, started_at timestamp, state int, cfids set<uuid>, participants set<inet>, \
     participants_wp set<text>, ranges set<blob>)",
    "size_estimates (keyspace_name text, table_name text, range_start text, range_end text, \
     mean_partition_size bigint, partitions_count bigint, \
     PRIMARY KEY (keyspace_name, table_name, range_start, range_end))",
    "sstable_activity (keyspace_name text, columnfamily_name text, generation int, rate_120m double, rate_15m double, \
     PRIMARY KEY ((keyspace_name, columnfamily_name, generation)))",
    "sstable_activity_v2 (keyspace_name text, table_name text, id text, rate_120m double, rate_15m double, \
     PRIMARY KEY ((keyspace_name, table_name, id)))",
    "table_estimates (keyspace_name text, table_name text, range_type text, range_start text, range_end text, \
     mean_partition_size bigint, partitions_count bigint, \
     PRIMARY KEY (keyspace_name, table_name, range_type, range_start, range_end))",
    "top_partitions (keyspace_name text, table_name text, top_type text, last_update timestamp, \
     top frozen<list<frozen<tuple<text, bigint>>>>, PRIMARY KEY (keyspace_name, table_name, top_type))",
    "transferred_ranges (operation text, keyspace_name text, peer inet, ranges set<blob>, \
     PRIMARY KEY ((operation, keyspace_name), peer))",
    "transferred_ranges_v2 (operation text, keyspace_name text, peer inet, peer_port int, ranges set<blob>, \
     PRIMARY KEY ((operation, keyspace_name), peer, peer_port))",
    "view_builds_in_progress (keyspace_name text, view_name text, start_token text, end_token text, keys_built bigint, \
     last_token text, PRIMARY KEY (keyspace_name, view_name, start_token, end_token))",
];

const BATCHES: &[&str] = &["batches (id timeuuid PRIMARY KEY, version int, mutations list<blob>)"];

const BATCHES_OPTIONS: Options = Options {
    compaction: &[
        (
            "class",
            "org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy",
        ),
        ("max_threshold", "32"),
        ("min_threshold", "2"),
    ],
    ..Options::NO_GRACE
};

const COMPACTION_HISTORY: &[&str] = &[
    "compaction_history (id timeuuid PRIMARY KEY, bytes_in bigint, bytes_out bigint, columnfamily_name text, \
     compacted_at timestamp, keyspace_name text, rows_merged map<int, bigint>)",
];

const COMPACTION_HISTORY_OPTIONS: Options = Options {
    default_time_to_live: 604_800,
    ..Options::NO_GRACE
};

const PAXOS: &[&str] = &[
    "paxos (row_key blob, cf_id uuid, in_progress_ballot timeuuid, in_progress_read_ballot timeuuid, \
     most_recent_commit blob, most_recent_commit_at timeuuid, most_recent_commit_version int, proposal blob, \
     proposal_ballot timeuuid, proposal_version int, PRIMARY KEY (row_key, cf_id))",
];

const PAXOS_OPTIONS: Options = Options {
    // What CREATE TABLE gives to a table of this strategy.
    bloom_filter_fp_chance: 0.1,
    compaction: &[
        ("class", "org.apache.cassandra.db.compaction.LeveledCompactionStrategy"),
        ("max_threshold", "32"),
        ("min_threshold", "4"),
    ],
    ..Options::NO_GRACE
};

const SYSTEM_SCHEMA: &[&str] = &[
    "aggregates (keyspace_name text, aggregate_name text, argument_types frozen<list<text>>, final_func text, \
     initcond text, return_type text, state_func text, state_type text, \
     PRIMARY KEY (keyspace_name, aggregate_name, argument_types))",
    "functions (keyspace_name text, function_name text, argument_types frozen<list<text>>, \
     argument_names frozen<list<text>>, body text, called_on_null_input boolean, language text, return_type text, \
     PRIMARY KEY (keyspace_name, function_name, argument_types))",
    "indexes (keyspace_name text, table_name text, index_name text, kind text, options frozen<map<text, text>>, \
     PRIMARY KEY (keyspace_name, table_name, index_name))",
    "triggers (keyspace_name text, table_name text, trigger_name text, options frozen<map<text, text>>, \
     PRIMARY KEY (keyspace_name, table_name, trigger_name))",
    "types (keyspace_name text, type_name text, field_names frozen<list<text>>, field_types frozen<list<text>>, \
     PRIMARY KEY (keyspace_name, type_name))",
    "views (keyspace_name text, view_name text, additional_write_policy text, base_table_id uuid, \
     base_table_name text, bloom_filter_fp_chance double, caching frozen<map<text, text>>, cdc boolean, comment text, \
     compaction frozen<map<text, text>>, compression frozen<map<text, text>>, crc_check_chance double, \
     dclocal_read_repair_chance double, default_time_to_live int, extensions frozen<map<text, blob>>, \
     gc_grace_seconds int, id uuid, include_all_columns boolean, max_index_interval int, memtable text, \
     memtable_flush_period_in_ms int, min_index_interval int, read_repair text, read_repair_chance double, \
     speculative_retry text, where_clause text, PRIMARY KEY (keyspace_name, view_name))",
];

const SYSTEM_VIEWS: &[&str] = &[
    "batch_metrics (name text PRIMARY KEY, max bigint, p50th double, p999th double, p99th double)",
    "caches (name text PRIMARY KEY, capacity_bytes bigint, entry_count int, hit_count bigint, hit_ratio double, \
     recent_hit_rate_per_second bigint, recent_request_rate_per_second bigint, request_count bigint, \
     size_bytes bigint)",
    "coordinator_read_latency (keyspace_name text, table_name text, count bigint, max_ms double, p50th_ms double, \
     p99th_ms double, per_second double, PRIMARY KEY ((keyspace_name, table_name)))",
    "coordinator_scan_latency (keyspace_name text, table_name text, count bigint, max_ms double, p50th_ms double, \
     p99th_ms double, per_second double, PRIMARY KEY ((keyspace_name, table_name)))",
    "coordinator_write_latency (keyspace_name text, table_name text, count bigint, max_ms double, p50th_ms double, \
     p99th_ms double, per_second double, PRIMARY KEY ((keyspace_name, table_name)))",
    "cql_metrics (name text PRIMARY KEY, value double)",
    "disk_usage (keyspace_name text, table_name text, mebibytes bigint, PRIMARY KEY ((keyspace_name, table_name)))",
    "local_read_latency (keyspace_name text, table_name text, count bigint, max_ms double, p50th_ms double, \
     p99th_ms double, per_second double, PRIMARY KEY ((keyspace_name, table_name)))",
    "local_scan_latency (keyspace_name text, table_name text, count bigint, max_ms double, p50th_ms double, \
     p99th_ms double, per_second double, PRIMARY KEY ((keyspace_name, table_name)))",
    "local_write_latency (keyspace_name text, table_name text, count bigint, max_ms double, p50th_ms double, \
     p99th_ms double, per_second double, PRIMARY KEY ((keyspace_name, table_name)))",
    "max_partition_size (keyspace_name text, table_name text, mebibytes bigint, \
     PRIMARY KEY ((keyspace_name, table_name)))",
    "pending_hints (host_id uuid PRIMARY KEY, address inet, dc text, files int, newest timestamp, oldest timestamp, \
     port int, rack text, status text)",
    "queries (thread_id text PRIMARY KEY, queued_micros bigint, running_micros bigint, task text)",
    "rows_per_read (keyspace_name text, table_name text, count bigint, max double, p50th double, p99th double, \
     PRIMARY KEY ((keyspace_name, table_name)))",
    "sstable_tasks (keyspace_name text, table_name text, task_id timeuuid, completion_ratio double, kind text, \
     progress bigint, sstables int, total bigint, unit text, PRIMARY KEY (keyspace_name, table_name, task_id))",
    "system_properties (name text PRIMARY KEY, value text)",
    "thread_pools (name text PRIMARY KEY, active_tasks int, active_tasks_limit int, blocked_tasks bigint, \
     blocked_tasks_all_time bigint, completed_tasks bigint, pending_tasks int)",
    "tombstones_per_read (keyspace_name text, table_name text, count bigint, max double, p50th double, p99th double, \
     PRIMARY KEY ((keyspace_name, table_name)))",
];
