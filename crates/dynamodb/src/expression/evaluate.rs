//! Evaluating conditions on items.
//!
//! Values of different types are never equal and have no order. A comparison with an attribute that is missing is
//! false, but for `<>`, which is true.

use std::borrow::Cow;
use std::cmp::Ordering;

use stdx::preempt;

use super::{Bindings, Comparison, Condition, Function, Operand};
use crate::value::{AttributeValue, Item, Number, ValueType};

/// The value of an operand; `None` if the item does not have it.
type Evaluated<'v> = Option<Cow<'v, AttributeValue>>;

impl Condition {
    /// Whether the condition holds for an item. An item that does not exist is an empty one.
    pub fn holds(&self, item: &Item, bindings: &Bindings<'_>) -> bool {
        preempt::point();
        let value = |operand| evaluate(operand, item, bindings);
        match self {
            Self::And(all) => all.iter().all(|part| part.holds(item, bindings)),
            Self::Or(all) => all.iter().any(|part| part.holds(item, bindings)),
            Self::Not(inner) => !inner.holds(item, bindings),
            Self::Compare {
                comparison,
                left,
                right,
            } => comparison.holds(&value(left), &value(right)),
            Self::Between { operand, low, high } => {
                let operand = value(operand);
                Comparison::GreaterOrEqual.holds(&operand, &value(low))
                    && Comparison::LessOrEqual.holds(&operand, &value(high))
            }
            Self::In { operand, list } => {
                let operand = value(operand);
                list.iter()
                    .any(|element| Comparison::Equal.holds(&operand, &value(element)))
            }
            Self::Call(function, operands) => call(*function, operands, item, bindings),
        }
    }
}

impl Comparison {
    /// The operator in expressions and texts of errors.
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "<>",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }

    fn holds(self, left: &Evaluated<'_>, right: &Evaluated<'_>) -> bool {
        let (Some(left), Some(right)) = (left, right) else {
            return self == Self::NotEqual;
        };
        let order = |accepts: fn(Ordering) -> bool| left.compare(right).is_some_and(accepts);
        match self {
            Self::Equal => left.equals(right),
            Self::NotEqual => !left.equals(right),
            Self::Less => order(Ordering::is_lt),
            Self::LessOrEqual => order(Ordering::is_le),
            Self::Greater => order(Ordering::is_gt),
            Self::GreaterOrEqual => order(Ordering::is_ge),
        }
    }
}

fn evaluate<'v>(operand: &Operand, item: &'v Item, bindings: &Bindings<'v>) -> Evaluated<'v> {
    match operand {
        Operand::Path(path) => path.resolve(item, bindings).map(Cow::Borrowed),
        Operand::Value(value) => Some(Cow::Borrowed(bindings.value(*value))),
        Operand::Size(operands) => {
            let value = evaluate(operands.first()?, item, bindings)?;
            let size = i64::try_from(size(&value)?).ok()?;
            Some(Cow::Owned(AttributeValue::N(Number::from(size))))
        }
    }
}

/// The number of characters of a string, of bytes of a binary, or of elements.
fn size(value: &AttributeValue) -> Option<usize> {
    Some(match value {
        AttributeValue::S(text) => text.chars().count(),
        AttributeValue::B(bytes) => bytes.len(),
        AttributeValue::L(list) => list.len(),
        AttributeValue::M(map) => map.len(),
        AttributeValue::Ss(set) => set.len(),
        AttributeValue::Ns(set) => set.len(),
        AttributeValue::Bs(set) => set.len(),
        AttributeValue::N(_) | AttributeValue::Bool(_) | AttributeValue::Null => return None,
    })
}

fn call(function: Function, operands: &[Operand], item: &Item, bindings: &Bindings<'_>) -> bool {
    let value = |at: usize| operands.get(at).and_then(|operand| evaluate(operand, item, bindings));
    match function {
        Function::AttributeExists => value(0).is_some(),
        Function::AttributeNotExists => value(0).is_none(),
        Function::AttributeType => match (value(0), value(1).as_deref()) {
            (Some(value), Some(AttributeValue::S(name))) => ValueType::from_name(name) == Some(value.value_type()),
            _ => false,
        },
        Function::BeginsWith => match (value(0).as_deref(), value(1).as_deref()) {
            (Some(value), Some(prefix)) => begins_with(value, prefix),
            _ => false,
        },
        Function::Contains => match (value(0).as_deref(), value(1).as_deref()) {
            (Some(value), Some(element)) => contains(value, element),
            _ => false,
        },
    }
}

/// Whether a string or binary begins with another one.
pub(crate) fn begins_with(value: &AttributeValue, prefix: &AttributeValue) -> bool {
    match (value, prefix) {
        (AttributeValue::S(value), AttributeValue::S(prefix)) => value.starts_with(prefix.as_str()),
        (AttributeValue::B(value), AttributeValue::B(prefix)) => value.starts_with(prefix),
        _ => false,
    }
}

/// Whether a string or binary has another one in it, or a set or list an element.
pub(crate) fn contains(value: &AttributeValue, element: &AttributeValue) -> bool {
    match (value, element) {
        (AttributeValue::S(value), AttributeValue::S(part)) => contains_bytes(value.as_bytes(), part.as_bytes()),
        (AttributeValue::B(value), AttributeValue::B(part)) => contains_bytes(value, part),
        (AttributeValue::Ss(set), AttributeValue::S(element)) => set.contains(element),
        (AttributeValue::Ns(set), AttributeValue::N(element)) => set.contains(element),
        (AttributeValue::Bs(set), AttributeValue::B(element)) => set.contains(element),
        (AttributeValue::L(list), element) => list.iter().any(|value| value.equals(element)),
        _ => false,
    }
}

/// Searches in pieces that overlap by the length of the part, with preemption points in between.
fn contains_bytes(value: &[u8], part: &[u8]) -> bool {
    let finder = memchr::memmem::Finder::new(part);
    let step = preempt::STEP_BYTES.max(part.len());
    let mut rest = value;
    loop {
        let piece = rest.get(..step + part.len()).unwrap_or(rest);
        if finder.find(piece).is_some() {
            return true;
        }
        let Some(next) = rest.get(step..).filter(|next| next.len() >= part.len()) else {
            return false;
        };
        preempt::long_step();
        rest = next;
    }
}
