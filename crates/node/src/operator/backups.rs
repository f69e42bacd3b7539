//! The files of backups of the DynamoDB API: snapshots of this node whose names begin with `backup-`.

use std::rc::Rc;

use dynamodb_engine::backups::{BackupFiles, SNAPSHOT_PREFIX, StoredSnapshot, TakenSnapshot, Work, keep_files};
use query::Engine;
use runtime::fs;
use schema::TableId;

use super::snapshots::{self, MANIFEST};

/// Gives the DynamoDB API the files of this node. On shard 0.
pub(crate) fn keep(engine: &Rc<Engine>) {
    keep_files(Box::new(Files(engine.clone())));
}

struct Files(Rc<Engine>);

impl BackupFiles for Files {
    fn take(&self, table: TableId, name: String) -> Work<TakenSnapshot> {
        let engine = self.0.clone();
        Box::pin(async move { snapshots::keep_for_backup(&engine, table, name).await })
    }

    fn stored(&self) -> Work<Vec<StoredSnapshot>> {
        let data_dir = self.0.coordinator.context.shard.data_dir().to_owned();
        let find = move || {
            let found = snapshots::find(&data_dir)?.into_iter();
            let of_backups = found.filter(|stored| stored.snapshot.tag.starts_with(SNAPSHOT_PREFIX));
            let stored = of_backups.map(|stored| StoredSnapshot {
                is_whole: fs::exists(stored.dir.join(MANIFEST)),
                name: stored.snapshot.tag,
                directory: stored.dir,
            });
            Ok(stored.collect())
        };
        Box::pin(runtime::offload(find))
    }

    fn remove(&self, name: String) -> Work<()> {
        let data_dir = self.0.coordinator.context.shard.data_dir().to_owned();
        let remove = move || {
            for stored in snapshots::find(&data_dir)? {
                if stored.snapshot.tag == name && name.starts_with(SNAPSHOT_PREFIX) {
                    let at = |error| format!("{}: {error}", stored.dir.display());
                    fs::remove_dir_all(&stored.dir).map_err(at)?;
                }
            }
            Ok(())
        };
        Box::pin(runtime::offload(remove))
    }
}
