//! Nodes whose disks are full: they take no writes that add data to tables of users.
//!
//! A node says how full it is in its detector messages (`cluster/src/members/health.rs`). Then each coordinator counts
//! it as down for such writes: it gets a hint, and where the level is not met without it the write is refused before
//! anything is sent. What reaches the node all the same, because its coordinator has not heard of it, the node refuses
//! itself; its coordinator keeps a hint.
//!
//! Refused: INSERT, UPDATE, additions to counters, batches that have one of them, and hints. Taken: what only deletes;
//! system tables; phases of Paxos, as a proposal that was accepted somewhere must be finished; and repairs by reads,
//! without which a quorum that includes the node could not answer.

use mutation::{Addressed, Mutation};
use replica::TableStore;
use schema::TableId;
use topology::{DiskLevel, NodeNumber, NodeState, WriteTargets};
use types::Token;

use super::Context;
use crate::ClusterView;
use crate::message::{Malformed, decode_mutations, is_repair};
use crate::service::ReplicaError;

/// Why a node refuses.
const FULL: &str = "disk utilisation is above critical_disk_utilization_level: the node takes deletes and no new data until it has room";

impl Context {
    /// Takes over how full a node's disks are. Of this node the shard learns it too.
    pub(crate) fn set_disk_level(&self, node: NodeNumber, level: DiskLevel) {
        self.liveness.borrow_mut().set_disk_level(node, level);
        self.warns_of_disks.set(self.liveness.borrow().is_any_nearly_full());
        if node == self.view().me {
            self.shard.set_takes_growth(level.takes_growth());
        }
    }

    /// Forgets how full the disks of nodes were that are members no more.
    pub(super) fn forget_disks_of_strangers(&self, view: &ClusterView) {
        let is_member = |node: NodeNumber| {
            let node = view.topology.numbered(node);
            node.is_some_and(|node| node.state != NodeState::Left)
        };
        let mut liveness = self.liveness.borrow_mut();
        liveness.forget_disks(is_member);
        self.warns_of_disks.set(liveness.is_any_nearly_full());
    }

    /// How full a node's disks are, as far as it has said.
    #[must_use]
    pub fn disk_level(&self, node: NodeNumber) -> DiskLevel {
        self.liveness.borrow().disk_level(node)
    }

    /// Whether some node has full or nearly full disks.
    #[inline]
    #[must_use]
    pub fn warns_of_disks(&self) -> bool {
        self.warns_of_disks.get()
    }

    /// Whether to warn the client that writes this partition, or several if None: some replica has nearly full disks.
    /// Local system tables never warn.
    #[cold]
    #[must_use]
    pub fn warns_writer_of(&self, partition: Option<(TableId, Token)>) -> bool {
        let Some((table, token)) = partition else { return true };
        let view = self.view();
        let Some(route) = view.route(table) else { return false };
        let targets = WriteTargets::new(&route.map.tablet_of(token));
        let liveness = self.liveness.borrow();
        targets
            .all()
            .any(|replica| liveness.disk_level(replica.node) != DiskLevel::Normal)
    }

    /// Whether a node is believed to be alive and to take writes that add data.
    #[must_use]
    pub fn takes_growth(&self, node: NodeNumber) -> bool {
        self.takes_writes(node) && self.liveness.borrow().takes_growth(node)
    }

    /// Whether nodes with full disks refuse a mutation. False while no disk is full, because the answer is not needed
    /// then.
    pub(crate) fn grows(&self, table: TableId, mutation: &Mutation<'_>) -> bool {
        self.liveness.borrow().is_any_full() && self.shard.store(table).is_some_and(|store| is_growth(&store, mutation))
    }

    /// Whether this shard refuses a mutation because its own disk is full.
    #[inline]
    pub(crate) fn refuses_here(&self, store: &TableStore, mutation: &Mutation<'_>) -> bool {
        !self.shard.takes_growth() && is_growth(store, mutation)
    }

    /// Judges mutations that a coordinator elsewhere sends.
    ///
    /// # Errors
    /// When the disk here is full and one of them adds data, or what came is no mutation.
    pub(crate) fn admit_growth(&self, body: &[u8]) -> Result<(), ReplicaError> {
        if self.shard.takes_growth() || is_repair(body) {
            return Ok(());
        }
        let (mutations, _) = decode_mutations(body)?;
        self.admit_additions(&mutations)
    }

    /// Judges additions to counters, as `admit_growth` judges mutations.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn admit_additions(&self, mutations: &[Addressed]) -> Result<(), ReplicaError> {
        if self.shard.takes_growth() {
            return Ok(());
        }
        for mutation in mutations {
            let Some(store) = self.shard.store(mutation.table()) else {
                continue;
            };
            let valid = mutation.mutation().validate(&store.table.borrow().layout);
            valid.map_err(|_| Malformed("a mutation of the table's layout"))?;
            if is_growth(&store, &mutation.mutation()) {
                return Err(ReplicaError::DiskFull(FULL.to_owned()));
            }
        }
        Ok(())
    }
}

/// Whether it adds data to a table of users.
fn is_growth(store: &TableStore, mutation: &Mutation<'_>) -> bool {
    let table = store.table.borrow();
    system_tables::kind(&table.keyspace).is_none() && mutation.adds_data(&table.layout)
}
