//! Load generators and the benches behind the figures.

pub mod cql_load;
mod histogram;
mod load;
mod process;
pub mod redis_load;
mod report;

pub use load::{LoadError, LoadOptions};
pub use report::{LatencySummary, Report};
