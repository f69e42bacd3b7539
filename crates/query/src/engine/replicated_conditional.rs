//! Conditional statements and serial reads where the cluster has other nodes: in their turn on this shard, and then as a quorum of the
//! partition's replicas decides.
//!
//! Correctness does not depend on the turn: it makes the statements of one node wait for each other instead of refusing each other's
//! ballots. Its wait is part of the statement's time.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use coordinator::{CasRead, CasRequest, CoordinatorError, Decision, Extent, Found, Stretch, Tally, Turn};
use mutation::{ClusteringSlice, PartitionBlock};
use replica::TableStore;
use runtime::Instant;
use schema::{Table, TableId};
use topology::Consistency;

use super::conditional::Levels;
use super::read::{BLOCK_BYTES, BlockSource, consume_partition, partition_left};
use super::{Engine, Execution};
use crate::QueryError;
use crate::select::{Consumer, Flow, SelectPlan};
use crate::write::{CurrentRows, ReadSpec};

/// Rows that one round of requests reads.
const STRETCH_ROWS: usize = 1000;

/// What a statement does to rows at a timestamp: a mutation or none, and its answer.
type Decided<R> = Result<(Option<Vec<u8>>, R), QueryError>;

impl Engine {
    /// Whether the cluster has no other node that might take part in a decision.
    pub(super) fn is_alone(&self) -> bool {
        self.coordinator.view().topology.members().nth(1).is_none()
    }

    /// Whether this node decides about rows of a table by its own copy, without a round of Paxos: it is alone, and neither behind a fence, nor within a
    /// truncation, nor without an sstable of the table.
    pub(super) fn decides_alone(&self, table: TableId) -> bool {
        let is_withdrawn = |store: Rc<TableStore>| store.reads_here.get() == 0 || store.writes_here.get() == 0;
        self.is_alone() && !self.shard.store(table).is_some_and(is_withdrawn)
    }

    /// A turn in which this node decides by its own copy; None when it may not.
    pub(super) async fn turn_alone(&self, table: TableId, key: &[u8]) -> Option<Turn> {
        if !self.decides_alone(table) {
            return None;
        }
        let turn = self.turns.take(table, key).await;
        // It may have waited for long.
        self.decides_alone(table).then_some(turn)
    }

    /// Waits for a turn, at most until the deadline.
    async fn turn_until(
        self: &Rc<Self>,
        table: &Table,
        key: &[u8],
        serial: Consistency,
        deadline: Instant,
    ) -> Result<Turn, QueryError> {
        let left = deadline.saturating_duration_since(runtime::now());
        let turn = runtime::timeout(left, self.turns.take(table.id, key)).await;
        turn.map_err(|_| {
            let tally = Tally {
                consistency: serial,
                received: 0,
                block_for: 1,
            };
            QueryError::of_replicas(CoordinatorError::CasTimeout { tally, contentions: 1 })
        })
    }

    /// Compare and set on the replicas of a partition. `decide` may be called several times; its last result counts.
    pub(super) async fn replicated_cas<R>(
        self: &Rc<Self>,
        table: &Arc<Table>,
        key: &[u8],
        read: &ReadSpec,
        now: u32,
        levels: Levels,
        decide: &mut dyn FnMut(&CurrentRows, i64) -> Decided<R>,
    ) -> Result<R, QueryError> {
        let deadline = runtime::now() + self.coordinator.timeouts().write;
        let _turn = self.turn_until(table, key, levels.serial, deadline).await?;
        let wanted = |slices: Vec<ClusteringSlice>| CasRead {
            extent: Extent::Partition {
                key: key.to_vec(),
                slices,
                reversed: false,
            },
            stretch: Stretch {
                rows: STRETCH_ROWS,
                bytes: BLOCK_BYTES,
            },
        };
        let named: Vec<ClusteringSlice> = read.rows.iter().map(|row| ClusteringSlice::exactly(row)).collect();
        let mut reads = Vec::with_capacity(2);
        let named_at = (!named.is_empty()).then(|| {
            reads.push(wanted(named));
            reads.len() - 1
        });
        let first_at = read.first_row.then(|| {
            reads.push(CasRead {
                stretch: Stretch {
                    rows: 1,
                    bytes: BLOCK_BYTES,
                },
                ..wanted(vec![ClusteringSlice::all()])
            });
            reads.len() - 1
        });
        let request = CasRequest {
            table: table.clone(),
            key: key.to_vec(),
            reads,
            now,
            serial: levels.serial,
            commit: levels.commit,
            deadline,
            contention_deadline: runtime::now() + self.coordinator.timeouts().cas_contention,
        };
        let mut last: Option<Result<R, QueryError>> = None;
        let mut decide_once = |found: &mut [Found], timestamp: i64| {
            for (at, is_enough) in [(named_at, false), (first_at, true)] {
                let Some(at) = at else { continue };
                let has_live = |found: &Found| found.blocks.iter().any(|b| CurrentRows::has_live_row(table, b, now));
                let is_complete = found[at].is_all || (is_enough && has_live(&found[at]));
                if !is_complete {
                    return Decision::ReadOn(at);
                }
            }
            let mut blocks = |at: Option<usize>| at.map_or_else(Vec::new, |at| std::mem::take(&mut found[at].blocks));
            let rows = CurrentRows {
                named: blocks(named_at),
                first: blocks(first_at),
                now,
            };
            let written = rows.timestamp_max(table);
            let decided = (written < timestamp).then(|| decide(&rows, timestamp));
            // It may be asked again.
            for (at, blocks) in [(named_at, rows.named), (first_at, rows.first)] {
                if let Some(at) = at {
                    found[at].blocks = blocks;
                }
            }
            let Some(decided) = decided else {
                return Decision::Above(written);
            };
            match decided {
                Ok((mutation, result)) => {
                    last = Some(Ok(result));
                    mutation.map_or(Decision::Keep, Decision::Write)
                }
                Err(e) => {
                    last = Some(Err(e));
                    Decision::Keep
                }
            }
        };
        let done = self.coordinator.cas(&request, &mut decide_once).await;
        done.map_err(QueryError::of_replicas)?;
        last.unwrap_or_else(|| Err(QueryError::Server("a conditional statement ended undecided".to_owned())))
    }

    /// Reads one partition at SERIAL or LOCAL_SERIAL.
    pub(super) async fn serial_partition(
        self: &Rc<Self>,
        select: &SelectPlan,
        run: &Execution,
        consumer: &mut Consumer,
        key: &[u8],
        serial: Consistency,
    ) -> Result<Flow, QueryError> {
        // Rows that are filtered or aggregated do not fill the page one by one.
        let is_plain = !select.may_read_much();
        let mut read = SerialRead {
            engine: Rc::clone(self),
            table: Arc::clone(&select.table),
            serial,
            now: u32::try_from(run.now_us / 1_000_000).unwrap_or(0),
            stretch: Stretch {
                rows: consumer.rows_wanted(),
                bytes: BLOCK_BYTES,
            },
            rows: if is_plain { consumer.rows_left() } else { usize::MAX },
            ready: VecDeque::new(),
            left: Some(partition_left(select, run, consumer, key)?),
        };
        consume_partition(select, run, consumer, &mut read).await
    }
}

/// A serial read of one partition: a page's worth at a time, each of one moment.
struct SerialRead {
    engine: Rc<Engine>,
    table: Arc<Table>,
    serial: Consistency,
    now: u32,
    stretch: Stretch,
    /// Living rows that must be of one moment.
    rows: usize,
    ready: VecDeque<PartitionBlock>,
    left: Option<Extent>,
}

impl BlockSource for SerialRead {
    async fn next_block(&mut self) -> Result<Option<PartitionBlock>, QueryError> {
        while self.ready.is_empty() {
            let Some(extent) = self.left.take() else {
                return Ok(None);
            };
            let Extent::Partition { key, .. } = &extent else {
                return Err(QueryError::Server("a serial read is of one partition".to_owned()));
            };
            let (engine, table) = (&self.engine, &self.table);
            let deadline = runtime::now() + engine.coordinator.timeouts().read;
            let _turn = engine.turn_until(table, key, self.serial, deadline).await?;
            let read = CasRead {
                extent: extent.clone(),
                stretch: self.stretch,
            };
            let found = engine
                .coordinator
                .serial_read(table, read, self.rows, self.serial, self.now, deadline)
                .await;
            let found = found.map_err(QueryError::of_replicas)?;
            if let (false, Some(last)) = (found.is_all, found.blocks.last()) {
                self.left = extent.behind(last, &table.clustering_order);
            }
            self.ready.extend(found.blocks);
        }
        Ok(self.ready.pop_front())
    }

    async fn skip_partition(&mut self) -> Result<(), QueryError> {
        self.ready.clear();
        self.left = None;
        Ok(())
    }
}
