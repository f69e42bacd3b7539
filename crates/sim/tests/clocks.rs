//! A node of three whose wall clock jumps a day, with clients on all of them: nothing is lost, nothing comes back.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use sim::Durability;
use sim::client::{Answer, Client};
use sim::cluster::{Cluster, ClusterSetup};
use sim::model::Value;
use stdx::planted::{Bug, Planted};

const SECOND: Duration = Duration::from_secs(1);
const DAY_US: i64 = 86_400_000_000;
const ONE: u16 = 1;
const QUORUM: u16 = 4;
const ALL: u16 = 5;

/// What the clients' machine is to say, and what it was answered; no answer while the node lets nobody in.
#[derive(Default)]
struct Script {
    said: RefCell<VecDeque<(SocketAddr, String, u16)>>,
    answer: RefCell<Option<Option<Answer>>>,
}

async fn say(script: Rc<Script>) {
    loop {
        let next = script.said.borrow_mut().pop_front();
        let Some((address, statement, level)) = next else {
            runtime::sleep(Duration::from_millis(1)).await;
            continue;
        };
        let answer = async {
            let mut client = Client::connect(address).await.ok()?;
            client.ask_at(&statement, level).await.ok()
        };
        let answer = answer.await;
        *script.answer.borrow_mut() = Some(answer);
    }
}

struct Story {
    cluster: Cluster,
    script: Rc<Script>,
}

impl Story {
    fn begin(seed: u64) -> Self {
        let setup = ClusterSetup {
            shards: vec![1, 1, 1],
            places: vec![("datacenter1".to_owned(), "rack1".to_owned()); 3],
            hints: true,
            durability: Durability::Periodic(Duration::from_millis(100)),
            seeds: 1,
        };
        let mut cluster = Cluster::new(seed, &setup);
        let script = Rc::new(Script::default());
        let said = script.clone();
        cluster.start_clients(move || Box::pin(say(said.clone())));
        let mut story = Self { cluster, script };
        for node in 0..3 {
            story.cluster.start(node);
            story.until_served(node);
        }
        story.cluster.sim.run_for(5 * SECOND);
        story
    }

    fn ask(&mut self, node: usize, statement: &str, level: u16) -> Option<Answer> {
        let address = self.cluster.addresses()[node];
        self.script.answer.take();
        let said = (address, statement.to_owned(), level);
        self.script.said.borrow_mut().push_back(said);
        let script = self.script.clone();
        let is_answered = || script.answer.borrow().is_some();
        assert!(
            self.cluster.sim.run_until(60 * SECOND, is_answered),
            "no end of {statement}"
        );
        self.script.answer.take().expect("it has just been answered")
    }

    #[track_caller]
    fn must(&mut self, node: usize, statement: &str, level: u16) -> Option<i32> {
        match self.ask(node, statement, level) {
            Some(Answer::Rows(rows, _)) => match rows.first()?.get("n") {
                Some(Value::Int(n)) => Some(*n),
                _ => None,
            },
            Some(Answer::Done | Answer::Prepared(_)) => None,
            other => panic!("{statement}: {other:?}"),
        }
    }

    fn is_served(&mut self, node: usize) -> bool {
        self.ask(node, "SELECT key FROM system.local", ONE).is_some()
    }

    /// After how many seconds a node serves.
    fn until_served(&mut self, node: usize) -> usize {
        let served = (0..60).find(|_| {
            let is_served = self.is_served(node);
            self.cluster.sim.run_for(SECOND);
            is_served
        });
        served.unwrap_or_else(|| panic!("node {node} serves nobody: {:?}", self.cluster.failure(node)))
    }

    /// Rows with a TTL of an hour: so much that memtables are flushed and sstables merged.
    fn insert(&mut self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            let text = "x".repeat(20_000);
            let insert = format!("INSERT INTO sea.t (k, v) VALUES ({number}, '{text}') USING TTL 3600");
            self.must(number % 2, &insert, QUORUM);
        }
    }
}

/// Rows that are written before the jump.
const ROWS: usize = 60;
/// All rows: so many that those of before are merged with those of the time of the jump.
const ALL_ROWS: usize = 4 * ROWS;

/// Rows with a TTL that are there in the end, and the value that was written last: of two writes, the first of which a node with a jump made.
fn after_a_jump(seed: u64, day_us: i64) -> (Option<i32>, Option<i32>) {
    let mut story = Story::begin(seed);
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 3}";
    story.must(0, &format!("CREATE KEYSPACE sea WITH replication = {replication}"), ALL);
    story.must(0, "CREATE TABLE sea.t (k int PRIMARY KEY, v text)", ALL);
    story.must(0, "CREATE TABLE sea.n (k int PRIMARY KEY, n int)", ALL);
    story.insert(0..ROWS);
    story.must(0, "INSERT INTO sea.n (k, n) VALUES (1, 1)", ALL);
    let machine = story.cluster.machine(2);
    story.cluster.sim.set_clock_skew_us(machine, day_us);
    story.cluster.sim.run_for(SECOND);
    story.must(2, "UPDATE sea.n SET n = 2 WHERE k = 1", ALL);
    story.must(0, "UPDATE sea.n SET n = 3 WHERE k = 1", ALL);
    story.insert(ROWS..ALL_ROWS);
    story.cluster.sim.run_for(20 * SECOND);
    if stdx::planted::is_planted(Bug::UntrustedClock) {
        story.cluster.sim.set_clock_skew_us(machine, 0);
    } else {
        assert!(!story.is_served(2), "it has left service");
        story.insert(0..ROWS / 2);
        story.cluster.sim.set_clock_skew_us(machine, 0);
        assert!(story.until_served(2) > 3, "it is calm first");
    }
    story.cluster.sim.run_for(10 * SECOND);
    let rows = story.must(2, "SELECT CAST(count(*) AS int) AS n FROM sea.t", ALL);
    let value = story.must(2, "SELECT n FROM sea.n WHERE k = 1", ALL);
    (rows, value)
}

#[test]
fn a_node_whose_clock_jumps_a_day_loses_nothing_and_returns() {
    for (seed, day_us) in [(1, DAY_US), (2, -DAY_US)] {
        let rows = i32::try_from(ALL_ROWS).expect("a few");
        assert_eq!(after_a_jump(seed, day_us), (Some(rows), Some(3)), "by {day_us} us");
    }
}

#[test]
fn a_node_that_follows_its_clock_loses_rows_or_later_writes() {
    let _planted = Planted::new(Some(Bug::UntrustedClock));
    let all = i32::try_from(ALL_ROWS).expect("a few");
    let found = after_a_jump(1, DAY_US);
    eprintln!("rows and value: {found:?}");
    assert_ne!(
        found,
        (Some(all), Some(3)),
        "expired rows are gone, or a write of tomorrow hides that of today"
    );
}
