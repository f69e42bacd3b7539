//! The tablets of a shard: what they are made of, and how they come, change, and leave.

pub(crate) mod arrivals;
pub(crate) mod copies;
pub(crate) mod discard;
pub(crate) mod reconcile;
pub(crate) mod succession;
pub(crate) mod tablet;
pub(crate) mod truncation;
