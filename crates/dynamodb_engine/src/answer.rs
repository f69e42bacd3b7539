//! The JSON of answers.

use dynamodb::Item;
use dynamodb::arn::TableReference;
use dynamodb::capacity::Units;
use dynamodb::request::ReturnConsumedCapacity;
use dynamodb::value::json::{write_item, write_string};

/// A JSON object that is being written.
pub struct Answer {
    out: Vec<u8>,
}

/// The capacity that an operation on one table has consumed.
#[derive(Clone, Debug)]
pub struct Consumed {
    /// The table, as the request names it.
    pub table: TableReference,
    /// The units.
    pub units: Units,
    /// Of a transaction, whether they are of writes: its answer says so.
    pub transaction: Option<bool>,
}

impl Answer {
    /// An object without members.
    pub fn begin() -> Self {
        Self { out: vec![b'{'] }
    }

    /// Begins a member; its value is to be appended.
    pub fn member(&mut self, name: &str) -> &mut Vec<u8> {
        if self.out.len() > 1 {
            self.out.push(b',');
        }
        write_string(&mut self.out, name);
        self.out.push(b':');
        &mut self.out
    }

    /// A member that is text.
    pub fn text(&mut self, name: &str, value: &str) {
        write_string(self.member(name), value);
    }

    /// A member that is a number.
    pub fn number(&mut self, name: &str, value: u64) {
        self.member(name).extend_from_slice(value.to_string().as_bytes());
    }

    /// A member that is an item, if there is one.
    pub fn item(&mut self, name: &str, item: Option<&Item>) {
        if let Some(item) = item {
            write_item(self.member(name), item);
        }
    }

    /// A member that is a list of items.
    pub fn items(&mut self, name: &str, items: &[Item]) {
        list(self.member(name), items, write_item);
    }

    /// A member that is a list of texts.
    pub fn texts<'t>(&mut self, name: &str, texts: impl IntoIterator<Item = &'t str>) {
        list(self.member(name), texts, write_string);
    }

    /// What was consumed of one table, if the request asks for it.
    pub fn consumed(&mut self, wanted: ReturnConsumedCapacity, consumed: impl FnOnce() -> Consumed) {
        if wanted != ReturnConsumedCapacity::None {
            write_consumed(self.member("ConsumedCapacity"), wanted, &consumed());
        }
    }

    /// What was consumed of several tables, if the request asks for it.
    pub fn consumed_all(&mut self, wanted: ReturnConsumedCapacity, consumed: &[Consumed]) {
        if wanted != ReturnConsumedCapacity::None {
            let write = |out: &mut Vec<u8>, consumed: &Consumed| write_consumed(out, wanted, consumed);
            list(self.member("ConsumedCapacity"), consumed, write);
        }
    }

    /// The whole object.
    pub fn end(mut self) -> Vec<u8> {
        self.out.push(b'}');
        self.out
    }
}

/// Appends a list.
pub fn list<T>(out: &mut Vec<u8>, values: impl IntoIterator<Item = T>, write: impl Fn(&mut Vec<u8>, T)) {
    out.push(b'[');
    for (number, value) in values.into_iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        stdx::preempt::point();
        write(out, value);
    }
    out.push(b']');
}

fn write_consumed(out: &mut Vec<u8>, wanted: ReturnConsumedCapacity, consumed: &Consumed) {
    let units = consumed.units.text();
    let mut answer = Answer::begin();
    answer.text("TableName", consumed.table.given());
    answer.member("CapacityUnits").extend_from_slice(units.as_bytes());
    let of_kind = consumed.transaction.map(|is_write| {
        if is_write {
            "WriteCapacityUnits"
        } else {
            "ReadCapacityUnits"
        }
    });
    if let Some(name) = of_kind {
        answer.member(name).extend_from_slice(units.as_bytes());
    }
    if wanted == ReturnConsumedCapacity::Indexes {
        let mut table = Answer::begin();
        table.member("CapacityUnits").extend_from_slice(units.as_bytes());
        if let Some(name) = of_kind {
            table.member(name).extend_from_slice(units.as_bytes());
        }
        let table = table.end();
        answer.member("Table").extend_from_slice(&table);
    }
    out.extend_from_slice(&answer.end());
}
