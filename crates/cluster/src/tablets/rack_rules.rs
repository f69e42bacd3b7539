//! Keyspaces whose copies fit the racks: what `rf_rack_valid_keyspaces` promises.
//!
//! A keyspace with tablets *fits the racks* when it has, in each datacenter, no copy, one copy, or one in every rack;
//! or when it names racks that all have nodes. A rack counts while a node of it owns tokens or tablets and neither
//! leaves nor is lost.
//!
//! A node with the option marks what it proposes ([`Command::RackValid`]). Each node that applies such a command
//! refuses it when it makes a keyspace unfit that fitted before, or that is new or altered. So the rule holds at the
//! command's position in the log, whatever came between the proposer's look and that position, and all nodes decide
//! alike whatever their own options are. A keyspace that is unfit already hinders no command, as long as it is not
//! altered.

use std::collections::BTreeSet;
use std::sync::Arc;

use schema::Keyspace;
use topology::{Copies, NodeState, Replication, Topology, TopologyCommand};

use crate::metadata::Metadata;
use crate::metadata::command::Command;
use crate::ring::{is_of_system, parsed_replication};
use crate::service::Cluster;

/// The option of a node that has the rule checked.
pub const RACK_OPTION: &str = "rf_rack_valid_keyspaces";

impl Command {
    /// Whether the command may make a keyspace unfit: by its replication, or by a node that leaves. A node that joins
    /// may do so as well; the node that lets it in knows whether it holds data.
    pub(crate) fn concerns_racks(&self) -> bool {
        use TopologyCommand::{GiveUp, SetState};
        match self {
            Self::Schema(_) | Self::RemoveNode { .. } => true,
            Self::Topology(SetState { state, .. }) => matches!(state, NodeState::Leaving),
            // The node that takes its place was checked when it was added.
            Self::Topology(GiveUp { replaced_by, .. }) => replaced_by.is_none(),
            _ => false,
        }
    }
}

impl Cluster {
    /// A command as this node proposes it: with its option, only where all keyspaces fit the racks afterwards.
    pub(crate) fn rack_valid(&self, command: Command) -> Command {
        if self.config.rack_rules {
            Command::RackValid(Box::new(command))
        } else {
            command
        }
    }
}

impl Metadata {
    /// The keyspaces that do not fit the racks, each with the reason.
    #[must_use]
    pub fn rack_violations(&self) -> Vec<String> {
        let keyspaces = self.schema.keyspaces.values();
        keyspaces
            .filter_map(|keyspace| violation(&self.topology, keyspace))
            .collect()
    }

    /// Refuses this successor of the metadata `before` if a keyspace does not fit the racks and has changed, or fitted
    /// before.
    ///
    /// # Errors
    /// The reason.
    pub(crate) fn check_racks(&self, before: &Self) -> Result<(), String> {
        for (name, keyspace) in &self.schema.keyspaces {
            let Some(why) = violation(&self.topology, keyspace) else {
                continue;
            };
            let former = before.schema.keyspaces.get(name);
            let is_same = former.is_some_and(|former| {
                Arc::ptr_eq(former, keyspace)
                    || former.replication == keyspace.replication && former.has_tablets() == keyspace.has_tablets()
            });
            if !is_same || violation(&before.topology, keyspace).is_none() {
                return Err(format!("{why} ({RACK_OPTION}). Nothing was changed"));
            }
        }
        Ok(())
    }
}

/// Why a keyspace with tablets does not fit the racks.
fn violation(topology: &Topology, keyspace: &Keyspace) -> Option<String> {
    if is_of_system(&keyspace.name) || !keyspace.has_tablets() {
        return None;
    }
    let name = &keyspace.name;
    match parsed_replication(topology, &keyspace.replication)? {
        Replication::NetworkTopology(factors) => factors.iter().find_map(|(datacenter, copies)| {
            let racks = racks_of(topology, Some(datacenter));
            match copies {
                Copies::Count(factor) => {
                    let fits = *factor <= 1 || usize::from(*factor) == racks.len();
                    (!fits).then(|| misfit(name, *factor, &format!("datacenter {datacenter}"), racks.len()))
                }
                Copies::Racks(listed) => {
                    let missing = listed.iter().find(|rack| !racks.contains(rack.as_str()))?;
                    Some(format!(
                        "Keyspace {name} names rack {missing} of datacenter {datacenter}, where no node holds data"
                    ))
                }
            }
        }),
        Replication::Simple { factor } => {
            let racks = racks_of(topology, None);
            let fits = factor <= 1 || usize::from(factor) == racks.len();
            (!fits).then(|| misfit(name, factor, "the cluster", racks.len()))
        }
        Replication::Local | Replication::Everywhere => None,
    }
}

fn misfit(keyspace: &str, factor: u16, place: &str, racks: usize) -> String {
    format!(
        "Keyspace {keyspace} has tablets and {factor} copies in {place}, with {racks} racks that have nodes that hold data: 0, 1 or as many copies as racks are allowed"
    )
}

/// The racks of a datacenter, or of all, that have nodes which hold data and stay.
fn racks_of<'a>(topology: &'a Topology, datacenter: Option<&str>) -> BTreeSet<&'a str> {
    let stays = |state| matches!(state, NodeState::Joining | NodeState::Normal);
    let holders = topology
        .members()
        .filter(|node| stays(node.state) && node.loss.is_none() && !topology.is_zero_token(node.host_id));
    let here = holders.filter(|node| datacenter.is_none_or(|name| node.location.datacenter == name));
    here.map(|node| node.location.rack.as_str()).collect()
}
