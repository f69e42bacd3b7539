//! Applying an update to an item.
//!
//! All operands are read from the item as it was. Then SET, ADD and DELETE change it, and at last what is removed goes,
//! so that every position in a list counts as in the item as it was. A position after the end of a list appends.

use std::borrow::Cow;
use std::cmp::Ordering;

use stdx::preempt;

use crate::Error;
use crate::expression::{Action, Bindings, Change, SetOperand, SetValue, Update};
use crate::path::{self, Path, Step};
use crate::projection::project_paths;
use crate::value::size::{ITEM_BYTES_MAX, item_bytes, value_bytes};
use crate::value::{AttributeValue, Item, NESTING_MAX, Set, copy_item, copy_value, depth};

/// What UpdateItem and other writes answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReturnValues {
    /// Nothing.
    #[default]
    None,
    /// The whole item as it was.
    AllOld,
    /// The updated attributes and elements as they were.
    UpdatedOld,
    /// The whole item as it is now.
    AllNew,
    /// The updated attributes and elements as they are now.
    UpdatedNew,
}

impl ReturnValues {
    /// The value of the parameter `ReturnValues`.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "NONE" => Self::None,
            "ALL_OLD" => Self::AllOld,
            "UPDATED_OLD" => Self::UpdatedOld,
            "ALL_NEW" => Self::AllNew,
            "UPDATED_NEW" => Self::UpdatedNew,
            _ => return None,
        })
    }
}

/// The result of an update.
#[derive(Clone, PartialEq, Debug)]
pub struct Updated {
    /// The item as it is now.
    pub item: Item,
    /// What the answer has as `Attributes`; `None` if it has none.
    pub attributes: Option<Item>,
}

/// Applies an update. `old` is the item as it is; an item that does not exist begins as its key. The caller has refused
/// updates of key attributes.
///
/// # Errors
/// A ValidationException if an operand is missing or has another type than its operator takes, a path leads nowhere, a
/// number is out of range, or the item becomes too large or too deep.
pub fn apply(
    update: &Update,
    old: Option<Item>,
    key: &Item,
    bindings: &Bindings<'_>,
    returns: ReturnValues,
) -> Result<Updated, Error> {
    let paths = || update.actions.iter().map(|action| &action.path);
    let before = match (&old, returns) {
        (Some(old), ReturnValues::AllOld) => Some(copy_item(old)),
        (Some(old), ReturnValues::UpdatedOld) => Some(project_paths(paths(), old, bindings)),
        _ => None,
    };
    let mut item = old.unwrap_or_else(|| copy_item(key));
    let changes = evaluate(update, &item, bindings)?;
    perform(update, changes, &mut item, bindings)?;
    if item_bytes(&item) > ITEM_BYTES_MAX {
        return Err(too_large());
    }
    let attributes = match returns {
        ReturnValues::None => None,
        ReturnValues::AllOld => before,
        ReturnValues::UpdatedOld => before.filter(|old| !old.is_empty()),
        ReturnValues::AllNew => Some(copy_item(&item)),
        ReturnValues::UpdatedNew => Some(project_paths(paths(), &item, bindings)).filter(|new| !new.is_empty()),
    };
    Ok(Updated { item, attributes })
}

/// The error of an item that an update makes too large.
#[cold]
pub fn too_large() -> Error {
    Error::validation("Item size to update has exceeded the maximum allowed size")
}

#[cold]
fn invalid_path() -> Error {
    Error::validation("The document path provided in the update expression is invalid for update")
}

#[cold]
fn wrong_operand() -> Error {
    Error::validation("An operand in the update expression has an incorrect data type")
}

#[cold]
fn missing_operand() -> Error {
    Error::validation("The provided expression refers to an attribute that does not exist in the item")
}

/// The new value of a path; `None` removes it.
type NewValue = Option<AttributeValue>;

/// The new values of all actions, in their order.
fn evaluate(update: &Update, item: &Item, bindings: &Bindings<'_>) -> Result<Vec<NewValue>, Error> {
    let mut reader = Reader {
        item,
        bindings,
        bytes: 0,
    };
    preempt::try_collect(
        update
            .actions
            .iter()
            .map(|action| reader.new_value(action, update.is_legacy)),
    )
}

/// Reads operands from an item.
struct Reader<'r> {
    item: &'r Item,
    bindings: &'r Bindings<'r>,
    /// Size of the values so far. All of them will be in the item, so they are refused beyond its limit.
    bytes: usize,
}

impl<'r> Reader<'r> {
    fn new_value(&mut self, action: &Action, is_legacy: bool) -> Result<NewValue, Error> {
        let current = || action.path.resolve(self.item, self.bindings);
        match &action.change {
            Change::Remove => Ok(None),
            Change::Set(value) => self.set_value(value).map(Some),
            Change::Add(value) => {
                let (current, value) = (current(), self.bindings.value(*value));
                self.count(current.map_or(0, value_bytes) + value_bytes(value))?;
                add(current, value, is_legacy).map(Some)
            }
            Change::Delete(value) => match current() {
                None => Ok(None),
                Some(current) => {
                    self.count(value_bytes(current))?;
                    delete(current, self.bindings.value(*value), is_legacy)
                }
            },
        }
    }

    /// Counts bytes before they are copied.
    fn count(&mut self, bytes: usize) -> Result<(), Error> {
        self.bytes += bytes;
        // The first half is for what an operand has beside what it contributes.
        if self.bytes > 2 * ITEM_BYTES_MAX {
            Err(too_large())
        } else {
            Ok(())
        }
    }

    fn set_value(&mut self, value: &SetValue) -> Result<AttributeValue, Error> {
        let (left, right, is_plus) = match value {
            SetValue::Operand(operand) => return self.owned(operand),
            SetValue::Plus(left, right) => (left, right, true),
            SetValue::Minus(left, right) => (left, right, false),
        };
        let (left, right) = (self.required(left)?, self.required(right)?);
        let (AttributeValue::N(left), AttributeValue::N(right)) = (&*left, &*right) else {
            return Err(wrong_operand());
        };
        let result = if is_plus { left.plus(*right) } else { left.minus(*right) };
        result.map(AttributeValue::N).map_err(|e| e.of_arithmetic())
    }

    fn required(&mut self, operand: &SetOperand) -> Result<Cow<'r, AttributeValue>, Error> {
        self.operand(operand)?.ok_or_else(missing_operand)
    }

    fn owned(&mut self, operand: &SetOperand) -> Result<AttributeValue, Error> {
        match self.required(operand)? {
            Cow::Owned(value) => Ok(value),
            Cow::Borrowed(value) => {
                self.count(value_bytes(value))?;
                Ok(copy_value(value))
            }
        }
    }

    fn operand(&mut self, operand: &SetOperand) -> Result<Option<Cow<'r, AttributeValue>>, Error> {
        preempt::point();
        Ok(match operand {
            SetOperand::Value(value) => Some(Cow::Borrowed(self.bindings.value(*value))),
            SetOperand::Path(path) => path.resolve(self.item, self.bindings).map(Cow::Borrowed),
            SetOperand::IfNotExists(operands) => {
                let [SetOperand::Path(path), otherwise] = operands.as_slice() else {
                    return Err(wrong_operand());
                };
                match path.resolve(self.item, self.bindings) {
                    Some(value) => Some(Cow::Borrowed(value)),
                    None => self.operand(otherwise)?,
                }
            }
            SetOperand::ListAppend(operands) => {
                let mut all = Vec::new();
                for operand in operands {
                    let AttributeValue::L(list) = self.owned(operand)? else {
                        return Err(wrong_operand());
                    };
                    if all.is_empty() {
                        all = list;
                    } else {
                        list.into_iter().for_each(|value| preempt::push(&mut all, value));
                    }
                }
                Some(Cow::Owned(AttributeValue::L(all)))
            }
        })
    }
}

/// The result of ADD.
fn add(current: Option<&AttributeValue>, value: &AttributeValue, is_legacy: bool) -> Result<AttributeValue, Error> {
    let Some(current) = current else {
        return Ok(copy_value(value));
    };
    Ok(match (current, value) {
        (AttributeValue::N(a), AttributeValue::N(b)) => AttributeValue::N(a.plus(*b).map_err(|e| e.of_arithmetic())?),
        (AttributeValue::Ss(a), AttributeValue::Ss(b)) => AttributeValue::Ss(a.copy().union(b.copy())),
        (AttributeValue::Ns(a), AttributeValue::Ns(b)) => AttributeValue::Ns(a.copy().union(b.copy())),
        (AttributeValue::Bs(a), AttributeValue::Bs(b)) => AttributeValue::Bs(a.copy().union(b.copy())),
        (AttributeValue::L(a), AttributeValue::L(b)) if is_legacy => {
            AttributeValue::L(preempt::collect(a.iter().chain(b).map(copy_value)))
        }
        _ => return Err(mismatch(is_legacy)),
    })
}

#[cold]
fn mismatch(is_legacy: bool) -> Error {
    if is_legacy {
        Error::validation("Type mismatch for attribute to update")
    } else {
        wrong_operand()
    }
}

/// The result of DELETE; `None` if no element is left.
fn delete(current: &AttributeValue, value: &AttributeValue, is_legacy: bool) -> Result<NewValue, Error> {
    fn left<T: Ord + Clone>(a: &Set<T>, b: &Set<T>, value: fn(Set<T>) -> AttributeValue) -> NewValue {
        let left = a.copy().difference(b);
        if left.is_empty() { None } else { Some(value(left)) }
    }
    Ok(match (current, value) {
        (AttributeValue::Ss(a), AttributeValue::Ss(b)) => left(a, b, AttributeValue::Ss),
        (AttributeValue::Ns(a), AttributeValue::Ns(b)) => left(a, b, AttributeValue::Ns),
        (AttributeValue::Bs(a), AttributeValue::Bs(b)) => left(a, b, AttributeValue::Bs),
        _ => return Err(mismatch(is_legacy)),
    })
}

/// Writes the new values. Those of list elements go by ascending position, so that appended ones are in order.
fn perform(update: &Update, changes: Vec<NewValue>, item: &mut Item, bindings: &Bindings<'_>) -> Result<(), Error> {
    let mut written = Vec::new();
    let mut removed = Vec::new();
    for (action, change) in update.actions.iter().zip(changes) {
        match change {
            Some(value) => written.push((&action.path, value)),
            None => removed.push(&action.path),
        }
    }
    let position = |path: &Path| match path.steps.last() {
        Some(Step::Index(at)) => *at,
        _ => 0,
    };
    preempt::sort_by(&mut written, |(one, _), (other, _)| position(one).cmp(&position(other)));
    for (path, value) in written {
        check_depth(path, &value)?;
        write(path, value, item, bindings)?;
    }
    preempt::sort_by(&mut removed, |one, other| later_first(one, other, bindings));
    for path in removed {
        if !remove(path, item, bindings) {
            return Err(invalid_path());
        }
    }
    Ok(())
}

fn check_depth(path: &Path, value: &AttributeValue) -> Result<(), Error> {
    if path.steps.len() + depth(value) > NESTING_MAX {
        let text = "Nesting Levels have exceeded supported limits: \
                    Attributes in the item have nested levels beyond supported limit";
        return Err(Error::validation(text));
    }
    Ok(())
}

/// Paths of later elements of a list before those of earlier ones, whose removal moves them.
fn later_first(one: &Path, other: &Path, bindings: &Bindings<'_>) -> Ordering {
    let by_attribute = || bindings.name(one.attribute).cmp(bindings.name(other.attribute));
    let mut order = by_attribute();
    for pair in one.steps.iter().zip(&other.steps) {
        order = order.then_with(|| match pair {
            (Step::Name(a), Step::Name(b)) => bindings.name(*a).cmp(bindings.name(*b)),
            (Step::Index(a), Step::Index(b)) => b.cmp(a),
            (Step::Name(_), Step::Index(_)) => Ordering::Less,
            (Step::Index(_), Step::Name(_)) => Ordering::Greater,
        });
    }
    order
}

/// Assigns a value to a path, whose parent must exist.
fn write(path: &Path, value: AttributeValue, item: &mut Item, bindings: &Bindings<'_>) -> Result<(), Error> {
    match path::parent_mut(path, item, bindings) {
        Some(path::Parent::Map(map, name)) => {
            map.insert(name.to_owned(), value);
            Ok(())
        }
        Some(path::Parent::List(list, at)) => {
            match list.get_mut(at) {
                Some(element) => *element = value,
                None => preempt::push(list, value),
            }
            Ok(())
        }
        None => Err(invalid_path()),
    }
}

/// Removes what a path leads to, if it is there. Returns whether its parent is.
fn remove(path: &Path, item: &mut Item, bindings: &Bindings<'_>) -> bool {
    match path::parent_mut(path, item, bindings) {
        Some(path::Parent::Map(map, name)) => {
            map.remove(name);
            true
        }
        Some(path::Parent::List(list, at)) => {
            if at < list.len() {
                list.remove(at);
                preempt::long_step();
            }
            true
        }
        None => false,
    }
}
