//! The types of columns.
//!
//! A type is its kind and the types inside it: a list has one, a map two, a tuple or user-defined type any number.

use std::sync::Arc;

use record::{Field, Message, Of, RecordError};
use types::{CqlType, DIMENSION_MAX, UdtType};

/// A CQL type.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TypeRecord {
    /// Which it is: a number of `NATIVE`, or one of the constants below.
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    /// The types inside it.
    #[prost(message, repeated, tag = "2")]
    pub inner: Vec<TypeRecord>,
    /// How many elements a vector has.
    #[prost(uint32, tag = "3")]
    pub dimension: u32,
    /// The keyspace of a user-defined type.
    #[prost(string, tag = "4")]
    pub keyspace: String,
    /// The name of a user-defined type.
    #[prost(string, tag = "5")]
    pub name: String,
    /// The names of its fields.
    #[prost(string, repeated, tag = "6")]
    pub field_names: Vec<String>,
}

pub(super) static TYPE: Message = Message::new(
    "type",
    &[
        Field::new(1, "kind", Of::U32),
        Field::list(2, "inner", Of::Record(&TYPE)),
        Field::new(3, "dimension", Of::U32),
        Field::new(4, "keyspace", Of::Text),
        Field::new(5, "name", Of::Text),
        Field::list(6, "field_names", Of::Text),
    ],
)
.titled(&[4, 5]);

/// Types without others inside. The numbers are durable.
static NATIVE: &[(u32, CqlType)] = &[
    (1, CqlType::Ascii),
    (2, CqlType::BigInt),
    (3, CqlType::Blob),
    (4, CqlType::Boolean),
    (5, CqlType::Counter),
    (6, CqlType::Date),
    (7, CqlType::Decimal),
    (8, CqlType::Double),
    (9, CqlType::Duration),
    (10, CqlType::Float),
    (11, CqlType::Inet),
    (12, CqlType::Int),
    (13, CqlType::SmallInt),
    (14, CqlType::Text),
    (15, CqlType::Time),
    (16, CqlType::Timestamp),
    (17, CqlType::TimeUuid),
    (18, CqlType::TinyInt),
    (19, CqlType::Uuid),
    (20, CqlType::VarInt),
    (21, CqlType::Empty),
];
const LIST: u32 = 40;
const SET: u32 = 41;
const MAP: u32 = 42;
const TUPLE: u32 = 43;
const UDT: u32 = 44;
const VECTOR: u32 = 45;
const FROZEN: u32 = 46;

pub(super) fn to_record(cql_type: &CqlType) -> TypeRecord {
    let of = |kind: u32, inner: &[&CqlType]| TypeRecord {
        kind,
        inner: inner.iter().map(|inner| to_record(inner)).collect(),
        ..TypeRecord::default()
    };
    match cql_type {
        CqlType::List(element) => of(LIST, &[element]),
        CqlType::Set(element) => of(SET, &[element]),
        CqlType::Map(key, value) => of(MAP, &[key, value]),
        CqlType::Tuple(elements) => of(TUPLE, &elements.iter().collect::<Vec<_>>()),
        CqlType::Frozen(inner) => of(FROZEN, &[inner]),
        CqlType::Vector(element, dimension) => TypeRecord {
            dimension: *dimension,
            ..of(VECTOR, &[element])
        },
        CqlType::Udt(udt) => TypeRecord {
            keyspace: udt.keyspace.clone(),
            name: udt.name.clone(),
            field_names: udt.fields.iter().map(|(name, _)| name.clone()).collect(),
            ..of(UDT, &udt.fields.iter().map(|(_, field)| field).collect::<Vec<_>>())
        },
        native => {
            let number = NATIVE.iter().find(|(_, other)| other == native);
            let (number, _) = number.expect("every type without others inside has a number");
            of(*number, &[])
        }
    }
}

pub(super) fn from_record(record: &TypeRecord, place: &str) -> Result<CqlType, RecordError> {
    let damaged = |why: String| RecordError::damaged(place, why);
    let inner: Result<Vec<CqlType>, RecordError> = record.inner.iter().map(|inner| from_record(inner, place)).collect();
    let inner = inner?;
    let is_plain =
        record.dimension == 0 && record.keyspace.is_empty() && record.name.is_empty() && record.field_names.is_empty();
    if !is_plain && !matches!(record.kind, UDT | VECTOR) {
        return Err(damaged(format!("type {} has what only others have", record.kind)));
    }
    let count = inner.len();
    let wrong_count = || damaged(format!("type {} with {count} types inside", record.kind));
    Ok(match record.kind {
        TUPLE => CqlType::Tuple(inner.into()),
        UDT => {
            if record.field_names.len() != count || record.dimension != 0 {
                return Err(damaged(format!(
                    "user-defined type {}.{} with {} names and {count} types of fields",
                    record.keyspace,
                    record.name,
                    record.field_names.len()
                )));
            }
            CqlType::Udt(Arc::new(UdtType {
                keyspace: record.keyspace.clone(),
                name: record.name.clone(),
                fields: record.field_names.iter().cloned().zip(inner).collect(),
            }))
        }
        MAP => {
            let [key, value] = <[CqlType; 2]>::try_from(inner).map_err(|_| wrong_count())?;
            CqlType::Map(Arc::new(key), Arc::new(value))
        }
        LIST | SET | VECTOR | FROZEN => {
            let [element] = <[CqlType; 1]>::try_from(inner).map_err(|_| wrong_count())?;
            let element = Arc::new(element);
            match record.kind {
                LIST => CqlType::List(element),
                SET => CqlType::Set(element),
                FROZEN => CqlType::Frozen(element),
                _ if record.keyspace.is_empty() && record.name.is_empty() && record.field_names.is_empty() => {
                    if !(1..=DIMENSION_MAX).contains(&record.dimension) {
                        return Err(damaged(format!("a vector of {} dimensions", record.dimension)));
                    }
                    CqlType::Vector(element, record.dimension)
                }
                _ => return Err(damaged("a vector with a name".to_owned())),
            }
        }
        kind => match NATIVE.iter().find(|(number, _)| *number == kind) {
            Some((_, native)) if count == 0 => native.clone(),
            Some(_) => return Err(wrong_count()),
            None => return Err(damaged(format!("there is no type {kind}"))),
        },
    })
}
