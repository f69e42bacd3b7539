//! TRUNCATE: asks the cluster for it.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use coordinator::replicas_to_truncate;
use schema::{Table, TableId};
use topology::HostId;

use super::Engine;
use crate::QueryError;

impl Engine {
    /// Empties a table. Its client waits so long; None for as long as the node's options say.
    pub(super) async fn truncate(
        self: &Rc<Self>,
        table: &Arc<Table>,
        timeout: Option<Duration>,
    ) -> Result<(), QueryError> {
        let failed = |e: String| QueryError::Truncate(format!("Error during truncate: {e}"));
        let table = table.id;
        let replicas = replicas_to_truncate(&self.coordinator.context, table).map_err(failed)?;
        let truncate = move || async move { Self::local().truncate_in_cluster(table, replicas, timeout).await };
        let truncated = coordinator::on_metadata_shard(truncate).await;
        truncated.map_err(failed)
    }

    /// On shard 0, which has the keeper of the cluster's metadata.
    async fn truncate_in_cluster(
        self: &Rc<Self>,
        table: TableId,
        replicas: Vec<HostId>,
        timeout: Option<Duration>,
    ) -> Result<(), String> {
        self.keeper()?.truncate(table, replicas, timeout).await
    }
}
