//! A shard's start: the sstables it finds, the log it replays.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use commitlog::{Replay, ReplayError};
use mutation::Mutation;
use schema::Table;
use sstable::Reader;
use types::token::token_of;

use crate::shard::Shard;
use crate::tablet::TokenRange;
use crate::truncation::TruncationMark;

/// Why a shard does not start.
#[derive(Debug)]
pub enum RecoveryError {
    /// The log.
    Log(ReplayError),
    /// An sstable; the text names file and place.
    Sstable(String),
    /// A memtable could not be flushed to make room for the log's writes.
    Flush(String),
}

impl std::fmt::Display for RecoveryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Log(e) => e.fmt(f),
            Self::Sstable(e) => f.write_str(e),
            Self::Flush(e) => write!(f, "cannot make room for the commitlog's writes: {e}"),
        }
    }
}

impl std::error::Error for RecoveryError {}

/// What a start found.
#[derive(Clone, Debug, Default)]
pub struct RecoveryStats {
    /// Mutations replayed.
    pub mutations: u64,
    /// Log segments read.
    pub segments: usize,
    /// Batches that perhaps did not reach every shard, by id: packed mutations, to be written again.
    pub unfinished_batches: Vec<(u128, Vec<Vec<u8>>)>,
}

impl Shard {
    /// Adds a table with the tablets that this shard has of it, and opens their sstables.
    pub fn open_table(self: &Rc<Self>, table: &Arc<Table>, ranges: &[TokenRange]) -> Result<(), RecoveryError> {
        let dir = self.table_dir(table);
        let mut sstables = Vec::new();
        if runtime::fs::exists(&dir) {
            sstables = Reader::open_all(&dir, table).map_err(|e| RecoveryError::Sstable(e.to_string()))?;
        }
        self.set_table(table, ranges, &sstables);
        let truncated_at = TruncationMark::of(&dir).read().map_err(RecoveryError::Sstable)?;
        let Some(store) = self.store(table.id) else {
            return Ok(());
        };
        store.truncated_at.set(truncated_at);
        let quarantined = sstable::quarantined(&dir).map_err(|e| RecoveryError::Sstable(e.to_string()))?;
        store.set_quarantined(&quarantined);
        Ok(())
    }

    /// Replays the log of earlier runs into memtables, flushing where memory asks for it.
    pub async fn replay(self: &Rc<Self>, dir: &Path, boot_id: u128) -> Result<RecoveryStats, RecoveryError> {
        let shards = self.options.shards;
        let mut replay = Replay::open(dir, boot_id, self.id().0, shards).map_err(RecoveryError::Log)?;
        self.replaying.set(true);
        loop {
            let more = replay
                .next_segment(|record| {
                    let Some(m) = Mutation::new(record.mutation) else {
                        return Err("a whole mutation".to_owned());
                    };
                    let Some(store) = self.store(m.table) else {
                        // A table that was dropped since.
                        return Ok(());
                    };
                    let token = token_of(m.key);
                    let Some(tablet) = store.tablet(token) else {
                        // Another shard's.
                        return Ok(());
                    };
                    m.validate(&store.table.borrow().layout).map_err(|e| e.to_string())?;
                    self.apply(tablet, token, &m, 0);
                    Ok(())
                })
                .map_err(RecoveryError::Log)?;
            if !more {
                break;
            }
            while self.dirty.is_full() {
                if runtime::timeout(Duration::from_secs(60), self.dirty.released())
                    .await
                    .is_err()
                {
                    return Err(RecoveryError::Flush("flushing did not end within a minute".to_owned()));
                }
            }
        }
        self.replaying.set(false);
        let unfinished_batches = replay.unfinished_batches();
        let stats = replay.stats();
        Ok(RecoveryStats {
            mutations: stats.mutations,
            segments: stats.segments,
            unfinished_batches,
        })
    }

    /// Says that files of an earlier run's log are still there.
    pub fn keep_old_log(&self) {
        self.old_log.set(true);
    }

    /// Says that no file of an earlier run's log is there any more.
    pub async fn forget_old_log(&self) {
        self.old_log.set(false);
        self.release_log().await;
    }
}
