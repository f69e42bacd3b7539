//! Where the nodes of a cluster are, and where the copies.

use super::history::{Copies, DATACENTERS};

/// One datacenter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datacenter {
    /// Nodes from the beginning.
    pub nodes: usize,
    /// Copies of each partition.
    pub copies: usize,
    /// Racks, which the nodes are in by turns.
    pub racks: usize,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) copies: Copies,
    /// What keyspaces are made with.
    pub(crate) replication: String,
    /// For each node the numbers of its datacenter and rack.
    places: Vec<(usize, usize)>,
}

impl Layout {
    /// Nodes that join are in the first datacenter.
    pub(crate) fn new(datacenters: &[Datacenter], joiners: usize, tablets: bool) -> Self {
        let mut copies = [0; DATACENTERS];
        let mut places = Vec::new();
        let mut factors = String::new();
        for (number, datacenter) in datacenters.iter().enumerate() {
            copies[number] = datacenter.copies;
            places.extend((0..datacenter.nodes).map(|node| (number, node % datacenter.racks)));
            factors += &format!(", '{}': {}", name(number), datacenter.copies);
        }
        let first = datacenters[0];
        places.extend((0..joiners).map(|joiner| (0, (first.nodes + joiner) % first.racks)));
        let class = "NetworkTopologyStrategy";
        // Few, because each is flushed into files of its own, and all machines wait for every file that one syncs.
        let tablets = if tablets {
            "'enabled': true, 'initial': 2"
        } else {
            "'enabled': false"
        };
        Self {
            copies: Copies(copies),
            replication: format!("replication = {{'class': '{class}'{factors}}} AND tablets = {{{tablets}}}"),
            places,
        }
    }

    pub(crate) fn datacenter(&self, node: usize) -> usize {
        self.places[node].0
    }

    pub(crate) fn datacenters(&self) -> usize {
        self.copies.0.iter().filter(|copies| **copies > 0).count()
    }

    /// The names of each node's datacenter and rack.
    pub(crate) fn names(&self) -> Vec<(String, String)> {
        let names = |(datacenter, rack): &(usize, usize)| (name(*datacenter), format!("rack{rack}"));
        self.places.iter().map(names).collect()
    }
}

/// The name of a datacenter.
fn name(datacenter: usize) -> String {
    format!("datacenter{}", datacenter + 1)
}
