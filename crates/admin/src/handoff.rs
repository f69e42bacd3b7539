//! What operators may know of hinted handoff and change of it: a part of [`Operator`](crate::Operator).
//!
//! Changes are for the node that is asked, reach all its shards before they are answered, and are forgotten when it
//! restarts.

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;

use crate::operator::Local;

/// A node's hints, as its operator sees them. Lives on shard 0, sees the node.
pub trait Handoff {
    /// The nodes for which hints are kept, and whether they are handed over.
    fn handoff(&self) -> State;
    /// Changes that.
    fn change_handoff(&self, change: Change) -> Local<'_, ()>;
    /// What waits for other nodes.
    fn pending_hints(&self) -> Local<'_, Vec<Pending>>;
    /// Hands over what can be, without waiting for the next look.
    fn hand_over_now(&self) -> Local<'_, ()>;
    /// Forgets the hints for a node, or for all.
    fn truncate_hints(&self, target: Option<Uuid>) -> Local<'_, Result<(), String>>;
    /// What other nodes have permanently refused.
    fn rejected_hints(&self) -> Local<'_, Vec<Rejected>>;
    /// Removes what a node, or any node, has permanently refused.
    fn clear_rejected_hints(&self, target: Option<Uuid>) -> Local<'_, Result<(), String>>;
    /// Why tombstones are kept beyond the grace period.
    fn missed_writes(&self) -> Vec<MissedWrites>;
    /// Takes the operator's word that a node, or every node, has what this node reports it to have missed.
    fn release_tombstones(&self, target: Option<Uuid>) -> Local<'_, Result<(), String>>;
    /// The id of the place that the hints for some nodes, or for all, have reached.
    fn create_sync_point(&self, targets: Option<Vec<Uuid>>) -> Local<'_, String>;
    /// Waits until nothing is left before that place. Returns whether that happened in time. An id that is none of this
    /// node's is refused with the reason.
    fn await_sync_point(&self, id: String, patience: Duration) -> Local<'_, Result<bool, String>>;
}

/// The nodes for which hints are kept, and whether they are handed over.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct State {
    /// Whether any are kept.
    pub is_enabled: bool,
    /// The datacenters that are known, and whether their nodes get hints while any are kept.
    pub datacenters: BTreeMap<String, bool>,
    /// Whether handing over is paused.
    pub is_paused: bool,
    /// No hints are kept for a node that has been down for longer.
    pub window: Duration,
}

/// A change of [`State`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Whether any are kept.
    Enable(bool),
    /// They are kept for nodes of these datacenters alone.
    Only(Vec<String>),
    /// Whether they are kept for nodes of a datacenter.
    Datacenter(String, bool),
    /// Whether handing over is paused.
    Pause(bool),
    /// The window.
    Window(Duration),
}

/// What waits for a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pending {
    /// The node.
    pub target: Uuid,
    /// Files.
    pub files: u64,
    /// Bytes.
    pub bytes: u64,
    /// When the oldest file was begun, as ISO 8601 has it.
    pub oldest: Option<String>,
    /// When the newest was.
    pub newest: Option<String>,
}

/// Hints that a node has permanently refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejected {
    /// The node.
    pub target: Uuid,
    /// Hints.
    pub hints: u64,
    /// Bytes of their files.
    pub bytes: u64,
}

/// Writes that a node may have missed, whose tombstones the other replicas keep.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MissedWrites {
    /// The node that reported it.
    pub reporter: Uuid,
    /// The node that missed them; None: any may have, since the reporter has not reported for long.
    pub target: Option<Uuid>,
    /// When the first was made, seconds since 1970.
    pub first: u32,
    /// When the last was.
    pub last: u32,
}
