//! Makes tables of backups.
//!
//! The definition of the new table says that it is being restored, and of what. Every node that has files of the backup
//! sees that in the schema, writes its rows, and notes that it is done. The node that finds all done makes the table
//! active. A node that crashes begins its part again: writing a row twice is as writing it once.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use coordinator::{Atomicity, Dated, Deadline, Mutations, WriteKind};
use dynamodb::backup::{Backup, BackupStatus};
use dynamodb::table::TableDefinition;
use dynamodb::{AttributeValue, Error, ErrorKind, arn};
use mutation::Addressed;
use sstable::Reader;
use tasks::{Class, Kind, Module, Origin, Spec, Task};
use topology::Consistency;
use types::Token;
use uuid::Uuid;

use super::rows::{self, Restored, SnapshotFiles};
use super::{AT_ONCE_MAX, limit_exceeded, nodes, tag_of, unavailable};
use crate::definitions::RestoreEnd;
use crate::service::Service;
use crate::table::ItemTable;

/// How often a node looks for tables that are being restored.
const LOOK_PERIOD: Duration = Duration::from_millis(500);
/// Bytes of mutations that are written at once, about.
const WRITE_BYTES: usize = 256 << 10;
/// Mutations that are written at once.
const WRITE_MUTATIONS_MAX: usize = 64;
/// How often a write is tried again before the part begins from the start.
const WRITE_TRIES: u32 = 60;
/// The pause before the next try.
const WRITE_PAUSE: Duration = Duration::from_secs(1);

/// A node's part of a restore. See docs/dev/tasks.md.
const RESTORE: Kind = Kind {
    name: "restore table",
    module: Module::Snapshot,
    class: Class::Maintenance,
    units: "sstables",
    // The schema says that the table is being restored: the node would begin again.
    is_abortable: false,
};

/// The state of a node's part of a restore, in its record.
const DONE: &str = "done";
/// The node has no files of the backup that can be read.
const LOST: &str = "lost";

/// What the parts of a restore say.
struct Parts {
    states: BTreeMap<String, String>,
}

impl Parts {
    fn is(&self, host: &str, state: &str) -> bool {
        self.states.get(host).is_some_and(|known| known == state)
    }
}

/// Why a part has ended early.
enum Interrupted {
    /// The files cannot be read: another attempt reads no more.
    Unreadable(String),
    /// The table is not being restored any more.
    Over,
    /// The rows cannot be written now.
    Later(String),
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(why) | Self::Later(why) => f.write_str(why),
            Self::Over => f.write_str("the table is not being restored any more"),
        }
    }
}

impl Service {
    /// The tables that are being made of a backup.
    pub(super) fn restoring_tables_of(&self, id: &str) -> Vec<Arc<ItemTable>> {
        let mut tables = self.restoring_tables();
        tables.retain(|table| backup_of(&table.definition).is_some_and(|of| of == id));
        tables
    }

    /// The tables that are being made of backups.
    fn restoring_tables(&self) -> Vec<Arc<ItemTable>> {
        let names = self.table_names().into_iter();
        let tables = names.filter_map(|name| self.find_table(&name).ok().flatten());
        tables.filter(|table| table.definition.is_being_restored()).collect()
    }

    /// Refuses a restore for which too few nodes have files. On shard 0.
    ///
    /// # Errors
    /// BackupInUseException while it is being created; LimitExceededException; ServiceUnavailable, with a node that is
    /// missing.
    pub(crate) async fn check_restorable(self: &Rc<Self>, backup: &Backup, arn: &str) -> Result<(), Error> {
        if backup.status != BackupStatus::Available {
            let text = format!("Backup is being created: {arn}");
            return Err(Error::new(ErrorKind::BackupInUse, text));
        }
        if self.restoring_tables().len() >= AT_ONCE_MAX {
            return Err(limit_exceeded("tables are restored"));
        }
        let mut found = Vec::new();
        let mut missing = String::new();
        for host in &backup.hosts {
            let node = self.member(host).filter(|_| self.is_up(host));
            let Some(node) = node else {
                missing = format!("node {host} is down or has left");
                continue;
            };
            match self.has_on(node, &tag_of(&backup.id)).await {
                Ok(true) => found.push(host.as_str()),
                Ok(false) => missing = format!("node {host} has no files of it"),
                Err(why) => missing = format!("node {host} does not answer: {why}"),
            }
        }
        if backup.is_complete(|host| found.contains(&host)) {
            Ok(())
        } else {
            Err(unavailable(format!(
                "The backup cannot be read now: a majority of the replicas of every item is needed, and {missing}"
            )))
        }
    }

    /// Restores tables as they come; never returns. On shard 0 of every node.
    pub async fn restore_tables(self: Rc<Self>) {
        let mut looked_at = Uuid::nil();
        loop {
            runtime::sleep(LOOK_PERIOD).await;
            let version = self.engine.schema().version;
            if version == looked_at {
                continue;
            }
            let tables = self.restoring_tables();
            if tables.is_empty() {
                looked_at = version;
            }
            for table in tables {
                if let Err(error) = self.restore_part(&table).await {
                    log::warn!("the restore of table {} waits: {error}", table.name);
                    runtime::sleep(WRITE_PAUSE).await;
                }
            }
        }
    }

    /// Writes this node's rows of a table that is being restored, unless that is done, and ends the restore if all
    /// nodes have written theirs. On shard 0.
    ///
    /// # Errors
    /// When it is to be tried again.
    pub async fn restore_part(self: &Rc<Self>, table: &Arc<ItemTable>) -> Result<(), Error> {
        let id = backup_of(&table.definition).unwrap_or_default();
        let own = self.own_host().map(|host| host.0.to_string()).unwrap_or_default();
        let Some(backup) = self.read_backup(id).await? else {
            return self.give_up(table, "its backup was deleted").await;
        };
        let mut parts = self.read_parts(table, &backup).await?;
        let is_begun = parts.states.contains_key(&own);
        if backup.hosts.contains(&own) && !is_begun {
            let state = match self.write_files(table, &backup).await {
                Ok(()) => DONE,
                Err(Interrupted::Over) => return Ok(()),
                Err(Interrupted::Later(why)) => return Err(unavailable(why)),
                Err(Interrupted::Unreadable(why)) => {
                    log::error!("the files of backup {id} on this node cannot be restored: {why}");
                    LOST
                }
            };
            let value = AttributeValue::S(state.to_owned());
            self.put_value(&part_id(table, &own), value, None).await?;
            parts.states.insert(own, state.to_owned());
        }
        self.end_restore(table, &backup, &parts).await
    }

    async fn end_restore(self: &Rc<Self>, table: &Arc<ItemTable>, backup: &Backup, parts: &Parts) -> Result<(), Error> {
        let waits_for = |host: &String| self.is_up(host) && !parts.states.contains_key(host.as_str());
        if backup.is_complete(|host| parts.is(host, DONE)) {
            // One that is down has nothing that the others lack. One that is up may be writing.
            if !backup.hosts.iter().any(waits_for) {
                self.end_restoring(table, RestoreEnd::Active).await?;
                log::info!("table {} is restored from backup {}", table.name, backup.id);
                self.forget_parts(table, backup).await;
            }
            return Ok(());
        }
        let may_come = |host: &str| self.member(host).is_some() && !parts.is(host, LOST);
        if backup.is_complete(may_come) {
            return Ok(());
        }
        self.give_up(table, "too few nodes have its files").await?;
        self.forget_parts(table, backup).await;
        Ok(())
    }

    async fn give_up(self: &Rc<Self>, table: &Arc<ItemTable>, why: &str) -> Result<(), Error> {
        log::error!("table {} cannot be restored and is deleted: {why}", table.name);
        self.end_restoring(table, RestoreEnd::Deleted).await
    }

    async fn read_parts(self: &Rc<Self>, table: &ItemTable, backup: &Backup) -> Result<Parts, Error> {
        let mut states = BTreeMap::new();
        for host in &backup.hosts {
            if let Some(AttributeValue::S(state)) = self.read_value(&part_id(table, host)).await? {
                states.insert(host.clone(), state);
            }
        }
        Ok(Parts { states })
    }

    async fn forget_parts(self: &Rc<Self>, table: &ItemTable, backup: &Backup) {
        for host in &backup.hosts {
            if let Err(error) = self.forget_value(&part_id(table, host), None).await {
                log::debug!("a note of the restore of table {} stays: {error}", table.name);
            }
        }
    }

    /// Writes what this node's files have to the new table, as a task that operators see.
    async fn write_files(self: &Rc<Self>, table: &Arc<ItemTable>, backup: &Backup) -> Result<(), Interrupted> {
        let name = tag_of(&backup.id);
        let snapshot = nodes::find(&name).await.map_err(Interrupted::Later)?;
        let snapshot = snapshot.ok_or_else(|| Interrupted::Unreadable(format!("there is no snapshot {name}")))?;
        let found = runtime::offload(move || rows::find(&snapshot.directory)).await;
        let files = found.map_err(Interrupted::Unreadable)?;
        let spec = Spec {
            scope: "table",
            keyspace: table.table.keyspace.clone(),
            table: table.name.clone(),
            entity: name,
            total: files.sstables.len() as u64,
            ..Spec::of(&RESTORE)
        };
        let task = self.engine.coordinator.context.shard.tasks().start(spec, &Origin::Node);
        task.begin();
        let written = self.write_sstables(table, files, &task).await;
        task.end(&written);
        written
    }

    async fn write_sstables(
        self: &Rc<Self>,
        table: &Arc<ItemTable>,
        files: SnapshotFiles,
        task: &Task,
    ) -> Result<(), Interrupted> {
        let unreadable = |error: sstable::Error| Interrupted::Unreadable(error.to_string());
        let restored = Restored::new(table.clone(), files.table.clone()).map_err(Interrupted::Unreadable)?;
        let cache = self.engine.coordinator.context.shard.cache_of_read(true);
        for descriptor in files.sstables {
            let source = files.table.clone();
            let opened = runtime::offload(move || Reader::open_descriptor(&descriptor, &source)).await;
            let sstable = opened.map_err(unreadable)?;
            let scan = sstable.scan(&cache, Token::MIN, &[], Token::MAX, rows::BLOCK).await;
            let mut scan = scan.map_err(unreadable)?;
            let (mut batch, mut bytes) = (Mutations::new(), 0);
            while let Some(block) = scan.next_block().await.map_err(unreadable)? {
                for mutation in restored.mutations(&block) {
                    bytes += mutation.bytes().len();
                    batch.push(mutation);
                }
                if bytes >= WRITE_BYTES || batch.len() >= WRITE_MUTATIONS_MAX {
                    self.write_rows(table, std::mem::take(&mut batch)).await?;
                    task.control().spend_on_shard(bytes as u64).await;
                    bytes = 0;
                }
                runtime::give_way().await;
            }
            self.write_rows(table, batch).await?;
            task.advance(1);
        }
        Ok(())
    }

    /// Writes rows to a quorum of the replicas in every datacenter, again while that fails.
    async fn write_rows(self: &Rc<Self>, table: &ItemTable, rows: Mutations) -> Result<(), Interrupted> {
        let mut failure = String::new();
        if rows.is_empty() {
            return Ok(());
        }
        for _ in 0..WRITE_TRIES {
            let now = self.find_table(&table.name).ok().flatten();
            let is_same = |now: &Arc<ItemTable>| now.table.id == table.table.id && now.definition.is_being_restored();
            if !now.as_ref().is_some_and(is_same) {
                return Err(Interrupted::Over);
            }
            let writes = &self.engine.coordinator.writes;
            let dated: Dated = writes.date(Consistency::EachQuorum, Deadline::USUAL);
            let again: Mutations = rows.iter().cloned().collect::<Vec<Addressed>>().into();
            let kind = WriteKind::UnloggedBatch;
            match writes.write(again, &dated, kind, Atomicity::Mutation).await {
                Ok(()) => return Ok(()),
                Err(error) => failure = error.to_string(),
            }
            drop(dated);
            runtime::sleep(WRITE_PAUSE).await;
        }
        Err(Interrupted::Later(format!("its rows cannot be written: {failure}")))
    }
}

/// The id of the backup of which a table is being made.
fn backup_of(definition: &TableDefinition) -> Option<&str> {
    let source = definition.restore.as_ref()?;
    arn::backup(&source.backup_arn).map(|(_, id)| id)
}

/// The key of the note on a node's part of a restore.
fn part_id(table: &ItemTable, host: &str) -> String {
    format!("restore:{}:{host}", table.table.id.0)
}
