//! Options that are accepted and have no effect yet: a client that sets one is warned. Their names and the reasons are
//! in `unbuilt.txt`.

use schema::{PAXOS_GRACE_SECONDS_MIN, TableOptions};

/// Name and reason of each.
fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = include_str!("unbuilt.txt")
        .lines()
        .filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once('\t'))
}

fn reason(name: &str) -> &'static str {
    let line = all().find(|(other, _)| *other == name);
    line.expect("it is in unbuilt.txt").1
}

/// The warning that an option with this value has no effect.
pub(super) fn warning(option: &str, value: &str) -> String {
    format!("{option} = '{value}' has no effect here: {}", reason(option))
}

/// Warnings for a client that gives a table these options. `is_given`: the statement names the option.
pub(super) fn warnings(o: &TableOptions, is_given: impl Fn(&str) -> bool) -> Vec<String> {
    let default = TableOptions::default();
    let mut warnings = Vec::new();
    let mut warn = |option: &str, value: &str, is_usual: bool| {
        let outer = option.split('.').next().unwrap_or(option);
        if !is_usual && is_given(outer) {
            warnings.push(warning(option, value));
        }
    };
    let policy = o.additional_write_policy.as_str();
    warn(
        "additional_write_policy",
        policy,
        policy == default.additional_write_policy,
    );
    let caching = |o: &TableOptions| {
        let pairs = o.caching.iter().map(|(name, value)| format!("{name}: {value}"));
        pairs.collect::<Vec<_>>().join(", ")
    };
    warn("caching", &caching(o), o.caching == default.caching);
    let class = o.compaction.get("class").map_or("", String::as_str);
    let class = class.rsplit('.').next().unwrap_or(class);
    warn("compaction.class", class, class == "SizeTieredCompactionStrategy");
    let (compaction, compression) = (
        |name: &str| o.compaction.get(name),
        |name: &str| o.compression.get(name),
    );
    if let Some(value) = compaction("log_all") {
        warn("compaction.log_all", value, value.eq_ignore_ascii_case("false"));
    }
    if let Some(value) = compaction("provide_overlapping_tombstones") {
        let is_usual = value.eq_ignore_ascii_case("none");
        warn("compaction.provide_overlapping_tombstones", value, is_usual);
    }
    if let Some(value) = compression("lz4_compressor_type") {
        warn("compression.lz4_compressor_type", value, value == "fast");
    }
    for option in [
        "compression.lz4_high_compressor_level",
        "compression.min_compress_ratio",
    ] {
        let name = option.rsplit('.').next().unwrap_or(option);
        if let Some(value) = compression(name) {
            warn(option, value, false);
        }
    }
    warn(
        "crc_check_chance",
        &o.crc_check_chance.to_string(),
        o.crc_check_chance >= 1.0,
    );
    warn("incremental_backups", "false", o.incremental_backups);
    if let Some(seconds) = o.paxos_grace_seconds {
        let is_kept = seconds >= PAXOS_GRACE_SECONDS_MIN;
        warn("paxos_grace_seconds", &seconds.to_string(), is_kept);
    }
    let (interval, usual) = (o.max_index_interval, default.max_index_interval);
    warn("max_index_interval", &interval.to_string(), interval == usual);
    warnings
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use cql::ast::Statement;
    use schema::Schema;
    use uuid::Uuid;

    use super::all;
    use crate::ddl::{DdlContext, apply, compaction, options};

    /// What becomes of an option that a statement sets to something unusual.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Fate {
        /// It has the effect that users know.
        Done,
        /// It is refused, and the refusal says this.
        Refused(&'static str),
        /// The client is warned.
        Warned,
    }
    use Fate::{Done, Refused, Warned};

    const LEVELED: &str = "'class': 'LeveledCompactionStrategy', ";
    const WINDOW: &str = "'class': 'TimeWindowCompactionStrategy', ";
    const TIERED: &str = "'class': 'SizeTieredCompactionStrategy', ";

    /// Every option of a table and an unusual value for it.
    const TABLE: [(&str, &str, Fate); 28] = [
        ("additional_write_policy", "'50p'", Warned),
        ("allow_auto_snapshot", "false", Done),
        ("bloom_filter_fp_chance", "0.2", Done),
        ("caching", "{'keys': 'NONE', 'rows_per_partition': 'ALL'}", Warned),
        ("cdc", "true", Refused("cdc")),
        ("comment", "'c'", Done),
        ("compaction", "{'class': 'LeveledCompactionStrategy'}", Warned),
        ("compression", "{'class': 'ZstdCompressor'}", Done),
        ("crc_check_chance", "0.5", Warned),
        ("default_time_to_live", "5", Done),
        ("extensions", "{'a': 0xca}", Done),
        ("gc_grace_seconds", "5", Done),
        ("id", "7d8bd4a6-9ae5-4ae6-b2d4-0b0d0e0f1011", Done),
        ("in_memory", "true", Refused("stored on disk")),
        ("incremental_backups", "false", Warned),
        ("large_data_guardrails_enabled", "true", Done),
        ("max_index_interval", "4096", Warned),
        ("memtable", "'fast'", Refused("not found")),
        ("memtable_flush_period_in_ms", "1000", Done),
        ("min_index_interval", "256", Done),
        ("paxos_grace_seconds", "86400", Done),
        ("per_partition_rate_limit", "{'max_reads_per_second': 5}", Done),
        ("read_repair", "'NONE'", Done),
        ("speculative_retry", "'50p'", Done),
        ("storage_engine", "'logstor'", Refused("sstables")),
        ("synchronous_updates", "true", Refused("no materialized views")),
        ("tablets", "{'min_tablet_count': 4}", Done),
        ("tombstone_gc", "{'mode': 'disabled'}", Done),
    ];

    /// Every sub-option of `compaction`.
    const COMPACTION: [(&str, &str, &str, Fate); 20] = [
        (TIERED, "enabled", "false", Done),
        (TIERED, "log_all", "true", Warned),
        (TIERED, "max_threshold", "8", Done),
        (TIERED, "min_threshold", "3", Done),
        (TIERED, "only_purge_repaired_tombstones", "true", Done),
        (TIERED, "provide_overlapping_tombstones", "ROW", Warned),
        (TIERED, "tombstone_compaction_interval", "60", Done),
        (TIERED, "tombstone_threshold", "0.5", Done),
        (TIERED, "unchecked_tombstone_compaction", "true", Done),
        (TIERED, "bucket_high", "1.7", Done),
        (TIERED, "bucket_low", "0.3", Done),
        (TIERED, "min_sstable_size", "5", Done),
        // One warning about the class says that its options have no effect either.
        (LEVELED, "fanout_size", "5", Warned),
        (LEVELED, "single_sstable_uplevel", "true", Warned),
        (LEVELED, "sstable_size_in_mb", "100", Warned),
        (WINDOW, "compaction_window_size", "2", Warned),
        (WINDOW, "compaction_window_unit", "HOURS", Warned),
        (WINDOW, "expired_sstable_check_frequency_seconds", "5", Warned),
        (WINDOW, "timestamp_resolution", "SECONDS", Warned),
        (
            WINDOW,
            "unsafe_aggressive_sstable_expiration",
            "true",
            Refused("not allowed"),
        ),
    ];

    /// Every sub-option of `compression`.
    const COMPRESSION: [(&str, &str, &str, Fate); 6] = [
        ("LZ4Compressor", "lz4_compressor_type", "high", Warned),
        ("LZ4Compressor", "lz4_high_compressor_level", "3", Warned),
        ("LZ4Compressor", "min_compress_ratio", "2", Warned),
        ("LZ4Compressor", "chunk_length_in_kb", "4", Done),
        ("LZ4Compressor", "crc_check_chance", "0.5", Warned),
        ("ZstdCompressor", "compression_level", "7", Done),
    ];

    /// Executes these statements, one after the other; returns the warnings of the last.
    fn told(texts: &[String]) -> Result<Vec<String>, String> {
        let nodes = BTreeMap::from([("datacenter1".to_owned(), 3)]);
        let ctx = DdlContext {
            keyspace: Some("ks"),
            now_us: 1,
            new_id: Uuid::from_u128(7),
            nodes: &nodes,
            has_tombstone_gc: true,
            has_functions: true,
            racks: &BTreeMap::new(),
            lists_racks: false,
        };
        let mut schema = Schema {
            version: Uuid::nil(),
            keyspaces: BTreeMap::new(),
        };
        let mut warnings = Vec::new();
        for text in texts {
            let statement: Statement = cql::parse(text).map_err(|e| e.to_string())?.statement;
            let outcome = apply(&schema, &statement, &ctx).map_err(|e| format!("{e:?}"))?;
            let outcome = outcome.ok_or("the statement did nothing")?;
            (schema, warnings) = (outcome.schema, outcome.warnings);
        }
        Ok(warnings)
    }

    /// Sets an option at CREATE TABLE and at ALTER TABLE, and checks what becomes of it.
    fn check(option: &str, assignment: &str, fate: Fate, seen: &mut BTreeSet<String>) {
        let keyspace =
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}".to_owned();
        let create = format!("CREATE TABLE t (k int PRIMARY KEY) WITH {assignment}");
        let alter = format!("ALTER TABLE t WITH {assignment}");
        let plain = "CREATE TABLE t (k int PRIMARY KEY)".to_owned();
        let mut ways = vec![vec![keyspace.clone(), create]];
        if option != "id" {
            ways.push(vec![keyspace, plain, alter]);
        }
        for way in ways {
            let told = told(&way);
            match fate {
                Done => assert_eq!(told, Ok(Vec::new()), "{assignment}"),
                Refused(words) => {
                    let refusal = told.expect_err(&format!("{assignment} is refused"));
                    assert!(refusal.contains(words), "{assignment}: {refusal}");
                }
                Warned => {
                    let warnings = told.unwrap_or_else(|e| panic!("{assignment}: {e}"));
                    assert_eq!(warnings.len(), 1, "{assignment}: {warnings:?}");
                    let (name, rest) = warnings[0].split_once(" = ").expect("it names the option");
                    assert!(rest.contains("has no effect here: "), "{}", warnings[0]);
                    seen.insert(name.to_owned());
                }
            }
        }
    }

    #[test]
    fn every_option_is_done_or_refused_or_its_user_is_warned() {
        let mut seen = BTreeSet::new();
        let names: Vec<&str> = TABLE.iter().map(|(name, ..)| *name).collect();
        assert_eq!(names, options::KNOWN, "each option of a table has its fate here");
        for (option, value, fate) in TABLE {
            check(option, &format!("{option} = {value}"), fate, &mut seen);
        }
        let names: BTreeSet<&str> = COMPACTION.iter().map(|(_, name, ..)| *name).collect();
        assert_eq!(
            names,
            compaction::sub_options().collect(),
            "each option of compaction has its fate here"
        );
        for (class, option, value, fate) in COMPACTION {
            let low = if option == "bucket_high" {
                "'bucket_low': '0.5', "
            } else {
                ""
            };
            check(
                option,
                &format!("compaction = {{{class}{low}'{option}': '{value}'}}"),
                fate,
                &mut seen,
            );
        }
        for (class, option, value, fate) in COMPRESSION {
            check(
                option,
                &format!("compression = {{'class': '{class}', '{option}': '{value}'}}"),
                fate,
                &mut seen,
            );
        }
        check("paxos_grace_seconds", "paxos_grace_seconds = 10799", Warned, &mut seen);
        check("paxos_grace_seconds", "paxos_grace_seconds = 10800", Done, &mut seen);
        let keyspace = |durable: bool| {
            let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
            told(&[format!(
                "CREATE KEYSPACE k WITH replication = {replication} AND durable_writes = {durable}"
            )])
        };
        assert_eq!(keyspace(true), Ok(Vec::new()));
        assert!(
            keyspace(false).is_ok_and(|warnings| warnings[0].starts_with("durable_writes = 'false' has no effect"))
        );
        seen.insert("durable_writes".to_owned());
        let listed: BTreeSet<String> = all().map(|(name, _)| name.to_owned()).collect();
        assert_eq!(
            seen, listed,
            "unbuilt.txt lists what clients are warned of, and nothing else"
        );
        assert!(listed.len() <= 13, "the list only gets shorter");
    }
}
