//! Bugs that the simulator found, each told directly.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use runtime::sim::CrashKind;
use sim::client::{Answer, Client};
use sim::{Durability, Machines, Setup};

const WAIT_MAX: Duration = Duration::from_mins(1);

/// What the client is to say, one after the other, and what it was answered. A lost connection is made again.
#[derive(Default)]
struct Script {
    statements: RefCell<Vec<String>>,
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
                        let answer = client.ask(&statement).await?;
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
        let setup = Setup {
            shards,
            durability: Durability::Batch,
            shard_bytes: 2400 << 10,
            segment_bytes: 32 << 10,
            log_bytes: 1 << 20,
        };
        let script = Rc::new(Script::default());
        let said = script.clone();
        let machines = Machines::new(seed, &setup, move |address| Box::pin(say(said.clone(), address)));
        let mut story = Self { machines, script };
        story.must("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
        story.must("CREATE TABLE ks.t (k int PRIMARY KEY, a int)");
        story
    }

    fn ask(&mut self, statement: &str) -> Answer {
        self.script.statements.borrow_mut().push(statement.to_owned());
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
fn a_drop_that_failed_drops_nothing_after_a_restart_either() {
    let failed = Cell::new(0);
    for operations in 0..12 {
        for kind in [CrashKind::Kill, CrashKind::PowerLoss] {
            let mut story = Story::begin(operations, 1);
            story.must("INSERT INTO ks.t (k, a) VALUES (1, 1)");
            let node = story.machines.node;
            story
                .machines
                .sim
                .fail_file_op_after(node, operations, io::ErrorKind::Other);
            let dropped = match story.ask("DROP TABLE ks.t") {
                Answer::Error { .. } => {
                    failed.set(failed.get() + 1);
                    false
                }
                _ => true,
            };
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
    assert!(failed.get() > 4, "the failing operation struck the schema file");
}
