//! The parameters that preceded expressions: Expected, AttributeUpdates, KeyConditions, QueryFilter, ScanFilter and
//! AttributesToGet, made into expressions. See "Legacy conditional parameters" of the developer guide.
//!
//! [`LegacySeed`] reads the maps from JSON. The functions make an [`Expression`] and the values that it refers to,
//! which are bound as those of a request are: `Placeholders::new(None, legacy.values.as_ref())`.

mod conditions;
mod read;

use std::collections::BTreeMap;

use stdx::preempt;

use crate::Error;
use crate::expression::{Action, Change, Expression, Projection, SetOperand, SetValue, Symbols, Update, ValueId};
use crate::path::{NameId, Path};
use crate::value::json::Problems;
use crate::value::{AttributeValue, Item, ValueType, copy_value};

pub use conditions::{expected, filter, key_conditions};

/// Attributes that one of the maps may have: what a request can use of them fits in two bytes.
const ENTRIES_MAX: usize = 30_000;

/// One of the maps, by the names of attributes.
pub type LegacyMap = BTreeMap<String, LegacyEntry>;

/// What such a map has for an attribute: the members of Condition, ExpectedAttributeValue and AttributeValueUpdate.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LegacyEntry {
    /// `Value`
    pub value: Option<AttributeValue>,
    /// `Exists`
    pub exists: Option<bool>,
    /// `ComparisonOperator`
    pub comparison_operator: Option<String>,
    /// `AttributeValueList`
    pub attribute_value_list: Option<Vec<AttributeValue>>,
    /// `Action`
    pub action: Option<String>,
}

/// Reads a [`LegacyMap`] from JSON.
#[derive(Clone, Copy)]
pub struct LegacySeed<'p>(pub &'p Problems);

/// How the conditions on several attributes are joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ConditionalOperator {
    /// All must hold.
    #[default]
    And,
    /// One must hold.
    Or,
}

/// An expression and the values of its placeholders.
#[derive(Clone, PartialEq, Debug)]
pub struct Legacy<T> {
    /// The expression.
    pub expression: Expression<T>,
    /// Values by placeholder; `None` if it has none, because an empty map is refused.
    pub values: Option<Item>,
}

/// Refuses ConditionalOperator where it has nothing to join.
///
/// # Errors
/// A ValidationException if the operator is given and `map` has fewer than two attributes.
pub fn check_operator(operator: Option<ConditionalOperator>, map: Option<&LegacyMap>) -> Result<(), Error> {
    let text = match (operator, map.map_or(0, LegacyMap::len)) {
        (Some(_), 0) => "ConditionalOperator cannot be used without Filter or Expected",
        (Some(_), 1) => "ConditionalOperator can only be used when Filter or Expected has two or more elements",
        _ => return Ok(()),
    };
    Err(Error::validation(text))
}

/// Refuses a request that has legacy parameters and expressions. Both are the names of parameters that it has, in the
/// order of the error.
///
/// # Errors
/// A ValidationException that lists them, if both have any.
pub fn refuse_mixed(legacy: &[&str], expressions: &[&str]) -> Result<(), Error> {
    if legacy.is_empty() || expressions.is_empty() {
        return Ok(());
    }
    let (legacy, expressions) = (legacy.join(", "), expressions.join(", "));
    Err(Error::validation(format!(
        "Can not use both expression and non-expression parameters in the same request: \
         Non-expression parameters: {{{legacy}}} Expression parameters: {{{expressions}}}"
    )))
}

/// The update that AttributeUpdates says.
///
/// # Errors
/// A ValidationException if an action is unknown, has no value though it needs one, or a value of a type that it does
/// not take.
pub fn attribute_updates(map: &LegacyMap) -> Result<Legacy<Update>, Error> {
    let mut builder = Builder::new(map)?;
    let mut update = Update {
        actions: Vec::new(),
        is_legacy: true,
    };
    for (name, entry) in map {
        preempt::point();
        let action = entry.action.as_deref().unwrap_or("PUT");
        let value = entry.value.as_ref();
        let change = match (action, value) {
            ("DELETE", None) => Change::Remove,
            ("PUT" | "ADD", None) => {
                let text = "Only DELETE action is allowed when no attribute value is specified";
                return Err(invalid(text));
            }
            ("PUT", Some(value)) => Change::Set(SetValue::Operand(SetOperand::Value(builder.value(value)))),
            ("ADD", Some(value)) => {
                check_added(value.value_type())?;
                Change::Add(builder.value(value))
            }
            ("DELETE", Some(value)) => {
                check_deleted(value.value_type())?;
                Change::Delete(builder.value(value))
            }
            (other, _) => {
                return Err(Error::validation(format!(
                    "1 validation error detected: Value '{other}' at 'attributeUpdates.{name}.member.action' failed \
                     to satisfy constraint: Member must satisfy enum value set: [ADD, PUT, DELETE]"
                )));
            }
        };
        let path = builder.path(name);
        preempt::push(&mut update.actions, Action { path, change });
    }
    Ok(builder.finish(update))
}

fn check_added(value_type: ValueType) -> Result<(), Error> {
    match value_type {
        ValueType::N | ValueType::L | ValueType::Ss | ValueType::Ns | ValueType::Bs => Ok(()),
        other => Err(invalid(&format!(
            "ADD action is not supported for the type {}",
            other.name()
        ))),
    }
}

fn check_deleted(value_type: ValueType) -> Result<(), Error> {
    match value_type {
        ValueType::Ss | ValueType::Ns | ValueType::Bs => Ok(()),
        other => {
            let name = other.name();
            Err(invalid(&format!(
                "DELETE action with value is not supported for the type {name}"
            )))
        }
    }
}

/// The projection that AttributesToGet says.
///
/// # Errors
/// A ValidationException if a name is empty or there twice.
pub fn attributes_to_get(names: &[String]) -> Result<Legacy<Projection>, Error> {
    let mut sorted = preempt::collect(names.iter().map(String::as_str));
    preempt::sort_by(&mut sorted, |a, b| a.cmp(b));
    if let Some([name, _]) = sorted.array_windows().find(|[a, b]| a == b) {
        return Err(invalid(&format!("Duplicate value in attribute name: {name}")));
    }
    if sorted.first().is_some_and(|name| name.is_empty()) {
        return Err(Error::validation("Empty attribute name"));
    }
    check_count(names.len())?;
    let paths = (0..).take(names.len()).map(|id| Path::of_attribute(NameId(id)));
    let tree = Projection {
        paths: preempt::collect(paths),
    };
    let symbols = Symbols {
        names: preempt::collect(names.iter().cloned()),
        values: Vec::new(),
        names_are_literal: true,
    };
    Ok(Legacy {
        expression: Expression { symbols, tree },
        values: None,
    })
}

fn check_count(count: usize) -> Result<(), Error> {
    if count > ENTRIES_MAX {
        return Err(invalid(&format!("more than {ENTRIES_MAX} attributes")));
    }
    Ok(())
}

fn invalid(text: &str) -> Error {
    Error::validation(["One or more parameter values were invalid: ", text].concat())
}

/// Numbers the names and values of an expression.
struct Builder {
    symbols: Symbols,
    values: Item,
}

impl Builder {
    /// For an expression of the attributes and values of a map.
    fn new(map: &LegacyMap) -> Result<Self, Error> {
        let listed = map
            .values()
            .map(|entry| entry.attribute_value_list.as_ref().map_or(1, Vec::len).max(1));
        check_count(listed.sum())?;
        let symbols = Symbols {
            names_are_literal: true,
            ..Symbols::default()
        };
        let values = Item::new();
        Ok(Self { symbols, values })
    }

    fn path(&mut self, name: &str) -> Path {
        let id = u16::try_from(self.symbols.names.len()).unwrap_or(u16::MAX);
        preempt::push(&mut self.symbols.names, name.to_owned());
        Path::of_attribute(NameId(id))
    }

    fn value(&mut self, value: &AttributeValue) -> ValueId {
        let id = u16::try_from(self.symbols.values.len()).unwrap_or(u16::MAX);
        let placeholder = format!(":{id}");
        preempt::push(&mut self.symbols.values, placeholder.clone());
        self.values.insert(placeholder, copy_value(value));
        ValueId(id)
    }

    fn finish<T>(self, tree: T) -> Legacy<T> {
        let symbols = self.symbols;
        Legacy {
            expression: Expression { symbols, tree },
            values: Some(self.values).filter(|values| !values.is_empty()),
        }
    }
}
