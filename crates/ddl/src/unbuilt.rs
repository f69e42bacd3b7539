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
pub(crate) fn warning(option: &str, value: &str) -> String {
    format!("{option} = '{value}' has no effect here: {}", reason(option))
}

/// Warnings for a client that gives a table these options. `is_given`: the statement names the option.
pub(crate) fn warnings(o: &TableOptions, is_given: impl Fn(&str) -> bool) -> Vec<String> {
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

    use schema::{ColumnKind, RateLimits, Schema, TableId, TabletOptions, TombstoneGc, TombstoneGcMode};
    use types::CqlType;
    use uuid::Uuid;

    use super::all;
    use crate::{
        AlterTable, Context, CreateKeyspace, CreateTable, Definition, NameInKeyspace, NewColumn, TABLE_PROPERTIES,
        TableChange, TableOption, apply, compaction,
    };

    /// What becomes of an option that is given an unusual value.
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

    const LEVELED: &str = "LeveledCompactionStrategy";
    const WINDOW: &str = "TimeWindowCompactionStrategy";
    const TIERED: &str = "SizeTieredCompactionStrategy";

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    /// Every option of a table with an unusual value.
    fn table_options() -> Vec<(TableOption, Fate)> {
        let limits = RateLimits {
            reads: Some(5),
            writes: None,
        };
        let tablets = TabletOptions {
            min_tablet_count: Some(4),
            ..TabletOptions::default()
        };
        let caching = map(&[("keys", "NONE"), ("rows_per_partition", "ALL")]);
        let gc = TombstoneGc::of(TombstoneGcMode::Disabled);
        vec![
            (TableOption::AdditionalWritePolicy("50p".to_owned()), Warned),
            (TableOption::AllowAutoSnapshot(false), Done),
            (TableOption::BloomFilterFpChance(0.2), Done),
            (TableOption::Caching(caching), Warned),
            (TableOption::Cdc(true), Refused("cdc")),
            (TableOption::Comment("c".to_owned()), Done),
            (TableOption::Compaction(map(&[("class", LEVELED)])), Warned),
            (TableOption::Compression(map(&[("class", "ZstdCompressor")])), Done),
            (TableOption::CrcCheckChance(0.5), Warned),
            (TableOption::DefaultTimeToLive(5), Done),
            (TableOption::Extensions([("a".to_owned(), vec![0xca])].into()), Done),
            (TableOption::GcGraceSeconds(5), Done),
            (TableOption::InMemory(true), Refused("stored on disk")),
            (TableOption::IncrementalBackups(false), Warned),
            (TableOption::LargeDataGuardrailsEnabled(true), Done),
            (TableOption::MaxIndexInterval(4096), Warned),
            (TableOption::Memtable("fast".to_owned()), Refused("not found")),
            (TableOption::MemtableFlushPeriodInMs(1000), Done),
            (TableOption::MinIndexInterval(256), Done),
            (TableOption::PaxosGraceSeconds(86_400), Done),
            (TableOption::PerPartitionRateLimit(limits), Done),
            (TableOption::ReadRepair("NONE".to_owned()), Done),
            (TableOption::SpeculativeRetry("50p".to_owned()), Done),
            (TableOption::StorageEngine("logstor".to_owned()), Refused("sstables")),
            (TableOption::SynchronousUpdates(true), Refused("no materialized views")),
            (TableOption::Tablets(tablets), Done),
            (TableOption::TombstoneGc(gc), Done),
        ]
    }

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

    /// Applies these definitions, one after the other; returns the warnings of the last.
    fn told(definitions: &[Definition]) -> Result<Vec<String>, String> {
        let nodes = BTreeMap::from([("datacenter1".to_owned(), 3)]);
        let ctx = Context {
            new_id: Uuid::from_u128(7),
            nodes: &nodes,
            has_functions: true,
            racks: &BTreeMap::new(),
            lists_racks: false,
        };
        let mut schema = Schema {
            version: Uuid::nil(),
            keyspaces: BTreeMap::new(),
        };
        let mut warnings = Vec::new();
        for definition in definitions {
            let outcome = apply(&schema, definition, &ctx).map_err(|e| e.to_string())?;
            let outcome = outcome.ok_or("the definition did nothing")?;
            (schema, warnings) = (outcome.schema, outcome.warnings);
        }
        Ok(warnings)
    }

    fn keyspace(durable_writes: Option<bool>) -> Definition {
        Definition::CreateKeyspace(CreateKeyspace {
            name: "ks".to_owned(),
            if_not_exists: false,
            replication: map(&[("class", "SimpleStrategy"), ("replication_factor", "1")]),
            durable_writes,
            tablets: None,
        })
    }

    fn table(id: Option<TableId>, options: Vec<TableOption>) -> Definition {
        Definition::CreateTable(CreateTable {
            table: name(),
            if_not_exists: false,
            id,
            columns: vec![NewColumn::new("k", CqlType::Int, ColumnKind::PartitionKey)],
            ttl_column: None,
            is_compact: false,
            options,
        })
    }

    fn name() -> NameInKeyspace {
        NameInKeyspace {
            keyspace: "ks".to_owned(),
            name: "t".to_owned(),
        }
    }

    /// Gives an option to a new table and to one that is altered, and checks what becomes of it.
    fn check(option: &TableOption, fate: Fate, seen: &mut BTreeSet<String>) {
        let alter = Definition::AlterTable(AlterTable {
            table: name(),
            if_exists: false,
            change: TableChange::Options(vec![option.clone()]),
        });
        let ways = [
            vec![keyspace(None), table(None, vec![option.clone()])],
            vec![keyspace(None), table(None, Vec::new()), alter],
        ];
        for way in ways {
            let told = told(&way);
            match fate {
                Done => assert_eq!(told, Ok(Vec::new()), "{option:?}"),
                Refused(words) => {
                    let refusal = told.expect_err(&format!("{option:?} is refused"));
                    assert!(refusal.contains(words), "{option:?}: {refusal}");
                }
                Warned => {
                    let warnings = told.unwrap_or_else(|e| panic!("{option:?}: {e}"));
                    assert_eq!(warnings.len(), 1, "{option:?}: {warnings:?}");
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
        let options = table_options();
        let mut names: Vec<&str> = options.iter().map(|(option, _)| option.name()).chain(["id"]).collect();
        names.sort_unstable();
        assert_eq!(names, TABLE_PROPERTIES, "each option of a table has its fate here");
        for (option, fate) in &options {
            check(option, *fate, &mut seen);
        }
        let with_id = [keyspace(None), table(Some(TableId(Uuid::from_u128(9))), Vec::new())];
        assert_eq!(told(&with_id), Ok(Vec::new()));
        let names: BTreeSet<&str> = COMPACTION.iter().map(|(_, name, ..)| *name).collect();
        assert_eq!(
            names,
            compaction::sub_options().collect(),
            "each option of compaction has its fate here"
        );
        for (class, option, value, fate) in COMPACTION {
            let mut given = map(&[("class", class), (option, value)]);
            if option == "bucket_high" {
                given.insert("bucket_low".to_owned(), "0.5".to_owned());
            }
            check(&TableOption::Compaction(given), fate, &mut seen);
        }
        for (class, option, value, fate) in COMPRESSION {
            let given = map(&[("class", class), (option, value)]);
            check(&TableOption::Compression(given), fate, &mut seen);
        }
        check(&TableOption::PaxosGraceSeconds(10_799), Warned, &mut seen);
        check(&TableOption::PaxosGraceSeconds(10_800), Done, &mut seen);
        assert_eq!(told(&[keyspace(Some(true))]), Ok(Vec::new()));
        let warned = told(&[keyspace(Some(false))]);
        assert!(warned.is_ok_and(|warnings| warnings[0].starts_with("durable_writes = 'false' has no effect")));
        seen.insert("durable_writes".to_owned());
        let listed: BTreeSet<String> = all().map(|(name, _)| name.to_owned()).collect();
        assert_eq!(
            seen, listed,
            "unbuilt.txt lists what clients are warned of, and nothing else"
        );
        assert!(listed.len() <= 13, "the list only gets shorter");
    }
}
