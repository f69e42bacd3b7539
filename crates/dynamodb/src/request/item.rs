//! GetItem, PutItem, UpdateItem and DeleteItem.
//!
//! The order of the checks is that of the service: constraints on members, invalid values, the combination of
//! parameters, expressions, sizes. What needs the table is checked by the `key` methods.

use super::constraints::{Constraints, DETECTED};
use super::expressions::{self, Clause, Parameters, Reader, Style, Substitutions};
use super::json::{Attributes, Flag, LegacyParameter, List, Map, Text, structure};
use super::names;
use super::options::{self, ReturnConsumedCapacity, WriteOptions, WriteWords};
use crate::arn::TableReference;
use crate::error::Error;
use crate::expression::{Condition, ExpressionKind, Projection, Update};
use crate::legacy;
use crate::table::{Key, TableDefinition, key_of_item, key_of_request};
use crate::update::ReturnValues;
use crate::value::{Item, size};

structure! {
    /// The body of GetItem.
    pub(crate) struct GetItemInput {
        table_name: Text = "TableName",
        key: Attributes = "Key",
        attributes_to_get: List<Text> = "AttributesToGet",
        consistent_read: Flag = "ConsistentRead",
        consumed_capacity: Text = "ReturnConsumedCapacity",
        projection: Text = "ProjectionExpression",
        names: Map<Text> = "ExpressionAttributeNames",
    }
}

structure! {
    /// The body of PutItem.
    pub(crate) struct PutItemInput {
        table_name: Text = "TableName",
        item: Attributes = "Item",
        expected: LegacyParameter = "Expected",
        return_values: Text = "ReturnValues",
        consumed_capacity: Text = "ReturnConsumedCapacity",
        collection_metrics: Text = "ReturnItemCollectionMetrics",
        conditional_operator: Text = "ConditionalOperator",
        condition: Text = "ConditionExpression",
        names: Map<Text> = "ExpressionAttributeNames",
        values: Attributes = "ExpressionAttributeValues",
        on_failure: Text = "ReturnValuesOnConditionCheckFailure",
    }
}

structure! {
    /// The body of UpdateItem.
    pub(crate) struct UpdateItemInput {
        table_name: Text = "TableName",
        key: Attributes = "Key",
        attribute_updates: LegacyParameter = "AttributeUpdates",
        expected: LegacyParameter = "Expected",
        conditional_operator: Text = "ConditionalOperator",
        return_values: Text = "ReturnValues",
        consumed_capacity: Text = "ReturnConsumedCapacity",
        collection_metrics: Text = "ReturnItemCollectionMetrics",
        update: Text = "UpdateExpression",
        condition: Text = "ConditionExpression",
        names: Map<Text> = "ExpressionAttributeNames",
        values: Attributes = "ExpressionAttributeValues",
        on_failure: Text = "ReturnValuesOnConditionCheckFailure",
    }
}

structure! {
    /// The body of DeleteItem.
    pub(crate) struct DeleteItemInput {
        table_name: Text = "TableName",
        key: Attributes = "Key",
        expected: LegacyParameter = "Expected",
        conditional_operator: Text = "ConditionalOperator",
        return_values: Text = "ReturnValues",
        consumed_capacity: Text = "ReturnConsumedCapacity",
        collection_metrics: Text = "ReturnItemCollectionMetrics",
        condition: Text = "ConditionExpression",
        names: Map<Text> = "ExpressionAttributeNames",
        values: Attributes = "ExpressionAttributeValues",
        on_failure: Text = "ReturnValuesOnConditionCheckFailure",
    }
}

/// Reads one item.
#[derive(Clone, PartialEq, Debug)]
pub struct GetItem {
    /// The table.
    pub table: TableReference,
    /// The key as the request has it.
    pub key: Item,
    /// What the answer has of the item; None for all of it.
    pub projection: Option<Clause<Projection>>,
    /// Placeholders of the projection.
    pub substitutions: Substitutions,
    /// Whether all earlier writes must be seen.
    pub consistent_read: bool,
    /// What the answer reports of capacity.
    pub consumed_capacity: ReturnConsumedCapacity,
}

/// Stores one item.
#[derive(Clone, PartialEq, Debug)]
pub struct PutItem {
    /// The table.
    pub table: TableReference,
    /// The item.
    pub item: Item,
    /// What must hold of the item that is there.
    pub condition: Option<Clause<Condition>>,
    /// Placeholders of the condition.
    pub substitutions: Substitutions,
    /// What the answer has.
    pub options: WriteOptions,
}

/// Changes one item, or creates it.
#[derive(Clone, PartialEq, Debug)]
pub struct UpdateItem {
    /// The table.
    pub table: TableReference,
    /// The key as the request has it.
    pub key: Item,
    /// The changes; None to create an item that has its key alone.
    pub update: Option<Clause<Update>>,
    /// What must hold of the item before.
    pub condition: Option<Clause<Condition>>,
    /// Placeholders of update and condition.
    pub substitutions: Substitutions,
    /// What the answer has.
    pub options: WriteOptions,
}

/// Deletes one item.
#[derive(Clone, PartialEq, Debug)]
pub struct DeleteItem {
    /// The table.
    pub table: TableReference,
    /// The key as the request has it.
    pub key: Item,
    /// What must hold of the item.
    pub condition: Option<Clause<Condition>>,
    /// Placeholders of the condition.
    pub substitutions: Substitutions,
    /// What the answer has.
    pub options: WriteOptions,
}

impl GetItem {
    /// The key of the item.
    ///
    /// # Errors
    /// A ValidationException if it does not match the table's schema.
    pub fn key(&self, table: &TableDefinition) -> Result<Key, Error> {
        key_of_request(table, &self.key)
    }
}

impl PutItem {
    /// The key of the item.
    ///
    /// # Errors
    /// A ValidationException if the item lacks it or has another type, or if an attribute that is a key of an index
    /// is not valid.
    pub fn key(&self, table: &TableDefinition) -> Result<Key, Error> {
        key_of_item(table, &self.item)
    }
}

impl UpdateItem {
    /// The key of the item.
    ///
    /// # Errors
    /// A ValidationException if it does not match the table's schema, or if the update changes it.
    pub fn key(&self, table: &TableDefinition) -> Result<Key, Error> {
        let key = key_of_request(table, &self.key)?;
        check_no_key_update(table, self.update.as_ref(), &self.substitutions)?;
        Ok(key)
    }
}

impl DeleteItem {
    /// The key of the item.
    ///
    /// # Errors
    /// A ValidationException if it does not match the table's schema.
    pub fn key(&self, table: &TableDefinition) -> Result<Key, Error> {
        key_of_request(table, &self.key)
    }
}

/// Fails if an update changes an attribute of the primary key.
pub(crate) fn check_no_key_update(
    table: &TableDefinition,
    update: Option<&Clause<Update>>,
    substitutions: &Substitutions,
) -> Result<(), Error> {
    let Some(update) = update else {
        return Ok(());
    };
    let bindings = update.bind(substitutions)?;
    for action in &update.expression.tree.actions {
        let name = bindings.name(action.path.attribute);
        if table.key_schema.has(name) {
            return Err(Error::validation(format!(
                "One or more parameter values were invalid: Cannot update attribute {name}. This attribute is part of \
                 the key"
            )));
        }
    }
    Ok(())
}

/// Fails with the empty name of a table, which operations on items report before anything else.
pub(super) fn check_empty_name(name: Option<&Text>) -> Result<(), Error> {
    match name {
        Some(Text(name)) if name.is_empty() => Err(Error::validation(names::EMPTY).prefixed(DETECTED)),
        _ => Ok(()),
    }
}

/// Fails with the invalid value of a map of attributes.
pub(super) fn check_values(attributes: Option<&Attributes>, style: Style) -> Result<(), Error> {
    let problem = attributes.and_then(|attributes| attributes.problem.clone());
    match problem {
        Some(problem) if problem.is_counted => Err(style.error(problem.error)),
        Some(problem) => Err(problem.error),
        None => Ok(()),
    }
}

/// Fails with the invalid value of a key that is read, updated or deleted, where the service reports an empty set
/// without a count.
pub(super) fn check_key_values(key: Option<&Attributes>, style: Style) -> Result<(), Error> {
    match key.and_then(|key| key.problem.clone()) {
        Some(problem) if problem.error.message.ends_with("not be empty") => Err(problem.error),
        _ => check_values(key, style),
    }
}

/// Fails with the invalid value of a legacy parameter.
pub(super) fn check_legacy_values(parameter: Option<&LegacyParameter>, style: Style) -> Result<(), Error> {
    match parameter.and_then(|parameter| parameter.problem.clone()) {
        Some(problem) if problem.is_counted => Err(style.error(problem.error)),
        Some(problem) => Err(problem.error),
        None => Ok(()),
    }
}

/// Checks that ConditionalOperator joins at least two conditions.
pub(super) fn check_operator(
    operator: Option<&Text>,
    conditions: Option<&LegacyParameter>,
    style: Style,
) -> Result<legacy::ConditionalOperator, Error> {
    let Some(Text(operator)) = operator else {
        return Ok(legacy::ConditionalOperator::And);
    };
    match conditions.map_or(0, |conditions| conditions.map.len()) {
        0 => Err(style.validation("ConditionalOperator cannot be used without Filter or Expected")),
        1 => {
            Err(style
                .validation("ConditionalOperator can only be used when Filter or Expected has two or more elements"))
        }
        _ => match operator.as_str() {
            "AND" => Ok(legacy::ConditionalOperator::And),
            "OR" => Ok(legacy::ConditionalOperator::Or),
            _ => Err(style.validation("Failed to satisfy constraint: Member must satisfy enum value set: [ALL, OR]")),
        },
    }
}

/// The condition of a request: an expression, or Expected.
fn condition(
    text: Option<&Text>,
    expected: Option<LegacyParameter>,
    operator: legacy::ConditionalOperator,
) -> Result<Option<Clause<Condition>>, Error> {
    if let Some(clause) = expressions::condition(ExpressionKind::Condition, text)? {
        return Ok(Some(clause));
    }
    let Some(expected) = expected else {
        return Ok(None);
    };
    let legacy = legacy::expected(&expected.map, operator)?;
    Ok(legacy.map(|legacy| Clause::legacy(ExpressionKind::Condition, legacy)))
}

/// The names of AttributesToGet.
pub(super) fn attributes_to_get(
    attributes: Option<List<Text>>,
    style: Style,
) -> Result<Option<Clause<Projection>>, Error> {
    let Some(List(attributes)) = attributes else {
        return Ok(None);
    };
    let names = stdx::preempt::collect(attributes.into_iter().map(|Text(name)| name));
    let clause = expressions::attributes_to_get(&names).map_err(|error| style.error(error))?;
    Ok(Some(clause))
}

pub(super) fn get_item(input: GetItemInput) -> Result<GetItem, Error> {
    check_empty_name(input.table_name.as_ref())?;
    let mut errors = Constraints::default();
    errors.required(input.key.as_ref(), "key");
    names::check_first(input.table_name.as_ref(), "tableName", &mut errors);
    errors.word::<ReturnConsumedCapacity>(input.consumed_capacity.as_ref(), "returnConsumedCapacity");
    errors.not_empty(input.attributes_to_get.as_ref(), "attributesToGet");
    errors.finish()?;
    let style = Style::Plain;
    let substitutions = Parameters::default()
        .legacy("AttributesToGet", input.attributes_to_get.as_ref())
        .expression("ProjectionExpression", input.projection.as_ref())
        .substitutions(input.names, None, &[])
        .map_err(|refusal| refusal.of(style))?;
    check_key_values(input.key.as_ref(), style)?;
    let legacy = attributes_to_get(input.attributes_to_get, style)?;
    let projection = expressions::projection(input.projection.as_ref())?;
    let reader = Reader::new(&substitutions);
    reader.check(|placeholders| expressions::bind(placeholders, projection.as_ref()))?;
    let projection = projection.or(legacy);
    Ok(GetItem {
        table: names::checked(input.table_name),
        key: input.key.unwrap_or_default().item,
        projection,
        substitutions,
        consistent_read: input.consistent_read.unwrap_or_default().0,
        consumed_capacity: options::value(input.consumed_capacity.as_ref(), ReturnConsumedCapacity::None),
    })
}

/// Checks the size of an item that is to be stored.
pub(crate) fn check_item_size(item: &Item) -> Result<(), Error> {
    if size::item_bytes(item) > size::ITEM_BYTES_MAX {
        Err(Error::validation("Item size has exceeded the maximum allowed size"))
    } else {
        Ok(())
    }
}

fn check_honoured(return_values: ReturnValues) -> Result<(), Error> {
    match return_values {
        ReturnValues::None | ReturnValues::AllOld => Ok(()),
        _ => Err(Style::Counted.validation(options::NOT_HONOURED)),
    }
}

pub(super) fn put_item(input: PutItemInput) -> Result<PutItem, Error> {
    check_empty_name(input.table_name.as_ref())?;
    let words = WriteWords {
        return_values: input.return_values.as_ref(),
        consumed_capacity: input.consumed_capacity.as_ref(),
        collection_metrics: input.collection_metrics.as_ref(),
        on_failure: input.on_failure.as_ref(),
    };
    let mut errors = Constraints::default();
    names::check_first(input.table_name.as_ref(), "tableName", &mut errors);
    errors.required(input.item.as_ref(), "item");
    words.check(&mut errors);
    errors.finish()?;
    let options = words.options();
    let style = Style::Counted;
    check_values(input.item.as_ref(), style)?;
    check_legacy_values(input.expected.as_ref(), style)?;
    let substitutions = Parameters::default()
        .legacy("Expected", input.expected.as_ref())
        .legacy("ConditionalOperator", input.conditional_operator.as_ref())
        .expression("ConditionExpression", input.condition.as_ref())
        .substitutions(input.names, input.values, &[])
        .map_err(|refusal| refusal.of(style))?;
    let operator = check_operator(input.conditional_operator.as_ref(), input.expected.as_ref(), style)?;
    let condition =
        condition(input.condition.as_ref(), input.expected, operator).map_err(|error| style.error(error))?;
    check_honoured(options.return_values)?;
    let item = input.item.unwrap_or_default().item;
    check_item_size(&item)?;
    Reader::new(&substitutions)
        .check(|placeholders| expressions::bind(placeholders, condition.as_ref()))
        .map_err(|error| style.error(error))?;
    Ok(PutItem {
        table: names::checked(input.table_name),
        item,
        condition,
        substitutions,
        options,
    })
}

/// The constraints of UpdateItem, which reports those on options only if nothing else is violated, and only the first.
fn check_update_members(input: &UpdateItemInput, words: &WriteWords) -> Result<(), Error> {
    use super::options::{ReturnItemCollectionMetrics, ReturnValuesOnConditionCheckFailure};
    check_empty_name(input.table_name.as_ref())?;
    let mut errors = Constraints::default();
    if input.key.is_none() {
        errors.word::<ReturnConsumedCapacity>(words.consumed_capacity, "returnConsumedCapacity");
        if input.table_name.is_none() {
            errors.null("tableName");
        }
        errors.word::<ReturnValues>(words.return_values, "returnValues");
        errors.word::<ReturnValuesOnConditionCheckFailure>(words.on_failure, "returnValuesOnConditionCheckFailure");
        errors.word::<ReturnItemCollectionMetrics>(words.collection_metrics, "returnItemCollectionMetrics");
        errors.null("key");
        return errors.finish();
    }
    names::check_all(input.table_name.as_ref(), "tableName", &mut errors);
    if input.table_name.is_none() {
        errors.word::<ReturnValues>(words.return_values, "returnValues");
    }
    errors.finish()?;
    if !options::is_word::<ReturnValues>(words.return_values) {
        return Err(Style::Counted.validation(options::RETURN_VALUES));
    }
    let mut errors = Constraints::default();
    errors.word::<ReturnValuesOnConditionCheckFailure>(words.on_failure, "returnValuesOnConditionCheckFailure");
    uncounted(errors)?;
    let mut errors = Constraints::default();
    errors.word::<ReturnItemCollectionMetrics>(words.collection_metrics, "returnItemCollectionMetrics");
    errors.finish()?;
    let mut errors = Constraints::default();
    errors.word::<ReturnConsumedCapacity>(words.consumed_capacity, "returnConsumedCapacity");
    uncounted(errors)
}

/// Ends a check whose error the service reports without a count.
fn uncounted(errors: Constraints) -> Result<(), Error> {
    errors.finish().map_err(|mut error| {
        if let Some(text) = error.message.strip_prefix(DETECTED) {
            error.message = text.to_owned();
        }
        error
    })
}

pub(super) fn update_item(input: UpdateItemInput) -> Result<UpdateItem, Error> {
    let words = WriteWords {
        return_values: input.return_values.as_ref(),
        consumed_capacity: input.consumed_capacity.as_ref(),
        collection_metrics: input.collection_metrics.as_ref(),
        on_failure: input.on_failure.as_ref(),
    };
    check_update_members(&input, &words)?;
    let options = words.options();
    let style = Style::Counted;
    let substitutions = Parameters::default()
        .legacy("AttributeUpdates", input.attribute_updates.as_ref())
        .legacy("Expected", input.expected.as_ref())
        .legacy("ConditionalOperator", input.conditional_operator.as_ref())
        .expression("UpdateExpression", input.update.as_ref())
        .expression("ConditionExpression", input.condition.as_ref())
        .substitutions(input.names, input.values, &[])
        .map_err(|refusal| refusal.of(style))?;
    let operator = check_operator(input.conditional_operator.as_ref(), input.expected.as_ref(), style)?;
    check_key_values(input.key.as_ref(), style)?;
    check_legacy_values(input.attribute_updates.as_ref(), style)?;
    check_legacy_values(input.expected.as_ref(), style)?;
    let counted = |error| style.error(error);
    let update = match (
        expressions::update(input.update.as_ref()).map_err(counted)?,
        input.attribute_updates,
    ) {
        (None, Some(updates)) => {
            let legacy = legacy::attribute_updates(&updates.map)?;
            Some(Clause::legacy(ExpressionKind::Update, legacy))
        }
        (update, _) => update,
    };
    let condition = condition(input.condition.as_ref(), input.expected, operator).map_err(counted)?;
    Reader::new(&substitutions)
        .check(|placeholders| {
            expressions::bind(placeholders, update.as_ref())?;
            expressions::bind(placeholders, condition.as_ref())
        })
        .map_err(counted)?;
    Ok(UpdateItem {
        table: names::checked(input.table_name),
        key: input.key.unwrap_or_default().item,
        update,
        condition,
        substitutions,
        options,
    })
}

pub(super) fn delete_item(input: DeleteItemInput) -> Result<DeleteItem, Error> {
    check_empty_name(input.table_name.as_ref())?;
    let words = WriteWords {
        return_values: input.return_values.as_ref(),
        consumed_capacity: input.consumed_capacity.as_ref(),
        collection_metrics: input.collection_metrics.as_ref(),
        on_failure: input.on_failure.as_ref(),
    };
    let mut errors = Constraints::default();
    names::check_first(input.table_name.as_ref(), "tableName", &mut errors);
    errors.required(input.key.as_ref(), "key");
    words.check(&mut errors);
    let options = words.options();
    if input.key.is_some() && check_honoured(options.return_values).is_err() {
        errors.add(options::NOT_HONOURED);
    }
    errors.finish()?;
    let style = Style::Counted;
    let substitutions = Parameters::default()
        .legacy("Expected", input.expected.as_ref())
        .legacy("ConditionalOperator", input.conditional_operator.as_ref())
        .expression("ConditionExpression", input.condition.as_ref())
        .substitutions(input.names, input.values, &[])
        .map_err(|refusal| refusal.of(style))?;
    let operator = check_operator(input.conditional_operator.as_ref(), input.expected.as_ref(), style)?;
    check_key_values(input.key.as_ref(), style)?;
    check_legacy_values(input.expected.as_ref(), style)?;
    let counted = |error| style.error(error);
    let condition = condition(input.condition.as_ref(), input.expected, operator).map_err(counted)?;
    Reader::new(&substitutions)
        .check(|placeholders| expressions::bind(placeholders, condition.as_ref()))
        .map_err(counted)?;
    Ok(DeleteItem {
        table: names::checked(input.table_name),
        key: input.key.unwrap_or_default().item,
        condition,
        substitutions,
        options,
    })
}
