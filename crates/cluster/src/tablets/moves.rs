//! Tablets that move between the shards of a node.
//!
//! It is one command: the map says the other shard from one version to the next, and the node gives its shard what the
//! tablet has when it takes the version over (`node/src/follow.rs`). No other node does anything but send requests to
//! the other shard.

use runtime::Instant;
use schema::TableId;
use topology::{HostId, TabletChange, TabletEdit};
use types::Token;

use crate::error::ChangeError;
use crate::metadata::Metadata;
use crate::metadata::command::{Command, TabletsChange};
use crate::service::Cluster;

/// A tablet, and the shards of a node that it moves between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardMove {
    /// Its table.
    pub table: TableId,
    /// A token of it.
    pub token: Token,
    /// The node.
    pub host_id: HostId,
    /// The shard that has it; None for whichever does.
    pub from: Option<u16>,
    /// The shard that gets it.
    pub to: u16,
}

impl Metadata {
    /// What has a tablet on another shard of its node.
    ///
    /// # Errors
    /// A sentence, when it cannot be: what does not exist, or is not where it is said to be.
    pub fn shard_move(&self, wanted: &ShardMove) -> Result<Command, String> {
        let map = self
            .tablets
            .get(&wanted.table)
            .ok_or_else(|| "the table has no tablets of its own".to_owned())?;
        let host = wanted.host_id;
        let node = self.topology.node(host).zip(self.topology.number(host));
        let (node, number) = node.ok_or_else(|| format!("node {host} is not a member of the cluster"))?;
        let tablet = map.tablet_of(wanted.token);
        if tablet.transition.is_some() {
            return Err(format!("tablet {} moves already", tablet.id.0));
        }
        let mut replicas = tablet.replicas.iter().copied().collect::<topology::ReplicaList>();
        let replica = replicas.iter_mut().find(|replica| replica.node == number);
        let replica = replica.ok_or_else(|| format!("node {host} has no replica of tablet {}", tablet.id.0))?;
        // A replica on a shard that the node no longer has is on another shard; see `TabletMap::on_shards`.
        let stands_on = replica.shard % node.shards.max(1);
        if let Some(from) = wanted.from.filter(|from| *from != stands_on) {
            return Err(format!(
                "the replica of tablet {} on node {host} is on shard {stands_on}, and not on shard {from}",
                tablet.id.0
            ));
        }
        if stands_on == wanted.to {
            return Err(format!("tablet {} is on shard {stands_on} already", tablet.id.0));
        }
        if wanted.to >= node.shards {
            return Err(format!(
                "node {host} has {} shards: there is no shard {}",
                node.shards, wanted.to
            ));
        }
        replica.shard = wanted.to;
        let change = TabletChange {
            from_version: map.version(),
            version: map.version() + 1,
            edits: vec![TabletEdit {
                tablet: tablet.id,
                replicas,
                transition: None,
            }],
        };
        Ok(Command::Tablets {
            table: wanted.table,
            change: TabletsChange::Part(change),
        })
    }
}

impl Cluster {
    /// Moves a tablet between two shards of a node, and waits until the node has done so.
    ///
    /// # Errors
    /// A sentence that says whether it may have happened.
    pub async fn move_between_shards(&self, wanted: &ShardMove, deadline: Instant) -> Result<(), String> {
        loop {
            let command = self.metadata().shard_move(wanted)?;
            match self.propose(command).await {
                Ok(after) => {
                    let late = self.not_taken_by(&[wanted.host_id], &after, deadline).await;
                    return match late.first() {
                        None if self
                            .metadata()
                            .topology
                            .node(wanted.host_id)
                            .is_none_or(|node| node.loss.is_some()) =>
                        {
                            Err("the node was given up during the move".to_owned())
                        }
                        None => Ok(()),
                        Some(address) => Err(format!(
                            "the move is agreed on, and node {address} did not do it in time"
                        )),
                    };
                }
                Err(ChangeError::Conflict) => {
                    self.barrier().await.map_err(|e| e.to_string())?;
                }
                Err(e) => return Err(e.to_string()),
            }
        }
    }
}
