//! Conditional statements of one shard under the simulator: clients that meet on one row, and lost power.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support;
use plan::ValueRows;
use query::{Engine, Execution, Outcome, QueryError, Request};
use runtime::sim::{CrashKind, Simulation};
use schema::{Schema, TableId};
use uuid::Uuid;

const CLIENTS: i32 = 20;
const INCREMENTS: i32 = 5;

fn schema() -> Schema {
    support::schema_of("CREATE TABLE ks.t (k int PRIMARY KEY, v int)")
}

/// A shard over what an earlier life of it left on the disk.
async fn engine() -> Rc<Engine> {
    support::engine(schema(), support::system_tables().build()).await
}

async fn execute(engine: &Rc<Engine>, text: &str, is_serial: bool) -> Outcome<ValueRows> {
    try_execute(engine, text, is_serial).await.expect(text)
}

async fn try_execute(engine: &Rc<Engine>, text: &str, is_serial: bool) -> Result<Outcome<ValueRows>, QueryError> {
    let statement = engine.compile(text, Some("ks")).expect(text).statement;
    let run = Execution {
        values: Vec::new(),
        now_us: runtime::wall_clock_us(),
        now_in_seconds: None,
        random: 0,
    };
    let request = Request {
        is_serial,
        ..Request::default()
    };
    engine.execute(&statement, &run, &request).await
}

/// Whether a statement was applied, and the first current value that is answered.
fn answer(outcome: Outcome<ValueRows>) -> (bool, Option<i32>) {
    let Outcome::Conditional(answer) = outcome else {
        panic!("a conditional statement says whether it was applied: {outcome:?}");
    };
    let value = answer.rows.first().and_then(|row| row.first()?.as_deref());
    let value = value.map(|v| i32::from_be_bytes(v.try_into().expect("four bytes")));
    (answer.applied, value)
}

async fn value(engine: &Rc<Engine>) -> i32 {
    let Outcome::Rows(page) = execute(engine, "SELECT v FROM t WHERE k = 1", true).await else {
        panic!("a SELECT returns rows");
    };
    match page.sink.rows.first().and_then(|row| row[0].as_deref()) {
        Some(v) => i32::from_be_bytes(v.try_into().expect("four bytes")),
        None => 0,
    }
}

/// Increments `INCREMENTS` times, each until it succeeds. Calls `told` with each new value when it is answered.
async fn client(engine: Rc<Engine>, mut told: impl FnMut(i32)) {
    let mut have = 0;
    for _ in 0..INCREMENTS {
        loop {
            let condition = if have == 0 { "null".to_owned() } else { have.to_string() };
            let text = format!("UPDATE t SET v = {} WHERE k = 1 IF v = {condition}", have + 1);
            let (applied, current) = answer(execute(&engine, &text, false).await);
            if applied {
                have += 1;
                told(have);
                break;
            }
            have = current.unwrap_or(0);
        }
    }
}

#[test]
fn clients_on_one_row_take_turns_and_leave_no_queue_behind() {
    let mut sim = Simulation::new(1);
    let node = sim.add_node(1);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let s = seen.clone();
    sim.start(node, move |_| {
        let seen = s.clone();
        Box::pin(async move {
            let engine = engine().await;
            let told = Rc::new(RefCell::new(Vec::new()));
            let clients: Vec<_> = (0..CLIENTS)
                .map(|_| {
                    let told = told.clone();
                    runtime::spawn(client(engine.clone(), move |v| told.borrow_mut().push(v)))
                })
                .collect();
            for c in clients {
                c.await;
            }
            assert_eq!(value(&engine).await, CLIENTS * INCREMENTS, "an increment was lost");
            assert_eq!(
                engine.coordinator.cas.contended_partitions(),
                0,
                "a queue is kept though nobody waits in it"
            );
            seen.lock().expect("one thread").extend_from_slice(&told.borrow());
        })
    });
    assert!(sim.run_until_ended(node, Duration::from_secs(600)), "a client starved");
    let mut told = seen.lock().expect("one thread").clone();
    told.sort_unstable();
    assert_eq!(
        told,
        (1..=CLIENTS * INCREMENTS).collect::<Vec<_>>(),
        "two clients were told of one increment"
    );
}

#[test]
fn a_node_behind_a_fence_or_a_truncation_that_it_has_not_heard_of_answers_nothing_from_its_own_copy() {
    let mut sim = Simulation::new(1);
    let node = sim.add_node(1);
    sim.start(node, |_| {
        Box::pin(async {
            let engine = engine().await;
            let statements = [
                ("INSERT INTO t (k, v) VALUES (1, 1)", false),
                ("SELECT v FROM t WHERE k = 1", false),
                ("SELECT v FROM t", false),
                ("SELECT v FROM t WHERE k = 1", true),
                ("UPDATE t SET v = 2 WHERE k = 1 IF v = 1", false),
            ];
            let newer = engine.coordinator.context.view().version + 1;
            let store = engine
                .coordinator
                .context
                .shard
                .store(TableId(Uuid::from_u128(1)))
                .expect("it is open");
            for (fence, truncated_at) in [(newer, 0), (0, newer)] {
                store.truncated_at.set(truncated_at);
                engine.coordinator.context.set_fenced_off(fence);
                for (text, serial) in statements {
                    let answered = try_execute(&engine, text, serial).await;
                    assert!(answered.is_err(), "{text}, serial {serial}: {answered:?}");
                }
            }
            // The others say that they take such requests.
            store.truncated_at.set(0);
            engine.coordinator.context.set_fenced_off(0);
            for (text, serial) in statements {
                let answered = try_execute(&engine, text, serial).await;
                assert!(answered.is_ok(), "{text}, serial {serial}: {answered:?}");
            }
            assert_eq!(value(&engine).await, 2, "what was refused was not done");
        })
    });
    assert!(sim.run_until_ended(node, Duration::from_secs(600)), "a statement hangs");
}

#[test]
fn statements_that_wait_for_their_turn_are_not_decided_alone_when_a_fence_came_meanwhile() {
    let mut sim = Simulation::new(1);
    let node = sim.add_node(1);
    sim.start(node, |_| {
        Box::pin(async {
            let engine = engine().await;
            execute(&engine, "INSERT INTO t (k, v) VALUES (1, 0)", false).await;
            engine
                .coordinator
                .context
                .shard
                .flush_all()
                .await
                .expect("the simulated disk works here");
            let texts = [
                ("UPDATE t SET v = 1 WHERE k = 1 IF v = 0", false),
                ("UPDATE t SET v = 2 WHERE k = 1 IF v = 1", false),
                ("SELECT v FROM t WHERE k = 1", true),
            ];
            let waiting = texts.map(|(text, serial)| {
                let engine = engine.clone();
                runtime::spawn(async move { try_execute(&engine, text, serial).await })
            });
            // After this the first has its turn and reads from the disk.
            runtime::yield_now().await;
            assert_eq!(engine.coordinator.cas.contended_partitions(), 1);
            engine
                .coordinator
                .context
                .set_fenced_off(engine.coordinator.context.view().version + 1);
            for (answered, (text, _)) in waiting.into_iter().zip(texts) {
                let answered = answered.await;
                assert!(answered.is_err(), "{text}: {answered:?}");
            }
            engine.coordinator.context.set_fenced_off(0);
            assert_eq!(value(&engine).await, 0, "what was refused was not done");
        })
    });
    assert!(sim.run_until_ended(node, Duration::from_secs(600)), "a statement hangs");
}

#[test]
fn what_was_applied_survives_a_power_loss_though_the_log_is_synced_every_ten_seconds() {
    let mut survived = 0;
    for seed in 0..20 {
        let mut sim = Simulation::new(seed);
        let node = sim.add_node(1);
        // The value that was reported to clients, and the value that the next life finds.
        let state = Arc::new(Mutex::new((0, None)));
        let s = state.clone();
        let boot = Arc::new(Mutex::new(0));
        sim.start(node, move |_| {
            let (s, boot) = (s.clone(), boot.clone());
            Box::pin(async move {
                let life = {
                    let mut boot = boot.lock().expect("one thread");
                    *boot += 1;
                    *boot
                };
                let engine = engine().await;
                if life > 1 {
                    s.lock().expect("one thread").1 = Some(value(&engine).await);
                    return;
                }
                let clients: Vec<_> = (0..CLIENTS)
                    .map(|_| {
                        let s = s.clone();
                        runtime::spawn(client(engine.clone(), move |v| {
                            let mut s = s.lock().expect("one thread");
                            s.0 = s.0.max(v);
                        }))
                    })
                    .collect();
                for c in clients {
                    c.await;
                }
                std::future::pending::<()>().await;
            })
        });
        sim.crash_after_file_ops(node, 20 + seed * 4, CrashKind::PowerLoss);
        sim.run_until(Duration::from_secs(60), || false);
        if sim.is_running(node) {
            sim.crash(node, CrashKind::PowerLoss);
        }
        sim.clear_file_faults(node);
        sim.restart(node);
        assert!(
            sim.run_until_ended(node, Duration::from_secs(60)),
            "the shard starts again"
        );
        let (told, found) = *state.lock().expect("one thread");
        let found = found.expect("the second life reads");
        assert!(
            found >= told,
            "seed {seed}: {told} was answered as applied, {found} survived the power loss"
        );
        survived += i32::from(told > 0);
    }
    assert!(
        survived > 5,
        "in {survived} of 20 runs only was anything applied before the power loss"
    );
}
