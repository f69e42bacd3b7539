//! Answers to operations on tables.

use super::Object;
use crate::table::{TableDescription, Tag};
use crate::value::json::write_string;

/// Appends the answer to DescribeTable.
pub fn write_described_table(out: &mut Vec<u8>, description: &TableDescription) {
    let mut object = Object::begin(out);
    description.write(object.name("Table"));
    object.end();
}

/// Appends the answer to CreateTable, UpdateTable and DeleteTable.
pub fn write_table_description(out: &mut Vec<u8>, description: &TableDescription) {
    let mut object = Object::begin(out);
    description.write(object.name("TableDescription"));
    object.end();
}

/// Appends the answer to ListTables; `last` is the name after which to continue, None at the end.
pub fn write_tables(out: &mut Vec<u8>, names: &[&str], last: Option<&str>) {
    let mut object = Object::begin(out);
    object.list("TableNames", names, |out, name| write_string(out, name));
    if let Some(last) = last {
        object.text("LastEvaluatedTableName", last);
    }
    object.end();
}

/// Appends the answer to ListTagsOfResource.
pub fn write_tags(out: &mut Vec<u8>, tags: &[Tag], next: Option<&str>) {
    let mut object = Object::begin(out);
    object.list("Tags", tags, |out, tag| {
        let mut object = Object::begin(out);
        object.text("Key", &tag.key);
        object.text("Value", &tag.value);
        object.end();
    });
    if let Some(next) = next {
        object.text("NextToken", next);
    }
    object.end();
}

/// Whether items of a table expire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeToLiveStatus {
    /// It is about to be so.
    Enabling,
    /// It is so.
    Enabled,
    /// It is about to end.
    Disabling,
    /// It is not so.
    Disabled,
}

impl TimeToLiveStatus {
    /// The word of the API.
    pub fn word(self) -> &'static str {
        match self {
            Self::Enabling => "ENABLING",
            Self::Enabled => "ENABLED",
            Self::Disabling => "DISABLING",
            Self::Disabled => "DISABLED",
        }
    }
}

/// Appends the answer to DescribeTimeToLive; the attribute is None if items do not expire.
pub fn write_time_to_live(out: &mut Vec<u8>, status: TimeToLiveStatus, attribute: Option<&str>) {
    let mut object = Object::begin(out);
    let mut inner = Object::begin(object.name("TimeToLiveDescription"));
    inner.text("TimeToLiveStatus", status.word());
    if let Some(attribute) = attribute {
        inner.text("AttributeName", attribute);
    }
    inner.end();
    object.end();
}

/// Appends the answer to UpdateTimeToLive.
pub fn write_time_to_live_specification(out: &mut Vec<u8>, enabled: bool, attribute: &str) {
    let mut object = Object::begin(out);
    let mut inner = Object::begin(object.name("TimeToLiveSpecification"));
    inner.flag("Enabled", enabled);
    inner.text("AttributeName", attribute);
    inner.end();
    object.end();
}

/// Appends the answer to DescribeEndpoints: where clients send their requests, and for how many minutes they may keep
/// the answer.
pub fn write_endpoints(out: &mut Vec<u8>, address: &str, cache_minutes: u32) {
    let mut object = Object::begin(out);
    object.list("Endpoints", &[address], |out, address| {
        let mut object = Object::begin(out);
        object.text("Address", address);
        object.integer("CachePeriodInMinutes", cache_minutes);
        object.end();
    });
    object.end();
}

/// Appends the answer to DescribeLimits: the largest throughputs of the account and of a table.
pub fn write_limits(out: &mut Vec<u8>, account_units: u64, table_units: u64) {
    let mut object = Object::begin(out);
    object.integer("AccountMaxReadCapacityUnits", account_units);
    object.integer("AccountMaxWriteCapacityUnits", account_units);
    object.integer("TableMaxReadCapacityUnits", table_units);
    object.integer("TableMaxWriteCapacityUnits", table_units);
    object.end();
}
