//! BatchGetItem and BatchWriteItem: reads and writes of single items, at the same time.

use std::rc::Rc;
use std::sync::Arc;

use dynamodb::capacity::{Consistency, Units, read_units, write_units};
use dynamodb::request::{BatchGetItem, BatchWrite, BatchWriteItem, TableKeys};
use dynamodb::value::json::write_item;
use dynamodb::value::{copy_item, size};
use dynamodb::{Error, Item};
use stdx::preempt;

use super::item::project;
use crate::answer::{Answer, Consumed, list};
use crate::modify::{Change, Modification, Modified};
use crate::service::Service;
use crate::table::{ItemKey, ItemTable};
use crate::transaction::all;

/// Bytes of the items of an answer; what would exceed them is unprocessed.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Items that are read or written at the same time.
const AT_ONCE: usize = 32;

/// A write of a batch on its way to its item.
struct Whole(Option<Item>);

impl Modification for Whole {
    fn decide(&self, _: Option<&Item>) -> Result<Change, Error> {
        Ok(self
            .0
            .as_ref()
            .map_or(Change::Delete, |item| Change::Put(copy_item(item))))
    }

    fn unread(&self) -> Option<Change> {
        self.decide(None).ok()
    }
}

/// What was read of one table.
struct TableItems {
    items: Vec<Item>,
    unprocessed: Vec<Item>,
    units: Units,
}

impl Service {
    pub(super) async fn batch_get_item(self: &Rc<Self>, request: BatchGetItem) -> Result<Vec<u8>, Error> {
        let mut wanted = Vec::with_capacity(request.tables.len());
        for keys in &request.tables {
            let table = self.table(keys.table.name())?;
            let rows = keys
                .keys(&table.definition)?
                .iter()
                .map(|key| table.row_key(key))
                .collect::<Result<_, _>>()?;
            wanted.push((table, rows));
        }
        let (mut found, mut bytes_left) = (Vec::with_capacity(wanted.len()), ANSWER_BYTES_MAX);
        for (keys, (table, rows)) in request.tables.iter().zip(wanted) {
            found.push(self.get_all(keys, &table, rows, &mut bytes_left).await?);
        }
        preempt::allowed(|| Ok(get_answer(&request, &found)))
    }

    async fn get_all(
        self: &Rc<Self>,
        keys: &TableKeys,
        table: &Arc<ItemTable>,
        rows: Vec<ItemKey>,
        bytes_left: &mut usize,
    ) -> Result<TableItems, Error> {
        let level = Self::read_level(keys.consistent_read);
        let mut found = TableItems {
            items: Vec::new(),
            unprocessed: Vec::new(),
            units: Units::default(),
        };
        for (given, rows) in keys.keys.chunks(AT_ONCE).zip(rows.chunks(AT_ONCE)) {
            if *bytes_left == 0 {
                found.unprocessed.extend(given.iter().map(copy_item));
                continue;
            }
            let read = |key: &ItemKey| {
                let (service, table, key) = (self.clone(), table.clone(), key.clone());
                async move { service.read_item(&table, &key, level).await }
            };
            let read = all(rows.iter().map(read).collect()).await;
            for (given, item) in given.iter().zip(read) {
                let item = item?;
                let bytes = item.as_ref().map_or(0, size::item_bytes);
                if bytes > *bytes_left {
                    *bytes_left = 0;
                    found.unprocessed.push(copy_item(given));
                    continue;
                }
                *bytes_left -= bytes;
                found.units = found
                    .units
                    .plus(read_units(bytes, Consistency::of(keys.consistent_read)));
                if let Some(item) = item {
                    found
                        .items
                        .push(project(keys.projection.as_ref(), &keys.substitutions, item)?);
                }
            }
        }
        Ok(found)
    }

    pub(super) async fn batch_write_item(self: &Rc<Self>, request: BatchWriteItem) -> Result<Vec<u8>, Error> {
        let mut writes = Vec::new();
        for of_table in &request.tables {
            let table = self.table(of_table.table.name())?;
            let keys = of_table.keys(&table.definition)?;
            for (key, write) in keys.iter().zip(&of_table.writes) {
                let item = match write {
                    BatchWrite::Put(item) => Some(copy_item(item)),
                    BatchWrite::Delete(_) => None,
                };
                writes.push((
                    of_table.table.clone(),
                    table.clone(),
                    table.row_key(key)?,
                    Arc::new(Whole(item)),
                ));
            }
        }
        let mut consumed: Vec<Consumed> = Vec::new();
        for chunk in writes.chunks(AT_ONCE) {
            let write = |(_, table, key, whole): &(_, Arc<ItemTable>, ItemKey, Arc<Whole>)| {
                let (service, table, key, whole) = (self.clone(), table.clone(), key.clone(), whole.clone());
                async move { service.modify(&table, key, whole).await }
            };
            let done = all(chunk.iter().map(write).collect()).await;
            for ((reference, ..), modified) in chunk.iter().zip(done) {
                let Modified { old, new, .. } = modified?;
                let bytes = |item: &Option<Item>| item.as_ref().map_or(0, size::item_bytes);
                let units = write_units(bytes(&old), bytes(&new), false);
                match consumed.iter_mut().find(|known| known.table == *reference) {
                    Some(known) => known.units = known.units.plus(units),
                    None => consumed.push(Consumed {
                        table: reference.clone(),
                        units,
                        transaction: None,
                    }),
                }
            }
        }
        let mut answer = Answer::begin();
        answer.member("UnprocessedItems").extend_from_slice(b"{}");
        answer.consumed_all(request.consumed_capacity, &consumed);
        Ok(answer.end())
    }
}

fn get_answer(request: &BatchGetItem, found: &[TableItems]) -> Vec<u8> {
    let (mut responses, mut unprocessed, mut consumed) = (Answer::begin(), Answer::begin(), Vec::new());
    for (keys, found) in request.tables.iter().zip(found) {
        responses.items(keys.table.given(), &found.items);
        if !found.unprocessed.is_empty() {
            write_unprocessed(unprocessed.member(keys.table.given()), keys, &found.unprocessed);
        }
        consumed.push(Consumed {
            table: keys.table.clone(),
            units: found.units,
            transaction: None,
        });
    }
    let mut answer = Answer::begin();
    answer.member("Responses").extend_from_slice(&responses.end());
    answer.member("UnprocessedKeys").extend_from_slice(&unprocessed.end());
    answer.consumed_all(request.consumed_capacity, &consumed);
    answer.end()
}

fn write_unprocessed(out: &mut Vec<u8>, keys: &TableKeys, unprocessed: &[Item]) {
    let mut answer = Answer::begin();
    list(answer.member("Keys"), unprocessed, write_item);
    if let Some(expression) = &keys.given.expression {
        answer.text("ProjectionExpression", expression);
    }
    if !keys.given.attributes_to_get.is_empty() {
        answer.texts(
            "AttributesToGet",
            keys.given.attributes_to_get.iter().map(String::as_str),
        );
    }
    if let Some(names) = &keys.substitutions.names {
        let mut written = Answer::begin();
        for (placeholder, name) in names {
            written.text(placeholder, name);
        }
        answer
            .member("ExpressionAttributeNames")
            .extend_from_slice(&written.end());
    }
    if keys.consistent_read {
        answer.member("ConsistentRead").extend_from_slice(b"true");
    }
    out.extend_from_slice(&answer.end());
}
