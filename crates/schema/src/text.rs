//! DDL as text: what DESCRIBE answers, in the words and order of Cassandra 4.1.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::table::{Column, ColumnKind, Keyspace, Table};

pub use types::quote_identifier;

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn map_literal(map: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = map.iter().map(|(k, v)| format!("{}: {}", quote(k), quote(v))).collect();
    format!("{{{}}}", pairs.join(", "))
}

/// Prints a double as Java does: always with a fraction, and with an exponent when it is very small or large.
pub fn java_double(v: f64) -> String {
    if v == 0.0 || (1e-3..1e7).contains(&v.abs()) {
        return if v.fract() == 0.0 {
            format!("{v:.1}")
        } else {
            format!("{v}")
        };
    }
    let text = format!("{v:E}");
    match text.split_once('E') {
        Some((digits, exponent)) if !digits.contains('.') => format!("{digits}.0E{exponent}"),
        _ => text,
    }
}

/// Whether the tables of that keyspace are computed and shown as such, apart from those that are stored.
pub fn is_virtual_keyspace(name: &str) -> bool {
    matches!(name, "system_views" | "system_virtual_schema")
}

/// `CREATE KEYSPACE …;`
pub fn describe_keyspace(keyspace: &Keyspace) -> String {
    // The class comes first, then the other options by name, as Cassandra prints them.
    let mut pairs: Vec<String> = Vec::new();
    if let Some(class) = keyspace.replication.get("class") {
        pairs.push(format!("'class': {}", quote(class.rsplit('.').next().unwrap_or(class))));
    }
    for (k, v) in keyspace.replication.iter().filter(|(k, _)| *k != "class") {
        pairs.push(format!("{}: {}", quote(k), quote(v)));
    }
    let mut text = format!(
        "CREATE KEYSPACE {} WITH replication = {{{}}}  AND durable_writes = {}",
        quote_identifier(&keyspace.name),
        pairs.join(", "),
        keyspace.durable_writes
    );
    if let Some(tablets) = &keyspace.tablets {
        let pairs: Vec<String> = tablets.iter().map(|(k, v)| format!("{}: {v}", quote(k))).collect();
        let _ = write!(text, " AND tablets = {{{}}}", pairs.join(", "));
    }
    text.push(';');
    text
}

fn column(c: &Column) -> String {
    let tail = if c.kind == ColumnKind::Static { " static" } else { "" };
    format!("{} {}{tail}", quote_identifier(&c.name), c.cql_type)
}

/// `CREATE TABLE … WITH …;`, with the table's id when `internals` is asked for.
pub fn describe_table(table: &Table, internals: bool) -> String {
    let mut text = format!(
        "CREATE TABLE {}.{} (\n",
        quote_identifier(&table.keyspace),
        quote_identifier(&table.name)
    );
    let partition: Vec<String> = table.partition_key().map(|c| quote_identifier(&c.name)).collect();
    let clustering: Vec<String> = table.clustering().map(|c| quote_identifier(&c.name)).collect();
    let alone = partition.len() == 1 && clustering.is_empty();
    let mut lines: Vec<String> = Vec::new();
    for c in &table.columns {
        let tail = if alone && c.kind == ColumnKind::PartitionKey {
            " PRIMARY KEY"
        } else {
            ""
        };
        lines.push(format!("    {}{tail}", column(c)));
    }
    if !alone {
        let partition = if partition.len() == 1 {
            partition[0].clone()
        } else {
            format!("({})", partition.join(", "))
        };
        let key: Vec<String> = std::iter::once(partition).chain(clustering).collect();
        lines.push(format!("    PRIMARY KEY ({})", key.join(", ")));
    }
    text.push_str(&lines.join(",\n"));
    text.push_str("\n) WITH ");
    let mut options: Vec<String> = Vec::new();
    if internals {
        options.push(format!("ID = {}", table.id.0));
    }
    if table.clustering().next().is_some() {
        let order: Vec<String> = table
            .clustering()
            .map(|c| {
                format!(
                    "{} {}",
                    quote_identifier(&c.name),
                    if c.descending { "DESC" } else { "ASC" }
                )
            })
            .collect();
        options.push(format!("CLUSTERING ORDER BY ({})", order.join(", ")));
    }
    let o = &table.options;
    options.extend([
        format!("additional_write_policy = {}", quote(&o.additional_write_policy)),
        format!("bloom_filter_fp_chance = {}", java_double(o.bloom_filter_fp_chance)),
        format!("caching = {}", map_literal(&o.caching)),
        format!("cdc = {}", o.cdc),
        format!("comment = {}", quote(&o.comment)),
        format!("compaction = {}", map_literal(&o.compaction)),
        format!("compression = {}", map_literal(&o.compression)),
        "memtable = 'default'".to_owned(),
        format!("crc_check_chance = {}", java_double(o.crc_check_chance)),
        format!("default_time_to_live = {}", o.default_time_to_live),
        "extensions = {}".to_owned(),
        format!("gc_grace_seconds = {}", o.gc_grace_seconds),
        format!("max_index_interval = {}", o.max_index_interval),
        format!("memtable_flush_period_in_ms = {}", o.memtable_flush_period_in_ms),
        format!("min_index_interval = {}", o.min_index_interval),
        format!("read_repair = {}", quote(&o.read_repair)),
        format!("speculative_retry = {}", quote(&o.speculative_retry)),
    ]);
    text.push_str(&options.join("\n    AND "));
    text.push(';');
    text
}
