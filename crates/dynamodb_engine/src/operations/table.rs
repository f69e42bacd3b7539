//! Tables, tags and time to live.

use std::rc::Rc;

use dynamodb::answer::{
    TimeToLiveStatus, write_described_table, write_endpoints, write_limits, write_table_description, write_tables,
    write_tags, write_time_to_live, write_time_to_live_specification,
};
use dynamodb::arn::TableReference;
use dynamodb::request::{
    CreateTable, ListTables, ListTagsOfResource, TagResource, UntagResource, UpdateTable, UpdateTimeToLive,
    named_table_not_found,
};
use dynamodb::table::{TableDefinition, TableDescription, TableStatus, Tag};
use dynamodb::{Error, ErrorKind};
use uuid::Uuid;

use crate::modify::unknown_isolation;
use crate::service::{ISOLATION_TAG, Service, WriteIsolation};
use crate::sizes::TableSizes;
use crate::system_table;
use crate::table::ItemTable;

/// The account that ARNs name: a cluster of one's own has none.
pub(super) const ACCOUNT: &str = "000000000000";

pub(super) fn now_ms() -> i64 {
    runtime::wall_clock_us() / 1_000
}

/// Refuses by name what a table asks for and is not built.
pub(super) fn check_built(definition: &TableDefinition) -> Result<(), Error> {
    let unbuilt = [
        ("GlobalSecondaryIndexes", !definition.global_indexes.is_empty()),
        ("LocalSecondaryIndexes", !definition.local_indexes.is_empty()),
        ("VectorIndexes", !definition.vector_indexes.is_empty()),
        ("StreamSpecification", definition.stream.is_some()),
    ];
    match unbuilt.into_iter().find(|(_, is_asked)| *is_asked) {
        Some((name, _)) => Err(Error::validation(format!("{name} is not supported yet"))),
        None => Ok(()),
    }
}

fn check_tags(tags: &[Tag]) -> Result<(), Error> {
    let isolation = tags.iter().find(|tag| tag.key == ISOLATION_TAG);
    match isolation {
        Some(tag) if WriteIsolation::from_name(&tag.value).is_none() => {
            Err(Error::validation(unknown_isolation(&tag.value)))
        }
        _ => Ok(()),
    }
}

impl Service {
    const fn describe<'t>(
        &'t self,
        table: &'t TableDefinition,
        status: TableStatus,
        sizes: TableSizes,
    ) -> TableDescription<'t> {
        TableDescription {
            table,
            status,
            items: sizes.items,
            bytes: sizes.bytes,
            indexes: &[],
            region: self.settings.region.as_str(),
            account: ACCOUNT,
        }
    }

    /// The answer to a change of a table.
    pub(super) fn described(&self, table: &TableDefinition, status: TableStatus, sizes: TableSizes) -> Vec<u8> {
        written(|out| write_table_description(out, &self.describe(table, status, sizes)))
    }

    pub(super) fn named(&self, table: &TableReference) -> Result<std::sync::Arc<ItemTable>, Error> {
        let found = self.find_table(table.name())?;
        found.ok_or_else(|| named_table_not_found(table.name()))
    }

    pub(super) async fn create_table_of(self: &Rc<Self>, request: CreateTable) -> Result<Vec<u8>, Error> {
        let id = Uuid::from_u64_pair(runtime::random_u64(), runtime::random_u64());
        let id = uuid::Builder::from_random_bytes(*id.as_bytes()).into_uuid();
        let definition = request.into_definition(id.to_string(), now_ms());
        system_table::check_name(&definition.name)?;
        check_built(&definition)?;
        check_tags(&definition.tags)?;
        let table = self.create_table(definition).await?;
        Ok(self.described(&table.definition, TableStatus::Active, TableSizes::default()))
    }

    pub(super) async fn update_table(self: &Rc<Self>, request: UpdateTable) -> Result<Vec<u8>, Error> {
        let name = self.named(&request.table)?.name.clone();
        let table = self
            .change_table(&name, move |definition| {
                let changed = request.apply(definition, now_ms())?;
                check_built(&changed)?;
                *definition = changed;
                Ok(())
            })
            .await?;
        let sizes = self.table_sizes(table.table.id).await;
        Ok(self.described(&table.definition, TableStatus::Active, sizes))
    }

    pub(super) async fn delete_table_of(self: &Rc<Self>, table: &TableReference) -> Result<Vec<u8>, Error> {
        let sizes = self.table_sizes(self.named(table)?.table.id).await;
        let deleted = self.delete_table(table.name()).await?;
        Ok(self.described(&deleted.definition, TableStatus::Deleting, sizes))
    }

    pub(super) async fn describe_table(self: &Rc<Self>, table: &TableReference) -> Result<Vec<u8>, Error> {
        let found = self.named(table)?;
        let status = if found.definition.is_being_restored() {
            TableStatus::Creating
        } else {
            TableStatus::Active
        };
        let sizes = self.table_sizes(found.table.id).await;
        let description = self.describe(&found.definition, status, sizes);
        Ok(written(|out| write_described_table(out, &description)))
    }

    pub(super) fn list_tables(&self, request: &ListTables) -> Vec<u8> {
        let names = self.table_names();
        let start = request.start.as_deref().unwrap_or("");
        let mut rest = names.iter().map(String::as_str).filter(|name| *name > start);
        let limit = usize::try_from(request.limit).unwrap_or(usize::MAX);
        let page: Vec<&str> = rest.by_ref().take(limit).collect();
        let last = page.last().copied().filter(|_| rest.next().is_some());
        written(|out| write_tables(out, &page, last))
    }

    fn of_arn(&self, table: &TableReference) -> Result<std::sync::Arc<ItemTable>, Error> {
        let found = self.find_table(table.name())?;
        found.ok_or_else(|| {
            let text = format!("Requested resource not found: ResourcArn: {} not found", table.given());
            Error::new(ErrorKind::ResourceNotFound, text)
        })
    }

    pub(super) async fn tag_resource(self: &Rc<Self>, request: TagResource) -> Result<Vec<u8>, Error> {
        check_tags(&request.tags)?;
        let name = self.of_arn(&request.table)?.name.clone();
        self.change_table(&name, move |definition| {
            let replaced = |tag: &Tag| request.tags.iter().any(|new| new.key == tag.key);
            definition.tags.retain(|tag| !replaced(tag));
            definition.tags.extend(request.tags.iter().cloned());
            definition.tags.sort();
            if definition.tags.len() > TAGS_MAX {
                return Err(Error::validation(
                    "One or more parameter values were invalid: Too many tags: the limit is 50 for a table",
                ));
            }
            Ok(())
        })
        .await?;
        Ok(Vec::new())
    }

    pub(super) async fn untag_resource(self: &Rc<Self>, request: UntagResource) -> Result<Vec<u8>, Error> {
        let name = self.of_arn(&request.table)?.name.clone();
        self.change_table(&name, move |definition| {
            definition.tags.retain(|tag| !request.keys.contains(&tag.key));
            Ok(())
        })
        .await?;
        Ok(Vec::new())
    }

    pub(super) fn list_tags_of_resource(&self, request: &ListTagsOfResource) -> Result<Vec<u8>, Error> {
        let table = self.of_arn(&request.table)?;
        Ok(written(|out| write_tags(out, &table.definition.tags, None)))
    }

    pub(super) async fn update_time_to_live(self: &Rc<Self>, request: UpdateTimeToLive) -> Result<Vec<u8>, Error> {
        let name = self.named(&request.table)?.name.clone();
        let UpdateTimeToLive { attribute, enabled, .. } = request;
        let wanted = attribute.clone();
        self.change_table(&name, move |definition| {
            let refused = match (&definition.ttl_attribute, enabled) {
                (Some(_), true) => Some("TimeToLive is already enabled".to_owned()),
                (None, false) => Some("TimeToLive is already disabled".to_owned()),
                (Some(known), false) if *known != wanted => Some(format!(
                    "TimeToLive is active on a different AttributeName: current AttributeName is {known}"
                )),
                _ => None,
            };
            if let Some(text) = refused {
                return Err(Error::validation(text));
            }
            definition.ttl_attribute = enabled.then(|| wanted.clone());
            Ok(())
        })
        .await?;
        Ok(written(|out| {
            write_time_to_live_specification(out, enabled, &attribute)
        }))
    }

    pub(super) fn describe_time_to_live(&self, table: &TableReference) -> Result<Vec<u8>, Error> {
        let table = self.named(table)?;
        let attribute = table.definition.ttl_attribute.as_deref();
        let status = match attribute {
            Some(_) => TimeToLiveStatus::Enabled,
            None => TimeToLiveStatus::Disabled,
        };
        Ok(written(|out| write_time_to_live(out, status, attribute)))
    }

    pub(super) fn describe_continuous_backups(&self, table: &TableReference) -> Result<Vec<u8>, Error> {
        let Some(_) = self.find_table(table.name())? else {
            let text = format!("Table not found: {}", table.name());
            return Err(Error::new(ErrorKind::TableNotFound, text));
        };
        let body = r#"{"ContinuousBackupsDescription":{"ContinuousBackupsStatus":"DISABLED","PointInTimeRecoveryDescription":{"PointInTimeRecoveryStatus":"DISABLED"}}}"#;
        Ok(body.as_bytes().to_vec())
    }

    pub(super) fn describe_endpoints(&self) -> Vec<u8> {
        let address = format!("dynamodb.{}.amazonaws.com", self.settings.region);
        written(|out| write_endpoints(out, &address, ENDPOINT_MINUTES))
    }

    pub(super) fn describe_limits() -> Vec<u8> {
        written(|out| write_limits(out, ACCOUNT_UNITS, TABLE_UNITS))
    }
}

pub(super) fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

/// For how many minutes clients may keep where they send their requests.
const ENDPOINT_MINUTES: u32 = 1440;
/// Units of throughput that the service allows an account and a table by default.
const ACCOUNT_UNITS: u64 = 80_000;
const TABLE_UNITS: u64 = 40_000;
/// Tags of a table.
const TAGS_MAX: usize = 50;
