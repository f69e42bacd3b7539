//! Nodes that are given up.

mod common;

use common::{cluster, host};
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
    assert!(topology.apply(&give_up(1, Some(9))).is_err(), "nobody replaces it");
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
