//! Reads that this node cannot answer alone: the consumer stays here, and the coordinator brings it blocks that the
//! consistency level vouches for.

use std::rc::Rc;
use std::time::Duration;

use coordinator::{Extent, ReplicatedRead, Stretch};
use mutation::PartitionBlock;
use plan::{Execution, RowSink, SelectPlan};
use topology::Consistency;
use types::Token;

use super::Engine;
use super::page::{Consumer, Flow};
use super::paging_state::Position;
use super::read::{BLOCK_BYTES, BlockSource, consume_partition, consume_scan, partition_left, start_behind};
use crate::QueryError;

impl BlockSource for ReplicatedRead {
    async fn next_block(&mut self) -> Result<Option<PartitionBlock>, QueryError> {
        Self::next_block(self).await.map_err(QueryError::of_replicas)
    }

    async fn skip_partition(&mut self) -> Result<(), QueryError> {
        Self::skip_partition(self);
        Ok(())
    }
}

impl Engine {
    pub(super) fn replicated(
        &self,
        select: &SelectPlan,
        run: &Execution,
        consumer: &Consumer<impl RowSink>,
        extent: Extent,
        (level, waited): (Consistency, Duration),
    ) -> Result<ReplicatedRead, QueryError> {
        let now = run.expiry_now();
        let stretch = Stretch {
            rows: consumer.rows_wanted(),
            bytes: BLOCK_BYTES,
        };
        let view = self.coordinator.context.view();
        let read = ReplicatedRead::new(
            &self.coordinator.reads,
            &view,
            &select.table,
            level,
            extent,
            now,
            stretch,
        );
        let read = read
            .map_err(QueryError::of_replicas)?
            .bypassing_cache(select.bypasses_cache)
            .with_row_memory(consumer.row_memory());
        let read = if waited.is_zero() {
            read
        } else {
            read.within(self.coordinator.context.timeouts().read.saturating_sub(waited))
        };
        Ok(read.until(consumer.own_deadline()))
    }

    /// Reads one partition from its replicas.
    pub(super) async fn replicated_partition(
        self: &Rc<Self>,
        select: &SelectPlan,
        run: &Execution,
        consumer: &mut Consumer<impl RowSink>,
        key: &[u8],
        level: (Consistency, Duration),
    ) -> Result<Flow, QueryError> {
        let extent = partition_left(select, run, consumer, key)?;
        let lookups = if select.reversed {
            Vec::new()
        } else {
            run.with(|ctx| select.restrictions.lookups(ctx))?
        };
        let read = self.replicated(select, run, consumer, extent, level)?;
        let mut read = read.listed_by(lookups);
        consume_partition(select, run, consumer, &mut read).await
    }

    /// Reads the partitions of tokens `from..=to` from their replicas, in order.
    pub(super) async fn replicated_tokens(
        self: &Rc<Self>,
        select: &SelectPlan,
        run: &Execution,
        consumer: &mut Consumer<impl RowSink>,
        (from, to): (Token, Token),
        level: Consistency,
    ) -> Result<Flow, QueryError> {
        let lookups = run.with(|ctx| select.restrictions.lookups(ctx))?;
        if !lookups.is_empty() {
            return self
                .replicated_listed(select, run, consumer, (from, to), (lookups, level))
                .await;
        }
        let start = match consumer.position().clone() {
            Position::Start => (from, Vec::new()),
            Position::BehindPartition { key } => start_behind(key, from),
            Position::BehindRow { key, .. } => {
                let flow = self
                    .replicated_partition(select, run, consumer, &key, (level, Duration::ZERO))
                    .await?;
                if matches!(flow, Flow::PageFull | Flow::Done) {
                    return Ok(flow);
                }
                start_behind(key, from)
            }
        };
        run.with(|ctx| consumer.begin_scan(select, ctx))?;
        let extent = Extent::Tokens {
            after: Token(start.0.0.saturating_sub(1)),
            to,
            from: start,
            inside: None,
        };
        let mut read = self.replicated(select, run, consumer, extent, (level, Duration::ZERO))?;
        consume_scan(select, run, consumer, &mut read).await
    }
}
