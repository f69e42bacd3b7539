//! The size of items in bytes, by "DynamoDB item sizes and formats" of the developer guide.

use stdx::preempt;

use super::{AttributeValue, Item, Number};

/// Bytes that an item may have: 400 KB, names included.
pub const ITEM_BYTES_MAX: usize = 400 << 10;
/// Bytes of a list or map beside its elements.
pub(super) const CONTAINER_BYTES: usize = 3;
/// Bytes of an element of a list or map beside its name and value.
pub(super) const ELEMENT_BYTES: usize = 1;

/// The size of an item in bytes: its attributes' names and values.
pub fn item_bytes(item: &Item) -> usize {
    item.iter().map(|(name, value)| name.len() + value_bytes(value)).sum()
}

/// The size of a value in bytes.
pub fn value_bytes(value: &AttributeValue) -> usize {
    preempt::point();
    match value {
        AttributeValue::S(text) => text.len(),
        AttributeValue::N(number) => number_bytes(*number),
        AttributeValue::B(bytes) => bytes.len(),
        AttributeValue::Bool(_) | AttributeValue::Null => 1,
        AttributeValue::L(list) => {
            let elements = list.iter().map(|value| ELEMENT_BYTES + value_bytes(value));
            CONTAINER_BYTES + elements.sum::<usize>()
        }
        AttributeValue::M(map) => CONTAINER_BYTES + ELEMENT_BYTES * map.len() + item_bytes(map),
        AttributeValue::Ss(set) => sum(set.as_slice(), String::len),
        AttributeValue::Ns(set) => sum(set.as_slice(), |number| number_bytes(*number)),
        AttributeValue::Bs(set) => sum(set.as_slice(), Vec::len),
    }
}

fn sum<T>(elements: &[T], bytes: impl Fn(&T) -> usize) -> usize {
    let bytes = |element| {
        preempt::point();
        bytes(element)
    };
    elements.iter().map(bytes).sum()
}

/// One byte for two significant digits, and one more; a negative number has another one for its sign.
pub(super) fn number_bytes(number: Number) -> usize {
    let pairs = usize::try_from(number.digits().div_ceil(2)).unwrap_or(0);
    pairs + 1 + usize::from(number.is_negative())
}
