//! BatchGetItem and BatchWriteItem: reads and writes of single items, at the same time.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use dynamodb::answer::{
    BatchGet, BatchWrite as WrittenBatch, CapacityKind, ConsumedCapacity, UnprocessedKeys, UnprocessedWrites,
};
use dynamodb::capacity::{Consistency, Units, read_units, write_units};
use dynamodb::request::{BatchGetItem, BatchWrite, BatchWriteItem, ReturnConsumedCapacity, TableKeys};
use dynamodb::update::ReturnValues;
use dynamodb::value::copy_item;
use dynamodb::{Error, ErrorKind, Item};
use stdx::preempt;

use super::item::{needed_to_answer, project};
use super::{add_consumed, bytes_of, consumed};
use crate::modify::{Change, Modification, Modified};
use crate::row::Needed;
use crate::service::Service;
use crate::table::{ItemKey, ItemTable};
use crate::transaction::all;

/// Bytes of the items of an answer; what would exceed them is unprocessed.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Items that are read or written at the same time.
const AT_ONCE: usize = 32;

/// A write of a batch on its way to its item.
struct Whole {
    /// What the item becomes; None: it is deleted.
    item: Option<Item>,
    capacity: ReturnConsumedCapacity,
}

impl Modification for Whole {
    fn needs(&self) -> Needed<'_> {
        needed_to_answer(ReturnValues::None, self.capacity).unwrap_or(Needed::NONE)
    }

    fn decide(&self, _: Option<&Item>) -> Result<Change<'_>, Error> {
        Ok(self
            .item
            .as_ref()
            .map_or(Change::Delete, |item| Change::Put(Cow::Borrowed(item))))
    }

    fn unread(&self) -> Option<Change<'_>> {
        self.decide(None).ok()
    }
}

/// What was read of one table.
#[derive(Default)]
struct TableItems {
    items: Vec<Item>,
    /// Keys that were not read.
    unprocessed: Vec<Item>,
    units: Units,
    /// Whether any key was read.
    is_read: bool,
    /// Why one was not.
    error: Option<Error>,
}

/// Whether a part of a batch may be left to the client, which asks for it again.
const fn may_succeed_later(error: &Error) -> bool {
    matches!(
        error.kind,
        ErrorKind::InternalServerError
            | ErrorKind::ServiceUnavailable
            | ErrorKind::ProvisionedThroughputExceeded
            | ErrorKind::Throttling
            | ErrorKind::TransactionConflict
    )
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
        // The service fails a batch of which it can process nothing.
        if !found.iter().any(|found| found.is_read)
            && let Some(error) = found.iter_mut().find_map(|found| found.error.take())
        {
            return Err(error);
        }
        preempt::allowed(|| Ok(get_answer(&request, found)))
    }

    async fn get_all(
        self: &Rc<Self>,
        keys: &TableKeys,
        table: &Arc<ItemTable>,
        rows: Vec<ItemKey>,
        bytes_left: &mut usize,
    ) -> Result<TableItems, Error> {
        let level = Self::read_level(keys.consistent_read);
        let mut found = TableItems::default();
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
                let item = match item {
                    Ok(item) => item,
                    Err(error) if may_succeed_later(&error) => {
                        found.unprocessed.push(copy_item(given));
                        found.error = Some(error);
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                found.is_read = true;
                let bytes = bytes_of(item.as_ref());
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
                    Arc::new(Whole {
                        item,
                        capacity: request.consumed_capacity,
                    }),
                ));
            }
        }
        let (mut capacities, mut undone, mut failure) = (Vec::new(), BTreeSet::new(), None);
        for (chunk, writes) in writes.chunks(AT_ONCE).enumerate() {
            let write = |(_, table, key, whole): &(_, Arc<ItemTable>, ItemKey, Arc<Whole>)| {
                let (service, table, key, whole) = (self.clone(), table.clone(), key.clone(), whole.clone());
                async move { service.modify(&table, key, whole).await }
            };
            let done = all(writes.iter().map(write).collect()).await;
            for (number, ((reference, ..), modified)) in writes.iter().zip(done).enumerate() {
                match modified {
                    Ok(Modified { old, new, .. }) => {
                        let units = write_units(bytes_of(old.as_ref()), bytes_of(new.as_ref()), false);
                        add_consumed(&mut capacities, consumed(reference, units, CapacityKind::Undivided));
                    }
                    Err(error) if may_succeed_later(&error) => {
                        undone.insert(chunk * AT_ONCE + number);
                        failure = Some(error);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        match failure {
            Some(error) if undone.len() == writes.len() => Err(error),
            _ => Ok(preempt::allowed(|| write_answer(&request, &undone, &capacities))),
        }
    }
}

fn get_answer(request: &BatchGetItem, found: Vec<TableItems>) -> Vec<u8> {
    let (mut tables, mut keys, mut capacities) = (Vec::new(), Vec::new(), Vec::new());
    for (wanted, found) in request.tables.iter().zip(found) {
        tables.push((wanted.table.given(), found.items));
        keys.push(found.unprocessed);
        capacities.push(consumed(&wanted.table, found.units, CapacityKind::Undivided));
    }
    let unprocessed = request.tables.iter().zip(&keys);
    let unprocessed: Vec<UnprocessedKeys<'_>> = unprocessed
        .map(|(request, keys)| UnprocessedKeys { request, keys })
        .collect();
    let mut out = Vec::new();
    let answer = BatchGet {
        tables: &tables,
        unprocessed: &unprocessed,
        capacities: &capacities,
        detail: request.consumed_capacity,
    };
    answer.write(&mut out);
    out
}

/// `undone`: the numbers of the writes, over all tables, that were not done.
fn write_answer(request: &BatchWriteItem, undone: &BTreeSet<usize>, capacities: &[ConsumedCapacity]) -> Vec<u8> {
    let (mut number, mut left) = (0, Vec::with_capacity(request.tables.len()));
    for of_table in &request.tables {
        let numbered = (number..).zip(&of_table.writes);
        let undone_of_table: Vec<&BatchWrite> = numbered
            .filter(|(number, _)| undone.contains(number))
            .map(|(_, write)| write)
            .collect();
        left.push(undone_of_table);
        number += of_table.writes.len();
    }
    let unprocessed = request.tables.iter().zip(&left);
    let unprocessed: Vec<UnprocessedWrites<'_>> = unprocessed
        .map(|(request, writes)| UnprocessedWrites { request, writes })
        .collect();
    let mut out = Vec::new();
    let answer = WrittenBatch {
        unprocessed: &unprocessed,
        collections: &[],
        collection_metrics: request.collection_metrics,
        capacities,
        detail: request.consumed_capacity,
    };
    answer.write(&mut out);
    out
}
