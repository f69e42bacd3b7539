//! From the metadata to the next steps of tablets: what [`topology::plan`] decides, as commands.
//!
//! The leader plans; see `balancer.rs`. Whether something can go anywhere is asked by any node, before an operation
//! begins.

use crate::config::Disk;
use crate::metadata::Metadata;
use crate::metadata::command::{Command, TableMoves, TabletsChange};
use crate::ring::{is_of_system, parsed_replication};
use crate::tablets::convert::WantedKind;
use crate::tablets::counts::TabletCounts;
use crate::tablets::survey::{Figures, Survey};
use schema::{Keyspace, Table, TableId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stdx::planted::{self, Bug};
use topology::{
    Deviation, HostId, Limits, MoveStep, NodeInput, NodeNumber, NodeState, Options, Plan, Replica, ReplicaList,
    Replication, Role, Step, TableInput, TabletChange, TabletEdit, TabletId, TabletMap, Topology, UnmetReason, plan,
};

/// The part of its disk that a node may fill by receiving tablets: a little less than the default at which nodes refuse
/// data.
const DISK_FILL_MAX: f64 = 0.97;

/// What a plan is made from, besides the metadata.
#[derive(Clone, Default)]
pub(crate) struct Situation {
    /// The nodes that answer.
    pub(crate) live: BTreeSet<HostId>,
    /// A node that would leave, in this role.
    pub(crate) would_leave: Option<(HostId, Role)>,
    /// The nodes whose disks take no data.
    pub(crate) full: BTreeSet<HostId>,
    /// What members say of their tablets. A table that it has no figures of counts as one of equal tablets.
    pub(crate) survey: Arc<Survey>,
    /// How large tablets should be; 0 for any size.
    pub(crate) tablet_bytes_goal: u64,
}

/// The next steps, and what cannot be done.
pub(crate) struct Planned {
    /// In the order in which they are proposed.
    pub(crate) commands: Vec<Command>,
    /// Of each node that leaves: why some of its replicas cannot go anywhere.
    pub(crate) unmet: BTreeMap<NodeNumber, String>,
    /// What a replication wants and the cluster cannot give, as sentences.
    pub(crate) lacks: Vec<String>,
    /// How many tablets tables should have; those that are not there should have as many as they have.
    pub(crate) wanted: BTreeMap<TableId, u32>,
    /// How many tablets tables have at least.
    pub(crate) least: BTreeMap<TableId, u32>,
    /// How far bytes are from the fair shares now, then load.
    pub(crate) deviations: [Deviation; 2],
}

impl Metadata {
    /// The nodes that leave.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = (NodeNumber, &topology::Node)> {
        let nodes = self.topology.numbered_nodes();
        nodes.filter(|(_, node)| node.state == NodeState::Leaving)
    }

    /// Plans the next steps of all tablets.
    pub(crate) fn plan_moves(&self, situation: &Situation, limits: &Limits) -> Planned {
        let nodes = self.node_inputs(situation);
        let leaves = |number: NodeNumber| {
            let role = nodes.iter().find(|node| node.number == number).map(|node| node.role);
            matches!(role, Some(Role::Drains | Role::Lost))
        };
        let placed = self.placed_tables();
        let ids: Vec<TableId> = placed.iter().map(|placed| placed.table.id).collect();
        // A tablet in transition gets no step, so the plan would not report that it cannot move on from where it
        // arrives.
        let asks = situation.would_leave.is_some();
        let arrived = |id: &TableId| if asks { self.tablets[id].arrived() } else { None };
        let arrived: Vec<Option<TabletMap>> = ids.iter().map(arrived).collect();
        let conversions = self.conversions(&situation.survey);
        let may_resize = self.is_balanced;
        let tables: Vec<TableInput<'_>> = placed
            .iter()
            .zip(&arrived)
            .map(|(placed, arrived)| {
                let id = placed.table.id;
                let map = arrived.as_ref().unwrap_or(&self.tablets[&id]);
                let figures = situation.survey.of(id, map);
                let counts = placed.counts(&self.topology, situation.tablet_bytes_goal);
                TableInput {
                    map,
                    replication: &placed.replication,
                    sizes: figures.map_or(&[][..], |figures| &figures.bytes),
                    load: figures.map_or(&[][..], |figures| &figures.load),
                    tablet_count_min: counts.least,
                    tablet_count_wanted: counts.wanted,
                    tablet_count_max: counts.most,
                    may_resize: may_resize && placed.may_be_resized() && figures.is_some_and(Figures::are_complete),
                    conversion: conversions.goal(id),
                }
            })
            .collect();
        let least = tables.iter().map(|table| table.tablet_count_min);
        let least = ids.iter().copied().zip(least).collect();
        let options = Options {
            tablet_bytes_goal: situation.tablet_bytes_goal,
            disk_fill_max: DISK_FILL_MAX,
            ..Options::default()
        };
        let plan = plan(&self.topology, &nodes, &tables, limits, &options);
        let steps = self.steps_of(&plan, &ids, leaves);
        let mut commands = conversions.commands;
        commands.extend(steps.commands(self));
        let mut planned = Planned {
            commands,
            unmet: BTreeMap::new(),
            lacks: Vec::new(),
            wanted: plan.wanted.iter().map(|(table, count)| (ids[*table], *count)).collect(),
            least,
            deviations: [plan.bytes_before, plan.load_before],
        };
        for missing in &plan.unmet {
            let table = self.table_name(ids[missing.table]);
            let reason = missing.reason.told(|node| self.name_of_number(node));
            let why = format!("{} tablets of table {table}: {reason}", missing.tablets);
            for node in nodes.iter().map(|node| node.number).filter(|number| leaves(*number)) {
                let datacenter = self.topology.numbered(node).map(|node| &*node.location.datacenter);
                if node_concerns(&missing.reason, node, datacenter.unwrap_or_default()) {
                    planned.unmet.entry(node).or_insert_with(|| why.clone());
                }
            }
            planned.lacks.push(why);
        }
        planned.lacks.extend(self.copies_that_the_ring_lacks());
        planned
    }

    /// Keyspaces with tables on the token ring of which there are fewer copies than they want, for want of nodes with
    /// tokens.
    fn copies_that_the_ring_lacks(&self) -> Vec<String> {
        let owners = |datacenter: Option<&str>| {
            let owners = self.topology.members().filter(|node| !node.tokens.is_empty());
            owners
                .filter(|node| datacenter.is_none_or(|name| node.location.datacenter == name))
                .count()
        };
        let is_on_ring = |keyspace: &&Arc<Keyspace>| {
            let mut tables = keyspace.tables.values();
            !is_of_system(&keyspace.name) && tables.any(|table| !self.tablets.contains_key(&table.id))
        };
        let mut lacks = Vec::new();
        for keyspace in self.schema.keyspaces.values().filter(is_on_ring) {
            let wanted: Vec<(Option<String>, u16)> = match parsed_replication(&self.topology, &keyspace.replication) {
                Some(Replication::Simple { factor }) => vec![(None, factor)],
                Some(Replication::NetworkTopology(copies)) => {
                    let copies = copies.into_iter();
                    copies
                        .map(|(datacenter, copies)| (Some(datacenter), copies.number()))
                        .collect()
                }
                Some(Replication::Local | Replication::Everywhere) | None => Vec::new(),
            };
            for (datacenter, factor) in wanted {
                let nodes = owners(datacenter.as_deref());
                if nodes < usize::from(factor) {
                    let reason = UnmetReason::TooFewNodes {
                        datacenter,
                        factor,
                        nodes,
                    };
                    lacks.push(format!(
                        "tables of keyspace {} on the token ring: {reason}",
                        keyspace.name
                    ));
                }
            }
        }
        lacks
    }

    /// The steps of a plan that are to be done now.
    fn steps_of(&self, plan: &Plan, ids: &[TableId], leaves: impl Fn(NodeNumber) -> bool) -> Steps {
        let mut steps = Steps::default();
        for step in &plan.steps {
            let (table, tablet, from, to) = match *step {
                Step::Move {
                    table,
                    tablet,
                    from,
                    to,
                } if self.is_balanced || leaves(from.node) => (table, tablet, Some(from), Some(to)),
                Step::Replace {
                    table,
                    tablet,
                    lost,
                    to,
                } => (table, tablet, Some(lost), Some(to)),
                Step::Add { .. } if planted::is_planted(Bug::ForgottenCopy) => continue,
                Step::Add { table, tablet, to } => (table, tablet, None, Some(to)),
                Step::Remove { table, tablet, from } => (table, tablet, Some(from), None),
                Step::Shard {
                    table,
                    tablet,
                    node,
                    to,
                    ..
                } if self.is_balanced => {
                    steps.move_between_shards(self, ids[table], tablet, Replica { node, shard: to });
                    continue;
                }
                Step::Resize { table, tablet_count } => {
                    steps.resize(self, ids[table], tablet_count);
                    continue;
                }
                // The operator wants no balance.
                Step::Move { .. } | Step::Shard { .. } => continue,
            };
            steps.begin(self, ids[table], tablet, from, to);
        }
        for moved in &plan.relocations {
            steps.relocate(self, ids[moved.table], moved.tablet, &moved.next);
        }
        steps
    }

    fn node_inputs(&self, situation: &Situation) -> Vec<NodeInput> {
        let replaced = |host: HostId| self.topology.replaced_by(host).map(|(number, _)| number);
        // A node that is asked to leave, or to be removed, may wait for a joining node that takes no other's place:
        // where the token ring waits for both, neither would end before the other.
        let comes = |node: &topology::Node| {
            node.state == NodeState::Joining
                && !node.tokens.is_empty()
                && replaced(node.host_id).is_none()
                && situation.live.contains(&node.host_id)
        };
        let role = |node: &topology::Node| match situation.would_leave {
            Some((host, role)) if host == node.host_id => role,
            Some(_) if comes(node) => Role::Holds,
            _ => self.role_of(node, |host| situation.live.contains(&host)),
        };
        // One that refuses data has no room, whatever it says.
        let disk = |host: HostId| {
            let disk = situation.survey.disk(host)?;
            let used = if situation.full.contains(&host) {
                disk.capacity
            } else {
                disk.used
            };
            Some(Disk { used, ..disk })
        };
        let members = self
            .topology
            .numbered_nodes()
            .filter(|(_, node)| node.state != NodeState::Left);
        members
            .map(|(number, node)| NodeInput {
                number,
                role: role(node),
                capacity_bytes: disk(node.host_id).map_or(0, |disk| disk.capacity),
                used_bytes: disk(node.host_id).map_or(0, |disk| disk.used),
                replaces: replaced(node.host_id),
            })
            .collect()
    }

    /// The tables that have tablets, where the replications of their keyspaces are known.
    fn placed_tables(&self) -> Vec<PlacedTable<'_>> {
        let mut placed = Vec::new();
        for keyspace in self.schema.keyspaces.values() {
            let Some(replication) = parsed_replication(&self.topology, &keyspace.replication) else {
                continue;
            };
            let replication = Arc::new(replication);
            let tables = keyspace.tables.values();
            let with_tablets = tables.filter(|table| self.tablets.contains_key(&table.id));
            placed.extend(with_tablets.map(|table| PlacedTable {
                table,
                keyspace,
                replication: replication.clone(),
            }));
        }
        placed
    }

    /// How many tablets a table may have, where tablets of `bytes_goal` are usual.
    pub(crate) fn tablet_counts(&self, table: TableId, bytes_goal: u64) -> TabletCounts {
        let table = self.schema.table_by_id(table);
        let keyspace = table.and_then(|table| self.schema.keyspaces.get(&table.keyspace));
        let replication = keyspace.and_then(|keyspace| parsed_replication(&self.topology, &keyspace.replication));
        let options = table.and_then(|table| table.options.tablets.as_ref());
        TabletCounts::of(
            &self.topology,
            replication.as_ref(),
            keyspace.map(|keyspace| &**keyspace),
            options,
            bytes_goal,
        )
    }

    pub(crate) fn table_name(&self, table: TableId) -> String {
        let known = self.schema.table_by_id(table);
        known.map_or_else(
            || table.0.to_string(),
            |table| format!("{}.{}", table.keyspace, table.name),
        )
    }
}

/// A table that has tablets.
struct PlacedTable<'m> {
    table: &'m Table,
    keyspace: &'m Keyspace,
    /// That of the keyspace.
    replication: Arc<Replication>,
}

impl PlacedTable<'_> {
    /// How many tablets it may have, where tablets of `bytes_goal` are usual.
    fn counts(&self, topology: &Topology, bytes_goal: u64) -> TabletCounts {
        let options = self.table.options.tablets.as_ref();
        TabletCounts::of(
            topology,
            Some(&self.replication),
            Some(self.keyspace),
            options,
            bytes_goal,
        )
    }

    /// Whether it may get another number of tablets: not where it is to be of the ring.
    fn may_be_resized(&self) -> bool {
        WantedKind::of(self.keyspace) != WantedKind::Ring
    }
}

/// The steps of a plan, by table.
#[derive(Default)]
struct Steps {
    between_nodes: BTreeMap<TableId, Vec<MoveStep>>,
    /// By tablet: a change of a map has its edits in order.
    between_shards: BTreeMap<TableId, BTreeMap<TabletId, ReplicaList>>,
    resizes: Vec<Command>,
}

impl Steps {
    /// A tablet gets a replica, loses one, or both.
    fn begin(
        &mut self,
        metadata: &Metadata,
        table: TableId,
        tablet: TabletId,
        from: Option<Replica>,
        to: Option<Replica>,
    ) {
        let Some(now) = metadata.tablets.get(&table).and_then(|map| map.tablet(tablet)) else {
            return;
        };
        let leaves = |replica: &Replica| from.is_some_and(|from| from.node == replica.node);
        let mut next: ReplicaList = now
            .replicas
            .iter()
            .filter_map(|replica| if leaves(replica) { to } else { Some(*replica) })
            .collect();
        if from.is_none() {
            next.extend(to);
        }
        self.between_nodes.entry(table).or_default().push(MoveStep::Begin {
            tablet,
            replicas: now.replicas.iter().copied().collect(),
            next,
        });
    }

    /// A piece gets other replicas, or is on other shards of the same nodes.
    fn relocate(&mut self, metadata: &Metadata, table: TableId, tablet: TabletId, next: &ReplicaList) {
        let Some(now) = metadata.tablets.get(&table).and_then(|map| map.tablet(tablet)) else {
            return;
        };
        let is_here = |replica: &Replica| now.replicas.iter().any(|here| here.node == replica.node);
        if next.len() == now.replicas.len() && next.iter().all(is_here) {
            let of_table = self.between_shards.entry(table).or_default();
            of_table.insert(tablet, next.clone());
        } else {
            self.between_nodes.entry(table).or_default().push(MoveStep::Begin {
                tablet,
                replicas: now.replicas.iter().copied().collect(),
                next: next.clone(),
            });
        }
    }

    fn move_between_shards(&mut self, metadata: &Metadata, table: TableId, tablet: TabletId, to: Replica) {
        let Some(now) = metadata.tablets.get(&table).and_then(|map| map.tablet(tablet)) else {
            return;
        };
        let replicas = now
            .replicas
            .iter()
            .map(|replica| if replica.node == to.node { to } else { *replica });
        let of_table = self.between_shards.entry(table).or_default();
        of_table.insert(tablet, replicas.collect());
    }

    fn resize(&mut self, metadata: &Metadata, table: TableId, tablet_count: u32) {
        if let Some(map) = metadata.tablets.get(&table) {
            self.resizes.push(Command::Resize {
                table,
                from_version: map.version(),
                tablet_count,
            });
        }
    }

    fn commands(self, metadata: &Metadata) -> Vec<Command> {
        let between_shards = self.between_shards.into_iter().filter_map(|(table, edits)| {
            let version = metadata.tablets.get(&table)?.version();
            let edit = |(tablet, replicas)| TabletEdit {
                tablet,
                replicas,
                transition: None,
            };
            let change = TabletChange {
                from_version: version,
                version: version + 1,
                edits: edits.into_iter().map(edit).collect(),
            };
            Some(Command::Tablets {
                table,
                change: TabletsChange::Part(change),
            })
        });
        // Those of shards first: they fit the version of a map that those between nodes change.
        let mut commands: Vec<Command> = between_shards.chain(self.resizes).collect();
        if !self.between_nodes.is_empty() {
            let moves = self.between_nodes.into_iter();
            let moves = moves.map(|(table, steps)| TableMoves { table, steps });
            commands.push(Command::Moves(moves.collect()));
        }
        commands
    }
}

/// Whether a reason keeps a replica on a leaving node of this datacenter. What another datacenter lacks does not: one
/// of zero-token nodes only lacks nodes permanently.
fn node_concerns(reason: &UnmetReason, node: NodeNumber, here: &str) -> bool {
    match reason {
        UnmetReason::NoNodeToDrainTo { node: of } | UnmetReason::NoLiveCopy { node: of } => *of == node,
        UnmetReason::TooFewNodes { datacenter, .. } => datacenter.as_ref().is_none_or(|of| of == here),
        UnmetReason::EmptyRack { datacenter, .. } => datacenter == here,
        UnmetReason::NoRoom => true,
        UnmetReason::UnknownDatacenter { .. } | UnmetReason::NodeDown { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::Schema;
    use topology::{Boundaries, TabletMap, Topology};
    use uuid::Uuid;

    #[test]
    fn tablets_go_to_other_shards_in_whatever_order_they_were_planned() {
        let on_shard = |shard| Replica {
            node: NodeNumber(0),
            shard,
        };
        let table = TableId(Uuid::from_u128(7));
        let all: Vec<ReplicaList> = vec![[on_shard(0)].into_iter().collect(); 16];
        let map = TabletMap::new(5, Boundaries::PowerOfTwo(4), &all).expect("a map");
        let schema = Schema {
            version: Uuid::nil(),
            keyspaces: BTreeMap::new(),
        };
        let metadata = Metadata {
            tablets: BTreeMap::from([(table, Arc::new(map.clone()))]),
            ..Metadata::new(Arc::new(schema), Topology::new("sea", Uuid::nil()))
        };
        let mut steps = Steps::default();
        for tablet in [7, 13, 8] {
            steps.move_between_shards(&metadata, table, TabletId(tablet), on_shard(1));
        }
        let commands = steps.commands(&metadata);
        let [
            Command::Tablets {
                change: TabletsChange::Part(change),
                ..
            },
        ] = &commands[..]
        else {
            panic!("one change of one map: {commands:?}");
        };
        let mut next = map;
        next.apply(change).expect("the map takes it");
        let moved = next.tablets().filter(|tablet| tablet.replicas[0].shard == 1);
        assert_eq!(moved.map(|tablet| tablet.id.0).collect::<Vec<_>>(), [7, 8, 13]);
    }
}
