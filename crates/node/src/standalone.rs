//! The schema of an embedded node, which meets no others: in the same metadata file as that of a member of a cluster.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::cluster::{ChangeError, Command, Metadata, SchemaChange, Standalone};
use coordinator::Coordinator;
use query::Engine;
use query::engine::{KeepError, SchemaKeeper};
use schema::{Schema, TableId};
use topology::HostId;
use uuid::Uuid;

use crate::recover::METADATA_DIR;
use crate::shard_main::follower;
use crate::start::Shared;
use crate::view::view_of;

/// Keeps the schema of an embedded node. Lives on shard 0.
struct Keeper {
    shared: Arc<Shared>,
    standalone: Standalone,
}

/// Has the engine of shard 0 keep its schema in this node's metadata file.
pub(crate) fn keep(shared: &Arc<Shared>, engine: &Rc<Engine>) {
    let metadata = shared.metadata.clone();
    let metadata = metadata.expect("an embedded node has metadata from its first start on");
    engine.set_keeper(Rc::new(Keeper {
        shared: shared.clone(),
        standalone: Standalone::new(shared.config.workdir.join(METADATA_DIR), metadata),
    }));
}

impl Keeper {
    async fn propose(&self, command: Command) -> Result<(), ChangeError> {
        let next: Arc<Metadata> = self.standalone.propose(command).await?;
        let before = Coordinator::local().context.view();
        let view = view_of(&self.shared, &next, &before).map_err(ChangeError::Stopping)?;
        drop(before);
        follower().follow(&next.schema, Arc::new(view)).await;
        Ok(())
    }
}

impl SchemaKeeper for Keeper {
    fn change(
        &self,
        base: Uuid,
        next: Arc<Schema>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<String>, KeepError>> + '_>> {
        Box::pin(async move {
            let now = self.standalone.metadata();
            if now.schema.version != base {
                return Err(KeepError::Conflict);
            }
            let change = SchemaChange::between(&now.schema, &next);
            match self.propose(Command::Schema(change)).await {
                Ok(()) => Ok(Vec::new()),
                Err(ChangeError::Conflict) => Err(KeepError::Conflict),
                Err(e) => Err(KeepError::Failed(format!("The schema change failed: {e}"))),
            }
        })
    }

    fn truncate(
        &self,
        table: TableId,
        _replicas: Vec<HostId>,
        timeout: Option<Duration>,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + '_>> {
        Box::pin(async move {
            let timeout = timeout.unwrap_or(self.shared.config.timeouts.truncate);
            let truncated = runtime::timeout(timeout, self.propose(Command::Truncate { table })).await;
            let truncated = truncated.map_err(|_| format!("it was not done after {timeout:?}; it continues"))?;
            truncated.map_err(|e| e.to_string())
        })
    }
}
