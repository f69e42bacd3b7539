//! `system_schema` and `system_virtual_schema`: the schema as tables. The crate `schema` is below this one, so this
//! crate computes their rows.
//!
//! A partition is a keyspace, in all of these tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use schema::{ColumnKind, CompactStorage, Keyspace, Table, UserAggregate, UserFunction, is_virtual_keyspace};
use types::{CqlType, UdtType};

use crate::definition::{Definition, Options};
use crate::keyspaces::kind as kind_of;
use crate::rows::{Rows, Value};
use crate::virtual_table::{Content, Opening, Partitions, Request, VirtualTable, ready};

const COLUMNS_CQL: &str = "columns (keyspace_name text, table_name text, column_name text, clustering_order text, \
    column_name_bytes blob, kind text, position int, type text, PRIMARY KEY (keyspace_name, table_name, column_name))";

static KEYSPACES: Definition = Definition {
    keyspace: "system_schema",
    cql: "keyspaces (keyspace_name text PRIMARY KEY, durable_writes boolean, replication frozen<map<text, text>>)",
    options: Options::WEEK_OF_GRACE,
};

static TABLES: Definition = Definition {
    keyspace: "system_schema",
    cql: "tables (keyspace_name text, table_name text, additional_write_policy text, allow_auto_snapshot boolean, \
     bloom_filter_fp_chance double, caching frozen<map<text, text>>, cdc boolean, comment text, compaction frozen<map<text, text>>, \
     compression frozen<map<text, text>>, crc_check_chance double, dclocal_read_repair_chance double, \
     default_time_to_live int, extensions frozen<map<text, blob>>, flags frozen<set<text>>, gc_grace_seconds int, \
     id uuid, incremental_backups boolean, max_index_interval int, memtable text, memtable_flush_period_in_ms int, min_index_interval int, \
     read_repair text, read_repair_chance double, speculative_retry text, PRIMARY KEY (keyspace_name, table_name))",
    options: Options::WEEK_OF_GRACE,
};

static COLUMNS: Definition = Definition {
    keyspace: "system_schema",
    cql: COLUMNS_CQL,
    options: Options::WEEK_OF_GRACE,
};

static DROPPED_COLUMNS: Definition = Definition {
    keyspace: "system_schema",
    cql: "dropped_columns (keyspace_name text, table_name text, column_name text, dropped_time timestamp, kind text, \
     type text, PRIMARY KEY (keyspace_name, table_name, column_name))",
    options: Options::WEEK_OF_GRACE,
};

static INDEXES: Definition = Definition {
    keyspace: "system_schema",
    cql: "indexes (keyspace_name text, table_name text, index_name text, kind text, options frozen<map<text, text>>, \
     PRIMARY KEY (keyspace_name, table_name, index_name))",
    options: Options::WEEK_OF_GRACE,
};

static TYPES: Definition = Definition {
    keyspace: "system_schema",
    cql: "types (keyspace_name text, type_name text, field_names frozen<list<text>>, field_types frozen<list<text>>, \
     PRIMARY KEY (keyspace_name, type_name))",
    options: Options::WEEK_OF_GRACE,
};

static FUNCTIONS: Definition = Definition {
    keyspace: "system_schema",
    cql: "functions (keyspace_name text, function_name text, argument_types frozen<list<text>>, \
     argument_names frozen<list<text>>, body text, called_on_null_input boolean, language text, return_type text, \
     PRIMARY KEY (keyspace_name, function_name, argument_types))",
    options: Options::WEEK_OF_GRACE,
};

static AGGREGATES: Definition = Definition {
    keyspace: "system_schema",
    cql: "aggregates (keyspace_name text, aggregate_name text, argument_types frozen<list<text>>, final_func text, \
     initcond text, return_type text, state_func text, state_type text, \
     PRIMARY KEY (keyspace_name, aggregate_name, argument_types))",
    options: Options::WEEK_OF_GRACE,
};

/// What ScyllaDB adds about keyspaces, under its names. Its drivers take a keyspace for one with tablets when
/// `initial_tablets` is there.
static SCYLLA_KEYSPACES: Definition = Definition {
    keyspace: "system_schema",
    cql: "scylla_keyspaces (keyspace_name text PRIMARY KEY, consistency text, initial_tablets int, \
     storage_options frozen<map<text, text>>, storage_type text)",
    options: Options::WEEK_OF_GRACE,
};

/// What ScyllaDB adds about tables. Its drivers ask for the partitioner, which is null where it is Murmur3.
static SCYLLA_TABLES: Definition = Definition {
    keyspace: "system_schema",
    cql: "scylla_tables (keyspace_name text, table_name text, cdc frozen<map<text, text>>, in_memory boolean, \
     large_data_guardrails_enabled boolean, partitioner text, paxos_grace_seconds int, \
     per_partition_rate_limit frozen<map<text, text>>, storage_engine text, tablets frozen<map<text, text>>, \
     PRIMARY KEY (keyspace_name, table_name))",
    options: Options::WEEK_OF_GRACE,
};

static SCYLLA_AGGREGATES: Definition = Definition {
    keyspace: "system_schema",
    cql: "scylla_aggregates (keyspace_name text, aggregate_name text, argument_types frozen<list<text>>, \
     reduce_func text, state_type text, PRIMARY KEY (keyspace_name, aggregate_name, argument_types))",
    options: Options::WEEK_OF_GRACE,
};

static VIRTUAL_KEYSPACES: Definition = Definition {
    keyspace: "system_virtual_schema",
    cql: "keyspaces (keyspace_name text PRIMARY KEY)",
    options: Options::USUAL,
};

static VIRTUAL_TABLES: Definition = Definition {
    keyspace: "system_virtual_schema",
    cql: "tables (keyspace_name text, table_name text, comment text, PRIMARY KEY (keyspace_name, table_name))",
    options: Options::USUAL,
};

static VIRTUAL_COLUMNS: Definition = Definition {
    keyspace: "system_virtual_schema",
    cql: COLUMNS_CQL,
    options: Options::USUAL,
};

/// A table of the schema.
#[derive(Clone, Copy)]
struct SchemaTable {
    definition: &'static Definition,
    fill: Fill,
}

/// Adds the rows that a table has of a keyspace.
#[derive(Clone, Copy)]
enum Fill {
    Keyspace(fn(&Keyspace, &mut Rows<'_>)),
    /// Of each user-defined type of the keyspace. The row of a type begins with its name.
    Types(fn(&UdtType, &mut Rows<'_>)),
    /// Of each user-defined function of the keyspace, whose row begins with its name and the types of its arguments.
    Functions(fn(&UserFunction, &mut Rows<'_>)),
    /// Of each user-defined aggregate of the keyspace, likewise.
    Aggregates(fn(&UserAggregate, &mut Rows<'_>)),
    /// Of each table of the keyspace. The rows of a table begin with its name.
    Tables(fn(&Table, &mut Rows<'_>)),
}

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = Arc<dyn VirtualTable>> {
    let tables = [
        (&KEYSPACES, Fill::Keyspace(keyspace)),
        (&TABLES, Fill::Tables(table)),
        (&COLUMNS, Fill::Tables(columns)),
        (&DROPPED_COLUMNS, Fill::Tables(dropped_columns)),
        (&INDEXES, Fill::Tables(indexes)),
        (&TYPES, Fill::Types(user_type)),
        (&FUNCTIONS, Fill::Functions(function)),
        (&AGGREGATES, Fill::Aggregates(aggregate)),
        (&SCYLLA_KEYSPACES, Fill::Keyspace(scylla_keyspace)),
        (&SCYLLA_TABLES, Fill::Tables(scylla_table)),
        (&SCYLLA_AGGREGATES, Fill::Aggregates(scylla_aggregate)),
        (&VIRTUAL_KEYSPACES, Fill::Keyspace(virtual_keyspace)),
        (&VIRTUAL_TABLES, Fill::Tables(virtual_table)),
        (&VIRTUAL_COLUMNS, Fill::Tables(columns)),
    ];
    tables
        .into_iter()
        .map(|(definition, fill)| Arc::new(SchemaTable { definition, fill }) as Arc<dyn VirtualTable>)
}

impl VirtualTable for SchemaTable {
    fn definition(&self) -> &'static Definition {
        self.definition
    }

    fn open(&self, request: Request) -> Opening<'_> {
        let is_of_virtual = is_virtual_keyspace(self.definition.keyspace);
        let keyspaces = request.schema.keyspaces.values();
        let is_listed = |keyspace: &&Arc<Keyspace>| {
            is_virtual_keyspace(&keyspace.name) == is_of_virtual && request.wanted.includes(keyspace.name.as_bytes())
        };
        ready(SchemaContent {
            keyspaces: keyspaces.filter(is_listed).cloned().collect(),
            fill: self.fill,
        })
    }
}

struct SchemaContent {
    /// Those that the read wants.
    keyspaces: Vec<Arc<Keyspace>>,
    fill: Fill,
}

impl Content for SchemaContent {
    fn partitions(&self, partitions: &mut Partitions) {
        for (number, keyspace) in self.keyspaces.iter().enumerate() {
            partitions.add(number, &[Value::Text(&keyspace.name)]);
        }
    }

    fn find(&self, key: &[u8]) -> Option<usize> {
        self.keyspaces.iter().position(|k| k.name.as_bytes() == key)
    }

    fn rows(&self, partition: usize, rows: &mut Rows<'_>) {
        let keyspace = &self.keyspaces[partition];
        match self.fill {
            Fill::Keyspace(fill) => fill(keyspace, rows),
            Fill::Types(fill) => {
                for udt in keyspace.types.values() {
                    if rows.is_full() {
                        return;
                    }
                    if rows.wants(&[Value::Text(&udt.name)]) {
                        fill(udt, rows);
                    }
                }
            }
            Fill::Functions(fill) => {
                let mut functions: Vec<_> = keyspace.functions.values().collect();
                functions.sort_by_cached_key(|function| (function.name.clone(), function_types(function)));
                for function in functions {
                    if rows.is_full() {
                        return;
                    }
                    if rows.wants(&[Value::Text(&function.name)]) {
                        fill(function, rows);
                    }
                }
            }
            Fill::Aggregates(fill) => {
                let mut aggregates: Vec<_> = keyspace.aggregates.values().collect();
                aggregates.sort_by_cached_key(|aggregate| (aggregate.name.clone(), texts(&aggregate.arguments)));
                for aggregate in aggregates {
                    if rows.is_full() {
                        return;
                    }
                    if rows.wants(&[Value::Text(&aggregate.name)]) {
                        fill(aggregate, rows);
                    }
                }
            }
            Fill::Tables(fill) => {
                for table in keyspace.tables.values() {
                    if rows.is_full() {
                        return;
                    }
                    if rows.wants(&[Value::Text(&table.name)]) {
                        fill(table, rows);
                    }
                }
            }
        }
    }
}

fn keyspace(k: &Keyspace, rows: &mut Rows<'_>) {
    rows.push(&[
        ("keyspace_name", Value::Text(&k.name)),
        ("durable_writes", Value::Boolean(k.durable_writes)),
        ("replication", Value::TextMap(&k.replication)),
    ]);
}

/// Of a keyspace whose tables have tablets.
fn scylla_keyspace(k: &Keyspace, rows: &mut Rows<'_>) {
    if kind_of(&k.name).is_some() || !k.has_tablets() {
        return;
    }
    let initial = k.tablets.as_ref().and_then(|tablets| tablets.get("initial"));
    let initial = initial.and_then(|initial| initial.parse().ok()).unwrap_or(0);
    rows.push(&[
        ("keyspace_name", Value::Text(&k.name)),
        ("consistency", Value::Null),
        ("initial_tablets", Value::Int(initial)),
        ("storage_options", Value::Null),
        ("storage_type", Value::Null),
    ]);
}

fn unless_empty(map: &BTreeMap<String, String>) -> Value<'_> {
    if map.is_empty() {
        Value::Null
    } else {
        Value::TextMap(map)
    }
}

fn scylla_table(t: &Table, rows: &mut Rows<'_>) {
    let o = &t.options;
    let map = |named: Vec<(&'static str, String)>| -> BTreeMap<String, String> {
        named
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    };
    let limits = map(o.rate_limits.named().map(|(name, n)| (name, n.to_string())).collect());
    let tablets = map(o.tablets.iter().flat_map(|tablets| tablets.named()).collect());
    let seconds = o.paxos_grace_seconds.and_then(|seconds| i32::try_from(seconds).ok());
    rows.push(&[
        ("keyspace_name", Value::Text(&t.keyspace)),
        ("table_name", Value::Text(&t.name)),
        ("cdc", Value::Null),
        ("in_memory", Value::Null),
        (
            "large_data_guardrails_enabled",
            if o.guards_large_data {
                Value::Boolean(true)
            } else {
                Value::Null
            },
        ),
        ("partitioner", Value::Null),
        ("paxos_grace_seconds", seconds.map_or(Value::Null, Value::Int)),
        ("per_partition_rate_limit", unless_empty(&limits)),
        ("storage_engine", Value::Null),
        ("tablets", unless_empty(&tablets)),
    ]);
}

/// Of an aggregate whose parts can be computed apart.
fn scylla_aggregate(aggregate: &UserAggregate, rows: &mut Rows<'_>) {
    if let Some(reduce) = &aggregate.reduce_function {
        rows.push(&[
            ("keyspace_name", Value::Text(&aggregate.keyspace)),
            ("aggregate_name", Value::Text(&aggregate.name)),
            ("argument_types", Value::TextList(texts(&aggregate.arguments))),
            ("reduce_func", Value::Text(reduce)),
            ("state_type", Value::Text(&aggregate.state_type.unfrozen().to_string())),
        ]);
    }
}

fn virtual_keyspace(k: &Keyspace, rows: &mut Rows<'_>) {
    rows.push(&[("keyspace_name", Value::Text(&k.name))]);
}

fn virtual_table(t: &Table, rows: &mut Rows<'_>) {
    rows.push(&[
        ("keyspace_name", Value::Text(&t.keyspace)),
        ("table_name", Value::Text(&t.name)),
        ("comment", Value::Text(&t.options.comment)),
    ]);
}

fn table(t: &Table, rows: &mut Rows<'_>) {
    let o = &t.options;
    // In the order of their names, as a set has them.
    let flags = [
        (
            "compound",
            t.compact.is_none() || (t.compact == Some(CompactStorage::Dense) && t.clustering().count() > 1),
        ),
        ("counter", t.is_counter()),
        ("dense", t.compact == Some(CompactStorage::Dense)),
    ];
    let flags = flags
        .into_iter()
        .filter_map(|(flag, has)| has.then_some(flag))
        .collect();
    rows.push(&[
        ("keyspace_name", Value::Text(&t.keyspace)),
        ("table_name", Value::Text(&t.name)),
        ("additional_write_policy", Value::Text(&o.additional_write_policy)),
        ("allow_auto_snapshot", unless_true(o.allow_auto_snapshot)),
        ("bloom_filter_fp_chance", Value::Double(o.bloom_filter_fp_chance)),
        ("caching", Value::TextMap(&o.caching)),
        ("cdc", if o.cdc { Value::Boolean(true) } else { Value::Null }),
        ("comment", Value::Text(&o.comment)),
        ("compaction", Value::TextMap(&o.compaction)),
        ("compression", Value::TextMap(&o.compression)),
        ("crc_check_chance", Value::Double(o.crc_check_chance)),
        ("dclocal_read_repair_chance", Value::Double(0.0)),
        ("default_time_to_live", Value::Int(o.default_time_to_live)),
        ("extensions", Value::BlobMap(extensions(&o.extensions))),
        ("flags", Value::Texts(flags)),
        ("gc_grace_seconds", Value::Int(o.gc_grace_seconds)),
        ("id", Value::Uuid(t.id.0)),
        ("incremental_backups", unless_true(o.incremental_backups)),
        ("max_index_interval", Value::Int(o.max_index_interval)),
        ("memtable", Value::Null),
        ("memtable_flush_period_in_ms", Value::Int(o.memtable_flush_period_in_ms)),
        ("min_index_interval", Value::Int(o.min_index_interval)),
        ("read_repair", Value::Text(&o.read_repair)),
        ("read_repair_chance", Value::Double(0.0)),
        ("speculative_retry", Value::Text(&o.speculative_retry)),
    ]);
}

/// An option that is true unless it is given; Cassandra has nothing in the column then.
fn unless_true(value: bool) -> Value<'static> {
    if value { Value::Null } else { Value::Boolean(false) }
}

/// The bytes of blob literals.
fn extensions(literals: &BTreeMap<String, String>) -> BTreeMap<&str, Vec<u8>> {
    let bytes = |text: &str| -> Vec<u8> {
        let digits = text.strip_prefix("0x").unwrap_or(text).as_bytes();
        let value = |d: u8| (d as char).to_digit(16).and_then(|d| u8::try_from(d).ok()).unwrap_or(0);
        digits
            .chunks_exact(2)
            .map(|pair| value(pair[0]) << 4 | value(pair[1]))
            .collect()
    };
    literals
        .iter()
        .map(|(name, text)| (name.as_str(), bytes(text)))
        .collect()
}

fn kind(kind: ColumnKind) -> &'static str {
    match kind {
        ColumnKind::PartitionKey => "partition_key",
        ColumnKind::Clustering => "clustering",
        ColumnKind::Static => "static",
        ColumnKind::Regular => "regular",
    }
}

fn columns(t: &Table, rows: &mut Rows<'_>) {
    for c in &t.columns {
        let (order, position) = match c.kind {
            ColumnKind::PartitionKey => ("none", i32::from(c.position)),
            ColumnKind::Clustering => (if c.descending { "desc" } else { "asc" }, i32::from(c.position)),
            ColumnKind::Static | ColumnKind::Regular => ("none", -1),
        };
        rows.push(&[
            ("keyspace_name", Value::Text(&t.keyspace)),
            ("table_name", Value::Text(&t.name)),
            ("column_name", Value::Text(&c.name)),
            ("clustering_order", Value::Text(order)),
            ("column_name_bytes", Value::Blob(c.name.as_bytes())),
            ("kind", Value::Text(kind(c.kind))),
            ("position", Value::Int(position)),
            ("type", Value::Text(&c.cql_type.to_string())),
        ]);
    }
}

fn user_type(udt: &UdtType, rows: &mut Rows<'_>) {
    let names = udt.fields.iter().map(|(name, _)| name.clone()).collect();
    let types = udt.fields.iter().map(|(_, field)| field.to_string()).collect();
    rows.push(&[
        ("keyspace_name", Value::Text(&udt.keyspace)),
        ("type_name", Value::Text(&udt.name)),
        ("field_names", Value::TextList(names)),
        ("field_types", Value::TextList(types)),
    ]);
}

fn texts<'t>(types: impl IntoIterator<Item = &'t CqlType>) -> Vec<String> {
    types.into_iter().map(|t| t.unfrozen().to_string()).collect()
}

fn function_types(function: &UserFunction) -> Vec<String> {
    texts(function.arguments.iter().map(|(_, t)| t))
}

fn function(function: &UserFunction, rows: &mut Rows<'_>) {
    let names = function.arguments.iter().map(|(name, _)| name.clone()).collect();
    rows.push(&[
        ("keyspace_name", Value::Text(&function.keyspace)),
        ("function_name", Value::Text(&function.name)),
        ("argument_types", Value::TextList(function_types(function))),
        ("argument_names", Value::TextList(names)),
        ("body", Value::Text(&function.body)),
        ("called_on_null_input", Value::Boolean(function.called_on_null)),
        ("language", Value::Text(function.language.name())),
        ("return_type", Value::Text(&function.returns.unfrozen().to_string())),
    ]);
}

fn aggregate(aggregate: &UserAggregate, rows: &mut Rows<'_>) {
    let state_type = aggregate.state_type.unfrozen();
    let initial = aggregate.initial_state.as_ref().map(|state| state_type.format(state));
    let (returns, state_text) = (aggregate.returns.unfrozen().to_string(), state_type.to_string());
    rows.push(&[
        ("keyspace_name", Value::Text(&aggregate.keyspace)),
        ("aggregate_name", Value::Text(&aggregate.name)),
        ("argument_types", Value::TextList(texts(&aggregate.arguments))),
        ("final_func", Value::text(aggregate.final_function.as_deref())),
        ("initcond", Value::text(initial.as_deref())),
        ("return_type", Value::Text(&returns)),
        ("state_func", Value::Text(&aggregate.state_function)),
        ("state_type", Value::Text(&state_text)),
    ]);
}

/// The last column of each dropped name.
fn dropped_columns(t: &Table, rows: &mut Rows<'_>) {
    for c in t.last_dropped() {
        rows.push(&[
            ("keyspace_name", Value::Text(&t.keyspace)),
            ("table_name", Value::Text(&t.name)),
            ("column_name", Value::Text(&c.name)),
            ("dropped_time", Value::Timestamp(c.dropped_at_us.div_euclid(1000))),
            ("kind", Value::Text(kind(c.kind))),
            ("type", Value::Text(&c.cql_type.to_string())),
        ]);
    }
}

fn indexes(t: &Table, rows: &mut Rows<'_>) {
    for index in &t.indexes {
        if rows.is_full() {
            return;
        }
        let mut options = index.options.clone();
        options.insert("target".to_owned(), index.target(t));
        if let Some(class) = index.class_name() {
            options.insert("class_name".to_owned(), class.to_owned());
        }
        let has_class = index.class_name().is_some();
        rows.push(&[
            ("keyspace_name", Value::Text(&t.keyspace)),
            ("table_name", Value::Text(&t.name)),
            ("index_name", Value::Text(&index.name)),
            ("kind", Value::Text(if has_class { "CUSTOM" } else { "COMPOSITES" })),
            ("options", Value::TextMap(&options)),
        ]);
    }
}
