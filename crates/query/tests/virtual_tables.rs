//! Tables that a crate registers for itself, read through CQL.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support;
use mutation::row::Shared;
use mutation::{Liveness, Mutation, MutationBuilder, RowBuilder, Tombstone};
use plan::ValueRows;
use query::{Engine, Execution, Outcome, QueryError, Request};
use runtime::sim::Simulation;
use schema::{Schema, push_component};
use system_tables::{Builder, Content, Definition, Kind, Opening, Options, Partitions, Rows, Value, VirtualTable};
use types::token::token_of;
use uuid::Uuid;

static MOONS: Definition = Definition {
    keyspace: "system_views",
    cql: "moons (planet text, moon text, diameter int, found_by text, PRIMARY KEY (planet, moon))",
    options: Options::USUAL,
};

/// Moons of planets, with their diameters.
type Sky = Vec<(&'static str, BTreeMap<&'static str, i32>)>;

/// A table of moons, whose facts take a while to gather. It notes the moons that it was asked to compute.
#[derive(Default)]
struct Moons {
    sky: Mutex<Sky>,
    computed: Arc<Mutex<Vec<String>>>,
}

impl Moons {
    fn look(&self, planet: &'static str, moons: &[(&'static str, i32)]) {
        let mut sky = self.sky.lock().expect("one thread");
        sky.push((planet, moons.iter().copied().collect()));
    }

    /// What was computed since this was asked last.
    fn computed(&self) -> Vec<String> {
        std::mem::take(&mut *self.computed.lock().expect("one thread"))
    }
}

impl VirtualTable for Moons {
    fn definition(&self) -> &'static Definition {
        &MOONS
    }

    fn open(&self, _: system_tables::Request) -> Opening<'_> {
        Box::pin(async {
            runtime::sleep(Duration::from_millis(1)).await;
            let content: Box<dyn Content> = Box::new(Seen {
                sky: self.sky.lock().expect("one thread").clone(),
                computed: self.computed.clone(),
            });
            content
        })
    }
}

struct Seen {
    sky: Sky,
    computed: Arc<Mutex<Vec<String>>>,
}

impl Content for Seen {
    fn partitions(&self, partitions: &mut Partitions) {
        for (number, (planet, _)) in self.sky.iter().enumerate() {
            partitions.add(number, &[Value::Text(planet)]);
        }
    }

    fn rows(&self, partition: usize, rows: &mut Rows<'_>) {
        let (planet, moons) = &self.sky[partition];
        for (moon, diameter) in moons {
            if rows.is_full() {
                return;
            }
            if rows.wants(&[Value::Text(moon)]) {
                self.computed.lock().expect("one thread").push((*moon).to_owned());
                rows.push(&[
                    ("planet", Value::Text(planet)),
                    ("moon", Value::Text(moon)),
                    ("diameter", Value::Int(*diameter)),
                    ("found_by", Value::Null),
                ]);
            }
        }
    }
}

fn schema_of(tables: Builder) -> (Schema, system_tables::Registry) {
    let registry = tables.build();
    let empty = Schema {
        version: Uuid::nil(),
        keyspaces: BTreeMap::new(),
    };
    (registry.with_system_keyspaces(&empty), registry)
}

/// Runs a test on a simulated shard that has these tables.
fn on_shard<F: Future<Output = ()> + 'static>(
    register: impl Fn(&mut Builder) + 'static,
    test: impl Fn(Rc<Engine>) -> F + 'static,
) {
    let mut sim = Simulation::new(1);
    let node = sim.add_node(1);
    let told = Arc::new(Mutex::new(false));
    let (end, parts) = (told.clone(), Rc::new((register, test)));
    sim.start(node, move |_| {
        let (end, parts) = (end.clone(), parts.clone());
        Box::pin(async move {
            let mut tables = support::system_tables();
            (parts.0)(&mut tables);
            let (schema, registry) = schema_of(tables);
            let engine = support::engine(schema, registry).await;
            (parts.1)(engine).await;
            *end.lock().expect("one thread") = true;
        })
    });
    assert!(sim.run_until_ended(node, Duration::from_mins(1)), "no end");
    assert!(*told.lock().expect("one thread"), "the test did not come to its end");
}

async fn execute(engine: &Rc<Engine>, text: &str, request: &Request) -> Result<Outcome<ValueRows>, QueryError> {
    let statement = engine.compile(text, None)?.statement;
    let run = Execution {
        values: Vec::new(),
        now_us: runtime::wall_clock_us(),
        now_in_seconds: None,
        random: 0,
    };
    engine.execute(&statement, &run, request).await
}

/// The rows of a statement that selects one column of texts (or JSON).
fn lines(rows: &[Vec<Option<Vec<u8>>>]) -> Vec<String> {
    let values = rows.iter().flatten().flatten();
    values
        .map(|text| String::from_utf8(text.clone()).expect("a text"))
        .collect()
}

async fn rows(engine: &Rc<Engine>, text: &str) -> Vec<String> {
    match execute(engine, text, &Request::default()).await {
        Ok(Outcome::Rows(page)) => lines(&page.sink.rows),
        other => panic!("{text}: {other:?}"),
    }
}

fn with_moons(moons: Arc<Moons>) -> impl Fn(&mut Builder) {
    moons.look("mars", &[("phobos", 22), ("deimos", 12)]);
    moons.look(
        "jupiter",
        &[("io", 3643), ("europa", 3121), ("ganymede", 5268), ("callisto", 4820)],
    );
    moons.look("earth", &[("moon", 3474)]);
    move |tables| tables.virtual_table(moons.clone())
}

#[test]
fn a_table_that_one_crate_registers_is_read_and_listed_like_any_other() {
    let moons = Arc::new(Moons::default());
    on_shard(with_moons(moons.clone()), move |engine| {
        let moons = moons.clone();
        async move {
            for (text, answer) in [
                (
                    "SELECT JSON * FROM system_views.moons WHERE planet = 'earth'",
                    &[r#"{"planet": "earth", "moon": "moon", "diameter": 3474, "found_by": null}"#][..],
                ),
                (
                    "SELECT moon FROM system_views.moons WHERE planet = 'jupiter' ORDER BY moon DESC LIMIT 3",
                    &["io", "ganymede", "europa"],
                ),
                (
                    "SELECT moon FROM system_views.moons WHERE planet IN ('mars', 'jupiter') AND moon > 'd' AND moon < 'h'",
                    &["europa", "ganymede", "deimos"],
                ),
                (
                    "SELECT moon FROM system_views.moons WHERE diameter > 3500 ALLOW FILTERING",
                    &["callisto", "ganymede", "io"],
                ),
                (
                    "SELECT JSON count(*), max(diameter) FROM system_views.moons",
                    &[r#"{"count": 7, "system.max(diameter)": 5268}"#],
                ),
                (
                    "SELECT JSON DISTINCT planet FROM system_views.moons",
                    &[
                        r#"{"planet": "mars"}"#,
                        r#"{"planet": "jupiter"}"#,
                        r#"{"planet": "earth"}"#,
                    ],
                ),
                (
                    "SELECT column_name FROM system_virtual_schema.columns WHERE keyspace_name = 'system_views' AND table_name = 'moons'",
                    &["diameter", "found_by", "moon", "planet"],
                ),
            ] {
                assert_eq!(rows(&engine, text).await, answer, "{text}");
            }
            moons.look("pluto", &[("charon", 1212)]);
            let charon = rows(&engine, "SELECT moon FROM system_views.moons WHERE planet = 'pluto'").await;
            assert_eq!(charon, ["charon"], "a read shows the facts of before");
            let described = execute(&engine, "DESCRIBE TABLE system_views.moons", &Request::default()).await;
            let Ok(Outcome::Table(_, table, None)) = described else {
                panic!("{described:?}");
            };
            let text = lines(&table).concat();
            assert!(text.contains("VIRTUAL TABLE system_views.moons"), "{text}");
        }
    });
}

#[test]
fn a_read_computes_the_partitions_and_rows_that_it_names() {
    let moons = Arc::new(Moons::default());
    on_shard(with_moons(moons.clone()), move |engine| {
        let moons = moons.clone();
        async move {
            for (text, computed) in [
                (
                    "SELECT moon FROM system_views.moons WHERE planet = 'mars'",
                    &["deimos", "phobos"][..],
                ),
                (
                    "SELECT moon FROM system_views.moons WHERE planet = 'jupiter' AND moon = 'io'",
                    &["io"],
                ),
                (
                    "SELECT moon FROM system_views.moons WHERE planet = 'jupiter' AND moon > 'f'",
                    &["ganymede", "io"],
                ),
                // One more than the limit, by which the reader knows that the block is full.
                (
                    "SELECT moon FROM system_views.moons WHERE planet = 'jupiter' LIMIT 2",
                    &["callisto", "europa"],
                ),
                ("SELECT moon FROM system_views.moons WHERE planet = 'venus'", &[]),
            ] {
                let answer = rows(&engine, text).await;
                assert_eq!(moons.computed(), computed, "{text} computed rows for {answer:?}");
            }
        }
    });
}

#[test]
fn pages_of_any_size_show_every_row_once() {
    let moons = Arc::new(Moons::default());
    on_shard(with_moons(moons), |engine| async move {
        for text in [
            "SELECT moon FROM system_views.moons",
            "SELECT moon FROM system_views.moons PER PARTITION LIMIT 2",
            "SELECT moon FROM system_views.moons WHERE planet = 'jupiter'",
            "SELECT moon FROM system_views.moons WHERE planet = 'jupiter' ORDER BY moon DESC",
            "SELECT moon FROM system_views.moons WHERE planet IN ('mars', 'earth', 'jupiter', 'venus')",
            "SELECT moon FROM system_views.moons WHERE token(planet) > 0",
            "SELECT moon FROM system_views.moons WHERE moon > 'd' ALLOW FILTERING",
        ] {
            let whole = rows(&engine, text).await;
            for size in 1..9 {
                let (mut paged, mut request) = (Vec::new(), Request::default());
                request.page_rows = Some(size);
                loop {
                    let answer = execute(&engine, text, &request).await;
                    let Ok(Outcome::Rows(page)) = answer else {
                        panic!("{text}: {answer:?}");
                    };
                    assert!(page.rows <= size, "{text}: a page of {} rows", page.rows);
                    paged.extend(lines(&page.sink.rows));
                    request.paging_state = page.paging_state;
                    if request.paging_state.is_none() {
                        break;
                    }
                }
                assert_eq!(paged, whole, "{text} in pages of {size}");
            }
        }
    });
}

#[test]
fn nobody_writes_to_a_table_that_is_not_stored() {
    on_shard(with_moons(Arc::default()), |engine| async move {
        for text in [
            "INSERT INTO system_views.moons (planet, moon, diameter) VALUES ('a', 'b', 1)",
            "UPDATE system_views.moons SET diameter = 1 WHERE planet = 'a' AND moon = 'b' IF EXISTS",
            "DELETE FROM system_views.moons WHERE planet = 'mars'",
            "TRUNCATE system_views.moons",
            "ALTER TABLE system_views.moons ADD v int",
            "DROP TABLE system_views.moons",
        ] {
            let answer = execute(&engine, text, &Request::default()).await;
            assert!(
                matches!(answer, Err(QueryError::Invalid(_) | QueryError::Unauthorized(_))),
                "{text}: {answer:?}"
            );
        }
    });
}

static NOTES: Definition = Definition {
    keyspace: "system",
    cql: "notes (topic text, note text, PRIMARY KEY (topic, note))",
    options: Options::USUAL,
};

#[test]
fn a_local_table_is_stored_by_its_node_and_by_nobody_else() {
    on_shard(
        |tables| tables.local_table(&NOTES),
        |engine| async move {
            let schema = engine.schema();
            let table = schema.table("system", "notes").expect("it is registered");
            assert_eq!(engine.node.system_tables.kind(table.id), Some(Kind::Local));
            let (timestamp, ttl, expiry) = (1, 0, 0);
            let (mut bytes, mut clustering) = (Vec::new(), Vec::new());
            push_component(&mut clustering, b"bread");
            let mut builder = MutationBuilder::begin(&mut bytes, table.id, b"buy");
            builder.row(&clustering, |out| {
                let shared = Shared { timestamp, ttl, expiry };
                let marker = Liveness { timestamp, ttl, expiry };
                let columns = table.layout.len();
                RowBuilder::begin(
                    out,
                    &table.layout,
                    shared,
                    Some(marker),
                    Tombstone::NONE,
                    false,
                    columns,
                );
            });
            let mutation = Mutation::new(&bytes).expect("a packed mutation");
            let store = engine
                .coordinator
                .context
                .shard
                .store(table.id)
                .expect("the shard keeps it");
            let written = engine
                .coordinator
                .context
                .shard
                .write(&store, token_of(mutation.key), &mutation);
            assert!(written.is_ok(), "{written:?}");
            let read = "SELECT JSON * FROM system.notes WHERE topic = 'buy'";
            assert_eq!(rows(&engine, read).await, [r#"{"topic": "buy", "note": "bread"}"#]);
            let text = "INSERT INTO system.notes (topic, note) VALUES ('buy', 'salt')";
            let refused = execute(&engine, text, &Request::default()).await;
            assert!(matches!(refused, Err(QueryError::Invalid(_))), "{refused:?}");
        },
    );
}
