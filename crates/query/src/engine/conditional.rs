//! Conditional statements: one after the other on each partition.
//!
//! A statement goes to the shard that owns its partition and waits there for its turn among the conditional statements
//! and serial reads of that partition, first come, first served. In its turn it reads, decides and writes; then the next
//! one goes on. It is answered when everything that conditional statements wrote there is durable, whatever mode the log
//! is in, so that nobody is told of a decision that a crash may take back; those that come one after the other share
//! the syncs.
//!
//! Writes without conditions take no turn. They are ordered with conditional ones by their timestamps only, as in
//! Cassandra; so a conditional write takes a timestamp above everything that it read.
//!
//! All that holds for a node that is alone in its cluster. Where there are others, the turn is taken too, and the order is decided
//! by a quorum of the partition's replicas: [`super::replicated_conditional`].

use std::rc::Rc;
use std::sync::Arc;

use commitlog::ReplayPosition;
use coordinator::Turn;
use mutation::{ClusteringSlice, Mutation, PartitionBlock};
use replica::{BlockLimits, PartitionRead, PartitionReader, WriteError};
use runtime::ShardId;
use schema::Table;
use topology::Consistency;
use types::Token;

use super::write::{failure, log_failure};
use super::{Engine, Params};
use crate::QueryError;
use crate::write::{ConditionalAnswer, CurrentRows, ReadSpec, Request, Statement};

/// Rows that one step of a read takes from each source.
const BLOCK_ROWS: usize = 1000;
/// Bytes that one step of a read takes from each source.
const BLOCK_BYTES: usize = 256 << 10;

/// The levels of a conditional statement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Levels {
    /// Where it is decided.
    pub(super) serial: Consistency,
    /// How many replicas have learned the decision before it is answered.
    pub(super) commit: Consistency,
}

impl Engine {
    /// Ends a turn: lets the next one go on, and waits until what was written in this turn and the turns before it is durable.
    pub(super) async fn finish(&self, turn: Turn) -> Result<(), QueryError> {
        let ended = turn.end();
        let synced = self.shard.log.synced(ended.written()).await;
        synced.map_err(|e| log_failure(&e))
    }

    /// How many partitions of this shard have conditional statements or serial reads under way.
    pub fn contended_partitions(&self) -> usize {
        self.turns.partitions()
    }

    /// Executes statements on one partition, at least one of them conditional: all or none of them. `batch`: they are
    /// those of a BATCH.
    pub async fn execute_conditional(
        self: &Rc<Self>,
        statements: Vec<Statement>,
        batch: bool,
        params: &Params,
    ) -> Result<ConditionalAnswer, QueryError> {
        let request = Request::new(&statements, batch)?;
        let levels = Levels {
            serial: params.serial_consistency,
            commit: params.consistency,
        };
        let owner = ShardId(self.owner(request.table.id, request.token));
        if owner == self.shard.id() {
            return self.conditional_here(&statements, &request, levels).await;
        }
        runtime::submit_async_to(owner, move || async move {
            Self::local().conditional_here(&statements, &request, levels).await
        })
        .await
    }

    async fn conditional_here(
        self: &Rc<Self>,
        statements: &[Statement],
        request: &Request,
        levels: Levels,
    ) -> Result<ConditionalAnswer, QueryError> {
        let now_us = statements.first().map_or(0, |s| s.run.now_us);
        let now = u32::try_from(now_us / 1_000_000).unwrap_or(0);
        let read = request.what_to_read();
        let mut decide = |rows: &CurrentRows, timestamp: i64| {
            let applied = request.applies(rows);
            let mutation = match applied {
                true => request.mutation(statements, rows, timestamp, &self.clock)?,
                false => None,
            };
            Ok((mutation, request.answer(applied, rows)))
        };
        let (table, token, key) = (&request.table, request.token, &request.key);
        match self.cas(table, token, key, read, now, &mut decide).await? {
            Some(answer) => Ok(answer),
            None => self.replicated_cas(table, key, read, now, levels, &mut decide).await,
        }
    }

    /// Compare and set: reads rows of one partition of this shard and writes what `decide` makes of them, as if nobody
    /// else did so at the same time. `decide` is given the timestamp to write at; its second result is returned when the
    /// decision is durable. None: this node may not decide alone, and nothing is written.
    pub async fn cas<R>(
        self: &Rc<Self>,
        table: &Arc<Table>,
        token: Token,
        key: &[u8],
        read: &ReadSpec,
        now: u32,
        mut decide: impl FnMut(&CurrentRows, i64) -> Result<(Option<Vec<u8>>, R), QueryError>,
    ) -> Result<Option<R>, QueryError> {
        let Some(turn) = self.turn_alone(table.id, key).await else {
            return Ok(None);
        };
        let result = loop {
            let epoch = self.epoch(table, token);
            let rows = self.current_rows(table, token, key, read, now).await?;
            if !self.decides_alone(table.id) {
                return Ok(None);
            }
            let clock = self.clock.timestamp(runtime::wall_clock_us());
            let timestamp = clock.max(rows.timestamp_max(table).saturating_add(1));
            let (mutation, result) = decide(&rows, timestamp)?;
            let Some(bytes) = mutation else { break result };
            if let Some(position) = self.write_decided(table, token, &bytes, epoch).await? {
                turn.wrote(position);
                break result;
            }
        };
        self.finish(turn).await?;
        Ok(Some(result))
    }

    /// How often what is here of a token was truncated.
    fn epoch(&self, table: &Table, token: Token) -> Option<u64> {
        let store = self.shard.store(table.id)?;
        store.tablet(token).map(|tablet| tablet.epoch())
    }

    /// Writes and hands it to the kernel; it is not durable yet. None: the table was truncated since it was read in this epoch, or this node may not
    /// decide alone any more, and nothing is written.
    async fn write_decided(
        self: &Rc<Self>,
        table: &Table,
        token: Token,
        bytes: &[u8],
        epoch: Option<u64>,
    ) -> Result<Option<ReplayPosition>, QueryError> {
        let mutation = Mutation::new(bytes).expect("it was packed just now");
        loop {
            let Some(store) = self.shard.store(table.id) else {
                return Err(dropped(table));
            };
            if self.epoch(table, token) != epoch || !self.decides_alone(table.id) {
                return Ok(None);
            }
            let losses = self.shard.log.losses();
            match self.shard.write(&store, token, &mutation) {
                Ok(_) => return self.commit_since(losses).map(Some),
                Err(WriteError::MemoryFull) => self.shard.room().await.map_err(|e| failure(&e))?,
                Err(e) => return Err(failure(&e)),
            }
        }
    }

    async fn current_rows(
        self: &Rc<Self>,
        table: &Arc<Table>,
        token: Token,
        key: &[u8],
        read: &ReadSpec,
        now: u32,
    ) -> Result<CurrentRows, QueryError> {
        let slices = read.rows.iter().map(|row| ClusteringSlice::exactly(row)).collect();
        let named = self.blocks(table, token, key, slices, |_| false).await?;
        let first = match read.first_row {
            true => {
                let all = vec![ClusteringSlice::all()];
                let is_last = |block: &PartitionBlock| CurrentRows::has_live_row(table, block, now);
                self.blocks(table, token, key, all, is_last).await?
            }
            false => Vec::new(),
        };
        Ok(CurrentRows { named, first, now })
    }

    /// The blocks of a partition's slices, up to the first one that is the last one wanted.
    async fn blocks(
        self: &Rc<Self>,
        table: &Arc<Table>,
        token: Token,
        key: &[u8],
        slices: Vec<ClusteringSlice>,
        is_last: impl Fn(&PartitionBlock) -> bool,
    ) -> Result<Vec<PartitionBlock>, QueryError> {
        let store = self.shard.store(table.id).ok_or_else(|| dropped(table))?;
        let tablet = store
            .tablet(token)
            .ok_or_else(|| QueryError::Server("a token came to a shard that does not own it".to_owned()))?;
        let read = PartitionRead {
            token,
            key: key.to_vec(),
            slices,
            reversed: false,
            limits: BlockLimits {
                rows: BLOCK_ROWS,
                bytes: BLOCK_BYTES,
            },
        };
        let cache = self.shard.cache.clone();
        let mut reader = PartitionReader::new(table.clone(), tablet.version(), cache, read);
        let mut blocks = Vec::new();
        while let Some(block) = reader.next_block().await.map_err(super::read::failure)? {
            let ends = is_last(&block);
            blocks.push(block);
            if ends {
                break;
            }
        }
        Ok(blocks)
    }
}

fn dropped(table: &Table) -> QueryError {
    QueryError::invalid(format!("unconfigured table {}", table.name))
}
