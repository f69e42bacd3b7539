//! Which sstables to merge, and the job that merges them.
//!
//! Deciding and doing are separate: a [`Strategy`] looks at what is known of a table's sstables and makes a [`Choice`],
//! purely; [`run`] executes one, blocking, on a background thread. Neither knows its caller, or what becomes of the
//! inputs afterwards: the owner of the table's set of sstables replaces inputs by outputs and deletes files.

mod job;
mod merge;
pub mod strategy;

pub use job::{Error, Job, Outcome, Stats, run};
pub use strategy::{Choice, Reason, SstableInfo, Strategy};
