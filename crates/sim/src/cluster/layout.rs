//! Where the nodes of a cluster are, and where the copies.

use std::cell::{Cell, RefCell};

use super::history::{Asked, Copies, DATACENTERS};

/// Where the number of copies changes, or replicas are lost permanently, promises count as if each datacenter had so
/// many copies: then two levels overlap exactly where they do with any number of copies.
const ANY_COPIES: usize = 5;

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
    /// How many copies promises count with.
    pub(crate) copies: Copies,
    /// How many copies the keyspaces of the clients are to have.
    pub(crate) wanted: Cell<Copies>,
    /// Between which numbers of copies their tablets are, while the number changes.
    pub(crate) possible: RefCell<(Copies, Copies)>,
    /// How tables are cut: of keyspace `k`, and of keyspace `d`.
    tablets: [&'static str; 2],
    /// Each keyspace is cut as the other one was.
    pub(crate) is_swapped: Cell<bool>,
    /// For each node the numbers of its datacenter and rack.
    places: Vec<(usize, usize)>,
}

/// What operators do to a cluster that changes which nodes have copies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elastic {
    /// Machines that are not used at first, besides joiners.
    pub(crate) spares: usize,
    /// The number of copies changes, or replicas are lost permanently.
    pub(crate) weakens: bool,
    /// Operators do any of that, so the keyspaces of the clients are of both kinds.
    pub(crate) has_both_kinds: bool,
}

impl Layout {
    /// Nodes that join are in the first datacenter, spare machines wherever they are needed: here by turns.
    pub(crate) fn new(datacenters: &[Datacenter], joiners: usize, tablets: bool, elastic: Elastic) -> Self {
        let mut copies = [0; DATACENTERS];
        let mut places = Vec::new();
        for (number, datacenter) in datacenters.iter().enumerate() {
            copies[number] = datacenter.copies;
            places.extend((0..datacenter.nodes).map(|node| (number, node % datacenter.racks)));
        }
        let first = datacenters[0];
        places.extend((0..joiners).map(|joiner| (0, (first.nodes + joiner) % first.racks)));
        for spare in 0..elastic.spares {
            let number = spare % datacenters.len();
            places.push((number, spare / datacenters.len() % datacenters[number].racks));
        }
        // Few, because each is flushed into files of its own, and all machines wait for every file that one syncs.
        let kinds = ["'enabled': false", "'enabled': true, 'initial': 2"];
        let kind = kinds[usize::from(tablets)];
        let other = kinds[usize::from(tablets != elastic.has_both_kinds)];
        let copies = Copies(copies);
        let any = copies.0.map(|copies| if copies > 0 { ANY_COPIES } else { 0 });
        Self {
            copies: if elastic.weakens { Copies(any) } else { copies },
            wanted: Cell::new(copies),
            possible: RefCell::new((copies, copies)),
            tablets: [kind, other],
            is_swapped: Cell::new(false),
            places,
        }
    }

    /// How the tables of keyspace `k` are to be cut, 0, or of keyspace `d`, 1.
    pub(crate) fn tablets(&self, keyspace: usize) -> &'static str {
        self.tablets[keyspace ^ usize::from(self.is_swapped.get())]
    }

    /// The replication of a number of copies.
    pub(crate) fn replication(copies: Copies) -> String {
        let factor = |(number, copies): (usize, &usize)| format!(", '{}': {copies}", name(number));
        let named = copies.0.iter().enumerate().filter(|(_, copies)| **copies > 0);
        let factors: String = named.map(factor).collect();
        format!("replication = {{'class': 'NetworkTopologyStrategy'{factors}}}")
    }

    /// Whether the answers of so many replicas of each datacenter are enough for a level, with one of the numbers of
    /// copies that are possible now.
    pub(crate) fn is_met(&self, asked: Asked, answered: &[usize; DATACENTERS]) -> bool {
        let (least, most) = *self.possible.borrow();
        let mut copies = least;
        loop {
            if copies.least(asked).is_met(answered) {
                return true;
            }
            // The next one in order, by datacenter.
            let Some(grows) = (0..DATACENTERS).find(|at| copies.0[*at] < most.0[*at]) else {
                return false;
            };
            copies.0[grows] += 1;
            copies.0[..grows].copy_from_slice(&least.0[..grows]);
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
pub(super) fn name(datacenter: usize) -> String {
    format!("datacenter{}", datacenter + 1)
}
