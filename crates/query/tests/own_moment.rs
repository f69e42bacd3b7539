//! A client that names the moment (`now_in_seconds`): TTLs and expiry go by it; write timestamps, functions and the
//! seconds of deletions by the wall clock.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::support;
use plan::ValueRows;
use query::{Engine, Execution, Outcome, Request};
use runtime::sim::Simulation;

async fn ask(engine: &Rc<Engine>, text: &str, now_in_seconds: Option<i32>) -> Option<i64> {
    let statement = engine.compile(text, Some("ks")).expect(text).statement;
    let run = Execution {
        values: Vec::new(),
        now_us: runtime::wall_clock_us(),
        now_in_seconds,
        random: 0,
    };
    let outcome: Outcome<ValueRows> = engine.execute(&statement, &run, &Request::default()).await.expect(text);
    let Outcome::Rows(page) = outcome else { return None };
    let value = page.sink.rows.first()?[0].as_ref()?;
    Some(value.iter().fold(0, |number, byte| number << 8 | i64::from(*byte)))
}

/// Every kind of write with a TTL of 20 seconds that its client begins at second 100.
const WRITES: [&str; 4] = [
    "INSERT INTO t (k, v) VALUES (0, 1) USING TTL 20",
    "INSERT INTO t (k, v) VALUES (1, 1) IF NOT EXISTS USING TTL 20",
    "BEGIN BATCH INSERT INTO t (k, v) VALUES (2, 1) USING TTL 20; APPLY BATCH",
    r#"INSERT INTO t JSON '{"k": 3, "v": 1}' USING TTL 20"#,
];

#[test]
fn expiry_goes_by_the_clients_moment_and_timestamps_by_the_clock() {
    let mut sim = Simulation::new(3);
    let node = sim.add_node(1);
    sim.start(node, move |_| {
        Box::pin(async move {
            let schema = support::schema_of("CREATE TABLE ks.t (k int PRIMARY KEY, v int)");
            let engine = support::engine(schema, support::system_tables().build()).await;
            let began_us = runtime::wall_clock_us();
            let is_present = |us: i64| (began_us..began_us + 3_600_000_000).contains(&us);
            for (k, write) in WRITES.into_iter().enumerate() {
                ask(&engine, write, Some(100)).await;
                let read = &format!("SELECT ttl(v) FROM t WHERE k = {k}");
                assert_eq!(ask(&engine, read, Some(107)).await, Some(13), "{write}");
                assert_eq!(ask(&engine, read, Some(120)).await, None, "{write}");
                assert_eq!(ask(&engine, read, None).await, None, "{write}");
                let count = "SELECT count(*) FROM t";
                let written = i64::try_from(k + 1).expect("there are few");
                assert_eq!(ask(&engine, count, Some(107)).await, Some(written), "{write}");
                assert_eq!(ask(&engine, count, None).await, Some(0), "{write}");
                let at = ask(&engine, &format!("SELECT writetime(v) FROM t WHERE k = {k}"), Some(107)).await;
                assert!(at.is_some_and(is_present), "{write}: {at:?}");
            }
            // A moment to come moves no clock: what is written next is not newer than the present.
            ask(&engine, "UPDATE t SET v = 2 WHERE k = 10", Some(2_000_000_000)).await;
            ask(&engine, "UPDATE t SET v = 3 WHERE k = 11", None).await;
            for k in [10, 11] {
                let written = ask(&engine, &format!("SELECT writetime(v) FROM t WHERE k = {k}"), None).await;
                assert!(written.is_some_and(is_present), "{k}: {written:?}");
            }
            let millis = ask(&engine, "SELECT currentTimestamp() FROM t WHERE k = 10", Some(100)).await;
            assert!(
                millis.is_some_and(|millis| is_present(millis * 1_000 + 999)),
                "{millis:?}"
            );
        })
    });
    assert!(sim.run_until_ended(node, Duration::from_secs(3600)), "it did not end");
}

/// Deletions of every kind, and what had expired when it was written.
const DELETIONS: [&str; 9] = [
    "DELETE FROM c WHERE k = 0",
    "DELETE FROM c WHERE k = 0 AND c = 1",
    "DELETE FROM c WHERE k = 0 AND c > 1",
    "DELETE v FROM c WHERE k = 0 AND c = 1",
    "UPDATE c SET m = {1: 1} WHERE k = 0 AND c = 1",
    "DELETE m[1] FROM c WHERE k = 0 AND c = 1",
    "INSERT INTO c (k, c, v) VALUES (0, 1, 1) USING TTL 20",
    "BEGIN BATCH DELETE FROM c WHERE k = 0 AND c = 1; APPLY BATCH",
    "DELETE FROM c WHERE k = 0 AND c = 1 IF EXISTS",
];

/// Whether a deletion that its client dates to second 1 of 1970 is still there when the node has compacted its files.
fn is_kept(deletion: &'static str) -> bool {
    let mut sim = Simulation::new(4);
    let node = sim.add_node(1);
    let kept = Rc::new(Cell::new(false));
    let seen = kept.clone();
    sim.start(node, move |_| {
        let seen = seen.clone();
        Box::pin(async move {
            let table = "CREATE TABLE ks.c (k int, c int, v int, m map<int, int>, PRIMARY KEY (k, c)) \
                         WITH gc_grace_seconds = 3600 AND tombstone_gc = {'mode': 'timeout'}";
            let schema = support::schema_of(table);
            let engine = support::engine(schema, support::system_tables().build()).await;
            if deletion.contains("IF EXISTS") {
                ask(&engine, "INSERT INTO c (k, c, v) VALUES (0, 1, 1)", None).await;
            }
            ask(&engine, deletion, Some(1)).await;
            engine.coordinator.context.shard.flush_all().await.expect("it flushes");
            engine
                .coordinator
                .context
                .shard
                .compact_all()
                .await
                .expect("it compacts");
            seen.set(engine.coordinator.context.shard.has_data());
        })
    });
    assert!(sim.run_until_ended(node, Duration::from_secs(600)), "it did not end");
    kept.get()
}

#[test]
fn deletions_are_kept_by_the_servers_clock() {
    for deletion in DELETIONS {
        assert!(is_kept(deletion), "{deletion}");
    }
}

#[test]
#[cfg(debug_assertions)]
fn by_the_clients_clock_they_would_be_forgotten_at_once() {
    let _planted = stdx::planted::Planted::new(Some(stdx::planted::Bug::ClientDatesDeletions));
    let forgotten = DELETIONS.into_iter().filter(|deletion| !is_kept(deletion));
    assert!(forgotten.count() >= DELETIONS.len() - 2, "some write data, too");
}
