//! The version of a schema: a digest of its content.
//!
//! Two nodes whose schemas are equal say the same version to drivers, and one that differs in anything says another.
//! The digested bytes are a text of our own, not a debug print, so that nodes of different releases agree.
//!
//! The version is the sum of the digests of all keyspaces and tables, so a change takes away the digests of what was
//! and adds those of what is: a table among thousands costs as much as the first one.

use std::fmt::Write;
use std::sync::Arc;

use schema::{ColumnKind, Keyspace, Schema, Table, TableOptions};
use uuid::{Builder, Uuid};

/// The version that the content of `schema` has; `schema.version` itself is not looked at.
pub fn schema_version(schema: &Schema) -> Uuid {
    let mut sum = Sum::default();
    schema.keyspaces.values().for_each(|keyspace| sum.add(keyspace));
    sum.version()
}

/// The version of a schema after a change of one keyspace; `version` is that before the change.
pub(crate) fn version_behind(version: Uuid, former: Option<&Keyspace>, next: Option<&Keyspace>) -> Uuid {
    let mut sum = Sum::of(version);
    let (Some(former), Some(next)) = (former, next) else {
        former.into_iter().for_each(|keyspace| sum.take(keyspace));
        next.into_iter().for_each(|keyspace| sum.add(keyspace));
        return sum.version();
    };
    sum.0 = sum.0.wrapping_sub(of_keyspace(former)).wrapping_add(of_keyspace(next));
    let is_in = |keyspace: &Keyspace, table: &Arc<Table>| {
        keyspace
            .tables
            .get(&table.name)
            .is_some_and(|other| Arc::ptr_eq(other, table))
    };
    for table in former.tables.values().filter(|table| !is_in(next, table)) {
        sum.0 = sum.0.wrapping_sub(of_table(table));
    }
    for table in next.tables.values().filter(|table| !is_in(former, table)) {
        sum.0 = sum.0.wrapping_add(of_table(table));
    }
    sum.version()
}

/// Bits of a digest that a version has room for.
const BITS: u32 = 122;

/// A sum of digests, of which the lowest [`BITS`] count.
#[derive(Clone, Copy, Default)]
struct Sum(u128);

impl Sum {
    /// That of a version: its bits but the six that say that it is a version-3 UUID.
    fn of(version: Uuid) -> Self {
        let bits = version.as_u128();
        let (high, middle, low) = (bits >> 80, (bits >> 64) & 0xfff, bits & (u128::MAX >> 66));
        Self(high << 74 | middle << 62 | low)
    }

    fn version(self) -> Uuid {
        let bits = self.0 & (u128::MAX >> (128 - BITS));
        let (high, middle, low) = (bits >> 74, (bits >> 62) & 0xfff, bits & (u128::MAX >> 66));
        let bytes = (high << 80 | middle << 64 | low).to_be_bytes();
        Builder::from_md5_bytes(bytes).into_uuid()
    }

    fn add(&mut self, keyspace: &Keyspace) {
        let tables = keyspace.tables.values().map(|table| of_table(table));
        self.0 = tables.fold(self.0.wrapping_add(of_keyspace(keyspace)), u128::wrapping_add);
    }

    fn take(&mut self, keyspace: &Keyspace) {
        let tables = keyspace.tables.values().map(|table| of_table(table));
        self.0 = tables.fold(self.0.wrapping_sub(of_keyspace(keyspace)), u128::wrapping_sub);
    }
}

/// The digest of a keyspace without its tables.
fn of_keyspace(keyspace: &Keyspace) -> u128 {
    let mut text = String::with_capacity(1024);
    digest_keyspace(&mut text, keyspace);
    u128::from_be_bytes(md5::compute(text).0)
}

fn of_table(table: &Table) -> u128 {
    let mut text = String::with_capacity(2048);
    word(&mut text, &table.keyspace);
    digest_table(&mut text, table);
    u128::from_be_bytes(md5::compute(text).0)
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
    for udt in keyspace.types.values() {
        text.push_str("type ");
        word(text, &udt.name);
        for (name, field) in &udt.fields {
            word(text, name);
            word(text, &field.to_string());
        }
        text.push('\n');
    }
    for function in keyspace.functions.values() {
        text.push_str("function ");
        word(text, &function.signature());
        for (name, _) in &function.arguments {
            word(text, name);
        }
        word(text, &function.returns.to_string());
        word(text, function.language.name());
        word(text, &function.body);
        let _ = writeln!(text, "{}", function.called_on_null);
    }
    for aggregate in keyspace.aggregates.values() {
        text.push_str("aggregate ");
        word(text, &aggregate.signature());
        word(text, &aggregate.state_function);
        word(text, &aggregate.state_type.to_string());
        for function in [&aggregate.reduce_function, &aggregate.final_function] {
            word(text, function.as_deref().unwrap_or_default());
        }
        match &aggregate.initial_state {
            Some(state) => state.iter().for_each(|byte| {
                let _ = write!(text, "{byte:02x}");
            }),
            None => text.push_str("null"),
        }
        text.push('\n');
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
    if let Some(compact) = table.compact {
        let _ = writeln!(text, "compact {compact:?}");
    }
    if let Some(column) = table.ttl_column() {
        text.push_str("row_ttl ");
        word(text, &column.name);
        text.push('\n');
    }
    for index in &table.indexes {
        text.push_str("index ");
        word(text, &index.name);
        word(text, &index.column);
        word(text, index.class_name().unwrap_or_default());
        let _ = write!(text, "{} {:?} {:?} ", index.id.0, index.part, index.kind);
        words(text, index.options.iter());
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
    for (name, is_other) in [
        ("allow_auto_snapshot", !o.allow_auto_snapshot),
        ("incremental_backups", !o.incremental_backups),
    ] {
        if is_other {
            let _ = writeln!(text, "{name} false");
        }
    }
    if o.guards_large_data {
        let _ = writeln!(text, "large_data_guardrails_enabled");
    }
    if let Some(seconds) = o.paxos_grace_seconds {
        let _ = writeln!(text, "paxos_grace_seconds {seconds}");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_what_its_version_says() {
        let largest = u128::MAX >> (128 - BITS);
        for sum in [
            0,
            1,
            largest,
            largest / 3,
            1 << 62,
            (1 << 62) - 1,
            1 << 74,
            (1 << 74) - 1,
        ] {
            let version = Sum(sum).version();
            assert_eq!(version.get_version_num(), 3);
            assert_eq!(Sum::of(version).0, sum, "{sum:x} in {version}");
        }
        assert_eq!(Sum(1 << BITS).version(), Sum(0).version());
    }
}
