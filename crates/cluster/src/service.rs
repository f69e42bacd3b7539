//! A node's part in its cluster, running.

use crate::config::{Config, Listener};
use crate::error::ChangeError;
use crate::members::claims::Claims;
use crate::members::peers::{Peers, raft_id};
use crate::members::seeds::Seeds;
use crate::messages::wire::GreetingAnswer;
use crate::metadata::Metadata;
use crate::metadata::command::{Command, SchemaChange};
use crate::metadata::file::Written;
use crate::metadata::machine::Machine;
use crate::tablets::balance_report::BalanceReport;
use crate::tablets::balancer::Balancing;
use crate::tablets::mover::Copies;
use consensus::Consensus;
use rpc::Rpc;
use runtime::{Instant, Notify};
use schema::{Schema, TableId};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use topology::{HostId, NodeState, TabletMap};
use uuid::Uuid;

/// How long a node that stops waits for another to lead.
pub(crate) const HAND_OVER_WAIT: Duration = Duration::from_millis(500);
/// What is left of the time of a schema change, at least, to hear that others have it.
const SCHEMA_AGREEMENT_MIN: Duration = Duration::from_millis(500);

/// A node's part in its cluster. Lives on shard 0, sees the cluster. See the crate.
pub struct Cluster {
    pub(crate) config: Config,
    pub(crate) rpc: Rc<Rpc>,
    pub(crate) listener: Rc<dyn Listener>,
    pub(crate) seeds: Rc<Seeds>,
    pub(crate) machine: Rc<Machine>,
    pub(crate) peers: Rc<Peers>,
    pub(crate) consensus: Consensus,
    pub(crate) own_raft_id: u64,
    /// Distinguishes this run of the node from others with its identity.
    pub(crate) incarnation: u64,
    pub(crate) is_stopping: Cell<bool>,
    pub(crate) stop: Notify,
    /// The listener was notified that the node must end.
    pub(crate) is_fatal: Cell<bool>,
    /// This node serves clients, unless it is closed.
    pub(crate) is_open: Cell<bool>,
    /// Its operator has closed it to clients.
    pub(crate) is_closed: Cell<bool>,
    /// It has not left service.
    pub(crate) is_in_service: Cell<bool>,
    /// It may not return to service before it has been restarted.
    pub(crate) is_retired: Cell<bool>,
    /// It is about to stop.
    pub(crate) is_departing: Cell<bool>,
    /// Since its start no member has said whether it knows a later run of this node.
    pub(crate) awaits_peer: Cell<bool>,
    /// Why this node takes no part in the metadata group, where it differs from others.
    pub(crate) withdrawn: RefCell<Option<String>>,
    /// The members that were logged to differ.
    pub(crate) told_differing: RefCell<BTreeSet<HostId>>,
    /// The members that take this node for up since it started, and their answers.
    pub(crate) greeted: RefCell<BTreeMap<HostId, GreetingAnswer>>,
    /// The members that have confirmed whether this node serves clients, and what they have confirmed.
    pub(crate) told_serving: RefCell<BTreeMap<HostId, bool>>,
    pub(crate) claims: Claims,
    /// A member has said that this node has left, and this node was leaving.
    pub(crate) is_told_left: Cell<bool>,
    /// Since which version this node knows of nodes that have left that they are out of the metadata group.
    pub(crate) left_out_since: RefCell<BTreeMap<HostId, u64>>,
    /// What this node copies from others.
    pub(crate) copies: Copies,
    /// How this node balances tablets while it leads.
    pub(crate) balancing: Cell<Balancing>,
    /// The state of the tablets at its last plan.
    pub(crate) balance_report: RefCell<BalanceReport>,
}

impl Cluster {
    /// What is agreed on, as far as this node has applied it.
    #[must_use]
    pub fn metadata(&self) -> Arc<Metadata> {
        self.machine.metadata()
    }

    /// This node's identity.
    #[must_use]
    pub fn host_id(&self) -> HostId {
        self.config.host_id
    }

    /// Whether a node answers.
    #[must_use]
    pub fn is_live(&self, host: HostId) -> bool {
        self.peers.is_live(host)
    }

    /// Whether another node answers and serves clients.
    #[must_use]
    pub fn serves_clients(&self, host: HostId) -> bool {
        self.peers.serves_clients(host)
    }

    /// The nodes that answer, this one among them.
    #[must_use]
    pub fn live(&self) -> BTreeSet<HostId> {
        self.peers.live()
    }

    /// The schema versions that other members have said they have, whether they answer now or not.
    #[must_use]
    pub fn peer_schema_versions(&self) -> BTreeMap<HostId, Uuid> {
        self.peers.schema_versions()
    }

    /// Resolves at the next change of what this node knows of the members: the metadata, which of them answer, which of
    /// them serve clients, and schema versions.
    pub fn members_changed(&self) -> runtime::Notified {
        self.machine.members_changed.notified()
    }

    /// The internode address of a member, for crate `rpc`.
    #[must_use]
    pub fn peer(&self, host: HostId) -> Option<rpc::Peer> {
        self.peers.peer(host)
    }

    /// Makes `next` the schema, if it is still the one of version `base`. Returns when that is durable and taken over
    /// here, and, as far as they do it within [`Config::agreement_timeout`], by every node that is alive.
    ///
    /// # Errors
    /// [`ChangeError`]; after `Conflict` the caller computes the next schema again, from the present one.
    pub async fn propose_schema(&self, base: Uuid, next: Arc<Schema>) -> Result<(), ChangeError> {
        self.propose_schema_with_tablets(base, next, BTreeMap::new()).await
    }

    /// As [`Self::propose_schema`], with the tablet maps of tables that are new in it.
    ///
    /// # Errors
    /// As [`Self::propose_schema`].
    pub async fn propose_schema_with_tablets(
        &self,
        base: Uuid,
        next: Arc<Schema>,
        tablets: BTreeMap<TableId, Arc<TabletMap>>,
    ) -> Result<(), ChangeError> {
        let now = self.metadata();
        if now.schema.version != base {
            return Err(ChangeError::Conflict);
        }
        let change = SchemaChange {
            tablets,
            ..SchemaChange::between(&now.schema, &next)
        };
        let until = runtime::now() + self.config.schema_timeout;
        let command = Command::Schema(change);
        let timeout = self.config.schema_timeout.saturating_sub(SCHEMA_AGREEMENT_MIN);
        let after = self.propose_within(command, timeout).await?;
        self.agree(after.index, until).await;
        Ok(())
    }

    /// Makes a change. Returns what this node has when it is durable and taken over here.
    ///
    /// # Errors
    /// [`ChangeError`], which says whether it may have happened.
    pub async fn propose(&self, command: Command) -> Result<Arc<Metadata>, ChangeError> {
        self.propose_within(command, self.config.propose_timeout).await
    }

    async fn propose_within(&self, command: Command, timeout: Duration) -> Result<Arc<Metadata>, ChangeError> {
        let until = runtime::now() + timeout;
        let command = if command.concerns_racks() {
            self.rack_valid(command)
        } else {
            command
        };
        self.wait_for_features(&command, until).await?;
        let left = until.saturating_duration_since(runtime::now());
        let index = self.consensus.propose(command.encode(), left).await?;
        let metadata = self.metadata();
        match metadata.rejected.get(&index) {
            Some(rejected) => Err(rejected.clone().into()),
            None => Ok(metadata),
        }
    }

    /// Truncates a table, and waits until these nodes have taken that over, which they do when its data is gone there.
    /// The deadline holds for the agreement too, whatever [`Self::propose`] has for others.
    ///
    /// # Errors
    /// A sentence that says whether it happened.
    pub async fn truncate(&self, table: TableId, replicas: &[HostId], deadline: Instant) -> Result<(), String> {
        let left = deadline.saturating_duration_since(runtime::now());
        let after = match self.propose_within(Command::Truncate { table }, left).await {
            Ok(after) => after,
            Err(error @ (ChangeError::Timeout(_) | ChangeError::Stopping(_))) => {
                return Err(format!("{error}; the table may be truncated"));
            }
            Err(error) => return Err(format!("{error}; nothing was removed")),
        };
        // Those that joined since, and those that are about to: a write that one of them took before it knew of the
        // truncation counts as older than that.
        let hosts: BTreeSet<HostId> = after
            .hosts_of(table)
            .into_iter()
            .chain(replicas.iter().copied())
            .collect();
        let hosts: Vec<HostId> = hosts.into_iter().collect();
        let late = self.not_taken_by(&hosts, &after, deadline).await;
        if late.is_empty() {
            Ok(())
        } else {
            Err(format!(
                "the truncation is agreed on, but {} did not confirm it in time; a replica that has not confirmed truncates before it answers requests of nodes \
                 that are not",
                late.join(", ")
            ))
        }
    }

    /// Waits until nodes have taken over what this one has just agreed on. The addresses of those that have not in
    /// time. One that leaves, or that an operator excludes or gives up, is waited for no longer.
    pub(crate) async fn not_taken_by(&self, nodes: &[HostId], after: &Metadata, deadline: Instant) -> Vec<String> {
        let mut is_over = false;
        loop {
            let heard = self.peers.heard.notified();
            let metadata = self.metadata();
            let is_awaited = |host: HostId| {
                let node = metadata.topology.node(host);
                node.is_some_and(|node| node.state != NodeState::Left && !metadata.topology.is_lost(node))
            };
            let is_late = |host: &&HostId| **host != self.config.host_id && !self.peers.has(**host, after.index);
            let late: Vec<HostId> = nodes
                .iter()
                .filter(is_late)
                .copied()
                .filter(|host| is_awaited(*host))
                .collect();
            if late.is_empty() || is_over {
                let address = |host: &HostId| Some(after.topology.node(*host)?.native.ip().to_string());
                return late.iter().filter_map(address).collect();
            }
            is_over = !self.wait_until(deadline, heard).await;
        }
    }

    /// What keeping the metadata durable has cost since the start.
    #[must_use]
    pub fn written(&self) -> Written {
        self.machine.written()
    }

    /// Waits until this node has everything that was agreed on anywhere before the call.
    ///
    /// # Errors
    /// `NoQuorum` when no leader confirms that in time.
    pub async fn barrier(&self) -> Result<Arc<Metadata>, ChangeError> {
        self.consensus.read_barrier(self.config.propose_timeout).await?;
        Ok(self.metadata())
    }

    /// Waits until the nodes that are alive have applied an index, for as long as is configured and no longer than
    /// until then.
    async fn agree(&self, log_index: u64, until: Instant) {
        let deadline = until.min(runtime::now() + self.config.agreement_timeout);
        loop {
            let heard = self.peers.heard.notified();
            if self.peers.all_live_have(log_index) || !self.wait_until(deadline, heard).await {
                return;
            }
        }
    }

    /// Waits for a notification; false when the time is over or the node stops.
    pub(crate) async fn wait_until(&self, deadline: Instant, notified: runtime::Notified) -> bool {
        let left = deadline - runtime::now();
        !left.is_zero() && !self.is_stopping.get() && runtime::timeout(left, notified).await.is_ok()
    }

    /// Hands the leadership of the metadata group over to another member, if this one leads: otherwise changes would
    /// wait for an election when it stops.
    pub(crate) async fn hand_over(&self) {
        if !self.leads() {
            return;
        }
        let metadata = self.metadata();
        let candidates: Vec<u64> = self
            .live()
            .into_iter()
            .filter(|host| *host != self.config.host_id)
            .filter_map(|host| metadata.topology.number(host))
            .map(|number| raft_id(number, metadata.generation_of(number)))
            .collect();
        if candidates.is_empty() {
            return;
        }
        if self.consensus.hand_over(candidates, HAND_OVER_WAIT).await {
            log::info!("another node leads the metadata group now");
        }
    }

    /// Leaves the group's work to the others: proposals fail with that reason, and tasks end. The caller closes the
    /// listeners of `rpc`.
    pub async fn stop(&self) {
        self.leave().await;
        self.is_stopping.set(true);
        self.stop.notify_all();
        self.consensus.stop().await;
    }

    /// Makes the listener end the node, once, because it has given its data to others and left.
    pub(crate) fn end_as_left(&self) {
        if !self.is_fatal.replace(true) {
            log::info!(
                "this node has left the cluster and ends: others have its data, and its directories can be removed"
            );
            self.listener.left(None);
        }
    }

    /// Makes the listener end the node, once, because it was removed.
    pub(crate) fn end_as_removed(&self, reason: String) {
        if !self.is_fatal.replace(true) {
            log::error!("{reason}");
            self.listener.left(Some(reason));
        }
    }

    /// Notifies the listener, once, that the node must end.
    pub(crate) fn fail(&self, reason: String) {
        if !self.is_fatal.replace(true) {
            log::error!("{reason}");
            self.listener.fatal(reason);
        }
    }
}
