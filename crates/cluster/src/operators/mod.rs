//! What operators ask of a cluster and are shown of it.

pub(crate) mod client_routes;
pub(crate) mod operations;
pub(crate) mod status;
