//! Backups: requests, and where their work is done. Files are the business of shard 0.

use std::rc::Rc;

use dynamodb::backup::{Backup, BackupDescription, write_backups};
use dynamodb::request::{BackupType, CreateBackup, ListBackups, RestoreTableFromBackup};
use dynamodb::table::{RestoreSource, TableStatus};
use dynamodb::{Error, ErrorKind, arn};
use runtime::ShardId;
use uuid::Uuid;

use super::table::{ACCOUNT, check_built, now_ms, written};
use crate::backups::backup_not_found;
use crate::service::Service;
use crate::sizes::TableSizes;

/// Pages of records that one ListBackups reads at most; further ones come with the next request.
const PAGES_MAX: u32 = 50;

/// The table and the id of the ARN of a backup.
fn parsed(arn: &str) -> Result<(&str, &str), Error> {
    arn::backup(arn).ok_or_else(|| {
        let shown = &arn[..arn.floor_char_boundary(1024)];
        Error::validation(format!("Invalid Request: BackupArn {shown} is not the ARN of a backup"))
    })
}

impl Service {
    const fn describe_of<'b>(&'b self, backup: &'b Backup) -> BackupDescription<'b> {
        BackupDescription {
            backup,
            region: self.settings.region.as_str(),
            account: ACCOUNT,
        }
    }

    /// The backup that a request names.
    async fn named_backup(self: &Rc<Self>, arn: &str) -> Result<Backup, Error> {
        let (table, id) = parsed(arn)?;
        let found = self.read_backup(id).await?;
        found
            .filter(|backup| backup.table.name == table)
            .ok_or_else(|| backup_not_found(arn))
    }

    pub(super) async fn create_backup_of(self: &Rc<Self>, request: CreateBackup) -> Result<Vec<u8>, Error> {
        let name = request.table.name();
        let table = self.find_table(name)?;
        let table = table.ok_or_else(|| {
            let text = format!("Table not found: {name}");
            Error::new(ErrorKind::TableNotFound, text)
        })?;
        if table.definition.is_being_restored() {
            let text = format!("Table is being created: {name}");
            return Err(Error::new(ErrorKind::TableInUse, text));
        }
        check_built(&table.definition)?;
        let create = move || async move { Self::local().create_backup(table, request.backup_name).await };
        let backup = runtime::submit_async_to(ShardId(0), create).await?;
        Ok(written(|out| self.describe_of(&backup).write_created(out)))
    }

    pub(super) async fn delete_backup_of(self: &Rc<Self>, arn: &str) -> Result<Vec<u8>, Error> {
        let backup = self.named_backup(arn).await?;
        let arn = arn.to_owned();
        let delete = move || async move { Self::local().delete_backup(backup, &arn).await };
        let backup = runtime::submit_async_to(ShardId(0), delete).await?;
        Ok(written(|out| self.describe_of(&backup).write_described(out)))
    }

    pub(super) async fn describe_backup(self: &Rc<Self>, arn: &str) -> Result<Vec<u8>, Error> {
        let backup = self.named_backup(arn).await?;
        Ok(written(|out| self.describe_of(&backup).write_described(out)))
    }

    pub(super) async fn list_backups(self: &Rc<Self>, request: &ListBackups) -> Result<Vec<u8>, Error> {
        let mut after = match &request.start_arn {
            Some(arn) => Some(parsed(arn)?.1.to_owned()),
            None => None,
        };
        let has_kind = matches!(request.backup_type, BackupType::User | BackupType::All);
        #[expect(
            clippy::cast_precision_loss,
            reason = "milliseconds since 1970 are exact for 285,000 years"
        )]
        let is_in_time = |backup: &Backup| {
            let seconds = backup.created_ms as f64 / 1000.0;
            request.lower_seconds.is_none_or(|lower| seconds >= lower)
                && request.upper_seconds.is_none_or(|upper| seconds < upper)
        };
        let is_listed = |backup: &Backup| {
            let table = request.table.as_ref();
            table.is_none_or(|table| table.name() == backup.table.name) && is_in_time(backup)
        };
        let limit = usize::try_from(request.limit).unwrap_or(usize::MAX);
        let mut listed: Vec<Backup> = Vec::new();
        let mut is_at_end = !has_kind;
        for _ in 0..PAGES_MAX {
            if is_at_end || listed.len() > limit {
                break;
            }
            let page = self.list_backup_page(after.as_deref()).await?;
            listed.extend(page.backups.into_iter().filter(&is_listed));
            is_at_end = page.next.is_none();
            after = page.next;
            runtime::give_way().await;
        }
        let has_more = listed.len() > limit || !is_at_end;
        listed.truncate(limit);
        let descriptions: Vec<BackupDescription> = listed.iter().map(|backup| self.describe_of(backup)).collect();
        let last = descriptions.last().filter(|_| has_more).map(BackupDescription::arn);
        Ok(written(|out| write_backups(out, &descriptions, last.as_deref())))
    }

    pub(super) async fn restore_table_from_backup(
        self: &Rc<Self>,
        request: RestoreTableFromBackup,
    ) -> Result<Vec<u8>, Error> {
        if let Some(name) = request.index_override {
            return Err(Error::validation(format!(
                "One or more parameter values were invalid: {name} names an index that the backup does not have"
            )));
        }
        let arn = request.backup_arn.clone();
        let backup = self.named_backup(&arn).await?;
        let exists = |name: &str| Error::new(ErrorKind::TableAlreadyExists, format!("Table already exists: {name}"));
        if self.find_table(&request.target)?.is_some() {
            return Err(exists(&request.target));
        }
        let source = RestoreSource {
            backup_arn: self.describe_of(&backup).arn(),
            table_arn: self.describe_of(&backup).table_arn(),
            began_ms: now_ms(),
            in_progress: true,
        };
        let id = Uuid::from_u64_pair(runtime::random_u64(), runtime::random_u64());
        let id = uuid::Builder::from_random_bytes(*id.as_bytes()).into_uuid();
        let definition = request.into_definition(backup.table.clone(), id.to_string(), source)?;
        check_built(&definition)?;
        let check = move || async move { Self::local().check_restorable(&backup, &arn).await };
        runtime::submit_async_to(ShardId(0), check).await?;
        let name = definition.name.clone();
        let created = self.create_table(definition).await.map_err(|error| match error.kind {
            ErrorKind::ResourceInUse => exists(&name),
            _ => error,
        })?;
        Ok(self.described(&created.definition, TableStatus::Creating, TableSizes::default()))
    }
}
