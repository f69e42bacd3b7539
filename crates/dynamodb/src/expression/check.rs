//! Checks of bound trees: what needs the names and values of a request.
//!
//! Each comparison and function of a condition is checked as a whole before the next one: symbols, numbers of
//! operands, equal operands, types. An update is checked as a whole for each of these in turn.

use std::cmp::Ordering;
use std::fmt::Write;

use stdx::preempt;

use super::bind::{Scope, Tree};
use super::{Change, Comparison, Condition, Function, Operand, Projection, SetOperand, SetValue, Update, ValueId};
use crate::Error;
use crate::error::clip;
use crate::path::{Path, Step};
use crate::value::{AttributeValue, ValueType, json};

impl Tree for Condition {
    fn check(&self, scope: &Scope<'_>) -> Result<(), Error> {
        preempt::point();
        match self {
            Self::And(all) | Self::Or(all) => return all.iter().try_for_each(|part| part.check(scope)),
            Self::Not(inner) => return inner.check(scope),
            _ => {}
        }
        if !scope.is_complete() {
            self.operands().try_for_each(|operand| require(operand, scope))?;
        }
        self.operands().try_for_each(check_size_count)?;
        match self {
            Self::Compare {
                comparison,
                left,
                right,
            } => {
                refuse_equal(comparison.sign(), left, right, scope)?;
                self.operands().try_for_each(|operand| check_size(operand, scope))?;
                check_comparison(*comparison, left, right, scope)
            }
            Self::Between { operand, low, high } => {
                self.operands().try_for_each(|operand| check_size(operand, scope))?;
                check_between(operand, low, high, scope)
            }
            Self::Call(function, operands) => check_call(*function, operands, scope),
            _ => self.operands().try_for_each(|operand| check_size(operand, scope)),
        }
    }
}

impl Tree for Projection {
    fn check(&self, scope: &Scope<'_>) -> Result<(), Error> {
        if !scope.is_complete() {
            self.paths.iter().try_for_each(|path| require_path(path, scope))?;
        }
        refuse_overlaps(&self.paths.iter().collect::<Vec<_>>(), scope)
    }
}

impl Tree for Update {
    fn check(&self, scope: &Scope<'_>) -> Result<(), Error> {
        if !scope.is_complete() {
            self.actions.iter().try_for_each(|action| {
                require_path(&action.path, scope)?;
                match &action.change {
                    Change::Set(value) => value.operands().try_for_each(|operand| require_set(operand, scope)),
                    Change::Remove => Ok(()),
                    Change::Add(value) | Change::Delete(value) => scope.require_value(*value),
                }
            })?;
        }
        let paths = preempt::collect(self.actions.iter().map(|action| &action.path));
        refuse_overlaps(&paths, scope)?;
        for action in &self.actions {
            match &action.change {
                Change::Add(value) if !self.is_legacy => check_added(*value, scope)?,
                Change::Delete(value) if !self.is_legacy => check_deleted(*value, scope)?,
                _ => {}
            }
        }
        let set_values = || {
            self.actions.iter().filter_map(|action| match &action.change {
                Change::Set(value) => Some(value),
                _ => None,
            })
        };
        set_values().try_for_each(|value| value.operands().try_for_each(check_set_counts))?;
        set_values().try_for_each(|value| check_set_types(value, scope))
    }
}

fn require(operand: &Operand, scope: &Scope<'_>) -> Result<(), Error> {
    match operand {
        Operand::Path(path) => require_path(path, scope),
        Operand::Value(value) => scope.require_value(*value),
        Operand::Size(operands) => operands.iter().try_for_each(|operand| require(operand, scope)),
    }
}

fn require_path(path: &Path, scope: &Scope<'_>) -> Result<(), Error> {
    scope.require_name(path.attribute)?;
    path.steps.iter().try_for_each(|step| match step {
        Step::Name(name) => scope.require_name(*name),
        Step::Index(_) => Ok(()),
    })
}

fn require_set(operand: &SetOperand, scope: &Scope<'_>) -> Result<(), Error> {
    match operand {
        SetOperand::Path(path) => require_path(path, scope),
        SetOperand::Value(value) => scope.require_value(*value),
        SetOperand::IfNotExists(operands) | SetOperand::ListAppend(operands) => {
            operands.iter().try_for_each(|operand| require_set(operand, scope))
        }
    }
}

fn wrong_count(function: &str, count: usize) -> Error {
    Error::validation(format!(
        "Incorrect number of operands for operator or function; operator or function: {function}, \
         number of operands: {count}"
    ))
}

#[cold]
fn wrong_type(operator: &str, operand_type: &str) -> Error {
    Error::validation(format!(
        "Incorrect operand type for operator or function; operator or function: {operator}, \
         operand type: {operand_type}"
    ))
}

fn path_required(function: &str) -> Error {
    let text = "Operator or function requires a document path; operator or function: ";
    Error::validation([text, function].concat())
}

fn check_size_count(operand: &Operand) -> Result<(), Error> {
    let Operand::Size(operands) = operand else {
        return Ok(());
    };
    operands.iter().try_for_each(check_size_count)?;
    if operands.len() == 1 {
        Ok(())
    } else {
        Err(wrong_count("size", operands.len()))
    }
}

/// The type of an operand if it does not depend on the item.
fn known_type(operand: &Operand, scope: &Scope<'_>) -> Option<ValueType> {
    match operand {
        Operand::Path(_) => None,
        Operand::Value(value) => Some(scope.bindings.value(*value).value_type()),
        Operand::Size(_) => Some(ValueType::N),
    }
}

fn check_size(operand: &Operand, scope: &Scope<'_>) -> Result<(), Error> {
    let Operand::Size(operands) = operand else {
        return Ok(());
    };
    operands.iter().try_for_each(|operand| {
        check_size(operand, scope)?;
        match known_type(operand, scope) {
            Some(other @ (ValueType::N | ValueType::Bool | ValueType::Null)) => Err(wrong_type("size", other.name())),
            _ => Ok(()),
        }
    })
}

/// Only strings, numbers and binaries have an order.
fn check_ordered(operator: &str, operand: &Operand, scope: &Scope<'_>) -> Result<(), Error> {
    match known_type(operand, scope) {
        None | Some(ValueType::S | ValueType::N | ValueType::B) => Ok(()),
        Some(other) => Err(wrong_type(operator, other.name())),
    }
}

fn check_comparison(comparison: Comparison, left: &Operand, right: &Operand, scope: &Scope<'_>) -> Result<(), Error> {
    if matches!(comparison, Comparison::Equal | Comparison::NotEqual) {
        return Ok(());
    }
    check_ordered(comparison.sign(), left, scope)?;
    check_ordered(comparison.sign(), right, scope)
}

fn check_between(operand: &Operand, low: &Operand, high: &Operand, scope: &Scope<'_>) -> Result<(), Error> {
    for operand in [operand, low, high] {
        check_ordered("BETWEEN", operand, scope)?;
    }
    let (Operand::Value(low), Operand::Value(high)) = (low, high) else {
        return Ok(());
    };
    let (low, high) = (scope.bindings.value(*low), scope.bindings.value(*high));
    let rule = match low.compare(high) {
        None => "requires same data type for lower and upper bounds",
        Some(Ordering::Greater) => "requires upper bound to be greater than or equal to lower bound",
        Some(_) => return Ok(()),
    };
    let (low, high) = (bound_text(low), bound_text(high));
    Err(Error::validation(format!(
        "The BETWEEN operator {rule}; lower bound operand: AttributeValue: {low}, \
         upper bound operand: AttributeValue: {high}"
    )))
}

/// A value as texts of errors have it: `{N:1}`.
fn bound_text(value: &AttributeValue) -> String {
    let mut text = Vec::new();
    match value {
        AttributeValue::S(string) => text.extend_from_slice(string.as_bytes()),
        AttributeValue::N(number) => number.append_text(&mut text),
        AttributeValue::B(bytes) => {
            json::write_binary(&mut text, bytes);
            text.retain(|byte| *byte != b'"');
        }
        _ => {}
    }
    let text = String::from_utf8_lossy(&text);
    format!("{{{}:{}}}", value.value_type().name(), clip(&text))
}

fn check_call(function: Function, operands: &[Operand], scope: &Scope<'_>) -> Result<(), Error> {
    let (name, count) = (function.name(), operands.len());
    let required = match function {
        Function::AttributeExists | Function::AttributeNotExists => 1,
        Function::AttributeType | Function::BeginsWith | Function::Contains => 2,
    };
    if count != required {
        return Err(wrong_count(name, count));
    }
    if let [first, second] = operands {
        refuse_equal(name, first, second, scope)?;
    }
    operands.iter().try_for_each(|operand| check_size(operand, scope))?;
    match (function, operands) {
        (Function::AttributeExists | Function::AttributeNotExists, [operand]) => match operand {
            Operand::Path(_) => Ok(()),
            _ => Err(path_required(name)),
        },
        (Function::BeginsWith, _) => operands
            .iter()
            .try_for_each(|operand| match known_type(operand, scope) {
                None | Some(ValueType::S | ValueType::B) => Ok(()),
                Some(other) => Err(wrong_type(name, other.name())),
            }),
        (Function::AttributeType, [_, name]) => check_type_name(name, scope),
        (Function::Contains, [first, second]) => refuse_same_value(name, first, second, scope),
        _ => Ok(()),
    }
}

fn check_type_name(operand: &Operand, scope: &Scope<'_>) -> Result<(), Error> {
    let value = match operand {
        Operand::Value(value) => scope.bindings.value(*value),
        Operand::Path(_) => return Err(wrong_type("attribute_type", "{NS,SS,L,BS,N,M,B,BOOL,NULL,S}")),
        Operand::Size(_) => return Err(wrong_type("attribute_type", "N")),
    };
    let AttributeValue::S(name) = value else {
        return Err(wrong_type("attribute_type", value.value_type().name()));
    };
    if ValueType::from_name(name).is_some() {
        return Ok(());
    }
    Err(Error::validation(format!(
        "Invalid attribute type name found; type: {}, valid types: {{B,NULL,SS,BOOL,L,BS,N,NS,S,M}}",
        clip(name)
    )))
}

fn not_distinct(operator: &str, operand: &str) -> Error {
    Error::validation(format!(
        "The first operand must be distinct from the remaining operands for this operator or function; \
         operator: {operator}, first operand: {operand}"
    ))
}

/// Refuses two equal paths as operands.
fn refuse_equal(operator: &str, first: &Operand, second: &Operand, scope: &Scope<'_>) -> Result<(), Error> {
    let (Operand::Path(first), Operand::Path(second)) = (first, second) else {
        return Ok(());
    };
    match relation(first, second, scope) {
        Relation::Overlap if first.steps.len() == second.steps.len() => {
            Err(not_distinct(operator, &path_text(first, scope)))
        }
        _ => Ok(()),
    }
}

/// Refuses one value twice in `contains`.
fn refuse_same_value(operator: &str, first: &Operand, second: &Operand, scope: &Scope<'_>) -> Result<(), Error> {
    match (first, second) {
        (Operand::Value(first), Operand::Value(second)) if first == second => {
            let value = scope
                .symbols
                .values
                .get(usize::from(first.0))
                .map_or("", String::as_str);
            Err(not_distinct(operator, &format!("[{value}]")))
        }
        _ => Ok(()),
    }
}

/// How two paths are related.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Relation {
    /// Neither leads to a part of the other.
    Apart,
    /// One leads to the other or a part of it.
    Overlap,
    /// One takes a map where the other takes a list.
    Conflict,
}

fn relation(one: &Path, two: &Path, scope: &Scope<'_>) -> Relation {
    let names = &scope.bindings;
    if one.attribute != two.attribute && names.name(one.attribute) != names.name(two.attribute) {
        return Relation::Apart;
    }
    for pair in one.steps.iter().zip(&two.steps) {
        match pair {
            (Step::Name(a), Step::Name(b)) if a == b || names.name(*a) == names.name(*b) => {}
            (Step::Index(a), Step::Index(b)) if a == b => {}
            (Step::Name(_), Step::Index(_)) | (Step::Index(_), Step::Name(_)) => return Relation::Conflict,
            _ => return Relation::Apart,
        }
    }
    Relation::Overlap
}

/// Refuses paths of which one leads to a part of another, then paths that take one value for a map and for a list.
fn refuse_overlaps(paths: &[&Path], scope: &Scope<'_>) -> Result<(), Error> {
    let mut attributes = preempt::collect(paths.iter().map(|path| scope.bindings.name(path.attribute)));
    preempt::sort_by(&mut attributes, |a, b| a.cmp(b));
    if attributes.windows(2).all(|pair| pair[0] != pair[1]) {
        return Ok(());
    }
    let mut conflict = None;
    for (at, two) in paths.iter().enumerate() {
        preempt::long_step();
        for one in &paths[..at] {
            match relation(one, two, scope) {
                Relation::Apart => {}
                Relation::Overlap => return Err(paths_refused("overlap", one, two, scope)),
                Relation::Conflict => conflict = conflict.or(Some((*one, *two))),
            }
        }
    }
    conflict.map_or(Ok(()), |(one, two)| Err(paths_refused("conflict", one, two, scope)))
}

fn paths_refused(how: &str, one: &Path, two: &Path, scope: &Scope<'_>) -> Error {
    let (one, two) = (path_text(one, scope), path_text(two, scope));
    Error::validation(format!(
        "Two document paths {how} with each other; must remove or rewrite one of these paths; path one: {one}, \
         path two: {two}"
    ))
}

/// A path as texts of errors have it: `[a, b, [1]]`.
fn path_text(path: &Path, scope: &Scope<'_>) -> String {
    let mut text = ["[", scope.bindings.name(path.attribute)].concat();
    for step in &path.steps {
        let written = match step {
            Step::Name(name) => write!(text, ", {}", scope.bindings.name(*name)),
            Step::Index(at) => write!(text, ", [{at}]"),
        };
        debug_assert!(written.is_ok(), "writing to a string succeeds");
    }
    text.push(']');
    text
}

/// The names of types in errors of ADD and DELETE.
fn long_name(value_type: ValueType) -> &'static str {
    match value_type {
        ValueType::S => "STRING",
        ValueType::N => "NUMBER",
        ValueType::B => "Binary",
        ValueType::Bool => "BOOL",
        ValueType::Null => "NULL",
        ValueType::L => "LIST",
        ValueType::M => "MAP",
        ValueType::Ss => "STRING_SET",
        ValueType::Ns => "NUMBER_SET",
        ValueType::Bs => "BINARY_SET",
    }
}

fn wrong_action_type(operator: &str, value_type: ValueType) -> Error {
    Error::validation(format!(
        "Incorrect operand type for operator or function; operator: {operator}, operand type: {}, \
         typeSet: ALLOWED_FOR_ADD_OPERAND",
        long_name(value_type)
    ))
}

fn check_added(value: ValueId, scope: &Scope<'_>) -> Result<(), Error> {
    match scope.bindings.value(value).value_type() {
        ValueType::N | ValueType::Ss | ValueType::Ns | ValueType::Bs => Ok(()),
        other => Err(wrong_action_type("ADD", other)),
    }
}

fn check_deleted(value: ValueId, scope: &Scope<'_>) -> Result<(), Error> {
    match scope.bindings.value(value).value_type() {
        ValueType::Ss | ValueType::Ns | ValueType::Bs => Ok(()),
        other => Err(wrong_action_type("DELETE", other)),
    }
}

fn check_set_counts(operand: &SetOperand) -> Result<(), Error> {
    let (name, operands) = match operand {
        SetOperand::IfNotExists(operands) => ("if_not_exists", operands),
        SetOperand::ListAppend(operands) => ("list_append", operands),
        SetOperand::Path(_) | SetOperand::Value(_) => return Ok(()),
    };
    operands.iter().try_for_each(check_set_counts)?;
    if operands.len() == 2 {
        Ok(())
    } else {
        Err(wrong_count(name, operands.len()))
    }
}

fn check_set_types(value: &SetValue, scope: &Scope<'_>) -> Result<(), Error> {
    value
        .operands()
        .try_for_each(|operand| check_function_types(operand, scope))?;
    let operator = match value {
        SetValue::Operand(_) => return Ok(()),
        SetValue::Plus(..) => "+",
        SetValue::Minus(..) => "-",
    };
    value
        .operands()
        .try_for_each(|operand| match known_set_type(operand, scope) {
            None | Some(ValueType::N) => Ok(()),
            Some(other) => Err(wrong_type(operator, other.name())),
        })
}

fn known_set_type(operand: &SetOperand, scope: &Scope<'_>) -> Option<ValueType> {
    match operand {
        SetOperand::Path(_) | SetOperand::IfNotExists(_) => None,
        SetOperand::Value(value) => Some(scope.bindings.value(*value).value_type()),
        SetOperand::ListAppend(_) => Some(ValueType::L),
    }
}

fn check_function_types(operand: &SetOperand, scope: &Scope<'_>) -> Result<(), Error> {
    match operand {
        SetOperand::Path(_) | SetOperand::Value(_) => Ok(()),
        SetOperand::IfNotExists(operands) => {
            operands
                .iter()
                .try_for_each(|operand| check_function_types(operand, scope))?;
            match operands.first() {
                Some(SetOperand::Path(_)) => Ok(()),
                _ => Err(path_required("if_not_exists")),
            }
        }
        SetOperand::ListAppend(operands) => operands.iter().try_for_each(|operand| {
            check_function_types(operand, scope)?;
            match known_set_type(operand, scope) {
                None | Some(ValueType::L) => Ok(()),
                Some(other) => Err(wrong_type("list_append", other.name())),
            }
        }),
    }
}
