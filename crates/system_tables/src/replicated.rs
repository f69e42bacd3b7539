//! The replicated system tables, as Apache Cassandra 4.1 defines them, and those of our own.

use crate::definition::{Group, Options};

/// The tables by keyspace and options.
pub(crate) const TABLES: &[Group] = &[
    ("system_auth", QUARTER_OF_GRACE, SYSTEM_AUTH),
    ("system_auth", QUARTER_OF_GRACE, DYNAMODB_KEYS),
    ("system_distributed", Options::USUAL, SYSTEM_DISTRIBUTED),
    ("system_distributed", HISTORY, REPAIR_HISTORIES),
    ("system_traces", Options::NO_GRACE, SYSTEM_TRACES),
    ("system_traces", A_DAY, SLOW_REQUESTS),
];

/// 90 days.
const QUARTER_OF_GRACE: Options = Options {
    gc_grace_seconds: 7_776_000,
    ..Options::USUAL
};

/// Rows are dropped after 30 days, in sstables of a day.
const HISTORY: Options = Options {
    default_time_to_live: 2_592_000,
    compaction: &[
        (
            "class",
            "org.apache.cassandra.db.compaction.TimeWindowCompactionStrategy",
        ),
        ("compaction_window_size", "1"),
        ("compaction_window_unit", "DAYS"),
        ("max_threshold", "32"),
        ("min_threshold", "4"),
    ],
    ..Options::USUAL
};

/// Rows are dropped after a day.
const A_DAY: Options = Options {
    default_time_to_live: 86_400,
    ..Options::NO_GRACE
};

const SYSTEM_AUTH: &[&str] = &[
    "network_permissions (role text PRIMARY KEY, dcs frozen<set<text>>)",
    "resource_role_permissons_index (resource text, role text, PRIMARY KEY (resource, role))",
    "role_members (role text, member text, PRIMARY KEY (role, member))",
    "role_permissions (role text, resource text, permissions set<text>, PRIMARY KEY (role, resource))",
    "roles (role text PRIMARY KEY, can_login boolean, is_superuser boolean, salted_hash text, member_of set<text>)",
];

/// Of our own: the access keys of the DynamoDB API (`dynamodb_engine::access_keys`).
const DYNAMODB_KEYS: &[&str] =
    &["dynamodb_keys (access_key text PRIMARY KEY, created timestamp, secret text, status text)"];

const SYSTEM_DISTRIBUTED: &[&str] = &[
    "partition_denylist (ks_name text, table_name text, key blob, PRIMARY KEY ((ks_name, table_name), key))",
    "view_build_status (keyspace_name text, view_name text, host_id uuid, status text, \
     PRIMARY KEY ((keyspace_name, view_name), host_id))",
];

const REPAIR_HISTORIES: &[&str] = &[
    "parent_repair_history (parent_id timeuuid PRIMARY KEY, exception_message text, exception_stacktrace text, \
     finished_at timestamp, keyspace_name text, started_at timestamp, columnfamily_names set<text>, \
     options map<text, text>, requested_ranges set<text>, successful_ranges set<text>)",
    "repair_history (keyspace_name text, columnfamily_name text, id timeuuid, coordinator inet, coordinator_port int, \
     exception_message text, exception_stacktrace text, finished_at timestamp, parent_id timeuuid, range_begin text, \
     range_end text, started_at timestamp, status text, participants set<inet>, participants_v2 set<text>, \
     PRIMARY KEY ((keyspace_name, columnfamily_name), id))",
];

const SYSTEM_TRACES: &[&str] = &[
    "events (session_id uuid, event_id timeuuid, activity text, source inet, source_elapsed int, source_port int, \
     thread text, PRIMARY KEY (session_id, event_id))",
    "sessions (session_id uuid PRIMARY KEY, client inet, command text, coordinator inet, coordinator_port int, \
     duration int, request text, started_at timestamp, parameters map<text, text>)",
];

/// As ScyllaDB documents them (Using ScyllaDB, Tracing).
const SLOW_REQUESTS: &[&str] = &[
    "node_slow_log (start_time timeuuid, node_ip inet, shard int, command text, date timestamp, duration int, \
     parameters map<text, text>, session_id uuid, source_ip inet, table_names set<text>, username text, \
     PRIMARY KEY (start_time, node_ip, shard))",
    "node_slow_log_time_idx (minute timestamp, started_at timestamp, session_id uuid, node_ip inet, shard int, start_time timeuuid, \
     PRIMARY KEY (minute, started_at, session_id))",
];
