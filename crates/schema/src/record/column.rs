//! Columns of a table, those that are there and those that were dropped.

use record::{Field, Message, Of, RecordError};

use super::cql_type::{self, TYPE, TypeRecord};
use super::{small, there};
use crate::table::{Column, ColumnId, ColumnKind, DroppedColumn};

/// A column.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ColumnRecord {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its type.
    #[prost(message, optional, tag = "2")]
    pub cql_type: Option<TypeRecord>,
    /// 1: partition key, 2: clustering key, 3: static, 4: regular.
    #[prost(uint32, tag = "3")]
    pub kind: u32,
    /// The component of its key.
    #[prost(uint32, tag = "4")]
    pub position: u32,
    /// Whether it is a clustering column in descending order.
    #[prost(bool, tag = "5")]
    pub descending: bool,
    /// The number that packed rows use; absent for a column of a key.
    #[prost(uint32, optional, tag = "6")]
    pub id: Option<u32>,
}

/// A column that was dropped.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DroppedColumnRecord {
    /// The name that it had.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The type that it had.
    #[prost(message, optional, tag = "2")]
    pub cql_type: Option<TypeRecord>,
    /// 3: static, 4: regular.
    #[prost(uint32, tag = "3")]
    pub kind: u32,
    /// Its number in packed rows.
    #[prost(uint32, tag = "4")]
    pub id: u32,
    /// When it was dropped, in microseconds since 1970.
    #[prost(sint64, tag = "5")]
    pub dropped_at_us: i64,
}

pub(super) static COLUMN: Message = Message::new(
    "column",
    &[
        Field::new(1, "name", Of::Text),
        Field::new(2, "type", Of::Record(&TYPE)),
        Field::new(3, "kind", Of::U32),
        Field::new(4, "position", Of::U32),
        Field::new(5, "descending", Of::Bool),
        Field::new(6, "id", Of::U32),
    ],
)
.titled(&[1]);

pub(super) static DROPPED_COLUMN: Message = Message::new(
    "dropped column",
    &[
        Field::new(1, "name", Of::Text),
        Field::new(2, "type", Of::Record(&TYPE)),
        Field::new(3, "kind", Of::U32),
        Field::new(4, "id", Of::U32),
        Field::new(5, "dropped_at_us", Of::S64),
    ],
)
.titled(&[1]);

fn kind_number(kind: ColumnKind) -> u32 {
    match kind {
        ColumnKind::PartitionKey => 1,
        ColumnKind::Clustering => 2,
        ColumnKind::Static => 3,
        ColumnKind::Regular => 4,
    }
}

fn kind_of(number: u32, place: &str) -> Result<ColumnKind, RecordError> {
    Ok(match number {
        1 => ColumnKind::PartitionKey,
        2 => ColumnKind::Clustering,
        3 => ColumnKind::Static,
        4 => ColumnKind::Regular,
        other => {
            let why = format!("expected a kind from 1 to 4, found {other}");
            return Err(RecordError::damaged(place, why));
        }
    })
}

fn is_key(kind: ColumnKind) -> bool {
    matches!(kind, ColumnKind::PartitionKey | ColumnKind::Clustering)
}

pub(super) fn to_record(column: &Column) -> ColumnRecord {
    ColumnRecord {
        name: column.name.clone(),
        cql_type: Some(cql_type::to_record(&column.cql_type)),
        kind: kind_number(column.kind),
        position: u32::from(column.position),
        descending: column.descending,
        id: (!is_key(column.kind)).then_some(u32::from(column.id.0)),
    }
}

pub(super) fn from_record(record: ColumnRecord) -> Result<Column, RecordError> {
    let at = |field: &str| format!("column {}, {field}", record.name);
    let kind = kind_of(record.kind, &at("kind"))?;
    let id = match record.id {
        None if is_key(kind) => ColumnId(u16::MAX),
        Some(id) if !is_key(kind) => ColumnId(small(id, &at("id"))?),
        Some(_) => return Err(RecordError::damaged(at("id"), "a column of a key has none")),
        None => return Err(RecordError::damaged(at("id"), "it is missing")),
    };
    let cql_type = there(record.cql_type.as_ref(), &at("type"))?;
    Ok(Column {
        cql_type: cql_type::from_record(cql_type, &at("type"))?,
        kind,
        position: small(record.position, &at("position"))?,
        descending: record.descending,
        id,
        name: record.name,
    })
}

pub(super) fn dropped_to_record(column: &DroppedColumn) -> DroppedColumnRecord {
    DroppedColumnRecord {
        name: column.name.clone(),
        cql_type: Some(cql_type::to_record(&column.cql_type)),
        kind: kind_number(column.kind),
        id: u32::from(column.id.0),
        dropped_at_us: column.dropped_at_us,
    }
}

pub(super) fn dropped_from_record(record: DroppedColumnRecord) -> Result<DroppedColumn, RecordError> {
    let at = |field: &str| format!("dropped column {}, {field}", record.name);
    let kind = kind_of(record.kind, &at("kind"))?;
    if is_key(kind) {
        return Err(RecordError::damaged(at("kind"), "a column of a key cannot be dropped"));
    }
    let cql_type = there(record.cql_type.as_ref(), &at("type"))?;
    Ok(DroppedColumn {
        cql_type: cql_type::from_record(cql_type, &at("type"))?,
        kind,
        id: ColumnId(small(record.id, &at("id"))?),
        dropped_at_us: record.dropped_at_us,
        name: record.name,
    })
}
