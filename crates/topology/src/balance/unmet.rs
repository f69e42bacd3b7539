//! What is required and cannot be done.

use std::collections::BTreeMap;
use std::fmt;

use crate::node::NodeNumber;

/// A reason, and how many tablets of which table it concerns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unmet {
    /// The table, by its place in the slice of tables.
    pub table: usize,
    /// The tablets of the table.
    pub tablets: u32,
    /// Why.
    pub reason: UnmetReason,
}

/// Why a tablet does not get what it should have.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum UnmetReason {
    /// The replication names a datacenter that has no node.
    UnknownDatacenter {
        /// Its name.
        datacenter: String,
    },
    /// The replication names a rack that has no node that may hold copies.
    EmptyRack {
        /// Its datacenter.
        datacenter: String,
        /// The rack.
        rack: String,
    },
    /// There are fewer nodes that may hold copies than copies.
    TooFewNodes {
        /// Where; None when datacenters do not count.
        datacenter: Option<String>,
        /// Copies.
        factor: u16,
        /// Nodes.
        nodes: usize,
    },
    /// A node cannot be drained, because no other node may hold the copy.
    NoNodeToDrainTo {
        /// The draining node.
        node: NodeNumber,
    },
    /// The nodes that may hold the copy have no room on their disks.
    NoRoom,
    /// No live copy is left from which the copy of the lost node could be rebuilt.
    NoLiveCopy {
        /// The lost node.
        node: NodeNumber,
    },
    /// A node that is down has to come back, or be declared lost.
    NodeDown {
        /// The node.
        node: NodeNumber,
    },
}

impl UnmetReason {
    /// In words, with nodes by the names that they are given.
    #[must_use]
    pub fn told(&self, name: impl Fn(NodeNumber) -> String) -> String {
        match self {
            Self::UnknownDatacenter { datacenter } => format!("datacenter {datacenter} has no node"),
            Self::EmptyRack { datacenter, rack } => {
                format!("rack {rack} of datacenter {datacenter} has no node that may hold a copy")
            }
            Self::TooFewNodes {
                datacenter,
                factor,
                nodes,
            } => {
                let place = datacenter
                    .as_ref()
                    .map_or("the cluster".to_owned(), |d| format!("datacenter {d}"));
                format!("{place} has {nodes} nodes that may hold copies, and the replication factor is {factor}")
            }
            Self::NoNodeToDrainTo { node } => format!(
                "node {} cannot be drained: no other node may hold its copies without breaking the replication",
                name(*node)
            ),
            Self::NoRoom => "no node that may hold the copy has room on its disk".to_owned(),
            Self::NoLiveCopy { node } => {
                format!("no live copy is left to rebuild the one of lost node {}", name(*node))
            }
            Self::NodeDown { node } => {
                format!("node {} is down: start it, or remove it from the cluster", name(*node))
            }
        }
    }
}

impl fmt::Display for UnmetReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told(|node| node.0.to_string()))
    }
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (tablets: {})", self.reason, self.tablets)
    }
}

/// Counts tablets by table and reason.
#[derive(Default)]
pub(super) struct UnmetCounts(BTreeMap<(usize, UnmetReason), u32>);

impl UnmetCounts {
    pub(super) fn add(&mut self, table: usize, reason: UnmetReason, tablets: u32) {
        *self.0.entry((table, reason)).or_default() += tablets;
    }

    pub(super) fn into_list(self) -> Vec<Unmet> {
        let unmet = |((table, reason), tablets)| Unmet { table, tablets, reason };
        self.0.into_iter().map(unmet).collect()
    }
}
