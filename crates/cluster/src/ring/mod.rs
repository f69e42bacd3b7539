//! Changes of the token ring's owners: when nodes with tokens join, leave or are given up, and when the replication of
//! a keyspace without tablets changes.
//!
//! All of it is one *change of the ring*, which the metadata store ([`RingState`]). Its stages are those of a tablet
//! ([`topology::Stage`]), for all ranges at once. Each ends when it has *passed* (see `mover.rs`), or when all nodes
//! concerned have reported `Done`:
//!
//! - `CleanupTarget`: writes go to the owners alone; writes of an earlier change may still reach next owners.
//! - `AllowWriteBothReadOld`: each node that gains ranges removes the data that it has there from an earlier time, and
//!   reports `Done`.
//! - `WriteBothReadOld`: writes go to the owners and to the next ones.
//! - `Streaming`: each next owner copies what it lacks ([`topology::fills`]), and reports `Done`.
//! - `WriteBothReadNew`: the next owners are read. The owners that lose a range must have passed this stage too.
//! - `UseNew`: the next owners are written and read. The former owners must have passed this stage too.
//!
//! After the last stage nodes that joined are full members, those that leave have no tokens, and the former
//! replications are forgotten.
//!
//! While the former owners are read, the change can become another: one more node joins, one gives up joining, an
//! operator gives up a third. It begins again from the first stage then, for all of it together. Afterwards it cannot.
//! What comes then waits in the metadata, and the command that ends the change begins the next one with all of it:
//! another replication of a keyspace ([`RingState::towards`]), a node that leaves ([`RingState::leaving`]), a node that
//! is given up (its loss is noted). A node that joins has no tokens until it takes them, and tries until it can.
//!
//! Where no keyspace without tablets has tables, no node owns anything of the ring, and a change ends in the command
//! that begins it. Keyspaces of the system do not count: they follow at once, and what was traced may be missed.

pub(crate) mod copies;
pub(crate) mod tokens;

use crate::metadata::{Metadata, Rejected};
use schema::{Keyspace, TableId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use topology::{
    DatacenterNumber, Fill, HostId, Locality, NodeNumber, NodeState, Replica, ReplicaList, Replication, RingChange,
    Source, Stage, TabletMap, TooFewSources, Topology, changing_ring_map, fills,
};
use types::Token;

/// A change of the ring that is under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RingState {
    /// The index of the command with which the stage began.
    pub version: u64,
    /// The stage.
    pub stage: Stage,
    /// The nodes that have removed what they had, or copied what they lacked. Only in the stages in which they do so.
    pub done: BTreeSet<NodeNumber>,
    /// The former replications of keyspaces whose replication changes.
    pub former: Replications,
    /// The replications with which this change ends, of keyspaces that were altered while the next owners were read
    /// already. What the schema says is for the next change.
    pub towards: Replications,
    /// Full members that begin to leave when this change has ended.
    pub leaving: BTreeSet<NodeNumber>,
}

/// The options of replications, by keyspace.
pub type Replications = BTreeMap<String, BTreeMap<String, String>>;

/// One step of a change of the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingStep {
    /// It enters the next stage.
    Advance {
        /// Which.
        stage: Stage,
    },
    /// A node has done what the stage asks of next owners.
    Done {
        /// The node.
        host_id: HostId,
    },
    /// It ends.
    End,
}

/// A range of the ring that gets other owners, for the tables of a keyspace.
struct RingMove {
    tables: Arc<[TableId]>,
    /// The range begins after this token,
    after: Token,
    /// and ends with this one.
    to: Token,
    owners: ReplicaList,
    next: ReplicaList,
}

impl RingMove {
    /// The next owners that are none yet. What an owner has of a range that it keeps is not older than what others
    /// have.
    fn gains(&self) -> impl Iterator<Item = &Replica> {
        let is_new = |next: &&Replica| self.owners.iter().all(|owner| owner.node != next.node);
        self.next.iter().filter(is_new)
    }

    /// The owners that are none afterwards.
    fn losers(&self) -> impl Iterator<Item = &Replica> {
        let goes = |owner: &&Replica| self.next.iter().all(|next| next.node != owner.node);
        self.owners.iter().filter(goes)
    }
}

/// Ranges of tables, by the shard that has them.
pub(crate) type RangesOfShards = BTreeMap<(TableId, u16), Vec<(Token, Token)>>;

/// A range of the ring that a node must copy for the tables of a keyspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RingFill {
    pub(crate) tables: Arc<[TableId]>,
    /// The range begins after this token,
    pub(crate) after: Token,
    /// and ends with this one.
    pub(crate) to: Token,
    pub(crate) fill: Fill,
    /// The node is not an owner of the range yet.
    pub(crate) is_new: bool,
}

/// Adds a range, or makes one of the last so many longer that ends where it begins and is like it in all else.
fn push_range(all: &mut Vec<RingFill>, next: RingFill, among: usize) {
    let is_alike = |last: &RingFill| (last.is_new, &last.fill, &last.tables) == (next.is_new, &next.fill, &next.tables);
    let mut latest = all.iter_mut().rev().take(among);
    match latest.find(|last| last.to == next.after && is_alike(last)) {
        Some(last) => last.to = next.to,
        None => all.push(next),
    }
}

impl Metadata {
    /// How far the ring is on its way to other owners.
    #[must_use]
    pub fn ring_change(&self) -> RingChange {
        self.ring.as_ref().map_or(
            RingChange {
                version: self.index,
                stage: Stage::WriteBothReadOld,
            },
            |ring| RingChange {
                version: ring.version,
                stage: ring.stage,
            },
        )
    }

    /// The keyspaces without tablets whose data is on the ring, with their tables there.
    pub(crate) fn ring_keyspaces(&self) -> impl Iterator<Item = (&Keyspace, Arc<[TableId]>)> {
        let users = self
            .schema
            .keyspaces
            .values()
            .filter(|keyspace| !is_of_system(&keyspace.name));
        users.filter_map(|keyspace| {
            let ids = keyspace.tables.values().map(|table| table.id);
            let tables: Arc<[TableId]> = ids.filter(|id| !self.tablets.contains_key(id)).collect();
            (!tables.is_empty()).then_some((&**keyspace, tables))
        })
    }

    /// The replication that a keyspace on the ring has after the change in progress; its own if none is in progress.
    pub(crate) fn ring_replication_of<'k>(&'k self, keyspace: &'k Keyspace) -> &'k BTreeMap<String, String> {
        let towards = self.ring.as_ref().and_then(|ring| ring.towards.get(&keyspace.name));
        towards.unwrap_or(&keyspace.replication)
    }

    /// The owners of a keyspace on the ring, and its next ones; None when its replication cannot be understood, or
    /// gives it no place.
    pub(crate) fn ring_map_of(&self, keyspace: &Keyspace) -> Option<TabletMap> {
        let next = replication_of(&self.topology, self.ring_replication_of(keyspace))?;
        let former = self.ring.as_ref().and_then(|ring| ring.former.get(&keyspace.name));
        let former = match former {
            Some(options) => replication_of(&self.topology, options)?,
            None => next.clone(),
        };
        changing_ring_map(&self.topology, (&former, &next), self.ring_change()).ok()
    }

    /// What must be copied before the next owners of the ring are read, when these nodes can be read.
    ///
    /// # Errors
    /// When too few owners of a range can be read.
    pub(crate) fn ring_fills(
        &self,
        locality: &Locality,
        is_live: impl Fn(HostId) -> bool,
    ) -> Result<Vec<RingFill>, TooFewSources> {
        let datacenter = |node: NodeNumber| -> DatacenterNumber { locality.datacenter(node) };
        let source = |node: NodeNumber| self.source(node, &is_live);
        let mut all: Vec<RingFill> = Vec::new();
        for range in self.ring_moves() {
            for fill in fills(&range.owners, &range.next, datacenter, source)? {
                let next = RingFill {
                    tables: range.tables.clone(),
                    after: range.after,
                    to: range.to,
                    is_new: range.owners.iter().all(|owner| owner.node != fill.target.node),
                    fill,
                };
                push_range(&mut all, next, range.next.len());
            }
        }
        Ok(all)
    }

    /// The ranges that get other owners, in order for each keyspace.
    fn ring_moves(&self) -> impl Iterator<Item = RingMove> {
        self.ring_keyspaces().flat_map(|(keyspace, tables)| {
            let map = self.ring_map_of(keyspace);
            let moves = map.iter().flat_map(|map| {
                map.moving().filter_map(|tablet| {
                    let (after, to) = map.token_range(tablet.id)?;
                    Some(RingMove {
                        tables: tables.clone(),
                        after,
                        to,
                        owners: tablet.replicas.into(),
                        next: tablet.transition?.next.clone(),
                    })
                })
            });
            moves.collect::<Vec<_>>()
        })
    }

    /// The nodes that have replicas of a table, or will have some after the change.
    pub(crate) fn hosts_of(&self, table: TableId) -> BTreeSet<HostId> {
        let on_ring = || {
            let mut keyspaces = self.schema.keyspaces.values();
            let keyspace = keyspaces.find(|keyspace| keyspace.tables.values().any(|known| known.id == table))?;
            self.ring_map_of(keyspace).map(Arc::new)
        };
        let Some(map) = self.tablets.get(&table).cloned().or_else(on_ring) else {
            return BTreeSet::new();
        };
        let numbers: BTreeSet<NodeNumber> = map
            .tablets()
            .flat_map(|tablet| {
                let next = tablet.transition.map_or(&[][..], |transition| &transition.next);
                tablet
                    .replicas
                    .iter()
                    .chain(next)
                    .map(|replica| replica.node)
                    .collect::<Vec<_>>()
            })
            .collect();
        let hosts = numbers.into_iter().filter_map(|number| self.topology.numbered(number));
        hosts.map(|node| node.host_id).collect()
    }

    /// The nodes that will own ranges of the ring after the change.
    pub(crate) fn ring_gainers(&self) -> BTreeSet<NodeNumber> {
        let gains = self.ring_moves();
        gains
            .flat_map(|range| range.gains().map(|owner| owner.node).collect::<Vec<_>>())
            .collect()
    }

    /// What a node will own after the change.
    pub(crate) fn ring_gains(&self, node: NodeNumber) -> RangesOfShards {
        let mut gains = RangesOfShards::new();
        for range in self.ring_moves() {
            let Some(owner) = range.gains().find(|owner| owner.node == node) else {
                continue;
            };
            for table in &*range.tables {
                let ranges = gains.entry((*table, owner.shard)).or_default();
                match ranges.last_mut().filter(|last| last.1 == range.after) {
                    Some(last) => last.1 = range.to,
                    None => ranges.push((range.after, range.to)),
                }
            }
        }
        gains
    }

    /// What a replica is worth to others that copy, when these nodes answer. One that is excluded may be removed or
    /// replaced later, and counts as a replica until then.
    pub(crate) fn source(&self, node: NodeNumber, is_live: impl Fn(HostId) -> bool) -> Source {
        match self.topology.numbered(node) {
            None => Source::Gone,
            Some(node) if node.loss.is_some() || node.state == NodeState::Left => Source::Gone,
            Some(node) if self.topology.is_excluded(node.host_id) => Source::Excluded,
            Some(node) if !is_live(node.host_id) => Source::Down,
            Some(node) if !node.state.serves_reads() => Source::Down,
            Some(_) => Source::Readable,
        }
    }

    /// Whether a node that is to take the place of a lost one has not taken its tokens yet.
    pub(crate) fn awaits_heir(&self) -> bool {
        let mut heirs = self.topology.members().filter_map(|node| node.loss?.replaced_by);
        let is_coming = |heir: &topology::Node| heir.state == NodeState::Joining && heir.tokens.is_empty();
        heirs.any(|heir| self.topology.node(heir).is_none_or(is_coming))
    }

    /// The nodes that lose a range of the ring.
    pub(crate) fn ring_losers(&self) -> BTreeSet<NodeNumber> {
        let moves = self.ring_moves();
        moves
            .flat_map(|range| range.losers().map(|owner| owner.node).collect::<Vec<_>>())
            .collect()
    }

    /// The value with another topology, as of the command at an index. Begins a change of the ring where owners become
    /// others.
    pub(crate) fn take_topology(&mut self, index: u64, topology: Topology) -> Result<(), Rejected> {
        let after = pending(&topology);
        // Once the next owners are read, the loss of a node does not matter any more for what was copied.
        let is_other = if self.reads_next_owners() {
            !pending(&self.topology).iter().map(owner).eq(after.iter().map(owner))
        } else {
            pending(&self.topology) != after
        };
        let is_new = self.ring.is_none() && !after.is_empty();
        self.topology = Arc::new(topology);
        if !(is_other || is_new) {
            Ok(())
        } else if self.reads_next_owners() {
            Err(Rejected::Conflict {
                what: "The token ring goes to other owners at the moment; it".to_owned(),
            })
        } else {
            let former = self.ring.take().map(|ring| ring.former).unwrap_or_default();
            self.begin_ring_change(index, former)
        }
    }

    /// Begins a change of the ring where replications of keyspaces on it become others. `former` is the schema before.
    pub(crate) fn take_replications(&mut self, index: u64, former: &schema::Schema) -> Result<(), Rejected> {
        let on_ring = self.ring_keyspaces();
        let wanted: Replications = on_ring
            .map(|(keyspace, _)| (keyspace.name.clone(), keyspace.replication.clone()))
            .collect();
        let before = |name: &str| Some(&former.keyspaces.get(name)?.replication);
        let Some(ring) = &mut self.ring else {
            let changed = unlike(&wanted, before);
            return if changed.is_empty() {
                Ok(())
            } else {
                self.begin_ring_change(index, changed)
            };
        };
        // Of those that are dropped nothing is left to do.
        ring.former.retain(|name, _| wanted.contains_key(name));
        if ring.stage.reads_new() {
            ring.towards = unlike(&wanted, |name| ring.towards.get(name).or_else(|| before(name)));
            return Ok(());
        }
        let changed = unlike(&wanted, |name| ring.former.get(name).or_else(|| before(name)));
        if ring.former == changed {
            Ok(())
        } else {
            self.begin_ring_change(index, changed)
        }
    }

    /// Begins a change of the ring, in the place of one that is under way. `former` has the replications before.
    fn begin_ring_change(&mut self, index: u64, former: Replications) -> Result<(), Rejected> {
        self.ring = None;
        if !self.topology.has_ring_change() && former.is_empty() {
            return Ok(());
        }
        self.ring = Some(RingState {
            version: index,
            stage: Stage::CleanupTarget,
            done: BTreeSet::new(),
            former,
            towards: BTreeMap::new(),
            leaving: BTreeSet::new(),
        });
        if self.has_ring_data() {
            Ok(())
        } else {
            self.end_ring_change(index)
        }
    }

    /// Whether a change of the ring is in a stage in which the next owners are read.
    pub(crate) fn reads_next_owners(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.stage.reads_new())
    }

    /// Whether a node that is asked to leave begins only after the change of the ring that is in progress.
    pub(crate) fn leaves_later(&self, host_id: HostId) -> bool {
        let is_owner = |node: &topology::Node| node.state == NodeState::Normal && !node.tokens.is_empty();
        self.reads_next_owners() && self.topology.node(host_id).is_some_and(is_owner)
    }

    /// Whether a node waits for the end of a change of the ring to begin to leave.
    pub(crate) fn waits_to_leave(&self, number: NodeNumber) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.leaving.contains(&number))
    }

    /// What has waited for the end makes the next change begin: nodes that leave or were given up, and replications.
    fn end_ring_change(&mut self, index: u64) -> Result<(), Rejected> {
        let ended = self.ring.take();
        let topology = Arc::make_mut(&mut self.topology);
        topology.end_ring_change();
        let (towards, leaving) = ended.map(|ring| (ring.towards, ring.leaving)).unwrap_or_default();
        for number in leaving {
            let node = topology.numbered(number).filter(|node| node.state == NodeState::Normal);
            if let Some(host_id) = node.map(|node| node.host_id) {
                let state = NodeState::Leaving;
                let leave = topology::TopologyCommand::SetState { host_id, state };
                topology
                    .apply(&leave)
                    .map_err(|e| Rejected::Invalid { why: e.to_string() })?;
            }
        }
        let wanted = self.ring_keyspaces();
        let wanted = wanted
            .map(|(keyspace, _)| (keyspace.name.clone(), keyspace.replication.clone()))
            .collect();
        let former = unlike(&wanted, |name| towards.get(name));
        self.begin_ring_change(index, former)
    }

    /// The value after a step of the change whose stage began with the command `version`.
    pub(crate) fn step_ring(&mut self, index: u64, version: u64, step: RingStep) -> Result<(), Rejected> {
        let conflict = || Rejected::Conflict {
            what: "The token ring".to_owned(),
        };
        let number = match step {
            RingStep::Done { host_id } => Some(self.topology.number(host_id).ok_or_else(conflict)?),
            RingStep::Advance { .. } | RingStep::End => None,
        };
        let ring = self
            .ring
            .as_mut()
            .filter(|ring| ring.version == version)
            .ok_or_else(conflict)?;
        match (step, number) {
            (RingStep::Advance { stage }, _) if stage_after(ring.stage) == Some(stage) => {
                ring.stage = stage;
                ring.version = index;
                ring.done.clear();
            }
            (RingStep::Done { .. }, Some(number)) if asks_next_owners(ring.stage) => {
                ring.done.insert(number);
            }
            (RingStep::End, _) if ring.stage == Stage::UseNew => self.end_ring_change(index)?,
            _ => return Err(conflict()),
        }
        Ok(())
    }
}

/// The stage of the ring after this one; None after the last.
pub(crate) fn stage_after(stage: Stage) -> Option<Stage> {
    match stage {
        Stage::CleanupTarget => Some(Stage::AllowWriteBothReadOld),
        stage => stage.next(),
    }
}

/// Whether next owners of the ring have something to do in a stage, which they say when they have done it.
pub(crate) fn asks_next_owners(stage: Stage) -> bool {
    matches!(stage, Stage::AllowWriteBothReadOld | Stage::Streaming)
}

/// Whether a command would make a node an owner of the ring that has not copied what it lacks.
pub(crate) fn skips_stages(topology: &Topology, command: &topology::TopologyCommand) -> bool {
    let topology::TopologyCommand::SetState { host_id, state } = command else {
        return false;
    };
    let node = topology.node(*host_id);
    let joins = node.is_some_and(|node| node.state == NodeState::Joining && !node.tokens.is_empty());
    joins && *state == NodeState::Normal
}

/// Of the keyspaces that want another replication than the one before: that one.
fn unlike<'r>(wanted: &Replications, before: impl Fn(&str) -> Option<&'r BTreeMap<String, String>>) -> Replications {
    let others = wanted.iter().filter_map(|(name, wanted)| {
        let before = before(name).filter(|before| *before != wanted)?;
        Some((name.clone(), before.clone()))
    });
    others.collect()
}

pub(crate) fn is_of_system(keyspace: &str) -> bool {
    keyspace == "system" || keyspace.starts_with("system_")
}

/// The replication of these options.
pub(crate) fn parsed_replication(topology: &Topology, options: &BTreeMap<String, String>) -> Option<Replication> {
    let mut datacenters: BTreeSet<&str> = topology.datacenters();
    let named = options.keys().map(String::as_str);
    datacenters.extend(named.filter(|name| !matches!(*name, "class" | "replication_factor")));
    Replication::parse(options, &datacenters).ok()
}

/// The replication of these options without datacenters that have no nodes.
pub(crate) fn replication_of(topology: &Topology, options: &BTreeMap<String, String>) -> Option<Replication> {
    let mut replication = parsed_replication(topology, options)?;
    if let Replication::NetworkTopology(factors) = &mut replication {
        let known: BTreeSet<&str> = topology.datacenters();
        factors.retain(|name, _| known.contains(name.as_str()));
    }
    Some(replication)
}

/// A node that is to become an owner of the ring, or not to be one any more: its state, whether it is lost, its tokens.
type Pending<'t> = (HostId, NodeState, bool, &'t [Token]);

fn pending(topology: &Topology) -> Vec<Pending<'_>> {
    let is_pending = |node: &&topology::Node| {
        matches!(node.state, NodeState::Joining | NodeState::Leaving) && !node.tokens.is_empty()
    };
    let members = topology.members().filter(is_pending);
    members
        .map(|node| (node.host_id, node.state, node.loss.is_some(), &*node.tokens))
        .collect()
}

/// The fields that decide which node owns what.
fn owner<'p>((host_id, state, _, tokens): &'p Pending<'_>) -> (HostId, NodeState, &'p [Token]) {
    (*host_id, *state, tokens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn replica(node: u16) -> Replica {
        Replica {
            node: NodeNumber(node),
            shard: 0,
        }
    }

    fn fill(after: i64, to: i64) -> RingFill {
        RingFill {
            tables: [TableId(Uuid::from_u128(1))].into(),
            after: Token(after),
            to: Token(to),
            fill: Fill {
                target: replica(3),
                sources: ReplicaList::from_slice(&[replica(1), replica(2)]),
            },
            is_new: true,
        }
    }

    #[test]
    fn neighbouring_ranges_that_are_filled_alike_are_one() {
        let mut all = Vec::new();
        for (after, to) in [(0, 5), (5, 9), (10, 12)] {
            push_range(&mut all, fill(after, to), 2);
        }
        assert_eq!(all, [fill(0, 9), fill(10, 12)]);
    }

    /// What a node has of a range that it owns already must not be removed because it owns the neighbour not yet.
    #[test]
    fn a_range_that_the_node_owns_already_is_not_one_with_its_neighbour() {
        let owned = RingFill {
            is_new: false,
            ..fill(5, 9)
        };
        let mut all = Vec::new();
        for next in [fill(0, 5), owned.clone(), fill(9, 12)] {
            push_range(&mut all, next, 2);
        }
        assert_eq!(all, [fill(0, 5), owned, fill(9, 12)]);
    }
}
