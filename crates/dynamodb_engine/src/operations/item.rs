//! GetItem, PutItem, UpdateItem and DeleteItem.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use dynamodb::answer::{CapacityKind, ConsumedCapacity, Get, Write};
use dynamodb::arn::TableReference;
use dynamodb::capacity::{Consistency, read_units, write_units};
use dynamodb::expression::{Condition, Projection};
use dynamodb::request::{
    Clause, DeleteItem, GetItem, PutItem, ReturnConsumedCapacity, ReturnValuesOnConditionCheckFailure, Substitutions,
    UpdateItem, WriteOptions,
};
use dynamodb::table::Key;
use dynamodb::update::{self, ReturnValues, Updated};
use dynamodb::value::copy_item;
use dynamodb::value::json::write_item;
use dynamodb::{Error, Item, projection};
use stdx::preempt;

use super::{bytes_of, consumed};
use crate::modify::{Change, Modification, Modified};
use crate::read::FoundItem;
use crate::row::Needed;
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

/// All of an item, if the answer to a write needs it: its size counts in units.
pub(super) fn needed_to_answer(
    return_values: ReturnValues,
    capacity: ReturnConsumedCapacity,
) -> Option<Needed<'static>> {
    let has_whole = matches!(return_values, ReturnValues::AllOld | ReturnValues::AllNew);
    (has_whole || capacity != ReturnConsumedCapacity::None).then_some(Needed::All)
}

/// The condition of a write of one item.
struct Guard<'r> {
    condition: Option<&'r Clause<Condition>>,
    substitutions: &'r Substitutions,
    options: &'r WriteOptions,
}

impl<'r> Guard<'r> {
    /// What the write needs of an item, beside what else it reads.
    fn needs(&self, others: impl Iterator<Item = &'r str>) -> Needed<'r> {
        let answered = needed_to_answer(self.options.return_values, self.options.consumed_capacity);
        let returns_item = self.options.on_failure == ReturnValuesOnConditionCheckFailure::AllOld;
        match answered {
            Some(needed) => needed,
            None if returns_item && self.condition.is_some() => Needed::All,
            None => {
                let conditions = self.condition.into_iter();
                let names = conditions.flat_map(|condition| condition.names(self.substitutions));
                Needed::named(names.chain(others))
            }
        }
    }

    fn check(&self, old: Option<&Item>) -> Result<(), Error> {
        check(self.condition, self.substitutions, old, self.options.on_failure)
    }

    /// Whether the item need not be read.
    fn is_blind(&self) -> bool {
        self.condition.is_none() && self.options.return_values == ReturnValues::None
    }
}

/// The JSON of the part of an item that a projection lists.
///
/// # Errors
/// As [`project`], or the item cannot be read.
pub(super) fn projected_json(
    projection: Option<&Clause<Projection>>,
    substitutions: &Substitutions,
    found: FoundItem<'_>,
) -> Result<Vec<u8>, Error> {
    if projection.is_none() {
        return found.json();
    }
    let part = project(projection, substitutions, found.into_item()?)?;
    let mut json = Vec::new();
    write_item(&mut json, &part);
    Ok(json)
}

/// The guard of a request that has the three members.
macro_rules! guard_of {
    ($request:expr) => {
        Guard {
            condition: $request.condition.as_ref(),
            substitutions: &$request.substitutions,
            options: &$request.options,
        }
    };
}

impl Modification for PutItem {
    fn needs(&self) -> Needed<'_> {
        guard_of!(self).needs(std::iter::empty())
    }

    fn decide(&self, old: Option<&Item>) -> Result<Change<'_>, Error> {
        guard_of!(self).check(old)?;
        Ok(Change::Put(Cow::Borrowed(&self.item)))
    }

    fn unread(&self) -> Option<Change<'_>> {
        guard_of!(self)
            .is_blind()
            .then_some(Change::Put(Cow::Borrowed(&self.item)))
    }
}

impl Modification for DeleteItem {
    fn needs(&self) -> Needed<'_> {
        guard_of!(self).needs(std::iter::empty())
    }

    fn decide(&self, old: Option<&Item>) -> Result<Change<'_>, Error> {
        guard_of!(self).check(old)?;
        Ok(Change::Delete)
    }

    fn unread(&self) -> Option<Change<'_>> {
        guard_of!(self).is_blind().then_some(Change::Delete)
    }
}

/// An update of an item with a key, which the item has if it is created.
pub(super) struct KeyedUpdate {
    pub(super) update: UpdateItem,
    pub(super) key: Item,
}

impl Modification for KeyedUpdate {
    fn needs(&self) -> Needed<'_> {
        let request = &self.update;
        let updates = request.update.iter();
        guard_of!(request).needs(updates.flat_map(|update| update.names(&request.substitutions)))
    }

    fn decide(&self, old: Option<&Item>) -> Result<Change<'_>, Error> {
        guard_of!(self.update).check(old)?;
        let UpdateItem {
            update,
            substitutions,
            options,
            ..
        } = &self.update;
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
        Ok(Change::Update(updated))
    }

    fn unread(&self) -> Option<Change<'_>> {
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
        let found = self.find_item(&table, &key, level).await?;
        preempt::allowed(|| {
            let mut capacity = ConsumedCapacity::default();
            if request.consumed_capacity != ReturnConsumedCapacity::None {
                let bytes = found.as_ref().map_or(Ok(0), |found| found.bytes())?;
                let units = read_units(bytes, Consistency::of(request.consistent_read));
                capacity = consumed(&request.table, units, CapacityKind::Undivided);
            }
            let projection = request.projection.as_ref();
            let item = found.map(|found| projected_json(projection, &request.substitutions, found));
            let item = item.transpose()?;
            let mut out = Vec::new();
            let answer = Get {
                item: item.as_deref(),
                capacity: &capacity,
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
        let mut capacity = ConsumedCapacity::default();
        if options.consumed_capacity != ReturnConsumedCapacity::None {
            let (old, new) = (bytes_of(modified.old.as_ref()), bytes_of(modified.new.as_ref()));
            capacity = consumed(table, write_units(old, new, false), CapacityKind::Undivided);
        }
        let attributes = answered(modified, options.return_values);
        let mut out = Vec::new();
        let answer = Write {
            attributes: attributes.as_ref(),
            capacity: &capacity,
            detail: options.consumed_capacity,
            // There are no local secondary indexes.
            collection: None,
            collection_metrics: options.collection_metrics,
        };
        answer.write(&mut out);
        out
    })
}
