//! Maintenance mode: a member runs apart from its cluster, so that an operator can read and repair its own data.
//!
//! The node takes the cluster as its own copy of the metadata says, with all other members down. It opens no connection
//! to them and listens to none, takes no part in the metadata group, and changes nothing of what the group agrees on.
//! Clients reach it at the maintenance socket alone. Requests go through the coordinator as they always do: what this
//! node is a replica of it reads and writes at the levels that one replica meets, everything else is unavailable, never
//! empty. What the other replicas miss is kept for them as hints and counted as missed, as on any coordinator whose
//! peers are down.
//!
//! Lives on shard 0, sees the node.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use coordinator::Coordinator;
use query::Engine;
use query::engine::{KeepError, SchemaKeeper};
use runtime::ShardId;
use schema::{Schema, TableId};
use topology::{DiskLevel, HostId};
use uuid::Uuid;

use crate::cluster::{describe_peers, in_decimal, watch_logs_here};
use crate::disk_space;
use crate::recover::METADATA_DIR;
use crate::start::Shared;

/// Begins what every refusal says.
pub(crate) const REASON: &str = "the node is in maintenance mode";

/// Why what needs the cluster is refused.
pub(crate) fn refusal() -> String {
    format!("{REASON}, apart from its cluster: restart it without maintenance_mode for this")
}

/// Why a node is refused that was never in a cluster: it has nothing to maintain.
pub(crate) fn needs_metadata(dir: &Path) -> String {
    format!(
        "maintenance_mode is for a node that has been in its cluster, and there is no metadata in {}: start it without first",
        dir.display()
    )
}

/// Refuses changes of what the cluster agrees on.
struct Refusing;

impl SchemaKeeper for Refusing {
    fn change(
        &self,
        _base: Uuid,
        _next: Arc<Schema>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<String>, KeepError>> + '_>> {
        Box::pin(std::future::ready(Err(KeepError::Refused(refusal()))))
    }

    fn truncate(
        &self,
        _table: TableId,
        _replicas: Vec<HostId>,
        _timeout: Option<Duration>,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + '_>> {
        Box::pin(std::future::ready(Err(refusal())))
    }
}

/// Begins what a member does beside requests that needs no other. On shard 0, when every shard has its engine.
///
/// # Errors
/// When the node was never in a cluster.
pub(crate) fn enter(shared: &Arc<Shared>, engine: &Rc<Engine>) -> Result<(), String> {
    let metadata = shared.metadata.as_ref();
    let metadata = metadata.ok_or_else(|| needs_metadata(&shared.config.workdir.join(METADATA_DIR)))?;
    shared.forget_first_view();
    engine.set_keeper(Rc::new(Refusing));
    let me = HostId(shared.host_id);
    let peers = describe_peers(metadata, me, |_| None, |_| false);
    if let Some(node) = metadata.topology.node(me) {
        shared.note_members(in_decimal(&node.tokens), node.state, peers);
    }
    let number = engine.coordinator.context.with_view(|view| view.me);
    drop(runtime::spawn(watch_logs_here(shared.clone(), move |trouble| {
        let takes = trouble.is_none();
        for shard in 0..runtime::shard_count() {
            drop(runtime::submit_to(ShardId(shard), move || {
                Coordinator::local().set_takes_writes(number, takes);
            }));
        }
        std::future::ready(())
    })));
    disk_space::watch(
        shared,
        Box::new(move |level: DiskLevel| {
            for shard in 0..runtime::shard_count() {
                drop(runtime::submit_to(ShardId(shard), move || {
                    Coordinator::local().set_disk_level(number, level);
                }));
            }
        }),
    );
    log::warn!(
        "{REASON}: it takes no part in its cluster, and serves its own data on the maintenance socket alone. To other nodes it is down"
    );
    Ok(())
}
