//! Aggregates over a whole table on three simulated nodes: each shard computes its part, also while nodes fall and
//! links are slow.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use runtime::sim::CrashKind;
use sim::client::{Answer, Client};
use sim::cluster::{Cluster, ClusterSetup};
use sim::model::Value;

const SECOND: Duration = Duration::from_secs(1);
const ONE: u16 = 1;
const QUORUM: u16 = 4;
const ALL: u16 = 5;

/// A node's address, a statement and its level.
type Said = (SocketAddr, String, u16);

#[derive(Default)]
struct Script {
    said: RefCell<VecDeque<Said>>,
    answer: RefCell<Option<Answer>>,
}

async fn say(script: Rc<Script>) {
    let mut clients: BTreeMap<SocketAddr, Client> = BTreeMap::new();
    loop {
        let next = script.said.borrow().front().cloned();
        let Some((address, statement, level)) = next else {
            runtime::sleep(Duration::from_millis(1)).await;
            continue;
        };
        let mut client = match clients.remove(&address) {
            Some(client) => client,
            None => match Client::connect(address).await {
                Ok(client) => client,
                Err(_) => {
                    runtime::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        // A connection that the node's end took with it is made again.
        if let Ok(answer) = client.ask_at(&statement, level).await {
            clients.insert(address, client);
            script.said.borrow_mut().pop_front();
            *script.answer.borrow_mut() = Some(answer);
        }
    }
}

struct Story {
    cluster: Cluster,
    script: Rc<Script>,
}

impl Story {
    fn begin(seed: u64, shards: &[u32]) -> Self {
        let setup = ClusterSetup {
            shards: shards.to_vec(),
            ..sim::story::Story::setup(shards.len())
        };
        let mut cluster = Cluster::new(seed, &setup);
        let script = Rc::new(Script::default());
        let said = script.clone();
        cluster.start_clients(move || Box::pin(say(said.clone())));
        let mut story = Self { cluster, script };
        for node in 0..shards.len() {
            story.cluster.start(node);
            story.must(node, "SELECT key FROM system.local", ONE);
        }
        story.cluster.sim.run_for(5 * SECOND);
        story
    }

    /// Makes keyspace `k`, with so many copies.
    fn make_keyspace(&mut self, copies: usize) {
        let replication = format!("{{'class': 'SimpleStrategy', 'replication_factor': {copies}}}");
        self.must(0, &format!("CREATE KEYSPACE k WITH replication = {replication}"), ONE);
    }

    fn ask(&mut self, node: usize, statement: &str, level: u16) -> Answer {
        let address = self.cluster.addresses()[node];
        self.script.answer.take();
        self.script
            .said
            .borrow_mut()
            .push_back((address, statement.to_owned(), level));
        let script = self.script.clone();
        let is_answered = self
            .cluster
            .sim
            .run_until(120 * SECOND, || script.answer.borrow().is_some());
        assert!(
            is_answered,
            "no answer within two minutes to {statement}: {:?}",
            self.cluster.failure(node)
        );
        self.script.answer.take().expect("it has just been answered")
    }

    #[track_caller]
    fn must(&mut self, node: usize, statement: &str, level: u16) -> Vec<BTreeMap<String, Value>> {
        match self.ask(node, statement, level) {
            Answer::Rows(rows, _) => rows,
            Answer::Done | Answer::Prepared(_) => Vec::new(),
            error @ Answer::Error { .. } => panic!("{statement}: {error:?}"),
        }
    }

    /// The figures of the only row of an aggregate, by column.
    #[track_caller]
    fn aggregate(&mut self, node: usize, statement: &str, level: u16) -> Vec<Option<i32>> {
        let rows = self.must(node, statement, level);
        assert_eq!(rows.len(), 1, "an aggregate is one row: {statement}");
        let figure = |name: &&str| match rows[0].get(*name) {
            Some(Value::Int(n)) => Some(*n),
            _ => None,
        };
        ["n", "lo", "hi", "total", "mean"].iter().map(figure).collect()
    }
}

const AGGREGATES: &str = "CAST(count(*) AS int) AS n, min(v) AS lo, max(v) AS hi, sum(v) AS total, avg(v) AS mean";

fn figures(n: i32, lo: i32, hi: i32, total: i32, mean: i32) -> Vec<Option<i32>> {
    [n, lo, hi, total, mean].map(Some).to_vec()
}

#[test]
fn aggregates_over_three_nodes_are_those_of_one_scan_while_replicas_fall() {
    let mut story = Story::begin(1, &[2, 1, 2]);
    story.make_keyspace(3);
    story.must(
        0,
        "CREATE TABLE k.t (p int, c int, s int STATIC, v int, PRIMARY KEY (p, c))",
        ONE,
    );
    let nothing = vec![Some(0), None, None, Some(0), Some(0)];
    let all = format!("SELECT {AGGREGATES} FROM k.t");
    assert_eq!(story.aggregate(1, &all, QUORUM), nothing, "an empty table is counted");
    for p in 0..60 {
        story.must(
            p % 3,
            &format!(
                "BEGIN UNLOGGED BATCH \
                INSERT INTO k.t (p, c, v) VALUES ({p}, 1, {p}); INSERT INTO k.t (p, c, v) VALUES ({p}, 2, {}); \
                INSERT INTO k.t (p, c) VALUES ({p}, 3); APPLY BATCH",
                1000 + p
            ),
            QUORUM,
        );
    }
    // A partition whose only row is its static one.
    story.must(2, "INSERT INTO k.t (p, s) VALUES (1000, 1)", QUORUM);
    let whole = figures(
        181,
        0,
        1059,
        2 * (59 * 60 / 2) + 60_000,
        (2 * (59 * 60 / 2) + 60_000) / 120,
    );
    let filtered = format!("SELECT {AGGREGATES} FROM k.t WHERE v < 10 ALLOW FILTERING");
    let sliced = format!("SELECT {AGGREGATES} FROM k.t WHERE c = 2 ALLOW FILTERING");
    let check = |story: &mut Story, when: &str, node: usize, levels: &[u16]| {
        for &level in levels {
            assert_eq!(
                story.aggregate(node, &all, level),
                whole,
                "{when}, node {node}, level {level}"
            );
            let few = figures(10, 0, 9, 45, 4);
            assert_eq!(
                story.aggregate(node, &filtered, level),
                few,
                "{when}, node {node}, level {level}"
            );
            let second = figures(60, 1000, 1059, 60_000 + 59 * 60 / 2, 1029);
            assert_eq!(
                story.aggregate(node, &sliced, level),
                second,
                "{when}, node {node}, level {level}"
            );
            let mut halves = 0;
            for range in ["token(p) <= 0", "token(p) > 0"] {
                let half = story.aggregate(node, &format!("{all} WHERE {range}"), level);
                halves += half[0].expect("a count is never null");
            }
            assert_eq!(halves, 181, "{when}, node {node}, level {level}");
        }
    };
    for node in 0..3 {
        check(&mut story, "while all are well", node, &[ONE, QUORUM, ALL]);
    }
    // No node knows yet that it is gone; then all nodes do.
    story.cluster.crash(1, CrashKind::Kill);
    check(&mut story, "just after a node was killed", 0, &[QUORUM]);
    story.cluster.sim.run_for(30 * SECOND);
    check(&mut story, "long after a node was killed", 2, &[QUORUM, ONE]);
    story.cluster.set_links(2, false, false);
    let cut_off = story.ask(0, &all, QUORUM);
    assert!(
        matches!(
            cut_off,
            Answer::Error {
                code: 0x1000 | 0x1200 | 0x1300,
                ..
            }
        ),
        "two of three replicas are gone: {cut_off:?}"
    );
    story.cluster.set_links(2, true, true);
    story.cluster.restart(1);
    story.cluster.sim.run_for(30 * SECOND);
    check(&mut story, "when all are back", 1, &[QUORUM, ALL]);
}

#[test]
fn a_deletion_that_one_replica_missed_is_not_counted_at_quorum() {
    let mut story = Story::begin(2, &[1, 1, 1]);
    story.make_keyspace(3);
    story.must(0, "CREATE TABLE k.t (p int PRIMARY KEY, v int)", ONE);
    for p in 0..30 {
        story.must(0, &format!("INSERT INTO k.t (p, v) VALUES ({p}, {p})"), ALL);
    }
    story.cluster.set_links(2, false, false);
    story.must(0, "UPDATE k.t SET v = 100 WHERE p = 7", QUORUM);
    for p in 20..30 {
        story.must(1, &format!("DELETE FROM k.t WHERE p = {p}"), QUORUM);
    }
    story.cluster.set_links(2, true, true);
    story.cluster.sim.run_for(SECOND);
    let all = format!("SELECT {AGGREGATES} FROM k.t");
    let whole = figures(20, 0, 100, 19 * 20 / 2 - 7 + 100, (190 - 7 + 100) / 20);
    for node in 0..3 {
        assert_eq!(story.aggregate(node, &all, QUORUM), whole, "asked of node {node}");
    }
}

#[test]
fn groups_over_three_nodes_are_those_of_each_partition_while_replicas_fall() {
    let mut story = Story::begin(4, &[2, 1, 2]);
    story.make_keyspace(3);
    story.must(
        0,
        "CREATE TABLE k.t (p int, c int, s int STATIC, v int, PRIMARY KEY (p, c))",
        ONE,
    );
    for p in 0..40 {
        for c in 0..=p % 4 {
            let insert = format!("INSERT INTO k.t (p, c, s, v) VALUES ({p}, {c}, {}, {})", p * 7, p + c);
            story.must(p as usize % 3, &insert, QUORUM);
        }
    }
    let int = |row: &BTreeMap<String, Value>, name: &str| match row.get(name) {
        Some(Value::Int(n)) => *n,
        other => panic!("{name} is {other:?}"),
    };
    let names = |rows: &[BTreeMap<String, Value>]| rows.iter().map(|row| int(row, "p")).collect::<Vec<_>>();
    let check = |story: &mut Story, when: &str, node: usize, level: u16| {
        let order = names(&story.must(node, "SELECT DISTINCT p FROM k.t", level));
        assert_eq!(order.len(), 40, "{when}");
        let select = format!("SELECT p, s, c, {AGGREGATES} FROM k.t");
        let grouped = story.must(node, &format!("{select} GROUP BY p"), level);
        assert_eq!(
            names(&grouped),
            order,
            "{when}, node {node}, level {level}: groups come in the order of tokens"
        );
        for row in &grouped {
            let (p, rows) = (int(row, "p"), int(row, "p") % 4 + 1);
            let found = ["s", "c", "n", "lo", "hi", "total"].map(|name| int(row, name));
            let total = rows * p + rows * (rows - 1) / 2;
            assert_eq!(
                found,
                [p * 7, 0, rows, p, p + rows - 1, total],
                "{when}, node {node}, level {level}"
            );
        }
        let rows = story.must(
            node,
            "SELECT p, c, CAST(count(*) AS int) AS n FROM k.t GROUP BY p, c",
            level,
        );
        let ones = rows.iter().filter(|row| int(row, "n") == 1).count();
        assert_eq!((rows.len(), ones), (100, 100), "{when}: each row is a group");
        let filtered = format!("{select} WHERE c = 2 GROUP BY p ALLOW FILTERING");
        let filtered = story.must(node, &filtered, level);
        assert_eq!(
            names(&filtered),
            order.iter().copied().filter(|p| p % 4 >= 2).collect::<Vec<_>>(),
            "{when}"
        );
        let limited = story.must(node, &format!("{select} GROUP BY p LIMIT 45"), level);
        assert_eq!(names(&limited), order, "{when}");
        let limited = story.must(node, &format!("{select} GROUP BY p LIMIT 7"), level);
        assert_eq!(names(&limited), order[..7], "{when}");
    };
    for node in 0..3 {
        for level in [ONE, QUORUM, ALL] {
            check(&mut story, "while all are well", node, level);
        }
    }
    story.cluster.crash(1, CrashKind::Kill);
    check(&mut story, "just after a node was killed", 0, QUORUM);
    story.cluster.sim.run_for(30 * SECOND);
    check(&mut story, "long after a node was killed", 2, ONE);
}

#[test]
fn answers_that_come_when_the_page_of_groups_is_full_are_dropped() {
    let mut story = Story::begin(5, &[1, 1, 1]);
    story.must(
        0,
        "CREATE KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1} AND tablets = {'initial': 4}",
        ONE,
    );
    story.must(0, "CREATE TABLE k.t (p int, c int, PRIMARY KEY (p, c))", ONE);
    for p in 0..20 {
        for c in 0..30 {
            story.must(p % 3, &format!("INSERT INTO k.t (p, c) VALUES ({p}, {c})"), ONE);
        }
    }
    let order = story.must(0, "SELECT p, c FROM k.t", ONE);
    for node in 0..3 {
        story.cluster.set_link_quality(node, Duration::from_millis(200), 0);
    }
    // Twenty-five groups are expected to be enough for all partitions, and the node that has the first of them has as
    // many at once.
    for node in 0..3 {
        let first = story.must(node, "SELECT p, c FROM k.t GROUP BY p, c LIMIT 25", ONE);
        assert_eq!(first, order[..25], "asked of node {node}");
        story.cluster.sim.run_for(5 * SECOND);
        assert_eq!(
            story.cluster.failure(node),
            None,
            "node {node} lives on when the late answers have come"
        );
    }
}

#[test]
fn a_scan_that_takes_longer_than_a_range_may_is_done_in_steps() {
    let mut story = Story::begin(3, &[1, 1, 1]);
    story.make_keyspace(2);
    story.must(
        0,
        "CREATE TABLE k.t (p int, c int, s int STATIC, v int, x text, PRIMARY KEY (p, c))",
        ONE,
    );
    let long = "x".repeat(8000);
    for c in 0..120 {
        story.must(
            0,
            &format!("INSERT INTO k.t (p, c, v, x) VALUES ({}, {c}, {c}, '{long}')", c % 2),
            ALL,
        );
    }
    // Every round trip takes more than a second: a step ends after each.
    for node in 0..3 {
        story.cluster.set_link_quality(node, Duration::from_millis(700), 0);
    }
    let began = story.cluster.sim.now();
    let all = format!("SELECT {AGGREGATES} FROM k.t");
    assert_eq!(story.aggregate(0, &all, QUORUM), figures(120, 0, 119, 119 * 60, 59));
    let took = story.cluster.sim.now().saturating_duration_since(began);
    assert!(took > 5 * SECOND, "several steps were needed: {took:?}");
}
