//! The description of a table in JSON, as DescribeTable and the answers of CreateTable, UpdateTable and DeleteTable
//! have it ("TableDescription" of the API reference).

use super::{
    BillingMode, GlobalIndex, KeySchema, LocalIndex, OnDemandThroughput, Projection, ProvisionedThroughput,
    TableDefinition, Throughput, VectorIndex,
};
use crate::answer::Object;
use crate::arn;
use crate::value::json::write_string;

/// The warm throughput of a table that is billed by request and for which none is set, as the service reports it.
const WARM_BY_REQUEST: Throughput = Throughput {
    read_units: 12_000,
    write_units: 4_000,
};

/// The state of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableStatus {
    /// It is being created.
    Creating,
    /// It is being changed.
    Updating,
    /// It is being deleted.
    Deleting,
    /// It can be used.
    Active,
}

impl TableStatus {
    /// The word of the API.
    pub fn word(self) -> &'static str {
        match self {
            Self::Creating => "CREATING",
            Self::Updating => "UPDATING",
            Self::Deleting => "DELETING",
            Self::Active => "ACTIVE",
        }
    }
}

/// How large an index is, and its state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndexStatistics {
    /// Its name.
    pub name: String,
    /// Its state; local indexes have that of the table.
    pub status: TableStatus,
    /// Whether items that were there before the index are being added.
    pub backfilling: bool,
    /// Items in it.
    pub items: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What a description says beside the definition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableDescription<'a> {
    /// The definition.
    pub table: &'a TableDefinition,
    /// The state.
    pub status: TableStatus,
    /// Items, which may be an estimate.
    pub items: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of the indexes; one that is not listed is as the table, and empty.
    pub indexes: &'a [IndexStatistics],
    /// The region in ARNs.
    pub region: &'a str,
    /// The account in ARNs.
    pub account: &'a str,
}

/// Milliseconds as a JSON number of seconds.
pub(crate) fn seconds(ms: i64) -> String {
    let (whole, rest) = (ms.div_euclid(1000), ms.rem_euclid(1000));
    match rest {
        0 => format!("{whole}"),
        rest if whole < 0 => format!("-{}.{:03}", -(whole + 1), 1000 - rest),
        rest => format!("{whole}.{rest:03}"),
    }
}

/// The label of a stream: the time at which it was enabled, in ISO 8601 without a zone.
pub fn stream_label(ms: i64) -> String {
    let (days, of_day) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    let (year, month, day) = civil_date(days);
    let (hours, minutes) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (secs, millis) = (of_day / 1000 % 60, of_day % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{secs:02}.{millis:03}")
}

/// Year, month and day of a number of days since 1970-01-01, by the calendar's period of 400 years.
fn civil_date(days: i64) -> (i64, i64, i64) {
    // Days since 0000-03-01: years begin in March, so that a leap day is the last of its year.
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

impl TableDescription<'_> {
    /// The ARN of the table.
    pub fn arn(&self) -> String {
        arn::of_table(self.region, self.account, &self.table.name)
    }

    /// Writes the description.
    pub fn write(&self, out: &mut Vec<u8>) {
        let table = self.table;
        let mut object = Object::begin(out);
        write_attributes(object.name("AttributeDefinitions"), table);
        object.text("TableName", &table.name);
        write_key_schema(object.name("KeySchema"), &table.key_schema);
        object.text("TableStatus", self.status.word());
        object.time("CreationDateTime", table.created_ms);
        write_throughput(object.name("ProvisionedThroughput"), &table.throughput);
        object.integer("TableSizeBytes", self.bytes);
        object.integer("ItemCount", self.items);
        object.text("TableArn", &self.arn());
        object.text("TableId", &table.id);
        self.write_billing(&mut object);
        self.write_indexes(&mut object);
        self.write_stream(&mut object);
        self.write_rest(&mut object);
        object.end();
    }

    fn write_billing(&self, object: &mut Object) {
        let table = self.table;
        if table.billing_mode == BillingMode::PayPerRequest {
            for (summary, member) in [
                ("BillingModeSummary", "BillingMode"),
                ("TableThroughputModeSummary", "TableThroughputMode"),
            ] {
                let mut inner = Object::begin(object.name(summary));
                inner.text(member, table.billing_mode.word());
                if let Some(ms) = table.pay_per_request_ms {
                    inner.time("LastUpdateToPayPerRequestDateTime", ms);
                }
                inner.end();
            }
        }
        if let Some(on_demand) = &table.on_demand {
            write_on_demand(object.name("OnDemandThroughput"), on_demand);
        }
        let warm = warm_throughput(table.warm, table.billing_mode, &table.throughput);
        let status = match self.status {
            TableStatus::Creating => TableStatus::Creating,
            _ => TableStatus::Active,
        };
        write_warm(object.name("WarmThroughput"), warm, status);
    }

    fn statistics(&self, name: &str) -> IndexStatistics {
        let known = self.indexes.iter().find(|index| index.name == name);
        known.cloned().unwrap_or_else(|| IndexStatistics {
            name: name.to_owned(),
            status: self.status,
            backfilling: false,
            items: 0,
            bytes: 0,
        })
    }

    fn index_arn(&self, index: &str) -> String {
        [&self.arn(), "/index/", index].concat()
    }

    fn write_indexes(&self, object: &mut Object) {
        let table = self.table;
        if !table.local_indexes.is_empty() {
            let write = |out: &mut Vec<u8>, index: &LocalIndex| self.write_local_index(out, index);
            write_list(object.name("LocalSecondaryIndexes"), &table.local_indexes, write);
        }
        if !table.global_indexes.is_empty() {
            let write = |out: &mut Vec<u8>, index: &GlobalIndex| self.write_global_index(out, index);
            write_list(object.name("GlobalSecondaryIndexes"), &table.global_indexes, write);
        }
        if !table.vector_indexes.is_empty() {
            let write = |out: &mut Vec<u8>, index: &VectorIndex| self.write_vector_index(out, index);
            write_list(object.name("VectorIndexes"), &table.vector_indexes, write);
        }
    }

    fn write_local_index(&self, out: &mut Vec<u8>, index: &LocalIndex) {
        let statistics = self.statistics(&index.name);
        let mut object = Object::begin(out);
        object.text("IndexName", &index.name);
        write_key_schema(object.name("KeySchema"), &index.key_schema);
        write_projection(object.name("Projection"), &index.projection);
        object.integer("IndexSizeBytes", statistics.bytes);
        object.integer("ItemCount", statistics.items);
        object.text("IndexArn", &self.index_arn(&index.name));
        object.end();
    }

    fn write_global_index(&self, out: &mut Vec<u8>, index: &GlobalIndex) {
        let statistics = self.statistics(&index.name);
        let mut object = Object::begin(out);
        object.text("IndexName", &index.name);
        write_key_schema(object.name("KeySchema"), &index.key_schema);
        write_projection(object.name("Projection"), &index.projection);
        object.text("IndexStatus", statistics.status.word());
        if statistics.backfilling {
            object.flag("Backfilling", true);
        }
        write_throughput(object.name("ProvisionedThroughput"), &index.throughput);
        object.integer("IndexSizeBytes", statistics.bytes);
        object.integer("ItemCount", statistics.items);
        object.text("IndexArn", &self.index_arn(&index.name));
        if let Some(on_demand) = &index.on_demand {
            write_on_demand(object.name("OnDemandThroughput"), on_demand);
        }
        let warm = warm_throughput(index.warm, self.table.billing_mode, &index.throughput);
        write_warm(object.name("WarmThroughput"), warm, statistics.status);
        object.end();
    }

    fn write_vector_index(&self, out: &mut Vec<u8>, index: &VectorIndex) {
        let statistics = self.statistics(&index.name);
        let mut object = Object::begin(out);
        object.text("IndexName", &index.name);
        if !index.search_schema.is_empty() {
            let write = |out: &mut Vec<u8>, (name, kind): &(String, super::SearchSchemaType)| {
                let mut element = Object::begin(out);
                element.text("AttributeName", name);
                element.text("SearchSchemaElementType", kind.word());
                element.end();
            };
            write_list(object.name("SearchSchema"), &index.search_schema, write);
        }
        write_projection(object.name("Projection"), &index.projection);
        let mut attribute = Object::begin(object.name("VectorAttribute"));
        attribute.text("AttributeName", &index.vector_attribute);
        attribute.end();
        object.integer("Dimensions", index.dimensions);
        object.text("DistanceFunction", index.distance.word());
        object.text("IndexStatus", statistics.status.word());
        if statistics.backfilling {
            object.flag("Backfilling", true);
        }
        object.integer("IndexSizeBytes", statistics.bytes);
        object.integer("ItemCount", statistics.items);
        object.text("IndexArn", &self.index_arn(&index.name));
        object.end();
    }

    fn write_stream(&self, object: &mut Object) {
        let Some(stream) = &self.table.stream else {
            return;
        };
        let mut inner = Object::begin(object.name("StreamSpecification"));
        inner.flag("StreamEnabled", true);
        inner.text("StreamViewType", stream.view_type.word());
        inner.end();
        let label = stream_label(stream.enabled_ms);
        object.text("LatestStreamLabel", &label);
        object.text("LatestStreamArn", &[&self.arn(), "/stream/", &label].concat());
    }

    fn write_rest(&self, object: &mut Object) {
        let table = self.table;
        if let Some(sse) = &table.sse {
            let mut inner = Object::begin(object.name("SSEDescription"));
            inner.text("Status", "ENABLED");
            inner.text("SSEType", sse.sse_type.word());
            if let Some(key) = &sse.key {
                inner.text("KMSMasterKeyArn", key);
            }
            inner.end();
        }
        if let Some(class) = table.table_class {
            let mut inner = Object::begin(object.name("TableClassSummary"));
            inner.text("TableClass", class.word());
            inner.end();
        }
        if let Some(restore) = &table.restore {
            let mut inner = Object::begin(object.name("RestoreSummary"));
            inner.text("SourceBackupArn", &restore.backup_arn);
            inner.text("SourceTableArn", &restore.table_arn);
            inner.time("RestoreDateTime", restore.began_ms);
            inner.flag("RestoreInProgress", restore.in_progress);
            inner.end();
        }
        object.flag("DeletionProtectionEnabled", table.deletion_protection);
    }
}

fn warm_throughput(set: Option<Throughput>, billing: BillingMode, provisioned: &ProvisionedThroughput) -> Throughput {
    let least = match billing {
        BillingMode::PayPerRequest => WARM_BY_REQUEST,
        BillingMode::Provisioned => provisioned.units,
    };
    let set = set.unwrap_or(least);
    Throughput {
        read_units: set.read_units.max(least.read_units),
        write_units: set.write_units.max(least.write_units),
    }
}

fn write_list<T>(out: &mut Vec<u8>, list: &[T], write: impl Fn(&mut Vec<u8>, &T)) {
    out.push(b'[');
    for (number, element) in list.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        write(out, element);
    }
    out.push(b']');
}

fn write_attributes(out: &mut Vec<u8>, table: &TableDefinition) {
    write_list(out, &table.attributes, |out, attribute| {
        let mut object = Object::begin(out);
        object.text("AttributeName", &attribute.name);
        object.text("AttributeType", attribute.scalar_type.word());
        object.end();
    });
}

pub(crate) fn write_key_schema(out: &mut Vec<u8>, schema: &KeySchema) {
    write_list(out, &schema.0, |out, element| {
        let mut object = Object::begin(out);
        object.text("AttributeName", &element.name);
        object.text("KeyType", element.key_type.word());
        object.end();
    });
}

fn write_projection(out: &mut Vec<u8>, projection: &Projection) {
    let mut object = Object::begin(out);
    object.text("ProjectionType", projection.projection_type.word());
    if !projection.non_key_attributes.is_empty() {
        let write = |out: &mut Vec<u8>, name: &String| write_string(out, name);
        write_list(object.name("NonKeyAttributes"), &projection.non_key_attributes, write);
    }
    object.end();
}

fn write_throughput(out: &mut Vec<u8>, throughput: &ProvisionedThroughput) {
    let mut object = Object::begin(out);
    if let Some(ms) = throughput.increased_ms {
        object.time("LastIncreaseDateTime", ms);
    }
    if let Some(ms) = throughput.decreased_ms {
        object.time("LastDecreaseDateTime", ms);
    }
    object.integer("NumberOfDecreasesToday", throughput.decreases);
    object.integer("ReadCapacityUnits", throughput.units.read_units);
    object.integer("WriteCapacityUnits", throughput.units.write_units);
    object.end();
}

pub(crate) fn write_on_demand(out: &mut Vec<u8>, on_demand: &OnDemandThroughput) {
    let mut object = Object::begin(out);
    if let Some(units) = on_demand.read_units_max {
        object.integer("MaxReadRequestUnits", units);
    }
    if let Some(units) = on_demand.write_units_max {
        object.integer("MaxWriteRequestUnits", units);
    }
    object.end();
}

fn write_warm(out: &mut Vec<u8>, warm: Throughput, status: TableStatus) {
    let mut object = Object::begin(out);
    object.integer("ReadUnitsPerSecond", warm.read_units);
    object.integer("WriteUnitsPerSecond", warm.write_units);
    object.text("Status", status.word());
    object.end();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_and_labels_of_streams_are_dates() {
        let at = |ms| (seconds(ms), stream_label(ms));
        assert_eq!(at(0), ("0".to_owned(), "1970-01-01T00:00:00.000".to_owned()));
        assert_eq!(
            at(1_796_075_623_507),
            ("1796075623.507".to_owned(), "2026-11-30T21:53:43.507".to_owned())
        );
        assert_eq!(at(951_782_400_000).1, "2000-02-29T00:00:00.000");
        assert_eq!(at(-1).0, "-0.001");
        assert_eq!(at(-1500).0, "-1.500");
    }
}
