//! Limits of the tombstones that a page of a read may meet: where pages are cut, nothing is lost and nothing comes
//! twice, and reads of too many fail.

use std::rc::Rc;
use std::time::Duration;

use crate::support;
use plan::ValueRows;
use query::engine::PageLimits;
use query::{Engine, Execution, Outcome, QueryError, Request};
use runtime::sim::Simulation;
use schema::Schema;

/// More pages than any read here has.
const PAGES_MAX: usize = 500;
const NONE: PageLimits = PageLimits {
    warn: u64::MAX,
    failure: u64::MAX,
    page: u64::MAX,
    rejected: u64::MAX,
    page_bytes: u64::MAX,
    unpaged_bytes_warn: u64::MAX,
    result_bytes: u64::MAX,
};

fn schema() -> Schema {
    support::schema_of("CREATE TABLE ks.t (k int, c int, s int static, v int, PRIMARY KEY (k, c))")
}

async fn ask(engine: &Rc<Engine>, text: &str, request: &Request) -> Result<Outcome<ValueRows>, QueryError> {
    let statement = engine.compile(text, Some("ks")).expect(text).statement;
    let run = Execution {
        values: Vec::new(),
        now_us: runtime::wall_clock_us(),
        now_in_seconds: None,
        random: 0,
    };
    engine.execute(&statement, &run, request).await
}

async fn write(engine: &Rc<Engine>, text: &str) {
    ask(engine, text, &Request::default()).await.expect(text);
}

/// The rows of each page, and how many warnings came.
type Pages = (Vec<Vec<Vec<Option<Vec<u8>>>>>, usize);

/// The pages of a client that asks for the next one after an empty one.
async fn pages(engine: &Rc<Engine>, text: &str, rows: u32) -> Result<Pages, QueryError> {
    pages_of(engine, text, rows, true).await
}

async fn pages_of(engine: &Rc<Engine>, text: &str, rows: u32, takes_empty_pages: bool) -> Result<Pages, QueryError> {
    let (mut all, mut warnings, mut state) = (Vec::new(), 0, None);
    for _ in 0..PAGES_MAX {
        let request = Request {
            page_rows: Some(rows),
            paging_state: state,
            takes_empty_pages,
            ..Request::default()
        };
        let Outcome::Rows(page) = ask(engine, text, &request).await? else {
            panic!("a SELECT returns rows");
        };
        all.push(page.sink.rows);
        warnings += page.warnings.len();
        state = page.paging_state;
        if state.is_none() {
            return Ok((all, warnings));
        }
    }
    panic!("{text}: no end after {PAGES_MAX} pages of {rows} rows");
}

/// Partition 1: 40 dead rows before, among and after ten living ones. Partition 2: dead rows and a static row alone.
/// Partitions 10 to 29: deleted, but for the last. Partition 40: ranges that are deleted.
async fn fill(engine: &Rc<Engine>) {
    for c in 0..50 {
        write(engine, &format!("INSERT INTO t (k, c, v) VALUES (1, {c}, {c})")).await;
        write(engine, &format!("INSERT INTO t (k, c, v) VALUES (2, {c}, {c})")).await;
    }
    for c in (0..50).filter(|c| c % 5 != 3) {
        write(engine, &format!("DELETE FROM t WHERE k = 1 AND c = {c}")).await;
    }
    write(engine, "UPDATE t SET s = 7 WHERE k = 1").await;
    write(engine, "UPDATE t SET s = 8 WHERE k = 2").await;
    for c in 0..50 {
        write(engine, &format!("DELETE FROM t WHERE k = 2 AND c = {c}")).await;
    }
    for k in 10..30 {
        write(engine, &format!("INSERT INTO t (k, c, v) VALUES ({k}, 0, 0)")).await;
    }
    for k in 10..29 {
        write(engine, &format!("DELETE FROM t WHERE k = {k}")).await;
    }
    for c in 0..20 {
        write(engine, &format!("INSERT INTO t (k, c, v) VALUES (40, {c}, {c})")).await;
    }
    for c in [2, 6, 10, 14] {
        write(
            engine,
            &format!("DELETE FROM t WHERE k = 40 AND c >= {c} AND c < {}", c + 3),
        )
        .await;
    }
}

const READS: [&str; 16] = [
    "SELECT * FROM t WHERE k = 1",
    "SELECT * FROM t WHERE k = 1 ORDER BY c DESC",
    "SELECT * FROM t WHERE k = 1 AND c > 11 AND c < 42",
    "SELECT * FROM t WHERE k = 1 LIMIT 7",
    "SELECT * FROM t WHERE k = 2",
    "SELECT * FROM t WHERE k IN (1, 2, 12, 29, 40)",
    "SELECT * FROM t WHERE k IN (1, 2, 29, 40) PER PARTITION LIMIT 3",
    "SELECT DISTINCT k, s FROM t",
    "SELECT * FROM t",
    "SELECT * FROM t LIMIT 12",
    "SELECT * FROM t PER PARTITION LIMIT 2",
    "SELECT * FROM t WHERE v > 10 ALLOW FILTERING",
    "SELECT * FROM t WHERE c = 13 ALLOW FILTERING",
    "SELECT * FROM t WHERE s = 8 ALLOW FILTERING",
    "SELECT * FROM t WHERE k = 1 AND v > 10 ORDER BY c DESC LIMIT 3 ALLOW FILTERING",
    "SELECT k, count(c) FROM t GROUP BY k",
];

/// Runs a test on the engine of a shard.
fn on_shard(test: impl AsyncFn(Rc<Engine>) + Copy + 'static) {
    let mut sim = Simulation::new(3);
    let node = sim.add_node(1);
    sim.start(node, move |_| {
        Box::pin(async move {
            let engine = support::engine(schema(), support::system_tables().build()).await;
            fill(&engine).await;
            test(engine.clone()).await;
        })
    });
    assert!(sim.run_until_ended(node, Duration::from_secs(3600)), "it did not end");
}

#[test]
fn pages_that_end_behind_what_is_no_result_have_the_rows_of_a_read_without_limits() {
    on_shard(async |engine: Rc<Engine>| {
        for is_flushed in [false, true] {
            if is_flushed {
                engine.coordinator.context.shard.flush_all().await.expect("it flushes");
            }
            for text in READS {
                engine.set_page_limits(NONE);
                let (whole, warnings) = pages(&engine, text, u32::MAX).await.expect(text);
                assert_eq!((whole.len(), warnings), (1, 0), "{text}");
                for limit in [1, 2, 3, 7, 15, 39, 40, 41] {
                    for (page, rejected) in [(limit, u64::MAX), (u64::MAX, limit), (limit, limit)] {
                        for rows in [1, 4, 5000] {
                            engine.set_page_limits(PageLimits { page, rejected, ..NONE });
                            let (cut, _) = pages(&engine, text, rows).await.expect(text);
                            let cut: Vec<_> = cut.concat();
                            assert_eq!(
                                cut,
                                whole.concat(),
                                "{text}, behind {page} tombstones, {rejected} rejected or {rows} rows"
                            );
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn no_page_but_the_last_is_empty_for_a_client_that_would_stop_there() {
    on_shard(async |engine: Rc<Engine>| {
        for is_flushed in [false, true] {
            if is_flushed {
                engine.coordinator.context.shard.flush_all().await.expect("it flushes");
            }
            let mut more_pages = 0;
            for text in READS {
                engine.set_page_limits(NONE);
                let (whole, _) = pages(&engine, text, u32::MAX).await.expect(text);
                for limit in [1, 3, 15, 40] {
                    for (page, rejected) in [(limit, u64::MAX), (u64::MAX, limit), (limit, limit)] {
                        for rows in [1, 4, 5000] {
                            engine.set_page_limits(PageLimits { page, rejected, ..NONE });
                            let (cut, _) = pages_of(&engine, text, rows, false).await.expect(text);
                            let what = format!("{text}, after {page} tombstones, {rejected} rejected or {rows} rows");
                            let (_, with_successors) = cut.split_last().expect("a read has a page");
                            assert!(with_successors.iter().all(|page| !page.is_empty()), "{what}: {cut:?}");
                            more_pages += usize::from(rows == 5000) * with_successors.len();
                            assert_eq!(cut.concat(), whole.concat(), "{what}");
                        }
                    }
                }
            }
            assert!(more_pages > 100, "pages with rows still end at the limits");
        }
    });
}

#[test]
fn a_read_that_looks_for_a_row_among_tombstones_fails_at_their_limit_and_not_before() {
    on_shard(async |engine: Rc<Engine>| {
        // Partition 2 has 50 dead rows; its static row is not asked for.
        let text = "SELECT c FROM t WHERE k = 2 AND c >= 0";
        let limits = PageLimits { page: 5, ..NONE };
        engine.set_page_limits(PageLimits { failure: 50, ..limits });
        let (cut, _) = pages_of(&engine, text, 100, false).await.expect(text);
        assert_eq!((cut.len(), cut.concat().len()), (1, 0));
        engine.set_page_limits(PageLimits { failure: 49, ..limits });
        let failed = pages_of(&engine, text, 100, false).await;
        assert!(matches!(failed, Err(QueryError::TooManyTombstones(_))), "{failed:?}");
    });
}

#[test]
fn a_page_of_tombstones_alone_is_empty_and_a_read_without_pages_is_whole() {
    on_shard(async |engine: Rc<Engine>| {
        engine.set_page_limits(PageLimits { page: 3, ..NONE });
        let text = "SELECT c FROM t WHERE k = 1";
        let (cut, _) = pages(&engine, text, 100).await.expect(text);
        assert!(cut.len() >= 13, "40 tombstones in {} pages", cut.len());
        let (cut, _) = pages(&engine, "SELECT c FROM t WHERE k = 1 AND c < 3", 100)
            .await
            .expect(text);
        assert_eq!(cut.concat().len(), 0);
        assert!(cut.len() >= 2, "{cut:?}");
        let Outcome::Rows(page) = ask(&engine, text, &Request::default()).await.expect(text) else {
            panic!("a SELECT returns rows");
        };
        assert_eq!((page.rows, page.paging_state), (10, None));
    });
}

#[test]
fn a_page_ends_behind_rows_that_are_filtered_out_and_an_aggregate_does_not() {
    on_shard(async |engine: Rc<Engine>| {
        engine.set_page_limits(PageLimits { rejected: 5, ..NONE });
        for (text, at_least) in [
            ("SELECT c FROM t WHERE k = 1 AND v = 100 ALLOW FILTERING", 2),
            ("SELECT c FROM t WHERE v = 100 ALLOW FILTERING", 4),
            ("SELECT c FROM t WHERE c = 100 ALLOW FILTERING", 4),
        ] {
            let (cut, _) = pages(&engine, text, 100).await.expect(text);
            assert!(cut.len() >= at_least && cut.concat().is_empty(), "{text}: {cut:?}");
        }
        let text = "SELECT count(*) FROM t WHERE v = 100 ALLOW FILTERING";
        let (cut, _) = pages(&engine, text, 100).await.expect(text);
        assert_eq!(cut.len(), 1, "{text}");
    });
}

#[test]
fn a_read_warns_of_more_tombstones_than_the_threshold_and_names_the_partition() {
    on_shard(async |engine: Rc<Engine>| {
        let text = "SELECT c FROM t WHERE k = 1";
        for (warn, warned) in [(39, true), (40, false), (u64::MAX, false)] {
            engine.set_page_limits(PageLimits { warn, ..NONE });
            let Outcome::Rows(page) = ask(&engine, text, &Request::default()).await.expect(text) else {
                panic!("a SELECT returns rows");
            };
            assert_eq!(page.warnings.len(), usize::from(warned), "{warn}: {:?}", page.warnings);
            for warning in page.warnings {
                assert_eq!(
                    warning,
                    "Read 10 rows and 40 tombstones of ks.t, many of them in the partition k = 1 (see tombstone_warn_threshold)"
                );
            }
        }
        assert_eq!(engine.tombstone_excesses(), (1, 0));
        // What each page met counts, not what came before it.
        engine.set_page_limits(PageLimits {
            warn: 10,
            page: 10,
            ..NONE
        });
        let (_, warnings) = pages(&engine, text, 100).await.expect(text);
        assert_eq!(warnings, 0);
    });
}

#[test]
fn a_read_of_more_tombstones_than_the_limit_fails_unless_its_pages_end_before() {
    on_shard(async |engine: Rc<Engine>| {
        let text = "SELECT c FROM t WHERE k = 1";
        engine.set_page_limits(PageLimits { failure: 39, ..NONE });
        let failed = ask(&engine, text, &Request::default()).await;
        let expected = "Scanned over 40 tombstones of ks.t, at last in the partition k = 1; the read was aborted (see tombstone_failure_threshold)";
        assert_eq!(failed, Err(QueryError::TooManyTombstones(expected.to_owned())));
        let failed = pages(&engine, text, 100).await;
        assert!(matches!(failed, Err(QueryError::TooManyTombstones(_))), "{failed:?}");
        assert_eq!(engine.tombstone_excesses(), (0, 2));
        engine.set_page_limits(PageLimits {
            failure: 39,
            page: 39,
            ..NONE
        });
        let (cut, _) = pages(&engine, text, 100).await.expect(text);
        assert_eq!(cut.concat().len(), 10);
        // An aggregate reads on: it has one page however much it reads.
        ask(&engine, "SELECT count(*) FROM t WHERE k = 1", &Request::default())
            .await
            .expect("it counts");
    });
}
