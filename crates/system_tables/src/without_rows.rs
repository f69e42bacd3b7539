//! Virtual tables of the schema of which no node has rows, because it has no views, triggers and masks.
//! Drivers read them when they connect. Definitions are those of Apache Cassandra 4.1, that of `column_masks` of
//! 5.0. To give one of them rows, take its definition from here and register the table with a source.

use crate::definition::{Group, Options};

/// The tables by keyspace and options.
pub(crate) const TABLES: &[Group] = &[("system_schema", Options::WEEK_OF_GRACE, SYSTEM_SCHEMA)];

const SYSTEM_SCHEMA: &[&str] = &[
    "computed_columns (keyspace_name text, table_name text, column_name text, computation blob, \
     PRIMARY KEY (keyspace_name, table_name, column_name))",
    "column_masks (keyspace_name text, table_name text, column_name text, function_argument_nulls frozen<list<boolean>>, \
     function_argument_types frozen<list<text>>, function_argument_values frozen<list<text>>, function_keyspace text, \
     function_name text, PRIMARY KEY (keyspace_name, table_name, column_name))",
    "triggers (keyspace_name text, table_name text, trigger_name text, options frozen<map<text, text>>, \
     PRIMARY KEY (keyspace_name, table_name, trigger_name))",
    "views (keyspace_name text, view_name text, additional_write_policy text, allow_auto_snapshot boolean, base_table_id uuid, \
     base_table_name text, bloom_filter_fp_chance double, caching frozen<map<text, text>>, cdc boolean, comment text, \
     compaction frozen<map<text, text>>, compression frozen<map<text, text>>, crc_check_chance double, \
     dclocal_read_repair_chance double, default_time_to_live int, extensions frozen<map<text, blob>>, \
     gc_grace_seconds int, id uuid, include_all_columns boolean, incremental_backups boolean, max_index_interval int, memtable text, \
     memtable_flush_period_in_ms int, min_index_interval int, read_repair text, read_repair_chance double, \
     speculative_retry text, where_clause text, PRIMARY KEY (keyspace_name, view_name))",
];
