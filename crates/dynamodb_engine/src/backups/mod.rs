//! Backups of tables: snapshots of their sstables on the nodes that have them, and a record of each in a table that
//! clients do not see. docs/dev/dynamodb-backups.md is the design.
//!
//! - [`create`]: takes a snapshot on every live replica, and sees to it that enough have one.
//! - [`restore`]: makes a table of a backup. Each node that has files writes their rows to the new table ([`rows`]).
//! - [`nodes`]: what a node does with the files, on request of another node.
//! - [`sweep`]: removes snapshots that belong to no backup.
//!
//! Invariants
//! - A backup is available if its snapshots together have every write that was acknowledged before CreateBackup.
//! - A table that is being restored is used by no client: it becomes active when what those snapshots have is written.
//! - No snapshot is removed whose record exists, and no record says *available* before its snapshots are durable.
//!
//! All functions but reads of records run on shard 0.

mod create;
mod nodes;
mod restore;
mod rows;
mod sweep;

use std::rc::Rc;
use std::sync::Arc;

use dynamodb::backup::{Backup, BackupStatus};
use dynamodb::table::ScalarType;
use dynamodb::{AttributeValue, Error, ErrorKind, Item};
use topology::{Consistency, HostId, NodeNumber};
use types::Token;
use uuid::Uuid;

use crate::definitions::BACKUPS;
use crate::modify::Before;
use crate::read::Extent;
use crate::service::Service;
use crate::table::{ItemKey, ItemTable};

pub use nodes::{BackupFiles, FIRST_VERB, LAST_VERB, StoredSnapshot, TakenSnapshot, Work, handler, keep_files};

/// What the names of snapshots of backups begin with; the id of the backup follows.
pub const SNAPSHOT_PREFIX: &str = "backup-";

/// The attribute that is the key of a record.
const ID: &str = "id";
/// The stored form of a backup, or the state of a node's part of a restore.
const RECORD: &str = "record";
/// Records that are read at a time.
const RECORDS_AT_ONCE: u32 = 200;
/// How long a backup may be *creating*; milliseconds. One that is older was left by a node that has ended.
const CREATING_MS_MAX: i64 = 15 * 60_000;

/// Backups that one node creates at once, and tables that are restored at once.
const AT_ONCE_MAX: usize = 50;

#[cold]
fn limit_exceeded(what: &str) -> Error {
    Error::new(
        ErrorKind::LimitExceeded,
        format!("Subscriber limit exceeded: only {AT_ONCE_MAX} {what} at a time"),
    )
}

/// The snapshot of a backup.
fn tag_of(id: &str) -> String {
    [SNAPSHOT_PREFIX, id].concat()
}

fn now_ms() -> i64 {
    runtime::wall_clock_us() / 1_000
}

/// The error of a backup that is not there.
#[cold]
pub(crate) fn backup_not_found(arn: &str) -> Error {
    Error::new(ErrorKind::BackupNotFound, format!("Backup not found: {arn}"))
}

/// The error of a backup that cannot be made or read now.
#[cold]
fn unavailable(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::ServiceUnavailable, text)
}

/// Some of the backups, in the order of their records.
pub(crate) struct BackupPage {
    /// The backups.
    pub(crate) backups: Vec<Backup>,
    /// The id after which there may be more.
    pub(crate) next: Option<String>,
}

impl Service {
    /// The id of this node.
    fn own_host(&self) -> Option<HostId> {
        self.engine
            .coordinator
            .context
            .with_view(|view| view.topology.numbered(view.me).map(|node| node.host_id))
    }

    /// The number of a member that may be asked for its files; None if it has left or is given up.
    fn member(&self, host: &str) -> Option<NodeNumber> {
        let host = HostId(Uuid::parse_str(host).ok()?);
        self.engine.coordinator.context.with_view(|view| {
            let node = view.topology.node(host)?;
            let serves = node.state.serves_reads() && !view.topology.is_lost(node);
            view.topology.number(host).filter(|_| serves)
        })
    }

    /// Whether a member is up.
    fn is_up(&self, host: &str) -> bool {
        let number = self.member(host);
        number.is_some_and(|number| self.engine.coordinator.context.is_live(number))
    }

    /// The table of the records, if there is one.
    fn backups_table(&self) -> Result<Option<Arc<ItemTable>>, Error> {
        self.find_any_table(BACKUPS)
    }

    fn key(table: &ItemTable, id: &str) -> Result<ItemKey, Error> {
        table.key_of_values(&[&AttributeValue::S(id.to_owned())])
    }

    async fn put_value(self: &Rc<Self>, id: &str, value: AttributeValue, timestamp: Option<i64>) -> Result<(), Error> {
        let table = self.hidden_table(BACKUPS, ID, ScalarType::S).await?;
        let key = Self::key(&table, id)?;
        let item: Item = [
            (ID.to_owned(), AttributeValue::S(id.to_owned())),
            (RECORD.to_owned(), value),
        ]
        .into_iter()
        .collect();
        let level = Consistency::EachQuorum;
        self.write_plainly_at(level, (&table, &key), Before::Unknown, Some(&item), timestamp)
            .await
    }

    async fn forget_value(self: &Rc<Self>, id: &str, timestamp: Option<i64>) -> Result<(), Error> {
        let Some(table) = self.backups_table()? else {
            return Ok(());
        };
        let key = Self::key(&table, id)?;
        let level = Consistency::EachQuorum;
        self.write_plainly_at(level, (&table, &key), Before::Unknown, None, timestamp)
            .await
    }

    async fn read_value(self: &Rc<Self>, id: &str) -> Result<Option<AttributeValue>, Error> {
        let Some(table) = self.backups_table()? else {
            return Ok(None);
        };
        let key = Self::key(&table, id)?;
        let item = self.read_item(&table, &key, Consistency::LocalQuorum).await?;
        Ok(item.and_then(|mut item| item.remove(RECORD)))
    }

    /// Writes the record of a backup over an older one, in all datacenters.
    async fn put_backup(self: &Rc<Self>, backup: &mut Backup) -> Result<(), Error> {
        // The clock of the node that wrote it before may be ahead.
        backup.written_us = runtime::wall_clock_us().max(backup.written_us + 2);
        let bytes = backup
            .encode()
            .map_err(|error| Error::new(ErrorKind::InternalServerError, error.to_string()))?;
        let timestamp = Some(backup.written_us);
        self.put_value(&backup.id, AttributeValue::B(bytes), timestamp).await
    }

    async fn forget_backup(self: &Rc<Self>, backup: &Backup) -> Result<(), Error> {
        let timestamp = runtime::wall_clock_us().max(backup.written_us + 2);
        self.forget_value(&backup.id, Some(timestamp)).await
    }

    /// The backup of an id; None if there is none, or its coordinator has ended before it was available.
    ///
    /// # Errors
    /// When too few replicas answer, or the record is of a newer release.
    pub(crate) async fn read_backup(self: &Rc<Self>, id: &str) -> Result<Option<Backup>, Error> {
        let value = self.read_value(id).await?;
        let backup = value.as_ref().map(decoded).transpose()?.flatten();
        Ok(backup.filter(is_shown))
    }

    /// A page of the backups after the one of an id, in the order of their records.
    ///
    /// # Errors
    /// As [`Service::read_backup`].
    pub(crate) async fn list_backup_page(self: &Rc<Self>, after: Option<&str>) -> Result<BackupPage, Error> {
        let mut page = BackupPage {
            backups: Vec::new(),
            next: None,
        };
        let Some(table) = self.backups_table()? else {
            return Ok(page);
        };
        let after = after.map(|id| Self::key(&table, id)).transpose()?;
        let extent = Extent::Tokens(after.as_ref().map_or(Token(i64::MIN), ItemKey::token), Token(i64::MAX));
        let limit = Some(RECORDS_AT_ONCE);
        let read = self
            .read_page(&table, &extent, after.as_ref(), limit, Consistency::LocalQuorum)
            .await?;
        let last = read.last_key.and_then(|mut key| match key.remove(ID) {
            Some(AttributeValue::S(id)) => Some(id),
            _ => None,
        });
        page.next = last.filter(|_| read.has_more);
        for found in read.items {
            let mut item = stdx::preempt::allowed(|| found.into_item())?;
            let backup = item.remove(RECORD).as_ref().map(decoded).transpose()?.flatten();
            page.backups.extend(backup.filter(is_shown));
        }
        Ok(page)
    }
}

/// The backup of a record; None: the record is of a restore.
fn decoded(value: &AttributeValue) -> Result<Option<Backup>, Error> {
    let AttributeValue::B(bytes) = value else {
        return Ok(None);
    };
    let backup = Backup::decode(bytes);
    let named = |error| {
        Error::new(
            ErrorKind::InternalServerError,
            format!("A backup cannot be read: {error}"),
        )
    };
    backup.map(Some).map_err(named)
}

/// Whether clients see a backup.
fn is_shown(backup: &Backup) -> bool {
    backup.status == BackupStatus::Available || backup.created_ms + CREATING_MS_MAX > now_ms()
}
