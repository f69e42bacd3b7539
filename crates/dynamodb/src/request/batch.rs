//! BatchGetItem and BatchWriteItem.

use std::collections::BTreeSet;

use super::constraints::Constraints;
use super::expressions::{self, Clause, Parameters, Reader, Style, Substitutions};
use super::item::{attributes_to_get, check_item_size, check_values};
use super::json::{Attributes, Flag, List, Map, Text, structure};
use super::names;
use super::options::{self, ReturnConsumedCapacity, ReturnItemCollectionMetrics};
use crate::arn::TableReference;
use crate::error::Error;
use crate::expression::Projection;
use crate::table::{Key, SCHEMA_MISMATCH, TableDefinition, TypeError, key_of_new_item, key_of_request};
use crate::value::{Item, storage};

/// Keys of one BatchGetItem.
pub const KEYS_MAX: usize = 100;
/// Writes of one BatchWriteItem.
pub const WRITES_MAX: usize = 25;

structure! {
    /// What is read of one table.
    pub(crate) struct KeysAndAttributes {
        keys: List<Attributes> = "Keys",
        attributes_to_get: List<Text> = "AttributesToGet",
        consistent_read: Flag = "ConsistentRead",
        projection: Text = "ProjectionExpression",
        names: Map<Text> = "ExpressionAttributeNames",
    }
}

structure! {
    /// The body of BatchGetItem.
    pub(crate) struct BatchGetItemInput {
        items: Map<KeysAndAttributes> = "RequestItems",
        consumed_capacity: Text = "ReturnConsumedCapacity",
    }
}

structure! {
    /// An item to store.
    pub(crate) struct PutRequest {
        item: Attributes = "Item",
    }
}

structure! {
    /// An item to delete.
    pub(crate) struct DeleteRequest {
        key: Attributes = "Key",
    }
}

structure! {
    /// One write: one of its members.
    pub(crate) struct WriteRequest {
        put: PutRequest = "PutRequest",
        delete: DeleteRequest = "DeleteRequest",
    }
}

structure! {
    /// The body of BatchWriteItem.
    pub(crate) struct BatchWriteItemInput {
        items: Map<List<WriteRequest>> = "RequestItems",
        consumed_capacity: Text = "ReturnConsumedCapacity",
        collection_metrics: Text = "ReturnItemCollectionMetrics",
    }
}

/// Reads items by their keys.
#[derive(Clone, PartialEq, Debug)]
pub struct BatchGetItem {
    /// What is read of each table, in the order of the request.
    pub tables: Vec<TableKeys>,
    /// What the answer reports of capacity.
    pub consumed_capacity: ReturnConsumedCapacity,
}

/// What is read of one table.
#[derive(Clone, PartialEq, Debug)]
pub struct TableKeys {
    /// The table.
    pub table: TableReference,
    /// The keys as the request has them: unprocessed ones are answered so.
    pub keys: Vec<Item>,
    /// What the answer has of items.
    pub projection: Option<Clause<Projection>>,
    /// Placeholders of the projection.
    pub substitutions: Substitutions,
    /// Whether all earlier writes must be seen.
    pub consistent_read: bool,
    /// The projection as the request has it, which unprocessed keys repeat.
    pub given: GivenProjection,
}

/// The members of a request that unprocessed keys repeat.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GivenProjection {
    /// `ProjectionExpression`
    pub expression: Option<String>,
    /// `AttributesToGet`
    pub attributes_to_get: Vec<String>,
}

/// Stores and deletes items.
#[derive(Clone, PartialEq, Debug)]
pub struct BatchWriteItem {
    /// The writes of each table, in the order of the request.
    pub tables: Vec<TableWrites>,
    /// What the answer reports of capacity.
    pub consumed_capacity: ReturnConsumedCapacity,
    /// What the answer reports of item collections.
    pub collection_metrics: ReturnItemCollectionMetrics,
}

/// The writes of one table.
#[derive(Clone, PartialEq, Debug)]
pub struct TableWrites {
    /// The table.
    pub table: TableReference,
    /// The writes.
    pub writes: Vec<BatchWrite>,
}

/// A write of a batch.
#[derive(Clone, PartialEq, Debug)]
pub enum BatchWrite {
    /// Stores an item.
    Put(Item),
    /// Deletes the item of a key.
    Delete(Item),
}

fn duplicates() -> Error {
    Error::validation("Provided list of item keys contains duplicates")
}

impl TableKeys {
    /// The keys of the items.
    ///
    /// # Errors
    /// A ValidationException for one that does not match the table's schema.
    pub fn keys(&self, table: &TableDefinition) -> Result<Vec<Key>, Error> {
        stdx::preempt::try_collect(self.keys.iter().map(|key| key_of_request(table, key)))
    }
}

impl TableWrites {
    /// The key of each write.
    ///
    /// # Errors
    /// A ValidationException for one that does not match the table's schema, or for two writes of one item.
    pub fn keys(&self, table: &TableDefinition) -> Result<Vec<Key>, Error> {
        let key = |write: &BatchWrite| match write {
            BatchWrite::Delete(key) => key_of_request(table, key),
            BatchWrite::Put(item) => {
                let mut names = table.key_schema.0.iter().map(|element| &element.name);
                if names.all(|name| item.contains_key(name)) {
                    key_of_new_item(table, item, TypeError::Schema)
                } else {
                    Err(Error::validation(SCHEMA_MISMATCH))
                }
            }
        };
        let mut keys = Vec::with_capacity(self.writes.len());
        let mut seen = BTreeSet::new();
        for write in &self.writes {
            let key = key(write)?;
            if !seen.insert(encoded(&key)) {
                return Err(duplicates());
            }
            stdx::preempt::push(&mut keys, key);
        }
        Ok(keys)
    }
}

/// The bytes of a key, equal for equal keys.
pub(super) fn encoded(key: &Key) -> Vec<u8> {
    let mut bytes = Vec::new();
    storage::append_value(&mut bytes, &key.partition);
    if let Some(sort) = &key.sort {
        storage::append_value(&mut bytes, sort);
    }
    bytes
}

/// The keys of RequestItems as a text, which the service repeats with their values; here the values are left out.
fn listed<T>(items: &[(String, T)]) -> String {
    let names: Vec<String> = items.iter().map(|(name, _)| format!("{name}=[]")).collect();
    format!("{{{}}}", names.join(", "))
}

/// Refuses more tables than a batch has keys or writes.
fn check_tables(count: usize, most: usize) -> Result<(), Error> {
    let mut errors = Constraints::default();
    if count > most {
        let most = format!("Member must have length less than or equal to {most}");
        errors.value("{...}", "requestItems", most);
    }
    errors.finish()
}

/// Adds the constraint on names of tables.
fn check_names<T>(items: &[(String, T)], errors: &mut Constraints) {
    if !items.iter().all(|(name, _)| names::is_table(name)) {
        errors.value(
            listed(items),
            "requestItems",
            "Map keys must satisfy constraint: [Member must have length less than or equal to 255, Member must have \
             length greater than or equal to 3, Member must satisfy regular expression pattern: [a-zA-Z0-9_.-]+]",
        );
    }
}

/// Checks the constraints on members of BatchGetItem.
fn check_get_members(items: &[(String, KeysAndAttributes)], capacity: Option<&Text>) -> Result<(), Error> {
    let mut errors = Constraints::default();
    if items.is_empty() {
        errors.add(
            "Value at 'RequestItems' failed to satisfy constraint: Member must have length greater than or equal to 1",
        );
        return errors.finish();
    }
    check_tables(items.len(), KEYS_MAX)?;
    let keys = |of: &KeysAndAttributes| of.keys.as_ref().map_or(0, |List(keys)| keys.len());
    for (name, of) in items {
        if of.keys.is_none() {
            errors.null(format_args!("requestItems.{name}.member.keys"));
        } else if keys(of) == 0 {
            errors.add(format_args!(
                "Value at 'RequestItems.{name}.member.Keys' failed to satisfy constraint: Member must have length \
                 greater than or equal to 1"
            ));
        }
    }
    errors.finish()?;
    let mut errors = Constraints::default();
    check_names(items, &mut errors);
    if errors.is_empty() {
        for (name, of) in items {
            if keys(of) > KEYS_MAX {
                errors.add(format_args!(
                    "Value at 'RequestItems.{name}.member.Keys' failed to satisfy constraint: Member must have length \
                     less than or equal to {KEYS_MAX}"
                ));
                return errors.finish();
            }
        }
    }
    errors.word::<ReturnConsumedCapacity>(capacity, "returnConsumedCapacity");
    errors.finish()?;
    if items.iter().map(|(_, of)| keys(of)).sum::<usize>() > KEYS_MAX {
        Err(Error::validation("Too many items requested for the BatchGetItem call"))
    } else {
        Ok(())
    }
}

pub(super) fn batch_get_item(input: BatchGetItemInput) -> Result<BatchGetItem, Error> {
    let Some(Map(items)) = input.items else {
        return Err(required("requestItems"));
    };
    check_get_members(&items, input.consumed_capacity.as_ref())?;
    let has_projection = items.iter().any(|(_, of)| of.projection.is_some());
    let has_attributes = items.iter().any(|(_, of)| of.attributes_to_get.is_some());
    if has_projection && has_attributes {
        return Err(Error::validation(
            "Can not use both expression and non-expression parameters in the same request: Non-expression \
             parameters: {AttributesToGet} Expression parameters: {ProjectionExpression}",
        ));
    }
    let mut tables = Vec::with_capacity(items.len());
    for (name, of) in items {
        tables.push(table_keys(name, of)?);
    }
    Ok(BatchGetItem {
        tables,
        consumed_capacity: options::value(input.consumed_capacity.as_ref(), ReturnConsumedCapacity::None),
    })
}

/// The error for a required member that is absent.
pub(super) fn required(member: &str) -> Error {
    let mut errors = Constraints::default();
    errors.null(member);
    match errors.finish() {
        Err(error) => error,
        Ok(()) => Error::validation(member),
    }
}

fn table_keys(name: String, of: KeysAndAttributes) -> Result<TableKeys, Error> {
    let style = Style::Plain;
    let substitutions = Parameters::default()
        .legacy("AttributesToGet", of.attributes_to_get.as_ref())
        .expression("ProjectionExpression", of.projection.as_ref())
        .substitutions(of.names, None, &[])
        .map_err(|refusal| refusal.of(style))?;
    let projection = expressions::projection(of.projection.as_ref())?;
    let given = GivenProjection {
        expression: of.projection.map(|Text(text)| text),
        attributes_to_get: (of.attributes_to_get.iter().flat_map(|List(list)| list))
            .map(|Text(name)| name.clone())
            .collect(),
    };
    let legacy = attributes_to_get(of.attributes_to_get, style)?;
    let mut keys = Vec::new();
    let mut seen = BTreeSet::new();
    for key in of.keys.map(|List(keys)| keys).unwrap_or_default() {
        check_values(Some(&key), style)?;
        let mut bytes = Vec::new();
        storage::append_item(&mut bytes, &key.item);
        if !seen.insert(bytes) {
            return Err(duplicates());
        }
        stdx::preempt::push(&mut keys, key.item);
    }
    Reader::new(&substitutions).check(|placeholders| expressions::bind(placeholders, projection.as_ref()))?;
    Ok(TableKeys {
        table: names::checked(Some(Text(name))),
        keys,
        projection: projection.or(legacy),
        substitutions,
        consistent_read: of.consistent_read.unwrap_or_default().0,
        given,
    })
}

pub(super) fn batch_write_item(input: BatchWriteItemInput) -> Result<BatchWriteItem, Error> {
    batch_write_up_to(input, WRITES_MAX)
}

/// As [`batch_write_item`], with another limit of writes.
pub(super) fn batch_write_up_to(input: BatchWriteItemInput, most: usize) -> Result<BatchWriteItem, Error> {
    let Some(Map(items)) = input.items else {
        return Err(required("requestItems"));
    };
    if items.is_empty() {
        return Err(Error::validation(
            "The requestItems parameter is required for BatchWriteItem",
        ));
    }
    check_tables(items.len(), most)?;
    let mut errors = Constraints::default();
    if items
        .iter()
        .any(|(_, List(writes))| writes.is_empty() || writes.len() > most)
    {
        errors.value(
            listed(&items),
            "requestItems",
            format!(
                "Map value must satisfy constraint: [Member must have length less than or equal to {most}, Member must \
                 have length greater than or equal to 1]"
            ),
        );
    }
    errors.word::<ReturnConsumedCapacity>(input.consumed_capacity.as_ref(), "returnConsumedCapacity");
    errors.word::<ReturnItemCollectionMetrics>(input.collection_metrics.as_ref(), "returnItemCollectionMetrics");
    errors.finish()?;
    let mut errors = Constraints::default();
    check_names(&items, &mut errors);
    errors.finish()?;
    if items.iter().map(|(_, List(writes))| writes.len()).sum::<usize>() > most {
        return Err(Error::validation(
            "Too many items requested for the BatchWriteItem call",
        ));
    }
    let mut tables = Vec::with_capacity(items.len());
    for (name, List(list)) in items {
        let mut writes = Vec::with_capacity(list.len());
        for write in list {
            writes.push(batch_write(write)?);
        }
        tables.push(TableWrites {
            table: names::checked(Some(Text(name))),
            writes,
        });
    }
    Ok(BatchWriteItem {
        tables,
        consumed_capacity: options::value(input.consumed_capacity.as_ref(), ReturnConsumedCapacity::None),
        collection_metrics: options::value(input.collection_metrics.as_ref(), ReturnItemCollectionMetrics::None),
    })
}

fn batch_write(write: WriteRequest) -> Result<BatchWrite, Error> {
    match (write.put, write.delete) {
        (Some(put), None) => {
            let item = put
                .item
                .ok_or_else(|| required("requestItems.member.putRequest.item"))?;
            check_values(Some(&item), Style::Plain)?;
            check_item_size(&item.item)?;
            Ok(BatchWrite::Put(item.item))
        }
        (None, Some(delete)) => {
            let key = delete
                .key
                .ok_or_else(|| required("requestItems.member.deleteRequest.key"))?;
            check_values(Some(&key), Style::Plain)?;
            Ok(BatchWrite::Delete(key.item))
        }
        // The service's own text for a write that is neither, or both.
        _ => Err(Error::validation(
            "Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported \
             datatypes",
        )),
    }
}
