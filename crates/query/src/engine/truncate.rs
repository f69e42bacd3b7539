//! TRUNCATE: asks the cluster for it.

use std::rc::Rc;
use std::sync::Arc;

use runtime::ShardId;
use schema::{Table, TableId};
use topology::HostId;

use super::Engine;
use crate::QueryError;

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
}
