//! What the key condition of a Query selects: the values of the partition key and a range of sort keys.

use std::cmp::Ordering;

use super::expressions::{Clause, Substitutions};
use crate::error::Error;
use crate::expression::{Bindings, Comparison, Condition, Function, Operand, ValueId};
use crate::path::Path;
use crate::table::{KeySchema, KeyType, TableDefinition, has_type};
use crate::value::{AttributeValue, Item, copy_value};

/// The items that a Query reads, before its filter.
#[derive(Clone, PartialEq, Debug)]
pub struct KeyRange {
    /// The values of the partition key: one for a table, up to four for a global secondary index.
    pub partition: Vec<AttributeValue>,
    /// Values that the first attributes of the sort key must have; only in indexes whose sort key has several.
    pub sort_prefix: Vec<AttributeValue>,
    /// Which values the next attribute of the sort key may have.
    pub sort: SortRange,
}

/// A range of values of a sort key, in the order of its type.
#[derive(Clone, PartialEq, Debug)]
pub enum SortRange {
    /// All of them.
    All,
    /// One.
    Equal(AttributeValue),
    /// Those below.
    Less(AttributeValue),
    /// Those below and the value.
    LessOrEqual(AttributeValue),
    /// Those above.
    Greater(AttributeValue),
    /// Those above and the value.
    GreaterOrEqual(AttributeValue),
    /// Those from the first to the second, with both.
    Between(AttributeValue, AttributeValue),
    /// Strings or binaries that begin with the value.
    BeginsWith(AttributeValue),
}

impl SortRange {
    /// Whether the range has a value.
    pub fn contains(&self, value: &AttributeValue) -> bool {
        let is = |other: &AttributeValue, orders: &[Ordering]| {
            value.compare(other).is_some_and(|ordering| orders.contains(&ordering))
        };
        match self {
            Self::All => true,
            Self::Equal(bound) => is(bound, &[Ordering::Equal]),
            Self::Less(bound) => is(bound, &[Ordering::Less]),
            Self::LessOrEqual(bound) => is(bound, &[Ordering::Less, Ordering::Equal]),
            Self::Greater(bound) => is(bound, &[Ordering::Greater]),
            Self::GreaterOrEqual(bound) => is(bound, &[Ordering::Greater, Ordering::Equal]),
            Self::Between(low, high) => {
                is(low, &[Ordering::Greater, Ordering::Equal]) && is(high, &[Ordering::Less, Ordering::Equal])
            }
            Self::BeginsWith(prefix) => match (value, prefix) {
                (AttributeValue::S(text), AttributeValue::S(prefix)) => text.starts_with(prefix.as_str()),
                (AttributeValue::B(bytes), AttributeValue::B(prefix)) => bytes.starts_with(prefix),
                _ => false,
            },
        }
    }

    /// The values that the range is made of.
    fn bounds(&self) -> Vec<&AttributeValue> {
        match self {
            Self::All => Vec::new(),
            Self::Equal(bound)
            | Self::Less(bound)
            | Self::LessOrEqual(bound)
            | Self::Greater(bound)
            | Self::GreaterOrEqual(bound)
            | Self::BeginsWith(bound) => vec![bound],
            Self::Between(low, high) => vec![low, high],
        }
    }
}

/// The conditions of a tree, which AND joins.
const CONDITIONS_MAX: usize = 300;

/// One condition of a key condition: an attribute, and what it is compared with.
struct KeyCondition<'r> {
    name: &'r str,
    range: SortRange,
}

fn unsupported() -> Error {
    Error::validation("Query key condition not supported")
}

fn invalid(text: &str) -> Error {
    Error::validation(["Invalid KeyConditionExpression: ", text].concat())
}

/// Collects the conditions that AND joins.
fn flatten<'t>(tree: &'t Condition, all: &mut Vec<&'t Condition>) -> Result<(), Error> {
    match tree {
        Condition::And(parts) => parts.iter().try_for_each(|part| match part {
            // The parser makes one list of a chain; parentheses can make a list within.
            Condition::And(inner) => inner.iter().try_for_each(|part| add(part, all)),
            part => add(part, all),
        }),
        part => add(part, all),
    }
}

fn add<'t>(part: &'t Condition, all: &mut Vec<&'t Condition>) -> Result<(), Error> {
    if all.len() < CONDITIONS_MAX {
        all.push(part);
        Ok(())
    } else {
        Err(unsupported())
    }
}

fn operator_error(name: &str) -> Error {
    invalid(&format!("Invalid operator used in KeyConditionExpression: {name}"))
}

fn attribute<'r>(path: &Path, bindings: &Bindings<'r>) -> Result<&'r str, Error> {
    let name = bindings.name(path.attribute);
    if path.is_top_level() {
        Ok(name)
    } else {
        Err(invalid(
            "KeyConditionExpressions cannot have conditions on nested attributes",
        ))
    }
}

/// A comparison with its operands exchanged.
fn mirrored(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Less => Comparison::Greater,
        Comparison::LessOrEqual => Comparison::GreaterOrEqual,
        Comparison::Greater => Comparison::Less,
        Comparison::GreaterOrEqual => Comparison::LessOrEqual,
        same => same,
    }
}

/// The attribute and the value of a condition.
fn operands<'r>(left: &Operand, right: &Operand, bindings: &Bindings<'r>) -> Result<(&'r str, ValueId), Error> {
    match (left, right) {
        (Operand::Path(path), Operand::Value(value)) => Ok((attribute(path, bindings)?, *value)),
        (Operand::Size(_), _) | (_, Operand::Size(_)) => Err(operator_error("size")),
        (Operand::Path(_), Operand::Path(_)) => Err(invalid(
            "Invalid condition in KeyConditionExpression: Multiple attribute names used in one condition",
        )),
        _ => Err(invalid(
            "Invalid condition in KeyConditionExpression: No key attribute specified",
        )),
    }
}

/// Reads one condition.
fn key_condition<'r>(condition: &Condition, bindings: &Bindings<'r>) -> Result<KeyCondition<'r>, Error> {
    let value = |id: ValueId| copy_value(bindings.value(id));
    match condition {
        Condition::Compare {
            comparison,
            left,
            right,
        } => {
            // The value may be on the left.
            let (left, right, comparison) = match (left, right) {
                (Operand::Value(_), Operand::Path(_)) => (right, left, mirrored(*comparison)),
                _ => (left, right, *comparison),
            };
            let (name, id) = operands(left, right, bindings)?;
            let range = match comparison {
                Comparison::Equal => SortRange::Equal(value(id)),
                Comparison::Less => SortRange::Less(value(id)),
                Comparison::LessOrEqual => SortRange::LessOrEqual(value(id)),
                Comparison::Greater => SortRange::Greater(value(id)),
                Comparison::GreaterOrEqual => SortRange::GreaterOrEqual(value(id)),
                Comparison::NotEqual => return Err(operator_error("<>")),
            };
            Ok(KeyCondition { name, range })
        }
        Condition::Between { operand, low, high } => {
            let (name, low) = operands(operand, low, bindings)?;
            let (_, high) = operands(operand, high, bindings)?;
            let range = SortRange::Between(value(low), value(high));
            Ok(KeyCondition { name, range })
        }
        Condition::Call(Function::BeginsWith, parts) => {
            let [operand, prefix] = parts.as_slice() else {
                return Err(unsupported());
            };
            let (name, prefix) = operands(operand, prefix, bindings)?;
            let range = SortRange::BeginsWith(value(prefix));
            Ok(KeyCondition { name, range })
        }
        Condition::Call(function, _) => Err(operator_error(function.name())),
        Condition::Or(_) => Err(operator_error("OR")),
        Condition::Not(_) => Err(operator_error("NOT")),
        Condition::In { .. } => Err(operator_error("IN")),
        Condition::And(_) => Err(unsupported()),
    }
}

/// Reads all conditions of a clause.
fn conditions<'r>(clause: &Clause<Condition>, bindings: &Bindings<'r>) -> Result<Vec<KeyCondition<'r>>, Error> {
    let mut parts = Vec::new();
    flatten(&clause.expression.tree, &mut parts)?;
    let mut conditions: Vec<KeyCondition> = Vec::with_capacity(parts.len());
    for part in parts {
        let condition = key_condition(part, bindings)?;
        if conditions.iter().any(|earlier| earlier.name == condition.name) {
            return Err(invalid(
                "KeyConditionExpressions must only contain one condition per key",
            ));
        }
        conditions.push(condition);
    }
    Ok(conditions)
}

/// Checks the form of a key condition, as far as it does not need the table.
pub(super) fn check(clause: &Clause<Condition>, substitutions: &Substitutions) -> Result<(), Error> {
    let bindings = clause.bind(substitutions)?;
    conditions(clause, &bindings).map(drop)
}

/// Takes the values of the partition key out of the conditions.
fn partition(schema: &KeySchema, conditions: &[KeyCondition]) -> Result<Vec<AttributeValue>, Error> {
    let find = |name: &str| conditions.iter().find(|condition| condition.name == name);
    let has_several = schema.all(KeyType::Hash).count() > 1 || schema.all(KeyType::Range).count() > 1;
    let mut values = Vec::new();
    let mut missing = Vec::new();
    for name in schema.all(KeyType::Hash) {
        match find(name).map(|condition| &condition.range) {
            Some(SortRange::Equal(value)) => values.push(copy_value(value)),
            _ if has_several => missing.push(name),
            Some(_) => return Err(unsupported()),
            None => {
                return Err(Error::validation(format!(
                    "Query condition missed key schema element: {name}"
                )));
            }
        }
    }
    if missing.is_empty() {
        Ok(values)
    } else {
        Err(Error::validation(format!(
            "HASH key attributes {} must have equality conditions specified in the query",
            missing.join(", ")
        )))
    }
}

/// Takes the range of sort keys out of the conditions.
fn sort(schema: &KeySchema, conditions: &[KeyCondition]) -> Result<(Vec<AttributeValue>, SortRange), Error> {
    let find = |name: &str| conditions.iter().find(|condition| condition.name == name);
    let names: Vec<&str> = schema.all(KeyType::Range).collect();
    let Some(last) = names.iter().rposition(|name| find(name).is_some()) else {
        return Ok((Vec::new(), SortRange::All));
    };
    let mut prefix = Vec::new();
    let mut missing = Vec::new();
    for name in &names[..last] {
        match find(name).map(|condition| &condition.range) {
            Some(SortRange::Equal(value)) => prefix.push(copy_value(value)),
            _ => missing.push(*name),
        }
    }
    if !missing.is_empty() {
        return Err(Error::validation(format!(
            "RANGE key attributes {} must have equality conditions specified in the query because a condition is \
             present on key attribute {}",
            missing.join(", "),
            names[last]
        )));
    }
    let range = find(names[last]).map_or(SortRange::All, |condition| condition.range.clone());
    Ok((prefix, range))
}

/// Resolves a key condition against the key of a table or index.
pub(super) fn resolve(
    clause: &Clause<Condition>,
    substitutions: &Substitutions,
    table: &TableDefinition,
    schema: &KeySchema,
) -> Result<KeyRange, Error> {
    let bindings = clause.bind(substitutions)?;
    let conditions = conditions(clause, &bindings)?;
    if conditions.len() > schema.0.len() {
        return Err(Error::validation(format!(
            "The number of query conditions ({}) exceeds the number of key attributes defined in the schema ({})",
            conditions.len(),
            schema.0.len()
        )));
    }
    let partition = partition(schema, &conditions)?;
    if conditions.iter().any(|condition| !schema.has(condition.name)) {
        let is_free = |name: &&str| !conditions.iter().any(|condition| condition.name == *name);
        let free = schema.all(KeyType::Range).find(is_free).unwrap_or_default();
        return Err(Error::validation(format!(
            "Query condition missed key schema element: {free}"
        )));
    }
    let (sort_prefix, sort) = sort(schema, &conditions)?;
    for condition in &conditions {
        let scalar_type = table.type_of(condition.name);
        let mut bounds = condition.range.bounds().into_iter();
        if !bounds.all(|bound| has_type(bound, scalar_type)) {
            return Err(Error::validation(
                "One or more parameter values were invalid: Condition parameter type does not match schema type",
            ));
        }
    }
    for condition in &conditions {
        check_empty(condition)?;
    }
    Ok(KeyRange {
        partition,
        sort_prefix,
        sort,
    })
}

/// No key is empty, so no condition may ask for one.
fn check_empty(condition: &KeyCondition) -> Result<(), Error> {
    for bound in condition.range.bounds() {
        if let Some(empty) = crate::table::emptiness(bound) {
            return Err(crate::table::empty_key(empty, condition.name));
        }
    }
    Ok(())
}

/// Checks that the key after which a Query continues is in its range.
pub(super) fn check_start(range: &KeyRange, start: &Item, schema: &KeySchema, is_table: bool) -> Result<(), Error> {
    let refuse = |text: &str| Err(Error::validation(text));
    const ONE_ROW: &str = "The query can return at most one row and cannot be restarted";
    let holds = |name: &str, value: &AttributeValue| start.get(name).is_some_and(|there| there.equals(value));
    let partition: Vec<&str> = schema.all(KeyType::Hash).collect();
    let Some((last, leading)) = partition.split_last() else {
        return Ok(());
    };
    if !leading
        .iter()
        .zip(&range.partition)
        .all(|(name, value)| holds(name, value))
    {
        return refuse(ONE_ROW);
    }
    let sort: Vec<&str> = schema.all(KeyType::Range).collect();
    let in_prefix = sort
        .iter()
        .zip(&range.sort_prefix)
        .all(|(name, value)| holds(name, value));
    let next = sort.get(range.sort_prefix.len()).and_then(|name| start.get(*name));
    if !in_prefix || next.is_some_and(|value| !range.sort.contains(value)) {
        return refuse("The provided starting key does not match the range key predicate");
    }
    let in_partition = range.partition.last().is_some_and(|value| holds(last, value));
    match in_partition {
        true => Ok(()),
        false if range.sort != SortRange::All || !range.sort_prefix.is_empty() => refuse(ONE_ROW),
        false if is_table && sort.is_empty() => refuse("The provided exclusive start key is invalid"),
        false => refuse("The provided starting key is outside query boundaries based on provided conditions"),
    }
}
