//! The options of a table: what is given of them, checked and written as the schema has it.

use std::collections::BTreeMap;

use schema::{Keyspace, RateLimits, TableOptions, TabletOptions, TombstoneGc, TombstoneGcMode, java_double};

use crate::error::DdlError;
use crate::{TableOption, compaction, compression, first_duplicate, retry, unbuilt};

/// The longest time to live, in seconds: twenty years.
const TIME_TO_LIVE_MAX: i32 = 20 * 365 * 24 * 60 * 60;
/// The smallest share of false positives that bloom filters are built for.
const BLOOM_FILTER_FP_CHANCE_MIN: f64 = 6.71e-5;
/// The greatest number in an option of `tablets`: as many tablets as a table may have.
const TABLET_OPTION_MAX: u32 = 1 << 22;
/// The greatest `min_per_shard_tablet_count`.
const PER_SHARD_MAX: f64 = 1000.0;
/// The greatest limit of operations on a partition in a second.
const RATE_LIMIT_MAX: u32 = i32::MAX as u32;

/// The options of a new table, not yet validated. `is_kept_by_repair`: unless they say otherwise, repair decides when
/// the table's tombstones are dropped.
pub(crate) fn create(given: &[TableOption], is_kept_by_repair: bool) -> Result<TableOptions, DdlError> {
    let mut options = set(TableOptions::default(), given)?;
    // A leveled table looks into one sstable of each level, so its filters may be smaller.
    if !is_given(given, "bloom_filter_fp_chance") && options.compaction["class"].ends_with(".LeveledCompactionStrategy")
    {
        options.bloom_filter_fp_chance = 0.1;
    }
    // A table without a grace period forgets its tombstones at once.
    if is_kept_by_repair && options.tombstone_gc.is_none() && options.gc_grace_seconds > 0 {
        options.tombstone_gc = Some(TombstoneGc::of(TombstoneGcMode::Repair));
    }
    Ok(options)
}

/// The options of a table that is made like one with these, validated.
pub(crate) fn copy(of: &Keyspace, source: &TableOptions, given: &[TableOption]) -> Result<TableOptions, DdlError> {
    let mut source = source.clone();
    if !of.has_tablets() {
        source.tablets = None;
    }
    let options = set(source, given)?;
    check_tablets(of, given, &options)?;
    validate(&options)?;
    Ok(options)
}

/// The options of a table after ALTER TABLE … WITH, validated.
pub(crate) fn alter(old: &TableOptions, given: &[TableOption]) -> Result<TableOptions, DdlError> {
    let options = set(old.clone(), given)?;
    validate(&options)?;
    Ok(options)
}

fn is_given(given: &[TableOption], name: &str) -> bool {
    given.iter().any(|option| option.name() == name)
}

/// Warnings for a client that gives a table these options: those that have no effect here.
pub(crate) fn warnings(o: &TableOptions, given: &[TableOption]) -> Vec<String> {
    unbuilt::warnings(o, |name| {
        // Older schemas have it in the map of `compression`.
        is_given(given, name) || name == "crc_check_chance" && is_given(given, "compression")
    })
}

fn set(mut o: TableOptions, given: &[TableOption]) -> Result<TableOptions, DdlError> {
    if let Some(name) = first_duplicate(given.iter().map(TableOption::name)) {
        return Err(DdlError::Invalid(format!("Multiple definitions for property '{name}'")));
    }
    for option in given {
        match option {
            TableOption::AdditionalWritePolicy(text) => {
                o.additional_write_policy = retry::canonical("additional_write_policy", text)?;
            }
            TableOption::AllowAutoSnapshot(is_allowed) => o.allow_auto_snapshot = *is_allowed,
            TableOption::BloomFilterFpChance(chance) => o.bloom_filter_fp_chance = *chance,
            TableOption::Caching(map) => o.caching = caching(map)?,
            TableOption::Cdc(true) => {
                return config("cdc = true is not supported yet: no log of changes would be kept");
            }
            TableOption::Cdc(false) => o.cdc = false,
            TableOption::Comment(text) => o.comment.clone_from(text),
            TableOption::Compaction(map) => o.compaction = compaction::prepare(map.clone())?,
            TableOption::Compression(map) => {
                let (compression, crc_check_chance) = compression::prepare(map.clone())?;
                o.compression = compression;
                if let Some(chance) = crc_check_chance.filter(|_| !is_given(given, "crc_check_chance")) {
                    o.crc_check_chance = chance;
                }
            }
            TableOption::CrcCheckChance(chance) => o.crc_check_chance = *chance,
            TableOption::DefaultTimeToLive(seconds) => o.default_time_to_live = *seconds,
            TableOption::Extensions(extensions) => {
                let text = |bytes: &Vec<u8>| bytes.iter().fold("0x".to_owned(), |text, b| text + &format!("{b:02x}"));
                o.extensions = extensions
                    .iter()
                    .map(|(name, bytes)| (name.clone(), text(bytes)))
                    .collect();
            }
            TableOption::GcGraceSeconds(seconds) => o.gc_grace_seconds = *seconds,
            TableOption::InMemory(false) | TableOption::SynchronousUpdates(false) => {}
            TableOption::InMemory(true) => {
                return config("in_memory = true is not supported: tables are stored on disk");
            }
            TableOption::SynchronousUpdates(true) => {
                return config(
                    "synchronous_updates = true is not supported: there are no materialized views, whose updates it is about",
                );
            }
            TableOption::IncrementalBackups(takes_part) => o.incremental_backups = *takes_part,
            TableOption::LargeDataGuardrailsEnabled(is_enabled) => o.guards_large_data = *is_enabled,
            TableOption::MaxIndexInterval(interval) => o.max_index_interval = *interval,
            TableOption::Memtable(name) if name == "default" => {}
            TableOption::Memtable(name) => {
                return config(format!("Memtable configuration \"{name}\" not found."));
            }
            TableOption::MemtableFlushPeriodInMs(period) => o.memtable_flush_period_in_ms = *period,
            TableOption::MinIndexInterval(interval) => o.min_index_interval = *interval,
            TableOption::PaxosGraceSeconds(seconds) => o.paxos_grace_seconds = Some(*seconds),
            // Printed and read again, so that every value passes the checks of one that comes as text.
            TableOption::PerPartitionRateLimit(limits) => {
                let texts = limits.named().map(|(name, limit)| (name.to_owned(), limit.to_string()));
                o.rate_limits = rate_limits(&texts.collect())?;
            }
            TableOption::ReadRepair(text) => o.read_repair = read_repair(text)?,
            TableOption::SpeculativeRetry(text) => o.speculative_retry = retry::canonical("speculative_retry", text)?,
            TableOption::StorageEngine(name) if name.is_empty() => {}
            TableOption::StorageEngine(name) => {
                return config(format!(
                    "storage_engine = '{name}' is not supported: tables are stored as sstables"
                ));
            }
            TableOption::Tablets(tablets) => {
                let texts = tablets.named().map(|(name, value)| (name.to_owned(), value));
                o.tablets = Some(tablet_options(&texts.collect())?).filter(|tablets| !tablets.is_empty());
            }
            TableOption::TombstoneGc(gc) => o.tombstone_gc = Some(*gc),
        }
    }
    Ok(o)
}

fn config<T>(text: impl Into<String>) -> Result<T, DdlError> {
    Err(DdlError::Config(text.into()))
}

/// `enabled` is of ScyllaDB. That a table is cached is not stored.
fn caching(given: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, DdlError> {
    let strangers: Vec<&str> = given
        .keys()
        .map(String::as_str)
        .filter(|k| !matches!(*k, "enabled" | "keys" | "rows_per_partition"))
        .collect();
    if !strangers.is_empty() {
        return Err(DdlError::Config(format!(
            "Invalid caching sub-options [{}]: only 'keys' and 'rows_per_partition' are allowed",
            strangers.join(", ")
        )));
    }
    let is_enabled = given.get("enabled").map(|text| text.to_ascii_lowercase());
    if !matches!(is_enabled.as_deref(), None | Some("true" | "false")) {
        return Err(DdlError::Config(format!(
            "Invalid value '{}' for caching sub-option 'enabled': only 'true' and 'false' are allowed",
            given["enabled"]
        )));
    }
    // If only `enabled` is given, the others are unspecified.
    let unsaid = |name| match (&is_enabled, name) {
        (Some(_), "keys") => "ALL",
        _ => "NONE",
    };
    let get = |name| {
        given
            .get(name)
            .map_or_else(|| unsaid(name).to_owned(), |v| v.to_ascii_uppercase())
    };
    let (keys, mut rows) = (get("keys"), get("rows_per_partition"));
    if !matches!(keys.as_str(), "ALL" | "NONE") {
        return Err(DdlError::Config(format!(
            "Invalid value '{}' for caching sub-option 'keys': only 'ALL' and 'NONE' are allowed",
            given["keys"]
        )));
    }
    if !matches!(rows.as_str(), "ALL" | "NONE") {
        match rows.parse::<i32>() {
            Ok(0) => "NONE".clone_into(&mut rows),
            Ok(n) if n > 0 => rows = n.to_string(),
            _ => {
                return Err(DdlError::Config(format!(
                    "Invalid value '{}' for caching sub-option 'rows_per_partition': only 'ALL', 'NONE', and integer \
                     values are allowed",
                    given["rows_per_partition"]
                )));
            }
        }
    }
    let mut caching: BTreeMap<_, _> = [("keys".to_owned(), keys), ("rows_per_partition".to_owned(), rows)].into();
    if is_enabled.as_deref() == Some("false") {
        caching.insert("enabled".to_owned(), "false".to_owned());
    }
    Ok(caching)
}

/// `per_partition_rate_limit` as a map of CQL has it.
///
/// # Errors
/// When a name is unknown, or a limit is none.
pub fn rate_limits(given: &BTreeMap<String, String>) -> Result<RateLimits, DdlError> {
    let mut limits = RateLimits::default();
    for (name, text) in given {
        let limit = match name.as_str() {
            "max_reads_per_second" => &mut limits.reads,
            "max_writes_per_second" => &mut limits.writes,
            _ => {
                return Err(DdlError::Config(format!(
                    "Unknown sub-option '{name}' of per_partition_rate_limit: only 'max_reads_per_second' and \
                     'max_writes_per_second' are allowed"
                )));
            }
        };
        let number = text.parse::<u32>().ok().filter(|n| (1..=RATE_LIMIT_MAX).contains(n));
        *limit = Some(number.ok_or_else(|| {
            DdlError::Config(format!(
                "Invalid value '{text}' for '{name}' of per_partition_rate_limit: a number from 1 to {RATE_LIMIT_MAX} is \
                 expected"
            ))
        })?);
    }
    Ok(limits)
}

/// `tombstone_gc` as a map of CQL has it.
///
/// # Errors
/// When a name or a value is unknown.
pub fn tombstone_gc(given: &BTreeMap<String, String>) -> Result<TombstoneGc, DdlError> {
    let mut mode = None;
    let mut delay = TombstoneGc::PROPAGATION_DELAY_DEFAULT;
    for (name, text) in given {
        match name.as_str() {
            "mode" => {
                let known = TombstoneGcMode::of_name(&text.to_ascii_lowercase());
                mode = Some(known.ok_or_else(|| {
                    DdlError::Config(format!(
                        "Invalid value '{text}' for 'mode' of tombstone_gc: 'timeout', 'repair', 'immediate' or 'disabled' is expected"
                    ))
                })?);
            }
            "propagation_delay_in_seconds" => {
                delay = text.parse().map_err(|_| {
                    DdlError::Config(format!(
                        "Invalid value '{text}' for 'propagation_delay_in_seconds' of tombstone_gc: a number of seconds is expected"
                    ))
                })?;
            }
            _ => {
                return Err(DdlError::Config(format!(
                    "Unknown sub-option '{name}' of tombstone_gc: only 'mode' and 'propagation_delay_in_seconds' are allowed"
                )));
            }
        }
    }
    let mode = mode.ok_or_else(|| DdlError::Config("tombstone_gc needs a 'mode'".to_owned()))?;
    Ok(TombstoneGc {
        mode,
        propagation_delay_seconds: delay,
    })
}

/// `tablets` of a table as a map of CQL has it; an empty map takes back what was said before.
///
/// # Errors
/// When a name or a value is unknown.
pub fn tablet_options(given: &BTreeMap<String, String>) -> Result<TabletOptions, DdlError> {
    let mut tablets = TabletOptions::default();
    for (name, text) in given {
        let refused = |expected: &str| {
            DdlError::Config(format!(
                "Invalid value '{text}' for '{name}' of tablets: {expected} is expected"
            ))
        };
        let number = || match text.parse::<u32>() {
            Ok(n) if n <= TABLET_OPTION_MAX => Ok(n),
            _ => Err(refused(&format!("a number from 0 to {TABLET_OPTION_MAX}"))),
        };
        match name.as_str() {
            "min_tablet_count" => tablets.min_tablet_count = Some(number()?),
            "max_tablet_count" => match number()? {
                0 => return Err(refused(&format!("a number from 1 to {TABLET_OPTION_MAX}"))),
                most => tablets.max_tablet_count = Some(most),
            },
            "expected_data_size_in_gb" => tablets.expected_data_size_in_gb = Some(number()?),
            "min_per_shard_tablet_count" => {
                let goal = text.parse::<f64>().ok();
                let goal = goal.filter(|goal| (0.0..=PER_SHARD_MAX).contains(goal));
                let expected = format!("a number from 0 to {PER_SHARD_MAX}");
                tablets.min_per_shard_tablet_count = Some(goal.ok_or_else(|| refused(&expected))?);
            }
            "pow2_count" => match text.to_ascii_lowercase().as_str() {
                "true" => tablets.pow2_count = Some(true),
                _ => {
                    return Err(refused(
                        "'true', because the number of tablets is always a power of two,",
                    ));
                }
            },
            _ => {
                return Err(DdlError::Config(format!(
                    "Unknown sub-option '{name}' of tablets: only '{}' are allowed",
                    TabletOptions::NAMES.join("', '")
                )));
            }
        }
    }
    if let Some((least, most)) = tablets.min_tablet_count.zip(tablets.max_tablet_count)
        && least > most
    {
        return Err(DdlError::Config(format!(
            "min_tablet_count of tablets must not be above max_tablet_count (got {least} and {most})"
        )));
    }
    Ok(tablets)
}

/// Tables of the token ring have no tablets of their own to count.
pub(crate) fn check_tablets(of: &Keyspace, given: &[TableOption], o: &TableOptions) -> Result<(), DdlError> {
    if is_given(given, "tablets") && o.tablets.is_some() && !of.has_tablets() {
        return Err(DdlError::Config(format!(
            "Option tablets is for tables with tablets; keyspace {} has tablets = {{'enabled': false}}",
            of.name
        )));
    }
    Ok(())
}

fn read_repair(text: &str) -> Result<String, DdlError> {
    let upper = text.to_ascii_uppercase();
    if matches!(upper.as_str(), "NONE" | "BLOCKING") {
        return Ok(upper);
    }
    Err(DdlError::Config(format!(
        "Invalid value {text} for option 'read_repair': only 'NONE' and 'BLOCKING' are allowed"
    )))
}

/// Counters do not expire.
pub(crate) fn check_counter_ttl(o: &TableOptions) -> Result<(), DdlError> {
    if o.default_time_to_live > 0 {
        return Err(DdlError::invalid(
            "Cannot set default_time_to_live on a table with counters",
        ));
    }
    Ok(())
}

/// Refuses values that are of the right type and make no sense.
pub(crate) fn validate(o: &TableOptions) -> Result<(), DdlError> {
    let fp = o.bloom_filter_fp_chance;
    if fp <= BLOOM_FILTER_FP_CHANCE_MIN || fp > 1.0 {
        return config(format!(
            "bloom_filter_fp_chance must be larger than {} and less than or equal to 1.0 (got {})",
            java_double(BLOOM_FILTER_FP_CHANCE_MIN),
            java_double(fp)
        ));
    }
    if !(0.0..=1.0).contains(&o.crc_check_chance) {
        return config(format!(
            "crc_check_chance must be larger than or equal to 0 and smaller than or equal to 1.0 (got {})",
            java_double(o.crc_check_chance)
        ));
    }
    if o.default_time_to_live > TIME_TO_LIVE_MAX {
        return config(format!(
            "default_time_to_live must be less than or equal to {TIME_TO_LIVE_MAX} (got {})",
            o.default_time_to_live
        ));
    }
    for (name, value, least) in [
        ("default_time_to_live", o.default_time_to_live, 0),
        ("gc_grace_seconds", o.gc_grace_seconds, 0),
        ("min_index_interval", o.min_index_interval, 1),
        ("memtable_flush_period_in_ms", o.memtable_flush_period_in_ms, 0),
    ] {
        if value < least {
            return config(format!("{name} must be greater than or equal to {least} (got {value})"));
        }
    }
    if o.max_index_interval < o.min_index_interval {
        return config(format!(
            "max_index_interval must be greater than or equal to min_index_interval ({}) (got {})",
            o.min_index_interval, o.max_index_interval
        ));
    }
    Ok(())
}
