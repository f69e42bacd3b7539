//! Load generators, and the benches that the figures come from.

mod allocations;
pub mod cql_load;
pub mod items;
mod load;
pub mod memory_footprint;
mod process;
pub mod redis_load;
mod report;
pub mod simple_query;
mod temporary;

pub use allocations::set_allocation_counter;
pub use load::{LoadError, LoadOptions};
pub use report::{LatencySummary, Report};
