//! GetItem, PutItem, UpdateItem and DeleteItem.

use std::rc::Rc;
use std::sync::Arc;

use dynamodb::answer::{CapacityKind, Get, Write};
use dynamodb::arn::TableReference;
use dynamodb::capacity::{Consistency, read_units, write_units};
use dynamodb::expression::{Condition, Projection};
use dynamodb::request::{
    Clause, DeleteItem, GetItem, PutItem, ReturnValuesOnConditionCheckFailure, Substitutions, UpdateItem, WriteOptions,
};
use dynamodb::table::Key;
use dynamodb::update::{self, ReturnValues, Updated};
use dynamodb::value::{copy_item, size};
use dynamodb::{Error, Item, projection};
use stdx::preempt;

use super::{bytes_of, consumed};
use crate::modify::{Change, Modification, Modified};
use crate::service::Service;
use crate::table::{ItemKey, ItemTable};

impl ItemTable {
    /// The key of a row.
    ///
    /// # Errors
    /// When it is no key of the table, which validation has refused.
    pub fn row_key(&self, key: &Key) -> Result<ItemKey, Error> {
        match &key.sort {
            Some(sort) => self.key_of_values(&[&key.partition, sort]),
            None => self.key_of_values(&[&key.partition]),
        }
    }
}

/// An item that is not there has no attributes.
fn attributes_of(item: Option<&Item>) -> &Item {
    static NOTHING: Item = Item::new();
    item.unwrap_or(&NOTHING)
}

/// Whether a condition holds; the error of one that does not has the item if that is asked for.
pub(super) fn check(
    condition: Option<&Clause<Condition>>,
    substitutions: &Substitutions,
    old: Option<&Item>,
    on_failure: ReturnValuesOnConditionCheckFailure,
) -> Result<(), Error> {
    let Some(condition) = condition else { return Ok(()) };
    let bindings = condition.bind(substitutions)?;
    if condition.expression.tree.holds(attributes_of(old), &bindings) {
        return Ok(());
    }
    let is_wanted = on_failure == ReturnValuesOnConditionCheckFailure::AllOld;
    Err(Error::condition_failed(old.filter(|_| is_wanted).map(copy_item)))
}

/// The part of an item that a projection lists; all of it without one.
///
/// # Errors
/// Those of placeholders that are not defined, which validation has refused.
pub(super) fn project(
    projection: Option<&Clause<Projection>>,
    substitutions: &Substitutions,
    item: Item,
) -> Result<Item, Error> {
    match projection {
        Some(projection) => {
            let bindings = projection.bind(substitutions)?;
            Ok(projection::project(&projection.expression.tree, &item, &bindings))
        }
        None => Ok(item),
    }
}

impl Modification for PutItem {
    fn decide(&self, old: Option<&Item>) -> Result<Change, Error> {
        check(
            self.condition.as_ref(),
            &self.substitutions,
            old,
            self.options.on_failure,
        )?;
        Ok(Change::Put(copy_item(&self.item)))
    }

    fn unread(&self) -> Option<Change> {
        let reads = self.condition.is_some() || self.options.return_values != ReturnValues::None;
        (!reads).then(|| Change::Put(copy_item(&self.item)))
    }
}

impl Modification for DeleteItem {
    fn decide(&self, old: Option<&Item>) -> Result<Change, Error> {
        check(
            self.condition.as_ref(),
            &self.substitutions,
            old,
            self.options.on_failure,
        )?;
        Ok(Change::Delete)
    }

    fn unread(&self) -> Option<Change> {
        let reads = self.condition.is_some() || self.options.return_values != ReturnValues::None;
        (!reads).then_some(Change::Delete)
    }
}

/// An update of an item with a key, which the item has if it is created.
pub(super) struct KeyedUpdate {
    pub(super) update: UpdateItem,
    pub(super) key: Item,
}

impl Modification for KeyedUpdate {
    fn decide(&self, old: Option<&Item>) -> Result<Change, Error> {
        let UpdateItem {
            update,
            condition,
            substitutions,
            options,
            ..
        } = &self.update;
        check(condition.as_ref(), substitutions, old, options.on_failure)?;
        let before = old.unwrap_or(&self.key);
        let Some(update) = update else {
            let item = copy_item(before);
            let attributes = (options.return_values == ReturnValues::AllNew).then(|| item.clone());
            return Ok(Change::Update(Updated { item, attributes }));
        };
        let bindings = update.bind(substitutions)?;
        let updated = update::apply(
            &update.expression.tree,
            old.map(copy_item),
            &self.key,
            &bindings,
            options.return_values,
        )?;
        if size::item_bytes(&updated.item) > size::ITEM_BYTES_MAX {
            return Err(Error::validation(
                "Item size to update has exceeded the maximum allowed size",
            ));
        }
        Ok(Change::Update(updated))
    }

    fn unread(&self) -> Option<Change> {
        None
    }
}

/// What the answer to a write has as `Attributes`.
fn answered(modified: Modified, return_values: ReturnValues) -> Option<Item> {
    match return_values {
        ReturnValues::None => None,
        ReturnValues::AllOld => modified.old,
        ReturnValues::AllNew => modified.attributes.or(modified.new),
        ReturnValues::UpdatedOld | ReturnValues::UpdatedNew => modified.attributes,
    }
}

impl Service {
    pub(super) async fn get_item(self: &Rc<Self>, request: GetItem) -> Result<Vec<u8>, Error> {
        let table = self.table(request.table.name())?;
        let key = table.row_key(&request.key(&table.definition)?)?;
        let level = Self::read_level(request.consistent_read);
        let item = self.read_item(&table, &key, level).await?;
        preempt::allowed(|| {
            let units = read_units(bytes_of(item.as_ref()), Consistency::of(request.consistent_read));
            let item = item.map(|item| project(request.projection.as_ref(), &request.substitutions, item));
            let item = item.transpose()?;
            let mut out = Vec::new();
            let answer = Get {
                item: item.as_ref(),
                capacity: &consumed(&request.table, units, CapacityKind::Undivided),
                detail: request.consumed_capacity,
            };
            answer.write(&mut out);
            Ok(out)
        })
    }

    pub(super) async fn put_item(self: &Rc<Self>, request: PutItem) -> Result<Vec<u8>, Error> {
        let table = self.table(request.table.name())?;
        let key = request.key(&table.definition)?;
        let about = (request.table.clone(), request.options);
        self.write_one(&table, &key, Arc::new(request), about).await
    }

    pub(super) async fn delete_item(self: &Rc<Self>, request: DeleteItem) -> Result<Vec<u8>, Error> {
        let table = self.table(request.table.name())?;
        let key = request.key(&table.definition)?;
        let about = (request.table.clone(), request.options);
        self.write_one(&table, &key, Arc::new(request), about).await
    }

    pub(super) async fn update_item(self: &Rc<Self>, request: UpdateItem) -> Result<Vec<u8>, Error> {
        let table = self.table(request.table.name())?;
        let key = request.key(&table.definition)?;
        let about = (request.table.clone(), request.options);
        let update = KeyedUpdate {
            key: copy_item(&request.key),
            update: request,
        };
        self.write_one(&table, &key, Arc::new(update), about).await
    }

    /// Writes an item, and answers what the request asks for.
    async fn write_one(
        self: &Rc<Self>,
        table: &Arc<ItemTable>,
        key: &Key,
        modification: Arc<dyn Modification>,
        (reference, options): (TableReference, WriteOptions),
    ) -> Result<Vec<u8>, Error> {
        let modified = self.modify(table, table.row_key(key)?, modification).await?;
        Ok(write_answer(&reference, &options, modified))
    }
}

fn write_answer(table: &TableReference, options: &WriteOptions, modified: Modified) -> Vec<u8> {
    preempt::allowed(|| {
        let units = write_units(bytes_of(modified.old.as_ref()), bytes_of(modified.new.as_ref()), false);
        let attributes = answered(modified, options.return_values);
        let mut out = Vec::new();
        let answer = Write {
            attributes: attributes.as_ref(),
            capacity: &consumed(table, units, CapacityKind::Undivided),
            detail: options.consumed_capacity,
            // There are no local secondary indexes.
            collection: None,
            collection_metrics: options.collection_metrics,
        };
        answer.write(&mut out);
        out
    })
}
