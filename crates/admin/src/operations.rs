//! Operations on the members of the cluster: a part of [`Operator`](crate::Operator).

use std::net::IpAddr;
use std::time::Duration;

use uuid::Uuid;

use crate::operator::{Local, Selection};

/// What an operator requests of nodes of the cluster. Lives on shard 0, sees the cluster as the node knows it.
pub trait Operations {
    /// Makes this node give its tablets to others and leave the cluster; resolves when it has left.
    fn decommission(&self) -> Local<'_, Result<(), String>>;
    /// Makes this node, which is leaving, stay. Balancing brings back what it has given away.
    fn stay(&self) -> Local<'_, Result<(), String>>;
    /// Removes a member that is down, permanently; resolves when the others have rebuilt the copies that it had.
    /// `ignored` are other dead members, by host id or address, which are excluded before.
    fn remove_node(&self, host_id: Uuid, ignored: Vec<String>) -> Local<'_, Result<(), String>>;
    /// Marks members, by host id, as permanently down: nothing waits for them, and they may not come back.
    fn exclude_nodes(&self, hosts: Vec<Uuid>) -> Local<'_, Result<(), String>>;
    /// The operations in progress on the members and their data, as this node knows them. Each is a task of this node.
    fn operations(&self) -> Local<'_, Vec<Progress>>;
    /// Stops the operation of a task, from any node; the error says why it continues. None for another task, and for an
    /// operation that cannot be stopped.
    fn abort_operation(&self, task: Uuid) -> Option<Local<'_, Result<(), String>>>;
    /// Moves the tables of a keyspace to tablets of their own, or to the token ring, as ALTER KEYSPACE does; resolves
    /// when the cluster has agreed on it, with what the operator should know. The tables move while they serve.
    fn set_keyspace_kind(&self, keyspace: String, has_tablets: bool) -> Local<'_, Result<Vec<String>, String>>;
    /// What the tables of a keyspace are and are to be; the error says why that is not known.
    fn keyspace_kind(&self, keyspace: &str) -> Result<KeyspaceKind, String>;
    /// Copies the data of this node's replicas again from other replicas; resolves when it is here. Continues if the
    /// future is dropped.
    fn rebuild(&self, wanted: Rebuild) -> Local<'_, Result<Rebuilt, String>>;
    /// Removes what this node has of tokens that are not its own; resolves when it is gone. Continues if the future is
    /// dropped.
    fn cleanup(&self, what: Selection) -> Local<'_, Result<Vec<Cleaned>, String>>;
}

/// How far an operation of the cluster is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The task that this node has for it.
    pub task: Uuid,
    /// What it does: join, leave, remove, replace, replication or balance.
    pub kind: &'static str,
    /// The node that joins or leaves.
    pub host_id: Option<Uuid>,
    /// Where other nodes reach it.
    pub address: Option<IpAddr>,
    /// The keyspace whose replication changes.
    pub keyspace: Option<String>,
    /// What it does now.
    pub stage: String,
    /// What it waits for, and what to do about it.
    pub waits: Option<String>,
    /// Parts, as far as this node has seen them.
    pub total: u64,
    /// Those of them that are done.
    pub done: u64,
    /// For how long this node has seen it.
    pub elapsed: Duration,
    /// How long the rest takes at the pace so far; None before a part is done, or while it waits.
    pub remaining: Option<Duration>,
    /// Whether its task may be aborted now.
    pub is_abortable: bool,
}

impl Progress {
    /// Percent done, at most 99: a finished operation is not listed.
    #[must_use]
    pub fn percent(&self) -> u64 {
        match self.total {
            0 => 0,
            total => {
                u64::try_from(u128::from(self.done) * 100 / u128::from(total)).map_or(99, |percent| percent.min(99))
            }
        }
    }
}

/// What the tables of a keyspace are and are to be.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct KeyspaceKind {
    /// Whether they are to have tablets; None if the keyspace leaves them as they are.
    pub wants_tablets: Option<bool>,
    /// Tables that have tablets.
    pub with_tablets: Vec<String>,
    /// Tables on the token ring.
    pub on_ring: Vec<String>,
    /// Tables on their way from one to the other.
    pub on_their_way: Vec<String>,
}

impl KeyspaceKind {
    /// In one word; those of ScyllaDB where it has one.
    #[must_use]
    pub fn name(&self) -> &'static str {
        let has_any = |tables: &[String]| !tables.is_empty();
        match self.wants_tablets {
            Some(true) if has_any(&self.on_ring) || has_any(&self.on_their_way) => "migrating_to_tablets",
            Some(false) if has_any(&self.with_tablets) || has_any(&self.on_their_way) => "migrating_to_vnodes",
            Some(true) => "tablets",
            Some(false) => "vnodes",
            None if has_any(&self.with_tablets) && has_any(&self.on_ring) => "both",
            None if has_any(&self.on_ring) => "vnodes",
            None => "tablets",
        }
    }
}

/// What to rebuild.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Rebuild {
    /// Which tables; none of them: all of users.
    pub what: Selection,
    /// Only from replicas in this datacenter.
    pub datacenter: Option<String>,
}

/// What a rebuild has copied.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Rebuilt {
    /// Tables of which something was copied.
    pub tables: u64,
    /// Ranges of them.
    pub ranges: u64,
    /// Bytes of sstables.
    pub bytes: u64,
}

/// What a cleanup has removed of a table.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Cleaned {
    /// Its keyspace.
    pub keyspace: String,
    /// Its name.
    pub table: String,
    /// Bytes that the node has less.
    pub removed_bytes: u64,
    /// Files among them that a start had set aside.
    pub unowned_files: u64,
    /// The token ring goes to other owners, so nothing of it was removed.
    pub is_skipped: bool,
}
