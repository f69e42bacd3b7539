//! Operations on the members of the cluster: a part of [`Operator`](crate::Operator).

use uuid::Uuid;

use crate::operator::Local;

/// What an operator has nodes of the cluster do. Lives on shard 0, sees the cluster as the node knows it.
pub trait Operations {
    /// Has this node give its tablets to others and leave the cluster; resolves when it has left.
    fn decommission(&self) -> Local<'_, Result<(), String>>;
    /// Has this node stay, which is leaving. What it has given away comes back by balance.
    fn stay(&self) -> Local<'_, Result<(), String>>;
    /// Removes a member that is down, for ever; resolves when the others have rebuilt the copies that it had. `ignored` are other dead members, by host id or address, which
    /// are excluded before.
    fn remove_node(&self, host_id: Uuid, ignored: Vec<String>) -> Local<'_, Result<(), String>>;
    /// Says of members, by host id, that they are down for ever: nothing waits for them, and they may not come back.
    fn exclude_nodes(&self, hosts: Vec<Uuid>) -> Local<'_, Result<(), String>>;
}
