//! A shard's start: the sstables it finds, the log it replays.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use commitlog::{Replay, ReplayError};
use mutation::Mutation;
use schema::{Table, TableId};
use types::Token;
use types::token::token_of;

use crate::files::TableFiles;
use crate::shard::Shard;
use crate::tablets::tablet::TokenRange;

/// How long a replay waits for memory.
const REPLAY_ROOM_WAIT_MAX: Duration = Duration::from_secs(60);

/// Why a shard does not start.
#[derive(Debug)]
pub enum RecoveryError {
    /// The log.
    Log(ReplayError),
    /// What another shard found in its log.
    Foreign(String),
    /// A memtable could not be flushed to make room for the log's writes.
    Flush(String),
}

impl std::fmt::Display for RecoveryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Log(e) => e.fmt(f),
            Self::Foreign(e) => write!(f, "the commitlog of another shard has {e}"),
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

/// A mutation that a shard found in its log, of a token that it does not have.
#[derive(Clone, Debug)]
pub struct Foreign {
    /// The table.
    pub table: TableId,
    /// Of the partition.
    pub token: Token,
    /// Packed.
    pub mutation: Vec<u8>,
}

impl Shard {
    /// Adds a table with the tablets that this shard has of it, and those of the table's sstables that are theirs.
    pub fn open_table(&self, table: &Arc<Table>, ranges: &[TokenRange], files: &TableFiles) {
        let store = self.add_table(table, ranges, &files.sstables);
        store.truncated_at.set(files.truncated_at);
        store.set_quarantined(&files.quarantined);
    }

    /// Replays the log of earlier runs into memtables, flushing where memory asks for it. What is of a table here and
    /// of no tablet here is given to `hand_over`, some at a time: its tablet may have moved to another shard. Every
    /// shard has its tables before the first replays; when all have, [`Shard::end_replay`] is called on each.
    ///
    /// # Errors
    /// When the log is damaged, memory stays full, or something could not be handed over.
    pub async fn replay(
        self: &Rc<Self>,
        dir: &Path,
        boot_id: u128,
        hand_over: impl AsyncFn(Vec<Foreign>) -> Result<(), RecoveryError>,
    ) -> Result<RecoveryStats, RecoveryError> {
        let shards = self.options.shards;
        let mut replay = Replay::open(dir, boot_id, self.id().0, shards).map_err(RecoveryError::Log)?;
        self.replaying.set(true);
        loop {
            let mut foreign = Vec::new();
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
                        foreign.push(Foreign {
                            table: m.table,
                            token,
                            mutation: record.mutation.to_vec(),
                        });
                        return Ok(());
                    };
                    m.validate(&store.table.borrow().layout).map_err(|e| e.to_string())?;
                    self.apply(&tablet, token, &m, 0);
                    Ok(())
                })
                .map_err(RecoveryError::Log)?;
            if !foreign.is_empty() {
                hand_over(foreign).await?;
            }
            if !more {
                break;
            }
            self.room_for_replay().await?;
        }
        let unfinished_batches = replay.unfinished_batches();
        let stats = replay.stats();
        Ok(RecoveryStats {
            mutations: stats.mutations,
            segments: stats.segments,
            unfinished_batches,
        })
    }

    /// Applies what another shard of the node found in its log. Mutations of tokens that this shard does not have
    /// belong to no shard: they are left out. Returns how many.
    ///
    /// # Errors
    /// When a mutation is not what its table takes, or memory stays full.
    pub async fn replay_foreign(self: &Rc<Self>, mutations: &[Foreign]) -> Result<u64, RecoveryError> {
        self.replaying.set(true);
        let mut unowned = 0;
        for Foreign { table, token, mutation } in mutations {
            self.room_for_replay().await?;
            let store = self.store(*table);
            let Some((store, tablet)) = store.and_then(|s| s.tablet(*token).map(|tablet| (s, tablet))) else {
                unowned += 1;
                continue;
            };
            let damaged = |expected: String| RecoveryError::Foreign(format!("a mutation of {}: {expected}", table.0));
            let mutation = Mutation::new(mutation).ok_or_else(|| damaged("expected a whole one".to_owned()))?;
            let valid = mutation.validate(&store.table.borrow().layout);
            valid.map_err(|e| damaged(e.to_string()))?;
            self.apply(&tablet, *token, &mutation, 0);
        }
        Ok(unowned)
    }

    /// The logs of earlier runs are read to their ends, by all shards of the node.
    pub fn end_replay(&self) {
        self.replaying.set(false);
    }

    async fn room_for_replay(&self) -> Result<(), RecoveryError> {
        while self.dirty.is_full() {
            let released = runtime::timeout(REPLAY_ROOM_WAIT_MAX, self.dirty.released()).await;
            released.map_err(|_| RecoveryError::Flush("flushing did not end within a minute".to_owned()))?;
        }
        Ok(())
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
