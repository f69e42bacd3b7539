//! What changes the metadata, and its bytes in the log.

use crate::metadata::bytes::{Decoder, Encoder, Form, Malformed};
use crate::metadata::record::CommandRecord;
use crate::operators::client_routes::ClientRoutesChange;
use crate::ring::RingStep;
use crate::tablets::convert::Conversion;
use record::{Known, Need};
use schema::{Change, Schema, TableId};
use std::collections::BTreeMap;
use std::sync::Arc;
use topology::{HostId, MoveStep, TabletChange, TabletMap, TopologyCommand};

const COMMAND: Form = Form {
    kind: b'c',
    oldest: 1,
    format: 1,
    name: "a metadata command",
};

/// One change of the metadata.
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    /// Objects of the schema change.
    Schema(SchemaChange),
    /// Nodes change.
    Topology(TopologyCommand),
    /// The tablets of a table change.
    Tablets {
        /// The table.
        table: TableId,
        /// How.
        change: TabletsChange,
    },
    /// Replicas refuse requests of coordinators that have not seen the command of this index. A node proposes it if it
    /// changes where data is and not all nodes confirm that the requests that they began before have ended.
    Fence {
        /// Of a command that is applied.
        index: u64,
    },
    /// The data of a table is forgotten everywhere. The command's version of the metadata separates older requests from
    /// later ones.
    Truncate {
        /// The table.
        table: TableId,
    },
    /// A node was started.
    Run {
        /// The node.
        host_id: HostId,
        /// Of its Raft id.
        generation: u32,
        /// The random name of its start that was noted last; 0 for none.
        former: u64,
        /// That of the present one.
        name: u64,
    },
    /// A node that has lost its metadata, and not its data, gets another Raft id.
    Rejoin {
        /// The node.
        host_id: HostId,
        /// Of its next Raft id.
        generation: u32,
    },
    /// A node that is down is removed, if no other node becomes the owner of data that it does not have.
    RemoveNode {
        /// The node.
        host_id: HostId,
    },
    /// Members are down permanently: all of them are excluded, or none if one cannot be.
    Exclude {
        /// The nodes.
        hosts: Vec<HostId>,
    },
    /// What a member holds for others, hints and notes of batches, is forgotten: it is down for long.
    Forget {
        /// The member.
        host_id: HostId,
        /// What was made before this second since the epoch.
        before: u32,
    },
    /// Tablets take steps of their moves between nodes. Steps that do not fit any more are passed over; a command of
    /// which none fits changes nothing.
    Moves(Vec<TableMoves>),
    /// The change of the token ring whose stage began with this command takes a step.
    Ring {
        /// The index of the command.
        version: u64,
        /// The step.
        step: RingStep,
    },
    /// Tablets move to be even among nodes and shards, or only where a replication or a node that leaves needs it.
    Balance {
        /// Whether they do.
        is_balanced: bool,
    },
    /// Each tablet of a table is split in two, or each pair is merged; so are those of what acceptors know of the
    /// table, which have the same map.
    Resize {
        /// The table.
        table: TableId,
        /// The version of the map that it was decided by.
        from_version: u64,
        /// How many tablets it has then.
        tablet_count: u32,
    },
    /// A table goes a step from the token ring to tablets, or back.
    Convert {
        /// The table.
        table: TableId,
        /// The step.
        step: Conversion,
    },
    /// A keyspace has what it wants since it was altered; what it said before is forgotten.
    Reached {
        /// The keyspace.
        keyspace: String,
        /// The index of the command that altered it last.
        version: u64,
    },
    /// Client routes change.
    ClientRoutes(ClientRoutesChange),
    /// The command, unless it makes a keyspace unfit for the racks; see `rack_rules.rs`. It is none of this kind
    /// itself.
    RackValid(Box<Command>),
    /// A table has no tablets any more. Those of a table that is dropped vanish with it.
    RemoveTablets {
        /// The table.
        table: TableId,
    },
}

/// Steps of tablets of one table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableMoves {
    /// The table.
    pub table: TableId,
    /// The steps.
    pub steps: Vec<MoveStep>,
}

/// From one version of the schema to the next.
#[derive(Clone, PartialEq, Debug)]
pub struct SchemaChange {
    /// The objects that change.
    pub change: Change,
    /// Maps of tables that come with it, so that no node ever sees the table without its map.
    pub tablets: BTreeMap<TableId, Arc<TabletMap>>,
}

/// How the tablets of a table change.
#[derive(Clone, PartialEq, Debug)]
pub enum TabletsChange {
    /// This is the map.
    Whole(Arc<TabletMap>),
    /// Some tablets of the map that is there.
    Part(TabletChange),
}

impl SchemaChange {
    /// What makes `next` of `base`.
    #[must_use]
    pub fn between(base: &Schema, next: &Schema) -> Self {
        Self {
            change: Change::between(base, next),
            tablets: BTreeMap::new(),
        }
    }
}

impl Command {
    /// The command as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::begin(COMMAND);
        out.record(&CommandRecord::of(self));
        out.seal()
    }

    /// The command of these bytes.
    ///
    /// # Errors
    /// When they are damaged, or hold what this node does not know.
    pub fn decode(bytes: &[u8], known: &Known) -> Result<Self, Malformed> {
        let record: CommandRecord = Decoder::open(bytes, COMMAND)?.record(known)?;
        record.command().map_err(|e| COMMAND.malformed(e))
    }

    /// The features that a node must have to read the command.
    #[must_use]
    pub fn needs(&self) -> Vec<Need> {
        record::needs(&CommandRecord::of(self))
    }
}
