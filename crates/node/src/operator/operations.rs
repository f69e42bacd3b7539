//! Operations on the members of the cluster, for operators.

use admin::Operations;
use admin::operator::Local;
use topology::HostId;
use uuid::Uuid;

use super::NodeOperator;

impl Operations for NodeOperator {
    fn decommission(&self) -> Local<'_, Result<(), String>> {
        Box::pin(async move { self.cluster.decommission().await.map_err(|e| e.to_string()) })
    }

    fn stay(&self) -> Local<'_, Result<(), String>> {
        Box::pin(async move {
            let stays = self.cluster.stay(self.cluster.host_id()).await;
            stays.map_err(|e| e.to_string())
        })
    }

    fn remove_node(&self, host_id: Uuid, ignored: Vec<String>) -> Local<'_, Result<(), String>> {
        Box::pin(async move {
            let ignored: Vec<HostId> = ignored
                .iter()
                .map(|name| self.member_named(name))
                .collect::<Result<_, _>>()?;
            let removed = self.cluster.remove_node_ignoring(HostId(host_id), &ignored).await;
            removed.map_err(|e| e.to_string())
        })
    }

    fn exclude_nodes(&self, hosts: Vec<Uuid>) -> Local<'_, Result<(), String>> {
        Box::pin(async move {
            let hosts: Vec<HostId> = hosts.into_iter().map(HostId).collect();
            self.cluster.exclude_nodes(&hosts).await.map_err(|e| e.to_string())
        })
    }
}

impl NodeOperator {
    /// The member of a host id or an address.
    fn member_named(&self, name: &str) -> Result<HostId, String> {
        let metadata = self.cluster.metadata();
        let is_named =
            |node: &&topology::Node| node.host_id.to_string() == name || node.internode.ip().to_string() == name;
        let found = metadata.topology.members().find(is_named).map(|node| node.host_id);
        found.ok_or_else(|| format!("'{name}' is neither the host id nor the address of a member"))
    }
}
