//! Tables and their options.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use record::{Field, Message, OPTION, Of, Record, RecordError};

use super::column::{self, COLUMN, ColumnRecord, DROPPED_COLUMN, DroppedColumnRecord};
use super::index::{self, INDEX, IndexRecord};
use super::{small, there, uuid};
use crate::index::Index;
use crate::table::{ColumnId, ColumnKind, CompactStorage, RateLimits, Table, TableId, TableOptions};
use crate::tablet_options::TabletOptions;
use crate::tombstone_gc::{TombstoneGc, TombstoneGcMode};

/// Tables may limit how often one partition is read and written in a second (`per_partition_rate_limit`).
///
/// The first rung of the ladder (`cluster::FEATURES`): a release without it refuses the field.
pub const PER_PARTITION_RATE_LIMIT: &str = "per_partition_rate_limit";

/// A table.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TableRecord {
    /// Its keyspace.
    #[prost(string, tag = "1")]
    pub keyspace: String,
    /// Its name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Its id: 16 bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub id: Vec<u8>,
    /// Its columns: partition key, clustering key, static and regular ones by name.
    #[prost(message, repeated, tag = "4")]
    pub columns: Vec<ColumnRecord>,
    /// Columns that were dropped, in that order.
    #[prost(message, repeated, tag = "5")]
    pub dropped: Vec<DroppedColumnRecord>,
    /// The number that the next column gets.
    #[prost(uint32, tag = "6")]
    pub next_column_id: u32,
    /// WITH options.
    #[prost(message, optional, tag = "7")]
    pub options: Option<TableOptionsRecord>,
    /// 0: it has no compact storage; else [`COMPACT_STATIC`] or [`COMPACT_DENSE`].
    #[prost(uint32, tag = "8")]
    pub compact: u32,
    /// The number of the column that says when a row expires.
    #[prost(uint32, optional, tag = "9")]
    pub row_ttl: Option<u32>,
    /// Its indexes by name.
    #[prost(message, repeated, tag = "10")]
    pub indexes: Vec<IndexRecord>,
    /// The number that the next index gets.
    #[prost(uint32, tag = "11")]
    pub next_index_id: u32,
}

/// Compact storage without clustering columns.
const COMPACT_STATIC: u32 = 1;
/// Compact storage with clustering columns.
const COMPACT_DENSE: u32 = 2;

/// The options of a table: those of [`TableOptions`], under the same names.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TableOptionsRecord {
    #[prost(string, tag = "1")]
    pub comment: String,
    #[prost(double, tag = "2")]
    pub bloom_filter_fp_chance: f64,
    #[prost(btree_map = "string, string", tag = "3")]
    pub caching: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "4")]
    pub compaction: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "5")]
    pub compression: BTreeMap<String, String>,
    #[prost(double, tag = "6")]
    pub crc_check_chance: f64,
    #[prost(sint32, tag = "7")]
    pub default_time_to_live: i32,
    #[prost(sint32, tag = "8")]
    pub gc_grace_seconds: i32,
    #[prost(sint32, tag = "9")]
    pub min_index_interval: i32,
    #[prost(sint32, tag = "10")]
    pub max_index_interval: i32,
    #[prost(sint32, tag = "11")]
    pub memtable_flush_period_in_ms: i32,
    #[prost(string, tag = "12")]
    pub read_repair: String,
    #[prost(string, tag = "13")]
    pub speculative_retry: String,
    #[prost(string, tag = "14")]
    pub additional_write_policy: String,
    #[prost(bool, tag = "15")]
    pub cdc: bool,
    #[prost(btree_map = "string, string", tag = "16")]
    pub extensions: BTreeMap<String, String>,
    /// Absent where nothing is limited.
    #[prost(message, optional, tag = "17")]
    pub rate_limits: Option<RateLimitsRecord>,
    /// Absent where the grace period decides.
    #[prost(message, optional, tag = "18")]
    pub tombstone_gc: Option<TombstoneGcRecord>,
    /// Absent where nothing is said.
    #[prost(message, optional, tag = "19")]
    pub tablets: Option<TabletOptionsRecord>,
    /// `allow_auto_snapshot` is false.
    #[prost(bool, tag = "20")]
    pub forbids_auto_snapshot: bool,
    /// `incremental_backups` is false.
    #[prost(bool, tag = "21")]
    pub forbids_incremental_backups: bool,
    /// Absent where `gc_grace_seconds` decides.
    #[prost(uint32, optional, tag = "22")]
    pub paxos_grace_seconds: Option<u32>,
    /// `large_data_guardrails_enabled`.
    #[prost(bool, tag = "23")]
    pub guards_large_data: bool,
}

/// `tablets` of a table: those of [`TabletOptions`], under the same names.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct TabletOptionsRecord {
    #[prost(uint32, optional, tag = "1")]
    pub min_tablet_count: Option<u32>,
    #[prost(uint32, optional, tag = "2")]
    pub max_tablet_count: Option<u32>,
    #[prost(double, optional, tag = "3")]
    pub min_per_shard_tablet_count: Option<f64>,
    #[prost(uint32, optional, tag = "4")]
    pub expected_data_size_in_gb: Option<u32>,
    #[prost(bool, optional, tag = "5")]
    pub pow2_count: Option<bool>,
}

/// `tombstone_gc` of a table.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TombstoneGcRecord {
    /// Its name in CQL.
    #[prost(string, tag = "1")]
    pub mode: String,
    /// Seconds.
    #[prost(uint32, tag = "2")]
    pub propagation_delay_seconds: u32,
}

/// `per_partition_rate_limit` of a table.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct RateLimitsRecord {
    /// Reads in a second.
    #[prost(uint32, optional, tag = "1")]
    pub reads: Option<u32>,
    /// Writes in a second.
    #[prost(uint32, optional, tag = "2")]
    pub writes: Option<u32>,
}

pub(super) static TABLE: Message = Message::new(
    "table",
    &[
        Field::new(1, "keyspace", Of::Text),
        Field::new(2, "name", Of::Text),
        Field::new(3, "id", Of::Bytes),
        Field::list(4, "columns", Of::Record(&COLUMN)),
        Field::list(5, "dropped", Of::Record(&DROPPED_COLUMN)),
        Field::new(6, "next_column_id", Of::U32),
        Field::new(7, "options", Of::Record(&OPTIONS)),
        Field::new(8, "compact_storage", Of::U32),
        Field::new(9, "row_ttl", Of::U32),
        Field::list(10, "indexes", Of::Record(&INDEX)),
        Field::new(11, "next_index_id", Of::U32),
    ],
)
.titled(&[1, 2]);

static OPTIONS: Message = Message::new(
    "options",
    &[
        Field::new(1, "comment", Of::Text),
        Field::new(2, "bloom_filter_fp_chance", Of::Double),
        Field::list(3, "caching", Of::Record(&OPTION)),
        Field::list(4, "compaction", Of::Record(&OPTION)),
        Field::list(5, "compression", Of::Record(&OPTION)),
        Field::new(6, "crc_check_chance", Of::Double),
        Field::new(7, "default_time_to_live", Of::S32),
        Field::new(8, "gc_grace_seconds", Of::S32),
        Field::new(9, "min_index_interval", Of::S32),
        Field::new(10, "max_index_interval", Of::S32),
        Field::new(11, "memtable_flush_period_in_ms", Of::S32),
        Field::new(12, "read_repair", Of::Text),
        Field::new(13, "speculative_retry", Of::Text),
        Field::new(14, "additional_write_policy", Of::Text),
        Field::new(15, "cdc", Of::Bool),
        Field::list(16, "extensions", Of::Record(&OPTION)),
        Field::new(17, "per_partition_rate_limit", Of::Record(&RATE_LIMITS)).since(PER_PARTITION_RATE_LIMIT),
        Field::new(18, "tombstone_gc", Of::Record(&GC)),
        Field::new(19, "tablets", Of::Record(&TABLETS)),
        Field::new(20, "forbids_auto_snapshot", Of::Bool),
        Field::new(21, "forbids_incremental_backups", Of::Bool),
        Field::new(22, "paxos_grace_seconds", Of::U32),
        Field::new(23, "large_data_guardrails_enabled", Of::Bool),
    ],
);

static TABLETS: Message = Message::new(
    "tablet_options",
    &[
        Field::new(1, "min_tablet_count", Of::U32),
        Field::new(2, "max_tablet_count", Of::U32),
        Field::new(3, "min_per_shard_tablet_count", Of::Double),
        Field::new(4, "expected_data_size_in_gb", Of::U32),
        Field::new(5, "pow2_count", Of::Bool),
    ],
);

static GC: Message = Message::new(
    "tombstone_gc",
    &[
        Field::new(1, "mode", Of::Text),
        Field::new(2, "propagation_delay_in_seconds", Of::U32),
    ],
);

static RATE_LIMITS: Message = Message::new(
    "per_partition_rate_limit",
    &[
        Field::new(1, "max_reads_per_second", Of::U32),
        Field::new(2, "max_writes_per_second", Of::U32),
    ],
);

impl Record for TableRecord {
    const MESSAGE: &'static Message = &TABLE;
}

pub(super) fn to_record(table: &Table) -> TableRecord {
    TableRecord {
        keyspace: table.keyspace.clone(),
        name: table.name.clone(),
        id: table.id.0.as_bytes().to_vec(),
        columns: table.columns.iter().map(column::to_record).collect(),
        dropped: table.dropped.iter().map(column::dropped_to_record).collect(),
        next_column_id: u32::from(table.next_column_id),
        options: Some(options_to_record(&table.options)),
        compact: match table.compact {
            None => 0,
            Some(CompactStorage::Static) => COMPACT_STATIC,
            Some(CompactStorage::Dense) => COMPACT_DENSE,
        },
        row_ttl: table.row_ttl.map(|id| u32::from(id.0)),
        indexes: table.indexes.iter().map(index::to_record).collect(),
        next_index_id: table.next_index_id,
    }
}

pub(super) fn from_record(record: TableRecord) -> Result<Table, RecordError> {
    let name = format!("table {}.{}", record.keyspace, record.name);
    let at = |field: &str| format!("{name}, {field}");
    if record.name.is_empty() || record.keyspace.is_empty() {
        return Err(RecordError::damaged(at("name"), "it is missing"));
    }
    let columns = record.columns.into_iter().map(column::from_record);
    let dropped = record.dropped.into_iter().map(column::dropped_from_record);
    let mut table = Table {
        id: TableId(uuid(&record.id, &at("id"))?),
        columns: columns.collect::<Result<_, _>>().map_err(|e| e.within(&name))?,
        dropped: dropped.collect::<Result<_, _>>().map_err(|e| e.within(&name))?,
        next_column_id: small(record.next_column_id, &at("next_column_id"))?,
        options: options_from_record(there(record.options, &at("options"))?, &at("options"))?,
        compact: match record.compact {
            0 => None,
            COMPACT_STATIC => Some(CompactStorage::Static),
            COMPACT_DENSE => Some(CompactStorage::Dense),
            other => {
                let why = format!("it is {other}; 0, {COMPACT_STATIC} and {COMPACT_DENSE} are known");
                return Err(RecordError::damaged(at("compact_storage"), why));
            }
        },
        indexes: (record
            .indexes
            .into_iter()
            .map(index::from_record)
            .collect::<Result<_, _>>())
        .map_err(|e: RecordError| e.within(&name))?,
        next_index_id: record.next_index_id,
        row_ttl: (record.row_ttl.map(|id| small(id, &at("row_ttl")).map(ColumnId))).transpose()?,
        keyspace: record.keyspace,
        name: record.name,
        layout: Arc::default(),
        clustering_order: Arc::default(),
    };
    check_columns(&table).map_err(|why| RecordError::damaged(at("columns"), why))?;
    if let Some(id) = table.row_ttl
        && !table.ttl_column().is_some_and(|c| Table::can_be_row_ttl(&c.cql_type))
    {
        let why = format!("no regular column with a type for it has the number {}", id.0);
        return Err(RecordError::damaged(at("row_ttl"), why));
    }
    check_indexes(&table).map_err(|why| RecordError::damaged(at("indexes"), why))?;
    table.derive();
    Ok(table)
}

/// Ids of indexes name files: none is given twice, and none from `next_index_id` on was given yet.
fn check_indexes(table: &Table) -> Result<(), String> {
    let mut ids = BTreeSet::new();
    for Index { id, name, column, .. } in &table.indexes {
        if id.0 >= table.next_index_id {
            return Err(format!(
                "index {name} has id {}, and the next is {}",
                id.0, table.next_index_id
            ));
        }
        if !ids.insert(*id) {
            return Err(format!("index {name} has id {}, which another one has", id.0));
        }
        if table.column(column).is_none() {
            return Err(format!("index {name} is on column {column}, which is not there"));
        }
    }
    let is_sorted = table.indexes.is_sorted_by(|a, b| a.name < b.name);
    is_sorted
        .then_some(())
        .ok_or_else(|| "their names do not ascend".to_owned())
}

/// Column ids decide what stored rows mean: none is given twice, and none from `next_column_id` on was given yet.
fn check_columns(table: &Table) -> Result<(), String> {
    let mut names = BTreeSet::new();
    if let Some(twice) = table.columns.iter().find(|c| !names.insert(&c.name)) {
        return Err(format!("two columns have the name {}", twice.name));
    }
    let living = table
        .columns
        .iter()
        .filter(|c| matches!(c.kind, ColumnKind::Static | ColumnKind::Regular));
    let living = living.map(|c| (&c.name, c.id));
    let mut ids: BTreeSet<ColumnId> = BTreeSet::new();
    for (name, id) in living.chain(table.dropped.iter().map(|c| (&c.name, c.id))) {
        if id.0 >= table.next_column_id {
            return Err(format!(
                "column {name} has id {}, and the next is {}",
                id.0, table.next_column_id
            ));
        }
        if !ids.insert(id) {
            return Err(format!("column {name} has id {}, which another one has", id.0));
        }
    }
    Ok(())
}

fn options_to_record(options: &TableOptions) -> TableOptionsRecord {
    let limits = options.rate_limits;
    TableOptionsRecord {
        comment: options.comment.clone(),
        bloom_filter_fp_chance: options.bloom_filter_fp_chance,
        caching: options.caching.clone(),
        compaction: options.compaction.clone(),
        compression: options.compression.clone(),
        crc_check_chance: options.crc_check_chance,
        default_time_to_live: options.default_time_to_live,
        gc_grace_seconds: options.gc_grace_seconds,
        min_index_interval: options.min_index_interval,
        max_index_interval: options.max_index_interval,
        memtable_flush_period_in_ms: options.memtable_flush_period_in_ms,
        read_repair: options.read_repair.clone(),
        speculative_retry: options.speculative_retry.clone(),
        additional_write_policy: options.additional_write_policy.clone(),
        cdc: options.cdc,
        extensions: options.extensions.clone(),
        rate_limits: (limits != RateLimits::default()).then_some(RateLimitsRecord {
            reads: limits.reads,
            writes: limits.writes,
        }),
        tombstone_gc: options.tombstone_gc.map(|gc| TombstoneGcRecord {
            mode: gc.mode.name().to_owned(),
            propagation_delay_seconds: gc.propagation_delay_seconds,
        }),
        tablets: options.tablets.map(|tablets| TabletOptionsRecord {
            min_tablet_count: tablets.min_tablet_count,
            max_tablet_count: tablets.max_tablet_count,
            min_per_shard_tablet_count: tablets.min_per_shard_tablet_count,
            expected_data_size_in_gb: tablets.expected_data_size_in_gb,
            pow2_count: tablets.pow2_count,
        }),
        forbids_auto_snapshot: !options.allow_auto_snapshot,
        forbids_incremental_backups: !options.incremental_backups,
        paxos_grace_seconds: options.paxos_grace_seconds,
        guards_large_data: options.guards_large_data,
    }
}

fn gc_from_record(record: &TombstoneGcRecord, place: &str) -> Result<TombstoneGc, RecordError> {
    let mode = TombstoneGcMode::of_name(&record.mode);
    let mode = mode.ok_or_else(|| RecordError::damaged(place, format!("there is no mode '{}'", record.mode)))?;
    Ok(TombstoneGc {
        mode,
        propagation_delay_seconds: record.propagation_delay_seconds,
    })
}

fn options_from_record(record: TableOptionsRecord, place: &str) -> Result<TableOptions, RecordError> {
    let gc = record.tombstone_gc.as_ref();
    let gc = gc.map(|gc| gc_from_record(gc, &format!("{place}, tombstone_gc")));
    Ok(TableOptions {
        tombstone_gc: gc.transpose()?,
        tablets: record.tablets.map(|tablets| TabletOptions {
            min_tablet_count: tablets.min_tablet_count,
            max_tablet_count: tablets.max_tablet_count,
            min_per_shard_tablet_count: tablets.min_per_shard_tablet_count,
            expected_data_size_in_gb: tablets.expected_data_size_in_gb,
            pow2_count: tablets.pow2_count,
        }),
        comment: record.comment,
        bloom_filter_fp_chance: record.bloom_filter_fp_chance,
        caching: record.caching,
        compaction: record.compaction,
        compression: record.compression,
        crc_check_chance: record.crc_check_chance,
        default_time_to_live: record.default_time_to_live,
        gc_grace_seconds: record.gc_grace_seconds,
        min_index_interval: record.min_index_interval,
        max_index_interval: record.max_index_interval,
        memtable_flush_period_in_ms: record.memtable_flush_period_in_ms,
        read_repair: record.read_repair,
        speculative_retry: record.speculative_retry,
        additional_write_policy: record.additional_write_policy,
        cdc: record.cdc,
        extensions: record.extensions,
        allow_auto_snapshot: !record.forbids_auto_snapshot,
        incremental_backups: !record.forbids_incremental_backups,
        paxos_grace_seconds: record.paxos_grace_seconds,
        guards_large_data: record.guards_large_data,
        rate_limits: record
            .rate_limits
            .map_or_else(RateLimits::default, |limits| RateLimits {
                reads: limits.reads,
                writes: limits.writes,
            }),
    })
}
