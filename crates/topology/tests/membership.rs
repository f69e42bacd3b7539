//! Commands and what they may not do, joins and refusals, snitches, and the bytes of it all.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::common::{CLUSTER_ID, address, cluster, host, node};
use proptest::prelude::*;
use record::{Known, RecordError};
use topology::record::{TopologyCommandRecord, TopologyRecord};
use topology::{
    Admission, CLOCK_OFFSET_MAX, HostId, JoinFacts, JoinRequest, Location, Node, NodeNumber, NodeState, Snitch,
    Topology, TopologyCommand, admit,
};
use types::Token;
use uuid::Uuid;

fn features(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|n| (*n).to_owned()).collect()
}

fn set_state(n: u16, state: NodeState) -> TopologyCommand {
    TopologyCommand::SetState {
        host_id: host(n),
        state,
    }
}

fn set_tokens(n: u16, tokens: &[i64]) -> TopologyCommand {
    TopologyCommand::SetTokens {
        host_id: host(n),
        tokens: tokens.iter().map(|t| Token(*t)).collect(),
    }
}

fn add(node: Node) -> TopologyCommand {
    TopologyCommand::AddNode(Box::new(node))
}

fn three() -> Topology {
    cluster(
        "a dc1 r1 tokens=10 shards=2
         b dc1 r2 tokens=20 shards=2
         c dc1 r3 shards=2 state=joining",
    )
    .topology
}

/// Adds a node that is like others but for this.
fn with(n: u16, change: fn(&mut Node)) -> TopologyCommand {
    let mut node = node(n, "dc1", "r1");
    change(&mut node);
    add(node)
}

/// Each command is refused in these words and changes nothing.
fn check_refused_commands(table: Vec<(TopologyCommand, String)>) {
    let mut topology = three();
    let before = topology.clone();
    for (command, expected) in table {
        let error = topology.apply(&command).expect_err(&expected);
        assert_eq!(error.to_string(), expected);
        assert_eq!(topology, before, "{command:?} was refused and changed the topology");
    }
}

#[test]
fn a_node_that_may_not_be_added_changes_nothing_and_says_why() {
    let id = |n: u16| host(n).to_string();
    check_refused_commands(vec![
        (
            with(1, |_| ()),
            format!("host id {} was added before, and is given once only", id(1)),
        ),
        (
            with(9, |n| n.internode = address(1, 7000)),
            format!("address 10.0.0.1:7000 is that of node {}", id(1)),
        ),
        (
            with(9, |n| n.tokens = vec![Token(20)]),
            format!("token 20 is owned by node {}", id(2)),
        ),
        (
            with(9, |n| n.tokens = vec![Token(5), Token(5)]),
            format!("the tokens of node {} are not in ascending order, each once", id(9)),
        ),
        (
            with(9, |n| n.tokens = vec![Token::MIN]),
            format!(
                "the tokens of node {} contain the place before the ring, which no node can own",
                id(9)
            ),
        ),
        (
            with(9, |n| n.shards = 0),
            format!("node {} cannot go from 0 shards to 0: it has at least one", id(9)),
        ),
        (
            with(9, |n| n.location.rack.clear()),
            format!("the rack of node {} is empty or longer than 1024 bytes", id(9)),
        ),
        (
            with(9, |n| n.state = NodeState::Normal),
            format!("node {} is JOINING, from where no way leads to NORMAL", id(9)),
        ),
    ]);
}

#[test]
fn a_command_that_may_not_be_changes_nothing_and_says_why() {
    let id = |n: u16| host(n).to_string();
    check_refused_commands(vec![
        (
            set_state(8, NodeState::Normal),
            format!("host id {} is not a node of this cluster", id(8)),
        ),
        (
            set_state(3, NodeState::Leaving),
            format!("node {} is JOINING, from where no way leads to LEAVING", id(3)),
        ),
        (
            set_state(1, NodeState::Left),
            format!("node {} is NORMAL, from where no way leads to LEFT", id(1)),
        ),
        (
            set_state(1, NodeState::Joining),
            format!("node {} is NORMAL, from where no way leads to JOINING", id(1)),
        ),
        (
            set_tokens(1, &[11]),
            format!("the tokens of node {} can be set only while it joins", id(1)),
        ),
        (set_tokens(3, &[10]), format!("token 10 is owned by node {}", id(1))),
        (
            TopologyCommand::SetShards {
                host_id: host(1),
                shards: 0,
            },
            format!("node {} cannot go from 2 shards to 0: it has at least one", id(1)),
        ),
        (
            TopologyCommand::EnableFeatures(features(&["A", "Z"])),
            format!("node {} lacks feature Z, which every node must have", id(1)),
        ),
        (
            TopologyCommand::RemoveNode { host_id: host(8) },
            format!("host id {} is not a node of this cluster", id(8)),
        ),
    ]);
}

#[test]
fn a_node_lives_from_joining_to_left_and_never_comes_back() {
    let mut topology = three();
    let version = topology.version();
    let story = [
        set_tokens(3, &[30, 40]),
        set_state(3, NodeState::Normal),
        TopologyCommand::ChangeAddress {
            host_id: host(3),
            internode: address(77, 7000),
            native: address(77, 9042),
            native_shard_aware_port: None,
        },
        TopologyCommand::SetShards {
            host_id: host(3),
            shards: 4,
        },
        set_state(3, NodeState::Leaving),
        set_state(3, NodeState::Normal),
        set_state(3, NodeState::Leaving),
        set_state(3, NodeState::Left),
    ];
    for command in &story {
        topology.apply(command).expect("a step of a node's life");
    }
    assert_eq!(topology.version(), version + story.len() as u64);
    let left = topology.node(host(3)).expect("a node that left is remembered");
    assert_eq!((left.state, left.tokens.len(), left.shards), (NodeState::Left, 0, 4));
    assert_eq!(topology.members().count(), 2);
    assert!(
        topology.apply(&set_state(3, NodeState::Normal)).is_err(),
        "it came back"
    );
    assert!(topology.apply(&add(node(3, "dc1", "r1"))).is_err(), "it was added anew");

    let mut next = node(4, "dc1", "r3");
    next.internode = address(77, 7000);
    next.tokens = vec![Token(30)];
    topology
        .apply(&add(next))
        .expect("address and token of a node that left are free");
    assert_eq!(
        topology.number(host(4)),
        Some(NodeNumber(3)),
        "a number was given twice"
    );
    assert_eq!(topology.numbered(NodeNumber(2)).map(|n| n.host_id), Some(host(3)));
    topology
        .apply(&TopologyCommand::RemoveNode { host_id: host(1) })
        .expect("a dead node is removed");
    assert_eq!(topology.node(host(1)).map(|n| n.state), Some(NodeState::Left));
}

#[test]
fn a_feature_is_enabled_when_all_have_it_and_asked_of_all_from_then_on() {
    let mut topology = three();
    topology
        .apply(&TopologyCommand::SetFeatures {
            host_id: host(1),
            features: features(&["A", "B", "C"]),
            release: "2.0".to_owned(),
        })
        .expect("a later release");
    assert_eq!(
        topology.features_to_enable(),
        features(&["A", "B"]),
        "C is not everywhere yet"
    );
    topology
        .apply(&TopologyCommand::EnableFeatures(features(&["A"])))
        .expect("all have it");
    assert_eq!(topology.features_to_enable(), features(&["B"]));
    let downgrade = TopologyCommand::SetFeatures {
        host_id: host(2),
        features: features(&["B"]),
        release: "0.9".to_owned(),
    };
    assert!(
        topology.apply(&downgrade).is_err(),
        "a node may go back behind what is enabled"
    );
    let mut old = node(9, "dc1", "r1");
    old.features = features(&["B"]);
    assert!(
        topology.apply(&add(old)).is_err(),
        "a node may join without what is enabled"
    );
}

/// Node 9, new, with empty files.
fn request() -> JoinRequest {
    request_of(node(9, "dc1", "r1"), None)
}

/// A node that says of itself what the topology has.
fn request_of(node: Node, cluster_id: Option<Uuid>) -> JoinRequest {
    JoinRequest {
        cluster_name: "Test Cluster".to_owned(),
        cluster_id,
        node,
        wall_clock: Duration::from_secs(1_000_000),
        auto_bootstrap: true,
        joins_ring: true,
        replaces: None,
        ignored: Vec::new(),
    }
}

fn facts(alive: &[u16]) -> JoinFacts {
    JoinFacts {
        wall_clock: Duration::from_secs(1_000_000),
        alive: alive.iter().map(|n| host(*n)).collect(),
        clock_offset_max: CLOCK_OFFSET_MAX,
    }
}

fn member(topology: &Topology, n: u16) -> JoinRequest {
    request_of(topology.node(host(n)).expect("a node").clone(), Some(CLUSTER_ID))
}

/// Three nodes with features, and a fourth that was removed.
fn three_and_one_removed() -> Topology {
    let mut topology = three();
    topology
        .apply(&TopologyCommand::EnableFeatures(features(&["A", "B"])))
        .expect("all have them");
    topology.apply(&add(node(4, "dc1", "r1"))).expect("a node");
    topology
        .apply(&TopologyCommand::RemoveNode { host_id: host(4) })
        .expect("a member");
    topology
}

/// A new node that asks, but for this.
fn new(change: fn(&mut JoinRequest)) -> JoinRequest {
    let mut request = request();
    change(&mut request);
    request
}

/// A member that comes back, but for this.
fn old(n: u16, change: fn(&mut JoinRequest)) -> JoinRequest {
    let mut request = member(&three_and_one_removed(), n);
    change(&mut request);
    request
}

/// Request, the nodes that are alive, the reason, what to do.
type Refused<'a> = (JoinRequest, &'a [u16], &'a str, &'a str);

fn check_refused(table: Vec<Refused<'_>>) {
    let topology = three_and_one_removed();
    for (request, alive, reason, remedy) in table {
        let refusal = admit(&topology, &request, &facts(alive)).expect_err(reason).to_string();
        assert!(refusal.contains(reason), "'{refusal}' does not say '{reason}'");
        assert!(refusal.contains(remedy), "'{refusal}' does not say '{remedy}'");
    }
}

#[test]
fn a_node_of_another_cluster_or_identity_may_not_join_and_is_told_what_to_do() {
    check_refused(vec![
        (
            new(|r| r.cluster_name = "Prod".to_owned()),
            &[1, 2],
            "This cluster is named 'Test Cluster', the node is configured for 'Prod'",
            "Correct cluster_name or the seeds",
        ),
        (
            new(|r| r.cluster_id = Some(Uuid::from_u128(5))),
            &[1, 2],
            "The node's files are of cluster 00000000-0000-0000-0000-000000000005, this is cluster",
            "Correct the seeds, or start the node on an empty data directory",
        ),
        (
            new(|r| r.cluster_id = Some(CLUSTER_ID)),
            &[1, 2],
            "never was a member of it",
            "Start the node on an empty data directory",
        ),
        (
            old(1, |r| r.node.internode = address(55, 7000)),
            &[1, 2],
            "is alive at 10.0.0.1:7000, and asks to join from 10.0.0.55:7000: two nodes have one identity",
            "Stop one of them",
        ),
        (
            new(|r| r.node.host_id = host(4)),
            &[1, 2],
            "has left the cluster, or was removed",
            "Start the node on an empty data directory",
        ),
        (
            old(1, |r| r.cluster_id = None),
            &[2],
            "is a member that holds data, but the node comes without its files",
            "remove the member (ceto nodetool removenode)",
        ),
    ]);
}

#[test]
fn a_node_whose_settings_do_not_fit_may_not_join_and_is_told_what_to_do() {
    check_refused(vec![
        (
            new(|r| r.wall_clock += Duration::from_millis(5_100)),
            &[1, 2],
            "The node's clock is 5.1 s ahead of this cluster's, more than 5.0 s",
            "Synchronize its clock",
        ),
        (
            new(|r| r.wall_clock -= Duration::from_secs(3_600)),
            &[1, 2],
            "The node's clock is 3600.0 s behind of this cluster's",
            "Synchronize its clock",
        ),
        (
            new(|r| r.node.features.clear()),
            &[1, 2],
            "The cluster has enabled features that the node's release lacks: A, B",
            "Start the node with the release of the other nodes",
        ),
        (
            old(1, |r| r.node.location.datacenter = "dc7".to_owned()),
            &[2],
            "The node was in datacenter dc1 rack r1, and now says dc7 rack r1",
            "Restore the snitch's settings",
        ),
        (
            old(1, |r| r.node.location.rack = "r7".to_owned()),
            &[2],
            "The node was in datacenter dc1 rack r1, and now says dc1 rack r7",
            "Restore the snitch's settings",
        ),
        (
            old(1, |r| r.node.shards = 0),
            &[2],
            "The node has no shards",
            "Start it with at least 1 shard",
        ),
        (
            new(|r| r.node.shards = 0),
            &[1],
            "The node has no shards",
            "Start it with at least 1 shard",
        ),
        (
            old(1, |r| r.node.tokens = vec![Token(11), Token(12)]),
            &[2],
            "The node owns 1 tokens and now comes with 2 others",
            "Restore num_tokens and initial_token",
        ),
    ]);
}

#[test]
fn a_node_with_an_address_or_token_of_another_may_not_join_and_is_told_what_to_do() {
    check_refused(vec![
        (
            new(|r| r.node.internode = address(1, 7000)),
            &[1, 2],
            "which is alive",
            "give this one another listen_address",
        ),
        (
            new(|r| r.node.internode = address(1, 7000)),
            &[2],
            "which is down",
            "If the node is to take its place, start it with replace_node_first_boot: ",
        ),
        (
            old(1, |r| r.node.internode = address(2, 7000)),
            &[2],
            "Address 10.0.0.2:7000 is that of node 00000000-0000-0000-0000-000000000002, which is alive",
            "give this one another listen_address",
        ),
        (
            new(|r| r.node.tokens = vec![Token(20)]),
            &[1, 2],
            "Token 20 is owned by node 00000000-0000-0000-0000-000000000002",
            "Leave initial_token empty, or choose others",
        ),
        (
            new(|r| r.node.location.rack.clear()),
            &[1, 2],
            "The topology does not take the node: the rack of node",
            "Correct its configuration",
        ),
    ]);
}

fn admitted(topology: &Topology, request: &JoinRequest, alive: &[u16]) -> (Topology, Admission) {
    let admission = admit(topology, request, &facts(alive)).expect("may come in");
    let (Admission::Join { commands, .. } | Admission::Restart { commands }) = &admission;
    let mut after = topology.clone();
    for command in commands {
        after.apply(command).expect("what was admitted can be applied");
    }
    (after, admission)
}

#[test]
fn a_new_node_joins_and_takes_nothing_until_it_is_normal() {
    let topology = three();
    let mut new = request();
    new.node.tokens = vec![Token(15)];
    new.wall_clock -= CLOCK_OFFSET_MAX;
    let (after, admission) = admitted(&topology, &new, &[1, 2, 3]);
    assert!(matches!(
        admission,
        Admission::Join {
            is_empty_receiver: false,
            ..
        }
    ));
    let node = after.node(host(9)).expect("it was added");
    assert_eq!((node.state, &node.tokens[..]), (NodeState::Joining, &[Token(15)][..]));
    for n in 1..=3 {
        assert_eq!(after.node(host(n)), topology.node(host(n)), "node {n} lost something");
    }
}

#[test]
fn without_bootstrap_a_node_is_an_empty_receiver_even_with_tokens_of_others() {
    let topology = three();
    let mut new = request();
    new.auto_bootstrap = false;
    new.node.tokens = vec![Token(10), Token(15)];
    let (mut after, admission) = admitted(&topology, &new, &[1, 2, 3]);
    assert!(matches!(
        admission,
        Admission::Join {
            is_empty_receiver: true,
            ..
        }
    ));
    let ring = topology::Replication::Simple { factor: 1 };
    let owners = |t: &Topology| {
        let map = topology::ring_map(t, &ring).expect("a ring");
        map.tablets()
            .map(|t| (t.replicas.to_vec(), t.transition.cloned()))
            .collect::<Owners>()
    };
    assert_eq!(owners(&after), owners(&topology), "the ring changed when it joined");
    after
        .apply(&set_state(9, NodeState::Normal))
        .expect("it becomes normal");
    assert_eq!(
        owners(&after),
        owners(&topology),
        "the ring changed when it became normal"
    );

    // It comes back with the tokens that it chose for itself, and still owns nothing.
    let mut again = new;
    again.cluster_id = Some(CLUSTER_ID);
    let (after, admission) = admitted(&after, &again, &[1, 2, 3]);
    assert_eq!(admission, Admission::Restart { commands: vec![] });
    assert_eq!(after.node(host(9)).map(|n| n.tokens.len()), Some(0));
}

type Owners = Vec<(Vec<topology::Replica>, Option<topology::Transition>)>;

#[test]
fn the_first_node_is_the_cluster() {
    let empty = Topology::new("Test Cluster", CLUSTER_ID);
    let mut first = request();
    first.auto_bootstrap = false;
    first.node.tokens = vec![Token(1)];
    let (after, admission) = admitted(&empty, &first, &[]);
    assert!(matches!(
        admission,
        Admission::Join {
            is_empty_receiver: false,
            ..
        }
    ));
    let node = after.node(host(9)).expect("it was added");
    assert_eq!((node.state, node.tokens.len()), (NodeState::Normal, 1));
}

#[test]
fn a_member_comes_back_with_what_may_have_changed() {
    let topology = three();
    let commands = |change: fn(&mut JoinRequest), alive: &[u16]| {
        let mut request = member(&topology, 1);
        change(&mut request);
        let (after, admission) = admitted(&topology, &request, alive);
        let Admission::Restart { commands } = admission else {
            panic!("a member joined anew");
        };
        (after.node(host(1)).expect("the member").clone(), commands.len())
    };
    assert_eq!(commands(|_| (), &[2]).1, 0, "nothing changed");
    assert_eq!(
        commands(|_| (), &[1, 2]).1,
        0,
        "a quick restart, before anybody noticed"
    );
    let (moved, _) = commands(|r| r.node.internode = address(55, 7000), &[2]);
    assert_eq!(moved.internode, address(55, 7000));
    let (swapped, _) = commands(|r| r.node.internode = address(2, 7000), &[]);
    assert_eq!(
        swapped.internode,
        address(2, 7000),
        "two nodes that are down cannot swap addresses"
    );
    let (clients, _) = commands(|r| r.node.native = address(66, 9042), &[1, 2]);
    assert_eq!(clients.native, address(66, 9042));
    let (grown, _) = commands(|r| r.node.shards = 8, &[2]);
    assert_eq!(grown.shards, 8);
    let (upgraded, _) = commands(
        |r| {
            r.node.release = "2.0".to_owned();
            r.node.features.insert("C".to_owned());
        },
        &[2],
    );
    assert_eq!((upgraded.release.as_str(), upgraded.features.len()), ("2.0", 3));
    // Node 3 fell while it joined, before it noted the cluster.
    let half_joined = request_of(topology.node(host(3)).expect("a node").clone(), None);
    assert_eq!(
        admitted(&topology, &half_joined, &[1, 2]).1,
        Admission::Restart { commands: vec![] }
    );
}

#[test]
fn snitches_find_the_location_or_say_which_line_is_wrong() {
    let file = "GossipingPropertyFileSnitch";
    let table: &[(&str, Option<&str>, &str, &str)] = &[
        ("SimpleSnitch", None, "10.20.30.40", "datacenter1 rack1"),
        (
            "org.apache.cassandra.locator.RackInferringSnitch",
            None,
            "10.20.30.40",
            "20 30",
        ),
        ("RackInferringSnitch", None, "::ffff:10.20.30.40", "20 30"),
        (
            "RackInferringSnitch",
            None,
            "fe80::1",
            "RackInferringSnitch infers datacenter and rack from the octets of an IPv4 address, found fe80::1",
        ),
        (
            file,
            Some("# comment\n\n dc = DC1\r\nrack=RAC1\n"),
            "10.0.0.1",
            "DC1 RAC1",
        ),
        (
            file,
            Some("dc=us\nrack=1\ndc_suffix=_spark\nprefer_local=TRUE"),
            "10.0.0.1",
            "us_spark 1 local",
        ),
        (
            file,
            Some("dc=us\nrack=1\ndc_suffix=\nprefer_local=false"),
            "10.0.0.1",
            "us 1",
        ),
        (
            file,
            None,
            "10.0.0.1",
            "GossipingPropertyFileSnitch needs the file cassandra-rackdc.properties",
        ),
        (
            file,
            Some("rack=1"),
            "10.0.0.1",
            "cassandra-rackdc.properties: dc is missing",
        ),
        (
            file,
            Some("dc=1"),
            "10.0.0.1",
            "cassandra-rackdc.properties: rack is missing",
        ),
        (
            file,
            Some("dc=\nrack=1"),
            "10.0.0.1",
            "cassandra-rackdc.properties line 1: dc must be a name, found ''",
        ),
        (
            file,
            Some("#\ndc"),
            "10.0.0.1",
            "cassandra-rackdc.properties line 2: expected name=value, found 'dc'",
        ),
        (
            file,
            Some("dc=1\ndc=2"),
            "10.0.0.1",
            "cassandra-rackdc.properties line 2: dc is given a second time",
        ),
        (
            file,
            Some("DC=1"),
            "10.0.0.1",
            "cassandra-rackdc.properties line 1: unknown property DC; known are dc, rack, dc_suffix, prefer_local",
        ),
        (
            file,
            Some("dc=1\nrack=1\nprefer_local=yes"),
            "10.0.0.1",
            "cassandra-rackdc.properties line 3: prefer_local must be true or false, found 'yes'",
        ),
        (
            "Ec2Snitch",
            None,
            "10.0.0.1",
            "endpoint_snitch: unknown snitch Ec2Snitch; known are SimpleSnitch, RackInferringSnitch, GossipingPropertyFileSnitch",
        ),
    ];
    for (name, properties, at, expected) in table {
        let at: IpAddr = at.parse().expect("an address");
        let found = Snitch::parse(name, *properties).and_then(|snitch| {
            let Location { datacenter, rack } = snitch.location(at)?;
            let local = matches!(snitch, Snitch::GossipingPropertyFile { prefer_local: true, .. });
            Ok(format!("{datacenter} {rack}{}", if local { " local" } else { "" }))
        });
        assert_eq!(
            found.unwrap_or_else(|e| e.to_string()),
            *expected,
            "{name} {properties:?}"
        );
    }
}

fn any_address() -> impl Strategy<Value = SocketAddr> {
    (any::<IpAddr>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

fn any_node() -> impl Strategy<Value = Node> {
    let names = ("[a-z]{1,9}", "[a-z]{1,9}", "[0-9.]{1,9}");
    let tokens = prop::collection::btree_set(i64::MIN + 1..=i64::MAX, 0..9);
    let features = prop::collection::btree_set("[A-Z_]{1,9}", 0..4);
    let ports = (any_address(), any_address(), prop::option::of(1..u16::MAX));
    (any::<u128>(), ports, names, 1..u16::MAX, tokens, features).prop_map(
        |(id, (internode, native, native_shard_aware_port), (datacenter, rack, release), shards, tokens, features)| {
            Node {
                host_id: HostId(Uuid::from_u128(id)),
                internode,
                native,
                native_shard_aware_port,
                location: Location { datacenter, rack },
                shards,
                tokens: tokens.into_iter().map(Token).collect(),
                state: NodeState::Joining,
                features,
                release,
                loss: None,
            }
        },
    )
}

fn any_state() -> impl Strategy<Value = NodeState> {
    use NodeState::{Joining, Leaving, Left, Normal};
    prop::sample::select(vec![Joining, Normal, Leaving, Left])
}

/// Commands about few nodes, so that they meet.
fn any_command() -> impl Strategy<Value = TopologyCommand> {
    let id = || (1_u16..6).prop_map(host);
    let names = || prop::collection::btree_set("[A-C]", 0..3);
    prop_oneof![
        4 => (any_node(), id()).prop_map(|(node, host_id)| add(Node { host_id, ..node })),
        4 => (id(), any_state()).prop_map(|(host_id, state)| TopologyCommand::SetState { host_id, state }),
        1 => (id(), prop::collection::btree_set(-9_i64..9, 0..4)).prop_map(|(host_id, tokens)| {
            TopologyCommand::SetTokens { host_id, tokens: tokens.into_iter().map(Token).collect() }
        }),
        1 => (id(), any_address(), any_address(), prop::option::of(1..u16::MAX)).prop_map(
            |(host_id, internode, native, native_shard_aware_port)| TopologyCommand::ChangeAddress {
                host_id, internode, native, native_shard_aware_port,
            }
        ),
        1 => (id(), any::<u16>()).prop_map(|(host_id, shards)| TopologyCommand::SetShards { host_id, shards }),
        1 => (id(), names(), "[0-9]{1,3}").prop_map(|(host_id, features, release)| TopologyCommand::SetFeatures {
            host_id, features, release,
        }),
        1 => names().prop_map(TopologyCommand::EnableFeatures),
        1 => id().prop_map(|host_id| TopologyCommand::RemoveNode { host_id }),
        1 => (id(), prop::option::of(id()))
            .prop_map(|(host_id, replaced_by)| TopologyCommand::GiveUp { host_id, replaced_by }),
    ]
}

fn topology_bytes(topology: &Topology) -> Vec<u8> {
    record::encode(&TopologyRecord::of(topology))
}

fn topology_of(bytes: &[u8]) -> Result<Topology, RecordError> {
    record::decode::<TopologyRecord>(bytes, &Known::everything())?.topology()
}

fn command_bytes(command: &TopologyCommand) -> Vec<u8> {
    record::encode(&TopologyCommandRecord::of(command))
}

fn command_of(bytes: &[u8]) -> Result<TopologyCommand, RecordError> {
    record::decode::<TopologyCommandRecord>(bytes, &Known::everything())?.command()
}

/// Breaks bytes at one place, and cuts some off.
fn damaged(mut bytes: Vec<u8>, at: usize, to: u8, cut: usize) -> Vec<u8> {
    let at = at % bytes.len();
    bytes[at] = to;
    bytes.truncate(bytes.len() - cut.min(bytes.len()));
    bytes
}

proptest! {
    #[test]
    fn commands_and_topologies_come_back_from_their_bytes(commands in prop::collection::vec(any_command(), 1..30)) {
        let mut topology = Topology::new("Test Cluster", CLUSTER_ID);
        for command in commands {
            prop_assert_eq!(&command_of(&command_bytes(&command)), &Ok(command.clone()));
            let before = topology.clone();
            match topology.apply(&command) {
                Ok(()) => prop_assert_eq!(topology.version(), before.version() + 1),
                Err(_) => prop_assert_eq!(&topology, &before),
            }
            // A snapshot of whatever the log leads to can be read: decoding checks what must hold.
            prop_assert_eq!(&topology_of(&topology_bytes(&topology)), &Ok(topology.clone()));
        }
    }

    #[test]
    fn damaged_bytes_are_an_error_or_a_topology_that_can_be(
        nodes in prop::collection::vec(any_node(), 1..4), at in any::<usize>(), to in any::<u8>(), cut in 0_usize..3,
    ) {
        let mut topology = Topology::new("Test Cluster", CLUSTER_ID);
        for node in nodes {
            let command = add(node);
            let _ = topology.apply(&command);
            let bytes = damaged(command_bytes(&command), at, to, cut);
            if let Ok(found) = command_of(&bytes) {
                prop_assert_eq!(command_bytes(&found), bytes, "one command has two encodings");
            }
        }
        let bytes = damaged(topology_bytes(&topology), at, to, cut);
        if let Ok(found) = topology_of(&bytes) {
            prop_assert_eq!(topology_bytes(&found), bytes, "one topology has two encodings");
        }
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        drop(topology_of(&bytes));
        drop(command_of(&bytes));
    }
}

#[test]
fn a_topology_that_cannot_be_is_refused_with_the_place() {
    let record = TopologyRecord::of(&three());
    let refused = |change: fn(&mut TopologyRecord)| {
        let mut record = record.clone();
        change(&mut record);
        let error = topology_of(&record::encode(&record)).expect_err("it cannot be");
        error.to_string()
    };
    type Damage = fn(&mut TopologyRecord);
    let cases: &[(Damage, &str)] = &[
        (
            |t| t.cluster_id.truncate(3),
            "topology, cluster_id is damaged: expected the 16 bytes of a UUID, found 3",
        ),
        (
            |t| t.enabled_features = vec!["b".to_owned(), "a".to_owned()],
            "topology, enabled_features is damaged: expected names in order, each once",
        ),
        (
            |t| t.nodes[1].shards = 70_000,
            "shards is damaged: expected at most 65535, found 70000",
        ),
        (
            |t| t.nodes[1].state = 9,
            "state is damaged: expected a state from 1 to 4, found 9",
        ),
        (|t| t.nodes[1].native = None, "native is damaged: it is missing"),
        (
            |t| t.nodes[1].host_id = t.nodes[0].host_id.clone(),
            "was added before, and is given once only",
        ),
        (
            |t| t.nodes[1].shards = 0,
            "cannot go from 0 shards to 0: it has at least one",
        ),
    ];
    for (change, expected) in cases {
        let found = refused(*change);
        assert!(found.ends_with(expected), "{found:?} does not end with {expected:?}");
    }
}

#[test]
fn a_command_of_no_kind_or_of_two_is_refused() {
    let none = TopologyCommandRecord::default();
    assert_eq!(
        command_of(&record::encode(&none))
            .expect_err("it has no kind")
            .to_string(),
        "topology command is damaged: it has no kind"
    );
    let of = |command: &TopologyCommand| TopologyCommandRecord::of(command);
    let two = TopologyCommandRecord {
        enable_features: of(&TopologyCommand::EnableFeatures(BTreeSet::new())).enable_features,
        ..of(&TopologyCommand::RemoveNode { host_id: host(1) })
    };
    assert_eq!(
        command_of(&record::encode(&two))
            .expect_err("it has two kinds")
            .to_string(),
        "topology command is damaged: it has two kinds"
    );
}
