//! What all nodes agree on: schema, topology and tablet maps, as one immutable value.
//!
//! Invariants:
//! - The same commands in the same order make the same value on every node.
//! - A command is rejected where it needs a feature that is not enabled at its index in the log.
//! - A command that is rejected changes nothing; why it was is remembered for as many commands as [`REJECTED_MAX`], so
//!   that its proposer learns it.
//! - The history covers all commands; see `history.rs`.
//! - Every tablet map belongs to a table of the schema.
//! - What a command did not touch is shared with the value before.

pub(crate) mod bytes;
pub(crate) mod command;
pub(crate) mod features;
pub(crate) mod file;
pub(crate) mod history;
pub(crate) mod lineage;
pub(crate) mod machine;
pub(crate) mod record;

use crate::members::forgetting::Forgotten;
use crate::members::removal;
use crate::metadata::bytes::{Decoder, Encoder, Form, Malformed};
use crate::metadata::command::{Command, SchemaChange, TableMoves, TabletsChange};
use crate::metadata::history::History;
use crate::metadata::record::MetadataRecord;
use crate::operators::client_routes::ClientRoutes;
use crate::ring::{self, RingState};
use crate::tablets::goals::Altered;
use ::record::{Known, Need};
use schema::{Schema, TableId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use topology::{HostId, NodeNumber, NodeState, TabletMap, Topology, TopologyCommand};
use types::Token;

/// How many rejected commands are remembered.
pub const REJECTED_MAX: usize = 256;

const METADATA: Form = Form {
    kind: b'm',
    oldest: 1,
    format: 1,
    name: "the cluster's metadata",
};

/// What the group has noted of a node's starts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Run {
    /// How often the node came back with its data and without its metadata: each time it has another Raft id.
    pub generation: u32,
    /// The random name of its last start; 0 when none was noted in this generation.
    pub name: u64,
}

/// Schema, topology and tablet maps as of one command of the log.
#[derive(Clone, PartialEq, Debug)]
pub struct Metadata {
    /// Index of the last command that was applied.
    pub index: u64,
    /// Replicas take no request of a coordinator that has not seen the command of this index.
    pub fence: u64,
    /// All keyspaces and tables.
    pub schema: Arc<Schema>,
    /// All nodes.
    pub topology: Arc<Topology>,
    /// The maps of tables with tablets; tables of keyspaces on the token ring have none.
    pub tablets: BTreeMap<TableId, Arc<TabletMap>>,
    /// Of each table that was ever truncated: the index of the last command that did.
    pub truncations: BTreeMap<TableId, u64>,
    /// Why the last commands that were rejected were, by their index.
    pub rejected: Arc<BTreeMap<u64, Rejected>>,
    /// Identifies the commands that were applied; None before the first.
    pub history: Option<History>,
    /// Tablets are moved to be even among nodes and shards. An operator may switch that off.
    pub is_balanced: bool,
    /// The change of the token ring that is under way.
    pub ring: Option<RingState>,
    /// Of keyspaces that were altered and do not have yet what they want: what they said before.
    pub altered: BTreeMap<String, Altered>,
    /// The last start of each node that said one.
    pub runs: Arc<BTreeMap<NodeNumber, Run>>,
    /// What members hold for others that is forgotten.
    pub forgotten: BTreeMap<HostId, Forgotten>,
    /// Where clients reach nodes through proxies.
    pub client_routes: Arc<ClientRoutes>,
}

/// Why a command was not applied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rejected {
    /// It was made for another version of what it changes; it may be made again for the present one.
    Conflict {
        /// What has changed since the base of the command.
        what: String,
    },
    /// It can never be applied to the present state.
    Invalid {
        /// Why.
        why: String,
    },
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict { what } => write!(f, "{what} was concurrently changed by another node"),
            Self::Invalid { why } => f.write_str(why),
        }
    }
}

impl std::error::Error for Rejected {}

impl Metadata {
    /// The name of a node in messages to people: its address, then its id.
    #[must_use]
    pub fn name_of(&self, host: HostId) -> String {
        match self.topology.node(host) {
            Some(node) => format!("{} ({host})", node.internode.ip()),
            None => host.to_string(),
        }
    }

    /// [`Self::name_of`] by the node's number.
    pub(crate) fn name_of_number(&self, node: NodeNumber) -> String {
        let node = self.topology.numbered(node);
        node.map_or_else(|| "that is unknown".to_owned(), |node| self.name_of(node.host_id))
    }

    /// Before any command.
    #[must_use]
    pub fn new(schema: Arc<Schema>, topology: Topology) -> Self {
        Self {
            index: 0,
            fence: 0,
            schema,
            topology: Arc::new(topology),
            tablets: BTreeMap::new(),
            truncations: BTreeMap::new(),
            rejected: Arc::default(),
            history: None,
            is_balanced: true,
            ring: None,
            altered: BTreeMap::new(),
            runs: Arc::default(),
            forgotten: BTreeMap::new(),
            client_routes: Arc::default(),
        }
    }

    /// The last start of a node that the group has noted; None when it is no node of the cluster.
    #[must_use]
    pub fn run_of(&self, host_id: HostId) -> Option<Run> {
        let number = self.topology.number(host_id)?;
        Some(self.runs.get(&number).copied().unwrap_or_default())
    }

    /// How often a node came back without its metadata.
    pub(crate) fn generation_of(&self, number: NodeNumber) -> u32 {
        self.runs.get(&number).map_or(0, |run| run.generation)
    }

    /// The node that has a Raft id, or had it.
    pub(crate) fn host_of(&self, raft_id: u64) -> Option<HostId> {
        let number = crate::members::peers::node_number(raft_id)?;
        self.topology.numbered(number).map(|node| node.host_id)
    }

    /// The value after the command at an index of the log; its own index is still the one before.
    ///
    /// # Errors
    /// Why the command changes nothing.
    pub fn apply(&self, index: u64, command: &Command) -> Result<Self, Rejected> {
        if let Some(need) = self.missing_feature(&command.needs()) {
            return Err(invalid(format!(
                "{} needs feature '{}', which is not enabled",
                need.place, need.feature
            )));
        }
        let mut next = self.clone();
        match command {
            Command::RackValid(command) => {
                next = self.apply(index, command)?;
                next.check_racks(self).map_err(invalid)?;
            }
            Command::Schema(change) => {
                next.change_schema(change)?;
                next.take_replications(index, &self.schema)?;
                next.note_altered(index, self);
            }
            Command::Topology(command) => next.change_topology(index, command)?,
            Command::Tablets { table, change } => next.change_tablets(*table, change)?,
            Command::Fence { index: fence } => {
                if *fence > self.index {
                    let last = self.index;
                    return Err(invalid(format!(
                        "the command of index {fence} is later than the last one, {last}"
                    )));
                }
                next.fence = next.fence.max(*fence);
            }
            Command::Truncate { table } => {
                if self.schema.table_by_id(*table).is_none() {
                    return Err(invalid(format!("there is no table {}", table.0)));
                }
                next.truncations.insert(*table, index);
            }
            Command::Run {
                host_id,
                generation,
                former,
                name,
            } => next.note_run(
                *host_id,
                Run {
                    generation: *generation,
                    name: *former,
                },
                Run {
                    generation: *generation,
                    name: *name,
                },
            )?,
            Command::Rejoin { host_id, generation } => next.rejoin(*host_id, *generation)?,
            Command::RemoveNode { host_id } => {
                removal::check(self, *host_id).map_err(invalid)?;
                next.change_topology(index, &TopologyCommand::RemoveNode { host_id: *host_id })?;
            }
            Command::Exclude { hosts } => {
                for host_id in hosts.iter().copied() {
                    next.change_topology(index, &TopologyCommand::Exclude { host_id })?;
                }
            }
            Command::Forget { host_id, before } => next.forget(index, *host_id, *before)?,
            Command::Ring { version, step } => next.step_ring(index, *version, *step)?,
            Command::Moves(tables) => next.take_steps(index, tables)?,
            Command::Resize {
                table,
                from_version,
                tablet_count,
            } => next.resize(index, *table, (*from_version, *tablet_count))?,
            Command::Convert { table, step } => next.convert(index, *table, *step)?,
            Command::Reached { keyspace, version } => next.reach(keyspace, *version)?,
            Command::ClientRoutes(change) => next.change_client_routes(change)?,
            Command::Balance { is_balanced } => next.is_balanced = *is_balanced,
            Command::RemoveTablets { table } => {
                if next.tablets.remove(table).is_none() {
                    return Err(invalid(format!("table {} has no tablets", table.0)));
                }
            }
        }
        Ok(next)
    }

    /// The first of these needs that not every member meets, by the features that are enabled.
    #[must_use]
    pub fn missing_feature<'n>(&self, needs: &'n [Need]) -> Option<&'n Need> {
        let enabled = self.topology.enabled_features();
        needs.iter().find(|need| !enabled.contains(need.feature))
    }

    /// The value after the command of the log at an index, applied or rejected.
    #[must_use]
    pub fn step(&self, index: u64, command: &[u8], outcome: Result<Self, Rejected>) -> Self {
        let mut next = match outcome {
            Ok(next) => next,
            Err(why) => {
                let mut next = self.clone();
                let rejected = Arc::make_mut(&mut next.rejected);
                rejected.insert(index, why);
                while rejected.len() > REJECTED_MAX {
                    rejected.pop_first();
                }
                next
            }
        };
        next.index = index;
        next.history = Some(History::next(self.history, index, command));
        next
    }

    pub(crate) fn member(&self, host_id: HostId) -> Result<NodeNumber, Rejected> {
        let node = self.topology.node(host_id);
        node.filter(|node| node.state != NodeState::Left)
            .and_then(|_| self.topology.number(host_id))
            .ok_or_else(|| invalid(format!("host id {host_id} is not a member of this cluster")))
    }

    fn note_run(&mut self, host_id: HostId, former: Run, run: Run) -> Result<(), Rejected> {
        let number = self.member(host_id)?;
        if self.runs.get(&number).copied().unwrap_or_default() != former {
            return Err(Rejected::Conflict {
                what: format!("The last run of node {host_id}"),
            });
        }
        Arc::make_mut(&mut self.runs).insert(number, run);
        Ok(())
    }

    fn rejoin(&mut self, host_id: HostId, generation: u32) -> Result<(), Rejected> {
        let number = self.member(host_id)?;
        let next = self.generation_of(number).checked_add(1);
        if next != Some(generation) {
            return Err(Rejected::Conflict {
                what: format!("The Raft id of node {host_id}"),
            });
        }
        Arc::make_mut(&mut self.runs).insert(number, Run { generation, name: 0 });
        Ok(())
    }

    fn change_topology(&mut self, index: u64, command: &TopologyCommand) -> Result<(), Rejected> {
        if ring::skips_stages(&self.topology, command) {
            return Err(invalid(
                "a node becomes an owner of the token ring when the change of the ring ends",
            ));
        }
        if let TopologyCommand::Stay { host_id, tokens } = command {
            self.check_stay(*host_id, tokens)?;
        }
        self.check_leave(command)?;
        if self.takes_later(command) {
            return Ok(());
        }
        let mut topology = Topology::clone(&self.topology);
        let applied = match command {
            TopologyCommand::GiveUp { host_id, replaced_by } if self.reads_next_owners() => {
                topology.give_up_later(*host_id, *replaced_by)
            }
            _ => topology.apply(command),
        };
        applied.map_err(invalid)?;
        self.take_topology(index, topology)
    }

    /// One of the owners of the token ring must stay: two nodes that are asked to leave at the same moment are checked
    /// here one after the other.
    fn check_leave(&self, command: &TopologyCommand) -> Result<(), Rejected> {
        let TopologyCommand::SetState {
            host_id,
            state: NodeState::Leaving,
        } = command
        else {
            return Ok(());
        };
        let has_tokens = self.topology.node(*host_id).is_some_and(|node| !node.tokens.is_empty());
        if has_tokens && !self.has_other_owner(*host_id) {
            Err(invalid(
                "no other full member has tokens: no node would own the token ring",
            ))
        } else {
            Ok(())
        }
    }

    /// Whether another full member has tokens and is to keep them.
    pub(crate) fn has_other_owner(&self, host_id: HostId) -> bool {
        let mut nodes = self.topology.numbered_nodes();
        nodes.any(|(number, node)| {
            let is_owner = node.state == NodeState::Normal && !node.tokens.is_empty() && node.loss.is_none();
            is_owner && node.host_id != host_id && !self.waits_to_leave(number)
        })
    }

    /// Takes what a node that leaves has to wait with until a change of the ring has ended, or has it stay; false for
    /// all else.
    fn takes_later(&mut self, command: &TopologyCommand) -> bool {
        let (host_id, leaves) = match command {
            TopologyCommand::SetState {
                host_id,
                state: NodeState::Leaving,
            } => (*host_id, self.leaves_later(*host_id)),
            TopologyCommand::Stay { host_id, .. } => (*host_id, false),
            _ => return false,
        };
        let Some(number) = self.topology.number(host_id) else {
            return false;
        };
        match &mut self.ring {
            Some(ring) if leaves => {
                ring.leaving.insert(number);
                true
            }
            Some(ring) => ring.leaving.remove(&number),
            None => false,
        }
    }

    /// A node that leaves may take tokens back only where no node has data on the ring: it would own what it has not
    /// copied.
    fn check_stay(&self, host_id: HostId, tokens: &[Token]) -> Result<(), Rejected> {
        let has_none = self.topology.node(host_id).is_some_and(|node| node.tokens.is_empty());
        if has_none && !tokens.is_empty() && self.has_ring_data() {
            Err(invalid(format!(
                "the ranges of the token ring that node {host_id} had belong to others already"
            )))
        } else {
            Ok(())
        }
    }

    fn change_schema(&mut self, change: &SchemaChange) -> Result<(), Rejected> {
        if change.change.base != self.schema.version {
            return Err(Rejected::Conflict {
                what: "The schema".to_owned(),
            });
        }
        let schema = change.change.apply(&self.schema).map_err(invalid)?;
        let tables = || schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
        let ids: BTreeSet<TableId> = tables().map(|table| table.id).collect();
        if ids.len() != tables().count() {
            return Err(invalid("two tables have one id"));
        }
        if let Some((table, _)) = change.tablets.iter().find(|(table, _)| !ids.contains(table)) {
            return Err(invalid(format!("tablets for table {}, which is not there", table.0)));
        }
        self.tablets.retain(|table, _| ids.contains(table));
        self.truncations.retain(|table, _| ids.contains(table));
        self.tablets
            .extend(change.tablets.iter().map(|(table, map)| (*table, map.clone())));
        self.schema = Arc::new(schema);
        Ok(())
    }

    fn change_tablets(&mut self, table: TableId, change: &TabletsChange) -> Result<(), Rejected> {
        if self.schema.table_by_id(table).is_none() {
            return Err(invalid(format!("there is no table {}", table.0)));
        }
        match change {
            TabletsChange::Whole(map) => {
                self.tablets.insert(table, map.clone());
            }
            TabletsChange::Part(change) => {
                let map = self
                    .tablets
                    .get_mut(&table)
                    .ok_or_else(|| invalid(format!("table {} has no tablets", table.0)))?;
                if map.version() != change.from_version {
                    return Err(Rejected::Conflict {
                        what: format!("The tablet map of table {}", table.0),
                    });
                }
                Arc::make_mut(map).apply(change).map_err(invalid)?;
            }
        }
        Ok(())
    }

    /// Tables that were dropped, and steps that do not fit any more, are passed over.
    fn take_steps(&mut self, index: u64, tables: &[TableMoves]) -> Result<(), Rejected> {
        let mut taken = 0;
        for TableMoves { table, steps } in tables {
            if let Some(map) = self.tablets.get_mut(table) {
                taken += Arc::make_mut(map).step(index, steps).map_err(invalid)?;
            }
        }
        match taken {
            0 => Err(Rejected::Conflict {
                what: "Each tablet that was to move".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    fn resize(&mut self, index: u64, table: TableId, (from_version, tablet_count): (u64, u32)) -> Result<(), Rejected> {
        let map = self.tablets.get_mut(&table);
        let map = map.ok_or_else(|| invalid(format!("table {} has no tablets", table.0)))?;
        if map.version() != from_version {
            return Err(Rejected::Conflict {
                what: format!("The tablet map of table {}", table.0),
            });
        }
        *map = Arc::new(map.resized(index, tablet_count).map_err(invalid)?);
        Ok(())
    }

    /// All of it as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::begin(METADATA);
        out.record(&MetadataRecord::of(self));
        out.seal()
    }

    /// The value of these bytes.
    ///
    /// # Errors
    /// When they are damaged, hold what this node does not know, or describe what cannot be.
    pub fn decode(bytes: &[u8], known: &Known) -> Result<Self, Malformed> {
        let record: MetadataRecord = Decoder::open(bytes, METADATA)?.record(known)?;
        record.metadata().map_err(|e| METADATA.malformed(e))
    }
}

fn invalid(why: impl fmt::Display) -> Rejected {
    Rejected::Invalid { why: why.to_string() }
}
