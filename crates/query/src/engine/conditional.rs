//! Conditional statements and serial reads: bound here, decided by the coordinator (`coordinator/src/cas.rs`).
//!
//! A statement goes to the shard of this node that has its partition, or would have it, and takes its turn there among
//! the conditional statements and serial reads of that partition.
//!
//! Writes without conditions take no turn. They are ordered with conditional ones by their timestamps only, as in
//! Cassandra; so a conditional write takes a timestamp above everything that it read.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use coordinator::{CasRead, CasRequest, Deadline, Decision, Extent, ReadResult, Stretch};
use memory::{LateReservation, RowMemory};
use mutation::{ClusteringSlice, PartitionBlock};
use plan::write::{BoundWrite, ConditionalAnswer, ConditionalRequest, CurrentRows};
use plan::{Execution, RowSink, SelectPlan};
use runtime::ShardId;
use schema::Table;
use stdx::preempt;
use topology::Consistency;

use super::page::{Consumer, Flow};
use super::read::{BLOCK_BYTES, BlockSource, consume_partition, partition_left};
use super::write::deadline_of_all;
use super::{Engine, Request};
use crate::{QueryError, trace};

/// Rows that one step of a statement's read takes.
const STRETCH_ROWS: usize = 1000;

impl Engine {
    /// Executes statements on one partition, at least one of them conditional: all or none of them. `batch`: they are
    /// those of a BATCH.
    pub async fn execute_conditional(
        self: &Rc<Self>,
        mut statements: Vec<BoundWrite>,
        batch: bool,
        request: &Request,
    ) -> Result<ConditionalAnswer, QueryError> {
        for statement in &mut statements {
            if let Cow::Owned(read) = statement.plan.read_json(&statement.run)? {
                statement.run = read;
            }
        }
        let conditional = preempt::allowed(|| ConditionalRequest::new(&statements, batch))?;
        self.check_commit_level(&conditional, request.level)?;
        let bound = statements.iter().map(|s| (&*s.plan, &s.run));
        let deadline = deadline_of_all(bound, request)?;
        let owner = ShardId(self.coordinator.own.owner(conditional.table.id, conditional.token));
        if owner == self.coordinator.context.shard_id() {
            let answer = self.conditional_here(statements, &conditional, request, deadline).await;
            preempt::allowed(|| drop(conditional));
            return answer;
        }
        let request = request.clone();
        trace::submit(owner, move || async move {
            let engine = Self::local();
            let answer = engine
                .conditional_here(statements, &conditional, &request, deadline)
                .await;
            preempt::allowed(|| drop(conditional));
            answer
        })
        .await
    }

    /// EACH_QUORUM counts copies by datacenter, so the keyspace must say how many each has.
    fn check_commit_level(&self, conditional: &ConditionalRequest, level: Consistency) -> Result<(), QueryError> {
        if level != Consistency::EachQuorum {
            return Ok(());
        }
        let schema = self.schema();
        let keyspace = schema.keyspaces.get(&conditional.table.keyspace);
        let class = keyspace.and_then(|keyspace| keyspace.replication.get("class"));
        match class {
            Some(class) if !class.ends_with("NetworkTopologyStrategy") => Err(QueryError::Invalid(format!(
                "consistency level EACH_QUORUM not compatible with replication strategy ({class})"
            ))),
            _ => Ok(()),
        }
    }

    async fn conditional_here(
        self: &Rc<Self>,
        mut statements: Vec<BoundWrite>,
        conditional: &ConditionalRequest,
        request: &Request,
        deadline: Deadline,
    ) -> Result<ConditionalAnswer, QueryError> {
        // Its deletions have the second of this moment, and no report passes it while the statement waits for its turn
        // and for its replicas.
        let dated = self.coordinator.writes.date(request.level, deadline);
        statements
            .iter_mut()
            .for_each(|statement| statement.run.now_us = dated.now_us());
        let writes = &statements[..];
        let now = writes.first().map_or(0, |s| s.run.expiry_now());
        let read = conditional.what_to_read();
        let table = &conditional.table;
        let wanted = |slices: Vec<ClusteringSlice>, rows: usize| CasRead {
            extent: Extent::Partition {
                key: conditional.key.clone(),
                slices,
                reversed: false,
            },
            stretch: Stretch {
                rows,
                bytes: BLOCK_BYTES,
            },
        };
        let named = read.rows.iter().map(|row| ClusteringSlice::exactly(row));
        let named = preempt::allowed(|| preempt::collect(named));
        let mut reads = Vec::with_capacity(2);
        let named_at = (!named.is_empty()).then(|| {
            reads.push(wanted(named, STRETCH_ROWS));
            reads.len() - 1
        });
        let first_at = read.first_row.then(|| {
            reads.push(wanted(vec![ClusteringSlice::all()], 1));
            reads.len() - 1
        });
        let timeouts = self.coordinator.context.timeouts();
        let cas = CasRequest {
            table: table.clone(),
            key: conditional.key.clone(),
            reads,
            now,
            serial: request.serial_level,
            commit: dated.level,
            deadline: dated.deadline.or_after(timeouts.write),
            contention_deadline: dated.deadline.or_after(timeouts.cas_contention),
            timestamp_us: self.clock.timestamp(runtime::wall_clock_us()),
            memory: request
                .result_memory
                .clone()
                .map(|memory| Arc::new(LateReservation::new(memory)) as Arc<dyn RowMemory>),
        };
        let mut last: Option<Result<ConditionalAnswer, QueryError>> = None;
        let mut decide = |found: &mut [ReadResult], timestamp: i64| {
            for (at, is_enough) in [(named_at, false), (first_at, true)] {
                let Some(at) = at else { continue };
                let has_row = |found: &ReadResult| {
                    preempt::allowed(|| found.blocks.iter().any(|b| conditional.shows_row_of(b, now)))
                };
                let is_complete = found[at].is_all || (is_enough && has_row(&found[at]));
                if !is_complete {
                    return Decision::ReadOn(at);
                }
            }
            let mut blocks = |at: Option<usize>| at.map_or_else(Vec::new, |at| std::mem::take(&mut found[at].blocks));
            let rows = CurrentRows::new(blocks(named_at), blocks(first_at), now);
            let written = preempt::allowed(|| rows.timestamp_max(table));
            let decide = || {
                let applied = conditional.applies(&rows);
                let mutation = if applied {
                    conditional.mutation(writes, &rows, timestamp, &self.clock)?
                } else {
                    None
                };
                Ok((mutation, conditional.answer(applied, &rows)))
            };
            let decided = (written < timestamp).then(|| preempt::allowed(decide));
            // It may be asked again.
            for (at, blocks) in [(named_at, rows.named), (first_at, rows.first)] {
                if let Some(at) = at {
                    found[at].blocks = blocks;
                }
            }
            match decided {
                None => Decision::Above(written),
                Some(Ok((mutation, answer))) => {
                    last = Some(Ok(answer));
                    mutation.map_or(Decision::Keep, Decision::Write)
                }
                Some(Err(e)) => {
                    last = Some(Err(e));
                    Decision::Keep
                }
            }
        };
        let done = self.coordinator.cas.compare_and_set(&cas, &mut decide).await;
        preempt::allowed(|| preempt::drop_each(statements));
        done.map_err(QueryError::of_replicas)?;
        last.unwrap_or_else(|| Err(QueryError::Server("a conditional statement ended undecided".to_owned())))
    }

    /// Reads one partition at SERIAL or LOCAL_SERIAL.
    pub(super) async fn serial_partition(
        self: &Rc<Self>,
        select: &SelectPlan,
        run: &Execution,
        consumer: &mut Consumer<impl RowSink>,
        key: &[u8],
        serial: Consistency,
    ) -> Result<Flow, QueryError> {
        // Rows that are filtered or aggregated do not fill the page one by one.
        let is_plain = !select.may_read_much();
        let mut read = SerialRead {
            engine: Rc::clone(self),
            table: Arc::clone(&select.table),
            serial,
            now: run.expiry_now(),
            stretch: Stretch {
                rows: consumer.rows_wanted(),
                bytes: BLOCK_BYTES,
            },
            rows: if is_plain { consumer.rows_left() } else { usize::MAX },
            ready: VecDeque::new(),
            deadline: consumer.own_deadline(),
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
    deadline: Deadline,
    left: Option<Extent>,
}

impl BlockSource for SerialRead {
    async fn next_block(&mut self) -> Result<Option<PartitionBlock>, QueryError> {
        while self.ready.is_empty() {
            let Some(extent) = self.left.take() else {
                return Ok(None);
            };
            let (engine, table) = (&self.engine, &self.table);
            let deadline = self.deadline.or_after(engine.coordinator.context.timeouts().read);
            let read = CasRead {
                extent: extent.clone(),
                stretch: self.stretch,
            };
            let found = engine
                .coordinator
                .cas
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
