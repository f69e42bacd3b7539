//! Tables of CQL as the API shows them: `.scylla.alternator.KEYSPACE.TABLE` is the table KEYSPACE.TABLE, to be read.
//!
//! Only keyspaces whose names begin with `system` are shown, and not `system_auth`, which has secrets. Each column that
//! is not null becomes an attribute:
//!
//! | CQL | attribute |
//! |---|---|
//! | text and ascii | S |
//! | numbers | N; S if it has more than 38 digits or is not finite |
//! | blob | B |
//! | boolean | BOOL |
//! | list, tuple, vector | L; a null in a tuple is NULL |
//! | set | SS, NS or BS by its elements; L of other elements |
//! | map, user-defined type | M, whose names are the keys as texts |
//! | everything else | S, as CQL prints it |

use std::collections::BTreeMap;
use std::sync::Arc;

use dynamodb::table::{AttributeDefinition, KeyElement, KeySchema, KeyType, ScalarType, TableDefinition};
use dynamodb::{AttributeValue, Error, Item, Number, Set};
use schema::{Column, Schema, Table};
use stdx::preempt;
use types::{CollectionIter, CqlType, LiteralKind, MapIter, TupleIter, VectorIter};

/// What the names of these tables begin with.
const PREFIX: &str = ".scylla.alternator.";
/// Keyspaces that are shown begin so.
const SHOWN: &str = "system";
/// The keyspace of secrets.
const SECRET: &str = "system_auth";
/// Levels of collections in collections that are shown; deeper ones are texts.
const DEPTH_MAX: usize = 16;

/// Keyspace and table of CQL that a name means; None for names of tables of the API.
pub(crate) fn parse(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix(PREFIX)?.split_once('.')
}

/// Whether a name is one of these, or would be.
pub(crate) fn is_named(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Refuses a name of one of these for an operation that is no read of them.
///
/// # Errors
/// ValidationException.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    if is_named(name) {
        return Err(Error::validation(format!(
            "Table {name} is a table of CQL: Query and Scan read it, and other operations are not supported"
        )));
    }
    Ok(())
}

/// The table that a name means.
///
/// # Errors
/// ResourceNotFoundException when there is none, or its keyspace is not shown.
pub(crate) fn find(schema: &Schema, name: &str) -> Result<Arc<Table>, Error> {
    let found = parse(name).filter(|(keyspace, _)| keyspace.starts_with(SHOWN) && *keyspace != SECRET);
    let found = found.and_then(|(keyspace, table)| schema.table(keyspace, table));
    found.cloned().ok_or_else(crate::service::resource_not_found)
}

/// The definition by which requests are checked: the columns of the partition key and of the clustering key are the
/// key.
pub(crate) fn definition(table: &Table) -> TableDefinition {
    let element = |column: &Column, key_type| KeyElement {
        name: column.name.clone(),
        key_type,
    };
    let partition = table.partition_key().map(|column| element(column, KeyType::Hash));
    let sort = table.clustering().map(|column| element(column, KeyType::Range));
    let attributes = table.partition_key().chain(table.clustering());
    let attributes = attributes.map(|column| AttributeDefinition {
        name: column.name.clone(),
        scalar_type: scalar_type(&column.cql_type),
    });
    TableDefinition::new(
        table.name.clone(),
        table.id.0.to_string(),
        0,
        attributes.collect(),
        KeySchema(partition.chain(sort).collect()),
    )
}

const fn is_number(cql_type: &CqlType) -> bool {
    matches!(
        cql_type,
        CqlType::BigInt
            | CqlType::Counter
            | CqlType::Decimal
            | CqlType::Double
            | CqlType::Float
            | CqlType::Int
            | CqlType::SmallInt
            | CqlType::TinyInt
            | CqlType::VarInt
    )
}

fn scalar_type(cql_type: &CqlType) -> ScalarType {
    match cql_type {
        CqlType::Blob => ScalarType::B,
        number if is_number(number) => ScalarType::N,
        _ => ScalarType::S,
    }
}

/// The item of a row: values of columns, in the order of the columns.
pub(crate) fn item(columns: &[(String, CqlType)], row: Vec<Option<Vec<u8>>>) -> Item {
    let mut item = Item::new();
    for ((name, cql_type), value) in columns.iter().zip(row) {
        preempt::point();
        if let Some(bytes) = value {
            item.insert(name.clone(), attribute(cql_type, &bytes, DEPTH_MAX));
        }
    }
    item
}

/// The attribute of a serialised value, with so many levels of collections.
fn attribute(cql_type: &CqlType, bytes: &[u8], depth: usize) -> AttributeValue {
    let text = || AttributeValue::S(cql_type.format_unquoted(bytes));
    let Some(deeper) = depth.checked_sub(1) else {
        return text();
    };
    let each = |element: &CqlType, elements: Vec<&[u8]>| -> Vec<AttributeValue> {
        let elements = elements.into_iter();
        preempt::collect(elements.map(|element_bytes| attribute(element, element_bytes, deeper)))
    };
    match cql_type {
        CqlType::Frozen(inner) => attribute(inner, bytes, depth),
        CqlType::Text | CqlType::Ascii => String::from_utf8(bytes.to_vec()).map_or_else(|_| text(), AttributeValue::S),
        CqlType::Blob => AttributeValue::B(bytes.to_vec()),
        CqlType::Boolean if !bytes.is_empty() => AttributeValue::Bool(bytes.iter().any(|byte| *byte != 0)),
        number if is_number(number) => {
            let digits = cql_type.format_unquoted(bytes);
            Number::parse(&digits).map_or_else(|_| AttributeValue::S(digits), AttributeValue::N)
        }
        CqlType::List(element) => elements(bytes).map_or_else(text, |list| AttributeValue::L(each(element, list))),
        CqlType::Set(element) => elements(bytes).map_or_else(text, |list| set_of(each(element, list))),
        CqlType::Vector(element, dimension) => {
            let list: Option<Vec<&[u8]>> = VectorIter::new(bytes, *dimension, element.fixed_len())
                .map(Result::ok)
                .collect();
            list.map_or_else(text, |list| AttributeValue::L(each(element, list)))
        }
        CqlType::Map(key, value) => map_of(key, value, bytes, deeper).map_or_else(text, AttributeValue::M),
        CqlType::Tuple(types) => {
            let values = TupleIter::new(bytes).zip(types.iter()).map(|(value, cql_type)| {
                let value = value.ok()?;
                Some(value.map_or(AttributeValue::Null, |value| attribute(cql_type, value, deeper)))
            });
            values.collect::<Option<_>>().map_or_else(text, AttributeValue::L)
        }
        CqlType::Udt(udt) => {
            let fields = TupleIter::new(bytes).zip(&udt.fields).map(|(value, (name, cql_type))| {
                let value = value.ok()?;
                Some(value.map(|value| (name.clone(), attribute(cql_type, value, deeper))))
            });
            let fields: Option<Vec<_>> = fields.collect();
            fields.map_or_else(text, |fields| AttributeValue::M(fields.into_iter().flatten().collect()))
        }
        _ => text(),
    }
}

fn elements(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    CollectionIter::new(bytes).ok()?.map(Result::ok).collect()
}

fn map_of(key: &CqlType, value: &CqlType, bytes: &[u8], depth: usize) -> Option<BTreeMap<String, AttributeValue>> {
    let pairs = MapIter::new(bytes).ok()?.map(|pair| {
        let (key_bytes, value_bytes) = pair.ok()?;
        Some((key.format_unquoted(key_bytes), attribute(value, value_bytes, depth)))
    });
    pairs.collect()
}

/// The set of elements, if all are of one type that sets of the API have, else the list.
fn set_of(list: Vec<AttributeValue>) -> AttributeValue {
    fn all<T: Ord>(
        list: &[AttributeValue],
        pick: impl Fn(&AttributeValue) -> Option<T>,
        of: impl Fn(Set<T>) -> AttributeValue,
    ) -> Option<AttributeValue> {
        let picked: Option<Vec<T>> = list.iter().map(pick).collect();
        Set::new(picked.filter(|elements| !elements.is_empty())?).ok().map(of)
    }
    let text = |value: &AttributeValue| match value {
        AttributeValue::S(text) => Some(text.clone()),
        _ => None,
    };
    let number = |value: &AttributeValue| match value {
        AttributeValue::N(number) => Some(*number),
        _ => None,
    };
    let binary = |value: &AttributeValue| match value {
        AttributeValue::B(bytes) => Some(bytes.clone()),
        _ => None,
    };
    all(&list, text, AttributeValue::Ss)
        .or_else(|| all(&list, number, AttributeValue::Ns))
        .or_else(|| all(&list, binary, AttributeValue::Bs))
        .unwrap_or(AttributeValue::L(list))
}

/// The serialised value of a column that an attribute of a request means.
///
/// # Errors
/// ValidationException when the type of the column has no such value.
pub(crate) fn bytes_of(column: &Column, value: &AttributeValue) -> Result<Vec<u8>, Error> {
    let cql_type = &column.cql_type;
    let refused = |reason: String| Error::validation(format!("Key attribute {}: {reason}", column.name));
    let (kind, text) = match value {
        AttributeValue::B(bytes) => return Ok(bytes.clone()),
        AttributeValue::S(text) => (kind_of_text(cql_type), text.clone()),
        AttributeValue::N(number) => {
            let mut digits = Vec::new();
            number.append_text(&mut digits);
            let digits = String::from_utf8_lossy(&digits).into_owned();
            let is_integer = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
            (
                if is_integer {
                    LiteralKind::Integer
                } else {
                    LiteralKind::Float
                },
                digits,
            )
        }
        _ => return Err(refused("expected S, N or B".to_owned())),
    };
    cql_type.parse_literal(kind, &text).map_err(|e| refused(e.to_string()))
}

const fn kind_of_text(cql_type: &CqlType) -> LiteralKind {
    match cql_type {
        CqlType::Uuid | CqlType::TimeUuid => LiteralKind::Uuid,
        CqlType::Boolean => LiteralKind::Boolean,
        CqlType::Duration => LiteralKind::Duration,
        _ => LiteralKind::String,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(value: &AttributeValue) -> String {
        let mut out = Vec::new();
        dynamodb::value::json::write_value(&mut out, value);
        String::from_utf8(out).expect("JSON is text")
    }

    fn bytes(cql_type: &CqlType, kind: LiteralKind, text: &str) -> Vec<u8> {
        cql_type.parse_literal(kind, text).expect("a literal of the type")
    }

    /// A serialised collection of elements.
    fn collection(elements: &[Vec<u8>], count: usize) -> Vec<u8> {
        let length = |n: usize| i32::try_from(n).expect("it is short").to_be_bytes();
        let mut out = length(count).to_vec();
        for element in elements {
            out.extend_from_slice(&length(element.len()));
            out.extend_from_slice(element);
        }
        out
    }

    #[test]
    fn a_name_means_a_table_of_cql() {
        assert_eq!(parse(".scylla.alternator.system.local"), Some(("system", "local")));
        assert_eq!(parse("scylla.alternator.system.local"), None);
        assert_eq!(parse(".scylla.alternator.system"), None);
        assert!(is_named(".scylla.alternator.system"));
        assert!(!is_named("music"));
    }

    #[test]
    fn values_become_attributes() {
        use LiteralKind::{Boolean, Float, Hex, Integer, String as Str, Uuid};
        let id = "6f0e5c0c-8a1f-4b43-9f0c-3c1f6a2c9d10";
        for (cql_type, kind, text, expected) in [
            (CqlType::Text, Str, "a", r#"{"S":"a"}"#),
            (CqlType::Int, Integer, "-5", r#"{"N":"-5"}"#),
            (CqlType::Double, Float, "1.5", r#"{"N":"1.5"}"#),
            (CqlType::Blob, Hex, "0x0102", r#"{"B":"AQI="}"#),
            (CqlType::Boolean, Boolean, "true", r#"{"BOOL":true}"#),
            (CqlType::Uuid, Uuid, id, &format!(r#"{{"S":"{id}"}}"#)),
            (CqlType::Inet, Str, "127.0.0.1", r#"{"S":"127.0.0.1"}"#),
        ] {
            let value = attribute(&cql_type, &bytes(&cql_type, kind, text), DEPTH_MAX);
            assert_eq!(json(&value), expected, "{text}");
        }
        let many = "1".repeat(50);
        let value = attribute(&CqlType::VarInt, &bytes(&CqlType::VarInt, Integer, &many), DEPTH_MAX);
        assert_eq!(
            value,
            AttributeValue::S(many),
            "it has more digits than a number of the API"
        );
        let infinite = attribute(&CqlType::Double, &f64::INFINITY.to_be_bytes(), DEPTH_MAX);
        assert_eq!(infinite, AttributeValue::S("Infinity".to_owned()));
    }

    #[test]
    fn collections_become_documents() {
        let (text, int) = (Arc::new(CqlType::Text), Arc::new(CqlType::Int));
        let two = [1_i32, 2].map(|number| number.to_be_bytes().to_vec());
        let numbers = collection(&two, 2);
        let set = CqlType::Frozen(Arc::new(CqlType::Set(int.clone())));
        assert_eq!(json(&attribute(&set, &numbers, DEPTH_MAX)), r#"{"NS":["1","2"]}"#);
        let list = CqlType::List(int.clone());
        assert_eq!(
            json(&attribute(&list, &numbers, DEPTH_MAX)),
            r#"{"L":[{"N":"1"},{"N":"2"}]}"#
        );
        let map = CqlType::Map(int, text.clone());
        let pair = collection(&[two[0].clone(), b"x".to_vec()], 1);
        assert_eq!(json(&attribute(&map, &pair, DEPTH_MAX)), r#"{"M":{"1":{"S":"x"}}}"#);
        let empty = CqlType::Set(text);
        assert_eq!(json(&attribute(&empty, &collection(&[], 0), DEPTH_MAX)), r#"{"L":[]}"#);
        let truncated = attribute(&list, &numbers[..6], DEPTH_MAX);
        assert!(matches!(truncated, AttributeValue::S(_)), "{truncated:?}");
    }
}
