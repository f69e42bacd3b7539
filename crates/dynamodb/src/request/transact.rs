//! TransactWriteItems and TransactGetItems.

use super::batch::required;
use super::constraints::Constraints;
use super::expressions::{self, Clause, Parameters, Reader, Style, Substitutions};
use super::item::{check_item_size, check_no_key_update, check_values};
use super::json::{Attributes, List, Map, Text, structure};
use super::names;
use super::options::{self, ReturnConsumedCapacity, ReturnItemCollectionMetrics, ReturnValuesOnConditionCheckFailure};
use crate::arn::TableReference;
use crate::error::{CancellationReason, Error};
use crate::expression::{Condition, ExpressionKind, Projection, Update};
use crate::table::{EMPTY_KEY, Key, TableDefinition, key_of_item, key_of_request};
use crate::value::{Item, size};

/// Actions of one transaction.
pub const ACTIONS_MAX: usize = 100;
/// The bytes of all items and keys of one transaction.
pub const TRANSACTION_BYTES_MAX: usize = 4 << 20;
/// The characters of ClientRequestToken.
const TOKEN_MAX: usize = 36;

structure! {
    /// Any of Put, Update, Delete and ConditionCheck.
    pub(crate) struct Action {
        table_name: Text = "TableName",
        item: Attributes = "Item",
        key: Attributes = "Key",
        update: Text = "UpdateExpression",
        condition: Text = "ConditionExpression",
        names: Map<Text> = "ExpressionAttributeNames",
        values: Attributes = "ExpressionAttributeValues",
        on_failure: Text = "ReturnValuesOnConditionCheckFailure",
    }
}

structure! {
    /// One action: one of its members.
    pub(crate) struct TransactWriteItem {
        check: Action = "ConditionCheck",
        put: Action = "Put",
        delete: Action = "Delete",
        update: Action = "Update",
    }
}

structure! {
    /// The body of TransactWriteItems.
    pub(crate) struct TransactWriteItemsInput {
        items: List<TransactWriteItem> = "TransactItems",
        token: Text = "ClientRequestToken",
        consumed_capacity: Text = "ReturnConsumedCapacity",
        collection_metrics: Text = "ReturnItemCollectionMetrics",
    }
}

structure! {
    /// One read.
    pub(crate) struct Get {
        table_name: Text = "TableName",
        key: Attributes = "Key",
        projection: Text = "ProjectionExpression",
        names: Map<Text> = "ExpressionAttributeNames",
    }
}

structure! {
    /// One read, as a member.
    pub(crate) struct TransactGetItem {
        get: Get = "Get",
    }
}

structure! {
    /// The body of TransactGetItems.
    pub(crate) struct TransactGetItemsInput {
        items: List<TransactGetItem> = "TransactItems",
        consumed_capacity: Text = "ReturnConsumedCapacity",
    }
}

/// Writes several items, all or none.
#[derive(Clone, PartialEq, Debug)]
pub struct TransactWriteItems {
    /// The actions.
    pub actions: Vec<TransactWrite>,
    /// A request that repeats the token within ten minutes is not executed again.
    pub token: Option<String>,
    /// What the answer reports of capacity.
    pub consumed_capacity: ReturnConsumedCapacity,
    /// What the answer reports of item collections.
    pub collection_metrics: ReturnItemCollectionMetrics,
}

/// One action of a transaction.
#[derive(Clone, PartialEq, Debug)]
pub struct TransactWrite {
    /// The table.
    pub table: TableReference,
    /// What is done.
    pub operation: TransactOperation,
    /// What must hold of the item.
    pub condition: Option<Clause<Condition>>,
    /// Placeholders of its expressions.
    pub substitutions: Substitutions,
    /// Whether the reason of a failed condition has the item.
    pub on_failure: ReturnValuesOnConditionCheckFailure,
}

/// What an action of a transaction does.
#[derive(Clone, PartialEq, Debug)]
pub enum TransactOperation {
    /// Only the condition is checked.
    Check {
        /// The key.
        key: Item,
    },
    /// An item is stored.
    Put {
        /// The item.
        item: Item,
    },
    /// An item is deleted.
    Delete {
        /// The key.
        key: Item,
    },
    /// An item is changed.
    Update {
        /// The key.
        key: Item,
        /// The changes.
        update: Option<Clause<Update>>,
    },
}

/// Reads several items at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct TransactGetItems {
    /// The reads.
    pub reads: Vec<TransactGet>,
    /// What the answer reports of capacity.
    pub consumed_capacity: ReturnConsumedCapacity,
}

/// One read of a transaction.
#[derive(Clone, PartialEq, Debug)]
pub struct TransactGet {
    /// The table.
    pub table: TableReference,
    /// The key.
    pub key: Item,
    /// What the answer has of the item.
    pub projection: Option<Clause<Projection>>,
    /// Placeholders of the projection.
    pub substitutions: Substitutions,
}

impl TransactWrite {
    /// The key of the item. A transaction fails with the error as its reason, of the code `ValidationError`.
    ///
    /// # Errors
    /// A ValidationException if the key does not match the table's schema.
    pub fn key(&self, table: &TableDefinition) -> Result<Key, Error> {
        match &self.operation {
            TransactOperation::Put { item } => key_of_item(table, item),
            TransactOperation::Check { key } | TransactOperation::Delete { key } => key_of_request(table, key),
            TransactOperation::Update { key, update } => {
                let key = key_of_request(table, key)?;
                check_no_key_update(table, update.as_ref(), &self.substitutions)?;
                Ok(key)
            }
        }
    }
}

impl TransactGet {
    /// The key of the item, as of [`TransactWrite::key`].
    ///
    /// # Errors
    /// A ValidationException if the key does not match the table's schema.
    pub fn key(&self, table: &TableDefinition) -> Result<Key, Error> {
        key_of_request(table, &self.key)
    }
}

/// The keys of all actions, or the error of the transaction: canceled, with the first error as the only reason.
/// `results` are those of [`TransactWrite::key`] or [`TransactGet::key`], in the order of the actions.
///
/// # Errors
/// A TransactionCanceledException. A key of a write that is empty is a ValidationException.
pub fn all_keys(results: Vec<Result<Key, Error>>, is_write: bool) -> Result<Vec<Key>, Error> {
    let Some((first, error)) = results
        .iter()
        .enumerate()
        .find_map(|(at, key)| Some((at, key.as_ref().err()?)))
    else {
        return Ok(results.into_iter().flatten().collect());
    };
    if is_write && error.message.starts_with(EMPTY_KEY) {
        return Err(error.clone());
    }
    let mut reasons = vec![CancellationReason::default(); results.len()];
    reasons[first] = CancellationReason {
        code: "ValidationError",
        message: Some(error.message.clone()),
        item: None,
    };
    Err(Error::transaction_canceled(reasons))
}

/// Fails if two actions are on one item. `items` are the tables and keys of the actions.
///
/// # Errors
/// A ValidationException.
pub fn check_distinct<'k>(items: impl Iterator<Item = (&'k TableReference, &'k Key)>) -> Result<(), Error> {
    let mut seen = std::collections::BTreeSet::new();
    for (table, key) in items {
        if !seen.insert((table.name(), super::batch::encoded(key))) {
            return Err(Error::validation(
                "Transaction request cannot include multiple operations on one item",
            ));
        }
        stdx::preempt::point();
    }
    Ok(())
}

/// Checks how many actions there are.
fn check_count(count: usize, errors: &mut Constraints) {
    if count == 0 {
        errors.value(
            "[]",
            "transactItems",
            "Member must have length greater than or equal to 1",
        );
    } else if count > ACTIONS_MAX {
        // The service repeats the whole list.
        errors.value(
            "[...]",
            "transactItems",
            "Member must have length less than or equal to 100",
        );
    }
}

impl TransactWriteItem {
    /// The actions with their names in texts.
    fn actions(&self) -> impl Iterator<Item = (&'static str, &Action)> {
        let all = [
            ("put", &self.put),
            ("update", &self.update),
            ("delete", &self.delete),
            ("conditionCheck", &self.check),
        ];
        all.into_iter()
            .filter_map(|(name, action)| Some((name, action.as_ref()?)))
    }
}

/// Checks the constraints on members of TransactWriteItems.
fn check_write_members(input: &TransactWriteItemsInput, items: &[TransactWriteItem]) -> Result<(), Error> {
    let mut errors = Constraints::default();
    check_count(items.len(), &mut errors);
    errors.finish()?;
    let mut errors = Constraints::default();
    for (number, item) in items.iter().enumerate() {
        for (name, action) in item.actions() {
            let at = format!("transactItems.{}.member.{name}", number + 1);
            check_required(name, action, &at, &mut errors);
            errors.word::<ReturnValuesOnConditionCheckFailure>(
                action.on_failure.as_ref(),
                format_args!("{at}.returnValuesOnConditionCheckFailure"),
            );
        }
    }
    if let Some(Text(token)) = &input.token {
        errors.length(token, "clientRequestToken", 1, TOKEN_MAX);
    }
    errors.word::<ReturnConsumedCapacity>(input.consumed_capacity.as_ref(), "returnConsumedCapacity");
    errors.word::<ReturnItemCollectionMetrics>(input.collection_metrics.as_ref(), "returnItemCollectionMetrics");
    errors.finish()?;
    for item in items {
        match item.actions().count() {
            1 => {}
            0 => {
                return Err(Error::validation(
                    "Invalid Request: TransactWriteRequest should contain Delete or Put or Update request",
                ));
            }
            _ => {
                return Err(Error::validation(
                    "TransactItems can only contain one of Check, Put, Update or Delete",
                ));
            }
        }
    }
    let mut errors = Constraints::default();
    for (number, item) in items.iter().enumerate() {
        for (name, action) in item.actions() {
            let at = format!("transactItems.{}.member.{name}.tableName", number + 1);
            names::check_member(action.table_name.as_ref(), &at, &mut errors);
        }
    }
    errors.finish()
}

/// Checks the members that an action requires.
fn check_required(name: &str, action: &Action, at: &str, errors: &mut Constraints) {
    match name {
        "put" => errors.required(action.item.as_ref(), format_args!("{at}.item")),
        _ => errors.required(action.key.as_ref(), format_args!("{at}.key")),
    }
    errors.required(action.table_name.as_ref(), format_args!("{at}.tableName"));
    match name {
        "update" => errors.required(action.update.as_ref(), format_args!("{at}.updateExpression")),
        "conditionCheck" => errors.required(action.condition.as_ref(), format_args!("{at}.conditionExpression")),
        _ => {}
    }
}

pub(super) fn transact_write_items(mut input: TransactWriteItemsInput) -> Result<TransactWriteItems, Error> {
    let Some(List(items)) = input.items.take() else {
        return Err(required("transactItems"));
    };
    check_write_members(&input, &items)?;
    let mut actions = Vec::with_capacity(items.len());
    let mut bytes = 0;
    for item in items {
        let action = transact_write(item)?;
        bytes += match &action.operation {
            TransactOperation::Put { item } => size::item_bytes(item),
            TransactOperation::Check { key }
            | TransactOperation::Delete { key }
            | TransactOperation::Update { key, .. } => size::item_bytes(key),
        };
        actions.push(action);
    }
    if bytes > TRANSACTION_BYTES_MAX {
        return Err(Error::validation(
            "Collection size of items exceeded, which can also be caused by the aggregate size of the items in the \
             transaction exceeding the 4MB limit",
        ));
    }
    Ok(TransactWriteItems {
        actions,
        token: input.token.map(|Text(token)| token),
        consumed_capacity: options::value(input.consumed_capacity.as_ref(), ReturnConsumedCapacity::None),
        collection_metrics: options::value(input.collection_metrics.as_ref(), ReturnItemCollectionMetrics::None),
    })
}

/// What an action is.
enum Kind {
    Check,
    Put,
    Delete,
    Update,
}

fn transact_write(item: TransactWriteItem) -> Result<TransactWrite, Error> {
    let (kind, action) = match (item.put, item.update, item.delete, item.check) {
        (Some(put), ..) => (Kind::Put, put),
        (_, Some(update), ..) => (Kind::Update, update),
        (_, _, Some(delete), _) => (Kind::Delete, delete),
        (_, _, _, check) => (Kind::Check, check.unwrap_or_default()),
    };
    let style = Style::Plain;
    check_values(action.item.as_ref(), style)?;
    check_values(action.key.as_ref(), style)?;
    let substitutions = Parameters::default()
        .expression(
            "UpdateExpression",
            action.update.as_ref().filter(|_| matches!(kind, Kind::Update)),
        )
        .expression("ConditionExpression", action.condition.as_ref())
        .substitutions(action.names, action.values, &[])
        .map_err(|refusal| refusal.of(style))?;
    let key = |key: Option<Attributes>| key.unwrap_or_default().item;
    let operation = match kind {
        Kind::Put => {
            let item = key(action.item);
            check_item_size(&item)?;
            TransactOperation::Put { item }
        }
        Kind::Check => TransactOperation::Check { key: key(action.key) },
        Kind::Delete => TransactOperation::Delete { key: key(action.key) },
        Kind::Update => TransactOperation::Update {
            key: key(action.key),
            update: expressions::update(action.update.as_ref())?,
        },
    };
    let condition = expressions::condition(ExpressionKind::Condition, action.condition.as_ref())?;
    let update = match &operation {
        TransactOperation::Update { update, .. } => update.as_ref(),
        _ => None,
    };
    Reader::new(&substitutions).check(|placeholders| {
        expressions::bind(placeholders, update)?;
        expressions::bind(placeholders, condition.as_ref())
    })?;
    Ok(TransactWrite {
        table: names::checked(action.table_name),
        operation,
        condition,
        substitutions,
        on_failure: options::value(action.on_failure.as_ref(), ReturnValuesOnConditionCheckFailure::None),
    })
}

pub(super) fn transact_get_items(input: TransactGetItemsInput) -> Result<TransactGetItems, Error> {
    let Some(List(items)) = input.items else {
        return Err(required("transactItems"));
    };
    let mut errors = Constraints::default();
    check_count(items.len(), &mut errors);
    errors.finish()?;
    let mut errors = Constraints::default();
    for (number, item) in items.iter().enumerate() {
        let at = format!("transactItems.{}.member.get", number + 1);
        match &item.get {
            None => errors.null(at),
            Some(get) => {
                errors.required(get.key.as_ref(), format_args!("{at}.key"));
                errors.required(get.table_name.as_ref(), format_args!("{at}.tableName"));
            }
        }
    }
    errors.word::<ReturnConsumedCapacity>(input.consumed_capacity.as_ref(), "returnConsumedCapacity");
    errors.finish()?;
    let mut errors = Constraints::default();
    for (number, item) in items.iter().enumerate() {
        let name = item.get.as_ref().and_then(|get| get.table_name.as_ref());
        let at = format!("transactItems.{}.member.get.tableName", number + 1);
        names::check_member(name, &at, &mut errors);
    }
    errors.finish()?;
    let mut reads = Vec::with_capacity(items.len());
    for get in items.into_iter().filter_map(|item| item.get) {
        reads.push(transact_get(get)?);
    }
    Ok(TransactGetItems {
        reads,
        consumed_capacity: options::value(input.consumed_capacity.as_ref(), ReturnConsumedCapacity::None),
    })
}

fn transact_get(get: Get) -> Result<TransactGet, Error> {
    let style = Style::Plain;
    check_values(get.key.as_ref(), style)?;
    let substitutions = Parameters::default()
        .expression("ProjectionExpression", get.projection.as_ref())
        .substitutions(get.names, None, &[])
        .map_err(|refusal| refusal.of(style))?;
    let projection = expressions::projection(get.projection.as_ref())?;
    Reader::new(&substitutions).check(|placeholders| expressions::bind(placeholders, projection.as_ref()))?;
    Ok(TransactGet {
        table: names::checked(get.table_name),
        key: get.key.unwrap_or_default().item,
        projection,
        substitutions,
    })
}
