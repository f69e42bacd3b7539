//! TRUNCATE on this node: asks the cluster for it, and takes it over on all shards. The steps are those of `coordinator/src/truncate.rs`.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use replica::TruncationMark;
use runtime::ShardId;
use schema::{Table, TableId};
use topology::HostId;

use super::Engine;
use crate::QueryError;

/// How long a truncation that failed, say because the disk fails, is left alone.
const RETRY_DELAY: Duration = Duration::from_millis(500);

impl Engine {
    pub(super) async fn truncate(self: &Rc<Self>, table: &Arc<Table>) -> Result<(), QueryError> {
        let failed = |e: String| QueryError::Truncate(format!("Error during truncate: {e}"));
        let table = table.id;
        let replicas = self.coordinator.replicas_to_truncate(table).map_err(failed)?;
        let truncate = move || async move { Self::local().truncate_in_cluster(table, replicas).await };
        let truncated = runtime::submit_async_to(ShardId(0), truncate).await;
        truncated.map_err(failed)
    }

    /// On shard 0, which knows who keeps the cluster's metadata.
    async fn truncate_in_cluster(self: &Rc<Self>, table: TableId, replicas: Vec<HostId>) -> Result<(), String> {
        self.keeper()?.truncate(table, replicas).await
    }

    /// Does on all shards what is left to do of the truncations in the view: after a change of the cluster, and at a start. On shard 0.
    pub async fn finish_truncations(self: &Rc<Self>) {
        for (table, version) in self.coordinator.view().truncations() {
            let Some(store) = self.shard.store(table) else { continue };
            let mut is_told = false;
            while store.truncated_at.get() < version {
                let Err(e) = self.truncate_here(table, version).await else {
                    break;
                };
                if !std::mem::replace(&mut is_told, true) {
                    let table = store.table();
                    log::error!(
                        "the truncation of {}.{} is tried again until it succeeds, and requests to the table wait: {e}",
                        table.keyspace,
                        table.name
                    );
                }
                runtime::sleep(RETRY_DELAY).await;
            }
        }
    }

    async fn truncate_here(self: &Rc<Self>, table: TableId, version: u64) -> Result<(), String> {
        on_all_shards(|engine| async move {
            let settled = engine.shard.settle_batches().await;
            settled.map_err(|e| format!("a batch before it failed: {e}"))
        })
        .await?;
        on_all_shards(move |engine| async move { engine.coordinator.forget_table(table).await }).await?;
        let Some(store) = self.shard.store(table) else {
            return Ok(());
        };
        let dir = store.dir.clone();
        let marked = runtime::offload(move || TruncationMark::of(&dir).write(version)).await;
        marked.map_err(|e| format!("the mark of the truncation cannot be written: {e}"))?;
        on_all_shards(move |engine| async move {
            if let Some(store) = engine.shard.store(table) {
                store.set_truncated_at(version);
                engine.set_levels_here(&store, &engine.coordinator.view());
            }
            Ok(())
        })
        .await
    }
}

/// Has every shard of this node do a part, all at once.
pub(super) async fn on_all_shards<F>(part: impl Fn(Rc<Engine>) -> F + Clone + Send + 'static) -> Result<(), String>
where
    F: Future<Output = Result<(), String>> + 'static,
{
    let asked: Vec<_> = (0..runtime::shard_count())
        .map(|shard| {
            let part = part.clone();
            runtime::submit_async_to(ShardId(shard), move || part(Engine::local()))
        })
        .collect();
    let mut result = Ok(());
    for part in asked {
        result = result.and(part.await);
    }
    result
}
