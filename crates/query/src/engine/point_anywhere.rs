//! Point reads that run as a task: the row may be on another shard.

use std::rc::Rc;
use std::sync::Arc;

use coordinator::{on_shard, trace};
use memory::UNRESERVED_ROW_BYTES_MAX;
use plan::{Execution, PageSink, SelectPlan};
use runtime::ShardId;
use topology::Consistency;

use super::point::PointOutcome;
use super::read::Page;
use super::{Engine, Request};
use crate::QueryError;

/// What the memory of a shard has of a row.
enum InMemory<S> {
    /// The answer.
    Page(Page<S>),
    /// The row is longer than the caller accepts: its length in the answer.
    Long(usize),
    /// Memory cannot answer.
    Unknown,
    /// Another shard owns the key.
    OtherShard(u32),
}

impl Engine {
    /// Answers a point read on the shard that owns its key: from memory, or from a file whose answer is then in memory.
    /// None: by the general way.
    pub(super) async fn point_anywhere<S: PageSink>(
        self: &Rc<Self>,
        select: &Arc<SelectPlan>,
        run: &Execution,
        request: &Request,
    ) -> Result<Option<Page<S>>, QueryError> {
        let level = request.level;
        let mut owner = self.coordinator.context.shard_id();
        let mut bytes_max = match &request.reservation {
            Some(_) => UNRESERVED_ROW_BYTES_MAX,
            None => usize::MAX,
        };
        loop {
            match self.point_in_memory(owner, select, run, (level, bytes_max)).await? {
                InMemory::Page(page) => {
                    trace::note(|| {
                        if owner == self.coordinator.context.shard_id() {
                            "The row is in memory".to_owned()
                        } else {
                            format!("The row is in the memory of shard {}", owner.0)
                        }
                    });
                    return Ok(Some(page));
                }
                // The row is read again: a thousand copies that wait for memory would take it.
                InMemory::Long(bytes) => {
                    if let Some(reservation) = &request.reservation {
                        reservation.grow_for_row(bytes).await?;
                    }
                    bytes_max = usize::MAX;
                }
                // While a tablet moves, its owner by the map may not have it yet, and may be this shard.
                InMemory::OtherShard(shard) if owner == self.coordinator.context.shard_id() && shard != owner.0 => {
                    owner = ShardId(shard)
                }
                InMemory::OtherShard(_) | InMemory::Unknown => break,
            }
        }
        if owner == self.coordinator.context.shard_id() {
            return self.point_from_disk(select, run, level, None).await;
        }
        let (select, run) = (select.clone(), run.clone());
        trace::submit(owner, move || async move {
            Engine::local().point_from_disk(&select, &run, level, None).await
        })
        .await
    }

    /// Reads a row of at most `bytes_max` bytes from the memory of a shard.
    async fn point_in_memory<S: PageSink>(
        &self,
        shard: ShardId,
        select: &Arc<SelectPlan>,
        run: &Execution,
        (level, bytes_max): (Consistency, usize),
    ) -> Result<InMemory<S>, QueryError> {
        if shard == self.coordinator.context.shard_id() {
            return self.point_in_own_memory(select, run, (level, bytes_max));
        }
        let (select, run) = (select.clone(), run.clone());
        let read = move || Engine::local().point_in_own_memory(&select, &run, (level, bytes_max));
        match bytes_max {
            usize::MAX => trace::submit(shard, move || async move { read() }).await,
            _ => on_shard(shard, read).await,
        }
    }

    fn point_in_own_memory<S: PageSink>(
        &self,
        select: &SelectPlan,
        run: &Execution,
        (level, bytes_max): (Consistency, usize),
    ) -> Result<InMemory<S>, QueryError> {
        let mut sink = S::default();
        Ok(
            match run.with_unpreempted(|ctx| self.read_admitted(select, ctx, level, &mut sink))? {
                PointOutcome::Rows(_) if sink.bytes() > bytes_max => InMemory::Long(sink.bytes()),
                PointOutcome::Rows(rows) => InMemory::Page(Page::of_point(rows, sink)),
                PointOutcome::OtherShard(owner) => InMemory::OtherShard(owner),
                PointOutcome::NeedsDisk | PointOutcome::Missed | PointOutcome::Unconfirmed(_) => {
                    self.forget_unconfirmed();
                    InMemory::Unknown
                }
            },
        )
    }
}
