//! The whole node in the simulator: one machine runs it as in production, another runs clients that speak CQL to it.
//!
//! [`Scenario`] says how the node is set up and what strikes it; [`Scenario::run`] plays it from a seed. The clients
//! ([`workload`]) write, read and change the schema, and note every statement in a naive [`model`] before they send it.
//! After each crash and restart they first read everything back: what was promised must be there, what was deleted must
//! not, and a statement without an answer is there wholly or not at all in each partition. A run that breaks a promise
//! ends with a [`Failure`] that lists the partition's story.
//!
//! Promises, by kind of stop:
//! - killed process: everything acknowledged;
//! - lost power, batch mode: everything acknowledged;
//! - lost power, periodic mode: everything acknowledged longer ago than the period and what a sync may take;
//! - schema changes and TRUNCATE: once acknowledged, after any stop.

pub mod client;
pub mod cluster;
mod decode;
mod http;
mod machine;
pub mod model;
mod reads;
mod scenario;
mod statements;
pub mod story;
pub mod workload;

pub use cluster::{ClusterFaults, ClusterReport, ClusterScenario, Datacenter, FAULTS, FewSlots, Mix, Workload};
pub use machine::{Durability, Machines, Setup};
pub use scenario::{Failure, Faults, Report, Scenario};
