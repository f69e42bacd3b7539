//! Attribute values: what an item has, in memory.
//!
//! A value is normalised when it is made: numbers have one form, sets are sorted. So equality is the derived one, and
//! equal values have equal [`storage`] bytes. See "Supported data types and naming rules" of the developer guide.

pub mod json;
pub mod key;
pub mod number;
mod set;
pub mod size;
pub mod storage;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use stdx::preempt;

pub use number::Number;
pub use set::Set;

/// An item, or the value of a map: attributes by name.
pub type Item = BTreeMap<String, AttributeValue>;

/// Levels of lists and maps that a value may have. With the attribute that has the value they are 32.
pub const NESTING_MAX: usize = 31;

/// The value of an attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttributeValue {
    /// A string.
    S(String),
    /// A number.
    N(Number),
    /// Bytes.
    B(Vec<u8>),
    /// True or false.
    Bool(bool),
    /// The null value.
    Null,
    /// A list of values of any type.
    L(Vec<AttributeValue>),
    /// A map: names and values of any type.
    M(Item),
    /// A set of strings.
    Ss(Set<String>),
    /// A set of numbers.
    Ns(Set<Number>),
    /// A set of byte strings.
    Bs(Set<Vec<u8>>),
}

/// The type of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names are those of AttributeValue")]
pub enum ValueType {
    S,
    N,
    B,
    Bool,
    Null,
    L,
    M,
    Ss,
    Ns,
    Bs,
}

impl ValueType {
    /// All types.
    pub const ALL: [Self; 10] = [
        Self::S,
        Self::N,
        Self::B,
        Self::Bool,
        Self::Null,
        Self::L,
        Self::M,
        Self::Ss,
        Self::Ns,
        Self::Bs,
    ];

    /// The name in JSON and in `attribute_type`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::S => "S",
            Self::N => "N",
            Self::B => "B",
            Self::Bool => "BOOL",
            Self::Null => "NULL",
            Self::L => "L",
            Self::M => "M",
            Self::Ss => "SS",
            Self::Ns => "NS",
            Self::Bs => "BS",
        }
    }

    /// The type of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "S" => Self::S,
            "N" => Self::N,
            "B" => Self::B,
            "BOOL" => Self::Bool,
            "NULL" => Self::Null,
            "L" => Self::L,
            "M" => Self::M,
            "SS" => Self::Ss,
            "NS" => Self::Ns,
            "BS" => Self::Bs,
            _ => return None,
        })
    }
}

impl AttributeValue {
    /// The type of the value.
    pub const fn value_type(&self) -> ValueType {
        match self {
            Self::S(_) => ValueType::S,
            Self::N(_) => ValueType::N,
            Self::B(_) => ValueType::B,
            Self::Bool(_) => ValueType::Bool,
            Self::Null => ValueType::Null,
            Self::L(_) => ValueType::L,
            Self::M(_) => ValueType::M,
            Self::Ss(_) => ValueType::Ss,
            Self::Ns(_) => ValueType::Ns,
            Self::Bs(_) => ValueType::Bs,
        }
    }

    /// How two strings, numbers or binaries are ordered; `None` for other types and for types that differ. Strings and
    /// binaries are ordered by their bytes.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::S(a), Self::S(b)) => Some(a.cmp(b)),
            (Self::N(a), Self::N(b)) => Some(a.cmp(b)),
            (Self::B(a), Self::B(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }

    /// Whether two values are equal, with preemption points between the elements of lists, maps and sets.
    pub fn equals(&self, other: &Self) -> bool {
        preempt::point();
        match (self, other) {
            (Self::L(a), Self::L(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.equals(b)),
            (Self::M(a), Self::M(b)) => items_equal(a, b),
            (Self::Ss(a), Self::Ss(b)) => a.equals(b),
            (Self::Ns(a), Self::Ns(b)) => a.equals(b),
            (Self::Bs(a), Self::Bs(b)) => a.equals(b),
            _ => self == other,
        }
    }
}

/// Whether two items have the same attributes, with preemption points between them.
pub fn items_equal(a: &Item, b: &Item) -> bool {
    let same = |((a_name, a), (b_name, b)): ((&String, &AttributeValue), (&String, &AttributeValue))| {
        a_name == b_name && a.equals(b)
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

/// Levels of lists and maps in a value: 0 for a scalar or a set.
pub fn depth(value: &AttributeValue) -> usize {
    preempt::point();
    match value {
        AttributeValue::L(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        AttributeValue::M(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Copies an item, with preemption points between the attributes at all levels.
pub fn copy_item(item: &Item) -> Item {
    let mut copy = Item::new();
    for (name, value) in item {
        copy.insert(name.clone(), copy_value(value));
    }
    copy
}

/// Copies a value, with preemption points between the elements at all levels.
pub fn copy_value(value: &AttributeValue) -> AttributeValue {
    preempt::point();
    match value {
        AttributeValue::L(list) => AttributeValue::L(preempt::collect(list.iter().map(copy_value))),
        AttributeValue::M(map) => AttributeValue::M(copy_item(map)),
        AttributeValue::Ss(set) => AttributeValue::Ss(set.copy()),
        AttributeValue::Ns(set) => AttributeValue::Ns(set.copy()),
        AttributeValue::Bs(set) => AttributeValue::Bs(set.copy()),
        other => other.clone(),
    }
}

/// Frees an item, with preemption points between the attributes at all levels.
pub fn release_item(item: Item) {
    item.into_values().for_each(release_value);
}

/// Frees a value, with preemption points between the elements at all levels.
pub fn release_value(value: AttributeValue) {
    preempt::point();
    match value {
        AttributeValue::L(list) => list.into_iter().for_each(release_value),
        AttributeValue::M(map) => release_item(map),
        AttributeValue::Ss(set) => preempt::drop_each(set.into_vec()),
        AttributeValue::Bs(set) => preempt::drop_each(set.into_vec()),
        other => drop(other),
    }
}
