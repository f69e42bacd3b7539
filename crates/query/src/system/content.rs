//! The rows of the computed tables.

use std::collections::BTreeMap;

use coordinator::ClusterView;
use schema::{ColumnKind, Keyspace, Schema, Table, is_virtual_keyspace};
use topology::NodeState;

use super::node::NodeInfo;
use super::peer;
use super::rows::{Field, Rows};
use super::tablets;

/// How the shard of a token is found; what drivers that know shards ask for.
const SHARDING_ALGORITHM: &str = "biased-token-round-robin";

/// The packed mutations that a virtual table's content is made of, one for each partition. Without `view` nothing is known of tablets.
pub fn contents(
    table: &Table,
    schema: &Schema,
    node: &NodeInfo,
    view: Option<&ClusterView>,
    now_us: i64,
) -> Vec<Vec<u8>> {
    let mut rows = Rows::new(table, now_us);
    match (table.keyspace.as_str(), table.name.as_str()) {
        ("system", "local") => local(&mut rows, schema, node),
        ("system", "peers") => peer::peers(&mut rows, node),
        ("system", "peers_v2") => peer::peers_v2(&mut rows, node),
        ("system", "cluster_status") => peer::cluster_status(&mut rows, node),
        ("system", "tablets") => {
            if let Some(view) = view {
                tablets::tablets(&mut rows, schema, view);
            }
        }
        ("system_schema", "keyspaces") => {
            for k in stored(schema) {
                rows.push(&[
                    ("keyspace_name", Field::Text(&k.name)),
                    ("durable_writes", Field::Boolean(k.durable_writes)),
                    ("replication", Field::TextMap(&k.replication)),
                ]);
            }
        }
        ("system_schema", "tables") => stored(schema)
            .flat_map(|k| k.tables.values())
            .for_each(|t| tables(&mut rows, t)),
        ("system_schema", "columns") => {
            stored(schema)
                .flat_map(|k| k.tables.values())
                .for_each(|t| columns(&mut rows, t));
        }
        ("system_schema", "dropped_columns") => {
            stored(schema)
                .flat_map(|k| k.tables.values())
                .for_each(|t| dropped_columns(&mut rows, t));
        }
        ("system_virtual_schema", "keyspaces") => {
            for k in computed(schema) {
                rows.push(&[("keyspace_name", Field::Text(&k.name))]);
            }
        }
        ("system_virtual_schema", "tables") => {
            for t in computed(schema).flat_map(|k| k.tables.values()) {
                rows.push(&[
                    ("keyspace_name", Field::Text(&t.keyspace)),
                    ("table_name", Field::Text(&t.name)),
                    ("comment", Field::Text(&t.options.comment)),
                ]);
            }
        }
        ("system_virtual_schema", "columns") => {
            computed(schema)
                .flat_map(|k| k.tables.values())
                .for_each(|t| columns(&mut rows, t));
        }
        ("system", "clients") => clients(&mut rows, node, ClientsTable::ScyllaDb),
        ("system_views", "clients") => clients(&mut rows, node, ClientsTable::Cassandra),
        ("system_views", "settings") => {
            for (name, value) in &node.settings {
                rows.push(&[("name", Field::Text(name)), ("value", Field::text(value.as_deref()))]);
            }
        }
        // What the node has none of, or does not tell: views, types, functions, metrics.
        _ => {}
    }
    rows.finish()
}

/// Keyspaces that `system_schema` lists.
fn stored(schema: &Schema) -> impl Iterator<Item = &Keyspace> {
    schema
        .keyspaces
        .values()
        .map(|k| &**k)
        .filter(|k| !is_virtual_keyspace(&k.name))
}

/// Keyspaces that `system_virtual_schema` lists.
fn computed(schema: &Schema) -> impl Iterator<Item = &Keyspace> {
    schema
        .keyspaces
        .values()
        .map(|k| &**k)
        .filter(|k| is_virtual_keyspace(&k.name))
}

fn local(rows: &mut Rows<'_>, schema: &Schema, node: &NodeInfo) {
    let count = |n: u32| Field::Int(i32::try_from(n).unwrap_or(i32::MAX));
    let bootstrapped = match node.state {
        NodeState::Joining => "IN_PROGRESS",
        NodeState::Normal | NodeState::Leaving => "COMPLETED",
        NodeState::Left => "DECOMMISSIONED",
    };
    rows.push(&[
        ("key", Field::Text("local")),
        ("bootstrapped", Field::Text(bootstrapped)),
        ("broadcast_address", Field::Inet(node.broadcast_address)),
        ("broadcast_port", Field::Int(i32::from(node.storage_port))),
        ("cluster_name", Field::Text(&node.cluster_name)),
        ("cql_version", Field::Text(&node.cql_version)),
        ("data_center", Field::Text(&node.data_center)),
        ("gossip_generation", Field::Int(node.gossip_generation)),
        ("host_id", Field::Uuid(node.host_id)),
        ("listen_address", Field::Inet(node.listen_address)),
        ("listen_port", Field::Int(i32::from(node.storage_port))),
        ("native_protocol_version", Field::Text(&node.native_protocol_version)),
        ("partitioner", Field::Text(&node.partitioner)),
        ("rack", Field::Text(&node.rack)),
        ("release_version", Field::Text(&node.release_version)),
        ("rpc_address", Field::Inet(node.rpc_address)),
        ("rpc_port", Field::Int(i32::from(node.port))),
        ("schema_version", Field::Uuid(schema.version)),
        ("tokens", Field::Texts(node.tokens.iter().map(String::as_str).collect())),
        ("scylla_cpu_sharding_algorithm", Field::Text(SHARDING_ALGORITHM)),
        ("scylla_nr_shards", count(node.shards)),
        ("scylla_msb_ignore", Field::Int(i32::from(node.shard_bits_ignored))),
    ]);
}

fn tables(rows: &mut Rows<'_>, t: &Table) {
    let o = &t.options;
    let mut flags = vec!["compound"];
    if t.is_counter() {
        flags.push("counter");
    }
    rows.push(&[
        ("keyspace_name", Field::Text(&t.keyspace)),
        ("table_name", Field::Text(&t.name)),
        ("additional_write_policy", Field::Text(&o.additional_write_policy)),
        ("bloom_filter_fp_chance", Field::Double(o.bloom_filter_fp_chance)),
        ("caching", Field::TextMap(&o.caching)),
        ("cdc", if o.cdc { Field::Boolean(true) } else { Field::Null }),
        ("comment", Field::Text(&o.comment)),
        ("compaction", Field::TextMap(&o.compaction)),
        ("compression", Field::TextMap(&o.compression)),
        ("crc_check_chance", Field::Double(o.crc_check_chance)),
        ("dclocal_read_repair_chance", Field::Double(0.0)),
        ("default_time_to_live", Field::Int(o.default_time_to_live)),
        ("extensions", Field::BlobMap(extensions(&o.extensions))),
        ("flags", Field::Texts(flags)),
        ("gc_grace_seconds", Field::Int(o.gc_grace_seconds)),
        ("id", Field::Uuid(t.id.0)),
        ("max_index_interval", Field::Int(o.max_index_interval)),
        ("memtable_flush_period_in_ms", Field::Int(o.memtable_flush_period_in_ms)),
        ("min_index_interval", Field::Int(o.min_index_interval)),
        ("read_repair", Field::Text(&o.read_repair)),
        ("read_repair_chance", Field::Double(0.0)),
        ("speculative_retry", Field::Text(&o.speculative_retry)),
    ]);
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

fn columns(rows: &mut Rows<'_>, t: &Table) {
    for c in &t.columns {
        let (order, position) = match c.kind {
            ColumnKind::PartitionKey => ("none", i32::from(c.position)),
            ColumnKind::Clustering => (if c.descending { "desc" } else { "asc" }, i32::from(c.position)),
            ColumnKind::Static | ColumnKind::Regular => ("none", -1),
        };
        rows.push(&[
            ("keyspace_name", Field::Text(&t.keyspace)),
            ("table_name", Field::Text(&t.name)),
            ("column_name", Field::Text(&c.name)),
            ("clustering_order", Field::Text(order)),
            ("column_name_bytes", Field::Blob(c.name.as_bytes())),
            ("kind", Field::Text(kind(c.kind))),
            ("position", Field::Int(position)),
            ("type", Field::Text(&c.cql_type.to_string())),
        ]);
    }
}

/// The last column of each dropped name.
fn dropped_columns(rows: &mut Rows<'_>, t: &Table) {
    for c in t.last_dropped() {
        rows.push(&[
            ("keyspace_name", Field::Text(&t.keyspace)),
            ("table_name", Field::Text(&t.name)),
            ("column_name", Field::Text(&c.name)),
            ("dropped_time", Field::Timestamp(c.dropped_at_us.div_euclid(1000))),
            ("kind", Field::Text(kind(c.kind))),
            ("type", Field::Text(&c.cql_type.to_string())),
        ]);
    }
}

/// Whose table of connections: they differ in a few columns, and in how a stage is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientsTable {
    Cassandra,
    ScyllaDb,
}

fn clients(rows: &mut Rows<'_>, node: &NodeInfo, table: ClientsTable) {
    for c in &node.clients {
        let tls = c.tls.as_ref();
        let stage = match table {
            ClientsTable::Cassandra => c.connection_stage.clone(),
            ClientsTable::ScyllaDb => c.connection_stage.to_ascii_uppercase(),
        };
        let version = c.protocol_version.map_or(Field::Null, |v| Field::Int(i32::from(v)));
        let mut fields = vec![
            ("address", Field::Inet(c.address)),
            ("port", Field::Int(i32::from(c.port))),
            ("client_options", Field::TextMap(&c.client_options)),
            ("connection_stage", Field::Text(&stage)),
            ("driver_name", Field::text(c.driver_name.as_deref())),
            ("driver_version", Field::text(c.driver_version.as_deref())),
            ("hostname", Field::Text(&c.hostname)),
            ("protocol_version", version),
            ("ssl_cipher_suite", Field::text(tls.map(|(_, cipher)| cipher.as_str()))),
            ("ssl_enabled", Field::Boolean(tls.is_some())),
            ("ssl_protocol", Field::text(tls.map(|(protocol, _)| protocol.as_str()))),
            ("username", Field::Text(&c.username)),
        ];
        fields.extend(match table {
            ClientsTable::Cassandra => vec![("request_count", Field::BigInt(c.request_count))],
            ClientsTable::ScyllaDb => vec![
                ("client_type", Field::Text("cql")),
                ("scheduling_group", Field::Text(&c.scheduling_group)),
                ("shard_id", Field::Int(i32::try_from(c.shard).unwrap_or(i32::MAX))),
            ],
        });
        rows.push(&fields);
    }
}
