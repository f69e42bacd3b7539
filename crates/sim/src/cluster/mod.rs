//! Whole clusters in the simulator: some machines run nodes as in production, one runs clients of all of them.
//!
//! A [`ClusterScenario`] is played from a seed. The nodes form a cluster, clients write and read at each of them, and
//! in each round something strikes some node: it is killed, loses power, is terminated, is cut off (in one direction or
//! both), gets a slow network or a lossy one, a slow disk, a full one or one that fails, a wrong clock. Between the
//! rounds all is healed, and now and then the cluster must show that it is well. [`history`] says what reads may
//! return.
//!
//! Promises
//! - What was acknowledged at a level is seen by every later read at a level that overlaps, by any coordinator; reads
//!   at QUORUM never go back.
//! - Errors are of the kinds that drivers know, and none comes that no fault explains.
//! - Some time after all is healed every node serves QUORUM, and all levels without an error.
//! - In the end replicas that were read at ALL hold the same, deletions included ([`contents`]), every node has the
//!   same schema, logged batches are whole.

mod asking;
mod cells;
mod clients;
mod clocked;
mod conditional;
mod contents;
pub mod counters;
mod distinct;
mod faults;
pub mod history;
mod indexed;
mod items;
mod last_look;
mod layout;
mod leases;
mod listed;
mod machines;
mod operator;
mod placement;
mod scenario;
mod schema_changes;
mod strikes;
mod truncations;
mod writes;

pub use clients::{ClusterCounts, Mix, Workload};
pub use faults::{ClusterFaults, FAULTS};
pub use layout::Datacenter;
pub use machines::{Cluster, ClusterSetup, SEGMENT_BYTES, SHARD_BYTES};
pub use scenario::{ClusterReport, ClusterScenario, FewSlots};
