//! One object of any kind: the container that new kinds come into.
//!
//! Each kind has a field of its own, of which exactly one is there. A new kind is a new field with a feature; the others do not change.

use std::sync::Arc;

use record::{Field, Message, Of, Record, RecordError};

use super::keyspace::{self, KeyspaceRecord};
use super::table::{self, TABLE, TableRecord};
use crate::object::{Object, ObjectKind, ObjectName};

/// An object.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ObjectRecord {
    /// If it is a keyspace.
    #[prost(message, optional, tag = "1")]
    pub keyspace: Option<KeyspaceRecord>,
    /// If it is a table.
    #[prost(message, optional, tag = "2")]
    pub table: Option<TableRecord>,
}

/// Kinds that are planned. Their numbers are also those of [`ObjectKind`].
const PLANNED: &[(u32, &str)] = &[
    (3, "a type"),
    (4, "a materialized view"),
    (5, "a secondary index"),
    (6, "a function"),
    (7, "an aggregate"),
    (8, "a role"),
    (9, "a service level"),
];

pub(super) static OBJECT: Message = Message::new(
    "object",
    &[
        Field::new(1, "keyspace", Of::Record(&super::keyspace::KEYSPACE)),
        Field::new(2, "table", Of::Record(&TABLE)),
    ],
)
.reserving(PLANNED);

impl Record for ObjectRecord {
    const MESSAGE: &'static Message = &OBJECT;
}

/// The name of an object.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ObjectNameRecord {
    /// The number of its kind.
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    /// Its keyspace.
    #[prost(string, tag = "2")]
    pub keyspace: String,
    /// Its name; empty if it is a keyspace.
    #[prost(string, tag = "3")]
    pub name: String,
}

pub(super) static OBJECT_NAME: Message = Message::new(
    "object name",
    &[
        Field::new(1, "kind", Of::U32),
        Field::new(2, "keyspace", Of::Text),
        Field::new(3, "name", Of::Text),
    ],
)
.titled(&[2, 3]);

/// The record of an object.
#[must_use]
pub fn object_record(object: &Object) -> ObjectRecord {
    let mut record = ObjectRecord::default();
    match object {
        Object::Keyspace(keyspace) => record.keyspace = Some(keyspace::to_record(keyspace)),
        Object::Table(table) => record.table = Some(table::to_record(table)),
    }
    record
}

/// The object of a record.
///
/// # Errors
/// When it describes none.
pub fn object_from_record(record: ObjectRecord) -> Result<Object, RecordError> {
    match (record.keyspace, record.table) {
        (Some(keyspace), None) => keyspace::from_record(keyspace).map(Object::Keyspace),
        (None, Some(table)) => Ok(Object::Table(Arc::new(table::from_record(table)?))),
        (None, None) => Err(RecordError::damaged("object", "it has no kind")),
        (Some(_), Some(_)) => Err(RecordError::damaged("object", "it has two kinds")),
    }
}

pub(super) fn name_to_record(name: &ObjectName) -> ObjectNameRecord {
    ObjectNameRecord {
        kind: name.kind as u32,
        keyspace: name.keyspace.clone(),
        name: name.name.clone(),
    }
}

pub(super) fn name_from_record(record: ObjectNameRecord) -> Result<ObjectName, RecordError> {
    let kinds = [ObjectKind::Keyspace, ObjectKind::Table];
    let Some(kind) = kinds.into_iter().find(|kind| *kind as u32 == record.kind) else {
        let planned = PLANNED.iter().find(|(number, _)| *number == record.kind);
        let what = planned.map_or("unknown to this release", |(_, what)| what);
        let why = format!("there is no kind {} ({what})", record.kind);
        return Err(RecordError::damaged("object name, kind", why));
    };
    Ok(ObjectName {
        kind,
        keyspace: record.keyspace,
        name: record.name,
    })
}
