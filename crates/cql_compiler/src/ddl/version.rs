//! The version of a schema: a digest of its content.
//!
//! Two nodes whose schemas are equal say the same version to drivers, and one that differs in anything says another. The
//! digested bytes are a text of our own, not a debug print, so that nodes of different releases agree.

use std::fmt::Write;

use schema::{ColumnKind, Keyspace, Schema, Table, TableOptions};
use uuid::{Builder, Uuid};

/// The version that the content of `schema` has; `schema.version` itself is not looked at.
pub fn schema_version(schema: &Schema) -> Uuid {
    let mut text = String::with_capacity(64 * 1024);
    for keyspace in schema.keyspaces.values() {
        digest_keyspace(&mut text, keyspace);
    }
    Builder::from_md5_bytes(md5::compute(text).0).into_uuid()
}

/// Appends a word so that no two sequences of words read the same.
fn word(text: &mut String, word: &str) {
    let _ = write!(text, "{}:{word} ", word.len());
}

fn words<'a>(text: &mut String, pairs: impl Iterator<Item = (&'a String, &'a String)>) {
    for (key, value) in pairs {
        word(text, key);
        word(text, value);
    }
    text.push('\n');
}

fn digest_keyspace(text: &mut String, keyspace: &Keyspace) {
    text.push_str("keyspace ");
    word(text, &keyspace.name);
    let _ = write!(text, "{} ", keyspace.durable_writes);
    words(text, keyspace.replication.iter());
    if let Some(tablets) = &keyspace.tablets {
        text.push_str("tablets ");
        words(text, tablets.iter());
    }
    for table in keyspace.tables.values() {
        digest_table(text, table);
    }
}

fn kind(kind: ColumnKind) -> &'static str {
    match kind {
        ColumnKind::PartitionKey => "partition",
        ColumnKind::Clustering => "clustering",
        ColumnKind::Static => "static",
        ColumnKind::Regular => "regular",
    }
}

fn digest_table(text: &mut String, table: &Table) {
    text.push_str("table ");
    word(text, &table.name);
    let _ = writeln!(text, "{} {}", table.id.0, table.next_column_id);
    for c in &table.columns {
        word(text, &c.name);
        word(text, &c.cql_type.to_string());
        let _ = writeln!(text, "{} {} {} {}", kind(c.kind), c.position, c.descending, c.id.0);
    }
    for c in &table.dropped {
        text.push_str("dropped ");
        word(text, &c.name);
        word(text, &c.cql_type.to_string());
        let _ = writeln!(text, "{} {} {}", kind(c.kind), c.id.0, c.dropped_at_us);
    }
    digest_options(text, &table.options);
}

fn digest_options(text: &mut String, o: &TableOptions) {
    for t in [
        &o.comment,
        &o.read_repair,
        &o.speculative_retry,
        &o.additional_write_policy,
    ] {
        word(text, t);
    }
    let _ = writeln!(
        text,
        "{} {} {} {} {} {} {} {}",
        o.bloom_filter_fp_chance,
        o.crc_check_chance,
        o.default_time_to_live,
        o.gc_grace_seconds,
        o.min_index_interval,
        o.max_index_interval,
        o.memtable_flush_period_in_ms,
        o.cdc
    );
    for (name, limit) in o.rate_limits.named() {
        let _ = writeln!(text, "{name} {limit}");
    }
    if let Some(gc) = o.tombstone_gc {
        let _ = writeln!(text, "tombstone_gc {gc}");
    }
    if let Some(tablets) = o.tablets {
        let _ = writeln!(text, "tablets {tablets}");
    }
    for (name, map) in [
        ("caching", &o.caching),
        ("compaction", &o.compaction),
        ("compression", &o.compression),
        ("extensions", &o.extensions),
    ] {
        text.push_str(name);
        text.push(' ');
        words(text, map.iter());
    }
}
