//! Answers to batches and transactions.

use super::{ConsumedCapacity, ItemCollectionMetrics, Object, write_capacities};
use crate::error::{Error, ErrorKind};
use crate::request::{BatchWrite as Put, ReturnConsumedCapacity, ReturnItemCollectionMetrics, TableKeys, TableWrites};
use crate::value::Item;
use crate::value::json::{write_item, write_string};

/// Keys of one table that were not read.
#[derive(Clone, Copy, Debug)]
pub struct UnprocessedKeys<'a> {
    /// What the request has for the table: its other members are repeated.
    pub request: &'a TableKeys,
    /// The keys, which are some of those of the request.
    pub keys: &'a [Item],
}

/// The answer to BatchGetItem.
#[derive(Clone, Copy, Debug)]
pub struct BatchGet<'a> {
    /// Each table as the request names it, with its items: every table of the request, also without items.
    pub tables: &'a [(&'a str, Vec<Item>)],
    /// What was not read.
    pub unprocessed: &'a [UnprocessedKeys<'a>],
    /// The capacity of each table.
    pub capacities: &'a [ConsumedCapacity],
    /// Whether the request asks for the capacity.
    pub detail: ReturnConsumedCapacity,
}

impl BatchGet<'_> {
    /// Appends the body.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut object = Object::begin(out);
        let mut tables = Object::begin(object.name("Responses"));
        for (table, items) in self.tables {
            tables.list(table, items, write_item);
        }
        tables.end();
        let mut tables = Object::begin(object.name("UnprocessedKeys"));
        for unprocessed in self
            .unprocessed
            .iter()
            .filter(|unprocessed| !unprocessed.keys.is_empty())
        {
            unprocessed.write(tables.name(unprocessed.request.table.given()));
        }
        tables.end();
        write_capacities(&mut object, self.capacities, self.detail);
        object.end();
    }
}

impl UnprocessedKeys<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let request = self.request;
        let mut object = Object::begin(out);
        object.list("Keys", self.keys, write_item);
        if request.consistent_read {
            object.flag("ConsistentRead", true);
        }
        if let Some(expression) = &request.given.expression {
            object.text("ProjectionExpression", expression);
        }
        if !request.given.attributes_to_get.is_empty() {
            object.list("AttributesToGet", &request.given.attributes_to_get, |out, name| {
                write_string(out, name);
            });
        }
        if let Some(names) = &request.substitutions.names {
            let mut map = Object::begin(object.name("ExpressionAttributeNames"));
            for (key, name) in names {
                map.text(key, name);
            }
            map.end();
        }
        object.end();
    }
}

/// Writes of one table that were not done.
#[derive(Clone, Copy, Debug)]
pub struct UnprocessedWrites<'a> {
    /// What the request has for the table.
    pub request: &'a TableWrites,
    /// The writes, which are some of those of the request.
    pub writes: &'a [&'a Put],
}

/// The answer to BatchWriteItem.
#[derive(Clone, Copy, Debug)]
pub struct BatchWrite<'a> {
    /// What was not done.
    pub unprocessed: &'a [UnprocessedWrites<'a>],
    /// The item collections of each table as the request names it.
    pub collections: &'a [(&'a str, Vec<ItemCollectionMetrics>)],
    /// Whether the request asks for item collections.
    pub collection_metrics: ReturnItemCollectionMetrics,
    /// The capacity of each table.
    pub capacities: &'a [ConsumedCapacity],
    /// Whether the request asks for the capacity.
    pub detail: ReturnConsumedCapacity,
}

impl BatchWrite<'_> {
    /// Appends the body.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut object = Object::begin(out);
        let mut tables = Object::begin(object.name("UnprocessedItems"));
        for unprocessed in self
            .unprocessed
            .iter()
            .filter(|unprocessed| !unprocessed.writes.is_empty())
        {
            tables.list(unprocessed.request.table.given(), unprocessed.writes, |out, write| {
                let (name, member, item) = match write {
                    Put::Put(item) => ("PutRequest", "Item", item),
                    Put::Delete(key) => ("DeleteRequest", "Key", key),
                };
                let mut object = Object::begin(out);
                let mut inner = Object::begin(object.name(name));
                write_item(inner.name(member), item);
                inner.end();
                object.end();
            });
        }
        tables.end();
        self.write_rest(&mut object);
        object.end();
    }

    /// Appends the body of TransactWriteItems, which has no unprocessed items.
    pub fn write_transaction(&self, out: &mut Vec<u8>) {
        let mut object = Object::begin(out);
        self.write_rest(&mut object);
        object.end();
    }

    fn write_rest(&self, object: &mut Object) {
        if self.collection_metrics == ReturnItemCollectionMetrics::Size && !self.collections.is_empty() {
            let mut tables = Object::begin(object.name("ItemCollectionMetrics"));
            for (table, collections) in self.collections {
                tables.list(table, collections, |out, collection| collection.write(out));
            }
            tables.end();
        }
        write_capacities(object, self.capacities, self.detail);
    }
}

/// The answer to TransactGetItems and ExecuteTransaction.
#[derive(Clone, Copy, Debug)]
pub struct TransactGet<'a> {
    /// The item of each read, in the order of the request.
    pub items: &'a [Option<Item>],
    /// The capacity of each table.
    pub capacities: &'a [ConsumedCapacity],
    /// Whether the request asks for the capacity.
    pub detail: ReturnConsumedCapacity,
}

impl TransactGet<'_> {
    /// Appends the body.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut object = Object::begin(out);
        object.list("Responses", self.items, |out, item| {
            let mut object = Object::begin(out);
            if let Some(item) = item {
                write_item(object.name("Item"), item);
            }
            object.end();
        });
        write_capacities(&mut object, self.capacities, self.detail);
        object.end();
    }
}

/// What one statement of a BatchExecuteStatement has resulted in.
#[derive(Clone, PartialEq, Debug)]
pub struct BatchStatementResult {
    /// The table that it names, if it could be read.
    pub table: Option<String>,
    /// Its item, if it returns one, or its error.
    pub result: Result<Option<Item>, Error>,
}

impl BatchStatementResult {
    /// Appends the answer to a BatchExecuteStatement.
    pub fn write_all(
        results: &[Self],
        capacities: &[ConsumedCapacity],
        detail: ReturnConsumedCapacity,
        out: &mut Vec<u8>,
    ) {
        let mut object = Object::begin(out);
        object.list("Responses", results, |out, result| result.write(out));
        write_capacities(&mut object, capacities, detail);
        object.end();
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut object = Object::begin(out);
        match &self.result {
            Ok(Some(item)) => write_item(object.name("Item"), item),
            Ok(None) => {}
            Err(error) => {
                let mut inner = Object::begin(object.name("Error"));
                inner.text("Code", code(error));
                inner.text("Message", &error.message);
                if let ErrorKind::ConditionalCheckFailed { item: Some(item) } = &error.kind {
                    write_item(inner.name("Item"), item);
                }
                inner.end();
            }
        }
        if let Some(table) = &self.table {
            object.text("TableName", table);
        }
        object.end();
    }
}

/// The code of an error in a batch of statements (BatchStatementErrorCodeEnum of the API reference): the name of its
/// exception without the word exception.
fn code(error: &Error) -> &'static str {
    match error.kind {
        ErrorKind::Validation | ErrorKind::Serialization => "ValidationError",
        ErrorKind::InternalServerError => "InternalServerError",
        _ => {
            let name = error.kind.name();
            name.strip_suffix("Exception").unwrap_or(name)
        }
    }
}
