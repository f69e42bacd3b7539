//! The options of a table, one value each.

use std::collections::BTreeMap;

use schema::{RateLimits, TabletOptions, TombstoneGc};

/// An option that a new table, or a table that is altered, is given. What it means: [`schema::TableOptions`].
#[derive(Clone, PartialEq, Debug)]
pub enum TableOption {
    /// `99p`, `50ms`, `ALWAYS`, `NEVER`.
    AdditionalWritePolicy(String),
    /// Whether a snapshot is taken before the table is dropped or truncated.
    AllowAutoSnapshot(bool),
    /// The share of false positives of the bloom filters.
    BloomFilterFpChance(f64),
    /// `keys` and `rows_per_partition`.
    Caching(BTreeMap<String, String>),
    /// Whether a log of changes is kept, which no table has yet.
    Cdc(bool),
    /// Free text.
    Comment(String),
    /// The strategy's `class` and its options.
    Compaction(BTreeMap<String, String>),
    /// The compressor's `class` and its options; `enabled: false` for none.
    Compression(BTreeMap<String, String>),
    /// The probability that a read checks a chunk's checksum.
    CrcCheckChance(f64),
    /// Seconds; 0 is none.
    DefaultTimeToLive(i32),
    /// Opaque bytes by name.
    Extensions(BTreeMap<String, Vec<u8>>),
    /// Seconds for which a tombstone is kept.
    GcGraceSeconds(i32),
    /// Whether the table is in memory alone, which no table is.
    InMemory(bool),
    /// Whether the table takes part in incremental backups.
    IncrementalBackups(bool),
    /// Whether writes to what is too large are refused.
    LargeDataGuardrailsEnabled(bool),
    /// The largest interval of the index summary.
    MaxIndexInterval(i32),
    /// The memtable's configuration; `default` is the only one.
    Memtable(String),
    /// Milliseconds; 0 is never.
    MemtableFlushPeriodInMs(i32),
    /// The smallest interval of the index summary.
    MinIndexInterval(i32),
    /// For how many seconds the state of acceptors is kept.
    PaxosGraceSeconds(u32),
    /// How often one partition may be read and written in a second.
    PerPartitionRateLimit(RateLimits),
    /// `BLOCKING` or `NONE`.
    ReadRepair(String),
    /// `99p`, `50ms`, `ALWAYS`, `NEVER`.
    SpeculativeRetry(String),
    /// Empty: sstables, which are the only one.
    StorageEngine(String),
    /// Whether updates of views are waited for; no table has views yet.
    SynchronousUpdates(bool),
    /// How many tablets the table is to have.
    Tablets(TabletOptions),
    /// When compactions may drop a tombstone.
    TombstoneGc(TombstoneGc),
}

/// The names by which the options of a table, and its id, are given.
pub const TABLE_PROPERTIES: [&str; 28] = [
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

impl TableOption {
    /// Its name in [`TABLE_PROPERTIES`].
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::AdditionalWritePolicy(_) => "additional_write_policy",
            Self::AllowAutoSnapshot(_) => "allow_auto_snapshot",
            Self::BloomFilterFpChance(_) => "bloom_filter_fp_chance",
            Self::Caching(_) => "caching",
            Self::Cdc(_) => "cdc",
            Self::Comment(_) => "comment",
            Self::Compaction(_) => "compaction",
            Self::Compression(_) => "compression",
            Self::CrcCheckChance(_) => "crc_check_chance",
            Self::DefaultTimeToLive(_) => "default_time_to_live",
            Self::Extensions(_) => "extensions",
            Self::GcGraceSeconds(_) => "gc_grace_seconds",
            Self::InMemory(_) => "in_memory",
            Self::IncrementalBackups(_) => "incremental_backups",
            Self::LargeDataGuardrailsEnabled(_) => "large_data_guardrails_enabled",
            Self::MaxIndexInterval(_) => "max_index_interval",
            Self::Memtable(_) => "memtable",
            Self::MemtableFlushPeriodInMs(_) => "memtable_flush_period_in_ms",
            Self::MinIndexInterval(_) => "min_index_interval",
            Self::PaxosGraceSeconds(_) => "paxos_grace_seconds",
            Self::PerPartitionRateLimit(_) => "per_partition_rate_limit",
            Self::ReadRepair(_) => "read_repair",
            Self::SpeculativeRetry(_) => "speculative_retry",
            Self::StorageEngine(_) => "storage_engine",
            Self::SynchronousUpdates(_) => "synchronous_updates",
            Self::Tablets(_) => "tablets",
            Self::TombstoneGc(_) => "tombstone_gc",
        }
    }
}
