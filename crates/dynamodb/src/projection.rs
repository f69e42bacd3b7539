//! Applying a projection to an item.
