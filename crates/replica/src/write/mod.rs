//! Writes: long ones that are merged aside, logged batches, and the memory of memtables.

pub mod aside;
pub(crate) mod memory;
pub(crate) mod noted_batches;
