//! One shard's tablets: write, read, flush, replay.
//!
//! A [`Shard`] owns its log and, for every table, the tablets whose token ranges are its own. A [`Tablet`] is a
//! memtable being written, memtables being flushed, and sstables: together a [`Version`], which readers hold while they
//! wait. Nothing here knows another shard or node; nothing long runs here: flush and compaction are jobs on background
//! threads that read frozen memtables and sstables, and each of them is a task (`docs/dev/tasks.md`).
//!
//! Invariants
//! - A write is in the log before it is in a memtable; it is acknowledged only after [`Shard::commit`].
//! - A memtable is frozen, flushed and only then dropped; the log keeps a segment until no memtable needs it.
//! - Dirty memory has a limit: above half of it the largest memtable is flushed, at the limit writers wait, and those
//!   that wait too long are refused by value.
//! - What a read returns is the merge of every source of one version; the active memtable is read in the same step in
//!   which the answer is made.

mod activity;
mod arrivals;
pub mod aside;
mod baseline;
mod compact;
mod copies;
mod cut_ahead;
mod discard;
mod export;
mod files;
mod flush;
mod flush_period;
mod idle;
pub mod kinds;
mod large;
mod links;
mod load;
mod marks;
mod memory;
mod merged_row;
mod noted_batches;
mod point;
mod quarantine;
mod read;
mod reader;
mod reconcile;
mod recovery;
mod repaired;
mod retention;
mod room;
mod row_cache;
mod scan;
mod shard;
mod snapshot;
mod succession;
mod table_metrics;
mod tablet;
mod top_partitions;
pub mod trace;
mod truncation;

pub use activity::Activity;
pub use arrivals::new_counter_source;
pub use baseline::{Baseline, Lost};
pub use compact::{Compacted, OnCompaction};
pub use discard::has_others;
pub use export::{ExportError, Exported, Exports, Wanted, hull};
pub use files::{INCOMING, STREAMS, TableCuts, TableFiles, UNOWNED, prepare_sstables};
pub use large::{Measured, MeasuredRow, Touched};
pub use marks::{Inheritance, MarkError, RepairSet, forget_all_records};
pub use memory::MemoryStats;
pub use merged_row::{InMemory, RowBuffers, RowProjection};
pub use noted_batches::{NotedBatches, min_timestamp};
pub use point::{PlainRow, RowName, Sources, row_of};
pub use quarantine::{DiskFailure, OnDiskFailure};
pub use read::{
    BlockLimits, PartitionRead, PartitionReader, PausedCounts, PausedReaders, ReadError, ScanReader, split_block,
};
pub use reader::{ReadOptions, ShardReader};
pub use reconcile::{AdoptError, Sealed, WantedTable};
pub use recovery::{Foreign, RecoveryError, RecoveryStats};
pub use repaired::{PurgeHold, RepairedRange};
pub use retention::{HoldTombstones, PROPOSAL_LIFE_MIN, TombstoneHold, paxos_state_id, proposal_life};
pub use room::CompactionRoom;
pub use row_cache::{CachedRow, RowCacheBudget};
pub use scan::TabletScan;
pub use shard::{Shard, ShardOptions, WriteError, shard_range};
pub use snapshot::{SNAPSHOTS, Work};
pub use succession::changes_shards;
pub use table_metrics::{Recorded, Samplers, TableHistogram, TableMetrics, requests};
pub use tablet::{Admission, Frozen, RebuildGuard, TableStore, Tablet, TokenRange, Version};
pub use top_partitions::{SAMPLED_KEYS_MAX, Sampled, Sampler};
pub use truncation::TruncationMark;
