//! Membership and metadata: what all nodes of a cluster agree on, its members, which of them are alive, and how a node
//! comes in.
//!
//! - [`Metadata`] is the agreed value: schema, topology, tablet maps. A [`Command`] makes the next of it; all nodes
//!   apply the same commands in the same order, the order of the Raft group of crate `consensus`.
//! - [`load`] reads it before the shards start; [`Cluster::start`] forms, joins or comes back to a cluster; [`handler`]
//!   answers other nodes.
//! - [`Cluster::propose_schema`] and [`Cluster::propose`] change it, from any node; [`Listener`] is notified of each
//!   change.
//! - [`Cluster::is_live`] and [`Listener::liveness`] report which nodes answer; [`Cluster::meet_peers`],
//!   [`Cluster::open`] and [`Cluster::leave`] announce this node to the others.
//! - [`Standalone`] keeps the same metadata for a node that meets no others.
//! - [`recover`] and [`follow`] are for the case that most voters are gone permanently; [`prospect`] reports beforehand
//!   what that means.
//!
//! Invariants:
//! - What was acknowledged is durable, on this node in its own file besides the log; a restart serves from that file at
//!   once.
//! - A node number, and so a Raft id, is given once.
//! - A node is read as an owner of ranges of the token ring only when it has copied them, after all began to write to
//!   it too. So a join never loses a row.
//! - A node that is refused has written nothing.
//!
//! Lives on shard 0, sees the cluster. docs/dev/cluster.md has the whole picture.

mod config;
mod error;
#[doc(hidden)]
pub mod fuzz;
mod members;
mod messages;
mod metadata;
mod operators;
mod repeated;
mod ring;
mod service;
mod tablets;

pub use config::{
    Config, Disk, Drain, FORGET_JOINING_AFTER, InternodeScope, Listener, Local, NEWCOMERS_MAX, Reach, SCHEMA_TIMEOUT,
    Splits, TabletBytes, TabletReport, VOTE_AFTER,
};
pub use consensus::Epoch;
pub use error::{ChangeError, ClusterError, LoadError};
pub use members::forgetting::Forgotten;
pub use members::recover::{Lost, Prospect, RecoverError, answering, follow, prospect, recover};
pub use members::rejoin::{RejoinError, rejoin, rejoin_confirmation};
pub use members::seeds::Seed;
pub use members::standalone::{Standalone, load_standalone};
pub use messages::verbs::{FIRST_VERB, LAST_VERB, handler};
pub use metadata::bytes::Malformed;
pub use metadata::command::{Command, SchemaChange, TableMoves, TabletsChange};
pub use metadata::features::{FEATURES, PER_PARTITION_RATE_LIMIT};
pub use metadata::file::{Written, load};
pub use metadata::history::History;
pub use metadata::{Metadata, REJECTED_MAX, Rejected, Run};
pub use operators::client_routes::{
    CLIENT_ROUTES_MAX, ClientRoute, ClientRouteKey, ClientRoutes, ClientRoutesChange, changed_client_routes,
};
pub use operators::operations::{Operation, OperationKind};
pub use operators::status::{MemberStatus, Role, Status};
pub use ring::{Replications, RingState, RingStep};
pub use service::Cluster;
pub use tablets::balance_report::{BalanceCounts, BalanceReport, TableBalance};
pub use tablets::balancer::{Balancing, pause_behind};
pub use tablets::convert::{Conversion, KeyspaceKinds, TableKind};
pub use tablets::counts::TabletCounts;
pub use tablets::goals::Altered;
pub use tablets::mover::{Copy, Discard, NodeMove};
pub use tablets::moves::ShardMove;
pub use tablets::rack_rules::RACK_OPTION;
