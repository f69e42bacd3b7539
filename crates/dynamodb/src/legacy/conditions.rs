//! Conditions of Expected, QueryFilter, ScanFilter and KeyConditions.

use stdx::preempt;

use super::{Builder, ConditionalOperator, Legacy, LegacyEntry, LegacyMap, invalid};
use crate::Error;
use crate::expression::{Comparison, Condition, Function, Operand};
use crate::value::{AttributeValue, ValueType};

/// A comparison operator of legacy conditions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operator {
    Compare(Comparison),
    Between,
    In,
    BeginsWith,
    Contains,
    NotContains,
    Null,
    NotNull,
}

impl Operator {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "EQ" => Self::Compare(Comparison::Equal),
            "NE" => Self::Compare(Comparison::NotEqual),
            "LT" => Self::Compare(Comparison::Less),
            "LE" => Self::Compare(Comparison::LessOrEqual),
            "GT" => Self::Compare(Comparison::Greater),
            "GE" => Self::Compare(Comparison::GreaterOrEqual),
            "BETWEEN" => Self::Between,
            "IN" => Self::In,
            "BEGINS_WITH" => Self::BeginsWith,
            "CONTAINS" => Self::Contains,
            "NOT_CONTAINS" => Self::NotContains,
            "NULL" => Self::Null,
            "NOT_NULL" => Self::NotNull,
            _ => return None,
        })
    }

    /// Whether so many arguments are right.
    fn takes(self, count: usize) -> bool {
        match self {
            Self::Null | Self::NotNull => count == 0,
            Self::Between => count == 2,
            Self::In => count > 0,
            _ => count == 1,
        }
    }

    /// Whether an argument may be of the type.
    fn takes_type(self, value_type: ValueType) -> bool {
        let is_scalar = matches!(value_type, ValueType::S | ValueType::N | ValueType::B);
        match self {
            Self::Compare(Comparison::Equal | Comparison::NotEqual) | Self::Null | Self::NotNull => true,
            Self::Compare(_) | Self::Between | Self::In => is_scalar,
            Self::BeginsWith => matches!(value_type, ValueType::S | ValueType::B),
            Self::Contains | Self::NotContains => is_scalar || matches!(value_type, ValueType::Bool | ValueType::Null),
        }
    }
}

/// The condition that Expected says; `None` if the map is empty.
///
/// # Errors
/// A ValidationException if members of an attribute do not fit together, or as of [`filter`].
pub fn expected(map: &LegacyMap, join: ConditionalOperator) -> Result<Option<Legacy<Condition>>, Error> {
    let mut builder = Builder::new(map)?;
    let mut conditions = Vec::new();
    for (name, entry) in map {
        preempt::point();
        let condition = expected_entry(&mut builder, name, entry)?;
        preempt::push(&mut conditions, condition);
    }
    Ok(joined(conditions, join).map(|tree| builder.finish(tree)))
}

/// The condition that QueryFilter or ScanFilter says; `None` if the map is empty. `parameter` is the
/// name in texts of errors, such as `scanFilter`.
///
/// # Errors
/// A ValidationException if an operator is unknown, or has too few or too many values, or of a type that it does not
/// take.
pub fn filter(parameter: &str, map: &LegacyMap, join: ConditionalOperator) -> Result<Option<Legacy<Condition>>, Error> {
    let mut builder = Builder::new(map)?;
    let mut conditions = Vec::new();
    for (name, entry) in map {
        preempt::point();
        let operator = entry.comparison_operator.as_deref().ok_or_else(|| {
            Error::validation(format!(
                "1 validation error detected: Value null at '{parameter}.{name}.member.comparisonOperator' failed to \
                 satisfy constraint: Member must not be null"
            ))
        })?;
        let values = entry.attribute_value_list.as_deref().unwrap_or_default();
        let condition = condition(&mut builder, parameter, name, operator, values)?;
        preempt::push(&mut conditions, condition);
    }
    Ok(joined(conditions, join).map(|tree| builder.finish(tree)))
}

/// The condition that KeyConditions says, as of a KeyConditionExpression.
///
/// # Errors
/// As of [`filter`], and for operators that keys do not have.
pub fn key_conditions(map: &LegacyMap) -> Result<Legacy<Condition>, Error> {
    let conditions = filter("keyConditions", map, ConditionalOperator::And)?;
    let conditions = conditions.ok_or_else(|| {
        let text = "Either the KeyConditions or KeyConditionExpression parameter must be specified in the request.";
        Error::validation(text)
    })?;
    for entry in map.values() {
        preempt::point();
        match entry.comparison_operator.as_deref().and_then(Operator::from_name) {
            Some(Operator::Compare(Comparison::NotEqual)) | None => return Err(not_indexable()),
            Some(Operator::Compare(_) | Operator::Between | Operator::BeginsWith) => {}
            Some(_) => return Err(not_indexable()),
        }
    }
    Ok(conditions)
}

fn not_indexable() -> Error {
    Error::validation("Attempted conditional constraint is not an indexable operation")
}

fn joined(mut conditions: Vec<Condition>, join: ConditionalOperator) -> Option<Condition> {
    let last = conditions.pop()?;
    if conditions.is_empty() {
        return Some(last);
    }
    conditions.push(last);
    Some(match join {
        ConditionalOperator::And => Condition::And(conditions),
        ConditionalOperator::Or => Condition::Or(conditions),
    })
}

fn expected_entry(builder: &mut Builder, name: &str, entry: &LegacyEntry) -> Result<Condition, Error> {
    let refuse = |text: &str| Err(invalid(&format!("{text} for Attribute: {name}")));
    let list = entry.attribute_value_list.as_deref();
    if entry.value.is_some() && list.is_some() {
        return refuse("Value and AttributeValueList cannot be used together");
    }
    if let Some(operator) = &entry.comparison_operator {
        if entry.exists.is_some() {
            return refuse("Exists and ComparisonOperator cannot be used together");
        }
        let needs_no_value = matches!(operator.as_str(), "NULL" | "NOT_NULL");
        let is_listed = list.is_some_and(|list| !list.is_empty() || !matches!(operator.as_str(), "IN" | "BETWEEN"));
        if entry.value.is_none() && !is_listed && !needs_no_value {
            let text = "Value or AttributeValueList must be used with ComparisonOperator: ";
            return refuse(&[text, operator].concat());
        }
        let values = entry
            .value
            .as_ref()
            .map(std::slice::from_ref)
            .or(list)
            .unwrap_or_default();
        return condition(builder, "expected", name, operator, values);
    }
    if list.is_some() {
        return refuse("AttributeValueList can only be used with a ComparisonOperator");
    }
    match (&entry.value, entry.exists) {
        (None, None) => refuse("Value must be provided when Exists is null"),
        (None, Some(true)) => refuse("Value must be provided when Exists is true"),
        (Some(_), Some(false)) => refuse("Value cannot be used when Exists is false"),
        (None, Some(false)) => {
            let path = Operand::Path(builder.path(name));
            Ok(Condition::Call(Function::AttributeNotExists, vec![path]))
        }
        (Some(value), _) => Ok(Condition::Compare {
            comparison: Comparison::Equal,
            left: Operand::Path(builder.path(name)),
            right: Operand::Value(builder.value(value)),
        }),
    }
}

fn condition(
    builder: &mut Builder,
    parameter: &str,
    name: &str,
    operator_name: &str,
    values: &[AttributeValue],
) -> Result<Condition, Error> {
    let operator = Operator::from_name(operator_name).ok_or_else(|| {
        Error::validation(format!(
            "1 validation error detected: Value '{operator_name}' at '{parameter}.{name}.member.comparisonOperator' \
             failed to satisfy constraint: Member must satisfy enum value set: [IN, NULL, BETWEEN, LT, NOT_CONTAINS, \
             EQ, GT, NOT_NULL, NE, LE, BEGINS_WITH, GE, CONTAINS]"
        ))
    })?;
    check_values(operator, operator_name, values)?;
    let path = Operand::Path(builder.path(name));
    let mut values = values.iter().map(|value| Operand::Value(builder.value(value)));
    let mut next = || values.next().ok_or_else(|| wrong_count(operator_name));
    Ok(match operator {
        Operator::Compare(comparison) => Condition::Compare {
            comparison,
            left: path,
            right: next()?,
        },
        Operator::Between => Condition::Between {
            operand: path,
            low: next()?,
            high: next()?,
        },
        Operator::In => Condition::In {
            operand: path,
            list: preempt::collect(values),
        },
        Operator::BeginsWith => Condition::Call(Function::BeginsWith, vec![path, next()?]),
        Operator::Contains => Condition::Call(Function::Contains, vec![path, next()?]),
        Operator::NotContains => {
            let contains = Condition::Call(Function::Contains, vec![path, next()?]);
            Condition::Not(Box::new(contains))
        }
        Operator::Null => Condition::Call(Function::AttributeNotExists, vec![path]),
        Operator::NotNull => Condition::Call(Function::AttributeExists, vec![path]),
    })
}

fn wrong_count(operator: &str) -> Error {
    invalid(&format!(
        "Invalid number of argument(s) for the {operator} ComparisonOperator"
    ))
}

fn check_values(operator: Operator, name: &str, values: &[AttributeValue]) -> Result<(), Error> {
    if !operator.takes(values.len()) {
        return Err(wrong_count(name));
    }
    let types = values.iter().map(AttributeValue::value_type);
    if let Some(first) = types.clone().next()
        && types.clone().any(|other| other != first)
    {
        return Err(invalid(
            "AttributeValues inside AttributeValueList must be of same type",
        ));
    }
    if let Some(refused) = types.clone().find(|value_type| !operator.takes_type(*value_type)) {
        let refused = refused.name();
        return Err(invalid(&format!(
            "ComparisonOperator {name} is not valid for {refused} AttributeValue type"
        )));
    }
    if let (Operator::Between, [low, high]) = (operator, values)
        && low.compare(high).is_some_and(std::cmp::Ordering::is_gt)
    {
        let text = "The BETWEEN condition was provided a range where the lower bound is greater than the upper bound";
        return Err(Error::validation(text));
    }
    Ok(())
}
