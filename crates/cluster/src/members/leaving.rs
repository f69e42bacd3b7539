//! Nodes that leave with what they have: one that is alive gives its tablets to others (*decommission*), and what one
//! had that is lost is rebuilt from the other replicas (*removal*).
//!
//! Both are stored in the topology: the node is `Leaving`, and given up if it is lost. While a node leaves, the leader
//! plans moves that take its replicas away (`balancer.rs`), a few at a time, and when it has none left, the leader
//! removes it. Any later leader continues this. A node that leaves serves as before.
//!
//! What cannot end does not begin: without enough other nodes for every copy, or where the node owns a part of a
//! keyspace on the token ring that others do not have, both are refused with the reason.

use crate::error::ChangeError;
use crate::members::removal;
use crate::members::start::wanted_tokens;
use crate::metadata::Metadata;
use crate::metadata::command::Command;
use crate::service::Cluster;
use crate::tablets::planning::Situation;
use std::sync::Arc;
use std::time::Duration;
use topology::{HostId, Limits, NodeState, Role, TopologyCommand};

/// How long a node that leaves waits for others to stay that began at the same moment.
const OTHERS_STAY_WAIT: Duration = Duration::from_secs(10);

impl Cluster {
    /// Makes this node give its tablets to others and leave the cluster. Returns when it has left: it may be stopped
    /// then, and stops by itself.
    ///
    /// # Errors
    /// When it cannot leave, with the reason; or when it is not known that it has.
    pub async fn decommission(&self) -> Result<(), ChangeError> {
        let metadata = self.barrier().await?;
        let host_id = self.config.host_id;
        let refused = |why: String| Err(ChangeError::Refused(why));
        let waits = metadata
            .topology
            .number(host_id)
            .is_some_and(|number| metadata.waits_to_leave(number));
        match metadata.topology.node(host_id).map(|node| node.state) {
            Some(NodeState::Normal) if waits => return self.has_left(host_id).await,
            Some(NodeState::Normal) => {}
            Some(NodeState::Leaving) => return self.has_left(host_id).await,
            Some(state) => return refused(format!("this node is {state}, and not a full member of the cluster")),
            None => return refused("this node is not a member of the cluster".to_owned()),
        }
        if metadata.topology.members().count() == 1 {
            return refused("this node is the only one of its cluster".to_owned());
        }
        if let Err(why) = removal::check_ring(&metadata, host_id, false) {
            return refused(why);
        }
        // A zero-token node has nothing that must go anywhere.
        let is_empty = metadata.topology.is_zero_token(host_id);
        if !is_empty && let Some(why) = self.why_it_cannot_leave(&metadata, host_id, Role::Drains).await {
            return refused(why);
        }
        let state = NodeState::Leaving;
        self.propose_to_ring(TopologyCommand::SetState { host_id, state })
            .await?;
        // Another node may have begun to leave at the same moment, so that too few nodes are left for both. A departure
        // that can no longer be taken back continues, and waits for nodes.
        let why = if is_empty {
            None
        } else {
            self.why_not_together(host_id).await
        };
        if let Some(why) = why
            && self.stay(host_id).await.is_ok()
        {
            return refused(why);
        }
        log::info!("this node gives its tablets to others and leaves the cluster");
        self.has_left(host_id).await
    }

    /// Makes a leaving node stay. What it has given away already comes back by balance.
    ///
    /// # Errors
    /// When it cannot stay, with the reason: it is lost, or its ranges of the token ring belong to others already.
    pub async fn stay(&self, host_id: HostId) -> Result<(), ChangeError> {
        let metadata = self.barrier().await?;
        let refused = |why: String| Err(ChangeError::Refused(why));
        let topology = &metadata.topology;
        let waits = topology
            .number(host_id)
            .is_some_and(|number| metadata.waits_to_leave(number));
        let node = match topology.node(host_id) {
            Some(node) if node.state == NodeState::Leaving || waits => node,
            Some(node) => return refused(format!("node {host_id} does not leave: it is {}", node.state)),
            None => return refused(format!("host id {host_id} is not a member of this cluster")),
        };
        if topology.is_lost(node) {
            return refused(format!(
                "node {host_id} is down permanently by an operator's word, and the others rebuild its copies: that does not go back"
            ));
        }
        let has_given_all = format!(
            "the ranges of the token ring that node {host_id} had belong to others already: let it leave, and let it join again on an empty data directory"
        );
        // It keeps the tokens that it has. Where the change of the ring ends in this moment, it takes them back, or is
        // refused: it never stays without.
        let mut tokens = node.tokens.clone();
        if tokens.is_empty() && !topology.is_zero_token(host_id) {
            if host_id != self.config.host_id {
                return refused(format!(
                    "node {host_id} has no tokens, and knows itself whether it had any and may take them back: ask that node (ceto nodetool decommission --abort there)"
                ));
            }
            if self.config.auto_bootstrap {
                if metadata.has_ring_data() {
                    return refused(has_given_all);
                }
                tokens = wanted_tokens(&self.config);
            }
        }
        match self
            .propose(Command::Topology(TopologyCommand::Stay { host_id, tokens }))
            .await
        {
            Ok(_) => {
                log::info!("node {host_id} stays in the cluster: what it has left comes back by balance");
                Ok(())
            }
            // The next owners are read already.
            Err(ChangeError::Conflict) => refused(has_given_all),
            // It has left, was given up or stays already: its present state says why.
            Err(ChangeError::Rejected(why)) => {
                let now = self.metadata();
                let node = now.topology.node(host_id);
                match node.map(|node| (node.state, now.topology.is_lost(node))) {
                    Some((NodeState::Left, _)) => refused(format!("node {host_id} has already left")),
                    Some((NodeState::Normal, false)) => Ok(()),
                    _ => refused(why),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Why not everything of this node, which leaves, can go elsewhere while others leave, too. Of those that began at
    /// the same moment all stay but the one with the lowest host id, which waits for that.
    async fn why_not_together(&self, host_id: HostId) -> Option<String> {
        let end = runtime::now() + OTHERS_STAY_WAIT;
        loop {
            let changed = self.machine.changed.notified();
            let now = self.metadata();
            let why = self.why_it_cannot_leave(&now, host_id, Role::Drains).await?;
            let may_stay = |node: &topology::Node| node.host_id > host_id && !now.topology.is_lost(node);
            let left = end.saturating_duration_since(runtime::now());
            if left.is_zero() || !now.leaving().any(|(_, node)| may_stay(node)) {
                return Some(why);
            }
            let _ = runtime::timeout(left, changed).await;
        }
    }

    /// Why not everything of a node can go elsewhere; of one that is alive, also why another that leaves already could
    /// not give all away without it. Plans for the whole cluster, and so beside the shard.
    pub(crate) async fn why_it_cannot_leave(
        &self,
        metadata: &Arc<Metadata>,
        host: HostId,
        role: Role,
    ) -> Option<String> {
        let number = metadata.topology.number(host)?;
        let situation = Situation {
            live: self.live(),
            would_leave: Some((host, role)),
            ..Situation::default()
        };
        let planned_for = metadata.clone();
        let planned = runtime::offload(move || planned_for.plan_moves(&situation, &Limits::NONE));
        let mut unmet = planned.await.unmet;
        let why = unmet.remove(&number);
        if why.is_some() || role == Role::Lost {
            return why;
        }
        let leaving = metadata.leaving().filter(|(_, node)| !metadata.topology.is_lost(node));
        leaving.filter_map(|(number, _)| unmet.remove(&number)).next()
    }

    /// Makes a change of the topology, when the token ring allows it: a change of the ring that reads its next owners
    /// already has to end before.
    pub(crate) async fn propose_to_ring(&self, command: TopologyCommand) -> Result<(), ChangeError> {
        loop {
            let changed = self.machine.changed.notified();
            match self.propose(Command::Topology(command.clone())).await {
                Err(ChangeError::Conflict) if !self.is_stopping.get() => changed.await,
                other => return other.map(drop),
            }
        }
    }

    /// Waits until a node has left.
    pub(crate) async fn has_left(&self, host: HostId) -> Result<(), ChangeError> {
        loop {
            let changed = self.machine.changed.notified();
            if host == self.config.host_id && self.knows_it_has_left() {
                return Ok(());
            }
            let metadata = self.metadata();
            let node = metadata.topology.node(host);
            match node.map(|node| node.state) {
                Some(NodeState::Leaving) => {}
                // It leaves when no change of the token ring is in progress.
                Some(NodeState::Normal) if node.is_some_and(|node| node.loss.is_some()) => {}
                Some(NodeState::Normal)
                    if metadata
                        .topology
                        .number(host)
                        .is_some_and(|it| metadata.waits_to_leave(it)) => {}
                Some(NodeState::Left) | None => return Ok(()),
                Some(_) => return Err(ChangeError::Refused(format!("an operator had node {host} stay"))),
            }
            if self.is_stopping.get() {
                let why = "this node stops; the other one continues to leave".to_owned();
                return Err(ChangeError::Stopping(why));
            }
            changed.await;
        }
    }
}
