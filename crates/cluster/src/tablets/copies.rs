//! How many copies a keyspace wants where, and which nodes count for that: decided here for the planner, for reports to
//! operators, and for what is undone.
//!
//! | a member | counts among the nodes for copies | its copies |
//! |---|---|---|
//! | full member | yes | stay |
//! | full member that is down, or excluded | yes: factors and moves treat it as if it came back | stay |
//! | full member that waits for the token ring to leave | no | go |
//! | leaves, and answers | no | go |
//! | leaves, and is down | yes: what it has stays until it answers or is given up | stay |
//! | given up | no | are rebuilt elsewhere |
//! | given up, and the node that takes its place is not a full member yet | yes: that one gets them | wait |
//! | joins | no | it has none |
//! | zero-token node | no | it has none |
//!
//! So a datacenter with zero-token nodes only takes no copies, and nothing waits for them.

use crate::metadata::Metadata;
use crate::ring::parsed_replication;
use schema::Keyspace;
use std::collections::BTreeMap;
use topology::{Copies, HostId, Node, NodeState, Replication, Role};

/// A part of the cluster that a replication gives a number of copies to: all of it, a datacenter, or a rack of one.
type RackName<'t> = (&'t str, &'t str);

impl Metadata {
    /// What a member is to a plan, when these nodes answer.
    pub(crate) fn role_of(&self, node: &Node, is_live: impl Fn(HostId) -> bool) -> Role {
        // One that takes the place of another gets its copies when it is a full member.
        let heir = node.loss.and_then(|loss| loss.replaced_by);
        let is_coming = |heir: &Node| heir.state == NodeState::Joining;
        let waits_for_heir = heir.is_some_and(|heir| self.topology.node(heir).is_none_or(is_coming));
        let number = self.topology.number(node.host_id);
        match node.state {
            _ if waits_for_heir => Role::Down,
            _ if node.loss.is_some() => Role::Lost,
            NodeState::Joining | NodeState::Left => Role::Idle,
            _ if self.topology.is_zero_token(node.host_id) => Role::Idle,
            _ if !is_live(node.host_id) || self.topology.is_excluded(node.host_id) => Role::Down,
            NodeState::Leaving => Role::Drains,
            // Its ranges of the token ring wait, and its tablets need not.
            NodeState::Normal if number.is_some_and(|number| self.waits_to_leave(number)) => Role::Drains,
            NodeState::Normal => Role::Holds,
        }
    }

    /// Whether a member counts among the nodes that may have the copies which a replication wants.
    pub(crate) fn counts_for_copies(&self, node: &Node, is_live: impl Fn(HostId) -> bool) -> bool {
        matches!(self.role_of(node, is_live), Role::Holds | Role::Down)
    }

    /// How many tablets of a keyspace have other copies than it wants and the nodes allow, when these nodes answer.
    pub(crate) fn tablets_with_other_copies(&self, keyspace: &Keyspace, is_live: impl Fn(HostId) -> bool) -> u64 {
        let maps = keyspace.tables.values().filter_map(|table| self.tablets.get(&table.id));
        let mut maps = maps.peekable();
        if maps.peek().is_none() {
            return 0;
        }
        let Some(replication) = parsed_replication(&self.topology, &keyspace.replication) else {
            return 0;
        };
        if matches!(replication, Replication::Local | Replication::Everywhere) {
            return 0;
        }
        let counted = self
            .topology
            .members()
            .filter(|node| self.counts_for_copies(node, &is_live));
        let wanted = wanted_copies(&replication, counted);
        let place_of_node: Vec<RackName<'_>> = self
            .topology
            .numbered_nodes()
            .map(|(_, node)| place_of(&replication, node))
            .collect();
        let mut last: (&[topology::Replica], bool) = (&[], false);
        let mut count = 0;
        for tablet in maps.flat_map(|map| map.tablets()) {
            // Neighbours often have the same replicas.
            if tablet.replicas != last.0 || last.0.is_empty() {
                let mut has: BTreeMap<RackName<'_>, u16> = wanted.keys().map(|place| (*place, 0)).collect();
                for replica in tablet.replicas {
                    let place = place_of_node.get(replica.node.index()).copied().unwrap_or_default();
                    *has.entry(place).or_default() += 1;
                }
                let is_other = |(place, has): (&RackName<'_>, &u16)| wanted.get(place).copied().unwrap_or(0) != *has;
                last = (tablet.replicas, has.iter().any(is_other));
            }
            count += u64::from(last.1);
        }
        count
    }
}

/// Where a copy on a node counts.
fn place_of<'t>(replication: &Replication, node: &'t Node) -> RackName<'t> {
    match replication {
        Replication::NetworkTopology(factors) => match factors.get(&node.location.datacenter) {
            Some(Copies::Racks(_)) => (&node.location.datacenter, &node.location.rack),
            Some(Copies::Count(_)) | None => (&node.location.datacenter, ""),
        },
        Replication::Simple { .. } | Replication::Local | Replication::Everywhere => ("", ""),
    }
}

/// How many copies a replication wants in each place, and no more than there are nodes for them.
fn wanted_copies<'t>(
    replication: &'t Replication,
    counted: impl Iterator<Item = &'t Node>,
) -> BTreeMap<RackName<'t>, u16> {
    let mut nodes: BTreeMap<RackName<'_>, u16> = BTreeMap::new();
    for node in counted {
        *nodes.entry(place_of(replication, node)).or_default() += 1;
    }
    let mut wanted: BTreeMap<RackName<'_>, u16> = BTreeMap::new();
    match replication {
        Replication::NetworkTopology(factors) => {
            for (datacenter, copies) in factors {
                match copies {
                    Copies::Count(factor) => wanted.extend([((&**datacenter, ""), *factor)]),
                    Copies::Racks(racks) => wanted.extend(racks.iter().map(|rack| ((&**datacenter, &**rack), 1))),
                }
            }
        }
        Replication::Simple { factor } => wanted.extend([(("", ""), *factor)]),
        Replication::Local | Replication::Everywhere => {}
    }
    for (place, wanted) in &mut wanted {
        *wanted = (*wanted).min(nodes.get(place).copied().unwrap_or(0));
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::Schema;
    use std::collections::BTreeSet;
    use std::net::SocketAddr;
    use std::sync::Arc;
    use topology::{Location, Topology, TopologyCommand};
    use uuid::Uuid;

    fn host(number: u16) -> HostId {
        HostId(Uuid::from_u128(u128::from(number)))
    }

    fn node(number: u16, state: NodeState) -> Node {
        let address = SocketAddr::from(([10, 0, 0, 1], 7000 + number));
        Node {
            host_id: host(number),
            internode: address,
            native: address,
            native_shard_aware_port: None,
            location: Location {
                datacenter: "dc".to_owned(),
                rack: format!("rack{number}"),
            },
            shards: 1,
            tokens: vec![types::Token(i64::from(number) + 1)],
            state,
            features: BTreeSet::new(),
            release: "1".to_owned(),
            loss: None,
        }
    }

    /// Two full members, of which the second has gone through these commands.
    fn metadata(commands: &[TopologyCommand]) -> Metadata {
        let mut topology = Topology::new("sea", Uuid::from_u128(9));
        let join = TopologyCommand::AddNode(Box::new(node(0, NodeState::Normal)));
        topology.apply(&join).expect("the first");
        for command in commands {
            topology.apply(command).expect("it may be");
        }
        let schema = Schema {
            version: Uuid::nil(),
            keyspaces: BTreeMap::new(),
        };
        Metadata::new(Arc::new(schema), topology)
    }

    #[test]
    fn each_member_counts_once_and_everywhere_alike() {
        let add = TopologyCommand::AddNode(Box::new(node(1, NodeState::Joining)));
        let set = |state| TopologyCommand::SetState {
            host_id: host(1),
            state,
        };
        let give_up = |replaced_by| TopologyCommand::GiveUp {
            host_id: host(1),
            replaced_by,
        };
        let (normal, leaving) = (set(NodeState::Normal), set(NodeState::Leaving));
        let excluded = TopologyCommand::Exclude { host_id: host(1) };
        let mut empty = node(1, NodeState::Joining);
        empty.tokens.clear();
        let zero_token = [
            TopologyCommand::AddNode(Box::new(empty)),
            TopologyCommand::BecomeZeroToken { host_id: host(1) },
        ];
        let heir = TopologyCommand::AddNode(Box::new(Node {
            tokens: vec![types::Token(50)],
            ..node(2, NodeState::Joining)
        }));
        let has_come = TopologyCommand::SetState {
            host_id: host(2),
            state: NodeState::Normal,
        };
        let member = [add.clone(), normal];
        let with = |more: &[TopologyCommand]| [&member[..], more].concat();
        let cases = [
            ("joins", vec![add], true, Role::Idle, false),
            ("full member", with(&[]), true, Role::Holds, true),
            ("down", with(&[]), false, Role::Down, true),
            (
                "excluded",
                with(std::slice::from_ref(&excluded)),
                false,
                Role::Down,
                true,
            ),
            (
                "leaves",
                with(std::slice::from_ref(&leaving)),
                true,
                Role::Drains,
                false,
            ),
            ("leaves and is down", with(&[leaving]), false, Role::Down, true),
            ("given up", with(&[give_up(None)]), false, Role::Lost, false),
            (
                "excluded, then given up",
                with(&[excluded, give_up(None)]),
                false,
                Role::Lost,
                false,
            ),
            (
                "its heir joins",
                with(&[give_up(Some(host(2))), heir.clone()]),
                false,
                Role::Down,
                true,
            ),
            (
                "its heir has come",
                with(&[give_up(Some(host(2))), heir, has_come]),
                false,
                Role::Lost,
                false,
            ),
            ("zero-token node", zero_token.to_vec(), true, Role::Idle, false),
        ];
        for (name, commands, is_live, role, counts) in cases {
            let metadata = metadata(&commands);
            let node = metadata.topology.node(host(1)).expect("it was added");
            let is_live = |host_id: HostId| is_live || host_id != host(1);
            assert_eq!(metadata.role_of(node, is_live), role, "{name}");
            assert_eq!(metadata.counts_for_copies(node, is_live), counts, "{name}");
        }
    }

    #[test]
    fn no_more_copies_are_wanted_than_there_are_nodes_for() {
        let nodes = [0, 1, 2].map(|number| node(number, NodeState::Normal));
        let racks = |names: &[&str]| Copies::Racks(names.iter().map(|name| (*name).to_owned()).collect());
        let of = |copies: Copies| Replication::NetworkTopology(BTreeMap::from([("dc".to_owned(), copies)]));
        let told = |replication: &Replication| -> Vec<(String, u16)> {
            let wanted = wanted_copies(replication, nodes.iter());
            let told = wanted
                .iter()
                .map(|((datacenter, rack), count)| (format!("{datacenter}/{rack}"), *count));
            told.collect()
        };
        assert_eq!(told(&Replication::Simple { factor: 5 }), [("/".to_owned(), 3)]);
        assert_eq!(told(&of(Copies::Count(2))), [("dc/".to_owned(), 2)]);
        let listed = of(racks(&["rack0", "rack9"]));
        assert_eq!(told(&listed), [("dc/rack0".to_owned(), 1), ("dc/rack9".to_owned(), 0)]);
        let elsewhere = Replication::NetworkTopology(BTreeMap::from([("arbiter".to_owned(), Copies::Count(1))]));
        assert_eq!(told(&elsewhere), [("arbiter/".to_owned(), 0)]);
    }
}
