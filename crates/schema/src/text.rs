//! DDL as text: what DESCRIBE answers, in the words and order of Cassandra 5.0.

use std::collections::BTreeMap;
use std::fmt::Write;

use types::{CqlType, UdtType};

use crate::function::{UserAggregate, UserFunction, declared_type};
use crate::index::Index;
use crate::table::{Column, ColumnKind, CompactStorage, DroppedColumn, Keyspace, Table, TableOptions};
use crate::tombstone_gc::{TombstoneGc, TombstoneGcMode};

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
    if is_virtual_keyspace(&keyspace.name) {
        let name = quote_identifier(&keyspace.name);
        return comment_out("Keyspace", &name, "keyspace", &format!("VIRTUAL KEYSPACE {name};"));
    }
    // The class comes first, then the other options by name, as Cassandra prints them.
    let mut pairs: Vec<String> = Vec::new();
    if let Some(class) = keyspace.replication.get("class") {
        pairs.push(format!("'class': {}", quote(class.rsplit('.').next().unwrap_or(class))));
    }
    for (k, v) in keyspace.replication.iter().filter(|(k, _)| *k != "class") {
        // A list of racks is kept as the text that it was written as.
        let value = if v.starts_with('[') { v.clone() } else { quote(v) };
        pairs.push(format!("{}: {value}", quote(k)));
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

/// `CREATE TYPE …;`
pub fn describe_type(udt: &UdtType) -> String {
    let fields = udt.fields.iter();
    let fields: Vec<String> = fields
        .map(|(name, field)| format!("    {} {field}", quote_identifier(name)))
        .collect();
    format!(
        "CREATE TYPE {}.{} (\n{}\n);",
        quote_identifier(&udt.keyspace),
        quote_identifier(&udt.name),
        fields.join(",\n")
    )
}

/// `CREATE FUNCTION …;`
pub fn describe_function(function: &UserFunction) -> String {
    let arguments = function.arguments.iter();
    let arguments: Vec<String> = arguments
        .map(|(name, cql_type)| format!("{} {}", quote_identifier(name), declared_type(cql_type)))
        .collect();
    let on_null = if function.called_on_null {
        "CALLED"
    } else {
        "RETURNS NULL"
    };
    let body = if function.body.contains("$$") || function.body.ends_with('$') {
        format!("'{}'", function.body.replace('\'', "''"))
    } else {
        format!("$${}$$", function.body)
    };
    format!(
        "CREATE FUNCTION {}.{}({})\n    {on_null} ON NULL INPUT\n    RETURNS {}\n    LANGUAGE {}\n    AS {body};",
        quote_identifier(&function.keyspace),
        quote_identifier(&function.name),
        arguments.join(", "),
        declared_type(&function.returns),
        function.language,
    )
}

/// `CREATE AGGREGATE …;`
pub fn describe_aggregate(aggregate: &UserAggregate) -> String {
    let mut text = format!(
        "CREATE AGGREGATE {}.{}\n    SFUNC {}\n    STYPE {}",
        quote_identifier(&aggregate.keyspace),
        aggregate.declared_signature(),
        quote_identifier(&aggregate.state_function),
        declared_type(&aggregate.state_type),
    );
    let named = [
        ("REDUCEFUNC", &aggregate.reduce_function),
        ("FINALFUNC", &aggregate.final_function),
    ];
    for (word, function) in named {
        if let Some(function) = function {
            let _ = write!(text, "\n    {word} {}", quote_identifier(function));
        }
    }
    if let Some(state) = &aggregate.initial_state {
        let _ = write!(text, "\n    INITCOND {}", aggregate.state_type.unfrozen().format(state));
    }
    text.push(';');
    text
}

/// A line of the column list.
fn column(name: &str, cql_type: &CqlType, kind: ColumnKind) -> String {
    let tail = if kind == ColumnKind::Static { " static" } else { "" };
    format!("{} {cql_type}{tail}", quote_identifier(name))
}

/// The dropped columns that belong to the table's description: not those whose name a key column has taken.
fn told_dropped(table: &Table) -> impl Iterator<Item = &DroppedColumn> {
    let is_key = |name: &str| table.partition_key().chain(table.clustering()).any(|c| c.name == name);
    table.last_dropped().filter(move |d| !is_key(&d.name))
}

/// The columns in the order they are shown: by role, and in each role multi-cell ones last.
fn shown_columns(table: &Table, internals: bool) -> Vec<String> {
    let redefined = |c: &Column| internals && told_dropped(table).any(|d| d.name == c.name);
    let mut living: Vec<&Column> = table.visible().map(|(_, c)| c).filter(|c| !redefined(c)).collect();
    let is_static_compact = table.compact == Some(CompactStorage::Static);
    let declared = |kind: ColumnKind| match kind {
        ColumnKind::Static if is_static_compact => ColumnKind::Regular,
        kind => kind,
    };
    let role = |c: &Column| match declared(c.kind) {
        ColumnKind::PartitionKey => 0,
        ColumnKind::Clustering => 1,
        ColumnKind::Static => 2,
        ColumnKind::Regular => 3,
    };
    living.sort_by_key(|c| (role(c), c.cql_type.is_multi_cell()));
    let alone = table.visible().filter(|(_, c)| role(c) < 2).count() == 1;
    let mut lines: Vec<String> = Vec::with_capacity(living.len());
    for c in living {
        let tail = match c.kind {
            ColumnKind::PartitionKey if alone => " PRIMARY KEY",
            ColumnKind::Regular if table.row_ttl == Some(c.id) => " TTL",
            _ => "",
        };
        lines.push(format!("    {}{tail}", column(&c.name, &c.cql_type, declared(c.kind))));
    }
    if internals {
        let dropped = told_dropped(table).map(|d| column(&d.name, &d.cql_type, declared(d.kind)));
        lines.extend(dropped.map(|d| format!("    {d}")));
    }
    if !alone {
        let names = |columns: &mut dyn Iterator<Item = &Column>| -> Vec<String> {
            columns.map(|c| quote_identifier(&c.name)).collect()
        };
        let mut key = names(&mut table.partition_key());
        if key.len() > 1 {
            key = vec![format!("({})", key.join(", "))];
        }
        key.extend(names(&mut table.clustering().filter(|c| !table.is_hidden(c))));
        lines.push(format!("    PRIMARY KEY ({})", key.join(", ")));
    }
    lines
}

/// Drops the columns that were dropped, and adds their successors, so that the table becomes what it is.
fn history(table: &Table, full_name: &str) -> String {
    let mut text = String::new();
    for d in told_dropped(table) {
        let name = quote_identifier(&d.name);
        let _ = write!(
            text,
            "\nALTER TABLE {full_name} DROP {name} USING TIMESTAMP {};",
            d.dropped_at_us
        );
        if let Some(c) = table.column(&d.name) {
            let _ = write!(
                text,
                "\nALTER TABLE {full_name} ADD {};",
                column(&c.name, &c.cql_type, c.kind)
            );
        }
    }
    text
}

fn stored_options(o: &TableOptions) -> [String; 19] {
    let extensions: Vec<String> = o.extensions.iter().map(|(k, v)| format!("{}: {v}", quote(k))).collect();
    [
        format!("additional_write_policy = {}", quote(&o.additional_write_policy)),
        format!("allow_auto_snapshot = {}", o.allow_auto_snapshot),
        format!("bloom_filter_fp_chance = {}", java_double(o.bloom_filter_fp_chance)),
        format!("caching = {}", map_literal(&o.caching)),
        format!("cdc = {}", o.cdc),
        format!("comment = {}", quote(&o.comment)),
        format!("compaction = {}", map_literal(&o.compaction)),
        format!("compression = {}", map_literal(&o.compression)),
        "memtable = 'default'".to_owned(),
        format!("crc_check_chance = {}", java_double(o.crc_check_chance)),
        format!("default_time_to_live = {}", o.default_time_to_live),
        format!("extensions = {{{}}}", extensions.join(", ")),
        format!("gc_grace_seconds = {}", o.gc_grace_seconds),
        format!("incremental_backups = {}", o.incremental_backups),
        format!("max_index_interval = {}", o.max_index_interval),
        format!("memtable_flush_period_in_ms = {}", o.memtable_flush_period_in_ms),
        format!("min_index_interval = {}", o.min_index_interval),
        format!("read_repair = {}", quote(&o.read_repair)),
        format!("speculative_retry = {}", quote(&o.speculative_retry)),
    ]
}

/// `CREATE TABLE … WITH …;` of a table of `keyspace`. With `internals`, also its id and the columns it no longer has,
/// so that running the text makes a table that reads the files of this one. A computed table is shown in a comment.
pub fn describe_table(keyspace: &Keyspace, table: &Table, internals: bool) -> String {
    let is_virtual = is_virtual_keyspace(&table.keyspace);
    let full_name = format!(
        "{}.{}",
        quote_identifier(&table.keyspace),
        quote_identifier(&table.name)
    );
    let verb = if is_virtual { "VIRTUAL" } else { "CREATE" };
    let mut text = format!(
        "{verb} TABLE {full_name} (\n{}\n) WITH ",
        shown_columns(table, internals).join(",\n")
    );
    let mut options: Vec<String> = Vec::new();
    if internals {
        options.push(format!("ID = {}", table.id.0));
    }
    if table.compact.is_some() {
        options.push("COMPACT STORAGE".to_owned());
    }
    if table.clustering().any(|c| !table.is_hidden(c)) {
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
    if is_virtual {
        options.push(format!("comment = {}", quote(&table.options.comment)));
    } else {
        options.extend(stored_options(&table.options));
        let limits: Vec<String> = table
            .options
            .rate_limits
            .named()
            .map(|(name, n)| format!("'{name}': '{n}'"))
            .collect();
        if !limits.is_empty() {
            options.push(format!("per_partition_rate_limit = {{{}}}", limits.join(", ")));
        }
        // Defaults are left out, so that Cassandra can read the text, too.
        let is_kept_by_repair = keyspace.has_tablets() && table.options.gc_grace_seconds > 0;
        match table.options.tombstone_gc {
            // A table that came from the token ring.
            None if is_kept_by_repair && keyspace.tablets.is_some() => {
                options.push(format!("tombstone_gc = {}", TombstoneGc::of(TombstoneGcMode::Timeout)));
            }
            Some(gc) if !(is_kept_by_repair && gc == TombstoneGc::of(TombstoneGcMode::Repair)) => {
                options.push(format!("tombstone_gc = {gc}"));
            }
            _ => {}
        }
        if let Some(seconds) = table.options.paxos_grace_seconds {
            options.push(format!("paxos_grace_seconds = {seconds}"));
        }
        if table.options.guards_large_data {
            options.push("large_data_guardrails_enabled = true".to_owned());
        }
        // On the token ring they say nothing, and are kept for tablets that come back.
        if let Some(tablets) = table.options.tablets.filter(|_| keyspace.has_tablets()) {
            options.push(format!("tablets = {tablets}"));
        }
    }
    text.push_str(&options.join("\n    AND "));
    text.push(';');
    if internals {
        text.push_str(&history(table, &full_name));
    }
    if is_virtual {
        comment_out("Table", &full_name, "table", &text)
    } else {
        text
    }
}

/// `CREATE [CUSTOM] INDEX …;` of an index of `table`.
pub fn describe_index(table: &Table, index: &Index) -> String {
    let class = index.class_name();
    let mut text = format!(
        "CREATE {}INDEX {} ON {} ({})",
        if class.is_some() { "CUSTOM " } else { "" },
        quote_identifier(&index.name),
        table.quoted_name(),
        index.target(table),
    );
    if let Some(class) = class {
        let _ = write!(text, " USING {}", quote(class));
        if !index.options.is_empty() {
            let _ = write!(text, " WITH OPTIONS = {}", map_literal(&index.options));
        }
    }
    text.push(';');
    text
}

/// What cannot be made by a statement is shown all the same, for reference.
fn comment_out(what: &str, name: &str, kind: &str, text: &str) -> String {
    format!(
        "/*\nWarning: {what} {name} is a virtual {kind} and cannot be recreated with CQL.\nStructure, for \
         reference:\n{text}\n*/"
    )
}
