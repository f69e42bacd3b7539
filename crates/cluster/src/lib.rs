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

mod balance_report;
mod balancer;
mod bytes;
mod claims;
mod client_routes;
mod command;
mod config;
mod convert;
mod copies;
mod drain;
mod error;
mod excluding;
mod features;
mod file;
mod forgetting;
#[doc(hidden)]
pub mod fuzz;
mod goals;
mod health;
mod history;
mod leaving;
mod lineage;
mod machine;
mod metadata;
mod mover;
mod moves;
mod operations;
mod peers;
mod planning;
mod presence;
mod rack_rules;
mod record;
mod recover;
mod rejoin;
mod removal;
mod repeated;
mod resizes;
mod ring;
mod ring_copies;
mod seeds;
mod service;
mod standalone;
mod start;
mod status;
mod survey;
mod tablet_counts;
mod tend;
mod tokens;
mod verbs;
mod wire;

pub use balance_report::{BalanceCounts, BalanceReport, TableBalance};
pub use balancer::{Balancing, pause_behind};
pub use bytes::Malformed;
pub use client_routes::{
    CLIENT_ROUTES, CLIENT_ROUTES_MAX, ClientRoute, ClientRouteKey, ClientRoutes, ClientRoutesChange,
    changed_client_routes,
};
pub use command::{Command, SchemaChange, TableMoves, TabletsChange};
pub use config::{
    Between, Config, Disk, Drain, FORGET_JOINING_AFTER, Listener, Local, NEWCOMERS_MAX, Reach, SCHEMA_TIMEOUT, Splits,
    TabletBytes, TabletReport, VOTE_AFTER,
};
pub use consensus::Epoch;
pub use convert::{Conversion, KeyspaceKinds, TableKind};
pub use error::{ChangeError, ClusterError, LoadError};
pub use features::{
    CLOSED_LISTENERS, DISK_LEVELS, EARLY_REMOVAL, EXCLUDE_TOGETHER, FEATURES, FORGOTTEN_HINTS, INCREMENTAL_REPAIR,
    INHERITED_MARKS, METADATA_HISTORY, NODE_HEALTH, ORDERLY_START, ORDERLY_STOP, PARALLEL_COPIES, PAXOS_GRACE,
    PER_PARTITION_RATE_LIMIT, REPAIR_MODES, REPLICATION_GOALS, REPLICATION_KINDS, SELECTED_REPAIRS, SHARD_MOVES,
    SNAPSHOT_OPTIONS, STREAMS_OF_RANGES, TABLET_MOVES, TABLET_OPTIONS, TABLET_RESIZES, TOPOLOGY_OPERATIONS,
    UNWRITTEN_PROMISES,
};
pub use file::{Written, load};
pub use forgetting::Forgotten;
pub use goals::Altered;
pub use history::History;
pub use metadata::{Metadata, REJECTED_MAX, Rejected, Run};
pub use mover::{Copy, Discard, NodeMove};
pub use moves::ShardMove;
pub use operations::{Operation, OperationKind};
pub use rack_rules::{RACK_OPTION, RACK_RULES};
pub use recover::{Lost, Prospect, RecoverError, answering, follow, prospect, recover};
pub use rejoin::{RejoinError, rejoin, rejoin_confirmation};
pub use ring::{RING_MOVES, Replications, RingState, RingStep};
pub use seeds::Seed;
pub use service::Cluster;
pub use standalone::{Standalone, load_standalone};
pub use status::{MemberStatus, Role, Status};
pub use tablet_counts::TabletCounts;
pub use verbs::{FIRST_VERB, LAST_VERB, handler};
