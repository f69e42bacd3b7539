//! At which levels this shard answers for a table alone, and the version of the cluster by which it does.

use replica::TableStore;
use schema::TableId;
use system_tables::KeyspaceKind;

use super::Context;
use crate::{ClusterView, Levels};

impl Context {
    /// Says to each table's store what a newer version of the cluster means. In the same step the stores get their
    /// tablets.
    pub(crate) fn set_levels_of_all(&self, view: &ClusterView) {
        for store in self.shard.stores() {
            self.set_levels(&store, view);
        }
    }

    /// Others refuse requests from before this version: this shard refuses them too, and answers nothing alone while
    /// its view is older.
    pub fn set_fenced_off(&self, before: u64) {
        self.fenced_off.set(before);
        self.set_levels_of_all(&self.view());
    }

    /// Says at which levels this node answers for a table alone: at none while a truncation is not done here, or done
    /// of which the view does not know, and while others refuse what is routed by the view; reads at none while an
    /// sstable of the table is missing here.
    fn set_levels(&self, store: &TableStore, view: &ClusterView) {
        let table = store.table().id;
        let truncated_at = view.truncated_at(table);
        let fence = self.fence(view);
        store.set_version(view.version, fence, truncated_at);
        let (reads, writes) = match view.route(table) {
            Some(_) if view.version < fence => (Levels::NONE, Levels::NONE),
            _ if truncated_at != store.truncated_at.get() => (Levels::NONE, Levels::NONE),
            // Other replicas have what an sstable had that is missing here.
            Some(route) if !store.is_whole.get() => (Levels::NONE, route.write_here),
            Some(route) => (route.read_here, route.write_here),
            None if system_tables::kind(&store.table().keyspace) == Some(KeyspaceKind::Local) => {
                (Levels::ALL, Levels::ALL)
            }
            // Its replicas are unknown.
            None => (Levels::NONE, Levels::NONE),
        };
        store.reads_here.set(reads.bits());
        store.writes_here.set(writes.bits());
    }

    /// A truncation of a table is done on this node, and its mark is durable.
    pub fn set_truncated_at(&self, table: TableId, version: u64) {
        if let Some(store) = self.shard.store(table) {
            store.set_truncated_at(version);
            self.set_levels(&store, &self.view());
        }
    }

    /// Learns what is quarantined of a table on this node, which some shard has changed.
    ///
    /// # Errors
    /// When the table's directory cannot be read.
    pub async fn look_for_quarantined(&self, table: TableId) -> Result<(), String> {
        let Some(store) = self.shard.store(table) else {
            return Ok(());
        };
        let looked = self.shard.look_for_quarantined(&store).await;
        self.set_levels(&store, &self.view());
        looked.inspect_err(|e| log::error!("cannot list the quarantined sstables of a table: {e}"))
    }
}
