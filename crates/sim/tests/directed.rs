//! Bugs that the simulator found, each as a story of its own.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use runtime::sim::CrashKind;
use sim::client::{Answer, Client};
use sim::{Durability, Machines, Setup};

const WAIT_MAX: Duration = Duration::from_mins(1);
/// The consistency level's number in the protocol.
const ONE: u16 = 1;

/// A statement, and which page of its result is requested.
#[derive(Clone)]
struct Statement {
    text: String,
    /// Rows of a page, and the state after which it begins.
    page: Option<(i32, Option<Vec<u8>>)>,
}

/// What the client is to say, one after the other, and what it was answered. A lost connection is made again.
#[derive(Default)]
struct Script {
    statements: RefCell<Vec<Statement>>,
    answers: RefCell<Vec<Answer>>,
}

async fn say(script: Rc<Script>, address: SocketAddr) {
    loop {
        let session = async {
            let mut client = Client::connect(address).await?;
            loop {
                let next = script.statements.borrow().get(script.answers.borrow().len()).cloned();
                match next {
                    Some(statement) => {
                        let text = &statement.text;
                        let answer = match statement.page {
                            None => client.ask(text).await?,
                            Some((rows, state)) => client.ask_page(text, ONE, rows, state.as_deref()).await?,
                        };
                        script.answers.borrow_mut().push(answer);
                    }
                    None => runtime::sleep(Duration::from_millis(1)).await,
                }
            }
        };
        let _: io::Result<()> = session.await;
        runtime::sleep(Duration::from_millis(5)).await;
    }
}

/// A node and a client that says what the test wants.
struct Story {
    machines: Machines,
    script: Rc<Script>,
}

impl Story {
    fn begin(seed: u64, shards: u32) -> Self {
        Self::on(
            seed,
            &Setup {
                shards,
                durability: Durability::Batch,
                shard_bytes: 2400 << 10,
                segment_bytes: 32 << 10,
                log_bytes: 1 << 20,
            },
        )
    }

    fn on(seed: u64, setup: &Setup) -> Self {
        let script = Rc::new(Script::default());
        let said = script.clone();
        let machines = Machines::new(seed, setup, move |address| Box::pin(say(said.clone(), address)));
        let mut story = Self { machines, script };
        story.must("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
        story.must("CREATE TABLE ks.t (k int PRIMARY KEY, a int)");
        story
    }

    fn ask(&mut self, statement: &str) -> Answer {
        self.ask_page(statement, None)
    }

    fn ask_page(&mut self, statement: &str, page: Option<(i32, Option<Vec<u8>>)>) -> Answer {
        let text = statement.to_owned();
        self.script.statements.borrow_mut().push(Statement { text, page });
        let wanted = self.script.statements.borrow().len();
        let script = self.script.clone();
        let answered = || script.answers.borrow().len() == wanted;
        assert!(
            self.machines.sim.run_until(WAIT_MAX, answered),
            "no answer within a minute to {statement}: {:?}",
            self.machines.failure()
        );
        let answers = self.script.answers.borrow();
        answers.last().cloned().expect("it has just been answered")
    }

    fn must(&mut self, statement: &str) -> usize {
        match self.ask(statement) {
            Answer::Rows(rows, _) => rows.len(),
            Answer::Done | Answer::Prepared(_) => 0,
            error @ Answer::Error { .. } => panic!("{statement}: {error:?}"),
        }
    }

    fn start_again(&mut self, kind: CrashKind, shards: u32) {
        let Machines { sim, node, clients, .. } = &mut self.machines;
        sim.crash(*node, kind);
        sim.crash(*clients, CrashKind::Kill);
        sim.clear_file_faults(*node);
        self.machines.set_shards(shards);
        self.machines.restart();
    }
}

#[test]
fn a_drop_is_done_or_not_done_and_stays_so_when_a_file_operation_fails_under_it() {
    for operations in 0..12 {
        for kind in [CrashKind::Kill, CrashKind::PowerLoss] {
            let mut story = Story::begin(operations, 1);
            story.must("INSERT INTO ks.t (k, a) VALUES (1, 1)");
            let node = story.machines.node;
            story
                .machines
                .sim
                .fail_file_op_after(node, operations, io::ErrorKind::Other);
            let dropped = !matches!(story.ask("DROP TABLE ks.t"), Answer::Error { .. });
            story.machines.sim.clear_file_faults(node);
            if !dropped {
                story.must("INSERT INTO ks.t (k, a) VALUES (2, 2)");
            }
            story.start_again(kind, 1);
            match story.ask("SELECT * FROM ks.t") {
                Answer::Rows(rows, _) => {
                    assert!(!dropped, "a dropped table is back (operation {operations}, {kind:?})");
                    assert_eq!(rows.len(), 2, "operation {operations}, {kind:?}");
                }
                other => assert!(
                    dropped,
                    "the table of an acknowledged write is gone after a DROP that failed (operation {operations}, {kind:?}): {other:?}"
                ),
            }
        }
    }
}

/// A logged batch over several shards, and what happens to it.
struct BatchStory<'w> {
    seed: u64,
    shards: u32,
    /// Partition keys that it writes, each of which is then deleted.
    keys: Range<i32>,
    failing_operation: Option<u64>,
    /// How long the node runs, in milliseconds; after each it is looked whether something came back.
    waits: &'w [u64],
    stop: CrashKind,
}

/// Whether the batch failed, and some of its rows could be deleted, and none came back.
fn deletes_behind_a_batch(told: &BatchStory<'_>) -> bool {
    let &BatchStory { seed, shards, stop, .. } = told;
    let mut story = Story::begin(seed, shards);
    story.must("ALTER TABLE ks.t WITH gc_grace_seconds = 0");
    let node = story.machines.node;
    if let Some(operation) = told.failing_operation {
        let sim = &mut story.machines.sim;
        sim.fail_file_op_after(node, operation, io::ErrorKind::Other);
    }
    let insert = |k| format!("INSERT INTO ks.t (k, a) VALUES ({k}, {k});");
    let inserts: String = told.keys.clone().map(insert).collect();
    let batch = story.ask(&format!("BEGIN BATCH USING TIMESTAMP 1000 {inserts} APPLY BATCH"));
    story.machines.sim.clear_file_faults(node);
    let mut deleted = Vec::new();
    for k in told.keys.clone() {
        let answer = story.ask(&format!("DELETE FROM ks.t USING TIMESTAMP 2000 WHERE k = {k}"));
        if !matches!(answer, Answer::Error { .. }) {
            deleted.push(k);
        }
    }
    let check = |story: &mut Story, when: &str| {
        for k in &deleted {
            let rows = story.must(&format!("SELECT * FROM ks.t WHERE k = {k}"));
            assert_eq!(
                rows, 0,
                "row {k} of a batch is back behind its deletion {when} (seed {seed})"
            );
        }
    };
    // The operator flushes and compacts concurrently, and the node tries to finish the batch.
    for wait in told.waits {
        story.machines.sim.run_for(Duration::from_millis(*wait));
        check(&mut story, "while the node runs");
    }
    story.start_again(stop, shards);
    check(&mut story, "after a restart");
    matches!(batch, Answer::Error { .. }) && !deleted.is_empty()
}

#[test]
fn what_was_deleted_stays_deleted_while_a_failed_batch_is_finished() {
    let told = |operation| BatchStory {
        seed: operation,
        shards: 2,
        keys: 0..8,
        failing_operation: Some(operation),
        waits: &[200, 800, 1500, 1500],
        stop: CrashKind::Kill,
    };
    let failed = (0..24)
        .filter(|&operation| deletes_behind_a_batch(&told(operation)))
        .count();
    assert!(failed > 2, "the failing operation struck the batch");
}

#[test]
fn what_was_deleted_stays_deleted_when_the_power_goes_before_the_log_has_the_end_of_the_batch() {
    for seed in 0..60 {
        let first = i32::try_from(seed % 20).expect("a small number");
        deletes_behind_a_batch(&BatchStory {
            seed,
            shards: 3,
            // Often none of the shard that notes the batch, whose log is then not synced by anything else.
            keys: first..first + 2,
            failing_operation: None,
            waits: &[2500],
            stop: CrashKind::PowerLoss,
        });
    }
}

/// A page that began after a row read the rest of its partition again with each later tablet of the shard.
#[test]
fn a_walk_by_pages_over_several_tablets_shows_each_row_once() {
    for rows_per_page in [1, 2, 3, 5] {
        let mut story = Story::begin(1, 2);
        story.must(
            "CREATE KEYSPACE many WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1} AND tablets = {'initial': 16}",
        );
        story.must("CREATE TABLE many.t (p int, c int, PRIMARY KEY (p, c))");
        for (p, c) in (0..10).flat_map(|p| (0..4).map(move |c| (p, c))) {
            story.must(&format!("INSERT INTO many.t (p, c) VALUES ({p}, {c})"));
        }
        let (mut state, mut seen) = (None, Vec::new());
        loop {
            let page = story.ask_page("SELECT p, c FROM many.t", Some((rows_per_page, state)));
            let Answer::Rows(rows, next) = page else {
                panic!("a page of {rows_per_page} rows: {page:?}");
            };
            seen.extend(rows.iter().map(|row| format!("{row:?}")));
            state = next;
            if state.is_none() {
                break;
            }
        }
        seen.sort();
        let count = seen.len();
        seen.dedup();
        assert_eq!((seen.len(), count), (40, 40), "pages of {rows_per_page} rows");
    }
}

/// One table's memtable went to a file before the log durably had the batch, and the power took the other table's part.
#[test]
fn a_batch_of_which_one_table_was_flushed_is_whole_after_a_power_loss() {
    let mut lost = 0;
    for seed in 0..24 {
        let mut story = Story::on(
            seed,
            &Setup {
                shards: 1,
                durability: Durability::Periodic(Duration::from_mins(10)),
                shard_bytes: 200 << 10,
                segment_bytes: 256 << 10,
                log_bytes: 4 << 20,
            },
        );
        story.must("CREATE TABLE ks.large (k int PRIMARY KEY, text text)");
        let text = "x".repeat(3000);
        // The last of them come after the last flush.
        let batches = 12 + i32::try_from(seed).expect("a small number");
        for k in 0..batches {
            story.must(&format!(
                "BEGIN BATCH INSERT INTO ks.t (k, a) VALUES ({k}, {k}); INSERT INTO ks.large (k, text) VALUES ({k}, '{text}') APPLY BATCH"
            ));
        }
        story.machines.sim.run_for(Duration::from_millis(seed % 6 * 10));
        story.start_again(CrashKind::PowerLoss, 1);
        for k in 0..batches {
            let parts = ["t", "large"].map(|table| story.must(&format!("SELECT k FROM ks.{table} WHERE k = {k}")));
            assert_eq!(parts[0], parts[1], "rows of batch {k} in the two tables (seed {seed})");
            lost += 1 - parts[0];
        }
    }
    assert!(lost > 0, "the power took something");
}
