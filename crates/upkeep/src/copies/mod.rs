//! What this node copies from other nodes: ranges that move to it, and those of its replicas that are rebuilt.

mod copy;
mod rebuild;

pub use copy::{copy, discard};
pub use rebuild::{Rebuilt, check_datacenter, rebuild};
