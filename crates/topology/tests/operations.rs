//! Zero-token nodes, excluded nodes, and nodes that leave and stay.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::common;
use crate::common::{CLUSTER_ID, cluster, host, node};
use topology::record::TopologyRecord;
use topology::{
    Admission, CLOCK_OFFSET_MAX, CommandError, JoinFacts, JoinRequest, Load, Locality, NodeState, PlacementError,
    Refusal, Replaced, Replication, Topology, TopologyCommand, admit, first_tablets, ring_map,
};
use types::Token;

/// Three nodes of dc1 and one of dc2, which is a zero-token node.
fn with_arbiter() -> Topology {
    let mut topology = cluster(
        "a dc1 r1 tokens=10
         b dc1 r2 tokens=20
         c dc1 r3 tokens=30
         d dc2 r1 state=joining",
    )
    .topology;
    let becomes = TopologyCommand::BecomeZeroToken { host_id: host(4) };
    topology.apply(&becomes).expect("it joins without tokens");
    topology
}

fn stored(topology: &Topology) -> Topology {
    let record = record::encode(&TopologyRecord::of(topology));
    let read: TopologyRecord = record::decode(&record, &record::Known::everything()).expect("what was written");
    read.topology().expect("a topology")
}

#[test]
fn a_zero_token_node_is_a_full_member_that_gets_no_copies() {
    let topology = with_arbiter();
    let arbiter = topology.node(host(4)).expect("it is there");
    assert_eq!(
        (arbiter.state, topology.is_zero_token(host(4))),
        (NodeState::Normal, true)
    );
    assert!(!topology.may_hold(arbiter));

    let simple = Replication::Simple { factor: 4 };
    for replication in [&simple, &Replication::Everywhere] {
        let map = first_tablets(&topology, replication, None, &Load::default()).expect("three nodes suffice");
        let holders: BTreeSet<u16> = map
            .tablets()
            .flat_map(|t| t.replicas.iter().map(|r| r.node.0))
            .collect();
        assert_eq!(holders, BTreeSet::from([0, 1, 2]), "{replication:?}");
        let ring = ring_map(&topology, replication).expect("a ring");
        assert!(ring.tablets().all(|t| t.replicas.len() == 3), "{replication:?}");
    }
    let locality = Locality::new(&topology, host(1)).expect("a member");
    assert_eq!(locality.nodes(), 3, "levels do not count it");
    assert_eq!(stored(&topology), topology);
}

#[test]
fn a_datacenter_of_zero_token_nodes_is_no_target_of_a_replication() {
    let topology = with_arbiter();
    assert_eq!(topology.datacenters(), BTreeSet::from(["dc1", "dc2"]));
    assert_eq!(topology.datacenters_of_data(), BTreeSet::from(["dc1"]));
    let factors = BTreeMap::from([("dc1".to_owned(), 3.into()), ("dc2".to_owned(), 1.into())]);
    let both = Replication::NetworkTopology(factors);
    let refused = topology::place_tablets(&topology, &both, 2);
    let Err(PlacementError::UnknownDatacenter { datacenter, known }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((&*datacenter, known), ("dc2", vec!["dc1".to_owned()]));
}

#[test]
fn only_a_joining_node_without_tokens_becomes_a_zero_token_node() {
    let mut topology = cluster(
        "a dc1 r1 tokens=10
         b dc1 r1 state=joining tokens=20",
    )
    .topology;
    for host_id in [host(1), host(2)] {
        let refused = topology.apply(&TopologyCommand::BecomeZeroToken { host_id });
        assert!(refused.is_err(), "{host_id}");
    }
    let mut topology = with_arbiter();
    for command in [
        TopologyCommand::SetState {
            host_id: host(4),
            state: NodeState::Leaving,
        },
        TopologyCommand::RemoveNode { host_id: host(4) },
    ] {
        topology.apply(&command).expect("it leaves at once");
    }
    assert!(!topology.is_zero_token(host(4)));
    assert_eq!(stored(&topology), topology);
}

#[test]
fn an_excluded_node_stays_a_member_until_it_is_removed() {
    let mut topology = cluster(
        "a dc1 r1 tokens=10
         b dc1 r1 tokens=20
         c dc1 r1 state=joining",
    )
    .topology;
    let exclude = |n| TopologyCommand::Exclude { host_id: host(n) };
    let before = ring_map(&topology, &Replication::Simple { factor: 2 });
    topology.apply(&exclude(2)).expect("a member");
    let excluded = topology.node(host(2)).expect("it is there").clone();
    assert_eq!((excluded.state, topology.is_lost(&excluded)), (NodeState::Normal, true));
    let owners = |map: Result<topology::TabletMap, PlacementError>| -> Vec<_> {
        let map = map.expect("a ring");
        map.tablets().map(|t| t.replicas.to_vec()).collect()
    };
    let after = ring_map(&topology, &Replication::Simple { factor: 2 });
    assert_eq!(owners(before), owners(after), "it owns what it owned");
    assert_eq!(topology.apply(&exclude(3)), Err(CommandError::Joining(host(3))));
    assert_eq!(topology.apply(&exclude(9)), Err(CommandError::UnknownNode(host(9))));
    assert_eq!(stored(&topology), topology);

    let mut heir = node(5, "dc1", "r1");
    heir.internode = excluded.internode;
    topology
        .apply(&TopologyCommand::AddNode(Box::new(heir)))
        .expect("an excluded node keeps no address");
    topology
        .apply(&TopologyCommand::RemoveNode { host_id: host(2) })
        .expect("it is removed later");
    assert!(!topology.is_excluded(host(2)));
}

#[test]
fn a_node_that_leaves_may_stay_with_its_tokens() {
    let mut topology = cluster(
        "a dc1 r1 tokens=10
         b dc1 r1 tokens=20",
    )
    .topology;
    let stay = |n: u16, tokens: &[i64]| TopologyCommand::Stay {
        host_id: host(n),
        tokens: tokens.iter().map(|token| Token(*token)).collect(),
    };
    let leave = TopologyCommand::SetState {
        host_id: host(2),
        state: NodeState::Leaving,
    };
    assert!(topology.apply(&stay(2, &[])).is_err(), "it does not leave");
    topology.apply(&leave).expect("it leaves");
    topology.apply(&stay(2, &[])).expect("it stays");
    let tokens = |topology: &Topology| topology.node(host(2)).map(|node| (node.state, node.tokens.clone()));
    assert_eq!(tokens(&topology), Some((NodeState::Normal, vec![Token(20)])));

    topology.apply(&leave).expect("it leaves again");
    topology.end_ring_change();
    assert!(topology.apply(&stay(2, &[10])).is_err(), "another node has the token");
    topology
        .apply(&stay(2, &[20]))
        .expect("it stays, and takes its tokens back");
    assert_eq!(tokens(&topology), Some((NodeState::Normal, vec![Token(20)])));

    let lost = TopologyCommand::GiveUp {
        host_id: host(2),
        replaced_by: None,
    };
    topology.apply(&lost).expect("it is given up");
    assert!(topology.apply(&stay(2, &[])).is_err(), "a lost node does not stay");
}

fn request(n: u16, joins_ring: bool) -> JoinRequest {
    JoinRequest {
        cluster_name: "Test Cluster".to_owned(),
        cluster_id: None,
        node: node(n, "dc1", "r1"),
        wall_clock: Duration::from_secs(1),
        auto_bootstrap: true,
        joins_ring,
        replaces: None,
        ignored: Vec::new(),
    }
}

fn answer(topology: &Topology, request: &JoinRequest, alive: &[u16]) -> Result<Admission, Refusal> {
    let facts = JoinFacts {
        wall_clock: Duration::from_secs(1),
        alive: alive.iter().map(|n| host(*n)).collect(),
        clock_offset_max: CLOCK_OFFSET_MAX,
    };
    admit(topology, request, &facts)
}

#[test]
fn a_node_keeps_for_its_life_whether_it_is_a_zero_token_node() {
    let topology = with_arbiter();
    for (n, was_zero_token) in [(1, false), (4, true)] {
        let mut back = request(n, !was_zero_token);
        back.cluster_id = Some(CLUSTER_ID);
        back.node = topology.node(host(n)).expect("a member").clone();
        let restarts = Ok(Admission::Restart { commands: Vec::new() });
        assert_eq!(answer(&topology, &back, &[]), restarts, "node {n}");
        back.joins_ring = was_zero_token;
        let refusal = Refusal::JoinRingChanged { was_zero_token };
        assert_eq!(answer(&topology, &back, &[]), Err(refusal), "node {n}");
    }
    let empty = Topology::new("Test Cluster", CLUSTER_ID);
    assert_eq!(
        answer(&empty, &request(1, false), &[]),
        Err(Refusal::FirstWithoutTokens)
    );
}

#[test]
fn a_node_takes_the_place_of_one_of_its_kind() {
    let topology = with_arbiter();
    let replaces = |n, joins_ring, datacenter: &str| {
        let mut request = request(9, joins_ring);
        datacenter.clone_into(&mut request.node.location.datacenter);
        request.replaces = Some(Replaced::Host(host(n)));
        answer(&topology, &request, &[])
    };
    assert!(matches!(replaces(1, false, "dc1"), Err(Refusal::CannotReplace { .. })));
    assert!(matches!(replaces(4, true, "dc2"), Err(Refusal::CannotReplace { .. })));
    assert!(replaces(1, true, "dc1").is_ok());
    assert!(replaces(4, false, "dc2").is_ok());
}

#[test]
fn a_replacement_excludes_the_dead_nodes_that_it_is_to_ignore() {
    let topology = with_arbiter();
    let mut new = request(9, true);
    new.replaces = Some(Replaced::Host(host(1)));
    new.ignored = vec![Replaced::Host(host(2)), Replaced::Address(common::address(3, 0).ip())];
    let Ok(Admission::Join { commands, .. }) = answer(&topology, &new, &[4]) else {
        panic!("it may join");
    };
    let exclude = |n| TopologyCommand::Exclude { host_id: host(n) };
    assert_eq!(commands[..2], [exclude(2), exclude(3)]);

    let why = |named, alive: &[u16]| {
        let mut new = new.clone();
        new.ignored = vec![named];
        match answer(&topology, &new, alive) {
            Err(refusal @ Refusal::CannotIgnore { .. }) => refusal.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert!(why(Replaced::Host(host(7)), &[]).contains("is no member"));
    assert!(why(Replaced::Host(host(2)), &[2]).contains("is alive"));
}

#[test]
fn an_excluded_node_does_not_come_back() {
    let mut topology = with_arbiter();
    topology
        .apply(&TopologyCommand::Exclude { host_id: host(2) })
        .expect("a member");
    let mut back = request(2, true);
    back.cluster_id = Some(CLUSTER_ID);
    back.node = topology.node(host(2)).expect("a member").clone();
    assert_eq!(answer(&topology, &back, &[]), Err(Refusal::Excluded(host(2))));
}
