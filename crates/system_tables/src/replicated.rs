//! The replicated system tables, as Apache Cassandra 4.1 defines them.

use crate::definition::{Definition, Options};

/// Their definitions.
pub(crate) static DEFINITIONS: &[Definition] = &[
    Definition {
        keyspace: "system_auth",
        name: "network_permissions",
        partition_key: &[("role", "text")],
        clustering: &[],
        columns: &[("dcs", "frozen<set<text>>")],
        options: Options {
            gc_grace_seconds: 7_776_000,
            ..Options::USUAL
        },
    },
    Definition {
        keyspace: "system_auth",
        name: "resource_role_permissons_index",
        partition_key: &[("resource", "text")],
        clustering: &[("role", "text")],
        columns: &[],
        options: Options {
            gc_grace_seconds: 7_776_000,
            ..Options::USUAL
        },
    },
    Definition {
        keyspace: "system_auth",
        name: "role_members",
        partition_key: &[("role", "text")],
        clustering: &[("member", "text")],
        columns: &[],
        options: Options {
            gc_grace_seconds: 7_776_000,
            ..Options::USUAL
        },
    },
    Definition {
        keyspace: "system_auth",
        name: "role_permissions",
        partition_key: &[("role", "text")],
        clustering: &[("resource", "text")],
        columns: &[("permissions", "set<text>")],
        options: Options {
            gc_grace_seconds: 7_776_000,
            ..Options::USUAL
        },
    },
    Definition {
        keyspace: "system_auth",
        name: "roles",
        partition_key: &[("role", "text")],
        clustering: &[],
        columns: &[
            ("can_login", "boolean"),
            ("is_superuser", "boolean"),
            ("salted_hash", "text"),
            ("member_of", "set<text>"),
        ],
        options: Options {
            gc_grace_seconds: 7_776_000,
            ..Options::USUAL
        },
    },
    Definition {
        keyspace: "system_distributed",
        name: "parent_repair_history",
        partition_key: &[("parent_id", "timeuuid")],
        clustering: &[],
        columns: &[
            ("exception_message", "text"),
            ("exception_stacktrace", "text"),
            ("finished_at", "timestamp"),
            ("keyspace_name", "text"),
            ("started_at", "timestamp"),
            ("columnfamily_names", "set<text>"),
            ("options", "map<text, text>"),
            ("requested_ranges", "set<text>"),
            ("successful_ranges", "set<text>"),
        ],
        options: Options {
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
        },
    },
    Definition {
        keyspace: "system_distributed",
        name: "partition_denylist",
        partition_key: &[("ks_name", "text"), ("table_name", "text")],
        clustering: &[("key", "blob")],
        columns: &[],
        options: Options::USUAL,
    },
    Definition {
        keyspace: "system_distributed",
        name: "repair_history",
        partition_key: &[("keyspace_name", "text"), ("columnfamily_name", "text")],
        clustering: &[("id", "timeuuid")],
        columns: &[
            ("coordinator", "inet"),
            ("coordinator_port", "int"),
            ("exception_message", "text"),
            ("exception_stacktrace", "text"),
            ("finished_at", "timestamp"),
            ("parent_id", "timeuuid"),
            ("range_begin", "text"),
            ("range_end", "text"),
            ("started_at", "timestamp"),
            ("status", "text"),
            ("participants", "set<inet>"),
            ("participants_v2", "set<text>"),
        ],
        options: Options {
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
        },
    },
    Definition {
        keyspace: "system_distributed",
        name: "view_build_status",
        partition_key: &[("keyspace_name", "text"), ("view_name", "text")],
        clustering: &[("host_id", "uuid")],
        columns: &[("status", "text")],
        options: Options::USUAL,
    },
    Definition {
        keyspace: "system_traces",
        name: "events",
        partition_key: &[("session_id", "uuid")],
        clustering: &[("event_id", "timeuuid")],
        columns: &[
            ("activity", "text"),
            ("source", "inet"),
            ("source_elapsed", "int"),
            ("source_port", "int"),
            ("thread", "text"),
        ],
        options: Options::NO_GRACE,
    },
    Definition {
        keyspace: "system_traces",
        name: "sessions",
        partition_key: &[("session_id", "uuid")],
        clustering: &[],
        columns: &[
            ("client", "inet"),
            ("command", "text"),
            ("coordinator", "inet"),
            ("coordinator_port", "int"),
            ("duration", "int"),
            ("request", "text"),
            ("started_at", "timestamp"),
            ("parameters", "map<text, text>"),
        ],
        options: Options::NO_GRACE,
    },
];
