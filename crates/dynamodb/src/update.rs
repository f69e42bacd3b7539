//! Applying an update to an item.

use crate::value::Item;

/// What UpdateItem and other writes answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReturnValues {
    /// Nothing.
    #[default]
    None,
    /// The whole item as it was.
    AllOld,
    /// The updated attributes as they were.
    UpdatedOld,
    /// The whole item as it is now.
    AllNew,
    /// The updated attributes as they are now.
    UpdatedNew,
}

/// The result of an update.
#[derive(Clone, PartialEq, Debug)]
pub struct Updated {
    /// The item as it is now.
    pub item: Item,
    /// What the answer has as `Attributes`; `None` if it has none.
    pub attributes: Option<Item>,
}
