//! One process of a node: its directories, its log of earlier runs, and what its shards share.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use commitlog::{Commitlog, OldLog, SyncMode};
use replica::{
    Activity, CompactionRoom, Foreign, NotedBatches, RecoveryStats, Shard, ShardOptions, TableCuts, TableFiles,
    TokenRange,
};
use runtime::ShardId;
use schema::Table;
use sstable::Generations;
use tasks::{Origin, Spec, Tasks};
use types::Token;
use uuid::Uuid;

/// What a process is made of; the default is one shard with some megabytes of memory, whose writes are durable when
/// they are acknowledged.
#[derive(Clone)]
pub struct Options {
    /// Identity of the node.
    pub host_id: Uuid,
    /// Number of shards.
    pub shards: u32,
    /// The directory that has `log` and `data`.
    pub dir: PathBuf,
    /// When a write is durable.
    pub sync: SyncMode,
    /// Size of a segment of the log in bytes.
    pub segment_bytes: u64,
    /// Most bytes of log of a shard.
    pub log_bytes_max: u64,
    /// Most bytes of memtables of a shard.
    pub dirty_bytes_max: usize,
    /// Most bytes of cached sstable blocks of a shard.
    pub cache_bytes_max: usize,
    /// Names for sstables; None for numbers above those in the directories of the tables.
    pub generations: Option<Arc<Generations>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            host_id: Uuid::from_u128(1),
            shards: 1,
            dir: PathBuf::from("/"),
            sync: SyncMode::Batch,
            segment_bytes: 1 << 20,
            log_bytes_max: 64 << 20,
            dirty_bytes_max: 16 << 20,
            cache_bytes_max: 1 << 20,
            generations: None,
        }
    }
}

/// A table and the tablets that each shard of the node has of it.
#[derive(Clone)]
pub struct Hosted {
    /// The table.
    pub table: Arc<Table>,
    /// Token ranges of the tablets, by shard.
    pub tablets: Vec<Vec<TokenRange>>,
}

impl Hosted {
    /// A table of which each shard has an equal part of the token ring, as one tablet.
    #[must_use]
    pub fn on_ring(table: Arc<Table>, shards: u32) -> Self {
        let tablets = (0..shards).map(|shard| vec![replica::shard_range(shard, shards)]);
        Self {
            table,
            tablets: tablets.collect(),
        }
    }

    /// All tablets of the table: those of this node, and the gaps between them, which other nodes have.
    fn cuts(&self) -> TableCuts {
        let mut here = self.tablets.concat();
        here.sort_by_key(|range| range.to);
        let (mut all, mut after) = (Vec::new(), Token(i64::MIN));
        for range in &here {
            if after < range.after {
                all.push(TokenRange { after, to: range.after });
            }
            all.push(*range);
            after = range.to;
        }
        if after < Token(i64::MAX) {
            all.push(TokenRange {
                after,
                to: Token(i64::MAX),
            });
        }
        TableCuts { all, here }
    }
}

/// What the shards of one process share. A test calls [`Process::open`] for each shard, and then
/// [`Process::recover`] or [`Process::replay`].
pub struct Process {
    options: Options,
    tables: Vec<(Hosted, TableFiles)>,
    old_log: OldLog,
    generations: Arc<Generations>,
    tasks: Arc<Tasks>,
    noted_batches: Arc<NotedBatches>,
    activity: Arc<Activity>,
    compaction_room: Arc<CompactionRoom>,
}

impl Process {
    /// Makes the directories if they are missing, and opens what an earlier run has left there. Blocks.
    #[must_use]
    pub fn start(options: Options, tables: Vec<Hosted>) -> Self {
        let (log_dir, data_dir) = (options.dir.join("log"), options.dir.join("data"));
        for dir in [&log_dir, &data_dir] {
            runtime::fs::create_dir_all(dir).expect("the disk takes directories");
        }
        // Else a power loss takes the directories, with everything that was synced in them.
        runtime::fs::sync_dir(&options.dir).expect("the disk syncs directories");
        let old_log = OldLog::take(&log_dir).expect("the log's directory can be read");
        let mut largest = 0;
        for Hosted { table, .. } in &tables {
            let cleaned = replica::clean_directory(&replica::table_dir(&data_dir, table));
            largest = largest.max(cleaned.expect("the table's directory can be read"));
        }
        let generations = options.generations.clone();
        let generations = generations.unwrap_or_else(|| Arc::new(Generations::above(largest)));
        let tasks = Tasks::new(options.shards, options.host_id);
        let open = |hosted: Hosted| {
            let task = tasks.start(Spec::of(&replica::kinds::RESHARD), &Origin::Node);
            let dir = replica::table_dir(&data_dir, &hosted.table);
            let made_by = (&generations, options.host_id);
            let prepared = replica::prepare_sstables(&hosted.table, &dir, &hosted.cuts(), made_by, &task.control());
            let (files, _) = prepared.expect("the sstables can be opened");
            (hosted, files)
        };
        Self {
            tables: tables.into_iter().map(open).collect(),
            options,
            old_log,
            generations,
            tasks,
            noted_batches: Arc::default(),
            activity: Arc::default(),
            compaction_room: Arc::default(),
        }
    }

    /// Opens a shard with its part of every table. It has not read the log of earlier runs.
    #[must_use]
    pub fn open(&self, id: ShardId) -> Rc<Shard> {
        let options = &self.options;
        let log = Commitlog::new(commitlog::Options {
            dir: options.dir.join("log"),
            shard: id.0,
            shards: options.shards,
            segment_bytes: options.segment_bytes,
            sync: options.sync,
            boot_id: runtime::boot_id(),
            first_segment: self.old_log.last_segment + 1,
        });
        let shard = Shard::new(
            ShardOptions {
                shard: id,
                shards: options.shards,
                data_dir: options.dir.join("data"),
                dirty_bytes_max: options.dirty_bytes_max,
                cache_bytes_max: options.cache_bytes_max,
                log_bytes_max: options.log_bytes_max,
                generations: self.generations.clone(),
                tasks: self.tasks.clone(),
                noted_batches: self.noted_batches.clone(),
                activity: self.activity.clone(),
                compaction_room: self.compaction_room.clone(),
                host_id: options.host_id,
            },
            log,
        );
        for (hosted, files) in &self.tables {
            shard.open_table(&hosted.table, &hosted.tablets[id.0 as usize], files);
        }
        shard
    }

    /// Replays the log of earlier runs on these shards. A mutation that one of them finds, and whose token another one
    /// has, is applied there; a mutation of a token that none of them has is left out. Until the old log is removed,
    /// the shards purge no tombstones. Returns what each found.
    pub async fn replay(&self, shards: &[Rc<Shard>]) -> Vec<RecoveryStats> {
        if self.has_old_log() {
            shards.iter().for_each(|shard| shard.keep_old_log());
        }
        let log_dir = self.options.dir.join("log");
        let mut found = Vec::new();
        for shard in shards {
            let hand_over = async |foreign: Vec<Foreign>| {
                for shard in shards {
                    let is_here = |f: &&Foreign| {
                        shard
                            .store(f.table)
                            .is_some_and(|store| store.tablet(f.token).is_some())
                    };
                    let its: Vec<Foreign> = foreign.iter().filter(is_here).cloned().collect();
                    shard.replay_foreign(&its).await?;
                }
                Ok(())
            };
            let replayed = shard.replay(&log_dir, runtime::boot_id(), hand_over).await;
            found.push(replayed.expect("the log is whole"));
        }
        shards.iter().for_each(|shard| shard.end_replay());
        found
    }

    /// Whether an earlier run has left a log.
    #[must_use]
    pub fn has_old_log(&self) -> bool {
        !self.old_log.segments.is_empty()
    }

    /// Flushes what was replayed, and removes the log of earlier runs. These are all shards of the process.
    pub async fn forget_old_log(&self, shards: &[Rc<Shard>]) {
        for shard in shards {
            shard.flush_all().await.expect("the disk works");
        }
        self.old_log.remove().expect("the disk works");
        for shard in shards {
            shard.forget_old_log().await;
        }
    }

    /// Replays the log of earlier runs, and removes it. These are all shards of the process.
    pub async fn recover(&self, shards: &[Rc<Shard>]) {
        self.replay(shards).await;
        self.forget_old_log(shards).await;
    }
}
