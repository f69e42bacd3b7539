//! The properties of a table: `WITH` of CREATE TABLE and ALTER TABLE.

use std::collections::BTreeMap;

use cql::ast::{LiteralKind, MapValue, Property, PropertyValue};
use ddl::{TABLE_PROPERTIES, TableOption};
use schema::TableId;
use uuid::Uuid;

use super::properties::Properties;
use crate::error::CompileError;

/// The id that is given to a table, and its options in the order of the statement.
pub(super) fn read(properties: &[Property]) -> Result<(Option<TableId>, Vec<TableOption>), CompileError> {
    let p = Properties::new(properties, &TABLE_PROPERTIES)?;
    let id = p.text("id")?.map(str::parse::<Uuid>).transpose();
    let id = id.map_err(|_| CompileError::Config("Invalid table id".to_owned()))?;
    let names = properties.iter().map(|property| property.name.as_str());
    let options = names.map(|name| option(name, &p));
    let options = options.filter_map(Result::transpose).collect::<Result<_, _>>()?;
    Ok((id.map(TableId), options))
}

/// The option of that name; None for what is no option.
fn option(name: &str, p: &Properties<'_>) -> Result<Option<TableOption>, CompileError> {
    let text = || Ok::<_, CompileError>(p.text(name)?.unwrap_or_default().to_owned());
    let map = || Ok::<_, CompileError>(p.map(name)?.unwrap_or_default());
    let boolean = || Ok::<_, CompileError>(p.boolean(name)?.unwrap_or_default());
    let int = || Ok::<_, CompileError>(p.int(name)?.unwrap_or_default());
    let double = || Ok::<_, CompileError>(p.double(name)?.unwrap_or_default());
    Ok(Some(match name {
        "additional_write_policy" => TableOption::AdditionalWritePolicy(text()?),
        "allow_auto_snapshot" => TableOption::AllowAutoSnapshot(boolean()?),
        "bloom_filter_fp_chance" => TableOption::BloomFilterFpChance(double()?),
        "caching" => TableOption::Caching(map()?),
        "cdc" => TableOption::Cdc(is_cdc(p)?),
        "comment" => TableOption::Comment(text()?),
        "compaction" => TableOption::Compaction(map()?),
        "compression" => TableOption::Compression(map()?),
        "crc_check_chance" => TableOption::CrcCheckChance(double()?),
        "default_time_to_live" => TableOption::DefaultTimeToLive(int()?),
        "extensions" => TableOption::Extensions(extensions(p)?),
        "gc_grace_seconds" => TableOption::GcGraceSeconds(int()?),
        "in_memory" => TableOption::InMemory(boolean()?),
        "incremental_backups" => TableOption::IncrementalBackups(boolean()?),
        "large_data_guardrails_enabled" => TableOption::LargeDataGuardrailsEnabled(boolean()?),
        "max_index_interval" => TableOption::MaxIndexInterval(int()?),
        "memtable" => TableOption::Memtable(text()?),
        "memtable_flush_period_in_ms" => TableOption::MemtableFlushPeriodInMs(int()?),
        "min_index_interval" => TableOption::MinIndexInterval(int()?),
        "paxos_grace_seconds" => {
            let seconds = int()?;
            let seconds = u32::try_from(seconds).map_err(|_| {
                CompileError::Config(format!(
                    "paxos_grace_seconds must be greater than or equal to 0 (got {seconds})"
                ))
            });
            TableOption::PaxosGraceSeconds(seconds?)
        }
        "per_partition_rate_limit" => TableOption::PerPartitionRateLimit(ddl::rate_limits(&map()?)?),
        "read_repair" => TableOption::ReadRepair(text()?),
        "speculative_retry" => TableOption::SpeculativeRetry(text()?),
        "storage_engine" => TableOption::StorageEngine(text()?),
        "synchronous_updates" => TableOption::SynchronousUpdates(boolean()?),
        "tablets" => TableOption::Tablets(ddl::tablet_options(&map()?)?),
        "tombstone_gc" => TableOption::TombstoneGc(ddl::tombstone_gc(&map()?)?),
        _ => return Ok(None),
    }))
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

/// Extensions are bytes; a string would be lost in `system_schema`.
fn extensions(p: &Properties<'_>) -> Result<BTreeMap<String, Vec<u8>>, CompileError> {
    // Refuses lists, and names that are given twice.
    p.map("extensions")?;
    let mut extensions = BTreeMap::new();
    let Some(PropertyValue::Map(pairs)) = p.value("extensions") else {
        return Ok(extensions);
    };
    for (name, value) in pairs {
        let MapValue::Literal(value) = value else { continue };
        let bytes = (value.kind == LiteralKind::Blob)
            .then(|| bytes_of(&value.text))
            .flatten();
        let bytes = bytes.ok_or_else(|| {
            CompileError::Config(format!(
                "Invalid value '{}' for extension '{}': a blob of whole bytes such as 0xcafe is expected",
                value.text, name.text
            ))
        });
        extensions.insert(name.text.clone(), bytes?);
    }
    Ok(extensions)
}

/// The bytes of a blob literal.
fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digits = text.get(2..).filter(|digits| digits.len() % 2 == 0)?;
    let pairs = (0..digits.len()).step_by(2);
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    pairs.map(byte).collect()
}
