//! Operations in progress on members and their data, derived from the metadata alone: any node can report them, and all
//! nodes report the same.
//!
//! An *operation* is what an operator began and the cluster continues: a node joins, leaves, is removed or replaced; a
//! keyspace gets another replication, or is converted from the token ring to tablets or back. What is left of it is
//! counted in *parts*: tablets on a leaving node; ranges of the token ring that a next owner has not copied, for each
//! table; tablets with another number of copies than they are to have. Moves that only balance nodes are one operation
//! more.
//!
//! Operations run together as far as they can. The token ring changes once at a time: an operation that is requested
//! while its next owners are read waits, and reports for what.

use crate::error::ChangeError;
use crate::metadata::Metadata;
use crate::metadata::command::Command;
use crate::ring::replication_of;
use crate::service::Cluster;
use crate::tablets::convert::{Left as ConversionLeft, WantedKind};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use topology::{HostId, Locality, Node, NodeNumber, NodeState, Stage, Tablet, TabletMap, changing_ring_map};

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OperationKind {
    /// A node joins.
    Join,
    /// A node gives everything away and goes.
    Leave,
    /// The data of a lost node is rebuilt, and the node is removed.
    Remove,
    /// What a lost node had is rebuilt on the node that takes its place.
    Replace,
    /// A keyspace gets other copies.
    Replication,
    /// Tablets move to be even among nodes.
    Balance,
}

impl OperationKind {
    /// As operators see it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Join => "join",
            Self::Leave => "leave",
            Self::Remove => "remove",
            Self::Replace => "replace",
            Self::Replication => "replication",
            Self::Balance => "balance",
        }
    }
}

/// An operation in progress.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// What it does.
    pub kind: OperationKind,
    /// The node that joins or leaves.
    pub host: Option<HostId>,
    /// The keyspace whose replication changes.
    pub keyspace: Option<String>,
    /// What it does now, in a sentence.
    pub stage: String,
    /// Parts that are left; None if unknown: a joining node has no tokens yet.
    pub left: Option<u64>,
    /// What it waits for, and what an operator can do about it, in a sentence.
    pub waits: Option<String>,
    /// Whether [`Cluster::abort_operation`] may stop it now.
    pub is_abortable: bool,
}

/// Ranges of the ring that a next owner must copy.
struct RingCopies {
    /// Those that are not copied yet, by node.
    left: BTreeMap<NodeNumber, u64>,
    /// Why some cannot be copied: too few nodes that had them are left.
    lost: Option<String>,
}

impl Metadata {
    /// The operations in progress, if these nodes answer: joins first, then departures, replications and balance.
    #[must_use]
    pub fn operations(&self, me: HostId, live: &BTreeSet<HostId>) -> Vec<Operation> {
        self.operations_where_copied(me, live, &BTreeMap::new())
    }

    /// As [`Metadata::operations`]; subtracts what new owners have `copied` of the token ring so far. The metadata
    /// record only that a node has copied everything.
    pub(crate) fn operations_where_copied(
        &self,
        me: HostId,
        live: &BTreeSet<HostId>,
        copied: &BTreeMap<HostId, u64>,
    ) -> Vec<Operation> {
        let mut copies = self.ring_copies(me);
        for (number, left) in &mut copies.left {
            let host = self.topology.numbered(*number).map(|node| node.host_id);
            let copied = host.and_then(|host| copied.get(&host)).copied().unwrap_or(0);
            // At least one part is left until the metadata say that the node is done.
            *left = left.saturating_sub(copied).max(u64::from(*left > 0));
        }
        let ring_waits = self.what_the_ring_waits_for(&copies, live);
        let mut all = Vec::new();
        for (number, node) in self.topology.numbered_nodes() {
            let is_going = node.state == NodeState::Leaving || node.loss.is_some() || self.waits_to_leave(number);
            match node.state {
                NodeState::Left => {}
                NodeState::Joining => all.push(self.join(node, number, &copies, (live, ring_waits.as_deref()))),
                NodeState::Normal | NodeState::Leaving if is_going => {
                    all.push(self.departure(node, number, &copies, (live, ring_waits.as_deref())));
                }
                NodeState::Normal | NodeState::Leaving => {}
            }
        }
        all.extend(self.replications(&copies, (live, ring_waits.as_deref())));
        let converted = self.tables_in_conversion();
        let of_others = self.moving().filter(|(table, _)| !converted.contains(table));
        let moving = of_others.filter(|(_, tablet)| self.is_for_balance(tablet)).count() as u64;
        if moving > 0 {
            all.push(Operation {
                kind: OperationKind::Balance,
                host: None,
                keyspace: None,
                stage: format!("{moving} tablets move to be even among nodes"),
                left: Some(moving),
                waits: None,
                is_abortable: false,
            });
        }
        all
    }

    fn ring_copies(&self, me: HostId) -> RingCopies {
        let mut copies = RingCopies {
            left: BTreeMap::new(),
            lost: None,
        };
        let copying = self.ring.as_ref().filter(|ring| !ring.stage.reads_new());
        let (Some(ring), Some(locality)) = (copying, Locality::new(&self.topology, me)) else {
            return copies;
        };
        match self.ring_fills(&locality, |_| true) {
            Ok(fills) => {
                let has_copied = |node: &NodeNumber| ring.stage == Stage::Streaming && ring.done.contains(node);
                for fill in fills.iter().filter(|fill| !has_copied(&fill.fill.target.node)) {
                    let parts = if fill.fill.sources.is_empty() {
                        0
                    } else {
                        fill.tables.len() as u64
                    };
                    *copies.left.entry(fill.fill.target.node).or_default() += parts;
                }
            }
            Err(error) => copies.lost = Some(error.to_string()),
        }
        copies
    }

    /// The new owners that have ranges of the token ring left to copy.
    pub(crate) fn copying_nodes(&self, me: HostId) -> Vec<HostId> {
        let copies = self.ring_copies(me);
        let hosts = copies.left.keys().filter_map(|number| self.topology.numbered(*number));
        hosts.map(|node| node.host_id).collect()
    }

    /// Why the change of the token ring does not continue, if it does not.
    fn what_the_ring_waits_for(&self, copies: &RingCopies, live: &BTreeSet<HostId>) -> Option<String> {
        let ring = self.ring.as_ref()?;
        if !ring.stage.reads_new() && self.awaits_heir() {
            return Some(
                "the token ring waits until the node that takes the place of a lost one has taken its tokens"
                    .to_owned(),
            );
        }
        if let Some(why) = &copies.lost {
            return Some(format!(
                "nodes that are gone permanently had ranges of the token ring that too few others have ({why}): drop the keyspaces without tablets whose data is lost"
            ));
        }
        let is_down = |number: NodeNumber| {
            let node = self.topology.numbered(number)?;
            let is_missed = !live.contains(&node.host_id) && !self.topology.is_lost(node);
            is_missed.then_some(node.host_id)
        };
        if !ring.stage.reads_new()
            && let Some(host) = copies.left.keys().copied().find_map(is_down)
        {
            return Some(format!(
                "node {} is to copy ranges of the token ring and is down: start it, or remove it (nodetool removenode {host})",
                self.name_of(host)
            ));
        }
        // Nothing is copied in its place: it may have what no other node has.
        let host = self.ring_losers().into_iter().find_map(is_down)?;
        Some(format!(
            "node {} loses ranges of the token ring and is down: start it, or say that it is gone permanently (nodetool excludenode {host})",
            self.name_of(host)
        ))
    }

    fn stage_of_ring(&self) -> &'static str {
        match self.ring.as_ref().map(|ring| ring.stage) {
            None => "the token ring is at rest",
            Some(Stage::CleanupTarget) => "requests of before the change of the token ring end",
            Some(Stage::AllowWriteBothReadOld) => {
                "the next owners of the token ring remove what they have there from an earlier time"
            }
            Some(Stage::WriteBothReadOld) => "writes begin to go to the next owners of the token ring",
            Some(Stage::Streaming) => "the next owners of the token ring copy their ranges",
            Some(Stage::WriteBothReadNew | Stage::UseNew) => "the next owners of the token ring are read",
        }
    }

    fn join(
        &self,
        node: &Node,
        number: NodeNumber,
        copies: &RingCopies,
        (live, ring_waits): (&BTreeSet<HostId>, Option<&str>),
    ) -> Operation {
        let has_tokens = !node.tokens.is_empty();
        let waits = if !live.contains(&node.host_id) {
            Some(format!(
                "the node is down: start it to resume, or remove it (nodetool removenode {})",
                node.host_id
            ))
        } else if !has_tokens && self.reads_next_owners() {
            Some(
                "it takes its tokens when the token ring, which goes to other owners at the moment, is at rest"
                    .to_owned(),
            )
        } else {
            ring_waits.map(str::to_owned)
        };
        Operation {
            kind: OperationKind::Join,
            host: Some(node.host_id),
            keyspace: None,
            stage: if has_tokens {
                self.stage_of_ring().to_owned()
            } else {
                "it is let in and has no tokens yet".to_owned()
            },
            left: has_tokens.then(|| copies.left.get(&number).copied().unwrap_or(0)),
            waits,
            is_abortable: !has_tokens || !self.reads_next_owners(),
        }
    }

    fn departure(
        &self,
        node: &Node,
        number: NodeNumber,
        copies: &RingCopies,
        (live, ring_waits): (&BTreeSet<HostId>, Option<&str>),
    ) -> Operation {
        let on_it = |tablet: &Tablet<'_>| {
            let next = tablet.transition.map_or(&[][..], |transition| &transition.next);
            tablet.replicas.iter().chain(next).any(|replica| replica.node == number)
        };
        let tablets = self
            .tablets
            .values()
            .flat_map(|map| map.tablets())
            .filter(on_it)
            .count() as u64;
        let ranges: u64 = if node.tokens.is_empty() {
            0
        } else {
            copies.left.values().sum()
        };
        let kind = match node.loss {
            None => OperationKind::Leave,
            Some(loss) if loss.replaced_by.is_some() => OperationKind::Replace,
            Some(_) => OperationKind::Remove,
        };
        let heir = node.loss.and_then(|loss| loss.replaced_by);
        let heir = heir.filter(|heir| {
            let heir = self.topology.node(*heir);
            heir.is_none_or(|heir| heir.state == NodeState::Joining)
        });
        let waits = if kind == OperationKind::Leave && !live.contains(&node.host_id) {
            Some(format!(
                "the node is down, and what it has stays with it: start it to resume, or remove it (nodetool removenode {})",
                node.host_id
            ))
        } else if node.state == NodeState::Normal {
            Some("it begins when the token ring, which goes to other owners at the moment, is at rest".to_owned())
        } else if let Some(heir) = heir.filter(|heir| !live.contains(heir)) {
            Some(format!("node {heir}, which takes its place, is down: start it"))
        } else {
            let ring_waits = ring_waits.filter(|_| !node.tokens.is_empty()).map(str::to_owned);
            ring_waits.or_else(|| self.down_replica_in(self.tablets.values().cloned(), on_it, live))
        };
        let ring = (!node.tokens.is_empty()).then(|| format!("; {}", self.stage_of_ring()));
        let has_given_ring =
            node.tokens.is_empty() && !self.topology.is_zero_token(node.host_id) && self.has_ring_data();
        Operation {
            kind,
            host: Some(node.host_id),
            keyspace: None,
            stage: format!("{tablets} tablets are on it{}", ring.unwrap_or_default()),
            left: Some(tablets + ranges),
            waits,
            is_abortable: !self.topology.is_lost(node)
                && (!self.reads_next_owners() || self.waits_to_leave(number))
                && !has_given_ring,
        }
    }

    fn replications(
        &self,
        copies: &RingCopies,
        (live, ring_waits): (&BTreeSet<HostId>, Option<&str>),
    ) -> Vec<Operation> {
        let mut all = Vec::new();
        for keyspace in self.schema.keyspaces.values() {
            let tablets = self.tablets_with_other_copies(keyspace, |host| live.contains(&host));
            let former = self.ring.as_ref().and_then(|ring| ring.former.get(&keyspace.name));
            let towards = self.ring.as_ref().and_then(|ring| ring.towards.get(&keyspace.name));
            let mut ranges: u64 = if former.is_some() {
                copies.left.values().sum()
            } else {
                0
            };
            ranges += towards.map_or(0, |towards| self.ranges_of_next_change(keyspace, towards));
            let conversion = self.conversion_left(keyspace);
            if conversion != ConversionLeft::default() {
                all.push(self.conversion(keyspace, conversion, tablets + ranges, (live, ring_waits)));
                continue;
            }
            if tablets == 0 && former.is_none() && towards.is_none() {
                continue;
            }
            let stage = match (towards, former) {
                (Some(towards), _) => format!(
                    "the next change of the token ring begins with it; until then the replication is {}",
                    shown(towards)
                ),
                (None, None) => format!("{tablets} tablets do not have the copies yet that the keyspace wants"),
                (None, Some(former)) => format!(
                    "{}; before, the replication was {}",
                    self.stage_of_ring(),
                    shown(former)
                ),
            };
            let is_queued = towards.map(|_| {
                "it begins when the token ring, which goes to other owners at the moment, is at rest".to_owned()
            });
            let waits = ring_waits.filter(|_| former.is_some() || towards.is_some());
            all.push(Operation {
                kind: OperationKind::Replication,
                host: None,
                keyspace: Some(keyspace.name.clone()),
                stage,
                left: Some(tablets + ranges),
                waits: waits
                    .map(str::to_owned)
                    .or(is_queued)
                    .or_else(|| self.down_replica(keyspace, None, live).filter(|_| tablets > 0)),
                is_abortable: self.altered.contains_key(&keyspace.name),
            });
        }
        all
    }

    /// How many ranges of a keyspace go to other owners when the change of the token ring has ended that is under way,
    /// by which it has a replication.
    fn ranges_of_next_change(&self, keyspace: &schema::Keyspace, towards: &BTreeMap<String, String>) -> u64 {
        let now = replication_of(&self.topology, towards);
        let next = replication_of(&self.topology, &keyspace.replication);
        let map = now
            .zip(next)
            .and_then(|(now, next)| changing_ring_map(&self.topology, (&now, &next), self.ring_change()).ok());
        map.map_or(0, |map| map.moving().count() as u64)
    }

    /// Tables of a keyspace go from the token ring to tablets, or back; besides, their replication may change.
    fn conversion(
        &self,
        keyspace: &schema::Keyspace,
        left: ConversionLeft,
        copies: u64,
        (live, ring_waits): (&BTreeSet<HostId>, Option<&str>),
    ) -> Operation {
        let (from, to) = match WantedKind::of(keyspace) {
            WantedKind::Ring => ("tablets", "the token ring"),
            WantedKind::Tablets | WantedKind::Any => ("the token ring", "tablets"),
        };
        let waits_for_ring = || {
            let waits = self.ring.as_ref().map(|_| {
                "the token ring goes to other owners at the moment: tables leave it, and come back to it, when it is at rest"
                    .to_owned()
            });
            ring_waits.map(str::to_owned).or(waits)
        };
        let waits_for_node = || {
            let goal = self.ring_map_of(keyspace).map(Arc::new);
            self.down_replica(
                keyspace,
                goal.filter(|_| WantedKind::of(keyspace) == WantedKind::Ring),
                live,
            )
        };
        let lacks_nodes = || {
            let has_none = left.waiting + left.begun > 0 && !self.has_place_for(keyspace);
            has_none.then(|| format!("the nodes that are there have no place for its replication on {to}: add nodes, or alter the keyspace"))
        };
        Operation {
            kind: OperationKind::Replication,
            host: None,
            keyspace: Some(keyspace.name.clone()),
            stage: format!(
                "tables go from {from} to {to}: {} wait, {} are on their way, of which {} tablets are not in their place yet",
                left.waiting, left.begun, left.tablets
            ),
            left: Some(left.waiting + left.begun + left.tablets + copies),
            waits: waits_for_ring().or_else(lacks_nodes).or_else(waits_for_node),
            is_abortable: self.altered.contains_key(&keyspace.name),
        }
    }

    /// For which node tablets of a keyspace wait: one that is down and has a copy of one, or gets one by the map of a
    /// goal.
    fn down_replica(
        &self,
        keyspace: &schema::Keyspace,
        goal: Option<Arc<TabletMap>>,
        live: &BTreeSet<HostId>,
    ) -> Option<String> {
        let own = keyspace.tables.values();
        let own = own.filter_map(|table| self.tablets.get(&table.id).map(Arc::clone));
        self.down_replica_in(own.chain(goal), |_| true, live)
    }

    /// For which node some tablets of these maps wait: one that is down and has a copy of one, or gets one.
    fn down_replica_in(
        &self,
        maps: impl Iterator<Item = Arc<TabletMap>>,
        is_meant: impl Fn(&Tablet<'_>) -> bool,
        live: &BTreeSet<HostId>,
    ) -> Option<String> {
        let is_down = |number: NodeNumber| {
            let node = self.topology.numbered(number)?;
            (!live.contains(&node.host_id) && !self.topology.is_lost(node)).then_some(node.host_id)
        };
        let host = maps.into_iter().find_map(|map| {
            let mut replicas = map.tablets().filter(&is_meant).flat_map(|tablet| {
                let next = tablet.transition.map_or(&[][..], |transition| &transition.next);
                tablet.replicas.iter().chain(next)
            });
            replicas.find_map(|replica| is_down(replica.node))
        })?;
        Some(format!(
            "node {} is down, and tablets that have a copy on it, or get one, wait: start it, or say that it is gone permanently (nodetool excludenode {host})",
            self.name_of(host)
        ))
    }

    /// Whether a tablet moves only for balance: as many copies before and after, and none leaves a node that is
    /// leaving.
    fn is_for_balance(&self, tablet: &Tablet<'_>) -> bool {
        let Some(transition) = tablet.transition else {
            return false;
        };
        let goes = |replica: &topology::Replica| {
            let node = self.topology.numbered(replica.node);
            node.is_none_or(|node| node.state == NodeState::Leaving || node.loss.is_some())
        };
        transition.next.len() == tablet.replicas.len() && !tablet.replicas.iter().any(goes)
    }
}

fn shown(options: &BTreeMap<String, String>) -> String {
    let options: Vec<String> = options
        .iter()
        .map(|(name, value)| format!("'{name}': '{value}'"))
        .collect();
    format!("{{{}}}", options.join(", "))
}

impl Cluster {
    /// The operations in progress in the cluster, as far as this node knows.
    pub async fn operations(&self) -> Vec<Operation> {
        let (metadata, live, me) = (self.metadata(), self.live(), self.config.host_id);
        let (of_metadata, copied) = (metadata.clone(), self.known_ring_copies(&metadata));
        let mut operations = runtime::offload(move || of_metadata.operations_where_copied(me, &live, &copied)).await;
        let joins = |operation: &&mut Operation| operation.kind == OperationKind::Join && operation.waits.is_none();
        for operation in operations.iter_mut().filter(joins) {
            let full = operation
                .host
                .filter(|host| !self.peers.disk_level(*host).takes_growth());
            operation.waits = full.map(|host| {
                format!(
                    "the disks of node {} are too full to take more data: make room there, or remove the node (nodetool removenode {host})",
                    metadata.name_of(host)
                )
            });
            if let (None, Some(host)) = (&operation.waits, operation.host) {
                let failure = self.ring_copy_failure(&metadata, host);
                operation.waits =
                    failure.map(|why| format!("node {} cannot copy its ranges: {why}", metadata.name_of(host)));
            }
        }
        operations
    }

    /// Stops an operation: a node that joins is removed, one that leaves stays, a keyspace that was altered goes back
    /// to what it was.
    ///
    /// # Errors
    /// When it cannot be stopped, with the reason.
    pub async fn abort_operation(
        &self,
        kind: OperationKind,
        host_id: Option<HostId>,
        keyspace: Option<&str>,
    ) -> Result<(), ChangeError> {
        match (kind, host_id, keyspace) {
            (OperationKind::Join, Some(host_id), _) => {
                let metadata = self.barrier().await?;
                let joins = |node: &Node| node.state == NodeState::Joining;
                if !metadata.topology.node(host_id).is_some_and(joins) {
                    return Err(ChangeError::Refused(format!("node {host_id} does not join")));
                }
                self.propose(Command::RemoveNode { host_id }).await?;
                log::info!("node {host_id} was joining and is removed, as an operator wants it");
                Ok(())
            }
            (OperationKind::Leave, Some(host_id), _) => self.stay(host_id).await,
            (OperationKind::Replication, _, Some(keyspace)) => self.take_back(keyspace).await,
            _ => Err(ChangeError::Refused(format!(
                "operation {} cannot be stopped: what it does is agreed on",
                kind.name()
            ))),
        }
    }
}
