//! Removes the snapshots of this node that belong to no backup: it was deleted while the node was down, or its
//! coordinator ended before it was available.

use std::rc::Rc;
use std::time::Duration;

use dynamodb::Error;

use super::{CREATING_MS_MAX, SNAPSHOT_PREFIX, nodes, now_ms, unavailable};
use crate::service::Service;

/// How often a node looks.
const SWEEP_PERIOD: Duration = Duration::from_secs(60);

impl Service {
    /// Removes snapshots of no backup, again and again; never returns. On shard 0 of every node.
    pub async fn sweep_backups(self: Rc<Self>) {
        loop {
            runtime::sleep(SWEEP_PERIOD).await;
            if !runtime::is_clock_trusted() {
                continue;
            }
            if let Err(error) = self.sweep_backups_once().await {
                log::debug!("snapshots of deleted backups may stay for another minute: {error}");
            }
        }
    }

    /// Removes the snapshots of this node that belong to no backup, and returns how many. On shard 0.
    ///
    /// # Errors
    /// When the records cannot be read, or the disk refuses.
    pub async fn sweep_backups_once(self: &Rc<Self>) -> Result<usize, Error> {
        if self.backups_table()?.is_none() {
            return Ok(0);
        }
        let mut removed = 0;
        for snapshot in nodes::stored().await.map_err(unavailable)? {
            let Some(id) = snapshot.name.strip_prefix(SNAPSHOT_PREFIX) else {
                continue;
            };
            // A snapshot may be there before this node sees its record.
            let made_ms = id.split('-').next().and_then(|ms| ms.parse::<i64>().ok());
            if made_ms.is_none_or(|ms| ms + CREATING_MS_MAX > now_ms()) || self.read_backup(id).await?.is_some() {
                continue;
            }
            log::info!("snapshot {} is of no backup and is removed", snapshot.name);
            nodes::remove(snapshot.name).await.map_err(unavailable)?;
            removed += 1;
        }
        Ok(removed)
    }
}
