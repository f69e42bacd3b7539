//! Requests that name a table and little else: descriptions, lists, tags, time to live, limits and backups.

use super::batch::required;
use super::constraints::{Constraints, words};
use super::indexes::invalid;
use super::json::{Flag, Integer, List, Seconds, Text, structure};
use super::shapes::{self, elements, text};
use super::{create_table, indexes, names};
use crate::arn::{Arn, TABLE_NAME_MAX, TABLE_NAME_MIN, TableReference};
use crate::error::Error;
use crate::table::{
    BillingMode, OnDemandThroughput, ProvisionedThroughput, RestoreSource, SseDefinition, SseType, TableDefinition, Tag,
};

/// Tags of one table.
pub const TAGS_MAX: usize = 50;
/// Names of tables in one answer.
pub const TABLES_MAX: u32 = 100;

structure! {
    /// The body of a request that has nothing but a table.
    pub(crate) struct TableInput {
        table_name: Text = "TableName",
    }
}

structure! {
    /// The body of ListTables.
    pub(crate) struct ListTablesInput {
        start: Text = "ExclusiveStartTableName",
        limit: Integer = "Limit",
    }
}

structure! {
    /// The body of TagResource, UntagResource and ListTagsOfResource.
    pub(crate) struct TagsInput {
        arn: Text = "ResourceArn",
        tags: List<shapes::Tag> = "Tags",
        keys: List<Text> = "TagKeys",
        next: Text = "NextToken",
    }
}

structure! {
    /// When items expire.
    pub(crate) struct TimeToLiveSpecification {
        enabled: Flag = "Enabled",
        attribute: Text = "AttributeName",
    }
}

structure! {
    /// The body of UpdateTimeToLive.
    pub(crate) struct UpdateTimeToLiveInput {
        table_name: Text = "TableName",
        specification: TimeToLiveSpecification = "TimeToLiveSpecification",
    }
}

structure! {
    /// The body of a request on backups.
    pub(crate) struct BackupInput {
        table_name: Text = "TableName",
        backup_name: Text = "BackupName",
        backup_arn: Text = "BackupArn",
        target: Text = "TargetTableName",
        limit: Integer = "Limit",
        lower: Seconds = "TimeRangeLowerBound",
        upper: Seconds = "TimeRangeUpperBound",
        start: Text = "ExclusiveStartBackupArn",
        backup_type: Text = "BackupType",
        billing_mode: Text = "BillingModeOverride",
        global_indexes: List<shapes::GlobalSecondaryIndex> = "GlobalSecondaryIndexOverride",
        local_indexes: List<shapes::LocalSecondaryIndex> = "LocalSecondaryIndexOverride",
        throughput: shapes::ProvisionedThroughput = "ProvisionedThroughputOverride",
        on_demand: shapes::OnDemandThroughput = "OnDemandThroughputOverride",
        sse: shapes::SSESpecification = "SSESpecificationOverride",
    }
}

words! {
    /// Which backups are listed.
    BackupType "[USER, SYSTEM, AWS_BACKUP, ALL]" {
        /// Those of CreateBackup.
        User = "USER",
        /// Those of deleted tables.
        System = "SYSTEM",
        /// Those of the backup service.
        AwsBackup = "AWS_BACKUP",
        /// All.
        All = "ALL",
    }
}

/// Lists tables by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListTables {
    /// The name after which to continue.
    pub start: Option<String>,
    /// Names in the answer, at most.
    pub limit: u32,
}

/// Adds tags to a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TagResource {
    /// The ARN of the table.
    pub table: TableReference,
    /// The tags, sorted by key; they replace those of the same keys.
    pub tags: Vec<Tag>,
}

/// Removes tags from a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UntagResource {
    /// The ARN of the table.
    pub table: TableReference,
    /// The keys of the tags.
    pub keys: Vec<String>,
}

/// Lists the tags of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListTagsOfResource {
    /// The ARN of the table.
    pub table: TableReference,
    /// Where to continue.
    pub next: Option<String>,
}

/// Changes whether and when items expire.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpdateTimeToLive {
    /// The table.
    pub table: TableReference,
    /// The attribute with the time of expiry, in seconds since 1970.
    pub attribute: String,
    /// Whether items expire.
    pub enabled: bool,
}

/// Stores a backup of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateBackup {
    /// The table.
    pub table: TableReference,
    /// The name of the backup.
    pub backup_name: String,
}

/// Lists backups.
#[derive(Clone, PartialEq, Debug)]
pub struct ListBackups {
    /// Of this table alone.
    pub table: Option<TableReference>,
    /// Backups in the answer, at most.
    pub limit: u32,
    /// Those not before, in seconds since 1970.
    pub lower_seconds: Option<f64>,
    /// Those before, in seconds since 1970.
    pub upper_seconds: Option<f64>,
    /// The backup after which to continue.
    pub start_arn: Option<String>,
    /// Which of them.
    pub backup_type: BackupType,
}

/// Makes a table of a backup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RestoreTableFromBackup {
    /// The backup.
    pub backup_arn: String,
    /// The name of the new table.
    pub target: String,
    /// How the new table is billed; None: as the table of the backup.
    pub billing_mode: Option<BillingMode>,
    /// The throughput of the new table.
    pub throughput: Option<ProvisionedThroughput>,
    /// The limits of the new table if it is billed by request.
    pub on_demand: Option<OnDemandThroughput>,
    /// Encryption that the request asks for.
    pub sse: Option<SseDefinition>,
    /// The first member that names indexes, which a server can refuse.
    pub index_override: Option<&'static str>,
}

impl RestoreTableFromBackup {
    /// The definition of the new table: that of the table of the backup with what the request overrides. As with the
    /// service, it has no tags, no time to live, no stream and no protection against deletion. `id`: of the new table;
    /// `source`: where its items come from.
    ///
    /// # Errors
    /// ValidationException when the throughput does not fit the billing mode.
    pub fn into_definition(
        self,
        backed_up: TableDefinition,
        id: String,
        source: RestoreSource,
    ) -> Result<TableDefinition, Error> {
        let billing_mode = self.billing_mode.unwrap_or(backed_up.billing_mode);
        let is_provisioned = billing_mode == BillingMode::Provisioned;
        if !is_provisioned && self.throughput.is_some() {
            return Err(invalid(
                "Neither ReadCapacityUnits nor WriteCapacityUnits can be specified when BillingMode is PAY_PER_REQUEST",
            ));
        }
        if is_provisioned && self.on_demand.is_some() {
            return Err(invalid(
                "OnDemandThroughput cannot be specified when table BillingMode is PROVISIONED",
            ));
        }
        let throughput = match self.throughput {
            _ if !is_provisioned => ProvisionedThroughput::default(),
            Some(throughput) => throughput,
            None if backed_up.billing_mode == BillingMode::Provisioned => ProvisionedThroughput {
                units: backed_up.throughput.units,
                ..ProvisionedThroughput::default()
            },
            None => {
                return Err(invalid(
                    "ReadCapacityUnits and WriteCapacityUnits must both be specified when BillingMode is PROVISIONED",
                ));
            }
        };
        Ok(TableDefinition {
            name: self.target,
            id,
            created_ms: source.began_ms,
            billing_mode,
            pay_per_request_ms: None,
            throughput,
            on_demand: self.on_demand.or(backed_up.on_demand).filter(|_| !is_provisioned),
            warm: None,
            deletion_protection: false,
            sse: self.sse.or(backed_up.sse),
            tags: Vec::new(),
            ttl_attribute: None,
            stream: None,
            restore: Some(source),
            ..backed_up
        })
    }
}

/// Makes tags of their members, sorted by key; the last of a repeated key counts.
pub(super) fn tags(list: Vec<shapes::Tag>) -> Result<Vec<Tag>, Error> {
    let mut tags: Vec<Tag> = Vec::with_capacity(list.len().min(TAGS_MAX));
    for (number, tag) in list.into_iter().enumerate() {
        stdx::preempt::point();
        let mut errors = Constraints::default();
        errors.required(tag.key.as_ref(), format_args!("tags.{}.member.key", number + 1));
        errors.required(tag.value.as_ref(), format_args!("tags.{}.member.value", number + 1));
        errors.finish()?;
        let tag = Tag {
            key: text(tag.key),
            value: text(tag.value),
        };
        if !(1..=128).contains(&tag.key.chars().count()) {
            return Err(invalid("Tag key must be between 1 and 128 characters"));
        }
        if tag.value.chars().count() > 256 {
            return Err(invalid("Tag value must be between 0 and 256 characters"));
        }
        match tags.binary_search_by(|known| known.key.cmp(&tag.key)) {
            Ok(at) => tags[at] = tag,
            Err(_) if tags.len() == TAGS_MAX => {
                return Err(Error::validation(
                    "One or more parameter values were invalid: Too many tags: the limit is 50 for a table",
                ));
            }
            Err(at) => tags.insert(at, tag),
        }
    }
    Ok(tags)
}

/// The table of a ResourceArn.
fn resource(arn: Option<Text>) -> Result<TableReference, Error> {
    let Text(arn) = arn.unwrap_or_default();
    if arn.is_empty() {
        return Err(Error::validation("Invalid TableArn"));
    }
    let parsed = Arn::parse(&arn).filter(|parsed| parsed.service == "dynamodb");
    let name = parsed.and_then(|parsed| parsed.table()).map(|(name, _)| name);
    match name.and_then(|_| TableReference::new(arn.clone())) {
        Some(table) => Ok(table),
        None => Err(Error::validation(format!(
            "Invalid TableArn: Invalid ResourceArn provided as input {arn}"
        ))),
    }
}

pub(super) fn tag_resource(input: TagsInput) -> Result<TagResource, Error> {
    let table = resource(input.arn)?;
    let tags = elements(input.tags);
    if tags.is_empty() {
        return Err(Error::validation("Atleast one Tag needs to be provided as Input."));
    }
    Ok(TagResource {
        table,
        tags: self::tags(tags)?,
    })
}

pub(super) fn untag_resource(input: TagsInput) -> Result<UntagResource, Error> {
    let table = resource(input.arn)?;
    let keys: Vec<String> = stdx::preempt::collect(elements(input.keys).into_iter().map(|Text(key)| key));
    if keys.is_empty() {
        Err(Error::validation("Atleast one Tag Key needs to be provided as Input."))
    } else {
        Ok(UntagResource { table, keys })
    }
}

pub(super) fn list_tags_of_resource(input: TagsInput) -> Result<ListTagsOfResource, Error> {
    Ok(ListTagsOfResource {
        table: resource(input.arn)?,
        next: input.next.map(|Text(next)| next),
    })
}

pub(super) fn list_tables(input: ListTablesInput) -> Result<ListTables, Error> {
    let mut errors = Constraints::default();
    if let Some(Text(start)) = &input.start {
        errors.pattern(start, "exclusiveStartTableName");
        errors.length(start, "exclusiveStartTableName", TABLE_NAME_MIN, TABLE_NAME_MAX);
    }
    let limit = input.limit.map(|Integer(limit)| i64::from(limit));
    if let Some(limit) = limit {
        errors.at_least(limit, "limit", 1);
        errors.at_most(limit, "limit", i64::from(TABLES_MAX));
    }
    errors.finish()?;
    Ok(ListTables {
        start: input.start.map(|Text(start)| start),
        limit: limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(TABLES_MAX),
    })
}

pub(super) fn table(input: TableInput) -> Result<TableReference, Error> {
    names::for_administration(input.table_name)
}

pub(super) fn update_time_to_live(input: UpdateTimeToLiveInput) -> Result<UpdateTimeToLive, Error> {
    let table = names::for_administration(input.table_name)?;
    let mut errors = Constraints::default();
    let at = "timeToLiveSpecification";
    let Some(specification) = input.specification else {
        return Err(required(at));
    };
    errors.required(specification.enabled.as_ref(), format_args!("{at}.enabled"));
    let name = format!("{at}.attributeName");
    match &specification.attribute {
        None => errors.null(name),
        Some(Text(attribute)) => errors.length(attribute, name, 1, 255),
    }
    errors.finish()?;
    Ok(UpdateTimeToLive {
        table,
        attribute: text(specification.attribute),
        enabled: specification.enabled.unwrap_or_default().0,
    })
}

/// Checks the name of a backup or of a table that is restored.
fn check_name(name: Option<&Text>, at: &str, errors: &mut Constraints) {
    let Some(Text(name)) = name else {
        return errors.null(at);
    };
    errors.pattern(name, at);
    errors.length(name, at, TABLE_NAME_MIN, TABLE_NAME_MAX);
}

/// Checks the ARN of a backup, which has 37 to 1,024 characters.
fn check_arn(arn: Option<&Text>, at: &str, errors: &mut Constraints) {
    match arn {
        None => errors.null(at),
        Some(Text(arn)) => errors.length(arn, at, 37, 1024),
    }
}

pub(super) fn create_backup(input: BackupInput) -> Result<CreateBackup, Error> {
    let mut errors = Constraints::default();
    names::check_first(input.table_name.as_ref(), "tableName", &mut errors);
    check_name(input.backup_name.as_ref(), "backupName", &mut errors);
    errors.finish()?;
    Ok(CreateBackup {
        table: names::checked(input.table_name),
        backup_name: text(input.backup_name),
    })
}

/// The ARN of the backup that DescribeBackup and DeleteBackup name.
pub(super) fn backup(input: BackupInput) -> Result<String, Error> {
    let mut errors = Constraints::default();
    check_arn(input.backup_arn.as_ref(), "backupArn", &mut errors);
    errors.finish()?;
    Ok(text(input.backup_arn))
}

pub(super) fn list_backups(input: BackupInput) -> Result<ListBackups, Error> {
    let mut errors = Constraints::default();
    if input.table_name.is_some() {
        names::check_first(input.table_name.as_ref(), "tableName", &mut errors);
    }
    let limit = input.limit.map(|Integer(limit)| i64::from(limit));
    if let Some(limit) = limit {
        errors.at_least(limit, "limit", 1);
        errors.at_most(limit, "limit", 100);
    }
    if input.start.is_some() {
        check_arn(input.start.as_ref(), "exclusiveStartBackupArn", &mut errors);
    }
    let backup_type = errors.word(input.backup_type.as_ref(), "backupType");
    errors.finish()?;
    Ok(ListBackups {
        table: input.table_name.map(|name| names::checked(Some(name))),
        limit: limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(100),
        lower_seconds: input.lower.map(|Seconds(seconds)| seconds),
        upper_seconds: input.upper.map(|Seconds(seconds)| seconds),
        start_arn: input.start.map(|Text(start)| start),
        backup_type: backup_type.unwrap_or(BackupType::User),
    })
}

pub(super) fn restore(input: BackupInput) -> Result<RestoreTableFromBackup, Error> {
    let mut errors = Constraints::default();
    check_name(input.target.as_ref(), "targetTableName", &mut errors);
    check_arn(input.backup_arn.as_ref(), "backupArn", &mut errors);
    let billing_mode = errors.word::<BillingMode>(input.billing_mode.as_ref(), "billingModeOverride");
    indexes::check_throughput(input.throughput.as_ref(), "provisionedThroughputOverride", &mut errors);
    if let Some(sse) = &input.sse {
        errors.word::<SseType>(sse.sse_type.as_ref(), "sSESpecificationOverride.sSEType");
    }
    errors.finish()?;
    create_table::check_units(input.throughput.as_ref())?;
    let has_global = input.global_indexes.as_ref().is_some_and(|List(list)| !list.is_empty());
    let has_local = input.local_indexes.as_ref().is_some_and(|List(list)| !list.is_empty());
    let overrides = [
        (has_global, "GlobalSecondaryIndexOverride"),
        (has_local, "LocalSecondaryIndexOverride"),
    ];
    let throughput = input.throughput.is_some();
    Ok(RestoreTableFromBackup {
        backup_arn: text(input.backup_arn),
        target: text(input.target),
        billing_mode,
        throughput: throughput.then(|| indexes::throughput(input.throughput.as_ref())),
        on_demand: indexes::on_demand(input.on_demand.as_ref()),
        sse: create_table::sse(input.sse),
        index_override: overrides.into_iter().find(|(has, _)| *has).map(|(_, name)| name),
    })
}
