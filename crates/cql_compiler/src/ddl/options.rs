//! The options of a table: WITH of CREATE TABLE and ALTER TABLE.

use std::collections::BTreeMap;

use cql::ast::{LiteralKind, MapValue, Property, PropertyValue};
use schema::{Keyspace, RateLimits, TableOptions, TabletOptions, TombstoneGc, TombstoneGcMode, java_double};
use uuid::Uuid;

use super::properties::Properties;
use super::{compaction, compression, retry, unbuilt};
use crate::error::CompileError;

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

/// The names of all options.
pub const KNOWN: [&str; 28] = [
    "additional_write_policy",
    "allow_auto_snapshot",
    "bloom_filter_fp_chance",
    "caching",
    "cdc",
    "comment",
    "compaction",
    "compression",
    "crc_check_chance",
    "default_time_to_live",
    "extensions",
    "gc_grace_seconds",
    "id",
    "in_memory",
    "incremental_backups",
    "large_data_guardrails_enabled",
    "max_index_interval",
    "memtable",
    "memtable_flush_period_in_ms",
    "min_index_interval",
    "paxos_grace_seconds",
    "per_partition_rate_limit",
    "read_repair",
    "speculative_retry",
    "storage_engine",
    "synchronous_updates",
    "tablets",
    "tombstone_gc",
];

/// The options of a new table, not yet validated, and its id if it is given.
/// `is_kept_by_repair`: unless it says otherwise, repair decides when its tombstones are forgotten.
pub(super) fn create(
    properties: &[Property],
    is_kept_by_repair: bool,
) -> Result<(TableOptions, Option<Uuid>), CompileError> {
    let p = Properties::new(properties, &KNOWN)?;
    let id = table_id(&p)?;
    let mut options = set(TableOptions::default(), &p, properties)?;
    // A leveled table looks into one sstable of each level, so its filters may be smaller.
    if !p.has("bloom_filter_fp_chance") && options.compaction["class"].ends_with(".LeveledCompactionStrategy") {
        options.bloom_filter_fp_chance = 0.1;
    }
    // A table without a grace period forgets its tombstones at once.
    if is_kept_by_repair && options.tombstone_gc.is_none() && options.gc_grace_seconds > 0 {
        options.tombstone_gc = Some(TombstoneGc::of(TombstoneGcMode::Repair));
    }
    Ok((options, id))
}

fn table_id(p: &Properties<'_>) -> Result<Option<Uuid>, CompileError> {
    let id = p.text("id")?.map(str::parse::<Uuid>).transpose();
    id.map_err(|_| CompileError::Config("Invalid table id".to_owned()))
}

/// The options of a table that is made like one with these, validated, and its id if it is given.
pub(super) fn copy(
    of: &Keyspace,
    source: &TableOptions,
    properties: &[Property],
) -> Result<(TableOptions, Option<Uuid>), CompileError> {
    let p = Properties::new(properties, &KNOWN)?;
    let mut source = source.clone();
    if !of.has_tablets() {
        source.tablets = None;
    }
    let options = set(source, &p, properties)?;
    check_tablets(of, properties, &options)?;
    validate(&options)?;
    Ok((options, table_id(&p)?))
}

/// The options of a table after ALTER TABLE … WITH, validated.
pub(super) fn alter(old: &TableOptions, properties: &[Property]) -> Result<TableOptions, CompileError> {
    let p = Properties::new(properties, &KNOWN)?;
    if p.has("id") {
        return Err(CompileError::Config("Cannot alter table id.".to_owned()));
    }
    let options = set(old.clone(), &p, properties)?;
    validate(&options)?;
    Ok(options)
}

/// Warnings for a client that gives a table these options: those that have no effect here.
pub(super) fn warnings(o: &TableOptions, properties: &[Property]) -> Vec<String> {
    unbuilt::warnings(o, |name| {
        // Older schemas have it in the map of `compression`.
        let name = if name == "crc_check_chance" {
            [name, "compression"]
        } else {
            [name, name]
        };
        properties.iter().any(|p| name.contains(&p.name.as_str()))
    })
}

fn set(mut o: TableOptions, p: &Properties<'_>, properties: &[Property]) -> Result<TableOptions, CompileError> {
    if let Some(v) = p.double("bloom_filter_fp_chance")? {
        o.bloom_filter_fp_chance = v;
    }
    if let Some(v) = p.map("caching")? {
        o.caching = caching(&v)?;
    }
    if let Some(v) = p.text("comment")? {
        v.clone_into(&mut o.comment);
    }
    if let Some(v) = p.map("compaction")? {
        o.compaction = compaction::prepare(v)?;
    }
    if let Some(v) = p.map("compression")? {
        let (compression, crc_check_chance) = compression::prepare(v)?;
        o.compression = compression;
        if let Some(v) = crc_check_chance {
            o.crc_check_chance = v;
        }
    }
    if let Some(v) = p.double("crc_check_chance")? {
        o.crc_check_chance = v;
    }
    if let Some(v) = p.text("memtable")?
        && v != "default"
    {
        return Err(CompileError::Config(format!(
            "Memtable configuration \"{v}\" not found."
        )));
    }
    if let Some(v) = p.int("default_time_to_live")? {
        o.default_time_to_live = v;
    }
    if let Some(v) = p.int("gc_grace_seconds")? {
        o.gc_grace_seconds = v;
    }
    if let Some(v) = p.int("max_index_interval")? {
        o.max_index_interval = v;
    }
    if let Some(v) = p.int("memtable_flush_period_in_ms")? {
        o.memtable_flush_period_in_ms = v;
    }
    if let Some(v) = p.int("min_index_interval")? {
        o.min_index_interval = v;
    }
    if let Some(v) = p.text("speculative_retry")? {
        o.speculative_retry = retry::canonical("speculative_retry", v)?;
    }
    if let Some(v) = p.text("additional_write_policy")? {
        o.additional_write_policy = retry::canonical("additional_write_policy", v)?;
    }
    if is_cdc(p)? {
        return Err(CompileError::Config(
            "cdc = true is not supported yet: no log of changes would be kept".to_owned(),
        ));
    }
    if p.has("cdc") {
        o.cdc = false;
    }
    if let Some(v) = p.boolean("allow_auto_snapshot")? {
        o.allow_auto_snapshot = v;
    }
    if let Some(v) = p.boolean("large_data_guardrails_enabled")? {
        o.guards_large_data = v;
    }
    if let Some(v) = p.boolean("incremental_backups")? {
        o.incremental_backups = v;
    }
    if let Some(v) = p.int("paxos_grace_seconds")? {
        let seconds = u32::try_from(v).map_err(|_| {
            CompileError::Config(format!(
                "paxos_grace_seconds must be greater than or equal to 0 (got {v})"
            ))
        })?;
        o.paxos_grace_seconds = Some(seconds);
    }
    refuse_unbuilt(p)?;
    if let Some(v) = p.text("read_repair")? {
        o.read_repair = read_repair(v)?;
    }
    if let Some(v) = p.map("per_partition_rate_limit")? {
        o.rate_limits = rate_limits(&v)?;
    }
    if let Some(v) = p.map("tombstone_gc")? {
        o.tombstone_gc = Some(tombstone_gc(&v)?);
    }
    if let Some(v) = p.map("tablets")? {
        o.tablets = Some(tablets(&v)?).filter(|tablets| !tablets.is_empty());
    }
    if p.map("extensions")?.is_some() {
        o.extensions = extensions(properties)?;
    }
    Ok(o)
}

/// Whether the statement asks for a log of changes: `cdc = true`, or ScyllaDB's `cdc = {'enabled': true}`.
fn is_cdc(p: &Properties<'_>) -> Result<bool, CompileError> {
    if !p.is_map("cdc") {
        return Ok(p.boolean("cdc")?.unwrap_or(false));
    }
    let options = p.map("cdc")?.unwrap_or_default();
    match options.get("enabled").map(|text| text.to_ascii_lowercase()).as_deref() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(CompileError::Config(format!(
            "Invalid value '{other}' for 'enabled' of cdc: 'true' or 'false' is expected"
        ))),
    }
}

/// ScyllaDB's options of which one value is what tables are like here; others are refused.
fn refuse_unbuilt(p: &Properties<'_>) -> Result<(), CompileError> {
    for (name, why) in [
        ("in_memory", "tables are stored on disk"),
        (
            "synchronous_updates",
            "there are no materialized views, whose updates it is about",
        ),
    ] {
        if p.boolean(name)? == Some(true) {
            return Err(CompileError::Config(format!("{name} = true is not supported: {why}")));
        }
    }
    match p.text("storage_engine")? {
        None | Some("") => Ok(()),
        Some(other) => Err(CompileError::Config(format!(
            "storage_engine = '{other}' is not supported: tables are stored as sstables"
        ))),
    }
}

/// `enabled` is of ScyllaDB. That a table is cached is not stored.
fn caching(given: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, CompileError> {
    let strangers: Vec<&str> = given
        .keys()
        .map(String::as_str)
        .filter(|k| !matches!(*k, "enabled" | "keys" | "rows_per_partition"))
        .collect();
    if !strangers.is_empty() {
        return Err(CompileError::Config(format!(
            "Invalid caching sub-options [{}]: only 'keys' and 'rows_per_partition' are allowed",
            strangers.join(", ")
        )));
    }
    let is_enabled = given.get("enabled").map(|text| text.to_ascii_lowercase());
    if !matches!(is_enabled.as_deref(), None | Some("true" | "false")) {
        return Err(CompileError::Config(format!(
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
        return Err(CompileError::Config(format!(
            "Invalid value '{}' for caching sub-option 'keys': only 'ALL' and 'NONE' are allowed",
            given["keys"]
        )));
    }
    if !matches!(rows.as_str(), "ALL" | "NONE") {
        match rows.parse::<i32>() {
            Ok(0) => "NONE".clone_into(&mut rows),
            Ok(n) if n > 0 => rows = n.to_string(),
            _ => {
                return Err(CompileError::Config(format!(
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

fn rate_limits(given: &BTreeMap<String, String>) -> Result<RateLimits, CompileError> {
    let mut limits = RateLimits::default();
    for (name, text) in given {
        let limit = match name.as_str() {
            "max_reads_per_second" => &mut limits.reads,
            "max_writes_per_second" => &mut limits.writes,
            _ => {
                return Err(CompileError::Config(format!(
                    "Unknown sub-option '{name}' of per_partition_rate_limit: only 'max_reads_per_second' and \
                     'max_writes_per_second' are allowed"
                )));
            }
        };
        let number = text.parse::<u32>().ok().filter(|n| (1..=RATE_LIMIT_MAX).contains(n));
        *limit = Some(number.ok_or_else(|| {
            CompileError::Config(format!(
                "Invalid value '{text}' for '{name}' of per_partition_rate_limit: a number from 1 to {RATE_LIMIT_MAX} is \
                 expected"
            ))
        })?);
    }
    Ok(limits)
}

fn tombstone_gc(given: &BTreeMap<String, String>) -> Result<TombstoneGc, CompileError> {
    let mut mode = None;
    let mut delay = TombstoneGc::PROPAGATION_DELAY_DEFAULT;
    for (name, text) in given {
        match name.as_str() {
            "mode" => {
                let known = TombstoneGcMode::of_name(&text.to_ascii_lowercase());
                mode = Some(known.ok_or_else(|| {
                    CompileError::Config(format!(
                        "Invalid value '{text}' for 'mode' of tombstone_gc: 'timeout', 'repair', 'immediate' or 'disabled' is expected"
                    ))
                })?);
            }
            "propagation_delay_in_seconds" => {
                delay = text.parse().map_err(|_| {
                    CompileError::Config(format!(
                        "Invalid value '{text}' for 'propagation_delay_in_seconds' of tombstone_gc: a number of seconds is expected"
                    ))
                })?;
            }
            _ => {
                return Err(CompileError::Config(format!(
                    "Unknown sub-option '{name}' of tombstone_gc: only 'mode' and 'propagation_delay_in_seconds' are allowed"
                )));
            }
        }
    }
    let mode = mode.ok_or_else(|| CompileError::Config("tombstone_gc needs a 'mode'".to_owned()))?;
    Ok(TombstoneGc {
        mode,
        propagation_delay_seconds: delay,
    })
}

/// The options of `tablets`; an empty map takes back what was said before.
fn tablets(given: &BTreeMap<String, String>) -> Result<TabletOptions, CompileError> {
    let mut tablets = TabletOptions::default();
    for (name, text) in given {
        let refused = |expected: &str| {
            CompileError::Config(format!(
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
                return Err(CompileError::Config(format!(
                    "Unknown sub-option '{name}' of tablets: only '{}' are allowed",
                    TabletOptions::NAMES.join("', '")
                )));
            }
        }
    }
    if let Some((least, most)) = tablets.min_tablet_count.zip(tablets.max_tablet_count)
        && least > most
    {
        return Err(CompileError::Config(format!(
            "min_tablet_count of tablets must not be above max_tablet_count (got {least} and {most})"
        )));
    }
    Ok(tablets)
}

/// Tables of the token ring have no tablets of their own to count.
pub(super) fn check_tablets(of: &Keyspace, properties: &[Property], o: &TableOptions) -> Result<(), CompileError> {
    let is_named = properties.iter().any(|p| p.name == "tablets");
    if is_named && o.tablets.is_some() && !of.has_tablets() {
        return Err(CompileError::Config(format!(
            "Option tablets is for tables with tablets; keyspace {} has tablets = {{'enabled': false}}",
            of.name
        )));
    }
    Ok(())
}

fn read_repair(text: &str) -> Result<String, CompileError> {
    let upper = text.to_ascii_uppercase();
    if matches!(upper.as_str(), "NONE" | "BLOCKING") {
        return Ok(upper);
    }
    Err(CompileError::Config(format!(
        "Invalid value {text} for option 'read_repair': only 'NONE' and 'BLOCKING' are allowed"
    )))
}

/// Extensions are bytes; a string would be lost in `system_schema`.
fn extensions(properties: &[Property]) -> Result<BTreeMap<String, String>, CompileError> {
    let mut extensions = BTreeMap::new();
    for p in properties.iter().filter(|p| p.name == "extensions") {
        let PropertyValue::Map(pairs) = &p.value else { continue };
        for (name, value) in pairs {
            // `Properties::map` has refused lists.
            let MapValue::Literal(value) = value else { continue };
            if value.kind != LiteralKind::Blob || value.text.len() % 2 != 0 {
                return Err(CompileError::Config(format!(
                    "Invalid value '{}' for extension '{}': a blob of whole bytes such as 0xcafe is expected",
                    value.text, name.text
                )));
            }
            extensions.insert(name.text.clone(), value.text.to_ascii_lowercase());
        }
    }
    Ok(extensions)
}

/// Counters do not expire.
pub(super) fn check_counter_ttl(o: &TableOptions) -> Result<(), CompileError> {
    if o.default_time_to_live > 0 {
        return Err(CompileError::invalid(
            "Cannot set default_time_to_live on a table with counters",
        ));
    }
    Ok(())
}

/// Refuses values that are of the right type and make no sense.
pub(super) fn validate(o: &TableOptions) -> Result<(), CompileError> {
    let config = |text: String| Err(CompileError::Config(text));
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
