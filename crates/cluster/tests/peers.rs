//! Nodes that claim what they are not: strangers that speak for members, notify a node that it has left, or join and
//! vanish.

use crate::support::{SECOND, Sea, host};
use cluster::fuzz;
use rpc::{Peer, Rpc};
use runtime::sim::CrashKind;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use topology::{HostId, JoinRequest, Location, Node, NodeState};
use uuid::Uuid;

fn stranger() -> HostId {
    HostId(Uuid::from_u128(0xbad))
}

/// Sends messages from a machine that says it is `as_host`, and waits until they were taken.
fn send_as(sea: &mut Sea, as_host: HostId, to: usize, messages: Vec<(u16, Vec<u8>)>) {
    let peer = Peer::new(host(to).0, sea.nodes[to].config.borrow().internode);
    let machine = sea.sim.add_node(1);
    sea.sim.start(machine, move |_| {
        let messages = messages.clone();
        Box::pin(async move {
            let rpc: Rc<Rpc> = Rpc::client(rpc::Config::new("sea", as_host.0)).expect("no files are needed");
            for (verb, body) in messages {
                let _ = rpc.send(&peer, 0, verb, body, SECOND);
            }
            runtime::sleep(2 * SECOND).await;
            rpc.stop();
        })
    });
    sea.sim.run_for(3 * SECOND);
}

/// A heartbeat of the metadata group that commits what is not there.
fn heartbeat(sea: &Sea, from: u64, to: u64, term: u64, commit: u64) -> (u16, Vec<u8>) {
    let (high, low) = sea.cluster(0).metadata().topology.cluster_id().as_u64_pair();
    let mut body = from.to_be_bytes().to_vec();
    body.push(1);
    for field in [high ^ low, 0, from, to] {
        body.extend_from_slice(&field.to_be_bytes());
    }
    body.extend_from_slice(&[1, 7]);
    for field in [term, 0, 0, commit, 0, 0, 0] {
        body.extend_from_slice(&field.to_be_bytes());
    }
    body.extend_from_slice(&[0; 1 + 8 + 4 + 4 + 1]);
    (fuzz::RAFT, body)
}

fn expect_no_harm(sea: &mut Sea, story: &str) {
    for (number, node) in sea.nodes.iter().enumerate() {
        assert_eq!(*node.seen.fatal.borrow(), None, "{story}: node {number} ends");
    }
    for number in 0..sea.nodes.len() {
        sea.create(number, &format!("after_{number}"))
            .unwrap_or_else(|error| panic!("{story}: node {number} changes nothing any more: {error}"));
    }
}

#[test]
fn a_message_of_the_group_counts_only_from_the_node_whose_raft_id_it_bears() {
    let mut sea = Sea::formed(1, 3);
    sea.expect_voters(3);
    let term = sea.cluster(0).status().raft.term;
    // A commit beyond the log, claimed by a leader, makes a member stop: its directory would be older than its
    // promises.
    let messages: Vec<_> = (1..=9)
        .flat_map(|from| [(from, term), (from, term + 5)])
        .map(|(from, term)| heartbeat(&sea, from, 1, term, 1000))
        .collect();
    send_as(&mut sea, stranger(), 0, messages);
    expect_no_harm(&mut sea, "a stranger's word for a leader's");
}

#[test]
fn a_heartbeat_of_term_0_by_a_known_host_id_ends_nobody() {
    let mut sea = Sea::formed(2, 3);
    sea.expect_voters(3);
    let message = heartbeat(&sea, 2, 1, 0, 1_000_000_000);
    let number = sea.cluster(0).metadata().topology.number(host(1)).expect("a member").0;
    assert!(number == 1 || number == 2, "raft ids follow from numbers");
    let message = match number {
        1 => message,
        _ => heartbeat(&sea, 3, 1, 0, 1_000_000_000),
    };
    send_as(&mut sea, host(1), 0, vec![message]);
    expect_no_harm(&mut sea, "one frame");
}

#[test]
fn who_says_that_a_node_has_left_is_asked_whether_it_has() {
    let mut sea = Sea::formed(3, 3);
    let message = fuzz::has_left(SocketAddr::from(([10, 9, 9, 9], 7000)));
    send_as(&mut sea, stranger(), 0, vec![message.clone()]);
    // A member's name is not enough: the member itself is asked, where the group has it.
    send_as(&mut sea, host(1), 0, vec![message]);
    expect_no_harm(&mut sea, "it has left, they say");
}

#[test]
fn a_leader_that_came_in_while_a_member_was_away_is_believed_on_another_members_word() {
    let mut sea = Sea::new(4, 4);
    for number in 0..3 {
        sea.start(number);
    }
    sea.expect_normal(0..3);
    sea.expect_voters(3);
    sea.crash(2, CrashKind::Kill);
    sea.start(3);
    sea.expect("the fourth is a member", |views| {
        views
            .iter()
            .all(|view| view.metadata().topology.node(host(3)).is_some())
    });
    sea.expect("the fourth is in the group", |views| {
        views.iter().any(|view| {
            let raft = view.status().raft;
            raft.voters.len() + raft.learners.len() == 4
        })
    });
    sea.restart(2);
    sea.expect("the third knows of the fourth", |views| {
        views.len() == 4
            && views
                .iter()
                .all(|view| view.metadata().topology.node(host(3)).is_some())
    });
    expect_no_harm(&mut sea, "a member that was away");
}

fn request_of(number: u128) -> JoinRequest {
    let address = SocketAddr::from(([10, 9, 9, u8::try_from(number).expect("few")], 7000));
    JoinRequest {
        cluster_name: "sea".to_owned(),
        cluster_id: None,
        node: Node {
            host_id: HostId(Uuid::from_u128(0xbad0 + number)),
            internode: address,
            native: address,
            native_shard_aware_port: None,
            location: Location {
                datacenter: "datacenter1".to_owned(),
                rack: "rack1".to_owned(),
            },
            shards: 1,
            tokens: Vec::new(),
            state: NodeState::Joining,
            features: cluster::FEATURES
                .iter()
                .map(|feature| (*feature).to_owned())
                .collect::<BTreeSet<_>>(),
            release: "0".to_owned(),
            loss: None,
        },
        wall_clock: Duration::ZERO,
        auto_bootstrap: true,
        joins_ring: true,
        ignored: Vec::new(),
        replaces: None,
    }
}

/// Asks to join as so many new nodes, which are never heard of again.
fn join_and_vanish(sea: &mut Sea, count: u128) {
    let peer = Peer::new(host(0).0, sea.nodes[0].config.borrow().internode);
    let machine = sea.sim.add_node(1);
    sea.sim.start(machine, move |_| {
        Box::pin(async move {
            for number in 1..=count {
                let mut request = request_of(number);
                let us = u64::try_from(runtime::wall_clock_us()).expect("after 1970");
                request.wall_clock = Duration::from_micros(us);
                let config = rpc::Config::new("sea", request.node.host_id.0);
                let rpc: Rc<Rpc> = Rpc::client(config).expect("no files are needed");
                let (verb, body) = fuzz::join(&request);
                let _ = rpc.call(&peer, 0, verb, body, 10 * SECOND).await;
                rpc.stop();
            }
        })
    });
    sea.sim.run_for(10 * SECOND);
}

#[test]
fn members_that_join_and_vanish_take_no_majority_with_them() {
    let mut sea = Sea::new(5, 3);
    for number in 0..3 {
        sea.nodes[number].config.borrow_mut().vote_after = cluster::VOTE_AFTER;
    }
    sea.start(0);
    sea.expect_normal(0..1);
    sea.start(1);
    sea.start(2);
    sea.expect_normal(0..3);
    sea.sim.run_for(SECOND);
    sea.crash(1, CrashKind::PowerLoss);
    sea.crash(2, CrashKind::PowerLoss);
    sea.create(0, "ks").expect("those that are gone never had a vote");
    sea.restart(1);
    sea.restart(2);
    sea.expect_voters(3);
}

#[test]
fn members_that_never_served_are_removed_again_and_few_at_a_time_come_in() {
    let mut sea = Sea::new(6, 1);
    sea.nodes[0].config.borrow_mut().forget_joining_after = 30 * SECOND;
    sea.start(0);
    sea.expect_normal(0..1);
    join_and_vanish(&mut sea, 20);
    let of_state = |sea: &Sea, state: NodeState| {
        let metadata = sea.cluster(0).metadata();
        let nodes = metadata.topology.numbered_nodes();
        nodes.filter(|(_, node)| node.state == state).count()
    };
    assert_eq!(of_state(&sea, NodeState::Joining), cluster::NEWCOMERS_MAX);
    sea.create(0, "ks").expect("it votes alone");
    sea.expect("all that vanished are removed", |views| {
        views[0].metadata().topology.members().count() == 1
    });
    assert_eq!(of_state(&sea, NodeState::Left), cluster::NEWCOMERS_MAX);
    sea.expect_voters(1);
}
