//! What to do next so that every tablet has its copies where they should be, and every rack, node and shard its fair
//! share.
//!
//! [`plan`] is a function: it takes the topology, the state of each node, and each table's tablet map with its sizes,
//! its load and the replication that it should have. It returns [`Step`]s. The caller turns steps into transitions, and
//! calls again when they have ended. A tablet gets at most one step per plan, and a tablet in transition gets none: it
//! counts where it will be.
//!
//! The order of importance:
//!
//! 1. copies on lost nodes are rebuilt elsewhere ([`Step::Replace`]);
//! 2. tables get the copies that their replication wants ([`Step::Add`], [`Step::Remove`]), one per tablet and plan;
//! 3. draining nodes give their copies away ([`Step::Move`]);
//! 4. copies that share a rack without need are spread; then tables in conversion move ([`Conversion`]);
//! 5. nodes, then shards, get their fair share of bytes, then of load;
//! 6. tables are split or merged ([`Step::Resize`]).
//!
//! 5 and 6 wait until no step of 1 to 4 is left or under way, apart from what cannot be done: fair shares depend on how
//! many copies there are.
//!
//! **Why plans converge.** A step of 1 to 4 removes a defect of its tablet and makes no other. A step of 5 reduces the
//! sum of the squared relative distances from the fair shares, which depend on totals and capacities and not on where
//! copies are; so no later plan moves the tablet back. A step by load keeps bytes within the tolerance, so it causes no
//! step by bytes. The two thresholds of 6 are a factor of 4 apart.
//!
//! **Cost.** One pass over all replicas, then the logarithm of the nodes for each step, and for each pair of nodes that
//! cannot exchange anything one pass over the tablets of the first. docs/dev/balancing.md has the figures.

mod cluster;
mod convert;
mod copies;
mod level;
mod nodes;
mod planner;
mod resize;
mod shards;
mod survey;
mod target;
mod unmet;

use crate::node::{NodeNumber, Topology};
use crate::replication::Replication;
use crate::tablet_map::{Replica, ReplicaList, TabletId, TabletMap};
use planner::Planner;
pub use unmet::{Unmet, UnmetReason};

/// One table.
#[derive(Clone, Copy, Debug)]
pub struct TableInput<'a> {
    /// Where its tablets are.
    pub map: &'a TabletMap,
    /// The replication that it should have.
    pub replication: &'a Replication,
    /// The bytes of one copy of each tablet. A tablet without an entry counts as an average one.
    pub sizes: &'a [u64],
    /// The operations per second of each tablet. A tablet without an entry has none.
    pub load: &'a [f32],
    /// The table is not merged into fewer tablets.
    pub tablet_count_min: u32,
    /// The requested tablet count: the table is split until it has so many; 0 for none.
    pub tablet_count_wanted: u32,
    /// The table is not split into more tablets, and merged until it has no more.
    pub tablet_count_max: u32,
    /// Whether the table may be split or merged: its figures are those of its tablets as they are, and all nodes know
    /// how.
    pub may_resize: bool,
    /// The table goes from the token ring to tablets, or back.
    pub conversion: Option<Conversion<'a>>,
}

/// Where a table's tablets go that are pieces: cut at arbitrary tokens.
#[derive(Clone, Copy, Debug)]
pub enum Conversion<'a> {
    /// Those of each group get the same replicas; see [`TabletMap::aligned`].
    Align,
    /// To where this map of the token ring has their tokens, or will have them when its transitions have ended.
    ToRing(&'a TabletMap),
    /// Nowhere: nothing begins to move, because the map is about to be cut.
    Rest,
}

/// What a node may hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// It keeps its copies and receives more.
    Holds,
    /// It is alive and gives all copies away.
    Drains,
    /// It is permanently dead: its copies are rebuilt elsewhere.
    Lost,
    /// It keeps its copies and receives none: it is joining, a zero-token node, in maintenance, or over its disk limit.
    Idle,
    /// It does not answer now: no copy moves to or from it.
    Down,
}

/// One node. A node of the topology that is not given is `Lost` when it has left, `Idle` while it joins, else `Down`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeInput {
    /// Which.
    pub number: NodeNumber,
    /// What it may hold.
    pub role: Role,
    /// The size of its disk; 0 when unknown. Shares go by capacity when it is known of all holders of the datacenter,
    /// else by shards.
    pub capacity_bytes: u64,
    /// The bytes that its disk has in use.
    pub used_bytes: u64,
    /// The lost node whose copies it gets first.
    pub replaces: Option<NodeNumber>,
}

/// How many steps may be under way at once. Tablets in transition count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Copies that a node receives.
    pub per_node_in: u32,
    /// Copies that a node sends to another in exchange for its own.
    pub per_node_out: u32,
    /// Tablets that a node moves between its shards.
    pub per_node_shard_moves: u32,
    /// Tablets with a step.
    pub total: u32,
}

impl Limits {
    /// No limits: one plan has all steps.
    pub const NONE: Self = Self {
        per_node_in: u32::MAX,
        per_node_out: u32::MAX,
        per_node_shard_moves: u32::MAX,
        total: u32::MAX,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            per_node_in: 2,
            per_node_out: 4,
            per_node_shard_moves: 8,
            total: 1000,
        }
    }
}

/// What counts as even, full, large and hot.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// The relative distance from its fair share that a node or shard may have.
    pub tolerance: f64,
    /// The part of its disk that a node may fill by receiving.
    pub disk_fill_max: f64,
    /// Tables are split above twice this average of their tablets' bytes, and merged below half of it; 0 for never.
    pub tablet_bytes_goal: u64,
    /// A table is split because of a hot tablet only up to so many copies of its tablets per shard: one hot partition
    /// cannot be split.
    pub split_per_shard_max: u32,
    /// The operations per second of a shard below which load neither moves nor splits anything.
    pub load_min: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tolerance: 0.05,
            disk_fill_max: 0.9,
            tablet_bytes_goal: 5 << 30,
            split_per_shard_max: 100,
            load_min: 1000.0,
        }
    }
}

/// One change of one tablet, or of the count of a table's tablets. `table` is the place in the slice of tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are what their names and types say")]
pub enum Step {
    /// A copy goes to another node.
    Move {
        table: usize,
        tablet: TabletId,
        from: Replica,
        to: Replica,
    },
    /// A copy goes to another shard of its node.
    Shard {
        table: usize,
        tablet: TabletId,
        node: NodeNumber,
        from: u16,
        to: u16,
    },
    /// The tablet gets one copy more.
    Add {
        table: usize,
        tablet: TabletId,
        to: Replica,
    },
    /// The tablet loses a copy. `from` may be on a lost node.
    Remove {
        table: usize,
        tablet: TabletId,
        from: Replica,
    },
    /// The copy of a lost node is rebuilt from the others.
    Replace {
        table: usize,
        tablet: TabletId,
        lost: Replica,
        to: Replica,
    },
    /// All tablets are split in two, or each pair (2n, 2n + 1) is merged. Both tablets of a pair have the same
    /// replicas, shards included.
    Resize { table: usize, tablet_count: u32 },
}

/// A piece of a table in conversion gets other replicas, all at once: others on the same nodes are on other shards of
/// them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Relocation {
    /// The table, by its place in the slice of tables.
    pub table: usize,
    /// The piece.
    pub tablet: TabletId,
    /// Its replicas afterwards.
    pub next: ReplicaList,
}

/// The largest relative distance from the fair share; 0.05 is 5 % too much or too little.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Deviation {
    /// Of the racks: the holders of a rack together.
    pub rack: f64,
    /// Of the holders.
    pub node: f64,
    /// Of the shards of a holder, from the average of that node.
    pub shard: f64,
}

/// What [`plan`] decides.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Plan {
    /// In order of importance. Each tablet has one at most.
    pub steps: Vec<Step>,
    /// The moves of tables in conversion. A tablet has one of these or a step.
    pub relocations: Vec<Relocation>,
    /// The tables that should have another number of tablets, and that number. One without a step waits for moves.
    pub wanted: Vec<(usize, u32)>,
    /// What is required and cannot be done, with the number of tablets.
    pub unmet: Vec<Unmet>,
    /// Tablets whose repair, replication, drain or spread waits because limits are reached.
    pub deferred: u64,
    /// The bytes that the steps copy between nodes.
    pub copied_bytes: u64,
    /// Bytes now.
    pub bytes_before: Deviation,
    /// Bytes after the steps.
    pub bytes_after: Deviation,
    /// Load now.
    pub load_before: Deviation,
    /// Load after the steps.
    pub load_after: Deviation,
}

/// Decides on the next steps.
#[must_use]
pub fn plan(
    topology: &Topology,
    nodes: &[NodeInput],
    tables: &[TableInput<'_>],
    limits: &Limits,
    options: &Options,
) -> Plan {
    let mut planner = Planner::new(topology, nodes, tables, limits, options);
    let work = planner.survey();
    planner.set_shares();
    let (bytes_before, load_before) = planner.deviations();
    planner.copies(&work);
    planner.pin_conversions();
    planner.convert();
    let resizes = planner.choose_resizes();
    let is_settled =
        planner.steps.is_empty() && planner.relocations.is_empty() && planner.deferred == 0 && !work.has_unfinished;
    if is_settled {
        planner.scale_shares();
        planner.level_nodes();
        planner.level_shards();
        planner.resize(&resizes);
    }
    planner.scale_shares();
    let (bytes_after, load_after) = planner.deviations();
    Plan {
        wanted: resizes.iter().map(|resize| planner.wanted(*resize)).collect(),
        steps: planner.steps,
        relocations: planner.relocations,
        unmet: planner.unmet.into_list(),
        deferred: planner.deferred,
        copied_bytes: planner.copied_bytes,
        bytes_before,
        bytes_after,
        load_before,
        load_after,
    }
}
