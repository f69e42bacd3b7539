//! The replicas of a token range of a table made equal, row by row.
//!
//! The shard that repairs, one of the replicas, calls [`repair`]. It reads the range once and hashes what it reads in
//! small *buckets*. The *participants*, which are the other replicas, compare the hashes with their own. If a bucket
//! differs, the repairing shard sends the participants the hash of each of its units (rows, static rows, range
//! tombstones and deletions of partitions). They answer with the units that it does not have and with which of its
//! units they have. It merges them, and writes to each replica what that lacks, through the replica's commitlog.
//!
//! Invariants
//! - When a repair has ended well, each replica has every write that any of them had applied when it began, or
//!   something newer.
//! - A step that could not be done for one replica is an error of the whole.
//! - What a truncation or a drop has forgotten does not come back, and nothing is written to a tablet that has left.
//! - Whatever a partition's length, each side holds a bounded part of it in memory.
//! - What a peer sends is checked before it is merged or applied.
//!
//! Lives on each shard; sees its shard and the participants that a repair names. See docs/dev/repair.md.

mod asking;
mod check;
mod error;
#[doc(hidden)]
pub mod fuzz;
pub mod kinds;
mod marking;
mod message;
mod part;
mod position;
mod repairs;
mod request;
mod run;
mod serve;
mod side;
mod units;
mod walk;

pub use asking::Participant;
pub use error::{Refusal, RepairError};
pub use marking::{IncrementalMode, Marks};
pub use repairs::{OnEqual, RepairMetrics, metrics, on_equal, on_request};
pub use request::{Left, OnRequest, RepairRequest, SELECTED_MAX, Selected, want};
pub use run::{Differed, Mode, Repaired, Request, repair, tell_equal};
pub use serve::{SESSION_IDLE, SESSIONS_MAX, handler};

/// The first verb of this crate.
pub const FIRST_VERB: u16 = 70;
/// The last verb of this crate.
pub const LAST_VERB: u16 = 79;
