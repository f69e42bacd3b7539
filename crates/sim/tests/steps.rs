//! One SELECT and one INSERT, step by step, as text: which layer of which node does what, in which order.
//!
//! The nodes are whole ones in the simulator. Each layer names its steps by `stdx::probe::step`, and a case is answered with those that are taken between a
//! request and its answer. A step that is added, lost or moved is a difference; so the walks of ARCHITECTURE.md cannot rot.
//!
//! - `ask LEVEL`, and a statement in the next line: asks the first node.
//! - `flush KEYSPACE`: has every node flush it. Its steps are not shown.

use std::cell::RefCell;
use std::rc::Rc;

use runtime::sim::current_machine;
use sim::client::Answer;
use sim::story::{ALL, ONE, QUORUM, Story};
use stdx::probe::StepWatch;
use testkit::Case;

fn level(name: &str) -> u16 {
    match name {
        "ONE" => ONE,
        "QUORUM" => QUORUM,
        "ALL" => ALL,
        other => panic!("'{other}' is none of ONE, QUORUM and ALL"),
    }
}

fn ask(story: &mut Story, level: u16, statement: &str) -> String {
    let steps: Rc<RefCell<Vec<String>>> = Rc::default();
    let machines: Vec<_> = (0..story.cluster.size())
        .map(|node| story.cluster.machine(node))
        .collect();
    let taken = steps.clone();
    let watch = StepWatch::new(move |words| {
        let node = machines.iter().position(|machine| Some(*machine) == current_machine());
        if let Some(node) = node {
            taken.borrow_mut().push(format!("node {}: {words}\n", node + 1));
        }
    });
    let answer = story.ask(0, statement, level);
    drop(watch);
    let answer = match answer.expect("the node answers") {
        Answer::Rows(rows, _) => format!("{} rows", rows.len()),
        other => format!("{other:?}"),
    };
    // The handshake of the client's connection is not a step of the request.
    let steps = steps.take();
    let request = steps.iter().position(|step| step.contains(": dispatch: ")).unwrap_or(0);
    format!("{}client: {answer}\n", steps[request..].concat())
}

fn answer(story: &mut Story, case: &Case) -> String {
    match case.command() {
        "ask" => ask(story, level(case.arguments()), case.input()),
        "flush" => {
            for node in 0..story.cluster.size() {
                let request = format!("POST /storage_service/keyspace_flush/{}", case.arguments());
                let answer = story.operate(node, &request);
                assert!(answer.starts_with("HTTP/1.1 200"), "{request}: {answer}");
            }
            String::new()
        }
        other => panic!("line {}: no command '{other}'", case.line),
    }
}

fn run(nodes: usize, path: &str) {
    let mut story = Story::begin(1, &Story::setup(nodes));
    let replication = format!("{{'class': 'NetworkTopologyStrategy', 'datacenter1': {nodes}}}");
    story.must(0, &format!("CREATE KEYSPACE ks WITH replication = {replication}"), ONE);
    story.must(0, "CREATE TABLE ks.t (k text PRIMARY KEY, v text)", ONE);
    testkit::run(path, |case| answer(&mut story, case));
}

#[test]
fn a_node_alone_takes_these_steps() {
    run(1, testkit::path!("tests/steps/alone.txt"));
}

#[test]
fn three_nodes_take_these_steps() {
    run(3, testkit::path!("tests/steps/cluster.txt"));
}
