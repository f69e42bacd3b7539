//! One node: shards, services, start and drain.
//!
//! [`start`] runs a whole node until it is stopped; [`embed`] runs the same node without sockets, for the benches;
//! [`prepare`] gives its parts to the simulator. All go through the same steps: lock the workdir, determine the node's
//! identity, check that the directories belong to it, load the schema, start the shards; each shard opens its sstables
//! and replays its log; when all are ready the node accepts clients.

mod client_events;
mod cluster;
mod compaction_history;
mod directories;
mod disk_space;
mod disks;
mod dynamodb;
mod early_words;
mod follow;
#[doc(hidden)]
pub mod fuzz;
mod identity;
mod live_options;
mod maintenance;
mod open;
mod operator;
mod recover;
mod reread;
mod shard_main;
mod sizes;
mod standalone;
mod start;
mod tablets;
mod view;
mod virtual_tables;

pub use directories::{Directory, recover_directory};
pub use recover::{Recover, recover_metadata, rejoin};
pub use start::{Embedded, Prepared, Reread, StartError, embed, prepare, start};
