//! Nodes for tests: machines in the simulator, and on each a process whose shards have a log and tables.
//!
//! ```text
//! let mut machines = Machines::new(seed);
//! machines.add(1);
//! let tables = || vec![Hosted::on_ring(table(), 1)];
//! machines.start(0, move || Process::start(Options::default(), tables()), |process| async move {
//!     let shard = process.open(runtime::shard());
//!     process.recover(&[shard.clone()]).await;
//!     shard
//! });
//! machines.await_start(0);
//! machines.on(0, |shard| async move { shard.flush_all().await }).expect("the disk works");
//! machines.restart(0, CrashKind::PowerLoss);
//! ```
//!
//! [`Process`] also works without [`Machines`], on any backend of the runtime. A test adds what its crate has above a
//! shard: the handler of its verbs, a coordinator, an engine.
//!
//! A start takes the steps of `node`'s by the functions that `node` calls: [`commitlog::OldLog::take`],
//! [`replica::clean_directory`], [`replica::prepare_sstables`], [`replica::Shard::replay`]. Only their order is written
//! down twice.
//!
//! Tests alone depend on this crate. Its functions panic where a disk refuses.

mod machines;
mod process;
mod tables;
mod tally;

use std::net::SocketAddr;

use topology::{HostId, Location, Node, NodeState};
use types::Token;

pub use machines::Machines;
pub use process::{Hosted, Options, Process};
pub use tables::{alter, truncate};
pub use tally::Tally;

/// A member of a cluster that owns the whole token ring, in rack `rack` of datacenter `dc`.
#[must_use]
pub fn member(host_id: HostId, internode: SocketAddr, shards: u16) -> Node {
    Node {
        host_id,
        internode,
        native: SocketAddr::new(internode.ip(), 9042),
        native_shard_aware_port: None,
        location: Location {
            datacenter: "dc".to_owned(),
            rack: "rack".to_owned(),
        },
        shards,
        tokens: vec![Token(0)],
        state: NodeState::Normal,
        features: Default::default(),
        release: "1".to_owned(),
        loss: None,
    }
}
