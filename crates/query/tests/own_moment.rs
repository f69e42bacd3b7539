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

/// Rows of partitions of a chunk each.
const EXPIRED: i32 = 20;
const GRACE_SECONDS: u32 = 100;

/// Whether the deletions of rows that have expired are there when the node has compacted its files, right after a look
/// for such rows that took twice the grace period, because the disk is slow.
fn keeps_deletions_of_a_long_look() -> bool {
    let mut sim = Simulation::new(5);
    let node = sim.add_node(1);
    let step = Rc::new(Cell::new(0));
    let (seen, kept) = (step.clone(), Rc::new(Cell::new(false)));
    let found = kept.clone();
    sim.start(node, move |_| {
        let (step, found) = (seen.clone(), found.clone());
        Box::pin(async move {
            let table = format!(
                "CREATE TABLE ks.e (k int, c int, v blob, ends bigint TTL, PRIMARY KEY (k, c)) \
                 WITH gc_grace_seconds = {GRACE_SECONDS} AND tombstone_gc = {{'mode': 'timeout'}}"
            );
            let engine = support::engine(support::schema_of(&table), support::system_tables().build()).await;
            let context = &engine.coordinator.context;
            context.set_timeouts(coordinator::Timeouts {
                read: Duration::from_mins(10),
                range: Duration::from_mins(10),
                ..context.timeouts()
            });
            for k in 0..EXPIRED {
                let value = "5a".repeat(64 << 10);
                let row = format!("INSERT INTO e (k, c, v, ends) VALUES ({k}, 0, 0x{value}, 5)");
                ask(&engine, &row, None).await;
            }
            let shard = engine.coordinator.context.shard.clone();
            shard.flush_all().await.expect("it flushes");
            step.set(1);
            while step.get() < 2 {
                runtime::sleep(Duration::from_secs(1)).await;
            }
            let table = engine.schema().table("ks", "e").expect("it was created").clone();
            let began = runtime::now();
            let all = (types::Token(i64::MIN), types::Token(i64::MAX));
            let counts = engine.expire_rows(&table, all).await.expect("the disk works");
            assert_eq!(counts.deleted, EXPIRED as u64);
            assert!(began.elapsed() > Duration::from_secs(2 * u64::from(GRACE_SECONDS)));
            step.set(3);
            while step.get() < 4 {
                runtime::sleep(Duration::from_secs(1)).await;
            }
            shard.flush_all().await.expect("it flushes");
            shard.compact_all().await.expect("it compacts");
            found.set(shard.has_data());
        })
    });
    let hour = Duration::from_hours(1);
    assert!(sim.run_until(hour, || step.get() == 1), "the rows are not written");
    sim.set_disk_delay(node, Duration::from_secs(3));
    step.set(2);
    assert!(sim.run_until(hour, || step.get() == 3), "the look does not end");
    sim.set_disk_delay(node, Duration::ZERO);
    step.set(4);
    assert!(sim.run_until_ended(node, hour), "it did not end");
    kept.get()
}

#[test]
fn the_deletion_of_an_expired_row_has_the_second_in_which_it_is_written() {
    assert!(keeps_deletions_of_a_long_look());
}
