//! A shard alone on a simulated machine, and reads of a partition.

pub mod two_shards;

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use commitlog::SyncMode;
use mutation::ClusteringSlice;
use replica::{BlockLimits, PartitionRead, Shard, TableFiles, TokenRange};
use runtime::ShardId;
use schema::{Column, ColumnKind, Table, TableId, TableOptions};
use test_node::{Options, Process};
use types::CqlType;
use types::token::KeyHash;
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

/// What a shard with a cache of this size is made of.
pub fn options(cache_bytes_max: usize) -> Options {
    Options {
        cache_bytes_max,
        sync: SyncMode::Periodic(Duration::from_secs(1)),
        ..Options::default()
    }
}

/// The only shard of a node, without tables; the last earlier sstable has this generation.
pub fn shard(cache_bytes_max: usize, generation: u64) -> Rc<Shard> {
    shard_with(options(cache_bytes_max), generation)
}

/// The only shard of a node with these options, without tables; the last earlier sstable has this generation.
pub fn shard_with(options: Options, generation: u64) -> Rc<Shard> {
    let generations = Some(Arc::new(sstable::Generations::above(generation)));
    let process = Process::start(Options { generations, ..options }, Vec::new());
    process.open(ShardId(0))
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
        hash: KeyHash::of(key),
        key: key.to_vec(),
        slices: vec![ClusteringSlice::all()],
        reversed: false,
        limits: BlockLimits { rows, bytes: 1 << 20 },
    }
}
