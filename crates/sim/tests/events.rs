//! What a driver learns of nodes that join, leave and move, as text: the events that a client of the first of three
//! nodes gets, in order, and the rows of `system.peers` there after it.
//!
//! A file is a cluster, whose first node is watched; a case is what an operator does, and is answered when all of it
//! has happened. Addresses are shown as `node 3`, the address of the third machine, or `node 3'`, its second one. Each
//! new host id gets the next capital letter.
//!
//! - `start N`, `stop N`, `kill N`: starts a node for the first time or again, ends it in order, or without warning.
//! - `move N listen`, `move N rpc`, `move N both`, `move N back`: ends a node and starts it with the second address of
//!   its machine for nodes, for clients, for both or for neither.
//! - `replace N`: takes a node's files away, and starts a new node at its address in its place. `replace N by M`: at
//!   another address.
//! - `decommission N`, `remove N`, `disablebinary N`, `enablebinary N`: asks the node's REST API, or that of the first
//!   node.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use runtime::sim::CrashKind;
use sim::client::Answer;
use sim::model::Value;
use sim::story::{ONE, Story};
use testkit::Case;
use topology::Replaced;

/// When everything that an operation causes has happened: a node is missed, or has its share of the token ring.
const SETTLED_AFTER: Duration = Duration::from_secs(20);
/// How long an operation may take.
const DONE_WITHIN: Duration = Duration::from_mins(3);

struct Watched {
    story: Story,
    /// The letters of the host ids.
    hosts: BTreeMap<String, char>,
    /// The nodes that have run.
    started: Vec<usize>,
}

impl Watched {
    fn new(machines: usize) -> Self {
        let mut story = Story::of_machines(1, &Story::setup(machines));
        story.cluster.operators_only_obey();
        for node in 0..3 {
            story.cluster.start(node);
            story.until_served(node);
        }
        let replication = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 2}";
        let keyspace =
            format!("CREATE KEYSPACE ks WITH replication = {replication} AND tablets = {{'enabled': false}}");
        story.must(0, &keyspace, ONE);
        story.must(0, "CREATE TABLE ks.t (k int PRIMARY KEY)", ONE);
        story.cluster.sim.run_for(SETTLED_AFTER);
        story.watch_members(0);
        let mut watched = Self {
            story,
            hosts: BTreeMap::new(),
            started: vec![0, 1, 2],
        };
        watched.peers();
        watched
    }

    /// A machine's address in words.
    fn name(&self, address: IpAddr) -> String {
        let cluster = &self.story.cluster;
        for node in 0..cluster.size() {
            if cluster.address(node) == address {
                return format!("node {}", node + 1);
            }
            if cluster.second_address(node) == address {
                return format!("node {}'", node + 1);
            }
        }
        panic!("{address} is of no machine");
    }

    fn named(&self, value: Option<&Value>) -> String {
        match value {
            Some(Value::Text(address)) => self.name(address.parse().expect("an address")),
            other => panic!("expected an address, found {other:?}"),
        }
    }

    /// The rows of `system.peers` at the first node.
    fn peers(&mut self) -> Vec<String> {
        let statement = "SELECT peer, rpc_address, host_id, schema_version FROM system.peers";
        let Some(Answer::Rows(rows, _)) = self.story.ask(0, statement, ONE) else {
            panic!("the first node does not answer");
        };
        let mut shown = Vec::new();
        for row in rows {
            let Some(Value::Text(host)) = row.get("host_id") else {
                panic!("{row:?} has no host id");
            };
            let next = char::from(b'A' + u8::try_from(self.hosts.len()).expect("few nodes"));
            let letter = *self.hosts.entry(host.clone()).or_insert(next);
            let place = (self.named(row.get("peer")), self.named(row.get("rpc_address")));
            let is_up = row.contains_key("schema_version");
            let state = if is_up { "" } else { ", without a schema version" };
            shown.push(format!("  peer {}, rpc {}, host {letter}{state}", place.0, place.1));
        }
        shown.sort();
        shown
    }

    fn host_id_of(&mut self, node: usize) -> String {
        self.story.host_id(node)
    }

    /// Starts a node, for the first time or again.
    fn start(&mut self, node: usize) {
        if self.started.contains(&node) {
            self.story.cluster.restart(node)
        } else {
            self.started.push(node);
            self.story.cluster.start_late(node, &[0], None);
        }
    }

    fn change_addresses(&mut self, node: usize, which: &str) {
        let (own, second) = (
            self.story.cluster.address(node),
            self.story.cluster.second_address(node),
        );
        let (listen, rpc) = match which {
            "listen" => (second, own),
            "rpc" => (own, second),
            "both" => (second, second),
            "back" => (own, own),
            other => panic!("'{other}' is none of listen, rpc, both and back"),
        };
        self.story.stop(node);
        self.story.cluster.amend(node, move |config| {
            (config.listen_address, config.broadcast_address) = (listen, listen);
            (config.rpc_address, config.broadcast_rpc_address) = (rpc, rpc);
        });
        self.story.cluster.restart(node);
    }

    fn replace(&mut self, node: usize, by: Option<usize>) {
        let replaced = Replaced::Address(self.story.cluster.address(node));
        self.story.cluster.crash(node, CrashKind::PowerLoss);
        self.story.cluster.sim.run_for(SETTLED_AFTER);
        match by {
            Some(by) => {
                self.started.push(by);
                self.story.cluster.start_late(by, &[0], Some(replaced));
            }
            None => {
                self.story.empty_directory(node, "");
                self.story
                    .cluster
                    .amend(node, move |config| config.replaces = Some(replaced));
                self.story.cluster.restart(node);
            }
        }
    }

    /// Asks a REST API, and waits until it has answered.
    fn operate(&mut self, node: usize, request: &str) {
        let cluster = &mut self.story.cluster;
        let ticket = cluster.order_apart(node, request);
        let end = cluster.sim.now() + DONE_WITHIN;
        while cluster.answer_to(node, ticket).is_none() {
            assert!(cluster.sim.now() < end, "{request}: no answer");
            cluster.sim.run_for(Duration::from_millis(100));
        }
        let answer = cluster.answer_to(node, ticket).expect("it has answered");
        assert!(answer.starts_with("HTTP/1.1 200"), "{request}: {answer}");
    }

    fn run(&mut self, case: &Case) -> String {
        let words: Vec<&str> = case.text.split_whitespace().collect();
        let number = |word: &str| word.parse::<usize>().expect("a node's number") - 1;
        match words[..] {
            ["start", node] => self.start(number(node)),
            ["stop", node] => self.story.stop(number(node)),
            ["kill", node] => self.story.cluster.crash(number(node), CrashKind::Kill),
            ["move", node, which] => self.change_addresses(number(node), which),
            ["replace", node] => self.replace(number(node), None),
            ["replace", node, "by", other] => self.replace(number(node), Some(number(other))),
            ["decommission", node] => self.operate(number(node), "POST /storage_service/decommission"),
            ["disablebinary", node] => self.operate(number(node), "DELETE /storage_service/native_transport"),
            ["enablebinary", node] => self.operate(number(node), "POST /storage_service/native_transport"),
            ["remove", node] => {
                let host = self.host_id_of(number(node));
                self.story.cluster.crash(number(node), CrashKind::Kill);
                self.story.cluster.sim.run_for(SETTLED_AFTER);
                self.operate(0, &format!("POST /storage_service/remove_node?host_id={host}"));
            }
            _ => panic!("line {}: no command '{}'", case.line, case.text),
        }
        self.story.cluster.sim.run_for(SETTLED_AFTER);
        let events = self.story.take_events();
        let mut answer: Vec<String> = events
            .into_iter()
            .map(|(event, address)| format!("{event} {}", self.name(address.ip())))
            .collect();
        answer.push("system.peers:".to_owned());
        answer.extend(self.peers());
        answer.join("\n") + "\n"
    }
}

fn run(machines: usize, path: &str) {
    let mut watched = Watched::new(machines);
    testkit::run(path, |case| watched.run(case));
}

#[test]
fn a_node_joins_and_is_decommissioned() {
    run(4, testkit::path!("tests/events/join_and_decommission.txt"));
}

#[test]
fn a_node_stops_and_comes_back() {
    run(3, testkit::path!("tests/events/restart.txt"));
}

#[test]
fn a_node_comes_back_with_other_addresses() {
    run(3, testkit::path!("tests/events/addresses.txt"));
}

#[test]
fn a_node_is_replaced_at_its_address() {
    run(3, testkit::path!("tests/events/replace_at_the_same_address.txt"));
}

#[test]
fn a_node_is_replaced_at_another_address() {
    run(4, testkit::path!("tests/events/replace_at_another_address.txt"));
}

#[test]
fn a_node_is_closed_to_clients_and_opened() {
    run(3, testkit::path!("tests/events/binary.txt"));
}

#[test]
fn a_lost_node_is_removed() {
    run(3, testkit::path!("tests/events/remove.txt"));
}
