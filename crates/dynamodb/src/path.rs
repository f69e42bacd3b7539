//! Document paths: names and list positions that lead to a value in an item.
//!
//! A [`Path`] is part of a parsed expression: its names are numbers of [`crate::expression::Symbols`], which
//! [`Bindings`] resolve.

use crate::expression::Bindings;
use crate::value::{AttributeValue, Item};

/// Levels that a path may have: the attribute's name is the first.
pub const NESTING_MAX: usize = 32;

/// The number of a name in [`crate::expression::Symbols`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NameId(pub u16);

/// A step from a map or list to an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The element of a map.
    Name(NameId),
    /// The element of a list at a position from 0.
    Index(u32),
}

/// A document path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path {
    /// The attribute of the item.
    pub attribute: NameId,
    /// The steps from there.
    pub steps: Vec<Step>,
}

impl Path {
    /// The path of a whole attribute.
    pub fn of_attribute(attribute: NameId) -> Self {
        Self {
            attribute,
            steps: Vec::new(),
        }
    }

    /// The path has no steps: it names a whole attribute.
    pub fn is_top_level(&self) -> bool {
        self.steps.is_empty()
    }

    /// The value that the path leads to, if the item has it.
    pub fn resolve<'i>(&self, item: &'i Item, bindings: &Bindings<'_>) -> Option<&'i AttributeValue> {
        let value = item.get(bindings.name(self.attribute))?;
        self.steps.iter().try_fold(value, |value, step| match (value, step) {
            (AttributeValue::M(map), Step::Name(name)) => map.get(bindings.name(*name)),
            (AttributeValue::L(list), Step::Index(at)) => list.get(usize::try_from(*at).ok()?),
            _ => None,
        })
    }
}

/// What holds the value that a path leads to.
pub(crate) enum Parent<'i, 'b> {
    /// A map, and the name in it.
    Map(&'i mut Item, &'b str),
    /// A list, and the position in it.
    List(&'i mut Vec<AttributeValue>, usize),
}

/// The parent of what a path leads to, if the item has it and it is of the right type.
pub(crate) fn parent_mut<'i, 'b>(path: &Path, item: &'i mut Item, bindings: &Bindings<'b>) -> Option<Parent<'i, 'b>> {
    let name = bindings.name(path.attribute);
    let Some((last, between)) = path.steps.split_last() else {
        return Some(Parent::Map(item, name));
    };
    let parent = between
        .iter()
        .try_fold(item.get_mut(name)?, |value, step| match (value, step) {
            (AttributeValue::M(map), Step::Name(name)) => map.get_mut(bindings.name(*name)),
            (AttributeValue::L(list), Step::Index(at)) => list.get_mut(usize::try_from(*at).ok()?),
            _ => None,
        })?;
    match (parent, last) {
        (AttributeValue::M(map), Step::Name(name)) => Some(Parent::Map(map, bindings.name(*name))),
        (AttributeValue::L(list), Step::Index(at)) => Some(Parent::List(list, usize::try_from(*at).ok()?)),
        _ => None,
    }
}
