//! TransactWriteItems and TransactGetItems.

use std::rc::Rc;
use std::sync::Arc;

use dynamodb::capacity::{Consistency, Units, read_units, write_units};
use dynamodb::request::{
    ReturnConsumedCapacity, ReturnItemCollectionMetrics, ReturnValuesOnConditionCheckFailure, TransactGetItems,
    TransactOperation, TransactWrite, TransactWriteItems, UpdateItem, WriteOptions, all_keys, check_distinct,
};
use dynamodb::update::ReturnValues;
use dynamodb::value::{copy_item, size};
use dynamodb::{Error, Item};
use stdx::preempt;

use super::item::{KeyedUpdate, check, project};
use crate::answer::{Answer, Consumed, list};
use crate::modify::{Change, Modification};
use crate::service::{Service, WriteIsolation};
use crate::transaction::{Action, Token, Transacted};

/// An action of a transaction that is no update.
struct Simple(TransactWrite);

impl Modification for Simple {
    fn decide(&self, old: Option<&Item>) -> Result<Change, Error> {
        let TransactWrite {
            operation,
            condition,
            substitutions,
            on_failure,
            ..
        } = &self.0;
        check(condition.as_ref(), substitutions, old, *on_failure)?;
        Ok(match operation {
            TransactOperation::Put { item } => Change::Put(copy_item(item)),
            TransactOperation::Delete { .. } => Change::Delete,
            TransactOperation::Check { .. } | TransactOperation::Update { .. } => Change::Keep,
        })
    }

    fn unread(&self) -> Option<Change> {
        None
    }
}

fn modification(write: TransactWrite) -> Arc<dyn Modification> {
    match &write.operation {
        TransactOperation::Update { key, update } => Arc::new(KeyedUpdate {
            key: copy_item(key),
            update: UpdateItem {
                table: write.table.clone(),
                key: copy_item(key),
                update: update.clone(),
                condition: write.condition,
                substitutions: write.substitutions,
                options: WriteOptions {
                    return_values: ReturnValues::None,
                    consumed_capacity: ReturnConsumedCapacity::None,
                    collection_metrics: ReturnItemCollectionMetrics::None,
                    on_failure: write.on_failure,
                },
            },
        }),
        _ => Arc::new(Simple(write)),
    }
}

/// Bytes of the item that an action names, as far as the request knows it.
fn bytes_of(operation: &TransactOperation) -> usize {
    match operation {
        TransactOperation::Put { item } => size::item_bytes(item),
        TransactOperation::Check { key }
        | TransactOperation::Delete { key }
        | TransactOperation::Update { key, .. } => size::item_bytes(key),
    }
}

fn add(consumed: &mut Vec<Consumed>, more: Consumed) {
    match consumed.iter_mut().find(|known| known.table == more.table) {
        Some(known) => known.units = known.units.plus(more.units),
        None => consumed.push(more),
    }
}

impl Service {
    pub(super) async fn transact_write_items(self: &Rc<Self>, request: TransactWriteItems) -> Result<Vec<u8>, Error> {
        let mut tables = Vec::with_capacity(request.actions.len());
        for action in &request.actions {
            let table = self.table(action.table.name())?;
            if self.isolation_of(&table)? != WriteIsolation::Always {
                return Err(Error::validation(format!(
                    "Transactions need the write isolation always_use_lwt, which table {} does not have",
                    table.name
                )));
            }
            tables.push(table);
        }
        let keys = request
            .actions
            .iter()
            .zip(&tables)
            .map(|(action, table)| action.key(&table.definition));
        let keys = all_keys(keys.collect(), true)?;
        check_distinct(request.actions.iter().map(|action| &action.table).zip(&keys))?;
        let token = {
            // What an answer reports does not make another request.
            let asked = || format!("{:?}", request.actions);
            request.token.as_ref().map(|text| Token::new(text, asked().as_bytes()))
        };
        let mut consumed = Vec::new();
        let mut actions = Vec::with_capacity(tables.len());
        for ((write, table), key) in request.actions.into_iter().zip(tables).zip(&keys) {
            let units = write_units(bytes_of(&write.operation), 0, true);
            add(
                &mut consumed,
                Consumed {
                    table: write.table.clone(),
                    units,
                    transaction: Some(true),
                },
            );
            actions.push(Action {
                key: table.row_key(key)?,
                table,
                returns_item: write.on_failure == ReturnValuesOnConditionCheckFailure::AllOld,
                modification: modification(write),
            });
        }
        let done = self.transact_write(actions, token).await?;
        if done == Transacted::Before {
            // The service counts a repeated transaction as reads.
            consumed
                .iter_mut()
                .for_each(|consumed| consumed.transaction = Some(false));
        }
        let mut answer = Answer::begin();
        answer.consumed_all(request.consumed_capacity, &consumed);
        Ok(answer.end())
    }

    pub(super) async fn transact_get_items(self: &Rc<Self>, request: TransactGetItems) -> Result<Vec<u8>, Error> {
        let mut tables = Vec::with_capacity(request.reads.len());
        for read in &request.reads {
            tables.push(self.table(read.table.name())?);
        }
        let keys = request
            .reads
            .iter()
            .zip(&tables)
            .map(|(read, table)| read.key(&table.definition));
        let keys = all_keys(keys.collect(), false)?;
        check_distinct(request.reads.iter().map(|read| &read.table).zip(&keys))?;
        let rows = tables
            .iter()
            .zip(&keys)
            .map(|(table, key)| Ok((table.clone(), table.row_key(key)?)));
        let items = self.read_together(rows.collect::<Result<_, Error>>()?).await?;
        preempt::allowed(|| {
            let (mut consumed, mut projected) = (Vec::new(), Vec::with_capacity(items.len()));
            for (read, item) in request.reads.iter().zip(items) {
                let bytes = item.as_ref().map_or(0, size::item_bytes);
                let units: Units = read_units(bytes, Consistency::Transactional);
                add(
                    &mut consumed,
                    Consumed {
                        table: read.table.clone(),
                        units,
                        transaction: Some(false),
                    },
                );
                let item = item.map(|item| project(read.projection.as_ref(), &read.substitutions, item));
                projected.push(item.transpose()?);
            }
            let mut answer = Answer::begin();
            list(answer.member("Responses"), &projected, |out, item| {
                let mut response = Answer::begin();
                response.item("Item", item.as_ref());
                out.extend_from_slice(&response.end());
            });
            answer.consumed_all(request.consumed_capacity, &consumed);
            Ok(answer.end())
        })
    }
}
