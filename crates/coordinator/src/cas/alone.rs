//! At which levels this shard answers for a table alone, and the version of the cluster by which it does.

use std::rc::Rc;
use std::sync::Arc;

use replica::{TableStore, paxos_state_id};
use schema::TableId;
use system_tables::KeyspaceKind;

use crate::handoff::on_all_shards;
use crate::{ClusterView, Coordinator, Levels};

impl Coordinator {
    /// Takes over a newer version of the cluster, and says to each table's store what it means. In the same step the
    /// stores get their tablets.
    pub fn take_view(&self, view: Arc<ClusterView>) {
        for store in self.context.shard.stores() {
            self.set_levels(&store, &view);
        }
        self.set_view(view);
    }

    /// Others refuse requests from before this version: this shard refuses them too, and answers nothing alone while
    /// its view is older.
    pub fn set_fenced_off(&self, before: u64) {
        self.context.fenced_off.set(before);
        let view = self.view();
        for store in self.context.shard.stores() {
            self.set_levels(&store, &view);
        }
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

    /// Begins to answer alone as the view says, and to follow what becomes of the tables' files.
    pub fn begin_alone(&self) {
        self.take_view(self.view());
        self.context.shard.on_quarantine(Box::new(|table| {
            drop(runtime::spawn(on_all_shards(move |coordinator, _| async move {
                coordinator.look_for_quarantined(table).await
            })));
        }));
    }

    /// A truncation of a table is done on this node, and its mark is durable.
    pub fn set_truncated_at(&self, table: TableId, version: u64) {
        if let Some(store) = self.context.shard.store(table) {
            store.set_truncated_at(version);
            self.set_levels(&store, &self.view());
        }
    }

    /// Learns what is quarantined of a table on this node, which some shard has changed.
    ///
    /// # Errors
    /// When the table's directory cannot be read.
    pub async fn look_for_quarantined(&self, table: TableId) -> Result<(), String> {
        let Some(store) = self.context.shard.store(table) else {
            return Ok(());
        };
        let looked = self.context.shard.look_for_quarantined(&store).await;
        self.set_levels(&store, &self.view());
        looked.inspect_err(|e| log::error!("cannot list the quarantined sstables of a table: {e}"))
    }

    /// Forgets what this shard's acceptors have in memory of tokens that are not its own any more. In the step in which
    /// the tablets of `changed` left.
    pub fn forget_left(&self, changed: &[Rc<TableStore>]) {
        for store in changed {
            // Those of a table's states leave with the table's.
            let table = store.table().id;
            if self.context.shard.store(paxos_state_id(table)).is_some() {
                self.cas
                    .acceptor
                    .forget_left(table, |token| store.tablet(token).is_none());
            }
        }
    }
}
