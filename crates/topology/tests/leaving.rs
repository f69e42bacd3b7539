//! Nodes that are given up.

use crate::common::{cluster, host};
use topology::{Loss, NodeState, TopologyCommand};

#[test]
fn a_node_that_is_given_up_leaves_for_good_and_names_its_heir() {
    let mut topology = cluster(
        "a dc1 r1 tokens=10
         b dc1 r2 tokens=20
         c dc1 r3 tokens=30",
    )
    .topology;
    let give_up = |number, heir: Option<u16>| TopologyCommand::GiveUp {
        host_id: host(number),
        replaced_by: heir.map(host),
    };
    assert!(topology.apply(&give_up(1, Some(1))).is_err(), "it replaces itself");
    topology.apply(&give_up(1, Some(2))).expect("a member is given up");
    let lost = topology.node(host(1)).expect("it is there");
    let replaced_by = Some(host(2));
    assert_eq!(
        (lost.state, lost.loss),
        (NodeState::Leaving, Some(Loss { replaced_by }))
    );
    let back = TopologyCommand::SetState {
        host_id: host(1),
        state: NodeState::Normal,
    };
    assert!(topology.apply(&back).is_err(), "others have its part already");
    assert!(
        topology.apply(&give_up(3, Some(1))).is_err(),
        "a lost node replaces nobody"
    );
    topology
        .apply(&TopologyCommand::RemoveNode { host_id: host(1) })
        .expect("it goes");
    assert_eq!(topology.node(host(1)).map(|n| n.state), Some(NodeState::Left));
}

/// The heir may have the address and the tokens of the one that it replaces.
#[test]
fn an_heir_comes_after_the_node_was_given_up_and_takes_its_address_and_tokens() {
    let mut topology = cluster(
        "a dc1 r1 tokens=10
         b dc1 r2 tokens=20",
    )
    .topology;
    let (lost, heir) = (host(1), host(9));
    let former = topology.node(lost).expect("it is there").clone();
    let node = topology::Node {
        host_id: heir,
        tokens: Vec::new(),
        state: NodeState::Joining,
        ..former.clone()
    };
    let comes = TopologyCommand::AddNode(Box::new(node));
    assert!(topology.apply(&comes).is_err(), "a member has the address");
    topology
        .apply(&TopologyCommand::GiveUp {
            host_id: lost,
            replaced_by: Some(heir),
        })
        .expect("the heir may come later");
    topology.apply(&comes).expect("what is lost keeps no address");
    let takes = |host_id| TopologyCommand::SetTokens {
        host_id,
        tokens: former.tokens.clone(),
    };
    topology.apply(&takes(heir)).expect("it takes them from the lost node");
    topology.end_ring_change();
    let nodes = [lost, heir].map(|host_id| topology.node(host_id).expect("it is there"));
    assert_eq!(nodes[0].tokens, []);
    assert_eq!((nodes[1].state, &nodes[1].tokens), (NodeState::Normal, &former.tokens));
}
