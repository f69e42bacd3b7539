//! What nodes say to each other about metadata and membership.

pub(crate) mod verbs;
pub(crate) mod wire;
