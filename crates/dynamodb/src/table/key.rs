//! Keys of items against the key schema of their table.
//!
//! Limits are those of "Quotas" of the developer guide: a partition key has 1 to 2,048 bytes, a sort key 1 to 1,024.

use super::{KeySchema, KeyType, ScalarType, TableDefinition};
use crate::error::Error;
use crate::value::{AttributeValue, Item, copy_value};

/// The bytes of a partition key, at most.
pub const PARTITION_KEY_MAX: usize = 2048;
/// The bytes of a sort key, at most.
pub const SORT_KEY_MAX: usize = 1024;

/// The text for a key that has other attributes or types than the schema.
pub(crate) const SCHEMA_MISMATCH: &str = "The provided key element does not match the schema";

/// How the text for an empty key value begins.
pub(crate) const EMPTY_KEY: &str = "One or more parameter values are not valid. The AttributeValue for a key attribute \
                                    cannot contain an empty ";

/// The primary key of an item.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    /// The value of the partition key.
    pub partition: AttributeValue,
    /// The value of the sort key, if the table has one.
    pub sort: Option<AttributeValue>,
}

impl Key {
    /// The key as attributes, with the names of a table.
    pub fn into_item(self, schema: &KeySchema) -> Item {
        let mut item = Item::from([(schema.partition().to_owned(), self.partition)]);
        if let (Some(name), Some(value)) = (schema.sort(), self.sort) {
            item.insert(name.to_owned(), value);
        }
        item
    }
}

/// What the service answers to a key attribute of another type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TypeError {
    /// The types, as PutItem does.
    Types,
    /// Only that it does not match, as every other operation does.
    Schema,
}

/// Whether a value has a type.
pub(crate) fn has_type(value: &AttributeValue, scalar_type: ScalarType) -> bool {
    matches!(
        (value, scalar_type),
        (AttributeValue::S(_), ScalarType::S)
            | (AttributeValue::N(_), ScalarType::N)
            | (AttributeValue::B(_), ScalarType::B)
    )
}

/// The bytes of a key value; numbers are always short enough.
fn bytes(value: &AttributeValue) -> usize {
    match value {
        AttributeValue::S(text) => text.len(),
        AttributeValue::B(bytes) => bytes.len(),
        _ => 1,
    }
}

/// What an empty value is called; None for a value that is not empty.
pub(crate) fn emptiness(value: &AttributeValue) -> Option<&'static str> {
    match value {
        AttributeValue::S(text) if text.is_empty() => Some("string"),
        AttributeValue::B(bytes) if bytes.is_empty() => Some("binary"),
        _ => None,
    }
}

/// Checks one attribute of the primary key.
fn check(value: &AttributeValue, name: &str, scalar_type: ScalarType, on_type: TypeError) -> Result<(), Error> {
    if !has_type(value, scalar_type) {
        return Err(match on_type {
            TypeError::Types => Error::validation(format!(
                "One or more parameter values were invalid: Type mismatch for key {name} expected: {} actual: {}",
                scalar_type.word(),
                value.value_type().name()
            )),
            TypeError::Schema => Error::validation(SCHEMA_MISMATCH),
        });
    }
    if let Some(empty) = emptiness(value) {
        return Err(empty_key(empty, name));
    }
    Ok(())
}

/// The error for an empty key value: `empty` is what it is called.
pub(crate) fn empty_key(empty: &str, name: &str) -> Error {
    Error::validation(format!("{EMPTY_KEY}{empty} value. Key: {name}"))
}

/// Checks the sizes of key values.
pub(crate) fn check_size(value: &AttributeValue, key_type: KeyType) -> Result<(), Error> {
    let (limit, text) = match key_type {
        KeyType::Hash => (
            PARTITION_KEY_MAX,
            "One or more parameter values were invalid: Size of hashkey has exceeded the maximum size limit of2048 \
             bytes",
        ),
        KeyType::Range => (
            SORT_KEY_MAX,
            "One or more parameter values were invalid: Aggregated size of all range keys has exceeded the size limit \
             of 1024 bytes",
        ),
    };
    if bytes(value) > limit {
        Err(Error::validation(text))
    } else {
        Ok(())
    }
}

/// The key of an item that is to be stored, with the checks of PutItem: types, emptiness and sizes of the primary
/// key, then of each attribute that is a key of an index.
///
/// # Errors
/// A ValidationException for an attribute that is absent or not valid.
pub fn key_of_item(table: &TableDefinition, item: &Item) -> Result<Key, Error> {
    key_of_new_item(table, item, TypeError::Types)
}

/// As [`key_of_item`], with another text for a wrong type.
pub(crate) fn key_of_new_item(table: &TableDefinition, item: &Item, on_type: TypeError) -> Result<Key, Error> {
    let attribute = |name: &str, key_type: KeyType| {
        let value = item.get(name).ok_or_else(|| {
            Error::validation(format!(
                "One or more parameter values were invalid: Missing the key {name} in the item"
            ))
        })?;
        check(value, name, table.type_of(name), on_type)?;
        check_size(value, key_type)?;
        Ok(copy_value(value))
    };
    let key = Key {
        partition: attribute(table.key_schema.partition(), KeyType::Hash)?,
        sort: (table.key_schema.sort().map(|name| attribute(name, KeyType::Range))).transpose()?,
    };
    check_index_keys(table, item)?;
    Ok(key)
}

/// Checks the attributes of an item that are keys of secondary indexes, where the item has them.
///
/// # Errors
/// A ValidationException for a value of another type or an empty one.
pub fn check_index_keys(table: &TableDefinition, item: &Item) -> Result<(), Error> {
    let global = table
        .global_indexes
        .iter()
        .map(|index| (&index.name, &index.key_schema));
    let local = table.local_indexes.iter().map(|index| (&index.name, &index.key_schema));
    for (index, schema) in global.chain(local) {
        for element in &schema.0 {
            let Some(value) = item.get(&element.name) else {
                continue;
            };
            check_index_key(value, &element.name, table.type_of(&element.name), index)?;
        }
    }
    Ok(())
}

fn check_index_key(value: &AttributeValue, name: &str, scalar_type: ScalarType, index: &str) -> Result<(), Error> {
    if !has_type(value, scalar_type) {
        return Err(Error::validation(format!(
            "One or more parameter values were invalid: Type mismatch for Index Key {name} Expected: {} Actual: {} \
             IndexName: {index}",
            scalar_type.word(),
            value.value_type().name()
        )));
    }
    if let Some(empty) = emptiness(value) {
        return Err(Error::validation(format!(
            "One or more parameter values are not valid. A value specified for a secondary index key is not \
             supported. The AttributeValue for a key attribute cannot contain an empty {empty} value. IndexName: \
             {index}, IndexKey: {name}"
        )));
    }
    Ok(())
}

/// The key that a request names, which has the attributes of the primary key and no other.
///
/// # Errors
/// A ValidationException for a key that does not match the schema, or an empty or too long value.
pub fn key_of_request(table: &TableDefinition, key: &Item) -> Result<Key, Error> {
    let mismatch = || Error::validation(SCHEMA_MISMATCH);
    let schema = &table.key_schema;
    if key.len() != schema.0.len() {
        return Err(mismatch());
    }
    let attribute = |name: &str, key_type: KeyType| {
        let value = key.get(name).ok_or_else(mismatch)?;
        check(value, name, table.type_of(name), TypeError::Schema)?;
        check_size(value, key_type)?;
        Ok::<_, Error>(copy_value(value))
    };
    Ok(Key {
        partition: attribute(schema.partition(), KeyType::Hash)?,
        sort: (schema.sort().map(|name| attribute(name, KeyType::Range))).transpose()?,
    })
}
