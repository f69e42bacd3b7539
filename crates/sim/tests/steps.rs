//! One SELECT and one INSERT, step by step, as text: which layer of which node does what, in which order.
//!
//! The nodes are whole ones in the simulator. Each layer names its steps by `stdx::probe::step`, and a case is answered
//! with those that are taken between a request and the end of all that it caused. A step that is added, lost or moved
//! is a difference; so the walks of ARCHITECTURE.md cannot rot.
//!
//! What chance decides is not shown: the steps of each node are listed together, in their order; other nodes, which are
//! alike, are "a peer"; an sstable has no name.
//!
//! - `ask LEVEL`, and a statement in the next line: asks the first node.
//! - `flush KEYSPACE`: flushes it on every node. Its steps are not shown.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use runtime::sim::current_machine;
use sim::client::Answer;
use sim::story::{ALL, ONE, QUORUM, Story};
use stdx::probe::StepWatch;
use testkit::Case;

/// When everything that a request causes has happened, and nothing that the nodes do of themselves.
const QUIET_AFTER: Duration = Duration::from_millis(10);
/// When everything that a flush causes has happened.
const NOTED_AFTER: Duration = Duration::from_secs(2);

fn level(name: &str) -> u16 {
    match name {
        "ONE" => ONE,
        "QUORUM" => QUORUM,
        "ALL" => ALL,
        other => panic!("'{other}' is none of ONE, QUORUM and ALL"),
    }
}

fn ask(story: &mut Story, level: u16, statement: &str) -> String {
    let steps: Rc<RefCell<Vec<(usize, String)>>> = Rc::default();
    let machines: Vec<_> = (0..story.cluster.size())
        .map(|node| story.cluster.machine(node))
        .collect();
    let peers: Vec<String> = story.cluster.addresses()[1..]
        .iter()
        .map(|address| address.ip().to_string())
        .collect();
    let taken = steps.clone();
    let watch = StepWatch::new(move |words| {
        let node = machines.iter().position(|machine| Some(*machine) == current_machine());
        if let Some(node) = node {
            taken.borrow_mut().push((node, without_chance(&words, &peers)));
        }
    });
    let answer = story.ask(0, statement, level);
    story.cluster.sim.run_for(QUIET_AFTER);
    drop(watch);
    let answer = match answer.expect("the node answers") {
        Answer::Rows(rows, _) => format!("{} rows", rows.len()),
        other => format!("{other:?}"),
    };
    let mut steps = steps.take();
    // The handshake of the client's connection is not a step of the request.
    let request = steps
        .iter()
        .position(|(_, step)| step.starts_with("dispatch: "))
        .unwrap_or(0);
    steps.drain(..request);
    let of = |node| -> String {
        let own = steps.iter().filter(|(of, _)| *of == node);
        own.map(|(_, step)| format!("  {step}\n")).collect()
    };
    // Which of two peers does something is chance, too.
    let mut others: Vec<String> = (1..story.cluster.size())
        .map(of)
        .filter(|steps| !steps.is_empty())
        .collect();
    others.sort();
    let others: String = others.iter().map(|steps| format!("a peer:\n{steps}")).collect();
    format!("this node:\n{}{others}client: {answer}\n", of(0))
}

/// The words of a step without what another seed would say otherwise.
fn without_chance(words: &str, peers: &[String]) -> String {
    let words = peers
        .iter()
        .fold(words.to_owned(), |words, peer| words.replace(peer, "a peer"));
    match words.strip_prefix("sstable ").and_then(|rest| rest.split_once(':')) {
        Some((_, does)) => format!("an sstable:{does}"),
        None => words,
    }
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
            // What follows from it is no step of the next request: the node notes what it did.
            story.cluster.sim.run_for(NOTED_AFTER);
            String::new()
        }
        other => panic!("line {}: no command '{other}'", case.line),
    }
}

fn run(nodes: usize, path: &str) {
    let mut story = Story::begin(1, &Story::setup(nodes));
    story.cluster.operators_only_obey();
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
