//! Answers of operations as JSON, appended to a buffer without a tree in between.
//!
//! Members that an answer does not have are left out: `LastEvaluatedKey` at the end of the data, `ConsumedCapacity` if
//! the request does not ask for it. See "Response Syntax" of each action in the API reference.

mod batch;
mod object;
mod table;

pub use batch::{BatchGet, BatchStatementResult, BatchWrite, TransactGet, UnprocessedKeys, UnprocessedWrites};
pub use table::{
    TimeToLiveStatus, write_described_table, write_endpoints, write_limits, write_table_description, write_tables,
    write_tags, write_time_to_live, write_time_to_live_specification,
};

pub(crate) use object::Object;

use stdx::preempt;

use crate::capacity::Units;
use crate::request::{ReturnConsumedCapacity, ReturnItemCollectionMetrics};
use crate::value::Item;
use crate::value::json::write_item;

/// The body of an answer without members.
pub const EMPTY: &[u8] = b"{}";

/// The capacity that a request has consumed on a table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConsumedCapacity {
    /// The table as the request names it.
    pub table: String,
    /// Units of the table itself.
    pub table_units: Units,
    /// Units of each local secondary index, by name.
    pub local_units: Vec<(String, Units)>,
    /// Units of each global secondary index, by name.
    pub global_units: Vec<(String, Units)>,
    /// What the units are of, where the answer says so: transactions do.
    pub kind: CapacityKind,
}

/// Whether an answer divides units into reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CapacityKind {
    /// It does not.
    #[default]
    Undivided,
    /// All units are of reads.
    Read,
    /// All units are of writes.
    Write,
}

impl ConsumedCapacity {
    /// All units.
    fn total(&self) -> Units {
        let indexes = self.local_units.iter().chain(&self.global_units);
        indexes.fold(self.table_units, |sum, (_, units)| sum.plus(*units))
    }

    fn write_units(&self, object: &mut Object, units: Units) {
        object.raw("CapacityUnits", &units.text());
        match self.kind {
            CapacityKind::Undivided => {}
            CapacityKind::Read => object.raw("ReadCapacityUnits", &units.text()),
            CapacityKind::Write => object.raw("WriteCapacityUnits", &units.text()),
        }
    }

    fn write_indexes(&self, object: &mut Object, name: &str, indexes: &[(String, Units)]) {
        if indexes.is_empty() {
            return;
        }
        let mut map = Object::begin(object.name(name));
        for (index, units) in indexes {
            let mut inner = Object::begin(map.name(index));
            self.write_units(&mut inner, *units);
            inner.end();
        }
        map.end();
    }

    /// Writes the value of `ConsumedCapacity`.
    fn write(&self, out: &mut Vec<u8>, detail: ReturnConsumedCapacity) {
        let mut object = Object::begin(out);
        object.text("TableName", &self.table);
        self.write_units(&mut object, self.total());
        if detail == ReturnConsumedCapacity::Indexes {
            let mut table = Object::begin(object.name("Table"));
            self.write_units(&mut table, self.table_units);
            table.end();
            self.write_indexes(&mut object, "LocalSecondaryIndexes", &self.local_units);
            self.write_indexes(&mut object, "GlobalSecondaryIndexes", &self.global_units);
        }
        object.end();
    }
}

/// Writes the member `ConsumedCapacity` with one value, if the request asks for it.
fn write_capacity(object: &mut Object, capacity: &ConsumedCapacity, detail: ReturnConsumedCapacity) {
    if detail != ReturnConsumedCapacity::None {
        capacity.write(object.name("ConsumedCapacity"), detail);
    }
}

/// Writes the member `ConsumedCapacity` with a value for each table, if the request asks for it.
fn write_capacities(object: &mut Object, capacities: &[ConsumedCapacity], detail: ReturnConsumedCapacity) {
    if detail != ReturnConsumedCapacity::None {
        object.list("ConsumedCapacity", capacities, |out, capacity| {
            capacity.write(out, detail)
        });
    }
}

/// The estimated size of an item collection: of the items with one partition key of a table that has a local secondary
/// index.
#[derive(Clone, PartialEq, Debug)]
pub struct ItemCollectionMetrics {
    /// The partition key.
    pub key: Item,
    /// Gigabytes, from and to.
    pub gigabytes: (u64, u64),
}

impl ItemCollectionMetrics {
    /// The metrics of a collection of so many bytes.
    pub fn new(key: Item, bytes: u64) -> Self {
        let whole = bytes >> 30;
        Self {
            key,
            gigabytes: (whole, whole + 1),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut object = Object::begin(out);
        write_item(object.name("ItemCollectionKey"), &self.key);
        let (from, to) = self.gigabytes;
        object.raw("SizeEstimateRangeGB", &format!("[{from}.0,{to}.0]"));
        object.end();
    }
}

/// The answer to GetItem.
#[derive(Clone, Copy, Debug)]
pub struct Get<'a> {
    /// The JSON of the item after the projection; None if there is none.
    pub item: Option<&'a [u8]>,
    /// The capacity.
    pub capacity: &'a ConsumedCapacity,
    /// Whether the request asks for the capacity.
    pub detail: ReturnConsumedCapacity,
}

impl Get<'_> {
    /// Appends the body.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut object = Object::begin(out);
        if let Some(item) = self.item {
            preempt::append(object.name("Item"), item);
        }
        write_capacity(&mut object, self.capacity, self.detail);
        object.end();
    }
}

/// The answer to PutItem, UpdateItem and DeleteItem.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// The attributes that ReturnValues asks for; None if there are none to return. UpdateItem with ALL_NEW always has
    /// them.
    pub attributes: Option<&'a Item>,
    /// The capacity.
    pub capacity: &'a ConsumedCapacity,
    /// Whether the request asks for the capacity.
    pub detail: ReturnConsumedCapacity,
    /// The item collection, if the table has local secondary indexes.
    pub collection: Option<&'a ItemCollectionMetrics>,
    /// Whether the request asks for the item collection.
    pub collection_metrics: ReturnItemCollectionMetrics,
}

impl Write<'_> {
    /// Appends the body.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut object = Object::begin(out);
        if let Some(attributes) = self.attributes {
            write_item(object.name("Attributes"), attributes);
        }
        write_capacity(&mut object, self.capacity, self.detail);
        if let (Some(collection), ReturnItemCollectionMetrics::Size) = (self.collection, self.collection_metrics) {
            collection.write(object.name("ItemCollectionMetrics"));
        }
        object.end();
    }
}

/// The answer to Query and Scan, written item by item: items go to the buffer as they are read.
pub struct Page<'o> {
    object: Object<'o>,
    has_items: bool,
    count: u64,
}

impl<'o> Page<'o> {
    /// Begins the body. A request with `Select` COUNT returns no items.
    pub fn begin(out: &'o mut Vec<u8>, is_count: bool) -> Self {
        let mut object = Object::begin(out);
        if !is_count {
            object.name("Items").push(b'[');
        }
        Self {
            object,
            has_items: !is_count,
            count: 0,
        }
    }

    /// Appends the JSON of an item that the filter accepts, after its projection.
    pub fn item(&mut self, item: &[u8]) {
        if self.has_items {
            let out = self.object.buffer();
            if self.count > 0 {
                out.push(b',');
            }
            preempt::append(out, item);
        }
        self.count += 1;
    }

    /// Counts an item that the filter accepts and whose attributes are not returned.
    pub fn count(&mut self) {
        self.count += 1;
    }

    /// Items so far.
    pub fn items(&self) -> u64 {
        self.count
    }

    /// Ends the body. `scanned` is the number of items before the filter, `last` the key after which to continue; None
    /// at the end of the data.
    pub fn end(
        mut self,
        scanned: u64,
        last: Option<&Item>,
        capacity: &ConsumedCapacity,
        detail: ReturnConsumedCapacity,
    ) {
        if self.has_items {
            self.object.buffer().push(b']');
        }
        self.object.raw("Count", &self.count.to_string());
        self.object.raw("ScannedCount", &scanned.to_string());
        if let Some(last) = last {
            write_item(self.object.name("LastEvaluatedKey"), last);
        }
        write_capacity(&mut self.object, capacity, detail);
        self.object.end();
    }
}

/// Appends the answer to ExecuteStatement: items, where to continue, and the capacity.
pub fn write_statement(
    out: &mut Vec<u8>,
    items: &[Item],
    next: Option<&str>,
    last: Option<&Item>,
    capacity: &ConsumedCapacity,
    detail: ReturnConsumedCapacity,
) {
    let mut object = Object::begin(out);
    object.list("Items", items, write_item);
    if let Some(next) = next {
        object.text("NextToken", next);
    }
    if let Some(last) = last {
        write_item(object.name("LastEvaluatedKey"), last);
    }
    write_capacity(&mut object, capacity, detail);
    object.end();
}

#[cfg(test)]
mod tests;
