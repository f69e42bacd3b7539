//! Nodes that leave with what they have: one that is alive gives its tablets to others (*decommission*), and what one had that is lost is rebuilt from the other
//! replicas (*removal*).
//!
//! Both stand in the topology: the node is `Leaving`, and given up if it is lost. While a node leaves, the leader plans moves that take its replicas away
//! ([`topology::plan`]), a few at a time, and when it has none left, the leader removes it. Any later leader goes on. A node that leaves serves as before.
//!
//! What cannot end does not begin: without enough other nodes for every copy, or where the node owns a part of a keyspace on the token ring that others do not have,
//! both are refused with the reason.

use crate::command::{Command, TableMoves};
use crate::error::ChangeError;
use crate::metadata::Metadata;
use crate::removal;
use crate::service::Cluster;
use schema::TableId;
use std::collections::{BTreeMap, BTreeSet};
use topology::{
    HostId, Limits, MoveStep, NodeInput, NodeNumber, NodeState, Options, Replica, ReplicaList, Replication, Role, Step,
    TableInput, TabletId, UnmetReason, plan,
};

/// What takes the replicas of nodes that leave elsewhere.
pub(crate) struct LeavingPlan {
    pub(crate) moves: Vec<TableMoves>,
    /// Why some replicas of a node cannot go anywhere.
    unmet: BTreeMap<NodeNumber, String>,
}

impl Metadata {
    /// The nodes that leave.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = (NodeNumber, &topology::Node)> {
        let nodes = self.topology.numbered_nodes();
        nodes.filter(|(_, node)| node.state == NodeState::Leaving)
    }

    /// Plans the next moves of replicas away from nodes that leave, or would leave in these roles.
    pub(crate) fn plan_leaving(
        &self,
        is_live: impl Fn(HostId) -> bool,
        would_leave: Option<(HostId, Role)>,
        limits: &Limits,
    ) -> LeavingPlan {
        let role = |node: &topology::Node| match node.state {
            _ if would_leave.is_some_and(|(host, _)| host == node.host_id) => {
                would_leave.map_or(Role::Idle, |(_, role)| role)
            }
            _ if node.loss.is_some() => Role::Lost,
            NodeState::Joining | NodeState::Left => Role::Idle,
            _ if !is_live(node.host_id) => Role::Down,
            NodeState::Leaving => Role::Drains,
            NodeState::Normal => Role::Holds,
        };
        let heir_of = |host: HostId| {
            let is_heir = |node: &topology::Node| node.loss.is_some_and(|loss| loss.replaced_by == Some(host));
            let mut nodes = self.topology.numbered_nodes();
            nodes.find(|(_, node)| is_heir(node)).map(|(number, _)| number)
        };
        let members = self
            .topology
            .numbered_nodes()
            .filter(|(_, node)| node.state != NodeState::Left);
        let nodes: Vec<NodeInput> = members
            .map(|(number, node)| NodeInput {
                number,
                role: role(node),
                capacity_bytes: 0,
                used_bytes: 0,
                replaces: heir_of(node.host_id),
            })
            .collect();
        let leaves = |number: NodeNumber| {
            let role = nodes.iter().find(|node| node.number == number).map(|node| node.role);
            matches!(role, Some(Role::Drains | Role::Lost))
        };
        let (ids, replications) = self.tables_with_replication();
        let tables: Vec<TableInput<'_>> = ids
            .iter()
            .zip(&replications)
            .map(|(table, replication)| TableInput {
                map: &self.tablets[table],
                replication,
                sizes: &[],
                load: &[],
                tablet_count_min: self.tablets[table].tablet_count(),
            })
            .collect();
        let plan = plan(&self.topology, &nodes, &tables, limits, &Options::default());
        let mut moves: BTreeMap<TableId, Vec<MoveStep>> = BTreeMap::new();
        for step in &plan.steps {
            let (table, tablet, from, to) = match *step {
                Step::Move {
                    table,
                    tablet,
                    from,
                    to,
                } => (table, tablet, from, Some(to)),
                Step::Replace {
                    table,
                    tablet,
                    lost,
                    to,
                } => (table, tablet, lost, Some(to)),
                Step::Remove { table, tablet, from } => (table, tablet, from, None),
                // Nothing but what leaves is moved.
                Step::Shard { .. } | Step::Add { .. } | Step::Resize { .. } => continue,
            };
            if leaves(from.node) {
                moves
                    .entry(ids[table])
                    .or_default()
                    .extend(self.begin(ids[table], tablet, from, to));
            }
        }
        let mut unmet = BTreeMap::new();
        for missing in &plan.unmet {
            let table = self.table_name(ids[missing.table]);
            let why = format!("{} tablets of table {table}: {}", missing.tablets, missing.reason);
            for node in nodes.iter().map(|node| node.number).filter(|number| leaves(*number)) {
                if node_concerns(&missing.reason, node) {
                    unmet.entry(node).or_insert_with(|| why.clone());
                }
            }
        }
        let moves = moves.into_iter().map(|(table, steps)| TableMoves { table, steps });
        LeavingPlan {
            moves: moves.collect(),
            unmet,
        }
    }

    /// The step that takes a replica away from a node.
    fn begin(&self, table: TableId, tablet: TabletId, from: Replica, to: Option<Replica>) -> Option<MoveStep> {
        let replicas = self.tablets.get(&table)?.tablet(tablet)?.replicas;
        let next: ReplicaList = replicas
            .iter()
            .filter_map(|replica| if replica.node == from.node { to } else { Some(*replica) })
            .collect();
        Some(MoveStep::Begin {
            tablet,
            replicas: replicas.iter().copied().collect(),
            next,
        })
    }

    /// The tables that have tablets, with the replication of their keyspaces.
    fn tables_with_replication(&self) -> (Vec<TableId>, Vec<Replication>) {
        let mut ids = Vec::new();
        let mut replications = Vec::new();
        for keyspace in self.schema.keyspaces.values() {
            let mut datacenters: BTreeSet<&str> = self.topology.datacenters();
            let options = keyspace.replication.keys().map(String::as_str);
            datacenters.extend(options.filter(|name| !matches!(*name, "class" | "replication_factor")));
            let Ok(replication) = Replication::parse(&keyspace.replication, &datacenters) else {
                continue;
            };
            for table in keyspace
                .tables
                .values()
                .filter(|table| self.tablets.contains_key(&table.id))
            {
                ids.push(table.id);
                replications.push(replication.clone());
            }
        }
        (ids, replications)
    }

    fn table_name(&self, table: TableId) -> String {
        let known = self.schema.table_by_id(table);
        known.map_or_else(
            || table.0.to_string(),
            |table| format!("{}.{}", table.keyspace, table.name),
        )
    }
}

/// Whether a reason keeps a replica on a node that leaves.
fn node_concerns(reason: &UnmetReason, node: NodeNumber) -> bool {
    match reason {
        UnmetReason::NoNodeToDrainTo { node: of } | UnmetReason::NoLiveCopy { node: of } => *of == node,
        UnmetReason::TooFewNodes { .. } | UnmetReason::EmptyRack { .. } | UnmetReason::NoRoom => true,
        UnmetReason::UnknownDatacenter { .. } | UnmetReason::NodeDown { .. } => false,
    }
}

impl Cluster {
    /// The next moves away from nodes that leave; and those that have nothing left are removed.
    pub(crate) async fn tend_leaving(&self) -> Vec<TableMoves> {
        let metadata = self.metadata();
        if metadata.leaving().next().is_none() {
            return Vec::new();
        }
        for (number, node) in metadata.leaving() {
            let host_id = node.host_id;
            // A command that is sure to be rejected would fill the log.
            if !metadata.has_tablets(number)
                && removal::check(&metadata, host_id).is_ok()
                && let Err(error) = self.propose(Command::RemoveNode { host_id }).await
            {
                log::debug!("node {host_id} has given everything away and is not removed yet: {error}");
            }
        }
        let metadata = self.metadata();
        metadata
            .plan_leaving(|host| self.is_live(host), None, &Limits::default())
            .moves
    }

    /// Has this node give its tablets to others and leave the cluster. Returns when it has left: it may be stopped then, and stops by itself.
    ///
    /// # Errors
    /// When it cannot leave, with the reason; or when it is not known that it has.
    pub async fn decommission(&self) -> Result<(), ChangeError> {
        let metadata = self.barrier().await?;
        let host_id = self.config.host_id;
        let refused = |why: String| Err(ChangeError::Refused(why));
        match metadata.topology.node(host_id).map(|node| node.state) {
            Some(NodeState::Normal) => {}
            Some(NodeState::Leaving) => return self.has_left(host_id).await,
            Some(state) => return refused(format!("this node is {state}, and not a full member of the cluster")),
            None => return refused("this node is not a member of the cluster".to_owned()),
        }
        if metadata.topology.members().count() == 1 {
            return refused("this node is the only one of its cluster".to_owned());
        }
        if let Err(why) = removal::check_ring(&metadata, host_id) {
            return refused(why);
        }
        if let Some(why) = self.why_it_cannot_leave(&metadata, host_id, Role::Drains) {
            return refused(why);
        }
        let state = NodeState::Leaving;
        self.propose(Command::Topology(topology::TopologyCommand::SetState {
            host_id,
            state,
        }))
        .await?;
        log::info!("this node gives its tablets to others and leaves the cluster");
        self.has_left(host_id).await
    }

    /// Why not everything of a node can go elsewhere.
    pub(crate) fn why_it_cannot_leave(&self, metadata: &Metadata, host: HostId, role: Role) -> Option<String> {
        let number = metadata.topology.number(host)?;
        let is_live = |host| self.is_live(host);
        let mut plan = metadata.plan_leaving(is_live, Some((host, role)), &Limits::NONE);
        plan.unmet.remove(&number)
    }

    /// Waits until a node has left.
    pub(crate) async fn has_left(&self, host: HostId) -> Result<(), ChangeError> {
        loop {
            let changed = self.machine.changed.notified();
            if host == self.config.host_id && self.knows_it_has_left() {
                return Ok(());
            }
            match self.metadata().topology.node(host).map(|node| node.state) {
                Some(NodeState::Leaving) => {}
                Some(NodeState::Left) | None => return Ok(()),
                Some(_) => return Err(ChangeError::Refused(format!("node {host} was told to stay"))),
            }
            if self.is_stopping.get() {
                let why = "this node stops; the other one goes on leaving".to_owned();
                return Err(ChangeError::Stopping(why));
            }
            changed.await;
        }
    }
}
