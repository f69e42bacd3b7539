//! Members: how a node joins, starts, stops, leaves, and is given up, and what the others know of it.

pub(crate) mod claims;
pub(crate) mod drain;
pub(crate) mod excluding;
pub(crate) mod forgetting;
pub(crate) mod health;
pub(crate) mod leaving;
pub(crate) mod peers;
pub(crate) mod presence;
pub(crate) mod recover;
pub(crate) mod rejoin;
pub(crate) mod removal;
pub(crate) mod seeds;
pub(crate) mod standalone;
pub(crate) mod start;
pub(crate) mod tend;
