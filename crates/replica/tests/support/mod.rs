//! A shard alone on a simulated machine, and reads of a partition.

pub mod two_shards;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use commitlog::{Commitlog, OldLog, SyncMode};
use mutation::ClusteringSlice;
use replica::{BlockLimits, NotedBatches, PartitionRead, Shard, ShardOptions, TableFiles, TokenRange};
use runtime::ShardId;
use schema::{Column, ColumnKind, Table, TableId, TableOptions};
use tasks::Tasks;
use types::CqlType;
use types::token::token_of;
use uuid::Uuid;

/// `sea.t (k blob, c int, v blob, PRIMARY KEY (k, c))`
pub fn blobs() -> Arc<Table> {
    let columns = vec![
        Column::new("k", CqlType::Blob, ColumnKind::PartitionKey),
        Column::new("c", CqlType::Int, ColumnKind::Clustering),
        Column::new("v", CqlType::Blob, ColumnKind::Regular),
    ];
    let id = TableId(Uuid::from_u128(7));
    Arc::new(Table::new("sea", "t", id, columns, TableOptions::default()))
}

/// How much the shard may hold.
#[derive(Clone, Copy)]
pub struct Limits {
    pub cache_bytes_max: usize,
    pub dirty_bytes_max: usize,
    pub segment_bytes: u64,
    pub log_bytes_max: u64,
}

impl Limits {
    /// Roomy ones, but for the cache.
    pub fn of_cache(cache_bytes_max: usize) -> Self {
        Self {
            cache_bytes_max,
            dirty_bytes_max: 16 << 20,
            segment_bytes: 1 << 20,
            log_bytes_max: 64 << 20,
        }
    }
}

/// The only shard of a node, with its log in `/log` and its files in `/data`; the last earlier sstable has this
/// generation.
pub fn shard(cache_bytes_max: usize, generation: u64) -> Rc<Shard> {
    shard_with(
        Limits::of_cache(cache_bytes_max),
        generation,
        Tasks::new(1, Uuid::nil()),
    )
}

/// A shard with these limits, of a node with these tasks.
pub fn shard_with(limits: Limits, generation: u64, tasks: Arc<Tasks>) -> Rc<Shard> {
    for dir in ["/log", "/data"] {
        runtime::fs::create_dir_all(dir).expect("the disk works");
    }
    runtime::fs::sync_dir("/").expect("the disk works");
    let old_log = OldLog::take(Path::new("/log")).expect("the disk works");
    let log = Commitlog::new(commitlog::Options {
        dir: PathBuf::from("/log"),
        shard: 0,
        shards: 1,
        segment_bytes: limits.segment_bytes,
        sync: SyncMode::Periodic(Duration::from_secs(1)),
        boot_id: runtime::boot_id(),
        first_segment: old_log.last_segment + 1,
    });
    let options = ShardOptions {
        shard: ShardId(0),
        shards: 1,
        data_dir: PathBuf::from("/data"),
        dirty_bytes_max: limits.dirty_bytes_max,
        cache_bytes_max: limits.cache_bytes_max,
        log_bytes_max: limits.log_bytes_max,
        generations: Arc::new(sstable::Generations::above(generation)),
        noted_batches: Arc::new(NotedBatches::new()),
        activity: Arc::default(),
        compaction_room: Arc::default(),
        tasks,
        host_id: Uuid::from_u128(1),
    };
    Shard::new(options, log)
}

/// Opens what the shard has of a table, with those tablets.
pub fn open_table(shard: &Shard, table: &Arc<Table>, ranges: &[TokenRange]) {
    let files = TableFiles::open(table, &shard.table_dir(table)).expect("the files are whole");
    shard.open_table(table, ranges, &files);
}

/// Replays the log of the runs before. No other shard has any of it.
pub async fn replay(shard: &Rc<Shard>) {
    let nobody = async |_| panic!("the only shard has every token");
    let replayed = shard.replay(Path::new("/log"), runtime::boot_id(), nobody).await;
    replayed.expect("the log is whole");
    shard.end_replay();
}

/// All of a partition, so many rows at once.
pub fn whole(key: &[u8], rows: usize) -> PartitionRead {
    PartitionRead {
        token: token_of(key),
        key: key.to_vec(),
        slices: vec![ClusteringSlice::all()],
        reversed: false,
        limits: BlockLimits { rows, bytes: 1 << 20 },
    }
}
