//! Backups of tables: what is kept of one beside its files, and how it is described.
//!
//! The stored form is a byte with the version, then JSON with short names, as that of a table's definition.

use serde::{Deserialize, Serialize};

use crate::answer::Object;
use crate::arn;
use crate::table::{StorageError, TableDefinition, storage, write_key_schema, write_on_demand};

/// The version that is written.
const VERSION: u8 = 1;

/// The state of a backup.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum BackupStatus {
    /// Nodes are taking their snapshots.
    #[serde(rename = "c")]
    Creating,
    /// It can be restored.
    #[serde(rename = "a")]
    Available,
    /// It was deleted just now.
    #[serde(rename = "d")]
    Deleted,
}

impl BackupStatus {
    /// The word of the API.
    pub fn word(self) -> &'static str {
        match self {
            Self::Creating => "CREATING",
            Self::Available => "AVAILABLE",
            Self::Deleted => "DELETED",
        }
    }
}

/// What is known of a backup.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backup {
    /// Its id: 14 digits with the milliseconds since 1970, a dash, and 8 hexadecimal digits by chance.
    #[serde(rename = "i")]
    pub id: String,
    /// The name that the request gave it; several may have the same.
    #[serde(rename = "n")]
    pub name: String,
    /// Its state.
    #[serde(rename = "s")]
    pub status: BackupStatus,
    /// When it was created, in milliseconds since 1970.
    #[serde(rename = "c")]
    pub created_ms: i64,
    /// The timestamp of this record, in microseconds: the next one has a later one.
    #[serde(rename = "w")]
    pub written_us: i64,
    /// The table, as it was.
    #[serde(rename = "t")]
    pub table: TableDefinition,
    /// The id of the table's data, a UUID.
    #[serde(rename = "d")]
    pub data_id: String,
    /// The bytes of one copy of the table, about.
    #[serde(rename = "b")]
    pub bytes: u64,
    /// The ids of the nodes that have files of it, UUIDs.
    #[serde(rename = "h")]
    pub hosts: Vec<String>,
    /// Sets of positions in `hosts`: of the files of each set, those of as many nodes as the second member says have
    /// every write that was acknowledged.
    #[serde(rename = "r")]
    pub needs: Vec<(Vec<u32>, u32)>,
}

impl Backup {
    /// The id of a backup that is created now; `random` are bits by chance.
    pub fn new_id(created_ms: i64, random: u32) -> String {
        format!("{created_ms:014}-{random:08x}")
    }

    /// The stored form.
    ///
    /// # Errors
    /// None that a backup can cause; the JSON library reports failures of its writer.
    pub fn encode(&self) -> Result<Vec<u8>, StorageError> {
        storage::encode(VERSION, self)
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`StorageError`] for other bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, StorageError> {
        storage::decode(VERSION, bytes)
    }

    /// Whether the files of the nodes for which `has` is true have every write that was acknowledged.
    pub fn is_complete(&self, has: impl Fn(&str) -> bool) -> bool {
        let has: Vec<bool> = self.hosts.iter().map(|host| has(host)).collect();
        self.needs.iter().all(|(set, least)| {
            let found = set.iter().filter(|at| has.get(**at as usize).copied().unwrap_or(false));
            u32::try_from(found.count()).unwrap_or(u32::MAX) >= *least
        })
    }
}

/// A backup as answers show it.
#[derive(Clone, Copy, Debug)]
pub struct BackupDescription<'a> {
    /// The backup.
    pub backup: &'a Backup,
    /// The region in ARNs.
    pub region: &'a str,
    /// The account in ARNs.
    pub account: &'a str,
}

impl BackupDescription<'_> {
    /// The ARN of the backup.
    pub fn arn(&self) -> String {
        arn::of_backup(self.region, self.account, &self.backup.table.name, &self.backup.id)
    }

    /// The ARN of the table.
    pub fn table_arn(&self) -> String {
        arn::of_table(self.region, self.account, &self.backup.table.name)
    }

    fn write_common(&self, object: &mut Object) {
        let backup = self.backup;
        object.text("BackupArn", &self.arn());
        object.text("BackupName", &backup.name);
        object.integer("BackupSizeBytes", backup.bytes);
        object.text("BackupStatus", backup.status.word());
        object.text("BackupType", "USER");
        object.time("BackupCreationDateTime", backup.created_ms);
    }

    fn write_details(&self, out: &mut Vec<u8>) {
        let mut object = Object::begin(out);
        self.write_common(&mut object);
        object.end();
    }

    fn write_summary(&self, out: &mut Vec<u8>) {
        let mut object = Object::begin(out);
        object.text("TableName", &self.backup.table.name);
        object.text("TableId", &self.backup.table.id);
        object.text("TableArn", &self.table_arn());
        self.write_common(&mut object);
        object.end();
    }

    fn write_table(&self, out: &mut Vec<u8>) {
        let table = &self.backup.table;
        let mut object = Object::begin(out);
        object.text("TableName", &table.name);
        object.text("TableId", &table.id);
        object.text("TableArn", &self.table_arn());
        object.integer("TableSizeBytes", self.backup.bytes);
        write_key_schema(object.name("KeySchema"), &table.key_schema);
        object.time("TableCreationDateTime", table.created_ms);
        let mut throughput = Object::begin(object.name("ProvisionedThroughput"));
        throughput.integer("ReadCapacityUnits", table.throughput.units.read_units);
        throughput.integer("WriteCapacityUnits", table.throughput.units.write_units);
        throughput.end();
        if let Some(on_demand) = &table.on_demand {
            write_on_demand(object.name("OnDemandThroughput"), on_demand);
        }
        object.text("BillingMode", table.billing_mode.word());
        object.end();
    }

    fn write_features(&self, out: &mut Vec<u8>) {
        let mut object = Object::begin(out);
        if let Some(attribute) = &self.backup.table.ttl_attribute {
            let mut inner = Object::begin(object.name("TimeToLiveDescription"));
            inner.text("TimeToLiveStatus", "ENABLED");
            inner.text("AttributeName", attribute);
            inner.end();
        }
        if let Some(sse) = &self.backup.table.sse {
            let mut inner = Object::begin(object.name("SSEDescription"));
            inner.text("Status", "ENABLED");
            inner.text("SSEType", sse.sse_type.word());
            inner.end();
        }
        object.end();
    }

    /// Appends the answer to CreateBackup.
    pub fn write_created(&self, out: &mut Vec<u8>) {
        let mut object = Object::begin(out);
        self.write_details(object.name("BackupDetails"));
        object.end();
    }

    /// Appends the answer to DescribeBackup and DeleteBackup.
    pub fn write_described(&self, out: &mut Vec<u8>) {
        let mut object = Object::begin(out);
        let mut inner = Object::begin(object.name("BackupDescription"));
        self.write_details(inner.name("BackupDetails"));
        self.write_table(inner.name("SourceTableDetails"));
        self.write_features(inner.name("SourceTableFeatureDetails"));
        inner.end();
        object.end();
    }
}

/// Appends the answer to ListBackups; `last` is the ARN after which to continue, None at the end.
pub fn write_backups(out: &mut Vec<u8>, backups: &[BackupDescription], last: Option<&str>) {
    let mut object = Object::begin(out);
    object.list("BackupSummaries", backups, |out, backup| backup.write_summary(out));
    if let Some(last) = last {
        object.text("LastEvaluatedBackupArn", last);
    }
    object.end();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Operation, Request};
    use crate::table::RestoreSource;

    fn table() -> TableDefinition {
        let body = br#"{"TableName":"music","AttributeDefinitions":[{"AttributeName":"p","AttributeType":"S"}],
            "KeySchema":[{"AttributeName":"p","KeyType":"HASH"}],
            "ProvisionedThroughput":{"ReadCapacityUnits":3,"WriteCapacityUnits":4},"DeletionProtectionEnabled":true}"#;
        match Request::parse(Operation::CreateTable, body).unwrap() {
            Request::CreateTable(create) => create.into_definition("id".to_owned(), 1_000),
            other => panic!("{other:?}"),
        }
    }

    fn backup() -> Backup {
        Backup {
            id: Backup::new_id(1_489_602_797_149, 0x73d8_d5bc),
            name: "first".to_owned(),
            status: BackupStatus::Available,
            created_ms: 1_489_602_797_149,
            written_us: 7,
            table: TableDefinition {
                ttl_attribute: Some("ends".to_owned()),
                ..table()
            },
            data_id: "d".to_owned(),
            bytes: 12,
            hosts: ["a", "b", "c"].map(str::to_owned).to_vec(),
            needs: vec![(vec![0, 1, 2], 2), (vec![1], 1)],
        }
    }

    #[test]
    fn a_backup_is_read_as_it_was_stored() {
        let bytes = backup().encode().unwrap();
        assert_eq!(Backup::decode(&bytes), Ok(backup()));
        assert_eq!(Backup::decode(&[]), Err(StorageError::Empty));
        assert_eq!(Backup::decode(&[9, b'{']), Err(StorageError::Version(9)));
        assert!(Backup::decode(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn the_files_of_a_majority_of_each_set_are_enough() {
        let enough = |hosts: &[&str]| backup().is_complete(|host| hosts.contains(&host));
        assert!(enough(&["a", "b"]) && enough(&["b", "c"]) && enough(&["a", "b", "c"]));
        // The second set needs b.
        assert!(!enough(&["a", "c"]) && !enough(&["b"]) && !enough(&[]));
    }

    #[test]
    fn a_backup_is_described_as_the_service_does() {
        let backup = backup();
        let description = BackupDescription {
            backup: &backup,
            region: "ceto",
            account: "000000000000",
        };
        let arn = r#""BackupArn":"arn:aws:dynamodb:ceto:000000000000:table/music/backup/01489602797149-73d8d5bc""#;
        let common = format!(
            r#"{arn},"BackupName":"first","BackupSizeBytes":12,"BackupStatus":"AVAILABLE","BackupType":"USER","BackupCreationDateTime":1489602797.149"#
        );
        let mut out = Vec::new();
        description.write_created(&mut out);
        assert_eq!(
            String::from_utf8_lossy(&out),
            format!(r#"{{"BackupDetails":{{{common}}}}}"#)
        );
        out.clear();
        write_backups(&mut out, &[description], Some("last"));
        let of_table =
            r#""TableName":"music","TableId":"id","TableArn":"arn:aws:dynamodb:ceto:000000000000:table/music""#;
        assert_eq!(
            String::from_utf8_lossy(&out),
            format!(r#"{{"BackupSummaries":[{{{of_table},{common}}}],"LastEvaluatedBackupArn":"last"}}"#)
        );
        out.clear();
        description.write_described(&mut out);
        assert_eq!(
            String::from_utf8_lossy(&out),
            format!(
                r#"{{"BackupDescription":{{"BackupDetails":{{{common}}},"SourceTableDetails":{{{of_table},"TableSizeBytes":12,"KeySchema":[{{"AttributeName":"p","KeyType":"HASH"}}],"TableCreationDateTime":1,"ProvisionedThroughput":{{"ReadCapacityUnits":3,"WriteCapacityUnits":4}},"BillingMode":"PROVISIONED"}},"SourceTableFeatureDetails":{{"TimeToLiveDescription":{{"TimeToLiveStatus":"ENABLED","AttributeName":"ends"}}}}}}}}"#
            )
        );
    }

    fn restored(overrides: &str) -> Result<TableDefinition, String> {
        let arn = "arn:aws:dynamodb:ceto:000000000000:table/music/backup/01489602797149-73d8d5bc";
        let body = format!(r#"{{"TargetTableName":"again","BackupArn":"{arn}"{overrides}}}"#);
        let request = match Request::parse(Operation::RestoreTableFromBackup, body.as_bytes()) {
            Ok(Request::RestoreTableFromBackup(request)) => request,
            Ok(other) => panic!("{other:?}"),
            Err(error) => return Err(error.message),
        };
        let source = RestoreSource {
            backup_arn: arn.to_owned(),
            table_arn: "t".to_owned(),
            began_ms: 9,
            in_progress: true,
        };
        let made = request.into_definition(backup().table, "new".to_owned(), source);
        made.map_err(|error| error.message)
    }

    #[test]
    fn a_restored_table_has_the_key_and_not_the_protection_and_the_time_to_live() {
        let made = restored("").unwrap();
        assert_eq!(
            (made.name.as_str(), made.id.as_str(), made.created_ms),
            ("again", "new", 9)
        );
        assert_eq!(made.key_schema, table().key_schema);
        assert_eq!(made.throughput.units, table().throughput.units);
        assert_eq!((made.ttl_attribute.as_deref(), made.deletion_protection), (None, false));
        assert!(made.is_being_restored());
    }

    #[test]
    fn a_restore_may_change_the_billing() {
        let by_request = restored(r#","BillingModeOverride":"PAY_PER_REQUEST""#).unwrap();
        assert_eq!(by_request.throughput.units.read_units, 0);
        let units = r#","ProvisionedThroughputOverride":{"ReadCapacityUnits":9,"WriteCapacityUnits":8}"#;
        assert_eq!(restored(units).unwrap().throughput.units.read_units, 9);
        let both = format!(r#"{units},"BillingModeOverride":"PAY_PER_REQUEST""#);
        assert!(restored(&both).unwrap_err().contains("BillingMode is PAY_PER_REQUEST"));
        let unknown = restored(r#","BillingModeOverride":"FREE""#).unwrap_err();
        assert!(unknown.contains("'billingModeOverride'"), "{unknown}");
    }
}
