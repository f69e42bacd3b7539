//! The nodes, the location of each tablet's replicas, how many must answer, which nodes are alive, and which may join.
//!
//! Everything here is a value or a function over values: no clock, no chance, no socket, no task. What changes is
//! changed by a command or a message with the time of its arrival, and what follows is returned. So the same commands
//! give the same topology, and the same topology the same placement, on every node.
//!
//! - [`Topology`]: the nodes of the cluster; changed by [`TopologyCommand`]s, in the order of the metadata's Raft
//!   group.
//! - [`TabletMap`]: token → replicas, for keyspaces with tablets and (computed by [`ring_map`]) for those on the token
//!   ring.
//! - [`MoveStep`], [`fills`]: how a tablet gets other replicas. [`TabletMap::resized`]: how a table gets another number
//!   of tablets; [`TabletMap::cut`]: how it leaves the token ring and comes back.
//! - [`Replication`], [`place_tablets`], [`ring_map`]: from a keyspace's options to a map.
//! - [`Locality`], [`Factors`], [`Requirement`], [`Acks`], [`ReadTargets`], [`WriteTargets`]: what a coordinator asks
//!   on each request. They are precomputed per topology version; nothing of it allocates per request in usual clusters.
//! - [`Snitch`]: how a node learns its datacenter and rack.
//! - [`FailureDetector`]: which nodes answer. [`admit`]: which may join. [`ClockJudge`]: whether this node's clock is
//!   right.
//! - [`DiskLimits`]: whether its disks are full.

mod admission;
mod balance;
mod clock;
mod codec;
mod command;
mod consistency;
mod convert;
mod disk;
mod failure_detector;
#[doc(hidden)]
pub mod fuzz;
mod movement;
mod node;
mod place;
pub mod record;
mod replication;
mod resize;
mod ring;
mod snitch;
mod tablet_codec;
mod tablet_map;
mod targets;

pub use admission::{Admission, CLOCK_OFFSET_MAX, JoinFacts, JoinRequest, Refusal, Replaced, admit};
pub use balance::{
    Conversion, Deviation, Limits, NodeInput, Options, Plan, Relocation, Role, Step, TableInput, Unmet, UnmetReason,
    plan,
};
pub use clock::{ClockDoubt, ClockJudge, ClockLimits, ClockSample, ClockState, ClockVerdict};
pub use codec::DecodeError;
pub use command::{CommandError, TopologyCommand};
pub use consistency::{Acks, Consistency, Counts, Factors, ReplicaCounts, Requirement, Unavailable};
pub use disk::{DiskLevel, DiskLimits, RECOVERY, Utilization};
pub use failure_detector::{FailureDetector, FailureDetectorConfig, Message, Output, Status};
pub use movement::{Fill, MoveStep, Source, TooFewSources, fills, targets};
pub use node::{
    DatacenterNumber, HostId, Liveness, Locality, Location, Loss, NODES_MAX, Node, NodeNumber, NodeState, Proximity,
    TOKENS_PER_NODE_MAX, Topology,
};
pub use place::{
    Load, check_racks, even_tablet_count, first_tablet_count, first_tablets, initial_tablet_count, place_tablets,
    place_tablets_beside, tablets_per_shard,
};
pub use replication::{Copies, PlacementError, Replication, ReplicationError};
pub use resize::ResizeError;
pub use ring::{RingChange, changing_ring_map, ring_map};
pub use snitch::{Snitch, SnitchError};
pub use tablet_map::{
    Boundaries, MapError, Replica, ReplicaList, Selector, Stage, TABLETS_MAX, Tablet, TabletChange, TabletEdit,
    TabletId, TabletMap, Transition,
};
pub use targets::{ReadTargets, WriteTargets};
