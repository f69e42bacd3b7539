//! What this release can do that an earlier one cannot, by names.
//!
//! Each member reports its features when it joins and when it comes back. Once all members have one, the leader makes
//! the group enable it, permanently: a node without it is refused from then on. Until then no node does what only some
//! members understand. So a cluster of two releases behaves as the older one does.

use crate::error::ChangeError;
use crate::metadata::command::Command;
pub use crate::operators::client_routes::CLIENT_ROUTES;
use crate::ring::RING_MOVES;
use crate::service::Cluster;
pub use crate::tablets::rack_rules::RACK_RULES;
use runtime::Instant;
pub use schema::record::{
    COMPACT_STORAGE, LARGE_DATA_GUARDRAILS, PAXOS_GRACE, PER_PARTITION_RATE_LIMIT, ROW_TTL, SNAPSHOT_OPTIONS,
    TABLET_OPTIONS, TOMBSTONE_GC, USER_FUNCTIONS, USER_TYPES,
};
pub use topology::{
    BOUND_PAGING_STATES, FORGOTTEN_HINTS, PARALLEL_COPIES, QUALIFIED_STATEMENT_IDS, REPLICATION_KINDS,
    SLOW_REQUEST_TABLES, TABLET_MOVES, TABLET_RESIZES, TOPOLOGY_OPERATIONS, TRACED_REQUESTS,
};

/// A node that stops hands the leadership of the metadata group over, and sends the others a goodbye, so that they do
/// not wait for it.
///
/// Both are messages that earlier releases take for garbage.
pub const ORDERLY_STOP: &str = "orderly_stop";

/// A node that starts greets the others, and says when it lets clients in.
///
/// The greeting is a call that earlier releases do not know.
pub const ORDERLY_START: &str = "orderly_start";

/// The metadata has a history, and the starts of nodes are noted in it: nodes whose metadata differs, and directories
/// that are older than what ran last, are found out. Nodes may be removed, and come back without their metadata.
///
/// Detector messages, metadata and commands have parts that earlier releases do not know.
pub const METADATA_HISTORY: &str = "metadata_history";

/// Messages of the failure detector say how their sender is: its wall clock, and whether its log takes writes.
///
/// They have a format that earlier releases do not read.
pub const NODE_HEALTH: &str = "node_health";

/// Tablets move between the shards of a node.
///
/// A node of an earlier release would send requests to the other shard, and leave the data where it is.
pub const SHARD_MOVES: &str = "shard_moves";

/// Acceptors of conditional statements keep promises in memory, and a file keeps what a restart would forget.
///
/// A node of an earlier release does not look at the file: started with this node's directories, it would forget the
/// promises.
pub const UNWRITTEN_PROMISES: &str = "unwritten_promises";

/// Messages of the failure detector say how full their sender's disks are.
///
/// They have a format that earlier releases do not read.
pub const DISK_LEVELS: &str = "disk_levels";

/// Several members are excluded by one command, by the word of the node that leads.
///
/// The command, and the request to the leader, are such as earlier releases do not know.
pub const EXCLUDE_TOGETHER: &str = "exclude_together";

/// Repairs mark sstables, and leave out what is marked.
///
/// Marks are set by a call that earlier releases do not know.
pub const INCREMENTAL_REPAIR: &str = "incremental_repair";

/// The marks that repairs have left on sstables move with a tablet to another node.
///
/// The request for the copy, and the list of its files, have parts that earlier releases refuse.
pub const INHERITED_MARKS: &str = "inherited_marks";

/// What changes a replication or makes a node leave while the next owners of the token ring are read waits in the
/// metadata; and the metadata say what a replication was before it was altered, so that the change can be taken back.
///
/// Both are fields of the metadata that earlier releases do not know.
pub const REPLICATION_GOALS: &str = "replication_goals";

/// Some tablets of a table, or some of their replicas, are repaired by the nodes that have them.
///
/// The request has a part that earlier releases refuse.
pub const SELECTED_REPAIRS: &str = "selected_repairs";

/// The replicas of a range that a repair has made equal hear how it was repaired.
///
/// The message has a part that earlier releases refuse.
pub const REPAIR_MODES: &str = "repair_modes";

/// The next owners of the token ring remove what they have of it before they are written.
///
/// A change of the ring has two stages more, which a member of an earlier release would not go through.
pub const EARLY_REMOVAL: &str = "early_removal";

/// Several ranges of the token ring are copied at once.
///
/// The request for the copy has a part that earlier releases refuse.
pub const STREAMS_OF_RANGES: &str = "streams_of_ranges";

/// A node reports that its operator has closed it to clients.
///
/// The greeting has a value that earlier releases refuse.
pub const CLOSED_LISTENERS: &str = "closed_listeners";

/// All features of this release.
pub const FEATURES: &[&str] = &[
    BOUND_PAGING_STATES,
    CLIENT_ROUTES,
    CLOSED_LISTENERS,
    COMPACT_STORAGE,
    DISK_LEVELS,
    EARLY_REMOVAL,
    EXCLUDE_TOGETHER,
    FORGOTTEN_HINTS,
    INCREMENTAL_REPAIR,
    INHERITED_MARKS,
    LARGE_DATA_GUARDRAILS,
    METADATA_HISTORY,
    NODE_HEALTH,
    ORDERLY_START,
    ORDERLY_STOP,
    PARALLEL_COPIES,
    PAXOS_GRACE,
    PER_PARTITION_RATE_LIMIT,
    QUALIFIED_STATEMENT_IDS,
    RACK_RULES,
    REPAIR_MODES,
    REPLICATION_GOALS,
    REPLICATION_KINDS,
    RING_MOVES,
    ROW_TTL,
    SELECTED_REPAIRS,
    SHARD_MOVES,
    SLOW_REQUEST_TABLES,
    SNAPSHOT_OPTIONS,
    STREAMS_OF_RANGES,
    TABLET_MOVES,
    TABLET_OPTIONS,
    TABLET_RESIZES,
    TOMBSTONE_GC,
    TOPOLOGY_OPERATIONS,
    TRACED_REQUESTS,
    UNWRITTEN_PROMISES,
    USER_FUNCTIONS,
    USER_TYPES,
];

impl Cluster {
    /// Whether all members have a feature, now and from now on.
    #[must_use]
    pub fn has_feature(&self, feature: &str) -> bool {
        self.metadata().topology.enabled_features().contains(feature)
    }

    /// Waits until the features that a command needs are enabled, if every member has them: the leader enables them
    /// soon.
    ///
    /// # Errors
    /// `NeedsFeature`, which names a member that must be upgraded first.
    pub(crate) async fn wait_for_features(&self, command: &Command, deadline: Instant) -> Result<(), ChangeError> {
        let needs = command.needs();
        loop {
            let changed = self.machine.changed.notified();
            let metadata = self.metadata();
            let Some(need) = metadata.missing_feature(&needs) else {
                return Ok(());
            };
            let (place, feature) = (&need.place, need.feature);
            let mut members = metadata.topology.members();
            if let Some(node) = members.find(|node| !node.features.contains(feature)) {
                return Err(ChangeError::NeedsFeature(format!(
                    "{place} needs feature '{feature}', which node {} at {} (release {}) lacks. Upgrade that node first. Nothing was changed",
                    node.host_id,
                    node.internode.ip(),
                    node.release
                )));
            }
            if !self.wait_until(deadline, changed).await {
                return Err(ChangeError::NeedsFeature(format!(
                    "{place} needs feature '{feature}', which all nodes have and the cluster has not enabled yet. Try again. Nothing was changed"
                )));
            }
        }
    }
}
