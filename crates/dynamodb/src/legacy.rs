//! The parameters of before expressions: Expected, AttributeUpdates, KeyConditions, QueryFilter, ScanFilter and
//! AttributesToGet, made into expressions. See "Legacy conditional parameters" of the developer guide.
//!
//! [`LegacySeed`] reads the maps from JSON. The functions make an [`Expression`] and the values it refers to, which
//! are bound as those of a request are: `Placeholders::new(None, Some(&values))`.

use std::collections::BTreeMap;

use crate::expression::Expression;
use crate::value::json::Problems;
use crate::value::{AttributeValue, Item};

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

/// Reads a [`LegacyMap`].
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

/// An expression and the values that its placeholders stand for.
#[derive(Clone, PartialEq, Debug)]
pub struct Legacy<T> {
    /// The expression.
    pub expression: Expression<T>,
    /// Values by placeholder; `None` if it has none, because an empty map is refused.
    pub values: Option<Item>,
}
