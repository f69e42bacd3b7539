//! Clusters from text: a line per node, `name dc rack [key=value…]`, with `tokens=1,2`, `shards=2`, `state=joining`.
//! The host id of the n-th node of a text is the number n.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use topology::{HostId, Location, Node, NodeNumber, NodeState, Replica, Topology, TopologyCommand};
use types::Token;
use uuid::Uuid;

pub const CLUSTER_ID: Uuid = Uuid::from_u128(0xc1);

pub fn host(n: u16) -> HostId {
    HostId(Uuid::from_u128(u128::from(n)))
}

pub fn address(n: u16, port: u16) -> SocketAddr {
    let [high, low] = n.to_be_bytes();
    SocketAddr::from(([10, 0, high, low], port))
}

pub fn node(n: u16, datacenter: &str, rack: &str) -> Node {
    Node {
        host_id: host(n),
        internode: address(n, 7000),
        native: address(n, 9042),
        native_shard_aware_port: Some(19042),
        location: Location {
            datacenter: datacenter.to_owned(),
            rack: rack.to_owned(),
        },
        shards: 1,
        tokens: Vec::new(),
        state: NodeState::Joining,
        features: BTreeSet::from(["A".to_owned(), "B".to_owned()]),
        release: "1.0".to_owned(),
        loss: None,
    }
}

pub struct Cluster {
    pub topology: Topology,
    pub names: Vec<String>,
}

pub fn cluster(text: &str) -> Cluster {
    let mut topology = Topology::new("Test Cluster", CLUSTER_ID);
    let mut names = Vec::new();
    for (n, line) in (1..).zip(text.lines().map(str::trim).filter(|l| !l.is_empty())) {
        let mut words = line.split_whitespace();
        let mut next = || words.next().expect("name, datacenter, rack");
        names.push(next().to_owned());
        let mut node = node(n, next(), next());
        let mut states = vec![NodeState::Normal];
        for word in words {
            let (key, value) = word.split_once('=').expect("key=value");
            match key {
                "tokens" => {
                    let tokens = value.split(',').map(|t| Token(t.parse().expect("a token")));
                    node.tokens = tokens.collect();
                }
                "shards" => node.shards = value.parse().expect("a count"),
                "state" => {
                    states = match value {
                        "joining" => vec![],
                        "leaving" => vec![NodeState::Normal, NodeState::Leaving],
                        "left" => vec![NodeState::Left],
                        _ => panic!("state {value}"),
                    }
                }
                _ => panic!("key {key}"),
            }
        }
        let host_id = node.host_id;
        let mut apply = |command| topology.apply(&command).unwrap_or_else(|e| panic!("{line}: {e}"));
        apply(TopologyCommand::AddNode(Box::new(node)));
        for state in states {
            apply(TopologyCommand::SetState { host_id, state });
        }
    }
    Cluster { topology, names }
}

impl Cluster {
    pub fn name(&self, number: NodeNumber) -> &str {
        &self.names[number.index()]
    }

    /// `a b c`, with `/shard` where a node has several.
    pub fn show(&self, replicas: &[Replica]) -> String {
        let show = |r: &Replica| {
            let shards = self.topology.numbered(r.node).expect("a node of the cluster").shards;
            let name = self.name(r.node);
            if shards > 1 {
                format!("{name}/{}", r.shard)
            } else {
                name.to_owned()
            }
        };
        replicas.iter().map(show).collect::<Vec<_>>().join(" ")
    }
}

pub mod world;

/// All nodes of a topology, as input for the balancer: each holds what it has.
pub fn holders(topology: &Topology) -> Vec<topology::NodeInput> {
    let input = |(number, _)| topology::NodeInput {
        number,
        role: topology::Role::Holds,
        capacity_bytes: 0,
        used_bytes: 0,
        replaces: None,
    };
    topology.numbered_nodes().map(input).collect()
}
