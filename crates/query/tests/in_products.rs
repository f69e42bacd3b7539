//! IN on partitions and on rows at once: what it finds, and how much it may name.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::support;
use memory::ResultMemory;
use plan::{OwnedBound, ValueRows};
use query::{Engine, Execution, Outcome, QueryError, Request};
use runtime::sim::Simulation;

fn ints(numbers: impl Iterator<Item = i32>) -> OwnedBound {
    let numbers: Vec<i32> = numbers.collect();
    let mut list = i32::try_from(numbers.len())
        .expect("a small number")
        .to_be_bytes()
        .to_vec();
    for number in numbers {
        list.extend([0, 0, 0, 4]);
        list.extend(number.to_be_bytes());
    }
    OwnedBound::Value(list)
}

fn texts(count: usize, bytes: usize) -> OwnedBound {
    let mut list = u32::try_from(count).expect("a small number").to_be_bytes().to_vec();
    for number in 0..count {
        let text = format!("{number:0bytes$}");
        list.extend(u32::try_from(text.len()).expect("a small number").to_be_bytes());
        list.extend(text.into_bytes());
    }
    OwnedBound::Value(list)
}

async fn ask(
    engine: &Rc<Engine>,
    text: &str,
    values: Vec<OwnedBound>,
    request: &Request,
) -> Result<Outcome<ValueRows>, QueryError> {
    let statement = engine.compile(text, Some("ks")).expect(text).statement;
    let run = Execution {
        values,
        now_us: runtime::wall_clock_us(),
        now_in_seconds: None,
        random: 0,
    };
    engine.execute(&statement, &run, request).await
}

/// The ints of a result's rows, page by page.
async fn numbers(engine: &Rc<Engine>, text: &str, values: &[OwnedBound], page_rows: Option<u32>) -> Vec<Vec<i32>> {
    let (mut all, mut state) = (Vec::new(), None);
    loop {
        let request = Request {
            page_rows,
            paging_state: state,
            ..Request::default()
        };
        let Outcome::Rows(page) = ask(engine, text, values.to_vec(), &request).await.expect(text) else {
            panic!("a SELECT returns rows");
        };
        let int = |value: Option<Vec<u8>>| value.and_then(|v| v.try_into().ok()).map_or(-1, i32::from_be_bytes);
        all.extend(
            page.sink
                .rows
                .into_iter()
                .map(|row| row.into_iter().map(int).collect::<Vec<_>>()),
        );
        state = page.paging_state;
        if state.is_none() {
            return all;
        }
    }
}

fn on_shard(test: impl AsyncFn(Rc<Engine>) + Copy + 'static) {
    on_shard_with(
        "CREATE TABLE ks.t (k int, c int, s int static, v int, PRIMARY KEY (k, c))",
        test,
    );
}

fn on_shard_with(table: &'static str, test: impl AsyncFn(Rc<Engine>) + Copy + 'static) {
    let mut sim = Simulation::new(5);
    let node = sim.add_node(1);
    sim.start(node, move |_| {
        Box::pin(async move {
            let engine = support::engine(support::schema_of(table), support::system_tables().build()).await;
            test(engine.clone()).await;
        })
    });
    assert!(sim.run_until_ended(node, Duration::from_secs(3600)), "it did not end");
}

/// A row that IN names by its whole key is read from a file once, and what is written later is seen all the same.
#[test]
fn rows_that_in_names_whole_go_into_the_row_cache() {
    on_shard(async |engine: Rc<Engine>| {
        let write = async |text: &str| {
            ask(&engine, text, Vec::new(), &Request::default()).await.expect(text);
        };
        for k in 0..4 {
            write(&format!(
                "INSERT INTO t (k, c, s, v) VALUES ({k}, 1, {}, {})",
                10 + k,
                20 + k
            ))
            .await;
            write(&format!("INSERT INTO t (k, c, v) VALUES ({k}, 2, 0)")).await;
        }
        engine.coordinator.context.shard.flush_all().await.expect("it flushes");
        let cached = || engine.coordinator.context.shard.row_cache_budget.bytes();
        let text = "SELECT k, c, s, v FROM t WHERE k IN ? AND c = 1";
        let keys = [ints(0..5)];
        let in_files: Vec<Vec<i32>> = (0..4).map(|k| vec![k, 1, 10 + k, 20 + k]).collect();
        let bypassing = numbers(&engine, &format!("{text} BYPASS CACHE"), &keys, None).await;
        assert_eq!(
            (bypassing, cached()),
            (in_files.clone(), 0),
            "it leaves the cache as it is"
        );
        assert_eq!(numbers(&engine, text, &keys, None).await, in_files);
        let after_one = cached();
        assert!(after_one > 0, "no row was cached");
        assert_eq!(numbers(&engine, text, &keys, Some(1)).await, in_files, "page by page");
        assert_eq!(cached(), after_one, "a row was cached a second time");
        write("UPDATE t SET v = 99 WHERE k = 0 AND c = 1").await;
        write("UPDATE t SET s = 98 WHERE k = 1").await;
        write("DELETE FROM t WHERE k = 2 AND c < 2").await;
        write("DELETE FROM t WHERE k = 3").await;
        let now = vec![vec![0, 1, 10, 99], vec![1, 1, 98, 21]];
        assert_eq!(
            numbers(&engine, text, &keys, None).await,
            now,
            "what memory has is merged with the cache"
        );
        engine.coordinator.context.shard.flush_all().await.expect("it flushes");
        assert_eq!(
            numbers(&engine, text, &keys, None).await,
            now,
            "a flush replaces what was cached"
        );
    });
}

#[test]
fn partitions_that_are_not_there_are_passed_over_with_all_their_rows() {
    on_shard(async |engine: Rc<Engine>| {
        // Every third partition, every second row: some in files, some in memory, one with a static row alone, one
        // deleted.
        for k in (0..30).step_by(3) {
            for c in (0..20).step_by(2) {
                let text = format!("INSERT INTO t (k, c, v) VALUES ({k}, {c}, {})", 100 * k + c);
                ask(&engine, &text, Vec::new(), &Request::default())
                    .await
                    .expect("it is written");
            }
            if k == 15 {
                engine.coordinator.context.shard.flush_all().await.expect("it flushes");
            }
        }
        for text in [
            "UPDATE t SET s = 1 WHERE k = 31",
            "DELETE FROM t WHERE k = 6",
            "DELETE FROM t WHERE k = 21 AND c < 10",
        ] {
            ask(&engine, text, Vec::new(), &Request::default())
                .await
                .expect("it is written");
        }
        let (keys, rows) = (ints(0..40), ints((0..20).filter(|c| c % 3 == 0)));
        let text = "SELECT k, c, v FROM t WHERE k IN ? AND c IN ?";
        let lives = |k: i32, c: i32| k != 6 && (k != 21 || c >= 10);
        let expected: Vec<Vec<i32>> = (0..30)
            .step_by(3)
            .flat_map(|k| (0..20).step_by(6).map(move |c| (k, c)))
            .filter(|&(k, c)| lives(k, c))
            .map(|(k, c)| vec![k, c, 100 * k + c])
            .collect();
        for page_rows in [None, Some(1), Some(7)] {
            let found = numbers(&engine, text, &[keys.clone(), rows.clone()], page_rows).await;
            assert_eq!(found, expected, "pages of {page_rows:?}");
        }
        let text = "SELECT count(*) FROM t WHERE k IN ? AND c IN ?";
        let Outcome::Rows(page) = ask(&engine, text, vec![keys, rows], &Request::default())
            .await
            .expect(text)
        else {
            panic!("a SELECT returns rows");
        };
        let count = i64::try_from(expected.len())
            .expect("a small number")
            .to_be_bytes()
            .to_vec();
        assert_eq!(page.sink.rows, [[Some(count)]]);
    });
}

#[test]
fn a_statement_that_multiplies_two_lists_is_limited() {
    on_shard(async |engine: Rc<Engine>| {
        let refusal = async |text: &str, partitions: i32, rows: i32| {
            let values = vec![ints(0..partitions), ints(0..rows)];
            match ask(&engine, text, values, &Request::default()).await {
                Err(QueryError::Invalid(message)) => message,
                other => panic!("{text} of {partitions} x {rows}: {:?}", other.map(drop)),
            }
        };
        let read = "SELECT v FROM t WHERE k IN ? AND c IN ?";
        assert_eq!(
            refusal(read, 8000, 8000).await,
            "The IN relations name 8000 partitions and 8000 ranges of rows in each, 64000000 in all, and at most 10000000 are allowed"
        );
        assert!(
            numbers(&engine, read, &[ints(0..1000), ints(0..10_000)], None)
                .await
                .is_empty()
        );
        assert!(
            numbers(&engine, "SELECT v FROM t WHERE k IN ?", &[ints(0..100_000)], None)
                .await
                .is_empty()
        );
        for write in [
            "DELETE FROM t WHERE k IN ? AND c IN ?",
            "DELETE v FROM t WHERE k IN ? AND c IN ?",
        ] {
            assert_eq!(
                refusal(write, 1001, 1000).await,
                "The IN relations name 1001 partitions and 1000 rows in each, 1001000 in all, and at most 1000000 are allowed"
            );
        }
    });
}

const OF_SEVERAL_COLUMNS: &str = "CREATE TABLE ks.p (a text, b int, c text, d int, v blob, PRIMARY KEY ((a, b), c, d))";

#[test]
fn combinations_of_long_values_are_refused() {
    on_shard_with(OF_SEVERAL_COLUMNS, async |engine: Rc<Engine>| {
        for text in [
            "SELECT v FROM p WHERE a IN ? AND b IN ?",
            "SELECT v FROM p WHERE a = 'a' AND b = 1 AND c IN ? AND d IN ?",
            "DELETE FROM p WHERE a IN ? AND b IN ?",
            "DELETE FROM p WHERE a = 'a' AND b = 1 AND c IN ? AND d IN ?",
            "UPDATE p SET v = 0x01 WHERE a = 'a' AND b = 1 AND c IN ? AND d IN ?",
        ] {
            for (count, bytes) in [(10, 60_000), (1, 60_000), (300, 2_000)] {
                let values = vec![
                    texts(count, bytes),
                    ints(0..i32::try_from(99_000 / count).expect("it is small")),
                ];
                match ask(&engine, text, values, &Request::default()).await {
                    Err(QueryError::Invalid(message)) => assert!(message.contains("16777216 are allowed"), "{message}"),
                    other => panic!("{text} with {count} texts: {:?}", other.map(drop)),
                }
            }
            let values = vec![texts(10, 3), ints(0..10)];
            ask(&engine, text, values, &Request::default()).await.expect(text);
        }
        // A request has room for them.
        let values = vec![texts(100, 60_000)];
        let text = "SELECT v FROM p WHERE a = 'a' AND b = 1 AND c IN ?";
        ask(&engine, text, values, &Request::default()).await.expect(text);
    });
}

#[test]
fn combinations_are_reserved_before_they_are_built() {
    on_shard_with(OF_SEVERAL_COLUMNS, async |engine: Rc<Engine>| {
        for (text, count, bytes_min) in [
            (
                "SELECT v FROM p WHERE a IN ? AND b IN ? AND token(a, b) > 1 AND token(a, b) < 3",
                200,
                2 << 20,
            ),
            (
                "SELECT v FROM p WHERE a = 'a' AND b = 1 AND c IN ? AND d IN ?",
                200,
                2 << 20,
            ),
            (
                "DELETE FROM p WHERE a = 'a' AND b = 1 AND c IN ? AND d IN ?",
                50,
                400 << 10,
            ),
            (
                "UPDATE p SET v = 0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f WHERE a = 'a' \
                 AND b = 1 AND c IN ? AND d IN ?",
                50,
                500 << 10,
            ),
        ] {
            let memory = ResultMemory::new(64 << 20);
            let reservation = memory.reserve(1).await;
            let request = Request {
                reservation: Some(Arc::clone(&reservation)),
                ..Request::default()
            };
            let values = vec![texts(count, 3), ints(0..i32::try_from(count).expect("it is small"))];
            ask(&engine, text, values, &request).await.expect(text);
            assert!(reservation.bytes() > bytes_min, "{text}: {} bytes", reservation.bytes());
        }
    });
}
