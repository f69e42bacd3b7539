//! Tables, tags and time to live.

use std::rc::Rc;

use dynamodb::arn::TableReference;
use dynamodb::request::{
    CreateTable, ListTables, ListTagsOfResource, TagResource, UntagResource, UpdateTable, UpdateTimeToLive,
    named_table_not_found,
};
use dynamodb::table::{TableDefinition, TableDescription, TableStatus, Tag};
use dynamodb::{Error, ErrorKind};
use uuid::Uuid;

use crate::answer::{Answer, list};
use crate::modify::unknown_isolation;
use crate::service::{ISOLATION_TAG, Service, WriteIsolation};
use crate::table::ItemTable;

/// The account that ARNs name: a cluster of one's own has none.
const ACCOUNT: &str = "000000000000";

fn now_ms() -> i64 {
    runtime::wall_clock_us() / 1_000
}

/// Refuses by name what a table asks for and is not built.
fn check_built(definition: &TableDefinition) -> Result<(), Error> {
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
    fn describe(&self, table: &TableDefinition, status: TableStatus) -> Vec<u8> {
        let description = TableDescription {
            table,
            status,
            items: 0,
            bytes: 0,
            indexes: &[],
            region: &self.settings.region,
            account: ACCOUNT,
        };
        let mut out = Vec::new();
        description.write(&mut out);
        out
    }

    fn described(&self, name: &str, table: &TableDefinition, status: TableStatus) -> Vec<u8> {
        let mut answer = Answer::begin();
        let description = self.describe(table, status);
        answer.member(name).extend_from_slice(&description);
        answer.end()
    }

    fn named(&self, table: &TableReference) -> Result<std::sync::Arc<ItemTable>, Error> {
        let found = self.find_table(table.name())?;
        found.ok_or_else(|| named_table_not_found(table.name()))
    }

    pub(super) async fn create_table_of(self: &Rc<Self>, request: CreateTable) -> Result<Vec<u8>, Error> {
        let id = Uuid::from_u64_pair(runtime::random_u64(), runtime::random_u64());
        let id = uuid::Builder::from_random_bytes(*id.as_bytes()).into_uuid();
        let definition = request.into_definition(id.to_string(), now_ms());
        check_built(&definition)?;
        check_tags(&definition.tags)?;
        let table = self.create_table(definition).await?;
        Ok(self.described("TableDescription", &table.definition, TableStatus::Active))
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
        Ok(self.described("TableDescription", &table.definition, TableStatus::Active))
    }

    pub(super) async fn delete_table_of(self: &Rc<Self>, table: &TableReference) -> Result<Vec<u8>, Error> {
        self.named(table)?;
        let deleted = self.delete_table(table.name()).await?;
        Ok(self.described("TableDescription", &deleted.definition, TableStatus::Deleting))
    }

    pub(super) fn describe_table(&self, table: &TableReference) -> Result<Vec<u8>, Error> {
        let found = self.named(table)?;
        Ok(self.described("Table", &found.definition, TableStatus::Active))
    }

    pub(super) fn list_tables(&self, request: &ListTables) -> Vec<u8> {
        let names = self.table_names();
        let start = request.start.as_deref().unwrap_or("");
        let mut rest = names.iter().map(String::as_str).filter(|name| *name > start);
        let limit = usize::try_from(request.limit).unwrap_or(usize::MAX);
        let page: Vec<&str> = rest.by_ref().take(limit).collect();
        let mut answer = Answer::begin();
        answer.texts("TableNames", page.iter().copied());
        if let (Some(last), Some(_)) = (page.last(), rest.next()) {
            answer.text("LastEvaluatedTableName", last);
        }
        answer.end()
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
        let mut answer = Answer::begin();
        list(answer.member("Tags"), &table.definition.tags, |out, tag| {
            let mut written = Answer::begin();
            written.text("Key", &tag.key);
            written.text("Value", &tag.value);
            out.extend_from_slice(&written.end());
        });
        Ok(answer.end())
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
        let mut specification = Answer::begin();
        specification.text("AttributeName", &attribute);
        let flag: &[u8] = if enabled { b"true" } else { b"false" };
        specification.member("Enabled").extend_from_slice(flag);
        let mut answer = Answer::begin();
        answer
            .member("TimeToLiveSpecification")
            .extend_from_slice(&specification.end());
        Ok(answer.end())
    }

    pub(super) fn describe_time_to_live(&self, table: &TableReference) -> Result<Vec<u8>, Error> {
        let table = self.named(table)?;
        let mut description = Answer::begin();
        match &table.definition.ttl_attribute {
            Some(attribute) => {
                description.text("AttributeName", attribute);
                description.text("TimeToLiveStatus", "ENABLED");
            }
            None => description.text("TimeToLiveStatus", "DISABLED"),
        }
        let mut answer = Answer::begin();
        answer
            .member("TimeToLiveDescription")
            .extend_from_slice(&description.end());
        Ok(answer.end())
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
        let mut endpoint = Answer::begin();
        endpoint.text("Address", &format!("dynamodb.{}.amazonaws.com", self.settings.region));
        endpoint.number("CachePeriodInMinutes", 1440);
        let endpoint = endpoint.end();
        let mut answer = Answer::begin();
        list(answer.member("Endpoints"), [endpoint], |out, endpoint| {
            out.extend_from_slice(&endpoint)
        });
        answer.end()
    }

    pub(super) fn describe_limits() -> Vec<u8> {
        let mut answer = Answer::begin();
        for name in ["AccountMaxReadCapacityUnits", "AccountMaxWriteCapacityUnits"] {
            answer.number(name, 80_000);
        }
        for name in ["TableMaxReadCapacityUnits", "TableMaxWriteCapacityUnits"] {
            answer.number(name, 40_000);
        }
        answer.end()
    }
}

/// Tags of a table.
const TAGS_MAX: usize = 50;
