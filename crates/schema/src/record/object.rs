//! One object of any kind: the container that new kinds come into.
//!
//! Each kind has a field of its own, of which exactly one is there. A new kind is a new field with a feature; the
//! others do not change.

use std::sync::Arc;

use record::{Field, Message, Of, Record, RecordError};
use types::CqlType;

use super::cql_type::{self, TYPE, TypeRecord};
use super::function::{self, AGGREGATE, AggregateRecord, FUNCTION, FunctionRecord};
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
    /// If it is a user-defined type.
    #[prost(message, optional, tag = "3")]
    pub user_type: Option<TypeRecord>,
    /// If it is a user-defined function.
    #[prost(message, optional, tag = "6")]
    pub function: Option<FunctionRecord>,
    /// If it is a user-defined aggregate.
    #[prost(message, optional, tag = "7")]
    pub aggregate: Option<AggregateRecord>,
}

/// Kinds that are planned. Their numbers are also those of [`ObjectKind`].
const PLANNED: &[(u32, &str)] = &[
    (4, "a materialized view"),
    (5, "a secondary index"),
    (8, "a role"),
    (9, "a service level"),
];

pub(super) static OBJECT: Message = Message::new(
    "object",
    &[
        Field::new(1, "keyspace", Of::Record(&super::keyspace::KEYSPACE)),
        Field::new(2, "table", Of::Record(&TABLE)),
        Field::new(3, "user_type", Of::Record(&TYPE)),
        Field::new(6, "function", Of::Record(&FUNCTION)),
        Field::new(7, "aggregate", Of::Record(&AGGREGATE)),
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
    /// Its name, with its arguments' types if it is a function or aggregate; empty if it is a keyspace.
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
        Object::Type(udt) => record.user_type = Some(cql_type::to_record(&CqlType::Udt(udt.clone()))),
        Object::Function(of) => record.function = Some(function::function_to_record(of)),
        Object::Aggregate(of) => record.aggregate = Some(function::aggregate_to_record(of)),
    }
    record
}

/// The object of a record.
///
/// # Errors
/// When it describes none.
pub fn object_from_record(record: ObjectRecord) -> Result<Object, RecordError> {
    let mut kinds = Vec::new();
    let ObjectRecord {
        keyspace,
        table,
        user_type,
        function,
        aggregate,
    } = record;
    kinds.extend(keyspace.map(|record| keyspace::from_record(record).map(Object::Keyspace)));
    kinds.extend(table.map(|record| Ok(Object::Table(Arc::new(table::from_record(record)?)))));
    kinds.extend(user_type.map(|record| type_from_record(&record)));
    kinds.extend(function.map(|record| Ok(Object::Function(Arc::new(function::function_from_record(record)?)))));
    kinds.extend(aggregate.map(|record| Ok(Object::Aggregate(Arc::new(function::aggregate_from_record(record)?)))));
    match kinds.pop() {
        None => Err(RecordError::damaged("object", "it has no kind")),
        Some(object) if kinds.is_empty() => object,
        Some(_) => Err(RecordError::damaged("object", "it has two kinds")),
    }
}

fn type_from_record(record: &TypeRecord) -> Result<Object, RecordError> {
    match cql_type::from_record(record, "user-defined type")? {
        CqlType::Udt(udt) if !udt.keyspace.is_empty() && !udt.name.is_empty() => Ok(Object::Type(udt)),
        other => {
            let why = format!("expected a user-defined type with keyspace and name, found {other}");
            Err(RecordError::damaged("user-defined type", why))
        }
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
    let kinds = [
        ObjectKind::Keyspace,
        ObjectKind::Table,
        ObjectKind::Type,
        ObjectKind::Function,
        ObjectKind::Aggregate,
    ];
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
