//! TransactWriteItems and TransactGetItems.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use dynamodb::answer::{BatchWrite, CapacityKind, TransactGet};
use dynamodb::capacity::{Consistency, read_units, write_units};
use dynamodb::request::{
    ReturnConsumedCapacity, ReturnItemCollectionMetrics, TransactGetItems, TransactOperation, TransactWrite,
    TransactWriteItems, UpdateItem, WriteOptions, all_keys, check_distinct,
};
use dynamodb::update::ReturnValues;
use dynamodb::value::{copy_item, size};
use dynamodb::{Error, Item};
use stdx::preempt;

use super::item::{KeyedUpdate, check, project};
use super::{add_consumed, bytes_of, consumed};
use crate::modify::{Change, Modification};
use crate::record::Token;
use crate::service::Service;
use crate::transaction::{Action, Transacted};

/// An action of a transaction that is no update.
struct Simple(TransactWrite);

impl Modification for Simple {
    fn decide(&self, old: Option<&Item>) -> Result<Change<'_>, Error> {
        let TransactWrite {
            operation,
            condition,
            substitutions,
            on_failure,
            ..
        } = &self.0;
        check(condition.as_ref(), substitutions, old, *on_failure)?;
        Ok(match operation {
            TransactOperation::Put { item } => Change::Put(Cow::Borrowed(item)),
            TransactOperation::Delete { .. } => Change::Delete,
            TransactOperation::Check { .. } | TransactOperation::Update { .. } => Change::Keep,
        })
    }

    fn unread(&self) -> Option<Change<'_>> {
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
fn known_bytes(operation: &TransactOperation) -> usize {
    match operation {
        TransactOperation::Put { item } => size::item_bytes(item),
        TransactOperation::Check { key }
        | TransactOperation::Delete { key }
        | TransactOperation::Update { key, .. } => size::item_bytes(key),
    }
}

impl Service {
    pub(super) async fn transact_write_items(self: &Rc<Self>, request: TransactWriteItems) -> Result<Vec<u8>, Error> {
        let mut tables = Vec::with_capacity(request.actions.len());
        for action in &request.actions {
            tables.push(self.table(action.table.name())?);
        }
        let keys = request
            .actions
            .iter()
            .zip(&tables)
            .map(|(action, table)| action.key(&table.definition));
        let keys = all_keys(keys.collect(), true)?;
        check_distinct(request.actions.iter().map(|action| &action.table).zip(&keys))?;
        // What an answer reports does not make another request.
        let token = request.token.as_ref();
        let token = token.map(|text| Token::new(text, &request.actions));
        let mut capacities = Vec::new();
        let mut actions = Vec::with_capacity(tables.len());
        for ((write, table), key) in request.actions.into_iter().zip(tables).zip(&keys) {
            let units = write_units(known_bytes(&write.operation), 0, true);
            add_consumed(&mut capacities, consumed(&write.table, units, CapacityKind::Write));
            actions.push(Action {
                key: table.row_key(key)?,
                table,
                modification: modification(write),
            });
        }
        let done = self.transact_write(actions, token).await?;
        if done == Transacted::Before {
            // The service counts a repeated transaction as reads.
            capacities
                .iter_mut()
                .for_each(|consumed| consumed.kind = CapacityKind::Read);
        }
        let mut out = Vec::new();
        let answer = BatchWrite {
            unprocessed: &[],
            collections: &[],
            collection_metrics: request.collection_metrics,
            capacities: &capacities,
            detail: request.consumed_capacity,
        };
        answer.write_transaction(&mut out);
        Ok(out)
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
            let (mut capacities, mut projected) = (Vec::new(), Vec::with_capacity(items.len()));
            for (read, item) in request.reads.iter().zip(items) {
                let units = read_units(bytes_of(item.as_ref()), Consistency::Transactional);
                add_consumed(&mut capacities, consumed(&read.table, units, CapacityKind::Read));
                let item = item.map(|item| project(read.projection.as_ref(), &read.substitutions, item));
                projected.push(item.transpose()?);
            }
            let mut out = Vec::new();
            let answer = TransactGet {
                items: &projected,
                capacities: &capacities,
                detail: request.consumed_capacity,
            };
            answer.write(&mut out);
            Ok(out)
        })
    }
}
