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

mod compaction;
mod files;
mod flush;
pub mod kinds;
mod metrics;
mod read;
mod recovery;
mod shard;
mod tablets;
mod tombstones;
pub mod trace;
pub mod write;

pub use compaction::index_build::IndexProgress;
pub use compaction::room::CompactionRoom;
pub use compaction::{Compacted, OnCompaction};
pub use files::baseline::{Baseline, Lost};
pub use files::export::{ExportError, ExportRequest, Exported, Exports, hull};
pub use files::quarantine::{DiskFailure, OnDiskFailure, QuarantineChange};
pub use files::snapshot::{SNAPSHOTS, Work};
pub use files::{INCOMING, STREAMS, TableCuts, TableFiles, UNOWNED, clean_directory, prepare_sstables, table_dir};
pub use metrics::activity::Activity;
pub use metrics::large::{Measured, MeasuredRow, Touched};
pub use metrics::table_metrics::{Recorded, Samplers, TableHistogram, TableMetrics, requests};
pub use metrics::top_partitions::{SAMPLED_KEYS_MAX, Sampled, Sampler};
pub use read::merged_row::{InMemory, RowBuffers, RowProjection};
pub use read::point::{PlainRow, RowName, Sources, row_of};
pub use read::reader::{ReadOptions, ShardReader};
pub use read::row_cache::{CachedRow, RowCacheBudget};
pub use read::scan::TabletScan;
pub use read::{
    BlockLimits, PartitionRead, PartitionReader, PausedCounts, PausedReaders, ReadError, ScanReader, split_block,
};
pub use recovery::{Foreign, RecoveryError, RecoveryStats};
pub use shard::{Shard, ShardOptions, WriteError, shard_range};
pub use tablets::arrivals::new_counter_source;
pub use tablets::discard::has_others;
pub use tablets::reconcile::{AdoptError, Sealed, WantedTable};
pub use tablets::succession::changes_shards;
pub use tablets::tablet::{Admission, Frozen, RebuildGuard, TableStore, Tablet, TokenRange, Version};
pub use tablets::truncation::TruncationMark;
pub use tombstones::marks::{Inheritance, MarkError, RepairSet, forget_all_records};
pub use tombstones::repaired::{PurgeHold, RepairedRange};
pub use tombstones::{HoldTombstones, PROPOSAL_LIFE_MIN, TombstoneHold, paxos_state_id, proposal_life};
pub use write::memory::MemoryStats;
pub use write::noted_batches::{NotedBatches, min_timestamp};
